//! Operations that go on while their caller does something else.
//!
//! | file | holds |
//! |---|---|
//! | this one | one entry for each operation, from its beginning until its end has been reported |
//! | [`posted`] | the receives among them that wait for a message, in order |
//! | [`indexes`] | how those are found once there are many |
//! | [`claims`] | those that claim a message, which is kept until it is received |
//! | [`many`] | receives of many messages, and their parts |
//!
//! A receive is one entry: what it asks for, its memory, how it is reported, and its neighbours in the list of those that
//! wait. Posting it writes that entry, and its neighbour's link; it allocates nothing once there is a free entry.

mod claims;
mod indexes;
mod many;
mod posted;

use std::collections::VecDeque;

use corewire_ring::message::{Memory, Sink, Space};

use self::indexes::Posted;
use crate::error::MessageError;
use crate::list::{Key, Seed};
use crate::selector::{Peer, Selector, Status};

/// An operation that has begun: to be tested or waited for. It keeps its memory until its end has been
/// reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct OperationHandle {
    pub(crate) index: u32,
    generation: u32,
}

impl OperationHandle {
    /// Of an operation that has ended in the call that began it.
    pub(crate) const ENDED: Self = Self { index: NOBODY, generation: 0 };

    /// The handle as a number, for callers that keep it in 8 bytes of their own.
    #[inline(always)]
    #[must_use]
    pub const fn to_bits(self) -> u64 {
        (self.generation as u64) << 32 | self.index as u64
    }

    /// The handle with these [bits](Self::to_bits). One that was never given is
    /// [unknown](MessageError::UnknownOperation) to its endpoint.
    #[inline(always)]
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "the halves")]
    pub const fn from_bits(bits: u64) -> Self {
        Self { index: bits as u32, generation: (bits >> 32) as u32 }
    }
}

/// How an operation is reported, and what it is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Options {
    /// A number of the caller's choice, returned in the [`Completion`].
    pub context: u64,
    /// How its end is reported.
    pub report: Report,
    /// For a send: until when it lasts.
    pub until: Until,
    /// For a receive: a message that is longer than the memory is received as far as there is room, and
    /// the operation ends with [`MessageError::Truncated`]. Otherwise the message stays to be received, and
    /// the operation ends with [`MessageError::BufferTooSmall`].
    pub truncates: bool,
}

/// Until when a send lasts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Until {
    /// Until the message has been copied: its memory may be used again. The peer need not have received
    /// it, if it was sent through the transport; a large message may have to be copied by the peer.
    #[default]
    Copied,
    /// Until the peer's endpoint has received the message completely, asked for or not.
    Delivered,
    /// Until a receive of the peer has asked for the message.
    Matched,
}

/// How the end of an operation is reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Report {
    /// When its handle is tested or waited for.
    #[default]
    Handle,
    /// In the endpoint's completion queue.
    Queue,
    /// In the completion queue, but only if it failed.
    ErrorsOnly,
    /// By one of the endpoint's counters, which count successes and failures.
    Counter(CounterId),
}

/// One of an endpoint's counters of completions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CounterId(pub(crate) u32);

/// How many operations have ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Count {
    /// Those that succeeded.
    pub succeeded: u64,
    /// Those that failed.
    pub failed: u64,
}

/// How an operation has ended.
#[derive(Debug)]
pub struct Completion {
    /// The number that the caller gave it.
    pub context: u64,
    /// Of a receive: whose message it was, its tag and length. Of a send: its receiver, and the same.
    /// Or why it failed.
    pub result: Result<Status, MessageError>,
    /// The memory that was lent. After a receive that succeeded its first bytes are the message.
    pub memory: Memory,
}

