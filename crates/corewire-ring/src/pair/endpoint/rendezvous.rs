//! Large messages: offers, and copies from both ends. See [`crate::pair::rendezvous`].

use super::Endpoint;
use crate::Host;
use crate::message::Envelope;
use crate::pair::rendezvous::{Helper, Offers, Puller};
use crate::sync::Ordering::Relaxed;

impl<H: Host> Endpoint<H> {
    /// The number of a new offer to the peer of `row`, valid from now on. `None` if there are too many.
    pub fn make_offer(&mut self, row: u32) -> Option<u64> {
        let peer = self.peers.get(row)?;
        let pulled = peer.inbox.peer().pulled(peer.outbox.row_there());
        self.offers.make(&self.memory.helped(row), &pulled)
    }

    /// An offer is not valid any more: whatever the peer copies from now on, it does not take it for the message.
    pub fn end_offer(&mut self, number: u64) {
        self.offers.end(number);
    }

    /// The same. True if the peer of `row` has not begun to copy the message, and never will.
    pub fn withdraw_offer(&mut self, row: u32, number: u64) -> bool {
        let Some(peer) = self.peers.get(row) else {
            self.offers.end(number);
            return true;
        };
        let pulled = peer.inbox.peer().pulled(peer.outbox.row_there());
        self.offers.withdraw(number, &pulled)
    }

    /// Is the message the latest one that the peer of `row` has begun to copy?
    #[must_use]
    pub fn has_begun(&self, row: u32, number: u64) -> bool {
        let Some(peer) = self.peers.get(row) else { return false };
        Offers::has_begun(number, &peer.inbox.peer().pulled(peer.outbox.row_there()))
    }

    /// No offer is valid any more.
    pub fn end_offers(&mut self) {
        self.offers.end_all();
    }

    /// Whether there is room in cells now for a message of `bytes` bytes to the peer of `row`. Reads the peers'
    /// cursors if there was too little room before.
    #[must_use]
    pub fn has_cells_for(&mut self, row: u32, bytes: u64) -> bool {
        let has_room = |this: &Self| match this.peers.get(row) {
            Some(peer) => bytes <= peer.outbox.cell_room(&this.cells),
            None => false,
        };
        if has_room(self) {
            return true;
        }
        self.make_room_everywhere();
        has_room(self)
    }

    /// The receiver's side of a copy of `chunks` chunks. `None` if there is no such peer or offer.
    #[must_use]
    pub fn puller(&self, row: u32, number: u64, chunks: u16) -> Option<Puller> {
        let peer = self.peers.get(row)?;
        let (memory, row_there) = (peer.inbox.peer(), peer.outbox.row_there());
        Puller::new(&self.memory, row, memory, row_there, number, chunks)
    }

    /// The sender's side of a copy of `chunks` chunks. `None` if there is no such peer.
    #[must_use]
    pub fn helper(&self, row: u32, number: u64, chunks: u16) -> Option<Helper> {
        let peer = self.peers.get(row)?;
        let (memory, row_there) = (peer.inbox.peer(), peer.outbox.row_there());
        Some(Helper::new(&self.memory, row, memory, row_there, number, chunks))
    }

    /// As [`Endpoint::try_send`], for something that is not a message.
    pub fn try_send_beside(&mut self, row: u32, envelope: &Envelope, bytes: &[u8]) -> bool {
        let Some(peer) = self.peers.get_mut(row) else { return false };
        let is_sent = peer.outbox.try_send_beside(envelope, bytes);
        if is_sent && peer.outbox.is_announcement_due() {
            self.announce_to(row);
        }
        is_sent
    }

    /// Shows observers why this endpoint could not copy from a peer's memory.
    pub fn show_refusal(&self, code: u64) {
        self.memory.refusal().store(code, Relaxed);
    }

    /// Counts a message of `bytes` bytes to the peer of `row` that did not go through its ring.
    pub fn count_sent_beside(&mut self, row: u32, bytes: u64) {
        if let Some(peer) = self.peers.get_mut(row) {
            peer.outbox.count_beside(bytes);
        }
    }

    /// Counts a message of `bytes` bytes of the peer of `row` that did not come through its ring.
    pub fn count_received_beside(&mut self, row: u32, bytes: u64) {
        if let Some(peer) = self.peers.get_mut(row) {
            peer.inbox.count_beside(bytes);
        }
    }
}
