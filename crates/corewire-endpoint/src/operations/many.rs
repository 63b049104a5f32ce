//! Receives of many messages: each message is a part, an operation of its own, which fills the next bytes of their memory.

use corewire_ring::message::{Memory, Sink};

use super::{
    Completion, NOBODY, NOTHING, Operation, OperationKind, Operations, Options, Report, Stored,
};

impl Operations {
    /// A message of `total` bytes goes to the rest of the memory of a receive of many messages: a receive of its own for
    /// it. `None` if it does not fit there; then the receive takes no more messages.
    pub(crate) fn begin_part(&mut self, many: u32, total: u64) -> Option<u32> {
        let options = self.options(many);
        let selector = self.selector_of(many);
        let Operation::Many { memory, least, taken, parts, is_closed } = self.by_index(many) else {
            return None;
        };
        let room = memory.room();
        let (is_first, offset) = (*taken == 0, *taken);
        let bytes = match usize::try_from(total) {
            Ok(bytes) if bytes <= room => bytes,
            _ if is_first && options.truncates => room,
            _ => {
                self.close_many(many);
                return None;
            }
        };
        let part = memory.split_front(bytes);
        *taken += bytes;
        *parts += 1;
        *is_closed |= room - bytes < *least || room == bytes;
        let is_closed = *is_closed;
        if is_closed {
            self.withdraw(many);
        }
        let part = Operation::Receive { memory: part, is_claimed: false, part_of: many, offset };
        Some(self.add_receive(selector, part, options).index)
    }

    /// A receive of many messages takes no more. If none of them is arriving, it has ended.
    fn close_many(&mut self, many: u32) {
        self.withdraw(many);
        if let Operation::Many { is_closed, parts, .. } = self.by_index(many) {
            *is_closed = true;
            if *parts == 0 {
                self.release_many(many);
            }
        }
    }

    /// A receive of many messages has ended, and says so by itself.
    fn release_many(&mut self, many: u32) {
        let Options { context, report, .. } = self.options(many);
        if matches!(report, Report::Counter(_) | Report::ErrorsOnly) {
            return drop(self.free_many(many));
        }
        let (kind, offset, is_released) = (OperationKind::Release, 0, true);
        let memory = self.free_many(many);
        let rest =
            (!memory.is_pinned()).then_some(Completion { context, result: Ok(NOTHING), memory });
        let index =
            rest.map_or(NOBODY, |rest| self.add(Operation::Queued(rest), Options::default()).index);
        if index != NOBODY {
            self.under_way -= 1;
        }
        self.queue.push_back(Stored { context, status: NOTHING, offset, index, kind, is_released });
    }

    /// A part of a receive of many messages has ended. True if the whole has.
    #[inline]
    pub(crate) fn end_part(&mut self, many: u32) -> bool {
        let Operation::Many { parts, is_closed, .. } = self.by_index(many) else { return false };
        *parts -= 1;
        let is_over = *is_closed && *parts == 0;
        if is_over {
            drop(self.free_many(many));
        }
        is_over
    }

    fn free_many(&mut self, many: u32) -> Memory {
        self.under_way -= 1;
        self.release(many);
        match std::mem::replace(self.by_index(many), Operation::Free) {
            Operation::Many { memory, .. } => memory,
            _ => Memory::default(),
        }
    }

    /// The message of a part of a receive of many messages will never be complete.
    pub(crate) fn drop_part(&mut self, index: u32) {
        let Operation::Receive { part_of, .. } = *self.by_index(index) else { return };
        *self.by_index(index) = Operation::Free;
        self.under_way -= 1;
        self.release(index);
        if let Operation::Many { parts, is_closed, .. } = self.by_index(part_of) {
            *parts -= 1;
            if *is_closed && *parts == 0 {
                self.release_many(part_of);
            }
        }
    }
}
