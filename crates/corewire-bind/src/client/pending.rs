//! Handles of calls under way.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use corewire_circuit::patience::Patience;

use super::Binding;
use super::calls::Dropped;
use crate::error::CallError;
use crate::message::Message;

/// A call that is under way, and will give an `R`. Several may be, and may be waited for in any order. Dropping the
/// handle abandons the call: its reply is discarded.
#[must_use = "a call whose handle is dropped is abandoned"]
pub struct Pending<R> {
    token: u32,
    dropped: Arc<Dropped>,
    is_open: bool,
    decode: fn(Result<Message, CallError>) -> R,
}

impl<R> Pending<R> {
    pub(super) const fn new(
        token: u32,
        dropped: Arc<Dropped>,
        decode: fn(Result<Message, CallError>) -> R,
    ) -> Self {
        Self { token, dropped, is_open: true, decode }
    }

    /// Waits for the reply. `client` is the client that began the call.
    pub fn wait(mut self, client: &mut impl AsMut<Binding>) -> R {
        let reply = self.take(client.as_mut(), Patience::Forever);
        (self.decode)(reply)
    }

    /// Waits for at most `timeout`. `None` if there is no reply by then: the call is still under way.
    pub fn wait_timeout(
        &mut self,
        client: &mut impl AsMut<Binding>,
        timeout: Duration,
    ) -> Option<R> {
        let reply = self.take(client.as_mut(), Patience::of(Some(timeout)));
        self.ended(reply)
    }

    /// The reply, if it is there. Never waits.
    #[inline]
    pub fn try_wait(&mut self, client: &mut impl AsMut<Binding>) -> Option<R> {
        let binding = client.as_mut();
        if self.is_of(binding) && binding.calls.is_asked(self.token) {
            // What a program that polls finds nearly every time.
            match binding.try_receive() {
                Ok(None) => return None,
                Ok(Some(message)) => {
                    if let Some(reply) = self.settle(message, binding) {
                        return Some((self.decode)(reply));
                    }
                }
                Err(error) if binding.end.is_none() => return Some((self.decode)(Err(error))),
                Err(_) => {}
            }
        }
        let reply = self.take(binding, Patience::None);
        self.ended(reply)
    }

    /// Whether it is a call of this client, and its reply has not been asked for.
    #[inline]
    fn is_of(&self, binding: &Binding) -> bool {
        self.is_open && binding.calls.are_of(&self.dropped)
    }

    /// Whether a message is the reply that the handle asks for.
    #[inline]
    fn is_reply(&self, message: &Message, binding: &Binding) -> bool {
        let tag = message.tag();
        tag.ordinal() != 0 && tag.token() == self.token && binding.calls.is_asked(self.token)
    }

    fn ended(&self, reply: Result<Message, CallError>) -> Option<R> {
        match reply {
            Err(CallError::Timeout { .. } | CallError::Busy) => None,
            reply => Some((self.decode)(reply)),
        }
    }

    /// The reply, if a message is it. Puts others where they belong.
    #[inline]
    fn settle(
        &mut self,
        message: Message,
        binding: &mut Binding,
    ) -> Option<Result<Message, CallError>> {
        if !self.is_reply(&message, binding) {
            binding.set_aside(message);
            return None;
        }
        self.is_open = false;
        let reply = binding.calls.finish(message);
        binding.wake_senders();
        Some(reply)
    }

    fn take(&mut self, binding: &mut Binding, patience: Patience) -> Result<Message, CallError> {
        if !self.is_of(binding) {
            return Err(CallError::NotPending);
        }
        loop {
            if let Some(reply) = binding.calls.take(self.token) {
                self.is_open = false;
                return reply;
            }
            match binding.receive(patience) {
                Ok(message) => {
                    if let Some(reply) = self.settle(message, binding) {
                        return reply;
                    }
                }
                // The end of the link has become the reply.
                Err(error) if binding.end.is_none() => return Err(error),
                Err(_) => {}
            }
        }
    }
}

impl<R> Drop for Pending<R> {
    fn drop(&mut self) {
        if self.is_open {
            self.dropped.add(self.token);
        }
    }
}

impl<R> fmt::Debug for Pending<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pending").field("token", &self.token).finish_non_exhaustive()
    }
}
