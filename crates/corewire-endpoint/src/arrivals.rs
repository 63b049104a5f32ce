//! Messages that arrive: where each goes.

use corewire_layout::counters::EndpointCounter;
use corewire_layout::pair::PAIR_INLINE_BYTES_MAX;
use corewire_layout::rendezvous::Verb;
use corewire_ring::message::{Arrival, Envelope, Memory, Sink, Space, Wants};

use crate::budget::{DEFERRED_BYTES_MAX, cost};
use crate::caller::{Caller, CallerState};
use crate::engine::Engine;
use crate::error::MessageError;
use crate::list::Key;
use crate::matching::{Posted, Unexpected};
use crate::operations::Operation;
use crate::rendezvous::ArrivingData;
use crate::row::Place;
use crate::selector::Status;
use crate::transport::Transport;

impl<T: Transport> Engine<T> {
    /// Handles what lies at the head of a row.
    pub(crate) fn take_arrival(&mut self, row: u32, mut caller: Option<&mut Caller<'_>>) {
        let found = self.transport.arrival(row);
        let arrival = match &found {
            Ok(Some(arrival)) => arrival,
            Ok(None) => return,
            Err(violation) => return self.cut_off(row, *violation),
        };
        if arrival.is_first {
            let Envelope { space, tag, .. } = arrival.envelope;
            if self.mute_if_behind(row, &arrival.envelope) {
                return;
            }
            self.set_place(row, Place::Nowhere, arrival.total);
            let stays = match space {
                Space::Acknowledgement => {
                    self.handle_ack(row, tag);
                    false
                }
                Space::Dropped => {
                    self.request_dropped(row, tag, caller.as_deref_mut());
                    false
                }
                Space::Reply => {
                    self.find_call(row, arrival, caller.as_deref_mut());
                    false
                }
                Space::Tagged | Space::Untagged | Space::Request => {
                    !self.find_place(row, arrival, caller.as_deref_mut())
                }
                Space::Offer | Space::Notice => !self.begin_words(row, arrival),
                Space::Data => !self.begin_data(row, arrival, caller.as_deref_mut()),
            };
            if stays {
                return;
            }
        }
        self.fill(row, arrival, caller);
    }

    /// Decides where a reply goes: nowhere if its call is over.
    fn find_call(&mut self, row: u32, arrival: &Arrival, caller: Option<&mut Caller<'_>>) {
        let (source, number) = (self.peer_of(row), arrival.envelope.tag);
        if let Some(operation) = self.take_call(source, number) {
            if self.prepare(operation, arrival.total) {
                self.set_place(row, Place::Operation(operation), arrival.total);
            }
        } else if let Some(caller) = caller
            && caller.is_waiting()
            && caller.selector.takes_of(Space::Reply, source, number)
        {
            match caller.target.prepare(arrival.total) {
                Ok(()) => {
                    caller.state = CallerState::Filling(self.status_of(row, arrival));
                    self.set_place(row, Place::Caller, arrival.total);
                }
                Err(error) => caller.state = CallerState::Ended(Err(error)),
            }
        }
    }

    /// Decides where a message goes. False if it stays where it is.
    fn find_place(&mut self, row: u32, arrival: &Arrival, caller: Option<&mut Caller<'_>>) -> bool {
        let source = self.peer_of(row);
        let Envelope { space, tag, wants, .. } = arrival.envelope;
        if space == Space::Request && self.owes_too_much(row) {
            return self.defer(row, arrival);
        }
        while let Some(posted) = self.matching.take_posted(space, source, tag) {
            if self.prepare(posted.operation, arrival.total) {
                self.set_place(row, Place::Operation(posted.operation), arrival.total);
                self.note_match(row, wants);
                return true;
            }
        }
        if let Some(caller) = caller
            && caller.is_waiting()
            && caller.selector.takes_of(space, source, tag)
        {
            let stays = arrival.is_in_place() && caller.target.adopts();
            match if stays { Ok(()) } else { caller.target.prepare(arrival.total) } {
                Ok(()) => {
                    caller.state = CallerState::Filling(self.status_of(row, arrival));
                    self.set_place(row, Place::Caller, arrival.total);
                    self.note_match(row, wants);
                    return true;
                }
                // The receive waits for another: its caller could do nothing about this one.
                Err(MessageError::NoMemory { .. }) if space == Space::Request => {
                    self.set_place(row, Place::Refused, arrival.total);
                    return true;
                }
                Err(error) => caller.state = CallerState::Ended(Err(error)),
            }
        }
        self.transport.count(EndpointCounter::Unexpected);
        self.has_news = true;
        self.keep(row, arrival, false).1
    }

