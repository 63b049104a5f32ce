//! A lock that fork handlers can take in the parent process and release in the child, which a mutex
//! of the operating system does not allow. It is held for a few instructions at a time.

use core::fmt;

use crate::order;
use crate::sync::{AtomicU32, Ordering::Relaxed};

/// A spin lock that contains no data: the guarded data lies beside it.
pub struct Spin(AtomicU32);

impl Spin {
    /// An unlocked lock.
    #[cfg(not(loom))]
    #[must_use]
    #[expect(clippy::new_without_default, reason = "for statics")]
    pub const fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// An unlocked lock, for a model.
    #[cfg(loom)]
    #[must_use]
    #[expect(clippy::new_without_default, reason = "as on the machine")]
    pub fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// Takes the lock. Calls `wait` again and again while another thread holds it.
    pub fn lock(&self, wait: impl Fn()) {
        // ORDER(F1): pairs with F2; the guarded data is as its last holder left it.
        while self.0.compare_exchange(0, 1, order!(F1: Acquire), Relaxed).is_err() {
            wait();
        }
    }

    /// Releases the lock. The caller must hold it.
    pub fn unlock(&self) {
        // ORDER(F2): pairs with F1.
        self.0.store(0, order!(F2: Release));
    }
}

impl fmt::Debug for Spin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Spin")
    }
}
