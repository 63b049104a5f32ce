//! Probing for messages, and claiming or discarding the messages found.

use std::time::Duration;

use corewire_endpoint::{
    Caller, Matched, Memory, MessageError, OperationHandle, Options, OwnedMessage, Selector,
    Status, Target,
};

use super::Endpoint;
use crate::wait::Patience;

impl Endpoint {
    /// Waits for a message that `selector` asks for, and returns its status. The message remains for the first
    /// receive that asks for it.
    ///
    /// # Errors
    /// As for [`receive`](Self::receive).
    pub fn probe(&mut self, selector: Selector) -> Result<Status, MessageError> {
        self.find(Patience::Forever, |endpoint| endpoint.engine.peek(&selector))
    }

    /// Waits for a message that `selector` asks for, and claims it from all other receives: a matched probe.
    ///
    /// # Errors
    /// As for [`receive`](Self::receive).
    pub fn claim(&mut self, selector: Selector) -> Result<Matched, MessageError> {
        self.find(Patience::Forever, |endpoint| endpoint.engine.claim(&selector))
    }

    /// Receives a claimed message, waiting for the rest of it if necessary.
    ///
    /// # Errors
    /// [`MessageError::NoMemory`], after which any receive may get it; the reason why its sender has gone, if that
    /// was before it had sent the whole message; `Interrupted`, `Forked`.
    pub fn receive_claimed(&mut self, matched: Matched) -> Result<OwnedMessage, MessageError> {
        let mut target = self.engine.new_message();
        let status = self.receive_matched(matched, target.as_target())?;
        Ok(target.finish(status))
    }

    /// Like [`receive_claimed`](Self::receive_claimed), into the beginning of `buffer`.
    ///
    /// # Errors
    /// [`MessageError::BufferTooSmall`], after which any receive may get the message; otherwise as for
    /// [`receive_claimed`](Self::receive_claimed).
    pub fn receive_claimed_into(
        &mut self,
        matched: Matched,
        buffer: &mut [u8],
    ) -> Result<Status, MessageError> {
        self.receive_matched(matched, &mut &mut *buffer)
    }

    /// Begins to receive a claimed message into `memory`, and never waits. If the operation ends with
    /// [`MessageError::BufferTooSmall`], any receive may get the message.
    pub fn ireceive_claimed(
        &mut self,
        matched: Matched,
        memory: impl Into<Memory>,
    ) -> OperationHandle {
        self.ireceive_claimed_with(matched, memory, Options::default())
    }

    /// Like [`ireceive_claimed`](Self::ireceive_claimed), with a number of the caller's choice, another way to report
    /// the end, and truncation.
    pub fn ireceive_claimed_with(
        &mut self,
        matched: Matched,
        memory: impl Into<Memory>,
        options: Options,
    ) -> OperationHandle {
        self.engine.start_receive_claimed(matched, memory.into(), options)
    }

    /// Stores a claimed message in the endpoint, under a number of the caller's choice: for programs that identify
    /// their claims by such a number, such as those of libfabric. Returns the message that was stored under it
    /// before.
    pub fn store_claim(&mut self, context: u64, matched: Matched) -> Option<Matched> {
        self.engine.store_claim(context, matched)
    }

    /// Removes and returns the message [stored](Self::store_claim) under this number, if there is one. The caller
    /// must receive it, give it back or discard it.
    pub fn take_claim(&mut self, context: u64) -> Option<Matched> {
        self.engine.take_claim(context)
    }

    /// Gives a claimed message back: any receive may get it again.
    pub fn give_back(&mut self, matched: Matched) {
        self.engine.give_back(&matched);
    }

    /// Discards a claimed message.
    pub fn discard_claimed(&mut self, matched: Matched) {
        self.engine.discard_claimed(&matched);
    }

    /// Discards the messages that `selector` asks for, that have arrived and that no receive has asked for or
    /// claimed, including those that stay with their senders because the budget is spent. Returns their number. For
    /// replies that no receive will ask for: they would fill the [budget](crate::EndpointBuilder::budget). Never
    /// blocks.
    ///
    /// # Errors
    /// [`MessageError::Interrupted`] or `Forked`; nothing is discarded then.
    pub fn discard(&mut self, selector: Selector) -> Result<usize, MessageError> {
        self.engine.progress(None)?;
        let mut count = 0;
        // Messages behind the discarded ones had arrived, too: a bounded number, since each pair has only as many
        // slots.
        for _ in 0..self.ring_slots {
            let dropped = self.engine.discard(&selector);
            if dropped == 0 {
                break;
            }
            count += dropped;
            match self.engine.progress(None) {
                Ok(_) => {}
                // Left for the next call that waits.
                Err(MessageError::Interrupted) => {
                    self.interrupter().interrupt();
                    break;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(count)
    }

    fn receive_matched(
        &mut self,
        matched: Matched,
        target: &mut dyn Target,
    ) -> Result<Status, MessageError> {
        let mut caller = Caller::new(Selector::any(), target);
        self.engine.begin_claimed(matched, &mut caller);
        if let Some(end) = self.engine.end_of_claimed(&caller) {
            return end;
        }
        let ended =
            self.wait_for(Patience::Forever, Some(&mut caller), None, |endpoint, caller| {
                caller.and_then(|caller| endpoint.engine.end_of_claimed(caller))
            });
        self.engine.leave(&mut caller);
        ended?
    }

    /// What `look` finds among kept messages.
    pub(super) fn find<R>(
        &mut self,
        patience: Patience,
        mut look: impl FnMut(&mut Self) -> Option<Result<R, MessageError>>,
    ) -> Result<R, MessageError> {
        self.engine.progress(None)?;
        if let Some(found) = look(self) {
            return found;
        }
        if matches!(patience, Patience::None) {
            return Err(MessageError::Timeout { after: Duration::ZERO });
        }
        self.wait_for(patience, None, None, |endpoint, _| look(endpoint))?
    }
}
