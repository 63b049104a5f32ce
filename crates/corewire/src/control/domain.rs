//! A domain on the control path: an open runtime directory, this process's socket in it, and the handles of this
//! process that peers can reach through that socket.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, Mutex, OnceLock, Weak};

use corewire_layout::frame::{Frame, Reason};
use corewire_layout::name::{ChannelName, NameKind, NameRecord, SocketName};
use corewire_os::OsError;
use corewire_os::directory::RuntimeDirectory;
use corewire_os::event::Bell;
use corewire_os::socket::{Listener, Peer, Socket};
use corewire_ring::sync::{AtomicU32, Ordering::AcqRel};

use crate::control::frames::EAGAIN;
use crate::control::hub::{Handler, Hub, HubHandle, Token};
use crate::control::reachable::{Kind, Reachable, Reader};
use crate::error::{NameInUse, NameUse, OpenError};
use crate::guard::lock;

/// What the handles of a domain share.
pub(crate) struct DomainInner {
    this: Weak<Self>,
    pub(crate) directory: RuntimeDirectory,
    pub(crate) hub: Arc<HubHandle>,
    /// The socket to which peers connect. A guest has none.
    listening: Option<(Listener, SocketName)>,
    /// The listener's token in the hub.
    token: OnceLock<Token>,
    /// What of this process still uses the domain: [`DomainHandle`]s that have not ended.
    uses: AtomicU32,
    state: Mutex<DomainState>,
}

#[derive(Default)]
struct DomainState {
    /// What peers reach by name. Names that this process has given up may still be here for a moment.
    reachable: BTreeMap<(Kind, ChannelName), Weak<dyn Reachable>>,
    /// Receivers of shared channels, by incarnation and row.
    readers: BTreeMap<(u128, u32), Weak<dyn Reader>>,
    waiters: BTreeMap<u128, Waiter>,
    /// Connections without a served request, and the users at their other ends.
    connections: BTreeMap<u64, (u32, Arc<dyn Handler>)>,
    last_connection: u64,
    /// Reserves a descriptor. Closed for a moment to refuse a connection when no other descriptor is free.
    spare: Option<Bell>,
}

/// A caller in this process that waits for a channel to be created.
struct Waiter {
    name: ChannelName,
    bell: Arc<Bell>,
    /// Connections of the owners that have invited it. An owner learns that the waiter stopped when they close.
    invitations: Vec<Arc<Socket>>,
    /// A connection could not be served; it may have been an invitation.
    failure: Option<OsError>,
}

impl fmt::Debug for DomainInner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Domain").field("directory", &self.directory.path()).finish()
    }
}

impl DomainInner {
    pub(crate) fn start(
        directory: RuntimeDirectory,
        hub: Arc<HubHandle>,
        listening: Option<(Listener, SocketName)>,
    ) -> Result<DomainHandle, OpenError> {
        let state = DomainState { spare: Bell::new().ok(), ..DomainState::default() };
        let state = Mutex::new(state);
        let inner = Arc::new_cyclic(|this| Self {
            this: Weak::clone(this),
            directory,
            hub,
            listening,
            token: OnceLock::new(),
            uses: AtomicU32::new(0),
            state,
        });
        let handle = DomainHandle::new(&inner);
        if let Some((listener, _)) = &inner.listening {
            let handler: Weak<dyn Handler> = inner.this.clone();
            let _ = inner.token.set(inner.hub().watch(listener, handler)?);
        }
        Ok(handle)
    }

    /// Closes this process's socket.
    fn close(&self) {
        if self.is_forked() {
            return;
        }
        if let Some((listener, name)) = &self.listening {
            if let Some(&token) = self.token.get() {
                self.hub().forget(listener, token);
            }
            self.directory.remove(&name.file());
        }
    }

    /// This process's socket; a guest has none.
    pub(crate) fn socket_name(&self) -> Option<SocketName> {
        self.listening.as_ref().map(|&(_, name)| name)
    }

    /// True if the domain lets processes of other users join.
    pub(crate) fn is_open_to_others(&self) -> bool {
        self.directory.access().is_open_to_others()
    }

    pub(crate) fn hub(&self) -> &Arc<Hub> {
        self.hub.hub()
    }

    pub(crate) fn is_forked(&self) -> bool {
        self.hub.is_forked()
    }

