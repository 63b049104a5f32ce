//! Errors of joining or observing a channel, and of connecting to or observing an endpoint.

use std::time::Duration;

use corewire_layout::frame::Reason;
use corewire_layout::name::{ChannelName, NameError};
use corewire_layout::segment::{HeaderError, Policy};
use corewire_os::OsError;
use corewire_os::directory::ClaimError;
use corewire_os::memory::SegmentError;

use super::CreateError;

/// Why another endpoint cannot become a peer.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The name breaks a rule.
    #[error("endpoint {0}")]
    Name(#[from] NameError),
    /// No endpoint of this name exists now.
    #[error("endpoint {0} does not exist")]
    NotFound(ChannelName),
    /// No endpoint of this name was created within the given time.
    #[error("endpoint {name} was not created within {after:?}")]
    NotCreated {
        /// The endpoint.
        name: ChannelName,
        /// How long the call waited.
        after: Duration,
    },
    /// The name belongs to a channel or a listener.
    #[error("{0} is a channel, a listener or a window, not an endpoint")]
    NotAnEndpoint(ChannelName),
    /// This endpoint has its maximum number of peers.
    #[error("this endpoint has its maximum of {max} peers")]
    Full {
        /// The maximum.
        max: u64,
    },
    /// The other endpoint refused.
    #[error("endpoint {name}: {reason}")]
    Refused {
        /// The endpoint.
        name: ChannelName,
        /// The reason.
        reason: Reason,
    },
    /// The endpoint's process runs as another user.
    #[error("endpoint {name} belongs to user {owner}, this process runs as user {user}")]
    NotPermitted {
        /// The endpoint.
        name: ChannelName,
        /// Its process's effective user.
        owner: u32,
        /// This process's effective user.
        user: u32,
    },
    /// The endpoint's process did not answer. It is stopped, or very busy.
    #[error("the process of endpoint {name}{} did not answer within {after:?}", shown_pid(*pid))]
    NoAnswer {
        /// The endpoint.
        name: ChannelName,
        /// How long the call waited.
        after: Duration,
        /// The process; 0 if it is not known.
        pid: u32,
    },
    /// The endpoint's process sent an invalid answer.
    #[error("the process of endpoint {name} answered {found}")]
    Protocol {
        /// The endpoint.
        name: ChannelName,
        /// The answer.
        found: String,
    },
    /// The header of the endpoint's memory is wrong.
    #[error("the memory of endpoint {name}: {error}")]
    Header {
        /// The endpoint.
        name: ChannelName,
        /// What is wrong.
        error: HeaderError,
    },
    /// The endpoint's memory has wrong seals or a wrong size.
    #[error("the memory of endpoint {name}: {error}")]
    Segment {
        /// The endpoint.
        name: ChannelName,
        /// What is wrong.
        error: SegmentError,
    },
    /// The runtime directory contains a file of the endpoint's name that corewire did not create.
    #[error("file {0:?} in the runtime directory was not created by corewire: remove it")]
    ForeignFile(String),
    /// The name of an endpoint of another host, or of its host, breaks a rule.
    #[cfg(feature = "net")]
    #[error(transparent)]
    Target(#[from] corewire_net::open::TargetError),
    /// The file that names hosts cannot be used.
    #[cfg(feature = "net")]
    #[error(transparent)]
    Hosts(#[from] corewire_net::hosts::HostsError),
    /// An endpoint of another host cannot be connected.
    #[cfg(feature = "net")]
    #[error("endpoint {name}: {error}")]
    Far {
        /// The endpoint.
        name: String,
        /// Why.
        error: corewire_net::open::OpenError,
    },
    /// This process is a forked child: it must open the domain again.
    #[error("this process was forked from the one that has the endpoint")]
    Forked,
    /// A system call failed.
    #[error(transparent)]
    Os(#[from] OsError),
}

impl ConnectError {
    /// Whether the endpoint may be there later without anybody changing anything: it does not exist yet, its host does not answer
    /// now, or it has as many peers as it may have.
    #[must_use]
    pub fn may_come(&self) -> bool {
        #[cfg(feature = "net")]
        if let Self::Far { error, .. } = self {
            return error.may_come();
        }
        matches!(self, Self::NotFound(_) | Self::NotCreated { .. })
    }
}

/// The text for a process in an error message; empty if its number is not known.
pub(super) fn shown_pid(pid: u32) -> String {
    if pid == 0 { String::new() } else { format!(" (pid {pid})") }
}

/// The two handshakes share their first steps, which return [`JoinError`].
impl From<JoinError> for ConnectError {
    fn from(error: JoinError) -> Self {
        match error {
            JoinError::Name(error) => Self::Name(error),
            JoinError::NotFound(name) => Self::NotFound(name),
            JoinError::NotCreated { name, after } => Self::NotCreated { name, after },
            JoinError::ForeignFile(file) => Self::ForeignFile(file),
            JoinError::NotPermitted { name, owner, user } => {
                Self::NotPermitted { name, owner, user }
            }
            JoinError::Refused { name, reason } => Self::Refused { name, reason },
            JoinError::NoAnswer { name, after, pid } => Self::NoAnswer { name, after, pid },
            JoinError::Protocol { name, found } => Self::Protocol { name, found },
            JoinError::Header { name, error } => Self::Header { name, error },
            JoinError::Segment { name, error } => Self::Segment { name, error },
            JoinError::Forked => Self::Forked,
            JoinError::Os(error) => Self::Os(error),
            other => Self::Os(OsError { what: other.to_string().into(), errno: EPROTO }),
        }
    }
}

/// Protocol error.
const EPROTO: i32 = 71;

/// Why a channel cannot be joined, or a channel or an endpoint cannot be observed.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum JoinError {
    /// The name breaks a rule.
    #[error("channel {0}")]
    Name(#[from] NameError),
    /// No channel of this name exists now.
    #[error("channel {0} does not exist")]
    NotFound(ChannelName),
    /// The name belongs to an endpoint or a listener.
    #[error("{0} is an endpoint, a listener or a window, not a channel")]
    NotAChannel(ChannelName),
    /// The name does not belong to a window.
    #[error("{0} is a channel, an endpoint or a listener, not a window")]
    NotAWindow(ChannelName),
    /// The sender of the channel keeps messages for its receivers: it is no [last value](crate::Domain::latest).
    #[error("channel {0} is no last value: its sender does not overwrite")]
    NotALastValue(ChannelName),
    /// No channel of this name was created within the given time.
    #[error("channel {name} was not created within {after:?}")]
    NotCreated {
        /// The channel.
        name: ChannelName,
        /// How long the call waited.
        after: Duration,
    },
    /// The runtime directory contains a file of the channel's name that corewire did not create.
    #[error("file {0:?} in the runtime directory was not created by corewire: remove it")]
    ForeignFile(String),
    /// The channel's process runs as another user, which has not admitted this process's user.
    #[error("channel {name} belongs to user {owner}, this process runs as user {user}")]
    NotPermitted {
        /// The channel.
        name: ChannelName,
        /// The owner's effective user.
        owner: u32,
        /// This process's effective user.
        user: u32,
    },
    /// The channel's messages may be overwritten while they are read, so they must be copied out.
    #[error(
        "channel {name} {} slow receivers: its messages can only be copied out; \
         join it with `snapshots()`", word_of(*.policy)
    )]
    NotInPlace {
        /// The channel.
        name: ChannelName,
        /// The channel's policy for slow receivers.
        policy: Policy,
    },
    /// The channel's process runs as another user. This process may read the channel, but not in
    /// place.
    #[error(
        "channel {name} belongs to user {owner}: its messages can only be copied out; join it \
         with `snapshots()`"
    )]
    NeedsSnapshots {
        /// The channel.
        name: ChannelName,
        /// The owner's effective user.
        owner: u32,
        /// This process's effective user.
        user: u32,
    },
    /// The owner refused.
    #[error("channel {name}: {reason}")]
    Refused {
        /// The channel.
        name: ChannelName,
        /// The reason.
        reason: Reason,
    },
    /// The channel carries another type than the requested one, or another version of it.
    #[error(
        "channel {name} carries {}",
        another_type(.found.as_deref(), *.found_bytes, .expected.as_deref(), *.expected_bytes)
    )]
    Type {
        /// The channel.
        name: ChannelName,
        /// Name of the expected type; `None` for plain bytes.
        expected: Option<String>,
        /// Size of the expected type in bytes; 0 for plain bytes.
        expected_bytes: u64,
        /// Name of the channel's type; `None` for plain bytes.
        found: Option<String>,
        /// Size of the channel's type in bytes; 0 for plain bytes.
        found_bytes: u64,
    },
    /// The process that has the name did not answer. It is stopped, or very busy.
    #[error("the owner of {name}{} did not answer within {after:?}", shown_pid(*pid))]
    NoAnswer {
        /// The channel or endpoint.
        name: ChannelName,
        /// How long the call waited; zero if the process's queue of connections is full.
        after: Duration,
        /// The process; 0 if it is not known.
        pid: u32,
    },
    /// The name belongs to a channel or a listener.
    #[error("{0} is a channel, a listener or a window, not an endpoint")]
    NotAnEndpoint(ChannelName),
    /// The owner sent an invalid answer.
    #[error("the owner of channel {name} answered {found}")]
    Protocol {
        /// The channel.
        name: ChannelName,
        /// The answer.
        found: String,
    },
    /// The header of the owner's memory is wrong.
    #[error("the memory of channel {name}: {error}")]
    Header {
        /// The channel.
        name: ChannelName,
        /// What is wrong.
        error: HeaderError,
    },
    /// The owner's memory has wrong seals or a wrong size.
    #[error("the memory of channel {name}: {error}")]
    Segment {
        /// The channel.
        name: ChannelName,
        /// What is wrong.
        error: SegmentError,
    },
    /// This process is a forked child: it must open the domain again.
    #[error("this process was forked from the one that opened the domain: open it again")]
    Forked,
    /// The channel is on two levels, and its relay could not be created.
    #[error("channel {name}: {error}")]
    Relay {
        /// The relay's channel.
        name: ChannelName,
        /// The reason.
        error: Box<CreateError>,
    },
    /// A system call failed.
    #[error(transparent)]
    Os(#[from] OsError),
}

