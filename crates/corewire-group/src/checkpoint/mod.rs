//! Checkpoints of a parallel computation, after Manivannan and Singhal (ICDCS 1996; ZIMP, section IV-C): processes
//! that exchange messages, and go on from a common past state when one of them was killed, or all.
//!
//! Each rank takes checkpoints when it likes, and numbers them. Every message carries the number of its sender's last
//! checkpoint. A rank that receives a message with a higher number than its own takes a checkpoint with that number before
//! it processes the message. So the first checkpoints of all ranks that have a number, or a higher one, belong together: no
//! message that was sent after one of them was processed before another. Nobody waits for anybody, and no message is sent for it.
//!
//! ```text
//!  rank 0 ──■1────────m(1)─────────────■2──────────  ■n  a checkpoint with number n
//!                        ╲                            m(1) is sent behind checkpoint 1:
//!  rank 1 ────────────────■1 m(1)──────────■2──────  so rank 1 takes its own before it processes the message
//! ```
//!
//! Messages that were sent before, and not processed before, must come again: each sender keeps its messages, and its
//! checkpoints hold them, until the receiver has taken a checkpoint after it processed them. It reads that in the receiver's files: all
//! ranks have one directory.
//!
//! | step | what happens | cost |
//! |---|---|---|
//! | send | the message is kept, and sent with 16 bytes before it | one copy more than an endpoint's |
//! | receive | two comparisons; seldom a checkpoint | as an endpoint's |
//! | checkpoint | the program encodes its state; a thread writes it | the program waits only if two are not written yet, and something was received since the second one |
//! | write | a file with a checksum, on the disk before it has its name; older files that no state needs are removed | one `fsync` of the file, one of the directory |
//!
//! # Restoring
//!
//! Ranks that start say to each other which newest checkpoint they have. The lowest of these numbers is the line: each takes
//! its first checkpoint with this number or a higher one, and removes later ones, which belong to a past that did not
//! happen. When all have done so, all go on, and send again what may be missing.
//!
//! When a rank ends, the calls of all others return [`ComputationError::Ended`]. They [join](ComputationBuilder::join) again,
//! and go on with the new process from the line.
//!
//! | file | holds |
//! |---|---|
//! | `part` | a rank's part of the protocol, without input and output; the model checker in `proof/explorers` runs it |
//! | `files` | the files of checkpoints |
//! | `writer` | the thread that writes them |
//! | `gathering`, `gather` | gathering the states of all ranks |
//! | `join` | how ranks meet, and agree on the line |
//! | `computation` | what programs call |

mod computation;
mod files;
mod gather;
mod gathering;
mod join;
mod part;
mod writer;

pub use computation::{Computation, Received};
pub use files::CheckpointFileError;
pub use gathering::{Gathered, GatheredState};
pub use join::ComputationBuilder;
#[cfg(feature = "test-hooks")]
pub use part::BrokenPart;
pub use part::{Arrival, Header, Mark, Part, PartRules, Sent, recovery_line};

use std::time::Duration;

use corewire::{
    ConnectError, CreateError, EndpointError, MessageError, NameError, OsError, WaitError,
};

use crate::error::ONE_HOST;

/// Why a computation cannot go on.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ComputationError {
    /// The name says that it is of another host: computations are of one.
    #[error("computation {0}: {ONE_HOST}")]
    OtherHost(String),
    /// The computation's name breaks a rule. The names of its ranks begin with it, so it is shorter than theirs.
    #[error("computation {0}")]
    Name(#[from] NameError),
    /// The process of a rank has ended, or has left the computation. Drop this handle and join again: all go on from the
    /// last common checkpoint, as soon as there is another process with that rank.
    #[error("rank {rank} of computation {name} has ended")]
    Ended {
        /// The computation.
        name: String,
        /// The rank.
        rank: usize,
    },
    /// Another living process has this rank.
    #[error("rank {rank} of computation {name} is taken by {holder}")]
    Taken {
        /// The computation.
        name: String,
        /// The rank.
        rank: usize,
        /// By whom.
        holder: String,
    },
    /// The others were not there in time.
    #[error("rank {rank} of computation {name} is not there within {after:?}")]
    Timeout {
        /// The computation.
        name: String,
        /// The first rank that is missing.
        rank: usize,
        /// The given time.
        after: Duration,
    },
    /// A rank has been told of another number of ranks.
    #[error("rank {rank} of computation {name} says that there are {its} ranks, this one {own}")]
    Size {
        /// The computation.
        name: String,
        /// Who says it.
        rank: usize,
        /// What it says.
        its: usize,
        /// What this process was told.
        own: usize,
    },
    /// There is no such rank.
    #[error("rank {rank}: the {ranks} ranks of a computation are counted from 0")]
    Rank {
        /// What was given.
        rank: usize,
        /// How many ranks there are.
        ranks: usize,
    },
    /// A rank has been given another directory for checkpoints.
    #[error("rank {rank} of computation {name} has its checkpoints in another directory")]
    Directory {
        /// The computation.
        name: String,
        /// The rank.
        rank: usize,
    },
    /// All ranks have finished, this one in an earlier process.
    #[error("all ranks of computation {0} have finished")]
    Finished(String),
    /// There is no such rank, or it is the own one.
    #[error("rank {asked}: the others of {size} ranks are meant")]
    NoSuchRank {
        /// What was given.
        asked: usize,
        /// How many ranks there are.
        size: usize,
    },
    /// A message is missing, so that the state is not what it should be. Somebody has removed files of checkpoints.
    #[error("a message from rank {0} is missing: files of checkpoints were removed or changed")]
    Gap(usize),
    /// A checkpoint cannot be written or read.
    #[error(transparent)]
    File(#[from] CheckpointFileError),
    /// The endpoint cannot be created.
    #[error(transparent)]
    Endpoint(#[from] EndpointError),
    /// Another rank cannot be linked with.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The endpoint failed.
    #[error(transparent)]
    Message(#[from] MessageError),
    /// The channel for this rank's requests cannot be created.
    #[error(transparent)]
    Channel(#[from] CreateError),
    /// The endpoint and the channels of requests cannot be waited for.
    #[error(transparent)]
    Wait(#[from] WaitError),
    /// A system call failed.
    #[error(transparent)]
    Os(#[from] OsError),
}

corewire_layout::debug_is_text!(ComputationError);
