//! Sleep and wake: one protocol for every ring.
//!
//! A *sleeper* waits for something that a *waker* stores: a stamp, a bit, a cursor. While the sleeper is awake, the
//! waker pays for it one load and one compare after each store, and no locked instruction.
//!
//! | | the sleeper | the waker |
//! |---|---|---|
//! | 1 | reads the *bells* that will end its sleep (W2) | stores what the sleeper waits for |
//! | 2 | announces its sleep, for example by an odd *epoch* (W8) | fences (W5, or W7 on a slow path) |
//! | 3 | passes a barrier (W6) | reads the announcement (W9) |
//! | 4 | checks once more | changes the bell (W1) and wakes the threads that wait on it |
//! | 5 | waits while the bells hold what was read in step 1 | |
//! | 6 | retracts the announcement | |
//!
//! Either the waker's store comes before the sleeper's barrier, and the check in step 4 finds it; or the waker reads
//! the announcement after it, and rings. A ring between steps 1 and 5 ends the wait at once.
//!
//! The barrier comes in two kinds. If the waker's fence is *light* (the compiler keeps the order, the processor may
//! not), the sleeper makes every core pass a barrier: one system call, paid by the side that is about to sleep
//! anyway. If the waker passes a full fence, a full fence of the sleeper is enough.
//!
//! # Words
//!
//! | word | written by |
//! |---|---|
//! | bell | wakers; of a data thread's own bell, other threads of its process |
//! | epoch: odd while the owner sleeps; mode: how to wake it | the sleeper |
//! | [`Notices`], private memory | threads of the process; the data thread clears |
//!
//! # Cost
//!
//! While the sleeper is awake: nothing besides the load. A sleep: one barrier, one wait, the bell's line and the
//! epoch's line, one wake-up call.
//!
//! Proofs: `proof/models/tests/models/ring.rs`, `proof/kill/src/broadcast.rs`, `proof/kill/src/pairs.rs`,
//! `proof/kill/src/shared.rs`.

use corewire_layout::segment::{FenceMode, SleepMode};

pub use crate::bell::{Bell, Bells};
use crate::sync::{AtomicU32, Ordering::Relaxed, light_fence, pause};
use crate::{Kernel, fence_at, order};

/// The default limit on one sleep, in ns: a sleeper checks again after at most this time. What is found only for that
/// reason is counted: its wake-up was late, because the waker was stopped between its store and the wake-up.
pub const SLEEP_CAP_NS: u64 = 100_000_000;
/// Limit on a sleep, in ns, when the waker may not see the sleeper: the barrier failed, or stores without a fence may
/// still be in flight.
pub const UNSURE_SLEEP_CAP_NS: u64 = 1_000_000;
/// A sleeper that finds nothing after such a sleep sleeps twice as long the next time, up to this.
const UNSURE_SLEEP_CAP_MAX_NS: u64 = 8_000_000;
/// All sleepers: the kernel takes the count as an `i32`.
pub(crate) const WAKE_ALL: u32 = i32::MAX.unsigned_abs();

/// Bits of [`Notices`] of a channel: why a data thread should interrupt its wait.
pub mod notice {
    /// The peer's process has died, or has hung up without closing.
    pub const PEER_GONE: u32 = 1;
    /// This process was forked, and this is the child.
    pub const FORKED: u32 = 2;
    /// Another thread asked for the call to return.
    pub const INTERRUPTED: u32 = 4;
}

/// What other threads of a process tell a data thread, as bits. Private memory.
#[derive(Debug, Default)]
pub struct Notices(AtomicU32);

impl Notices {
    /// Sets `notices`. A bell must be rung afterwards.
    #[inline]
    pub(crate) fn set(&self, notices: u32) {
        // ORDER(W3): pairs with W4; what a dead peer committed is visible with the notice.
        self.0.fetch_or(notices, order!(W3: Release));
    }

    /// Sets `notices` in a forked child, where no other thread runs. Only stores.
    #[inline]
    pub(crate) fn mark(&self, notices: u32) {
        self.0.fetch_or(notices, Relaxed);
    }

    /// The notices that are set.
    #[inline(always)]
    pub(crate) fn get(&self) -> u32 {
        // ORDER(W4): pairs with W3.
        self.0.load(order!(W4: Acquire))
    }

    /// Clears `notices`.
    #[inline]
    pub(crate) fn clear(&self, notices: u32) {
        self.0.fetch_and(!notices, Relaxed);
    }
}

/// Step 1 of a sleeper: reads a bell.
#[inline]
pub(crate) fn listen(bell: &AtomicU32) -> u32 {
    // ORDER(W2): pairs with W1; read before checking again, so that a ring in between ends the sleep at once.
    bell.load(order!(W2: Acquire))
}

/// Step 3 of a sleeper: the check that follows sees everything that was stored before, and the waker of a later store
/// sees the announcement. False if the kernel could not guarantee that; the sleep must then be short.
pub(crate) fn barrier<K: Kernel>(wakers: FenceMode, kernel: &K) -> bool {
    // ORDER(W6): pairs with W5 and W7.
    #[cfg(loom)]
    if crate::sync::is_weakened("W6") {
        return true;
    }
    match wakers {
        FenceMode::Asymmetric => kernel.barrier_everywhere(),
        FenceMode::Fenced => {
            fence_at!(W6: SeqCst);
            true
        }
    }
}

/// Step 2 of a waker on its fast path.
#[inline(always)]
pub(crate) fn fence_after_store(is_fenced: bool) {
    // ORDER(W5): pairs with W6 and J1; what was stored is visible before the announcements, and before the limit for
    // the next message, are read.
    if is_fenced {
        fence_at!(W5: SeqCst);
    } else {
        light_fence();
    }
}

