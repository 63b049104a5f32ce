//! What a receiver of a shared channel does beyond a receiver of one sender, all of it on slow
//! paths: it passes what dead senders had claimed, counts itself among the sleepers, wakes senders
//! that wait for room, and detects that no sender is left.
//!
//! Proofs: `proof/models/tests/models/policies.rs`, `proof/models/tests/models/shared.rs`, `proof/kill/src/shared.rs`.

use corewire_layout::segment::{DoorState, generation_of, tenure};
use corewire_layout::slot::{RUN_SLOTS_MAX, ahead_of, is_claimed, owner_of, publishes, run_of};

use super::roster::Roster;
use crate::channel::End;
use crate::host::{Entrance, Party};
use crate::sync::{AtomicU32, Ordering::Relaxed};
use crate::{Control, Host, fence_at, order};

/// The additional parts of a shared channel's receiver.
#[derive(Debug)]
pub struct ManyParts {
    /// The channel's senders and receivers.
    pub roster: Roster,
    /// This receiver's row.
    pub entrance: Entrance,
}

impl ManyParts {
    /// As [`Many::is_evicted`].
    pub(crate) fn is_evicted(&self) -> bool {
        is_evicted(&self.roster, self.entrance)
    }

    /// The word that changes when a sender begins to wait for room.
    pub(crate) fn blocked(&self) -> &AtomicU32 {
        self.roster.ring.blocked()
    }

    /// Wakes the senders that wait for room.
    pub(crate) fn make_room<H: Host>(&self, host: &H) {
        self.roster.make_room(host);
    }

    /// The first message of the run that contains message `sequence`, or that message. The cursor must not have passed
    /// the message; otherwise the result is any message up to it.
    pub(crate) fn claim_start(&self, sequence: u64) -> u64 {
        let before = (1..RUN_SLOTS_MAX).map_while(|back| sequence.checked_sub(back));
        let mut starts = before.filter(|&first| {
            let stamp = self.roster.slots.at(first).stamp().load(Relaxed);
            ahead_of(stamp, first) == 0 && first + run_of(stamp) > sequence
        });
        starts.next().unwrap_or(sequence)
    }
}

/// A receiver's view of many senders.
#[derive(Debug)]
pub struct Many {
    roster: Roster,
    entrance: Entrance,
    /// The run that is being passed: its first message, the one after its last, and its owner's
    /// row.
    run_first: u64,
    run_end: u64,
    run_owner: u32,
    /// The word *blocked* as last served.
    blocked_seen: u32,
    /// The `senders_epoch` whose senders are watched.
    watched_epoch: Option<u32>,
}

impl Many {
    /// The view of a receiver that has just joined.
    #[must_use]
    pub fn new(parts: ManyParts) -> Self {
        let ManyParts { roster, entrance } = parts;
        let blocked = roster.ring.blocked().load(Relaxed);
        Self {
            roster,
            entrance,
            run_first: 0,
            run_end: 0,
            run_owner: 0,
            // A sender that waits already must be woken by the first cursor.
            blocked_seen: blocked.wrapping_sub(1),
            watched_epoch: None,
        }
    }

    /// Records the run that message `sequence`, with this stamp, begins, if it begins one.
    #[inline]
    pub(crate) fn note(&mut self, sequence: u64, stamp: u64) {
        if run_of(stamp) > 1 {
            self.run_first = sequence;
            self.run_end = sequence + run_of(stamp);
            self.run_owner = owner_of(stamp);
        }
    }

    /// The cursor to publish when `next` is the next message. It does not move inside a run, whose
    /// first stamp says how far the run goes.
    pub(crate) fn cursor_at(&self, next: u64) -> u64 {
        if next < self.run_end { self.run_first } else { next }
    }

    /// Is message `next` abandoned: will it never be published, because its claimer is dead? Must
    /// be called while its stamp is not there.
    pub(crate) fn is_abandoned(&mut self, next: u64) -> bool {
        let slot = self.roster.slots.at(next);
        // ORDER(C4): pairs with R3; the door loaded next is the claimer's, not that of an earlier
        // holder.
        let stamp = slot.stamp().load(order!(C4: Acquire));
        let owner = match ahead_of(stamp, next) {
            0 if is_claimed(stamp) => owner_of(stamp),
            ..0 if next < self.run_end => self.run_owner,
            _ => return false,
        };
        if !self.roster.is_owner_dead(owner) {
            return false;
        }
        // Load it once more: it may have been published before its owner died.
        if slot.stamp().load(Relaxed) != stamp {
            return false;
        }
        if ahead_of(stamp, next) == 0 {
            // An older stamp may be that of the first slot of a run, one lap ago.
            self.note(next, stamp);
        }
        true
    }

