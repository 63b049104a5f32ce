//! Words that the processes of a run share beside what they measure: who is ready, who has begun, where
//! they can be reached. Each word has one writer.
//!
//! ```text
//! 0            go: the controller's
//! 128 (w + 1)  worker w: its step, then the port of each of its sites
//! 65536        bare lines, of the first two workers
//! ```

use std::os::fd::{AsFd, AsRawFd};
use std::time::{Duration, Instant};

use corewire_os::memory::Segment;
use corewire_ring::region::Region;
use corewire_ring::sync::Ordering::{Acquire, Release};
use corewire_ring::yardstick::RawLines;

use crate::failure::{Doing, Failure};

/// Where the bare lines begin, and how many there are.
const LINES_AT: usize = 1 << 16;
const LINES: usize = 16;
/// Bytes of the memory.
const BYTES: u64 = (LINES_AT + RawLines::bytes(LINES)) as u64;
const WORKER_BYTES: usize = 128;
/// The most workers.
pub(crate) const WORKERS_MAX: u32 = 500;

/// How far a worker is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Step {
    /// Its ends are open.
    Ready = 1,
    /// It has had the mark that the measurement begins.
    Started = 2,
    /// It has had the mark that it is over.
    Ended = 3,
}

/// The words.
#[derive(Debug)]
pub(crate) struct Board {
    memory: Region,
    segment: Segment,
}

impl Board {
    /// The controller's.
    pub(crate) fn create() -> Result<Self, Failure> {
        let (segment, memory) =
            Segment::create_writable_by_all(BYTES).doing("make memory for a run")?;
        Ok(Self { memory, segment })
    }

    /// Where workers find it.
    pub(crate) fn path(&self) -> String {
        path_of(&self.segment)
    }

    /// A worker's view.
    pub(crate) fn open(path: &str) -> Result<Self, Failure> {
        let segment = Segment::open_writable(path).doing("open the memory of a run")?;
        let memory = segment.map_writable(BYTES).doing("map the memory of a run")?;
        Ok(Self { memory, segment })
    }

    /// Lets the workers begin.
    pub(crate) fn go(&self) {
        self.memory.word64(0).store(1, Release);
    }

    /// Waits for that.
    pub(crate) fn await_go(&self) {
        while self.memory.word64(0).load(Acquire) == 0 {
            std::thread::yield_now();
        }
    }

    /// Lines that go to and fro between two workers, for the time that this takes here and now.
    pub(crate) fn lines(&self) -> Result<RawLines, Failure> {
        let memory = self.memory.part(LINES_AT, RawLines::bytes(LINES));
        let memory = memory.ok_or_else(|| Failure::other("the memory of a run is too short"))?;
        Ok(RawLines::new(&memory, LINES))
    }

    /// Worker `worker` has come to `step`.
    pub(crate) fn reach(&self, worker: u32, step: Step) {
        self.memory.word64(place(worker)).store(step as u64, Release);
    }

    /// Has worker `worker` come to `step`?
    pub(crate) fn has_reached(&self, worker: u32, step: Step) -> bool {
        self.memory.word64(place(worker)).load(Acquire) >= step as u64
    }

    /// Waits until all of `workers` have, at most for `patience`. False if they have not.
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

    /// Worker `worker` can be reached at `port`, for site `site` (0 or 1).
    pub(crate) fn tell_port(&self, worker: u32, site: usize, port: u16) {
        self.memory.word64(place(worker) + 8 * (site + 1)).store(u64::from(port), Release);
    }

    /// Waits for that.
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
