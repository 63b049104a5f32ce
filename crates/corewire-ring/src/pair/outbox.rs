//! What goes to one peer: the ring that it reads, in this endpoint's segment.

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
use crate::message::{Envelope, Fragment, Source, Space};
use crate::region::{Access, Slot, Slots, Word32, Word64};
use crate::sync::{Ordering::Relaxed, light_fence};
use crate::{Kernel, fence_at, order};

/// Who has sent a fragment shorter than this has the lines fetched for another of as many bytes, up to so
/// many: each line that its receiver has read before has to be taken from it before it is written again
/// (500 ns instead of 700 for 2 KiB, one way). Where there are more, the stores themselves do it as fast.
const PREFETCHING_BELOW: u32 = 4096;
const PREFETCHED_BYTES_MAX: u32 = 2048;

/// What an announcement did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Announced {
    /// The peer polls, or will find the bit.
    Bit,
    /// It slept, and was woken.
    Woken,
}

/// What goes to one peer.
///
/// What every message needs comes first, and what an announcement needs after that: a peer that was silent
/// for a while has to fetch each of these lines from afar.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Outbox {
    slots: Slots,
    /// The next slot to be written.
    head: u64,
    /// Slots below it may be written. 0 while there is no ring.
    limit: u64,
    /// The peer's word that says whether it polls this pair.
    state: Word32,
    /// The word of the peer's activity page with this endpoint's bit.
    word: Word64,
    /// The peer's row for this endpoint.
    row_there: u32,
    /// The sleeping epoch that was last served.
    served: u32,
    is_fenced: bool,
    /// The state in which nothing needs to be announced: none, where a fence must come first.
    quiet_state: u32,
    /// Messages that have gone whole, and bytes.
    sent: Traffic,
    sleeping: Word32,
    activity: Activity,
    mode: Word32,
    cursor: Word64,
    /// The cursor as last read.
    passed: u64,
    holding: Holding,
    /// Own word: which ring carries messages to this peer.
    ring_word: Word64,
    ring: Option<u64>,
    /// How often a ring was assigned.
    assigned: u32,
    /// Where the ring's last slot is, if it is being taken back.
    end: Option<u64>,
}

