//! The control halves of channels with several senders. No process owns such a channel. The process that holds its
//! name, the *host*, admits others. When the host ends, the remaining senders compete for the name. Each sender and
//! receiver learns of deaths itself, from the kernel, through a [`SharedLink`].
//!
//! Deaths are not announced. A process that waits for a row connects to the process that holds the row. The kernel
//! reports that process's death, or refuses the connection. A lost connection alone proves no death, and is made again.
//! Receivers watch every sender before they sleep.

pub(crate) mod attachment;
pub(crate) mod member;

use std::collections::{BTreeMap, BTreeSet};
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
use corewire_ring::Control;
use corewire_ring::region::Region;
use corewire_ring::shared::{Entrance, Party, Roster, RosterParts};
use corewire_ring::sync::{AtomicU32, Ordering::Relaxed};
use zerocopy::{FromZeros, IntoBytes};

use crate::control::domain::{DomainHandle, DomainInner};
use crate::control::hub::{Handler, Token};
use crate::error::JoinError;
use crate::guard::lock;

/// ESRCH: the process that listened at a socket is gone, although a child of it may hold the socket.
const ESRCH: i32 = 3;
/// How long to wait before an operation is tried again.
const AGAIN_AFTER: Duration = Duration::from_millis(1);

/// Watches the other senders and receivers of a channel for one handle.
pub(crate) struct SharedLink {
    this: Weak<Self>,
    pub(crate) roster: Roster,
    incarnation: u128,
    domain: Arc<DomainInner>,
    watches: Mutex<BTreeMap<Watched, Arc<Watch>>>,
    retries: Mutex<Retries>,
    /// Makes the data thread check its state again.
    nudge: Box<dyn Fn() + Send + Sync>,
}

/// Identifies a row.
type Watched = (Party, u32);

/// Operations that failed for lack of a descriptor, memory, or room in the queue of another process. The control thread
/// tries them again.
#[derive(Default)]
struct Retries {
    /// Rows of receivers to wake.
    wakes: BTreeSet<u32>,
    /// Processes to watch, with their sockets.
    watches: BTreeMap<Watched, (Entrance, u128)>,
    is_under_way: bool,
}

/// A watched process, for one of its rows.
struct Watch {
    link: Weak<SharedLink>,
    party: Party,
    who: Entrance,
    name: u128,
    /// Hangs up when the process ends, when it runs another program (`exec`), or when it refuses the connection for
    /// lack of resources. In the last case it first sends a refusal.
    socket: Socket,
    /// Readable when the process ends. `None` before Linux 6.5.
    life: Option<Descriptor>,
    /// 1 if the process has refused the connection.
    is_refused: AtomicU32,
    tokens: OnceLock<(Token, Option<Token>)>,
}

impl SharedLink {
    pub(crate) fn new(
        domain: &DomainHandle,
        roster: Roster,
        incarnation: u128,
        nudge: impl Fn() + Send + Sync + 'static,
    ) -> Arc<Self> {
        Arc::new_cyclic(|this| Self {
            this: Weak::clone(this),
            roster,
            incarnation,
            domain: Arc::clone(domain.inner()),
            watches: Mutex::default(),
            retries: Mutex::default(),
            nudge: Box::new(nudge),
        })
    }

    /// Makes the kernel report the death of `who`, or records that it is dead already.
    fn watch_party(&self, party: Party, who: Entrance, socket: u128) {
        if self.domain.is_forked() {
            return;
        }
        if !self.try_watch(party, who, socket) {
            lock(&self.retries).watches.insert((party, who.row), (who, socket));
            self.retry_soon();
        }
    }

    /// Like `watch_party`, but returns false if it is not possible now.
    fn try_watch(&self, party: Party, who: Entrance, name: u128) -> bool {
        let mut watches = lock(&self.watches);
        if watches.get(&(party, who.row)).is_some_and(|watch| watch.who == who) {
            return true;
        }
        let socket = match self.domain.directory.connect_now(SocketName(name)) {
            Ok(Some(socket)) => socket,
            // No process listens there. A process's listener closes only when the process ends.
            Ok(None) => {
                self.record_death(party, who);
                return true;
            }
            Err(_) => return false,
        };
        let life = match socket.peer_life(None) {
            Ok(life) => Some(life),
            Err(error) if error.errno == ESRCH => {
                self.record_death(party, who);
                return true;
            }
            Err(_) => None,
        };
        let (link, is_refused) = (Weak::clone(&self.this), AtomicU32::new(0));
        let tokens = OnceLock::new();
        let watch = Watch { link, party, who, name, socket, life, is_refused, tokens };
        let watch = Arc::new(watch);
        if watch.start(&self.domain).is_err() {
            return false;
        }
        if let Some(former) = watches.insert((party, who.row), watch) {
            former.stop(&self.domain);
        }
        true
    }

    fn record_death(&self, party: Party, who: Entrance) {
        self.roster.record_death(party, who);
        if party == Party::Receiver && self.roster.vacate(party, who, &Linux::get()) {
            self.roster.table_words().count(ControlCounter::Deaths);
        }
    }

