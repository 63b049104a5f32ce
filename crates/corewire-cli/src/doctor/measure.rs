//! `corewire doctor --measure`: the cost of a cache line from each processor to each other one.

use std::thread;

use corewire::Topology;
use corewire_os::processor::{self, pin_to, tick_ns, ticks};
use corewire_published::yardstick::LineWalk;
use corewire_ring::region::Region;
use corewire_ring::sync::{AtomicU64, Ordering, pause};

use crate::failure::Failure;
use crate::{table, units};

/// Lines of a walk. They fit the second-level caches of both processors.
const LINES: usize = 512;
/// Walks of each kind between two processors; the result is their median.
const WALKS: usize = 15;
/// Number of read-modify-writes of a line that the processor owns.
const MODIFIES: usize = 10_000;
/// Maximum number of columns of the table: more do not fit a terminal.
const COLUMNS_MAX: usize = 16;

/// Measures all pairs of processors that this process may use.
pub(super) fn measure() -> Result<Topology, Failure> {
    let processors = processor::allowed()?;
    if processors.len() < 2 {
        let found = format!("doctor --measure needs two processors, not {}", processors.len());
        return Err(Failure::other(format!("{found}: allow more (taskset, cpuset)")));
    }
    let mut topology = Topology::default();
    topology.processors.clone_from(&processors);
    let (mut near, mut far, mut next) = (Vec::new(), Vec::new(), Vec::new());
    let domains: Vec<_> = processors.iter().map(|&cpu| processor::last_level(cpu)).collect();
    for (index, &reader) in processors.iter().enumerate() {
        let mut row = Vec::new();
        for (other, &writer) in processors.iter().enumerate() {
            if reader == writer {
                row.push(0.0);
                continue;
            }
            let pair = Pair::measure(reader, writer)?;
            let is_near = domains[index] == domains[other];
            if is_near { &mut near } else { &mut far }.push(pair.line_ns);
            next.push(pair.next_ns);
            row.push((pair.line_ns * 10.0).round() / 10.0);
        }
        topology.pairs_ns.push(row);
    }
    // If all processors are in one domain, a larger machine is taken to be one domain, too.
    if !far.is_empty() {
        let first = domains.iter().filter(|domain| **domain == domains[0]);
        topology.domain_cores = first.count();
    }
    topology.near_ns = whole(median(&mut near), topology.near_ns);
    // In a machine with one domain only memory is far away, which is not measured.
    topology.far_ns = whole(median(&mut far), topology.far_ns.max(topology.near_ns));
    topology.next_ns = whole(median(&mut next), topology.next_ns);
    topology.locked_ns = whole(Some(locked_ns()?), topology.locked_ns);
    Ok(topology)
}

/// A table of all pairs, and the figures that follow from it.
pub(super) fn render(topology: &Topology) -> String {
    let Topology { processors, pairs_ns, near_ns, far_ns, next_ns, locked_ns, .. } = topology;
    let shown = processors.len().min(COLUMNS_MAX);
    let names: Vec<_> = processors.iter().map(|cpu| format!("from {cpu}")).collect();
    let mut columns = vec![("to", true)];
    columns.extend(names[..shown].iter().map(|name| (name.as_str(), true)));
    let rows = processors.iter().zip(pairs_ns).map(|(cpu, row)| {
        let cells = row.iter().take(shown).map(|ns| match ns {
            0.0 => "-".to_owned(),
            ns => format!("{ns:.0}"),
        });
        std::iter::once(cpu.to_string()).chain(cells).collect()
    });
    let table = table::render(&columns, &rows.collect::<Vec<_>>());
    let more = match processors.len() - shown {
        0 => String::new(),
        more => format!("({} more columns are in the file)\n", units::grouped(more as u64)),
    };
    format!(
        "reading a line that another processor has changed, in nanoseconds:\n{table}{more}\
         within a last-level cache {near_ns} ns, beyond it {far_ns} ns; several at once {next_ns} ns \
         apart; a locked instruction {locked_ns} ns\n"
    )
}

/// The cost of lines that another processor has written.
struct Pair {
    /// A line, if the reader waits for it.
    line_ns: f64,
    /// One more line, if many are requested at once.
    next_ns: f64,
}

impl Pair {
    fn measure(reader: usize, writer: usize) -> Result<Self, Failure> {
        let memory = memory()?;
        let walk = LineWalk::new(&memory, LINES);
        walk.lay();
        let order = walk.order();
        let (asked, laid) = (AtomicU64::new(0), AtomicU64::new(0));
        thread::scope(|scope| {
            let writing = scope.spawn(|| -> Result<(), Failure> {
                let pinned = pin_to(writer);
                for round in 1..=2 * WALKS as u64 {
                    await_number(&asked, round);
                    walk.lay();
                    laid.store(round, Ordering::Release);
                }
                Ok(pinned?)
            });
            let reading = scope.spawn(|| -> Result<Self, Failure> {
                let pinned = pin_to(reader);
                let mut round = 0;
                let mut time = |walk_once: &dyn Fn() -> u64| {
                    round += 1;
                    asked.store(round, Ordering::Release);
                    await_number(&laid, round);
                    a_line_ns(walk_once, LINES)
                };
                let mut line: Vec<_> = (0..WALKS).map(|_| time(&|| walk.one_by_one())).collect();
                let mut next: Vec<_> =
                    (0..WALKS).map(|_| time(&|| walk.side_by_side(&order))).collect();
                pinned?;
                let [line_ns, next_ns] =
                    [&mut line, &mut next].map(|times| median(times).unwrap_or(0.0));
                Ok(Self { line_ns, next_ns })
            });
            let panicked = |_| Failure::other("a measuring thread panicked");
            writing.join().map_err(panicked)??;
            reading.join().map_err(panicked)?
        })
    }
}

/// The time of a read-modify-write of a line that the processor owns.
fn locked_ns() -> Result<f64, Failure> {
    let memory = memory()?;
    let walk = LineWalk::new(&memory, LINES);
    let mut times: Vec<_> =
        (0..WALKS).map(|_| a_line_ns(&|| walk.modify(MODIFIES), MODIFIES)).collect();
    Ok(median(&mut times).unwrap_or(0.0))
}

fn memory() -> Result<Region, Failure> {
    Region::private(LineWalk::bytes(LINES))
        .ok_or_else(|| Failure::other("there is no memory for the measurement"))
}

fn await_number(word: &AtomicU64, number: u64) {
    while word.load(Ordering::Acquire) != number {
        pause();
    }
}

/// The time of a job, for each of `count` lines.
#[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
fn a_line_ns(job: &dyn Fn() -> u64, count: usize) -> f64 {
    let start = ticks();
    std::hint::black_box(job());
    (ticks() - start) as f64 * tick_ns() / count as f64
}

fn median(times: &mut [f64]) -> Option<f64> {
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 2).copied()
}

/// Whole nanoseconds, at least one.
#[expect(clippy::cast_possible_truncation, reason = "times of lines")]
#[expect(clippy::cast_sign_loss, reason = "times are not negative")]
fn whole(time_ns: Option<f64>, otherwise_ns: u64) -> u64 {
    time_ns.map_or(otherwise_ns, |time_ns| time_ns.round().max(1.0) as u64)
}
