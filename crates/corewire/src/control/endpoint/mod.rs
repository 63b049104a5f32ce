//! An endpoint's control half: its name, its memory and its peers.
//!
//! Two endpoints that communicate are *linked*: each maps the other's segment and activity page, has a row for the
//! other, and watches its process. One handshake does this for both directions ([`connect`]). If both begin at once,
//! each recognizes the other's request by its incarnation and assigns it the row that it has reserved for that peer.
//!
//! A notice makes the data thread fetch what happens here.

mod connect;
pub(crate) mod observer;

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, Weak};
use std::time::Instant;

use corewire_endpoint::Peer;
use corewire_endpoint::transport::Gone;
use corewire_layout::endpoint::{ACTIVITY_BYTES, EndpointHeader, RawEndpointHeader};
use corewire_layout::frame::Frame;
use corewire_layout::name::ChannelName;
use corewire_layout::segment::HeaderError;
use corewire_os::OsError;
use corewire_os::directory::{Claim, Watch};
use corewire_os::event::Bell;
use corewire_os::fork::{Descriptor, InChild};
use corewire_os::memory::{Segment, SegmentError};
use corewire_os::sleep::Linux;
use corewire_os::socket::{ReceiveError, Socket};
use corewire_ring::Control;
use corewire_ring::pair::{Activity, EndpointMemory, EndpointShared};
use zerocopy::{FromZeros, IntoBytes};

use crate::control::domain::{DomainInner, next_descriptor};
use crate::control::hub::{Failures, Handler, Token};
use crate::error::ConnectError;
use crate::guard::lock;
use crate::halves::{EndpointHalf, Link as PeerLink, notice};
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
    domain: Arc<DomainInner>,
    state: Mutex<State>,
}

/// Number of rows of departed peers that are not reused while there are other free rows.
const LEFT_KEPT: usize = 8;

#[derive(Default)]
struct State {
    claim: Option<Claim>,
    links: BTreeMap<u32, Link>,
    /// Free rows that had a peer, the one free for the longest first.
    left: VecDeque<u32>,
    /// Rows by their peers' incarnations.
    rows: BTreeMap<u128, u32>,
    watched: BTreeMap<Token, u32>,
    changes: Vec<PeerLink>,
    /// Requests that were dropped: their senders and numbers.
    dropped: Vec<(Peer, u64)>,
    is_closed: bool,
}

/// The state of a row.
enum Link {
    /// Reserved for a peer that is being asked.
    Requested,
    /// Has a linked peer.
    Linked(Linked),
    /// Its peer has gone, which the data thread has not handled yet.
    Gone,
}

struct Linked {
    /// Usually one; two if both asked at once.
    sockets: Vec<(Arc<Socket>, Token)>,
    life: Arc<Descriptor>,
    life_token: Token,
    unread: Failures,
    bell: Bell,
    /// Its name, for display.
    name: ChannelName,
    pid: u32,
}

/// What a peer has sent with its frame, checked.
struct Introduction {
    header: EndpointHeader,
    memory: EndpointMemory,
    activity: Activity,
    bell: Bell,
    life: Option<Descriptor>,
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
    pub(crate) domain: Arc<DomainInner>,
}

impl EndpointControl {
    pub(crate) fn new(parts: EndpointControlParts) -> Arc<Self> {
        let EndpointControlParts { header, segment, activity, memory, shared, bell, domain } =
            parts;
        let control = Arc::new_cyclic(|this| Self {
            this: Weak::clone(this),
            header,
            segment,
            activity,
            memory,
            shared,
            bell,
            linux: Linux::get(),
            domain,
            state: Mutex::default(),
        });
        let in_child: Weak<dyn InChild> = control.this.clone();
        corewire_os::fork::tell_in_child(in_child);
        control
    }

    /// For observers: the peers that are linked now, one per line: row, process and name. Makes the data thread store
    /// its private counts at its next call.
    pub(crate) fn list_peers(&self) -> String {
        self.shared.mark(notice::OBSERVED);
        let state = lock(&self.state);
        let line = |(row, link): (&u32, &Link)| match link {
            Link::Linked(Linked { name, pid, .. }) => Some(format!("{row} {pid} {name}\n")),
            Link::Requested | Link::Gone => None,
        };
        state.links.iter().filter_map(line).collect()
    }

    /// The descriptors by which peers reach this endpoint's memory.
    pub(crate) fn segment(&self) -> &Segment {
        &self.segment
    }

    /// Keeps the claim on the endpoint's name until the endpoint is closed.
    pub(crate) fn keep_claim(&self, claim: Claim) {
        lock(&self.state).claim = Some(claim);
    }

