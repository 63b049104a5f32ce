//! The receiver's half of a channel.
//!
//! | file | contents |
//! |---|---|
//! | `mod.rs` | the receiver's state, its counters, whether a message is there |
//! | `message.rs` | messages, read in place or copied out |
//! | `cursor.rs` | finishing messages, and publishing the cursor |
//! | `held.rs` | messages that outlive the call that received them |
//! | `losses.rs` | messages that the sender overwrites, and eviction |
//! | `sleep.rs` | the end of a channel, and sleeping |

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use corewire_layout::LINE_BYTES;
use corewire_layout::counters::ReceiverCounter;
use corewire_layout::frame::Welcome;
use corewire_layout::geometry::Geometry;
use corewire_layout::segment::{DoorState, FenceMode, Policy, tenure};
use corewire_layout::slot::{publishes, stamp_of};

use super::words::{ReceiverWords, SenderWords, add};
use crate::channel::{ReceiverShared, head_start_ns};
use crate::cold::rarely;
use crate::doorbell::Sleeper;
use crate::region::{Region, Slots, Store};
use crate::shared::{Many, ManyParts};
use crate::sync::Ordering::Relaxed;
use crate::{Host, Kernel, Trusted};

mod cursor;
mod held;
mod losses;
mod message;
mod sleep;

pub use held::Held;
use held::Holds;
pub use message::{Lost, Message, Snapshot};

/// Proof that a channel's messages may be read in place: the sender is trusted, and overwrites no
/// message before every receiver has passed it.
#[derive(Debug, Clone, Copy)]
pub struct InPlace(Trusted);

/// The parts of a receiver.
#[derive(Debug)]
pub struct ReceiverParts {
    /// The sender's segment, read-only, with its header checked.
    pub sender: Region,
    /// The sizes given by that header.
    pub geometry: Geometry,
    /// How the sender makes its stamps visible to sleepers.
    pub fence_mode: FenceMode,
    /// What happens with slow receivers.
    pub policy: Policy,
    /// The receiver's own segment, writable, with its header written.
    pub own: Region,
    /// The hint segment, writable, if the channel has one.
    pub hint: Option<Region>,
    /// The owner's answer to the request to join.
    pub welcome: Welcome,
    /// What the receiver shares with its control thread.
    pub shared: Arc<ReceiverShared>,
    /// The senders, if the channel is shared.
    pub many: Option<ManyParts>,
}

/// A receiver.
#[derive(Debug)]
pub struct Receiver<H: Host> {
    slots: Slots,
    /// The first message that this receiver was to get.
    first: u64,
    /// Sequence number of the next message, which may be being read. All earlier ones are finished.
    next: u64,
    /// The cursor is published when `next` gets here.
    publish_at: u64,
    /// The cursor as published.
    published: u64,
    /// Publish the cursor after this many messages.
    batch: u64,
    /// The first message of the present run, of messages that were there one after the other, and the payload bytes
    /// outside the slots before it.
    run_from: u64,
    run_bytes: u64,
    /// How many bytes of slots ahead of the next message lines are fetched. 0 unless the sender is known to
    /// be well ahead: it must not lose the lines that it is about to write.
    fetch_ahead_bytes: usize,
    sleeper: Sleeper,
    /// Payload bytes outside the slots that the published cursor still holds, for each area.
    window_held_bytes: u64,
    large_held_bytes: u64,
    /// Payload bytes received outside the slots.
    bytes: u64,
    /// For each sender.
    windows: Vec<Store>,
    larges: Vec<Store>,
    many: Option<Box<Many>>,
    /// From the first held message on.
    holds: Option<Arc<Holds<H>>>,
    sender: SenderWords,
    own: ReceiverWords,
    hint: Option<Region>,
    shared: Arc<ReceiverShared>,
    /// The sender's `blocked` epoch as last served.
    blocked_seen: u32,
    fence_mode: FenceMode,
    /// If this receiver asked for fences: messages before this one may come without a fence.
    settled: u64,
    policy: Policy,
    row: u32,
    /// The value of its door while the receiver counts.
    tenure: u64,
    message_bytes_max: u64,
    /// Messages that were overwritten before they were read.
    missed: u64,
    /// Messages that will never come because their senders died after claiming them.
    abandoned: u64,
    /// This receiver has found that it was evicted.
    is_out: bool,
    host: H,
}

