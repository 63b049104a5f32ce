//! Barrelfish message passing as Barrelfish itself had it (research of 2009 to 2016): to each receiver
//! one channel of cache lines, with acknowledgements. A longer message takes as many lines as it needs.

use corewire_published::rings::{Flow, UMP_BYTES, Ump, UmpReceiver, UmpSender};
use corewire_ring::region::Region;

use super::{Kept, Kind, Mechanism, Patience, Receives, Seat, Sends, Site, shared_memory};
use crate::study::failure::Failure;

/// Lines in each direction.
const SLOTS: usize = 1024;

pub(crate) struct BarrelfishUmps;

/// The sending end: one channel to each receiver.
pub(crate) struct Sender {
    channels: Vec<UmpSender>,
    patience: Patience,
    message: Vec<u8>,
    copied: u64,
}

pub(crate) struct Receiver {
    channel: UmpReceiver,
    patience: Patience,
    message: Vec<u8>,
    line: [u8; UMP_BYTES],
    copied: u64,
}

const fn channel_bytes() -> usize {
    Ump::bytes(SLOTS).next_multiple_of(4096)
}

fn all_bytes(receivers: u32) -> usize {
    receivers as usize * channel_bytes()
}

fn channel(memory: &Region, receiver: u32) -> Result<Ump, Failure> {
    let part = shared_memory::part(memory, receiver, channel_bytes())?;
    Ok(Ump::new(&part, SLOTS, Flow::Acked))
}

impl Mechanism for BarrelfishUmps {
    type Sender = Sender;
    type Receiver = Receiver;
    const NAME: &'static str = "Barrelfish UMP";
    const KIND: Kind = Kind::Copying;
    const HAS_MANY_SENDERS: bool = false;

    fn settings() -> String {
        format!(
            "as Barrelfish had it: {SLOTS} lines each way, {UMP_BYTES} bytes in each, epochs and acknowledgements"
        )
    }

    fn set_up(site: &mut Site) -> Result<Kept, Failure> {
        Ok(shared_memory::make(site, all_bytes(site.shape.receivers))?.0)
    }

    fn sender(site: &Site, _: u32, seat: Seat<'_>) -> Result<Sender, Failure> {
        let memory = shared_memory::open(site, all_bytes(site.shape.receivers))?;
        let channels = site.receivers().map(|receiver| Ok(channel(&memory, receiver)?.sender()));
        let (channels, message) =
            (channels.collect::<Result<_, Failure>>()?, vec![0; site.shape.bytes]);
        Ok(Sender { channels, patience: seat.patience, message, copied: 0 })
    }

    fn receiver(site: &Site, index: u32, seat: Seat<'_>) -> Result<Receiver, Failure> {
        let memory = shared_memory::open(site, all_bytes(site.shape.receivers))?;
        let (channel, message) = (channel(&memory, index)?.receiver(), vec![0; site.shape.bytes]);
        Ok(Receiver { channel, patience: seat.patience, message, line: [0; UMP_BYTES], copied: 0 })
    }
}

impl Sends for Sender {
    #[inline(always)]
    fn send(&mut self, write: impl FnOnce(&mut [u8])) -> Result<(), Failure> {
        let Self { channels, patience, message, copied } = self;
        write(message);
        for channel in channels {
            for line in message.chunks(UMP_BYTES) {
                patience.until(|| channel.try_send(line).then_some(()));
            }
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
        let Self { channel, patience, message, line, copied } = self;
        for part in message.chunks_mut(UMP_BYTES) {
            let length = patience.until(|| channel.try_receive(line));
            part.copy_from_slice(&line[..length]);
        }
        *copied += message.len() as u64;
        Ok(read(message))
    }

    fn copied_bytes(&self) -> u64 {
        self.copied
    }
}
