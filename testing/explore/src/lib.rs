//! The ring of several senders as a protocol: every state that a small world can reach.
//!
//! Any number of senders write into one ring, every receiver receives the same messages in the
//! same order, and any process may be killed between any two of its steps. This crate says what
//! each party does, one access to shared memory a step, and visits every state: [`engine`] is the
//! search, [`worlds`] lists what is explored, [`mutant`] leaves out one rule at a time. Accesses
//! are sequentially consistent; orderings are the affair of `testing/models`. The code is
//! `crates/corewire-ring/src/shared`, and its `mod.rs` says why it looks so; whoever changes a rule
//! there changes it here first.
//!
//! # Memory
//!
//! - **Slots.** A slot's *stamp* holds the sequence, whether it is *claimed* (else published), how
//!   many slots the claim has that begins there (1 where none begins), and the row of its sender. A
//!   slot never used is older than every sequence.
//! - **The shared tail**, a sequence where a claim begins or will. Many store it, so that it may be
//!   stale.
//! - **Senders' rows**: free, or held by a sender of one generation.
//! - **Receivers' rows**: free, joined or evicted, each with a generation and a cursor.
//! - **The members' epoch**, which counts joins.
//!
//! The next sequence to be claimed, a sender's *guess*, and its limit are private. A sender has no
//! lock, and nothing depends on the shared tail but time.
//!
//! # Claim
//!
//! A claim is a *run* of 1 to `run_max` slots (16 in the code, 2 or 3 here), and may begin anywhere.
//!
//! 1. Load the stamp at the guess. If it is not older, somebody has claimed it: walk (below).
//! 2. First and run must be within the limit, the **last** slot too.
//! 3. The life before must be over of **each slot** of the run. That of a plain stamp is: published,
//!    and no run began there. A claim's is if its owner is known to be dead. That of a published
//!    first of a run is if the last slot of that run is published, or is of a later lap, or its
//!    owner is known to be dead. Receivers that hold the limit back do not replace this rule: there
//!    may be none, or they may have been evicted.
//! 4. Swap the first stamp, from exactly what was loaded, for a claim with the run's length; the
//!    others stay as they are. Perhaps store the shared tail.
//! 5. Slot by slot, write the payload and store the stamp as published: the first with the run's
//!    length, the others with 1.
//!
//! # Walk
//!
//! Take the shared tail if it is ahead. Load the stamp there. Older: nobody has claimed it. The same
//! sequence: a claim begins there; go on by **its length**. Later: lapped. Go to that later sequence,
//! which may lie inside a run and does not say so; **look back** over `run_max` - 1 slots for the
//! first of a run of the same lap that covers it. If there is one, go on at its end. If one of these
//! slots has been **lapped meanwhile**, begin again from its new sequence: a run may have begun
//! there that was never finished, and would not be seen. Else a claim begins at the sequence itself,
//! and its length says how far to go.
//!
//! # Limit
//!
//! Load the epoch, each row, the cursor of each joined row, and the epoch again, until it has not
//! changed. The limit is the least cursor and the slots of the ring; without receivers, the guess
//! and **at least the longest run**, else such a run could never be claimed. Without the second load
//! a joiner could be missed by a sender that finds the others further on.
//!
//! A sender that is held back frees the rows of receivers that it knows to be dead. If the channel
//! evicts, it evicts others. Neither is counted by the epoch.
//!
//! # Hosts
//!
//! Newcomers are let in by the *host*: the process that has the channel's name, one at a time, one
//! newcomer at a time. There is a new one only when the old one is **dead** (or has left). So nobody
//! else takes rows, and fields of a free row may be written as one likes.
//!
//! **A sender** gets the first row that is free, or of a sender that the host knows to be dead and
//! **that no slot names**, as claimed or as the first of a run. If there is none, it is refused: what
//! the dead have claimed is not cleared away, it is lapped. If all senders are dead nobody laps it,
//! and there is no host either; the name then goes to a new channel, which is not modelled. A sender
//! that leaves frees its row; it has no claim.
//!
//! **A receiver** gets the first row that is free or of one known to be dead. The host gives the row
//! its **next generation, still free**, and tells the receiver both; stores some head as the cursor;
//! lets the row count (joined); raises the epoch; walks to the head; stores it as the cursor; tells
//! the receiver, which starts there. Whoever found its limit before the row counted stays within one
//! lap of that head. The head is where a claim begins, so that nobody starts inside a run.
//!
//! A death in the middle leaves a row. If the host dies, **the receiver frees the row**, by a swap
//! from its own generation, which it must therefore know before the row counts: to everybody else it
//! looks like that of a live receiver, and would hold them for ever. And that generation must be
//! **told to nobody else**: if the row had it only when it counts, a host that dies before that would
//! have told it to one receiver and the next host to another, and the first would free the other's
//! row. If the receiver dies, whoever is held up learns of it and frees the row. The row of one that
//! was evicted is freed by itself, or taken after its death, since it may still store its cursor.
//!
//! # Receive
//!
//! Load the stamp at the position.
//!
//! - Published: note the run that begins here, copy, deliver. Where receivers are evicted, look at
//!   the own row between the two, and drop the copy if it is no longer joined.
//! - Claimed: load the row after the stamp. If its holder is known to be dead, load the stamp
//!   again; if it is unchanged, note the run, and pass.
//! - Older, inside a run that was noted: the same with the owner of that run, but the older stamp is
//!   of another life, and **begins no run**.
//! - Older, outside: nothing is there. Where receivers are evicted, look at the own row: nothing may
//!   ever come.
//! - Later: evicted, or memory is broken.
//!
//! The cursor **stays at the first of a run** until all of it is passed. Beyond it, a sender that
//! knows of the death could claim that slot for the next lap, and a newcomer take the dead one's
//! row, since no slot names it; the receiver would wait for ever, as would the sender for it.
//!
//! # End
//!
//! A receiver ends when it has nothing left, is **not inside a run**, and no sender is there: each
//! row is free or of a dead one. It looks through the rows **twice**, and compares generations:
//! one pass alone can see each of two rows while the other is held. Then it loads the stamp once
//! more. A message may have come before the last sender left.
//!
//! # Death
//!
//! Everybody learns of a death for themselves, any time later. It is a death of one generation of
//! a row: the generation is loaded after the stamp that names the row. The row cannot change hands
//! while such a stamp is in the ring, so that a stamp that is still there when it is loaded again
//! is of that generation. Reports come in any order: that of an earlier holder, which left the row
//! and exits only now, must not make anybody **forget** that the present one is dead.
//!
//! # What is demanded
//!
//! In every state: no slot of a live claim is claimed by another, and each claim begins where the one
//! before ends; no sender writes where its claim is no more; nobody gets the row of one who lives; a
//! receiver delivers whole payloads of the right sequence, passes no message, and no
//! message is committed that it has passed; it is lapped only when evicted; it ends only after all
//! messages, and when no sender was there at one moment of its search. Since a receiver's position
//! grows by one, this is the same order for all, each message once. And from every state, whoever
//! lives can finish without another death or eviction: send all and leave, receive until the end, or
//! be refused.
//!
//! Not modelled: sleeping, payload outside the slots, invitations that hold senders back, and the
//! number of rows ever taken.

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

pub use join::{ROW_LOST, ROW_TAKEN};
pub use protocol::Protocol;
pub use receiver::{
    ENDED_EARLY, ENDED_WITHOUT, EVICTED_SILENTLY, LAPPED, PASSED_MESSAGE, WRONG_PAYLOAD,
};
pub use sender::{CLAIM_LOST, CLAIM_MISPLACED, LIVE_CLAIM_TAKEN, PASSED_COMMITTED};
pub use state::State;
