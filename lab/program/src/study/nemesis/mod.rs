//! `corewire study nemesis`: the intranode experiments of Nemesis (papers/002, section 4.1), with
//! corewire, libfabric and Open MPI beside it.

mod instructions;
mod peer;
mod polling;
pub(crate) mod results;
mod ring;
mod wires;

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::ValueEnum;
use corewire_harness::places::Places;
use corewire_harness::setup::Setup;
use corewire_harness::statistics::Spread;
use corewire_os::processor;
use indicatif::{ProgressBar, ProgressStyle};

pub(crate) use instructions::{Operation, run as count};
pub(crate) use peer::ROLE;
use peer::{COLD_BYTES, Order, Report, Shape};
use results::{Data, FORMAT, Found, Point, Results, STUDY, Wire};
pub(crate) use ring::ROLE as RING_ROLE;
use wires::Id;

use crate::study::failure::{Doing, Failure};
use crate::study::output::{self, Study};
use crate::study::program::PROGRAM;
use crate::study::report::{PageError, nemesis as page};
use crate::study::zimp::Scratch;
use crate::study::{interrupt, machine};

const EXAMPLES: &str = "\
Examples:
  corewire study nemesis --quick --out nemesis
  corewire study nemesis --out nemesis --wires corewire,open_mpi --sizes 0,8,4096

Writes DIR/report.html, a page to look at, DIR/results.json, which docs/study.md describes, and the
points as points.csv. libfabric and Open MPI are measured if their libraries are there.";

/// Repeat Nemesis' experiments: latency, bandwidth, instructions, polling; with libfabric and Open MPI.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Directory for the results; created if it does not exist
    #[arg(long, value_name = "DIR", default_value = "corewire-study-nemesis")]
    out: PathBuf,
    /// Powers of two only, and shorter: about two minutes
    #[arg(long)]
    quick: bool,
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

/// What is measured.
struct Plan {
    effort: &'static str,
    runs: u32,
    /// Measuring time of each shape in each run.
    measured: Duration,
    wires: Vec<Id>,
    shapes: Vec<Shape>,
}

impl Plan {
    fn new(args: &Args) -> Self {
        let (effort, runs, milliseconds) =
            if args.quick { ("quick", 3, 4) } else { ("default", 5, 20) };
        let mut sizes: Vec<usize> = args.sizes.iter().map(|&size| size as usize).collect();
        let mut beside = Vec::new();
        if sizes.is_empty() {
            sizes.extend(SMALL);
            let powers = (0..).map(|power| 1 << power).take_while(|&size| size <= LONGEST);
            for size in powers {
                sizes.push(size);
                if !args.quick && size >= 4 * BESIDE {
                    beside.extend([size - BESIDE, size + BESIDE]);
                }
            }
        }
        let shapes = Data::ALL.into_iter().flat_map(|data| {
            // What is beside a power of two shows in how a message is copied, not in how it is read.
            let beside = if data.touched { &[][..] } else { &beside };
            let mut sizes = [&sizes, beside].concat();
            sizes.sort_unstable();
            sizes.dedup();
            sizes.into_iter().map(move |bytes| Shape { bytes, data })
        });
        let all = || Id::value_variants().to_vec();
        let wires = if args.wires.is_empty() { all() } else { args.wires.clone() };
        let measured = Duration::from_millis(milliseconds);
        Self { effort, runs, measured, wires, shapes: shapes.collect() }
    }

    /// Approximate time of one run of a wire. Long messages take longer than their planned time.
    fn time_of_run(&self) -> Duration {
        AROUND + self.measured.mul_f64(1.4) * u32::try_from(self.shapes.len()).unwrap_or(u32::MAX)
    }
}

