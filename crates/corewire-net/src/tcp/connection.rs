//! One peer: what is known of its connection, and how that ends.

use std::cell::Cell;
use std::collections::VecDeque;
use std::io::ErrorKind;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use corewire_endpoint::Peer;
use corewire_endpoint::transport::{Gone, LossReason, PeerViolation};
use corewire_os::stream;
use corewire_ring::sync::Ordering::Relaxed;
use rustix::event::epoll::EventFlags;

use super::message::Message;
use super::pieces::{Asked, Offers, Pulls};
use crate::link::{CREDIT_BYTES_MAX, Link};
use crate::open::{Opened, Traffic, keeps};
use crate::wire::Wire;

/// No more frames are added to what waits to leave than up to here.
pub(super) const GATHERED_BYTES_MAX: usize = 64 << 10;
/// Beyond so much that waits to leave nothing of the peer is taken, so that what it is told has a bound: it reads nothing.
pub(super) const WAITING_BYTES_MAX: usize = 3 * GATHERED_BYTES_MAX;
/// A frame of so many bytes leaves from where its message lies: to copy it would cost more than a system call.
pub(super) const DIRECT_BYTES: u64 = 8 << 10;
/// The kernel has the end of a connection.
pub(super) const ENDS: EventFlags = EventFlags::HUP.union(EventFlags::ERR).union(EventFlags::RDHUP);

#[derive(Debug)]
pub(super) struct Connection {
    pub(super) wire: Wire,
    pub(super) link: Link,
    traffic: Arc<Traffic>,
    /// What the peer may send before some of it is taken.
    credit_bytes: usize,
    /// Bytes that had been taken when it was looked last whether the peer may have more under way, and when that was.
    grown: (u64, Instant),
    /// A host that acknowledges nothing for so long is lost.
    pub(super) silence: Duration,

    /// What waits to leave, from `out_at` on.
    pub(super) out: Vec<u8>,
    pub(super) out_at: usize,
    /// Of each write of which the other side may not have taken all: how many bytes of frames were begun by then.
    pub(super) writes: VecDeque<u64>,
    /// The other side waits to be told that it may send: then all leaves.
    pub(super) must_tell: bool,
    /// Messages that the peer may pull, and those of which it wants pieces.
    pub(super) offers: Offers,
    pub(super) asked: Asked,
    /// Why nothing more can be sent.
    pub(super) unsendable: Option<ErrorKind>,

    /// What has arrived, from `start` on.
    pub(super) arrived: Vec<u8>,
    pub(super) start: usize,
    /// The message at the head.
    pub(super) message: Option<Message>,
    /// Messages that are pulled from the peer.
    pub(super) pulls: Pulls,
    /// Bytes of the arrival at the head that were received where they go, and lie not in `arrived`.
    pub(super) received: Cell<usize>,
    /// Large frames come: what is read besides stays short, so that they need not be copied from there.
    pub(super) is_large: bool,
    /// Whether the kernel may have more.
    pub(super) is_readable: bool,
    /// The kernel has the end of it: all before that is read.
    is_ending: bool,
    /// Bytes of the frame at the head that lie in the kernel, if that is known.
    pub(super) in_kernel: Cell<Option<usize>>,
    pub(super) is_held: bool,
    /// The peer has broken the rules.
    pub(super) broken: Option<PeerViolation>,

    /// What the engine calls the peer, if messages may go the short way.
    pub(super) generation: u32,
    /// What the kernel was last told to wait for.
    watched: EventFlags,
    /// How it has ended, until the engine is told; and whether it has ended.
    end: Option<Gone>,
    pub(super) is_over: bool,
    /// It was cut off: nothing of it is taken.
    pub(super) is_silent: bool,
}

