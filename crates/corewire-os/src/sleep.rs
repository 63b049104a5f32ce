//! Barriers, sleeping and waking.
//!
//! Before a receiver sleeps, it must be sure that a sender that stores a stamp from now on sees that
//! it sleeps. One `membarrier` system call of the receiver ensures this, so a sender never pays for
//! it: see `corewire_ring::broadcast`. Where the kernel refuses the call (a seccomp filter may), the
//! channel falls back to a locked instruction after each stamp.
//!
//! The receiver or sender of a channel waits on two words at once (`FUTEX_WAITV`, Linux 5.16): the
//! peer's word, and a word of its own. Its control thread changes the latter when the peer dies,
//! because a dead peer cannot wake anyone. Without this call a sleeper waits on the peer's word alone
//! and checks its own word every 4 ms. An endpoint waits on one word, which everybody changes.

use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use corewire_ring::doorbell::{Bell, Bells};
use corewire_ring::sync::{AtomicU32, Ordering, fence, pause};
use corewire_ring::{Control, Kernel};
use rustix::io::Errno;
use rustix::thread::futex::{self, WaitFlags, WaitPtr, WaitvFlags};
use rustix::thread::{ClockId, MembarrierCommand, Timespec, membarrier};
use rustix::time::clock_gettime;

use crate::fork::PerProcess;

/// Interval at which a sleeper checks the words that it cannot wait on.
const LOOK_UP_NS: u64 = 4_000_000;

/// Linux, as the rings use it.
#[derive(Debug, Clone, Copy)]
pub struct Linux {
    found: &'static Features,
}

/// Features that the kernel allows to this process.
#[derive(Debug)]
struct Features {
    has_membarrier: bool,
    /// 1 while `futex_waitv` works as far as known. A call that is refused later sets it to 0.
    has_waitv: AtomicU32,
}

impl Linux {
    /// Checks what this process may use, and registers it for barriers. Done once for each process.
    #[inline]
    #[must_use]
    pub fn get() -> Self {
        static FOUND: PerProcess<OnceLock<Features>> = PerProcess::new();
        let found = FOUND.get().get_or_init(|| Features {
            has_membarrier: membarrier(MembarrierCommand::RegisterGlobalExpedited).is_ok()
                && membarrier(MembarrierCommand::GlobalExpedited).is_ok(),
            // A wait for no word is invalid. No other answer proves that the call exists.
            has_waitv: AtomicU32::new(u32::from(
                futex::waitv(&[], WaitvFlags::empty(), None, ClockId::Monotonic)
                    == Err(Errno::INVAL),
            )),
        });
        Self { found }
    }

    /// Whether this process can both call `membarrier` and be reached by it.
    #[inline]
    #[must_use]
    pub fn has_membarrier(&self) -> bool {
        self.found.has_membarrier
    }

    /// Whether this process can wait on two words at once.
    #[must_use]
    pub fn has_waitv(&self) -> bool {
        self.found.has_waitv.load(Ordering::Relaxed) == 1
    }
}

impl Kernel for Linux {
    #[inline]
    fn barrier_everywhere(&self) -> bool {
        if !self.has_membarrier() {
            // A sender fences by itself if one of its receivers cannot call `membarrier`.
            fence(Ordering::SeqCst);
            return true;
        }
        let done = membarrier(MembarrierCommand::GlobalExpedited).is_ok();
        if !done {
            fence(Ordering::SeqCst);
        }
        done
    }

    #[inline]
    fn wake(&self, word: &AtomicU32, count_max: u32) {
        // The call fails only if the address is not mapped, and then no thread waits there.
        let _ = futex::wake(word, futex::Flags::empty(), count_max);
    }

    #[inline]
    fn wake_own(&self, word: &AtomicU32) {
        let _ = futex::wake(word, futex::Flags::PRIVATE, 1);
    }

