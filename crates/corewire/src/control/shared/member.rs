//! The control half of a sender of a shared channel: joining, hosting, and taking over from a host that has gone.

use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use corewire_layout::frame::{Frame, Hello, Place, Reason, Start, Welcome};
use corewire_layout::geometry::Geometry;
use corewire_layout::message_type::TypeKey;
use corewire_layout::name::{ChannelName, NameKind, NameRecord};
use corewire_layout::segment::{FenceMode, Policy, SenderHeader, TableHeader, TypeTag};
use corewire_os::directory::{Claim, ClaimError, Membership};
use corewire_os::event::wait_readable;
use corewire_os::fork::{Descriptor, InChild};
use corewire_os::memory::Segment;
use corewire_os::process::{self, effective_uid};
use corewire_os::sleep::Linux;
use corewire_os::socket::{Peer, Socket};
use corewire_os::{OsError, random_u128};
use corewire_ring::Kernel;
use corewire_ring::broadcast::SenderShared;
use corewire_ring::shared::{Entrance, Party, Roster, SenderParts};
use zerocopy::IntoBytes;

use super::{SharedLink, SharedMemory};
use crate::control::attach::{answer, ask, confirm, protocol, refusal};
use crate::control::domain::{DomainInner, EAGAIN, invite, next_descriptor};
use crate::control::hub::{Handler, Hub, Token};
use crate::control::memory::staging;
use crate::error::{CreateError, JoinError};
use crate::guard::lock;
use crate::halves::MemberHalf;
use crate::host::{Hosted, SharedRing};
use crate::wait::Patience;

/// Maximum time without a host while other senders are alive.
const HOST_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a sender without a host waits before it tries again.
const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(1);

/// A party that the host has admitted and that has not confirmed yet. If it never confirms, the host vacates its row.
/// The party neither sends nor receives before its confirmation is answered.
pub(crate) struct Arrival {
    roster: Roster,
    kernel: Hosted,
    party: Party,
    who: Entrance,
}

impl Arrival {
    pub(crate) fn vacate(self) {
        self.roster.vacate(self.party, self.who, &self.kernel);
    }
}

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
    domain: Arc<DomainInner>,
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

/// Creates the shared channel, or joins it as one of its senders.
pub(crate) fn open(
    domain: &Arc<DomainInner>,
    plan: &Plan,
) -> Result<(SharedRing, Arc<Member>), CreateError> {
    if domain.is_forked() {
        return Err(CreateError::Forked);
    }
    let (owner, user) = (domain.directory.owner(), effective_uid());
    let socket = domain.socket_name().ok_or(CreateError::Guest { owner, user })?;
    let deadline = Instant::now() + HOST_TIMEOUT;
    loop {
        match domain.directory.claim(&plan.name) {
            Ok(claim) => match domain.directory.join_members(&plan.name, true) {
                Ok(Some(membership)) => {
                    return create(domain, plan, claim, membership, socket.0);
                }
                // The channel has senders but no host. One of them must get the name.
                Ok(None) => claim.release(&domain.directory),
                Err(error) => {
                    claim.release(&domain.directory);
                    return Err(error.into());
                }
            },
            Err(ClaimError::AlreadyExists(_)) => match enter(domain, plan, socket.0) {
                Err(CreateError::NoHost { .. }) => {}
                other => return other,
            },
            Err(error) => return Err(error.into()),
        }
        if Instant::now() >= deadline {
            return Err(CreateError::NoHost { name: plan.name.clone(), after: HOST_TIMEOUT });
        }
        // A change of host takes a moment, but a stopped host may take long.
        wait_readable(&[], Some(Instant::now() + LOOK_AGAIN_AFTER))?;
    }
}

/// Creates the channel.
fn create(
    domain: &Arc<DomainInner>,
    plan: &Plan,
    claim: Claim,
    membership: Membership,
    socket: u128,
) -> Result<(SharedRing, Arc<Member>), CreateError> {
    let (mut ring, member) = match create_memory_and_sender(domain, plan, membership, socket) {
        Ok(made) => made,
        Err(error) => {
            claim.release(&domain.directory);
            domain.directory.clear(&plan.name);
            return Err(error);
        }
    };
    *lock(&member.state) = State { claim: Some(claim), is_inviting: true, ..State::default() };
    // Sending waits until the waiting receivers are invited and have joined, for a limited time.
    let patience_ns = u64::try_from(plan.invitation_patience.as_nanos()).unwrap_or(u64::MAX);
    let until_ns = Linux::get().now_ns().saturating_add(patience_ns);
    member.link.roster.hold(member.entrance.row, until_ns);
    domain.add_member(&member);
    if let Err(error) = member.publish() {
        // Tells the receivers that have joined by now that the channel is closed.
        member.close();
        ring.leave();
        return Err(error.into());
    }
    Ok((ring, member))
}

