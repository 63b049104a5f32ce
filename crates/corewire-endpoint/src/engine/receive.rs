//! Receiving, and asking what is there.

use corewire_layout::pair::PAIR_INLINE_BYTES_MAX;
use corewire_ring::message::Memory;

use super::Engine;
use crate::caller::{Caller, CallerState, Looked, Matched, Writing};
use crate::error::MessageError;
use crate::list::Key;
use crate::message::{Filling, OwnedMessage, Target};
use crate::operations::{Operation, OperationHandle, Options, Report};
use crate::peers::Peers;
use crate::selector::{Peer, Selector, Status};
use crate::transport::{Polling, Short, Transport};

impl<T: Transport> Engine<T> {
    /// Receives a whole message into `buffer`, if one is there that `selector` asks for and that fits. Only
    /// while the engine [is at rest](Self::is_at_rest). Most messages go this way.
    #[inline(always)]
    pub fn try_take_short(
        &mut self,
        selector: &Selector,
        buffer: &mut [u8],
        polling: Polling,
    ) -> Looked<Status> {
        match self.peers.transport.try_take(polling, selector.wanted(), buffer) {
            Short::Nothing => Looked::Nothing,
            Short::Taken { source, tag, immediate, bytes } => {
                Looked::Received(Status::of(source, tag, immediate, bytes))
            }
            // A copy, which only this way needs: the other one then has the selector in registers. What this call returns
            // is taken apart, for the same reason: the status of both ways would be in memory, from where it is copied 16
            // bytes at a time, which waits for words of 8 bytes that have just been written.
            Short::Other(row) => match self.try_take_whole(row, *selector, buffer) {
                Short::Taken { source, tag, immediate, bytes } => {
                    Looked::Received(Status::of(source, tag, immediate, bytes))
                }
                _ => Looked::Other,
            },
        }
    }

    #[inline(never)]
    fn try_take_whole(&mut self, row: u32, selector: Selector, buffer: &mut [u8]) -> Short {
        self.peers.transport.try_take_whole(row, |space, source, tag, bytes| {
            if selector.takes_of(space, source, tag) { buffer.get_mut(..bytes) } else { None }
        })
    }

    /// The same, for a message of any length that has arrived whole.
    #[inline(always)]
    pub fn try_take_owned(
        &mut self,
        selector: &Selector,
        polling: Polling,
    ) -> Looked<OwnedMessage> {
        // Prepared before the message is there, and used by the next look if it is not.
        let message = self.spare.get_or_insert_default();
        match self.peers.transport.try_take(polling, selector.wanted(), message.short()) {
            Short::Nothing => Looked::Nothing,
            Short::Taken { source, tag, immediate, bytes } => {
                self.finish_spare(Status::of(source, tag, immediate, bytes))
            }
            Short::Other(row) => self.try_take_long(row, *selector),
        }
    }

    #[inline(never)]
    fn try_take_long(&mut self, row: u32, selector: Selector) -> Looked<OwnedMessage> {
        if let Some((Short::Taken { source, tag, immediate, bytes }, held)) =
            self.peers.transport.try_keep(row, selector.wanted())
        {
            self.spare.get_or_insert_default().set_held(held);
            return self.finish_spare(Status::of(source, tag, immediate, bytes));
        }
        let (message, pool) = (self.spare.get_or_insert_default(), &self.incoming.pool);
        match self.peers.transport.try_take_whole(row, |space, source, tag, bytes| {
            let is_it = selector.takes_of(space, source, tag);
            if is_it { message.prepare(bytes as u64, pool) } else { None }
        }) {
            Short::Taken { source, tag, immediate, bytes } => {
                if self.peers.may_grant(row) && bytes > PAIR_INLINE_BYTES_MAX {
                    self.peers.grant_first(row);
                }
                self.finish_spare(Status::of(source, tag, immediate, bytes))
            }
            _ => Looked::Other,
        }
    }

    /// The message that was prepared has been received.
    #[inline(always)]
    fn finish_spare(&mut self, status: Status) -> Looked<OwnedMessage> {
        match self.spare.take() {
            Some(mut message) => {
                message.set_status(status);
                Looked::Received(message)
            }
            None => Looked::Other,
        }
    }

