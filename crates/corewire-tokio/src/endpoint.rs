//! An endpoint.

use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use corewire::{
    Completion, ConnectError, DetachedRequest, Endpoint, Envelope, Event, MessageError,
    OperationHandle, OwnedMessage, Peer, Selector,
};
use futures_core::Stream;
use futures_sink::Sink;
use tokio::task::coop::poll_proceed;

use crate::ready::Ready;

/// An endpoint whose calls do not block the task. One task uses it at a time; others send to it by messages of their own, or
/// have endpoints of their own.
///
/// Dropping a future loses no message: one that has come is received by the next call, and one that is being sent goes on.
pub struct TokioEndpoint {
    endpoint: Endpoint,
    ready: Ready,
    /// Operations whose futures were dropped.
    abandoned: Vec<OperationHandle>,
}

fn failed(error: &std::io::Error) -> MessageError {
    MessageError::Transport(format!("cannot wait in tokio: {error}"))
}

impl TokioEndpoint {
    /// Waits for this endpoint in the runtime in which it is called.
    ///
    /// # Errors
    /// [`MessageError::Transport`]: the reactor does not take the descriptor.
    pub fn new(endpoint: Endpoint) -> Result<Self, MessageError> {
        let ready = Ready::new(endpoint.readiness()).map_err(|error| failed(&error))?;
        Ok(Self { endpoint, ready, abandoned: Vec::new() })
    }

    /// The endpoint, for what does not wait, such as [`Endpoint::reply`].
    pub const fn get_mut(&mut self) -> &mut Endpoint {
        &mut self.endpoint
    }

    /// Links with the endpoint of this name. A thread of tokio's pool waits for that endpoint's process.
    /// [`Endpoint::address`] needs no thread, and no endpoint that exists.
    ///
    /// # Errors
    /// As for [`Endpoint::peer`].
    pub async fn peer(&mut self, name: &str) -> Result<Peer, ConnectError> {
        let (connector, own) = (self.endpoint.connector(), name.to_owned());
        let connecting = tokio::task::spawn_blocking(move || connector.connect(&own));
        if let Ok(connected) = connecting.await {
            connected?;
        }
        // It is linked by now.
        self.endpoint.peer(name)
    }

    /// The next message that `selector` asks for.
    ///
    /// # Errors
    /// As for [`Endpoint::receive`].
    pub async fn receive(&mut self, selector: Selector) -> Result<OwnedMessage, MessageError> {
        poll_fn(|cx| self.poll(cx, |endpoint| endpoint.try_receive(selector))).await
    }

    /// The same, into the beginning of `buffer`; returns its status.
    ///
    /// # Errors
    /// As for [`Endpoint::receive_into`].
    pub async fn receive_into(
        &mut self,
        selector: Selector,
        buffer: &mut [u8],
    ) -> Result<corewire::Status, MessageError> {
        poll_fn(|cx| self.poll(cx, |endpoint| endpoint.try_receive_into(selector, buffer))).await
    }

    /// The next message that `selector` asks for, or that a peer has come or gone.
    ///
    /// # Errors
    /// As for [`Endpoint::receive_event`].
    pub async fn receive_event(
        &mut self,
        selector: Selector,
    ) -> Result<Event<OwnedMessage>, MessageError> {
        poll_fn(|cx| self.poll(cx, |endpoint| endpoint.now().receive_event(selector))).await
    }

    /// The next request, with what is owed: [`Endpoint::reply`] replies.
    ///
    /// # Errors
    /// As for [`Endpoint::receive_request`].
    pub async fn receive_request(&mut self) -> Result<DetachedRequest, MessageError> {
        poll_fn(|cx| {
            self.poll(cx, |endpoint| {
                Ok(endpoint.now().receive_request()?.map(corewire::Request::detach))
            })
        })
        .await
    }

