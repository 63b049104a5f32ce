//! `corewire idl`: checks, formats and compares interface files, and makes code of them.

mod c_header;
mod check;
mod corpus;
mod diff;
mod form;
mod format;
mod generate;
mod outcome;
mod rust;

use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};

use clap::Subcommand;
use corewire_idl::{Check, Diagnostics, Source};

use crate::failure::Failure;
use crate::{output, units};

const EXAMPLES: &str = "\
Examples:
  corewire idl check calculator.if
  corewire idl format calculator.if
  corewire idl json calculator.if > calculator.json
  corewire idl rust --output src/generated calculator.if
  corewire idl c-header calculator.if > calculator.h
  corewire idl diff calculator.json calculator.if\n\
\n\
docs/interfaces.md describes the language. A line import \"types.if\"; in a file \
names a file relative to the importing one.\n\
\n\
Exit codes: 0 done; 1 a file has errors, would change (format --check), or breaks \
processes of the old version (diff); 2 wrong usage, or a file that cannot be read.";

/// Check, format and compare interface files, and make code of them
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES, arg_required_else_help = true, disable_help_subcommand = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    Check(check::Args),
    Format(format::Args),
    Json(form::Args),
    Rust(rust::Args),
    CHeader(c_header::Args),
    Diff(diff::Args),
}

/// Runs the command.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    match &args.what {
        What::Check(args) => check::run(args),
        What::Format(args) => format::run(args),
        What::Json(args) => form::run(args),
        What::Rust(args) => rust::run(args),
        What::CHeader(args) => c_header::run(args),
        What::Diff(args) => diff::run(args),
    }
}

/// Reads an interface file.
fn read(path: &Path) -> Result<Source, Failure> {
    Source::read(path).map_err(|error| unreadable(path, &error))
}

fn read_all(paths: &[PathBuf]) -> Result<Vec<Source>, Failure> {
    paths.iter().map(|path| read(path)).collect()
}

/// The failure for a file that cannot be read.
fn unreadable(path: &Path, error: &io::Error) -> Failure {
    Failure::usage(format!("cannot read {}: {error}", shown(path)))
}

/// The path as it is printed.
fn shown(path: &Path) -> String {
    units::printable(&path.display().to_string())
}

/// A check of `source` after `imports`. Import lines name files relative to the importing file.
fn check_after(source: Source, imports: &[Source]) -> Check {
    let check = Check::new(source).loader(|name| Source::read(Path::new(name)));
    imports.iter().cloned().fold(check, Check::import)
}

/// Writes errors and warnings for people to standard error, and nothing if there are none.
fn report(diagnostics: &Diagnostics) {
    output::report(&diagnostics.render(is_coloured()));
}

/// Whether standard error shows colours: on a terminal, unless the user asks for none (<https://no-color.org>).
fn is_coloured() -> bool {
    let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    io::stderr().is_terminal() && !is_set("NO_COLOR") && !is_dumb
}
