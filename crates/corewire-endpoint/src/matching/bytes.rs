//! What has arrived of a message that no receive has asked for yet.

use std::ops::Deref;

use corewire_ring::message::{Landing, Sink};

use crate::pool::Pool;

/// The most bytes that lie in a record of a message itself.
pub(crate) const SHORT_BYTES_MAX: usize = 54;

/// The beginning of a kept message, or all of it. A short one lies here, without an allocation.
#[derive(Debug)]
pub(crate) enum KeptBytes {
    Short(u8, [u8; SHORT_BYTES_MAX]),
    Long(Vec<u8>),
}

impl Default for KeptBytes {
    fn default() -> Self {
        Self::Long(Vec::new())
    }
}

impl From<Vec<u8>> for KeptBytes {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Long(bytes)
    }
}

impl KeptBytes {
    /// Empty memory for a message of `bytes` bytes; `None` if there is none.
    #[inline]
    pub(crate) fn of(bytes: u64, pool: &Pool) -> Option<Self> {
        if bytes <= SHORT_BYTES_MAX as u64 {
            return Some(Self::short());
        }
        pool.take(bytes).map(Self::Long)
    }

    /// Empty memory for a short message.
    #[inline]
    pub(crate) fn short() -> Self {
        Self::Short(0, [0; SHORT_BYTES_MAX])
    }

    #[inline]
    pub(crate) fn is_short(&self) -> bool {
        matches!(self, Self::Short(..))
    }

    /// The memory is not used any more.
    pub(crate) fn give_back(self, pool: &Pool) {
        if let Self::Long(bytes) = self {
            pool.give_back(bytes);
        }
    }
}

impl Deref for KeptBytes {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match self {
            Self::Short(length, bytes) => &bytes[..usize::from(*length)],
            Self::Long(bytes) => bytes,
        }
    }
}

impl Sink for KeptBytes {
    fn room(&self) -> usize {
        match self {
            Self::Short(_, bytes) => bytes.len(),
            Self::Long(bytes) => bytes.room(),
        }
    }

    #[inline]
    fn put(&mut self, at: usize, source: &[u8]) -> usize {
        match self {
            Self::Short(length, bytes) => {
                let count = bytes[..].put(at, source);
                *length = u8::try_from(at + count).unwrap_or(u8::MAX);
                count
            }
            Self::Long(bytes) => bytes.put(at, source),
        }
    }

    fn landing(&mut self) -> Landing<'_> {
        match self {
            Self::Short(_, bytes) => Landing::of_slice(bytes),
            Self::Long(bytes) => bytes.landing(),
        }
    }
}
