//! What happens to an endpoint while one of its calls runs: messages come, room comes, peers come and go.

use std::collections::VecDeque;

use corewire_layout::counters::{EndpointCounter, PeerCounter};
use corewire_layout::pair::PAIR_INLINE_BYTES_MAX;
use corewire_ring::pair::{Arrival, PairViolation, Source};

use super::budget::Kept;
use super::buffer::{Buffer, Target, put};
use super::matching::{Posted, Selector};
use super::requests::Operation;
use super::{Endpoint, Pairs, Peer, Status};
use crate::control::endpoint::{Change, Gone, notice};
use crate::error::MessageError;

/// Arrivals that are seen to before anything else is looked at.
const ARRIVALS_AT_A_TIME: u32 = 64;

/// A peer's row.
#[derive(Debug, Default)]
pub(super) struct Row {
    pub(super) generation: u32,
    pub(super) name: Option<corewire_layout::name::ChannelName>,
    /// It has gone, but what it sent may still be there.
    pub(super) gone: Option<Gone>,
    /// It has gone, and nothing is left of it.
    pub(super) is_over: bool,
    /// Not sent yet, or not whole. In order.
    pub(super) sends: VecDeque<Pending>,
    /// Where the message goes of which a part has come.
    middle: Middle,
    filled: usize,
}

/// A message that goes when there is room.
#[derive(Debug)]
pub(super) struct Pending {
    /// `None` if nobody waits for it.
    pub(super) request: Option<u32>,
    pub(super) tag: u64,
    pub(super) buffer: Buffer,
    pub(super) sent: u64,
}

/// Where a message goes of which a part has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Middle {
    #[default]
    Nowhere,
    /// To a receive that goes on by itself.
    Request(u32),
    /// To the receive that is being called.
    Caller,
    /// To where it is kept until somebody asks for it.
    Kept(u64),
}

/// The receive that is being called.
pub(super) struct Caller<'a> {
    pub(super) selector: Selector,
    pub(super) target: &'a mut dyn Target,
    pub(super) state: CallerState,
}

pub(super) enum CallerState {
    Waiting,
    Filling(Status),
    Ended(Result<Status, MessageError>),
}

impl Caller<'_> {
    fn is_waiting(&self) -> bool {
        matches!(self.state, CallerState::Waiting)
    }

    fn is_ended(&self) -> bool {
        matches!(self.state, CallerState::Ended(_))
    }
}

impl Endpoint {
    /// Sees to what has come. True if anything has.
    pub(super) fn go_on(
        &mut self,
        mut caller: Option<&mut Caller<'_>>,
    ) -> Result<bool, MessageError> {
        if self.pairs.has_notice() {
            self.attend()?;
        }
        let mut has_news = false;
        for _ in 0..ARRIVALS_AT_A_TIME {
            let Some(row) = self.pairs.poll() else { break };
            has_news = true;
            self.take_arrival(row, caller.as_deref_mut());
            if caller.as_ref().is_some_and(|caller| caller.is_ended()) {
                return Ok(true);
            }
        }
        if !self.leaving.is_empty() {
            has_news |= self.see_off(caller);
        }
        if !self.senders.is_empty() {
            has_news |= self.send_pending();
        }
        Ok(has_news)
    }

    /// Sees to the notices that the control thread has given.
    #[cold]
    pub(super) fn attend(&mut self) -> Result<(), MessageError> {
        let attention = self.pairs.shared().attention();
        if attention & notice::FORKED != 0 {
            return Err(MessageError::Forked);
        }
        if attention & notice::PEERS != 0 {
            self.take_in_changes();
        }
        if attention & notice::OBSERVED != 0 {
            self.pairs.shared().clear(notice::OBSERVED);
            self.pairs.publish_traffic();
        }
        if attention & notice::INTERRUPTED != 0 {
            self.pairs.shared().clear(notice::INTERRUPTED);
            return Err(MessageError::Interrupted);
        }
        Ok(())
    }

