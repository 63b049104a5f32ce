//! What the hardware allows: bare loops over shared memory that the ring is measured against, in
//! the same run and on the same cores.
//!
//! They do the least that can move the same bytes: no joining, no leaving, no sleeping, no checks,
//! no deaths. A ratio of 1 to them means that all of that is free. Each has a side for either
//! process; both call it with the same numbers.

pub mod payload;

use alloc::vec::Vec;

use crate::region::{Access, Payload, Region, Slots, Store};
use crate::sync::{AtomicU64, Ordering::Relaxed, pause};
use crate::{fence_at, order};

/// Bytes of the messages of [`BareRing`].
pub const BARE_BYTES: usize = 48;

fn wait_for(word: &AtomicU64, value: u64) {
    while word.load(Relaxed) != value {}
    // ORDER(Y2): pairs with Y1; what was stored before the word is seen after it.
    fence_at!(Y2: Acquire);
}

/// One cache line each way, core to core: nothing is faster. A walk over many lines, since a single
/// pair shows little but where it happens to lie.
#[derive(Debug)]
pub struct RawLines {
    there: Slots,
    back: Slots,
}

impl RawLines {
    /// Bytes of memory for a walk over `lines` lines each way.
    #[must_use]
    pub const fn bytes(lines: usize) -> usize {
        2 * lines * 64 + 4096
    }

    /// In memory that both processes have mapped; `lines` is a power of two.
    ///
    /// # Panics
    /// If the region is too short.
    #[must_use]
    pub fn new(memory: &Region, lines: usize) -> Self {
        let there = Slots::at_offset(memory, 0, lines as u64);
        let back = Slots::at_offset(memory, lines * 64 + 4096, lines as u64);
        Self { there, back }
    }

    /// One round trip, the `number`th; the other process answers.
    #[inline(always)]
    pub fn ping(&self, number: u64) {
        // ORDER(Y1): pairs with Y2.
        self.there.at(number).stamp().store(number + 1, order!(Y1: Release));
        wait_for(self.back.at(number).stamp(), number + 1);
    }

    /// Answers the `number`th round trip.
    #[inline(always)]
    pub fn pong(&self, number: u64) {
        wait_for(self.there.at(number).stamp(), number + 1);
        // ORDER(Y1): pairs with Y2.
        self.back.at(number).stamp().store(number + 1, order!(Y1: Release));
    }
}

/// A ring of 48-byte messages that knows nothing but its slots and its receivers' cursors.
#[derive(Debug)]
pub struct BareRing {
    slots: Slots,
    memory: Region,
    receivers: u64,
    batch: u64,
}

impl BareRing {
    /// Bytes of memory for `slots` slots and `receivers` receivers.
    #[must_use]
    pub const fn bytes(slots: usize, receivers: usize) -> usize {
        slots * 64 + 4096 * (receivers + 1)
    }

    /// In memory that all processes have mapped; `slots` is a power of two.
    ///
    /// # Panics
    /// If the region is too short.
    #[must_use]
    pub fn new(memory: &Region, slots: usize, receivers: usize) -> Self {
        let ring = Slots::at_offset(memory, 4096 * (receivers + 1), slots as u64);
        let batch = (slots as u64 / 8).max(1);
        Self { slots: ring, memory: memory.clone(), receivers: receivers as u64, batch }
    }

    fn cursor(&self, receiver: u64) -> &AtomicU64 {
        #[expect(clippy::cast_possible_truncation, reason = "a handful of receivers")]
        let page = receiver as usize;
        self.memory.word64(4096 * (page + 1))
    }

    fn slowest(&self) -> u64 {
        let cursors = (0..self.receivers).map(|receiver| self.cursor(receiver).load(Relaxed));
        let slowest = cursors.min().unwrap_or(u64::MAX);
        // ORDER(Y2): pairs with Y1.
        fence_at!(Y2: Acquire);
        slowest
    }

    /// Sends messages `first` up to `end`, and waits until all are read. `yields` is called while
    /// there is no room, for machines with fewer cores than processes.
    pub fn send(&self, first: u64, end: u64, yields: impl Fn()) {
        let mut limit = first;
        for number in first..end {
            while number >= limit {
                limit = self.slowest().saturating_add(self.slots.count());
                if number >= limit {
                    yields();
                }
            }
            let slot = self.slots.at(number);
            fill_words(&mut slot.payload(BARE_BYTES, Access::Write), number);
            // ORDER(Y1): pairs with Y2.
            slot.stamp().store(number + 1, order!(Y1: Release));
        }
        while self.slowest() != end {
            yields();
        }
    }

