//! Ctrl-C ends a study between two runs' looks: what was measured is kept, what was made is removed.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::failure::{Doing, Failure};

static IS_WANTED: AtomicBool = AtomicBool::new(false);

/// Has Ctrl-C (and SIGTERM) ask for an end instead of bringing one about.
pub(crate) fn prepare() -> Result<(), Failure> {
    ctrlc::set_handler(|| IS_WANTED.store(true, Relaxed)).doing("prepare for Ctrl-C")
}

/// Is an end asked for?
pub(crate) fn is_wanted() -> bool {
    IS_WANTED.load(Relaxed)
}

/// What is then said.
pub(crate) fn failure() -> Failure {
    let message = "interrupted; the same command goes on where this one was";
    Failure { message: message.to_owned(), code: 130 }
}
