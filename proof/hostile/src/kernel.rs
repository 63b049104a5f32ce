//! An operating system on which no call ever sleeps, and a lock without contention.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};

use corewire_ring::broadcast::Members;
use corewire_ring::doorbell::Bells;
use corewire_ring::sync::{AtomicU32, Ordering, fence};
use corewire_ring::{Control, Kernel, Lock};

/// Counts the calls. Cheap to clone; all clones share the counts.
#[derive(Debug, Clone, Default)]
pub struct Idle(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    calls: AtomicU64,
    capped: AtomicBool,
    refuses: AtomicBool,
    was_capped: AtomicBool,
}

impl Idle {
    /// Returns the number of calls since the last call of this function.
    #[must_use]
    pub fn take_calls(&self) -> u64 {
        self.0.calls.swap(0, Relaxed)
    }

    /// Returns whether the cap ended a sleep since the last call of this function.
    #[must_use]
    pub fn take_capped(&self) -> bool {
        self.0.was_capped.swap(false, Relaxed)
    }

    /// Sets whether the cap ends the next sleep, and whether the next barrier is refused.
    pub fn set(&self, is_capped: bool, is_refused: bool) {
        self.0.capped.store(is_capped, Relaxed);
        self.0.refuses.store(is_refused, Relaxed);
    }

    fn count(&self) {
        self.0.calls.fetch_add(1, Relaxed);
    }
}

impl Kernel for Idle {
    fn barrier_everywhere(&self) -> bool {
        self.count();
        fence(Ordering::SeqCst);
        !self.0.refuses.load(Relaxed)
    }

    fn wake(&self, _word: &AtomicU32, _count_max: u32) {
        self.count();
    }

    fn wait(&self, bells: Bells<'_>, _cap_ns: u64) -> bool {
        self.count();
        // Reads the words, as the kernel does.
        let _ = bells.have_rung();
        let capped = self.0.capped.swap(false, Relaxed);
        self.0.was_capped.fetch_or(capped, Relaxed);
        capped
    }

    fn cpu(&self) -> u32 {
        // Another processor each time: nobody finds that a peer needs the one it runs on.
        static NEXT: AtomicU32 = AtomicU32::new(0);
        NEXT.fetch_add(1, Relaxed)
    }
}

impl Control for Idle {
    fn wake_descriptor(&self, _row: u32) {
        self.count();
    }

    fn wake_rest(&self) {
        self.count();
    }
}

/// The members of a channel. The test acts as the channel's control thread.
#[derive(Debug)]
pub struct Locked(pub RefCell<Members>);

impl Lock<Members> for Locked {
    fn with<R>(&self, job: impl FnOnce(&mut Members) -> R) -> R {
        job(&mut self.0.borrow_mut())
    }
}
