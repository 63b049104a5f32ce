//! The control half of an endpoint's connections to other hosts: who is known, who is being dialled, and who may come in.
//!
//! # Which connection stays
//!
//! Between two endpoints there is one connection. Each side decides when it hears who the other is:
//!
//! | the other side dials, and this side | decides |
//! |---|---|
//! | has no connection with it, and dials it not | takes it |
//! | dials it, too | takes it if the other has the smaller host and incarnation; else refuses it, as *crossed* |
//! | has a connection with it that the other side knows | takes it instead: the other side has lost the old one |
//! | has one that the other side does not know | refuses it, as crossed: the other side will hear of that one |
//!
//! A side that has dialled for a second in vain takes the other's connection, too. If both have taken the other's, that of the smaller
//! one stays.
//!
//! Both compare the same two, so that one of two that dial each other is refused and waits for the other's. A side that dials
//! gives the connection a number, and says which one with such an endpoint it knew last. A connection is known here before the
//! other side hears that it was taken.
//!
//! # Threads
//!
//! One takes connections, if the endpoint listens, and starts one for each that has not said yet who it is
//! ([`taking`](crate::control::taking)). Those that dial are the callers' own, or up to [`LINKERS_MAX`] for rows that
//! are reserved. The data thread never waits for any of them: what is open is put into `changes`.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

use corewire_endpoint::transport::{Gone, Loss, LossReason};
use corewire_layout::name::ChannelName;
use corewire_layout::net::{Hello, Preface, Refusal};
use corewire_net::hosts::{Hosts, HostsError};
use corewire_net::open::{
    Deadline, Numbers, OpenError, Opened, Own, Place, Target, Traffic, answer, dial, refuse,
};
use corewire_net::tcp::Set;
use corewire_net::tls::is_usable;
use corewire_os::OsError;
use corewire_os::event::Bell;
use corewire_os::fork::Descriptor;
use corewire_os::stream;
use corewire_ring::sync::Ordering::Relaxed;

use super::EndpointControl;
use crate::control::strangers::Strangers;
use crate::control::taking::{OPENED_WITHIN, Taking, begin};
use crate::error::{ConnectError, EndpointError};
use crate::guard::lock;
use crate::halves::{EndpointHalf as _, FarChange, FarHalf, notice};
use crate::tell::tell;

/// Threads that dial for reserved rows.
const LINKERS_MAX: usize = 32;
/// Endpoints of other hosts whose last connection is remembered. Beyond that, those without one are forgotten: should the other
/// side not have heard of the end of the last one, it says so for a while.
const LAST_MAX: usize = 1024;
/// How long a side that dials refuses the other's connection: what goes one way may not go the other.
const CROSSED_WITHIN: Duration = Duration::from_secs(1);
/// Before a peer is dialled again that was not there: the first and the longest pause.
const PAUSE: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// The control half of an endpoint's connections.
pub(crate) struct Network {
    this: Weak<Self>,
    endpoint: OnceLock<Weak<EndpointControl>>,
    own: Own,
    peers_max: usize,
    hosts: Option<PathBuf>,
    set: Arc<Set>,
    listening: Mutex<Vec<Taking>>,
    /// Connections that were handed over and have not said yet who they are.
    strangers: Arc<Strangers>,
    state: Mutex<State>,
    /// A connection was opened or refused, or has ended; or this endpoint is closed.
    changed: Condvar,
}

#[derive(Default)]
struct State {
    last_number: u64,
    /// Connections: by the other side's host and incarnation, their numbers and names.
    known: BTreeMap<(ChannelName, u128), Known>,
    /// The last connection with an endpoint of this host and name.
    last: BTreeMap<(ChannelName, ChannelName), Last>,
    /// Endpoints that threads of this process dial now, and since when.
    dialling: Vec<Dialling>,
    changes: Vec<FarChange>,
    to_link: VecDeque<ToLink>,
    linkers: usize,
    is_closed: bool,
}

struct Dialling {
    name: ChannelName,
    host: Option<ChannelName>,
    since: Instant,
}

