//! Two transports in one endpoint: the rows of the second come behind those of the first.

use corewire_endpoint::transport::{
    Attention, Change, Helped, Polling, Pulled, Room, SendError, Short,
};
use corewire_endpoint::{
    Arrival, Envelope, Held, Peer, PeerViolation, Sink, Source, Space, Transport, Wanted,
};
use corewire_layout::rendezvous::Stretch;

/// The rows of the first transport.
const FIRST_ROWS: u32 = 1024;

/// A transport made of two.
#[derive(Debug)]
pub struct Beside<A, B> {
    first: A,
    second: B,
    /// Which of them is looked at first in the next poll: they take turns.
    is_second_next: bool,
    last: u32,
}

impl<A: Transport, B: Transport> Beside<A, B> {
    /// Both of them.
    pub fn new(first: A, second: B) -> Self {
        Self { first, second, is_second_next: false, last: 0 }
    }
}

/// Calls the transport that has the row, with the row as that transport knows it.
macro_rules! at {
    ($self:ident, $row:expr, |$transport:ident, $there:ident| $job:expr) => {
        if $row < FIRST_ROWS {
            let ($transport, $there) = (&mut $self.first, $row);
            $job
        } else {
            let ($transport, $there) = (&mut $self.second, $row - FIRST_ROWS);
            $job
        }
    };
}

impl<A: Transport, B: Transport> Transport for Beside<A, B> {
    fn has_notice(&self) -> bool {
        self.first.has_notice() || self.second.has_notice()
    }

    fn take_notices(&mut self, changes: &mut Vec<Change>) -> Attention {
        let first = self.first.take_notices(changes);
        let mut others = Vec::new();
        let second = self.second.take_notices(&mut others);
        changes.extend(others.into_iter().map(|change| match change {
            Change::Came { row, name, incarnation } => {
                Change::Came { row: row + FIRST_ROWS, name, incarnation }
            }
            Change::Gone { row, how } => Change::Gone { row: row + FIRST_ROWS, how },
            dropped @ Change::Dropped { .. } => dropped,
        }));
        if first == Attention::None { second } else { first }
    }

    fn open(&mut self, row: u32, generation: u32) {
        at!(self, row, |transport, row| transport.open(row, generation));
    }

    fn cut_off(&mut self, row: u32, violation: PeerViolation) {
        at!(self, row, |transport, row| transport.cut_off(row, violation));
    }

    fn remove(&mut self, row: u32) {
        at!(self, row, |transport, row| transport.remove(row));
    }

    fn try_inject(&mut self, peer: Peer, envelope: &Envelope, message: &[u8]) -> bool {
        at!(self, peer.row(), |transport, row| {
            transport.try_inject(Peer::new(row, peer.generation()), envelope, message)
        })
    }

    fn try_send(
        &mut self,
        row: u32,
        envelope: &Envelope,
        source: &impl Source,
        sent: &mut u64,
    ) -> Result<bool, SendError> {
        at!(self, row, |transport, row| transport.try_send(row, envelope, source, sent))
    }

    fn gather(&mut self) {
        self.first.gather();
        self.second.gather();
    }

    fn flush(&mut self) {
        self.first.flush();
        self.second.flush();
    }

    fn try_take(&mut self, polling: Polling, wanted: &Wanted, target: &mut [u8]) -> Short {
        self.is_second_next = !self.is_second_next;
        if self.is_second_next {
            // A row of the first is none of the second; its messages are then found by `poll`.
            let source = wanted.source.wrapping_sub(FIRST_ROWS.into());
            let there = Wanted { source, ..*wanted };
            let found = match self.second.try_take(polling, &there, target) {
                Short::Nothing => Short::Nothing,
                Short::Taken { source, tag, immediate, bytes } => {
                    let source = source + u64::from(FIRST_ROWS);
                    Short::Taken { source, tag, immediate, bytes }
                }
                Short::Other(row) => Short::Other(row + FIRST_ROWS),
            };
            if found != Short::Nothing {
                return found;
            }
        }
        match self.first.try_take(polling, wanted, target) {
            // The second may have something.
            Short::Nothing => Short::Other(FIRST_ROWS),
            found => found,
        }
    }

    fn try_take_matched<'a, S: Sink + ?Sized + 'a>(
        &mut self,
        find: impl FnOnce(Space, u64, u64, usize) -> Option<&'a mut S>,
    ) -> Short {
        let Some(row) = self.poll() else { return Short::Nothing };
        self.try_take_whole(row, find)
    }

    fn try_take_whole<'a, S: Sink + ?Sized + 'a>(
        &mut self,
        row: u32,
        find: impl FnOnce(Space, u64, u64, usize) -> Option<&'a mut S>,
    ) -> Short {
        if row < FIRST_ROWS {
            return self.first.try_take_whole(row, find);
        }
        let shift = u64::from(FIRST_ROWS);
        let found = self.second.try_take_whole(row - FIRST_ROWS, |space, source, tag, bytes| {
            find(space, source + shift, tag, bytes)
        });
        match found {
            Short::Taken { source, tag, immediate, bytes } => {
                Short::Taken { source: source + shift, tag, immediate, bytes }
            }
            Short::Other(row) => Short::Other(row + FIRST_ROWS),
            Short::Nothing => Short::Nothing,
        }
    }

    fn poll(&mut self) -> Option<u32> {
        self.is_second_next = !self.is_second_next;
        let second = |it: &mut Self| it.second.poll().map(|row| row + FIRST_ROWS);
        let found = if self.is_second_next {
            second(self).or_else(|| self.first.poll())
        } else {
            self.first.poll().or_else(|| second(self))
        };
        self.last = found.unwrap_or(self.last);
        found
    }

