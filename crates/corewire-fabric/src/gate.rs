//! One thread at a time in the objects of a domain.
//!
//! The threading level that the program promised decides: with `FI_THREAD_DOMAIN` it calls the objects of a domain from
//! one thread at a time, with `FI_THREAD_COMPLETION` those that share a queue or counter, which is all that one call
//! touches, unless peers access memory, which is registered with all endpoints of a domain. Every other level needs the
//! lock: a completion queue and its endpoints are one structure. What calls that open,
//! bind and close change beside that has locks of its own: those may come from any thread at every level.

use std::sync::{Mutex, MutexGuard, PoisonError};

use corewire_ofi::info::{FI_THREAD_COMPLETION, FI_THREAD_DOMAIN};

/// The lock of a domain, where its threading level needs one.
pub(crate) struct Gate {
    is_locked: bool,
    lock: Mutex<()>,
}

/// A thread in the objects of a domain, until this value is dropped.
pub(crate) type Entry = Option<MutexGuard<'static, ()>>;

/// The gate of objects that several threads may call in any case, because they have locks of their own.
pub(crate) static OPEN: Gate = Gate { is_locked: false, lock: Mutex::new(()) };

/// Gates of closed domains, for the next ones.
static UNUSED: Mutex<Vec<&'static Gate>> = Mutex::new(Vec::new());

impl Gate {
    /// A gate for a domain of this threading level.
    /// With access to memory, a registration touches all endpoints of the domain.
    pub(crate) fn of(threading: i32, has_accesses: bool) -> &'static Self {
        let is_alone = match threading {
            FI_THREAD_DOMAIN => true,
            FI_THREAD_COMPLETION => !has_accesses,
            _ => false,
        };
        if is_alone {
            return &OPEN;
        }
        let unused = UNUSED.lock().unwrap_or_else(PoisonError::into_inner).pop();
        unused
            .unwrap_or_else(|| Box::leak(Box::new(Self { is_locked: true, lock: Mutex::new(()) })))
    }

    /// Gives a gate back whose domain is closed.
    pub(crate) fn give_back(&'static self) {
        if self.is_locked {
            UNUSED.lock().unwrap_or_else(PoisonError::into_inner).push(self);
        }
    }

    /// Waits for its turn, where there are turns.
    #[inline(always)]
    pub(crate) fn enter(&'static self) -> Entry {
        if self.is_locked { Some(self.wait()) } else { None }
    }

    fn wait(&'static self) -> MutexGuard<'static, ()> {
        self.lock.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Its turn, if nobody else has it; `Err` if a thread is inside. Without a lock nobody knows.
    pub(crate) fn try_enter(&'static self) -> Result<Entry, ()> {
        if !self.is_locked {
            return Ok(None);
        }
        self.lock.try_lock().map(Some).map_err(|_| ())
    }

    /// Whether threads are kept apart by a lock.
    pub(crate) fn is_locked(&self) -> bool {
        self.is_locked
    }
}
