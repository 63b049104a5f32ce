//! A sender of a shared channel.
//!
//! | file | contents |
//! |---|---|
//! | `mod.rs` | the sender's state, its counters, the bell |
//! | `claim.rs` | claiming slots, filling and publishing them |
//! | `loan.rs` | payload that does not fit a slot, and loans |
//! | `batch.rs` | several messages in one run of slots |
//! | `room.rs` | the limit, slow and dead receivers, waiting for room |

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

use corewire_layout::counters::SenderCounter;
use corewire_layout::geometry::Geometry;
use corewire_layout::segment::Policy;
use corewire_layout::slot::{INLINE_BYTES_MAX, RUN_SLOTS_MAX};

use super::roster::Roster;
use crate::channel::{Area, Pace, Room, SenderShared, Slowest, Stall};
use crate::doorbell::{self, Sleeper};
use crate::host::{Entrance, Party};
use crate::region::{Region, Store};
use crate::sync::Ordering::Relaxed;
use crate::{Host, Kernel};

mod batch;
mod claim;
mod loan;
mod room;

pub use loan::Loan;

/// Generation of a row's first sender: no other sender had its window before.
const FIRST_GENERATION: u32 = 1;

/// What the waits for the receiver of a row cost this sender.
#[derive(Debug, Clone, Copy, Default)]
struct RowStall {
    generation: u32,
    stall: Stall,
}

/// A message without a slot.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(16))]
struct Staged {
    inline: [u8; INLINE_BYTES_MAX],
    /// The length, or the kind.
    header: u64,
    /// Length of a payload that lies elsewhere.
    bytes: u64,
    room: Room,
}

impl Staged {
    const NOTHING: Self = Self {
        inline: [0; INLINE_BYTES_MAX],
        header: 0,
        bytes: 0,
        room: Room { position: 0, end: 0 },
    };
}

/// The parts of a sender.
#[derive(Debug)]
pub struct SenderParts {
    /// The ring, writable.
    pub ring: Region,
    /// The channel's senders and receivers.
    pub roster: Roster,
    /// This sender's row.
    pub entrance: Entrance,
    /// What happens with slow receivers; not `Overwrite`.
    pub policy: Policy,
    /// Private memory for the largest message, unless the policy is `Block`.
    pub staging: Option<Region>,
    /// What the sender shares with the control thread.
    pub shared: Arc<SenderShared>,
}

/// A sender of a shared channel: the data thread's half.
pub struct Sender<H> {
    roster: Roster,
    entrance: Entrance,
    policy: Policy,
    staging: Option<Store>,
    shared: Arc<SenderShared>,
    /// Where a claim begins or will begin. Everything below is claimed.
    tail: u64,
    /// The sequence number after this sender's last message.
    sent_end: u64,
    sent: u64,
    pace: Pace,
    sleeper: Sleeper,
    bytes: u64,
    window: Area,
    window_store: Store,
    large: Area,
    large_store: Store,
    /// Number of slots that it waits for together.
    wanted: u64,
    /// The word *sleepers* as last served.
    sleepers_seen: u32,
    /// The slowest cursor, as of the last refresh.
    slowest: Option<Slowest>,
    /// For each receiver's row, since when it has held this sender back.
    stalls: Vec<RowStall>,
    /// How long this sender may wait before the next receiver is to be evicted.
    patience_left_ns: u64,
    has_stalls: bool,
    /// Messages of a batch that have no slot yet: entries for a whole run, of which `staged_count`
    /// are in use. They are written in place, field by field: a move would load an entry in wider
    /// words than it was stored, and wait until it has left the store buffer.
    staged: Vec<Staged>,
    staged_count: usize,
    host: H,
}

/// A short message that is being composed, aligned as the payload of a slot is.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(16))]
struct Inline([u8; INLINE_BYTES_MAX]);

impl Inline {
    const ZERO: Self = Self([0; INLINE_BYTES_MAX]);
}

