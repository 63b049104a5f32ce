//! A sender of a shared channel.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

use corewire_layout::counters::SenderCounter;
use corewire_layout::geometry::Geometry;
use corewire_layout::segment::{DoorState, FenceMode, Policy, generation_of};
use corewire_layout::slot::{
    CLAIMED, INLINE_BYTES_MAX, KIND_LARGE, KIND_WINDOW, RUN_SLOTS_MAX, ahead_of, is_claimed,
    owner_of, publishes, run_of, sequence_of, shared_stamp,
};

use super::roster::{Roster, past_claim};
use crate::channel::{Area, Pace, Room, SenderShared, Slowest, Stall, lap};
use crate::doorbell::{self, Bell, Bells, Sleeper, Slept};
use crate::host::{Entrance, Party};
use crate::region::{Access, Payload, Region, Store, set_aside};
use crate::sync::Ordering::Relaxed;
use crate::{Control, Host, Kernel, fence_at, order};

/// If the membership changes during this many attempts of a refresh, the limit stays where it is.
const REFRESHES_MAX: u32 = 8;
/// Generation of a row's first sender: no other sender had its window before.
const FIRST_GENERATION: u32 = 1;

/// The parts of a sender.
#[derive(Debug)]
pub struct SenderParts {
    /// The ring, writable.
    pub ring: Region,
    /// The channel's senders and receivers.
    pub roster: Roster,
    /// This sender's row.
    pub entrance: Entrance,
    /// What happens with slow receivers; not `Overwrite`.
    pub policy: Policy,
    /// Private memory for the largest message, unless the policy is `Block`.
    pub staging: Option<Region>,
    /// What the sender shares with the control thread.
    pub shared: Arc<SenderShared>,
}

/// A sender of a shared channel: the data thread's half.
pub struct Sender<H> {
    roster: Roster,
    entrance: Entrance,
    policy: Policy,
    staging: Option<Store>,
    shared: Arc<SenderShared>,
    /// Where a claim begins or will begin. Everything below is claimed.
    tail: u64,
    /// The sequence number after this sender's last message.
    sent_end: u64,
    sent: u64,
    pace: Pace,
    sleeper: Sleeper,
    bytes: u64,
    window: Area,
    window_store: Store,
    large: Area,
    large_store: Store,
    /// Number of slots that it waits for together.
    wanted: u64,
    /// The word *sleepers* as last served.
    sleepers_seen: u32,
    /// The slowest cursor, as of the last refresh.
    slowest: Option<Slowest>,
    /// For each receiver's row, since when it has held this sender back.
    stalls: Vec<RowStall>,
    /// How long this sender may wait before the next receiver is to be evicted.
    patience_left_ns: u64,
    has_stalls: bool,
    /// Messages of a batch that have no slot yet: entries for a whole run, of which `staged_count`
    /// are in use. They are written in place, field by field: a move would load an entry in wider
    /// words than it was stored, and wait until it has left the store buffer.
    staged: Vec<Staged>,
    staged_count: usize,
    host: H,
}

/// What the waits for the receiver of a row cost this sender.
#[derive(Debug, Clone, Copy, Default)]
struct RowStall {
    generation: u32,
    stall: Stall,
}

/// A message without a slot.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(16))]
struct Staged {
    inline: [u8; INLINE_BYTES_MAX],
    /// The length, or the kind.
    header: u64,
    /// Length of a payload that lies elsewhere.
    bytes: u64,
    room: Room,
}

impl Staged {
    const NOTHING: Self = Self {
        inline: [0; INLINE_BYTES_MAX],
        header: 0,
        bytes: 0,
        room: Room { position: 0, end: 0 },
    };
}

/// A short message that is being composed, aligned as the payload of a slot is.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(16))]
struct Inline([u8; INLINE_BYTES_MAX]);

impl Inline {
    const ZERO: Self = Self([0; INLINE_BYTES_MAX]);
}

/// Room that is put back on drop unless it is kept.
struct Taken<'a> {
    area: &'a mut Area,
    room: Room,
}

impl Taken<'_> {
    fn keep(self) -> Room {
        core::mem::ManuallyDrop::new(self).room
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        self.area.put_back(self.room);
    }
}

