//! Packets of any bytes, with descriptors, on a socket that keeps their limits (`SOCK_SEQPACKET`).

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, retry_on_intr};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

/// The largest number of descriptors that Linux passes in one packet (`SCM_MAX_FD`).
pub const DESCRIPTORS_MAX: usize = 253;

const ANCILLARY_BYTES: usize = rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX));

/// What a socket did not send or receive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SocketError {
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

/// Sends a packet with descriptors. Never waits.
///
/// # Errors
/// That of the system: `EAGAIN` if there is no room.
pub fn send(
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

/// A packet that was received into a buffer.
#[derive(Debug)]
pub struct Packet {
    /// How many bytes of the buffer it fills: all of them also if it was longer.
    pub bytes: usize,
    /// Its descriptors, or those of them that this process could open.
    pub descriptors: Vec<OwnedFd>,
    /// Whether all are there.
    pub is_whole: bool,
}

/// Receives a packet. Never waits.
///
/// # Errors
/// [`SocketError`].
pub fn receive(socket: impl AsFd, buffer: &mut [u8]) -> Result<Packet, SocketError> {
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
        bytes => Ok(Packet { bytes, descriptors, is_whole }),
    }
}

/// Waits until a socket can be read or written, or is closed. False if that did not happen in time.
///
/// # Errors
/// [`SocketError`].
pub fn wait(
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
