//! ZIMP exactly as published (section III): messages are written in the channel, and
//! receivers copy them out.

use corewire_published::rings::{Zimp, ZimpReceiver, ZimpSender};
use corewire_ring::sync::pause;

use super::{Kept, Kind, Mechanism, Patience, Receives, Seat, Sends, Shape, Site, shared_memory};
use crate::study::failure::Failure;

const ENTRIES_MAX: usize = 1024;
const ENTRIES_MIN: usize = 4;
/// Size of the entries, if it holds enough of them.
const RING_BYTES: usize = 1 << 20;

pub(crate) struct Zimps;

pub(crate) struct Sender {
    ring: ZimpSender,
    patience: Patience,
    bytes: usize,
}

pub(crate) struct Receiver {
    ring: ZimpReceiver,
    patience: Patience,
    message: Vec<u8>,
    copied: u64,
}

fn entries(bytes: usize) -> u32 {
    let entry_bytes = Zimp::bytes(1, 0, bytes);
    let entries = shared_memory::slots(entry_bytes, ENTRIES_MIN, ENTRIES_MAX, RING_BYTES);
    u32::try_from(entries).unwrap_or(u32::MAX)
}

fn all_bytes(shape: Shape) -> usize {
    Zimp::bytes(entries(shape.bytes), shape.receivers as usize, shape.bytes)
}

fn open(site: &Site) -> Result<Zimp, Failure> {
    let Shape { bytes, receivers, .. } = site.shape;
    let memory = shared_memory::open(site, all_bytes(site.shape))?;
    Ok(Zimp::new(&memory, entries(bytes), receivers as usize, bytes))
}

impl Mechanism for Zimps {
    type Sender = Sender;
    type Receiver = Receiver;
    const NAME: &'static str = "ZIMP";
    const KIND: Kind = Kind::Copying;
    const HAS_MANY_SENDERS: bool = true;

    fn settings() -> String {
        format!(
            "as printed; {ENTRIES_MIN} to {ENTRIES_MAX} entries, {} MiB if it can be",
            RING_BYTES >> 20
        )
    }

    fn limit(shape: Shape) -> Option<String> {
        let is_too_many = shape.receivers as usize > Zimp::RECEIVERS_MAX;
        is_too_many
            .then(|| format!("a bitmap of one line has bits for {} receivers", Zimp::RECEIVERS_MAX))
    }

    fn set_up(site: &mut Site) -> Result<Kept, Failure> {
        Ok(shared_memory::make(site, all_bytes(site.shape))?.0)
    }

    fn sender(site: &Site, _: u32, seat: Seat<'_>) -> Result<Sender, Failure> {
        let ring = open(site)?.sender();
        Ok(Sender { ring, patience: seat.patience, bytes: site.shape.bytes })
    }

    fn receiver(site: &Site, index: u32, seat: Seat<'_>) -> Result<Receiver, Failure> {
        let ring = open(site)?.receiver(index as usize);
        let message = vec![0; site.shape.bytes];
        Ok(Receiver { ring, patience: seat.patience, message, copied: 0 })
    }
}

impl Sends for Sender {
    #[inline(always)]
    fn send(&mut self, write: impl FnOnce(&mut [u8])) -> Result<(), Failure> {
        let Self { ring, patience, bytes } = self;
        let mut write = Some(write);
        let must_yield = patience.must_yield;
        let locked = || if must_yield { std::thread::yield_now() } else { pause() };
        patience.until(|| {
            let mut entry = ring.try_claim(locked)?;
            write.take()?(&mut entry.bytes_mut()[..*bytes]);
            entry.send(*bytes);
            Some(())
        });
        Ok(())
    }
}

impl Receives for Receiver {
    #[inline(always)]
    fn receive<R>(&mut self, read: impl FnOnce(&[u8]) -> R) -> Result<R, Failure> {
        let Self { ring, patience, message, copied } = self;
        patience.until(|| ring.try_receive(|found| message.copy_from_slice(found)));
        *copied += message.len() as u64;
        Ok(read(message))
    }

    fn copied_bytes(&self) -> u64 {
        self.copied
    }
}
