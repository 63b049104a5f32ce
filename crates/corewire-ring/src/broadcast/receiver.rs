//! The receiver's half of a channel.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Deref;

use corewire_layout::counters::ReceiverCounter;
use corewire_layout::frame::Welcome;
use corewire_layout::geometry::Geometry;
use corewire_layout::segment::{DoorState, FenceMode, HINT, Policy, SleepMode, tenure};
use corewire_layout::slot::{
    INLINE_BYTES_MAX, KIND_LARGE, KIND_WINDOW, ahead_of, owner_of, publishes, stamp_of,
};

use super::words::{ReceiverWords, SenderWords, add};
use crate::channel::{End, ReceiverShared, Violation, slots_ahead};
use crate::doorbell::{self, Bell, Bells, Sleeper, Slept, notice};
use crate::region::{Access, Payload, Region, Slot, Slots, Store};
use crate::shared::{Many, ManyParts};
use crate::sync::Ordering::Relaxed;
use crate::{Host, Kernel, Trusted, fence_at, order};

/// After this many losses in a row, a receiving call calls its `wait`.
const LOSSES_AT_A_TIME: u32 = 64;
/// No sender gets this far: a higher floor is impossible.
const FLOOR_MAX: u64 = u64::MAX / 2;

/// Proof that a channel's messages may be read in place: the sender is trusted, and overwrites no
/// message before every receiver has passed it.
#[derive(Debug, Clone, Copy)]
pub struct InPlace(Trusted);

/// The parts of a receiver.
#[derive(Debug)]
pub struct ReceiverParts {
    /// The sender's segment, read-only, with its header checked.
    pub sender: Region,
    /// The sizes given by that header.
    pub geometry: Geometry,
    /// How the sender makes its stamps visible to sleepers.
    pub fence_mode: FenceMode,
    /// What happens with slow receivers.
    pub policy: Policy,
    /// The receiver's own segment, writable, with its header written.
    pub own: Region,
    /// The hint segment, writable, if the channel has one.
    pub hint: Option<Region>,
    /// The owner's answer to the request to join.
    pub welcome: Welcome,
    /// What the receiver shares with its control thread.
    pub shared: Arc<ReceiverShared>,
    /// The senders, if the channel is shared.
    pub many: Option<ManyParts>,
}

/// A receiver.
#[derive(Debug)]
pub struct Receiver<H> {
    slots: Slots,
    /// The first message that this receiver was to get.
    first: u64,
    /// Sequence number of the next message, which may be being read. All earlier ones are finished.
    next: u64,
    /// The cursor is published when `next` gets here.
    publish_at: u64,
    /// The cursor as published.
    published: u64,
    /// Publish the cursor after this many messages.
    batch: u64,
    /// How many slots ahead of the next message lines are fetched. 0 unless the sender is known to
    /// be well ahead: it must not lose the lines that it is about to write.
    fetch_ahead: u64,
    sleeper: Sleeper,
    /// Payload bytes outside the slots that the published cursor still holds, for each area.
    window_held_bytes: u64,
    large_held_bytes: u64,
    /// Payload bytes received outside the slots.
    bytes: u64,
    /// For each sender.
    windows: Vec<Store>,
    larges: Vec<Store>,
    many: Option<Box<Many>>,
    sender: SenderWords,
    own: ReceiverWords,
    hint: Option<Region>,
    shared: Arc<ReceiverShared>,
    /// The sender's `blocked` epoch as last served.
    blocked_seen: u32,
    fence_mode: FenceMode,
    /// If this receiver asked for fences: messages before this one may come without a fence.
    settled: u64,
    policy: Policy,
    row: u32,
    /// The value of its door while the receiver counts.
    tenure: u64,
    message_bytes_max: u64,
    /// Messages that were overwritten before they were read.
    missed: u64,
    /// Messages that will never come because their senders died after claiming them.
    abandoned: u64,
    /// This receiver has found that it was evicted.
    is_out: bool,
    host: H,
}

