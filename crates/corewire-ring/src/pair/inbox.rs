//! The receiving side of a pair: the ring in the peer's segment.
//!
//! Proofs: `proof/models/tests/models/pairs.rs`, `proof/kill/src/pairs.rs`.
//!
//! More than 600 lines, because polling, reading, holding and publishing use the same private words of a receiver.

use alloc::boxed::Box;

use corewire_layout::LINE_BYTES;
use corewire_layout::counters::{PeerCounter, TRAFFIC_COUNTERS};
use corewire_layout::endpoint::{PairState, blocked_mode};
use corewire_layout::grants::RELEASES;
use corewire_layout::pair::{
    ACK_DELIVERY, ACK_MATCH, ACKNOWLEDGES, DATA, DROPPED, HEAD_BYTES, IMMEDIATE, IN_CELL,
    MORE_BYTES, PAIR_INLINE_BYTES_MAX, STAMP_BELOW, SlotKind, UNTAGGED, block_parts,
    first_position, flags_of, fragment_parts, is_at, kind_of, length_of, matched_length,
    pair_stamp_base, slots_of, whole_length, whole_length_with_immediate,
};
use corewire_layout::segment::SleepMode;

use super::PairViolation;
use super::grants::{Kept, KeptBox};
use super::traffic::Traffic;
use super::words::EndpointMemory;
use crate::cold::rarely;
use crate::doorbell;
use crate::message::{Arrival, Envelope, Held, Place, Sink, Space, Wants};
use crate::region::{Access, Payload, Slot, Slots, Store, Word32, Word64};
use crate::sync::Ordering::Relaxed;
use crate::{Trusted, fence_at, order};

/// How the receiver learns of messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Heat {
    /// The receiver polls the pair.
    Hot,
    /// The sender may not know yet that it must announce messages.
    Cooling,
    /// The sender announces every message.
    Cold,
}

/// The receiving side of a pair. Fields that every message needs come first.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Inbox {
    /// The position of the next slot to read.
    next: u64,
    /// The cursor as published, and the value of `next` at which it is published again.
    published: u64,
    publish_at: u64,
    /// All bits are set in the middle of a message and while the pair is closed; otherwise none.
    within: u64,
    /// The source that [`Endpoint::open`](super::Endpoint::open) set, or [`CLOSED`]. Here because every message needs
    /// it.
    source: u64,
    pub(super) heat: Heat,
    /// It is queued to be checked.
    pub(super) is_queued: bool,
    /// It is not checked until it is released: its first message has no place yet.
    pub(super) is_held: bool,
    trusted: Trusted,
    /// Messages received whole, and bytes.
    received: Traffic,
    state: Word32,
    /// `None` while the peer has no ring for this endpoint.
    slots: Option<Slots>,
    /// The cursor at the last check whether the sender waits.
    looked: u64,
    cursor: Word64,
    /// Odd while the peer waits for room.
    blocked: Word32,
    /// The processor of the peer when it last began to wait for room, or woke a peer.
    cpu: Word32,
    blocked_seen: u32,
    /// The number of the ring assignment that this inbox reads, or has read to its end.
    assigned: u32,
    /// Publish the cursor after this many slots, or bytes in cells.
    batch_slots: u64,
    batch_bytes: u64,
    /// Payload bytes in cells that the published cursor does not release yet.
    held_bytes: u64,
    /// Of the message that is being read: bytes left, its envelope, its length.
    left: u64,
    envelope: Envelope,
    total: u64,
    cells: Store,
    ring_word: Word64,
    peer: EndpointMemory,
    /// The peer's heap, and what this endpoint holds of it.
    heap: Store,
    kept: KeptBox,
}

/// Where observers see what was received.
const RECEIVED: [PeerCounter; 2] = [PeerCounter::ReceivedMessages, PeerCounter::ReceivedBytes];

