//! The peers of an endpoint, and what goes to them.
//!
//! | file | holds |
//! |---|---|
//! | this one | the peers: who they are, and their ends |
//! | [`row`] | what is kept of each |
//! | [`sends`] | messages: at once, or in their turn when there is room |
//! | [`words`] | acknowledgements and notices |
//! | [`offers`] | large messages, which stay here until the peer has copied them |
//! | [`transfers`] | large messages of peers that are being copied |
//! | [`calls`] | requests, and the operations that wait for their replies |
//! | [`requests`], [`accesses`] | accesses to memory that peers expose |
//! | [`exposures`] | memory that this endpoint exposes |
//! | [`granting`] | what peers grant this endpoint, and it them |
//! | [`events`] | peers that come and go, for a program that asks for that |

mod accesses;
mod calls;
mod events;
mod exposures;
mod granting;
mod offers;
mod requests;
mod row;
mod sends;
mod transfers;
mod words;

use corewire_layout::counters::EndpointCounter;
use corewire_layout::name::ChannelName;
use corewire_ring::message::{Arrival, Envelope, Sink};

use self::calls::Calls;
pub use self::events::PeerEvent;
use self::events::PeerEvents;
pub use self::offers::Lent;
pub(crate) use self::requests::Request;
use self::row::{Link, Row};
use crate::budget::{Budget, cost};
use crate::error::MessageError;
use crate::exposures::Exposures;
use crate::grants::Grants;
use crate::list::Seed;
use crate::operations::{Operation, Operations};
use crate::rendezvous::Transfer;
use crate::selector::{Peer, Status};
use crate::transport::{Gone, Loss, PeerViolation, Transport};

/// The peers, and all that is under way with them except what arrives. Operations, and the list of messages that are
/// pulled, are here for the order in which they are dropped.
pub(crate) struct Peers<T: Transport> {
    pub(crate) transport: T,
    /// Messages that are pulled, oldest first. After the transport and before the memory of operations: a pull that is
    /// dropped waits until nothing more is written to its target.
    transfers: Vec<Transfer<T::Pull>>,
    /// Messages that are copied to their receivers: rows and numbers.
    helps: Vec<(u32, u64, T::Help)>,
    pub(crate) operations: Operations,
    rows: Vec<Row>,
    /// Rows of peers that have gone. Messages from them may be left.
    leaving: Vec<u32>,
    /// Those of them that [`take_departed`](Self::take_departed) has not returned.
    departed: Vec<u32>,
    /// Rows with sends that wait for room.
    senders: Vec<u32>,
    calls: Calls,
    exposures: Exposures,
    /// Rows of peers that are asked for copies which may be taken back.
    asked: Vec<u32>,
    events: PeerEvents,
    grants: Grants,
    /// Rows of peers that grant less than this endpoint has.
    lowering: Vec<u32>,
    /// Rows of peers that have asked for a grant and cannot have one yet, and what they need.
    ungranted: Vec<(u32, u64)>,
    /// Length of `leaving`, `transfers`, `helps`, `lowering`, `ungranted` and `asked` together.
    chores: usize,
    /// A message was kept or an operation has ended since this was looked at last.
    pub(crate) has_news: bool,
    /// The message that a call has offered and waits for has just ended.
    has_ended_lent: bool,
    /// The maximum number of acknowledgements that may wait for room towards a peer.
    acks_max: usize,
    /// Bytes of replies to a peer that may wait for room before its requests are kept back.
    reply_bytes_max: u64,
}

impl<T: Transport> Peers<T> {
    /// Of an endpoint without peers that keeps `budget` of what arrives.
    pub(crate) fn new(transport: T, budget: &Budget, seed: Seed) -> Self {
        let reply_bytes_max = budget.of_one_peer();
        Self {
            transport,
            transfers: Vec::new(),
            helps: Vec::new(),
            operations: Operations::new(seed),
            rows: Vec::new(),
            leaving: Vec::new(),
            departed: Vec::new(),
            senders: Vec::new(),
            calls: Calls::default(),
            exposures: Exposures::default(),
            asked: Vec::new(),
            events: PeerEvents::default(),
            grants: Grants::default(),
            lowering: Vec::new(),
            ungranted: Vec::new(),
            chores: 0,
            has_news: false,
            has_ended_lent: false,
            acks_max: words::acks_max(reply_bytes_max / cost(0)),
            reply_bytes_max,
        }
    }

