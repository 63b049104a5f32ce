//! Errors of windows: creating one, attaching to one, using one.

use std::time::Duration;

use corewire_layout::frame::Reason;
use corewire_layout::name::{ChannelName, NameError};
use corewire_layout::window::{PARTICIPANTS_MAX, Rights, WINDOW_COUNTERS_MAX};
use corewire_os::OsError;
use corewire_os::directory::ClaimError;
use corewire_os::memory::SegmentError;

use super::join::shown_pid;
use super::{JoinError, NameInUse};

/// Why a window cannot be created.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WindowCreateError {
    /// The name breaks a rule.
    #[error("window {0}")]
    Name(#[from] NameError),
    /// A living process has something of this name.
    #[error("{0}")]
    AlreadyExists(NameInUse),
    /// The runtime directory contains a file of the window's name that corewire did not create.
    #[error("file {0:?} in the runtime directory was not created by corewire: remove it")]
    ForeignFile(String),
    /// The domain belongs to another user, and this process is a guest in it.
    #[error("only user {owner} can create windows in its domain; this process runs as user {user}")]
    Guest {
        /// The domain's owner.
        owner: u32,
        /// This process's effective user.
        user: u32,
    },
    /// A window has at least one byte.
    #[error("a window of 0 bytes: it needs at least one")]
    Empty,
    /// A window has at least its owner as a participant.
    #[error("a window of {asked} participants: 1 to {PARTICIPANTS_MAX} are possible")]
    Participants {
        /// The number that was asked for.
        asked: u32,
    },
    /// This process is a forked child: it must open the domain again.
    #[error("this process was forked from the one that opened the domain: open it again")]
    Forked,
    /// A system call failed: no memory, no descriptors, a limit.
    #[error(transparent)]
    Os(#[from] OsError),
}

impl From<ClaimError> for WindowCreateError {
    fn from(error: ClaimError) -> Self {
        match error {
            ClaimError::AlreadyExists(name) => Self::AlreadyExists(name.into()),
            ClaimError::Foreign(file) => Self::ForeignFile(file),
            ClaimError::Os(error) => Self::Os(error),
            other => Self::ForeignFile(other.to_string()),
        }
    }
}

/// Why a process cannot attach to a window.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AttachError {
    /// The name breaks a rule.
    #[error("window {0}")]
    Name(#[from] NameError),
    /// No window of this name exists now; or, with a handle, that window does not exist any more.
    #[error("window {0} does not exist")]
    NotFound(ChannelName),
    /// No window of this name was created within the given time.
    #[error("window {name} was not created within {after:?}")]
    NotCreated {
        /// The window.
        name: ChannelName,
        /// How long the call waited.
        after: Duration,
    },
    /// The name belongs to something else.
    #[error("{0} is a channel, an endpoint or a listener, not a window")]
    NotAWindow(ChannelName),
    /// The bytes are not a handle.
    #[error("these {found} bytes are not the handle of a window")]
    NotAHandle {
        /// Their number.
        found: usize,
    },
    /// The window gives others fewer rights.
    #[error("window {name} gives this process the rights {given}, not {asked}")]
    Rights {
        /// The window.
        name: ChannelName,
        /// The rights that were asked for.
        asked: Rights,
        /// The most that this process can have.
        given: Rights,
    },
    /// The window's process runs as another user, which has not admitted this process's user.
    #[error("window {name} belongs to user {owner}, this process runs as user {user}")]
    NotPermitted {
        /// The window.
        name: ChannelName,
        /// Its owner's effective user.
        owner: u32,
        /// This process's effective user.
        user: u32,
    },
    /// The window's process refused: there is no room for another participant, for example.
    #[error("window {name}: {reason}")]
    Refused {
        /// The window.
        name: ChannelName,
        /// The reason.
        reason: Reason,
    },
    /// The window's process did not answer. It is stopped, or very busy.
    #[error("the process of window {name}{} did not answer within {after:?}", shown_pid(*pid))]
    NoAnswer {
        /// The window.
        name: ChannelName,
        /// How long the call waited.
        after: Duration,
        /// The process; 0 if it is not known.
        pid: u32,
    },
    /// The window's process sent an invalid answer.
    #[error("the process of window {name} answered {found}")]
    Protocol {
        /// The window.
        name: ChannelName,
        /// The answer.
        found: String,
    },
    /// The window's memory has wrong seals or a wrong size.
    #[error("the memory of window {name}: {error}")]
    Segment {
        /// The window.
        name: ChannelName,
        /// What is wrong.
        error: SegmentError,
    },
    /// The runtime directory contains a file of the window's name that corewire did not create.
    #[error("file {0:?} in the runtime directory was not created by corewire: remove it")]
    ForeignFile(String),
    /// This process is a forked child: it must open the domain again.
    #[error("this process was forked from the one that opened the domain: open it again")]
    Forked,
    /// A system call failed.
    #[error(transparent)]
    Os(#[from] OsError),
}

impl From<ClaimError> for AttachError {
    fn from(error: ClaimError) -> Self {
        JoinError::from(error).into()
    }
}

/// The handshakes share their first steps, which return [`JoinError`].
impl From<JoinError> for AttachError {
    fn from(error: JoinError) -> Self {
        match error {
            JoinError::Name(error) => Self::Name(error),
            JoinError::NotFound(name) => Self::NotFound(name),
            JoinError::ForeignFile(file) => Self::ForeignFile(file),
            JoinError::NotPermitted { name, owner, user } => {
                Self::NotPermitted { name, owner, user }
            }
            JoinError::Refused { name, reason: Reason::Rights { asked, given } } => {
                Self::Rights { name, asked, given }
            }
            JoinError::Refused { name, reason } => Self::Refused { name, reason },
            JoinError::NoAnswer { name, after, pid } => Self::NoAnswer { name, after, pid },
            JoinError::Protocol { name, found } => Self::Protocol { name, found },
            JoinError::Segment { name, error } => Self::Segment { name, error },
            JoinError::Forked => Self::Forked,
            JoinError::Os(error) => Self::Os(error),
            other => {
                const EPROTO: i32 = 71;
                Self::Os(OsError { what: other.to_string().into(), errno: EPROTO })
            }
        }
    }
}

/// Why an operation on a window fails.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WindowError {
    /// The bytes reach beyond the window.
    #[error("{bytes} bytes at offset {offset} of window {name}, which has {window_bytes} bytes")]
    Range {
        /// The window.
        name: ChannelName,
        /// Where they begin.
        offset: u64,
        /// Their number.
        bytes: u64,
        /// Bytes of the window.
        window_bytes: u64,
    },
    /// An address is not in the window.
    #[error("address {address:#x} is not in window {name}: {bytes} bytes from {begin:#x}")]
    Address {
        /// The window.
        name: ChannelName,
        /// The address.
        address: u64,
        /// Where the window begins in its owner's address space.
        begin: u64,
        /// Bytes of the window.
        bytes: u64,
    },
    /// A number must lie at a multiple of its size.
    #[error(
        "a number of {needed} bytes at offset {offset} of window {name}: use a multiple of {needed}"
    )]
    Misaligned {
        /// The window.
        name: ChannelName,
        /// The offset.
        offset: u64,
        /// The number's size.
        needed: u64,
    },
    /// The two lists have different lengths.
    #[error("{source_bytes} bytes to copy to {target_bytes} bytes")]
    Lengths {
        /// Bytes of the list that is copied from.
        source_bytes: u64,
        /// Bytes of the list that is copied to.
        target_bytes: u64,
    },
    /// This participant has fewer rights.
    #[error("this needs the rights {needed} on window {name}; this participant has {given}")]
    Rights {
        /// The window.
        name: ChannelName,
        /// The rights that the operation needs.
        needed: Rights,
        /// The rights that this participant has.
        given: Rights,
    },
    /// A guest has no part in locks, fences, epochs and counters.
    #[error("window {0} belongs to another user: a guest can only read its data")]
    Guest(ChannelName),
    /// There is no such counter.
    #[error("counter {asked}: a window has counters 0 to {}", WINDOW_COUNTERS_MAX - 1)]
    Counter {
        /// The number that was asked for.
        asked: usize,
    },
    /// Only the owner opens epochs of its window to others, and waits for their end.
    #[error("only the owner of window {0} can do this")]
    NotOwner(ChannelName),
    /// The owner needs no epoch of its own window.
    #[error("the owner of window {0} cannot do this: it is for the other participants")]
    Owner(ChannelName),
    /// This participant has the lock already: the value that stood for it was leaked.
    #[error("this participant of window {0} has its lock already")]
    Locked(ChannelName),
    /// The connection to the owner's process was closed, so that the owner takes this participant for ended.
    #[error("this participant of window {0} has lost its connection to the owner")]
    Detached(ChannelName),
    /// The participant is not in the window any more.
    #[error("participant {row} of window {name} has gone")]
    Gone {
        /// The window.
        name: ChannelName,
        /// Its row.
        row: u32,
    },
    /// The process that has the window has died.
    #[error("the process of window {name}{} has died", shown_pid(*pid))]
    PeerDied {
        /// The window.
        name: ChannelName,
        /// The process; 0 if it is not known.
        pid: u32,
    },
    /// The process that had the window has closed it.
    #[error("window {0} was closed by its owner")]
    Closed(ChannelName),
    /// Another thread has asked the call to return.
    #[error("the call was interrupted")]
    Interrupted,
    /// This process was forked from the one that has the handle.
    #[error("this process was forked from the one that has the window")]
    Forked,
}

corewire_layout::debug_is_text!(WindowCreateError, AttachError, WindowError);
