//! Which pairs an endpoint looks at, and in what order. Private memory, but for the stamps that it loads.
//!
//! A pair that has had a message is *watched*, as long as there is a place: where its next slot lies, and
//! what the stamp there will be, is kept in a small record, its [`Head`]. The heads of hot pairs come first.
//! All of them are looked at in every poll; of the others, whose messages are announced besides, all by who
//! waits, and a few, in turn, by who looks only once. So a message from a pair that was silent for long is
//! mostly found where it lies, one line transfer after it was sent, while its sender is still announcing it.
//!
//! Whoever has no place is looked at when a bit names it, as a guest.

use alloc::boxed::Box;
use alloc::vec;

use corewire_layout::pair::{STAMP_BELOW, pair_stamp_base};

use super::inbox::Inbox;
use super::words::EndpointMemory;
use super::{BURST_MAX, COLD_AFTER, HOT_KEPT, WATCHED_MAX};
use crate::region::{Slot, Walk};
use crate::sync::Ordering::Relaxed;

/// Nobody's row.
const NOBODY: u32 = u32::MAX;
/// Where a guest is.
pub(super) const GUEST: usize = WATCHED_MAX;
/// The place of whoever has none.
const NOWHERE: u8 = u8::MAX;

/// So many heads are looked at in one go, with no question in between but whether one has something.
const GROUP: usize = if WATCHED_MAX < 4 { WATCHED_MAX } else { 4 };

/// By how much a stamp grows in the most slots that are taken in one turn.
const SHARE: u64 = pair_stamp_base(BURST_MAX) - pair_stamp_base(0);

const _: () = assert!(WATCHED_MAX < NOWHERE as usize);
const _: () = assert!(WATCHED_MAX.is_multiple_of(GROUP));

/// The pairs that are looked at.
#[derive(Debug)]
pub(super) struct Watch {
    /// Of hot pairs, of others, unused ones, the guest's.
    heads: Box<[Head; WATCHED_MAX + 1]>,
    nobody: Head,
    hot: usize,
    count: usize,
    /// Whose messages are being taken, and what its stamp was when that began.
    turn: usize,
    turn_began: u64,
    /// Which group is looked at next, of those with somebody who is not hot.
    next: usize,
    /// Which of all is looked at next in this round.
    round_next: usize,
    /// Somebody who is not hot had a message in this round.
    has_found: bool,
    /// Where each row's head is.
    places: Box<[u8]>,
}

impl Watch {
    /// Of an endpoint of `memory`.
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

    /// Who has its turn, if it has something, and has not had its share; and what its stamp says of that. One
    /// load.
    #[inline(always)]
    pub(super) fn current(&mut self, polls: u64) -> Option<(&mut Head, u64)> {
        let head = &mut self.heads[self.turn];
        let below = head.below();
        // Somebody else may have come to this place: then this may be any number.
        let has_share = head.expected.wrapping_sub(self.turn_began) < SHARE;
        if below <= STAMP_BELOW && has_share {
            head.tick = polls;
            return Some((head, below));
        }
        None
    }

    /// Looks at all that are hot, the one after the current one first, and at as many as `groups` of the
    /// others. True if it is somebody's turn now.
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

    /// Looks at all that are left in this round, until it is somebody's turn. False if there is nobody left.
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
    pub(super) fn begin_round(&mut self) {
        self.round_next = 0;
    }

    /// It is the turn of who is at `place`.
    #[inline(always)]
    pub(super) fn turn_to(&mut self, place: usize, polls: u64) {
        let head = &mut self.heads[place];
        head.tick = polls;
        head.is_found = true;
        self.has_found |= place >= self.hot;
        self.turn_began = head.expected;
        self.turn = place;
    }

    /// The head of whose turn it is.
    #[inline(always)]
    pub(super) fn current_head(&mut self) -> &mut Head {
        &mut self.heads[self.turn]
    }

    /// The row of the pair that had something last.
    pub(super) fn current_row(&self) -> u32 {
        self.heads[self.turn].row()
    }

    /// Has anybody been found who is not hot?
    #[inline(always)]
    pub(super) fn has_found(&self) -> bool {
        self.has_found
    }

    /// Where `row` is watched.
    pub(super) fn place(&self, row: u32) -> Option<usize> {
        let place = *self.places.get(row as usize)?;
        (place != NOWHERE).then_some(place.into())
    }

    /// Watches `row`, which is not watched yet and stands where `head` says: as a guest if there is no place
    /// left. Returns where.
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

    /// Whoever is a guest has no place any more.
    pub(super) fn dismiss_guest(&mut self) {
        self.forget(GUEST);
    }

    /// Has the head of `row`, if it is watched, be `head`.
    pub(super) fn renew(&mut self, row: u32, head: Head) {
        if let Some(place) = self.place(row) {
            let Head { tick, is_found, .. } = self.heads[place];
            self.heads[place] = Head { row, tick, is_found, ..head };
        }
    }

    /// Watches `row` no more.
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

    /// It is the turn of who is at `place`, for no reason.
    pub(super) fn visit(&mut self, place: usize) {
        self.turn_began = self.heads[place].expected;
        self.turn = place;
    }

    /// A head that never has anything.
    pub(super) fn nobody(&self) -> Head {
        self.nobody.clone()
    }