    /// Keeps a request that nobody receives yet. False if it stays with its sender.
    fn defer(&mut self, row: u32, arrival: &Arrival) -> bool {
        let is_within = self.rows[row as usize].deferred_bytes <= DEFERRED_BYTES_MAX;
        let (key, is_kept) = self.keep(row, arrival, is_within);
        self.defer_kept(row, key, arrival.total);
        is_kept
    }

    /// A request that is kept, of which `bytes` bytes are here, is received later.
    pub(crate) fn defer_kept(&mut self, row: u32, key: Key, bytes: u64) {
        self.matching.claim(key);
        let entry = &mut self.rows[row as usize];
        entry.deferred.push_back(key);
        entry.deferred_bytes = entry.deferred_bytes.saturating_add(cost(bytes));
    }

    fn status_of(&self, row: u32, arrival: &Arrival) -> Status {
        let Envelope { tag, immediate, .. } = arrival.envelope;
        Status { source: self.peer_of(row), tag, bytes: arrival.total, immediate }
    }

    /// The message that is arriving has been matched: acknowledges it now, or when all of it has arrived, if its
    /// sender requests that.
    fn note_match(&mut self, row: u32, wants: Wants) {
        if let Some(number) = self.count_ack_request(row, wants) {
            self.acknowledge(row, number);
        }
    }

    /// Counts a message that requests an acknowledgement. Returns its number if its match is to be acknowledged; a
    /// delivery is acknowledged when the whole message has arrived.
    fn count_ack_request(&mut self, row: u32, wants: Wants) -> Option<u64> {
        let entry = &mut self.rows[row as usize];
        if wants == Wants::Nothing {
            return None;
        }
        entry.received_for_ack += 1;
        match wants {
            Wants::Delivery => {
                entry.ack_due = Some(entry.received_for_ack);
                None
            }
            _ => Some(entry.received_for_ack),
        }
    }

    /// Keeps a message that no receive asks for, whatever the budget if `is_exempt`. False beside its key if it stays
    /// with its sender.
    fn keep(&mut self, row: u32, arrival: &Arrival, is_exempt: bool) -> (Key, bool) {
        let (source, envelope, total) = (self.peer_of(row), arrival.envelope, arrival.total);
        // What is left of a peer that has gone is little, and its row is free only when all of it is kept.
        let is_departed = self.rows[row as usize].is_departed();
        let stays = arrival.is_in_place();
        let has_room = is_departed
            || is_exempt
            || self.may_keep(row, if stays { 0 } else { total })
            || self.awaits_data(row);
        let take = || if stays { Some(Vec::new()) } else { self.pool.take(total) };
        let memory = has_room.then(take).flatten();
        let is_held = memory.is_none();
        let bytes = memory.unwrap_or_default();
        let ack_due = self.count_ack_request(row, envelope.wants);
        let (offer, carrier, is_claimed) = (None, None, false);
        let message = Unexpected {
            source,
            envelope,
            ack_due,
            total,
            stays,
            held: None,
            bytes,
            is_held,
            offer,
            carrier,
            is_claimed,
        };
        let key = self.matching.keep(message);
        if is_held {
            self.transport.count(EndpointCounter::Stalls);
            self.transport.hold(row);
            if is_departed {
                self.fetch_held();
            }
        } else {
            self.set_place(row, Place::Kept(key), total);
            self.show_kept(row);
        }
        (key, !is_held)
    }

