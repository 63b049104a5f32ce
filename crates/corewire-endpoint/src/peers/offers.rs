//! The sender's side: offers, help, and taking an offer back.

use corewire_layout::rendezvous::{OFFER_BYTES, Verb};
use corewire_ring::message::{Envelope, Memory, Source, Space, Wants};

use super::Peers;
use super::row::{Pending, Unacknowledged, to_memory};
use crate::error::MessageError;
use crate::rendezvous::{Offered, Tail, Todo, offer_of};
use crate::selector::{Peer, Status};
use crate::transport::{Helped, PeerViolation, Room, Transport};

/// A message that a call has offered: its memory is the caller's until [`Engine::end_lent`](crate::Engine::end_lent).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "the memory is lent until `end_lent`"]
pub struct Lent {
    peer: Peer,
    number: u64,
}

impl<T: Transport> Peers<T> {
    // A call that waits until its message has been copied.

    /// See [`Engine::offer_lent`](crate::Engine::offer_lent).
    pub(crate) fn offer_lent(
        &mut self,
        peer: Peer,
        envelope: Envelope,
        source: &impl Source,
    ) -> Result<Option<Lent>, MessageError> {
        let row = self.row_of(peer)?;
        let entry = &self.rows[row as usize];
        if entry.is_within || !entry.sends.is_empty() || self.must_link(row) {
            return Ok(None);
        }
        let number = self.try_offer(row, &envelope, source, true)?;
        self.ask_for_grant(row);
        let Some(number) = number else { return Ok(None) };
        self.add_offered(row, number, None, envelope, source, None);
        Ok(Some(Lent { peer, number }))
    }

    /// See [`Engine::end_of_lent`](crate::Engine::end_of_lent).
    pub(crate) fn end_of_lent(
        &mut self,
        lent: &Lent,
        source: &impl Source,
    ) -> Option<Result<(), MessageError>> {
        let (row, number) = (lent.peer.row(), lent.number);
        match self.offered(row, number)?.todo.clone() {
            Todo::Wait => None,
            Todo::End(result) => Some(result),
            Todo::Push(from, mut sent) => {
                if sent == 0 && !self.rows[row as usize].is_between_messages() {
                    return None;
                }
                let envelope = Envelope::numbered(Space::Data, number);
                let done = self.push(row, &envelope, &Tail { source, from }, &mut sent);
                let entry = &mut self.rows[row as usize];
                entry.is_within = matches!(done, Ok(false)) && sent > 0;
                // The peer may have been cut off.
                if let Some(offered) = entry.offered.get_mut(&number) {
                    offered.todo = Todo::Push(from, sent);
                }
                match done {
                    Ok(false) => None,
                    Ok(true) => Some(Ok(())),
                    Err(error) => Some(Err(error)),
                }
            }
        }
    }

    /// The room that a call waits for whose message is sent as data.
    pub(super) fn wanted_by_lent(&self) -> Option<Room> {
        let rows = (0u32..).zip(&self.rows);
        let mut lent = rows.flat_map(|(row, entry)| entry.offered.iter().map(move |it| (row, it)));
        lent.find_map(|(row, (&number, offered))| match offered.todo {
            Todo::Push(from, _) => {
                let envelope = Envelope::numbered(Space::Data, number);
                let bytes = offered.total - from;
                Some(Room { row, envelope, bytes, is_in_place: false, is_begun: true })
            }
            _ => None,
        })
    }

    /// See [`Engine::end_lent`](crate::Engine::end_lent).
    pub(crate) fn end_lent(&mut self, lent: Lent, source: &impl Source) -> bool {
        let (row, number) = (lent.peer.row(), lent.number);
        let entry = self.rows.get_mut(row as usize);
        let Some(offered) = entry.and_then(|it| it.offered.remove(&number)) else { return false };
        let copied = |from, sent| Pending {
            sent,
            from,
            ..Pending::new(Envelope::numbered(Space::Data, number), to_memory(source))
        };
        match offered.todo {
            Todo::End(result) => result.is_ok(),
            Todo::Push(from, sent) => {
                self.transport.count_sent(row, offered.total);
                // All of it has been sent, if it has ended so.
                if sent < offered.total - from {
                    self.rows[row as usize].is_within = false;
                    self.send_first(row, copied(from, sent));
                }
                true
            }
            Todo::Wait => {
                let is_unsent = self.withdraw_offer(row, number);
                if is_unsent {
                    self.notify(row, number, Verb::Cancelled, 0);
                } else {
                    self.transport.count_sent(row, offered.total);
                    self.send_first(row, copied(0, 0));
                }
                !is_unsent
            }
        }
    }