struct Known {
    /// For the data thread.
    number: u64,
    /// What both sides call it.
    connection: u64,
    name: ChannelName,
    is_tls: bool,
    /// The data thread has it, or will find it among the changes.
    is_open: bool,
    /// Its socket and what goes over it, once it is open.
    facts: Option<(Arc<Descriptor>, Arc<Traffic>)>,
}

/// The last connection with an endpoint of one name and host, and how many there were.
#[derive(Default)]
struct Last {
    connection: u64,
    times: u64,
}

/// A row for which an endpoint is to be dialled.
struct ToLink {
    row: u32,
    /// Which of those that the row was reserved for.
    place: u64,
    target: Target,
    incarnation: Option<u128>,
    at: Instant,
    pause: Duration,
}

impl Network {
    pub(super) fn new(
        own: Own,
        peers_max: u64,
        hosts: Option<PathBuf>,
        bell: &Bell,
    ) -> Result<Arc<Self>, OsError> {
        // Whatever directory the process works in by then.
        let hosts = hosts.or_else(Hosts::found);
        let hosts = hosts.map(|path| std::path::absolute(&path).unwrap_or(path));
        let set = Set::new(bell).map_err(|error| OsError {
            what: "make a set of descriptors".into(),
            errno: error.raw_os_error().unwrap_or_default(),
        })?;
        let strangers = Strangers::new()?;
        Ok(Arc::new_cyclic(|this| Self {
            this: Weak::clone(this),
            endpoint: OnceLock::new(),
            own,
            peers_max: usize::try_from(peers_max).unwrap_or(usize::MAX),
            hosts,
            set: Arc::new(set),
            listening: Mutex::default(),
            strangers,
            state: Mutex::default(),
            changed: Condvar::new(),
        }))
    }

    /// The endpoint that is told of changes.
    pub(super) fn belongs_to(&self, endpoint: &Weak<EndpointControl>) {
        let _ = self.endpoint.set(Weak::clone(endpoint));
    }

    /// The hosts, as the file names them now.
    fn hosts(&self) -> Result<Hosts, HostsError> {
        self.hosts.as_deref().map_or_else(Hosts::find, Hosts::read)
    }

    /// Takes connections at this address from now on.
    pub(crate) fn listen(&self, at: SocketAddr) -> Result<(), EndpointError> {
        // What is wrong with the files is better known now.
        let hosts = self.hosts()?;
        if let Some(files) = hosts.tls() {
            is_usable(files).map_err(EndpointError::Certificate)?;
        }
        let this = Weak::clone(&self.this);
        let taking = Taking::start(at, move |stream, preface, deadline| {
            if let Some(network) = this.upgrade() {
                network.take(stream, &preface, deadline);
            }
        })?;
        lock(&self.listening).push(taking);
        Ok(())
    }

    /// Connections, one per line, for observers: `-`, the way, the time of a round trip in microseconds, bytes that were not
    /// acknowledged, how often the peer was connected before, messages and bytes sent and received, and the name.
    pub(super) fn list(&self) -> String {
        let state = lock(&self.state);
        let line = |((host, _), known): (&(ChannelName, u128), &Known)| {
            let way = if known.is_tls { "tls" } else { "tcp" };
            let (stream, traffic) = known.facts.as_ref()?;
            let (round_trip, unsent) = stream::state_of(&**stream).unwrap_or_default();
            let before = state
                .last
                .get(&(host.clone(), known.name.clone()))
                .map_or(0, |last| last.times - 1);
            let Traffic { sent_messages, sent_bytes, received_messages, received_bytes } =
                &**traffic;
            let [a, b, c, d] = [sent_messages, sent_bytes, received_messages, received_bytes]
                .map(|word| word.load(Relaxed));
            let name = known.name.on_host(host);
            Some(format!("- {way} {round_trip} {unsent} {before} {a} {b} {c} {d} {name}\n"))
        };
        state.known.iter().filter_map(line).collect()
    }

    /// Opens a connection that another side has dialled.
    fn take(&self, stream: Descriptor, preface: &Preface, deadline: Deadline) {
        let hosts = match self.hosts() {
            Ok(hosts) => hosts,
            Err(error) => {
                tell!(warn, "no connection can be taken", endpoint = self.own.name, why = error);
                drop(error);
                return refuse(&stream, Refusal::Busy);
            }
        };
        let mut number = 0;
        let admit = |other: &Hello| {
            number = self.admit(&hosts, other, preface.is_tls)?;
            Ok(())
        };
        match answer(stream, preface, &hosts, &self.own, deadline, admit) {
            Ok(opened) => self.opened(number, opened),
            Err(error) => {
                tell!(warn, "a connection was refused", endpoint = self.own.name, why = error);
                drop(error);
                self.ended(number);
            }
        }
    }