/// The end of an operation, as [`Engine::poll`](crate::Engine::poll) tells it.
#[derive(Debug)]
pub struct End<'a> {
    /// The number that the caller gave the operation.
    pub context: u64,
    /// What has ended.
    pub kind: OperationKind,
    /// Of a receive: whose message it was, its tag and length. Of a send: its receiver, and the same. Or why it failed.
    pub result: Result<Status, &'a MessageError>,
    /// What [`Engine::set_label`](crate::Engine::set_label) has set for that peer; 0 if nothing, and after a failure.
    pub label: u64,
    /// The memory that was lent, unless it is [pinned](Memory::is_pinned).
    pub memory: Option<Memory>,
    /// Where in the memory of a receive of [many](crate::Engine::start_receive_many) messages this one begins, in bytes;
    /// else 0.
    pub offset: usize,
    /// Whether the memory is the caller's again: no other message comes there.
    pub is_released: bool,
}

/// What an operation does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OperationKind {
    /// It sends.
    Send,
    /// It receives.
    Receive,
    /// It receives many messages, and has ended without another one: its memory is released.
    Release,
    /// It sends a request, and receives the reply.
    Call,
    /// It accesses the memory of a peer.
    Access,
    /// No operation of this endpoint: a peer has signalled. The status has the number as immediate.
    Signal,
}

/// An operation's state.
#[derive(Debug)]
pub(crate) enum Operation {
    /// Nobody's.
    Free,
    /// A receive, which waits or is being filled.
    Receive {
        memory: Memory,
        is_claimed: bool,
        /// The receive of many messages whose memory it fills from `offset` on; [`NOBODY`] if it is one of its own.
        part_of: u32,
        offset: usize,
    },
    /// A receive of many messages: what is left of its memory, and how much is not any more.
    Many {
        memory: Memory,
        least: usize,
        taken: usize,
        /// Messages that are arriving, each of which is a receive.
        parts: u32,
        /// It takes no more of them.
        is_closed: bool,
    },
    /// A call: its request has been sent, or waits for room, and its reply goes to `memory`. `is_lent` if the memory of
    /// the request is [pinned](Memory::is_pinned).
    Call { to: Peer, number: u64, memory: Memory, is_lent: bool },
    /// It accesses the memory of a peer.
    Access,
    /// A send. Its memory is with its peer.
    Send { to: Peer },
    /// It waits for a message, which it claims: that is kept until it is received.
    Claim,
    /// It has claimed the message that is kept there.
    Claimed(Key),
    /// It has ended, which has not been reported.
    Ended(Completion),
    /// The same, and the queue says so.
    Queued(Completion),
}

/// Beyond so many ends that have not been told no peer may signal.
const UNTOLD_MAX: usize = 1 << 16;

/// No operation.
pub(crate) const NOBODY: u32 = u32::MAX;

/// The status of no message.
const NOTHING: Status = Status { source: Peer::new(0, 0), tag: 0, bytes: 0, immediate: None };

impl Operation {
    /// A receive that waits, or gets a kept message.
    #[inline(always)]
    pub(crate) const fn receive(memory: Memory, is_claimed: bool) -> Self {
        Self::Receive { memory, is_claimed, part_of: NOBODY, offset: 0 }
    }
}

/// The memory of a receive that has ended, unless it is pinned.
#[cold]
fn take_memory(operation: &mut Operation) -> Option<Memory> {
    match std::mem::replace(operation, Operation::Free) {
        Operation::Receive { memory, .. } if !memory.is_pinned() => Some(memory),
        _ => None,
    }
}

/// An end that has not been told yet. Most are of operations with pinned memory that have succeeded: nothing is left of
/// them elsewhere.
#[derive(Debug)]
pub(crate) struct Stored {
    pub(crate) context: u64,
    pub(crate) status: Status,
    pub(crate) offset: usize,
    /// The entry that has the rest, or [`NOBODY`].
    index: u32,
    pub(crate) kind: OperationKind,
    pub(crate) is_released: bool,
}

#[derive(Debug)]
pub(crate) struct Operations {
    slots: Vec<Slot>,
    /// Number of operations that have not ended.
    under_way: usize,
    /// The first free entry; each has the next one in its `next`.
    free: u32,
    posted: Posted,
    queue: VecDeque<Stored>,
    counts: Vec<Count>,
}

