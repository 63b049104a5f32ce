//! What a run measures, and the notes that it makes.

use std::time::Duration;

use clap::ValueEnum;
use corewire_harness::line::LINES;
use serde::{Deserialize, Serialize};

use super::arena::arena_bytes;
use super::results::{Key, Measured};
use crate::study::distances::Lines;

/// Round trips of a bare line between two groups of points.
pub(super) const LINE_ROUNDS: u64 = 2 * LINES as u64;
/// The paper's iterations (III-A).
const ITERATIONS: u64 = 1000;
/// Least number of iterations in a block, and of short messages.
const ITERATIONS_MIN: u64 = 3;
const ITERATIONS_OF_SHORT: u64 = 64;
/// The message of the experiments that have only one size.
pub(super) const LONG_BYTES: usize = 4 << 20;
pub(super) const MIDDLE_BYTES: usize = 1 << 20;

/// An experiment: all runs of it are made by processes of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[value(rename_all = "snake_case")]
pub(crate) enum Experiment {
    /// Figure 2: copy routines
    Copies,
    /// Figure 3: sizes of buffers and cells
    Buffers,
    /// Table II, Figure 4: latency and bandwidth
    Transfers,
    /// Table III: set-up and tear-down
    SetUp,
    /// Figure 5, Table IV: cache disturbance
    Cache,
    /// Section IV-A: overlap with computation
    Overlap,
    /// One message to all receivers
    OneToAll,
}

impl Experiment {
    /// For the user.
    pub(super) const fn words(self) -> &'static str {
        match self {
            Self::Copies => "copy routines (Figure 2)",
            Self::Buffers => "sizes of buffers and cells (Figure 3)",
            Self::Transfers => "latency and bandwidth (Table II, Figure 4)",
            Self::SetUp => "set-up and tear-down (Table III)",
            Self::Cache => "cache disturbance (Figure 5)",
            Self::Overlap => "overlap with computation (IV-A)",
            Self::OneToAll => "one message to all",
        }
    }
}

/// The order of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Plan {
    pub(super) experiment: Experiment,
    /// Sizes of messages.
    pub(super) sizes: Vec<usize>,
    /// Counted blocks of each point, and runs.
    pub(super) rounds: u32,
    pub(super) runs: u32,
    /// Planned duration of a block.
    pub(super) block: Duration,
    /// Bytes of the second-level cache.
    pub(super) cache_bytes: u64,
    /// Number of receivers of [`Experiment::OneToAll`].
    pub(super) receivers: usize,
}

impl Plan {
    /// Iterations of a block of messages of so many bytes, if one takes a microsecond, and a quarter of a nanosecond for each
    /// byte.
    pub(super) fn iterations(&self, bytes: usize) -> u64 {
        let blocks = u64::from(self.rounds) * u64::from(self.runs);
        let most = ITERATIONS.div_ceil(blocks.max(1)).max(ITERATIONS_OF_SHORT);
        let budget = u64::try_from(self.block.as_nanos()).unwrap_or(u64::MAX);
        (budget / (1000 + bytes as u64 / 4)).clamp(ITERATIONS_MIN, most)
    }

    /// The longest message.
    pub(super) fn longest(&self) -> usize {
        let sizes = self.sizes.iter().copied();
        sizes.max().unwrap_or_default().max(LONG_BYTES)
    }

    /// Bytes of the memory through which buffers move.
    pub(super) fn arena_bytes(&self) -> usize {
        arena_bytes(self.cache_bytes, self.longest())
    }
}

/// What a run found.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Report {
    pub(super) measured: Vec<Measured>,
    /// What is missing, and why.
    pub(super) absent: Vec<(String, String)>,
}

impl Report {
    /// Adds the figure of a block.
    pub(super) fn add(&mut self, key: &Key, figure: f64) {
        let known = self.measured.iter_mut().rev().find(|measured| measured.key == *key);
        match known {
            Some(measured) => measured.blocks.push(figure),
            None => {
                let blocks = vec![figure];
                self.measured.push(Measured { key: key.clone(), blocks, line_ns: None });
            }
        }
    }

    /// Says what a bare line took before and after the points since the last call.
    pub(super) fn close(&mut self, from: usize, line_ns: Lines) {
        let line_ns = line_ns.map(|times| times.map(|time| (time * 10.0).round() / 10.0));
        self.measured[from..].iter_mut().for_each(|measured| measured.line_ns = line_ns);
    }

    /// Notes that something is missing.
    pub(super) fn lacks(&mut self, what: impl Into<String>, why: impl Into<String>) {
        self.absent.push((what.into(), why.into()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::study::transfer::results::{Measure, State};

    #[test]
    fn short_messages_are_repeated_as_often_as_in_the_paper_and_long_ones_as_long_as_a_block() {
        let (sizes, receivers) = (vec![1, LONG_BYTES], 0);
        let (experiment, block) = (Experiment::Transfers, Duration::from_millis(4));
        let (rounds, runs, cache_bytes) = (4, 3, 1 << 20);
        let plan = Plan { experiment, sizes, rounds, runs, block, cache_bytes, receivers };
        assert_eq!(plan.iterations(1), 84);
        assert_eq!(plan.iterations(LONG_BYTES), 3);
        assert!(plan.arena_bytes() > (8 << 20) + LONG_BYTES);
    }

    #[test]
    fn figures_of_a_key_stay_together_with_the_lines_around_them() {
        let key = |bytes| Key::new(Measure::Transfer, "window", bytes, State::Cold);
        let mut report = Report::default();
        report.add(&key(1), 5.0);
        report.add(&key(2), 6.0);
        report.add(&key(1), 7.0);
        report.close(0, Some([80.04, 80.0]));
        report.add(&key(3), 8.0);
        report.close(2, None);
        let found = report.measured.iter().map(|it| (it.blocks.clone(), it.line_ns));
        let line = Some([80.0, 80.0]);
        let expected = [(vec![5.0, 7.0], line), (vec![6.0], line), (vec![8.0], None)];
        assert!(found.eq(expected));
    }
}
