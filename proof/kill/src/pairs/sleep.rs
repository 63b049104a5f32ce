//! How an endpoint sleeps, and what it waits for.

use corewire_layout::endpoint::blocked;
use corewire_layout::segment::SleepMode;
use corewire_ring::message::Envelope;
use corewire_ring::pair::{Endpoint, Lending};
use corewire_ring::sync::Ordering::Relaxed;

use super::party::envelope_of;
use super::{IN_PLACE, Party, Role};
use crate::kernel::TurnKernel;

/// An endpoint that sleeps.
#[derive(Debug, Clone, Copy)]
pub(super) struct Asleep {
    pub(super) mode: SleepMode,
    pub(super) doorbell: u32,
    pub(super) wanted: Wanted,
}

/// What a sleeping endpoint waits for besides messages, and how far its peer was when the wait began.
#[derive(Debug, Clone, Copy)]
pub(super) enum Wanted {
    Nothing,
    /// Room in the ring toward a peer that had published this cursor.
    Room(Role, u64),
    /// A block for a peer that had released this number of messages.
    Block(Role, u64),
}

impl Party {
    /// Announces that it sleeps in this mode. Returns false if there is something to do.
    pub(super) fn fall_asleep(&mut self, mode: SleepMode, wanted: Wanted) -> bool {
        let doorbell = self.activity.doorbell().load(Relaxed);
        let is_armed = match wanted {
            Wanted::Nothing => self.arm(None),
            Wanted::Room(to, _) => self.arm(Some(to)),
            Wanted::Block(to, _) => {
                self.pairs.arm(Some(&mut |pairs: &mut Endpoint<TurnKernel>| is_block(pairs, to)))
            }
        };
        if is_armed {
            // A real call that sleeps stores these words too, and resets them before it returns.
            self.memory.mode().store(mode as u32, Relaxed);
            if !matches!(wanted, Wanted::Nothing) {
                self.memory.blocked().store(blocked(1, mode), Relaxed);
            }
            self.asleep = Some(Asleep { mode, doorbell, wanted });
        }
        is_armed
    }

    /// Announces that it waits for its descriptor.
    pub(super) fn arm(&mut self, room: Option<Role>) -> bool {
        match room {
            Some(to) => self.pairs.arm(Some(&mut |pairs| is_room(pairs, to, &envelope_of(0), 0))),
            None => self.pairs.arm(None),
        }
    }

    /// Sleeps. The kernel of these tests returns at once.
    pub(super) fn sleep(&mut self, room: Option<Role>) {
        match room {
            Some(to) => self
                .pairs
                .sleep(u64::MAX, Some(&mut |pairs| is_room(pairs, to, &envelope_of(0), 0))),
            None => self.pairs.sleep(u64::MAX, None),
        }
    }

    /// The same, until there is a block for a message to a peer.
    pub(super) fn sleep_for_block(&mut self, to: Role) {
        self.pairs.sleep(u64::MAX, Some(&mut |pairs| is_block(pairs, to)));
    }

    /// Wakes the endpoint up: it no longer sleeps.
    pub(super) fn wake_up(&mut self) {
        self.asleep = None;
        self.pairs.retract();
    }

    /// Makes room toward a peer for the last message to it, if there is any. Returns whether there is room.
    pub(super) fn make_room(&mut self, to: Role) -> bool {
        let last = (0u64..).zip(self.sent_to(to)).last();
        let (envelope, bytes) =
            last.map_or((envelope_of(0), 0), |(tag, last)| (envelope_of(tag), last.len() as u64));
        self.make_room_for(to, &envelope, bytes)
    }

    /// The same for one slot.
    pub(super) fn make_slot(&mut self, to: Role) -> bool {
        self.make_room_for(to, &envelope_of(0), 0)
    }

    fn make_room_for(&mut self, to: Role, envelope: &Envelope, bytes: u64) -> bool {
        let is_room = is_room(&mut self.pairs, to, envelope, bytes);
        if is_room && !self.pairs.has_ring(to.0) {
            return self.pairs.assign_ring(to.0);
        }
        is_room
    }
}

/// Whether there is room toward a peer, or a ring that can be assigned.
fn is_room(pairs: &mut Endpoint<TurnKernel>, to: Role, envelope: &Envelope, bytes: u64) -> bool {
    let own = "own memory";
    if pairs.has_ring(to.0) {
        return pairs.has_room(to.0, envelope, bytes).expect(own);
    }
    pairs.make_room(to.0).expect(own);
    if pairs.next_ring().is_none() {
        pairs.take_ring_back(to.0);
    }
    pairs.next_ring().is_some()
}

/// Whether there is a slot and a block for a message to a peer.
fn is_block(pairs: &mut Endpoint<TurnKernel>, to: Role) -> bool {
    is_room(pairs, to, &envelope_of(0), 0)
        && matches!(pairs.lending(to.0, IN_PLACE as u64), Lending::Done(()))
}
