//! The ring of several senders as a protocol: every state that a small world can reach.
//!
//! Any number of senders write into one ring. Every receiver receives the same messages in the same
//! order. Any process may be killed between any two of its steps. This crate models what each party
//! does, one access to shared memory per step, and visits every state: [`engine`] is the search,
//! [`worlds`] lists the configurations, [`mutant`] leaves out one rule at a time. Accesses are
//! sequentially consistent; `proof/models` checks the memory orderings. The code is
//! `crates/corewire-ring/src/shared`; its `mod.rs` gives the reasons for the protocol. A rule of
//! that code must be changed here first.
//!
//! # Memory
//!
//! - **Slots.** The *stamp* of a slot holds the sequence, whether the slot is *claimed* (otherwise
//!   it is published), the number of slots of the claim that begins there (1 if none begins there),
//!   and the row of its sender. The stamp of a slot that was never used is older than every
//!   sequence.
//! - **The shared tail**: a sequence at which a claim begins or will begin. Many senders store it,
//!   so it may be stale.
//! - **Senders' rows**: free, or held by a sender of one generation.
//! - **Receivers' rows**: free, joined or evicted, each with a generation and a cursor.
//! - **The members' epoch**, which counts joins.
//!
//! Private to a sender are its *guess* (the sequence that it expects to claim next) and its limit.
//! A sender has no lock. The shared tail only saves time; nothing else depends on it.
//!
//! # Claim
//!
//! A claim is a *run* of 1 to `run_max` slots (16 in the code, 2 or 3 here). It may begin anywhere.
//!
//! 1. Load the stamp at the guess. If it is not older, another sender has claimed it: walk (below).
//! 2. The first slot and the whole run must be within the limit, including the **last** slot.
//! 3. The previous life of **each slot** of the run must be over. For a plain stamp it is: the slot
//!    is published and no run began there. For a claim it is if the claim's owner is known to be
//!    dead. For the published first slot of a run it is if the last slot of that run is published
//!    or belongs to a later lap, or if the owner is known to be dead. Receivers that hold the limit
//!    back do not replace this rule: there may be none, or they may have been evicted.
//! 4. Swap the first stamp, from exactly the value that was loaded, for a claim with the run's
//!    length. The other stamps stay as they are. The shared tail may then be stored.
//! 5. For each slot, write the payload and store the stamp as published: the first with the run's
//!    length, the others with length 1.
//!
//! # Walk
//!
//! Take the shared tail if it is ahead. Load the stamp there. Older: nobody has claimed the slot;
//! the walk ends. Same sequence: a claim begins there; continue after **its length**. Later: the
//! walk was lapped. Go to that later sequence, which may lie inside a run without saying so. **Look
//! back** over `run_max` - 1 slots for the first slot of a run of the same lap that covers it. If
//! there is one, continue at its end. If one of these slots has been **lapped meanwhile**, start
//! again from its new sequence: a run may have begun there that was never finished, and the walk
//! would miss it. Otherwise a claim begins at the sequence itself, and its length tells how far to
//! go.
//!
//! # Limit
//!
//! Load the epoch, each row, the cursor of each joined row, and the epoch again. Repeat until the
//! epoch has not changed. The limit is the smallest cursor plus the number of slots of the ring.
//! Without receivers it is the guess plus **at least the longest run**; otherwise such a run could
//! never be claimed. Without the second load of the epoch, a sender could miss a receiver that
//! joins while the others are further ahead.
//!
//! A sender that is held back frees the rows of receivers that it knows to be dead. If the channel
//! evicts, the sender may evict other receivers. The epoch counts neither.
//!
//! # Hosts
//!
//! The *host*, the process that has the channel's name, admits new parties, one at a time. There is
//! a new host only when the old one is **dead** (or has left), so there is one at a time. Therefore
//! no other process takes rows, and the fields of a free row may be written in any order.
//!
//! **A sender** gets the first row that is free, or whose sender the host knows to be dead and
//! **that no slot names**, as claimed or as the first of a run. If there is no such row, the sender
//! is refused. Claims of dead senders are not cleared; later laps overwrite them. If all senders
//! are dead, nobody overwrites them, but then there is no host either; the name goes to a new
//! channel, which is not modelled. A sender that leaves frees its row; it has no claim.
//!
//! **A receiver** gets the first row that is free or whose receiver is known to be dead. The host
//! gives the row its **next generation, still free**, and tells the receiver both; walks to some
//! head and stores it as the cursor; makes the row count (joined); raises the epoch; walks to the
//! head; stores it as the cursor; tells the receiver, which starts there. A sender that found its
//! limit before the row counted stays within one lap of that head. The head is where a claim
//! begins, so no receiver starts inside a run.
//!
//! A death in the middle leaves a row behind. If the host dies, **the receiver frees the row**, by
//! a swap from its own generation. It must therefore know the generation before the row counts: to
//! all others the row looks like that of a live receiver and would hold them back forever. And that
//! generation must be **told to no other receiver**. If the row got it only when it counts, a host
//! that dies before that would have told it to one receiver and the next host would tell it to
//! another; the first would then free the second one's row. If the receiver dies, a sender that it
//! holds back learns of the death and frees the row. An evicted receiver frees its own row;
//! otherwise the row is taken only after that receiver's death, since it may still store its
//! cursor.
//!
//! # Receive
//!
//! Load the stamp at the position.
//!
//! - Published: note the run that begins here, copy, deliver. If the channel evicts, check the own
//!   row between copying and delivering, and drop the copy if the row is no longer joined.
//! - Claimed: load the sender's row after the stamp. If its holder is known to be dead, load the
//!   stamp again; if it is unchanged, note the run, and pass the slot.
//! - Older, inside a run that was noted: the same with the owner of that run, except that the older
//!   stamp belongs to an earlier life and **begins no run**.
//! - Older, outside a run: nothing is there. If the channel evicts, check the own row: nothing may
//!   ever arrive.
//! - Later: evicted, or memory is broken.
//!
//! The cursor **stays at the first slot of a run** until the receiver has passed all of it. If the
//! cursor went further, a sender that knows of the death could claim that first slot for the next
//! lap. Then no slot names the dead sender's row, so a new sender could take it. The receiver would
//! wait forever, and the sender for it.
//!
//! # End
//!
//! A receiver ends when it has nothing left to receive, is **not inside a run**, and no sender is
//! there: each row is free or its sender is dead. It scans the rows **twice** and compares
//! generations, because a single scan can find each of two rows free while the other is held. Then
//! it loads the stamp once more: a message may have been committed before the last sender left.
//!
//! # Death
//!
//! Each party learns of a death by itself, at any later time. A death is that of one generation of
//! a row; the generation is loaded after the stamp that names the row. The row cannot change hands
//! while such a stamp is in the ring, so a stamp that is still there when it is loaded again
//! belongs to that generation. Reports come in any order. A report about an earlier holder, which
//! left the row and exits only now, must not make a party **forget** that the present holder is
//! dead.
//!
//! # What is checked
//!
//! In every state: no slot of a live claim is claimed by another sender, and each claim begins
//! where the one before ends; no sender writes where its claim no longer is; no party gets the row
//! of a live one; a receiver delivers whole payloads of the right sequence and passes no message,
//! and no message is committed after a receiver has passed its slot; a receiver is lapped only when
//! evicted; it ends only after all messages, and only if there was a moment during its search when
//! no sender was there. A receiver's position grows by one, so all receivers get the same order and
//! each message once. From every state, each live party can finish without another death or
//! eviction: send everything and leave, receive until the end, or be refused.
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
