//! The pairs that an endpoint polls, and their order. Private memory, except for the stamps that it loads.
//!
//! A pair that has had a message is *watched* while there is a place. A small record, its [`Head`], holds the address
//! of its next slot and the stamp expected there. The heads of hot pairs come first; every poll checks all of them.
//! Messages of the other pairs are announced as well. An endpoint that waits checks all of these pairs; an endpoint
//! that polls once checks a few, in turn. So a message from a pair that was silent for long is mostly found in its
//! slot, one line transfer after it was sent, while its sender is still announcing it.
//!
//! A pair without a place is checked, as a guest, when a bit names it.

use alloc::boxed::Box;
use alloc::vec;

use corewire_layout::pair::{STAMP_BELOW, pair_stamp_base};

use super::inbox::Inbox;
use super::words::EndpointMemory;
use super::{BURST_MAX, COLD_AFTER, HOT_KEPT, WATCHED_MAX};
use crate::region::{Slot, Walk};
use crate::sync::Ordering::Relaxed;

/// The row of an empty place.
const NOBODY: u32 = u32::MAX;
/// The guest's place.
pub(super) const GUEST: usize = WATCHED_MAX;
/// The place of a pair that is not watched.
const NOWHERE: u8 = u8::MAX;

/// Number of heads that are checked together, with no branch in between except on whether one is ready.
const GROUP: usize = if WATCHED_MAX < 4 { WATCHED_MAX } else { 4 };

/// The amount by which a stamp grows over the maximum number of slots of one turn.
const SHARE: u64 = pair_stamp_base(BURST_MAX) - pair_stamp_base(0);

const _: () = assert!(WATCHED_MAX < NOWHERE as usize);
const _: () = assert!(WATCHED_MAX.is_multiple_of(GROUP));

/// The pairs that are polled.
#[derive(Debug)]
pub(super) struct Watch {
    /// In this order: hot pairs, other pairs, unused places, the guest.
    heads: Box<[Head; WATCHED_MAX + 1]>,
    nobody: Head,
    hot: usize,
    count: usize,
    /// The place whose messages are being taken, and its expected stamp when its turn began.
    turn: usize,
    turn_began: u64,
    /// The next group to check, among those with a pair that is not hot.
    next: usize,
    /// The next place to check in this round.
    round_next: usize,
    /// A pair that is not hot had a message in this round.
    has_found: bool,
    /// The place of each row's head.
    places: Box<[u8]>,
}

impl Watch {
    /// For the endpoint of `memory`.
    pub(super) fn new(memory: &EndpointMemory) -> Self {
        let rows = usize::try_from(memory.sizes().peers_max()).unwrap_or(usize::MAX);
        let nobody = Head::nobody(memory);
        Self {
            heads: Box::new(core::array::from_fn(|_| nobody.clone())),
            nobody,
            hot: 0,
            count: 0,
            turn: GUEST,
            turn_began: 0,
            next: 0,
            round_next: 0,
            has_found: false,
            places: vec![NOWHERE; rows].into_boxed_slice(),
        }
    }

    /// The pair whose turn it is, if it has a message and has not used up its share, with the low part of its stamp.
    /// One load.
    #[inline(always)]
    pub(super) fn current(&mut self, polls: u64) -> Option<(&mut Head, u64)> {
        let head = &mut self.heads[self.turn];
        let below = head.below();
        // Another pair may have moved to this place: then the difference may be any number.
        let has_share = head.expected.wrapping_sub(self.turn_began) < SHARE;
        if below <= STAMP_BELOW && has_share {
            head.tick = polls;
            return Some((head, below));
        }
        None
    }

    /// Checks all hot pairs, starting after the current one, and up to `groups` groups of the others. Returns true if
    /// it is a pair's turn now.
    #[inline(always)]
    pub(super) fn turn_to_next(&mut self, groups: usize, polls: u64) -> bool {
        let Some(place) = self.next_ready(groups) else { return false };
        self.turn_to(place, polls);
        true
    }

    #[inline(always)]
    fn next_ready(&mut self, groups: usize) -> Option<usize> {
        let mut place = self.turn;
        for _ in 0..self.hot {
            place = if place + 1 < self.hot { place + 1 } else { 0 };
            if self.heads[place].is_ready() {
                return Some(place);
            }
        }
        if self.count > self.hot {
            let (first, end) = (self.hot / GROUP, self.count.div_ceil(GROUP));
            for _ in 0..groups.min(end - first) {
                let group = if (first..end).contains(&self.next) { self.next } else { first };
                self.next = group + 1;
                let heads = self.heads.as_chunks::<GROUP>().0.get(group)?;
                if let Some(place) = heads.iter().position(Head::is_ready) {
                    return Some(group * GROUP + place);
                }
            }
        }
        None
    }

