//! Moves messages between two processes by any mechanism, for studies and tests.
//!
//! The two processes have a socket between them. Over it they introduce themselves ([`introduce`]), and send each
//! other the descriptions of their memory and the end of each copy; this takes the place of the paper's barrier.
//!
//! Source: the benchmark of Buntinas and others, III-A.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use corewire_layout::endpoint::EndpointSizes;
use corewire_os::OsError;
use corewire_os::fork::Descriptor;
use corewire_os::memory::{MemoryOptions, Segment, SegmentError};
use corewire_ring::Trusted;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, IoSlice, IoSliceMut};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};

use crate::mechanisms::link::{LinkMemory, PairLink};
use crate::mechanisms::mechanism::{Mechanism, Peer};
use crate::mechanisms::outcome::{CopyError, Step};
use crate::mechanisms::piece::{DESCRIPTION_BYTES_MAX, Description, Piece};

/// Why a message was not moved.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum DriverError {
    /// This side's copy has failed.
    #[error(transparent)]
    Copy(#[from] CopyError),
    /// The other side's copy has failed.
    #[error("the other side has failed: {0}")]
    OtherSide(String),
    /// The socket, or the peer's memory.
    #[error(transparent)]
    Os(#[from] OsError),
    /// The peer's memory is refused.
    #[error(transparent)]
    Segment(#[from] SegmentError),
    /// The peer has sent something else.
    #[error("{found} bytes came where {due} was due")]
    Unexpected {
        /// What was due.
        due: &'static str,
        /// Length of the message that came.
        found: usize,
    },
}

/// A socket between two processes that carries descriptions, one in a packet.
#[derive(Debug)]
pub struct Courier {
    socket: OwnedFd,
}

const MEMORY: u8 = 1;
const DONE: u8 = 2;
const FAILED: u8 = 3;
const PACKET_BYTES_MAX: usize = 1 + DESCRIPTION_BYTES_MAX;

impl From<OwnedFd> for Courier {
    fn from(socket: OwnedFd) -> Self {
        Self { socket }
    }
}

impl Courier {
    /// Both ends of a new socket (`SOCK_SEQPACKET`). One is for a child process.
    ///
    /// # Errors
    /// [`OsError`] if no descriptor is left.
    pub fn pair() -> Result<(Self, OwnedFd), OsError> {
        let (near, far) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
                .map_err(|errno| OsError::new("make a pair of sockets", errno))?;
        Ok((Self { socket: near }, far))
    }

    /// Sends one packet, with a descriptor or without. Waits for room.
    ///
    /// # Errors
    /// [`OsError`], for example `EPIPE` if the peer has gone.
    pub fn give(&self, bytes: &[u8], descriptors: &[&dyn AsFd]) -> Result<(), OsError> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        let rights: Vec<_> = descriptors.iter().map(|descriptor| descriptor.as_fd()).collect();
        if !rights.is_empty() {
            ancillary.push(SendAncillaryMessage::ScmRights(&rights));
        }
        let parts = [IoSlice::new(bytes)];
        let sent = rustix::io::retry_on_intr(|| {
            sendmsg(&self.socket, &parts, &mut ancillary, SendFlags::NOSIGNAL)
        });
        sent.map(drop).map_err(|errno| OsError::new("send a description", errno))
    }

    /// The next packet, or `None` if none has come. Takes no descriptor but the first two.
    ///
    /// # Errors
    /// [`OsError`]: `ECONNRESET` if the peer has gone.
    #[expect(clippy::type_complexity, reason = "a packet")]
    pub fn try_take(&self) -> Result<Option<(Vec<u8>, Vec<Descriptor>)>, OsError> {
        let mut bytes = vec![0; PACKET_BYTES_MAX];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
        let mut parts = [IoSliceMut::new(&mut bytes)];
        let mut receive = || {
            rustix::io::retry_on_intr(|| recvmsg(&self.socket, &mut parts, &mut ancillary, flags))
        };
        let found = match receive() {
            // The peer closed before it had read everything. The kernel says so once; what the peer sent before follows.
            Err(Errno::CONNRESET) => receive(),
            other => other,
        };
        let count = match found {
            Ok(found) => found.bytes,
            Err(Errno::AGAIN) => return Ok(None),
            Err(errno) => return Err(OsError::new("take a description", errno)),
        };
        let mut descriptors = Vec::new();
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = message {
                descriptors.extend(rights.map(Descriptor::from));
            }
        }
        if count == 0 {
            return Err(OsError::new("take a description", Errno::CONNRESET));
        }
        bytes.truncate(count);
        Ok(Some((bytes, descriptors)))
    }

    /// As [`Courier::try_take`], but waits for a packet or the peer's end.
    ///
    /// # Errors
    /// As [`Courier::try_take`].
    pub fn take(&self) -> Result<(Vec<u8>, Vec<Descriptor>), OsError> {
        loop {
            if let Some(packet) = self.try_take()? {
                return Ok(packet);
            }
            let mut wanted = [PollFd::new(&self.socket, PollFlags::IN)];
            let limit: Option<&Timespec> = None;
            rustix::io::retry_on_intr(|| poll(&mut wanted, limit))
                .map_err(|errno| OsError::new("wait for a description", errno))?;
        }
    }
}