    /// Takes in whoever has come or gone, as far as the control thread knows.
    pub(super) fn take_in_changes(&mut self) {
        for change in self.control.changes() {
            self.apply(change);
        }
    }

    fn apply(&mut self, change: Change) {
        match change {
            Change::Came { row, name, parts } => {
                let index = row as usize;
                if self.rows.len() <= index {
                    self.rows.resize_with(index + 1, Row::default);
                }
                let generation = self.rows[index].generation.wrapping_add(1).max(1);
                self.rows[index] = Row { generation, name: Some(name), ..Row::default() };
                self.pairs.add_peer(row, parts);
                self.pairs.open(row, generation);
            }
            Change::Gone { row, how } => self.begin_leaving(row, how),
        }
    }

    /// A peer whose memory holds impossible values is cut off.
    #[cold]
    pub(super) fn cut_off(&mut self, row: u32, violation: PairViolation) {
        self.pairs.count(EndpointCounter::Violations);
        self.control.cut_off(row, violation);
        self.begin_leaving(row, Gone::CutOff(violation));
    }

    /// A peer has gone: nothing goes to it any more, and what it sent is still taken; unless it cannot be
    /// believed.
    fn begin_leaving(&mut self, row: u32, how: Gone) {
        let Some(entry) = self.rows.get_mut(row as usize) else { return };
        if entry.gone.is_some() {
            return;
        }
        self.has_news = true;
        if how == Gone::Died {
            self.pairs.count(EndpointCounter::Deaths);
        }
        entry.gone = Some(how);
        self.pairs.open(row, 0);
        let sends = std::mem::take(&mut entry.sends);
        self.senders.retain(|&other| other != row);
        for pending in sends {
            let error = self.error_of(row);
            if let Some(request) = pending.request {
                self.requests.end(request, Err(error), Some(pending.buffer));
            }
        }
        self.pairs.enqueue(row);
        self.leaving.push(row);
    }

    /// Lets those go of whom everything has been taken.
    fn see_off(&mut self, mut caller: Option<&mut Caller<'_>>) -> bool {
        let mut has_news = false;
        for row in std::mem::take(&mut self.leaving) {
            let is_cut_off = matches!(self.rows[row as usize].gone, Some(Gone::CutOff(_)));
            if !is_cut_off && self.pairs.has_arrival(row).unwrap_or(false) {
                self.leaving.push(row);
            } else {
                self.see_off_one(row, caller.as_deref_mut());
                has_news = true;
            }
        }
        has_news
    }

    /// Ends what waits for a peer that is gone. A message that did not come whole never was.
    fn see_off_one(&mut self, row: u32, caller: Option<&mut Caller<'_>>) {
        let peer = self.peer_of(row);
        let error = self.error_of(row);
        let middle = std::mem::take(&mut self.rows[row as usize].middle);
        let mut caller = caller;
        match middle {
            Middle::Nowhere => {}
            Middle::Kept(id) => {
                drop(self.matching.take(id));
                self.note_kept(row);
            }
            Middle::Caller => {
                if let Some(caller) = caller.as_deref_mut() {
                    caller.state = CallerState::Waiting;
                }
            }
            Middle::Request(request) => self.receive_again(request),
        }
        if let Some(id) = self.matching.held_of(peer) {
            drop(self.matching.take(id));
        }
        for posted in self.matching.withdraw_from(peer) {
            self.requests.end(posted.request, Err(error.clone()), None);
        }
        if let Some(caller) = caller {
            if caller.is_waiting() && caller.selector.source == Some(peer) {
                caller.state = CallerState::Ended(Err(error));
            } else if caller.is_waiting() {
                self.take_kept(caller);
            }
        }
        self.has_news = true;
        self.rows[row as usize].is_over = true;
        self.pairs.remove_peer(row);
        self.control.free_row(row);
    }

