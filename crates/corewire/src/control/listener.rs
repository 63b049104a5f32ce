//! A listener's side: connections that wait to be accepted; and the other side, which connects.
//!
//! A client connects to the socket of the listener's process, as every peer does, and is checked against the domain's
//! access rule like every peer. It asks for the listener by name. The control thread answers, stops watching the
//! socket, and adds it to the listener's queue. From then on it belongs to the program.

use std::collections::VecDeque;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use corewire_layout::frame::{Frame, Reason};
use corewire_layout::name::{ChannelName, NameKind};
use corewire_os::OsError;
use corewire_os::directory::Claim;
use corewire_os::event::{Bell, wait_readable};
use corewire_os::fork::Descriptor;
use corewire_os::process::effective_uid;
use corewire_os::socket::{Peer, ReceiveError, Socket};

use crate::control::asking::{ANSWER_TIMEOUT, deadline_of};
use crate::control::domain::{DomainHandle, DomainInner};
use crate::control::frames::{EAGAIN, resources};
use crate::control::reachable::{Kind, Reachable, Visitor};
use crate::error::{AcceptError, ConnectServiceError};
use crate::guard::lock;
use crate::tell::tell;
use crate::wait::Patience;

/// Maximum number of connections that wait to be accepted. Each takes a descriptor of the process.
const WAITING_MAX: usize = 256;
/// Maximum number of these per foreign user, so that one user cannot exclude the others.
const WAITING_OF_GUEST_MAX: usize = WAITING_MAX / 4;
/// Maximum number of these of all foreign users, so that they cannot exclude this one.
const WAITING_OF_GUESTS_MAX: usize = WAITING_MAX / 4 * 3;

/// The control half of a listener.
pub(crate) struct ListenerControl {
    name: ChannelName,
    domain: DomainHandle,
    /// Readable while connections wait. Changed only with the state locked.
    bell: Arc<Bell>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    claim: Option<Claim>,
    waiting: VecDeque<(Socket, Peer)>,
    is_closed: bool,
}

impl Reachable for ListenerControl {
    fn serve(&self, at: &dyn Visitor, request: Frame, _: Vec<Descriptor>) -> bool {
        if let Frame::Observe { .. } = request {
            return at.answered(at.socket().send(&Frame::Done, &[]));
        }
        // What follows on the socket is for the listener's program.
        at.unwatch();
        match self.add(at.socket(), at.peer()) {
            Ok(()) => false,
            Err(reason) => {
                tell!(info, "a connection was refused", listener = self.name, reason = reason);
                at.refuse(reason)
            }
        }
    }
}

impl ListenerControl {
    pub(crate) fn new(domain: &DomainHandle, name: ChannelName) -> Result<Arc<Self>, OsError> {
        let (domain, bell) = (domain.clone(), Arc::new(Bell::new()?));
        Ok(Arc::new(Self { name, domain, bell, state: Mutex::default() }))
    }

    pub(crate) fn name(&self) -> &ChannelName {
        &self.name
    }

    pub(crate) fn bell(&self) -> &Arc<Bell> {
        &self.bell
    }

    /// Keeps the claim on the listener's name until the listener is closed.
    pub(crate) fn keep_claim(&self, claim: Claim) {
        lock(&self.state).claim = Some(claim);
    }

    /// Answers a client's request and adds its connection to the queue. Called on the control thread.
    fn add(&self, socket: &Socket, peer: Peer) -> Result<(), Reason> {
        let mut state = lock(&self.state);
        if state.is_closed {
            return Err(Reason::NotFound);
        }
        if state.waiting.len() >= WAITING_MAX {
            return Err(Reason::ListenerFull { max: WAITING_MAX as u64 });
        }
        if peer.trusted().is_none() {
            let guests = || state.waiting.iter().filter(|(_, other)| other.trusted().is_none());
            let of_user = guests().filter(|(_, other)| other.uid == peer.uid).count();
            let limits =
                [(of_user, WAITING_OF_GUEST_MAX), (guests().count(), WAITING_OF_GUESTS_MAX)];
            if let Some((_, max)) = limits.into_iter().find(|(count, max)| count >= max) {
                return Err(Reason::ListenerFullOfGuests { user: peer.uid, max: max as u64 });
            }
        }
        // The control thread still has the other descriptor for a moment.
        let own = socket.duplicate().map_err(|error| resources(&error))?;
        // Before the program has the socket: the answer must be the first thing that the client reads.
        own.send(&Frame::Done, &[]).map_err(|error| resources(&error))?;
        state.waiting.push_back((own, peer));
        self.bell.ring();
        Ok(())
    }

    /// The connection that has waited for the longest, if one waits.
    pub(crate) fn take(&self) -> Result<Option<(Socket, Peer)>, AcceptError> {
        // The lock may be held by a thread that a forked child does not have.
        if self.domain.is_forked() {
            return Err(AcceptError::Forked);
        }
        let mut state = lock(&self.state);
        let taken = state.waiting.pop_front();
        if state.waiting.is_empty() {
            self.bell.silence();
        }
        Ok(taken)
    }

