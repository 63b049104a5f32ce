//! Receiving by copying out, for messages that may be overwritten while they are read, and for senders that are not
//! trusted. Every copy is checked to be one complete message.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use corewire_ring::broadcast::{self as ring};
use zerocopy::{FromBytes, IntoBytes};

use crate::error::{Overwritten, ReceiveError, ValueError};
use crate::halves::ReceiverHalf;
use crate::host::{Hosted, ReceiverRing as Ring};
use crate::path::receive::{
    Copying, Receiver, Unready, Untyped, check, look, until_end, wait_for_message,
};
use crate::typed::schema::MessageType;
use crate::wait::{NO_LIMIT_NS, Poller};

/// A receiver that copies messages out, from any channel, whatever its policy and its sender. Returned by
/// [`ReceiverBuilder::snapshots`](crate::ReceiverBuilder::snapshots).
///
/// - On a channel that **overwrites**, it misses the messages that the sender overwrites before it reads them.
///   [`missed`](Receiver::missed) counts them exactly: every message from where it joined is either received or
///   counted. After a loss, it continues a quarter of the ring after the oldest message left, so that it does not lose
///   messages again at once.
/// - On a channel that **evicts**, it gets every message in order until it has delayed the sender for too long. Then it
///   gets [`ReceiveError::Evicted`].
/// - On a channel of **another user**, it gets whatever that user wrote. It reads nothing beyond the channel's memory,
///   and an impossible value is a [`ReceiveError::Violation`].
///
/// From a channel of values of one type ([`ReceiverBuilder::typed`](crate::ReceiverBuilder::typed)) it returns the values.
///
/// Compared with receiving in place, it costs the copy and the load of a word that rarely changes.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let dir = std::env::temp_dir().join(format!("corewire-doc-snapshot-{}", std::process::id()));
/// # let domain = corewire::Domain::open_at(&dir)?;
/// let mut prices = domain.sender("prices").slots(64).overwrite().create()?;
/// let mut reader = domain.receiver("prices").snapshots().join()?;
/// for price in 0..1000u64 {
///     prices.send(&price.to_le_bytes())?; // never waits for the reader
/// }
/// let mut buffer = [0; 8];
/// reader.receive_into(&mut buffer)?;
/// assert!(u64::from_le_bytes(buffer) >= 1000 - 64);
/// assert_eq!(u64::from_le_bytes(buffer), reader.missed());
/// # drop(reader); drop(prices); drop(domain); std::fs::remove_dir_all(&dir)?;
/// # Ok(())
/// # }
/// ```
pub type SnapshotReceiver<T = [u8]> = Receiver<T, Copying>;

/// For bytes, copied out.
impl Receiver<[u8], Copying> {
    /// Returns the next message, to be copied out, waiting for it if necessary. Dropping the [`Snapshot`] finishes with
    /// the message.
    ///
    /// # Errors
    /// [`ReceiveError::EndOfStream`], `SenderDied` or `Evicted` if no message will come any more; `Violation`,
    /// `Interrupted`, `Forked`.
    #[inline(always)]
    pub fn receive(&mut self) -> Result<Snapshot<'_>, ReceiveError> {
        self.untyped.next()
    }

    /// Returns the next message if there is one now. Never blocks.
    ///
    /// # Errors
    /// As for [`receive`](Self::receive).
    #[inline(always)]
    pub fn try_receive(&mut self) -> Result<Option<Snapshot<'_>>, ReceiveError> {
        self.untyped.try_next()
    }

    /// Returns the next message, waiting for at most `timeout`; `None` if no message came.
    ///
    /// # Errors
    /// As for [`receive`](Self::receive).
    pub fn receive_timeout(
        &mut self,
        timeout: Duration,
    ) -> Result<Option<Snapshot<'_>>, ReceiveError> {
        self.untyped.next_timeout(timeout)
    }

    /// Copies the next message into `buffer`, waiting for it if necessary, and returns its length. If a message is
    /// overwritten during the copy, it is missed, and the next one is copied instead.
    ///
    /// # Errors
    /// [`ReceiveError::BufferTooSmall`], after which the message is still the next one; otherwise as for
    /// [`receive`](Self::receive).
    pub fn receive_into(&mut self, buffer: &mut [u8]) -> Result<usize, ReceiveError> {
        let given = buffer.len();
        loop {
            let mut snapshot = self.receive()?;
            let needed = snapshot.len();
            let Some(target) = buffer.get_mut(..needed) else {
                if snapshot.ring.confirm().is_err() {
                    continue;
                }
                snapshot.ring.put_back();
                return Err(ReceiveError::BufferTooSmall { needed, given });
            };
            if snapshot.copy_to(0, target).is_ok() {
                return Ok(needed);
            }
        }
    }

    /// Calls `job` with a copy of each message until the end of the stream.
    ///
    /// # Errors
    /// As for [`receive`](Self::receive), except for the end of the stream.
    pub fn for_each(&mut self, mut job: impl FnMut(&[u8])) -> Result<(), ReceiveError> {
        let mut buffer = Vec::new();
        until_end(|| {
            if self.receive()?.copy_into(&mut buffer).is_ok() {
                job(&buffer);
            }
            Ok(())
        })
    }
}

