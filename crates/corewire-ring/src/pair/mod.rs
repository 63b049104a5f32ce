//! Any endpoint to any endpoint: one ring for each ordered pair that communicates.
//!
//! Based on Nemesis (Buntinas and others, sections 2.1 and 3.2). Its fastbox, a place in shared memory that one process
//! writes for one other, is the whole path here. Its receive queue, into which all senders link cells, is not used: a
//! sender that dies between its two stores breaks that chain, a sender that is stopped there stalls all others, and an
//! uncontended message through it takes twice as long.
//!
//! # Path of a message
//!
//! 1. [`Endpoint::try_send`] compares the pair's head with its limit. A message of more than 160 bytes gets room in a
//!    cell ([`Endpoint::send_fragment`]).
//! 2. The payload is written into the ring's slots, in this endpoint's segment, or into the cell.
//! 3. One store publishes it (P1). Then the sender reads the peer's word for this pair. *Hot*: the peer polls the
//!    ring. *Cold*: the sender sets a bit in the peer's activity page (P7), and wakes the peer if it sleeps.
//! 4. The peer's [`Endpoint::poll`] finds the stamp, or the bit (P8).
//! 5. [`Endpoint::arrival`] reads tag and length (P2); the caller matches them.
//! 6. [`Endpoint::copy`] copies the payload out; [`Endpoint::pass`] moves past it. The cursor is stored (P3) once in
//!    a quarter of the ring.
//! 7. The sender reads the cursor (P4) when it reaches its limit.
//!
//! # Hot and cold
//!
//! A receiver checks the rings of hot pairs in every poll: the active pairs, and the [`HOT_KEPT`] that were active
//! last. For all other pairs it checks one summary word. In addition it *watches* up to [`WATCHED_MAX`] pairs
//! (`watch`): a receiver that waits checks all their slots in each poll; one that polls once checks a few, in turn,
//! so that this costs nearly the same for any number of peers. So a message from a peer that was silent for long is
//! found in its slot, mostly before its bit is set. A pair that had a message is hot from the end of that round on.
//! It becomes cold when it has been silent for a while and there are other hot pairs.
//!
//! A message of a pair that cools may have no bit: its sender may have read the old word just before. So the receiver
//! still checks the pair, in turn if it is watched and every `IDLE_POLLS` empty polls if not, until it next sleeps, and
//! before that sleep, after a barrier on every core (W6): from then on the sender has read the new word, or its message
//! has been seen. In other cases, too, bits are only hints: a peer may die between a stamp and its bit, so its pair is
//! checked when its death is reported.
//!
//! On a busy machine, memory that no core has touched for a second is in no cache, and fetching one line of it takes
//! as long as a message takes to arrive. So the data that the next message of a silent peer needs is touched
//! occasionally, it covers few lines, and the message takes the same code path as all others.
//!
//! # Cost of a message of up to 48 bytes, S slots
//!
//! | | line transfers | locked instructions | system calls |
//! |---|---|---|---|
//! | sender, hot | 1, to own the slot again; 4/S for the cursor | 0 | 0 |
//! | sender, cold | and 1 for the activity page | 1 or 2 | 0 |
//! | receiver, hot, or watched | 1 | 2/S | 0 |
//! | receiver, informed by a bit | and 1 | 2 | 0 |
//! | payload of up to 104 bytes | 1 more | | |
//! | payload of up to 160 bytes | 2 more | | |
//! | of n bytes in cells | n/64 more, each way | | |
//! | of n bytes in place (`grants.rs`) | n/64 more, once | 2 | 0 |
//! | a sleeping receiver | the doorbell, its epoch | 1 | 1 on either side |
//!
//! # Threads and writers
//!
//! The *data thread* holds the [`Endpoint`]. The *control thread* learns which peers come and go, and tells the data
//! thread through [`EndpointShared`]. Each word of the segment has one writer, the data thread. All peers write the
//! activity page; nothing depends on its contents.

mod cells;
mod endpoint;
mod exposures;
mod grants;
mod heap;
mod inbox;
mod outbox;
mod rendezvous;
mod traffic;
mod watch;
mod words;

pub use endpoint::{Endpoint, EndpointParts, EndpointShared, PeerParts, Polling, Short};
pub use exposures::{ExposedPlace, Visit, Visited};
pub use grants::{Granted, Lending, LentBlock};
pub use inbox::Inbox;
pub use outbox::Outbox;
pub use rendezvous::{Claim, Helper, Puller};
pub use words::{Activity, EndpointMemory};

/// Maximum number of watched pairs: their slots are checked before a bit names them.
pub const WATCHED_MAX: usize = if cfg!(loom) { 1 } else { 64 };
/// Number of watched pairs that stay hot however long they are silent: those that were active last.
pub const HOT_KEPT: usize = if cfg!(loom) { 0 } else { 4 };
/// One in so many single polls checks four watched pairs that are not hot, in turn; each of them looks for the bits with
/// which such pairs announce their messages. (A receiver that polls repeatedly checks all pairs, and few bits.)
const GROUP_EVERY: u64 = 4;
/// A receiver that polls repeatedly, and can watch all pairs, checks the bits once in this many polls.
const BITS_EVERY: u64 = if cfg!(loom) { 1 } else { 32 };
/// Maximum number of consecutive turns of hot pairs before all pairs are checked.
const TURNS_MAX: u32 = 64;
/// Maximum number of slots that are taken from one pair while others may have messages.
pub const BURST_MAX: u64 = 32;
/// Number of empty polls after which one more pair is visited, since memory untouched for long is slow to fetch. With
/// 64 pairs, each has its turn in a fraction of a millisecond.
const VISIT_EVERY: u64 = if cfg!(loom) { 8 } else { 128 };
/// Number of empty polls between runs of all other occasional work.
pub(crate) const IDLE_POLLS: u64 = if cfg!(loom) { 8 } else { 1024 };
const _: () = assert!(IDLE_POLLS.is_multiple_of(VISIT_EVERY));
/// A hot pair without a message for this many empty polls gives its place to another.
const COLD_AFTER: u64 = if cfg!(loom) { 1 } else { 1024 };

/// A word of a peer's memory holds an impossible value: the peer is disconnected, and its memory is not used any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the peer's memory holds {found:#x} as {word} of slot {position}")]
pub struct PairViolation {
    /// Which word.
    pub word: &'static str,
    /// What it holds.
    pub found: u64,
    /// The slot's position.
    pub position: u64,
}
