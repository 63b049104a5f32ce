//! `results.json` of this study. docs/study.md describes its keys, which are an interface: keys keep
//! their meaning, and new keys may be added.

use corewire_harness::statistics::{Spread, median};
use serde::{Deserialize, Serialize};

use crate::study::distances::Lines;
use crate::study::page::units::nanoseconds;
use crate::study::page::{Page, Table};
use crate::study::results::{About, Body, Results, name_of, sorted};

/// The keys of this study.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Nemesis {
    /// Measuring time of each point in each run, in seconds.
    pub(crate) run_s: f64,
    /// Number of runs of each point.
    pub(crate) runs: u32,
    /// Whether there were fewer cores than processes.
    pub(crate) oversubscribed: bool,
    /// Size of the memory of the cold buffers, in bytes.
    pub(crate) cold_bytes: u64,
    /// The libraries and protocols, in display order.
    pub(crate) wires: Vec<About>,
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

/// Half round trips of a wire, for one size and kind of data.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Point {
    /// An [`About::id`].
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
    /// An [`About::id`].
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
    /// The medians of the runs, all of which must be of one distance.
    pub(crate) fn p50_ns(&self) -> Option<Spread> {
        Spread::of(self.runs.iter().map(|run| run.p50_ns))
    }
}

impl Nemesis {
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

    /// All sizes, in ascending order.
    pub(crate) fn sizes(&self) -> Vec<u64> {
        sorted(self.points.iter().map(|point| point.bytes))
    }

    /// The time of a round in each ring.
    pub(crate) fn rings(&self) -> Table {
        let time = |ring: &&Ring| match (Spread::of(ring.round_ns.iter().copied()), &ring.failure) {
            (Some(Spread { median, min, max }), _) => {
                let [median, min, max] = [median, min, max].map(nanoseconds);
                format!("{median} ({min} to {max})")
            }
            (None, why) => why.clone().unwrap_or_else(|| "not measured".to_owned()),
        };
        Table::of_columns(
            &self.rings,
            &[
                ("Wire", &|ring| name_of(&self.wires, &ring.wire).to_owned()),
                ("Processes", &|ring| ring.processes.to_string()),
                ("A round", &time),
            ],
        )
    }
}

impl Body for Nemesis {
    const NAMES: &[&str] = &["nemesis"];

    fn retain(&mut self, keep: &mut dyn FnMut(Lines) -> bool) {
        self.points.iter_mut().for_each(|point| point.runs.retain(|run| keep(run.line_ns)));
    }

    fn page(results: &Results<Self>) -> Page {
        super::page::of(results)
    }

    fn tables(results: &Results<Self>) -> Vec<(&'static str, Table)> {
        let number = |figure: f64| format!("{figure:.1}");
        let distances =
            results.distances().into_iter().map(|distance| (distance, results.at(&distance).body));
        let distances: Vec<_> = distances.collect();
        let points = distances.iter().flat_map(|(distance, here)| {
            here.points.iter().filter_map(move |point| Some((distance, point, point.p50_ns()?)))
        });
        let table = Table::of_columns(
            points,
            &[
                ("line_ns", &|(distance, ..)| {
                    distance
                        .line_ns
                        .map_or(String::new(), |(least, most)| number(f64::midpoint(least, most)))
                }),
                ("wire", &|(_, point, _)| point.wire.clone()),
                ("bytes", &|(_, point, _)| point.bytes.to_string()),
                ("cold", &|(_, point, _)| point.data.cold.to_string()),
                ("touched", &|(_, point, _)| point.data.touched.to_string()),
                ("runs", &|(_, point, _)| point.runs.len().to_string()),
                ("one_way_ns_p50", &|(.., spread)| number(spread.median)),
                ("min", &|(.., spread)| number(spread.min)),
                ("max", &|(.., spread)| number(spread.max)),
                ("one_way_ns_p99", &|(_, point, _)| {
                    number(median(point.runs.iter().map(|run| run.p99_ns)))
                }),
            ],
        );
        vec![("points", table)]
    }

    fn summary(results: &Results<Self>) -> Vec<Table> {
        let here = &results.at_most_frequent();
        let rings = here.body.rings().captioned("a message of 8 bytes around a ring of processes");
        let mut gaps = About::gaps(&here.body.wires);
        gaps.extend(
            here.body.instructions_absent.iter().map(|why| format!("Instructions: {why}.")),
        );
        let gaps = Table::of_columns(gaps, &[("not measured", &|gap: &String| gap.clone())]);
        vec![super::page::numbers(here, Data::WARM), rings, gaps]
    }
}
