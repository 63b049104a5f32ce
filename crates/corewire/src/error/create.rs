//! Errors of creating a channel or an endpoint.

use std::fmt;
use std::time::Duration;

use corewire_layout::endpoint::EndpointSizeError;
use corewire_layout::geometry::GeometryError;
use corewire_layout::name::{ChannelName, NameError};
use corewire_layout::segment::Policy;
use corewire_os::OsError;
use corewire_os::directory::ClaimError;

use super::JoinError;
use super::join::word_of;
use crate::topology::TopologyError;

/// What already exists under a name that was to be created.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct NameInUse {
    /// The name.
    pub name: ChannelName,
    /// What has it.
    pub kind: NameUse,
    /// The process that holds the name, as this process sees its number; of a shared channel, the
    /// sender that lets others in. `None` if it cannot be seen from here.
    pub pid: Option<u32>,
}

/// What a name belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum NameUse {
    /// A channel with one sender.
    Channel,
    /// A channel with several senders.
    SharedChannel,
    /// An endpoint.
    Endpoint,
    /// A listener.
    Listener,
    /// A window.
    Window,
    /// The process that holds the name has not published yet what it creates.
    Unknown,
}

impl fmt::Display for NameInUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, role) = match self.kind {
            NameUse::Channel => ("channel ", "is its sender"),
            NameUse::SharedChannel => ("shared channel ", "is one of its senders"),
            NameUse::Endpoint => ("endpoint ", "has it"),
            NameUse::Listener => ("listener ", "has it"),
            NameUse::Window => ("window ", "has it"),
            NameUse::Unknown => ("", "has the name"),
        };
        write!(f, "{kind}{} already exists", self.name)?;
        self.pid.map_or(Ok(()), |pid| write!(f, ": process {pid} {role}"))
    }
}

impl From<ChannelName> for NameInUse {
    fn from(name: ChannelName) -> Self {
        Self { name, kind: NameUse::Unknown, pid: None }
    }
}

/// Why a channel cannot be created.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CreateError {
    /// The name breaks a rule.
    #[error("channel {0}")]
    Name(#[from] NameError),
    /// A size is out of range.
    #[error(transparent)]
    Geometry(#[from] GeometryError),
    /// A living process has a channel or an endpoint of this name.
    #[error("{0}")]
    AlreadyExists(NameInUse),
    /// The runtime directory contains a file of the channel's name that corewire did not create.
    #[error("file {0:?} in the runtime directory was not created by corewire: remove it")]
    ForeignFile(String),
    /// The domain belongs to another user, and this process is a guest in it.
    #[error(
        "only user {owner} can create channels in its domain; this process runs as user {user}"
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
    /// A shared channel cannot overwrite.
    #[error(
        "a shared channel cannot overwrite: a sender that is stopped between claiming a slot and \
         filling it could be overtaken by the others, and would then tear a later message"
    )]
    OverwriteShared,
    /// A channel on two levels must wait for its receivers.
    #[error(
        "a channel that {} slow receivers cannot be on two levels: a relay would forward what its own \
         receivers have not read", word_of(*.policy)
    )]
    Levels {
        /// The channel's policy for slow receivers.
        policy: Policy,
    },
    /// A shared channel cannot be on two levels.
    #[error("a shared channel cannot be on two levels")]
    LevelsShared,
    /// The file with the costs of this machine's cache lines cannot be used.
    #[error(transparent)]
    Topology(#[from] TopologyError),
    /// The channel's senders are alive, but none of them answers this one.
    #[error("no sender of channel {name} answered within {after:?}: they are stopped or busy")]
    NoHost {
        /// The channel.
        name: ChannelName,
        /// How long the call waited.
        after: Duration,
    },
    /// The shared channel exists and refused this sender.
    #[error(transparent)]
    Enter(Box<JoinError>),
    /// A system call failed: no memory, no descriptors, a limit.
    #[error(transparent)]
    Os(#[from] OsError),
}

impl From<ClaimError> for CreateError {
    fn from(error: ClaimError) -> Self {
        match error {
            ClaimError::AlreadyExists(name) => Self::AlreadyExists(name.into()),
            ClaimError::Foreign(file) => Self::ForeignFile(file),
            ClaimError::Os(error) => Self::Os(error),
            other => Self::ForeignFile(other.to_string()),
        }
    }
}

/// Why an endpoint cannot be created.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EndpointError {
    /// The name breaks a rule.
    #[error("endpoint {0}")]
    Name(#[from] NameError),
    /// A size is out of range.
    #[error(transparent)]
    Size(#[from] EndpointSizeError),
    /// A living process has a channel or an endpoint of this name.
    #[error("{0}")]
    AlreadyExists(NameInUse),
    /// The runtime directory contains a file of the endpoint's name that corewire did not create.
    #[error("file {0:?} in the runtime directory was not created by corewire: remove it")]
    ForeignFile(String),
    /// The file that names hosts cannot be used.
    #[cfg(feature = "net")]
    #[error(transparent)]
    Hosts(#[from] corewire_net::hosts::HostsError),
    /// A text is no address to take connections at.
    #[cfg(feature = "net")]
    #[error(
        "{0:?} is no address to take connections at: address:port is one, as 10.0.0.1:7421 or [::1]:7421"
    )]
    Address(String),
    /// No connections can be taken at an address.
    #[cfg(feature = "net")]
    #[error(transparent)]
    Listen(#[from] corewire_net::open::OpenError),
    /// A certificate or a key in the file that names hosts cannot be used.
    #[cfg(feature = "net")]
    #[error(transparent)]
    Certificate(corewire_net::open::OpenError),
    /// The domain belongs to another user, and this process is a guest in it.
    #[error(
        "only user {owner} can create endpoints in its domain; this process runs as user {user}"
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
    /// A system call failed: no memory, no descriptors, a limit.
    #[error(transparent)]
    Os(#[from] OsError),
}

impl From<ClaimError> for EndpointError {
    fn from(error: ClaimError) -> Self {
        match error {
            ClaimError::AlreadyExists(name) => Self::AlreadyExists(name.into()),
            ClaimError::Foreign(file) => Self::ForeignFile(file),
            ClaimError::Os(error) => Self::Os(error),
            other => Self::ForeignFile(other.to_string()),
        }
    }
}

corewire_layout::debug_is_text!(CreateError, EndpointError);
