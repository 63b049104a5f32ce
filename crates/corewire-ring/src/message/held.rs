//! A message that is read where its sender wrote it.

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::fmt;
use core::ops::Deref;

use crate::Trusted;
use crate::region::Payload;

/// Where messages of one sender are released.
pub trait Home: Send + Sync {
    /// The message with this release bit is not read any more. Called once for each message, by any thread.
    fn release(&self, bit: u16);
}

/// A message that lies where its sender wrote it. It derefs to its bytes. Dropping it, in any thread, releases it: the
/// sender may use its memory again.
pub struct Held {
    bytes: Bytes,
    bit: u16,
    home: Arc<dyn Home>,
}

enum Bytes {
    /// In the memory of another process, which the home keeps mapped.
    Shared(Payload, Trusted),
    Private(Box<[u8]>),
}

// SAFETY: the bytes are only read, and stay as they are until they are released, whatever thread does that.
unsafe impl Send for Held {}
// SAFETY: as for Send.
unsafe impl Sync for Held {}

impl Held {
    /// The message at `payload`, which is not released yet, and whose memory `home` keeps mapped.
    pub(crate) fn new(payload: Payload, trusted: Trusted, bit: u16, home: Arc<dyn Home>) -> Self {
        Self { bytes: Bytes::Shared(payload, trusted), bit, home }
    }

    /// A message in private memory, for a transport without shared memory.
    #[must_use]
    pub fn private(bytes: Box<[u8]>, bit: u16, home: Arc<dyn Home>) -> Self {
        Self { bytes: Bytes::Private(bytes), bit, home }
    }
}

impl Deref for Held {
    type Target = [u8];

    #[inline(always)]
    fn deref(&self) -> &[u8] {
        match &self.bytes {
            // SAFETY: published and not released; the sender is trusted not to write it until then. The home keeps the
            // memory mapped.
            Bytes::Shared(payload, trusted) => unsafe { payload.as_slice(*trusted) },
            Bytes::Private(bytes) => bytes,
        }
    }
}

impl Drop for Held {
    #[inline]
    fn drop(&mut self) {
        if let Bytes::Shared(payload, _) = &self.bytes {
            payload.end_read();
        }
        self.home.release(self.bit);
    }
}

impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Held").field("bytes", &self.len()).finish_non_exhaustive()
    }
}
