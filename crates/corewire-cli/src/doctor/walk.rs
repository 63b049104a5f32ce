//! The cost of reading lines that another processor has written, as a walk over many of them.

use std::hint::black_box;
use std::thread;

use corewire::OsError;
use corewire_os::processor::{self, tick_ns, ticks};
use corewire_ring::sync::{AtomicU64, Ordering, pause};

use crate::failure::Failure;

/// Lines of a walk. They fit the second-level caches of both processors.
const LINES: usize = 512;
/// Walks of each kind; the result is their median.
const WALKS: usize = 15;
/// Number of read-modify-writes of a line that the processor owns.
const MODIFIES: usize = 10_000;

/// The cost of lines that another processor has written.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct ReadCost {
    /// A line, if the reader waits for it, in nanoseconds.
    pub(super) line_ns: f64,
    /// One more line, if many are requested at once, in nanoseconds.
    pub(super) next_ns: f64,
}

impl ReadCost {
    /// Measures it between two processors; about 5 ms.
    pub(super) fn measure(reader: usize, writer: usize) -> Result<Self, Failure> {
        let walk = Walk::default();
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
            let mut time = |walk_once: &dyn Fn() -> usize| {
                round += 1;
                asked.store(round, Ordering::Release);
                await_number(&laid, round);
                a_line_ns(walk_once, LINES)
            };
            let line_ns = median(|| time(&|| walk.one_by_one()));
            let next_ns = median(|| time(&|| walk.side_by_side(&order)));
            Self { line_ns, next_ns }
        };
        // Each waits for the other one, so both run to their end, even if one cannot be pinned.
        thread::scope(|scope| {
            let writing = scope.spawn(|| on(writer, write));
            let reading = scope.spawn(|| on(reader, read));
            let ended = (writing.join(), reading.join());
            let (Ok(written), Ok(read)) = ended else {
                return Err(Failure::other("a measuring thread panicked"));
            };
            written.and(read).map_err(Failure::from)
        })
    }
}

/// The time of a read-modify-write of a line that the processor owns, in nanoseconds.
pub(super) fn locked_ns() -> f64 {
    let line = Line::default();
    let modify = || {
        let last = (0..MODIFIES).fold(0, |last, _| line.0.fetch_add(last & 1, Ordering::Relaxed));
        usize::from(last == 0)
    };
    median(|| a_line_ns(&modify, MODIFIES))
}

/// Lines that one thread changes and another one then loads, in an order that no prefetcher can predict.
struct Walk(Vec<Line>);

/// No two of them lie in a pair that the hardware fetches together.
#[derive(Default)]
#[repr(align(256))]
struct Line(AtomicU64);

impl Default for Walk {
    fn default() -> Self {
        Self(std::iter::repeat_with(Line::default).take(LINES).collect())
    }
}

impl Walk {
    /// Stores in each line the index of the next one, in a circle through all lines.
    fn lay(&self) {
        let mut order: Vec<usize> = (0..LINES).collect();
        let mut random = 0x9e37_79b9_usize;
        for index in (1..LINES).rev() {
            random = random.wrapping_mul(0x5851_f42d).wrapping_add(1) & 0xffff_ffff;
            order.swap(index, (random >> 8) % (index + 1));
        }
        for (&line, &next) in order.iter().zip(order.iter().cycle().skip(1)) {
            self.0[line].0.store(next as u64, Ordering::Relaxed);
        }
    }

    fn after(&self, line: usize) -> usize {
        #[expect(clippy::cast_possible_truncation, reason = "an index")]
        let next = self.0[line].0.load(Ordering::Relaxed) as usize;
        next
    }

    /// The order of the walk, as stored in the lines.
    fn order(&self) -> Vec<usize> {
        std::iter::successors(Some(0), |&line| Some(self.after(line))).take(LINES).collect()
    }

    /// Loads every line after the load of the previous one has finished. Returns the line where the walk ends.
    fn one_by_one(&self) -> usize {
        (0..LINES).fold(0, |line, _| self.after(line))
    }

    /// Loads every line of `order`; no load waits for another. Returns a sum over them.
    fn side_by_side(&self, order: &[usize]) -> usize {
        order.iter().fold(0, |sum, &line| sum.wrapping_add(self.after(line)))
    }
}

/// Runs `job` on processor `cpu`.
fn on<T>(cpu: usize, job: impl FnOnce() -> T) -> Result<T, OsError> {
    let pinned = processor::pin_to(cpu);
    let done = job();
    pinned.map(|()| done)
}

fn await_number(word: &AtomicU64, number: u64) {
    while word.load(Ordering::Acquire) != number {
        pause();
    }
}

/// The time of a job, for each of `count` lines.
fn a_line_ns(job: &dyn Fn() -> usize, count: usize) -> f64 {
    let start = ticks();
    black_box(job());
    (ticks() - start) as f64 * tick_ns() / count as f64
}

/// The median of [`WALKS`] times.
fn median(time: impl FnMut() -> f64) -> f64 {
    let mut times: Vec<f64> = std::iter::repeat_with(time).take(WALKS).collect();
    times.sort_by(f64::total_cmp);
    times[WALKS / 2]
}
