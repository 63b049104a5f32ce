//! `corewire idl format`: interface files in canonical form.

use std::io::{self, Read};
use std::path::{Path, PathBuf};

use corewire_idl::{Diagnostics, SOURCE_BYTES_MAX, Source, format};
use corewire_os::file;

use crate::failure::Failure;
use crate::output;

const EXAMPLES: &str = "\
Examples:
  corewire idl format calculator.if
  corewire idl format --check if/*.if
  corewire idl format - < calculator.if\n\
\n\
Only white space changes: tokens and comments stay, in their order. Formatting a \
file again changes nothing. A file is replaced as a whole: other processes read the \
old text or the new text. It keeps its permissions. A file with syntax errors is \
reported and not changed; the other files are formatted. If a file cannot be read, \
none is changed.\n\
\n\
Exit codes: 0 done, 1 a file has errors or cannot be written, or would change \
(--check), 2 wrong usage, or a file that cannot be read.";

/// Rewrite interface files in canonical form
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The interface files; - reads standard input and writes standard output
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// Change nothing; print the names of files that would change, and end with 1 if there are any
    #[arg(long)]
    check: bool,
}

/// Runs the command.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    if args.files.iter().filter(|path| is_input(path)).count() > 1 {
        return Err(Failure::usage("- can be given once: standard input has one end"));
    }
    let sources = args.files.iter().map(|path| source(path)).collect::<Result<Vec<_>, _>>()?;
    let mut found = Diagnostics::default();
    let mut would_change = false;
    for (path, source) in args.files.iter().zip(sources) {
        let original = source.text().to_owned();
        match format(source) {
            Err(diagnostics) => found.append(diagnostics),
            Ok(text) if args.check => {
                if text != original {
                    would_change = true;
                    output::print(&format!("{}\n", name(path)))?;
                }
            }
            Ok(text) if is_input(path) => output::print(&text)?,
            Ok(text) if text == original => {}
            Ok(text) => file::write(path, text.as_bytes()).map_err(|error| {
                super::report(&found);
                Failure::other(format!("cannot write {}: {error}", super::shown(path)))
            })?,
        }
    }
    super::report(&found);
    if found.has_errors() || would_change { Err(Failure::quiet(1)) } else { Ok(()) }
}

fn is_input(path: &Path) -> bool {
    path.as_os_str() == "-"
}

fn name(path: &Path) -> String {
    if is_input(path) { "standard input".into() } else { super::shown(path) }
}

fn source(path: &Path) -> Result<Source, Failure> {
    if is_input(path) {
        let limit = u64::try_from(SOURCE_BYTES_MAX + 1).unwrap_or(u64::MAX);
        let mut bytes = Vec::new();
        io::stdin()
            .take(limit)
            .read_to_end(&mut bytes)
            .map_err(|error| Failure::usage(format!("cannot read standard input: {error}")))?;
        return Ok(Source::from_bytes(name(path), &bytes));
    }
    let source = super::read(path)?;
    // A pipe or a device would be replaced by a file.
    match path.metadata() {
        Ok(it) if it.is_file() => Ok(source),
        Ok(_) => Err(Failure::usage(format!("{}: not a regular file", super::shown(path)))),
        Err(error) => Err(super::unreadable(path, &error)),
    }
}