    /// Lets peers reach `it` by its name.
    pub(crate) fn add<T: Reachable + 'static>(&self, kind: Kind, name: &ChannelName, it: &Arc<T>) {
        let it: Weak<dyn Reachable> = Arc::downgrade(it) as _;
        lock(&self.state).reachable.insert((kind, name.clone()), it);
    }

    /// Ends that, unless something else has the name by now.
    pub(crate) fn remove<T: Reachable>(&self, kind: Kind, name: &ChannelName, it: *const T) {
        let mut state = lock(&self.state);
        let key = (kind, name.clone());
        if state.reachable.get(&key).is_some_and(|found| std::ptr::addr_eq(found.as_ptr(), it)) {
            state.reachable.remove(&key);
        }
    }

    /// What has this name, of the first of these kinds that has it.
    pub(crate) fn find(&self, kinds: &[Kind], name: &ChannelName) -> Option<Arc<dyn Reachable>> {
        let state = lock(&self.state);
        let of = |kind: &Kind| state.reachable.get(&(*kind, name.clone()))?.upgrade();
        kinds.iter().find_map(of)
    }

    /// Lets senders of other processes ring a reader of a shared channel, by the channel's incarnation and its row.
    pub(crate) fn add_reader<T: Reader + 'static>(&self, channel: u128, row: u32, reader: &Arc<T>) {
        let reader: Weak<dyn Reader> = Arc::downgrade(reader) as _;
        lock(&self.state).readers.insert((channel, row), reader);
    }

    /// Removes a reader, unless its row belongs to another reader by now.
    pub(crate) fn remove_reader<T: Reader>(&self, channel: u128, row: u32, reader: *const T) {
        let mut state = lock(&self.state);
        let found = state.readers.get(&(channel, row));
        if found.is_some_and(|found| std::ptr::addr_eq(found.as_ptr(), reader)) {
            state.readers.remove(&(channel, row));
        }
    }

    pub(crate) fn reader(&self, channel: u128, row: u32) -> Option<Arc<dyn Reader>> {
        lock(&self.state).readers.get(&(channel, row)).and_then(Weak::upgrade)
    }

    /// This process's socket, and the domain itself for connections.
    pub(super) fn listener(&self) -> Option<(&Listener, &Weak<Self>)> {
        self.listening.as_ref().map(|(listener, _)| (listener, &self.this))
    }

    /// The number of a new connection with a process of user `uid`, if so many may be open at one time, of that user and of
    /// all.
    pub(super) fn number_connection(
        &self,
        uid: u32,
        max_of_user: usize,
        max: usize,
    ) -> Option<u64> {
        let mut state = lock(&self.state);
        let of_user = state.connections.values().filter(|(other, _)| *other == uid).count();
        if state.connections.len() >= max || of_user >= max_of_user {
            return None;
        }
        state.last_connection += 1;
        Some(state.last_connection)
    }

    /// Keeps a connection until [`forget_connection`](Self::forget_connection).
    pub(super) fn keep_connection(&self, id: u64, uid: u32, connection: Arc<dyn Handler>) {
        lock(&self.state).connections.insert(id, (uid, connection));
    }

    /// Closes the spare descriptor, calls `job`, and takes another one. `None` if there was none.
    pub(super) fn with_spare<R>(&self, job: impl FnOnce() -> R) -> Option<R> {
        // The job locks the state.
        let spare = lock(&self.state).spare.take();
        let result = spare.map(|spare| {
            drop(spare);
            job()
        });
        lock(&self.state).spare = Bell::new().ok();
        result
    }

    /// Removes a connection that is closed or has become a link.
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

    /// Number of invitations that waiter `id` has received so far.
    pub(crate) fn invitations(&self, id: u128) -> usize {
        lock(&self.state).waiters.get(&id).map_or(0, |waiter| waiter.invitations.len())
    }

    /// Closes the first `count` invitations of waiter `id`, which has joined and continues to wait. Their owners need
    /// not know when it stops.
    pub(crate) fn forget_invitations(&self, id: u128, count: usize) {
        let mut state = lock(&self.state);
        let waiter = state.waiters.get_mut(&id);
        let gone: Option<Vec<_>> = waiter.map(|waiter| waiter.invitations.drain(..count).collect());
        drop(state);
        drop(gone);
    }

    /// Reports that a connection could not be served. Tells its peer, and returns true if that was possible. Also tells
    /// all waiters: the connection may have been an invitation, without which a waiter could miss the first messages.
    /// Guests send no invitations.
    pub(crate) fn failed(&self, socket: &Socket, peer: Option<Peer>, error: &OsError) -> bool {
        if peer.is_none_or(|peer| peer.trusted().is_some()) {
            self.lost_connection(error);
        }
        // If this fails, the hang-up tells the peer.
        let reason = Reason::Resources { errno: error.errno.unsigned_abs() };
        socket.send(&Frame::Refused(reason), &[]).is_ok()
    }

    /// Reports the loss of a connection from a process of this user. It may have been an invitation, or a wake-up for a
    /// reader.
    pub(super) fn lost_connection(&self, error: &OsError) {
        let mut state = lock(&self.state);
        for waiter in state.waiters.values_mut() {
            waiter.failure = Some(error.clone());
            waiter.bell.ring();
        }
        let readers: Vec<_> = state.readers.values().filter_map(Weak::upgrade).collect();
        drop(state);
        readers.iter().for_each(|reader| reader.ring());
    }

    /// The kind of object that holds `name`, and its process, as far as this process can see.
    pub(crate) fn name_in_use(&self, name: &ChannelName) -> NameInUse {
        let record = self.directory.look_up(name).ok().flatten();
        let kind = match record.map(|record| record.kind) {
            Some(NameKind::Endpoint) => NameUse::Endpoint,
            Some(NameKind::Listener) => NameUse::Listener,
            Some(NameKind::Window) => NameUse::Window,
            _ if matches!(self.directory.has_members(name), Ok(true)) => NameUse::SharedChannel,
            Some(NameKind::Channel) => NameUse::Channel,
            None => NameUse::Unknown,
        };
        let holder = record.and_then(|record| self.directory.connect_now(record.socket).ok()?);
        // 0 if the process runs in a pid namespace that is invisible here.
        let pid = holder.and_then(|socket| socket.peer().ok()).map(|peer| peer.pid);
        NameInUse { name: name.clone(), kind, pid: pid.filter(|&pid| pid != 0) }
    }

    /// Connects to a waiter. `None` if that is not possible now: the waiter is dead, belongs to another user, or its
    /// queue of connections is full. With a full queue, the waiter finds the channel without an invitation, possibly
    /// late. Never waits.
    pub(crate) fn connect_to_waiter(&self, waiter: &NameRecord) -> Result<Option<Socket>, OsError> {
        let socket = match self.directory.connect_now(waiter.socket) {
            Ok(Some(socket)) => socket,
            Ok(None) => return Ok(None),
            Err(error) if error.errno == EAGAIN => return Ok(None),
            Err(error) => return Err(error),
        };
        Ok(socket.peer()?.trusted().is_some().then_some(socket))
    }

    /// The error due to which waiter `id` may have missed an invitation.
    pub(crate) fn failure_of(&self, id: u128) -> Option<OsError> {
        lock(&self.state).waiters.get(&id).and_then(|waiter| waiter.failure.clone())
    }

    /// Hands an owner's invitation to the waiter. If the waiter has stopped, the connection closes, and so tells the
    /// owner.
    pub(crate) fn invited(&self, name: &ChannelName, waiter: u128, socket: Arc<Socket>) {
        let mut state = lock(&self.state);
        if let Some(waiter) = state.waiters.get_mut(&waiter).filter(|waiter| waiter.name == *name) {
            waiter.invitations.push(socket);
            waiter.bell.ring();
        }
    }
}