    /// Gets the memory of a receive ready for its message, of `total` bytes. False if the message cannot
    /// go there; then the operation has ended.
    pub(crate) fn prepare(&mut self, operation: u32, total: u64) -> bool {
        let truncates = self.operations.options(operation).truncates;
        let memory = match self.operations.by_index(operation) {
            Operation::Receive { memory, posted, .. } => {
                *posted = None;
                memory
            }
            Operation::Call { memory, .. } => memory,
            _ => return false,
        };
        let given = memory.room();
        let error = if memory.is_pooled() && total > given as u64 {
            match self.pool.take(total) {
                Some(bytes) => {
                    *memory = Memory::filling(bytes);
                    return true;
                }
                None => MessageError::NoMemory { bytes: total },
            }
        } else if total > given as u64 && !truncates {
            MessageError::BufferTooSmall { needed: total, given }
        } else {
            return true;
        };
        self.has_news = true;
        self.operations.end(operation, Err(error), None);
        false
    }

    /// A receive that goes on by itself has got its whole message.
    pub(crate) fn end_receive(&mut self, operation: u32, status: Status) {
        let (Operation::Receive { memory, .. } | Operation::Call { memory, .. }) =
            self.operations.by_index(operation)
        else {
            return;
        };
        let given = memory.room();
        let result = if status.bytes > given as u64 {
            Err(MessageError::Truncated { status, given })
        } else {
            Ok(status)
        };
        self.has_news = true;
        self.operations.end(operation, result, None);
    }

    /// Shows observers how much is kept of the peer of `row`.
    pub(crate) fn show_kept(&self, row: u32) {
        self.transport.show_kept(row, self.matching.budget.kept(row));
    }

    /// The message that arrives, of `total` bytes, goes to `place`.
    pub(crate) fn set_place(&mut self, row: u32, place: Place, total: u64) {
        let entry = &mut self.rows[row as usize];
        entry.place = place;
        entry.filled = 0;
        entry.expected = total;
        entry.data = None;
    }

    /// The rest of the message that arrives goes to `place`.
    pub(crate) fn move_place(&mut self, row: u32, place: Place) {
        self.rows[row as usize].place = place;
    }

    /// Copies a fragment to where its message goes.
    pub(crate) fn fill(&mut self, row: u32, arrival: &Arrival, caller: Option<&mut Caller<'_>>) {
        let entry = &mut self.rows[row as usize];
        let (place, filled) = (entry.place, entry.filled);
        entry.filled += arrival.bytes;
        let is_whole = entry.filled as u64 == entry.expected;
        let mut caller = caller;
        if arrival.is_in_place() {
            self.fill_in_place(row, arrival, place, caller.as_deref_mut());
        }
        let transport = &self.transport;
        match place {
            _ if arrival.is_in_place() => {}
            Place::Operation(operation) => {
                if let Operation::Receive { memory, .. } | Operation::Call { memory, .. } =
                    self.operations.by_index(operation)
                {
                    transport.copy(row, arrival, filled, memory);
                }
            }
            Place::Caller => {
                if let Some(caller) = caller.as_deref_mut() {
                    transport.copy(row, arrival, filled, &mut *caller.target);
                }
            }
            Place::Kept(key) => {
                if let Some(message) = self.matching.get_mut(key) {
                    transport.copy(row, arrival, filled, &mut message.bytes);
                }
            }
            Place::Words => {
                // The length is bounded.
                let words = &mut self.rows[row as usize].words;
                words.reserve(arrival.bytes);
                transport.copy(row, arrival, filled, words);
            }
            Place::Nowhere | Place::Refused => {}
        }
        self.transport.pass(row, arrival);
        if is_whole {
            self.rows[row as usize].place = Place::Nowhere;
            if place == Place::Words {
                return self.handle_words(row, &arrival.envelope, caller);
            }
            if place == Place::Refused {
                self.drop_request(self.peer_of(row), arrival.envelope.tag);
            }
            if let Some(number) = self.rows[row as usize].ack_due.take() {
                self.acknowledge(row, number);
            }
            let status = match self.rows[row as usize].data.take() {
                Some(ArrivingData { status, done, .. }) => {
                    if place != Place::Nowhere {
                        self.transport.count_received(row, status.bytes);
                    }
                    if let Some(number) = done {
                        self.notify(row, number, Verb::Done, 0);
                    }
                    status
                }
                None => self.status_of(row, arrival),
            };
            match (place, caller) {
                (Place::Operation(operation), _) => self.end_receive(operation, status),
                (Place::Caller, Some(caller)) => {
                    caller.state = CallerState::Ended(Ok(status));
                    let is_long = status.bytes > PAIR_INLINE_BYTES_MAX as u64;
                    if is_long && !arrival.is_in_place() && caller.target.adopts() {
                        self.note_copied(row);
                    }
                }
                _ => {}
            }
        }
    }

