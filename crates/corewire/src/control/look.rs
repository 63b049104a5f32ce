//! Asking the processes that have names for what an observer needs: one of them, or all at once, so that one
//! that does not answer delays nobody else's answer.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use corewire_layout::frame::Frame;
use corewire_layout::name::{ChannelName, NameKind};
use corewire_layout::segment::{SenderHeader, TypeTag};
use corewire_os::OsError;
use corewire_os::event::wait_readable;
use corewire_os::fork::Descriptor;
use corewire_os::process::effective_uid;
use corewire_os::socket::{ReceiveError, Socket};
use corewire_ring::broadcast::ReceiverWords;
use corewire_ring::region::Region;

use crate::control::attach::{ask, open_sender, refusal, unheard};
use crate::control::domain::{DomainInner, EAGAIN};
use crate::control::endpoint::observer::EndpointObserver;
use crate::control::observer::{Observer, open_receiver};
use crate::control::shared::SharedMemory;
use crate::error::JoinError;

/// What can be looked at under a name.
#[derive(Debug)]
#[non_exhaustive]
#[expect(clippy::large_enum_variant, reason = "there are few, and they are moved seldom")]
pub enum Observed {
    /// A channel.
    Channel(Observer),
    /// An endpoint.
    Endpoint(EndpointObserver),
}

/// A name, and what was found under it.
#[derive(Debug)]
#[non_exhaustive]
pub struct Sighting {
    /// The name.
    pub name: String,
    /// True for an endpoint, false for a channel.
    pub is_endpoint: bool,
    /// An observer, or why there is none: [`JoinError::NoAnswer`] if the process did not answer in time, for
    /// it may be stopped.
    pub observed: Result<Observed, JoinError>,
}

/// Maximum number of requests that are under way at one time. Each has a descriptor, of which a process may
/// commonly have 1,024.
const AT_ONCE: usize = 256;

/// A request that is under way.
struct Look {
    name: ChannelName,
    socket: Socket,
    is_trusted: bool,
    pid: u32,
    /// What has come of a channel of one sender, as long as rows are missing.
    rows: Option<Rows>,
}

struct Rows {
    memory: (Region, SenderHeader),
    joining: Vec<u32>,
    count: usize,
    receivers: Vec<(u16, u32, ReceiverWords)>,
}

impl Look {
    /// Asks the process that has `name`, or had it a moment ago. Never blocks.
    fn begin(
        domain: &DomainInner,
        name: &ChannelName,
        wants: impl FnOnce(NameKind) -> bool,
    ) -> Result<Option<Self>, JoinError> {
        if domain.is_forked() {
            return Err(JoinError::Forked);
        }
        let not_found = || JoinError::NotFound(name.clone());
        let record = domain.directory.look_up(name)?.ok_or_else(not_found)?;
        if !wants(record.kind) {
            return Ok(None);
        }
        let socket = match domain.directory.connect_now(record.socket) {
            // More connections wait there than can be queued.
            Err(error) if error.errno == EAGAIN => {
                let after = Duration::ZERO;
                return Err(JoinError::NoAnswer { name: name.clone(), after, pid: 0 });
            }
            other => other?.ok_or_else(not_found)?,
        };
        let peer = socket.peer()?;
        if peer.uid != domain.directory.owner() {
            let (owner, user) = (peer.uid, effective_uid());
            return Err(JoinError::NotPermitted { name: name.clone(), owner, user });
        }
        ask(&socket, name, &Frame::Observe { name: name.clone() }, &[])?;
        let is_trusted = peer.trusted().is_some();
        Ok(Some(Self { name: name.clone(), socket, is_trusted, pid: peer.pid, rows: None }))
    }

    /// Takes what has come. `None` as long as something is missing.
    fn step(&mut self) -> Result<Option<Observed>, JoinError> {
        loop {
            let (frame, descriptors) = match self.socket.receive() {
                Ok(answer) => answer,
                Err(ReceiveError::Nothing) => return Ok(None),
                Err(error) => return Err(unheard(&self.name, error)),
            };
            if let Some(observed) = self.take(frame, descriptors)? {
                return Ok(Some(observed));
            }
        }
    }

