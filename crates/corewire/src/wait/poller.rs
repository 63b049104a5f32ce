//! How a call polls before it sleeps. All calls that wait use this, and a provider for MPI will, too.
//!
//! A wait goes through these stages, and ends in the first one in which it finds something:
//!
//! | stage | what the thread does between two polls | how long |
//! |---|---|---|
//! | bare | nothing | [`BARE_POLLS`]; [`CROWDED_POLLS`] in a crowd |
//! | head start, after a run of messages of a channel | a pause without a poll, while that makes the stream faster | 8 ns for each message, up to about 16 us |
//! | paused | a pause, which leaves the core to its other hyperthread | about as long as a wake-up costs |
//! | yielding | yields the processor (not in a wait for room) | in a crowd, up to [`YIELDS_NS`]; otherwise one yield |
//! | asleep | sleeps in the kernel | until it is woken |
//!
//! A *crowd* is more threads that poll than processors. There a poll only delays the peer that must act, and a sleep
//! costs two system calls and a switch; a yield costs the switch alone. The kernel does not tell whether there is a
//! crowd, but a yield does: it returns at once if no other thread is ready to run on this processor. So each wait
//! that finds nothing while it polls yields once before it sleeps. If others ran meanwhile, the waits that follow
//! yield early, until yields return at once again.
//!
//! If others ran for long ([`HOG_NS`]), they compute and do not poll: a thread that yields to them waits for its turn
//! longer than one that is woken, so the wait sleeps. After a wait that yielded in vain the next ones sleep without a
//! yield: one at first, then twice as many each time, up to [`BACKOFF_MAX`].

use corewire_os::processor::{pause_for, pause_ns};
use corewire_os::sleep::{Linux, wake_up_ns};
use corewire_ring::Kernel;
use corewire_ring::sync::pause;

use super::Wait;
use super::trial::Trial;
use crate::tuning::tuning;

/// Number of polls without a pause at the start of a wait. With 64 of them a message took 7 % longer, between two cores
/// and between two hyperthreads of one: a thread that polls without a pause delays the sender's stores, and takes
/// execution from the other hyperthread.
const BARE_POLLS: u32 = 1;
/// Number of polls before the first yield in a crowd.
const CROWDED_POLLS: u32 = 10;
/// Time of an empty poll, in ns.
const POLL_NS: f64 = 3.0;
/// A yield that takes longer, and longer than a few of the shortest ones, has let another thread run: a switch there
/// and back takes more than a microsecond.
const SWITCH_NS: u64 = 700;
const SHORTEST_YIELDS: u64 = 3;
/// Limit on the number of waits that do not yield after one that yielded in vain.
const BACKOFF_MAX: u32 = 256;
/// Number of pauses after which a call that never sleeps checks everything else.
const SPIN_PAUSES: u32 = 256;
/// A yield that takes longer has let a thread run that computes.
const HOG_NS: u64 = 200_000;
/// One in so many head starts yields first.
const HEAD_STARTS_PER_YIELD: u32 = 16;
/// Limit on the time that a wait spends yielding, in ns.
const YIELDS_NS: u64 = 1_000_000;
/// After this many yields in a row that returned at once, there is no crowd any more.
const ALONE_YIELDS: u32 = 8;
/// Time that a wait polls longer for each byte of a large message before it, in ns: about the time that a receiver
/// needs to read it. A wait that sleeps while the peer reads or copies the message would lengthen each exchange by a
/// wake-up.
const HANDLING_NS_PER_BYTE: f64 = 0.25;
/// Shorter messages change nothing: a receiver reads them while a wait polls anyway.
const HANDLING_MIN_BYTES: u64 = 16 << 10;
/// Limit on that time, in ns.
const HANDLING_MAX_NS: f64 = 1e6;
/// Number of pauses between two polls for room. A poll for room takes a line that a receiver writes, and room is made
/// for many messages at once, so that a pause delays its discovery by little.
const PAUSES_FOR_ROOM: u32 = 8;

