//! The end of a channel, and sleeping.
//!
//! Proofs: `proof/models/tests/models/ring.rs`, `proof/kill/src/broadcast.rs`.

use corewire_layout::counters::ReceiverCounter;
use corewire_layout::segment::{FenceMode, HINT, Policy, SleepMode};
use corewire_layout::slot::ahead_of;

use super::Receiver;
use crate::broadcast::words::add;
use crate::channel::{End, Violation};
use crate::doorbell::{self, Bell, Bells, Slept, notice};
use crate::sync::Ordering::Relaxed;
use crate::{Host, Kernel, fence_at, order};

impl<H: Host> Receiver<H> {
    /// Has the channel ended for this receiver? Must be called when [`Receiver::is_ready`] returns
    /// false.
    ///
    /// # Errors
    /// A [`Violation`] if the sender closed the channel after messages that are not there.
    pub fn end(&mut self) -> Result<Option<End>, Violation> {
        if self.many.is_some() {
            return Ok(self.end_of_many());
        }
        // The order of these loads matters: a sender closes the channel before it hangs up, so a
        // receiver that was notified of the hang-up finds the channel closed, and then finds the
        // last stamps.
        let notices = self.shared.notices();
        let closed = self.sender.closed().load(Relaxed);
        // ORDER(B9): pairs with B8; the last stamps are visible once the end is.
        fence_at!(B9: Acquire);
        if matches!(self.policy, Policy::Evict { .. }) && self.is_evicted() {
            return Ok(Some(End::Evicted));
        }
        if self.is_ready() || self.is_behind() {
            return Ok(None);
        }
        if closed != 0 {
            let sequence = self.next;
            return match closed - 1 {
                last if last == self.next => Ok(Some(End::Closed)),
                last => Err(Violation { word: "closed", found: last, sequence }),
            };
        }
        if notices & notice::PEER_GONE == 0 {
            return Ok(None);
        }
        // A receiver that was dropped for an impossible value also gets `Evicted`.
        Ok(Some(if self.is_evicted() { End::Evicted } else { End::SenderGone }))
    }

    /// As [`Receiver::end`] for a shared channel: passes what dead senders had claimed, and ends
    /// when no sender is left.
    fn end_of_many(&mut self) -> Option<End> {
        // Under `Block`, too: another process may have been told that this receiver is dead.
        if self.many.as_ref().is_some_and(|many| many.is_evicted()) {
            return Some(End::Evicted);
        }
        let has_passed = self.pass_abandoned();
        if let Some(many) = &mut self.many {
            many.watch_new_senders(&self.host);
        }
        if has_passed || self.is_ready() {
            return None;
        }
        self.many.as_ref().and_then(|many| many.end(self.next))
    }

    /// Passes messages that will never come, because the sender that had claimed them is dead. Must
    /// be called while the next message is not there. Returns false if there were none.
    fn pass_abandoned(&mut self) -> bool {
        let mut has_passed = false;
        while let Some(many) = &mut self.many
            && many.is_abandoned(self.next)
        {
            self.next += 1;
            self.abandoned += 1;
            has_passed = true;
        }
        has_passed
    }

    /// Gives up the row if the channel is shared. In other channels, a `Leave` frame tells the
    /// owner instead.
    pub fn leave(&self) {
        if let Some(many) = &self.many {
            many.leave(&self.host);
        }
    }

    /// Continues to read without a row, in the ring of a sender that is gone: this receiver no
    /// longer counts as evicted.
    pub fn look_on(&mut self) {
        self.tenure = self.sender.door_tenure(self.row).load(Relaxed);
    }

    /// Sets the limit on each sleep, in ns. Default: [`SLEEP_CAP_NS`](doorbell::SLEEP_CAP_NS).
    pub fn set_sleep_cap(&mut self, cap_ns: u64) {
        self.sleeper.set_cap(cap_ns);
    }

    /// Sleeps until the next message is there, the channel ends, a notice arrives, or `limit_ns` or
    /// the cap has passed. May return early. A message found only because the cap ended the sleep
    /// is counted.
    pub fn sleep(&mut self, limit_ns: u64) {
        self.publish_cursor();
        let own = doorbell::listen(self.shared.own());
        if let Some(many) = &mut self.many {
            many.watch_senders(&self.host);
        }
        let bell = doorbell::listen(self.sender.bell());
        let is_sure = self.announce(SleepMode::Futex);
        if self.must_look() {
            add(self.own.counter(ReceiverCounter::NearSleeps), 1);
        } else {
            add(self.own.counter(ReceiverCounter::Sleeps), 1);
            let bells = Bells {
                shared: Some(Bell { word: self.sender.bell(), heard: bell }),
                own: Some(Bell { word: self.shared.own(), heard: own }),
            };
            let slept = self.sleeper.sleep(bells, limit_ns, is_sure, self.host.kernel());
            let is_found = slept != Slept::Woken && self.is_ready();
            if self.sleeper.is_cap_find(slept, bells, is_found) {
                add(self.own.counter(ReceiverCounter::CapFinds), 1);
            }
        }
        self.retract();
        self.own.cpu().store(self.host.kernel().cpu(), Relaxed);
    }

    /// Announces that this receiver is about to wait for its descriptor. If there is a reason not
    /// to wait, takes the announcement back and returns false.
    pub fn arm(&mut self) -> bool {
        self.publish_cursor();
        if let Some(many) = &mut self.many {
            many.watch_senders(&self.host);
        }
        // If the kernel gives no barrier, there is no cap to fall back on: a message in flight
        // during the join, or at this moment, is then noticed only together with the next one.
        let _ = self.announce(SleepMode::Descriptor);
        if self.must_look() {
            self.retract();
            return false;
        }
        add(self.own.counter(ReceiverCounter::Sleeps), 1);
        true
    }

    /// Takes the announcement of a sleep back.
    pub fn retract(&mut self) {
        self.sleeper.retract(self.own.sleeping());
    }

    /// Makes the epoch odd, so that the sender of every later stamp sees it. Returns false if the
    /// kernel could not guarantee that.
    fn announce(&mut self, mode: SleepMode) -> bool {
        self.retract();
        self.own.sleep_mode().store(mode as u32, Relaxed);
        self.sleeper.announce(self.own.sleeping());
        if let Some(many) = &self.many {
            many.announce();
        }
        if let Some(hint) = &self.hint {
            // ORDER(W10): pairs with W11; a sender that clears the hint sees the epoch.
            // Read-modify-write on both sides, since one swap clears the hints of many receivers.
            hint.word32(HINT).fetch_or(1, order!(W10: Release));
        }
        let is_sure = doorbell::barrier(self.fence_mode, self.host.kernel());
        is_sure && (self.fence_mode == FenceMode::Asymmetric || self.next >= self.settled)
    }

    /// Has the sender overtaken this receiver? Then there is something to receive, but not the next
    /// message.
    fn is_behind(&self) -> bool {
        let stamp = self.slots.at(self.next).stamp().load(Relaxed);
        self.policy == Policy::Overwrite && ahead_of(stamp, self.next) > 0
    }

    /// Is there any reason not to sleep? Only checks, and changes nothing.
    #[must_use]
    pub fn must_look(&self) -> bool {
        if let Some(many) = &self.many {
            return many.is_evicted()
                || self.is_ready()
                || many.has_new_senders()
                || many.may_pass(self.next)
                || self.shared.notices() != 0;
        }
        self.is_ready()
            || self.is_behind()
            || self.sender.closed().load(Relaxed) != 0
            || self.shared.notices() != 0
    }
}