/// Introduces this process and the one at the other end of `courier` to each other, and gives each an end of a pair of
/// rings with so many cells of so many bytes. Both must call it, with the same sizes. `trusted` says that the peer may
/// crash, but keeps to the pair's protocol.
///
/// # Errors
/// [`DriverError`].
pub fn introduce(
    courier: &Courier,
    cells: u64,
    cell_bytes: u64,
    trusted: Trusted,
) -> Result<(Peer, PairLink), DriverError> {
    let what = "make a pair of rings";
    let sizes: EndpointSizes = PairLink::sizes(cells, cell_bytes)
        .map_err(|error| OsError::new(format!("{what}: {error}"), Errno::INVAL))?;
    let (segment, region) = Segment::create(sizes.segment_bytes(), MemoryOptions::default())?;
    let (page, page_region) = Segment::create_writable_by_all(LinkMemory::PAGE_BYTES as u64)?;
    let own = LinkMemory { segment: region, page: page_region };
    courier.give(&std::process::id().to_le_bytes(), &[&segment, &page])?;

    let (packet, descriptors) = courier.take()?;
    let due = "a process number with two descriptors";
    let unexpected = DriverError::Unexpected { due, found: packet.len() };
    let (Ok(pid), Ok([segment, page])) =
        (packet.try_into(), <[Descriptor; 2]>::try_from(descriptors))
    else {
        return Err(unexpected);
    };
    let (pid, page_bytes) = (u32::from_le_bytes(pid), LinkMemory::PAGE_BYTES as u64);
    let segment = Segment::adopt(segment, false)?.map(sizes.segment_bytes())?;
    let page = Segment::adopt(page, true)?.map_writable(page_bytes)?;
    let life = Arc::new(corewire_os::process::life_of(pid)?);
    let link = PairLink::new(&own, &LinkMemory { segment, page }, sizes, trusted);
    Ok((Peer::new(pid, life), link))
}

