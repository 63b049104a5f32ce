//! Sending.

use std::time::Duration;

use corewire_layout::pair::PAIR_INLINE_BYTES_MAX;
use corewire_ring::pair::Source;

use super::buffer::{Buffer, Gathered};
use super::progress::Pending;
use super::requests::{Operation, Request};
use super::{Endpoint, Peer, Status, after};
use crate::error::MessageError;
use crate::wait::Patience;

impl Endpoint {
    /// Sends `message` to `peer`, waiting for room if need be. When this returns, it may be used again; the
    /// peer need not have received it.
    ///
    /// A message that has begun to go when the call is interrupted goes on by itself, and the call returns
    /// as if it had gone.
    ///
    /// # Errors
    /// [`MessageError::PeerDied`], `PeerLeft`, `PeerCutOff`, `UnknownPeer`, `Interrupted`, `Forked`, or
    /// `Os`: no memory for a ring.
    #[inline(always)]
    pub fn send(&mut self, peer: Peer, tag: u64, message: &[u8]) -> Result<(), MessageError> {
        if self.try_inject(peer, tag, message) {
            return Ok(());
        }
        self.send_slowly(peer, tag, &message, Patience::Forever)
    }

    /// Sends the bytes of `parts`, one after the other, as one message.
    ///
    /// # Errors
    /// As for [`send`](Self::send).
    pub fn send_gather(
        &mut self,
        peer: Peer,
        tag: u64,
        parts: &[&[u8]],
    ) -> Result<(), MessageError> {
        self.send_slowly(peer, tag, &Gathered(parts), Patience::Forever)
    }

    /// Sends `message` if there is room for it, or for its beginning, now.
    ///
    /// # Errors
    /// [`MessageError::Full`] if there is not; otherwise as for [`send`](Self::send).
    pub fn try_send(&mut self, peer: Peer, tag: u64, message: &[u8]) -> Result<(), MessageError> {
        if self.try_inject(peer, tag, message) {
            return Ok(());
        }
        let sent = self.send_slowly(peer, tag, &message, Patience::None);
        sent.map_err(|error| {
            let name = self.rows.get(peer.row as usize).and_then(|row| row.name.clone());
            match (error, name) {
                (MessageError::Timeout { .. }, Some(name)) => MessageError::Full { name },
                (other, _) => other,
            }
        })
    }

    /// As [`send`](Self::send), waiting for at most `timeout`.
    ///
    /// # Errors
    /// [`MessageError::Timeout`]; otherwise as for [`send`](Self::send).
    pub fn send_timeout(
        &mut self,
        peer: Peer,
        tag: u64,
        message: &[u8],
        timeout: Duration,
    ) -> Result<(), MessageError> {
        self.send_slowly(peer, tag, &message, Patience::until(timeout))
    }

    /// Begins to send `buffer`, and never waits. It comes back when the send has ended; one that fits now
    /// has ended at once.
    ///
    /// # Errors
    /// As for [`send`](Self::send); what goes wrong later is the operation's result.
    pub fn isend(
        &mut self,
        peer: Peer,
        tag: u64,
        buffer: impl Into<Buffer>,
    ) -> Result<Request, MessageError> {
        let mut buffer = buffer.into();
        if self.pairs.has_notice() {
            self.attend()?;
        }
        let row = self.row_of(peer)?;
        let request = self.requests.add(Operation::Send { to: peer });
        let mut sent = 0;
        let mut done = Ok(false);
        if self.rows[row as usize].sends.is_empty() {
            let short = buffer.short();
            let short = short.as_ref().map(|(bytes, length)| &bytes[..*length]);
            done = self.push(row, tag, &buffer, short, &mut sent);
        }
        match done {
            Ok(true) => {
                let status = Status { source: peer, tag, bytes: buffer.len() as u64 };
                self.requests.end(request.index, Ok(status), Some(std::mem::take(&mut buffer)));
            }
            Ok(false) => {
                let pending = Pending { request: Some(request.index), tag, buffer, sent };
                self.send_later(row, pending);
            }
            Err(error) => self.requests.end(request.index, Err(error), Some(buffer)),
        }
        Ok(request)
    }

    /// Sends a message that takes a slot or two, or a part of a cell, if nothing stands in its way. The way of
    /// most messages.
    #[inline(always)]
    fn try_inject(&mut self, peer: Peer, tag: u64, message: &[u8]) -> bool {
        if self.pairs.has_notice() || !self.pairs.is_open(peer.row, peer.generation) {
            return false;
        }
        if message.len() > PAIR_INLINE_BYTES_MAX {
            return self.try_inject_in_cell(peer.row, tag, message);
        }
        self.pairs.try_send(peer.row, tag, message)
    }

    #[inline(never)]
    fn try_inject_in_cell(&mut self, row: u32, tag: u64, message: &[u8]) -> bool {
        let is_one = message.len() as u64 <= self.pairs.sizes().cell_bytes();
        self.has_cells && is_one && self.pairs.send_fragment(row, tag, &message, 0) > 0
    }

    /// The slow half of every send.
    #[cold]
    #[inline(never)]
    fn send_slowly(
        &mut self,
        peer: Peer,
        tag: u64,
        source: &(impl Source + Whole),
        patience: Patience,
    ) -> Result<(), MessageError> {
        if self.pairs.has_notice() {
            self.attend()?;
        }
        let short = source.short();
        let short = short.as_ref().map(|(bytes, length)| &bytes[..*length]);
        let mut sent = 0;
        let send = |endpoint: &mut Self, sent: &mut u64| {
            let row = match endpoint.row_of(peer) {
                Ok(row) => row,
                Err(error) => return Some(Err(error)),
            };
            if !endpoint.rows[row as usize].sends.is_empty() {
                return None;
            }
            match endpoint.push(row, tag, source, short, sent) {
                Ok(true) => Some(Ok(())),
                Ok(false) => None,
                Err(error) => Some(Err(error)),
            }
        };
        // Before anything is waited for.
        if let Some(end) = send(self, &mut sent) {
            return end;
        }
        let room = Some((peer.row, source.bytes() > PAIR_INLINE_BYTES_MAX as u64));
        let ended = match patience {
            Patience::None => Err(MessageError::Timeout { after: Duration::ZERO }),
            _ => self.wait_for(patience, None, room, |endpoint, _| send(endpoint, &mut sent)),
        };
        match ended {
            Ok(end) => end,
            Err(MessageError::Forked) => Err(MessageError::Forked),
            Err(_) if sent > 0 => {
                // Its peer has seen the beginning.
                let buffer = Buffer::from(source.to_vec());
                self.send_later(peer.row, Pending { request: None, tag, buffer, sent });
                Ok(())
            }
            Err(MessageError::Timeout { .. }) => {
                Err(MessageError::Timeout { after: after(patience) })
            }
            Err(other) => Err(other),
        }
    }
}

/// A message of a call.
trait Whole {
    /// Its bytes, if they travel in slots.
    fn short(&self) -> Option<([u8; PAIR_INLINE_BYTES_MAX], usize)>;
    fn to_vec(&self) -> Vec<u8>;
}

impl Whole for &[u8] {
    fn short(&self) -> Option<([u8; PAIR_INLINE_BYTES_MAX], usize)> {
        Gathered(&[self]).short()
    }

    fn to_vec(&self) -> Vec<u8> {
        (*self).to_owned()
    }
}

impl Whole for Gathered<'_> {
    fn short(&self) -> Option<([u8; PAIR_INLINE_BYTES_MAX], usize)> {
        Gathered::short(self)
    }

    fn to_vec(&self) -> Vec<u8> {
        Gathered::to_vec(*self)
    }
}
