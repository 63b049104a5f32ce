//! `results.json` of this study. docs/study.md describes its keys, which are an interface: keys keep their meaning, and
//! new keys may be added.

use corewire_harness::statistics::{Spread, thousandths};
use serde::{Deserialize, Serialize};

use crate::study::distances::{self, Lines};
use crate::study::page::units::bytes;
use crate::study::page::{Page, Table};
use crate::study::results::{About, Body, Results};

/// The library with which the others are compared.
pub(crate) const OURS: &str = "corewire";

/// The keys of this study.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Collectives {
    /// Number of planned runs of each point.
    pub(crate) runs: u32,
    /// In display order.
    pub(crate) libraries: Vec<About>,
    pub(crate) points: Vec<Point>,
    /// How many times as long another library takes as corewire, in the same run.
    pub(crate) ratios: Vec<Ratio>,
}

/// A call of a library among so many processes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Point {
    /// An [`About::id`].
    pub(crate) library: String,
    pub(crate) processes: usize,
    #[serde(flatten)]
    pub(crate) shape: Shape,
    /// Whether there were fewer processors than processes.
    pub(crate) oversubscribed: bool,
    pub(crate) runs: Vec<Found>,
}

/// A collective call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Call {
    Barrier,
    Broadcast,
    Reduce,
    Allreduce,
    Gather,
    AllToAll,
}

impl Call {
    /// Its name to display.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Barrier => "barrier",
            Self::Broadcast => "broadcast",
            Self::Reduce => "reduce",
            Self::Allreduce => "allreduce",
            Self::Gather => "gather",
            Self::AllToAll => "all-to-all",
        }
    }
}

/// A call with so many bytes at each process; of one part, where there is one for each process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Shape {
    pub(crate) call: Call,
    pub(crate) bytes: usize,
}

/// The bytes of a call: a word, a page, and more than a cell of any library.
const BYTES: [usize; 3] = [8, 4096, 65_536];

impl Shape {
    pub(crate) const BARRIER: Self = Self { call: Call::Barrier, bytes: 0 };

    /// All that is measured, in this order.
    pub(crate) fn all() -> Vec<Self> {
        let calls = [Call::Broadcast, Call::Reduce, Call::Allreduce, Call::Gather, Call::AllToAll];
        let others = calls.iter().flat_map(|&call| BYTES.map(|bytes| Self { call, bytes }));
        std::iter::once(Self::BARRIER).chain(others).collect()
    }

    /// It in words, for the reader.
    pub(crate) fn text(self) -> String {
        match self.bytes {
            0 => self.call.name().to_owned(),
            size => format!("{} of {}", self.call.name(), bytes(size as u64)),
        }
    }
}

/// What one run measured.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Found {
    /// Number of the run.
    pub(crate) run: u32,
    /// The time of a call: the median of blocks of calls that follow each other.
    pub(crate) each_ns: f64,
    /// Time of a bare line one way between the first two processes, before and after; `None` if they share processors.
    pub(crate) line_ns: Lines,
}

/// How many times as long a call takes with another library.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Ratio {
    /// The other library.
    pub(crate) library: String,
    pub(crate) processes: usize,
    #[serde(flatten)]
    pub(crate) shape: Shape,
    /// Of the ratios of the runs.
    #[serde(flatten)]
    pub(crate) times: Spread,
}

impl Point {
    /// The time of a call in its runs, all of which must be of one distance.
    pub(crate) fn each_ns(&self) -> Option<Spread> {
        Spread::of(self.runs.iter().map(|run| run.each_ns))
    }
}

impl Collectives {
    /// The results of these points, with the ratios that follow from them.
    pub(crate) fn of(runs: u32, libraries: Vec<About>, points: Vec<Point>) -> Self {
        let mut all = Self { runs, libraries, points, ratios: Vec::new() };
        let mut here = all.clone();
        if let Some(distance) = distances::of(all.lines().map(Some)).first() {
            here.retain(&mut |line| distance.has(line));
        }
        let ratio = |other: &Point| {
            let ours = here.point(OURS, other.processes, other.shape)?;
            let of = |run: &Found| {
                let own = ours.runs.iter().find(|own| own.run == run.run)?;
                Some(run.each_ns / own.each_ns)
            };
            let Spread { median, min, max } = Spread::of(other.runs.iter().filter_map(of))?;
            let [median, min, max] = [median, min, max].map(thousandths);
            let (library, times) = (other.library.clone(), Spread { median, min, max });
            Some(Ratio { library, processes: other.processes, shape: other.shape, times })
        };
        let others = here.points.iter().filter(|point| point.library != OURS);
        all.ratios = others.filter_map(ratio).collect();
        all
    }

