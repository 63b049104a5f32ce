//! Sending: at once, or when there is room.

use corewire_layout::rendezvous::OFFERS_MAX;
use corewire_ring::message::{Envelope, Memory, Source, Space, Wants};

use crate::budget::cost;
use crate::engine::Engine;
use crate::error::MessageError;
use crate::operations::{Operation, OperationHandle, Options, Until};
use crate::rendezvous::Tail;
use crate::row::{Pending, Unacknowledged, to_memory};
use crate::selector::{Peer, Status};
use crate::transport::{Room, SendError, Transport};

impl<T: Transport> Engine<T> {
    /// Sends a short message, if nothing stands in its way. False if not; nothing was done then. Most
    /// messages go this way.
    #[inline(always)]
    pub fn try_inject(&mut self, peer: Peer, envelope: &Envelope, message: &[u8]) -> bool {
        !self.transport.has_notice() && self.transport.try_inject(peer, envelope, message)
    }

    /// Sends as much of a message as there is room for, from byte `sent` on, and counts `sent` up. True if
    /// all of it has been sent. A message of which a part has been sent must be sent to its end: by further
    /// calls with the same arguments, or by [`send_rest`](Self::send_rest).
    ///
    /// # Errors
    /// Why nothing can be sent to this peer; [`MessageError::Transport`].
    pub fn send_step(
        &mut self,
        peer: Peer,
        envelope: Envelope,
        source: &impl Source,
        sent: &mut u64,
    ) -> Result<bool, MessageError> {
        let row = self.row_of(peer)?;
        // In order behind what waits, and never within a message.
        let entry = &self.rows[row as usize];
        if *sent == 0 && (entry.is_within || !entry.sends.is_empty()) {
            return Ok(false);
        }
        let done = self.push(row, &envelope, source, sent);
        self.rows[row as usize].is_within = matches!(done, Ok(false)) && *sent > 0;
        self.ask_for_grant(row);
        done
    }

    /// Sends the rest of a message, of which `sent` bytes have been sent, as soon as there is room; copies it.
    pub fn send_rest(&mut self, peer: Peer, envelope: Envelope, source: &impl Source, sent: u64) {
        let memory = to_memory(source);
        if let Ok(row) = self.row_of(peer) {
            self.send_later(row, Pending { sent, ..Pending::new(envelope, memory) });
        }
    }

    /// Begins to send `memory`, and never waits. A message that fits now has been sent when this returns.
    ///
    /// # Errors
    /// As for [`send_step`](Self::send_step); what fails later is the operation's result.
    pub fn start_send(
        &mut self,
        peer: Peer,
        envelope: Envelope,
        memory: Memory,
        options: Options,
    ) -> Result<OperationHandle, MessageError> {
        let row = self.row_of(peer)?;
        let wants = match options.until {
            Until::Copied => Wants::Nothing,
            Until::Delivered => Wants::Delivery,
            Until::Matched => Wants::Match,
        };
        let envelope = Envelope { wants, ..envelope };
        let handle = self.operations.add(Operation::Send { to: peer }, options);
        let pending = Pending { operation: Some(handle.index), ..Pending::new(envelope, memory) };
        // An error is the operation's result.
        let _ = self.start(row, pending);
        Ok(handle)
    }

    /// Sends a message or offers it, now or when there is room.
    pub(crate) fn start(&mut self, row: u32, mut pending: Pending) -> Result<(), MessageError> {
        // In order behind what waits, and never within a message.
        let entry = &self.rows[row as usize];
        if entry.is_within || !entry.sends.is_empty() {
            self.send_later(row, pending);
            return Ok(());
        }
        match self.send_or_offer(row, &mut pending) {
            Ok(Gone::Offered) => {}
            Ok(Gone::Whole) => self.end_send(row, pending, Ok(())),
            Ok(Gone::Not) => self.send_later(row, pending),
            Err(error) => {
                self.end_send(row, pending, Err(error.clone()));
                return Err(error);
            }
        }
        self.ask_for_grant(row);
        Ok(())
    }

    /// Sends as much of a message as there is room for, or offers it.
    fn send_or_offer(&mut self, row: u32, pending: &mut Pending) -> Result<Gone, MessageError> {
        if pending.sent == 0
            && let Some(number) = self.try_offer(row, &pending.envelope, &pending.memory, false)?
        {
            let Pending { operation, envelope, memory, .. } =
                std::mem::replace(pending, Pending::new(ack(0), Memory::default()));
            // Its stretches stay where they are when it moves.
            self.add_offered(row, number, operation, envelope, &memory, None);
            if let Some(offered) = self.rows[row as usize].offered.get_mut(&number) {
                offered.memory = Some(memory);
            }
            return Ok(Gone::Offered);
        }
        let Pending { envelope, memory, from, sent, .. } = pending;
        let tail = Tail { source: &*memory, from: *from };
        Ok(if self.push(row, envelope, &tail, sent)? { Gone::Whole } else { Gone::Not })
    }