/// Step 2 of a waker on a slow path, for sleepers that may not make other cores pass a barrier.
#[inline(always)]
pub(crate) fn fence_before_look() {
    // ORDER(W7): pairs with W6; what was stored is visible before the announcement is read. Either the sleeper sees
    // it, or this thread sees the sleeper. A full fence, since it is paid rarely.
    fence_at!(W7: SeqCst);
}

/// Step 3 of a waker: a sleeper's epoch.
#[inline]
pub(crate) fn epoch_of(epoch: &AtomicU32) -> u32 {
    // ORDER(W9): pairs with W8; the mode that is read next belongs to this epoch or to a later one.
    epoch.load(order!(W9: Acquire))
}

/// How to wake a sleeper whose epoch was just read; `None` if it is awake.
#[inline]
pub(crate) fn mode_of(epoch: u32, mode: &AtomicU32) -> Option<SleepMode> {
    if epoch.is_multiple_of(2) {
        return None;
    }
    let is_descriptor = mode.load(Relaxed) == SleepMode::Descriptor as u32;
    Some(if is_descriptor { SleepMode::Descriptor } else { SleepMode::Futex })
}

/// Step 4 of a waker: rings a bell, and wakes up to `count_max` of the threads that wait on it.
pub(crate) fn ring<K: Kernel>(bell: &AtomicU32, count_max: u32, kernel: &K) {
    change(bell);
    kernel.wake(bell, count_max);
}

/// The same for the own bell of a data thread of this process.
pub(crate) fn ring_own<K: Kernel>(bell: &AtomicU32, kernel: &K) {
    change(bell);
    kernel.wake_own(bell);
}

#[inline]
fn change(bell: &AtomicU32) {
    // ORDER(W1): pairs with W2; the thread that this wakes, or keeps awake, sees what was stored before.
    bell.fetch_add(1, order!(W1: Release));
}

/// The sleeps of a data thread: its epoch, and the limits on each sleep.
#[derive(Debug)]
pub(crate) struct Sleeper {
    epoch: u32,
    cap_ns: u64,
    /// The limit on the next sleep that wakers may not see.
    unsure_cap_ns: u64,
}

impl Sleeper {
    /// A sleeper that is awake, with this epoch (rounded down to an even one).
    #[inline]
    pub(crate) fn new(epoch: u32) -> Self {
        Self { epoch: epoch & !1, cap_ns: SLEEP_CAP_NS, unsure_cap_ns: UNSURE_SLEEP_CAP_NS }
    }

    /// Its epoch.
    #[inline]
    pub(crate) fn epoch(&self) -> u32 {
        self.epoch
    }

    /// Sets the limit on each sleep, in ns. Default: [`SLEEP_CAP_NS`].
    #[inline]
    pub(crate) fn set_cap(&mut self, cap_ns: u64) {
        self.cap_ns = cap_ns;
    }

    /// Step 2: makes the epoch in `word` odd. An earlier announcement must have been retracted, and the mode stored.
    #[inline]
    pub(crate) fn announce(&mut self, word: &AtomicU32) {
        debug_assert!(self.epoch.is_multiple_of(2), "no earlier announcement");
        self.epoch = self.epoch.wrapping_add(1);
        // ORDER(W8): pairs with W9; a waker that sees the epoch sees its mode.
        word.store(self.epoch, order!(W8: Release));
    }

    /// Step 6: makes the epoch even, if it is odd.
    #[inline]
    pub(crate) fn retract(&mut self, word: &AtomicU32) {
        if !self.epoch.is_multiple_of(2) {
            self.epoch = self.epoch.wrapping_add(1);
            word.store(self.epoch, Relaxed);
        }
    }

    /// Step 5: waits until a bell rings, or `limit_ns` or the cap has passed; may return early. `is_sure` is the
    /// barrier's answer.
    pub(crate) fn sleep<K: Kernel>(
        &self,
        bells: Bells<'_>,
        limit_ns: u64,
        is_sure: bool,
        kernel: &K,
    ) -> Slept {
        let cap_ns = if is_sure { self.cap_ns } else { self.unsure_cap_ns };
        let is_over = kernel.wait(bells, cap_ns.min(limit_ns));
        match (is_over, is_sure) {
            (false, _) => Slept::Woken,
            (true, true) if cap_ns <= limit_ns => Slept::Capped,
            (true, true) => Slept::TimedOut,
            (true, false) => Slept::Unsure,
        }
    }

    /// After a sleep: was what the sleeper waits for found only because the cap had passed? `is_found` says whether it
    /// is there. If a bell has rung as well, the cap and the bell only crossed.
    #[inline]
    pub(crate) fn is_cap_find(&mut self, slept: Slept, bells: Bells<'_>, is_found: bool) -> bool {
        self.unsure_cap_ns = match slept {
            Slept::Unsure if !is_found => (2 * self.unsure_cap_ns).min(UNSURE_SLEEP_CAP_MAX_NS),
            _ => UNSURE_SLEEP_CAP_NS,
        };
        slept == Slept::Capped && is_found && !rings_soon(bells)
    }
}

/// How a sleep ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Slept {
    /// A bell rang, or the wait ended without a reason.
    Woken,
    /// The sleeper's cap has passed.
    Capped,
    /// The caller's limit has passed.
    TimedOut,
    /// The short cap of a sleep that wakers may not see has passed, or the caller's limit.
    Unsure,
}

#[inline]
fn rings_soon(bells: Bells<'_>) -> bool {
    for _ in 0..10_000 {
        if bells.have_rung() {
            return true;
        }
        pause();
    }
    false
}
