//! The data thread's half of a channel's sender.
//!
//! | file | contents |
//! |---|---|
//! | `mod.rs` | the sender's state, short messages, its counters |
//! | `loan.rs` | messages that are written in place, and room for long ones |
//! | `wake.rs` | waking sleeping receivers |
//! | `room.rs` | the limit, slow receivers, waiting for room |
//!
//! Proofs: `proof/models/tests/models/ring.rs`, `proof/kill/src/broadcast.rs`.

use alloc::sync::Arc;

use corewire_layout::counters::SenderCounter;
use corewire_layout::geometry::Geometry;
use corewire_layout::segment::{Policy, ROWS_WATCHED_MAX};
use corewire_layout::slot::{INLINE_BYTES_MAX, stamp_of};

use super::words::{SenderWords, add};
use crate::channel::{Area, Pace, SenderShared, Slowest, Span};
use crate::cold::rarely;
use crate::doorbell::Sleeper;
use crate::region::{Access, Region, Rows, Slot, Slots, Store};
use crate::sync::Ordering::Relaxed;
use crate::{Host, Kernel, order};

mod loan;
mod room;
mod wake;

pub use loan::Loan;

/// The parts of a sender.
#[derive(Debug)]
pub struct SenderParts {
    /// The sender's segment, writable, with its header written.
    pub segment: Region,
    /// What happens with slow receivers.
    pub policy: Policy,
    /// Private memory for the largest message, unless the policy is `Block`: messages are composed
    /// there. Receivers may copy a message out while it is written over, so it must be written in
    /// words and cannot be lent.
    pub staging: Option<Region>,
    /// The segment's sizes.
    pub geometry: Geometry,
    /// The receivers' pages.
    pub rows: Rows,
    /// The hint segment, if the channel is made for more than 8 receivers, all of the same user.
    pub hint: Option<Region>,
    /// What the sender shares with the control thread.
    pub shared: Arc<SenderShared>,
}

/// The data thread's half of a sender.
#[derive(Debug)]
pub struct Sender<H> {
    /// The next message's sequence number.
    head: u64,
    shared: Arc<SenderShared>,
    slots: Slots,
    /// In a stream: how many bytes of slots ahead of the next message lines are fetched. Otherwise 0. (At the end of the
    /// ring, the lines beyond it are fetched: one address is computed for each message, not two.)
    fetch_ahead_bytes: usize,
    /// Shorter messages are written in their slot, where receivers find them: 0 if messages are composed elsewhere.
    lent_below: usize,
    rows: Rows,
    /// True if the sender lends in place and needs neither fences nor a hint: one check instead of three, where more
    /// than one receiver may sleep.
    is_plain: bool,
    fenced: bool,
    hint: Option<Region>,
    policy: Policy,
    staging: Option<Store>,
    /// Under `Overwrite`: messages below this one may be overwritten.
    floor: u64,
    /// Messages that every receiver has finished with, as of the last refresh.
    read_by_all: u64,
    /// The member that held the sender back most at the last refresh.
    slowest: Option<Slowest>,
    pace: Pace,
    sleeper: Sleeper,
    /// Payload bytes sent outside the slots.
    bytes: u64,
    geometry: Geometry,
    window: Area,
    /// The part of the window that is being filled.
    span: Span,
    window_store: Store,
    large: Area,
    large_store: Store,
    words: SenderWords,
    host: H,
}

impl<H: Host> Sender<H> {
    /// A sender that has sent nothing yet. Its limit is 0, so the first message takes the slow
    /// path.
    #[must_use]
    pub fn new(parts: SenderParts, host: H) -> Self {
        let SenderParts { segment, policy, staging, geometry, rows, hint, shared } = parts;
        let slots = geometry.slots();
        let staging = staging.map(|memory| Store::new(&memory, 0, memory.bytes() as u64));
        Self {
            slots: Slots::new(&segment, &geometry),
            head: 0,
            fenced: shared.is_fenced(),
            shared,
            hint: hint.filter(|_| geometry.receivers_max() > u64::from(ROWS_WATCHED_MAX)),
            rows,
            policy,
            floor: 0,
            read_by_all: 0,
            slowest: None,
            pace: Pace::default(),
            fetch_ahead_bytes: 0,
            is_plain: false,
            lent_below: if staging.is_some() { 0 } else { lent_below(&geometry) },
            staging,
            sleeper: Sleeper::new(0),
            bytes: 0,
            geometry,
            window: Area::new(geometry.window_bytes(), slots, false),
            span: Span::default(),
            window_store: Store::new(&segment, geometry.window_offset(0), geometry.window_bytes()),
            large: Area::new(geometry.large_bytes(), slots, true),
            large_store: Store::new(&segment, geometry.large_offset(0), geometry.large_bytes()),
            words: SenderWords::new(segment),
            host,
        }
    }

