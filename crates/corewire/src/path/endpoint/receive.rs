//! Receiving, and probing for messages.

use std::time::Duration;

use corewire_endpoint::transport::Haste;
use corewire_endpoint::{
    Caller, Completion, Count, CounterId, Engine, Looked, Matched, Memory, MessageError,
    OperationHandle, Options, OwnedMessage, Selector, Status, Target,
};

use super::{Endpoint, PairRings, after};
use crate::wait::{NO_LIMIT_NS, Patience, Polls};

impl Endpoint {
    // Into memory that the message owns.

    /// Receives a message that `selector` asks for, of any length, waiting for it if necessary.
    ///
    /// # Errors
    /// If the selected peer has gone and none of its messages is left, [`MessageError::PeerDied`], `PeerLeft` or
    /// `PeerCutOff`; `UnknownPeer`, `NoMemory`, `Interrupted`, `Forked`.
    #[inline(always)]
    pub fn receive(&mut self, selector: Selector) -> Result<OwnedMessage, MessageError> {
        match self.receive_polling(Owned(selector)) {
            Some(message) => Ok(message),
            None => self.receive_owned(selector, Patience::Forever),
        }
    }

    /// Like [`receive`](Self::receive), but never blocks; `None` if no message is there now.
    ///
    /// # Errors
    /// As for [`receive`](Self::receive).
    pub fn try_receive(
        &mut self,
        selector: Selector,
    ) -> Result<Option<OwnedMessage>, MessageError> {
        match self.look_once(Owned(selector)) {
            Some(found) => Ok(found),
            None => none_if_late(self.receive_owned(selector, Patience::None)),
        }
    }

    /// Like [`receive`](Self::receive), for at most `timeout`; `None` if no message came.
    ///
    /// # Errors
    /// As for [`receive`](Self::receive).
    pub fn receive_timeout(
        &mut self,
        selector: Selector,
        timeout: Duration,
    ) -> Result<Option<OwnedMessage>, MessageError> {
        self.receive_patiently(selector, Patience::until(timeout))
    }

    /// Like [`receive`](Self::receive), but waits for as long as `patience` says.
    pub(super) fn receive_patiently(
        &mut self,
        selector: Selector,
        patience: Patience,
    ) -> Result<Option<OwnedMessage>, MessageError> {
        none_if_late(self.receive_owned(selector, patience))
    }

    // Into the caller's memory.

    /// Receives a message that `selector` asks for into the beginning of `buffer`, waiting for it if
    /// necessary.
    ///
    /// # Errors
    /// [`MessageError::BufferTooSmall`], after which the message can still be received; otherwise as for
    /// [`receive`](Self::receive).
    #[inline(always)]
    pub fn receive_into(
        &mut self,
        selector: Selector,
        buffer: &mut [u8],
    ) -> Result<Status, MessageError> {
        if let Some(status) = self.receive_polling(IntoBuffer { selector, buffer }) {
            return Ok(status);
        }
        self.receive_slowly(selector, &mut &mut *buffer, Patience::Forever)
    }

    /// Like [`receive_into`](Self::receive_into), but never blocks; `None` if no message is there now.
    ///
    /// # Errors
    /// As for [`receive_into`](Self::receive_into).
    #[inline(always)]
    pub fn try_receive_into(
        &mut self,
        selector: Selector,
        buffer: &mut [u8],
    ) -> Result<Option<Status>, MessageError> {
        match self.look_once(IntoBuffer { selector, buffer }) {
            Some(found) => Ok(found),
            None => none_if_late(self.receive_slowly(selector, &mut &mut *buffer, Patience::None)),
        }
    }

    /// Like [`receive_into`](Self::receive_into), for at most `timeout`; `None` if no message came.
    ///
    /// # Errors
    /// As for [`receive_into`](Self::receive_into).
    pub fn receive_into_timeout(
        &mut self,
        selector: Selector,
        buffer: &mut [u8],
        timeout: Duration,
    ) -> Result<Option<Status>, MessageError> {
        self.receive_into_patiently(selector, buffer, Patience::until(timeout))
    }

    /// Like [`receive_into`](Self::receive_into), but waits for as long as `patience` says.
    pub(super) fn receive_into_patiently(
        &mut self,
        selector: Selector,
        buffer: &mut [u8],
        patience: Patience,
    ) -> Result<Option<Status>, MessageError> {
        none_if_late(self.receive_slowly(selector, &mut &mut *buffer, patience))
    }

    /// Like [`receive_into`](Self::receive_into), but spreads the message over `parts`, one after the other.
    ///
    /// # Errors
    /// As for [`receive_into`](Self::receive_into).
    pub fn receive_scatter(
        &mut self,
        selector: Selector,
        parts: &mut [&mut [u8]],
    ) -> Result<Status, MessageError> {
        self.receive_slowly(selector, &mut &mut *parts, Patience::Forever)
    }

