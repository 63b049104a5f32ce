//! ZIMP (Aublin and others, section III): a circular buffer in which messages are allocated. A
//! message is sent once, by any of the senders, and read by each of a fixed set of receivers.
//!
//! ```text
//! line 0        the lock of the next word
//! line 1        next_send_entry
//! line 2 + r    next_read[r], a line each (III-B: padding)
//! then, for each entry:
//!   one line    the bitmap, a bit for each receiver (III-B: a line of its own); the entry's turn
//!   lines       message; its length in the last word
//! ```
//!
//! Sending (III-A): take the next entry under the lock; wait until its bitmap is 0; write the
//! message there; set every bit. Receiving: if the receiver's own bit of entry `next_read[r]` is
//! set, advance `next_read[r]`, copy the content, clear the bit. Both sides update the bitmap
//! atomically: the sender with one store for 64 receivers, since it has an entry whose bitmap is 0
//! to itself, and each receiver with a locked instruction.
//!
//! The *turn* is not in the paper. In the printed algorithm, a sender that has taken an entry and
//! not written it yet can be overtaken by a sender that is one lap later and finds the bitmap of
//! the same entry 0. So an entry counts how often it has been sent, and a sender that takes it
//! waits for its own turn. The turn lies in the bitmap's line and costs nothing.
//!
//! Cost per message of up to 56 bytes, N receivers: the sender fetches the lock and the next word,
//! if another sender had them, the bitmap and the message, and executes one locked instruction.
//! Each receiver fetches the bitmap and the message, and must own the bitmap's line exclusively for
//! its own locked instruction; all N of these go through that one line one after the other.

use corewire_layout::LINE_BYTES;

use crate::region::{Access, Payload, Region, Store};
use crate::sync::{AtomicU32, AtomicU64, Ordering::Relaxed};
use crate::{Trusted, order};

const LOCK: usize = 0;
const NEXT_SEND_ENTRY: usize = LINE_BYTES;
const NEXT_READ: usize = 2 * LINE_BYTES;
/// In the bitmap's line, after the bits: the number of times that the entry has been sent.
const TURN: usize = LINE_BYTES - 8;
/// At the end of a message's lines, its length.
const LENGTH_BYTES: usize = 8;

/// A ring and its sizes.
#[derive(Debug, Clone)]
pub struct Zimp {
    memory: Region,
    buffer: Store,
    entries: u32,
    receivers: usize,
    message_bytes: usize,
}

impl Zimp {
    /// Maximum number of receivers: the bits of a bitmap's line before the turn.
    pub const RECEIVERS_MAX: usize = 8 * TURN;

    /// Bytes of memory for `entries` entries of `message_bytes` bytes, and for `receivers`
    /// receivers.
    #[must_use]
    pub const fn bytes(entries: u32, receivers: usize, message_bytes: usize) -> usize {
        NEXT_READ + receivers * LINE_BYTES + buffer_bytes(entries, message_bytes)
    }

    /// A ring in zeroed memory that all processes have mapped writable.
    ///
    /// # Panics
    /// If the memory is too short, there is no entry or receiver, or more than 448 receivers.
    #[must_use]
    pub fn new(memory: &Region, entries: u32, receivers: usize, message_bytes: usize) -> Self {
        assert!(entries > 0 && (1..=Self::RECEIVERS_MAX).contains(&receivers), "own sizes");
        let buffer = NEXT_READ + receivers * LINE_BYTES;
        let bytes = buffer_bytes(entries, message_bytes);
        let buffer = Store::new(memory, buffer as u64, bytes as u64);
        Self { memory: memory.clone(), buffer, entries, receivers, message_bytes }
    }

    /// One of the ring's senders.
    #[must_use]
    pub fn sender(&self) -> ZimpSender {
        ZimpSender { ring: self.clone(), taken: None }
    }

