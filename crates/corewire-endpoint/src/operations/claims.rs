//! Operations that wait for a message and claim it: it is kept until it is received.

use super::{Completion, Operation, OperationHandle, Operations};
use crate::error::MessageError;
use crate::list::Key;
use crate::selector::Selector;

impl Operations {
    /// Whether it claims its message, which is kept.
    pub(crate) fn is_claim(&self, index: u32) -> bool {
        matches!(self.slots[index as usize].operation, Operation::Claim)
    }

    /// It has claimed this message.
    pub(crate) fn set_claimed(&mut self, index: u32, key: Key) {
        self.under_way -= 1;
        *self.by_index(index) = Operation::Claimed(key);
    }

    /// What an operation has claimed, if it has: then it is over.
    pub(crate) fn take_claimed(
        &mut self,
        handle: OperationHandle,
    ) -> Result<Option<(Key, Selector)>, MessageError> {
        match *self.get(handle)? {
            Operation::Claimed(key) => {
                self.release(handle.index);
                *self.by_index(handle.index) = Operation::Free;
                Ok(Some((key, self.selector_of(handle.index))))
            }
            Operation::Claim => Ok(None),
            Operation::Ended(Completion { result: Err(_), .. }) => {
                match self.take(handle)?.map(|ended| ended.result) {
                    Some(Err(error)) => Err(error),
                    _ => Ok(None),
                }
            }
            _ => Err(MessageError::UnknownOperation),
        }
    }
}
