//! Parties, lanes, and what must be true of them.
//!
//! More than 600 lines, because every step of the world is checked against all that the world holds.

use std::collections::{BTreeMap, VecDeque};

use corewire_circuit::ends::{Arrival, Ends, Head, Lane};
use corewire_circuit::node::{Config, Down, LinkId, Mistake, Neighbour, Node, Policy, Wires};
use corewire_circuit::wire::packet::{End, Origin, Packet, Reset, Setup, Table};
use corewire_circuit::wire::{Hop, Label, NodeId, NodeSet, lines_of};

use crate::circuits::random::Random;

/// A monitor or a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Party {
    /// A monitor, by its number.
    Monitor(usize),
    /// A program, by its number.
    Program(usize),
}

/// A frame in a data lane.
type Frame = (Label, Hop, Vec<u8>);

/// Both lanes of a link in one direction.
#[derive(Debug, Clone, Default, Hash)]
struct Lanes {
    data: VecDeque<Frame>,
    control: VecDeque<Packet>,
}

/// A link.
#[derive(Debug, Clone, Hash)]
struct Edge {
    parties: [Party; 2],
    /// What the parties call it; a program calls it nothing.
    links: [Option<LinkId>; 2],
    /// Towards each party.
    lanes: [Lanes; 2],
    is_alive: bool,
    /// Whether each party has seen that it is not.
    has_seen: [bool; 2],
    frames_max: usize,
    /// One side has ended it because neither needs it: what it had sent arrives.
    is_closed: bool,
}

/// One end of a circuit, as its program sees it.
#[derive(Debug, Clone, Hash)]
struct EndState {
    program: usize,
    /// Its index among the program's ends, as long as it has one.
    index: Option<u32>,
    sent: u32,
    received: u32,
    /// Lines of messages that the program has not taken.
    untaken: Vec<u32>,
    has_closed: bool,
    has_finished: bool,
    ended: Option<End>,
}

impl EndState {
    const NOBODY: Self = Self {
        program: 0,
        index: None,
        sent: 0,
        received: 0,
        untaken: Vec::new(),
        has_closed: false,
        has_finished: false,
        ended: None,
    };
}

/// A circuit, as the oracle sees it.
#[derive(Debug, Clone, Hash)]
struct Track {
    client: EndState,
    /// Ends of services. There are several if a link broke on the way of an acceptance: then another way was tried.
    services: Vec<EndState>,
    /// The one that the client talks to, as soon as it has heard of it.
    real: Option<usize>,
    is_accepted: bool,
}

impl Track {
    /// Which end is meant by a side.
    fn which(&self, side: usize) -> Option<usize> {
        (side == 1).then(|| self.real.unwrap_or(self.services.len().saturating_sub(1)))
    }

    fn end(&self, which: Option<usize>) -> &EndState {
        static NOBODY: EndState = EndState::NOBODY;
        match which {
            None => &self.client,
            Some(service) => self.services.get(service).unwrap_or(&NOBODY),
        }
    }

    fn end_mut(&mut self, which: Option<usize>) -> Option<&mut EndState> {
        match which {
            None => Some(&mut self.client),
            Some(service) => self.services.get_mut(service),
        }
    }

    /// The client has heard of this service.
    fn hear_of(&mut self, service: usize) {
        assert!(self.real.is_none_or(|real| real == service), "it talks to two services");
        self.real = Some(service);
    }
}

#[derive(Debug, Clone)]
struct Program {
    ends: Ends,
    edge: Option<usize>,
    /// Requests that it has not answered: which circuit, and what came.
    waiting: VecDeque<(usize, Setup)>,
    /// The circuit of each of its ends.
    circuit_of: BTreeMap<u32, (usize, Option<usize>)>,
    is_alive: bool,
}

/// What the simulator has seen.
#[derive(Debug, Clone, Copy, Default)]
pub struct Seen {
    /// Messages that arrived.
    pub messages: u64,
    /// Circuits that were accepted.
    pub accepted: u64,
    /// Circuits that both ends left by themselves.
    pub graceful: u64,
    /// Circuits that ended otherwise.
    pub broken: u64,
    /// Links that ended because neither side needed them.
    pub closed: u64,
}

/// Monitors, programs, and links.
#[derive(Debug, Clone)]
pub struct World {
    nodes: Vec<Option<Node>>,
    /// The edge of each link of each monitor.
    edges_of: Vec<BTreeMap<LinkId, usize>>,
    programs: Vec<Program>,
    edges: Vec<Edge>,
    tracks: Vec<Track>,
    random: Random,
    epoch: u64,
    mistake: Option<Mistake>,
    lines_max: usize,
    /// What has been seen.
    pub seen: Seen,
}

