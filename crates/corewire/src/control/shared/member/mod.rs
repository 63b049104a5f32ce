//! The control half of a sender of a shared channel: joining ([`joining`]), hosting ([`hosting`]), and here, taking
//! over from a host that has gone.

mod hosting;
mod joining;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use corewire_layout::frame::Frame;
use corewire_layout::geometry::Geometry;
use corewire_layout::name::{ChannelName, NameKind, NameRecord};
use corewire_layout::segment::{Policy, TypeTag};
use corewire_os::OsError;
use corewire_os::directory::{Claim, Membership};
use corewire_os::event::wait_readable;
use corewire_os::fork::{Descriptor, InChild};
use corewire_os::memory::Segment;
use corewire_os::sleep::Linux;
use corewire_os::socket::Socket;
use corewire_ring::broadcast::SenderShared;
use corewire_ring::shared::{Entrance, Party};

pub(crate) use self::joining::open;
use super::{SharedLink, SharedMemory};
use crate::control::domain::DomainHandle;
use crate::control::hub::{Handler, Hub, Token};
use crate::control::reachable::Kind;
use crate::guard::lock;
use crate::halves::MemberHalf;
use crate::host::Hosted;

/// How long a sender without a host waits before it tries again.
const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(1);

/// The properties of a shared channel, used if it must be created.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) name: ChannelName,
    pub(crate) geometry: Geometry,
    pub(crate) policy: Policy,
    pub(crate) type_tag: TypeTag,
    /// How long senders wait for invited receivers.
    pub(crate) invitation_patience: Duration,
}

/// The control half of one sender.
pub(crate) struct Member {
    this: Weak<Self>,
    name: ChannelName,
    memory: SharedMemory,
    entrance: Entrance,
    pub(crate) shared: Arc<SenderShared>,
    pub(crate) link: Arc<SharedLink>,
    domain: DomainHandle,
    linux: Linux,
    kernel: Hosted,
    state: Mutex<State>,
    membership: Option<Membership>,
}

#[derive(Default)]
struct State {
    /// The claim on the name, while this sender is the host.
    claim: Option<Claim>,
    /// The connection to the host, while another sender is the host.
    host: Option<(Arc<Socket>, Token)>,
    /// Connections of senders that want to learn when this host goes. The domain owns them.
    followers: Vec<Weak<Socket>>,
    /// Receivers that waited for the channel when it was created and have not joined.
    invitations: BTreeMap<u128, (Socket, Token)>,
    /// True while invitations are being sent.
    is_inviting: bool,
    is_closed: bool,
}

impl State {
    fn add_follower(&mut self, socket: &Arc<Socket>) {
        self.followers.retain(|follower| follower.strong_count() > 0);
        self.followers.push(Arc::downgrade(socket));
    }
}

impl Member {
    fn hub(&self) -> &Arc<Hub> {
        self.domain.hub()
    }

    fn record(&self) -> Option<NameRecord> {
        let socket = self.domain.socket_name()?;
        Some(NameRecord {
            kind: NameKind::Channel,
            socket,
            incarnation: self.memory.header.incarnation,
        })
    }

    fn remove_invitation(&self, waiter: u128) {
        let gone = lock(&self.state).invitations.remove(&waiter);
        if let Some((socket, token)) = gone {
            self.hub().forget(&socket, token);
            self.release_if_all_joined();
        }
    }

    /// Watches the host, to take over when it goes.
    fn follow(&self, host: Socket) {
        let host = Arc::new(host);
        let handler: Weak<dyn Handler> = self.this.clone();
        match self.hub().watch(&*host, handler) {
            Ok(token) => lock(&self.state).host = Some((host, token)),
            // Without a watch, the host counts as gone, and is looked up again.
            Err(_) => self.look_for_host_soon(),
        }
    }

    fn look_for_host_soon(&self) {
        let this = self.this.clone();
        self.hub().run_soon(move || {
            if let Some(member) = this.upgrade() {
                member.look_for_host();
            }
        });
    }

