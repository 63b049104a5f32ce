//! Capabilities of messages: descriptors with a kind and a note. Those of messages that travel through circuits go in the
//! control lane, in the order of their messages.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use super::sent::{Sent, Whose};
use crate::wire::Label;
use crate::wire::packet::Packet;

/// What a capability is, as it travels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Any descriptor.
    Descriptor = 1,
    /// A name in a domain: the descriptor is the runtime directory, the note is the name.
    Endpoint = 2,
    /// The same, of a channel.
    Channel = 3,
    /// The same, of a service.
    Service = 4,
    /// The same, of a window: the note is its handle, as text.
    Window = 5,
}

impl Kind {
    /// The kind with this number; `None` if there is none.
    #[must_use]
    pub const fn of_byte(byte: u8) -> Option<Self> {
        match byte {
            1 => Some(Self::Descriptor),
            2 => Some(Self::Endpoint),
            3 => Some(Self::Channel),
            4 => Some(Self::Service),
            5 => Some(Self::Window),
            _ => None,
        }
    }

    /// What it is called in errors.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Descriptor => "a descriptor",
            Self::Endpoint => "an endpoint",
            Self::Channel => "a channel",
            Self::Service => "a service",
            Self::Window => "a window",
        }
    }
}

/// A capability that has arrived.
#[derive(Debug)]
pub struct Received {
    /// What it is.
    pub kind: Kind,
    /// A name or a handle, or nothing.
    pub note: String,
    /// Its descriptor.
    pub descriptor: Sent,
}

/// A capability to send.
#[derive(Debug)]
pub struct Outgoing<'a> {
    /// What it is.
    pub kind: Kind,
    /// A name or a handle, or nothing.
    pub note: &'a str,
    /// Its descriptor.
    pub descriptor: BorrowedFd<'a>,
}

/// The packet with the capabilities of a message, and their descriptors.
///
/// # Errors
/// A descriptor could not be copied.
pub fn packet(to: Label, capabilities: &[Outgoing<'_>]) -> std::io::Result<(Packet, Vec<OwnedFd>)> {
    let (mut notes, mut descriptors) = (Vec::new(), Vec::new());
    for one in capabilities {
        notes.extend([one.kind as u8, u8::try_from(one.note.len()).unwrap_or(0)]);
        notes.extend(one.note.as_bytes());
        descriptors.push(one.descriptor.as_fd().try_clone_to_owned()?);
    }
    Ok((Packet::Capabilities { to, is_lost: false, notes }, descriptors))
}

/// The capabilities in such a packet, which comes `from` there; `None` if they were lost on the way, or the packet is not as
/// it must be.
#[must_use]
pub fn parse(
    is_lost: bool,
    mut notes: &[u8],
    descriptors: Option<Vec<OwnedFd>>,
    from: Whose,
) -> Option<Vec<Received>> {
    let sent = |descriptor| Sent::new(descriptor, from);
    let descriptors: Option<Vec<Sent>> = descriptors.map(|all| all.into_iter().map(sent).collect());
    let mut descriptors = descriptors.filter(|_| !is_lost)?.into_iter();
    let mut capabilities = Vec::new();
    while let Some((&[kind, length], rest)) = notes.split_first_chunk::<2>() {
        let (note, rest) = rest.split_at_checked(usize::from(length))?;
        let (kind, note) = (Kind::of_byte(kind)?, std::str::from_utf8(note).ok()?.to_owned());
        capabilities.push(Received { kind, note, descriptor: descriptors.next()? });
        notes = rest;
    }
    descriptors.next().is_none().then_some(capabilities)
}
