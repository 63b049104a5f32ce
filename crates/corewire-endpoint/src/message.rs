//! Messages that were received into memory of their own.

use std::fmt;
use std::ops::Deref;

use corewire_layout::pair::PAIR_INLINE_BYTES_MAX;
use corewire_ring::message::{Held, Landing, Sink};

use crate::error::MessageError;
use crate::pool::Pool;
use crate::selector::{Peer, Status};

/// A longer message has memory of its own beside what is known of it: as much as travels in slots.
const SHORT_BYTES_MAX: usize = PAIR_INLINE_BYTES_MAX;

/// A message that was received. It derefs to its bytes, and may be sent to another thread.
///
/// Its bytes are its own, or lie where the sender wrote them ([`is_in_place`](Self::is_in_place)); which of them is up to
/// what its endpoint grants the sender. Dropping it, in any thread and in any order, releases the sender's memory, or
/// gives memory of more than 1 KiB back to its endpoint's pool. It may outlive its endpoint and its sender.
///
/// It is one pointer: a larger value would be copied by each function that returns it, right after it was written in
/// pieces, which processors do slowly (20 ns for 8 bytes of a message).
pub struct OwnedMessage(Box<Body>);

pub(crate) struct Body {
    status: Status,
    bytes: Bytes,
}

enum Bytes {
    /// Here, up to the status' length.
    Short([u8; SHORT_BYTES_MAX]),
    Long(Vec<u8>, Option<Pool>),
    /// Where the sender wrote it.
    Held(Held),
}

/// An empty message of nobody.
impl Default for OwnedMessage {
    #[inline]
    fn default() -> Self {
        let status = Status { source: Peer::new(0, 0), tag: 0, bytes: 0, immediate: None };
        Self(Box::new(Body { status, bytes: Bytes::Short([0; SHORT_BYTES_MAX]) }))
    }
}

impl OwnedMessage {
    /// Where a message goes whose length is not known yet, if it is short.
    #[inline(always)]
    pub(crate) fn short(&mut self) -> &mut [u8] {
        match &mut self.0.bytes {
            Bytes::Short(bytes) => bytes,
            Bytes::Long(bytes, _) => bytes,
            Bytes::Held(_) => &mut [],
        }
    }

    /// The message lies there.
    pub(crate) fn set_held(&mut self, held: Held) {
        self.0.set(Bytes::Held(held));
    }

    /// Gets ready for a message of `bytes` bytes. `None` if there is no memory.
    pub(crate) fn prepare(&mut self, bytes: u64, pool: &Pool) -> Option<&mut Body> {
        if bytes > SHORT_BYTES_MAX as u64 {
            let memory = pool.take(bytes)?;
            self.0.set_long(memory, pool);
        }
        Some(&mut self.0)
    }

    /// All of its bytes have been written.
    #[inline(always)]
    pub(crate) fn set_status(&mut self, status: Status) {
        self.0.status = status;
    }

    /// Who sent it, its tag and its length.
    #[must_use]
    pub fn status(&self) -> Status {
        self.0.status
    }

    /// Who sent it.
    #[must_use]
    pub fn source(&self) -> Peer {
        self.0.status.source
    }

    /// Its tag.
    #[must_use]
    pub fn tag(&self) -> u64 {
        self.0.status.tag
    }

    /// Whether its bytes lie where the sender wrote them: receiving it has copied nothing.
    #[must_use]
    pub fn is_in_place(&self) -> bool {
        matches!(self.0.bytes, Bytes::Held(_))
    }

    /// Its bytes in a vector. A message of more than 160 bytes is not copied for that, unless it is
    /// [in place](Self::is_in_place).
    #[must_use]
    pub fn into_vec(mut self) -> Vec<u8> {
        match &mut self.0.bytes {
            Bytes::Short(_) | Bytes::Held(_) => self.to_vec(),
            Bytes::Long(bytes, _) => std::mem::take(bytes),
        }
    }
}

