//! Names to meanings: resolves types, replaces constants, computes layouts and hashes, and reports everything that
//! cannot be right. The result is the JSON form.

mod declarations;
mod loading;
mod messages;
mod types;

pub use loading::Check;

use std::collections::HashMap;
use std::sync::Arc;

use crate::diagnostics::{Code, Diagnostic, Diagnostics, FileId, similar};
use crate::form::{self, Known, TypeDecl};
use crate::parser::Reported;
use crate::source::{Source, Span};
use crate::syntax::{Declaration, Edition, File};

type Resolved<T> = Result<T, Reported>;

/// What [`Check::run`] found out.
#[derive(Clone, Debug)]
pub struct Checked {
    /// The interface in its JSON form. `None` if there are errors, or if the file declares types for others and has no
    /// interface.
    pub interface: Option<form::Interface>,
    /// Errors and warnings.
    pub diagnostics: Diagnostics,
    main: FileId,
}

impl Checked {
    /// The interface with the warnings, or everything that was found if there are errors or there is no interface.
    ///
    /// # Errors
    ///
    /// All diagnostics, among them at least one error.
    pub fn into_result(self) -> Result<(form::Interface, Diagnostics), Diagnostics> {
        let Self { interface, mut diagnostics, main } = self;
        match interface {
            Some(interface) => Ok((interface, diagnostics)),
            None => {
                if !diagnostics.has_errors() {
                    let message = "the file declares no interface";
                    let one = Diagnostic::new(Code::NoInterface, main, Span::default(), message);
                    diagnostics.push(one.note("files with types only are for imports"));
                }
                Err(diagnostics)
            }
        }
    }
}

/// A file of this run.
struct Loaded {
    id: FileId,
    source: Arc<Source>,
    parsed: File,
}

/// The place of what is being resolved.
#[derive(Clone, Copy)]
struct Place {
    file: FileId,
    edition: Edition,
    /// Whether the file is the one that is checked, not one that it imports.
    main: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Waiting,
    Resolving,
    /// Failed declarations have been reported; what uses them reports nothing more.
    Failed,
    Done,
}

/// A declared type.
struct Declared<'a> {
    place: Place,
    ast: &'a Declaration,
    state: State,
    used: bool,
}

struct Constant<'a> {
    place: Place,
    ast: &'a Declaration,
    value: Option<form::Constant>,
}

struct Checker<'a> {
    diagnostics: Diagnostics,
    declared: Vec<Declared<'a>>,
    /// What a name means here and now: an index into `declared`.
    names: HashMap<&'a str, usize>,
    constants: HashMap<&'a str, Constant<'a>>,
    errors: HashMap<&'a str, (Place, Span, form::ErrorSet, bool)>,
    interfaces: HashMap<&'a str, FileId>,
    /// Files from which something is used.
    used_files: Vec<FileId>,
    /// Declared types in the order in which they were resolved. `None` for one that was hidden.
    types: Vec<Option<TypeDecl>>,
    /// By name: indices into `declared` and `types`.
    entered: HashMap<&'a str, (usize, usize)>,
    known: Known,
    /// In edition 0, the types of the main file that are declared further down.
    later: HashMap<&'a str, Span>,
    depth: usize,
    warned_of_machine_words: bool,
}

impl Checker<'_> {
    fn error(
        &self,
        code: Code,
        place: Place,
        span: Span,
        message: impl Into<String>,
    ) -> Diagnostic {
        Diagnostic::new(code, place.file, span, message)
    }

    fn report(&mut self, diagnostic: Diagnostic) -> Reported {
        self.diagnostics.push(diagnostic);
        Reported
    }

    /// `did you mean ...?`, unless nobody would see it.
    fn meant<'n>(&self, name: &str, names: impl IntoIterator<Item = &'n str>) -> Option<String> {
        if self.diagnostics.is_full() {
            return None;
        }
        // Names come out of maps in any order, and the first of two equally good ones is taken.
        let mut names = names.into_iter().collect::<Vec<_>>();
        names.sort_unstable();
        similar(name, names).map(|meant| format!("did you mean `{meant}`?"))
    }

    fn uses(&mut self, file: FileId) {
        if !self.used_files.contains(&file) {
            self.used_files.push(file);
        }
    }
}