impl Connection {
    pub(super) fn new(opened: Opened) -> Self {
        let Opened { wire, traffic, mut arrived, own, other } = opened;
        // Of many idle peers, what they said at the beginning would be the most.
        arrived.shrink_to_fit();
        Self {
            wire,
            traffic,
            link: Link::new(&own, &other),
            credit_bytes: usize::try_from(own.credit_bytes).unwrap_or(usize::MAX),
            grown: (0, Instant::now()),
            silence: Duration::from_millis(u64::from(own.silence_ms)),
            out: Vec::new(),
            out_at: 0,
            writes: VecDeque::new(),
            must_tell: false,
            offers: Offers::default(),
            asked: Asked::default(),
            unsendable: None,
            arrived,
            start: 0,
            message: None,
            pulls: Pulls::default(),
            received: Cell::new(0),
            is_large: false,
            is_readable: true,
            is_ending: false,
            in_kernel: Cell::new(None),
            is_held: false,
            broken: None,
            generation: 0,
            watched: EventFlags::IN,
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
        let waits_for_more = !self.is_over && !self.is_full() && !self.is_behind();
        let reads = if waits_for_more { EventFlags::IN } else { EventFlags::RDHUP };
        reads | if self.waits_for_kernel() { EventFlags::OUT } else { EventFlags::empty() }
    }

    /// Whether so much waits to leave that nothing is taken.
    pub(super) fn is_behind(&self) -> bool {
        self.waiting_bytes() >= WAITING_BYTES_MAX
    }

    /// It is read next, without a word of the kernel that it has something.
    pub(super) fn suppose_readable(&mut self) {
        self.is_readable |= !self.is_over && !self.is_full();
    }

    pub(super) fn note(&mut self, flags: EventFlags) {
        self.is_ending |= flags.intersects(ENDS);
        self.is_readable |= flags.intersects(ENDS.union(EventFlags::IN));
    }

    /// Whether as much has arrived and was not taken as the peer may send.
    pub(super) fn is_full(&self) -> bool {
        self.arrived.len() - self.start >= self.credit_bytes && !self.is_ending
    }

    /// Lets the peer have twice as much under way, if all of it was taken within two round trips, and the kernel keeps as much: then
    /// that is what limits it.
    pub(super) fn grow(&mut self) {
        let (_, (_, taken)) = self.link.traffic();
        if taken - self.grown.0 < self.credit_bytes as u64 {
            return;
        }
        let since = self.grown.1;
        self.grown = (taken, Instant::now());
        let Ok((round_trip_us, _)) = stream::state_of(&self.wire) else { return };
        let round_trips = Duration::from_micros(2 * u64::from(round_trip_us));
        let more = 2 * self.credit_bytes;
        let may_grow = more as u64 <= CREDIT_BYTES_MAX && since.elapsed() < round_trips;
        if may_grow && keeps(&self.wire, more) {
            self.credit_bytes = more;
            self.link.grow(more as u64);
        }
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

    /// Shows observers what has gone over it.
    pub(super) fn publish(&self) {
        let (sent, received) = self.link.traffic();
        let Traffic { sent_messages, sent_bytes, received_messages, received_bytes } =
            &*self.traffic;
        for (word, value) in [
            (sent_messages, sent.0),
            (sent_bytes, sent.1),
            (received_messages, received.0),
            (received_bytes, received.1),
        ] {
            word.store(value, Relaxed);
        }
    }

    // Its end.

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
        self.asked = Asked::default();
        // The other side learns of it at once.
        self.wire.end();
        !had_ended
    }

    /// The peer has made another connection, and has forgotten this one.
    pub(super) fn is_replaced(&mut self) {
        self.lose(ErrorKind::ConnectionReset);
        self.wire.end();
    }

    pub(super) fn end(&mut self, how: Gone) {
        if !std::mem::replace(&mut self.is_over, true) {
            self.end = Some(how);
        }
    }

    pub(super) fn lose(&mut self, kind: ErrorKind) {
        let reason = match kind {
            ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => LossReason::Reset,
            ErrorKind::TimedOut | ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable => {
                LossReason::Silent
            }
            _ => LossReason::Ended,
        };
        self.end(Gone::Lost(self.link.loss(reason)));
    }
}
