//! `corewire study active`: the experiments of Active Zero-copy (papers/004, section 4), and what that paper argues
//! without a measurement.

mod peer;
mod refusals;
pub(crate) mod results;
mod slow;
mod styles;

use std::path::{Path, PathBuf};
use std::time::Duration;

use corewire_harness::places::Places;
use corewire_harness::setup::Setup;
use corewire_harness::statistics::{Spread, median};
use corewire_os::processor;
use indicatif::{ProgressBar, ProgressStyle};

pub(crate) use peer::ROLE;
use peer::{Order, Repeat, Report, Shape};
use results::{About, FORMAT, Found, Point, Refusals, Results, STUDY, Slow, find, sizes};
pub(crate) use slow::COMPUTES;
use styles::Style;

use crate::study::failure::{Doing, Failure};
use crate::study::output::{self, Study};
use crate::study::program::PROGRAM;
use crate::study::report::{PageError, active as page};
use crate::study::zimp::Scratch;
use crate::study::{interrupt, machine};

const EXAMPLES: &str = "\
Examples:
  corewire study active --quick --out active
  corewire study active --out active

Writes DIR/report.html, a page to look at, DIR/results.json, which docs/study.md describes, and the
points as points.csv.";

/// Repeat the experiments of Active Zero-copy: messages without posted buffers, and refusals.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Directory for the results; created if it does not exist
    #[arg(long, value_name = "DIR", default_value = "corewire-study-active")]
    out: PathBuf,
    /// Fewer sizes, and shorter: about ten seconds
    #[arg(long)]
    quick: bool,
}

/// The styles of the paper's figures.
const COMPARED: [Style; 4] = [Style::Active, Style::ActiveLoan, Style::Passive, Style::PrePosted];
/// Where a message may arrive.
const ARRIVALS: [Style; 5] =
    [Style::Active, Style::ActiveLoan, Style::Pooled, Style::Allocated, Style::Scatter];
const ALL: [Style; 7] = [
    Style::Active,
    Style::ActiveLoan,
    Style::Passive,
    Style::PrePosted,
    Style::Pooled,
    Style::Allocated,
    Style::Scatter,
];
/// The longest message of Figure 4.
const LONGEST: usize = 4 << 20;
const QUICK_SIZES: [usize; 8] = [8, 64, 512, 4096, 32 << 10, 256 << 10, 1 << 20, LONGEST];
/// The limits of Figure 5.
const LIMITS: [usize; 6] = [48, 1024, 4096, 16 << 10, 64 << 10, 1 << 20];
const ARRIVAL_SIZES: [usize; 5] = [1024, 4096, 16 << 10, 64 << 10, 1 << 20];
/// Numbers of posted buffers.
const BUFFERS: [usize; 3] = [4, 16, 64];
const TIME_LIMITS: [Duration; 2] = [Duration::from_micros(100), Duration::from_millis(1)];
/// Time to start and to end a run, with the slow receivers and the refusals.
const AROUND: Duration = Duration::from_millis(900);

/// What is measured.
struct Plan {
    effort: &'static str,
    runs: u32,
    /// Measuring time of each shape in each run.
    measured: Duration,
    shapes: Vec<Shape>,
    slow: Vec<slow::Shape>,
}

