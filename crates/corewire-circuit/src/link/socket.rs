//! The lanes of a link to a monitor that are sockets, at either end.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

use corewire_os::packet::{self, SocketError};
use rustix::event::PollFlags;
use rustix::io::Errno;

use crate::wire::packet::{PACKET_BYTES_MAX, Packet, PacketError};
use crate::wire::{DATA_HEADER_BYTES, Hop, Label, PAYLOAD_BYTES_MAX, data_header};

/// Bytes of packets that wait for a neighbour to read them. Beyond that the link ends.
pub const UNSENT_BYTES_MAX: usize = 64 << 20;

/// Places that an empty queue of packets keeps.
const UNSENT_KEPT: usize = 64;

/// Why a lane has ended.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LaneEnd {
    /// The other side has closed it, or has died.
    #[error("the other side has ended")]
    Closed,
    /// The other side sent what is no packet.
    #[error("it sent {0}")]
    Packet(#[from] PacketError),
    /// The other side does not read.
    #[error("it does not read: {bytes} bytes wait for it")]
    Unread {
        /// How many.
        bytes: usize,
    },
    /// The kernel does not pass the descriptors of a packet, which was not sent: too many are on their way, or one is of a
    /// kind that it passes to nobody. The lane has not ended.
    #[error("its descriptors cannot be sent: error {0} of the system")]
    Descriptors(i32),
    /// Another error of the system.
    #[error("error {0} of the system")]
    Os(i32),
}

impl From<Errno> for LaneEnd {
    fn from(error: Errno) -> Self {
        match error {
            Errno::PIPE | Errno::CONNRESET | Errno::NOTCONN => Self::Closed,
            other => Self::Os(other.raw_os_error()),
        }
    }
}

/// A control lane. Never waits. `D` holds a descriptor that is sent, and closes it.
#[derive(Debug)]
pub struct ControlLane<S, D = OwnedFd> {
    socket: S,
    unsent: VecDeque<(Vec<u8>, Vec<D>)>,
    unsent_bytes: usize,
    unsent_descriptors: usize,
    unsent_bytes_max: usize,
    buffer: Vec<u8>,
}

impl<S: AsFd> ControlLane<S> {
    /// The lane on a SEQPACKET socket.
    pub const fn new(socket: S) -> Self {
        Self::with_holders(socket)
    }

    /// The next packet with its descriptors, `None` of these if this process could not take them; `None` if nothing has
    /// come.
    ///
    /// # Errors
    /// [`LaneEnd`].
    #[expect(clippy::type_complexity, reason = "a packet, and perhaps its descriptors")]
    pub fn receive(&mut self) -> Result<Option<(Packet, Option<Vec<OwnedFd>>)>, LaneEnd> {
        match self.receive_any()? {
            None => Ok(None),
            Some(Any { packet, descriptors, is_whole }) => {
                Ok(Some((packet?, is_whole.then_some(descriptors))))
            }
        }
    }
}

/// What has come in a control lane.
#[derive(Debug)]
pub struct Any {
    /// A packet, or what is none.
    pub packet: Result<Packet, PacketError>,
    /// Its descriptors, or those of them that this process could open.
    pub descriptors: Vec<OwnedFd>,
    /// Whether all are there.
    pub is_whole: bool,
}

impl<S: AsFd, D: AsFd> ControlLane<S, D> {
    /// The lane on a SEQPACKET socket, with descriptors in what the caller chooses.
    pub const fn with_holders(socket: S) -> Self {
        Self {
            socket,
            unsent: VecDeque::new(),
            unsent_bytes: 0,
            unsent_descriptors: 0,
            unsent_bytes_max: UNSENT_BYTES_MAX,
            buffer: Vec::new(),
        }
    }

    /// Sets how many bytes of packets may wait for the neighbour, at most [`UNSENT_BYTES_MAX`].
    #[must_use]
    pub fn at_most(mut self, bytes: usize) -> Self {
        self.unsent_bytes_max = bytes.min(UNSENT_BYTES_MAX);
        self
    }

