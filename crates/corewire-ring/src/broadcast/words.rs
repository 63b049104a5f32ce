//! Named access to the words of both kinds of segment. `corewire_layout::segment` says which thread
//! writes each word.

use corewire_layout::counters::{ControlCounter, ReceiverCounter, SenderCounter};
use corewire_layout::segment as at;

use crate::region::Region;
use crate::sync::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// A sender's segment.
#[derive(Debug, Clone)]
pub struct SenderWords(Region);

impl SenderWords {
    /// The words of `segment`, at least a page long.
    #[inline]
    #[must_use]
    pub fn new(segment: Region) -> Self {
        Self(segment)
    }
    /// Changes whenever sleepers must check again.
    #[inline]
    #[must_use]
    pub fn bell(&self) -> &AtomicU32 {
        self.0.word32(at::BELL)
    }
    /// The processor the data thread last ran on.
    #[inline]
    #[must_use]
    pub fn cpu(&self) -> &AtomicU32 {
        self.0.word32(at::SENDER_CPU)
    }
    /// Odd while the data thread sleeps because there is no room.
    #[inline]
    #[must_use]
    pub fn blocked(&self) -> &AtomicU32 {
        self.0.word32(at::BLOCKED)
    }
    /// 0 while the channel is open, then the number of messages that it ever carried plus one.
    #[inline]
    #[must_use]
    pub fn closed(&self) -> &AtomicU64 {
        self.0.word64(at::CLOSED)
    }
    /// A counter of the data thread.
    #[inline]
    #[must_use]
    pub fn counter(&self, counter: SenderCounter) -> &AtomicU64 {
        self.0.word64(at::SENDER_COUNTERS + 8 * counter as usize)
    }
    /// A counter of the control thread.
    #[inline]
    #[must_use]
    pub fn control_counter(&self, counter: ControlCounter) -> &AtomicU64 {
        self.0.word64(at::CONTROL_COUNTERS + 8 * counter as usize)
    }
    /// Under `Overwrite`: messages below this one may be overwritten.
    #[inline]
    #[must_use]
    pub fn floor(&self) -> &AtomicU64 {
        self.0.word64(at::FLOOR)
    }
    /// Which receiver holds the row, and in which state.
    #[inline]
    #[must_use]
    pub fn door_tenure(&self, row: u32) -> &AtomicU64 {
        self.0.word64(door(row) + at::DOOR_TENURE)
    }
    /// The first message that a row's receiver gets.
    #[inline]
    #[must_use]
    pub fn door_start(&self, row: u32) -> &AtomicU64 {
        self.0.word64(door(row) + at::DOOR_START)
    }
    /// The process number of the row's receiver.
    #[inline]
    #[must_use]
    pub fn door_pid(&self, row: u32) -> &AtomicU32 {
        self.0.word32(door(row) + at::DOOR_PID)
    }
}

#[inline]
fn door(row: u32) -> usize {
    at::DOORS + row as usize * at::DOOR_BYTES
}

/// A receiver's segment.
#[derive(Debug, Clone)]
pub struct ReceiverWords(Region);

impl ReceiverWords {
    /// The words of `segment`, one page.
    #[inline]
    #[must_use]
    pub fn new(segment: Region) -> Self {
        Self(segment)
    }
    /// Number of messages that the receiver has finished with.
    #[inline]
    #[must_use]
    pub fn cursor(&self) -> &AtomicU64 {
        self.0.word64(at::CURSOR)
    }
    /// Odd while the receiver sleeps.
    #[inline]
    #[must_use]
    pub fn sleeping(&self) -> &AtomicU32 {
        self.0.word32(at::SLEEPING)
    }
    /// How the receiver wants to be woken.
    #[inline]
    #[must_use]
    pub fn sleep_mode(&self) -> &AtomicU32 {
        self.0.word32(at::SLEEP_MODE)
    }
    /// Changes when the receiver makes room for a waiting sender.
    #[inline]
    #[must_use]
    pub fn wake(&self) -> &AtomicU32 {
        self.0.word32(at::WAKE)
    }
    /// The processor that the receiver last ran on.
    #[inline]
    #[must_use]
    pub fn cpu(&self) -> &AtomicU32 {
        self.0.word32(at::RECEIVER_CPU)
    }
    /// A counter of the receiver.
    #[inline]
    #[must_use]
    pub fn counter(&self, counter: ReceiverCounter) -> &AtomicU64 {
        self.0.word64(at::RECEIVER_COUNTERS + 8 * counter as usize)
    }
}

/// Adds to a counter that only this thread writes.
#[inline]
pub(super) fn add(counter: &AtomicU64, count: u64) {
    counter.store(counter.load(Relaxed).wrapping_add(count), Relaxed);
}
