//! `results.json`: all results of a study. docs/study.md describes its keys, which are an interface: keys keep their
//! meaning, and new keys may be added.

use std::path::Path;

use corewire_harness::statistics::Spread;
use corewire_os::file;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::distances::{self, Distance, Lines};
use super::journal::Header;
use super::output::BYTES_MAX;
use super::page::{Page, Table};
use super::runner::{Entry, Study};
use crate::study::failure::{Doing, Failure};

/// Version of the format of the file.
const FORMAT: u32 = 1;

/// The whole file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Results<B> {
    /// [`FORMAT`].
    pub(crate) format: u32,
    /// Name of the study.
    pub(crate) study: String,
    /// corewire's version.
    pub(crate) version: String,
    /// Start time in UTC, as `2026-11-22T01:02:03Z`.
    pub(crate) began: String,
    /// `quick`, `default` or `full`.
    pub(crate) effort: String,
    pub(crate) machine: Machine,
    /// The keys of this study.
    #[serde(flatten)]
    pub(crate) body: B,
}

/// What a study found, and how it is shown.
pub(crate) trait Body: Clone + Serialize + DeserializeOwned {
    /// The names that the study has in `results.json`.
    const NAMES: &[&str];
    /// Whether the file is written without spaces, because there are so many points.
    const IS_DENSE: bool = false;

    /// Calls `keep` with the times of a bare line around each run, and drops the runs for which it is false.
    fn retain(&mut self, keep: &mut dyn FnMut(Lines) -> bool);

    /// The page.
    fn page(results: &Results<Self>) -> Page;

    /// The tables that are written as files, with the stems of their names.
    fn tables(results: &Results<Self>) -> Vec<(&'static str, Table)>;

    /// What is printed in the end.
    fn summary(results: &Results<Self>) -> Vec<Table>;
}

/// The machine that the study ran on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Machine {
    /// Name of the processor, as it reports it.
    pub(crate) processor: String,
    /// Number of cores that this process may use.
    pub(crate) cores: usize,
    pub(crate) sockets: usize,
    pub(crate) caches: Vec<Cache>,
    pub(crate) memory_bytes: u64,
    pub(crate) kernel: String,
    /// The hypervisor, if the processor says that there is one.
    pub(crate) hypervisor: Option<String>,
    /// Why hardware counters cannot be read; `None` if they can.
    pub(crate) counters_absent: Option<String>,
    /// Which limits the message queues had.
    pub(crate) queue_limits: String,
}

/// One cache, of one level and kind.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Cache {
    /// 1 to 4.
    pub(crate) level: u32,
    /// `data`, `instruction` or `unified`.
    pub(crate) kind: String,
    /// Size of the cache.
    pub(crate) bytes: u64,
    /// Number of processors that share it.
    pub(crate) shared_by: usize,
}

/// A system, library or style that a study measures.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct About {
    /// Its name in this file and on the command line.
    pub(crate) id: String,
    /// Its name to display.
    pub(crate) name: String,
    /// Its settings, in one sentence.
    pub(crate) settings: String,
    /// Why it is not available here; `None` if it is.
    #[serde(default)]
    pub(crate) impossible: Option<String>,
    /// Why runs are missing.
    #[serde(default)]
    pub(crate) failures: Vec<String>,
}

impl About {
    /// One without failures so far.
    pub(crate) fn new(
        id: String,
        name: impl Into<String>,
        settings: impl Into<String>,
        impossible: Option<String>,
    ) -> Self {
        Self { id, name: name.into(), settings: settings.into(), impossible, failures: Vec::new() }
    }

    /// What is missing of each, and why.
    pub(crate) fn gaps(all: &[Self]) -> Vec<String> {
        let of = |about: &'_ Self| {
            let whys = about.impossible.iter().chain(&about.failures);
            whys.map(|why| format!("{}: {}.", about.name, why.trim_end_matches('.')))
                .collect::<Vec<_>>()
        };
        all.iter().flat_map(of).collect()
    }

    /// A table of the settings of each.
    pub(crate) fn settings(all: &[Self], head: &str) -> Table {
        let settings = |about: &&Self| format!("{}.", about.settings.trim_end_matches('.'));
        Table::of_columns(all, &[(head, &|about| about.name.clone()), ("Settings", &settings)])
            .prose()
    }
}

/// The name to display of one of `all`.
pub(crate) fn name_of<'a>(all: &'a [About], id: &'a str) -> &'a str {
    all.iter().find(|it| it.id == id).map_or(id, |it| &it.name)
}

/// The values in ascending order, each once.
pub(crate) fn sorted<T: Ord>(values: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut values: Vec<T> = values.into_iter().collect();
    values.sort_unstable();
    values.dedup();
    values
}

/// Ratios of figures that were measured together.
pub(crate) fn ratios(over: &[f64], under: &[f64]) -> Option<Spread> {
    Spread::of(over.iter().zip(under).map(|(over, under)| over / under))
}

impl<B: Body> Results<B> {
    /// The results of the runs of a study.
    pub(crate) fn of<S: Study<Body = B>>(
        header: &Header<S>,
        done: &[Entry<S>],
    ) -> Result<Self, Failure> {
        Ok(Self {
            format: FORMAT,
            study: header.name.clone(),
            version: header.version.clone(),
            began: header.began.clone(),
            effort: header.study.effort().name().to_owned(),
            machine: header.machine.clone(),
            body: header.study.body(&header.machine, done)?,
        })
    }

    /// Reads results from a file; `None` if it holds those of another study.
    pub(crate) fn read(path: &Path) -> Result<Option<Self>, Failure> {
        let text = file::read_regular_text(path, BYTES_MAX)
            .doing(format_args!("read {}", path.display()))?;
        let no_results = || format!("read {}: it holds no results of a study", path.display());
        let found: serde_json::Value = serde_json::from_str(&text).doing(no_results())?;
        let Some(study) = found["study"].as_str() else {
            return Err(Failure::other(format!(
                "cannot {}: it has no key \"study\"",
                no_results()
            )));
        };
        if !B::NAMES.contains(&study) {
            return Ok(None);
        }
        if found["format"] != FORMAT {
            let (path, other) = (path.display(), &found["format"]);
            return Err(Failure::usage(format!(
                "{path} has format {other}; this program reads {FORMAT}"
            )));
        }
        serde_json::from_value(found).doing(no_results()).map(Some)
    }

    /// The distances of the cores, the one with the most runs first. Empty if the cores were moved during every run.
    pub(crate) fn distances(&self) -> Vec<Distance> {
        let mut lines = Vec::new();
        self.body.clone().retain(&mut |line| {
            lines.push(line);
            true
        });
        distances::of(lines.into_iter())
    }

    /// The runs that were measured at `distance`.
    pub(crate) fn at(&self, distance: &Distance) -> Self {
        let mut here = self.clone();
        here.body.retain(&mut |line| distance.has(line));
        here
    }

    /// The runs that were measured at the distance with the most runs; none whose cores were moved, if all were.
    pub(crate) fn at_most_frequent(&self) -> Self {
        if let Some(distance) = self.distances().first() {
            return self.at(distance);
        }
        let mut here = self.clone();
        here.body.retain(&mut |line| line.is_none());
        here
    }
}
