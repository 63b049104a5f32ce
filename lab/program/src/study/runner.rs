//! How a study runs: one loop for all of them.
//!
//! A [`Study`] is what was asked for. It names its runs, in groups; the runner makes those of a group in turn, every other
//! time in the opposite order, so that what is compared is measured within seconds. It times a bare line between the first
//! two processors before and after each run, writes each run to a journal ([`super::journal`]), and goes on with it when it
//! is started again. In the end it repeats runs at other distances of the cores than most ([`super::distances`]), and
//! writes results and page.

use std::fmt::Debug;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use corewire_harness::distance::Watch;
use corewire_os::{processor, random_u128};
use indicatif::{ProgressBar, ProgressStyle};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::distances::{self, Distance, Lines};
use super::journal::Journal;
use super::results::{Body, Machine, Results};
use super::{interrupt, output};
use crate::study::failure::{Doing, Failure};

/// How thoroughly to measure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Effort {
    Quick,
    Default,
    Full,
}

impl Effort {
    /// Its name in `results.json`.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Quick => "quick",
            Self::Default => "default",
            Self::Full => "full",
        }
    }
}

/// Where a study writes, and how much it measures.
#[derive(Debug, clap::Args)]
pub(crate) struct Common {
    /// Directory for the results; created if it does not exist [default: corewire-study-<STUDY>]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Fewer and shorter runs: seconds to minutes
    #[arg(long)]
    pub(crate) quick: bool,
}

impl Common {
    /// The effort of a study that has no full one.
    pub(crate) const fn effort(&self) -> Effort {
        if self.quick { Effort::Quick } else { Effort::Default }
    }
}

/// Jobs that take turns.
#[derive(Debug, Clone)]
pub(crate) struct Group<J> {
    pub(crate) jobs: Vec<J>,
    /// How often each is run.
    pub(crate) runs: u32,
}

/// A study: what was asked for. Two studies that are equal measure the same.
pub(crate) trait Study: Clone + Debug + PartialEq + Serialize + DeserializeOwned {
    /// What `results.json` has for it besides the keys of all studies.
    type Body: Body;
    /// What a run measures.
    type Job: Clone + Debug + PartialEq + Serialize + DeserializeOwned;
    /// What a run found.
    type Found: Clone + Debug + PartialEq + Serialize + DeserializeOwned;

    /// The name of the study.
    fn name(&self) -> &'static str;

    /// How thoroughly it measures.
    fn effort(&self) -> Effort;

    /// Makes the machine fit, and says which limits apply to message queues.
    fn prepare(&self) -> Result<String, Failure> {
        Ok("not used".to_owned())
    }

    /// All runs, in their order.
    fn groups(&self) -> Vec<Group<Self::Job>>;

    /// Approximate time of a run.
    fn time_of(&self, job: &Self::Job) -> Duration;

    /// What a run measures, for the user.
    fn words(&self, job: &Self::Job) -> String;

    /// The processors between which a bare line is timed before and after a run; fewer than two if none is.
    fn watched(&self, _job: &Self::Job) -> Result<Vec<usize>, Failure> {
        let mut cpus = processor::allowed().doing("ask for processors")?;
        cpus.truncate(2);
        Ok(cpus)
    }

    /// Makes a run: number `run` of this job. `scratch` is for sockets and other temporary files.
    fn run(&self, job: &Self::Job, run: u32, scratch: &Path) -> Result<Self::Found, Failure>;

    /// The times of a bare line that a run itself measured, which count instead of those around it.
    fn lines(_found: &Self::Found) -> Vec<Lines> {
        Vec::new()
    }

    /// The results of all runs so far, which were made on `machine`.
    fn body(&self, machine: &Machine, done: &[Entry<Self>]) -> Result<Self::Body, Failure>;
}

