//! What becomes of an operation that has ended: an entry, a failure, a count.
//!
//! The number that corewire keeps for an operation is the address of the program's context, and what kind of operation it
//! is in the highest byte, which no address of a program uses. So an end needs no table, and does not touch the context.

use core::ffi::c_void;

use corewire::{End, MessageError, OperationKind, Status};
use corewire_ofi::cq::TaggedEntry;
use corewire_ofi::fid::Context;
use corewire_ofi::flags::{
    FI_ATOMIC, FI_MSG, FI_MULTI_RECV, FI_READ, FI_RECV, FI_REMOTE_CQ_DATA, FI_REMOTE_WRITE, FI_RMA,
    FI_SEND, FI_TAGGED, FI_WRITE,
};

use crate::cntr::Cntr;
use crate::cq::{Cq, Failure, Format, Item, Queue, Sink, Source};
use crate::member::{Bound, Member};
use crate::memory::as_usize;
use crate::object::Link;

/// Where the ends of an endpoint's operations go.
pub(super) struct Ends {
    /// The endpoint itself, once it is open.
    pub(super) me: Option<Bound<dyn Member>>,
    pub(super) tx: Option<Link<Cq>>,
    pub(super) rx: Option<Link<Cq>>,
    pub(super) tx_counter: Option<Link<Cntr>>,
    pub(super) rx_counter: Option<Link<Cntr>>,
    pub(super) read_counter: Option<Link<Cntr>>,
    pub(super) write_counter: Option<Link<Cntr>>,
    /// Receives of messages with a tag that have not ended.
    pub(super) posted: usize,
    /// Sources of messages are reported.
    pub(super) has_sources: bool,
}

/// What kind of operation it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Kind {
    TaggedReceive = 1,
    Receive = 2,
    /// A receive of many messages.
    MultiReceive = 3,
    TaggedSend = 4,
    Send = 5,
    /// A copy to a peer's memory, or from it.
    Write = 6,
    Read = 7,
    /// An atomic operation there; a read returns what was there before.
    AtomicWrite = 8,
    AtomicRead = 9,
}

/// Added to the kind if only a failure gives an entry.
const SILENT: u8 = 0x10;
const KIND_SHIFT: u32 = 56;
const CONTEXT_BITS: u64 = (1 << KIND_SHIFT) - 1;

impl Kind {
    /// The number of an operation of this kind. `is_told` if it gives an entry when it succeeds.
    #[inline(always)]
    pub(super) fn number(self, context: *mut c_void, is_told: bool) -> u64 {
        let kind = self as u8 | if is_told { 0 } else { SILENT };
        (context.expose_provenance() as u64 & CONTEXT_BITS) | (u64::from(kind) << KIND_SHIFT)
    }

    /// What its entry says.
    pub(super) const fn flags(self) -> u64 {
        match self {
            Self::TaggedReceive => FI_RECV | FI_TAGGED,
            Self::Receive | Self::MultiReceive => FI_RECV | FI_MSG,
            Self::TaggedSend => FI_SEND | FI_TAGGED,
            Self::Send => FI_SEND | FI_MSG,
            Self::Write => FI_WRITE | FI_RMA,
            Self::Read => FI_READ | FI_RMA,
            Self::AtomicWrite => FI_WRITE | FI_ATOMIC,
            Self::AtomicRead => FI_READ | FI_ATOMIC,
        }
    }

    const fn of(bits: u8) -> Self {
        match bits {
            1 => Self::TaggedReceive,
            2 => Self::Receive,
            3 => Self::MultiReceive,
            4 => Self::TaggedSend,
            6 => Self::Write,
            7 => Self::Read,
            8 => Self::AtomicWrite,
            9 => Self::AtomicRead,
            _ => Self::Send,
        }
    }

    /// Whether this side begins it, and nothing comes to it: not a receive.
    const fn is_begun_here(self) -> bool {
        !matches!(self, Self::TaggedReceive | Self::Receive | Self::MultiReceive)
    }
}

/// The context in an operation's number.
#[inline(always)]
pub(super) fn context_of(number: u64) -> *mut c_void {
    std::ptr::with_exposed_provenance_mut(as_usize(number & CONTEXT_BITS))
}

/// The entry of a message that was received.
#[inline(always)]
pub(super) fn received(number: u64, flags: u64, status: &Status) -> TaggedEntry {
    let data = match status.immediate {
        Some(_) => FI_REMOTE_CQ_DATA,
        None => 0,
    };
    TaggedEntry {
        op_context: context_of(number),
        flags: flags | data,
        len: as_usize(status.bytes),
        buf: std::ptr::null_mut(),
        data: status.immediate.unwrap_or(0),
        tag: status.tag,
    }
}

/// The entry of a send.
#[inline(always)]
pub(super) fn sent(context: *mut c_void, kind: Kind) -> TaggedEntry {
    let buf = std::ptr::null_mut();
    TaggedEntry { op_context: context, flags: kind.flags(), len: 0, buf, data: 0, tag: 0 }
}

impl Ends {
    /// An operation has ended while the queue `me` is being read, which writes to `sink`.
    #[inline(always)]
    pub(super) fn tell<F: Format>(
        &mut self,
        end: End<'_>,
        queue: &mut Queue,
        me: Link<Cq>,
        sink: &mut Sink,
    ) {
        const USUAL: u64 = Kind::TaggedReceive as u64;
        if end.context >> KIND_SHIFT == USUAL
            && let Ok(status) = &end.result
            && self.rx == Some(me)
            && self.rx_counter.is_none()
            && sink.left() > 0
        {
            self.posted -= 1;
            sink.write::<F>(&received(end.context, Kind::TaggedReceive.flags(), status));
            if sink.wants_sources() {
                sink.tell_source(self.source_of(end.label, status), queue);
            }
            return;
        }
        self.tell_other::<F>(&end, queue, me, sink);
    }

