//! An endpoint's control half: its name, its memory and its peers.
//!
//! Two endpoints that communicate are *linked*: each maps the other's segment and activity page, has a row for the
//! other, and watches its process. One handshake does this for both directions ([`connect`]); [`rows`] decides how far it
//! is, also if both begin at once.
//!
//! Only the kernel says that a peer has died, by its process's descriptor. A socket that ends says that the peer has
//! left, if it was the last one of the link and the process is not ending.
//!
//! A notice makes the data thread fetch what happens here. Peers on other hosts have nothing of this: `network` connects them.

mod addressed;
mod connect;
#[cfg(feature = "net")]
pub(crate) mod network;
pub(crate) mod observer;
mod rows;
mod serving;
mod to_link;

use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, Weak};
use std::time::Instant;

use corewire_endpoint::transport::Gone;
use corewire_endpoint::{Peer, PeerViolation};
use corewire_layout::endpoint::{ACTIVITY_BYTES, EndpointHeader, RawEndpointHeader};
use corewire_layout::frame::Frame;
use corewire_layout::name::ChannelName;
use corewire_layout::segment::HeaderError;
use corewire_os::OsError;
use corewire_os::directory::{Claim, Watch};
use corewire_os::event::Bell;
use corewire_os::fork::{Descriptor, InChild};
use corewire_os::memory::{Segment, SegmentError};
use corewire_os::process;
use corewire_os::sleep::Linux;
use corewire_os::socket::{ReceiveError, Socket};
use corewire_ring::pair::{Activity, EndpointMemory, EndpointShared, Visited};
use corewire_ring::{Control, Trusted};
use corewire_transfer::Remote;
use zerocopy::{FromZeros, IntoBytes};

use self::rows::{Closed, Ended, HungUp, Rows};
use self::to_link::ToLink;
use crate::control::ENDS_WITHIN;
use crate::control::domain::DomainHandle;
use crate::control::frames::next_descriptor;
use crate::control::hub::{Failures, Handler, Token};
use crate::control::reachable::Kind;
use crate::error::ConnectError;
use crate::guard::lock;
use crate::halves::{EndpointHalf, PeerChange as PeerLink, notice};
use crate::host::PairRing;
use crate::tell::tell;

/// The control half of an endpoint.
pub(crate) struct EndpointControl {
    this: Weak<Self>,
    header: EndpointHeader,
    segment: Segment,
    activity: Segment,
    memory: EndpointMemory,
    shared: Arc<EndpointShared>,
    /// Rings when a waiting data thread must check for work.
    bell: Arc<Bell>,
    linux: Linux,
    domain: DomainHandle,
    #[cfg(feature = "net")]
    far: Arc<network::Network>,
    #[cfg(feature = "net")]
    far_half: Arc<dyn crate::halves::FarHalf>,
    state: Mutex<State>,
    /// A peer has said that it is linked, or has gone; or this endpoint is closed.
    answered: Condvar,
}

/// Maximum number of frames that are read from one socket per event.
const FRAMES_PER_TURN: usize = 16;

struct State {
    claim: Option<Claim>,
    rows: Rows<Token, Arc<Socket>, Request, Linked>,
    watched: BTreeMap<Token, u32>,
    changes: Vec<PeerLink>,
    /// Requests that were dropped: their senders and numbers.
    dropped: Vec<(Peer, u64)>,
    to_link: ToLink,
}

/// A linked peer, without its sockets.
struct Linked {
    life: Arc<Descriptor>,
    life_token: Token,
    unread: Failures,
    bell: Bell,
    /// It is linked with this endpoint, too.
    knows: bool,
    /// Its name, for display.
    name: ChannelName,
    /// The number of its process there, for display, and here.
    pid: u32,
    seen_pid: u32,
}

/// How a link ends.
#[derive(Debug, Clone, Copy)]
enum End {
    /// The peer's process has died: the kernel says so.
    Died,
    /// The peer has said that it was closed.
    Closed,
    /// All sockets have ended without that word, and its process lives: it has replaced its program by another, or has
    /// ended the link. It may still hold messages of this endpoint.
    HungUp,
    CutOff(PeerViolation),
}

