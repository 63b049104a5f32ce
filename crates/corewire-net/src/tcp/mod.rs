//! TCP under an engine: one connection for each peer.
//!
//! | file | contents |
//! |---|---|
//! | this one | peers by row, and which of them have something |
//! | `transport` | what the engine asks of it |
//! | `connection` | one peer: its socket, its [link](crate::link), what has arrived and what waits to leave |
//! | `sending`, `receiving` | what goes to it, and what comes |
//! | `pulling`, `pieces` | large messages, which stay with their sender until the receiver asks for them |
//! | `message` | what the engine calls a message, and what its frames say |
//! | `closing` | connections that this side has left, until the other side has read all |
//!
//! # Data path
//!
//! 1. A message is cut into frames. Short ones are copied behind each other, and leave with one system call: at once, or, of
//!    messages that the engine gathers, together. A long one leaves from where its message lies.
//! 2. `epoll` says which connections have something. One system call reads header and beginning of a message, and what
//!    lies behind it; the engine takes it from there. The rest of a long one is received where it goes.
//! 3. A message above 1 MiB that a receive may ask for is offered, and pulled once one does: then it leaves and
//!    arrives without a copy in this process, other messages lie between its pieces, and no engine keeps more than its budget.
//!
//! # Memory
//!
//! What has arrived and was not taken: for each connection no more than its credit and what one system call reads. What waits to
//! leave: no more than 192 KiB and a frame. A connection that was idle when its endpoint slept has neither.
//!
//! Sources: Buntinas and others, "Design and Evaluation of Nemesis", 2.2, 3.4 (send bypass), 3.5 (the first read takes header
//! and beginning).

mod closing;
mod connection;
mod message;
mod pieces;
mod pulling;
mod receiving;
mod sending;
mod transport;

use std::collections::VecDeque;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use corewire_endpoint::transport::{Change, Gone, PeerViolation, Room, Short, Transport as _};
use corewire_endpoint::{Arrival, Wanted};
use corewire_layout::name::ChannelName;
use corewire_layout::net::FRAME_BYTES_MAX;
use corewire_os::fork::Descriptor;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::net::sockopt;

pub use self::closing::Closing;
use self::connection::{Connection, ENDS};
pub use self::pieces::Pull;
use crate::open::Opened;

/// Longer messages that receives may ask for are offered.
const OFFERED_ABOVE: u64 = 1 << 20;
/// Up to so many connections are read without asking which of them have something: the first call to the kernel finds it.
const READ_MAX: usize = 2;
/// Messages of one peer that are taken in succession.
const IN_TURN_MAX: u32 = 64;
/// In one of so many polls all connections are looked at, whether or not some are known to have something.
const ASK_EVERY: u32 = 64;
/// How long nothing has come before peers are told what was received of them.
const TOLD_AFTER_NS: u64 = 1_000_000;
/// A sleep may end early.
const SLEEP_S_MAX: i64 = 1_000_000;

/// The event of the endpoint's bell in its set.
const BELL: u64 = u64::MAX;

/// The set of descriptors that an endpoint with connections waits for: their sockets, and its bell. Itself a descriptor that
/// is readable when one of them is ready.
#[derive(Debug)]
pub struct Set(Descriptor);

impl Set {
    /// A set with a bell.
    ///
    /// # Errors
    /// Of the system calls.
    pub fn new(bell: impl AsFd) -> std::io::Result<Self> {
        let set = Self(Descriptor::make(|| epoll::create(CreateFlags::CLOEXEC))?);
        epoll::add(&set.0, bell, EventData::new_u64(BELL), EventFlags::IN)?;
        Ok(set)
    }
}

