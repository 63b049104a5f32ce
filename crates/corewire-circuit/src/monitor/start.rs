//! How a monitor is started.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use corewire::{Domain, ListenError, Wait};
use corewire_os::report::Report;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{EventfdFlags, eventfd};
use rustix::time::{ClockId, clock_gettime};

use super::closer::Closers;
use super::links::{Out, Traced};
use super::rings::{PROGRAMS, Rings, TRUNK};
use super::state::{Monitor, MonitorError, Tracing, key};
use super::turn::without_sockets_ticks;
use crate::link::socket::DATA_BYTES_MAX;
use crate::node::{Config, Node, Policy};
use crate::wire::{NodeId, name_of_monitor};

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
}
