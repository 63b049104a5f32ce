//! What programs call: an endpoint of the library, or a bare engine.

use corewire::{
    Completion, End, Endpoint, Matched, Memory, MessageError, OperationHandle, Options, Peer,
    Report, Selector, Status, Until,
};
use corewire_endpoint::transport::Polling;
use corewire_endpoint::{Caller, Engine, Looked, Transport};

type Result<T> = std::result::Result<T, MessageError>;

const fn told(context: u64) -> Options {
    Options { context, report: Report::Queue, until: Until::Copied, truncates: false }
}

/// The calls of a program. None of them waits.
#[expect(missing_docs, clippy::missing_errors_doc, reason = "as in the library")]
pub trait Party {
    fn isend(&mut self, peer: Peer, tag: u64, memory: Memory) -> Result<OperationHandle>;
    fn ireceive(&mut self, selector: Selector, memory: Memory) -> Result<OperationHandle>;
    fn try_receive_into(&mut self, selector: Selector, buffer: &mut [u8])
    -> Result<Option<Status>>;
    fn try_probe(&mut self, selector: Selector) -> Result<Option<Status>>;
    fn try_claim(&mut self, selector: Selector) -> Result<Option<Matched>>;
    fn give_back(&mut self, matched: Matched);
    /// Of a message that has arrived completely.
    fn receive_claimed_into(&mut self, matched: Matched, buffer: &mut [u8]) -> Result<Status>;
    fn cancel(&mut self, handle: OperationHandle) -> Result<()>;
    fn test(&mut self, handle: OperationHandle) -> Result<Option<Completion>>;
    fn progress(&mut self) -> Result<bool>;
    /// A receive that reports to the queue, with a number.
    fn ireceive_told(
        &mut self,
        selector: Selector,
        memory: Memory,
        context: u64,
    ) -> Result<OperationHandle>;
    /// Tells what has ended of such receives.
    fn poll(&mut self, max: usize, each: impl FnMut(End<'_>)) -> Result<usize>;
    /// Whether progress may do something even if the last call did nothing.
    fn is_restless(&self) -> bool;
}

impl Party for Endpoint {
    fn isend(&mut self, peer: Peer, tag: u64, memory: Memory) -> Result<OperationHandle> {
        self.isend(peer, tag, memory)
    }

    fn ireceive(&mut self, selector: Selector, memory: Memory) -> Result<OperationHandle> {
        self.ireceive(selector, memory)
    }

    fn try_receive_into(
        &mut self,
        selector: Selector,
        buffer: &mut [u8],
    ) -> Result<Option<Status>> {
        self.try_receive_into(selector, buffer)
    }

    fn try_probe(&mut self, selector: Selector) -> Result<Option<Status>> {
        self.now().probe(selector)
    }

    fn try_claim(&mut self, selector: Selector) -> Result<Option<Matched>> {
        self.now().claim(selector)
    }

    fn give_back(&mut self, matched: Matched) {
        self.give_back(matched);
    }

    fn receive_claimed_into(&mut self, matched: Matched, buffer: &mut [u8]) -> Result<Status> {
        self.receive_claimed_into(matched, buffer)
    }

    fn cancel(&mut self, handle: OperationHandle) -> Result<()> {
        self.cancel(handle)
    }

    fn test(&mut self, handle: OperationHandle) -> Result<Option<Completion>> {
        self.test(handle)
    }

    fn progress(&mut self) -> Result<bool> {
        self.progress()
    }

    fn ireceive_told(
        &mut self,
        selector: Selector,
        memory: Memory,
        context: u64,
    ) -> Result<OperationHandle> {
        self.ireceive_with(selector, memory, told(context))
    }

    fn poll(&mut self, max: usize, each: impl FnMut(End<'_>)) -> Result<usize> {
        Endpoint::poll(self, max, each)
    }

    fn is_restless(&self) -> bool {
        false
    }
}

impl<T: Transport> Party for Engine<T> {
    fn isend(&mut self, peer: Peer, tag: u64, memory: Memory) -> Result<OperationHandle> {
        self.start_send(peer, tag.into(), memory, Options::default())
    }

    fn ireceive(&mut self, selector: Selector, memory: Memory) -> Result<OperationHandle> {
        self.start_receive(selector, memory, Options::default())
    }

    fn try_receive_into(
        &mut self,
        selector: Selector,
        buffer: &mut [u8],
    ) -> Result<Option<Status>> {
        if self.is_at_rest()
            && let Looked::Received(status) = self.try_take_short(&selector, buffer, Polling::Once)
        {
            return Ok(Some(status));
        }
        let mut target = buffer;
        self.receive_now(&mut Caller::new(selector, &mut target))?.transpose()
    }

    fn try_probe(&mut self, selector: Selector) -> Result<Option<Status>> {
        Engine::progress(self, None)?;
        self.peek(&selector).transpose()
    }

    fn try_claim(&mut self, selector: Selector) -> Result<Option<Matched>> {
        Engine::progress(self, None)?;
        self.claim(&selector).transpose()
    }

    fn give_back(&mut self, matched: Matched) {
        Engine::give_back(self, &matched);
    }

    fn receive_claimed_into(&mut self, matched: Matched, buffer: &mut [u8]) -> Result<Status> {
        let mut target = buffer;
        let mut caller = Caller::new(Selector::any(), &mut target);
        self.begin_claimed(matched, &mut caller);
        loop {
            if let Some(end) = self.end_of_claimed(&caller) {
                return end;
            }
            Engine::progress(self, Some(&mut caller))?;
        }
    }

    fn cancel(&mut self, handle: OperationHandle) -> Result<()> {
        Engine::cancel(self, handle)
    }

    fn test(&mut self, handle: OperationHandle) -> Result<Option<Completion>> {
        Engine::progress(self, None)?;
        self.take_completion(handle)
    }

    fn progress(&mut self) -> Result<bool> {
        Engine::progress(self, None)
    }

    fn ireceive_told(
        &mut self,
        selector: Selector,
        memory: Memory,
        context: u64,
    ) -> Result<OperationHandle> {
        self.start_receive(selector, memory, told(context))
    }

    fn poll(&mut self, max: usize, each: impl FnMut(End<'_>)) -> Result<usize> {
        Engine::poll(self, max, each)
    }

    fn is_restless(&self) -> bool {
        self.has_pending_sends()
    }
}