impl Inbox {
    /// For the endpoint of `own`, from that of `peer`: `row_here` is the peer's row here, `row_there` this endpoint's
    /// row there. The cursor begins at [`first_position`].
    pub(super) fn new(
        own: &EndpointMemory,
        row_here: u32,
        peer: EndpointMemory,
        row_there: u32,
        trusted: Trusted,
    ) -> Self {
        let (cursor, state) = (own.cursor(row_here), own.state(row_here));
        let slots = peer.sizes().ring_slots();
        let batch_slots = (slots / 4).max(1);
        let first = first_position(row_here);
        let inbox = Self {
            slots: None,
            next: first,
            publish_at: first + batch_slots,
            published: first,
            looked: first,
            batch_slots,
            batch_bytes: peer.sizes().cell_bytes() / 2,
            held_bytes: 0,
            envelope: Envelope::tagged(0),
            total: 0,
            left: 0,
            within: u64::MAX,
            source: CLOSED,
            cursor,
            state,
            cells: peer.cells(),
            heap: peer.heap(),
            kept: None,
            ring_word: peer.ring(row_there),
            blocked: peer.blocked(),
            cpu: peer.cpu(),
            peer,
            blocked_seen: 0,
            assigned: 0,
            trusted,
            received: Traffic::new(first, RECEIVED.map(|one| own.peer_counter(row_here, one))),
            heat: Heat::Cold,
            is_queued: false,
            is_held: false,
        };
        inbox.state.store(PairState::Cold as u32, Relaxed);
        inbox
    }

    /// Resets the row's shared words to their initial state. Must be called before the peer knows the row.
    pub(super) fn reset(own: &EndpointMemory, row_here: u32) {
        own.cursor(row_here).store(first_position(row_here), Relaxed);
        own.state(row_here).store(PairState::Cold as u32, Relaxed);
        own.pulled(row_here).store(0, Relaxed);
        own.helped(row_here).store(0, Relaxed);
        own.visits(row_here).store(0, Relaxed);
        own.served(row_here).store(0, Relaxed);
        own.done(row_here).store(0, Relaxed);
        own.admits(row_here).store(0, Relaxed);
        own.taken(row_here).store(0, Relaxed);
        let (traffic, present) = PeerCounter::ALL.split_at(TRAFFIC_COUNTERS);
        for &(counter, _) in traffic {
            let so_far = own.peer_counter(row_here, counter).load(Relaxed);
            own.earlier_traffic(row_here, counter).store(so_far, Relaxed);
        }
        for &(counter, _) in present {
            own.peer_counter(row_here, counter).store(0, Relaxed);
        }
    }

    /// Stores what was received in the row's counters.
    #[inline]
    pub(super) fn publish_traffic(&mut self, own: &EndpointMemory, row_here: u32) {
        self.received
            .publish(self.next, RECEIVED.map(|counter| own.peer_counter(row_here, counter)));
    }

    /// Publishes whether the sender must announce messages.
    #[inline]
    pub(super) fn set_state(&self, state: PairState) {
        self.state.store(state as u32, Relaxed);
    }

    /// Is there a message or an end? One load, if there is a ring.
    #[inline(always)]
    #[must_use]
    pub fn is_ready(&self) -> bool {
        match &self.slots {
            Some(slots) => is_at(slots.at(self.next).stamp().load(Relaxed), self.next),
            None => false,
        }
    }

    /// Loads the lines that the next message will need.
    #[inline]
    pub(super) fn keep_warm(&self) {
        let _ = self.is_ready();
        let _ = self.state.load(Relaxed);
    }

    /// The ring, if it has one.
    #[inline]
    pub(super) fn slots(&self) -> Option<&Slots> {
        self.slots.as_ref()
    }

    /// The message in `slot`, the next one, whose stamp has the low part `below`, if it is a message of `space` in
    /// one slot.
    #[inline(always)]
    pub(super) fn short_arrival(&self, slot: Slot<'_>, below: u64, space: Space) -> Option<Inline> {
        // ORDER(P2): pairs with P1; tag and payload are read after the stamp. (A relaxed load and a fence,
        // since the map is read-only.)
        fence_at!(P2: Acquire);
        let wanted = space.inline_bits();
        if let Some(bytes) = whole_length(below, wanted, self.within) {
            return Some(Inline { tag: slot.header().load(Relaxed), immediate: None, bytes });
        }
        rarely();
        let bytes = whole_length_with_immediate(below, wanted, self.within)?;
        let immediate = Some(slot.immediate().load(Relaxed));
        Some(Inline { tag: slot.header().load(Relaxed), immediate, bytes })
    }