    /// Any other end.
    #[inline(never)]
    fn tell_other<F: Format>(
        &mut self,
        end: &End<'_>,
        queue: &mut Queue,
        me: Link<Cq>,
        sink: &mut Sink,
    ) {
        let Some((target, item)) = self.item_of(end) else { return };
        if target != me {
            // SAFETY: the gate of the domain is that of its queues, and this one is not the one that is being read.
            unsafe { target.get() }.push(item);
            return;
        }
        if let Item::Done { entry, source } = &item
            && sink.write_other::<F>(entry, *source, queue)
        {
            return;
        }
        // What follows comes after it.
        sink.close();
        queue.push(item);
    }

    /// An operation has ended while no queue is being read.
    pub(super) fn keep(&mut self, end: &End<'_>) {
        if let Some((target, item)) = self.item_of(end) {
            // SAFETY: the gate of the domain is that of its queues, and none is being read.
            unsafe { target.get() }.push(item);
        }
    }

    /// Counts an end. Returns its entry, and the queue in which it belongs, unless nobody is told.
    fn item_of(&mut self, end: &End<'_>) -> Option<(Link<Cq>, Item)> {
        if end.kind == OperationKind::Signal {
            let status = end.result.as_ref().ok()?;
            let flags = FI_RMA | FI_REMOTE_WRITE;
            let source = self.source_of(end.label, status);
            return Some((self.rx?, Item::Done { entry: received(0, flags, status), source }));
        }
        let bits = (end.context >> KIND_SHIFT) as u8;
        let (kind, is_silent) = (Kind::of(bits & !SILENT), bits & SILENT != 0);
        if kind == Kind::TaggedReceive {
            self.posted -= 1;
        }
        let is_release = end.kind == OperationKind::Release;
        if !is_release {
            self.count(kind, end.result.is_ok());
        }
        let target = if kind.is_begun_here() { self.tx } else { self.rx }?;
        let context = context_of(end.context);
        let mut flags = kind.flags();
        let mut buffer = std::ptr::null_mut();
        if kind == Kind::MultiReceive {
            buffer = base_of(context).wrapping_byte_add(end.offset);
            if end.is_released {
                flags |= FI_MULTI_RECV;
            }
        }
        if is_release {
            let flags = FI_MULTI_RECV;
            let entry =
                TaggedEntry { op_context: context, flags, len: 0, buf: buffer, data: 0, tag: 0 };
            return Some((target, Item::Done { entry, source: Source::None }));
        }
        let item = match &end.result {
            // A released buffer is always told.
            Ok(_) if is_silent && flags & FI_MULTI_RECV == 0 => return None,
            Ok(_) if kind.is_begun_here() => {
                Item::Done { entry: sent(context, kind), source: Source::None }
            }
            Ok(status) => {
                let entry = received(end.context, flags, status);
                let source = self.source_of(end.label, status);
                Item::Done { entry: TaggedEntry { buf: buffer, ..entry }, source }
            }
            Err(error) => {
                let source = match error {
                    MessageError::Truncated { status, .. } => self.source_of(end.label, status),
                    _ => Source::None,
                };
                Item::Failed(Failure::new(context, flags, error).at(buffer).from(source))
            }
        };
        Some((target, item))
    }

    /// The counter of operations of this kind.
    pub(super) const fn counter_of(&self, kind: Kind) -> Option<Link<Cntr>> {
        match kind {
            Kind::TaggedReceive | Kind::Receive | Kind::MultiReceive => self.rx_counter,
            Kind::TaggedSend | Kind::Send => self.tx_counter,
            Kind::Write | Kind::AtomicWrite => self.write_counter,
            Kind::Read | Kind::AtomicRead => self.read_counter,
        }
    }

    /// Counts the end of an operation.
    pub(super) fn count(&mut self, kind: Kind, has_succeeded: bool) {
        if let Some(counter) = self.counter_of(kind) {
            // SAFETY: the gate of the domain is that of its counters.
            unsafe { counter.get() }.count(has_succeeded);
        }
    }

    /// Adds the failure of an operation that ended in its call.
    #[cold]
    pub(super) fn fail(&mut self, kind: Kind, context: *mut c_void, error: &MessageError) {
        self.count(kind, false);
        let target = if kind.is_begun_here() { self.tx } else { self.rx };
        if let Some(target) = target {
            // SAFETY: the gate of the domain is that of its queues, and none is being read.
            unsafe { target.get() }.push(Item::Failed(Failure::new(context, kind.flags(), error)));
        }
    }

    #[inline]
    pub(super) fn source_of(&self, label: u64, status: &Status) -> Source {
        match self.me {
            Some(me) if self.has_sources => Source::of_label(label, status.source, me),
            _ => Source::None,
        }
    }
}

/// Where the buffer for many messages begins whose receive has this context.
fn base_of(context: *mut c_void) -> *mut c_void {
    // SAFETY: the program lends its context until the receive has ended, and the call has written this word.
    let at = unsafe { &raw const (*context.cast::<Context>()).internal[1] };
    // SAFETY: as above.
    unsafe { at.read() }
}
