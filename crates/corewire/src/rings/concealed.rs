//! What an endpoint exposes, and memory that was concealed while peers copied to it or from it. What is done with it:
//! [`exposed`](super::exposed).

use corewire_endpoint::Exposed;
use corewire_ring::pair::Visited;
use corewire_transfer::Remote;

/// Memory that was concealed while peers copied to it or from it.
#[derive(Debug)]
pub(super) struct Concealed {
    pub(super) entry: u16,
    pub(super) memory: Exposed,
    pub(super) visits: Vec<(Visited, Option<Remote>)>,
}

impl Concealed {
    pub(super) fn is_over(&mut self) -> bool {
        self.visits.retain(is_under_way);
        self.visits.is_empty()
    }
}

/// Whether a visit of this process is under way.
pub(super) fn is_under_way((visited, remote): &(Visited, Option<Remote>)) -> bool {
    !visited.is_over() && !remote.as_ref().is_some_and(Remote::has_died)
}

/// What an endpoint has exposed, and the hints for what peers have.
#[derive(Debug, Default)]
pub(super) struct Exposures {
    /// By their entries in the table.
    pub(super) exposed: Vec<(u16, Exposed)>,
    pub(super) concealed: Vec<Concealed>,
    /// Visits of peers that were removed.
    pub(super) left: Vec<(Visited, Option<Remote>)>,
    /// The entry that was found last, by row.
    pub(super) hints: Vec<u16>,
}
