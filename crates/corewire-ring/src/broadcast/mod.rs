//! One sender, many receivers. Every receiver gets every message, in the same order, and reads it
//! where the sender wrote it.
//!
//! After ZIMP (Aublin and others, section III: messages are allocated in the channel itself, sent
//! once and read many times), but without ZIMP's lock and bitmap. One store to the slot's stamp
//! publishes a message, and each receiver keeps its progress as a cursor in its own memory.
//!
//! # The path of a message
//!
//! 1. [`Sender::loan_with`] compares its head with one private word, the *limit*. A payload above
//!    48 bytes gets room in the window or in the large area ([`Area`]).
//! 2. The caller writes the payload in place.
//! 3. [`Loan::send`] writes the header, stores the stamp (B1), and checks whether a receiver
//!    sleeps.
//! 4. [`Receiver::receive_with`] finds the stamp, fences (B2), checks the header.
//! 5. The caller reads the payload in place.
//! 6. Dropping the [`Message`] advances the cursor. The cursor is stored (B3) once per batch.
//! 7. [`Sender::refresh`] reads the cursors (B4) when the limit is reached, and sets a new limit.
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
//! A sender that streams prefetches lines. That costs one more transfer for each receiver that
//! keeps up. A stream of short payloads is written in *lanes* of the window, so that a receiver right behind the sender does
//! not fetch ahead the lines that are being written: see [`Span`].
//!
//! A message can be *held* beyond the call that received it ([`Held`]), and is then released by any
//! thread. The published cursor stays at the oldest held message. Only a receiver that has held one
//! pays for that: see `receiver/held.rs`.
//!
//! If the kernel refuses `membarrier`, the channel is *fenced*: one locked instruction per message.
//!
//! # Slow receivers
//!
//! Under [`Policy::Block`](corewire_layout::segment::Policy) the slowest cursor bounds the limit:
//! the sender waits, and a receiver may read a message in place until its cursor passes the
//! message. Under `Overwrite` the sender bounds itself by a *floor* that it raises when it needs
//! room: messages below the floor may be overwritten at any moment. Under `Evict` the sender waits
//! for the allowed time and then marks the receiver's *door*. Under these two, a receiver must copy a
//! message word by word and check the floor or the door afterwards. A release fence (O1, E1) stands
//! between that change and the overwriting stores; an acquire fence (O2, E2) stands between the
//! copy and the check. The floor is raised once per eighth of the ring or of the area. So a message
//! costs its sender no more stores than under `Block`, and costs each receiver one load of a line
//! that rarely changes.
//!
//! | policy | the sender | a receiver | cost |
//! |---|---|---|---|
//! | `Block` | waits for the slowest cursor | reads in place, misses nothing | none |
//! | `Overwrite` | never waits | copies; misses what was overwritten, and knows how much | the copy; a load of a line that changes 8 times in a lap |
//! | `Evict` | waits up to the allowed time, then continues without the slow receiver | copies; misses nothing until it is told that it was evicted | the copy; a load of its door |
//!
//! # Threads and their rights
//!
//! The *data thread* is the thread that holds the [`Sender`]. The *control thread* changes
//! [`Members`] under a lock, and notifies the data thread by storing 0 to the limit. Everything in
//! [`SenderShared`] is private memory of the sender's process.

mod members;
mod receiver;
mod sender;
mod words;

pub use members::{Channel, Joined, Members, head_of, inline_bytes_of};
pub use receiver::{Held, InPlace, Lost, Message, Receiver, ReceiverParts, Snapshot};
pub use sender::{Loan, Sender, SenderParts};
pub use words::{ReceiverWords, SenderWords};

pub use crate::channel::{
    Area, End, ReceiverShared, Room, SenderShared, Slowest, Span, Violation, head_start_ns,
};

/// The data thread wakes up to this many sleepers itself and leaves the rest to the control thread.
pub const WAKES_BY_SENDER_MAX: u32 = 4;