    // Offers.

    /// Offers a message. `None` if it must go in another way, or there is no room now.
    pub(super) fn try_offer(
        &mut self,
        row: u32,
        envelope: &Envelope,
        source: &impl Source,
        is_blocking: bool,
    ) -> Result<Option<u64>, MessageError> {
        let total = source.bytes();
        let entry = &self.rows[row as usize];
        // A notice that waits may be about the offer whose place in the table this one would get.
        if entry.refuses_offers
            || !entry.notices.is_empty()
            || offer_of(0, envelope, total, is_blocking).is_none()
            || !self.transport.is_offered(row, envelope, total)
        {
            return Ok(None);
        }
        let mut bytes = vec![0; OFFER_BYTES];
        let Some(number) = self.transport.register(row, source, &mut bytes) else {
            return Ok(None);
        };
        if let Some(offer) = offer_of(number, envelope, total, is_blocking) {
            bytes[..OFFER_BYTES].copy_from_slice(&offer.to_bytes());
        }
        let outer = Envelope::numbered(Space::Offer, envelope.tag);
        let mut sent = 0;
        match self.push(row, &outer, &bytes.as_slice(), &mut sent) {
            Ok(true) => Ok(Some(number)),
            // A long list goes on when there is room.
            Ok(false) if sent > 0 => {
                let pending = Pending { sent, ..Pending::new(outer, bytes.into()) };
                self.send_later(row, pending);
                Ok(Some(number))
            }
            Ok(false) => {
                self.transport.deregister(row, number);
                Ok(None)
            }
            Err(error) => {
                self.transport.deregister(row, number);
                Err(error)
            }
        }
    }

    /// A message was offered. An operation, nobody, or a call waits for it, which keeps the memory.
    pub(super) fn add_offered(
        &mut self,
        row: u32,
        number: u64,
        operation: Option<u32>,
        envelope: Envelope,
        source: &impl Source,
        memory: Option<Memory>,
    ) {
        let mut stretches = Vec::new();
        source.stretches(&mut |stretch| stretches.push(stretch));
        let total = source.bytes();
        let todo = Todo::Wait;
        let offered = Offered { operation, envelope, memory, total, stretches, todo };
        self.rows[row as usize].offered.insert(number, offered);
    }

    fn offered(&self, row: u32, number: u64) -> Option<&Offered> {
        self.rows.get(row as usize)?.offered.get(&number)
    }

    /// The peer can read the message no more. True if it had not begun to.
    fn withdraw_offer(&mut self, row: u32, number: u64) -> bool {
        self.end_help(row, number);
        self.transport.withdraw(row, number)
    }

    /// The peer has the message, or has dropped it.
    pub(crate) fn offer_is_done(&mut self, row: u32, number: u64) {
        self.end_help(row, number);
        if self.offered(row, number).is_some() {
            self.transport.deregister(row, number);
            self.end_offered(row, number, Ok(()));
            return;
        }
        let unacknowledged = &mut self.rows[row as usize].unacknowledged;
        let is_it = |it: &Unacknowledged| it.is_offer && it.number == number;
        let found = unacknowledged.iter().position(is_it);
        if let Some(it) = found.and_then(|index| unacknowledged.remove(index)) {
            self.has_news = true;
            self.operations.end(it.operation, Ok(it.status), Some(it.memory));
            return;
        }
        // A receive has asked for it before all of its data has been sent.
        let mut sends = self.rows[row as usize].sends.iter_mut();
        let is_it = |envelope: &Envelope| envelope.space == Space::Data && envelope.tag == number;
        if let Some(pending) = sends.find(|pending| is_it(&pending.envelope)) {
            pending.is_acked = true;
        }
    }

