//! An endpoint's peers, by row. Only this file puts a peer in a row and takes it out, because a [`Head`](super::Head) of
//! the watch points into the memory of a peer's ring: what the control thread says, even if it is wrong, must not free
//! that memory while the head is there.

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::pair::grants::GrantedBox;
use crate::pair::inbox::Inbox;
use crate::pair::outbox::Outbox;
use crate::pair::watch::Watch;

/// A peer, as the data thread knows it.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) inbox: Inbox,
    pub(super) outbox: Outbox,
    /// What it may have of this endpoint's heap.
    pub(super) granted: GrantedBox,
}

/// The peers. A row's peer stays until [`Peers::remove`].
#[derive(Debug)]
pub(super) struct Peers(Vec<Option<Box<Peer>>>);

impl Peers {
    /// Rows without peers.
    pub(super) fn new(rows: usize) -> Self {
        Self((0..rows).map(|_| None).collect())
    }

    /// Number of rows.
    pub(super) fn rows(&self) -> usize {
        self.0.len()
    }

    #[inline(always)]
    pub(super) fn get(&self, row: u32) -> Option<&Peer> {
        self.0.get(row as usize)?.as_deref()
    }

    #[inline(always)]
    pub(super) fn get_mut(&mut self, row: u32) -> Option<&mut Peer> {
        self.0.get_mut(row as usize)?.as_deref_mut()
    }

    /// Puts a peer in a free row. False, and `make` is not called, if the row has a peer, or there is no such row.
    pub(super) fn insert(&mut self, row: u32, make: impl FnOnce() -> Peer) -> bool {
        match self.0.get_mut(row as usize) {
            Some(place @ None) => {
                *place = Some(Box::new(make()));
                true
            }
            _ => false,
        }
    }

    /// Takes the peer out of its row, and off the watch.
    pub(super) fn remove(&mut self, row: u32, watch: &mut Watch) -> Option<Box<Peer>> {
        let peer = self.0.get_mut(row as usize)?.take()?;
        watch.remove(row);
        Some(peer)
    }
}
