//! `results.json` of this study. docs/study.md describes its keys, which are an interface: keys keep their meaning, and new
//! keys may be added.

use corewire_harness::statistics::{Spread, median, thousandths};
use serde::{Deserialize, Serialize};

use super::page;
use super::slow::Shape;
use super::styles::Style;
use crate::study::distances::{self, Lines};
use crate::study::page::units::Quantity;
use crate::study::page::{Page, Table};
use crate::study::results::{About, Body, Results};

/// The keys of this study.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Active {
    /// Measuring time of each point in each run, in seconds.
    pub(crate) run_s: f64,
    /// Number of planned runs of each point.
    pub(crate) runs: u32,
    /// Whether there were fewer cores than processes.
    pub(crate) oversubscribed: bool,
    /// In display order.
    pub(crate) styles: Vec<About>,
    /// Why runs are missing.
    pub(crate) failures: Vec<String>,
    /// The points of each [`Repeat`].
    pub(crate) trips: Vec<Point>,
    pub(crate) transactions: Vec<Point>,
    pub(crate) arrivals: Vec<Point>,
    pub(crate) slow: Vec<Slow>,
    pub(crate) refusals: Vec<Refusals>,
    /// A passive transaction of 8 bytes in each run, in round trips of a bare line.
    pub(crate) passive_round_trips: Vec<f64>,
    /// How many times as fast as the passive style, at the most frequent distance of the cores.
    pub(crate) ratios: Vec<Ratio>,
}

/// What is repeated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Repeat {
    /// Figure 4: a message there and one back, each with its acknowledgement.
    Trips,
    /// Figure 5: messages of random sizes up to that of the point.
    Transactions,
    /// Transactions of one size.
    Arrivals,
}

impl Repeat {
    const ALL: [Self; 3] = [Self::Trips, Self::Transactions, Self::Arrivals];

    /// The styles that are compared.
    pub(crate) const fn styles(self) -> &'static [Style] {
        use Style::{Active, ActiveLoan, Allocated, Passive, Pooled, PrePosted, Scatter};
        match self {
            Self::Trips | Self::Transactions => &[Active, ActiveLoan, Passive, PrePosted],
            Self::Arrivals => &[Active, ActiveLoan, Pooled, Allocated, Scatter],
        }
    }

    /// The figure that is shown for a time.
    #[expect(clippy::cast_precision_loss, reason = "messages are far smaller than 2^52 bytes")]
    pub(crate) fn figure(self, bytes: usize, time_ns: f64) -> f64 {
        match self {
            Self::Trips => 2.0 * bytes as f64 / (time_ns / 1e9),
            Self::Transactions => 1e9 / time_ns,
            Self::Arrivals => time_ns,
        }
    }

    pub(crate) const fn quantity(self) -> Quantity {
        match self {
            Self::Trips => Quantity::ByteRate,
            Self::Transactions => Quantity::Rate,
            Self::Arrivals => Quantity::Nanoseconds,
        }
    }
}

/// What a point measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Case {
    pub(crate) style: Style,
    /// The size of a message, or the largest size.
    pub(crate) bytes: usize,
    /// Whether messages are written before they are sent, and read after they are received.
    pub(crate) touched: bool,
}

/// Transactions or trips of one case.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Point {
    #[serde(flatten)]
    pub(crate) case: Case,
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
    #[serde(flatten)]
    pub(crate) shape: Shape,
    /// Memory of all buffers, or the grant.
    pub(crate) memory_bytes: u64,
    pub(crate) runs: Vec<SlowFound>,
}

/// Medians of the bursts of one run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
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
    /// [`Repeat::Trips`] or [`Repeat::Transactions`].
    pub(crate) figure: Repeat,
    #[serde(flatten)]
    pub(crate) case: Case,
    /// The other style.
    pub(crate) over: Style,
    /// Of the ratios of the runs.
    #[serde(flatten)]
    pub(crate) spread: Spread,
}

impl Point {
    /// The medians of the runs.
    pub(crate) fn p50_ns(&self) -> Option<Spread> {
        Spread::of(self.runs.iter().map(|run| run.p50_ns))
    }

    /// The median of a figure of the runs.
    pub(crate) fn median(&self, figure: fn(&Found) -> f64) -> f64 {
        median(self.runs.iter().map(figure))
    }
}