impl Plan {
    fn new(is_quick: bool) -> Self {
        let (effort, runs, milliseconds) =
            if is_quick { ("quick", 3, 4) } else { ("default", 7, 20) };
        let powers = (3..).map(|power| 1 << power).take_while(|&size| size <= LONGEST);
        let sizes = if is_quick { QUICK_SIZES.to_vec() } else { powers.collect() };
        let mut shapes = Vec::new();
        let mut add = |repeat, sizes: &[usize], styles: &[Style]| {
            for &bytes in sizes {
                for is_touched in [false, true] {
                    let of = |&style: &Style| Shape { repeat, style, bytes, is_touched };
                    shapes.extend(styles.iter().map(of));
                }
            }
        };
        add(Repeat::Trips, &sizes, &COMPARED);
        add(Repeat::Random, &LIMITS, &COMPARED);
        add(Repeat::Fixed, &ARRIVAL_SIZES, &ARRIVALS);
        let (repeat, style) = (Repeat::Fixed, Style::Passive);
        shapes.push(Shape { repeat, style, bytes: 8, is_touched: false });
        let ways = [slow::Way::PrePosted, slow::Way::Grants];
        let slow = BUFFERS
            .iter()
            .flat_map(|&buffers| ways.map(|way| slow::Shape { way, buffers }))
            .collect();
        Self { effort, runs, measured: Duration::from_millis(milliseconds), shapes, slow }
    }

    /// Approximate time of one run. Long messages take longer than their planned time.
    fn time_of_run(&self) -> Duration {
        AROUND + self.measured.mul_f64(1.6) * u32::try_from(self.shapes.len()).unwrap_or(u32::MAX)
    }
}

/// Runs the command.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    output::make(&args.out)?;
    interrupt::prepare()?;
    let plan = Plan::new(args.quick);
    let cpus = processor::allowed().doing("ask for processors")?;
    let about = |&style: &Style| About {
        id: style.text(),
        name: style.name().to_owned(),
        settings: style.settings(),
    };
    let refusals = [("try_send", None), ("try_loan", None)].into_iter();
    let timeouts = TIME_LIMITS.iter().map(|limit| ("send_timeout", Some(limit.as_nanos())));
    let refusals = refusals.chain(timeouts).map(|(call, limit)| Refusals {
        call: call.to_owned(),
        limit_ns: limit.and_then(|limit| u64::try_from(limit).ok()),
        knows_ns: Vec::new(),
    });
    let slow = plan.slow.iter().map(|shape| Slow {
        way: match shape.way {
            slow::Way::PrePosted => "pre_posted",
            slow::Way::Grants => "grants",
        }
        .to_owned(),
        buffers: shape.buffers as u64,
        memory_bytes: shape.memory_bytes() as u64,
        runs: Vec::new(),
    });
    let mut results = Results {
        format: FORMAT,
        study: STUDY.to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        began: machine::now()?,
        effort: plan.effort.to_owned(),
        run_s: plan.measured.as_secs_f64(),
        runs: plan.runs,
        machine: machine::describe("not used".to_owned())?,
        oversubscribed: cpus.len() < 2,
        styles: ALL.iter().map(about).collect(),
        failures: Vec::new(),
        trips: points(&plan, Repeat::Trips),
        transactions: points(&plan, Repeat::Random),
        arrivals: points(&plan, Repeat::Fixed),
        slow: slow.collect(),
        refusals: refusals.collect(),
        passive_round_trips: Vec::new(),
        ratios: Vec::new(),
    };
    let scratch = Scratch::new()?;
    measure(&plan, &scratch.0, &mut results)?;
    results.conclude();
    results.write(&args.out)?;
    print(&args.out, &results);
    Ok(())
}

/// The shapes of a figure in their order, without runs yet.
fn points(plan: &Plan, repeat: Repeat) -> Vec<Point> {
    let shapes = plan.shapes.iter().filter(|shape| shape.repeat == repeat);
    let point = |shape: &Shape| Point {
        style: shape.style.text(),
        bytes: shape.bytes as u64,
        touched: shape.is_touched,
        runs: Vec::new(),
    };
    shapes.map(point).collect()
}

