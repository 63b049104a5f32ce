//! Messages that are written in place, and room for payload that does not fit a slot.
//!
//! A loan claims a slot and lends its memory. Sending the loan publishes the slot; dropping it sends nothing.
//!
//! | payload | where it lies |
//! |---|---|
//! | up to 48 bytes | in the slot |
//! | up to a quarter of the window | in the current span, a sixteenth of the window: room is found by two comparisons. When the next message does not fit, the next span is taken |
//! | longer | in the large area, which has room for each message apart |
//!
//! Room is free again when every receiver has passed the message: [`Sender::refresh`] finds that out.

use core::mem::ManuallyDrop;

use corewire_layout::slot::{INLINE_BYTES_MAX, KIND_LARGE, KIND_WINDOW};

use super::{Sender, publish};
use crate::broadcast::members::Members;
use crate::channel::{Room, Span};
use crate::cold::rarely;
use crate::region::{Access, Payload, Slot, SlotAddress};
use crate::sync::Ordering::Relaxed;
use crate::{Host, Lock};

/// The window is filled in spans of this fraction of it, or of one message if that is larger. Fewer
/// spans cost less bookkeeping; with more spans room is freed sooner.
const SPANS: u64 = 16;
/// In a stream of short messages, so much of a message that comes is fetched at most.
const FETCHED_BYTES_MAX: u64 = 1088;

impl<H: Host> Sender<H> {
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
        if self.is_lent_in_slot(bytes) && self.head < self.shared.limit.load(Relaxed) {
            let slot = self.next_slot();
            let payload = slot.payload(bytes, Access::Write);
            let (sequence, place, header) = (self.head, slot.place(), bytes as u64);
            let claim = Claim { sequence, place, header, payload, target: None, room: None };
            return Ok(Loan { sender: self, claim });
        }
        rarely();
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
        self.claim(self.next_slot(), KIND_WINDOW, payload, Some(room))
    }

    /// Opens the next span of the window, with room for at least `length` bytes. False if there is
    /// no such room now.
    #[inline(never)]
    fn open_span(&mut self, length: u64) -> bool {
        let is_stream_of_short = self.span.has_many();
        self.span.close(&mut self.window);
        let window_bytes = self.geometry.window_bytes();
        let most = self.window.find(length.max(window_bytes / SPANS));
        let Some(room) = most.or_else(|| self.window.find(length)) else { return false };
        if self.head >= self.shared.limit.load(Relaxed) {
            return false;
        }
        self.window.take(room);
        self.span = Span::of(room, window_bytes);
        if is_stream_of_short {
            self.span = core::mem::take(&mut self.span).with_lanes(length);
        }
        self.shared.window_reserved.store(room.end, Relaxed);
        true
    }

    /// A claim of the next slot and of `target`. The loan lends `target` itself, or staging memory
    /// that is copied to `target` later.
    #[inline(always)]
    fn claim(&self, slot: Slot<'_>, header: u64, target: Payload, room: Option<Room>) -> Claim {
        let (payload, target) = match self.staging() {
            None => (target, None),
            Some(staging) => {
                rarely();
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
        let claim = self.claim(slot, KIND_LARGE, payload.expect("own area"), Some(room));
        Ok(Loan { sender: self, claim })
    }

    /// May this sender still claim the next message? A reservation in the large area may have any
    /// size, so the control thread must know of it before it chooses the first message of a joining
    /// receiver, or revoke the limit first. For the window it leaves room instead.
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

    /// Records the message that the room last given out is for, and counts its length.
    #[inline(always)]
    fn keep_room(&mut self, header: u64, length: usize) {
        self.bytes += length as u64;
        if header == KIND_WINDOW {
            self.span.publish(self.head);
            let fetched = (length as u64).min(FETCHED_BYTES_MAX);
            if let Some(place) = self.span.coming(fetched) {
                self.window_store.payload_at(place, fetched, Access::Write).prefetch_to_write();
            }
        } else {
            self.large.publish(self.head);
        }
    }
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
    place: SlotAddress,
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
            rarely();
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
        // A joining receiver relies on at most one message without a fence.
        this.sender.fence();
    }

    #[inline(always)]
    fn publish(&mut self) {
        self.claim.settle();
        let Claim { sequence, place, header, ref payload, room, .. } = self.claim;
        // SAFETY: the place of this claim's slot, in this sender's ring.
        let slot = unsafe { self.sender.slots.at_place(place) };
        if let Some(room) = room {
            // Not earlier: receivers that wait for this message poll the line, and would take it away again.
            slot.position().store(room.position, Relaxed);
            slot.length().store(payload.bytes() as u64, Relaxed);
        }
        publish(slot, sequence, header);
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
