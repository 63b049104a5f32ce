//! The receiver's side: offers that arrive, and what is matched with them.

use corewire_layout::counters::EndpointCounter;
use corewire_layout::rendezvous::{OFFERS_MAX, Offer, Verb};
use corewire_ring::message::{Envelope, Space};

use super::Incoming;
use crate::caller::{Caller, CallerState};
use crate::error::MessageError;
use crate::list::Key;
use crate::matching::{KeptBytes, Unexpected};
use crate::peers::Peers;
use crate::rendezvous::{ArrivedOffer, Destination, Stage, Transfer, envelope_of};
use crate::selector::Peer;
use crate::transport::{PeerViolation, Transport};

impl Incoming {
    /// A message is offered.
    pub(super) fn handle_offer<T: Transport>(
        &mut self,
        peers: &mut Peers<T>,
        row: u32,
        tag: u64,
        offer: &Offer,
        place: &[u8],
        caller: Option<&mut Caller<'_>>,
    ) {
        let offers = &mut self.rows[row as usize].offers;
        // Some of those that their sender has taken back may still be awaited.
        let is_new = offers.len() < 2 * usize::from(OFFERS_MAX) && offers.insert(offer.number);
        if !is_new || place.is_empty() {
            let violation = PeerViolation { word: "offer", found: offer.number, position: 0 };
            return peers.cut_off(row, violation);
        }
        let envelope = envelope_of(offer, tag);
        let arrived = ArrivedOffer { number: offer.number, place: place.to_vec() };
        let source = peers.peer_of(row);
        let order = self.matching.new_order();
        let message =
            Unexpected::offered(source, envelope, offer.total, arrived, KeptBytes::default());
        if envelope.space == Space::Request && self.keeps_requests_back(peers, row) {
            let key = self.matching.keep_offered(order, message);
            return self.defer_kept(row, key, 0);
        }
        if let Some((message, claim)) = self.match_offered(peers, order, message, caller) {
            self.keep_offered(peers, order, message, claim, offer.is_blocking);
        }
    }

    /// Gives a message to the receive that asks for it. Returns it if there is none, or if it is to be kept for an operation
    /// that claims it.
    fn match_offered<T: Transport>(
        &mut self,
        peers: &mut Peers<T>,
        order: u64,
        message: Unexpected,
        caller: Option<&mut Caller<'_>>,
    ) -> Option<(Unexpected, Option<u32>)> {
        let Unexpected { source, envelope, total, .. } = message;
        let Envelope { space, tag, .. } = envelope;
        while let Some(operation) = peers.operations.take_posted(space, source, tag, total) {
            if self.prepare(peers, operation, total) {
                let to = Destination::Operation(operation);
                self.begin_transfer(peers, order, message, to);
                return None;
            }
            if peers.operations.is_claim(operation) {
                return Some((message, Some(operation)));
            }
        }
        if let Some(caller) = caller
            && caller.is_waiting()
            && caller.selector.takes_of(space, source.bits(), tag)
        {
            match caller.target.prepare(total) {
                Ok(()) => {
                    caller.state = CallerState::Filling(message.status());
                    self.begin_transfer(peers, order, message, Destination::Caller);
                    return None;
                }
                Err(MessageError::NoMemory { .. }) if space == Space::Request => {
                    peers.drop_request(source, tag);
                    if let Some(offer) = message.offer {
                        self.finish_with(peers, source.row(), offer.number);
                    }
                    return None;
                }
                Err(error) => caller.state = CallerState::Ended(Err(error)),
            }
        }
        Some((message, None))
    }

    /// Keeps a record of a message until a receive asks for it. Fetches the message of a sender that waits, if there
    /// is room.
    fn keep_offered<T: Transport>(
        &mut self,
        peers: &mut Peers<T>,
        order: u64,
        message: Unexpected,
        claim: Option<u32>,
        is_blocking: bool,
    ) {
        peers.transport.count(EndpointCounter::Unexpected);
        peers.has_news = true;
        let Unexpected { source, ref offer, .. } = message;
        let number = offer.as_ref().map_or(0, |offer| offer.number);
        let key = self.matching.keep_offered(order, message);
        if let Some(operation) = claim {
            self.claim_for(peers, operation, key);
        }
        if is_blocking {
            self.rows[source.row() as usize].blocking_offer = Some(number);
            self.fetch_offered(peers, source, number, key);
        }
    }