    /// Like [`receive_scatter`](Self::receive_scatter), but never blocks; `None` if no message is there now.
    ///
    /// # Errors
    /// As for [`receive_into`](Self::receive_into).
    pub fn try_receive_scatter(
        &mut self,
        selector: Selector,
        parts: &mut [&mut [u8]],
    ) -> Result<Option<Status>, MessageError> {
        none_if_late(self.receive_slowly(selector, &mut &mut *parts, Patience::None))
    }

    /// Like [`receive_scatter`](Self::receive_scatter), for at most `timeout`; `None` if no message came.
    ///
    /// # Errors
    /// As for [`receive_into`](Self::receive_into).
    pub fn receive_scatter_timeout(
        &mut self,
        selector: Selector,
        parts: &mut [&mut [u8]],
        timeout: Duration,
    ) -> Result<Option<Status>, MessageError> {
        let patience = Patience::until(timeout);
        none_if_late(self.receive_slowly(selector, &mut &mut *parts, patience))
    }

    // Operations that continue by themselves.

    /// Begins to receive a message that `selector` asks for into `memory`, and never waits. With
    /// [`Memory::pooled`] the message may have any length.
    ///
    /// # Errors
    /// [`MessageError::Interrupted`] or `Forked`; a later failure is the operation's result.
    pub fn ireceive(
        &mut self,
        selector: Selector,
        memory: impl Into<Memory>,
    ) -> Result<OperationHandle, MessageError> {
        self.ireceive_with(selector, memory, Options::default())
    }

    /// Like [`ireceive`](Self::ireceive), with a number of the caller's choice, another way to report the end, and
    /// truncation.
    ///
    /// # Errors
    /// As for [`ireceive`](Self::ireceive).
    pub fn ireceive_with(
        &mut self,
        selector: Selector,
        memory: impl Into<Memory>,
        options: Options,
    ) -> Result<OperationHandle, MessageError> {
        self.engine.start_receive(selector, memory.into(), options)
    }

    /// The result of an operation, if it has ended. Never blocks.
    ///
    /// # Errors
    /// [`MessageError::UnknownOperation`], `Interrupted`, `Forked`.
    pub fn test(&mut self, handle: OperationHandle) -> Result<Option<Completion>, MessageError> {
        if let Some(completion) = self.engine.take_completion(handle)? {
            return Ok(Some(completion));
        }
        self.engine.progress(None)?;
        self.engine.take_completion(handle)
    }

    /// Waits until an operation has ended.
    ///
    /// # Errors
    /// As for [`test`](Self::test).
    pub fn wait(&mut self, handle: OperationHandle) -> Result<Completion, MessageError> {
        self.wait_any(&[handle]).map(|(_, completion)| completion)
    }

    /// Like [`wait`](Self::wait), but for at most `timeout`; `None` if the operation had not ended by then.
    ///
    /// # Errors
    /// As for [`test`](Self::test).
    pub fn wait_timeout(
        &mut self,
        handle: OperationHandle,
        timeout: Duration,
    ) -> Result<Option<Completion>, MessageError> {
        none_if_late(self.wait_any_of(&[handle], Patience::until(timeout)))
            .map(|ended| ended.map(|(_, completion)| completion))
    }

    /// Waits until one of several operations has ended. Returns its index in `handles` and its completion.
    ///
    /// # Errors
    /// As for [`test`](Self::test); also `UnknownOperation` if `handles` is empty.
    pub fn wait_any(
        &mut self,
        handles: &[OperationHandle],
    ) -> Result<(usize, Completion), MessageError> {
        self.wait_any_of(handles, Patience::Forever)
    }

    fn wait_any_of(
        &mut self,
        handles: &[OperationHandle],
        patience: Patience,
    ) -> Result<(usize, Completion), MessageError> {
        let look = |endpoint: &mut Self| {
            for (index, &handle) in handles.iter().enumerate() {
                match endpoint.engine.take_completion(handle) {
                    Ok(None) => {}
                    Ok(Some(completion)) => return Some(Ok((index, completion))),
                    Err(error) => return Some(Err(error)),
                }
            }
            handles.is_empty().then_some(Err(MessageError::UnknownOperation))
        };
        match look(self) {
            Some(end) => end,
            None => self.wait_for(patience, None, None, |endpoint, _| look(endpoint))?,
        }
    }

    /// Asks an operation to end. If its message has begun to arrive or to be sent, the operation ends as if it had
    /// not been asked; otherwise it ends at once, with [`MessageError::Cancelled`]. Its end is reported either way.
    ///
    /// # Errors
    /// [`MessageError::UnknownOperation`].
    pub fn cancel(&mut self, handle: OperationHandle) -> Result<(), MessageError> {
        self.engine.cancel(handle)
    }

