//! `results.json` of this study. docs/study.md describes its keys, which are an interface: keys keep their meaning, and
//! new keys may be added.

use corewire_harness::statistics::{Spread, thousandths};
use serde::{Deserialize, Serialize};

use super::counts::Instructions;
use super::page;
use super::shapes::{Measure, Shape};
use super::turns::Block;
use super::ways::Way;
use crate::study::distances::{self, Lines};
use crate::study::page::{Page, Table};
use crate::study::results::{About, Body, Results};

/// The keys of this study.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Measurements {
    /// Number of runs, each of which starts all processes again.
    pub(crate) runs: u32,
    /// Number of rounds of alternating blocks in a run.
    pub(crate) rounds: u32,
    /// Planned duration of a block, in seconds.
    pub(crate) block_s: f64,
    /// In display order: each MPI, and libfabric without one.
    pub(crate) mpis: Vec<About>,
    /// What carries their messages.
    pub(crate) systems: Vec<System>,
    pub(crate) points: Vec<Point>,
    /// corewire's times divided by those of the others.
    pub(crate) ratios: Vec<Ratio>,
    pub(crate) instructions: Vec<Instructions>,
    /// Why counts are missing.
    pub(crate) instructions_absent: Vec<String>,
}

/// An MPI over something that carries its messages.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct System {
    /// An [`About::id`] of `mpis`.
    pub(crate) mpi: String,
    pub(crate) way: Way,
    #[serde(flatten)]
    pub(crate) about: About,
}

/// An operation of an MPI over a way.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Point {
    pub(crate) mpi: String,
    pub(crate) way: Way,
    #[serde(flatten)]
    pub(crate) shape: Shape,
    pub(crate) ranks: usize,
    /// Whether there were fewer processors than ranks.
    pub(crate) oversubscribed: bool,
    pub(crate) blocks: Vec<Block>,
}

/// corewire's time divided by that of another way of the same MPI, in the same round.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Ratio {
    pub(crate) mpi: String,
    /// The other way.
    pub(crate) over: Way,
    #[serde(flatten)]
    pub(crate) shape: Shape,
    pub(crate) ranks: usize,
    #[serde(flatten)]
    pub(crate) times: Spread,
}

/// A row of figures: an operation of an MPI among so many ranks.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Row<'a> {
    pub(crate) mpi: &'a str,
    pub(crate) shape: Shape,
    pub(crate) ranks: usize,
    pub(crate) oversubscribed: bool,
}

impl Point {
    /// The times of its blocks, all of which must be of one distance.
    pub(crate) fn each_ns(&self) -> Option<Spread> {
        Spread::of(self.blocks.iter().map(|block| block.each_ns))
    }

    fn row(&self) -> Row<'_> {
        let Self { mpi, shape, ranks, oversubscribed, .. } = self;
        Row { mpi, shape: *shape, ranks: *ranks, oversubscribed: *oversubscribed }
    }

    /// Its times divided by those of the same rounds of `other`.
    fn to(&self, other: &Self) -> Option<Spread> {
        let of = |block: &Block| {
            let same = |it: &&Block| (it.run, it.round) == (block.run, block.round);
            Some(block.each_ns / other.blocks.iter().find(same)?.each_ns)
        };
        let Spread { median, min, max } = Spread::of(self.blocks.iter().filter_map(of))?;
        let [median, min, max] = [median, min, max].map(thousandths);
        Some(Spread { median, min, max })
    }
}

impl Measurements {
    /// The same with the ratios that follow from the points at the most frequent distance.
    pub(crate) fn with_ratios(mut self) -> Self {
        let mut here = self.clone();
        let lines = here.points.iter().filter(|point| !point.oversubscribed);
        let lines = lines.flat_map(|point| &point.blocks).map(|block| block.line_ns);
        if let Some(distance) = distances::of(lines).first() {
            here.retain(&mut |line| distance.has(line));
        }
        self.ratios = here.all_ratios();
        self
    }

