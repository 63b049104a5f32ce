//! `results.json` of these studies. docs/study.md describes its keys, which are an interface: keys keep their meaning, and
//! new keys may be added.

use corewire_harness::statistics::Spread;
use serde::{Deserialize, Serialize};

use super::Protocol;
use crate::study::results::{Machine, Mechanism};

/// Version of the format of the file.
pub(crate) const FORMAT: u32 = 1;

/// The whole file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Results {
    /// [`FORMAT`].
    pub(crate) format: u32,
    /// `paxos` or `checkpoint`.
    pub(crate) study: Protocol,
    /// corewire's version.
    pub(crate) version: String,
    /// Start time, in UTC.
    pub(crate) began: String,
    /// `quick`, `default` or `full`.
    pub(crate) effort: String,
    /// Measured time of a run in seconds.
    pub(crate) run_s: f64,
    /// Requests of a run at least.
    pub(crate) requests: u64,
    /// Runs of each point.
    pub(crate) runs: u32,
    pub(crate) machine: Machine,
    pub(crate) mechanisms: Vec<Mechanism>,
    pub(crate) points: Vec<PointOf>,
    /// The processors of the roles, in their order, if they were given.
    #[serde(default)]
    pub(crate) placed: Option<Vec<usize>>,
    /// What the rings would cost with a core for each role.
    #[serde(default)]
    pub(crate) model: Vec<OnModel>,
}

/// A ring on the model of coherent caches, with messages of 48 bytes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct OnModel {
    /// `barrelfish_mp`, `zimp` or `corewire`.
    pub(crate) ring: String,
    /// Learners, or all nodes of the checkpointing protocol.
    pub(crate) nodes: u32,
    /// The time of a decision or snapshot, on the model's clocks.
    pub(crate) each_ns: f64,
    /// Lines that all cores together fetch for one.
    pub(crate) transfers: f64,
    pub(crate) read_modify_writes: f64,
}

/// A point: a mechanism, a size, a number of nodes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct PointOf {
    pub(crate) mechanism: String,
    /// Bytes of a request, or of a checkpoint.
    pub(crate) bytes: u64,
    /// Learners, or all nodes of the checkpointing protocol.
    pub(crate) nodes: u32,
    /// Processes that take part.
    pub(crate) processes: usize,
    /// Whether there were fewer cores than processes.
    pub(crate) oversubscribed: bool,
    /// Why it could not be measured; `None` if it was.
    pub(crate) impossible: Option<String>,
    /// Why runs failed.
    pub(crate) failures: Vec<String>,
    /// Of each run the time of one decision or snapshot in nanoseconds: the time of the run by their number.
    pub(crate) each_ns: Vec<f64>,
}

impl PointOf {
    pub(crate) fn spread(&self) -> Option<Spread> {
        Spread::of(self.each_ns.iter().copied())
    }
}

impl Results {
    /// The point of a mechanism, if it was asked for.
    pub(crate) fn point(&self, mechanism: &str, bytes: u64, nodes: u32) -> Option<&PointOf> {
        let is_it = |point: &&PointOf| {
            (&*point.mechanism, point.bytes, point.nodes) == (mechanism, bytes, nodes)
        };
        self.points.iter().find(is_it)
    }

    /// The time of `under` divided by that of `over`: how many times as much `over` does.
    pub(crate) fn factor(&self, over: &str, under: &str, bytes: u64, nodes: u32) -> Option<f64> {
        let median = |id| Some(self.point(id, bytes, nodes)?.spread()?.median);
        Some(median(under)? / median(over)?)
    }

    pub(crate) fn sizes(&self) -> Vec<u64> {
        sorted(self.points.iter().map(|point| point.bytes))
    }

    pub(crate) fn nodes(&self) -> Vec<u32> {
        sorted(self.points.iter().map(|point| point.nodes))
    }
}

fn sorted<T: Ord>(all: impl Iterator<Item = T>) -> Vec<T> {
    let mut all: Vec<T> = all.collect();
    all.sort_unstable();
    all.dedup();
    all
}
