//! A domain on the control path: an open runtime directory, this process's socket in it, and the handles of this
//! process that peers can reach through that socket.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::{Duration, Instant};

use corewire_layout::frame::{Frame, Reason};
use corewire_layout::name::{ChannelName, NameKind, NameRecord, SocketName};
use corewire_os::OsError;
use corewire_os::directory::RuntimeDirectory;
use corewire_os::event::{Bell, wait_readable};
use corewire_os::fork::Descriptor;
use corewire_os::process::effective_uid;
use corewire_os::socket::{Listener, Peer, Socket};

use crate::control::connection::Connection;
use crate::control::endpoint::EndpointControl;
use crate::control::hub::{Handler, Hub, HubHandle, Token};
use crate::control::listener::ListenerControl;
use crate::control::owner::{EMFILE, Owner};
use crate::control::shared::attachment::SharedAttachment;
use crate::control::shared::member::Member;
use crate::error::{NameInUse, NameUse, OpenError};
use crate::guard::lock;
use crate::halves::{EndpointHalf, MemberHalf, SenderHalf};

/// Maximum number of connections without a served request. Further connections are closed at once.
const CONNECTIONS_MAX: usize = 4096;
/// Maximum number of these per foreign user, so that one user cannot exclude the others.
const CONNECTIONS_OF_GUEST_MAX: usize = 64;
/// Maximum number of connections accepted per event, so that the control thread also handles other events.
const ACCEPTS_PER_TURN: usize = 64;

/// What the handles of a domain share.
pub(crate) struct DomainInner {
    this: Weak<Self>,
    pub(crate) directory: RuntimeDirectory,
    pub(crate) hub: Arc<HubHandle>,
    /// The socket to which peers connect. A guest has none.
    listening: Option<(Listener, SocketName)>,
    /// The listener's token in the hub.
    token: OnceLock<Token>,
    state: Mutex<DomainState>,
}

