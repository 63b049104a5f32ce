//! `corewire tune`: measures this machine, and writes the file that corewire follows there.
//!
//! | file | holds |
//! |---|---|
//! | `mod.rs` | the command: what is measured, in turn; what a size will do |
//! | `probe.rs` | two processes that exchange messages under a candidate for a file |
//! | `copies.rs` | copies by each routine |
//! | `decide.rs` | what follows from the times |
//! | `file.rs` | the file |

mod copies;
mod decide;
mod explain;
mod file;
mod probe;

use std::io::{IsTerminal, stderr};
use std::path::PathBuf;
use std::thread;
use std::time::Instant;

use corewire::Tuning;
use corewire_os::processor;
use corewire_os::sleep::measure_wake_up_ns;
use corewire_ring::copying::{Plan, Routine};

use self::copies::{Arena, MEASURED, READERS};
use self::decide::{Decision, Spin, Times, best, threshold};
use self::file::{Copies, Findings};
use self::probe::{Crew, Role};
use crate::failure::Failure;
use crate::{output, units};

const EXAMPLES: &str = "\
Examples:
  corewire tune
  corewire tune --out /etc/xdg/corewire/tuning.toml
  corewire tune --explain 256K

Measures copies and messages between two processors, at each distance that this machine has, in less than a \
minute; keep the machine idle meanwhile. Then it writes what differs from the defaults to a file, by \
default $XDG_CONFIG_HOME/corewire/tuning.toml or ~/.config/corewire/tuning.toml, with the ratio and the spread \
of each decision. What noise decides stays undecided, and at its default. Processes that open a domain from then on follow the file: \
`corewire doctor` says which one, the environment variable COREWIRE_TUNING names another one, or none.

--explain BYTES measures nothing: it says what becomes of a message of that size, and why.";

/// Lengths of messages that are measured.
const SIZES: [u64; 10] = [
    4 << 10,
    8 << 10,
    16 << 10,
    32 << 10,
    64 << 10,
    128 << 10,
    256 << 10,
    512 << 10,
    1 << 20,
    4 << 20,
];
/// Cells: so many of so many bytes.
const CELLS: [(u64, u64); 5] =
    [(256, 4 << 10), (128, 8 << 10), (64, 16 << 10), (32, 32 << 10), (16, 64 << 10)];
/// Beyond every message.
const ALL: u64 = 1 << 40;

/// Measure this machine, and write the choices that corewire follows here
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Write this file [default: that of this user]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Rounds of each measurement, in which all candidates take turns: more are surer, and take longer
    #[arg(long, value_name = "NUMBER", default_value_t = 21, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Say what becomes of a message of this size: 65536, 64K, 1M
    #[arg(long, value_name = "BYTES", value_parser = units::parse_bytes, conflicts_with = "out")]
    explain: Option<u64>,
    /// One of the two processes of a measurement
    #[arg(long, hide = true, requires = "cpu")]
    probe: Option<Role>,
    #[arg(long, hide = true)]
    cpu: Option<usize>,
    #[arg(long, hide = true, value_delimiter = ',')]
    sizes: Vec<u64>,
}

/// Runs the command.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    if let (Some(role), Some(cpu)) = (args.probe, args.cpu) {
        return probe::run(role, cpu, &args.sizes);
    }
    if let Some(bytes) = args.explain {
        return output::print(&explain::text(bytes, corewire::tuning()));
    }
    let path = match &args.out {
        Some(path) => path.clone(),
        None => file::of_user().ok_or_else(|| {
            Failure::usage("neither XDG_CONFIG_HOME nor HOME is an absolute path: say --out FILE")
        })?,
    };
    file::check_writable(&path)?;
    let began = Instant::now();
    let findings = measure(args.rounds)?;
    let text = findings.text();
    Tuning::parse(&text).map_err(|error| Failure::other(format!("the decisions: {error}")))?;
    file::write(&path, &text)?;
    output::print(&format!(
        "{}wrote {} after {:.0} s\n",
        findings.summary(),
        path.display(),
        began.elapsed().as_secs_f64()
    ))
}

