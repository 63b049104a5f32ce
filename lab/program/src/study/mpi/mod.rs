//! `corewire study mpi`: unmodified MPI programs over corewire's provider for libfabric, beside each MPI's own shared
//! memory, UCX, libfabric's shm provider, and a floor: the thinnest provider that carries what an MPI sends.
//!
//! | measured | of |
//! |---|---|
//! | latency and bandwidth by size (Nemesis' Figures 4 and 5), messages that follow each other | each MPI, and libfabric called directly |
//! | allreduce, all-to-all, put, get | each MPI |
//! | a ring and an allreduce of more ranks than processors | each MPI |
//! | the instructions of each call of libfabric (Nemesis' section 4.1.2) | corewire's provider, the floor |
//!
//! The measuring programs are in `programs`, in C, and compiled with each MPI's compiler when the study runs. The
//! processes of all ways of an MPI run at the same time and take turns: a block of one, then a block of the next; those
//! that have no turn sleep.

mod counts;
mod mpis;
mod page;
mod programs;
pub(crate) mod results;
mod session;
mod shapes;
mod turns;
mod ways;

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::ValueEnum;
use corewire_harness::statistics::Spread;
use corewire_os::processor;
use serde::{Deserialize, Serialize};

use counts::Instructions;
use mpis::{Id, Installed};
use programs::Programs;
use results::{Measurements, Point, System};
use session::{Plan, Session};
use shapes::{CROWD, Experiment, Shape};
use turns::{Found, Pace};
use ways::Way;

use super::distances::Lines;
use super::results::{About, Machine, sorted};
use super::runner::{self, Common, Effort, Entry, Group, Scratch};
use crate::study::failure::{Doing, Failure};

const EXAMPLES: &str = "\
Examples:
  corewire study mpi --quick --out mpi
  corewire study mpi --out mpi --mpis mpich5,direct --experiments two_sided --sizes 0,8,4096
  corewire study mpi --out mpi --mpi-dirs ~/mpich-5.0.2,/opt/openmpi

Writes DIR/report.html, a page to look at, DIR/results.json, which docs/study.md describes, and the
figures as points.csv and instructions.csv. MPIs are looked for in target/mpi, in --mpi-dirs and on
the path; one that is not there is named and left out. With --quick it takes a few minutes.";

/// Measure MPI programs over corewire, beside their MPI's own shared memory, UCX, libfabric's and a floor.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    common: Common,
    /// More runs of more rounds, and every power of two; takes two hours
    #[arg(long, conflicts_with = "quick")]
    full: bool,
    /// Measure only these MPIs
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    mpis: Vec<Id>,
    /// Measure only over these
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    ways: Vec<Way>,
    /// Do only these
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    experiments: Vec<Experiment>,
    /// Measure only messages of these lengths
    #[arg(long, value_name = "BYTES", value_delimiter = ',')]
    #[arg(value_parser = clap::value_parser!(u64).range(0..=shapes::LONGEST))]
    sizes: Vec<u64>,
    /// Directories of MPIs, each with bin/mpiexec and bin/mpicc
    #[arg(long, value_name = "DIRS", value_delimiter = ',')]
    mpi_dirs: Vec<PathBuf>,
    /// corewire's provider [default: the one that was built with this program]
    #[arg(long, value_name = "FILE")]
    provider: Option<PathBuf>,
}

/// Runs, rounds, block and batches of counted calls.
const QUICK: (u32, u32, Duration, u32) = (1, 11, Duration::from_millis(4), 20);
const DEFAULT: (u32, u32, Duration, u32) = (2, 11, Duration::from_millis(10), 60);
const FULL: (u32, u32, Duration, u32) = (5, 21, Duration::from_millis(10), 60);
/// Time of a block where ranks share processors: some take 50 ms for one operation.
const BLOCK_CROWDED: Duration = Duration::from_millis(60);
/// Time around a block: two lines, and a check.
const AROUND_BLOCK: Duration = Duration::from_millis(3);
/// Time to start and to end the ranks of a way.
const AROUND: Duration = Duration::from_millis(1500);
/// Time of a batch of counted calls, and to start counting.
const BATCH_TIME: Duration = Duration::from_millis(150);
/// Why nothing is measured over corewire.
const NO_PROVIDER: &str = "no libcorewire_fabric.so beside this program (cargo build -p corewire-fabric), and no \
                           --provider";
/// Ranks of a pair.
const PAIR: usize = 2;

/// What is measured, and what of it is here.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Study {
    effort: Effort,
    mpis: Vec<Id>,
    experiments: Vec<Experiment>,
    sizes: Vec<u64>,
    installed: Vec<Installed>,
    provider: Option<PathBuf>,
    systems: Vec<Planned>,
    processors: usize,
}

