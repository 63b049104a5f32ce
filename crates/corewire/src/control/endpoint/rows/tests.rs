//! Every order of what two endpoints that link with each other can do, with requests that are given up at any time, and
//! links that either end drops.
//!
//! Every test here keeps P218.

use std::collections::{HashSet, VecDeque};

use super::*;

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Packet {
    Pair { row: u32, number: u64 },
    Paired { row: u32, number: u64 },
    Refused,
    Done,
    Linked,
    Leave,
}

/// A connection: who asked, what travels to the requester and to the other end, and which ends are closed.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Wire {
    requester: usize,
    to: [VecDeque<Packet>; 2],
    is_closed: [bool; 2],
    /// The other end has read the request.
    is_answered: bool,
    /// The end reads it by events.
    is_watched: [bool; 2],
}

/// What the data thread is told.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Told {
    Came(u32),
    Gone(u32),
}

/// A link: the peer's row and its reservation.
type Link = (u32, u64);

#[derive(Clone, PartialEq, Eq, Hash)]
struct End {
    rows: Rows<usize, usize, Link, Link>,
    /// Threads that wait for an answer: their wires and reservations.
    asking: Vec<(usize, Reservation)>,
    told: VecDeque<Told>,
    /// The peers of the data thread: false for one that has gone and is not removed yet.
    peers: BTreeMap<u32, bool>,
    asks_left: u32,
    cuts_left: u32,
    /// It may still address the other end, at any time.
    may_address: Option<Addressed>,
    /// The row that it has addressed, until its peer has gone.
    addressed: Option<u32>,
    is_closed: bool,
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct World {
    ends: [End; 2],
    wires: Vec<Wire>,
    may_close: bool,
    /// Links were dropped: departures are expected.
    has_departures: bool,
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Address(usize),
    Ask(usize),
    Hear(usize, usize),
    GiveUp(usize, usize),
    Read(usize, usize),
    Take(usize),
    Free(usize, u32),
    Cut(usize, u32),
    Close(usize),
}

const INCARNATIONS: [u128; 2] = [100, 200];

fn name(at: usize) -> ChannelName {
    ChannelName::new(["zero", "one"][at]).unwrap()
}

/// How an end addresses the other one.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Addressed {
    ByName,
    ByIncarnation,
}

impl World {
    fn new(asks: [u32; 2], cuts: [u32; 2], may_close: bool) -> Self {
        let end = |index: usize| End {
            rows: Rows::new(2),
            asking: Vec::new(),
            told: VecDeque::new(),
            peers: BTreeMap::new(),
            asks_left: asks[index],
            cuts_left: cuts[index],
            may_address: None,
            addressed: None,
            is_closed: false,
        };
        let ends = [end(0), end(1)];
        Self { ends, wires: Vec::new(), may_close, has_departures: false }
    }

    fn addressing(mut self, addressed: [Option<Addressed>; 2]) -> Self {
        for (end, addressed) in self.ends.iter_mut().zip(addressed) {
            end.may_address = addressed;
        }
        self
    }

    fn steps(&self) -> Vec<Step> {
        let mut steps = Vec::new();
        for (at, end) in self.ends.iter().enumerate() {
            if end.may_address.is_some() && !end.is_closed {
                steps.push(Step::Address(at));
            }
            if end.asks_left > 0 && !end.is_closed {
                steps.push(Step::Ask(at));
            }
            for (index, &(wire, _)) in end.asking.iter().enumerate() {
                let wire = &self.wires[wire];
                if !wire.to[at].is_empty() || wire.is_closed[1 - at] {
                    steps.push(Step::Hear(at, index));
                }
                steps.push(Step::GiveUp(at, index));
            }
            for (index, wire) in self.wires.iter().enumerate() {
                let is_readable = !wire.to[at].is_empty() || wire.is_closed[1 - at];
                let is_accepted = wire.is_watched[at] || wire.requester != at && !wire.is_answered;
                if is_accepted && !wire.is_closed[at] && is_readable {
                    steps.push(Step::Read(at, index));
                }
            }
            if !end.told.is_empty() {
                steps.push(Step::Take(at));
            }
            for (&row, &is_there) in &end.peers {
                if !is_there {
                    steps.push(Step::Free(at, row));
                } else if end.cuts_left > 0 {
                    steps.push(Step::Cut(at, row));
                }
            }
            if self.may_close && !end.is_closed {
                steps.push(Step::Close(at));
            }
        }
        steps
    }

    fn close_wire(&mut self, at: usize, wire: usize) {
        self.wires[wire].is_closed[at] = true;
    }

    fn send(&mut self, from: usize, wire: usize, packet: Packet) -> bool {
        let wire = &mut self.wires[wire];
        if wire.is_closed[1 - from] {
            return false;
        }
        wire.to[1 - from].push_back(packet);
        true
    }

