//! The drivers `local`, `lmp` and `ump`: a pair of endpoints, and a socket for capabilities. The driver `net`: a pair of endpoints
//! on two hosts, which can transfer none.
//!
//! Capabilities are sent on the socket before their message is sent in the ring, so that they are there when the
//! message is.

use std::os::fd::{AsFd, OwnedFd};

use corewire::{
    Completion, Connection, Endpoint, Envelope, MessageError, OperationHandle, Options,
    OwnedMessage, Peer, Selector, Status,
};
use corewire_circuit::patience::Patience;
use corewire_os::packet::{self, SocketError};
use rustix::event::PollFlags;

use super::packet::{Assembled, Assembler};
use super::packets::{self, Packet, Receiver};
use super::wait::{Interest, copy};
use crate::capability::{Capabilities, Received};
use crate::error::CallError;
use crate::message::{BUFFER_BYTES, Body, Message};
use crate::tag::{Control, Tag, status};

/// A client's connection through shared memory.
pub(crate) struct RingLink {
    pub(crate) endpoint: Endpoint,
    pub(crate) peer: Peer,
    /// For capabilities; `None` to another host.
    socket: Option<Connection>,
    receiver: Receiver,
    /// Where messages are received.
    buffer: Box<[u8; BUFFER_BYTES]>,
    service: String,
    kept: Option<OperationHandle>,
    /// How sending it has ended, if that was found while nobody asked.
    kept_end: Option<Result<Status, MessageError>>,
}

/// The capabilities of a message that has arrived in the ring, from the socket beside it.
///
/// # Errors
/// They were lost, or the peer does not keep the order. In the second case the link must end.
pub(crate) fn take_beside(
    receiver: &mut Receiver,
    socket: &Connection,
    tag: Tag,
) -> Result<Vec<Received>, LaneError> {
    let (packet, descriptors) = receiver.receive(socket).map_err(|_| LaneError::Order)?;
    match Assembler::new(0).take(packet, descriptors) {
        Ok(Assembled::Capabilities(found, capabilities)) if found == tag => {
            capabilities.ok_or(LaneError::Lost)
        }
        _ => Err(LaneError::Order),
    }
}

/// Why there are no capabilities.
pub(crate) enum LaneError {
    /// This process could not take them. The next ones may come.
    Lost,
    /// The peer has not sent them.
    Order,
}

impl RingLink {
    pub(crate) fn new(
        endpoint: Endpoint,
        peer: Peer,
        socket: Option<Connection>,
        service: &str,
    ) -> Self {
        let (receiver, service) = (Receiver::default(), service.to_owned());
        let buffer = Box::new([0; BUFFER_BYTES]);
        Self { endpoint, peer, socket, receiver, buffer, service, kept: None, kept_end: None }
    }

    /// What the endpoint reports, of a service.
    #[cold]
    pub(crate) fn error(&self, error: MessageError, patience: Patience) -> CallError {
        let name = || self.service.clone();
        match error {
            MessageError::PeerDied { .. } => CallError::PeerDied { name: name() },
            MessageError::PeerLeft { .. } | MessageError::UnknownPeer => {
                CallError::PeerLeft { name: name() }
            }
            MessageError::PeerLost { reason, delivered, .. } => {
                CallError::HostLost { name: name(), reason: reason.to_string(), delivered }
            }
            MessageError::PeerCutOff { violation, .. } => {
                CallError::CutOff { name: name(), reason: violation.to_string() }
            }
            MessageError::Timeout { .. }
            | MessageError::Full { .. }
            | MessageError::ReceiverFull { .. } => patience.late().into(),
            other => CallError::Message(other),
        }
    }

    #[inline]
    pub(crate) fn send(
        &mut self,
        tag: Tag,
        message: &[u8],
        capabilities: &Capabilities<'_>,
        patience: Patience,
    ) -> Result<(), CallError> {
        if !capabilities.all().is_empty() {
            return self.send_with(tag, message, capabilities, patience);
        }
        let sent = match patience {
            Patience::Forever => self.endpoint.send(self.peer, tag.0, message),
            Patience::None | Patience::Zero => self.endpoint.try_send(self.peer, tag.0, message),
            Patience::Until(..) => match patience.left() {
                Ok(left) => {
                    self.endpoint.send_timeout(self.peer, tag.0, message, left.unwrap_or_default())
                }
                // There may be room even now.
                Err(_) => self.endpoint.try_send(self.peer, tag.0, message),
            },
        };
        sent.map_err(|error| self.error(error, patience))
    }