/// An MPI over a way, if that is possible here.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Planned {
    mpi: Id,
    way: Way,
    impossible: Option<String>,
}

/// A run: all ways of an MPI, which take turns; or calls over a way.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Job {
    Turns(Id, Experiment),
    Instructions(Way),
}

/// What a run found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Finding {
    Turns(Found),
    Instructions(Vec<Instructions>),
}

/// Runs the command.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    runner::run(Study::new(args)?, &args.common)
}

/// All of `asked`, or everything if nothing was asked for.
fn chosen<T: ValueEnum + Copy>(asked: &[T]) -> Vec<T> {
    if asked.is_empty() { T::value_variants().to_vec() } else { asked.to_vec() }
}

impl Study {
    fn new(args: &Args) -> Result<Self, Failure> {
        for directory in &args.mpi_dirs {
            if !directory.join("bin/mpiexec").is_file() {
                let directory = directory.display();
                return Err(Failure::usage(format!("{directory} holds no bin/mpiexec of an MPI")));
            }
        }
        let provider = match &args.provider {
            Some(file) if !file.is_file() => {
                return Err(Failure::usage(format!("there is no provider {}", file.display())));
            }
            given => given.clone().or_else(own_provider),
        };
        let effort = if args.full { Effort::Full } else { args.common.effort() };
        let processors = processor::allowed().doing("ask for processors")?.len();
        let mut study = Self {
            effort,
            mpis: chosen(&args.mpis),
            experiments: chosen(&args.experiments),
            sizes: args.sizes.clone(),
            installed: mpis::find(&args.mpi_dirs),
            provider,
            systems: Vec::new(),
            processors,
        };
        let scratch = Scratch::new()?;
        let no_headers = programs::absence(&scratch.0);
        let ways = chosen(&args.ways);
        let systems = study.mpis.iter().flat_map(|&mpi| {
            let ways = Way::of(mpi).iter().filter(|way| ways.contains(way));
            ways.map(move |&way| (mpi, way))
        });
        let systems = systems.map(|(mpi, way)| {
            let impossible = study.impossible(mpi, way, no_headers.as_ref());
            Planned { mpi, way, impossible }
        });
        study.systems = systems.collect();
        Ok(study)
    }

    /// Why this is not possible here; `None` if it is.
    fn impossible(&self, mpi: Id, way: Way, no_headers: Option<&String>) -> Option<String> {
        if self.processors < PAIR {
            return Some("there is only one processor".to_owned());
        }
        let installed = self.installed(mpi);
        if mpi != Id::Direct && installed.is_none() {
            return Some(mpi.absence());
        }
        if way == Way::Corewire && self.provider.is_none() {
            return Some(NO_PROVIDER.to_owned());
        }
        if let Some(why) = no_headers.filter(|_| mpi == Id::Direct || way == Way::Floor) {
            return Some(why.clone());
        }
        way.lack(installed?)
    }

    fn installed(&self, id: Id) -> Option<&Installed> {
        self.installed.iter().find(|it| it.id == id)
    }

    /// What can be measured of an MPI.
    fn possible(&self, id: Id) -> impl Iterator<Item = Way> {
        let own = self.systems.iter().filter(move |it| it.mpi == id && it.impossible.is_none());
        own.map(|it| it.way)
    }

    /// What takes part in an experiment.
    fn ways(&self, id: Id, experiment: Experiment) -> impl Iterator<Item = Way> {
        self.possible(id)
            .filter(move |way| way.takes_part(experiment) && way.gap(id, experiment).is_none())
    }

    const fn pace(&self) -> (u32, u32, Duration, u32) {
        match self.effort {
            Effort::Quick => QUICK,
            Effort::Default => DEFAULT,
            Effort::Full => FULL,
        }
    }

    /// Ranks of an experiment: where they are to be more than the processors, at least eight.
    fn ranks(&self, experiment: Experiment) -> usize {
        if experiment == Experiment::Crowded { CROWD.max(2 * self.processors) } else { PAIR }
    }

    fn shapes(&self, experiment: Experiment) -> Vec<Shape> {
        shapes::of(experiment, self.effort, &self.sizes)
    }

    fn block(&self, experiment: Experiment) -> Duration {
        if experiment == Experiment::Crowded { BLOCK_CROWDED } else { self.pace().2 }
    }

