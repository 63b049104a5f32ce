//! `corewire study paxos` and `corewire study checkpoint`: ZIMP's macro-benchmarks (section IV-C and appendix D),
//! with the same code over every mechanism.
//!
//! | file | holds |
//! |---|---|
//! | `paxos` | the agreement protocol: client, proposer, acceptor, learners |
//! | `checkpoint` | gathering snapshots: an initiator and other nodes |
//! | `library` | both as the library does them |
//! | `point` | one run: its channels and its processes |
//! | `results`, `page` | `results.json`, and how it is shown |

mod checkpoint;
mod library;
mod page;
mod paxos;
mod point;
mod results;

use std::path::Path;
use std::time::Duration;

use corewire_os::processor;
use serde::{Deserialize, Serialize};

use point::{Length, Point, Report, Way};
pub(crate) use point::{Protocol, ROLE};
pub(crate) use results::OnModel;
use results::{PointOf, Protocols};

use crate::study::failure::{Doing, Failure};
use crate::study::mechanisms::Id;
use crate::study::model;
use crate::study::results::{Machine, sorted};
use crate::study::runner::{self, Common, Effort, Entry, Group};

const PAXOS_EXAMPLES: &str = "\
Examples:
  corewire study paxos --quick --out paxos
  corewire study paxos --out paxos --mechanisms barrelfish_mp,zimp,corewire_in_place --sizes 1,4096
  corewire study paxos --out paxos --cores 0,2,4,6,8,10,1     # the two clients near each other
";

const CHECKPOINT_EXAMPLES: &str = "\
Examples:
  corewire study checkpoint --quick --out checkpoint
  corewire study checkpoint --out checkpoint --nodes 2,24 --sizes 4096
";

const FILES: &str = "
Writes DIR/report.html, a page to look at, DIR/results.json, which docs/study.md describes, and the
same figures as points.csv. What is measured is kept in DIR/progress.jsonl until all is: if the study is
interrupted, the same command goes on. With --quick it takes about 2 minutes.";

/// What both studies are told.
#[derive(Debug, clap::Args)]
struct Wanted {
    #[command(flatten)]
    common: Common,
    /// As in the paper: 100,000 requests for each point, every number of nodes; takes hours
    #[arg(long, conflicts_with = "quick")]
    full: bool,
    /// Measure only these mechanisms
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    mechanisms: Vec<Way>,
    /// Measure only requests or checkpoints of these lengths
    #[arg(long, value_name = "BYTES", value_delimiter = ',')]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1 << 30))]
    sizes: Vec<u32>,
    /// Processors of the processes, in their order: of paxos the client that asks, the proposer, the acceptor, the
    /// learners, the client that counts; of checkpoint the nodes. Fewer are used again from the first one on
    #[arg(long, value_name = "CPUS", value_delimiter = ',')]
    cores: Vec<usize>,
}

impl Wanted {
    /// The lengths that are measured: the `usual` ones, or those that were given.
    fn sizes(&self, usual: &[usize]) -> Vec<usize> {
        match &self.sizes[..] {
            [] => usual.to_vec(),
            given => sorted(given.iter().map(|&size| size as usize)),
        }
    }
}

/// Repeat ZIMP's agreement protocol, PaxosInside, over several mechanisms.
#[derive(Debug, clap::Args)]
#[command(after_help = [PAXOS_EXAMPLES, FILES].concat())]
pub(crate) struct PaxosArgs {
    #[command(flatten)]
    wanted: Wanted,
    /// Learners; the paper has three
    #[arg(long, value_name = "COUNT", default_value_t = 3)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=20))]
    learners: u32,
}

/// Repeat ZIMP's checkpointing protocol, gathering snapshots, over several mechanisms.
#[derive(Debug, clap::Args)]
#[command(after_help = [CHECKPOINT_EXAMPLES, FILES].concat())]
pub(crate) struct CheckpointArgs {
    #[command(flatten)]
    wanted: Wanted,
    /// Measure only these numbers of nodes
    #[arg(long, value_name = "COUNTS", value_delimiter = ',')]
    #[arg(value_parser = clap::value_parser!(u32).range(2..=24))]
    nodes: Vec<u32>,
}

