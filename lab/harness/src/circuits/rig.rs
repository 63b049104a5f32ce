//! A client, its service, and the monitors between them, in two threads that never sleep.
//!
//! ```text
//!            this thread         |   the other thread
//!  direct    client              |   service
//!  1         client, service     |   monitor 0
//!  2         client, monitor 1   |   monitor 0, service
//!  3         client, m. 1, serv. |   monitors 0 and 2
//! ```
//!
//! A thread goes round its parties and lets each handle what has come. The parties of a thread never have work at the same
//! time while one message travels, so each hop costs what it costs between threads that have only one party each, plus the
//! looks at the other parties of the thread, which find nothing. This thread looks at its service until the request has
//! come, and then at its client.

use std::sync::Arc;
use std::thread::JoinHandle;

use corewire::Domain;
use corewire_bind::{MonitorAt, Serve};
use corewire_circuit::monitor::{Asking, Monitor, Options};
use corewire_os::processor;
use corewire_ring::sync::Ordering::{Acquire, Release};
use corewire_ring::sync::{AtomicU64, pause};

use super::chain::{Chain, Side, domain_at, table};
use super::printed::Printed;
use super::{Parties, bind_way, node};
use crate::calls::{Client, Echo, PATIENCE, SERVICE, Server};
use crate::crew::Crew;
use crate::failure::{Doing, Failure};
use crate::places::Pinned;
use crate::program::Program;
use crate::setup::Setup;

/// Monitors on the way of the thesis' protocol: its two hops.
pub const PRINTED_MONITORS: usize = 2;
/// The phase in which the other thread ends.
const END: u64 = u64::MAX;
/// The phase in which it does nothing.
const REST: u64 = u64::MAX - 1;

/// Everything that is compared: a direct call, and chains of monitors.
#[derive(Debug)]
pub struct Rig {
    /// By the number of monitors.
    chains: Vec<Chain>,
    printed: (Printed, Side),
    phase: Arc<AtomicU64>,
    other: Option<JoinHandle<Result<(), Failure>>>,
    cpus: [usize; 2],
    _pinned: Pinned,
    /// Has the directory of the domains.
    _crew: Crew,
}

impl Rig {
    /// Starts chains of one to `monitors` monitors in domains of their own, each with so many clients of one service,
    /// and pins this thread and the other one.
    ///
    /// # Errors
    /// If a party cannot be started.
    pub fn start(
        program: Program,
        monitors: usize,
        clients: usize,
        cpus: [usize; 2],
    ) -> Result<Self, Failure> {
        let crew = Setup::new(program, 0).crew()?;
        let directory = crew.directory();
        let mut chains = Vec::new();
        let mut others = Vec::new();
        for count in 0..=monitors {
            let domain = domain_at(directory, &count.to_string())?;
            let (clients, [here, other]) = chain(&domain, count, clients)?;
            chains.push(Chain { clients, here });
            others.push(other);
        }
        let (client, [here, there]) =
            Printed::start(&domain_at(directory, "printed")?, PRINTED_MONITORS)?;
        let printed = (client, Side { printed: here, ..Side::default() });
        others.push(Side { printed: there, ..Side::default() });
        let phase = Arc::new(AtomicU64::new(REST));
        let seen = Arc::clone(&phase);
        let pinned = Pinned::to(cpus[0])?;
        let other = std::thread::spawn(move || {
            processor::pin_to(cpus[1]).doing(format_args!("keep to processor {}", cpus[1]))?;
            turn_others(&mut others, &seen)
        });
        Ok(Self { chains, printed, phase, other: Some(other), cpus, _pinned: pinned, _crew: crew })
    }

    /// Calls by the thesis' protocol through [`PRINTED_MONITORS`], with its type at this index.
    ///
    /// # Errors
    /// If a party fails.
    pub fn call_printed(&mut self, shape: usize, number: u64) -> Result<(), Failure> {
        self.set(self.chains.len() as u64);
        let (client, here) = &mut self.printed;
        client.call(shape, number, || here.turn_monitors())
    }