    /// All ways of an MPI, in turns.
    fn turns(
        &self,
        id: Id,
        experiment: Experiment,
        run: u32,
        scratch: &Path,
    ) -> Result<Found, Failure> {
        let programs = Programs::new(scratch)?;
        let is_crowded = experiment == Experiment::Crowded;
        let ranks = self.ranks(experiment);
        let mut cpus = processor::allowed().doing("ask for processors")?;
        cpus.truncate(if is_crowded { 0 } else { PAIR });
        let start = |way: Way| {
            let provider = programs.provider(way, self.provider.as_deref())?;
            let name = format!("{}-{}", id.text(), way.text());
            let directory = scratch.join(name);
            let provider_name = way.text();
            let (command, arguments) = match self.installed(id) {
                Some(mpi) => {
                    let mut command = ways::launch(mpi, way, ranks, &provider, is_crowded);
                    command.arg(programs.measure(mpi)?);
                    (command, &[][..])
                }
                None => {
                    let mut command = std::process::Command::new(programs.direct()?);
                    way.choose(&mut command, id, &provider, is_crowded);
                    (command, &[provider_name.as_str()][..])
                }
            };
            Session::start(Plan { command, arguments, ranks, cpus: &cpus, directory: &directory })
        };
        let ways = self.ways(id, experiment);
        let starts = ways.map(|way| (way, start(way)));
        let pace = Pace { run, rounds: self.pace().1, block: self.block(experiment) };
        turns::take(starts, &self.shapes(experiment), pace)
    }
}

/// The provider that was built with this program.
fn own_provider() -> Option<PathBuf> {
    let program = std::env::current_exe().ok()?;
    let directory = program.parent()?;
    let names = ["libcorewire-fi.so", "libcorewire_fabric.so"];
    names.map(|name| directory.join(name)).into_iter().find(|file| file.is_file())
}

impl runner::Study for Study {
    type Body = Measurements;
    type Job = Job;
    type Found = Finding;

