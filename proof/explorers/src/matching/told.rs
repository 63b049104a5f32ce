//! A party whose receives are told by `poll`, as a provider for MPI has them, in place of being tested one by one.

use std::collections::BTreeMap;

use corewire::{
    Completion, End, Matched, Memory, MessageError, OperationHandle, Peer, Selector, Status,
};

use super::party::Party;

type Result<T> = std::result::Result<T, MessageError>;

/// The handles that this party gives are numbers of its own, above all that an endpoint gives in a test.
const OWN: u64 = 1 << 63;

/// As many parts as a message of these programs has, and more.
const QUIET_ROUNDS: u32 = 60;

/// A party, and what was told of it and not asked for yet.
#[derive(Debug)]
pub struct Told<P> {
    party: P,
    /// The handles of its receives by number, and their ends.
    receives: BTreeMap<u64, (OperationHandle, Option<Completion>)>,
    last: u64,
    /// How many ends the next poll asks for.
    max: usize,
    /// Rounds in which nothing seemed to happen.
    quiet: u32,
    /// It was restless after the last of them.
    is_restless: bool,
}

impl<P: Party> Told<P> {
    /// The same party, told of its receives.
    pub fn new(party: P) -> Self {
        Self { party, receives: BTreeMap::new(), last: OWN, max: 1, quiet: 0, is_restless: false }
    }

    fn look(&mut self) -> Result<usize> {
        let Self { party, receives, max, .. } = self;
        *max = *max % 3 + 1;
        party.poll(*max, |end| {
            let End { context, result, memory, .. } = end;
            let (_, ended) = receives.get_mut(&context).expect("one of its receives");
            assert!(ended.is_none(), "told once");
            let result = result.map_err(Clone::clone);
            *ended = Some(Completion { context: 0, result, memory: memory.expect("its own") });
        })
    }
}

impl<P: Party> Party for Told<P> {
    fn isend(&mut self, peer: Peer, tag: u64, memory: Memory) -> Result<OperationHandle> {
        self.is_restless = true;
        self.party.isend(peer, tag, memory)
    }

    fn ireceive(&mut self, selector: Selector, memory: Memory) -> Result<OperationHandle> {
        self.last += 1;
        let handle = self.party.ireceive_told(selector, memory, self.last)?;
        self.receives.insert(self.last, (handle, None));
        Ok(OperationHandle::from_bits(self.last))
    }

    fn try_receive_into(
        &mut self,
        selector: Selector,
        buffer: &mut [u8],
    ) -> Result<Option<Status>> {
        self.party.try_receive_into(selector, buffer)
    }

    fn try_probe(&mut self, selector: Selector) -> Result<Option<Status>> {
        self.party.try_probe(selector)
    }

    fn try_claim(&mut self, selector: Selector) -> Result<Option<Matched>> {
        self.party.try_claim(selector)
    }

    fn give_back(&mut self, matched: Matched) {
        self.party.give_back(matched);
    }

    fn receive_claimed_into(&mut self, matched: Matched, buffer: &mut [u8]) -> Result<Status> {
        self.party.receive_claimed_into(matched, buffer)
    }

    fn cancel(&mut self, handle: OperationHandle) -> Result<()> {
        match self.receives.get(&handle.to_bits()) {
            // Its end may be in the queue.
            Some((handle, None)) => match self.party.cancel(*handle) {
                Err(MessageError::UnknownOperation) => Ok(()),
                ended => ended,
            },
            Some((_, Some(_))) => Ok(()),
            None => self.party.cancel(handle),
        }
    }

    fn test(&mut self, handle: OperationHandle) -> Result<Option<Completion>> {
        let number = handle.to_bits();
        if number < OWN {
            return self.party.test(handle);
        }
        self.look()?;
        match self.receives.get_mut(&number) {
            None => Err(MessageError::UnknownOperation),
            Some((_, None)) => Ok(None),
            Some((_, ended)) => {
                let ended = ended.take();
                self.receives.remove(&number);
                Ok(ended)
            }
        }
    }

    fn progress(&mut self) -> Result<bool> {
        let is_busy = self.look()? > 0 || self.party.progress()?;
        // A poll that tells nothing may have sent or taken something.
        let was_restless = std::mem::replace(&mut self.is_restless, self.party.is_restless());
        self.quiet = if is_busy { 0 } else { self.quiet + 1 };
        Ok(is_busy || was_restless && (!self.is_restless || self.quiet < QUIET_ROUNDS))
    }

    fn ireceive_told(
        &mut self,
        selector: Selector,
        memory: Memory,
        context: u64,
    ) -> Result<OperationHandle> {
        self.party.ireceive_told(selector, memory, context)
    }

    fn poll(&mut self, max: usize, each: impl FnMut(End<'_>)) -> Result<usize> {
        self.party.poll(max, each)
    }

    fn is_restless(&self) -> bool {
        self.party.is_restless()
    }
}
