//! `corewire idl json`: the JSON form of an interface.

use std::path::PathBuf;

use crate::failure::Failure;
use crate::output;

const EXAMPLES: &str = "\
Examples:
  corewire idl json calculator.if > calculator.json
  corewire idl json calculator.if | jq '.messages[].name'
  corewire idl json --import if/types.if if/boot.if\n\
\n\
The JSON form is the checked interface with everything resolved: layouts, ordinals \
and hashes, for generators in any language. docs/interfaces.md shows an example. \
Equal files have equal forms, so a form that is kept is a version that later ones \
can be compared with: see 'corewire idl diff --help'.\n\
\n\
Warnings and errors are printed on standard error. Exit codes: 0 done, 1 the file \
has errors or no interface, 2 wrong usage, or a file that cannot be read.";

/// Print the JSON form of an interface, for generators
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The interface file
    file: PathBuf,
    /// Make the types of this file known; can be given several times
    #[arg(short, long, value_name = "FILE")]
    import: Vec<PathBuf>,
}

/// Runs the command.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let imports = super::read_all(&args.import)?;
    match super::check_after(super::read(&args.file)?, &imports).run().into_result() {
        Ok((interface, warnings)) => {
            super::report(&warnings);
            output::print(&interface.to_json())
        }
        Err(found) => {
            super::report(&found);
            Err(Failure::quiet(1))
        }
    }
}