impl<H: Host> Receiver<H> {
    /// A receiver that begins at the message that the owner chose.
    #[must_use]
    pub fn new(parts: ReceiverParts, host: H) -> Self {
        let ReceiverParts { sender, geometry, own, hint, welcome, .. } = parts;
        let batch = geometry.cursor_batch();
        let senders = || 0..u32::try_from(geometry.senders_max()).unwrap_or(u32::MAX);
        let receiver = Self {
            slots: Slots::new(&sender, &geometry),
            first: welcome.start,
            next: welcome.start,
            publish_at: welcome.start.saturating_add(batch),
            published: welcome.start,
            batch,
            fetch_ahead: 0,
            sleeper: Sleeper::new(welcome.epoch),
            window_held_bytes: 0,
            large_held_bytes: 0,
            bytes: 0,
            windows: senders()
                .map(|row| {
                    Store::new(&sender, geometry.window_offset(row), geometry.window_bytes())
                })
                .collect(),
            larges: senders()
                .map(|row| Store::new(&sender, geometry.large_offset(row), geometry.large_bytes()))
                .collect(),
            many: parts.many.map(|many| Box::new(Many::new(many))),
            sender: SenderWords::new(sender),
            own: ReceiverWords::new(own),
            hint,
            shared: parts.shared,
            blocked_seen: 0,
            fence_mode: parts.fence_mode,
            settled: welcome.settled,
            policy: parts.policy,
            row: welcome.row,
            tenure: tenure(welcome.generation, DoorState::Joined),
            message_bytes_max: geometry.message_bytes_max(),
            missed: 0,
            abandoned: 0,
            is_out: false,
            host,
        };
        receiver.own.sleeping().store(receiver.sleeper.epoch(), Relaxed);
        // No processor until it has slept once.
        receiver.own.cpu().store(u32::MAX, Relaxed);
        // The counters there may still be those of the row's previous holder.
        for (counter, _) in ReceiverCounter::ALL {
            receiver.own.counter(counter).store(0, Relaxed);
        }
        receiver
    }

    /// Returns the proof if messages of a sender that is trusted like this may be read in place.
    #[must_use]
    pub fn in_place(&self, trusted: Trusted) -> Option<InPlace> {
        self.policy.keeps_messages().then_some(InPlace(trusted))
    }

    /// The sequence number of the next message.
    #[inline]
    #[must_use]
    pub fn next(&self) -> u64 {
        self.next
    }

    /// What the receiver shares with its control thread.
    #[must_use]
    pub fn shared(&self) -> &Arc<ReceiverShared> {
        &self.shared
    }

    /// The receiver's operating system and control thread.
    #[must_use]
    pub fn host(&self) -> &H {
        &self.host
    }

    /// Did the sender last run on this very processor, or that of several that last woke receivers?
    /// A hint: then it cannot send while this thread runs.
    #[must_use]
    pub fn is_sender_here(&self) -> bool {
        self.sender.cpu().load(Relaxed) == self.host.kernel().cpu()
    }