    /// Moves up to `count_max` completions, oldest first, of operations that [report](crate::Report) to the
    /// completion queue to the end of `completions`. Returns their number. Never blocks.
    ///
    /// # Errors
    /// [`MessageError::Interrupted`] or `Forked`; nothing is moved then.
    pub fn try_completions(
        &mut self,
        completions: &mut Vec<Completion>,
        count_max: usize,
    ) -> Result<usize, MessageError> {
        self.engine.progress(None)?;
        Ok(self.drain(completions, count_max))
    }

    /// Like [`try_completions`](Self::try_completions), but waits until there is a completion.
    ///
    /// # Errors
    /// As for [`try_completions`](Self::try_completions).
    pub fn completions(
        &mut self,
        completions: &mut Vec<Completion>,
        count_max: usize,
    ) -> Result<usize, MessageError> {
        self.completions_patiently(completions, count_max, Patience::Forever)
    }

    /// Like [`completions`](Self::completions), for at most `timeout`; 0 if there was none.
    ///
    /// # Errors
    /// As for [`try_completions`](Self::try_completions).
    pub fn completions_timeout(
        &mut self,
        completions: &mut Vec<Completion>,
        count_max: usize,
        timeout: Duration,
    ) -> Result<usize, MessageError> {
        let patience = Patience::until(timeout);
        let moved = none_if_late(self.completions_patiently(completions, count_max, patience))?;
        Ok(moved.unwrap_or(0))
    }

    fn completions_patiently(
        &mut self,
        completions: &mut Vec<Completion>,
        count_max: usize,
        patience: Patience,
    ) -> Result<usize, MessageError> {
        self.wait_for(patience, None, None, |endpoint, _| {
            endpoint.engine.has_completions().then_some(())
        })?;
        Ok(self.drain(completions, count_max))
    }

    fn drain(&mut self, completions: &mut Vec<Completion>, count_max: usize) -> usize {
        let next = std::iter::from_fn(|| self.engine.next_completion());
        let before = completions.len();
        completions.extend(next.take(count_max));
        completions.len() - before
    }

    /// A new counter of completions, for operations that [report](crate::Report::Counter) to it.
    pub fn add_counter(&mut self) -> CounterId {
        self.engine.add_counter()
    }

    /// The value of a counter of completions. `None` if the counter is another endpoint's. Does not block.
    #[must_use]
    pub fn count(&self, id: CounterId) -> Option<Count> {
        self.engine.count(id)
    }

    // Probes.

    /// Waits for a message that `selector` asks for, and returns its status. The message remains for the first
    /// receive that asks for it.
    ///
    /// # Errors
    /// As for [`receive`](Self::receive).
    pub fn probe(&mut self, selector: Selector) -> Result<Status, MessageError> {
        self.find(Patience::Forever, |endpoint| endpoint.engine.peek(&selector))
    }

    /// Like [`probe`](Self::probe), but never blocks; `None` if no message is there now.
    ///
    /// # Errors
    /// As for [`receive`](Self::receive).
    pub fn try_probe(&mut self, selector: Selector) -> Result<Option<Status>, MessageError> {
        none_if_late(self.find(Patience::None, |endpoint| endpoint.engine.peek(&selector)))
    }

    /// Like [`probe`](Self::probe), for at most `timeout`; `None` if no message came.
    ///
    /// # Errors
    /// As for [`receive`](Self::receive).
    pub fn probe_timeout(
        &mut self,
        selector: Selector,
        timeout: Duration,
    ) -> Result<Option<Status>, MessageError> {
        let patience = Patience::until(timeout);
        none_if_late(self.find(patience, |endpoint| endpoint.engine.peek(&selector)))
    }

    /// Waits for a message that `selector` asks for, and claims it from all other receives: a matched probe.
    ///
    /// # Errors
    /// As for [`receive`](Self::receive).
    pub fn claim(&mut self, selector: Selector) -> Result<Matched, MessageError> {
        self.find(Patience::Forever, |endpoint| endpoint.engine.claim(&selector))
    }

    /// Like [`claim`](Self::claim), but never blocks; `None` if no message is there now.
    ///
    /// # Errors
    /// As for [`receive`](Self::receive).
    pub fn try_claim(&mut self, selector: Selector) -> Result<Option<Matched>, MessageError> {
        none_if_late(self.find(Patience::None, |endpoint| endpoint.engine.claim(&selector)))
    }

