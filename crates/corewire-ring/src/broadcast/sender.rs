//! The data thread's half of a channel's sender.

use alloc::sync::Arc;
use core::mem::ManuallyDrop;

use corewire_layout::counters::SenderCounter;
use corewire_layout::geometry::Geometry;
use corewire_layout::segment::{FenceMode, HINT, Policy, ROWS_WATCHED_MAX, SleepMode};
use corewire_layout::slot::{INLINE_BYTES_MAX, KIND_LARGE, KIND_WINDOW, stamp_of};

use super::WAKES_BY_SENDER_MAX;
use super::members::{Channel, Members};
use super::words::{SenderWords, add};
use crate::channel::{Area, Pace, Room, SenderShared, Slowest, Span, slots_ahead};
use crate::doorbell::{self, Bell, Bells, Sleeper, Slept, WAKE_ALL};
use crate::region::{Access, Payload, Place, Region, Rows, Slot, Slots, Store};
use crate::sync::Ordering::Relaxed;
use crate::{Control, Host, Kernel, Lock, fence_at, order};

/// The window is filled in spans of this fraction of it, or of one message if that is larger. Fewer
/// spans cost less bookkeeping; with more spans room is freed sooner.
const SPANS: u64 = 16;

/// The parts of a sender.
#[derive(Debug)]
pub struct SenderParts {
    /// The sender's segment, writable, with its header written.
    pub segment: Region,
    /// What happens with slow receivers.
    pub policy: Policy,
    /// Private memory for the largest message, unless the policy is `Block`: messages are composed
    /// there. Receivers may copy a message out while it is written over, so it must be written in
    /// words and cannot be lent.
    pub staging: Option<Region>,
    /// The segment's sizes.
    pub geometry: Geometry,
    /// The receivers' pages.
    pub rows: Rows,
    /// The hint segment, if the channel is made for more than 8 receivers, all of the same user.
    pub hint: Option<Region>,
    /// What the sender shares with the control thread.
    pub shared: Arc<SenderShared>,
}

/// The data thread's half of a sender.
#[derive(Debug)]
pub struct Sender<H> {
    slots: Slots,
    /// The next message's sequence number.
    head: u64,
    shared: Arc<SenderShared>,
    fenced: bool,
    hint: Option<Region>,
    rows: Rows,
    policy: Policy,
    staging: Option<Store>,
    /// Under `Overwrite`: messages below this one may be overwritten.
    floor: u64,
    /// Messages that every receiver has finished with, as of the last refresh.
    read_by_all: u64,
    /// The member that held the sender back most at the last refresh.
    slowest: Option<Slowest>,
    pace: Pace,
    /// In a stream: how many slots ahead of the next message lines are fetched. Otherwise 0.
    fetch_ahead: u64,
    /// True if the sender lends in place and needs neither fences nor a hint. One check then
    /// replaces three: a load that a message does not need costs a hundredth of a stream's rate.
    is_plain: bool,
    sleeper: Sleeper,
    /// Payload bytes sent outside the slots.
    bytes: u64,
    geometry: Geometry,
    window: Area,
    /// The part of the window that is being filled.
    span: Span,
    window_store: Store,
    large: Area,
    large_store: Store,
    words: SenderWords,
    host: H,
}

impl<H: Host> Sender<H> {
    /// A sender that has sent nothing yet. Its limit is 0, so the first message takes the slow
    /// path.
    #[must_use]
    pub fn new(parts: SenderParts, host: H) -> Self {
        let SenderParts { segment, policy, staging, geometry, rows, hint, shared } = parts;
        let slots = geometry.slots();
        let staging = staging.map(|memory| Store::new(&memory, 0, memory.bytes() as u64));
        Self {
            slots: Slots::new(&segment, &geometry),
            head: 0,
            fenced: shared.is_fenced(),
            shared,
            hint: hint.filter(|_| geometry.receivers_max() > u64::from(ROWS_WATCHED_MAX)),
            rows,
            policy,
            staging,
            floor: 0,
            read_by_all: 0,
            slowest: None,
            pace: Pace::default(),
            fetch_ahead: 0,
            is_plain: false,
            sleeper: Sleeper::new(0),
            bytes: 0,
            geometry,
            window: Area::new(geometry.window_bytes(), slots, false),
            span: Span::default(),
            window_store: Store::new(&segment, geometry.window_offset(0), geometry.window_bytes()),
            large: Area::new(geometry.large_bytes(), slots, true),
            large_store: Store::new(&segment, geometry.large_offset(0), geometry.large_bytes()),
            words: SenderWords::new(segment),
            host,
        }
    }