#[derive(Debug)]
struct Slot {
    operation: Operation,
    /// What a receive asks for.
    selector: Selector,
    options: Options,
    generation: u32,
    /// Its neighbours among the receives that wait. Of a free one: the next one.
    previous: u32,
    next: u32,
    is_posted: bool,
    /// Receives wait in this order.
    order: u64,
}

impl Operations {
    pub(crate) fn new(seed: Seed) -> Self {
        Self {
            slots: Vec::new(),
            under_way: 0,
            free: NOBODY,
            posted: Posted::new(seed),
            queue: VecDeque::new(),
            counts: Vec::new(),
        }
    }

    /// Whether one has not ended.
    pub(crate) fn has_some_under_way(&self) -> bool {
        self.under_way > 0
    }

    #[inline(always)]
    pub(crate) fn add(&mut self, operation: Operation, options: Options) -> OperationHandle {
        self.under_way += 1;
        let index = self.free;
        let Some(slot) = self.slots.get_mut(index as usize) else {
            return self.add_entry(operation, options);
        };
        self.free = slot.next;
        slot.generation = slot.generation.wrapping_add(1);
        slot.options = options;
        // Nothing of a free one is to be dropped.
        std::mem::forget(std::mem::replace(&mut slot.operation, operation));
        OperationHandle { index, generation: slot.generation }
    }

    /// A new receive.
    #[inline(always)]
    pub(crate) fn add_receive(
        &mut self,
        selector: Selector,
        receive: Operation,
        options: Options,
    ) -> OperationHandle {
        let handle = self.add(receive, options);
        self.slots[handle.index as usize].selector = selector;
        handle
    }

    /// An entry is nobody's from here on.
    #[inline(always)]
    fn release(&mut self, index: u32) {
        self.slots[index as usize].next = self.free;
        self.free = index;
    }

    #[cold]
    fn add_entry(&mut self, operation: Operation, options: Options) -> OperationHandle {
        let index = u32::try_from(self.slots.len()).ok().filter(|index| *index < NOBODY);
        let index = index.expect("fewer operations than 2^32");
        // Not 0: a handle of zeros is unknown.
        let (generation, previous, next, order) = (1, NOBODY, NOBODY, 0);
        let (selector, is_posted) = (Selector::any(), false);
        self.slots.push(Slot {
            operation,
            selector,
            options,
            generation,
            previous,
            next,
            is_posted,
            order,
        });
        OperationHandle { index, generation }
    }

    /// An operation whose end has not been reported.
    pub(crate) fn get(&self, handle: OperationHandle) -> Result<&Operation, MessageError> {
        self.slots
            .get(handle.index as usize)
            .filter(|slot| slot.generation == handle.generation)
            .map(|slot| &slot.operation)
            .filter(|operation| !matches!(operation, Operation::Free | Operation::Queued(_)))
            .ok_or(MessageError::UnknownOperation)
    }

    /// The number that the caller gave an operation whose end has not been reported.
    pub(crate) fn context_of(&self, handle: OperationHandle) -> Result<u64, MessageError> {
        self.get(handle).map(|_| self.options(handle.index).context)
    }

    #[inline(always)]
    pub(crate) fn by_index(&mut self, index: u32) -> &mut Operation {
        &mut self.slots[index as usize].operation
    }

    #[inline(always)]
    pub(crate) fn options(&self, index: u32) -> Options {
        self.slots[index as usize].options
    }

    /// The oldest receive that asks for this message of `total` bytes waits no longer. Of a receive of many messages: a
    /// part of it for this one.
    #[inline]
    pub(crate) fn take_posted(
        &mut self,
        space: Space,
        source: Peer,
        tag: u64,
        total: u64,
    ) -> Option<u32> {
        loop {
            let index = self.find_posted(space, source.bits(), tag)?;
            if let Operation::Many { .. } = self.by_index(index) {
                match self.begin_part(index, total) {
                    None => continue,
                    part => return part,
                }
            }
            self.withdraw(index);
            return Some(index);
        }
    }

