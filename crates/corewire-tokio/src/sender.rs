//! The sender of a channel.

use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use corewire::{Interrupter, SendError, Sender};
use futures_sink::Sink;
use tokio::task::JoinHandle;

/// Sends messages into a channel: a [`Sink`]. It waits for room without blocking the task.
///
/// A sender has no descriptor for room: while a receiver is so far behind that there is none, a thread of tokio's pool has the
/// sender and waits. Where receivers keep up, no other thread is needed. Dropping the sink ends that wait: the message is not
/// sent then.
pub struct SenderSink {
    state: State,
    /// What `start_send` was given, and has found no room.
    kept: Option<Vec<u8>>,
}

enum State {
    Here(Box<Sender>),
    /// A thread waits for room, with this message.
    Waiting(JoinHandle<(Box<Sender>, Result<(), SendError>)>, Interrupter),
    /// That thread has panicked, or the runtime has ended.
    Lost,
}

impl SenderSink {
    /// Sends with this sender.
    #[must_use]
    pub fn new(sender: Sender) -> Self {
        Self { state: State::Here(Box::new(sender)), kept: None }
    }

    /// Sends a message, waiting for room. If the future is dropped, the message was sent, or will be, or was not begun: it is
    /// not if this was the first poll and an earlier one still waits.
    ///
    /// # Errors
    /// As for [`Sender::send`]; also of an earlier message whose future was dropped.
    pub async fn send(&mut self, message: &[u8]) -> Result<(), SendError> {
        poll_fn(|cx| self.poll_free(cx)).await?;
        self.begin(message)?;
        poll_fn(|cx| self.poll_free(cx)).await
    }

    /// The sender, for what does not wait; `None` while a thread waits with it for room.
    pub fn get_mut(&mut self) -> Option<&mut Sender> {
        match &mut self.state {
            State::Here(sender) => Some(sender),
            _ => None,
        }
    }

    /// Sends a message now, or begins to wait for room.
    fn begin(&mut self, message: &[u8]) -> Result<(), SendError> {
        let State::Here(mut sender) = std::mem::replace(&mut self.state, State::Lost) else {
            return Err(SendError::Interrupted);
        };
        match sender.try_send(message) {
            Err(SendError::Full { .. } | SendError::Joining { .. }) => {
                let (message, interrupter) = (message.to_vec(), sender.interrupter());
                let waiting = tokio::task::spawn_blocking(move || {
                    let sent = sender.send(&message);
                    (sender, sent)
                });
                self.state = State::Waiting(waiting, interrupter);
                Ok(())
            }
            sent => {
                self.state = State::Here(sender);
                sent
            }
        }
    }

    /// Ready if no message waits for room.
    fn poll_free(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), SendError>> {
        loop {
            if let State::Waiting(waiting, _) = &mut self.state {
                let ended = ready!(Pin::new(waiting).poll(cx));
                let Ok((sender, sent)) = ended else {
                    self.state = State::Lost;
                    return Poll::Ready(Err(SendError::Interrupted));
                };
                self.state = State::Here(sender);
                if sent.is_err() {
                    return Poll::Ready(sent);
                }
            }
            match self.kept.take() {
                Some(message) => self.begin(&message)?,
                None => return Poll::Ready(Ok(())),
            }
        }
    }
}

impl Drop for SenderSink {
    fn drop(&mut self) {
        if let State::Waiting(_, interrupter) = &self.state {
            interrupter.interrupt();
        }
    }
}

impl Sink<Vec<u8>> for SenderSink {
    type Error = SendError;

    fn poll_ready(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), SendError>> {
        self.poll_free(cx)
    }

    fn start_send(mut self: Pin<&mut Self>, message: Vec<u8>) -> Result<(), SendError> {
        self.kept = Some(message);
        Ok(())
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), SendError>> {
        self.poll_free(cx)
    }

    fn poll_close(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), SendError>> {
        ready!(self.poll_free(cx))?;
        // Dropping the sender closes the channel.
        self.state = State::Lost;
        Poll::Ready(Ok(()))
    }
}

impl fmt::Debug for SenderSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SenderSink").finish_non_exhaustive()
    }
}