impl<H: Host> Receiver<H> {
    /// A receiver that begins at the message that the owner chose.
    #[must_use]
    pub fn new(parts: ReceiverParts, host: H) -> Self {
        let ReceiverParts { sender, geometry, own, hint, welcome, .. } = parts;
        let batch = geometry.cursor_batch();
        let senders = || 0..u32::try_from(geometry.senders_max()).unwrap_or(u32::MAX);
        let receiver = Self {
            slots: Slots::new(&sender, &geometry),
            first: welcome.start,
            next: welcome.start,
            publish_at: welcome.start.saturating_add(batch),
            published: welcome.start,
            batch,
            run_from: welcome.start,
            run_bytes: 0,
            fetch_ahead_bytes: 0,
            sleeper: Sleeper::new(welcome.epoch),
            window_held_bytes: 0,
            large_held_bytes: 0,
            bytes: 0,
            windows: senders()
                .map(|row| {
                    Store::new(&sender, geometry.window_offset(row), geometry.window_bytes())
                })
                .collect(),
            larges: senders()
                .map(|row| Store::new(&sender, geometry.large_offset(row), geometry.large_bytes()))
                .collect(),
            many: parts.many.map(|many| Box::new(Many::new(many))),
            holds: None,
            sender: SenderWords::new(sender),
            own: ReceiverWords::new(own),
            hint,
            shared: parts.shared,
            blocked_seen: 0,
            fence_mode: parts.fence_mode,
            settled: welcome.settled,
            policy: parts.policy,
            row: welcome.row,
            tenure: tenure(welcome.generation, DoorState::Joined),
            message_bytes_max: geometry.message_bytes_max(),
            missed: 0,
            abandoned: 0,
            is_out: false,
            host,
        };
        receiver.own.sleeping().store(receiver.sleeper.epoch(), Relaxed);
        // No processor until it has slept once.
        receiver.own.cpu().store(u32::MAX, Relaxed);
        // The counters there may still be those of the row's previous holder.
        for (counter, _) in ReceiverCounter::ALL {
            receiver.own.counter(counter).store(0, Relaxed);
        }
        receiver
    }

    /// Returns the proof if messages of a sender that is trusted like this may be read in place.
    #[must_use]
    pub fn in_place(&self, trusted: Trusted) -> Option<InPlace> {
        self.policy.keeps_messages().then_some(InPlace(trusted))
    }

    /// The sequence number of the next message.
    #[inline]
    #[must_use]
    pub fn next(&self) -> u64 {
        self.next
    }

    /// What the receiver shares with its control thread.
    #[must_use]
    pub fn shared(&self) -> &Arc<ReceiverShared> {
        &self.shared
    }

    /// The receiver's operating system and control thread.
    #[must_use]
    pub fn host(&self) -> &H {
        &self.host
    }

    /// Did the sender last run on this processor? Of several senders: the sender that last woke
    /// receivers. A hint: such a sender cannot send while this thread runs.
    #[must_use]
    pub fn is_sender_here(&self) -> bool {
        self.sender.cpu().load(Relaxed) == self.host.kernel().cpu()
    }

    /// Is the next message there? One load.
    #[inline(always)]
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.has(self.next)
    }

    #[inline(always)]
    fn has(&self, sequence: u64) -> bool {
        let stamp = self.slots.at(sequence).stamp().load(Relaxed);
        stamp == stamp_of(sequence) || (self.many.is_some() && publishes(stamp, sequence))
    }

    /// Does `stamp` publish the next message? In a channel of one sender a stamp holds nothing but
    /// the sequence number.
    #[inline(always)]
    fn is_next(&mut self, stamp: u64) -> bool {
        if stamp == stamp_of(self.next) {
            return true;
        }
        rarely();
        self.many.is_some() && self.is_next_of_many(stamp)
    }

    #[inline]
    fn is_next_of_many(&mut self, stamp: u64) -> bool {
        let is_next = publishes(stamp, self.next);
        if let Some(many) = self.many.as_mut().filter(|_| is_next) {
            many.note(self.next, stamp);
        }
        is_next
    }

    /// Ends a run of messages that were there one after the other. Must be called when the one after `held` messages,
    /// which the caller has not released yet, is not there. Returns
    /// how long to give the sender before this receiver looks again, in ns: 0 after few messages, and where messages
    /// may be overwritten meanwhile.
    pub fn end_run(&mut self, held: u64) -> u64 {
        let end = self.next + held;
        // One that skips to the newest message, or releases fewer than it held, may go back.
        let run = end.saturating_sub(core::mem::replace(&mut self.run_from, end));
        let has_payload = core::mem::replace(&mut self.run_bytes, self.bytes) != self.bytes;
        let lines = match self.windows.first() {
            Some(window) if has_payload => {
                self.slots.count().min(window.bytes() / LINE_BYTES as u64)
            }
            _ => self.slots.count(),
        };
        if self.is_overwritten() { 0 } else { head_start_ns(run, lines) }
    }

    /// Number of messages that are there, counted from the next one, up to `count_max`.
    #[must_use]
    pub fn ready_count(&self, count_max: u64) -> u64 {
        let count_max = count_max.min(self.slots.count());
        (0..count_max).find(|&i| !self.has(self.next + i)).unwrap_or(count_max)
    }

    /// Writes the privately kept counters to the segment.
    pub fn publish_counters(&self) {
        let received = self.next - self.first - self.missed - self.abandoned;
        self.own.counter(ReceiverCounter::Messages).store(received, Relaxed);
        self.own.counter(ReceiverCounter::Bytes).store(self.bytes, Relaxed);
    }

    /// Counts one wait for a message.
    pub fn count_wait(&self) {
        add(self.own.counter(ReceiverCounter::Waits), 1);
    }

    /// One of the receiver's counters, as last written to the segment.
    #[must_use]
    pub fn counter(&self, counter: ReceiverCounter) -> u64 {
        self.own.counter(counter).load(Relaxed)
    }
}