impl AsFd for Set {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Who has a row.
#[derive(Debug, Default)]
struct Row {
    /// Which connection it is, as the caller has numbered it; 0 if none.
    number: u64,
    connection: Option<Connection>,
    /// It is reserved for the endpoint of this name.
    reserved: Option<(ChannelName, Option<u128>)>,
    /// In the lists of these names.
    is_ready: bool,
    is_unsent: bool,
    is_untold: bool,
}

impl Row {
    const fn is_free(&self) -> bool {
        self.connection.is_none() && self.reserved.is_none()
    }
}

/// Connections to peers, by row.
#[derive(Debug)]
pub struct Tcp {
    /// The first row.
    first: u32,
    rows: Vec<Row>,
    set: Arc<Set>,
    changes: Vec<Change>,
    last: u32,
    /// Messages of the last row that may be taken before others are looked at.
    in_turn: u32,
    polls: u32,
    is_gathering: bool,
    /// Rows that may have something, those of which something leaves with the next flush, and those of which something was
    /// taken since this side waited last.
    ready: VecDeque<u32>,
    unsent: Vec<u32>,
    untold: Vec<u32>,
    /// Connections that are not over.
    open: usize,
    /// Rows of which messages are pulled, or were.
    pulling: Vec<u32>,
}

impl Tcp {
    /// Without any peer. Its rows are `first` and those behind.
    #[must_use]
    pub fn new(set: Arc<Set>, first: u32) -> Self {
        Self {
            first,
            rows: Vec::new(),
            set,
            changes: Vec::new(),
            last: first,
            in_turn: 0,
            polls: 0,
            is_gathering: false,
            ready: VecDeque::new(),
            unsent: Vec::new(),
            untold: Vec::new(),
            open: 0,
            pulling: Vec::new(),
        }
    }

    /// Adds the peer at the other end of a connection, which has this number for the caller: in the row that is
    /// [reserved](Self::reserve) for it, or in a free one. Returns the row.
    ///
    /// # Errors
    /// Of a system call; the connection is closed then.
    pub fn add(&mut self, opened: Opened, number: u64) -> std::io::Result<u32> {
        let (name, incarnation) =
            (opened.other.name.on_host(&opened.other.host), opened.other.incarnation);
        sockopt::set_tcp_nodelay(&opened.wire, true)?;
        find_silence(&opened.wire, opened.own.silence_ms)?;
        let is_its = |place: &Row| {
            let reserved = place.reserved.as_ref().filter(|_| place.connection.is_none());
            reserved
                .is_some_and(|(its, only)| *its == name && only.is_none_or(|it| it == incarnation))
        };
        let row = self.first_row(is_its).map_or_else(|| self.free_row(), Ok)?;
        epoll::add(&*self.set, &opened.wire, EventData::new_u64(u64::from(row)), EventFlags::IN)?;
        if let Some(place) = self.place(row) {
            place.connection = Some(Connection::new(opened));
            (place.number, place.reserved) = (number, None);
        }
        self.open += 1;
        self.make_ready(row);
        self.changes.push(Change::Came { row, name, incarnation });
        Ok(row)
    }

    /// A row for the peer of this name, and incarnation if that is known, before it is connected: the same for the same one.
    ///
    /// # Errors
    /// There are too many rows.
    pub fn reserve(
        &mut self,
        name: &ChannelName,
        incarnation: Option<u128>,
    ) -> std::io::Result<u32> {
        let key = (name.clone(), incarnation);
        let is_its = |place: &Row| place.reserved.as_ref().is_some_and(|reserved| *reserved == key);
        if let Some(row) = self.first_row(is_its) {
            return Ok(row);
        }
        let row = self.free_row()?;
        if let Some(place) = self.place(row) {
            place.reserved = Some(key);
        }
        Ok(row)
    }

    /// The endpoint for which a row is reserved that has no connection.
    #[must_use]
    pub fn reserved_for(&self, row: u32) -> Option<&(ChannelName, Option<u128>)> {
        self.rows.get(row.wrapping_sub(self.first) as usize)?.reserved.as_ref()
    }

    /// The peer for which a row is reserved cannot be connected.
    pub fn give_up(&mut self, row: u32, how: Gone) {
        if self.reserved_for(row).is_some() {
            self.changes.push(Change::Gone { row, how });
        }
    }

