//! What a ring requires of the program that runs it.

use alloc::sync::Arc;

use crate::bell::Bells;
use crate::sync::AtomicU32;

/// What a ring requires of the operating system.
pub trait Kernel {
    /// Makes every core that runs a thread of a registered process pass a full memory barrier
    /// before this call returns (Linux: `membarrier`). If every sender fences for itself, a full
    /// fence of this thread is enough. Returns false if no barrier was possible this time; the
    /// caller then keeps its sleep short.
    fn barrier_everywhere(&self) -> bool;

    /// Wakes up to `count_max` threads that wait on `bell`.
    fn wake(&self, bell: &AtomicU32, count_max: u32);

    /// Wakes the thread of this process that waits on `bell`, its own.
    fn wake_own(&self, bell: &AtomicU32) {
        self.wake(bell, 1);
    }

    /// Sleeps while no bell has been rung, until the thread is woken through one of them or
    /// `cap_ns` nanoseconds have passed. Returns true if that time ran out. May return early
    /// without a reason.
    fn wait(&self, bells: Bells<'_>, cap_ns: u64) -> bool;

    /// The processor that this thread runs on. A hint.
    fn cpu(&self) -> u32;

    /// Yields this processor to other threads that are ready to run.
    fn yield_now(&self) {}

    /// Nanoseconds since an arbitrary moment, or always 0 if there is no clock. A hint.
    fn now_ns(&self) -> u64 {
        0
    }
}

/// What a data thread requires of the control thread of its process, which knows for example which
/// descriptor belongs to which row. By default nothing happens.
pub trait Control {
    /// Makes the operating system report the death of this sender or receiver of a shared channel,
    /// whose process has `socket`, to the channel's roster. Reports it at once if that process does
    /// not exist.
    fn watch(&self, party: Party, who: Entrance, socket: u128) {
        let _ = (party, who, socket);
    }

    /// Wakes the receiver of `row`, which asked to be woken through its descriptor.
    fn wake_descriptor(&self, row: u32) {
        let _ = row;
    }

    /// Makes another thread wake all sleepers that still wait on the sender's bell, so that the
    /// data thread does not have to.
    fn wake_rest(&self) {}

    /// Gives up the receiver's row: the receiver was dropped, and now the last of its held messages. Called only if it
    /// ever held one, by the thread that drops the last.
    fn leave(&self) {}
}

/// No control thread.
impl Control for () {}

/// The operating system and the control thread of one side of a ring.
pub trait Host {
    /// The operating system.
    type Kernel: Kernel;
    /// The control thread.
    type Control: Control + ?Sized;

    /// The operating system.
    fn kernel(&self) -> &Self::Kernel;

    /// The control thread.
    fn control(&self) -> &Self::Control;
}

/// One value that is both, for programs without a control thread.
impl<K: Kernel + Control> Host for K {
    type Kernel = Self;
    type Control = Self;

    #[inline(always)]
    fn kernel(&self) -> &Self {
        self
    }

    #[inline(always)]
    fn control(&self) -> &Self {
        self
    }
}

/// Whether a row is a sender's or a receiver's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Party {
    /// A sender's row.
    Sender,
    /// A receiver's row.
    Receiver,
}

/// A row and its generation: the number of holders that it has had, including this one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Entrance {
    /// The row.
    pub row: u32,
    /// The number of its holder.
    pub generation: u32,
}

/// A lock around `T`: a real mutex in a program, loom's mutex in a model.
pub trait Lock<T> {
    /// Runs `job` with the lock held.
    fn with<R>(&self, job: impl FnOnce(&mut T) -> R) -> R;
}

impl<T, L: Lock<T> + ?Sized> Lock<T> for Arc<L> {
    fn with<R>(&self, job: impl FnOnce(&mut T) -> R) -> R {
        L::with(self, job)
    }
}

/// Proof that the processes that share a memory belong to one user, so that no process writes a
/// message while it is read in place: level 1 or 2 of `docs/threats.md`.
#[derive(Debug, Clone, Copy)]
pub struct Trusted(());

impl Trusted {
    /// Declares the peer trusted.
    ///
    /// # Safety
    /// The peer whose memory is then used keeps to the protocol: after publishing a message, it
    /// does not write it again before every receiver has finished with it. The peer may die at any
    /// instruction.
    #[must_use]
    pub const unsafe fn assume() -> Self {
        Self(())
    }
}
