//! An operating system on which no call ever sleeps, and a lock without contention.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use corewire_ring::broadcast::Members;
use corewire_ring::doorbell::Bells;
use corewire_ring::sync::{AtomicU32, Ordering, fence};
use corewire_ring::{Control, Kernel, Lock};

/// Counts the calls. Cheap to clone; all clones share the counts.
#[derive(Debug, Clone, Default)]
pub struct Idle(Rc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    calls: Cell<u64>,
    capped: Cell<bool>,
    refuses: Cell<bool>,
    was_capped: Cell<bool>,
}

impl Idle {
    /// Returns the number of calls since the last call of this function.
    #[must_use]
    pub fn take_calls(&self) -> u64 {
        self.0.calls.take()
    }

    /// Returns whether the cap ended a sleep since the last call of this function.
    #[must_use]
    pub fn take_capped(&self) -> bool {
        self.0.was_capped.take()
    }

    /// Sets whether the cap ends the next sleep, and whether the next barrier is refused.
    pub fn set(&self, is_capped: bool, is_refused: bool) {
        self.0.capped.set(is_capped);
        self.0.refuses.set(is_refused);
    }

    fn count(&self) {
        self.0.calls.set(self.0.calls.get() + 1);
    }
}

impl Kernel for Idle {
    fn barrier_everywhere(&self) -> bool {
        self.count();
        fence(Ordering::SeqCst);
        !self.0.refuses.get()
    }

    fn wake(&self, _word: &AtomicU32, _count_max: u32) {
        self.count();
    }

    fn wait(&self, bells: Bells<'_>, _cap_ns: u64) -> bool {
        self.count();
        // Reads the words, as the kernel does.
        let _ = bells.have_rung();
        let capped = self.0.capped.take();
        self.0.was_capped.set(self.0.was_capped.get() || capped);
        capped
    }

    fn cpu(&self) -> u32 {
        // Another processor each time: nobody finds that a peer needs the one it runs on.
        static NEXT: AtomicU32 = AtomicU32::new(0);
        NEXT.fetch_add(1, Ordering::Relaxed)
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
