//! Ctrl-C ends a study at its next check: the measurements so far are kept, and temporary files are
//! removed.

use std::sync::OnceLock;

use crate::study::failure::{Doing, Failure};

static IS_WANTED: OnceLock<()> = OnceLock::new();

/// Makes Ctrl-C (and SIGTERM) request an end instead of ending the process.
pub(crate) fn prepare() -> Result<(), Failure> {
    ctrlc::set_handler(|| *IS_WANTED.get_or_init(|| ())).doing("prepare for Ctrl-C")
}

/// Whether an end was requested.
pub(crate) fn is_wanted() -> bool {
    IS_WANTED.get().is_some()
}

/// Fails if an end was requested.
pub(crate) fn check() -> Result<(), Failure> {
    if is_wanted() { Err(failure()) } else { Ok(()) }
}

/// The failure for a study that can be continued.
pub(crate) fn failure() -> Failure {
    let message = "interrupted; the same command goes on where this one was";
    Failure { message: message.to_owned(), code: 130 }
}
