//! A producer of a queue.

use std::fmt;

use corewire_endpoint::{Peer, Selector};

use super::error::QueueError;
use super::wire::Message;
use crate::path::endpoint::Endpoint;
use crate::wait::Interrupter;

/// Adds jobs to a queue of another process, or of this one. Returned by
/// [`QueueBuilder::producer`](crate::QueueBuilder::producer).
pub struct Producer {
    endpoint: Endpoint,
    owner: Peer,
    /// A job was sent, and a call ended before the answer came.
    is_owed: bool,
}

impl Producer {
    pub(super) const fn new(endpoint: Endpoint, owner: Peer) -> Self {
        Self { endpoint, owner, is_owed: false }
    }

    /// Adds a job, and waits until the owner has accepted it: while the queue is full, too. From then on the job survives
    /// this process.
    ///
    /// # Errors
    /// [`QueueError::TooLong`] or `Finished`: the job was not accepted. `Message`: the owner has died or has closed the queue,
    /// or the call was interrupted: whether the job was accepted is not known.
    pub fn push(&mut self, job: &[u8]) -> Result<(), QueueError> {
        if self.is_owed {
            // Of a job whose call was interrupted: that it was too long says nothing of this one.
            match self.answer(0) {
                Ok(()) | Err(QueueError::TooLong { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        self.endpoint.send(self.owner, Message::Push.tag(), job)?;
        self.is_owed = true;
        self.answer(job.len() as u64)
    }

    fn answer(&mut self, asked: u64) -> Result<(), QueueError> {
        let answer = self.endpoint.receive(Selector::any().from(self.owner))?;
        self.is_owed = false;
        match Message::of_tag(answer.tag()) {
            Some(Message::Accepted) => Ok(()),
            Some(Message::TooLong { max }) => Err(QueueError::TooLong { max, asked }),
            _ => Err(QueueError::Finished),
        }
    }

    /// A handle with which another thread ends a call that waits, with
    /// [`MessageError::Interrupted`](crate::MessageError::Interrupted).
    #[must_use]
    pub fn interrupter(&self) -> Interrupter {
        self.endpoint.interrupter()
    }
}

impl fmt::Debug for Producer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Producer").field("endpoint", &self.endpoint.name()).finish_non_exhaustive()
    }
}