/// The part of a world that a party sends through.
struct Out<'a> {
    edges: &'a mut [Edge],
    of: &'a BTreeMap<LinkId, usize>,
    from: Party,
    random: &'a mut Random,
    closed: Vec<LinkId>,
}

impl Wires for Out<'_> {
    type Rights = ();

    fn frame(&mut self, link: LinkId, label: Label, hop: Hop, payload: &[u8]) -> bool {
        let Some(edge) = self.of.get(&link).and_then(|edge| self.edges.get_mut(*edge)) else {
            return true;
        };
        edge.put_frame(self.from, (label, hop, payload.to_vec()))
    }

    fn packet(&mut self, link: LinkId, packet: Packet, (): ()) {
        if let Some(edge) = self.of.get(&link).and_then(|edge| self.edges.get_mut(*edge)) {
            edge.put_packet(self.from, packet);
        }
    }

    fn close(&mut self, link: LinkId) {
        self.closed.push(link);
    }

    fn random(&mut self) -> u64 {
        self.random.next()
    }
}

/// A program's way to its monitor.
struct ProgramLane<'a>(&'a mut Edge, Party);

impl Lane for ProgramLane<'_> {
    fn frame(&mut self, label: Label, hop: Hop, payload: &[u8]) -> bool {
        self.0.put_frame(self.1, (label, hop, payload.to_vec()))
    }
}

impl Edge {
    fn side(&self, party: Party) -> usize {
        usize::from(self.parties[1] == party)
    }

    /// The lanes from a party to the other one.
    fn lanes_from(&mut self, party: Party) -> &mut Lanes {
        let other = 1 - self.side(party);
        &mut self.lanes[other]
    }

    fn put_frame(&mut self, from: Party, frame: Frame) -> bool {
        if !self.is_alive {
            return true;
        }
        let frames_max = self.frames_max;
        let lane = &mut self.lanes_from(from).data;
        if lane.len() >= frames_max {
            return false;
        }
        lane.push_back(frame);
        true
    }

    fn put_packet(&mut self, from: Party, packet: Packet) {
        if self.is_alive {
            // Through bytes, as on a socket.
            let parsed = Packet::parse(&packet.to_bytes());
            assert_eq!(parsed.as_ref(), Ok(&packet));
            self.lanes_from(from).control.push_back(packet);
        }
    }
}

/// The bytes of a message: which circuit, which end sends it, and which of its messages it is.
fn message(circuit: usize, from: Option<usize>, number: u32, length: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(length + 12);
    bytes.extend(u32::try_from(circuit).unwrap().to_le_bytes());
    bytes.extend(from.map_or(0, |service| u32::try_from(service).unwrap() + 1).to_le_bytes());
    bytes.extend(number.to_le_bytes());
    bytes.resize(12 + length, 0xab);
    bytes
}

impl World {
    /// Monitors, with `lines_max` lines each and no links.
    #[must_use]
    pub fn new(monitors: usize, lines_max: usize, seed: u64, mistake: Option<Mistake>) -> Self {
        let mut world = Self {
            nodes: Vec::new(),
            edges_of: vec![BTreeMap::new(); monitors],
            programs: Vec::new(),
            edges: Vec::new(),
            tracks: Vec::new(),
            random: Random::new(seed),
            epoch: 0,
            mistake,
            lines_max,
            seen: Seen::default(),
        };
        for number in 0..monitors {
            world.nodes.push(None);
            world.start_monitor(number);
        }
        world
    }

    /// Starts a monitor that does not run.
    ///
    /// # Panics
    /// A number is too large, or a promise is broken.
    pub fn start_monitor(&mut self, number: usize) {
        self.epoch += 1 << 20;
        let policy = Policy { owner: 0, rules: Vec::new() };
        let mut config = Config::new(NodeId::new(number).unwrap(), policy, self.epoch);
        config.lines_max = self.lines_max;
        config.mistake = self.mistake;
        self.nodes[number] = Some(Node::new(config));
        self.edges_of[number].clear();
    }

    /// Whether a monitor runs.
    #[must_use]
    pub fn is_running(&self, monitor: usize) -> bool {
        self.nodes[monitor].is_some()
    }

    /// A monitor.
    #[must_use]
    pub fn node(&self, monitor: usize) -> Option<&Node> {
        self.nodes[monitor].as_ref()
    }

