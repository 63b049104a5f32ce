//! A receiver of a channel.

use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use corewire::{ReceiveError, Receiver};
use futures_core::Stream;
use tokio::task::coop::poll_proceed;

use crate::error::{StreamError, reactor_failed};
use crate::ready::Ready;

/// The messages of a channel, as copies: a [`Stream`], which ends with the channel, or after an error.
/// [`receive_with`](Self::receive_with) reads them in place.
///
/// Dropping a future of it, or a poll, loses no message.
pub struct ReceiverStream {
    receiver: Receiver,
    ready: Ready,
    is_over: bool,
}

impl ReceiverStream {
    /// Waits for this receiver's messages in the runtime in which it is called. Blocks until the sender's process answers,
    /// as [`Receiver::readiness`] does.
    ///
    /// # Errors
    /// [`StreamError::Join`], `Os` or `Runtime`: there is no descriptor to wait for.
    pub fn new(receiver: Receiver) -> Result<Self, StreamError> {
        let ready = Ready::new(receiver.readiness()?).map_err(|error| reactor_failed(&error))?;
        Ok(Self { receiver, ready, is_over: false })
    }

    /// Calls `read` with the next message, in place, waiting for it; `None` at the end of the channel.
    ///
    /// # Errors
    /// [`StreamError`], as for [`Receiver::receive`], except for the end of the stream.
    pub async fn receive_with<R>(
        &mut self,
        read: impl FnOnce(&[u8]) -> R,
    ) -> Result<Option<R>, StreamError> {
        let mut read = Some(read);
        poll_fn(|cx| {
            let polled =
                ready!(self.poll_with(cx, |message| read.take().map(|read| read(message))));
            Poll::Ready(polled.transpose().map(Option::flatten))
        })
        .await
    }

    /// The receiver, for what does not wait.
    pub const fn get_mut(&mut self) -> &mut Receiver {
        &mut self.receiver
    }

    /// Gives the receiver back.
    #[must_use]
    pub fn into_inner(self) -> Receiver {
        self.receiver
    }

    fn poll_with<R>(
        &mut self,
        cx: &mut Context<'_>,
        mut read: impl FnMut(&[u8]) -> R,
    ) -> Poll<Option<Result<R, StreamError>>> {
        let turn = ready!(poll_proceed(cx));
        loop {
            match self.receiver.try_receive() {
                Ok(Some(message)) => {
                    turn.made_progress();
                    return Poll::Ready(Some(Ok(read(&message))));
                }
                Ok(None) => {}
                Err(ReceiveError::EndOfStream) => return Poll::Ready(None),
                Err(error) => return Poll::Ready(Some(Err(error.into()))),
            }
            if self.receiver.arm()? {
                ready!(self.ready.poll(cx)).map_err(|error| reactor_failed(&error))?;
            }
        }
    }
}

impl Stream for ReceiverStream {
    type Item = Result<Vec<u8>, StreamError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.is_over {
            return Poll::Ready(None);
        }
        let polled = ready!(self.poll_with(cx, <[u8]>::to_vec));
        self.is_over = !matches!(polled, Some(Ok(_)));
        Poll::Ready(polled)
    }
}

impl fmt::Debug for ReceiverStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ReceiverStream").field(&self.receiver).finish()
    }
}