    fn end_link(&mut self, at: usize, row: u32) {
        if let Some(Ended { sockets, .. }) = self.ends[at].rows.end(row) {
            sockets.into_iter().for_each(|(wire, _)| self.wires[wire].is_watched[at] = false);
            self.ends[at].told.push_back(Told::Gone(row));
            assert!(self.has_departures, "a living peer was taken for gone");
        }
    }

    fn close_spares(&mut self, at: usize, row: u32, common: usize) {
        self.ends[at].rows.note_common(row, common);
        for (wire, _) in self.ends[at].rows.take_spares(row, INCARNATIONS[at]) {
            self.wires[wire].is_watched[at] = false;
            self.close_wire(at, wire);
        }
    }

    fn end_outlived(&mut self, at: usize, theirs: u64) {
        if let Some(row) = self.ends[at].rows.outlived(INCARNATIONS[1 - at], theirs) {
            self.end_link(at, row);
        }
    }

    /// Links, or adds a socket.
    fn link(&mut self, at: usize, own: Reservation, theirs: u64, wire: usize, row_there: u32) {
        let end = &mut self.ends[at];
        if end.rows.linked(own.row).is_some() {
            end.rows.add_socket(own, (wire, wire));
        } else {
            end.rows.link(own, theirs, (wire, wire), (row_there, theirs));
            end.told.push_back(Told::Came(own.row));
        }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Address(at) => {
                let end = &mut self.ends[at];
                let incarnation = match end.may_address.take() {
                    Some(Addressed::ByIncarnation) => Some(INCARNATIONS[1 - at]),
                    _ => None,
                };
                let address = Address { name: name(1 - at), incarnation };
                end.addressed = end.rows.address(&address).ok();
            }
            Step::Ask(at) => {
                self.ends[at].asks_left -= 1;
                if let Ok(Begun::Ask(own)) =
                    self.ends[at].rows.begin(&name(1 - at), INCARNATIONS[1 - at])
                {
                    let wire = self.wires.len();
                    self.wires.push(Wire {
                        requester: at,
                        to: [VecDeque::new(), VecDeque::new()],
                        is_closed: [false; 2],
                        is_answered: false,
                        is_watched: [false; 2],
                    });
                    self.send(at, wire, Packet::Pair { row: own.row, number: own.number });
                    self.ends[at].asking.push((wire, own));
                }
            }
            Step::Hear(at, index) => self.hear(at, index),
            Step::GiveUp(at, index) => {
                let (wire, own) = self.ends[at].asking.remove(index);
                self.ends[at].rows.give_up(own);
                self.close_wire(at, wire);
            }
            Step::Read(at, wire) => self.read(at, wire),
            Step::Take(at) => match self.ends[at].told.pop_front().unwrap() {
                Told::Came(row) => {
                    let former = self.ends[at].peers.insert(row, true);
                    assert_eq!(former, None, "two peers in one row");
                }
                Told::Gone(row) => {
                    let former = self.ends[at].peers.insert(row, false);
                    // A peer that was cut off has gone already.
                    assert!(former.is_some(), "nobody was there");
                }
            },
            Step::Free(at, row) => {
                let is_told = |told: &Told| matches!(told, Told::Gone(other) if *other == row);
                let is_addressed = self.ends[at].addressed == Some(row);
                // The data thread takes all notices before it removes a peer that was cut off.
                if !self.ends[at].told.iter().any(is_told) {
                    if is_addressed {
                        self.ends[at].addressed = None;
                    }
                    self.ends[at].peers.remove(&row);
                    for wire in self.ends[at].rows.free(row) {
                        self.close_wire(at, wire);
                    }
                }
            }
            Step::Cut(at, row) => {
                self.has_departures = true;
                self.ends[at].cuts_left -= 1;
                self.end_link(at, row);
            }
            Step::Close(at) => {
                self.has_departures = true;
                self.ends[at].is_closed = true;
                let Closed { watched, links, unwatched } = self.ends[at].rows.close();
                for (wire, _) in links.into_iter().flat_map(|ended| ended.sockets) {
                    self.send(at, wire, Packet::Leave);
                    self.close_wire(at, wire);
                }
                let others = watched.into_iter().map(|(wire, _)| wire).chain(unwatched);
                others.for_each(|wire| self.close_wire(at, wire));
                self.ends[at].told.clear();
                self.ends[at].peers.clear();
            }
        }
    }

    fn hear(&mut self, at: usize, index: usize) {
        let (wire, own) = self.ends[at].asking.remove(index);
        let is_linked = match self.wires[wire].to[at].pop_front() {
            Some(Packet::Paired { row, number }) => {
                let is_valid = self.ends[at].rows.on_answer(own, number) == Answer::Valid;
                if is_valid && self.send(at, wire, Packet::Done) {
                    self.wires[wire].is_watched[at] = true;
                    self.link(at, own, number, wire, row);
                    true
                } else {
                    false
                }
            }
            _ => false,
        };
        if !is_linked {
            self.ends[at].rows.give_up(own);
            self.close_wire(at, wire);
        }
    }

    fn read(&mut self, at: usize, wire: usize) {
        let packet = self.wires[wire].to[at].pop_front();
        self.wires[wire].is_answered |= self.wires[wire].requester != at;
        let row_of = |end: &End| {
            (0..2).find(|&row| {
                let is_its = |(sockets, _): (&[(usize, usize)], &Link)| {
                    sockets.iter().any(|(other, _)| *other == wire)
                };
                end.rows.requested(row, wire).is_some() || end.rows.linked(row).is_some_and(is_its)
            })
        };
        if let Some(Packet::Pair { row, number }) = packet {
            self.end_outlived(at, number);
            match self.ends[at].rows.request(&name(1 - at), INCARNATIONS[1 - at], number) {
                Ok((own, given_up)) => {
                    given_up.into_iter().for_each(|(wire, ..)| self.close_wire(at, wire));
                    if self.send(at, wire, Packet::Paired { row: own.row, number: own.number }) {
                        self.wires[wire].is_watched[at] = true;
                        self.ends[at].rows.answered(own, (wire, wire, (row, number)));
                    } else {
                        self.close_wire(at, wire);
                        self.ends[at].rows.release(own);
                    }
                }
                Err(_) => {
                    self.send(at, wire, Packet::Refused);
                    self.close_wire(at, wire);
                }
            }
            return;
        }
        let Some(row) = row_of(&self.ends[at]) else { return self.close_wire(at, wire) };
        let is_linked = self.ends[at].rows.linked(row).is_some();
        match packet {
            Some(Packet::Done) => {
                if let Some((own, theirs, _, (row_there, _))) =
                    self.ends[at].rows.confirm(row, wire)
                {
                    self.link(at, own, theirs, wire, row_there);
                }
                self.send(at, wire, Packet::Linked);
                self.close_spares(at, row, wire);
            }
            Some(Packet::Linked) if is_linked => self.close_spares(at, row, wire),
            Some(Packet::Leave) if is_linked => self.end_link(at, row),
            _ => {
                // From here on it is not watched.
                self.wires[wire].is_watched[at] = false;
                let is_closed = packet.is_none();
                match self.ends[at].rows.hang_up(row, wire, is_closed) {
                    Some(HungUp::Last(_)) => self.end_link(at, row),
                    Some(HungUp::Socket(_)) if !is_closed => {}
                    Some(HungUp::Socket(_)) => self.close_wire(at, wire),
                    Some(HungUp::Request(..)) | None => self.close_wire(at, wire),
                }
            }
        }
    }

    /// Nothing happens any more: each link exists at both ends.
    fn check_end(&self) {
        for (at, end) in self.ends.iter().enumerate().filter(|(_, end)| !end.is_closed) {
            for (row, &(row_there, theirs)) in end.rows.all_linked() {
                let other = &self.ends[1 - at];
                let (there, back) = other.rows.linked(row_there).expect("linked on one side only");
                let (sockets, _) = end.rows.linked(row).unwrap();
                assert!(there.iter().any(|wire| sockets.contains(wire)), "no socket in common");
                assert_eq!(sockets.len(), 1, "a socket that neither end needs");
                assert_eq!((back.0, other.rows.rows[&row_there].number), (row, theirs));
                assert_eq!(end.peers.get(&row), Some(&true), "the data thread knows the peer");
            }
            let is_reserved = |row: &Row<_, _, _, _>| {
                matches!(row.phase, Phase::Reserved { .. })
                    && !(row.address.is_some() && row.phase.is_unused())
            };
            assert!(!end.rows.rows.values().any(is_reserved), "a row stays reserved for nobody");
            // Otherwise a thread would not go on to link it.
            if let Some(row) = end.addressed {
                let is_kept = end.rows.addressed(row).is_some() || end.peers.contains_key(&row);
                assert!(is_kept, "an addressed row has lost its address");
            }
        }
    }
}