/// The mechanisms that are measured: those that the paper compares, its Barrelfish MP in both forms, sockets, and ours; and the
/// library.
const MECHANISMS: [Way; 7] = [
    Way::Roles(Id::UnixDatagram),
    Way::Roles(Id::BarrelfishMp),
    Way::Roles(Id::BarrelfishUmp),
    Way::Roles(Id::Zimp),
    Way::Roles(Id::CorewireCopy),
    Way::Roles(Id::CorewireInPlace),
    Way::Library,
];
/// The paper's lengths of requests.
const REQUESTS: [usize; 9] = [1, 64, 128, 512, 1 << 10, 4 << 10, 10 << 10, 100 << 10, 1 << 20];
/// The paper's lengths of checkpoints.
const CHECKPOINTS: [usize; 7] = [128, 512, 1 << 10, 4 << 10, 10 << 10, 100 << 10, 1 << 20];
/// Where not all lengths are measured.
const ONE_CHECKPOINT: usize = 4 << 10;
/// Numbers of nodes.
const NODES_QUICK: [u32; 3] = [2, 3, 8];
const NODES: [u32; 5] = [2, 3, 4, 8, 24];
const NODES_MAX: u32 = 24;
/// Runs of each point, as in the paper.
const RUNS: u32 = 3;
/// Approximate time to start and to end a run.
const AROUND: Duration = Duration::from_millis(80);

/// What is measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Study {
    protocol: Protocol,
    effort: Effort,
    length: Length,
    cores: usize,
    mechanisms: Vec<Way>,
    /// Lengths and numbers of nodes.
    shapes: Vec<(usize, u32)>,
    /// The processors of the processes, if they were given.
    placed: Option<Vec<usize>>,
}

/// Runs `corewire study paxos`.
pub(crate) fn run_paxos(args: &PaxosArgs) -> Result<(), Failure> {
    let sizes = args.wanted.sizes(&REQUESTS);
    let shapes = sizes.into_iter().map(|bytes| (bytes, args.learners));
    run(Protocol::Paxos, &args.wanted, shapes.collect())
}

/// Runs `corewire study checkpoint`.
pub(crate) fn run_checkpoint(args: &CheckpointArgs) -> Result<(), Failure> {
    let (sizes, is_quick) = (args.wanted.sizes(&CHECKPOINTS), args.wanted.common.quick);
    let nodes = match (&args.nodes[..], is_quick, args.wanted.full) {
        ([], true, _) => NODES_QUICK.to_vec(),
        ([], _, true) => (2..=NODES_MAX).collect(),
        ([], ..) => NODES.to_vec(),
        (given, ..) => given.to_vec(),
    };
    let fewest = nodes.iter().min().copied();
    let all = nodes.iter().flat_map(|&nodes| sizes.iter().map(move |&bytes| (bytes, nodes)));
    let shapes = all.filter(|&(bytes, nodes)| {
        let has_all = !is_quick || Some(nodes) == fewest || !args.wanted.sizes.is_empty();
        has_all || bytes == ONE_CHECKPOINT
    });
    run(Protocol::Checkpoint, &args.wanted, shapes.collect())
}

