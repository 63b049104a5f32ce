//! Streams of a service: what may be sent of each, and what sends it. The protocol is in `client/streams.rs`.
//!
//! The parts of a stream come from an iterator, which the service's thread asks whenever the client has given credit; or
//! from a [`PartSender`], in any thread, which waits for credit. What the parts of a client cost that it has not given
//! back is counted in its [`Flow`], which both share.

use std::fmt;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use super::client_id::ClientId;
use super::flow::{Flow, FlowState, Open, Pulled, Room, Source};
use super::later::LaterMessage;
use super::mailbox::{Mail, Mailbox};
use super::reply::{LaterReply, Reply};
use super::sending::Sending;
use crate::capability::Capabilities;
use crate::error::{CallError, EncodeError};
use crate::exchange::Form;
use crate::identity::Identity;
use crate::lane::backlog::Frame;
use crate::message::COST_BYTES;
use crate::tag::{PART, STREAMS_MAX, Tag, status};
use crate::totals::Answer;

impl Sending {
    /// A client calls what answers with a stream. `None` if it has too many, of which it is told.
    fn begin_stream(&mut self, client: ClientId, tag: Tag) -> Option<Arc<Flow>> {
        let row = self.clients.row(client).filter(|row| row.is_bound())?;
        let flow = Arc::clone(&row.streams.get_or_insert_default().flow);
        let mut state = flow.lock();
        if state.open.len() >= STREAMS_MAX {
            drop(state);
            self.end_stream(client, Frame::note(tag, status::TOO_MANY_STREAMS), true);
            return None;
        }
        state.open.push(Open { token: tag.token(), sent_bytes: 0 });
        drop(state);
        Some(flow)
    }

    /// What a client says about a stream: it gives credit back, or cancels. False if it is no such message.
    #[cold]
    pub(super) fn has_handled_credit(&mut self, client: ClientId, tag: Tag, bytes: &[u8]) -> bool {
        let Ok(bytes) = bytes.try_into().map(u64::from_le_bytes) else { return false };
        let token = tag.token() & !PART;
        let Some(streams) = self.clients.row(client).and_then(|row| row.streams.as_mut()) else {
            return true;
        };
        if bytes == 0 {
            streams.sources.retain(|source| source.token != token);
            if streams.flow.has_removed(token) {
                let end = Tag::new(tag.binding(), tag.ordinal(), token);
                self.end_stream(client, Frame::note(end, status::DROPPED), false);
            }
        } else if let Some(own) =
            streams.flow.lock().open.iter_mut().find(|open| open.token == token)
        {
            // A client that gives more than it has been sent has no more for it.
            own.sent_bytes =
                own.sent_bytes.saturating_sub(usize::try_from(bytes).unwrap_or(usize::MAX));
            streams.flow.changed.notify_all();
        }
        self.pump(client, token);
        true
    }

    /// Sends what an iterator gives, as far as there is room: at most the credit of a stream, and one part more.
    fn pump(&mut self, client: ClientId, token: u32) {
        let Some(streams) = self.clients.row(client).and_then(|row| row.streams.as_mut()) else {
            return;
        };
        let Some(at) = streams.sources.iter().position(|source| source.token == token) else {
            return;
        };
        let (flow, mut source) = (Arc::clone(&streams.flow), streams.sources.swap_remove(at));
        if !self.has_ended(client, &flow, &mut source)
            // The client may have been cut off meanwhile.
            && let Some(streams) = self.clients.row(client).and_then(|row| row.streams.as_mut())
        {
            streams.sources.push(source);
        }
    }

    /// Sends what one iterator gives. Whether that was all.
    fn has_ended(&mut self, client: ClientId, flow: &Flow, source: &mut Source) -> bool {
        let end = Tag::new(client.binding(), source.ordinal, source.token);
        let part = Tag::new(client.binding(), source.ordinal, source.token | PART);
        loop {
            match flow.lock().room(source.token) {
                Room::Over => return true,
                Room::None => return false,
                Room::Some => {}
            }
            let mut scratch = std::mem::take(&mut self.scratch);
            let pulled = (source.pull)(&mut scratch);
            match pulled {
                Ok(Pulled::Part) => {
                    let frame = Frame::new(part, &scratch);
                    if flow.lock().take_room(source.token, frame.cost_bytes()) == Room::Some {
                        self.part(client, frame);
                    }
                }
                Ok(ended @ (Pulled::End | Pulled::Failed)) => {
                    flow.has_removed(source.token);
                    self.end_stream(client, Frame::new(end, &scratch), ended == Pulled::Failed);
                }
                Err(error) => {
                    flow.has_removed(source.token);
                    self.mailbox.is_sent(source.ordinal, &Err(error.into()));
                    self.end_stream(client, Frame::note(end, status::DROPPED), true);
                }
            }
            self.scratch = scratch;
        }
    }

    /// Sends what a stream ends with. How long streams take is not counted: their clients say how fast they go.
    fn end_stream(&mut self, client: ClientId, end: Frame<'_>, is_error: bool) {
        let (ordinal, bytes) = (end.tag.ordinal(), end.bytes.len());
        self.totals.reply(Answer { ordinal, bytes, is_error, took: None });
        // It has no capabilities, which alone can fail.
        let _ = self.reply(client, end, &Capabilities::new());
    }

    /// Sends a part, for which the client's credit has been taken.
    fn part(&mut self, client: ClientId, frame: Frame<'_>) {
        self.totals.part(frame.tag.ordinal(), frame.bytes.len());
        if !self.has_sent(client, frame.tag, frame.bytes) {
            // Parts have no capabilities, which alone can fail.
            let _ = self.reply(client, frame, &Capabilities::new());
        }
    }
}