/// Creates the memory of a channel and adds its first sender, without publishing its name.
fn create_memory_and_sender(
    domain: &Arc<DomainInner>,
    plan: &Plan,
    membership: Membership,
    socket: u128,
) -> Result<(SharedRing, Arc<Member>), CreateError> {
    let memory = create_memory(plan, random_u128()?)?;
    let entrance = memory.roster().enter_sender(socket, process::pid(), &Linux::get());
    let what = "enter a new channel".into();
    // EIO: only this process has this memory, so a row must be free.
    let entrance = entrance.ok_or(OsError { what, errno: 5 })?;
    membership.admit_others()?;
    start(domain, plan, memory, entrance, membership)
}

fn create_memory(plan: &Plan, incarnation: u128) -> Result<SharedMemory, CreateError> {
    let Plan { geometry, policy, type_tag, .. } = plan;
    let header = SenderHeader {
        geometry: *geometry,
        fence_mode: FenceMode::Asymmetric,
        policy: *policy,
        type_tag: *type_tag,
        incarnation,
        pid: process::pid(),
    };
    let (ring_segment, ring) = Segment::create_shared(geometry.segment_bytes())?;
    let (table_segment, table) = Segment::create_shared(geometry.table_bytes())?;
    ring_segment.allocate(0, geometry.window_offset(0))?;
    table_segment.allocate(0, geometry.table_bytes())?;
    allocate_row(&ring_segment, geometry, 0)?;
    ring.copy_in(0, header.to_raw().as_bytes());
    table.copy_in(0, TableHeader { incarnation }.to_raw().as_bytes());
    Ok(SharedMemory { header, ring, table, ring_segment, table_segment })
}

/// Allocates the memory for one sender's payloads.
fn allocate_row(segment: &Segment, geometry: &Geometry, row: u32) -> Result<(), OsError> {
    segment.allocate(geometry.window_offset(row), geometry.window_bytes())?;
    segment.allocate(geometry.large_offset(row), geometry.large_bytes())
}

/// Asks the host to admit a sender. `NoHost` if there is none at the moment.
fn enter(
    domain: &Arc<DomainInner>,
    plan: &Plan,
    socket: u128,
) -> Result<(SharedRing, Arc<Member>), CreateError> {
    let name = &plan.name;
    let no_host = || CreateError::NoHost { name: name.clone(), after: Duration::ZERO };
    let gone = |error: JoinError| match error {
        JoinError::NotFound(_) => no_host(),
        error => CreateError::Enter(Box::new(error)),
    };
    let record = domain.directory.look_up(name)?.ok_or_else(no_host)?;
    if record.kind != NameKind::Channel {
        return Err(CreateError::AlreadyExists(domain.name_in_use(name)));
    }
    // The caller tries again, and so waits for the host.
    let host = match domain.directory.connect_now(record.socket) {
        Err(error) if error.errno == EAGAIN => return Err(no_host()),
        other => other?.ok_or_else(no_host)?,
    };
    if host.peer()?.trusted().is_none() {
        return Err(CreateError::AlreadyExists(domain.name_in_use(name)));
    }
    // The membership precedes the admission. Otherwise a sender that dies could look as if the channel had no sender.
    let Some(membership) = domain.directory.join_members(name, false)? else {
        return Err(no_host());
    };
    let type_key = plan.type_tag.key;
    let request = Frame::Enter { name: name.clone(), type_key, socket };
    ask(&host, name, &request, &[]).map_err(gone)?;
    let (frame, mut descriptors) = answer(&host, name).map_err(gone)?;
    let entrance = match frame {
        Frame::Entered { row, generation, .. } => Entrance { row, generation },
        Frame::Refused(Reason::NotFound) => return Err(no_host()),
        Frame::Refused(Reason::NotShared) => {
            drop(membership);
            domain.directory.clear(name);
            return Err(CreateError::AlreadyExists(domain.name_in_use(name)));
        }
        Frame::Refused(reason) => {
            return Err(CreateError::Enter(Box::new(refusal(name, reason, plan.type_tag))));
        }
        other => return Err(gone(protocol(name, format!("{other:?}")))),
    };
    let missing = || gone(protocol(name, "too few descriptors".into()));
    let ring = next_descriptor(&mut descriptors).ok_or_else(missing)?;
    let table = next_descriptor(&mut descriptors).ok_or_else(missing)?;
    let memory = SharedMemory::open(name, ring, table, Some(Party::Sender)).map_err(gone)?;
    let row = entrance.row;
    if u64::from(row) >= memory.header.geometry.senders_max() {
        return Err(gone(protocol(name, format!("with row {row}"))));
    }
    // From here on the row may be reserved for this sender, even if the host dies before it says so.
    let started = match answer(&host, name) {
        Ok((Frame::Start { .. }, _)) => {
            allocate_row(&memory.ring_segment, &memory.header.geometry, row).map_err(Into::into)
        }
        Ok((Frame::Refused(reason), _)) => Err(gone(refusal(name, reason, plan.type_tag))),
        Ok((other, _)) => Err(gone(protocol(name, format!("{other:?}")))),
        Err(error) => Err(gone(error)),
    };
    started.inspect_err(|_: &CreateError| {
        memory.roster().vacate(Party::Sender, entrance, &Linux::get());
    })?;
    // If a step fails from here on, the host also vacates the row. The sender sends nothing before the host has
    // confirmed.
    let roster = memory.roster();
    let started = start(domain, plan, memory, entrance, membership);
    let (ring, member) = started.inspect_err(|_| {
        roster.vacate(Party::Sender, entrance, &Linux::get());
    })?;
    confirm(&host, name, Patience::Forever).map_err(gone).inspect_err(|_| {
        member.link.roster.vacate(Party::Sender, entrance, &member.kernel);
    })?;
    member.follow(host);
    Ok((ring, member))
}

