//! What is wrong with a file: codes, places, explanations. Text and JSON are made from the same structure.

mod codes;
mod json;
mod render;
mod similar;

pub use codes::{Code, Severity};
pub(crate) use similar::similar;

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use crate::source::{Source, Span};

/// After this number of errors a run stops to report more: a binary file would fill the screen.
const ERRORS_MAX: usize = 100;

/// After this number of errors and warnings a run stops to report warnings.
const LIST_MAX: usize = 1000;

/// A file of one run, as an index into [`Diagnostics::sources`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileId(pub(crate) usize);

/// A place, and what to say about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Label {
    /// The file.
    pub file: FileId,
    /// The bytes that are underlined.
    pub span: Span,
    /// What stands beside the underline. May be empty.
    pub text: String,
}

/// One error or warning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// The code; it also decides between error and warning.
    pub code: Code,
    /// What is wrong, in one sentence without a full stop.
    pub message: String,
    /// Where.
    pub primary: Label,
    /// Other places that matter, such as the first of two declarations.
    pub secondary: Vec<Label>,
    /// Facts that explain the problem.
    pub notes: Vec<String>,
    /// What to do about it.
    pub help: Vec<String>,
}

impl Diagnostic {
    pub(crate) fn new(code: Code, file: FileId, span: Span, message: impl Into<String>) -> Self {
        let primary = Label { file, span, text: String::new() };
        let (secondary, notes, help) = (Vec::new(), Vec::new(), Vec::new());
        Self { code, message: message.into(), primary, secondary, notes, help }
    }

    pub(crate) fn label(mut self, text: impl Into<String>) -> Self {
        self.primary.text = text.into();
        self
    }

    pub(crate) fn also(mut self, file: FileId, span: Span, text: impl Into<String>) -> Self {
        self.secondary.push(Label { file, span, text: text.into() });
        self
    }

    pub(crate) fn note(mut self, text: impl Into<String>) -> Self {
        self.notes.push(text.into());
        self
    }

    pub(crate) fn help(mut self, text: impl Into<String>) -> Self {
        self.help.push(text.into());
        self
    }

    pub(crate) fn help_if(self, text: Option<String>) -> Self {
        match text {
            Some(text) => self.help(text),
            None => self,
        }
    }

    /// Whether this is an error or a warning.
    #[must_use]
    pub const fn severity(&self) -> Severity {
        self.code.severity()
    }
}

/// Everything that one run found, with the sources that it is about.
///
/// ```
/// use corewire_idl::{Check, Code, Source};
///
/// let source = Source::new("a.if", "interface a \"\" { message m(uint33 x); };");
/// let diagnostics = Check::new(source).run().into_result().unwrap_err();
/// assert_eq!(diagnostics.iter().next().unwrap().code, Code::UndeclaredType);
/// assert!(diagnostics.render(false).contains("did you mean `uint32`?"));
/// assert!(diagnostics.json_lines().starts_with("{\"code\":\"E0020\""));
/// ```
#[derive(Clone, Debug, Default)]
pub struct Diagnostics {
    sources: Vec<Arc<Source>>,
    list: Vec<Diagnostic>,
    errors: usize,
}

impl Diagnostics {
    /// All diagnostics, in the order of files and places.
    pub fn iter(&self) -> impl Iterator<Item = &Diagnostic> {
        self.list.iter()
    }

    /// Whether nothing was found.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Whether there is an error among them.
    #[must_use]
    pub const fn has_errors(&self) -> bool {
        self.errors > 0
    }

    /// The number of errors, including those beyond the reported ones.
    #[must_use]
    pub const fn error_count(&self) -> usize {
        self.errors
    }

    /// How often each code occurs.
    #[must_use]
    pub fn count_by_code(&self) -> BTreeMap<Code, usize> {
        let mut counts = BTreeMap::new();
        for diagnostic in &self.list {
            *counts.entry(diagnostic.code).or_default() += 1;
        }
        counts
    }

    /// The files of this run.
    #[must_use]
    pub fn sources(&self) -> &[Arc<Source>] {
        &self.sources
    }

    /// The file of a label.
    #[must_use]
    pub fn source(&self, file: FileId) -> &Source {
        &self.sources[file.0]
    }

    /// Adds the diagnostics of another run, as a build does that checks several files. What both found, because both read
    /// the same file, is kept once.
    pub fn append(&mut self, other: Self) {
        let offset = self.sources.len();
        let moved = |label: &mut Label| label.file.0 += offset;
        let known = self.list.iter().map(|one| self.identity(one)).collect::<HashSet<_>>();
        let is_new = |one: &Diagnostic| !known.contains(&other.identity(one));
        let are_new = other.list.iter().map(is_new).collect::<Vec<_>>();
        self.errors += other.errors;
        self.sources.extend(other.sources);
        for (mut diagnostic, is_new) in other.list.into_iter().zip(are_new) {
            if is_new {
                moved(&mut diagnostic.primary);
                diagnostic.secondary.iter_mut().for_each(moved);
                self.list.push(diagnostic);
            } else if diagnostic.severity() == Severity::Error {
                self.errors = self.errors.saturating_sub(1);
            }
        }
    }

    /// What makes two diagnostics of different runs the same.
    fn identity<'a>(&'a self, one: &'a Diagnostic) -> (Code, &'a str, Span, &'a str) {
        (one.code, self.source(one.primary.file).name(), one.primary.span, &one.message)
    }

    /// Whether what is reported from now on is counted, but not kept: suggestions for it would be work for nothing.
    pub(crate) const fn is_full(&self) -> bool {
        self.errors >= ERRORS_MAX || self.list.len() >= LIST_MAX
    }

    pub(crate) fn add_source(&mut self, source: Arc<Source>) -> FileId {
        self.sources.push(source);
        FileId(self.sources.len() - 1)
    }

    pub(crate) fn push(&mut self, diagnostic: Diagnostic) {
        if diagnostic.severity() == Severity::Warning {
            // Warnings are as many as a file has lines at most, but they, too, fill a screen.
            if self.list.len() < LIST_MAX {
                self.list.push(diagnostic);
            }
            return;
        }
        self.errors += 1;
        if self.errors <= ERRORS_MAX {
            self.list.push(diagnostic);
        } else if self.errors == ERRORS_MAX + 1 {
            let Label { file, span, .. } = diagnostic.primary;
            let message = format!("more than {ERRORS_MAX} errors; the rest is not shown");
            self.list.push(Diagnostic::new(Code::TooManyErrors, file, span, message));
        }
    }

    /// Puts diagnostics into the order in which a reader meets their places.
    pub(crate) fn sort(&mut self) {
        self.list.sort_by_key(|diagnostic| {
            let last = diagnostic.code == Code::TooManyErrors;
            (last, diagnostic.primary.file, diagnostic.primary.span.start, diagnostic.code)
        });
    }
}
