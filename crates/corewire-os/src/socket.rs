//! Packets with descriptors, and the identity of the peer at the other end.

use std::fmt;
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

use corewire_layout::frame::{DESCRIPTORS_MAX, FRAME_BYTES, Frame, FrameError};
use corewire_ring::Trusted;
use rustix::io::{Errno, retry_on_intr};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
    recvmsg, sendmsg, socket_with, socketpair, sockopt,
};

use crate::event::wait_readable;
use crate::fork::{Descriptor, making};
use crate::process::{effective_uid, is_ending, life_of};
use crate::{Doing, OsError};

/// Maximum number of connections that wait to be accepted.
const BACKLOG: i32 = 1024;
/// `SO_PEERPIDFD`, Linux 6.5.
const SO_PEERPIDFD: libc::c_int = 77;
/// `SO_PEERGROUPS`, Linux 4.13.
const SO_PEERGROUPS: libc::c_int = 59;

/// Why no frame was received.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReceiveError {
    /// The other end is closed.
    #[error("the connection is closed")]
    Closed,
    /// Nothing has arrived yet, or nothing arrived before the deadline.
    #[error("nothing has arrived")]
    Nothing,
    /// The packet is not a valid frame.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// The packet had more descriptors than any frame has, or this process had no free descriptors.
    #[error("descriptors of a packet were lost: too many, or none free here")]
    Descriptors,
    /// A system call failed.
    #[error(transparent)]
    Os(#[from] OsError),
}

/// One end of a connection. Its methods never block, except where their documentation says so.
pub struct Socket(Descriptor);

/// A descriptor of the process at the other end of a connected socket. The kernel gives none before Linux 6.5, and none
/// for a process that was reaped just now.
fn life_at(socket: impl AsFd) -> std::io::Result<Descriptor> {
    Descriptor::make(|| {
        let mut found: libc::c_int = -1;
        let mut bytes = 4;
        // SAFETY: the option is an int, and `bytes` is its size.
        let result = unsafe {
            libc::getsockopt(
                socket.as_fd().as_raw_fd(),
                libc::SOL_SOCKET,
                SO_PEERPIDFD,
                (&raw mut found).cast(),
                &raw mut bytes,
            )
        };
        if result != 0 {
            return Err(std::io::Error::last_os_error());
        }
        // SAFETY: a new descriptor that the kernel created for this call.
        Ok(unsafe { OwnedFd::from_raw_fd(found) })
    })
}

/// Has the process at the other end of a connected socket ended, or is it ending? If not, a socket that is closed was
/// closed by a process that lives on. `pid` is the process's number, as the kernel has reported it. Where the kernel does
/// not show whether a process is ending, waits for up to `limit` for its end. False if the kernel does not say.
#[must_use]
pub fn is_peer_ending(socket: impl AsFd, pid: u32, limit: Duration) -> bool {
    let life = match life_at(&socket) {
        Ok(life) => Ok(life),
        // Before Linux 6.5.
        Err(error) if error.raw_os_error() == Some(libc::ENOPROTOOPT) && pid == 0 => return false,
        Err(error) if error.raw_os_error() == Some(libc::ENOPROTOOPT) => {
            life_of(pid).map_err(|error| error.errno)
        }
        Err(error) => Err(error.raw_os_error().unwrap_or(0)),
    };
    match life {
        Ok(life) => is_ending(life, pid, limit),
        // It was reaped.
        Err(errno) => matches!(errno, libc::ESRCH | libc::EINVAL),
    }
}

/// The process at the other end, as the kernel reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    /// Its effective user when the connection was made.
    pub uid: u32,
    /// Its effective (primary) group at that time.
    pub gid: u32,
    /// Its process number at that time, for display; 0 if the process is in another container.
    pub pid: u32,
}

