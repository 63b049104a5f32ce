//! What is measured of each MPI, and at which sizes.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::study::results::sorted;
use crate::study::runner::Effort;

/// Measurements that share their processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[value(rename_all = "snake_case")]
pub(crate) enum Experiment {
    /// Latency, bandwidth and message rate
    TwoSided,
    /// Allreduce and all-to-all
    Collective,
    /// Put and get
    OneSided,
    /// More ranks than processors: a ring and an allreduce
    Crowded,
    /// Instructions of each call of libfabric
    Instructions,
}

/// An operation that is timed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Measure {
    /// Half of a message there and back.
    Latency,
    /// The same with messages that are written before they are sent, and read after they are received.
    Touched,
    /// A message among many that follow each other.
    Stream,
    /// The same each way, where all are sent before the first is received.
    Unexpected,
    Allreduce,
    AllToAll,
    /// With the flush that completes it.
    Put,
    Get,
    /// 8 bytes around all ranks.
    Ring,
}

/// An operation with so many bytes: of a message, of each rank, of a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Shape {
    pub(crate) measure: Measure,
    pub(crate) bytes: u64,
}

/// The longest message.
pub(super) const LONGEST: u64 = 4 << 20;
/// Ranks where there are more than processors, on a machine with fewer.
pub(super) const CROWD: usize = 8;

const QUICK: [u64; 8] = [0, 8, 64, 512, 4096, 64 << 10, 1 << 20, LONGEST];
/// Where not all sizes are measured by default.
const FEW: [u64; 9] = [8, 64, 512, 4096, 32 << 10, 64 << 10, 256 << 10, 1 << 20, LONGEST];
const FEW_QUICK: [u64; 5] = [8, 512, 4096, 64 << 10, 1 << 20];
/// From here on messages are also measured written and read.
const TOUCHED: u64 = 4096;
/// Other operations are measured up to here.
const GROUP_MAX: u64 = 1 << 20;
/// A value of a sum.
const VALUE: u64 = 8;

impl Measure {
    /// Its name in orders to the measuring programs, and in results.
    pub(super) const fn id(self) -> &'static str {
        match self {
            Self::Latency => "latency",
            Self::Touched => "touched",
            Self::Stream => "stream",
            Self::Unexpected => "unexpected",
            Self::Allreduce => "allreduce",
            Self::AllToAll => "all_to_all",
            Self::Put => "put",
            Self::Get => "get",
            Self::Ring => "ring",
        }
    }

    /// Its name to display.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Latency => "one way",
            Self::Touched => "one way, written and read",
            Self::Stream => "of a stream",
            Self::Unexpected => "sent before its receive",
            Self::Allreduce => "allreduce",
            Self::AllToAll => "all-to-all",
            Self::Put => "put",
            Self::Get => "get",
            Self::Ring => "ring",
        }
    }
}

impl Shape {
    /// What the programs call once, in operations: `stream` and `unexpected` count windows, and a ping-pong goes two ways.
    pub(super) const fn operations(self) -> u32 {
        match self.measure {
            Measure::Latency | Measure::Touched => 2,
            Measure::Stream | Measure::Unexpected if self.bytes <= 16 << 10 => 64,
            Measure::Stream | Measure::Unexpected if self.bytes <= 256 << 10 => 16,
            Measure::Stream | Measure::Unexpected => 4,
            _ => 1,
        }
    }
}

/// The shapes of an experiment, with the sizes that were asked for if there are any.
pub(super) fn of(experiment: Experiment, effort: Effort, asked: &[u64]) -> Vec<Shape> {
    let powers = || std::iter::once(0).chain((0..63).map(|power| 1 << power));
    let within = |all: Vec<u64>, least: u64, most: u64| -> Vec<u64> {
        let all = if asked.is_empty() { all } else { asked.to_vec() };
        sorted(all).into_iter().filter(|size| (least..=most).contains(size)).collect()
    };
    let sizes = |least, most| match effort {
        Effort::Quick => within(QUICK.to_vec(), least, most),
        _ => within(powers().collect(), least, most),
    };
    let few = |least, most| match effort {
        Effort::Quick => within(FEW_QUICK.to_vec(), least, most),
        Effort::Default => within(FEW.to_vec(), least, most),
        Effort::Full => within(powers().collect(), least, most),
    };
    let all = |measure: Measure, sizes: Vec<u64>| {
        sizes.into_iter().map(move |bytes| Shape { measure, bytes }).collect::<Vec<_>>()
    };
    match experiment {
        Experiment::TwoSided => [
            all(Measure::Latency, sizes(0, LONGEST)),
            all(Measure::Touched, sizes(TOUCHED, LONGEST)),
            all(Measure::Stream, few(1, LONGEST)),
            all(Measure::Unexpected, few(1, GROUP_MAX)),
        ]
        .concat(),
        Experiment::Collective => [
            all(Measure::Allreduce, few(VALUE, GROUP_MAX)),
            all(Measure::AllToAll, few(1, GROUP_MAX)),
        ]
        .concat(),
        // An MPI that fails at some size has done all smaller ones.
        Experiment::OneSided => few(1, GROUP_MAX)
            .into_iter()
            .flat_map(|bytes| [Measure::Put, Measure::Get].map(|measure| Shape { measure, bytes }))
            .collect(),
        Experiment::Crowded => [Measure::Ring, Measure::Allreduce]
            .map(|measure| Shape { measure, bytes: VALUE })
            .to_vec(),
        Experiment::Instructions => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_that_an_operation_cannot_have_are_left_out() {
        let asked = [0, 3, 8, 4096, LONGEST];
        let bytes = |experiment, measure| -> Vec<u64> {
            let all = of(experiment, Effort::Quick, &asked).into_iter();
            all.filter(|shape| shape.measure == measure).map(|shape| shape.bytes).collect()
        };
        assert_eq!(bytes(Experiment::TwoSided, Measure::Latency), asked);
        assert_eq!(bytes(Experiment::TwoSided, Measure::Touched), [4096, LONGEST]);
        assert_eq!(bytes(Experiment::Collective, Measure::Allreduce), [8, 4096]);
        assert_eq!(bytes(Experiment::OneSided, Measure::Put), [3, 8, 4096]);
    }

    #[test]
    fn without_wishes_a_longer_study_has_every_power_of_two() {
        let count = |effort| of(Experiment::TwoSided, effort, &[]).len();
        let counts = (count(Effort::Quick), count(Effort::Default));
        assert_eq!(counts, (8 + 4 + 5 + 5, 24 + 11 + 9 + 8));
        assert_eq!(count(Effort::Full), 24 + 11 + 23 + 21);
    }
}
