//! Sends without a reply, and the one message that is kept where there is no room.

use std::task::Waker;
use std::time::Duration;

use corewire_circuit::patience::Patience;

use super::Binding;
use super::link::ClientLink;
use crate::capability::Capabilities;
use crate::error::CallError;
use crate::tag::Tag;

impl Binding {
    /// Sends a message without a reply, waiting for room if necessary. `None` waits without a limit.
    ///
    /// # Errors
    /// [`CallError`].
    #[inline(always)]
    pub fn send(
        &mut self,
        ordinal: u16,
        message: &[u8],
        capabilities: &Capabilities<'_>,
        timeout: Option<Duration>,
    ) -> Result<(), CallError> {
        let tag = Tag::new(self.number, ordinal, 0);
        match timeout {
            None if capabilities.all().is_empty() => self.send_in_ring(tag, message),
            _ => self.send_by(tag, message, capabilities, Patience::of(timeout)),
        }
    }

    /// Sends a message without capabilities and without a limit: in a ring if nothing is in the way, as most are.
    #[inline(always)]
    pub(super) fn send_in_ring(&mut self, tag: Tag, message: &[u8]) -> Result<(), CallError> {
        if let ClientLink::Ring(ring) = &mut self.link
            && !ring.is_keeping()
            && self.end.is_none()
        {
            return match ring.endpoint.send(ring.peer, tag.0, message) {
                Ok(()) => Ok(()),
                Err(error) => {
                    let error = ring.error(error, Patience::Forever);
                    Err(self.send_failed(error))
                }
            };
        }
        self.send_by(tag, message, &Capabilities::new(), Patience::Forever)
    }

    #[inline(never)]
    pub(super) fn send_by(
        &mut self,
        tag: Tag,
        message: &[u8],
        capabilities: &Capabilities<'_>,
        patience: Patience,
    ) -> Result<(), CallError> {
        if let Some(end) = &self.end {
            return Err(end.clone());
        }
        if self.link.is_keeping() && !self.has_flushed(patience)? {
            return Err(patience.late().into());
        }
        self.link
            .send(tag, message, capabilities, patience)
            .map_err(|error| self.send_failed(error))
    }

    /// Sends a message without a reply, and never waits. If there is no room, one message is kept, and sent by a later
    /// call of this binding.
    ///
    /// # Errors
    /// [`CallError::Busy`] if one is kept already; otherwise another [`CallError`].
    pub fn try_send(
        &mut self,
        ordinal: u16,
        message: &[u8],
        capabilities: &Capabilities<'_>,
    ) -> Result<(), CallError> {
        self.send_or_keep(ordinal, message, capabilities).map(drop)
    }

    /// Like [`try_send`](Self::try_send). `then` is told when the next message may go: at once, or in a later call of
    /// this binding.
    ///
    /// # Errors
    /// As for [`try_send`](Self::try_send). `then` is not called.
    pub fn send_then(
        &mut self,
        ordinal: u16,
        message: &[u8],
        capabilities: &Capabilities<'_>,
        then: impl FnOnce(Result<(), CallError>) + Send + 'static,
    ) -> Result<(), CallError> {
        match self.send_or_keep(ordinal, message, capabilities)? {
            true => then(Ok(())),
            false => self.when_sent = Some(Box::new(then)),
        }
        Ok(())
    }

    /// Whether the message was sent; otherwise it is kept.
    pub(super) fn send_or_keep(
        &mut self,
        ordinal: u16,
        message: &[u8],
        capabilities: &Capabilities<'_>,
    ) -> Result<bool, CallError> {
        let tag = Tag::new(self.number, ordinal, 0);
        match self.send_by(tag, message, capabilities, Patience::None) {
            Ok(()) => Ok(!self.link.is_keeping()),
            Err(CallError::Busy) if !self.link.is_keeping() => {
                let kept = self.link.keep(tag, message, capabilities);
                kept.map(|()| false).map_err(|error| self.send_failed(error))
            }
            Err(error) => Err(error),
        }
    }

    /// Sends the message that is kept. False if there was no room in time. `None` waits without a limit.
    ///
    /// # Errors
    /// [`CallError`].
    pub fn flush(&mut self, timeout: Option<Duration>) -> Result<bool, CallError> {
        self.has_flushed(Patience::of(timeout))
    }

    #[cold]
    pub(super) fn has_flushed(&mut self, patience: Patience) -> Result<bool, CallError> {
        let has_sent =
            self.link.has_sent_kept(patience).map_err(|error| self.send_failed(error))?;
        if has_sent {
            self.flush_count += 1;
            if let Some(then) = self.when_sent.take() {
                then(Ok(()));
            }
            self.wake_senders();
        }
        Ok(has_sent)
    }

    pub(super) fn wake_senders(&mut self) {
        self.senders.drain(..).for_each(Waker::wake);
    }
}
