//! Calls: a request, and the wait for its reply.

use std::time::Duration;

use corewire::{Selector, Status};
use corewire_circuit::patience::Patience;

use super::calls::{Calls, Continuation, is_reply_to, result};
use super::link::ClientLink;
use super::{Binding, Pending, check_time};
use crate::capability::Capabilities;
use crate::error::CallError;
use crate::message::{BUFFER_BYTES, Body, Message};
use crate::tag::{PART, Tag};

impl Binding {
    #[inline(always)]
    pub(super) fn next_tag(&mut self, ordinal: u16) -> Tag {
        self.cancel_dropped();
        loop {
            self.token = self.token.wrapping_add(1) & !PART;
            // After two billion calls one of the first may still be under way.
            if self.token != 0
                && (self.calls.is_empty() || !self.calls.has(self.token))
                && !self.streams.has(self.token)
            {
                return Tag::new(self.number, ordinal, self.token);
            }
        }
    }

    /// Sends a request and waits for its reply of `N` bytes. `None` waits without a limit.
    ///
    /// # Errors
    /// [`CallError`].
    #[inline(always)]
    pub fn call_fixed<const N: usize>(
        &mut self,
        place: &'static str,
        ordinal: u16,
        request: &[u8],
        timeout: Option<Duration>,
    ) -> Result<[u8; N], CallError> {
        if N <= BUFFER_BYTES && timeout.is_none() && self.calls.is_empty() {
            let tag = self.next_tag(ordinal);
            self.send_in_ring(tag, request)?;
            let ClientLink::Ring(ring) = &mut self.link else {
                let reply = self.wait_for(tag, Patience::Forever)?;
                return crate::codec::exactly(place, &reply).copied().map_err(CallError::Decode);
            };
            let mut reply = [0; N];
            let from = Selector::any().from(ring.peer);
            return match ring.endpoint.receive_into(from, &mut reply) {
                Ok(Status { tag: found, immediate: None, bytes, .. })
                    if found == tag.0 && bytes == N as u64 =>
                {
                    Ok(reply)
                }
                other => self.other_reply(place, tag, other, reply),
            };
        }
        let bytes_max = u32::try_from(N).unwrap_or(u32::MAX);
        let reply = self.call(ordinal, request, &Capabilities::new(), bytes_max, timeout)?;
        let bytes = reply.without_capabilities(place)?;
        crate::codec::exactly(place, bytes).copied().map_err(CallError::Decode)
    }

    /// Something else came than the reply of a call.
    #[cold]
    fn other_reply<const N: usize>(
        &mut self,
        place: &'static str,
        tag: Tag,
        other: Result<Status, corewire::MessageError>,
        bytes: [u8; N],
    ) -> Result<[u8; N], CallError> {
        let ClientLink::Ring(ring) = &mut self.link else { return Err(CallError::Busy) };
        let message = match other {
            Ok(status) => {
                let arrived = usize::try_from(status.bytes).ok().and_then(|end| bytes.get(..end));
                ring.message(status, Body::of(arrived.unwrap_or(&bytes)))
            }
            // It is there, and longer than the reply.
            Err(corewire::MessageError::BufferTooSmall { .. }) => ring.receive(Patience::Forever),
            Err(error) => Err(ring.error(error, Patience::Forever)),
        };
        let message = message.map_err(|error| self.ended(error))?.limited(self.decoded_bytes_max);
        let reply = match is_reply_to(&message, tag) {
            true => result(message),
            false => {
                self.set_aside(message);
                self.wait_for(tag, Patience::Forever)
            }
        }?;
        let bytes = reply.without_capabilities(place)?;
        crate::codec::exactly(place, bytes).copied().map_err(CallError::Decode)
    }

    /// Sends a request and waits for its reply of at most `reply_bytes_max`. `None` waits without a limit.
    ///
    /// # Errors
    /// [`CallError`].
    pub fn call(
        &mut self,
        ordinal: u16,
        request: &[u8],
        capabilities: &Capabilities<'_>,
        reply_bytes_max: u32,
        timeout: Option<Duration>,
    ) -> Result<Message, CallError> {
        let patience = Patience::of(timeout);
        while !self.calls.has_room_to_wait(reply_bytes_max) {
            self.handle_next(patience)?;
        }
        let tag = self.next_tag(ordinal);
        match patience {
            Patience::Forever if capabilities.all().is_empty() => {
                self.send_in_ring(tag, request)?
            }
            _ => self.send_by(tag, request, capabilities, patience)?,
        }
        let reply = self.wait_for(tag, patience);
        if matches!(reply, Err(CallError::Timeout { .. })) {
            self.calls.abandon_new(tag.token(), reply_bytes_max);
        }
        reply
    }

    /// Reads until the reply to a call has come.
    pub(super) fn wait_for(&mut self, tag: Tag, patience: Patience) -> Result<Message, CallError> {
        for looks in 0_usize.. {
            check_time(looks, patience)?;
            let message = self.receive(patience)?;
            if is_reply_to(&message, tag) {
                return result(message);
            }
            self.set_aside(message);
        }
        Err(patience.late().into())
    }

    /// Sends a request, and calls `then` with the reply: in a later call of this binding that reads it, such as
    /// [`progress`](Self::progress). `then` is also called if the service ends before.
    ///
    /// # Errors
    /// [`CallError`]. `then` is not called.
    pub fn call_then(
        &mut self,
        ordinal: u16,
        request: &[u8],
        capabilities: &Capabilities<'_>,
        reply_bytes_max: u32,
        then: impl FnOnce(Result<Message, CallError>) + Send + 'static,
    ) -> Result<(), CallError> {
        let then: Continuation = Box::new(then);
        self.begin(ordinal, request, capabilities, reply_bytes_max, |calls, token| {
            calls.ask_then(token, reply_bytes_max, then);
        })
        .map(drop)
    }

    /// Sends a request without waiting for its reply, which `decode` decodes when the handle asks for it.
    ///
    /// # Errors
    /// [`CallError`].
    pub fn start<R>(
        &mut self,
        ordinal: u16,
        request: &[u8],
        capabilities: &Capabilities<'_>,
        reply_bytes_max: u32,
        decode: fn(Result<Message, CallError>) -> R,
    ) -> Result<Pending<R>, CallError> {
        let ask = |calls: &mut Calls, token| calls.ask(token, reply_bytes_max);
        let token = self.begin(ordinal, request, capabilities, reply_bytes_max, ask)?;
        Ok(Pending::new(token, self.calls.dropped(), decode))
    }

    pub(super) fn begin(
        &mut self,
        ordinal: u16,
        request: &[u8],
        capabilities: &Capabilities<'_>,
        reply_bytes_max: u32,
        add: impl FnOnce(&mut Calls, u32),
    ) -> Result<u32, CallError> {
        while !self.calls.has_room(reply_bytes_max) {
            self.handle_next(Patience::Forever)?;
        }
        let tag = self.next_tag(ordinal);
        self.send_by(tag, request, capabilities, Patience::Forever)?;
        add(&mut self.calls, tag.token());
        Ok(tag.token())
    }
}