/// Runs the command.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    output::make(&args.out)?;
    interrupt::prepare()?;
    let plan = Plan::new(args);
    let cpus = processor::allowed().doing("ask for processors")?;
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
        cold_bytes: COLD_BYTES as u64,
        wires: plan.wires.iter().map(|&id| about(id)).collect(),
        points: points(&plan),
        rings: Vec::new(),
        instructions: Vec::new(),
        instructions_absent: None,
        polling: polling::count()?,
    };
    let scratch = Scratch::new()?;
    measure(&plan, &scratch.0, &mut results)?;
    results.rings = ring::run(&plan.wires, &scratch.0)?;
    match instructions::count(&scratch.0) {
        Ok(counts) => results.instructions = counts,
        Err(why) => results.instructions_absent = Some(why.message),
    }
    if interrupt::is_wanted() {
        return Err(interrupt::loss());
    }
    results.write(&args.out)?;
    print(&args.out, &results);
    Ok(())
}

fn about(id: Id) -> Wire {
    Wire {
        id: id.text(),
        name: id.name().to_owned(),
        settings: id.settings(),
        impossible: id.absence(),
        failures: Vec::new(),
    }
}

/// The shapes of each wire in their order, without runs yet.
fn points(plan: &Plan) -> Vec<Point> {
    let of = |&id: &Id| {
        plan.shapes.iter().map(move |shape| Point {
            wire: id.text(),
            bytes: shape.bytes as u64,
            data: shape.data,
            runs: Vec::new(),
        })
    };
    plan.wires.iter().flat_map(of).collect()
}

