//! Selects the cells for a message that is longer than a pipe: the most recently used ones, which are in the caches of
//! both sides, or all in turn, which the receiver's cache no longer holds.
//!
//! The faster choice depends on the processor. On an Intel Xeon, 1 MiB takes 81 us through the recent cells and 115 us
//! through all. On an AMD EPYC, where a core is slow to take a line that another core has read, it takes 110 us and 45
//! us. Both choices are therefore tried again and again for a few messages, and the choice with the fastest message is
//! used for the rest.

use std::time::Instant;

/// Number of messages that try each choice.
const TRIALS: u32 = 4;
/// Number of messages after which both choices are tried again.
const CYCLE: u32 = 256;

/// The two choices, and the time that messages took.
#[derive(Debug)]
pub(super) struct Pipe {
    /// Number of messages sent in this cycle.
    messages: u32,
    /// The fastest message of this cycle, in picoseconds per byte: through all cells, and through the recent ones.
    fastest: [u64; 2],
    /// The peer to which a message is being sent, and the time when it began.
    running: Option<(u32, Instant)>,
}

impl Pipe {
    pub(super) const fn new() -> Self {
        Self { messages: 0, fastest: [u64::MAX; 2], running: None }
    }

    /// Records that a message to the peer of `row` begins. True if it must go through the recent cells.
    pub(super) fn begin(&mut self, row: u32) -> bool {
        self.running = Some((row, Instant::now()));
        self.takes_recent()
    }

    /// Records that a message of `bytes` bytes to the peer of `row` has been sent.
    pub(super) fn end(&mut self, row: u32, bytes: u64) {
        // If two messages are sent at the same time, neither duration is valid.
        if let Some((_, began)) = self.running.take().filter(|running| running.0 == row) {
            let took = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
            self.count(took.saturating_mul(1000) / bytes.max(1));
        }
    }

    fn takes_recent(&self) -> bool {
        match self.messages / TRIALS {
            0 => false,
            1 => true,
            _ => self.fastest[1] < self.fastest[0],
        }
    }

    fn count(&mut self, took: u64) {
        let fastest = &mut self.fastest[usize::from(self.takes_recent())];
        *fastest = took.min(*fastest);
        self.messages += 1;
        if self.messages == CYCLE {
            *self = Self::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_faster_way_is_used_most() {
        for faster in [false, true] {
            let mut pipe = Pipe::new();
            let mut used = 0;
            for message in 0..10 * CYCLE {
                let is_recent = pipe.takes_recent();
                used += u32::from(is_recent == faster);
                // Some messages wait for their receiver.
                let waited = if message % 5 == 0 { 10_000 } else { 0 };
                pipe.count(if is_recent == faster { 40 } else { 100 } + waited);
            }
            assert_eq!(used, 10 * (CYCLE - TRIALS));
        }
    }
}
