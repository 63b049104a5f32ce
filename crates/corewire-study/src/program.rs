//! How this program starts its processes.

use corewire_study::harness::program::Program;

use crate::interrupt;

/// `corewire-study worker`, until the user wants an end.
pub(crate) const PROGRAM: Program = Program { arguments: &["worker"], check: interrupt::check };