impl Reply<'_> {
    /// Answers with a stream, whose parts `pull` encodes one after the other, as fast as the client takes them. The
    /// service's thread calls it, at once and within later calls of `serve_one`: it must not wait, nor lock what the handler
    /// has locked. It is dropped once the stream has ended, or the client wants no more of it, or has gone.
    pub fn stream(
        mut self,
        pull: impl FnMut(&mut Vec<u8>) -> Result<Pulled, EncodeError> + Send + 'static,
    ) {
        let (sending, client, tag) = self.take();
        if sending.begin_stream(client, tag).is_none() {
            return;
        }
        if let Some(streams) = sending.clients.row(client).and_then(|row| row.streams.as_mut()) {
            let (token, ordinal, pull) = (tag.token(), tag.ordinal(), Box::new(pull));
            streams.sources.push(Source { token, ordinal, pull });
        }
        sending.pump(client, tag.token());
    }

    /// Answers with a stream, of which any thread sends the parts. `wire` is the part's index in the description.
    pub fn stream_later(mut self, wire: usize) -> PartSender {
        let (form, identity) = (self.form(wire), self.identity());
        let (sending, client, tag) = self.take();
        let flow = sending.begin_stream(client, tag).unwrap_or_default();
        let mailbox = Arc::clone(&sending.mailbox);
        PartSender { mailbox, flow, client, identity, form, tag, is_open: true }
    }
}

/// Sends the parts of a stream, from any thread, as fast as the client takes them. Dropping it tells the caller that there
/// is no more, as an error.
#[must_use = "a stream that is dropped tells its caller"]
pub struct PartSender {
    mailbox: Arc<Mailbox>,
    flow: Arc<Flow>,
    client: ClientId,
    identity: Identity,
    form: Form,
    tag: Tag,
    is_open: bool,
}

impl PartSender {
    /// The client that called.
    #[must_use]
    pub const fn client(&self) -> ClientId {
        self.client
    }

    /// Its process, by the kernel's word.
    #[must_use]
    pub const fn identity(&self) -> Identity {
        self.identity
    }

    /// The version of the parts that both sides know.
    #[must_use]
    pub const fn form(&self) -> Form {
        self.form
    }

    /// Whether the client wants no more of the stream, or has gone.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.flow.lock().room(self.tag.token()) == Room::Over
    }

    /// Waits until the client wants no more of the stream, or has gone; for at most `timeout`. False if it still does.
    #[must_use]
    pub fn is_cancelled_within(&self, timeout: Duration) -> bool {
        let is_wanted = |state: &mut FlowState| state.room(self.tag.token()) != Room::Over;
        let waited = self.flow.changed.wait_timeout_while(self.flow.lock(), timeout, is_wanted);
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }

    /// Sends a part, which `encode` writes. Waits while the client has not taken what was sent before; `None` waits without
    /// a limit, zero does not wait.
    ///
    /// # Errors
    /// [`CallError::Cancelled`]; [`CallError::Timeout`]; [`CallError::Busy`] without waiting, and within a handler of the
    /// service, whose thread hands out what this waits for; [`CallError::PeerLeft`] if the service has ended; those of
    /// `encode`. The part was not sent.
    pub fn send_with(
        &self,
        timeout: Option<Duration>,
        encode: impl FnOnce(&mut Vec<u8>) -> Result<(), EncodeError>,
    ) -> Result<(), CallError> {
        let mut bytes = Vec::new();
        encode(&mut bytes)?;
        let (token, cost_bytes) = (self.tag.token(), bytes.len() + COST_BYTES);
        let can_wait = timeout != Some(Duration::ZERO) && !self.mailbox.is_serving_here();
        let until = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let mut state = self.flow.lock();
        loop {
            match state.take_room(token, cost_bytes) {
                Room::Some => break,
                Room::Over => return Err(CallError::Cancelled),
                Room::None if !can_wait => return Err(CallError::Busy),
                Room::None => {}
            }
            state = match until.map(|until| until.saturating_duration_since(Instant::now())) {
                None => self.flow.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(Duration::ZERO) => {
                    return Err(CallError::Timeout { after: timeout.unwrap_or_default() });
                }
                Some(left) => {
                    let waited = self.flow.changed.wait_timeout(state, left);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
        drop(state);
        let tag = Tag::new(self.tag.binding(), self.tag.ordinal(), token | PART);
        let (capabilities, is_error) = (Vec::new(), false);
        let part = LaterMessage { tag, status: None, bytes, capabilities, is_error, began: None };
        self.mailbox.put(Mail::Reply(self.client, part))
    }

    /// Ends the stream: with the reply that this sends.
    pub fn end(mut self) -> LaterReply {
        self.take_end()
    }

    fn take_end(&mut self) -> LaterReply {
        let was_open = std::mem::take(&mut self.is_open) && self.flow.has_removed(self.tag.token());
        LaterReply::new(Arc::clone(&self.mailbox), self.client, self.form, self.tag, None, was_open)
    }
}

impl Drop for PartSender {
    fn drop(&mut self) {
        // A child leaves its parent alone, another thread of which may have had the lock.
        if self.is_open && self.mailbox.is_ours() {
            drop(self.take_end());
        }
    }
}

impl fmt::Debug for PartSender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PartSender").field("client", &self.client).finish_non_exhaustive()
    }
}