    /// The same, as one of several senders must: each slot is claimed by a compare-and-swap in its
    /// stamp before it is written. There is no other sender, and nothing is checked.
    pub fn send_by_claims(&self, first: u64, end: u64, yields: impl Fn()) {
        let mut limit = first;
        for number in first..end {
            while number >= limit {
                limit = self.slowest().saturating_add(self.slots.count());
                if number >= limit {
                    yields();
                }
            }
            let slot = self.slots.at(number);
            // While this slot's claim waits for its line, the next one's is on its way.
            self.slots.at(number + 1).prefetch_to_write();
            let stamp = slot.stamp();
            let mut old = stamp.load(Relaxed);
            while let Err(found) = stamp.compare_exchange(old, u64::MAX - number, Relaxed, Relaxed)
            {
                old = found;
            }
            fill_words(&mut slot.payload(BARE_BYTES, Access::Write), number);
            // ORDER(Y1): pairs with Y2.
            stamp.store(number + 1, order!(Y1: Release));
        }
        while self.slowest() != end {
            yields();
        }
    }

    /// Receives messages `first` up to `end` as one of the receivers, and returns a sum over them.
    ///
    /// # Panics
    /// If a message is not what was sent.
    pub fn receive(&self, receiver: u64, first: u64, end: u64, yields: impl Fn()) -> u64 {
        let mut sum = 0u64;
        for number in first..end {
            let slot = self.slots.at(number);
            while slot.stamp().load(Relaxed) != number + 1 {
                yields();
            }
            // ORDER(Y2): pairs with Y1.
            fence_at!(Y2: Acquire);
            let (head, last) = ends_of(&slot.payload(BARE_BYTES, Access::Read));
            assert!(head == number, "message {head} where {number} was due");
            sum = sum.wrapping_add(last);
            if (number + 1).is_multiple_of(self.batch) {
                self.cursor(receiver).store(number + 1, order!(Y1: Release));
            }
        }
        self.cursor(receiver).store(end, order!(Y1: Release));
        sum
    }
}

/// Six words of `number` into a payload of 48 bytes.
#[inline(always)]
fn fill_words(payload: &mut Payload, number: u64) {
    let words = [number.to_le_bytes(); 6];
    // SAFETY: claimed by the caller's count of the cursors; nobody looks before the stamp.
    unsafe { payload.as_mut_slice() }.copy_from_slice(words.as_flattened());
}

/// First and last word of a payload of 48 bytes.
#[inline(always)]
fn ends_of(payload: &Payload) -> (u64, u64) {
    // SAFETY: both sides of a yardstick are the same program.
    let trusted = unsafe { crate::Trusted::assume() };
    // SAFETY: published, and not written again before the cursor passes it.
    let bytes = unsafe { payload.as_slice(trusted) };
    let word = |at: usize| {
        bytes.get(at..at + 8).and_then(|word| word.try_into().ok()).map_or(0, u64::from_le_bytes)
    };
    (word(0), word(40))
}

/// Buffers handed over in turn, each with a flag: the best that large messages can do.
#[derive(Debug)]
pub struct BareBuffers {
    memory: Region,
    store: Store,
    bytes: usize,
    buffers: u64,
}

/// Where the buffers begin: one page for the cursor, then a flag every 128 bytes.
const BUFFERS_OFFSET: usize = 4096 + 128 * BUFFERS_MAX;
/// The most buffers of a [`BareBuffers`].
pub const BUFFERS_MAX: usize = 256;

impl BareBuffers {
    /// Bytes of memory for `buffers` buffers of `bytes` bytes.
    #[must_use]
    pub const fn bytes(bytes: usize, buffers: usize) -> usize {
        BUFFERS_OFFSET + bytes.next_multiple_of(64) * buffers
    }

    /// In memory that both processes have mapped.
    ///
    /// # Panics
    /// If the region is too short.
    #[must_use]
    pub fn new(memory: &Region, bytes: usize, buffers: usize) -> Self {
        assert!(buffers <= BUFFERS_MAX, "own number");
        let stride = bytes.next_multiple_of(64);
        let store = Store::new(memory, BUFFERS_OFFSET as u64, (stride * buffers) as u64);
        Self { memory: memory.clone(), store, bytes, buffers: buffers as u64 }
    }

    fn flag(&self, number: u64) -> &AtomicU64 {
        #[expect(clippy::cast_possible_truncation, reason = "below 256")]
        let index = (number % self.buffers) as usize;
        self.memory.word64(4096 + 128 * index)
    }

