//! `corewire study zimp`: the micro-benchmark of ZIMP (section IV-B), with additional mechanisms and
//! measurements.

pub(crate) mod check;
pub(crate) mod comparison;
mod count;
pub(crate) mod model;
mod page;
pub(crate) mod results;
mod system_call;
#[cfg(test)]
mod tests;
pub(crate) mod worker;

use std::path::Path;
use std::time::Duration;

use clap::ValueEnum;
use corewire_os::processor;
use serde::{Deserialize, Serialize};

use super::mechanisms::{Id, Shape, mechanism, raise_queue_limits};
use super::results::{Machine, sorted};
use super::runner::{self, Common, Effort, Entry, Group};
use crate::study::failure::{Doing, Failure};
use results::{Count, Latency, Point, Run, SystemCall, Zimp};
use worker::{Report, Task, start, summary};

const EXAMPLES: &str = "\
Examples:
  corewire study zimp --quick --out zimp
  corewire study zimp --out zimp --mechanisms zimp,corewire_copy --sizes 1,64,4096

Writes DIR/report.html, a page to look at, DIR/results.json, which docs/study.md describes, and the
same figures as points.csv and latencies.csv. What is measured is kept in DIR/progress.jsonl until
all is: if the study is interrupted, the same command goes on. With --quick all sizes are measured for
one receiver and two sizes for more receivers, in about 3 minutes.";

/// Repeat ZIMP's micro-benchmark: every mechanism, by size and number of receivers.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    common: Common,
    /// As in the paper: two minutes for each point, every number of receivers; takes days
    #[arg(long, conflicts_with = "quick")]
    full: bool,
    /// Also messages of 10 and 100 MiB
    #[arg(long)]
    large: bool,
    /// Measure only these mechanisms
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    mechanisms: Vec<Id>,
    /// Measure only messages of these lengths
    #[arg(long, value_name = "BYTES", value_delimiter = ',')]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1 << 30))]
    sizes: Vec<u32>,
    /// Measure only these numbers of receivers
    #[arg(long, value_name = "COUNTS", value_delimiter = ',')]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=255))]
    receivers: Vec<u32>,
}

/// The paper's sizes, and 48 bytes, the maximum that fits into a slot of corewire.
const SIZES: [usize; 10] = [1, 48, 64, 128, 512, 1 << 10, 4 << 10, 10 << 10, 100 << 10, 1 << 20];
/// Additional sizes with `--large`.
const LARGE_SIZES: [usize; 2] = [10 << 20, 100 << 20];
/// Sizes where not all are measured: a message of one line, and one of one page.
const FEW_SIZES: [usize; 2] = [64, 4 << 10];
/// Numbers of receivers that are measured on every machine, even with fewer cores.
const RECEIVERS: [u32; 4] = [1, 2, 3, 8];
/// Table I: lengths of messages, numbers of receivers.
const COUNTED: [(usize, u32); 4] = [(64, 1), (64, 3), (4 << 10, 1), (100 << 10, 1)];
/// Number of runs of each point.
const RUNS: u32 = 3;
/// Approximate time to start and to end a run.
const AROUND: Duration = Duration::from_millis(60);

/// What is measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Study {
    effort: Effort,
    /// Measuring time of each run of throughput.
    measured: Duration,
    cores: usize,
    mechanisms: Vec<Id>,
    /// Shapes of throughput; for each, all mechanisms take turns.
    streams: Vec<Shape>,
    round_trips: Vec<Shape>,
    /// Shapes of Table I.
    counted: Vec<Shape>,
}

/// A run.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Job {
    Stream(Id, Shape),
    RoundTrip(Id, Shape),
    Count(Id, Shape),
    SystemCall,
}

/// What a run found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Found {
    Stream(Run),
    /// Median and 99th percentile.
    RoundTrip([f64; 2]),
    Count(Count),
    SystemCall(SystemCall),
}

/// Runs the command.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let cores = processor::allowed().doing("ask for processors")?.len();
    runner::run(Study::new(args, cores), &args.common)
}

/// The numbers that are always measured, and some or all of those for which each process has a core.
fn receivers(effort: Effort, cores: usize) -> Vec<u32> {
    let most = u32::try_from(cores.saturating_sub(1)).unwrap_or(u32::MAX);
    let further: Vec<u32> = match effort {
        Effort::Quick => Vec::new(),
        Effort::Default => vec![4, 6, 12, 16, 23, 32, 64, most],
        Effort::Full => (1..=most).collect(),
    };
    let further = further.into_iter().filter(|receivers| (1..=most).contains(receivers));
    sorted(RECEIVERS.into_iter().chain(further))
}

