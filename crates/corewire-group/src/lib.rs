//! Groups of processes of one host: who is a member, as one sequence of views that all agree on, and a log that all have
//! in the same order (1Paxos, or PaxosInside: papers/000, section IV-C).
//!
//! This crate decides and does nothing else: no input, no output, no clock. A [`Replica`] is told what happens
//! ([`Input`]) and says what to do ([`Output`]), so that the same source runs in processes and under the model checker in
//! `testing/groups`.
//!
//! | file | holds |
//! |---|---|
//! | `member` | members and views |
//! | `agreement` | which view is next: an ordinary Paxos among the members of the present one |
//! | `replica` | a member's part: proposer, leader, acceptor, learner |
//!
//! # The way of a command
//!
//! ```text
//!  any member         leader              acceptor                    all members
//!     ├─ Ask(entry) ───▶│ gives it a place     │                             │
//!     │                 ├─ Accept(view, place, entry) ▶│ looks at view and place │
//!     │                 │                     ├═ Learn(place, entry) ══════════▶│ decided
//! ```
//!
//! There is one acceptor at a time, and what it publishes is decided: accepting and telling everybody are one store into
//! a channel. So a command costs two messages to one receiver, or none where the roles are in one process, and one to all.
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
//!   if one has it, so will every other one. A channel with several receivers does this; pairs of queues do not.
//! - A death is certain. The kernel reports it, never a time-out, and behind everything that the process had said.
//! - A process that has ended does not return as the same [`Member`].
//!
//! # Changes
//!
//! | what happens | what follows |
//! |---|---|
//! | the leader dies | the living member with the lowest place proposes a view with another leader. The acceptor refuses requests of the old leader, and tells the new one at which place to begin |
//! | the acceptor dies | the leader has read everything that it published. It proposes a view with another acceptor, which begins at the next place |
//! | both die | one view replaces both. A member whose command was not published yet asks for it again |
//! | the acceptor leaves | the leader lets it decide everything under way, and then proposes another one |
//! | a member dies, leaves or comes | a view without it, or with it. A newcomer is sent what it has missed |
//! | a majority of a view dies | no view follows any more: what is decided stays so |
//!
//! A command is decided once, however often it was asked for: the leader gives places to the commands of each member in
//! the order of their numbers.

#![forbid(unsafe_code)]

mod agreement;
mod collective;
mod decided;
mod engine;
mod error;
mod frame;
mod group;
mod join;
mod kept;
mod machine;
mod member;
mod replica;

#[cfg(feature = "test-hooks")]
pub use agreement::Broken;
pub use agreement::{Ballot, Rules, Word};
pub use collective::{CollectiveError, Communicator, CommunicatorBuilder, Tiers, Value};
pub use decided::{Decided, DecidedEntry, Decision};
pub use error::{GroupError, JoinGroupError};
pub use frame::Seen;
pub use group::Group;
pub use join::GroupBuilder;
pub use kept::Snapshot;
pub use machine::{Replicated, StateMachine};
pub use member::{MEMBERS_MAX, Member, View};
pub use replica::{Entry, Input, Message, Missing, Output, Publication, Replica};