    /// Ends the connection that has this number: the peer has made a new one, and knows nothing of this one any more.
    pub fn replace(&mut self, number: u64) {
        let found = self.first_row(|place| place.number == number);
        if let Some(row) = found
            && let Some(connection) = self.at_mut(row)
        {
            connection.is_replaced();
            self.note_end(row);
        }
    }

    /// The number of the connection that a row has or had; 0 if none.
    #[must_use]
    pub fn number_of(&self, row: u32) -> u64 {
        self.rows.get(row.wrapping_sub(self.first) as usize).map_or(0, |place| place.number)
    }

    /// The row of the connection that has this number, if it is not over.
    #[must_use]
    pub fn row_of(&self, number: u64) -> Option<u32> {
        self.first_row(|place| {
            place.number == number && place.connection.as_ref().is_some_and(|it| !it.has_ended())
        })
    }

    /// Whether any connection is not over.
    #[inline]
    #[must_use]
    pub const fn has_peers(&self) -> bool {
        self.open > 0
    }

    /// Whether something is known that can be taken, without asking the kernel.
    #[inline]
    #[must_use]
    pub fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    fn first_row(&self, is_it: impl FnMut(&Row) -> bool) -> Option<u32> {
        let index = self.rows.iter().position(is_it)?;
        u32::try_from(index).ok().map(|index| self.first + index)
    }

    fn free_row(&mut self) -> std::io::Result<u32> {
        if let Some(row) = self.first_row(Row::is_free) {
            return Ok(row);
        }
        self.rows.push(Row::default());
        let index = u32::try_from(self.rows.len() - 1).ok();
        index
            .and_then(|index| self.first.checked_add(index))
            .ok_or_else(|| std::io::Error::other("too many rows"))
    }

    fn place(&mut self, row: u32) -> Option<&mut Row> {
        self.rows.get_mut(row.wrapping_sub(self.first) as usize)
    }

    fn at(&self, row: u32) -> Option<&Connection> {
        self.rows.get(row.wrapping_sub(self.first) as usize)?.connection.as_ref()
    }

    fn at_mut(&mut self, row: u32) -> Option<&mut Connection> {
        self.place(row)?.connection.as_mut()
    }

    /// A row may have something.
    fn make_ready(&mut self, row: u32) {
        if let Some(place) = self.place(row)
            && !std::mem::replace(&mut place.is_ready, true)
        {
            self.ready.push_back(row);
        }
    }

    /// Something was taken of a row.
    fn make_untold(&mut self, row: u32) {
        if let Some(place) = self.place(row)
            && !std::mem::replace(&mut place.is_untold, true)
        {
            self.untold.push(row);
        }
    }

    /// Whether there is nothing to do, and none of `wanted` has room. What was gathered leaves.
    pub fn may_sleep(&mut self, wanted: &[Room]) -> bool {
        self.flush();
        // Before the rooms: it may find that a peer has taken something.
        if self.has_something() {
            return false;
        }
        // Of a message that has begun, what is left is not known: a whole frame.
        let has_room = |room: &Room| {
            let bytes =
                if room.is_begun { FRAME_BYTES_MAX } else { room.bytes.min(FRAME_BYTES_MAX) };
            self.at(room.row).is_some_and(|connection| connection.has_room(bytes))
        };
        !wanted.iter().any(has_room)
    }

    /// Sleeps for at most `limit_ns`, until a connection has something or the bell rings. Peers are told what was received of
    /// them once nothing has come for a moment: those that go on sending need not be told so often.
    pub fn rest(&mut self, limit_ns: u64) {
        if self.untold.is_empty() || limit_ns <= TOLD_AFTER_NS {
            self.wait(limit_ns);
        } else if !self.wait(TOLD_AFTER_NS) {
            self.tell();
            if !self.has_something() {
                self.wait(limit_ns - TOLD_AFTER_NS);
            }
        }
    }