    /// The same over what `change` makes of the transport. No message is being copied.
    #[cfg(feature = "test-hooks")]
    pub(crate) fn map_transport<U: Transport>(self, change: impl FnOnce(T) -> U) -> Peers<U> {
        Peers {
            transport: change(self.transport),
            transfers: Vec::new(),
            helps: Vec::new(),
            operations: self.operations,
            rows: self.rows,
            chores: self.leaving.len() + self.lowering.len() + self.ungranted.len(),
            leaving: self.leaving,
            departed: self.departed,
            senders: self.senders,
            calls: self.calls,
            exposures: self.exposures,
            asked: self.asked,
            events: self.events,
            grants: self.grants,
            lowering: self.lowering,
            ungranted: self.ungranted,
            has_news: self.has_news,
            has_ended_lent: false,
            acks_max: self.acks_max,
            reply_bytes_max: self.reply_bytes_max,
        }
    }

    /// Whether nothing waits for room, and nothing is to be done in each call.
    #[inline(always)]
    pub(crate) fn is_at_rest(&self) -> bool {
        self.senders.is_empty() & (self.chores == 0)
    }

    /// Whether something is to be done in each call.
    pub(crate) fn has_chores(&self) -> bool {
        self.chores > 0
    }

    /// Counts what is to be done in each call.
    fn count_chores(&mut self) {
        let granting = self.lowering.len() + self.ungranted.len();
        let copies = self.transfers.len() + self.helps.len() + self.asked.len();
        self.chores = self.leaving.len() + copies + granting;
    }

    // Who they are.

    /// The peer that has this row, if it has not gone.
    pub(crate) fn peer_at(&self, row: u32) -> Option<Peer> {
        let entry = self.rows.get(row as usize)?;
        (entry.name.is_some() && entry.gone.is_none()).then(|| Peer::new(row, entry.generation))
    }

    /// The number of rows that have had a peer.
    pub(crate) fn rows(&self) -> u32 {
        u32::try_from(self.rows.len()).unwrap_or(u32::MAX)
    }

    /// The row of a peer, while no other has taken it.
    fn entry_of(&self, peer: Peer) -> Option<&Row> {
        self.rows.get(peer.row() as usize).filter(|row| row.generation == peer.generation())
    }

    pub(crate) fn name_of(&self, peer: Peer) -> Option<&ChannelName> {
        self.entry_of(peer)?.name.as_ref()
    }

    pub(crate) fn incarnation_of(&self, peer: Peer) -> Option<u128> {
        self.entry_of(peer).filter(|row| row.name.is_some()).map(|row| row.incarnation)
    }

    pub(crate) fn set_label(&mut self, peer: Peer, label: u64) -> Result<(), MessageError> {
        let entry = self.rows.get_mut(peer.row() as usize);
        let entry = entry.filter(|row| row.generation == peer.generation());
        entry.ok_or(MessageError::UnknownPeer)?.label = label;
        Ok(())
    }

    #[inline]
    pub(crate) fn label_of(&self, peer: Peer) -> u64 {
        self.entry_of(peer).map_or(0, |row| row.label)
    }

    /// The label of the peer that has this row.
    #[inline(always)]
    pub(crate) fn label_at(&self, row: u32) -> u64 {
        self.rows.get(row as usize).map_or(0, |row| row.label)
    }

    /// The row of a peer that has not gone.
    pub(crate) fn row_of(&self, peer: Peer) -> Result<u32, MessageError> {
        match self.entry_of(peer) {
            None => Err(MessageError::UnknownPeer),
            Some(row) if row.gone.is_some() => Err(self.error_of(peer.row())),
            Some(_) => Ok(peer.row()),
        }
    }

    pub(crate) fn peer_of(&self, row: u32) -> Peer {
        Peer::new(row, self.rows.get(row as usize).map_or(0, |entry| entry.generation))
    }