    /// Makes `first` the number of the first message, as if this sender had sent all messages
    /// before it: for the sender of a relay, which continues the numbers of another ring. Must be
    /// called before any other thread sees the ring, whose [`Members`] must begin with the same
    /// number.
    pub fn begin_with(&mut self, first: u64) {
        for before in first.saturating_sub(self.slots.count())..first {
            self.slots.at(before).stamp().store(stamp_of(before), Relaxed);
        }
        self.head = first;
        self.read_by_all = first;
        self.publish_counters();
    }

    /// Messages sent so far.
    #[inline]
    #[must_use]
    pub fn head(&self) -> u64 {
        self.head
    }

    /// The channel's sizes.
    #[inline]
    #[must_use]
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// What happens with slow receivers.
    #[inline]
    #[must_use]
    pub fn policy(&self) -> Policy {
        self.policy
    }

    /// The member that held the sender back most at the last refresh.
    #[must_use]
    pub fn slowest(&self) -> Option<Slowest> {
        self.slowest
    }

    /// The processor that the receiver of `row` last ran on. A hint.
    #[must_use]
    pub fn receiver_cpu(&self, row: u32) -> u32 {
        self.rows.cpu(row).load(Relaxed)
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

    /// Claims the next message, of `bytes` bytes, which must not exceed the channel's maximum.
    /// While there is no room, calls `wait`, which makes room ([`Sender::refresh`]) or gives up.
    ///
    /// # Errors
    /// The error with which `wait` gives up.
    #[inline(always)]
    pub fn loan_with<L, W, E>(&mut self, bytes: usize, lock: &L, wait: W) -> Result<Loan<'_, H>, E>
    where
        L: Lock<Members>,
        W: FnMut(&mut Self) -> Result<(), E>,
    {
        let mut wait = wait;
        while self.head >= self.shared.limit.load(Relaxed) {
            wait(self)?;
        }
        if bytes <= INLINE_BYTES_MAX {
            let slot = self.next_slot();
            let payload = slot.payload(bytes, self.access());
            let claim = self.claim(slot, bytes as u64, payload, None);
            return Ok(Loan { sender: self, claim });
        }
        loop {
            if let Some(room) = self.span.find(bytes as u64) {
                let claim = self.claim_in_span(bytes as u64, room);
                return Ok(Loan { sender: self, claim });
            }
            if bytes as u64 > self.geometry.window_message_bytes_max() {
                return self.loan_large(bytes, lock, wait);
            }
            while !self.open_span(bytes as u64) {
                wait(self)?;
            }
        }
    }

    /// Claims the next slot, and `room` in the span.
    #[inline(always)]
    fn claim_in_span(&mut self, length: u64, room: Room) -> Claim {
        let place = self.span.place(room);
        self.span.go_on_at(room.end);
        let payload = self.window_store.payload_at(place, length, self.access());
        let slot = self.next_slot();
        slot.position().store(room.position, Relaxed);
        slot.length().store(length, Relaxed);
        self.claim(slot, KIND_WINDOW, payload, Some(room))
    }

    /// Opens the next span of the window, with room for at least `length` bytes. False if there is
    /// no such room now.
    #[inline(never)]
    fn open_span(&mut self, length: u64) -> bool {
        self.span.close(&mut self.window);
        let window_bytes = self.geometry.window_bytes();
        let most = self.window.find(length.max(window_bytes / SPANS));
        let Some(room) = most.or_else(|| self.window.find(length)) else { return false };
        if self.head >= self.shared.limit.load(Relaxed) {
            return false;
        }
        self.window.take(room);
        self.span = Span::of(room, window_bytes);
        self.shared.window_reserved.store(room.end, Relaxed);
        true
    }

    /// The slot that is written next.
    #[inline(always)]
    fn next_slot(&self) -> Slot<'_> {
        self.slots.at(self.head + self.fetch_ahead).prefetch_to_write();
        self.slots.at(self.head)
    }