impl Outbox {
    /// Of `own`, towards the endpoint of `peer`: `row_here` is the peer's row here, `row_there` this one's
    /// row there.
    pub(super) fn new(
        own: &EndpointMemory,
        row_here: u32,
        peer: &EndpointMemory,
        activity: Activity,
        row_there: u32,
        is_fenced: bool,
    ) -> Self {
        let ring_word = own.ring(row_here);
        // Whoever had the row before has counted, too, and may be read by nobody.
        let assigned = (ring_word.load(Relaxed) >> 32) as u32;
        Self {
            slots: own.slots(0).expect("an endpoint has a ring"),
            head: first_position(row_there),
            limit: 0,
            state: peer.state(row_there),
            is_fenced,
            quiet_state: if is_fenced { u32::MAX } else { PairState::Hot as u32 },
            sent: Traffic::new(first_position(row_there)),
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

    /// Stores what has gone in the row's counters.
    pub(super) fn publish_traffic(&mut self, own: &EndpointMemory, row_here: u32) {
        let counters = [PeerCounter::SentMessages, PeerCounter::SentBytes];
        self.sent.publish(self.head, counters.map(|counter| own.peer_counter(row_here, counter)));
    }

    /// Has it a ring that it may go on writing?
    #[inline]
    #[must_use]
    pub fn has_ring(&self) -> bool {
        self.ring.is_some() && self.end.is_none()
    }

    /// Loads what the next message will need.
    pub(super) fn keep_warm(&self) {
        let _ = self.state.load(Relaxed);
        let _ = self.word.load(Relaxed);
        let _ = self.sleeping.load(Relaxed);
        if self.ring.is_some() {
            let _ = self.slots.at(self.head).stamp().load(Relaxed);
        }
    }

    /// Are there so many slots?
    pub(super) fn has_slots(&self, count: u64) -> bool {
        self.head + count <= self.limit
    }

    /// May this peer have room in a cell for a message of `total` bytes, however long its fragment? What is left in
    /// the one that it is filling was not enough for whoever asks.
    pub(super) fn may_have_cell(&mut self, total: u64, cells: &mut Cells) -> bool {
        self.holding.find(u64::MAX, total, cells).is_some()
    }

    /// Is a ring of it being taken back?
    #[must_use]
    pub fn is_ending(&self) -> bool {
        self.end.is_some()
    }

    /// Has the peer passed everything, as far as is known?
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.passed == self.head
    }

    /// The position of the next slot to be written.
    #[must_use]
    pub fn head(&self) -> u64 {
        self.head
    }

    /// Enqueues a slot of `length` bytes, below 256, filled by `fill`, of the kind and flags whose
    /// [bits](corewire_layout::pair::stamp_bits) are given. Does not announce it. False if there is no room.
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

    /// Sends a message in slots, if there is room for it and it is that short. False if not; nothing is done
    /// then.
    #[inline(always)]
    pub(super) fn try_send_inline(&mut self, envelope: &Envelope, message: &[u8]) -> bool {
        let length = message.len() as u64;
        if message.len() > HEAD_BYTES - envelope.immediate_bytes() {
            return message.len() <= envelope.inline_bytes_max()
                && self.send_in_slots(envelope, message);
        }
        if self.head >= self.limit {
            return false;
        }
        let slot = self.slots.at(self.head);
        // Not by `enqueue`: the code that it is given would not be inlined.
        match envelope.immediate {
            // SAFETY: the slot is below the limit: nobody reads it before its stamp.
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
        self.sent.skip(u64::from(envelope.space == Space::Acknowledgement));
        true
    }

    /// The rest of it, for a message that takes several slots. The first is published last.
    fn send_in_slots(&mut self, envelope: &Envelope, message: &[u8]) -> bool {
        let before = envelope.immediate_bytes();
        let (first, rest) = message.split_at(HEAD_BYTES - before);
        if self.head + slots_of(before + message.len()) > self.limit {
            return false;
        }
        let mut position = self.head;
        for part in rest.chunks(MORE_BYTES) {
            position += 1;
            let slot = self.slots.at(position);
            // SAFETY: below the limit: nobody reads it before the first slot's stamp.
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

    /// Sends the next fragment, as long as can be had, of a message of which `sent` bytes have been sent.
    /// Returns how many bytes it is: 0 if there is no room.
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
        // ORDER(P1): as in `enqueue`.
        slot.stamp().store(pair_stamp(self.head, bits), order!(P1: Release));
        self.holding.publish(room, self.head);
        self.head += 1;
        self.sent.add(room.bytes.into());
        self.sent.skip(u64::from(sent + u64::from(room.bytes) < total));
        if room.bytes < PREFETCHING_BELOW {
            self.holding.prefetch(room.bytes.min(PREFETCHED_BYTES_MAX), cells);
        }
        room.bytes.into()
    }

    /// Follows every stamp that its receiver must learn of: is [`Outbox::must_announce`] to be asked?
    #[inline(always)]
    pub fn is_announcement_due(&self) -> bool {
        light_fence();
        self.state.load(Relaxed) != self.quiet_state
    }

    /// Is the receiver to be told of what was sent?
    pub(super) fn must_announce(&self) -> bool {
        if self.is_fenced {
            // ORDER(P5): pairs with P6; the stamp is visible before the pair's state is read.
            fence_at!(P5: SeqCst);
        }
        self.state.load(Relaxed) != PairState::Hot as u32
    }

    /// Sets this endpoint's bit with the peer, and wakes it if it sleeps. The slow half of every send.
    #[cold]
    #[inline(never)]
    pub(super) fn announce<K: Kernel>(&mut self, row_here: u32, kernel: &K) -> Announced {
        let (index, bit) = (self.row_there / 64, 1 << (self.row_there % 64));
        // ORDER(P7): pairs with P8; whoever clears the bit after this sees the stamp, and whoever cleared
        // it before has cleared the summary, too, before it is read here.
        self.word.fetch_or(bit, order!(P7: AcqRel));
        let summary = self.activity.summary();
        if summary.load(Relaxed) & 1 << index == 0 {
            // ORDER(P7): pairs with P8; whoever clears the summary after this sees the word's bit.
            summary.fetch_or(1 << index, order!(P7: AcqRel));
        }
        // ORDER(P16): pairs with P6; the bit is visible before the epoch is read. A full fence, since this is
        // the slow path, and so that a sleeper all of whose pairs are cold needs no barrier on other cores.
        fence_at!(P16: SeqCst);
        // The mode may be an older one's only if this comes before the sleeper's barrier: then the bit does,
        // too, and nobody sleeps.
        let epoch = self.sleeping.load(Relaxed);
        if epoch.is_multiple_of(2) || epoch == self.served {
            return Announced::Bit;
        }
        self.served = epoch;
        let is_descriptor = self.mode.load(Relaxed) == SleepMode::Descriptor as u32;
        let mode = if is_descriptor { SleepMode::Descriptor } else { SleepMode::Futex };
        self.wake(row_here, mode, kernel);
        Announced::Woken
    }

    /// Wakes the peer, the way it waits.
    pub(super) fn wake<K: Kernel>(&self, row_here: u32, mode: SleepMode, kernel: &K) {
        if mode == SleepMode::Descriptor {
            return kernel.wake_descriptor(row_here);
        }
        let doorbell = self.activity.doorbell();
        // ORDER(P12): pairs with P13; what was stored before is seen by whom this keeps awake.
        doorbell.fetch_add(1, order!(P12: Release));
        kernel.wake(doorbell, 1);
    }

    /// Reads the peer's cursor, takes back the room of what it has read, and sets a new limit. The slow
    /// half of every claim. If this ends the ring's time with this peer, returns the ring.
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

    /// Gives it ring `ring`, which nobody reads.
    pub(super) fn assign(&mut self, ring: u64, slots: Slots) {
        for position in 0..slots.count() {
            slots.at(position).stamp().store(0, Relaxed);
        }
        self.slots = slots;
        self.ring = Some(ring);
        self.limit = self.passed + self.slots.count();
        self.assigned = self.assigned.wrapping_add(1);
        let word = u64::from(self.assigned) << 32 | (ring + 1);
        // ORDER(P10): pairs with P11; whoever finds the ring finds no stamp of its last user.
        self.ring_word.store(word, order!(P10: Release));
    }

    /// Begins to take its ring back: says so in the ring itself. False if there is no slot for that.
    pub(super) fn end_ring(&mut self) -> bool {
        if self.head >= self.limit || !self.has_ring() {
            return false;
        }
        let slot = self.slots.at(self.head);
        // ORDER(P1): as in `enqueue`.
        let end = stamp_bits(SlotKind::End, 0, 0);
        // ORDER(P1): as in `enqueue`.
        slot.stamp().store(pair_stamp(self.head, end), order!(P1: Release));
        self.end = Some(self.head);
        self.head += 1;
        self.sent.skip(1);
        self.limit = 0;
        true
    }

    /// The peer is gone: gives back everything. Returns its ring.
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
