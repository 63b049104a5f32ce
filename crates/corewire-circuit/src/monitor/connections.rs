//! Connections: how neighbours come, and what they say in their control lanes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use corewire::Peer;
use rustix::event::epoll::{self, EventData, EventFlags};

use super::closer::{Handed, Socket, Whose};
use super::connection::{Connection, What};
use super::links::{DataLane, LinkIo, Out};
use super::rings::{PROGRAMS, TRUNK};
use super::shown::{Circuits, Routes};
use super::state::Monitor;
use crate::link::ring::RingLane;
use crate::link::socket::{Any, ControlLane, LaneEnd, UNSENT_BYTES_MAX, receive_frame};
use crate::node::{
    Down, LinkId, Neighbour, Sender, WAITING_BYTES_MAX, WAITING_BYTES_OF_FOREIGN_MAX, Wires,
};
use crate::wire::packet::{OFFER_BYTES_MAX, Packet, Question, Role};
use crate::wire::{Label, data_of_packet};

/// How long a connection may take to become a link.
const LINK_WITHIN: Duration = Duration::from_secs(10);
/// Connections of one foreign user at one time.
const CONNECTIONS_OF_USER_MAX: usize = 64;
/// Bytes of packets that wait for a process of another user. Beyond that its link ends.
const UNSENT_BYTES_OF_FOREIGN_MAX: usize = 8 * WAITING_BYTES_OF_FOREIGN_MAX;
const _: () = assert!(UNSENT_BYTES_MAX == 8 * WAITING_BYTES_MAX);
/// Connections that are accepted before others have their turn.
const ACCEPTED_PER_TURN: usize = 16;
/// Packets of one connection before the others have their turn.
const PACKETS_PER_TURN: usize = 64;

/// A packet with its descriptors, unless this process could not take them.
type Received = (Packet, Option<Vec<Handed>>);

impl Out {
    /// Adds a connection, and watches it.
    pub(crate) fn add(&mut self, socket: corewire::Connection, what: What) -> Option<u64> {
        self.last_key += 1;
        let key = self.last_key;
        let flags = EventFlags::IN | EventFlags::RDHUP;
        let closer = self.closers.of(Whose::User(socket.uid()));
        let socket = Socket::new(socket, closer);
        epoll::add(&self.set, &socket, EventData::new_u64(key), flags).ok()?;
        let is_foreign = socket.uid != corewire_os::process::effective_uid();
        let bytes_max = if is_foreign { UNSENT_BYTES_OF_FOREIGN_MAX } else { UNSENT_BYTES_MAX };
        let lane = ControlLane::with_holders(socket).at_most(bytes_max);
        self.connections.insert(key, Connection { lane, what, is_full: false });
        Some(key)
    }

    /// Ends a connection with a reason.
    pub(crate) fn refuse(&mut self, key: u64, reason: &str) {
        let packet = Packet::Refused { reason: reason.to_owned() };
        self.send(key, &packet, Vec::new());
        if let Some(connection) = self.connections.get_mut(&key) {
            connection.what = What::Closing { until: Instant::now() + LINK_WITHIN };
            if !connection.lane.has_unsent() {
                self.disconnect(key);
            }
        }
    }
}

impl Monitor {
    /// Accepts what waits.
    pub(crate) fn accept(&mut self) {
        // Those that connect all the time must not hold up what is connected.
        for _ in 0..ACCEPTED_PER_TURN {
            let Ok(Some(socket)) = self.listener.try_accept() else { return };
            let uid = socket.uid();
            let of_user = |one: &&Connection| one.lane.socket().uid == uid;
            let count = self.out.connections.values().filter(of_user).count();
            let is_foreign = uid != corewire_os::process::effective_uid();
            let until = Instant::now() + LINK_WITHIN;
            let Some(key) = self.out.add(socket, What::New { until }) else { continue };
            if is_foreign && count >= CONNECTIONS_OF_USER_MAX {
                let reason = format!("user {uid} has {count} connections, as many as it can have");
                self.out.refuse(key, &reason);
            } else if is_foreign && self.out.closers.of(Whose::User(uid)).is_stuck(Instant::now()) {
                let reason = format!("what user {uid} has sent takes too long to close");
                self.out.refuse(key, &reason);
            }
        }
    }

