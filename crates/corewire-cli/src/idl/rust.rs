//! `corewire idl rust`: the Rust module of an interface.

use super::generate;
use crate::failure::Failure;

const EXAMPLES: &str = "\
Examples:
  corewire idl rust calculator.if | less
  corewire idl rust --output src/generated if/*.if
  corewire idl rust --import if/types.if if/boot.if\n\
\n\
The code needs the crate corewire-bind only. It is what a build script gets from \
corewire_idl::build::compile, so that no program needs to keep it: the command is for \
reading it, and for builds without cargo. docs/interfaces.md shows a program.\n\
\n\
--output DIRECTORY writes NAME.rs for each NAME.if. A file is replaced as a whole, and \
only if its text changes. If a file has errors, none is written.\n\
\n\
Warnings and errors are printed on standard error, or with --message-format json as \
objects on standard output: see 'corewire idl check --help'. Exit codes: 0 done, 1 a \
file has errors or no interface, or a file cannot be written; 2 wrong usage, or a file that cannot be read.";

/// Print or write the Rust module of an interface
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    files: generate::Files,
}

/// Runs the command.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    generate::run(&args.files, "rs", |interface| {
        corewire_idl::rust::generate(interface).map_err(|error| error.to_string())
    })
}