    /// One of the hot, who is not hot any more.
    pub(super) fn next_hot(&mut self) -> Option<u32> {
        let place = self.chill(self.hot.checked_sub(1)?);
        Some(self.heads[place].row)
    }

    /// The next of those who have had a message and are not hot, who is hot from now on.
    pub(super) fn next_found(&mut self, polls: u64) -> Option<Found> {
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
        Some(Found { left: (left != NOBODY).then_some(left), ..self.heat(place) })
    }

    /// One of the hot that has had nothing for long, and is not hot any more, if there are more of them than
    /// are kept.
    pub(super) fn next_idle(&mut self, polls: u64) -> Option<u32> {
        if self.hot <= HOT_KEPT {
            return None;
        }
        let place = (0..self.hot).find(|&place| self.is_idle(place, polls))?;
        let place = self.chill(place);
        Some(self.heads[place].row)
    }

    fn is_idle(&self, place: usize, polls: u64) -> bool {
        polls >= self.heads[place].tick + COLD_AFTER
    }

    /// Makes who is at `place` hot.
    fn heat(&mut self, place: usize) -> Found {
        self.heads[place].is_found = false;
        self.swap(place, self.hot);
        self.hot += 1;
        Found { row: self.heads[self.hot - 1].row, left: None }
    }

    /// Makes who is at `place` hot no more. Returns where it is then.
    fn chill(&mut self, place: usize) -> usize {
        if place >= self.hot {
            return place;
        }
        self.hot -= 1;
        self.heads[place].is_found = false;
        self.swap(place, self.hot);
        self.hot
    }

    fn swap(&mut self, one: usize, other: usize) {
        self.heads.swap(one, other);
        for place in [one, other] {
            self.note(place);
        }
    }

    /// Notes where the row is that is at `place`.
    fn note(&mut self, place: usize) {
        if let Some(entry) = self.places.get_mut(self.heads[place].row as usize) {
            *entry = u8::try_from(place).unwrap_or(NOWHERE);
        }
    }

    /// Has nobody be at `place`.
    fn forget(&mut self, place: usize) {
        let head = core::mem::replace(&mut self.heads[place], self.nobody.clone());
        if let Some(entry) = self.places.get_mut(head.row as usize) {
            *entry = NOWHERE;
        }
    }
}

/// Who is hot from now on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) row: u32,
    /// Whose place it has taken.
    pub(super) left: Option<u32>,
}

/// Where the next slot of a pair lies, and what its stamp will say: all that a look needs. It is of no use
/// longer than its peer: whoever removes that has it forgotten.
#[derive(Debug, Clone)]
pub(super) struct Head {
    walk: Walk,
    /// The stamp, but for what the slot holds.
    expected: u64,
    /// The poll at which it had something last.
    tick: u64,
    row: u32,
    is_found: bool,
}

impl Head {
    /// One that never has anything.
    fn nobody(memory: &EndpointMemory) -> Self {
        let slots = memory.slots(0).expect("an endpoint has a ring");
        // SAFETY: the endpoint's own memory, which it keeps.
        let walk = unsafe { Walk::new(&slots, 0) };
        // No slot has such a stamp: it would be the last of its ring's life.
        Self { walk, expected: !STAMP_BELOW, tick: 0, row: NOBODY, is_found: false }
    }

    /// Where the pair stands. `None` if it has no ring, or is not to be looked at.
    pub(super) fn of(inbox: &Inbox) -> Option<Self> {
        let position = inbox.next();
        // SAFETY: the inbox keeps its slots until its ring has ended or its peer is removed, and then its
        // head is forgotten.
        let walk = unsafe { Walk::new(inbox.slots()?, position) };
        let expected = pair_stamp_base(position);
        let head = Self { walk, expected, tick: 0, row: NOBODY, is_found: false };
        (!inbox.is_held).then_some(head)
    }

    /// Whose it is.
    #[inline(always)]
    pub(super) fn row(&self) -> u32 {
        self.row
    }

    /// Where its next message lies.
    #[inline(always)]
    pub(super) fn slot(&self) -> Slot<'_> {
        self.walk.slot()
    }

    /// What the stamp says of what lies there; more than [`STAMP_BELOW`] if there is nothing. One load.
    #[inline(always)]
    fn below(&self) -> u64 {
        self.walk.slot().stamp().load(Relaxed) ^ self.expected
    }

    /// Is something there?
    #[inline(always)]
    fn is_ready(&self) -> bool {
        self.below() <= STAMP_BELOW
    }

    /// Does it stand at `position`?
    #[inline(always)]
    pub(super) fn is_at(&self, position: u64) -> bool {
        self.expected == pair_stamp_base(position)
    }

    /// Goes one slot further, to where its inbox stands now.
    #[inline(always)]
    pub(super) fn step(&mut self, position: u64) {
        self.walk.go_to(position);
        self.expected = self.expected.wrapping_add(STAMP_BELOW + 1);
        debug_assert!(self.is_at(position), "one slot further");
    }

    /// Goes to where its inbox stands now.
    #[inline(always)]
    pub(super) fn go_to(&mut self, position: u64) {
        self.walk.go_to(position);
        self.expected = pair_stamp_base(position);
    }
}