    /// The message in `slot`, the next one, whose stamp has the low part `below`, and its space, if it lies in one slot and
    /// receives ask for it.
    #[inline(always)]
    pub(super) fn matched_arrival(&self, slot: Slot<'_>, below: u64) -> Option<(Space, Inline)> {
        // ORDER(P2): as above.
        fence_at!(P2: Acquire);
        let (bytes, is_untagged, has_immediate) = matched_length(below, self.within)?;
        let space = if is_untagged { Space::Untagged } else { Space::Tagged };
        let immediate = has_immediate.then(|| slot.immediate().load(Relaxed));
        Some((space, Inline { tag: slot.header().load(Relaxed), immediate, bytes }))
    }

    /// Takes a message that [`Inbox::matched_arrival`] has found, as [`Inbox::copy_short_out`] does.
    #[inline(always)]
    pub(super) fn put_short(
        &mut self,
        slot: Slot<'_>,
        message: &Inline,
        target: &mut (impl Sink + ?Sized),
    ) -> bool {
        let payload = match message.immediate {
            None => slot.payload(message.bytes, Access::Read),
            Some(_) => slot.behind_immediate(message.bytes, Access::Read),
        };
        // SAFETY: as in `copy_short_out`.
        target.put_short(unsafe { payload.as_slice(self.trusted) });
        payload.end_read();
        self.next += 1;
        self.received.add(message.bytes as u64);
        self.next >= self.publish_at
    }

    /// Takes a message that [`Inbox::short_arrival`] has found. True if the cursor should be published at once.
    #[inline(always)]
    pub(super) fn copy_short_out(
        &mut self,
        slot: Slot<'_>,
        message: &Inline,
        target: &mut [u8],
    ) -> bool {
        if message.immediate.is_none() {
            let payload = slot.payload(message.bytes, Access::Read);
            // SAFETY: published, and the cursor does not pass it before it is copied; the sender is trusted not to
            // write it until then. The inbox's slots keep the mapping as long as a head points to them.
            copy_short(unsafe { payload.as_slice(self.trusted) }, target);
            payload.end_read();
        } else {
            self.copy_behind_immediate(slot, message.bytes, target);
        }
        self.next += 1;
        self.received.add(message.bytes as u64);
        self.next >= self.publish_at
    }

    /// Not inlined: otherwise the same code would copy payloads without an immediate, which most messages have, and
    /// would have to compute their place and length first.
    #[inline(never)]
    fn copy_behind_immediate(&self, slot: Slot<'_>, bytes: usize, target: &mut [u8]) {
        let payload = slot.behind_immediate(bytes, Access::Read);
        // SAFETY: as in `copy_short_out`.
        copy_short(unsafe { payload.as_slice(self.trusted) }, target);
        payload.end_read();
    }

    /// Is the published cursor up to date?
    #[inline(always)]
    pub(super) fn is_published(&self) -> bool {
        self.next == self.published
    }

    /// Takes a message that lies in one slot: returns its tag and length. Does not check whether the sender must be
    /// woken.
    #[inline(always)]
    pub fn dequeue(&mut self) -> Option<(u64, usize)> {
        let slot = self.slots.as_ref()?.at(self.next);
        let stamp = slot.stamp().load(Relaxed);
        // ORDER(P2): as above.
        fence_at!(P2: Acquire);
        // The stamp of another position leaves more bits than a length.
        let bytes = whole_length(
            stamp.wrapping_sub(pair_stamp_base(self.next)),
            Space::Tagged.inline_bits(),
            self.within,
        )?;
        self.next += 1;
        Some((slot.header().load(Relaxed), bytes))
    }

    /// The peer's segment.
    #[inline]
    pub(super) fn peer(&self) -> &EndpointMemory {
        &self.peer
    }

    /// The position of the next slot to read.
    #[inline]
    #[must_use]
    pub fn next(&self) -> u64 {
        self.next
    }

    /// Opens the short path for messages of `source`; [`CLOSED`] closes it.
    #[inline]
    pub(super) fn open(&mut self, source: u64) {
        self.source = source;
        self.set_within();
    }

    /// The source with which it was opened; [`CLOSED`] if it is not open.
    #[inline(always)]
    pub(super) fn source(&self) -> u64 {
        self.source
    }

