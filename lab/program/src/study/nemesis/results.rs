//! `results.json` of this study. docs/study.md describes its keys, which are an interface: keys keep
//! their meaning, and new keys may be added.

use corewire_harness::statistics::Spread;
use serde::{Deserialize, Serialize};

use crate::study::distances::{self, Distance, Lines};
use crate::study::results::Machine;

/// Version of the format of the file.
pub(crate) const FORMAT: u32 = 1;
/// Name of the study.
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
    /// Start time, in UTC.
    pub(crate) began: String,
    /// `quick` or `default`.
    pub(crate) effort: String,
    /// Measuring time of each point in each run, in seconds.
    pub(crate) run_s: f64,
    /// Number of runs of each point.
    pub(crate) runs: u32,
    pub(crate) machine: Machine,
    /// Whether there were fewer cores than processes.
    pub(crate) oversubscribed: bool,
    /// Size of the memory of the cold buffers, in bytes.
    pub(crate) cold_bytes: u64,
    /// In display order.
    pub(crate) wires: Vec<Wire>,
    pub(crate) points: Vec<Point>,
    /// With as many processes as two cores hold, and more.
    #[serde(default)]
    pub(crate) rings: Vec<Ring>,
    /// The counts of section 4.1.2.
    pub(crate) instructions: Vec<Instructions>,
    /// Why there are no counts; `None` if there are some.
    pub(crate) instructions_absent: Option<String>,
    /// The counts of the coherence model.
    pub(crate) polling: Vec<Polling>,
}

/// A library or protocol that carries messages.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Wire {
    /// Its name in this file and on the command line.
    pub(crate) id: String,
    /// Its name to display.
    pub(crate) name: String,
    /// Its settings, in one sentence.
    pub(crate) settings: String,
    /// Why it is not available here; `None` if it is.
    pub(crate) impossible: Option<String>,
    /// Why runs are missing.
    pub(crate) failures: Vec<String>,
}

/// Half round trips of a wire, for one size and kind of data.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Point {
    /// A [`Wire::id`].
    pub(crate) wire: String,
    pub(crate) bytes: u64,
    #[serde(flatten)]
    pub(crate) data: Data,
    pub(crate) runs: Vec<Found>,
}

/// The data of the messages of a point. Its keys are among those of the point.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Data {
    /// Whether each message used memory that was in no private cache; otherwise all used the same buffer.
    pub(crate) cold: bool,
    /// Whether each message was written before it was sent, and read after it was received.
    #[serde(default)]
    pub(crate) touched: bool,
}

impl Data {
    pub(crate) const WARM: Self = Self { cold: false, touched: false };
    pub(crate) const COLD: Self = Self { cold: true, touched: false };
    const WARM_TOUCHED: Self = Self { cold: false, touched: true };
    const COLD_TOUCHED: Self = Self { cold: true, touched: true };
    /// In the order of pages.
    pub(crate) const ALL: [Self; 4] =
        [Self::WARM, Self::COLD, Self::WARM_TOUCHED, Self::COLD_TOUCHED];

    /// Its words in file names.
    pub(crate) const fn stem(self) -> &'static str {
        match self {
            Self::WARM => "warm",
            Self::COLD => "cold",
            Self::WARM_TOUCHED => "warm-touched",
            Self::COLD_TOUCHED => "cold-touched",
        }
    }

    /// Its words in headings.
    pub(crate) const fn words(self) -> &'static str {
        match self {
            Self::WARM => "warm buffers",
            Self::COLD => "cold buffers",
            Self::WARM_TOUCHED => "warm buffers, written and read",
            Self::COLD_TOUCHED => "cold buffers, written and read",
        }
    }
}

/// What the asking process measured for a shape: half of the round-trip time.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Found {
    pub(crate) rounds: u64,
    pub(crate) p50_ns: f64,
    pub(crate) p99_ns: f64,
    pub(crate) mean_ns: f64,
    /// Time of a bare line one way, before and after the shape; `None` if both processes share a core.
    #[serde(default)]
    pub(crate) line_ns: Lines,
}

/// Rounds of a message through a ring of processes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Ring {
    /// A [`Wire::id`].
    pub(crate) wire: String,
    pub(crate) processes: usize,
    /// Time of a round in each run, in nanoseconds.
    pub(crate) round_ns: Vec<f64>,
    /// Why runs are missing.
    pub(crate) failure: Option<String>,
}

/// The cost of an operation on one side.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Instructions {
    /// Which operation.
    pub(crate) operation: String,
    /// Number of instructions, counted step by step.
    pub(crate) instructions: f64,
    /// The paper's count for Nemesis.
    pub(crate) paper: Option<u32>,
}

/// What it costs to receive with this many peers, on the coherence model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Polling {
    /// `corewire`, `nemesis` (queues alone) or `fastboxes`.
    pub(crate) ring: String,
    pub(crate) peers: u32,
    /// Whether all peers send, in turn; otherwise one peer sends.
    pub(crate) all_send: bool,
    /// Lines that the receiver fetched for each message.
    pub(crate) receiver_transfers: f64,
    /// Lines that the sender fetched for each message.
    pub(crate) sender_transfers: f64,
    /// From one message to the next, on the model's clocks.
    pub(crate) message_ns: f64,
}

impl Point {
    /// The medians of the runs, all of which must be of one distance ([`Results::at`]).
    pub(crate) fn p50_ns(&self) -> Option<Spread> {
        Spread::of(self.runs.iter().map(|run| run.p50_ns))
    }
}

impl Results {
    /// The distances of the cores, the one with the most runs first. Empty if the cores were moved during every run.
    pub(crate) fn distances(&self) -> Vec<Distance> {
        distances::of(self.points.iter().flat_map(|point| &point.runs).map(|found| found.line_ns))
    }

    /// The runs that were measured at `distance`.
    pub(crate) fn at(&self, distance: &Distance) -> Self {
        let mut here = self.clone();
        let points = here.points.iter_mut();
        points.for_each(|point| point.runs.retain(|found| distance.has(found.line_ns)));
        here
    }

    /// The runs that were measured at the distance with the most runs.
    pub(crate) fn at_most_frequent(&self) -> Self {
        self.distances().first().map_or_else(|| self.clone(), |distance| self.at(distance))
    }

    /// The point of a wire for a size and kind of data.
    pub(crate) fn point(&self, wire: &str, bytes: u64, data: Data) -> Option<&Point> {
        let is_it =
            |point: &&Point| (point.wire.as_str(), point.bytes, point.data) == (wire, bytes, data);
        self.points.iter().find(is_it)
    }

    /// The median of a wire's half round trips, in nanoseconds.
    pub(crate) fn one_way_ns(&self, wire: &str, bytes: u64, data: Data) -> Option<f64> {
        Some(self.point(wire, bytes, data)?.p50_ns()?.median)
    }

    /// The name of a wire to display.
    pub(crate) fn name_of<'a>(&'a self, wire: &'a str) -> &'a str {
        self.wires.iter().find(|it| it.id == wire).map_or(wire, |it| &it.name)
    }

    /// All sizes, in ascending order.
    pub(crate) fn sizes(&self) -> Vec<u64> {
        let mut sizes: Vec<u64> = self.points.iter().map(|point| point.bytes).collect();
        sizes.sort_unstable();
        sizes.dedup();
        sizes
    }
}