    /// Receiver `row`, the only one with that number.
    ///
    /// # Panics
    /// If there is no such receiver.
    #[must_use]
    pub fn receiver(&self, row: usize) -> ZimpReceiver {
        assert!(row < self.receivers, "receiver {row} of {}", self.receivers);
        ZimpReceiver { ring: self.clone(), row }
    }

    fn lock(&self) -> &AtomicU32 {
        self.memory.word32(LOCK)
    }

    /// The next entry, and in the upper half its turn.
    fn next_send_entry(&self) -> &AtomicU64 {
        self.memory.word64(NEXT_SEND_ENTRY)
    }

    fn next_read(&self, row: usize) -> &AtomicU32 {
        self.memory.word32(NEXT_READ + row * LINE_BYTES)
    }

    /// Word `word` of an entry's bitmap.
    fn bitmap(&self, entry: u32, word: usize) -> &AtomicU64 {
        self.memory.word64(self.entry(entry) + 8 * word)
    }

    fn turn(&self, entry: u32) -> &AtomicU32 {
        self.memory.word32(self.entry(entry) + TURN)
    }

    fn length(&self, entry: u32) -> &AtomicU64 {
        let end = self.entry(entry) + entry_bytes(self.message_bytes);
        self.memory.word64(end - LENGTH_BYTES)
    }

    fn entry(&self, entry: u32) -> usize {
        NEXT_READ + self.receivers * LINE_BYTES + entry as usize * entry_bytes(self.message_bytes)
    }

    fn payload(&self, entry: u32, bytes: usize, access: Access) -> Payload {
        let line = entry as usize * entry_bytes(self.message_bytes) + LINE_BYTES;
        self.buffer.payload(line as u64, bytes as u64, access).expect("own sizes")
    }

    /// The bits of the receivers that word `word` of a bitmap stands for.
    fn mask(&self, word: usize) -> u64 {
        match self.receivers - 64 * word {
            64.. => u64::MAX,
            few => !(u64::MAX << few),
        }
    }

    fn words(&self) -> core::ops::Range<usize> {
        0..self.receivers.div_ceil(64)
    }

    /// The entry after `entry`. (No division: that would cost a message nanoseconds.)
    fn after(&self, entry: u32) -> u32 {
        if entry + 1 == self.entries { 0 } else { entry + 1 }
    }
}

/// The lower and the upper half of a word.
#[expect(clippy::cast_possible_truncation, reason = "halves")]
const fn halves(word: u64) -> (u32, u32) {
    (word as u32, (word >> 32) as u32)
}

/// All entries, rounded up so that their places are found without a division.
const fn buffer_bytes(entries: u32, message_bytes: usize) -> usize {
    (entries as usize * entry_bytes(message_bytes)).next_power_of_two()
}

/// The bitmap's line, and as many lines as length and message need.
const fn entry_bytes(message_bytes: usize) -> usize {
    LINE_BYTES + (LENGTH_BYTES + message_bytes).next_multiple_of(LINE_BYTES)
}

/// A sender. Several senders share the ring.
#[derive(Debug)]
pub struct ZimpSender {
    ring: Zimp,
    /// The entry that it has taken and not sent yet, and the entry's turn.
    taken: Option<(u32, u32)>,
}