    /// Why nothing goes to the peer of `row`, or comes from it.
    pub(crate) fn error_of(&self, row: u32) -> MessageError {
        let entry = self.rows.get(row as usize);
        match entry.and_then(|entry| entry.name.clone().zip(entry.gone)) {
            Some((name, Gone::Died)) => MessageError::PeerDied { name },
            Some((name, Gone::Left)) => MessageError::PeerLeft { name },
            Some((name, Gone::Lost(Loss { reason, delivered }))) => {
                MessageError::PeerLost { name, reason, delivered }
            }
            Some((name, Gone::CutOff(violation))) => MessageError::PeerCutOff { name, violation },
            None => MessageError::UnknownPeer,
        }
    }

    /// Why nothing will come from this peer any more, if that is so.
    #[inline]
    pub(crate) fn end_of(&self, peer: Peer) -> Option<MessageError> {
        match self.entry_of(peer) {
            None => Some(MessageError::UnknownPeer),
            Some(row) if row.is_over => Some(self.error_of(peer.row())),
            Some(_) => None,
        }
    }

    /// Whether the peer of `row` has gone and its messages are still received. Those of a peer that was cut off are not.
    pub(crate) fn has_ended(&self, row: u32) -> bool {
        matches!(self.rows[row as usize].gone, Some(Gone::Died | Gone::Left | Gone::Lost(_)))
    }

    // Their ends.

    /// A peer has come and has this row, perhaps as one that was [addressed](Self::address).
    pub(crate) fn open(&mut self, row: u32, name: ChannelName, incarnation: u128) {
        if !self.is_unlinked(row) {
            self.begin_row(row, name);
        }
        let entry = &mut self.rows[row as usize];
        (entry.link, entry.incarnation) = (Link::Linked, incarnation);
        let generation = entry.generation;
        if entry.sends.is_empty() {
            self.transport.open(row, generation);
        } else {
            self.senders.push(row);
        }
        self.begin_asking(row);
        self.note_arrival_of(Peer::new(row, generation));
    }

    fn begin_row(&mut self, row: u32, name: ChannelName) -> Peer {
        let index = row as usize;
        if self.rows.len() <= index {
            self.rows.resize_with(index + 1, Row::default);
        }
        let generation = self.rows[index].generation.wrapping_add(1).max(1);
        self.rows[index] = Row { generation, name: Some(name), ..Row::default() };
        Peer::new(row, generation)
    }

    /// A peer that is known by its name has this row from now on, and will come, or will turn out to be gone. `None` if a peer
    /// that has gone has the row still.
    pub(crate) fn address(&mut self, row: u32, name: &ChannelName) -> Option<Peer> {
        let is_taken = |row: &Row| row.name.is_some() && !row.is_over;
        if self.rows.get(row as usize).is_some_and(is_taken) {
            return None;
        }
        let peer = self.begin_row(row, name.clone());
        self.rows[row as usize].link = Link::Addressed;
        Some(peer)
    }

    pub(crate) fn peer_of_incarnation(&self, incarnation: u128) -> Option<Peer> {
        let is_known = |row: &Row| row.name.is_some() && row.link == Link::Linked;
        let is_its = |row: &Row| is_known(row) && row.incarnation == incarnation;
        let row = self.rows.iter().position(is_its)?;
        let generation = self.rows[row].generation;
        u32::try_from(row).ok().map(|row| Peer::new(row, generation))
    }

    /// Whether only the name of the peer of `row` is known.
    #[inline]
    pub(crate) fn is_unlinked(&self, row: u32) -> bool {
        let entry = self.rows.get(row as usize);
        entry.is_some_and(|row| row.link != Link::Linked && row.gone.is_none())
    }

    /// The same, and makes the transport link it.
    #[inline]
    pub(crate) fn must_link(&mut self, row: u32) -> bool {
        self.is_unlinked(row) && self.ask_for_link(row)
    }

    #[cold]
    fn ask_for_link(&mut self, row: u32) -> bool {
        let link = &mut self.rows[row as usize].link;
        if std::mem::replace(link, Link::Asked) == Link::Addressed {
            self.transport.link(row);
        }
        true
    }

    /// A peer that has sent an impossible value, or whose memory contains one, is cut off.
    #[cold]
    pub(crate) fn cut_off(&mut self, row: u32, violation: PeerViolation) {
        self.transport.count(EndpointCounter::Violations);
        self.transport.cut_off(row, violation);
        self.begin_leaving(row, Gone::CutOff(violation));
    }

