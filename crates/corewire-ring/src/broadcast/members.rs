//! The receivers of a channel. Private memory of the sender's process, behind a lock that the
//! control thread shares with the data thread's slow path.
//!
//! A receiver joins while the sender runs, and no message pays for it: the control thread stores 0
//! to the data thread's limit, makes every core pass a barrier (J1, the counterpart of the light
//! fence W5 in `doorbell`), and reads the head from the stamps. From then on the data thread can
//! publish at most one message without its slow path: the one that it had already claimed. Its slow
//! path finds the new member.
//!
//! Proofs: `proof/models/tests/models/policies.rs`, `proof/models/tests/models/ring.rs`, `proof/kill/src/broadcast.rs`.

use alloc::vec;
use alloc::vec::Vec;

use corewire_layout::counters::ControlCounter;
use corewire_layout::frame::{Start, Welcome};
use corewire_layout::geometry::Geometry;
use corewire_layout::segment::{DoorState, Policy, generation_of, tenure};
use corewire_layout::slot::{
    INLINE_BYTES_MAX, KIND_LARGE, KIND_WINDOW, publishes, sequence_of, stamp_of,
};

use super::words::{SenderWords, add};
use crate::channel::{Purse, SenderShared, Slowest, Stall, lap};
use crate::region::{Rows, Slots};
use crate::sync::Ordering::Relaxed;
use crate::{Kernel, fence_at, order};

/// Messages that the data thread can publish without passing its slow path.
const IN_FLIGHT_MAX: u64 = 1;

/// Distance from the epoch that was last served in a row to the first epoch of the row's next
/// receiver. It is even and about 2^32 divided by the golden ratio, so that the first epochs of
/// many successive receivers lie far apart.
const EPOCH_STRIDE: u32 = 0x9e37_79b8;

/// The receivers of a channel.
#[derive(Debug)]
pub struct Members {
    rows: Vec<Row>,
    /// The first message of the ring. No receiver begins before it.
    first: u64,
    joined: u32,
    /// Receivers that were invited and have not joined, left or died yet. Sending waits for them.
    invited: u32,
    /// Virtual end of the large area's reservations. The data thread updates it under the lock.
    pub(super) large_reserved: u64,
    /// Payload that a joining receiver needs: the data thread's next slow path must hold it again.
    pub(super) window_held_from: Option<u64>,
    pub(super) large_held_from: Option<u64>,
    /// Rows whose memory held an impossible value; the control thread drops them.
    violators: Vec<u32>,
    /// Rows whose receivers were evicted and no longer count; the control thread releases these
    /// rows.
    evicted: Vec<u32>,
    /// True while the sender waits, and receivers are charged.
    has_stalls: bool,
    /// How long the sender may wait before the next receiver is to be evicted.
    patience_left_ns: u64,
    /// What the guests of each other user have cost, by user.
    purses: Vec<(u32, Purse)>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Row {
    joined: bool,
    /// Evicted, but not yet released by the control thread: no other receiver may take the row.
    evicted: bool,
    /// The cursor as last read. It never moves backwards.
    cached: u64,
    /// What the sender's waits for this receiver have cost.
    stall: Stall,
    /// The purse of a guest, by index.
    purse: Option<usize>,
}

/// What a new receiver learns when it joins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Joined {
    /// The sequence number of its first message.
    pub start: u64,
    /// The epoch at which its sleeping word begins. It differs from the epochs of all earlier
    /// receivers of this row.
    pub epoch: u32,
    /// Messages from this one on are claimed after the data thread has seen the change. The message
    /// before it may be in flight.
    pub settled: u64,
    /// Number of receivers that the row has had, including this one.
    pub generation: u32,
}

impl Joined {
    /// The welcome for the receiver of `row`; `hint` says whether a hint segment comes with it. Its
    /// `settled` is right for a trusted receiver that asked for fences; the caller changes it for
    /// other receivers.
    #[must_use]
    pub fn welcome(&self, row: u32, incarnation: u128, hint: bool) -> Welcome {
        let &Self { start, epoch, settled, generation } = self;
        Welcome { row, start, epoch, incarnation, hint, table: false, settled, generation }
    }
}

