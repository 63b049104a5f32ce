//! `corewire study interfaces`: calls through code that is generated from an interface file.
//!
//! | measured | beside |
//! |---|---|
//! | a call with 8 bytes by `lmp` and by `ump`, both sides on the same core, and by `ump`, cores apart | a D-Bus method call through a `dbus-daemon`; a unary gRPC call over a Unix socket, at the same cores |
//! | the allocations of these calls, on the side of the caller | those of the rivals |
//! | the ten types of messages of papers/003, section 5.2, over each driver | dynamic arrays beside the same bytes of fixed size |
//!
//! Client and service are processes of their own, and pinned. (`local` has both in one process.) Blocks of about 10 ms
//! alternate. What needs no rival is also part of `corewire bench interface`.

mod bus;
mod dbus;
mod grpc;
mod peer;
pub(crate) mod results;
mod rivals;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use clap::ValueEnum;
use corewire_bind::Driver;
use corewire_harness::calls::types::{self, BUFFER_100, BUFFER_1000, FIXED_100, TYPES};
use corewire_harness::calls::ways::{Cores, WAYS, Way, first_processor};
use corewire_harness::distance::Watch;
use corewire_harness::places::Places;
use corewire_harness::setup::Setup;
use corewire_harness::statistics::Spread;
use corewire_os::processor;

pub(crate) use bus::Bus;
pub(crate) use dbus::ADDRESS as BUS_ADDRESS;
pub(crate) use peer::{CALLS_ROLE, TYPES_ROLE};
use peer::{Order, Report};
use results::{Calls, Dynamic, FORMAT, Results, Rival, STUDY, TypeOf, WayOf};
pub(crate) use rivals::Id;

use crate::study::failure::{Doing, Failure};
use crate::study::output::{self, Study};
use crate::study::program::PROGRAM;
use crate::study::report::{PageError, interfaces as page};
use crate::study::zimp::Scratch;
use crate::study::{interrupt, machine};

const EXAMPLES: &str = "\
Examples:
  corewire study interfaces --quick --out interfaces
  corewire study interfaces --out interfaces --rivals grpc

Writes DIR/report.html, a page to look at, DIR/results.json, which docs/study.md describes, and the
times as points.csv. D-Bus is measured if dbus-daemon is installed.";

/// Measure generated calls, with D-Bus and gRPC beside them, and the thesis' types of messages.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Directory for the results; created if it does not exist
    #[arg(long, value_name = "DIR", default_value = "corewire-study-interfaces")]
    out: PathBuf,
    /// Fewer rounds: about ten seconds
    #[arg(long)]
    quick: bool,
    /// Compare only with these
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    rivals: Vec<Id>,
}

/// Rounds of alternating blocks.
const ROUNDS: u64 = 51;
const ROUNDS_QUICK: u64 = 11;
/// Time of a block.
const BLOCK: Duration = Duration::from_millis(12);
/// Time to start and to end a run.
const AROUND: Duration = Duration::from_millis(400);

/// Runs the command.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    output::make(&args.out)?;
    interrupt::prepare()?;
    let rivals = if args.rivals.is_empty() { Id::value_variants() } else { &args.rivals };
    let processors = processor::allowed().doing("ask for processors")?.len();
    let (effort, rounds) = if args.quick { ("quick", ROUNDS_QUICK) } else { ("default", ROUNDS) };
    let began = machine::now()?;
    let mut results = Results {
        format: FORMAT,
        study: STUDY.to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        began,
        effort: effort.to_owned(),
        rounds,
        machine: machine::describe("not used".to_owned())?,
        ways: WAYS.iter().map(|way| about_way(way, processors)).collect(),
        rivals: rivals.iter().map(|&id| about(id)).collect(),
        calls: Vec::new(),
        types: Vec::new(),
        dynamic: Vec::new(),
    };
    let ways = || WAYS.iter().filter(|way| way.is_possible(processors));
    // A rival is in another process.
    let compared = || ways().filter(|way| way.driver != Driver::Local);
    let present = || rivals.iter().filter(|id| id.absence().is_none());
    let pairs = compared().count() * present().count();
    let time = time_of(rounds, 2, pairs) + time_of(rounds, TYPES.len(), ways().count());
    eprintln!("it will take about {} seconds", time.as_secs().max(1));
    let scratch = Scratch::new()?;
    for way in compared() {
        for &rival in present() {
            results.calls.push(compare(way, rival, rounds, &scratch.0)?);
        }
    }
    for way in ways() {
        measure_types(way, rounds, &mut results)?;
    }
    results.write(&args.out)?;
    print(&args.out, &results);
    Ok(())
}

