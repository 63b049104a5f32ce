//! The raw line: the time of a bare cache line from one core to another, which no message can beat.

use std::convert::Infallible;

use corewire_published::yardstick::RawLines;
use corewire_ring::region::Region;

use super::rounds::one_way_times;
use super::statistics::typical;

/// Number of lines of the walk, in each direction. The time of a single pair of lines mostly shows
/// where that pair lies.
pub const LINES: usize = 1024;
/// Bytes of memory for the walk.
pub const BYTES: usize = RawLines::bytes(LINES);

/// One side of a ping-pong of lines. Both sides make the same calls, one with [`Self::ask`] and the
/// other with [`Self::answer`].
///
/// ```
/// use corewire_ring::region::Region;
/// use corewire_harness::line::{BYTES, RawLine};
///
/// let memory = Region::private(BYTES).unwrap();
/// let [mut one, mut other] = [RawLine::new(&memory), RawLine::new(&memory)];
/// std::thread::scope(|scope| {
///     scope.spawn(|| other.answer(10));
///     assert!(one.ask(10) > 0.0);
/// });
/// ```
#[derive(Debug)]
pub struct RawLine {
    lines: RawLines,
    /// Round trips so far.
    gone: u64,
}

impl RawLine {
    /// One side, in memory that both sides have mapped.
    ///
    /// # Panics
    /// If the memory is shorter than [`BYTES`].
    #[must_use]
    pub fn new(memory: &Region) -> Self {
        Self { lines: RawLines::new(memory, LINES), gone: 0 }
    }

    /// Makes a walk over all lines, which is not counted, and then `trips` round trips. Returns the
    /// median of half of a round trip, in nanoseconds. Polls without a pause until the other side
    /// answers.
    pub fn ask(&mut self, trips: u64) -> f64 {
        self.gone += LINES as u64;
        (self.gone - LINES as u64..self.gone).for_each(|number| self.lines.ping(number));
        let numbers = self.gone..self.gone + trips;
        self.gone = numbers.end;
        let times = one_way_times(numbers, |number| {
            self.lines.ping(number);
            Ok::<_, Infallible>(())
        });
        times.map_or_else(|never| match never {}, |times| typical(&times))
    }

    /// Answers a call of [`Self::ask`] with the same number.
    pub fn answer(&mut self, trips: u64) {
        let first = self.gone;
        self.gone += LINES as u64 + trips;
        (first..self.gone).for_each(|number| self.lines.pong(number));
    }
}
