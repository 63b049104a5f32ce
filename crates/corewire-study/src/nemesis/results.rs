//! `results.json` of this study. docs/study.md describes its keys, which are an interface: a key keeps its
//! meaning, new ones may come.

use serde::{Deserialize, Serialize};

use super::peer::Found;
use crate::results::{Machine, Spread};

/// The number of this form of the file.
pub(crate) const FORMAT: u32 = 1;
/// Which study it is.
pub(crate) const STUDY: &str = "nemesis";

/// The whole file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Results {
    /// [`FORMAT`].
    pub(crate) format: u32,
    /// [`STUDY`].
    pub(crate) study: String,
    /// corewire's version.
    pub(crate) version: String,
    /// When it began, in UTC.
    pub(crate) began: String,
    /// `quick` or `default`.
    pub(crate) effort: String,
    /// How long each run measured each point, in seconds.
    pub(crate) run_s: f64,
    /// How many runs a point has.
    pub(crate) runs: u32,
    pub(crate) machine: Machine,
    /// Were there fewer cores than processes?
    pub(crate) oversubscribed: bool,
    /// The memory that cold buffers go through, in bytes.
    pub(crate) cold_bytes: u64,
    /// In the order in which they are shown.
    pub(crate) wires: Vec<Wire>,
    pub(crate) points: Vec<Point>,
    /// Section 4.1.2, counted.
    pub(crate) instructions: Vec<Instructions>,
    /// Why there are no counts, if there are none.
    pub(crate) instructions_absent: Option<String>,
    /// What the coherence model counts.
    pub(crate) polling: Vec<Polling>,
}

/// What carries messages.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Wire {
    /// Its name in this file and on the command line.
    pub(crate) id: String,
    /// Its name for people.
    pub(crate) name: String,
    /// How it was set up, in a sentence.
    pub(crate) settings: String,
    /// Why it cannot be had here, if it cannot.
    pub(crate) impossible: Option<String>,
    /// What went wrong in runs that are therefore missing.
    pub(crate) failures: Vec<String>,
}

/// Half round trips of a wire.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Point {
    /// A [`Wire::id`].
    pub(crate) wire: String,
    pub(crate) bytes: u64,
    /// Were the buffers cold?
    pub(crate) cold: bool,
    pub(crate) runs: Vec<Found>,
}

/// What an operation takes on one side.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Instructions {
    /// Which operation.
    pub(crate) operation: String,
    /// Instructions, counted step by step.
    pub(crate) instructions: f64,
    /// What the paper has for its own.
    pub(crate) paper: Option<u32>,
}

/// What it costs to receive with so many peers, by the coherence model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Polling {
    /// `corewire`, `nemesis` (queues alone) or `fastboxes`.
    pub(crate) ring: String,
    pub(crate) peers: u32,
    /// Do all of them send, in turn? Else one does.
    pub(crate) all_send: bool,
    /// Lines that the receiver fetched for each message.
    pub(crate) receiver_transfers: f64,
    /// Lines that the sender fetched for each.
    pub(crate) sender_transfers: f64,
    /// From one message to the next, on the model's clocks.
    pub(crate) message_ns: f64,
}

impl Point {
    /// The medians of the runs, all of which are to be of one place ([`Results::at`]).
    pub(crate) fn p50_ns(&self) -> Option<Spread> {
        Spread::of(self.runs.iter().map(|run| run.p50_ns))
    }
}

impl Results {
    /// The point of a wire.
    pub(crate) fn point(&self, wire: &str, bytes: u64, cold: bool) -> Option<&Point> {
        let is_it =
            |point: &&Point| (point.wire.as_str(), point.bytes, point.cold) == (wire, bytes, cold);
        self.points.iter().find(is_it)
    }

    /// The median of a wire's half round trips, in nanoseconds.
    pub(crate) fn one_way_ns(&self, wire: &str, bytes: u64, cold: bool) -> Option<f64> {
        Some(self.point(wire, bytes, cold)?.p50_ns()?.median)
    }

    /// All sizes, in their order.
    pub(crate) fn sizes(&self) -> Vec<u64> {
        let mut sizes: Vec<u64> = self.points.iter().map(|point| point.bytes).collect();
        sizes.sort_unstable();
        sizes.dedup();
        sizes
    }
}