    /// Handles the end of the host: claims the name, or follows the next host. Runs on the control thread.
    fn look_for_host(&self) {
        let mut state = lock(&self.state);
        if state.is_closed || state.claim.is_some() || self.domain.is_forked() {
            return;
        }
        if let Some((socket, token)) = state.host.take() {
            self.hub().forget(&*socket, token);
        }
        // Without waiting for a process that holds the lock: the other members wait for this one.
        let claimed = self.domain.directory.try_claim(&self.name);
        match (claimed, self.record()) {
            (Ok(Some(claim)), Some(record)) if claim.write(record).is_ok() => {
                state.claim = Some(claim);
                // Under the lock, because a concurrent `close` removes the member again.
                if let Some(this) = self.this.upgrade() {
                    self.domain.add(Kind::Shared, &self.name, &this);
                }
                return;
            }
            _ => drop(state),
        }
        let found = self.domain.directory.look_up(&self.name).ok().flatten();
        let host = found
            .and_then(|record| self.domain.directory.connect_now(record.socket).ok().flatten())
            .filter(|host| host.send(&Frame::Follow { name: self.name.clone() }, &[]).is_ok());
        match host {
            Some(host) => self.follow(host),
            None => {
                // Another sender has claimed the name and not published its record yet, or is just releasing the name.
                let later = Instant::now() + LOOK_AGAIN_AFTER;
                let _ = wait_readable(&[], Some(later));
                self.look_for_host_soon();
            }
        }
    }

    /// The processes of receivers that are invited and have not joined.
    pub(crate) fn joining(&self) -> Vec<u32> {
        let state = lock(&self.state);
        let peers = state.invitations.values().filter_map(|(socket, _)| socket.peer().ok());
        peers.map(|peer| peer.pid).collect()
    }

    /// The segments, for an observer. The ring's is read-only.
    pub(crate) fn segments(&self) -> Result<(Descriptor, &Segment), OsError> {
        Ok((self.memory.ring_segment.reopen_read_only()?, &self.memory.table_segment))
    }
}

impl MemberHalf for Member {
    fn name(&self) -> &ChannelName {
        &self.name
    }

    fn joined(&self) -> usize {
        self.link.roster.held(Party::Receiver).count()
    }

    fn notifier(&self) -> Box<dyn Fn(u32) + Send + Sync> {
        let (shared, linux) = (Arc::clone(&self.shared), self.linux);
        Box::new(move |notices| shared.notify(notices, &linux))
    }

    fn close(&self) {
        let mut state = lock(&self.state);
        state.is_closed = true;
        self.domain.remove(Kind::Shared, &self.name, self);
        if let Some(claim) = state.claim.take() {
            claim.release(&self.domain.directory);
        }
        for follower in std::mem::take(&mut state.followers) {
            if let Some(follower) = follower.upgrade() {
                follower.hang_up();
            }
        }
        if let Some((socket, token)) = state.host.take() {
            self.hub().forget(&*socket, token);
        }
        for (_, (socket, token)) in std::mem::take(&mut state.invitations) {
            self.hub().forget(&socket, token);
        }
        self.domain.end();
    }
}

impl Handler for Member {
    fn on_event(&self, token: Token, hung_up: bool) {
        let state = lock(&self.state);
        let host = state.host.as_ref().filter(|(_, other)| *other == token);
        let waiter = state.invitations.iter().find(|(_, (_, other))| *other == token);
        match (host, waiter) {
            (Some((socket, _)), _) => {
                let socket = Arc::clone(socket);
                drop(state);
                let refused = matches!(socket.receive(), Ok((Frame::Refused(_), _)));
                if refused {
                    // The process that holds the name does not serve it, or does not serve it yet.
                    let later = Instant::now() + LOOK_AGAIN_AFTER;
                    let _ = wait_readable(&[], Some(later));
                }
                if hung_up || refused {
                    self.look_for_host();
                }
            }
            (None, Some((&waiter, _))) => {
                drop(state);
                self.remove_invitation(waiter);
            }
            _ => {}
        }
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        drop(self.membership.take());
        self.domain.directory.clear(&self.name);
    }
}

impl InChild for Member {
    fn forked(&self) {
        self.shared.mark_forked();
    }
}
