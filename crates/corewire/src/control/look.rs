//! Asks the processes that hold names for what an observer needs. It asks one process, or all at once, so that a
//! process that does not answer delays no other answer.
//!
//! To look at everything, this process makes one connection to each other process, and asks for its names one after the
//! other. A stopped process therefore uses one descriptor here, however many names it holds.

use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use corewire_layout::frame::Frame;
use corewire_layout::name::{ChannelName, NameKind, NameRecord, SocketName};
use corewire_layout::segment::{SenderHeader, TypeTag};
use corewire_os::OsError;
use corewire_os::event::wait_readable;
use corewire_os::fork::Descriptor;
use corewire_os::process::effective_uid;
use corewire_os::socket::{ReceiveError, Socket};
use corewire_ring::broadcast::ReceiverWords;
use corewire_ring::region::Region;

use crate::control::asking::{answer_error, ask, refusal};
use crate::control::attach::open_sender;
use crate::control::domain::DomainInner;
use crate::control::endpoint::observer::EndpointObserver;
use crate::control::frames::{EAGAIN, is_out_of_descriptors};
use crate::control::observer::{Observer, open_receiver};
use crate::control::shared::SharedMemory;
use crate::control::window::observer::WindowObserver;
use crate::error::JoinError;

/// An observer of the object that holds a name.
#[derive(Debug)]
#[non_exhaustive]
pub enum Observed {
    /// A channel.
    Channel(Observer),
    /// An endpoint.
    Endpoint(EndpointObserver),
    /// A listener.
    Listener(ListenerView),
    /// A window.
    Window(WindowObserver),
}

/// A listener, as others see it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ListenerView {
    /// Its name.
    pub name: String,
    /// Its process; 0 if that is in another container.
    pub pid: u32,
}

/// A name, and the object found under it.
#[derive(Debug)]
#[non_exhaustive]
pub struct Sighting {
    /// The name.
    pub name: String,
    /// What has it.
    pub kind: NameKind,
    /// An observer, or why there is none: [`JoinError::NoAnswer`] if the process did not answer in time. It may be
    /// stopped.
    pub observed: Result<Observed, JoinError>,
}

/// Maximum number of processes that are asked at one time. Each takes a descriptor, of which a process may
/// commonly have 1,024.
const AT_ONCE: usize = 256;
/// How long to wait before connecting again to a process whose queue of connections is full.
const RETRY_AFTER: Duration = Duration::from_millis(5);

/// A request without a complete answer.
struct Look {
    name: ChannelName,
    socket: Socket,
    is_trusted: bool,
    pid: u32,
    /// The part of the answer received so far, for a channel of one sender.
    rows: Option<Rows>,
}

struct Rows {
    memory: (Region, SenderHeader),
    joining: Vec<u32>,
    count: usize,
    receivers: Vec<(u16, u32, ReceiverWords)>,
}

impl Look {
    /// Asks the process that listens at `process` for `name`. Never blocks. The inner error says that this is not
    /// possible now: that process's queue of connections is full, or this process has no free descriptor.
    fn begin(
        domain: &DomainInner,
        name: &ChannelName,
        process: SocketName,
    ) -> Result<Result<Self, OsError>, JoinError> {
        let socket = match domain.directory.connect_now(process) {
            Err(error) if error.errno == EAGAIN || is_out_of_descriptors(&error) => {
                return Ok(Err(error));
            }
            other => other?.ok_or_else(|| JoinError::NotFound(name.clone()))?,
        };
        let peer = socket.peer()?;
        if peer.uid != domain.directory.owner() {
            let (owner, user) = (peer.uid, effective_uid());
            return Err(JoinError::NotPermitted { name: name.clone(), owner, user });
        }
        let (is_trusted, pid) = (peer.trusted().is_some(), peer.pid);
        let look = Self { name: name.clone(), socket, is_trusted, pid, rows: None };
        look.ask()?;
        Ok(Ok(look))
    }

    fn ask(&self) -> Result<(), JoinError> {
        ask(&self.socket, &self.name, &Frame::Observe { name: self.name.clone() }, &[])
    }

    /// Asks the same process for another name, after it has answered for the previous one.
    fn ask_next(mut self, name: &ChannelName) -> Result<Self, JoinError> {
        self.name = name.clone();
        self.ask()?;
        Ok(self)
    }

    /// Handles the frames received. `None` while the answer is incomplete.
    fn step(&mut self, domain: &DomainInner) -> Result<Option<Observed>, JoinError> {
        loop {
            let (frame, descriptors) = match self.socket.receive() {
                Ok(answer) => answer,
                Err(ReceiveError::Nothing) => return Ok(None),
                Err(error) => return Err(answer_error(&self.name, error)),
            };
            if let Some(observed) = self.handle(domain, frame, descriptors)? {
                return Ok(Some(observed));
            }
        }
    }

