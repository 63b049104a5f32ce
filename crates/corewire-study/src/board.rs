//! Words that the processes of a run share in addition to the mechanism that they measure: which
//! workers are ready, which have started, and where they can be reached. Each word has one writer.
//!
//! ```text
//! 0            go, written by the controller
//! 128 (w + 1)  written by worker w: its step, then the port of each of its sites
//! 65536        raw lines, written by the first two workers
//! ```

use std::os::fd::{AsFd, AsRawFd};
use std::time::{Duration, Instant};

use corewire_os::memory::Segment;
use corewire_published::yardstick::RawLines;
use corewire_ring::region::Region;
use corewire_ring::sync::Ordering::{Acquire, Release};

use crate::failure::{Doing, Failure};

/// Offset of the raw lines, and their number.
const LINES_AT: usize = 1 << 16;
const LINES: usize = 16;
/// Size of the memory.
const BYTES: u64 = (LINES_AT + RawLines::bytes(LINES)) as u64;
const WORKER_BYTES: usize = 128;
/// Maximum number of workers.
pub(crate) const WORKERS_MAX: u32 = 500;

/// The progress of a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Step {
    /// Its ends of the mechanism are open.
    Ready = 1,
    /// It has received the mark that starts the measurement.
    Started = 2,
    /// It has received the mark that ends the measurement.
    Ended = 3,
}

/// The shared words.
#[derive(Debug)]
pub(crate) struct Board {
    memory: Region,
    segment: Segment,
}

impl Board {
    /// Creates the words, in the controller.
    pub(crate) fn create() -> Result<Self, Failure> {
        let (segment, memory) =
            Segment::create_writable_by_all(BYTES).doing("make memory for a run")?;
        Ok(Self { memory, segment })
    }

    /// Path at which the workers open the memory.
    pub(crate) fn path(&self) -> String {
        path_of(&self.segment)
    }

    /// Opens the words, in a worker.
    pub(crate) fn open(path: &str) -> Result<Self, Failure> {
        let segment = Segment::open_writable(path).doing("open the memory of a run")?;
        let memory = segment.map_writable(BYTES).doing("map the memory of a run")?;
        Ok(Self { memory, segment })
    }

    /// Lets the workers begin.
    pub(crate) fn go(&self) {
        self.memory.word64(0).store(1, Release);
    }

    /// Waits until the controller has called [`Self::go`].
    pub(crate) fn await_go(&self) {
        while self.memory.word64(0).load(Acquire) == 0 {
            std::thread::yield_now();
        }
    }

    /// Lines for a ping-pong between two workers, which measures what this takes on this machine now.
    pub(crate) fn lines(&self) -> Result<RawLines, Failure> {
        let memory = self.memory.part(LINES_AT, RawLines::bytes(LINES));
        let memory = memory.ok_or_else(|| Failure::other("the memory of a run is too short"))?;
        Ok(RawLines::new(&memory, LINES))
    }

    /// Records that worker `worker` has reached `step`.
    pub(crate) fn reach(&self, worker: u32, step: Step) {
        self.memory.word64(place(worker)).store(step as u64, Release);
    }

    /// Whether worker `worker` has reached `step`.
    pub(crate) fn has_reached(&self, worker: u32, step: Step) -> bool {
        self.memory.word64(place(worker)).load(Acquire) >= step as u64
    }

    /// Waits until all of `workers` have reached `step`, at most for `patience`. Returns false on
    /// time-out.
    pub(crate) fn await_all(
        &self,
        mut workers: impl Iterator<Item = u32>,
        step: Step,
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

    /// Publishes the port at which worker `worker` can be reached, for site `site` (0 or 1).
    pub(crate) fn tell_port(&self, worker: u32, site: usize, port: u16) {
        self.memory.word64(place(worker) + 8 * (site + 1)).store(u64::from(port), Release);
    }

    /// Waits until that worker has published its port.
    pub(crate) fn await_port(&self, worker: u32, site: usize) -> u16 {
        loop {
            let port = self.memory.word64(place(worker) + 8 * (site + 1)).load(Acquire);
            if let Ok(port @ 1..) = u16::try_from(port) {
                return port;
            }
            std::thread::yield_now();
        }
    }
}

/// Where another process of this user can open `segment`.
pub(crate) fn path_of(segment: &Segment) -> String {
    format!("/proc/{}/fd/{}", std::process::id(), segment.as_fd().as_raw_fd())
}

fn place(worker: u32) -> usize {
    WORKER_BYTES * (worker as usize + 1)
}
