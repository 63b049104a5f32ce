//! `corewire study collectives`: barrier, broadcast, reduce, allreduce, gather and all-to-all among the members of a group,
//! and Open MPI's own in the same run.
//!
//! | file | holds |
//! |---|---|
//! | `library` | the libraries, behind one trait |
//! | `peer` | one process of a run |
//! | `results`, `page` | the calls that are measured, `results.json`, and how it is shown |

mod library;
mod page;
mod peer;
mod results;

use std::path::Path;
use std::time::Duration;

use clap::ValueEnum;
use corewire_harness::places::Places;
use corewire_harness::setup::Setup;
use corewire_os::processor;
use serde::{Deserialize, Serialize};

use library::Id;
pub(crate) use peer::ROLE;
use peer::{Order, Report};
use results::{Collectives, Found, Point, Shape};

use super::distances::Lines;
use super::open_mpi;
use super::program::PROGRAM;
use super::results::{About, Machine, sorted};
use super::runner::{self, Common, Effort, Entry, Group};
use crate::study::failure::{Doing, Failure};

const EXAMPLES: &str = "\
Examples:
  corewire study collectives --quick --out collectives
  corewire study collectives --out collectives --processes 2,8,16

Writes DIR/report.html, a page to look at, DIR/results.json, which docs/study.md describes, and the
points as points.csv. Open MPI is measured if its library and mpirun are there. With --quick it takes
about ten seconds.";

/// Measure collective calls of a group, with Open MPI's own beside them.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    common: Common,
    /// Measure among so many processes [default: 2, 4, 8, and one for each processor]
    #[arg(long, value_name = "NUMBERS", value_delimiter = ',')]
    #[arg(value_parser = clap::value_parser!(u32).range(2..=64))]
    processes: Vec<u32>,
    /// Measure only these
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    libraries: Vec<Id>,
}

/// Time to start and to end a run.
const AROUND: Duration = Duration::from_millis(400);
/// Approximate time of one call of each kind, for each process.
const EACH: Duration = Duration::from_micros(35);
/// A run that takes longer has failed.
const TIME_MAX: Duration = Duration::from_secs(120);

/// What is measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Study {
    effort: Effort,
    runs: u32,
    /// Short calls of a block, where each process has a processor.
    calls: u32,
    libraries: Vec<Id>,
    /// The numbers of processes, in ascending order.
    processes: Vec<usize>,
    processors: usize,
}

/// A run: all calls of a library among so many processes.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Job {
    library: Id,
    processes: usize,
}

/// Runs the command.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let (runs, calls) = if args.common.quick { (3, 2000) } else { (7, 10_000) };
    let processors = processor::allowed().doing("ask for processors")?.len();
    let processes = match &args.processes[..] {
        [] => vec![2, 4, 8, processors.clamp(2, 64)],
        given => given.iter().map(|&it| it as usize).collect(),
    };
    let is_wanted = |id: &Id| args.libraries.is_empty() || args.libraries.contains(id);
    let libraries = Id::value_variants().iter().copied().filter(is_wanted).collect();
    let (effort, processes) = (args.common.effort(), sorted(processes));
    let study = Study { effort, runs, calls, libraries, processes, processors };
    runner::run(study, &args.common)
}

impl Study {
    /// Short calls of a block. Without a processor for each, a call takes as long as the processes need to take turns.
    const fn calls(&self, processes: usize) -> u32 {
        if self.is_crowded(processes) { self.calls / 10 } else { self.calls }
    }

    const fn is_crowded(&self, processes: usize) -> bool {
        processes > self.processors
    }

    /// The points of a job.
    fn points(&self, job: Job, done: &[Entry<Self>]) -> Vec<Point> {
        let own = |entry: &&Entry<Self>| entry.job == job;
        let point = |(at, shape): (usize, Shape)| {
            let found = |entry: &Entry<Self>| {
                let &(each_ns, line_ns) = entry.found.as_ref().ok()?.get(at)?;
                Some(Found { run: entry.run, each_ns, line_ns })
            };
            let Job { library, processes } = job;
            let runs = done.iter().filter(own).filter_map(found).collect();
            let (library, oversubscribed) = (library.text(), self.is_crowded(processes));
            Point { library, processes, shape, oversubscribed, runs }
        };
        Shape::all().into_iter().enumerate().map(point).collect()
    }
}

impl runner::Study for Study {
    type Body = Collectives;
    type Job = Job;
    /// The time of each call, in the order of [`Shape::all`], and a bare line before and after it.
    type Found = Vec<(f64, Lines)>;

    fn name(&self) -> &'static str {
        "collectives"
    }

    fn effort(&self) -> Effort {
        self.effort
    }

    fn groups(&self) -> Vec<Group<Job>> {
        let there = self.libraries.iter().copied().filter(|id| id.about().impossible.is_none());
        let there: Vec<Id> = there.collect();
        let jobs = self
            .processes
            .iter()
            .flat_map(|&processes| there.iter().map(move |&library| Job { library, processes }));
        vec![Group { jobs: jobs.collect(), runs: self.runs }]
    }

    fn time_of(&self, &Job { processes, .. }: &Job) -> Duration {
        AROUND + EACH * self.calls(processes) * u32::try_from(processes).unwrap_or(u32::MAX)
    }

    fn words(&self, job: &Job) -> String {
        format!("{} among {} processes", job.library.name(), job.processes)
    }

    // The processes time lines between their calls.
    fn watched(&self, _: &Job) -> Result<Vec<usize>, Failure> {
        Ok(Vec::new())
    }

    fn run(&self, job: &Job, _: u32, scratch: &Path) -> Result<Self::Found, Failure> {
        let Job { library, processes } = *job;
        let setup = Setup::new(PROGRAM, processes).places(Places::Apart);
        let mut crew = setup.time(TIME_MAX).scratch(scratch).crew()?;
        let order = Order { library, processes, calls: self.calls(processes) };
        match library {
            Id::Corewire => (0..processes).try_for_each(|_| crew.add_worker(&ROLE, &order))?,
            Id::OpenMpi => {
                let commands = (0..processes).map(|index| crew.command_of(index, &ROLE, &order));
                let commands = commands.collect::<Result<Vec<_>, _>>()?;
                crew.add(&mut open_mpi::launcher(&commands, self.is_crowded(processes)))?;
            }
        }
        let found = crew.first_report::<Report>()?.found;
        match found.len() == Shape::all().len() {
            true => Ok(found),
            false => Err(Failure::other("a report is not whole")),
        }
    }

    fn lines(found: &Self::Found) -> Vec<Lines> {
        found.iter().map(|(_, line_ns)| *line_ns).collect()
    }

    fn body(&self, _: &Machine, done: &[Entry<Self>]) -> Result<Collectives, Failure> {
        let about = |&id: &Id| {
            let failure = |entry: &Entry<Self>| {
                let why = entry.found.as_ref().err()?;
                Some(format!("among {} processes: {why}", entry.job.processes))
            };
            let own = done.iter().filter(|entry| entry.job.library == id);
            About { failures: own.filter_map(failure).collect(), ..id.about() }
        };
        let of = |&processes: &usize| {
            let jobs = self.libraries.iter().map(move |&library| Job { library, processes });
            jobs.flat_map(|job| self.points(job, done))
        };
        let libraries = self.libraries.iter().map(about).collect();
        Ok(Collectives::of(self.runs, libraries, self.processes.iter().flat_map(of).collect()))
    }
}