    /// Is the next message there? One load.
    #[inline(always)]
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.has(self.next)
    }

    #[inline(always)]
    fn has(&self, sequence: u64) -> bool {
        let stamp = self.slots.at(sequence).stamp().load(Relaxed);
        stamp == stamp_of(sequence) || (self.many.is_some() && publishes(stamp, sequence))
    }

    /// Does `stamp` publish the next message? In a channel of one sender a stamp holds nothing but
    /// the sequence number.
    #[inline(always)]
    fn is_next(&mut self, stamp: u64) -> bool {
        stamp == stamp_of(self.next) || (self.many.is_some() && self.is_next_of_many(stamp))
    }

    #[inline]
    fn is_next_of_many(&mut self, stamp: u64) -> bool {
        let is_next = publishes(stamp, self.next);
        if let Some(many) = self.many.as_mut().filter(|_| is_next) {
            many.note(self.next, stamp);
        }
        is_next
    }

    /// Passes messages that will never come, because the sender that had claimed them is dead. Must
    /// be called while the next message is not there. Returns false if there were none.
    fn pass_abandoned(&mut self) -> bool {
        let mut has_passed = false;
        while let Some(many) = &mut self.many
            && many.is_abandoned(self.next)
        {
            self.next += 1;
            self.abandoned += 1;
            has_passed = true;
        }
        has_passed
    }

    /// The next message, in place. While there is none, calls `wait`, which waits or gives up.
    ///
    /// # Errors
    /// The error with which `wait` gives up, or a [`Violation`].
    #[inline(always)]
    pub fn receive_with<E: From<Violation>>(
        &mut self,
        in_place: InPlace,
        mut wait: impl FnMut(&mut Self) -> Result<(), E>,
    ) -> Result<Message<'_, H>, E> {
        loop {
            let stamp = self.slots.at(self.next).stamp().load(Relaxed);
            if self.is_next(stamp) {
                let slot = self.slots.at(self.next);
                let payload = self.payload_of(slot, self.next, Access::Read)?;
                return Ok(Message { receiver: self, payload, in_place });
            }
            wait(self)?;
        }
    }

    /// The next message, to be copied out. While there is none, calls `wait`, which waits or gives
    /// up.
    ///
    /// # Errors
    /// The error with which `wait` gives up, or a [`Violation`].
    #[inline(always)]
    pub fn snapshot_with<E: From<Violation>>(
        &mut self,
        mut wait: impl FnMut(&mut Self) -> Result<(), E>,
    ) -> Result<Snapshot<'_, H>, E> {
        // A sender that keeps overtaking, or that lies, must not keep this call from returning.
        let mut losses = if self.is_out { LOSSES_AT_A_TIME } else { 0 };
        loop {
            if losses == LOSSES_AT_A_TIME {
                losses = 0;
                wait(self)?;
            }
            let stamp = self.slots.at(self.next).stamp().load(Relaxed);
            if self.is_next(stamp) {
                let slot = self.slots.at(self.next);
                match self.payload_of(slot, self.next, Access::Words) {
                    Ok(payload) => {
                        let sequence = self.next;
                        return Ok(Snapshot { receiver: self, payload, sequence });
                    }
                    // Half of it may already belong to another message.
                    Err(violation) if self.is_kept(self.next) => return Err(violation.into()),
                    Err(_) => self.lose_next(),
                }
                losses = if self.is_out { LOSSES_AT_A_TIME } else { losses + 1 };
            } else if self.policy == Policy::Overwrite && ahead_of(stamp, self.next) > 0 {
                self.catch_up()?;
                losses += 1;
            } else {
                wait(self)?;
            }
        }
    }

    /// Has message `sequence` kept its content during all accesses so far?
    #[inline(always)]
    fn is_kept(&self, sequence: u64) -> bool {
        match self.policy {
            Policy::Block => true,
            Policy::Overwrite => {
                // ORDER(O2): pairs with O1; if anything that was read belongs to a later message,
                // the floor read next is above `sequence`.
                fence_at!(O2: Acquire);
                self.sender.floor().load(Relaxed) <= sequence
            }
            Policy::Evict { .. } => !self.is_evicted(),
        }
    }

    fn is_evicted(&self) -> bool {
        if let Some(many) = &self.many {
            return many.is_evicted();
        }
        // ORDER(E2): pairs with E1; if anything that was read belongs to a later message, the door
        // says that this receiver was evicted.
        fence_at!(E2: Acquire);
        self.sender.door_tenure(self.row).load(Relaxed) != self.tenure
    }

    /// Handles the loss of the next message, which was not kept while it was read.
    #[cold]
    fn lose_next(&mut self) {
        match self.policy {
            Policy::Evict { .. } => self.is_out = true,
            // The sender is about to overtake this receiver, or has done so. All messages that it
            // has given up are lost, and would otherwise be found lost one by one.
            _ => self.lose_up_to(self.resume_above(self.next + 1)),
        }
    }

    /// Passes lost messages, up to `next` exclusive.
    fn lose_up_to(&mut self, next: u64) {
        let count = next - self.next;
        self.missed += count;
        self.next = next;
        add(self.own.counter(ReceiverCounter::Missed), count);
        if self.next >= self.publish_at {
            self.publish_cursor();
        }
    }

    /// Passes the messages that are lost because the sender is more than a lap ahead.
    #[cold]
    #[inline(never)]
    fn catch_up(&mut self) -> Result<(), Violation> {
        // ORDER(O2): pairs with O1; the floor belongs to the stamp that was seen, or to a later
        // one.
        fence_at!(O2: Acquire);
        let floor = self.sender.floor().load(Relaxed);
        if floor <= self.next || floor > FLOOR_MAX {
            return Err(Violation { word: "floor", found: floor, sequence: self.next });
        }
        self.lose_up_to(self.resume_above(floor));
        Ok(())
    }

    /// Where to continue when all messages below `kept` are lost: at a message that the sender will
    /// not reach at once, a quarter of the ring above the oldest message that it keeps; or at that
    /// oldest message if there are not that many.
    fn resume_above(&self, kept: u64) -> u64 {
        let floor = self.sender.floor().load(Relaxed);
        let oldest = if floor > FLOOR_MAX { kept } else { floor.max(kept) };
        let later = oldest + self.slots.count() / 4;
        let stamp = self.slots.at(later).stamp().load(Relaxed);
        if ahead_of(stamp, later) >= 0 { later } else { oldest }
    }

    /// Number of messages that were overwritten before they were read.
    #[must_use]
    pub fn missed(&self) -> u64 {
        self.missed
    }

    /// Number of messages that are there, counted from the next one, up to `count_max`.
    #[must_use]
    pub fn ready_count(&self, count_max: u64) -> u64 {
        let count_max = count_max.min(self.slots.count());
        (0..count_max).find(|&i| !self.has(self.next + i)).unwrap_or(count_max)
    }

    /// The message `index` places after the next one, in place, if it is there. It stays whole
    /// until [`Receiver::done`] is called for it.
    ///
    /// # Errors
    /// A [`Violation`].
    pub fn peek(&self, in_place: InPlace, index: u64) -> Result<Option<&[u8]>, Violation> {
        let sequence = self.next + index;
        if index >= self.slots.count() || !self.has(sequence) {
            return Ok(None);
        }
        let payload = self.payload(sequence)?;
        // SAFETY: published, and the cursor does not pass it while `self` is borrowed. The sender
        // is trusted not to write it until then. `self` keeps the mapping.
        Ok(Some(unsafe { payload.as_slice(in_place.0) }))
    }

    /// The payload of message `sequence`, whose stamp is there. Each word is read once, checked,
    /// and used.
    fn payload(&self, sequence: u64) -> Result<Payload, Violation> {
        self.payload_of(self.slots.at(sequence), sequence, Access::Read)
    }

    #[inline(always)]
    fn payload_of(
        &self,
        slot: Slot<'_>,
        sequence: u64,
        access: Access,
    ) -> Result<Payload, Violation> {
        // ORDER(B2): pairs with B1; header and payload are read after the stamp. (A relaxed load
        // and a fence, since the mapping is read-only.)
        fence_at!(B2: Acquire);
        let header = slot.header().load(Relaxed);
        if header <= INLINE_BYTES_MAX as u64 {
            self.slots.at(sequence + self.fetch_ahead).prefetch_to_read();
            #[expect(clippy::cast_possible_truncation, reason = "at most 48")]
            return Ok(slot.payload(header as usize, access));
        }
        self.payload_elsewhere(slot, sequence, header, access)
    }

    #[inline(never)]
    fn payload_elsewhere(
        &self,
        slot: Slot<'_>,
        sequence: u64,
        header: u64,
        access: Access,
    ) -> Result<Payload, Violation> {
        let stores = match header {
            KIND_WINDOW => &self.windows,
            KIND_LARGE => &self.larges,
            found => return Err(Violation { word: "header", found, sequence }),
        };
        let stamp = slot.stamp().load(Relaxed);
        let Some(store) = stores.get(owner_of(stamp) as usize) else {
            return Err(Violation { word: "stamp", found: stamp, sequence });
        };
        let length = slot.length().load(Relaxed);
        if length > self.message_bytes_max {
            return Err(Violation { word: "length", found: length, sequence });
        }
        let position = slot.position().load(Relaxed);
        let payload = store.payload(position, length, access);
        payload.ok_or(Violation { word: "position", found: position, sequence })
    }

    /// Finishes the next message, of `length` bytes.
    #[inline(always)]
    fn pass(&mut self, length: usize) {
        self.next += 1;
        if length > INLINE_BYTES_MAX {
            self.hold(length as u64);
        }
        if self.next >= self.publish_at {
            self.end_batch();
        }
    }

    /// Publishes the cursor after a batch of messages. Also checks whether the next batch and the
    /// lines prefetched with it are there. (With several senders, earlier messages may still be
    /// missing: it is a hint.)
    #[inline(never)]
    fn end_batch(&mut self) {
        self.publish_cursor();
        let ahead = slots_ahead(self.slots.count());
        if self.has(self.next + self.batch + ahead) {
            self.fetch_ahead = ahead;
        }
    }

    /// Counts payload outside the slots: an eighth of its area makes the cursor be published early.
    #[inline(never)]
    fn hold(&mut self, length: u64) {
        let [window_bytes, large_bytes] =
            [&self.windows, &self.larges].map(|stores| stores[0].bytes());
        let in_window = length <= window_bytes / 4;
        let (held, area_bytes) = if in_window {
            (&mut self.window_held_bytes, window_bytes)
        } else {
            (&mut self.large_held_bytes, large_bytes)
        };
        *held += length;
        // A sender may claim any length, any number of times.
        self.bytes = self.bytes.wrapping_add(length);
        if *held >= area_bytes / 8 {
            self.publish_cursor();
        }
    }

    /// Finishes the next `count` messages that are there.
    ///
    /// # Errors
    /// A [`Violation`].
    pub fn done(&mut self, count: u64) -> Result<(), Violation> {
        for _ in 0..count {
            let stamp = self.slots.at(self.next).stamp().load(Relaxed);
            if !self.is_next(stamp) {
                break;
            }
            let length = self.payload(self.next)?.bytes();
            self.pass(length);
        }
        Ok(())
    }

    /// Stores the cursor if it has moved, and wakes a sender that waits for it.
    #[inline(never)]
    pub fn publish_cursor(&mut self) {
        self.publish_at = self.next + self.batch;
        self.fetch_ahead = 0;
        let cursor = self.many.as_ref().map_or(self.next, |many| many.cursor_at(self.next));
        if self.published == cursor {
            return;
        }
        self.published = cursor;
        self.window_held_bytes = 0;
        self.large_held_bytes = 0;
        // ORDER(B3): pairs with B4; this receiver's reads are done before the sender writes there
        // again.
        self.own.cursor().store(cursor, order!(B3: Release));
        // A waiting sender sees the cursor, or this receiver sees it waiting.
        doorbell::fence_before_look();
        if let Some(many) = &mut self.many {
            if many.make_room(&self.host) {
                add(self.own.counter(ReceiverCounter::Wakes), 1);
            }
            self.publish_counters();
            return;
        }
        let blocked = self.sender.blocked().load(Relaxed);
        if blocked != self.blocked_seen {
            self.blocked_seen = blocked;
            if blocked % 2 == 1 {
                self.wake_sender();
            }
        }
        self.publish_counters();
    }

    #[cold]
    fn wake_sender(&self) {
        doorbell::ring(self.own.wake(), 1, self.host.kernel());
        add(self.own.counter(ReceiverCounter::Wakes), 1);
    }

    /// Will no further message come? Must be called when [`Receiver::is_ready`] says no.
    ///
    /// # Errors
    /// A [`Violation`] if the sender closed the channel after messages that are not there.
    pub fn end(&mut self) -> Result<Option<End>, Violation> {
        if self.many.is_some() {
            return Ok(self.end_of_many());
        }
        // The order of these loads matters: a sender closes the channel before it hangs up, so a
        // receiver that was notified of the hang-up finds the channel closed, and then finds the
        // last stamps.
        let notices = self.shared.notices();
        let closed = self.sender.closed().load(Relaxed);
        // ORDER(B9): pairs with B8; the last stamps are visible once the end is.
        fence_at!(B9: Acquire);
        if matches!(self.policy, Policy::Evict { .. }) && self.is_evicted() {
            return Ok(Some(End::Evicted));
        }
        if self.is_ready() || self.is_behind() {
            return Ok(None);
        }
        if closed != 0 {
            let sequence = self.next;
            return match closed - 1 {
                last if last == self.next => Ok(Some(End::Closed)),
                last => Err(Violation { word: "closed", found: last, sequence }),
            };
        }
        if notices & notice::PEER_GONE == 0 {
            return Ok(None);
        }
        // A receiver that was dropped for an impossible value also gets `Evicted`.
        Ok(Some(if self.is_evicted() { End::Evicted } else { End::SenderGone }))
    }

    /// As [`Receiver::end`] for a shared channel: passes what dead senders had claimed, and ends
    /// when no sender is left.
    fn end_of_many(&mut self) -> Option<End> {
        // Under `Block`, too: another process may have been told that this receiver is dead.
        if self.many.as_ref().is_some_and(|many| many.is_evicted()) {
            return Some(End::Evicted);
        }
        let has_passed = self.pass_abandoned();
        if let Some(many) = &mut self.many {
            many.watch_new_senders(&self.host);
        }
        if has_passed || self.is_ready() {
            return None;
        }
        self.many.as_ref().and_then(|many| many.end(self.next))
    }

    /// Gives up the row if the channel is shared. In other channels the owner is told instead.
    pub fn leave(&self) {
        if let Some(many) = &self.many {
            many.leave(&self.host);
        }
    }

    /// Continues to read without a row, in the ring of a sender that is gone: this receiver no
    /// longer counts as evicted.
    pub fn look_on(&mut self) {
        self.tenure = self.sender.door_tenure(self.row).load(Relaxed);
    }

    /// Sets the limit on each sleep, in ns. Default: [`SLEEP_CAP_NS`](crate::doorbell::SLEEP_CAP_NS).
    pub fn set_sleep_cap(&mut self, cap_ns: u64) {
        self.sleeper.set_cap(cap_ns);
    }

    /// Sleeps until the next message is there, the channel ends, a notice arrives, or `limit_ns` or
    /// the cap has passed. May return early. A message found only because the cap ended the sleep
    /// is counted.
    pub fn sleep(&mut self, limit_ns: u64) {
        self.publish_cursor();
        let own = doorbell::listen(self.shared.own());
        if let Some(many) = &mut self.many {
            many.watch_senders(&self.host);
        }
        let bell = doorbell::listen(self.sender.bell());
        let is_sure = self.announce(SleepMode::Futex);
        if self.must_look() {
            add(self.own.counter(ReceiverCounter::NearSleeps), 1);
        } else {
            add(self.own.counter(ReceiverCounter::Sleeps), 1);
            let bells = Bells {
                shared: Some(Bell { word: self.sender.bell(), heard: bell }),
                own: Some(Bell { word: self.shared.own(), heard: own }),
            };
            let slept = self.sleeper.sleep(bells, limit_ns, is_sure, self.host.kernel());
            let is_found = slept != Slept::Woken && self.is_ready();
            if self.sleeper.is_cap_find(slept, bells, is_found) {
                add(self.own.counter(ReceiverCounter::CapFinds), 1);
            }
        }
        self.retract();
        self.own.cpu().store(self.host.kernel().cpu(), Relaxed);
    }

    /// Announces that this receiver is about to wait for its descriptor. If there is a reason not
    /// to wait, takes the announcement back and returns false.
    pub fn arm(&mut self) -> bool {
        self.publish_cursor();
        if let Some(many) = &mut self.many {
            many.watch_senders(&self.host);
        }
        // If the kernel gives no barrier, there is no cap to fall back on: a message in flight
        // during the join, or at this moment, is then noticed only together with the next one.
        let _ = self.announce(SleepMode::Descriptor);
        if self.must_look() {
            self.retract();
            return false;
        }
        add(self.own.counter(ReceiverCounter::Sleeps), 1);
        true
    }

    /// Takes the announcement of a sleep back.
    pub fn retract(&mut self) {
        self.sleeper.retract(self.own.sleeping());
    }

    /// Makes the epoch odd, so that the sender of every later stamp sees it. Returns false if the
    /// kernel could not guarantee that.
    fn announce(&mut self, mode: SleepMode) -> bool {
        self.retract();
        self.own.sleep_mode().store(mode as u32, Relaxed);
        self.sleeper.announce(self.own.sleeping());
        if let Some(many) = &self.many {
            many.announce();
        }
        if let Some(hint) = &self.hint {
            // ORDER(W10): pairs with W11; a sender that clears the hint sees the epoch.
            // Read-modify-write on both sides, since one swap clears the hints of many receivers.
            hint.word32(HINT).fetch_or(1, order!(W10: Release));
        }
        let is_sure = doorbell::barrier(self.fence_mode, self.host.kernel());
        is_sure && (self.fence_mode == FenceMode::Asymmetric || self.next >= self.settled)
    }

    /// Has the sender overtaken this receiver? Then there is something to receive, but not the next
    /// message.
    fn is_behind(&self) -> bool {
        let stamp = self.slots.at(self.next).stamp().load(Relaxed);
        self.policy == Policy::Overwrite && ahead_of(stamp, self.next) > 0
    }

    /// Is there any reason not to sleep? Only checks, and changes nothing.
    #[must_use]
    pub fn must_look(&self) -> bool {
        if let Some(many) = &self.many {
            return many.is_evicted()
                || self.is_ready()
                || many.has_new_senders()
                || many.may_pass(self.next)
                || self.shared.notices() != 0;
        }
        self.is_ready()
            || self.is_behind()
            || self.sender.closed().load(Relaxed) != 0
            || self.shared.notices() != 0
    }

    /// Writes the privately kept counters to the segment.
    pub fn publish_counters(&self) {
        let received = self.next - self.first - self.missed - self.abandoned;
        self.own.counter(ReceiverCounter::Messages).store(received, Relaxed);
        self.own.counter(ReceiverCounter::Bytes).store(self.bytes, Relaxed);
    }

    /// Counts one wait for a message.
    pub fn count_wait(&self) {
        add(self.own.counter(ReceiverCounter::Waits), 1);
    }

    /// One of the receiver's counters, as last written to the segment.
    #[must_use]
    pub fn counter(&self, counter: ReceiverCounter) -> u64 {
        self.own.counter(counter).load(Relaxed)
    }
}

