//! Messages, read in place or copied out.
//!
//! Proofs: `proof/models/tests/models/ring.rs`, `proof/kill/src/broadcast.rs`.

use core::ops::Deref;

use corewire_layout::segment::Policy;
use corewire_layout::slot::{INLINE_BYTES_MAX, KIND_LARGE, KIND_WINDOW, ahead_of, owner_of};

use super::{InPlace, Receiver};
use crate::channel::Violation;
use crate::cold::rarely;
use crate::region::{Access, Payload, Slot};
use crate::sync::Ordering::Relaxed;
use crate::{Host, fence_at};

/// After this many losses in a row, a receiving call calls its `wait`.
const LOSSES_AT_A_TIME: u32 = 64;

impl<H: Host> Receiver<H> {
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
            let slot = self.slots.at(self.next);
            let (place, stamp) = (slot.place(), slot.stamp().load(Relaxed));
            if self.is_next(stamp) {
                // SAFETY: the place of the next slot.
                let slot = unsafe { self.slots.at_place(place) };
                let payload = self.payload_of(slot, self.next, Access::Read)?;
                return Ok(Message { receiver: self, payload, in_place });
            }
            rarely();
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
    pub(super) fn payload(&self, sequence: u64) -> Result<Payload, Violation> {
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
            // Between hyperthreads of one core, a prefetch of this very line would cost a twelfth of a message.
            if self.fetch_ahead_bytes > 0 {
                slot.prefetch_to_read(self.fetch_ahead_bytes);
            }
            #[expect(clippy::cast_possible_truncation, reason = "at most 48")]
            return Ok(slot.payload(header as usize, access));
        }
        rarely();
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
}

/// A message, read where the sender wrote it. Dropping it finishes it.
#[derive(Debug)]
pub struct Message<'a, H: Host> {
    pub(super) receiver: &'a mut Receiver<H>,
    pub(super) payload: Payload,
    pub(super) in_place: InPlace,
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
