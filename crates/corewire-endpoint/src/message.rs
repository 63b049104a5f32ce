//! Messages that were received into memory of their own.

use std::fmt;
use std::ops::Deref;

use corewire_ring::message::Sink;

use crate::error::MessageError;
use crate::pool::Pool;
use crate::selector::{Peer, Status};

/// The longest message that lies in the value itself, in bytes.
pub const INLINE_BYTES_MAX: usize = 104;

/// A message that was received. It derefs to its bytes, may be sent to another thread, and gives its memory
/// back to its endpoint's pool when it is dropped.
pub struct OwnedMessage {
    status: Status,
    bytes: Bytes,
}

enum Bytes {
    /// Here, up to the status' length.
    Inline([u8; INLINE_BYTES_MAX]),
    Pooled(Vec<u8>, Pool),
}

/// An empty message of nobody.
impl Default for OwnedMessage {
    fn default() -> Self {
        let status = Status { source: Peer::new(0, 0), tag: 0, bytes: 0, immediate: None };
        Self { status, bytes: Bytes::Inline([0; INLINE_BYTES_MAX]) }
    }
}

impl OwnedMessage {
    /// A message of at most [`INLINE_BYTES_MAX`] bytes, the first of `bytes`, that a receive has put there.
    #[inline(always)]
    #[must_use]
    pub fn short(status: Status, bytes: [u8; INLINE_BYTES_MAX]) -> Self {
        Self { status, bytes: Bytes::Inline(bytes) }
    }

    /// Who sent it, its tag and its length.
    #[must_use]
    pub fn status(&self) -> Status {
        self.status
    }

    /// Who sent it.
    #[must_use]
    pub fn source(&self) -> Peer {
        self.status.source
    }

    /// Its tag.
    #[must_use]
    pub fn tag(&self) -> u64 {
        self.status.tag
    }

    /// Its bytes in a vector. A message of more than 104 bytes is not copied for that.
    #[must_use]
    pub fn into_vec(mut self) -> Vec<u8> {
        match &mut self.bytes {
            Bytes::Inline(_) => self.to_vec(),
            Bytes::Pooled(bytes, _) => std::mem::take(bytes),
        }
    }
}

impl Deref for OwnedMessage {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match &self.bytes {
            Bytes::Inline(bytes) => {
                let length = usize::try_from(self.status.bytes).unwrap_or(INLINE_BYTES_MAX);
                &bytes[..length.min(INLINE_BYTES_MAX)]
            }
            Bytes::Pooled(bytes, _) => bytes,
        }
    }
}

impl AsRef<[u8]> for OwnedMessage {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

/// Compares the bytes.
impl<T: AsRef<[u8]> + ?Sized> PartialEq<T> for OwnedMessage {
    fn eq(&self, other: &T) -> bool {
        **self == *other.as_ref()
    }
}

impl fmt::Debug for OwnedMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwnedMessage").field("status", &self.status).finish_non_exhaustive()
    }
}

impl Drop for OwnedMessage {
    #[inline]
    fn drop(&mut self) {
        if let Bytes::Pooled(bytes, pool) = &mut self.bytes {
            pool.give_back(std::mem::take(bytes));
        }
    }
}

/// Where the message of a receive goes: the caller's buffer, or memory that is taken from the pool when its
/// length is known.
pub trait Target: Sink {
    /// Gets ready for a message of `bytes` bytes, of which those that fit are kept.
    ///
    /// # Errors
    /// [`MessageError::BufferTooSmall`] or `NoMemory`; the message stays to be received.
    fn prepare(&mut self, bytes: u64) -> Result<(), MessageError> {
        let given = self.room();
        if bytes <= given as u64 {
            return Ok(());
        }
        Err(MessageError::BufferTooSmall { needed: bytes, given })
    }

    /// Whether [`adopt`](Self::adopt) takes memory over.
    fn adopts(&self) -> bool {
        false
    }

    /// Takes over memory that holds the beginning of a message, or all of it. Returns it if it cannot.
    fn adopt(&mut self, bytes: Vec<u8>) -> Option<Vec<u8>> {
        Some(bytes)
    }

    /// The first `count` bytes that were written.
    fn written(&mut self, count: usize) -> Vec<u8>;
}

impl Target for &mut [u8] {
    fn written(&mut self, count: usize) -> Vec<u8> {
        self[..count].to_vec()
    }
}

impl Target for &mut [&mut [u8]] {
    fn written(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(count);
        for part in self.iter() {
            bytes.extend_from_slice(&part[..part.len().min(count - bytes.len())]);
        }
        bytes
    }
}

/// The memory of a [`OwnedMessage`] that is being received.
#[derive(Debug)]
pub(crate) struct Filling {
    bytes: Vec<u8>,
    pool: Pool,
}

impl Filling {
    pub(crate) fn new(pool: &Pool) -> Self {
        Self { bytes: Vec::new(), pool: pool.clone() }
    }

    /// The message, of which everything has been written.
    pub(crate) fn finish(self, status: Status) -> OwnedMessage {
        OwnedMessage { status, bytes: Bytes::Pooled(self.bytes, self.pool) }
    }
}

impl Sink for Filling {
    fn room(&self) -> usize {
        self.bytes.room()
    }

    fn put(&mut self, at: usize, source: &[u8]) -> usize {
        self.bytes.put(at, source)
    }
}

impl Target for Filling {
    fn prepare(&mut self, bytes: u64) -> Result<(), MessageError> {
        if self.bytes.capacity() as u64 >= bytes {
            return Ok(());
        }
        let unfit = std::mem::take(&mut self.bytes);
        self.pool.give_back(unfit);
        self.bytes = self.pool.take(bytes).ok_or(MessageError::NoMemory { bytes })?;
        Ok(())
    }

    fn adopts(&self) -> bool {
        true
    }

    fn adopt(&mut self, bytes: Vec<u8>) -> Option<Vec<u8>> {
        let unfit = std::mem::replace(&mut self.bytes, bytes);
        self.pool.give_back(unfit);
        None
    }

    fn written(&mut self, _count: usize) -> Vec<u8> {
        std::mem::take(&mut self.bytes)
    }
}
