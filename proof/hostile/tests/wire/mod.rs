//! Raw sockets and descriptors, a channel that must not be disturbed, and the census at the end.

#![allow(dead_code, reason = "each test uses what it needs")]

use std::fs::File;
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use corewire::{Domain, ReceiveError, Sender};
use corewire_layout::frame::Frame;
use corewire_layout::segment::ReceiverHeader;
use corewire_os::memory::{MemoryOptions, Segment};
use corewire_ring::region::Region;
use rustix::fs::MemfdFlags;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, recvmsg, sendmsg,
};
use zerocopy::IntoBytes;

/// A separate runtime directory, removed at the end.
pub(crate) struct Directory(pub(crate) PathBuf);

impl Directory {
    pub(crate) fn new(test: &str) -> Self {
        let path = std::env::temp_dir().join(format!("cw-hostile-{test}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        Self(path)
    }

    /// The socket of the only process there.
    pub(crate) fn socket(&self) -> PathBuf {
        let entries = std::fs::read_dir(&self.0).unwrap().map(|entry| entry.unwrap().path());
        let is_socket =
            |path: &PathBuf| path.file_name().unwrap().as_encoded_bytes().starts_with(b"p.");
        entries.into_iter().find(is_socket).unwrap()
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

static PANICS: AtomicU64 = AtomicU64::new(0);

/// Makes these tests run one at a time, since they count what the process has. From here on panics
/// of any thread count.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            PANICS.fetch_add(1, Relaxed);
            before(info);
        }));
    });
    let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    PANICS.store(0, Relaxed);
    alone
}

/// Waits until `is_so` returns true. The limit only makes a failure end.
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let limit = Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(Instant::now() < limit, "it never came to this: {what}; {:?}", Census::take());
        thread::yield_now();
    }
}

/// What this process has: open descriptors, and maps of segments.
#[derive(Debug, PartialEq, Eq, Clone, Copy)]
pub(crate) struct Census {
    descriptors: usize,
    maps: usize,
}

impl Census {
    /// Takes the census once the control thread has nothing more to do.
    pub(crate) fn at_rest() -> Self {
        let mut quiet = 0;
        until("the control thread asleep", || {
            quiet = if control_thread_state() == Some('S') { quiet + 1 } else { 0 };
            quiet == 50
        });
        Self::take()
    }

    fn take() -> Self {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        Self {
            descriptors: std::fs::read_dir("/proc/self/fd").unwrap().count(),
            maps: maps.lines().filter(|line| line.contains("memfd:")).count(),
        }
    }

    /// Checks that everything has been released, that no thread has panicked, and that the control
    /// thread sleeps.
    pub(crate) fn is_back(self) {
        until("all descriptors and maps given back", || Self::take() == self);
        assert_eq!(Self::at_rest(), self);
        assert_eq!(PANICS.load(Relaxed), 0, "a thread has panicked");
    }
}

/// The state as the kernel reports it: `S` for asleep. `None` if there is no such thread.
fn control_thread_state() -> Option<char> {
    for task in std::fs::read_dir("/proc/self/task").unwrap() {
        let stat = std::fs::read_to_string(task.unwrap().path().join("stat")).unwrap_or_default();
        if let Some((_, rest)) = stat.split_once("(corewire) ") {
            return rest.chars().next();
        }
    }
    None
}

/// A channel with a reader that must get every message in order, whatever happens.
pub(crate) struct Live {
    pub(crate) domain: Domain,
    sender: Sender,
    reader: JoinHandle<u64>,
    sent: u64,
}

pub(crate) const CHANNEL: &str = "live";

impl Live {
    pub(crate) fn new(directory: &Directory) -> Self {
        let domain = Domain::open_at(&directory.0).unwrap();
        let sender = domain.sender(CHANNEL).receivers(8).create().unwrap();
        let mut receiver = domain.receiver(CHANNEL).join().unwrap();
        let reader = thread::spawn(move || {
            for number in 0u64.. {
                match receiver.receive() {
                    Ok(message) => assert_eq!(message[..], number.to_le_bytes()),
                    Err(ReceiveError::EndOfStream) => return number,
                    Err(error) => panic!("{error}"),
                }
            }
            unreachable!("the numbers end")
        });
        Self { domain, sender, reader, sent: 0 }
    }

    /// Sends one more message.
    pub(crate) fn send(&mut self) {
        self.sender.send(&self.sent.to_le_bytes()).unwrap();
        self.sent += 1;
    }

    pub(crate) fn receivers(&self) -> usize {
        self.sender.receivers()
    }

    /// Ends the channel, and checks that the reader got every message.
    pub(crate) fn finish(self) {
        drop(self.sender);
        assert_eq!(self.reader.join().unwrap(), self.sent);
    }
}

