//! A kernel and a lock for roles that take turns.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use corewire_ring::broadcast::Members;
use corewire_ring::sync::{AtomicU32, kill};
use corewire_ring::{Kernel, Lock};

use super::Role;

/// What the kernel was asked for.
#[derive(Debug, Default)]
pub(super) struct Log {
    /// The words on which somebody was woken, and by whom.
    pub(super) wakes: Vec<(usize, Role)>,
    /// The rows whose descriptors were written to.
    pub(super) descriptors: Vec<u32>,
}

/// A kernel in which nobody sleeps, and which remembers who was woken.
#[derive(Debug, Clone)]
pub struct TurnKernel {
    pub(super) role: Role,
    pub(super) log: Rc<RefCell<Log>>,
}

impl Kernel for TurnKernel {
    fn barrier_everywhere(&self) -> bool {
        true
    }

    fn wake(&self, word: &AtomicU32, _count_max: u32) {
        if kill::effect() {
            self.log.borrow_mut().wakes.push((address(word), self.role));
        }
    }

    fn wait(&self, _: (&AtomicU32, u32), _: (&AtomicU32, u32), _cap_ns: u64) -> bool {
        false
    }

    fn cpu(&self) -> u32 {
        7
    }

    fn wake_descriptor(&self, row: u32) {
        if kill::effect() {
            self.log.borrow_mut().descriptors.push(row);
        }
    }
}

pub(super) fn address(word: &AtomicU32) -> usize {
    word.as_ptr().addr()
}

/// A lock of one thread. It stays shut if its holder dies.
#[derive(Debug)]
pub struct TurnLock {
    members: RefCell<Members>,
    is_shut: Cell<bool>,
}

impl TurnLock {
    pub(super) fn new(members: Members) -> Self {
        Self { members: RefCell::new(members), is_shut: Cell::new(false) }
    }

    /// Has somebody stopped with the lock held?
    pub(super) fn is_shut(&self) -> bool {
        self.is_shut.get()
    }
}

impl Lock<Members> for TurnLock {
    fn with<R>(&self, job: impl FnOnce(&mut Members) -> R) -> R {
        self.is_shut.set(true);
        let result = job(&mut self.members.borrow_mut());
        self.is_shut.set(false);
        result
    }
}