    /// Waits for a connection until `deadline`, or without a limit.
    pub(crate) fn take_by(
        &self,
        deadline: Option<Instant>,
    ) -> Result<Option<(Socket, Peer)>, AcceptError> {
        loop {
            if let Some(taken) = self.take()? {
                return Ok(Some(taken));
            }
            // Another thread may take the connection first.
            if wait_readable(&[self.bell.as_fd()], deadline)? == [false] {
                return Ok(None);
            }
        }
    }

    /// Releases the name, and closes the connections that were not accepted.
    pub(crate) fn close(&self) {
        if self.domain.is_forked() {
            return;
        }
        self.domain.remove(Kind::Listener, &self.name, self);
        let mut state = lock(&self.state);
        state.is_closed = true;
        let waiting = std::mem::take(&mut state.waiting);
        let claim = state.claim.take();
        drop(state);
        if let Some(claim) = claim {
            claim.release(&self.domain.directory);
        }
        drop(waiting);
        self.domain.end();
    }
}

/// Connects to the listener `name` for a caller that waits at most `timeout`.
pub(crate) fn connect(
    domain: &DomainInner,
    name: &ChannelName,
    timeout: Duration,
) -> Result<(Socket, Peer), ConnectServiceError> {
    connect_by(domain, name, Instant::now().checked_add(timeout), timeout)
}

/// Connects to the listener `name` as soon as it exists.
pub(crate) fn connect_when_created(
    domain: &DomainInner,
    name: &ChannelName,
    timeout: Option<Duration>,
) -> Result<(Socket, Peer), ConnectServiceError> {
    if domain.is_forked() {
        return Err(ConnectServiceError::Forked);
    }
    let patience = timeout.map_or(Patience::Forever, Patience::until);
    // Before the first attempt: a listener created after it changes a file.
    let watch = domain.directory.watch()?;
    loop {
        let (deadline, after) = deadline_of(patience);
        match connect_by(domain, name, Some(deadline), after) {
            Err(ConnectServiceError::NotFound(name)) => {
                if !watch.wait_alone(patience.deadline())? {
                    let after = timeout.unwrap_or_default();
                    return Err(ConnectServiceError::NotCreated { name, after });
                }
            }
            other => return other,
        }
    }
}

/// Connects to the existing listener `name` until `deadline`. `after` is the time limit to report.
fn connect_by(
    domain: &DomainInner,
    name: &ChannelName,
    deadline: Option<Instant>,
    after: Duration,
) -> Result<(Socket, Peer), ConnectServiceError> {
    if domain.is_forked() {
        return Err(ConnectServiceError::Forked);
    }
    let not_found = || ConnectServiceError::NotFound(name.clone());
    let no_answer = |pid| ConnectServiceError::NoAnswer { name: name.clone(), after, pid };
    let record = domain.directory.look_up(name)?.ok_or_else(not_found)?;
    if record.kind != NameKind::Listener {
        return Err(ConnectServiceError::NotAListener(name.clone()));
    }
    let limit = deadline.map_or(ANSWER_TIMEOUT, |at| at.saturating_duration_since(Instant::now()));
    let socket = match domain.directory.connect(record.socket, limit) {
        Err(error) if error.errno == EAGAIN => return Err(no_answer(0)),
        other => other?.ok_or_else(not_found)?,
    };
    let peer = socket.peer()?;
    if peer.uid != domain.directory.owner() {
        let (owner, user) = (peer.uid, effective_uid());
        return Err(ConnectServiceError::NotPermitted { name: name.clone(), owner, user });
    }
    socket.remove_limit()?;
    // A process that has refused the connection has closed it; its answer can still be received.
    match socket.send(&Frame::Connect { name: name.clone() }, &[]) {
        Err(error) if !error.is_hang_up() => return Err(error.into()),
        _ => {}
    }
    match socket.receive_by(deadline) {
        Ok((Frame::Done, _)) => Ok((socket, peer)),
        Ok((Frame::Refused(reason), _)) => Err(refusal(name, reason)),
        Ok((other, _)) => Err(protocol(name, format!("{other:?}"))),
        Err(ReceiveError::Nothing) => Err(no_answer(peer.pid)),
        // The process died, or closed the listener after the name was looked up.
        Err(ReceiveError::Closed) => Err(not_found()),
        Err(ReceiveError::Os(error)) => Err(error.into()),
        Err(other) => Err(protocol(name, other.to_string())),
    }
}

fn protocol(name: &ChannelName, found: String) -> ConnectServiceError {
    ConnectServiceError::Protocol { name: name.clone(), found }
}

/// Turns a refusal into the most informative error.
fn refusal(name: &ChannelName, reason: Reason) -> ConnectServiceError {
    let name = name.clone();
    match reason {
        Reason::NotFound => ConnectServiceError::NotFound(name),
        Reason::NotPermitted { owner, asker } => {
            ConnectServiceError::NotPermitted { name, owner, user: asker }
        }
        Reason::ListenerFull { .. } | Reason::ListenerFullOfGuests { .. } => {
            ConnectServiceError::Full { name, reason }
        }
        reason => ConnectServiceError::Refused { name, reason },
    }
}