    /// Decides whether a side that has dialled is let in. Returns the number of the connection.
    fn admit(&self, hosts: &Hosts, other: &Hello, is_tls: bool) -> Result<u64, Refusal> {
        let mut state = lock(&self.state);
        if state.is_closed {
            return Err(Refusal::NotFound);
        }
        let theirs = (other.host.clone(), other.incarnation);
        let ours = (hosts.own(), self.own.incarnation);
        let known = state.known.get(&theirs).map(|known| known.connection);
        let dials = state.dialling.iter().any(|Dialling { name, host, since }| {
            *name == other.name
                && host.as_ref().is_none_or(|host| *host == other.host)
                && since.elapsed() < CROSSED_WITHIN
        });
        match known {
            Some(known) if known != other.last => return Err(Refusal::Crossed),
            None if dials && ours < (&theirs.0, theirs.1) => return Err(Refusal::Crossed),
            _ => {}
        }
        if let Some(former) = state.known.remove(&theirs) {
            state.changes.push(FarChange::Replaced { number: former.number });
        } else if state.known.len() >= self.peers_max {
            return Err(Refusal::Full);
        }
        Ok(state.add(theirs, other, is_tls))
    }

    /// A connection can be used: the data thread has it from now on.
    fn opened(&self, number: u64, opened: Opened) {
        let mut state = lock(&self.state);
        let is_closed = state.is_closed;
        let key = (opened.other().host.clone(), opened.other().incarnation);
        let known = state.known.get_mut(&key).filter(|known| known.number == number);
        let Some(known) = known.filter(|_| !is_closed) else {
            // Another one has replaced it by now.
            drop(state);
            return opened.leave();
        };
        known.is_open = true;
        known.facts = Some(opened.facts());
        state.changes.push(FarChange::Opened { number, opened: Box::new(opened) });
        drop(state);
        self.changed.notify_all();
        self.notify();
    }

