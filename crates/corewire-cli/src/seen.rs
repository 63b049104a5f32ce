//! What there is in the domain: all processes are asked at once, and one that does not answer gets a line that
//! says so.

use std::collections::HashMap;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use corewire::{
    ChannelName, ChannelView, Domain, EndpointView, JoinError, ListenerView, NameKind, Observed,
    WindowView,
};
use corewire_bind::{Bindings, Introspection, MethodTotals};
use corewire_circuit::monitor::{Asking, Routes};
use corewire_circuit::wire::monitor_of_name;
use corewire_group::GroupView;
use serde::Serialize;

use crate::failure::Failure;

/// How long all answers are waited for, in all. A process that runs answers in a fraction of a millisecond.
const TIMEOUT: Duration = Duration::from_millis(400);
/// Services that are asked at the same time: each needs two descriptors and a thread.
const ASKED_MAX: usize = 128;

/// Everything that has a name, in the order of the names.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub(crate) channels: Vec<ChannelView>,
    pub(crate) endpoints: Vec<EndpointView>,
    pub(crate) services: Vec<Service>,
    pub(crate) windows: Vec<WindowView>,
    /// In the order of their numbers.
    pub(crate) monitors: Vec<Monitor>,
    pub(crate) groups: Vec<GroupView>,
    pub(crate) silent: Vec<Silent>,
    /// Why others cannot be looked at.
    pub(crate) unseen: Vec<String>,
}

/// A name to which processes connect.
#[derive(Debug)]
pub(crate) struct Service {
    pub(crate) view: ListenerView,
    /// Which clients are bound; `None` if it serves no interface, or did not say in time.
    pub(crate) bindings: Option<Bindings>,
    /// What it has served, method by method; empty if it did not say.
    pub(crate) totals: Vec<MethodTotals>,
}

/// A monitor that has answered.
#[derive(Debug)]
pub(crate) struct Monitor {
    /// 0 if it is not known.
    pub(crate) pid: u32,
    /// Its links, and how many circuits it has.
    pub(crate) routes: Routes,
}

/// A name whose process does not answer: it is stopped, or very busy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Silent {
    pub(crate) name: String,
    #[serde(flatten)]
    pub(crate) kind: Kind,
    /// 0 if it is not known.
    pub(crate) pid: u32,
}

/// What has a name: none of these is a channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) struct Kind {
    pub(crate) is_endpoint: bool,
    pub(crate) is_service: bool,
    pub(crate) is_window: bool,
}

impl From<NameKind> for Kind {
    fn from(kind: NameKind) -> Self {
        Self {
            is_endpoint: kind == NameKind::Endpoint,
            is_service: kind == NameKind::Listener,
            is_window: kind == NameKind::Window,
        }
    }
}

impl Silent {
    /// What a line says of it.
    pub(crate) fn text(&self) -> String {
        match self.pid {
            0 => "does not answer".to_owned(),
            pid => format!("does not answer (pid {pid})"),
        }
    }
}

/// Looks at everything in `domain`, without asking monitors.
pub(crate) fn look(domain: &Domain) -> Result<Seen, Failure> {
    look_and_ask(domain, |name| monitor_of_name(name.as_str()).is_none())
}

/// The same, and asks these, too.
pub(crate) fn look_and_ask_all(domain: &Domain) -> Result<Seen, Failure> {
    look_and_ask(domain, |_| true)
}

