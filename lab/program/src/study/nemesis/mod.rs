//! `corewire study nemesis`: the intranode experiments of Nemesis (section 4.1), with
//! corewire, libfabric and Open MPI beside it.

mod instructions;
mod page;
mod peer;
mod polling;
pub(crate) mod results;
mod ring;
mod wires;

use std::path::Path;
use std::time::Duration;

use clap::ValueEnum;
use corewire_harness::places::Places;
use corewire_harness::setup::Setup;
use serde::{Deserialize, Serialize};

pub(crate) use instructions::{Operation, run as count};
pub(crate) use peer::ROLE;
use peer::{COLD_BYTES, Order, Report, Shape};
use results::{Data, Found, Instructions, Nemesis, Point, Ring};
pub(crate) use ring::ROLE as RING_ROLE;
use wires::Id;

use super::distances::Lines;
use super::program::PROGRAM;
use super::results::{About, Machine};
use super::runner::{self, Common, Effort, Entry, Group};
use crate::study::failure::Failure;

const EXAMPLES: &str = "\
Examples:
  corewire study nemesis --quick --out nemesis
  corewire study nemesis --out nemesis --wires corewire,open_mpi --sizes 0,8,4096

Writes DIR/report.html, a page to look at, DIR/results.json, which docs/study.md describes, and the
points as points.csv. libfabric and Open MPI are measured if their libraries are there. With --quick
only powers of two are measured, in about two minutes.";

/// Repeat Nemesis' experiments: latency, bandwidth, instructions, polling; with libfabric and Open MPI.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    common: Common,
    /// Measure only these
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    wires: Vec<Id>,
    /// Measure only messages of these lengths
    #[arg(long, value_name = "BYTES", value_delimiter = ',')]
    #[arg(value_parser = clap::value_parser!(u32).range(0..=1 << 26))]
    sizes: Vec<u32>,
}

/// The longest message of Figure 5.
const LONGEST: usize = 4 << 20;
/// Sizes in Figure 4 that are not powers of two.
const SMALL: [usize; 4] = [0, 24, 48, 104];
/// NetPIPE also measures sizes this much below and above each power of two.
const BESIDE: usize = 3;
/// Time to start and to end a run.
const AROUND: Duration = Duration::from_millis(600);

/// Batches of operations whose instructions are counted, and the time of one.
const BATCHES: usize = 32;
const BATCHES_QUICK: usize = 4;
const BATCH_TIME: Duration = Duration::from_millis(600);

/// What is measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Study {
    effort: Effort,
    runs: u32,
    /// Measuring time of each shape in each run.
    measured: Duration,
    wires: Vec<Id>,
    shapes: Vec<Shape>,
}

/// A run.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Job {
    /// All shapes, between two processes.
    Pair(Id),
    Ring(Id, usize),
    Instructions,
}

/// What a run found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Finding {
    Pair(Vec<Found>),
    /// The time of a round.
    Ring(f64),
    Instructions(Vec<Instructions>),
}

/// Runs the command.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    runner::run(Study::new(args), &args.common)
}

impl Study {
    fn new(args: &Args) -> Self {
        let (effort, is_quick) = (args.common.effort(), args.common.quick);
        let (runs, milliseconds) = if is_quick { (3, 4) } else { (5, 20) };
        let mut sizes: Vec<usize> = args.sizes.iter().map(|&size| size as usize).collect();
        let mut beside = Vec::new();
        if sizes.is_empty() {
            sizes.extend(SMALL);
            let powers = (0..).map(|power| 1 << power).take_while(|&size| size <= LONGEST);
            for size in powers {
                sizes.push(size);
                if !is_quick && size >= 4 * BESIDE {
                    beside.extend([size - BESIDE, size + BESIDE]);
                }
            }
        }
        let shapes = Data::ALL.into_iter().flat_map(|data| {
            // What is beside a power of two shows in how a message is copied, not in how it is read.
            let beside = if data.touched { &[][..] } else { &beside };
            let sizes = super::results::sorted([&sizes, beside].concat());
            sizes.into_iter().map(move |bytes| Shape { bytes, data })
        });
        let wires = if args.wires.is_empty() { Id::value_variants() } else { &args.wires };
        let measured = Duration::from_millis(milliseconds);
        Self { effort, runs, measured, wires: wires.to_vec(), shapes: shapes.collect() }
    }

    const fn batches(&self) -> usize {
        if matches!(self.effort, Effort::Quick) { BATCHES_QUICK } else { BATCHES }
    }

    fn rings(&self) -> impl Iterator<Item = (Id, usize)> {
        ring::PROCESSES.into_iter().flat_map(|processes| {
            self.wires.iter().filter(|id| id.forms_rings()).map(move |&id| (id, processes))
        })
    }

