//! `corewire study zimp`: the micro-benchmark of ZIMP (papers/000, section IV-B), with additional
//! mechanisms and measurements.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::ValueEnum;
use corewire_os::{processor, random_u128};
use indicatif::{ProgressBar, ProgressStyle};

use crate::study::failure::{Doing, Failure};
use crate::study::job::Job;
use crate::study::journal::{Entry, Header, Journal};
use crate::study::mechanisms::{Id, raise_queue_limits};
use crate::study::plan::{Effort, Plan, Wishes};
use crate::study::results::Run;
use crate::study::worker::Report;
use crate::study::{collect, count, interrupt, machine, output, system_call};

const EXAMPLES: &str = "\
Examples:
  corewire study zimp --quick --out zimp
  corewire study zimp --out zimp --mechanisms zimp,corewire_copy --sizes 1,64,4096

Writes DIR/report.html, a page to look at, DIR/results.json, which docs/study.md describes, and the
same figures as points.csv and latencies.csv. What is measured is kept in DIR/progress.jsonl until
all is: if the study is interrupted, the same command goes on.";

/// Repeat ZIMP's micro-benchmark: every mechanism, by size and number of receivers.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Directory for the results; created if it does not exist
    #[arg(long, value_name = "DIR", default_value = "corewire-study-zimp")]
    out: PathBuf,
    /// All sizes for one receiver, two sizes for more receivers: about 3 minutes
    #[arg(long)]
    quick: bool,
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
    #[arg(value_parser = clap::value_parser!(u64).range(1..=1 << 30))]
    sizes: Vec<u64>,
    /// Measure only these numbers of receivers
    #[arg(long, value_name = "COUNTS", value_delimiter = ',')]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=255))]
    receivers: Vec<u32>,
}

/// Runs the command.
pub(crate) fn run(args: Args) -> Result<(), Failure> {
    let effort = match args {
        Args { quick: true, .. } => Effort::Quick,
        Args { full: true, .. } => Effort::Full,
        _ => Effort::Default,
    };
    let bytes = |&size: &u64| usize::try_from(size).doing("make such long messages");
    let wishes = Wishes {
        large: args.large,
        mechanisms: args.mechanisms,
        sizes: args.sizes.iter().map(bytes).collect::<Result<_, _>>()?,
        receivers: args.receivers,
    };
    output::make(&args.out)?;
    interrupt::prepare()?;
    let cores = processor::allowed().doing("ask for processors")?.len();
    let plan = Plan::new(effort, wishes, Id::value_variants(), cores);
    // The limits allow the longest message. From here on they apply to this study only.
    let longest = plan.shapes.iter().map(|shape| shape.bytes).max().unwrap_or_default();
    let queue_limits = raise_queue_limits(longest as u64);
    let header = Header {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        began: machine::now()?,
        machine: machine::describe(queue_limits)?,
        plan,
    };
    let study = Study::begin(&args.out, header)?;
    let journal = study.measure()?;
    let results = collect::results(&journal.header, &journal.entries)?;
    output::write(&args.out, &results)?;
    journal.finish()?;
    output::print(&args.out, &results);
    Ok(())
}

/// A study in progress.
struct Study {
    journal: Journal,
    scratch: Scratch,
    bar: ProgressBar,
}

/// A directory for sockets and other temporary files, removed at the end.
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

impl Study {
    fn begin(out: &Path, header: Header) -> Result<Self, Failure> {
        let journal = Journal::open(out, header)?;
        let scratch = Scratch::new()?;
        let plan = &journal.header.plan;
        let (time, done) = (plan.time(), journal.entries.len());
        eprintln!("it will take about {} on {} cores", words(time), plan.cores);
        if done > 0 {
            eprintln!("{done} runs of it are done");
        }
        let bar = ProgressBar::new(millis(time));
        let style = ProgressStyle::with_template("{wide_msg} {bar:24} {percent:>3} %, {eta} left");
        bar.set_style(style.doing("draw a progress bar")?);
        Ok(Self { journal, scratch, bar })
    }

