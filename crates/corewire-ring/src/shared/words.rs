//! Named access to the words of a shared channel's two segments. `corewire_layout::segment` names
//! the writer of each word.

use corewire_layout::counters::{ControlCounter, SenderCounter};
use corewire_layout::segment as at;

use crate::region::Region;
use crate::sync::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// The ring: the segment that senders write.
#[derive(Debug, Clone)]
pub struct RingWords(Region);

impl RingWords {
    /// The words of `segment`, a shared channel's ring.
    #[must_use]
    pub fn new(segment: Region) -> Self {
        Self(segment)
    }
    /// Changes whenever sleepers must check again.
    #[must_use]
    pub fn bell(&self) -> &AtomicU32 {
        self.0.word32(at::BELL)
    }
    /// The processor on which a sender last ran when it woke receivers (a hint).
    #[must_use]
    pub fn cpu(&self) -> &AtomicU32 {
        self.0.word32(at::SENDER_CPU)
    }
    /// Changes whenever a sender begins to wait for room.
    #[must_use]
    pub fn blocked(&self) -> &AtomicU32 {
        self.0.word32(at::BLOCKED)
    }
    /// A sequence number at which a claim began or will begin, at or below the first unclaimed
    /// number.
    #[must_use]
    pub fn tail(&self) -> &AtomicU64 {
        self.0.word64(at::TAIL)
    }
    /// Changes whenever a sender joins or leaves.
    #[must_use]
    pub fn senders_epoch(&self) -> &AtomicU32 {
        self.0.word32(at::SENDERS_EPOCH)
    }
    /// The creator's row plus one, while the creator waits for receivers that it invited.
    #[must_use]
    pub fn held(&self) -> &AtomicU32 {
        self.0.word32(at::HELD)
    }
    /// The time, by the kernel's monotonic clock in ns, until which senders wait for the invited
    /// receivers.
    #[must_use]
    pub fn held_until(&self) -> &AtomicU64 {
        self.0.word64(at::HELD_UNTIL)
    }
    /// A sender's door.
    #[must_use]
    pub fn door(&self, row: u32) -> Door<'_> {
        Door { segment: &self.0, offset: door(row) }
    }
    /// A counter of a sender.
    #[must_use]
    pub fn counter(&self, row: u32, counter: SenderCounter) -> &AtomicU64 {
        self.0.word64(door(row) + at::DOOR_COUNTERS + 8 * counter as usize)
    }
}

/// The table: the segment that all senders and receivers write.
#[derive(Debug, Clone)]
pub struct TableWords(Region);

impl TableWords {
    /// The words of `segment`, a shared channel's table.
    #[must_use]
    pub fn new(segment: Region) -> Self {
        Self(segment)
    }
    /// A receiver adds one before it sleeps.
    #[must_use]
    pub fn sleepers(&self) -> &AtomicU32 {
        self.0.word32(at::SLEEPERS)
    }
    /// A receiver adds one when it makes room for a waiting sender.
    #[must_use]
    pub fn room(&self) -> &AtomicU32 {
        self.0.word32(at::ROOM)
    }
    /// Changes whenever a receiver joins or leaves.
    #[must_use]
    pub fn members_epoch(&self) -> &AtomicU32 {
        self.0.word32(at::MEMBERS_EPOCH)
    }
    /// Rows from this one on have never been taken.
    #[must_use]
    pub fn rows_high(&self) -> &AtomicU32 {
        self.0.word32(at::ROWS_HIGH)
    }
    /// A receiver's door.
    #[must_use]
    pub fn door(&self, row: u32) -> Door<'_> {
        Door { segment: &self.0, offset: door(row) }
    }
    /// Adds one to a counter of the channel.
    pub fn count(&self, counter: ControlCounter) {
        self.counter(counter).fetch_add(1, Relaxed);
    }
    /// A counter of the channel.
    #[must_use]
    pub fn counter(&self, counter: ControlCounter) -> &AtomicU64 {
        self.0.word64(at::TABLE_COUNTERS + 8 * counter as usize)
    }
}

/// A door: which process holds a row.
#[derive(Debug, Clone, Copy)]
pub struct Door<'a> {
    segment: &'a Region,
    offset: usize,
}

impl<'a> Door<'a> {
    /// Generation and state.
    #[must_use]
    pub fn tenure(self) -> &'a AtomicU64 {
        self.segment.word64(self.offset + at::DOOR_TENURE)
    }
    /// The first message that a receiver gets.
    #[must_use]
    pub fn start(self) -> &'a AtomicU64 {
        self.segment.word64(self.offset + at::DOOR_START)
    }
    /// The process number of the holder, for people to read.
    #[must_use]
    pub fn pid(self) -> &'a AtomicU32 {
        self.segment.word32(self.offset + at::DOOR_PID)
    }
    /// The socket of the holder's process.
    #[must_use]
    pub fn socket(self) -> u128 {
        let half = |at| u128::from(self.segment.word64(self.offset + at).load(Relaxed));
        half(at::DOOR_SOCKET) | half(at::DOOR_SOCKET + 8) << 64
    }
    /// Stores the socket of the holder's process.
    pub fn set_socket(self, socket: u128) {
        let halves = socket.to_le_bytes();
        for (at, half) in
            [at::DOOR_SOCKET, at::DOOR_SOCKET + 8].into_iter().zip(halves.as_chunks().0)
        {
            self.segment.word64(self.offset + at).store(u64::from_le_bytes(*half), Relaxed);
        }
    }
}

fn door(row: u32) -> usize {
    at::DOORS + row as usize * at::DOOR_BYTES
}
