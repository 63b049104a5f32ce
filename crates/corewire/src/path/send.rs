//! Sending: loan, write in place, send; wait if there is no room.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Duration;

use corewire_layout::counters::SenderCounter;
use corewire_layout::segment::Policy;
use corewire_ring::broadcast::{self as ring, SenderShared};
use corewire_ring::doorbell::notice;
use corewire_ring::{Host, Kernel, Lock};

use crate::error::{CounterError, SendError};
use crate::halves::SenderHalf;
use crate::host::{Hosted, SenderRing as Ring};
use crate::path::common::common_methods;
use crate::path::room::{Claimant, check_notices, wait_for_room};
use crate::typed::payload::Payload;
use crate::typed::schema::MessageType;
use crate::wait::{Interrupter, Patience, Poller, Wait};

/// The only sender of a channel, returned by [`SenderBuilder::create`](crate::SenderBuilder::create).
///
/// Every receiver that has joined gets every message. No message is overwritten before all of them have read it, so a
/// slow receiver slows the sender down. This is the policy *Block*; [`overwrite`](crate::SenderBuilder::overwrite) and
/// [`evict`](crate::SenderBuilder::evict) select others. Without a receiver, sending succeeds. The messages then stay
/// in the ring until later ones overwrite them, for a receiver that begins with the oldest
/// ([`ReceiverBuilder::from_oldest`](crate::ReceiverBuilder::from_oldest)). Receivers that wait for the channel when it
/// is created get its first message: the first send waits until each of them has joined, stopped waiting or died.
///
/// `T` is what its messages hold: bytes, or values of one type ([`SenderBuilder::typed`](crate::SenderBuilder::typed)).
///
/// Dropping the sender closes the channel: receivers get the messages sent so far, then the end of the stream.
///
/// After ZIMP (section III-A): a message is allocated in the channel and sent once for all receivers.
pub struct Sender<T: ?Sized = [u8]> {
    pub(crate) untyped: Untyped,
    _type: PhantomData<fn(&T)>,
}

/// A sender, whatever its messages hold. Compiled once, not once for each type.
pub(crate) struct Untyped {
    ring: Ring,
    half: Arc<dyn SenderHalf>,
    poller: Poller,
    /// True if the channel is not closed when the sender is dropped.
    hangs_up: bool,
}

/// For bytes and values.
impl<T: Payload + ?Sized> Sender<T> {
    /// Sends `message`, waiting for room if there is none. It is copied once, into the channel. [`loan`](Self::loan)
    /// needs no copy, and is faster for a message that is composed of parts.
    ///
    /// # Errors
    /// [`SendError::TooLarge`], `Interrupted` or `Forked`; nothing was sent.
    #[inline(always)]
    pub fn send(&mut self, message: &T) -> Result<(), SendError> {
        self.untyped.send(message.bytes())
    }
}

common_methods!(Sender, Loan);

impl Untyped {
    pub(crate) fn new(ring: Ring, half: Arc<dyn SenderHalf>, wait: Wait, hangs_up: bool) -> Self {
        Self { ring, half, poller: Poller::for_room(wait), hangs_up }
    }

    #[inline(always)]
    fn send(&mut self, message: &[u8]) -> Result<(), SendError> {
        let fits = message.len() as u64 <= self.ring.geometry().message_bytes_max();
        if fits && self.ring.try_send_inline(message) {
            return Ok(());
        }
        self.send_within(message, Patience::Forever)
    }

    /// The slow half of [`send`](Sender::send): the message does not fit in a slot, or no slot is free.
    #[inline(never)]
    fn send_within(&mut self, message: &[u8], patience: Patience) -> Result<(), SendError> {
        let mut loan = self.loan_within(message.len(), patience)?;
        loan.ring.fill(message);
        loan.send();
        Ok(())
    }

    #[inline(always)]
    pub(super) fn loan_within(
        &mut self,
        bytes: usize,
        patience: Patience,
    ) -> Result<Loan<'_>, SendError> {
        self.check_fits(bytes)?;
        let Self { ring, half: owner, poller, .. } = self;
        // The owner is loaded only when needed, since that would be one load for each message.
        let loan = ring.loan_with(bytes, &*owner, |ring| {
            wait_for_room(&mut Claiming { ring, owner }, poller, bytes, patience)
        })?;
        Ok(Loan { ring: loan, _type: PhantomData })
    }

    pub(super) fn wake_if_asleep(&mut self) {
        if self.ring.someone_sleeps() {
            self.ring.ring_bell();
        }
    }

    fn wait_for_receivers_within(
        &mut self,
        count: usize,
        patience: Patience,
    ) -> Result<usize, SendError> {
        let owner = Arc::clone(&self.half);
        loop {
            check_notices(self.ring.shared())?;
            let joined = owner.joined();
            let Some(limit_ns) = patience.limit_ns() else { return Ok(joined) };
            if joined >= count {
                return Ok(joined);
            }
            self.ring.sleep_until(&owner, limit_ns, |_| owner.joined() >= count);
        }
    }

    fn drain(&mut self, timeout: Duration) -> Result<bool, SendError> {
        let owner = Arc::clone(&self.half);
        let patience = Patience::until(timeout);
        loop {
            check_notices(self.ring.shared())?;
            self.ring.refresh(&owner);
            let is_drained = self.ring.is_drained();
            let Some(limit_ns) = patience.limit_ns().filter(|_| !is_drained) else {
                return Ok(is_drained);
            };
            self.ring.sleep_until(&owner, limit_ns, Ring::is_drained);
        }
    }

    fn sent(&self) -> u64 {
        self.ring.head()
    }
}

