//! Messages and bytes of one direction of a pair. The data path counts them privately; slow paths store them where
//! observers read them.

use crate::sync::{AtomicU64, Ordering::Relaxed};

/// Messages and bytes sent, or received. The number of messages follows from the ring's position and the number of
/// slots that hold no message, or not the first part of one.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Traffic {
    /// Number of slots that are not messages, plus the position at which the ring began, less what was counted before.
    others: u64,
    pub(super) bytes: u64,
    /// Messages and bytes, as last stored.
    published: [u64; 2],
}

impl Traffic {
    /// Counts from the first slot of a ring, at this position, and from what the counters have.
    pub(super) fn new(position: u64, counters: [&AtomicU64; 2]) -> Self {
        let published = counters.map(|counter| counter.load(Relaxed));
        let [messages, bytes] = published;
        Self { others: position.wrapping_sub(messages), bytes, published }
    }

    /// Counts one whole message of `bytes` bytes, in one slot.
    #[inline(always)]
    pub(super) fn add(&mut self, bytes: u64) {
        self.bytes += bytes;
    }

    /// Counts one message of `bytes` bytes that had no slot of its own.
    #[inline]
    pub(super) fn add_beside(&mut self, bytes: u64) {
        self.bytes += bytes;
        self.others = self.others.wrapping_sub(1);
    }

    /// A slot of `bytes` bytes that was counted as a message was none.
    #[inline]
    pub(super) fn take_back(&mut self, bytes: u64) {
        self.bytes -= bytes;
        self.others = self.others.wrapping_add(1);
    }

    /// Counts `slots` slots that are not messages.
    #[inline(always)]
    pub(super) fn skip(&mut self, slots: u64) {
        self.others = self.others.wrapping_add(slots);
    }

    /// Stores both in counters that only this thread writes, if they have changed. `position` is that of the next
    /// slot.
    #[inline]
    pub(super) fn publish(&mut self, position: u64, counters: [&AtomicU64; 2]) {
        let now = [position.wrapping_sub(self.others), self.bytes];
        if now != self.published {
            self.published = now;
            counters
                .into_iter()
                .zip(now)
                .for_each(|(counter, count)| counter.store(count, Relaxed));
        }
    }
}