    #[inline(always)]
    fn access(&self) -> Access {
        if self.staging().is_some() { Access::Words } else { Access::Write }
    }

    #[inline(always)]
    fn staging(&self) -> Option<&Store> {
        if self.is_plain { None } else { self.staging.as_ref() }
    }

    /// A claim of the next slot and of `target`. The loan lends `target` itself, or staging memory
    /// that is copied to `target` later.
    #[inline(always)]
    fn claim(&self, slot: Slot<'_>, header: u64, target: Payload, room: Option<Room>) -> Claim {
        let (payload, target) = match self.staging() {
            None => (target, None),
            Some(staging) => {
                let payload = staging.payload(0, target.bytes() as u64, Access::Write);
                (payload.expect("memory for the largest message"), Some(target))
            }
        };
        Claim { sequence: self.head, place: slot.place(), header, payload, target, room }
    }

    /// The slow path of [`Sender::loan_with`], for a payload that does not fit the window.
    #[inline(never)]
    fn loan_large<L, W, E>(&mut self, bytes: usize, lock: &L, mut wait: W) -> Result<Loan<'_, H>, E>
    where
        L: Lock<Members>,
        W: FnMut(&mut Self) -> Result<(), E>,
    {
        let length = bytes as u64;
        let room = loop {
            match self.large.find(length) {
                Some(room) if self.claims_large(room, lock) => break room,
                _ => wait(self)?,
            }
        };
        self.large.take(room);
        let payload = self.large_store.payload(room.position, length, self.access());
        let slot = self.slots.at(self.head);
        slot.position().store(room.position, Relaxed);
        slot.length().store(length, Relaxed);
        let claim = self.claim(slot, KIND_LARGE, payload.expect("own area"), Some(room));
        Ok(Loan { sender: self, claim })
    }

    /// Is the next message still ours to claim? A reservation in the large area may have any size,
    /// so a joiner must know of it before choosing its first message, or revoke the limit first.
    /// For the window the joiner leaves room instead.
    fn claims_large<L: Lock<Members>>(&self, room: Room, lock: &L) -> bool {
        lock.with(|members| {
            let is_open = self.head < self.shared.limit.load(Relaxed);
            if is_open {
                // Never lowered, even if the loan is put back: those bytes were written.
                members.large_reserved = members.large_reserved.max(room.end);
            }
            is_open
        })
    }

    /// Sends a message that fits in a slot, if a slot is free. Returns false otherwise, and then
    /// nothing is done. This path makes no store that the message does not need: if one store waits
    /// in the store buffer, all later stores wait too.
    #[inline(always)]
    pub fn try_send_inline(&mut self, message: &[u8]) -> bool {
        let head = self.head;
        if message.len() > INLINE_BYTES_MAX || head >= self.shared.limit.load(Relaxed) {
            return false;
        }
        let slot = self.next_slot();
        let access = self.access();
        let mut payload = slot.payload(message.len(), access);
        if access == Access::Words {
            // SAFETY: the slot is below the limit, so it is claimed and not published.
            unsafe { payload.copy_in(message) };
        } else {
            // SAFETY: as above; and no receiver copies from it meanwhile.
            unsafe { payload.fill(message) };
        }
        publish(slot, head, message.len() as u64);
        self.head = head + 1;
        if self.someone_sleeps() {
            self.ring_bell();
        }
        true
    }

    /// The fence after every stamp.
    #[inline(always)]
    fn fence(&self) {
        doorbell::fence_after_store(!self.is_plain && self.fenced);
    }

    /// Records the message that the room last given out is for, and counts its length.
    #[inline(always)]
    fn keep_room(&mut self, header: u64, length: usize) {
        self.bytes += length as u64;
        if header == KIND_WINDOW {
            self.span.publish(self.head);
        } else {
            self.large.publish(self.head);
        }
    }

