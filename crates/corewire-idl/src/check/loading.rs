//! One run: reads the file and its imports, checks them in order, and puts the form together.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;

use super::{Checked, Checker, Loaded, Place};
use crate::diagnostics::{Code, Diagnostic, Diagnostics, FileId};
use crate::form::{self, Definition, Known, Type, TypeDecl};
use crate::parser;
use crate::source::{Source, Span};
use crate::syntax::{Edition, Import};

/// How many files one file can import, itself or through others.
const IMPORTS_MAX: usize = 256;

/// How deep imports of imports go.
const IMPORT_DEPTH_MAX: usize = 32;

type Loader = Box<dyn FnMut(&str) -> io::Result<Source>>;

/// Checks one interface file: put together what it needs, then [`Check::run`].
///
/// ```
/// use corewire_idl::{Check, Source};
///
/// // As Flounder's build does: files with types are given beside the interface.
/// let types = Source::new("types.if", "alias coreid uint8;");
/// let main = Source::new("boot.if", "interface boot \"Boots a core\" { message up(coreid core); };");
/// let checked = Check::new(main).import(types).run();
/// assert!(checked.diagnostics.is_empty());
/// assert_eq!(checked.interface.unwrap().types[0].name, "coreid");
/// ```
pub struct Check {
    main: Source,
    given: Vec<Source>,
    loader: Option<Loader>,
}

impl fmt::Debug for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let given = self.given.iter().map(Source::name).collect::<Vec<_>>();
        f.debug_struct("Check").field("main", &self.main.name()).field("given", &given).finish()
    }
}

impl Check {
    /// Checks this file. Its own `import` lines fail until there is a [`Check::loader`].
    #[must_use]
    pub fn new(main: Source) -> Self {
        Self { main, given: Vec::new(), loader: None }
    }

    /// Checks the file at `path`, which may import files beside it.
    ///
    /// # Errors
    ///
    /// Those of reading the file. Imports that cannot be read are diagnostics.
    pub fn path(path: &Path) -> io::Result<Self> {
        Ok(Self::new(Source::read(path)?).loader(|name| Source::read(Path::new(name))))
    }

    /// Makes the types of `source` known, as Flounder's option `-i` does. Later ones may use those of earlier ones.
    #[must_use]
    pub fn import(mut self, source: Source) -> Self {
        self.given.push(source);
        self
    }

    /// Reads what `import` lines name. The argument is the path in the line, behind the folder of the importing file.
    #[must_use]
    pub fn loader(mut self, loader: impl FnMut(&str) -> io::Result<Source> + 'static) -> Self {
        self.loader = Some(Box::new(loader));
        self
    }

    /// Checks the file. All errors of all files are in the result.
    #[must_use]
    pub fn run(self) -> Checked {
        let Self { main, given, loader } = self;
        let diagnostics = Diagnostics::default();
        let (loaded, names) = (Vec::new(), HashSet::new());
        let mut files = Files { diagnostics, loaded, names, loader, imports: Vec::new() };
        // The main file comes first in messages and last in order: it may use what the others declare.
        let main = files.parse(main);
        for source in given {
            let file = files.parse(source);
            files.imports_of(&file, 1);
            files.loaded.push(file);
        }
        files.names.insert(main.source.name().to_owned());
        files.imports_of(&main, 0);
        let Files { diagnostics, loaded, imports, .. } = files;
        check(&main, &loaded, &imports, diagnostics)
    }
}

/// An import of the main file: its line, and the files that it brought in.
struct Imported {
    span: Span,
    path: String,
    files: Vec<FileId>,
}

struct Files {
    diagnostics: Diagnostics,
    loaded: Vec<Loaded>,
    names: HashSet<String>,
    loader: Option<Loader>,
    imports: Vec<Imported>,
}

impl Files {
    fn parse(&mut self, source: Source) -> Loaded {
        let source = Arc::new(source);
        let id = self.diagnostics.add_source(Arc::clone(&source));
        let (parsed, _) = parser::parse(&source, id, &mut self.diagnostics);
        Loaded { id, source, parsed }
    }

    /// Loads what `file` imports, each before those that it was imported by.
    fn imports_of(&mut self, file: &Loaded, depth: usize) {
        for import in &file.parsed.imports {
            let first = self.loaded.len();
            let name = match file.source.folder() {
                "" => import.path.clone(),
                folder => format!("{folder}/{}", import.path),
            };
            if self.names.contains(&name) {
                if depth == 0 && name == file.source.name() {
                    self.impossible(file, import, "a file cannot import itself");
                }
                continue;
            }
            if depth >= IMPORT_DEPTH_MAX || self.loaded.len() >= IMPORTS_MAX {
                let limits =
                    format!("at most {IMPORTS_MAX} imports, {IMPORT_DEPTH_MAX} deep, are possible");
                self.impossible(file, import, &limits);
                continue;
            }
            self.names.insert(name.clone());
            if let Some(source) = self.load(file, import, &name) {
                let inner = self.parse(source);
                self.imports_of(&inner, depth + 1);
                self.loaded.push(inner);
            }
            if depth == 0 {
                let files = self.loaded[first..].iter().map(|one| one.id).collect();
                let (span, path) = (import.span, import.path.clone());
                self.imports.push(Imported { span, path, files });
            }
        }
    }

