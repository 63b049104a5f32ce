//! `corewire study routing`: calls through monitors (Grest, sections 1.1.2 and 5).
//!
//! | measured | beside |
//! |---|---|
//! | the thesis' ten types of messages through one to four monitors, all parties polling, in two threads | the same without monitors; the thesis' protocol as it is printed, over the same rings |
//! | 8 bytes in the thesis' placement: client and monitor on one core, monitor and service on another | the parts of the way; a relay of SEQPACKET sockets; D-Bus |
//! | the same against how long monitors poll | |
//! | channels and bytes for 4 to 256 processes, counted | without circuits |
//!
//! The parties of the first part are in two threads ([`corewire_harness::circuits::rig`]), those of the second are processes.

mod page;
mod placed;
pub(crate) mod results;

use std::path::Path;
use std::time::Duration;

use corewire_circuit::wire::credit::RESERVE_LINES;
use corewire_harness::calls::Block;
use corewire_harness::calls::types::TYPES;
use corewire_harness::circuits::rig::Rig;
use corewire_harness::rounds::alternate;
use corewire_os::processor;
use serde::{Deserialize, Serialize};

use placed::Placed;
pub(crate) use placed::ROLE;
use results::{Budget, Count, Routing, TypeOf};

use super::interfaces::Id;
use super::program::PROGRAM;
use super::results::Machine;
use super::runner::{self, Common, Effort, Entry, Group};
use crate::study::failure::{Doing, Failure};

const EXAMPLES: &str = "\
Examples:
  corewire study routing --quick --out routing
  corewire study routing --out routing

Writes DIR/report.html, a page to look at, DIR/results.json, which docs/study.md describes, and the
times as points.csv. It needs two processors. D-Bus is measured if dbus-daemon is installed. With
--quick it takes about a quarter of a minute.";

/// Measure calls through monitors: the thesis' types, hops, placement and polling.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    common: Common,
}

/// Rounds of alternating blocks.
const ROUNDS: u64 = 21;
const ROUNDS_QUICK: u64 = 3;
/// Monitors on the longest way: the thesis has four cores.
const MONITORS: usize = 4;
/// Direct, through monitors, and as printed.
const WAYS: usize = MONITORS + 2;
/// The types that the thesis has.
const PRINTED: usize = 10;
/// How long monitors poll, in nanoseconds: 20,000 cycles of the thesis' machine are 7,143.
const BUDGETS: [u64; 7] = [0, 714, 1500, 5000, 7143, 30_000, 100_000];
/// The usual time.
const USUAL: u64 = 30_000;
/// Processes of section 1.1.2.
const PROCESSES: [u64; 7] = [4, 8, 16, 32, 64, 128, 256];
/// Bytes of a ring in one direction: 256 slots of a line.
const RING_BYTES: u64 = 256 * 64;
/// Bytes of a circuit at a monitor, as measured by `corewire bench circuit`.
const CIRCUIT_BYTES: u64 = 217 + 2 * RESERVE_LINES as u64 * 64;

/// Time of a block.
const BLOCK: Duration = Duration::from_millis(12);
/// Time to start and to end a run.
const AROUND: Duration = Duration::from_millis(500);

/// What is measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Study {
    effort: Effort,
    rounds: u64,
}

/// A run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Job {
    /// The thesis' types.
    Types,
    /// The thesis' placement, with everything that is beside it.
    Placed,
    /// The placement alone, with monitors that poll for so many nanoseconds.
    Budget(u64),
}

/// What a run found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Finding {
    Types(Vec<TypeOf>),
    Placed(Placed),
}

/// Runs the command.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let rounds = if args.common.quick { ROUNDS_QUICK } else { ROUNDS };
    runner::run(Study { effort: args.common.effort(), rounds }, &args.common)
}

/// The processors between which everything is measured.
fn two_processors() -> Result<[usize; 2], Failure> {
    match processor::allowed().doing("ask for processors")?[..] {
        [one, other, ..] => Ok([one, other]),
        _ => Err(Failure::other("circuits are measured between two processors; there is one")),
    }
}

impl runner::Study for Study {
    type Body = Routing;
    type Job = Job;
    type Found = Finding;