    /// Tells peers what was received of them, and gives back memory that nothing lies in.
    fn tell(&mut self) {
        for row in std::mem::take(&mut self.untold) {
            if let Some(place) = self.place(row) {
                place.is_untold = false;
            }
            if let Some(connection) = self.at_mut(row) {
                connection.tell();
                self.leave_of(row);
            }
            if let Some(connection) = self.at_mut(row) {
                connection.shrink();
                connection.publish();
            }
        }
    }

    /// Waits for the kernel, for at most `limit_ns`, until a connection has something or the bell rings. False if neither has.
    fn wait(&mut self, limit_ns: u64) -> bool {
        let limit = Timespec {
            // Longer ones need a system call that kernels before 5.11 lack.
            tv_sec: i64::try_from(limit_ns / 1_000_000_000)
                .map_or(SLEEP_S_MAX, |it| it.min(SLEEP_S_MAX)),
            tv_nsec: i64::try_from(limit_ns % 1_000_000_000).unwrap_or(0),
        };
        let mut events = [const { MaybeUninit::uninit() }; 64];
        // An interrupted wait is one that was short.
        let Ok((events, _)) = epoll::wait(&*self.set, &mut events, Some(&limit)) else {
            return true;
        };
        let has_some = !events.is_empty();
        for event in events {
            let Ok(row) = u32::try_from(event.data.u64()) else { continue };
            let flags = event.flags;
            let Some(connection) = self.at_mut(row) else { continue };
            connection.note(flags);
            if flags.contains(EventFlags::OUT) {
                self.leave_of(row);
            }
            if flags.intersects(ENDS.union(EventFlags::IN)) {
                self.make_ready(row);
            }
        }
        has_some
    }

    /// Tells the kernel what is waited for on a connection, if that has changed.
    fn watch(&mut self, row: u32) {
        let Self { rows, set, first, .. } = self;
        let Some(place) = rows.get_mut(row.wrapping_sub(*first) as usize) else { return };
        let Some(connection) = &mut place.connection else { return };
        if let Some(flags) = connection.changed_flags() {
            let data = EventData::new_u64(u64::from(row));
            // It is in the set until it has ended.
            let _ = epoll::modify(&**set, connection.socket(), data, flags);
        }
    }

    /// Gives the kernel what waits to leave of a row, unless more is gathered.
    fn leave_of(&mut self, row: u32) {
        if self.is_gathering {
            if let Some(place) = self.place(row)
                && !std::mem::replace(&mut place.is_unsent, true)
            {
                self.unsent.push(row);
            }
            return;
        }
        if let Some(connection) = self.at_mut(row) {
            let was_behind = connection.is_behind();
            connection.flush();
            if was_behind && !connection.is_behind() {
                self.make_ready(row);
            }
        }
        self.watch(row);
    }

    /// Gives the kernel what was gathered.
    fn leave_now(&mut self) {
        for row in std::mem::take(&mut self.unsent) {
            if let Some(place) = self.place(row) {
                place.is_unsent = false;
            }
            self.leave_of(row);
        }
    }

    /// The kernel has nothing more to tell of a row.
    fn forget(&self, row: u32) {
        if let Some(connection) = self.at(row) {
            let _ = epoll::delete(&*self.set, connection.socket());
        }
    }

