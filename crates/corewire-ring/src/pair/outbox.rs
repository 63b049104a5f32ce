//! The sending side of a pair: the ring in this endpoint's segment.
//!
//! Proofs: `proof/models/tests/models/pairs.rs`, `proof/kill/src/pairs.rs`.

use corewire_layout::counters::PeerCounter;
use corewire_layout::endpoint::PairState;
use corewire_layout::pair::{
    HEAD_BYTES, MORE_BYTES, SlotKind, first_position, fragment, pair_stamp, slots_of, stamp_bits,
};
use corewire_layout::segment::SleepMode;

use super::PairViolation;
use super::cells::{Cells, Holding};
use super::traffic::Traffic;
use super::words::{Activity, EndpointMemory};
use crate::cold::rarely;
use crate::doorbell;
use crate::message::{Envelope, Fragment, Source};
use crate::region::{Access, Slot, Slots, Word32, Word64};
use crate::sync::Ordering::Relaxed;
use crate::{Control, Host, order};

/// After a fragment shorter than this, the sender prefetches the lines for another of the same length, up to
/// `PREFETCHED_BYTES_MAX`: each line that the receiver has read must be taken from it before it is written again (500
/// ns instead of 700 for 2 KiB, one way). For longer fragments the stores themselves are as fast.
const PREFETCHING_BELOW: u32 = 4096;
const PREFETCHED_BYTES_MAX: u32 = 2048;

/// Where observers see what was sent.
const SENT: [PeerCounter; 2] = [PeerCounter::SentMessages, PeerCounter::SentBytes];

/// The result of an announcement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Announced {
    /// The peer is awake, or woken already, and will find the bit.
    Bit,
    /// The peer slept, and was woken.
    Woken,
}

/// The sending side of a pair.
///
/// Fields that every message needs come first, then those that an announcement needs: after a silence, none of these
/// lines is in this core's cache.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Outbox {
    slots: Slots,
    /// The position of the next slot to write.
    head: u64,
    /// Slots below it may be written. 0 while there is no ring.
    limit: u64,
    /// The peer's word that tells whether it polls this pair.
    state: Word32,
    /// The word of the peer's activity page that holds this endpoint's bit.
    word: Word64,
    /// The peer's row for this endpoint.
    row_there: u32,
    /// The sleeping epoch in which the peer was last woken.
    served: u32,
    is_fenced: bool,
    /// The state in which nothing needs to be announced; matches no state if a fence must come first.
    quiet_state: u32,
    /// Messages sent whole, and bytes.
    sent: Traffic,
    sleeping: Word32,
    activity: Activity,
    mode: Word32,
    cursor: Word64,
    /// The cursor as last read.
    passed: u64,
    holding: Holding,
    /// This endpoint's word: which ring carries messages to this peer.
    ring_word: Word64,
    ring: Option<u64>,
    /// Number of ring assignments.
    assigned: u32,
    /// The position of the ring's last slot, if the ring is being taken back.
    end: Option<u64>,
}

impl Outbox {
    /// For the endpoint of `own`, towards that of `peer`: `row_here` is the peer's row here, `row_there` this
    /// endpoint's row there.
    pub(super) fn new(
        own: &EndpointMemory,
        row_here: u32,
        peer: &EndpointMemory,
        activity: Activity,
        row_there: u32,
        is_fenced: bool,
    ) -> Self {
        let ring_word = own.ring(row_here);
        // Continues the count of the row's previous peer, whose assignments may still be unread.
        let assigned = (ring_word.load(Relaxed) >> 32) as u32;
        Self {
            slots: own.slots(0).expect("an endpoint has a ring"),
            head: first_position(row_there),
            limit: 0,
            state: peer.state(row_there),
            is_fenced,
            quiet_state: if is_fenced { u32::MAX } else { PairState::Hot as u32 },
            sent: Traffic::new(
                first_position(row_there),
                SENT.map(|one| own.peer_counter(row_here, one)),
            ),
            row_there,
            cursor: peer.cursor(row_there),
            sleeping: peer.sleeping(),
            mode: peer.mode(),
            word: activity.keep_word(row_there / 64),
            activity,
            passed: first_position(row_there),
            served: 0,
            holding: Holding::default(),
            ring_word,
            ring: None,
            assigned,
            end: None,
        }
    }

    /// Stores what was sent in the row's counters.
    #[inline]
    pub(super) fn publish_traffic(&mut self, own: &EndpointMemory, row_here: u32) {
        self.sent.publish(self.head, SENT.map(|counter| own.peer_counter(row_here, counter)));
    }