    /// Something has happened on a connection.
    pub(crate) fn serve(&mut self, key: u64, flags: EventFlags) {
        if flags.contains(EventFlags::OUT) {
            self.make_room(key);
        }
        if flags.intersects(EventFlags::IN | EventFlags::HUP | EventFlags::ERR | EventFlags::RDHUP)
        {
            self.read(key);
        }
    }

    /// There is room on a socket.
    fn make_room(&mut self, key: u64) {
        let Some(connection) = self.out.connections.get_mut(&key) else { return };
        connection.is_full = false;
        match connection.lane.flush() {
            Err(_) => self.out.broken.push(key),
            Ok(true) if matches!(connection.what, What::Closing { .. }) => {
                self.out.disconnect(key);
            }
            Ok(_) => self.out.watch(key),
        }
    }

    /// Reads a connection.
    pub(crate) fn read(&mut self, key: u64) {
        for _ in 0..PACKETS_PER_TURN {
            let Some(connection) = self.out.connections.get_mut(&key) else { return };
            if let What::Data(link) = connection.what {
                if !self.read_frame(key, link) {
                    return;
                }
                continue;
            }
            if connection.lane.socket().must_rest() {
                return self.out.hold(key);
            }
            match connection.lane.receive_any() {
                Ok(None) => return,
                Ok(Some(any)) => match self.open(key, any) {
                    Ok(received) => {
                        if let Err(reason) = self.handle_packet(key, received) {
                            return self.cut(key, &reason);
                        }
                    }
                    Err(end) => return self.lane_ended(key, &end),
                },
                Err(end) => return self.lane_ended(key, &end),
            }
        }
    }

    /// Reads a frame of a data lane. False if there is none.
    pub(crate) fn read_frame(&mut self, key: u64, link: LinkId) -> bool {
        let Some(connection) = self.out.connections.get(&key) else { return false };
        let (socket, mut strays) = (connection.lane.socket(), Vec::new());
        let received = receive_frame(socket, &mut self.buffer, &mut strays);
        if !strays.is_empty() {
            drop(Handed::all(strays, socket.closer()));
            self.cut_link(link, "it sent a descriptor with a frame");
            return false;
        }
        let length = match received {
            Ok(None) => return false,
            Ok(Some(length)) => length,
            Err(LaneEnd::Closed) => {
                self.out.note_end(link, key);
                self.out.disconnect(key);
                self.data_ended(link);
                return false;
            }
            Err(end) => {
                self.lane_failed(link, &end);
                return false;
            }
        };
        let Some((label, hop, payload)) = self.buffer.get(..length).and_then(data_of_packet) else {
            self.cut_link(link, "it sent a frame that is none");
            return false;
        };
        if let Err(violation) = self.node.frame(link, label, hop, payload, &mut self.out) {
            self.cut_link(link, &format!("it sent {violation}"));
            return false;
        }
        true
    }

    /// Looks what has come in a control lane, and who closes its descriptors.
    fn open(&mut self, key: u64, any: Any) -> Result<Received, LaneEnd> {
        let Any { packet, descriptors, is_whole } = any;
        let Some(connection) = self.out.connections.get(&key) else { return Err(LaneEnd::Closed) };
        let mut closer = Arc::clone(connection.lane.socket().closer());
        let mut takes_them = is_whole;
        if connection.lane.socket().is_of_monitor()
            && let (What::Control(link), Ok(Packet::Capabilities { to, .. })) =
                (connection.what, &packet)
            && let Some(side) = self.node.sender_of(link, *to)
        {
            closer = self.out.closers.of(match side {
                Sender::Client(uid) => Whose::Client(uid),
                Sender::Service(name) => Whose::Service(name),
            });
            if closer.is_busy() {
                takes_them = false;
                let reason = "closing its capabilities takes too long";
                self.node.end_circuit(link, *to, reason, &mut self.out);
            }
        }
        let rights = Handed::all(descriptors, &closer);
        Ok((packet?, takes_them.then_some(rights)))
    }

