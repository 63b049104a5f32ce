//! Groups of processes of one host: who is a member, as one sequence of views that all agree on; a log that all have in
//! the same order (1Paxos, or PaxosInside: ZIMP, section IV-C); and calls that all make together.
//!
//! | you want | use |
//! |---|---|
//! | a log that several processes have in the same order, though some die | [`Group`] |
//! | to propose to such a log or to read it, and be no member | [`GroupClient`] |
//! | a state that they have, made from such a log | [`Replicated`], [`StateMachine`] |
//! | barriers, broadcasts, sums | [`Communicator`] |
//! | a parallel computation that goes on when its processes are killed | [`Computation`] |
//! | to look from outside | [`look`] |
//!
//! `docs/groups.md` says what survives what.
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let dir = std::env::temp_dir().join(format!("corewire-doc-group-{}", std::process::id()));
//! use corewire::Domain;
//! use corewire_group::{Decision, Group};
//!
//! # let domain = Domain::open_at(&dir)?;
//! # let _ = || Domain::open();
//! // let domain = Domain::open()?; in each of the processes
//! let group = Group::builder(&domain, "orders").join()?;
//! let index = group.propose(b"one more")?;
//! let Some(Decision::Entry(entry)) = group.decided(index).next() else { unreachable!() };
//! assert_eq!(&entry.command[..], b"one more");
//! # drop((group, domain)); std::fs::remove_dir_all(&dir)?;
//! # Ok(())
//! # }
//! ```
//!
//! # The part that decides
//!
//! A [`Replica`] has no input, no output and no clock: it is told what happens ([`Input`]) and says what to do
//! ([`Output`]), so that the same source runs in processes and under the model checker in `proof/explorers`.
//!
//! | file | holds |
//! |---|---|
//! | `member` | members and views |
//! | `agreement` | which view is next: an ordinary Paxos among the members of the present one |
//! | `kept` | the entries that a member keeps, and the snapshot before them |
//! | `replica` | a member's part: proposer, leader, acceptor, learner |
//! | `engine` | a replica, with the endpoint and the channel that it speaks by |
//! | `buffers` | memory of messages, used again |
//! | `log_file` | the file of a log, and the thread that writes it |
//! | `join` | how a process becomes a member |
//! | `sessions`, `engine/clients` | which commands of clients are decided; clients as a member sees them |
//! | `group`, `client`, `decided`, `machine`, `look` | what programs call |
//! | `collective` | collective calls |
//! | `checkpoint` | checkpoints of a parallel computation |
//!
//! ```text
//!  any member         leader              acceptor                    all members
//!     ├─ Ask(batch) ───▶│ gives them places    │                             │
//!     │                 ├─ Accept(view, place, batch) ▶│ looks at view and place │
//!     │                 │                     ├═ Learn(place, batch) ══════════▶│ decided
//! ```
//!
//! There is one acceptor at a time, and what it publishes is decided: accepting and telling everybody are one store into
//! a channel. So a command costs two messages to one receiver, or none where the roles are in one process, and one to all.
//! Commands that a program submits one after the other go together, and share these: what each of them costs then is that
//! every member keeps it.
//!
//! | what | who changes it |
//! |---|---|
//! | a place of the log | the acceptor of the view, once |
//! | the view of a number | a majority of the members of the view before, once |
//! | a member's vote for the next view | that member |
//!
//! # What it relies on
//!
//! - Messages between two members arrive in order, and what an acceptor publishes reaches all that live in the same order:
//!   if one has it, so will every other one, except one that was stopped for long and knows that. A channel with several
//!   receivers does this; pairs of queues do not.
//! - A death is certain. The kernel reports it, never a time-out, and behind everything that the process had said.
//! - A process that has ended does not return as the same [`Member`].
//! - A process that joins has everything that was decided before it is a member.
//!
//! # Changes
//!
//! | what happens | what follows |
//! |---|---|
//! | the leader dies | the first living member proposes a view with another leader. The acceptor refuses requests of the old leader, and tells the new one at which place to begin |
//! | the acceptor dies | the leader has read everything that it published. It proposes a view with another acceptor, which begins at the next place |
//! | both die | one view replaces both. A member whose command was not published yet asks for it again |
//! | the acceptor leaves | the leader lets it decide everything under way, and then proposes another one |
//! | a member dies, leaves or comes | a view without it, or with it |
//! | a member misses entries | it asks for them; until it has them, it replaces nobody |
//! | half of a view or more die | no view follows any more: what is decided stays so |
//!
//! A command is decided once, however often it was asked for: the leader gives places to the commands of each member in
//! the order of their numbers.

#![forbid(unsafe_code)]

mod agreement;
mod buffers;
mod checkpoint;
mod client;
mod collective;
mod decided;
mod engine;
mod error;
mod frame;
mod group;
mod join;
mod kept;
mod log_file;
mod look;
mod machine;
mod member;
mod owner;
mod replica;
mod sessions;

#[cfg(feature = "test-hooks")]
pub use agreement::Broken;
pub use agreement::{Ballot, Rules, Word};
pub use bytes::Bytes;
#[cfg(feature = "test-hooks")]
pub use checkpoint::BrokenPart;
pub use checkpoint::{
    Arrival, CheckpointFileError, Computation, ComputationBuilder, ComputationError, Gathered,
    GatheredState, Header, Mark, Part, PartRules, Received, Sent, recovery_line,
};
pub use client::GroupClient;
pub use collective::{CollectiveError, Communicator, CommunicatorBuilder, Request, Tiers, Value};
pub use decided::{Decided, DecidedEntry, Decision};
pub use error::{ClientError, GroupError, JoinGroupError};
pub use frame::Seen;
pub use group::Group;
pub use join::GroupBuilder;
pub use kept::{Batch, Entry, Snapshot};
pub use log_file::{LogFileError, Salvaged, salvage_log};
pub use look::{GroupView, look};
pub use machine::{Proposed, Replicated, StateMachine};
pub use member::{COMMAND_BYTES_MAX, MEMBERS_MAX, Member, View};
pub use replica::{Input, Message, Missing, Output, Publication, Replica};
pub use sessions::END;
