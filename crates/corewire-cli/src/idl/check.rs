//! `corewire idl check`: all errors and warnings of interface files.

use std::path::PathBuf;

use corewire_idl::{Diagnostics, Severity};

use super::corpus;
use super::outcome::{MessageFormat, end, print};
use crate::failure::Failure;

const EXAMPLES: &str = "\
Examples:
  corewire idl check calculator.if
  corewire idl check --import if/types.if if/*.if
  corewire idl check --corpus /usr/src/barrelfish\n\
\n\
Errors and warnings are printed on standard error, with the lines that they are \
about. Their codes are listed in docs/interfaces.md. Colours: on a terminal, unless \
NO_COLOR is set. All files are checked, and all errors of each file are reported.\n\
\n\
--message-format json prints an object for each error and warning, one to a line, on \
standard output: code, severity, message, spans (the first is the place itself; \
file, primary, byte_start, byte_end, line_start, column_start, line_end, column_end, \
label), notes, help, and rendered, which is the text for people.\n\
\n\
--corpus DIRECTORY checks each .if file below a directory for each architecture, \
with the imports that Barrelfish's build gives it: if/platform/ARCH.if, \
if/arch/ARCH.if and if/types.if. It prints how many files have no errors, and how \
often each warning occurs. With --message-format json, the last line has files, \
passed, architectures, interfaces, wire_messages, and warnings (an array with code, \
count and title).\n\
\n\
Exit codes: 0 no errors, 1 errors (or warnings with --deny-warnings), 2 wrong usage, \
or a file that cannot be read.";

/// Report all errors and warnings of interface files
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The interface files
    #[arg(value_name = "FILE", required_unless_present = "corpus")]
    files: Vec<PathBuf>,
    /// Make the types of this file known to each FILE; can be given several times, and a later
    /// one may use the types of an earlier one
    #[arg(short, long, value_name = "FILE")]
    import: Vec<PathBuf>,
    /// Check all interface files below this directory, as Barrelfish's build does
    #[arg(long, value_name = "DIRECTORY", conflicts_with_all = ["files", "import"])]
    corpus: Option<PathBuf>,
    /// How to print errors and warnings
    #[arg(long, value_name = "FORMAT", default_value = "human")]
    message_format: MessageFormat,
    /// End with 1 if there are warnings
    #[arg(long)]
    deny_warnings: bool,
}

/// Runs the command.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    if let Some(tree) = &args.corpus {
        return corpus::run(tree, args.message_format, args.deny_warnings);
    }
    // Nothing is reported unless every file can be read.
    let imports = super::read_all(&args.import)?;
    let mut found = Diagnostics::default();
    for source in super::read_all(&args.files)? {
        found.append(super::check_after(source, &imports).run().diagnostics);
    }
    print(&found, args.message_format)?;
    let has_warnings = found.iter().any(|one| one.severity() == Severity::Warning);
    end(found.has_errors(), has_warnings && args.deny_warnings)
}