    fn wait(&self, bells: Bells<'_>, cap_ns: u64) -> bool {
        let (shared, own) = match (bells.shared, bells.own) {
            (Some(shared), Some(own)) => (shared, own),
            (Some(shared), None) => return wait_on_one(shared, futex::Flags::empty(), cap_ns),
            (None, Some(own)) => return wait_on_one(own, futex::Flags::PRIVATE, cap_ns),
            (None, None) => return false,
        };
        if self.has_waitv() {
            let word = |bell: Bell<'_>, flags| {
                let mut wait = futex::Wait::new();
                wait.val = bell.heard.into();
                wait.uaddr = WaitPtr::new(bell.word.as_ptr().cast());
                wait.flags = WaitFlags::SIZE_U32 | flags;
                wait
            };
            // The kernel finds a private word by its address alone, without its page.
            let words = [word(shared, WaitFlags::empty()), word(own, WaitFlags::PRIVATE)];
            let deadline = deadline_after(cap_ns);
            match futex::waitv(&words, WaitvFlags::empty(), Some(&deadline), ClockId::Monotonic) {
                Ok(_) | Err(Errno::AGAIN | Errno::INTR) => return false,
                Err(Errno::TIMEDOUT) => return true,
                // A lack of memory, which may be over at the next call.
                Err(Errno::NOMEM) => {}
                Err(_) => self.found.has_waitv.store(0, Ordering::Relaxed),
            }
        }
        wait_looking_up(shared, own, cap_ns)
    }

    #[inline]
    fn cpu(&self) -> u32 {
        u32::try_from(rustix::thread::sched_getcpu()).unwrap_or(u32::MAX)
    }

    #[inline]
    fn yield_now(&self) {
        // That of rustix panics in debug builds if the kernel refuses the call.
        std::thread::yield_now();
    }

    #[inline]
    fn now_ns(&self) -> u64 {
        let now = clock_gettime(ClockId::Monotonic);
        let nanoseconds = now.tv_sec.saturating_mul(1_000_000_000).saturating_add(now.tv_nsec);
        u64::try_from(nanoseconds).unwrap_or_default()
    }
}

/// Without a control thread.
impl Control for Linux {}

/// Cost of waking a thread that fell asleep just now, in nanoseconds, from the call to the thread's first
/// instruction. Measured once for each process, in about a millisecond, while other programs may run. The
/// result is 1 to 20 us, and 4 us if no thread can be created.
#[must_use]
pub fn wake_up_ns() -> f64 {
    static COST: PerProcess<OnceLock<f64>> = PerProcess::new();
    *COST.get().get_or_init(|| measure_wake_up_ns(None).map_or(4e3, |ns| ns.clamp(1e3, 20e3)))
}

/// The cost of waking a thread on processor `cpu`, or anywhere, in nanoseconds: the median of several, in about a
/// millisecond. `None` if there is no such thread, or it does not answer in time.
#[must_use]
pub fn measure_wake_up_ns(cpu: Option<usize>) -> Option<f64> {
    /// Maximum number of rounds; fewer if the time limit is reached first.
    const ROUNDS: usize = 15;
    const LIMIT: Duration = Duration::from_millis(1);
    /// Long enough for the other thread to fall asleep.
    const PAUSE: Duration = Duration::from_micros(20);
    /// The value of the word that ends the other thread.
    const OVER: u32 = u32::MAX;
    let shared = Arc::new((AtomicU32::new(0), Mutex::new(Instant::now())));
    let sleeper = Arc::clone(&shared);
    let thread = std::thread::Builder::new().stack_size(64 << 10).spawn(move || {
        crate::process::block_all_signals();
        if cpu.is_some_and(|cpu| crate::processor::pin_to(cpu).is_err()) {
            return;
        }
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
        // The other thread answers by itself. Without an answer within the limit, the cost is not known.
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

/// Waits on one word. Returns true if the cap has passed.
fn wait_on_one(bell: Bell<'_>, flags: futex::Flags, cap_ns: u64) -> bool {
    let cap = Timespec::try_from(Duration::from_nanos(cap_ns)).ok();
    match futex::wait(bell.word, flags, bell.heard, cap.as_ref()) {
        Ok(()) | Err(Errno::AGAIN | Errno::INTR) => false,
        Err(Errno::TIMEDOUT) => true,
        Err(_) => wait_looking_up(bell, bell, cap_ns),
    }
}

/// Waits on the shared word alone and checks the other word at intervals. Where the kernel refuses this
/// too, checks both words. Returns true if the cap has passed.
fn wait_looking_up(shared: Bell<'_>, own: Bell<'_>, cap_ns: u64) -> bool {
    let now_ns = || clock_gettime(ClockId::Monotonic);
    let start = now_ns();
    loop {
        if own.has_rung() || shared.has_rung() {
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
        match futex::wait(shared.word, futex::Flags::empty(), shared.heard, Some(&moment)) {
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