    /// The socket.
    pub const fn socket(&self) -> &S {
        &self.socket
    }

    /// The socket, to change what its owner knows of it.
    pub const fn socket_mut(&mut self) -> &mut S {
        &mut self.socket
    }

    /// The socket alone. What waits is not sent.
    pub fn into_socket(self) -> S {
        self.socket
    }

    /// Sends a packet, or keeps it until [`flush`](Self::flush) finds room.
    ///
    /// # Errors
    /// [`LaneEnd`].
    pub fn send(&mut self, packet: &Packet, descriptors: Vec<D>) -> Result<(), LaneEnd> {
        let (mut bytes, mut descriptors) = (packet.to_bytes(), descriptors);
        if self.unsent.is_empty() && send_or_lose(&self.socket, &mut bytes, &mut descriptors)? {
            return Ok(());
        }
        self.keep(bytes, descriptors)
    }

    /// Like [`send`](Self::send), but sends nothing if the kernel does not pass the descriptors now.
    ///
    /// # Errors
    /// [`LaneEnd`]; after [`LaneEnd::Descriptors`] the lane goes on.
    pub fn send_whole(&mut self, packet: &Packet, descriptors: Vec<D>) -> Result<(), LaneEnd> {
        let bytes = packet.to_bytes();
        if self.unsent.is_empty() && is_sent(send(&self.socket, &bytes, &descriptors))? {
            return Ok(());
        }
        self.keep(bytes, descriptors)
    }

    fn keep(&mut self, bytes: Vec<u8>, descriptors: Vec<D>) -> Result<(), LaneEnd> {
        self.unsent_bytes += bytes.len();
        self.unsent_descriptors += descriptors.len();
        if self.unsent_bytes > self.unsent_bytes_max {
            return Err(LaneEnd::Unread { bytes: self.unsent_bytes });
        }
        self.unsent.push_back((bytes, descriptors));
        Ok(())
    }

    /// Sends what waits, as far as there is room. True if nothing waits any more.
    ///
    /// # Errors
    /// [`LaneEnd`].
    pub fn flush(&mut self) -> Result<bool, LaneEnd> {
        while let Some((bytes, descriptors)) = self.unsent.front_mut() {
            let (length, count) = (bytes.len(), descriptors.len());
            let is_sent = send_or_lose(&self.socket, bytes, descriptors)?;
            self.unsent_descriptors -= count - descriptors.len();
            if !is_sent {
                return Ok(false);
            }
            self.unsent_bytes -= length;
            self.unsent_descriptors -= descriptors.len();
            self.unsent.pop_front();
        }
        // A queue that was long once would keep its memory.
        if self.unsent.capacity() > UNSENT_KEPT {
            self.unsent = VecDeque::new();
        }
        Ok(true)
    }

    /// Bytes that wait for room.
    pub const fn unsent_bytes(&self) -> usize {
        self.unsent_bytes
    }

    /// Descriptors that wait for room.
    pub const fn unsent_descriptors(&self) -> usize {
        self.unsent_descriptors
    }

    /// Whether something waits for room.
    pub fn has_unsent(&self) -> bool {
        !self.unsent.is_empty()
    }

    /// The next packet with its descriptors, also if it is none; `None` if nothing has come.
    ///
    /// # Errors
    /// [`LaneEnd`].
    pub fn receive_any(&mut self) -> Result<Option<Any>, LaneEnd> {
        // One byte more shows which packets are too long.
        self.buffer.resize(PACKET_BYTES_MAX + 1, 0);
        match receive(&self.socket, &mut self.buffer)? {
            None => Ok(None),
            Some(packet::Packet { bytes, descriptors, is_whole }) => {
                let bytes = self.buffer.get(..bytes).unwrap_or_default();
                Ok(Some(Any { packet: Packet::parse(bytes), descriptors, is_whole }))
            }
        }
    }
}

