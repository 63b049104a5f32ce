//! The raw line that is the baseline of the latency: one cache line from core to core and back, which nothing beats.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use corewire_os::processor;

use crate::failure::Failure;

/// A walk over many lines, since the time of a single one mostly shows where that one lies.
const LINES: usize = 1024;
/// Round trips that one reading of the clock covers.
const TOGETHER: usize = 16;
/// Walks over all lines that count; the one before them warms up.
const WALKS: usize = 176;

#[derive(Debug, Default)]
#[repr(align(64))]
struct Line(AtomicU64);

/// The median time of a line from one of these cores to the other, one way, in nanoseconds. Takes some 40 ms.
pub(crate) fn one_way_ns(cores: [usize; 2]) -> Result<f64, Failure> {
    let lines = || std::iter::repeat_with(Line::default).take(LINES).collect::<Vec<_>>();
    let (there, back) = (lines(), lines());
    let [asker, answerer] = cores;
    thread::scope(|scope| {
        let asking = scope.spawn(|| {
            let pinned = processor::pin_to(asker);
            (pinned, ask(&there, &back))
        });
        let answering = scope.spawn(|| {
            let pinned = processor::pin_to(answerer);
            for walk in 0..=WALKS as u64 {
                for (there, back) in there.iter().zip(&back) {
                    await_number(there, walk + 1);
                    back.0.store(walk + 1, Ordering::Release);
                }
            }
            pinned
        });
        let ended = (asking.join(), answering.join());
        let (Ok((asker, one_way_ns)), Ok(answerer)) = ended else {
            return Err(Failure::other("a measuring thread panicked"));
        };
        asker.and(answerer)?;
        Ok(one_way_ns)
    })
}

fn ask(there: &[Line], back: &[Line]) -> f64 {
    let mut times_ns = Vec::new();
    for walk in 0..=WALKS as u64 {
        for (there, back) in there.chunks(TOGETHER).zip(back.chunks(TOGETHER)) {
            let start = Instant::now();
            for (there, back) in there.iter().zip(back) {
                there.0.store(walk + 1, Ordering::Release);
                await_number(back, walk + 1);
            }
            if walk > 0 {
                times_ns.push(start.elapsed().as_nanos() as f64 / (2 * TOGETHER) as f64);
            }
        }
    }
    times_ns.sort_by(f64::total_cmp);
    times_ns[times_ns.len() / 2]
}

fn await_number(line: &Line, number: u64) {
    while line.0.load(Ordering::Acquire) != number {}
}
