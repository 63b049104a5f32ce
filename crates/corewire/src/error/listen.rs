//! Errors of listening, accepting, and connecting to a listener.

use std::time::Duration;

use corewire_layout::frame::Reason;
use corewire_layout::name::{ChannelName, NameError};
use corewire_os::OsError;
use corewire_os::directory::ClaimError;

use super::NameInUse;
use super::join::shown_pid;

/// Why a listener cannot be created.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ListenError {
    /// The name breaks a rule.
    #[error("listener {0}")]
    Name(#[from] NameError),
    /// A living process has a channel, an endpoint or a listener of this name.
    #[error("{0}")]
    AlreadyExists(NameInUse),
    /// The runtime directory contains a file of the listener's name that corewire did not create.
    #[error("file {0:?} in the runtime directory was not created by corewire: remove it")]
    ForeignFile(String),
    /// The domain belongs to another user, and this process is a guest in it.
    #[error(
        "only user {owner} can create listeners in its domain; this process runs as user {user}"
    )]
    Guest {
        /// The domain's owner.
        owner: u32,
        /// This process's effective user.
        user: u32,
    },
    /// This process is a forked child: it must open the domain again.
    #[error("this process was forked from the one that opened the domain: open it again")]
    Forked,
    /// A system call failed: no descriptors, a limit.
    #[error(transparent)]
    Os(#[from] OsError),
}

impl From<ClaimError> for ListenError {
    fn from(error: ClaimError) -> Self {
        match error {
            ClaimError::AlreadyExists(name) => Self::AlreadyExists(name.into()),
            ClaimError::Foreign(file) => Self::ForeignFile(file),
            ClaimError::Os(error) => Self::Os(error),
            other => Self::ForeignFile(other.to_string()),
        }
    }
}

/// Why a listener accepts no connections.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AcceptError {
    /// This process is a forked child, and the listener belongs to its parent.
    #[error("this process was forked from the one that has the listener")]
    Forked,
    /// A system call failed.
    #[error(transparent)]
    Os(#[from] OsError),
}

/// Why there is no connection to a listener.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectServiceError {
    /// The name breaks a rule.
    #[error("listener {0}")]
    Name(#[from] NameError),
    /// No listener of this name exists now.
    #[error("listener {0} does not exist")]
    NotFound(ChannelName),
    /// No listener of this name was created within the given time.
    #[error("listener {name} was not created within {after:?}")]
    NotCreated {
        /// The listener.
        name: ChannelName,
        /// How long the call waited.
        after: Duration,
    },
    /// The name belongs to a channel or an endpoint.
    #[error("{0} is a channel, an endpoint or a window, not a listener")]
    NotAListener(ChannelName),
    /// The listener's process runs as another user, which has not admitted this process's user.
    #[error("listener {name} belongs to user {owner}, this process runs as user {user}")]
    NotPermitted {
        /// The listener.
        name: ChannelName,
        /// Its process's effective user.
        owner: u32,
        /// This process's effective user.
        user: u32,
    },
    /// The listener has as many connections that it has not accepted yet as it may have: in all, of this user, or of
    /// guests.
    #[error("listener {name}: {reason}")]
    Full {
        /// The listener.
        name: ChannelName,
        /// Which limit that is: [`Reason::ListenerFull`] or [`Reason::ListenerFullOfGuests`].
        reason: Reason,
    },
    /// The listener's process refused.
    #[error("listener {name}: {reason}")]
    Refused {
        /// The listener.
        name: ChannelName,
        /// The reason.
        reason: Reason,
    },
    /// The listener's process did not answer. It is stopped, or very busy.
    #[error("the process of listener {name}{} did not answer within {after:?}", shown_pid(*pid))]
    NoAnswer {
        /// The listener.
        name: ChannelName,
        /// How long the call waited.
        after: Duration,
        /// The process; 0 if it is not known.
        pid: u32,
    },
    /// The listener's process sent an invalid answer.
    #[error("the process of listener {name} answered {found}")]
    Protocol {
        /// The listener.
        name: ChannelName,
        /// The answer.
        found: String,
    },
    /// The runtime directory contains a file of the listener's name that corewire did not create.
    #[error("file {0:?} in the runtime directory was not created by corewire: remove it")]
    ForeignFile(String),
    /// This process is a forked child: it must open the domain again.
    #[error("this process was forked from the one that opened the domain: open it again")]
    Forked,
    /// A system call failed.
    #[error(transparent)]
    Os(#[from] OsError),
}

impl From<ClaimError> for ConnectServiceError {
    fn from(error: ClaimError) -> Self {
        match error {
            ClaimError::AlreadyExists(name) => Self::NotFound(name),
            ClaimError::Foreign(file) => Self::ForeignFile(file),
            ClaimError::Os(error) => Self::Os(error),
            other => Self::ForeignFile(other.to_string()),
        }
    }
}

corewire_layout::debug_is_text!(ListenError, AcceptError, ConnectServiceError);