    /// This endpoint's row at the peer.
    #[inline]
    pub(super) fn row_there(&self) -> u32 {
        self.row_there
    }

    /// The position of the next slot to write.
    #[inline]
    pub(super) fn head(&self) -> u64 {
        self.head
    }

    /// The position of the first slot that the peer has not passed.
    #[inline]
    pub(super) fn cursor(&self) -> u64 {
        self.cursor.load(Relaxed)
    }

    /// The peer's doorbell.
    #[inline]
    pub(super) fn doorbell(&self) -> &Word32 {
        self.activity.doorbell()
    }

    /// Does it have a ring that it may still write?
    #[inline]
    #[must_use]
    pub fn has_ring(&self) -> bool {
        self.ring.is_some() && self.end.is_none()
    }

    /// Loads the lines that the next message will need.
    #[inline]
    pub(super) fn keep_warm(&self) {
        let _ = self.state.load(Relaxed);
        let _ = self.word.load(Relaxed);
        let _ = self.sleeping.load(Relaxed);
        if self.ring.is_some() {
            let _ = self.slots.at(self.head).stamp().load(Relaxed);
        }
    }

    /// Are there `count` free slots?
    #[inline]
    pub(super) fn has_slots(&self, count: u64) -> bool {
        self.head + count <= self.limit
    }

    /// May this peer have room in a cell for a fragment of any length, of a message of `total` bytes? The rest of the
    /// cell that it is filling was too short for the caller.
    #[inline]
    pub(super) fn may_have_cell(&mut self, total: u64, cells: &mut Cells) -> bool {
        self.holding.find(u64::MAX, total, cells).is_some()
    }

    /// The longest message in cells for which there is room, by the cursor as last read.
    #[inline]
    pub(super) fn cell_room(&self, cells: &Cells) -> u64 {
        let slots = self.limit.saturating_sub(self.head);
        self.holding.room(cells).min(slots * cells.cell_bytes())
    }

    /// Is its ring being taken back?
    #[inline]
    #[must_use]
    pub fn is_ending(&self) -> bool {
        self.end.is_some()
    }

