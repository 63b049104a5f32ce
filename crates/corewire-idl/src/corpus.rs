//! Checks a whole tree of Barrelfish's interface files, each with the imports that Flounder's build gives it.
//!
//! Barrelfish compiles every interface for each architecture, after `if/platform/ARCH.if`, `if/arch/ARCH.if` and
//! `if/types.if` (hake/RuleDefs.hs). [`check_tree`] does the same: architectures are those that both folders have.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::io;
use std::path::{Path, PathBuf};

use crate::check::Check;
use crate::diagnostics::{Code, Diagnostics, Severity};
use crate::form::Interface;
use crate::source::{Source, Span};

/// Why a tree cannot be checked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CorpusError {
    /// A file or folder that cannot be read.
    #[error("`{path}` cannot be read: {source}")]
    Unreadable {
        /// The file or folder.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Not a tree like Barrelfish's.
    #[error(
        "`{0}` has no architecture: there is no ARCH with `if/platform/ARCH.if` and `if/arch/ARCH.if`"
    )]
    NoArchitecture(PathBuf),
}

/// What [`check_tree`] found.
#[derive(Debug)]
pub struct Corpus {
    /// All architectures, in alphabetical order.
    pub architectures: Vec<String>,
    /// All files, in alphabetical order of their paths.
    pub files: Vec<CheckedFile>,
    /// Warnings by code. One that several architectures or interfaces repeat counts once.
    pub warnings: BTreeMap<Code, usize>,
}

/// One file of the tree.
#[derive(Debug)]
pub struct CheckedFile {
    /// Its path, relative to the tree.
    pub path: String,
    /// The interface, for each architecture. Empty for files that others import, and for those with errors.
    pub interfaces: Vec<(String, Interface)>,
    /// The errors and warnings for the first architecture that has errors, otherwise for the first one.
    pub diagnostics: Diagnostics,
}

impl CheckedFile {
    /// Whether the file has no errors on any architecture.
    #[must_use]
    pub const fn passed(&self) -> bool {
        !self.diagnostics.has_errors()
    }
}

impl Corpus {
    /// The number of files without errors.
    #[must_use]
    pub fn passed_count(&self) -> usize {
        self.files.iter().filter(|file| file.passed()).count()
    }

    /// The number of interfaces.
    #[must_use]
    pub fn interface_count(&self) -> usize {
        self.files.iter().filter(|file| !file.interfaces.is_empty()).count()
    }

    /// The number of messages that travel, for one architecture.
    #[must_use]
    pub fn wire_count(&self) -> usize {
        let first = self.files.iter().filter_map(|file| file.interfaces.first());
        first.map(|(_, interface)| interface.wires().count()).sum()
    }

    /// A few lines for people: files that passed, messages, warnings by code, then the errors.
    #[must_use]
    pub fn summary(&self) -> String {
        use std::fmt::Write as _;
        let mut text = String::new();
        let (passed, all) = (self.passed_count(), self.files.len());
        let (interfaces, wires) = (self.interface_count(), self.wire_count());
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "{passed} of {all} files: {interfaces} interfaces, {wires} messages on the wire, for {}",
            self.architectures.join(", ")
        );
        for (code, count) in &self.warnings {
            let _ = writeln!(text, "{code} {count:5}  {}", code.title());
        }
        for file in self.files.iter().filter(|file| !file.passed()) {
            text += &file.diagnostics.render(false);
        }
        text
    }
}

