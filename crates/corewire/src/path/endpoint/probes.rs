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

    /// Begins to receive the next message that `selector` asks for, in its turn among the receives that wait, without
    /// memory for it, and never waits: the message may have any length, and one that its sender can leave where it wrote it
    /// is read there. [`wait_message`](Self::wait_message) gives it. (papers/004: `MMP_receive` of any size)
    ///
    /// From when it has come until then it is kept beside the [budget](crate::EndpointBuilder::budget).
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = std::env::temp_dir().join(format!("corewire-doc-ireceive-{}", std::process::id()));
    /// use corewire::{Domain, Selector};
    ///
    /// let domain = Domain::open_at(&dir)?;
    /// let mut sums = domain.endpoint("sums").create()?;
    /// let mut source = domain.endpoint("source").create()?;
    /// let next = sums.ireceive_message(Selector::tag(1))?;
    /// // Something else is done until it is there.
    /// let to_sums = source.peer("sums")?;
    /// source.send(to_sums, 1, &[7; 9000])?;
    /// let message = sums.wait_message(next)?;
    /// assert_eq!(message.iter().map(|&byte| u64::from(byte)).sum::<u64>(), 63_000);
    /// # drop((message, sums, source, domain)); std::fs::remove_dir_all(&dir)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`MessageError::Interrupted`] or `Forked`; a later failure is that of `wait_message`.
    pub fn ireceive_message(
        &mut self,
        selector: Selector,
    ) -> Result<OperationHandle, MessageError> {
        self.engine.start_claim(selector)
    }

    /// Waits for the message of an [`ireceive_message`](Self::ireceive_message). [`cancel`](Self::cancel) ends one whose
    /// message has not begun to come.
    ///
    /// # Errors
    /// [`MessageError::UnknownOperation`]; `Cancelled`; the reason why its sender has gone, if it asks for the messages of one
    /// peer, or if that was before the whole message had come; `NoMemory`; `Interrupted`, after which it can be waited for
    /// again if no message had come; `Forked`.
    pub fn wait_message(&mut self, handle: OperationHandle) -> Result<OwnedMessage, MessageError> {
        let matched = self.claimed(handle, Patience::Forever)?;
        self.receive_claimed(matched)
    }

    /// The message of an [`ireceive_message`](Self::ireceive_message), if all of it has come; one that is copied from its
    /// sender's memory is copied now. Does not wait otherwise.
    ///
    /// # Errors
    /// As for [`wait_message`](Self::wait_message).
    pub fn test_message(
        &mut self,
        handle: OperationHandle,
    ) -> Result<Option<OwnedMessage>, MessageError> {
        self.engine.progress(None)?;
        if !self.engine.is_claim_ready(handle)? {
            return Ok(None);
        }
        let matched = self.claimed(handle, Patience::None)?;
        self.receive_claimed(matched).map(Some)
    }

    /// What an operation has claimed.
    pub(super) fn claimed(
        &mut self,
        handle: OperationHandle,
        patience: Patience,
    ) -> Result<Matched, MessageError> {
        self.find(patience, |endpoint| endpoint.engine.take_claimed(handle).transpose())
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
