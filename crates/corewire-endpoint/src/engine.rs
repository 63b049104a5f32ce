//! The engine: its peers, and what happens while one of its calls runs.

use std::collections::BTreeMap;
use std::fmt;

use corewire_layout::counters::EndpointCounter;
use corewire_layout::name::ChannelName;
use corewire_ring::pair::PairViolation;

use crate::budget::Budget;
use crate::caller::{Caller, Matched};
use crate::error::MessageError;
use crate::grants::Grants;
use crate::list::Seed;
use crate::matching::Matching;
use crate::message::OwnedMessage;
use crate::operations::{Completion, Count, CounterId, OperationHandle, Operations};
use crate::peers::{Calls, PeerEvents};
use crate::pool::Pool;
use crate::rendezvous::Transfer;
use crate::row::Row;
use crate::selector::Peer;
use crate::transport::{Attention, Change, Gone, Transport};

/// Arrivals that are handled before anything else is looked at.
const ARRIVALS_AT_A_TIME: u32 = 64;

/// Matching, operations and progress of one endpoint, over a transport.
pub struct Engine<T: Transport> {
    pub(crate) transport: T,
    /// Messages that are pulled, oldest first. Before the memory of operations: a pull that is dropped waits until
    /// nothing more is written to its target.
    pub(crate) transfers: Vec<Transfer<T::Pull>>,
    /// Messages that are copied to their receivers: rows and numbers.
    pub(crate) helps: Vec<(u32, u64, T::Help)>,
    /// Number of passes over them.
    pub(crate) passes: u64,
    /// Steps in a row in which a pull has waited for its sender.
    pub(crate) busy_steps: u32,
    /// The length of the message that a call has offered and waits for; 0 if there is none.
    pub(crate) blocked_bytes: u64,
    /// That message has just ended.
    pub(crate) has_ended_lent: bool,
    /// Rows of peers that are leaving, and messages that are copied.
    chores: usize,
    pub(crate) rows: Vec<Row>,
    /// Rows of peers that have gone. Messages from them may be left.
    pub(crate) leaving: Vec<u32>,
    /// Rows with sends that wait for room.
    pub(crate) senders: Vec<u32>,
    pub(crate) matching: Matching,
    pub(crate) operations: Operations,
    pub(crate) calls: Calls,
    /// Claimed messages, by the numbers that their callers gave them.
    pub(crate) claims: BTreeMap<u64, Matched>,
    pub(crate) pool: Pool,
    /// Where the next message goes that is received into memory of its own.
    pub(crate) spare: Option<OwnedMessage>,
    pub(crate) peer_events: PeerEvents,
    /// A message was kept or an operation has ended since [`Engine::take_news`].
    pub(crate) has_news: bool,
    /// A request that was deferred may be received since the last [`Engine::progress`].
    pub(crate) has_resumed: bool,
    changes: Vec<Change>,
    /// What this endpoint grants its peers.
    pub(crate) grants: Grants,
    /// Rows of peers that grant less than this endpoint has.
    pub(crate) lowering: Vec<u32>,
    /// Rows of peers that have asked for a grant and cannot have one yet, and what they need.
    pub(crate) ungranted: Vec<(u32, u64)>,
}

impl<T: Transport> fmt::Debug for Engine<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine").finish_non_exhaustive()
    }
}

impl<T: Transport> Engine<T> {
    /// An engine without peers. `budget` is what it keeps of messages before a receive asks for them;
    /// `seed` is a number that peers do not know.
    #[must_use]
    pub fn new(transport: T, budget: Budget, seed: Seed) -> Self {
        Self {
            transport,
            transfers: Vec::new(),
            helps: Vec::new(),
            passes: 0,
            busy_steps: 0,
            blocked_bytes: 0,
            has_ended_lent: false,
            chores: 0,
            rows: Vec::new(),
            leaving: Vec::new(),
            senders: Vec::new(),
            matching: Matching::new(budget, seed),
            operations: Operations::default(),
            calls: Calls::default(),
            claims: BTreeMap::new(),
            pool: Pool::default(),
            spare: None,
            peer_events: PeerEvents::default(),
            has_news: false,
            has_resumed: false,
            changes: Vec::new(),
            grants: Grants::default(),
            lowering: Vec::new(),
            ungranted: Vec::new(),
        }
    }

    /// What carries its messages.
    #[inline(always)]
    #[must_use]
    pub fn transport(&self) -> &T {
        &self.transport
    }

    /// The same, to be changed.
    #[inline(always)]
    #[must_use]
    pub fn transport_mut(&mut self) -> &mut T {
        &mut self.transport
    }

