//! UMP, Barrelfish's own message passing (Baumann and others, and the system's source): a channel
//! from one process to another, one cache line per message. One-to-many takes one channel per
//! receiver, and a copy into each. (ZIMP was measured against
//! [`BarrelfishMp`](super::BarrelfishMp).)
//!
//! ```text
//! slot:   0                        56       64
//!         | payload, 7 words        | header |
//! ```
//!
//! The system has had two methods of flow control:
//!
//! * [`Flow::Acked`] (2009 to 2016): the header's lowest bit is the *epoch* of the lap, which flips
//!   each time round, so a receiver never writes a slot. The sender may be as many messages ahead
//!   as there are slots. When all slots but one are unacknowledged, the receiver sends the number
//!   of messages received, in a slot of the reverse direction. (Where messages travel in both
//!   directions, it goes in their headers instead.)
//! * [`Flow::Used`] (from 2017): the lowest bit is *used*. The receiver clears it in the slot after
//!   reading the slot, and the sender checks it in the slot that it wants to write.
//!
//! Cost per message of up to 56 bytes and receiver: with `Acked`, the receiver fetches a line, the
//! sender acquires it exclusively again, and one in S - 1 messages costs a line in the other
//! direction; with `Used`, each side fetches a line and acquires it exclusively. No locked
//! instruction.

use corewire_layout::LINE_BYTES;

use crate::region::Region;
use crate::sync::AtomicU64;
use crate::{Trusted, order};

/// Payload bytes of a slot.
pub const UMP_BYTES: usize = HEADER;
const HEADER: usize = LINE_BYTES - 8;
/// Bit of the header: the epoch of the lap, or that the slot is used.
const FULL: u64 = 1;
/// The bits above hold the payload's length, or the acknowledged number.
const REST: u32 = 1;

/// How a sender learns that a slot has been read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flow {
    /// The receiver acknowledges messages from time to time.
    Acked,
    /// The sender checks the slot.
    Used,
}

/// A channel, in both directions.
#[derive(Debug, Clone)]
pub struct Ump {
    memory: Region,
    slots: usize,
    flow: Flow,
}

impl Ump {
    /// Bytes of memory for `slots` slots in each direction.
    #[must_use]
    pub const fn bytes(slots: usize) -> usize {
        2 * slots * LINE_BYTES
    }

    /// A channel in zeroed memory that both processes have mapped writable.
    ///
    /// # Panics
    /// If there are fewer than two slots, or the memory is too short.
    #[must_use]
    pub fn new(memory: &Region, slots: usize, flow: Flow) -> Self {
        assert!(slots >= 2 && memory.bytes() >= Self::bytes(slots), "{slots} slots");
        Self { memory: memory.clone(), slots, flow }
    }

    /// The channel's sender.
    #[must_use]
    pub fn sender(&self) -> UmpSender {
        UmpSender { ring: self.clone(), next: Spot::FIRST, ack: Spot::FIRST, sent: 0, acked: 0 }
    }

    /// The channel's receiver.
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

    /// The header at a spot of the forward direction.
    fn header(&self, spot: Spot) -> &AtomicU64 {
        self.memory.word64(spot.slot * LINE_BYTES + HEADER)
    }

    /// The header at a spot of the reverse direction.
    fn ack(&self, spot: Spot) -> &AtomicU64 {
        self.memory.word64((self.slots + spot.slot) * LINE_BYTES + HEADER)
    }

    /// The value of the header's lowest bit once there is a message.
    fn full(&self, spot: Spot) -> u64 {
        if self.flow == Flow::Used { FULL } else { spot.epoch }
    }
}

/// A slot and the epoch of its lap. (Stored, since computing them would take divisions.)
#[derive(Debug, Clone, Copy)]
struct Spot {
    slot: usize,
    epoch: u64,
}

impl Spot {
    /// The epoch of the first lap differs from zeroed memory.
    const FIRST: Self = Self { slot: 0, epoch: FULL };

    fn step(&mut self, slots: usize) {
        self.slot += 1;
        if self.slot == slots {
            *self = Self { slot: 0, epoch: self.epoch ^ FULL };
        }
    }
}

/// The sending end.
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
    /// Copies `message` into the next slot. Returns false if that slot has not been read yet.
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
            // ORDER(U4): pairs with U3; what is overwritten has been read.
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

/// The receiving end.
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
        // SAFETY: all processes that share a published ring run the same program.
        let trusted = unsafe { Trusted::assume() };
        // SAFETY: the header is there, and the sender overwrites the slot only after the slot is
        // cleared or acknowledged.
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