    /// A row of which something can be taken, or that breaks the rules.
    fn next_ready(&mut self) -> Option<u32> {
        for _ in 0..self.ready.len() {
            let row = self.ready.pop_front()?;
            if let Some(place) = self.place(row) {
                place.is_ready = false;
            }
            let Some(connection) = self.at_mut(row) else { continue };
            if connection.is_held {
                // Its end must be found, whatever waits before it.
                connection.read_ahead();
                let must_flush = connection.must_flush();
                self.note_end(row);
                if must_flush {
                    self.leave_of(row);
                }
                self.watch(row);
            } else if connection.may_have() {
                let found = self.look(row);
                // What has arrived in part waits for the kernel.
                let is_left = self.at(row).is_some_and(Connection::may_read);
                if is_left || !matches!(found, Ok(None)) {
                    self.make_ready(row);
                }
                if !matches!(found, Ok(None)) {
                    (self.last, self.in_turn) = (row, IN_TURN_MAX);
                    return Some(row);
                }
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
            self.open = self.open.saturating_sub(1);
            self.forget(row);
        }
    }

    /// Finds out which connections have something, and gives the kernel what it takes by now.
    fn look_at_all(&mut self) {
        if self.rows.len() > READ_MAX {
            self.wait(0);
            return;
        }
        for row in self.first..self.first + u32::try_from(self.rows.len()).unwrap_or(0) {
            if let Some(connection) = self.at_mut(row) {
                connection.suppose_readable();
                let must_flush = connection.must_flush();
                if must_flush {
                    self.leave_of(row);
                }
                self.make_ready(row);
            }
        }
    }

    /// Takes the next message of the peer that was found last, if it is short, has arrived, and is `wanted`. Of one peer not
    /// more than some in succession.
    #[inline]
    pub fn take_next(&mut self, wanted: &Wanted, target: &mut [u8]) -> Option<Short> {
        let row = self.last;
        let in_turn = self.in_turn;
        let connection = self.at_mut(row).filter(|it| in_turn > 0 && it.generation != 0)?;
        let source = Wanted::source_bits(row, connection.generation);
        let (tag, bytes) = connection.take_plain(wanted, source, target)?;
        let (is_empty, is_due) = (!connection.has_more(), connection.is_credit_due());
        self.in_turn -= 1;
        if is_empty || is_due {
            self.make_untold(row);
            if is_due {
                self.leave_of(row);
            }
        }
        Some(Short::Taken { source, tag, immediate: None, bytes })
    }

    /// Whether there is something to do at once.
    fn has_something(&mut self) -> bool {
        self.has_notice() || self.next_ready().is_some() || self.has_notice() || self.has_piece()
    }

    /// Whether a piece of a message that is pulled has come.
    fn has_piece(&mut self) -> bool {
        let mut pulling = std::mem::take(&mut self.pulling);
        pulling.retain(|&row| self.at(row).is_some_and(|connection| connection.pulls.has_some()));
        self.pulling = pulling;
        let has_one =
            |&row: &u32| self.at(row).is_some_and(|connection| connection.pulls.has_head());
        self.pulling.iter().any(has_one)
    }

    /// Shows observers what has gone over all connections.
    pub fn publish(&self) {
        self.rows.iter().filter_map(|row| row.connection.as_ref()).for_each(Connection::publish);
    }

    /// Says to all peers that this endpoint closes. Returns the connections, which are to be read to their ends.
    pub fn close(&mut self) -> Closing {
        let connections = self.rows.iter_mut().filter_map(|place| place.connection.take());
        Closing::new(connections.filter_map(Connection::leave).collect())
    }
}

/// Lets the kernel end a connection to a host that acknowledges nothing for so long, whether or not something is sent to it.
fn find_silence(stream: impl AsFd, silence_ms: u32) -> std::io::Result<()> {
    let silence = Duration::from_millis(u64::from(silence_ms));
    // Probes that are sent while nothing else is; the kernel counts in seconds.
    let [first, next] = [silence / 2, silence / 6].map(|time| time.max(Duration::from_secs(1)));
    sockopt::set_tcp_user_timeout(&stream, silence_ms)?;
    sockopt::set_tcp_keepidle(&stream, first)?;
    sockopt::set_tcp_keepintvl(&stream, next)?;
    sockopt::set_tcp_keepcnt(&stream, 3)?;
    Ok(sockopt::set_socket_keepalive(&stream, true)?)
}

impl Drop for Tcp {
    /// Says so to the peers, as far as the kernel takes it at once. In a forked child, nothing.
    fn drop(&mut self) {
        self.close().finish_apart();
    }
}
