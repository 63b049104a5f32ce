//! One sender, many receivers: every receiver gets every message, in one order, read where the
//! sender wrote it.
//!
//! After ZIMP (Aublin and others, section III: messages are allocated in the channel itself, sent
//! once and read many times), without its lock and its bitmap: a message is published by one store
//! to its slot's stamp, and each receiver's progress is a cursor in memory of its own.
//!
//! # The way of a message
//!
//! 1. [`Sender::loan_with`] compares its head with one private word, the *limit*; a payload above
//!    48 bytes is given room in the window or the large area ([`Area`]).
//! 2. The caller writes the payload in place.
//! 3. [`Loan::send`] writes the header, stores the stamp (B1), and looks whether a receiver sleeps.
//! 4. [`Receiver::receive_with`] finds the stamp, fences (B2), checks the header.
//! 5. The caller reads the payload in place.
//! 6. Dropping the [`Message`] moves the cursor on; it is stored (B3) once in a batch.
//! 7. [`Sender::refresh`] reads the cursors (B4) when the limit is reached, and sets a new one.
//!
//! # Cost per message, N receivers, S slots
//!
//! | | line transfers | locked instructions | system calls |
//! |---|---|---|---|
//! | sender, up to 48 bytes | 1 to own the slot again, + 8N/S for the cursors | 0 | 0 |
//! | each receiver, up to 48 bytes | 1 | 8/S (a fence with each cursor) | 0 |
//! | payload of n bytes elsewhere | n/64 more, each way | + 8 times n/window | 0 |
//! | a sleeping receiver | the bell and its epoch | one system call's worth | 1 or 2 on either side |
//!
//! A sender that streams fetches lines ahead; for a receiver that is not behind that is one transfer more
//! each.
//!
//! Where the kernel refuses `membarrier`, the channel is *fenced*: one locked instruction a message.
//!
//! # Slow receivers
//!
//! Under [`Policy::Block`](corewire_layout::segment::Policy) the slowest cursor bounds the limit: the
//! sender waits, and a message may be read in place until its receiver has passed it. Under
//! `Overwrite` the sender bounds itself by a *floor* that it raises as it needs room: messages below
//! it may be written over at any moment. Under `Evict` it waits as long as is allowed, and then marks
//! the receiver's *door*. In both, whoever reads must copy, word by word, and look at floor or door
//! afterwards: a release fence (O1, E1) stands between the change and what is written over, an
//! acquire fence (O2, E2) between the copy and the look. The floor is raised once in an eighth of the
//! ring or of the area, so a message costs its sender no store more than under `Block`, and each of
//! its receivers a load of a line that rarely changes.
//!
//! # Who may do what
//!
//! The *data thread* is whoever holds the [`Sender`]. The *control thread* changes [`Members`]
//! under a lock, and gets the data thread's attention by storing 0 to the limit. Everything in
//! [`SenderShared`] is private memory of the sender's process.

mod area;
mod members;
mod pace;
mod receiver;
mod sender;
mod words;

pub use area::{Area, Room, Span};
pub use members::{Channel, Joined, Members, Slowest, head_of};
pub(crate) use pace::Pace;
pub use receiver::{
    End, InPlace, Lost, Message, Receiver, ReceiverParts, ReceiverShared, Snapshot, Violation,
};
pub(crate) use sender::settles;
pub use sender::{Loan, Sender, SenderParts, SenderShared};
pub use words::{ReceiverWords, SenderWords};

/// The longest that anybody sleeps without looking again. A message found because of it is counted,
/// and means that a wake-up was late: its sender was stopped between a stamp and its wake-up.
pub const SLEEP_CAP_NS: u64 = 100_000_000;
/// The cap on a sleep whose barrier the kernel could not give.
pub const UNSURE_SLEEP_CAP_NS: u64 = 1_000_000;
/// The data thread wakes this many sleepers itself, and leaves the rest to the control thread.
pub const WAKES_BY_SENDER_MAX: u32 = 4;
/// Every sleeper: the kernel takes the count for an `i32`.
pub(crate) const WAKE_ALL: u32 = i32::MAX.unsigned_abs();

/// Bits of a `notices` word: why a data thread should look up.
pub mod notice {
    /// The peer's process has died, or has hung up without closing.
    pub const PEER_GONE: u32 = 1;
    /// This process was forked, and this is the child.
    pub const FORKED: u32 = 2;
    /// Another thread asked for the call to return.
    pub const INTERRUPTED: u32 = 4;
}