impl Members {
    /// An empty set of members, for up to `receivers_max` receivers.
    #[must_use]
    pub fn new(receivers_max: u32) -> Self {
        Self {
            rows: vec![Row::default(); receivers_max as usize],
            first: 0,
            joined: 0,
            invited: 0,
            large_reserved: 0,
            window_held_from: None,
            large_held_from: None,
            violators: Vec::new(),
            evicted: Vec::new(),
            has_stalls: false,
            patience_left_ns: u64::MAX,
            purses: Vec::new(),
        }
    }

    /// The same for a ring whose first message is number `first`
    /// ([`Sender::begin_with`](super::Sender::begin_with)).
    #[must_use]
    pub fn beginning_with(self, first: u64) -> Self {
        Self { first, ..self }
    }

    /// Number of receivers that have joined.
    #[must_use]
    pub fn joined(&self) -> u32 {
        self.joined
    }

    /// Number of invited receivers that have not joined yet.
    #[must_use]
    pub fn invited(&self) -> u32 {
        self.invited
    }

    /// Makes sending wait for one more receiver.
    pub fn invite(&mut self) {
        self.invited += 1;
    }

    /// Records that an invited receiver has joined, left or died.
    pub fn answered(&mut self) {
        self.invited = self.invited.saturating_sub(1);
    }

    /// A row without a receiver.
    #[must_use]
    pub fn free_row(&self) -> Option<u32> {
        let index = self.rows.iter().position(|row| !row.joined && !row.evicted)?;
        u32::try_from(index).ok()
    }

    /// Adds a receiver in the free row `row`, whose page is already mapped. Control thread only.
    /// Afterwards the data thread's slow path finds the new limit.
    ///
    /// # Panics
    /// If the row is taken.
    pub fn join<K: Kernel>(
        &mut self,
        row: u32,
        pid: u32,
        start: Start,
        channel: &Channel<'_>,
        kernel: &K,
    ) -> Joined {
        let Channel { shared, slots, words, .. } = channel;
        assert!(!self.rows[row as usize].joined, "own row");
        shared.watch(shared.watched.load(Relaxed).max(row + 1));
        shared.limit.store(0, Relaxed);
        // ORDER(J1): pairs with W5; after it, the data thread either sees the limit of 0, or has
        // published everything that it claimed before, except the one message in flight.
        barrier(kernel);
        let head = head_of(slots);
        let first = match start {
            Start::Now => head,
            Start::Oldest | Start::OldestIfPossible => match channel.policy {
                Policy::Overwrite => words.floor().load(Relaxed),
                _ => self.oldest_whole(head, channel),
            },
            // Messages already sent are not kept for a receiver that has not joined.
            Start::At(message) => message.max(head),
        };
        let epoch = (shared.acked(row).load(Relaxed) & !1).wrapping_add(EPOCH_STRIDE);
        // If the data thread is about to record an epoch of the row's previous receiver as served,
        // its compare-exchange fails from now on.
        shared.acked(row).store(epoch, Relaxed);
        let stall = self.take_stall(pid, words).map_or_else(Stall::default, |stall| {
            stall.inherited(first, lap(channel.geometry), kernel.now_ns())
        });
        self.rows[row as usize] = Row { joined: true, cached: first, stall, ..Row::default() };
        self.joined += 1;
        let door = words.door_tenure(row);
        let generation = generation_of(door.load(Relaxed)).wrapping_add(1);
        words.door_start(row).store(first, Relaxed);
        words.door_pid(row).store(pid, Relaxed);
        door.store(tenure(generation, DoorState::Joined), Relaxed);
        add(words.control_counter(ControlCounter::Joins), 1);
        Joined { start: first, epoch, settled: head + IN_FLIGHT_MAX, generation }
    }

    /// Takes over the charges of an earlier receiver of process `pid`: the largest, if there were several. All
    /// processes of other containers have the number 0, so they take over nothing.
    fn take_stall(&mut self, pid: u32, words: &SenderWords) -> Option<Stall> {
        let free = (0u32..).zip(&mut self.rows).filter(|(_, row)| !row.joined);
        let charged = free.filter(|(_, row)| row.stall.spent_ns() > 0);
        let its = charged.filter(|(row, _)| pid != 0 && words.door_pid(*row).load(Relaxed) == pid);
        let (_, most) = its.max_by_key(|(_, row)| row.stall.spent_ns())?;
        Some(core::mem::take(&mut most.stall))
    }

