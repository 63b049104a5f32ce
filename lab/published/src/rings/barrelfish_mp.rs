//! Barrelfish MP as the authors of ZIMP ran it (Aublin and others, section II-A5, and their
//! program): a channel from one process to another, whose slots have one size and hold one whole
//! message each.
//!
//! ```text
//! line 0        the acknowledgement: how many messages the receiver has had
//! then, for each slot, whole lines:
//!   message; in the last word its header: the message's number
//! ```
//!
//! The header is both the sequence number and the notification: a message is there when its header
//! holds the expected number. Sending copies the message from a private buffer; receiving copies it
//! into one. The sender may be at most as many messages ahead as there are slots. Then it stops
//! until the receiver has received all of them: the receiver sends one acknowledgement for every
//! full round of the slots.
//!
//! Cost per message and receiver: the receiver fetches the lines of the message, and the sender
//! acquires them exclusively again. In addition, for each round of the slots, one line in the other
//! direction, and one round trip during which the sender stands still. No locked instruction.

use corewire_layout::LINE_BYTES;

use crate::region::Region;
use crate::sync::AtomicU64;
use crate::{Trusted, order};

/// Where the slots begin, after the acknowledgement's line.
const SLOTS: usize = LINE_BYTES;
const HEADER_BYTES: usize = 8;

/// A channel.
#[derive(Debug, Clone)]
pub struct BarrelfishMp {
    memory: Region,
    slots: usize,
    message_bytes: usize,
}

impl BarrelfishMp {
    /// Bytes of memory for `slots` slots of `message_bytes` bytes.
    #[must_use]
    pub const fn bytes(slots: usize, message_bytes: usize) -> usize {
        SLOTS + slots * slot_bytes(message_bytes)
    }

    /// A channel in zeroed memory that both processes have mapped writable.
    ///
    /// # Panics
    /// If there is no slot, or the memory is too short.
    #[must_use]
    pub fn new(memory: &Region, slots: usize, message_bytes: usize) -> Self {
        let is_enough = slots > 0 && memory.bytes() >= Self::bytes(slots, message_bytes);
        assert!(is_enough, "{slots} slots of {message_bytes} bytes");
        Self { memory: memory.clone(), slots, message_bytes }
    }

    /// The channel's sender.
    #[must_use]
    pub fn sender(&self) -> BarrelfishMpSender {
        BarrelfishMpSender { ring: self.clone(), slot: 0, sent: 0, acked: 0 }
    }

    /// The channel's receiver.
    #[must_use]
    pub fn receiver(&self) -> BarrelfishMpReceiver {
        BarrelfishMpReceiver { ring: self.clone(), slot: 0, received: 0, acked: 0 }
    }

    fn ack(&self) -> &AtomicU64 {
        self.memory.word64(0)
    }

    fn header(&self, slot: usize) -> &AtomicU64 {
        let end = self.message(slot) + slot_bytes(self.message_bytes);
        self.memory.word64(end - HEADER_BYTES)
    }

    fn message(&self, slot: usize) -> usize {
        SLOTS + slot * slot_bytes(self.message_bytes)
    }

    fn after(&self, slot: usize) -> usize {
        if slot + 1 == self.slots { 0 } else { slot + 1 }
    }
}

/// As many lines as message and header need.
const fn slot_bytes(message_bytes: usize) -> usize {
    (message_bytes + HEADER_BYTES).next_multiple_of(LINE_BYTES)
}

/// The sending end.
#[derive(Debug)]
pub struct BarrelfishMpSender {
    ring: BarrelfishMp,
    slot: usize,
    sent: u64,
    acked: u64,
}

impl BarrelfishMpSender {
    /// Copies `message` into the next slot. Returns false while all slots are unacknowledged.
    ///
    /// # Panics
    /// If the message is longer than the channel's messages.
    pub fn try_send(&mut self, message: &[u8]) -> bool {
        let Self { ring, slot, sent, acked } = self;
        assert!(message.len() <= ring.message_bytes, "{} bytes", message.len());
        if *sent - *acked == ring.slots as u64 {
            // ORDER(U10): pairs with U9; what is overwritten has been read.
            if ring.ack().load(order!(U10: Acquire)) != *sent {
                return false;
            }
            *acked = *sent;
        }
        ring.memory.copy_in(ring.message(*slot), message);
        *sent += 1;
        // ORDER(U7): pairs with U8; the message is there before its number.
        ring.header(*slot).store(*sent, order!(U7: Release));
        *slot = ring.after(*slot);
        true
    }
}

/// The receiving end.
#[derive(Debug)]
pub struct BarrelfishMpReceiver {
    ring: BarrelfishMp,
    slot: usize,
    received: u64,
    acked: u64,
}

impl BarrelfishMpReceiver {
    /// Fills `target` from the start of the next message. Returns false if there is no message.
    ///
    /// # Panics
    /// If `target` is longer than the channel's messages.
    pub fn try_receive(&mut self, target: &mut [u8]) -> bool {
        let Self { ring, slot, received, acked } = self;
        assert!(target.len() <= ring.message_bytes, "{} bytes", target.len());
        // ORDER(U8): pairs with U7.
        if ring.header(*slot).load(order!(U8: Acquire)) != *received + 1 {
            return false;
        }
        // SAFETY: all processes that share a published ring run the same program.
        let trusted = unsafe { Trusted::assume() };
        // SAFETY: the message's number is there, and the sender overwrites the slot only after the
        // acknowledgement.
        unsafe { ring.memory.copy_out_still(trusted, ring.message(*slot), target) };
        *received += 1;
        *slot = ring.after(*slot);
        if *received - *acked == ring.slots as u64 {
            // ORDER(U9): pairs with U10; all slots have been read.
            ring.ack().store(*received, order!(U9: Release));
            *acked = *received;
        }
        true
    }
}