    /// The ratios of these points.
    pub(crate) fn all_ratios(&self) -> Vec<Ratio> {
        let own = self.points.iter().filter(|point| point.way == Way::Corewire);
        let beside = |own: &Point| {
            let others = self.points.iter().filter(|it| it.way != own.way && it.row() == own.row());
            let ratio = |other: &Point| {
                Some(Ratio {
                    mpi: own.mpi.clone(),
                    over: other.way,
                    shape: own.shape,
                    ranks: own.ranks,
                    times: own.to(other)?,
                })
            };
            others.filter_map(ratio).collect::<Vec<_>>()
        };
        own.flat_map(beside).collect()
    }

    /// What was measured over any way, each once.
    pub(crate) fn rows(&self) -> Vec<Row<'_>> {
        let mut rows: Vec<Row<'_>> = Vec::new();
        for row in self.points.iter().filter(|it| !it.blocks.is_empty()).map(Point::row) {
            if !rows.contains(&row) {
                rows.push(row);
            }
        }
        rows
    }

    /// The time of an operation over a way.
    pub(crate) fn each_ns(&self, row: Row<'_>, way: Way) -> Option<Spread> {
        self.points.iter().find(|point| point.way == way && point.row() == row)?.each_ns()
    }

    /// corewire's time divided by that over another way.
    pub(crate) fn ratio(&self, row: Row<'_>, over: Way) -> Option<Spread> {
        let is_it = |it: &&Ratio| {
            (&it.mpi[..], it.over, it.shape, it.ranks) == (row.mpi, over, row.shape, row.ranks)
        };
        Some(self.ratios.iter().find(is_it)?.times)
    }

    /// The rival that is fastest beside corewire, and corewire's time divided by its.
    pub(crate) fn best_rival(&self, row: Row<'_>) -> Option<(Way, f64)> {
        let rivals = Way::ALL.into_iter().filter(|way| way.is_rival());
        let ratios = rivals.filter_map(|way| Some((way, self.ratio(row, way)?.median)));
        ratios.max_by(|one, other| one.1.total_cmp(&other.1))
    }

    /// The row of an operation between two ranks.
    pub(crate) fn row_of(&self, mpi: &str, measure: Measure, bytes: u64) -> Option<Row<'_>> {
        let shape = Shape { measure, bytes };
        self.rows().into_iter().find(|row| row.mpi == mpi && row.shape == shape && row.ranks == 2)
    }
}

impl Body for Measurements {
    const NAMES: &[&str] = &["mpi"];
    const IS_DENSE: bool = true;

    fn retain(&mut self, keep: &mut dyn FnMut(Lines) -> bool) {
        // Ranks that share processors are at no distance.
        let apart = self.points.iter_mut().filter(|point| !point.oversubscribed);
        apart.for_each(|point| point.blocks.retain(|block| keep(block.line_ns)));
    }

    fn page(results: &Results<Self>) -> Page {
        page::of(results)
    }

    fn tables(results: &Results<Self>) -> Vec<(&'static str, Table)> {
        let number = |figure: f64| format!("{figure:.1}");
        let distances = results.distances();
        let all: Vec<_> = distances.iter().map(|it| (it.line_ns, results.at(it).body)).collect();
        let points = all.iter().enumerate().flat_map(|(at, (line_ns, here))| {
            // Where ranks share processors there is one distance.
            let own = here.points.iter().filter(move |point| at == 0 || !point.oversubscribed);
            own.filter_map(move |point| Some((*line_ns, point, point.each_ns()?)))
        });
        let table = Table::of_columns(
            points,
            &[
                ("line_ns", &|(line_ns, point, _)| {
                    let line_ns = line_ns.filter(|_| !point.oversubscribed);
                    line_ns
                        .map_or(String::new(), |(least, most)| number(f64::midpoint(least, most)))
                }),
                ("mpi", &|(_, point, _)| point.mpi.clone()),
                ("way", &|(_, point, _)| point.way.text()),
                ("measure", &|(_, point, _)| point.shape.measure.id().to_owned()),
                ("bytes", &|(_, point, _)| point.shape.bytes.to_string()),
                ("ranks", &|(_, point, _)| point.ranks.to_string()),
                ("oversubscribed", &|(_, point, _)| point.oversubscribed.to_string()),
                ("blocks", &|(_, point, _)| point.blocks.len().to_string()),
                ("each_ns", &|(.., each)| number(each.median)),
                ("min", &|(.., each)| number(each.min)),
                ("max", &|(.., each)| number(each.max)),
            ],
        );
        vec![("points", table), ("instructions", page::counts(&results.body))]
    }