    fn buffer(&self, number: u64, access: Access) -> Payload {
        let position = (number % self.buffers) * self.bytes.next_multiple_of(64) as u64;
        self.store.payload(position, self.bytes as u64, access).expect("own memory")
    }

    /// Hands over buffers `first` up to `end`, each written by `write`, and waits until all are
    /// read.
    pub fn send(&self, first: u64, end: u64, mut write: impl FnMut(u64, &mut [u8])) {
        let cursor = self.memory.word64(0);
        for number in first..end {
            while number >= cursor.load(Relaxed) + self.buffers {
                pause();
            }
            // ORDER(Y2): pairs with Y1.
            fence_at!(Y2: Acquire);
            let mut buffer = self.buffer(number, Access::Write);
            // SAFETY: the cursor has passed what was here; nobody looks before the flag is set.
            write(number, unsafe { buffer.as_mut_slice() });
            // ORDER(Y1): pairs with Y2.
            self.flag(number).store(number + 1, order!(Y1: Release));
        }
        while cursor.load(Relaxed) != end {
            pause();
        }
    }

    /// Receives buffers `first` up to `end`, each read by `read`.
    pub fn receive(&self, first: u64, end: u64, mut read: impl FnMut(u64, &[u8])) {
        // SAFETY: both sides of a yardstick are the same program.
        let trusted = unsafe { crate::Trusted::assume() };
        for number in first..end {
            wait_for(self.flag(number), number + 1);
            let buffer = self.buffer(number, Access::Read);
            // SAFETY: handed over, and not written again before the cursor passes it.
            read(number, unsafe { buffer.as_slice(trusted) });
            // ORDER(Y1): pairs with Y2.
            self.memory.word64(0).store(number + 1, order!(Y1: Release));
        }
    }
}

/// Lines that one thread changes and another then asks for, in an order that no prefetcher foresees: what
/// does a line cost that another core has?
#[derive(Debug)]
pub struct LineWalk {
    memory: Region,
    lines: usize,
}

/// No two lines of a [`LineWalk`] lie in a pair that the hardware fetches together.
const WALK_STRIDE_BYTES: usize = 256;

impl LineWalk {
    /// Bytes of memory for a walk over `lines` lines.
    #[must_use]
    pub const fn bytes(lines: usize) -> usize {
        lines * WALK_STRIDE_BYTES
    }

    /// In memory that both threads see.
    ///
    /// # Panics
    /// If the region is too short.
    #[must_use]
    pub fn new(memory: &Region, lines: usize) -> Self {
        assert!(lines > 1 && Self::bytes(lines) <= memory.bytes(), "own numbers");
        Self { memory: memory.clone(), lines }
    }

    fn line(&self, index: usize) -> &AtomicU64 {
        self.memory.word64(index * WALK_STRIDE_BYTES)
    }

    #[inline(always)]
    fn after(&self, line: usize) -> usize {
        #[expect(clippy::cast_possible_truncation, reason = "an index")]
        let next = self.line(line).load(Relaxed) as usize;
        next
    }

    /// Writes into each line which comes after it, in a circle through all.
    pub fn lay(&self) {
        let mut order: Vec<usize> = (0..self.lines).collect();
        let mut random = 0x9e37_79b9_usize;
        for index in (1..self.lines).rev() {
            random = random.wrapping_mul(0x5851_f42d).wrapping_add(1) & 0xffff_ffff;
            order.swap(index, (random >> 8) % (index + 1));
        }
        for (&line, &next) in order.iter().zip(order.iter().cycle().skip(1)) {
            self.line(line).store(next as u64, Relaxed);
        }
    }

    /// Asks for every line, each when the one before it has come. Returns where the walk ends.
    #[must_use]
    pub fn one_by_one(&self) -> u64 {
        (0..self.lines).fold(0, |line, _| self.after(line)) as u64
    }

    /// Asks for every line of `order`, none waiting for another. Returns a sum over them.
    #[must_use]
    pub fn side_by_side(&self, order: &[usize]) -> u64 {
        order.iter().fold(0, |sum, &line| sum.wrapping_add(self.line(line).load(Relaxed)))
    }

    /// Changes the first line by as many read-modify-writes, each when the one before it is done.
    #[must_use]
    pub fn modify(&self, times: usize) -> u64 {
        (0..times).fold(0, |last, _| self.line(0).fetch_add(last & 1, Relaxed))
    }

    /// The order of the walk, as it lies there.
    #[must_use]
    pub fn order(&self) -> Vec<usize> {
        let next = |&line: &usize| Some(self.after(line));
        core::iter::successors(Some(0), next).take(self.lines).collect()
    }
}