/// A use of a domain: by the program, or by what it holds. The last one that ends closes this process's socket, on the
/// thread that ends it: the control thread may hold the domain for longer, and the process ends without waiting for it.
pub(crate) struct DomainHandle {
    domain: Arc<DomainInner>,
    /// 1 once it has.
    has_ended: AtomicU32,
}

impl DomainHandle {
    fn new(domain: &Arc<DomainInner>) -> Self {
        domain.uses.fetch_add(1, AcqRel);
        Self { domain: Arc::clone(domain), has_ended: AtomicU32::new(0) }
    }

    /// The domain, for parts of what holds this handle.
    pub(crate) fn inner(&self) -> &Arc<DomainInner> {
        &self.domain
    }

    /// Ends this use. What holds the handle is closed, and is dropped when no other thread is in it any more.
    pub(crate) fn end(&self) {
        if self.has_ended.swap(1, AcqRel) == 0 && self.domain.uses.fetch_sub(1, AcqRel) == 1 {
            self.domain.close();
        }
    }
}

impl Clone for DomainHandle {
    fn clone(&self) -> Self {
        Self::new(&self.domain)
    }
}

impl Drop for DomainHandle {
    fn drop(&mut self) {
        self.end();
    }
}

impl Deref for DomainHandle {
    type Target = DomainInner;

    fn deref(&self) -> &DomainInner {
        &self.domain
    }
}

impl fmt::Debug for DomainHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.domain, f)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;
    use std::sync::Arc;

    use corewire_layout::name::ChannelName;

    use super::Kind;
    use crate::Domain;

    fn files(directory: &Path) -> Vec<String> {
        let files = fs::read_dir(directory).unwrap().flatten();
        files.map(|file| file.file_name().to_string_lossy().into_owned()).collect()
    }

    // Keeps P14.
    #[test]
    fn what_the_control_thread_still_holds_leaves_no_files() {
        let path = std::env::temp_dir().join(format!("corewire-held-{}", std::process::id()));
        let domain = Domain::open_at(&path).unwrap();
        let inner = Arc::clone(domain.inner.inner());
        let (sender, endpoint) = (domain.sender("s").create(), domain.endpoint("e").create());
        let receiver = domain.receiver("s").join();
        let listener = domain.listener("l").unwrap();
        let held = [(Kind::Channel, "s"), (Kind::Endpoint, "e"), (Kind::Listener, "l")]
            .map(|(kind, name)| inner.find(&[kind], &ChannelName::new(name).unwrap()).unwrap());
        drop((domain, sender, endpoint, receiver));
        assert_ne!(files(&path), Vec::<String>::new(), "the listener is still there");
        drop(listener);
        assert_eq!(files(&path), Vec::<String>::new());
        drop((held, inner));
        fs::remove_dir(&path).unwrap();
    }
}
