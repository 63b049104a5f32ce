//! `corewire study transfer`: the whole evaluation of Buntinas, Mercier and Gropp, "Data Transfers between Processes in a SMP
//! System" (III), with what sections II and IV say about the mechanisms.
//!
//! | files | hold |
//! |---|---|
//! | `operations` | the interface of six operations, over which one program measures all mechanisms |
//! | `ways`, `library`, `mapped`, `printed`, `window`, `network`, `fabric` | the mechanisms |
//! | `pair`, `arena`, `clock`, `plan` | the two processes, their buffers, their clock, and what they are told to do |
//! | `transfers`, `copies`, `set_up`, `cache`, `overlap`, `one_to_all` | the experiments |
//! | `results`, `queries`, `claims`, `decisions`, `figures`, `tables`, `page` | what follows from them |

mod arena;
mod cache;
mod claims;
mod clock;
mod copies;
mod decisions;
mod fabric;
mod figures;
mod library;
mod mapped;
mod network;
mod one_to_all;
mod operations;
mod overlap;
mod page;
mod pair;
mod plan;
mod printed;
mod queries;
mod results;
mod set_up;
mod tables;
mod transfers;
mod ways;
mod window;

use std::path::Path;
use std::time::Duration;

use clap::ValueEnum;
use corewire_harness::board::READY;
use corewire_harness::places::Places;
use corewire_harness::role::{Role, Worker};
use corewire_harness::setup::Setup;
use corewire_os::processor;
use plan::{Experiment, Plan, Report};
use results::{Point, Run, Transfer};
use serde::{Deserialize, Serialize};
use ways::Id;

use super::distances::Lines;
use super::program::PROGRAM;
use super::results::Machine;
use super::runner::{self, Common, Effort, Entry, Group};
use crate::study::failure::{Doing, Failure};

const EXAMPLES: &str = "\
Examples:
  corewire study transfer --quick --out transfer
  corewire study transfer --out transfer --experiments transfers,cache
  corewire study transfer --out transfer --experiments transfers --sizes 1,4096,1048576

Writes DIR/report.html, a page to look at, DIR/results.json, which docs/study.md describes, and the points
as points.csv and claims.csv. With --quick there are fewer sizes: one to two minutes.";

/// Repeat the evaluation of Buntinas and others: how large data moves between two processes, and what suits which use.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    common: Common,
    /// What to measure [default: everything]
    #[arg(long, value_delimiter = ',', value_name = "EXPERIMENT")]
    experiments: Vec<Experiment>,
    /// Sizes of messages in bytes for the experiments copies and transfers [default: powers of two to 4 MiB]
    #[arg(long, value_delimiter = ',', value_name = "BYTES", value_parser = clap::value_parser!(u64).range(1..=4 << 20))]
    sizes: Vec<u64>,
}

/// The longest message.
const LONGEST: usize = plan::LONG_BYTES;
const QUICK_SIZES: [usize; 11] =
    [1, 64, 512, 2 << 10, 4 << 10, 16 << 10, 32 << 10, 64 << 10, 256 << 10, 1 << 20, LONGEST];
/// The second-level cache of a machine that does not describe its caches.
const CACHE_BYTES: u64 = 1 << 20;
/// A run that takes longer than this many times its planned time has failed.
const SLACK: u32 = 12;
/// More receivers than this show nothing more about one message to all.
const RECEIVERS_MAX: usize = 15;

/// The report of a run, and the step of the first process when it has written it.
const REPORT: &str = "report.json";
const REPORTED: u64 = READY + 1;

/// What is measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Study {
    effort: Effort,
    runs: u32,
    rounds: u32,
    block: Duration,
    experiments: Vec<Experiment>,
    sizes: Vec<usize>,
    cache_bytes: u64,
    /// Numbers of receivers of one message.
    receivers: Vec<usize>,
    processors: usize,
}

/// A run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Job {
    experiment: Experiment,
    /// Number of receivers of one message; 1 in the other experiments.
    receivers: usize,
}