    /// Wakes the receiver of `row` through its descriptor. Does not wait: the data thread calls this.
    fn wake(&self, row: u32) {
        if !self.try_wake(row) {
            lock(&self.retries).wakes.insert(row);
            self.retry_soon();
        }
    }

    /// Like `wake`, but returns false if it is not possible now.
    fn try_wake(&self, row: u32) -> bool {
        let socket = self.roster.door(Party::Receiver, row).socket();
        let incarnation = self.incarnation;
        match self.domain.directory.connect_now(SocketName(socket)) {
            Ok(Some(socket)) => socket.send(&Frame::Wake { row, incarnation }, &[]).is_ok(),
            // No process listens there: the receiver is dead.
            Ok(None) => true,
            Err(_) => false,
        }
    }

    /// Schedules one retry of all pending operations on the control thread.
    fn retry_soon(&self) {
        if std::mem::replace(&mut lock(&self.retries).is_under_way, true) {
            return;
        }
        let this = Weak::clone(&self.this);
        self.domain.hub().run_soon(move || {
            let _ = wait_readable(&[], Some(Instant::now() + AGAIN_AFTER));
            if let Some(link) = this.upgrade() {
                link.retry();
            }
        });
    }

    fn retry(&self) {
        let Retries { wakes, watches, .. } = std::mem::take(&mut *lock(&self.retries));
        for row in wakes {
            if self.roster.is_armed(row) {
                self.wake(row);
            }
        }
        for ((party, _), (who, socket)) in watches {
            if self.roster.holds(party, who) {
                self.watch_party(party, who, socket);
                if self.roster.is_dead(party, who) {
                    (self.nudge)();
                }
            }
        }
    }

    /// Watches all processes that hold a row of this kind.
    pub(crate) fn watch_all(&self, party: Party) {
        for (who, _) in self.roster.held(party) {
            if !self.roster.is_dead(party, who) {
                self.watch_party(party, who, self.roster.door(party, who.row).socket());
            }
        }
    }
}

impl Control for SharedLink {
    fn wake_descriptor(&self, row: u32) {
        self.wake(row);
    }

    fn watch(&self, party: Party, who: Entrance, socket: u128) {
        self.watch_party(party, who, socket);
    }
}

impl Watch {
    fn start(self: &Arc<Self>, domain: &DomainInner) -> Result<(), OsError> {
        let handler: Weak<dyn Handler> = Arc::downgrade(self) as Weak<dyn Handler>;
        let first = domain.hub().watch(&self.socket, Weak::clone(&handler))?;
        let second = match &self.life {
            None => None,
            Some(life) => Some(domain.hub().watch(life, handler).inspect_err(|_| {
                domain.hub().forget(&self.socket, first);
            })?),
        };
        let _ = self.tokens.set((first, second));
        Ok(())
    }

    fn stop(&self, domain: &DomainInner) {
        if let Some(&(first, second)) = self.tokens.get() {
            domain.hub().forget(&self.socket, first);
            if let (Some(life), Some(second)) = (&self.life, second) {
                domain.hub().forget(life, second);
            }
        }
    }

    /// Reads the frames of the process. It sends none but a refusal.
    fn read_frames(&self) {
        while let Ok((frame, _)) = self.socket.receive() {
            if matches!(frame, Frame::Refused(_)) {
                self.is_refused.store(1, Relaxed);
            }
        }
    }
}

impl Handler for Watch {
    fn on_event(&self, token: Token, hung_up: bool) {
        let (Some(link), Some(&(first, second))) = (self.link.upgrade(), self.tokens.get()) else {
            return;
        };
        let is_dead = second == Some(token);
        if !is_dead {
            self.read_frames();
            if !hung_up {
                return;
            }
            if self.is_refused.load(Relaxed) == 1 {
                // The process is alive. If no other descriptor reports its end, it is watched again.
                link.domain.hub().forget(&self.socket, first);
                if second.is_some() {
                    return;
                }
                let _ = wait_readable(&[], Some(Instant::now() + AGAIN_AFTER));
            }
        }
        self.stop(&link.domain);
        let mut watches = lock(&link.watches);
        if watches.get(&(self.party, self.who.row)).is_some_and(|watch| watch.who == self.who) {
            watches.remove(&(self.party, self.who.row));
        }
        drop(watches);
        if is_dead {
            link.record_death(self.party, self.who);
        } else {
            // The connection may have ended for another reason. If the process is alive, a new connection succeeds.
            link.watch_party(self.party, self.who, self.name);
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

/// The two segments of a shared channel, checked. An observer is not a party.
pub(crate) struct SharedMemory {
    pub(crate) header: SenderHeader,
    pub(crate) ring: Region,
    pub(crate) table: Region,
    pub(crate) ring_segment: Segment,
    pub(crate) table_segment: Segment,
}

impl SharedMemory {
    /// Maps and checks the segments that the host sent. Maps as writable what `party` may write.
    pub(crate) fn open(
        name: &ChannelName,
        ring: Descriptor,
        table: Descriptor,
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
