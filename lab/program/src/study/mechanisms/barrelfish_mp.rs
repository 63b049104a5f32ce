//! Barrelfish message passing as the authors of ZIMP ran it (ZIMP, II-A5): one channel to each
//! receiver, whose slots hold whole messages.

use corewire_published::rings::{BarrelfishMp, BarrelfishMpReceiver, BarrelfishMpSender};
use corewire_ring::region::Region;

use super::{Kept, Kind, Mechanism, Patience, Receives, Seat, Sends, Shape, Site, shared_memory};
use crate::study::failure::Failure;

/// As the authors ran it, but limited so that the slots stay in a cache.
const SLOTS_MAX: usize = 1000;
const SLOTS_MIN: usize = 4;
const RING_BYTES: usize = 1 << 20;

pub(crate) struct BarrelfishMps;

/// The sending end: one channel to each receiver.
pub(crate) struct Sender {
    channels: Vec<BarrelfishMpSender>,
    patience: Patience,
    message: Vec<u8>,
    copied: u64,
}

pub(crate) struct Receiver {
    channel: BarrelfishMpReceiver,
    patience: Patience,
    message: Vec<u8>,
    copied: u64,
}

fn slots(bytes: usize) -> usize {
    let slot_bytes = BarrelfishMp::bytes(1, bytes);
    shared_memory::slots(slot_bytes, SLOTS_MIN, SLOTS_MAX, RING_BYTES)
}

fn channel_bytes(bytes: usize) -> usize {
    BarrelfishMp::bytes(slots(bytes), bytes).next_multiple_of(4096)
}

fn all_bytes(shape: Shape) -> usize {
    shape.receivers as usize * channel_bytes(shape.bytes)
}

fn channel(memory: &Region, receiver: u32, bytes: usize) -> Result<BarrelfishMp, Failure> {
    let part = shared_memory::part(memory, receiver, channel_bytes(bytes))?;
    Ok(BarrelfishMp::new(&part, slots(bytes), bytes))
}

impl Mechanism for BarrelfishMps {
    type Sender = Sender;
    type Receiver = Receiver;
    const NAME: &'static str = "Barrelfish MP";
    const KIND: Kind = Kind::Copying;
    const HAS_MANY_SENDERS: bool = false;

    fn settings() -> String {
        format!(
            "as the authors of ZIMP ran it: slots of a whole message, an acknowledgement for all of \
             them; {SLOTS_MIN} to {SLOTS_MAX} slots, {} MiB if it can be",
            RING_BYTES >> 20
        )
    }

    fn set_up(site: &mut Site) -> Result<Kept, Failure> {
        Ok(shared_memory::make(site, all_bytes(site.shape))?.0)
    }

    fn sender(site: &Site, _: u32, seat: Seat<'_>) -> Result<Sender, Failure> {
        let memory = shared_memory::open(site, all_bytes(site.shape))?;
        let bytes = site.shape.bytes;
        let channels =
            site.receivers().map(|receiver| Ok(channel(&memory, receiver, bytes)?.sender()));
        let (channels, message) = (channels.collect::<Result<_, Failure>>()?, vec![0; bytes]);
        Ok(Sender { channels, patience: seat.patience, message, copied: 0 })
    }

    fn receiver(site: &Site, index: u32, seat: Seat<'_>) -> Result<Receiver, Failure> {
        let memory = shared_memory::open(site, all_bytes(site.shape))?;
        let bytes = site.shape.bytes;
        let channel = channel(&memory, index, bytes)?.receiver();
        Ok(Receiver { channel, patience: seat.patience, message: vec![0; bytes], copied: 0 })
    }
}

impl Sends for Sender {
    #[inline(always)]
    fn send(&mut self, write: impl FnOnce(&mut [u8])) -> Result<(), Failure> {
        let Self { channels, patience, message, copied } = self;
        write(message);
        for channel in channels {
            patience.until(|| channel.try_send(message).then_some(()));
            *copied += message.len() as u64;
        }
        Ok(())
    }

    fn copied_bytes(&self) -> u64 {
        self.copied
    }
}

impl Receives for Receiver {
    #[inline(always)]
    fn receive<R>(&mut self, read: impl FnOnce(&[u8]) -> R) -> Result<R, Failure> {
        let Self { channel, patience, message, copied } = self;
        patience.until(|| channel.try_receive(message).then_some(()));
        *copied += message.len() as u64;
        Ok(read(message))
    }

    fn copied_bytes(&self) -> u64 {
        self.copied
    }
}