    /// Does any receiver sleep in an epoch that has not been served yet?
    #[inline(always)]
    #[must_use]
    pub fn someone_sleeps(&self) -> bool {
        self.fence();
        match self.hint() {
            Some(hint) => hint.word32(HINT).load(Relaxed) != 0,
            None => {
                let watched = self.shared.watched.load(Relaxed);
                let acked = self.shared.acked_watched().iter().take(watched as usize);
                (0u32..).zip(acked).any(|(row, acked)| {
                    self.rows.sleeping(row).load(Relaxed) != acked.load(Relaxed)
                }) || (watched > ROWS_WATCHED_MAX && self.someone_else_sleeps(watched))
            }
        }
    }

    #[inline(always)]
    fn hint(&self) -> Option<&Region> {
        if self.is_plain { None } else { self.hint.as_ref() }
    }

    /// The rest of [`Sender::someone_sleeps`] for a channel of many receivers that has no hint
    /// because not all their processes are trusted: every row costs a load.
    fn someone_else_sleeps(&self, watched: u32) -> bool {
        (ROWS_WATCHED_MAX..watched).any(|row| {
            self.rows.sleeping(row).load(Relaxed) != self.shared.acked(row).load(Relaxed)
        })
    }

    /// Wakes the sleeping receivers. The slow path of every send.
    #[cold]
    #[inline(never)]
    pub fn ring_bell(&mut self) {
        self.publish_counters();
        if let Some(hint) = &self.hint {
            // ORDER(W11): pairs with W10; the epochs of all receivers whose hints this clears are
            // seen below.
            hint.word32(HINT).swap(0, order!(W11: Acquire));
        }
        let mut sleepers = 0;
        let mut descriptors = 0;
        for row in 0..self.shared.watched.load(Relaxed) {
            let served = self.shared.acked(row);
            let before = served.load(Relaxed);
            let epoch = doorbell::epoch_of(self.rows.sleeping(row));
            // If the row changes hands here, this epoch may be that of its previous receiver, and
            // the next receiver may come to show the same value.
            if epoch == before || served.compare_exchange(before, epoch, Relaxed, Relaxed).is_err()
            {
                continue;
            }
            match doorbell::mode_of(epoch, self.rows.sleep_mode(row)) {
                None => {}
                Some(SleepMode::Descriptor) => {
                    self.host.control().wake_descriptor(row);
                    descriptors += 1;
                }
                Some(SleepMode::Futex) => sleepers += 1,
            }
        }
        if sleepers + descriptors == 0 {
            add(self.words.counter(SenderCounter::EmptyScans), 1);
            return;
        }
        add(self.words.counter(SenderCounter::Wakes), 1);
        if sleepers > 0 {
            self.ring(sleepers);
        }
    }

    fn ring(&self, sleepers: u32) {
        // Not only as many as were counted: a receiver that fell asleep since may be queued first.
        let is_many = sleepers > WAKES_BY_SENDER_MAX;
        let count_max = if is_many { WAKES_BY_SENDER_MAX } else { WAKE_ALL };
        doorbell::ring(self.words.bell(), count_max, self.host.kernel());
        if is_many {
            self.host.control().wake_rest();
        }
    }

    /// Reads the cursors, frees the room of what every receiver has read, and sets a new limit. The
    /// slow path of every claim. Returns the member that now holds the sender back most.
    #[inline(never)]
    pub fn refresh<L: Lock<Members>>(&mut self, lock: &L) -> Option<Slowest> {
        self.publish_counters();
        let (head, slots) = (self.head, self.slots.count());
        let overwrites = self.policy == Policy::Overwrite;
        self.pace.note(head, || self.host.kernel().now_ns());
        if overwrites {
            self.raise_floor((head + self.stretch()).saturating_sub(slots));
        }
        let Self { rows, window, large, shared, fenced, read_by_all, floor, .. } = self;
        let slowest = lock.with(|members| {
            // Under the lock, so that a demand for fences made before a join takes effect after it.
            *fenced = shared.is_fenced();
            if let Some(position) = members.window_held_from.take() {
                window.hold_from(position);
            }
            if let Some(position) = members.large_held_from.take() {
                large.hold_from(position);
            }
            let slowest = members.slowest(rows, head, head);
            let cursor = slowest.map_or(head, |slowest| slowest.cursor);
            *read_by_all = cursor;
            let given_up = if overwrites { *floor } else { cursor };
            window.free_before(given_up);
            large.free_before(given_up);
            let is_open =
                members.invited() == 0 && !members.has_violators() && shared.notices() == 0;
            let limit = match slowest {
                _ if !is_open => 0,
                _ if overwrites => *floor + slots,
                Some(slowest) => slowest.cursor + slots,
                None => u64::MAX,
            };
            shared.limit.store(limit, Relaxed);
            slowest
        });
        self.fetch_ahead = if self.pace.is_stream() { slots_ahead(slots) } else { 0 };
        self.is_plain = self.staging.is_none() && self.hint.is_none() && !self.fenced;
        self.slowest = slowest;
        slowest
    }

