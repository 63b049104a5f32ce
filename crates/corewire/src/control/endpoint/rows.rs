//! Which peer has which row of an endpoint, and how far its link is. Decides, and does nothing else: the tests walk
//! through every order of events at two ends.
//!
//! | step | requester | other endpoint |
//! |---|---|---|
//! | 1 | reserves a row ([`Rows::begin`]), sends `Pair` | |
//! | 2 | | reserves a row ([`Rows::request`]), answers `Paired` ([`Rows::answered`]) |
//! | 3 | links ([`Rows::hear`], [`Rows::link`]), sends `Done` | |
//! | 4 | | links ([`Rows::confirm`], [`Rows::link`]), sends `Linked`, which the caller waits for |
//!
//! A requester that gives up before step 3 is never linked: its socket closes without `Done`, and nobody hears of it.
//! If both endpoints ask at once, each finds the row that it has reserved for the other, and the link has two sockets. Who
//! sends `Done` or `Linked` has that socket in its link, so the one that reads it knows one that both have; the endpoint of the
//! lower incarnation then closes all others ([`Rows::take_spares`]), and the other endpoint closes none.
//!
//! Each reservation has a number that its endpoint never uses again, and `Pair` and `Paired` carry it. An endpoint has
//! one reservation at a time for a peer's incarnation. So of two numbers that a peer has sent, the lower one belongs to
//! a reservation that has ended, and with it everything that it was told about that row.
//!
//! A row can be *addressed* ([`Rows::address`]): it is reserved for a name before anybody asks for a link, and belongs to
//! the first incarnation of that name that links, or to the one that the caller knows. Between two tries to link it, it
//! is a new reservation.
//!
//! A row whose peer has gone stays reserved, and its sockets stay open, until the data thread has removed the peer
//! ([`Rows::free`]). So the data thread never hears of two peers in one row, and a peer that sees the sockets close may
//! give its own rings to others: nobody reads them here any more.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::mem;

use corewire_layout::name::ChannelName;

/// Number of rows of departed peers that are not reused while there are other free rows.
const LEFT_KEPT: usize = 8;
/// Maximum number of sockets of one row: each peer's threads may all ask at once.
const SOCKETS_MAX: usize = 64;

/// The rows of an endpoint. `T` identifies a watched socket, with which `S` is kept; `I` is what a requester has
/// introduced itself with; `L` is what a link needs besides its sockets.
#[cfg_attr(test, derive(Clone, PartialEq, Eq, Hash))]
pub(super) struct Rows<T, S, I, L> {
    rows_max: u32,
    rows: BTreeMap<u32, Row<T, S, I, L>>,
    /// Free rows that had a peer, the one free for the longest first.
    left: VecDeque<u32>,
    last_number: u64,
    is_closed: bool,
}

#[cfg_attr(test, derive(Clone, PartialEq, Eq, Hash))]
struct Row<T, S, I, L> {
    name: ChannelName,
    /// [`UNKNOWN`] if the row is addressed, and nobody has tried to link it.
    incarnation: u128,
    number: u64,
    phase: Phase<T, S, I, L>,
    address: Option<Address>,
    /// It is addressed, and its shared words have not been reset for this reservation.
    is_fresh: bool,
}

/// Whom a row is reserved for before anybody asks for a link.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Address {
    pub(super) name: ChannelName,
    /// The only incarnation of that name that it may be, if that is known.
    pub(super) incarnation: Option<u128>,
}

/// The incarnation of nobody.
const UNKNOWN: u128 = 0;

#[cfg_attr(test, derive(Clone, PartialEq, Eq, Hash))]
enum Phase<T, S, I, L> {
    /// `asking` threads of this process wait for the peer's answer. The peer's own requests, which all came from its
    /// reservation `theirs`, wait for its confirmation.
    Reserved { asking: u32, theirs: u64, requests: Vec<(T, S, I)> },
    /// `ended` are sockets that have ended here only: they stay open as long as the others. `common` is one of the sockets,
    /// which the peer has in its link, too.
    Linked { theirs: u64, sockets: Vec<(T, S)>, ended: Vec<S>, common: Option<T>, link: L },
    /// Its peer has gone, which the data thread has not handled yet.
    Gone { sockets: Vec<S> },
}

/// A row, reserved for one peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Reservation {
    pub(super) row: u32,
    pub(super) number: u64,
    /// The row was free: its shared words must be reset before the peer knows of it.
    pub(super) is_new: bool,
}

/// How a thread that wants a link begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Begun {
    /// The peer is linked, in this row.
    Linked(u32),
    /// It must ask for the link, and then call [`Rows::hear`] and [`Rows::link`], or [`Rows::give_up`].
    Ask(Reservation),
}

