//! Requests and replies.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use corewire_endpoint::{
    Engine, Memory, MessageError, OperationHandle, Options, OwnedMessage, Peer, Selector, Source,
    Status,
};

use super::{Endpoint, PairRings};
use crate::halves::EndpointHalf;
use crate::wait::Patience;

type Calls = Engine<PairRings>;

impl Endpoint {
    // The caller.

    /// Sends `request` to `peer`, which receives it with [`receive_request`](Self::receive_request), and
    /// waits for its reply.
    ///
    /// # Errors
    /// [`MessageError::RequestDropped`] if the peer drops the request without a reply; the reason why the peer has
    /// gone; `UnknownPeer`, `NoMemory`, `Interrupted`, `Forked`, `Transport`. A reply that comes after an error is
    /// dropped.
    pub fn call(&mut self, peer: Peer, request: &[u8]) -> Result<OwnedMessage, MessageError> {
        let number = self.new_call();
        self.send(peer, Calls::request_envelope(number), request)?;
        self.receive(Calls::reply_selector(number, peer))
    }

    /// Like [`call`](Self::call), for at most `timeout`; `None` if there was no reply by then. A reply that
    /// comes later is dropped.
    ///
    /// # Errors
    /// As for [`call`](Self::call).
    pub fn call_timeout(
        &mut self,
        peer: Peer,
        request: &[u8],
        timeout: Duration,
    ) -> Result<Option<OwnedMessage>, MessageError> {
        let patience = Patience::until(timeout);
        match self.begin_call(peer, request, patience)? {
            Some(reply) => self.receive_patiently(reply, patience),
            None => Ok(None),
        }
    }

    /// Like [`call`](Self::call), but stores the reply at the beginning of `reply`.
    ///
    /// # Errors
    /// As for [`call`](Self::call); also [`MessageError::BufferTooSmall`], after which the reply is lost.
    #[inline]
    pub fn call_into(
        &mut self,
        peer: Peer,
        request: &[u8],
        reply: &mut [u8],
    ) -> Result<Status, MessageError> {
        let number = self.new_call();
        self.send(peer, Calls::request_envelope(number), request)?;
        self.receive_into(Calls::reply_selector(number, peer), reply)
    }

    /// Begins to send `request`, and never waits. The operation ends with the reply, in the operation's memory, or
    /// with an error. [`cancel`](Self::cancel) ends it earlier; a reply that comes later is dropped.
    ///
    /// # Errors
    /// As for [`send`](Self::send); a later failure is the operation's result.
    pub fn icall(
        &mut self,
        peer: Peer,
        request: impl Into<Memory>,
    ) -> Result<OperationHandle, MessageError> {
        self.icall_with(peer, request, Options::default())
    }

    /// Like [`icall`](Self::icall), with a number of the caller's choice, and another way to report the end.
    ///
    /// # Errors
    /// As for [`icall`](Self::icall).
    pub fn icall_with(
        &mut self,
        peer: Peer,
        request: impl Into<Memory>,
        options: Options,
    ) -> Result<OperationHandle, MessageError> {
        self.handle_notices()?;
        self.engine.start_call(peer, request.into(), options)
    }

    #[inline(always)]
    fn new_call(&mut self) -> u64 {
        self.engine.new_call()
    }

    /// Sends a request. Returns the key with which to receive its reply; `None` if there was no room in time.
    pub(super) fn begin_call(
        &mut self,
        peer: Peer,
        request: &[u8],
        patience: Patience,
    ) -> Result<Option<Selector>, MessageError> {
        let number = self.new_call();
        match self.send_patiently(peer, Calls::request_envelope(number), &request, patience) {
            Ok(()) => Ok(Some(Calls::reply_selector(number, peer))),
            Err(MessageError::Timeout { .. }) => Ok(None),
            Err(other) => Err(other),
        }
    }

    // The server.