    /// The times of bare lines between the first two processes, where they do not share processors.
    pub(crate) fn lines(&self) -> impl Iterator<Item = [f64; 2]> {
        self.points.iter().flat_map(|point| &point.runs).filter_map(|found| found.line_ns)
    }

    fn point(&self, library: &str, processes: usize, shape: Shape) -> Option<&Point> {
        let wanted = (library, processes, shape);
        self.points.iter().find(|it| (it.library.as_str(), it.processes, it.shape) == wanted)
    }

    /// The time of a call of a library.
    pub(crate) fn each_ns(&self, library: &str, processes: usize, shape: Shape) -> Option<Spread> {
        self.point(library, processes, shape)?.each_ns()
    }

    /// How many times as long `library` takes as corewire.
    pub(crate) fn ratio(&self, library: &str, processes: usize, shape: Shape) -> Option<Spread> {
        let wanted = (library, processes, shape);
        let is_it = |it: &&Ratio| (it.library.as_str(), it.processes, it.shape) == wanted;
        Some(self.ratios.iter().find(is_it)?.times)
    }

    /// The numbers of processes, and whether there are fewer processors.
    pub(crate) fn processes(&self) -> Vec<(usize, bool)> {
        let mut all: Vec<_> =
            self.points.iter().map(|it| (it.processes, it.oversubscribed)).collect();
        all.dedup();
        all
    }
}

impl Body for Collectives {
    const NAMES: &[&str] = &["collectives"];

    fn retain(&mut self, keep: &mut dyn FnMut(Lines) -> bool) {
        // Where processes share processors, their distance does not count.
        let has_lines = self.lines().next().is_some();
        let mut keep = |line: Lines| has_lines && line.is_none() || keep(line);
        self.points.iter_mut().for_each(|point| point.runs.retain(|run| keep(run.line_ns)));
    }

    fn page(results: &Results<Self>) -> Page {
        super::page::of(results)
    }

    fn tables(results: &Results<Self>) -> Vec<(&'static str, Table)> {
        let here = results.at_most_frequent().body;
        let number = |figure: f64| format!("{figure:.1}");
        let points = here.points.iter().filter_map(|point| Some((point, point.each_ns()?)));
        let table = Table::of_columns(
            points,
            &[
                ("call", &|(point, _)| point.shape.call.name().to_owned()),
                ("bytes", &|(point, _)| point.shape.bytes.to_string()),
                ("processes", &|(point, _)| point.processes.to_string()),
                ("oversubscribed", &|(point, _)| point.oversubscribed.to_string()),
                ("library", &|(point, _)| point.library.clone()),
                ("each_ns", &|(_, each)| number(each.median)),
                ("min", &|(_, each)| number(each.min)),
                ("max", &|(_, each)| number(each.max)),
            ],
        );
        vec![("points", table)]
    }

    fn summary(results: &Results<Self>) -> Vec<Table> {
        let here = results.at_most_frequent().body;
        let rows =
            About::gaps(&here.libraries).into_iter().map(|gap| vec![gap]).collect::<Vec<_>>();
        let gaps = (!rows.is_empty()).then(|| Table { rows, ..Table::default() });
        super::page::tables(&here).into_iter().chain(gaps).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_of_runs_with_the_same_number_at_one_distance() {
        let found = |run, each_ns, line| Found { run, each_ns, line_ns: Some([line, line]) };
        let (shape, oversubscribed) = (Shape::BARRIER, false);
        let point = |library: &str, runs| Point {
            library: library.to_owned(),
            processes: 2,
            shape,
            oversubscribed,
            runs,
        };
        let all = Collectives::of(
            3,
            Vec::new(),
            vec![
                point(OURS, vec![found(0, 100.0, 90.0), found(1, 200.0, 95.0), found(2, 9.0, 9.0)]),
                point("other", vec![found(0, 300.0, 92.0), found(1, 800.0, 91.0)]),
            ],
        );
        let times = Spread { median: 3.5, min: 3.0, max: 4.0 };
        assert_eq!(all.ratio("other", 2, shape), Some(times));
        let here = crate::study::fixture::results("collectives", all).at_most_frequent().body;
        let times = here.each_ns(OURS, 2, shape).map(|it| (it.min, it.max));
        assert_eq!(times, Some((100.0, 200.0)), "the run with near cores does not count");
    }
}
