//! Thousands of circuits over few links: two monitors, a service and a client, each a process of its own.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use corewire::Domain;
use corewire_bind::{Bind, Driver, MonitorAt, Serve};
use corewire_layout::circuit::NodeId;
use corewire_monitor::{Asking, Monitor, Options};
use corewire_os::process;
use serde::{Deserialize, Serialize};

use crate::board::READY;
use crate::calls::{Client, Echo, PATIENCE, SERVICE, Server};
use crate::crew::Crew;
use crate::failure::{Doing, Failure};
use crate::places::Places;
use crate::program::Program;
use crate::role::{Role, Worker};
use crate::setup::Setup;

/// Monitors on the way.
pub(super) const MONITORS: usize = 2;
/// Circuits that are bound first, and stay: what memory and time they need is counted apart.
const FIRST: usize = 64;
/// Threads that bind.
const THREADS: usize = 16;
/// How long idle circuits are watched.
const WATCHED: Duration = Duration::from_secs(3);
/// How long monitors may take to give memory back.
const GIVEN_BACK_WITHIN: Duration = Duration::from_secs(5);
/// How long it may take until all are forgotten.
const FORGOTTEN_WITHIN: Duration = Duration::from_secs(60);

/// What a process of the measurement does.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Part {
    /// A monitor of this number.
    Monitor(usize),
    /// The service of so many clients, at the last monitor.
    Service(usize),
}

/// What was measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Many {
    /// Circuits.
    pub circuits: usize,
    /// Time to bind all of them, and to unbind them until no monitor knows any.
    pub setup_s: f64,
    /// Time to unbind.
    pub teardown_s: f64,
    /// Memory of each monitor for a circuit, without what is reserved for its frames.
    pub bytes_each: [f64; MONITORS],
    /// Memory of each monitor before, at most, and afterwards.
    pub resident_bytes: [[u64; 3]; MONITORS],
    /// Processor time of both monitors while [`IDLE`] circuits exist and nothing is sent, as a part of a core.
    pub idle_share: f64,
    /// How many circuits were idle then.
    pub idle_circuits: usize,
}

/// Circuits that are idle while processor time is counted.
pub const IDLE: usize = 1000;

/// The worker of [`measure`].
///
/// # Errors
/// If a monitor or the service fails.
pub fn work(worker: &Worker, part: Part) -> Result<(), Failure> {
    let domain = worker.domain()?;
    match part {
        Part::Monitor(number) => run_monitor(worker, domain, number),
        Part::Service(clients) => {
            let serve = Serve::default().clients(clients);
            run_service(worker, &domain, SERVICE, serve, Some(MONITORS - 1))
        }
    }
}

/// A worker that is a monitor.
pub(super) fn run_monitor(worker: &Worker, domain: Domain, number: usize) -> Result<(), Failure> {
    let mut monitor =
        Monitor::start(domain, Options::new(node(number)?)).doing("start a monitor")?;
    worker.reach(READY);
    monitor.run().doing("run a monitor")
}

/// A worker that is a service of this name, at a monitor or at none.
pub(super) fn run_service(
    worker: &Worker,
    domain: &Domain,
    name: &str,
    serve: Serve,
    monitor: Option<usize>,
) -> Result<(), Failure> {
    let serve = serve.monitor(monitor.map(|number| MonitorAt::default().number(number)));
    let server = Server::with(domain, name, Echo::default(), serve);
    let mut server = server.doing("create a service")?;
    worker.reach(READY);
    loop {
        server.serve_one().doing("serve")?;
    }
}