    /// Begins a receive that is being called: it gets a message that was kept, if there is one.
    ///
    /// # Errors
    /// [`MessageError::Interrupted`] or `Forked`.
    pub fn begin_receive(&mut self, caller: &mut Caller<'_>) -> Result<(), MessageError> {
        if self.peers.transport.has_notice() {
            self.handle_notices()?;
        }
        // A program that only receives what is there sends what waits, too.
        if self.peers.has_senders() {
            self.send_pending();
        }
        self.incoming.take_kept(&mut self.peers, caller);
        Ok(())
    }

    /// Receives a message that `caller` asks for, if one is there now. Never waits; a large message is copied at once.
    ///
    /// # Errors
    /// [`MessageError::Interrupted`] or `Forked`.
    pub fn receive_now(
        &mut self,
        caller: &mut Caller<'_>,
    ) -> Result<Option<Result<Status, MessageError>>, MessageError> {
        caller.writing = Writing::Never;
        if self.is_arriving_elsewhere(caller) {
            self.progress(None)?;
            if self.is_arriving_elsewhere(caller) {
                return Ok(None);
            }
        }
        self.begin_receive(caller)?;
        let mut is_first = true;
        while self.end_of(caller).is_none() && (is_first || self.is_pulling_for_caller()) {
            is_first = false;
            match self.progress(Some(caller)) {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => {
                    self.leave(caller);
                    return Err(error);
                }
            }
        }
        let end = self.end_of(caller);
        self.leave(caller);
        Ok(end)
    }

    /// Whether the message that `caller` asks for is arriving where it is kept, and would have to be copied from
    /// there. A receive that does not wait, or has a time limit, leaves it there until it is whole: otherwise each
    /// such call would copy all that is there, and copy it back.
    #[must_use]
    pub fn is_arriving_elsewhere(&mut self, caller: &Caller<'_>) -> bool {
        if caller.target.adopts() {
            return false;
        }
        let Some((key, message)) = self.incoming.matching.find(&caller.selector) else {
            return false;
        };
        let fits = message.total <= caller.target.room() as u64;
        let row = message.source.row();
        fits && self.incoming.is_arriving_at(row, key)
    }

    /// If nothing will come that a receive asks for: why. A peer that it waits for is linked: otherwise nobody would learn
    /// that it has gone.
    #[inline(always)]
    fn unreachable_error(&mut self, selector: &Selector) -> Option<MessageError> {
        let peer = selector.source()?;
        self.peers.must_link(peer.row());
        self.peers.end_of(peer)
    }

    /// A receive from any peer that waits for the rest of a message takes a whole one of another peer instead, if there is one. To be
    /// called before it sleeps, or polls for long. True if it has done so.
    pub fn step_aside(&mut self, caller: &mut Caller<'_>) -> bool {
        self.incoming.step_aside(&mut self.peers, caller)
    }

    /// A receive that was called ends before its message is complete: what has arrived is kept.
    pub fn leave(&mut self, caller: &mut Caller<'_>) {
        self.incoming.leave(&mut self.peers, caller);
    }

    /// Whether the message of the receive that is being called is pulled now.
    #[must_use]
    pub fn is_pulling_for_caller(&self) -> bool {
        self.peers.is_pulling_for_caller()
    }

    /// Whether a message is being copied, in any direction: then there is something to do. Not if all that is left
    /// to do is to wait until its sender writes nothing more, which that sender says.
    #[must_use]
    pub fn is_copying(&self) -> bool {
        self.peers.is_helping() || self.incoming.is_pulling(&self.peers)
    }

    /// How a receive that is being called has ended, if it has.
    pub fn end_of(&mut self, caller: &Caller<'_>) -> Option<Result<Status, MessageError>> {
        match &caller.state {
            CallerState::Ended(end) => Some(end.clone()),
            CallerState::Filling(_) => None,
            CallerState::Waiting => self.unreachable_error(&caller.selector).map(Err),
        }
    }

    /// Memory for a receive of a message of any length. See [`MessageTarget::finish`].
    #[must_use]
    pub fn new_message(&self) -> MessageTarget {
        MessageTarget(Filling::new(&self.incoming.pool))
    }

