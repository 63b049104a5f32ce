//! When connections are looked at.
//!
//! A look is a system call of some 200 ns, a poll of the rings takes 10. So the sockets are looked at when the rings have had
//! nothing for 4 us, and after that once a microsecond; at every empty poll while messages come from there; and while the rings
//! are never empty for so long, every 20 us.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use corewire_endpoint::Wanted;
use corewire_endpoint::transport::{Polling, Short, Transport as _};
use corewire_net::open::Target;
use corewire_net::tcp::Tcp;

use crate::halves::{FarChange, FarHalf};

/// Empty polls of the rings before the clock is read.
const EMPTY_POLLS: u32 = 16;
/// How long the rings have had nothing before the first look.
const QUIET: Duration = Duration::from_micros(4);
/// Between two looks while nothing comes.
const BETWEEN: Duration = Duration::from_micros(1);
/// Between two looks while the rings are never empty for long, and how many messages of theirs there are between two looks at
/// the clock.
const BUSY: Duration = Duration::from_micros(20);
const MESSAGES_PER_CLOCK: u32 = 64;

/// A peer that is known by name.
struct Named {
    /// Which of all these peers it is: a row has one after the other.
    place: u64,
    target: Target,
    incarnation: Option<u128>,
}

/// The connections of an endpoint.
pub(super) struct Far {
    pub(super) tcp: Tcp,
    /// Peers that are known by name, by row.
    targets: BTreeMap<u32, Named>,
    /// How many there were.
    named: u64,
    /// Polls of the rings that found nothing, since they or the sockets had something.
    empty: u32,
    /// Messages of the rings since the clock was read.
    messages: u32,
    /// When the sockets were looked at last although the rings had something.
    looked: Instant,
    /// The rings come next, although something is there.
    yields: bool,
    /// When the next look is due, if the rings have nothing; `None` before it is known.
    next: Option<Instant>,
    /// What came last came from here.
    was_last: bool,
}

impl Far {
    pub(super) fn new(tcp: Tcp) -> Self {
        Self {
            tcp,
            targets: BTreeMap::new(),
            named: 0,
            empty: 0,
            messages: 0,
            looked: Instant::now(),
            yields: false,
            next: None,
            was_last: true,
        }
    }

    pub(super) fn take(&mut self, change: FarChange, half: &dyn FarHalf) {
        match change {
            FarChange::Opened { number, opened } => {
                if self.tcp.add(*opened, number).is_err() {
                    // No descriptors or memory: the peer sees that the connection has ended.
                    half.ended(number);
                }
                self.look_now();
            }
            FarChange::Replaced { number } => self.tcp.replace(number),
            FarChange::NotLinked { row, place, how } => {
                if self.targets.get(&row).is_some_and(|named| named.place == place) {
                    self.tcp.give_up(row, how);
                }
            }
        }
    }

    /// A row is for the endpoint of this name from now on, until it is [forgotten](Self::forget).
    pub(super) fn name(&mut self, row: u32, target: Target, incarnation: Option<u128>) {
        self.named += 1;
        let named = Named { place: self.named, target, incarnation };
        self.targets.entry(row).or_insert(named);
    }

    pub(super) fn forget(&mut self, row: u32) {
        self.targets.remove(&row);
    }

    /// Lets a row be connected to the endpoint whose name it has.
    pub(super) fn link(&self, row: u32, half: &dyn FarHalf) {
        if let Some(Named { place, target, incarnation }) = self.targets.get(&row) {
            half.link(row, *place, target.clone(), *incarnation);
        }
    }

    pub(super) fn was_last(&self) -> bool {
        self.was_last
    }

    /// The next poll looks at the sockets.
    pub(super) fn look_now(&mut self) {
        self.was_last = true;
    }

    /// Whether connections are looked at before the rings: something is known to be there, in turn with the rings, or the
    /// rings have kept them waiting.
    pub(super) fn is_first(&mut self) -> bool {
        if self.tcp.has_ready() {
            self.yields = !self.yields;
            return self.yields;
        }
        if self.messages < MESSAGES_PER_CLOCK {
            return false;
        }
        self.messages = 0;
        let is_long_ago = self.looked.elapsed() >= BUSY;
        if is_long_ago {
            self.looked = Instant::now();
        }
        is_long_ago
    }

    /// Whether connections are looked at, now that the rings have nothing.
    pub(super) fn is_due(&mut self) -> bool {
        if self.was_last || self.tcp.has_ready() {
            return true;
        }
        self.empty = self.empty.saturating_add(1);
        if self.empty < EMPTY_POLLS {
            return false;
        }
        let now = Instant::now();
        let next = *self.next.get_or_insert(now + QUIET);
        if now < next {
            return false;
        }
        self.next = Some(now + BETWEEN);
        true
    }

    /// The rings have had something.
    pub(super) fn note_near(&mut self) {
        self.messages += 1;
        (self.empty, self.next, self.was_last) = (0, None, false);
    }

    pub(super) fn try_take(
        &mut self,
        polling: Polling,
        wanted: &Wanted,
        target: &mut [u8],
    ) -> Short {
        let found = self.tcp.try_take(polling, wanted, target);
        if !matches!(found, Short::Nothing) {
            self.note_far();
        }
        found
    }

    /// Takes the next message of the peer that was found last, if there are more: some in succession, before the rings.
    #[inline]
    pub(super) fn take_next(&mut self, wanted: &Wanted, target: &mut [u8]) -> Option<Short> {
        if self.was_last { self.tcp.take_next(wanted, target) } else { None }
    }

    pub(super) fn poll(&mut self) -> Option<u32> {
        self.tcp.poll().inspect(|_| self.note_far())
    }

    fn note_far(&mut self) {
        (self.empty, self.next, self.was_last) = (0, None, true);
    }
}
