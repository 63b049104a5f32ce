//! Sleeping until a message or room comes, and arming the descriptor.
//!
//! An endpoint makes all its pairs cold, announces its sleep, makes every core pass a barrier (W6) and checks once more.
//! Then it waits on its doorbell alone. Peers ring the doorbell for messages and for room, its own process for notices.
//! Arming the descriptor announces the sleep in the same way. One word says both that the endpoint waits for room and
//! how to wake it.

use corewire_layout::counters::EndpointCounter;
use corewire_layout::endpoint::blocked;
use corewire_layout::segment::{FenceMode, SleepMode};

use super::Endpoint;
use crate::doorbell::{self, Bell, Bells, Slept};
use crate::pair::inbox::Heat;
use crate::sync::Ordering::Relaxed;
use crate::{Host, Kernel};

impl<H: Host> Endpoint<H> {
    /// Sleeps until a message or room comes, a notice is given, or `limit_ns` or the cap has passed; may return early.
    /// `has_room` makes room, and says whether there is room now for what the caller has to send; `None` if it has
    /// nothing to send. A message that only the cap's end found is counted.
    pub fn sleep(
        &mut self,
        limit_ns: u64,
        mut has_room: Option<&mut dyn FnMut(&mut Self) -> bool>,
    ) {
        self.publish_cursors();
        let heard = doorbell::listen(self.activity.doorbell());
        if has_room.is_some() {
            self.block(SleepMode::Futex);
        }
        let is_sure = self.announce(SleepMode::Futex);
        let must_look = self.must_look(is_sure) || has_room.as_mut().is_some_and(|it| it(self));
        if !must_look {
            self.publish_counters();
            self.count(EndpointCounter::Sleeps);
            let bell = Bell { word: self.activity.doorbell(), heard };
            let bells = Bells { shared: Some(bell), own: None };
            let slept = self.sleeper.sleep(bells, limit_ns, is_sure, self.host.kernel());
            // A message that came during a sleep of which its sender may not have learned can lack its bit.
            let is_found = slept != Slept::Woken
                && (self.activity.summary().load(Relaxed) != 0
                    || self.cooling.iter().any(|&row| self.is_ready(row)));
            if self.sleeper.is_cap_find(slept, bells, is_found) {
                self.count(EndpointCounter::CapFinds);
            }
        }
        self.retract();
    }

    /// Announces that it is about to wait for its descriptor. Returns false, and retracts that, if there is work
    /// already.
    pub fn arm(&mut self, mut has_room: Option<&mut dyn FnMut(&mut Self) -> bool>) -> bool {
        self.publish_cursors();
        // From an earlier wait.
        self.unblock();
        if has_room.is_some() {
            self.block(SleepMode::Descriptor);
        }
        let is_sure = self.announce(SleepMode::Descriptor);
        if self.must_look(is_sure) || has_room.as_mut().is_some_and(|it| it(self)) {
            self.retract();
            return false;
        }
        self.count(EndpointCounter::Sleeps);
        true
    }

    /// Whether an announcement stands: a thread may be waiting for the descriptor.
    #[inline]
    #[must_use]
    pub fn is_announced(&self) -> bool {
        !self.sleeper.epoch().is_multiple_of(2)
    }

    /// Retracts an announcement.
    pub fn retract(&mut self) {
        self.sleeper.retract(&self.memory.sleeping());
        self.unblock();
    }

    /// Stops waiting for room.
    fn unblock(&mut self) {
        if self.is_blocked {
            self.is_blocked = false;
            self.memory.blocked().store(0, Relaxed);
        }
    }

    /// Publishes that it waits for room. The barrier that follows makes sure that every peer that makes room sees it.
    fn block(&mut self, mode: SleepMode) {
        self.is_blocked = true;
        self.blocked_times = self.blocked_times.wrapping_add(1);
        self.memory.cpu().store(self.host.kernel().cpu(), Relaxed);
        self.memory.blocked().store(blocked(self.blocked_times, mode), Relaxed);
    }

    /// Makes senders announce every later message, and makes the epoch odd, which these senders see. False if the
    /// kernel could not guarantee that.
    fn announce(&mut self, mode: SleepMode) -> bool {
        while let Some(row) = self.watch.next_hot() {
            self.cool(row);
        }
        self.watch.dismiss_guest();
        let sleeping = self.memory.sleeping();
        self.sleeper.retract(&sleeping);
        self.memory.mode().store(mode as u32, Relaxed);
        self.sleeper.announce(&sleeping);
        // A peer that stores a stamp, bit or cursor later sees that the pair is cold, the epoch and its mode, and
        // whether this endpoint waits for room. A sender that already knows that it must announce its messages
        // fences after each bit.
        let is_fenced = self.cooling.is_empty();
        let wakers = if is_fenced { FenceMode::Fenced } else { self.fence_mode };
        doorbell::barrier(wakers, self.host.kernel())
    }

    /// Is there any reason not to sleep? After a barrier, pairs that cooled are cold.
    fn must_look(&mut self, is_sure: bool) -> bool {
        let ready = self.cooling.iter().copied().find(|&row| self.is_ready(row));
        if let Some(row) = ready {
            self.enqueue(row);
        } else if is_sure {
            while let Some(row) = self.cooling.pop() {
                if let Some(peer) = self.peer_mut(row) {
                    peer.inbox.heat = Heat::Cold;
                }
            }
        }
        !self.queue.is_empty()
            || self.activity.summary().load(Relaxed) != 0
            || self.shared.notices() != 0
    }
}