/// Approximate time of `runs` runs of some blocks each.
fn time_of(rounds: u64, blocks: usize, runs: usize) -> Duration {
    let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    let rounds = u32::try_from(rounds).unwrap_or(u32::MAX);
    (BLOCK * rounds * number(blocks) + AROUND) * number(runs)
}

fn about_way(way: &Way, processors: usize) -> WayOf {
    let few = || "there is only one processor".to_owned();
    WayOf {
        id: way.name.to_owned(),
        name: way.words.to_owned(),
        driver: way.driver.to_string(),
        same_core: way.cores == Cores::Same,
        impossible: (!way.is_possible(processors)).then(few),
    }
}

fn about(id: Id) -> Rival {
    Rival {
        id: id.text(),
        name: id.name().to_owned(),
        settings: id.settings().to_owned(),
        impossible: id.absence(),
    }
}

/// Places of a client and a service that are both workers.
fn places(way: &Way) -> Result<Places, Failure> {
    match way.cores {
        Cores::Same => first_processor().map(Places::On),
        Cores::Apart => Ok(Places::Apart),
    }
}

/// Compares calls with those of a rival. Only an interruption is an error; anything else is a result.
fn compare(way: &Way, rival: Id, rounds: u64, scratch: &Path) -> Result<Calls, Failure> {
    let cpus = processor::allowed().doing("ask for processors")?;
    let watch = Watch::start(places(way)?.cores(&cpus, 2))?;
    let found = compare_once(way, rival, rounds, scratch);
    if interrupt::is_wanted() {
        return Err(interrupt::loss());
    }
    let line_ns = watch.stop()?.line_ns;
    let empty = Calls {
        way: way.name.to_owned(),
        rival: rival.text(),
        call_ns: Vec::new(),
        rival_ns: Vec::new(),
        ratio: None,
        call_allocations: None,
        rival_allocations: None,
        line_ns,
        failure: None,
    };
    Ok(match found {
        Err(failure) => Calls { failure: Some(failure.message), ..empty },
        Ok(Report { call_ns, rival_ns, call_allocations, rival_allocations }) => Calls {
            ratio: Spread::of(call_ns.iter().zip(&rival_ns).map(|(call, rival)| call / rival)),
            call_ns,
            rival_ns,
            call_allocations: Some(call_allocations),
            rival_allocations: Some(rival_allocations),
            ..empty
        },
    })
}

fn compare_once(way: &Way, rival: Id, rounds: u64, scratch: &Path) -> Result<Report, Failure> {
    let places = places(way)?;
    let setup = Setup::new(PROGRAM, 2).places(places).time(4 * time_of(rounds, 2, 1));
    let mut crew = setup.scratch(scratch).crew()?;
    let bus = match (rival, places) {
        (Id::Dbus, Places::On(cpu)) => Some(Bus::start(crew.directory(), Some(cpu))?),
        (Id::Dbus, _) => Some(Bus::start(crew.directory(), None)?),
        (Id::Grpc, _) => None,
    };
    let order = Order { way: way.name.to_owned(), rival, rounds };
    for index in 0..2 {
        let words = crew.command_of(index, &CALLS_ROLE, &order)?;
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]);
        if let Some(bus) = &bus {
            command.env(dbus::ADDRESS, bus.address());
        }
        crew.add(&mut command)?;
    }
    crew.await_ready()?;
    crew.go();
    let reports: Vec<Report> = crew.reports()?;
    reports.into_iter().next().ok_or_else(|| Failure::other("nobody reported"))
}

