//! Memory that this endpoint exposes, and visits to that of peers. See [`crate::pair::exposures`].

use alloc::vec::Vec;

use super::Endpoint;
use crate::Host;
use crate::pair::exposures::{self, ExposedPlace, Visit, Visited};
use crate::pair::words::EndpointMemory;
use crate::sync::Ordering::Relaxed;

impl<H: Host> Endpoint<H> {
    /// Where this endpoint's incarnation lies in its memory. Must be said before anything is exposed.
    pub fn set_cookie(&self, address: u64) {
        self.memory.cookie().store(address, Relaxed);
    }

    /// Lets peers find memory under `key`, or under a key that no other memory ever has. Returns its entry in the table and
    /// its key; `None` if no entry is free.
    pub fn expose(&mut self, key: Option<u64>, place: &ExposedPlace) -> Option<(u16, u64)> {
        self.exposures.add(key, place)
    }

    /// Peers find the memory of this entry no more. Returns the rows of those that may still copy to it or from it. Peers that
    /// the control thread has linked, and this thread has not taken in, are looked for by [`visit_of`](Self::visit_of).
    pub fn conceal(&mut self, index: u16) -> Vec<(u32, Visited)> {
        self.exposures.end(index);
        let rows = 0..u32::try_from(self.peers.rows()).unwrap_or(u32::MAX);
        let visited = |row: u32| {
            let peer = self.peers.get(row)?;
            let visits = peer.inbox.peer().visits(peer.outbox.row_there());
            Visited::new(visits).map(|visited| (row, visited))
        };
        rows.filter_map(visited).collect()
    }

    /// Nobody copies to the memory of this entry any more, or from it: the entry may be used again.
    pub fn give_exposure_back(&mut self, index: u16) {
        self.exposures.give_back(index);
    }

    /// Takes requests `first` to `last` to the peer of `row` back. True if that has begun none of them, and never will.
    pub fn take_back(&mut self, row: u32, first: u64, last: u64) -> bool {
        let Some(peer) = self.peers.get(row) else { return false };
        let served = peer.inbox.peer().served(peer.outbox.row_there());
        exposures::take_back(self.memory.taken(row), served, first, last)
    }

    /// Begins request `number` of the peer of `row`. False if it was taken back.
    pub fn serve(&mut self, row: u32, number: u64) -> bool {
        let Some(peer) = self.peers.get(row) else { return false };
        let taken = peer.inbox.peer().taken(peer.outbox.row_there());
        exposures::serve(self.memory.served(row), taken, number)
    }

    /// Request `number` of the peer of `row` is done, which its word says. True if the peer may not look there, and must be
    /// answered.
    pub fn finish(&mut self, row: u32, number: u64) -> bool {
        let Some(peer) = self.peers.get(row) else { return false };
        let taken = peer.inbox.peer().taken(peer.outbox.row_there());
        exposures::finish(self.memory.done(row), taken, number)
    }

    /// The last request to the peer of `row` that is done, as its word says.
    #[must_use]
    pub fn last_done(&self, row: u32) -> u64 {
        let Some(peer) = self.peers.get(row) else { return 0 };
        exposures::last_done(peer.inbox.peer().done(peer.outbox.row_there()))
    }

    /// Begins a visit to the memory that the peer of `row` exposes. `None` if there is no such peer, or its data thread does
    /// not know this endpoint yet, or any more.
    #[must_use]
    pub fn visit(&self, row: u32) -> Option<Visit> {
        let peer = self.peers.get(row)?;
        Visit::begin(self.memory.visits(row), peer.inbox.peer(), peer.outbox.row_there())
    }

    /// The control thread has put the peer of `row` where [`conceal`](Self::conceal)'s caller looks for visits.
    pub fn admit(memory: &EndpointMemory, row: u32) {
        exposures::admit(memory.admits(row));
    }

    /// A visit of a peer that the control thread has linked, and the data thread has not taken in.
    #[must_use]
    pub fn visit_of(peer: &EndpointMemory, row_there: u32) -> Option<Visited> {
        Visited::new(peer.visits(row_there))
    }

    /// The peer of `row`, which is about to be removed, begins no visit any more. Returns the one that is under way.
    pub fn dismiss(&mut self, row: u32) -> Option<Visited> {
        let peer = self.peers.get(row)?;
        exposures::dismiss(self.memory.admits(row));
        Visited::new(peer.inbox.peer().visits(peer.outbox.row_there()))
    }
}
