//! Operations that go on while their caller does something else.

use std::collections::VecDeque;

use corewire_ring::message::Memory;

use crate::error::MessageError;
use crate::list::Key;
use crate::selector::{Peer, Selector, Status};

/// An operation that has begun: to be tested or waited for. It keeps its memory until its end has been
/// reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct OperationHandle {
    pub(crate) index: u32,
    generation: u32,
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

/// An operation's state.
#[derive(Debug)]
pub(crate) enum Operation {
    /// Nobody's.
    Free,
    /// A receive, which waits, under its key, or is being filled.
    Receive {
        selector: Selector,
        memory: Memory,
        posted: Option<Key>,
        order: u64,
        is_claimed: bool,
    },
    /// A call: its request has been sent, or waits for room, and its reply goes to `memory`. `is_lent` if the memory of
    /// the request is [pinned](Memory::is_pinned).
    Call { to: Peer, number: u64, memory: Memory, is_lent: bool },
    /// A send. Its memory is with its peer.
    Send { to: Peer },
    /// It has ended, which has not been reported.
    Ended(Completion),
}

#[derive(Debug, Default)]
pub(crate) struct Operations {
    slots: Vec<Slot>,
    /// Number of operations that have not ended.
    under_way: usize,
    free: Vec<u32>,
    queue: VecDeque<Completion>,
    counts: Vec<Count>,
}

#[derive(Debug)]
struct Slot {
    generation: u32,
    options: Options,
    operation: Operation,
}

impl Operations {
    /// Whether one has not ended.
    pub(crate) fn has_some_under_way(&self) -> bool {
        self.under_way > 0
    }

    pub(crate) fn add(&mut self, operation: Operation, options: Options) -> OperationHandle {
        self.under_way += 1;
        if let Some(index) = self.free.pop() {
            let slot = &mut self.slots[index as usize];
            slot.generation = slot.generation.wrapping_add(1);
            slot.operation = operation;
            slot.options = options;
            return OperationHandle { index, generation: slot.generation };
        }
        let index = u32::try_from(self.slots.len()).expect("fewer operations than 2^32");
        self.slots.push(Slot { generation: 0, options, operation });
        OperationHandle { index, generation: 0 }
    }

    /// An operation whose end has not been reported.
    pub(crate) fn get(&self, handle: OperationHandle) -> Result<&Operation, MessageError> {
        self.slots
            .get(handle.index as usize)
            .filter(|slot| slot.generation == handle.generation)
            .map(|slot| &slot.operation)
            .filter(|operation| !matches!(operation, Operation::Free))
            .ok_or(MessageError::UnknownOperation)
    }

    pub(crate) fn by_index(&mut self, index: u32) -> &mut Operation {
        &mut self.slots[index as usize].operation
    }

    pub(crate) fn options(&self, index: u32) -> Options {
        self.slots[index as usize].options
    }

    /// Notes under which key a receive waits.
    pub(crate) fn set_posted(&mut self, index: u32, key: Key) {
        if let Operation::Receive { posted, order, .. } = self.by_index(index) {
            *posted = Some(key);
            *order = key.order;
        }
    }

    /// An operation has ended: reports that as its options say.
    pub(crate) fn end(
        &mut self,
        index: u32,
        result: Result<Status, MessageError>,
        sent: Option<Memory>,
    ) {
        let slot = &mut self.slots[index as usize];
        if !matches!(slot.operation, Operation::Free | Operation::Ended(_)) {
            self.under_way -= 1;
        }
        let memory = match std::mem::replace(&mut slot.operation, Operation::Free) {
            Operation::Receive { memory, .. } | Operation::Call { memory, .. } => memory,
            _ => sent.unwrap_or_default(),
        };
        let Options { context, report, .. } = slot.options;
        let is_error = result.is_err();
        let completion = Completion { context, result, memory };
        if report == Report::Handle {
            slot.operation = Operation::Ended(completion);
            return;
        }
        self.free.push(index);
        match report {
            Report::Counter(id) => {
                if let Some(count) = self.counts.get_mut(id.0 as usize) {
                    count.succeeded += u64::from(!is_error);
                    count.failed += u64::from(is_error);
                }
            }
            Report::ErrorsOnly if !is_error => {}
            _ => self.queue.push_back(completion),
        }
    }

    /// Reports the end of an operation, if it has ended.
    pub(crate) fn take(
        &mut self,
        handle: OperationHandle,
    ) -> Result<Option<Completion>, MessageError> {
        if !matches!(self.get(handle)?, Operation::Ended(_)) {
            return Ok(None);
        }
        self.free.push(handle.index);
        match std::mem::replace(self.by_index(handle.index), Operation::Free) {
            Operation::Ended(completion) => Ok(Some(completion)),
            _ => Ok(None),
        }
    }

    /// The oldest completion of the queue.
    pub(crate) fn next_completion(&mut self) -> Option<Completion> {
        self.queue.pop_front()
    }

    pub(crate) fn has_completions(&self) -> bool {
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