/// They are compiled once, not once for each type.
impl Untyped<Copying> {
    #[inline(always)]
    pub(super) fn next(&mut self) -> Result<Snapshot<'_>, ReceiveError> {
        let Self { ring, poller, attachment, .. } = self;
        match ring.snapshot_with(|ring| wait_on(ring, poller, attachment, NO_LIMIT_NS)) {
            Ok(ring) => Ok(Snapshot { ring }),
            Err(error) => Err(attachment.failed(error)),
        }
    }

    #[inline(always)]
    pub(super) fn try_next(&mut self) -> Result<Option<Snapshot<'_>>, ReceiveError> {
        let Self { ring, attachment, .. } = self;
        match ring.snapshot_with(|ring| look(ring, attachment)) {
            Ok(ring) => Ok(Some(Snapshot { ring })),
            Err(Unready::NotYet) => Ok(None),
            Err(Unready::Failed(error)) => Err(attachment.failed(error)),
        }
    }

    pub(super) fn next_timeout(
        &mut self,
        timeout: Duration,
    ) -> Result<Option<Snapshot<'_>>, ReceiveError> {
        let deadline = Instant::now().checked_add(timeout);
        let Self { ring, poller, attachment, .. } = self;
        let snapshot = ring.snapshot_with(|ring| {
            let left =
                deadline.map_or(Duration::MAX, |at| at.saturating_duration_since(Instant::now()));
            match u64::try_from(left.as_nanos()).unwrap_or(u64::MAX) {
                0 => look(ring, attachment),
                left_ns => wait_on(ring, poller, attachment, left_ns).map_err(Unready::Failed),
            }
        });
        match snapshot {
            Ok(ring) => Ok(Some(Snapshot { ring })),
            Err(Unready::NotYet) => Ok(None),
            Err(Unready::Failed(error)) => Err(attachment.failed(error)),
        }
    }
}

/// For bytes and values, copied out.
impl<T: ?Sized> Receiver<T, Copying> {
    /// Number of messages that were overwritten before this receiver had read them. Together with the received
    /// messages, these are all messages from where it joined.
    #[must_use]
    pub fn missed(&self) -> u64 {
        self.untyped.ring.missed()
    }
}

/// Like the wait of a receiver in place, but first checks for an interruption or an eviction: if the sender always
/// overwrites messages before the copy is complete, there is always a message, and so never a wait.
#[cold]
fn wait_on(
    ring: &mut Ring,
    poller: &mut Poller,
    half: &Arc<dyn ReceiverHalf>,
    limit_ns: u64,
) -> Result<(), ReceiveError> {
    if check(ring, half, 0)? {
        return Ok(());
    }
    wait_for_message(ring, poller, half, limit_ns)
}

/// A message to be copied out. Its bytes are available only through checked copies. If a copy fails, the message counts
/// as missed.
pub struct Snapshot<'a> {
    ring: ring::Snapshot<'a, Hosted>,
}

impl Snapshot<'_> {
    /// Its number in the channel, from 0.
    #[inline]
    #[must_use]
    pub fn sequence(&self) -> u64 {
        self.ring.sequence()
    }

    /// Its length in bytes, as in its slot. A successful copy confirms it.
    #[inline(always)]
    #[must_use]
    pub fn len(&self) -> usize {
        self.ring.bytes()
    }

    /// True if it has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copies its bytes from `offset` on into `target`.
    ///
    /// # Errors
    /// [`Overwritten`]; the content of `target` is then undefined.
    ///
    /// # Panics
    /// If `offset` and `target` reach beyond the message.
    #[inline(always)]
    pub fn copy_to(&mut self, offset: usize, target: &mut [u8]) -> Result<(), Overwritten> {
        self.ring.copy_out(offset, target).map_err(|_| Overwritten { sequence: self.sequence() })
    }

    /// Replaces the content of `buffer` with the whole message.
    ///
    /// # Errors
    /// [`Overwritten`]; the content of `buffer` is then undefined.
    pub fn copy_into(&mut self, buffer: &mut Vec<u8>) -> Result<(), Overwritten> {
        buffer.resize(self.len(), 0);
        self.copy_to(0, buffer)
    }

    /// Returns a copy of the whole message.
    ///
    /// # Errors
    /// [`Overwritten`].
    pub fn to_vec(&mut self) -> Result<Vec<u8>, Overwritten> {
        let mut copy = Vec::new();
        self.copy_into(&mut copy)?;
        Ok(copy)
    }

    /// Returns a copy of the message as a value.
    ///
    /// # Errors
    /// [`ReceiveError::Value`] if it has another length, [`ReceiveError::Overwritten`].
    #[inline]
    pub fn read<T: MessageType>(&mut self) -> Result<T, ReceiveError> {
        if self.len() != size_of::<T>() {
            let (expected, found) = (size_of::<T>(), self.len());
            self.ring.confirm().map_err(|_| Overwritten { sequence: self.sequence() })?;
            return Err(ValueError { name: T::NAME, expected, found }.into());
        }
        Ok(self.read_at(0)?)
    }

    /// Returns a copy of the plain value at `offset` in the message.
    ///
    /// # Errors
    /// [`Overwritten`].
    ///
    /// # Panics
    /// If the value reaches beyond the message.
    #[inline]
    pub fn read_at<T: FromBytes + IntoBytes>(&mut self, offset: usize) -> Result<T, Overwritten> {
        let mut value = T::new_zeroed();
        self.copy_to(offset, value.as_mut_bytes())?;
        Ok(value)
    }
}

impl fmt::Debug for Snapshot<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (sequence, bytes) = (self.sequence(), self.len());
        f.debug_struct("Snapshot").field("sequence", &sequence).field("bytes", &bytes).finish()
    }
}
