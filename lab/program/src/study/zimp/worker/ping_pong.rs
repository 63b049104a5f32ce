//! One message there and back, repeated.

use std::time::{Duration, Instant};

use corewire_os::processor::{tick_ns, ticks};
use corewire_published::yardstick::payload;
use hdrhistogram::Histogram;

use super::Report;
use super::mark::{Code, Said, Word};
use crate::study::failure::{Doing, Failure};
use crate::study::mechanisms::{Receives, Sends};

/// Round trips between two reads of the clock.
const LOOK: u32 = 64;
/// Some minutes. Longer times count as this.
const TICKS_MAX: u64 = 1 << 40;

/// The process that measures.
pub(super) fn ask(
    sender: &mut impl Sends,
    receiver: &mut impl Receives,
    bytes: usize,
    [warm_up, measured]: [Duration; 2],
) -> Result<Report, Failure> {
    let code = Code::new(bytes, 0);
    let mut word = code.first();
    let mut times = Histogram::<u64>::new_with_max(TICKS_MAX, 3).doing("make a histogram")?;
    for time in [warm_up, measured] {
        times.reset();
        let started = Instant::now();
        while started.elapsed() < time {
            for _ in 0..LOOK {
                let start = ticks();
                round_trip(sender, receiver, code, bytes, word)?;
                times.saturating_record(ticks() - start);
                word = code.after(word);
            }
        }
    }
    round_trip(sender, receiver, code, bytes, code.end())?;
    #[expect(clippy::cast_precision_loss, reason = "a time")]
    let half_ns = |share: f64| times.value_at_quantile(share) as f64 * tick_ns() / 2.0;
    Ok(Report {
        messages: times.len(),
        p50_ns: half_ns(0.5),
        p99_ns: half_ns(0.99),
        ..Report::default()
    })
}

#[inline(always)]
fn round_trip(
    sender: &mut impl Sends,
    receiver: &mut impl Receives,
    code: Code,
    bytes: usize,
    word: Word,
) -> Result<(), Failure> {
    sender.send(|message| payload::fill(message, word))?;
    let found = receiver.receive(|message| (code.read(message), payload::sum(message)))?;
    if found == (word, payload::expected_sum(bytes, word)) {
        return Ok(());
    }
    Err(Failure::other(format!("{:#x} came back where {word:#x} was due", found.0)))
}

/// The process that answers.
pub(super) fn answer(
    sender: &mut impl Sends,
    receiver: &mut impl Receives,
    bytes: usize,
) -> Result<Report, Failure> {
    let code = Code::new(bytes, 0);
    loop {
        let (word, sum) =
            receiver.receive(|message| (code.read(message), payload::sum(message)))?;
        if sum != payload::expected_sum(bytes, word) {
            return Err(Failure::other(format!("a message of {bytes} bytes arrived damaged")));
        }
        sender.send(|message| payload::fill(message, word))?;
        if matches!(code.say(word), Said::End { .. }) {
            return Ok(Report::default());
        }
    }
}