impl End {
    /// What the program is told.
    fn how(self) -> Gone {
        match self {
            Self::Died => Gone::Died,
            Self::Closed | Self::HungUp => Gone::Left,
            Self::CutOff(violation) => Gone::CutOff(violation),
        }
    }
}

/// What a peer has sent with its frame, checked.
struct Introduction {
    header: EndpointHeader,
    memory: EndpointMemory,
    activity: Activity,
    bell: Bell,
    life: Option<Descriptor>,
}

/// A request of a peer that has been answered and waits for the peer's confirmation.
struct Request {
    introduction: Introduction,
    row_there: u32,
    who: (Trusted, u32),
}

/// Why a peer's descriptors are refused.
enum Unfit {
    Missing,
    Segment(SegmentError),
    Header(HeaderError),
    Os(OsError),
}

impl Introduction {
    fn check(mut descriptors: Vec<Descriptor>) -> Result<Self, Unfit> {
        let mut next = || next_descriptor(&mut descriptors).ok_or(Unfit::Missing);
        let segment = Segment::adopt(next()?, false).map_err(Unfit::Segment)?;
        let bytes = size_of::<RawEndpointHeader>() as u64;
        let region = segment.map(bytes).map_err(Unfit::Segment)?;
        let mut raw = RawEndpointHeader::new_zeroed();
        region.copy_out(0, raw.as_mut_bytes());
        let header = EndpointHeader::parse(&raw, segment.bytes()).map_err(Unfit::Header)?;
        let page = Segment::adopt(next()?, true).map_err(Unfit::Segment)?;
        let page = page.map_writable(ACTIVITY_BYTES as u64).map_err(Unfit::Segment)?;
        let bell = Bell::adopt(next()?).map_err(Unfit::Os)?;
        let life = next().ok();
        let memory = EndpointMemory::new(region, header.sizes);
        Ok(Self { header, memory, activity: Activity::new(page), bell, life })
    }
}

/// The parts of an endpoint's control half.
pub(crate) struct EndpointControlParts {
    pub(crate) header: EndpointHeader,
    pub(crate) segment: Segment,
    pub(crate) activity: Segment,
    pub(crate) memory: EndpointMemory,
    pub(crate) shared: Arc<EndpointShared>,
    pub(crate) bell: Arc<Bell>,
    pub(crate) domain: DomainHandle,
    #[cfg(feature = "net")]
    pub(crate) hosts: Option<std::path::PathBuf>,
}

impl EndpointControl {
    /// # Errors
    /// Of a system call.
    pub(crate) fn new(parts: EndpointControlParts) -> Result<Arc<Self>, OsError> {
        let EndpointControlParts {
            header, segment, activity, memory, shared, bell, domain, ..
        } = parts;
        let rows_max = u32::try_from(header.sizes.peers_max()).unwrap_or(u32::MAX);
        let state = State {
            claim: None,
            rows: Rows::new(rows_max),
            watched: BTreeMap::new(),
            changes: Vec::new(),
            dropped: Vec::new(),
            to_link: ToLink::default(),
        };
        #[cfg(feature = "net")]
        let own =
            corewire_net::open::Own { name: header.name.clone(), incarnation: header.incarnation };
        #[cfg(feature = "net")]
        let far = network::Network::new(own, header.sizes.peers_max(), parts.hosts, &bell)?;
        let control = Arc::new_cyclic(|this| Self {
            this: Weak::clone(this),
            #[cfg(feature = "net")]
            far_half: Arc::clone(&far) as Arc<dyn crate::halves::FarHalf>,
            #[cfg(feature = "net")]
            far,
            header,
            segment,
            activity,
            memory,
            shared,
            bell,
            linux: Linux::get(),
            domain,
            state: Mutex::new(state),
            answered: Condvar::new(),
        });
        let in_child: Weak<dyn InChild> = control.this.clone();
        corewire_os::fork::notify_in_child(in_child);
        #[cfg(feature = "net")]
        control.far.belongs_to(&control.this);
        Ok(control)
    }

    /// Its connections to other hosts.
    #[cfg(feature = "net")]
    pub(crate) fn network(&self) -> &network::Network {
        &self.far
    }

