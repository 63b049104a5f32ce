//! Sending: at once, or when there is room.

use corewire_ring::message::{Envelope, Memory, Source, Space, Wants};

use super::Peers;
use super::row::{Link, Pending, Unacknowledged, to_memory};
use crate::budget::cost;
use crate::error::MessageError;
use crate::operations::{Operation, OperationHandle, Options, Until};
use crate::rendezvous::Tail;
use crate::selector::{Peer, Status};
use crate::transport::{Room, SendError, Transport};

impl<T: Transport> Peers<T> {
    /// See [`Engine::send_step`](crate::Engine::send_step).
    pub(crate) fn send_step(
        &mut self,
        peer: Peer,
        envelope: Envelope,
        source: &impl Source,
        sent: &mut u64,
    ) -> Result<bool, MessageError> {
        let row = self.row_of(peer)?;
        // In order behind what waits, and never within a message.
        let entry = &self.rows[row as usize];
        if *sent == 0 && (entry.is_within || !entry.sends.is_empty()) || self.must_link(row) {
            return Ok(false);
        }
        let done = self.push(row, &envelope, source, sent);
        self.rows[row as usize].is_within = matches!(done, Ok(false)) && *sent > 0;
        self.ask_for_grant(row);
        done
    }

    /// See [`Engine::send_rest`](crate::Engine::send_rest).
    pub(crate) fn send_rest(
        &mut self,
        peer: Peer,
        envelope: Envelope,
        source: &impl Source,
        sent: u64,
    ) {
        let memory = to_memory(source);
        if let Ok(row) = self.row_of(peer) {
            self.send_later(row, Pending { sent, ..Pending::new(envelope, memory) });
        }
    }

    /// See [`Engine::start_send`](crate::Engine::start_send).
    pub(crate) fn start_send(
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
    pub(super) fn start(&mut self, row: u32, mut pending: Pending) -> Result<(), MessageError> {
        // In order behind what waits, and never within a message.
        let entry = &self.rows[row as usize];
        if entry.is_within || !entry.sends.is_empty() || self.must_link(row) {
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

    /// Whether messages wait for room. Acknowledgements do not count.
    pub(crate) fn has_pending_sends(&self) -> bool {
        self.rows.iter().any(|row| !row.sends.is_empty() || !row.offered.is_empty())
    }

    /// Whether an operation or a send is under way, so that arrivals and room may be waited for.
    pub(crate) fn has_operations(&self) -> bool {
        self.operations.has_some_under_way()
            || self.has_pending_sends()
            // What peers are told may wait for room: that their messages have been received, for example.
            || !self.senders.is_empty()
            || !self.transfers.is_empty()
            || !self.helps.is_empty()
    }

    /// The room that is waited for.
    pub(crate) fn wanted_room(&self) -> Vec<Room> {
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
    pub(crate) fn room_for(&self, room: Room) -> Option<Room> {
        let entry = self.rows.get(room.row as usize)?;
        let is_first = room.is_in_place || entry.sends.is_empty();
        is_first.then_some(Room { is_begun: entry.is_within, ..room })
    }

    pub(super) fn push(
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

    /// The rows with sends that wait for room, in turn, except where a call is in the middle of a message. Each must be
    /// given to [`finish_turn`](Self::finish_turn).
    pub(crate) fn take_senders(&mut self) -> Vec<u32> {
        let Self { senders, rows, .. } = self;
        let within = senders.extract_if(.., |row| rows[*row as usize].is_within).collect();
        std::mem::replace(senders, within)
    }

    /// Whether sends wait for room.
    #[inline(always)]
    pub(crate) fn has_senders(&self) -> bool {
        !self.senders.is_empty()
    }

    /// Sends what waits for room towards the peer of `row`, as far as there is room now. True if anything was sent.
    pub(crate) fn send_pending_to(&mut self, row: u32) -> bool {
        let mut has_news = self.send_words(row);
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
        has_news
    }

    /// Nothing more can be sent to the peer of `row` now.
    pub(crate) fn finish_turn(&mut self, row: u32) {
        self.ask_for_grant(row);
        let entry = &self.rows[row as usize];
        if !entry.sends.is_empty() || entry.has_words() {
            // Part of an offer or notice may have been left to be sent meanwhile.
            if !self.senders.contains(&row) {
                self.senders.push(row);
            }
        } else if entry.gone.is_none() {
            self.transport.open(row, entry.generation);
        }
    }

    /// Whether so many bytes of replies to the peer of `row` wait for room that its requests are kept back.
    pub(crate) fn owes_too_much(&self, row: u32) -> bool {
        self.rows[row as usize].reply_bytes > self.reply_bytes_max
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

    /// Sends a message when there is room, in its turn.
    pub(super) fn send_later(&mut self, row: u32, pending: Pending) {
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
        // Otherwise they leave when it comes.
        if entry.link == Link::Linked {
            self.transport.open(row, 0);
            if !self.senders.contains(&row) {
                self.senders.push(row);
            }
        }
    }

    /// Keeps a copy of a message for a peer that is not linked yet, until it is. False if the peer is linked, or too much is
    /// kept for it: as much as is kept of one peer's messages.
    ///
    /// # Errors
    /// Why nothing can be sent to this peer.
    pub(crate) fn send_when_linked(
        &mut self,
        peer: Peer,
        envelope: Envelope,
        source: &impl Source,
    ) -> Result<bool, MessageError> {
        let row = self.row_of(peer)?;
        if !self.must_link(row) {
            return Ok(false);
        }
        let entry = &mut self.rows[row as usize];
        let kept = entry.unlinked_bytes.saturating_add(cost(source.bytes()));
        if kept > self.reply_bytes_max {
            return Ok(false);
        }
        entry.unlinked_bytes = kept;
        self.send_later(row, Pending::new(envelope, to_memory(source)));
        Ok(true)
    }

    /// Sends data before everything else that has not begun.
    pub(super) fn send_first(&mut self, row: u32, pending: Pending) {
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
    pub(super) fn release_request(&mut self, row: u32, number: u64, is_over: bool) {
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

/// What has become of a message that was to be sent.
enum Gone {
    /// All of it has been sent.
    Whole,
    /// It was offered, and its memory is kept there.
    Offered,
    /// There is no room, or only for a part of it.
    Not,
}

pub(super) const fn ack(number: u64) -> Envelope {
    Envelope::numbered(Space::Acknowledgement, number)
}
