//! Streams: calls whose answer comes in parts, of which there is any number, and then an end or an error.
//!
//! | from | tag | bytes | |
//! |---|---|---|---|
//! | client | `binding, ordinal, token` | the arguments | the call |
//! | service | `binding, ordinal, token + PART` | the arguments of a part | a part |
//! | client | `binding, ordinal, token + PART` | 8: the cost of parts that the program has taken | credit |
//! | client | `binding, ordinal, token + PART` | 8: zeros | cancels the stream |
//! | service | `binding, ordinal, token` | those of a reply | the end, or the error |
//!
//! A part costs its bytes and [`COST_BYTES`]. A service sends a part only while what it has sent and has not been given
//! back costs less than [`STREAM_CREDIT`], so that one part of any length can always go: a stream that the program does
//! not read takes no more memory than that, here or in the service, and delays nothing else. Credit goes back once half of
//! it has been taken. A client has at most [`STREAMS_MAX`] streams at one time. (The credit of a hop between monitors is
//! for all messages of a circuit, and no substitute.)
//!
//! A stream that is dropped is cancelled, and counts until its end has come.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use corewire_circuit::patience::Patience;

use super::Binding;
use super::calls::{Dropped, result};
use crate::capability::Capabilities;
use crate::error::CallError;
use crate::exchange::Form;
use crate::message::Message;
use crate::tag::{PART, STREAM_CREDIT, STREAMS_MAX, Tag};

/// The streams of a client that have not ended.
#[derive(Default)]
pub(super) struct Streams {
    open: HashMap<u32, Stream>,
    dropped: Arc<Dropped>,
    /// Streams whose cancellation has found no room.
    uncancelled: Vec<u32>,
}

struct Stream {
    ordinal: u16,
    parts: VecDeque<Message>,
    /// What these cost.
    waiting_bytes: usize,
    /// What those cost that the program has taken, and the service has not been given back.
    taken_bytes: usize,
    end: Option<Result<Message, CallError>>,
    is_cancelled: bool,
    waker: Option<Waker>,
}

/// What a stream gives next.
pub(super) enum Next {
    Part(Message),
    End(Result<Message, CallError>),
}

impl Streams {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    #[inline]
    pub(super) fn has(&self, token: u32) -> bool {
        !self.open.is_empty() && self.open.contains_key(&token)
    }

    fn add(&mut self, token: u32, ordinal: u16) {
        let stream = Stream {
            ordinal,
            parts: VecDeque::new(),
            waiting_bytes: 0,
            taken_bytes: 0,
            end: None,
            is_cancelled: false,
            waker: None,
        };
        self.open.insert(token, stream);
    }

    /// A part has come.
    pub(super) fn part(&mut self, message: Message) {
        let Some(stream) = self.open.get_mut(&(message.tag().token() & !PART)) else { return };
        if stream.is_cancelled || stream.end.is_some() {
            return;
        }
        if stream.waiting_bytes + stream.taken_bytes >= STREAM_CREDIT {
            stream.end = Some(Err(CallError::Unasked));
            stream.wake();
            return;
        }
        stream.waiting_bytes += message.cost_bytes();
        stream.parts.push_back(message);
        stream.wake();
    }

    /// The reply that ends a stream has come.
    pub(super) fn end(&mut self, message: Message) {
        let token = message.tag().token();
        self.end_with(token, result(message));
    }

    fn end_with(&mut self, token: u32, end: Result<Message, CallError>) {
        let Some(stream) = self.open.get_mut(&token) else { return };
        if stream.is_cancelled {
            self.open.remove(&token);
            return;
        }
        stream.end.get_or_insert(end);
        stream.wake();
    }

    /// The link has ended, and nothing comes any more.
    pub(super) fn end_all(&mut self, error: &CallError) {
        let tokens = self.open.keys().copied().collect::<Vec<_>>();
        tokens.into_iter().for_each(|token| self.end_with(token, Err(error.clone())));
    }

