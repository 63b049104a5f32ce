//! Streams as a program has them: handles, iterators, and what is said to the service about them.

use std::fmt;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use corewire_circuit::patience::Patience;

use super::calls::Dropped;
use super::streams::Next;
use super::{Binding, check_time};
use crate::capability::Capabilities;
use crate::error::CallError;
use crate::exchange::Form;
use crate::message::Message;
use crate::tag::{PART, STREAMS_MAX, Tag};

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
        Ok(self.stream_of(token, decode))
    }

    fn begin_stream(
        &mut self,
        ordinal: u16,
        request: &[u8],
        capabilities: &Capabilities<'_>,
        patience: Patience,
    ) -> Result<u32, CallError> {
        if self.streams.len() >= STREAMS_MAX {
            // Some of them may have ended.
            self.progress()?;
        }
        self.check_streams()?;
        let tag = self.next_tag(ordinal);
        self.send_by(tag, request, capabilities, patience)?;
        self.streams.add(tag.token(), ordinal);
        Ok(tag.token())
    }

    /// Whether the client can have one more.
    pub(super) fn check_streams(&self) -> Result<(), CallError> {
        match self.streams.len() < STREAMS_MAX {
            true => Ok(()),
            false => Err(CallError::TooManyStreams { count_max: STREAMS_MAX }),
        }
    }

    /// Of a stream whose call was sent.
    pub(super) fn stream_of<P, E>(
        &self,
        token: u32,
        decode: DecodeStream<P, E>,
    ) -> PartStream<P, E> {
        let dropped = self.streams.dropped();
        PartStream { token, dropped, is_open: true, decode }
    }

    fn next_of_stream(&mut self, token: u32, patience: Patience) -> Result<Next, CallError> {
        self.cancel_dropped();
        for looks in 0_usize.. {
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
            check_time(looks, patience)?;
            match self.handle_next(patience) {
                // Its end has become that of the stream.
                Err(error) if self.end.is_none() => return Err(error),
                _ => {}
            }
        }
        Err(patience.late().into())
    }

    /// Tells the service what has been taken of a stream, if it is time.
    pub(super) fn give_credit(&mut self, token: u32, patience: Patience) -> Result<(), CallError> {
        let Some((ordinal, taken_bytes)) = self.streams.credit_due(token) else { return Ok(()) };
        let tag = Tag::new(self.number, ordinal, token | PART);
        match self.say(tag, taken_bytes as u64, patience) {
            Ok(is_said) => {
                if is_said {
                    self.streams.credit_given(token);
                }
                Ok(())
            }
            // The end of the link is that of the stream.
            Err(_) if self.end.is_some() => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Says a word about a stream, or keeps it for when there is room. False if another message is kept already.
    fn say(&mut self, tag: Tag, word: u64, patience: Patience) -> Result<bool, CallError> {
        let (bytes, none) = (word.to_le_bytes(), Capabilities::new());
        match self.send_by(tag, &bytes, &none, patience) {
            Err(CallError::Busy) if !self.link.is_keeping() => {
                let kept = self.link.keep(tag, &bytes, &none);
                kept.map(|()| true).map_err(|error| self.send_failed(error))
            }
            Err(CallError::Busy) => Ok(false),
            sent => sent.map(|()| true),
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
        for token in self.streams.take_dropped() {
            self.cancel_stream(token);
        }
    }

    /// Tells the service that nobody wants more of a stream.
    #[cold]
    fn cancel_stream(&mut self, token: u32) {
        let Some(ordinal) = self.streams.abandon(token) else { return };
        let tag = Tag::new(self.number, ordinal, token | PART);
        // The end of the link is that of the stream.
        if matches!(self.say(tag, 0, Patience::None), Ok(false)) {
            self.streams.cancel_later(token);
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
        if !binding.streams.are_of(&self.dropped) {
            return Some(Err(CallError::NotPending.into()));
        }
        match binding.next_of_stream(self.token, patience) {
            Ok(next) => self.decoded(next, binding),
            Err(error @ (CallError::Timeout { .. } | CallError::Busy)) => Some(Err(error.into())),
            Err(error) => {
                self.cancel(binding);
                Some(Err(error.into()))
            }
        }
    }

    /// What it is. The stream ends with its end, and after an error.
    fn decoded(&mut self, next: Next, binding: &mut Binding) -> Option<Result<P, E>> {
        let is_end = matches!(next, Next::End(_));
        let decoded = self.decode.next(next);
        match &decoded {
            Some(Ok(_)) => {}
            _ if is_end => self.is_open = false,
            _ => self.cancel(binding),
        }
        decoded
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
                Some(self.decoded(next, binding))
            }
        }
    }

    /// Cancels it now, if it is one of this client.
    pub(super) fn cancel(&mut self, binding: &mut Binding) {
        if self.is_open && binding.streams.are_of(&self.dropped) {
            self.is_open = false;
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
