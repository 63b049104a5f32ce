//! The handshake between two endpoints.

use std::os::fd::AsFd;
use std::sync::{Arc, Weak};

use corewire_layout::endpoint::EndpointHeader;
use corewire_layout::frame::{Frame, Reason};
use corewire_layout::name::{ChannelName, NameKind, NameRecord};
use corewire_os::OsError;
use corewire_os::fork::Descriptor;
use corewire_os::memory::SegmentError;
use corewire_os::process::{self, effective_uid};
use corewire_os::socket::{Peer as Who, Socket};
use corewire_ring::Trusted;
use corewire_ring::pair::PeerParts;
use corewire_transfer::Remote;

use super::{EndpointControl, Introduction, Link, Linked, State, Unfit};
use crate::control::attach::{answer, ask, connect_to};
use crate::control::hub::{Failures, Handler};
use crate::error::{ConnectError, JoinError};
use crate::guard::lock;
use crate::halves::{EndpointHalf, Link as PeerLink, notice};
use crate::host::PairRing;
use crate::tell::tell;
use crate::wait::Patience;

impl EndpointControl {
    /// Links this endpoint with the existing one of `name`, and returns its row. Sends nothing if they are linked
    /// already.
    pub(super) fn link_with(&self, name: &ChannelName) -> Result<u32, ConnectError> {
        if self.is_forked() {
            return Err(ConnectError::Forked);
        }
        let mut record = self.record_of(name)?;
        loop {
            let linked = self.link_with_that(name, &record);
            if !matches!(linked, Err(ConnectError::NotFound(_))) {
                return linked;
            }
            // It may have ended just now, and another one has its name.
            let next = self.record_of(name)?;
            if next.incarnation == record.incarnation {
                return linked;
            }
            record = next;
        }
    }

    /// What the runtime directory says about an endpoint.
    fn record_of(&self, name: &ChannelName) -> Result<NameRecord, ConnectError> {
        let record = self.domain.directory.look_up(name).map_err(JoinError::from)?;
        let record = record.ok_or_else(|| ConnectError::NotFound(name.clone()))?;
        if record.kind != NameKind::Endpoint {
            return Err(ConnectError::NotAnEndpoint(name.clone()));
        }
        Ok(record)
    }

    /// Links this endpoint with the one that was looked up.
    fn link_with_that(&self, name: &ChannelName, record: &NameRecord) -> Result<u32, ConnectError> {
        let max = self.header.sizes.peers_max();
        let row = {
            let mut state = lock(&self.state);
            if state.is_closed {
                // This endpoint is gone, and only a connector is left of it.
                return Err(ConnectError::NotFound(self.header.name.clone()));
            }
            let row = self.reserve(&mut state, record.incarnation);
            let row = row.ok_or(ConnectError::Full { max })?;
            if matches!(state.links.get(&row), Some(Link::Linked(_))) {
                return Ok(row);
            }
            row
        };
        let linked = connect_to(&self.domain, name, record.socket, Patience::Forever)
            .map_err(ConnectError::from)
            .and_then(|socket| socket.ok_or_else(|| ConnectError::NotFound(name.clone())))
            .and_then(|socket| self.ask_to_pair(name, row, record.incarnation, socket));
        match linked {
            // Unless the peer has linked itself meanwhile.
            Err(error) if self.release_row(row) => Err(error),
            _ => Ok(row),
        }
    }

    /// The row of the peer of this incarnation, if it has one; otherwise a row that is reserved for it. `None` if no
    /// row is free.
    fn reserve(&self, state: &mut State, incarnation: u128) -> Option<u32> {
        if let Some(&row) = state.rows.get(&incarnation) {
            return Some(row);
        }
        let row = self.free(state)?;
        PairRing::reset_row(&self.memory, row);
        state.links.insert(row, Link::Requested);
        state.rows.insert(incarnation, row);
        Some(row)
    }

    /// Releases a reserved row if no peer has taken it. False if a peer has.
    fn release_row(&self, row: u32) -> bool {
        let mut state = lock(&self.state);
        let is_asked = matches!(state.links.get(&row), Some(Link::Requested));
        if is_asked {
            state.links.remove(&row);
            state.rows.retain(|_, other| *other != row);
        }
        is_asked
    }

    fn ask_to_pair(
        &self,
        name: &ChannelName,
        row: u32,
        incarnation: u128,
        socket: Socket,
    ) -> Result<(), ConnectError> {
        let who = socket.peer()?;
        let trusted = who.trusted().ok_or_else(|| ConnectError::NotPermitted {
            name: name.clone(),
            owner: who.uid,
            user: effective_uid(),
        })?;
        let own = self.header.incarnation;
        let request =
            Frame::Pair { name: name.clone(), row, incarnation: own, target: incarnation };
        self.with_own_descriptors(|descriptors| Ok(ask(&socket, name, &request, descriptors)))??;
        let (row_there, found, descriptors) = match answer(&socket, name)? {
            (Frame::Paired { row, incarnation }, descriptors) => (row, incarnation, descriptors),
            (Frame::Refused(reason), _) => return Err(refusal(name, reason)),
            // The peer was closed as soon as it had linked with this endpoint.
            (Frame::Leave, _) => return Err(ConnectError::NotFound(name.clone())),
            (other, _) => {
                return Err(ConnectError::Protocol {
                    name: name.clone(),
                    found: format!("{other:?}"),
                });
            }
        };
        let introduction =
            Introduction::check(descriptors).map_err(|unfit| unfit.to_error(name))?;
        let is_that =
            if found == incarnation { Ok(()) } else { Err("for another endpoint".into()) };
        is_that
            .and_then(|()| check_row(&introduction.header, row_there, found))
            .map_err(|found| ConnectError::Protocol { name: name.clone(), found })?;
        let socket = Arc::new(socket);
        Ok(self.link(row, row_there, &socket, introduction, (trusted, who.pid))?)
    }

