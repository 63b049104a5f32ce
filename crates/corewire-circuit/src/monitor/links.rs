//! What carries a node's frames and packets: rings and sockets.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::os::fd::OwnedFd;
use std::time::Duration;

use corewire::Peer;
use corewire_layout::name::ChannelName;
use corewire_os::report::Report;
use rustix::event::epoll::{self, EventData};
use rustix::net::{Shutdown, shutdown};

use super::closer::{Closers, Handed};
use super::connection::Connection;
use super::rings::{Rings, TRUNK};
use crate::link::ring::RingLane;
use crate::link::socket::send_frame;
use crate::link::trace;
use crate::node::{Down, LinkId, Wires};
use crate::wire::packet::Packet;
use crate::wire::trace::{Kind, Point};
use crate::wire::{Hop, Label};

/// Descriptors that may wait for one neighbour; one packet may have more. All neighbours together leave half of what the
/// monitor can open.
const DESCRIPTORS_MAX: usize = 253;

/// The data lane of a link.
#[derive(Debug)]
pub(crate) enum DataLane {
    /// In one of the endpoints.
    Ring { which: usize, ring: RingLane },
    /// A connection of its own.
    Socket { key: u64 },
}

/// A link of the node.
#[derive(Debug)]
pub(crate) struct LinkIo {
    /// The connection of its control lane.
    pub(crate) control: u64,
    pub(crate) data: DataLane,
    /// How it ends, once one of its connections has ended.
    pub(crate) down: Down,
}

/// How long a process may take to end after its sockets where the kernel does not show that it is ending, as of a process
/// in a PID namespace of its own. The thread waits meanwhile, so it is less than for others.
const ENDS_WITHIN: Duration = Duration::from_millis(2);

impl LinkIo {
    /// Whether a frame waits for room in its ring.
    const fn is_stuck(&self) -> bool {
        matches!(&self.data, DataLane::Ring { ring, .. } if ring.is_full())
    }
}

/// Everything that a node sends through.
pub(crate) struct Out {
    pub(crate) rings: [Rings; 2],
    pub(crate) links: Vec<Option<LinkIo>>,
    pub(crate) connections: HashMap<u64, Connection>,
    pub(crate) set: OwnedFd,
    pub(crate) closers: Closers,
    /// Connections that are not read: what they have sent must be closed first.
    pub(crate) held: BTreeSet<u64>,
    pub(crate) last_key: u64,
    pub(crate) stuck_count: usize,
    pub(crate) randoms: Vec<u64>,
    /// Connections whose data lane has not come, by their secrets.
    pub(crate) secrets: HashMap<u64, u64>,
    /// Rings to monitors that have not said that they are ready, by the connection.
    pub(crate) joining: HashMap<u64, RingLane>,
    /// Connections that failed while something was sent.
    pub(crate) broken: Vec<u64>,
    /// Where the last frame went.
    pub(crate) last_sent: Option<(usize, Peer)>,
    /// The frame that is handled, while a trace is recorded.
    pub(crate) traced: Traced,
    /// Links that neither side needs.
    pub(crate) unneeded: Vec<LinkId>,
    pub(crate) report: Report,
    /// Sentences about services that were refused. Programs ask again and again.
    pub(crate) reported: HashSet<String>,
}

/// What is recorded of the frame that is handled.
#[derive(Debug, Default)]
pub(crate) struct Traced {
    pub(crate) is_on: bool,
    pub(crate) came: Option<Point>,
    pub(crate) went: Option<(Point, u16, usize)>,
}

/// How many sentences are reported until the policy changes: clients choose the names, and nobody may read them.
const REPORTED_MAX: usize = 64;

impl Out {
    /// Reports once that a program may not serve a name.
    fn report_refused(&mut self, name: &str, reason: &str) {
        let text = match ChannelName::new(name) {
            Ok(name) => format!("service {name} is not served by circuits: {reason}"),
            Err(_) => format!("a service is not served by circuits: {reason}"),
        };
        if self.reported.len() < REPORTED_MAX && !self.reported.contains(&text) {
            (self.report.0)(&text);
            self.reported.insert(text);
            if self.reported.len() == REPORTED_MAX {
                (self.report.0)("no more of these are reported until the policy changes");
            }
        }
    }

    pub(crate) fn link(&self, link: LinkId) -> Option<&LinkIo> {
        self.links.get(link.index())?.as_ref()
    }