impl<T: ?Sized> Sender<T> {
    pub(crate) fn new(untyped: Untyped) -> Self {
        Self { untyped, _type: PhantomData }
    }

    /// Waits until every receiver has finished with every message sent so far, for at most `timeout`. Returns false if
    /// the time ran out. On two levels ([`Levels`](crate::Levels)) relays count as receivers, and the receivers behind
    /// them may still be reading. A receiver that has read every message but does not ask for more may not have
    /// reported this yet: see [`Receiver::acknowledge`](crate::Receiver::acknowledge).
    ///
    /// # Errors
    /// [`SendError::Interrupted`] or `Forked`.
    pub fn drain(&mut self, timeout: Duration) -> Result<bool, SendError> {
        self.untyped.drain(timeout)
    }

    /// Number of messages sent so far.
    #[must_use]
    pub fn sent(&self) -> u64 {
        self.untyped.sent()
    }

    /// Closes the channel: receivers get the messages sent so far, then the end of the stream. Same as dropping the
    /// sender. Does not wait for the receivers (see [`drain`](Self::drain)).
    pub fn close(self) {}
}

impl Drop for Untyped {
    fn drop(&mut self) {
        if !self.is_forked() {
            if !self.hangs_up {
                self.ring.close();
            }
            self.half.close();
        }
    }
}

/// Memory for a message, lent for writing. It derefs to the message. Dropping it sends nothing.
pub struct Loan<'a, T: ?Sized = [u8]> {
    pub(crate) ring: ring::Loan<'a, Hosted>,
    _type: PhantomData<fn(&T)>,
}

impl<'a> Loan<'a> {
    #[inline]
    fn of<T>(self) -> Loan<'a, T> {
        Loan { ring: self.ring, _type: PhantomData }
    }
}

impl<T: ?Sized> Loan<'_, T> {
    /// Publishes the message. Every receiver will get it, even if this process dies immediately.
    #[inline(always)]
    pub fn send(self) {
        self.ring.send();
    }
}

/// The sender and its owner, during a wait for room.
struct Claiming<'a> {
    ring: &'a mut Ring,
    owner: &'a Arc<dyn SenderHalf>,
}

impl Claimant for Claiming<'_> {
    fn shared(&self) -> &SenderShared {
        self.ring.shared()
    }

    fn refresh(&mut self) {
        self.ring.refresh(self.owner);
    }

    fn has_room(&self, bytes: usize) -> bool {
        self.ring.has_room(bytes)
    }

    fn make_room(&mut self, bytes: usize) {
        let (ring, owner) = (&mut *self.ring, self.owner);
        ring.give_up_for(bytes);
        if !ring.has_room(bytes) && owner.invited() > 0 && owner.invitation_left_ns() == 0 {
            owner.cancel_invitations();
            ring.refresh(owner);
        }
        let is_evicting = matches!(ring.policy(), Policy::Evict { .. }) && !ring.has_room(bytes);
        let now_ns = || ring.host().kernel().now_ns();
        if is_evicting && ring.evict_stalled(bytes, now_ns(), owner) {
            ring.refresh(owner);
        }
        owner.drop_rejected();
    }

    fn forget_stalls(&mut self) {
        self.owner.drop_rejected();
        self.ring.forget_stalls(self.owner);
    }

    /// The last invited receiver may have joined since the cursors were read.
    fn refusal(&mut self, bytes: usize) -> Option<SendError> {
        match self.owner.invited() {
            0 => self.refresh(),
            count => return Some(SendError::Joining { count }),
        }
        (!self.has_room(bytes)).then(|| SendError::Full { lag: self.lag() })
    }

    fn timeout_error(&self, after: Duration) -> SendError {
        match self.owner.invited() {
            0 => SendError::Timeout { after, lag: self.lag() },
            count => SendError::Joining { count },
        }
    }

    fn begin_wait(&mut self) {
        self.ring.count_wait();
        if self.ring.someone_sleeps() {
            self.ring.ring_bell();
        }
    }

    fn is_slowest_here(&self) -> bool {
        let cpu = self.ring.host().kernel().cpu();
        self.ring.slowest().is_some_and(|slowest| self.ring.receiver_cpu(slowest.row) == cpu)
    }

    fn sleep(&mut self, bytes: usize, limit_ns: u64) {
        let (ring, owner) = (&mut *self.ring, self.owner);
        let limit_ns = match ring.policy() {
            Policy::Evict { .. } => limit_ns.min(owner.with(|members| members.patience_left_ns())),
            _ => limit_ns,
        };
        let limit_ns = limit_ns.min(owner.invitation_left_ns());
        ring.sleep_until(owner, limit_ns, |ring| ring.has_room(bytes));
    }
}

impl Claiming<'_> {
    /// Number of messages that the slowest receiver is behind.
    fn lag(&self) -> u64 {
        self.ring.slowest().map_or(0, |slowest| self.ring.head() - slowest.cursor)
    }
}