/// Makes all runs, every other one in the opposite order. Then makes up to as many again, if points lack runs at the
/// most frequent distance of the cores.
fn measure(plan: &Plan, scratch: &Path, results: &mut Results) -> Result<(), Failure> {
    let time = plan.time_of_run() * plan.runs;
    eprintln!("it will take about {} seconds", time.as_secs().max(1));
    let bar = ProgressBar::new(plan.runs.into());
    let style = ProgressStyle::with_template("{wide_msg} {bar:24} {percent:>3} %, {eta} left");
    bar.set_style(style.doing("draw a progress bar")?);
    for run in 0..2 * plan.runs {
        if run >= plan.runs {
            if !results.lacks_runs() {
                break;
            }
            bar.inc_length(1);
        }
        let found = run_once(plan, run % 2 == 1, scratch);
        if interrupt::is_wanted() {
            bar.abandon();
            return Err(interrupt::loss());
        }
        match found {
            Ok(report) => add(results, report, run),
            Err(failure) => results.failures.push(failure.message),
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    Ok(())
}

/// Makes one run: all shapes, between two processes. The report is in the order of the plan.
fn run_once(plan: &Plan, is_reversed: bool, scratch: &Path) -> Result<Report, Failure> {
    let turn = |shapes: &mut Vec<Shape>| {
        if is_reversed {
            shapes.reverse();
        }
    };
    let mut shapes = plan.shapes.clone();
    turn(&mut shapes);
    let (slow, time_limits) = (plan.slow.clone(), TIME_LIMITS.to_vec());
    let order = Order { shapes, measured: plan.measured, slow, time_limits };
    let setup = Setup::new(PROGRAM, 2).places(Places::Apart).time(plan.time_of_run() * 4);
    let mut crew = setup.scratch(scratch).start(&ROLE, |_| order.clone())?;
    crew.await_ready()?;
    crew.go();
    let report: Option<Report> = crew.reports()?.into_iter().next();
    let mut report = report.ok_or_else(|| Failure::other("nobody reported"))?;
    if report.found.len() != plan.shapes.len() || report.slow.len() != plan.slow.len() {
        return Err(Failure::other("a report is not whole"));
    }
    if is_reversed {
        report.found.reverse();
    }
    Ok(report)
}

/// Adds a run to the results.
fn add(results: &mut Results, report: Report, run: u32) {
    let Results { trips, transactions, arrivals, .. } = results;
    let points = trips.iter_mut().chain(transactions).chain(arrivals);
    points.zip(report.found).for_each(|(point, found)| point.runs.push(Found { run, ..found }));
    results.slow.iter_mut().zip(report.slow).for_each(|(slow, found)| slow.runs.push(found));
    let refusals::Found { try_send_ns, try_loan_ns, send_timeout_ns } = report.refusals;
    let times = [try_send_ns, try_loan_ns].into_iter().chain(send_timeout_ns);
    results.refusals.iter_mut().zip(times).for_each(|(refusal, time)| refusal.knows_ns.push(time));
}

impl Study for Results {
    const NAMES: &[&str] = &[STUDY];
    const FORMAT: u32 = FORMAT;

    // There are so many points that spaces would make it a file of a megabyte.
    fn json(&self) -> serde_json::Result<String> {
        serde_json::to_string(self)
    }

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

/// The medians at the most frequent distance of the cores.
fn table(results: &Results) -> Result<String, Failure> {
    let mut table = csv::Writer::from_writer(Vec::new());
    let heads = [
        "figure",
        "style",
        "bytes",
        "touched",
        "runs",
        "ns_p50",
        "min",
        "max",
        "in_place",
        "copied_bytes",
    ];
    table.write_record(heads).doing("write a table")?;
    let here = results.at_most_frequent();
    let figures = [
        ("trips", &here.trips),
        ("transactions", &here.transactions),
        ("arrivals", &here.arrivals),
    ];
    for (figure, point) in
        figures.iter().flat_map(|(name, all)| all.iter().map(move |it| (name, it)))
    {
        let Some(Spread { median: middle, min, max }) = point.p50_ns() else { continue };
        let of = |of: fn(&Found) -> f64| median(point.runs.iter().map(of));
        let number = |figure: f64| format!("{figure:.1}");
        let row = [
            (*figure).to_owned(),
            point.style.clone(),
            point.bytes.to_string(),
            point.touched.to_string(),
            point.runs.len().to_string(),
            number(middle),
            number(min),
            number(max),
            format!("{:.3}", of(|it| it.in_place)),
            number(of(|it| it.copied_bytes)),
        ];
        table.write_record(row).doing("write a table")?;
    }
    let bytes = table.into_inner().doing("write a table")?;
    String::from_utf8(bytes).doing("write a table")
}

/// Prints the figures, and where the page is.
fn print(directory: &Path, results: &Results) {
    let here = results.at_most_frequent();
    for (what, figure, points, scale) in [
        (
            "thousand transactions per second, random sizes up to",
            "transactions",
            &here.transactions,
            1e6,
        ),
        ("MB per second one way, by size", "trips", &here.trips, 2e3),
    ] {
        for touched in [false, true] {
            let data = if touched { "written before, read after" } else { "data untouched" };
            println!("{what}, {data}:");
            let sizes = sizes(points);
            let heads: String = sizes.iter().map(|&size| format!("{size:>9}")).collect();
            println!("{:<26}{heads}", "");
            for style in COMPARED {
                let cell = |&bytes: &u64| {
                    let time = find(points, &style.text(), bytes, touched)?.p50_ns()?.median;
                    #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
                    let bytes = if figure == "trips" { bytes as f64 } else { 1.0 };
                    Some(bytes * scale / time)
                };
                println!(
                    "{:<26}{}",
                    style.name(),
                    sizes.iter().map(|it| column(cell(it), 1)).collect::<String>()
                );
            }
            for style in [Style::Active, Style::ActiveLoan, Style::PrePosted] {
                let ratio = |&bytes: &u64| {
                    Some(results.ratio(figure, &style.text(), bytes, touched)?.median)
                };
                let name = format!("  {} / passive", style.name());
                println!(
                    "{name:<26}{}",
                    sizes.iter().map(|it| column(ratio(it), 2)).collect::<String>()
                );
            }
            println!();
        }
    }
    print_rest(results);
    results.failures.iter().for_each(|why| println!("  a run failed: {why}"));
    println!("\n{}", directory.join("report.html").display());
}

fn column(figure: Option<f64>, digits: usize) -> String {
    figure.map_or_else(|| format!("{:>9}", "-"), |figure| format!("{figure:>9.digits$}"))
}

fn print_rest(results: &Results) {
    if let Some(Spread { median, min, max }) =
        Spread::of(results.passive_round_trips.iter().copied())
    {
        println!(
            "a passive transaction of 8 B: {median:.2} raw round trips ({min:.2} to {max:.2})"
        );
    }
    println!("\nbursts to a receiver that computes for {COMPUTES:?} after each message:");
    println!("{:<26}{:>12}{:>12}{:>14}{:>12}", "", "accepted", "KiB", "blocked us", "msg/s");
    for slow in &results.slow {
        let of = |of: fn(&results::SlowFound) -> f64| median(slow.runs.iter().map(of));
        #[expect(clippy::cast_precision_loss, reason = "few messages")]
        let rate = of(|it| it.messages as f64 * 1e9 / it.done_ns);
        println!(
            "{:<26}{:>12.0}{:>12.0}{:>14.0}{:>12.0}",
            format!("{}, {} KiB", slow.way.replace('_', "-"), slow.memory_bytes >> 10),
            of(|it| it.accepted_messages),
            of(|it| it.accepted_bytes) / 1024.0,
            of(|it| it.blocked_ns) / 1e3,
            rate
        );
    }
    println!("\nuntil the sender knows that there is no room, ns:");
    for refusal in &results.refusals {
        let knows = median(refusal.knows_ns.iter().copied());
        let limit =
            refusal.limit_ns.map_or(String::new(), |limit| format!(" of {} us", limit / 1000));
        println!("{:<26}{knows:>12.0}", format!("{}{limit}", refusal.call));
    }
}
