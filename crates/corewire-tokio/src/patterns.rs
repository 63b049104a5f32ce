//! Last values, and workers of queues.

use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use corewire::{Job, LatestReader, MessageError, QueueError, ReceiveError, Worker};
use futures_core::Stream;
use tokio::task::coop::poll_proceed;

use crate::error::{StreamError, reactor_failed};
use crate::ready::Ready;

/// The newest values of a last value: a [`Stream`], which passes over those that were overwritten before it looked. It ends
/// with the writer, or after an error, such as its death.
pub struct LatestStream {
    reader: LatestReader,
    ready: Ready,
    /// The number of the value that was returned last.
    returned: Option<u64>,
    is_over: bool,
}

impl LatestStream {
    /// Waits for newer values in the runtime in which it is called. Blocks until the writer's process answers, as
    /// [`LatestReader::readiness`] does.
    ///
    /// # Errors
    /// [`StreamError::Join`], `Os` or `Runtime`: there is no descriptor to wait for.
    pub fn new(reader: LatestReader) -> Result<Self, StreamError> {
        let ready = Ready::new(reader.readiness()?).map_err(|error| reactor_failed(&error))?;
        let returned = reader.number();
        Ok(Self { reader, ready, returned, is_over: false })
    }

    /// The reader, for what does not wait.
    pub const fn get_mut(&mut self) -> &mut LatestReader {
        &mut self.reader
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Vec<u8>>, StreamError>> {
        let turn = ready!(poll_proceed(cx));
        loop {
            let value = self.reader.get()?.map(<[u8]>::to_vec);
            let number = self.reader.number();
            if number != self.returned {
                self.returned = number;
                turn.made_progress();
                return Poll::Ready(Ok(value));
            }
            if self.reader.has_ended() {
                return Poll::Ready(match self.reader.wait_timeout(Duration::ZERO) {
                    Err(ReceiveError::EndOfStream) => Ok(None),
                    ended => ended.map(|_| None).map_err(StreamError::from),
                });
            }
            if self.reader.arm()? {
                ready!(self.ready.poll(cx)).map_err(|error| reactor_failed(&error))?;
            }
        }
    }
}

impl Stream for LatestStream {
    type Item = Result<Vec<u8>, StreamError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.is_over {
            return Poll::Ready(None);
        }
        let value = ready!(self.poll(cx)).transpose();
        self.is_over = !matches!(value, Some(Ok(_)));
        Poll::Ready(value)
    }
}

impl fmt::Debug for LatestStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LatestStream").field(&self.reader).finish()
    }
}

/// A worker of a queue.
pub struct QueueWorker {
    worker: Worker,
    ready: Ready,
}

impl QueueWorker {
    /// Waits for jobs in the runtime in which it is called.
    ///
    /// # Errors
    /// [`QueueError::Message`]: the reactor does not take the descriptor.
    pub fn new(worker: Worker) -> Result<Self, QueueError> {
        let ready = Ready::new(worker.readiness());
        let ready = ready.map_err(|error| MessageError::Transport(error.to_string()))?;
        Ok(Self { worker, ready })
    }

    /// The next job; `None` if there will be none. If the future is dropped, the next call returns the job that it has asked
    /// for.
    ///
    /// # Errors
    /// As for [`Worker::take`].
    pub async fn take(&mut self) -> Result<Option<Job<'_>>, QueueError> {
        poll_fn(|cx| {
            let turn = ready!(poll_proceed(cx));
            while !self.worker.is_ready()? {
                if self.worker.arm()? {
                    let ready = ready!(self.ready.poll(cx));
                    ready.map_err(|error| MessageError::Transport(error.to_string()))?;
                }
            }
            turn.made_progress();
            Poll::Ready(Ok::<_, QueueError>(()))
        })
        .await?;
        self.worker.take_timeout(Duration::ZERO)
    }
}

impl fmt::Debug for QueueWorker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("QueueWorker").field(&self.worker).finish()
    }
}