/// Runs every wire in turn, every other time in the opposite order. Then repeats, up to as many times
/// again, the wires that lack runs at the most frequent distance of the cores.
fn measure(plan: &Plan, scratch: &Path, results: &mut Results) -> Result<(), Failure> {
    let possible = |&index: &usize| results.wires[index].impossible.is_none();
    let possible: Vec<usize> = (0..plan.wires.len()).filter(possible).collect();
    let runs = possible.len() * plan.runs as usize;
    let time = plan.time_of_run() * u32::try_from(runs).unwrap_or(u32::MAX);
    eprintln!("it will take about {} seconds", time.as_secs().max(1));
    let bar = ProgressBar::new(runs as u64);
    let style = ProgressStyle::with_template("{wide_msg} {bar:24} {percent:>3} %, {eta} left");
    bar.set_style(style.doing("draw a progress bar")?);
    for run in 0..2 * plan.runs {
        let mut turn = possible.clone();
        if run >= plan.runs {
            turn.retain(|&index| lacks(plan, results, index));
            bar.inc_length(turn.len() as u64);
        }
        if run % 2 == 1 {
            turn.reverse();
        }
        for index in turn {
            let id = plan.wires[index];
            bar.set_message(id.name());
            let found = run_once(plan, id, scratch);
            if interrupt::is_wanted() {
                bar.abandon();
                return Err(interrupt::loss());
            }
            match found {
                Ok(found) => {
                    let own = results.points[index * plan.shapes.len()..].iter_mut();
                    own.zip(found).for_each(|(point, found)| point.runs.push(found));
                }
                Err(failure) => results.wires[index].failures.push(failure.message),
            }
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    Ok(())
}

/// Whether a wire has a shape with runs at other distances of the cores, and with fewer than half of
/// the planned runs at the most frequent distance.
fn lacks(plan: &Plan, results: &Results, index: usize) -> bool {
    let home = results.distances().into_iter().next();
    let count = plan.shapes.len();
    results.points[index * count..][..count].iter().any(|point| {
        let is_here = |found: &&Found| home.is_some_and(|home| home.has(found.line_ns));
        let here = point.runs.iter().filter(is_here).count();
        here < point.runs.len() && 2 * here < plan.runs as usize
    })
}

/// Runs a wire once: all shapes, between two processes.
fn run_once(plan: &Plan, id: Id, scratch: &Path) -> Result<Vec<Found>, Failure> {
    let setup = Setup::new(PROGRAM, 2).places(Places::Apart);
    let mut crew = setup.time(plan.time_of_run() * 4).scratch(scratch).crew()?;
    let (kept, ticket) = id.set_up()?;
    crew.keep(kept);
    let order = Order { wire: id, ticket, shapes: plan.shapes.clone(), measured: plan.measured };
    let processes = [crew.command_of(0, &ROLE, &order)?, crew.command_of(1, &ROLE, &order)?];
    if let Some(mut launcher) = id.launcher(&processes, crew.is_oversubscribed()) {
        crew.add(&mut launcher)?;
    } else {
        crew.add_worker(&ROLE, &order)?;
        crew.add_worker(&ROLE, &order)?;
    }
    crew.await_ready()?;
    crew.go();
    let reports: Vec<Report> = crew.reports()?;
    let report = reports.into_iter().next();
    let found = report.ok_or_else(|| Failure::other("nobody reported"))?.found;
    if found.len() == plan.shapes.len() {
        Ok(found)
    } else {
        Err(Failure::other("a report is not whole"))
    }
}

impl Study for Results {
    const NAMES: &[&str] = &[STUDY];
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
    let heads = [
        "line_ns",
        "wire",
        "bytes",
        "cold",
        "touched",
        "runs",
        "one_way_ns_p50",
        "min",
        "max",
        "one_way_ns_p99",
    ];
    table.write_record(heads).doing("write a table")?;
    let number = |figure: f64| format!("{figure:.1}");
    for distance in results.distances() {
        let line = distance
            .line_ns
            .map_or(String::new(), |(least, most)| number(f64::midpoint(least, most)));
        for point in &results.at(&distance).points {
            let Some(middle) = point.p50_ns() else { continue };
            let high = Spread::of(point.runs.iter().map(|run| run.p99_ns));
            let row = [
                line.clone(),
                point.wire.clone(),
                point.bytes.to_string(),
                point.data.cold.to_string(),
                point.data.touched.to_string(),
                point.runs.len().to_string(),
                number(middle.median),
                number(middle.min),
                number(middle.max),
                high.map_or(String::new(), |high| number(high.median)),
            ];
            table.write_record(row).doing("write a table")?;
        }
    }
    let bytes = table.into_inner().doing("write a table")?;
    String::from_utf8(bytes).doing("write a table")
}

/// Prints the times one way with warm buffers, and where the page is.
fn print(directory: &Path, results: &Results) {
    const SHOWN: [u64; 6] = [8, 64, 512, 4096, 65_536, 1 << 20];
    let results = &results.at_most_frequent();
    let sizes: Vec<u64> = SHOWN.into_iter().filter(|it| results.sizes().contains(it)).collect();
    println!("one way, warm buffers, ns:");
    let heads: String = sizes.iter().map(|size| format!("{size:>10}")).collect();
    println!("{:<26}{heads}", "");
    for wire in &results.wires {
        let cell = |&size: &u64| match results.one_way_ns(&wire.id, size, Data::WARM) {
            Some(time) => format!("{time:>10.0}"),
            None => format!("{:>10}", "-"),
        };
        println!("{:<26}{}", wire.name, sizes.iter().map(cell).collect::<String>());
        for why in wire.impossible.iter().chain(&wire.failures) {
            println!("  {why}");
        }
    }
    print_rings(results);
    println!("\n{}", directory.join("report.html").display());
}

/// Prints the rings of processes.
fn print_rings(results: &Results) {
    println!("\na message of 8 bytes around a ring of processes, us:");
    for ring in &results.rings {
        let Some(round) = Spread::of(ring.round_ns.iter().copied()) else {
            println!(
                "{:<26}{:>3} processes {:>10}",
                results.name_of(&ring.wire),
                ring.processes,
                "-"
            );
            continue;
        };
        println!(
            "{:<26}{:>3} processes {:>10.2} ({:.2} to {:.2})",
            results.name_of(&ring.wire),
            ring.processes,
            round.median / 1e3,
            round.min / 1e3,
            round.max / 1e3
        );
    }
}
