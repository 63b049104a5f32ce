//! Messages that are kept until a receive asks for them: giving them away, dropping them, and taking them in from senders
//! that had to keep them.

use corewire_layout::counters::EndpointCounter;
use corewire_layout::rendezvous::Verb;
use corewire_ring::message::{Envelope, Memory, Sink, Space, Wants};

use super::{Incoming, Place};
use crate::caller::{Caller, CallerState};
use crate::error::MessageError;
use crate::list::Key;
use crate::matching::{KeptBytes, Unexpected};
use crate::operations::Operation;
use crate::peers::Peers;
use crate::rendezvous::Destination;
use crate::selector::{Selector, Status};
use crate::transport::{PeerViolation, Transport};

impl Incoming {
    /// Gives a receive that is being called the oldest kept message that it asks for.
    pub(crate) fn take_kept<T: Transport>(
        &mut self,
        peers: &mut Peers<T>,
        caller: &mut Caller<'_>,
    ) {
        // A reply is never kept.
        if caller.selector.space() == Space::Reply {
            return;
        }
        while let Some((key, message)) = self.matching.find(&caller.selector) {
            let (source, Envelope { space, tag, .. }) = (message.source, message.envelope);
            let (is_whole, total) = (message.is_whole(), message.total);
            let is_offered = message.offer.is_some();
            self.take_kept_of(peers, key, caller);
            let CallerState::Ended(Err(MessageError::NoMemory { .. })) = caller.state else {
                return;
            };
            if space != Space::Request {
                return;
            }
            // As when it arrives.
            self.drop_kept(peers, key);
            caller.state = CallerState::Waiting;
            let entry = &mut self.rows[source.row() as usize];
            if is_whole || is_offered || entry.filled as u64 == total {
                peers.drop_request(source, tag);
            } else {
                entry.place = Place::Refused;
            }
        }
    }

    /// The same of a certain message.
    pub(crate) fn take_kept_of<T: Transport>(
        &mut self,
        peers: &mut Peers<T>,
        key: Key,
        caller: &mut Caller<'_>,
    ) {
        let Some(message) = self.matching.get(key) else { return };
        let (status, is_held) = (message.status(), message.is_held);
        let (source, total) = (message.source, message.total);
        let is_offered = message.offer.is_some();
        let stays = message.stays;
        // Memory that holds a kept message may be taken over; otherwise there must be room for a copy.
        let is_copied = is_held || message.bytes.is_short();
        if ((is_copied && !stays) || is_offered || !caller.target.adopts())
            && let Err(error) = caller.target.prepare(total)
        {
            caller.state = CallerState::Ended(Err(error));
            return;
        }
        let Some(message) = self.matching.take(key) else { return };
        if is_offered {
            caller.state = CallerState::Filling(status);
            caller.target.put(0, &message.bytes);
            return self.begin_transfer(peers, key.order, message, Destination::Caller);
        }
        self.acknowledge_match(peers, &message);
        let is_whole = message.is_whole();
        let filled = message.bytes.len();
        let envelope = message.ring_envelope();
        let message_data = message.data();
        self.show_kept(peers, source.row());
        if let Some(held) = message.held {
            if let Some(held) = caller.target.hold(*held) {
                caller.target.put(0, &held);
            }
        } else if !is_held {
            let left = match message.bytes {
                KeptBytes::Long(bytes) => caller.target.adopt(bytes).map(KeptBytes::Long),
                short => Some(short),
            };
            if let Some(bytes) = left {
                caller.target.put(0, &bytes);
                bytes.give_back(&self.pool);
            }
        }
        if is_whole {
            caller.state = CallerState::Ended(Ok(status));
        } else {
            caller.state = CallerState::Filling(status);
            self.rows[source.row() as usize].filled = filled;
            self.move_place(source.row(), Place::Caller);
            if is_held {
                self.note_data(key, &message_data);
                self.take_held(peers, source.row(), &envelope, total, Some(caller));
            }
        }
        self.fetch_held(peers);
    }

