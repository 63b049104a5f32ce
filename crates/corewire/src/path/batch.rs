//! Sending and receiving several messages at a time.
//!
//! A batch that is sent publishes each message without checking for sleepers, and wakes them once at the end. A batch
//! that is received holds several messages, and releases the oldest ones first.

use std::fmt;

use crate::error::{ReceiveError, SendError};
use crate::path::receive::Receiver;
use crate::path::send::{Sender, Untyped};
use crate::typed::payload::Payload;
use crate::typed::schema::MessageType;
use crate::wait::Patience;

impl<T: ?Sized> Sender<T> {
    /// Begins a batch. Its messages are published one by one, but sleeping receivers are woken only once, when the
    /// batch ends.
    pub fn batch(&mut self) -> SendBatch<'_, T> {
        SendBatch { sender: self }
    }
}

/// Messages that are sent together. Each is published when it is added. Sleeping receivers are woken once, when the
/// batch is dropped or must wait for room.
pub struct SendBatch<'a, T: ?Sized = [u8]> {
    sender: &'a mut Sender<T>,
}

impl<T: Payload + ?Sized> SendBatch<'_, T> {
    /// Sends one message of the batch, waiting for room if there is none.
    ///
    /// # Errors
    /// As for [`Sender::send`].
    #[inline]
    pub fn send(&mut self, message: &T) -> Result<(), SendError> {
        self.sender.untyped.send_quietly(message.bytes())
    }
}

/// For bytes.
impl SendBatch<'_> {
    /// Lends memory for one message of `bytes` bytes, calls `write` to fill it, and sends it.
    ///
    /// # Errors
    /// As for [`Sender::loan`].
    #[inline]
    pub fn send_with(
        &mut self,
        bytes: usize,
        write: impl FnOnce(&mut [u8]),
    ) -> Result<(), SendError> {
        self.sender.untyped.send_quietly_with(bytes, write)
    }
}

/// For values of one type.
impl<T: MessageType> SendBatch<'_, T> {
    /// Lends memory for one value, calls `write` to fill it, and sends it. Its fields have no meaningful content at
    /// first. Write each of them.
    ///
    /// # Errors
    /// As for [`send`](Self::send).
    #[inline]
    pub fn send_with(&mut self, write: impl FnOnce(&mut T)) -> Result<(), SendError> {
        let write = |bytes: &mut [u8]| write(T::view_mut(bytes));
        self.sender.untyped.send_quietly_with(size_of::<T>(), write)
    }
}

impl<T: ?Sized> SendBatch<'_, T> {
    /// Ends the batch, like dropping it: wakes sleeping receivers.
    ///
    /// # Errors
    /// None: the only sender of a channel has sent every message by now. Senders of a shared channel may get an error
    /// here ([`SharedBatch::finish`](crate::SharedBatch::finish)).
    pub fn finish(self) -> Result<(), SendError> {
        Ok(())
    }
}

impl Untyped {
    #[inline]
    fn send_quietly(&mut self, message: &[u8]) -> Result<(), SendError> {
        let mut loan = self.loan_within(message.len(), Patience::Forever)?;
        loan.ring.fill(message);
        loan.ring.send_quietly();
        Ok(())
    }

    #[inline]
    fn send_quietly_with(
        &mut self,
        bytes: usize,
        write: impl FnOnce(&mut [u8]),
    ) -> Result<(), SendError> {
        let mut loan = self.loan_within(bytes, Patience::Forever)?;
        write(&mut loan);
        loan.ring.send_quietly();
        Ok(())
    }
}

impl<T: ?Sized> Drop for SendBatch<'_, T> {
    fn drop(&mut self) {
        self.sender.untyped.wake_if_asleep();
    }
}

impl<T: ?Sized> fmt::Debug for SendBatch<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SendBatch").field("sender", &self.sender).finish()
    }
}

/// For bytes and values, read in place.
impl<T: Payload + ?Sized> Receiver<T> {
    /// Waits for at least one message, and returns up to `count_max` of the available messages. All are readable in
    /// place until the [`Batch`] is dropped.
    ///
    /// # Errors
    /// As for [`receive`](Self::receive).
    pub fn receive_batch(&mut self, count_max: usize) -> Result<Batch<'_, T>, ReceiveError> {
        let mut batch = Batch { receiver: self, count: 0 };
        batch.receive(count_max)?;
        Ok(batch)
    }
}

/// Several messages, all readable in place. The first ones can be released while more are received. Dropping the batch
/// releases all.
pub struct Batch<'a, T: ?Sized = [u8]> {
    receiver: &'a mut Receiver<T>,
    count: u64,
}

impl<T: Payload + ?Sized> Batch<'_, T> {
    /// Receives up to `count_max` more messages. Waits for one if none is available and the batch is empty. Returns
    /// their number; 0 if the batch has some and no more are available.
    ///
    /// # Errors
    /// As for [`Receiver::receive`].
    pub fn receive(&mut self, count_max: usize) -> Result<usize, ReceiveError> {
        let wanted = self.count.saturating_add(count_max as u64);
        loop {
            let ready = self.receiver.untyped.ring.ready_count(wanted);
            if ready > self.count || self.count > 0 || count_max == 0 {
                let more = ready.saturating_sub(self.count);
                if more == 0 {
                    // What comes later belongs to another run.
                    let _ = self.receiver.untyped.ring.end_run(self.count);
                    // The sender may be waiting for messages released from this batch.
                    self.receiver.acknowledge();
                }
                self.count += more;
                return Ok(usize::try_from(more).unwrap_or(usize::MAX));
            }
            self.receiver.wait_more().map_err(|error| self.receiver.failed(error))?;
        }
    }

    /// Number of messages in the batch.
    #[must_use]
    pub fn len(&self) -> usize {
        usize::try_from(self.count).unwrap_or(usize::MAX)
    }

    /// True if the batch is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Reads message `index` of the batch, in place; `None` if there is no such message.
    ///
    /// # Errors
    /// [`ReceiveError::Value`] if the message is not a `T`, [`ReceiveError::Violation`] if the sender's memory holds an
    /// impossible value.
    pub fn get(&self, index: usize) -> Result<Option<&T>, ReceiveError> {
        if index >= self.len() {
            return Ok(None);
        }
        let bytes = self.receiver.peek(index as u64)?;
        Ok(bytes.map(T::check).transpose()?)
    }

    /// The messages of the batch, in order, in place. Ends early at a message that is not a `T`, or at an impossible
    /// value in the sender's memory; [`get`](Self::get) returns the error.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        (0..self.len()).map_while(|index| self.get(index).ok().flatten())
    }

    /// Releases the first `count` messages to the sender.
    ///
    /// # Errors
    /// [`ReceiveError::Violation`] if the sender's memory holds an impossible value.
    pub fn release(&mut self, count: usize) -> Result<(), ReceiveError> {
        let count = self.count.min(count as u64);
        self.count -= count;
        self.receiver.untyped.ring.done(count).map_err(|error| self.receiver.failed(error))
    }
}

impl<T: ?Sized> Drop for Batch<'_, T> {
    fn drop(&mut self) {
        // The next receive returns a violation again.
        let _ = self.receiver.untyped.ring.done(self.count);
    }
}

impl<T: ?Sized> fmt::Debug for Batch<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batch").field("len", &self.count).finish()
    }
}