    /// Handles a packet of a control lane. The error is the reason to end it.
    fn handle_packet(&mut self, key: u64, (packet, rights): Received) -> Result<(), String> {
        let Some(connection) = self.out.connections.get_mut(&key) else { return Ok(()) };
        let is_trusted = connection.is_trusted();
        match (connection.what, packet) {
            (What::Control(link), Packet::Capabilities { to, is_lost, notes }) => {
                let is_lost = is_lost || rights.is_none();
                let packet = Packet::Capabilities { to, is_lost, notes };
                let rights = rights.unwrap_or_default();
                self.pass(link, packet, rights)
            }
            (What::New { until }, Packet::Attach { role, wants_ring }) => {
                let neighbour = match role {
                    Role::Program => Neighbour::Program(connection.origin()),
                    Role::Monitor(node) if is_trusted && node != self.node.id() => {
                        let closer = self.out.closers.of(Whose::Monitor);
                        connection.lane.socket_mut().set_monitor(closer);
                        Neighbour::Monitor(node)
                    }
                    Role::Monitor(_) => return Err("it is no monitor of this one's user".into()),
                };
                connection.what = What::Waiting { neighbour, until };
                let endpoint = match (wants_ring && is_trusted, role) {
                    (false, _) => String::new(),
                    (true, Role::Program) => self.out.rings[PROGRAMS].endpoint.name().to_owned(),
                    (true, Role::Monitor(_)) => self.out.rings[TRUNK].endpoint.name().to_owned(),
                };
                let secret = self.out.random();
                self.out.secrets.insert(secret, key);
                let packet = Packet::Attached { node: self.node.id(), secret, endpoint };
                self.out.send(key, &packet, Vec::new());
                Ok(())
            }
            (What::New { .. }, Packet::Lane { secret }) => {
                let uid = connection.origin().uid;
                let control = self.out.secrets.get(&secret).copied();
                let is_its = |key: &u64| {
                    let control = self.out.connections.get(key);
                    control.is_some_and(|control| control.origin().uid == uid)
                };
                let control = control.filter(is_its).ok_or("there is no link with this secret")?;
                self.raise(control, DataLane::Socket { key }, secret);
                Ok(())
            }
            (What::Joining { node, .. }, Packet::Ready) => {
                let ring = self.out.joining.remove(&key).ok_or("its ring is gone")?;
                let data = DataLane::Ring { which: TRUNK, ring };
                self.link_up(key, Neighbour::Monitor(node), data);
                Ok(())
            }
            (What::Asking, Packet::Ask(_)) if connection.lane.has_unsent() => {
                Err("it asks again, and has not read the answer".into())
            }
            (What::New { .. } | What::Asking, Packet::Ask(question)) if is_trusted => {
                connection.what = What::Asking;
                self.answer(key, question);
                Ok(())
            }
            (What::New { .. } | What::Asking, Packet::Trace { is_on }) if is_trusted => {
                connection.what = What::Asking;
                self.trace(key, is_on);
                self.out.send(key, &Packet::Ready, Vec::new());
                Ok(())
            }
            (What::Control(link), Packet::Traced) if is_trusted => {
                self.traced(link, rights.unwrap_or_default());
                Ok(())
            }
            (What::New { .. } | What::Asking, Packet::Table(table)) if is_trusted => {
                connection.what = What::Asking;
                let set = self.node.set_table(table, &mut self.out);
                set.map_err(|error| error.to_string())?;
                self.names_have_changed = true;
                self.out.send(key, &Packet::Ready, Vec::new());
                Ok(())
            }
            (What::Control(link), packet) => self.pass(link, packet, Vec::new()),
            (
                What::New { .. } | What::Asking,
                Packet::Ask(_) | Packet::Table(_) | Packet::Trace { .. },
            ) => Err("only the monitor's own user may ask it".into()),
            (What::Joining { .. }, Packet::Refused { .. }) => Err("it refused".into()),
            (What::Closing { .. }, _) => Ok(()),
            _ => Err("it sent a packet out of order".into()),
        }
    }

