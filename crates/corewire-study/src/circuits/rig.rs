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

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use corewire::Domain;
use corewire_bind::{Bind, CallError, Driver, MonitorAt, Pending, Serve};
use corewire_layout::circuit::NodeId;
use corewire_layout::circuit::packet::{Table, Via};
use corewire_monitor::{Asking, Found, Monitor, Options};
use corewire_os::processor;
use corewire_ring::sync::Ordering::{Acquire, Release};
use corewire_ring::sync::{AtomicU64, pause};

use super::many::bind_all;
use super::printed::{Party, Printed};
use crate::calls::{Client, Echo, PATIENCE, SERVICE, Server};
use crate::failure::{Doing, Failure};
use crate::harness::rounds::per_second;

/// Monitors on the way of the thesis' protocol: its two hops.
pub const PRINTED_MONITORS: usize = 2;
/// Messages of a stream: about 10 ms.
const STREAMED: u64 = 100_000;
/// Messages that the service reads before the client goes on.
const SERVED: u32 = 64;
/// The phase in which the other thread ends.
const END: u64 = u64::MAX;
/// The phase in which it does nothing.
const REST: u64 = u64::MAX - 1;

/// What one thread has of a chain.
#[derive(Debug, Default)]
pub struct Side {
    monitors: Vec<Monitor>,
    service: Option<Server<Echo>>,
    printed: Vec<Party>,
}

impl Side {
    /// Lets every party handle what has come. Returns whether the service had something to do.
    ///
    /// # Errors
    /// If one of them fails.
    #[inline]
    pub fn turn(&mut self) -> Result<bool, Failure> {
        self.turn_monitors()?;
        match &mut self.service {
            Some(service) => service.serve_one_timeout(Duration::ZERO).doing("serve"),
            None => Ok(false),
        }
    }

    /// Messages that the service has received.
    fn received(&mut self) -> u64 {
        self.service.as_mut().map_or(0, |service| service.service().received)
    }

    #[inline]
    fn turn_monitors(&mut self) -> Result<(), Failure> {
        for party in &mut self.printed {
            party.turn()?;
        }
        for monitor in &mut self.monitors {
            if monitor.turn().doing("turn a monitor")? == Found::Stop {
                return Err(Failure::other("a monitor was stopped"));
            }
        }
        Ok(())
    }
}

/// Clients whose calls go through the same monitors, and the parties of their thread.
#[derive(Debug)]
pub struct Chain {
    clients: Vec<Client>,
    here: Side,
}

impl Chain {
    /// The first client. If it waits, the parties of this thread do not work.
    ///
    /// # Panics
    /// If there is none.
    pub fn client(&mut self) -> &mut Client {
        &mut self.clients[0]
    }

    /// Lets the service read some messages, as it does when it has a core of its own.
    fn serve_some(&mut self) -> Result<(), Failure> {
        for _ in 0..SERVED {
            if !self.here.turn()? {
                break;
            }
        }
        Ok(())
    }

    /// Calls by the first client.
    ///
    /// # Errors
    /// If the call fails, or a party.
    ///
    /// # Panics
    /// If there is no client.
    #[inline]
    pub fn call<R, E: std::fmt::Display>(
        &mut self,
        start: impl FnOnce(&mut Client) -> Result<Pending<Result<R, E>>, CallError>,
    ) -> Result<R, Failure> {
        self.call_by(0, start)
    }

    /// Calls by one of the clients, and lets the parties of this thread work meanwhile. Nothing else may be under way.
    ///
    /// # Errors
    /// If the call fails, or a party.
    ///
    /// # Panics
    /// If there is no such client.
    #[inline]
    pub fn call_by<R, E: std::fmt::Display>(
        &mut self,
        client: usize,
        start: impl FnOnce(&mut Client) -> Result<Pending<Result<R, E>>, CallError>,
    ) -> Result<R, Failure> {
        let client = &mut self.clients[client];
        let mut pending = start(client).doing("call")?;
        let is_served_here = self.here.service.is_some();
        while is_served_here && !self.here.turn()? {}
        let reply = match self.here.monitors.is_empty() {
            true => pending.wait(client),
            false => loop {
                self.here.turn_monitors()?;
                if let Some(reply) = pending.try_wait(client) {
                    break reply;
                }
            },
        };
        reply.map_err(|error| Failure::other(format!("a call failed: {error}")))
    }
}

/// Everything that is compared: a direct call, and chains of monitors.
#[derive(Debug)]
pub struct Rig {
    /// By the number of monitors.
    chains: Vec<Chain>,
    printed: (Printed, Side),
    phase: Arc<AtomicU64>,
    other: Option<JoinHandle<Result<(), Failure>>>,
}

