//! A domain: the processes that may find each other.

use std::collections::HashMap;
use std::fmt;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use corewire_layout::frame::{Frame, Reason};
use corewire_layout::name::{ChannelName, SocketName};
use corewire_os::OsError;
use corewire_os::directory::{ClaimError, RuntimeDirectory, default_path};
use corewire_os::event::{Bell, wait_readable};
use corewire_os::process;
use corewire_os::socket::{Listener, Socket};

use crate::control::builder::{ReceiverBuilder, SenderBuilder};
use crate::control::connection::Connection;
use crate::control::hub::{Handler, Hub, HubHandle, Token, lock};
use crate::control::observer::Observer;
use crate::control::owner::{EMFILE, Owner};
use crate::error::{JoinError, OpenError};

/// Connections that have not said yet what they want; more are closed at once.
const CONNECTIONS_MAX: usize = 4096;

/// A set of processes that may find each other: all that open the same runtime directory as the
/// same user. Cheap to clone; what is made from it keeps what it needs.
///
/// Opening a domain starts the process's control thread (all signals blocked, asleep unless
/// something changes) and raises the soft limit on descriptors to the hard one.
#[derive(Clone)]
pub struct Domain {
    pub(crate) inner: Arc<DomainInner>,
}

/// What the handles of a domain share.
pub(crate) struct DomainInner {
    this: Weak<Self>,
    pub(crate) directory: RuntimeDirectory,
    pub(crate) socket_name: SocketName,
    pub(crate) hub: Arc<HubHandle>,
    listener: Listener,
    state: Mutex<DomainState>,
}

#[derive(Default)]
struct DomainState {
    channels: HashMap<ChannelName, Weak<Owner>>,
    waiters: HashMap<u128, Waiter>,
    connections: HashMap<u64, Arc<Connection>>,
    last_connection: u64,
    /// Given up to have a descriptor for a refusal, when none is left.
    spare: Option<Bell>,
}

/// Somebody of this process who waits for a channel to appear.
struct Waiter {
    name: ChannelName,
    bell: Arc<Bell>,
    /// The owners that have invited it; they learn of its end when these close.
    invitations: Vec<Arc<Socket>>,
    /// A connection could not be served meanwhile, which may have been an invitation.
    failure: Option<OsError>,
}

impl Domain {
    /// Opens the default domain: the runtime directory `$COREWIRE_RUNTIME_DIR`, else
    /// `$XDG_RUNTIME_DIR/corewire`, else `/tmp/corewire-UID`; made if it is not there.
    ///
    /// # Errors
    /// [`OpenError`]: the directory belongs to another user or is open to others, or a call failed.
    pub fn open() -> Result<Self, OpenError> {
        Self::open_at(&default_path())
    }

    /// Opens the domain of the runtime directory at `path`.
    ///
    /// # Errors
    /// As for [`open`](Self::open).
    pub fn open_at(path: &Path) -> Result<Self, OpenError> {
        let _ = process::raise_descriptor_limit();
        let directory = RuntimeDirectory::open(path)?;
        directory.sweep()?;
        let hub = HubHandle::get()?;
        let (listener, socket_name) = directory.listen()?;
        let state = DomainState { spare: Bell::new().ok(), ..DomainState::default() };
        let state = Mutex::new(state);
        let inner = Arc::new_cyclic(|this| DomainInner {
            this: Weak::clone(this),
            directory,
            socket_name,
            hub,
            listener,
            state,
        });
        let handler: Weak<dyn Handler> = inner.this.clone();
        inner.hub().watch(&inner.listener, handler)?;
        Ok(Self { inner })
    }

    /// Begins to make channel `name`, with this process as its sender.
    pub fn sender(&self, name: &str) -> SenderBuilder {
        SenderBuilder::new(self, name)
    }

    /// Begins to join channel `name`.
    pub fn receiver(&self, name: &str) -> ReceiverBuilder {
        ReceiverBuilder::new(self, name)
    }

    /// The names of the channels that exist, in order. Those of dead processes are left out.
    ///
    /// # Errors
    /// [`OpenError::Os`] if the runtime directory or a file of it cannot be read, or if it cannot be
    /// said whether a process is alive.
    pub fn channels(&self) -> Result<Vec<ChannelName>, OpenError> {
        if self.inner.is_forked() {
            return Err(OpenError::Forked);
        }
        let directory = &self.inner.directory;
        let mut names = Vec::new();
        for name in directory.names()? {
            let record = match directory.look_up(&name) {
                Err(ClaimError::Os(error)) => return Err(error.into()),
                // What is not corewire's is no channel.
                found => found.ok().flatten(),
            };
            if let Some(record) = record
                && directory.is_alive(record.socket)?
            {
                names.push(name);
            }
        }
        Ok(names)
    }

    /// Looks at channel `name` without becoming a receiver: counters, cursors, sizes. Costs the
    /// channel nothing.
    ///
    /// # Errors
    /// As for joining.
    pub fn observe(&self, name: &str) -> Result<Observer, JoinError> {
        let name = ChannelName::new(name)?;
        Observer::open(&self.inner, &name)
    }