    /// Gives a packet to the node.
    fn pass(&mut self, link: LinkId, packet: Packet, rights: Vec<Handed>) -> Result<(), String> {
        let is_table = matches!(packet, Packet::Table(_));
        let passed = self.node.packet(link, packet, rights, &mut self.out);
        if is_table {
            self.names_have_changed = true;
        }
        passed.map_err(|violation| format!("it sent {violation}"))
    }

    /// The data lane of a waiting connection has come: the link is up.
    pub(crate) fn raise(&mut self, control: u64, data: DataLane, secret: u64) {
        self.out.secrets.remove(&secret);
        let Some(connection) = self.out.connections.get(&control) else { return };
        let What::Waiting { neighbour, .. } = connection.what else { return };
        self.out.send(control, &Packet::Ready, Vec::new());
        self.link_up(control, neighbour, data);
    }

    fn link_up(&mut self, control: u64, neighbour: Neighbour, data: DataLane) {
        let link = self.node.link_up(neighbour);
        match &data {
            DataLane::Ring { which, ring } => self.out.rings[*which].set(ring.peer(), link),
            DataLane::Socket { key } => {
                if let Some(connection) = self.out.connections.get_mut(key) {
                    connection.what = What::Data(link);
                }
            }
        }
        self.out.put(link, LinkIo { control, data, down: Down::Closed });
        if let Some(connection) = self.out.connections.get_mut(&control) {
            connection.what = What::Control(link);
        }
        self.node.introduce(link, &mut self.out);
        self.trace_too(link, neighbour);
    }

    /// A frame that says hello, in a ring that belongs to no link.
    pub(crate) fn hello(&mut self, which: usize, peer: Peer, label: Label) {
        let secret = label.to_word();
        if let Some(control) = self.out.secrets.get(&secret).copied() {
            let ring = RingLane::new(peer);
            self.raise(control, DataLane::Ring { which, ring }, secret);
        }
    }

    /// A control lane, or one that has not become a link, has ended.
    fn lane_ended(&mut self, key: u64, end: &LaneEnd) {
        let Some(connection) = self.out.connections.get(&key) else { return };
        match connection.what {
            What::Control(link) if *end == LaneEnd::Closed => {
                self.out.note_end(link, key);
                self.out.disconnect(key);
                self.ending.push(link);
            }
            What::Control(link) => self.lane_failed(link, end),
            _ => self.forget(key),
        }
    }

    /// Forgets a connection that is no link.
    pub(crate) fn forget(&mut self, key: u64) {
        self.end_trace_of(key);
        self.out.disconnect(key);
        self.out.give_up_joining(key);
        self.out.secrets.retain(|_, control| *control != key);
        self.names_have_changed = true;
    }

    fn cut(&mut self, key: u64, reason: &str) {
        match self.out.connections.get(&key).and_then(Connection::link) {
            Some(link) => self.cut_link(link, reason),
            None => {
                self.end_trace_of(key);
                self.out.secrets.retain(|_, control| *control != key);
                self.out.give_up_joining(key);
                self.names_have_changed = true;
                self.out.refuse(key, reason);
            }
        }
    }

    /// Ends a link of which a lane cannot be read.
    fn lane_failed(&mut self, link: LinkId, end: &LaneEnd) {
        let reason = end.to_string();
        let down = if let LaneEnd::Os(_) = end { Down::Failed } else { Down::CutOff };
        self.end_link_with(link, &reason, down(reason.clone()));
    }

    /// Ends a link whose neighbour does what it must not, and tells it why.
    pub(crate) fn cut_link(&mut self, link: LinkId, reason: &str) {
        self.end_link_with(link, reason, Down::CutOff(reason.to_owned()));
    }

