//! Receiving: into memory that the message owns, and into the caller's memory.

use std::time::Duration;

use corewire_endpoint::transport::Polling;
use corewire_endpoint::{
    Caller, Engine, Looked, MessageError, OwnedMessage, Selector, Status, Target,
};

use super::{Endpoint, Ways, after};
use crate::wait::{NO_LIMIT_NS, Patience, Polls};

impl Endpoint {
    // Into memory that the message owns.

    /// Receives a message that `selector` asks for, of any length, waiting for it if necessary.
    ///
    /// # Errors
    /// If the selected peer has gone and none of its messages is left, [`MessageError::PeerDied`], `PeerLeft` or
    /// `PeerCutOff`; `UnknownPeer`, `NoMemory`, `Interrupted`, `Forked`.
    #[inline(always)]
    pub fn receive(&mut self, selector: Selector) -> Result<OwnedMessage, MessageError> {
        match self.receive_polling(Owned(selector)) {
            Some(message) => Ok(message),
            None => self.receive_owned(selector, Patience::Forever),
        }
    }

    /// Like [`receive`](Self::receive), but never blocks; `None` if no message is there now.
    ///
    /// # Errors
    /// As for [`receive`](Self::receive).
    pub fn try_receive(
        &mut self,
        selector: Selector,
    ) -> Result<Option<OwnedMessage>, MessageError> {
        match self.look_once(Owned(selector)) {
            Some(found) => Ok(found),
            None => none_if_late(self.receive_owned(selector, Patience::None)),
        }
    }

    /// Like [`receive`](Self::receive), for at most `timeout`; `None` if no message came.
    ///
    /// # Errors
    /// As for [`receive`](Self::receive).
    pub fn receive_timeout(
        &mut self,
        selector: Selector,
        timeout: Duration,
    ) -> Result<Option<OwnedMessage>, MessageError> {
        self.receive_patiently(selector, Patience::until(timeout))
    }

    /// Like [`receive`](Self::receive), but waits for as long as `patience` says.
    pub(super) fn receive_patiently(
        &mut self,
        selector: Selector,
        patience: Patience,
    ) -> Result<Option<OwnedMessage>, MessageError> {
        none_if_late(self.receive_owned(selector, patience))
    }

    // Into the caller's memory.

    /// Receives a message that `selector` asks for into the beginning of `buffer`, waiting for it if
    /// necessary.
    ///
    /// # Errors
    /// [`MessageError::BufferTooSmall`], after which the message can still be received; otherwise as for
    /// [`receive`](Self::receive).
    #[inline(always)]
    pub fn receive_into(
        &mut self,
        selector: Selector,
        buffer: &mut [u8],
    ) -> Result<Status, MessageError> {
        if let Some(status) = self.receive_polling(IntoBuffer { selector, buffer }) {
            return Ok(status);
        }
        self.receive_slowly(selector, &mut &mut *buffer, Patience::Forever)
    }

    /// Like [`receive_into`](Self::receive_into), but never blocks; `None` if no message is there now.
    ///
    /// # Errors
    /// As for [`receive_into`](Self::receive_into).
    #[inline(always)]
    pub fn try_receive_into(
        &mut self,
        selector: Selector,
        buffer: &mut [u8],
    ) -> Result<Option<Status>, MessageError> {
        match self.look_once(IntoBuffer { selector, buffer }) {
            Some(found) => Ok(found),
            None => none_if_late(self.receive_slowly(selector, &mut &mut *buffer, Patience::None)),
        }
    }

    /// Like [`receive_into`](Self::receive_into), for at most `timeout`; `None` if no message came.
    ///
    /// # Errors
    /// As for [`receive_into`](Self::receive_into).
    pub fn receive_into_timeout(
        &mut self,
        selector: Selector,
        buffer: &mut [u8],
        timeout: Duration,
    ) -> Result<Option<Status>, MessageError> {
        self.receive_into_patiently(selector, buffer, Patience::until(timeout))
    }

    /// Like [`receive_into`](Self::receive_into), but waits for as long as `patience` says.
    pub(super) fn receive_into_patiently(
        &mut self,
        selector: Selector,
        buffer: &mut [u8],
        patience: Patience,
    ) -> Result<Option<Status>, MessageError> {
        none_if_late(self.receive_slowly(selector, &mut &mut *buffer, patience))
    }

    /// Like [`receive_into`](Self::receive_into), but spreads the message over `parts`, one after the other.
    ///
    /// # Errors
    /// As for [`receive_into`](Self::receive_into).
    pub fn receive_scatter(
        &mut self,
        selector: Selector,
        parts: &mut [&mut [u8]],
    ) -> Result<Status, MessageError> {
        self.receive_slowly(selector, &mut &mut *parts, Patience::Forever)
    }

    // How a receive waits.

