//! `corewire idl c-header`: an interface for programs in C.

use super::generate;
use crate::failure::Failure;

const EXAMPLES: &str = "\
Examples:
  corewire idl c-header calculator.if > calculator.h
  corewire idl c-header --output include if/*.if\n\
\n\
The header is C11 and C++17, and needs the C library only. It has the constants, types \
and errors of the interface, and for each message a struct of its arguments, with \
functions that encode and decode it. It sends nothing. docs/interfaces.md shows an \
example.\n\
\n\
--output DIRECTORY writes NAME.h for each NAME.if. A file is replaced as a whole, and \
only if its text changes. If a file has errors, none is written.\n\
\n\
Warnings and errors are printed on standard error, or with --message-format json as \
objects on standard output: see 'corewire idl check --help'. Exit codes: 0 done, 1 a \
file has errors or no interface, or a file cannot be written; 2 wrong usage, or a file \
that cannot be read.";

/// Print or write a header for C: types, and encoding and decoding of all messages
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    files: generate::Files,
}

/// Runs the command.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    generate::run(&args.files, "h", |interface| {
        corewire_idl::c_header::generate(interface).map_err(|error| error.to_string())
    })
}
