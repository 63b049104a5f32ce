//! Payload that does not fit a slot, and loans.

use corewire_layout::slot::{INLINE_BYTES_MAX, KIND_LARGE, KIND_WINDOW};

use super::{Inline, Sender};
use crate::Host;
use crate::channel::{Area, Room};
use crate::region::{Access, Payload};
use crate::sync::Ordering::Relaxed;

impl<H: Host> Sender<H> {
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
            return Ok(Loan { sender: self, place: LoanMemory::Slot(Inline::ZERO, bytes) });
        }
        let (room, payload) = loop {
            match self.find_room(bytes) {
                Some(found) => break found,
                None => wait(self)?,
            }
        };
        let place = match &self.staging {
            None => LoanMemory::Room { room, payload, target: None },
            Some(staging) => {
                let own = staging.payload(0, bytes as u64, Access::Write);
                let own = own.expect("memory for the largest message");
                LoanMemory::Room { room, payload: own, target: Some(payload) }
            }
        };
        Ok(Loan { sender: self, place })
    }

    pub(super) fn is_window(&self, bytes: usize) -> bool {
        bytes as u64 <= self.roster.geometry.window_message_bytes_max()
    }

    pub(super) fn find_room(&mut self, bytes: usize) -> Option<(Room, Payload)> {
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

    pub(super) fn area(&mut self, header: u64) -> &mut Area {
        if header == KIND_WINDOW { &mut self.window } else { &mut self.large }
    }

    pub(super) fn publish_elsewhere(
        &mut self,
        sequence: u64,
        header: u64,
        room: Room,
        bytes: u64,
        run: u64,
    ) {
        let slot = self.roster.slots.at(sequence);
        slot.position().store(room.position, Relaxed);
        slot.length().store(bytes, Relaxed);
        self.publish(sequence, header, run);
        self.bytes += bytes;
        self.area(header).publish_room(sequence, room);
    }
}

/// A message that is being composed. Dropping it sends nothing.
#[derive(Debug)]
pub struct Loan<'a, H: Host> {
    sender: &'a mut Sender<H>,
    place: LoanMemory,
}

#[derive(Debug)]
enum LoanMemory {
    Slot(Inline, usize),
    Room { room: Room, payload: Payload, target: Option<Payload> },
    Gone,
}

impl<H: Host> Loan<'_, H> {
    /// The payload, as written so far.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        match &self.place {
            LoanMemory::Slot(inline, bytes) => &inline.0[..*bytes],
            // SAFETY: this sender's own room, not published yet; the sender is borrowed meanwhile.
            LoanMemory::Room { payload, .. } => unsafe { payload.as_own_slice() },
            LoanMemory::Gone => &[],
        }
    }

    /// The payload. Its content is meaningless until it is written. Up to 48 bytes are 16-byte
    /// aligned, more are 64-byte aligned.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        match &mut self.place {
            LoanMemory::Slot(inline, bytes) => &mut inline.0[..*bytes],
            // SAFETY: as for `bytes`.
            LoanMemory::Room { payload, .. } => unsafe { payload.as_mut_slice() },
            LoanMemory::Gone => &mut [],
        }
    }

    /// Shortens the message to `bytes`, if it is longer.
    pub fn truncate(&mut self, bytes: usize) {
        match &mut self.place {
            LoanMemory::Slot(_, length) => *length = bytes.min(*length),
            LoanMemory::Room { payload, .. } => payload.truncate(bytes),
            LoanMemory::Gone => {}
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
            LoanMemory::Slot(inline, bytes) => {
                return self.sender.send_inline(&inline.0[..*bytes], wait);
            }
            _ => self.sender.claim(1, &mut wait)?,
        };
        let LoanMemory::Room { room, payload, target } =
            core::mem::replace(&mut self.place, LoanMemory::Gone)
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
        if let LoanMemory::Room { room, .. } = &self.place {
            let in_window =
                room.end - room.position <= self.sender.roster.geometry.window_message_bytes_max();
            let header = if in_window { KIND_WINDOW } else { KIND_LARGE };
            self.sender.area(header).put_back(*room);
        }
    }
}
