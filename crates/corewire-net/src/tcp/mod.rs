//! TCP under an engine: one connection for each peer.
//!
//! | file | contents |
//! |---|---|
//! | this one | the transport: peers by row, and which of them have something |
//! | `connection` | one peer: its socket, its [link](crate::link), what has arrived and what waits to leave |
//! | `opening` | how two sides learn of each other before anything else is sent |
//!
//! # Data path
//!
//! 1. A message is cut into frames, which are copied behind each other. They leave with one system call: at once, or, of
//!    messages that the engine [gathers](Transport::gather), together.
//! 2. `epoll` says which connections have something. One system call reads header and beginning of a message, and what
//!    lies behind it; the engine takes it from there.
//! 3. A message above 64 KiB that a receive may ask for is offered, and pushed once one does: no engine keeps more than its
//!    budget.
//!
//! # Memory
//!
//! What has arrived and was not taken, and what waits to leave: for each connection no more than its credit, and 64 KiB and
//! a frame. A connection that was idle when its endpoint slept has neither.
//!
//! Sources: Buntinas and others, "Design and Evaluation of Nemesis", 2.2, 3.4 (send bypass), 3.5 (the first read takes header
//! and beginning).

mod connection;
mod opening;

use std::collections::BTreeMap;
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::time::Duration;

use corewire_endpoint::transport::{
    Attention, Change, Gone, Helped, PeerViolation, Polling, Pulled, Room, SendError, Short,
    Transport,
};
use corewire_endpoint::{Arrival, Envelope, Peer, Sink, Source, Wanted, Wants};
use corewire_layout::net::{FRAME_BYTES_MAX, Hello};
use corewire_layout::rendezvous::{OFFERS_MAX, Stretch, offer_index, offer_number};
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::net::sockopt;

use self::connection::Connection;
pub use self::opening::{OpenError, Opened, make_room, open};

/// Longer messages that receives may ask for are offered.
const OFFERED_ABOVE: u64 = 64 << 10;
/// Up to so many connections are read without asking which of them have something: the first call to the kernel finds it.
const READ_MAX: usize = 2;
/// In one of so many polls all connections are looked at, whether or not some are known to have something.
const ASK_EVERY: u32 = 64;
/// A sleep may end early.
const SLEEP_S_MAX: i64 = 1_000_000;

/// Connections to peers, by row.
#[derive(Debug)]
pub struct Tcp {
    connections: Vec<Option<Connection>>,
    set: OwnedFd,
    changes: Vec<Change>,
    last: u32,
    polls: u32,
    is_gathering: bool,
    /// Offers that are valid, by index: their numbers; and how many there were.
    offers: BTreeMap<u16, u64>,
    offer_count: u64,
}

impl Tcp {
    /// Without any peer.
    ///
    /// # Errors
    /// Of the system call that creates a set of descriptors.
    pub fn new() -> std::io::Result<Self> {
        Ok(Self {
            connections: Vec::new(),
            set: epoll::create(CreateFlags::CLOEXEC)?,
            changes: Vec::new(),
            last: 0,
            polls: 0,
            is_gathering: false,
            offers: BTreeMap::new(),
            offer_count: 0,
        })
    }

    /// Adds the peer at the other end of a connection that was [opened](open). Returns its row.
    ///
    /// # Errors
    /// Of a system call; the connection is closed then.
    pub fn add(&mut self, stream: TcpStream, own: &Hello, opened: Opened) -> std::io::Result<u32> {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        find_silence(&stream, own.silence_ms)?;
        let free = self.connections.iter().position(Option::is_none);
        let index = free.unwrap_or(self.connections.len());
        let row = u32::try_from(index).map_err(std::io::Error::other)?;
        epoll::add(&self.set, &stream, EventData::new_u64(u64::from(row)), EventFlags::IN)?;
        let (name, incarnation) = (opened.other.name.clone(), opened.other.incarnation);
        let connection = Some(Connection::new(stream, own, opened));
        match self.connections.get_mut(index) {
            Some(place) => *place = connection,
            None => self.connections.push(connection),
        }
        self.changes.push(Change::Came { row, name, incarnation });
        Ok(row)
    }

    fn at(&self, row: u32) -> Option<&Connection> {
        self.connections.get(row as usize)?.as_ref()
    }

    fn at_mut(&mut self, row: u32) -> Option<&mut Connection> {
        self.connections.get_mut(row as usize)?.as_mut()
    }

