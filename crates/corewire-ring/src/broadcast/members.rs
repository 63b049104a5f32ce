//! Who reads a channel. Private memory of the sender's process, behind a lock that the control
//! thread and the data thread's slow half share.
//!
//! A receiver joins while the sender runs, and no message pays for it: the control thread stores 0
//! to the data thread's limit, has every core pass a barrier (J1, the partner of the light fence
//! B5 in `Sender`), and reads the head off the stamps. What the data thread can still publish
//! without taking its slow path is then at most the one message that it had claimed, and its slow
//! path finds the new member.

use alloc::vec;
use alloc::vec::Vec;

use corewire_layout::counters::ControlCounter;
use corewire_layout::frame::{Start, Welcome};
use corewire_layout::geometry::Geometry;
use corewire_layout::segment::{DoorState, Policy, generation_of, tenure};
use corewire_layout::slot::{KIND_LARGE, KIND_WINDOW, sequence_of, stamp_of};

use super::sender::SenderShared;
use super::words::{SenderWords, add};
use crate::region::{Rows, Slots};
use crate::sync::Ordering::Relaxed;
use crate::{Kernel, fence_at, order};

/// Messages that the data thread can publish without passing its slow path.
const IN_FLIGHT_MAX: u64 = 1;

/// From the epoch that was last served in a row to the one that its next receiver begins at: even, and
/// the circle divided by the golden ratio, so that no two of many come near each other.
const EPOCH_STRIDE: u32 = 0x9e37_79b8;

/// The receivers of a channel.
#[derive(Debug)]
pub struct Members {
    rows: Vec<Row>,
    /// The first message of the ring, before which nobody begins.
    first: u64,
    joined: u32,
    /// Receivers that were invited and have neither joined, left nor died: sending waits for them.
    invited: u32,
    /// Virtual end of the large area's reservations; the data thread keeps it under the lock.
    pub(super) large_reserved: u64,
    /// Payload that a joiner needs, to be held again by the data thread's next slow path.
    pub(super) window_held_from: Option<u64>,
    pub(super) large_held_from: Option<u64>,
    /// Rows whose memory held an impossible value; the control thread drops them.
    violators: Vec<u32>,
    /// Rows whose receivers count no more; the control thread lets them go.
    evicted: Vec<u32>,
    /// Some row has a `stalled_since_ns`.
    has_stalls: bool,
}

#[derive(Debug, Clone, Copy, Default)]
struct Row {
    joined: bool,
    /// Evicted, and not let go yet: nobody else may take the row.
    evicted: bool,
    /// The cursor as last read: it never goes back.
    cached: u64,
    /// The cursor when the sender began to wait, or when it last moved while the sender waited; and
    /// since when, 0 if the sender does not wait.
    stalled_at: u64,
    stalled_since_ns: u64,
}

/// What a new receiver is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Joined {
    /// The sequence number of its first message.
    pub start: u64,
    /// The epoch its sleeping word begins at, another than that of each before it in this row.
    pub epoch: u32,
    /// Messages from this one on are claimed after the data thread has seen the change: the one
    /// before may be in flight.
    pub settled: u64,
    /// How many receivers the row has had, with this one.
    pub generation: u32,
}

impl Joined {
    /// What the receiver of `row` is told, if it is trusted and asked for fences where there are none.
    #[must_use]
    pub fn welcome(&self, row: u32, incarnation: u128, hint: bool) -> Welcome {
        let &Self { start, epoch, settled, generation } = self;
        Welcome { row, start, epoch, incarnation, hint, table: false, settled, generation }
    }
}

/// The member that the sender waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slowest {
    /// Its row.
    pub row: u32,
    /// Its cursor.
    pub cursor: u64,
}

