//! A lock for roles that take turns.

use std::cell::{Cell, RefCell};

use corewire_ring::Lock;
use corewire_ring::broadcast::Members;

/// A lock for one thread. It stays locked if its holder dies.
#[derive(Debug)]
pub struct TurnLock {
    members: RefCell<Members>,
    is_shut: Cell<bool>,
}

impl TurnLock {
    pub(super) fn new(members: Members) -> Self {
        Self { members: RefCell::new(members), is_shut: Cell::new(false) }
    }

    /// Whether a role has stopped while it held the lock.
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