    /// Fetches a message that a sender offers and waits for, if there is room.
    fn fetch_offered<T: Transport>(
        &mut self,
        peers: &mut Peers<T>,
        source: Peer,
        number: u64,
        key: Key,
    ) {
        let Some(message) = self.matching.get(key) else { return };
        let (envelope, total, order) = (message.envelope, message.total, key.order);
        let is_readable = message.offer.as_ref().is_some_and(|offer| !offer.place.is_empty());
        let to = Destination::Kept(key);
        let is_begun = peers.transfers().iter().any(|transfer| transfer.to == to);
        if is_begun || !is_readable || !self.may_keep(source.row(), total) {
            return;
        }
        let (offer, stage) = (ArrivedOffer { number, place: Vec::new() }, Stage::Queued);
        let kept = self.matching.budget.kept(source.row()).bytes;
        let message = (envelope, total);
        peers.add_transfer(Transfer::new(source, offer, message, (order, to), stage, kept));
    }

    /// A call begins to wait until its message of `bytes` bytes has been sent. Until it ends, one message of each peer
    /// that is no longer is kept beyond the budget, also one that has come before.
    pub(crate) fn begin_blocking<T: Transport>(&mut self, peers: &mut Peers<T>, bytes: u64) {
        self.blocked_bytes = bytes;
        self.fetch_held(peers);
        for row in (0u32..).take(self.rows.len()) {
            let source = peers.peer_of(row);
            if let Some(number) = self.rows[row as usize].blocking_offer
                && let Some(key) = self.matching.find_offered(source, number)
            {
                self.fetch_offered(peers, source, number, key);
            }
        }
    }

    /// The call has ended.
    pub(crate) fn end_blocking(&mut self) {
        self.blocked_bytes = 0;
    }

    /// Whether the budget allows it to keep a message before a receive asks for it.
    #[inline]
    pub(super) fn may_keep(&self, row: u32, total: u64) -> bool {
        self.matching.budget.may_keep(row, total, self.blocked_bytes)
    }

    /// Whether messages of the peer of `row` are kept whatever the budget, because something that a receive waits for comes behind
    /// them. A peer that sends others instead has no more of them kept than it may send before, by the rules of its transport.
    pub(super) fn must_keep<T: Transport>(&self, peers: &Peers<T>, row: u32) -> bool {
        let Some((awaited, kept_before)) = peers.awaited_of(row) else { return false };
        let Some(most) = peers.transport.before_awaited_max(row, awaited) else { return true };
        // A message costs more than its bytes: the shortest about six times as much.
        self.matching.budget.kept(row).bytes.saturating_sub(kept_before) / 8 <= most
    }

    /// This side needs the sender's memory no more.
    pub(super) fn finish_with<T: Transport>(
        &mut self,
        peers: &mut Peers<T>,
        row: u32,
        number: u64,
    ) {
        self.forget_offer(row, number);
        peers.notify(row, number, Verb::Done, 0);
    }

    /// Nobody will receive this message.
    pub(super) fn drop_offer<T: Transport>(
        &mut self,
        peers: &mut Peers<T>,
        source: Peer,
        number: u64,
    ) {
        if let Ok(row) = peers.row_of(source) {
            self.finish_with(peers, row, number);
        }
    }

    #[inline]
    pub(super) fn forget_offer(&mut self, row: u32, number: u64) {
        let entry = &mut self.rows[row as usize];
        entry.offers.remove(&number);
        entry.blocking_offer.take_if(|blocking| *blocking == number);
    }

    /// A message that was offered goes to a receive.
    pub(super) fn begin_transfer<T: Transport>(
        &mut self,
        peers: &mut Peers<T>,
        order: u64,
        message: Unexpected,
        to: Destination,
    ) {
        let Unexpected { source, envelope, total, bytes, offer, .. } = message;
        let Some(offer) = offer else { return };
        let stage =
            if offer.place.is_empty() { Stage::Awaited(bytes.len() as u64) } else { Stage::Queued };
        bytes.give_back(&self.pool);
        // It need not be fetched any more.
        peers.end_fetch_of(source, offer.number);
        let kept = self.matching.budget.kept(source.row()).bytes;
        let message = (envelope, total);
        peers.add_transfer(Transfer::new(source, *offer, message, (order, to), stage, kept));
        self.busy_steps = 0;
        if peers.awaited_of(source.row()).is_some() {
            // What lies before the data must not keep it from coming.
            self.fetch_held(peers);
        }
    }
}
