//! What stands behind a data thread: Linux, and the control half of its side.

use std::fmt;

use corewire_os::sleep::Linux;
use corewire_ring::{Control, Host};

/// Linux and a control half.
#[derive(Clone)]
pub(crate) struct Hosted<C> {
    linux: Linux,
    control: C,
}

impl<C> Hosted<C> {
    pub(crate) fn new(control: C) -> Self {
        Self { linux: Linux::get(), control }
    }

    pub(crate) fn control_mut(&mut self) -> &mut C {
        &mut self.control
    }
}

impl<C: Control> Host for Hosted<C> {
    type Kernel = Linux;
    type Control = C;

    #[inline(always)]
    fn kernel(&self) -> &Linux {
        &self.linux
    }

    #[inline(always)]
    fn control(&self) -> &C {
        &self.control
    }
}

impl<C> fmt::Debug for Hosted<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.linux.fmt(f)
    }
}
