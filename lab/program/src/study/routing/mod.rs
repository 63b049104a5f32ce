//! `corewire study routing`: calls through monitors (papers/003, sections 1.1.2 and 5).
//!
//! | measured | beside |
//! |---|---|
//! | the thesis' ten types of messages through one to four monitors, all parties polling, in two threads | the same without monitors; the thesis' protocol as it is printed, over the same rings |
//! | 8 bytes in the thesis' placement: client and monitor on one core, monitor and service on another | the parts of the way; a relay of SEQPACKET sockets; D-Bus |
//! | the same against how long monitors poll | |
//! | channels and bytes for 4 to 256 processes, counted | without circuits |
//!
//! The parties of the first part are in two threads ([`corewire_harness::circuits::rig`]), those of the second are processes.

mod placed;
pub(crate) mod results;

use std::path::{Path, PathBuf};

use corewire_harness::calls::Block;
use corewire_harness::calls::types::TYPES;
use corewire_harness::circuits::rig::Rig;
use corewire_harness::distance::median_line_ns;
use corewire_harness::rounds::alternate;
use corewire_harness::statistics::{Spread, median};
use corewire_layout::circuit::credit::RESERVE_LINES;
use corewire_os::processor;

pub(crate) use placed::ROLE;
use results::{Budget, Count, FORMAT, Results, STUDY, TypeOf};

use crate::study::failure::{Doing, Failure};
use crate::study::interfaces::Id;
use crate::study::output::{self, Study};
use crate::study::program::PROGRAM;
use crate::study::report::{PageError, routing as page};
use crate::study::{interrupt, machine};

const EXAMPLES: &str = "\
Examples:
  corewire study routing --quick --out routing
  corewire study routing --out routing

Writes DIR/report.html, a page to look at, DIR/results.json, which docs/study.md describes, and the
times as points.csv. It needs two processors. D-Bus is measured if dbus-daemon is installed.";

/// Measure calls through monitors: the thesis' types, hops, placement and polling.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Directory for the results; created if it does not exist
    #[arg(long, value_name = "DIR", default_value = "corewire-study-routing")]
    out: PathBuf,
    /// Fewer rounds: about a quarter of a minute
    #[arg(long)]
    quick: bool,
}

/// Rounds of alternating blocks.
const ROUNDS: u64 = 21;
const ROUNDS_QUICK: u64 = 3;
/// Monitors on the longest way: the thesis has four cores.
const MONITORS: usize = 4;
/// The types that the thesis has.
const PRINTED: usize = 10;
/// How long monitors poll, in nanoseconds: 20,000 cycles of the thesis' machine are 7,143.
const BUDGETS: [u64; 7] = [0, 714, 1500, 5000, 7143, 30_000, 100_000];
/// The usual time.
const USUAL: u64 = 30_000;
/// Processes of section 1.1.2.
const PROCESSES: [u64; 7] = [4, 8, 16, 32, 64, 128, 256];
/// Bytes of a ring in one direction: 256 slots of a line.
const RING_BYTES: u64 = 256 * 64;
/// Bytes of a circuit at a monitor, as measured by `corewire bench circuit`.
const CIRCUIT_BYTES: u64 = 217 + 2 * RESERVE_LINES as u64 * 64;

/// Runs the command.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    output::make(&args.out)?;
    interrupt::prepare()?;
    let cpus = processor::allowed().doing("ask for processors")?;
    let &[one, other, ..] = &cpus[..] else {
        return Err(Failure::other("circuits are measured between two processors; there is one"));
    };
    let (effort, rounds) = if args.quick { ("quick", ROUNDS_QUICK) } else { ("default", ROUNDS) };
    let began = machine::now()?;
    eprintln!("it will take about {} seconds", 8 + rounds * 2);
    let line = || median_line_ns([one, other], 51);
    let before = line()?;
    let types = types([one, other], rounds)?;
    let after = line()?;
    let placed = placed::measure([one, other], USUAL, rounds, true)?;
    let mut budgets = Vec::new();
    for poll_ns in BUDGETS {
        let placed = placed::measure([one, other], poll_ns, ROUNDS_QUICK, false)?;
        budgets.push(Budget { poll_ns, circuit_ns: placed.circuit_ns });
    }
    let results = Results {
        format: FORMAT,
        study: STUDY.to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        began,
        effort: effort.to_owned(),
        rounds,
        machine: machine::describe("not used".to_owned())?,
        types,
        line_ns: [before, after],
        placed: Some(placed),
        dbus_absent: Id::Dbus.absence(),
        budgets,
        counts: PROCESSES.into_iter().map(count).collect(),
    };
    results.write(&args.out)?;
    print(&args.out, &results);
    Ok(())
}

