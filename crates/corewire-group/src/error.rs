//! Errors of groups.

use std::path::{Path, PathBuf};
use std::time::Duration;

use corewire::{
    ConnectError, CreateError, EndpointError, JoinError, ListenError, MessageError, NameError,
    OpenError, OsError, ReceiveError, SendError,
};

use crate::log_file::LogFileError;
use crate::member::{COMMAND_BYTES_MAX, MEMBERS_MAX};

/// Why a name of another host is refused.
pub(crate) const ONE_HOST: &str = "it relies on deaths that are certain, and so is of one host: no host can tell another's death from a \
    link that is down. Communicators over endpoints reach other hosts";

/// Refuses a name of another host, with this error.
pub(crate) fn of_one_host<E>(name: &str, refused: impl Fn(String) -> E) -> Result<(), E> {
    if name.contains('@') { Err(refused(name.to_owned())) } else { Ok(()) }
}

/// Why a process has not become a member.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum JoinGroupError {
    /// The group has as many members as a group can have.
    #[error("group {0} has its maximum of {MEMBERS_MAX} members")]
    Full(String),
    /// It was not a member in time: another process that would be a member, or those that are, are stopped, or the
    /// group has lost the majority of its members.
    #[error("no member of group {name} within {after:?}: {why}")]
    Timeout {
        /// The group.
        name: String,
        /// The given time.
        after: Duration,
        /// What it waited for.
        why: String,
    },
    /// The name says that it is of another host: groups are of one.
    #[error("group {0}: {ONE_HOST}")]
    OtherHost(String),
    /// The group's name breaks a rule. The names of its members begin with it, so it is shorter than theirs.
    #[error("group {0}")]
    Name(#[from] NameError),
    /// The longest command must have a length that is possible.
    #[error("longest command of {asked} bytes: 1 to {COMMAND_BYTES_MAX} are possible")]
    LargestCommand {
        /// The length that was asked for.
        asked: usize,
    },
    /// The name cannot be used, or memory or descriptors are short.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// As [`Listen`](Self::Listen), for the member's endpoint.
    #[error(transparent)]
    Endpoint(#[from] EndpointError),
    /// As [`Listen`](Self::Listen), for the group's channel.
    #[error(transparent)]
    Create(#[from] CreateError),
    /// The group's channel cannot be received from.
    #[error(transparent)]
    Join(#[from] JoinError),
    /// The domain cannot be read.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// A system call failed.
    #[error(transparent)]
    Os(#[from] OsError),
    /// The file of the log cannot be used.
    #[error(transparent)]
    File(#[from] LogFileError),
    /// The group cannot be used.
    #[error(transparent)]
    Group(#[from] GroupError),
}

/// Why a group cannot be used.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GroupError {
    /// So many members have ended that nothing can be decided any more. What is decided stays readable.
    #[error("group {name} has lost its majority: of {of} members these have ended: {ended}")]
    Lost {
        /// The group.
        name: String,
        /// How many members the last view has.
        of: usize,
        /// The places of those that have ended.
        ended: String,
    },
    /// The others go on without this process: they could reach neither it nor its name, and have taken it for ended.
    #[error("group {0} goes on without this process, which it has taken for ended")]
    Excluded(String),
    /// This process has left the group.
    #[error("this process has left group {0}")]
    Left(String),
    /// The members of the group have another file than this process, or one of both has none.
    #[error("{}", other_file(name, its.as_deref(), given.as_deref()))]
    OtherFile {
        /// The group.
        name: String,
        /// The file that its members write.
        its: Option<PathBuf>,
        /// The file that was given.
        given: Option<PathBuf>,
    },
    /// The file of the log cannot be used. Every entry that was decided before is in it.
    #[error(transparent)]
    File(#[from] LogFileError),
    /// Another member cannot write the file of the log, which is this member's, too. Every entry that was decided before
    /// is in it.
    #[error("the member at place {place} cannot go on, and so no other one: {why}")]
    FileOfAll {
        /// The place of the member.
        place: u8,
        /// What has failed.
        why: String,
    },
    /// The command is longer than the group permits.
    #[error("command of {asked} bytes: group {name} permits at most {max}")]
    TooLarge {
        /// The group.
        name: String,
        /// The length of the command in bytes.
        asked: usize,
        /// The maximum in bytes.
        max: usize,
    },
    /// It was not decided in time. It may still be.
    #[error("not decided within {0:?}")]
    Timeout(Duration),
    /// The command is decided, but this process was stopped meanwhile, and got a snapshot in place of the entry: its index
    /// is not known.
    #[error("decided, at an index before {before} that this member has not seen")]
    PassedOver {
        /// The first entry that the snapshot does not stand for.
        before: u64,
    },
    /// This process is a forked child, and the group belongs to its parent.
    #[error("this process was forked from the one that is the member")]
    Forked,
    /// The endpoint of this member failed.
    #[error(transparent)]
    Message(MessageError),
    /// The group's channel cannot be sent to.
    #[error(transparent)]
    Send(SendError),
    /// The group's channel cannot be received from.
    #[error(transparent)]
    Receive(ReceiveError),
    /// The link to another member failed.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The group's channel cannot be received from.
    #[error(transparent)]
    Join(#[from] JoinError),
    /// A system call failed.
    #[error(transparent)]
    Os(#[from] OsError),
}

/// Why a client cannot do what was asked of it.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// The name says that the group is of another host: groups are of one.
    #[error("group {0}: {ONE_HOST}")]
    OtherHost(String),
    /// No member of such a group has answered.
    #[error("no member of group {name} has answered within {after:?}")]
    NoGroup {
        /// The group.
        name: String,
        /// The given time.
        after: Duration,
    },
    /// The command is longer than the group permits.
    #[error("command of {asked} bytes: group {name} permits at most {max}")]
    TooLarge {
        /// The group.
        name: String,
        /// The length of the command in bytes.
        asked: usize,
        /// The maximum in bytes.
        max: u64,
    },
    /// It has not happened in time. What was proposed may still be decided.
    #[error("not within {0:?}")]
    Timeout(Duration),
    /// The command is decided, and a snapshot stands for it: its index is not known any more.
    #[error("decided, at an index that no member knows any more: a snapshot stands for it")]
    PassedOver,
    /// The members that this client spoke to have all ended, and another group of this name was founded, without a file of
    /// the one before. What this client had proposed is not in it. Connect anew.
    #[error("group {name} has ended, and was founded anew without what this client has proposed")]
    FoundedAnew {
        /// The group.
        name: String,
    },
    /// The group's name breaks a rule.
    #[error("group {0}")]
    Name(#[from] NameError),
    /// This client's endpoint could not be created.
    #[error(transparent)]
    Endpoint(#[from] EndpointError),
    /// The domain cannot be read.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// This client's endpoint failed.
    #[error(transparent)]
    Message(#[from] MessageError),
    /// A system call failed.
    #[error(transparent)]
    Os(#[from] OsError),
}

fn other_file(name: &str, its: Option<&Path>, given: Option<&Path>) -> String {
    let its = match its {
        Some(its) => format!("group {name} has its log in the file {}", its.display()),
        None => format!("group {name} has its log in memory only"),
    };
    match given {
        Some(given) => format!("{its}, not in {}", given.display()),
        None => format!("{its}, and this process was not given one"),
    }
}

impl From<MessageError> for GroupError {
    fn from(error: MessageError) -> Self {
        match error {
            MessageError::Forked => Self::Forked,
            other => Self::Message(other),
        }
    }
}

impl From<SendError> for GroupError {
    fn from(error: SendError) -> Self {
        match error {
            SendError::Forked => Self::Forked,
            other => Self::Send(other),
        }
    }
}

impl From<ReceiveError> for GroupError {
    fn from(error: ReceiveError) -> Self {
        match error {
            ReceiveError::Forked => Self::Forked,
            other => Self::Receive(other),
        }
    }
}

corewire_layout::debug_is_text!(ClientError, GroupError, JoinGroupError);
