//! Which runs, in which order; and what is written.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use corewire_os::processor;
use indicatif::{ProgressBar, ProgressStyle};
use serde::{Deserialize, Serialize};

use super::results::{FORMAT, PointOf, Results};
use super::run::Length;
use super::{Point, Protocol, Report};
use crate::study::failure::{Doing, Failure};
use crate::study::journal::{Header, Journal};
use crate::study::mechanisms::Id;
use crate::study::output::{self, Study};
use crate::study::plan::Effort;
use crate::study::report::{PageError, protocols as page};
use crate::study::zimp::{Scratch, millis, words};
use crate::study::{collect, interrupt, machine, model};

const PAXOS_EXAMPLES: &str = "\
Examples:
  corewire study paxos --quick --out paxos
  corewire study paxos --out paxos --mechanisms barrelfish_mp,zimp,corewire_in_place --sizes 1,4096
  corewire study paxos --out paxos --cores 0,2,4,6,8,10,1     (the two clients near each other)

Writes DIR/report.html, a page to look at, DIR/results.json, which docs/study.md describes, and the
same figures as points.csv. What is measured is kept in DIR/progress.jsonl until all is: if the study is
interrupted, the same command goes on.";

const CHECKPOINT_EXAMPLES: &str = "\
Examples:
  corewire study checkpoint --quick --out checkpoint
  corewire study checkpoint --out checkpoint --nodes 2,24 --sizes 4096

Writes DIR/report.html, a page to look at, DIR/results.json, which docs/study.md describes, and the
same figures as points.csv. What is measured is kept in DIR/progress.jsonl until all is: if the study is
interrupted, the same command goes on.";

/// What both studies are told.
#[derive(Debug, clap::Args)]
struct Common {
    /// A tenth of the time of a run, fewer numbers of nodes: about 2 minutes
    #[arg(long)]
    quick: bool,
    /// As in the paper: 100,000 requests for each point, every number of nodes; takes hours
    #[arg(long, conflicts_with = "quick")]
    full: bool,
    /// Measure only these mechanisms
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    mechanisms: Vec<Id>,
    /// Measure only requests or checkpoints of these lengths
    #[arg(long, value_name = "BYTES", value_delimiter = ',')]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=1 << 30))]
    sizes: Vec<u64>,
    /// Processors of the processes, in their order: of paxos the client that asks, the proposer, the acceptor, the
    /// learners, the client that counts; of checkpoint the nodes. Fewer are used again from the first one on
    #[arg(long, value_name = "CPUS", value_delimiter = ',')]
    cores: Vec<usize>,
}

/// Repeat ZIMP's agreement protocol, PaxosInside, over several mechanisms.
#[derive(Debug, clap::Args)]
#[command(after_help = PAXOS_EXAMPLES)]
pub(crate) struct PaxosArgs {
    /// Directory for the results; created if it does not exist
    #[arg(long, value_name = "DIR", default_value = "corewire-study-paxos")]
    out: PathBuf,
    #[command(flatten)]
    common: Common,
    /// Learners; the paper has three
    #[arg(long, value_name = "COUNT", default_value_t = 3)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=20))]
    learners: u32,
}

/// Repeat ZIMP's checkpointing protocol, gathering snapshots, over several mechanisms.
#[derive(Debug, clap::Args)]
#[command(after_help = CHECKPOINT_EXAMPLES)]
pub(crate) struct CheckpointArgs {
    /// Directory for the results; created if it does not exist
    #[arg(long, value_name = "DIR", default_value = "corewire-study-checkpoint")]
    out: PathBuf,
    #[command(flatten)]
    common: Common,
    /// Measure only these numbers of nodes
    #[arg(long, value_name = "COUNTS", value_delimiter = ',')]
    #[arg(value_parser = clap::value_parser!(u32).range(2..=24))]
    nodes: Vec<u32>,
}

/// The mechanisms that are measured: those that the paper compares, its Barrelfish MP in both forms, sockets, and ours.
const MECHANISMS: [Id; 6] = [
    Id::UnixDatagram,
    Id::BarrelfishMp,
    Id::BarrelfishUmp,
    Id::Zimp,
    Id::CorewireCopy,
    Id::CorewireInPlace,
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

/// Everything that was asked for. Two studies with the same plan are the same study.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Plan {
    protocol: Protocol,
    effort: Effort,
    length: Length,
    cores: usize,
    mechanisms: Vec<Id>,
    /// Lengths and numbers of nodes.
    shapes: Vec<(usize, u32)>,
    /// The processors of the processes, if they were given.
    #[serde(default)]
    placed: Option<Vec<usize>>,
}

/// A run, or why it failed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Entry {
    point: Point,
    run: u32,
    found: Result<Report, String>,
}

/// Runs `corewire study paxos`.
pub(crate) fn run_paxos(args: PaxosArgs) -> Result<(), Failure> {
    let sizes = sizes(&args.common, &REQUESTS)?;
    let shapes = sizes.into_iter().map(|bytes| (bytes, args.learners)).collect();
    run(Protocol::Paxos, &args.out, args.common, shapes)
}

