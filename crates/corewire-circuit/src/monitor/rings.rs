//! A monitor's two endpoints, with the rings of its neighbours.

use corewire::{Endpoint, Peer};

use crate::node::LinkId;

/// One of the two endpoints, and whose ring leads to which link.
pub(crate) struct Rings {
    pub(crate) endpoint: Endpoint,
    /// By the peer's row.
    pub(crate) links: Vec<Option<(Peer, LinkId)>>,
}

impl Rings {
    #[inline]
    pub(crate) fn link_of(&self, peer: Peer) -> Option<LinkId> {
        match self.links.get(peer.row() as usize) {
            Some(Some((found, link))) if *found == peer => Some(*link),
            _ => None,
        }
    }

    pub(crate) fn set(&mut self, peer: Peer, link: LinkId) {
        let row = peer.row() as usize;
        if self.links.len() <= row {
            self.links.resize(row + 1, None);
        }
        self.links[row] = Some((peer, link));
    }

    pub(crate) fn forget(&mut self, link: LinkId) {
        for place in &mut self.links {
            place.take_if(|(_, found)| *found == link);
        }
    }
}

/// For programs.
pub(crate) const PROGRAMS: usize = 0;
/// For other monitors.
pub(crate) const TRUNK: usize = 1;
