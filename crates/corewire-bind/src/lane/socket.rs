//! The driver `sock`: everything on a SEQPACKET socket, for clients that may not map the service's memory.

use std::os::fd::{AsFd, OwnedFd};

use corewire::{Connection, MessageError};
use corewire_circuit::patience::Patience;
use corewire_os::fork::generation;
use corewire_os::packet::{self, SocketError};
use rustix::event::PollFlags;

use super::packet::{Assembled, Assembler};
use super::packets::{self, Packet, Receiver, Unsent};
use super::wait::{Interest, copy};
use crate::capability::Capabilities;
use crate::error::CallError;
use crate::message::Message;
use crate::tag::{Control, Tag, status};

/// A client's connection through the kernel.
pub(crate) struct SocketLink {
    socket: Connection,
    receiver: Receiver,
    assembler: Assembler,
    service: String,
    kept: Option<Unsent>,
    /// Whose descriptor it is: in a forked child its number may be that of another one.
    generation: u32,
    /// The service has said that it ends.
    is_left: bool,
}

/// The longest reason for a refusal.
const REASON_BYTES_MAX: u32 = 1024;

impl SocketLink {
    /// A connection whose service sends messages of at most this length, or the reason why it sends no more.
    pub(crate) fn new(socket: Connection, bytes_max: u32, service: &str) -> Self {
        let bytes_max = bytes_max.max(REASON_BYTES_MAX);
        let (receiver, assembler) = (Receiver::default(), Assembler::new(bytes_max));
        let service = service.to_owned();
        Self {
            socket,
            receiver,
            assembler,
            service,
            kept: None,
            generation: generation(),
            is_left: false,
        }
    }

    fn is_ours(&self) -> bool {
        self.generation == generation()
    }

    fn check(&self) -> Result<(), CallError> {
        match self.is_ours() {
            true => Ok(()),
            false => Err(CallError::Message(MessageError::Forked)),
        }
    }

    #[cold]
    fn error(&self, what: &'static str, error: SocketError) -> CallError {
        let name = self.service.clone();
        match error {
            SocketError::NotNow => CallError::Busy,
            SocketError::Closed if self.is_left => CallError::PeerLeft { name },
            SocketError::Closed if packets::has_peer_died(&self.socket) => {
                CallError::PeerDied { name }
            }
            SocketError::Closed => CallError::PeerLeft { name },
            SocketError::Os(errno) => CallError::Os { what, errno },
        }
    }

    fn cut_off(&self, reason: String) -> CallError {
        CallError::CutOff { name: self.service.clone(), reason }
    }

    pub(crate) fn send(
        &mut self,
        tag: Tag,
        message: &[u8],
        capabilities: &Capabilities<'_>,
        patience: Patience,
    ) -> Result<(), CallError> {
        self.check()?;
        loop {
            match packets::send_now(&self.socket, tag, message, capabilities) {
                Ok(None) => return Ok(()),
                // The service has a part of it: the rest must follow.
                Ok(Some(unsent)) if unsent.is_begun() => {
                    self.kept = Some(unsent);
                    return self.has_sent_kept(patience).map(drop);
                }
                Ok(Some(_)) => self.wait(PollFlags::OUT, patience)?,
                Err(error) => return Err(self.send_error(capabilities, error)),
            }
        }
    }

    #[cold]
    fn send_error(&self, capabilities: &Capabilities<'_>, error: SocketError) -> CallError {
        match error {
            SocketError::Os(_) if !capabilities.all().is_empty() => CallError::NotSent,
            error => self.error("send a message", error),
        }
    }

    pub(crate) fn keep(
        &mut self,
        tag: Tag,
        message: &[u8],
        capabilities: &Capabilities<'_>,
    ) -> Result<(), CallError> {
        let unsent = Unsent::rest(tag, message, capabilities, 0);
        self.kept = Some(unsent.map_err(|_| CallError::NotSent)?);
        Ok(())
    }

    pub(crate) const fn is_keeping(&self) -> bool {
        self.kept.is_some()
    }