    /// Makes the receiver of `row` a guest of `user`: under `Evict`, all guests of one user together may hold
    /// the sender up for a sixteenth of its time.
    pub fn set_guest(&mut self, row: u32, user: u32) {
        let found = self.purses.iter().position(|(other, _)| *other == user);
        let purse = found.unwrap_or_else(|| {
            self.purses.push((user, Purse::default()));
            self.purses.len() - 1
        });
        self.rows[row as usize].purse = Some(purse);
    }

    /// Number of receivers that are guests, of `user` or of any user.
    #[must_use]
    pub fn guests(&self, user: Option<u32>) -> usize {
        let user_of = |row: &Row| row.purse.map(|purse| self.purses[purse].0);
        let guests = self.rows.iter().filter(|row| row.joined).filter_map(user_of);
        guests.filter(|other| user.is_none_or(|user| user == *other)).count()
    }

    /// Adds a receiver in `row` in place of the current receiver of that row, whose process may be
    /// dead. The new receiver starts at its predecessor's cursor, and nothing that the predecessor
    /// held is given up meanwhile. `place` maps the new receiver's page. Otherwise as
    /// [`join`](Self::join).
    ///
    /// # Errors
    /// The error of `place`; then nothing has changed.
    ///
    /// # Panics
    /// If the row has no receiver.
    pub fn succeed<K: Kernel, E>(
        &mut self,
        row: u32,
        pid: u32,
        rows: &Rows,
        place: impl FnOnce() -> Result<(), E>,
        channel: &Channel<'_>,
        kernel: &K,
    ) -> Result<Joined, E> {
        let state = self.rows[row as usize];
        assert!(state.joined, "own row");
        // ORDER(B4): pairs with B3; as in `slowest`.
        let cursor = rows.cursor(row).load(order!(B4: Acquire));
        place()?;
        self.rows[row as usize].joined = false;
        self.joined -= 1;
        self.violators.retain(|&violator| violator != row);
        let joined = self.join(row, pid, Start::Now, channel, kernel);
        // If the stored cursor is missing or impossible, the predecessor has passed nothing more.
        let is_possible = (state.cached..=joined.start).contains(&cursor);
        let start = if is_possible { cursor } else { state.cached };
        self.rows[row as usize].cached = start;
        channel.words.door_start(row).store(start, Relaxed);
        Ok(Joined { start, ..joined })
    }

    /// Removes a receiver. Control thread only. Afterwards the caller wakes a waiting data thread,
    /// and may replace the row's page.
    pub fn leave(&mut self, row: u32, channel: &Channel<'_>, why: ControlCounter) {
        let state = &mut self.rows[row as usize];
        self.evicted.retain(|&other| other != row);
        if core::mem::take(&mut state.evicted) {
            set_door(channel.words, row, DoorState::Free);
            return;
        }
        if !state.joined {
            return;
        }
        set_door(channel.words, row, DoorState::Free);
        self.uncount(row, channel, why);
    }

    fn uncount(&mut self, row: u32, channel: &Channel<'_>, why: ControlCounter) {
        self.rows[row as usize].joined = false;
        self.joined -= 1;
        self.violators.retain(|&violator| violator != row);
        add(channel.words.control_counter(why), 1);
        let watched = self.rows.iter().rposition(|row| row.joined).map_or(0, |last| last + 1);
        channel.shared.watch(u32::try_from(watched).unwrap_or(u32::MAX));
        channel.shared.limit.store(0, Relaxed);
    }

