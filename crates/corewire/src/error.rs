//! One error type for each stage: opening a domain, creating a channel or an endpoint, joining,
//! connecting, sending, receiving, observing, waiting.

use std::fmt;
use std::time::Duration;

use corewire_layout::endpoint::EndpointSizeError;
use corewire_layout::frame::Reason;
use corewire_layout::geometry::GeometryError;
use corewire_layout::name::{ChannelName, NameError};
use corewire_layout::segment::{HeaderError, Policy};
use corewire_os::OsError;
use corewire_os::directory::{ClaimError, DirectoryError};
use corewire_os::memory::SegmentError;
use corewire_ring::broadcast::Violation;

use crate::topology::TopologyError;

/// Why a domain cannot be opened.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// This process is a forked child: it must open the domain again.
    #[error("this process was forked from the one that opened the domain: open it anew")]
    Forked,
    /// The runtime directory cannot be used.
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    /// An access rule was given for another user's domain. Only the owner can set one.
    #[error("user {owner} alone says who may enter its domain; this process runs as user {user}")]
    Guest {
        /// The domain's owner.
        owner: u32,
        /// This process's effective user.
        user: u32,
    },
    /// A system call failed.
    #[error(transparent)]
    Os(#[from] OsError),
}

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
    /// The process that holds the name has not said yet what it creates.
    Unknown,
}