    /// Sends a message, waiting until it is copied. If the future is dropped, the message goes on in later calls of this
    /// endpoint, as [`flush`](Self::flush).
    ///
    /// # Errors
    /// As for [`Endpoint::send`].
    pub async fn send(
        &mut self,
        peer: Peer,
        envelope: impl Into<Envelope>,
        message: &[u8],
    ) -> Result<(), MessageError> {
        let envelope = envelope.into();
        match self.begin(peer, envelope, message)? {
            Begun::Sent => Ok(()),
            Begun::InPart => self.flush().await,
            Begun::Not => {
                let handle = self.endpoint.isend(peer, envelope, message)?;
                let end = OnDrop::Abandons;
                let mut running = Running { endpoint: self, handle: Some(handle), end };
                running.end().await?.result.map(drop)
            }
        }
    }

    /// Waits until all messages are sent whose beginning was, as [`Endpoint::flush`] does.
    ///
    /// # Errors
    /// [`MessageError::Transport`] or `Forked`.
    pub async fn flush(&mut self) -> Result<(), MessageError> {
        poll_fn(|cx| self.poll_flush(cx)).await
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), MessageError>> {
        self.poll(cx, |endpoint| {
            if !endpoint.has_pending_sends() {
                return Ok(Some(()));
            }
            endpoint.now().flush().map(Some).or_else(|error| match error {
                MessageError::Timeout { .. } => Ok(None),
                error => Err(error),
            })
        })
    }

    /// Sends a message now, as far as there is room. Behind one that is under way there is none: that one's peer may be
    /// stopped.
    fn begin(
        &mut self,
        peer: Peer,
        envelope: Envelope,
        message: &[u8],
    ) -> Result<Begun, MessageError> {
        if self.endpoint.has_pending_sends() {
            return Ok(Begun::Not);
        }
        loop {
            match self.endpoint.try_send(peer, envelope, message) {
                Ok(()) if self.endpoint.has_pending_sends() => return Ok(Begun::InPart),
                Ok(()) => return Ok(Begun::Sent),
                Err(MessageError::Full { .. }) => return Ok(Begun::Not),
                Err(MessageError::Interrupted) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Sends a request, and waits for its reply. A reply to a future that was dropped is dropped.
    ///
    /// # Errors
    /// As for [`Endpoint::call`].
    pub async fn call(&mut self, peer: Peer, request: &[u8]) -> Result<Vec<u8>, MessageError> {
        let handle = self.endpoint.icall(peer, request)?;
        let end = OnDrop::Cancels;
        let mut running = Running { endpoint: self, handle: Some(handle), end };
        let completion = running.end().await?;
        completion.result?;
        Ok(completion.memory.into_vec())
    }

    /// The end of an operation that [`get_mut`](Self::get_mut) has begun. If the future is dropped, the handle stays the
    /// caller's.
    ///
    /// # Errors
    /// As for [`Endpoint::wait`].
    pub async fn end_of(&mut self, handle: OperationHandle) -> Result<Completion, MessageError> {
        poll_fn(|cx| self.poll(cx, |endpoint| endpoint.test(handle))).await
    }

    /// The messages that `selector` asks for, as a stream. It ends after an error.
    pub const fn messages(&mut self, selector: Selector) -> Messages<'_> {
        Messages { endpoint: self, selector, is_over: false }
    }

    /// A sink of messages with this envelope to a peer.
    pub fn sink(&mut self, peer: Peer, envelope: impl Into<Envelope>) -> PeerSink<'_> {
        PeerSink {
            endpoint: self,
            peer,
            envelope: envelope.into(),
            sending: None,
            is_in_part: false,
        }
    }

    /// Looks, arms, looks again, and waits.
    fn poll<R>(
        &mut self,
        cx: &mut Context<'_>,
        mut look: impl FnMut(&mut Endpoint) -> Result<Option<R>, MessageError>,
    ) -> Poll<Result<R, MessageError>> {
        let turn = ready!(poll_proceed(cx));
        self.reap();
        loop {
            match look(&mut self.endpoint) {
                Ok(Some(found)) => {
                    turn.made_progress();
                    return Poll::Ready(Ok(found));
                }
                Ok(None) | Err(MessageError::Interrupted) => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
            if self.endpoint.arm()? {
                ready!(self.ready.poll(cx)).map_err(|error| failed(&error))?;
            }
        }
    }

    /// Forgets operations whose futures were dropped and that have ended.
    fn reap(&mut self) {
        if !self.abandoned.is_empty() {
            let endpoint = &mut self.endpoint;
            self.abandoned.retain(|handle| matches!(endpoint.test(*handle), Ok(None)));
        }
    }
}

impl fmt::Debug for TokioEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TokioEndpoint").field(&self.endpoint.name()).finish()
    }
}