/// Walks through all states. Returns how many there are.
fn explore(world: World) -> usize {
    let mut known = HashSet::new();
    let mut open = vec![world];
    while let Some(world) = open.pop() {
        if !known.insert(world.clone()) {
            continue;
        }
        let steps = world.steps();
        let is_over = !steps.iter().any(|step| {
            matches!(step, Step::Hear(..) | Step::Read(..) | Step::Take(_) | Step::Free(..))
        });
        if is_over && world.ends.iter().all(|end| end.asking.is_empty()) {
            world.check_end();
        }
        for step in steps {
            let mut next = world.clone();
            next.step(step);
            open.push(next);
        }
    }
    known.len()
}

#[test]
fn requests_that_are_given_up_link_nobody_and_cost_no_link() {
    for asks in [[1, 1], [2, 0], [2, 1]] {
        assert!(explore(World::new(asks, [0, 0], false)) > 10);
    }
}

#[test]
fn a_row_that_is_addressed_is_its_peers_alone() {
    let [by_name, by_incarnation] = [Addressed::ByName, Addressed::ByIncarnation].map(Some);
    let each =
        [[by_name, None], [by_incarnation, None], [by_name, by_name], [by_incarnation, by_name]];
    for addressed in each {
        for (asks, cuts) in [([1, 1], [0, 0]), ([2, 0], [0, 0]), ([1, 1], [1, 0])] {
            assert!(explore(World::new(asks, cuts, false).addressing(addressed)) > 10);
        }
    }
    assert!(explore(World::new([1, 1], [0, 0], true).addressing([by_name, by_name])) > 100);
}