    /// For observers: the peers that are linked now, one per line: row, process and name. Makes the data thread store
    /// its private counts at its next call.
    pub(crate) fn list_peers(&self) -> String {
        self.shared.mark(notice::OBSERVED);
        let state = lock(&self.state);
        let line =
            |(row, Linked { name, pid, .. }): (u32, &Linked)| format!("{row} {pid} {name}\n");
        let near: String = state.rows.all_linked().map(line).collect();
        drop(state);
        near + &self.list_far()
    }

    #[cfg(feature = "net")]
    fn list_far(&self) -> String {
        self.far.list()
    }

    #[cfg(not(feature = "net"))]
    #[expect(clippy::unused_self, reason = "it has no connections to other hosts")]
    const fn list_far(&self) -> String {
        String::new()
    }

    /// The descriptors by which peers reach this endpoint's memory.
    pub(crate) fn segment(&self) -> &Segment {
        &self.segment
    }

    /// Keeps the claim on the endpoint's name until the endpoint is closed.
    pub(crate) fn keep_claim(&self, claim: Claim) {
        lock(&self.state).claim = Some(claim);
    }

    /// Watches a socket or a process for the peer of `row`.
    fn watch(
        &self,
        state: &mut State,
        row: u32,
        descriptor: &Arc<impl AsFd>,
    ) -> Result<Token, OsError> {
        let token = self.domain.hub().watch(&**descriptor, self.this.clone())?;
        state.watched.insert(token, row);
        Ok(token)
    }

    fn unwatch(&self, state: &mut State, token: Token, descriptor: &Arc<impl AsFd>) {
        self.domain.hub().forget(&**descriptor, token);
        state.watched.remove(&token);
    }

    /// Ends a row's link. False if it is not linked.
    fn end(&self, state: &mut State, row: u32, end: End) -> bool {
        let Some(Ended { sockets, link }) = state.rows.end(row) else { return false };
        self.unwatch(state, link.life_token, &link.life);
        for (token, socket) in &sockets {
            self.unwatch(state, *token, socket);
        }
        self.answered.notify_all();
        let how = end.how();
        state.changes.push(PeerLink::Gone { row, how, is_closed: matches!(end, End::Closed) });
        true
    }

    /// Reads what has arrived on the sockets of a row's link. Returns how the peer has gone, if it has.
    fn read_all(&self, state: &mut State, row: u32) -> Option<End> {
        let (sockets, _) = state.rows.linked(row)?;
        let sockets: Vec<_> =
            sockets.iter().map(|(token, socket)| (*token, Arc::clone(socket))).collect();
        sockets.into_iter().find_map(|(token, socket)| self.read(state, row, token, &socket))
    }

    /// Reads what a linked peer has sent on one socket. Returns how the peer has gone, if it has.
    fn read(&self, state: &mut State, row: u32, token: Token, socket: &Arc<Socket>) -> Option<End> {
        for _ in 0..FRAMES_PER_TURN {
            let received = socket.receive();
            if !matches!(received, Err(ReceiveError::Os(_)))
                && let Some((_, linked)) = state.rows.linked(row)
            {
                linked.unread.end();
            }
            match received {
                Ok((Frame::Leave, _)) => return Some(End::Closed),
                Ok((Frame::Done, _)) => self.acknowledge(state, row, token, socket),
                Ok((Frame::Linked, _)) => self.is_known(state, row, token),
                Err(ReceiveError::Nothing) => return None,
                // A failed call says nothing about the peer: a frame that it sent is still there.
                Err(ReceiveError::Os(_))
                    if !state.rows.linked(row).is_some_and(|(_, linked)| linked.unread.add()) =>
                {
                    return None;
                }
                Err(ReceiveError::Closed) => return self.hung_up(state, row, token, true),
                _ => return self.hung_up(state, row, token, false),
            }
        }
        None
    }

    /// Closes the sockets of a row's link that neither end needs: of both that ask at once, each has made one.
    fn close_spares(&self, state: &mut State, row: u32) {
        for (token, socket) in state.rows.take_spares(row, self.header.incarnation) {
            self.unwatch(state, token, &socket);
            // If another descriptor of this end is open, the peer would not see that it is closed.
            socket.hang_up();
        }
    }

