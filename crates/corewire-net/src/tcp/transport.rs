//! What the engine asks of connections.

use corewire_endpoint::transport::{
    Attention, Change, Gone, Helped, PeerViolation, Polling, Pulled, Room, SendError, Short,
    Transport,
};
use corewire_endpoint::{Arrival, Envelope, Peer, Place, Sink, Source, Space, Wanted, Wants};
use corewire_layout::net::FRAME_BYTES_MAX;
use corewire_layout::rendezvous::Stretch;
use rustix::event::epoll::EventFlags;

use super::connection::Connection;
use super::pieces::{Pull, Stepped};
use super::{ASK_EVERY, OFFERED_ABOVE, Tcp};
use crate::link::CREDIT_BYTES_MAX;

impl Transport for Tcp {
    fn has_notice(&self) -> bool {
        !self.changes.is_empty()
    }

    fn take_notices(&mut self, changes: &mut Vec<Change>) -> Attention {
        changes.append(&mut self.changes);
        Attention::None
    }

    fn open(&mut self, row: u32, generation: u32) {
        if let Some(connection) = self.at_mut(row) {
            connection.generation = generation;
        }
    }

    fn cut_off(&mut self, row: u32, violation: PeerViolation) {
        self.forget(row);
        if self.at_mut(row).is_some_and(Connection::is_cut_off) {
            self.open = self.open.saturating_sub(1);
            self.changes.push(Change::Gone { row, how: Gone::CutOff(violation) });
        }
    }

    fn remove(&mut self, row: u32) {
        self.forget(row);
        if let Some(place) = self.place(row) {
            (place.connection, place.reserved, place.number) = (None, None, 0);
        }
    }

    fn try_inject(&mut self, peer: Peer, envelope: &Envelope, message: &[u8]) -> bool {
        let Some(connection) = self.at_mut(peer.row()) else { return false };
        let (is_open, mut sent) = (connection.is_open(peer), 0);
        if is_open && connection.has_added(envelope, message) {
            self.leave_of(peer.row());
            return true;
        }
        let bytes = message.len() as u64;
        if !is_open || bytes > FRAME_BYTES_MAX || !connection.has_room(bytes) {
            return false;
        }
        // What had to leave before it may have taken the room.
        let is_sent = connection.send(envelope, &message, &mut sent);
        self.leave_of(peer.row());
        is_sent
    }

    fn try_send(
        &mut self,
        row: u32,
        envelope: &Envelope,
        source: &impl Source,
        sent: &mut u64,
    ) -> Result<bool, SendError> {
        let Some(connection) = self.at_mut(row) else { return Ok(false) };
        let is_sent = connection.send(envelope, source, sent);
        self.leave_of(row);
        Ok(is_sent)
    }

    fn gather(&mut self) {
        self.is_gathering = true;
    }

    fn flush(&mut self) {
        self.is_gathering = false;
        self.leave_now();
    }

    fn try_take(&mut self, _polling: Polling, wanted: &Wanted, target: &mut [u8]) -> Short {
        if let Some(short) = self.take_next(wanted, target) {
            return short;
        }
        let Some(row) = self.poll() else { return Short::Nothing };
        let Ok(Some(arrival)) = self.look(row) else { return Short::Other(row) };
        let Some(connection) = self.at(row) else { return Short::Other(row) };
        let Envelope { space, tag, immediate, wants } = arrival.envelope;
        let source = Wanted::source_bits(row, connection.generation);
        let is_it = arrival.is_whole()
            && arrival.place == Place::Slots
            && space == wanted.space
            && wants == Wants::Nothing;
        let is_open = connection.generation != 0 && wanted.takes(source, tag);
        if !is_it || !is_open || arrival.bytes > target.len() {
            return Short::Other(row);
        }
        let bytes = arrival.bytes;
        target[..bytes].copy_from_slice(connection.arrived(bytes));
        self.pass(row, &arrival);
        Short::Taken { source, tag, immediate, bytes }
    }

    fn poll(&mut self) -> Option<u32> {
        self.polls = self.polls.wrapping_add(1);
        // Also while some are busy, the others are looked at.
        if self.polls.is_multiple_of(ASK_EVERY) {
            self.look_at_all();
        }
        let found = self.next_ready().or_else(|| {
            self.look_at_all();
            self.next_ready()
        });
        if found.is_none() && self.is_gathering {
            // A program that receives waits for an answer, perhaps.
            self.flush();
        }
        found
    }

    fn arrival(&mut self, row: u32) -> Result<Option<Arrival>, PeerViolation> {
        self.look(row)
    }

    fn has_arrival(&mut self, row: u32) -> Result<bool, PeerViolation> {
        Ok(self.arrival(row)?.is_some())
    }

    fn copy(&self, row: u32, arrival: &Arrival, at: usize, sink: &mut (impl Sink + ?Sized)) {
        if let Some(connection) = self.at(row) {
            connection.copy(arrival, at, sink);
        }
    }

