//! `corewire routes`: the routing table of the domain's monitors.

use corewire::Domain;
use corewire_circuit::monitor::{Asking, Routes, monitors};
use corewire_circuit::node::table::{fat_tree, next_hop, ring};
use corewire_circuit::wire::packet::{Shape, Table, Via};
use corewire_circuit::wire::{NODES_MAX, NodeId};

use crate::circuits::{ANSWER_WITHIN, Asked};
use crate::failure::Failure;
use crate::{access, output, table, units};

const EXAMPLES: &str = "\
Examples:
  corewire routes show
  corewire routes ring
  corewire routes fat-tree --group 8
  corewire routes via 0 3 2
  corewire routes direct

direct joins each monitor with each, ring each with the next, and fat-tree those of a
group with each other and the first of each group with the first of the others. Without
--monitors all that run now belong to the table. Via makes a single route: at the first
monitor, the way to the second goes to the third. The table is given to the first monitor,
which gives it to all others, also to those that start later.

Circuits that are open keep their way; the next one uses the new routes. If a link or
monitor has ended, the next circuit goes around it where the table has another way.

show --json prints an array with an object for each monitor: monitor, version, shape,
groups, vias, links (to, lane, circuits), names (service, monitor), frames, circuits,
opened, refused, lost, unknown, recalls, stored_lines.";

/// Show or change the routes of circuits
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// Show links, names and the routing table of each monitor
    Show {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Join each monitor with each
    Direct,
    /// Join each monitor with the next one
    Ring {
        /// The monitors in their order [default: all that run]
        #[arg(long, value_name = "N", value_delimiter = ',')]
        monitors: Vec<usize>,
    },
    /// Join monitors in groups, and the first of each group
    FatTree {
        /// The monitors in their order [default: all that run]
        #[arg(long, value_name = "N", value_delimiter = ',')]
        monitors: Vec<usize>,
        /// How many are in a group
        #[arg(long, value_name = "COUNT", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=256))]
        group: u16,
    },
    /// Make a single route
    Via {
        /// At this monitor
        from: usize,
        /// the way to this one
        to: usize,
        /// goes to this one
        via: usize,
    },
}

/// Runs the command.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let domain = access::open_domain()?;
    let running = monitors(&domain)?;
    let mut named = Vec::new();
    let mut chosen = |numbers: &[usize]| -> Result<Vec<NodeId>, Failure> {
        named = numbers.iter().map(|number| node(*number)).collect::<Result<_, _>>()?;
        Ok(if numbers.is_empty() { running.clone() } else { named.clone() })
    };
    let table = match &args.what {
        What::Show { json } => return show(&domain, &running, *json),
        What::Direct => Table::default(),
        What::Ring { monitors } => ring(chosen(monitors)?),
        What::FatTree { monitors, group } => fat_tree(&chosen(monitors)?, usize::from(*group)),
        What::Via { from, to, via } => {
            let first = first(&running)?;
            let routes = asking(&domain, first)?.routes().map_err(Failure::other)?;
            let mut table = table_of(&routes)?;
            let (from, to, via) = (node(*from)?, node(*to)?, node(*via)?);
            named = vec![from, to, via];
            table.vias.retain(|one| (one.from, one.to) != (from, to));
            table.vias.push(Via { from, to, via });
            table
        }
    };
    corewire_circuit::node::table::check(&table).map_err(Failure::usage)?;
    let first = first(&running)?;
    // A route by a monitor that does not run would lead nowhere.
    if let Some(missing) = named.iter().find(|node| !running.contains(node)) {
        return Err(Failure::other(format!("monitor {missing} does not run")));
    }
    asking(&domain, first)?.set_table(table).map_err(Failure::other)
}

fn node(number: usize) -> Result<NodeId, Failure> {
    let most = NODES_MAX - 1;
    NodeId::new(number)
        .ok_or_else(|| Failure::usage(format!("monitor {number}: numbers are at most {most}")))
}

fn first(running: &[NodeId]) -> Result<NodeId, Failure> {
    let first = running.first().copied();
    first.ok_or_else(|| Failure::other("no monitor runs in the domain"))
}

fn asking(domain: &Domain, node: NodeId) -> Result<Asking, Failure> {
    Asking::connect(domain, node, ANSWER_WITHIN).map_err(Failure::other)
}

/// The table that a monitor shows.
fn table_of(routes: &Routes) -> Result<Table, Failure> {
    let nodes = |group: &Vec<usize>| group.iter().map(|number| node(*number)).collect();
    let shape = match (routes.shape.as_str(), &routes.groups[..]) {
        ("ring", [all]) => Shape::Ring(nodes(all)?),
        ("fat tree", groups) => {
            Shape::FatTree(groups.iter().map(nodes).collect::<Result<_, Failure>>()?)
        }
        _ => Shape::Direct,
    };
    let via = |[from, to, via]: &[usize; 3]| {
        Ok(Via { from: node(*from)?, to: node(*to)?, via: node(*via)? })
    };
    let vias = routes.vias.iter().map(via).collect::<Result<_, Failure>>()?;
    Ok(Table { version: routes.version, shape, vias })
}

fn show(domain: &Domain, running: &[NodeId], json: bool) -> Result<(), Failure> {
    let asked = Asked::all(running, |node| {
        Asking::connect(domain, node, ANSWER_WITHIN).and_then(|mut one| one.routes())
    });
    let found = &asked.found;
    if json {
        output::print_json(found)?;
        return asked.end();
    }
    let mut text = String::new();
    for routes in found {
        text.push_str(&shown(routes, found)?);
    }
    if running.is_empty() {
        text.push_str("no monitor runs in the domain\n");
    }
    output::print(&text)?;
    asked.end()
}

fn shown(routes: &Routes, all: &[Routes]) -> Result<String, Failure> {
    let shape = units::printable(&routes.shape);
    let mut text = format!("monitor {}: {shape}, version {}", routes.monitor, routes.version);
    for group in &routes.groups {
        let group: Vec<_> = group.iter().map(ToString::to_string).collect();
        text.push_str(&format!(" [{}]", group.join(" ")));
    }
    text.push('\n');
    let table = table_of(routes)?;
    let own = node(routes.monitor)?;
    let mut rows = Vec::new();
    for other in all.iter().filter(|other| other.monitor != routes.monitor) {
        let next = next_hop(&table, own, node(other.monitor)?);
        let next = next.map_or_else(|| "-".to_owned(), |next| format!("monitor {next}"));
        rows.push(vec![format!("  to monitor {}", other.monitor), next]);
    }
    if !rows.is_empty() {
        text.push_str(&table::render(&[("  way", false), ("next", false)], &rows));
    }
    let rows: Vec<_> = routes
        .links
        .iter()
        .map(|link| vec![format!("  {}", link.to), link.lane.clone(), link.circuits.to_string()])
        .collect();
    if !rows.is_empty() {
        text.push_str(&table::render(
            &[("  link", false), ("lane", false), ("circuits", true)],
            &rows,
        ));
    }
    let own_names = routes.names.iter().filter(|name| name.monitor == routes.monitor);
    let names: Vec<_> = own_names.map(|name| units::printable(&name.service)).collect();
    if !names.is_empty() {
        text.push_str(&format!("  serves {}\n", names.join(", ")));
    }
    Ok(text)
}
