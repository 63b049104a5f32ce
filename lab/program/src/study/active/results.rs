//! `results.json` of this study. docs/study.md describes its keys, which are an interface: keys keep
//! their meaning, and new keys may be added.

use corewire_harness::statistics::{Spread, thousandths};
use serde::{Deserialize, Serialize};

use crate::study::distances::{self, Distance, Lines};
use crate::study::results::Machine;

/// Version of the format of the file.
pub(crate) const FORMAT: u32 = 1;
/// Name of the study.
pub(crate) const STUDY: &str = "active";
/// The style with which the others are compared.
pub(crate) const PASSIVE: &str = "passive";

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
    /// Number of planned runs of each point.
    pub(crate) runs: u32,
    pub(crate) machine: Machine,
    /// Whether there were fewer cores than processes.
    pub(crate) oversubscribed: bool,
    /// In display order.
    pub(crate) styles: Vec<About>,
    /// Why runs are missing.
    pub(crate) failures: Vec<String>,
    /// Figure 4: a message there and one back, each with its acknowledgement.
    pub(crate) trips: Vec<Point>,
    /// Figure 5: messages of random sizes up to `bytes`.
    pub(crate) transactions: Vec<Point>,
    /// Transactions of one size.
    pub(crate) arrivals: Vec<Point>,
    pub(crate) slow: Vec<Slow>,
    pub(crate) refusals: Vec<Refusals>,
    /// A passive transaction of 8 bytes in each run, in round trips of a bare line.
    pub(crate) passive_round_trips: Vec<f64>,
    /// How many times as fast as the passive style, at the most frequent distance of the cores.
    pub(crate) ratios: Vec<Ratio>,
}

/// A style of communication.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct About {
    /// Its name in this file.
    pub(crate) id: String,
    /// Its name to display.
    pub(crate) name: String,
    /// What happens in a transaction.
    pub(crate) settings: String,
}

/// Transactions or trips of one style and size.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Point {
    /// An [`About::id`].
    pub(crate) style: String,
    /// The size of a message, or the largest size.
    pub(crate) bytes: u64,
    /// Whether messages were written before they were sent, and read after they were received.
    pub(crate) touched: bool,
    pub(crate) runs: Vec<Found>,
}

/// What was measured in one run.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Found {
    /// Number of the run.
    #[serde(default)]
    pub(crate) run: u32,
    /// Number of transactions, or of trips.
    pub(crate) count: u64,
    /// The time of one: median and mean of blocks of 2 to 256 of them.
    pub(crate) p50_ns: f64,
    pub(crate) mean_ns: f64,
    /// The share of messages that were read where their sender wrote them.
    pub(crate) in_place: f64,
    /// Bytes of a message that lay in other memory, on average.
    pub(crate) copied_bytes: f64,
    /// Time of a bare line one way, before and after; `None` if both processes share a core.
    pub(crate) line_ns: Lines,
}

/// Bursts of messages to a receiver that computes for a while after each.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Slow {
    /// `pre_posted` or `grants`.
    pub(crate) way: String,
    /// Number of posted buffers, or as many bytes granted.
    pub(crate) buffers: u64,
    /// Memory of all buffers, or the grant.
    pub(crate) memory_bytes: u64,
    pub(crate) runs: Vec<SlowFound>,
}

/// Medians of the bursts of one run.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct SlowFound {
    /// Messages of a burst, and their bytes.
    pub(crate) messages: u64,
    pub(crate) bytes: u64,
    /// What the sender could send before it waited for the first time.
    pub(crate) accepted_messages: f64,
    pub(crate) accepted_bytes: f64,
    /// How often it waited, and for how long altogether.
    pub(crate) waits: f64,
    pub(crate) blocked_ns: f64,
    /// Until it had sent the last message.
    pub(crate) sent_ns: f64,
    /// Until the receiver was done with the last message.
    pub(crate) done_ns: f64,
}

/// How long it takes until a sender knows that there is no room.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Refusals {
    /// `try_send`, `try_loan` or `send_timeout`.
    pub(crate) call: String,
    /// The time limit of `send_timeout`.
    pub(crate) limit_ns: Option<u64>,
    /// The median of each run.
    pub(crate) knows_ns: Vec<f64>,
}