/// How the calls of one handle poll, and what their last waits found out.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Poller {
    linux: Linux,
    wait: Wait,
    is_for_room: bool,
    /// Number of bare polls.
    bare_polls: u32,
    /// Number of pauses in a wait. Together they take as long as a wake-up costs on this machine.
    pauses: u32,
    is_crowded: bool,
    /// Number of yields in a row that returned at once.
    alone: u32,
    /// Time of the shortest yield so far, in nanoseconds: no other thread ran.
    shortest_ns: u64,
    /// The wait has yielded, and has not slept since.
    has_yielded: bool,
    /// Number of waits that do not yield after one that yielded in vain, and how many of them are left.
    backoff: u32,
    skips: u32,
    /// For room: the next waits poll less after a sleep.
    backs_off: bool,
    /// Number of waits in a row that slept.
    in_vain: u32,
    /// Whether head starts help.
    trial: Trial,
    /// Number of head starts until the next one yields.
    until_yield: u32,
    /// Number of head starts that are left out because another thread computes here.
    left_out: u32,
    /// Number of pauses that the next waits may make in addition, because a peer handles a large message. A sleep
    /// sets it to 0.
    handling: u32,
}

/// How far a wait has come, after its bare polls.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Polls {
    /// Limit on the time that it spends yielding, and on that of longer polling, in nanoseconds.
    limit_ns: u64,
    paused: u32,
    /// When it yielded for the first time; 0 before.
    yielding_since_ns: u64,
    /// After this poll it sleeps.
    is_last: bool,
}

impl Polls {
    /// The polls of a wait that lasts at most `limit_ns` nanoseconds.
    #[inline]
    pub(crate) fn within(limit_ns: u64) -> Self {
        Self { limit_ns: limit_ns.min(YIELDS_NS), paused: 0, yielding_since_ns: 0, is_last: false }
    }

    /// Whether it has let other threads run.
    #[inline]
    pub(crate) fn has_yielded(&self) -> bool {
        self.yielding_since_ns != 0
    }
}

impl Poller {
    /// For waits for a message.
    pub(crate) fn for_messages(wait: Wait) -> Self {
        Self::new(wait, false, false)
    }

    /// For waits for room. They pause from the first poll on, and never yield.
    pub(crate) fn for_room(wait: Wait) -> Self {
        Self::new(wait, true, false)
    }

    /// For waits for room of which there are many: after a wait that slept, the next ones poll less, since with more
    /// processes than processors others are ready to run. They poll as before again occasionally.
    pub(crate) fn for_room_of_many(wait: Wait) -> Self {
        Self::new(wait, true, true)
    }

    fn new(wait: Wait, is_for_room: bool, backs_off: bool) -> Self {
        let pauses = match wait {
            Wait::Park => 0,
            Wait::Spin => SPIN_PAUSES,
            Wait::Adaptive => adaptive_pauses(),
        };
        let linux = Linux::get();
        let mut poller = Self {
            linux,
            wait,
            is_for_room,
            bare_polls: 0,
            pauses,
            is_crowded: false,
            alone: 0,
            shortest_ns: u64::MAX / SHORTEST_YIELDS,
            has_yielded: false,
            backoff: 0,
            skips: 0,
            backs_off,
            in_vain: 0,
            trial: Trial::new(),
            until_yield: 0,
            left_out: 0,
            handling: 0,
        };
        poller.choose_bare_polls();
        poller
    }

    fn choose_bare_polls(&mut self) {
        self.bare_polls = match (self.wait, self.is_for_room, self.is_crowded) {
            (Wait::Park, ..) => 1,
            (_, true, _) => 0,
            (_, _, true) => CROWDED_POLLS,
            (_, _, false) => BARE_POLLS,
        };
    }

    /// Whether its calls sleep when [`may_poll`](Self::may_poll) returns false. Otherwise they poll again.
    #[inline(always)]
    pub(crate) fn may_sleep(&self) -> bool {
        self.wait != Wait::Spin
    }

    /// Number of bare polls at the beginning of a wait.
    #[inline(always)]
    pub(crate) fn bare_polls(&self) -> u32 {
        self.bare_polls
    }