impl Rig {
    /// Starts chains of one to `monitors` monitors in domains below `directory`, each with so many clients of one service,
    /// and pins this thread and the other one.
    ///
    /// # Errors
    /// If a party cannot be started.
    pub fn start(
        directory: &Path,
        monitors: usize,
        clients: usize,
        cpus: [usize; 2],
    ) -> Result<Self, Failure> {
        let mut chains = Vec::new();
        let mut others = Vec::new();
        // The service of direct calls is at index 0.
        let domain = domain_at(directory, "direct")?;
        let service = Server::new(&domain, SERVICE, Echo::default()).doing("create a service")?;
        let mut sides = [Side::default(), Side { service: Some(service), ..Side::default() }];
        let bind = Bind::default().drivers([Driver::Ump]).timeout(PATIENCE);
        let direct = pump(&mut sides, || Client::bind(&domain, SERVICE, &bind))?.doing("bind")?;
        let [here, other] = sides;
        chains.push(Chain { clients: vec![direct], here });
        others.push(other);
        for count in 1..=monitors {
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
        let other = std::thread::spawn(move || {
            processor::pin_to(cpus[1]).doing(format_args!("keep to processor {}", cpus[1]))?;
            turn_others(&mut others, &seen)
        });
        processor::pin_to(cpus[0]).doing(format_args!("keep to processor {}", cpus[0]))?;
        Ok(Self { chains, printed, phase, other: Some(other) })
    }

    /// Messages a second of a stream of 32 bytes without monitors.
    ///
    /// # Errors
    /// If a call fails.
    pub fn stream_direct(&mut self) -> Result<f64, Failure> {
        let client = self.chain(0).client();
        let before = client.counts().doing("call")?.received;
        let start = Instant::now();
        for number in 0..STREAMED {
            client.one_way_32(number, 1, 2, 3).doing("send")?;
        }
        let after = client.counts().doing("call")?.received;
        match after - before == STREAMED {
            true => Ok(per_second(STREAMED, start)),
            false => Err(Failure::other(format!("{} of {STREAMED} messages came", after - before))),
        }
    }

    /// The same through one monitor.
    ///
    /// # Errors
    /// If a send fails, or a party.
    pub fn stream(&mut self) -> Result<f64, Failure> {
        let chain = self.chain(1);
        let due = chain.here.received() + STREAMED;
        let start = Instant::now();
        for number in 0..STREAMED {
            while !sent(chain.client().try_one_way_32(number, 1, 2, 3))? {
                chain.serve_some()?;
            }
        }
        while chain.here.received() < due {
            chain.client().progress().doing("send")?;
            chain.serve_some()?;
        }
        Ok(per_second(STREAMED, start))
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

    /// The client with so many monitors on its way; the direct one with none.
    ///
    /// # Panics
    /// If the rig has no such chain.
    pub fn chain(&mut self, monitors: usize) -> &mut Chain {
        self.set(monitors as u64);
        &mut self.chains[monitors]
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

fn sent(tried: Result<(), CallError>) -> Result<bool, Failure> {
    match tried {
        Ok(()) => Ok(true),
        Err(CallError::Busy) => Ok(false),
        Err(error) => Err(Failure::other(format!("a message was not sent: {error}"))),
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

fn domain_at(directory: &Path, name: &str) -> Result<Domain, Failure> {
    let path = directory.join(name);
    let made = DirBuilder::new().mode(0o700).create(&path);
    made.doing(format_args!("make {}", path.display()))?;
    Domain::open_at(&path).doing("open a domain")
}

/// Clients and their service, with `count` monitors between them: neighbours on the way are on different sides.
fn chain(
    domain: &Domain,
    count: usize,
    clients: usize,
) -> Result<(Vec<Client>, [Side; 2]), Failure> {
    let too_many = || Failure::other(format!("{count} monitors are too many"));
    let nodes: Option<Vec<NodeId>> = (0..count).map(NodeId::new).collect();
    let nodes = nodes.ok_or_else(too_many)?;
    let mut sides = [Side::default(), Side::default()];
    for (index, &node) in nodes.iter().enumerate() {
        let monitor =
            Monitor::start(domain.clone(), Options::new(node)).doing("start a monitor")?;
        sides[(index + 1) % 2].monitors.push(monitor);
    }
    if let [first, _, _, ..] = nodes[..] {
        let table = chain_table(&nodes);
        pump(&mut sides, || Asking::connect(domain, first, PATIENCE)?.set_table(table))?
            .doing("give a table")?;
    }
    let at_service = MonitorAt::default().number(count - 1);
    let serve = Serve::default().clients(clients).monitor(Some(at_service));
    let service = Server::with(domain, SERVICE, Echo::default(), serve);
    sides[(count + 1) % 2].service = Some(service.doing("create a service")?);
    let clients = pump(&mut sides, || bind_all(domain, clients))??;
    Ok((clients, sides))
}

/// The table by which each monitor sends everything to the next one on the way.
fn chain_table(nodes: &[NodeId]) -> Table {
    let mut vias = Vec::new();
    for (at, &from) in nodes.iter().enumerate() {
        for (end, &to) in nodes.iter().enumerate() {
            let via = if at < end { nodes.get(at + 1) } else { nodes.get(at.wrapping_sub(1)) };
            if at.abs_diff(end) > 1 {
                vias.extend(via.map(|&via| Via { from, to, via }));
            }
        }
    }
    Table { vias, ..Table::default() }
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
