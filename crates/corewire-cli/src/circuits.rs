//! `corewire circuits`: the circuits through the monitors of the domain.

use std::time::Duration;

use corewire_circuit::monitor::{AskError, Asking, Circuits, monitors};
use corewire_circuit::wire::NodeId;

use crate::failure::Failure;
use crate::{access, output, table};

const EXAMPLES: &str = "\
Examples:
  corewire circuits
  corewire circuits --monitor 0 --json

A circuit has a line for each monitor on its way. Columns: the monitor; the service; the
client's user and process, as its own monitor sees it; where the client and where the
service is from here; what the circuit is doing; lines of 64 bytes that have come from
the client and from the service; lines that wait here; lines that are lent to it.

--json prints an array with an object for each monitor, with the keys monitor and
circuits. Circuits have service, uid, pid, home (the client's monitor), phase (opening,
open or ending), from, to, lines_up, lines_down, stored_lines and lent_lines.";

/// List circuits: who talks to which service through which monitors
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Only those of this monitor
    #[arg(long, value_name = "N")]
    monitor: Option<usize>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// How long a monitor may take to answer.
pub(crate) const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// Runs the command.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let domain = access::open_domain()?;
    let all = monitors(&domain)?;
    let is_chosen = |node: &NodeId| args.monitor.is_none_or(|only| only == node.number());
    let chosen: Vec<_> = all.into_iter().filter(is_chosen).collect();
    if let (Some(number), true) = (args.monitor, chosen.is_empty()) {
        return Err(Failure::other(format!("monitor {number} does not run")));
    }
    let asked = Asked::all(&chosen, |node| {
        Asking::connect(&domain, node, ANSWER_WITHIN).and_then(|mut asking| asking.circuits())
    });
    match (args.json, chosen.is_empty()) {
        (true, _) => output::print_json(&asked.found)?,
        (false, true) => output::print("no monitor runs in the domain\n")?,
        (false, false) => output::print(&shown(&asked.found))?,
    }
    asked.end()
}

/// What monitors have answered.
pub(crate) struct Asked<T> {
    pub(crate) found: Vec<T>,
    silent: usize,
}

impl<T> Asked<T> {
    /// Asks all of them. One that does not answer keeps the others from nothing.
    pub(crate) fn all(nodes: &[NodeId], ask: impl Fn(NodeId) -> Result<T, AskError>) -> Self {
        let mut asked = Self { found: Vec::new(), silent: 0 };
        for node in nodes {
            match ask(*node) {
                Ok(answer) => asked.found.push(answer),
                Err(error) => {
                    asked.silent += 1;
                    output::note(error);
                }
            }
        }
        asked
    }

    /// An error if not all have answered, which was said.
    pub(crate) const fn end(&self) -> Result<(), Failure> {
        match self.silent {
            0 => Ok(()),
            _ => Err(Failure::quiet(1)),
        }
    }
}

fn shown(all: &[Circuits]) -> String {
    if all.is_empty() {
        return String::new();
    }
    let rows: Vec<_> = all
        .iter()
        .flat_map(|of| of.circuits.iter().map(move |circuit| (of.monitor, circuit)))
        .map(|(monitor, circuit)| {
            vec![
                monitor.to_string(),
                circuit.service.clone(),
                format!("{}:{}", circuit.uid, circuit.pid),
                circuit.from.clone(),
                circuit.to.clone(),
                circuit.phase.clone(),
                circuit.lines_up.to_string(),
                circuit.lines_down.to_string(),
                circuit.stored_lines.to_string(),
                circuit.lent_lines.to_string(),
            ]
        })
        .collect();
    if rows.is_empty() {
        let monitors: Vec<_> = all.iter().map(|of| of.monitor.to_string()).collect();
        return format!("no circuits at {} {}\n", plural(&monitors), monitors.join(", "));
    }
    let columns = [
        ("monitor", true),
        ("service", false),
        ("client", false),
        ("from", false),
        ("to", false),
        ("phase", false),
        ("up", true),
        ("down", true),
        ("stored", true),
        ("lent", true),
    ];
    table::render(&columns, &rows)
}

const fn plural(monitors: &[String]) -> &'static str {
    if monitors.len() == 1 { "monitor" } else { "monitors" }
}
