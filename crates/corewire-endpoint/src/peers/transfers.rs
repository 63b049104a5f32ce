//! Messages that are pulled from their senders: which of them wait for what.

use corewire_layout::counters::EndpointCounter;
use corewire_layout::rendezvous::Verb;

use super::Peers;
use crate::list::Key;
use crate::rendezvous::{ArrivedOffer, Destination, Stage, Transfer};
use crate::selector::Peer;
use crate::transport::Transport;

impl<T: Transport> Peers<T> {
    /// Messages that are pulled, oldest first.
    pub(crate) fn transfers(&self) -> &[Transfer<T::Pull>] {
        &self.transfers
    }

    /// Adds a message, to be pulled after all others.
    pub(crate) fn add_transfer(&mut self, transfer: Transfer<T::Pull>) {
        self.transfers.push(transfer);
        self.count_chores();
    }

    /// Takes a message out of the list, to go on with it or to end it.
    pub(crate) fn take_transfer(&mut self, index: usize) -> Transfer<T::Pull> {
        let transfer = self.transfers.remove(index);
        self.count_chores();
        transfer
    }

    /// Puts a message back that was taken.
    pub(crate) fn put_transfer(&mut self, index: usize, transfer: Transfer<T::Pull>) {
        self.transfers.insert(index, transfer);
        self.count_chores();
    }

    /// The message that is kept under this key is not fetched any more.
    pub(crate) fn end_fetch(&mut self, key: Key) {
        self.transfers.retain(|transfer| transfer.to != Destination::Kept(key));
        self.count_chores();
    }

    /// The same of the message of an offer, whatever its key.
    pub(crate) fn end_fetch_of(&mut self, source: Peer, number: u64) {
        self.transfers.retain(|other| {
            let is_fetched = matches!(other.to, Destination::Kept(_));
            !(is_fetched && other.source == source && other.offer.number == number)
        });
        self.count_chores();
    }

    /// Where the message of an offer is in the list that a receive waits for.
    pub(crate) fn transfer_of(&self, source: Peer, number: u64) -> Option<usize> {
        self.transfers.iter().position(|transfer| {
            let is_wanted = matches!(transfer.to, Destination::Operation(_) | Destination::Caller);
            is_wanted && transfer.source == source && transfer.offer.number == number
        })
    }

    /// How many bytes of offered messages of the peer of `row` are awaited that come behind what it has sent before: those that
    /// are sent as data, and those that are pulled where its messages come, too; and how many of its bytes were kept before the
    /// first of them was. `None` if there are none.
    pub(crate) fn awaited_of(&self, row: u32) -> Option<(u64, u64)> {
        let of_row = self.transfers.iter().filter(|transfer| transfer.row() == row);
        let is_behind = |transfer: &&Transfer<T::Pull>| match transfer.stage {
            Stage::Awaited(_) => true,
            Stage::Pulling(_) | Stage::Fetching(..) => transfer.may_sleep,
            _ => false,
        };
        let awaited = of_row.filter(is_behind).map(|it| (it.awaited, it.kept_before));
        awaited.reduce(|one, other| (one.0.saturating_add(other.0), one.1.min(other.1)))
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