/// Describes the channel's type and, if the name differs, the expected one.
fn another_type(
    found: Option<&str>,
    found_bytes: u64,
    expected: Option<&str>,
    expected_bytes: u64,
) -> String {
    let shown = |name: Option<&str>, bytes| match name {
        Some(name) => (format!("{name} of {bytes} bytes"), "was"),
        None => ("plain bytes".to_owned(), "were"),
    };
    if let (Some(name), true) = (found, found == expected) {
        return match found_bytes == expected_bytes {
            true => format!("another version of {name} (other fields, types or order)"),
            false => format!(
                "another version of {name}, of {found_bytes} bytes instead of {expected_bytes}"
            ),
        };
    }
    let ((found, _), (expected, was)) =
        (shown(found, found_bytes), shown(expected, expected_bytes));
    format!("{found}, but {expected} {was} expected")
}

pub(super) fn word_of(policy: Policy) -> &'static str {
    match policy {
        Policy::Block => "waits for",
        Policy::Overwrite => "overwrites",
        Policy::Evict { .. } => "evicts",
    }
}

impl From<ClaimError> for JoinError {
    fn from(error: ClaimError) -> Self {
        match error {
            ClaimError::AlreadyExists(name) => Self::NotFound(name),
            ClaimError::Foreign(file) => Self::ForeignFile(file),
            ClaimError::Os(error) => Self::Os(error),
            other => Self::ForeignFile(other.to_string()),
        }
    }
}

corewire_layout::debug_is_text!(ConnectError, JoinError);