impl Peer {
    /// The proof that the peer runs as the same user as this process. Such a peer may crash at any
    /// instruction, but it gains nothing by lying, because it has all of this user's rights anyway.
    /// `None` for another user.
    #[must_use]
    pub fn trusted(&self) -> Option<Trusted> {
        // SAFETY: level 2 of docs/threats.md: a process of the same user, which runs corewire. It
        // could as well attach a debugger to this process.
        (self.uid == effective_uid()).then(|| unsafe { Trusted::assume() })
    }
}

impl Socket {
    /// Connects to the socket at `path`, which must lie in a checked directory. If the other side's
    /// queue of connections is full, waits for at most `limit`, but at least a millisecond.
    ///
    /// # Errors
    /// [`OsError`]: `ECONNREFUSED` or `ENOENT` if no process listens there, `EAGAIN` after `limit`.
    pub fn connect(path: &str, limit: Duration) -> Result<Self, OsError> {
        let what = "connect to a process";
        let socket = new_socket(SocketFlags::CLOEXEC)?;
        // To the kernel 0 means "no limit".
        let limit = Some(limit.max(Duration::from_millis(1)));
        sockopt::set_socket_timeout(&socket, sockopt::Timeout::Send, limit).doing(what)?;
        Self::connected(socket, path)
    }

    /// As [`Socket::connect`], but never waits.
    ///
    /// # Errors
    /// As for [`Socket::connect`], and `EAGAIN` where that call would wait.
    pub fn connect_now(path: &str) -> Result<Self, OsError> {
        Self::connected(new_socket(SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)?, path)
    }

    fn connected(socket: Descriptor, path: &str) -> Result<Self, OsError> {
        let what = "connect to a process";
        let address = SocketAddrUnix::new(path).doing(what)?;
        // An interrupted connect has not begun. (This differs for other kinds of sockets.)
        retry_on_intr(|| rustix::net::connect(&socket, &address)).doing(what)?;
        rustix::io::ioctl_fionbio(&socket, true).doing(what)?;
        Ok(Self(socket))
    }

    /// Asks the kernel for the process at the other end.
    ///
    /// # Errors
    /// [`OsError`] if the kernel refuses.
    pub fn peer(&self) -> Result<Peer, OsError> {
        // Not with rustix, whose process numbers are never 0: the number of a process in another
        // container is 0.
        let mut found = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
        let mut bytes = libc::socklen_t::try_from(size_of::<libc::ucred>()).unwrap_or(0);
        // SAFETY: the option is a `ucred`, and `bytes` is its size.
        let result = unsafe {
            libc::getsockopt(
                self.0.as_fd().as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_PEERCRED,
                (&raw mut found).cast(),
                &raw mut bytes,
            )
        };
        if result != 0 {
            return Err(std::io::Error::last_os_error()).doing("ask who the peer is");
        }
        Ok(Peer { uid: found.uid, gid: found.gid, pid: found.pid.unsigned_abs() })
    }

    /// The supplementary groups of the peer at the time when the connection was made.
    ///
    /// # Errors
    /// [`OsError`] before Linux 4.13, or where a filter refuses the call.
    pub fn peer_groups(&self) -> Result<Vec<u32>, OsError> {
        let mut groups = vec![0u32; 64];
        loop {
            let room = size_of_val(&groups[..]);
            let mut bytes = libc::socklen_t::try_from(room).unwrap_or(0);
            // SAFETY: the option is an array of numbers, and `bytes` is its size.
            let result = unsafe {
                libc::getsockopt(
                    self.0.as_fd().as_raw_fd(),
                    libc::SOL_SOCKET,
                    SO_PEERGROUPS,
                    groups.as_mut_ptr().cast(),
                    &raw mut bytes,
                )
            };
            let count = usize::try_from(bytes).unwrap_or(0) / size_of::<u32>();
            if result == 0 {
                groups.truncate(count);
                return Ok(groups);
            }
            let error = std::io::Error::last_os_error();
            // There are more groups than fit, and the kernel has returned their number.
            if error.raw_os_error() != Some(libc::ERANGE) || count <= groups.len() {
                return Err(error).doing("ask for the peer's groups");
            }
            groups.resize(count, 0);
        }
    }

