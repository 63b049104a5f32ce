//! One peer: its socket, its link, what has arrived and what waits to leave.

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::os::fd::{AsFd as _, BorrowedFd};

use corewire_endpoint::transport::{Gone, LossReason, PeerViolation};
use corewire_endpoint::{Arrival, Envelope, Fragment, Peer, Place, Source, Space, Wants};
use corewire_layout::net::{FRAME_BYTES_MAX, FrameKind, FrameWants, HEADER_BYTES_MAX, Header};
use rustix::event::epoll::EventFlags;

use crate::link::{Head, Link};
use crate::open::Opened;
use crate::wire::{Got, Wire};

/// No more frames are added to what waits to leave than up to here.
const GATHERED_BYTES_MAX: usize = 64 << 10;
/// Writes under way. A kernel counts about 1 KiB for each, however short: beyond this, what is to be sent is gathered until the
/// other side has taken some. Otherwise its kernel would close the window while it is stopped, and this one end the connection.
const WRITES_MAX: usize = 256;

#[derive(Debug)]
pub(super) struct Connection {
    wire: Wire,
    link: Link,
    /// What the peer may send before some of it is taken.
    credit_bytes: usize,
    /// What waits to leave, from `out_at` on.
    out: Vec<u8>,
    out_at: usize,
    /// Of each write of which the other side may not have taken all: how many bytes of frames were begun by then.
    writes: VecDeque<u64>,
    /// The other side waits to be told that it may send: then all leaves.
    must_tell: bool,
    /// What has arrived, from `start` on.
    arrived: Vec<u8>,
    start: usize,
    /// The message at the head.
    message: Option<Message>,
    /// Whether the kernel may have more.
    is_readable: bool,
    /// What the engine calls the peer, if messages may go the short way.
    pub(super) generation: u32,
    pub(super) is_held: bool,
    /// What the kernel was last told to wait for.
    watched: EventFlags,
    /// Why nothing more can be sent.
    unsendable: Option<ErrorKind>,
    /// The peer has broken the rules.
    broken: Option<PeerViolation>,
    /// How it has ended, until the engine is told; and whether it has ended.
    end: Option<Gone>,
    is_over: bool,
    /// It was cut off: nothing of it is taken.
    is_silent: bool,
}

/// The message at the head, of which so many bytes were taken.
#[derive(Debug, Clone, Copy)]
struct Message {
    envelope: Envelope,
    total: u64,
    taken: u64,
}

impl Connection {
    pub(super) fn new(opened: Opened) -> Self {
        let Opened { wire, arrived, own, other } = opened;
        Self {
            wire,
            link: Link::new(&own, &other),
            credit_bytes: usize::try_from(own.credit_bytes).unwrap_or(usize::MAX),
            out: Vec::new(),
            out_at: 0,
            writes: VecDeque::new(),
            must_tell: false,
            arrived,
            start: 0,
            message: None,
            is_readable: true,
            generation: 0,
            is_held: false,
            watched: EventFlags::IN,
            unsendable: None,
            broken: None,
            end: None,
            is_over: false,
            is_silent: false,
        }
    }

