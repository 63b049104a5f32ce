//! `corewire doctor --measure`: the cost of a cache line from each processor to each other one.

use corewire::Topology;
use corewire_os::processor;

use super::walk::{ReadCost, locked_ns};
use crate::failure::Failure;
use crate::{table, units};

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
            let pair = ReadCost::measure(reader, writer)?;
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
    topology.near_ns = whole(median(near), topology.near_ns);
    // In a machine with one domain only memory is far away, which is not measured.
    topology.far_ns = whole(median(far), topology.far_ns.max(topology.near_ns));
    topology.next_ns = whole(median(next), topology.next_ns);
    topology.locked_ns = whole(Some(locked_ns()), topology.locked_ns);
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

/// The middle time, or the mean of the two in the middle.
fn median(mut times: Vec<f64>) -> Option<f64> {
    times.sort_by(f64::total_cmp);
    let (low, high) = (times.len().checked_sub(1)? / 2, times.len() / 2);
    Some(f64::midpoint(times[low], times[high]))
}

/// Whole nanoseconds, at least one.
#[expect(clippy::cast_possible_truncation, reason = "times of lines")]
#[expect(clippy::cast_sign_loss, reason = "times are not negative")]
fn whole(time_ns: Option<f64>, otherwise_ns: u64) -> u64 {
    time_ns.map_or(otherwise_ns, |time_ns| time_ns.round().max(1.0) as u64)
}
