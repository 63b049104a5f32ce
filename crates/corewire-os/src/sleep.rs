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

use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use corewire_ring::Kernel;
use corewire_ring::sync::{AtomicU32, Ordering, fence, pause};
use rustix::io::Errno;
use rustix::thread::futex::{self, WaitFlags, WaitPtr, WaitvFlags};
use rustix::thread::{ClockId, MembarrierCommand, Timespec, membarrier};
use rustix::time::clock_gettime;

use crate::fork::PerProcess;

/// How often a sleeper looks at the words that it cannot wait on.
const LOOK_UP_NS: u64 = 4_000_000;

/// Linux, as rings see it.
#[derive(Debug, Clone, Copy)]
pub struct Linux {
    found: &'static Found,
}

/// What the kernel gives this process.
#[derive(Debug)]
struct Found {
    has_membarrier: bool,
    /// 1 while `futex_waitv` is believed to work. A call that is refused later sets it to 0.
    has_waitv: AtomicU32,
}

impl Linux {
    /// Finds out what this process may use, and registers it for barriers, once.
    #[must_use]
    pub fn get() -> Self {
        static FOUND: PerProcess<OnceLock<Found>> = PerProcess::new();
        let found = FOUND.get().get_or_init(|| Found {
            has_membarrier: membarrier(MembarrierCommand::RegisterGlobalExpedited).is_ok()
                && membarrier(MembarrierCommand::GlobalExpedited).is_ok(),
            // A wait for no word at all is invalid: no other answer proves that the call is there.
            has_waitv: AtomicU32::new(u32::from(
                futex::waitv(&[], WaitvFlags::empty(), None, ClockId::Monotonic)
                    == Err(Errno::INVAL),
            )),
        });
        Self { found }
    }

    /// Can this process both call `membarrier` and be reached by it?
    #[must_use]
    pub fn has_membarrier(&self) -> bool {
        self.found.has_membarrier
    }

    /// Can it wait on two words at once?
    #[must_use]
    pub fn has_waitv(&self) -> bool {
        self.found.has_waitv.load(Ordering::Relaxed) == 1
    }
}

impl Kernel for Linux {
    fn barrier_everywhere(&self) -> bool {
        if !self.has_membarrier() {
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
        if self.has_waitv() {
            let mut words = [futex::Wait::new(), futex::Wait::new()];
            for (wait, (word, expected)) in words.iter_mut().zip([shared, own]) {
                wait.val = expected.into();
                wait.uaddr = WaitPtr::new(word.as_ptr().cast());
                wait.flags = WaitFlags::SIZE_U32;
            }
            let deadline = deadline_after(cap_ns);
            match futex::waitv(&words, WaitvFlags::empty(), Some(&deadline), ClockId::Monotonic) {
                Ok(_) | Err(Errno::AGAIN | Errno::INTR) => return false,
                Err(Errno::TIMEDOUT) => return true,
                // For want of memory, this once.
                Err(Errno::NOMEM) => {}
                Err(_) => self.found.has_waitv.store(0, Ordering::Relaxed),
            }
        }
        wait_looking_up(shared, own, cap_ns)
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

/// What it costs here to wake a thread that has just fallen asleep, in nanoseconds, from the call to its
/// first instruction. Measured once for each process, in about a millisecond, beside whatever else runs;
/// 1 to 20 us, and 4 us where no thread can be had.
#[must_use]
pub fn wake_up_ns() -> f64 {
    static COST: PerProcess<OnceLock<f64>> = PerProcess::new();
    *COST.get().get_or_init(|| measure_wake_up_ns().map_or(4e3, |ns| ns.clamp(1e3, 20e3)))
}

/// The median of several wake-ups of another thread.
fn measure_wake_up_ns() -> Option<f64> {
    /// As many as fit into the time, but no more.
    const ROUNDS: usize = 15;
    const LIMIT: Duration = Duration::from_millis(1);
    /// Long enough for the other thread to fall asleep.
    const PAUSE: Duration = Duration::from_micros(20);
    /// The word that says that it is over.
    const OVER: u32 = u32::MAX;
    let shared = Arc::new((AtomicU32::new(0), Mutex::new(Instant::now())));
    let sleeper = Arc::clone(&shared);
    let thread = std::thread::Builder::new().stack_size(64 << 10).spawn(move || {
        crate::process::block_all_signals();
        let (word, woken_at) = &*sleeper;
        let mut seen = 0;
        while seen != OVER {
            let _ = futex::wait(word, futex::Flags::PRIVATE, seen, None);
            let now = Instant::now();
            seen = word.load(Ordering::Relaxed);
            if let Ok(mut at) = woken_at.lock() {
                *at = now;
            }
        }
    });
    thread.ok()?;
    let (word, woken_at) = &*shared;
    let wake = |value| {
        word.store(value, Ordering::Relaxed);
        let _ = futex::wake(word, futex::Flags::PRIVATE, 1);
    };
    let start = Instant::now();
    let mut costs = Vec::new();
    for round in (1..).take(ROUNDS) {
        let until = Instant::now() + PAUSE;
        while Instant::now() < until {
            pause();
        }
        let called_at = Instant::now();
        wake(round);
        // The answer comes by itself: for as long as it does not, the cost is not known.
        let woken_at = loop {
            let at = woken_at.lock().map_or(called_at, |at| *at);
            if at > called_at || start.elapsed() > LIMIT {
                break at;
            }
            pause();
        };
        if woken_at <= called_at {
            break;
        }
        costs.push((woken_at - called_at).as_secs_f64() * 1e9);
    }
    wake(OVER);
    costs.sort_by(f64::total_cmp);
    costs.get(costs.len() / 2).copied()
}

/// Waits on the shared word alone, and looks at the other now and then. Where the kernel refuses that,
/// too, it looks at both. True if the cap has passed.
fn wait_looking_up(shared: (&AtomicU32, u32), own: (&AtomicU32, u32), cap_ns: u64) -> bool {
    let now_ns = || clock_gettime(ClockId::Monotonic);
    let start = now_ns();
    let changed = |(word, expected): (&AtomicU32, u32)| word.load(Ordering::Relaxed) != expected;
    loop {
        if changed(own) || changed(shared) {
            return false;
        }
        let passed = Duration::try_from(now_ns() - start).unwrap_or_default();
        let left = Duration::from_nanos(cap_ns).saturating_sub(passed);
        if left.is_zero() {
            return true;
        }
        let moment = left.min(Duration::from_nanos(LOOK_UP_NS));
        let moment =
            Timespec::try_from(moment).unwrap_or(Timespec { tv_sec: 0, tv_nsec: 1_000_000 });
        match futex::wait(shared.0, futex::Flags::empty(), shared.1, Some(&moment)) {
            Ok(()) | Err(Errno::AGAIN | Errno::INTR) => return false,
            Err(Errno::TIMEDOUT) => {}
            Err(_) => drop(rustix::thread::nanosleep(&moment)),
        }
    }
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