    /// What has come first. The stream is forgotten with its end.
    pub(super) fn take(&mut self, token: u32) -> Option<Next> {
        let Some(stream) = self.open.get_mut(&token) else {
            return Some(Next::End(Err(CallError::NotPending)));
        };
        if let Some(part) = stream.parts.pop_front() {
            let cost_bytes = part.cost_bytes();
            stream.waiting_bytes -= cost_bytes;
            stream.taken_bytes += cost_bytes;
            return Some(Next::Part(part));
        }
        let end = stream.end.take()?;
        self.open.remove(&token);
        Some(Next::End(end))
    }

    /// Wakes a task when something comes.
    pub(super) fn wake_later(&mut self, token: u32, waker: &Waker) {
        if let Some(stream) = self.open.get_mut(&token) {
            stream.waker = Some(waker.clone());
        }
    }

    /// What the service is to be told, if it is time: the ordinal, and how much has been taken.
    fn credit_due(&self, token: u32) -> Option<(u16, usize)> {
        let stream = self.open.get(&token)?;
        let is_due = stream.taken_bytes >= STREAM_CREDIT / 2 && stream.end.is_none();
        is_due.then_some((stream.ordinal, stream.taken_bytes))
    }

    /// Whether the service waits for credit that has found no room.
    pub(super) fn owes_credit(&self, token: u32) -> bool {
        self.credit_due(token).is_some()
    }

    fn credit_given(&mut self, token: u32) {
        if let Some(stream) = self.open.get_mut(&token) {
            stream.taken_bytes = 0;
        }
    }

    /// Forgets what has come of a stream that nobody wants any more. Its ordinal, if the service must be told.
    fn abandon(&mut self, token: u32) -> Option<u16> {
        let stream = self.open.get_mut(&token)?;
        if stream.end.is_some() {
            self.open.remove(&token);
            return None;
        }
        (stream.parts, stream.is_cancelled) = (VecDeque::new(), true);
        Some(stream.ordinal)
    }
}