    fn pass(&mut self, row: u32, arrival: &Arrival) {
        self.make_untold(row);
        if self.at_mut(row).is_some_and(|connection| connection.pass(arrival)) {
            self.leave_of(row);
        }
    }

    fn hold(&mut self, row: u32) {
        if let Some(connection) = self.at_mut(row) {
            connection.is_held = true;
            self.watch(row);
        }
    }

    fn release(&mut self, row: u32) {
        if let Some(connection) = self.at_mut(row) {
            connection.is_held = false;
            self.make_ready(row);
            self.watch(row);
        }
    }

    fn look_at(&mut self, row: u32) {
        if let Some(connection) = self.at_mut(row) {
            connection.note(EventFlags::IN);
            self.make_ready(row);
        }
    }

    type Pull = Pull;
    type Help = ();

    fn is_offered(&mut self, _row: u32, envelope: &Envelope, bytes: u64) -> bool {
        let may_wait = matches!(envelope.space, Space::Tagged | Space::Untagged | Space::Request);
        may_wait && bytes > OFFERED_ABOVE
    }

    fn register(&mut self, row: u32, source: &impl Source, place: &mut Vec<u8>) -> Option<u64> {
        let mut stretches = Vec::new();
        source.stretches(&mut |stretch| stretches.push(stretch));
        let number = self.at_mut(row)?.offer(stretches, source.bytes())?;
        // The other side asks by the number.
        place.push(0);
        Some(number)
    }

    fn deregister(&mut self, row: u32, number: u64) {
        self.withdraw(row, number);
    }

    fn withdraw(&mut self, row: u32, number: u64) -> bool {
        let is_unread = self.at_mut(row).is_none_or(|connection| connection.withdraw(number));
        self.leave_of(row);
        is_unread
    }

    fn has_begun(&self, row: u32, number: u64) -> bool {
        self.at(row).is_some_and(|connection| connection.has_begun(number))
    }

    fn has_room_for_data(&mut self, _row: u32, _bytes: u64) -> bool {
        false
    }

    fn start_pull(
        &mut self,
        row: u32,
        number: u64,
        _place: &[u8],
        _total: u64,
        bytes: u64,
        _is_helped: bool,
    ) -> Result<Pull, PeerViolation> {
        if !self.pulling.contains(&row) {
            self.pulling.push(row);
        }
        Ok(Pull::new(row, number, bytes))
    }

    fn before_awaited_max(&self, _row: u32, awaited: u64) -> Option<u64> {
        // Between two pieces lie no more bytes of other frames than a piece has; before the first, what was under way.
        Some(awaited.saturating_add(2 * CREDIT_BYTES_MAX))
    }

    fn begin_pull(&mut self, _pull: &mut Pull) -> bool {
        // Whether the offer is valid still, the other side says.
        true
    }

    fn answer(
        &mut self,
        _row: u32,
        _pull: &mut Pull,
        _to: &mut dyn Sink,
        _place: &mut Vec<u8>,
    ) -> bool {
        false
    }

    fn pull(&mut self, pull: &mut Pull, target: &mut dyn Sink) -> Pulled {
        let row = pull.row;
        let Some(connection) = self.at_mut(row) else { return Pulled::Later };
        let stepped = connection.step_pull(pull, target);
        self.make_untold(row);
        self.leave_of(row);
        self.note_end(row);
        if self.at(row).is_some_and(Connection::may_have) {
            // Something else may lie behind it.
            self.make_ready(row);
        }
        match stepped {
            Ok(Stepped::More) => Pulled::More,
            Ok(Stepped::Done) => Pulled::Done,
            Ok(Stepped::Void) => Pulled::Void,
            // What is wrong, the next poll finds.
            Ok(Stepped::Nothing) | Err(_) => Pulled::Later,
        }
    }

    fn stop_pull(&mut self, pull: &mut Pull, _target: &mut dyn Sink) -> u64 {
        self.close_pull(pull);
        pull.taken()
    }

    fn close_pull(&mut self, pull: &mut Pull) -> bool {
        if let Some(connection) = self.at_mut(pull.row) {
            connection.stop_pull(pull);
            self.leave_of(pull.row);
            self.make_ready(pull.row);
        }
        true
    }

    fn start_help(
        &mut self,
        _row: u32,
        _number: u64,
        _source: &[Stretch],
        _place: &[u8],
        _bytes: u64,
    ) -> Option<()> {
        None
    }

    fn help(&mut self, _row: u32, (): &mut ()) -> Helped {
        Helped::Over
    }

    fn is_here(&self, _row: u32) -> bool {
        false
    }

    fn last_found(&self) -> u32 {
        self.last
    }

    fn sleep(&mut self, limit_ns: u64, wanted: &[Room]) {
        if self.may_sleep(wanted) {
            self.rest(limit_ns);
        }
    }

    fn arm(&mut self, wanted: &[Room]) -> bool {
        self.tell();
        self.may_sleep(wanted)
    }

    fn has_unsent(&self) -> bool {
        let connections = self.rows.iter().filter_map(|place| place.connection.as_ref());
        self.has_peers() && connections.into_iter().any(Connection::has_waiting)
    }
}
