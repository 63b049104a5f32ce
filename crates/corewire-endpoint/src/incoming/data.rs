//! The receiver's side: messages that were offered and come as data, because they cannot be read, or not any more.

use corewire_layout::counters::EndpointCounter;
use corewire_ring::message::{Arrival, Wants};

use super::{Incoming, Place};
use crate::caller::Caller;
use crate::error::MessageError;
use crate::list::Key;
use crate::matching::KeptBytes;
use crate::peers::Peers;
use crate::rendezvous::{ArrivingData, Destination, Stage};
use crate::selector::{Peer, Status};
use crate::transport::{PeerViolation, Transport};

impl Incoming {
    /// The message of an offer, or its end, arrives. False if it stays where it is.
    pub(super) fn begin_data<T: Transport>(
        &mut self,
        peers: &mut Peers<T>,
        row: u32,
        arrival: &Arrival,
        caller: Option<&mut Caller<'_>>,
    ) -> bool {
        let (source, number) = (peers.peer_of(row), arrival.envelope.tag);
        let rest = arrival.total;
        let from_of =
            |total: u64, there: u64| total.checked_sub(rest).filter(|from| *from <= there);
        if let Some(index) = peers.transfer_of(source, number) {
            let transfer = peers.take_transfer(index);
            self.forget_offer(row, number);
            let there = match transfer.stage {
                Stage::Awaited(bytes) => bytes,
                _ => 0,
            };
            let Some(from) = from_of(transfer.total, there) else {
                self.abandon_transfer(peers, &transfer, &MessageError::Cancelled, caller);
                peers.cut_off(row, PeerViolation { word: "total", found: rest, position: 0 });
                return false;
            };
            let place = match transfer.to {
                Destination::Operation(operation) => Place::Operation(operation),
                _ => Place::Caller,
            };
            let done = (transfer.envelope.wants != Wants::Nothing).then_some(number);
            let (status, order) = (transfer.status(), transfer.order);
            self.set_data_place(row, place, from, ArrivingData { status, done, order });
            return true;
        }
        if let Some(key) = self.matching.find_offered(source, number) {
            return self.begin_kept_data(peers, row, key, from_of, rest);
        }
        // Nobody wants it any more. Its sender may wait for that all the same.
        let status = Status { source, tag: 0, bytes: rest, immediate: None };
        let (done, order) = (Some(number), 0);
        self.set_data_place(row, Place::Nowhere, 0, ArrivingData { status, done, order });
        true
    }

    fn begin_kept_data<T: Transport>(
        &mut self,
        peers: &mut Peers<T>,
        row: u32,
        key: Key,
        from_of: impl Fn(u64, u64) -> Option<u64>,
        rest: u64,
    ) -> bool {
        peers.end_fetch(key);
        let Some((offer, total)) = self.matching.offer_of(key) else { return false };
        self.forget_offer(row, offer.number);
        let there = self.matching.get(key).map_or(0, |message| message.bytes.len() as u64);
        let Some(from) = from_of(total, there) else {
            peers.cut_off(row, PeerViolation { word: "total", found: rest, position: 0 });
            return false;
        };
        let has_ended = peers.has_ended(row);
        let has_room =
            from > 0 || has_ended || self.must_keep(peers, row) || self.may_keep(row, total);
        // A part that is there already stays only if the rest of it follows.
        let before = self.matching.get_mut(key).map(|message| std::mem::take(&mut message.bytes));
        let before = before.unwrap_or_default();
        let memory = if from > 0 {
            Some(before)
        } else {
            before.give_back(&self.pool);
            has_room.then(|| KeptBytes::of(total, &self.pool)).flatten()
        };
        let is_held = memory.is_none();
        self.matching.begin_data(key, offer.number, memory);
        if is_held {
            peers.transport.count(EndpointCounter::Stalls);
            peers.transport.hold(row);
            if has_ended {
                self.fetch_held(peers);
            }
            return false;
        }
        self.begin_kept_data_at(row, key, from);
        self.show_kept(peers, row);
        true
    }

    /// Data goes to where its message is kept.
    #[inline]
    pub(super) fn begin_kept_data_at(&mut self, row: u32, key: Key, from: u64) {
        let Some(message) = self.matching.get(key) else { return };
        let (total, data) = (message.total, message.data());
        self.set_place(row, Place::Kept(key), total);
        self.rows[row as usize].filled = usize::try_from(from).unwrap_or(usize::MAX);
        self.note_data(key, &data);
    }

    /// What arrives is the data of a message that was kept under this key.
    #[inline]
    pub(super) fn note_data(&mut self, key: Key, data: &Option<(Peer, Status, Option<u64>)>) {
        if let Some((source, status, done)) = *data {
            let order = key.order;
            self.rows[source.row() as usize].data = Some(ArrivingData { status, done, order });
        }
    }

    #[inline]
    fn set_data_place(&mut self, row: u32, place: Place, from: u64, data: ArrivingData) {
        self.set_place(row, place, data.status.bytes);
        let entry = &mut self.rows[row as usize];
        entry.filled = usize::try_from(from).unwrap_or(usize::MAX);
        entry.data = Some(data);
    }
}
