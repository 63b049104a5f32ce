//! Where descriptors that neighbours have sent, and the sockets of neighbours, are closed: in a thread for each user. Of
//! what comes from other monitors it is known for which circuit it is: a thread for all circuits of a client's user closes
//! what clients have sent, and one for each service what services have.
//!
//! A close can take as long as somebody else likes: that of a socket which lingers, of a file whose file system is a
//! process or another machine, or of a socket in which such descriptors wait. The monitor's own thread must not wait for
//! it, and neither must the descriptors of another user.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::io::IoSliceMut;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use corewire::Connection;
use rustix::net::sockopt::set_socket_passcred;
use rustix::net::{RecvAncillaryBuffer, RecvFlags, ReturnFlags, Shutdown, recvmsg, shutdown};

/// How long a thread without work stays.
const IDLE: Duration = Duration::from_secs(1);
/// What may wait for one user's thread while more is read of that user.
const WAITING_MAX: usize = 256;
/// How long one close may take before the user's connections end.
const CLOSE_WITHIN: Duration = Duration::from_secs(10);

/// Whose descriptors are closed.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Whose {
    /// A user's who has a connection.
    User(u32),
    /// A user's who is behind another monitor.
    Client(u32),
    /// A service's that is behind another monitor.
    Service(Arc<str>),
    /// Another monitor's.
    Monitor,
}

/// The closers of everybody who has, or had, something to close.
#[derive(Debug)]
pub(crate) struct Closers {
    all: BTreeMap<Whose, Arc<Closer>>,
    wake: Arc<OwnedFd>,
}

impl Closers {
    /// `wake` is written when a user's thread that was awaited has caught up.
    pub(crate) const fn new(wake: Arc<OwnedFd>) -> Self {
        Self { all: BTreeMap::new(), wake }
    }

    pub(crate) fn of(&mut self, whose: Whose) -> Arc<Closer> {
        let wake = &self.wake;
        Arc::clone(self.all.entry(whose).or_insert_with(|| Closer::new(wake)))
    }

    /// Forgets those that nobody needs.
    pub(crate) fn tidy(&mut self) {
        self.all.retain(|_, closer| Arc::strong_count(closer) > 1);
    }
}

/// The closer of one user.
#[derive(Debug)]
pub(crate) struct Closer {
    state: Mutex<State>,
    changed: Condvar,
    wake: Arc<OwnedFd>,
}

#[derive(Debug, Default)]
struct State {
    queue: VecDeque<Box<dyn Close>>,
    has_thread: bool,
    /// The monitor waits until half of it has been closed.
    is_awaited: bool,
    /// When the close that is under way began.
    since: Option<Instant>,
}

/// What is closed when it is dropped.
trait Close: Send + fmt::Debug {}

impl Close for OwnedFd {}
impl Close for Connection {}

impl Closer {
    fn new(wake: &Arc<OwnedFd>) -> Arc<Self> {
        let (state, changed) = (Mutex::default(), Condvar::new());
        Arc::new(Self { state, changed, wake: Arc::clone(wake) })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether much waits to be closed.
    pub(crate) fn is_busy(&self) -> bool {
        self.lock().queue.len() > WAITING_MAX
    }

    /// The same; if so, the monitor is woken when that changes.
    fn is_behind(&self) -> bool {
        let mut state = self.lock();
        state.is_awaited |= state.queue.len() > WAITING_MAX;
        state.is_awaited
    }

    /// Whether a close takes too long.
    pub(crate) fn is_stuck(&self, now: Instant) -> bool {
        let since = self.lock().since;
        since.is_some_and(|since| now.saturating_duration_since(since) > CLOSE_WITHIN)
    }

    fn close(self: &Arc<Self>, what: Box<dyn Close>) {
        let mut state = self.lock();
        state.queue.push_back(what);
        if state.has_thread {
            self.changed.notify_one();
            return;
        }
        let closer = Arc::clone(self);
        let builder = std::thread::Builder::new().name("corewire-close".to_owned());
        state.has_thread = builder.stack_size(128 << 10).spawn(move || closer.run()).is_ok();
        if !state.has_thread {
            let all = std::mem::take(&mut state.queue);
            state.is_awaited = false;
            drop(state);
            drop(all);
        }
    }

    fn run(&self) {
        corewire_os::process::block_all_signals();
        let mut state = self.lock();
        loop {
            if let Some(what) = state.queue.pop_front() {
                state.since = Some(Instant::now());
                drop(state);
                drop(what);
                state = self.lock();
                state.since = None;
                if state.is_awaited && state.queue.len() <= WAITING_MAX / 2 {
                    state.is_awaited = false;
                    let _ = rustix::io::write(&self.wake, &1_u64.to_le_bytes());
                }
                continue;
            }
            let waited = self
                .changed
                .wait_timeout_while(state, IDLE, |state| state.queue.is_empty())
                .unwrap_or_else(PoisonError::into_inner);
            state = waited.0;
            if state.queue.is_empty() {
                state.has_thread = false;
                return;
            }
        }
    }
}

/// A descriptor that a neighbour has sent.
#[derive(Debug)]
pub(crate) struct Handed {
    /// Always there.
    descriptor: Option<OwnedFd>,
    closer: Arc<Closer>,
}

impl Handed {
    pub(crate) fn all(descriptors: Vec<OwnedFd>, closer: &Arc<Closer>) -> Vec<Self> {
        let one = |descriptor| Self { descriptor: Some(descriptor), closer: Arc::clone(closer) };
        descriptors.into_iter().map(one).collect()
    }

