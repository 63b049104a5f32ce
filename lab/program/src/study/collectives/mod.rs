//! `corewire study collectives`: barrier, broadcast, reduce, allreduce, gather and all-to-all among the members of a group,
//! and Open MPI's own in the same run.
//!
//! | file | holds |
//! |---|---|
//! | `shape` | the calls that are measured |
//! | `library` | the libraries, behind one trait |
//! | `peer` | one process of a run |
//! | `results` | `results.json` |

mod library;
mod peer;
pub(crate) mod results;
pub(crate) mod shape;

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::ValueEnum;
use corewire_harness::places::Places;
use corewire_harness::setup::Setup;
use corewire_os::processor;
use indicatif::{ProgressBar, ProgressStyle};

use library::Id;
pub(crate) use peer::ROLE;
use peer::{Order, Report};
use results::{About, FORMAT, Found, OURS, Point, Results, STUDY};
use shape::Shape;

use crate::study::failure::{Doing, Failure};
use crate::study::output::{self, Study};
use crate::study::program::PROGRAM;
use crate::study::report::{PageError, collectives as page};
use crate::study::zimp::Scratch;
use crate::study::{interrupt, machine, open_mpi};

const EXAMPLES: &str = "\
Examples:
  corewire study collectives --quick --out collectives
  corewire study collectives --out collectives --processes 2,8,16

Writes DIR/report.html, a page to look at, DIR/results.json, which docs/study.md describes, and the
points as points.csv. Open MPI is measured if its library and mpirun are there.";

/// Measure collective calls of a group, with Open MPI's own beside them.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Directory for the results; created if it does not exist
    #[arg(long, value_name = "DIR", default_value = "corewire-study-collectives")]
    out: PathBuf,
    /// Fewer and shorter runs: about ten seconds
    #[arg(long)]
    quick: bool,
    /// Measure among so many processes [default: 2, 4, 8, and one for each processor]
    #[arg(long, value_name = "NUMBERS", value_delimiter = ',')]
    #[arg(value_parser = clap::value_parser!(u32).range(2..=64))]
    processes: Vec<u32>,
    /// Measure only these
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    libraries: Vec<Id>,
}

/// Time to start and to end a run.
const AROUND: Duration = Duration::from_millis(400);
/// Approximate time of one call of each kind, for each process.
const EACH: Duration = Duration::from_micros(35);
/// A run that takes longer has failed.
const TIME_MAX: Duration = Duration::from_secs(120);

/// What is measured.
struct Plan {
    effort: &'static str,
    runs: u32,
    /// Short calls of a block, where each process has a processor.
    calls: u32,
    libraries: Vec<Id>,
    /// The numbers of processes, in ascending order.
    processes: Vec<usize>,
    processors: usize,
}

impl Plan {
    fn new(args: &Args) -> Result<Self, Failure> {
        let (effort, runs, calls) =
            if args.quick { ("quick", 3, 2000) } else { ("default", 7, 10_000) };
        let processors = processor::allowed().doing("ask for processors")?.len();
        let mut processes: Vec<usize> = args.processes.iter().map(|&it| it as usize).collect();
        if processes.is_empty() {
            processes = vec![2, 4, 8, processors.clamp(2, 64)];
        }
        processes.sort_unstable();
        processes.dedup();
        let is_wanted = |id: &Id| args.libraries.is_empty() || args.libraries.contains(id);
        let libraries = Id::value_variants().iter().copied().filter(is_wanted).collect();
        Ok(Self { effort, runs, calls, libraries, processes, processors })
    }

    /// Short calls of a block. Without a processor for each, a call takes as long as the processes need to take turns.
    const fn calls(&self, processes: usize) -> u32 {
        if self.is_crowded(processes) { self.calls / 10 } else { self.calls }
    }

    fn time_of_run(&self, processes: usize) -> Duration {
        AROUND + EACH * self.calls(processes) * u32::try_from(processes).unwrap_or(u32::MAX)
    }

    const fn is_crowded(&self, processes: usize) -> bool {
        processes > self.processors
    }

    /// The points of a library and a number of processes, without runs yet.
    fn points(&self, library: Id, processes: usize) -> impl Iterator<Item = Point> + use<> {
        let oversubscribed = self.is_crowded(processes);
        Shape::all().into_iter().map(move |shape| {
            let library = library.text();
            Point { library, processes, shape, oversubscribed, runs: Vec::new() }
        })
    }
}

/// Runs the command.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    output::make(&args.out)?;
    interrupt::prepare()?;
    let plan = Plan::new(args)?;
    let about = |&id: &Id| About {
        id: id.text(),
        name: id.name().to_owned(),
        settings: id.settings(),
        impossible: id.absence(),
        failures: Vec::new(),
    };
    let of = |&processes: &usize| {
        plan.libraries.iter().flat_map({
            let plan = &plan;
            move |&library| plan.points(library, processes)
        })
    };
    let mut results = Results {
        format: FORMAT,
        study: STUDY.to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        began: machine::now()?,
        effort: plan.effort.to_owned(),
        runs: plan.runs,
        machine: machine::describe("not used".to_owned())?,
        libraries: plan.libraries.iter().map(about).collect(),
        points: plan.processes.iter().flat_map(of).collect(),
        ratios: Vec::new(),
    };
    let scratch = Scratch::new()?;
    measure(&plan, &scratch.0, &mut results)?;
    results.conclude();
    results.write(&args.out)?;
    print(&args.out, &results);
    Ok(())
}