    /// Under `Overwrite`: number of messages for which one run of the slow path is worth its cost.
    fn stretch(&self) -> u64 {
        (self.slots.count() / 8).max(1)
    }

    /// Gives up the messages below `floor`: from now on they may be overwritten.
    fn raise_floor(&mut self, floor: u64) {
        if floor > self.floor {
            self.floor = floor;
            self.words.floor().store(floor, Relaxed);
            // ORDER(O1): pairs with O2; a receiver that copies anything written from here on sees
            // the floor.
            fence_at!(O1: Release);
        }
    }

    /// Under `Overwrite`: gives up the oldest messages until there is room for `bytes` outside the
    /// slots, and an eighth of the area in addition, so that this happens rarely.
    pub fn give_up_for(&mut self, bytes: usize) {
        if self.policy != Policy::Overwrite || bytes <= INLINE_BYTES_MAX {
            return;
        }
        let in_window = bytes as u64 <= self.geometry.window_message_bytes_max();
        if in_window && self.span.find(bytes as u64).is_some() {
            return;
        }
        let (area, area_bytes) = if in_window {
            self.span.close(&mut self.window);
            (&mut self.window, self.geometry.window_bytes())
        } else {
            (&mut self.large, self.geometry.large_bytes())
        };
        let mut floor = self.floor;
        while (area.find(bytes as u64).is_none() || area.free_bytes() < area_bytes / 8)
            && let Some(oldest) = area.oldest()
        {
            floor = oldest + 1;
            area.free_before(floor);
        }
        self.raise_floor(floor);
    }

    /// Under `Evict`: evicts the receivers that, at `now_ns`, have held this sender back from
    /// `bytes` more bytes for the allowed time. Must be called while the sender waits. Returns true
    /// if any receiver was evicted; then there may be room.
    pub fn evict_stalled<L: Lock<Members>>(&mut self, bytes: usize, now_ns: u64, lock: &L) -> bool {
        let Policy::Evict { after_ns } = self.policy else { return false };
        let area = if bytes as u64 <= self.geometry.window_message_bytes_max() {
            &self.window
        } else {
            &self.large
        };
        // A receiver that has passed this much holds nothing back: the slot, and the area's oldest
        // payload.
        let slot_wanted = (self.head + 1).saturating_sub(self.slots.count());
        let is_inline = bytes <= INLINE_BYTES_MAX;
        let area_wanted = area.oldest().filter(|_| !is_inline).map_or(0, |oldest| oldest + 1);
        let (wanted, head) = (slot_wanted.max(area_wanted), self.head);
        let Self { shared, slots, words, geometry, policy, .. } = self;
        let channel = Channel { shared, slots, words, geometry, policy: *policy };
        lock.with(|members| members.evict_stalled(now_ns, after_ns, (wanted, head), &channel))
    }

    /// Under `Evict`: resets the stall times of slow receivers, since the sender has room.
    pub fn forget_stalls<L: Lock<Members>>(&self, lock: &L) {
        if matches!(self.policy, Policy::Evict { .. }) {
            lock.with(|members| members.forget_stalls(|| self.host.kernel().now_ns()));
        }
    }

    /// Has every receiver finished with everything that was sent, as of the last refresh?
    #[must_use]
    pub fn is_drained(&self) -> bool {
        self.read_by_all == self.head
    }

