//! Messages that the sender overwrites before they are read, and eviction.
//!
//! A receiver that was overtaken, or that finds the floor above the message that it has copied, continues a quarter of
//! the ring above the floor, if the sender is that far. It counts the messages in between as missed.
//!
//! Proofs: `proof/models/tests/models/policies.rs`, `proof/kill/src/broadcast.rs`.

use corewire_layout::counters::ReceiverCounter;
use corewire_layout::segment::Policy;
use corewire_layout::slot::ahead_of;

use super::Receiver;
use crate::broadcast::head_of;
use crate::broadcast::words::add;
use crate::channel::Violation;
use crate::sync::Ordering::Relaxed;
use crate::{Host, fence_at};

/// No sender gets this far: a higher floor is impossible.
const FLOOR_MAX: u64 = u64::MAX / 2;

impl<H: Host> Receiver<H> {
    /// Has message `sequence` kept its content during all accesses so far?
    #[inline(always)]
    pub(super) fn is_kept(&self, sequence: u64) -> bool {
        match self.policy {
            Policy::Block => true,
            Policy::Overwrite => {
                // ORDER(O2): pairs with O1; if anything that was read belongs to a later message,
                // the floor read next is above `sequence`.
                fence_at!(O2: Acquire);
                self.sender.floor().load(Relaxed) <= sequence
            }
            Policy::Evict { .. } => !self.is_evicted(),
        }
    }

    pub(super) fn is_evicted(&self) -> bool {
        if let Some(many) = &self.many {
            return many.is_evicted();
        }
        // ORDER(E2): pairs with E1; if anything that was read belongs to a later message, the door
        // says that this receiver was evicted.
        fence_at!(E2: Acquire);
        self.sender.door_tenure(self.row).load(Relaxed) != self.tenure
    }

    /// Handles the loss of the next message, which was not kept while it was read.
    #[cold]
    pub(super) fn lose_next(&mut self) {
        match self.policy {
            Policy::Evict { .. } => self.is_out = true,
            // The sender is about to overtake this receiver, or has done so. All messages that it
            // has given up are lost, and would otherwise be found lost one by one.
            _ => self.lose_up_to(self.resume_above(self.next + 1)),
        }
    }

    /// Passes lost messages, up to `next` exclusive.
    fn lose_up_to(&mut self, next: u64) {
        let count = next - self.next;
        self.missed += count;
        self.next = next;
        add(self.own.counter(ReceiverCounter::Missed), count);
        if self.next >= self.publish_at {
            self.publish_cursor();
        }
    }

    /// Passes the messages that are lost because the sender is more than a lap ahead.
    #[cold]
    #[inline(never)]
    pub(super) fn catch_up(&mut self) -> Result<(), Violation> {
        // ORDER(O2): pairs with O1; the floor belongs to the stamp that was seen, or to a later
        // one.
        fence_at!(O2: Acquire);
        let floor = self.sender.floor().load(Relaxed);
        if floor <= self.next || floor > FLOOR_MAX {
            return Err(Violation { word: "floor", found: floor, sequence: self.next });
        }
        self.lose_up_to(self.resume_above(floor));
        Ok(())
    }

    /// Where to continue when all messages below `kept` are lost: at a message that the sender will
    /// not reach at once, a quarter of the ring above the oldest message that it keeps; or at that
    /// oldest message if there are not that many.
    fn resume_above(&self, kept: u64) -> u64 {
        let floor = self.sender.floor().load(Relaxed);
        let oldest = if floor > FLOOR_MAX { kept } else { floor.max(kept) };
        let later = oldest + self.slots.count() / 4;
        let stamp = self.slots.at(later).stamp().load(Relaxed);
        if ahead_of(stamp, later) >= 0 { later } else { oldest }
    }

    /// Whether the sender overwrites what receivers have not read.
    #[must_use]
    pub fn is_overwritten(&self) -> bool {
        self.policy == Policy::Overwrite
    }

    /// Makes the newest message the next one: passes those before it, which count as missed; or, if nothing was received yet,
    /// steps back to it, if it was sent before this receiver joined. For a channel that overwrites, whose messages are read
    /// only by copies that are checked.
    pub fn skip_to_newest(&mut self) {
        let Some(newest) = head_of(&self.slots).checked_sub(1) else { return };
        // A sender that is not trusted may have stored anything.
        if self.policy != Policy::Overwrite || newest > FLOOR_MAX {
            return;
        }
        if newest > self.next {
            self.lose_up_to(newest);
        } else if newest < self.next && self.next == self.first {
            (self.first, self.next) = (newest, newest);
        }
    }

    /// Number of messages that were overwritten before they were read.
    #[must_use]
    pub fn missed(&self) -> u64 {
        self.missed
    }
}