    fn handle(
        &mut self,
        domain: &DomainInner,
        frame: Frame,
        mut descriptors: Vec<Descriptor>,
    ) -> Result<Option<Observed>, JoinError> {
        let name = &self.name;
        match (frame, &mut self.rows) {
            (Frame::Observed { joining, .. }, None)
                if descriptors.len() == 2 && self.is_trusted =>
            {
                let [ring, table] = [descriptors.remove(0), descriptors.remove(0)];
                let memory = SharedMemory::open(name, ring, table, None)?;
                return Ok(Some(Observed::Channel(Observer::of_many(
                    domain, name, memory, joining,
                ))));
            }
            (Frame::Observed { count, joining }, None) if descriptors.len() == 1 => {
                let memory = open_sender(name, descriptors.remove(0))?;
                if u64::from(count) > memory.1.geometry.receivers_max() {
                    return Err(self.unexpected(&Frame::Observed { count, joining }));
                }
                let (count, receivers) = (count as usize, Vec::new());
                self.rows = Some(Rows { memory, joining, count, receivers });
            }
            (Frame::ObservedEndpoint, None) if descriptors.len() == 2 && self.is_trusted => {
                let [segment, peers] = [descriptors.remove(0), descriptors.remove(0)];
                let observer = EndpointObserver::new(name, self.pid, segment, &peers)?;
                return Ok(Some(Observed::Endpoint(observer)));
            }
            (Frame::ObservedWindow(facts), None)
                if descriptors.len() == usize::from(self.is_trusted) =>
            {
                let observer = WindowObserver::new(name, self.pid, facts, descriptors.pop())?;
                return Ok(Some(Observed::Window(observer)));
            }
            (Frame::Done, None) => {
                let (name, pid) = (name.as_str().to_owned(), self.pid);
                return Ok(Some(Observed::Listener(ListenerView { name, pid })));
            }
            (Frame::Rows(numbers), Some(rows))
                if numbers.len() == descriptors.len() && !numbers.is_empty() =>
            {
                let max = rows.memory.1.geometry.receivers_max();
                if numbers.iter().any(|&row| u64::from(row) >= max) {
                    return Err(self.unexpected(&Frame::Rows(numbers)));
                }
                for (row, descriptor) in numbers.into_iter().zip(descriptors) {
                    let (pid, words) = open_receiver(name, descriptor)?;
                    rows.receivers.push((row, pid, words));
                }
            }
            // The process may run out of resources during its answer.
            (Frame::Refused(reason), _) => return Err(refusal(name, reason, TypeTag::default())),
            (other, _) => return Err(self.unexpected(&other)),
        }
        match self.rows.take_if(|rows| rows.receivers.len() >= rows.count) {
            Some(Rows { memory, joining, receivers, .. }) => {
                let observer = Observer::of_one(name, memory, self.pid, joining, receivers);
                Ok(Some(Observed::Channel(observer)))
            }
            None => Ok(None),
        }
    }

    fn unexpected(&self, found: &Frame) -> JoinError {
        JoinError::Protocol { name: self.name.clone(), found: format!("{found:?}") }
    }
}

/// Looks at `name` alone, for at most `timeout`.
pub(crate) fn one(
    domain: &DomainInner,
    name: &ChannelName,
    kind: NameKind,
    timeout: Duration,
) -> Result<Observed, JoinError> {
    if domain.is_forked() {
        return Err(JoinError::Forked);
    }
    let deadline = Instant::now().checked_add(timeout);
    let no_answer = |pid| JoinError::NoAnswer { name: name.clone(), after: timeout, pid };
    let mut look = loop {
        let not_found = || JoinError::NotFound(name.clone());
        let record = domain.directory.look_up(name)?.ok_or_else(not_found)?;
        match kind {
            _ if record.kind == kind => {}
            NameKind::Endpoint => return Err(JoinError::NotAnEndpoint(name.clone())),
            NameKind::Window => return Err(JoinError::NotAWindow(name.clone())),
            _ => return Err(JoinError::NotAChannel(name.clone())),
        }
        match Look::begin(domain, name, record.socket)? {
            Ok(look) => break look,
            Err(error) if is_out_of_descriptors(&error) => return Err(error.into()),
            Err(_) if is_over(deadline) => return Err(no_answer(0)),
            Err(_) => wait_readable(&[], sooner(deadline, RETRY_AFTER))?,
        };
    };
    loop {
        if let Some(observed) = look.step(domain)? {
            return Ok(observed);
        }
        if wait_readable(&[look.socket.as_fd()], deadline)? == [false] {
            return Err(no_answer(look.pid));
        }
    }
}