fn run(protocol: Protocol, wanted: &Wanted, shapes: Vec<(usize, u32)>) -> Result<(), Failure> {
    let (effort, measured_ms, requests) = match (wanted.common.quick, wanted.full) {
        (true, _) => (Effort::Quick, 200, 1),
        (_, true) => (Effort::Full, 2000, 100_000),
        _ => (Effort::Default, 1000, 1),
    };
    let measured = Duration::from_millis(measured_ms);
    let length = Length { warm_up: measured / 4, measured, requests };
    let allowed = processor::allowed().doing("ask for processors")?;
    if let Some(other) = wanted.cores.iter().find(|cpu| !allowed.contains(cpu)) {
        let all = allowed.iter().map(usize::to_string).collect::<Vec<_>>().join(", ");
        return Err(Failure::usage(format!("processor {other}: this process may use {all}")));
    }
    let placed = (!wanted.cores.is_empty()).then(|| wanted.cores.clone());
    let mechanisms =
        if wanted.mechanisms.is_empty() { &MECHANISMS[..] } else { &wanted.mechanisms[..] };
    let (cores, mechanisms) = (allowed.len(), mechanisms.to_vec());
    let study = Study { protocol, effort, length, cores, mechanisms, shapes, placed };
    runner::run(study, &wanted.common)
}

impl Study {
    /// The points of a shape.
    fn points(&self, (bytes, nodes): (usize, u32)) -> impl Iterator<Item = Point> {
        let protocol = self.protocol;
        self.mechanisms.iter().map(move |&way| Point { protocol, way, bytes, nodes })
    }

    #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
    fn point_of(&self, point: Point, done: &[Entry<Self>]) -> PointOf {
        let (mut each_ns, mut line_ns, mut failures) = (Vec::new(), Vec::new(), Vec::new());
        for entry in done.iter().filter(|entry| entry.job == point) {
            match &entry.found {
                Ok(report) => {
                    each_ns.push(report.elapsed_ns as f64 / report.done.max(1) as f64);
                    line_ns.push(entry.line_ns);
                }
                Err(failure) => failures.push(failure.clone()),
            }
        }
        let cores = self.placed.as_ref().map_or(self.cores, |placed| sorted(placed).len());
        PointOf {
            mechanism: point.way.about().id,
            bytes: point.bytes as u64,
            nodes: point.nodes,
            processes: point.processes(),
            oversubscribed: point.processes() > cores,
            // The study ran it, so a limit that is found now did not apply where and when it ran.
            impossible: if each_ns.is_empty() { point.limit() } else { None },
            failures,
            each_ns,
            line_ns,
        }
    }
}

impl runner::Study for Study {
    type Body = Protocols;
    type Job = Point;
    type Found = Report;

    fn name(&self) -> &'static str {
        self.protocol.name()
    }

    fn effort(&self) -> Effort {
        self.effort
    }

    fn groups(&self) -> Vec<Group<Point>> {
        let group = |&shape: &(usize, u32)| {
            let jobs = self.points(shape).filter(|point| point.limit().is_none());
            Group { jobs: jobs.collect(), runs: RUNS }
        };
        self.shapes.iter().map(group).collect()
    }

    fn time_of(&self, _: &Point) -> Duration {
        self.length.warm_up + self.length.measured + AROUND
    }

    fn words(&self, point: &Point) -> String {
        format!("{}, {} bytes", point.way.about().name, point.bytes)
    }

    fn watched(&self, _: &Point) -> Result<Vec<usize>, Failure> {
        let given = self.placed.clone().map(Ok);
        let mut cpus = given.unwrap_or_else(processor::allowed).doing("ask for processors")?;
        cpus.truncate(2);
        cpus.dedup();
        Ok(cpus)
    }

    fn run(&self, point: &Point, _: u32, scratch: &Path) -> Result<Report, Failure> {
        point.run(self.length, self.placed.clone(), scratch)
    }

    fn body(&self, _: &Machine, done: &[Entry<Self>]) -> Result<Protocols, Failure> {
        let points = self.shapes.iter().flat_map(|&shape| self.points(shape));
        let nodes = sorted(self.shapes.iter().map(|(_, nodes)| *nodes));
        Ok(Protocols {
            run_s: self.length.measured.as_secs_f64(),
            requests: self.length.requests,
            runs: RUNS,
            mechanisms: self.mechanisms.iter().map(|way| way.about()).collect(),
            points: points.map(|point| self.point_of(point, done)).collect(),
            placed: self.placed.clone(),
            model: model::count_flow(self.protocol, &nodes)?,
        })
    }
}