    /// A descriptor that becomes readable when the peer's process ends. The kernel gives none
    /// before Linux 6.5, and none for a process that was reaped just now. Then the result is
    /// `sent`, the one that the peer sent.
    ///
    /// # Errors
    /// [`OsError`] if there is neither.
    pub fn peer_life(&self, sent: Option<Descriptor>) -> Result<Descriptor, OsError> {
        match (life_at(&self.0), sent) {
            (Ok(life), _) => Ok(life),
            (Err(_), Some(sent)) => Ok(sent),
            (Err(error), None) => Err(error).doing("watch the peer's process"),
        }
    }

    /// True if the kernel says that the peer's process has ended. A child that it forked can hold its
    /// end of the socket for a moment longer, until the child has closed what it inherited.
    #[must_use]
    pub fn is_peer_gone(&self) -> bool {
        if let Ok(life) = self.peer_life(None) {
            return wait_readable(&[life.as_fd()], Some(Instant::now())).is_ok_and(|it| it[0]);
        }
        // Before Linux 6.5, or the process was reaped. A process of another container has number 0.
        let number = self.peer().ok().and_then(|peer| i32::try_from(peer.pid).ok());
        let number = number.and_then(rustix::process::Pid::from_raw);
        number.is_some_and(|it| rustix::process::test_kill_process(it) == Err(Errno::SRCH))
    }

    /// Sends a frame with descriptors. Never blocks.
    ///
    /// # Errors
    /// [`OsError`]: `EAGAIN` if the socket is full because the peer reads too slowly, `EPIPE` if the
    /// peer has closed the connection.
    pub fn send(&self, frame: &Frame, descriptors: &[BorrowedFd<'_>]) -> Result<(), OsError> {
        if !self.0.is_ours() {
            return Err(OsError::new("send a frame in a forked child", Errno::BADF));
        }
        let bytes = frame.to_bytes();
        let mut space =
            vec![MaybeUninit::uninit(); SendAncillaryMessage::ScmRights(descriptors).size().max(1)];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() {
            control.push(SendAncillaryMessage::ScmRights(descriptors));
        }
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        let io = [IoSlice::new(&bytes)];
        retry_on_intr(|| sendmsg(&self.0, &io, &mut control, flags)).doing("send a frame").map(drop)
    }

    /// Receives the next frame, if one has arrived. Never blocks.
    ///
    /// # Errors
    /// [`ReceiveError`]. After any error except `Nothing` the connection should be closed.
    pub fn receive(&self) -> Result<(Frame, Vec<Descriptor>), ReceiveError> {
        if !self.0.is_ours() {
            return Err(OsError::new("receive a frame in a forked child", Errno::BADF).into());
        }
        let mut bytes = [0u8; FRAME_BYTES + 1];
        let mut space =
            [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX + 3))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
        let (received, descriptors) = making(|keeper| {
            let mut receive = || {
                retry_on_intr(|| {
                    recvmsg(&self.0, &mut [IoSliceMut::new(&mut bytes)], &mut control, flags)
                })
            };
            let received = match receive() {
                // The peer closed before it had read everything. The kernel reports this once. Frames
                // that the peer sent before, such as a refusal, can be received afterwards.
                Err(Errno::CONNRESET) => receive(),
                other => other,
            };
            let mut descriptors = Vec::new();
            for message in control.drain() {
                if let RecvAncillaryMessage::ScmRights(rights) = message {
                    descriptors.extend(rights.map(|descriptor| keeper.keep(descriptor)));
                }
            }
            (received, descriptors)
        });
        let received = match received {
            Err(Errno::AGAIN) => return Err(ReceiveError::Nothing),
            Err(Errno::CONNRESET) => return Err(ReceiveError::Closed),
            other => other.doing("receive a frame")?,
        };
        if received.flags.contains(ReturnFlags::CTRUNC) {
            return Err(ReceiveError::Descriptors);
        }
        if received.bytes == 0 {
            return Err(ReceiveError::Closed);
        }
        Ok((Frame::parse(&bytes[..received.bytes])?, descriptors))
    }

