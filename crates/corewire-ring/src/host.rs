//! What a ring asks of those that run it.

use alloc::sync::Arc;

use crate::shared;
use crate::sync::AtomicU32;

/// What a ring asks of the operating system.
pub trait Kernel {
    /// Makes every core that runs a thread of a registered process pass a full memory barrier
    /// before it returns (Linux: `membarrier`). Where every sender fences for itself, a full fence
    /// of this thread is enough. Returns false if the barrier could not be had this time; the
    /// caller then keeps its sleep short.
    fn barrier_everywhere(&self) -> bool;

    /// Wakes up to `count_max` of those that wait on `word`.
    fn wake(&self, word: &AtomicU32, count_max: u32);

    /// Sleeps while `shared` and `own` hold the values given beside them, until one is woken or
    /// `cap_ns` have passed. Returns true if the cap ran out. May return early for no reason.
    fn wait(&self, shared: (&AtomicU32, u32), own: (&AtomicU32, u32), cap_ns: u64) -> bool;

    /// The processor that this thread runs on; a hint.
    fn cpu(&self) -> u32;

    /// Lets others run on this processor, if any want to.
    fn give_way(&self) {}

    /// Nanoseconds since some moment, or always 0 where there is no clock; a hint.
    fn now_ns(&self) -> u64 {
        0
    }

    /// Has the operating system report the death of this party of a shared channel, whose process has
    /// `socket`, to the channel's roster; or reports it at once, if that process is not there.
    fn watch(&self, party: shared::Party, who: shared::Entrance, socket: u128) {
        let _ = (party, who, socket);
    }

    /// Wakes the receiver of `row`, which asked to be woken through its descriptor.
    fn wake_descriptor(&self, row: u32) {
        let _ = row;
    }

    /// Has somebody else wake all that still wait on the sender's bell, so that the data thread
    /// need not.
    fn wake_rest(&self) {}
}

/// A lock around `T`: the machine's mutex in a program, loom's in a model.
pub trait Lock<T> {
    /// Runs `job` with the lock held.
    fn with<R>(&self, job: impl FnOnce(&mut T) -> R) -> R;
}

impl<T, L: Lock<T>> Lock<T> for Arc<L> {
    fn with<R>(&self, job: impl FnOnce(&mut T) -> R) -> R {
        L::with(self, job)
    }
}

/// Proof that the processes that share a memory are of one user, so that nobody writes a message
/// while it is being read in place: level 1 or 2 of `docs/threats.md`.
#[derive(Debug, Clone, Copy)]
pub struct Trusted(());

impl Trusted {
    /// Declares the peer trusted.
    ///
    /// # Safety
    /// The peer whose memory is then used keeps to the protocol: it does not write what it has
    /// published before every receiver is done with it. It may die at any instruction.
    #[must_use]
    pub const unsafe fn assume() -> Self {
        Self(())
    }
}
