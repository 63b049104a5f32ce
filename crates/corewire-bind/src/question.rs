//! Asks a service on its socket, before there is a binding.

use corewire::Connection;
use corewire_circuit::patience::Patience;
use corewire_os::packet::{self, SocketError};
use rustix::event::PollFlags;

use crate::error::{BindReason, CallError};
use crate::lane::packet::{Assembled, Assembler};
use crate::lane::packets::{Packet, Receiver};
use crate::message::Message;
use crate::tag::Tag;

/// The longest answer: an interface in JSON.
const ANSWER_BYTES_MAX: u32 = 64 << 20;

/// Asks a service, on its socket, and waits for the answer.
pub(crate) fn ask(
    socket: &Connection,
    tag: Tag,
    bytes: &[u8],
    until: Patience,
) -> Result<Message, BindReason> {
    let wait = |flags| match packet::wait(socket, flags, until.deadline()) {
        Ok(true) => Ok(()),
        Ok(false) => Err(CallError::from(until.late()).into()),
        Err(error) => Err(reason_of(error)),
    };
    for packet in Packet::message(tag, bytes, &[]) {
        loop {
            match packet.send(socket) {
                Ok(()) => break,
                Err(SocketError::NotNow) => wait(PollFlags::OUT)?,
                // It may have said why before it closed.
                Err(SocketError::Closed) => break,
                Err(error) => return Err(reason_of(error)),
            }
        }
    }
    let (mut receiver, mut assembler) = (Receiver::default(), Assembler::new(ANSWER_BYTES_MAX));
    loop {
        match receiver.receive(socket) {
            Ok((packet, descriptors)) => match assembler.take(packet, descriptors) {
                Ok(Assembled::Message(message)) => return Ok(message),
                Ok(Assembled::Nothing) => {}
                _ => return Err(BindReason::Protocol),
            },
            Err(SocketError::NotNow) => wait(PollFlags::IN)?,
            Err(error) => return Err(reason_of(error)),
        }
    }
}

fn reason_of(error: SocketError) -> BindReason {
    match error {
        SocketError::NotNow => CallError::Busy.into(),
        SocketError::Closed => BindReason::Closed,
        SocketError::Os(errno) => CallError::Os { what: "speak to the service", errno }.into(),
    }
}