/// Why no row is reserved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unavailable {
    Closed,
    /// All rows are in use, or too many sockets belong to this one.
    Full,
    /// The request comes from a reservation that has ended.
    Stale,
}

/// What the peer's answer to a request means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    /// The row can be linked, or has been linked meanwhile, and gets one more socket.
    Valid,
    /// The row was given up, or the answer comes from a reservation that has ended.
    Stale,
}

/// What the end of a socket means.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum HungUp<S, I> {
    /// A requester has given up: nobody has heard of it. Its socket can be closed.
    Request(S, I),
    /// The link has other sockets.
    Socket(S),
    /// It was the link's last socket.
    Last(S),
}

/// A link, whose sockets and process need not be watched any more.
pub(super) struct Ended<T, S, L> {
    pub(super) sockets: Vec<(T, S)>,
    pub(super) link: L,
}

/// Everything to close when the endpoint is closed.
pub(super) struct Closed<T, S, L> {
    /// Sockets of requests.
    pub(super) watched: Vec<(T, S)>,
    pub(super) links: Vec<Ended<T, S, L>>,
    /// Sockets of links that have ended.
    pub(super) unwatched: Vec<S>,
}

impl<T: Copy + Eq, S: Clone, I, L> Rows<T, S, I, L> {
    pub(super) fn new(rows_max: u32) -> Self {
        let (rows, left) = (BTreeMap::new(), VecDeque::new());
        Self { rows_max, rows, left, last_number: 0, is_closed: false }
    }

    /// Reserves a row for a name, or returns the row that the peer of that name has already.
    pub(super) fn address(&mut self, address: &Address) -> Result<u32, Unavailable> {
        if self.is_closed {
            return Err(Unavailable::Closed);
        }
        let Address { name, incarnation } = address;
        let is_its = |row: &Row<T, S, I, L>| {
            let may_be = incarnation.is_none() || row.incarnation == UNKNOWN;
            may_be && row.name == *name
        };
        let found = incarnation.and_then(|incarnation| self.find(incarnation));
        let found = found.or_else(|| self.find_last(is_its));
        if let Some((row, entry)) = found.and_then(|row| Some((row, self.rows.get_mut(&row)?))) {
            if entry.address.is_none() || incarnation.is_some() {
                entry.address = Some(address.clone());
            }
            if let Some(incarnation) = incarnation {
                entry.incarnation = *incarnation;
            }
            return Ok(row);
        }
        let row = self.take_free().ok_or(Unavailable::Full)?;
        self.last_number += 1;
        let entry = Row {
            name: name.clone(),
            incarnation: incarnation.unwrap_or(UNKNOWN),
            number: self.last_number,
            phase: Phase::UNUSED,
            address: Some(address.clone()),
            is_fresh: true,
        };
        self.rows.insert(row, entry);
        Ok(row)
    }

    /// Whom a row is reserved for, if it is addressed and not linked.
    pub(super) fn addressed(&self, row: u32) -> Option<&Address> {
        let row = self.rows.get(&row).filter(|row| matches!(row.phase, Phase::Reserved { .. }))?;
        row.address.as_ref()
    }

    /// An addressed row will never be linked. True if it was not, and nobody is about to link it: the caller tells the
    /// data thread.
    pub(super) fn fail(&mut self, row: u32) -> bool {
        let entry = self.rows.get_mut(&row).filter(|row| row.address.is_some());
        let Some(phase) = entry.map(|row| &mut row.phase) else { return false };
        let is_unused = phase.is_unused();
        if is_unused {
            *phase = Phase::Gone { sockets: Vec::new() };
        }
        is_unused
    }

    /// A thread of this process wants a link with the peer of this name and incarnation.
    pub(super) fn begin(
        &mut self,
        name: &ChannelName,
        incarnation: u128,
    ) -> Result<Begun, Unavailable> {
        let own = self.reserve(name, incarnation)?;
        match self.rows.get_mut(&own.row).map(|row| &mut row.phase) {
            Some(Phase::Reserved { asking, .. }) => {
                *asking += 1;
                Ok(Begun::Ask(own))
            }
            _ => Ok(Begun::Linked(own.row)),
        }
    }

    /// A thread that has asked has got no valid answer. True if the row has had a peer since it was reserved.
    pub(super) fn give_up(&mut self, own: Reservation) -> bool {
        let Some(row) = self.rows.get_mut(&own.row).filter(|row| row.number == own.number) else {
            return false;
        };
        if let Phase::Reserved { asking, .. } = &mut row.phase {
            *asking -= 1;
            self.release_unused(own.row);
            return false;
        }
        true
    }

