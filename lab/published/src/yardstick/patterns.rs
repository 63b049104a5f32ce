//! Bare loops for patterns: jobs that are handed out and acknowledged, and a last value.

use super::BARE_BYTES;
use crate::region::{Access, Region, Slots, Store};
use crate::sync::{AtomicU64, Ordering::Relaxed, pause};
use crate::{fence_at, order};

/// Number of slots each way of [`BareJobs`], used in turn: the result for a single pair of lines mostly shows where that
/// pair lies.
const SLOTS: usize = 256;
/// Number of buffers for jobs that fit into no slot.
const BUFFERS: usize = 2;
/// A page between the two ways.
const BACK_AT: usize = SLOTS * 64 + 4096;
const BUFFERS_AT: usize = 2 * BACK_AT;

/// The jobs of one worker, which has one job at a time: a slot there for each job, and a slot back for its
/// acknowledgement. A job of at most 48 bytes costs one line each way.
#[derive(Debug)]
pub struct BareJobs {
    there: Slots,
    back: Slots,
    /// For longer jobs.
    buffers: Option<Store>,
    job_bytes: usize,
}

impl BareJobs {
    /// Bytes of memory for jobs of `job_bytes` bytes.
    #[must_use]
    pub const fn bytes(job_bytes: usize) -> usize {
        (BUFFERS_AT + BUFFERS * job_bytes.next_multiple_of(64)).next_multiple_of(4096)
    }

    /// One side, in memory that both processes have mapped.
    ///
    /// # Panics
    /// If the region is too short.
    #[must_use]
    pub fn new(memory: &Region, job_bytes: usize) -> Self {
        let there = Slots::at_offset(memory, 0, SLOTS as u64);
        let back = Slots::at_offset(memory, BACK_AT, SLOTS as u64);
        let all = (BUFFERS * job_bytes.next_multiple_of(64)) as u64;
        let is_long = job_bytes > BARE_BYTES;
        let buffers = is_long.then(|| Store::new(memory, BUFFERS_AT as u64, all));
        Self { there, back, buffers, job_bytes }
    }

    fn position(&self, number: u64) -> u64 {
        number % BUFFERS as u64 * self.job_bytes.next_multiple_of(64) as u64
    }

    /// Hands out job `number`, which counts from 0. The one before it must be acknowledged.
    ///
    /// # Panics
    /// If `job` has not the length of all jobs.
    #[inline(always)]
    pub fn give(&self, number: u64, job: &[u8]) {
        let slot = self.there.at(number);
        let mut payload = match &self.buffers {
            None => slot.payload(self.job_bytes, Access::Write),
            Some(buffers) => {
                let (position, bytes) = (self.position(number), self.job_bytes as u64);
                buffers.payload(position, bytes, Access::Write).expect("own memory")
            }
        };
        // SAFETY: the worker has acknowledged the job before, and reads this one after the stamp.
        unsafe { payload.as_mut_slice() }.copy_from_slice(job);
        // ORDER(Y1): pairs with Y2.
        slot.stamp().store(number + 1, order!(Y1: Release));
    }

    /// Whether job `number` is acknowledged.
    #[inline(always)]
    #[must_use]
    pub fn is_done(&self, number: u64) -> bool {
        let is_done = self.back.at(number).stamp().load(Relaxed) == number + 1;
        // ORDER(Y2): pairs with Y1; the worker reads the job's bytes no more.
        fence_at!(Y2: Acquire);
        is_done
    }

    /// Reads job `number` in place, if it is there.
    ///
    /// # Panics
    /// If the region is too short.
    #[inline(always)]
    pub fn try_take<R>(&self, number: u64, read: impl FnOnce(&[u8]) -> R) -> Option<R> {
        let slot = self.there.at(number);
        if slot.stamp().load(Relaxed) != number + 1 {
            return None;
        }
        // ORDER(Y2): pairs with Y1.
        fence_at!(Y2: Acquire);
        let payload = match &self.buffers {
            None => slot.payload(self.job_bytes, Access::Read),
            Some(buffers) => {
                let (position, bytes) = (self.position(number), self.job_bytes as u64);
                buffers.payload(position, bytes, Access::Read).expect("own memory")
            }
        };
        // SAFETY: both sides of a yardstick are the same program.
        let trusted = unsafe { crate::Trusted::assume() };
        // SAFETY: handed over, and not written again before it is acknowledged.
        Some(read(unsafe { payload.as_slice(trusted) }))
    }

    /// Acknowledges job `number`.
    #[inline(always)]
    pub fn done(&self, number: u64) {
        // ORDER(Y1): pairs with Y2.
        self.back.at(number).stamp().store(number + 1, order!(Y1: Release));
    }
}

/// A value that one process changes and others read: a sequence lock, without an end, deaths or sleep. A value of up to 56
/// bytes and its number lie in one line.
#[derive(Debug)]
pub struct BareValue {
    memory: Region,
    words: usize,
}

impl BareValue {
    /// Bytes of memory for a value of so many words.
    #[must_use]
    pub const fn bytes(words: usize) -> usize {
        (8 + 8 * words).next_multiple_of(64)
    }

    /// A value of so many words, in memory that all processes have mapped.
    ///
    /// # Panics
    /// If the region is too short.
    #[must_use]
    pub fn new(memory: &Region, words: usize) -> Self {
        assert!(Self::bytes(words) <= memory.bytes(), "own numbers");
        Self { memory: memory.clone(), words }
    }

    /// Odd while the value is written.
    fn version(&self) -> &AtomicU64 {
        self.memory.word64(0)
    }

    fn word(&self, index: usize) -> &AtomicU64 {
        self.memory.word64(8 + 8 * index)
    }

    /// Changes the value, as its only writer.
    #[inline(always)]
    pub fn set(&self, value: &[u64]) {
        let version = self.version().load(Relaxed);
        self.version().store(version + 1, Relaxed);
        // ORDER(Y3): pairs with Y4; a reader of one of these words sees that the version is odd, or newer.
        fence_at!(Y3: Release);
        for (index, word) in value.iter().take(self.words).enumerate() {
            self.word(index).store(*word, Relaxed);
        }
        // ORDER(Y1): pairs with Y2.
        self.version().store(version + 2, order!(Y1: Release));
    }

    /// Copies the newest value, again and again until it was not changed meanwhile.
    #[inline(always)]
    pub fn get(&self, value: &mut [u64]) {
        loop {
            let version = self.version().load(Relaxed);
            // ORDER(Y2): pairs with Y1.
            fence_at!(Y2: Acquire);
            for (index, word) in value.iter_mut().take(self.words).enumerate() {
                *word = self.word(index).load(Relaxed);
            }
            // ORDER(Y4): pairs with Y3.
            fence_at!(Y4: Acquire);
            if version.is_multiple_of(2) && self.version().load(Relaxed) == version {
                return;
            }
            pause();
        }
    }
}
