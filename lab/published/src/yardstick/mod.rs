//! What the hardware allows: bare loops over shared memory against which the rings are measured, in
//! the same run and on the same cores.
//!
//! They do the minimum that moves the same bytes: no joining, leaving, sleeping, checking, and no
//! handling of deaths. A ratio of 1 to them means that all of these cost nothing. Each loop has one
//! side for each process; both processes call it with the same numbers.

mod patterns;
pub mod payload;

use alloc::vec::Vec;
use core::ops::Range;

pub use patterns::{BareJobs, BareValue};

use crate::region::{Access, Payload, Region, Slots, Store};
use crate::sync::{AtomicU64, Ordering::Relaxed, pause};
use crate::{fence_at, order};

/// Payload bytes of each message of [`BareRing`].
pub const BARE_BYTES: usize = 48;

#[inline]
fn wait_for(word: &AtomicU64, value: u64) {
    while word.load(Relaxed) != value {}
    // ORDER(Y2): pairs with Y1; what was stored before the word is visible after it.
    fence_at!(Y2: Acquire);
}

/// One cache line in each direction, core to core: nothing is faster. Walks over many lines, since
/// the result for a single pair of lines mostly shows where that pair happens to lie.
#[derive(Debug)]
pub struct RawLines {
    there: Slots,
    back: Slots,
}

impl RawLines {
    /// Bytes of memory for a walk over `lines` lines in each direction.
    #[must_use]
    pub const fn bytes(lines: usize) -> usize {
        2 * lines * 64 + 4096
    }

    /// A walk in memory that both processes have mapped; `lines` must be a power of two.
    ///
    /// # Panics
    /// If the region is too short.
    #[must_use]
    pub fn new(memory: &Region, lines: usize) -> Self {
        let there = Slots::at_offset(memory, 0, lines as u64);
        let back = Slots::at_offset(memory, lines * 64 + 4096, lines as u64);
        Self { there, back }
    }

    /// Round trip number `number`; the other process answers it.
    #[inline(always)]
    pub fn ping(&self, number: u64) {
        // ORDER(Y1): pairs with Y2.
        self.there.at(number).stamp().store(number + 1, order!(Y1: Release));
        wait_for(self.back.at(number).stamp(), number + 1);
    }

    /// Answers round trip number `number`.
    #[inline(always)]
    pub fn pong(&self, number: u64) {
        wait_for(self.there.at(number).stamp(), number + 1);
        // ORDER(Y1): pairs with Y2.
        self.back.at(number).stamp().store(number + 1, order!(Y1: Release));
    }
}

/// A ring of 48-byte messages that consists only of slots and its receivers' cursors.
#[derive(Debug)]
pub struct BareRing {
    slots: Slots,
    memory: Region,
    receivers: u64,
    /// A receiver stores its cursor at each message whose number has none of these bits.
    within_batch: u64,
}

impl BareRing {
    /// Bytes of memory for `slots` slots and `receivers` receivers.
    #[must_use]
    pub const fn bytes(slots: usize, receivers: usize) -> usize {
        slots * 64 + 4096 * (receivers + 1)
    }

    /// A ring in memory that all processes have mapped; `slots` must be a power of two.
    ///
    /// # Panics
    /// If the region is too short.
    #[must_use]
    pub fn new(memory: &Region, slots: usize, receivers: usize) -> Self {
        let ring = Slots::at_offset(memory, 4096 * (receivers + 1), slots as u64);
        // A power of two, as `slots` is.
        let within_batch = (slots as u64 / 8).max(1) - 1;
        Self { slots: ring, memory: memory.clone(), receivers: receivers as u64, within_batch }
    }

    #[inline]
    fn cursor(&self, receiver: u64) -> &AtomicU64 {
        #[expect(clippy::cast_possible_truncation, reason = "a handful of receivers")]
        let page = receiver as usize;
        self.memory.word64(4096 * (page + 1))
    }

    #[inline]
    fn slowest(&self) -> u64 {
        let cursors = (0..self.receivers).map(|receiver| self.cursor(receiver).load(Relaxed));
        let slowest = cursors.min().unwrap_or(u64::MAX);
        // ORDER(Y2): pairs with Y1.
        fence_at!(Y2: Acquire);
        slowest
    }

    /// Sends messages `first` up to `end` (exclusive), and waits until all of them are read. Calls
    /// `yields` while there is no room, for machines with fewer cores than processes.
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

    /// As [`Self::send`], with the work that one of several senders must do: claims each slot by a
    /// compare-and-swap in its stamp before it writes the slot. There is no other sender, and
    /// nothing is checked.
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
            // While this slot's claim waits for its line, the next slot's line is already on its
            // way.
            self.slots.at(number + 1).prefetch_to_write(0);
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

    /// Receives messages `first` up to `end` (exclusive) as one of the receivers, and returns a sum
    /// over them. When it finds no message, calls `lets_ahead` with the number of messages since it last found none;
    /// then `yields` until there is one.
    ///
    /// # Panics
    /// If a message is not the one that was sent.
    pub fn receive(
        &self,
        receiver: u64,
        Range { start: first, end }: Range<u64>,
        lets_ahead: impl Fn(u64),
        yields: impl Fn(),
    ) -> u64 {
        let mut sum = 0u64;
        let mut run_from = first;
        for number in first..end {
            let slot = self.slots.at(number);
            if slot.stamp().load(Relaxed) != number + 1 {
                lets_ahead(number - core::mem::replace(&mut run_from, number));
            }
            while slot.stamp().load(Relaxed) != number + 1 {
                yields();
            }
            // ORDER(Y2): pairs with Y1.
            fence_at!(Y2: Acquire);
            let (head, last) = ends_of(&slot.payload(BARE_BYTES, Access::Read));
            assert!(head == number, "message {head} where {number} was due");
            sum = sum.wrapping_add(last);
            if (number + 1) & self.within_batch == 0 {
                self.cursor(receiver).store(number + 1, order!(Y1: Release));
            }
        }
        self.cursor(receiver).store(end, order!(Y1: Release));
        sum
    }
}