impl<H: Host> Sender<H> {
    /// A sender that has sent nothing yet.
    #[must_use]
    pub fn new(parts: SenderParts, host: H) -> Self {
        let SenderParts { ring, roster, entrance, policy, staging, shared } = parts;
        let geometry = *roster.geometry();
        let (slots, row) = (geometry.slots(), entrance.row);
        let staging = staging.map(|memory| Store::new(&memory, 0, memory.bytes() as u64));
        let (window, large) = (geometry.window_bytes(), geometry.large_bytes());
        let rows = usize::try_from(geometry.receivers_max()).unwrap_or_default();
        let tail = roster.head();
        // Nothing is claimed before the first refresh.
        shared.revoke();
        let mut areas = [Area::new(window, slots, false), Area::new(large, slots, true)];
        if let (true, Some(last)) = (entrance.generation != FIRST_GENERATION, tail.checked_sub(1)) {
            // Receivers may not have read yet what the row's previous holder sent. All of it was
            // claimed below the tail.
            areas.iter_mut().for_each(|area| area.hold_all_until(last));
        }
        // The counters there may still be those of the row's previous holder.
        for (counter, _) in SenderCounter::ALL {
            roster.ring.counter(row, counter).store(0, Relaxed);
        }
        let [window_area, large_area] = areas;
        Self {
            entrance,
            policy,
            staging,
            shared,
            tail,
            sent_end: tail,
            sent: 0,
            pace: Pace::default(),
            sleeper: Sleeper::new(0),
            bytes: 0,
            window: window_area,
            window_store: Store::new(&ring, geometry.window_offset(row), window),
            large: large_area,
            large_store: Store::new(&ring, geometry.large_offset(row), large),
            wanted: 1,
            // A receiver that sleeps already must be woken by the first message.
            sleepers_seen: roster.table.sleepers().load(Relaxed).wrapping_sub(1),
            slowest: None,
            stalls: alloc::vec![RowStall::default(); rows],
            patience_left_ns: u64::MAX,
            has_stalls: false,
            staged: (0..RUN_SLOTS_MAX).map(|_| Staged::NOTHING).collect(),
            staged_count: 0,
            roster,
            host,
        }
    }

    /// What the sender shares with the control thread.
    #[must_use]
    pub fn shared(&self) -> &Arc<SenderShared> {
        &self.shared
    }

    /// The sender's operating system and control thread.
    #[must_use]
    pub fn host(&self) -> &H {
        &self.host
    }

    /// Does the channel allow messages of `bytes` bytes?
    #[inline(always)]
    #[must_use]
    pub fn allows(&self, bytes: usize) -> bool {
        bytes as u64 <= self.roster.geometry.message_bytes_max()
    }

    /// The channel's sizes.
    #[must_use]
    pub fn geometry(&self) -> &Geometry {
        &self.roster.geometry
    }

    /// What happens with slow receivers.
    #[must_use]
    pub fn policy(&self) -> Policy {
        self.policy
    }

    /// Messages sent so far by this sender.
    #[must_use]
    pub fn sent(&self) -> u64 {
        self.sent
    }

    /// How many messages the slowest receiver is behind, as of the last refresh.
    #[must_use]
    pub fn lag(&self) -> u64 {
        self.slowest.map_or(0, |slowest| self.tail.saturating_sub(slowest.cursor))
    }

    fn limit(&self) -> u64 {
        self.shared.limit().load(Relaxed)
    }

    /// Follows the last stamp of a call: counts the messages and wakes sleepers.
    #[inline(always)]
    fn finish(&mut self, end: u64, count: u64) {
        self.sent_end = end;
        self.sent += count;
        if self.someone_sleeps() {
            self.ring_bell();
        }
    }

    /// Has any receiver or sender fallen asleep since this sender last rang the bell?
    #[inline(always)]
    #[must_use]
    pub fn someone_sleeps(&self) -> bool {
        doorbell::fence_after_store(self.shared.is_fenced());
        self.roster.table.sleepers().load(Relaxed) != self.sleepers_seen
    }

    /// Wakes all sleepers.
    #[cold]
    #[inline(never)]
    pub fn ring_bell(&mut self) {
        self.sleepers_seen = self.roster.table.sleepers().load(Relaxed);
        self.add(SenderCounter::Wakes, 1);
        self.roster.ring.cpu().store(self.host.kernel().cpu(), Relaxed);
        self.roster.ring_bell(&self.host);
    }

    /// Did the receiver that holds this sender back last run on this processor? Then it cannot read
    /// while this thread runs.
    #[must_use]
    pub fn is_slowest_here(&self) -> bool {
        let here = |slowest: Slowest| {
            self.roster.rows.cpu(slowest.row).load(Relaxed) == self.host.kernel().cpu()
        };
        self.slowest.is_some_and(here)
    }

    /// Leaves the channel. Messages already sent will be delivered.
    pub fn leave(&mut self) {
        self.publish_counters();
        self.roster.vacate(Party::Sender, self.entrance, &self.host);
    }

    /// Writes the privately kept counters to the segment.
    pub fn publish_counters(&self) {
        let row = self.entrance.row;
        self.roster.ring.counter(row, SenderCounter::Messages).store(self.sent, Relaxed);
        self.roster.ring.counter(row, SenderCounter::Bytes).store(self.bytes, Relaxed);
    }

    fn add(&self, counter: SenderCounter, count: u64) {
        let word = self.roster.ring.counter(self.entrance.row, counter);
        word.store(word.load(Relaxed).wrapping_add(count), Relaxed);
    }

    /// Counts one wait for room.
    pub fn count_wait(&self) {
        self.add(SenderCounter::Waits, 1);
    }

    /// One of this sender's counters, as last written to the segment.
    #[must_use]
    pub fn counter(&self, counter: SenderCounter) -> u64 {
        self.roster.ring.counter(self.entrance.row, counter).load(Relaxed)
    }
}

impl<H> fmt::Debug for Sender<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender").field("entrance", &self.entrance).finish_non_exhaustive()
    }
}