/// The processes of a run: receiver and sender, in one message to all the sender and its receivers.
pub(crate) const ROLE: Role<Plan> = Role { name: "transfer", work: follow };

/// Runs the command.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let cpus = processor::allowed().doing("ask for processors")?;
    let caches = processor::caches(cpus.first().copied().unwrap_or_default());
    let second = caches.iter().find(|cache| cache.level == 2 && cache.kind != "Instruction");
    let cache_bytes = second.map_or(CACHE_BYTES, |cache| cache.bytes);
    let (runs, rounds, milliseconds) = if args.common.quick { (3, 4, 2) } else { (9, 6, 10) };
    let sizes = match &args.sizes[..] {
        [] if args.common.quick => QUICK_SIZES.to_vec(),
        [] => (0..).map(|power| 1 << power).take_while(|&size| size <= LONGEST).collect(),
        given => given.iter().map(|&size| usize::try_from(size).unwrap_or(LONGEST)).collect(),
    };
    let receivers = [1, 3, cpus.len().saturating_sub(1).clamp(1, RECEIVERS_MAX)];
    let is_wanted = |it: &Experiment| args.experiments.is_empty() || args.experiments.contains(it);
    let study = Study {
        effort: args.common.effort(),
        runs,
        rounds,
        block: Duration::from_millis(milliseconds),
        experiments: Experiment::value_variants().iter().copied().filter(is_wanted).collect(),
        sizes: super::results::sorted(sizes),
        cache_bytes,
        receivers: super::results::sorted(receivers),
        processors: cpus.len(),
    };
    runner::run(study, &args.common)
}

/// Follows an order. The first process sends a report.
fn follow(worker: &Worker, plan: Plan) -> Result<(), Failure> {
    let begin = || {
        worker.reach(READY);
        worker.board().await_go();
    };
    if plan.experiment == Experiment::OneToAll {
        begin();
        let report = one_to_all::run(worker, &plan)?;
        return if worker.index() == 0 { tell(worker, &report) } else { Ok(()) };
    }
    let mut pair = pair::Pair::meet(worker, plan.arena_bytes())?;
    begin();
    let report = match plan.experiment {
        Experiment::Copies => copies::run(&mut pair, &plan),
        Experiment::Buffers => transfers::run_forms(&mut pair, &plan),
        Experiment::Transfers => transfers::run(&mut pair, &plan),
        Experiment::SetUp => set_up::run(&mut pair, &plan),
        Experiment::Cache => cache::run(&mut pair, &plan),
        Experiment::Overlap | Experiment::OneToAll => overlap::run(&mut pair, &plan),
    }?;
    // Neither closes what the other one may still use.
    pair.barrier()?;
    if pair.is_source() { Ok(()) } else { tell(worker, &report) }
}

/// Writes the report to a file in the crew's directory: it is longer than what a pipe holds while nobody reads it.
fn tell(worker: &Worker, report: &Report) -> Result<(), Failure> {
    let text = serde_json::to_string(report).doing("write a report")?;
    std::fs::write(worker.directory().join(REPORT), text).doing("write a report")?;
    worker.reach(REPORTED);
    Ok(())
}

impl Study {
    fn plan(&self, job: Job) -> Plan {
        Plan {
            experiment: job.experiment,
            sizes: self.sizes.clone(),
            rounds: self.rounds,
            runs: self.runs,
            block: self.block,
            cache_bytes: self.cache_bytes,
            receivers: job.receivers,
        }
    }

    fn jobs(&self) -> Vec<Job> {
        let of = |&experiment: &Experiment| match experiment {
            Experiment::OneToAll => {
                let each = self.receivers.iter();
                each.map(|&receivers| Job { experiment, receivers }).collect()
            }
            _ => vec![Job { experiment, receivers: 1 }],
        };
        self.experiments.iter().flat_map(of).collect()
    }
}

impl runner::Study for Study {
    type Body = Transfer;
    type Job = Job;
    type Found = Report;