    /// Polls for a message that takes the short path, while polls are cheaper than a sleep, and does nothing else.
    /// Most messages are received this way.
    #[inline(always)]
    pub(super) fn receive_polling<L: Look>(&mut self, mut way: L) -> Option<L::Message> {
        if !self.engine.is_at_rest() {
            return None;
        }
        let source = way.selector().source();
        let bare_polls = self.poller.bare_polls();
        let (mut round, mut polls) = (0, Polls::within(NO_LIMIT_NS));
        loop {
            match way.look(&mut self.engine, Polling::Repeated) {
                Looked::Nothing => {}
                Looked::Received(message) => return Some(message),
                Looked::Other => return None,
            }
            round = bare_polls.min(round + 1);
            if round == bare_polls {
                let may_poll = self.may_poll(&mut polls, source, None);
                if self.engine.has_notice() {
                    return None;
                }
                if !may_poll {
                    if self.poller.may_sleep() {
                        self.poller.sleeps();
                        return None;
                    }
                    if source.is_some_and(|peer| self.engine.peer_at(peer.row()) != Some(peer)) {
                        // The source has gone, and an earlier call has handled the notice of that.
                        return None;
                    }
                    polls = Polls::within(NO_LIMIT_NS);
                }
            }
        }
    }

    /// Polls once for such a message. `None` if something else must be handled first.
    #[inline(always)]
    pub(super) fn look_once<L: Look>(&mut self, mut way: L) -> Option<Option<L::Message>> {
        if !self.engine.is_at_rest() {
            return None;
        }
        match way.look(&mut self.engine, Polling::Once) {
            Looked::Nothing if way.selector().source().is_none() && !self.engine.has_notice() => {
                Some(None)
            }
            Looked::Received(message) => Some(Some(message)),
            _ => None,
        }
    }

    #[inline(never)]
    fn receive_owned(
        &mut self,
        selector: Selector,
        patience: Patience,
    ) -> Result<OwnedMessage, MessageError> {
        let mut target = self.engine.new_message();
        let status = self.receive_slowly(selector, target.as_target(), patience)?;
        Ok(target.finish(status))
    }

    /// The slow half of every receive.
    #[inline(never)]
    pub(super) fn receive_slowly(
        &mut self,
        selector: Selector,
        target: &mut dyn Target,
        patience: Patience,
    ) -> Result<Status, MessageError> {
        let mut caller = Caller::new(selector, target);
        if matches!(patience, Patience::None) {
            let late = MessageError::Timeout { after: Duration::ZERO };
            return self.engine.receive_now(&mut caller)?.unwrap_or(Err(late));
        }
        let with_limit = |error| match error {
            MessageError::Timeout { .. } => MessageError::Timeout { after: after(patience) },
            other => other,
        };
        if matches!(patience, Patience::Forever) {
            caller = caller.patient();
        } else if self.engine.is_arriving_elsewhere(&caller) {
            self.wait_for(patience, None, None, |endpoint, _| {
                (!endpoint.engine.is_arriving_elsewhere(&caller)).then_some(())
            })
            .map_err(with_limit)?;
        }
        self.engine.begin_receive(&mut caller)?;
        if let Some(end) = self.engine.end_of(&caller) {
            return end;
        }
        let ended = self.wait_for(patience, Some(&mut caller), None, |endpoint, caller| {
            caller.and_then(|caller| endpoint.engine.end_of(caller))
        });
        self.engine.leave(&mut caller);
        match ended {
            Ok(Ok(status)) => {
                self.poller.expect_handling(status.bytes);
                Ok(status)
            }
            Ok(end) => end,
            Err(error) => Err(with_limit(error)),
        }
    }
}

/// How a receive takes a message that takes the short path.
pub(super) trait Look {
    /// The result.
    type Message;

    fn selector(&self) -> &Selector;

    fn look(&mut self, engine: &mut Engine<Ways>, polling: Polling) -> Looked<Self::Message>;
}

/// Into the caller's memory.
pub(super) struct IntoBuffer<'a> {
    pub(super) selector: Selector,
    pub(super) buffer: &'a mut [u8],
}

impl Look for IntoBuffer<'_> {
    type Message = Status;

    #[inline(always)]
    fn selector(&self) -> &Selector {
        &self.selector
    }

    #[inline(always)]
    fn look(&mut self, engine: &mut Engine<Ways>, polling: Polling) -> Looked<Status> {
        engine.try_take_short(&self.selector, self.buffer, polling)
    }
}

/// Into memory that the message owns.
pub(super) struct Owned(pub(super) Selector);

impl Look for Owned {
    type Message = OwnedMessage;

    #[inline(always)]
    fn selector(&self) -> &Selector {
        &self.0
    }

    #[inline(always)]
    fn look(&mut self, engine: &mut Engine<Ways>, polling: Polling) -> Looked<OwnedMessage> {
        engine.try_take_owned(&self.0, polling)
    }
}

/// A time-out is not an error.
pub(super) fn none_if_late<T>(ended: Result<T, MessageError>) -> Result<Option<T>, MessageError> {
    match ended {
        Ok(end) => Ok(Some(end)),
        Err(MessageError::Timeout { .. }) => Ok(None),
        Err(other) => Err(other),
    }
}
