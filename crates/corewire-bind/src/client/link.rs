//! What a client's messages travel through: one of the drivers, as an enum, so that no call goes through a pointer to
//! a function.
//!
//! Every link delivers what the service sends in the order in which it was sent: replies, events, and notes of the
//! service. A caller that waits for any of them reads it (`crate::client`).

use std::os::fd::OwnedFd;

use corewire_circuit::patience::Patience;
use rustix::event::PollFlags;

use crate::capability::Capabilities;
use crate::error::{CallError, none_if_busy};
use crate::lane::{CircuitLink, Interest, RingLink, SocketLink};
use crate::message::Message;
use crate::tag::Tag;

/// A client's connection.
pub(crate) enum ClientLink {
    Ring(Box<RingLink>),
    Socket(Box<SocketLink>),
    Circuit(CircuitLink),
}

macro_rules! each {
    ($self:ident, $link:ident => $do:expr) => {
        match $self {
            Self::Ring($link) => $do,
            Self::Socket($link) => $do,
            Self::Circuit($link) => $do,
        }
    };
}

impl ClientLink {
    /// Sends a message, waiting for room.
    ///
    /// # Errors
    /// [`CallError::Busy`] or `Timeout` if there was none: the message was not sent, not even a part of it.
    #[inline]
    pub(crate) fn send(
        &mut self,
        tag: Tag,
        message: &[u8],
        capabilities: &Capabilities<'_>,
        patience: Patience,
    ) -> Result<(), CallError> {
        each!(self, link => link.send(tag, message, capabilities, patience))
    }

    /// Keeps a message that found no room. At most one is kept; [`has_sent_kept`](Self::has_sent_kept) sends it.
    pub(crate) fn keep(
        &mut self,
        tag: Tag,
        message: &[u8],
        capabilities: &Capabilities<'_>,
    ) -> Result<(), CallError> {
        each!(self, link => link.keep(tag, message, capabilities))
    }

    /// Whether a message is kept.
    #[inline]
    pub(crate) const fn is_keeping(&self) -> bool {
        each!(self, link => link.is_keeping())
    }

    /// Sends the message that is kept, if there is room by then. False if it still waits.
    pub(crate) fn has_sent_kept(&mut self, patience: Patience) -> Result<bool, CallError> {
        each!(self, link => link.has_sent_kept(patience))
    }

    /// What comes next.
    ///
    /// # Errors
    /// [`CallError::Busy`] or `Timeout` if there was nothing.
    #[inline]
    pub(crate) fn receive(&mut self, patience: Patience) -> Result<Message, CallError> {
        each!(self, link => link.receive(patience))
    }

    /// What comes next, if it has come.
    #[inline]
    pub(crate) fn try_receive(&mut self) -> Result<Option<Message>, CallError> {
        if let Self::Circuit(link) = self {
            return link.try_receive();
        }
        none_if_busy(self.receive(Patience::None))
    }

    /// The end of a link whose service has died, unless it has said before that it ends.
    #[cold]
    pub(crate) fn end(&mut self, error: CallError) -> CallError {
        match (self, error) {
            (Self::Ring(link), CallError::PeerDied { name }) => match link.has_left() {
                true => CallError::PeerLeft { name },
                false => CallError::PeerDied { name },
            },
            (_, error) => error,
        }
    }

    /// Waits until something may have come, or there may be room for the message that is kept.
    ///
    /// # Errors
    /// [`CallError::Busy`] or `Timeout` if that did not happen.
    pub(crate) fn wait(&mut self, patience: Patience) -> Result<(), CallError> {
        patience.left()?;
        let flags = match self.arm()? {
            None => return Ok(()),
            Some(Interest::Read) => PollFlags::IN,
            Some(Interest::ReadAndWrite) => PollFlags::IN | PollFlags::OUT,
        };
        each!(self, link => link.wait(flags, patience))
    }

    /// A descriptor that can be read when something has come after [`arm`](Self::arm).
    pub(crate) fn readiness(&mut self) -> Result<OwnedFd, CallError> {
        each!(self, link => link.readiness())
    }

    /// Announces that the caller will wait for the descriptor, and for what. `None` if something has come already.
    pub(crate) fn arm(&mut self) -> Result<Option<Interest>, CallError> {
        each!(self, link => link.arm())
    }
}