    /// A receive whose message will not come whole waits for another.
    fn receive_again(&mut self, request: u32) {
        let Operation::Receive { selector, order, is_matched, .. } =
            self.requests.by_index(request)
        else {
            return;
        };
        *is_matched = false;
        let posted = Posted { selector: *selector, request, order: *order };
        // What has come meanwhile may be what it asks for.
        if !self.take_kept_for(posted) {
            self.matching.post_again(posted);
        }
    }

    /// Why nothing goes to the peer of `row`, or comes.
    pub(super) fn error_of(&self, row: u32) -> MessageError {
        let entry = self.rows.get(row as usize);
        match entry.and_then(|entry| entry.name.clone().zip(entry.gone)) {
            Some((name, Gone::Died)) => MessageError::PeerDied { name },
            Some((name, Gone::Left)) => MessageError::PeerLeft { name },
            Some((name, Gone::CutOff(violation))) => MessageError::PeerCutOff { name, violation },
            None => MessageError::UnknownPeer,
        }
    }

    fn peer_of(&self, row: u32) -> Peer {
        Peer::new(row, self.rows.get(row as usize).map_or(0, |entry| entry.generation))
    }

    // Arrivals.

    /// Sees to what lies at the head of a pair.
    fn take_arrival(&mut self, row: u32, mut caller: Option<&mut Caller<'_>>) {
        let arrival = match self.pairs.arrival(row) {
            Ok(Some(arrival)) => arrival,
            Ok(None) => return,
            Err(violation) => return self.cut_off(row, violation),
        };
        if arrival.is_first && !self.find_place(row, &arrival, caller.as_deref_mut()) {
            return;
        }
        self.fill(row, &arrival, caller);
    }

    /// Decides where a message goes. False if it stays where it is.
    fn find_place(&mut self, row: u32, arrival: &Arrival, caller: Option<&mut Caller<'_>>) -> bool {
        let source = self.peer_of(row);
        let status = Status { source, tag: arrival.tag, bytes: arrival.total };
        while let Some(posted) = self.matching.take_posted(source, arrival.tag) {
            if let Operation::Receive { buffer, is_matched, .. } =
                self.requests.by_index(posted.request)
            {
                let given = buffer.len();
                if fits(arrival.total, given) {
                    *is_matched = true;
                    self.set_middle(row, Middle::Request(posted.request));
                    return true;
                }
                self.requests.end(posted.request, Err(too_small(arrival.total, given)), None);
            }
        }
        if let Some(caller) = caller
            && caller.is_waiting()
            && caller.selector.takes(source, arrival.tag)
        {
            let given = caller.target.capacity();
            if fits(arrival.total, given) {
                caller.state = CallerState::Filling(status);
                self.set_middle(row, Middle::Caller);
                return true;
            }
            caller.state = CallerState::Ended(Err(too_small(arrival.total, given)));
        }
        self.pairs.count(EndpointCounter::Unexpected);
        self.has_news = true;
        let is_held = !self.matching.budget.has_room(row, arrival.total);
        let id = self.matching.keep(source, arrival.tag, arrival.total, is_held);
        if is_held {
            self.pairs.count(EndpointCounter::Stalls);
            self.pairs.hold(row);
        } else {
            self.set_middle(row, Middle::Kept(id));
            self.note_kept(row);
        }
        !is_held
    }

    /// Shows observers what is kept of the peer of `row`.
    fn note_kept(&self, row: u32) {
        let Kept { messages, bytes } = self.matching.budget.kept(row);
        self.pairs.set_peer_counter(row, PeerCounter::KeptMessages, messages);
        self.pairs.set_peer_counter(row, PeerCounter::KeptBytes, bytes);
    }

    /// Drops a message that is kept, or the rest of it as it comes.
    pub(super) fn drop_kept(&mut self, id: u64) {
        let Some(message) = self.matching.take(id) else { return };
        let row = message.source.row;
        self.pairs.count(EndpointCounter::Discarded);
        if message.is_held {
            self.set_middle(row, Middle::Nowhere);
            self.take_held(row, None);
        } else if self.rows[row as usize].middle == Middle::Kept(id) {
            let filled = self.rows[row as usize].filled;
            self.set_middle(row, Middle::Nowhere);
            self.rows[row as usize].filled = filled;
        }
        self.note_kept(row);
        self.fetch_held();
    }