    /// Nothing more is to be done for a message that was offered.
    fn end_offered(&mut self, row: u32, number: u64, result: Result<(), MessageError>) {
        let source = self.peer_of(row);
        let Some(entry) = self.rows.get_mut(row as usize) else { return };
        let Some(offered) = entry.offered.get_mut(&number) else { return };
        self.has_news = true;
        if result.is_ok() {
            self.transport.count_sent(row, offered.total);
        }
        if offered.memory.is_none() {
            let is_pushed = matches!(offered.todo, Todo::Push(..));
            if offered.todo == Todo::Wait || (result.is_err() && is_pushed) {
                offered.todo = Todo::End(result);
                self.has_ended_lent = true;
            }
            return;
        }
        let Some(offered) = entry.offered.remove(&number) else { return };
        let Offered { operation: Some(operation), envelope, memory, total, .. } = offered else {
            return;
        };
        let Envelope { tag, immediate, .. } = envelope;
        let status = Status { source, tag, bytes: total, immediate };
        self.operations.end(operation, result.map(|()| status), memory);
    }

    /// The message follows as data, from byte `from` on.
    pub(crate) fn push_offered(&mut self, row: u32, number: u64, from: u64) {
        self.end_help(row, number);
        let Some(entry) = self.rows.get_mut(row as usize) else { return };
        let Some(offered) = entry.offered.get_mut(&number) else { return };
        // It may be pushed already, or nobody may be there any more: then it ends when the peer is removed.
        if offered.todo != Todo::Wait || entry.gone.is_some() {
            return;
        }
        if from >= offered.total {
            let violation = PeerViolation { word: "offset", found: from, position: 0 };
            return self.cut_off(row, violation);
        }
        self.transport.deregister(row, number);
        self.has_news = true;
        if offered.memory.is_none() {
            offered.todo = Todo::Push(from, 0);
            return;
        }
        let Some(offered) = entry.offered.remove(&number) else { return };
        let Offered { operation, envelope, memory, stretches, .. } = offered;
        let is_pinned = memory.as_ref().is_some_and(Memory::is_pinned);
        if is_pinned && !self.transport.is_readable(&stretches) {
            if let Some(operation) = operation {
                self.operations.end(operation, Err(MessageError::Unmapped), memory);
            }
            return self.notify(row, number, Verb::Cancelled, 0);
        }
        let data = Envelope::numbered(Space::Data, number);
        let pending = Pending {
            operation,
            from,
            inner: Some(envelope),
            ..Pending::new(data, memory.unwrap_or_default())
        };
        self.send_first(row, pending);
    }

    /// The same. Nothing more is offered to this peer: it can read no message of this process.
    pub(crate) fn refuse_offered(&mut self, row: u32, number: u64, from: u64) {
        self.rows[row as usize].refuses_offers = true;
        self.push_offered(row, number, from);
    }

    /// Before a wait for sends sleeps: sends as data what was offered, has not been begun, and fits in the
    /// transport, as if it had not been offered. True if there was such a message.
    /// `is_left` says whether a message of a peer is left with it.
    pub(crate) fn relieve(&mut self, is_left: impl Fn(Peer) -> bool) -> bool {
        let mut has_news = false;
        for row in (0u32..).take(self.rows.len()) {
            // The peer's notices may lie behind a message that is left with it.
            let is_deaf = is_left(self.peer_of(row));
            let waiting = self.rows[row as usize].offered.iter();
            let waiting = waiting.filter(|(_, offered)| offered.todo == Todo::Wait);
            let waiting: Vec<_> = waiting.map(|(&number, it)| (number, it.total)).collect();
            for (number, total) in waiting {
                let transport = &mut self.transport;
                let mut is_unread =
                    || !transport.has_begun(row, number) && transport.has_room_for_data(row, total);
                if is_deaf || is_unread() {
                    // Data that the peer does not need any more it drops.
                    self.transport.withdraw(row, number);
                    self.push_offered(row, number, 0);
                    has_news = true;
                }
            }
        }
        has_news
    }

    /// Takes back the offer of an operation, unless the peer has begun to read it. Returns its memory.
    pub(crate) fn take_offered(&mut self, row: u32, operation: u32) -> Option<Memory> {
        let mut offered = self.rows.get(row as usize)?.offered.iter();
        let (&number, _) = offered.find(|(_, it)| it.operation == Some(operation))?;
        if self.transport.has_begun(row, number) {
            return None;
        }
        if !self.withdraw_offer(row, number) {
            // It has begun just now.
            self.push_offered(row, number, 0);
            return None;
        }
        self.notify(row, number, Verb::Cancelled, 0);
        self.rows[row as usize].offered.remove(&number)?.memory
    }

