//! Copying what arrives to where it goes, fragment by fragment, and what follows with the last one.

use corewire_layout::pair::PAIR_INLINE_BYTES_MAX;
use corewire_layout::rendezvous::Verb;
use corewire_ring::message::{Arrival, Memory, Sink};

use super::{Incoming, Place};
use crate::caller::{Caller, CallerState};
use crate::error::MessageError;
use crate::operations::{NOBODY, Operation};
use crate::peers::Peers;
use crate::rendezvous::ArrivingData;
use crate::transport::Transport;

impl Incoming {
    /// Gets the memory of a receive ready for its message, of `total` bytes. False if the message cannot
    /// go there; then the operation has ended.
    pub(super) fn prepare<T: Transport>(
        &mut self,
        peers: &mut Peers<T>,
        operation: u32,
        total: u64,
    ) -> bool {
        let truncates = peers.operations.options(operation).truncates;
        let memory = match peers.operations.by_index(operation) {
            Operation::Receive { memory, .. } | Operation::Call { memory, .. } => memory,
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
        peers.has_news = true;
        peers.operations.end(operation, Err(error), None);
        false
    }

    /// Shows observers how much is kept of the peer of `row`.
    pub(super) fn show_kept<T: Transport>(&self, peers: &Peers<T>, row: u32) {
        peers.transport.show_kept(row, self.matching.budget.kept(row));
    }

    /// The message that arrives, of `total` bytes, goes to `place`.
    #[inline]
    pub(super) fn set_place(&mut self, row: u32, place: Place, total: u64) {
        let entry = &mut self.rows[row as usize];
        entry.place = place;
        entry.filled = 0;
        entry.expected = total;
        entry.data = None;
    }

    /// The rest of the message that arrives goes to `place`.
    #[inline]
    pub(super) fn move_place(&mut self, row: u32, place: Place) {
        self.rows[row as usize].place = place;
    }

    /// Copies a fragment to where its message goes.
    pub(super) fn fill<T: Transport>(
        &mut self,
        peers: &mut Peers<T>,
        row: u32,
        arrival: &Arrival,
        caller: Option<&mut Caller<'_>>,
    ) {
        let entry = &mut self.rows[row as usize];
        let (place, filled) = (entry.place, entry.filled);
        entry.filled += arrival.bytes;
        let is_whole = entry.filled as u64 == entry.expected;
        let mut caller = caller;
        if arrival.is_in_place() {
            self.fill_in_place(peers, row, arrival, place, caller.as_deref_mut());
        }
        let transport = &peers.transport;
        match place {
            _ if arrival.is_in_place() => {}
            Place::Operation(operation) => {
                if let Operation::Receive { memory, .. } | Operation::Call { memory, .. } =
                    peers.operations.by_index(operation)
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
        peers.transport.pass(row, arrival);
        if is_whole {
            self.rows[row as usize].place = Place::Nowhere;
            if place == Place::Words {
                return self.handle_words(peers, row, &arrival.envelope, caller);
            }
            if place == Place::Refused {
                peers.drop_request(peers.peer_of(row), arrival.envelope.tag);
            }
            if let Some(number) = self.rows[row as usize].ack_due.take() {
                peers.acknowledge(row, number);
            }
            let status = match self.rows[row as usize].data.take() {
                Some(ArrivingData { status, done, .. }) => {
                    if place != Place::Nowhere {
                        peers.transport.count_received(row, status.bytes);
                    }
                    if let Some(number) = done {
                        peers.notify(row, number, Verb::Done, 0);
                    }
                    status
                }
                None => peers.status_of(row, arrival),
            };
            match (place, caller) {
                (Place::Operation(operation), _) => peers.end_receive(operation, status),
                (Place::Caller, Some(caller)) => {
                    caller.state = CallerState::Ended(Ok(status));
                    let is_long = status.bytes > PAIR_INLINE_BYTES_MAX as u64;
                    if is_long && !arrival.is_in_place() && caller.target.adopts() {
                        peers.note_copied(row);
                    }
                }
                _ => {}
            }
        }
    }

    /// Takes a message that stays where its sender wrote it to where it goes.
    pub(super) fn fill_in_place<T: Transport>(
        &mut self,
        peers: &mut Peers<T>,
        row: u32,
        arrival: &Arrival,
        place: Place,
        caller: Option<&mut Caller<'_>>,
    ) {
        // What nobody takes over is released here.
        let Some(held) = peers.transport.keep(row, arrival) else { return };
        match place {
            Place::Operation(operation) => {
                if let Operation::Receive { memory, .. } | Operation::Call { memory, .. } =
                    peers.operations.by_index(operation)
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
                    message.held = Some(Box::new(held));
                }
            }
            Place::Words | Place::Nowhere | Place::Refused => {}
        }
    }

    /// The peer of `row` has gone in the middle of a message: the receive that it went to waits for another.
    pub(crate) fn abandon_arrival<T: Transport>(
        &mut self,
        peers: &mut Peers<T>,
        row: u32,
        caller: Option<&mut Caller<'_>>,
    ) {
        match std::mem::take(&mut self.rows[row as usize].place) {
            Place::Nowhere | Place::Refused | Place::Words => {}
            Place::Kept(key) => {
                drop(self.matching.take(key));
                self.show_kept(peers, row);
            }
            Place::Caller => {
                if let Some(caller) = caller {
                    caller.state = CallerState::Waiting;
                }
            }
            Place::Operation(operation) => {
                let error = peers.error_of(row);
                self.abandon_receive(peers, operation, &error);
            }
        }
    }

    /// The message of a receive will never be complete, for this reason.
    pub(super) fn abandon_receive<T: Transport>(
        &mut self,
        peers: &mut Peers<T>,
        operation: u32,
        error: &MessageError,
    ) {
        match peers.operations.by_index(operation) {
            // No other message was claimed, and no other is a reply.
            Operation::Call { .. } | Operation::Receive { is_claimed: true, .. } => {
                peers.has_news = true;
                peers.operations.end(operation, Err(error.clone()), None);
            }
            // Others go to the rest of the memory.
            Operation::Receive { part_of, .. } if *part_of != NOBODY => {
                peers.has_news = true;
                peers.operations.drop_part(operation);
            }
            _ => self.receive_again(peers, operation),
        }
    }

    /// A receive whose message will never be complete waits for another.
    pub(super) fn receive_again<T: Transport>(&mut self, peers: &mut Peers<T>, operation: u32) {
        let selector = peers.operations.selector_of(operation);
        // What has arrived meanwhile may be what it asks for.
        if !self.take_kept_for(peers, &selector, operation) {
            peers.operations.post_again(operation);
        }
    }
}
