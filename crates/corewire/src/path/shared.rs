//! Sending on a channel with several senders.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Duration;

use corewire_layout::counters::SenderCounter;
use corewire_layout::segment::Policy;
use corewire_layout::slot::INLINE_BYTES_MAX;
use corewire_ring::broadcast::SenderShared;
use corewire_ring::copying::{self, NextReader};
use corewire_ring::doorbell::notice;
use corewire_ring::shared as ring;
use corewire_ring::{Host, Kernel};

use crate::error::{CounterError, SendError};
use crate::halves::MemberHalf;
use crate::host::{Hosted, SharedRing as Ring};
use crate::path::common::common_methods;
use crate::path::room::{Claimant, check_notices, wait_for_room};
use crate::typed::payload::Payload;
use crate::typed::schema::MessageType;
use crate::wait::{Interrupter, Patience, Poller, Wait};

/// One of the senders of a shared channel, returned by
/// [`SenderBuilder::open_shared`](crate::SenderBuilder::open_shared).
///
/// Every receiver gets every message of every sender, and all receivers get them in the same order. If one send
/// returned before another began, their messages are in that order. A message that was sent is delivered even if its
/// sender dies at once. An incomplete message of a dead sender is skipped by all receivers. Senders join and leave
/// while others send. The channel lives as long as one of its senders.
///
/// A sender that is stopped in the few instructions between claiming a slot and publishing it delays all senders and
/// receivers, because it is not dead. No slot is claimed while a message is being written: [`loan`](Self::loan) lends
/// private memory, or room in this sender's own window.
///
/// `T` is what its messages hold: bytes, or values of one type ([`SenderBuilder::typed`](crate::SenderBuilder::typed)).
///
/// A message costs one locked instruction. A [`batch`](Self::batch) needs only one for 16 messages.
///
/// Dropping the last sender closes the channel. All senders run as one user.
///
/// After ZIMP (section III-A): one total order over several senders.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let dir = std::env::temp_dir().join(format!("corewire-doc-shared-{}", std::process::id()));
/// # let domain = corewire::Domain::open_at(&dir)?;
/// let mut one = domain.sender("events").open_shared(8)?; // any process may do this
/// let mut other = domain.sender("events").open_shared(8)?;
/// let mut receiver = domain.receiver("events").join()?;
/// one.send(b"first")?;
/// other.send(b"second")?;
/// assert_eq!(&receiver.receive()?[..], b"first");
/// assert_eq!(&receiver.receive()?[..], b"second");
/// # drop((receiver, one, other, domain)); std::fs::remove_dir_all(&dir)?;
/// # Ok(())
/// # }
/// ```
pub struct SharedSender<T: ?Sized = [u8]> {
    untyped: Untyped,
    _type: PhantomData<fn(&T)>,
}

/// A sender, whatever its messages hold. Compiled once, not once for each type.
pub(crate) struct Untyped {
    ring: Ring,
    half: Arc<dyn MemberHalf>,
    poller: Poller,
}

/// For bytes and values.
impl<T: Payload + ?Sized> SharedSender<T> {
    /// Sends `message`, waiting for room if there is none.
    ///
    /// # Errors
    /// [`SendError::TooLarge`], `Interrupted` or `Forked`; nothing was sent.
    #[inline]
    pub fn send(&mut self, message: &T) -> Result<(), SendError> {
        self.untyped.send_within(message.bytes(), Patience::Forever)
    }
}

common_methods!(SharedSender, SharedLoan);

impl Untyped {
    pub(crate) fn new(ring: Ring, half: Arc<dyn MemberHalf>, wait: Wait) -> Self {
        Self { ring, half, poller: Poller::for_room(wait) }
    }

    #[inline(always)]
    fn send_within(&mut self, message: &[u8], patience: Patience) -> Result<(), SendError> {
        if message.len() > INLINE_BYTES_MAX {
            let mut loan = self.loan_within(message.len(), patience)?;
            copying::copy_slice(NextReader::Peer, message, &mut loan);
            return loan.send_within(patience);
        }
        self.check_fits(message.len())?;
        let Self { ring, poller, .. } = self;
        ring.send_inline(message, |ring| wait_for_room(ring, poller, message.len(), patience))
    }

