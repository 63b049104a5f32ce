//! Circuits of the interface that is made for measurements, through one and more monitors ([`crate::calls`] has the
//! interface and its service).
//!
//! [`apart`] has each party in a process on a processor of its own. Where there are too few processors, [`rig`] has all of
//! them in two threads of one process, neither of which sleeps: about what a circuit costs if every party has a core of its
//! own. Neighbours on the way are always in different threads, so each hop crosses from core to core. Either offers the
//! same [`Chain`]s, and says where its parties are.
//!
//! [`printed`] has the thesis' protocol over the same rings, in a rig as well.
//!
//! [`flooded`] and [`many`] have each party in a process of its own, where the kernel puts it, which sleeps when it has
//! nothing to do: binding while links are flooded, and thousands of circuits.

mod apart;
mod chain;
pub mod flooded;
pub mod many;
mod printed;
pub mod rig;

use std::fmt::Debug;

use corewire::Domain;
use corewire_bind::{Bind, Driver, MonitorAt, Serve};
use corewire_circuit::monitor::{Monitor, Options};
use corewire_circuit::wire::NodeId;
use corewire_os::processor;
use serde::{Deserialize, Serialize};

use self::apart::Apart;
pub use self::chain::Chain;
use self::chain::domain_at;
use self::rig::Rig;
use crate::board::READY;
use crate::calls::{self, Client, Echo, PATIENCE, Server};
use crate::crew::Crew;
use crate::failure::{Doing, Failure};
use crate::places::Places;
use crate::program::Program;
use crate::role::{Role, Worker};
use crate::setup::Setup;

/// Clients, monitors and services of the ways that are compared.
pub trait Parties: Debug {
    /// The clients with so many monitors on their way; the direct one with none.
    ///
    /// # Panics
    /// If there is no such way.
    fn chain(&mut self, monitors: usize) -> &mut Chain;

    /// Where the parties are, in words.
    fn placement(&self) -> String;
}

/// Starts a direct client, and chains of one to `monitors` monitors with so many clients of one service each: as processes
/// if each can have a processor, as two threads if not.
///
/// # Errors
/// If there are not even two processors, or a party cannot be started.
pub fn start(
    program: Program,
    role: &Role<Part>,
    monitors: usize,
    clients: usize,
) -> Result<Box<dyn Parties>, Failure> {
    let cpus = processor::allowed().doing("ask for processors")?;
    match cpus[..] {
        _ if cpus.len() >= apart::processors(monitors) => {
            Ok(Box::new(Apart::start(program, role, monitors, clients, &cpus)?))
        }
        [one, other, ..] => Ok(Box::new(Rig::start(program, monitors, clients, [one, other])?)),
        _ => Err(Failure::other("circuits are measured between two processors; there is one")),
    }
}

/// What a process of a measurement does.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Part {
    /// The way of [`Apart`] that it belongs to, which has a domain of its own.
    way: Option<usize>,
    does: Does,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
enum Does {
    /// The monitor of this number.
    Monitor(usize),
    /// The service of this name, at a monitor or at none, of so many clients if it needs to know.
    Serve { name: String, monitor: Option<usize>, clients: Option<usize> },
    /// The client of a stream to the service of this name, which waits for the start.
    Flood(String),
}

impl Does {
    fn serve(name: &str, monitor: Option<usize>, clients: Option<usize>) -> Self {
        Self::Serve { name: name.to_owned(), monitor, clients }
    }
}

/// The worker of all measurements.
///
/// # Errors
/// If a monitor, a service or the stream fails.
pub fn work(worker: &Worker, Part { way, does }: Part) -> Result<(), Failure> {
    let domain = match way {
        Some(way) => domain_at(worker.directory(), &way.to_string())?,
        None => worker.domain()?,
    };
    match does {
        Does::Monitor(number) => {
            let monitor = Monitor::start(domain, Options::new(node(number)?));
            let mut monitor = monitor.doing("start a monitor")?;
            worker.reach(READY);
            monitor.run().doing("run a monitor")
        }
        Does::Serve { name, monitor, clients } => {
            let serve = Serve::default().monitor(monitor.map(|at| MonitorAt::default().number(at)));
            let serve = clients.map_or(serve.clone(), |clients| serve.clients(clients));
            let server = Server::with(&domain, &name, Echo::default(), serve);
            let mut server = server.doing("create a service")?;
            worker.reach(READY);
            loop {
                server.serve_one().doing("serve")?;
            }
        }
        Does::Flood(name) => {
            let mut client = bind(&domain, &name)?;
            worker.reach(READY);
            worker.board().await_go();
            loop {
                client.one_way_32(0, 1, 2, 3).doing("send")?;
            }
        }
    }
}

/// Starts a process for each of so many monitors, and for the others, where the kernel puts them.
fn processes(
    program: Program,
    role: &Role<Part>,
    monitors: usize,
    others: impl IntoIterator<Item = Does>,
) -> Result<Crew, Failure> {
    let parts: Vec<_> = (0..monitors).map(Does::Monitor).chain(others).collect();
    let setup = Setup::new(program, parts.len()).places(Places::Anywhere);
    let mut crew = setup.start(role, |at| Part { way: None, does: parts[at].clone() })?;
    crew.await_ready()?;
    Ok(crew)
}

fn node(number: usize) -> Result<NodeId, Failure> {
    NodeId::new(number).ok_or_else(|| Failure::other(format!("{number} monitors are too many")))
}

/// Binds so many clients to the service at the end of a way with so many monitors; one to that of the direct way.
fn bind_way(domain: &Domain, monitors: usize, clients: usize) -> Result<Vec<Client>, Failure> {
    match monitors {
        0 => Ok(vec![calls::bind(domain, Driver::Ump)?]),
        _ => many::bind_all(domain, clients),
    }
}

/// Binds a client at monitor 0.
fn bind(domain: &Domain, service: &str) -> Result<Client, Failure> {
    let bind = Bind::default().drivers([Driver::Circuit]).timeout(PATIENCE);
    Client::bind(domain, service, &bind.monitor(MonitorAt::default().number(0))).doing("bind")
}