    /// Checks the rest of this round until a pair is ready, whose turn it then is. False if no pair is left.
    #[inline]
    pub(super) fn turn_in_round(&mut self, polls: u64) -> bool {
        while self.round_next < self.count {
            self.round_next += 1;
            if self.heads[self.round_next - 1].is_ready() {
                self.turn_to(self.round_next - 1, polls);
                return true;
            }
        }
        false
    }

    /// Begins a round.
    #[inline]
    pub(super) fn begin_round(&mut self) {
        self.round_next = 0;
    }

    /// Gives the turn to the pair at `place`.
    #[inline(always)]
    pub(super) fn turn_to(&mut self, place: usize, polls: u64) {
        let head = &mut self.heads[place];
        head.tick = polls;
        head.is_found = true;
        self.has_found |= place >= self.hot;
        self.turn_began = head.expected;
        self.turn = place;
    }

    /// The head of the pair whose turn it is.
    #[inline(always)]
    pub(super) fn current_head(&mut self) -> &mut Head {
        &mut self.heads[self.turn]
    }

    /// The row of the pair that last had a message.
    #[inline]
    pub(super) fn current_row(&self) -> u32 {
        self.heads[self.turn].row()
    }

    /// Was a pair found that is not hot?
    #[inline(always)]
    pub(super) fn has_found(&self) -> bool {
        self.has_found
    }

    /// The place of `row`, if it is watched.
    #[inline]
    pub(super) fn place(&self, row: u32) -> Option<usize> {
        let place = *self.places.get(row as usize)?;
        (place != NOWHERE).then_some(place.into())
    }

    /// Watches `row`, which is not watched yet and whose position is that of `head`; as a guest if no place is left.
    /// Returns its place.
    #[inline]
    pub(super) fn seat(&mut self, row: u32, head: Head) -> usize {
        let place = if self.count < WATCHED_MAX { self.count } else { GUEST };
        if place == GUEST {
            self.dismiss_guest();
        } else {
            self.count += 1;
        }
        self.heads[place] = Head { row, ..head };
        self.note(place);
        place
    }

    /// Removes the guest.
    #[inline]
    pub(super) fn dismiss_guest(&mut self) {
        self.forget(GUEST);
    }

    /// Replaces the head of `row` with `head`, if `row` is watched.
    #[inline]
    pub(super) fn renew(&mut self, row: u32, head: Head) {
        if let Some(place) = self.place(row) {
            let Head { tick, is_found, .. } = self.heads[place];
            self.heads[place] = Head { row, tick, is_found, ..head };
        }
    }

    /// Stops watching `row`.
    #[inline]
    pub(super) fn remove(&mut self, row: u32) {
        let Some(place) = self.place(row) else { return };
        if place == GUEST {
            return self.dismiss_guest();
        }
        let place = self.chill(place);
        self.count -= 1;
        self.swap(place, self.count);
        self.forget(self.count);
    }

    /// Gives the turn to the pair at `place`, which need not have a message.
    #[inline]
    pub(super) fn visit(&mut self, place: usize) {
        self.turn_began = self.heads[place].expected;
        self.turn = place;
    }

    /// A head that is never ready.
    #[inline]
    pub(super) fn nobody(&self) -> Head {
        self.nobody.clone()
    }

    /// Makes one hot pair not hot, and returns its row.
    #[inline]
    pub(super) fn next_hot(&mut self) -> Option<u32> {
        let place = self.chill(self.hot.checked_sub(1)?);
        Some(self.heads[place].row)
    }

    /// Makes the next pair hot that had a message and is not hot.
    #[inline]
    pub(super) fn next_found(&mut self, polls: u64) -> Option<NewlyHot> {
        if !self.has_found {
            return None;
        }
        let found = |place: &usize| self.heads[*place].is_found;
        if let Some(place) = (self.hot..self.count).find(found) {
            return Some(self.heat(place));
        }
        self.has_found = false;
        if !self.heads[GUEST].is_found {
            return None;
        }
        self.heads[GUEST].is_found = false;
        let place = if self.count < WATCHED_MAX {
            self.count += 1;
            self.count - 1
        } else {
            let idlest = (0..self.count).min_by_key(|&place| self.heads[place].tick)?;
            self.is_idle(idlest, polls).then(|| self.chill(idlest))?
        };
        self.swap(place, GUEST);
        let left = self.heads[GUEST].row;
        self.dismiss_guest();
        Some(NewlyHot { left: (left != NOBODY).then_some(left), ..self.heat(place) })
    }

    /// Makes one hot pair not hot that has had no message for long, if there are more hot pairs than are kept.
    #[inline]
    pub(super) fn next_idle(&mut self, polls: u64) -> Option<u32> {
        if self.hot <= HOT_KEPT {
            return None;
        }
        let place = (0..self.hot).find(|&place| self.is_idle(place, polls))?;
        let place = self.chill(place);
        Some(self.heads[place].row)
    }

