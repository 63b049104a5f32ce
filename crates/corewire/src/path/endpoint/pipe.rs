//! Which cells a message goes through that is longer than a pipe: those that were used last, which are in the
//! caches of both sides, or all in turn, which the receiver's cache has let go.
//!
//! Which is faster depends on the processor: on an Intel Xeon 1 MiB takes 81 us through the cells that were used last and
//! 115 through all; on an AMD EPYC, where a core is slow to take a line that another has read, 110 and 45. So each is
//! tried for a few messages, again and again, and the one that had the fastest message is used for the rest.

use std::time::Instant;

/// Messages that try one of the two ways.
const TRIALS: u32 = 4;
/// Messages after which both are tried again.
const CYCLE: u32 = 256;

/// The two ways, and the time that messages took.
#[derive(Debug)]
pub(super) struct Pipe {
    /// Messages of this cycle that have been sent.
    messages: u32,
    /// The fastest of this cycle, in picoseconds for each byte: through all cells, and through those used last.
    fastest: [u64; 2],
    /// The peer to which a message is being sent, and since when.
    running: Option<(u32, Instant)>,
}

impl Pipe {
    pub(super) const fn new() -> Self {
        Self { messages: 0, fastest: [u64::MAX; 2], running: None }
    }

    /// A message to the peer of `row` begins. Whether it goes through the cells that were used last.
    pub(super) fn begin(&mut self, row: u32) -> bool {
        self.running = Some((row, Instant::now()));
        self.takes_recent()
    }

    /// A message of `bytes` bytes to the peer of `row` has been sent.
    pub(super) fn end(&mut self, row: u32, bytes: u64) {
        // Of two messages at the same time neither tells anything.
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
                // Now and then a message waits for its receiver.
                let waited = if message % 5 == 0 { 10_000 } else { 0 };
                pipe.count(if is_recent == faster { 40 } else { 100 } + waited);
            }
            assert_eq!(used, 10 * (CYCLE - TRIALS));
        }
    }
}
