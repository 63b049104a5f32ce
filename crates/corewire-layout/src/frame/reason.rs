//! Why an owner refuses a request, and the words of a frame that say so.

use alloc::format;
use alloc::string::String;

use super::{FrameError, rights, small};
use crate::message_type::{TypeKey, TypeName, TypeTag};
use crate::window::Rights;

/// Why an owner refuses a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Reason {
    /// There is no such channel here.
    #[error("no such channel")]
    NotFound,
    /// All rows are taken.
    #[error("the channel has its maximum of {max} receivers")]
    Full {
        /// The channel's limit.
        max: u64,
    },
    /// The peer runs as a user who is not admitted.
    #[error("it belongs to user {owner}, this process runs as user {asker}")]
    NotPermitted {
        /// The owner's effective user.
        owner: u32,
        /// The requester's effective user.
        asker: u32,
    },
    /// The requester has another version of the layout.
    #[error("the owner speaks layout version {version}")]
    Version {
        /// The owner's version.
        version: u32,
    },
    /// The requester expects messages of another type.
    #[error("the channel carries {}", carried(*.name, *.bytes))]
    Type {
        /// Hash of the channel's type; 0 for plain bytes.
        hash: u64,
        /// Size of the channel's type.
        bytes: u64,
        /// Name of the channel's type; empty for plain bytes.
        name: TypeName,
    },
    /// The receiver's segment fails a check: `errno` of the check, or 0.
    #[error("the owner refused the receiver's memory (error {errno})")]
    Segment {
        /// An error number; 0 if seals, size or header are wrong.
        errno: u32,
    },
    /// The owner has no descriptors or no memory left.
    #[error("the owner is out of descriptors or memory (error {errno})")]
    Resources {
        /// The owner's error number.
        errno: u32,
    },
    /// The frame has no meaning at this point.
    #[error("the owner did not understand the request")]
    Malformed,
    /// The channel has one sender.
    #[error("the channel is not shared: it has one sender")]
    NotShared,
    /// A shared channel does not keep messages sent before a receiver joined.
    #[error("a shared channel can be joined from now on only, not at its oldest message")]
    FromNow,
    /// A guest asked for a shared channel.
    #[error("a shared channel is for processes of one user")]
    NotForGuests,
    /// All senders' rows are taken.
    #[error("the channel has its maximum of {max} senders")]
    SendersFull {
        /// The channel's limit.
        max: u64,
    },
    /// A guest asked for messages that were sent before it came.
    #[error("a guest joins from now on only, not at the oldest message")]
    GuestFromNow,
    /// One user's guests have the rows that are theirs, or all guests together.
    #[error(
        "the guests of user {user}, or all guests, have the {max} places that they may have here"
    )]
    GuestsFull {
        /// The requester's effective user.
        user: u32,
        /// The limit.
        max: u64,
    },
    /// The listener's queue is full.
    #[error("the listener has its maximum of {max} connections that it has not accepted yet")]
    ListenerFull {
        /// The limit.
        max: u64,
    },
    /// The guests of one user have the places in the listener's queue that are theirs, or all guests together.
    #[error(
        "guests have the {max} places among the listener's waiting connections that those of user \
         {user}, or all guests, may have"
    )]
    ListenerFullOfGuests {
        /// The requester's effective user.
        user: u32,
        /// The limit.
        max: u64,
    },
    /// All rows of the window are taken.
    #[error("the window has its maximum of {max} participants")]
    WindowFull {
        /// The window's limit.
        max: u64,
    },
    /// The window does not give these rights to others.
    #[error("the window gives others the rights {given}, not {asked}")]
    Rights {
        /// The rights that were asked for.
        asked: Rights,
        /// The rights that the requester may have.
        given: Rights,
    },
    /// All peers' rows are taken.
    #[error("the endpoint has its maximum of {max} peers")]
    PeersFull {
        /// The endpoint's limit.
        max: u64,
    },
}

/// A channel's type in a refusal.
fn carried(name: TypeName, bytes: u64) -> String {
    match name.is_empty() {
        true => "plain bytes".into(),
        false => format!("{name} of {bytes} bytes"),
    }
}

impl TypeTag {
    /// The refusal of a request for a channel of another type than this one.
    #[must_use]
    pub const fn refusal(self) -> Reason {
        let Self { key: TypeKey { hash, bytes }, name } = self;
        Reason::Type { hash, bytes, name }
    }
}

impl Reason {
    pub(super) const fn to_words(self) -> (u64, u64, u64) {
        match self {
            Self::NotFound => (1, 0, 0),
            Self::Full { max } => (2, max, 0),
            Self::NotPermitted { owner, asker } => (3, owner as u64, asker as u64),
            Self::Version { version } => (4, version as u64, 0),
            Self::Type { hash, bytes, .. } => (5, hash, bytes),
            Self::Segment { errno } => (6, errno as u64, 0),
            Self::Resources { errno } => (7, errno as u64, 0),
            Self::Malformed => (8, 0, 0),
            Self::NotShared => (9, 0, 0),
            Self::SendersFull { max } => (10, max, 0),
            Self::FromNow => (11, 0, 0),
            Self::NotForGuests => (12, 0, 0),
            Self::PeersFull { max } => (13, max, 0),
            Self::GuestFromNow => (14, 0, 0),
            Self::GuestsFull { user, max } => (15, user as u64, max),
            Self::ListenerFull { max } => (16, max, 0),
            Self::ListenerFullOfGuests { user, max } => (17, user as u64, max),
            Self::WindowFull { max } => (18, max, 0),
            Self::Rights { asked, given } => (19, asked.to_word(), given.to_word()),
        }
    }

    pub(super) fn of_words(code: u64, a: u64, b: u64, tail: &[u8]) -> Result<Self, FrameError> {
        Ok(match code {
            1 => Self::NotFound,
            2 => Self::Full { max: a },
            3 => Self::NotPermitted { owner: small("owner", a)?, asker: small("asker", b)? },
            4 => Self::Version { version: small("version", a)? },
            5 => {
                let tag = TypeName::of_bytes(tail).and_then(|name| TypeTag::new(a, b, name));
                let found = tail.len() as u64;
                tag.ok_or(FrameError::Field { field: "type_name", found })?.refusal()
            }
            6 => Self::Segment { errno: small("errno", a)? },
            7 => Self::Resources { errno: small("errno", a)? },
            8 => Self::Malformed,
            9 => Self::NotShared,
            10 => Self::SendersFull { max: a },
            11 => Self::FromNow,
            12 => Self::NotForGuests,
            13 => Self::PeersFull { max: a },
            14 => Self::GuestFromNow,
            15 => Self::GuestsFull { user: small("user", a)?, max: b },
            16 => Self::ListenerFull { max: a },
            17 => Self::ListenerFullOfGuests { user: small("user", a)?, max: b },
            18 => Self::WindowFull { max: a },
            19 => Self::Rights { asked: rights(a)?, given: rights(b)? },
            _ => return Err(FrameError::Field { field: "reason", found: code }),
        })
    }
}