    fn load(&mut self, file: &Loaded, import: &Import, name: &str) -> Option<Source> {
        let Some(loader) = &mut self.loader else {
            self.impossible(file, import, "imports are not possible here: nothing reads them");
            return None;
        };
        match loader(name) {
            Ok(source) => Some(source),
            Err(error) => {
                let message = format!("`{name}` cannot be read: {error}");
                let one = Diagnostic::new(Code::ImportFailed, file.id, import.span, message);
                self.diagnostics.push(one.note("paths are relative to the importing file"));
                None
            }
        }
    }

    fn impossible(&mut self, file: &Loaded, import: &Import, message: &str) {
        let one = Diagnostic::new(Code::ImportNotPossible, file.id, import.span, message);
        self.diagnostics.push(one);
    }
}

fn check(main: &Loaded, loaded: &[Loaded], imports: &[Imported], found: Diagnostics) -> Checked {
    let mut checker = Checker {
        diagnostics: found,
        declared: Vec::new(),
        names: HashMap::new(),
        constants: HashMap::new(),
        errors: HashMap::new(),
        interfaces: HashMap::new(),
        used_files: Vec::new(),
        types: Vec::new(),
        entered: HashMap::new(),
        known: Known::default(),
        later: HashMap::new(),
        depth: 0,
        warned_of_machine_words: false,
    };
    for file in loaded {
        let place = Place { file: file.id, edition: file.parsed.edition, main: false };
        if let Some(interface) = &file.parsed.interface {
            // An interface's types are its own; its name can stand in `client<I>`.
            checker.interfaces.insert(&interface.name.text, file.id);
        }
        checker.declare(place, &file.parsed.declarations);
    }
    let place = Place { file: main.id, edition: main.parsed.edition, main: true };
    let outside = &main.parsed.declarations;
    let mut interface = None;
    match &main.parsed.interface {
        None => checker.declare(place, outside),
        Some(ast) => {
            if let Some(first) = outside.first() {
                let message = "a declaration outside the interface";
                let one = checker.error(Code::Expected, place, first.keyword, message);
                checker.report(one.help("move it into the interface, or into a file to import"));
            }
            checker.interfaces.insert(&ast.name.text, main.id);
            if place.edition == Edition::Zero {
                let later =
                    ast.declarations.iter().map(|one| (one.name.text.as_str(), one.name.span));
                checker.later = later.collect();
            }
            checker.declare(place, &ast.declarations);
            checker.later.clear();
            interface = Some(checker.interface(place, &main.source, ast));
        }
    }
    for import in imports {
        let used = import.files.iter().any(|file| checker.used_files.contains(file));
        if interface.is_some() && !used && !import.files.is_empty() {
            let message = format!("nothing of `{}` is used", import.path);
            let one = checker.error(Code::UnusedImport, place, import.span, message);
            checker.report(one.help("remove the import"));
        }
    }
    let mut diagnostics = checker.diagnostics;
    let mut interface = interface.filter(|_| !diagnostics.has_errors());
    if let Some(form) = &mut interface {
        retain_used(form);
        if let Err(error) = form::complete(form) {
            // The checker asks for the same facts, so only limits of the whole interface are left.
            let span = main.parsed.interface.as_ref().map_or_else(Span::default, |i| i.name.span);
            let message = error.to_string();
            diagnostics.push(Diagnostic::new(Code::TooLarge, main.id, span, message));
            interface = None;
        }
    }
    diagnostics.sort();
    Checked { interface, diagnostics, main: main.id }
}

/// Removes imported types that nothing uses. Each type stands behind those that it uses.
fn retain_used(form: &mut form::Interface) {
    let mut used = HashSet::new();
    for message in &form.messages {
        message.arguments.iter().for_each(|argument| names_in(&argument.of, &mut used));
    }
    let mut kept = Vec::<TypeDecl>::new();
    for decl in form.types.drain(..).rev() {
        if decl.imported && !used.contains(&decl.name) {
            continue;
        }
        match &decl.definition {
            Definition::Alias { target: of } | Definition::Array { element: of, .. } => {
                names_in(of, &mut used);
            }
            Definition::Struct { fields } | Definition::Union { arms: fields, .. } => {
                fields.iter().for_each(|field| names_in(&field.of, &mut used));
            }
            Definition::Enum { .. } => {}
        }
        kept.push(decl);
    }
    kept.reverse();
    form.types = kept;
}

fn names_in(of: &Type, names: &mut HashSet<String>) {
    match of {
        Type::Named { name } => drop(names.insert(name.clone())),
        Type::Vector { element: of, .. } | Type::Optional { of } | Type::Channel { of } => {
            names_in(of, names);
        }
        _ => {}
    }
}
