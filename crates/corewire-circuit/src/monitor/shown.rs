//! What a monitor shows, in JSON.

use serde::{Deserialize, Serialize};

use crate::node::{Neighbour, Node, PhaseView};
use crate::wire::packet::{Shape, Table};

/// The circuits of a monitor.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Circuits {
    /// The monitor.
    pub monitor: usize,
    /// Its circuits.
    pub circuits: Vec<Circuit>,
}

/// A circuit at a monitor.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Circuit {
    /// The service.
    pub service: String,
    /// The client's user.
    pub uid: u32,
    /// The client's process, as its own monitor sees it; 0 in another container.
    pub pid: u32,
    /// The client's monitor.
    pub home: usize,
    /// `opening`, `open` or `ending`.
    pub phase: String,
    /// Where the client is from here: `process 12` or `monitor 1`.
    pub from: String,
    /// Where the service is from here.
    pub to: String,
    /// Lines of 64 bytes that came from the client, modulo 2^32.
    pub lines_up: u32,
    /// Lines that came from the service.
    pub lines_down: u32,
    /// Lines that wait here.
    pub stored_lines: u32,
    /// Lines that are lent to it.
    pub lent_lines: u32,
}

/// The routes of a monitor.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Routes {
    /// The monitor.
    pub monitor: usize,
    /// The version of its routing table.
    pub version: u64,
    /// `direct`, `ring` or `fat tree`.
    pub shape: String,
    /// The groups of a fat tree, or the ring as one group.
    pub groups: Vec<Vec<usize>>,
    /// Single routes: at the first one, the way to the second goes to the third.
    pub vias: Vec<[usize; 3]>,
    /// Its links.
    pub links: Vec<Link>,
    /// The names that it knows.
    pub names: Vec<Name>,
    /// Frames that it has forwarded.
    pub frames: u64,
    /// Circuits at present.
    pub circuits: usize,
    /// Circuits that were set up so far.
    pub opened: u64,
    /// Requests for circuits that were refused here.
    pub refused: u64,
    /// Circuits that ended because a neighbour did.
    pub lost: u64,
    /// Frames of circuits that are not there, which were ignored.
    pub unknown: u64,
    /// Times memory that was lent to a circuit was asked back.
    pub recalls: u64,
    /// Lines of memory that hold frames now.
    pub stored_lines: usize,
}

/// A link of a monitor.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Link {
    /// `process 12` or `monitor 1`.
    pub to: String,
    /// `ring` or `socket`.
    pub lane: String,
    /// Circuits through it.
    pub circuits: usize,
}

/// A name and where it is served.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Name {
    /// The service.
    pub service: String,
    /// The monitor.
    pub monitor: usize,
}

fn shown(neighbour: Option<Neighbour>) -> String {
    match neighbour {
        Some(Neighbour::Program(origin)) => format!("process {}", origin.pid),
        Some(Neighbour::Monitor(node)) => format!("monitor {node}"),
        None => "gone".to_owned(),
    }
}

impl Circuits {
    pub(crate) fn of(node: &Node) -> Self {
        let circuits = node.circuits().map(|circuit| Circuit {
            service: circuit.service,
            uid: circuit.origin.uid,
            pid: circuit.origin.pid,
            home: circuit.home.number(),
            phase: match circuit.phase {
                PhaseView::Opening => "opening",
                PhaseView::Open => "open",
                PhaseView::Ending => "ending",
            }
            .to_owned(),
            from: shown(circuit.client),
            to: shown(circuit.service_side),
            lines_up: circuit.lines[0],
            lines_down: circuit.lines[1],
            stored_lines: circuit.stored_lines.iter().sum(),
            lent_lines: circuit.lent_lines.iter().sum(),
        });
        Self { monitor: node.id().number(), circuits: circuits.collect() }
    }
}

impl Routes {
    pub(crate) fn of(node: &Node, lane_of: impl Fn(crate::node::LinkId) -> &'static str) -> Self {
        let (Table { version, shape, vias }, counts) = (node.table(), node.counts());
        let numbers =
            |nodes: &Vec<_>| nodes.iter().map(|node: &crate::wire::NodeId| node.number()).collect();
        let (shape, groups) = match shape {
            Shape::Direct => ("direct", Vec::new()),
            Shape::Ring(nodes) => ("ring", vec![numbers(nodes)]),
            Shape::FatTree(groups) => ("fat tree", groups.iter().map(numbers).collect()),
        };
        let links = node.links().map(|link| Link {
            to: shown(Some(link.neighbour)),
            lane: lane_of(link.link).to_owned(),
            circuits: link.circuit_count,
        });
        let name = |(service, monitor): (&str, crate::wire::NodeId)| Name {
            service: service.to_owned(),
            monitor: monitor.number(),
        };
        Self {
            monitor: node.id().number(),
            version: *version,
            shape: shape.to_owned(),
            groups,
            vias: vias
                .iter()
                .map(|via| [via.from, via.to, via.via].map(|node| node.number()))
                .collect(),
            links: links.collect(),
            names: node.names().map(name).collect(),
            frames: counts.forwarded + counts.stored,
            circuits: node.circuit_count(),
            opened: counts.opened,
            refused: counts.refused,
            lost: counts.lost,
            unknown: counts.unknown,
            recalls: counts.recalls,
            stored_lines: node.stored_lines(),
        }
    }
}