    #[inline]
    fn set_within(&mut self) {
        let goes_the_long_way = self.left > 0 || self.source == CLOSED;
        self.within = if goes_the_long_way { u64::MAX } else { 0 };
    }

    /// Is it in the middle of a message?
    #[inline]
    #[must_use]
    pub fn is_within(&self) -> bool {
        self.left > 0
    }

    /// Looks for a ring, if it has none. True if it now has one.
    #[inline]
    pub(super) fn find_ring(&mut self) -> Result<bool, PairViolation> {
        if self.slots.is_some() {
            return Ok(true);
        }
        // ORDER(P11): pairs with P10; the stamps belong to this pair.
        let word = self.ring_word.load(order!(P11: Acquire));
        let (assigned, ring) = ((word >> 32) as u32, word & 0xffff_ffff);
        if ring == 0 || assigned == self.assigned {
            return Ok(false);
        }
        let slots = self.peer.slots(ring - 1);
        let bad = PairViolation { word: "ring", found: word, position: self.next };
        self.slots = Some(slots.ok_or(bad)?);
        self.assigned = assigned;
        Ok(true)
    }

    /// The arrival at the head, which [`Inbox::is_ready`] has found. `None` if it is the ring's end. Each word is
    /// read once, checked, and used.
    #[inline(always)]
    pub(super) fn arrival(&self) -> Result<Option<Arrival>, PairViolation> {
        let Some(slots) = &self.slots else { return Ok(None) };
        let slot = slots.at(self.next);
        let stamp = slot.stamp().load(Relaxed);
        // ORDER(P2): pairs with P1; tag and payload are read after the stamp. (A relaxed load and a fence,
        // since the map is read-only.)
        fence_at!(P2: Acquire);
        let bytes = length_of(stamp);
        if stamp & STAMP_BELOW & !LENGTH_BITS == Space::Tagged.inline_bits()
            && self.left == 0
            && bytes <= PAIR_INLINE_BYTES_MAX
        {
            let envelope = Envelope::tagged(slot.header().load(Relaxed));
            let total = bytes as u64;
            return Ok(Some(Arrival {
                envelope,
                total,
                bytes,
                is_first: true,
                place: Place::Slots,
            }));
        }
        if stamp & STAMP_BELOW == Space::Tagged.cell_bits() && self.left == 0 {
            let envelope = Envelope::tagged(slot.header().load(Relaxed));
            return self.fragment(slot, envelope, slot.length().load(Relaxed), true);
        }
        let plain = stamp & STAMP_BELOW & !Space::MATCHED_FLAGS;
        if plain == Space::Tagged.cell_bits() && self.left == 0 {
            let envelope = flagged_envelope(slot, stamp);
            return self.fragment(slot, envelope, slot.length().load(Relaxed), true);
        }
        self.other_arrival(slots, stamp)
    }

    /// All other arrivals: neither a tagged message in slots nor the beginning of one in cells.
    #[inline(never)]
    fn other_arrival(&self, slots: &Slots, stamp: u64) -> Result<Option<Arrival>, PairViolation> {
        let position = self.next;
        let bad = |word, found| Err(PairViolation { word, found, position });
        let slot = slots.at(position);
        let (length, flags) = (length_of(stamp), flags_of(stamp));
        let kind = kind_of(stamp);
        let (envelope, total, is_first) = match kind {
            Some(SlotKind::NextCell) if self.left > 0 && flags == 0 && length == 0 => {
                (self.envelope, self.total, false)
            }
            // Also in the middle of a message, which continues in the next ring.
            Some(SlotKind::End) if flags == 0 && length == 0 => return Ok(None),
            _ if self.left > 0 => return bad("stamp", stamp),
            _ => {
                let is_in_block = kind == Some(SlotKind::Block);
                let is_in_cell = is_in_block || kind == Some(SlotKind::Cell);
                let Some((space, wants, is_in_cell)) = meaning_of(kind, flags, is_in_cell) else {
                    return bad("stamp", stamp);
                };
                let immediate =
                    matches!(space, Space::Tagged | Space::Untagged) && flags & IMMEDIATE != 0;
                let tag = slot.header().load(Relaxed);
                let at = if is_in_cell { slot.cell_immediate() } else { slot.immediate() };
                let immediate = immediate.then(|| at.load(Relaxed));
                let envelope = Envelope { space, tag, immediate, wants };
                if !is_in_cell {
                    let is_empty = matches!(space, Space::Dropped | Space::Acknowledgement);
                    let longest = if is_empty { 0 } else { envelope.inline_bytes_max() };
                    if length > longest {
                        return bad("stamp", stamp);
                    }
                    let (total, bytes) = (length as u64, length);
                    return Ok(Some(Arrival {
                        envelope,
                        total,
                        bytes,
                        is_first: true,
                        place: Place::Slots,
                    }));
                }
                if length != 0 {
                    return bad("stamp", stamp);
                }
                let total = slot.length().load(Relaxed);
                if is_in_block {
                    return self.block(slot, envelope, total);
                }
                (envelope, total, true)
            }
        };
        self.fragment(slot, envelope, total, is_first)
    }