    pub(crate) fn has_sent_kept(&mut self, patience: Patience) -> Result<bool, CallError> {
        self.check()?;
        while let Some(unsent) = &mut self.kept {
            match unsent.send(&self.socket) {
                Ok(true) => self.kept = None,
                Ok(false) => match self.wait(PollFlags::OUT, patience) {
                    Ok(()) => {}
                    Err(CallError::Busy | CallError::Timeout { .. }) => return Ok(false),
                    Err(error) => return Err(error),
                },
                Err(error) => {
                    self.kept = None;
                    return Err(self.error("send a message", error));
                }
            }
        }
        Ok(true)
    }

    pub(crate) fn receive(&mut self, patience: Patience) -> Result<Message, CallError> {
        self.check()?;
        loop {
            match self.receiver.receive(&self.socket) {
                Ok((packet, descriptors)) => match self.assembler.take(packet, descriptors) {
                    Ok(Assembled::Message(message)) => {
                        if message.status() == Some(status::LOST_HERE) {
                            self.note_loss(message.tag());
                        }
                        if Control::of(message.tag()) != Some(Control::Leave) {
                            return Ok(message);
                        }
                        // Nothing comes after it.
                        if std::mem::replace(&mut self.is_left, true) {
                            return Err(self.error("receive a message", SocketError::Closed));
                        }
                    }
                    Ok(Assembled::Nothing) => {}
                    Ok(Assembled::Capabilities(..)) => {
                        return Err(self.cut_off("it sent capabilities without a message".into()));
                    }
                    Err(error) => return Err(self.cut_off(error.to_string())),
                },
                Err(SocketError::NotNow) => self.wait(PollFlags::IN, patience)?,
                Err(error) => return Err(self.error("receive a message", error)),
            }
        }
    }

    /// Tells the service that the descriptors of a message were lost here, if there is room: the caller learns it in
    /// any case.
    #[cold]
    fn note_loss(&self, tag: Tag) {
        let note = Tag::control(tag.binding(), Control::NotTaken);
        let _ = Packet::status(note, u64::from(tag.ordinal())).send(&self.socket);
    }

    pub(crate) fn wait(&self, flags: PollFlags, patience: Patience) -> Result<(), CallError> {
        patience.left()?;
        match packet::wait(&self.socket, flags, patience.deadline()) {
            Ok(true) => Ok(()),
            Ok(false) => Err(patience.late().into()),
            Err(error) => Err(self.error("wait for a message", error)),
        }
    }

    pub(crate) fn readiness(&self) -> Result<OwnedFd, CallError> {
        self.check()?;
        copy(self.socket.as_fd())
    }

    pub(crate) fn arm(&self) -> Result<Option<Interest>, CallError> {
        self.check()?;
        // The descriptor can be read as long as something is there.
        Ok(Some(if self.kept.is_some() { Interest::ReadAndWrite } else { Interest::Read }))
    }
}

impl Drop for SocketLink {
    fn drop(&mut self) {
        // The program, or a forked child, may have a copy of the descriptor, which must not keep the client bound.
        if self.is_ours() {
            let _ = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Both);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_forked_child_leaves_the_descriptor_alone() {
        let path = std::env::temp_dir().join(format!("corewire-bind-link-{}", std::process::id()));
        let domain = corewire::Domain::open_at(&path).unwrap();
        let listener = domain.listener("echo").unwrap();
        let socket = domain.connect("echo", std::time::Duration::from_secs(5)).unwrap();
        let mut link = SocketLink::new(socket, 8, "echo");
        let other = listener.accept().unwrap();
        link.generation += 1;
        let forked = || CallError::Message(MessageError::Forked);
        let sent = link.send(Tag::new(1, 1, 0), b"x", &Capabilities::new(), Patience::Forever);
        assert_eq!(sent, Err(forked()));
        assert_eq!(link.receive(Patience::Forever).map(drop), Err(forked()));
        assert_eq!(link.readiness().map(drop), Err(forked()));
        drop(link);
        drop(listener);
        drop(domain);
        // Nothing came but the end.
        assert_eq!(rustix::io::read(&other, &mut [0; 8]), Ok(0));
        std::fs::remove_dir_all(&path).unwrap();
    }
}