    /// Sends a message with capabilities. Once those are on their way the message is too: it is kept if there is no
    /// room, and waited for.
    #[cold]
    fn send_with(
        &mut self,
        tag: Tag,
        message: &[u8],
        capabilities: &Capabilities<'_>,
        patience: Patience,
    ) -> Result<(), CallError> {
        // `try_` must find out whether there is room before the capabilities go.
        self.keep(tag, message, capabilities)?;
        self.has_sent_kept(patience).map(drop)
    }

    pub(crate) fn keep(
        &mut self,
        tag: Tag,
        message: &[u8],
        capabilities: &Capabilities<'_>,
    ) -> Result<(), CallError> {
        let mut envelope = Envelope::tagged(tag.0);
        if !capabilities.all().is_empty() {
            let socket = self.socket.as_ref().ok_or(CallError::NotTransferable)?;
            let sent = Packet::lane(tag, capabilities.all()).send(socket);
            sent.map_err(|error| self.lane_error(error))?;
            envelope = envelope.with_immediate(status::CAPABILITIES);
        }
        let options = Options::default();
        loop {
            match self.endpoint.isend_with(self.peer, envelope, message.to_vec(), options) {
                // Its capabilities are on their way.
                Err(MessageError::Interrupted) => {}
                Err(error) => return Err(self.error(error, Patience::None)),
                Ok(kept) => {
                    self.kept = Some(kept);
                    return Ok(());
                }
            }
        }
    }

    #[cold]
    fn lane_error(&self, error: SocketError) -> CallError {
        let name = self.service.clone();
        match error {
            // The ring may tell more, and the socket whether the service has said that it ends.
            SocketError::Closed if self.socket.as_ref().is_some_and(packets::has_peer_died) => {
                CallError::PeerDied { name }
            }
            SocketError::Closed => CallError::PeerLeft { name },
            SocketError::NotNow | SocketError::Os(_) => CallError::NotSent,
        }
    }

    /// Whether the service has said on the socket that it ends. What else is there is of no use then.
    pub(crate) fn has_left(&mut self) -> bool {
        let Some(socket) = &self.socket else { return false };
        while let Ok((packet, descriptors)) = self.receiver.receive(socket) {
            if let Ok(Assembled::Message(note)) = Assembler::new(0).take(packet, descriptors)
                && Control::of(note.tag()) == Some(Control::Leave)
            {
                return true;
            }
        }
        false
    }

    pub(crate) const fn is_keeping(&self) -> bool {
        self.kept.is_some()
    }

    pub(crate) fn has_sent_kept(&mut self, patience: Patience) -> Result<bool, CallError> {
        let Some(handle) = self.kept else { return Ok(true) };
        if let Some(result) = self.kept_end.take() {
            self.kept = None;
            return result.map(|_| true).map_err(|error| self.error(error, patience));
        }
        let ended = match patience {
            Patience::None | Patience::Zero => self.endpoint.test(handle),
            Patience::Forever => self.endpoint.wait(handle).map(Some),
            Patience::Until(..) => match patience.left() {
                Ok(left) => self.endpoint.within(left.unwrap_or_default()).wait(handle),
                Err(_) => self.endpoint.test(handle),
            },
        };
        match ended {
            Ok(None) => Ok(false),
            Ok(Some(Completion { result, .. })) => {
                self.kept = None;
                result.map(|_| true).map_err(|error| self.error(error, patience))
            }
            Err(error) => Err(self.error(error, patience)),
        }
    }

    #[inline]
    pub(crate) fn receive(&mut self, patience: Patience) -> Result<Message, CallError> {
        let from = Selector::any().from(self.peer);
        let buffer = &mut *self.buffer;
        let received = match patience {
            Patience::Forever => self.endpoint.receive_into(from, buffer).map(Some),
            Patience::None | Patience::Zero => self.endpoint.try_receive_into(from, buffer),
            Patience::Until(..) => match patience.left() {
                Ok(left) => {
                    self.endpoint.receive_into_timeout(from, buffer, left.unwrap_or_default())
                }
                // What has come already is received even now.
                Err(_) => self.endpoint.try_receive_into(from, buffer),
            },
        };
        match received {
            Ok(Some(status)) => {
                let length = usize::try_from(status.bytes).unwrap_or(usize::MAX);
                let body = Body::of(self.buffer.get(..length).unwrap_or(&*self.buffer));
                self.message(status, body)
            }
            Ok(None) => Err(patience.late().into()),
            Err(MessageError::BufferTooSmall { .. }) => self.receive_long(from, patience),
            Err(error) => Err(self.error(error, patience)),
        }
    }

