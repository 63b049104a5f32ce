//! The limit, slow and dead receivers, and waiting for room.
//!
//! Proofs: `proof/models/tests/models/ring.rs`, `proof/models/tests/models/shared.rs`, `proof/kill/src/shared.rs`.

use alloc::sync::Arc;

use corewire_layout::counters::SenderCounter;
use corewire_layout::segment::{DoorState, FenceMode, Policy, generation_of};
use corewire_layout::slot::{INLINE_BYTES_MAX, RUN_SLOTS_MAX, owner_of};

use super::{RowStall, Sender};
use crate::channel::{Slowest, Stall, lap};
use crate::doorbell::{self, Bell, Bells, Slept};
use crate::host::{Entrance, Party};
use crate::sync::Ordering::Relaxed;
use crate::{Control, Host, Kernel, fence_at, order};

/// If the membership changes during this many attempts of a refresh, the limit stays where it is.
const REFRESHES_MAX: u32 = 8;

impl<H: Host> Sender<H> {
    /// Reads the cursors, frees the room of what every receiver has read, and sets a new limit.
    #[inline(never)]
    pub fn refresh(&mut self) {
        self.publish_counters();
        self.pace.note(self.sent, || self.host.kernel().now_ns());
        let table = &self.roster.table;
        for _ in 0..REFRESHES_MAX {
            // ORDER(R1): pairs with T1; the rows that were counted before this epoch are visible.
            let epoch = table.members_epoch().load(order!(R1: Acquire));
            let slowest = self.find_slowest();
            // ORDER(R3): pairs with R4; a receiver that joins and is not counted here begins above
            // what these cursors allow. In addition, everything written from here on is written
            // after every eviction that was seen.
            fence_at!(R3: SeqCst);
            if table.members_epoch().load(Relaxed) != epoch {
                continue;
            }
            let read = slowest.map_or(self.tail, |slowest| slowest.cursor);
            self.slowest = slowest;
            self.window.free_before(read);
            self.large.free_before(read);
            let slots = self.roster.slots.count();
            let limit = match slowest {
                _ if self.shared.notices() != 0 || self.is_held() => 0,
                Some(slowest) => slowest.cursor.saturating_add(slots),
                // A receiver that joins begins at the first message not claimed then. The longest
                // run must fit, however small the ring is.
                None => self.tail + (slots / 8).max(RUN_SLOTS_MAX),
            };
            self.shared.limit().store(limit, Relaxed);
            return;
        }
    }

    /// The slowest of the receivers that count.
    fn find_slowest(&self) -> Option<Slowest> {
        let mut slowest: Option<Slowest> = None;
        for (who, state) in self.roster.held(Party::Receiver) {
            if state != DoorState::Joined {
                continue;
            }
            // ORDER(B4): pairs with B3; the receiver has finished reading before this sender writes
            // again.
            let cursor = self.roster.rows.cursor(who.row).load(order!(B4: Acquire));
            if slowest.is_none_or(|s| cursor < s.cursor) {
                slowest = Some(Slowest { row: who.row, cursor });
            }
        }
        slowest
    }

    /// Does the creator still wait for receivers that it invited? Not if it has died or left.
    #[must_use]
    pub fn is_held(&self) -> bool {
        match self.holder() {
            None => false,
            // Receivers that have not joined by now join like any other receiver.
            Some(_) if self.hold_left_ns() == 0 => false,
            Some(row) => {
                let tenure = self.roster.tenure(Party::Sender, row);
                let generation = generation_of(tenure);
                tenure == corewire_layout::segment::tenure(generation, DoorState::Joined)
                    && !self.roster.is_dead(Party::Sender, Entrance { row, generation })
            }
        }
    }

    /// How long senders may still wait for receivers that the creator invited.
    #[must_use]
    pub fn hold_left_ns(&self) -> u64 {
        let until_ns = self.roster.ring.held_until().load(Relaxed);
        until_ns.saturating_sub(self.host.kernel().now_ns())
    }