    /// Like [`claim`](Self::claim), for at most `timeout`; `None` if no message came.
    ///
    /// # Errors
    /// As for [`receive`](Self::receive).
    pub fn claim_timeout(
        &mut self,
        selector: Selector,
        timeout: Duration,
    ) -> Result<Option<Matched>, MessageError> {
        let patience = Patience::until(timeout);
        none_if_late(self.find(patience, |endpoint| endpoint.engine.claim(&selector)))
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

    // How a receive waits.

    /// Polls for a message that takes the short path, while polls are cheaper than a sleep, and does nothing else.
    /// Most messages are received this way.
    #[inline(always)]
    pub(super) fn receive_polling<L: Look>(&mut self, mut way: L) -> Option<L::Message> {
        if !self.engine.is_at_rest() {
            return None;
        }
        let bare_polls = self.poller.bare_polls();
        let (mut round, mut polls) = (0, Polls::within(NO_LIMIT_NS));
        loop {
            let haste = || if round < bare_polls { Haste::Fast } else { Haste::Slow };
            match way.look(&mut self.engine, haste) {
                Looked::Nothing => {}
                Looked::Received(message) => return Some(message),
                Looked::Other => return None,
            }
            round += 1;
            if round >= bare_polls {
                let may_poll = self.may_poll(&mut polls, way.selector().source(), None);
                if self.engine.has_notice() {
                    return None;
                }
                if !may_poll {
                    if self.poller.wait() != Wait::Spin {
                        return None;
                    }
                    polls = Polls::within(NO_LIMIT_NS);
                }
            }
        }
    }

    /// Polls once for such a message. `None` if something else must be handled first.
    #[inline(always)]
    pub(super) fn look_once<L: Look>(&mut self, mut way: L) -> Option<Option<L::Message>> {
        if !self.engine.is_at_rest() {
            return None;
        }
        match way.look(&mut self.engine, || Haste::Once) {
            Looked::Nothing if way.selector().source().is_none() && !self.engine.has_notice() => {
                Some(None)
            }
            Looked::Received(message) => Some(Some(message)),
            _ => None,
        }
    }

    #[inline(never)]
    fn receive_owned(
        &mut self,
        selector: Selector,
        patience: Patience,
    ) -> Result<OwnedMessage, MessageError> {
        let mut target = self.engine.new_message();
        let status = self.receive_slowly(selector, target.as_target(), patience)?;
        Ok(target.finish(status))
    }

    /// The slow half of every receive.
    #[inline(never)]
    fn receive_slowly(
        &mut self,
        selector: Selector,
        target: &mut dyn Target,
        patience: Patience,
    ) -> Result<Status, MessageError> {
        let mut caller = Caller::new(selector, target);
        self.engine.begin_receive(&mut caller)?;
        if let Some(end) = self.engine.end_of(&caller) {
            return end;
        }
        let ended = if matches!(patience, Patience::None) {
            self.engine.progress(Some(&mut caller)).and_then(|_| {
                let late = MessageError::Timeout { after: Duration::ZERO };
                self.engine.end_of(&caller).ok_or(late)
            })
        } else {
            self.wait_for(patience, Some(&mut caller), None, |endpoint, caller| {
                caller.and_then(|caller| endpoint.engine.end_of(caller))
            })
        };
        self.engine.leave(&mut caller);
        match ended {
            Ok(end) => end,
            Err(MessageError::Timeout { .. }) => {
                Err(MessageError::Timeout { after: after(patience) })
            }
            Err(other) => Err(other),
        }
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
    fn find<R>(
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

/// How a receive takes a message that takes the short path.
pub(super) trait Look {
    /// The result.
    type Message;

    fn selector(&self) -> &Selector;

    fn look(
        &mut self,
        engine: &mut Engine<PairRings>,
        haste: impl Fn() -> Haste,
    ) -> Looked<Self::Message>;
}

/// Into the caller's memory.
struct IntoBuffer<'a> {
    selector: Selector,
    buffer: &'a mut [u8],
}

impl Look for IntoBuffer<'_> {
    type Message = Status;

    #[inline(always)]
    fn selector(&self) -> &Selector {
        &self.selector
    }

    #[inline(always)]
    fn look(
        &mut self,
        engine: &mut Engine<PairRings>,
        haste: impl Fn() -> Haste,
    ) -> Looked<Status> {
        engine.try_take_short(&self.selector, self.buffer, haste)
    }
}

/// Into memory that the message owns.
pub(super) struct Owned(pub(super) Selector);

impl Look for Owned {
    type Message = OwnedMessage;

    #[inline(always)]
    fn selector(&self) -> &Selector {
        &self.0
    }

    #[inline(always)]
    fn look(
        &mut self,
        engine: &mut Engine<PairRings>,
        haste: impl Fn() -> Haste,
    ) -> Looked<OwnedMessage> {
        engine.try_take_owned(&self.0, haste)
    }
}

/// A time-out is not an error.
pub(super) fn none_if_late<T>(ended: Result<T, MessageError>) -> Result<Option<T>, MessageError> {
    match ended {
        Ok(end) => Ok(Some(end)),
        Err(MessageError::Timeout { .. }) => Ok(None),
        Err(other) => Err(other),
    }
}
