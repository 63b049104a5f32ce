//! A worker of a queue.

use std::fmt;
use std::ops::Deref;
use std::time::Duration;

use corewire_endpoint::{MessageError, OwnedMessage, Peer, Selector};

use super::error::QueueError;
use super::wire::Message;
use crate::path::endpoint::Endpoint;
use crate::wait::{Interrupter, Readiness};

/// Does the jobs of a queue, one at a time. Returned by [`QueueBuilder::worker`](crate::QueueBuilder::worker).
///
/// If its process dies, the queue's owner hears of that from the kernel, and hands its job to another worker
/// ([`Delivery::AtLeastOnce`](crate::Delivery::AtLeastOnce)). A worker that is stopped keeps its job.
pub struct Worker {
    endpoint: Endpoint,
    owner: Peer,
    /// It has asked for a job, which has not come.
    has_asked: bool,
    /// The queue has said that no job will come.
    is_finished: bool,
}

impl Worker {
    pub(super) const fn new(endpoint: Endpoint, owner: Peer) -> Self {
        Self { endpoint, owner, has_asked: false, is_finished: false }
    }

    /// Waits for the next job. `None` if there will be none: the queue is finished.
    ///
    /// # Errors
    /// [`QueueError::Message`]: the owner has died or has closed the queue; or the call was interrupted, and can be made
    /// again.
    pub fn take(&mut self) -> Result<Option<Job<'_>>, QueueError> {
        match self.ask()? {
            false => Ok(None),
            true => {
                let message = self.endpoint.receive(Selector::any().from(self.owner))?;
                self.job(message)
            }
        }
    }

    /// Waits for the next job for at most `timeout`: [`MessageError::Timeout`] if none came. It has been asked for then, and
    /// the next job is this worker's: the next call returns it. To give that up, drop the worker: a job that
    /// has come goes back.
    ///
    /// # Errors
    /// As for [`take`](Self::take).
    pub fn take_timeout(&mut self, timeout: Duration) -> Result<Option<Job<'_>>, QueueError> {
        if !self.ask()? {
            return Ok(None);
        }
        let selector = Selector::any().from(self.owner);
        match self.endpoint.receive_timeout(selector, timeout)? {
            Some(message) => self.job(message),
            None => Err(MessageError::Timeout { after: timeout }.into()),
        }
    }

    /// Asks for a job, once. False if there will be none.
    fn ask(&mut self) -> Result<bool, QueueError> {
        if !self.has_asked && !self.is_finished {
            let asked = self.endpoint.send(self.owner, Message::Ask.tag(), &[]);
            // An owner that has ended may have said before that no job will come.
            let selector = Selector::any().from(self.owner);
            if asked.is_err() && !self.endpoint.now().probe(selector).is_ok_and(|it| it.is_some()) {
                return asked.map(|()| true).map_err(QueueError::from);
            }
            self.has_asked = true;
        }
        Ok(!self.is_finished)
    }

    /// Says something of a job; an interrupt is left for the next call that waits.
    fn say(&mut self, message: Message) -> Result<(), MessageError> {
        let mut was_interrupted = false;
        let said = loop {
            match self.endpoint.send(self.owner, message.tag(), &[]) {
                Err(MessageError::Interrupted) => was_interrupted = true,
                said => break said,
            }
        };
        if was_interrupted {
            self.endpoint.interrupter().interrupt();
        }
        said
    }

    /// Whether the next call does not wait: a job is there, or there will be none. Never waits.
    ///
    /// # Errors
    /// As for [`take`](Self::take).
    pub fn is_ready(&mut self) -> Result<bool, QueueError> {
        let selector = Selector::any().from(self.owner);
        Ok(!self.ask()? || self.endpoint.now().probe(selector)?.is_some())
    }

    fn job(&mut self, message: OwnedMessage) -> Result<Option<Job<'_>>, QueueError> {
        self.has_asked = false;
        let Some(Message::Give { number, is_repeated, is_done }) = Message::of_tag(message.tag())
        else {
            self.is_finished = true;
            return Ok(None);
        };
        if is_done {
            // At most once: nobody else gets what this program has seen.
            self.say(Message::Done { number })?;
        }
        Ok(Some(Job { worker: self, message, number, is_repeated, is_over: is_done }))
    }

    /// A handle with which another thread ends a call that waits, with [`MessageError::Interrupted`].
    #[must_use]
    pub fn interrupter(&self) -> Interrupter {
        self.endpoint.interrupter()
    }

    /// A descriptor for an event loop, see [`Endpoint::readiness`]: `take_timeout` of zero takes a job that is there.
    pub fn readiness(&self) -> Readiness {
        self.endpoint.readiness()
    }

    /// Asks for a job, and announces that the caller is about to wait for the descriptor. False if a job may be there.
    ///
    /// # Errors
    /// As for [`take`](Self::take).
    pub fn arm(&mut self) -> Result<bool, QueueError> {
        Ok(self.ask()? && self.endpoint.arm()?)
    }
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker").field("endpoint", &self.endpoint.name()).finish_non_exhaustive()
    }
}

/// A job, which derefs to its bytes. Call [`done`](Self::done) when it is done. Dropping it gives it back: another worker
/// gets it, or this one again. (In a queue of [`Delivery::AtMostOnce`](crate::Delivery::AtMostOnce) that means nothing: the job
/// was done for the queue when this worker got it.)
#[must_use = "a job that is dropped goes back to the queue"]
pub struct Job<'a> {
    worker: &'a mut Worker,
    message: OwnedMessage,
    number: u64,
    is_repeated: bool,
    /// The owner needs to hear nothing of it any more.
    is_over: bool,
}

impl Job<'_> {
    /// Its number in the queue, from 0, in the order in which jobs were accepted.
    #[must_use]
    pub const fn number(&self) -> u64 {
        self.number
    }

    /// Whether it has been handed out before: a worker that had it may have done it, in part or altogether.
    #[must_use]
    pub const fn is_repeated(&self) -> bool {
        self.is_repeated
    }

    /// Says that it is done. It is acknowledged when this returns, whatever happens to this process then. An interrupt does not
    /// end this call, but the next one that waits.
    ///
    /// # Errors
    /// [`QueueError::Message`]: the owner has died, or has closed the queue.
    pub fn done(mut self) -> Result<(), QueueError> {
        match std::mem::replace(&mut self.is_over, true) {
            true => Ok(()),
            false => Ok(self.worker.say(Message::Done { number: self.number })?),
        }
    }
}

impl Deref for Job<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.message
    }
}

impl Drop for Job<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            // An owner that has gone gives it to nobody.
            let _ = self.worker.say(Message::Back { number: self.number });
        }
    }
}

impl fmt::Debug for Job<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { number, is_repeated, .. } = self;
        let bytes = self.len();
        f.debug_struct("Job")
            .field("number", number)
            .field("bytes", &bytes)
            .field("is_repeated", is_repeated)
            .finish_non_exhaustive()
    }
}