/// A raw blocking connection.
pub(crate) struct Raw(pub(crate) OwnedFd);

impl Raw {
    pub(crate) fn connect(path: &Path) -> Self {
        let socket = rustix::net::socket_with(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        );
        let socket = socket.unwrap();
        rustix::net::connect(&socket, &SocketAddrUnix::new(path).unwrap()).unwrap();
        Self(socket)
    }

    /// Sends a packet. Returns false if the other end is closed.
    pub(crate) fn send(&self, packet: &[u8], descriptors: &[BorrowedFd<'_>]) -> bool {
        let size = SendAncillaryMessage::ScmRights(descriptors).size();
        let mut space = vec![MaybeUninit::uninit(); size.max(1)];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() {
            control.push(SendAncillaryMessage::ScmRights(descriptors));
        }
        sendmsg(&self.0, &[IoSlice::new(packet)], &mut control, SendFlags::NOSIGNAL).is_ok()
    }

    pub(crate) fn say(&self, frame: &Frame, descriptors: &[BorrowedFd<'_>]) -> bool {
        self.send(&frame.to_bytes(), descriptors)
    }

    /// Receives the next frame. Returns `None` at the end of the connection.
    pub(crate) fn hear(&self) -> Option<(Frame, Vec<OwnedFd>)> {
        let mut packet = [0; 257];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(64))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut io = [IoSliceMut::new(&mut packet)];
        let received = recvmsg(&self.0, &mut io, &mut control, RecvFlags::CMSG_CLOEXEC).ok()?;
        let mut descriptors = Vec::new();
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = message {
                descriptors.extend(rights);
            }
        }
        let frame = Frame::parse(&packet[..received.bytes]).ok()?;
        Some((frame, descriptors))
    }
}

/// A valid receiver's segment.
pub(crate) fn page() -> (Segment, Region) {
    let (segment, region) = Segment::create(4096, MemoryOptions::default()).unwrap();
    region.copy_in(0, ReceiverHeader { pid: 1 }.to_raw().as_bytes());
    (segment, region)
}

/// A memfd of this size in bytes, with these seals.
pub(crate) fn memfd(bytes: u64, seals: rustix::fs::SealFlags) -> OwnedFd {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let memfd = rustix::fs::memfd_create("corewire", flags).unwrap();
    rustix::fs::ftruncate(&memfd, bytes).unwrap();
    rustix::fs::fcntl_add_seals(&memfd, seals).unwrap();
    memfd
}

/// Descriptors of all kinds except the right one.
pub(crate) fn odd_descriptors() -> Vec<(&'static str, OwnedFd)> {
    use rustix::fs::SealFlags;
    let sealed = SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW | SealFlags::FUTURE_WRITE;
    let (reader, writer) = rustix::pipe::pipe().unwrap();
    let (socket, _) = rustix::net::socketpair(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    )
    .unwrap();
    let epoll = rustix::event::epoll::create(rustix::event::epoll::CreateFlags::CLOEXEC).unwrap();
    rustix::event::epoll::add(
        &epoll,
        &reader,
        rustix::event::epoll::EventData::new_u64(0),
        rustix::event::epoll::EventFlags::IN,
    )
    .unwrap();
    vec![
        ("the reading end of a pipe", reader),
        ("the writing end of a pipe", writer),
        ("a socket without another end", socket),
        ("a directory", File::open("/").unwrap().into()),
        ("a file", File::open("/proc/self/exe").unwrap().into()),
        ("a file of the kernel's", File::open("/proc/self/status").unwrap().into()),
        ("a device", File::options().write(true).open("/dev/null").unwrap().into()),
        ("an endless device", File::open("/dev/zero").unwrap().into()),
        ("an epoll set", epoll),
        ("memory without seals", memfd(4096, SealFlags::empty())),
        ("memory that may shrink", memfd(4096, sealed.difference(SealFlags::SHRINK))),
        ("memory that may grow", memfd(4096, sealed.difference(SealFlags::GROW))),
        ("memory that may be sealed", memfd(4096, sealed.difference(SealFlags::SEAL))),
        ("memory that others may write", memfd(4096, sealed.difference(SealFlags::FUTURE_WRITE))),
        ("no memory", memfd(0, sealed)),
        ("memory of a byte less", memfd(4095, sealed)),
        ("memory of a byte more", memfd(4097, sealed)),
        ("more memory than there is", memfd(1 << 45, sealed)),
        ("memory without a header", memfd(4096, sealed)),
    ]
}

pub(crate) fn borrow(descriptors: &[OwnedFd]) -> Vec<BorrowedFd<'_>> {
    descriptors.iter().map(AsFd::as_fd).collect()
}
