//! How a program becomes a neighbour of its monitor.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use corewire::{
    ConnectError, ConnectServiceError, Connection, Connector, Domain, EndpointError, NameWatch,
};
use corewire_os::fork::PerProcess;
use corewire_os::packet;
use rustix::event::PollFlags;

use super::socket::{ControlLane, LaneEnd};
use crate::patience::{Late, Patience};
use crate::wire::packet::{Packet, Role};
use crate::wire::{NodeId, monitor_of_name, name_of_monitor};

/// Why a program has no link to a monitor.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum AttachError {
    /// None runs.
    #[error("no monitor runs in the domain")]
    NoMonitor,
    /// The one that was named does not run.
    #[error("monitor {0} does not run in the domain")]
    Missing(usize),
    /// The environment variable names no monitor.
    #[error("COREWIRE_MONITOR is {0:?}, not the number of a monitor: 0 to 255")]
    Variable(String),
    /// The monitor cannot be reached.
    #[error(transparent)]
    Monitor(#[from] ConnectServiceError),
    /// The monitor's ring cannot be reached.
    #[error(transparent)]
    Ring(#[from] ConnectError),
    /// This process's own endpoint could not be created.
    #[error(transparent)]
    Endpoint(#[from] EndpointError),
    /// The monitor refuses.
    #[error("refused: {reason}")]
    Refused {
        /// Its reason.
        reason: String,
    },
    /// The monitor has closed the connection.
    #[error("the monitor closed the connection")]
    Closed,
    /// What answered is no monitor of this version.
    #[error("what answered is no monitor of this version of corewire")]
    Protocol,
    /// It has not answered in time.
    #[error(transparent)]
    Late(#[from] Late),
    /// A system call failed.
    #[error("{what}: error {errno} of the system")]
    Os {
        /// What was done.
        what: &'static str,
        /// The system's number.
        errno: i32,
    },
}

/// Where a program's monitor is: by default in the program's domain, the one of the core on which the program runs, or of
/// its last-level cache, or the one with the lowest number.
///
/// ```
/// use corewire_circuit::link::attach::MonitorAt;
///
/// let third = MonitorAt::default().number(3);
/// ```
#[derive(Debug, Clone)]
pub struct MonitorAt {
    domain: Option<Domain>,
    /// The text of the environment variable if it is no number.
    number: Result<Option<usize>, String>,
}

/// The environment variable `COREWIRE_MONITOR` gives the number. If it is no number from 0 to 255, binding by circuit and
/// serving end with an error that says so.
impl Default for MonitorAt {
    fn default() -> Self {
        let number = std::env::var_os("COREWIRE_MONITOR").filter(|text| !text.is_empty());
        let number = number.map(|text| text.to_string_lossy().into_owned());
        let is_possible = |number: &usize| NodeId::new(*number).is_some();
        let number = number.map(|text| text.parse().ok().filter(is_possible).ok_or(text));
        let number = number.transpose();
        Self { domain: None, number }
    }
}

impl MonitorAt {
    /// Sets the domain of the monitor. A program that is a guest there, in another user's domain, talks to the monitor
    /// through sockets alone.
    #[must_use]
    pub fn domain(mut self, domain: &Domain) -> Self {
        self.domain = Some(domain.clone());
        self
    }

    /// Sets the monitor's number.
    #[must_use]
    pub fn number(mut self, number: usize) -> Self {
        self.number = Ok(Some(number));
        self
    }

    /// The domain in which to look.
    #[must_use]
    pub fn domain_or<'a>(&'a self, own: &'a Domain) -> &'a Domain {
        self.domain.as_ref().unwrap_or(own)
    }

    /// Checks the environment variable.
    ///
    /// # Errors
    /// Its text, if it is no number of a monitor.
    pub fn check(&self) -> Result<(), String> {
        self.number.as_ref().map(|_| ()).map_err(Clone::clone)
    }

    /// Why there is no monitor to use.
    #[must_use]
    pub fn why_none(&self) -> AttachError {
        match &self.number {
            Ok(None) => AttachError::NoMonitor,
            Ok(Some(number)) => AttachError::Missing(*number),
            Err(text) => AttachError::Variable(text.clone()),
        }
    }

    /// The monitor to use; `None` if there is none.
    #[must_use]
    pub fn find(&self, domain: &Domain) -> Option<NodeId> {
        let all = monitors_of(domain)?;
        let is_there = |number| NodeId::new(number).filter(|node| all.contains(node));
        if let Some(number) = self.number.as_ref().ok()? {
            return is_there(*number);
        }
        if let [only] = all[..] {
            return Some(only);
        }
        let core = rustix::thread::sched_getcpu();
        let first_of_cache = || {
            let caches = corewire_os::processor::caches(core);
            let last = caches.iter().max_by_key(|cache| cache.level)?;
            let first = last.shared_by.split(['-', ',']).next()?;
            first.parse().ok()
        };
        is_there(core)
            .or_else(|| first_of_cache().and_then(is_there))
            .or_else(|| all.iter().min().copied())
    }
}

/// The monitors of a domain when its names last changed.
struct Known {
    path: PathBuf,
    watch: NameWatch,
    monitors: Vec<NodeId>,
}

/// Domains that are watched: each watch is one of those that the system has for a user, 128 by default.
const KNOWN_MAX: usize = 8;

/// A program binds many times, and each list of names is read from files.
static KNOWN: PerProcess<Mutex<Vec<Known>>> = PerProcess::new();

/// The monitors of a domain. One that has died since its names changed may be among them.
fn monitors_of(domain: &Domain) -> Option<Vec<NodeId>> {
    let list = || -> Option<Vec<NodeId>> {
        let names = domain.listeners().ok()?;
        Some(names.iter().filter_map(|name| monitor_of_name(name.as_str())).collect())
    };
    let mut all = KNOWN.get().lock().unwrap_or_else(PoisonError::into_inner);
    let path = domain.runtime_directory();
    if let Some(known) = all.iter_mut().find(|known| known.path == path) {
        if known.watch.has_changed() {
            known.monitors = list()?;
        }
        return Some(known.monitors.clone());
    }
    // Before the list: what changes then is seen.
    let Ok(watch) = domain.watch_names() else { return list() };
    let monitors = list()?;
    let known = monitors.clone();
    let path = path.to_owned();
    if all.len() >= KNOWN_MAX {
        all.remove(0);
    }
    all.push(Known { path, watch, monitors: known });
    Some(monitors)
}

/// Reads the list of a domain's monitors again: one of them does not answer.
fn forget_monitors(domain: &Domain) {
    let mut all = KNOWN.get().lock().unwrap_or_else(PoisonError::into_inner);
    all.retain(|known| known.path != domain.runtime_directory());
}

/// A monitor that has accepted this program.
#[derive(Debug)]
pub struct Attached {
    /// The control lane.
    pub lane: ControlLane<Connection>,
    /// The data lane.
    pub data: Data,
}

/// The data lane.
#[derive(Debug)]
pub enum Data {
    /// A ring.
    Ring {
        /// The monitor's endpoint.
        endpoint: String,
        /// By which it knows this program.
        secret: u64,
    },
    /// A socket.
    Socket(Connection),
}

/// Asks a monitor to be its neighbour. Unless the data lane is a ring, in which the caller must say hello, the link is up
/// as soon as `Ready` comes.
///
/// # Errors
/// [`AttachError`].
pub fn attach(
    domain: &Domain,
    node: NodeId,
    connector: Option<&Connector>,
    until: Patience,
) -> Result<Attached, AttachError> {
    let attached = attach_once(domain, node, connector, until);
    if attached.is_err() {
        forget_monitors(domain);
    }
    attached
}

fn attach_once(
    domain: &Domain,
    node: NodeId,
    connector: Option<&Connector>,
    until: Patience,
) -> Result<Attached, AttachError> {
    let name = name_of_monitor(node);
    let left = || until.left().map(|left| left.unwrap_or(Duration::from_secs(10)));
    let mut lane = ControlLane::new(domain.connect(&name, left()?)?);
    let wants_ring = connector.is_some();
    send(&mut lane, &Packet::Attach { role: Role::Program, wants_ring })?;
    let (secret, endpoint) = match receive(&mut lane, until)? {
        Packet::Attached { secret, endpoint, .. } => (secret, endpoint),
        Packet::Refused { reason } => return Err(AttachError::Refused { reason }),
        _ => return Err(AttachError::Protocol),
    };
    if let Some(connector) = connector.filter(|_| !endpoint.is_empty()) {
        connector.connect(&endpoint)?;
        return Ok(Attached { lane, data: Data::Ring { endpoint, secret } });
    }
    let socket = domain.connect(&name, left()?)?;
    let mut data = ControlLane::new(socket);
    send(&mut data, &Packet::Lane { secret })?;
    Ok(Attached { lane, data: Data::Socket(data.into_socket()) })
}

fn send(lane: &mut ControlLane<Connection>, packet: &Packet) -> Result<(), AttachError> {
    // The buffer of a new socket is empty.
    lane.send(packet, Vec::new()).map_err(|_| AttachError::Closed)
}

/// The next packet.
pub(super) fn receive(
    lane: &mut ControlLane<Connection>,
    until: Patience,
) -> Result<Packet, AttachError> {
    loop {
        match lane.receive() {
            Ok(Some((packet, _))) => return Ok(packet),
            Ok(None) => match packet::wait(lane.socket(), PollFlags::IN, until.deadline()) {
                Ok(true) => {}
                Ok(false) => return Err(until.late().into()),
                Err(_) => return Err(AttachError::Closed),
            },
            Err(LaneEnd::Closed) => return Err(AttachError::Closed),
            Err(_) => return Err(AttachError::Protocol),
        }
    }
}

corewire_layout::debug_is_text!(AttachError);
