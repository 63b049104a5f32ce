//! Several messages in one run of slots.

use corewire_layout::slot::{INLINE_BYTES_MAX, KIND_LARGE, KIND_WINDOW, RUN_SLOTS_MAX};

use super::{Inline, Sender, Staged};
use crate::Host;
use crate::channel::{Area, Room};
use crate::copying::{NextReader, copy_slice};
use crate::region::{Access, set_aside};

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
        self.stage_elsewhere(
            message.len(),
            |payload| copy_slice(NextReader::Peer, message, payload),
            wait,
        )
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

    /// Drops the messages of a batch.
    pub fn abandon(&mut self) {
        for index in (0..core::mem::take(&mut self.staged_count)).rev() {
            let Staged { header, room, .. } = self.staged[index];
            if header > INLINE_BYTES_MAX as u64 {
                self.area(header).put_back(room);
            }
        }
    }
}