    /// The memory of the oldest receive that asks for this message, and its number in `found`, if it is an ordinary one that
    /// reports to the queue and has room for `bytes` bytes.
    #[inline(always)]
    pub(crate) fn memory_for(
        &mut self,
        (space, source, tag): (Space, u64, u64),
        bytes: usize,
        found: &mut u32,
    ) -> Option<&mut Memory> {
        let index = self.find_posted(space, source, tag)?;
        self.memory_of(index, bytes, found)
    }

    /// The same. Also says in `is_unasked` whether no receive asks for this message, but one might.
    #[inline(always)]
    pub(crate) fn memory_or_unasked(
        &mut self,
        (space, source, tag): (Space, u64, u64),
        bytes: usize,
        found: &mut u32,
        is_unasked: &mut bool,
    ) -> Option<&mut Memory> {
        let Some(index) = self.find_posted(space, source, tag) else {
            *is_unasked = matches!(space, Space::Tagged | Space::Untagged);
            return None;
        };
        self.memory_of(index, bytes, found)
    }

    #[inline(always)]
    fn memory_of(&mut self, index: u32, bytes: usize, found: &mut u32) -> Option<&mut Memory> {
        let slot = &mut self.slots[index as usize];
        match &mut slot.operation {
            Operation::Receive { memory, .. }
                if slot.options.report == Report::Queue && memory.room() >= bytes =>
            {
                *found = index;
                Some(memory)
            }
            _ => None,
        }
    }

    /// Whether no receive asks for this message, but one might.
    #[inline]
    pub(crate) fn is_unasked(&mut self, space: Space, source: u64, tag: u64) -> bool {
        matches!(space, Space::Tagged | Space::Untagged)
            && self.find_posted(space, source, tag).is_none()
    }

    /// A receive that [`memory_for`](Self::memory_for) has found has its message, and its caller tells that. Returns its
    /// context, and its memory unless that is pinned.
    #[inline(always)]
    pub(crate) fn finish_posted(&mut self, index: u32) -> (u64, Option<Memory>) {
        if self.posted.is_indexed {
            self.withdraw(index);
        }
        self.under_way -= 1;
        let slot = &mut self.slots[index as usize];
        let context = slot.options.context;
        let neighbours = slot.is_posted.then_some((slot.previous, slot.next));
        slot.is_posted = false;
        slot.next = self.free;
        self.free = index;
        let mut memory = None;
        match &slot.operation {
            // Nothing of it is to be dropped.
            Operation::Receive { memory, .. } if memory.is_pinned_whole() => {
                std::mem::forget(std::mem::replace(&mut slot.operation, Operation::Free));
            }
            _ => memory = take_memory(&mut slot.operation),
        }
        if let Some((previous, next)) = neighbours {
            self.unlink(previous, next);
        }
        (context, memory)
    }

