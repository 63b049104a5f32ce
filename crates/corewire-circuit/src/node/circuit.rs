//! What a node knows of a circuit: two sides, one for each neighbour.

use std::sync::Arc;

use crate::wire::credit::{Intake, Outflow, RESERVE_LINES};
use crate::wire::packet::{End, Origin, Setup};
use crate::wire::{INDEX_MAX, Label, NodeId};

use super::store::Queue;

/// A neighbour's link. Numbers are used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(u32);

impl LinkId {
    /// No link.
    pub(crate) const NONE: Self = Self(u32::MAX);

    pub(crate) fn new(index: usize) -> Self {
        u32::try_from(index).map_or(Self::NONE, Self)
    }

    /// Its place in a table of links.
    #[inline]
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// One side of a circuit: the circuit's index, twice, and 1 for the side towards the service. It is the index of the
/// label that this side's neighbour writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct At(pub(crate) u32);

/// Towards the client.
pub(crate) const CLIENT: usize = 0;
/// Towards the service.
pub(crate) const SERVICE: usize = 1;

impl At {
    pub(crate) const NONE: Self = Self(u32::MAX);

    /// One side of a circuit. Indexes are at most [`CIRCUITS_MAX`].
    #[expect(clippy::cast_possible_truncation, reason = "an index has 23 bits, a side one")]
    pub(crate) const fn of(index: usize, side: usize) -> Self {
        Self((index << 1 | side) as u32)
    }

    #[inline]
    pub(crate) const fn circuit(self) -> usize {
        (self.0 >> 1) as usize
    }

    #[inline]
    pub(crate) const fn side(self) -> usize {
        (self.0 & 1) as usize
    }

    #[inline]
    pub(crate) const fn other(self) -> Self {
        Self(self.0 ^ 1)
    }
}

/// Circuits that one node can have.
pub(crate) const CIRCUITS_MAX: usize = (INDEX_MAX >> 1) as usize;

/// Bits of [`Side::state`].
pub(crate) mod state {
    /// The last frame from the neighbour has come.
    pub(crate) const FIN_IN: u16 = 1;
    /// The last frame to the neighbour has been sent.
    pub(crate) const FIN_OUT: u16 = 1 << 1;
    /// Waits for its turn to send what is queued.
    pub(crate) const ACTIVE: u16 = 1 << 2;
    /// Is in the list of those that owe the neighbour a word.
    pub(crate) const DUE: u16 = 1 << 3;
    /// What is owed is a recall.
    pub(crate) const RECALL: u16 = 1 << 4;
    /// What is owed is the answer to a recall.
    pub(crate) const RETURN: u16 = 1 << 5;
    /// Waits for lines that others give back.
    pub(crate) const WANTING: u16 = 1 << 6;
    /// The neighbour has forgotten the circuit, or is gone.
    pub(crate) const GONE: u16 = 1 << 7;
    /// Is in the list of those that have borrowed.
    pub(crate) const BORROWER: u16 = 1 << 8;
    /// With these alone a frame goes on at once, if there is credit and room.
    pub(crate) const USUAL: u16 = ACTIVE | DUE | WANTING | BORROWER;
}

/// One side of a circuit.
#[derive(Debug, Clone, Hash)]
pub(crate) struct Side {
    /// What the neighbour writes. None before it has been told.
    pub(crate) label_in: Label,
    /// What the neighbour reads. None before it has told.
    pub(crate) label_out: Label,
    pub(crate) link: LinkId,
    /// Towards the neighbour.
    pub(crate) outflow: Outflow,
    /// From the neighbour.
    pub(crate) intake: Intake,
    /// Frames that wait to go to the neighbour.
    pub(crate) queue: Queue,
    /// Neighbours in the list of the link's circuits.
    pub(crate) previous: At,
    pub(crate) next: At,
    /// Messages that were sent to the neighbour and announced capabilities, less the capabilities that were.
    pub(crate) capabilities_due: i32,
    /// Lines that it may send in this turn.
    pub(crate) deficit_lines: u32,
    pub(crate) state: u16,
}

impl Side {
    pub(crate) const fn new(link: LinkId) -> Self {
        Self {
            label_in: Label::NONE,
            label_out: Label::NONE,
            link,
            outflow: Outflow::new(0),
            intake: Intake::new(RESERVE_LINES),
            queue: Queue::EMPTY,
            previous: At::NONE,
            next: At::NONE,
            capabilities_due: 0,
            deficit_lines: 0,
            state: 0,
        }
    }

    #[inline]
    pub(crate) const fn has(&self, bit: u16) -> bool {
        self.state & bit != 0
    }

    #[inline]
    pub(crate) const fn set(&mut self, bit: u16) {
        self.state |= bit;
    }

    #[inline]
    pub(crate) const fn clear(&mut self, bit: u16) {
        self.state &= !bit;
    }