/// Runs `corewire study checkpoint`.
pub(crate) fn run_checkpoint(args: CheckpointArgs) -> Result<(), Failure> {
    let sizes = sizes(&args.common, &CHECKPOINTS)?;
    let nodes = match (&args.nodes[..], args.common.quick, args.common.full) {
        ([], true, _) => NODES_QUICK.to_vec(),
        ([], _, true) => (2..=NODES_MAX).collect(),
        ([], ..) => NODES.to_vec(),
        _ => args.nodes.clone(),
    };
    let fewest = nodes.iter().min().copied().unwrap_or(2);
    let all = nodes.iter().flat_map(|&nodes| sizes.iter().map(move |&bytes| (bytes, nodes)));
    let is_wanted = |&(bytes, nodes): &(usize, u32)| {
        let has_all = !args.common.quick || nodes == fewest || !args.common.sizes.is_empty();
        has_all || bytes == ONE_CHECKPOINT
    };
    let shapes = all.filter(is_wanted).collect();
    run(Protocol::Checkpoint, &args.out, args.common, shapes)
}

fn sizes(common: &Common, usual: &[usize]) -> Result<Vec<usize>, Failure> {
    if common.sizes.is_empty() {
        return Ok(usual.to_vec());
    }
    let bytes = |&size: &u64| usize::try_from(size).doing("make such long messages");
    let mut sizes: Vec<usize> = common.sizes.iter().map(bytes).collect::<Result<_, _>>()?;
    sizes.sort_unstable();
    sizes.dedup();
    Ok(sizes)
}

fn run(
    protocol: Protocol,
    out: &Path,
    common: Common,
    shapes: Vec<(usize, u32)>,
) -> Result<(), Failure> {
    let (effort, measured_ms, requests) = match common {
        Common { quick: true, .. } => (Effort::Quick, 200, 1),
        Common { full: true, .. } => (Effort::Full, 2000, 100_000),
        _ => (Effort::Default, 1000, 1),
    };
    let measured = Duration::from_millis(measured_ms);
    let length = Length { warm_up: measured / 4, measured, requests };
    let mechanisms =
        if common.mechanisms.is_empty() { MECHANISMS.to_vec() } else { common.mechanisms };
    output::make(out)?;
    interrupt::prepare()?;
    let allowed = processor::allowed().doing("ask for processors")?;
    if let Some(other) = common.cores.iter().find(|cpu| !allowed.contains(cpu)) {
        let all = allowed.iter().map(usize::to_string).collect::<Vec<_>>().join(", ");
        return Err(Failure::usage(format!("processor {other}: this process may use {all}")));
    }
    let placed = (!common.cores.is_empty()).then_some(common.cores);
    let cores = allowed.len();
    let plan = Plan { protocol, effort, length, cores, mechanisms, shapes, placed };
    let began = machine::now()?;
    let header = Header {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        began,
        machine: machine::describe("not used".to_owned())?,
        plan,
    };
    let journal = measure(Journal::open(out, header)?)?;
    let results = results(&journal.header, &journal.entries)?;
    results.write(out)?;
    journal.finish()?;
    print(out, &results);
    Ok(())
}

/// Makes the runs that are missing. What is compared is measured within seconds: for each shape all mechanisms take turns,
/// every other time in the other order.
fn measure(mut journal: Journal<Plan, Entry>) -> Result<Journal<Plan, Entry>, Failure> {
    let plan = journal.header.plan.clone();
    let each = plan.length.warm_up + plan.length.measured + AROUND;
    let count = plan.shapes.len() * plan.mechanisms.len() * RUNS as usize;
    let time = each * u32::try_from(count).unwrap_or(u32::MAX);
    eprintln!("it will take about {} on {} cores", words(time), plan.cores);
    if !journal.entries.is_empty() {
        eprintln!("{} runs of it are done", journal.entries.len());
    }
    let scratch = Scratch::new()?;
    let bar = ProgressBar::new(millis(time));
    let style = ProgressStyle::with_template("{wide_msg} {bar:24} {percent:>3} %, {eta} left");
    bar.set_style(style.doing("draw a progress bar")?);
    for (shape, run) in plan.shapes.iter().flat_map(|shape| (0..RUNS).map(move |run| (shape, run)))
    {
        let mut mechanisms = plan.mechanisms.clone();
        if run % 2 == 1 {
            mechanisms.reverse();
        }
        for mechanism in mechanisms {
            let &(bytes, nodes) = shape;
            let point = Point { protocol: plan.protocol, mechanism, bytes, nodes };
            let is_done =
                journal.entries.iter().any(|entry| (entry.point, entry.run) == (point, run));
            if !is_done && point.limit().is_none() {
                bar.set_message(format!("{}, {bytes} bytes", mechanism.about().name));
                let found = point
                    .run(plan.length, plan.placed.clone(), &scratch.0)
                    .map_err(|failure| failure.message);
                // The result of an interrupted run is not valid.
                if interrupt::is_wanted() {
                    bar.abandon();
                    return Err(interrupt::failure());
                }
                journal.add(Entry { point, run, found })?;
            }
            bar.inc(millis(each));
        }
    }
    bar.finish_and_clear();
    Ok(journal)
}