impl Active {
    /// The points of a figure, in their order.
    pub(crate) fn points(&self, repeat: Repeat) -> &[Point] {
        match repeat {
            Repeat::Trips => &self.trips,
            Repeat::Transactions => &self.transactions,
            Repeat::Arrivals => &self.arrivals,
        }
    }

    /// One of the points of a figure.
    pub(crate) fn point(&self, repeat: Repeat, case: Case) -> Option<&Point> {
        self.points(repeat).iter().find(|point| point.case == case)
    }

    /// How many times as fast as the passive style a case is.
    pub(crate) fn ratio(&self, figure: Repeat, case: Case) -> Option<Spread> {
        let ratio = self.ratios.iter().find(|it| (it.figure, it.case) == (figure, case))?;
        Some(ratio.spread)
    }

    /// The same with what follows from the points.
    pub(super) fn concluded(mut self) -> Self {
        let mut here = self.clone();
        let points = Repeat::ALL.into_iter().flat_map(|repeat| self.points(repeat));
        let runs = points.flat_map(|point| &point.runs);
        if let Some(distance) = distances::of(runs.map(|run| run.line_ns)).first() {
            here.retain(&mut |line_ns| distance.has(line_ns));
        }
        let eight = Case { style: Style::Passive, bytes: 8, touched: false };
        let runs = here.point(Repeat::Arrivals, eight).into_iter().flat_map(|point| &point.runs);
        let trips = runs.filter_map(|run| {
            let [before, after] = run.line_ns?;
            Some(thousandths(run.p50_ns / (before + after)))
        });
        self.passive_round_trips = trips.collect();
        let figures = [Repeat::Trips, Repeat::Transactions];
        self.ratios = figures.map(|figure| here.ratios_of(figure)).concat();
        self
    }

    /// The ratios of all points of a figure, of runs that have both styles.
    fn ratios_of(&self, figure: Repeat) -> Vec<Ratio> {
        let over = Style::Passive;
        let of = |point: &Point| {
            let passive = self.point(figure, Case { style: over, ..point.case })?;
            let ratios = point.runs.iter().filter_map(|run| {
                let other = passive.runs.iter().find(|other| other.run == run.run)?;
                Some(other.p50_ns / run.p50_ns)
            });
            let Spread { median, min, max } = Spread::of(ratios)?;
            let [median, min, max] = [median, min, max].map(thousandths);
            Some(Ratio { figure, case: point.case, over, spread: Spread { median, min, max } })
        };
        let others = self.points(figure).iter().filter(|point| point.case.style != over);
        others.filter_map(of).collect()
    }
}

impl Body for Active {
    const NAMES: &[&str] = &["active"];
    const IS_DENSE: bool = true;

    fn retain(&mut self, keep: &mut dyn FnMut(Lines) -> bool) {
        let all = [&mut self.trips, &mut self.transactions, &mut self.arrivals];
        let points = all.into_iter().flatten();
        points.for_each(|point| point.runs.retain(|run| keep(run.line_ns)));
    }

    fn page(results: &Results<Self>) -> Page {
        page::of(results)
    }

    fn tables(results: &Results<Self>) -> Vec<(&'static str, Table)> {
        let here = results.at_most_frequent().body;
        let number = |figure: f64| format!("{figure:.1}");
        let named = ["trips", "transactions", "arrivals"].into_iter().zip(Repeat::ALL);
        let points = named.flat_map(|(name, repeat)| {
            let points = here.points(repeat).iter();
            points.filter_map(move |point| Some((name, point, point.p50_ns()?)))
        });
        let table = Table::of_columns(
            points,
            &[
                ("figure", &|(name, ..)| (*name).to_owned()),
                ("style", &|(_, point, _)| point.case.style.text()),
                ("bytes", &|(_, point, _)| point.case.bytes.to_string()),
                ("touched", &|(_, point, _)| point.case.touched.to_string()),
                ("runs", &|(_, point, _)| point.runs.len().to_string()),
                ("ns_p50", &|(.., spread)| number(spread.median)),
                ("min", &|(.., spread)| number(spread.min)),
                ("max", &|(.., spread)| number(spread.max)),
                ("in_place", &|(_, point, _)| format!("{:.3}", point.median(|it| it.in_place))),
                ("copied_bytes", &|(_, point, _)| number(point.median(|it| it.copied_bytes))),
            ],
        );
        vec![("points", table)]
    }

    fn summary(results: &Results<Self>) -> Vec<Table> {
        page::summary(&results.at_most_frequent().body)
    }
}