    /// The peer is linked, too, and says so on socket `token`: it will find what is sent to it now.
    fn is_known(&self, state: &mut State, row: u32, token: Token) {
        if let Some(linked) = state.rows.linked_mut(row) {
            linked.knows = true;
            self.answered.notify_all();
        }
        state.rows.note_common(row, token);
        self.close_spares(state, row);
    }

    /// Tells a requester that has linked that this endpoint has done so, too.
    fn acknowledge(&self, state: &mut State, row: u32, token: Token, socket: &Socket) {
        // If it does not get through, the requester waits in vain, and goes on.
        let _ = socket.send(&Frame::Linked, &[]);
        self.is_known(state, row, token);
    }

    /// A socket of a link has ended. Returns [`End::HungUp`] if it was the last one and its peer's process lives.
    fn hung_up(&self, state: &mut State, row: u32, token: Token, is_closed: bool) -> Option<End> {
        let (socket, is_last) = match state.rows.hang_up(row, token, is_closed)? {
            HungUp::Request(socket, _) => {
                socket.hang_up();
                (socket, false)
            }
            HungUp::Socket(socket) => (socket, false),
            HungUp::Last(socket) => (socket, true),
        };
        self.unwatch(state, token, &socket);
        let (_, linked) = state.rows.linked(row)?;
        // The descriptor of a process that is ending says so in a moment.
        let is_ending = || process::is_ending(&*linked.life, linked.seen_pid, ENDS_WITHIN);
        (is_last && !is_ending()).then_some(End::HungUp)
    }
}

impl EndpointHalf for EndpointControl {
    fn name(&self) -> &ChannelName {
        &self.header.name
    }

    fn incarnation(&self) -> u128 {
        self.header.incarnation
    }

    fn bell(&self) -> &Arc<Bell> {
        &self.bell
    }

    fn is_forked(&self) -> bool {
        self.domain.is_forked()
    }

    #[cfg(feature = "net")]
    fn far(&self) -> &Arc<dyn crate::halves::FarHalf> {
        &self.far_half
    }

    fn watch_names(&self) -> Result<Watch, OsError> {
        self.domain.directory.watch()
    }

    fn wait_for_names(&self, watch: &Watch, deadline: Option<Instant>) -> Result<bool, OsError> {
        // Nothing else ends this wait, but a peer that has come may ring.
        self.bell.silence();
        watch.wait(self.bell.as_fd(), deadline)
    }

    fn connect(&self, name: &ChannelName) -> Result<(u32, u128), ConnectError> {
        self.link_with(name)
    }

    fn address(&self, name: &ChannelName, incarnation: Option<u128>) -> Result<u32, ConnectError> {
        self.reserve_for(name, incarnation)
    }

    fn link(&self, row: u32) {
        self.link_soon(row);
    }

    fn allocate(&self, offset: u64, bytes: u64) -> Result<(), OsError> {
        self.segment.allocate(offset, bytes)
    }

    fn notify(&self, notice: u32) {
        // The lock may be held by a thread that a forked child does not have.
        if self.shared.notices() & notice::FORKED == 0 {
            self.shared.notify(notice, &self.linux);
            self.bell.ring();
        }
    }

    fn early_visits(&self) -> Vec<(Visited, Option<Remote>)> {
        let state = lock(&self.state);
        let linked = state.changes.iter().filter_map(|link| match link {
            PeerLink::Came { parts, remote, .. } => {
                Some((PairRing::visit_of(&parts.memory, parts.row_there)?, Some(remote.clone())))
            }
            PeerLink::Gone { .. } => None,
        });
        let answered = state.rows.introductions().filter_map(|request| {
            let memory = &request.introduction.memory;
            Some((PairRing::visit_of(memory, request.row_there)?, None))
        });
        linked.chain(answered).collect()
    }

    fn changes(&self) -> Vec<PeerLink> {
        self.shared.clear(notice::PEERS);
        std::mem::take(&mut lock(&self.state).changes)
    }

