//! Many messages at once.

use std::fmt;

use crate::error::{ReceiveError, SendError};
use crate::path::receive::Receiver;
use crate::path::send::{Loan, Sender};

/// Messages being sent together. Each is published as it is sent; receivers that sleep are woken
/// once, when the batch is dropped or has to wait for room.
#[derive(Debug)]
pub struct SendBatch<'a> {
    sender: &'a mut Sender,
}

impl<'a> SendBatch<'a> {
    pub(crate) fn new(sender: &'a mut Sender) -> Self {
        Self { sender }
    }

    /// Sends one message of the batch, waiting for room if there is none.
    ///
    /// # Errors
    /// As for [`Sender::send`].
    #[inline]
    pub fn send(&mut self, message: &[u8]) -> Result<(), SendError> {
        let mut loan = self.sender.loan(message.len())?;
        loan.ring.fill(message);
        loan.ring.send_quietly();
        Ok(())
    }

    /// Lends the place of one message of `bytes` bytes, has `write` fill it, and sends it.
    ///
    /// # Errors
    /// As for [`Sender::loan`].
    #[inline]
    pub fn send_with(
        &mut self,
        bytes: usize,
        write: impl FnOnce(&mut [u8]),
    ) -> Result<(), SendError> {
        let mut loan: Loan<'_> = self.sender.loan(bytes)?;
        write(&mut loan);
        loan.ring.send_quietly();
        Ok(())
    }

    /// Ends the batch, as dropping it does: wakes receivers that sleep.
    ///
    /// # Errors
    /// None: a sender that is alone has sent everything by now. Senders of a shared channel may fail
    /// here ([`SharedBatch::finish`](crate::SharedBatch::finish)).
    pub fn finish(self) -> Result<(), SendError> {
        Ok(())
    }
}

impl Drop for SendBatch<'_> {
    fn drop(&mut self) {
        self.sender.wake_if_asleep();
    }
}

/// Several messages held at once, all readable in place. Those at the front can be given back while
/// more are received at the end; dropping the batch gives all back.
pub struct Batch<'a> {
    receiver: &'a mut Receiver,
    count: u64,
}

impl<'a> Batch<'a> {
    pub(crate) fn new(receiver: &'a mut Receiver) -> Self {
        Self { receiver, count: 0 }
    }

    /// Takes up to `count_max` more messages, waiting for one if none is there and the batch is
    /// empty. Returns how many came; 0 if the batch holds some and no more are there.
    ///
    /// # Errors
    /// As for [`Receiver::receive`].
    pub fn receive(&mut self, count_max: usize) -> Result<usize, ReceiveError> {
        let wanted = self.count.saturating_add(count_max as u64);
        loop {
            let ready = self.receiver.ring.ready_count(wanted);
            if ready > self.count || self.count > 0 || count_max == 0 {
                let more = ready.saturating_sub(self.count);
                if more == 0 {
                    // The sender may be waiting for what has been released of this batch.
                    self.receiver.acknowledge();
                }
                self.count += more;
                return Ok(usize::try_from(more).unwrap_or(usize::MAX));
            }
            self.receiver.wait_more().map_err(|error| self.receiver.failed(error))?;
        }
    }

    /// How many messages it holds.
    #[must_use]
    pub fn len(&self) -> usize {
        usize::try_from(self.count).unwrap_or(usize::MAX)
    }

    /// True if it holds none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Message `index` of those held, in place.
    ///
    /// # Errors
    /// [`ReceiveError::Violation`] if the sender's memory holds an impossible value.
    pub fn get(&self, index: usize) -> Result<Option<&[u8]>, ReceiveError> {
        if index >= self.len() {
            return Ok(None);
        }
        self.receiver.peek(index as u64)
    }

    /// The messages held, in order, in place. An impossible value in the sender's memory ends it;
    /// [`get`](Self::get) tells.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.len()).map_while(|index| self.get(index).ok().flatten())
    }

    /// Gives the first `count` messages back to the sender.
    ///
    /// # Errors
    /// [`ReceiveError::Violation`] if the sender's memory holds an impossible value.
    pub fn release(&mut self, count: usize) -> Result<(), ReceiveError> {
        let count = self.count.min(count as u64);
        self.count -= count;
        self.receiver.ring.done(count).map_err(|error| self.receiver.failed(error))
    }
}

impl Drop for Batch<'_> {
    fn drop(&mut self) {
        // A violation shows again at the next receive.
        let _ = self.receiver.ring.done(self.count);
    }
}

impl fmt::Debug for Batch<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batch").field("len", &self.count).finish()
    }
}
