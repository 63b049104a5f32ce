//! How fast a sender goes.
//!
//! A sender that streams has the processor fetch the lines of the slots that it will come to: else
//! each store waits for its line, and a receiver close behind takes the line away again between two
//! stores. One that sends now and then fetches no line but the one that it is about to write: the others
//! stay where receivers poll them, which is in the receivers' caches. A receiver does the same with lines
//! that it knows to be written.

/// How many slots ahead of the one that is written or read lines are fetched, in a ring of `slots`: a
/// page of them, but in a small ring less, lest either side take what the other is about to use. (In a
/// ring of 16384, 16 or 32 ahead costs a receiver a fifth; in one of 256 or 512, a sixteenth gains one.)
pub(super) fn slots_ahead(slots: u64) -> u64 {
    (slots / 16).min(64)
}

/// Who sends a message in less time than this streams: of the order of a line's way from core to core.
const STREAM_NS: u64 = 100;
/// Messages between two looks at the clock.
const STRETCH: u64 = 256;

/// Measured over stretches of messages, at most once a refresh.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    from: u64,
    since_ns: u64,
    is_stream: bool,
}

impl Pace {
    /// Does the sender stream?
    #[inline(always)]
    pub(crate) fn is_stream(&self) -> bool {
        self.is_stream
    }

    /// `sent` messages are sent now.
    pub(crate) fn note(&mut self, sent: u64, now_ns: impl FnOnce() -> u64) {
        let count = sent - self.from;
        if count >= STRETCH {
            let now_ns = now_ns();
            let passed_ns = now_ns.saturating_sub(self.since_ns);
            // Where there is no clock, nothing is a stream.
            self.is_stream = passed_ns > 0 && passed_ns < count * STREAM_NS;
            self.from = sent;
            self.since_ns = now_ns;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_is_known_by_its_pace() {
        let mut pace = Pace::default();
        pace.note(1_000, || 1_000_000_000);
        assert!(!pace.is_stream(), "nobody knows when it began");
        pace.note(2_000, || 1_000_050_000);
        assert!(pace.is_stream(), "50 ns a message");
        pace.note(2_010, || unreachable!("too few to tell"));
        assert!(pace.is_stream());
        pace.note(3_000, || 1_000_350_000);
        assert!(!pace.is_stream(), "300 ns a message");
    }
}
