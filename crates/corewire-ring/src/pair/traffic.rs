//! Messages and bytes of one direction of a pair. The data path counts them privately; slow paths store
//! them where observers read them.

use crate::sync::{AtomicU64, Ordering::Relaxed};

/// What has gone, or come.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Traffic {
    pub(super) messages: u64,
    pub(super) bytes: u64,
    /// Both, as last stored.
    published: [u64; 2],
}

impl Traffic {
    /// One whole message of `bytes` bytes.
    #[inline(always)]
    pub(super) fn add(&mut self, bytes: u64) {
        self.messages += 1;
        self.bytes += bytes;
    }

    /// Stores both in counters that this thread alone writes, if they have changed.
    pub(super) fn publish(&mut self, counters: [&AtomicU64; 2]) {
        let now = [self.messages, self.bytes];
        if now != self.published {
            self.published = now;
            counters
                .into_iter()
                .zip(now)
                .for_each(|(counter, count)| counter.store(count, Relaxed));
        }
    }
}