    fn summary(results: &Results<Self>) -> Vec<Table> {
        let here = &results.at_most_frequent().body;
        let list = |head, rows: Vec<String>| {
            Table::of_columns(rows, &[(head, &|row: &String| row.clone())])
        };
        let mut tables = page::eight_bytes(here);
        tables.push(page::counts(here));
        tables.push(list("falls short", page::shortfalls(here)));
        tables.push(list("not measured", page::absent(here)));
        tables
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::study::fixture;

    const EIGHT: Shape = Shape { measure: Measure::Latency, bytes: 8 };

    fn block(round: u32, each_ns: f64, line: f64) -> Block {
        Block { run: 0, round, each_ns, line_ns: Some([line, line]) }
    }

    fn point(way: Way, blocks: Vec<Block>) -> Point {
        let (mpi, shape) = ("mpich5".to_owned(), EIGHT);
        Point { mpi, way, shape, ranks: 2, oversubscribed: false, blocks }
    }

    fn some() -> Measurements {
        let about = |id: &str, name: &str| {
            About::new(id.to_owned(), name.to_owned(), "as it is".to_owned(), None)
        };
        let ways = [Way::Corewire, Way::Floor, Way::Own, Way::Ucx];
        let system = |way: Way| System {
            mpi: "mpich5".to_owned(),
            way,
            about: about(&format!("mpich5.{}", way.text()), way.name()),
        };
        let of = |way, factor: f64| {
            let blocks = (0..4).map(|round| {
                // The last round is at another distance.
                let line = if round == 3 { 30.0 } else { 100.0 };
                block(round, f64::from(round + 1) * 100.0 * factor, line)
            });
            point(way, blocks.collect())
        };
        let points = vec![of(Way::Corewire, 1.5), of(Way::Floor, 1.0), of(Way::Own, 3.0)];
        Measurements {
            runs: 1,
            rounds: 4,
            block_s: 0.01,
            mpis: vec![about("mpich5", "MPICH 5.0.2")],
            systems: ways.map(system).to_vec(),
            points,
            ratios: Vec::new(),
            instructions: Vec::new(),
            instructions_absent: vec!["floor: ptrace is refused".to_owned()],
        }
        .with_ratios()
    }

    #[test]
    fn ratios_are_of_the_same_rounds_at_one_distance() {
        let all = some();
        let row = all.row_of("mpich5", Measure::Latency, 8).unwrap();
        let of = |way| all.ratio(row, way).map(|it| (it.min, it.median, it.max));
        assert_eq!(of(Way::Floor), Some((1.5, 1.5, 1.5)));
        assert_eq!((of(Way::Own), of(Way::Ucx)), (Some((0.5, 0.5, 0.5)), None));
        assert_eq!(all.best_rival(row), Some((Way::Own, 0.5)));
        let here = fixture::results("mpi", all).at_most_frequent().body;
        let row = here.row_of("mpich5", Measure::Latency, 8).unwrap();
        assert_eq!(here.each_ns(row, Way::Floor).map(|it| it.max), Some(300.0));
    }

    #[test]
    fn the_page_says_where_corewire_falls_short_and_what_is_missing() {
        let html = Measurements::page(&fixture::results("mpi", some())).html();
        assert!(html.contains("MPICH 5.0.2"), "{html}");
        assert!(html.contains("1.5 times the floor"), "{html}");
        assert!(html.contains("ptrace is refused"), "{html}");
    }
}