impl<H: Host> Sender<H> {
    /// A sender that has sent nothing yet.
    #[must_use]
    pub fn new(parts: SenderParts, host: H) -> Self {
        let SenderParts { ring, roster, entrance, policy, staging, shared } = parts;
        let geometry = *roster.geometry();
        let (slots, row) = (geometry.slots(), entrance.row);
        let staging = staging.map(|memory| Store::new(&memory, 0, memory.bytes() as u64));
        let (window, large) = (geometry.window_bytes(), geometry.large_bytes());
        let rows = usize::try_from(geometry.receivers_max()).unwrap_or_default();
        let tail = roster.head();
        // Nothing is claimed before the first refresh.
        shared.revoke();
        let mut areas = [Area::new(window, slots, false), Area::new(large, slots, true)];
        if let (true, Some(last)) = (entrance.generation != FIRST_GENERATION, tail.checked_sub(1)) {
            // Receivers may not have read yet what the row's previous holder sent. All of it was
            // claimed below the tail.
            areas.iter_mut().for_each(|area| area.hold_all_until(last));
        }
        // The counters there may still be those of the row's previous holder.
        for (counter, _) in SenderCounter::ALL {
            roster.ring.counter(row, counter).store(0, Relaxed);
        }
        let [window_area, large_area] = areas;
        Self {
            entrance,
            policy,
            staging,
            shared,
            tail,
            sent_end: tail,
            sent: 0,
            pace: Pace::default(),
            sleeper: Sleeper::new(0),
            bytes: 0,
            window: window_area,
            window_store: Store::new(&ring, geometry.window_offset(row), window),
            large: large_area,
            large_store: Store::new(&ring, geometry.large_offset(row), large),
            wanted: 1,
            // A receiver that sleeps already must be woken by the first message.
            sleepers_seen: roster.table.sleepers().load(Relaxed).wrapping_sub(1),
            slowest: None,
            stalls: alloc::vec![RowStall::default(); rows],
            patience_left_ns: u64::MAX,
            has_stalls: false,
            staged: (0..RUN_SLOTS_MAX).map(|_| Staged::NOTHING).collect(),
            staged_count: 0,
            roster,
            host,
        }
    }

    /// What the sender shares with the control thread.
    #[must_use]
    pub fn shared(&self) -> &Arc<SenderShared> {
        &self.shared
    }

    /// The sender's operating system and control thread.
    #[must_use]
    pub fn host(&self) -> &H {
        &self.host
    }

    /// The channel's sizes.
    #[must_use]
    pub fn geometry(&self) -> &Geometry {
        &self.roster.geometry
    }

    /// What happens with slow receivers.
    #[must_use]
    pub fn policy(&self) -> Policy {
        self.policy
    }

    /// Messages sent so far by this sender.
    #[must_use]
    pub fn sent(&self) -> u64 {
        self.sent
    }

    /// How many messages the slowest receiver is behind, as of the last refresh.
    #[must_use]
    pub fn lag(&self) -> u64 {
        self.slowest.map_or(0, |slowest| self.tail.saturating_sub(slowest.cursor))
    }

    fn limit(&self) -> u64 {
        self.shared.limit().load(Relaxed)
    }

    /// Claims the next `run` slots, at most 16, for this sender, and returns the first one's sequence
    /// number. While they cannot be claimed, calls `wait`, which waits or gives up.
    #[inline(always)]
    fn claim<E>(
        &mut self,
        run: u64,
        wait: &mut impl FnMut(&mut Self) -> Result<(), E>,
    ) -> Result<u64, E> {
        loop {
            let first = self.tail;
            let stamp = self.roster.slots.at(first).stamp();
            self.prefetch_next(run);
            // ORDER(C1): pairs with C2; the slot's last sender is done writing it before this
            // sender begins.
            let old = stamp.load(order!(C1: Acquire));
            if ahead_of(old, first) >= 0 {
                self.walk();
            } else if first + run > self.limit() || !self.is_over(first, old, run) {
                self.wanted = run;
                let waited = wait(self);
                self.wanted = 1;
                waited?;
            } else {
                let claim = shared_stamp(first, self.entrance.row, run) | CLAIMED;
                // A thread that sees the claim must see the claimer's door (C4). It does: the limit
                // was 0 when the claimer joined, so the fence R3 lies between its door and its
                // first claim.
                // ORDER(C5): pairs with R3; a thread that goes past this claim sees all claims
                // before it.
                if stamp.compare_exchange(old, claim, order!(C5: Release), Relaxed).is_ok() {
                    self.tail = first + run;
                    if (first ^ self.tail) >= RUN_SLOTS_MAX {
                        // ORDER(C5): as above.
                        self.roster.ring.tail().store(self.tail, order!(C5: Release));
                    }
                    return Ok(first);
                }
            }
        }
    }

