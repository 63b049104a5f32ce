//! Alternating blocks of figure and baseline.
//!
//! A measurement has a number of rounds. In each round every block runs once: the baseline, the figure,
//! and whatever else is compared. Round 0 is a warm-up and is not counted. The controller and its workers
//! go through the same rounds, and number their messages in the same way.

use std::ops::{Range, RangeInclusive};
use std::time::Instant;

use corewire_os::processor::{tick_ns, ticks};

use super::statistics::{Spread, median};

/// The round that is not counted.
pub const WARM_UP: u64 = 0;

/// The warm-up and `rounds` counted rounds, for a worker.
#[must_use]
pub fn all(rounds: u64) -> RangeInclusive<u64> {
    WARM_UP..=rounds
}

/// The numbers of the messages of a block that has `count` messages in each round.
///
/// ```
/// assert_eq!(corewire_harness::rounds::numbers(2, 100), 200..300);
/// ```
#[must_use]
pub const fn numbers(round: u64, count: u64) -> Range<u64> {
    round * count..(round + 1) * count
}

/// Runs the warm-up and `rounds` counted rounds. `round` returns one figure for each block, always in
/// the same order.
///
/// ```
/// use corewire_harness::rounds::alternate;
///
/// let figures = [[90.0, 180.0], [100.0, 150.0], [100.0, 130.0], [100.0, 140.0]];
/// let blocks = alternate(3, |round| Ok::<_, ()>(figures[round as usize]))?;
/// assert_eq!(blocks.ratios(1, 0), [1.5, 1.3, 1.4]);
/// assert_eq!(blocks.median(1), 140.0);
/// assert_eq!(blocks.ratio(1, 0).max, 1.5);
/// # Ok::<_, ()>(())
/// ```
///
/// # Errors
/// The error of `round`.
pub fn alternate<B: IntoIterator<Item = f64>, E>(
    rounds: u64,
    mut round: impl FnMut(u64) -> Result<B, E>,
) -> Result<Blocks, E> {
    let mut blocks = Blocks { figures: Vec::new() };
    for number in all(rounds) {
        let figures = round(number)?;
        if number > WARM_UP {
            blocks.add(figures);
        }
    }
    Ok(blocks)
}

/// The figures of all blocks, round by round.
#[derive(Debug, Clone, PartialEq)]
pub struct Blocks {
    figures: Vec<Vec<f64>>,
}

impl Blocks {
    fn add(&mut self, figures: impl IntoIterator<Item = f64>) {
        for (index, figure) in figures.into_iter().enumerate() {
            if index == self.figures.len() {
                self.figures.push(Vec::new());
            }
            self.figures[index].push(figure);
        }
    }

    /// The figures of block `block`; none if there is no such block.
    #[must_use]
    pub fn of(&self, block: usize) -> &[f64] {
        self.figures.get(block).map_or(&[], Vec::as_slice)
    }

    /// The median of a block's figures.
    #[must_use]
    pub fn median(&self, block: usize) -> f64 {
        median(self.of(block).iter().copied())
    }

    /// The ratio of block `over` to block `under` in each round.
    #[must_use]
    pub fn ratios(&self, over: usize, under: usize) -> Vec<f64> {
        self.of(over).iter().zip(self.of(under)).map(|(over, under)| over / under).collect()
    }

    /// The spread of these ratios.
    #[must_use]
    pub fn ratio(&self, over: usize, under: usize) -> Spread {
        Spread::of(self.ratios(over, under)).unwrap_or_default()
    }
}

/// `count` steps since `start`, as a rate per second.
#[expect(clippy::cast_precision_loss, reason = "far below 2^52 steps")]
#[must_use]
pub fn per_second(count: u64, start: Instant) -> f64 {
    count as f64 / start.elapsed().as_secs_f64().max(1e-9)
}

/// Half of the time of each round trip of `numbers`, in nanoseconds.
///
/// # Errors
/// The error of `round_trip`.
#[inline(always)]
pub fn one_way_times<E>(
    numbers: Range<u64>,
    mut round_trip: impl FnMut(u64) -> Result<(), E>,
) -> Result<Vec<f64>, E> {
    let count = numbers.end.saturating_sub(numbers.start);
    let mut trips = Vec::with_capacity(usize::try_from(count).unwrap_or_default());
    let mut last = ticks();
    for number in numbers {
        round_trip(number)?;
        let now = ticks();
        trips.push(now - last);
        last = now;
    }
    Ok(trips.into_iter().map(|took| nanoseconds(took) / 2.0).collect())
}

/// A number of ticks, in nanoseconds.
#[expect(clippy::cast_precision_loss, reason = "far below 2^52 ticks")]
#[must_use]
pub fn nanoseconds(ticks: u64) -> f64 {
    ticks as f64 * tick_ns()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_warm_up_runs_and_is_not_counted() {
        let mut seen = Vec::new();
        let blocks = alternate(2, |round| {
            seen.push(round);
            Ok::<_, ()>(vec![f64::from(u32::try_from(round).unwrap()); 3])
        });
        let blocks = blocks.unwrap();
        assert_eq!(seen, all(2).collect::<Vec<_>>());
        assert_eq!(blocks.of(2), [1.0, 2.0]);
        assert!(blocks.of(3).is_empty());
    }

    #[test]
    fn a_failed_round_ends_the_measurement() {
        let failed = alternate(5, |round| if round < 2 { Ok([1.0]) } else { Err(round) });
        assert_eq!(failed, Err(2));
    }

    #[test]
    fn numbers_of_rounds_follow_each_other() {
        assert_eq!(numbers(0, 7).end, numbers(1, 7).start);
        let trips = one_way_times(numbers(1, 7), |number| {
            assert!((7..14).contains(&number));
            Ok::<_, ()>(())
        });
        assert_eq!(trips.unwrap().len(), 7);
    }
}