    /// Handles another endpoint's request to link with this one.
    pub(crate) fn accept_link(
        &self,
        row_there: u32,
        incarnation: u128,
        socket: &Arc<Socket>,
        who: Who,
        descriptors: Vec<Descriptor>,
    ) -> Result<(), Reason> {
        let trusted = who.trusted().ok_or(Reason::NotForGuests)?;
        let introduction = Introduction::check(descriptors).map_err(|unfit| unfit.to_reason())?;
        check_row(&introduction.header, row_there, incarnation).map_err(|_| Reason::Malformed)?;
        let row = {
            let mut state = lock(&self.state);
            if state.is_closed {
                return Err(Reason::NotFound);
            }
            let max = self.header.sizes.peers_max();
            self.reserve(&mut state, incarnation).ok_or(Reason::PeersFull { max })?
        };
        let resources = |error: &OsError| Reason::Resources { errno: error.errno.unsigned_abs() };
        let answer = Frame::Paired { row, incarnation: self.header.incarnation };
        // Linked before the answer: once the peer knows its row, it may send.
        let linked = self.link(row, row_there, socket, introduction, (trusted, who.pid));
        linked.map_err(|error| {
            self.release_row(row);
            resources(&error)
        })?;
        let sent = self.with_own_descriptors(|descriptors| socket.send(&answer, descriptors));
        sent.map_err(|error| {
            self.drop_link(row, super::Gone::Died);
            resources(&error)
        })
    }

    /// Runs `job` with the descriptors that a peer needs of this endpoint.
    fn with_own_descriptors<R>(
        &self,
        job: impl FnOnce(&[std::os::fd::BorrowedFd<'_>]) -> Result<R, OsError>,
    ) -> Result<R, OsError> {
        let own_life = process::own_life()?;
        job(&[self.segment.as_fd(), self.activity.as_fd(), self.bell.as_fd(), own_life.as_fd()])
    }

    /// Links a checked peer to `row`, or once more if both have asked. `seen_pid` is its process's number here.
    fn link(
        &self,
        row: u32,
        row_there: u32,
        socket: &Arc<Socket>,
        introduction: Introduction,
        (trusted, seen_pid): (Trusted, u32),
    ) -> Result<(), OsError> {
        let handler: Weak<dyn Handler> = self.this.clone();
        let Introduction { header, memory, activity, bell, life } = introduction;
        let mut state = lock(&self.state);
        let socket = Arc::clone(socket);
        if let Some(Link::Linked(linked)) = state.links.get_mut(&row) {
            let token = self.domain.hub().watch(&*socket, handler)?;
            linked.sockets.push((socket, token));
            state.watched.insert(token, row);
            return Ok(());
        }
        let life = Arc::new(socket.peer_life(life)?);
        let [token, life_token] = self.domain.hub().watch_both(&*socket, &*life, &handler)?;
        let remote = Remote::new(seen_pid, header.incarnation).with_life(life.clone());
        state.watched.extend([(token, row), (life_token, row)]);
        let sockets = vec![(socket, token)];
        let unread = Failures::default();
        let (name, pid) = (header.name.clone(), header.pid);
        let linked = Linked { sockets, life, life_token, unread, bell, name, pid };
        state.links.insert(row, Link::Linked(linked));
        let fence_mode = header.fence_mode;
        let parts = PeerParts { memory, activity, row_there, fence_mode, trusted };
        tell!(info, "a peer came", endpoint = self.name(), row = row, peer = header.name);
        state.changes.push(PeerLink::Came { row, name: header.name, parts, remote });
        drop(state);
        self.notify(notice::PEERS);
        Ok(())
    }
}

/// Checks that the row and incarnation that a peer sent agree with its memory.
fn check_row(header: &EndpointHeader, row: u32, incarnation: u128) -> Result<(), String> {
    if header.incarnation != incarnation {
        return Err("with another endpoint's memory".into());
    }
    if u64::from(row) >= header.sizes.peers_max() {
        return Err(format!("with row {row}"));
    }
    Ok(())
}

impl Unfit {
    fn to_error(&self, name: &ChannelName) -> ConnectError {
        let name = name.clone();
        match self {
            Self::Missing => {
                ConnectError::Protocol { name, found: "with too few descriptors".into() }
            }
            Self::Segment(error) => ConnectError::Segment { name, error: error.clone() },
            Self::Header(error) => ConnectError::Header { name, error: *error },
            Self::Os(error) => ConnectError::Os(error.clone()),
        }
    }

    fn to_reason(&self) -> Reason {
        match self {
            Self::Segment(SegmentError::Os(error)) | Self::Os(error) => {
                Reason::Resources { errno: error.errno.unsigned_abs() }
            }
            _ => Reason::Segment { errno: 0 },
        }
    }
}

/// Turns a refusal into the most informative error.
fn refusal(name: &ChannelName, reason: Reason) -> ConnectError {
    let name = name.clone();
    match reason {
        Reason::NotFound => ConnectError::NotFound(name),
        Reason::NotPermitted { owner, asker } => {
            ConnectError::NotPermitted { name, owner, user: asker }
        }
        reason => ConnectError::Refused { name, reason },
    }
}
