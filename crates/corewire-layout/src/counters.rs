//! The counters that each party keeps in its own segment, on lines of their own.
//!
//! A counter is a u64 that only its owner writes, with a plain store on a slow path: the data path
//! never pays for one. What is kept privately (messages, bytes of longer ones) is written out whenever
//! a slow path runs; the number of messages sent is also exact at any time in
//! the ring's stamps, and the number received in the cursor.

/// Counters that a channel's sender writes from its data thread, by index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
#[non_exhaustive]
pub enum SenderCounter {
    /// Messages sent, as of the last slow path.
    Messages = 0,
    /// Payload bytes of messages above 48 bytes, as of the last slow path. Shorter messages travel
    /// in their slot, a line each, and counting their bytes would cost the data path a store.
    Bytes = 1,
    /// Times the sender had to wait for room.
    Waits = 2,
    /// Times it slept while it waited.
    Sleeps = 3,
    /// Times it found room only when the cap on a sleep ran out.
    CapFinds = 4,
    /// Times it woke sleeping receivers.
    Wakes = 5,
    /// Scans of the receivers' epochs after a hint that found no sleeper.
    EmptyScans = 6,
}

/// Counters that a channel's control thread writes, by index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
#[non_exhaustive]
pub enum ControlCounter {
    /// Receivers that joined.
    Joins = 0,
    /// Receivers that left.
    Leaves = 1,
    /// Receivers whose process died, or to whose process no call gets through any more.
    Deaths = 2,
    /// Receivers dropped because their memory held an impossible value.
    Violations = 3,
    /// Attempts to join that were refused.
    Refusals = 4,
    /// Receivers that held the sender back for too long.
    Evictions = 5,
}

/// Counters that a receiver writes, by index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
#[non_exhaustive]
pub enum ReceiverCounter {
    /// Messages received, as of the last published cursor.
    Messages = 0,
    /// Payload bytes of messages above 48 bytes, as of the last published cursor.
    Bytes = 1,
    /// Times the receiver found the ring empty and waited.
    Waits = 2,
    /// Times it slept while it waited.
    Sleeps = 3,
    /// Times it found a message only when the cap on a sleep ran out. Anything but 0 means that a
    /// wake-up was lost, or that the sender was stopped between a message and its wake-up.
    CapFinds = 4,
    /// Times it woke a sender that waited for room.
    Wakes = 5,
    /// Messages that were overwritten before it had read them.
    Missed = 6,
    /// Times it had announced that it would sleep, and found a message then: a system call, and another one
    /// of the sender, who could not know better.
    NearSleeps = 7,
}

/// Counters that an endpoint writes, by index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
#[non_exhaustive]
pub enum EndpointCounter {
    /// Times it waited for a message or for room.
    Waits = 0,
    /// Times it slept while it waited.
    Sleeps = 1,
    /// Times it found something only when the cap on a sleep ran out. Anything but 0 means that a
    /// wake-up was lost, or that a peer was stopped between a message and its wake-up.
    CapFinds = 2,
    /// Times it woke a sleeping peer.
    Wakes = 3,
    /// Times it announced a message by a bit, since its receiver did not poll the pair.
    Announcements = 4,
    /// Messages that arrived before anybody asked for them.
    Unexpected = 5,
    /// Times such a message had to stay with its sender, because the budget was spent.
    Stalls = 6,
    /// Rings taken back from a pair for another one.
    RingsTaken = 7,
    /// Peers whose process died.
    Deaths = 8,
    /// Peers cut off because their memory held an impossible value.
    Violations = 9,
}

/// How many counters fit each of the tables.
pub const COUNTERS_MAX: usize = 16;

impl SenderCounter {
    /// Every counter, in order, with the word a person reads.
    pub const ALL: [(Self, &'static str); 7] = [
        (Self::Messages, "messages"),
        (Self::Bytes, "bytes"),
        (Self::Waits, "waits"),
        (Self::Sleeps, "sleeps"),
        (Self::CapFinds, "cap_finds"),
        (Self::Wakes, "wakes"),
        (Self::EmptyScans, "empty_scans"),
    ];
}

impl EndpointCounter {
    /// Every counter, in order, with the word a person reads.
    pub const ALL: [(Self, &'static str); 10] = [
        (Self::Waits, "waits"),
        (Self::Sleeps, "sleeps"),
        (Self::CapFinds, "cap_finds"),
        (Self::Wakes, "wakes"),
        (Self::Announcements, "announcements"),
        (Self::Unexpected, "unexpected"),
        (Self::Stalls, "stalls"),
        (Self::RingsTaken, "rings_taken"),
        (Self::Deaths, "deaths"),
        (Self::Violations, "violations"),
    ];
}

impl ControlCounter {
    /// Every counter, in order, with the word a person reads.
    pub const ALL: [(Self, &'static str); 6] = [
        (Self::Joins, "joins"),
        (Self::Leaves, "leaves"),
        (Self::Deaths, "deaths"),
        (Self::Violations, "violations"),
        (Self::Refusals, "refusals"),
        (Self::Evictions, "evictions"),
    ];
}

impl ReceiverCounter {
    /// Every counter, in order, with the word a person reads.
    pub const ALL: [(Self, &'static str); 8] = [
        (Self::Messages, "messages"),
        (Self::Bytes, "bytes"),
        (Self::Waits, "waits"),
        (Self::Sleeps, "sleeps"),
        (Self::CapFinds, "cap_finds"),
        (Self::Wakes, "wakes"),
        (Self::Missed, "missed"),
        (Self::NearSleeps, "near_sleeps"),
    ];
}