impl fmt::Display for NameInUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, role) = match self.kind {
            NameUse::Channel => ("channel ", "is its sender"),
            NameUse::SharedChannel => ("shared channel ", "is one of its senders"),
            NameUse::Endpoint => ("endpoint ", "has it"),
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
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CreateError {
    /// The name breaks a rule.
    #[error(transparent)]
    Name(#[from] NameError),
    /// A size is out of range.
    #[error(transparent)]
    Geometry(#[from] GeometryError),
    /// A living process has a channel or an endpoint of this name.
    #[error("{0}")]
    AlreadyExists(NameInUse),
    /// The runtime directory contains a file of the channel's name that corewire did not create.
    #[error("{0:?} in the runtime directory is not a file of corewire's: remove it")]
    ForeignFile(String),
    /// The domain belongs to another user, and this process is a guest in it.
    #[error("user {owner} alone creates channels in its domain; this process runs as user {user}")]
    Guest {
        /// The domain's owner.
        owner: u32,
        /// This process's effective user.
        user: u32,
    },
    /// This process is a forked child: it must open the domain again.
    #[error("this process was forked from the one that opened the domain: open it anew")]
    Forked,
    /// A shared channel cannot overwrite.
    #[error(
        "a shared channel cannot overwrite: a sender that is stopped between claiming a slot and \
         filling it could be overtaken by the others, and would then tear a later message"
    )]
    OverwriteShared,
    /// A channel on two levels must wait for its receivers.
    #[error(
        "a channel that {} slow receivers cannot be on two levels: a relay would pass on what its own \
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
    #[error(
        "the senders of channel {name} let nobody in within {after:?}: they are stopped, or busy"
    )]
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
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EndpointError {
    /// The name breaks a rule.
    #[error(transparent)]
    Name(#[from] NameError),
    /// A size is out of range.
    #[error(transparent)]
    Size(#[from] EndpointSizeError),
    /// A living process has a channel or an endpoint of this name.
    #[error("{0}")]
    AlreadyExists(NameInUse),
    /// The runtime directory contains a file of the endpoint's name that corewire did not create.
    #[error("{0:?} in the runtime directory is not a file of corewire's: remove it")]
    ForeignFile(String),
    /// The domain belongs to another user, and this process is a guest in it.
    #[error("user {owner} alone creates endpoints in its domain; this process runs as user {user}")]
    Guest {
        /// The domain's owner.
        owner: u32,
        /// This process's effective user.
        user: u32,
    },
    /// This process is a forked child: it must open the domain again.
    #[error("this process was forked from the one that opened the domain: open it anew")]
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

/// Why another endpoint cannot become a peer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The name breaks a rule.
    #[error(transparent)]
    Name(#[from] NameError),
    /// No endpoint of this name exists now.
    #[error("endpoint {0} does not exist")]
    NotFound(ChannelName),
    /// No endpoint of this name was created within the given time.
    #[error("endpoint {name} did not appear within {after:?}")]
    NotCreated {
        /// The endpoint.
        name: ChannelName,
        /// How long the call waited.
        after: Duration,
    },
    /// The name belongs to a channel.
    #[error("{0} is a channel, not an endpoint")]
    NotAnEndpoint(ChannelName),
    /// This endpoint has its maximum number of peers.
    #[error("this endpoint has all the {max} peers it was made for")]
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
    #[error("{0:?} in the runtime directory is not a file of corewire's: remove it")]
    ForeignFile(String),
    /// This process is a forked child: it must open the domain again.
    #[error("this process was forked from the one that has the endpoint")]
    Forked,
    /// A system call failed.
    #[error(transparent)]
    Os(#[from] OsError),
}

/// The text for a process in an error message; empty if its number is not known.
fn shown_pid(pid: u32) -> String {
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
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum JoinError {
    /// The name breaks a rule.
    #[error(transparent)]
    Name(#[from] NameError),
    /// No channel of this name exists now.
    #[error("channel {0} does not exist")]
    NotFound(ChannelName),
    /// The name belongs to an endpoint.
    #[error("{0} is an endpoint, not a channel")]
    NotAChannel(ChannelName),
    /// No channel of this name was created within the given time.
    #[error("channel {name} did not appear within {after:?}")]
    NotCreated {
        /// The channel.
        name: ChannelName,
        /// How long the call waited.
        after: Duration,
    },
    /// The runtime directory contains a file of the channel's name that corewire did not create.
    #[error("{0:?} in the runtime directory is not a file of corewire's: remove it")]
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
    /// The name belongs to a channel.
    #[error("{0} is a channel, not an endpoint")]
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
    #[error("this process was forked from the one that opened the domain: open it anew")]
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

fn word_of(policy: Policy) -> &'static str {
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

/// Why a message was not sent. No part of it was.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// The message is longer than the channel's maximum.
    #[error("message of {asked} bytes: the channel was made for at most {max}")]
    TooLarge {
        /// The channel's maximum, in bytes.
        max: usize,
        /// The message's length in bytes.
        asked: usize,
    },
    /// There is no room now, because a receiver has not read far enough.
    #[error("no room: a receiver is {lag} messages behind")]
    Full {
        /// Number of messages that the slowest receiver is behind.
        lag: u64,
    },
    /// Receivers that waited for the channel are invited and have not joined yet.
    #[error("{count} receivers that waited for the channel are just joining it")]
    Joining {
        /// Their number.
        count: usize,
    },
    /// There was no room within the given time.
    #[error("no room within {after:?}: a receiver is {lag} messages behind")]
    Timeout {
        /// How long the call waited.
        after: Duration,
        /// Number of messages that the slowest receiver is behind.
        lag: u64,
    },
    /// Another thread interrupted the call.
    #[error("interrupted")]
    Interrupted,
    /// This process is a forked child, and the channel belongs to its parent.
    #[error("this process was forked from the one that has the channel")]
    Forked,
}

/// Why no message was received.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReceiveError {
    /// The sender closed the channel, and everything that it sent has been received.
    #[error("end of stream")]
    EndOfStream,
    /// The sender died, and everything that it committed has been received.
    #[error("the sender died")]
    SenderDied,
    /// This receiver held the sender up for longer than the channel allows. It gets no more messages.
    #[error("evicted: this receiver held the sender back for too long")]
    Evicted,
    /// The message was overwritten while it was copied.
    #[error(transparent)]
    Overwritten(#[from] Overwritten),
    /// The message does not fit in the buffer. It is still the next message.
    #[error("message of {needed} bytes, but the buffer has {given}")]
    BufferTooSmall {
        /// The message's length in bytes.
        needed: usize,
        /// The buffer's length in bytes.
        given: usize,
    },
    /// The message is not a value of the expected type.
    #[error(transparent)]
    Value(#[from] ValueError),
    /// The sender's memory contains an impossible value. This receiver cannot be used any more.
    #[error(transparent)]
    Violation(#[from] Violation),
    /// The channel is on two levels, the relay of this receiver's group died, and no other one could be
    /// created or joined.
    #[error("the relay died, and there is no other: {0}")]
    Relay(Box<JoinError>),
    /// Another thread interrupted the call.
    #[error("interrupted")]
    Interrupted,
    /// This process is a forked child, and the receiver belongs to its parent.
    #[error("this process was forked from the one that has the receiver")]
    Forked,
}

/// A message was overwritten while it was copied, or its receiver was evicted. It counts as missed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("message {sequence} was written over before it had been copied")]
pub struct Overwritten {
    /// The message's sequence number.
    pub sequence: u64,
}

/// A message is not a value of the type that it was read as.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("message of {found} bytes is no {name} of {expected}")]
pub struct ValueError {
    /// The type's declared name.
    pub name: &'static str,
    /// The type's size in bytes.
    pub expected: usize,
    /// The message's length in bytes.
    pub found: usize,
}

/// There is no counter of this name. The message lists the names that exist.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no counter {asked:?}: {of} has {}", known.join(", "))]
#[non_exhaustive]
pub struct CounterError {
    /// The name that was asked for.
    pub asked: String,
    /// What was asked: a sender, a receiver or an endpoint.
    pub of: &'static str,
    /// The names of its counters.
    pub known: Vec<&'static str>,
}

impl CounterError {
    /// Finds the counter `asked` among `all` counters of a handle, which `of` names.
    pub(crate) fn find<C: Copy>(
        asked: &str,
        of: &'static str,
        all: &[(C, &'static str)],
    ) -> Result<C, Self> {
        let found = all.iter().find(|(_, name)| *name == asked);
        found.map(|&(counter, _)| counter).ok_or_else(|| {
            let known = all.iter().map(|&(_, name)| name).collect();
            Self { asked: asked.to_owned(), of, known }
        })
    }
}

/// Why a [`WaitSet`](crate::WaitSet) stopped waiting.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WaitError {
    /// A call of an endpoint failed.
    #[error(transparent)]
    Endpoint(#[from] corewire_endpoint::MessageError),
    /// A receiver got no descriptor to wait for.
    #[error(transparent)]
    Receiver(#[from] JoinError),
    /// A system call failed.
    #[error(transparent)]
    Os(#[from] OsError),
}

#[cfg(test)]
mod tests {
    use corewire_layout::counters::{EndpointCounter, ReceiverCounter, SenderCounter};

    use super::*;

    #[test]
    fn an_unknown_counter_is_answered_with_the_names_that_exist() {
        let error = CounterError::find("lost", "a sender", &SenderCounter::ALL).unwrap_err();
        let known = "messages, bytes, waits, sleeps, cap_finds, wakes, empty_scans";
        assert_eq!(error.to_string(), format!("no counter \"lost\": a sender has {known}"));
        let found = CounterError::find("waits", "a sender", &SenderCounter::ALL);
        assert_eq!(found, Ok(SenderCounter::Waits));
    }

    #[test]
    fn the_documentation_of_each_handle_lists_its_counters() {
        fn check<C>(source: &str, all: &[(C, &str)]) {
            for (_, name) in all {
                assert!(source.contains(&format!("/// | `{name}` | ")), "{name} is not listed");
            }
        }
        check(include_str!("path/common.rs"), &SenderCounter::ALL);
        check(include_str!("path/receive.rs"), &ReceiverCounter::ALL);
        check(include_str!("path/endpoint/mod.rs"), &EndpointCounter::ALL);
    }
}
