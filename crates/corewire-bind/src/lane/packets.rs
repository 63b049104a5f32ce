//! Packets on a socket, with descriptors.

use std::io::IoSlice;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use corewire::Connection;
use corewire_os::packet::{self, SocketError};

use super::packet::{CHUNK_BYTES, Header, Kind, PACKET_BYTES_MAX};
use crate::capability::{Capabilities, Outgoing, Received};
use crate::message::COST_BYTES;
use crate::tag::Tag;

/// A packet whose bytes stay where they are.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Packet<'a> {
    pub(crate) header: Header,
    pub(crate) capabilities: &'a [Outgoing<'a>],
    pub(crate) part: &'a [u8],
}

impl<'a> Packet<'a> {
    pub(crate) fn status(tag: Tag, status: u64) -> Self {
        let header =
            Header { tag, word: status, bytes: 0, kind: Kind::Status, capability_count: 0 };
        Self { header, capabilities: &[], part: &[] }
    }

    /// The capabilities of a message that travels in the ring.
    pub(crate) fn lane(tag: Tag, capabilities: &'a [Outgoing<'a>]) -> Self {
        let kind = Kind::Capabilities;
        let header = Header { tag, word: 0, bytes: 0, kind, capability_count: count(capabilities) };
        Self { header, capabilities, part: &[] }
    }

    /// The packets of a message.
    pub(crate) fn message(
        tag: Tag,
        bytes: &'a [u8],
        capabilities: &'a [Outgoing<'a>],
    ) -> impl Iterator<Item = Self> {
        let (first, rest) = bytes.split_at(bytes.len().min(CHUNK_BYTES));
        let header = Header {
            tag,
            word: 0,
            bytes: u32::try_from(bytes.len()).unwrap_or(u32::MAX),
            kind: Kind::Message,
            capability_count: count(capabilities),
        };
        let more = Header { bytes: 0, kind: Kind::More, capability_count: 0, ..header };
        let rest = rest.chunks(CHUNK_BYTES);
        let rest = rest.map(move |part| Self { header: more, capabilities: &[], part });
        std::iter::once(Self { header, capabilities, part: first }).chain(rest)
    }

    /// Sends it. Never waits.
    pub(crate) fn send(&self, socket: impl AsFd) -> Result<(), SocketError> {
        let header = self.header.to_bytes();
        let mut notes = Vec::new();
        for one in self.capabilities {
            notes.extend([one.kind as u8, u8::try_from(one.note.len()).unwrap_or(0)]);
            notes.extend(one.note.as_bytes());
        }
        let parts = [IoSlice::new(&header), IoSlice::new(&notes), IoSlice::new(self.part)];
        let descriptors = self.capabilities.iter().map(|one| one.descriptor);
        Ok(packet::send(socket, &parts, &descriptors.collect::<Vec<_>>())?)
    }
}

/// Whether a socket that the other side has closed is that of a process that has ended. Otherwise the process lives on.
#[cold]
pub(crate) fn has_peer_died(socket: &Connection) -> bool {
    /// How long a process may take to end after its sockets, where the kernel does not show that it is ending. Calls that do
    /// not wait are held up so long, once.
    const ENDS_WITHIN: Duration = Duration::from_millis(10);
    corewire_os::socket::is_peer_ending(socket, socket.pid(), ENDS_WITHIN)
}

fn count(capabilities: &[Outgoing<'_>]) -> u8 {
    u8::try_from(capabilities.len()).unwrap_or(u8::MAX)
}

/// Receives packets, in memory that it keeps.
#[derive(Debug, Default)]
pub(crate) struct Receiver {
    packet: Vec<u8>,
}

impl Receiver {
    /// The next packet and its descriptors; `None` if this process may not open more. Never waits.
    pub(crate) fn receive(
        &mut self,
        socket: impl AsFd,
    ) -> Result<(&[u8], Option<Vec<OwnedFd>>), SocketError> {
        // One byte more shows which packets are too long.
        self.packet.resize(PACKET_BYTES_MAX + 1, 0);
        let packet::Packet { bytes, descriptors, is_whole } =
            packet::receive(socket, &mut self.packet)?;
        let descriptors = is_whole.then_some(descriptors);
        Ok((self.packet.get(..bytes).unwrap_or_default(), descriptors))
    }
}

/// A message of which some packets, or all, have not been sent.
#[derive(Debug)]
pub(crate) struct Unsent {
    tag: Tag,
    status: Option<u64>,
    bytes: Vec<u8>,
    capabilities: Vec<Received>,
    packets_sent: usize,
}

impl Unsent {
    pub(crate) const fn new(
        tag: Tag,
        status: Option<u64>,
        bytes: Vec<u8>,
        capabilities: Vec<Received>,
    ) -> Self {
        Self { tag, status, bytes, capabilities, packets_sent: 0 }
    }

    /// The rest of a message, behind the first `packets_sent` packets.
    pub(crate) fn rest(
        tag: Tag,
        bytes: &[u8],
        capabilities: &Capabilities<'_>,
        packets_sent: usize,
    ) -> Result<Self, SocketError> {
        // The first packet has taken them along.
        let capabilities = if packets_sent == 0 { capabilities.to_owned() } else { Ok(Vec::new()) };
        let capabilities = capabilities
            .map_err(|error| SocketError::Os(error.raw_os_error().unwrap_or_default()))?;
        Ok(Self { packets_sent, ..Self::new(tag, None, bytes.to_vec(), capabilities) })
    }

    pub(crate) fn cost_bytes(&self) -> usize {
        self.bytes.len() + COST_BYTES
    }

    pub(crate) const fn descriptor_count(&self) -> usize {
        self.capabilities.len()
    }

    /// Whether a part of it has been sent.
    pub(crate) const fn is_begun(&self) -> bool {
        self.packets_sent > 0
    }

    /// Sends what is left, as far as there is room. True if nothing is left.
    pub(crate) fn send(&mut self, socket: impl AsFd) -> Result<bool, SocketError> {
        if let Some(status) = self.status {
            return is_sent(Packet::status(self.tag, status).send(socket));
        }
        let capabilities = Capabilities::of_owned(&self.capabilities);
        let packets = Packet::message(self.tag, &self.bytes, capabilities.all());
        for packet in packets.skip(self.packets_sent) {
            if !is_sent(packet.send(&socket))? {
                return Ok(false);
            }
            self.packets_sent += 1;
        }
        Ok(true)
    }
}

fn is_sent(sent: Result<(), SocketError>) -> Result<bool, SocketError> {
    match sent {
        Err(SocketError::NotNow) => Ok(false),
        sent => sent.map(|()| true),
    }
}

/// Sends a message as far as there is room. Returns what is left of it.
pub(crate) fn send_now(
    socket: impl AsFd,
    tag: Tag,
    bytes: &[u8],
    capabilities: &Capabilities<'_>,
) -> Result<Option<Unsent>, SocketError> {
    for (index, packet) in Packet::message(tag, bytes, capabilities.all()).enumerate() {
        if !is_sent(packet.send(&socket))? {
            return Unsent::rest(tag, bytes, capabilities, index).map(Some);
        }
    }
    Ok(None)
}
