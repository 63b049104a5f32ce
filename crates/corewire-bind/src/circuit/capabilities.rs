//! Capabilities of messages that travel through circuits: in the control lane, in the order of their messages.

use std::os::fd::{AsFd, OwnedFd};

use corewire_layout::circuit::Label;
use corewire_layout::circuit::packet::Packet;

use crate::capability::{Capabilities, Kind, Received};

/// The packet with the capabilities of a message, and their descriptors.
///
/// # Errors
/// A descriptor could not be copied.
pub(crate) fn packet(
    to: Label,
    capabilities: &Capabilities<'_>,
) -> std::io::Result<(Packet, Vec<OwnedFd>)> {
    let (mut notes, mut descriptors) = (Vec::new(), Vec::new());
    for one in capabilities.all() {
        notes.extend([one.kind as u8, u8::try_from(one.note.len()).unwrap_or(0)]);
        notes.extend(one.note.as_bytes());
        descriptors.push(one.descriptor.as_fd().try_clone_to_owned()?);
    }
    Ok((Packet::Capabilities { to, is_lost: false, notes }, descriptors))
}

/// The capabilities in such a packet; `None` if they were lost on the way, or the packet is not as it must be.
pub(crate) fn parse(
    is_lost: bool,
    mut notes: &[u8],
    descriptors: Option<Vec<OwnedFd>>,
) -> Option<Vec<Received>> {
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