    /// The same engine over what `change` makes of its transport, in which every row keeps its number. For
    /// tests of transports. No message is being copied.
    #[cfg(feature = "test-hooks")]
    pub fn map_transport<U: Transport>(self, change: impl FnOnce(T) -> U) -> Engine<U> {
        let Self { transport, rows, leaving, senders, matching, .. } = self;
        let Self {
            operations,
            calls,
            claims,
            pool,
            spare,
            peer_events,
            has_news,
            has_resumed,
            changes,
            grants,
            lowering,
            ungranted,
            ..
        } = self;
        let transport = change(transport);
        Engine {
            transport,
            transfers: Vec::new(),
            helps: Vec::new(),
            passes: 0,
            busy_steps: 0,
            blocked_bytes: 0,
            has_ended_lent: false,
            chores: leaving.len() + lowering.len() + ungranted.len(),
            rows,
            leaving,
            senders,
            matching,
            operations,
            calls,
            claims,
            pool,
            spare,
            peer_events,
            has_news,
            has_resumed,
            changes,
            grants,
            lowering,
            ungranted,
        }
    }

    /// Whether a peer has come or gone, or a call is interrupted.
    #[inline(always)]
    #[must_use]
    pub fn has_notice(&self) -> bool {
        self.transport.has_notice()
    }

    // Peers.

    /// The peer that has this row, if it has not gone.
    #[must_use]
    pub fn peer_at(&self, row: u32) -> Option<Peer> {
        let entry = self.rows.get(row as usize)?;
        (entry.name.is_some() && entry.gone.is_none()).then(|| Peer::new(row, entry.generation))
    }

    /// The peers that have not gone.
    pub fn peers(&self) -> impl Iterator<Item = Peer> {
        (0u32..).take(self.rows.len()).filter_map(|row| self.peer_at(row))
    }

    /// A peer's name. `None` if it is no peer of this endpoint, or another one has taken its row.
    #[must_use]
    pub fn name_of(&self, peer: Peer) -> Option<&ChannelName> {
        let row = self.rows.get(peer.row() as usize)?;
        row.name.as_ref().filter(|_| row.generation == peer.generation())
    }

    /// Which endpoint of its name a peer is. `None` as for its name.
    #[must_use]
    pub fn incarnation_of(&self, peer: Peer) -> Option<u128> {
        let row = self.rows.get(peer.row() as usize)?;
        (row.name.is_some() && row.generation == peer.generation()).then_some(row.incarnation)
    }

    /// Whether messages can be sent to this peer.
    ///
    /// # Errors
    /// Why not.
    pub fn check_peer(&self, peer: Peer) -> Result<(), MessageError> {
        self.row_of(peer).map(drop)
    }

    /// The row of a peer that has not gone.
    pub(crate) fn row_of(&self, peer: Peer) -> Result<u32, MessageError> {
        let row = self.rows.get(peer.row() as usize);
        match row.filter(|row| row.generation == peer.generation()) {
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
            Some((name, Gone::CutOff(violation))) => MessageError::PeerCutOff { name, violation },
            None => MessageError::UnknownPeer,
        }
    }

    // Progress.

    /// Handles what has arrived, sends what there is room for, and learns of peers that have come or
    /// gone. True if anything was done. `caller` is a receive that is being called, if there is one.
    ///
    /// # Errors
    /// [`MessageError::Interrupted`] or `Forked`.
    pub fn progress(&mut self, mut caller: Option<&mut Caller<'_>>) -> Result<bool, MessageError> {
        if self.transport.has_notice() {
            self.handle_notices()?;
            // Before the first message of a peer, its arrival is reported.
            let reports = caller.as_ref().is_some_and(|caller| caller.reports_peers);
            if reports && !self.peer_events.is_empty() {
                return Ok(true);
            }
        }
        let mut has_news = false;
        for _ in 0..ARRIVALS_AT_A_TIME {
            let Some(row) = self.transport.poll() else { break };
            has_news = true;
            self.take_arrival(row, caller.as_deref_mut());
            // A call that waits returns first: what comes next may be the reply to what it has sent.
            if caller.as_ref().is_some_and(|caller| caller.is_ended())
                || std::mem::take(&mut self.has_ended_lent)
            {
                break;
            }
        }
        if self.chores > 0 {
            has_news |= self.step_helps();
            has_news |= self.step_transfers(caller.as_deref_mut());
            has_news |= self.reap_peers(caller.as_deref_mut());
            self.step_lowering();
        }
        if !self.senders.is_empty() {
            has_news |= self.send_pending();
        }
        if std::mem::take(&mut self.has_resumed)
            && let Some(caller) = caller.filter(|caller| caller.is_waiting())
        {
            self.take_kept(caller);
        }
        Ok(has_news)
    }

    /// Whether there is nothing to do but to look for messages. One branch for all of it.
    #[inline(always)]
    #[must_use]
    pub fn is_at_rest(&self) -> bool {
        self.matching.is_empty() & self.senders.is_empty() & (self.chores == 0)
    }

    /// Counts what is to be done in each [`progress`](Self::progress).
    pub(crate) fn count_chores(&mut self) {
        let lowering = self.lowering.len() + self.ungranted.len();
        self.chores = self.leaving.len() + self.transfers.len() + self.helps.len() + lowering;
    }

