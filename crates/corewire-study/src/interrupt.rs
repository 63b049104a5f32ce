//! Ctrl-C ends a study between two runs' looks: what was measured is kept, what was made is removed.

use std::sync::OnceLock;

use crate::failure::{Doing, Failure};

static IS_WANTED: OnceLock<()> = OnceLock::new();

/// Has Ctrl-C (and SIGTERM) ask for an end instead of bringing one about.
pub(crate) fn prepare() -> Result<(), Failure> {
    ctrlc::set_handler(|| *IS_WANTED.get_or_init(|| ())).doing("prepare for Ctrl-C")
}

/// Is an end asked for?
pub(crate) fn is_wanted() -> bool {
    IS_WANTED.get().is_some()
}

/// What is then said of a study that keeps nothing before its end.
pub(crate) fn loss() -> Failure {
    Failure { message: "interrupted; nothing was written".to_owned(), code: 130 }
}

/// What is then said.
pub(crate) fn failure() -> Failure {
    let message = "interrupted; the same command goes on where this one was";
    Failure { message: message.to_owned(), code: 130 }
}