/// A message, read where the sender wrote it. Dropping it finishes it.
#[derive(Debug)]
pub struct Message<'a, H: Host> {
    receiver: &'a mut Receiver<H>,
    payload: Payload,
    in_place: InPlace,
}

impl<H: Host> Message<'_, H> {
    /// Its number in the channel, from 0.
    #[inline]
    #[must_use]
    pub fn sequence(&self) -> u64 {
        self.receiver.next
    }
}

impl<H: Host> Deref for Message<'_, H> {
    type Target = [u8];

    #[inline(always)]
    fn deref(&self) -> &[u8] {
        // SAFETY: published, and the cursor does not pass it before this message is dropped. The
        // sender is trusted not to write it until then. The receiver keeps the mapping.
        unsafe { self.payload.as_slice(self.in_place.0) }
    }
}

impl<H: Host> Drop for Message<'_, H> {
    #[inline(always)]
    fn drop(&mut self) {
        self.payload.end_read();
        let length = self.payload.bytes();
        self.receiver.pass(length);
    }
}

/// A message to be copied out. Each copy is checked to be one whole message. Dropping the snapshot
/// finishes the message.
#[derive(Debug)]
pub struct Snapshot<'a, H: Host> {
    receiver: &'a mut Receiver<H>,
    payload: Payload,
    /// All fields are whole words: padding after a narrow field would be moved separately, and
    /// loaded before it has left the store buffer (15 ns per message).
    sequence: u64,
}

