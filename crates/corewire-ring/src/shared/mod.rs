//! Several senders, many receivers, one order: every receiver gets every message of every sender,
//! in the order in which their slots were claimed.
//!
//! After ZIMP's ordered channel of several senders (Aublin and others, section III-A), but without
//! ZIMP's lock: one compare-and-swap in a slot's own stamp claims the slot and records its owner.
//! Each receiver by itself passes what a dead sender had claimed. All receivers decide alike,
//! because the decision rests on the kernel's report that the owner is dead and on a stamp that can
//! no longer change.
//!
//! # Memory
//!
//! Two segments. The *ring* is written by all senders and mapped read-only by receivers: bell,
//! senders' doors, slots, and a window and a large area for each sender. The *table* is written by
//! all senders and receivers: receivers' doors and pages. A shared channel therefore serves levels
//! 1 and 2 of `docs/threats.md`, not level 3.
//!
//! # The path of a message
//!
//! 1. [`Sender::send_inline`] walks from its own tail to the first unclaimed slot, compares that
//!    with its limit, and makes sure that the slot's previous life is over (see below).
//! 2. It swaps the stamp for a claim (after the load C1), writes header and payload, and stores the
//!    stamp (C2): the message is committed. Nothing is claimed while user code runs: a loan lies in
//!    private memory or in the sender's own window.
//! 3. A batch claims a *run* of up to 16 slots by one swap of the first stamp. The run field of
//!    that stamp tells all other senders and receivers where the next claim begins. The other
//!    stamps of the run are stored in order, as their slots are filled.
//! 4. A receiver finds the stamp and reads as in [`crate::broadcast`]. It records a run when it
//!    passes the run's first slot, and publishes no cursor inside a run: otherwise that stamp could
//!    be overwritten, and the row of its dead owner taken again, while the receiver still needs to
//!    know that the owner is dead.
//!
//! # Rules that a model showed to be necessary
//!
//! `proof/explorers` visits every state of small worlds, with a death possible at each step.
//!
//! - A slot's **previous life is over** when its old stamp is published, or the claimer is known to
//!   be dead. If the slot was the first of a run, the whole run must be published, or its claimer
//!   dead. The senders check this themselves and do not rely on receivers that hold the limit back:
//!   there may be none. The claim of a run checks each of its slots.
//! - A sender that was lapped resumes where a claim begins, never inside a run.
//! - A receiver passes a dead sender's claim only after it has **loaded the stamp again** since it
//!   learned of the death. It compares the generation of the death with that of the door, loaded
//!   after the stamp.
//! - The **limit** is computed from the cursors; then comes a fence (R3), then the members' epoch
//!   is read again. A receiver that joined meanwhile either was counted, or begins above the
//!   computed limit.
//! - A receiver **ends** only outside a run, after two equal scans of all senders' doors and a last
//!   check of the stamp.
//! - A dead sender's **row** is taken again only when no slot names it as the claimer or as the
//!   owner of a run's first slot.
//! - A sender that takes a row again finds in its **window** what the row's previous holder sent.
//!   It writes there only when every receiver has read everything that was claimed before it
//!   joined. No model has windows: `proof/processes/tests/processes/torture.rs` found this rule.
//!
//! # Sleep, wake, room
//!
//! A receiver adds one to *sleepers* before it sleeps, and makes every core pass a barrier. A
//! sender that finds this word changed since its last check changes the bell and wakes all
//! receivers. No sender clears anything, so no sender can die while it holds a wake-up meant for a
//! receiver. Senders that wait for room use *blocked* and *room* in the same way. A sleeper watches
//! every existing sender, so that a death wakes it.
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
pub use roster::{Roster, RosterParts};
pub use sender::{Loan, Sender, SenderParts};
pub use words::{Door, RingWords, TableWords};

pub use crate::host::{Entrance, Party};
