//! `results.json` of this study. docs/study.md describes its keys, which are an interface: keys keep their meaning, and new
//! keys may be added.

use corewire_harness::statistics::{Spread, median};
use serde::{Deserialize, Serialize};

use super::page;
use crate::study::distances::{self, Lines};
use crate::study::page::{Page, Table};
use crate::study::results::{About, Body, Results, sorted};

/// The keys of this study.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Transfer {
    /// Number of planned runs, and of blocks of each point in a run.
    pub(crate) runs: u32,
    pub(crate) rounds: u32,
    /// Whether there were fewer cores than the two processes of most experiments.
    pub(crate) oversubscribed: bool,
    /// Bytes of the second-level cache, and of the memory through which buffers move.
    pub(crate) cache_bytes: u64,
    pub(crate) arena_bytes: u64,
    /// The sizes of the messages.
    pub(crate) sizes: Vec<u64>,
    /// Iterations of each size, in all blocks of all runs.
    pub(crate) iterations: Vec<u64>,
    /// The mechanisms.
    pub(crate) mechanisms: Vec<About>,
    /// Why other things are missing.
    pub(crate) failures: Vec<String>,
    pub(crate) points: Vec<Point>,
    /// The claims of the paper, at the most frequent distance of the cores.
    pub(crate) claims: Vec<Claim>,
}

/// A claim.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Claim {
    /// Where the paper says it.
    pub(crate) place: String,
    /// What it says.
    pub(crate) paper: String,
    /// Its own figures, if it has any.
    pub(crate) figure: String,
    /// What was found here; `None` if it was not measured.
    pub(crate) here: Option<String>,
    /// Whether the claim holds here.
    pub(crate) holds: Option<bool>,
}

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Measure {
    /// Figure 2: a copy within a process, by routine.
    Copy,
    /// Figure 3: a message by size and number of buffers.
    Pipe,
    /// Table II and Figure 4: a message.
    Transfer,
    /// Table III.
    SetUp,
    TearDown,
    Faults,
    /// II-A: a message through buffers that are made for it.
    OnDemand,
    /// IV-B: memory of a process, made, touched and freed.
    Allocate,
    /// Figure 5: lines of the user's buffer that are not in the cache any more.
    SourceLines,
    TargetLines,
    /// The same, counted.
    SourceMisses,
    TargetMisses,
    /// IV-A: the share of a computation, or of the transfer if that is shorter, that is hidden.
    RemoteOverlap,
    LocalOverlap,
    /// A message to all receivers.
    OneToAll,
}

impl Measure {
    /// The unit of its figures.
    const fn unit(self) -> &'static str {
        match self {
            Self::SourceLines | Self::TargetLines => "lines",
            Self::SourceMisses | Self::TargetMisses => "misses",
            Self::RemoteOverlap | Self::LocalOverlap => "share",
            _ => "ns",
        }
    }

    /// Its name in tables.
    pub(crate) fn text(self) -> String {
        let value = serde_json::to_value(self).ok();
        value.and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default()
    }
}

/// The state of the data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum State {
    /// Buffers that are in no private cache, and are not touched.
    Cold,
    /// The same, written before and read after.
    Touched,
    /// The same buffers each time, not touched.
    Warm,
    /// Cold, and read by another core after the copy.
    Shared,
}

impl State {
    pub(crate) const fn text(self) -> &'static str {
        match self {
            Self::Cold => "cold",
            Self::Touched => "touched",
            Self::Warm => "warm",
            Self::Shared => "shared",
        }
    }
}

/// What a point is about.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Key {
    pub(crate) measure: Measure,
    /// A mechanism, a copy routine, or a kind of memory.
    pub(crate) way: String,
    /// Of the message, or of the memory.
    pub(crate) bytes: u64,
    pub(crate) state: State,
    /// Number of buffers or receivers; 0 if there is none.
    pub(crate) count: u64,
    /// Bytes of a buffer or a cell; 0 if there is none.
    pub(crate) part_bytes: u64,
}

impl Key {
    /// A key without parts.
    pub(crate) fn new(measure: Measure, way: impl Into<String>, bytes: u64, state: State) -> Self {
        Self { measure, way: way.into(), bytes, state, count: 0, part_bytes: 0 }
    }

    /// The same with parts.
    pub(crate) fn of_parts(self, count: u64, part_bytes: u64) -> Self {
        Self { count, part_bytes, ..self }
    }
}

/// A point.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Point {
    #[serde(flatten)]
    pub(crate) key: Key,
    pub(crate) runs: Vec<Run>,
}

/// One run of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Run {
    /// Its number.
    pub(crate) run: u32,
    /// The figure of each block: nanoseconds, lines, or a share.
    pub(crate) blocks: Vec<f64>,
    pub(crate) line_ns: Lines,
}

/// What a process found for one key.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Measured {
    pub(crate) key: Key,
    pub(crate) blocks: Vec<f64>,
    pub(crate) line_ns: Lines,
}

impl Point {
    /// The figures of all blocks.
    fn blocks(&self) -> impl Iterator<Item = f64> {
        self.runs.iter().flat_map(|run| run.blocks.iter().copied())
    }

    /// Their median, with the medians of the slowest and the fastest run.
    pub(crate) fn spread(&self) -> Option<Spread> {
        let median_of_all = Spread::of(self.blocks())?.median;
        let runs = self.runs.iter().filter(|run| !run.blocks.is_empty());
        let Spread { min, max, .. } =
            Spread::of(runs.map(|run| median(run.blocks.iter().copied())))?;
        Some(Spread { median: median_of_all, min, max })
    }
}