    /// The row of the creator, while it waits for receivers that it invited.
    fn holder(&self) -> Option<u32> {
        // ORDER(T2): pairs with T1; invited receivers that have joined are counted.
        let held = self.roster.ring.held().load(order!(T2: Acquire));
        held.checked_sub(1).filter(|&row| u64::from(row) < self.roster.geometry.senders_max())
    }

    /// Could a message of `bytes` bytes be sent now, as far as this sender can see?
    #[must_use]
    pub fn has_room(&self, bytes: usize) -> bool {
        let area = if self.is_window(bytes) { &self.window } else { &self.large };
        let fits = bytes <= INLINE_BYTES_MAX || area.find(bytes as u64).is_some();
        fits && self.can_claim()
    }

    /// Has every receiver read everything that this sender sent, as of the last refresh?
    #[must_use]
    pub fn is_drained(&self) -> bool {
        self.slowest.is_none_or(|slowest| slowest.cursor >= self.sent_end)
    }

    /// Makes the kernel report the death of every sender and receiver that holds this sender up.
    /// Must be called when there is no room.
    pub fn watch_whom_we_wait_for(&self) {
        let watch = |party, row| {
            if row >= self.roster.rows_max(party) {
                return;
            }
            let tenure = self.roster.tenure(party, row);
            let who = Entrance { row, generation: generation_of(tenure) };
            if tenure != corewire_layout::segment::tenure(who.generation, DoorState::Free)
                && !self.roster.is_dead(party, who)
            {
                self.host.control().watch(party, who, self.roster.door(party, row).socket());
            }
        };
        if let Some(slowest) = self.slowest {
            watch(Party::Receiver, slowest.row);
        }
        if let Some(row) = self.holder() {
            watch(Party::Sender, row);
        }
        let run = self.wanted;
        for sequence in self.tail..self.tail + run {
            let old = self.roster.slots.at(sequence).stamp().load(Relaxed);
            if old != 0 && !self.is_slot_over(old) {
                watch(Party::Sender, owner_of(old));
            }
        }
    }

    /// Removes the slowest receiver if it is known to be dead. Returns true if it is.
    pub fn remove_dead(&self) -> bool {
        let Some(slowest) = self.slowest else { return false };
        let generation = generation_of(self.roster.tenure(Party::Receiver, slowest.row));
        let who = Entrance { row: slowest.row, generation };
        let is_dead = self.roster.is_dead(Party::Receiver, who);
        if is_dead && self.roster.vacate(Party::Receiver, who, &self.host) {
            self.roster.table.count(corewire_layout::counters::ControlCounter::Deaths);
        }
        is_dead
    }

    /// Under `Evict`: evicts the receivers that, at `now_ns`, have held this sender back for the
    /// allowed time. Returns true if any receiver was evicted.
    pub fn evict_stalled(&mut self, bytes: usize, now_ns: u64) -> bool {
        let Policy::Evict { after_ns } = self.policy else { return false };
        let area = if self.is_window(bytes) { &self.window } else { &self.large };
        let run = self.wanted;
        let slot_wanted = (self.tail + run).saturating_sub(self.roster.slots.count());
        let is_inline = bytes <= INLINE_BYTES_MAX;
        let area_wanted = area.oldest().filter(|_| !is_inline).map_or(0, |oldest| oldest + 1);
        let wanted = slot_wanted.max(area_wanted);
        let lap = lap(&self.roster.geometry);
        let mut has_evicted = false;
        self.patience_left_ns = u64::MAX;
        for (who, state) in self.roster.held(Party::Receiver) {
            let Some(row) = self.stalls.get_mut(who.row as usize) else { continue };
            if row.generation != who.generation {
                *row = RowStall { generation: who.generation, stall: Stall::default() };
            }
            let cursor = self.roster.rows.cursor(who.row).load(Relaxed);
            let is_holding = state == DoorState::Joined && cursor < wanted;
            row.stall.charge(now_ns, (cursor, self.tail), lap, is_holding);
            match row.stall.left_ns(after_ns) {
                _ if !is_holding => {}
                0 => has_evicted |= self.roster.evict(who, &self.host),
                left_ns => self.patience_left_ns = self.patience_left_ns.min(left_ns),
            }
        }
        self.has_stalls = true;
        has_evicted
    }