fn results(header: &Header<Plan>, entries: &[Entry]) -> Result<Results, Failure> {
    let plan = &header.plan;
    let mechanisms = plan.mechanisms.iter().map(|&id| collect::mechanism(id));
    let points = plan.shapes.iter().flat_map(|&(bytes, nodes)| {
        plan.mechanisms.iter().map(move |&mechanism| Point {
            protocol: plan.protocol,
            mechanism,
            bytes,
            nodes,
        })
    });
    let mut nodes: Vec<u32> = plan.shapes.iter().map(|(_, nodes)| *nodes).collect();
    nodes.sort_unstable();
    nodes.dedup();
    Ok(Results {
        format: FORMAT,
        study: plan.protocol,
        version: header.version.clone(),
        began: header.began.clone(),
        effort: match plan.effort {
            Effort::Quick => "quick",
            Effort::Default => "default",
            Effort::Full => "full",
        }
        .to_owned(),
        run_s: plan.length.measured.as_secs_f64(),
        requests: plan.length.requests,
        runs: RUNS,
        machine: header.machine.clone(),
        mechanisms: mechanisms.collect(),
        points: points.map(|point| point_of(point, plan, entries)).collect(),
        placed: plan.placed.clone(),
        model: model::count_flow(plan.protocol, &nodes)?,
    })
}

#[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
fn point_of(point: Point, plan: &Plan, entries: &[Entry]) -> PointOf {
    let (mut each_ns, mut failures) = (Vec::new(), Vec::new());
    for entry in entries.iter().filter(|entry| entry.point == point) {
        match &entry.found {
            Ok(report) => each_ns.push(report.elapsed_ns as f64 / report.done.max(1) as f64),
            Err(failure) => failures.push(failure.clone()),
        }
    }
    let cores = match &plan.placed {
        Some(placed) => placed.iter().collect::<BTreeSet<_>>().len(),
        None => plan.cores,
    };
    // The study ran it, so a limit that is found now did not apply where and when it ran.
    let impossible = if each_ns.is_empty() { point.limit() } else { None };
    PointOf {
        mechanism: point.mechanism.text(),
        bytes: point.bytes as u64,
        nodes: point.nodes,
        processes: point.processes(),
        oversubscribed: point.processes() > cores,
        impossible,
        failures,
        each_ns,
    }
}

impl Study for Results {
    const NAMES: &[&str] = &["paxos", "checkpoint"];
    const FORMAT: u32 = FORMAT;

    fn table(&self) -> Result<String, Failure> {
        table(self)
    }

    fn page(&self) -> Result<String, PageError> {
        page::render(self)
    }

    fn plots(&self) -> Result<Vec<(String, String)>, PageError> {
        page::plots(self)
    }

    fn print(&self, directory: &Path) {
        print(directory, self);
    }
}

fn table(results: &Results) -> Result<String, Failure> {
    let mut table = csv::Writer::from_writer(Vec::new());
    let heads =
        ["mechanism", "bytes", "nodes", "oversubscribed", "each_ns", "min", "max", "why_not"];
    table.write_record(heads).doing("write a table")?;
    for point in &results.points {
        let spread = point.spread();
        let number = |of: fn(&corewire_harness::statistics::Spread) -> f64| {
            spread.as_ref().map_or_else(String::new, |it| format!("{:.1}", of(it)))
        };
        let reason = point.impossible.iter().chain(&point.failures).next().cloned();
        let row = [
            point.mechanism.clone(),
            point.bytes.to_string(),
            point.nodes.to_string(),
            point.oversubscribed.to_string(),
            number(|it| it.median),
            number(|it| it.min),
            number(|it| it.max),
            reason.unwrap_or_default(),
        ];
        table.write_record(row).doing("write a table")?;
    }
    let bytes = table.into_inner().doing("write a table")?;
    String::from_utf8(bytes).doing("write a table")
}

/// Prints the main figures, and where the page is.
fn print(directory: &Path, results: &Results) {
    let what = match results.study {
        Protocol::Paxos => "decisions",
        Protocol::Checkpoint => "snapshots",
    };
    println!("times as many {what} as Barrelfish MP, as published:");
    let others: Vec<_> = results.mechanisms.iter().filter(|it| it.id != "barrelfish_mp").collect();
    let names: String = others.iter().map(|it| format!("{:>20}", it.id)).collect();
    println!("{:>10} {:>5}{names}", "bytes", "nodes");
    for nodes in results.nodes() {
        for bytes in results.sizes() {
            let cell = |id: &str| {
                let found = results.factor(id, "barrelfish_mp", bytes, nodes);
                found.map_or_else(|| format!("{:>20}", "-"), |it| format!("{it:>20.2}"))
            };
            if results.points.iter().any(|it| (it.bytes, it.nodes) == (bytes, nodes)) {
                let cells: String = others.iter().map(|it| cell(&it.id)).collect();
                println!("{bytes:>10} {nodes:>5}{cells}");
            }
        }
    }
    println!("\n{}", directory.join("report.html").display());
}