    /// Asks the kernel which connections have something, for at most `limit_ns`.
    fn ask(&mut self, limit_ns: u64) -> bool {
        let limit = Timespec {
            // Longer ones need a system call that kernels before 5.11 lack.
            tv_sec: i64::try_from(limit_ns / 1_000_000_000)
                .map_or(SLEEP_S_MAX, |it| it.min(SLEEP_S_MAX)),
            tv_nsec: i64::try_from(limit_ns % 1_000_000_000).unwrap_or(0),
        };
        let mut events = Vec::with_capacity(64);
        // An interrupted wait is one that was short.
        if epoll::wait(&self.set, rustix::buffer::spare_capacity(&mut events), Some(&limit))
            .is_err()
        {
            return false;
        }
        for event in &events {
            let row = u32::try_from(event.data.u64()).unwrap_or(u32::MAX);
            if let Some(connection) = self.at_mut(row) {
                let flags = event.flags;
                connection.note(flags);
                if flags.contains(EventFlags::OUT) {
                    connection.flush();
                    self.watch(row);
                }
            }
        }
        !events.is_empty()
    }

    /// Tells the kernel what is waited for on a connection, if that has changed.
    fn watch(&mut self, row: u32) {
        let Self { connections, set, .. } = self;
        let Some(Some(connection)) = connections.get_mut(row as usize) else { return };
        if let Some(flags) = connection.changed_flags() {
            let data = EventData::new_u64(u64::from(row));
            // It is in the set until it has ended.
            let _ = epoll::modify(&*set, connection.stream(), data, flags);
        }
    }

    /// Gives the kernel what waits to leave of a row, unless more is gathered.
    fn leave_of(&mut self, row: u32) {
        if !self.is_gathering
            && let Some(connection) = self.at_mut(row)
        {
            connection.flush();
        }
        self.watch(row);
    }

    /// The kernel has nothing more to tell of a row.
    fn forget(&self, row: u32) {
        if let Some(connection) = self.at(row) {
            let _ = epoll::delete(&self.set, connection.stream());
        }
    }

    /// A row of which something can be taken, or that breaks the rules.
    fn ready(&mut self) -> Option<u32> {
        let count = u32::try_from(self.connections.len()).unwrap_or(u32::MAX);
        let last = self.last;
        for row in (1..=count).map(|step| (last + step) % count) {
            let Some(connection) = self.at_mut(row) else { continue };
            if connection.is_held {
                // Its end must be found, whatever waits before it.
                connection.read_ahead();
                self.note_end(row);
                self.watch(row);
            } else if connection.may_have() && !matches!(self.look(row), Ok(None)) {
                self.last = row;
                return Some(row);
            }
        }
        None
    }

    /// What lies at the head of a row. Notes its end, if nothing is left.
    fn look(&mut self, row: u32) -> Result<Option<Arrival>, PeerViolation> {
        let found = self.at_mut(row).map_or(Ok(None), Connection::arrival);
        if self.at(row).is_some_and(Connection::must_flush) {
            // The peer may have taken something.
            self.leave_of(row);
        }
        self.note_end(row);
        found
    }

    fn note_end(&mut self, row: u32) {
        if let Some(how) = self.at_mut(row).and_then(Connection::take_end) {
            self.changes.push(Change::Gone { row, how });
            self.forget(row);
        }
    }

    fn rows(&self) -> std::ops::Range<u32> {
        0..u32::try_from(self.connections.len()).unwrap_or(u32::MAX)
    }

    fn leave_now(&mut self) {
        for row in self.rows() {
            if self.at(row).is_some_and(Connection::must_flush) {
                self.leave_of(row);
            }
        }
    }

    /// Finds out which connections have something, and gives the kernel what it takes by now.
    fn look_at_all(&mut self) {
        if self.connections.len() > READ_MAX {
            self.ask(0);
            return;
        }
        self.connections.iter_mut().flatten().for_each(Connection::suppose_readable);
        self.leave_now();
    }

    /// Whether there is something to do at once.
    fn has_something(&mut self) -> bool {
        self.has_notice() || self.ready().is_some() || self.has_notice()
    }
}

/// Lets the kernel end a connection to a host that acknowledges nothing for so long, whether or not something is sent to it.
fn find_silence(stream: &TcpStream, silence_ms: u32) -> std::io::Result<()> {
    let silence = Duration::from_millis(u64::from(silence_ms));
    // Probes that are sent while nothing else is; the kernel counts in seconds.
    let [first, next] = [silence / 2, silence / 6].map(|time| time.max(Duration::from_secs(1)));
    sockopt::set_tcp_user_timeout(stream, silence_ms)?;
    sockopt::set_tcp_keepidle(stream, first)?;
    sockopt::set_tcp_keepintvl(stream, next)?;
    sockopt::set_tcp_keepcnt(stream, 3)?;
    Ok(sockopt::set_socket_keepalive(stream, true)?)
}