    /// Whether messages wait for room. Acknowledgements do not count: a peer that does not read its own keeps no
    /// endpoint from closing.
    #[must_use]
    pub fn has_pending_sends(&self) -> bool {
        self.rows.iter().any(|row| !row.sends.is_empty() || !row.offered.is_empty())
    }

    /// Whether an operation or a send is under way, so that arrivals and room may be waited for.
    #[must_use]
    pub fn has_operations(&self) -> bool {
        self.operations.has_some_under_way()
            || self.has_pending_sends()
            // What peers are told may wait for room: that their messages have been received, for example.
            || !self.senders.is_empty()
            || !self.transfers.is_empty()
            || !self.helps.is_empty()
    }

    /// The room that is waited for.
    #[must_use]
    pub fn wanted_room(&self) -> Vec<Room> {
        let first = |row: u32| self.rows[row as usize].sends.front();
        let room = |&row: &u32| match first(row) {
            Some(Pending { envelope, memory, from, sent, .. }) => {
                let bytes = memory.len() as u64 - from;
                Room { row, envelope: *envelope, bytes, is_in_place: false, is_begun: *sent > 0 }
            }
            None => Room { row, envelope: ack(0), bytes: 0, is_in_place: false, is_begun: false },
        };
        let is_free = |row: &&u32| !self.rows[**row as usize].is_within;
        let mut wanted: Vec<Room> = self.senders.iter().filter(is_free).map(room).collect();
        wanted.extend(self.wanted_by_lent());
        // Who is to give back tells its peer when that has released enough.
        wanted.extend(self.lowering.iter().map(|&row| Room {
            row,
            envelope: ack(0),
            bytes: 0,
            is_in_place: true,
            is_begun: false,
        }));
        wanted
    }

    /// The same room, as it is waited for now: `None` if what must be sent first is waited for instead.
    #[must_use]
    pub fn room_for(&self, room: Room) -> Option<Room> {
        let entry = self.rows.get(room.row as usize)?;
        let is_first = room.is_in_place || entry.sends.is_empty();
        is_first.then_some(Room { is_begun: entry.is_within, ..room })
    }

    pub(crate) fn push(
        &mut self,
        row: u32,
        envelope: &Envelope,
        source: &impl Source,
        sent: &mut u64,
    ) -> Result<bool, MessageError> {
        self.transport.try_send(row, envelope, source, sent).map_err(|error| match error {
            SendError::Violation(violation) => {
                self.cut_off(row, violation);
                self.error_of(row)
            }
            SendError::System(text) => MessageError::Transport(text),
        })
    }

    /// Sends what had to wait, as far as there is room now.
    pub(crate) fn send_pending(&mut self) -> bool {
        let mut has_news = false;
        for row in std::mem::take(&mut self.senders) {
            // A call is in the middle of a message.
            if self.rows[row as usize].is_within {
                self.senders.push(row);
                continue;
            }
            has_news |= self.send_words(row);
            while let Some(mut pending) = self.rows[row as usize].sends.pop_front() {
                let before = pending.sent;
                let is_request = pending.envelope.space == Space::Request;
                match self.send_or_offer(row, &mut pending) {
                    Ok(Gone::Not) => {
                        has_news |= pending.sent > before;
                        self.rows[row as usize].sends.push_front(pending);
                        break;
                    }
                    Ok(Gone::Offered) => {
                        self.rows[row as usize].requests -= usize::from(is_request);
                    }
                    Ok(Gone::Whole) => self.end_send(row, pending, Ok(())),
                    Err(error) => self.end_send(row, pending, Err(error)),
                }
                has_news = true;
                has_news |= self.send_words(row);
            }
            self.resume_requests(row);
            self.ask_for_grant(row);
            let entry = &self.rows[row as usize];
            if !entry.sends.is_empty() || entry.has_words() {
                self.senders.push(row);
            } else if entry.gone.is_none() {
                self.transport.open(row, entry.generation);
            }
        }
        has_news
    }