    /// Resets the stall times of slow receivers: the sender has room again.
    pub fn forget_stalls(&mut self) {
        if core::mem::take(&mut self.has_stalls) {
            let now_ns = self.host.kernel().now_ns();
            self.stalls.iter_mut().for_each(|row| row.stall.pause(now_ns));
        }
    }

    /// How long this sender may wait before it must look for receivers to evict, as of the last call
    /// of [`Sender::evict_stalled`].
    #[must_use]
    pub fn patience_left_ns(&self) -> u64 {
        self.patience_left_ns
    }

    /// Sets the limit on each sleep, in ns. Default: [`SLEEP_CAP_NS`](doorbell::SLEEP_CAP_NS).
    pub fn set_sleep_cap(&mut self, cap_ns: u64) {
        self.sleeper.set_cap(cap_ns);
    }

    /// Sleeps until there may be room, a notice arrives, or `limit_ns` or the cap has passed; then
    /// refreshes. `ready` checks the awaited condition. If only the cap's end showed that it holds,
    /// that is counted.
    pub fn sleep_until(&mut self, limit_ns: u64, ready: impl Fn(&Self) -> bool) {
        self.sleep(limit_ns, Self::waits_for_stamp, ready);
    }

    /// As [`Sender::sleep_until`], for a caller that waits until receivers have read, independently
    /// of other senders.
    pub fn sleep_until_read(&mut self, limit_ns: u64, ready: impl Fn(&Self) -> bool) {
        self.sleep(limit_ns, |_| false, ready);
    }

    /// Is it a slot claimed by another sender that holds this sender back? Then this sender waits
    /// for the slot's stamp, as a receiver does.
    fn waits_for_stamp(&self) -> bool {
        self.is_below_limit() && !self.can_claim()
    }

    fn sleep(
        &mut self,
        limit_ns: u64,
        waits_for_stamp: impl Fn(&Self) -> bool,
        ready: impl Fn(&Self) -> bool,
    ) {
        let own = doorbell::listen(self.shared.own());
        let roster = self.roster.clone();
        self.refresh();
        let for_stamp = waits_for_stamp(self);
        let word = if for_stamp { roster.ring.bell() } else { roster.table.room() };
        let heard = doorbell::listen(word);
        let is_sure = if for_stamp {
            roster.table.sleepers().fetch_add(1, Relaxed);
            // A process without barriers of its own cannot tell the other senders to fence.
            let is_fenced = self.shared.is_fenced();
            doorbell::barrier(FenceMode::Asymmetric, self.host.kernel()) && !is_fenced
        } else {
            roster.ring.blocked().fetch_add(1, Relaxed);
            // A receiver that stores a cursor from here on checks `blocked` afterwards, and the
            // refresh sees a cursor stored before.
            doorbell::barrier(FenceMode::Fenced, self.host.kernel())
        };
        self.watch_whom_we_wait_for();
        self.refresh();
        let is_same = waits_for_stamp(self) == for_stamp;
        if is_same && !ready(self) && self.shared.notices() == 0 && !self.remove_dead() {
            self.add(SenderCounter::Sleeps, 1);
            let shared = Arc::clone(&self.shared);
            let bells = Bells {
                shared: Some(Bell { word, heard }),
                own: Some(Bell { word: shared.own(), heard: own }),
            };
            let slept = self.sleeper.sleep(bells, limit_ns, is_sure, self.host.kernel());
            let is_found = slept != Slept::Woken && {
                self.refresh();
                ready(self)
            };
            if self.sleeper.is_cap_find(slept, bells, is_found) {
                self.add(SenderCounter::CapFinds, 1);
            }
        }
        self.remove_dead();
        self.refresh();
    }
}