    /// In a stream, prefetches the slots after the next `run` slots, while those are claimed and
    /// filled: a claim waits for all stores before it, and for its own line. Does so only if the
    /// last message was this sender's own: where several senders take turns, the next claim is
    /// another sender's.
    #[inline(always)]
    fn prefetch_next(&self, run: u64) {
        if self.pace.is_stream() && self.tail == self.sent_end {
            let next = self.tail + run;
            for sequence in next..next + run {
                self.roster.slots.at(sequence).prefetch_to_write();
            }
        }
    }

    /// Advances the tail to the first slot that is unclaimed as far as this sender can see.
    #[inline(never)]
    fn walk(&mut self) {
        self.tail = self.tail.max(self.roster.ring.tail().load(Relaxed));
        while let Some(next) = past_claim(&self.roster.slots, self.tail) {
            self.tail = next;
        }
    }

    /// Is the previous life of each of `run` slots over? `old` is the stamp of the first slot. If
    /// not, another sender may still write to a slot, or a receiver may need its stamp.
    #[inline(always)]
    fn is_over(&self, first: u64, old: u64, run: u64) -> bool {
        self.is_slot_over(old) && (run == 1 || self.are_others_over(first, run))
    }

    #[inline(never)]
    fn are_others_over(&self, first: u64, run: u64) -> bool {
        (first + 1..first + run).all(|sequence| {
            // ORDER(C1): as in `claim`.
            let old = self.roster.slots.at(sequence).stamp().load(order!(C1: Acquire));
            self.is_slot_over(old)
        })
    }

    #[inline(always)]
    fn is_slot_over(&self, old: u64) -> bool {
        let is_plain = !is_claimed(old) && run_of(old) == 1;
        is_plain || old == 0 || self.is_claim_over(old)
    }

    #[inline(never)]
    fn is_claim_over(&self, old: u64) -> bool {
        if !is_claimed(old) {
            let last = sequence_of(old) + run_of(old) - 1;
            // ORDER(C1): as in `claim`.
            let stamp = self.roster.slots.at(last).stamp().load(order!(C1: Acquire));
            if publishes(stamp, last) || ahead_of(stamp, last) > 0 {
                return true;
            }
        }
        self.roster.is_owner_dead(owner_of(old))
    }

    /// Sends a message of up to 48 bytes. While there is no slot, calls `wait`, which waits or
    /// gives up. Longer messages go through [`Sender::loan_with`].
    ///
    /// # Errors
    /// The error with which `wait` gives up; nothing was sent.
    ///
    /// # Panics
    /// If the message is longer than 48 bytes.
    #[inline(always)]
    pub fn send_inline<E>(
        &mut self,
        message: &[u8],
        mut wait: impl FnMut(&mut Self) -> Result<(), E>,
    ) -> Result<(), E> {
        assert!(message.len() <= INLINE_BYTES_MAX, "own length");
        let sequence = self.claim(1, &mut wait)?;
        self.fill(sequence, message);
        self.publish(sequence, message.len() as u64, 1);
        self.finish(sequence + 1, 1);
        Ok(())
    }

    #[inline(always)]
    fn fill(&self, sequence: u64, message: &[u8]) {
        let slot = self.roster.slots.at(sequence);
        if self.staging.is_some() {
            let mut payload = slot.payload(message.len(), Access::Words);
            // SAFETY: claimed by this sender and not published; a receiver that copies sees words.
            unsafe { payload.copy_in(message) };
        } else {
            let mut payload = slot.payload(message.len(), Access::Write);
            // SAFETY: claimed by this sender and not published, and the slot's previous life is
            // over.
            unsafe { payload.fill(message) };
        }
    }

