//! Shared memory with semaphores (ZIMP, section V): one ring for each receiver, with POSIX
//! semaphores that count free and full slots, and one that excludes other senders where there are
//! several.
//!
//! ```text
//! 0     semaphores on lines of their own: free slots, full slots, one sender at a time
//! 192   the next slot to be sent, written by the sender that holds the third semaphore
//! 256   slots, whole lines each
//! ```

use corewire_ring::Trusted;
use corewire_ring::region::Region;
use corewire_ring::sync::Ordering::Relaxed;

use super::kernel::Semaphore;
use super::{Kept, Kind, Mechanism, Receives, Seat, Sends, Shape, Site, shared_memory};
use crate::study::failure::{Doing, Failure};

const NEXT: usize = 192;
const SLOTS: usize = 256;
const SLOTS_MIN: usize = 4;
const SLOTS_MAX: usize = 256;
/// Size of the slots of a ring, if it holds enough of them.
const RING_BYTES: usize = 2 << 20;

pub(crate) struct Semaphores;

/// The sending end: one ring to each receiver.
pub(crate) struct Sender {
    rings: Vec<Ring>,
    message: Vec<u8>,
    copied: u64,
}

pub(crate) struct Receiver {
    ring: Ring,
    next: usize,
    message: Vec<u8>,
    copied: u64,
}

struct Ring {
    memory: Region,
    free: Semaphore,
    full: Semaphore,
    senders: Option<Semaphore>,
    slots: usize,
    slot_bytes: usize,
}

fn slot_bytes(bytes: usize) -> usize {
    bytes.next_multiple_of(64)
}

fn slots(bytes: usize) -> usize {
    shared_memory::slots(slot_bytes(bytes), SLOTS_MIN, SLOTS_MAX, RING_BYTES)
}

/// Size of one ring.
fn ring_bytes(bytes: usize) -> usize {
    (SLOTS + slots(bytes) * slot_bytes(bytes)).next_multiple_of(4096)
}

fn all_bytes(shape: Shape) -> usize {
    shape.receivers as usize * ring_bytes(shape.bytes)
}

impl Ring {
    fn of(memory: &Region, receiver: u32, shape: Shape) -> Result<Self, Failure> {
        let memory = shared_memory::part(memory, receiver, ring_bytes(shape.bytes))?;
        let [free, full, senders] =
            [0, 1, 2].map(|at| Semaphore::at(&memory, at * Semaphore::BYTES));
        let senders = (shape.senders > 1).then_some(senders);
        let (slots, slot_bytes) = (slots(shape.bytes), slot_bytes(shape.bytes));
        Ok(Self { memory, free, full, senders, slots, slot_bytes })
    }

    fn initialise(&self) -> std::io::Result<()> {
        self.free.initialise(u32::try_from(self.slots).unwrap_or(u32::MAX))?;
        self.full.initialise(0)?;
        self.senders.as_ref().map_or(Ok(()), |senders| senders.initialise(1))
    }

    fn send(&self, message: &[u8]) -> std::io::Result<()> {
        self.free.wait()?;
        if let Some(senders) = &self.senders {
            senders.wait()?;
        }
        let next = self.memory.word64(NEXT);
        let slot = usize::try_from(next.load(Relaxed)).unwrap_or_default();
        next.store(if slot + 1 == self.slots { 0 } else { slot as u64 + 1 }, Relaxed);
        self.memory.copy_in(SLOTS + slot * self.slot_bytes, message);
        if let Some(senders) = &self.senders {
            senders.post()?;
        }
        self.full.post()
    }
}

impl Mechanism for Semaphores {
    type Sender = Sender;
    type Receiver = Receiver;
    const NAME: &'static str = "Shared memory with semaphores";
    const KIND: Kind = Kind::Copying;
    const HAS_MANY_SENDERS: bool = true;

    fn settings() -> String {
        format!(
            "POSIX semaphores; a ring of {SLOTS_MIN} to {SLOTS_MAX} slots, {} MiB if it can be, for each \
             receiver",
            RING_BYTES >> 20
        )
    }

    fn set_up(site: &mut Site) -> Result<Kept, Failure> {
        let (kept, memory) = shared_memory::make(site, all_bytes(site.shape))?;
        for receiver in site.receivers() {
            let ring = Ring::of(&memory, receiver, site.shape)?;
            ring.initialise().doing("make a semaphore")?;
        }
        Ok(kept)
    }

    fn sender(site: &Site, _: u32, _: Seat<'_>) -> Result<Sender, Failure> {
        let memory = shared_memory::open(site, all_bytes(site.shape))?;
        let rings = site.receivers().map(|receiver| Ring::of(&memory, receiver, site.shape));
        let message = vec![0; site.shape.bytes];
        Ok(Sender { rings: rings.collect::<Result<_, _>>()?, message, copied: 0 })
    }

    fn receiver(site: &Site, index: u32, _: Seat<'_>) -> Result<Receiver, Failure> {
        let memory = shared_memory::open(site, all_bytes(site.shape))?;
        let ring = Ring::of(&memory, index, site.shape)?;
        Ok(Receiver { ring, next: 0, message: vec![0; site.shape.bytes], copied: 0 })
    }
}

impl Sends for Sender {
    fn send(&mut self, write: impl FnOnce(&mut [u8])) -> Result<(), Failure> {
        write(&mut self.message);
        for ring in &self.rings {
            ring.send(&self.message).doing("wait for a semaphore")?;
            self.copied += self.message.len() as u64;
        }
        Ok(())
    }

    fn copied_bytes(&self) -> u64 {
        self.copied
    }
}

impl Receives for Receiver {
    fn receive<R>(&mut self, read: impl FnOnce(&[u8]) -> R) -> Result<R, Failure> {
        let Self { ring, next, message, copied } = self;
        ring.full.wait().doing("wait for a semaphore")?;
        // SAFETY: all processes of a run are the same program and follow the protocol.
        let trusted = unsafe { Trusted::assume() };
        // SAFETY: the slot is full, and no sender writes it before it is free.
        unsafe { ring.memory.copy_out_still(trusted, SLOTS + *next * ring.slot_bytes, message) };
        *next = if *next + 1 == ring.slots { 0 } else { *next + 1 };
        *copied += message.len() as u64;
        ring.free.post().doing("give a semaphore")?;
        Ok(read(message))
    }

    fn copied_bytes(&self) -> u64 {
        self.copied
    }
}