impl Transfer {
    pub(crate) fn point(&self, key: &Key) -> Option<&Point> {
        self.points.iter().find(|point| point.key == *key)
    }

    /// The median of a key.
    pub(crate) fn median(&self, key: &Key) -> Option<f64> {
        Some(self.point(key)?.spread()?.median)
    }

    /// How many times as much the figure of a key is as that of another one, block by block in the same runs.
    pub(crate) fn ratio(&self, over: &Key, under: &Key) -> Option<Spread> {
        let (over, under) = (self.point(over)?, self.point(under)?);
        let pairs = over.runs.iter().filter_map(|run| {
            let other = under.runs.iter().find(|other| other.run == run.run)?;
            Some(ratios_of(&run.blocks, &other.blocks))
        });
        Spread::of(pairs.flatten())
    }

    /// The points of a measure.
    pub(crate) fn of(&self, measure: Measure) -> impl Iterator<Item = &Point> {
        self.points.iter().filter(move |point| point.key.measure == measure)
    }

    /// The sizes of the points of a measure.
    pub(crate) fn sizes_of(&self, measure: Measure) -> Vec<u64> {
        sorted(self.of(measure).map(|point| point.key.bytes))
    }

    /// The runs at the most frequent distance of the cores, as the page shows them.
    pub(super) fn at_home(&self) -> Self {
        let (mut here, mut lines) = (self.clone(), Vec::new());
        here.retain(&mut |line_ns| {
            lines.push(line_ns);
            true
        });
        let home = distances::of(lines.into_iter()).first().copied();
        here.retain(&mut |line_ns| home.is_some_and(|home| home.has(line_ns)));
        here
    }
}

fn ratios_of(over: &[f64], under: &[f64]) -> Vec<f64> {
    over.iter()
        .zip(under)
        .filter(|(_, under)| **under > 0.0)
        .map(|(over, under)| over / under)
        .collect()
}

impl Body for Transfer {
    const NAMES: &[&str] = &["transfer"];
    const IS_DENSE: bool = true;

    fn retain(&mut self, keep: &mut dyn FnMut(Lines) -> bool) {
        // The points of a group have one line, which is asked about once. Without a processor for each process no line is
        // timed: such a run has no distance.
        let mut asked: Vec<(Lines, bool)> = Vec::new();
        let mut keeps = |run: &Run| match asked.iter().find(|(line_ns, _)| *line_ns == run.line_ns)
        {
            _ if run.line_ns.is_none() => true,
            Some((_, is_kept)) => *is_kept,
            None => {
                let is_kept = keep(run.line_ns);
                asked.push((run.line_ns, is_kept));
                is_kept
            }
        };
        self.points.iter_mut().for_each(|point| point.runs.retain(&mut keeps));
    }

    fn page(results: &Results<Self>) -> Page {
        page::of(results)
    }

    fn tables(results: &Results<Self>) -> Vec<(&'static str, Table)> {
        let here = results.at_most_frequent().body;
        let number = |figure: f64| format!("{figure:.3}");
        let points = here.points.iter().filter_map(|point| Some((point, point.spread()?)));
        let table = Table::of_columns(
            points,
            &[
                ("measure", &|(point, _)| point.key.measure.text()),
                ("way", &|(point, _)| point.key.way.clone()),
                ("bytes", &|(point, _)| point.key.bytes.to_string()),
                ("state", &|(point, _)| point.key.state.text().to_owned()),
                ("count", &|(point, _)| point.key.count.to_string()),
                ("part_bytes", &|(point, _)| point.key.part_bytes.to_string()),
                ("unit", &|(point, _)| point.key.measure.unit().to_owned()),
                ("blocks", &|(point, _)| point.blocks().count().to_string()),
                ("median", &|(_, spread)| number(spread.median)),
                ("min", &|(_, spread)| number(spread.min)),
                ("max", &|(_, spread)| number(spread.max)),
            ],
        );
        let claims = Table::of_columns(
            &here.claims,
            &[
                ("where", &|claim| claim.place.clone()),
                ("claim", &|claim| claim.paper.clone()),
                ("here", &|claim| claim.here.clone().unwrap_or_default()),
                ("holds", &|claim| claim.holds.map(|it| it.to_string()).unwrap_or_default()),
            ],
        );
        vec![("points", table), ("claims", claims)]
    }

    fn summary(results: &Results<Self>) -> Vec<Table> {
        page::summary(&results.at_most_frequent().body)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::study::fixture::results;

    #[test]
    fn claims_and_page_have_the_runs_of_one_distance() {
        // Many points have one line, and few points two other ones.
        let lines = [70.0, 70.0, 70.0, 70.0, 270.0, 271.0];
        let point = |(bytes, line): (u64, f64)| {
            let key = Key::new(Measure::Transfer, "window", bytes, State::Cold);
            Point { key, runs: vec![Run { run: 0, blocks: vec![5.0], line_ns: Some([line; 2]) }] }
        };
        let found = Transfer {
            runs: 1,
            rounds: 1,
            oversubscribed: false,
            cache_bytes: 1 << 20,
            arena_bytes: 12 << 20,
            sizes: vec![1],
            iterations: vec![1000],
            mechanisms: Vec::new(),
            failures: Vec::new(),
            points: (0..).zip(lines).map(point).collect(),
            claims: Vec::new(),
        };
        let here = found.at_home();
        let kept = here.points.iter().map(|point| point.runs.len());
        assert!(kept.eq([0, 0, 0, 0, 1, 1]));
        assert_eq!(results("transfer", found).at_most_frequent().body, here);
    }
}