/// Checks all `.if` files below `tree`, whose folder `if` has the imports.
///
/// ```no_run
/// use std::path::Path;
///
/// let corpus = corewire_idl::corpus::check_tree(Path::new("/usr/src/barrelfish")).unwrap();
/// print!("{}", corpus.summary());
/// ```
///
/// # Errors
///
/// [`CorpusError`]: an unreadable file, or no architecture. Errors in interface files are in the result.
pub fn check_tree(tree: &Path) -> Result<Corpus, CorpusError> {
    let mut paths = Vec::new();
    find(tree, tree, &mut paths)?;
    paths.sort();
    let named = |folder: &str| {
        let inside = paths.iter().filter_map(|path| path.strip_prefix(folder));
        let names = inside.filter_map(|name| name.strip_suffix(".if").map(str::to_owned));
        names.collect::<BTreeSet<_>>()
    };
    let architectures = named(PLATFORM).intersection(&named(ARCH)).cloned().collect::<Vec<_>>();
    if architectures.is_empty() {
        return Err(CorpusError::NoArchitecture(tree.to_owned()));
    }
    let mut files = Vec::with_capacity(paths.len());
    let mut warnings = Warnings::default();
    for path in paths {
        files.push(check_file(tree, path, &architectures, &mut warnings)?);
    }
    let mut by_code = BTreeMap::new();
    for (code, ..) in warnings.0 {
        *by_code.entry(code).or_default() += 1;
    }
    Ok(Corpus { architectures, files, warnings: by_code })
}

const PLATFORM: &str = "if/platform/";
const ARCH: &str = "if/arch/";
const TYPES: &str = "if/types.if";

/// Warnings by code and place: the same import is read hundreds of times.
#[derive(Default)]
struct Warnings(HashSet<(Code, String, Span)>);

impl Warnings {
    fn add(&mut self, diagnostics: &Diagnostics) {
        for one in diagnostics.iter().filter(|one| one.severity() == Severity::Warning) {
            let file = diagnostics.source(one.primary.file).name().to_owned();
            self.0.insert((one.code, file, one.primary.span));
        }
    }
}

fn check_file(
    tree: &Path,
    path: String,
    architectures: &[String],
    warnings: &mut Warnings,
) -> Result<CheckedFile, CorpusError> {
    let mut interfaces = Vec::new();
    let mut shown = None::<Diagnostics>;
    for architecture in architectures {
        let imports = [
            format!("{PLATFORM}{architecture}.if"),
            format!("{ARCH}{architecture}.if"),
            TYPES.into(),
        ];
        let another =
            (path.starts_with(PLATFORM) || path.starts_with(ARCH)) && !imports.contains(&path);
        if another {
            continue;
        }
        let mut check = Check::new(read(tree, &path)?);
        // An import is checked with those before it.
        for import in imports.iter().take_while(|import| **import != path) {
            check = check.import(read(tree, import)?);
        }
        let checked = check.run();
        warnings.add(&checked.diagnostics);
        interfaces.extend(checked.interface.map(|interface| (architecture.clone(), interface)));
        let worse = checked.diagnostics.has_errors()
            && !shown.as_ref().is_some_and(Diagnostics::has_errors);
        if shown.is_none() || worse {
            shown = Some(checked.diagnostics);
        }
    }
    let diagnostics = shown.unwrap_or_default();
    if diagnostics.has_errors() {
        interfaces.clear();
    }
    Ok(CheckedFile { path, interfaces, diagnostics })
}

fn read(tree: &Path, path: &str) -> Result<Source, CorpusError> {
    let full = tree.join(path);
    let source =
        Source::read(&full).map_err(|source| CorpusError::Unreadable { path: full, source });
    source.map(|source| source.named(path))
}

/// Collects paths of interface files, relative to the tree. Links are not followed.
fn find(tree: &Path, folder: &Path, paths: &mut Vec<String>) -> Result<(), CorpusError> {
    let unreadable = |source| CorpusError::Unreadable { path: folder.to_owned(), source };
    for entry in folder.read_dir().map_err(unreadable)? {
        let entry = entry.map_err(unreadable)?;
        let path = entry.path();
        let kind = entry.file_type().map_err(unreadable)?;
        if kind.is_dir() {
            find(tree, &path, paths)?;
        } else if kind.is_file() && path.extension().is_some_and(|ending| ending == "if") {
            let inside = path.strip_prefix(tree).unwrap_or(&path);
            paths.push(inside.display().to_string());
        }
    }
    Ok(())
}
