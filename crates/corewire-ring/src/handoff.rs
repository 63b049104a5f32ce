//! A lock whose word names the thread that holds it, so that the kernel can lend that thread the
//! priority of a thread that waits (`FUTEX_LOCK_PI` of Linux). Unlike a mutex of the C library it may be
//! taken by a fork handler in the parent and reset in the child.

use core::fmt;

use crate::order;
use crate::sync::{AtomicU32, Ordering::Relaxed};

/// A lock around nothing: what it guards lies beside it. The word is 0 while nobody holds the lock;
/// else it holds the number of the thread that does, and the kernel's flags.
pub struct Handoff(AtomicU32);

impl Handoff {
    /// An open lock.
    #[cfg(not(loom))]
    #[must_use]
    #[expect(clippy::new_without_default, reason = "for statics")]
    pub const fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// An open lock, for a model.
    #[cfg(loom)]
    #[must_use]
    #[expect(clippy::new_without_default, reason = "as on the machine")]
    pub fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// Takes the lock for the thread with number `own`, which is not 0. If another thread holds it,
    /// calls `wait` with the word: true says that the kernel has handed the lock to this thread,
    /// false to try again.
    pub fn lock(&self, own: u32, wait: impl Fn(&AtomicU32) -> bool) {
        // ORDER(F1): pairs with F2; makes what the last holder wrote visible. A lock that the kernel
        // hands over needs no ordering: the system calls of both threads order their accesses.
        while self.0.compare_exchange(0, own, order!(F1: Acquire), Relaxed).is_err() {
            if wait(&self.0) {
                return;
            }
        }
    }

    /// Releases the lock, which the thread with number `own` holds. If the kernel has flagged the
    /// word because another thread waits, calls `hand_over` with it instead: true says that the kernel
    /// has handed the lock on, false that it refuses, and the other thread tries again by itself.
    pub fn unlock(&self, own: u32, hand_over: impl Fn(&AtomicU32) -> bool) {
        // ORDER(F2): pairs with F1.
        if self.0.compare_exchange(own, 0, order!(F2: Release), Relaxed).is_err()
            && !hand_over(&self.0)
        {
            // ORDER(F2): as above.
            self.0.store(0, order!(F2: Release));
        }
    }

    /// Opens the lock in a forked child, whose only thread has another number than the holder.
    pub fn reset(&self) {
        self.0.store(0, Relaxed);
    }
}

impl fmt::Debug for Handoff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Handoff")
    }
}