    /// Looks whether frames that found no room have been sent. True if one has: there may be room for more.
    pub(crate) fn look_at_stuck(&mut self) -> bool {
        let stuck_count = self.stuck_count;
        for link in self.links.iter_mut().flatten() {
            let DataLane::Ring { which, ring } = &mut link.data else { continue };
            let Some(rings) = self.rings.get_mut(*which) else { continue };
            self.stuck_count -= usize::from(ring.has_room_again(&mut rings.endpoint));
        }
        self.stuck_count < stuck_count
    }

    /// Whether the neighbour that got the last frame runs on this core.
    pub(crate) fn has_sent_here(&self) -> bool {
        let sent = self.last_sent.and_then(|(which, peer)| Some((self.rings.get(which)?, peer)));
        sent.is_some_and(|(rings, peer)| rings.endpoint.is_on_this_core(peer))
    }

    /// Records what was done with a frame that came.
    #[cold]
    pub(crate) fn record(&mut self, began: u64, ordinal: u16, bytes: usize) {
        let (came, went) = (self.traced.came.take(), self.traced.went.take());
        match (came, went) {
            (Some(_), Some((went, _, _))) => {
                trace::end(began, Kind::Forward, [came, Some(went)], ordinal, bytes);
            }
            (Some(_), None) => trace::end(began, Kind::Store, [came, None], ordinal, bytes),
            (None, _) => {}
        }
    }

    /// A connection of a link is closed: notes whether its process has died. To be called while the connection is there.
    pub(crate) fn note_end(&mut self, link: LinkId, key: u64) {
        let Some(connection) = self.connections.get(&key) else { return };
        let socket = connection.lane.socket();
        let has_died = corewire_os::socket::is_peer_ending(socket, socket.pid, ENDS_WITHIN);
        if let Some(Some(link)) = self.links.get_mut(link.index())
            && link.down == Down::Closed
            && has_died
        {
            link.down = Down::Died;
        }
    }

    /// Adds a link.
    pub(crate) fn put(&mut self, link: LinkId, io: LinkIo) {
        if self.links.len() <= link.index() {
            self.links.resize_with(link.index() + 1, || None);
        }
        // Its hello may wait for room.
        self.stuck_count += usize::from(io.is_stuck());
        self.links[link.index()] = Some(io);
    }

    /// A connection to another monitor becomes no link.
    pub(crate) fn give_up_joining(&mut self, key: u64) {
        if let Some(ring) = self.joining.remove(&key) {
            ring.abandon(&mut self.rings[TRUNK].endpoint);
        }
    }

    /// Forgets a link, and closes its data lane. The connection of its control lane is left.
    pub(crate) fn remove(&mut self, link: LinkId) -> Option<u64> {
        let removed = self.links.get_mut(link.index())?.take()?;
        self.stuck_count -= usize::from(removed.is_stuck());
        match removed.data {
            DataLane::Ring { which, ring } => {
                if let Some(rings) = self.rings.get_mut(which) {
                    rings.forget(link);
                    ring.abandon(&mut rings.endpoint);
                }
            }
            DataLane::Socket { key } => self.disconnect(key),
        }
        Some(removed.control)
    }

    /// Sends a packet on a connection, or keeps it.
    pub(crate) fn send(&mut self, key: u64, packet: &Packet, rights: Vec<Handed>) {
        let Some(connection) = self.connections.get(&key) else { return };
        let waiting = connection.lane.unsent_descriptors();
        if let Packet::Capabilities { to, notes, .. } = packet
            && !rights.is_empty()
            && (waiting > 0 && waiting + rights.len() > DESCRIPTORS_MAX
                || connection.lane.has_unsent() && self.has_half_of_descriptors())
        {
            // Neighbours that do not read must not use up this process's descriptors.
            let lost = Packet::Capabilities { to: *to, is_lost: true, notes: notes.clone() };
            return self.send(key, &lost, Vec::new());
        }
        let Some(connection) = self.connections.get_mut(&key) else { return };
        if connection.lane.send(packet, rights).is_err() {
            self.broken.push(key);
        } else if connection.lane.has_unsent() {
            self.watch(key);
        }
    }

    /// Whether half of the descriptors that this process can open wait for neighbours.
    #[cold]
    fn has_half_of_descriptors(&self) -> bool {
        let all = self.connections.values().map(|one| one.lane.unsent_descriptors());
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        limit.is_some_and(|limit| all.sum::<usize>() as u64 * 2 > limit)
    }

    /// Forgets a connection. Its socket may be closed later, and is not watched any more.
    pub(crate) fn disconnect(&mut self, key: u64) {
        if let Some(connection) = self.connections.remove(&key)
            && !self.held.remove(&key)
        {
            let _ = epoll::delete(&self.set, connection.lane.socket());
        }
    }