    /// A thread that has asked hears that it can link, with the peer's reservation `theirs`.
    pub(super) fn on_answer(&self, own: Reservation, theirs: u64) -> Answer {
        let row = self.rows.get(&own.row).filter(|row| row.number == own.number);
        let is_valid = row.is_some_and(|row| match &row.phase {
            Phase::Reserved { theirs: known, .. } => theirs >= *known,
            Phase::Linked { theirs: known, sockets, .. } => {
                theirs == *known && sockets.len() < SOCKETS_MAX
            }
            Phase::Gone { .. } => false,
        });
        if is_valid { Answer::Valid } else { Answer::Stale }
    }

    /// The row whose link has ended at the peer of this incarnation, which now has reservation `theirs`: the caller must
    /// [end](Self::end) it here, too.
    pub(super) fn outlived(&self, incarnation: u128, theirs: u64) -> Option<u32> {
        let row = self.find(incarnation)?;
        let phase = &self.rows.get(&row)?.phase;
        let is_outlived = matches!(phase, Phase::Linked { theirs: known, .. } if *known < theirs);
        is_outlived.then_some(row)
    }

    /// The peer of this name and incarnation asks for a link, from its reservation `theirs`. Also returns the requests that it
    /// has given up. Then the caller answers it, and calls [`Rows::answered`] or [`Rows::release`].
    #[expect(clippy::type_complexity, reason = "the parts of the requests")]
    pub(super) fn request(
        &mut self,
        name: &ChannelName,
        incarnation: u128,
        theirs: u64,
    ) -> Result<(Reservation, Vec<(T, S, I)>), Unavailable> {
        let own = self.reserve(name, incarnation)?;
        let mut given_up = Vec::new();
        match self.rows.get_mut(&own.row).map(|row| &mut row.phase) {
            Some(Phase::Reserved { theirs: known, requests, .. }) if *known <= theirs => {
                if mem::replace(known, theirs) < theirs {
                    given_up = mem::take(requests);
                }
                if requests.len() < SOCKETS_MAX {
                    return Ok((own, given_up));
                }
                Err(Unavailable::Full)
            }
            Some(Phase::Linked { theirs: known, sockets, .. }) if *known == theirs => {
                if sockets.len() < SOCKETS_MAX {
                    Ok((own, given_up))
                } else {
                    Err(Unavailable::Full)
                }
            }
            _ => Err(Unavailable::Stale),
        }
    }

    /// A request was answered, and its socket is watched.
    pub(super) fn answered(&mut self, own: Reservation, (token, socket, introduction): (T, S, I)) {
        match self.rows.get_mut(&own.row).map(|row| &mut row.phase) {
            Some(Phase::Reserved { requests, .. }) => requests.push((token, socket, introduction)),
            Some(Phase::Linked { sockets, .. }) => sockets.push((token, socket)),
            Some(Phase::Gone { .. }) | None => {}
        }
    }

    /// What those have introduced themselves with whose requests were answered and not confirmed.
    pub(super) fn introductions(&self) -> impl Iterator<Item = &I> {
        let requests = self.rows.values().flat_map(|row| match &row.phase {
            Phase::Reserved { requests, .. } => &requests[..],
            Phase::Linked { .. } | Phase::Gone { .. } => &[],
        });
        requests.map(|(_, _, introduction)| introduction)
    }

    /// A row that was reserved for a request could not be used.
    pub(super) fn release(&mut self, own: Reservation) {
        self.release_unused(own.row);
    }

    /// The requester at `token` confirms that it has linked. Returns what it has introduced itself with, if its row is
    /// not linked yet: the caller then calls [`Rows::link`].
    pub(super) fn confirm(&mut self, row: u32, token: T) -> Option<(Reservation, u64, S, I)> {
        let entry = self.rows.get_mut(&row)?;
        let Phase::Reserved { theirs, requests, .. } = &mut entry.phase else { return None };
        let at = requests.iter().position(|(other, ..)| *other == token)?;
        let (_, socket, introduction) = requests.remove(at);
        let own = Reservation { row, number: entry.number, is_new: false };
        Some((own, *theirs, socket, introduction))
    }

    /// Links a reserved row with the peer's reservation `theirs`. The peer's other requests become sockets of the link.
    pub(super) fn link(&mut self, own: Reservation, theirs: u64, socket: (T, S), link: L) {
        let Some(row) = self.rows.get_mut(&own.row) else { return };
        if let Phase::Reserved { requests, .. } = &mut row.phase {
            let requests = mem::take(requests).into_iter();
            let requested = requests.map(|(token, socket, _)| (token, socket));
            let sockets = std::iter::once(socket).chain(requested).collect();
            let (ended, common) = (Vec::new(), None);
            row.phase = Phase::Linked { theirs, sockets, ended, common, link };
        }
    }