    /// Copies the oldest kept message that `selector` asks for to `memory`, if it was sent through the transport, all of it
    /// is here, it fits, and its sender waits for no word about it.
    #[inline]
    pub(crate) fn take_plain<T: Transport>(
        &mut self,
        peers: &mut Peers<T>,
        selector: &Selector,
        memory: &mut Memory,
    ) -> Option<Status> {
        let mut found = None;
        let source = self.matching.take_plain(selector, &self.pool, |bytes, status| {
            let fits = bytes.len() <= memory.room();
            if fits {
                memory.put(0, bytes);
                found = Some(status);
            }
            fits
        })?;
        self.show_kept(peers, source.row());
        if self.matching.has_held() {
            self.fetch_held(peers);
        }
        found
    }

    /// Gives a receive that goes on by itself the oldest kept message that it asks for. False if there is
    /// none.
    pub(crate) fn take_kept_for<T: Transport>(
        &mut self,
        peers: &mut Peers<T>,
        selector: &Selector,
        operation: u32,
    ) -> bool {
        let Some((key, _)) = self.matching.find(selector) else { return false };
        self.give_kept_to(peers, key, operation);
        true
    }

    /// Gives a kept message to a receive that goes on by itself.
    pub(crate) fn give_kept_to<T: Transport>(
        &mut self,
        peers: &mut Peers<T>,
        key: Key,
        operation: u32,
    ) {
        let Some(total) = self.matching.get(key).map(|message| message.total) else { return };
        if !self.prepare(peers, operation, total) {
            if peers.operations.is_claim(operation) {
                self.claim_for(peers, operation, key);
            }
            return;
        }
        let Some(message) = self.matching.take(key) else { return };
        if message.offer.is_some() {
            if let Operation::Receive { memory, .. } = peers.operations.by_index(operation) {
                memory.put(0, &message.bytes);
            }
            return self.begin_transfer(
                peers,
                key.order,
                message,
                Destination::Operation(operation),
            );
        }
        self.acknowledge_match(peers, &message);
        let (source, status) = (message.source, message.status());
        self.show_kept(peers, source.row());
        if let Operation::Receive { memory, .. } = peers.operations.by_index(operation) {
            memory.put(0, message.held.as_ref().map_or(&message.bytes[..], |held| held));
        }
        if message.is_whole() {
            peers.end_receive(operation, status);
        } else {
            self.rows[source.row() as usize].filled = message.bytes.len();
            self.move_place(source.row(), Place::Operation(operation));
            if message.is_held {
                self.note_data(key, &message.data());
                self.take_held(peers, source.row(), &message.ring_envelope(), total, None);
            }
        }
        message.bytes.give_back(&self.pool);
        self.fetch_held(peers);
    }

    /// A kept message is for this operation, which claims it.
    pub(super) fn claim_for<T: Transport>(
        &mut self,
        peers: &mut Peers<T>,
        operation: u32,
        key: Key,
    ) {
        self.matching.claim(key);
        peers.operations.set_claimed(operation, key);
        peers.has_news = true;
    }

    /// Drops a kept message, or the rest of it as it arrives.
    pub(crate) fn drop_kept<T: Transport>(&mut self, peers: &mut Peers<T>, key: Key) {
        let Some(message) = self.matching.take(key) else { return };
        let row = message.source.row();
        self.acknowledge_match(peers, &message);
        peers.transport.count(EndpointCounter::Discarded);
        if message.is_held {
            self.set_place(row, Place::Nowhere, message.total);
            self.note_data(key, &message.data());
            self.take_held(peers, row, &message.ring_envelope(), message.total, None);
        } else if self.rows[row as usize].place == Place::Kept(key) {
            self.move_place(row, Place::Nowhere);
        } else if let Some(offer) = message.offer {
            peers.end_fetch(key);
            self.drop_offer(peers, message.source, offer.number);
        }
        message.bytes.give_back(&self.pool);
        self.show_kept(peers, row);
        self.fetch_held(peers);
    }

    /// A message that was claimed is anybody's again: the oldest receive that waits for it gets it.
    pub(crate) fn make_available<T: Transport>(&mut self, peers: &mut Peers<T>, key: Key) {
        if self.matching.give_back(key) {
            while let Some(message) = self.matching.get(key) {
                let (source, Envelope { space, tag, .. }) = (message.source, message.envelope);
                let total = message.total;
                let Some(operation) = peers.operations.take_posted(space, source, tag, total)
                else {
                    break;
                };
                // If it does not fit there, it is still to be had.
                self.give_kept_to(peers, key, operation);
            }
        }
        self.fetch_held(peers);
    }

