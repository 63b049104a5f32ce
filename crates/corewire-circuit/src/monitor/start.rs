//! The monitor and how it is started.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fmt;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use crate::link::socket::DATA_BYTES_MAX;
use crate::node::{Config, LinkId, Node, Policy};
use crate::wire::{NodeId, name_of_monitor};
use corewire::{
    Domain, Endpoint, EndpointError, ListenError, Listener, MessageError, NameWatch, OpenError,
    Peer, Wait,
};
use corewire_os::report::Report;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};

use super::closer::Closers;
use super::joining::Joined;
use super::links::{Out, Traced};
use super::tracing::Tracing;
use super::turn::without_sockets_ticks;

/// Why a monitor could not start, or has ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MonitorError {
    /// A monitor of this number runs already.
    #[error("monitor {node} runs already{}", .pid.map_or(String::new(), |pid| format!(": it is process {pid}")))]
    Running {
        /// The monitor.
        node: NodeId,
        /// Its process; `None` if it cannot be seen from here.
        pid: Option<u32>,
    },
    /// Its name cannot be taken.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// Its endpoints could not be created.
    #[error(transparent)]
    Endpoint(#[from] EndpointError),
    /// The runtime directory cannot be watched.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// An endpoint failed.
    #[error(transparent)]
    Message(#[from] MessageError),
    /// A system call failed.
    #[error("{what}: {error}")]
    Os {
        /// What was done.
        what: &'static str,
        /// The system's error.
        error: std::io::Error,
    },
}

impl MonitorError {
    pub(crate) fn os(what: &'static str) -> impl Fn(Errno) -> Self {
        move |error| Self::Os { what, error: error.into() }
    }
}

/// How a monitor works.
#[derive(Debug, Clone)]
pub struct Options {
    /// Its number.
    pub node: NodeId,
    /// How long it looks for frames before it sleeps.
    pub poll: Duration,
    /// Who may do what.
    pub policy: Policy,
    /// Programs with a ring at one time.
    pub programs_max: usize,
    report: Report,
}

impl Options {
    /// A monitor that polls for 30 us, for its own user: about as long as it takes to wake an idle core, so that calls
    /// that follow each other do not pay for that.
    #[must_use]
    pub fn new(node: NodeId) -> Self {
        let owner = corewire_os::process::effective_uid();
        Self {
            node,
            poll: Duration::from_micros(30),
            policy: Policy { owner, rules: Vec::new() },
            programs_max: 1024,
            report: Report::standard_error(),
        }
    }

    /// Calls `report` with a sentence when something happens that does not end the monitor, and that its users should
    /// know: a program may not serve a name. The monitor's thread calls it. By default the sentence is written to standard
    /// error.
    #[must_use]
    pub fn report(mut self, report: impl Fn(&str) + Send + Sync + 'static) -> Self {
        self.report = Report(Arc::new(report));
        self
    }
}

/// One of the two endpoints, and whose ring leads to which link.
pub(crate) struct Rings {
    pub(crate) endpoint: Endpoint,
    /// By the peer's row.
    pub(crate) links: Vec<Option<(Peer, LinkId)>>,
}

impl Rings {
    #[inline]
    pub(crate) fn link_of(&self, peer: Peer) -> Option<LinkId> {
        match self.links.get(peer.row() as usize) {
            Some(Some((found, link))) if *found == peer => Some(*link),
            _ => None,
        }
    }

    pub(crate) fn set(&mut self, peer: Peer, link: LinkId) {
        let row = peer.row() as usize;
        if self.links.len() <= row {
            self.links.resize(row + 1, None);
        }
        self.links[row] = Some((peer, link));
    }

    pub(crate) fn forget(&mut self, link: LinkId) {
        for place in &mut self.links {
            place.take_if(|(_, found)| *found == link);
        }
    }
}

/// For programs.
pub(crate) const PROGRAMS: usize = 0;
/// For other monitors.
pub(crate) const TRUNK: usize = 1;

/// Keys in the set of descriptors.
pub(crate) mod key {
    pub(crate) const LISTENER: u64 = 0;
    pub(crate) const NAMES: u64 = 1;
    pub(crate) const WAKE: u64 = 2;
    pub(crate) const RINGS: u64 = 3;
    pub(crate) const TRUNK: u64 = 4;
    pub(crate) const FIRST_CONNECTION: u64 = 16;
}

/// A monitor.
pub struct Monitor {
    pub(crate) node: Node,
    pub(crate) out: Out,
    pub(crate) domain: Domain,
    pub(crate) listener: Listener,
    pub(crate) names: NameWatch,
    pub(crate) wake: Arc<OwnedFd>,
    pub(crate) joined: Receiver<Joined>,
    pub(crate) joining: (Sender<Joined>, BTreeSet<NodeId>),
    pub(crate) names_have_changed: bool,
    /// Monitors that have not answered, to be asked again at the next look.
    pub(crate) failed: BTreeSet<NodeId>,
    /// Neighbours to which there was no link when it was last looked.
    pub(crate) missing: BTreeSet<NodeId>,
    pub(crate) poll: Duration,
    /// When sockets were looked at, and how long they may wait, in ticks of the processor's counter.
    pub(crate) sockets_at: u64,
    pub(crate) without_sockets_ticks: u64,
    /// Links whose control lane has ended; what is in their rings comes first.
    pub(crate) ending: Vec<LinkId>,
    /// Links whose data lane has ended, and whose control lane cannot be read now.
    pub(crate) unread: Vec<LinkId>,
    pub(crate) buffer: Box<[u8; DATA_BYTES_MAX + 1]>,
    /// Whose connections ask for a trace, and the memory of everybody who has recorded.
    pub(crate) tracing: Tracing,
    pub(crate) last_look: Instant,
    /// The most circuits since memory was given back.
    pub(crate) circuits_most: usize,
    /// Circuits at the last look.
    pub(crate) circuits_before: usize,
}

impl Monitor {
    /// Starts a monitor in a domain: takes its name, and joins the other monitors that are there.
    ///
    /// # Errors
    /// [`MonitorError`].
    pub fn start(domain: Domain, options: Options) -> Result<Self, MonitorError> {
        let Options { node, poll, policy, programs_max, report } = options;
        let name = name_of_monitor(node);
        let listener = domain.listener(&name).map_err(|error| match error {
            ListenError::AlreadyExists(it) => MonitorError::Running { node, pid: it.pid },
            error => error.into(),
        })?;
        // What has no room waits in the node: messages are received at once, and none is ever long.
        let endpoint = |kind: &str, peers: usize| {
            let endpoint = domain.endpoint(&format!("{name}.{kind}"));
            endpoint.peers(peers).cells(256, 4096).heap(0).grants(0).wait(Wait::Park).create()
        };
        let rings = [endpoint("rings", programs_max)?, endpoint("trunk", 256)?];
        let rings = rings.map(|endpoint| Rings { endpoint, links: Vec::new() });
        let names = domain.watch_names()?;
        let set = epoll::create(CreateFlags::CLOEXEC).map_err(MonitorError::os("make a set"))?;
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let wake = Arc::new(wake.map_err(MonitorError::os("make a descriptor"))?);
        let watch = |descriptor: &dyn AsFd, key| {
            let data = EventData::new_u64(key);
            epoll::add(&set, descriptor.as_fd(), data, EventFlags::IN)
                .map_err(MonitorError::os("watch a descriptor"))
        };
        watch(&listener.readiness(), key::LISTENER)?;
        watch(&names, key::NAMES)?;
        watch(&*wake, key::WAKE)?;
        watch(&rings[PROGRAMS].endpoint.readiness(), key::RINGS)?;
        watch(&rings[TRUNK].endpoint.readiness(), key::TRUNK)?;
        // Goes on while the machine sleeps, and nobody can set it back. All that know an earlier one end with the machine, and
        // monitors of one domain are in one time namespace.
        let since = Duration::try_from(clock_gettime(ClockId::Boottime)).unwrap_or_default();
        let epoch = u64::try_from(since.as_nanos()).unwrap_or(u64::MAX);
        let (sender, joined) = channel();
        let mut monitor = Self {
            node: Node::new(Config::new(node, policy, epoch)),
            out: Out {
                rings,
                links: Vec::new(),
                connections: HashMap::new(),
                set,
                closers: Closers::new(Arc::clone(&wake)),
                held: BTreeSet::new(),
                last_key: key::FIRST_CONNECTION,
                stuck_count: 0,
                randoms: Vec::new(),
                secrets: HashMap::new(),
                joining: HashMap::new(),
                broken: Vec::new(),
                last_sent: None,
                traced: Traced::default(),
                unneeded: Vec::new(),
                report,
                reported: HashSet::new(),
            },
            domain,
            listener,
            names,
            wake,
            joined,
            joining: (sender, BTreeSet::new()),
            names_have_changed: true,
            failed: BTreeSet::new(),
            missing: BTreeSet::new(),
            poll,
            sockets_at: 0,
            without_sockets_ticks: without_sockets_ticks(),
            ending: Vec::new(),
            unread: Vec::new(),
            buffer: Box::new([0; DATA_BYTES_MAX + 1]),
            tracing: Tracing::default(),
            last_look: Instant::now(),
            circuits_most: 0,
            circuits_before: 0,
        };
        monitor.join_others();
        Ok(monitor)
    }

    /// Its number.
    #[must_use]
    pub const fn id(&self) -> NodeId {
        self.node.id()
    }

    /// How many circuits lead through it.
    #[must_use]
    pub fn circuit_count(&self) -> usize {
        self.node.circuit_count()
    }

    /// Links that are up, to programs and to other monitors.
    #[must_use]
    pub fn link_count(&self) -> usize {
        self.node.links().count()
    }

    /// A handle for other threads, which ends [`run`](Self::run).
    #[must_use]
    pub fn handle(&self) -> Handle {
        Handle { joined: self.joining.0.clone(), wake: Arc::clone(&self.wake) }
    }
}

/// A monitor, from other threads.
#[derive(Clone)]
pub struct Handle {
    joined: Sender<Joined>,
    wake: Arc<OwnedFd>,
}

impl Handle {
    /// Ends it. Never waits.
    pub fn stop(&self) {
        self.tell(Joined::Stop);
    }

    /// Sets who may do what from now on. Circuits that are open, and names that are served, stay.
    pub fn set_policy(&self, policy: Policy) {
        self.tell(Joined::Policy(policy));
    }

    fn tell(&self, what: Joined) {
        // A monitor that has ended needs no telling.
        let _ = self.joined.send(what);
        let _ = rustix::io::write(&self.wake, &1_u64.to_le_bytes());
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Handle")
    }
}

impl fmt::Debug for Monitor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Monitor")
            .field("id", &self.id())
            .field("links", &self.link_count())
            .field("circuits", &self.circuit_count())
            .finish_non_exhaustive()
    }
}