    #[inline]
    fn is_idle(&self, place: usize, polls: u64) -> bool {
        polls >= self.heads[place].tick + COLD_AFTER
    }

    /// Makes the pair at `place` hot.
    #[inline]
    fn heat(&mut self, place: usize) -> NewlyHot {
        self.heads[place].is_found = false;
        self.swap(place, self.hot);
        self.hot += 1;
        NewlyHot { row: self.heads[self.hot - 1].row, left: None }
    }

    /// Makes the pair at `place` not hot. Returns its new place.
    #[inline]
    fn chill(&mut self, place: usize) -> usize {
        if place >= self.hot {
            return place;
        }
        self.hot -= 1;
        self.heads[place].is_found = false;
        self.swap(place, self.hot);
        self.hot
    }

    #[inline]
    fn swap(&mut self, one: usize, other: usize) {
        self.heads.swap(one, other);
        for place in [one, other] {
            self.note(place);
        }
    }

    /// Records the place of the row at `place`.
    #[inline]
    fn note(&mut self, place: usize) {
        if let Some(entry) = self.places.get_mut(self.heads[place].row as usize) {
            *entry = u8::try_from(place).unwrap_or(NOWHERE);
        }
    }

    /// Empties `place`.
    #[inline]
    fn forget(&mut self, place: usize) {
        let head = core::mem::replace(&mut self.heads[place], self.nobody.clone());
        if let Some(entry) = self.places.get_mut(head.row as usize) {
            *entry = NOWHERE;
        }
    }
}

/// A pair that has become hot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NewlyHot {
    pub(super) row: u32,
    /// The row that it has displaced.
    pub(super) left: Option<u32>,
}

/// The address of a pair's next slot and the stamp expected there: all that a check needs. It must not outlive its
/// peer: the code that removes the peer removes the head.
#[derive(Debug, Clone)]
pub(super) struct Head {
    walk: Walk,
    /// The stamp, without the bits that describe the slot's content.
    expected: u64,
    /// The poll that last found a message.
    tick: u64,
    row: u32,
    is_found: bool,
}

impl Head {
    /// A head that is never ready.
    #[inline]
    fn nobody(memory: &EndpointMemory) -> Self {
        let slots = memory.slots(0).expect("an endpoint has a ring");
        // SAFETY: the endpoint's own memory, which it keeps.
        let walk = unsafe { Walk::new(&slots, 0) };
        // No slot has such a stamp: a ring never gets to that position.
        Self { walk, expected: !STAMP_BELOW, tick: 0, row: NOBODY, is_found: false }
    }

    /// The current position of the pair. `None` if it has no ring, or is held.
    #[inline]
    pub(super) fn of(inbox: &Inbox) -> Option<Self> {
        let position = inbox.next();
        // SAFETY: the inbox keeps the peer's memory, in which all its rings lie. It lives until its peer is removed, which
        // only `Peers::remove` does, and that forgets the head. No other function takes a peer out of its row.
        let walk = unsafe { Walk::new(inbox.slots()?, position) };
        let expected = pair_stamp_base(position);
        let head = Self { walk, expected, tick: 0, row: NOBODY, is_found: false };
        (!inbox.is_held).then_some(head)
    }

    /// Its row.
    #[inline(always)]
    pub(super) fn row(&self) -> u32 {
        self.row
    }

    /// The slot of its next message.
    #[inline(always)]
    pub(super) fn slot(&self) -> Slot<'_> {
        self.walk.slot()
    }

    /// The low part of the stamp, which describes the content; more than [`STAMP_BELOW`] if there is none. One load.
    #[inline(always)]
    fn below(&self) -> u64 {
        self.walk.slot().stamp().load(Relaxed) ^ self.expected
    }

    /// Is there a message?
    #[inline(always)]
    fn is_ready(&self) -> bool {
        self.below() <= STAMP_BELOW
    }

    /// Is `position` its position?
    #[inline(always)]
    pub(super) fn is_at(&self, position: u64) -> bool {
        self.expected == pair_stamp_base(position)
    }

    /// Moves one slot forward, to the inbox's current position.
    #[inline(always)]
    pub(super) fn step(&mut self, position: u64) {
        self.walk.go_to(position);
        self.expected = self.expected.wrapping_add(STAMP_BELOW + 1);
        debug_assert!(self.is_at(position), "one slot further");
    }

    /// Moves to the inbox's current position.
    #[inline(always)]
    pub(super) fn go_to(&mut self, position: u64) {
        self.walk.go_to(position);
        self.expected = pair_stamp_base(position);
    }
}