    fn set_middle(&mut self, row: u32, middle: Middle) {
        let entry = &mut self.rows[row as usize];
        entry.middle = middle;
        entry.filled = 0;
    }

    /// Takes a fragment to where its message goes.
    fn fill(&mut self, row: u32, arrival: &Arrival, caller: Option<&mut Caller<'_>>) {
        let entry = &mut self.rows[row as usize];
        let (middle, filled) = (entry.middle, entry.filled);
        entry.filled += arrival.bytes;
        let is_whole = entry.filled as u64 == arrival.total;
        let pairs = &self.pairs;
        let mut caller = caller;
        match middle {
            Middle::Request(request) => {
                if let Operation::Receive { buffer, .. } = self.requests.by_index(request) {
                    copy(pairs, row, arrival, buffer, filled);
                }
            }
            Middle::Caller => {
                if let Some(caller) = caller.as_deref_mut() {
                    copy(pairs, row, arrival, caller.target, filled);
                }
            }
            Middle::Kept(id) => {
                if let Some(message) = self.matching.by_id(id) {
                    message.bytes.resize(filled + arrival.bytes, 0);
                    copy(pairs, row, arrival, &mut &mut message.bytes[..], filled);
                }
            }
            Middle::Nowhere => {}
        }
        self.pairs.pass(row, arrival);
        if is_whole {
            self.rows[row as usize].middle = Middle::Nowhere;
            let status =
                Status { source: self.peer_of(row), tag: arrival.tag, bytes: arrival.total };
            match (middle, caller) {
                (Middle::Request(request), _) => {
                    self.has_news = true;
                    self.requests.end(request, Ok(status), None);
                }
                (Middle::Caller, Some(caller)) => caller.state = CallerState::Ended(Ok(status)),
                _ => {}
            }
        }
    }

    // Messages that were kept.

    /// Gives a receive that is being called the oldest message that it asks for, if one is kept.
    pub(super) fn take_kept(&mut self, caller: &mut Caller<'_>) {
        let Some(message) = self.matching.find(&caller.selector) else { return };
        let (id, total) = (message.id, message.total);
        self.take_kept_of(id, total, caller);
    }

    /// The same of a certain message.
    pub(super) fn take_kept_of(&mut self, id: u64, total: u64, caller: &mut Caller<'_>) {
        let given = caller.target.capacity();
        if !fits(total, given) {
            caller.state = CallerState::Ended(Err(too_small(total, given)));
            return;
        }
        let Some(message) = self.matching.take(id) else { return };
        self.note_kept(message.source.row);
        let status = Status { source: message.source, tag: message.tag, bytes: total };
        put(caller.target, 0, &message.bytes);
        if message.is_whole() {
            caller.state = CallerState::Ended(Ok(status));
        } else {
            caller.state = CallerState::Filling(status);
            let row = message.source.row;
            self.set_middle(row, Middle::Caller);
            self.rows[row as usize].filled = message.bytes.len();
            if message.is_held {
                self.take_held(row, Some(caller));
            }
        }
        self.fetch_held();
    }

    /// Gives a receive the oldest message that it asks for, if one is kept. False if none is.
    pub(super) fn take_kept_for(&mut self, posted: Posted) -> bool {
        let Some(message) = self.matching.find(&posted.selector) else { return false };
        let (id, total) = (message.id, message.total);
        let Operation::Receive { buffer, is_matched, .. } = self.requests.by_index(posted.request)
        else {
            return true;
        };
        let given = buffer.len();
        if !fits(total, given) {
            self.requests.end(posted.request, Err(too_small(total, given)), None);
            return true;
        }
        let Some(message) = self.matching.take(id) else { return true };
        let status = Status { source: message.source, tag: message.tag, bytes: total };
        put(buffer, 0, &message.bytes);
        *is_matched = true;
        self.note_kept(message.source.row);
        if message.is_whole() {
            self.requests.end(posted.request, Ok(status), None);
        } else {
            let row = message.source.row;
            self.set_middle(row, Middle::Request(posted.request));
            self.rows[row as usize].filled = message.bytes.len();
            if message.is_held {
                self.take_held(row, None);
            }
        }
        self.fetch_held();
        true
    }