    fn unwatch(&self, state: &mut State, linked: &Linked) {
        for (socket, token) in &linked.sockets {
            self.domain.hub().forget(&**socket, *token);
            state.watched.remove(token);
        }
        self.domain.hub().forget(&*linked.life, linked.life_token);
        state.watched.remove(&linked.life_token);
    }

    /// A free row. Rows that had a peer until recently come last: a caller that asks for a peer that has just gone
    /// must learn that, not that there is no such peer.
    fn free(&self, state: &mut State) -> Option<u32> {
        let max = u32::try_from(self.header.sizes.peers_max()).unwrap_or(u32::MAX);
        let is_unused = |row: &u32| !state.links.contains_key(row) && !state.left.contains(row);
        let unused = || (0..max).find(is_unused);
        let row = if state.left.len() < LEFT_KEPT { unused() } else { None };
        row.or_else(|| state.left.pop_front())
    }

    /// Reads what a linked peer has sent. Returns how it has gone, if it has.
    fn look_at(&self, row: u32, token: Token) -> Option<Gone> {
        let state = lock(&self.state);
        let Some(Link::Linked(linked)) = state.links.get(&row) else { return None };
        if token == linked.life_token {
            return Some(Gone::Died);
        }
        let (socket, _) = linked.sockets.iter().find(|(_, other)| *other == token)?;
        match socket.receive() {
            Ok((Frame::Leave, _)) => Some(Gone::Left),
            Err(ReceiveError::Nothing) => None,
            // A failed call says nothing about the peer: a frame that it sent is still there.
            Err(ReceiveError::Os(_)) if !linked.unread.add() => None,
            // A hang-up without a frame: its process has died, or is just dying.
            _ => Some(Gone::Died),
        }
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

    fn watch_names(&self) -> Result<Watch, OsError> {
        self.domain.directory.watch()
    }

    fn wait_for_names(&self, watch: &Watch, deadline: Option<Instant>) -> Result<bool, OsError> {
        // Nothing else ends this wait, but a peer that has come may ring.
        self.bell.silence();
        watch.wait(self.bell.as_fd(), deadline)
    }

    fn connect(&self, name: &ChannelName) -> Result<u32, ConnectError> {
        self.link_with(name)
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

    fn drop_link(&self, row: u32, how: Gone) {
        let mut state = lock(&self.state);
        let Some(link) = state.links.get_mut(&row) else { return };
        if !matches!(link, Link::Linked(_)) {
            return;
        }
        let Link::Linked(linked) = std::mem::replace(link, Link::Gone) else { return };
        self.unwatch(&mut state, &linked);
        state.rows.retain(|_, other| *other != row);
        state.changes.push(PeerLink::Gone { row, how });
        drop(state);
        if let Gone::CutOff(_) = how {
            linked.sockets.iter().for_each(|(socket, _)| socket.hang_up());
        }
        self.notify(notice::PEERS);
        match how {
            Gone::Left => {
                tell!(info, "a peer left", endpoint = self.name(), row = row);
            }
            Gone::Died => {
                tell!(warn, "a peer died", endpoint = self.name(), row = row);
            }
            Gone::CutOff(_) => {
                tell!(
                    warn,
                    "a peer's memory held an impossible value",
                    endpoint = self.name(),
                    row = row
                );
            }
        }
    }

    fn free_row(&self, row: u32) {
        let mut state = lock(&self.state);
        if matches!(state.links.get(&row), Some(Link::Gone)) {
            state.links.remove(&row);
            state.left.push_back(row);
        }
    }

    fn close(&self) {
        self.domain.remove_endpoint(self.name());
        let mut state = lock(&self.state);
        state.is_closed = true;
        if let Some(claim) = state.claim.take() {
            claim.release(&self.domain.directory);
        }
        for (_, link) in std::mem::take(&mut state.links) {
            if let Link::Linked(linked) = link {
                self.unwatch(&mut state, &linked);
                for (socket, _) in &linked.sockets {
                    // If the frame does not get through, the hang-up tells the peer.
                    let _ = socket.send(&Frame::Leave, &[]);
                }
            }
        }
    }
}

impl Handler for EndpointControl {
    fn on_event(&self, token: Token, _hung_up: bool) {
        let row = lock(&self.state).watched.get(&token).copied();
        if let Some(row) = row
            && let Some(how) = self.look_at(row, token)
        {
            self.drop_link(row, how);
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
        if let Some(Link::Linked(linked)) = lock(&self.state).links.get(&row) {
            linked.bell.ring();
        }
    }
}