    /// A second descriptor of this end of the connection.
    ///
    /// # Errors
    /// [`OsError`] if no descriptor is left.
    pub fn duplicate(&self) -> Result<Self, OsError> {
        if !self.0.is_ours() {
            return Err(OsError::new("duplicate a socket in a forked child", Errno::BADF));
        }
        let duplicate = || rustix::io::fcntl_dupfd_cloexec(&self.0, 0);
        Descriptor::make(duplicate).doing("duplicate a socket").map(Self)
    }

    /// Removes the limit that [`Socket::connect`] has set on the time of calls that send, for code that makes the
    /// socket blocking.
    ///
    /// # Errors
    /// [`OsError`] if the kernel refuses.
    pub fn remove_limit(&self) -> Result<(), OsError> {
        let what = "remove a socket's time limit";
        sockopt::set_socket_timeout(&self.0, sockopt::Timeout::Send, None).doing(what)
    }

    /// Gives the descriptor to code that does not follow this crate's rules for forks: a child that is forked
    /// afterwards keeps its copy. In a forked child, the result is a socket whose other end is closed, because this
    /// one is closed there. That call waits while the child has no free descriptor.
    #[must_use]
    pub fn into_fd(self) -> OwnedFd {
        self.0.into_fd().unwrap_or_else(hung_up)
    }

    /// Ends the connection for both sides, even if another descriptor of this end is open.
    pub fn hang_up(&self) {
        if self.0.is_ours() {
            // The call fails only if the peer has already closed the connection.
            let _ = rustix::net::shutdown(&self.0, rustix::net::Shutdown::Both);
        }
    }

    /// Waits for the next frame until `deadline`, or without end.
    ///
    /// # Errors
    /// [`ReceiveError`]; `Nothing` if the deadline passed.
    pub fn receive_by(
        &self,
        deadline: Option<Instant>,
    ) -> Result<(Frame, Vec<Descriptor>), ReceiveError> {
        loop {
            let readable = wait_readable(&[self.as_fd()], deadline)?;
            match self.receive() {
                Err(ReceiveError::Nothing) if readable == [true] => {}
                other => return other,
            }
        }
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl fmt::Debug for Socket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A listening socket.
#[derive(Debug)]
pub struct Listener(Descriptor);

impl Listener {
    /// Listens at `path`, which must not exist.
    ///
    /// # Errors
    /// [`OsError`] if `path` exists, or its directory does not.
    pub fn bind(path: &str) -> Result<Self, OsError> {
        let what = "listen for other processes";
        let socket = new_socket(SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)?;
        rustix::net::bind(&socket, &SocketAddrUnix::new(path).doing(what)?).doing(what)?;
        rustix::net::listen(&socket, BACKLOG).doing(what)?;
        Ok(Self(socket))
    }

    /// Accepts the next connection, if one waits. Never blocks.
    ///
    /// # Errors
    /// [`OsError`]: `EAGAIN` if none waits, `EMFILE` if no descriptor is left.
    pub fn accept(&self) -> Result<Socket, OsError> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let accept = || retry_on_intr(|| rustix::net::accept_with(&self.0, flags));
        Descriptor::make(accept).doing("accept").map(Socket)
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// A socket whose other end is closed.
fn hung_up() -> OwnedFd {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    loop {
        match socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None) {
            Ok((socket, _)) => return socket,
            // Another thread may close a descriptor.
            Err(_) => drop(wait_readable(&[], Some(Instant::now() + Duration::from_millis(1)))),
        }
    }
}

fn new_socket(flags: SocketFlags) -> Result<Descriptor, OsError> {
    let make = || socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
    Descriptor::make(make).doing("make a socket")
}