    /// A message has been sent completely, or never will be.
    fn end_send(&mut self, row: u32, pending: Pending, result: Result<(), MessageError>) {
        if pending.envelope.space == Space::Data && result.is_ok() {
            return self.end_data(row, pending);
        }
        let cost = pending.reply_cost();
        let Pending { operation, envelope, memory, inner, is_acked, .. } = pending;
        let envelope = inner.unwrap_or(envelope);
        let source = self.peer_of(row);
        let Envelope { tag, immediate, wants, .. } = envelope;
        let entry = &mut self.rows[row as usize];
        entry.reply_bytes = entry.reply_bytes.saturating_sub(cost);
        entry.requests =
            entry.requests.saturating_sub(usize::from(envelope.space == Space::Request));
        let number = (wants != Wants::Nothing && result.is_ok()).then(|| {
            entry.sent_for_ack += 1;
            entry.sent_for_ack
        });
        let Some(operation) = operation else { return };
        let status = Status { source, tag, bytes: memory.len() as u64, immediate };
        match (number, result) {
            (Some(number), _) if !is_acked => {
                entry.unacknowledged.push_back(Unacknowledged {
                    number,
                    is_offer: false,
                    operation,
                    status,
                    memory,
                });
            }
            (_, result) => {
                self.has_news = true;
                self.operations.end(operation, result.map(|()| status), Some(memory));
            }
        }
    }

    // Acknowledgements.

    /// Acknowledges the `number`-th message of `row` that requests it, at once or when there is room.
    pub(crate) fn acknowledge(&mut self, row: u32, number: u64) {
        let entry = &mut self.rows[row as usize];
        if entry.gone.is_some() {
            return;
        }
        entry.acks.push_back(number);
        self.send_words(row);
        if self.rows[row as usize].has_words() && !self.senders.contains(&row) {
            self.senders.push(row);
        }
    }

    /// Whether this message must stay with its sender, because too many acknowledgements to that sender wait for
    /// room. The row is then muted until there is room again.
    pub(crate) fn mute_if_behind(&mut self, row: u32, envelope: &Envelope) -> bool {
        let acks_max = self.acks_max();
        let entry = &mut self.rows[row as usize];
        let wants_ack = envelope.wants != Wants::Nothing;
        let has_too_many = (wants_ack && entry.acks.len() >= acks_max)
            || (envelope.space == Space::Offer && entry.notices.len() >= NOTICES_MAX);
        let is_muted = entry.gone.is_none() && has_too_many;
        if is_muted {
            entry.is_muted = true;
            self.transport.hold(row);
        }
        is_muted
    }

    /// The maximum number of acknowledgements that may wait for room towards a peer. A message that was kept has
    /// left its ring before it is acknowledged, so this covers all that may be kept.
    fn acks_max(&self) -> usize {
        let kept = usize::try_from(self.matching.budget.of_one_peer() / cost(0));
        kept.unwrap_or(usize::MAX).saturating_mul(2).saturating_add(ACKS_MAX)
    }

    /// Whether a request of this peer is kept, and not received, because too many bytes of replies to it wait for room.
    /// Its replies to this endpoint's own requests, which lie behind, are taken meanwhile: of two peers that call each
    /// other neither waits for the other. A peer that owes replies begins no request, so little lies before them: what
    /// its ring and its cells hold, and one message of any length.
    pub(crate) fn owes_too_much(&self, row: u32) -> bool {
        let entry = &self.rows[row as usize];
        entry.reply_bytes > self.matching.budget.of_one_peer() || !entry.deferred.is_empty()
    }

    /// Lets requests be received that were kept back, if few enough replies wait by now.
    pub(crate) fn resume_requests(&mut self, row: u32) {
        let reply_bytes_max = self.matching.budget.of_one_peer();
        let entry = &mut self.rows[row as usize];
        if entry.deferred.is_empty() || entry.reply_bytes > reply_bytes_max {
            return;
        }
        entry.deferred_bytes = 0;
        for key in std::mem::take(&mut entry.deferred) {
            self.make_available(key);
        }
        self.has_news = true;
        self.has_resumed = true;
    }

    /// Sends the acknowledgements and notices for which there is room, unless a message to this peer is incomplete.
    pub(crate) fn send_words(&mut self, row: u32) -> bool {
        let mut has_news = self.send_notices(row);
        while let entry = &self.rows[row as usize]
            && entry.is_between_messages()
            && let Some(&number) = entry.acks.front()
        {
            let nothing: &[u8] = &[];
            if !matches!(self.push(row, &ack(number), &nothing, &mut 0), Ok(true)) {
                break;
            }
            has_news = true;
            self.rows[row as usize].acks.pop_front();
        }
        let entry = &mut self.rows[row as usize];
        if !entry.has_words() && std::mem::take(&mut entry.is_muted) {
            self.transport.release(row);
        }
        has_news
    }