    /// Is there a slot for the next message, and room for `bytes` bytes?
    #[must_use]
    pub fn has_room(&self, bytes: usize) -> bool {
        let length = bytes as u64;
        let fits = if bytes <= INLINE_BYTES_MAX {
            true
        } else if length <= self.geometry.window_message_bytes_max() {
            self.span.find(length).is_some()
                || self.window.find_beside(&self.span, length).is_some()
        } else {
            self.large.find(length).is_some()
        };
        fits && self.head < self.shared.limit.load(Relaxed)
    }

    /// Sets the limit on each sleep, in ns. Default: [`SLEEP_CAP_NS`](crate::doorbell::SLEEP_CAP_NS).
    pub fn set_sleep_cap(&mut self, cap_ns: u64) {
        self.sleeper.set_cap(cap_ns);
    }

    /// Sleeps until a receiver makes room, the membership changes, a notice arrives, or `limit_ns`
    /// or the cap has passed; then refreshes. `ready` checks the awaited condition. If only the
    /// cap's end showed that it holds, that is counted.
    pub fn sleep_until<L: Lock<Members>>(
        &mut self,
        lock: &L,
        limit_ns: u64,
        ready: impl Fn(&Self) -> bool,
    ) {
        let own = doorbell::listen(self.shared.own());
        let slowest = self.refresh(lock);
        let rows = self.rows.clone();
        let word = slowest.map(|slowest| rows.wake(slowest.row));
        // Read before `blocked` is stored: otherwise a receiver's answer to `blocked` could be taken
        // for the value to sleep on.
        let heard = word.map(doorbell::listen);
        self.sleeper.announce(self.words.blocked());
        // A receiver that stores a cursor from here on checks `blocked` afterwards, and the refresh
        // sees a cursor stored before.
        let is_sure = doorbell::barrier(FenceMode::Fenced, self.host.kernel());
        let unchanged = self.refresh(lock) == slowest;
        if unchanged && !ready(self) && self.shared.notices() == 0 {
            add(self.words.counter(SenderCounter::Sleeps), 1);
            let shared = Arc::clone(&self.shared);
            let bells = Bells {
                shared: word.zip(heard).map(|(word, heard)| Bell { word, heard }),
                own: Some(Bell { word: shared.own(), heard: own }),
            };
            let slept = self.sleeper.sleep(bells, limit_ns, is_sure, self.host.kernel());
            let is_found = slept == Slept::Capped && {
                self.refresh(lock);
                ready(self)
            };
            if self.sleeper.is_cap_find(slept, bells, is_found) {
                add(self.words.counter(SenderCounter::CapFinds), 1);
            }
        }
        self.sleeper.retract(self.words.blocked());
        self.refresh(lock);
    }

    /// Ends the channel after the last message and wakes all receivers.
    pub fn close(&mut self) {
        self.publish_counters();
        // ORDER(B8): pairs with B9; the last messages are visible with the end.
        self.words.closed().store(self.head.wrapping_add(1), order!(B8: Release));
        if self.someone_sleeps() {
            self.ring_bell();
        }
    }

    /// Writes the privately kept counters to the segment.
    pub fn publish_counters(&self) {
        self.words.counter(SenderCounter::Messages).store(self.head, Relaxed);
        self.words.counter(SenderCounter::Bytes).store(self.bytes, Relaxed);
        self.words.cpu().store(self.host.kernel().cpu(), Relaxed);
    }

    /// Counts one wait for room.
    pub fn count_wait(&self) {
        add(self.words.counter(SenderCounter::Waits), 1);
    }

    /// One of the data thread's counters, as last written to the segment.
    #[must_use]
    pub fn counter(&self, counter: SenderCounter) -> u64 {
        self.words.counter(counter).load(Relaxed)
    }
}

/// Makes message `sequence`, whose payload is written, visible to receivers.
#[inline(always)]
fn publish(slot: Slot<'_>, sequence: u64, header: u64) {
    slot.header().store(header, Relaxed);
    // ORDER(B1): pairs with B2; makes header and payload visible with the stamp.
    slot.stamp().store(stamp_of(sequence), order!(B1: Release));
}