    /// Learns of peers that have come or gone.
    ///
    /// # Errors
    /// [`MessageError::Interrupted`] or `Forked`.
    #[cold]
    pub fn handle_notices(&mut self) -> Result<(), MessageError> {
        let mut changes = std::mem::take(&mut self.changes);
        let attention = self.transport.take_notices(&mut changes);
        for change in changes.drain(..) {
            self.apply(change);
        }
        self.changes = changes;
        match attention {
            Attention::None => Ok(()),
            Attention::Interrupted => Err(MessageError::Interrupted),
            Attention::Forked => Err(MessageError::Forked),
        }
    }

    fn apply(&mut self, change: Change) {
        match change {
            Change::Came { row, name, incarnation } => {
                let index = row as usize;
                if self.rows.len() <= index {
                    self.rows.resize_with(index + 1, Row::default);
                }
                let generation = self.rows[index].generation.wrapping_add(1).max(1);
                let name = Some(name);
                self.rows[index] = Row { generation, name, incarnation, ..Row::default() };
                self.transport.open(row, generation);
                self.note_arrival_of(Peer::new(row, generation));
            }
            Change::Gone { row, how } => self.begin_leaving(row, how),
            Change::Dropped { peer, number } => self.drop_request(peer, number),
        }
    }

    /// A peer whose memory contains impossible values is cut off.
    #[cold]
    pub(crate) fn cut_off(&mut self, row: u32, violation: PairViolation) {
        self.transport.count(EndpointCounter::Violations);
        self.transport.cut_off(row, violation);
        self.begin_leaving(row, Gone::CutOff(violation));
    }

    /// A peer has gone: nothing is sent to it any more. What it sent is still received, unless it was cut
    /// off.
    fn begin_leaving(&mut self, row: u32, how: Gone) {
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
        self.resume_requests(row);
        self.fetch_held();
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
        self.count_chores();
    }

    /// Removes departed peers whose messages have all been received.
    fn reap_peers(&mut self, mut caller: Option<&mut Caller<'_>>) -> bool {
        let mut has_news = false;
        for row in std::mem::take(&mut self.leaving) {
            let is_cut_off = matches!(self.rows[row as usize].gone, Some(Gone::CutOff(_)));
            if !is_cut_off && self.transport.has_arrival(row).unwrap_or(false) {
                self.leaving.push(row);
            } else {
                self.reap_peer(row, caller.as_deref_mut());
                has_news = true;
            }
        }
        self.count_chores();
        has_news
    }

    /// Ends what waits for a peer that has gone. A message that did not arrive completely never existed.
    fn reap_peer(&mut self, row: u32, caller: Option<&mut Caller<'_>>) {
        let peer = self.peer_of(row);
        let error = self.error_of(row);
        let mut caller = caller;
        self.abandon_arrival(row, caller.as_deref_mut());
        self.abandon_offers_of(peer, &error, caller.as_deref_mut());
        if let Some(key) = self.matching.held_of(peer) {
            drop(self.matching.take(key));
        }
        for unacknowledged in std::mem::take(&mut self.rows[row as usize].unacknowledged) {
            self.operations.end(
                unacknowledged.operation,
                Err(error.clone()),
                Some(unacknowledged.memory),
            );
        }
        self.end_all_offered(row);
        self.end_calls_to(peer, &error);
        for posted in self.matching.withdraw_from(peer) {
            self.operations.end(posted.operation, Err(error.clone()), None);
        }
        if let Some(caller) = caller {
            caller.peer_is_gone(peer, error.clone());
            if caller.is_waiting() {
                self.take_kept(caller);
            }
        }
        self.end_grants_of(row);
        self.has_news = true;
        self.rows[row as usize].is_over = true;
        self.free_row_of(peer, error);
        // Messages of others may fit in the budget now.
        self.fetch_held();
    }

    /// Whether a message was kept, an operation has ended or a peer has gone since this was asked last.
    pub fn take_news(&mut self) -> bool {
        std::mem::take(&mut self.has_news)
    }

    // Operations.

    /// How an operation has ended, if it has; then its handle is used up.
    ///
    /// # Errors
    /// [`MessageError::UnknownOperation`].
    pub fn take_completion(
        &mut self,
        handle: OperationHandle,
    ) -> Result<Option<Completion>, MessageError> {
        self.operations.take(handle)
    }

    /// The oldest completion of the queue.
    pub fn next_completion(&mut self) -> Option<Completion> {
        self.operations.next_completion()
    }

    /// Whether there are completions in the queue.
    #[must_use]
    pub fn has_completions(&self) -> bool {
        self.operations.has_completions()
    }

    /// A new counter, for operations that [report](crate::Report::Counter) to it.
    pub fn add_counter(&mut self) -> CounterId {
        self.operations.add_counter()
    }

    /// What one of its counters has counted. `None` if it is another endpoint's.
    #[must_use]
    pub fn count(&self, id: CounterId) -> Option<Count> {
        self.operations.count(id)
    }
}