    fn loan_within(
        &mut self,
        bytes: usize,
        patience: Patience,
    ) -> Result<SharedLoan<'_>, SendError> {
        self.check_fits(bytes)?;
        let Self { ring, poller, .. } = self;
        let ring = ring.loan_with(bytes, |ring| wait_for_room(ring, poller, bytes, patience))?;
        Ok(SharedLoan { ring, poller, _type: PhantomData })
    }

    #[inline]
    fn stage(&mut self, message: &[u8]) -> Result<(), SendError> {
        self.check_fits(message.len())?;
        let Self { ring, poller, .. } = self;
        ring.stage(message, |ring| wait_for_room(ring, poller, message.len(), Patience::Forever))
    }

    #[inline]
    fn stage_with(&mut self, bytes: usize, write: impl FnOnce(&mut [u8])) -> Result<(), SendError> {
        self.check_fits(bytes)?;
        let Self { ring, poller, .. } = self;
        let wait = |ring: &mut Ring| wait_for_room(ring, poller, bytes, Patience::Forever);
        ring.stage_with(bytes, write, wait)
    }

    fn flush(&mut self) -> Result<(), SendError> {
        let Self { ring, poller, .. } = self;
        let flushed = ring.flush(&mut |ring| wait_for_room(ring, poller, 0, Patience::Forever));
        if flushed.is_err() {
            ring.abandon();
        }
        flushed
    }

    fn end_batch(&mut self) {
        // A caller that needs the error calls `finish`.
        if !std::thread::panicking() {
            let _ = self.flush();
            return;
        }
        let Self { ring, poller, .. } = self;
        if ring.flush(&mut |ring| wait_for_room(ring, poller, 0, Patience::None)).is_err() {
            ring.abandon();
        }
    }

    fn wait_for_receivers_within(
        &mut self,
        count: usize,
        patience: Patience,
    ) -> Result<usize, SendError> {
        let member = Arc::clone(&self.half);
        loop {
            check_notices(self.ring.shared())?;
            let is_over = |ring: &Ring| member.joined() >= count && !ring.is_held();
            let (is_over_now, joined) = (is_over(&self.ring), member.joined());
            let Some(limit_ns) = patience.limit_ns().filter(|_| !is_over_now) else {
                return Ok(joined);
            };
            // The process that admits a receiver may be another one, which does not notify this sender.
            self.ring.sleep_until_read(limit_ns.min(JOIN_LOOK_NS), is_over);
        }
    }

    fn drain(&mut self, timeout: Duration) -> Result<bool, SendError> {
        let patience = Patience::until(timeout);
        loop {
            check_notices(self.ring.shared())?;
            self.ring.refresh();
            let is_drained = self.ring.is_drained();
            let Some(limit_ns) = patience.limit_ns().filter(|_| !is_drained) else {
                return Ok(is_drained);
            };
            self.ring.sleep_until_read(limit_ns, Ring::is_drained);
        }
    }

    fn sent(&self) -> u64 {
        self.ring.sent()
    }
}

/// For bytes.
impl SharedSender {
    /// Sends all `messages`, in order, up to 16 with one locked instruction. Waits for room if there is none. Messages
    /// of other senders may come between two runs of 16. This is the fastest way to send many short messages that are
    /// already in memory.
    ///
    /// # Errors
    /// As for [`send`](Self::send), but earlier runs of 16 may have been sent: [`sent`](Self::sent) counts their
    /// messages.
    pub fn send_all(&mut self, messages: &[&[u8]]) -> Result<(), SendError> {
        for run in messages.chunks(RUN_MESSAGES) {
            if run.iter().all(|message| message.len() <= INLINE_BYTES_MAX) {
                let untyped = &mut self.untyped;
                run.iter().try_for_each(|message| untyped.check_fits(message.len()))?;
                let Untyped { ring, poller, .. } = untyped;
                ring.send_run(run, |ring| wait_for_room(ring, poller, 0, Patience::Forever))?;
            } else {
                let mut batch = self.batch();
                run.iter().try_for_each(|message| batch.send(message))?;
                batch.finish()?;
            }
        }
        Ok(())
    }
}

impl<T: ?Sized> SharedSender<T> {
    pub(crate) fn new(untyped: Untyped) -> Self {
        Self { untyped, _type: PhantomData }
    }

    /// Begins a batch. Up to 16 of its messages at a time are sent together, with one locked instruction and one check
    /// for sleeping receivers.
    pub fn batch(&mut self) -> SharedBatch<'_, T> {
        SharedBatch { sender: self }
    }

    /// Waits until every receiver has finished with every message that this sender has sent, for at most `timeout`.
    /// Returns false if the time ran out.
    ///
    /// # Errors
    /// [`SendError::Interrupted`] or `Forked`.
    pub fn drain(&mut self, timeout: Duration) -> Result<bool, SendError> {
        self.untyped.drain(timeout)
    }

    /// Number of messages that this sender has sent so far.
    #[must_use]
    pub fn sent(&self) -> u64 {
        self.untyped.sent()
    }

    /// Leaves the channel, like dropping the sender. The last sender to leave closes it. Messages that were sent are
    /// delivered; this call does not wait for that (see [`drain`](Self::drain)).
    pub fn close(self) {}
}

/// Maximum number of messages that are claimed together.
const RUN_MESSAGES: usize = 16;

/// How often a sender that waits for receivers checks whether they have joined, in ns.
const JOIN_LOOK_NS: u64 = 1_000_000;

impl Drop for Untyped {
    fn drop(&mut self) {
        if !self.is_forked() {
            // The order matters: a party that this host still admits finds a sender in the channel.
            self.half.close();
            self.ring.leave();
        }
    }
}

/// Memory for a message, lent for writing. It derefs to the message. Dropping it sends nothing.
pub struct SharedLoan<'a, T: ?Sized = [u8]> {
    ring: ring::Loan<'a, Hosted>,
    poller: &'a mut Poller,
    _type: PhantomData<fn(&T)>,
}