/// The message was overwritten before it had been copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lost;

impl<H: Host> Snapshot<'_, H> {
    /// Its number in the channel, from 0.
    #[inline]
    #[must_use]
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// The length, as its slot said when the message was found. A successful copy confirms it.
    #[inline(always)]
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.payload.bytes()
    }

    /// Copies the message's bytes from `offset` on into `target`.
    ///
    /// # Errors
    /// [`Lost`]; `target` then holds arbitrary bytes.
    ///
    /// # Panics
    /// If `offset` and `target` reach beyond the message.
    #[inline(always)]
    pub fn copy_out(&mut self, offset: usize, target: &mut [u8]) -> Result<(), Lost> {
        // SAFETY: the receiver keeps the mapping; slots and stores give payloads of whole words.
        unsafe { self.payload.copy_out(offset, target) };
        self.confirm()
    }

    /// Is this still the receiver's next message, and not lost?
    #[inline(always)]
    fn is_next(&self) -> bool {
        self.receiver.next == self.sequence && !self.receiver.is_out
    }

    /// Leaves the message in place: it is the next one to be received again.
    pub fn put_back(self) {
        core::mem::forget(self);
    }

    /// Is the message still what it was when it was found?
    ///
    /// # Errors
    /// [`Lost`].
    #[inline(always)]
    pub fn confirm(&mut self) -> Result<(), Lost> {
        if self.receiver.is_kept(self.sequence) {
            return Ok(());
        }
        if self.is_next() {
            self.receiver.lose_next();
        }
        Err(Lost)
    }
}

impl<H: Host> Drop for Snapshot<'_, H> {
    #[inline(always)]
    fn drop(&mut self) {
        if self.is_next() {
            let length = self.payload.bytes();
            self.receiver.pass(length);
        }
    }
}
