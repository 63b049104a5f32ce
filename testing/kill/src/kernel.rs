//! A kernel in which nobody sleeps, and which remembers who was woken.

use std::cell::RefCell;
use std::rc::Rc;

use corewire_ring::Kernel;
use corewire_ring::sync::{AtomicU32, kill};

/// What the kernel was asked for.
#[derive(Debug, Default)]
pub(crate) struct Log {
    /// The words on which somebody was woken.
    pub(crate) wakes: Vec<usize>,
    /// The rows whose descriptors were written to.
    pub(crate) descriptors: Vec<u32>,
}

/// The kernel, as a role asks it.
#[derive(Debug, Clone)]
pub struct TurnKernel {
    /// Where it says that the role runs.
    pub(crate) cpu: u32,
    pub(crate) log: Rc<RefCell<Log>>,
}

impl Kernel for TurnKernel {
    fn barrier_everywhere(&self) -> bool {
        true
    }

    fn wake(&self, word: &AtomicU32, _count_max: u32) {
        if kill::effect() {
            self.log.borrow_mut().wakes.push(address(word));
        }
    }

    fn wait(&self, _: (&AtomicU32, u32), _: (&AtomicU32, u32), _cap_ns: u64) -> bool {
        false
    }

    fn cpu(&self) -> u32 {
        self.cpu
    }

    fn wake_descriptor(&self, row: u32) {
        if kill::effect() {
            self.log.borrow_mut().descriptors.push(row);
        }
    }
}

pub(crate) fn address(word: &AtomicU32) -> usize {
    word.as_ptr().addr()
}
