//! Sending: at once, or when there is room.

use corewire_ring::message::{Memory, Source};

use crate::engine::{Engine, Pending};
use crate::error::MessageError;
use crate::operations::{Operation, OperationHandle, Options};
use crate::selector::{Peer, Status};
use crate::transport::{Room, SendError, Transport};

impl<T: Transport> Engine<T> {
    /// Sends a short message, if nothing stands in its way. False if not; nothing was done then. Most
    /// messages go this way.
    #[inline(always)]
    pub fn try_inject(&mut self, peer: Peer, tag: u64, message: &[u8]) -> bool {
        !self.transport.has_notice()
            && self.transport.try_inject(peer.row, peer.generation, tag, message)
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
        tag: u64,
        source: &impl Source,
        sent: &mut u64,
    ) -> Result<bool, MessageError> {
        let row = self.row_of(peer)?;
        // In order behind what waits.
        if !self.rows[row as usize].sends.is_empty() {
            return Ok(false);
        }
        self.push(row, tag, source, sent)
    }

    /// Sends the rest of a message, of which `sent` bytes have been sent, as soon as there is room.
    pub fn send_rest(&mut self, peer: Peer, tag: u64, memory: Memory, sent: u64) {
        if let Ok(row) = self.row_of(peer) {
            self.send_later(row, Pending { operation: None, tag, memory, sent });
        }
    }

    /// Begins to send `memory`, and never waits. A message that fits now has been sent when this returns.
    ///
    /// # Errors
    /// As for [`send_step`](Self::send_step); what fails later is the operation's result.
    pub fn start_send(
        &mut self,
        peer: Peer,
        tag: u64,
        memory: Memory,
        options: Options,
    ) -> Result<OperationHandle, MessageError> {
        let row = self.row_of(peer)?;
        let handle = self.operations.add(Operation::Send { to: peer }, options);
        let mut sent = 0;
        match self.send_step(peer, tag, &memory, &mut sent) {
            Ok(true) => {
                let status = Status { source: peer, tag, bytes: memory.len() as u64 };
                self.operations.end(handle.index, Ok(status), Some(memory));
            }
            Ok(false) => {
                let pending = Pending { operation: Some(handle.index), tag, memory, sent };
                self.send_later(row, pending);
            }
            Err(error) => self.operations.end(handle.index, Err(error), Some(memory)),
        }
        Ok(handle)
    }

    /// Whether messages wait for room.
    #[must_use]
    pub fn has_pending_sends(&self) -> bool {
        !self.senders.is_empty()
    }

    /// The room that is waited for.
    #[must_use]
    pub fn wanted_room(&self) -> Vec<Room> {
        let first = |row: u32| self.rows[row as usize].sends.front();
        let bytes = |pending: &Pending| pending.memory.len() as u64 - pending.sent;
        let room = |&row: &u32| Room { row, bytes: first(row).map_or(0, bytes) };
        self.senders.iter().map(room).collect()
    }

    fn push(
        &mut self,
        row: u32,
        tag: u64,
        source: &impl Source,
        sent: &mut u64,
    ) -> Result<bool, MessageError> {
        self.transport.try_send(row, tag, source, sent).map_err(|error| match error {
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
            while let Some(mut pending) = self.rows[row as usize].sends.pop_front() {
                let before = pending.sent;
                match self.push(row, pending.tag, &pending.memory, &mut pending.sent) {
                    Ok(false) => {
                        has_news |= pending.sent > before;
                        self.rows[row as usize].sends.push_front(pending);
                        break;
                    }
                    Ok(true) => {
                        let bytes = pending.memory.len() as u64;
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
                self.transport.open(row, entry.generation);
            }
        }
        has_news
    }

    fn end_send(&mut self, pending: Pending, result: Result<Status, MessageError>) {
        if let Some(operation) = pending.operation {
            self.has_news = true;
            self.operations.end(operation, result, Some(pending.memory));
        }
    }

    /// Sends a message when there is room, in its turn.
    fn send_later(&mut self, row: u32, pending: Pending) {
        self.rows[row as usize].sends.push_back(pending);
        self.transport.open(row, 0);
        if !self.senders.contains(&row) {
            self.senders.push(row);
        }
    }

    /// The memory of a send of which nothing has been sent yet; it is never sent then.
    pub(crate) fn take_unsent(&mut self, row: u32, operation: u32) -> Option<Memory> {
        let sends = &mut self.rows[row as usize].sends;
        let is_it = |pending: &Pending| pending.operation == Some(operation) && pending.sent == 0;
        let index = sends.iter().position(is_it)?;
        sends.remove(index).map(|pending| pending.memory)
    }
}