    /// Makes `first` the number of the first message, as if this sender had sent all messages before it: for the sender
    /// of a relay, which continues the numbers of another ring. Must be called before any other thread sees the ring,
    /// whose [`Members`](super::Members) must begin with the same number.
    pub fn begin_with(&mut self, first: u64) {
        for before in first.saturating_sub(self.slots.count())..first {
            self.slots.at(before).stamp().store(stamp_of(before), Relaxed);
        }
        self.head = first;
        self.read_by_all = first;
        self.publish_counters();
    }

    /// Messages sent so far.
    #[inline]
    #[must_use]
    pub fn head(&self) -> u64 {
        self.head
    }

    /// The channel's sizes.
    #[inline]
    #[must_use]
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// Does the channel allow messages of `bytes` bytes?
    #[inline(always)]
    #[must_use]
    pub fn allows(&self, bytes: usize) -> bool {
        if self.is_lent_in_slot(bytes) {
            return true;
        }
        rarely();
        bytes as u64 <= self.geometry.message_bytes_max()
    }

    /// Is a message of `bytes` bytes allowed, and written in its slot? One load.
    #[inline(always)]
    fn is_lent_in_slot(&self, bytes: usize) -> bool {
        bytes < self.lent_below
    }

    /// What happens with slow receivers.
    #[inline]
    #[must_use]
    pub fn policy(&self) -> Policy {
        self.policy
    }

    /// The member that held the sender back most at the last refresh.
    #[must_use]
    pub fn slowest(&self) -> Option<Slowest> {
        self.slowest
    }

    /// The processor that the receiver of `row` last ran on. A hint.
    #[must_use]
    pub fn receiver_cpu(&self, row: u32) -> u32 {
        self.rows.cpu(row).load(Relaxed)
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

    /// Sends a message that fits in a slot, if a slot is free. Returns false otherwise, and then
    /// nothing is done. This path makes no store that the message does not need: if one store waits
    /// in the store buffer, all later stores wait too.
    #[inline(always)]
    pub fn try_send_inline(&mut self, message: &[u8]) -> bool {
        let head = self.head;
        if message.len() > INLINE_BYTES_MAX || head >= self.shared.limit.load(Relaxed) {
            return false;
        }
        let slot = self.next_slot();
        let access = self.access();
        let mut payload = slot.payload(message.len(), access);
        if access == Access::Words {
            // SAFETY: the slot is below the limit, so it is claimed and not published.
            unsafe { payload.copy_in(message) };
        } else {
            // SAFETY: as above; and no receiver copies from it meanwhile.
            unsafe { payload.fill(message) };
        }
        publish(slot, head, message.len() as u64);
        self.head = head + 1;
        if self.someone_sleeps() {
            self.ring_bell();
        }
        true
    }

    /// The slot that is written next.
    #[inline(always)]
    fn next_slot(&self) -> Slot<'_> {
        let slot = self.slots.at(self.head);
        slot.prefetch_to_write(self.fetch_ahead_bytes);
        slot
    }

    #[inline(always)]
    fn access(&self) -> Access {
        if self.staging().is_some() { Access::Words } else { Access::Write }
    }

    #[inline(always)]
    fn staging(&self) -> Option<&Store> {
        if self.is_plain { None } else { self.staging.as_ref() }
    }

    /// Ends the channel after the last message and wakes all receivers.
    pub fn close(&mut self) {
        self.publish_counters();
        // ORDER(B8): pairs with B9; the last messages are visible with the end.
        self.words.closed().store(self.head.wrapping_add(1), order!(B8: Release));
        if self.someone_sleeps() {
            self.ring_bell();
        }
    }

    /// Writes the privately kept counters to the segment.
    pub fn publish_counters(&self) {
        self.words.counter(SenderCounter::Messages).store(self.head, Relaxed);
        self.words.counter(SenderCounter::Bytes).store(self.bytes, Relaxed);
        self.words.cpu().store(self.host.kernel().cpu(), Relaxed);
    }

    /// Counts one wait for room.
    pub fn count_wait(&self) {
        add(self.words.counter(SenderCounter::Waits), 1);
    }

    /// One of the data thread's counters, as last written to the segment.
    #[must_use]
    pub fn counter(&self, counter: SenderCounter) -> u64 {
        self.words.counter(counter).load(Relaxed)
    }
}

/// Messages of fewer bytes fit a slot, and the channel allows them.
fn lent_below(geometry: &Geometry) -> usize {
    let largest = usize::try_from(geometry.message_bytes_max()).unwrap_or(usize::MAX);
    largest.min(INLINE_BYTES_MAX) + 1
}

/// Makes message `sequence`, whose payload is written, visible to receivers.
#[inline(always)]
fn publish(slot: Slot<'_>, sequence: u64, header: u64) {
    slot.header().store(header, Relaxed);
    // ORDER(B1): pairs with B2; makes header and payload visible with the stamp.
    slot.stamp().store(stamp_of(sequence), order!(B1: Release));
}