    /// To be called before each poll that follows the bare ones: pauses, or yields. False if it is time to check
    /// everything else, and then to sleep if it [may](Self::may_sleep). `is_peer_here` says whether the peer that must
    /// act last ran on this processor: then it cannot act while this thread polls.
    #[inline(never)]
    pub(crate) fn may_poll(
        &mut self,
        polls: &mut Polls,
        is_peer_here: impl FnOnce() -> bool,
    ) -> bool {
        if self.wait == Wait::Park || polls.is_last {
            return false;
        }
        let pauses = self.pauses_left();
        let is_longer = polls.paused >= pauses;
        let has_pauses = !is_longer || self.may_poll_longer(polls);
        let is_adaptive = self.wait == Wait::Adaptive;
        let is_useless = is_adaptive
            && (self.is_crowded
                || polls.yielding_since_ns != 0
                || (polls.paused == 0 || polls.paused == pauses) && is_peer_here());
        if has_pauses && !is_useless {
            if is_longer {
                self.handling -= 1;
            }
            self.pause(polls);
            return true;
        }
        // Many senders that yield to each other would not share a receiver fairly: each would send for as long as its
        // time slice lasts.
        if !is_adaptive || self.is_for_room || polls.limit_ns == 0 {
            return false;
        }
        if polls.yielding_since_ns == 0 && self.skips > 0 {
            self.skips -= 1;
            return false;
        }
        polls.is_last = !self.yields(polls);
        true
    }

    /// Whether a peer that handles a large message is waited for. Not for longer than the whole wait.
    #[inline]
    fn may_poll_longer(&self, polls: &Polls) -> bool {
        #[expect(clippy::cast_precision_loss, reason = "an estimate")]
        let limit_ns = polls.limit_ns as f64;
        self.handling > 0 && polls.paused < pauses_of(limit_ns)
    }

    /// A message of so many bytes is about to be sent, or has been received: a peer is expected to act on it, or on the
    /// answer, soon.
    #[inline]
    pub(crate) fn expect_handling(&mut self, bytes: u64) {
        if bytes >= HANDLING_MIN_BYTES && self.wait == Wait::Adaptive {
            #[expect(clippy::cast_precision_loss, reason = "an estimate")]
            let time_ns = (bytes as f64 * HANDLING_NS_PER_BYTE).min(HANDLING_MAX_NS);
            self.handling = self.handling.max(pauses_of(time_ns));
        }
    }

    fn pause(&self, polls: &mut Polls) {
        let pauses = if self.is_for_room { PAUSES_FOR_ROOM } else { 1 };
        (0..pauses).for_each(|_| pause());
        polls.paused += pauses;
    }

    /// Number of pauses in a wait. If the last waits for room slept, the next ones poll less.
    #[inline]
    fn pauses_left(&self) -> u32 {
        let shift = if self.backs_off { (self.in_vain % 64).min(31) } else { 0 };
        self.pauses >> shift
    }

    /// Yields once, and finds out whether there is a crowd. False if the next poll is the last one.
    fn yields(&mut self, polls: &mut Polls) -> bool {
        let (before_ns, took_ns) = self.yield_once();
        if polls.yielding_since_ns == 0 {
            polls.yielding_since_ns = before_ns.max(1);
            if self.has_yielded {
                // The last wait that yielded did not sleep.
                self.backoff = 0;
            }
            self.has_yielded = true;
        }
        if took_ns > HOG_NS {
            // Even if the message came meanwhile: a thread that is woken gets it sooner.
            self.back_off();
        }
        self.is_crowded && before_ns + took_ns - polls.yielding_since_ns < polls.limit_ns
    }