    /// The fragment in cells that `slot` names, of a message of `total` bytes.
    #[inline]
    fn fragment(
        &self,
        slot: Slot<'_>,
        envelope: Envelope,
        total: u64,
        is_first: bool,
    ) -> Result<Option<Arrival>, PairViolation> {
        let position = self.next;
        let bad = |word, found| Err(PairViolation { word, found, position });
        let place = slot.position().load(Relaxed);
        let (offset, bytes) = fragment_parts(place);
        let left = if is_first { total } else { self.left };
        let fits = offset.is_multiple_of(LINE_BYTES as u64)
            && bytes > 0
            && bytes <= self.peer.sizes().cell_bytes()
            && offset + bytes <= self.cells.bytes();
        if !fits {
            return bad("place", place);
        }
        if bytes > left {
            return bad("total", total);
        }
        #[expect(clippy::cast_possible_truncation, reason = "at most a cell")]
        let bytes = bytes as usize;
        Ok(Some(Arrival { envelope, total, bytes, is_first, place: Place::Cell(offset) }))
    }

    /// The message in the block that `slot` names.
    #[inline]
    fn block(
        &self,
        slot: Slot<'_>,
        envelope: Envelope,
        total: u64,
    ) -> Result<Option<Arrival>, PairViolation> {
        let place = slot.position().load(Relaxed);
        let bad = PairViolation { word: "block", found: place, position: self.next };
        let (line, bit) = block_parts(place).ok_or(bad)?;
        let at = line * LINE_BYTES as u64;
        let is_inside = total > 0 && at <= self.heap.bytes() && total <= self.heap.bytes() - at;
        let is_unused = bit < RELEASES && self.kept.as_ref().is_some_and(|it| !it.is_in_use(bit));
        let bytes = usize::try_from(total).map_err(|_| bad)?;
        if !is_inside || !is_unused {
            return Err(bad);
        }
        let place = Place::Block { at, bit };
        Ok(Some(Arrival { envelope, total, bytes, is_first: true, place }))
    }

    /// Takes the message of an arrival that lies in a block, which is not passed yet. `None` if it lies elsewhere.
    #[inline]
    pub(super) fn take_block(&mut self, arrival: &Arrival) -> Option<Held> {
        let Place::Block { at, bit } = arrival.place else { return None };
        let kept = self.kept.as_mut()?;
        Some(kept.take(&self.heap, (at, arrival.bytes), bit, self.trusted))
    }

    /// From now on the peer may send messages in blocks.
    pub(super) fn set_kept(&mut self, kept: Kept) {
        self.kept = Some(Box::new(kept));
    }

    /// May the peer send messages in blocks?
    #[inline]
    pub(super) fn has_kept(&self) -> bool {
        self.kept.is_some()
    }

    /// The peer's heap.
    #[inline]
    pub(super) fn heap(&self) -> &Store {
        &self.heap
    }

    /// Whether the peer waits for room, and how.
    #[inline]
    pub(super) fn blocked(&self) -> &Word32 {
        &self.blocked
    }