/// A run, or why it failed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(bound = "")]
pub(crate) struct Entry<S: Study> {
    pub(crate) job: S::Job,
    /// Its number among the runs of the job.
    pub(crate) run: u32,
    /// Time of a bare line one way, before and after.
    pub(crate) line_ns: Lines,
    pub(crate) found: Result<S::Found, String>,
}

impl<S: Study> Entry<S> {
    fn lines(&self) -> Vec<Lines> {
        match &self.found {
            Ok(found) => Some(S::lines(found))
                .filter(|lines| !lines.is_empty())
                .unwrap_or(vec![self.line_ns]),
            Err(_) => Vec::new(),
        }
    }
}

/// The distance of the cores that most runs had; `None` if no line was timed, or the cores were always moved.
fn home<S: Study>(done: &[Entry<S>]) -> Option<Distance> {
    let timed = done.iter().flat_map(Entry::lines).filter(Option::is_some);
    distances::of(timed).into_iter().next()
}

/// What the run found that counts of a job whose results have room for one, and the times of a line around it. It succeeded,
/// and was at the distance with the most runs, if there is such a one.
pub(crate) fn best<S: Study>(done: &[Entry<S>], job: &S::Job) -> (Lines, Result<S::Found, String>) {
    let home = home(done);
    let is_home = |entry: &Entry<S>| home.is_none_or(|home| home.has(entry.line_ns));
    let runs = done.iter().filter(|entry| entry.job == *job);
    let best = runs.max_by_key(|entry| (entry.found.is_ok(), is_home(entry)));
    let none = || (None, Err("it has not been run yet".to_owned()));
    best.map_or_else(none, |entry| (entry.line_ns, entry.found.clone()))
}

/// A directory for sockets and other temporary files, removed at the end.
#[derive(Debug)]
pub(crate) struct Scratch(pub(crate) PathBuf);