impl Stream {
    fn wake(&mut self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

impl Binding {
    /// Calls, without waiting, what answers with a stream. The functions decode a part and the end, in these versions.
    ///
    /// # Errors
    /// [`CallError::TooManyStreams`], or another [`CallError`].
    pub fn start_stream<P, E>(
        &mut self,
        ordinal: u16,
        request: &[u8],
        capabilities: &Capabilities<'_>,
        decode: DecodeStream<P, E>,
    ) -> Result<PartStream<P, E>, CallError> {
        let token = self.begin_stream(ordinal, request, capabilities, Patience::Forever)?;
        let dropped = Arc::clone(&self.streams.dropped);
        Ok(PartStream { token, dropped, is_open: true, decode })
    }

    /// The same for a task: pending if there is no room.
    pub(super) fn begin_stream(
        &mut self,
        ordinal: u16,
        request: &[u8],
        capabilities: &Capabilities<'_>,
        patience: Patience,
    ) -> Result<u32, CallError> {
        self.cancel_dropped();
        if self.streams.open.len() >= STREAMS_MAX {
            // Some of them may have ended.
            self.progress()?;
        }
        if self.streams.open.len() >= STREAMS_MAX {
            return Err(CallError::TooManyStreams { count_max: STREAMS_MAX });
        }
        let tag = self.next_tag(ordinal);
        self.send_by(tag, request, capabilities, patience)?;
        self.streams.add(tag.token(), ordinal);
        Ok(tag.token())
    }

    /// Of a stream whose call was sent.
    pub(super) fn stream_of<P, E>(
        &self,
        token: u32,
        decode: DecodeStream<P, E>,
    ) -> PartStream<P, E> {
        let dropped = Arc::clone(&self.streams.dropped);
        PartStream { token, dropped, is_open: true, decode }
    }

    fn next_of_stream(&mut self, token: u32, patience: Patience) -> Result<Next, CallError> {
        self.cancel_dropped();
        loop {
            match self.streams.take(token) {
                Some(Next::Part(part)) => {
                    // If there is no room, a later call does it.
                    self.give_credit(token, Patience::None)?;
                    return Ok(Next::Part(part));
                }
                Some(end) => return Ok(end),
                None => {}
            }
            self.give_credit(token, patience)?;
            match self.handle_next(patience) {
                // Its end has become that of the stream.
                Err(error) if self.end.is_none() => return Err(error),
                _ => {}
            }
        }
    }

    /// Tells the service what has been taken of a stream, if it is time.
    pub(super) fn give_credit(&mut self, token: u32, patience: Patience) -> Result<(), CallError> {
        let Some((ordinal, taken_bytes)) = self.streams.credit_due(token) else { return Ok(()) };
        let tag = Tag::new(self.number, ordinal, token | PART);
        match self.send_by(tag, &(taken_bytes as u64).to_le_bytes(), &Capabilities::new(), patience)
        {
            Ok(()) => {
                self.streams.credit_given(token);
                Ok(())
            }
            Err(CallError::Busy) if matches!(patience, Patience::None) => Ok(()),
            // The end of the link is that of the stream.
            Err(_) if self.end.is_some() => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Cancels streams whose handles were dropped while the client was elsewhere.
    #[inline(always)]
    pub(super) fn cancel_dropped(&mut self) {
        if !self.streams.is_empty() {
            self.cancel_some();
        }
    }

    #[cold]
    fn cancel_some(&mut self) {
        let dropped = self.streams.dropped.take();
        for token in std::mem::take(&mut self.streams.uncancelled).into_iter().chain(dropped) {
            self.cancel_stream(token);
        }
    }

    /// Tells the service that nobody wants more of a stream.
    #[cold]
    fn cancel_stream(&mut self, token: u32) {
        let Some(ordinal) = self.streams.abandon(token) else { return };
        let tag = Tag::new(self.number, ordinal, token | PART);
        let sent = self.send_by(tag, &0_u64.to_le_bytes(), &Capabilities::new(), Patience::None);
        if matches!(sent, Err(CallError::Busy)) {
            self.streams.uncancelled.push(token);
        }
    }
}

/// How generated code decodes a stream.
pub struct DecodeStream<P, E> {
    /// A part, in this version.
    pub part: fn(Message, Form) -> Result<P, E>,
    /// The reply that ends it.
    pub end: fn(Result<Message, CallError>) -> Result<(), E>,
    /// The version of the parts.
    pub form: Form,
}

impl<P, E> Clone for DecodeStream<P, E> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<P, E> Copy for DecodeStream<P, E> {}

impl<P, E> fmt::Debug for DecodeStream<P, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DecodeStream").field("form", &self.form).finish_non_exhaustive()
    }
}

impl<P, E: From<CallError>> DecodeStream<P, E> {
    pub(super) fn next(&self, next: Next) -> Option<Result<P, E>> {
        match next {
            Next::Part(message) => Some((self.part)(message, self.form)),
            Next::End(end) => (self.end)(end).err().map(Err),
        }
    }
}

/// A stream that is under way: a call whose answer is any number of parts `P`, and then an end or an error. Several may be
/// read in any order. Dropping the handle cancels the stream, of which the service is told when something else is asked of
/// the client.
#[must_use = "a stream whose handle is dropped is cancelled"]
pub struct PartStream<P, E> {
    token: u32,
    dropped: Arc<Dropped>,
    is_open: bool,
    decode: DecodeStream<P, E>,
}

impl<P, E: From<CallError>> PartStream<P, E> {
    /// Waits for the next part. `None` once the stream has ended well; after an error, too. `client` is the client that
    /// called.
    ///
    /// # Errors
    /// The error with which the service has ended the stream, or that of the connection.
    pub fn next(&mut self, client: &mut impl AsMut<Binding>) -> Option<Result<P, E>> {
        self.next_by(client.as_mut(), Patience::Forever)
    }

    /// Like [`next`](Self::next), for at most `timeout`: then the error is `Timeout`, and the stream goes on.
    ///
    /// # Errors
    /// As for [`next`](Self::next).
    pub fn next_timeout(
        &mut self,
        client: &mut impl AsMut<Binding>,
        timeout: Duration,
    ) -> Option<Result<P, E>> {
        self.next_by(client.as_mut(), Patience::of(Some(timeout)))
    }

    /// Like [`next`](Self::next), but never waits: the error is `Busy` if nothing has come.
    ///
    /// # Errors
    /// As for [`next`](Self::next).
    pub fn try_next(&mut self, client: &mut impl AsMut<Binding>) -> Option<Result<P, E>> {
        self.next_by(client.as_mut(), Patience::None)
    }

    /// An iterator over the parts, for as long as nothing else is asked of the client.
    pub fn on<B: AsMut<Binding>>(self, client: &mut B) -> Parts<'_, P, E> {
        Parts { binding: client.as_mut(), stream: self }
    }

    fn next_by(&mut self, binding: &mut Binding, patience: Patience) -> Option<Result<P, E>> {
        if !self.is_open {
            return None;
        }
        if !Arc::ptr_eq(&self.dropped, &binding.streams.dropped) {
            return Some(Err(CallError::NotPending.into()));
        }
        match binding.next_of_stream(self.token, patience) {
            Ok(next) => self.decoded(next),
            Err(error) => Some(Err(error.into())),
        }
    }

    fn decoded(&mut self, next: Next) -> Option<Result<P, E>> {
        self.is_open = matches!(next, Next::Part(_));
        self.decode.next(next)
    }

    /// What has come first, for a task that has locked the binding.
    pub(super) fn poll(
        &mut self,
        binding: &mut Binding,
        waker: &Waker,
    ) -> Option<Option<Result<P, E>>> {
        if !self.is_open {
            return Some(None);
        }
        match binding.streams.take(self.token) {
            None => {
                binding.streams.wake_later(self.token, waker);
                // Without it nothing would come.
                binding.poll_credit(self.token, waker);
                None
            }
            Some(next) => {
                if matches!(next, Next::Part(_)) {
                    binding.poll_credit(self.token, waker);
                }
                Some(self.decoded(next))
            }
        }
    }

    /// Cancels it now.
    pub(super) fn cancel(&mut self, binding: &mut Binding) {
        if std::mem::take(&mut self.is_open) {
            binding.cancel_stream(self.token);
        }
    }
}

impl<P, E> Drop for PartStream<P, E> {
    fn drop(&mut self) {
        if self.is_open {
            self.dropped.add(self.token);
        }
    }
}

impl<P, E> fmt::Debug for PartStream<P, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PartStream").field("token", &self.token).finish_non_exhaustive()
    }
}

/// The parts of a stream, as an iterator that waits for each. It ends after an error. Dropping it cancels the stream.
#[must_use = "a stream that is dropped is cancelled"]
pub struct Parts<'c, P, E: From<CallError>> {
    binding: &'c mut Binding,
    stream: PartStream<P, E>,
}

impl<P, E: From<CallError>> Parts<'_, P, E> {
    /// Waits for the next part for at most `timeout`: then the error is `Timeout`, and the stream goes on.
    ///
    /// # Errors
    /// As for [`PartStream::next`].
    pub fn next_timeout(&mut self, timeout: Duration) -> Option<Result<P, E>> {
        self.stream.next_by(self.binding, Patience::of(Some(timeout)))
    }
}

impl<P, E: From<CallError>> Iterator for Parts<'_, P, E> {
    type Item = Result<P, E>;

    fn next(&mut self) -> Option<Self::Item> {
        self.stream.next_by(self.binding, Patience::Forever)
    }
}

impl<P, E: From<CallError>> Drop for Parts<'_, P, E> {
    fn drop(&mut self) {
        self.stream.cancel(self.binding);
    }
}

impl<P, E: From<CallError>> fmt::Debug for Parts<'_, P, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.stream.fmt(f)
    }
}