/// An operation whose future may be dropped.
struct Running<'a> {
    endpoint: &'a mut TokioEndpoint,
    handle: Option<OperationHandle>,
    end: OnDrop,
}

/// What becomes of an operation whose future is dropped.
#[derive(PartialEq, Eq)]
enum OnDrop {
    /// It goes on, and nobody asks for its end.
    Abandons,
    Cancels,
}

/// How much of a message was sent.
#[derive(PartialEq, Eq)]
enum Begun {
    Sent,
    InPart,
    Not,
}

impl Running<'_> {
    async fn end(&mut self) -> Result<Completion, MessageError> {
        let Some(handle) = self.handle else { return Err(MessageError::UnknownOperation) };
        let ended = poll_fn(|cx| self.endpoint.poll(cx, |endpoint| endpoint.test(handle))).await;
        self.handle = None;
        ended
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        if let Some(handle) = self.handle {
            if self.end == OnDrop::Cancels {
                // It may have ended.
                let _ = self.endpoint.endpoint.cancel(handle);
            }
            self.endpoint.abandoned.push(handle);
        }
    }
}

/// Messages of an endpoint, returned by [`TokioEndpoint::messages`].
#[derive(Debug)]
pub struct Messages<'a> {
    endpoint: &'a mut TokioEndpoint,
    selector: Selector,
    is_over: bool,
}

impl Stream for Messages<'_> {
    type Item = Result<OwnedMessage, MessageError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.is_over {
            return Poll::Ready(None);
        }
        let selector = self.selector;
        let polled = ready!(self.endpoint.poll(cx, |endpoint| endpoint.try_receive(selector)));
        self.is_over = polled.is_err();
        Poll::Ready(Some(polled))
    }
}

/// Messages to a peer of an endpoint, returned by [`TokioEndpoint::sink`].
#[derive(Debug)]
pub struct PeerSink<'a> {
    endpoint: &'a mut TokioEndpoint,
    peer: Peer,
    envelope: Envelope,
    /// One that has found no room.
    sending: Option<OperationHandle>,
    /// One was sent in part.
    is_in_part: bool,
}

impl PeerSink<'_> {
    fn poll_free(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), MessageError>> {
        if self.is_in_part {
            ready!(self.endpoint.poll_flush(cx))?;
            self.is_in_part = false;
        }
        let Some(handle) = self.sending else { return Poll::Ready(Ok(())) };
        let ended = ready!(self.endpoint.poll(cx, |endpoint| endpoint.test(handle)));
        self.sending = None;
        Poll::Ready(ended.and_then(|ended| ended.result.map(drop)))
    }
}

impl Sink<Vec<u8>> for PeerSink<'_> {
    type Error = MessageError;

    fn poll_ready(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), MessageError>> {
        self.poll_free(cx)
    }

    fn start_send(mut self: Pin<&mut Self>, message: Vec<u8>) -> Result<(), MessageError> {
        let (peer, envelope) = (self.peer, self.envelope);
        match self.endpoint.begin(peer, envelope, &message)? {
            Begun::Sent => {}
            Begun::InPart => self.is_in_part = true,
            Begun::Not => {
                self.sending = Some(self.endpoint.endpoint.isend(peer, envelope, message)?);
            }
        }
        Ok(())
    }

    fn poll_flush(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), MessageError>> {
        self.poll_free(cx)
    }

    fn poll_close(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), MessageError>> {
        self.poll_free(cx)
    }
}

impl Drop for PeerSink<'_> {
    fn drop(&mut self) {
        self.endpoint.abandoned.extend(self.sending);
    }
}