impl ZimpSender {
    /// The next entry, empty, to be written. `None` if a receiver has not read its last message
    /// yet. Spins for the lock and calls `wait` meanwhile, but does not spin for the entry: the
    /// entry stays taken for the next call.
    pub fn try_claim(&mut self, wait: impl Fn()) -> Option<ZimpEntry<'_>> {
        let ring = &self.ring;
        let (entry, turn) = *self.taken.get_or_insert_with(|| {
            // ORDER(Z1): pairs with Z2; the next word is as its last holder left it.
            while ring.lock().compare_exchange(0, 1, order!(Z1: Acquire), Relaxed).is_err() {
                wait();
            }
            let next = ring.next_send_entry().load(Relaxed);
            let (entry, turn) = halves(next);
            let after = ring.after(entry);
            let turn_after = turn.wrapping_add(u32::from(after == 0));
            let next = u64::from(turn_after) << 32 | u64::from(after);
            ring.next_send_entry().store(next, Relaxed);
            // ORDER(Z2): pairs with Z1.
            ring.lock().store(0, order!(Z2: Release));
            (entry, turn)
        });
        // ORDER(Z8): pairs with Z7; the bitmap is that of the previous turn, or what receivers left
        // of it.
        if ring.turn(entry).load(order!(Z8: Acquire)) != turn {
            return None;
        }
        // ORDER(Z6): pairs with Z5; all receivers have read what is overwritten from here on.
        let is_read = |word| ring.bitmap(entry, word).load(order!(Z6: Acquire)) == 0;
        if !ring.words().all(is_read) {
            return None;
        }
        let payload = ring.payload(entry, ring.message_bytes, Access::Write);
        Some(ZimpEntry { sender: self, entry, turn, payload })
    }
}

/// An entry to be written. Dropping it leaves it taken.
#[derive(Debug)]
pub struct ZimpEntry<'a> {
    sender: &'a mut ZimpSender,
    entry: u32,
    turn: u32,
    payload: Payload,
}

impl ZimpEntry<'_> {
    /// The memory for the message: all that an entry holds.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: it is this sender's turn with the entry, whose bitmap is 0, so no receiver reads
        // it. The sender, which is borrowed, keeps the memory.
        unsafe { self.payload.as_mut_slice() }
    }

    /// Sends its first `bytes` bytes to all receivers.
    ///
    /// # Panics
    /// If an entry holds fewer bytes.
    pub fn send(self, bytes: usize) {
        let Self { sender, entry, turn, payload } = self;
        assert!(bytes <= payload.bytes(), "{bytes} of {} bytes", payload.bytes());
        sender.taken = None;
        let ring = &sender.ring;
        ring.length(entry).store(bytes as u64, Relaxed);
        for word in ring.words() {
            // ORDER(Z3): pairs with Z4; the message is written before its bits are set.
            ring.bitmap(entry, word).store(ring.mask(word), order!(Z3: Release));
        }
        // ORDER(Z7): pairs with Z8; the sender that takes the entry next sees this bitmap, or a
        // later one.
        ring.turn(entry).store(turn.wrapping_add(1), order!(Z7: Release));
    }
}

/// A receiver.
#[derive(Debug)]
pub struct ZimpReceiver {
    ring: Zimp,
    row: usize,
}

impl ZimpReceiver {
    /// Calls `job`, which copies what it needs, with the next message; `None` if there is none.
    pub fn try_receive<R>(&mut self, job: impl FnOnce(&[u8]) -> R) -> Option<R> {
        let Self { ring, row } = self;
        let next_read = ring.next_read(*row);
        let entry = next_read.load(Relaxed);
        let (word, bit) = (*row / 64, 1 << (*row % 64));
        let bitmap = ring.bitmap(entry, word);
        // ORDER(Z4): pairs with Z3.
        if bitmap.load(order!(Z4: Acquire)) & bit == 0 {
            return None;
        }
        next_read.store(ring.after(entry), Relaxed);
        let length = usize::try_from(ring.length(entry).load(Relaxed)).unwrap_or(usize::MAX);
        let payload = ring.payload(entry, length.min(ring.message_bytes), Access::Read);
        // SAFETY: all processes that share a published ring run the same program.
        let trusted = unsafe { Trusted::assume() };
        // SAFETY: this receiver's bit is set: no sender writes here before it is cleared below.
        let result = job(unsafe { payload.as_slice(trusted) });
        payload.end_read();
        // ORDER(Z5): pairs with Z6; the reading is done.
        bitmap.fetch_and(!bit, order!(Z5: Release));
        Some(result)
    }
}