/// Round trips of all types, in alternating blocks.
fn types(cpus: [usize; 2], rounds: u64) -> Result<Vec<TypeOf>, Failure> {
    let mut rig = Rig::start(PROGRAM, MONITORS, 1, cpus)?;
    // Direct, through monitors, and as printed.
    let ways = MONITORS + 2;
    let mut sizes = vec![Block::new(); TYPES.len() * ways];
    let blocks = alternate(rounds, |_| {
        (PROGRAM.check)()?;
        let mut times = Vec::with_capacity(sizes.len());
        for (index, size) in sizes.iter_mut().enumerate() {
            let (shape, way) = (index / ways, index % ways);
            times.push(match way {
                _ if way <= MONITORS => size.time_ns(|number| rig.call(way, shape, number))?,
                _ if shape < PRINTED => size.time_ns(|number| rig.call_printed(shape, number))?,
                _ => f64::NAN,
            });
        }
        Ok::<_, Failure>(times)
    })?;
    Ok(TYPES
        .iter()
        .enumerate()
        .map(|(shape, kind)| {
            let of = |way: usize| blocks.of(shape * ways + way).to_vec();
            TypeOf {
                name: kind.name.to_owned(),
                bytes: kind.bytes,
                direct_ns: of(0),
                monitors_ns: (1..=MONITORS).map(of).collect(),
                printed_ns: if shape < PRINTED { of(MONITORS + 1) } else { Vec::new() },
            }
        })
        .collect())
}

/// Channels and bytes to connect each process with each other one: a pair of rings for each pair, or for each process one
/// to a monitor and a circuit for each pair.
fn count(processes: u64) -> Count {
    let pairs = processes * (processes - 1) / 2;
    Count {
        processes,
        direct_channels: pairs,
        direct_bytes: pairs * 2 * RING_BYTES,
        monitor_channels: processes,
        monitor_bytes: processes * 2 * RING_BYTES + pairs * CIRCUIT_BYTES,
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
    table.write_record(["what", "way", "round_trip_ns", "min", "max"]).doing("write a table")?;
    let mut add = |what: &str, way: &str, times: &[f64]| match Spread::of(times.iter().copied()) {
        Some(Spread { median, min, max }) => {
            let [median, min, max] = [median, min, max].map(|figure| format!("{figure:.1}"));
            table.write_record([what, way, &median, &min, &max]).doing("write a table")
        }
        None => Ok(()),
    };
    for kind in &results.types {
        add(&kind.name, "direct", &kind.direct_ns)?;
        for (index, times) in kind.monitors_ns.iter().enumerate() {
            add(&kind.name, &format!("{} monitors", index + 1), times)?;
        }
        add(&kind.name, "as printed, 2 monitors", &kind.printed_ns)?;
    }
    if let Some(placed) = &results.placed {
        for (way, times) in [
            ("circuit", &placed.circuit_ns),
            ("lmp", &placed.lmp_ns),
            ("ump", &placed.ump_ns),
            ("relay", &placed.relay_ns),
            ("dbus", &placed.dbus_ns),
        ] {
            add("placed", way, times)?;
        }
    }
    for budget in &results.budgets {
        add("placed", &format!("circuit, polling {} ns", budget.poll_ns), &budget.circuit_ns)?;
    }
    let bytes = table.into_inner().doing("write a table")?;
    String::from_utf8(bytes).doing("write a table")
}

/// Prints the main figures, and where the page is.
fn print(directory: &Path, results: &Results) {
    println!(
        "round trips to direct, 1 to {MONITORS} monitors; to the protocol as printed, 2 monitors:"
    );
    for kind in &results.types {
        let ratios = (1..=MONITORS).map(|monitors| {
            kind.to_direct(monitors).map_or_else(String::new, |it| format!("{:>7.2}", it.median))
        });
        let printed =
            kind.to_printed().map_or_else(String::new, |it| format!("{:>9.2}", it.median));
        println!("{:<14}{}{printed}", kind.name, ratios.collect::<String>());
    }
    if let Some(placed) = &results.placed {
        let of = |times: &Vec<f64>| median(times.iter().copied()) / 1000.0;
        println!(
            "\nthe thesis' placement, us: circuit {:.2}, its parts {:.2}, relay {:.2}, D-Bus {:.2}",
            of(&placed.circuit_ns),
            2.0 * of(&placed.lmp_ns) + of(&placed.ump_ns),
            of(&placed.relay_ns),
            of(&placed.dbus_ns),
        );
        let sum = placed.parts_ns();
        for (words, under) in
            [("its parts", &sum), ("relay", &placed.relay_ns), ("D-Bus", &placed.dbus_ns)]
        {
            if let Some(it) = results::ratio(&placed.circuit_ns, under) {
                println!("to {words}: {:.3} ({:.3} to {:.3})", it.median, it.min, it.max);
            }
        }
    }
    println!("\n{}", directory.join("report.html").display());
}