    /// Calls through some monitors, with the type at this index of [`TYPES`](crate::calls::types::TYPES).
    ///
    /// # Errors
    /// If the call fails, or a party.
    pub fn call(&mut self, monitors: usize, shape: usize, number: u64) -> Result<(), Failure> {
        let chain = self.chain(monitors);
        let short = u32::from(number.to_le_bytes()[0]);
        let byte = number.to_le_bytes()[0];
        match shape {
            0 => chain.call(Client::start_empty),
            1 => chain.call(|client| client.start_payload32_1(short)).map(drop),
            2 => chain.call(|client| client.start_payload32_4(1, 2, 3, short)).map(drop),
            3 => {
                chain.call(|client| client.start_payload32_8(1, 2, 3, 4, 5, 6, 7, short)).map(drop)
            }
            4 => chain.call(|client| client.start_payload64_1(number)).map(drop),
            5 => chain.call(|client| client.start_payload64_4(1, 2, 3, number)).map(drop),
            6 => {
                chain.call(|client| client.start_payload64_8(1, 2, 3, 4, 5, 6, 7, number)).map(drop)
            }
            7 => chain.call(|client| client.start_buffer(&[byte])).map(drop),
            8 => chain.call(|client| client.start_buffer(&[byte; 100])).map(drop),
            9 => chain.call(|client| client.start_buffer(&[byte; 1000])).map(drop),
            _ => chain.call(|client| client.start_fixed100([number; 12], short)).map(drop),
        }
    }

    fn set(&self, phase: u64) {
        self.phase.store(phase, Release);
    }
}

impl Parties for Rig {
    fn chain(&mut self, monitors: usize) -> &mut Chain {
        self.set(monitors as u64);
        &mut self.chains[monitors]
    }

    fn placement(&self) -> String {
        let [one, other] = self.cpus;
        format!("two threads, on processors {one} and {other}; neighbours in different ones")
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.set(END);
        if let Some(other) = self.other.take() {
            let _ = other.join();
        }
    }
}

fn turn_others(others: &mut [Side], phase: &AtomicU64) -> Result<(), Failure> {
    loop {
        match phase.load(Acquire) {
            END => return Ok(()),
            phase => match usize::try_from(phase).ok().and_then(|phase| others.get_mut(phase)) {
                // Many turns for each look at the phase, which the other core writes.
                Some(side) => (0..1000).try_for_each(|_| side.turn().map(drop))?,
                None => pause(),
            },
        }
    }
}

/// Clients and their service, with `count` monitors between them: neighbours on the way are on different sides. Without
/// monitors there is one client.
fn chain(
    domain: &Domain,
    count: usize,
    clients: usize,
) -> Result<(Vec<Client>, [Side; 2]), Failure> {
    let nodes = (0..count).map(node).collect::<Result<Vec<_>, _>>()?;
    let mut sides = [Side::default(), Side::default()];
    for (index, &node) in nodes.iter().enumerate() {
        let monitor =
            Monitor::start(domain.clone(), Options::new(node)).doing("start a monitor")?;
        sides[(index + 1) % 2].monitors.push(monitor);
    }
    if let [first, _, _, ..] = nodes[..] {
        let table = table(&nodes);
        pump(&mut sides, || Asking::connect(domain, first, PATIENCE)?.set_table(table))?
            .doing("give a table")?;
    }
    let serve = match count.checked_sub(1) {
        Some(last) => {
            Serve::default().clients(clients).monitor(Some(MonitorAt::default().number(last)))
        }
        None => Serve::default(),
    };
    let service = Server::with(domain, SERVICE, Echo::default(), serve);
    sides[(count + 1) % 2].service = Some(service.doing("create a service")?);
    let clients = pump(&mut sides, || bind_way(domain, count, clients))??;
    Ok((clients, sides))
}

/// Does something in a thread of its own, and lets all parties work meanwhile.
fn pump<R: Send>(sides: &mut [Side; 2], job: impl FnOnce() -> R + Send) -> Result<R, Failure> {
    std::thread::scope(|scope| {
        let job = scope.spawn(job);
        while !job.is_finished() {
            sides.iter_mut().try_for_each(|side| side.turn().map(drop))?;
            std::thread::yield_now();
        }
        job.join().map_err(|_| Failure::other("a thread panicked"))
    })
}