/// Measures the thesis' types by a way.
fn measure_types(way: &Way, rounds: u64, results: &mut Results) -> Result<(), Failure> {
    let cpus = processor::allowed().doing("ask for processors")?;
    let watch = Watch::start(way.places()?.cores(&cpus, 1))?;
    let blocks = types::measure(way, PROGRAM, &TYPES_ROLE, rounds);
    if interrupt::is_wanted() {
        return Err(interrupt::loss());
    }
    let blocks = blocks?;
    results.types.extend(TYPES.iter().enumerate().map(|(index, kind)| TypeOf {
        way: way.name.to_owned(),
        name: kind.name.to_owned(),
        bytes: kind.bytes,
        round_trip_ns: blocks.of(index).to_vec(),
    }));
    results.dynamic.push(Dynamic {
        way: way.name.to_owned(),
        hundred_to_fixed: blocks.ratio(BUFFER_100, FIXED_100),
        thousand_to_hundred: blocks.ratio(BUFFER_1000, BUFFER_100),
        line_ns: watch.stop()?.line_ns,
    });
    Ok(())
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
    let heads = ["way", "beside", "what", "round_trip_ns", "min", "max"];
    table.write_record(heads).doing("write a table")?;
    let mut add = |way: &str, beside: &str, what: &str, times: &[f64]| match spread(times) {
        Some(Spread { median, min, max }) => {
            let [median, min, max] = [median, min, max].map(|figure| format!("{figure:.1}"));
            table.write_record([way, beside, what, &median, &min, &max]).doing("write a table")
        }
        None => Ok(()),
    };
    for calls in &results.calls {
        add(&calls.way, &calls.rival, "corewire", &calls.call_ns)?;
        add(&calls.way, &calls.rival, &calls.rival, &calls.rival_ns)?;
    }
    for kind in &results.types {
        add(&kind.way, "", &kind.name, &kind.round_trip_ns)?;
    }
    let bytes = table.into_inner().doing("write a table")?;
    String::from_utf8(bytes).doing("write a table")
}

fn spread(times: &[f64]) -> Option<Spread> {
    Spread::of(times.iter().copied())
}

/// Prints the comparisons, the costs of dynamic arrays, and where the page is.
fn print(directory: &Path, results: &Results) {
    println!("a call with 8 bytes, round trip:");
    for calls in &results.calls {
        let way = results.ways.iter().find(|way| way.id == calls.way);
        let way = way.map_or(calls.way.as_str(), |way| &way.name);
        let rival = results.rivals.iter().find(|rival| rival.id == calls.rival);
        let rival = rival.map_or(calls.rival.as_str(), |rival| &rival.name);
        match (spread(&calls.call_ns), spread(&calls.rival_ns), calls.ratio) {
            (Some(call), Some(other), Some(ratio)) => println!(
                "{way:<18}{:>9.0} ns, {rival} {:>8.0} ns: ratio {:.4} ({:.4} to {:.4})",
                call.median, other.median, ratio.median, ratio.min, ratio.max
            ),
            _ => println!("{way:<18}{rival}: {}", calls.failure.as_deref().unwrap_or("-")),
        }
    }
    for rival in &results.rivals {
        if let Some(why) = &rival.impossible {
            println!("{}: skipped, {why}", rival.name);
        }
    }
    println!("\ndynamic arrays, 100 bytes to the same of fixed size, and 1000 bytes to 100:");
    for it in &results.dynamic {
        let [hundred, thousand] = [it.hundred_to_fixed, it.thousand_to_hundred];
        println!("{:<18}{:>9.3}{:>9.3}", it.way, hundred.median, thousand.median);
    }
    println!("\n{}", directory.join("report.html").display());
}