    fn name(&self) -> &'static str {
        "mpi"
    }

    fn effort(&self) -> Effort {
        self.effort
    }

    fn groups(&self) -> Vec<Group<Job>> {
        let (runs, ..) = self.pace();
        let of = |id: Id| {
            let own = self.experiments.iter().filter(move |&&it| {
                it != Experiment::Instructions && (id != Id::Direct || it == Experiment::TwoSided)
            });
            own.map(move |&it| Job::Turns(id, it))
        };
        let is_possible = |job: &Job| match *job {
            Job::Turns(id, experiment) => self.ways(id, experiment).next().is_some(),
            Job::Instructions(_) => true,
        };
        let turns = self.mpis.iter().flat_map(|&id| of(id)).filter(is_possible);
        let turns = turns.map(|job| Group { jobs: vec![job], runs });
        let counted = [Way::Corewire, Way::Floor].into_iter().filter(|&way| {
            self.experiments.contains(&Experiment::Instructions)
                && self.possible(Id::Direct).any(|it| it == way)
        });
        let counted = Group { jobs: counted.map(Job::Instructions).collect(), runs: 1 };
        turns.chain(std::iter::once(counted)).collect()
    }

    fn time_of(&self, job: &Job) -> Duration {
        let (_, rounds, _, batches) = self.pace();
        let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        match *job {
            Job::Turns(id, experiment) => {
                // Two blocks come before those that count, and a part of a block before each.
                let blocks = number(self.shapes(experiment).len()) * (rounds + 2);
                let each = self.block(experiment).mul_f64(1.15) + AROUND_BLOCK;
                (AROUND + each * blocks) * number(self.ways(id, experiment).count())
            }
            Job::Instructions(_) => BATCH_TIME * batches,
        }
    }

    fn words(&self, job: &Job) -> String {
        match *job {
            Job::Turns(id, experiment) => {
                let experiment = experiment.to_possible_value();
                let experiment = experiment.as_ref().map_or("", |it| it.get_name());
                format!("{}, {}", id.name(), experiment.replace('_', "-"))
            }
            Job::Instructions(way) => format!("instructions over {}", way.name()),
        }
    }

    // The ranks time lines around each block.
    fn watched(&self, _: &Job) -> Result<Vec<usize>, Failure> {
        Ok(Vec::new())
    }

    fn run(&self, job: &Job, run: u32, scratch: &Path) -> Result<Finding, Failure> {
        match *job {
            Job::Turns(id, experiment) => {
                self.turns(id, experiment, run, scratch).map(Finding::Turns)
            }
            Job::Instructions(way) => {
                let programs = Programs::new(scratch)?;
                let provider = programs.provider(way, self.provider.as_deref())?;
                let batches = self.pace().3;
                counts::count(way, &programs, &provider, batches, scratch)
                    .map(Finding::Instructions)
            }
        }
    }

    /// Of each shape one: the medians over the blocks of all ways.
    fn lines(found: &Finding) -> Vec<Lines> {
        let Finding::Turns(found) = found else { return Vec::new() };
        let mut shapes: Vec<Shape> = found.measured.iter().map(|it| it.shape).collect();
        shapes.dedup();
        let line = |shape: Shape| {
            let own = found.measured.iter().filter(|it| it.shape == shape);
            let lines: Vec<[f64; 2]> =
                own.flat_map(|it| &it.blocks).filter_map(|block| block.line_ns).collect();
            let [before, after] =
                [0, 1].map(|side| Spread::of(lines.iter().map(|line| line[side])));
            Some([before?.median, after?.median])
        };
        let lines = shapes.into_iter().map(line).filter(Option::is_some);
        lines.collect()
    }

    fn body(&self, _: &Machine, done: &[Entry<Self>]) -> Result<Measurements, Failure> {
        let (runs, rounds, block, _) = self.pace();
        let mut points: Vec<Point> = Vec::new();
        let (mut instructions, mut instructions_absent) = (Vec::new(), Vec::new());
        let mut failures: Vec<(Id, Option<Way>, String)> = Vec::new();
        for entry in done {
            match (&entry.job, &entry.found) {
                (Job::Turns(id, experiment), Ok(Finding::Turns(found))) => {
                    let ranks = self.ranks(*experiment);
                    self.add_points(&mut points, *id, ranks, found);
                    let own = found.failures.iter();
                    failures.extend(own.map(|(way, why)| (*id, Some(*way), why.clone())));
                }
                (Job::Instructions(_), Ok(Finding::Instructions(counts))) => {
                    instructions.extend(counts.iter().cloned());
                }
                (Job::Turns(id, _), Err(why)) => failures.push((*id, None, why.clone())),
                (Job::Instructions(way), Err(why)) => {
                    instructions_absent.push(format!("{}: {why}", way.name()));
                }
                _ => {}
            }
        }
        let failures_of = |mpi: Id, way: Option<Way>| -> Vec<String> {
            let own = failures.iter().filter(|(id, other, _)| (*id, *other) == (mpi, way));
            sorted(own.map(|(.., why)| why.clone()))
        };
        let mpis = self.mpis.iter().map(|&id| {
            let installed = self.installed(id);
            let name = installed.map_or_else(|| id.name().to_owned(), Installed::name);
            let settings = match (installed, id) {
                (Some(it), _) => format!(
                    "started by {}, measured by a program compiled with {}",
                    it.launcher.display(),
                    it.compiler.display()
                ),
                _ => "fi_tinjectdata or fi_tsenddata, fi_trecv, fi_cq_read".to_owned(),
            };
            let impossible = (id != Id::Direct && installed.is_none()).then(|| id.absence());
            About {
                failures: failures_of(id, None),
                ..About::new(id.text(), name, settings, impossible)
            }
        });
        let systems = self.systems.iter().map(|Planned { mpi, way, impossible }| {
            let id = format!("{}.{}", mpi.text(), way.text());
            let about = About::new(id, way.name(), way.settings(*mpi), impossible.clone());
            let mut failures = failures_of(*mpi, Some(*way));
            let gaps = self.experiments.iter().filter_map(|&it| way.gap(*mpi, it));
            failures.extend(gaps.filter(|_| impossible.is_none()).map(str::to_owned));
            System { mpi: mpi.text(), way: *way, about: About { failures, ..about } }
        });
        let measurements = Measurements {
            runs,
            rounds,
            block_s: block.as_secs_f64(),
            mpis: mpis.collect(),
            systems: systems.collect(),
            points,
            ratios: Vec::new(),
            instructions: counts::with_ratios(instructions),
            instructions_absent,
        };
        Ok(measurements.with_ratios())
    }
}

impl Study {
    /// Adds the blocks of a run to the points.
    fn add_points(&self, points: &mut Vec<Point>, id: Id, ranks: usize, found: &Found) {
        for measured in &found.measured {
            let (mpi, way, shape) = (id.text(), measured.way, measured.shape);
            let same = |it: &&mut Point| {
                (&it.mpi, it.way, it.shape, it.ranks) == (&mpi, way, shape, ranks)
            };
            let blocks = measured.blocks.iter().copied();
            if let Some(point) = points.iter_mut().find(same) {
                point.blocks.extend(blocks);
                continue;
            }
            let oversubscribed = ranks > self.processors;
            let blocks = blocks.collect();
            points.push(Point { mpi, way, shape, ranks, oversubscribed, blocks });
        }
    }
}
