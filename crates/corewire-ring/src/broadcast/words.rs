//! The words of both kinds of segment, by name. `corewire_layout::segment` says who writes which.

use corewire_layout::counters::{ControlCounter, ReceiverCounter, SenderCounter};
use corewire_layout::segment as at;

use crate::region::Region;
use crate::sync::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// A sender's segment.
#[derive(Debug, Clone)]
pub struct SenderWords(Region);

impl SenderWords {
    /// The words of `segment`, at least a page long.
    #[must_use]
    pub fn new(segment: Region) -> Self {
        Self(segment)
    }
    /// Changes whenever sleepers must look again.
    #[must_use]
    pub fn bell(&self) -> &AtomicU32 {
        self.0.word32(at::BELL)
    }
    /// The processor the data thread last ran on.
    #[must_use]
    pub fn cpu(&self) -> &AtomicU32 {
        self.0.word32(at::SENDER_CPU)
    }
    /// Odd while the data thread sleeps for want of room.
    #[must_use]
    pub fn blocked(&self) -> &AtomicU32 {
        self.0.word32(at::BLOCKED)
    }
    /// 0, or the number of messages the channel ever carried plus one.
    #[must_use]
    pub fn closed(&self) -> &AtomicU64 {
        self.0.word64(at::CLOSED)
    }
    /// A counter of the data thread.
    #[must_use]
    pub fn counter(&self, counter: SenderCounter) -> &AtomicU64 {
        self.0.word64(at::SENDER_COUNTERS + 8 * counter as usize)
    }
    /// A counter of the control thread.
    #[must_use]
    pub fn control_counter(&self, counter: ControlCounter) -> &AtomicU64 {
        self.0.word64(at::CONTROL_COUNTERS + 8 * counter as usize)
    }
    /// Under `Overwrite`: messages below this one may be overwritten.
    #[must_use]
    pub fn floor(&self) -> &AtomicU64 {
        self.0.word64(at::FLOOR)
    }
    /// Whose a row is.
    #[must_use]
    pub fn door_tenure(&self, row: u32) -> &AtomicU64 {
        self.0.word64(door(row) + at::DOOR_TENURE)
    }
    /// The first message that a row's receiver gets.
    #[must_use]
    pub fn door_start(&self, row: u32) -> &AtomicU64 {
        self.0.word64(door(row) + at::DOOR_START)
    }
    /// The process number of a row's receiver.
    #[must_use]
    pub fn door_pid(&self, row: u32) -> &AtomicU32 {
        self.0.word32(door(row) + at::DOOR_PID)
    }
}

fn door(row: u32) -> usize {
    at::DOORS + row as usize * at::DOOR_BYTES
}

/// A receiver's segment.
#[derive(Debug, Clone)]
pub struct ReceiverWords(Region);

impl ReceiverWords {
    /// The words of `segment`, one page.
    #[must_use]
    pub fn new(segment: Region) -> Self {
        Self(segment)
    }
    /// How many messages it is done with.
    #[must_use]
    pub fn cursor(&self) -> &AtomicU64 {
        self.0.word64(at::CURSOR)
    }
    /// Odd while it sleeps.
    #[must_use]
    pub fn sleeping(&self) -> &AtomicU32 {
        self.0.word32(at::SLEEPING)
    }
    /// How it wants to be woken.
    #[must_use]
    pub fn sleep_mode(&self) -> &AtomicU32 {
        self.0.word32(at::SLEEP_MODE)
    }
    /// Changes when it makes room for a sender that waits.
    #[must_use]
    pub fn wake(&self) -> &AtomicU32 {
        self.0.word32(at::WAKE)
    }
    /// The processor it last ran on.
    #[must_use]
    pub fn cpu(&self) -> &AtomicU32 {
        self.0.word32(at::RECEIVER_CPU)
    }
    /// A counter.
    #[must_use]
    pub fn counter(&self, counter: ReceiverCounter) -> &AtomicU64 {
        self.0.word64(at::RECEIVER_COUNTERS + 8 * counter as usize)
    }
}

/// Adds to a counter that this thread alone writes.
pub(super) fn add(counter: &AtomicU64, count: u64) {
    counter.store(counter.load(Relaxed).wrapping_add(count), Relaxed);
}