    /// Begins to receive a message that `selector` asks for into `memory`, and never waits.
    ///
    /// # Errors
    /// [`MessageError::Interrupted`] or `Forked`; what fails later is the operation's result.
    #[inline(always)]
    pub fn start_receive(
        &mut self,
        selector: Selector,
        memory: Memory,
        options: Options,
    ) -> Result<OperationHandle, MessageError> {
        if self.peers.transport.has_notice() || !self.incoming.matching.is_empty() {
            return self.start_receive_of_kept(selector, memory, options);
        }
        if let Some(error) = self.unreachable_error(&selector) {
            return Ok(self.end_receive(selector, memory, options, error));
        }
        let receive = Operation::receive(memory, false);
        let handle = self.peers.operations.add_receive(selector, receive, options);
        self.peers.operations.post(handle.index);
        Ok(handle)
    }

    /// The same, where a message may be kept for it.
    #[inline(never)]
    fn start_receive_of_kept(
        &mut self,
        selector: Selector,
        mut memory: Memory,
        options: Options,
    ) -> Result<OperationHandle, MessageError> {
        if self.peers.transport.has_notice() {
            self.handle_notices()?;
        }
        if memory.is_pinned()
            && options.report == Report::Queue
            && let Some(status) = self.incoming.take_plain(&mut self.peers, &selector, &mut memory)
        {
            self.peers.has_news = true;
            self.peers.operations.add_end(options.context, status);
            return Ok(OperationHandle::ENDED);
        }
        let receive = Operation::receive(memory, false);
        let handle = self.peers.operations.add_receive(selector, receive, options);
        if self.incoming.take_kept_for(&mut self.peers, &selector, handle.index) {
            return Ok(handle);
        }
        match self.unreachable_error(&selector) {
            Some(error) => self.peers.operations.end(handle.index, Err(error), None),
            None => self.peers.operations.post(handle.index),
        }
        Ok(handle)
    }

    /// A receive ends for which no message will come.
    #[cold]
    fn end_receive(
        &mut self,
        selector: Selector,
        memory: Memory,
        options: Options,
        error: MessageError,
    ) -> OperationHandle {
        let receive = Operation::receive(memory, false);
        let handle = self.peers.operations.add_receive(selector, receive, options);
        self.peers.operations.end(handle.index, Err(error), None);
        handle
    }

    /// Begins to receive the messages that `selector` asks for into `memory`, each behind the last one, as long as at
    /// least `least` bytes are left; never waits. Each is told with its offset, the last one with `is_released`. One that
    /// does not fit in the rest goes to the next receive, and then the memory is released without a message
    /// ([`OperationKind::Release`](crate::OperationKind::Release)); but if it is longer than all of the memory and
    /// [truncated](Options::truncates), it is the only one. Reports to the queue, or to a counter.
    ///
    /// # Errors
    /// [`MessageError::Interrupted`] or `Forked`; what fails later is the operation's result.
    pub fn start_receive_many(
        &mut self,
        selector: Selector,
        memory: Memory,
        least: usize,
        options: Options,
    ) -> Result<OperationHandle, MessageError> {
        if self.peers.transport.has_notice() {
            self.handle_notices()?;
        }
        let report = match options.report {
            Report::Handle => Report::Queue,
            report => report,
        };
        let (taken, parts, is_closed) = (0, 0, false);
        let many = Operation::Many { memory, least, taken, parts, is_closed };
        let options = Options { report, ..options };
        let handle = self.peers.operations.add_receive(selector, many, options);
        let is_open = |peers: &Peers<T>| {
            matches!(peers.operations.get(handle), Ok(Operation::Many { is_closed: false, .. }))
        };
        while is_open(&self.peers)
            && let Some((key, message)) = self.incoming.matching.find(&selector)
        {
            let total = message.total;
            if let Some(part) = self.peers.operations.begin_part(handle.index, total) {
                self.incoming.give_kept_to(&mut self.peers, key, part);
            }
        }
        if !is_open(&self.peers) {
            return Ok(handle);
        }
        match self.unreachable_error(&selector) {
            Some(error) => self.peers.operations.end(handle.index, Err(error), None),
            None => self.peers.operations.post(handle.index),
        }
        Ok(handle)
    }