    /// Publishes a slot of this sender, the first of `run`.
    #[inline(always)]
    fn publish(&self, sequence: u64, header: u64, run: u64) {
        let slot = self.roster.slots.at(sequence);
        slot.header().store(header, Relaxed);
        let stamp = shared_stamp(sequence, self.entrance.row, run);
        // ORDER(C2): pairs with B2 and C1; makes header and payload visible with the stamp.
        slot.stamp().store(stamp, order!(C2: Release));
    }

    /// For models of deaths: claims `run` slots, publishes `message` in the first `published` of
    /// them, writes it to the payload of the next slot, and stops there.
    ///
    /// # Errors
    /// The error with which `wait` gives up; nothing was claimed.
    #[cfg(loom)]
    pub fn die_in_run<E>(
        &mut self,
        run: u64,
        published: u64,
        message: &[u8],
        mut wait: impl FnMut(&mut Self) -> Result<(), E>,
    ) -> Result<(), E> {
        let first = self.claim(run, &mut wait)?;
        for index in 0..published {
            self.fill(first + index, message);
            self.publish(first + index, message.len() as u64, if index == 0 { run } else { 1 });
        }
        if published < run {
            self.fill(first + published, message);
        }
        Ok(())
    }

    /// Follows the last stamp of a call: counts the messages and wakes sleepers.
    #[inline(always)]
    fn finish(&mut self, end: u64, count: u64) {
        self.sent_end = end;
        self.sent += count;
        if self.someone_sleeps() {
            self.ring_bell();
        }
    }

    /// Has any receiver or sender fallen asleep since this sender last rang the bell?
    #[inline(always)]
    #[must_use]
    pub fn someone_sleeps(&self) -> bool {
        doorbell::fence_after_store(self.shared.is_fenced());
        self.roster.table.sleepers().load(Relaxed) != self.sleepers_seen
    }

    /// Wakes all sleepers.
    #[cold]
    #[inline(never)]
    pub fn ring_bell(&mut self) {
        self.sleepers_seen = self.roster.table.sleepers().load(Relaxed);
        self.add(SenderCounter::Wakes, 1);
        self.roster.ring.cpu().store(self.host.kernel().cpu(), Relaxed);
        self.roster.ring_bell(&self.host);
    }

    /// Did the receiver that holds this sender back last run on this very processor? Then it cannot
    /// read while this thread runs.
    #[must_use]
    pub fn is_slowest_here(&self) -> bool {
        let here = |slowest: Slowest| {
            self.roster.rows.cpu(slowest.row).load(Relaxed) == self.host.kernel().cpu()
        };
        self.slowest.is_some_and(here)
    }

