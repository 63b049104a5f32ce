//! Messages that are pulled from their senders: which of them wait for what.

use corewire_layout::counters::EndpointCounter;
use corewire_layout::rendezvous::Verb;

use super::Peers;
use crate::rendezvous::{ArrivedOffer, Destination, Stage};
use crate::selector::Peer;
use crate::transport::Transport;

impl<T: Transport> Peers<T> {
    pub(crate) fn transfer_of(&self, source: Peer, number: u64) -> Option<usize> {
        self.transfers.iter().position(|transfer| {
            let is_wanted = matches!(transfer.to, Destination::Operation(_) | Destination::Caller);
            is_wanted && transfer.source == source && transfer.offer.number == number
        })
    }

    /// Whether a receive waits for data of the peer of `row`.
    pub(crate) fn awaits_data(&self, row: u32) -> bool {
        let mut of_row = self.transfers.iter().filter(|transfer| transfer.row() == row);
        of_row.any(|transfer| matches!(transfer.stage, Stage::Awaited(_)))
    }

    /// Whether the message of the receive that is being called is pulled now.
    #[must_use]
    pub(crate) fn is_pulling_for_caller(&self) -> bool {
        let mut pulled = self.transfers.iter().filter(|transfer| transfer.holds_row());
        pulled.any(|transfer| transfer.to == Destination::Caller)
    }

    /// Requests the message from byte `from` on.
    pub(crate) fn request_data(
        &mut self,
        row: u32,
        offer: &mut ArrivedOffer,
        from: u64,
        is_final: bool,
    ) {
        let verb = if is_final { Verb::Refuse } else { Verb::Push };
        offer.place = Vec::new();
        self.transport.count(EndpointCounter::Refusals);
        self.notify(row, offer.number, verb, from);
    }
}
