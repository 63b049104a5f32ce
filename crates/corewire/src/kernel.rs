//! The operating system, as one side of a channel uses it: Linux, together with the control half of
//! this side, which knows for example which descriptor belongs to which row.

use std::fmt;

use corewire_os::sleep::Linux;
use corewire_ring::Kernel;
use corewire_ring::shared::{Entrance, Party};
use corewire_ring::sync::AtomicU32;

/// Services of the control half for its data thread. [`Kernel`] documents each of them.
pub(crate) trait Control {
    fn watch(&self, party: Party, who: Entrance, socket: u128) {
        let _ = (party, who, socket);
    }

    fn wake_descriptor(&self, row: u32) {
        let _ = row;
    }

    fn wake_rest(&self) {}
}

/// Linux and a control half.
#[derive(Clone)]
pub(crate) struct ControlledKernel<C> {
    linux: Linux,
    pub(crate) control: C,
}

impl<C> ControlledKernel<C> {
    pub(crate) fn new(control: C) -> Self {
        Self { linux: Linux::get(), control }
    }
}

impl<C> fmt::Debug for ControlledKernel<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.linux.fmt(f)
    }
}

impl<C: Control> Kernel for ControlledKernel<C> {
    fn barrier_everywhere(&self) -> bool {
        self.linux.barrier_everywhere()
    }

    fn wake(&self, word: &AtomicU32, count_max: u32) {
        self.linux.wake(word, count_max);
    }

    fn wake_own(&self, word: &AtomicU32) {
        self.linux.wake_own(word);
    }

    fn wait(&self, shared: (&AtomicU32, u32), own: (&AtomicU32, u32), cap_ns: u64) -> bool {
        self.linux.wait(shared, own, cap_ns)
    }

    fn wait_on(&self, word: &AtomicU32, expected: u32, cap_ns: u64) -> bool {
        self.linux.wait_on(word, expected, cap_ns)
    }

    fn cpu(&self) -> u32 {
        self.linux.cpu()
    }

    fn yield_now(&self) {
        self.linux.yield_now();
    }

    fn now_ns(&self) -> u64 {
        self.linux.now_ns()
    }

    fn watch(&self, party: Party, who: Entrance, socket: u128) {
        self.control.watch(party, who, socket);
    }

    fn wake_descriptor(&self, row: u32) {
        self.control.wake_descriptor(row);
    }

    fn wake_rest(&self) {
        self.control.wake_rest();
    }
}
