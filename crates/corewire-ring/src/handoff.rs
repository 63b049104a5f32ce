//! A lock whose word names the thread that holds it, so that the kernel can lend that thread the
//! priority of a thread that waits (`FUTEX_LOCK_PI` of Linux). Unlike a mutex of the C library it may be
//! taken by a fork handler in the parent and reset in the child.
//!
//! Proofs: `proof/models/tests/models/ring.rs`.

use core::fmt;

use crate::order;
use crate::sync::{AtomicU32, Ordering::Relaxed};

/// The bits of the word that hold the number of the holder (`FUTEX_TID_MASK` of Linux). The others are the
/// kernel's flags.
const HOLDER: u32 = 0x3fff_ffff;

/// A number that no thread has. The kernel lends no priority to this holder, and no thread waits in the
/// kernel for it.
pub const OF_NOBODY: u32 = HOLDER;

/// A lock without contents: what it guards lies beside it. The word is 0 while no thread holds the
/// lock. Otherwise it contains the number of the thread that holds the lock, and the kernel's
/// flags.
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

    /// Takes the lock for the thread with number `own`: the kernel's number of this thread, if the kernel will let this
    /// thread hand the lock over, otherwise [`OF_NOBODY`]. If another thread holds the lock, calls `wait` with the
    /// word: true says that the kernel has handed the lock to this thread, false to try again.
    #[inline]
    pub fn lock(&self, own: u32, wait: impl Fn(&AtomicU32) -> bool) {
        // ORDER(F1): pairs with F2; makes what the last holder wrote visible. A lock that the kernel
        // hands over needs no ordering: the system calls of both threads order their accesses.
        while self.0.compare_exchange(0, own, order!(F1: Acquire), Relaxed).is_err() {
            if wait(&self.0) {
                return;
            }
        }
    }

    /// Releases the lock, which this thread holds. If the kernel has flagged the word, because another
    /// thread waits in the kernel, calls `hand_over` with it instead: true says that the kernel has handed
    /// the lock on. False says that it refuses, as it does to a holder [`OF_NOBODY`]; no thread waits in
    /// the kernel for such a holder, so the word is then just cleared.
    pub fn unlock(&self, hand_over: impl Fn(&AtomicU32) -> bool) {
        // Only the kernel changes the word of a lock that is held, and only its flags.
        let own = self.0.load(Relaxed) & HOLDER;
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