    /// Adds a socket to a row's link.
    pub(super) fn add_socket(&mut self, own: Reservation, socket: (T, S)) {
        let phase = self.rows.get_mut(&own.row).map(|row| &mut row.phase);
        if let Some(Phase::Linked { sockets, .. }) = phase {
            sockets.push(socket);
        }
    }

    /// The peer has sent `Done` or `Linked` on socket `token`: that one is in its link, too.
    pub(super) fn note_common(&mut self, row: u32, token: T) {
        if let Some(Phase::Linked { sockets, common, .. }) =
            self.rows.get_mut(&row).map(|row| &mut row.phase)
            && sockets.iter().any(|(other, _)| *other == token)
        {
            *common = Some(token);
        }
    }

    /// The sockets of a row's link that the endpoint of incarnation `own` is to close: it has another one that its peer has,
    /// too, and it is the one of both endpoints that closes them.
    pub(super) fn take_spares(&mut self, row: u32, own: u128) -> Vec<(T, S)> {
        let row = self.rows.get_mut(&row).filter(|row| own < row.incarnation);
        match row.map(|row| &mut row.phase) {
            Some(Phase::Linked { sockets, common: Some(common), .. }) => {
                let (kept, spares) =
                    mem::take(sockets).into_iter().partition(|(token, _)| token == common);
                *sockets = kept;
                spares
            }
            _ => Vec::new(),
        }
    }

    /// The socket `token` of this row has ended; if `is_closed`, because its other end is closed.
    pub(super) fn hang_up(&mut self, row: u32, token: T, is_closed: bool) -> Option<HungUp<S, I>> {
        match &mut self.rows.get_mut(&row)?.phase {
            Phase::Reserved { requests, .. } => {
                let at = requests.iter().position(|(other, ..)| *other == token)?;
                let (_, socket, introduction) = requests.remove(at);
                self.release_unused(row);
                Some(HungUp::Request(socket, introduction))
            }
            Phase::Linked { sockets, ended, common, .. } => {
                let at = sockets.iter().position(|(other, _)| *other == token)?;
                let (_, socket) = sockets.remove(at);
                if !is_closed || sockets.is_empty() {
                    ended.push(socket.clone());
                }
                if *common == Some(token) {
                    *common = None;
                }
                let is_last = sockets.is_empty();
                Some(if is_last { HungUp::Last(socket) } else { HungUp::Socket(socket) })
            }
            Phase::Gone { .. } => None,
        }
    }

    /// Ends a row's link, if it is linked. The row stays reserved, and its sockets open, until [`Rows::free`].
    pub(super) fn end(&mut self, row: u32) -> Option<Ended<T, S, L>> {
        let phase = &mut self.rows.get_mut(&row)?.phase;
        let Phase::Linked { sockets, ended, .. } = phase else { return None };
        let mut kept = mem::take(ended);
        kept.extend(sockets.iter().map(|(_, socket)| socket.clone()));
        match mem::replace(phase, Phase::Gone { sockets: kept }) {
            Phase::Linked { sockets, link, .. } => Some(Ended { sockets, link }),
            _ => None,
        }
    }

    /// The data thread has removed the peer of this row. Returns the sockets to close.
    pub(super) fn free(&mut self, row: u32) -> Vec<S> {
        match self.rows.get_mut(&row).map(|row| &mut row.phase) {
            Some(Phase::Gone { sockets }) => {
                let sockets = mem::take(sockets);
                self.rows.remove(&row);
                self.left.push_back(row);
                sockets
            }
            _ => Vec::new(),
        }
    }

    /// Reserves nothing more.
    pub(super) fn close(&mut self) -> Closed<T, S, L> {
        self.is_closed = true;
        let mut closed = Closed { watched: Vec::new(), links: Vec::new(), unwatched: Vec::new() };
        for (_, row) in mem::take(&mut self.rows) {
            match row.phase {
                Phase::Reserved { requests, .. } => {
                    let sockets = requests.into_iter().map(|(token, socket, _)| (token, socket));
                    closed.watched.extend(sockets);
                }
                Phase::Linked { sockets, ended, link, .. } => {
                    closed.unwatched.extend(ended);
                    closed.links.push(Ended { sockets, link });
                }
                Phase::Gone { sockets } => closed.unwatched.extend(sockets),
            }
        }
        closed
    }