    /// A peer has gone: nothing is sent to it any more. What it sent is still received, unless it was cut
    /// off.
    pub(crate) fn begin_leaving(&mut self, row: u32, how: Gone) {
        let Some(entry) = self.rows.get_mut(row as usize) else { return };
        if entry.gone.is_some() {
            return;
        }
        self.has_news = true;
        if how == Gone::Died {
            self.transport.count(EndpointCounter::Deaths);
        }
        entry.gone = Some(how);
        self.transport.open(row, 0);
        let sends = std::mem::take(&mut entry.sends);
        entry.requests = 0;
        entry.acks.clear();
        entry.notices.clear();
        entry.reply_bytes = 0;
        entry.is_within = false;
        if std::mem::take(&mut entry.is_muted) {
            self.transport.release(row);
        }
        self.senders.retain(|&other| other != row);
        for pending in sends {
            let error = self.error_of(row);
            if let Some(operation) = pending.operation {
                self.operations.end(operation, Err(error), Some(pending.memory));
            }
        }
        self.end_pushes(row);
        self.lowering.retain(|&other| other != row);
        self.transport.look_at(row);
        self.leaving.push(row);
        self.departed.push(row);
        self.count_chores();
    }

    /// The row of a peer that has gone, each once.
    pub(crate) fn take_departed(&mut self) -> Option<u32> {
        self.departed.pop()
    }

    /// The rows of departed peers of which nothing is left to be received. The others go on leaving.
    pub(crate) fn take_received(&mut self) -> Vec<u32> {
        let Self { rows, transport, .. } = self;
        let mut is_received = |row: &mut u32| {
            let is_cut_off = matches!(rows[*row as usize].gone, Some(Gone::CutOff(_)));
            is_cut_off || !transport.has_arrival(*row).unwrap_or(false)
        };
        let received = self.leaving.extract_if(.., |row| is_received(row)).collect();
        self.count_chores();
        received
    }

    /// Ends what waits for the peer of `row`, which has gone and of which nothing is left to be received: sends, offers and
    /// calls.
    pub(crate) fn end_sends_to(&mut self, row: u32, error: &MessageError) {
        for unacknowledged in std::mem::take(&mut self.rows[row as usize].unacknowledged) {
            let (operation, memory) = (unacknowledged.operation, unacknowledged.memory);
            self.operations.end(operation, Err(error.clone()), Some(memory));
        }
        self.end_all_offered(row);
        self.end_accesses_to(row, error);
        self.end_calls_to(self.peer_of(row), error);
    }

    /// Nothing is left of this peer: ends the receives that wait for it alone.
    pub(crate) fn end_receives_from(&mut self, peer: Peer, error: &MessageError) {
        for operation in self.operations.withdraw_from(peer) {
            self.operations.end(operation, Err(error.clone()), None);
        }
    }

    /// The last that is done for a peer that has gone. Its row is free now, or when its event has been taken.
    pub(crate) fn close(&mut self, row: u32, error: MessageError) {
        self.end_grants_of(row);
        self.has_news = true;
        self.rows[row as usize].is_over = true;
        self.free_row_of(self.peer_of(row), error);
        self.count_chores();
    }

    pub(crate) fn status_of(&self, row: u32, arrival: &Arrival) -> Status {
        let Envelope { tag, immediate, .. } = arrival.envelope;
        Status { source: self.peer_of(row), tag, bytes: arrival.total, immediate }
    }

    /// A receive that goes on by itself has got its whole message.
    pub(crate) fn end_receive(&mut self, operation: u32, status: Status) {
        let (Operation::Receive { memory, .. } | Operation::Call { memory, .. }) =
            self.operations.by_index(operation)
        else {
            return;
        };
        let given = memory.room();
        let result = if status.bytes > given as u64 {
            Err(MessageError::Truncated { status, given })
        } else {
            Ok(status)
        };
        self.has_news = true;
        self.operations.end(operation, result, None);
    }

    /// Whether the message of a call that waits has ended since this was asked last.
    pub(crate) fn take_ended_lent(&mut self) -> bool {
        std::mem::take(&mut self.has_ended_lent)
    }
}
