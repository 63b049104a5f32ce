//! `corewire study active`: the experiments of Active Zero-copy (section 4), and what that paper argues
//! without a measurement.

mod page;
mod peer;
mod refusals;
pub(crate) mod results;
mod slow;
mod styles;

use std::path::Path;
use std::time::Duration;

use clap::ValueEnum;
use corewire_harness::places::Places;
use corewire_harness::setup::Setup;
use serde::{Deserialize, Serialize};

pub(crate) use peer::ROLE;
use peer::{Report, Shape};
use results::{Active, Case, Found, Point, Refusals, Repeat, Slow};
use styles::Style;

use super::distances::Lines;
use super::program::PROGRAM;
use super::results::{About, Machine};
use super::runner::{self, Common, Effort, Entry, Group};
use crate::study::failure::Failure;

const EXAMPLES: &str = "\
Examples:
  corewire study active --quick --out active
  corewire study active --out active

Writes DIR/report.html, a page to look at, DIR/results.json, which docs/study.md describes, and the
points as points.csv. With --quick there are fewer sizes: about ten seconds.";

/// Repeat the experiments of Active Zero-copy: messages without posted buffers, and refusals.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    common: Common,
}

/// The longest message of Figure 4.
const LONGEST: usize = 4 << 20;
const QUICK_SIZES: [usize; 8] = [8, 64, 512, 4096, 32 << 10, 256 << 10, 1 << 20, LONGEST];
/// The limits of Figure 5.
const LIMITS: [usize; 6] = [48, 1024, 4096, 16 << 10, 64 << 10, 1 << 20];
const ARRIVAL_SIZES: [usize; 5] = [1024, 4096, 16 << 10, 64 << 10, 1 << 20];
/// Time to start and to end a run, with the slow receivers and the refusals.
const AROUND: Duration = Duration::from_millis(900);

/// What is measured, and the order of each process.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Study {
    effort: Effort,
    runs: u32,
    /// Measuring time of each shape in each run.
    measured: Duration,
    shapes: Vec<Shape>,
}

/// Runs the command.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    runner::run(Study::new(args.common.effort()), &args.common)
}

impl Study {
    fn new(effort: Effort) -> Self {
        let powers = (3..).map(|power| 1 << power).take_while(|&size| size <= LONGEST);
        let (runs, milliseconds, sizes) = match effort {
            Effort::Quick => (3, 4, QUICK_SIZES.to_vec()),
            _ => (7, 20, powers.collect()),
        };
        let mut shapes = Vec::new();
        for (repeat, sizes) in [
            (Repeat::Trips, &sizes[..]),
            (Repeat::Transactions, &LIMITS),
            (Repeat::Arrivals, &ARRIVAL_SIZES),
        ] {
            let kinds = sizes.iter().flat_map(|&bytes| [(bytes, false), (bytes, true)]);
            shapes.extend(kinds.flat_map(|(bytes, touched)| {
                let case = move |&style: &Style| Case { style, bytes, touched };
                repeat.styles().iter().map(move |style| Shape { repeat, case: case(style) })
            }));
        }
        let case = Case { style: Style::Passive, bytes: 8, touched: false };
        shapes.push(Shape { repeat: Repeat::Arrivals, case });
        Self { effort, runs, measured: Duration::from_millis(milliseconds), shapes }
    }
}

impl runner::Study for Study {
    type Body = Active;
    /// All shapes, between two processes.
    type Job = ();
    type Found = Report;

    fn name(&self) -> &'static str {
        "active"
    }

    fn effort(&self) -> Effort {
        self.effort
    }

    fn groups(&self) -> Vec<Group<()>> {
        vec![Group { jobs: vec![()], runs: self.runs }]
    }

    // Long messages take longer than their planned time.
    fn time_of(&self, _: &()) -> Duration {
        AROUND + self.measured.mul_f64(1.6) * u32::try_from(self.shapes.len()).unwrap_or(u32::MAX)
    }

    fn words(&self, _: &()) -> String {
        "all styles".to_owned()
    }

    // The two processes time lines between the shapes.
    fn watched(&self, _: &()) -> Result<Vec<usize>, Failure> {
        Ok(Vec::new())
    }

    /// All shapes, in every other run in the opposite order. The report is in the order of the plan.
    fn run(&self, job: &(), run: u32, scratch: &Path) -> Result<Report, Failure> {
        let (mut order, is_reversed) = (self.clone(), run % 2 == 1);
        if is_reversed {
            order.shapes.reverse();
        }
        let setup = Setup::new(PROGRAM, 2).places(Places::Apart).time(self.time_of(job) * 4);
        let crew = setup.scratch(scratch).start(&ROLE, |_| order.clone())?;
        let mut report: Report = crew.first_report()?;
        if is_reversed {
            report.found.reverse();
        }
        let is_whole = report.found.len() == self.shapes.len()
            && report.slow.len() == slow::SHAPES.len()
            && report.refusals.len() == refusals::CALLS.len();
        if is_whole { Ok(report) } else { Err(Failure::other("a report is not whole")) }
    }

    fn lines(report: &Report) -> Vec<Lines> {
        report.found.iter().map(|found| found.line_ns).collect()
    }

    fn body(&self, machine: &Machine, done: &[Entry<Self>]) -> Result<Active, Failure> {
        let reports = || done.iter().filter_map(|it| Some((it.run, it.found.as_ref().ok()?)));
        let points = |repeat| {
            let shapes = self.shapes.iter().enumerate().filter(|(_, it)| it.repeat == repeat);
            let point = |(at, shape): (usize, &Shape)| {
                let of =
                    |(run, report): (u32, &Report)| Some(Found { run, ..*report.found.get(at)? });
                Point { case: shape.case, runs: reports().filter_map(of).collect() }
            };
            shapes.map(point).collect()
        };
        let slow = slow::SHAPES.into_iter().enumerate().map(|(at, shape)| Slow {
            shape,
            memory_bytes: shape.memory_bytes() as u64,
            runs: reports().filter_map(|(_, report)| report.slow.get(at).copied()).collect(),
        });
        let refusals =
            refusals::CALLS.into_iter().enumerate().map(|(at, (call, limit))| Refusals {
                call: call.to_owned(),
                limit_ns: limit.and_then(|limit| u64::try_from(limit.as_nanos()).ok()),
                knows_ns: reports().filter_map(|(_, it)| it.refusals.get(at).copied()).collect(),
            });
        let about = |style: &Style| About::new(style.text(), style.name(), style.settings(), None);
        let found = Active {
            run_s: self.measured.as_secs_f64(),
            runs: self.runs,
            oversubscribed: machine.cores < 2,
            styles: Style::value_variants().iter().map(about).collect(),
            failures: done.iter().filter_map(|it| it.found.as_ref().err().cloned()).collect(),
            trips: points(Repeat::Trips),
            transactions: points(Repeat::Transactions),
            arrivals: points(Repeat::Arrivals),
            slow: slow.collect(),
            refusals: refusals.collect(),
            passive_round_trips: Vec::new(),
            ratios: Vec::new(),
        };
        Ok(found.concluded())
    }
}