    fn drop_request(&self, peer: Peer, number: u64) {
        // The lock may be held by a thread that a forked child does not have.
        if self.shared.notices() & notice::FORKED == 0 {
            lock(&self.state).dropped.push((peer, number));
            self.notify(notice::DROPPED);
        }
    }

    fn dropped(&self) -> Vec<(Peer, u64)> {
        self.shared.clear(notice::DROPPED);
        std::mem::take(&mut lock(&self.state).dropped)
    }

    fn cut_off(&self, row: u32, violation: PeerViolation) {
        self.end_and_tell(lock(&self.state), row, End::CutOff(violation));
    }

    fn free_row(&self, row: u32) {
        for socket in lock(&self.state).rows.free(row) {
            // If another descriptor of this end is open, the peer would not see that it is closed.
            socket.hang_up();
        }
    }

    fn close(&self) {
        self.domain.remove(Kind::Endpoint, self.name(), self);
        #[cfg(feature = "net")]
        self.far.close();
        let mut state = lock(&self.state);
        if let Some(claim) = state.claim.take() {
            claim.release(&self.domain.directory);
        }
        let Closed { watched, links, unwatched } = state.rows.close();
        self.answered.notify_all();
        unwatched.iter().for_each(|socket| socket.hang_up());
        for (token, socket) in watched {
            self.unwatch(&mut state, token, &socket);
        }
        for Ended { sockets, link } in links {
            self.unwatch(&mut state, link.life_token, &link.life);
            for (token, socket) in sockets {
                self.unwatch(&mut state, token, &socket);
                // If the frame does not get through, the hang-up tells the peer.
                let _ = socket.send(&Frame::Leave, &[]);
            }
        }
        self.domain.end();
    }
}

impl EndpointControl {
    /// Ends a row's link, if it is linked, and tells the data thread.
    fn end_and_tell(&self, mut state: MutexGuard<'_, State>, row: u32, end: End) {
        if !self.end(&mut state, row, end) {
            return;
        }
        drop(state);
        self.notify(notice::PEERS);
        match end {
            End::Closed | End::HungUp => {
                tell!(info, "a peer left", endpoint = self.name(), row = row);
            }
            End::Died => {
                tell!(warn, "a peer died", endpoint = self.name(), row = row);
            }
            End::CutOff(_) => {
                tell!(
                    warn,
                    "a peer's memory held an impossible value",
                    endpoint = self.name(),
                    row = row
                );
            }
        }
    }

    /// Reads what a requester has sent after the answer to its request.
    fn read_request(&self, mut state: MutexGuard<'_, State>, row: u32, token: Token) {
        let Some(socket) = state.rows.requested(row, token).map(Arc::clone) else { return };
        match socket.receive() {
            Ok((Frame::Done, _)) => self.confirm(state, row, token),
            Err(ReceiveError::Nothing) => {}
            // It has given up. A failed call may cost it this link: it asks again.
            _ => {
                let _ = self.hung_up(&mut state, row, token, false);
            }
        }
    }
}

impl Handler for EndpointControl {
    fn on_event(&self, token: Token, _hung_up: bool) {
        let mut state = lock(&self.state);
        let Some(&row) = state.watched.get(&token) else { return };
        let Some((sockets, linked)) = state.rows.linked(row) else {
            return self.read_request(state, row, token);
        };
        let end = if token == linked.life_token {
            // Perhaps it has left before its process has ended.
            self.read_all(&mut state, row).or(Some(End::Died))
        } else {
            let socket = sockets.iter().find(|(other, _)| *other == token);
            let Some(socket) = socket.map(|(_, socket)| Arc::clone(socket)) else { return };
            self.read(&mut state, row, token, &socket)
        };
        if let Some(end) = end {
            self.end_and_tell(state, row, end);
        }
    }
}

impl InChild for EndpointControl {
    fn forked(&self) {
        self.shared.mark(notice::FORKED);
    }
}

impl Control for EndpointControl {
    fn wake_descriptor(&self, row: u32) {
        if let Some((_, linked)) = lock(&self.state).rows.linked(row) {
            linked.bell.ring();
        }
    }
}
