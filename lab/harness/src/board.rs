//! Memory that the processes of a crew share in addition to what they measure. Each word has one writer.
//!
//! ```text
//! 0            go, written by the controller
//! 256 (w + 1)  written by worker w: its step, then words of its own
//! 131072       raw lines
//! then         memory for the program
//! ```

use std::os::fd::{AsFd, AsRawFd};
use std::time::{Duration, Instant};

use corewire_os::memory::Segment;
use corewire_ring::region::Region;
use corewire_ring::sync::AtomicU64;
use corewire_ring::sync::Ordering::{Acquire, Release};

use super::line::{self, RawLine};
use crate::failure::{Doing, Failure};

const WORKER_BYTES: usize = 256;
/// Number of words of a worker besides its step.
pub const OWN_WORDS: usize = WORKER_BYTES / 8 - 1;
const LINES_AT: usize = 1 << 17;
/// Offset of the program's memory, at the start of a page.
const WORK_AT: usize = LINES_AT + line::BYTES.next_multiple_of(4096);
/// Maximum number of workers.
pub const WORKERS_MAX: usize = LINES_AT / WORKER_BYTES - 1;

/// The step of a worker that has opened everything that it needs.
pub const READY: u64 = 1;

/// The shared memory of a crew.
#[derive(Debug)]
pub struct Board {
    memory: Region,
    segment: Segment,
}

impl Board {
    /// Creates the memory, with `work_bytes` bytes for the program.
    pub(super) fn create(work_bytes: usize) -> Result<Self, Failure> {
        let (segment, memory) = Segment::create_writable_by_all((WORK_AT + work_bytes) as u64)
            .doing("make memory for a run")?;
        Ok(Self { memory, segment })
    }

    /// Opens the memory, in a worker.
    pub(super) fn open(path: &str) -> Result<Self, Failure> {
        let segment = Segment::open_writable(path).doing("open the memory of a run")?;
        let memory = segment.map_writable(segment.bytes()).doing("map the memory of a run")?;
        if memory.bytes() < WORK_AT {
            return Err(Failure::other("the memory of a run is too short"));
        }
        Ok(Self { memory, segment })
    }

    /// Path at which the workers open the memory.
    pub(super) fn path(&self) -> String {
        path_of(&self.segment)
    }

    /// Lets the workers begin.
    pub fn go(&self) {
        self.memory.word64(0).store(1, Release);
    }

    /// Waits until the controller has called [`Self::go`].
    pub fn await_go(&self) {
        while self.memory.word64(0).load(Acquire) == 0 {
            std::thread::yield_now();
        }
    }

    /// Records that worker `worker` has reached `step`. Its steps only rise.
    pub fn reach(&self, worker: usize, step: u64) {
        self.memory.word64(place(worker)).store(step, Release);
    }

    /// Whether worker `worker` has reached `step`.
    #[must_use]
    pub fn has_reached(&self, worker: usize, step: u64) -> bool {
        self.memory.word64(place(worker)).load(Acquire) >= step
    }

    /// Waits until all of `workers` have reached `step`, at most for `patience`. Returns false on
    /// time-out.
    pub fn await_all(
        &self,
        mut workers: impl Iterator<Item = usize>,
        step: u64,
        patience: Duration,
    ) -> bool {
        let begun = Instant::now();
        workers.all(|worker| {
            while !self.has_reached(worker, step) {
                if begun.elapsed() > patience {
                    return false;
                }
                std::thread::yield_now();
            }
            true
        })
    }

    /// Word `index` of worker `worker`, which only this worker writes.
    ///
    /// # Panics
    /// If `index` is not below [`OWN_WORDS`].
    #[must_use]
    pub fn word(&self, worker: usize, index: usize) -> &AtomicU64 {
        assert!(index < OWN_WORDS, "word {index} of a worker: it has {OWN_WORDS}");
        self.memory.word64(place(worker) + 8 * (index + 1))
    }

    /// One side of a ping-pong of lines between two processes of the crew.
    ///
    /// # Errors
    /// If the memory is too short.
    pub fn raw_line(&self) -> Result<RawLine, Failure> {
        Ok(RawLine::new(&part(&self.memory, LINES_AT, line::BYTES)?))
    }

    /// The memory for the program.
    ///
    /// # Errors
    /// If there is none.
    pub fn work(&self) -> Result<Region, Failure> {
        part(&self.memory, WORK_AT, self.memory.bytes() - WORK_AT)
    }
}

/// Where another process of this user can open `segment`.
#[must_use]
pub fn path_of(segment: &Segment) -> String {
    format!("/proc/{}/fd/{}", std::process::id(), segment.as_fd().as_raw_fd())
}

/// A part of a region.
///
/// # Errors
/// If the region is too short.
pub fn part(memory: &Region, offset: usize, bytes: usize) -> Result<Region, Failure> {
    let too_short = || Failure::other(format!("{bytes} bytes of shared memory are missing"));
    memory.part(offset, bytes).ok_or_else(too_short)
}

fn place(worker: usize) -> usize {
    debug_assert!(worker < WORKERS_MAX, "worker {worker}: at most {WORKERS_MAX} are possible");
    WORKER_BYTES * (worker + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_finds_what_the_controller_created() {
        let board = Board::create(8192).unwrap();
        let other = Board::open(&board.path()).unwrap();
        other.reach(3, 5);
        other.word(3, 1).store(7, Release);
        assert!(board.has_reached(3, 5) && !board.has_reached(3, 6));
        assert!(!board.has_reached(2, 1) && !board.has_reached(4, 1));
        assert_eq!([0, 1, 2].map(|index| board.word(3, index).load(Acquire)), [0, 7, 0]);
        board.go();
        other.await_go();
        assert_eq!(other.work().unwrap().bytes(), 8192);
        assert!(board.await_all([3].into_iter(), 5, Duration::ZERO));
        assert!(!board.await_all([3, 0].into_iter(), 5, Duration::ZERO));
    }

    #[test]
    fn the_words_of_all_workers_end_before_the_lines() {
        assert!(place(WORKERS_MAX - 1) + WORKER_BYTES <= LINES_AT);
        assert!(part(&Region::private(4096).unwrap(), 4096, 64).is_err());
    }
}