/// Pairs of processors, one for each distance: the first processor, and one that shares its last-level cache; one that does
/// not.
fn pairs() -> Result<Vec<(String, [usize; 2])>, Failure> {
    let allowed = processor::allowed()?;
    let [first, others @ ..] = &allowed[..] else {
        return Err(Failure::other("no processor is allowed"));
    };
    let home = processor::last_level(*first);
    let is_near = |cpu: &&usize| processor::last_level(**cpu) == home;
    let near = others.iter().rfind(is_near).map(|cpu| ("near".to_owned(), [*first, *cpu]));
    let far = others.iter().find(|cpu| !is_near(cpu)).map(|cpu| ("far".to_owned(), [*first, *cpu]));
    let pairs: Vec<_> = near.into_iter().chain(far).collect();
    match pairs.is_empty() {
        false => Ok(pairs),
        true => {
            Err(Failure::other("tuning needs two processors: this process may run on one alone"))
        }
    }
}

/// A directory that is removed at the end.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Result<Self, Failure> {
        use std::os::unix::fs::DirBuilderExt;
        let path = std::env::temp_dir().join(format!("corewire-tune-{}", std::process::id()));
        let made = std::fs::DirBuilder::new().mode(0o700).create(&path);
        made.map_err(|error| Failure::other(format!("cannot make {}: {error}", path.display())))?;
        Ok(Self(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Says how far it has come, on a terminal in one line.
struct Progress {
    done: usize,
    all: usize,
}

impl Progress {
    fn step(&mut self, what: &str) {
        self.done += 1;
        let text = format!("{} of {}: {what}", self.done, self.all);
        match stderr().is_terminal() {
            true => output::report(&format!(
                "\r\x1b[K{text}{}",
                if self.done == self.all { "\n" } else { "" }
            )),
            false => output::report(&format!("{text}\n")),
        }
    }
}

fn measure(rounds: u32) -> Result<Findings, Failure> {
    let pairs = pairs()?;
    let scratch = Scratch::new()?;
    let crews: Vec<Crew> =
        pairs.iter().map(|(_, cpus)| Crew { cpus: *cpus, directory: scratch.0.clone() }).collect();
    let mut progress = Progress { done: 0, all: 5 + READERS.len() };
    let default = Tuning::default();
    let messages =
        |lines: &str| format!("format = 1\nprocessor = \"any\"\n\n[messages]\n{lines}\n");

    progress.step("messages through cells, or left in their sender's memory");
    // What the cells have no room for is left in its sender's memory: nobody need act again for it then.
    let cells = messages(&format!("offered_above_bytes = {ALL}\nin_place_up_to_bytes = 0"));
    let left = messages(
        "offered_above_bytes = 0\noffered_if_scarce_above_bytes = 0\nin_place_up_to_bytes = 0",
    );
    let [cells, left] = times(rounds, &crews, &[cells, left], &SIZES)?;
    let offered_above = threshold(&cells, &left, &SIZES, default.offered_above());

    progress.step("messages that one side copies, or both");
    let both = |from: u64| {
        messages(&format!(
            "offered_above_bytes = 0\noffered_if_scarce_above_bytes = 0\nin_place_up_to_bytes = 0\nboth_sides_from_bytes = {from}"
        ))
    };
    let [one, two] = times(rounds, &crews, &[both(ALL), both(0)], &SIZES)?;
    // Both from the first size on that is longer than the last one for which one side is better.
    let both_above = threshold(&one, &two, &SIZES, default.both_sides_from() - 1);

    progress.step("messages in place, or copied");
    let in_place = |up_to: u64| messages(&format!("in_place_up_to_bytes = {up_to}"));
    let [there, copied] = times(rounds, &crews, &[in_place(ALL), in_place(0)], &SIZES)?;
    let in_place_up_to = threshold(&there, &copied, &SIZES, default.in_place_up_to());

    progress.step("cells");
    let short: Vec<u64> =
        SIZES.into_iter().filter(|size| *size <= default.offered_above()).collect();
    let candidates = CELLS.map(|(cells, bytes)| {
        messages(&format!("cells = {cells}\ncell_bytes = {bytes}\nin_place_up_to_bytes = 0"))
    });
    let all: [Times; CELLS.len()] = times(rounds, &crews, &candidates, &short)?;
    let usual = CELLS.iter().position(|cells| *cells == default.cells()).unwrap_or_default();
    let cells = match best(&all, usual) {
        Decision::Default => Decision::Default,
        Decision::Undecided(index, gain) => Decision::Undecided(CELLS[index], gain),
        Decision::Better(index, gain) => Decision::Better(CELLS[index], gain),
    };

    progress.step("wake-ups");
    let wake_ups = pairs.iter().map(|(_, [here, there])| wake_ups(rounds, *here, *there));
    let spin = Spin::of(&wake_ups.collect::<Result<Vec<_>, _>>()?);

    let mut arena = Arena::new()?;
    let mut copies = Vec::new();
    for (reader, name) in READERS {
        progress.step(&format!("copies that are read next by {name}"));
        copies.push(routines(rounds, &mut arena, reader, name, &pairs)?);
    }
    Ok(Findings {
        offered_above,
        both_above,
        in_place_up_to,
        cells,
        spin,
        copies,
        distances: pairs,
    })
}

/// The times of messages of these sizes under each candidate, which take turns.
fn times<const N: usize>(
    rounds: u32,
    crews: &[Crew],
    candidates: &[String; N],
    sizes: &[u64],
) -> Result<[Times; N], Failure> {
    let mut all: [Times; N] = std::array::from_fn(|_| vec![Vec::new(); crews.len()]);
    for round in 0..rounds {
        for (distance, crew) in crews.iter().enumerate() {
            for step in 0..N {
                let index = if round % 2 == 0 { step } else { N - 1 - step };
                all[index][distance].push(crew.times(&candidates[index], sizes)?);
            }
        }
    }
    Ok(all)
}

/// The time of a wake-up of one processor by another one, in each round, in nanoseconds.
fn wake_ups(rounds: u32, here: usize, there: usize) -> Result<Vec<f64>, Failure> {
    thread::scope(|scope| {
        let measuring = scope.spawn(|| {
            processor::pin_to(here)?;
            // The first one is not counted: a core may have been in a deep sleep.
            let all = (0..=rounds).filter_map(|_| measure_wake_up_ns(Some(there)));
            Ok(all.skip(1).collect())
        });
        measuring.join().unwrap_or_else(|_| Err(Failure::other("a measurement panicked")))
    })
}

/// The best routine of each class of copies.
fn routines(
    rounds: u32,
    arena: &mut Arena,
    reader: corewire_ring::copying::NextReader,
    name: &'static str,
    pairs: &[(String, [usize; 2])],
) -> Result<Copies, Failure> {
    let possible: Vec<Routine> = Routine::ALL.into_iter().filter(|it| it.is_possible()).collect();
    let mut all: Vec<Times> = vec![vec![Vec::new(); pairs.len()]; possible.len()];
    for round in 0..rounds {
        for (distance, (_, cpus)) in pairs.iter().enumerate() {
            for step in 0..possible.len() {
                let index = if round % 2 == 0 { step } else { possible.len() - 1 - step };
                all[index][distance].push(arena.times(reader, possible[index], *cpus)?);
            }
        }
    }
    let untuned = Plan::untuned(reader);
    let decisions = (0..MEASURED).map(|class| {
        let of_class = |times: &Times| -> Times {
            let rounds = |rounds: &Vec<Vec<f64>>| rounds.iter().map(|it| vec![it[class]]).collect();
            times.iter().map(rounds).collect()
        };
        let choices: Vec<Times> = all.iter().map(of_class).collect();
        let default = untuned.routine(Plan::least_bytes(class));
        let index = possible.iter().position(|routine| *routine == default).unwrap_or_default();
        match best(&choices, index) {
            Decision::Default => Decision::Default,
            Decision::Undecided(index, gain) => Decision::Undecided(possible[index], gain),
            Decision::Better(index, gain) => Decision::Better(possible[index], gain),
        }
    });
    Ok(Copies { reader: name, untuned, decisions: decisions.collect() })
}
