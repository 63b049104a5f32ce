//! The counters that each sender, receiver and endpoint keeps in its own segment, on separate
//! lines.
//!
//! A counter is a u64 that only its owner writes, with a plain store on a slow path: the data path
//! never pays for a counter. Numbers that the data path keeps privately (messages, bytes of longer
//! messages) are written out whenever a slow path runs. In addition, the stamps of the ring give
//! the exact number of messages sent at any time, and the cursor the number received.

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
    /// Number of times that the sender had to wait for room.
    Waits = 2,
    /// Number of times that it slept while it waited.
    Sleeps = 3,
    /// Number of times that it found room only because the cap ended a sleep.
    CapFinds = 4,
    /// Number of times that it woke sleeping receivers.
    Wakes = 5,
    /// Number of scans of the receivers' epochs that were started by a hint and found no sleeper.
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
    /// Receivers whose process died. In a channel of several senders, also those whose process has another program now.
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
    /// Number of times that the receiver found the ring empty and waited.
    Waits = 2,
    /// Number of times that it slept while it waited.
    Sleeps = 3,
    /// Number of times that it found a message only because the cap ended a sleep. Any value except
    /// 0 means that a wake-up was lost, or that the sender was stopped between a message and its
    /// wake-up.
    CapFinds = 4,
    /// Number of times that it woke a sender that waited for room.
    Wakes = 5,
    /// Messages that were overwritten before this receiver read them.
    Missed = 6,
    /// Number of times that it announced a sleep and then found a message. This costs it a system
    /// call, and another one for the sender, which sees the announcement.
    NearSleeps = 7,
}

/// Counters that an endpoint writes, by index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
#[non_exhaustive]
pub enum EndpointCounter {
    /// Number of times that it waited for a message or for room.
    Waits = 0,
    /// Number of times that it slept while it waited.
    Sleeps = 1,
    /// Number of times that it found something only because the cap ended a sleep. Any value except
    /// 0 means that a wake-up was lost, or that a peer was stopped between a message and its
    /// wake-up.
    CapFinds = 2,
    /// Number of times that it woke a sleeping peer.
    Wakes = 3,
    /// Number of times that it announced a message by a bit, because the receiver did not poll the
    /// pair.
    Announcements = 4,
    /// Messages that arrived before a receive for them was posted.
    Unexpected = 5,
    /// Number of times that such a message had to stay with its sender, because the budget was
    /// spent.
    Stalls = 6,
    /// Number of rings taken back from a pair for another pair.
    RingsTaken = 7,
    /// Peers whose process died.
    Deaths = 8,
    /// Peers disconnected because their memory held an impossible value.
    Violations = 9,
    /// Messages that no receive had asked for, and that the program discarded.
    Discarded = 10,
    /// Large messages that it copied from their senders' memory.
    Pulled = 11,
    /// Large messages of peers that it could not read, and that came in another way.
    Refusals = 12,
    /// Messages that it received and reads where their senders wrote them.
    InPlace = 13,
    /// Number of times that a message of its own did not fit in what its receiver grants.
    Nacks = 14,
}

/// Counters that an endpoint writes for each peer, by index. The first [`TRAFFIC_COUNTERS`] go on counting when another
/// peer has the row, so that their sums count peers that have gone; the row has their values from before beside them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
#[non_exhaustive]
pub enum PeerCounter {
    /// Messages sent to the peer, as of the last slow path.
    SentMessages = 0,
    /// Payload bytes of these.
    SentBytes = 1,
    /// Messages received from the peer, as of the last published cursor.
    ReceivedMessages = 2,
    /// Payload bytes of these.
    ReceivedBytes = 3,
    /// Messages of the peer that have arrived and that no receive has asked for, now.
    KeptMessages = 4,
    /// Payload bytes of these, with what each costs beside.
    KeptBytes = 5,
    /// Bytes of the loan that waits for the peer to release messages, now; 0 if none does.
    LoanWaiting = 6,
    /// What the peer has not released of this endpoint's heap, in bytes, when that loan began to wait; 0 if none does.
    Unreleased = 7,
}

impl PeerCounter {
    /// Every counter, in order, with its name for people.
    pub const ALL: [(Self, &'static str); 8] = [
        (Self::SentMessages, "sent_messages"),
        (Self::SentBytes, "sent_bytes"),
        (Self::ReceivedMessages, "received_messages"),
        (Self::ReceivedBytes, "received_bytes"),
        (Self::KeptMessages, "kept_messages"),
        (Self::KeptBytes, "kept_bytes"),
        (Self::LoanWaiting, "loan_waiting_bytes"),
        (Self::Unreleased, "unreleased_bytes"),
    ];
}

/// How many of [`PeerCounter`] count what has gone and come.
pub const TRAFFIC_COUNTERS: usize = 4;

/// Number of counters for which each table has room.
pub const COUNTERS_MAX: usize = 16;

impl SenderCounter {
    /// Every counter, in order, with its name for people.
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
    /// Every counter, in order, with its name for people.
    pub const ALL: [(Self, &'static str); 15] = [
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
        (Self::Discarded, "discarded"),
        (Self::Pulled, "pulled"),
        (Self::Refusals, "refusals"),
        (Self::InPlace, "in_place"),
        (Self::Nacks, "nacks"),
    ];
}

impl ControlCounter {
    /// Every counter, in order, with its name for people.
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
    /// Every counter, in order, with its name for people.
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