/// Binds `count` clients, and unbinds them.
///
/// # Errors
/// If a process fails, or a client cannot be bound.
pub fn measure(program: Program, role: &Role<Part>, count: usize) -> Result<Many, Failure> {
    let mut crew = Setup::new(program, MONITORS + 1).places(Places::Anywhere).crew()?;
    for number in 0..MONITORS {
        crew.add_worker(role, &Part::Monitor(number))?;
    }
    crew.add_worker(role, &Part::Service(count + FIRST))?;
    crew.await_ready()?;
    let domain = crew.domain()?.clone();
    let first = bind_all(&domain, FIRST)?;
    let before = resident(&crew)?;
    let idle_circuits = IDLE.min(count);
    let idle = bind_all(&domain, idle_circuits)?;
    let idle_share = idle_share(&crew)?;
    drop(idle);
    await_count(&domain, FIRST)?;
    let start = Instant::now();
    let all = bind_all(&domain, count)?;
    let setup_s = start.elapsed().as_secs_f64();
    let most = resident(&crew)?;
    let start = Instant::now();
    drop(all);
    await_count(&domain, FIRST)?;
    let teardown_s = start.elapsed().as_secs_f64();
    let start = Instant::now();
    let mut after = resident(&crew)?;
    // Monitors look once a second whether there is memory to give back.
    while start.elapsed() < GIVEN_BACK_WITHIN
        && after.iter().zip(before).any(|(a, b)| a / 20 * 20 > b / 20 * 21)
    {
        std::thread::park_timeout(Duration::from_millis(50));
        after = resident(&crew)?;
    }
    drop(first);
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
    let each = |monitor: usize| most[monitor].saturating_sub(before[monitor]) as f64 / count as f64;
    Ok(Many {
        circuits: count,
        setup_s,
        teardown_s,
        bytes_each: std::array::from_fn(each),
        resident_bytes: std::array::from_fn(|at| [before[at], most[at], after[at]]),
        idle_share,
        idle_circuits,
    })
}

/// Binds `count` clients through monitor 0, in several threads.
pub(super) fn bind_all(domain: &Domain, count: usize) -> Result<Vec<Client>, Failure> {
    let bound = Mutex::new(Ok(Vec::with_capacity(count)));
    let share = count.div_ceil(THREADS);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let bound = &bound;
            scope.spawn(move || {
                let share = share.min(count.saturating_sub(thread * share));
                let clients: Result<Vec<_>, _> = (0..share).map(|_| bind(domain)).collect();
                let mut bound = bound.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                match (clients, &mut *bound) {
                    (Ok(clients), Ok(all)) => all.extend(clients),
                    (Err(failure), Ok(_)) => *bound = Err(failure),
                    (_, Err(_)) => {}
                }
            });
        }
    });
    bound.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn bind(domain: &Domain) -> Result<Client, Failure> {
    let bind = Bind::default().drivers([Driver::Circuit]).timeout(PATIENCE);
    Client::bind(domain, SERVICE, &bind.monitor(MonitorAt::default().number(0))).doing("bind")
}

/// Waits until every monitor has so many circuits.
fn await_count(domain: &Domain, count: usize) -> Result<(), Failure> {
    let start = Instant::now();
    for number in 0..MONITORS {
        let asking = Asking::connect(domain, node(number)?, PATIENCE);
        let mut asking = asking.doing("ask a monitor")?;
        loop {
            let found = asking.routes().doing("ask a monitor")?.circuits;
            if found == count {
                break;
            }
            if start.elapsed() > FORGOTTEN_WITHIN {
                let due = format!("monitor {number} has {found} circuits, not {count}");
                return Err(Failure::other(due));
            }
            std::thread::yield_now();
        }
    }
    Ok(())
}

pub(super) fn node(number: usize) -> Result<NodeId, Failure> {
    NodeId::new(number).ok_or_else(|| Failure::other(format!("monitor {number}")))
}

/// Memory of the monitors that no file stands behind.
fn resident(crew: &Crew) -> Result<[u64; MONITORS], Failure> {
    let mut found = [0; MONITORS];
    for (place, pid) in found.iter_mut().zip(crew.pids()) {
        *place = process::anonymous_bytes(pid).doing("read the memory of a process")?;
    }
    Ok(found)
}

/// Processor time of the monitors while nothing happens, as a part of a core.
fn idle_share(crew: &Crew) -> Result<f64, Failure> {
    let used = || -> Result<f64, Failure> {
        let of = |pid| process::processor_seconds(pid).doing("read a processor time");
        crew.pids().take(MONITORS).map(of).sum()
    };
    let (start, before) = (Instant::now(), used()?);
    while start.elapsed() < WATCHED {
        // Nothing else to do: the processes that are watched are others.
        std::thread::park_timeout(WATCHED.saturating_sub(start.elapsed()));
    }
    Ok((used()? - before) / start.elapsed().as_secs_f64())
}
