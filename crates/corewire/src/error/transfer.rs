//! Errors of sending and receiving.

use std::time::Duration;

use corewire_ring::broadcast::Violation;

use super::JoinError;

/// Why a message was not sent. No part of it was.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// The message is longer than the channel's maximum.
    #[error("message of {asked} bytes: at most {max} are possible on this channel")]
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
    #[error("{count} receivers that waited for the channel are still joining it")]
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
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReceiveError {
    /// The sender closed the channel, and everything that it sent has been received.
    #[error("end of stream")]
    EndOfStream,
    /// The sender died, and everything that it committed has been received.
    #[error("the sender died")]
    SenderDied,
    /// This receiver delayed the sender for longer than the channel permits. It gets no more messages.
    #[error("evicted: this receiver delayed the sender for too long")]
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
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("message {sequence} was overwritten before it was copied")]
pub struct Overwritten {
    /// The message's sequence number.
    pub sequence: u64,
}

/// A message is not a value of the type that it was read as.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[error("message of {found} bytes is not a {name} of {expected} bytes")]
pub struct ValueError {
    /// The type's declared name.
    pub name: &'static str,
    /// The type's size in bytes.
    pub expected: usize,
    /// The message's length in bytes.
    pub found: usize,
}

corewire_layout::debug_is_text!(SendError, ReceiveError, Overwritten, ValueError);