/// Writes `number` six times into a payload of 48 bytes.
#[inline(always)]
fn fill_words(payload: &mut Payload, number: u64) {
    let words = [number.to_le_bytes(); 6];
    // SAFETY: the caller has checked the cursors, so the slot is free; no receiver reads it before
    // the stamp.
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

/// Buffers handed over in turn, each with a flag: the best possible way to move large messages.
#[derive(Debug)]
pub struct BareBuffers {
    memory: Region,
    store: Store,
    bytes: usize,
    buffers: u64,
}

/// Where the buffers begin: one page for the cursor, then a flag every 128 bytes.
const BUFFERS_OFFSET: usize = 4096 + 128 * BUFFERS_MAX;
/// The largest number of buffers of a [`BareBuffers`].
pub const BUFFERS_MAX: usize = 256;

impl BareBuffers {
    /// Bytes of memory for `buffers` buffers of `bytes` bytes.
    #[must_use]
    pub const fn bytes(bytes: usize, buffers: usize) -> usize {
        BUFFERS_OFFSET + bytes.next_multiple_of(64) * buffers
    }

    /// Buffers in memory that both processes have mapped.
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

    #[inline]
    fn flag(&self, number: u64) -> &AtomicU64 {
        #[expect(clippy::cast_possible_truncation, reason = "below 256")]
        let index = (number % self.buffers) as usize;
        self.memory.word64(4096 + 128 * index)
    }

    #[inline]
    fn buffer(&self, number: u64, access: Access) -> Payload {
        let position = (number % self.buffers) * self.bytes.next_multiple_of(64) as u64;
        self.store.payload(position, self.bytes as u64, access).expect("own memory")
    }

    /// Hands over buffers `first` up to `end` (exclusive), each written by `write`, and waits until
    /// all of them are read.
    pub fn send(&self, first: u64, end: u64, mut write: impl FnMut(u64, &mut [u8])) {
        let cursor = self.memory.word64(0);
        for number in first..end {
            while number >= cursor.load(Relaxed) + self.buffers {
                pause();
            }
            // ORDER(Y2): pairs with Y1.
            fence_at!(Y2: Acquire);
            let mut buffer = self.buffer(number, Access::Write);
            // SAFETY: the cursor has passed the buffer's last content; no receiver reads it before
            // the flag is set.
            write(number, unsafe { buffer.as_mut_slice() });
            // ORDER(Y1): pairs with Y2.
            self.flag(number).store(number + 1, order!(Y1: Release));
        }
        while cursor.load(Relaxed) != end {
            pause();
        }
    }

    /// Receives buffers `first` up to `end` (exclusive), each read by `read`.
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

/// Lines that one thread changes and another thread then loads, in an order that no prefetcher can
/// predict. Measures what a line costs that another core owns.
#[derive(Debug)]
pub struct LineWalk {
    memory: Region,
    lines: usize,
}

/// Distance of the lines of a [`LineWalk`]: no two of them lie in a pair that the hardware fetches
/// together.
const WALK_STRIDE_BYTES: usize = 256;

impl LineWalk {
    /// Bytes of memory for a walk over `lines` lines.
    #[must_use]
    pub const fn bytes(lines: usize) -> usize {
        lines * WALK_STRIDE_BYTES
    }

    /// A walk in memory that both threads have mapped.
    ///
    /// # Panics
    /// If the region is too short.
    #[must_use]
    pub fn new(memory: &Region, lines: usize) -> Self {
        assert!(lines > 1 && Self::bytes(lines) <= memory.bytes(), "own numbers");
        Self { memory: memory.clone(), lines }
    }

    #[inline]
    fn line(&self, index: usize) -> &AtomicU64 {
        self.memory.word64(index * WALK_STRIDE_BYTES)
    }

    #[inline(always)]
    fn after(&self, line: usize) -> usize {
        #[expect(clippy::cast_possible_truncation, reason = "an index")]
        let next = self.line(line).load(Relaxed) as usize;
        next
    }

    /// Stores in each line the index of the next one, in a circle through all lines.
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

    /// Loads every line after the load of the previous one has finished. Returns the line where the
    /// walk ends.
    #[must_use]
    pub fn one_by_one(&self) -> u64 {
        (0..self.lines).fold(0, |line, _| self.after(line)) as u64
    }

    /// Loads every line of `order`; no load waits for another. Returns a sum over them.
    #[must_use]
    pub fn side_by_side(&self, order: &[usize]) -> u64 {
        order.iter().fold(0, |sum, &line| sum.wrapping_add(self.line(line).load(Relaxed)))
    }

    /// Changes the first line by `times` read-modify-writes, each after the one before it has
    /// finished.
    #[must_use]
    pub fn modify(&self, times: usize) -> u64 {
        (0..times).fold(0, |last, _| self.line(0).fetch_add(last & 1, Relaxed))
    }

    /// The order of the walk, as stored in the lines.
    #[must_use]
    pub fn order(&self) -> Vec<usize> {
        let next = |&line: &usize| Some(self.after(line));
        core::iter::successors(Some(0), next).take(self.lines).collect()
    }
}
