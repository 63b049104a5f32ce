//! UMP, Barrelfish's own message passing (Baumann and others, and the system's source): a channel from one
//! process to one other, a cache line to a message; one-to-many is as many channels, and a copy into each.
//! (What ZIMP was measured against is [`BarrelfishMp`](super::BarrelfishMp).)
//!
//! ```text
//! slot:   0                        56       64
//!         | payload, 7 words        | header |
//! ```
//!
//! Both ways of flow control that the system has had:
//!
//! * [`Flow::Acked`] (2009 to 2016): the header's lowest bit is the lap's *epoch*, which flips each time
//!   round, so a receiver never writes a slot. The sender may be as many messages ahead as there are slots;
//!   the receiver sends the number of what it has received in a slot of the way back once all but one slot
//!   are not acknowledged (where messages travel both ways, in their headers instead).
//! * [`Flow::Used`] (from 2017): the lowest bit is *used*; the receiver clears it in the slot when it has
//!   read it, and the sender looks at the slot that it wants.
//!
//! Cost per message of up to 56 bytes and receiver: acked, a line fetched by the receiver, one had alone
//! again by the sender, and for one of S - 1 messages a line the other way; used, a line fetched and one
//! had alone by each. No locked instruction.

use corewire_layout::LINE_BYTES;

use crate::region::Region;
use crate::sync::AtomicU64;
use crate::{Trusted, order};

/// Bytes of payload of a slot.
pub const UMP_BYTES: usize = HEADER;
const HEADER: usize = LINE_BYTES - 8;
/// Of the header: the lap's epoch, or that the slot is used.
const FULL: u64 = 1;
/// Above that bit: a payload's length, or what is acknowledged.
const REST: u32 = 1;

/// How a sender knows that a slot has been read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flow {
    /// It is told, from time to time.
    Acked,
    /// It looks at the slot.
    Used,
}

/// A channel, both ways.
#[derive(Debug, Clone)]
pub struct Ump {
    memory: Region,
    slots: usize,
    flow: Flow,
}

impl Ump {
    /// Bytes of memory for `slots` slots each way.
    #[must_use]
    pub const fn bytes(slots: usize) -> usize {
        2 * slots * LINE_BYTES
    }

    /// In zeroed memory that both have mapped writable.
    ///
    /// # Panics
    /// If there are fewer than two slots, or the memory is too short.
    #[must_use]
    pub fn new(memory: &Region, slots: usize, flow: Flow) -> Self {
        assert!(slots >= 2 && memory.bytes() >= Self::bytes(slots), "{slots} slots");
        Self { memory: memory.clone(), slots, flow }
    }

    /// Its sender.
    #[must_use]
    pub fn sender(&self) -> UmpSender {
        UmpSender { ring: self.clone(), next: Spot::FIRST, ack: Spot::FIRST, sent: 0, acked: 0 }
    }

    /// Its receiver.
    #[must_use]
    pub fn receiver(&self) -> UmpReceiver {
        UmpReceiver {
            ring: self.clone(),
            next: Spot::FIRST,
            ack: Spot::FIRST,
            received: 0,
            acked: 0,
        }
    }

    /// The header at a spot of the way there.
    fn header(&self, spot: Spot) -> &AtomicU64 {
        self.memory.word64(spot.slot * LINE_BYTES + HEADER)
    }

    /// The header at a spot of the way back.
    fn ack(&self, spot: Spot) -> &AtomicU64 {
        self.memory.word64((self.slots + spot.slot) * LINE_BYTES + HEADER)
    }

    /// What the header's lowest bit is once there is a message.
    fn full(&self, spot: Spot) -> u64 {
        if self.flow == Flow::Used { FULL } else { spot.epoch }
    }
}

/// A slot, and the epoch of the lap. (Kept, since finding them would take divisions.)
#[derive(Debug, Clone, Copy)]
struct Spot {
    slot: usize,
    epoch: u64,
}

impl Spot {
    /// The epoch of the first lap is not that of memory that is still zeroes.
    const FIRST: Self = Self { slot: 0, epoch: FULL };

    fn step(&mut self, slots: usize) {
        self.slot += 1;
        if self.slot == slots {
            *self = Self { slot: 0, epoch: self.epoch ^ FULL };
        }
    }
}

/// The end that sends.
#[derive(Debug)]
pub struct UmpSender {
    ring: Ump,
    next: Spot,
    /// Where the next acknowledgement will be.
    ack: Spot,
    sent: u64,
    acked: u64,
}

impl UmpSender {
    /// Copies `message` into the next slot, if that has been read. False if not.
    ///
    /// # Panics
    /// If the message is longer than [`UMP_BYTES`].
    pub fn try_send(&mut self, message: &[u8]) -> bool {
        assert!(message.len() <= UMP_BYTES, "{} of {UMP_BYTES} bytes", message.len());
        if !self.has_room() {
            return false;
        }
        let Self { ring, next, sent, .. } = self;
        ring.memory.copy_in(next.slot * LINE_BYTES, message);
        let header = ring.full(*next) | (message.len() as u64) << REST;
        // ORDER(U1): pairs with U2; the message is there before its header.
        ring.header(*next).store(header, order!(U1: Release));
        next.step(ring.slots);
        *sent += 1;
        true
    }

    fn has_room(&mut self) -> bool {
        let Self { ring, next, ack, sent, acked } = self;
        if ring.flow == Flow::Used {
            // ORDER(U4): pairs with U3; what is written over has been read.
            return ring.header(*next).load(order!(U4: Acquire)) & FULL == 0;
        }
        while *sent - *acked == ring.slots as u64 {
            // ORDER(U6): pairs with U5; as above.
            let found = ring.ack(*ack).load(order!(U6: Acquire));
            if found & FULL != ack.epoch {
                return false;
            }
            *acked = found >> REST;
            ack.step(ring.slots);
        }
        true
    }
}

/// The end that receives.
#[derive(Debug)]
pub struct UmpReceiver {
    ring: Ump,
    next: Spot,
    /// Where the next acknowledgement goes.
    ack: Spot,
    received: u64,
    acked: u64,
}

impl UmpReceiver {
    /// Copies the next message into `target` and returns its length; `None` if there is none.
    pub fn try_receive(&mut self, target: &mut [u8; UMP_BYTES]) -> Option<usize> {
        let Self { ring, next, ack, received, acked } = self;
        let slot = ring.header(*next);
        // ORDER(U2): pairs with U1.
        let header = slot.load(order!(U2: Acquire));
        if header & FULL != ring.full(*next) {
            return None;
        }
        let length = usize::try_from(header >> REST).unwrap_or(usize::MAX).min(UMP_BYTES);
        let target = &mut target[..length];
        // SAFETY: all that share a published ring run the same program.
        let trusted = unsafe { Trusted::assume() };
        // SAFETY: the header is there, and the sender writes the slot again only once told.
        unsafe { ring.memory.copy_out_still(trusted, next.slot * LINE_BYTES, target) };
        next.step(ring.slots);
        *received += 1;
        if ring.flow == Flow::Used {
            // ORDER(U3): pairs with U4; the message has been read.
            slot.store(0, order!(U3: Release));
        } else if *received - *acked == (ring.slots - 1) as u64 {
            // ORDER(U5): pairs with U6; as above.
            ring.ack(*ack).store(ack.epoch | *received << REST, order!(U5: Release));
            ack.step(ring.slots);
            *acked = *received;
        }
        Some(length)
    }
}
