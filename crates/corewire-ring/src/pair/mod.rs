//! Any endpoint to any endpoint: a ring for each ordered pair that talks.
//!
//! After Nemesis (Buntinas and others, sections 2.1 and 3.2): its fastbox, a place in shared memory that
//! one process writes for one other, made the whole path. Its receive queue, into which all senders link
//! cells, is not used: a sender that dies between its two stores breaks that chain, one that is stopped
//! there stalls everybody, and an uncontended message through it takes twice as long.
//!
//! # The way of a message
//!
//! 1. [`Endpoint::try_send`] compares the pair's head with its limit; above 160 bytes it takes room in a
//!    cell ([`Endpoint::send_fragment`]).
//! 2. The payload is written into the ring's slots, in this endpoint's segment, or into the cell.
//! 3. One store publishes it (P1). Then the peer's word for this pair is looked at: *hot*, and the peer
//!    polls the ring; *cold*, and a bit in its activity page says so (P7), and it is woken if it sleeps.
//! 4. [`Endpoint::poll`] of the peer finds the stamp, or the bit (P8).
//! 5. [`Endpoint::arrival`] reads tag and length (P2); the caller matches them.
//! 6. [`Endpoint::copy`] takes the payload; [`Endpoint::pass`] is done with it. The cursor is stored (P3)
//!    once in a quarter of the ring.
//! 7. The sender reads it (P4) when it comes to its limit.
//!
//! # Hot and cold
//!
//! A receiver looks at the rings of hot pairs in every poll: those that talk, and the [`HOT_KEPT`] that
//! talked last. For all others there is one summary word. It *watches* them besides, up to [`WATCHED_MAX`]
//! pairs (`watch`): whoever waits looks at all of their slots in each poll, and whoever looks only once at a
//! few, in turn, so that this costs nearly the same whatever the number of peers. So a message from a peer
//! that was silent for long is found in its slot, mostly before its bit is set. Whoever has a message is hot
//! from the end of that round on, and cold again when it has been silent for a while and there are others.
//!
//! A pair that cools may lose a message's bit: its sender may have read the old word just before. So it is
//! looked at, in turn if it is watched and every [`IDLE_POLLS`] empty polls if it is not, until the receiver
//! next sleeps, and before that sleep, behind a barrier on every core (P6): from then on its sender has read
//! the new word, or its message has been seen. Bits are hints otherwise, too: whoever dies between a stamp
//! and its bit is looked at when its death is told.
//!
//! What no core has touched for a second is in none of its caches on a busy machine, and each line of it
//! takes as long to fetch as a message takes to come. So what the next message of a silent peer needs is
//! looked at now and then, few lines are needed, and it takes the way through the code that all others take.
//!
//! # Cost of a message of up to 48 bytes, S slots
//!
//! | | line transfers | locked instructions | system calls |
//! |---|---|---|---|
//! | sender, hot | 1, to own the slot again; 4/S for the cursor | 0 | 0 |
//! | sender, cold | and 1 for the activity page | 1 or 2 | 0 |
//! | receiver, hot, or watched | 1 | 2/S | 0 |
//! | receiver, told by a bit | and 1 | 2 | 0 |
//! | payload of up to 104 bytes | 1 more | | |
//! | payload of up to 160 bytes | 2 more | | |
//! | of n bytes in cells | n/64 more, each way | | |
//! | a sleeping receiver | the doorbell, its epoch | 1 | 1 on either side |
//!
//! # Who may do what
//!
//! The *data thread* is whoever holds the [`Endpoint`]. The *control thread* knows who comes and goes, and
//! tells it through [`EndpointShared`]. Each word of the segment has one writer, the data thread; the
//! activity page is everybody's, and holds nothing that has to be true.

mod cells;
mod endpoint;
mod inbox;
mod outbox;
mod traffic;
mod watch;
mod words;

pub use endpoint::{Endpoint, EndpointParts, EndpointShared, Haste, PeerParts, Short};
pub use inbox::Inbox;
pub use outbox::Outbox;
pub use words::{Activity, EndpointMemory};

/// So many pairs are watched: looked at before a bit names them.
pub const WATCHED_MAX: usize = if cfg!(loom) { 1 } else { 64 };
/// So many of them stay hot, however long they are silent: those that talked last.
pub const HOT_KEPT: usize = if cfg!(loom) { 0 } else { 4 };
/// So many groups of four of those that are not hot are looked at in a single poll, in turn. (Who polls again and
/// again looks at all.)
const GROUPS_ONCE: usize = 1;
/// Who polls again and again looks at the bits every so many polls; and if there are more peers than can be
/// watched.
const BITS_EVERY: u64 = if cfg!(loom) { 8 } else { 256 };
const BITS_OFTEN: u64 = 8;
/// So many turns in a row may go to hot pairs before everybody is looked at.
const TURNS_MAX: u32 = 64;
/// The most slots that are taken from one pair while others may have something.
pub const BURST_MAX: u64 = 32;
/// Empty polls after which one more pair is visited, since what has not been touched for long is slow: with 64 of
/// them, each has its turn in a fraction of a millisecond.
const VISIT_EVERY: u64 = if cfg!(loom) { 8 } else { 128 };
/// Empty polls after which all else is done that is done now and then.
pub(crate) const IDLE_POLLS: u64 = if cfg!(loom) { 8 } else { 1024 };
const _: () = assert!(IDLE_POLLS.is_multiple_of(VISIT_EVERY));
/// A hot pair that had no message for so many rounds of polls gives its place to another.
const COLD_AFTER: u64 = if cfg!(loom) { 1 } else { 1024 };

/// A word of a peer's memory that cannot be: the peer is cut off, and nothing else is touched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the peer's memory holds {found:#x} as {word} of slot {position}")]
pub struct PairViolation {
    /// Which word.
    pub word: &'static str,
    /// What it holds.
    pub found: u64,
    /// The slot that it belongs to.
    pub position: u64,
}