    /// A receive into memory of its own has copied a message of the peer of `row`.
    pub(crate) fn note_copied(&mut self, row: u32) {
        if self.may_grant(row) {
            self.grant_first(row);
        }
    }

    /// Takes a message that stays where its sender wrote it to where it goes.
    fn fill_in_place(
        &mut self,
        row: u32,
        arrival: &Arrival,
        place: Place,
        caller: Option<&mut Caller<'_>>,
    ) {
        // What nobody takes over is released here.
        let Some(held) = self.transport.keep(row, arrival) else { return };
        match place {
            Place::Operation(operation) => {
                if let Operation::Receive { memory, .. } | Operation::Call { memory, .. } =
                    self.operations.by_index(operation)
                {
                    memory.put(0, &held);
                }
            }
            Place::Caller => {
                if let Some(caller) = caller
                    && let Some(held) = caller.target.hold(held)
                {
                    caller.target.put(0, &held);
                }
            }
            Place::Kept(key) => {
                if let Some(message) = self.matching.get_mut(key) {
                    message.held = Some(held);
                }
            }
            Place::Words | Place::Nowhere | Place::Refused => {}
        }
    }

    /// The peer of `row` has gone in the middle of a message: the receive that it went to waits for another.
    pub(crate) fn abandon_arrival(&mut self, row: u32, caller: Option<&mut Caller<'_>>) {
        match std::mem::take(&mut self.rows[row as usize].place) {
            Place::Nowhere | Place::Refused | Place::Words => {}
            Place::Kept(key) => {
                drop(self.matching.take(key));
                self.show_kept(row);
            }
            Place::Caller => {
                if let Some(caller) = caller {
                    caller.state = CallerState::Waiting;
                }
            }
            Place::Operation(operation) => {
                let error = self.error_of(row);
                self.abandon_receive(operation, &error);
            }
        }
    }

    /// The message of a receive will never be complete, for this reason.
    pub(crate) fn abandon_receive(&mut self, operation: u32, error: &MessageError) {
        match self.operations.by_index(operation) {
            // No other message was claimed, and no other is a reply.
            Operation::Call { .. } | Operation::Receive { is_claimed: true, .. } => {
                self.has_news = true;
                self.operations.end(operation, Err(error.clone()), None);
            }
            _ => self.receive_again(operation),
        }
    }

    /// A receive whose message will never be complete waits for another.
    fn receive_again(&mut self, operation: u32) {
        let Operation::Receive { selector, order, .. } = self.operations.by_index(operation) else {
            return;
        };
        let (posted, order) = (Posted { selector: *selector, operation }, *order);
        // What has arrived meanwhile may be what it asks for.
        if !self.take_kept_for(posted) {
            let key = self.matching.post_again(order, posted);
            self.set_posted(operation, key);
        }
    }

    /// Notes under which key a receive waits.
    pub(crate) fn set_posted(&mut self, operation: u32, key: Key) {
        if let Operation::Receive { posted, order, .. } = self.operations.by_index(operation) {
            *posted = Some(key);
            *order = key.order;
        }
    }
}
