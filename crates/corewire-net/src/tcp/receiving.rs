//! What comes from a peer.
//!
//! One system call reads the header and the beginning of a message, and what lies behind it. What is left of a long frame then
//! is received where it goes: [`arrival`](Connection::arrival) tells of it while it still lies in the kernel.

use std::io::ErrorKind;

use corewire_endpoint::transport::{Gone, PeerViolation};
use corewire_endpoint::{Arrival, Place, Sink, Space, Wanted};
use corewire_layout::net::{FrameKind, HEADER_BYTES_MIN, Header};
use corewire_os::stream;

use super::connection::{Connection, DIRECT_BYTES};
use super::message::Message;
use crate::link::Head;
use crate::wire::{Got, READ_BYTES};

/// What one system call reads while large frames come.
const READ_BYTES_BETWEEN: usize = 4 << 10;

impl Connection {
    /// Whether there may be something to take.
    pub(super) fn may_have(&self) -> bool {
        let has_some = self.has_more() || self.broken.is_some() || self.link.has_empty();
        !self.is_silent && (self.may_read() || has_some && !self.pulls.has_head())
    }

    /// Whether the kernel may have something.
    pub(super) fn may_read(&self) -> bool {
        self.is_readable && !self.is_over
    }

    /// Whether something has been read that was not taken.
    #[inline]
    pub(super) fn has_more(&self) -> bool {
        self.start < self.arrived.len()
    }

    /// Reads what has arrived, although it is not taken yet: what lies behind it may let this side send more.
    pub(super) fn read_ahead(&mut self) {
        loop {
            if self.broken.is_none() {
                match self.link.foresee(&mut self.arrived, self.start) {
                    Ok(true) if !self.is_over => self.end(Gone::Left),
                    Ok(_) => {}
                    // It is found again where it lies.
                    Err(violation) => self.broken = Some(violation),
                }
            }
            if self.is_full() || !self.fill() {
                return;
            }
        }
    }

    /// Reads what the kernel has. True if that was anything.
    pub(super) fn fill(&mut self) -> bool {
        if !self.is_readable || self.is_over {
            return false;
        }
        self.arrived.drain(..self.start);
        self.start = 0;
        self.in_kernel.set(None);
        let before = self.arrived.len();
        let bytes = if self.is_large { READ_BYTES_BETWEEN } else { READ_BYTES };
        match self.wire.read(&mut self.arrived, bytes) {
            Ok(Got::End) => self.lose_behind(ErrorKind::UnexpectedEof),
            Ok(Got::Some { may_have_more }) => {
                // The kernel says so if there is more by now.
                self.is_readable = may_have_more;
                return self.arrived.len() > before;
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => return false,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) if error.kind() == ErrorKind::InvalidData => {
                // What came before is whole, and is received.
                let (word, found) = ("a record of TLS", 0);
                self.end(Gone::CutOff(PeerViolation { word, found, position: 0 }));
                self.wire.end();
            }
            Err(error) => self.lose_behind(error.kind()),
        }
        self.is_readable = false;
        false
    }

    /// Nothing more comes: the peer has left, if it has said so by then.
    fn lose_behind(&mut self, kind: ErrorKind) {
        match self.link.foresee(&mut self.arrived, self.start) {
            Ok(true) => self.end(Gone::Left),
            _ => self.lose(self.unsendable.unwrap_or(kind)),
        }
    }

    /// The first bytes of what has arrived.
    pub(super) fn arrived(&self, bytes: usize) -> &[u8] {
        self.arrived.get(self.start..self.start + bytes).unwrap_or_default()
    }

    /// Takes the message at the head, if it is short, has arrived, and is `wanted`: the usual way of most messages. `source` are
    /// the peer's bits. Returns its tag and its length.
    #[inline]
    pub(super) fn take_plain(
        &mut self,
        wanted: &Wanted,
        source: u64,
        target: &mut [u8],
    ) -> Option<(u64, usize)> {
        let rest = self.arrived.get(self.start..)?;
        let (first, rest) = rest.split_first_chunk()?;
        let (tag, rest) = rest.split_first_chunk()?;
        let (has_tag, bytes) = Header::plain(u64::from_le_bytes(*first))?;
        let (tag, bytes) = (u64::from_le_bytes(*tag), usize::try_from(bytes).ok()?);
        let space = if has_tag { Space::Tagged } else { Space::Untagged };
        let is_it = space == wanted.space && wanted.takes(source, tag);
        let may_go = !self.is_held && self.message.is_none() && self.broken.is_none();
        let (from, to) = (rest.get(..bytes)?, target.get_mut(..bytes)?);
        let frame = HEADER_BYTES_MIN + bytes;
        if !is_it || !may_go || !self.link.is_taken(frame as u64) {
            return None;
        }
        to.copy_from_slice(from);
        self.start += frame;
        Some((tag, bytes))
    }