impl Study {
    /// What is asked for, on a machine of `cores` cores.
    fn new(args: &Args, cores: usize) -> Self {
        let (effort, measured) = match (args.common.quick, args.full) {
            (true, _) => (Effort::Quick, Duration::from_millis(120)),
            (_, true) => (Effort::Full, Duration::from_secs(120)),
            _ => (Effort::Default, Duration::from_millis(400)),
        };
        let is_quick = effort == Effort::Quick;
        let mut sizes: Vec<usize> = args.sizes.iter().map(|&size| size as usize).collect();
        if sizes.is_empty() {
            sizes.extend(SIZES);
        }
        if args.large {
            sizes.extend(LARGE_SIZES);
        }
        let sizes = sorted(sizes);
        let few = sizes.iter().copied().filter(|size| FEW_SIZES.contains(size)).collect::<Vec<_>>();
        let few = if few.is_empty() { &sizes } else { &few };
        let some = if is_quick { few } else { &sizes };
        let asked = Some(&args.receivers).filter(|asked| !asked.is_empty()).cloned();
        let shape = |bytes, receivers, senders| Shape { bytes, receivers, senders };
        let mut streams = Vec::new();
        for receivers in asked.unwrap_or_else(|| receivers(effort, cores)) {
            let sizes = if receivers > 1 { some } else { &sizes };
            streams.extend(sizes.iter().map(|&bytes| shape(bytes, receivers, 1)));
        }
        for senders in if is_quick { vec![2] } else { vec![2, 4] } {
            streams.extend(few.iter().map(|&bytes| shape(bytes, 1, senders)));
        }
        let counted = COUNTED.into_iter().filter(|(bytes, _)| sizes.contains(bytes));
        Self {
            effort,
            measured,
            cores,
            mechanisms: match &args.mechanisms[..] {
                [] => Id::value_variants().to_vec(),
                asked => asked.to_vec(),
            },
            streams,
            round_trips: some.iter().map(|&bytes| shape(bytes, 1, 1)).collect(),
            counted: counted.map(|(bytes, receivers)| shape(bytes, receivers, 1)).collect(),
        }
    }

    fn warm_up(&self) -> Duration {
        (self.measured / 5).clamp(Duration::from_millis(20), Duration::from_secs(2))
    }

    /// Every mechanism with each of these shapes.
    fn each(&self, shapes: &[Shape]) -> impl Iterator<Item = (Id, Shape)> {
        shapes.iter().flat_map(|&shape| self.mechanisms.iter().map(move |&id| (id, shape)))
    }

    fn is_oversubscribed(&self, shape: Shape) -> bool {
        (shape.receivers + shape.senders) as usize > self.cores
    }

    fn point(&self, id: Id, shape: Shape, done: &[Entry<Self>]) -> Point {
        let mut point = Point {
            mechanism: id.text(),
            bytes: shape.bytes as u64,
            receivers: shape.receivers,
            senders: shape.senders,
            oversubscribed: self.is_oversubscribed(shape),
            impossible: id.limit(shape),
            failures: Vec::new(),
            runs: Vec::new(),
        };
        for entry in done.iter().filter(|entry| entry.job == Job::Stream(id, shape)) {
            match &entry.found {
                Ok(Found::Stream(run)) => {
                    point.runs.push(Run { line_ns: entry.line_ns, ..run.clone() });
                }
                Ok(_) => {}
                Err(failure) => point.failures.push(failure.clone()),
            }
            // The study ran it, so the limit that is found now did not apply where and when it ran.
            point.impossible = None;
        }
        point
    }

    fn latency(&self, id: Id, shape: Shape, done: &[Entry<Self>]) -> Latency {
        let mut latency = Latency {
            mechanism: id.text(),
            bytes: shape.bytes as u64,
            oversubscribed: self.is_oversubscribed(shape),
            impossible: id.limit(shape),
            p50_ns: Vec::new(),
            p99_ns: Vec::new(),
            line_ns: Vec::new(),
        };
        for entry in done.iter().filter(|entry| entry.job == Job::RoundTrip(id, shape)) {
            match &entry.found {
                Ok(Found::RoundTrip([p50, p99])) => {
                    latency.p50_ns.push(*p50);
                    latency.p99_ns.push(*p99);
                    latency.line_ns.push(entry.line_ns);
                    latency.impossible = None;
                }
                Err(failure) if latency.p50_ns.is_empty() => {
                    latency.impossible = Some(failure.clone());
                }
                _ => {}
            }
        }
        latency
    }
}