    fn take(
        &mut self,
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
                return Ok(Some(Observed::Channel(Observer::of_many(name, memory, joining))));
            }
            (Frame::Observed { count, joining }, None) if descriptors.len() == 1 => {
                let memory = open_sender(name, descriptors.remove(0))?;
                if u64::from(count) > memory.1.geometry.receivers_max() {
                    return Err(self.odd(&Frame::Observed { count, joining }));
                }
                let (count, receivers) = (count as usize, Vec::new());
                self.rows = Some(Rows { memory, joining, count, receivers });
            }
            (Frame::ObservedEndpoint, None) if descriptors.len() == 2 && self.is_trusted => {
                let [segment, peers] = [descriptors.remove(0), descriptors.remove(0)];
                let observer = EndpointObserver::new(name, segment, &peers)?;
                return Ok(Some(Observed::Endpoint(observer)));
            }
            (Frame::Rows(numbers), Some(rows))
                if numbers.len() == descriptors.len() && !numbers.is_empty() =>
            {
                let max = rows.memory.1.geometry.receivers_max();
                if numbers.iter().any(|&row| u64::from(row) >= max) {
                    return Err(self.odd(&Frame::Rows(numbers)));
                }
                for (row, descriptor) in numbers.into_iter().zip(descriptors) {
                    let (pid, words) = open_receiver(name, descriptor)?;
                    rows.receivers.push((row, pid, words));
                }
            }
            // It may run out of something half way.
            (Frame::Refused(reason), _) => return Err(refusal(name, reason, TypeTag::default())),
            (other, _) => return Err(self.odd(&other)),
        }
        match self.rows.take_if(|rows| rows.receivers.len() >= rows.count) {
            Some(Rows { memory, joining, receivers, .. }) => {
                let observer = Observer::of_one(name, memory, joining, receivers);
                Ok(Some(Observed::Channel(observer)))
            }
            None => Ok(None),
        }
    }

    fn odd(&self, found: &Frame) -> JoinError {
        JoinError::Protocol { name: self.name.clone(), found: format!("{found:?}") }
    }

    fn no_answer(self, after: Duration) -> JoinError {
        JoinError::NoAnswer { name: self.name, after, pid: self.pid }
    }
}

/// Looks at `name` alone, for at most `timeout`.
pub(crate) fn one(
    domain: &DomainInner,
    name: &ChannelName,
    kind: NameKind,
    timeout: Duration,
) -> Result<Observed, JoinError> {
    let wrong = || match kind {
        NameKind::Channel => JoinError::NotAChannel(name.clone()),
        NameKind::Endpoint => JoinError::NotAnEndpoint(name.clone()),
    };
    let mut look = Look::begin(domain, name, |found| found == kind)?.ok_or_else(wrong)?;
    let deadline = Instant::now().checked_add(timeout);
    loop {
        if let Some(observed) = look.step()? {
            return Ok(observed);
        }
        if wait_readable(&[look.socket.as_fd()], deadline)? == [false] {
            return Err(look.no_answer(timeout));
        }
    }
}

/// Looks at everything that has a name, for at most `timeout` in all. What ends meanwhile is left out.
pub(crate) fn all(domain: &DomainInner, timeout: Duration) -> Result<Vec<Sighting>, OsError> {
    let deadline = Instant::now().checked_add(timeout);
    let mut sightings = Vec::new();
    let mut pending = Vec::new();
    let is_guest = domain.socket_name().is_none();
    // Endpoints are not for guests.
    let is_wanted = |is_endpoint| !(is_guest && is_endpoint);
    let mut names = domain.directory.names()?.into_iter();
    loop {
        for name in names.by_ref().take(AT_ONCE - pending.len()) {
            let mut is_endpoint = false;
            let begun = Look::begin(domain, &name, |kind| {
                is_endpoint = kind == NameKind::Endpoint;
                is_wanted(is_endpoint)
            });
            match begun {
                Ok(Some(look)) => pending.push((look, is_endpoint)),
                Ok(None) => {}
                Err(error) => note(&mut sightings, &name, is_endpoint, Err(error)),
            }
        }
        if pending.is_empty() {
            match names.as_slice() {
                [] => break,
                _ => continue,
            }
        }
        let sockets: Vec<_> = pending.iter().map(|(look, _)| look.socket.as_fd()).collect();
        let readable = wait_readable(&sockets, deadline)?;
        if !readable.contains(&true) {
            break;
        }
        let mut ready = readable.into_iter();
        let mut waiting = Vec::new();
        for (mut look, is_endpoint) in pending {
            let stepped = if ready.next() == Some(true) { look.step() } else { Ok(None) };
            match stepped.transpose() {
                None => waiting.push((look, is_endpoint)),
                Some(observed) => note(&mut sightings, &look.name, is_endpoint, observed),
            }
        }
        pending = waiting;
    }
    for (look, is_endpoint) in pending {
        let name = look.name.clone();
        note(&mut sightings, &name, is_endpoint, Err(look.no_answer(timeout)));
    }
    for name in names {
        let kind = domain.directory.look_up(&name).ok().flatten().map(|record| record.kind);
        let is_endpoint = kind == Some(NameKind::Endpoint);
        if kind.is_some() && is_wanted(is_endpoint) {
            let no_answer = JoinError::NoAnswer { name: name.clone(), after: timeout, pid: 0 };
            note(&mut sightings, &name, is_endpoint, Err(no_answer));
        }
    }
    sightings.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(sightings)
}

fn note(
    sightings: &mut Vec<Sighting>,
    name: &ChannelName,
    is_endpoint: bool,
    observed: Result<Observed, JoinError>,
) {
    // It ended between the two looks, or is another user's file of no meaning here.
    if !matches!(observed, Err(JoinError::NotFound(_) | JoinError::ForeignFile(_))) {
        let name = name.as_str().to_owned();
        sightings.push(Sighting { name, is_endpoint, observed });
    }
}