    /// Has the peer read everything, as far as is known?
    #[inline]
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.passed == self.head
    }

    /// Enqueues a slot of `length` bytes, below 256, filled by `fill`. `bits` gives its [kind and
    /// flags](corewire_layout::pair::stamp_bits). Does not announce it. False if there is no room.
    #[inline(always)]
    pub fn enqueue(
        &mut self,
        bits: u64,
        tag: u64,
        length: u64,
        fill: impl FnOnce(Slot<'_>),
    ) -> bool {
        if self.head >= self.limit {
            return false;
        }
        let slot = self.slots.at(self.head);
        fill(slot);
        Self::publish(slot, self.head, bits | length, tag);
        self.head += 1;
        true
    }

    /// Publishes the slot at `position`, whose payload has been written.
    #[inline(always)]
    fn publish(slot: Slot<'_>, position: u64, bits: u64, tag: u64) {
        slot.header().store(tag, Relaxed);
        // ORDER(P1): pairs with P2; makes tag and payload visible with the stamp.
        slot.stamp().store(pair_stamp(position, bits), order!(P1: Release));
    }

    /// Sends a message in slots. False if it is too long or there is no room; nothing is done then.
    #[inline(always)]
    pub(super) fn try_send_inline(&mut self, envelope: &Envelope, message: &[u8]) -> bool {
        let length = message.len() as u64;
        if message.len() > HEAD_BYTES - envelope.immediate_bytes() {
            rarely();
            return message.len() <= envelope.inline_bytes_max()
                && self.send_in_slots(*envelope, message);
        }
        if self.head >= self.limit {
            rarely();
            return false;
        }
        let slot = self.slots.at(self.head);
        // Does not use `enqueue`: the closure would not be inlined.
        match envelope.immediate {
            // SAFETY: the slot is below the limit: the peer does not read it before its stamp.
            None => unsafe { slot.payload(message.len(), Access::Write).fill(message) },
            Some(immediate) => {
                slot.immediate().store(immediate, Relaxed);
                // SAFETY: as above.
                unsafe { slot.behind_immediate(message.len(), Access::Write).fill(message) };
            }
        }
        Self::publish(slot, self.head, envelope.inline_bits() | length, envelope.tag);
        self.head += 1;
        self.sent.add(length);
        true
    }

    /// As [`Outbox::try_send_inline`], for something that is not a message.
    #[inline]
    pub(super) fn try_send_beside(&mut self, envelope: &Envelope, bytes: &[u8]) -> bool {
        let is_sent = self.try_send_inline(envelope, bytes);
        if is_sent {
            self.sent.take_back(bytes.len() as u64);
        }
        is_sent
    }

    /// Counts a message of `bytes` bytes that did not go through the ring.
    #[inline]
    pub(super) fn count_beside(&mut self, bytes: u64) {
        self.sent.add_beside(bytes);
    }

    /// As [`Outbox::try_send_inline`], for a message that takes several slots. The first slot is published last.
    /// (The envelope is passed by value: by reference it would be stored in memory for every message, of one slot, too.)
    #[inline]
    fn send_in_slots(&mut self, envelope: Envelope, message: &[u8]) -> bool {
        let before = envelope.immediate_bytes();
        let (first, rest) = message.split_at(HEAD_BYTES - before);
        if self.head + slots_of(before + message.len()) > self.limit {
            return false;
        }
        let mut position = self.head;
        for part in rest.chunks(MORE_BYTES) {
            position += 1;
            let slot = self.slots.at(position);
            // SAFETY: below the limit: the peer does not read it before the first slot's stamp.
            unsafe { slot.more(part.len(), Access::Write).fill(part) };
            let more = stamp_bits(SlotKind::More, 0, 0);
            slot.stamp().store(pair_stamp(position, more), Relaxed);
        }
        self.enqueue(envelope.inline_bits(), envelope.tag, message.len() as u64, |slot| {
            let mut payload = match envelope.immediate {
                None => slot.payload(first.len(), Access::Write),
                Some(immediate) => {
                    slot.immediate().store(immediate, Relaxed);
                    slot.behind_immediate(first.len(), Access::Write)
                }
            };
            // SAFETY: as above.
            unsafe { payload.fill(first) };
        });
        self.head = position + 1;
        self.sent.add(message.len() as u64);
        self.sent.skip(rest.chunks(MORE_BYTES).len() as u64);
        true
    }

    /// Sends the next fragment of a message, as long as the room allows; `sent` bytes precede it. Returns its length in
    /// bytes: 0 if there is no room.
    #[inline]
    pub(super) fn send_fragment(
        &mut self,
        envelope: &Envelope,
        source: &impl Source,
        sent: u64,
        cells: &mut Cells,
    ) -> u64 {
        let total = source.bytes();
        if self.head >= self.limit {
            return 0;
        }
        let Some(room) = self.holding.find(total - sent, total, cells) else { return 0 };
        source.fill(sent, &mut Fragment::shared(cells.payload(room)));
        let slot = self.slots.at(self.head);
        slot.position().store(fragment(room.offset, room.bytes), Relaxed);
        let bits = if sent == 0 {
            slot.header().store(envelope.tag, Relaxed);
            slot.length().store(total, Relaxed);
            if let Some(immediate) = envelope.immediate {
                slot.cell_immediate().store(immediate, Relaxed);
            }
            envelope.cell_bits()
        } else {
            stamp_bits(SlotKind::NextCell, 0, 0)
        };
        // ORDER(P1): as in `publish`.
        slot.stamp().store(pair_stamp(self.head, bits), order!(P1: Release));
        self.holding.publish(room, self.head);
        self.head += 1;
        let is_message = envelope.space.is_message();
        self.sent.add(if is_message { room.bytes.into() } else { 0 });
        self.sent.skip(u64::from(!is_message || sent + u64::from(room.bytes) < total));
        if room.bytes < PREFETCHING_BELOW {
            self.holding.prefetch(room.bytes.min(PREFETCHED_BYTES_MAX), cells);
        }
        room.bytes.into()
    }

    /// Publishes a message of `total` bytes that lies in a block of this endpoint's heap: `place` names it. False if
    /// there is no slot.
    #[inline]
    pub(super) fn send_block(&mut self, envelope: &Envelope, place: u64, total: u64) -> bool {
        if self.head >= self.limit {
            return false;
        }
        let slot = self.slots.at(self.head);
        slot.position().store(place, Relaxed);
        slot.length().store(total, Relaxed);
        slot.header().store(envelope.tag, Relaxed);
        if let Some(immediate) = envelope.immediate {
            slot.cell_immediate().store(immediate, Relaxed);
        }
        // ORDER(P1): as in `publish`; makes the block visible, too.
        slot.stamp().store(pair_stamp(self.head, envelope.block_bits()), order!(P1: Release));
        self.head += 1;
        self.sent.add(total);
        true
    }

    /// Must `must_announce` be called? Must be checked after every stamp that the receiver must notice.
    #[inline(always)]
    pub fn is_announcement_due(&self) -> bool {
        doorbell::fence_after_store(false);
        self.state.load(Relaxed) != self.quiet_state
    }

    /// Must the message be announced to the receiver?
    #[inline]
    pub(super) fn must_announce(&self) -> bool {
        if self.is_fenced {
            doorbell::fence_after_store(true);
        }
        self.state.load(Relaxed) != PairState::Hot as u32
    }

    /// Sets this endpoint's bit at the peer, and wakes the peer if it sleeps. The slow half of every send.
    #[cold]
    #[inline(never)]
    pub(super) fn announce<H: Host>(&mut self, row_here: u32, host: &H) -> Announced {
        let (index, bit) = (self.row_there / 64, 1 << (self.row_there % 64));
        // ORDER(P7): pairs with P8; a receiver that clears the bit after this sees the stamp. A receiver that cleared
        // it before had also cleared the summary, before the summary is read here.
        self.word.fetch_or(bit, order!(P7: AcqRel));
        let summary = self.activity.summary();
        if summary.load(Relaxed) & 1 << index == 0 {
            // ORDER(P7): pairs with P8; a receiver that clears the summary after this sees the word's bit.
            summary.fetch_or(1 << index, order!(P7: AcqRel));
        }
        // A full fence, also for a sleeper whose pairs are all cold and that needs no barrier on other cores.
        doorbell::fence_before_look();
        let epoch = doorbell::epoch_of(&self.sleeping);
        match doorbell::mode_of(epoch, &self.mode) {
            Some(mode) if epoch != self.served => {
                self.served = epoch;
                self.wake(row_here, mode, host);
                Announced::Woken
            }
            _ => Announced::Bit,
        }
    }

    /// Wakes the peer, by its bell or its descriptor.
    pub(super) fn wake<H: Host>(&self, row_here: u32, mode: SleepMode, host: &H) {
        if mode == SleepMode::Descriptor {
            return host.control().wake_descriptor(row_here);
        }
        doorbell::ring(self.activity.doorbell(), 1, host.kernel());
    }

    /// Reads the peer's cursor, takes back the room that it has freed, and sets a new limit. The slow half of every
    /// claim. If the peer has read the ring's end, returns the ring.
    #[inline]
    pub(super) fn refresh(&mut self, cells: &mut Cells) -> Result<Option<u64>, PairViolation> {
        let Some(ring) = self.ring else { return Ok(None) };
        // ORDER(P4): pairs with P3; the peer's reads are done before the slots and cells are written
        // again.
        let cursor = self.cursor.load(order!(P4: Acquire));
        if cursor < self.passed || cursor > self.head {
            return Err(PairViolation { word: "cursor", found: cursor, position: self.passed });
        }
        self.passed = cursor;
        self.holding.give_back(cursor, cells);
        match self.end {
            None => {
                self.limit = cursor + self.slots.count();
                Ok(None)
            }
            Some(end) if cursor > end => {
                self.forget_ring();
                Ok(Some(ring))
            }
            Some(_) => Ok(None),
        }
    }

    /// Assigns ring `ring`, which no peer reads.
    pub(super) fn assign(&mut self, ring: u64, slots: Slots) {
        for position in 0..slots.count() {
            slots.at(position).stamp().store(0, Relaxed);
        }
        self.slots = slots;
        self.ring = Some(ring);
        self.limit = self.passed + self.slots.count();
        self.assigned = self.assigned.wrapping_add(1);
        let word = u64::from(self.assigned) << 32 | (ring + 1);
        // ORDER(P10): pairs with P11; a receiver that finds the ring finds no stamp of its previous use.
        self.ring_word.store(word, order!(P10: Release));
    }

    /// Begins to take its ring back: writes an end into the ring. False if there is no slot for that.
    pub(super) fn end_ring(&mut self) -> bool {
        if self.head >= self.limit || !self.has_ring() {
            return false;
        }
        let slot = self.slots.at(self.head);
        // ORDER(P1): as in `publish`.
        let end = stamp_bits(SlotKind::End, 0, 0);
        // ORDER(P1): as in `publish`.
        slot.stamp().store(pair_stamp(self.head, end), order!(P1: Release));
        self.end = Some(self.head);
        self.head += 1;
        self.sent.skip(1);
        self.limit = 0;
        true
    }

    /// The peer is gone: gives back its cells, and returns its ring.
    pub(super) fn close(&mut self, cells: &mut Cells) -> Option<u64> {
        self.holding.give_back_all(cells);
        let ring = self.ring;
        self.forget_ring();
        ring
    }

    fn forget_ring(&mut self) {
        self.ring = None;
        self.end = None;
        self.limit = 0;
        self.ring_word.store(u64::from(self.assigned) << 32, Relaxed);
    }
}