    fn notify(&self) {
        if let Some(endpoint) = self.endpoint.get().and_then(Weak::upgrade) {
            endpoint.notify(notice::PEERS);
        }
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>, limit: Duration) -> MutexGuard<'a, State> {
        let waited = self.changed.wait_timeout(state, limit);
        waited.unwrap_or_else(PoisonError::into_inner).0
    }

    /// Connects to an endpoint, or to the only one of its name that is wanted, within this time, unless it is connected.
    fn connect_within(
        &self,
        target: &Target,
        only: Option<u128>,
        within: Duration,
    ) -> Result<(u64, u128), ConnectError> {
        let hosts = self.hosts()?;
        let failed = |error: OpenError| ConnectError::Far { name: target.to_string(), error };
        let deadline = Deadline::within(within);
        let is_this = |dialling: &Dialling| {
            dialling.name == target.name && dialling.host.as_ref() == target.host()
        };
        let mut pause = PAUSE;
        let mut with = target.host().map(|host| (host.clone(), target.name.clone()));
        loop {
            let mut state = lock(&self.state);
            let Some(left) = deadline.left() else {
                return Err(failed(OpenError::Timeout { after: within }));
            };
            if state.is_closed {
                return Err(ConnectError::NotFound(self.own.name.clone()));
            }
            let known =
                state.find(target, only).map(|((_, it), known)| (known.number, *it, known.is_open));
            if let Some((number, incarnation, true)) = known {
                return Ok((number, incarnation));
            }
            if known.is_some() || state.dialling.iter().any(is_this) {
                drop(self.wait(state, left));
                continue;
            }
            if state.known.len() >= self.peers_max {
                return Err(ConnectError::Full { max: self.peers_max as u64 });
            }
            let (name, host) = (target.name.clone(), target.host().cloned());
            state.dialling.push(Dialling { name, host, since: Instant::now() });
            state.last_number += 1;
            // Of two endpoints, both may dial: no two numbers are the same all the same.
            let own = u64::try_from(self.own.incarnation & u128::from(u64::MAX)).unwrap_or(0);
            let connection = own.wrapping_add(state.last_number).max(1);
            let last = with.as_ref().and_then(|with| state.last.get(with));
            let last = last.map_or(0, |last| last.connection);
            let before = state.last_number;
            drop(state);
            let numbers = Numbers { connection, last };
            let dialled = dial(&hosts, &self.own, numbers, target, left);
            let mut state = lock(&self.state);
            state.dialling.retain(|other| !is_this(other));
            self.changed.notify_all();
            match dialled {
                Ok(opened) => {
                    let other = opened.other();
                    let theirs = (other.host.clone(), other.incarnation);
                    let incarnation = other.incarnation;
                    let is_smaller = (hosts.own(), self.own.incarnation) < (&theirs.0, theirs.1);
                    let known = state.known.get(&theirs);
                    if known.is_some_and(|known| known.number > before && !is_smaller) {
                        // Each side has let the other in: the other side forgets this one.
                        drop(state);
                        opened.leave();
                        continue;
                    }
                    if let Some(known) = state.known.remove(&theirs) {
                        // The other side has let this one in, and so has forgotten that.
                        state.changes.push(FarChange::Replaced { number: known.number });
                    }
                    let other = Hello { connection: opened.connection(), ..other.clone() };
                    let number = state.add(theirs, &other, opened.is_tls());
                    drop(state);
                    self.opened(number, opened);
                    return Ok((number, incarnation));
                }
                // The other side dials this one, or has done so: its connection is on its way.
                Err(OpenError::Crossed { other }) => {
                    let theirs = (other.host.clone(), other.incarnation);
                    with = Some((other.host, other.name));
                    if !state.known.get(&theirs).is_some_and(|known| known.is_open) {
                        state = self.wait(state, left.min(pause));
                        pause = (pause * 2).min(PAUSE_MAX);
                    }
                    if let Some(known) = state.known.get(&theirs).filter(|known| known.is_open) {
                        return Ok((known.number, theirs.1));
                    }
                }
                // A moment later it may.
                Err(OpenError::Refused(Refusal::Busy))
                    if deadline.left().is_some_and(|left| left > pause) =>
                {
                    drop(self.wait(state, pause));
                    pause = (pause * 2).min(PAUSE_MAX);
                }
                Err(error) => return Err(failed(error)),
            }
        }
    }

    /// Dials for reserved rows until none is left.
    fn link_all(&self) {
        loop {
            let mut state = lock(&self.state);
            let now = Instant::now();
            let Some(at) = state.to_link.iter().position(|it| it.at <= now) else {
                if state.to_link.is_empty() || state.is_closed {
                    state.linkers -= 1;
                    return;
                }
                let first = state.to_link.iter().map(|it| it.at).min().unwrap_or(now);
                drop(self.wait(state, first.saturating_duration_since(now)));
                continue;
            };
            let Some(mut it) = state.to_link.remove(at) else { continue };
            drop(state);
            match self.connect_within(&it.target, it.incarnation, OPENED_WITHIN) {
                // Its row has the connection by now, unless that is another one's of its name, or another row has it.
                Ok(_) => {}
                Err(error) if error.may_come() => {
                    it.pause = (it.pause * 2).clamp(PAUSE, PAUSE_MAX);
                    it.at = Instant::now() + it.pause;
                    lock(&self.state).to_link.push_back(it);
                    continue;
                }
                Err(error) => {
                    tell!(warn, "a peer cannot be linked", endpoint = self.own.name, why = error);
                    drop(error);
                }
            }
            lock(&self.state).changes.push(it.not_linked());
            self.notify();
        }
    }

    /// Takes no more connections, and forgets all.
    pub(super) fn close(&self) {
        let mut state = lock(&self.state);
        state.is_closed = true;
        state.known.clear();
        state.to_link.clear();
        let changes = std::mem::take(&mut state.changes);
        drop(state);
        self.changed.notify_all();
        for change in changes {
            if let FarChange::Opened { opened, .. } = change {
                opened.leave();
            }
        }
        // The address is free when this returns.
        let listening = std::mem::take(&mut *lock(&self.listening));
        drop(listening);
    }

    /// Takes a connection that another process of this user has handed over, whose preface it has read. False if it cannot be
    /// taken now.
    pub(super) fn has_taken(&self, stream: Descriptor, preface: Preface) -> bool {
        let Some(this) = self.this.upgrade() else { return false };
        let Some(stranger) = self.strangers.add(&stream) else {
            // The other process asks again.
            let _ = self.strangers.close_oldest();
            return false;
        };
        let begun = begin("corewire-answer", move || {
            this.take(stream, &preface, Deadline::within(OPENED_WITHIN));
            drop(stranger);
        });
        begun.is_ok()
    }
}