    /// Copies the fragment into `sink`, where the message's bytes from `at` on go, as far as there is room. Returns
    /// the number of bytes copied.
    #[inline(always)]
    pub(super) fn copy(
        &self,
        arrival: &Arrival,
        at: usize,
        sink: &mut (impl Sink + ?Sized),
    ) -> usize {
        let Some(slots) = &self.slots else { return 0 };
        if let Place::Cell(offset) = arrival.place {
            let payload = self.cells.payload_at(offset, arrival.bytes as u64, Access::Read);
            return self.copy_piece(&payload, at, sink);
        }
        let first = arrival.bytes.min(HEAD_BYTES - arrival.envelope.immediate_bytes());
        let slot = slots.at(self.next);
        let payload = match arrival.envelope.immediate {
            None => slot.payload(first, Access::Read),
            Some(_) => slot.behind_immediate(first, Access::Read),
        };
        let mut done = self.copy_piece(&payload, at, sink);
        let mut position = self.next;
        let mut left = arrival.bytes - first;
        while left > 0 {
            position += 1;
            let bytes = left.min(MORE_BYTES);
            let payload = slots.at(position).more(bytes, Access::Read);
            done += self.copy_piece(&payload, at + done, sink);
            left -= bytes;
        }
        done
    }

    #[inline(always)]
    fn copy_piece(&self, payload: &Payload, at: usize, sink: &mut (impl Sink + ?Sized)) -> usize {
        // SAFETY: published, and the cursor does not pass it before `pass`; the sender is trusted not to write it until
        // then. The slots and cells keep the mapping.
        let done = sink.put(at, unsafe { payload.as_slice(self.trusted) });
        payload.end_read();
        done
    }

    /// Moves past the arrival. True if the cursor should be published at once.
    #[inline(always)]
    pub(super) fn pass(&mut self, arrival: &Arrival) -> bool {
        if let Place::Slots = arrival.place {
            let slots = slots_of(arrival.envelope.immediate_bytes() + arrival.bytes);
            self.next += slots;
            let is_message = arrival.envelope.space.is_message();
            self.received.add(if is_message { arrival.total } else { 0 });
            self.received.skip(slots - u64::from(is_message));
            return self.next >= self.publish_at;
        }
        if arrival.is_in_place() {
            self.next += 1;
            self.received.add(arrival.total);
            return self.next >= self.publish_at;
        }
        self.pass_fragment(arrival)
    }

    #[inline]
    fn pass_fragment(&mut self, arrival: &Arrival) -> bool {
        let left = if arrival.is_first { arrival.total } else { self.left };
        self.left = left - arrival.bytes as u64;
        self.set_within();
        let is_message = arrival.envelope.space.is_message();
        self.received.add(if is_message { arrival.bytes as u64 } else { 0 });
        self.received.skip(u64::from(self.left > 0 || !is_message));
        self.envelope = arrival.envelope;
        self.total = arrival.total;
        self.next += 1;
        self.held_bytes += arrival.bytes as u64;
        self.next >= self.publish_at || self.held_bytes >= self.batch_bytes
    }

    /// Counts a message of `bytes` bytes that did not come through the ring.
    #[inline]
    pub(super) fn count_beside(&mut self, bytes: u64) {
        self.received.add_beside(bytes);
    }

    /// Moves past the ring's last slot: there is no ring until the peer assigns another.
    pub(super) fn pass_end(&mut self) {
        self.next += 1;
        self.received.skip(1);
        self.slots = None;
    }

    /// The processor of the sender when it last began to wait for room, or woke a peer; a hint.
    #[inline]
    pub(super) fn sender_cpu(&self) -> u32 {
        self.cpu.load(Relaxed)
    }

    /// Stores the cursor, if it has moved. If the peer waits for that, returns how to wake it. Checks this once in
    /// three quarters of the ring, or half of a cell, since a wake-up for less costs more than it gains; and always
    /// if `looks` is set.
    #[inline]
    pub(super) fn publish_cursor(&mut self, looks: bool) -> Option<SleepMode> {
        self.publish_at = self.next + self.batch_slots;
        let is_much =
            self.held_bytes >= self.batch_bytes || self.next - self.looked >= 3 * self.batch_slots;
        self.held_bytes = 0;
        if self.published != self.next {
            self.published = self.next;
            // ORDER(P3): pairs with P4; this endpoint's reads are done before the sender writes there again.
            self.cursor.store(self.next, order!(P3: Release));
        }
        if self.looked == self.next || !(looks || is_much) {
            return None;
        }
        self.looked = self.next;
        // A sender that waits sees the cursor, or this endpoint sees it waiting.
        doorbell::fence_before_look();
        let blocked = self.blocked.load(Relaxed);
        if blocked == self.blocked_seen {
            return None;
        }
        self.blocked_seen = blocked;
        blocked_mode(blocked)
    }
}

