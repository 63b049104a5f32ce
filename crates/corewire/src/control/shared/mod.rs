//! Channels of several senders, but for their data path. Nobody owns one: the process that holds the
//! name, the *host*, lets others in, and when it goes, the senders that are left race for the name.
//! Whoever takes part learns of deaths by itself, from the kernel, through a [`SharedLink`].

pub(crate) mod attachment;
pub(crate) mod member;

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::{Duration, Instant};

use corewire_layout::counters::ControlCounter;
use corewire_layout::frame::Frame;
use corewire_layout::name::{ChannelName, SocketName};
use corewire_layout::segment::{BELL, RawSenderHeader, RawTableHeader, SenderHeader, TableHeader};
use corewire_os::OsError;
use corewire_os::event::wait_readable;
use corewire_os::fork::Descriptor;
use corewire_os::memory::{Segment, SegmentError};
use corewire_os::sleep::Linux;
use corewire_os::socket::Socket;
use corewire_ring::region::Region;
use corewire_ring::shared::{Entrance, Party, Roster, RosterParts};
use zerocopy::{FromZeros, IntoBytes};

use crate::control::domain::DomainInner;
use crate::control::hub::{Handler, Token, lock};
use crate::error::JoinError;

/// The process that listened at a socket is gone, though a child of it may hold the socket.
const ESRCH: i32 = 3;
/// How long a wake-up that could not be sent waits until it is tried again.
const WAKE_AGAIN_AFTER: Duration = Duration::from_millis(1);
/// How long after a connection has ended the same process is connected to again.
const CONNECT_AGAIN_AFTER: Duration = Duration::from_millis(1);

/// One handle's watch over the others of its channel.
pub(crate) struct SharedLink {
    this: Weak<Self>,
    pub(crate) roster: Roster,
    domain: Arc<DomainInner>,
    watches: Mutex<HashMap<(Party, u32), Arc<Watch>>>,
    /// Has the data thread look again.
    nudge: Box<dyn Fn() + Send + Sync>,
}

/// One process that is watched, on behalf of one of its rows.
struct Watch {
    link: Weak<SharedLink>,
    party: Party,
    who: Entrance,
    socket: u128,
    sign: Sign,
    token: OnceLock<Token>,
}

/// What tells that a process has ended.
enum Sign {
    /// The kernel does.
    Life(Descriptor),
    /// The kernel cannot (before Linux 6.5): the end of a connection may, but a process that can take
    /// no more in ends one, too.
    Connection(Socket),
}

impl SharedLink {
    pub(crate) fn new(
        domain: &Arc<DomainInner>,
        roster: Roster,
        nudge: impl Fn() + Send + Sync + 'static,
    ) -> Arc<Self> {
        Arc::new_cyclic(|this| Self {
            this: Weak::clone(this),
            roster,
            domain: Arc::clone(domain),
            watches: Mutex::default(),
            nudge: Box::new(nudge),
        })
    }

    /// Has the kernel report the death of `who`, or finds that it is dead already.
    pub(crate) fn watch(&self, party: Party, who: Entrance, socket: u128) {
        if self.domain.is_forked() {
            return;
        }
        let mut watches = lock(&self.watches);
        if watches.get(&(party, who.row)).is_some_and(|watch| watch.who == who) {
            return;
        }
        let connection = match self.domain.directory.connect_now(SocketName(socket)) {
            Ok(Some(connection)) => connection,
            // Nobody listens there: a process's socket is closed by its end alone.
            Ok(None) => return self.learn(party, who),
            // It is asked again with the next look.
            Err(_) => return,
        };
        let sign = match connection.peer_life(None) {
            Ok(life) => Sign::Life(life),
            Err(error) if error.errno == ESRCH => return self.learn(party, who),
            Err(_) => Sign::Connection(connection),
        };
        let (link, token) = (Weak::clone(&self.this), OnceLock::new());
        let watch = Arc::new(Watch { link, party, who, socket, sign, token });
        if watch.start(&self.domain).is_ok()
            && let Some(former) = watches.insert((party, who.row), watch)
        {
            former.stop(&self.domain);
        }
    }

    fn learn(&self, party: Party, who: Entrance) {
        self.roster.learn(party, who);
        if party == Party::Receiver && self.roster.vacate(party, who, &Linux::get()) {
            self.roster.table_words().count(ControlCounter::Deaths);
        }
    }

    /// Has the receiver of `row`, whose process has `socket`, ring its descriptor.
    pub(crate) fn wake(&self, row: u32, incarnation: u128, socket: u128) {
        // A data thread asks, which does not wait.
        let is_done = match self.domain.directory.connect_now(SocketName(socket)) {
            Ok(Some(socket)) => socket.send(&Frame::Wake { row, incarnation }, &[]).is_ok(),
            // Nobody listens there: it is dead.
            Ok(None) => true,
            Err(_) => false,
        };
        if is_done {
            return;
        }
        // There is no descriptor or memory here, or no room in its queue, for now.
        let this = Weak::clone(&self.this);
        self.domain.hub().run_soon(move || {
            let _ = wait_readable(&[], Some(Instant::now() + WAKE_AGAIN_AFTER));
            if let Some(link) = this.upgrade()
                && link.roster.is_armed(row)
                && link.roster.door(Party::Receiver, row).socket() == socket
            {
                link.wake(row, incarnation, socket);
            }
        });
    }

