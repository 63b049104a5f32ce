//! Packets on a socket, with descriptors.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use corewire::Connection;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, retry_on_intr};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

use crate::capability::{CAPABILITIES_MAX, Capabilities, Outgoing, Received};
use crate::message::COST_BYTES;
use crate::packet::{CHUNK_BYTES, Header, Kind, PACKET_BYTES_MAX};
use crate::tag::Tag;

/// What a socket did not send or receive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SocketError {
    /// There is no room, or nothing has come.
    NotNow,
    /// The other side has closed it, or has died.
    Closed,
    /// Another error of the system.
    Os(i32),
}

impl From<Errno> for SocketError {
    fn from(error: Errno) -> Self {
        match error {
            Errno::AGAIN => Self::NotNow,
            Errno::PIPE | Errno::CONNRESET | Errno::NOTCONN => Self::Closed,
            other => Self::Os(other.raw_os_error()),
        }
    }
}

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
        Ok(send_packet(socket, &parts, &descriptors.collect::<Vec<_>>())?)
    }
}

/// Sends a packet with descriptors. Never waits.
pub(crate) fn send_packet(
    socket: impl AsFd,
    parts: &[IoSlice<'_>],
    descriptors: &[BorrowedFd<'_>],
) -> Result<(), Errno> {
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    if descriptors.is_empty() {
        let mut none = SendAncillaryBuffer::default();
        retry_on_intr(|| sendmsg(&socket, parts, &mut none, flags))?;
        return Ok(());
    }
    let mut space = vec![MaybeUninit::uninit(); ANCILLARY_BYTES];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !ancillary.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(Errno::TOOBIG);
    }
    retry_on_intr(|| sendmsg(&socket, parts, &mut ancillary, flags))?;
    Ok(())
}

/// A packet that was received.
pub(crate) struct RawPacket {
    pub(crate) bytes: usize,
    /// Its descriptors, or those of them that this process could open.
    pub(crate) descriptors: Vec<OwnedFd>,
    /// Whether all are there.
    pub(crate) is_whole: bool,
}

/// Receives a packet. Never waits.
pub(crate) fn receive_packet(
    socket: impl AsFd,
    buffer: &mut [u8],
) -> Result<RawPacket, SocketError> {
    let mut space = [MaybeUninit::uninit(); ANCILLARY_BYTES];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let mut parts = [IoSliceMut::new(buffer)];
    let mut receive = || retry_on_intr(|| recvmsg(&socket, &mut parts, &mut ancillary, flags));
    let got = match receive() {
        // The peer closed without having read everything. This is reported once; what it had sent comes behind.
        Err(Errno::CONNRESET) => receive(),
        got => got,
    }?;
    let mut descriptors = Vec::new();
    for one in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(found) = one {
            descriptors.extend(found);
        }
    }
    let is_whole = !got.flags.contains(ReturnFlags::CTRUNC);
    match got.bytes {
        // An empty packet with descriptors is one all the same.
        0 if descriptors.is_empty() && is_whole => Err(SocketError::Closed),
        bytes => Ok(RawPacket { bytes, descriptors, is_whole }),
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

const ANCILLARY_BYTES: usize = rustix::cmsg_space!(ScmRights(CAPABILITIES_MAX));

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
        let RawPacket { bytes, descriptors, is_whole } = receive_packet(socket, &mut self.packet)?;
        let descriptors = is_whole.then_some(descriptors);
        Ok((self.packet.get(..bytes).unwrap_or_default(), descriptors))
    }
}

/// Waits until a socket can be read or written, or is closed. False if that did not happen in time.
pub(crate) fn wait(
    socket: impl AsFd,
    flags: PollFlags,
    until: Option<Instant>,
) -> Result<bool, SocketError> {
    loop {
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        // A limit beyond what the kernel can express is none.
        let left = left.and_then(|left| Timespec::try_from(left).ok());
        let mut sockets = [PollFd::new(&socket, flags)];
        match poll(&mut sockets, left.as_ref()) {
            Ok(0) if until.is_some_and(|until| Instant::now() < until) => {}
            Ok(count) => return Ok(count > 0),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
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
