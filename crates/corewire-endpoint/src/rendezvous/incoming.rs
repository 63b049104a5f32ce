//! The receiver's side: offers that arrive, and what is matched with them.

use corewire_layout::counters::EndpointCounter;
use corewire_layout::rendezvous::{OFFERS_MAX, Offer, Verb};
use corewire_ring::message::{Envelope, Space};
use corewire_ring::pair::PairViolation;

use super::{ArrivedOffer, Destination, Stage, Transfer, envelope_of};
use crate::engine::Engine;
use crate::error::MessageError;
use crate::matching::Unexpected;
use crate::receive::{Caller, CallerState};
use crate::selector::Peer;
use crate::transport::Transport;

impl<T: Transport> Engine<T> {
    /// A message is offered.
    pub(crate) fn handle_offer(
        &mut self,
        row: u32,
        tag: u64,
        offer: &Offer,
        place: &[u8],
        caller: Option<&mut Caller<'_>>,
    ) {
        let offers = &mut self.rows[row as usize].offers_here;
        // Some of those that their sender has taken back may still be awaited.
        let is_new = offers.len() < 2 * usize::from(OFFERS_MAX) && offers.insert(offer.number);
        if !is_new || place.is_empty() {
            let violation = PairViolation { word: "offer", found: offer.number, position: 0 };
            return self.cut_off(row, violation);
        }
        let envelope = envelope_of(offer, tag);
        let arrived = ArrivedOffer { number: offer.number, place: place.to_vec() };
        let source = self.peer_of(row);
        let order = self.matching.new_order();
        let message = Unexpected::offered(source, envelope, offer.total, arrived, Vec::new());
        if envelope.space == Space::Request && self.owes_too_much(row) {
            let key = self.matching.keep_offered(order, message);
            return self.defer_kept(row, key, 0);
        }
        if let Some(message) = self.match_offered(order, message, caller) {
            self.keep_offered(order, message, offer.is_blocking);
        }
    }

    /// Gives a message to the receive that asks for it. Returns it if there is none.
    fn match_offered(
        &mut self,
        order: u64,
        message: Unexpected,
        caller: Option<&mut Caller<'_>>,
    ) -> Option<Unexpected> {
        let Unexpected { source, envelope, total, .. } = message;
        let Envelope { space, tag, .. } = envelope;
        while let Some(posted) = self.matching.take_posted(space, source, tag) {
            if self.prepare(posted.operation, total) {
                let to = Destination::Operation(posted.operation);
                self.begin_transfer(order, message, to);
                return None;
            }
        }
        if let Some(caller) = caller
            && caller.is_waiting()
            && caller.selector.takes_of(space, source, tag)
        {
            match caller.target.prepare(total) {
                Ok(()) => {
                    caller.state = CallerState::Filling(message.status());
                    self.begin_transfer(order, message, Destination::Caller);
                    return None;
                }
                Err(MessageError::NoMemory { .. }) if space == Space::Request => {
                    self.drop_request(source, tag);
                    if let Some(offer) = message.offer {
                        self.finish_with(source.row(), offer.number);
                    }
                    return None;
                }
                Err(error) => caller.state = CallerState::Ended(Err(error)),
            }
        }
        Some(message)
    }

    /// Keeps a record of a message until a receive asks for it. Fetches the message of a sender that waits, if there
    /// is room.
    fn keep_offered(&mut self, order: u64, message: Unexpected, is_blocking: bool) {
        self.transport.count(EndpointCounter::Unexpected);
        self.has_news = true;
        let Unexpected { source, envelope, total, ref offer, .. } = message;
        let number = offer.as_ref().map_or(0, |offer| offer.number);
        let key = self.matching.keep_offered(order, message);
        if is_blocking && self.may_fetch(source.row(), total) {
            self.transfers.push(Transfer {
                source,
                offer: ArrivedOffer { number, place: Vec::new() },
                envelope,
                total,
                order,
                to: Destination::Kept(key),
                stage: Stage::Queued,
                is_invited: false,
            });
            self.count_chores();
        }
    }

    /// Whether a message whose sender waits is fetched before a receive asks for it: if the budget allows it. One
    /// message of each peer that is no longer than what this endpoint itself is sending always is, since one of two
    /// endpoints that send to each other must go on.
    pub(super) fn may_fetch(&self, row: u32, total: u64) -> bool {
        self.matching.budget.has_room(row, total)
            || (total <= self.blocked_bytes && self.matching.budget.kept(row).messages == 0)
    }

    /// This side needs the sender's memory no more.
    pub(crate) fn finish_with(&mut self, row: u32, number: u64) {
        self.forget_offer(row, number);
        self.notify(row, number, Verb::Done, 0);
    }

    /// Nobody will receive this message.
    pub(crate) fn drop_offer(&mut self, source: Peer, number: u64) {
        if let Ok(row) = self.row_of(source) {
            self.finish_with(row, number);
        }
    }

    pub(super) fn forget_offer(&mut self, row: u32, number: u64) {
        self.rows[row as usize].offers_here.remove(&number);
    }

    /// A message that was offered goes to a receive.
    pub(crate) fn begin_transfer(&mut self, order: u64, message: Unexpected, to: Destination) {
        let Unexpected { source, envelope, total, bytes, offer, .. } = message;
        let Some(offer) = offer else { return };
        let stage =
            if offer.place.is_empty() { Stage::Awaited(bytes.len() as u64) } else { Stage::Queued };
        self.pool.give_back(bytes);
        // It need not be fetched any more.
        self.transfers.retain(|other| {
            let is_fetched = matches!(other.to, Destination::Kept(_));
            !(is_fetched && other.source == source && other.offer.number == offer.number)
        });
        let is_invited = false;
        self.transfers.push(Transfer {
            source,
            offer,
            envelope,
            total,
            order,
            to,
            stage,
            is_invited,
        });
        self.busy_steps = 0;
        self.count_chores();
        if self.awaits_data(source.row()) {
            // What lies before the data must not keep it from coming.
            self.fetch_held();
        }
    }
}
