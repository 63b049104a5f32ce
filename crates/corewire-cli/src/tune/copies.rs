//! The time of copies by each routine, by who reads the copy next.

use std::thread;
use std::time::Instant;

use corewire_os::processor::pin_to;
use corewire_ring::copying::{self, CLASSES, NextReader, Plan, Routine, STREAMED_FROM_BYTES};
use corewire_ring::region::Region;
use corewire_ring::sync::Ordering::{Acquire, Release};
use corewire_ring::sync::{AtomicU64, pause};

use crate::failure::Failure;

/// The readers, by their names in a file.
pub(super) const READERS: [(NextReader, &str); 3] =
    [(NextReader::Peer, "peer"), (NextReader::Own, "own"), (NextReader::Nobody, "nobody")];
/// Classes of copies that are measured: the longest one stands for all longer ones.
pub(super) const MEASURED: usize = 14;
/// Copies go through so much memory in turn, which no cache near a core holds.
const MEMORY_BYTES: usize = 64 << 20;
/// Bytes that a figure takes, and the least and the most copies.
const BYTES: usize = 4 << 20;
const COPIES: (usize, usize) = (3, 100);

const _: () = assert!(MEASURED <= CLASSES);

/// The memory of the copies.
pub(super) struct Arena {
    memory: Region,
    source: Vec<u8>,
    next: usize,
}

impl Arena {
    pub(super) fn new() -> Result<Self, Failure> {
        let memory = Region::private(MEMORY_BYTES);
        let memory = memory.ok_or_else(|| Failure::other("there is no memory for copies"))?;
        let source = vec![1; Plan::least_bytes(MEASURED - 1)];
        let arena = Self { memory, source, next: 0 };
        for at in (0..MEMORY_BYTES).step_by(arena.source.len()) {
            arena.memory.copy_in(at, &arena.source);
        }
        Ok(arena)
    }

    /// Times of all classes of copies by this routine, in nanoseconds. The thread runs on the first processor, the other
    /// core is the second one.
    pub(super) fn times(
        &mut self,
        reader: NextReader,
        routine: Routine,
        cpus: [usize; 2],
    ) -> Result<Vec<f64>, Failure> {
        let before = copying::plan(reader);
        copying::set_plan(reader, Plan::new([routine; CLASSES]));
        let times = (0..MEASURED).map(|class| match reader {
            // Nothing shorter is copied so.
            NextReader::Nobody if Plan::least_bytes(class) < STREAMED_FROM_BYTES => Ok(1.0),
            NextReader::Nobody => Ok(self.alone(Plan::least_bytes(class))),
            NextReader::Peer | NextReader::Own => {
                self.across(reader, Plan::least_bytes(class), cpus)
            }
        });
        let times = times.collect();
        copying::set_plan(reader, before);
        times
    }

    /// Where the next copy goes.
    fn next(&mut self, bytes: usize) -> usize {
        if self.next + bytes > MEMORY_BYTES {
            self.next = 0;
        }
        let at = self.next;
        self.next = (at + bytes).next_multiple_of(64) + 64;
        at
    }

    /// A copy whose target nobody reads soon.
    fn alone(&mut self, bytes: usize) -> f64 {
        let copies = copies_of(bytes);
        let places: Vec<usize> = (0..copies).map(|_| self.next(bytes)).collect();
        let start = Instant::now();
        for at in places {
            self.memory.put_far(at, &self.source[..bytes]);
        }
        start.elapsed().as_secs_f64() * 1e9 / copies as f64
    }

    /// A copy that one core makes, and that the other one copies out: the time of both together. The routine is that of the
    /// first copy, for `Peer`, or of the second one, for `Own`.
    fn across(
        &mut self,
        reader: NextReader,
        bytes: usize,
        [here, there]: [usize; 2],
    ) -> Result<f64, Failure> {
        let copies = copies_of(bytes);
        let places: Vec<usize> = (0..copies).map(|_| self.next(bytes)).collect();
        let other = if reader == NextReader::Peer { NextReader::Own } else { NextReader::Peer };
        let before = copying::plan(other);
        copying::set_plan(other, Plan::LIBRARY);
        let (made, taken) = (AtomicU64::new(0), AtomicU64::new(0));
        let await_number = |word: &AtomicU64, number: u64| {
            while word.load(Acquire) < number {
                pause();
            }
        };
        let took = thread::scope(|scope| {
            scope.spawn(|| {
                // If it cannot be pinned, the figure is worse, and the rounds say so.
                let _ = pin_to(there);
                let mut target = vec![0; bytes];
                for (number, at) in (1..).zip(&places) {
                    await_number(&made, number);
                    self.memory.get(*at, &mut target);
                    taken.store(number, Release);
                }
            });
            let pinned = pin_to(here);
            let mut times = Vec::new();
            for (number, at) in (1..).zip(&places) {
                let start = Instant::now();
                self.memory.put(*at, &self.source[..bytes]);
                made.store(number, Release);
                await_number(&taken, number);
                times.push(start.elapsed().as_secs_f64() * 1e9);
            }
            times.sort_by(f64::total_cmp);
            pinned.map(|()| times[times.len() / 2])
        });
        copying::set_plan(other, before);
        Ok(took?)
    }
}

fn copies_of(bytes: usize) -> usize {
    (BYTES / bytes).clamp(COPIES.0, COPIES.1)
}