fn look_and_ask(domain: &Domain, is_asked: impl Fn(&ChannelName) -> bool) -> Result<Seen, Failure> {
    let mut seen = Seen::default();
    let until = Instant::now() + TIMEOUT;
    let mut asked = services(domain)?;
    asked.retain(is_asked);
    let count = asked.len().min(ASKED_MAX);
    let asked = Mutex::new(asked);
    let (observed, mut answers) = thread::scope(|scope| {
        let ask = || ask(domain, &asked, until);
        // Where no thread can be started, fewer services are asked.
        let asking = (0..count).filter_map(|_| {
            let thread = thread::Builder::new().stack_size(256 << 10);
            thread.spawn_scoped(scope, ask).ok()
        });
        let asking = asking.collect::<Vec<_>>();
        let observed = domain.observe_all(TIMEOUT);
        let answers = asking.into_iter().filter_map(|thread| thread.join().ok()).flatten();
        (observed, answers.collect::<HashMap<_, _>>())
    });
    for sighting in observed? {
        let name = sighting.name;
        let kind = sighting.kind.into();
        match sighting.observed {
            Ok(Observed::Channel(channel)) => seen.channels.push(channel.look()),
            Ok(Observed::Endpoint(endpoint)) => seen.endpoints.push(endpoint.look()),
            Ok(Observed::Window(window)) => seen.windows.push(window.look()),
            Ok(Observed::Listener(view)) => {
                let answer = answers.remove(&view.name);
                let (bindings, totals) = match answer {
                    Some(Answer::Service(bindings, totals)) => (Some(bindings), totals),
                    Some(Answer::Monitor(routes)) => {
                        seen.monitors.push(Monitor { pid: view.pid, routes });
                        (None, Vec::new())
                    }
                    None => (None, Vec::new()),
                };
                seen.services.push(Service { view, bindings, totals });
            }
            Ok(_) => {}
            Err(JoinError::NoAnswer { pid, .. }) => {
                seen.silent.push(Silent { name, kind, pid });
            }
            Err(error) => seen.unseen.push(error.to_string()),
        }
    }
    seen.monitors.sort_by_key(|monitor| monitor.routes.monitor);
    // A guest sees no groups: it has no endpoint to ask with.
    if !domain.is_guest() {
        match corewire_group::look(domain, TIMEOUT) {
            Ok(groups) => seen.groups = groups,
            Err(error) => seen.unseen.push(error.to_string()),
        }
    }
    seen.number_processes();
    Ok(seen)
}

impl Seen {
    /// What processes say of each other and of themselves is true where they run. The kernel has told this process how
    /// it sees those that have a name, wherever they run.
    fn number_processes(&mut self) {
        let named: HashMap<_, _> =
            self.endpoints.iter().map(|view| (view.name.clone(), view.pid)).collect();
        for peer in self.endpoints.iter_mut().flat_map(|view| &mut view.peers) {
            peer.pid = named.get(&peer.name).copied().unwrap_or(peer.pid);
        }
        for group in &mut self.groups {
            for seen in &mut group.members {
                let endpoint = format!("{}.member.{}", group.name, seen.member.place);
                seen.pid = named.get(&endpoint).copied().unwrap_or(seen.pid);
            }
        }
    }
}

/// What a process has said.
enum Answer {
    Service(Bindings, Vec<MethodTotals>),
    Monitor(Routes),
}

/// Monitors, and names that serve an interface: these have an endpoint for rings beside them. Other listeners are left
/// alone, because their programs would take the question for a client.
fn services(domain: &Domain) -> Result<Vec<ChannelName>, Failure> {
    let mut listeners = domain.listeners()?;
    if !listeners.is_empty() {
        let endpoints = domain.endpoints()?;
        let is_ring = |name: &str, endpoint: &ChannelName| {
            endpoint.as_str().strip_suffix(".rings").is_some_and(|service| service == name)
        };
        listeners.retain(|name| {
            let is_monitor = monitor_of_name(name.as_str()).is_some();
            is_monitor || endpoints.iter().any(|one| is_ring(name.as_str(), one))
        });
    }
    Ok(listeners)
}

/// Asks services which clients they have, and monitors how many circuits, as long as some have not been asked.
fn ask(domain: &Domain, names: &Mutex<Vec<ChannelName>>, until: Instant) -> Vec<(String, Answer)> {
    let mut answers = Vec::new();
    let next = || names.lock().ok().and_then(|mut names| names.pop());
    while let Some(name) = next() {
        let left = || until.saturating_duration_since(Instant::now());
        let answer = match monitor_of_name(name.as_str()) {
            Some(node) => {
                let asked = Asking::connect(domain, node, left());
                let routes = asked.and_then(|mut asking| asking.routes()).ok();
                routes.filter(|routes| routes.monitor == node.number()).map(Answer::Monitor)
            }
            None => {
                let asked = domain.connect(name.as_str(), left()).ok().map(Introspection::new);
                asked.and_then(|service| {
                    let bindings = service.bindings(left()).ok()?;
                    let totals = service.totals(left()).unwrap_or_default();
                    Some(Answer::Service(bindings, totals))
                })
            }
        };
        answers.extend(answer.map(|answer| (name.as_str().to_owned(), answer)));
    }
    answers
}

/// The processes that are joining a channel.
pub(crate) fn joining(pids: &[u32]) -> String {
    match pids {
        [] => String::new(),
        [pid] => format!("joining (pid {pid})"),
        [first, others @ ..] => format!("joining (pid {first} and {} more)", others.len()),
    }
}