    /// Where the runtime directory is.
    #[must_use]
    pub fn runtime_directory(&self) -> &Path {
        self.inner.directory.path()
    }
}

impl fmt::Debug for Domain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl fmt::Debug for DomainInner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Domain").field("directory", &self.directory.path()).finish()
    }
}

impl DomainInner {
    pub(crate) fn hub(&self) -> &Arc<Hub> {
        self.hub.hub()
    }

    pub(crate) fn is_forked(&self) -> bool {
        self.hub.is_forked()
    }

    pub(crate) fn add_channel(&self, owner: &Arc<Owner>) {
        lock(&self.state).channels.insert(owner.name().clone(), Arc::downgrade(owner));
    }

    pub(crate) fn remove_channel(&self, name: &ChannelName) {
        lock(&self.state).channels.remove(name);
    }

    pub(crate) fn channel(&self, name: &ChannelName) -> Option<Arc<Owner>> {
        lock(&self.state).channels.get(name).and_then(Weak::upgrade)
    }

    /// Forgets a connection that is closed, or has become somebody's link.
    pub(crate) fn forget_connection(&self, id: u64) {
        let gone = lock(&self.state).connections.remove(&id);
        drop(gone);
    }

    pub(crate) fn add_waiter(&self, id: u128, name: &ChannelName, bell: &Arc<Bell>) {
        let bell = Arc::clone(bell);
        let waiter = Waiter { name: name.clone(), bell, invitations: Vec::new(), failure: None };
        lock(&self.state).waiters.insert(id, waiter);
    }

    pub(crate) fn remove_waiter(&self, id: u128) {
        let gone = lock(&self.state).waiters.remove(&id);
        drop(gone);
    }

    /// A connection could not be served. Whoever waits here may have been invited by it, and could
    /// miss the first messages.
    pub(crate) fn lost_connection(&self, error: &OsError) {
        for waiter in lock(&self.state).waiters.values_mut() {
            waiter.failure = Some(error.clone());
            waiter.bell.ring();
        }
    }

    /// Why an invitation of waiter `id` may be lost.
    pub(crate) fn failure_of(&self, id: u128) -> Option<OsError> {
        lock(&self.state).waiters.get(&id).and_then(|waiter| waiter.failure.clone())
    }

    /// A new owner invites one who waits here. If nobody does any more, the owner learns it from
    /// the connection, which then closes.
    pub(crate) fn invited(&self, name: &ChannelName, waiter: u128, socket: Arc<Socket>) {
        let mut state = lock(&self.state);
        if let Some(waiter) = state.waiters.get_mut(&waiter).filter(|waiter| waiter.name == *name) {
            waiter.invitations.push(socket);
            waiter.bell.ring();
        }
    }

    fn accept_all(&self) {
        loop {
            match self.listener.accept() {
                Ok(socket) => self.take_connection(socket),
                Err(error) if is_exhausted(&error) && self.refuse_one(&error) => {}
                Err(error) if error.errno == EAGAIN => return,
                // Somebody waits who cannot be let in now. The listener stays readable: without a
                // pause, this thread would do nothing but ask.
                Err(_) => {
                    let later = Instant::now() + Duration::from_millis(10);
                    let _ = wait_readable(&[], Some(later));
                    return;
                }
            }
        }
    }

    fn take_connection(&self, socket: Socket) {
        let id = {
            let mut state = lock(&self.state);
            if state.connections.len() >= CONNECTIONS_MAX {
                let reason = Reason::Resources { errno: EMFILE };
                let _ = socket.send(&Frame::Refused(reason), &[]);
                return;
            }
            state.last_connection += 1;
            state.last_connection
        };
        if let Ok(connection) = Connection::start(id, socket, &self.this) {
            lock(&self.state).connections.insert(id, connection);
        }
    }

    /// Without a free descriptor, the listener would stay readable for ever: gives up the spare
    /// one, to tell who has connected that there is none. False if nobody has.
    fn refuse_one(&self, error: &OsError) -> bool {
        let had_spare = lock(&self.state).spare.take().is_some();
        let answered = had_spare
            && self.listener.accept().is_ok_and(|socket| {
                self.lost_connection(error);
                let errno = error.errno.unsigned_abs();
                socket.send(&Frame::Refused(Reason::Resources { errno }), &[]).is_ok()
            });
        lock(&self.state).spare = Bell::new().ok();
        answered
    }
}

/// Nobody waits to be accepted.
const EAGAIN: i32 = 11;

fn is_exhausted(error: &OsError) -> bool {
    // EMFILE, ENFILE.
    matches!(error.errno, 24 | 23)
}

impl Handler for DomainInner {
    fn on_event(&self, _token: Token, _hung_up: bool) {
        self.accept_all();
    }
}

impl Drop for DomainInner {
    fn drop(&mut self) {
        if !self.is_forked() {
            self.directory.remove(&self.socket_name.file());
        }
    }
}

/// Descriptors of a request, by position.
pub(crate) fn take(descriptors: &mut Vec<OwnedFd>) -> Option<OwnedFd> {
    (!descriptors.is_empty()).then(|| descriptors.remove(0))
}