#[test]
fn an_address_has_one_row_until_its_peer_has_gone() {
    let mut rows: Rows<usize, (), (), ()> = Rows::new(4);
    let by_name = |name| Address { name, incarnation: None };
    let zero = rows.address(&by_name(name(0))).unwrap();
    assert_eq!(rows.address(&by_name(name(0))), Ok(zero));
    let one = rows.address(&by_name(name(1))).unwrap();
    assert_ne!(zero, one);
    // The first of the name that links has the row.
    let Ok(Begun::Ask(own)) = rows.begin(&name(0), 7) else { panic!("it is not linked") };
    assert_eq!((own.row, own.is_new), (zero, true));
    assert!(!rows.fail(zero), "a thread asks");
    assert!(!rows.give_up(own));
    let Ok(Begun::Ask(again)) = rows.begin(&name(0), 8) else { panic!("it is not linked") };
    assert_eq!((again.row, again.is_new), (zero, true), "another one, for the row as new");
    assert!(again.number > own.number);
    rows.link(again, 1, (0, ()), ());
    let known = Address { name: name(0), incarnation: Some(8) };
    assert_eq!((rows.address(&known), rows.address(&by_name(name(0)))), (Ok(zero), Ok(zero)));
    let other = Address { name: name(0), incarnation: Some(9) };
    assert_ne!(rows.address(&other).unwrap(), zero);
    // Nobody has the other name any more.
    assert!(rows.fail(one));
    assert_ne!(rows.address(&by_name(name(1))), Ok(one));
    rows.free(one);
    rows.end(zero);
    assert_ne!(rows.address(&by_name(name(0))), Ok(zero), "its peer has gone");
}

#[test]
fn links_that_end_leave_no_row_to_two_peers() {
    for (asks, cuts) in [([1, 1], [1, 1]), ([2, 0], [1, 1]), ([2, 1], [0, 1])] {
        assert!(explore(World::new(asks, cuts, false)) > 100);
    }
    assert!(explore(World::new([1, 1], [0, 1], true)) > 100);
}

#[test]
fn rows_are_given_again_last_and_sockets_are_limited() {
    let mut rows: Rows<usize, (), (), ()> = Rows::new(2);
    let name = name(0);
    let Ok(Begun::Ask(first)) = rows.begin(&name, 1) else { panic!("a row is free") };
    rows.link(first, 1, (0, ()), ());
    assert_eq!(rows.begin(&name, 1), Ok(Begun::Linked(0)));
    assert!(rows.end(0).is_some());
    // Its peer may come again, but not to that row before it is free.
    let Ok(Begun::Ask(second)) = rows.begin(&name, 1) else { panic!("a row is free") };
    assert_eq!((second.row, second.number), (1, 2));
    assert_eq!(rows.begin(&name, 2), Err(Unavailable::Full));
    assert_eq!(rows.on_answer(first, 9), Answer::Stale);
    assert!(!rows.give_up(second));
    rows.free(0);
    for socket in 0..SOCKETS_MAX {
        let (own, _) = rows.request(&name, 1, 5).unwrap();
        rows.answered(own, (socket, (), ()));
    }
    assert_eq!(rows.request(&name, 1, 5).unwrap_err(), Unavailable::Full);
    assert_eq!(rows.request(&name, 1, 4).unwrap_err(), Unavailable::Stale);
    assert_eq!(rows.request(&name, 1, 6).unwrap().1.len(), SOCKETS_MAX);
    rows.close();
    assert_eq!(rows.begin(&name, 1), Err(Unavailable::Closed));
}
