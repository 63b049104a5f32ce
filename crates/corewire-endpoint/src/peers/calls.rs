//! Requests: the operations that wait for their replies.

use std::collections::BTreeMap;

use corewire_ring::message::{Envelope, Memory, Source, Space};

use super::Peers;
use super::row::{Pending, to_memory};
use crate::caller::{Caller, CallerState};
use crate::error::MessageError;
use crate::operations::{Operation, OperationHandle, Options};
use crate::selector::Peer;
use crate::transport::Transport;

/// The calls under way.
#[derive(Debug, Default)]
pub(super) struct Calls {
    last: u64,
    /// The operations that wait for replies, by number.
    waiting: BTreeMap<u64, u32>,
}

impl<T: Transport> Peers<T> {
    // The caller.

    /// The number of the next call.
    #[inline(always)]
    pub(crate) fn new_call(&mut self) -> u64 {
        self.calls.last += 1;
        self.calls.last
    }

    /// See [`Engine::start_call`](crate::Engine::start_call).
    pub(crate) fn start_call(
        &mut self,
        peer: Peer,
        request: Memory,
        options: Options,
    ) -> Result<OperationHandle, MessageError> {
        let row = self.row_of(peer)?;
        let number = self.new_call();
        let envelope = Envelope::numbered(Space::Request, number);
        let (memory, is_lent) = (Memory::pooled(), request.is_pinned());
        let call = Operation::Call { to: peer, number, memory, is_lent };
        let handle = self.operations.add(call, options);
        self.calls.waiting.insert(number, handle.index);
        let pending = Pending::new(envelope, request);
        if let Err(error) = self.start(row, pending) {
            self.calls.waiting.remove(&number);
            self.has_news = true;
            self.operations.end(handle.index, Err(error), None);
        }
        Ok(handle)
    }

    /// A call whose reply has not begun to arrive is over. Returns its operation. A request that has not
    /// begun to be sent is not sent any more.
    pub(crate) fn forget_call(&mut self, to: Peer, number: u64) -> Option<u32> {
        let operation = self.calls.waiting.remove(&number)?;
        self.release_request(to.row(), number, true);
        Some(operation)
    }

    /// Ends the calls to a peer that has gone.
    pub(super) fn end_calls_to(&mut self, peer: Peer, error: &MessageError) {
        let Self { calls, operations, .. } = self;
        calls.waiting.retain(|_, &mut operation| {
            let call = operations.by_index(operation);
            let is_to_it = matches!(call, Operation::Call { to, .. } if *to == peer);
            if is_to_it {
                operations.end(operation, Err(error.clone()), None);
            }
            !is_to_it
        });
    }

    /// Where the reply with this number goes: to the operation that waits for it, if it is one of this
    /// peer.
    pub(crate) fn take_call(&mut self, peer: Peer, number: u64) -> Option<u32> {
        let operation = *self.calls.waiting.get(&number)?;
        match self.operations.by_index(operation) {
            &mut Operation::Call { to, is_lent, .. } if to == peer => {
                if is_lent {
                    // A hostile peer replies before it has the whole request.
                    self.release_request(peer.row(), number, false);
                }
                self.calls.waiting.remove(&number)
            }
            _ => None,
        }
    }

    /// The peer of `row` has dropped a request.
    pub(crate) fn request_dropped(
        &mut self,
        row: u32,
        number: u64,
        caller: Option<&mut Caller<'_>>,
    ) {
        let peer = self.peer_of(row);
        let Some(name) = self.name_of(peer).cloned() else { return };
        let error = MessageError::RequestDropped { name };
        if let Some(operation) = self.take_call(peer, number) {
            self.has_news = true;
            self.operations.end(operation, Err(error), None);
        } else if let Some(caller) = caller
            && caller.is_waiting()
            && caller.selector.takes_of(Space::Reply, peer.bits(), number)
        {
            caller.state = CallerState::Ended(Err(error));
        }
    }

    // The server.

    /// Tells the peer that sent a request that nobody will reply to it.
    pub(crate) fn drop_request(&mut self, peer: Peer, number: u64) {
        let nothing: &[u8] = &[];
        // A peer that has gone needs no answer.
        let _ = self.answer(peer, Envelope::numbered(Space::Dropped, number), &nothing);
    }

    /// Sends a short message of the engine, or a reply, at once or when there is room: what does not fit now is copied.
    pub(crate) fn answer(
        &mut self,
        peer: Peer,
        envelope: Envelope,
        bytes: &impl Source,
    ) -> Result<(), MessageError> {
        let row = self.row_of(peer)?;
        let mut sent = 0;
        if !self.send_step(peer, envelope, bytes, &mut sent)? {
            let memory = to_memory(bytes);
            self.send_later(row, Pending { sent, ..Pending::new(envelope, memory) });
        }
        Ok(())
    }
}