    /// How many circuits there have been.
    #[must_use]
    pub const fn circuits(&self) -> usize {
        self.tracks.len()
    }

    /// Calls a monitor.
    fn with_node<R>(
        &mut self,
        number: usize,
        call: impl FnOnce(&mut Node, &mut Out<'_>) -> R,
    ) -> Option<R> {
        let node = self.nodes[number].as_mut()?;
        let mut out = Out {
            edges: &mut self.edges,
            of: &self.edges_of[number],
            from: Party::Monitor(number),
            random: &mut self.random,
            closed: Vec::new(),
        };
        let result = call(node, &mut out);
        for link in out.closed {
            let Some(edge) = self.edges_of[number].get(&link).copied() else { continue };
            let of = &mut self.edges[edge];
            (of.is_alive, of.is_closed) = (false, true);
            let side = of.side(Party::Monitor(number));
            self.see_break(edge, side);
            self.seen.closed += 1;
        }
        Some(result)
    }

    /// A monitor that runs ends links that its table does not need.
    ///
    /// # Panics
    /// A number is too large, or a promise is broken.
    pub fn close_unneeded(&mut self, monitor: usize) {
        let is_running = |number: &usize| self.is_running(*number);
        let running = (0..self.nodes.len()).filter(is_running);
        let running = running.map(|number| NodeId::new(number).unwrap()).collect();
        self.with_node(monitor, |node, out| node.close_unneeded(running, out));
    }

    fn add_edge(&mut self, parties: [Party; 2], frames_max: usize) -> usize {
        let edge = Edge {
            parties,
            links: [None; 2],
            lanes: Default::default(),
            is_alive: true,
            has_seen: [false; 2],
            frames_max,
            is_closed: false,
        };
        self.edges.push(edge);
        self.edges.len() - 1
    }

    fn raise_link(&mut self, edge: usize, side: usize, neighbour: Neighbour) {
        let Party::Monitor(number) = self.edges[edge].parties[side] else { return };
        let Some(node) = self.nodes[number].as_mut() else { return };
        let link = node.link_up(neighbour);
        self.edges_of[number].insert(link, edge);
        self.edges[edge].links[side] = Some(link);
        self.with_node(number, |node, out| node.introduce(link, out));
    }

    /// Joins two monitors that run.
    ///
    /// # Panics
    /// A number is too large, or a promise is broken.
    pub fn join(&mut self, one: usize, other: usize, frames_max: usize) -> usize {
        let edge = self.add_edge([Party::Monitor(one), Party::Monitor(other)], frames_max);
        self.raise_link(edge, 0, Neighbour::Monitor(NodeId::new(other).unwrap()));
        self.raise_link(edge, 1, Neighbour::Monitor(NodeId::new(one).unwrap()));
        edge
    }

    /// Starts a program at a monitor that runs.
    ///
    /// # Panics
    /// A number is too large, or a promise is broken.
    pub fn start_program(&mut self, monitor: usize, frames_max: usize) -> usize {
        let number = self.programs.len();
        let edge = self.add_edge([Party::Program(number), Party::Monitor(monitor)], frames_max);
        self.programs.push(Program {
            ends: Ends::default(),
            edge: Some(edge),
            waiting: VecDeque::new(),
            circuit_of: BTreeMap::new(),
            is_alive: true,
        });
        let origin = Origin { uid: 0, gid: 0, pid: u32::try_from(number).unwrap() + 1 };
        self.raise_link(edge, 1, Neighbour::Program(origin));
        number
    }

    /// Whether a program runs.
    #[must_use]
    pub fn is_program_running(&self, program: usize) -> bool {
        self.programs[program].is_alive && self.programs[program].edge.is_some()
    }

    /// A program serves a name.
    pub fn export(&mut self, program: usize, name: &str) {
        if let Some(edge) = self.programs[program].edge {
            let packet = Packet::Export { name: name.to_owned() };
            self.edges[edge].put_packet(Party::Program(program), packet);
        }
    }

    /// Gives a monitor a routing table.
    ///
    /// # Panics
    /// A number is too large, or a promise is broken.
    pub fn set_table(&mut self, monitor: usize, table: Table) {
        self.with_node(monitor, |node, out| node.set_table(table, out).unwrap());
    }

    /// A program asks for a circuit to a name. Returns the circuit's number.
    ///
    /// # Panics
    /// A number is too large, or a promise is broken.
    pub fn open(&mut self, program: usize, name: &str) -> Option<usize> {
        let edge = self.programs[program].edge?;
        let circuit = self.tracks.len();
        let random = self.random.next();
        let party = &mut self.programs[program];
        let index = party.ends.open(random, 1 << 20)?;
        party.circuit_of.insert(index, (circuit, None));
        let (label, credit) = party.ends.greeting(index);
        let setup = Setup {
            label,
            credit,
            service: name.to_owned(),
            node: None,
            origin: Origin::default(),
            path: Vec::new(),
            visited: NodeSet::default(),
            offer: u32::try_from(circuit).unwrap().to_le_bytes().to_vec(),
        };
        self.edges[edge].put_packet(Party::Program(program), Packet::Setup(Box::new(setup)));
        let client = EndState { program, index: Some(index), ..EndState::NOBODY };
        let (services, real) = (Vec::new(), None);
        self.tracks.push(Track { client, services, real, is_accepted: false });
        Some(circuit)
    }

    /// Whether a program has requests that it has not answered.
    #[must_use]
    pub fn has_waiting(&self, program: usize) -> bool {
        self.programs[program].is_alive && !self.programs[program].waiting.is_empty()
    }

    /// A program answers the oldest request.
    ///
    /// # Panics
    /// A number is too large, or a promise is broken.
    pub fn answer(&mut self, program: usize, accepts: bool) {
        let random = self.random.next();
        let party = &mut self.programs[program];
        let (Some(edge), Some((circuit, setup))) = (party.edge, party.waiting.pop_front()) else {
            return;
        };
        let packet = if accepts {
            let index = party.ends.opened(random, setup.label, setup.credit, 1 << 20).unwrap();
            let services = &mut self.tracks[circuit].services;
            party.circuit_of.insert(index, (circuit, Some(services.len())));
            let answer = u32::try_from(services.len()).unwrap().to_le_bytes().to_vec();
            services.push(EndState { program, index: Some(index), ..EndState::NOBODY });
            let (label, credit) = party.ends.greeting(index);
            let origin = Origin::default();
            Packet::Accept { to: setup.label, label, credit, origin, answer }
        } else {
            let (to, from) = (setup.label, Label::NONE);
            let (end, reason, visited) = (End::Refused, String::new(), NodeSet::default());
            Packet::Reset(Box::new(Reset { to, from, after: None, end, visited, reason }))
        };
        self.edges[edge].put_packet(Party::Program(program), packet);
    }

    fn end(&self, circuit: usize, side: usize) -> &EndState {
        let track = &self.tracks[circuit];
        track.end(track.which(side))
    }

    fn end_mut(&mut self, circuit: usize, side: usize) -> Option<&mut EndState> {
        let track = &mut self.tracks[circuit];
        track.end_mut(track.which(side))
    }

    /// Whether an end can send.
    #[must_use]
    pub fn can_send(&self, circuit: usize, side: usize) -> bool {
        let end = self.end(circuit, side);
        let is_ready = side == 1 || self.tracks[circuit].is_accepted;
        end.index.is_some() && is_ready && !end.has_finished && end.ended.is_none()
    }

    /// Whether an end is there at all.
    #[must_use]
    pub fn has_end(&self, circuit: usize, side: usize) -> bool {
        self.end(circuit, side).index.is_some()
    }

    /// Messages that an end has sent.
    #[must_use]
    pub fn sent(&self, circuit: usize, side: usize) -> u32 {
        self.end(circuit, side).sent
    }

    /// An end sends its next message.
    pub fn send(&mut self, circuit: usize, side: usize, length: usize) {
        if !self.can_send(circuit, side) {
            return;
        }
        let which = self.tracks[circuit].which(side);
        let Some(end) = self.end_mut(circuit, side) else { return };
        let (program, Some(index)) = (end.program, end.index) else { return };
        let bytes = message(circuit, which, end.sent, length);
        end.sent += 1;
        let Some(edge) = self.programs[program].edge else { return };
        let mut lane = ProgramLane(&mut self.edges[edge], Party::Program(program));
        let ends = &mut self.programs[program].ends;
        let head = Head { ordinal: 1, ..Head::default() };
        if !ends.try_send(index, head, &bytes, &mut lane) {
            ends.queue(index, head, bytes);
        }
    }

    /// An end sends capabilities of so many messages, and none of the messages.
    pub fn send_capabilities_alone(&mut self, circuit: usize, side: usize, count: usize) {
        let end = self.end(circuit, side);
        let (program, Some(index)) = (end.program, end.index) else { return };
        let party = &self.programs[program];
        let (Some(edge), to) = (party.edge, party.ends.label_of(index)) else { return };
        for _ in 0..count {
            let packet = Packet::Capabilities { to, is_lost: true, notes: Vec::new() };
            self.edges[edge].put_packet(Party::Program(program), packet);
        }
    }

    /// An end sends nothing more.
    pub fn finish(&mut self, circuit: usize, side: usize) {
        if !self.can_send(circuit, side) {
            return;
        }
        let Some(end) = self.end_mut(circuit, side) else { return };
        end.has_finished = true;
        let (program, index) = (end.program, end.index);
        if let Some(index) = index {
            self.programs[program].ends.finish(index);
        }
    }

    /// An end takes the messages that wait for it.
    pub fn take(&mut self, circuit: usize, side: usize) {
        let Some(end) = self.end_mut(circuit, side) else { return };
        let untaken = std::mem::take(&mut end.untaken);
        let (program, index) = (end.program, end.index);
        if let Some(index) = index {
            let ends = &mut self.programs[program].ends;
            untaken.into_iter().for_each(|lines| ends.release(index, lines));
        }
    }

    /// Whether messages wait for an end to take them.
    #[must_use]
    pub fn has_untaken(&self, circuit: usize, side: usize) -> bool {
        !self.end(circuit, side).untaken.is_empty()
    }

    /// An end forgets the circuit.
    pub fn close(&mut self, circuit: usize, side: usize) {
        let which = self.tracks[circuit].which(side);
        self.close_end(circuit, which);
    }

    fn close_end(&mut self, circuit: usize, which: Option<usize>) {
        let Some(end) = self.tracks[circuit].end_mut(which) else { return };
        let Some(index) = end.index.take() else { return };
        end.has_closed = true;
        let party = &mut self.programs[end.program];
        party.circuit_of.remove(&index);
        // What waits goes with it, and what has gone in part.
        let (_, unsent) = party.ends.unsent(index);
        let fin = usize::from(end.has_finished && unsent > 0);
        end.sent -= u32::try_from(unsent - fin).unwrap();
        let reset = party.ends.close(index, End::Closed, "closed");
        if let (Some(edge), Some(reset)) = (party.edge, reset) {
            let from = Party::Program(end.program);
            self.edges[edge].put_packet(from, Packet::Reset(Box::new(reset)));
        }
    }

    /// How many links there have been.
    #[must_use]
    pub const fn edges(&self) -> usize {
        self.edges.len()
    }

    /// Whether something is on its way on a link towards a party, in the control lane (0) or the data lane (1).
    #[must_use]
    pub fn has_on_way(&self, edge: usize, side: usize, lane: usize) -> bool {
        let lanes = &self.edges[edge].lanes[side];
        match lane {
            0 => !lanes.control.is_empty(),
            _ => !lanes.data.is_empty(),
        }
    }

    /// Delivers what is first on a link in a lane.
    ///
    /// # Panics
    /// A number is too large, or a promise is broken.
    pub fn deliver(&mut self, edge: usize, side: usize, lane: usize) {
        let party = self.edges[edge].parties[side];
        let lanes = &mut self.edges[edge].lanes[side];
        if lane == 0 {
            let Some(packet) = lanes.control.pop_front() else { return };
            match party {
                Party::Monitor(number) => {
                    let Some(link) = self.edges[edge].links[side] else { return };
                    let taken =
                        self.with_node(number, |node, out| node.packet(link, packet, (), out));
                    assert!(matches!(taken, None | Some(Ok(()))), "{taken:?}");
                }
                Party::Program(number) => self.program_packet(number, packet),
            }
        } else {
            let Some((label, hop, payload)) = lanes.data.pop_front() else { return };
            match party {
                Party::Monitor(number) => {
                    let Some(link) = self.edges[edge].links[side] else { return };
                    let taken = self
                        .with_node(number, |node, out| node.frame(link, label, hop, &payload, out));
                    assert!(matches!(taken, None | Some(Ok(()))), "{taken:?}");
                }
                Party::Program(number) => self.program_frame(number, (label, hop, payload)),
            }
        }
    }

    fn program_packet(&mut self, program: usize, packet: Packet) {
        let party = &mut self.programs[program];
        if !party.is_alive {
            return;
        }
        match packet {
            Packet::Setup(setup) => {
                let circuit = u32::from_le_bytes(*setup.offer.first_chunk().unwrap()) as usize;
                party.waiting.push_back((circuit, *setup));
            }
            Packet::Accept { to, label, credit, answer, .. } => {
                if let Some(index) = party.ends.find(to) {
                    party.ends.accepted(index, label, credit);
                    let (circuit, _) = party.circuit_of[&index];
                    let track = &mut self.tracks[circuit];
                    assert!(!track.is_accepted, "accepted twice");
                    track.is_accepted = true;
                    track.hear_of(u32::from_le_bytes(*answer.first_chunk().unwrap()) as usize);
                    self.seen.accepted += 1;
                }
            }
            Packet::Reset(reset) => {
                if let Some(place) = party
                    .waiting
                    .iter()
                    .position(|(_, setup)| reset.to.is_none() && setup.label == reset.from)
                {
                    party.waiting.remove(place);
                } else if let Some(index) = party.ends.reset(*reset) {
                    self.look_at(program, index);
                }
            }
            Packet::Exported { reason, .. } => assert_eq!(reason, ""),
            // Of messages that do not come.
            Packet::Capabilities { .. } => {}
            other => panic!("a program got {other:?}"),
        }
    }

    fn program_frame(&mut self, program: usize, (label, hop, payload): Frame) {
        let party = &mut self.programs[program];
        if !party.is_alive {
            return;
        }
        let came = party.ends.frame(label, hop, &payload).unwrap();
        let (index, bytes) = match came {
            Arrival::Nothing => return,
            Arrival::Changed(index) => return self.look_at(program, index),
            Arrival::Short(index, _, bytes) => (index, bytes.to_vec()),
            Arrival::Long(index, _, bytes) => (index, bytes),
        };
        self.seen.messages += 1;
        let (circuit, which) = party.circuit_of[&index];
        let track = &mut self.tracks[circuit];
        let from = u32::from_le_bytes(bytes[4..8].try_into().unwrap()).checked_sub(1);
        let from = from.map(|service| service as usize);
        if let Some(service) = from.or(which) {
            track.hear_of(service);
        }
        let end = track.end_mut(which).unwrap();
        let due = message(circuit, from, end.received, bytes.len() - 12);
        assert!(bytes == due, "circuit {circuit}: not message {}", end.received);
        assert_eq!(from.is_none(), which.is_some());
        end.received += 1;
        let lines = lines_of(payload.len());
        end.untaken.push(lines);
        party.ends.store(index, lines);
        assert!(track.end(which).received <= track.end(from).sent);
        self.look_at(program, index);
    }

    /// Looks whether a circuit has ended for one of its ends.
    fn look_at(&mut self, program: usize, index: u32) {
        let party = &mut self.programs[program];
        let Some(&(circuit, which)) = party.circuit_of.get(&index) else { return };
        let ended = party.ends.ended(index).cloned();
        let has_last = party.ends.has_last(index);
        let delivered = party.ends.delivered_count(index);
        let track = &mut self.tracks[circuit];
        let other = if which.is_some() { None } else { track.which(1) };
        let [end, other] = [track.end(which), track.end(other)];
        assert_eq!(delivered, u64::from(end.received));
        if has_last {
            assert!(other.has_finished || other.has_closed);
            assert_eq!(end.received, other.sent, "circuit {circuit}: the last came early");
        }
        if let (Some(ended), Some(end)) = (ended, track.end_mut(which)) {
            end.ended = Some(ended.end);
        }
    }

    /// Sends what waits at a party.
    pub fn flush(&mut self, party: Party) {
        match party {
            Party::Monitor(number) => _ = self.with_node(number, |node, out| node.flush(out)),
            Party::Program(number) => {
                let program = &mut self.programs[number];
                if let Some(edge) = program.edge {
                    let mut lane = ProgramLane(&mut self.edges[edge], party);
                    program.ends.flush(&mut lane, |_| {});
                }
            }
        }
    }

    /// Whether a flush would do something, if there is room.
    #[must_use]
    pub fn can_flush(&self, party: Party) -> bool {
        match party {
            Party::Monitor(number) => self.nodes[number].as_ref().is_some_and(Node::has_backlog),
            Party::Program(number) => {
                let program = &self.programs[number];
                program.is_alive && program.edge.is_some() && program.ends.has_work()
            }
        }
    }

    /// A link breaks. What is on its way may still arrive, or not.
    pub fn break_link(&mut self, edge: usize) {
        self.edges[edge].is_alive = false;
    }

    /// Whether a link works.
    #[must_use]
    pub fn is_alive(&self, edge: usize) -> bool {
        self.edges[edge].is_alive
    }

    /// The parties of a link.
    #[must_use]
    pub fn parties(&self, edge: usize) -> [Party; 2] {
        self.edges[edge].parties
    }

    /// Whether a party has not seen that its link is broken.
    #[must_use]
    pub fn can_see_break(&self, edge: usize, side: usize) -> bool {
        let Edge { is_alive, has_seen, is_closed, lanes, .. } = &self.edges[edge];
        let is_read = lanes[side].control.is_empty() && lanes[side].data.is_empty();
        !is_alive && !has_seen[side] && (is_read || !is_closed)
    }

    /// A party sees that its link is broken: what had not arrived never will.
    pub fn see_break(&mut self, edge: usize, side: usize) {
        let of = &mut self.edges[edge];
        of.has_seen[side] = true;
        of.lanes[side] = Lanes::default();
        match of.parties[side] {
            Party::Monitor(number) => {
                if let Some(link) = of.links[side].take() {
                    self.with_node(number, |node, out| node.link_down(link, &Down::Died, out));
                    self.edges_of[number].remove(&link);
                }
            }
            Party::Program(number) => {
                let party = &mut self.programs[number];
                party.edge = None;
                party.waiting.clear();
                party.ends.link_lost("the link to the monitor has ended");
                for index in party.circuit_of.keys().copied().collect::<Vec<_>>() {
                    self.look_at(number, index);
                }
            }
        }
    }

    /// A party dies: all of its links break. What it had sent still arrives, unless the other party sees the break first.
    pub fn kill(&mut self, party: Party) {
        match party {
            Party::Monitor(number) => self.nodes[number] = None,
            Party::Program(number) => {
                let program = &mut self.programs[number];
                program.is_alive = false;
                program.edge = None;
                program.waiting.clear();
                for (circuit, which) in std::mem::take(&mut program.circuit_of).into_values() {
                    if let Some(end) = self.tracks[circuit].end_mut(which) {
                        end.index = None;
                    }
                }
            }
        }
        for edge in &mut self.edges {
            for side in 0..2 {
                if edge.parties[side] == party && !edge.has_seen[side] {
                    edge.is_alive = false;
                    edge.has_seen[side] = true;
                    edge.lanes[side] = Lanes::default();
                    edge.links[side] = None;
                }
            }
        }
    }

    /// Asserts what must always be true.
    pub fn check_books(&self) {
        for node in self.nodes.iter().flatten() {
            node.check_books();
        }
    }

    /// Does everything that can be done without new circuits and messages, until nothing is left to do. Ends take what
    /// comes.
    ///
    /// # Panics
    /// It does not end.
    pub fn settle(&mut self) {
        for round in 0.. {
            assert!(round < 1_000_000, "it does not come to rest");
            let mut has_done = false;
            for edge in 0..self.edges.len() {
                for side in 0..2 {
                    for lane in 0..2 {
                        while self.has_on_way(edge, side, lane) {
                            self.deliver(edge, side, lane);
                            has_done = true;
                        }
                    }
                    if self.can_see_break(edge, side) {
                        self.see_break(edge, side);
                        has_done = true;
                    }
                }
            }
            for circuit in 0..self.tracks.len() {
                for side in 0..2 {
                    if !self.end(circuit, side).untaken.is_empty() {
                        self.take(circuit, side);
                        has_done = true;
                    }
                }
            }
            for number in 0..self.programs.len() {
                while self.has_waiting(number) {
                    self.answer(number, true);
                    has_done = true;
                }
            }
            // A flush of what has no room changes nothing: only what arrives counts as progress.
            self.flush_all();
            if !has_done && !self.is_anything_on_way() {
                return;
            }
        }
    }

    fn is_anything_on_way(&self) -> bool {
        (0..self.edges.len()).any(|edge| {
            [(0, 0), (0, 1), (1, 0), (1, 1)]
                .iter()
                .any(|(side, lane)| self.has_on_way(edge, *side, *lane))
        })
    }

    /// Lets everybody send what waits.
    pub fn flush_all(&mut self) {
        for number in 0..self.nodes.len() {
            self.flush(Party::Monitor(number));
        }
        for number in 0..self.programs.len() {
            self.flush(Party::Program(number));
        }
    }

    /// After [`settle`](Self::settle): everything that could arrive has.
    ///
    /// # Panics
    /// Something stands still.
    pub fn check_settled(&self) {
        for (number, track) in self.tracks.iter().enumerate() {
            let [client, service] = [track.end(None), track.end(track.which(1))];
            for (number, service) in track.services.iter().enumerate() {
                let is_orphan = track.real != Some(number) && service.index.is_some();
                assert!(!is_orphan || service.ended.is_some(), "nobody knows of {service:?}");
            }
            let is_whole = client.index.is_some()
                && service.index.is_some()
                && client.ended.is_none()
                && service.ended.is_none();
            if is_whole {
                assert!(track.is_accepted, "circuit {number} was never accepted");
                let (down, up) = (client.sent - service.received, service.sent - client.received);
                assert!(down == 0 && up == 0, "circuit {number} stands still: {down} {up} missing");
            }
            // An end that is there alone has been told.
            for (one, other) in [(client, service), (service, client)] {
                let is_alone = one.index.is_some() && other.index.is_none();
                let is_over = one.ended.is_some() || one.has_finished && other.has_finished;
                assert!(
                    !is_alone || is_over,
                    "an end of circuit {number} was told nothing: {track:?}"
                );
                // What a closed end had sent has come, unless something broke.
                if is_alone && other.has_closed && one.ended == Some(End::Closed) {
                    assert_eq!(one.received, other.sent, "circuit {number} lost something");
                }
            }
        }
    }

    /// Ends all circuits, and asserts that nothing is left of any.
    ///
    /// # Panics
    /// Something is.
    pub fn end_all(&mut self) {
        for circuit in 0..self.tracks.len() {
            let [client, service] = [self.end(circuit, 0), self.end(circuit, 1)];
            let is_graceful = client.ended.is_none() && service.ended.is_none();
            match is_graceful && client.index.is_some() && service.index.is_some() {
                true => self.seen.graceful += 1,
                false => self.seen.broken += 1,
            }
            self.close(circuit, 0);
            self.close(circuit, 1);
        }
        self.settle();
        for circuit in 0..self.tracks.len() {
            self.close_end(circuit, None);
            for service in 0..self.tracks[circuit].services.len() {
                self.close_end(circuit, Some(service));
            }
        }
        self.settle();
        self.check_empty();
    }

    /// Asserts that no circuit has ended because a link did.
    ///
    /// # Panics
    /// One has.
    pub fn check_none_lost(&self) {
        for (number, track) in self.tracks.iter().enumerate() {
            for end in std::iter::once(&track.client).chain(&track.services) {
                assert_ne!(end.ended, Some(End::Lost), "circuit {number}: {track:?}");
            }
        }
    }

    /// Asserts that there are those links that the newest table needs, and no others: all monitors run, and no circuit is
    /// open. A monitor without a place has one link.
    ///
    /// # Panics
    /// A link is missing or left, or a monitor knows of another table or of other names.
    pub fn check_links(&self) {
        let nodes: Vec<&Node> = self.nodes.iter().flatten().collect();
        let table = nodes[0].table();
        for one in &nodes {
            assert_eq!(one.table(), table, "monitor {}", one.id());
            let names = [one, &nodes[0]].map(|node| node.names().collect::<Vec<_>>());
            assert_eq!(names[0], names[1], "monitor {}", one.id());
            let linked = nodes.iter().filter(|other| one.link_of(other.id()).is_some()).count();
            let needed = nodes.iter().filter(|other| one.is_neighbour(other.id())).count();
            let outside = nodes
                .iter()
                .filter(|other| one.link_of(other.id()).is_some() && other.is_outside(other.id()));
            match one.is_outside(one.id()) {
                true => assert!(linked >= 1, "monitor {} has no link", one.id()),
                false => assert_eq!(linked, needed + outside.count(), "monitor {}", one.id()),
            }
        }
    }

    /// Asserts that no monitor has anything of a circuit.
    ///
    /// # Panics
    /// One has.
    pub fn check_empty(&self) {
        for (number, node) in self.nodes.iter().enumerate() {
            let Some(node) = node else { continue };
            node.check_books();
            let left: Vec<_> = node.circuits().collect();
            assert!(left.is_empty(), "monitor {number} still has {left:?}");
            assert_eq!(node.stored_lines(), 0);
        }
        for program in self.programs.iter().filter(|program| program.is_alive) {
            assert_eq!(program.ends.count(), 0);
        }
    }

    /// Everything that decides what can happen next, as text.
    #[must_use]
    pub fn fingerprint(&self) -> u64 {
        use std::hash::{DefaultHasher, Hash, Hasher};
        let mut hasher = DefaultHasher::new();
        format!("{:?}{:?}", self.nodes, self.programs).hash(&mut hasher);
        self.edges.hash(&mut hasher);
        self.tracks.hash(&mut hasher);
        hasher.finish()
    }
}