impl Members {
    /// Nobody yet, of up to `receivers_max`.
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
        }
    }

    /// The same for a ring whose first message is number `first`
    /// ([`Sender::begin_with`](super::Sender::begin_with)).
    #[must_use]
    pub fn beginning_with(self, first: u64) -> Self {
        Self { first, ..self }
    }

    /// How many have joined.
    #[must_use]
    pub fn joined(&self) -> u32 {
        self.joined
    }

    /// How many are invited and have not come.
    #[must_use]
    pub fn invited(&self) -> u32 {
        self.invited
    }

    /// Has sending wait for one more.
    pub fn invite(&mut self) {
        self.invited += 1;
    }

    /// One who was invited has joined, left or died.
    pub fn answered(&mut self) {
        self.invited = self.invited.saturating_sub(1);
    }

    /// A row that nobody has.
    #[must_use]
    pub fn free_row(&self) -> Option<u32> {
        let index = self.rows.iter().position(|row| !row.joined && !row.evicted)?;
        u32::try_from(index).ok()
    }

    /// Takes a receiver in at a free `row`, whose page is mapped already. Control thread only; after
    /// it, the data thread's slow path finds the new limit.
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
        shared.watched.fetch_max(row + 1, Relaxed);
        shared.limit.store(0, Relaxed);
        // ORDER(J1): pairs with B5; after it, the data thread either sees the limit of 0, or has
        // published everything it claimed before but the one message in flight.
        barrier(kernel);
        let head = head_of(slots);
        let first = match start {
            Start::Now => head,
            Start::Oldest if channel.policy == Policy::Overwrite => words.floor().load(Relaxed),
            Start::Oldest => self.oldest_whole(head, channel),
            // What has been sent is kept for nobody who has not joined.
            Start::At(message) => message.max(head),
        };
        let epoch = (shared.acked(row).load(Relaxed) & !1).wrapping_add(EPOCH_STRIDE);
        // Whatever the data thread is about to serve of the row's last receiver, it gives up now.
        shared.acked(row).store(epoch, Relaxed);
        self.rows[row as usize] = Row { joined: true, cached: first, ..Row::default() };
        self.joined += 1;
        let door = words.door_tenure(row);
        let generation = generation_of(door.load(Relaxed)).wrapping_add(1);
        words.door_start(row).store(first, Relaxed);
        words.door_pid(row).store(pid, Relaxed);
        door.store(tenure(generation, DoorState::Joined), Relaxed);
        add(words.control_counter(ControlCounter::Joins), 1);
        Joined { start: first, epoch, settled: head + IN_FLIGHT_MAX, generation }
    }

    /// Takes a receiver in at `row` in the place of the one that has it, whose process may be dead: it
    /// begins where that one's cursor is, and nothing that that one held is given up meanwhile.
    /// `place` maps its page. Otherwise as for [`join`](Self::join).
    ///
    /// # Errors
    /// That of `place`; then nothing has changed.
    ///
    /// # Panics
    /// If nobody has the row.
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
        // One that has stored none, or an impossible one, has passed nothing more.
        let is_possible = (state.cached..=joined.start).contains(&cursor);
        let start = if is_possible { cursor } else { state.cached };
        self.rows[row as usize].cached = start;
        channel.words.door_start(row).store(start, Relaxed);
        Ok(Joined { start, ..joined })
    }

    /// Forgets a receiver. Control thread only; the caller then wakes a data thread that waits, and
    /// may replace the row's page.
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
        channel.shared.watched.store(u32::try_from(watched).unwrap_or(u32::MAX), Relaxed);
        channel.shared.limit.store(0, Relaxed);
    }

    /// Takes those out of the count that have held the sender back for `after_ns` without passing
    /// anything, as of `now_ns`: whose cursor is below `wanted`. A row that has anything to read, up to
    /// `head`, is watched from the first call on until [`Members::forget_stalls`]. Returns whether anybody was evicted; the control thread
    /// then lets them go. Data thread, slow path.
    pub(super) fn evict_stalled(
        &mut self,
        now_ns: u64,
        after_ns: u64,
        (wanted, head): (u64, u64),
        channel: &Channel<'_>,
    ) -> bool {
        let now_ns = now_ns.max(1);
        self.has_stalls = true;
        let mut stalled = Vec::new();
        for (row, state) in (0u32..).zip(&mut self.rows).filter(|(_, state)| state.joined) {
            let is_idle = state.cached >= head;
            if state.stalled_since_ns == 0 || state.stalled_at != state.cached || is_idle {
                state.stalled_at = state.cached;
                state.stalled_since_ns = now_ns;
            }
            let stalled_ns = now_ns.saturating_sub(state.stalled_since_ns);
            if state.cached < wanted && stalled_ns >= after_ns {
                stalled.push(row);
            }
        }
        for &row in &stalled {
            self.rows[row as usize].evicted = true;
            self.evicted.push(row);
            set_door(channel.words, row, DoorState::Evicted);
            self.uncount(row, channel, ControlCounter::Evictions);
        }
        // ORDER(E1): pairs with E2; whoever copies what is written from here on sees its door.
        fence_at!(E1: Release);
        !stalled.is_empty()
    }

    /// The sender has room again.
    pub(super) fn forget_stalls(&mut self) {
        if core::mem::take(&mut self.has_stalls) {
            self.rows.iter_mut().for_each(|row| row.stalled_since_ns = 0);
        }
    }

    /// Are there evicted rows to be let go?
    #[must_use]
    pub fn has_evicted(&self) -> bool {
        !self.evicted.is_empty()
    }

    /// The evicted rows, for the control thread.
    pub fn take_evicted(&mut self) -> Vec<u32> {
        core::mem::take(&mut self.evicted)
    }

    /// The oldest message from which on every payload up to `head` is whole, and will stay so
    /// beside what the data thread has in flight. Has its payload held.
    fn oldest_whole(&mut self, head: u64, channel: &Channel<'_>) -> u64 {
        let Channel { shared, slots, geometry, .. } = channel;
        let window_bytes = geometry.window_bytes();
        // One reservation of up to a quarter of the window, and as much skipped before it.
        let window_end = shared.window_reserved.load(Relaxed) + window_bytes / 2;
        let oldest = (head + IN_FLIGHT_MAX).saturating_sub(slots.count()).max(self.first);
        let (mut window_from, mut large_from) = (None, None);
        let mut first = head;
        for sequence in (oldest..head).rev() {
            let slot = slots.at(sequence);
            let position = slot.position().load(Relaxed);
            match slot.header().load(Relaxed) {
                KIND_WINDOW if position + window_bytes < window_end => break,
                KIND_WINDOW => window_from = Some(position),
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
                // ORDER(B4): pairs with B3; the receiver is done reading before we write again.
                let cursor = rows.cursor(row).load(order!(B4: Acquire));
                // A newcomer that has stored none yet has passed nothing.
                let cursor = if cursor == 0 { state.cached } else { cursor };
                if cursor < state.cached || cursor > head {
                    if !self.violators.contains(&row) {
                        self.violators.push(row);
                    }
                    continue;
                }
                state.cached = cursor;
            }
            // Who begins with a message to come has passed what there is.
            let cursor = state.cached.min(head);
            if slowest.is_none_or(|s| cursor < s.cursor) {
                slowest = Some(Slowest { row, cursor });
            }
        }
        slowest
    }

    /// Are there rows to be dropped for an impossible value?
    #[must_use]
    pub fn has_violators(&self) -> bool {
        !self.violators.is_empty()
    }

    /// The rows to be dropped, for the control thread.
    pub fn take_violators(&mut self) -> Vec<u32> {
        core::mem::take(&mut self.violators)
    }
}

/// The parts of a channel that a change of membership touches.
#[derive(Debug, Clone, Copy)]
pub struct Channel<'a> {
    /// What both threads share.
    pub shared: &'a SenderShared,
    /// The ring.
    pub slots: &'a Slots,
    /// The words of the segment.
    pub words: &'a SenderWords,
    /// Its sizes.
    pub geometry: &'a Geometry,
    /// What becomes of slow receivers.
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
    // It fails only for a moment's want of memory.
    let _ = (0..3).any(|_| kernel.barrier_everywhere());
}

/// How many messages the ring has carried, by a search over its stamps: the slots up to the head
/// are one lap ahead of those behind it.
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
    // ORDER(J2): pairs with B1; the headers of these messages, read next, are their own.
    fence_at!(J2: Acquire);
    lap_start.wrapping_add(low)
}
