//! How the operations of a mechanism end, and which side does what.

use std::fmt;

use corewire_os::OsError;
use corewire_ring::pair::PairViolation;

use crate::mechanisms::permission::Reason;

/// What a process does in a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// It has the message.
    Source,
    /// It receives the message.
    Target,
}

impl Role {
    /// The role of the other side.
    #[must_use]
    pub const fn other(self) -> Self {
        match self {
            Self::Source => Self::Target,
            Self::Target => Self::Source,
        }
    }
}

/// What one call of [`Mechanism::copy_local`](super::Mechanism::copy_local) or [`Mechanism::copy_remote`](super::Mechanism::copy_remote) has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// It has done a part of its work. Call again.
    More,
    /// The other side must do something first. Call again later, unless [`Peer::has_ended`](super::Peer::has_ended).
    Wait,
    /// This side's work is done. The message has this many bytes. At the target they are all there; the memory of a
    /// source may still be read by the other side.
    Done(u64),
}

/// Why memory cannot be registered.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RegisterError {
    /// It has too many parts.
    #[error("memory in {asked} parts: at most {max} are possible")]
    Parts {
        /// Number of parts.
        asked: usize,
        /// Maximum number.
        max: usize,
    },
    /// Too many pieces are registered.
    #[error(
        "no number is free for another piece of memory: at most {max} are registered at a time"
    )]
    Numbers {
        /// Maximum number of pieces.
        max: usize,
    },
    /// It is pooled memory, which is not initialized, and another process is to write it.
    #[error("pooled memory cannot be the target of another process's writes")]
    Pooled,
    /// The memory of a source was not made by [`Mechanism::allocate`](super::Mechanism::allocate).
    #[error("mapped memory: the source must come from Mechanism::allocate")]
    NotAllocated,
    /// A system call failed.
    #[error(transparent)]
    Os(#[from] OsError),
}

/// Memory that could not be registered, and why.
#[derive(Debug, thiserror::Error)]
#[error("{why}")]
pub struct NotRegistered<M: fmt::Debug> {
    /// The memory, as it was given.
    pub memory: M,
    /// Why.
    pub why: RegisterError,
}

/// Why a copy has ended early.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CopyError {
    /// The mechanism is not possible, or not any more.
    #[error(transparent)]
    Refused(#[from] Reason),
    /// The peer's process has ended.
    #[error("the peer's process has ended")]
    PeerEnded,
    /// The memory is not registered any more, or belongs to another process by now.
    #[error("the other side has deregistered the memory")]
    Deregistered,
    /// A part of the memory on one of the two sides is not there.
    #[error("a part of the memory is not mapped")]
    NotMapped,
    /// The message does not fit.
    #[error("message of {bytes} bytes: the target has {room}")]
    TooLong {
        /// Length of the message in bytes.
        bytes: u64,
        /// Length of the target in bytes.
        room: u64,
    },
    /// The other side's description or its messages are not what this mechanism sends.
    #[error("the other side sent {found} as {what}")]
    Unexpected {
        /// Which value.
        what: &'static str,
        /// The value.
        found: u64,
    },
    /// The wrong side has made this call, or the piece belongs to another mechanism or role.
    #[error("{what}")]
    Misused {
        /// What is wrong.
        what: &'static str,
    },
    /// The peer's memory holds an impossible value.
    #[error(transparent)]
    Violation(#[from] PairViolation),
    /// Another error of a system call.
    #[error("{call} failed with error {errno}")]
    System {
        /// The call.
        call: &'static str,
        /// The error's number.
        errno: i32,
    },
}

corewire_layout::debug_is_text!(CopyError, RegisterError);