fn start(
    domain: &Arc<DomainInner>,
    plan: &Plan,
    memory: SharedMemory,
    entrance: Entrance,
    membership: Membership,
) -> Result<(SharedRing, Arc<Member>), CreateError> {
    let linux = Linux::get();
    let policy = memory.header.policy;
    let staging =
        (!policy.keeps_messages()).then(|| staging(&memory.header.geometry)).transpose()?;
    let shared = Arc::new(SenderShared::new(0, !linux.has_membarrier()));
    let nudged = Arc::clone(&shared);
    let incarnation = memory.header.incarnation;
    let nudge = move || nudged.nudge(&linux);
    let link = SharedLink::new(domain, memory.roster(), incarnation, nudge);
    let kernel = Hosted::new(link.clone());
    let member = Arc::new_cyclic(|this| Member {
        this: Weak::clone(this),
        name: plan.name.clone(),
        memory,
        entrance,
        shared: Arc::clone(&shared),
        link: Arc::clone(&link),
        domain: Arc::clone(domain),
        linux,
        kernel: kernel.clone(),
        state: Mutex::default(),
        membership: Some(membership),
    });
    let in_child: Weak<dyn InChild> = member.this.clone();
    corewire_os::fork::tell_in_child(in_child);
    let parts = SenderParts {
        ring: member.memory.ring.clone(),
        roster: link.roster.clone(),
        entrance,
        policy,
        staging,
        shared,
    };
    Ok((SharedRing::new(parts, kernel), member))
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

    /// Publishes the channel's name record and invites the receivers that wait for the channel.
    fn publish(&self) -> Result<(), OsError> {
        if let (Some(claim), Some(record)) = (&lock(&self.state).claim, self.record()) {
            claim.write(record)?;
        }
        for waiter in self.domain.directory.waiters(&self.name)? {
            self.invite(waiter)?;
        }
        lock(&self.state).is_inviting = false;
        self.release_if_all_joined();
        Ok(())
    }

    fn invite(&self, waiter: NameRecord) -> Result<(), OsError> {
        let Some(socket) = self.domain.connect_to_waiter(&waiter)? else { return Ok(()) };
        // A receiver that joins at once needs this lock, and so joins after the invitation is stored. A receiver that
        // had joined before closes the connection.
        let mut state = lock(&self.state);
        if invite(&socket, &self.name, waiter.incarnation)? {
            let handler: Weak<dyn Handler> = self.this.clone();
            let token = self.hub().watch(&socket, handler)?;
            state.invitations.insert(waiter.incarnation, (socket, token));
        }
        Ok(())
    }

    fn release_if_all_joined(&self) {
        let state = lock(&self.state);
        let is_over = !state.is_inviting && state.invitations.is_empty();
        drop(state);
        if is_over && self.link.roster.let_go(self.entrance.row, &self.linux) {
            self.shared.nudge(&self.linux);
        }
    }

    fn answered(&self, waiter: u128) {
        let gone = lock(&self.state).invitations.remove(&waiter);
        if let Some((socket, token)) = gone {
            self.hub().forget(&socket, token);
            self.release_if_all_joined();
        }
    }

    /// As host: admits a receiver, or returns the reason for its refusal.
    pub(crate) fn admit(
        &self,
        hello: &Hello,
        socket: &Socket,
        peer: Peer,
    ) -> Result<Arrival, Reason> {
        let header = &self.memory.header;
        if peer.trusted().is_none() || hello.socket == 0 {
            return Err(Reason::NotForGuests);
        }
        if !hello.type_key.accepts(header.type_tag.key) {
            return Err(header.type_tag.refusal());
        }
        match (hello.start, hello.place) {
            (Start::Oldest, _) => return Err(Reason::FromNow),
            // A shared channel has one level.
            (Start::Now | Start::OldestIfPossible, Place::Ring | Place::Group(_)) => {}
            _ => return Err(Reason::Malformed),
        }
        let max = header.geometry.receivers_max();
        let state = lock(&self.state);
        if state.is_closed || state.claim.is_none() {
            return Err(Reason::NotFound);
        }
        let roster = &self.link.roster;
        let vacant = roster.vacant_row().or_else(|| {
            // Some rows may belong to dead receivers that no handle has watched yet.
            self.link.watch_all(Party::Receiver);
            roster.vacant_row()
        });
        let entrance = vacant.ok_or(Reason::Full { max })?;
        let resources = |error: OsError| Reason::Resources { errno: error.errno.unsigned_abs() };
        let ring = self.memory.ring_segment.reopen_read_only().map_err(resources)?;
        let life = process::own_life().map_err(resources)?;
        let welcome = Welcome {
            row: entrance.row,
            start: 0,
            epoch: 0,
            incarnation: header.incarnation,
            hint: false,
            table: true,
            settled: 0,
            generation: entrance.generation,
        };
        let descriptors = [ring.as_fd(), life.as_fd(), self.memory.table_segment.as_fd()];
        socket.send(&Frame::Welcome(welcome), &descriptors).map_err(resources)?;
        // From here on the receiver knows its row, and vacates the row if this host dies before the next frame.
        let start = roster.admit(entrance, hello.socket, peer.pid);
        if let Err(error) = socket.send(&Frame::Start { start }, &[]) {
            roster.vacate(Party::Receiver, entrance, &self.linux);
            return Err(resources(error));
        }
        drop(state);
        self.shared.nudge(&self.linux);
        self.answered(hello.waiter);
        Ok(self.arrival(Party::Receiver, entrance))
    }

    fn arrival(&self, party: Party, who: Entrance) -> Arrival {
        Arrival { roster: self.link.roster.clone(), kernel: self.kernel.clone(), party, who }
    }

    /// As host: admits a sender, or returns the reason for its refusal.
    pub(crate) fn admit_sender(
        &self,
        type_key: TypeKey,
        process: u128,
        socket: &Arc<Socket>,
        peer: Peer,
    ) -> Result<Arrival, Reason> {
        let header = &self.memory.header;
        if peer.trusted().is_none() || process == 0 {
            return Err(Reason::NotForGuests);
        }
        if type_key != header.type_tag.key {
            return Err(header.type_tag.refusal());
        }
        let mut state = lock(&self.state);
        if state.is_closed || state.claim.is_none() {
            return Err(Reason::NotFound);
        }
        let roster = &self.link.roster;
        let entrance = roster.vacant_sender_row().or_else(|| {
            self.link.watch_all(Party::Sender);
            roster.vacant_sender_row()
        });
        let max = header.geometry.senders_max();
        let entrance = entrance.ok_or(Reason::SendersFull { max })?;
        let Entrance { row, generation } = entrance;
        let entered = Frame::Entered { row, generation, incarnation: header.incarnation };
        let descriptors = [self.memory.ring_segment.as_fd(), self.memory.table_segment.as_fd()];
        let resources = |error: OsError| Reason::Resources { errno: error.errno.unsigned_abs() };
        socket.send(&entered, &descriptors).map_err(resources)?;
        // From here on the sender knows its row, and vacates the row if this host dies before the next frame.
        roster.let_send(entrance, process, peer.pid, &self.kernel);
        if let Err(error) = socket.send(&Frame::Start { start: 0 }, &[]) {
            roster.vacate(Party::Sender, entrance, &self.kernel);
            return Err(resources(error));
        }
        state.add_follower(socket);
        Ok(self.arrival(Party::Sender, entrance))
    }

    /// As host: registers a sender that wants to learn when this host goes.
    pub(crate) fn add_follower(&self, socket: &Arc<Socket>) -> Result<(), Reason> {
        let mut state = lock(&self.state);
        if state.is_closed || state.claim.is_none() {
            return Err(Reason::NotFound);
        }
        state.add_follower(socket);
        Ok(())
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
        let claimed = self.domain.directory.claim(&self.name);
        match (claimed, self.record()) {
            (Ok(claim), Some(record)) if claim.write(record).is_ok() => {
                state.claim = Some(claim);
                // Under the lock, because a concurrent `close` removes the member again.
                if let Some(this) = self.this.upgrade() {
                    self.domain.add_member(&this);
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
        self.domain.remove_member(&self.name, &self.this);
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
                self.answered(waiter);
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