    pub(super) fn socket(&self) -> BorrowedFd<'_> {
        self.wire.as_fd()
    }

    pub(super) fn is_open(&self, peer: Peer) -> bool {
        let is_it = self.generation != 0 && self.generation == peer.generation();
        is_it && !self.is_over && self.unsendable.is_none()
    }

    // What the kernel has to tell.

    /// What is to be waited for, if that is not what the kernel was told last.
    pub(super) fn changed_flags(&mut self) -> Option<EventFlags> {
        let flags = self.flags();
        (std::mem::replace(&mut self.watched, flags) != flags).then_some(flags)
    }

    fn flags(&self) -> EventFlags {
        let waits_for_more = !self.is_over && !self.is_full();
        let reads = if waits_for_more { EventFlags::IN } else { EventFlags::empty() };
        let has_some = self.wire.has_waiting()
            || self.waiting_bytes() > 0 && (self.writes.len() < WRITES_MAX || self.must_tell);
        reads | if has_some { EventFlags::OUT } else { EventFlags::empty() }
    }

    /// It is read next, without a word of the kernel that it has something.
    pub(super) fn suppose_readable(&mut self) {
        self.is_readable |= !self.is_over && !self.is_full();
    }

    /// Gives back memory that nothing lies in.
    pub(super) fn shrink(&mut self) {
        if self.start == self.arrived.len() {
            (self.arrived, self.start) = (Vec::new(), 0);
        }
        if self.out_at == self.out.len() {
            (self.out, self.out_at) = (Vec::new(), 0);
        }
        if self.writes.is_empty() {
            self.writes = VecDeque::new();
        }
        self.wire.shrink();
    }

    pub(super) fn note(&mut self, flags: EventFlags) {
        self.is_readable |= flags.intersects(EventFlags::IN | EventFlags::HUP | EventFlags::ERR);
    }

    /// Whether there may be something to take.
    pub(super) fn may_have(&self) -> bool {
        let has_some = self.start < self.arrived.len() || self.broken.is_some();
        !self.is_silent && (self.is_readable || has_some)
    }

    /// Whether as much has arrived and was not taken as the peer may send.
    fn is_full(&self) -> bool {
        self.arrived.len() - self.start >= self.credit_bytes
    }

    /// Reads what has arrived, although it is not taken yet.
    pub(super) fn read_ahead(&mut self) {
        while !self.is_full() && self.fill() {}
    }

    pub(super) const fn has_ended(&self) -> bool {
        self.is_over
    }

    /// How it has ended, if that is news.
    pub(super) fn take_end(&mut self) -> Option<Gone> {
        self.end.take()
    }

    /// Ends it: nothing more of it is taken, whatever has arrived. False if it had ended.
    pub(super) fn is_cut_off(&mut self) -> bool {
        let had_ended = std::mem::replace(&mut self.is_over, true);
        (self.out, self.out_at) = (Vec::new(), 0);
        (self.arrived, self.start) = (Vec::new(), 0);
        (self.is_silent, self.is_readable) = (true, false);
        // The other side learns of it at once.
        self.wire.end();
        !had_ended
    }

    /// The peer has made another connection, and has forgotten this one.
    pub(super) fn is_replaced(&mut self) {
        self.lose(ErrorKind::ConnectionReset);
        self.wire.end();
    }

    fn end(&mut self, how: Gone) {
        if !std::mem::replace(&mut self.is_over, true) {
            self.end = Some(how);
        }
    }

    fn lose(&mut self, kind: ErrorKind) {
        let reason = match kind {
            ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => LossReason::Reset,
            ErrorKind::TimedOut | ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable => {
                LossReason::Silent
            }
            _ => LossReason::Ended,
        };
        self.end(Gone::Lost(self.link.loss(reason)));
    }

    // Sending.

    /// Whether a whole message of `bytes` bytes can be sent now.
    pub(super) fn has_room(&self, bytes: u64) -> bool {
        let frames = bytes.div_ceil(FRAME_BYTES_MAX).max(1);
        let needed = bytes + frames * HEADER_BYTES_MAX as u64;
        self.waiting_bytes() < GATHERED_BYTES_MAX && frames == 1 && self.link.room() >= needed
    }

    /// Whether something is to leave.
    pub(super) fn must_flush(&self) -> bool {
        !self.is_over && (self.has_waiting() || self.link.is_credit_due())
    }

    /// Whether something was sent that the kernel has not taken.
    pub(super) fn has_waiting(&self) -> bool {
        !self.is_over
            && self.unsendable.is_none()
            && (self.waiting_bytes() > 0 || self.wire.has_waiting())
    }

    fn waiting_bytes(&self) -> usize {
        self.out.len() - self.out_at
    }

    /// Adds frames of a message, from byte `sent` on, to what leaves next. False if not all of them: there is no room.
    pub(super) fn send(
        &mut self,
        envelope: &Envelope,
        source: &impl Source,
        sent: &mut u64,
    ) -> bool {
        let total = source.bytes();
        loop {
            if self.is_over || self.unsendable.is_some() {
                return false;
            }
            if self.waiting_bytes() >= GATHERED_BYTES_MAX {
                self.flush();
                if self.waiting_bytes() >= GATHERED_BYTES_MAX {
                    return false;
                }
            }
            let bytes = (total - *sent).min(FRAME_BYTES_MAX);
            let Some((head, length)) = self.link.begin(&header_of(envelope, total, *sent, bytes))
            else {
                return false;
            };
            self.out.extend_from_slice(&head[..length]);
            let at = self.out.len();
            self.out.resize(at + usize::try_from(bytes).unwrap_or(0), 0);
            source.fill(*sent, &mut Fragment::private(&mut self.out[at..]));
            *sent += bytes;
            self.out.extend(self.link.credit().into_iter().flatten());
            if *sent == total {
                return true;
            }
        }
    }

    /// Tells the peer how much of what it has sent was received, before this side waits.
    pub(super) fn tell(&mut self) {
        // A peer that reads nothing adds nothing to what waits to leave.
        if !self.is_over && !self.has_waiting() {
            self.out.extend(self.link.credit().into_iter().flatten());
        }
    }

    /// Gives the kernel what waits to leave, and behind it what the peer must be told.
    pub(super) fn flush(&mut self) {
        let (begun, taken) = self.link.counted();
        while self.writes.front().is_some_and(|end| *end <= taken) {
            self.writes.pop_front();
        }
        while self.unsendable.is_none() && !self.is_over {
            // Not behind much that a peer does not read.
            if self.link.is_credit_due() && self.waiting_bytes() < GATHERED_BYTES_MAX {
                self.out.extend(self.link.credit().into_iter().flatten());
                self.must_tell = true;
            }
            let written = if self.waiting_bytes() == 0 {
                if !self.wire.has_waiting() {
                    break;
                }
                self.wire.flush().map(|()| 0)
            } else if self.writes.len() >= WRITES_MAX && !self.must_tell {
                return;
            } else {
                self.wire.write(&self.out[self.out_at..])
            };
            match written {
                Ok(count) => {
                    self.out_at += count;
                    if self.writes.back().is_none_or(|end| *end < begun) {
                        self.writes.push_back(begun);
                    }
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) => {
                    // Behind a gap nothing may follow. What has arrived before is read; the end is found behind it.
                    self.unsendable = Some(error.kind());
                    self.is_readable = true;
                    self.wire.end_writing();
                }
            }
        }
        (self.out_at, self.must_tell) = (0, false);
        self.out.clear();
    }

    /// This side closes: says so, as far as the kernel takes it at once. What it has not read is to be
    /// [read](crate::tcp::Closing) by then, or the other side may not get all of it.
    pub(super) fn leave(mut self) -> Option<Wire> {
        if self.is_over || !self.wire.is_ours() {
            return None;
        }
        self.out.extend_from_slice(&Link::leave());
        self.must_tell = true;
        self.flush();
        self.wire.end_writing();
        Some(self.wire)
    }

    // Receiving.

    /// Reads what the kernel has. True if that was anything.
    fn fill(&mut self) -> bool {
        if !self.is_readable || self.is_over {
            return false;
        }
        self.arrived.drain(..self.start);
        self.start = 0;
        let before = self.arrived.len();
        match self.wire.read(&mut self.arrived) {
            Ok(Got::End) => self.lose(self.unsendable.unwrap_or(ErrorKind::UnexpectedEof)),
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
            Err(error) => self.lose(error.kind()),
        }
        self.is_readable = false;
        false
    }

    /// The first bytes of what has arrived.
    pub(super) fn arrived(&self, bytes: usize) -> &[u8] {
        self.arrived.get(self.start..self.start + bytes).unwrap_or_default()
    }

    /// What lies at the head.
    pub(super) fn arrival(&mut self) -> Result<Option<Arrival>, PeerViolation> {
        let mut has_read = false;
        loop {
            if self.is_silent {
                return Ok(None);
            }
            if let Some(violation) = self.broken {
                return Err(violation);
            }
            let rest = self.arrived.get(self.start..).unwrap_or_default();
            let (used, head) = self.link.advance(rest).inspect_err(|it| self.broken = Some(*it))?;
            self.start += used;
            match head {
                Head::Frame(header, taken) => {
                    let left = header.payload_bytes() - taken;
                    let there = self.arrived.len() - self.start;
                    let bytes = usize::try_from(left).unwrap_or(usize::MAX).min(there);
                    if bytes > 0 || left == 0 {
                        return self.arrival_of(&header, taken, bytes).map(Some);
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

    fn arrival_of(
        &mut self,
        header: &Header,
        taken: u64,
        bytes: usize,
    ) -> Result<Arrival, PeerViolation> {
        let message = match self.message {
            // Seen before, or the next part of it.
            Some(message) if message.taken == 0 || taken > 0 || header.kind == FrameKind::Rest => {
                message
            }
            Some(message) => {
                // The next part of a large message, and nothing else.
                let left = message.total - message.taken;
                let is_next = header.kind == FrameKind::Data
                    && header.number == message.envelope.tag
                    && header.immediate == Some(left);
                if !is_next {
                    let violation = PeerViolation {
                        word: "a frame within a message",
                        found: left,
                        position: 0,
                    };
                    self.broken = Some(violation);
                    return Err(violation);
                }
                message
            }
            None => *self.message.insert(Message::of(header)),
        };
        let Message { envelope, total, taken } = message;
        Ok(Arrival { envelope, total, bytes, is_first: taken == 0, place: Place::Slots })
    }

    /// The engine has taken so many bytes. True if the peer should be told.
    pub(super) fn pass(&mut self, bytes: usize) -> bool {
        self.start += bytes;
        if let Err(violation) = self.link.pass(bytes as u64) {
            self.broken = Some(violation);
        }
        if let Some(message) = &mut self.message {
            message.taken += bytes as u64;
            if message.taken == message.total {
                self.message = None;
            }
        }
        self.link.is_credit_due()
    }
}

impl Message {
    fn of(header: &Header) -> Self {
        let Header { kind, wants, bytes, number, immediate, total } = *header;
        let space = match kind {
            FrameKind::Untagged => Space::Untagged,
            FrameKind::Request => Space::Request,
            FrameKind::Reply => Space::Reply,
            FrameKind::Dropped => Space::Dropped,
            FrameKind::Acknowledgement => Space::Acknowledgement,
            FrameKind::Offer => Space::Offer,
            FrameKind::Notice => Space::Notice,
            FrameKind::Data => Space::Data,
            FrameKind::Tagged | FrameKind::Rest | FrameKind::Credit | FrameKind::Leave => {
                Space::Tagged
            }
        };
        let wants = match wants {
            FrameWants::Nothing => Wants::Nothing,
            FrameWants::Delivery => Wants::Delivery,
            FrameWants::Match => Wants::Match,
        };
        let (immediate, total) = match kind {
            FrameKind::Data => (None, immediate.unwrap_or(bytes)),
            _ => (immediate, total.unwrap_or(bytes)),
        };
        Self { envelope: Envelope { space, tag: number, immediate, wants }, total, taken: 0 }
    }
}

/// The header of the next frame of a message.
fn header_of(envelope: &Envelope, total: u64, sent: u64, bytes: u64) -> Header {
    let Envelope { space, tag, immediate, wants } = *envelope;
    let kind = match space {
        Space::Tagged => FrameKind::Tagged,
        Space::Untagged => FrameKind::Untagged,
        Space::Request => FrameKind::Request,
        Space::Reply => FrameKind::Reply,
        Space::Dropped => FrameKind::Dropped,
        Space::Acknowledgement => FrameKind::Acknowledgement,
        Space::Offer => FrameKind::Offer,
        Space::Notice => FrameKind::Notice,
        Space::Data => FrameKind::Data,
    };
    if kind == FrameKind::Data {
        return Header { immediate: Some(total - sent), ..Header::new(kind, tag, bytes) };
    }
    if sent > 0 {
        return Header::new(FrameKind::Rest, sent, bytes);
    }
    let wants = match wants {
        Wants::Nothing => FrameWants::Nothing,
        Wants::Delivery => FrameWants::Delivery,
        Wants::Match => FrameWants::Match,
    };
    let total = (total > bytes).then_some(total);
    Header { wants, immediate, total, ..Header::new(kind, tag, bytes) }
}
