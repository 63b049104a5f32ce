//! `corewire study interfaces`: calls through code that is generated from an interface file.
//!
//! | measured | beside |
//! |---|---|
//! | a call with 8 bytes by `lmp` and by `ump`, both sides on the same core, and by `ump`, cores apart | a D-Bus method call through a `dbus-daemon`; a unary gRPC call over a Unix socket, at the same cores |
//! | the allocations of these calls, on the side of the caller | those of the rivals |
//! | the ten types of messages of Grest, section 5.2, over each driver | dynamic arrays beside the same bytes of fixed size |
//!
//! Client and service are processes of their own, and pinned. (`local` has both in one process.) Blocks of about 10 ms
//! alternate. What needs no rival is also part of `corewire bench interface`.

pub(crate) mod bus;
mod dbus;
mod grpc;
mod page;
mod peer;
pub(crate) mod results;
mod rivals;

use std::path::Path;
use std::time::Duration;

use clap::ValueEnum;
use corewire_bind::Driver;
use corewire_harness::calls::types::{self, TYPES};
use corewire_harness::calls::ways::{Cores, WAYS, Way};
use corewire_os::processor;
use serde::{Deserialize, Serialize};

use peer::Order;
pub(crate) use peer::{CALLS_ROLE, TYPES_ROLE};
use results::{Calls, Dynamic, Interfaces, TypeOf, WayOf};
pub(crate) use rivals::Id;

use super::program::PROGRAM;
use super::results::Machine;
use super::runner::{self, Common, Effort, Entry, Group};
use crate::study::failure::{Doing, Failure};

const EXAMPLES: &str = "\
Examples:
  corewire study interfaces --quick --out interfaces
  corewire study interfaces --out interfaces --rivals grpc

Writes DIR/report.html, a page to look at, DIR/results.json, which docs/study.md describes, and the
times as points.csv. D-Bus is measured if dbus-daemon is installed. With --quick it takes about ten
seconds.";

/// Measure generated calls, with D-Bus and gRPC beside them, and the thesis' types of messages.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    common: Common,
    /// Compare only with these
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    rivals: Vec<Id>,
}

/// Rounds of alternating blocks.
const ROUNDS: u32 = 51;
const ROUNDS_QUICK: u32 = 11;
/// Time of a block.
const BLOCK: Duration = Duration::from_millis(12);
/// Time to start and to end a run.
const AROUND: Duration = Duration::from_millis(400);

/// What is measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Study {
    effort: Effort,
    rounds: u32,
    rivals: Vec<Id>,
}

/// A run, by a way of this name.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Job {
    /// Calls beside those of a rival.
    Calls(String, Id),
    /// The thesis' types.
    Types(String),
}

/// What a run found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Finding {
    Calls(Calls),
    Types(Vec<TypeOf>),
}

/// Runs the command.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let rounds = if args.common.quick { ROUNDS_QUICK } else { ROUNDS };
    let rivals = if args.rivals.is_empty() { Id::value_variants() } else { &args.rivals };
    let study = Study { effort: args.common.effort(), rounds, rivals: rivals.to_vec() };
    runner::run(study, &args.common)
}

/// Why calls cannot go this way here; `None` if they can.
fn absence(way: &Way) -> Option<String> {
    let processors = processor::allowed().map_or(1, |cpus| cpus.len());
    (!way.is_possible(processors)).then(|| "there is only one processor".to_owned())
}

impl Study {
    fn jobs(&self) -> Vec<Job> {
        let ways = || WAYS.iter().filter(|way| absence(way).is_none());
        // A rival is in another process.
        let compared = ways().filter(|way| way.driver != Driver::Local);
        let rivals = || self.rivals.iter().filter(|rival| rival.absence().is_none());
        let beside = |way: &'static Way| rivals().map(|&id| Job::Calls(way.name.to_owned(), id));
        let types = ways().map(|way| Job::Types(way.name.to_owned()));
        compared.flat_map(beside).chain(types).collect()
    }
}

impl runner::Study for Study {
    type Body = Interfaces;
    type Job = Job;
    type Found = Finding;

    fn name(&self) -> &'static str {
        "interfaces"
    }

    fn effort(&self) -> Effort {
        self.effort
    }

    fn groups(&self) -> Vec<Group<Job>> {
        vec![Group { jobs: self.jobs(), runs: 1 }]
    }

    fn time_of(&self, job: &Job) -> Duration {
        let blocks = match job {
            Job::Calls(..) => 2,
            Job::Types(_) => u32::try_from(TYPES.len()).unwrap_or(u32::MAX),
        };
        BLOCK * self.rounds * blocks + AROUND
    }

    fn words(&self, job: &Job) -> String {
        match job {
            Job::Calls(way, rival) => format!("{way} beside {}", rival.about().name),
            Job::Types(way) => format!("types of messages by {way}"),
        }
    }

    fn watched(&self, job: &Job) -> Result<Vec<usize>, Failure> {
        let (Job::Calls(way, _) | Job::Types(way)) = job;
        let cpus = processor::allowed().doing("ask for processors")?;
        Ok(peer::places(peer::way(way)?)?.cores(&cpus, 2))
    }

    fn run(&self, job: &Job, _: u32, scratch: &Path) -> Result<Finding, Failure> {
        let rounds = self.rounds.into();
        match job {
            Job::Calls(way, rival) => {
                let order = Order { way: way.clone(), rival: *rival, rounds };
                peer::compare(&order, self.time_of(job), scratch).map(Finding::Calls)
            }
            Job::Types(way) => {
                let blocks = types::measure(peer::way(way)?, PROGRAM, &TYPES_ROLE, rounds)?;
                let kinds = TYPES.iter().enumerate().map(|(index, kind)| TypeOf {
                    way: way.clone(),
                    name: kind.name.to_owned(),
                    bytes: kind.bytes,
                    round_trip_ns: blocks.of(index).to_vec(),
                });
                Ok(Finding::Types(kinds.collect()))
            }
        }
    }

    fn body(&self, _: &Machine, done: &[Entry<Self>]) -> Result<Interfaces, Failure> {
        let about = |way: &Way| WayOf {
            id: way.name.to_owned(),
            name: way.words.to_owned(),
            driver: way.driver.to_string(),
            same_core: way.cores == Cores::Same,
            impossible: absence(way),
            failures: Vec::new(),
        };
        let mut body = Interfaces {
            rounds: self.rounds.into(),
            ways: WAYS.iter().map(about).collect(),
            rivals: self.rivals.iter().map(|rival| rival.about()).collect(),
            ..Interfaces::default()
        };
        // What was measured counts, even if it is not possible any more.
        let mut jobs = self.jobs();
        let others = done.iter().map(|entry| &entry.job).filter(|job| !self.jobs().contains(job));
        jobs.extend(others.cloned());
        for job in jobs {
            let (line_ns, found) = runner::best(done, &job);
            match (job, found) {
                (_, Ok(Finding::Calls(calls))) => body.calls.push(Calls { line_ns, ..calls }),
                (Job::Calls(way, rival), Err(why)) => {
                    let failure = Some(why);
                    body.calls.push(Calls { line_ns, failure, ..Calls::of(way, rival) });
                }
                (_, Ok(Finding::Types(types))) => {
                    body.dynamic.extend(Dynamic::of(&types, line_ns));
                    body.types.extend(types);
                }
                (Job::Types(way), Err(why)) => {
                    let ways = body.ways.iter_mut().filter(|it| it.id == way);
                    ways.for_each(|it| it.failures.push(why.clone()));
                }
            }
        }
        Ok(body)
    }
}