    /// Lends memory for a message of `bytes` bytes, which must not exceed the channel's maximum:
    /// private memory, or room in this sender's own window. No slot is claimed before
    /// [`Loan::send`]. While there is no room, calls `wait`, which waits or gives up.
    ///
    /// # Errors
    /// The error with which `wait` gives up.
    ///
    /// # Panics
    /// If `bytes` is more than the channel's largest message.
    pub fn loan_with<E>(
        &mut self,
        bytes: usize,
        mut wait: impl FnMut(&mut Self) -> Result<(), E>,
    ) -> Result<Loan<'_, H>, E> {
        if bytes <= INLINE_BYTES_MAX {
            return Ok(Loan { sender: self, place: Place::Slot(Inline::ZERO, bytes) });
        }
        let (room, payload) = loop {
            match self.find_room(bytes) {
                Some(found) => break found,
                None => wait(self)?,
            }
        };
        let place = match &self.staging {
            None => Place::Room { room, payload, target: None },
            Some(staging) => {
                let own = staging.payload(0, bytes as u64, Access::Write);
                let own = own.expect("memory for the largest message");
                Place::Room { room, payload: own, target: Some(payload) }
            }
        };
        Ok(Loan { sender: self, place })
    }

    fn is_window(&self, bytes: usize) -> bool {
        bytes as u64 <= self.roster.geometry.window_message_bytes_max()
    }

    fn find_room(&mut self, bytes: usize) -> Option<(Room, Payload)> {
        let access = if self.staging.is_some() { Access::Words } else { Access::Write };
        let (area, store) = if self.is_window(bytes) {
            (&mut self.window, &self.window_store)
        } else {
            (&mut self.large, &self.large_store)
        };
        let room = area.find(bytes as u64)?;
        area.take(room);
        let payload = store.payload(room.position, bytes as u64, access).expect("own area");
        Some((room, payload))
    }

    fn area(&mut self, header: u64) -> &mut Area {
        if header == KIND_WINDOW { &mut self.window } else { &mut self.large }
    }

    /// Sends up to 16 messages of up to 48 bytes each in one run, straight into their slots. While
    /// there are no slots, calls `wait`, which waits or gives up.
    ///
    /// # Errors
    /// The error with which `wait` gives up; nothing was sent.
    ///
    /// # Panics
    /// If there are more than 16 messages, or one is longer than 48 bytes.
    pub fn send_run<E>(
        &mut self,
        messages: &[&[u8]],
        mut wait: impl FnMut(&mut Self) -> Result<(), E>,
    ) -> Result<(), E> {
        let count = messages.len() as u64;
        assert!(count <= RUN_SLOTS_MAX, "own number");
        if count == 0 {
            return Ok(());
        }
        let first = self.claim(count, &mut wait)?;
        let mut run = count;
        for (sequence, message) in (first..).zip(messages) {
            self.fill(sequence, message);
            self.publish(sequence, message.len() as u64, run);
            run = 1;
        }
        self.finish(first + count, count);
        Ok(())
    }

    /// Adds a message to a batch. [`Sender::flush`] sends the batch; a full batch of 16 messages is
    /// sent before another is added. The message must not be longer than the channel's maximum.
    ///
    /// # Errors
    /// The error with which `wait` gives up; then the message was not added.
    pub fn stage<E>(
        &mut self,
        message: &[u8],
        mut wait: impl FnMut(&mut Self) -> Result<(), E>,
    ) -> Result<(), E> {
        if self.staged_count == self.staged.len() {
            self.flush(&mut wait)?;
        }
        if message.len() <= INLINE_BYTES_MAX {
            let place = &mut self.staged[self.staged_count];
            set_aside(message, &mut place.inline);
            place.header = message.len() as u64;
            self.staged_count += 1;
            return Ok(());
        }
        self.stage_elsewhere(message.len(), |payload| payload.copy_from_slice(message), wait)
    }

    /// As [`Sender::stage`], for a message of `bytes` bytes that `write` writes to the memory it is
    /// given.
    ///
    /// # Errors
    /// As for [`Sender::stage`].
    pub fn stage_with<E>(
        &mut self,
        bytes: usize,
        write: impl FnOnce(&mut [u8]),
        mut wait: impl FnMut(&mut Self) -> Result<(), E>,
    ) -> Result<(), E> {
        if bytes > INLINE_BYTES_MAX {
            if self.staged_count == self.staged.len() {
                self.flush(&mut wait)?;
            }
            return self.stage_elsewhere(bytes, write, wait);
        }
        let mut message = Inline::ZERO;
        write(&mut message.0[..bytes]);
        self.stage(&message.0[..bytes], wait)
    }

    #[inline(never)]
    fn stage_elsewhere<E>(
        &mut self,
        bytes: usize,
        write: impl FnOnce(&mut [u8]),
        mut wait: impl FnMut(&mut Self) -> Result<(), E>,
    ) -> Result<(), E> {
        let (room, mut payload) = loop {
            match self.find_room(bytes) {
                Some(found) => break found,
                // The batch itself may hold the room that is missing.
                None if self.staged_count > 0 => self.flush(&mut wait)?,
                None => wait(self)?,
            }
        };
        let in_window = self.is_window(bytes);
        let area = if in_window { &mut self.window } else { &mut self.large };
        // `write` may panic.
        let room = Taken { area, room };
        if let Some(staging) = &self.staging {
            let own = staging.payload(0, bytes as u64, Access::Write);
            let mut own = own.expect("memory for the largest message");
            // SAFETY: private memory, and no other reference to it exists meanwhile.
            let own = unsafe { own.as_mut_slice() };
            write(own);
            // SAFETY: this sender's own room, not published yet; a receiver that copies from it
            // sees words.
            unsafe { payload.copy_in(own) };
        } else {
            // SAFETY: this sender's own room, not published yet.
            write(unsafe { payload.as_mut_slice() });
        }
        let room = room.keep();
        let header = if in_window { KIND_WINDOW } else { KIND_LARGE };
        let place = &mut self.staged[self.staged_count];
        (place.header, place.bytes, place.room) = (header, bytes as u64, room);
        self.staged_count += 1;
        Ok(())
    }

    /// Sends the messages of a batch, in one run.
    ///
    /// # Errors
    /// The error with which `wait` gives up; the batch keeps its messages.
    pub fn flush<E>(&mut self, wait: &mut impl FnMut(&mut Self) -> Result<(), E>) -> Result<(), E> {
        let count = self.staged_count as u64;
        if count == 0 {
            return Ok(());
        }
        let first = self.claim(count, wait)?;
        let staged = core::mem::take(&mut self.staged);
        for (sequence, message) in (first..).zip(&staged[..self.staged_count]) {
            let run = if sequence == first { count } else { 1 };
            self.publish_staged(sequence, message, run);
        }
        self.staged = staged;
        self.staged_count = 0;
        self.finish(first + count, count);
        Ok(())
    }

    #[inline(always)]
    fn publish_staged(&mut self, sequence: u64, message: &Staged, run: u64) {
        if message.header > INLINE_BYTES_MAX as u64 {
            return self.publish_elsewhere(
                sequence,
                message.header,
                message.room,
                message.bytes,
                run,
            );
        }
        #[expect(clippy::cast_possible_truncation, reason = "at most 48")]
        let bytes = message.header as usize;
        self.fill(sequence, &message.inline[..bytes]);
        self.publish(sequence, message.header, run);
    }

    fn publish_elsewhere(&mut self, sequence: u64, header: u64, room: Room, bytes: u64, run: u64) {
        let slot = self.roster.slots.at(sequence);
        slot.position().store(room.position, Relaxed);
        slot.length().store(bytes, Relaxed);
        self.publish(sequence, header, run);
        self.bytes += bytes;
        self.area(header).publish_room(sequence, room);
    }

    /// Drops the messages of a batch.
    pub fn abandon(&mut self) {
        for index in (0..core::mem::take(&mut self.staged_count)).rev() {
            let Staged { header, room, .. } = self.staged[index];
            if header > INLINE_BYTES_MAX as u64 {
                self.area(header).put_back(room);
            }
        }
    }

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
            // The receivers that have not come by now join like any other.
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

    fn can_claim(&self) -> bool {
        let run = self.wanted;
        // ORDER(C1): as in `claim`.
        let old = self.roster.slots.at(self.tail).stamp().load(order!(C1: Acquire));
        let is_ours = self.is_below_limit() && self.is_over(self.tail, old, run);
        ahead_of(old, self.tail) >= 0 || is_ours
    }

    fn is_below_limit(&self) -> bool {
        self.tail + self.wanted <= self.limit()
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

    /// Sets the limit on each sleep, in ns. Default: [`SLEEP_CAP_NS`](crate::doorbell::SLEEP_CAP_NS).
    pub fn set_sleep_cap(&mut self, cap_ns: u64) {
        self.sleeper.set_cap(cap_ns);
    }

    /// Sleeps until there may be room, a notice arrives, or `limit_ns` or the cap has passed; then
    /// refreshes. `ready` checks the awaited condition. If only the cap's end showed that it holds,
    /// that is counted.
    pub fn sleep_until(&mut self, limit_ns: u64, ready: impl Fn(&Self) -> bool) {
        self.sleep(limit_ns, Self::waits_for_stamp, ready);
    }

    /// As [`Sender::sleep_until`], for a caller that waits until receivers have read, whatever
    /// other senders do.
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

    /// Leaves the channel. Messages already sent will be delivered.
    pub fn leave(&mut self) {
        self.publish_counters();
        self.roster.vacate(Party::Sender, self.entrance, &self.host);
    }

    /// Writes the privately kept counters to the segment.
    pub fn publish_counters(&self) {
        let row = self.entrance.row;
        self.roster.ring.counter(row, SenderCounter::Messages).store(self.sent, Relaxed);
        self.roster.ring.counter(row, SenderCounter::Bytes).store(self.bytes, Relaxed);
    }

    fn add(&self, counter: SenderCounter, count: u64) {
        let word = self.roster.ring.counter(self.entrance.row, counter);
        word.store(word.load(Relaxed).wrapping_add(count), Relaxed);
    }

    /// Counts one wait for room.
    pub fn count_wait(&self) {
        self.add(SenderCounter::Waits, 1);
    }

    /// One of this sender's counters, as last written to the segment.
    #[must_use]
    pub fn counter(&self, counter: SenderCounter) -> u64 {
        self.roster.ring.counter(self.entrance.row, counter).load(Relaxed)
    }
}