fn is_over(deadline: Option<Instant>) -> bool {
    deadline.is_some_and(|deadline| Instant::now() >= deadline)
}

fn sooner(deadline: Option<Instant>, after: Duration) -> Option<Instant> {
    let at = Instant::now() + after;
    Some(deadline.map_or(at, |deadline| deadline.min(at)))
}

/// The remaining names of one process. The last one is next.
struct Visit {
    process: SocketName,
    names: Vec<(ChannelName, NameKind)>,
    /// The request for the last name.
    look: Option<Look>,
}

impl Visit {
    /// Looks at as many names as possible without waiting.
    fn advance(&mut self, domain: &DomainInner, sightings: &mut Vec<Sighting>, is_alone: bool) {
        while let Some((name, kind)) = self.names.last() {
            let outcome = match &mut self.look {
                Some(look) => look.step(domain).transpose(),
                None => match Look::begin(domain, name, self.process) {
                    Ok(Ok(look)) => {
                        self.look = Some(look);
                        continue;
                    }
                    // No other request is under way that could free a descriptor.
                    Ok(Err(error)) if is_alone && is_out_of_descriptors(&error) => {
                        Some(Err(error.into()))
                    }
                    Ok(Err(_)) => None,
                    Err(error) => Some(Err(error)),
                },
            };
            let Some(outcome) = outcome else { return };
            // A process that refuses closes the connection.
            let look = self.look.take().filter(|_| outcome.is_ok());
            note(sightings, name, *kind, outcome);
            self.names.pop();
            let next = self.names.last();
            self.look = look.zip(next).and_then(|(look, (next, _))| look.ask_next(next).ok());
        }
    }
}

/// Looks at every name, for at most `timeout` in all. Objects that end meanwhile are left out.
pub(crate) fn all(domain: &DomainInner, timeout: Duration) -> Result<Vec<Sighting>, OsError> {
    let deadline = Instant::now().checked_add(timeout);
    let mut sightings = Vec::new();
    let mut visits = visits(domain, &mut sightings)?;
    loop {
        let mut asked = visits.iter().filter(|visit| visit.look.is_some()).count();
        for visit in visits.iter_mut().filter(|visit| visit.look.is_none()) {
            if asked < AT_ONCE {
                visit.advance(domain, &mut sightings, asked == 0);
                asked += usize::from(visit.look.is_some());
            }
        }
        visits.retain(|visit| !visit.names.is_empty());
        if visits.is_empty() {
            break;
        }
        let is_last = is_over(deadline);
        let looks = visits.iter().filter_map(|visit| visit.look.as_ref());
        let sockets: Vec<_> = looks.map(|look| look.socket.as_fd()).collect();
        let are_all_asked = sockets.len() == visits.len();
        let until = if are_all_asked { deadline } else { sooner(deadline, RETRY_AFTER) };
        let readable = wait_readable(&sockets, until)?;
        let asked = visits.iter_mut().filter(|visit| visit.look.is_some());
        for (visit, is_readable) in asked.zip(readable) {
            if is_readable {
                visit.advance(domain, &mut sightings, false);
            }
        }
        if is_last {
            break;
        }
    }
    for Visit { names, look, .. } in visits {
        let pid = look.map_or(0, |look| look.pid);
        for (name, kind) in names {
            let no_answer = JoinError::NoAnswer { name: name.clone(), after: timeout, pid };
            note(&mut sightings, &name, kind, Err(no_answer));
        }
    }
    sightings.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(sightings)
}

/// All names, grouped by the process that holds them.
fn visits(domain: &DomainInner, sightings: &mut Vec<Sighting>) -> Result<Vec<Visit>, OsError> {
    let is_guest = domain.socket_name().is_none();
    let mut visits = BTreeMap::new();
    for name in domain.directory.names()? {
        match domain.directory.look_up(&name) {
            Ok(None) => {}
            // Guests must not see endpoints.
            Ok(Some(record)) if is_guest && record.kind == NameKind::Endpoint => {}
            Ok(Some(NameRecord { socket: process, kind, .. })) => {
                let visit = || Visit { process, names: Vec::new(), look: None };
                visits.entry(process.0).or_insert_with(visit).names.push((name, kind));
            }
            Err(error) => note(sightings, &name, NameKind::Channel, Err(error.into())),
        }
    }
    Ok(visits.into_values().collect())
}

fn note(
    sightings: &mut Vec<Sighting>,
    name: &ChannelName,
    kind: NameKind,
    observed: Result<Observed, JoinError>,
) {
    // It ended between the two looks, or the file belongs to another user and does not count here.
    if !matches!(observed, Err(JoinError::NotFound(_) | JoinError::ForeignFile(_))) {
        let name = name.as_str().to_owned();
        sightings.push(Sighting { name, kind, observed });
    }
}
