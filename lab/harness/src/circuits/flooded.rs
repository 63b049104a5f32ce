//! How long binding takes while the links on the way are flooded: two monitors, a service that is bound to, a service
//! and a client that exchange nothing but a stream, each a process of its own.

use std::time::Instant;

use corewire::Domain;
use corewire_bind::{Bind, Driver, MonitorAt, Serve};
use serde::{Deserialize, Serialize};

use super::many::{MONITORS, run_monitor, run_service};
use crate::board::READY;
use crate::calls::{Client, PATIENCE, SERVICE};
use crate::failure::{Doing, Failure};
use crate::places::Places;
use crate::program::Program;
use crate::role::{Role, Worker};
use crate::rounds::per_second;
use crate::setup::Setup;
use crate::statistics::{Spread, percentile};

/// The service of the stream.
const STREAMED: &str = "streamed";
/// How often a client binds in one part.
const BOUND: usize = 500;

/// What a process of the measurement does.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Part {
    /// A monitor of this number.
    Monitor(usize),
    /// The service that is bound to, or the one of the stream.
    Service(bool),
    /// The client of the stream, which waits for the start.
    Flood,
}

/// What was measured, in microseconds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Flooded {
    /// Of a bind while nothing else happens.
    pub idle_us: Spread,
    /// What one in a hundred exceeds.
    pub idle_p99_us: f64,
    /// While the links are flooded.
    pub flooded_us: Spread,
    /// What one in a hundred exceeds.
    pub flooded_p99_us: f64,
    /// Messages a second of the stream meanwhile.
    pub messages_per_s: f64,
}

/// The worker of [`measure`].
///
/// # Errors
/// If a monitor, a service or the stream fails.
pub fn work(worker: &Worker, part: Part) -> Result<(), Failure> {
    let domain = worker.domain()?;
    match part {
        Part::Monitor(number) => run_monitor(worker, domain, number),
        Part::Service(is_streamed) => {
            let name = if is_streamed { STREAMED } else { SERVICE };
            run_service(worker, &domain, name, Serve::default(), Some(MONITORS - 1))
        }
        Part::Flood => {
            let mut client = bind(&domain, STREAMED)?;
            worker.reach(READY);
            worker.board().await_go();
            loop {
                client.one_way_32(0, 1, 2, 3).doing("send")?;
            }
        }
    }
}

/// Binds while nothing happens, and while the links are flooded.
///
/// # Errors
/// If a process fails, or a client cannot be bound.
pub fn measure(program: Program, role: &Role<Part>) -> Result<Flooded, Failure> {
    let mut crew = Setup::new(program, MONITORS + 3).places(Places::Anywhere).crew()?;
    for number in 0..MONITORS {
        crew.add_worker(role, &Part::Monitor(number))?;
    }
    crew.add_worker(role, &Part::Service(false))?;
    crew.add_worker(role, &Part::Service(true))?;
    crew.add_worker(role, &Part::Flood)?;
    crew.await_ready()?;
    let domain = crew.domain()?.clone();
    // The link of this process, and the client that counts.
    let mut counter = bind(&domain, STREAMED)?;
    let idle = bind_many(&domain)?;
    let before = counter.counts().doing("call")?.received;
    crew.go();
    let start = Instant::now();
    let flooded = bind_many(&domain)?;
    let after = counter.counts().doing("call")?.received;
    Ok(Flooded {
        idle_us: Spread::of(idle.iter().copied()).unwrap_or_default(),
        idle_p99_us: percentile(&idle, 0.99),
        flooded_us: Spread::of(flooded.iter().copied()).unwrap_or_default(),
        flooded_p99_us: percentile(&flooded, 0.99),
        messages_per_s: per_second(after - before, start),
    })
}

/// The time of each bind.
fn bind_many(domain: &Domain) -> Result<Vec<f64>, Failure> {
    (0..BOUND)
        .map(|_| {
            let start = Instant::now();
            let client = bind(domain, SERVICE)?;
            let took = start.elapsed().as_secs_f64() * 1e6;
            drop(client);
            Ok(took)
        })
        .collect()
}

fn bind(domain: &Domain, service: &str) -> Result<Client, Failure> {
    let bind = Bind::default().drivers([Driver::Circuit]).timeout(PATIENCE);
    Client::bind(domain, service, &bind.monitor(MonitorAt::default().number(0))).doing("bind")
}
