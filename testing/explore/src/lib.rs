//! The ring of several senders as a protocol: every state that a small world can reach.
//!
//! Any number of senders write into one ring, every receiver receives the same messages in the
//! same order, and any process may be killed between any two of its steps. This crate says what
//! each party does, one access to shared memory a step, and visits every state: [`engine`] is the
//! search, [`worlds`] lists what is explored, [`mutant`] leaves out one rule at a time. Accesses
//! are sequentially consistent; orderings are the affair of `testing/models`.
//!
//! # Memory
//!
//! - **Slots**, in blocks. A slot's *stamp* holds the sequence, whether it is *claimed* (else
//!   published), whether it heads a *run*, whether it is *void*, and the row of its sender. A slot
//!   never used is older than every sequence.
//! - **Senders' rows**: free, or held by a sender of one generation.
//! - **Receivers' rows**: free, reserved, active or evicted, each with a generation and a cursor.
//! - **The members' epoch**, which counts the changes of receivers' rows.
//!
//! The next sequence to be claimed, a sender's *guess*, and its limit are private. A sender has no
//! lock and no shared tail that could be left behind.
//!
//! # Claim
//!
//! 1. Walk: load the stamp at the guess. If it has that sequence, the guess goes on by one, or to
//!    the next block if the stamp heads a run. If it is later, the guess goes on to the **start of
//!    the block** of that sequence: in its middle one would miss the head of a run, and claim in it.
//! 2. The guess is free if the stamp is older. It may be claimed below the limit. So must the
//!    **last** slot of a run.
//! 3. The slot's life before must be over, and with a run **that of each of its slots**. A stamp
//!    that is claimed, or heads a run whose last slot is not yet published, must be of a sender
//!    that this one knows to be dead. Receivers that hold the limit back do not replace this rule:
//!    there may be none, or they may have been evicted.
//! 4. Swap the stamp, from exactly what was loaded. A run swaps its head alone; until it is done
//!    everybody else goes round the rest of its block.
//! 5. Write the payload, store the stamp as published; in a run slot by slot, with pads at the end.
//!    A head's published stamp still says that it heads a run.
//!
//! # Limit
//!
//! Load the epoch, each row, the cursor of each active row, and the epoch again, until it has not
//! changed. The limit is the least cursor and the slots of the ring; without receivers, the guess
//! and one block. (A block may be as much as the whole ring.) Without the second load a joiner
//! could be missed by a sender that finds the others further on.
//!
//! A sender that is held back frees the rows of receivers that it knows to be dead. If the channel
//! evicts, it evicts others.
//!
//! # Join
//!
//! The process of a sender, the *host*, does it: reserve a free row; store any cursor up to the
//! head; let the row count; raise the epoch; walk to the head; store it as the cursor; welcome the
//! receiver, which starts there. Whoever found its limit before the row counted stays within one
//! lap of that head.
//!
//! A death in the middle leaves a row. If the host dies, **the receiver frees the row**, which it
//! must therefore know before the row counts: to everybody else it looks like that of a live
//! receiver, and would hold them for ever. If the receiver dies, the host does. If both do,
//! whoever wants the row may free it, for a reserved row names its host, any other its receiver.
//!
//! # Receive
//!
//! Load the stamp at the position.
//!
//! - Published: copy, deliver. Where receivers are evicted, look at the own row between the two,
//!   and drop the copy if it is no longer active. Void, or a pad: pass.
//! - Claimed: load the row after the stamp. If its holder is known to be dead, load the stamp
//!   again; if it is still the claim, pass.
//! - Older: look back in the block for the head of a run. If there is one and its owner is known
//!   to be dead, load the stamp again; if it is still older, pass. Where receivers are evicted,
//!   look at the own row: nothing may ever come.
//! - Later: evicted, or memory is broken.
//!
//! The cursor **stays at the head of a run** until the last slot of the run is passed. Beyond the
//! head, it would let a sender that knows of the death claim the head for the next lap; the
//! receiver would then find no run, and wait for ever, as would the sender for it.
//!
//! # End
//!
//! A receiver ends when it has nothing left, is not **inside a run**, and no sender is there: each
//! row is free or of a dead one. It looks through the rows **twice**, and compares generations:
//! one pass alone can see each of two rows while the other is held. Then it loads the stamp once
//! more. A message may have come before the last sender left.
//!
//! # Enter and leave
//!
//! A sender that leaves frees its row; it has no claim. A new one takes a free row with the next
//! generation, or that of a sender it knows to be dead. For that it goes once through the ring,
//! and **settles** what the dead left: it loads a claim, loads the row (if another holds it by
//! now, it looks for another row), and swaps the claim for a void; it fills what is unwritten of
//! a run with voids, each swapped in from an older stamp. If it left them to be lapped, a channel
//! whose rows are all of the dead would never have a sender again.
//!
//! # Death
//!
//! Everybody learns of a death for themselves, any time later. It is a death of one generation of
//! a row: the generation is loaded after the stamp that names the row. The row cannot change hands
//! while such a stamp is in the ring, so that a stamp that is still there when it is loaded again
//! is of that generation.
//!
//! # What is demanded
//!
//! In every state: no slot of a live claim is claimed by another; no sender writes where its claim
//! is no more; a receiver delivers whole payloads of the right sequence, passes no message, and no
//! message is committed that it has passed; it is lapped only when evicted; it ends only after all
//! messages, and when no sender was there at one moment of its search. Since a receiver's position
//! grows by one, this is the same order for all, each message once. And from every state, whoever
//! lives can finish without another death or eviction.
//!
//! The shared tail is not modelled: every walk begins where its sender stands, or, for one that
//! enters, at the first sequence. No older hint is possible. Nor is sleeping.

pub mod configuration;
pub mod engine;
pub mod mutant;
pub mod worlds;

mod entry;
mod join;
mod protocol;
mod receiver;
mod sender;
mod state;
mod walk;

pub use join::ROW_LOST;
pub use protocol::Protocol;
pub use receiver::{
    ENDED_EARLY, ENDED_WITHOUT, EVICTED_SILENTLY, LAPPED, PASSED_MESSAGE, WRONG_PAYLOAD,
};
pub use sender::{CLAIM_LOST, LIVE_CLAIM_TAKEN, PASSED_COMMITTED};
pub use state::State;
