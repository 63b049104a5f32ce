//! Interface files: the language in which processes agree on messages and calls.
//!
//! An interface is written once, in a file such as `calc.if`, and code for both sides is made from it. The language is
//! that of Barrelfish's stub compiler Flounder (Grest, sections 2.3 and 4), extended: `docs/interfaces.md` has
//! the grammar. This crate is the front end. It reads, checks, formats and compares interface files, and gives an
//! interface in a JSON form to generators, of which it contains those for Rust and for C headers. The run time is `corewire-bind`.
//!
//! | step | where |
//! |---|---|
//! | text to syntax, all errors in one run | [`parse`], [`syntax`] |
//! | syntax to meaning | [`Check`] |
//! | the meaning, for generators | [`form`] |
//! | Rust | [`rust`], [`build`] |
//! | C | [`c_header`] |
//! | messages from JSON, and JSON from messages | [`json`](mod@json) |
//! | canonical text | [`format`](fn@format) |
//! | what a change breaks | [`diff`](fn@diff) |
//! | whole directories of Barrelfish's files | [`corpus`] |
//!
//! ```
//! use corewire_idl::{Check, Source};
//!
//! let text = r#"
//! interface calc "A calculator" {
//!     typedef struct {
//!         int32 left;
//!         int32 right;
//!     } pair;
//!
//!     rpc multiply(in pair p, out int64 product);
//!     message log(String line[256]);
//! };
//! "#;
//! let checked = Check::new(Source::new("calc.if", text)).run();
//! let (interface, warnings) = checked.into_result().unwrap();
//! assert!(warnings.is_empty());
//!
//! let multiply = interface.message("multiply").unwrap();
//! assert_eq!(multiply.wires[0].layout.fixed_bytes, 8);
//! assert!(multiply.wires[0].layout.inline);
//! ```
//!
//! No input makes this crate panic, recurse without bound or use memory without bound: files, nesting, sizes and the
//! number of reported errors have limits, and exceeding one is an error with a code.

#![forbid(unsafe_code)]

#[cfg(feature = "generate")]
pub mod build;
pub mod c_header;
mod check;
pub mod corpus;
mod diagnostics;
mod diff;
pub mod form;
mod format;
pub mod json;
mod lexer;
mod parser;
#[cfg(feature = "generate")]
pub mod rust;
mod source;
pub mod syntax;

pub use check::{Check, Checked};
pub use diagnostics::{Code, Diagnostic, Diagnostics, FileId, Label, Severity};
pub use diff::{Change, ChangeKind, Diff, Effect, diff};
pub use format::format;
pub use source::{Position, SOURCE_BYTES_MAX, Source, Span};

use std::sync::Arc;

/// Reads a file without checking what its names mean.
///
/// The syntax tree is as complete as the errors allow. Use [`Check`] for the meaning.
///
/// ```
/// use corewire_idl::{Source, parse};
///
/// let (file, diagnostics) = parse(Source::new("a.if", "interface a \"\" { message m() };"));
/// assert_eq!(file.interface.unwrap().messages[0].name.text, "m");
/// assert!(diagnostics.render(false).contains("`;` is missing behind the message"));
/// ```
#[must_use]
pub fn parse(source: Source) -> (syntax::File, Diagnostics) {
    let source = Arc::new(source);
    let mut diagnostics = Diagnostics::default();
    let id = diagnostics.add_source(Arc::clone(&source));
    let (file, _) = parser::parse(&source, id, &mut diagnostics);
    diagnostics.sort();
    (file, diagnostics)
}