/// How many times as many transactions or bytes per second as with another style.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Ratio {
    /// `trips` or `transactions`.
    pub(crate) figure: String,
    pub(crate) style: String,
    /// The other style.
    pub(crate) over: String,
    pub(crate) bytes: u64,
    pub(crate) touched: bool,
    /// Of the ratios of the runs.
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
}

impl Point {
    /// The medians of the runs.
    pub(crate) fn p50_ns(&self) -> Option<Spread> {
        Spread::of(self.runs.iter().map(|run| run.p50_ns))
    }

    /// Whether it has this style, this size, and this use of the data.
    fn is(&self, style: &str, bytes: u64, touched: bool) -> bool {
        (self.style.as_str(), self.bytes, self.touched) == (style, bytes, touched)
    }

    /// How many times as fast it is as `other`, in the runs that have both.
    fn ratio(&self, other: &Self) -> Option<Spread> {
        let of = |run: &Found| {
            let other = other.runs.iter().find(|other| other.run == run.run)?;
            Some(other.p50_ns / run.p50_ns)
        };
        Spread::of(self.runs.iter().filter_map(of))
    }
}

/// The sizes of points, in ascending order.
pub(crate) fn sizes(points: &[Point]) -> Vec<u64> {
    let mut sizes: Vec<u64> = points.iter().map(|point| point.bytes).collect();
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}

/// A point of `points`.
pub(crate) fn find<'a>(
    points: &'a [Point],
    style: &str,
    bytes: u64,
    touched: bool,
) -> Option<&'a Point> {
    points.iter().find(|point| point.is(style, bytes, touched))
}

impl Results {
    fn all_points(&self) -> impl Iterator<Item = &Point> {
        self.trips.iter().chain(&self.transactions).chain(&self.arrivals)
    }

    /// The distances of the cores, the one with the most runs first. Empty if the cores were moved during every run.
    pub(crate) fn distances(&self) -> Vec<Distance> {
        distances::of(self.all_points().flat_map(|point| &point.runs).map(|found| found.line_ns))
    }

    /// The runs that were measured at the distance with the most runs.
    pub(crate) fn at_most_frequent(&self) -> Self {
        let mut here = self.clone();
        if let Some(distance) = self.distances().first() {
            let all = [&mut here.trips, &mut here.transactions, &mut here.arrivals];
            let points = all.into_iter().flatten();
            points.for_each(|point| point.runs.retain(|found| distance.has(found.line_ns)));
        }
        here
    }

    /// Whether a point has fewer than half of the planned runs at the most frequent distance.
    pub(crate) fn lacks_runs(&self) -> bool {
        let half = self.runs.div_ceil(2) as usize;
        self.at_most_frequent().all_points().any(|point| point.runs.len() < half)
    }

    /// Computes what follows from the points.
    pub(crate) fn conclude(&mut self) {
        let here = self.at_most_frequent();
        let trip = find(&here.arrivals, PASSIVE, 8, false);
        let trips = trip.into_iter().flat_map(|point| &point.runs).filter_map(|run| {
            let [before, after] = run.line_ns?;
            Some(thousandths(run.p50_ns / (before + after)))
        });
        self.passive_round_trips = trips.collect();
        self.ratios = ratios("trips", &here.trips);
        self.ratios.extend(ratios("transactions", &here.transactions));
    }

    /// A ratio of a style to the passive one.
    pub(crate) fn ratio(
        &self,
        figure: &str,
        style: &str,
        bytes: u64,
        touched: bool,
    ) -> Option<&Ratio> {
        self.ratios.iter().find(|it| {
            (it.figure.as_str(), it.style.as_str(), it.bytes, it.touched)
                == (figure, style, bytes, touched)
        })
    }
}

fn ratios(figure: &str, points: &[Point]) -> Vec<Ratio> {
    let others = points.iter().filter(|point| point.style != PASSIVE);
    let ratio = |point: &Point| {
        let passive = find(points, PASSIVE, point.bytes, point.touched)?;
        let Spread { median, min, max } = point.ratio(passive)?;
        let [median, min, max] = [median, min, max].map(thousandths);
        let (figure, style, over) = (figure.to_owned(), point.style.clone(), PASSIVE.to_owned());
        let (bytes, touched) = (point.bytes, point.touched);
        Some(Ratio { figure, style, over, bytes, touched, median, min, max })
    };
    others.filter_map(ratio).collect()
}
