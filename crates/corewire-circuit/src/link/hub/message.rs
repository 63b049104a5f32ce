//! What a circuit brings: messages, and its end.

use std::ops::Deref;

use corewire::MessageError;

use crate::ends::{Ended, Head};
use crate::link::capability::Received;
use crate::patience::Late;

/// Bytes that a message holds without an allocation. Messages are moved from hand to hand, so that few is faster.
const SHORT_BYTES_MAX: usize = 64;

/// The bytes of a message.
#[derive(Debug)]
pub enum Bytes {
    /// In place.
    Short {
        /// The first ones are the message.
        bytes: [u8; SHORT_BYTES_MAX],
        /// How many.
        length: u8,
    },
    /// In memory of their own.
    Long(Vec<u8>),
}

impl Bytes {
    /// No bytes.
    #[must_use]
    pub const fn empty() -> Self {
        Self::Short { bytes: [0; SHORT_BYTES_MAX], length: 0 }
    }

    /// A copy.
    #[inline]
    #[must_use]
    pub fn of(message: &[u8]) -> Self {
        let mut bytes = [0; SHORT_BYTES_MAX];
        match (bytes.get_mut(..message.len()), u8::try_from(message.len())) {
            (Some(place), Ok(length)) => {
                place.copy_from_slice(message);
                Self::Short { bytes, length }
            }
            _ => Self::Long(message.to_vec()),
        }
    }
}

impl Deref for Bytes {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match self {
            Self::Short { bytes, length } => bytes.get(..usize::from(*length)).unwrap_or(bytes),
            Self::Long(bytes) => bytes,
        }
    }
}

/// The longest message that may come after an answer of a service; `None` if the answer does not say.
pub type BytesMaxOf = fn(&[u8]) -> Option<usize>;

/// A message that has come through a circuit.
#[derive(Debug)]
pub struct Message {
    /// Which message of the interface, and of which call.
    pub head: Head,
    /// Its bytes.
    pub bytes: Bytes,
    /// Its capabilities; `None` if they were lost on the way or here.
    pub capabilities: Option<Vec<Received>>,
}

/// Why a circuit cannot be used, or not now.
#[derive(Debug)]
pub enum CircuitError {
    /// It has ended, after so many messages had come.
    Ended(Ended, u64),
    /// Nothing has come, or there was no room, in time.
    Late(Late),
    /// The capabilities of a message could not be sent.
    NotSent,
    /// The endpoint of the link failed.
    Message(MessageError),
    /// A system call failed.
    Os {
        /// What was done.
        what: &'static str,
        /// The system's number.
        errno: i32,
    },
}

impl CircuitError {
    /// A system call failed.
    pub(super) fn os(what: &'static str) -> impl Fn(rustix::io::Errno) -> Self {
        move |errno| Self::Os { what, errno: errno.raw_os_error() }
    }
}

impl From<Late> for CircuitError {
    fn from(late: Late) -> Self {
        Self::Late(late)
    }
}

impl From<MessageError> for CircuitError {
    fn from(error: MessageError) -> Self {
        Self::Message(error)
    }
}