fn is_sent(sent: Result<(), LaneEnd>) -> Result<bool, LaneEnd> {
    match sent {
        Err(LaneEnd::Os(errno)) if is_no_room(errno) => Ok(false),
        sent => sent.map(|()| true),
    }
}

fn is_no_room(errno: i32) -> bool {
    [Errno::AGAIN, Errno::NOBUFS].contains(&Errno::from_raw_os_error(errno))
}

fn send(socket: impl AsFd, bytes: &[u8], descriptors: &[impl AsFd]) -> Result<(), LaneEnd> {
    let descriptors = descriptors.iter().map(AsFd::as_fd).collect::<Vec<_>>();
    let sent = packet::send(socket, &[IoSlice::new(bytes)], &descriptors);
    sent.map_err(|error| match error.into() {
        LaneEnd::Os(errno) if !descriptors.is_empty() && !is_no_room(errno) => {
            LaneEnd::Descriptors(errno)
        }
        end => end,
    })
}

/// Sends a packet. If the kernel does not pass its descriptors, the packet says that they are lost.
fn send_or_lose(
    socket: impl AsFd,
    bytes: &mut Vec<u8>,
    descriptors: &mut Vec<impl AsFd>,
) -> Result<bool, LaneEnd> {
    match is_sent(send(&socket, bytes, descriptors)) {
        Err(LaneEnd::Descriptors(_)) => {
            if let Ok(Packet::Capabilities { to, notes, .. }) = Packet::parse(bytes) {
                let lost = Packet::Capabilities { to, is_lost: true, notes }.to_bytes();
                // A byte of it has changed.
                if lost.len() == bytes.len() {
                    *bytes = lost;
                }
            }
            descriptors.clear();
            is_sent(send(socket, bytes, descriptors))
        }
        sent => sent,
    }
}

fn receive(socket: impl AsFd, buffer: &mut [u8]) -> Result<Option<packet::Packet>, LaneEnd> {
    match packet::receive(socket, buffer) {
        Ok(received) => Ok(Some(received)),
        Err(SocketError::NotNow) => Ok(None),
        Err(SocketError::Closed) => Err(LaneEnd::Closed),
        Err(SocketError::Os(errno)) => Err(LaneEnd::Os(errno)),
    }
}

/// Waits until a socket can be read or written, or is closed. False if that did not happen in time.
pub fn wait(socket: impl AsFd, flags: PollFlags, until: Instant) -> bool {
    packet::wait(socket, flags, Some(until)).unwrap_or(false)
}

/// The longest packet of a data lane.
pub const DATA_BYTES_MAX: usize = DATA_HEADER_BYTES + PAYLOAD_BYTES_MAX;

/// Sends a frame in a data lane that is a socket. False if there is no room now.
///
/// # Errors
/// [`LaneEnd`].
pub fn send_frame(
    socket: impl AsFd,
    label: Label,
    hop: Hop,
    payload: &[u8],
) -> Result<bool, LaneEnd> {
    let header = data_header(label, hop);
    let parts = [IoSlice::new(&header), IoSlice::new(payload)];
    is_sent(packet::send(socket, &parts, &[]).map_err(LaneEnd::from))
}

/// Receives a packet of a data lane, and returns its length; `None` if nothing has come. `strays` gets descriptors, which
/// do not belong there.
///
/// # Errors
/// [`LaneEnd`]; a packet that is too long ends the lane.
pub fn receive_frame(
    socket: impl AsFd,
    buffer: &mut [u8; DATA_BYTES_MAX + 1],
    strays: &mut Vec<OwnedFd>,
) -> Result<Option<usize>, LaneEnd> {
    let Some(packet::Packet { bytes: length, descriptors, .. }) = receive(socket, buffer)? else {
        return Ok(None);
    };
    strays.extend(descriptors);
    match length > DATA_BYTES_MAX {
        true => Err(PacketError::Long { found: length }.into()),
        false => Ok(Some(length)),
    }
}