/// The count of a mechanism, or why there is none.
fn count_of(id: Id, shape: Shape, done: &[Entry<Study>]) -> Count {
    let entry = done.iter().find(|entry| entry.job == Job::Count(id, shape));
    let why = match entry.map(|entry| &entry.found) {
        Some(Ok(Found::Count(count))) => return count.clone(),
        Some(Err(failure)) => failure.clone(),
        _ => id.limit(shape).unwrap_or_else(|| "not counted".to_owned()),
    };
    let (bytes, receivers) = (shape.bytes as u64, shape.receivers);
    Count { mechanism: id.text(), bytes, receivers, impossible: Some(why), ..Count::default() }
}

impl runner::Study for Study {
    type Body = Zimp;
    type Job = Job;
    type Found = Found;

    fn name(&self) -> &'static str {
        "zimp"
    }

    fn effort(&self) -> Effort {
        self.effort
    }

    /// The limits allow the longest message. They apply to this study only.
    fn prepare(&self) -> Result<String, Failure> {
        let longest = self.streams.iter().map(|shape| shape.bytes).max().unwrap_or_default();
        Ok(raise_queue_limits(longest as u64))
    }

    fn groups(&self) -> Vec<Group<Job>> {
        let possible = |shapes: &[Shape], job: fn(Id, Shape) -> Job| -> Vec<Job> {
            let possible = self.each(shapes).filter(|(id, shape)| id.limit(*shape).is_none());
            possible.map(|(id, shape)| job(id, shape)).collect()
        };
        let in_turn = |shapes: &[Shape], job: fn(Id, Shape) -> Job| -> Vec<Group<Job>> {
            let group = |shape: &Shape| Group { jobs: possible(&[*shape], job), runs: RUNS };
            shapes.iter().map(group).collect()
        };
        let mut groups = in_turn(&self.streams, Job::Stream);
        groups.extend(in_turn(&self.round_trips, Job::RoundTrip));
        groups.push(Group { jobs: possible(&self.counted, Job::Count), runs: 1 });
        groups.push(Group { jobs: vec![Job::SystemCall], runs: 1 });
        groups
    }

    fn time_of(&self, job: &Job) -> Duration {
        match job {
            Job::Stream(..) => self.warm_up() + self.measured + AROUND,
            Job::RoundTrip(..) => self.warm_up() + self.measured / 2 + AROUND,
            Job::Count(..) => 4 * AROUND,
            Job::SystemCall => Duration::from_secs(1),
        }
    }

    fn words(&self, job: &Job) -> String {
        match job {
            Job::Stream(id, shape) | Job::RoundTrip(id, shape) | Job::Count(id, shape) => {
                format!("{}, {} bytes", id.about().name, shape.bytes)
            }
            Job::SystemCall => "a system call".to_owned(),
        }
    }

    // Counts do not depend on where the cores are.
    fn watched(&self, job: &Job) -> Result<Vec<usize>, Failure> {
        let is_timed = matches!(job, Job::Stream(..) | Job::RoundTrip(..));
        let mut cpus = processor::allowed().doing("ask for processors")?;
        cpus.truncate(if is_timed { 2 } else { 0 });
        Ok(cpus)
    }

    fn run(&self, job: &Job, _: u32, scratch: &Path) -> Result<Found, Failure> {
        let (warm_up, measured) = (self.warm_up(), self.measured);
        Ok(match *job {
            Job::Stream(id, shape) => {
                let crew = start(id, shape, Task::Stream { warm_up, measured }, scratch)?;
                Found::Stream(summary(&crew.run()?, shape))
            }
            Job::RoundTrip(id, shape) => {
                let task = Task::PingPong { warm_up, measured: measured / 2 };
                let report: Report = start(id, shape, task, scratch)?.first_report()?;
                Found::RoundTrip([report.p50_ns, report.p99_ns])
            }
            Job::Count(id, shape) => Found::Count(count::count(id, shape, scratch)?),
            Job::SystemCall => Found::SystemCall(system_call::measure()?),
        })
    }

    fn body(&self, _: &Machine, done: &[Entry<Self>]) -> Result<Zimp, Failure> {
        let points = self.each(&self.streams).map(|(id, shape)| self.point(id, shape, done));
        let latencies = self.each(&self.round_trips);
        let latencies = latencies.map(|(id, shape)| self.latency(id, shape, done));
        let counts = self.each(&self.counted).map(|(id, shape)| count_of(id, shape, done));
        let system_call = done.iter().find_map(|entry| match &entry.found {
            Ok(Found::SystemCall(found)) => Some(found.clone()),
            _ => None,
        });
        Ok(Zimp {
            run_s: self.measured.as_secs_f64(),
            runs: RUNS,
            mechanisms: self.mechanisms.iter().map(|&id| mechanism(id)).collect(),
            points: points.collect(),
            latencies: latencies.collect(),
            counts: counts.collect(),
            system_call,
            model: model::count()?,
        })
    }
}
