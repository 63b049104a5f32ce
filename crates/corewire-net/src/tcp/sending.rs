//! What goes to a peer.
//!
//! Short frames are copied behind each other, and leave with one system call. A long one leaves from where its message lies, if
//! nothing waits before it: of what the kernel does not take at once, the rest of that frame is copied.

use std::io::ErrorKind;

use corewire_endpoint::{Envelope, Fragment, Source, Space, Wants};
use corewire_layout::net::{FRAME_BYTES_MAX, FrameKind, HEADER_BYTES_MAX, HEADER_BYTES_MIN};
use corewire_layout::rendezvous::Stretch;
use smallvec::SmallVec;

use super::closing::Leaving;
use super::connection::{Connection, DIRECT_BYTES, GATHERED_BYTES_MAX};
use super::message::header_of;
use crate::link::Link;

/// What is encrypted at once: less than the longest record of TLS.
const PART_BYTES: usize = 14 << 10;
/// Messages of so many bytes with their headers go the usual way.
const PLAIN_BYTES_MAX: usize = 256;
/// Writes under way. A kernel counts about 1 KiB for each, however short: beyond this, what is to be sent is gathered until the
/// other side has taken some. Otherwise its kernel would close the window while it is stopped, and this one end the connection.
const WRITES_MAX: usize = 256;

impl Connection {
    /// Whether a whole message of `bytes` bytes, or its first frame, can be sent now.
    pub(super) fn has_room(&self, bytes: u64) -> bool {
        let bytes = bytes.min(FRAME_BYTES_MAX);
        let is_direct = bytes >= DIRECT_BYTES && !self.wire.is_tls();
        let waiting_max = if is_direct { 1 } else { GATHERED_BYTES_MAX };
        let needed = bytes + HEADER_BYTES_MAX as u64;
        let is_ours = self.asked.is_between() && !self.asked.is_their_turn();
        is_ours && self.waiting_bytes() < waiting_max && self.link.room() >= needed
    }

    /// Whether something is to leave.
    pub(super) fn must_flush(&self) -> bool {
        !self.is_over && (self.has_waiting() || self.is_credit_due())
    }

    /// Whether something was sent that the kernel has not taken.
    pub(super) fn has_waiting(&self) -> bool {
        let has_some = self.waiting_bytes() > 0 || self.wire.has_waiting() || self.asked.has_some();
        has_some && !self.is_over && self.unsendable.is_none()
    }

    /// Whether it will be sent as soon as the kernel has room.
    pub(super) fn waits_for_kernel(&self) -> bool {
        let may_begin = self.writes.len() < WRITES_MAX;
        let has_some = self.waiting_bytes() > 0 && (may_begin || self.must_tell)
            || self.asked.begun.is_some()
            || self.asked.is_wanted(&self.link) && may_begin
            || self.wire.has_waiting();
        has_some && !self.is_over && self.unsendable.is_none()
    }

    /// Whether the peer should be told now what it may send.
    #[inline]
    pub(super) fn is_credit_due(&self) -> bool {
        self.link.is_credit_due(self.start == self.arrived.len(), self.pulls.has_some())
    }

    pub(super) fn waiting_bytes(&self) -> usize {
        self.out.len() - self.out_at
    }