    fn name(&self) -> &'static str {
        "routing"
    }

    fn effort(&self) -> Effort {
        self.effort
    }

    fn prepare(&self) -> Result<String, Failure> {
        two_processors().map(|_| "not used".to_owned())
    }

    fn groups(&self) -> Vec<Group<Job>> {
        let jobs = [Job::Types, Job::Placed].into_iter().chain(BUDGETS.map(Job::Budget));
        vec![Group { jobs: jobs.collect(), runs: 1 }]
    }

    fn time_of(&self, job: &Job) -> Duration {
        let (blocks, rounds) = match job {
            Job::Types => (TYPES.len() * WAYS, self.rounds),
            Job::Placed => (5, self.rounds),
            Job::Budget(_) => (3, ROUNDS_QUICK),
        };
        let blocks = u32::try_from(blocks).unwrap_or(u32::MAX);
        // One more to warm up.
        BLOCK * blocks * u32::try_from(rounds + 1).unwrap_or(u32::MAX) + AROUND
    }

    fn words(&self, job: &Job) -> String {
        match job {
            Job::Types => "types of messages through monitors".to_owned(),
            Job::Placed => "the thesis\u{2019} placement".to_owned(),
            Job::Budget(poll_ns) => format!("monitors that poll for {poll_ns} ns"),
        }
    }

    fn run(&self, job: &Job, _: u32, _: &Path) -> Result<Finding, Failure> {
        let cpus = two_processors()?;
        match *job {
            Job::Types => types(cpus, self.rounds).map(Finding::Types),
            Job::Placed => placed::measure(cpus, USUAL, self.rounds, true).map(Finding::Placed),
            Job::Budget(poll_ns) => {
                placed::measure(cpus, poll_ns, ROUNDS_QUICK, false).map(Finding::Placed)
            }
        }
    }

    fn body(&self, _: &Machine, done: &[Entry<Self>]) -> Result<Routing, Failure> {
        let mut body = Routing {
            rounds: self.rounds,
            dbus_absent: Id::Dbus.absence(),
            counts: PROCESSES.map(count).to_vec(),
            ..Routing::default()
        };
        let jobs = self.groups().into_iter().flat_map(|group| group.jobs);
        for job in jobs {
            let (line_ns, found) = runner::best(done, &job);
            match (job, found) {
                (_, Ok(Finding::Types(types))) => (body.types, body.line_ns) = (types, line_ns),
                (Job::Budget(poll_ns), Ok(Finding::Placed(Placed { circuit_ns, .. }))) => {
                    body.budgets.push(Budget { poll_ns, circuit_ns, line_ns });
                }
                (_, Ok(Finding::Placed(placed))) => {
                    body.placed = Some(Placed { line_ns, ..placed });
                }
                (job, Err(why)) => body.failures.push(format!("{}: {why}", self.words(&job))),
            }
        }
        Ok(body)
    }
}

/// Round trips of all types, in alternating blocks.
fn types(cpus: [usize; 2], rounds: u64) -> Result<Vec<TypeOf>, Failure> {
    let mut rig = Rig::start(PROGRAM, MONITORS, 1, cpus)?;
    let mut sizes = vec![Block::new(); TYPES.len() * WAYS];
    let blocks = alternate(rounds, |_| {
        (PROGRAM.check)()?;
        let mut times = Vec::with_capacity(sizes.len());
        for (index, size) in sizes.iter_mut().enumerate() {
            let (shape, way) = (index / WAYS, index % WAYS);
            times.push(match way {
                _ if way <= MONITORS => size.time_ns(|number| rig.call(way, shape, number))?,
                _ if shape < PRINTED => size.time_ns(|number| rig.call_printed(shape, number))?,
                _ => f64::NAN,
            });
        }
        Ok::<_, Failure>(times)
    })?;
    let types = TYPES.iter().enumerate().map(|(shape, kind)| {
        let of = |way: usize| blocks.of(shape * WAYS + way).to_vec();
        TypeOf {
            name: kind.name.to_owned(),
            bytes: kind.bytes,
            direct_ns: of(0),
            monitors_ns: (1..=MONITORS).map(of).collect(),
            printed_ns: if shape < PRINTED { of(MONITORS + 1) } else { Vec::new() },
        }
    });
    Ok(types.collect())
}

/// Channels and bytes to connect each process with each other one: a pair of rings for each pair, or for each process one
/// to a monitor and a circuit for each pair.
fn count(processes: u64) -> Count {
    let pairs = processes * (processes - 1) / 2;
    Count {
        processes,
        direct_channels: pairs,
        direct_bytes: pairs * 2 * RING_BYTES,
        monitor_channels: processes,
        monitor_bytes: processes * 2 * RING_BYTES + pairs * CIRCUIT_BYTES,
    }
}