impl Drop for Tcp {
    /// Says so to the peers, as far as the kernel takes it at once.
    fn drop(&mut self) {
        self.connections.iter_mut().flatten().for_each(Connection::leave);
    }
}

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
            self.changes.push(Change::Gone { row, how: Gone::CutOff(violation) });
        }
    }

    fn remove(&mut self, row: u32) {
        self.forget(row);
        if let Some(place) = self.connections.get_mut(row as usize) {
            *place = None;
        }
    }

    fn try_inject(&mut self, peer: Peer, envelope: &Envelope, message: &[u8]) -> bool {
        let Some(connection) = self.at_mut(peer.row()) else { return false };
        let (is_open, mut sent) = (connection.is_open(peer), 0);
        if !is_open || !connection.has_room(message.len() as u64) {
            return false;
        }
        let is_sent = connection.send(envelope, &message, &mut sent);
        debug_assert!(is_sent, "there was room");
        self.leave_of(peer.row());
        true
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
        let Some(row) = self.poll() else { return Short::Nothing };
        let Ok(Some(arrival)) = self.look(row) else { return Short::Other(row) };
        let Some(connection) = self.at(row) else { return Short::Other(row) };
        let Envelope { space, tag, immediate, wants } = arrival.envelope;
        let source = Wanted::source_bits(row, connection.generation);
        let is_it = arrival.is_whole() && space == wanted.space && wants == Wants::Nothing;
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
        self.ready().or_else(|| {
            self.look_at_all();
            self.ready()
        })
    }

    fn arrival(&mut self, row: u32) -> Result<Option<Arrival>, PeerViolation> {
        self.look(row)
    }

    fn has_arrival(&mut self, row: u32) -> Result<bool, PeerViolation> {
        Ok(self.arrival(row)?.is_some())
    }

    fn copy(&self, row: u32, arrival: &Arrival, at: usize, sink: &mut (impl Sink + ?Sized)) {
        if let Some(connection) = self.at(row) {
            sink.put(at, connection.arrived(arrival.bytes));
        }
    }

    fn pass(&mut self, row: u32, arrival: &Arrival) {
        if self.at_mut(row).is_some_and(|connection| connection.pass(arrival.bytes)) {
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
            self.watch(row);
        }
    }

    fn look_at(&mut self, row: u32) {
        if let Some(connection) = self.at_mut(row) {
            connection.note(EventFlags::IN);
        }
    }

    type Pull = ();
    type Help = ();

    fn is_offered(&mut self, _row: u32, envelope: &Envelope, bytes: u64) -> bool {
        envelope.space.is_matched() && bytes > OFFERED_ABOVE
    }

    fn register(&mut self, _row: u32, _source: &impl Source, place: &mut Vec<u8>) -> Option<u64> {
        let index = (0..OFFERS_MAX).find(|index| !self.offers.contains_key(index))?;
        self.offer_count += 1;
        let number = offer_number(index, self.offer_count);
        self.offers.insert(index, number);
        // The message has no place that the other side could read.
        place.push(0);
        Some(number)
    }

    fn deregister(&mut self, row: u32, number: u64) {
        self.withdraw(row, number);
    }

    fn withdraw(&mut self, _row: u32, number: u64) -> bool {
        if let Some(index) = offer_index(number)
            && self.offers.get(&index) == Some(&number)
        {
            self.offers.remove(&index);
        }
        true
    }

    fn has_begun(&self, _row: u32, _number: u64) -> bool {
        false
    }

    fn has_room_for_data(&mut self, _row: u32, _bytes: u64) -> bool {
        false
    }

    fn start_pull(
        &mut self,
        _row: u32,
        _number: u64,
        _place: &[u8],
        _total: u64,
        _bytes: u64,
        _is_helped: bool,
    ) -> Result<(), PeerViolation> {
        Ok(())
    }

    fn begin_pull(&mut self, (): &mut ()) -> bool {
        true
    }

    fn answer(&mut self, _row: u32, (): &mut (), _to: &mut dyn Sink, _place: &mut Vec<u8>) -> bool {
        false
    }

    fn pull(&mut self, (): &mut (), _target: &mut dyn Sink) -> Pulled {
        Pulled::Refused { bytes: 0, is_final: false }
    }

    fn stop_pull(&mut self, (): &mut (), _target: &mut dyn Sink) -> u64 {
        0
    }

    fn close_pull(&mut self, (): &mut ()) -> bool {
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
        if self.arm(wanted) {
            self.connections.iter_mut().flatten().for_each(Connection::shrink);
            self.ask(limit_ns);
        }
    }

    fn arm(&mut self, wanted: &[Room]) -> bool {
        for row in self.rows() {
            if let Some(connection) = self.at_mut(row) {
                connection.tell();
            }
        }
        self.leave_now();
        // Of a message that has begun, what is left is not known: a whole frame.
        let has_room = |room: &Room| {
            let bytes =
                if room.is_begun { FRAME_BYTES_MAX } else { room.bytes.min(FRAME_BYTES_MAX) };
            self.at(room.row).is_some_and(|connection| connection.has_room(bytes))
        };
        !wanted.iter().any(has_room) && !self.has_something()
    }
}