    /// A message that has begun to arrive. Its sender may have stopped before its end.
    fn receive_long(&mut self, from: Selector, patience: Patience) -> Result<Message, CallError> {
        let received = match patience {
            Patience::Forever => self.endpoint.receive(from).map(Some),
            Patience::None | Patience::Zero => self.endpoint.try_receive(from),
            Patience::Until(..) => match patience.left() {
                Ok(left) => self.endpoint.receive_timeout(from, left.unwrap_or_default()),
                Err(_) => self.endpoint.try_receive(from),
            },
        };
        match received {
            Ok(Some(message)) => self.long(message),
            Ok(None) => Err(patience.late().into()),
            Err(error) => Err(self.error(error, patience)),
        }
    }

    /// A message that the endpoint owns.
    pub(crate) fn long(&mut self, message: OwnedMessage) -> Result<Message, CallError> {
        self.message(message.status(), Body::Endpoint(message))
    }

    #[inline]
    pub(crate) fn message(&mut self, status: Status, body: Body) -> Result<Message, CallError> {
        let message = Message::new(Tag(status.tag), status.immediate, body, Vec::new());
        match message.tag().announces_capabilities(status.immediate) {
            true => self.with_capabilities(message),
            false => Ok(message),
        }
    }

    #[cold]
    fn with_capabilities(&mut self, mut message: Message) -> Result<Message, CallError> {
        let tag = message.tag();
        let taken = match &self.socket {
            Some(socket) => take_beside(&mut self.receiver, socket, tag),
            None => Err(LaneError::Order),
        };
        match taken {
            Ok(capabilities) => {
                message.set_capabilities(capabilities);
                Ok(message)
            }
            Err(LaneError::Lost) => {
                // The service learns it, if there is room: the caller does in any case.
                let note = Envelope::tagged(Tag::control(tag.binding(), Control::NotTaken).0);
                let note = note.with_immediate(u64::from(tag.ordinal()));
                let _ = self.endpoint.try_send(self.peer, note, &[]);
                Ok(Message::new(tag, Some(status::LOST_HERE), Body::empty(), Vec::new()))
            }
            Err(LaneError::Order) => Err(CallError::CutOff {
                name: self.service.clone(),
                reason: "it announced capabilities and sent none".to_owned(),
            }),
        }
    }

    /// Waits for the endpoint's descriptor, which is armed.
    pub(crate) fn wait(&self, flags: PollFlags, patience: Patience) -> Result<(), CallError> {
        match packet::wait(self.endpoint.readiness(), flags, patience.deadline()) {
            Ok(true) => Ok(()),
            Ok(false) => Err(patience.late().into()),
            Err(SocketError::Os(errno)) => Err(CallError::Os { what: "wait for a message", errno }),
            Err(_) => Err(CallError::Busy),
        }
    }

    pub(crate) fn readiness(&self) -> Result<OwnedFd, CallError> {
        copy(self.endpoint.readiness().as_fd())
    }

    pub(crate) fn arm(&mut self) -> Result<Option<Interest>, CallError> {
        let armed =
            self.endpoint.arm().and_then(|is_armed| Ok(is_armed && !self.has_ended_kept()?));
        match armed {
            Ok(is_armed) => Ok(is_armed.then_some(Interest::Read)),
            Err(error) => Err(self.error(error, Patience::None)),
        }
    }

    /// Whether a receive has sent the message that is kept: the descriptor announces only what happens from now on.
    fn has_ended_kept(&mut self) -> Result<bool, MessageError> {
        let Some(handle) = self.kept else { return Ok(false) };
        if self.kept_end.is_none() {
            self.kept_end = self.endpoint.test(handle)?.map(|completion| completion.result);
        }
        Ok(self.kept_end.is_some())
    }
}