    /// Charges the receivers whose cursor is below `wanted` for the time that the sender waits for them, as of
    /// `now_ns`, and evicts those that have spent `after_ns` (see [`stall`](crate::channel::stall)). Evicted receivers
    /// no longer count. Charges go on until [`Members::forget_stalls`]. Returns whether any receiver was evicted; the
    /// control thread then releases the rows. Data thread, slow path.
    pub(super) fn evict_stalled(
        &mut self,
        now_ns: u64,
        after_ns: u64,
        (wanted, head): (u64, u64),
        channel: &Channel<'_>,
    ) -> bool {
        self.has_stalls = true;
        self.patience_left_ns = u64::MAX;
        let lap = lap(channel.geometry);
        let Self { rows, purses, .. } = self;
        let holds = |row: &Row| row.joined && row.cached < wanted;
        for (index, (_, purse)) in purses.iter_mut().enumerate() {
            let mut its = rows.iter().filter(|row| row.purse == Some(index));
            purse.charge(now_ns, its.any(holds));
        }
        let mut stalled = Vec::new();
        for (row, state) in (0u32..).zip(rows.iter_mut()).filter(|(_, state)| state.joined) {
            let is_holding = holds(state);
            state.stall.charge(now_ns, (state.cached, head), lap, is_holding);
            if is_holding {
                let purse = state.purse.map_or(u64::MAX, |purse| purses[purse].1.left_ns(after_ns));
                match state.stall.left_ns(after_ns).min(purse) {
                    0 => stalled.push(row),
                    left_ns => self.patience_left_ns = self.patience_left_ns.min(left_ns),
                }
            }
        }
        for &row in &stalled {
            self.rows[row as usize].evicted = true;
            self.evicted.push(row);
            set_door(channel.words, row, DoorState::Evicted);
            self.uncount(row, channel, ControlCounter::Evictions);
        }
        // ORDER(E1): pairs with E2; a receiver that copies anything written from here on sees its
        // door.
        fence_at!(E1: Release);
        !stalled.is_empty()
    }

    /// Ends the charges: the sender has room again, as of `now_ns`.
    pub(super) fn forget_stalls(&mut self, now_ns: impl FnOnce() -> u64) {
        if core::mem::take(&mut self.has_stalls) {
            let now_ns = now_ns();
            self.rows.iter_mut().for_each(|row| row.stall.pause(now_ns));
            self.purses.iter_mut().for_each(|(_, purse)| purse.charge(now_ns, false));
        }
    }

    /// How long the sender may wait before it must look for receivers to evict, as of the last call of
    /// [`Sender::evict_stalled`](super::Sender::evict_stalled).
    #[must_use]
    pub fn patience_left_ns(&self) -> u64 {
        self.patience_left_ns
    }

    /// Are there evicted rows that the control thread must release?
    #[must_use]
    pub fn has_evicted(&self) -> bool {
        !self.evicted.is_empty()
    }

    /// Takes the list of evicted rows, for the control thread.
    pub fn take_evicted(&mut self) -> Vec<u32> {
        core::mem::take(&mut self.evicted)
    }

    /// The oldest message from which on every payload up to `head` is whole, and stays whole
    /// independently of what the data thread has in flight. Also makes the areas hold these
    /// payloads.
    fn oldest_whole(&mut self, head: u64, channel: &Channel<'_>) -> u64 {
        let Channel { shared, slots, geometry, .. } = channel;
        let window_bytes = geometry.window_bytes();
        // In flight: one reservation of up to a quarter of the window, and as much skipped before
        // it.
        let window_end = shared.window_reserved.load(Relaxed) + window_bytes / 2;
        let oldest = (head + IN_FLIGHT_MAX).saturating_sub(slots.count()).max(self.first);
        let (mut window_from, mut large_from) = (None, None);
        let mut first = head;
        for sequence in (oldest..head).rev() {
            let slot = slots.at(sequence);
            let position = slot.position().load(Relaxed);
            match slot.header().load(Relaxed) {
                KIND_WINDOW if position + window_bytes < window_end => break,
                // Messages of a span lie in lanes: a later one may lie before an earlier one.
                KIND_WINDOW => {
                    window_from =
                        Some(window_from.map_or(position, |from: u64| from.min(position)));
                }
                KIND_LARGE if position + geometry.large_bytes() < self.large_reserved => break,
                KIND_LARGE => large_from = Some(position),
                _inline => {}
            }
            first = sequence;
        }
        hold(&mut self.window_held_from, window_from);
        hold(&mut self.large_held_from, large_from);
        first
    }

