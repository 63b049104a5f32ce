//! Operations that go on while their caller does something else.

use super::buffer::Buffer;
use super::matching::Selector;
use super::{Peer, Status};
use crate::error::MessageError;

/// An operation that has begun: to be asked about with [`Endpoint::test`](super::Endpoint::test), or waited
/// for. It holds its buffer until its end has been reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[must_use = "an operation keeps its buffer until its end has been asked for"]
pub struct Request {
    pub(super) index: u32,
    generation: u32,
}

/// How an operation has ended.
#[derive(Debug)]
pub struct Completion {
    /// Of a receive: whose message it was, its tag and length. Of a send: to whom, and the same.
    /// Or why it did not happen.
    pub result: Result<Status, MessageError>,
    /// What was lent. After a receive that went well its first bytes are the message.
    pub buffer: Buffer,
}

/// An operation's state.
#[derive(Debug)]
pub(super) enum Operation {
    /// Nobody's.
    Free,
    /// A receive, which waits or is being filled.
    Receive { selector: Selector, buffer: Buffer, order: u64, is_matched: bool },
    /// A send. Its buffer is with its peer.
    Send { to: Peer },
    /// It has ended, which has not been reported.
    Ended(Completion),
}

#[derive(Debug, Default)]
pub(super) struct Requests {
    slots: Vec<Slot>,
    free: Vec<u32>,
}

#[derive(Debug)]
struct Slot {
    generation: u32,
    operation: Operation,
}

impl Requests {
    pub(super) fn add(&mut self, operation: Operation) -> Request {
        if let Some(index) = self.free.pop() {
            let slot = &mut self.slots[index as usize];
            slot.generation = slot.generation.wrapping_add(1);
            slot.operation = operation;
            return Request { index, generation: slot.generation };
        }
        let index = u32::try_from(self.slots.len()).expect("fewer operations than 2^32");
        self.slots.push(Slot { generation: 0, operation });
        Request { index, generation: 0 }
    }

    /// An operation whose end has not been reported.
    pub(super) fn get(&self, request: Request) -> Result<&Operation, MessageError> {
        self.slots
            .get(request.index as usize)
            .filter(|slot| slot.generation == request.generation)
            .map(|slot| &slot.operation)
            .filter(|operation| !matches!(operation, Operation::Free))
            .ok_or(MessageError::UnknownRequest)
    }

    pub(super) fn by_index(&mut self, index: u32) -> &mut Operation {
        &mut self.slots[index as usize].operation
    }

    /// An operation has ended.
    pub(super) fn end(
        &mut self,
        index: u32,
        result: Result<Status, MessageError>,
        sent: Option<Buffer>,
    ) {
        let operation = self.by_index(index);
        let buffer = match std::mem::replace(operation, Operation::Free) {
            Operation::Receive { buffer, .. } => buffer,
            _ => sent.unwrap_or_default(),
        };
        *operation = Operation::Ended(Completion { result, buffer });
    }

    /// Reports the end of an operation, if it has ended.
    pub(super) fn take(&mut self, request: Request) -> Result<Option<Completion>, MessageError> {
        if !matches!(self.get(request)?, Operation::Ended(_)) {
            return Ok(None);
        }
        self.free.push(request.index);
        match std::mem::replace(self.by_index(request.index), Operation::Free) {
            Operation::Ended(completion) => Ok(Some(completion)),
            _ => Ok(None),
        }
    }
}