impl Scratch {
    pub(crate) fn new() -> Result<Self, Failure> {
        let name = format!("corewire-study-{:016x}", random_u128().doing("name a run")? >> 64);
        Ok(Self(std::env::temp_dir().join(name)))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Runs a study, or goes on with it, and writes its results.
pub(crate) fn run<S: Study>(study: S, common: &Common) -> Result<(), Failure> {
    let default = || PathBuf::from(format!("corewire-study-{}", study.name()));
    let out = common.out.clone().unwrap_or_else(default);
    output::make(&out)?;
    interrupt::prepare()?;
    let mut runner = Runner::start(study, &out)?;
    runner.run_all()?;
    let journal = runner.journal;
    let results = Results::of(&journal.header, &journal.entries)?;
    output::write_results(&out, &results)?;
    output::write_page(&out, &results)?;
    journal.finish()?;
    output::print(&out, &results)
}

struct Runner<S: Study> {
    study: S,
    journal: Journal<S>,
    scratch: Scratch,
    bar: ProgressBar,
}

impl<S: Study> Runner<S> {
    fn start(study: S, out: &Path) -> Result<Self, Failure> {
        let queue_limits = study.prepare()?;
        let journal = Journal::open(out, &study, queue_limits)?;
        let each = |group: &Group<S::Job>| {
            group.jobs.iter().map(|job| study.time_of(job)).sum::<Duration>() * group.runs
        };
        let time: Duration = study.groups().iter().map(each).sum();
        eprintln!("it will take about {} on {} cores", words(time), journal.header.machine.cores);
        if !journal.entries.is_empty() {
            eprintln!("{} runs of it are done", journal.entries.len());
        }
        let bar = ProgressBar::new(millis(time));
        let style = ProgressStyle::with_template("{wide_msg} {bar:24} {percent:>3} %, {eta} left");
        bar.set_style(style.doing("draw a progress bar")?);
        Ok(Self { study, journal, scratch: Scratch::new()?, bar })
    }

    fn run_all(&mut self) -> Result<(), Failure> {
        let groups = self.study.groups();
        for group in &groups {
            for run in 0..group.runs {
                self.turn(&group.jobs, run)?;
            }
        }
        let most = groups.iter().map(|group| group.runs).max().unwrap_or(0);
        for extra in 0..most {
            let Some(home) = home(&self.journal.entries) else { break };
            let open = groups.iter().filter(|group| extra < group.runs);
            let lacking: Vec<_> = open.map(|group| (group, self.lacking(group, home))).collect();
            for (group, jobs) in &lacking {
                let time: Duration = jobs.iter().map(|job| self.study.time_of(job)).sum();
                self.bar.inc_length(millis(time));
                self.turn(jobs, group.runs + extra)?;
            }
        }
        self.bar.finish_and_clear();
        Ok(())
    }

    /// The jobs of a group that are worth another run: some figures were measured at other distances than that of most, and
    /// fewer than half of the planned runs there.
    fn lacking(&self, group: &Group<S::Job>, home: Distance) -> Vec<S::Job> {
        let is_here = |line: &&Lines| line.is_none() || home.has(**line);
        let lacks = |job: &&S::Job| {
            let runs = self.journal.entries.iter().filter(|entry| entry.job == **job);
            let runs: Vec<_> = runs.map(Entry::lines).filter(|lines| !lines.is_empty()).collect();
            let figures = runs.iter().map(Vec::len).max().unwrap_or(0);
            (0..figures).any(|figure| {
                let here =
                    runs.iter().filter_map(|lines| lines.get(figure)).filter(is_here).count();
                here < runs.len() && 2 * here < group.runs as usize
            })
        };
        group.jobs.iter().filter(lacks).cloned().collect()
    }

    /// Makes those of these runs that are not done yet.
    fn turn(&mut self, jobs: &[S::Job], run: u32) -> Result<(), Failure> {
        let mut jobs: Vec<&S::Job> = jobs.iter().collect();
        if run % 2 == 1 {
            jobs.reverse();
        }
        for job in jobs {
            if !self.journal.entries.iter().any(|entry| (&entry.job, entry.run) == (job, run)) {
                self.bar.set_message(self.study.words(job));
                let watch = Watch::start(self.study.watched(job)?)?;
                let found = self.study.run(job, run, &self.scratch.0);
                // The result of an interrupted run is not valid.
                if interrupt::is_wanted() {
                    self.bar.abandon();
                    return Err(interrupt::failure());
                }
                let line_ns = watch.stop()?.line_ns;
                let found = found.map_err(|failure| failure.message);
                self.journal.add(Entry { job: job.clone(), run, line_ns, found })?;
            }
            self.bar.inc(millis(self.study.time_of(job)));
        }
        Ok(())
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// A time for display.
fn words(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0..120 => format!("{} seconds", seconds.max(1)),
        120..7200 => format!("{} minutes", seconds.div_ceil(60)),
        7200..172_800 => format!("{} hours", seconds.div_ceil(3600)),
        _ => format!("{} days", seconds.div_ceil(86_400)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::study::fixture::Nothing;

    #[test]
    fn the_run_that_counts_succeeded_and_is_at_the_distance_of_most() {
        let of = |job, run, line, is_good: bool| {
            let found = if is_good { Ok(()) } else { Err("a reason".to_owned()) };
            Entry::<Nothing> { job, run, line_ns: Some([line, line]), found }
        };
        let done = [
            of(1, 0, 280.0, true),
            of(2, 0, 70.0, true),
            of(2, 1, 280.0, true),
            of(2, 2, 280.0, false),
        ];
        assert_eq!(best(&done, &2), (Some([280.0; 2]), Ok(())));
        assert!(best(&done, &3).1.is_err());
    }

    #[test]
    fn times_are_said_in_units_that_fit() {
        let said = [0, 90, 150, 10_000, 400_000].map(|s| words(Duration::from_secs(s)));
        assert_eq!(said, ["1 seconds", "90 seconds", "3 minutes", "3 hours", "5 days"]);
    }
}