    /// The link of a row, and its sockets.
    pub(super) fn linked(&self, row: u32) -> Option<(&[(T, S)], &L)> {
        match &self.rows.get(&row)?.phase {
            Phase::Linked { sockets, link, .. } => Some((sockets, link)),
            _ => None,
        }
    }

    /// The socket `token` of a request that waits for the peer's confirmation.
    pub(super) fn requested(&self, row: u32, token: T) -> Option<&S> {
        match &self.rows.get(&row)?.phase {
            Phase::Reserved { requests, .. } => {
                requests.iter().find(|(other, ..)| *other == token).map(|(_, socket, _)| socket)
            }
            Phase::Linked { .. } | Phase::Gone { .. } => None,
        }
    }

    pub(super) fn linked_mut(&mut self, row: u32) -> Option<&mut L> {
        match &mut self.rows.get_mut(&row)?.phase {
            Phase::Linked { link, .. } => Some(link),
            _ => None,
        }
    }

    /// All linked rows.
    pub(super) fn all_linked(&self) -> impl Iterator<Item = (u32, &L)> {
        self.rows.iter().filter_map(|(&row, entry)| match &entry.phase {
            Phase::Linked { link, .. } => Some((row, link)),
            _ => None,
        })
    }

    /// The row that a peer has or gets. A row whose peer has gone is not one.
    fn find(&self, incarnation: u128) -> Option<u32> {
        self.find_last(|row| row.incarnation == incarnation)
    }

    /// The row that is addressed by this name, and that no incarnation has yet.
    fn find_addressed(&self, name: &ChannelName) -> Option<u32> {
        self.find_last(|row| row.incarnation == UNKNOWN && row.name == *name)
    }

    /// The row that was reserved last among those whose peer has not gone, if it is one of these.
    fn find_last(&self, is_its: impl Fn(&Row<T, S, I, L>) -> bool) -> Option<u32> {
        let is_there = |row: &Row<T, S, I, L>| !matches!(row.phase, Phase::Gone { .. });
        let found = self.rows.iter().filter(|(_, row)| is_there(row) && is_its(row));
        found.max_by_key(|(_, row)| row.number).map(|(&row, _)| row)
    }

    fn reserve(
        &mut self,
        name: &ChannelName,
        incarnation: u128,
    ) -> Result<Reservation, Unavailable> {
        if self.is_closed {
            return Err(Unavailable::Closed);
        }
        let found = self.find(incarnation).or_else(|| self.find_addressed(name));
        if let Some((row, entry)) = found.and_then(|row| Some((row, self.rows.get_mut(&row)?))) {
            entry.incarnation = incarnation;
            let is_new = mem::take(&mut entry.is_fresh);
            return Ok(Reservation { row, number: entry.number, is_new });
        }
        let row = self.take_free().ok_or(Unavailable::Full)?;
        self.last_number += 1;
        let number = self.last_number;
        let (phase, address, is_fresh) = (Phase::UNUSED, None, false);
        let name = name.clone();
        self.rows.insert(row, Row { name, incarnation, number, phase, address, is_fresh });
        Ok(Reservation { row, number, is_new: true })
    }

    /// A free row. Rows that had a peer until recently come last: a caller that asks for a peer that has just gone
    /// must learn that, not that there is no such peer.
    fn take_free(&mut self) -> Option<u32> {
        let is_unused = |row: &u32| !self.rows.contains_key(row) && !self.left.contains(row);
        let unused = || (0..self.rows_max).find(is_unused);
        let row = if self.left.len() < LEFT_KEPT { unused() } else { None };
        row.or_else(|| self.left.pop_front())
    }

    /// Releases a reserved row that nobody waits for any more. One that is addressed is reserved anew.
    fn release_unused(&mut self, row: u32) {
        let Some(entry) = self.rows.get_mut(&row).filter(|row| row.phase.is_unused()) else {
            return;
        };
        if let Some(address) = &entry.address {
            self.last_number += 1;
            entry.number = self.last_number;
            entry.incarnation = address.incarnation.unwrap_or(UNKNOWN);
            (entry.phase, entry.is_fresh) = (Phase::UNUSED, true);
        } else {
            self.rows.remove(&row);
        }
    }
}

impl<T, S, I, L> Phase<T, S, I, L> {
    /// Reserved, and nobody waits for the link.
    const UNUSED: Self = Self::Reserved { asking: 0, theirs: 0, requests: Vec::new() };

    fn is_unused(&self) -> bool {
        matches!(self, Self::Reserved { asking: 0, requests, .. } if requests.is_empty())
    }
}