    /// Another one of the same file.
    pub(crate) fn copy(&self) -> Option<Self> {
        let descriptor = rustix::io::fcntl_dupfd_cloexec(self, 0).ok()?;
        Some(Self { descriptor: Some(descriptor), closer: Arc::clone(&self.closer) })
    }
}

impl AsFd for Handed {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.descriptor {
            Some(descriptor) => descriptor.as_fd(),
            None => unreachable!("it is there until this is dropped"),
        }
    }
}

impl Drop for Handed {
    fn drop(&mut self) {
        if let Some(descriptor) = self.descriptor.take() {
            self.closer.close(Box::new(descriptor));
        }
    }
}

/// A neighbour's socket. The neighbour sees its end at once.
#[derive(Debug)]
pub(crate) struct Socket {
    /// Always there.
    connection: Option<Connection>,
    closer: Arc<Closer>,
    is_of_monitor: bool,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) pid: u32,
}

impl Socket {
    pub(crate) fn new(connection: Connection, closer: Arc<Closer>) -> Self {
        let (uid, gid, pid) = (connection.uid(), connection.gid(), connection.pid());
        let connection = Some(connection);
        Self { connection, closer, is_of_monitor: false, uid, gid, pid }
    }

    /// It is that of another monitor, with such a closer.
    pub(crate) fn set_monitor(&mut self, closer: Arc<Closer>) {
        (self.closer, self.is_of_monitor) = (closer, true);
    }

    /// Whether it is that of another monitor.
    pub(crate) const fn is_of_monitor(&self) -> bool {
        self.is_of_monitor
    }

    pub(crate) const fn closer(&self) -> &Arc<Closer> {
        &self.closer
    }

    /// Whether nothing more must be read of it now: what was read must be closed first. Thousands share the socket of
    /// another monitor, which is always read.
    pub(crate) fn must_rest(&self) -> bool {
        !self.is_of_monitor && self.closer.is_behind()
    }
}

/// Whether a socket that takes nothing more has nothing that was not read.
fn is_empty(connection: &Connection) -> bool {
    // From now on any packet has something for which there is no room here, an empty one, too; the end has not.
    if set_socket_passcred(connection, true).is_err() {
        return false;
    }
    let (mut byte, mut none) = ([0], RecvAncillaryBuffer::default());
    let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
    let peeked = recvmsg(connection, &mut [IoSliceMut::new(&mut byte)], &mut none, flags);
    peeked.is_ok_and(|peeked| peeked.bytes == 0 && !peeked.flags.contains(ReturnFlags::CTRUNC))
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.connection {
            Some(connection) => connection.as_fd(),
            None => unreachable!("it is there until this is dropped"),
        }
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        if let Some(connection) = self.connection.take() {
            let _ = shutdown(&connection, Shutdown::Both);
            // Then nothing in it can take long to close.
            match is_empty(&connection) {
                true => drop(connection),
                false => self.closer.close(Box::new(connection)),
            }
        }
    }
}
