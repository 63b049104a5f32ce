//! What this process does with frames of circuits, recorded while somebody asks for it ([`crate::wire::trace`]).
//!
//! A monitor tells its neighbours when a trace begins, and each of them gives it the memory in which it records: once, and
//! without names in the file system. While nobody asks, a frame costs one load of a word that nobody writes.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Mutex, PoisonError};

use corewire_os::fork::{PerProcess, generation};
use corewire_os::memory::{MemoryOptions, Segment};
use corewire_os::processor::{tick_ns, ticks};
use corewire_os::{OsError, process};
use corewire_ring::region::Region;
use corewire_ring::sync::AtomicU32;
use corewire_ring::sync::Ordering::{Relaxed, Release};

use crate::wire::trace::{
    AT_COUNT, AT_EVENTS, AT_FIRST, AT_MAGIC, AT_NAME, AT_NAME_LENGTH, AT_PID, AT_TICK, EVENT_BYTES,
    Event, Kind, MAGIC, NAME_BYTES_MAX, Point, bytes_of,
};

/// Events that the memory holds: the last ones, in 4 MiB.
const EVENTS: usize = 1 << 16;

/// How many monitors have asked this process to record.
static ASKED: AtomicU32 = AtomicU32::new(0);
static MEMORY: PerProcess<Mutex<Option<Memory>>> = PerProcess::new();
static THREADS: AtomicU32 = AtomicU32::new(1);

struct Memory {
    segment: Segment,
    region: Region,
}

thread_local! {
    /// The memory as this thread knows it, and the number of the thread.
    static OWN: std::cell::RefCell<Option<(Region, u32, u32)>> = const { std::cell::RefCell::new(None) };
}

/// Whether this process records.
#[inline(always)]
pub fn is_on() -> bool {
    ASKED.load(Relaxed) != 0
}

/// The beginning of an event, 0 while nothing is recorded.
#[inline(always)]
pub fn begin() -> u64 {
    if is_on() { ticks() } else { 0 }
}

/// Begins to record, and returns the memory. `name` is what the process is called. Each call needs one of [`stop`].
///
/// # Errors
/// There is no memory, or no descriptor.
pub fn start(name: &str) -> Result<OwnedFd, OsError> {
    let mut memory = MEMORY.get().lock().unwrap_or_else(PoisonError::into_inner);
    let memory = match &mut *memory {
        Some(memory) => memory,
        none => none.insert(Memory::create(name)?),
    };
    let descriptor = rustix::io::fcntl_dupfd_cloexec(memory.segment.as_fd(), 0);
    let descriptor = descriptor.map_err(|errno| OsError::new("copy a descriptor", errno))?;
    ASKED.fetch_add(1, Release);
    Ok(descriptor)
}

/// Records nothing more, unless somebody else has asked for it.
pub fn stop() {
    let memory = MEMORY.get().lock().unwrap_or_else(PoisonError::into_inner);
    // A forked child may have given up before.
    if memory.is_some() && is_on() {
        ASKED.fetch_sub(1, Release);
    }
}

/// A frame that was sent after it had waited.
pub fn sent(went: Point, ordinal: u16, bytes: usize) {
    end(begin(), Kind::Send, [None, Some(went)], ordinal, bytes);
}

impl Memory {
    fn create(name: &str) -> Result<Self, OsError> {
        let (segment, region) = Segment::create(bytes_of(EVENTS) as u64, MemoryOptions::default())?;
        let name = &name.as_bytes()[..name.len().min(NAME_BYTES_MAX)];
        region.word32(AT_EVENTS).store(u32::try_from(EVENTS).unwrap_or(0), Relaxed);
        region.word32(AT_PID).store(process::pid(), Relaxed);
        region.word64(AT_TICK).store(tick_ns().to_bits(), Relaxed);
        region.word32(AT_NAME_LENGTH).store(u32::try_from(name.len()).unwrap_or(0), Relaxed);
        region.copy_in(AT_NAME, name);
        region.word64(AT_MAGIC).store(MAGIC, Release);
        Ok(Self { segment, region })
    }
}

/// Records what was done with a frame since `began`, if that is not 0.
#[inline(always)]
pub fn end(began: u64, kind: Kind, [came, went]: [Option<Point>; 2], ordinal: u16, bytes: usize) {
    if began != 0 {
        record(began, kind, [came, went], ordinal, bytes);
    }
}

#[cold]
fn record(began: u64, kind: Kind, [came, went]: [Option<Point>; 2], ordinal: u16, bytes: usize) {
    let ended = ticks();
    OWN.with_borrow_mut(|own| {
        if own.as_ref().is_none_or(|(_, _, of)| *of != generation()) {
            let memory = MEMORY.get().lock().unwrap_or_else(PoisonError::into_inner);
            let thread = || THREADS.fetch_add(1, Relaxed);
            *own = memory.as_ref().map(|memory| (memory.region.clone(), thread(), generation()));
            if own.is_none() {
                // It was this process's parent that was asked, before the fork.
                ASKED.store(0, Release);
            }
        }
        let Some((region, thread, _)) = own else { return };
        let bytes = u16::try_from(bytes).unwrap_or(u16::MAX);
        let event = Event { began, ended, came, went, ordinal, bytes, kind, thread: *thread };
        let number = region.word64(AT_COUNT).fetch_add(1, Relaxed);
        let place = usize::try_from(number % EVENTS as u64).unwrap_or(0);
        let at = AT_FIRST + place * EVENT_BYTES;
        // Not whole until the last word says so.
        region.word64(at + 56).store(0, Relaxed);
        corewire_ring::sync::fence(Release);
        for (index, word) in event.to_words().into_iter().enumerate() {
            region.word64(at + 8 * index).store(word, Relaxed);
        }
        region.word64(at + 56).store(number + 1, Release);
    });
}

/// What this program is called in a trace.
pub fn own_name() -> String {
    let name = std::env::args_os().next().map(std::path::PathBuf::from);
    let name = name.as_deref().and_then(std::path::Path::file_name);
    name.map_or_else(|| "program".to_owned(), |name| name.to_string_lossy().into_owned())
}
