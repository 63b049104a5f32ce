//! The rate at which a sender sends.
//!
//! A sender that streams makes the processor prefetch the lines of the slots that it will write
//! next. Without that, each store waits for its line, and a receiver close behind takes the line
//! away again between two stores. A sender that sends only now and then fetches no line except the
//! one that it is about to write: the other lines stay in the caches of the receivers that poll
//! them. A receiver likewise prefetches lines that it knows to be written.

/// Distance in slots from the slot that is written or read to the line that is prefetched, in a
/// ring of `slots` slots: one page of slots, or fewer in a small ring, so that neither side takes
/// lines that the other is about to use. (In a ring of 16384 slots, fetching only 16 or 32 ahead
/// costs a receiver a fifth; in a ring of 256 or 512, fetching a sixteenth of the ring ahead gains
/// a fifth.)
pub(crate) fn slots_ahead(slots: u64) -> u64 {
    (slots / 16).min(64)
}

/// A sender that spends less time than this on a message streams. It is about the time that a line
/// takes from one core to another.
const STREAM_NS: u64 = 100;
/// At least this many messages pass between two readings of the clock.
const STRETCH: u64 = 256;

/// Measures the rate over many messages at a time, at most once per refresh.
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

    /// Records that `sent` messages have been sent so far.
    pub(crate) fn note(&mut self, sent: u64, now_ns: impl FnOnce() -> u64) {
        let count = sent - self.from;
        if count >= STRETCH {
            let now_ns = now_ns();
            let passed_ns = now_ns.saturating_sub(self.since_ns);
            // Without a clock, nothing counts as a stream.
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
