//! The engine: what happens in one of its calls, and in which order.
//!
//! Its two halves keep the state: [`Peers`] what goes to peers, [`Incoming`] what has arrived and what waits for it.
//! `Incoming` calls `Peers`, which never calls `Incoming`: if a peer ends, or room becomes free, the engine tells
//! `Incoming`.
//!
//! | file | calls |
//! |---|---|
//! | this one | peers, and [`progress`](Engine::progress) |
//! | [`send`] | sending, messages that are lent while a call waits, and grants |
//! | [`receive`] | receiving, and asking what is there |
//! | [`calls`] | requests and replies |
//! | [`access`] | memory that peers access |

mod access;
mod calls;
mod receive;
mod send;

use std::collections::BTreeMap;
use std::fmt;

use corewire_layout::name::ChannelName;
use corewire_ring::message::Memory;

pub use self::receive::MessageTarget;
use crate::budget::Budget;
use crate::caller::{Caller, CallerState, Matched};
use crate::error::MessageError;
use crate::incoming::Incoming;
use crate::list::Seed;
use crate::message::OwnedMessage;
use crate::operations::{
    Completion, Count, CounterId, End, NOBODY, OperationHandle, OperationKind, Stored,
};
use crate::peers::{PeerEvent, Peers};
use crate::selector::{Peer, Selector, Status};
use crate::transport::{Attention, Change, Short, Transport};

/// Arrivals that are handled before anything else is looked at.
const ARRIVALS_AT_A_TIME: u32 = 64;