    fn name(&self) -> &'static str {
        "transfer"
    }

    fn effort(&self) -> Effort {
        self.effort
    }

    fn groups(&self) -> Vec<Group<Job>> {
        vec![Group { jobs: self.jobs(), runs: self.runs }]
    }

    fn time_of(&self, job: &Job) -> Duration {
        let blocks = |count: usize| {
            (self.block / 3 + Duration::from_millis(2))
                * (self.rounds + 1)
                * u32::try_from(count).unwrap_or(u32::MAX)
        };
        let ways = Id::value_variants().len();
        Duration::from_millis(500)
            + match job.experiment {
                Experiment::Copies => blocks(self.sizes.len() * copies::STATES.len() * 6),
                Experiment::Buffers => blocks(62),
                Experiment::Transfers => blocks(self.sizes.len() * transfers::STATES.len() * ways),
                Experiment::SetUp => blocks(16),
                Experiment::Cache => blocks(cache::SIZES.len() * ways),
                Experiment::Overlap => blocks(3 * ways),
                Experiment::OneToAll => blocks(10),
            }
    }

    fn words(&self, job: &Job) -> String {
        job.experiment.words().to_owned()
    }

    // The processes time lines between their points.
    fn watched(&self, _: &Job) -> Result<Vec<usize>, Failure> {
        Ok(Vec::new())
    }

    fn run(&self, job: &Job, _: u32, scratch: &Path) -> Result<Report, Failure> {
        let plan = self.plan(*job);
        let (workers, bytes) = match job.experiment {
            Experiment::OneToAll => (1 + job.receivers, one_to_all::crew_bytes(plan.arena_bytes())),
            _ => (2, pair::crew_bytes(plan.arena_bytes())),
        };
        let setup = Setup::new(PROGRAM, workers).places(Places::Apart).memory_bytes(bytes);
        let setup = setup.time(self.time_of(job) * SLACK).scratch(scratch);
        let mut crew = setup.start(&ROLE, |_| plan.clone())?;
        crew.await_ready()?;
        crew.go();
        crew.await_step_asleep(0, REPORTED)?;
        let text = std::fs::read_to_string(crew.directory().join(REPORT)).doing("read a report")?;
        crew.finish()?;
        serde_json::from_str(&text).doing("read a report")
    }

    fn lines(report: &Report) -> Vec<Lines> {
        report.measured.iter().map(|measured| measured.line_ns).collect()
    }

    fn body(&self, machine: &Machine, done: &[Entry<Self>]) -> Result<Transfer, Failure> {
        let mut points: Vec<Point> = Vec::new();
        let mut absent: Vec<(String, String)> = Vec::new();
        for entry in done {
            let Ok(report) = &entry.found else { continue };
            absent.extend(report.absent.iter().cloned());
            for measured in &report.measured {
                let (blocks, line_ns) = (measured.blocks.clone(), measured.line_ns);
                let run = Run { run: entry.run, blocks, line_ns };
                match points.iter_mut().find(|point| point.key == measured.key) {
                    Some(point) => point.runs.push(run),
                    None => points.push(Point { key: measured.key.clone(), runs: vec![run] }),
                }
            }
        }
        let why = |id: Id| absent.iter().find(|(what, _)| *what == id.text());
        let failures = done.iter().filter_map(|entry| {
            let why = entry.found.as_ref().err()?;
            Some(format!("{}: {why}", entry.job.experiment.words()))
        });
        let plan = self.plan(Job { experiment: Experiment::Transfers, receivers: 1 });
        let blocks = u64::from(self.rounds) * u64::from(self.runs);
        let found = Transfer {
            runs: self.runs,
            rounds: self.rounds,
            oversubscribed: machine.cores < 2,
            cache_bytes: self.cache_bytes,
            arena_bytes: plan.arena_bytes() as u64,
            sizes: self.sizes.iter().map(|&size| size as u64).collect(),
            iterations: self.sizes.iter().map(|&size| blocks * plan.iterations(size)).collect(),
            mechanisms: Id::all().map(|id| id.about(why(id).map(|(_, why)| why.clone()))).collect(),
            failures: failures.collect(),
            points,
            claims: Vec::new(),
        };
        let claims = claims::of(&found.at_home());
        Ok(Transfer { claims, ..found })
    }
}
