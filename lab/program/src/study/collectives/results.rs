//! `results.json` of this study. docs/study.md describes its keys, which are an interface: keys keep
//! their meaning, and new keys may be added.

use corewire_harness::statistics::{Spread, thousandths};
use serde::{Deserialize, Serialize};

use super::shape::Shape;
use crate::study::distances::{self, Distance, Lines};
use crate::study::results::Machine;

/// Version of the format of the file.
pub(crate) const FORMAT: u32 = 1;
/// Name of the study.
pub(crate) const STUDY: &str = "collectives";
/// The library with which the others are compared.
pub(crate) const OURS: &str = "corewire";

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
    /// Number of planned runs of each point.
    pub(crate) runs: u32,
    pub(crate) machine: Machine,
    /// In display order.
    pub(crate) libraries: Vec<About>,
    pub(crate) points: Vec<Point>,
    /// How many times as long another library takes as corewire, in the same run.
    pub(crate) ratios: Vec<Ratio>,
}

/// A library with collective calls.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct About {
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
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
}

impl Point {
    fn each_ns(&self) -> Option<Spread> {
        Spread::of(self.runs.iter().map(|run| run.each_ns))
    }
}

impl Results {
    /// The distances of the first two processes, the one with the most runs first. Points without a line do not count.
    fn distances(&self) -> Vec<Distance> {
        let runs = self.points.iter().flat_map(|point| &point.runs);
        distances::of(runs.map(|found| found.line_ns).filter(Option::is_some))
    }

    /// The runs that were measured at the distance with the most runs, and those with more processes than processors.
    pub(crate) fn at_most_frequent(&self) -> Self {
        let mut here = self.clone();
        if let Some(distance) = self.distances().first() {
            for point in &mut here.points {
                point.runs.retain(|found| found.line_ns.is_none() || distance.has(found.line_ns));
            }
        }
        here
    }

    /// Computes what follows from the points.
    pub(crate) fn conclude(&mut self) {
        let here = self.at_most_frequent();
        let ratio = |other: &Point| {
            let ours = here.point(OURS, other.processes, other.shape)?;
            let of = |run: &Found| {
                let own = ours.runs.iter().find(|own| own.run == run.run)?;
                Some(run.each_ns / own.each_ns)
            };
            let Spread { median, min, max } = Spread::of(other.runs.iter().filter_map(of))?;
            let [median, min, max] = [median, min, max].map(thousandths);
            let (library, processes) = (other.library.clone(), other.processes);
            Some(Ratio { library, processes, shape: other.shape, median, min, max })
        };
        let others = here.points.iter().filter(|point| point.library != OURS);
        self.ratios = others.filter_map(ratio).collect();
    }

    fn point(&self, library: &str, processes: usize, shape: Shape) -> Option<&Point> {
        let is_it = |point: &&Point| {
            (point.library.as_str(), point.processes, point.shape) == (library, processes, shape)
        };
        self.points.iter().find(is_it)
    }

    /// The time of a call of a library.
    pub(crate) fn each_ns(&self, library: &str, processes: usize, shape: Shape) -> Option<Spread> {
        self.point(library, processes, shape)?.each_ns()
    }

    /// How many times as long `library` takes as corewire.
    pub(crate) fn ratio(&self, library: &str, processes: usize, shape: Shape) -> Option<&Ratio> {
        self.ratios
            .iter()
            .find(|it| (it.library.as_str(), it.processes, it.shape) == (library, processes, shape))
    }

    /// The median of the time of a bare line one way; `None` if all processes share processors.
    pub(crate) fn line_ns(&self) -> Option<f64> {
        let runs = self.points.iter().flat_map(|point| &point.runs);
        Some(Spread::of(runs.filter_map(|found| found.line_ns).flatten())?.median)
    }

    /// The numbers of processes, and whether there are fewer processors.
    pub(crate) fn processes(&self) -> Vec<(usize, bool)> {
        let all = self.points.iter().map(|point| (point.processes, point.oversubscribed));
        distinct(all)
    }

    /// The calls, in the order of the study.
    pub(crate) fn shapes(&self) -> Vec<Shape> {
        distinct(self.points.iter().map(|point| point.shape))
    }
}

fn distinct<T: PartialEq>(all: impl Iterator<Item = T>) -> Vec<T> {
    let mut distinct = Vec::new();
    for one in all {
        if !distinct.contains(&one) {
            distinct.push(one);
        }
    }
    distinct
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::study::collectives::shape::Call;
    use crate::study::report::fixture;

    #[test]
    fn ratios_are_of_runs_with_the_same_number_at_one_distance() {
        let shape = Shape { call: Call::Barrier, bytes: 0 };
        let found = |run, each_ns, line: f64| {
            let line_ns = Some([line, line]);
            Found { run, each_ns, line_ns }
        };
        let point = |library: &str, runs| Point {
            library: library.to_owned(),
            processes: 2,
            shape,
            oversubscribed: false,
            runs,
        };
        let mut results = Results {
            format: FORMAT,
            study: STUDY.to_owned(),
            version: String::new(),
            began: String::new(),
            effort: String::new(),
            runs: 3,
            machine: fixture::machine(),
            libraries: Vec::new(),
            points: vec![
                point(OURS, vec![found(0, 100.0, 90.0), found(1, 200.0, 95.0), found(2, 9.0, 9.0)]),
                point("other", vec![found(0, 300.0, 92.0), found(1, 800.0, 91.0)]),
            ],
            ratios: Vec::new(),
        };
        results.conclude();
        let [ratio] = &results.ratios[..] else { panic!("{:?}", results.ratios) };
        assert_eq!((ratio.median, ratio.min, ratio.max), (3.5, 3.0, 4.0));
        let here = results.at_most_frequent();
        let times = here.each_ns(OURS, 2, shape).map(|it| (it.min, it.max));
        assert_eq!(times, Some((100.0, 200.0)), "the run with near cores does not count");
    }
}