    /// A receive has taken a kept message: acknowledges it, if its sender requests that.
    fn acknowledge_match<T: Transport>(&mut self, peers: &mut Peers<T>, message: &Unexpected) {
        // Another peer may have its row by now.
        let Ok(row) = peers.row_of(message.source) else { return };
        if let Some(number) = message.ack_due {
            peers.acknowledge(row, number);
        }
        if let Some(number) = message.carrier
            && message.envelope.wants == Wants::Match
        {
            peers.notify(row, number, Verb::Done, 0);
        }
    }

    /// Takes the first fragment of a message that was left with its sender, to where it goes. It must still be what was
    /// prepared for.
    fn take_held<T: Transport>(
        &mut self,
        peers: &mut Peers<T>,
        row: u32,
        envelope: &Envelope,
        total: u64,
        caller: Option<&mut Caller<'_>>,
    ) {
        peers.transport.release(row);
        match &peers.transport.arrival(row) {
            Ok(Some(arrival)) if arrival.envelope == *envelope && arrival.total == total => {
                self.fill(peers, row, arrival, caller);
            }
            Ok(Some(arrival)) => {
                let found = arrival.total;
                peers.cut_off(row, PeerViolation { word: "total", found, position: 0 });
            }
            Ok(None) => {}
            Err(violation) => peers.cut_off(row, *violation),
        }
    }

    /// Takes in messages that were left with their senders, as far as the budget allows by now, and all of peers that
    /// have gone.
    pub(crate) fn fetch_held<T: Transport>(&mut self, peers: &mut Peers<T>) {
        loop {
            let has_ended = |row: u32| peers.has_ended(row);
            // What lies before data that is awaited must not keep it from coming.
            let must_come = |row: u32| has_ended(row) || self.must_keep(peers, row);
            let Some((key, source)) = self.matching.next_to_fetch(self.blocked_bytes, must_come)
            else {
                return;
            };
            let Some(message) = self.matching.get(key) else { return };
            let (envelope, total) = (message.ring_envelope(), message.total);
            let is_data = message.carrier.is_some();
            let taken = match message.stays {
                true => Some(KeptBytes::default()),
                false => KeptBytes::of(total, &self.pool),
            };
            let Some(bytes) = taken else {
                if !has_ended(source.row()) {
                    return;
                }
                // It must not keep its sender's row, nor the messages of others.
                self.drop_kept(peers, key);
                continue;
            };
            self.matching.fetch(key);
            if let Some(message) = self.matching.get_mut(key) {
                message.bytes = bytes;
            }
            self.show_kept(peers, source.row());
            self.set_place(source.row(), Place::Kept(key), total);
            if is_data {
                self.begin_kept_data_at(source.row(), key, 0);
            }
            self.take_held(peers, source.row(), &envelope, total, None);
        }
    }

    /// A receive that was called ends before its message is complete: what has arrived is kept.
    pub(crate) fn leave<T: Transport>(&mut self, peers: &mut Peers<T>, caller: &mut Caller<'_>) {
        if self.leave_transfer(peers, caller) {
            return;
        }
        let CallerState::Filling(Status { source, tag, bytes: total, immediate }) = caller.state
        else {
            return;
        };
        let row = source.row();
        let filled = self.rows[row as usize].filled;
        caller.state = CallerState::Waiting;
        if caller.selector.space() == Space::Reply {
            // Nobody asks for it any more.
            self.move_place(row, Place::Nowhere);
            return;
        }
        let mut bytes = caller.target.written(filled);
        let missing = usize::try_from(total).unwrap_or(usize::MAX).saturating_sub(bytes.len());
        // Appending never grows it.
        bytes.reserve_exact(missing);
        let envelope = Envelope { immediate, ..Envelope::numbered(caller.selector.space(), tag) };
        let message = Unexpected { total, ..Unexpected::arrived(source, envelope, bytes.into()) };
        // One that was offered is not the newest of its sender.
        let key = match self.rows[row as usize].data {
            Some(data) => self.matching.put_back_at(data.order, message),
            None => self.matching.put_back(message),
        };
        self.show_kept(peers, row);
        self.move_place(row, Place::Kept(key));
        // A receive may have been posted meanwhile that asks for it.
        self.make_available(peers, key);
    }
}