#[derive(Default)]
struct DomainState {
    channels: BTreeMap<ChannelName, Weak<Owner>>,
    endpoints: BTreeMap<ChannelName, Weak<EndpointControl>>,
    listeners: BTreeMap<ChannelName, Weak<ListenerControl>>,
    /// The shared channels whose names this process holds.
    members: BTreeMap<ChannelName, Weak<Member>>,
    /// Receivers of shared channels, by incarnation and row.
    readers: BTreeMap<(u128, u32), Weak<SharedAttachment>>,
    waiters: BTreeMap<u128, Waiter>,
    connections: BTreeMap<u64, Arc<Connection>>,
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
    ) -> Result<Arc<Self>, OpenError> {
        let state = DomainState { spare: Bell::new().ok(), ..DomainState::default() };
        let state = Mutex::new(state);
        let inner = Arc::new_cyclic(|this| Self {
            this: Weak::clone(this),
            directory,
            hub,
            listening,
            token: OnceLock::new(),
            state,
        });
        if let Some((listener, _)) = &inner.listening {
            let handler: Weak<dyn Handler> = inner.this.clone();
            let _ = inner.token.set(inner.hub().watch(listener, handler)?);
        }
        Ok(inner)
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

    pub(crate) fn add_channel(&self, owner: &Arc<Owner>) {
        lock(&self.state).channels.insert(owner.name().clone(), Arc::downgrade(owner));
    }

    pub(crate) fn remove_channel(&self, name: &ChannelName) {
        lock(&self.state).channels.remove(name);
    }

    pub(crate) fn channel(&self, name: &ChannelName) -> Option<Arc<Owner>> {
        lock(&self.state).channels.get(name).and_then(Weak::upgrade)
    }

    pub(crate) fn add_endpoint(&self, endpoint: &Arc<EndpointControl>) {
        lock(&self.state).endpoints.insert(endpoint.name().clone(), Arc::downgrade(endpoint));
    }

    pub(crate) fn remove_endpoint(&self, name: &ChannelName) {
        lock(&self.state).endpoints.remove(name);
    }

    pub(crate) fn endpoint(&self, name: &ChannelName) -> Option<Arc<EndpointControl>> {
        lock(&self.state).endpoints.get(name).and_then(Weak::upgrade)
    }

    pub(crate) fn add_listener(&self, listener: &Arc<ListenerControl>) {
        lock(&self.state).listeners.insert(listener.name().clone(), Arc::downgrade(listener));
    }

    pub(crate) fn remove_listener(&self, name: &ChannelName) {
        lock(&self.state).listeners.remove(name);
    }

    pub(crate) fn listener(&self, name: &ChannelName) -> Option<Arc<ListenerControl>> {
        lock(&self.state).listeners.get(name).and_then(Weak::upgrade)
    }

    pub(crate) fn add_member(&self, member: &Arc<Member>) {
        lock(&self.state).members.insert(member.name().clone(), Arc::downgrade(member));
    }

    pub(crate) fn remove_member(&self, name: &ChannelName, member: &Weak<Member>) {
        let mut state = lock(&self.state);
        if state.members.get(name).is_some_and(|other| other.ptr_eq(member)) {
            state.members.remove(name);
        }
    }

    /// The host of shared channel `name`, if it is in this process.
    pub(crate) fn member(&self, name: &ChannelName) -> Option<Arc<Member>> {
        lock(&self.state).members.get(name).and_then(Weak::upgrade)
    }

    pub(crate) fn add_reader(&self, channel: u128, row: u32, reader: &Arc<SharedAttachment>) {
        lock(&self.state).readers.insert((channel, row), Arc::downgrade(reader));
    }

    /// Removes a reader, unless its row belongs to another reader by now.
    pub(crate) fn remove_reader(&self, channel: u128, row: u32, reader: &SharedAttachment) {
        let mut state = lock(&self.state);
        let found = state.readers.get(&(channel, row));
        if found.is_some_and(|found| std::ptr::eq(found.as_ptr(), reader)) {
            state.readers.remove(&(channel, row));
        }
    }

    pub(crate) fn reader(&self, channel: u128, row: u32) -> Option<Arc<SharedAttachment>> {
        lock(&self.state).readers.get(&(channel, row)).and_then(Weak::upgrade)
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
    fn lost_connection(&self, error: &OsError) {
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

    fn accept_some(&self, listener: &Listener) {
        for _ in 0..ACCEPTS_PER_TURN {
            match listener.accept() {
                Ok(socket) => self.take_connection(socket),
                Err(error)
                    if is_out_of_descriptors(&error) && self.refuse_one(listener, &error) => {}
                Err(error) if error.errno == EAGAIN => return,
                // A connection that cannot be accepted now stays in the queue, and the listener stays readable. The
                // pause prevents a busy loop.
                Err(_) => {
                    let later = Instant::now() + Duration::from_millis(10);
                    let _ = wait_readable(&[], Some(later));
                    return;
                }
            }
        }
    }

    fn take_connection(&self, socket: Socket) {
        let peer = match socket.peer() {
            Ok(peer) => peer,
            Err(error) => {
                self.failed(&socket, None, &error);
                return;
            }
        };
        match self.admit_connection(&socket, peer) {
            Ok(id) => {
                if let Ok(connection) = Connection::start(id, socket, peer, &self.this) {
                    lock(&self.state).connections.insert(id, connection);
                }
            }
            Err(reason) => {
                if peer.trusted().is_some() {
                    // The limit on connections is reached, and this connection may be an invitation.
                    let what = "accept one more connection".into();
                    self.lost_connection(&OsError { what, errno: EMFILE.cast_signed() });
                }
                let _ = socket.send(&Frame::Refused(reason), &[]);
            }
        }
    }

    /// Checks the user and the number of connections. Returns the number of the new connection.
    fn admit_connection(&self, socket: &Socket, peer: Peer) -> Result<u64, Reason> {
        let is_foreign = peer.trusted().is_none();
        if is_foreign && !self.directory.access().permits(peer, socket) {
            return Err(Reason::NotPermitted { owner: effective_uid(), asker: peer.uid });
        }
        let mut state = lock(&self.state);
        let all = state.connections.values();
        let is_full = all.len() >= CONNECTIONS_MAX
            || is_foreign
                && all.filter(|connection| connection.peer().uid == peer.uid).count()
                    >= CONNECTIONS_OF_GUEST_MAX;
        if is_full {
            return Err(Reason::Resources { errno: EMFILE });
        }
        state.last_connection += 1;
        Ok(state.last_connection)
    }

    /// Refuses one connection although no descriptor is free: closes the spare descriptor to accept it. Without this
    /// the listener would stay readable. False if no peer was refused.
    fn refuse_one(&self, listener: &Listener, error: &OsError) -> bool {
        let had_spare = lock(&self.state).spare.take().is_some();
        let answered = had_spare
            && listener.accept().is_ok_and(|socket| {
                let peer = socket.peer().ok();
                self.failed(&socket, peer, error)
            });
        lock(&self.state).spare = Bell::new().ok();
        answered
    }
}

/// EAGAIN: no connection waits to be accepted, or the peer's queue of connections is full.
pub(crate) const EAGAIN: i32 = 11;

pub(crate) fn is_out_of_descriptors(error: &OsError) -> bool {
    // EMFILE, ENFILE.
    matches!(error.errno, 24 | 23)
}

impl Handler for DomainInner {
    fn on_event(&self, _token: Token, _hung_up: bool) {
        if let Some((listener, _)) = &self.listening {
            self.accept_some(listener);
        }
    }
}

impl Drop for DomainInner {
    fn drop(&mut self) {
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
}

/// Sends an invitation to a waiter. False if the waiter has just died.
pub(crate) fn invite(socket: &Socket, name: &ChannelName, waiter: u128) -> Result<bool, OsError> {
    match socket.send(&Frame::Invite { name: name.clone(), waiter }, &[]) {
        Err(error) if error.is_hang_up() => Ok(false),
        sent => sent.map(|()| true),
    }
}

/// Removes the first descriptor of a request.
pub(crate) fn next_descriptor(descriptors: &mut Vec<Descriptor>) -> Option<Descriptor> {
    (!descriptors.is_empty()).then(|| descriptors.remove(0))
}
