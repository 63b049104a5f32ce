//! The driver `circuit` at its client's end.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use corewire::MessageError;
use corewire_circuit::ends::{Ended, Head};
use corewire_circuit::link::hub::{self, CircuitError, Hub};
use corewire_circuit::patience::Patience;
use corewire_circuit::wire::packet::End;
use rustix::event::PollFlags;

use super::wait::{Interest, copy};
use crate::capability::Capabilities;
use crate::error::CallError;
use crate::message::{Body, Message};
use crate::tag::{Control, Tag, status};

/// A client's connection through monitors.
pub(crate) struct CircuitLink {
    hub: Arc<Hub>,
    index: u32,
    service: String,
    /// What the program waits for, once it has asked.
    readiness: Option<OwnedFd>,
    is_keeping: bool,
}

impl CircuitLink {
    pub(crate) fn new(hub: Arc<Hub>, index: u32, service: &str) -> Self {
        Self { hub, index, service: service.to_owned(), readiness: None, is_keeping: false }
    }

    fn check(&self) -> Result<(), CallError> {
        match self.hub.is_ours() {
            true => Ok(()),
            false => Err(CallError::Message(MessageError::Forked)),
        }
    }

    fn error(&self, error: CircuitError) -> CallError {
        let (Ended { end, reason }, delivered) = match error {
            CircuitError::Ended(ended, delivered) => (ended, delivered),
            CircuitError::Late(late) => return late.into(),
            CircuitError::NotSent => return CallError::NotSent,
            CircuitError::Message(error) => return CallError::Message(error),
            CircuitError::Os { what, errno } => return CallError::Os { what, errno },
        };
        let name = self.service.clone();
        match end {
            End::Closed => CallError::PeerLeft { name },
            End::Died => CallError::PeerDied { name },
            End::Refused => CallError::Unbound { name, reason },
            End::Violation => CallError::CutOff { name, reason },
            _ => CallError::Lost { name, reason, delivered },
        }
    }

    fn head(tag: Tag, capabilities: &Capabilities<'_>) -> Head {
        let (ordinal, token) = (tag.ordinal(), tag.token());
        let capabilities = u8::try_from(capabilities.count()).unwrap_or(u8::MAX);
        Head { ordinal, token, status: None, capabilities }
    }

    #[inline]
    pub(crate) fn send(
        &mut self,
        tag: Tag,
        message: &[u8],
        capabilities: &Capabilities<'_>,
        patience: Patience,
    ) -> Result<(), CallError> {
        self.check()?;
        let head = Self::head(tag, capabilities);
        if head.capabilities == 0 {
            let sent = self.hub.try_send(self.index, head, message);
            if sent.map_err(|error| self.error(error))? {
                return Ok(());
            }
            if matches!(patience, Patience::None) {
                return Err(CallError::Busy);
            }
        }
        self.keep(tag, message, capabilities)?;
        self.has_sent_kept(patience).map(drop)
    }

    pub(crate) fn keep(
        &mut self,
        tag: Tag,
        message: &[u8],
        capabilities: &Capabilities<'_>,
    ) -> Result<(), CallError> {
        self.check()?;
        let head = Self::head(tag, capabilities);
        if head.capabilities > 0 {
            // They go first: their message waits for them.
            let sent = self.hub.send_capabilities(self.index, capabilities.all());
            sent.map_err(|error| self.error(error))?;
        }
        self.hub.keep(self.index, head, message).map_err(|error| self.error(error))?;
        self.is_keeping = true;
        Ok(())
    }

    pub(crate) const fn is_keeping(&self) -> bool {
        self.is_keeping
    }

    pub(crate) fn has_sent_kept(&mut self, patience: Patience) -> Result<bool, CallError> {
        self.check()?;
        match self.hub.flush(self.index, patience) {
            Ok(()) => {
                self.is_keeping = false;
                Ok(true)
            }
            Err(CircuitError::Late(_)) => Ok(false),
            Err(error) => Err(self.error(error)),
        }
    }

    #[inline]
    pub(crate) fn receive(&mut self, patience: Patience) -> Result<Message, CallError> {
        self.check()?;
        let received = self.hub.receive(self.index, patience);
        let message = received.map_err(|error| self.error(error))?;
        Ok(self.message(message))
    }

    /// What comes next, if it has come.
    #[inline]
    pub(crate) fn try_receive(&mut self) -> Result<Option<Message>, CallError> {
        self.check()?;
        let received = self.hub.try_receive(self.index).map_err(|error| self.error(error))?;
        Ok(received.map(|message| self.message(message)))
    }

    #[inline]
    fn message(&self, message: hub::Message) -> Message {
        let Head { ordinal, token, status, .. } = message.head;
        let tag = Tag::new(0, ordinal, token);
        match message.capabilities {
            Some(all) => Message::new(tag, status.map(u64::from), Body::Own(message.bytes), all),
            None => {
                self.note_loss(tag);
                Message::new(tag, Some(status::LOST_HERE), Body::empty(), Vec::new())
            }
        }
    }

    /// Tells the service that the capabilities of a message were lost, if there is room: the caller learns it in any
    /// case.
    #[cold]
    fn note_loss(&self, tag: Tag) {
        let (ordinal, token) = (0, Control::NotTaken as u32);
        let status = Some(u32::from(tag.ordinal()));
        let _ =
            self.hub.try_send(self.index, Head { ordinal, token, status, capabilities: 0 }, &[]);
    }

    pub(crate) fn wait(&mut self, _: PollFlags, patience: Patience) -> Result<(), CallError> {
        self.check()?;
        self.hub.wait(self.index, patience).map_err(|error| self.error(error))
    }

    pub(crate) fn readiness(&mut self) -> Result<OwnedFd, CallError> {
        self.check()?;
        let readiness = match self.readiness.take() {
            Some(readiness) => readiness,
            None => self.hub.readiness(self.index).map_err(|error| self.error(error))?,
        };
        let copy = copy(readiness.as_fd());
        self.readiness = Some(readiness);
        copy
    }

    pub(crate) fn arm(&mut self) -> Result<Option<Interest>, CallError> {
        self.check()?;
        let is_armed = self.hub.arm(self.index).map_err(|error| self.error(error))?;
        // Arming may have sent the message that is kept: the descriptor announces only what happens from now on.
        let has_sent_kept = self.is_keeping && self.hub.is_all_sent(self.index);
        Ok((is_armed && !has_sent_kept).then_some(Interest::Read))
    }
}

impl Drop for CircuitLink {
    fn drop(&mut self) {
        if self.hub.is_ours() {
            self.hub.close(self.index, End::Closed);
        }
    }
}