    /// Reads a connection no more until what its user has sent has been closed.
    pub(crate) fn hold(&mut self, key: u64) {
        if let Some(connection) = self.connections.get(&key)
            && self.held.insert(key)
        {
            let _ = epoll::delete(&self.set, connection.lane.socket());
        }
    }

    /// Reads connections again whose users' closers have caught up.
    pub(crate) fn release_held(&mut self) {
        for key in std::mem::take(&mut self.held) {
            let Some(connection) = self.connections.get_mut(&key) else { continue };
            // Whatever it has sent, it is sent what is due.
            if connection.lane.flush().is_err() {
                self.broken.push(key);
            }
            let (socket, flags) = (connection.lane.socket(), connection.flags());
            if socket.must_rest() {
                self.held.insert(key);
            } else if epoll::add(&self.set, socket, EventData::new_u64(key), flags).is_err() {
                self.broken.push(key);
            }
        }
    }

    /// Lets the peer of a connection send nothing more: what it has sent can be read to the end.
    pub(crate) fn take_no_more(&self, key: u64) {
        if let Some(connection) = self.connections.get(&key) {
            let _ = shutdown(connection.lane.socket(), Shutdown::Read);
        }
    }

    /// Watches a connection for what it waits for.
    pub(crate) fn watch(&mut self, key: u64) {
        let Some(connection) = self.connections.get(&key) else { return };
        let (data, flags) = (EventData::new_u64(key), connection.flags());
        if !self.held.contains(&key)
            && epoll::modify(&self.set, connection.lane.socket(), data, flags).is_err()
        {
            self.broken.push(key);
        }
    }
}

impl Wires for Out {
    type Rights = Vec<Handed>;

    #[inline]
    fn frame(&mut self, link: LinkId, label: Label, hop: Hop, payload: &[u8]) -> bool {
        let Some(Some(io)) = self.links.get_mut(link.index()) else { return true };
        match &mut io.data {
            DataLane::Ring { which, ring } => {
                let Some(rings) = self.rings.get_mut(*which) else { return true };
                let is_taken = ring.frame(&mut rings.endpoint, label, hop, payload);
                self.last_sent = Some((*which, ring.peer()));
                // It is taken even if it is kept: then it is the last one for now.
                self.stuck_count += usize::from(is_taken && ring.is_full());
                is_taken
            }
            &mut DataLane::Socket { key } => {
                let Some(connection) = self.connections.get_mut(&key) else { return true };
                if connection.is_full {
                    return false;
                }
                match send_frame(connection.lane.socket(), label, hop, payload) {
                    Ok(true) => true,
                    Ok(false) => {
                        connection.is_full = true;
                        self.watch(key);
                        false
                    }
                    Err(_) => {
                        self.broken.push(key);
                        true
                    }
                }
            }
        }
    }

    fn packet(&mut self, link: LinkId, packet: Packet, rights: Vec<Handed>) {
        if let Packet::Exported { name, reason } = &packet
            && !reason.is_empty()
        {
            self.report_refused(name, reason);
        }
        if let Some(key) = self.link(link).map(|link| link.control) {
            self.send(key, &packet, rights);
        }
    }

    fn close(&mut self, link: LinkId) {
        self.unneeded.push(link);
    }

    #[inline]
    fn received(&mut self, label: Label, lines: u32) {
        if self.traced.is_on {
            self.traced.came = Some(Point { label: label.to_word(), lines });
        }
    }

    #[inline]
    fn sent(&mut self, label: Label, lines: u32, ordinal: u16, bytes: usize) {
        if self.traced.is_on {
            let went = Point { label: label.to_word(), lines };
            if self.traced.came.is_some() && self.traced.went.is_none() {
                self.traced.went = Some((went, ordinal, bytes));
            } else {
                trace::end(trace::begin(), Kind::Resume, [None, Some(went)], ordinal, bytes);
            }
        }
    }

    fn waiting_bytes(&self, link: LinkId) -> usize {
        let connection = self.link(link).and_then(|link| self.connections.get(&link.control));
        connection.map_or(0, |connection| connection.lane.unsent_bytes())
    }

    fn random(&mut self) -> u64 {
        if let Some(random) = self.randoms.pop() {
            return random;
        }
        let mut bytes = [0; 1024];
        // It does not fail once the system has started.
        let _ = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
        let words = bytes.chunks_exact(8).filter_map(|word| word.first_chunk());
        self.randoms.extend(words.map(|word| u64::from_le_bytes(*word)));
        self.randoms.pop().unwrap_or_default()
    }
}
