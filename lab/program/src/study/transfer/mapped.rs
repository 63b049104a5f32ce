//! Mapped memory of the library: the sender's buffers come from the mechanism, each in a segment of its own, which the
//! receiver maps when it sees it first. As many segments as a receiver keeps mapped take turns.

use std::collections::VecDeque;
use std::sync::Arc;

use corewire_ring::message::Sink;
use corewire_transfer::mechanisms::{
    Description, MAPS_MAX, Mapped, MappedMemory, Mechanism, Peer, Role,
};

use super::arena::{Contents, Place};
use super::clock::clock;
use super::library::Library;
use super::operations::Operations;
use super::pair::Pair;
use crate::study::failure::{Doing, Failure};

/// What is written at a time.
const BLOCK_BYTES: usize = 4096;

/// One side.
pub(super) struct MappedBuffers {
    library: Library<Mapped>,
    role: Role,
    /// At the sender: its segments, the next one first.
    segments: VecDeque<MappedMemory>,
    /// At the receiver: the descriptors of the sender's segments, in their order.
    descriptors: Vec<Description>,
    /// Number of transfers since the segments were made.
    transfers: usize,
}

impl MappedBuffers {
    pub(super) fn open(peer: Peer, role: Role) -> Result<Self, String> {
        let library = Library::open(peer, role, ())?;
        let (segments, descriptors) = (VecDeque::new(), Vec::new());
        Ok(Self { library, role, segments, descriptors, transfers: 0 })
    }
}

impl Operations for MappedBuffers {
    fn local(&self) -> Role {
        Mapped::LOCAL
    }

    fn prepare(&mut self, pair: &mut Pair<'_>, bytes: usize) -> Result<(), Failure> {
        (self.segments, self.descriptors, self.transfers) = (VecDeque::new(), Vec::new(), 0);
        for _ in 0..MAPS_MAX {
            if self.role == Role::Target {
                let (bytes, mut descriptors) = pair.courier.take().doing("take a segment")?;
                let descriptor = descriptors.pop().map(|it| Arc::new(it) as _);
                self.descriptors.push(Description { bytes, descriptor });
                continue;
            }
            let mechanism = self.library.mechanism();
            let mut memory = mechanism.allocate(&[bytes]).doing("allocate mapped memory")?;
            write(&mut memory, bytes, |_, block| block.fill(1));
            let piece = mechanism.register(memory).doing("register memory")?;
            let description = piece.description();
            let descriptor = description.descriptor.as_ref();
            let descriptor =
                descriptor.ok_or_else(|| Failure::other("a map without descriptor"))?;
            pair.courier.give(&description.bytes, &[descriptor]).doing("give a segment")?;
            self.segments.push_back(mechanism.deregister(piece).doing("deregister memory")?);
        }
        Ok(())
    }

    fn write(&mut self, _: &mut Pair<'_>, place: Place, contents: Contents) -> u64 {
        let start = clock();
        if let Some(memory) = self.segments.front_mut() {
            write(memory, place.bytes, |from, block| contents.write(from, block));
        }
        clock() - start
    }

    fn register(&mut self, pair: &mut Pair<'_>, place: Place) -> Result<(), Failure> {
        let memory = match self.segments.pop_front() {
            Some(segment) => segment,
            None => pair.private.lend(place).into(),
        };
        let sent = self.descriptors.get(self.transfers % MAPS_MAX);
        let descriptor = sent.and_then(|sent| sent.descriptor.clone());
        self.transfers += 1;
        self.library.enter(pair, memory, |bytes| Description { bytes, descriptor })
    }

    fn deregister(&mut self, _: &mut Pair<'_>) -> Result<(), Failure> {
        let memory = self.library.leave()?;
        if self.role == Role::Source {
            self.segments.extend(memory);
        }
        Ok(())
    }

    fn copy_local(&mut self, pair: &mut Pair<'_>) -> Result<(), Failure> {
        self.library.steps(pair, true)
    }

    fn copy_remote(&mut self, pair: &mut Pair<'_>) -> Result<(), Failure> {
        self.library.steps(pair, false)
    }
}

/// Writes a message block by block, each of which is made in memory that stays in the first-level cache.
fn write(memory: &mut MappedMemory, bytes: usize, make: impl Fn(usize, &mut [u8])) {
    let mut block = [0; BLOCK_BYTES];
    for at in (0..bytes).step_by(BLOCK_BYTES) {
        let block = &mut block[..BLOCK_BYTES.min(bytes - at)];
        make(at, block);
        memory.put(at, block);
    }
}