impl<'a, T: ?Sized> SharedLoan<'a, T> {
    /// Sends the message, waiting for a slot if there is none.
    ///
    /// # Errors
    /// [`SendError::Interrupted`] or `Forked`; nothing was sent.
    pub fn send(self) -> Result<(), SendError> {
        self.of::<[u8]>().send_within(Patience::Forever)
    }

    /// Sends the message if there is a slot now. Never blocks.
    ///
    /// # Errors
    /// [`SendError::Full`], or as for [`send`](Self::send); nothing was sent.
    pub fn try_send(self) -> Result<(), SendError> {
        self.of::<[u8]>().send_within(Patience::None)
    }

    /// The same memory, for another payload of its length.
    #[inline]
    fn of<U: ?Sized>(self) -> SharedLoan<'a, U> {
        SharedLoan { ring: self.ring, poller: self.poller, _type: PhantomData }
    }
}

impl SharedLoan<'_> {
    fn send_within(self, patience: Patience) -> Result<(), SendError> {
        let Self { ring, poller, .. } = self;
        ring.send(|ring| wait_for_room(ring, poller, 0, patience))
    }
}

/// Messages that are sent together. They are held back until there are 16 of them, or until [`finish`](Self::finish) or
/// the drop of the batch. A drop during a panic does not wait: messages for which there is no slot are lost.
pub struct SharedBatch<'a, T: ?Sized = [u8]> {
    sender: &'a mut SharedSender<T>,
}

impl<T: Payload + ?Sized> SharedBatch<'_, T> {
    /// Adds a message to the batch, waiting for room if there is none.
    ///
    /// # Errors
    /// As for [`SharedSender::send`]; this message was not added, and those before it are still in the batch.
    #[inline]
    pub fn send(&mut self, message: &T) -> Result<(), SendError> {
        self.sender.untyped.stage(message.bytes())
    }
}

/// For bytes.
impl SharedBatch<'_> {
    /// Lends memory for one message of `bytes` bytes, calls `write` to fill it, and adds it to the batch. The memory
    /// has no meaningful content at first. If `write` panics, nothing is added.
    ///
    /// # Errors
    /// As for [`send`](Self::send).
    #[inline]
    pub fn send_with(
        &mut self,
        bytes: usize,
        write: impl FnOnce(&mut [u8]),
    ) -> Result<(), SendError> {
        self.sender.untyped.stage_with(bytes, write)
    }
}

/// For values of one type.
impl<T: MessageType> SharedBatch<'_, T> {
    /// Lends memory for one value, calls `write` to fill it, and adds it to the batch. Its fields have no meaningful
    /// content at first: write each of them. If `write` panics, nothing is added.
    ///
    /// # Errors
    /// As for [`send`](Self::send).
    #[inline]
    pub fn send_with(&mut self, write: impl FnOnce(&mut T)) -> Result<(), SendError> {
        self.sender.untyped.stage_with(size_of::<T>(), |bytes| write(T::view_mut(bytes)))
    }
}

impl<T: ?Sized> SharedBatch<'_, T> {
    /// Sends the batch's messages, waiting for slots if there are none.
    ///
    /// # Errors
    /// [`SendError::Interrupted`] or `Forked`; the batch's messages are lost.
    pub fn finish(self) -> Result<(), SendError> {
        self.sender.untyped.flush()
    }
}

impl<T: ?Sized> Drop for SharedBatch<'_, T> {
    fn drop(&mut self) {
        self.sender.untyped.end_batch();
    }
}

impl<T: ?Sized> fmt::Debug for SharedBatch<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedBatch").field("sender", &self.sender).finish()
    }
}

impl Claimant for Ring {
    fn shared(&self) -> &SenderShared {
        Self::shared(self)
    }

    fn refresh(&mut self) {
        Self::refresh(self);
    }

    fn has_room(&self, bytes: usize) -> bool {
        Self::has_room(self, bytes)
    }

    fn make_room(&mut self, bytes: usize) {
        self.watch_whom_we_wait_for();
        if self.remove_dead() || self.evict_stalled(bytes, self.host().kernel().now_ns()) {
            Self::refresh(self);
        }
    }

    fn forget_stalls(&mut self) {
        Self::forget_stalls(self);
    }

    fn refusal(&mut self, _bytes: usize) -> Option<SendError> {
        Some(SendError::Full { lag: self.lag() })
    }

    fn timeout_error(&self, after: Duration) -> SendError {
        SendError::Timeout { after, lag: self.lag() }
    }

    fn begin_wait(&mut self) {
        self.count_wait();
        if self.someone_sleeps() {
            self.ring_bell();
        }
    }

    fn is_slowest_here(&self) -> bool {
        Self::is_slowest_here(self)
    }

    fn sleep(&mut self, bytes: usize, limit_ns: u64) {
        let limit_ns = match self.policy() {
            Policy::Evict { .. } => limit_ns.min(self.patience_left_ns()),
            _ => limit_ns,
        };
        let is_held = self.is_held();
        let limit_ns = if is_held { limit_ns.min(self.hold_left_ns()) } else { limit_ns };
        self.sleep_until(limit_ns, |ring| ring.has_room(bytes));
    }
}