    /// A message that was claimed is anybody's again: the oldest receive that waits for it gets it.
    pub(super) fn offer(&mut self, id: u64) {
        while let Some(message) = self.matching.by_id(id) {
            let (source, tag) = (message.source, message.tag);
            let Some(posted) = self.matching.take_posted(source, tag) else { break };
            // If it does not fit there, it is still to be had.
            self.take_kept_for(posted);
        }
        self.fetch_held();
    }

    /// Takes the first fragment of a message that was left with its sender, to where it is known to go.
    fn take_held(&mut self, row: u32, caller: Option<&mut Caller<'_>>) {
        self.pairs.release(row);
        match self.pairs.arrival(row) {
            Ok(Some(arrival)) => self.fill(row, &arrival, caller),
            Ok(None) => {}
            Err(violation) => self.cut_off(row, violation),
        }
    }

    /// Takes in what was left with its sender, as far as the budget goes by now.
    fn fetch_held(&mut self) {
        while let Some((id, source)) = self.matching.next_to_fetch() {
            self.matching.fetch(id);
            self.note_kept(source.row);
            self.set_middle(source.row, Middle::Kept(id));
            self.take_held(source.row, None);
        }
    }

    /// A receive that was called ends before its message is whole: what has come is kept.
    pub(super) fn leave(&mut self, caller: &mut Caller<'_>) {
        let CallerState::Filling(status) = caller.state else { return };
        let row = status.source.row;
        let filled = self.rows[row as usize].filled;
        let mut bytes = Vec::with_capacity(filled);
        caller.target.each_from(0, &mut |_, part| {
            let count = part.len().min(filled - bytes.len());
            bytes.extend_from_slice(&part[..count]);
            bytes.len() < filled
        });
        let id = self.matching.put_back(status.source, status.tag, status.bytes, bytes);
        self.note_kept(row);
        self.set_middle(row, Middle::Kept(id));
        self.rows[row as usize].filled = filled;
        caller.state = CallerState::Waiting;
    }

    // Sending.

    /// Sends as much of a message as there is room for. True if that is all of it.
    pub(super) fn push(
        &mut self,
        row: u32,
        tag: u64,
        source: &impl Source,
        short: Option<&[u8]>,
        sent: &mut u64,
    ) -> Result<bool, MessageError> {
        let total = source.bytes();
        loop {
            match short {
                Some(message) if self.pairs.try_send(row, tag, message) => return Ok(true),
                Some(_) => {}
                None => {
                    self.want_cells()?;
                    let bytes = self.pairs.send_fragment(row, tag, source, *sent);
                    *sent += bytes;
                    if *sent == total {
                        return Ok(true);
                    }
                    if bytes > 0 {
                        continue;
                    }
                }
            }
            if !self.pairs.has_ring(row) {
                if self.want_ring(row)? {
                    continue;
                }
                return Ok(false);
            }
            match self.pairs.has_room(row, short.is_none()) {
                Ok(true) => {}
                Ok(false) => return Ok(false),
                Err(violation) => {
                    self.cut_off(row, violation);
                    return Err(self.error_of(row));
                }
            }
        }
    }

    /// Gives the pair towards the peer of `row` a ring. False if none is free yet.
    fn want_ring(&mut self, row: u32) -> Result<bool, MessageError> {
        if let Err(violation) = self.pairs.make_room(row) {
            self.cut_off(row, violation);
            return Err(self.error_of(row));
        }
        if self.pairs.next_ring().is_none() {
            self.pairs.take_ring_back(row);
        }
        let Some(ring) = self.pairs.next_ring() else { return Ok(false) };
        if ring >= self.rings_there {
            let sizes = self.pairs.sizes();
            let (offset, bytes) = (sizes.ring_offset(ring), sizes.ring_bytes());
            self.control.segment().allocate(offset, bytes)?;
            self.rings_there = ring + 1;
        }
        Ok(self.pairs.assign_ring(row))
    }

