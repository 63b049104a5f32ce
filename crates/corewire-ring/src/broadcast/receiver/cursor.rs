//! Finishing messages, and publishing the cursor: after an eighth of the ring, or of the window or the large area,
//! whichever comes first; and before each wait.
//!
//! Proofs: `proof/models/tests/models/ring.rs`, `proof/kill/src/broadcast.rs`.

use corewire_layout::counters::ReceiverCounter;
use corewire_layout::slot::INLINE_BYTES_MAX;

use super::Receiver;
use crate::broadcast::words::add;
use crate::channel::{Violation, bytes_of, slots_ahead};
use crate::cold::rarely;
use crate::doorbell;
use crate::sync::Ordering::Relaxed;
use crate::{Host, order};

impl<H: Host> Receiver<H> {
    /// Finishes the next message, of `length` bytes.
    #[inline(always)]
    pub(super) fn pass(&mut self, length: usize) {
        self.next += 1;
        if length > INLINE_BYTES_MAX {
            rarely();
            self.hold(length as u64);
        }
        if self.next >= self.publish_at {
            rarely();
            self.end_batch();
        }
    }

    /// Publishes the cursor after a batch of messages. Also checks whether the next batch and the
    /// lines prefetched with it are there. (With several senders, earlier messages may still be
    /// missing: it is a hint.)
    #[inline(never)]
    fn end_batch(&mut self) {
        self.publish_cursor();
        let ahead = slots_ahead(self.slots.count());
        if self.has(self.next + self.batch + ahead) {
            self.fetch_ahead_bytes = bytes_of(ahead);
        }
    }

    /// Counts payload outside the slots: an eighth of its area makes the cursor be published early.
    #[inline(never)]
    fn hold(&mut self, length: u64) {
        let [window_bytes, large_bytes] =
            [&self.windows, &self.larges].map(|stores| stores[0].bytes());
        let in_window = length <= window_bytes / 4;
        let (held, area_bytes) = if in_window {
            (&mut self.window_held_bytes, window_bytes)
        } else {
            (&mut self.large_held_bytes, large_bytes)
        };
        *held += length;
        // A sender may claim any length, any number of times.
        self.bytes = self.bytes.wrapping_add(length);
        if *held >= area_bytes / 8 {
            self.publish_cursor();
        }
    }

    /// Finishes the next `count` messages that are there.
    ///
    /// # Errors
    /// A [`Violation`].
    pub fn done(&mut self, count: u64) -> Result<(), Violation> {
        for _ in 0..count {
            let stamp = self.slots.at(self.next).stamp().load(Relaxed);
            if !self.is_next(stamp) {
                break;
            }
            let length = self.payload(self.next)?.bytes();
            self.pass(length);
        }
        Ok(())
    }

    /// The cursor of a receiver that holds nothing.
    pub(super) fn finished(&self) -> u64 {
        self.many.as_ref().map_or(self.next, |many| many.cursor_at(self.next))
    }

    /// Stores the cursor if it has moved, and wakes a sender that waits for it. The cursor does not pass the oldest held
    /// message.
    #[inline(never)]
    pub fn publish_cursor(&mut self) {
        self.publish_at = self.next + self.batch;
        self.fetch_ahead_bytes = 0;
        let cursor = self.finished();
        if self.published == cursor {
            return;
        }
        self.published = cursor;
        self.window_held_bytes = 0;
        self.large_held_bytes = 0;
        if let Some(holds) = &self.holds {
            holds.pass(cursor);
            self.publish_counters();
            return;
        }
        // ORDER(B3): pairs with B4; this receiver's reads are done before the sender writes there
        // again.
        self.own.cursor().store(cursor, order!(B3: Release));
        // A waiting sender sees the cursor, or this receiver sees it waiting.
        doorbell::fence_before_look();
        if let Some(many) = &mut self.many {
            if many.make_room(&self.host) {
                add(self.own.counter(ReceiverCounter::Wakes), 1);
            }
            self.publish_counters();
            return;
        }
        let blocked = self.sender.blocked().load(Relaxed);
        if blocked != self.blocked_seen {
            self.blocked_seen = blocked;
            if blocked % 2 == 1 {
                self.wake_sender();
            }
        }
        self.publish_counters();
    }

    #[cold]
    fn wake_sender(&self) {
        doorbell::ring(self.own.wake(), 1, self.host.kernel());
        add(self.own.counter(ReceiverCounter::Wakes), 1);
    }
}