    /// An operation has ended: reports that as its options say. A receive that waits does so no longer.
    pub(crate) fn end(
        &mut self,
        index: u32,
        result: Result<Status, MessageError>,
        sent: Option<Memory>,
    ) {
        self.withdraw(index);
        let slot = &mut self.slots[index as usize];
        if let Operation::Many { parts, is_closed, .. } = &mut slot.operation
            && *parts > 0
        {
            // The last of them says so.
            *is_closed = true;
            return;
        }
        match slot.operation {
            // It has what it waited for.
            Operation::Claimed(_) => return,
            Operation::Free | Operation::Ended(_) | Operation::Queued(_) => {}
            _ => self.under_way -= 1,
        }
        let (mut offset, mut whole) = (0, NOBODY);
        let (kind, memory) = match std::mem::replace(&mut slot.operation, Operation::Free) {
            Operation::Receive { memory, part_of, offset: at, .. } => {
                (offset, whole) = (at, part_of);
                (OperationKind::Receive, memory)
            }
            Operation::Many { memory, .. } => (OperationKind::Receive, memory),
            Operation::Call { memory, .. } => (OperationKind::Call, memory),
            Operation::Access => (OperationKind::Access, sent.unwrap_or_default()),
            _ => (OperationKind::Send, sent.unwrap_or_default()),
        };
        let Options { context, report, .. } = slot.options;
        if report == Report::Handle {
            slot.operation = Operation::Ended(Completion { context, result, memory });
            return;
        }
        match report {
            Report::Counter(id) => self.count_end(id, result.is_err()),
            Report::ErrorsOnly if result.is_ok() => {}
            _ => {
                let status = *result.as_ref().unwrap_or(&NOTHING);
                let is_all_here = result.is_ok() && memory.is_pinned();
                let is_released = whole == NOBODY || self.end_part(whole);
                let mut end = Stored { context, status, offset, index: NOBODY, kind, is_released };
                if is_all_here {
                    self.release(index);
                } else {
                    end.index = index;
                    *self.by_index(index) =
                        Operation::Queued(Completion { context, result, memory });
                }
                return self.queue.push_back(end);
            }
        }
        self.release(index);
        if whole != NOBODY {
            self.end_part(whole);
        }
    }

    /// A receive of pinned memory that reports to the queue has found its message before it was an operation.
    #[inline(always)]
    pub(crate) fn add_end(&mut self, context: u64, status: Status) {
        let (offset, index, kind) = (0, NOBODY, OperationKind::Receive);
        self.queue.push_back(Stored { context, status, offset, index, kind, is_released: true });
    }

    /// A peer has signalled. False if too much is to be told already.
    pub(crate) fn add_signal(&mut self, status: Status) -> bool {
        let (context, offset, index, kind) = (0, 0, NOBODY, OperationKind::Signal);
        if self.queue.len() >= UNTOLD_MAX {
            return false;
        }
        self.queue.push_back(Stored { context, status, offset, index, kind, is_released: true });
        true
    }

    fn count_end(&mut self, id: CounterId, is_error: bool) {
        if let Some(count) = self.counts.get_mut(id.0 as usize) {
            count.succeeded += u64::from(!is_error);
            count.failed += u64::from(is_error);
        }
    }

    /// Reports the end of an operation, if it has ended.
    pub(crate) fn take(
        &mut self,
        handle: OperationHandle,
    ) -> Result<Option<Completion>, MessageError> {
        match self.get(handle)? {
            Operation::Ended(_) => {}
            // Calls for messages wait for these.
            Operation::Claim | Operation::Claimed(_) => return Err(MessageError::UnknownOperation),
            _ => return Ok(None),
        }
        self.release(handle.index);
        match std::mem::replace(self.by_index(handle.index), Operation::Free) {
            Operation::Ended(completion) => Ok(Some(completion)),
            _ => Ok(None),
        }
    }

    /// The oldest end of the queue, and the rest of it, if it has failed or its memory is not pinned.
    #[inline]
    pub(crate) fn next_end(&mut self) -> Option<(Stored, Option<Completion>)> {
        let end = self.queue.pop_front()?;
        let rest = if end.index == NOBODY { None } else { self.take_rest(end.index) };
        Some((end, rest))
    }

    #[cold]
    fn take_rest(&mut self, index: u32) -> Option<Completion> {
        self.release(index);
        match std::mem::replace(self.by_index(index), Operation::Free) {
            Operation::Queued(completion) => Some(completion),
            _ => None,
        }
    }

    #[inline(always)]
    pub(crate) fn has_ends(&self) -> bool {
        !self.queue.is_empty()
    }

    pub(crate) fn add_counter(&mut self) -> CounterId {
        let id = u32::try_from(self.counts.len()).expect("fewer counters than 2^32");
        self.counts.push(Count::default());
        CounterId(id)
    }

    pub(crate) fn count(&self, id: CounterId) -> Option<Count> {
        self.counts.get(id.0 as usize).copied()
    }
}