/// The source of a pair that is not open: no row has this number.
pub(super) const CLOSED: u64 = u64::MAX;

/// A message in one slot.
#[derive(Debug, Clone, Copy)]
pub(super) struct Inline {
    pub(super) tag: u64,
    pub(super) immediate: Option<u64>,
    pub(super) bytes: usize,
}

const DATA_IN_CELL: u64 = DATA | IN_CELL;

/// The envelope of a message in cells that receives ask for and that requests nothing, with a tag or without, and with an
/// immediate or without.
#[inline(always)]
fn flagged_envelope(slot: Slot<'_>, stamp: u64) -> Envelope {
    let flags = flags_of(stamp);
    let space = if flags & UNTAGGED == 0 { Space::Tagged } else { Space::Untagged };
    let immediate = (flags & IMMEDIATE != 0).then(|| slot.cell_immediate().load(Relaxed));
    Envelope { immediate, ..Envelope::numbered(space, slot.header().load(Relaxed)) }
}

/// The bits of a stamp that hold the length.
const LENGTH_BITS: u64 = 0xff;

/// The meaning of a first slot of this kind with these flags, and whether its payload lies in a cell. `None` if there
/// is no such slot.
#[inline]
fn meaning_of(kind: Option<SlotKind>, flags: u64, is_cell: bool) -> Option<(Space, Wants, bool)> {
    match (kind?, flags) {
        (SlotKind::Inline | SlotKind::Cell | SlotKind::Block, _) => {
            let wants = match (flags & ACK_DELIVERY, flags & ACK_MATCH) {
                (0, 0) => Wants::Nothing,
                (_, 0) => Wants::Delivery,
                (0, _) => Wants::Match,
                _ => return None,
            };
            let space = if flags & UNTAGGED == 0 { Space::Tagged } else { Space::Untagged };
            Some((space, wants, is_cell))
        }
        (SlotKind::Request, 0 | IN_CELL) => {
            Some((Space::Request, Wants::Nothing, flags == IN_CELL))
        }
        (SlotKind::Reply, 0 | IN_CELL) => Some((Space::Reply, Wants::Nothing, flags == IN_CELL)),
        (SlotKind::Offer, 0 | IN_CELL) => Some((Space::Offer, Wants::Nothing, flags == IN_CELL)),
        (SlotKind::Notice, 0 | IN_CELL) => Some((Space::Notice, Wants::Nothing, flags == IN_CELL)),
        (SlotKind::Notice, DATA | DATA_IN_CELL) => {
            Some((Space::Data, Wants::Nothing, flags == DATA_IN_CELL))
        }
        (SlotKind::Reply, DROPPED) => Some((Space::Dropped, Wants::Nothing, false)),
        (SlotKind::Reply, ACKNOWLEDGES) => Some((Space::Acknowledgement, Wants::Nothing, false)),
        _ => None,
    }
}

/// Copies up to 48 bytes without a call.
#[inline(always)]
fn copy_short(source: &[u8], target: &mut [u8]) {
    let target = &mut target[..source.len()];
    match source.len() {
        0 => {}
        1..=7 => target.iter_mut().zip(source).for_each(|(to, from)| *to = *from),
        8..=15 => copy_ends::<8>(source, target),
        16..=31 => copy_ends::<16>(source, target),
        _ => {
            copy_ends::<16>(&source[..32], &mut target[..32]);
            let last = source.len() - 16;
            copy_ends::<16>(&source[last..], &mut target[last..]);
        }
    }
}

/// Copies the first and the last `N` bytes, which overlap.
#[inline(always)]
fn copy_ends<const N: usize>(source: &[u8], target: &mut [u8]) {
    if let (Some(from), Some(to)) = (source.first_chunk::<N>(), target.first_chunk_mut::<N>()) {
        *to = *from;
    }
    if let (Some(from), Some(to)) = (source.last_chunk::<N>(), target.last_chunk_mut::<N>()) {
        *to = *from;
    }
}