    /// Could [`Self::is_abandoned`] or [`Self::end`] now give another answer for message `next`?
    pub(crate) fn may_pass(&self, next: u64) -> bool {
        let stamp = self.roster.slots.at(next).stamp().load(Relaxed);
        let owner = match ahead_of(stamp, next) {
            0 if is_claimed(stamp) => Some(owner_of(stamp)),
            ..0 if next < self.run_end => Some(self.run_owner),
            _ => None,
        };
        match owner {
            Some(owner) => self.roster.is_owner_dead(owner),
            None => self.end(next).is_some(),
        }
    }

    /// Makes the kernel report the death of every existing sender, if any sender has joined since
    /// the last call.
    pub(crate) fn watch_new_senders<H: Host>(&mut self, host: &H) {
        if self.has_new_senders() {
            self.watch_senders(host);
        }
    }

    /// Makes the kernel report the death of every existing sender. Must be called before each
    /// sleep, whatever the epoch says: a host may have died after storing a new sender's door and
    /// before changing the epoch, and the new sender may have died after that.
    pub(crate) fn watch_senders<H: Host>(&mut self, host: &H) {
        // ORDER(T2): pairs with T1; the doors of the senders that joined with this epoch are
        // visible.
        let epoch = self.roster.ring.senders_epoch().load(order!(T2: Acquire));
        self.watched_epoch = Some(epoch);
        for (who, _) in self.roster.held(Party::Sender) {
            if !self.roster.is_dead(Party::Sender, who) {
                let socket = self.roster.door(Party::Sender, who.row).socket();
                host.control().watch(Party::Sender, who, socket);
            }
        }
    }

    /// Has a sender joined that is not watched yet?
    pub(crate) fn has_new_senders(&self) -> bool {
        self.watched_epoch != Some(self.roster.ring.senders_epoch().load(Relaxed))
    }

    /// Counts this receiver among the sleepers. A barrier must follow.
    pub(crate) fn announce(&self) {
        self.roster.table.sleepers().fetch_add(1, Relaxed);
    }

    /// Wakes senders that wait for room, if any began to wait since the last call. Must be called
    /// after a cursor was stored and a full fence. Returns true if senders were woken.
    pub(crate) fn make_room<H: Host>(&mut self, host: &H) -> bool {
        let blocked = self.roster.ring.blocked().load(Relaxed);
        let is_new = blocked != self.blocked_seen;
        if is_new {
            self.blocked_seen = blocked;
            self.roster.make_room(host);
        }
        is_new
    }

    /// Has this receiver been evicted? Called after a copy: if any of the copy belongs to a later
    /// message, the door says so.
    pub(crate) fn is_evicted(&self) -> bool {
        is_evicted(&self.roster, self.entrance)
    }

    /// The parts, for threads that release held messages.
    pub(crate) fn parts(&self) -> ManyParts {
        ManyParts { roster: self.roster.clone(), entrance: self.entrance }
    }

    /// Will no further message come? Must be called when message `next` is not there. One scan of the
    /// rows is not enough: a new sender may take a row that was already scanned, and the last old one
    /// may then leave a row that was not, so the scan sees no sender. Two scans must agree.
    pub(crate) fn end(&self, next: u64) -> Option<End> {
        if next < self.run_end {
            return None;
        }
        let first = self.look_at_senders()?;
        let second = self.look_at_senders()?;
        let stamp = self.roster.slots.at(next).stamp().load(Relaxed);
        // A message was claimed at the last moment: it will be published or abandoned.
        let has_more = publishes(stamp, next) || ahead_of(stamp, next) >= 0;
        (first == second && !has_more).then_some(first.1)
    }

    /// If no sender is alive: a digest of the holders of all rows, and how the channel ended.
    fn look_at_senders(&self) -> Option<(u64, End)> {
        let mut end = End::Closed;
        let mut digest = 0u64;
        let rows = u32::try_from(self.roster.geometry.senders_max()).unwrap_or(u32::MAX);
        for row in 0..rows {
            let found = self.roster.tenure(Party::Sender, row);
            digest = digest.wrapping_mul(0x100_0000_01b3).wrapping_add(found);
            let who = Entrance { row, generation: generation_of(found) };
            if found == tenure(who.generation, DoorState::Free) {
                continue;
            }
            if !self.roster.is_dead(Party::Sender, who) {
                return None;
            }
            end = End::SenderGone;
        }
        Some((digest, end))
    }

    /// Gives up this receiver's row.
    pub(crate) fn leave<H: Host>(&self, host: &H) {
        self.roster.vacate(Party::Receiver, self.entrance, host);
    }
}

fn is_evicted(roster: &Roster, entrance: Entrance) -> bool {
    // ORDER(E2): pairs with R3 and E1; the door is loaded after the copied words.
    fence_at!(E2: Acquire);
    let held = tenure(entrance.generation, DoorState::Joined);
    roster.table.door(entrance.row).tenure().load(Relaxed) != held
}