    /// The memory of a request that was offered is its caller's again: it is not sent any more if that `is_over`, or
    /// the peer gets a copy.
    pub(super) fn release_offered_request(&mut self, row: u32, call: u64, is_over: bool) {
        let is_it = |it: &Offered| it.envelope.space == Space::Request && it.envelope.tag == call;
        let Some(entry) = self.rows.get(row as usize) else { return };
        let found = entry.offered.iter().find(|(_, offered)| is_it(offered));
        let Some((&number, _)) = found else { return };
        if self.withdraw_offer(row, number) && is_over {
            self.notify(row, number, Verb::Cancelled, 0);
            self.rows[row as usize].offered.remove(&number);
            return;
        }
        if let Some(offered) = self.rows[row as usize].offered.get_mut(&number)
            && let Some(memory) = offered.memory.take()
        {
            offered.memory = Some(if memory.is_pinned() { to_memory(&memory) } else { memory });
        }
        self.push_offered(row, number, 0);
    }

    /// The peer of `row` has gone: nothing more is copied to it. It may have said before that it has a message.
    pub(super) fn end_pushes(&mut self, row: u32) {
        self.helps.retain(|help| help.0 != row);
        self.count_chores();
        let error = self.error_of(row);
        let offered = self.rows[row as usize].offered.values_mut();
        for offered in offered.filter(|offered| matches!(offered.todo, Todo::Push(..))) {
            offered.todo = Todo::End(Err(error.clone()));
        }
    }

    /// Nothing is left of the peer of `row`: what it has not received by now it never does.
    pub(super) fn end_all_offered(&mut self, row: u32) {
        let numbers: Vec<_> = self.rows[row as usize].offered.keys().copied().collect();
        for number in numbers {
            self.transport.deregister(row, number);
            let error = self.error_of(row);
            self.end_offered(row, number, Err(error));
        }
    }

    // Help.

    /// The peer pulls a message and invites this side to copy, too.
    pub(crate) fn begin_help(&mut self, row: u32, number: u64, bytes: u64, place: &[u8]) {
        let Some(entry) = self.rows.get(row as usize) else { return };
        let Some(offered) = entry.offered.get(&number) else { return };
        if offered.todo != Todo::Wait || bytes > offered.total {
            return;
        }
        if let Some(help) = self.transport.start_help(row, number, &offered.stretches, place, bytes)
        {
            self.helps.push((row, number, help));
            self.count_chores();
        }
    }

    fn end_help(&mut self, row: u32, number: u64) {
        self.helps.retain(|help| (help.0, help.1) != (row, number));
        self.count_chores();
    }

    /// Whether a message is being copied to a peer.
    pub(crate) fn is_helping(&self) -> bool {
        !self.helps.is_empty()
    }

    /// Copies a piece of each message that is pulled. True if anything was copied.
    pub(crate) fn step_helps(&mut self) -> bool {
        let mut has_news = false;
        let mut index = 0;
        while let Some((row, number, help)) = self.helps.get_mut(index) {
            let (row, number) = (*row, *number);
            if self.transport.help(row, help) == Helped::More {
                has_news = true;
                index += 1;
            } else {
                self.helps.swap_remove(index);
                // The receiver may be asleep.
                self.notify(row, number, Verb::Helped, 0);
            }
        }
        self.count_chores();
        has_news
    }

    /// The data of a message that was offered has been sent.
    pub(super) fn end_data(&mut self, row: u32, pending: Pending) {
        let Pending { operation, envelope, memory, inner, is_acked, .. } = pending;
        self.has_news = true;
        let (Some(operation), Some(inner)) = (operation, inner) else { return };
        let Envelope { tag, immediate, wants, .. } = inner;
        let (source, bytes) = (self.peer_of(row), memory.len() as u64);
        let status = Status { source, tag, bytes, immediate };
        self.transport.count_sent(row, bytes);
        if wants == Wants::Nothing || is_acked {
            return self.operations.end(operation, Ok(status), Some(memory));
        }
        let (number, is_offer) = (envelope.tag, true);
        self.rows[row as usize].unacknowledged.push_back(Unacknowledged {
            number,
            is_offer,
            operation,
            status,
            memory,
        });
    }
}