    fn arrival(&mut self, row: u32) -> Result<Option<Arrival>, PeerViolation> {
        at!(self, row, |transport, row| transport.arrival(row))
    }

    fn has_arrival(&mut self, row: u32) -> Result<bool, PeerViolation> {
        at!(self, row, |transport, row| transport.has_arrival(row))
    }

    fn copy(&self, row: u32, arrival: &Arrival, at: usize, sink: &mut (impl Sink + ?Sized)) {
        if row < FIRST_ROWS {
            self.first.copy(row, arrival, at, sink);
        } else {
            self.second.copy(row - FIRST_ROWS, arrival, at, sink);
        }
    }

    fn pass(&mut self, row: u32, arrival: &Arrival) {
        at!(self, row, |transport, row| transport.pass(row, arrival));
    }

    fn hold(&mut self, row: u32) {
        at!(self, row, |transport, row| transport.hold(row));
    }

    fn release(&mut self, row: u32) {
        at!(self, row, |transport, row| transport.release(row));
    }

    fn look_at(&mut self, row: u32) {
        at!(self, row, |transport, row| transport.look_at(row));
    }

    fn is_readable(&self, stretches: &[Stretch]) -> bool {
        self.first.is_readable(stretches)
    }

    fn set_grant(&mut self, row: u32, limit: u64, refuses: bool) {
        at!(self, row, |transport, row| transport.set_grant(row, limit, refuses));
    }

    fn spent(&mut self, row: u32) -> u64 {
        at!(self, row, |transport, row| transport.spent(row))
    }

    fn take_shortage(&mut self, row: u32) -> Option<u64> {
        at!(self, row, |transport, row| transport.take_shortage(row))
    }

    fn start_granting(&mut self, row: u32) -> bool {
        at!(self, row, |transport, row| transport.start_granting(row))
    }

    fn keep(&mut self, row: u32, arrival: &Arrival) -> Option<Held> {
        at!(self, row, |transport, row| transport.keep(row, arrival))
    }

    // The first carries large messages as they are.
    type Pull = B::Pull;
    type Help = B::Help;

    fn is_offered(&mut self, row: u32, envelope: &Envelope, bytes: u64) -> bool {
        row >= FIRST_ROWS && self.second.is_offered(row - FIRST_ROWS, envelope, bytes)
    }

    fn register(&mut self, row: u32, source: &impl Source, place: &mut Vec<u8>) -> Option<u64> {
        if row < FIRST_ROWS { None } else { self.second.register(row - FIRST_ROWS, source, place) }
    }

    fn deregister(&mut self, row: u32, number: u64) {
        at!(self, row, |transport, row| transport.deregister(row, number));
    }

    fn withdraw(&mut self, row: u32, number: u64) -> bool {
        at!(self, row, |transport, row| transport.withdraw(row, number))
    }

    fn has_begun(&self, row: u32, number: u64) -> bool {
        row >= FIRST_ROWS && self.second.has_begun(row - FIRST_ROWS, number)
    }

    fn has_room_for_data(&mut self, row: u32, bytes: u64) -> bool {
        row >= FIRST_ROWS && self.second.has_room_for_data(row - FIRST_ROWS, bytes)
    }

    fn start_pull(
        &mut self,
        row: u32,
        number: u64,
        place: &[u8],
        total: u64,
        bytes: u64,
        is_helped: bool,
    ) -> Result<B::Pull, PeerViolation> {
        let row = row.wrapping_sub(FIRST_ROWS);
        self.second.start_pull(row, number, place, total, bytes, is_helped)
    }

    fn begin_pull(&mut self, pull: &mut B::Pull) -> bool {
        self.second.begin_pull(pull)
    }

    fn answer(
        &mut self,
        row: u32,
        pull: &mut B::Pull,
        target: &mut dyn Sink,
        place: &mut Vec<u8>,
    ) -> bool {
        self.second.answer(row - FIRST_ROWS, pull, target, place)
    }

    fn pull(&mut self, pull: &mut B::Pull, target: &mut dyn Sink) -> Pulled {
        self.second.pull(pull, target)
    }

    fn stop_pull(&mut self, pull: &mut B::Pull, target: &mut dyn Sink) -> u64 {
        self.second.stop_pull(pull, target)
    }

    fn close_pull(&mut self, pull: &mut B::Pull) -> bool {
        self.second.close_pull(pull)
    }

    fn start_help(
        &mut self,
        row: u32,
        number: u64,
        source: &[Stretch],
        place: &[u8],
        bytes: u64,
    ) -> Option<B::Help> {
        let row = row.checked_sub(FIRST_ROWS)?;
        self.second.start_help(row, number, source, place, bytes)
    }

    fn help(&mut self, row: u32, help: &mut B::Help) -> Helped {
        self.second.help(row - FIRST_ROWS, help)
    }

    fn is_here(&self, row: u32) -> bool {
        row < FIRST_ROWS && self.first.is_here(row)
    }

    fn last_found(&self) -> u32 {
        self.last
    }

    fn sleep(&mut self, limit_ns: u64, wanted: &[Room]) {
        let wanted: Vec<Room> =
            wanted.iter().copied().filter(|room| room.row < FIRST_ROWS).collect();
        self.first.sleep(limit_ns, &wanted);
    }

    fn arm(&mut self, _wanted: &[Room]) -> bool {
        false
    }
}

impl<A: Transport, B> Beside<A, B> {
    /// A row of the second transport, as a row of both.
    pub const fn second_row(row: u32) -> u32 {
        row + FIRST_ROWS
    }
}