    /// Pauses for about `time_ns` without a poll, so that a sender that streams gets ahead; `next` is the number of the
    /// message that is waited for. Returns about how long that took. Only an adaptive wait does this, while it makes the
    /// stream faster, and not if `is_peer_here`, nor where others need the processor, who use the time better: a yield in
    /// few of these pauses finds that out.
    #[inline]
    pub(crate) fn let_ahead(
        &mut self,
        time_ns: u64,
        next: u64,
        is_peer_here: impl FnOnce() -> bool,
    ) -> u64 {
        if self.wait != Wait::Adaptive {
            return 0;
        }
        let Self { trial, linux, .. } = self;
        trial.note(next, || linux.now_ns());
        if time_ns == 0 || !trial.gives() || self.is_crowded || is_peer_here() {
            return 0;
        }
        if self.left_out > 0 {
            self.left_out -= 1;
            return 0;
        }
        let mut yielded_ns = 0;
        // In a small ring a yield takes longer than all head starts together.
        if self.until_yield == 0 && time_ns > SWITCH_NS {
            (_, yielded_ns) = self.yield_once();
            self.until_yield = HEAD_STARTS_PER_YIELD;
            if yielded_ns > HOG_NS {
                // Others compute: a yield costs this thread their time slice.
                self.back_off();
                self.left_out = BACKOFF_MAX;
                self.trial.leave_out(yielded_ns);
            }
            if yielded_ns > HOG_NS || self.is_crowded {
                return yielded_ns;
            }
        }
        self.until_yield = self.until_yield.saturating_sub(1);
        pause_for(time_ns.saturating_sub(yielded_ns));
        time_ns.max(yielded_ns)
    }

    /// Yields once, and finds out whether there is a crowd. Returns when it began, and how long it took.
    fn yield_once(&mut self) -> (u64, u64) {
        let before_ns = self.linux.now_ns();
        self.linux.yield_now();
        let took_ns = self.linux.now_ns() - before_ns;
        let is_switch = took_ns > SWITCH_NS.max(SHORTEST_YIELDS * self.shortest_ns);
        self.shortest_ns = self.shortest_ns.min(took_ns);
        self.alone = if is_switch { 0 } else { self.alone.saturating_add(1) };
        self.is_crowded =
            took_ns <= HOG_NS && (is_switch || self.is_crowded && self.alone < ALONE_YIELDS);
        self.choose_bare_polls();
        (before_ns, took_ns)
    }

    /// To be called when a wait has ended without a sleep.
    pub(crate) fn found(&mut self) {
        self.in_vain = 0;
    }

    #[cfg(test)]
    pub(crate) const fn has_let_ahead(&self) -> bool {
        self.until_yield > 0
    }

    /// Sleeps, in a wait for a message of a channel.
    pub(crate) fn sleep(&mut self, sleep: impl FnOnce()) {
        self.sleeps();
        let before_ns = self.linux.now_ns();
        sleep();
        self.trial.leave_out(self.linux.now_ns() - before_ns);
    }

    /// To be called before a sleep.
    #[inline]
    pub(crate) fn sleeps(&mut self) {
        self.in_vain = self.in_vain.wrapping_add(1);
        self.handling = 0;
        self.gives_up();
    }

    /// To be called when the time of a wait is over.
    pub(crate) fn gives_up(&mut self) {
        if self.has_yielded {
            self.back_off();
        }
    }

    /// Makes the next waits sleep without a yield: twice as many as the last time.
    fn back_off(&mut self) {
        self.has_yielded = false;
        self.is_crowded = false;
        self.choose_bare_polls();
        self.backoff = (2 * self.backoff).clamp(1, BACKOFF_MAX);
        self.skips = self.backoff;
    }
}

/// Number of pauses that an adaptive wait makes before it sleeps. Together with the polls between them they take as
/// long as a wake-up costs on this machine, or as was found best there.
fn adaptive_pauses() -> u32 {
    #[expect(clippy::cast_precision_loss, reason = "at most a millisecond")]
    match tuning().tuning.spin_ns() {
        Some(ns) => pauses_of(ns as f64),
        None => pauses_of(wake_up_ns()).clamp(16, 16_384),
    }
}