    fn end_link_with(&mut self, link: LinkId, reason: &str, down: Down) {
        // Its connection may be closed with the link.
        if let Some(control) = self.out.link(link).map(|link| link.control) {
            let packet = Packet::Refused { reason: reason.to_owned() };
            self.out.send(control, &packet, Vec::new());
        }
        if let Some(Some(link)) = self.out.links.get_mut(link.index()) {
            link.down = down;
        }
        self.link_down(link);
    }

    /// A data lane has ended: so does the link, once what is left in its control lane has been read.
    pub(crate) fn data_ended(&mut self, link: LinkId) {
        if let Some(control) = self.out.link(link).map(|link| link.control) {
            self.out.note_end(link, control);
            self.out.take_no_more(control);
            while let Some(connection) = self.out.connections.get_mut(&control) {
                if connection.lane.socket().must_rest() {
                    self.out.hold(control);
                    self.unread.push(link);
                    return;
                }
                let Ok(Some(any)) = connection.lane.receive_any() else { break };
                let Ok(received) = self.open(control, any) else { break };
                if self.handle_packet(control, received).is_err() {
                    break;
                }
            }
        }
        self.link_down(link);
    }

    /// Reads again what was not read while its users' closers were behind.
    pub(crate) fn release_held(&mut self) {
        self.out.release_held();
        for link in std::mem::take(&mut self.unread) {
            self.data_ended(link);
        }
    }

    /// A link has ended.
    pub(crate) fn link_down(&mut self, link: LinkId) {
        self.ending.retain(|ending| *ending != link);
        self.unread.retain(|unread| *unread != link);
        self.keep_trace_of(link);
        let down = self.out.link(link).map_or(Down::Closed, |link| link.down.clone());
        self.node.link_down(link, &down, &mut self.out);
        if let Some(control) = self.out.remove(link)
            && let Some(connection) = self.out.connections.get_mut(&control)
        {
            connection.what = What::Closing { until: Instant::now() + LINK_WITHIN };
            if !connection.lane.has_unsent() {
                self.out.disconnect(control);
            }
        }
        self.names_have_changed = true;
    }

    fn answer(&mut self, key: u64, question: Question) {
        let json = match question {
            Question::Traces => return self.show_traces(key),
            Question::Circuits => serde_json::to_vec(&Circuits::of(&self.node)),
            Question::Routes => {
                let lane_of = |link| match self.out.link(link).map(|link| &link.data) {
                    Some(DataLane::Ring { .. }) => "ring",
                    _ => "socket",
                };
                serde_json::to_vec(&Routes::of(&self.node, lane_of))
            }
        };
        let json = json.unwrap_or_default();
        let mut parts = json.chunks(OFFER_BYTES_MAX).peekable();
        while let Some(part) = parts.next() {
            let is_last = parts.peek().is_none();
            self.out.send(key, &Packet::Answer { is_last, part: part.to_vec() }, Vec::new());
        }
    }

    /// Ends connections that have not become a link in time, and those of which something takes too long to close.
    pub(crate) fn expire(&mut self, now: Instant) {
        self.release_held();
        let is_stuck = |key: &u64| {
            let connection = self.out.connections.get(key);
            connection.is_some_and(|one| {
                let is_closing = matches!(one.what, What::Closing { .. });
                !is_closing && one.lane.socket().closer().is_stuck(now)
            })
        };
        for key in self.out.held.iter().copied().filter(is_stuck).collect::<Vec<_>>() {
            self.cut(key, "what it has sent takes too long to close");
        }
        let late = self.out.connections.iter().filter(|(_, one)| match one.what {
            What::New { until }
            | What::Waiting { until, .. }
            | What::Joining { until, .. }
            | What::Closing { until } => until <= now,
            What::Control(_) | What::Data(_) | What::Asking => false,
        });
        let late = late.map(|(key, one)| (*key, matches!(one.what, What::Closing { .. })));
        for (key, is_closing) in late.collect::<Vec<_>>() {
            match is_closing {
                // It does not read why.
                true => self.out.disconnect(key),
                false => self.cut(key, "it has not become a link in time"),
            }
        }
    }
}