impl<H> fmt::Debug for Sender<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender").field("entrance", &self.entrance).finish_non_exhaustive()
    }
}

/// A message that is being composed. Dropping it sends nothing.
#[derive(Debug)]
pub struct Loan<'a, H: Host> {
    sender: &'a mut Sender<H>,
    place: Place,
}

#[derive(Debug)]
enum Place {
    Slot(Inline, usize),
    Room { room: Room, payload: Payload, target: Option<Payload> },
    Gone,
}

impl<H: Host> Loan<'_, H> {
    /// The payload, as written so far.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        match &self.place {
            Place::Slot(inline, bytes) => &inline.0[..*bytes],
            // SAFETY: this sender's own room, not published yet; the sender is borrowed meanwhile.
            Place::Room { payload, .. } => unsafe { payload.as_own_slice() },
            Place::Gone => &[],
        }
    }

    /// The payload. Its content is meaningless until it is written. Up to 48 bytes are 16-byte
    /// aligned, more are 64-byte aligned.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        match &mut self.place {
            Place::Slot(inline, bytes) => &mut inline.0[..*bytes],
            // SAFETY: as for `bytes`.
            Place::Room { payload, .. } => unsafe { payload.as_mut_slice() },
            Place::Gone => &mut [],
        }
    }

    /// Shortens the message to `bytes`, if it is longer.
    pub fn truncate(&mut self, bytes: usize) {
        match &mut self.place {
            Place::Slot(_, length) => *length = bytes.min(*length),
            Place::Room { payload, .. } => payload.truncate(bytes),
            Place::Gone => {}
        }
    }

    /// Claims a slot for the message and publishes it. While there is no slot, calls `wait`, which
    /// waits or gives up.
    ///
    /// # Errors
    /// The error with which `wait` gives up; nothing was sent.
    pub fn send<E>(
        mut self,
        mut wait: impl FnMut(&mut Sender<H>) -> Result<(), E>,
    ) -> Result<(), E> {
        let sequence = match &self.place {
            Place::Slot(inline, bytes) => {
                return self.sender.send_inline(&inline.0[..*bytes], wait);
            }
            _ => self.sender.claim(1, &mut wait)?,
        };
        let Place::Room { room, payload, target } =
            core::mem::replace(&mut self.place, Place::Gone)
        else {
            return Ok(());
        };
        let bytes = payload.bytes() as u64;
        if let Some(mut target) = target {
            // SAFETY: private memory, and the sender is borrowed meanwhile.
            let own = unsafe { payload.as_own_slice() };
            // SAFETY: this sender's own room, not published yet; a receiver that copies from it
            // sees words.
            unsafe { target.copy_in(own) };
        }
        let in_window =
            room.end - room.position <= self.sender.roster.geometry.window_message_bytes_max();
        let header = if in_window { KIND_WINDOW } else { KIND_LARGE };
        self.sender.publish_elsewhere(sequence, header, room, bytes, 1);
        self.sender.finish(sequence + 1, 1);
        Ok(())
    }
}

impl<H: Host> Drop for Loan<'_, H> {
    fn drop(&mut self) {
        if let Place::Room { room, .. } = &self.place {
            let in_window =
                room.end - room.position <= self.sender.roster.geometry.window_message_bytes_max();
            let header = if in_window { KIND_WINDOW } else { KIND_LARGE };
            self.sender.area(header).put_back(*room);
        }
    }
}
