//! What a check of interface files prints, and how it ends.

use corewire_idl::Diagnostics;

use crate::failure::Failure;
use crate::output;

/// How errors and warnings are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum MessageFormat {
    /// Text with the lines of the file, on standard error
    Human,
    /// One JSON object to a line, on standard output
    Json,
}

/// Prints errors and warnings where their format belongs.
pub(super) fn print(found: &Diagnostics, format: MessageFormat) -> Result<(), Failure> {
    match format {
        MessageFormat::Human => {
            super::report(found);
            Ok(())
        }
        MessageFormat::Json => output::print(&found.json_lines()),
    }
}

/// The end of a check.
pub(super) fn end(has_errors: bool, has_denied_warnings: bool) -> Result<(), Failure> {
    match (has_errors, has_denied_warnings) {
        (true, _) => Err(Failure::quiet(1)),
        (false, true) => Err(Failure::other("there are warnings, which --deny-warnings refuses")),
        (false, false) => Ok(()),
    }
}