    /// Reads the cursors that hold the sender back (those below `wanted`), and returns the slowest
    /// member. An impossible cursor makes its row a violator. Data thread, slow path.
    pub(super) fn slowest(&mut self, rows: &Rows, head: u64, wanted: u64) -> Option<Slowest> {
        let mut slowest: Option<Slowest> = None;
        for (row, state) in (0u32..).zip(&mut self.rows) {
            if !state.joined {
                continue;
            }
            if state.cached < wanted {
                // ORDER(B4): pairs with B3; the receiver has finished reading before the sender
                // writes again.
                let cursor = rows.cursor(row).load(order!(B4: Acquire));
                // A new receiver that has not stored a cursor yet has passed nothing.
                let cursor = if cursor == 0 { state.cached } else { cursor };
                if cursor < state.cached || cursor > head {
                    if !self.violators.contains(&row) {
                        self.violators.push(row);
                    }
                    continue;
                }
                state.cached = cursor;
            }
            // A receiver that starts at a future message has passed all existing ones.
            let cursor = state.cached.min(head);
            if slowest.is_none_or(|s| cursor < s.cursor) {
                slowest = Some(Slowest { row, cursor });
            }
        }
        slowest
    }

    /// Are there rows to be dropped because they held an impossible value?
    #[must_use]
    pub fn has_violators(&self) -> bool {
        !self.violators.is_empty()
    }

    /// Takes the list of rows to be dropped, for the control thread.
    pub fn take_violators(&mut self) -> Vec<u32> {
        core::mem::take(&mut self.violators)
    }
}

/// The parts of a channel that a change of membership touches.
#[derive(Debug, Clone, Copy)]
pub struct Channel<'a> {
    /// What the data thread and the control thread share.
    pub shared: &'a SenderShared,
    /// The ring.
    pub slots: &'a Slots,
    /// The words of the segment.
    pub words: &'a SenderWords,
    /// The channel's sizes.
    pub geometry: &'a Geometry,
    /// What happens with slow receivers.
    pub policy: Policy,
}

fn set_door(words: &SenderWords, row: u32, state: DoorState) {
    let door = words.door_tenure(row);
    door.store(tenure(generation_of(door.load(Relaxed)), state), Relaxed);
}

fn hold(held: &mut Option<u64>, from: Option<u64>) {
    *held = match (*held, from) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    };
}

fn barrier<K: Kernel>(kernel: &K) {
    #[cfg(loom)]
    if crate::sync::is_weakened("J1") {
        return;
    }
    // The barrier fails only if the kernel is short of memory for a moment.
    let _ = (0..3).any(|_| kernel.barrier_everywhere());
}

/// Bytes of message `sequence` if they lie in its slot, 0 if they lie elsewhere; `None` if the ring
/// does not hold that message, or no longer. For observers, a hint: while the sender reuses the slot,
/// the answer may belong to a later message.
#[must_use]
pub fn inline_bytes_of(slots: &Slots, sequence: u64) -> Option<u64> {
    let slot = slots.at(sequence);
    let is_there = || publishes(slot.stamp().load(Relaxed), sequence);
    if !is_there() {
        return None;
    }
    let header = slot.header().load(Relaxed);
    match header {
        _ if !is_there() => None,
        KIND_WINDOW | KIND_LARGE => Some(0),
        bytes => (bytes <= INLINE_BYTES_MAX as u64).then_some(bytes),
    }
}

/// Number of messages that the ring has carried, found by a binary search over its stamps: the
/// slots below the head are one lap ahead of the others.
#[must_use]
pub fn head_of(slots: &Slots) -> u64 {
    let lap_start = match slots.at(0).stamp().load(Relaxed) {
        0 => return 0,
        stamp => sequence_of(stamp),
    };
    let (mut low, mut high) = (1, slots.count());
    while low < high {
        let middle = low + (high - low) / 2;
        let sequence = lap_start.wrapping_add(middle);
        if slots.at(sequence).stamp().load(Relaxed) == stamp_of(sequence) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    // ORDER(J2): pairs with B1; the headers read next belong to the messages whose stamps were found.
    fence_at!(J2: Acquire);
    lap_start.wrapping_add(low)
}