/// A claimed message that is being written in place. Dropping it takes the claim back.
#[derive(Debug)]
pub struct Loan<'a, H: Host> {
    sender: &'a mut Sender<H>,
    claim: Claim,
}

#[derive(Debug)]
struct Claim {
    sequence: u64,
    /// The place of the message's slot.
    place: Place,
    header: u64,
    /// The memory that is lent.
    payload: Payload,
    /// Where the payload is copied to, if it is not lent in place.
    target: Option<Payload>,
    room: Option<Room>,
}

impl Claim {
    /// Copies a payload that was composed in staging memory to its place.
    #[inline(always)]
    fn settle(&mut self) {
        if let Some(target) = &mut self.target {
            // SAFETY: composed by this sender alone, and no other reference to it exists.
            let source = unsafe { self.payload.as_own_slice() };
            // SAFETY: claimed and not published; a receiver that copies from it meanwhile sees
            // words.
            unsafe { target.copy_in(source) };
        }
    }
}

impl<H: Host> Loan<'_, H> {
    /// The payload. Its content is meaningless until it is written.
    #[inline(always)]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: the message is claimed and not published, so no receiver reads its bytes, and the
        // sender that owns the mapping is borrowed for as long as the slice lives.
        unsafe { self.claim.payload.as_mut_slice() }
    }

    /// The payload as written so far.
    #[inline(always)]
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: as for `bytes_mut`; no other thread writes it while it is claimed.
        unsafe { self.claim.payload.as_own_slice() }
    }

    /// Writes the whole payload.
    ///
    /// # Panics
    /// If `source` and the loan differ in length.
    #[inline(always)]
    pub fn fill(&mut self, source: &[u8]) {
        // SAFETY: as for `bytes_mut`.
        unsafe { self.claim.payload.fill(source) }
    }

    /// Shortens the message to `bytes`, if it is longer.
    pub fn truncate(&mut self, bytes: usize) {
        if bytes < self.claim.payload.bytes() {
            self.claim.payload.truncate(bytes);
            match &mut self.claim.room {
                None => self.claim.header = bytes as u64,
                Some(room) => {
                    let in_window = self.claim.header == KIND_WINDOW;
                    let sender = &mut *self.sender;
                    if in_window {
                        sender.span.go_on_at(room.position);
                        if let Some(less) = sender.span.find(bytes as u64) {
                            *room = less;
                        }
                        sender.span.go_on_at(room.end);
                    } else {
                        sender.large.shrink(room, bytes as u64);
                    }
                    let length = self.sender.slots.at(self.sender.head).length();
                    length.store(bytes as u64, Relaxed);
                }
            }
        }
    }

    /// Publishes the message and wakes sleeping receivers.
    #[inline(always)]
    pub fn send(self) {
        let mut this = ManuallyDrop::new(self);
        this.publish();
        if this.sender.someone_sleeps() {
            this.sender.ring_bell();
        }
    }

    /// Publishes the message without checking for sleepers; the caller rings the bell once for many
    /// messages.
    #[inline(always)]
    pub fn send_quietly(self) {
        let mut this = ManuallyDrop::new(self);
        this.publish();
        // A joiner relies on at most one message without a fence.
        this.sender.fence();
    }

    #[inline(always)]
    fn publish(&mut self) {
        self.claim.settle();
        let Claim { sequence, place, header, ref payload, .. } = self.claim;
        // SAFETY: the place of this claim's slot, in this sender's ring.
        publish(unsafe { self.sender.slots.at_place(place) }, sequence, header);
        if header > INLINE_BYTES_MAX as u64 {
            self.sender.keep_room(header, payload.bytes());
        }
        self.sender.head = sequence + 1;
    }
}

impl<H: Host> Drop for Loan<'_, H> {
    #[inline]
    fn drop(&mut self) {
        if let Some(room) = self.claim.room {
            let sender = &mut *self.sender;
            if self.claim.header == KIND_WINDOW {
                sender.span.go_on_at(room.position);
            } else {
                sender.large.put_back(room);
            }
        }
    }
}