    /// All shapes, between two processes. Long messages take longer than their planned time.
    fn pair(&self, id: Id, scratch: &Path) -> Result<Vec<Found>, Failure> {
        let setup = Setup::new(PROGRAM, 2).places(Places::Apart);
        let mut crew = setup.time(self.time_of_pair() * 4).scratch(scratch).crew()?;
        let (kept, ticket) = id.set_up()?;
        crew.keep(kept);
        let order =
            Order { wire: id, ticket, shapes: self.shapes.clone(), measured: self.measured };
        let processes = [crew.command_of(0, &ROLE, &order)?, crew.command_of(1, &ROLE, &order)?];
        if let Some(mut launcher) = id.launcher(&processes, crew.is_oversubscribed()) {
            crew.add(&mut launcher)?;
        } else {
            crew.add_worker(&ROLE, &order)?;
            crew.add_worker(&ROLE, &order)?;
        }
        let found = crew.first_report::<Report>()?.found;
        if found.len() == self.shapes.len() {
            Ok(found)
        } else {
            Err(Failure::other("a report is not whole"))
        }
    }

    fn time_of_pair(&self) -> Duration {
        AROUND + self.measured.mul_f64(1.4) * u32::try_from(self.shapes.len()).unwrap_or(u32::MAX)
    }
}

impl runner::Study for Study {
    type Body = Nemesis;
    type Job = Job;
    type Found = Finding;

    fn name(&self) -> &'static str {
        "nemesis"
    }

    fn effort(&self) -> Effort {
        self.effort
    }

    fn groups(&self) -> Vec<Group<Job>> {
        let is_there = |id: &Id| id.absence().is_none();
        let wires = self.wires.iter().copied().filter(is_there);
        let rings = self.rings().filter(|(id, _)| is_there(id));
        vec![
            Group { jobs: wires.map(Job::Pair).collect(), runs: self.runs },
            Group {
                jobs: rings.map(|(id, processes)| Job::Ring(id, processes)).collect(),
                runs: ring::RUNS,
            },
            Group { jobs: vec![Job::Instructions], runs: 1 },
        ]
    }

    fn time_of(&self, job: &Job) -> Duration {
        match job {
            Job::Pair(_) => self.time_of_pair(),
            Job::Ring(..) => AROUND,
            Job::Instructions => BATCH_TIME * u32::try_from(self.batches()).unwrap_or(u32::MAX),
        }
    }

    fn words(&self, job: &Job) -> String {
        match job {
            Job::Pair(id) => id.name().to_owned(),
            Job::Ring(id, processes) => format!("{}, {processes} processes", id.name()),
            Job::Instructions => "instructions".to_owned(),
        }
    }

    // A pair times lines between its sizes; processes of rings are where the kernel puts them.
    fn watched(&self, _: &Job) -> Result<Vec<usize>, Failure> {
        Ok(Vec::new())
    }

    fn run(&self, job: &Job, _: u32, scratch: &Path) -> Result<Finding, Failure> {
        Ok(match *job {
            Job::Pair(id) => Finding::Pair(self.pair(id, scratch)?),
            Job::Ring(id, processes) => Finding::Ring(ring::run(id, processes, scratch)?),
            Job::Instructions => {
                Finding::Instructions(instructions::count(self.batches(), scratch)?)
            }
        })
    }

    fn lines(found: &Finding) -> Vec<Lines> {
        match found {
            Finding::Pair(found) => found.iter().map(|found| found.line_ns).collect(),
            _ => Vec::new(),
        }
    }

    fn body(&self, machine: &Machine, done: &[Entry<Self>]) -> Result<Nemesis, Failure> {
        let failures = |job: Job| {
            let own = done.iter().filter(move |entry| entry.job == job);
            own.filter_map(|entry| entry.found.as_ref().err().cloned())
        };
        let about = |&id: &Id| About {
            failures: failures(Job::Pair(id)).collect(),
            ..About::new(id.text(), id.name(), id.settings(), id.absence())
        };
        let mut points = Vec::new();
        for &id in &self.wires {
            let runs = |at: usize| {
                let of = move |entry: &Entry<Self>| match (&entry.job, &entry.found) {
                    (Job::Pair(other), Ok(Finding::Pair(found))) if *other == id => {
                        found.get(at).copied()
                    }
                    _ => None,
                };
                done.iter().filter_map(of).collect()
            };
            let shapes = self.shapes.iter().enumerate();
            points.extend(shapes.map(|(at, &Shape { bytes, data })| Point {
                wire: id.text(),
                bytes: bytes as u64,
                data,
                runs: runs(at),
            }));
        }
        let rings = self.rings().map(|(id, processes)| {
            let job = Job::Ring(id, processes);
            let own = done.iter().filter(|entry| entry.job == job);
            let rounds = own.filter_map(|entry| match entry.found {
                Ok(Finding::Ring(round_ns)) => Some(round_ns),
                _ => None,
            });
            let failure = id.absence().or_else(|| failures(job).next());
            Ring { wire: id.text(), processes, round_ns: rounds.collect(), failure }
        });
        let counts = done.iter().find_map(|entry| match &entry.found {
            Ok(Finding::Instructions(counts)) => Some(counts.clone()),
            _ => None,
        });
        Ok(Nemesis {
            run_s: self.measured.as_secs_f64(),
            runs: self.runs,
            oversubscribed: machine.cores < 2,
            cold_bytes: COLD_BYTES as u64,
            wires: self.wires.iter().map(about).collect(),
            points,
            rings: rings.collect(),
            instructions_absent: runner::best(done, &Job::Instructions).1.err(),
            instructions: counts.unwrap_or_default(),
            polling: polling::count()?,
        })
    }
}