impl Deref for OwnedMessage {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match &self.0.bytes {
            Bytes::Short(bytes) => {
                let length = usize::try_from(self.0.status.bytes).unwrap_or(SHORT_BYTES_MAX);
                &bytes[..length.min(SHORT_BYTES_MAX)]
            }
            Bytes::Long(bytes, _) => bytes,
            Bytes::Held(held) => held,
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
        f.debug_struct("OwnedMessage").field("status", &self.0.status).finish_non_exhaustive()
    }
}

impl Drop for Body {
    #[inline]
    fn drop(&mut self) {
        if let Bytes::Long(bytes, Some(pool)) = &mut self.bytes {
            pool.give_back(std::mem::take(bytes));
        }
    }
}

impl Body {
    /// Puts the message in memory that was taken from `pool`.
    fn set_long(&mut self, memory: Vec<u8>, pool: &Pool) {
        let home = Pool::keeps(&memory).then(|| pool.clone());
        self.set(Bytes::Long(memory, home));
    }

    fn set(&mut self, bytes: Bytes) {
        let before = std::mem::replace(&mut self.bytes, bytes);
        if let Bytes::Long(unfit, Some(pool)) = before {
            pool.give_back(unfit);
        }
    }
}

impl Sink for Body {
    fn room(&self) -> usize {
        match &self.bytes {
            Bytes::Short(_) => SHORT_BYTES_MAX,
            Bytes::Long(bytes, _) => bytes.room(),
            Bytes::Held(_) => 0,
        }
    }

    #[inline]
    fn put(&mut self, at: usize, source: &[u8]) -> usize {
        match &mut self.bytes {
            Bytes::Short(bytes) => bytes[..].put(at, source),
            Bytes::Long(bytes, _) => bytes.put(at, source),
            Bytes::Held(_) => 0,
        }
    }

    fn landing(&mut self) -> Landing<'_> {
        match &mut self.bytes {
            Bytes::Short(bytes) => Landing::of_slice(bytes),
            Bytes::Long(bytes, _) => bytes.landing(),
            Bytes::Held(_) => Landing::of_slice(&mut []),
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

    /// Takes over a message that stays where it is. Returns it if it cannot.
    fn hold(&mut self, held: Held) -> Option<Held> {
        Some(held)
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

/// An [`OwnedMessage`] that is being received.
#[derive(Debug)]
pub(crate) struct Filling {
    message: OwnedMessage,
    pool: Pool,
}

impl Filling {
    pub(crate) fn new(pool: &Pool) -> Self {
        Self { message: OwnedMessage::default(), pool: pool.clone() }
    }

    /// The message, of which everything has been written.
    pub(crate) fn finish(mut self, status: Status) -> OwnedMessage {
        self.message.set_status(status);
        self.message
    }
}

impl Sink for Filling {
    fn room(&self) -> usize {
        self.message.0.room()
    }

    fn put(&mut self, at: usize, source: &[u8]) -> usize {
        self.message.0.put(at, source)
    }

    fn landing(&mut self) -> Landing<'_> {
        self.message.0.landing()
    }
}

impl Target for Filling {
    fn prepare(&mut self, bytes: u64) -> Result<(), MessageError> {
        if self.room() as u64 >= bytes {
            return Ok(());
        }
        let is_prepared = self.message.prepare(bytes, &self.pool).is_some();
        is_prepared.then_some(()).ok_or(MessageError::NoMemory { bytes })
    }

    fn adopts(&self) -> bool {
        true
    }

    fn adopt(&mut self, bytes: Vec<u8>) -> Option<Vec<u8>> {
        self.message.0.set_long(bytes, &self.pool);
        None
    }

    fn hold(&mut self, held: Held) -> Option<Held> {
        self.message.set_held(held);
        None
    }

    fn written(&mut self, count: usize) -> Vec<u8> {
        match &mut self.message.0.bytes {
            Bytes::Short(bytes) => bytes[..count].to_vec(),
            Bytes::Long(bytes, _) => std::mem::take(bytes),
            // It came whole.
            Bytes::Held(held) => held.to_vec(),
        }
    }
}
