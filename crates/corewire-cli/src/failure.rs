//! Failures of commands: one line for people, and one exit code for scripts.

use std::fmt::Display;

use corewire::{
    ConnectError, CreateError, EndpointError, JoinError, ListenError, MessageError, OpenError,
    OsError, QueueError, ReceiveError, SegmentError, SendError, TopologyError,
};
use corewire_group::{ClientError, CollectiveError, GroupError, JoinGroupError};

/// A command's failure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    /// One line; empty if there is nothing to say.
    pub(crate) message: String,
    /// The exit code.
    pub(crate) code: u8,
}

impl Failure {
    /// The caller asked for something that is not possible.
    pub(crate) fn usage(message: impl Display) -> Self {
        Self { message: message.to_string(), code: 2 }
    }

    /// Anything else.
    pub(crate) fn other(message: impl Display) -> Self {
        Self { message: message.to_string(), code: 1 }
    }

    /// The sender of a channel ended without closing it.
    pub(crate) fn sender_died() -> Self {
        let message = "the sender died before it closed the channel";
        Self { message: message.into(), code: 3 }
    }

    /// An end without a message.
    pub(crate) const fn quiet(code: u8) -> Self {
        Self { message: String::new(), code }
    }
}

impl From<OpenError> for Failure {
    fn from(error: OpenError) -> Self {
        Self::other(error)
    }
}

impl From<CreateError> for Failure {
    fn from(error: CreateError) -> Self {
        match error {
            CreateError::Name(_) | CreateError::Geometry(_) | CreateError::Levels { .. } => {
                Self::usage(error)
            }
            error => Self::other(error),
        }
    }
}

impl From<JoinError> for Failure {
    fn from(error: JoinError) -> Self {
        match error {
            JoinError::Name(_) => Self::usage(error),
            error => Self::other(error),
        }
    }
}

impl From<SendError> for Failure {
    fn from(error: SendError) -> Self {
        Self::other(error)
    }
}

impl From<ReceiveError> for Failure {
    fn from(error: ReceiveError) -> Self {
        match error {
            ReceiveError::SenderDied => Self::sender_died(),
            error => Self::other(error),
        }
    }
}

impl From<TopologyError> for Failure {
    fn from(error: TopologyError) -> Self {
        Self::usage(error)
    }
}

impl From<EndpointError> for Failure {
    fn from(error: EndpointError) -> Self {
        Self::other(error)
    }
}

impl From<ConnectError> for Failure {
    fn from(error: ConnectError) -> Self {
        Self::other(error)
    }
}

impl From<MessageError> for Failure {
    fn from(error: MessageError) -> Self {
        Self::other(error)
    }
}

impl From<JoinGroupError> for Failure {
    fn from(error: JoinGroupError) -> Self {
        match error {
            JoinGroupError::Listen(ListenError::Name(_)) | JoinGroupError::Name { .. } => {
                Self::usage(error)
            }
            error => Self::other(error),
        }
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        Self::other(error)
    }
}

impl From<GroupError> for Failure {
    fn from(error: GroupError) -> Self {
        Self::other(error)
    }
}

impl From<CollectiveError> for Failure {
    fn from(error: CollectiveError) -> Self {
        Self::other(error)
    }
}

impl From<QueueError> for Failure {
    fn from(error: QueueError) -> Self {
        match error {
            QueueError::Message(MessageError::PeerDied { name }) => {
                Self { message: format!("the process that had the queue {name} died"), code: 3 }
            }
            QueueError::Message(MessageError::PeerLeft { name }) => Self {
                message: format!("the queue {name} was ended before all of its jobs were done"),
                code: 3,
            },
            error => Self::other(error),
        }
    }
}

impl From<OsError> for Failure {
    fn from(error: OsError) -> Self {
        Self::other(error)
    }
}

impl From<SegmentError> for Failure {
    fn from(error: SegmentError) -> Self {
        Self::other(error)
    }
}