    /// The peer of `row` has acknowledged the `number`-th message that requested it.
    pub(crate) fn handle_ack(&mut self, row: u32, number: u64) {
        let entry = &mut self.rows[row as usize];
        let unacknowledged = &mut entry.unacknowledged;
        let is_it = |it: &Unacknowledged| !it.is_offer && it.number == number;
        let Some(index) = unacknowledged.iter().position(is_it) else {
            if let Some(pending) = entry.sends.front_mut()
                && pending.sent > 0
                && number == entry.sent_for_ack + 1
            {
                pending.is_acked = true;
            }
            return;
        };
        if let Some(Unacknowledged { operation, status, memory, .. }) = unacknowledged.remove(index)
        {
            self.has_news = true;
            self.operations.end(operation, Ok(status), Some(memory));
        }
    }

    /// Sends a message when there is room, in its turn.
    pub(crate) fn send_later(&mut self, row: u32, pending: Pending) {
        let entry = &mut self.rows[row as usize];
        entry.reply_bytes += pending.reply_cost();
        entry.requests += usize::from(pending.envelope.space == Space::Request);
        if pending.sent > 0 {
            entry.sends.push_front(pending);
            entry.is_within = false;
        } else if pending.reply_cost() > 0 && entry.requests > 0 {
            // Before requests that have not begun: otherwise two peers that call each other would each wait with its
            // replies for room that the other makes when it has got replies.
            let is_unsent =
                |other: &Pending| other.envelope.space == Space::Request && other.sent == 0;
            let index = entry.sends.iter().position(is_unsent).unwrap_or(entry.sends.len());
            entry.sends.insert(index, pending);
        } else {
            entry.sends.push_back(pending);
        }
        self.transport.open(row, 0);
        if !self.senders.contains(&row) {
            self.senders.push(row);
        }
    }

    /// Sends data before everything else that has not begun.
    pub(crate) fn send_first(&mut self, row: u32, pending: Pending) {
        let entry = &mut self.rows[row as usize];
        if entry.gone.is_some() {
            return;
        }
        let is_first = pending.sent > 0 || entry.sends.front().is_none_or(|it| it.sent == 0);
        entry.sends.insert(usize::from(!is_first), pending);
        self.transport.open(row, 0);
        if !self.senders.contains(&row) {
            self.senders.push(row);
        }
    }

    /// The memory of a request is its caller's again: if not all of it has been sent, the rest is copied, or it is not
    /// sent at all if nothing has been sent and that `is_over`.
    pub(crate) fn release_request(&mut self, row: u32, number: u64, is_over: bool) {
        self.release_offered_request(row, number, is_over);
        let Some(entry) = self.rows.get_mut(row as usize) else { return };
        // One that was offered and is sent as data: its peer has its place in the order.
        let is_it = |inner: Envelope| inner.space == Space::Request && inner.tag == number;
        let data = entry.sends.iter_mut().find(|pending| pending.inner.is_some_and(is_it));
        if let Some(pending) = data {
            if pending.memory.is_pinned() {
                pending.memory = to_memory(&pending.memory);
            }
            return;
        }
        // Requests wait in the order of their numbers. Those that were begun last are the ones that wait.
        let requests = entry.sends.iter().enumerate().rev();
        let mut requests = requests.filter(|(_, pending)| pending.envelope.space == Space::Request);
        let found = requests.find(|(_, pending)| pending.envelope.tag <= number);
        let Some((index, pending)) = found.filter(|found| found.1.envelope.tag == number) else {
            return;
        };
        if is_over && pending.sent == 0 {
            entry.sends.remove(index);
            entry.requests -= 1;
        } else if pending.memory.is_pinned() {
            entry.sends[index].memory = to_memory(&pending.memory);
        }
    }

    /// The memory of a send of which nothing has been sent yet; it is never sent then.
    pub(crate) fn take_unsent(&mut self, row: u32, operation: u32) -> Option<Memory> {
        let sends = &mut self.rows[row as usize].sends;
        // The receiver waits for data, in place of an offer.
        let is_it = |pending: &Pending| {
            let is_data = pending.envelope.space == Space::Data;
            pending.operation == Some(operation) && pending.sent == 0 && !is_data
        };
        let index = sends.iter().position(is_it)?;
        sends.remove(index).map(|pending| pending.memory)
    }
}

/// Acknowledgements that may wait for room towards a peer, besides those of kept messages.
const ACKS_MAX: usize = 256;

/// Notices that may wait for room towards a peer when it offers another message.
const NOTICES_MAX: usize = 2 * OFFERS_MAX as usize;

/// What has become of a message that was to be sent.
enum Gone {
    /// All of it has been sent.
    Whole,
    /// It was offered, and its memory is kept there.
    Offered,
    /// There is no room, or only for a part of it.
    Not,
}

const fn ack(number: u64) -> Envelope {
    Envelope::numbered(Space::Acknowledgement, number)
}
