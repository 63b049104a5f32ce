//! Descriptors that others have sent, and that nobody may take: where they are closed.
//!
//! A close can take as long as somebody else likes: that of a socket which lingers, of a file whose file system is a
//! process or another machine, or of a socket in which such descriptors wait. So a descriptor that is dropped before the
//! program has taken it is closed by a thread for its sender, which ends when it has nothing more to close. What closes at
//! once is closed where it is dropped. A monitor has closers of its own, which also hold up what it reads.

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use corewire_os::fork::PerProcess;
use corewire_os::process::block_all_signals;
use rustix::fs::{FileType, fstat, fstatfs};

/// File systems whose files close at once: memory, ext2 to ext4, XFS, Btrfs, of the kernel's own files.
const LOCAL: [i64; 5] = [0x0102_1994, 0xef53, 0x5846_5342, 0x9123_683e, 0x9fa0];
/// The major number of `/dev/null` and the like.
const MEMORY_DEVICES: u32 = 1;
/// Descriptors of one sender that may wait while more of them come.
const WAITING_MAX: usize = 256;
/// A close that takes longer is not waited for.
const SLOW: Duration = Duration::from_millis(10);

/// Who has sent a descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Whose {
    /// This process itself: it is closed where it is dropped.
    Own,
    /// A client of this user's.
    User(u32),
    /// A service, or a process whose user is not known.
    Peer,
}

/// A descriptor that has been sent.
#[derive(Debug)]
pub struct Sent {
    descriptor: Option<OwnedFd>,
    from: Whose,
}

impl Sent {
    /// `descriptor`, which has come from there.
    #[must_use]
    pub const fn new(descriptor: OwnedFd, from: Whose) -> Self {
        Self { descriptor: Some(descriptor), from }
    }

    /// The descriptor, for the program: what it drops, it closes.
    #[must_use]
    pub fn take(mut self) -> OwnedFd {
        match self.descriptor.take() {
            Some(descriptor) => descriptor,
            None => unreachable!("it is there until this is dropped"),
        }
    }
}

impl AsFd for Sent {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.descriptor {
            Some(descriptor) => descriptor.as_fd(),
            None => unreachable!("it is there until this is dropped"),
        }
    }
}

impl Drop for Sent {
    fn drop(&mut self) {
        if let Some(descriptor) = self.descriptor.take()
            && self.from != Whose::Own
            && !closes_at_once(&descriptor)
        {
            close(descriptor, self.from);
        }
    }
}

/// How many descriptors that have come from there are still to be closed.
#[must_use]
pub fn closing_count(whose: Whose) -> usize {
    lock().get(&whose).map_or(0, |queue| queue.count)
}

/// What is to be closed, by who has sent it.
type Queues = BTreeMap<Whose, Queue>;

#[derive(Default)]
struct Queue {
    waiting: VecDeque<OwnedFd>,
    /// Those that wait, and the one that is being closed.
    count: usize,
    /// Since when that one is being closed.
    since: Option<Instant>,
    has_thread: bool,
}

static QUEUES: PerProcess<(Mutex<Queues>, Condvar)> = PerProcess::new();

fn lock() -> MutexGuard<'static, Queues> {
    QUEUES.get().0.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether a close of it waits for nobody.
fn closes_at_once(descriptor: &OwnedFd) -> bool {
    let Ok(status) = fstat(descriptor) else { return false };
    match FileType::from_raw_mode(status.st_mode) {
        FileType::Fifo => true,
        FileType::CharacterDevice => rustix::fs::major(status.st_rdev) == MEMORY_DEVICES,
        #[expect(clippy::unnecessary_cast, reason = "its type differs between processors")]
        FileType::RegularFile | FileType::Directory => {
            fstatfs(descriptor).is_ok_and(|it| LOCAL.contains(&(it.f_type as i64)))
        }
        _ => false,
    }
}

fn close(descriptor: OwnedFd, whose: Whose) {
    let mut queues = lock();
    let queue = queues.entry(whose).or_default();
    queue.waiting.push_back(descriptor);
    queue.count += 1;
    if !queue.has_thread {
        let builder = thread::Builder::new().name("corewire-close".to_owned()).stack_size(64 << 10);
        // Without a thread they wait for the next ones.
        queue.has_thread = builder.spawn(move || close_all(whose)).is_ok();
    }
    // One that sends more than can be closed meanwhile is waited for, but not one whose descriptors close slowly.
    let is_behind = |queue: &Queue| {
        let is_slow = queue.since.is_some_and(|since| since.elapsed() > SLOW);
        queue.has_thread && queue.count > WAITING_MAX && !is_slow
    };
    while queues.get(&whose).is_some_and(is_behind) {
        let waited = QUEUES.get().1.wait_timeout(queues, SLOW);
        queues = waited.unwrap_or_else(PoisonError::into_inner).0;
    }
}

fn close_all(whose: Whose) {
    block_all_signals();
    let mut closed = 0;
    loop {
        let mut queues = lock();
        let Some(queue) = queues.get_mut(&whose) else { return };
        queue.count -= closed;
        QUEUES.get().1.notify_all();
        let Some(descriptor) = queue.waiting.pop_front() else {
            queues.remove(&whose);
            return;
        };
        queue.since = Some(Instant::now());
        drop(queues);
        drop(descriptor);
        closed = 1;
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::{TcpListener, TcpStream};
    use std::os::unix::net::UnixStream;

    use super::*;

    // Keeps P201.
    #[test]
    fn what_takes_long_to_close_is_closed_elsewhere() {
        let from = Whose::User(1);
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut unread, _) = listener.accept().unwrap();
        rustix::net::sockopt::set_socket_linger(&socket, Some(Duration::from_secs(600))).unwrap();
        socket.set_nonblocking(true).unwrap();
        while std::io::Write::write(&mut &socket, &[7; 4096]).is_ok() {}
        drop(Sent::new(socket.into(), from));
        let (other, mut own) = UnixStream::pair().unwrap();
        drop(Sent::new(other.into(), from));
        // Both wait, another sender's does not.
        assert_eq!(closing_count(from), 2);
        let (third, mut its) = UnixStream::pair().unwrap();
        drop(Sent::new(third.into(), Whose::User(2)));
        assert_eq!(its.read(&mut [0]).unwrap(), 0);
        // The first close ends when everything has been read.
        let _ = std::io::copy(&mut unread, &mut std::io::sink());
        assert_eq!(own.read(&mut [0]).unwrap(), 0);
        while closing_count(from) > 0 {
            thread::yield_now();
        }
    }

    #[test]
    fn what_closes_at_once_or_is_taken_is_not_handed_over() {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(Sent::new(writer.into(), Whose::Peer));
        assert_eq!((&reader).read(&mut [0]).unwrap(), 0);
        let (one, mut other) = UnixStream::pair().unwrap();
        drop(Sent::new(one.into(), Whose::Peer).take());
        assert_eq!(other.read(&mut [0]).unwrap(), 0);
        let (one, mut other) = UnixStream::pair().unwrap();
        drop(Sent::new(one.into(), Whose::Own));
        assert_eq!(other.read(&mut [0]).unwrap(), 0);
    }
}
