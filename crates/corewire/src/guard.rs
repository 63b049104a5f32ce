//! Locks of the control path's tables.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks. The content is consistent even after a panic of another thread, since every change of these tables is one
/// call.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A mutex as rings lock it.
#[derive(Debug)]
pub(crate) struct Guarded<T>(pub(crate) Mutex<T>);

impl<T> corewire_ring::Lock<T> for Guarded<T> {
    fn with<R>(&self, job: impl FnOnce(&mut T) -> R) -> R {
        job(&mut lock(&self.0))
    }
}