    fn want_cells(&mut self) -> Result<(), MessageError> {
        if !self.has_cells {
            let sizes = self.pairs.sizes();
            let (offset, bytes) = (sizes.cells_offset(), sizes.cells_bytes());
            self.control.segment().allocate(offset, bytes)?;
            self.has_cells = true;
        }
        Ok(())
    }

    /// Sends what could not be sent at once, as far as there is room now.
    fn send_pending(&mut self) -> bool {
        let mut has_news = false;
        for row in std::mem::take(&mut self.senders) {
            while let Some(mut pending) = self.rows[row as usize].sends.pop_front() {
                let before = pending.sent;
                let short = pending.buffer.short();
                let short = short.as_ref().map(|(bytes, length)| &bytes[..*length]);
                let done = self.push(row, pending.tag, &pending.buffer, short, &mut pending.sent);
                let bytes = pending.buffer.len() as u64;
                match done {
                    Ok(false) => {
                        has_news |= pending.sent > before;
                        self.rows[row as usize].sends.push_front(pending);
                        break;
                    }
                    Ok(true) => {
                        let status = Status { source: self.peer_of(row), tag: pending.tag, bytes };
                        self.end_send(pending, Ok(status));
                    }
                    Err(error) => self.end_send(pending, Err(error)),
                }
                has_news = true;
            }
            let entry = &self.rows[row as usize];
            if !entry.sends.is_empty() {
                self.senders.push(row);
            } else if entry.gone.is_none() {
                self.pairs.open(row, entry.generation);
            }
        }
        has_news
    }

    fn end_send(&mut self, pending: Pending, result: Result<Status, MessageError>) {
        if let Some(request) = pending.request {
            self.has_news = true;
            self.requests.end(request, result, Some(pending.buffer));
        }
    }

    /// Has a message sent when there is room, in its turn.
    pub(super) fn send_later(&mut self, row: u32, pending: Pending) {
        self.rows[row as usize].sends.push_back(pending);
        self.pairs.open(row, 0);
        if !self.senders.contains(&row) {
            self.senders.push(row);
        }
    }

    /// The rows towards which room is waited for, and whether it must be room in a cell.
    pub(super) fn wanted_room(&self) -> Vec<(u32, bool)> {
        let is_long = |pending: &Pending| pending.buffer.len() > PAIR_INLINE_BYTES_MAX;
        let first = |row: u32| self.rows[row as usize].sends.front();
        self.senders.iter().map(|&row| (row, first(row).is_some_and(is_long))).collect()
    }
}

/// Is there room by now that a sender waits for?
pub(super) fn is_room(pairs: &mut Pairs, wanted: &[(u32, bool)]) -> bool {
    wanted.iter().any(|&(row, needs_cell)| {
        if pairs.has_ring(row) {
            // What holds impossible values is looked at by whoever sends.
            return pairs.has_room(row, needs_cell).unwrap_or(true);
        }
        pairs.make_room(row).is_err() || {
            pairs.take_ring_back(row);
            pairs.next_ring().is_some()
        }
    })
}

/// Copies a fragment to where it belongs.
fn copy(pairs: &Pairs, row: u32, arrival: &Arrival, target: &mut dyn Target, filled: usize) {
    target.each_from(filled, &mut |skip, part| {
        let count = pairs.copy(row, arrival, skip, part);
        skip + count < arrival.bytes
    });
}

fn fits(total: u64, given: usize) -> bool {
    total <= given as u64
}

fn too_small(needed: u64, given: usize) -> MessageError {
    MessageError::BufferTooSmall { needed, given }
}