/// Matching, operations and progress of one endpoint, over a transport.
pub struct Engine<T: Transport> {
    peers: Peers<T>,
    incoming: Incoming,
    /// Claimed messages, by the numbers that their callers gave them.
    claims: BTreeMap<u64, Matched>,
    /// Where the next message goes that is received into memory of its own.
    spare: Option<OwnedMessage>,
    changes: Vec<Change>,
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
        let peers = Peers::new(transport, &budget, seed);
        let incoming = Incoming::new(budget, seed);
        Self { peers, incoming, claims: BTreeMap::new(), spare: None, changes: Vec::new() }
    }

    /// What carries its messages.
    #[inline(always)]
    #[must_use]
    pub fn transport(&self) -> &T {
        &self.peers.transport
    }

    /// The same, to be changed.
    #[inline(always)]
    #[must_use]
    pub fn transport_mut(&mut self) -> &mut T {
        &mut self.peers.transport
    }

    /// The same engine over what `change` makes of its transport, in which every row keeps its number. For
    /// tests of transports. No message is being copied.
    #[cfg(feature = "test-hooks")]
    pub fn map_transport<U: Transport>(self, change: impl FnOnce(T) -> U) -> Engine<U> {
        let Self { peers, incoming, claims, spare, changes } = self;
        Engine { peers: peers.map_transport(change), incoming, claims, spare, changes }
    }

    /// Whether a peer has come or gone, or a call is interrupted.
    #[inline(always)]
    #[must_use]
    pub fn has_notice(&self) -> bool {
        self.peers.transport.has_notice()
    }

    // Peers.

    /// The peer that has this row, if it has not gone.
    #[must_use]
    pub fn peer_at(&self, row: u32) -> Option<Peer> {
        self.peers.peer_at(row)
    }

    /// The peer of this incarnation, also if it has gone, as long as no other one has taken its row: messages that it left
    /// are received from it.
    #[must_use]
    pub fn peer_of_incarnation(&self, incarnation: u128) -> Option<Peer> {
        self.peers.peer_of_incarnation(incarnation)
    }

    /// The peers that are linked, and have not gone.
    pub fn peers(&self) -> impl Iterator<Item = Peer> {
        let linked = (0..self.peers.rows()).filter(|&row| !self.peers.is_unlinked(row));
        linked.filter_map(|row| self.peers.peer_at(row))
    }

    /// A peer's name. `None` if it is no peer of this endpoint, or another one has taken its row.
    #[must_use]
    pub fn name_of(&self, peer: Peer) -> Option<&ChannelName> {
        self.peers.name_of(peer)
    }

    /// Which endpoint of its name a peer is. `None` as for its name.
    #[must_use]
    pub fn incarnation_of(&self, peer: Peer) -> Option<u128> {
        self.peers.incarnation_of(peer)
    }

    /// Whether a peer is linked, or was: what is sent to one that is not waits with the sender.
    #[inline(always)]
    #[must_use]
    pub fn is_linked(&self, peer: Peer) -> bool {
        !self.peers.is_unlinked(peer.row())
    }

    /// Whether messages can be sent to this peer.
    ///
    /// # Errors
    /// Why not.
    pub fn check_peer(&self, peer: Peer) -> Result<(), MessageError> {
        self.peers.row_of(peer).map(drop)
    }

    /// A peer of which only the name is known, to which the transport has given this row. It is linked when something is
    /// sent to it, or a receive asks for its messages. `None` if a peer that has gone has the row still.
    pub fn address(&mut self, row: u32, name: &ChannelName) -> Option<Peer> {
        let peer = self.peers.address(row, name)?;
        self.incoming.open(row);
        Some(peer)
    }

    /// From now on keeps an event for each peer that comes or goes. Reports the peers that are linked now first, including
    /// peers that have gone but whose messages have not all arrived.
    pub fn watch_peers(&mut self) {
        self.peers.watch();
    }

    /// Whether events are kept, and there is none.
    #[inline(always)]
    pub fn has_no_peer_event(&self) -> bool {
        self.peers.has_no_event()
    }

    /// The oldest event, except that of a peer that has gone and of which a message is kept that `selector` asks for.
    pub fn next_peer_event(&mut self, selector: &Selector) -> Option<PeerEvent> {
        let Self { peers, incoming, .. } = self;
        peers.next_event(|event| match event {
            PeerEvent::Came(_) => true,
            PeerEvent::Gone { peer, .. } => {
                let is_other = selector.source().is_some_and(|source| source != *peer);
                is_other || incoming.matching.find(&selector.from(*peer)).is_none()
            }
        })
    }

    /// The same, for a receive that is being called and whose message has not begun to arrive.
    pub fn next_peer_event_for(&mut self, caller: &Caller<'_>) -> Option<PeerEvent> {
        match caller.state {
            CallerState::Waiting | CallerState::Ended(Err(_)) => {
                self.next_peer_event(&caller.selector)
            }
            CallerState::Filling(_) | CallerState::Ended(Ok(_)) => None,
        }
    }

    // Progress.

    /// Handles what has arrived, sends what there is room for, and takes in that peers have come
    /// or gone. True if anything was done. `caller` is a receive that is being called, if there is one.
    ///
    /// # Errors
    /// [`MessageError::Interrupted`] or `Forked`.
    pub fn progress(&mut self, caller: Option<&mut Caller<'_>>) -> Result<bool, MessageError> {
        // Acknowledgements, replies and what waited for room leave together.
        self.gather();
        let has_news = self.step(caller);
        self.flush();
        has_news
    }

    fn step(&mut self, mut caller: Option<&mut Caller<'_>>) -> Result<bool, MessageError> {
        if self.peers.transport.has_notice() {
            self.handle_notices()?;
            // Before the first message of a peer, its arrival is reported.
            let reports = caller.as_ref().is_some_and(|caller| caller.reports_peers);
            if reports && self.peers.has_event() {
                return Ok(true);
            }
        }
        let mut has_news = false;
        let Self { peers, incoming, .. } = self;
        for _ in 0..ARRIVALS_AT_A_TIME {
            let Some(row) = peers.transport.poll() else {
                incoming.note_nothing();
                break;
            };
            has_news = true;
            if !incoming.take_arrival(peers, row, caller.as_deref_mut()) {
                break;
            }
            // A call that waits returns first: what comes next may be the reply to what it has sent.
            if caller.as_ref().is_some_and(|caller| caller.is_ended()) || peers.take_ended_lent() {
                break;
            }
        }
        if peers.has_chores() {
            has_news |= peers.step_helps();
            has_news |= peers.step_accesses();
            has_news |= incoming.step_transfers(peers, caller.as_deref_mut());
            has_news |= self.reap_peers(caller.as_deref_mut());
            self.peers.step_lowering();
        }
        if self.peers.has_senders() {
            has_news |= self.send_pending();
        }
        if self.incoming.take_resumed()
            && let Some(caller) = caller.filter(|caller| caller.is_waiting())
        {
            self.incoming.take_kept(&mut self.peers, caller);
        }
        Ok(has_news)
    }

    /// Sends what had to wait, as far as there is room now.
    fn send_pending(&mut self) -> bool {
        let Self { peers, incoming, .. } = self;
        let mut has_news = false;
        for row in peers.take_senders() {
            has_news |= peers.send_pending_to(row);
            incoming.resume_requests(peers, row);
            peers.finish_turn(row);
        }
        has_news
    }

    /// Whether there is nothing to do but to look for messages. One branch for all of it.
    #[inline(always)]
    #[must_use]
    pub fn is_at_rest(&self) -> bool {
        self.incoming.matching.is_empty()
            & !self.peers.operations.has_posted()
            & self.peers.is_at_rest()
    }

    /// Takes in that peers have come or gone.
    ///
    /// # Errors
    /// [`MessageError::Interrupted`] or `Forked`.
    #[cold]
    pub fn handle_notices(&mut self) -> Result<(), MessageError> {
        let mut changes = std::mem::take(&mut self.changes);
        let attention = self.peers.transport.take_notices(&mut changes);
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
                if !self.peers.is_unlinked(row) {
                    self.incoming.open(row);
                }
                self.peers.open(row, name, incarnation);
            }
            Change::Gone { row, how } => {
                self.peers.begin_leaving(row, how);
                self.note_departures();
            }
            Change::Dropped { peer, number } => self.peers.drop_request(peer, number),
        }
    }

    /// Lets what has arrived go on that was kept back for the sake of peers that have gone. More of them may be cut off by
    /// that.
    fn note_departures(&mut self) {
        while let Some(row) = self.peers.take_departed() {
            self.incoming.peer_has_gone(&mut self.peers, row);
        }
    }

    /// Removes departed peers whose messages have all been received.
    fn reap_peers(&mut self, mut caller: Option<&mut Caller<'_>>) -> bool {
        // Those that were cut off in the middle of a call.
        self.note_departures();
        let rows = self.peers.take_received();
        rows.iter().for_each(|&row| self.reap_peer(row, caller.as_deref_mut()));
        !rows.is_empty()
    }

    /// Ends what waits for a peer that has gone and whose complete messages have been received: calls that wait for it
    /// alone end, and a receive that was getting an incomplete one waits for another. A message that did not arrive
    /// completely never existed.
    fn reap_peer(&mut self, row: u32, mut caller: Option<&mut Caller<'_>>) {
        let Self { peers, incoming, .. } = self;
        let (peer, error) = (peers.peer_of(row), peers.error_of(row));
        incoming.abandon_arrival(peers, row, caller.as_deref_mut());
        incoming.abandon_offers_of(peers, peer, &error, caller.as_deref_mut());
        incoming.drop_held_of(peer);
        peers.end_sends_to(row, &error);
        peers.end_receives_from(peer, &error);
        if let Some(caller) = caller {
            caller.peer_is_gone(peer, error.clone());
            if caller.is_waiting() {
                incoming.take_kept(peers, caller);
            }
        }
        peers.close(row, error);
        // Messages of others may fit in the budget now.
        incoming.fetch_held(peers);
    }

    /// Whether the last call may have left something where it is that has arrived: who wants to sleep looks again before.
    #[must_use]
    pub fn has_left_some(&self) -> bool {
        self.incoming.has_left_some()
    }

    /// Whether a message was kept, an operation has ended or a peer has gone since this was asked last.
    pub fn take_news(&mut self) -> bool {
        std::mem::take(&mut self.peers.has_news)
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
        self.peers.operations.take(handle)
    }

    /// The oldest completion of the queue.
    pub fn next_completion(&mut self) -> Option<Completion> {
        let (end, rest) = self.peers.operations.next_end()?;
        Some(rest.unwrap_or_else(|| {
            let Stored { context, status, .. } = end;
            Completion { context, result: Ok(status), memory: Memory::default() }
        }))
    }

    /// Whether there are completions in the queue.
    #[must_use]
    pub fn has_completions(&self) -> bool {
        self.peers.operations.has_ends()
    }

    /// Handles what has arrived, and tells `each` of at most `max` operations that report to the queue as they end.
    /// Returns how many, after the first round that has told of one.
    ///
    /// # Errors
    /// [`MessageError::Interrupted`] or `Forked`.
    #[inline(always)]
    pub fn poll(
        &mut self,
        max: usize,
        mut each: impl FnMut(End<'_>),
    ) -> Result<usize, MessageError> {
        let mut told = 0;
        if self.peers.operations.has_ends() {
            told = self.tell(max, &mut each);
        }
        if told >= max || self.peers.transport.has_notice() || !self.peers.is_at_rest() {
            return self.poll_all(told, max, &mut each);
        }
        loop {
            let Peers { transport, operations, .. } = &mut self.peers;
            let mut index = NOBODY;
            let found = transport.try_take_matched(|space, source, tag, bytes| {
                operations.memory_for((space, source, tag), bytes, &mut index)
            });
            match found {
                Short::Nothing => {
                    self.incoming.note_nothing();
                    return Ok(told);
                }
                Short::Other(row) => return self.poll_other(row, told, max, &mut each),
                Short::Taken { source, tag, immediate, bytes } => {
                    let status = Status::of(source, tag, immediate, bytes);
                    each(self.end_of_posted(index, status));
                }
            }
            told += 1;
            if told == max || !self.peers.transport.has_another() {
                return Ok(told);
            }
        }
    }

    /// The end of a receive that has met its message.
    #[inline(always)]
    fn end_of_posted<'a>(&mut self, index: u32, status: Status) -> End<'a> {
        self.incoming.note_told();
        let label = self.peers.label_at(status.source.row());
        let (kind, result, offset) = (OperationKind::Receive, Ok(status), 0);
        let (context, memory) = self.peers.operations.finish_posted(index);
        End { context, kind, result, label, memory, offset, is_released: true }
    }

    /// The same as [`poll`](Self::poll), where the peer of `row` has something else than a short message for a receive that
    /// waits.
    #[inline(never)]
    fn poll_other(
        &mut self,
        row: u32,
        told: usize,
        max: usize,
        each: &mut dyn FnMut(End<'_>),
    ) -> Result<usize, MessageError> {
        let Self { peers, incoming, .. } = self;
        let Peers { transport, operations, .. } = peers;
        let (mut index, mut is_unasked) = (NOBODY, false);
        let found = transport.try_take_whole(row, |space, source, tag, bytes| {
            let message = (space, source, tag);
            operations.memory_or_unasked(message, bytes, &mut index, &mut is_unasked)
        });
        if let Short::Taken { source, tag, immediate, bytes } = found {
            each(self.end_of_posted(index, Status::of(source, tag, immediate, bytes)));
            return Ok(told + 1);
        }
        // Who has been told of an end may ask for this message next; what else has arrived waits until then, too.
        let tells = told > 0;
        if (tells && incoming.waits_for_next_call())
            || (is_unasked && incoming.leaves_unasked(tells))
        {
            return Ok(told);
        }
        if !(is_unasked && incoming.keep_short(peers, row)) {
            peers.transport.gather();
            incoming.take_arrival(peers, row, None);
            peers.transport.flush();
        }
        self.poll_all(told, max, each)
    }

    /// The same, with all that is to be done in each call.
    #[inline(never)]
    fn poll_all(
        &mut self,
        told: usize,
        max: usize,
        each: &mut dyn FnMut(End<'_>),
    ) -> Result<usize, MessageError> {
        let mut progress = Ok(false);
        if told < max || max == 0 || !self.incoming.waits_for_next_call() {
            self.incoming.begin_poll(told);
            progress = self.progress(None);
        }
        self.incoming.end_poll();
        progress?;
        let more = if self.peers.operations.has_ends() { self.tell(max - told, each) } else { 0 };
        Ok(told + more)
    }

    /// Tells of operations that have ended before.
    #[inline(never)]
    fn tell(&mut self, max: usize, each: &mut dyn FnMut(End<'_>)) -> usize {
        if max > 0 {
            self.incoming.note_told();
        }
        for told in 0..max {
            let Some((end, rest)) = self.peers.operations.next_end() else { return told };
            let Stored { context, status, offset, kind, is_released, .. } = end;
            let Some(Completion { result, memory, .. }) = rest else {
                let label = self.peers.label_of(status.source);
                let (result, memory) = (Ok(status), None);
                each(End { context, kind, result, label, memory, offset, is_released });
                continue;
            };
            let label = result.as_ref().map_or(0, |status| self.peers.label_of(status.source));
            let result = result.as_ref().copied();
            let memory = (!memory.is_pinned()).then_some(memory);
            each(End { context, kind, result, label, memory, offset, is_released });
        }
        max
    }

    /// A number of the caller's for a peer, which [`poll`](Self::poll) tells with the peer's messages.
    ///
    /// # Errors
    /// [`MessageError::UnknownPeer`].
    pub fn set_label(&mut self, peer: Peer, label: u64) -> Result<(), MessageError> {
        self.peers.set_label(peer, label)
    }

    /// The number that [`set_label`](Self::set_label) has given to a peer; 0 if none.
    #[inline]
    #[must_use]
    pub fn label_of(&self, peer: Peer) -> u64 {
        self.peers.label_of(peer)
    }

    /// A new counter, for operations that [report](crate::Report::Counter) to it.
    pub fn add_counter(&mut self) -> CounterId {
        self.peers.operations.add_counter()
    }

    /// What one of its counters has counted. `None` if it is another endpoint's.
    #[must_use]
    pub fn count(&self, id: CounterId) -> Option<Count> {
        self.peers.operations.count(id)
    }
}