    /// Makes the runs that are missing.
    fn measure(mut self) -> Result<Journal, Failure> {
        let plan = self.journal.header.plan.clone();
        for (job, run) in plan.streams() {
            let found = |entry: &Entry| {
                matches!(entry, Entry::Stream { mechanism, shape, run: other, .. }
                    if (*mechanism, *shape, *other) == (job.mechanism, job.shape, run))
            };
            self.once(&plan, job, found, |study| Entry::Stream {
                mechanism: job.mechanism,
                shape: job.shape,
                run,
                found: study.crew(job).map(|reports| summary(&reports, job)),
            })?;
        }
        for (job, run) in plan.round_trips() {
            let bytes = job.shape.bytes;
            let found = |entry: &Entry| {
                matches!(entry, Entry::RoundTrip { mechanism, bytes: size, run: other, .. }
                    if (*mechanism, *size, *other) == (job.mechanism, bytes, run))
            };
            self.once(&plan, job, found, |study| Entry::RoundTrip {
                mechanism: job.mechanism,
                bytes,
                run,
                found: study.crew(job).map(|reports| [reports[0].p50_ns, reports[0].p99_ns]),
            })?;
        }
        for job in plan.counts() {
            let found = |entry: &Entry| {
                matches!(entry, Entry::Count { mechanism, shape, .. }
                    if (*mechanism, *shape) == (job.mechanism, job.shape))
            };
            self.once(&plan, job, found, |study| Entry::Count {
                mechanism: job.mechanism,
                shape: job.shape,
                found: count::count(job, &study.scratch.0).map_err(|failure| failure.message),
            })?;
        }
        if !self.journal.entries.iter().any(|entry| matches!(entry, Entry::SystemCall(_))) {
            self.journal.add(Entry::SystemCall(system_call::measure()?))?;
        }
        self.bar.finish_and_clear();
        Ok(self.journal)
    }

    /// Makes a run, unless it is done already or impossible.
    fn once(
        &mut self,
        plan: &Plan,
        job: Job,
        is_it: impl FnMut(&Entry) -> bool,
        measure: impl FnOnce(&Self) -> Entry,
    ) -> Result<(), Failure> {
        let is_done = self.journal.entries.iter().any(is_it);
        if !is_done && job.mechanism.limit(job.shape).is_none() {
            let name = job.mechanism.about().name;
            self.bar.set_message(format!("{name}, {} bytes", job.shape.bytes));
            let entry = measure(self);
            // The result of an interrupted run is not valid.
            if interrupt::is_wanted() {
                self.bar.abandon();
                return Err(interrupt::failure());
            }
            self.journal.add(entry)?;
        }
        self.bar.inc(millis(plan.time_of(&job)));
        Ok(())
    }

    /// Runs a job's processes.
    fn crew(&self, job: Job) -> Result<Vec<Report>, String> {
        let run = || {
            let crew = job.start(&self.scratch.0)?;
            crew.go();
            crew.reports()
        };
        run().map_err(|failure| failure.message)
    }
}

/// The figures of a run of throughput.
#[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
pub(crate) fn summary(reports: &[Report], job: Job) -> Run {
    let (senders, receivers) = reports.split_at(job.shape.senders as usize);
    let sum = |some: &[Report], of: fn(&Report) -> u64| some.iter().map(of).sum::<u64>();
    let (sent, received) = (sum(senders, |it| it.messages), sum(receivers, |it| it.messages));
    let rate = |it: &Report| it.messages as f64 / (it.elapsed_ns.max(1) as f64 / 1e9);
    let rates: f64 = receivers.iter().map(rate).sum();
    let counted = |of: fn(&Report) -> Option<u64>| {
        let all: Option<u64> = reports.iter().map(of).sum();
        all.map(|all| all as f64 / (received.max(1) as f64 * job.shape.bytes as f64))
    };
    Run {
        messages_per_s: rates / receivers.len().max(1) as f64,
        sent,
        lost: (sent * receivers.len() as u64).saturating_sub(received),
        sender_cpu_ns: sum(senders, |it| it.cpu_ns) as f64 / sent.max(1) as f64,
        receiver_cpu_ns: sum(receivers, |it| it.cpu_ns) as f64 / received.max(1) as f64,
        instructions_per_byte: counted(|it| it.instructions),
        cache_misses_per_byte: counted(|it| it.cache_misses),
    }
}

pub(crate) fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// A time for display.
pub(crate) fn words(time: Duration) -> String {
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

    #[test]
    fn times_are_said_in_units_that_fit() {
        let said = [0, 90, 150, 10_000, 400_000].map(|s| words(Duration::from_secs(s)));
        assert_eq!(said, ["1 seconds", "90 seconds", "3 minutes", "3 hours", "5 days"]);
    }
}
