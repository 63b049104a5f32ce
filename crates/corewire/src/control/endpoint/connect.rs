//! The handshake between two endpoints.

use std::os::fd::AsFd;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Instant;

use corewire_layout::endpoint::EndpointHeader;
use corewire_layout::frame::{Frame, Reason};
use corewire_layout::name::{ChannelName, NameKind, NameRecord};
use corewire_os::OsError;
use corewire_os::fork::Descriptor;
use corewire_os::memory::SegmentError;
use corewire_os::process::{self, effective_uid};
use corewire_os::socket::{Peer as Who, Socket, is_peer_ending};
use corewire_ring::pair::PeerParts;
use corewire_transfer::Remote;

use super::rows::{Answer, Begun, Reservation, Unavailable};
use super::{End, EndpointControl, Introduction, Linked, Request, State, Unfit};
use crate::control::ENDS_WITHIN;
use crate::control::asking::{ANSWER_TIMEOUT, answer, ask, connect_to};
use crate::control::frames::EAGAIN;
use crate::control::hub::{Failures, Token};
use crate::error::{ConnectError, JoinError};
use crate::guard::lock;
use crate::halves::{EndpointHalf, PeerChange as PeerLink, notice};
use crate::host::PairRing;
use crate::tell::tell;
use crate::wait::Patience;

/// How often a link is asked for again that its peer has ended and wants anew.
const TRIES_MAX: u32 = 8;

/// Why a request has not led to a link.
pub(super) enum Unlinked {
    Failed(ConnectError),
    /// The answer came too late: the row has been given up, or the peer has ended that link and makes another.
    Stale,
}

impl<E: Into<ConnectError>> From<E> for Unlinked {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

impl EndpointControl {
    /// Links this endpoint with the existing one of `name`. Returns its row, and which endpoint of that name it is. Sends
    /// nothing if they are linked already.
    pub(super) fn link_with(&self, name: &ChannelName) -> Result<(u32, u128), ConnectError> {
        if self.is_forked() {
            return Err(ConnectError::Forked);
        }
        let mut record = self.record_of(name)?;
        let mut tries = 0;
        loop {
            let error = match self.link_with_that(name, &record) {
                Ok(row) => {
                    self.wait_until_known(row);
                    return Ok((row, record.incarnation));
                }
                Err(Unlinked::Failed(error @ ConnectError::NotFound(_))) => error,
                Err(Unlinked::Failed(error)) => return Err(error),
                Err(Unlinked::Stale) if tries < TRIES_MAX => {
                    tries += 1;
                    continue;
                }
                // It lives, and ends each of these links.
                Err(Unlinked::Stale) => {
                    let reason = Reason::Resources { errno: EAGAIN.unsigned_abs() };
                    return Err(ConnectError::Refused { name: name.clone(), reason });
                }
            };
            // It may have ended just now, and another one has its name.
            let next = self.record_of(name)?;
            if next.incarnation == record.incarnation {
                return Err(error);
            }
            record = next;
        }
    }

