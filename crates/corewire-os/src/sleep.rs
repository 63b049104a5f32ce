//! Barriers, sleeping and waking.
//!
//! A receiver that goes to sleep must be sure that whoever stores a stamp from now on sees it
//! asleep. It buys that with one `membarrier` system call, so that no sender ever pays: see
//! `corewire_ring::broadcast`. Where the kernel refuses the call (a seccomp filter may), the
//! channel falls back to a locked instruction after each stamp.
//!
//! A sleeper waits on two words at once (`FUTEX_WAITV`, Linux 5.16): the peer's, and one of its own
//! that its control thread changes when the peer dies, since the dead ring no bells. Without that
//! call it waits on the peer's word alone and looks up every millisecond.

use std::sync::OnceLock;
use std::time::Duration;

use corewire_ring::Kernel;
use corewire_ring::sync::{AtomicU32, Ordering, fence};
use rustix::io::Errno;
use rustix::thread::futex::{self, WaitFlags, WaitPtr, WaitvFlags};
use rustix::thread::{ClockId, MembarrierCommand, Timespec, membarrier};
use rustix::time::clock_gettime;

/// How long a sleeper waits at a time where it can wait on one word only.
const ONE_WORD_CAP_NS: u64 = 1_000_000;

/// Linux, as rings see it.
#[derive(Debug, Clone, Copy)]
pub struct Linux {
    has_membarrier: bool,
    has_waitv: bool,
}

impl Linux {
    /// Finds out what this process may use, and registers it for barriers, once.
    #[must_use]
    pub fn get() -> Self {
        static FOUND: OnceLock<Linux> = OnceLock::new();
        *FOUND.get_or_init(|| Self {
            has_membarrier: membarrier(MembarrierCommand::RegisterGlobalExpedited).is_ok()
                && membarrier(MembarrierCommand::GlobalExpedited).is_ok(),
            has_waitv: futex::waitv(&[], WaitvFlags::empty(), None, ClockId::Monotonic)
                != Err(Errno::NOSYS),
        })
    }

    /// Can this process both call `membarrier` and be reached by it?
    #[must_use]
    pub const fn has_membarrier(&self) -> bool {
        self.has_membarrier
    }

    /// Can it wait on two words at once?
    #[must_use]
    pub const fn has_waitv(&self) -> bool {
        self.has_waitv
    }
}

impl Kernel for Linux {
    fn barrier_everywhere(&self) -> bool {
        if !self.has_membarrier {
            // Everyone who sends to a process like this one fences for itself.
            fence(Ordering::SeqCst);
            return true;
        }
        let done = membarrier(MembarrierCommand::GlobalExpedited).is_ok();
        if !done {
            fence(Ordering::SeqCst);
        }
        done
    }

    fn wake(&self, word: &AtomicU32, count_max: u32) {
        // It fails only if the address is not mapped, and then nobody waits there.
        let _ = futex::wake(word, futex::Flags::empty(), count_max);
    }

    fn wait(&self, shared: (&AtomicU32, u32), own: (&AtomicU32, u32), cap_ns: u64) -> bool {
        if !self.has_waitv {
            return wait_on_one(shared, own, cap_ns);
        }
        let mut words = [futex::Wait::new(), futex::Wait::new()];
        for (wait, (word, expected)) in words.iter_mut().zip([shared, own]) {
            wait.val = expected.into();
            wait.uaddr = WaitPtr::new(word.as_ptr().cast());
            wait.flags = WaitFlags::SIZE_U32;
        }
        let deadline = deadline_after(cap_ns);
        let woken = futex::waitv(&words, WaitvFlags::empty(), Some(&deadline), ClockId::Monotonic);
        woken == Err(Errno::TIMEDOUT)
    }

    fn cpu(&self) -> u32 {
        u32::try_from(rustix::thread::sched_getcpu()).unwrap_or(u32::MAX)
    }

    fn give_way(&self) {
        rustix::thread::sched_yield();
    }

    fn now_ns(&self) -> u64 {
        let now = clock_gettime(ClockId::Monotonic);
        let nanoseconds = now.tv_sec.saturating_mul(1_000_000_000).saturating_add(now.tv_nsec);
        u64::try_from(nanoseconds).unwrap_or_default()
    }
}

fn wait_on_one(shared: (&AtomicU32, u32), own: (&AtomicU32, u32), cap_ns: u64) -> bool {
    let (word, expected) = shared;
    if own.0.load(Ordering::Relaxed) != own.1 {
        return false;
    }
    let cap = Duration::from_nanos(cap_ns.min(ONE_WORD_CAP_NS));
    let timeout = Timespec::try_from(cap).unwrap_or(Timespec { tv_sec: 0, tv_nsec: 1_000_000 });
    let woken = futex::wait(word, futex::Flags::empty(), expected, Some(&timeout));
    woken == Err(Errno::TIMEDOUT) && cap_ns <= ONE_WORD_CAP_NS
}

fn deadline_after(cap_ns: u64) -> Timespec {
    let now = clock_gettime(ClockId::Monotonic);
    let cap_ns = i64::try_from(cap_ns).unwrap_or(i64::MAX / 4);
    let nanoseconds = now.tv_nsec + cap_ns % 1_000_000_000;
    let carry = i64::from(nanoseconds >= 1_000_000_000);
    Timespec {
        tv_sec: now.tv_sec.saturating_add(cap_ns / 1_000_000_000 + carry),
        tv_nsec: nanoseconds - carry * 1_000_000_000,
    }
}