    /// What lies at the head.
    pub(super) fn arrival(&mut self) -> Result<Option<Arrival>, PeerViolation> {
        let mut has_read = false;
        loop {
            if self.is_silent {
                return Ok(None);
            }
            if self.is_behind() {
                // A peer that does not read gets no answers, and so asks for no more. What it lets this side send counts.
                self.read_ahead();
                return Ok(None);
            }
            if let Some(violation) = self.broken {
                return Err(violation);
            }
            let rest = self.arrived.get(self.start..).unwrap_or_default();
            let (used, head) = self.link.advance(rest).inspect_err(|it| self.broken = Some(*it))?;
            self.start += used;
            match head {
                Head::Word(header) => {
                    self.take_word(&header).inspect_err(|it| self.broken = Some(*it))?;
                    continue;
                }
                Head::Frame(header, taken) => {
                    let left = header.payload_bytes() - taken;
                    let there = self.arrived.len() - self.start;
                    self.is_large = left >= DIRECT_BYTES || taken > 0 && self.is_large;
                    if header.kind == FrameKind::Piece {
                        match self.piece_at_head(&header, left, there)? {
                            true => continue,
                            false if self.pulls.has_head() => return Ok(None),
                            false => {}
                        }
                    } else {
                        let bytes = usize::try_from(left).unwrap_or(usize::MAX).min(there);
                        if bytes > 0 || left == 0 {
                            return Ok(Some(self.arrival_of(&header, bytes, Place::Slots)));
                        }
                        let bytes = self.in_kernel(left);
                        if bytes > 0 {
                            return Ok(Some(self.arrival_of(&header, bytes, Place::Elsewhere)));
                        }
                    }
                }
                Head::Left => {
                    self.end(Gone::Left);
                    return Ok(None);
                }
                Head::More => {}
            }
            // Once: a peer that sends without end must not keep this side from the others.
            if std::mem::replace(&mut has_read, true) || !self.fill() {
                return Ok(None);
            }
        }
    }

    /// How much of what is left of a frame lies in the kernel, and is to be received from there. 0 also if it is too short.
    pub(super) fn in_kernel(&self, left: u64) -> usize {
        if left < DIRECT_BYTES || self.wire.is_tls() || !self.may_read() {
            return 0;
        }
        if let Some(known) = self.in_kernel.get() {
            return known;
        }
        let most = usize::try_from(left).unwrap_or(usize::MAX);
        let found = stream::arrived(&self.wire).unwrap_or(0).min(most);
        self.in_kernel.set((found > 0).then_some(found));
        found
    }

    fn arrival_of(&mut self, header: &Header, bytes: usize, place: Place) -> Arrival {
        let message = *self.message.get_or_insert_with(|| Message::of(header));
        let Message { envelope, total, taken } = message;
        Arrival { envelope, total, bytes, is_first: taken == 0, place }
    }

    /// Copies an arrival to where it goes.
    pub(super) fn copy(&self, arrival: &Arrival, at: usize, sink: &mut (impl Sink + ?Sized)) {
        if arrival.place != Place::Elsewhere {
            sink.put(at, self.arrived(arrival.bytes));
            return;
        }
        while self.received.get() < arrival.bytes {
            let before = self.received.get();
            match stream::receive_to(&self.wire, sink, at + before, arrival.bytes - before) {
                Ok(count) if count > 0 => self.received.set(before + count),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // There is no more room. What is left is thrown away.
                _ => return,
            }
        }
    }

    /// The engine has taken so many bytes. True if the peer should be told.
    pub(super) fn pass(&mut self, arrival: &Arrival) -> bool {
        let bytes = arrival.bytes;
        self.in_kernel.set(None);
        if arrival.place == Place::Elsewhere {
            self.discard_to(bytes);
        } else {
            self.start += bytes;
        }
        if let Err(violation) = self.link.pass(bytes as u64) {
            self.broken = Some(violation);
        }
        if let Some(message) = &mut self.message {
            message.taken += bytes as u64;
            if message.taken == message.total {
                self.message = None;
            }
        }
        self.is_credit_due()
    }

    /// Throws away what nobody has received of so many bytes that lie in the kernel.
    fn discard_to(&mut self, bytes: usize) {
        let mut received = self.received.take();
        while received < bytes {
            match stream::discard(&self.wire, bytes - received) {
                Ok(count) if count > 0 => received += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // They were there: the connection has been cut.
                Ok(_) => return self.lose(ErrorKind::UnexpectedEof),
                Err(error) => return self.lose(error.kind()),
            }
        }
    }
}
