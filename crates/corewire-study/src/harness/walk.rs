//! The cost of reading lines that another processor has written, as a walk over many of them.

use corewire_os::processor::ticks;
use corewire_published::yardstick::LineWalk;
use corewire_ring::region::Region;
use corewire_ring::sync::{AtomicU64, Ordering, pause};

use super::places::on_two;
use super::rounds::nanoseconds;
use super::statistics::median;
use crate::failure::Failure;

/// Lines of a walk. They fit the second-level caches of both processors.
const LINES: usize = 512;
/// Walks of each kind; the result is their median.
const WALKS: usize = 15;
/// Number of read-modify-writes of a line that the processor owns.
const MODIFIES: usize = 10_000;

/// The cost of lines that another processor has written.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ReadCost {
    /// A line, if the reader waits for it, in nanoseconds.
    pub line_ns: f64,
    /// One more line, if many are requested at once, in nanoseconds.
    pub next_ns: f64,
}

impl ReadCost {
    /// Measures it between two processors; about 5 ms.
    ///
    /// # Errors
    /// If a thread cannot be pinned to one of them.
    pub fn measure(reader: usize, writer: usize) -> Result<Self, Failure> {
        let memory = memory()?;
        let walk = LineWalk::new(&memory, LINES);
        walk.lay();
        let order = walk.order();
        let (asked, laid) = (AtomicU64::new(0), AtomicU64::new(0));
        let write = || {
            for round in 1..=2 * WALKS as u64 {
                await_number(&asked, round);
                walk.lay();
                laid.store(round, Ordering::Release);
            }
        };
        let read = || {
            let mut round = 0;
            let mut time = |walk_once: &dyn Fn() -> u64| {
                round += 1;
                asked.store(round, Ordering::Release);
                await_number(&laid, round);
                a_line_ns(walk_once, LINES)
            };
            let line_ns = median((0..WALKS).map(|_| time(&|| walk.one_by_one())));
            let next_ns = median((0..WALKS).map(|_| time(&|| walk.side_by_side(&order))));
            Self { line_ns, next_ns }
        };
        let (cost, ()) = on_two([reader, writer], read, write)?;
        Ok(cost)
    }
}

/// The time of a read-modify-write of a line that the processor owns, in nanoseconds.
///
/// # Errors
/// If there is no memory.
pub fn locked_ns() -> Result<f64, Failure> {
    let memory = memory()?;
    let walk = LineWalk::new(&memory, LINES);
    Ok(median((0..WALKS).map(|_| a_line_ns(&|| walk.modify(MODIFIES), MODIFIES))))
}

fn memory() -> Result<Region, Failure> {
    Region::private(LineWalk::bytes(LINES))
        .ok_or_else(|| Failure::other("there is no memory for the measurement"))
}

fn await_number(word: &AtomicU64, number: u64) {
    while word.load(Ordering::Acquire) != number {
        pause();
    }
}

/// The time of a job, for each of `count` lines.
#[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
fn a_line_ns(job: &dyn Fn() -> u64, count: usize) -> f64 {
    let start = ticks();
    std::hint::black_box(job());
    nanoseconds(ticks() - start) / count as f64
}
