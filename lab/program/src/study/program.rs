//! How this program starts its processes.

use corewire_harness::program::Program;

use crate::study::interrupt;

/// `corewire-lab worker`, until the user wants an end.
pub(crate) const PROGRAM: Program = Program { arguments: &["worker"], check: interrupt::check };