    /// The [context](Options::context) of an operation whose end has not been reported.
    ///
    /// # Errors
    /// [`MessageError::UnknownOperation`].
    pub fn context_of(&self, handle: OperationHandle) -> Result<u64, MessageError> {
        self.peers.operations.context_of(handle)
    }

    /// Asks that an operation end. One whose message has begun to arrive, or to be sent, ends as if nothing
    /// had been asked; any other ends at once, with [`MessageError::Cancelled`].
    ///
    /// # Errors
    /// [`MessageError::UnknownOperation`].
    pub fn cancel(&mut self, handle: OperationHandle) -> Result<(), MessageError> {
        match *self.peers.operations.get(handle)? {
            Operation::Receive { .. } | Operation::Many { .. } | Operation::Claim
                if self.peers.operations.is_posted(handle.index) =>
            {
                self.peers.operations.end(handle.index, Err(MessageError::Cancelled), None);
            }
            Operation::Call { to, number, .. } => {
                if let Some(operation) = self.peers.forget_call(to, number) {
                    self.peers.operations.end(operation, Err(MessageError::Cancelled), None);
                }
            }
            Operation::Send { to } => {
                let unsent = self.peers.take_unsent(to.row(), handle.index);
                let memory = unsent.or_else(|| self.peers.take_offered(to.row(), handle.index));
                if let Some(memory) = memory {
                    self.peers.operations.end(
                        handle.index,
                        Err(MessageError::Cancelled),
                        Some(memory),
                    );
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// The oldest kept message that `selector` asks for, which stays to be received; an error if none will
    /// come.
    pub fn peek(&mut self, selector: &Selector) -> Option<Result<Status, MessageError>> {
        match self.find(selector) {
            Some((_, status)) => Some(Ok(status)),
            None => self.unreachable_error(selector).map(Err),
        }
    }

    /// The same, and takes it from all other receives: a matched probe.
    pub fn claim(&mut self, selector: &Selector) -> Option<Result<Matched, MessageError>> {
        match self.find(selector) {
            Some((key, status)) => {
                self.incoming.matching.claim(key);
                Some(Ok(Matched { key, space: selector.space(), status }))
            }
            None => self.unreachable_error(selector).map(Err),
        }
    }

    /// Begins to claim the next message that `selector` asks for, in its turn among the receives that wait, and never
    /// waits. The message is kept, whatever the budget, until it is received or given back.
    ///
    /// # Errors
    /// [`MessageError::Interrupted`] or `Forked`; what fails later is the operation's result.
    pub fn start_claim(&mut self, selector: Selector) -> Result<OperationHandle, MessageError> {
        if self.peers.transport.has_notice() {
            self.handle_notices()?;
        }
        let operations = &mut self.peers.operations;
        let handle = operations.add_receive(selector, Operation::Claim, Options::default());
        if !self.incoming.take_kept_for(&mut self.peers, &selector, handle.index) {
            match self.unreachable_error(&selector) {
                Some(error) => self.peers.operations.end(handle.index, Err(error), None),
                None => self.peers.operations.post(handle.index),
            }
        }
        Ok(handle)
    }

    /// The message that an operation has claimed, if it has; then the operation is over.
    ///
    /// # Errors
    /// [`MessageError::UnknownOperation`]; the reason why no message will come, or why the message that was claimed is
    /// gone.
    pub fn take_claimed(
        &mut self,
        handle: OperationHandle,
    ) -> Result<Option<Matched>, MessageError> {
        let Some((key, selector)) = self.peers.operations.take_claimed(handle)? else {
            return Ok(None);
        };
        match self.incoming.matching.get(key) {
            Some(message) => {
                let status = message.status();
                Ok(Some(Matched { key, space: selector.space(), status }))
            }
            None => Err(selector
                .source()
                .map_or(MessageError::Cancelled, |source| self.end_of_peer(source))),
        }
    }

    /// Whether [`take_claimed`](Self::take_claimed) returns something that can be received without waiting for its sender, or
    /// an error.
    ///
    /// # Errors
    /// [`MessageError::UnknownOperation`].
    pub fn is_claim_ready(&self, handle: OperationHandle) -> Result<bool, MessageError> {
        match self.peers.operations.get(handle)? {
            Operation::Claim => Ok(false),
            Operation::Claimed(key) => {
                let message = self.incoming.matching.get(*key);
                Ok(message.is_none_or(|message| message.is_whole() || message.offer.is_some()))
            }
            Operation::Ended(ended) if ended.result.is_err() => Ok(true),
            _ => Err(MessageError::UnknownOperation),
        }
    }

    fn find(&mut self, selector: &Selector) -> Option<(Key, Status)> {
        let (key, message) = self.incoming.matching.find(selector)?;
        Some((key, message.status()))
    }

    /// Begins to receive a message that was claimed: `caller`'s selector is not used. If the message does
    /// not fit, it is anybody's again.
    pub fn begin_claimed(&mut self, matched: Matched, caller: &mut Caller<'_>) {
        let Matched { key, space, status } = matched;
        caller.selector = Selector::claimed(space, status.tag, status.source);
        caller.is_claimed = true;
        self.incoming.take_kept_of(&mut self.peers, key, caller);
        match caller.state {
            CallerState::Waiting => {
                caller.state = CallerState::Ended(Err(self.end_of_peer(status.source)));
            }
            CallerState::Ended(Err(_)) => self.incoming.make_available(&mut self.peers, key),
            _ => {}
        }
    }

    /// Begins to receive a message that was claimed into `memory`, and never waits. If the message does not fit, it is
    /// anybody's again.
    pub fn start_receive_claimed(
        &mut self,
        matched: Matched,
        memory: Memory,
        options: Options,
    ) -> OperationHandle {
        let Matched { key, space, status } = matched;
        let selector = Selector::claimed(space, status.tag, status.source);
        let receive = Operation::receive(memory, true);
        let handle = self.peers.operations.add_receive(selector, receive, options);
        if self.incoming.matching.get(key).is_none() {
            let error = self.end_of_peer(status.source);
            self.peers.operations.end(handle.index, Err(error), None);
            return handle;
        }
        self.incoming.give_kept_to(&mut self.peers, key, handle.index);
        // It did not fit.
        self.incoming.make_available(&mut self.peers, key);
        handle
    }

    /// Keeps a message that was claimed under a number of the caller's choice. Returns the one that was kept under it
    /// before.
    pub fn store_claim(&mut self, context: u64, matched: Matched) -> Option<Matched> {
        self.claims.insert(context, matched)
    }

    /// The message that is kept under this number, which then is not any more.
    pub fn take_claim(&mut self, context: u64) -> Option<Matched> {
        self.claims.remove(&context)
    }

    /// How a receive of a claimed message has ended, if it has. One whose sender has gone does not wait for
    /// another message.
    pub fn end_of_claimed(&mut self, caller: &Caller<'_>) -> Option<Result<Status, MessageError>> {
        match (&caller.state, caller.selector.source()) {
            (CallerState::Waiting, Some(source)) => Some(Err(self.end_of_peer(source))),
            _ => self.end_of(caller),
        }
    }

    /// Why a message of a peer that was claimed is not there any more: the peer has gone, or has taken it back.
    fn end_of_peer(&self, peer: Peer) -> MessageError {
        self.peers.row_of(peer).err().unwrap_or(MessageError::Cancelled)
    }

    /// Gives a message that was claimed back: it is anybody's again.
    pub fn give_back(&mut self, matched: &Matched) {
        self.incoming.make_available(&mut self.peers, matched.key);
    }

    /// Drops a message that was claimed.
    pub fn discard_claimed(&mut self, matched: &Matched) {
        self.incoming.drop_kept(&mut self.peers, matched.key);
    }

    /// Drops the kept messages that `selector` asks for and nobody has claimed. Returns how many.
    pub fn discard(&mut self, selector: &Selector) -> usize {
        let found = self.incoming.matching.all_of(selector);
        let count = found.len();
        found.into_iter().for_each(|key| self.incoming.drop_kept(&mut self.peers, key));
        count
    }
}

/// The memory of a message that is being received.
#[derive(Debug)]
pub struct MessageTarget(Filling);

impl MessageTarget {
    /// As the target of a [`Caller`].
    pub fn as_target(&mut self) -> &mut dyn Target {
        &mut self.0
    }

    /// The message that was received.
    #[must_use]
    pub fn finish(self, status: Status) -> OwnedMessage {
        self.0.finish(status)
    }
}