    /// Receives a request from any peer, waiting for it if necessary.
    ///
    /// # Errors
    /// [`MessageError::NoMemory`], `Interrupted`, `Forked`.
    #[inline]
    pub fn receive_request(&mut self) -> Result<Request<'_>, MessageError> {
        let message = self.receive(Selector::requests())?;
        Ok(Request::new(self, message))
    }

    /// Replies to a request that was [detached](Request::detach). Never waits: a reply that does not fit is copied
    /// and sent when there is room.
    ///
    /// # Errors
    /// The reason why the requester cannot be reached; `UnknownPeer` also if another endpoint received the request;
    /// `Forked`, `Transport`.
    pub fn reply(&mut self, owed: OwedReply, reply: &[u8]) -> Result<(), MessageError> {
        if !Arc::ptr_eq(&owed.control, &self.control) {
            return Err(MessageError::UnknownPeer);
        }
        let (source, number) = owed.settle();
        self.answer_short(source, number, reply)
    }

    /// Replies with one buffer: most replies take the short path.
    #[inline(always)]
    fn answer_short(
        &mut self,
        source: Peer,
        number: u64,
        reply: &[u8],
    ) -> Result<(), MessageError> {
        if self.engine.try_inject(source, &Calls::reply_envelope(number), reply) {
            return Ok(());
        }
        self.answer(source, number, &reply)
    }

    #[inline(never)]
    fn answer(
        &mut self,
        source: Peer,
        number: u64,
        reply: &impl Source,
    ) -> Result<(), MessageError> {
        match self.handle_notices() {
            // Left for the next call that waits: the requester must not wait for the reply without end.
            Err(MessageError::Interrupted) => self.interrupter().interrupt(),
            other => other?,
        }
        self.engine.reply(source, number, reply)
    }
}

/// A request, detached from its endpoint, and the reply owed to it.
pub type DetachedRequest = (OwedReply, OwnedMessage);

/// A received request, which derefs to its bytes. Dropping it notifies the requester, whose call then ends with
/// [`MessageError::RequestDropped`].
#[must_use = "a request that is dropped tells its caller"]
pub struct Request<'a> {
    message: OwnedMessage,
    owed: Unsettled<'a>,
}

/// A request that has no reply yet. Dropping it notifies the requester.
struct Unsettled<'a> {
    endpoint: &'a mut Endpoint,
    source: Peer,
    number: u64,
    is_settled: bool,
}

impl<'a> Request<'a> {
    #[inline(always)]
    pub(super) fn new(endpoint: &'a mut Endpoint, message: OwnedMessage) -> Self {
        let (source, number) = (message.source(), message.tag());
        Self { message, owed: Unsettled { endpoint, source, number, is_settled: false } }
    }

    /// The peer that sent the request.
    #[must_use]
    pub fn source(&self) -> Peer {
        self.owed.source
    }

    /// Replies. Never waits: a reply that does not fit is copied and sent when there is room.
    ///
    /// # Errors
    /// The reason why the requester cannot be reached; `Forked`, `Transport`.
    #[inline]
    pub fn reply(self, reply: &[u8]) -> Result<(), MessageError> {
        let mut owed = self.owed;
        owed.is_settled = true;
        owed.endpoint.answer_short(owed.source, owed.number, reply)
    }

    /// Like [`reply`](Self::reply), with the bytes of `parts`, one after the other.
    ///
    /// # Errors
    /// As for [`reply`](Self::reply).
    pub fn reply_gather(self, parts: &[&[u8]]) -> Result<(), MessageError> {
        let mut owed = self.owed;
        owed.is_settled = true;
        owed.endpoint.answer(owed.source, owed.number, &parts)
    }

    /// Separates the request from its endpoint, which may receive other requests meanwhile. [`Endpoint::reply`] replies
    /// to it later. The two values may go to other threads.
    pub fn detach(self) -> DetachedRequest {
        let Self { message, mut owed } = self;
        owed.is_settled = true;
        let control = Arc::clone(&owed.endpoint.control);
        let (source, number) = (owed.source, owed.number);
        (OwedReply { source, number, control, is_settled: false }, message)
    }
}

impl Deref for Request<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.message
    }
}

impl fmt::Debug for Request<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request").field("message", &self.message).finish_non_exhaustive()
    }
}

impl Drop for Unsettled<'_> {
    fn drop(&mut self) {
        if !self.is_settled && !self.endpoint.control.is_forked() {
            self.endpoint.engine.drop_request(self.source, self.number);
        }
    }
}

/// The reply owed to a request. Dropping it notifies the requester.
#[must_use = "a reply that is owed and dropped tells the caller"]
pub struct OwedReply {
    source: Peer,
    number: u64,
    control: Arc<dyn EndpointHalf>,
    is_settled: bool,
}

impl OwedReply {
    /// The peer that sent the request.
    #[must_use]
    pub fn source(&self) -> Peer {
        self.source
    }

    fn settle(mut self) -> (Peer, u64) {
        self.is_settled = true;
        (self.source, self.number)
    }
}

impl fmt::Debug for OwedReply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwedReply").field("source", &self.source).finish_non_exhaustive()
    }
}

impl Drop for OwedReply {
    fn drop(&mut self) {
        if !self.is_settled {
            self.control.drop_request(self.source, self.number);
        }
    }
}