/// Moves one message between `piece` and the piece with which the other side calls this. Returns its length in bytes. The
/// bytes are there, and neither side uses the other one's memory any more.
///
/// Waits for the other side, with this core busy. Ends with an error if the peer's process ends.
///
/// # Errors
/// [`DriverError`].
///
/// # Example
/// ```
/// use std::thread;
///
/// use corewire_ring::message::Memory;
/// use corewire_transfer::mechanisms::driver::{Courier, move_message};
/// use corewire_transfer::mechanisms::{KernelGet, Mechanism, Peer, Role};
///
/// let (near, far) = Courier::pair()?;
/// let sender = thread::spawn(move || {
///     let mut get = KernelGet::initialise(Peer::own().unwrap(), Role::Source, ()).unwrap();
///     let mut piece = get.register(Memory::from(vec![7; 5000])).unwrap();
///     move_message(&mut get, &Peer::own().unwrap(), &mut piece, &near).unwrap();
/// });
/// let peer = Peer::own()?;
/// let mut get = KernelGet::initialise(peer.clone(), Role::Target, ())?;
/// let mut piece = get.register(Memory::from(vec![0; 5000]))?;
/// assert_eq!(move_message(&mut get, &peer, &mut piece, &far.into())?, 5000);
/// assert_eq!(get.deregister(piece)?.into_vec(), [7; 5000]);
/// # sender.join().map_err(|_| "panicked")?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn move_message<M: Mechanism>(
    mechanism: &mut M,
    peer: &Peer,
    piece: &mut Piece<M::Memory>,
    courier: &Courier,
) -> Result<u64, DriverError> {
    let own = piece.description();
    let mut packet = vec![MEMORY];
    packet.extend(&own.bytes);
    match &own.descriptor {
        Some(descriptor) => courier.give(&packet, &[descriptor])?,
        None => courier.give(&packet, &[])?,
    }
    let (mut packet, mut descriptors) = courier.take()?;
    if packet[0] != MEMORY {
        return Err(error_of(&packet, "a description"));
    }
    packet.remove(0);
    let descriptor = descriptors.pop().map(|it| Arc::new(it) as Arc<dyn AsFd + Send + Sync>);
    let other = Description { bytes: packet, descriptor };

    let copied = copy(mechanism, peer, piece, &other, courier);
    match &copied {
        Ok(_) => {
            courier.give(&[DONE], &[]).map_err(|error| reason(courier, error))?;
        }
        // The other side may have failed first, and gone.
        Err(DriverError::Copy(error)) => {
            let mut packet = vec![FAILED];
            packet.extend(error.to_string().bytes());
            let _ = courier.give(&packet, &[]);
        }
        Err(_) => {}
    }
    let (bytes, is_told) = copied?;
    if !is_told {
        let (packet, _) = courier.take().map_err(|error| reason(courier, error))?;
        if packet[0] != DONE {
            return Err(error_of(&packet, "the end of a copy"));
        }
    }
    Ok(bytes)
}

/// Copies until this side has nothing more to do. Returns the length, and whether the other side has said the same.
fn copy<M: Mechanism>(
    mechanism: &mut M,
    peer: &Peer,
    piece: &mut Piece<M::Memory>,
    other: &Description,
    courier: &Courier,
) -> Result<(u64, bool), DriverError> {
    let mut waits = 0u32;
    let mut is_told = false;
    loop {
        let step = if piece.role() == M::LOCAL {
            mechanism.copy_local(piece, other)?
        } else {
            mechanism.copy_remote(piece, other)?
        };
        match step {
            Step::Done(bytes) => return Ok((bytes, is_told)),
            Step::More => waits = 0,
            Step::Wait => {
                waits += 1;
                std::thread::yield_now();
            }
        }
        // Each look is a system call or two.
        if waits > 0 && waits.is_multiple_of(LOOK_EVERY) {
            if peer.has_ended() {
                return Err(CopyError::PeerEnded.into());
            }
            match (is_told, courier.try_take().map_err(|error| reason(courier, error))?) {
                (false, Some((packet, _))) if packet[0] == DONE => is_told = true,
                (_, Some((packet, _))) => return Err(error_of(&packet, "nothing")),
                (_, None) => {}
            }
        }
    }
}

/// After so many calls that had to wait, the driver looks whether the other side has failed.
const LOOK_EVERY: u32 = 64;

/// Why the other side has gone, as this `error` of the socket says: it may have sent the reason before.
fn reason(courier: &Courier, error: OsError) -> DriverError {
    // A call may get the socket's error first, which comes once, and the packet then.
    let packets = (0..2).filter_map(|_| courier.try_take().ok().flatten());
    let failed = packets.map(|(packet, _)| packet).find(|packet| packet.first() == Some(&FAILED));
    failed.map_or(error.into(), |packet| error_of(&packet, "nothing"))
}

/// The error that the other side has sent instead of what was due.
fn error_of(packet: &[u8], due: &'static str) -> DriverError {
    match packet {
        [FAILED, text @ ..] => DriverError::OtherSide(String::from_utf8_lossy(text).into_owned()),
        _ => DriverError::Unexpected { due, found: packet.len() },
    }
}

corewire_layout::debug_is_text!(DriverError);
