//! Several senders, many receivers, one order: every receiver gets every message of every sender, in
//! the order in which their slots were claimed.
//!
//! After ZIMP's ordered channel of several senders (Aublin and others, section III-A), without its
//! lock: a slot is claimed by one compare-and-swap in its own stamp, which thereby says who owns it.
//! What a dead sender had claimed is passed by each receiver by itself, and all decide alike, since
//! what decides is the kernel's word that the owner is dead and a stamp that can no longer change.
//!
//! # Memory
//!
//! Two segments. The *ring* is written by all senders and mapped read-only by receivers: bell,
//! senders' doors, slots, and a window and a large area for each sender. The *table* is written by
//! everybody: receivers' doors and pages. So a shared channel serves levels 1 and 2 of
//! `docs/threats.md`, not 3.
//!
//! # The way of a message
//!
//! 1. [`Sender::send_inline`] walks from its own tail to the first slot that nobody has claimed,
//!    compares that with its limit, and makes sure that the slot's life before is over (see below).
//! 2. It swaps the stamp for a claim (once C1 has let it), writes header and payload, and stores the stamp (C2):
//!    the message is committed. Nothing is claimed while user code runs: what is lent lies in private
//!    memory, or in the sender's own window.
//! 3. A batch claims a *run* of up to 16 slots by one swap of the first stamp, whose run field tells
//!    everybody else where the next claim begins. The others of the run are stored as they are filled,
//!    in order.
//! 4. A receiver finds the stamp, and reads as in [`crate::broadcast`]. It notes a run when it passes its
//!    first slot, and publishes no cursor inside one: else that stamp could be written over, and its
//!    dead owner's row taken again, while the receiver still has to know that the owner is dead.
//!
//! # Rules that a model found necessary
//!
//! `testing/explore` visits every state of small worlds, with a death possible at each step.
//!
//! - **A life before is over** when the old stamp is published, or its claimer is known to be dead;
//!   and, if it was the first of a run, when all of that run is published or its claimer dead. That is
//!   not left to the receivers that hold the limit back: there may be none. A run looks at each of its
//!   slots.
//! - A sender that was lapped resumes where a claim begins, never inside a run.
//! - A receiver passes a dead sender's claim only after it has **loaded the stamp again** since it
//!   learned of the death, and compares the generation of the death with the door's, loaded after the
//!   stamp.
//! - The **limit** is found from the cursors, then a fence (R3), then the members' epoch again: one who
//!   joined meanwhile was counted in, or begins above what was found.
//! - A receiver **ends** only outside a run, after two looks at all senders' doors that agree, and a
//!   last look at the stamp.
//! - A dead sender's **row** is taken again only when no slot names it as claimed or as the first of a
//!   run.
//! - Whoever takes a row again finds in its **window** what the one before has sent, and writes there
//!   only when every receiver has read everything that was claimed before it came. No model has
//!   windows: `testing/processes/tests/torture.rs` found this.
//!
//! # Sleep, wake, room
//!
//! A receiver adds one to *sleepers* before it sleeps, and has every core pass a barrier; a sender that
//! finds the word changed since it last looked changes the bell and wakes all. No sender clears
//! anything, so none can die with another's wake-up in hand. Senders that wait for room do the same
//! with *blocked* and *room*. A sleeper watches every sender that there is, so that a death wakes it.
//!
//! # Cost per message, N receivers, S slots
//!
//! | | line transfers | locked instructions | system calls |
//! |---|---|---|---|
//! | sender, up to 48 bytes | 1, or 2 if another sender had the slot before; 8N/S for the cursors | 1 | 0 |
//! | the same in runs of 16 | the same | 1/16 | 0 |
//! | each receiver | 1 | 8/S | 0 |

mod deaths;
mod receiver;
mod roster;
mod sender;
mod words;

pub use deaths::Deaths;
pub use receiver::{Many, ManyParts};
pub use roster::{Entrance, Party, Roster, RosterParts};
pub use sender::{Loan, Sender, SenderParts};
pub use words::{RingWords, TableWords};
