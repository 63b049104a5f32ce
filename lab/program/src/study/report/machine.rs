//! The machine, the settings, and how to read the page.

use crate::study::results::{Cache, Kind, Machine, Results};

use super::page::{Table, list, paragraph};
use super::units::{bytes, plural, round};
use super::{absent, facts};

/// The machine and the study, as a table.
pub(crate) fn html(results: &Results) -> String {
    let queues = ("Message queues", results.machine.queue_limits.clone());
    let run = [
        queues,
        ("corewire", results.version.clone()),
        ("Began", moment(&results.began)),
        ("Effort", effort(results)),
    ];
    table(&results.machine, &run)
}

/// The start time of a study, formatted.
pub(crate) fn moment(began: &str) -> String {
    began.replace('T', " ").replace('Z', " UTC")
}

/// A table of a machine, and of facts about the study on it.
pub(crate) fn table(machine: &Machine, run: &[(&str, String)]) -> String {
    let row = |name: &str, text: String| vec![name.to_owned(), text];
    let mut rows = vec![
        row("Processor", machine.processor.clone()),
        row("Cores", cores(machine)),
        row("Caches", caches(machine)),
        row("Memory", bytes(machine.memory_bytes)),
        row("Kernel", machine.kernel.clone()),
        row("Hypervisor", machine.hypervisor.clone().unwrap_or_else(|| "none".to_owned())),
        row(
            "Hardware counters",
            machine.counters_absent.clone().unwrap_or_else(|| "readable".to_owned()),
        ),
    ];
    rows.extend(run.iter().map(|(name, text)| row(name, text.clone())));
    Table { head: Vec::new(), rows, is_prose: true }.html("")
}

/// The cores of a machine and its sockets.
pub(crate) fn cores(machine: &Machine) -> String {
    let (cores, sockets) = (plural(machine.cores, "core"), plural(machine.sockets, "socket"));
    format!("{cores} in {sockets}")
}

/// The caches of a machine, separated by semicolons.
pub(crate) fn caches(machine: &Machine) -> String {
    let cache = |cache: &Cache| {
        let shared = match cache.shared_by {
            0 | 1 => String::new(),
            processors => format!(", shared by {processors}"),
        };
        let kind = if cache.kind == "unified" { "" } else { &cache.kind };
        format!("L{} {kind} {}{shared}", cache.level, bytes(cache.bytes)).replace("  ", " ")
    };
    machine.caches.iter().map(cache).collect::<Vec<_>>().join("; ")
}

fn effort(results: &Results) -> String {
    let (runs, length) = (plural(results.runs, "run"), round(results.run_s));
    format!("{}: {runs} of {length} s for each point", results.effort)
}

/// How the figures were measured.
pub(crate) fn how_to_read(results: &Results) -> String {
    let crowd = if facts::receiver_counts(results)
        .iter()
        .any(|count| facts::is_oversubscribed(results, *count))
    {
        "Some points had more processes than cores (oversubscribed). Their markers are hollow, and \
         they show how well processes take turns, not how fast messages are."
    } else {
        "No point had more processes than cores."
    };
    paragraph(&format!(
        "Throughput is the number of messages that a receiver receives in a second, not the number that the \
         sender sends. Each figure is the median of {}; thin bars reach from the slowest to the fastest \
         run. {crowd} Two mechanisms are called level if their medians are within 10 % of each other or \
         their runs overlap. The line of a mechanism has a gap where a point could not be measured.",
        plural(results.runs, "run"),
    )) + &paragraph(
        "Compare only mechanisms of the same kind. The kernel's mechanisms enter the kernel for each message. \
         Copying rings keep the message in shared memory, and each receiver copies it out, as in the \
         paper. With mechanisms that work in place, a receiver reads the message in shared memory. Short \
         names: cw is corewire, FIFO is a named pipe, shm+sem is shared memory with semaphores.",
    )
}

/// The settings of each mechanism.
pub(crate) fn mechanisms(results: &Results) -> String {
    let kind = |kind: Kind| match kind {
        Kind::Kernel => "Through the kernel",
        Kind::Copying => "Copying out",
        Kind::InPlace => "In place",
    };
    let row = |mechanism: &crate::study::results::Mechanism| {
        let kind = kind(mechanism.kind);
        vec![mechanism.name.clone(), format!("{kind}. {}", mechanism.settings)]
    };
    let head = ["Mechanism", "Kind and settings"].map(str::to_owned).into();
    let rows = results.mechanisms.iter().map(row).collect();
    Table { head, rows, is_prose: true }.html("")
}

/// What could not be measured, and why.
pub(crate) fn not_measured(results: &Results) -> String {
    let items = absent::of(results);
    if items.is_empty() {
        return paragraph("Everything that was requested was measured.");
    }
    paragraph("These points are gaps in the figures, not zeros.") + &list(&items)
}
