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

use corewire_circuit::monitor::Asking;

use super::chain::{Chain, Side, domain_at, table};
use super::{Does, Part, Parties, bind_way, node};
use crate::calls::{PATIENCE, SERVICE};
use crate::crew::Crew;
use crate::failure::{Doing, Failure};
use crate::places::Pinned;
use crate::program::Program;
use crate::role::Role;
use crate::setup::Setup;

/// Everything that is compared: a direct call, and chains of monitors.
#[derive(Debug)]
pub(super) struct Apart {
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
    /// Starts chains of one to `monitors` monitors, each with so many clients of one service, on the first of `cpus`, which
    /// are as many as the parties of the longest.
    pub(super) fn start(
        program: Program,
        role: &Role<Part>,
        monitors: usize,
        clients: usize,
        cpus: &[usize],
    ) -> Result<Self, Failure> {
        let cpus = &cpus[..processors(monitors)];
        let (mut parts, mut places) = (Vec::new(), Vec::new());
        for way in 0..=monitors {
            let clients = if way == 0 { 1 } else { clients };
            let service = Does::serve(SERVICE, way.checked_sub(1), Some(clients));
            let all = (0..way).map(Does::Monitor).chain([service]);
            parts.extend(all.map(|does| Part { way: Some(way), does }));
            places.extend_from_slice(&cpus[1..=way]);
            places.push(cpus[monitors + 1]);
        }
        let mut crew = Setup::new(program, parts.len()).given(Some(places)).crew()?;
        let domains = (0..=monitors).map(|way| domain_at(crew.directory(), &way.to_string()));
        let domains = domains.collect::<Result<Vec<_>, _>>()?;
        for part in &parts {
            crew.add_worker(role, part)?;
        }
        crew.await_ready()?;
        let pinned = Pinned::to(cpus[0])?;
        let mut chains = Vec::new();
        for (way, domain) in domains.iter().enumerate() {
            if way > 1 {
                let nodes = (0..way).map(node).collect::<Result<Vec<_>, _>>()?;
                let asking = Asking::connect(domain, nodes[0], PATIENCE);
                let mut asking = asking.doing("ask a monitor")?;
                asking.set_table(table(&nodes)).doing("give a table")?;
            }
            let clients = bind_way(domain, way, clients)?;
            chains.push(Chain { clients, here: Side::default() });
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
