//! The rate at which a sender sends, and how far behind it a receiver stays.
//!
//! A sender that streams makes the processor prefetch the lines of the slots that it will write
//! next. Without that, each store waits for its line, and a receiver close behind takes the line
//! away again between two stores. A sender that sends only now and then fetches no line except the
//! one that it is about to write: the other lines stay in the caches of the receivers that poll
//! them. A receiver likewise prefetches lines that it knows to be written.
//!
//! A receiver right behind a sender that streams fetches each line while it is still in the sender's
//! own cache, and makes the sender fetch it back: both then move at the time of a line transfer. So a
//! receiver that finds no message after a run of many lets the sender get ahead: [`head_start_ns`].

use corewire_layout::slot::SLOT_BYTES;

/// Distance in slots from the slot that is read to the line that is prefetched, in a ring of `slots`
/// slots: one page of slots, or fewer in a small ring, so that neither side takes lines that the
/// other is about to use.
pub(crate) fn slots_ahead(slots: u64) -> u64 {
    (slots / 16).min(64)
}

/// Distance in bytes of slots from the slot that is written to the line that is prefetched. Closer than for reading:
/// between cores that share no cache, a distance of 64 slots costs a stream a fifth. Not much closer: with 16 slots,
/// a sender that waits for an answer after 512 messages lost a tenth between cores that share one.
pub(crate) fn write_ahead_bytes(slots: u64) -> usize {
    bytes_of((slots / 16).min(32))
}

/// Bytes of a few slots.
#[expect(clippy::cast_possible_truncation, reason = "at most a page of them")]
pub(crate) fn bytes_of(slots: u64) -> usize {
    slots as usize * SLOT_BYTES
}

/// A receiver that has read at least this many messages without finding the ring empty was in a run.
const RUN: u64 = 64;
/// After a run, a receiver waits for so long for each of its messages: about as long as the run took.
const NS_PER_MESSAGE: u64 = 8;
/// Limit on that time in ns. Between cores that share no cache, a stream is faster the longer it is.
const HEAD_START_MAX_NS: u64 = 16_384;

/// The time that a receiver that finds no message, after `run` messages that were there one after the other, gives the
/// sender before it looks again: 0 unless that was a run. The sender has room for `lines` lines, of which it writes one
/// in 2 ns or more, so it does not use up half of the room in that time.
#[must_use]
pub fn head_start_ns(run: u64, lines: u64) -> u64 {
    if run < RUN { 0 } else { run.saturating_mul(NS_PER_MESSAGE).min(lines).min(HEAD_START_MAX_NS) }
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

    // Keeps P257.
    #[test]
    fn only_a_run_gives_the_sender_time_and_never_for_long() {
        assert_eq!([0, 1, RUN - 1].map(|run| head_start_ns(run, 1 << 14)), [0, 0, 0]);
        assert_eq!(head_start_ns(RUN, 1 << 14), RUN * NS_PER_MESSAGE);
        for run in [RUN, 1000, u64::MAX] {
            for slots in [2, 64, 1 << 14, 1 << 20] {
                let time_ns = head_start_ns(run, slots);
                assert!(time_ns <= slots.min(HEAD_START_MAX_NS), "{run} {slots}: {time_ns}");
                assert!(time_ns / NS_PER_MESSAGE <= run);
            }
        }
    }

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