/// Number of pauses that take so long, together with the polls between them.
fn pauses_of(time_ns: f64) -> u32 {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a short time")]
    let pauses = (time_ns / (pause_ns() + POLL_NS)) as u32;
    pauses
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Polls until it is time to sleep. True if that included a yield.
    fn polls_out(poller: &mut Poller, limit_ns: u64) -> bool {
        let mut polls = Polls::within(limit_ns);
        while poller.may_poll(&mut polls, || false) {}
        polls.has_yielded()
    }

    // Keeps P257.
    #[test]
    fn a_head_start_is_given_by_adaptive_waits_alone_and_few_yield() {
        for wait in [Wait::Spin, Wait::Park] {
            assert_eq!(Poller::for_messages(wait).let_ahead(u64::MAX, 0, || false), 0, "{wait:?}");
        }
        let mut poller = Poller::for_messages(Wait::Adaptive);
        assert_eq!(poller.let_ahead(u64::MAX, 0, || true), 0, "the sender cannot run");
        assert_eq!(poller.let_ahead(0, 0, || false), 0);
        assert_eq!(poller.let_ahead(SWITCH_NS, 0, || false), SWITCH_NS);
        assert_eq!(poller.shortest_ns, u64::MAX / SHORTEST_YIELDS, "a yield takes longer");
        let mut yields = 0;
        for _ in 0..10 * HEAD_STARTS_PER_YIELD {
            yields += u32::from(poller.until_yield == 0 && !poller.is_crowded);
            poller.let_ahead(SWITCH_NS + 1, 0, || false);
        }
        assert!((1..=10).contains(&yields), "{yields}");
    }

    #[test]
    fn a_wait_without_time_never_yields() {
        let mut poller = Poller::for_messages(Wait::Adaptive);
        assert!((0..100).all(|_| !polls_out(&mut poller, 0)));
    }

    fn pauses_before_a_sleep(poller: &mut Poller) -> u32 {
        pauses_within(poller, u64::MAX)
    }

    fn pauses_within(poller: &mut Poller, limit_ns: u64) -> u32 {
        let mut polls = Polls::within(limit_ns);
        while poller.may_poll(&mut polls, || false) {}
        polls.paused
    }

    #[test]
    fn a_wait_after_a_large_message_polls_longer_once() {
        let mut poller = Poller::for_messages(Wait::Adaptive);
        let pauses = pauses_before_a_sleep(&mut poller);
        poller.expect_handling(HANDLING_MIN_BYTES - 1);
        assert_eq!(pauses_before_a_sleep(&mut poller), pauses);
        poller.expect_handling(1 << 20);
        // Only the longest message counts.
        poller.expect_handling(16 << 10);
        let more = pauses_of((1 << 20) as f64 * HANDLING_NS_PER_BYTE);
        assert_eq!(pauses_before_a_sleep(&mut poller), pauses + more);
        assert_eq!(pauses_before_a_sleep(&mut poller), pauses);
        poller.expect_handling(u64::MAX);
        poller.sleeps();
        assert_eq!(pauses_before_a_sleep(&mut poller), pauses, "a sleep ends it");
    }

    #[test]
    fn a_wait_with_little_time_polls_little_longer() {
        let mut poller = Poller::for_messages(Wait::Adaptive);
        let pauses = pauses_before_a_sleep(&mut poller);
        poller.expect_handling(4 << 20);
        for limit_ns in [0, 10_000, 50_000] {
            let most = pauses.max(pauses_of(limit_ns as f64));
            assert!(pauses_within(&mut poller, limit_ns) <= most, "{limit_ns} ns");
        }
    }

    #[test]
    fn only_adaptive_waits_poll_longer() {
        for wait in [Wait::Park, Wait::Spin] {
            let mut poller = Poller::for_messages(wait);
            poller.expect_handling(1 << 20);
            assert_eq!(poller.handling, 0);
        }
    }

    #[test]
    fn waits_that_yield_in_vain_are_followed_by_ever_more_that_do_not() {
        for ends in [Poller::sleeps, Poller::gives_up] {
            let mut poller = Poller::for_messages(Wait::Adaptive);
            let mut yields = Vec::new();
            for wait in 0..1 + 1 + 1 + 2 + 1 + 4 + 1 {
                if polls_out(&mut poller, 1_000_000) {
                    yields.push(wait);
                }
                ends(&mut poller);
            }
            assert_eq!(yields, [0, 2, 5, 10]);
        }
    }
}