/// Runs the libraries in turn with each number of processes, every other time in the opposite order.
fn measure(plan: &Plan, scratch: &Path, results: &mut Results) -> Result<(), Failure> {
    let possible = |&index: &usize| results.libraries[index].impossible.is_none();
    let possible: Vec<usize> = (0..plan.libraries.len()).filter(possible).collect();
    let runs = plan.runs as usize * plan.processes.len() * possible.len();
    let once: Duration = plan.processes.iter().map(|&it| plan.time_of_run(it)).sum();
    let each_library = once * plan.runs;
    let time = each_library * u32::try_from(possible.len()).unwrap_or(u32::MAX);
    eprintln!("it will take about {} seconds", time.as_secs().max(1));
    let bar = ProgressBar::new(runs as u64);
    let style = ProgressStyle::with_template("{wide_msg} {bar:24} {percent:>3} %, {eta} left");
    bar.set_style(style.doing("draw a progress bar")?);
    let shapes = Shape::all().len();
    for run in 0..plan.runs {
        let mut turn = possible.clone();
        if run % 2 == 1 {
            turn.reverse();
        }
        for (place, &processes) in plan.processes.iter().enumerate() {
            for &index in &turn {
                let id = plan.libraries[index];
                bar.set_message(format!("{} among {processes} processes", id.name()));
                let found = run_once(plan, id, processes, scratch);
                if interrupt::is_wanted() {
                    bar.abandon();
                    return Err(interrupt::loss());
                }
                match found {
                    Ok(found) => {
                        let first = (place * plan.libraries.len() + index) * shapes;
                        let own = results.points[first..][..shapes].iter_mut();
                        for (point, (each_ns, line_ns)) in own.zip(found) {
                            point.runs.push(Found { run, each_ns, line_ns });
                        }
                    }
                    Err(failure) => {
                        let why = format!("among {processes} processes: {}", failure.message);
                        results.libraries[index].failures.push(why);
                    }
                }
                bar.inc(1);
            }
        }
    }
    bar.finish_and_clear();
    Ok(())
}

/// Runs a library once among so many processes: all calls.
fn run_once(
    plan: &Plan,
    library: Id,
    processes: usize,
    scratch: &Path,
) -> Result<Vec<(f64, crate::study::distances::Lines)>, Failure> {
    let calls = plan.calls(processes);
    let setup = Setup::new(PROGRAM, processes).places(Places::Apart);
    let mut crew = setup.time(TIME_MAX).scratch(scratch).crew()?;
    let order = Order { library, processes, calls };
    match library {
        Id::Corewire => {
            for _ in 0..processes {
                crew.add_worker(&ROLE, &order)?;
            }
        }
        Id::OpenMpi => {
            let command = |index| crew.command_of(index, &ROLE, &order);
            let commands: Result<Vec<_>, _> = (0..processes).map(command).collect();
            crew.add(&mut open_mpi::launcher(&commands?, plan.is_crowded(processes)))?;
        }
    }
    crew.await_ready()?;
    crew.go();
    let reports: Vec<Report> = crew.reports()?;
    let report = reports.into_iter().next();
    let found = report.ok_or_else(|| Failure::other("nobody reported"))?.found;
    match found.len() == Shape::all().len() {
        true => Ok(found),
        false => Err(Failure::other("a report is not whole")),
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
    let here = results.at_most_frequent();
    let mut table = csv::Writer::from_writer(Vec::new());
    let heads =
        ["call", "bytes", "processes", "oversubscribed", "library", "each_ns", "min", "max"];
    table.write_record(heads).doing("write a table")?;
    for point in &here.points {
        let Some(each) = here.each_ns(&point.library, point.processes, point.shape) else {
            continue;
        };
        let number = |figure: f64| format!("{figure:.1}");
        let row = [
            point.shape.call.name().to_owned(),
            point.shape.bytes.to_string(),
            point.processes.to_string(),
            point.oversubscribed.to_string(),
            point.library.clone(),
            number(each.median),
            number(each.min),
            number(each.max),
        ];
        table.write_record(row).doing("write a table")?;
    }
    let bytes = table.into_inner().doing("write a table")?;
    String::from_utf8(bytes).doing("write a table")
}

/// Prints the times of all calls, the ratios, and where the page is.
fn print(directory: &Path, results: &Results) {
    let here = results.at_most_frequent();
    for (processes, is_crowded) in here.processes() {
        let note = if is_crowded { ", more than there are processors" } else { "" };
        println!("{processes} processes{note}, us:");
        for shape in here.shapes() {
            let mut line = format!("  {:<12}{:>6} B", shape.call.name(), shape.bytes);
            for library in &here.libraries {
                let each = here.each_ns(&library.id, processes, shape);
                let each = each.map_or("-".to_owned(), |it| format!("{:.2}", it.median / 1e3));
                line += &format!("{:>12} {each:>9}", library.name);
                if library.id != OURS
                    && let Some(ratio) = here.ratio(&library.id, processes, shape)
                {
                    line += &format!(" ({:.2}\u{d7})", ratio.median);
                }
            }
            println!("{line}");
        }
    }
    for library in &here.libraries {
        for why in library.impossible.iter().chain(&library.failures) {
            println!("{}: {why}", library.name);
        }
    }
    println!("\n{}", directory.join("report.html").display());
}