    /// Waits until the peer of `row` has said that it is linked, too, so that it finds what is sent to it from now on.
    /// If it is stopped, not for long: it links when it continues.
    fn wait_until_known(&self, row: u32) {
        let until = Instant::now() + ANSWER_TIMEOUT;
        let mut state = lock(&self.state);
        while state.rows.linked(row).is_some_and(|(_, linked)| !linked.knows) {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            let waited = self.answered.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// What the runtime directory says about an endpoint.
    pub(super) fn record_of(&self, name: &ChannelName) -> Result<NameRecord, ConnectError> {
        let record = self.domain.directory.look_up(name).map_err(JoinError::from)?;
        let record = record.ok_or_else(|| ConnectError::NotFound(name.clone()))?;
        if record.kind != NameKind::Endpoint {
            return Err(ConnectError::NotAnEndpoint(name.clone()));
        }
        Ok(record)
    }

    /// Links this endpoint with the one that was looked up.
    pub(super) fn link_with_that(
        &self,
        name: &ChannelName,
        record: &NameRecord,
    ) -> Result<u32, Unlinked> {
        let begun = {
            let mut state = lock(&self.state);
            let begun = state.rows.begin(name, record.incarnation);
            if let Ok(Begun::Ask(own)) = begun {
                self.prepare(own);
            }
            begun
        };
        let own = match begun {
            Ok(Begun::Linked(row)) => return Ok(row),
            Ok(Begun::Ask(own)) => own,
            Err(Unavailable::Full) => {
                return Err(ConnectError::Full { max: self.header.sizes.peers_max() }.into());
            }
            // This endpoint is gone, and only a connector is left of it.
            Err(Unavailable::Closed | Unavailable::Stale) => {
                return Err(ConnectError::NotFound(self.header.name.clone()).into());
            }
        };
        let linked = connect_to(&self.domain, name, record.socket, Patience::Forever)
            .map_err(Unlinked::from)
            .and_then(|socket| Ok(socket.ok_or_else(|| ConnectError::NotFound(name.clone()))?))
            .and_then(|socket| self.ask_to_pair(name, own, record.incarnation, socket));
        match linked {
            // Unless the peer has linked itself meanwhile.
            Err(error) if !lock(&self.state).rows.give_up(own) => Err(error),
            _ => Ok(own.row),
        }
    }

    /// Resets the shared words of a row that was free. Before its peer knows of it.
    fn prepare(&self, own: Reservation) {
        if own.is_new {
            PairRing::reset_row(&self.memory, own.row);
        }
    }

    fn ask_to_pair(
        &self,
        name: &ChannelName,
        own: Reservation,
        incarnation: u128,
        socket: Socket,
    ) -> Result<(), Unlinked> {
        let who = socket.peer()?;
        let trusted = who.trusted().ok_or_else(|| ConnectError::NotPermitted {
            name: name.clone(),
            owner: who.uid,
            user: effective_uid(),
        })?;
        let request = Frame::Pair {
            name: name.clone(),
            row: own.row,
            reservation: own.number,
            incarnation: self.header.incarnation,
            target: incarnation,
        };
        // A process that lives may have given up the request, and takes another one.
        let stale = |error: JoinError| match error {
            JoinError::NotFound(_) if !is_peer_ending(&socket, who.pid, ENDS_WITHIN) => {
                Unlinked::Stale
            }
            error => error.into(),
        };
        self.with_own_descriptors(|descriptors| Ok(ask(&socket, name, &request, descriptors)))?
            .map_err(stale)?;
        let answer = answer(&socket, name).map_err(stale)?;
        let (row_there, theirs, found, descriptors) = match answer {
            (Frame::Paired { row, reservation, incarnation }, descriptors) => {
                (row, reservation, incarnation, descriptors)
            }
            (Frame::Refused(reason), _) => return Err(refusal(name, reason).into()),
            // The peer was closed as soon as it had heard of this endpoint.
            (Frame::Leave, _) => return Err(ConnectError::NotFound(name.clone()).into()),
            (other, _) => {
                let found = format!("{other:?}");
                return Err(ConnectError::Protocol { name: name.clone(), found }.into());
            }
        };
        let introduction =
            Introduction::check(descriptors).map_err(|unfit| unfit.to_error(name))?;
        let is_that =
            if found == incarnation { Ok(()) } else { Err("for another endpoint".into()) };
        is_that
            .and_then(|()| check_row(&introduction.header, row_there, found))
            .map_err(|found| ConnectError::Protocol { name: name.clone(), found })?;
        let request = Request { introduction, row_there, who: (trusted, who.pid) };
        self.on_answer(own, theirs, &Arc::new(socket), request)
    }

    /// Handles a peer's answer: links, and confirms it. The confirmation comes last, because the peer links when it reads
    /// it.
    fn on_answer(
        &self,
        own: Reservation,
        theirs: u64,
        socket: &Arc<Socket>,
        request: Request,
    ) -> Result<(), Unlinked> {
        let mut state = lock(&self.state);
        if state.rows.on_answer(own, theirs) == Answer::Stale {
            return Err(Unlinked::Stale);
        }
        let token = self.watch(&mut state, own.row, socket)?;
        let confirmed = self.meet(&mut state, own, socket, request).and_then(|met| {
            let sent = socket.send(&Frame::Done, &[]);
            if let (Err(_), Some((linked, _))) = (&sent, &met) {
                self.unwatch(&mut state, linked.life_token, &linked.life);
            }
            sent.map(|()| met)
        });
        match confirmed {
            Ok(met) => self.link(state, own, theirs, (token, socket), met),
            Err(error) => {
                self.unwatch(&mut state, token, socket);
                // The peer has just been closed, or has ended this link.
                return Err(if error.is_hang_up() { Unlinked::Stale } else { error.into() });
            }
        }
        Ok(())
    }

    /// Handles another endpoint's request to link with this one. It is linked when it confirms the answer.
    pub(crate) fn accept_link(
        &self,
        (row_there, theirs, incarnation): (u32, u64, u128),
        socket: &Arc<Socket>,
        who: Who,
        descriptors: Vec<Descriptor>,
    ) -> Result<(), Reason> {
        let trusted = who.trusted().ok_or(Reason::NotForGuests)?;
        let introduction = Introduction::check(descriptors).map_err(|unfit| unfit.to_reason())?;
        check_row(&introduction.header, row_there, incarnation).map_err(|_| Reason::Malformed)?;
        let mut state = lock(&self.state);
        self.end_outlived(&mut state, incarnation, theirs);
        let name = &introduction.header.name;
        let requested = state.rows.request(name, incarnation, theirs);
        let (own, given_up) = requested.map_err(|why| match why {
            Unavailable::Full => Reason::PeersFull { max: self.header.sizes.peers_max() },
            Unavailable::Closed => Reason::NotFound,
            // It has asked again, or this endpoint is linked with it already.
            Unavailable::Stale => Reason::Resources { errno: EAGAIN.unsigned_abs() },
        })?;
        for (token, socket, _) in given_up {
            self.unwatch(&mut state, token, &socket);
        }
        self.prepare(own);
        // From the answer on the peer may visit.
        PairRing::admit(&self.memory, own.row);
        let answer = Frame::Paired {
            row: own.row,
            reservation: own.number,
            incarnation: self.header.incarnation,
        };
        let answered = self.watch(&mut state, own.row, socket).and_then(|token| {
            let sent = self.with_own_descriptors(|descriptors| socket.send(&answer, descriptors));
            // It fails if the requester has given up.
            sent.inspect_err(|_| self.unwatch(&mut state, token, socket))?;
            Ok(token)
        });
        match answered {
            Ok(token) => {
                let request = Request { introduction, row_there, who: (trusted, who.pid) };
                state.rows.answered(own, (token, Arc::clone(socket), request));
                Ok(())
            }
            Err(error) => {
                state.rows.release(own);
                Err(Reason::Resources { errno: error.errno.unsigned_abs() })
            }
        }
    }

    /// The peer that sent the request at `token` has linked, and says so.
    pub(super) fn confirm(&self, mut state: MutexGuard<'_, State>, row: u32, token: Token) {
        let Some((own, theirs, socket, request)) = state.rows.confirm(row, token) else { return };
        match self.meet(&mut state, own, &socket, request) {
            Ok(met) => {
                self.link(state, own, theirs, (token, &socket), met);
                self.acknowledge(&mut lock(&self.state), own.row, token, &socket);
            }
            Err(_) => {
                // The hang-up tells the peer.
                self.unwatch(&mut state, token, &socket);
                socket.hang_up();
                state.rows.release(own);
            }
        }
    }

    /// Runs `job` with the descriptors that a peer needs of this endpoint.
    fn with_own_descriptors<R>(
        &self,
        job: impl FnOnce(&[std::os::fd::BorrowedFd<'_>]) -> Result<R, OsError>,
    ) -> Result<R, OsError> {
        let own_life = process::own_life()?;
        job(&[self.segment.as_fd(), self.activity.as_fd(), self.bell.as_fd(), own_life.as_fd()])
    }

    /// Ends the link of the peer of `incarnation` if the peer has ended it: it now uses reservation `theirs`.
    fn end_outlived(&self, state: &mut State, incarnation: u128, theirs: u64) {
        if let Some(row) = state.rows.outlived(incarnation, theirs) {
            self.end(state, row, End::HungUp);
            self.notify(notice::PEERS);
        }
    }

    /// Watches the process of a peer whose row is to be linked. `None` if the row has been linked meanwhile.
    fn meet(
        &self,
        state: &mut State,
        own: Reservation,
        socket: &Socket,
        request: Request,
    ) -> Result<Option<(Linked, PeerLink)>, OsError> {
        if state.rows.linked(own.row).is_some() {
            return Ok(None);
        }
        let Request { introduction, row_there, who: (trusted, seen_pid) } = request;
        let Introduction { header, memory, activity, bell, life } = introduction;
        let life = Arc::new(socket.peer_life(life)?);
        let life_token = self.watch(state, own.row, &life)?;
        let remote = Remote::new(seen_pid, header.incarnation).with_life(life.clone());
        let (name, pid, unread) = (header.name.clone(), header.pid, Failures::default());
        let knows = false;
        let linked = Linked { life, life_token, unread, bell, knows, name, pid, seen_pid };
        let fence_mode = header.fence_mode;
        let parts = Box::new(PeerParts { memory, activity, row_there, fence_mode, trusted });
        // From the confirmation on, which follows, the peer may visit.
        PairRing::admit(&self.memory, own.row);
        let (row, name, incarnation) = (own.row, header.name, header.incarnation);
        Ok(Some((linked, PeerLink::Came { row, name, incarnation, parts, remote })))
    }

    /// Links a row, and tells the data thread; or adds a socket to the row's link.
    fn link(
        &self,
        mut state: MutexGuard<'_, State>,
        own: Reservation,
        theirs: u64,
        (token, socket): (Token, &Arc<Socket>),
        met: Option<(Linked, PeerLink)>,
    ) {
        let socket = (token, Arc::clone(socket));
        let Some((linked, link)) = met else { return state.rows.add_socket(own, socket) };
        state.rows.link(own, theirs, socket, linked);
        state.changes.push(link);
        drop(state);
        tell!(info, "a peer came", endpoint = self.name(), row = own.row);
        self.notify(notice::PEERS);
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