    /// Whether frames can be sent to the neighbour.
    #[inline]
    pub(crate) const fn is_reachable(&self) -> bool {
        !self.label_out.is_none() && !self.has(state::GONE)
    }
}

/// What a circuit is doing.
#[derive(Debug, Clone, Hash)]
pub(crate) enum Phase {
    /// The service has not answered. The request, as it was sent on, in case another way must be tried.
    Opening(Box<Setup>),
    Open,
    /// One side has ended it, and what that side had sent goes on first.
    Ending(Box<Ending>),
}

/// The rest of a circuit that one side has ended.
#[derive(Debug, Clone, Hash)]
pub(crate) struct Ending {
    /// The side that has.
    pub(crate) from: At,
    /// It has sent so many lines, of which some may still come.
    pub(crate) after: Option<u32>,
    pub(crate) end: End,
    pub(crate) reason: String,
}

/// The service and the client of a circuit.
#[derive(Debug, Clone, Hash)]
pub(crate) struct Parties {
    pub(crate) service: Arc<str>,
    pub(crate) origin: Origin,
    /// The client's monitor.
    pub(crate) home: NodeId,
}

/// A circuit.
#[derive(Debug, Clone, Hash)]
pub(crate) struct Circuit {
    pub(crate) sides: [Side; 2],
    pub(crate) phase: Phase,
    pub(crate) parties: Parties,
}

/// Circuits by index. Places that are free are used again in the order in which they became free.
#[derive(Debug, Clone, Default)]
pub(crate) struct Circuits {
    /// The last one is not free.
    places: Vec<Option<Circuit>>,
    /// Places that are free, and some that are not, or not there any more.
    free: std::collections::VecDeque<u32>,
    count: usize,
}

impl Circuits {
    pub(crate) fn len(&self) -> usize {
        self.count
    }

    /// Adds one. `None` if there is no index left.
    pub(crate) fn add(&mut self, circuit: Circuit) -> Option<usize> {
        let is_free = |index: usize| matches!(self.places.get(index), Some(None));
        let index = loop {
            match self.free.pop_front() {
                Some(index) if is_free(index as usize) => break index as usize,
                Some(_) => {}
                None if self.places.len() >= CIRCUITS_MAX => return None,
                None => {
                    self.places.push(None);
                    break self.places.len() - 1;
                }
            }
        };
        *self.places.get_mut(index)? = Some(circuit);
        self.count += 1;
        Some(index)
    }

    pub(crate) fn remove(&mut self, index: usize) -> Option<Circuit> {
        let circuit = self.places.get_mut(index)?.take()?;
        self.count -= 1;
        self.free.push_back(u32::try_from(index).unwrap_or(u32::MAX));
        while matches!(self.places.last(), Some(None)) {
            self.places.pop();
        }
        if self.places.len() < self.places.capacity() / 4 {
            self.places.shrink_to_fit();
            let end = self.places.len();
            self.free.retain(|index| (*index as usize) < end);
            self.free.shrink_to_fit();
        }
        Some(circuit)
    }

    #[inline]
    pub(crate) fn get(&self, index: usize) -> Option<&Circuit> {
        self.places.get(index)?.as_ref()
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, index: usize) -> Option<&mut Circuit> {
        self.places.get_mut(index)?.as_mut()
    }

    pub(crate) fn side(&self, at: At) -> Option<&Side> {
        Some(&self.get(at.circuit())?.sides[at.side()])
    }

    pub(crate) fn side_mut(&mut self, at: At) -> Option<&mut Side> {
        Some(&mut self.get_mut(at.circuit())?.sides[at.side()])
    }

    /// The circuits and their indexes.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (usize, &Circuit)> {
        let places = self.places.iter().enumerate();
        places.filter_map(|(index, place)| Some((index, place.as_ref()?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn circuit() -> Circuit {
        let parties = Parties {
            service: "s".into(),
            origin: Origin::default(),
            home: NodeId::new(0).unwrap(),
        };
        Circuit { sides: [Side::new(LinkId(0)), Side::new(LinkId(0))], phase: Phase::Open, parties }
    }

    // Keeps P198.
    #[test]
    fn memory_behind_the_last_circuit_is_given_back() {
        let mut circuits = Circuits::default();
        let all: Vec<usize> = (0..10_000).map(|_| circuits.add(circuit()).unwrap()).collect();
        // In an order in which one of the last goes last.
        for index in all.iter().filter(|index| **index >= 10 && **index != 9000).chain([&9000]) {
            circuits.remove(*index).unwrap();
        }
        assert_eq!(circuits.len(), 10);
        assert!(circuits.places.capacity() < 64 && circuits.free.capacity() < 64);
        // No place is given twice, whatever was freed before.
        let more: std::collections::BTreeSet<usize> =
            (0..1000).map(|_| circuits.add(circuit()).unwrap()).collect();
        assert_eq!(more, (10..1010).collect());
        for index in (0..1010).rev().step_by(2).chain((0..1010).step_by(2)) {
            circuits.remove(index).unwrap();
        }
        assert_eq!((circuits.len(), circuits.places.len()), (0, 0));
    }

    // Keeps P198.
    #[test]
    fn an_open_circuit_takes_at_most_320_bytes() {
        // The client's label and the index in a map of its link, whose nodes may be half empty.
        let in_map = 2 * (size_of::<Label>() + size_of::<u32>());
        let in_lists = 2 * size_of::<At>() + size_of::<u32>();
        let all = size_of::<Option<Circuit>>() + in_map + in_lists;
        assert!(all <= 320, "{all} bytes");
        println!("{all} bytes, of which the circuit has {}", size_of::<Option<Circuit>>());
    }
}