    /// Adds a short message without anything more to what leaves next: the usual way of most messages. False if it cannot go
    /// that way now.
    #[inline]
    pub(super) fn has_added(&mut self, envelope: &Envelope, message: &[u8]) -> bool {
        let Envelope { space, tag, immediate, wants } = envelope;
        let kind = match space {
            Space::Tagged => FrameKind::Tagged,
            Space::Untagged => FrameKind::Untagged,
            _ => return false,
        };
        let frame = HEADER_BYTES_MIN + message.len();
        let is_plain = immediate.is_none() && *wants == Wants::Nothing;
        let has_room = frame <= PLAIN_BYTES_MAX
            && self.asked.is_between()
            && !self.asked.is_their_turn()
            && self.waiting_bytes() < GATHERED_BYTES_MAX;
        if !is_plain || !has_room || !self.link.has_sent(frame as u64) {
            return false;
        }
        self.asked.note_other(frame as u64);
        let first = (message.len() as u64) << 16 | kind as u64;
        let mut bytes = [0; PLAIN_BYTES_MAX];
        bytes[..8].copy_from_slice(&first.to_le_bytes());
        bytes[8..HEADER_BYTES_MIN].copy_from_slice(&tag.to_le_bytes());
        bytes[HEADER_BYTES_MIN..frame].copy_from_slice(message);
        self.out.extend_from_slice(&bytes[..frame]);
        self.add_news();
        true
    }

    /// Sends frames of a message, from byte `sent` on. False if not all of them: there is no room.
    pub(super) fn send(
        &mut self,
        envelope: &Envelope,
        source: &impl Source,
        sent: &mut u64,
    ) -> bool {
        let total = source.bytes();
        // Where it lies, once that is needed.
        let mut stretches = SmallVec::<[Stretch; 4]>::new();
        loop {
            if self.is_over || self.unsendable.is_some() {
                return false;
            }
            let bytes = (total - *sent).min(FRAME_BYTES_MAX);
            let is_direct = bytes >= DIRECT_BYTES && !self.wire.is_tls();
            let must_wait = !self.asked.is_between() || self.asked.is_their_turn();
            if is_direct || self.waiting_bytes() >= GATHERED_BYTES_MAX || must_wait {
                self.flush();
                if !self.has_room(bytes) {
                    return false;
                }
            }
            let header = header_of(envelope, total, *sent, bytes);
            let Some((head, length)) = self.link.begin(&header) else { return false };
            self.asked.note_other(length as u64 + bytes);
            let mut gone = 0;
            if self.wire.is_tls() && bytes >= DIRECT_BYTES {
                gone = self.encrypt(&head[..length], source, *sent, bytes);
            }
            if is_direct {
                if stretches.is_empty() {
                    source.stretches(&mut |stretch| stretches.push(stretch));
                }
                gone = self.send_now(&head[..length], &stretches, *sent, bytes);
            }
            if gone < length + usize::try_from(bytes).unwrap_or(usize::MAX) {
                self.out.extend_from_slice(head[..length].get(gone..).unwrap_or_default());
                let from = (gone as u64).saturating_sub(length as u64);
                let at = self.out.len();
                self.out.resize(at + usize::try_from(bytes - from).unwrap_or(0), 0);
                source.fill(*sent + from, &mut Fragment::private(&mut self.out[at..]));
            }
            *sent += bytes;
            self.add_news();
            if *sent == total {
                return true;
            }
        }
    }

    /// Gives the session of TLS a whole frame, if nothing waits before it. Returns how many bytes it has taken: all or none.
    fn encrypt(&mut self, head: &[u8], source: &impl Source, from: u64, bytes: u64) -> usize {
        if self.waiting_bytes() > 0 || self.wire.has_waiting() {
            return 0;
        }
        // Small enough to stay in the nearest cache between the copy and the cipher.
        let mut part = [0; PART_BYTES];
        let mut filled = head.len();
        part[..filled].copy_from_slice(head);
        let mut done = 0;
        while done < bytes {
            let count = (bytes - done).min((PART_BYTES - filled) as u64);
            let end = filled + usize::try_from(count).unwrap_or(0);
            source.fill(from + done, &mut Fragment::private(&mut part[filled..end]));
            if let Err(error) = self.wire.encrypt(&part[..end]) {
                // Nothing can follow a part of a frame.
                self.note_unsendable(error.kind());
                break;
            }
            (done, filled) = (done + count, 0);
        }
        self.note_write();
        if let Err(error) = self.wire.flush()
            && error.kind() != ErrorKind::WouldBlock
        {
            self.note_unsendable(error.kind());
        }
        head.len() + usize::try_from(bytes).unwrap_or(0)
    }