    /// Watches everybody who has a row of this kind.
    pub(crate) fn watch_all(&self, party: Party) {
        for (who, _) in self.roster.held(party) {
            if !self.roster.is_dead(party, who) {
                self.watch(party, who, self.roster.door(party, who.row).socket());
            }
        }
    }
}

impl Watch {
    fn start(self: &Arc<Self>, domain: &DomainInner) -> Result<(), OsError> {
        let handler: Weak<dyn Handler> = Arc::downgrade(self) as Weak<dyn Handler>;
        let _ = self.token.set(domain.hub().watch(self.sign.as_fd(), handler)?);
        Ok(())
    }

    fn stop(&self, domain: &DomainInner) {
        if let Some(&token) = self.token.get() {
            domain.hub().forget(self.sign.as_fd(), token);
        }
    }
}

impl AsFd for Sign {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Life(life) => life.as_fd(),
            Self::Connection(socket) => socket.as_fd(),
        }
    }
}

impl Handler for Watch {
    fn on_event(&self, _token: Token, hung_up: bool) {
        let Some(link) = self.link.upgrade() else { return };
        if let (Sign::Connection(socket), false) = (&self.sign, hung_up) {
            // It has no word for us; what it says is passed over.
            let _ = socket.receive();
            return;
        }
        self.stop(&link.domain);
        let mut watches = lock(&link.watches);
        if watches.get(&(self.party, self.who.row)).is_some_and(|watch| watch.who == self.who) {
            watches.remove(&(self.party, self.who.row));
        }
        drop(watches);
        match self.sign {
            Sign::Life(_) => link.learn(self.party, self.who),
            // Whoever is alive can be connected to.
            Sign::Connection(_) => {
                let _ = wait_readable(&[], Some(Instant::now() + CONNECT_AGAIN_AFTER));
                link.watch(self.party, self.who, self.socket);
            }
        }
        (link.nudge)();
    }
}

impl Drop for SharedLink {
    fn drop(&mut self) {
        for (_, watch) in std::mem::take(&mut *lock(&self.watches)) {
            watch.stop(&self.domain);
        }
    }
}

/// The two segments of a shared channel, checked. One who only looks on is no party.
pub(crate) struct SharedMemory {
    pub(crate) header: SenderHeader,
    pub(crate) ring: Region,
    pub(crate) table: Region,
    pub(crate) ring_segment: Segment,
    pub(crate) table_segment: Segment,
}

impl SharedMemory {
    /// Maps and checks what came from the host, for writing what such a party writes.
    pub(crate) fn open(
        name: &ChannelName,
        ring: OwnedFd,
        table: OwnedFd,
        party: Option<Party>,
    ) -> Result<Self, JoinError> {
        let bad = |error: SegmentError| JoinError::Segment { name: name.clone(), error };
        let ring_segment = Segment::adopt(ring, true).map_err(bad)?;
        let table_segment = Segment::adopt(table, true).map_err(bad)?;
        let ring = if party == Some(Party::Sender) {
            ring_segment.map_writable(ring_segment.bytes()).map_err(bad)?
        } else {
            ring_segment.map(BELL as u64).map_err(bad)?
        };
        let wrong = |error| JoinError::Header { name: name.clone(), error };
        let mut raw = RawSenderHeader::new_zeroed();
        if ring_segment.bytes() < size_of::<RawSenderHeader>() as u64 {
            let (needed, found) = (BELL as u64, ring_segment.bytes());
            return Err(bad(SegmentError::Size { needed, found }));
        }
        ring.copy_out(0, raw.as_mut_bytes());
        let header = SenderHeader::parse(&raw, ring_segment.bytes()).map_err(wrong)?;
        let table_bytes = header.geometry.table_bytes();
        let table = match party {
            Some(_) => table_segment.map_writable(table_bytes),
            None => table_segment.map(table_bytes),
        };
        let table = table.map_err(bad)?;
        let mut raw = RawTableHeader::new_zeroed();
        table.copy_out(0, raw.as_mut_bytes());
        let found =
            TableHeader::parse(&raw, table_segment.bytes(), &header.geometry).map_err(wrong)?;
        if !header.geometry.is_shared() || found.incarnation != header.incarnation {
            let found = "with the memory of two channels".into();
            return Err(JoinError::Protocol { name: name.clone(), found });
        }
        Ok(Self { header, ring, table, ring_segment, table_segment })
    }

    pub(crate) fn roster(&self) -> Roster {
        let (ring, table) = (self.ring.clone(), self.table.clone());
        Roster::new(&RosterParts { ring, table, geometry: self.header.geometry })
    }
}
