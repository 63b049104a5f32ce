//! A client, services, and the monitors between them, each a process on a processor of its own. The client is this
//! process, on the first processor.
//!
//! ```text
//!  processor   0        1           2           3           4
//!  direct      client                                       service
//!  1 monitor   client   monitor 0                           service
//!  2           client   monitor 0   monitor 1               service
//!  3           client   monitor 0   monitor 1   monitor 2   service
//! ```
//!
//! The service is on the processor behind the last monitor's; this is for three monitors. Each of these lines has monitors and a
//! service of its own, in a domain of its own. Only one line is used at a time: the processes of the others sleep.

use corewire_bind::{Bind, Driver, Serve};
use corewire_monitor::Asking;
use serde::{Deserialize, Serialize};

use super::Parties;
use super::chain::{Chain, Side, domain_at, table};
use super::many::{bind_all, node, run_monitor, run_service};
use crate::calls::{Client, PATIENCE, SERVICE};
use crate::crew::Crew;
use crate::failure::{Doing, Failure};
use crate::places::Pinned;
use crate::program::Program;
use crate::role::{Role, Worker};
use crate::setup::Setup;

/// What a process does, on a way with so many monitors.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Part {
    monitors: usize,
    does: Does,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
enum Does {
    /// The monitor of this number.
    Monitor(usize),
    /// The service of so many clients.
    Serve(usize),
}

/// Everything that is compared: a direct call, and chains of monitors.
#[derive(Debug)]
pub struct Apart {
    /// By the number of monitors. Dropped before the processes are killed.
    chains: Vec<Chain>,
    cpus: Vec<usize>,
    _pinned: Pinned,
    _crew: Crew,
}

/// Processors that ways of up to so many monitors need: one for each, for the client and for the service.
pub(super) const fn processors(monitors: usize) -> usize {
    monitors + 2
}

impl Apart {
    /// Starts chains of one to `monitors` monitors, each with so many clients of one service, on the first of `cpus`.
    ///
    /// # Errors
    /// If a process cannot be started, or a client cannot be bound.
    ///
    /// # Panics
    /// If there are fewer processors than parties.
    pub(super) fn start(
        program: Program,
        role: &Role<Part>,
        monitors: usize,
        clients: usize,
        cpus: &[usize],
    ) -> Result<Self, Failure> {
        let cpus = &cpus[..processors(monitors)];
        let of_service = cpus[monitors + 1];
        let mut parts = Vec::new();
        for way in 0..=monitors {
            let of_monitors = cpus[1..=way].iter().enumerate();
            parts.extend(of_monitors.map(|(number, &cpu)| (way, Does::Monitor(number), cpu)));
            let clients = if way == 0 { 1 } else { clients };
            parts.push((way, Does::Serve(clients), of_service));
        }
        let places = parts.iter().map(|&(_, _, cpu)| cpu).collect();
        let mut crew = Setup::new(program, parts.len()).given(Some(places)).crew()?;
        let domains: Result<Vec<_>, _> =
            (0..=monitors).map(|way| domain_at(crew.directory(), &way.to_string())).collect();
        let domains = domains?;
        for (monitors, does, _) in parts {
            crew.add_worker(role, &Part { monitors, does })?;
        }
        crew.await_ready()?;
        let pinned = Pinned::to(cpus[0])?;
        let bind = Bind::default().drivers([Driver::Ump]).timeout(PATIENCE);
        let direct = Client::bind(&domains[0], SERVICE, &bind).doing("bind")?;
        let mut chains = vec![Chain { clients: vec![direct], here: Side::default() }];
        for (way, domain) in domains.iter().enumerate().skip(1) {
            let nodes = (0..way).map(node).collect::<Result<Vec<_>, _>>()?;
            if way > 1 {
                let mut asking =
                    Asking::connect(domain, nodes[0], PATIENCE).doing("ask a monitor")?;
                asking.set_table(table(&nodes)).doing("give a table")?;
            }
            chains.push(Chain { clients: bind_all(domain, clients)?, here: Side::default() });
        }
        Ok(Self { chains, cpus: cpus.to_vec(), _pinned: pinned, _crew: crew })
    }
}

impl Parties for Apart {
    fn chain(&mut self, monitors: usize) -> &mut Chain {
        &mut self.chains[monitors]
    }

    fn placement(&self) -> String {
        let [client, monitors @ .., service] = &self.cpus[..] else { return String::new() };
        let monitors: Vec<_> = monitors.iter().map(usize::to_string).collect();
        let monitors = monitors.join(", ");
        format!(
            "a process each: client on processor {client}, monitors {monitors}, service {service}"
        )
    }
}

/// A process of [`Apart`].
///
/// # Errors
/// If the monitor or the service fails.
pub fn work(worker: &Worker, part: Part) -> Result<(), Failure> {
    let Part { monitors, does } = part;
    let domain = domain_at(worker.directory(), &monitors.to_string())?;
    match does {
        Does::Monitor(number) => run_monitor(worker, domain, number),
        Does::Serve(clients) => {
            let serve = Serve::default().clients(clients);
            run_service(worker, &domain, SERVICE, serve, monitors.checked_sub(1))
        }
    }
}