    /// Gives the kernel a frame from where it lies. Returns how many bytes it has taken.
    pub(super) fn send_now(
        &mut self,
        head: &[u8],
        stretches: &[Stretch],
        from: u64,
        bytes: u64,
    ) -> usize {
        loop {
            match self.wire.send_from(head, stretches, from, bytes) {
                Ok(count) => {
                    self.note_write();
                    return count;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return 0,
                Err(error) => {
                    self.note_unsendable(error.kind());
                    return 0;
                }
            }
        }
    }

    /// Tells the peer how much of what it has sent was received, before this side waits.
    pub(super) fn tell(&mut self) {
        // A peer that reads nothing adds nothing to what waits to leave.
        if !self.is_over && self.waiting_bytes() == 0 && !self.wire.has_waiting() {
            self.add_news();
        }
    }

    /// Adds what the peer may send and how much was received of it to what leaves next, if that is new.
    #[inline]
    fn add_news(&mut self) {
        if self.link.has_news()
            && let Some((bytes, length)) = self.link.credit()
        {
            self.out.extend_from_slice(&bytes[..length]);
        }
    }

    fn note_write(&mut self) {
        let (begun, _) = self.link.counted();
        if self.writes.back().is_none_or(|end| *end < begun) {
            self.writes.push_back(begun);
        }
    }

    /// Behind a gap nothing may follow. What has arrived before is read; the end is found behind it.
    pub(super) fn note_unsendable(&mut self, kind: ErrorKind) {
        self.unsendable = Some(kind);
        self.is_readable = true;
        self.wire.end_writing();
    }

    /// Gives the kernel what waits to leave, and behind it what the peer must be told, and pieces that it wants.
    pub(super) fn flush(&mut self) {
        let (_, taken) = self.link.counted();
        while self.writes.front().is_some_and(|end| *end <= taken) {
            self.writes.pop_front();
        }
        while self.unsendable.is_none() && !self.is_over {
            if !self.asked.is_between() {
                // The rest of a piece comes before all else.
                if !self.send_piece() {
                    return;
                }
                continue;
            }
            // Whatever waits before it: two sides that both send much must hear of each other.
            if self.is_credit_due() && !self.is_behind() {
                self.grow();
                self.add_news();
                self.must_tell = true;
            }
            self.must_tell |= self.is_behind();
            if self.waiting_bytes() == 0 && !self.wire.has_waiting() {
                (self.out_at, self.must_tell) = (0, false);
                self.out.clear();
                // Between two messages: what was gathered has left, and goes on leaving between two pieces.
                if self.writes.len() >= WRITES_MAX || !self.send_piece() {
                    return;
                }
                continue;
            }
            let written = if self.waiting_bytes() == 0 {
                self.wire.flush().map(|()| 0)
            } else if self.writes.len() >= WRITES_MAX && !self.must_tell {
                return;
            } else {
                self.wire.write(&self.out[self.out_at..])
            };
            match written {
                Ok(count) => {
                    self.out_at += count;
                    if self.out_at >= GATHERED_BYTES_MAX {
                        self.out.drain(..std::mem::take(&mut self.out_at));
                    }
                    self.note_write();
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) => self.note_unsendable(error.kind()),
            }
        }
        (self.out_at, self.must_tell) = (0, false);
        self.out.clear();
    }

    /// This side closes: says so behind all that waits to leave. What it has not read is to be [read](crate::tcp::Closing) by then,
    /// or the other side may not get all of it.
    pub(super) fn leave(mut self) -> Option<Leaving> {
        if self.is_over || !self.wire.is_ours() {
            return None;
        }
        if self.asked.is_between() {
            self.out.extend_from_slice(&Link::leave());
        }
        Some(Leaving::new(self.wire, self.out.split_off(self.out_at), self.silence))
    }
}