impl ToLink {
    /// The end of a peer that was never connected, if it still waits for that.
    fn not_linked(&self) -> FarChange {
        let how = Gone::Lost(Loss { reason: LossReason::NotLinked, delivered: 0 });
        FarChange::NotLinked { row: self.row, place: self.place, how }
    }
}

impl State {
    fn add(&mut self, theirs: (ChannelName, u128), other: &Hello, is_tls: bool) -> u64 {
        self.last_number += 1;
        let Hello { name, host, connection, .. } = other;
        let (number, connection) = (self.last_number, *connection);
        if self.last.len() >= LAST_MAX {
            let Self { last, known, .. } = self;
            let has_one = |host: &ChannelName, name: &ChannelName| {
                known.iter().any(|((of, _), it)| of == host && it.name == *name)
            };
            last.retain(|(host, name), _| has_one(host, name));
        }
        let last = self.last.entry((host.clone(), name.clone())).or_default();
        (last.connection, last.times) = (connection, last.times + 1);
        let name = name.clone();
        self.known.insert(
            theirs,
            Known { number, connection, name, is_tls, is_open: false, facts: None },
        );
        number
    }

    /// The connection with an endpoint, or with the only one of its name that is wanted.
    fn find(&self, target: &Target, only: Option<u128>) -> Option<(&(ChannelName, u128), &Known)> {
        // At an address, another endpoint of that name may be by now.
        let Place::Host(host) = &target.at else { return None };
        let mut all = self.known.iter();
        let is_it = |((of, found), known): &(&(ChannelName, u128), &Known)| {
            of == host && known.name == target.name && only.is_none_or(|only| only == *found)
        };
        all.find(is_it)
    }
}

impl FarHalf for Network {
    fn set(&self) -> &Arc<Set> {
        &self.set
    }

    fn addresses(&self) -> Vec<SocketAddr> {
        lock(&self.listening).iter().map(Taking::at).collect()
    }

    fn is_own(&self, host: &ChannelName) -> bool {
        self.hosts().is_ok_and(|hosts| hosts.own() == host)
    }

    fn connect(
        &self,
        target: &Target,
        within: Option<Duration>,
    ) -> Result<(u64, u128), ConnectError> {
        let within = within.unwrap_or(OPENED_WITHIN).min(OPENED_WITHIN);
        self.connect_within(target, None, within)
    }

    fn link(&self, row: u32, place: u64, target: Target, incarnation: Option<u128>) {
        let Some(this) = self.this.upgrade() else { return };
        let mut state = lock(&self.state);
        let (at, pause) = (Instant::now(), Duration::ZERO);
        state.to_link.push_back(ToLink { row, place, target, incarnation, at, pause });
        self.changed.notify_all();
        if state.linkers == LINKERS_MAX {
            return;
        }
        state.linkers += 1;
        drop(state);
        let begun = begin("corewire-link", move || this.link_all());
        if begun.is_err() {
            let mut state = lock(&self.state);
            state.linkers -= 1;
            if state.linkers == 0 {
                let to_link = std::mem::take(&mut state.to_link);
                state.changes.extend(to_link.iter().map(ToLink::not_linked));
                drop(state);
                self.notify();
            }
        }
    }

    fn changes(&self) -> Vec<FarChange> {
        std::mem::take(&mut lock(&self.state).changes)
    }

    fn ended(&self, number: u64) {
        if number != 0 {
            lock(&self.state).known.retain(|_, known| known.number != number);
            self.changed.notify_all();
        }
    }
}
