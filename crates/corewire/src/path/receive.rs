//! Receiving: find the stamp, read in place, release; wait if there is no message.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::Arc;
use std::time::{Duration, Instant};

use corewire_layout::counters::ReceiverCounter;
pub use corewire_ring::broadcast::InPlace;
use corewire_ring::broadcast::{self as ring, End};
use corewire_ring::copying::{self, NextReader};
use corewire_ring::doorbell::notice;

use crate::error::{CounterError, JoinError, ReceiveError};
use crate::halves::ReceiverHalf;
use crate::host::{Hosted, ReceiverRing as Ring};
use crate::typed::payload::Payload;
use crate::typed::schema::ChannelType;
use crate::wait::{Interrupter, NO_LIMIT_NS, Poller, Polls, Readiness, Wait};

/// A receiver of a channel, returned by [`ReceiverBuilder::join`](crate::ReceiverBuilder::join).
///
/// It gets every message from its first one on, in the order in which they were sent, each exactly once. If the sender
/// dies, the receiver first gets all messages that the sender committed, and then an error.
///
/// `T` is what its messages hold: bytes, or values of one type
/// ([`ReceiverBuilder::typed`](crate::ReceiverBuilder::typed)).
///
/// `A` says how it reads: [`InPlace`] reads messages where the sender wrote them; [`Copying`] copies them from channels
/// whose messages may be overwritten while they are read ([`SnapshotReceiver`](crate::SnapshotReceiver)).
///
/// Dropping the receiver leaves the channel, once the messages that it [holds](Message::hold) are dropped, too.
pub struct Receiver<T: ?Sized = [u8], A = InPlace> {
    pub(crate) untyped: Untyped<A>,
    _type: PhantomData<fn(&T)>,
}

/// A receiver, whatever its messages hold.
pub(crate) struct Untyped<A> {
    pub(crate) ring: Ring,
    pub(crate) attachment: Arc<dyn ReceiverHalf>,
    pub(crate) access: A,
    pub(crate) poller: Poller,
    /// Joins the channel again.
    joiner: Arc<dyn Join<A>>,
    /// The number of its first message.
    first: u64,
}

/// Joins a channel of the same name for an existing receiver: see [`Receiver::rejoin`].
pub(crate) trait Join<A>: Send + Sync {
    /// Joins.
    fn join(&self, again: Again) -> Result<Receiver<[u8], A>, JoinError>;
}

/// How to join again.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Again {
    /// The incarnation of the former channel if it has been closed. That channel does not count.
    pub(crate) former: Option<u128>,
    /// The former channel has ended, so all messages of another channel are new to the receiver.
    pub(crate) has_ended: bool,
    /// Waits for a channel to be created, for at most the inner time if there is one.
    pub(crate) wait: Option<Option<Duration>>,
}

/// Messages are copied out, word by word, and each copy is checked to be complete. For every policy, and for senders
/// that are not trusted.
#[derive(Debug, Clone, Copy)]
pub struct Copying(());

/// How a receiver reads: [`InPlace`] or [`Copying`].
pub trait Reading: Sized + sealed::Sealed {
    /// True if this way of reading needs a trusted sender.
    #[doc(hidden)]
    const IS_IN_PLACE: bool;

    /// The right to read in this way, if it is granted.
    #[doc(hidden)]
    fn grant(in_place: Option<InPlace>) -> Option<Self>;
}

impl Reading for InPlace {
    const IS_IN_PLACE: bool = true;

    fn grant(in_place: Option<InPlace>) -> Option<Self> {
        in_place
    }
}

impl Reading for Copying {
    const IS_IN_PLACE: bool = false;

    fn grant(_in_place: Option<InPlace>) -> Option<Self> {
        Some(Self(()))
    }
}

mod sealed {
    /// Restricts [`Reading`](super::Reading) to the two existing ways.
    pub trait Sealed {}
    impl Sealed for super::InPlace {}
    impl Sealed for super::Copying {}
}

/// Why a wait ended without a message: an error, or no time left.
pub(crate) enum Unready {
    NotYet,
    Failed(ReceiveError),
}

impl From<ring::Violation> for Unready {
    fn from(violation: ring::Violation) -> Self {
        Self::Failed(violation.into())
    }
}

/// For bytes and values, read in place.
impl<T: Payload + ?Sized> Receiver<T> {
    /// Receives the next message, in place, waiting for it if necessary. Dropping the [`Message`] releases its memory
    /// to the sender.
    ///
    /// # Errors
    /// [`ReceiveError::EndOfStream`] or `SenderDied` if no message will come any more; `Violation`, `Interrupted`,
    /// `Forked`. A message that is not a `T` ends as [`ReceiveError::Value`]; only a sender that does not use corewire
    /// can send one.
    #[inline(always)]
    pub fn receive(&mut self) -> Result<Message<'_, T>, ReceiveError> {
        let Untyped { ring, access, poller, attachment, .. } = &mut self.untyped;
        let wait = |ring: &mut Ring| wait_for_message(ring, poller, attachment, NO_LIMIT_NS);
        match ring.receive_with(*access, wait) {
            Ok(ring) => Message::new(ring),
            Err(error) => Err(attachment.failed(error)),
        }
    }

    /// Receives the next message if there is one now. Never blocks.
    ///
    /// # Errors
    /// As for [`receive`](Self::receive).
    #[inline(always)]
    pub fn try_receive(&mut self) -> Result<Option<Message<'_, T>>, ReceiveError> {
        let Untyped { ring, access, attachment, .. } = &mut self.untyped;
        match ring.receive_with(*access, |ring| look(ring, attachment)) {
            Ok(ring) => Message::new(ring).map(Some),
            Err(Unready::NotYet) => Ok(None),
            Err(Unready::Failed(error)) => Err(attachment.failed(error)),
        }
    }

    /// Receives the next message, waiting for at most `timeout`; `None` if no message came.
    ///
    /// # Errors
    /// As for [`receive`](Self::receive).
    pub fn receive_timeout(
        &mut self,
        timeout: Duration,
    ) -> Result<Option<Message<'_, T>>, ReceiveError> {
        let deadline = Instant::now().checked_add(timeout);
        let Untyped { ring, access, poller, attachment, .. } = &mut self.untyped;
        let message = ring.receive_with(*access, |ring| {
            let left =
                deadline.map_or(Duration::MAX, |at| at.saturating_duration_since(Instant::now()));
            let left_ns = u64::try_from(left.as_nanos()).unwrap_or(u64::MAX);
            if left_ns == 0 {
                return look(ring, attachment);
            }
            wait_for_message(ring, poller, attachment, left_ns).map_err(Unready::Failed)
        });
        match message {
            Ok(ring) => Message::new(ring).map(Some),
            Err(Unready::NotYet) => Ok(None),
            Err(Unready::Failed(error)) => Err(attachment.failed(error)),
        }
    }

    /// Calls `job` with each message until the end of the stream.
    ///
    /// # Errors
    /// As for [`receive`](Self::receive), except for the end of the stream.
    pub fn for_each(&mut self, mut job: impl FnMut(&T)) -> Result<(), ReceiveError> {
        until_end(|| self.receive().map(|message| job(&message)))
    }
}

/// For bytes, read in place.
impl Receiver {
    /// Copies the next message into `buffer`, waiting for it if necessary, and returns its length.
    ///
    /// # Errors
    /// [`ReceiveError::BufferTooSmall`], after which the message is still the next one; otherwise as for
    /// [`receive`](Self::receive).
    pub fn receive_into(&mut self, buffer: &mut [u8]) -> Result<usize, ReceiveError> {
        self.copy_next(buffer).map_err(|error| self.failed(error))
    }

    fn copy_next(&mut self, buffer: &mut [u8]) -> Result<usize, ReceiveError> {
        let Untyped { ring, access, poller, attachment, .. } = &mut self.untyped;
        loop {
            if let Some(message) = ring.peek(*access, 0)? {
                let needed = message.len();
                let given = buffer.len();
                let Some(target) = buffer.get_mut(..needed) else {
                    return Err(ReceiveError::BufferTooSmall { needed, given });
                };
                copying::copy_slice(NextReader::Own, message, target);
                ring.done(1)?;
                return Ok(needed);
            }
            wait_for_message(ring, poller, attachment, NO_LIMIT_NS)?;
        }
    }

    /// An iterator over copies of the messages. It waits for each of them, and ends at the end of the stream. An error
    /// is its last item.
    pub fn copies(&mut self) -> impl Iterator<Item = Result<Vec<u8>, ReceiveError>> + '_ {
        let mut is_over = false;
        std::iter::from_fn(move || {
            if is_over {
                return None;
            }
            match self.receive() {
                Ok(message) => Some(Ok(message.to_vec())),
                Err(ReceiveError::EndOfStream) => None,
                Err(error) => {
                    is_over = true;
                    Some(Err(error))
                }
            }
        })
    }
}

impl<T: ?Sized> Receiver<T> {
    /// Reads message `index`, counted from the next one, in place, if it is available.
    pub(crate) fn peek(&self, index: u64) -> Result<Option<&[u8]>, ReceiveError> {
        self.untyped.ring.peek(self.untyped.access, index).map_err(|error| self.failed(error))
    }
}

impl<A> Receiver<[u8], A> {
    pub(crate) fn new(
        ring: Ring,
        attachment: Arc<dyn ReceiverHalf>,
        access: A,
        wait: Wait,
        joiner: Arc<dyn Join<A>>,
    ) -> Self {
        let first = ring.next();
        let poller = Poller::for_messages(wait);
        let untyped = Untyped { ring, attachment, access, poller, joiner, first };
        Self { untyped, _type: PhantomData }
    }

    /// The same receiver. The channel's type is `T`.
    pub(crate) fn of<T: ?Sized>(self) -> Receiver<T, A> {
        Receiver { untyped: self.untyped, _type: PhantomData }
    }
}

impl<T: ?Sized, A> Receiver<T, A> {
    /// Tells the sender at once that this receiver has finished with every message received so far, up to the oldest
    /// that it [holds](Message::hold). The data flow does
    /// not need this: the sender learns it after every eighth of the ring, and whenever the receiver finds no message.
    /// But a receiver that will not ask for more for some time can end a sender's [`drain`](crate::Sender::drain)
    /// earlier.
    pub fn acknowledge(&mut self) {
        self.untyped.ring.publish_cursor();
    }

    /// Handles an error of a batch. The link may be unusable after it.
    pub(crate) fn failed(&self, error: impl Into<ReceiveError>) -> ReceiveError {
        self.untyped.attachment.failed(error.into())
    }

    pub(crate) fn wait_more(&mut self) -> Result<(), ReceiveError> {
        let Untyped { ring, poller, attachment, .. } = &mut self.untyped;
        wait_for_message(ring, poller, attachment, NO_LIMIT_NS)
    }

    /// Number of messages that the channel had carried before this receiver's first one; 0 if it gets all of them. A
    /// receiver that waited for the channel ([`join_when_created`](crate::ReceiverBuilder::join_when_created)) learns
    /// from this whether it joined too late for the first message.
    #[must_use]
    pub fn late_by(&self) -> u64 {
        self.untyped.first
    }

    /// The number of the next message: the number of messages that the channel has carried before it.
    #[must_use]
    pub fn next_sequence(&self) -> u64 {
        self.untyped.ring.next()
    }

    /// The declared type of the channel's messages; `None` for plain bytes. It can differ from the expected type only
    /// after [`any_type`](crate::ReceiverBuilder::any_type).
    #[must_use]
    pub fn channel_type(&self) -> Option<ChannelType> {
        let tag = self.untyped.attachment.type_tag();
        let name = || tag.name.as_str().to_owned();
        (!tag.is_plain()).then(|| ChannelType { name: name(), bytes: tag.key.bytes })
    }

    /// One of the receiver's counters, by name. Does not block.
    ///
    /// | name | what it counts |
    /// |---|---|
    /// | `messages` | messages received, as of the last published cursor |
    /// | `bytes` | payload bytes of messages of more than 48 bytes, as of the last published cursor |
    /// | `waits` | times that the receiver found the ring empty and waited |
    /// | `sleeps` | times that it slept while it waited |
    /// | `cap_finds` | times that it found a message only because the cap ended a sleep |
    /// | `wakes` | times that it woke a sender that waited for room |
    /// | `missed` | messages that were overwritten before this receiver read them |
    /// | `near_sleeps` | times that it announced a sleep and then found a message |
    ///
    /// # Errors
    /// [`CounterError`] if there is no counter of that name; it lists the names.
    pub fn counter(&self, name: &str) -> Result<u64, CounterError> {
        let counter = CounterError::find(name, "a receiver", &ReceiverCounter::ALL)?;
        Ok(self.untyped.ring.counter(counter))
    }

    /// A handle with which another thread ends a call of this receiver that waits.
    #[must_use]
    pub fn interrupter(&self) -> Interrupter {
        let attachment = Arc::clone(&self.untyped.attachment);
        Interrupter::new(move || attachment.notify(notice::INTERRUPTED))
    }

    /// A descriptor that becomes readable when, after [`arm`](Self::arm), there is something to receive. It stays the
    /// same for the receiver's life. The first call asks the sender's process, and blocks until that process answers,
    /// for at most 10 s.
    ///
    /// # Errors
    /// [`JoinError::NoAnswer`] or a failed call.
    pub fn readiness(&self) -> Result<Readiness, JoinError> {
        self.untyped.attachment.readiness()
    }

    /// Finishes with the first `count` available messages.
    pub(crate) fn pass(&mut self, count: u64) -> Result<(), ReceiveError> {
        Ok(self.untyped.ring.done(count)?)
    }

    /// Announces that the caller is about to wait for the [`Readiness`] descriptor. Returns false if there is something
    /// to receive already: then receive first. The order is: receive until [`try_receive`](Self::try_receive) returns
    /// `None`, `arm`, wait until readable, and repeat.
    ///
    /// # Errors
    /// As for [`readiness`](Self::readiness).
    pub fn arm(&mut self) -> Result<bool, JoinError> {
        let readiness = self.untyped.attachment.readiness()?;
        readiness.silence();
        // Between two relays, the descriptor becomes readable when the next one is there.
        Ok(self.is_between() || self.untyped.ring.arm())
    }

    /// True if this receiver's relay has gone and there is no other yet.
    pub(crate) fn is_between(&self) -> bool {
        self.untyped.attachment.is_between(&self.untyped.ring)
    }
}

impl<T: ?Sized, A: Reading> Receiver<T, A> {
    /// Joins the next channel of this name, in place of one that has ended, whose sender died, or that has evicted this
    /// receiver. Waits until there is one. The receiver keeps its builder's options: how it waits and reads, which type
    /// it expects, and where it begins.
    ///
    /// If the next channel is created while this call waits, its first message is the first that this receiver gets. As
    /// for [`join_when_created`](crate::ReceiverBuilder::join_when_created), the new sender waits for this receiver for
    /// up to [`invitation_timeout`](crate::SenderBuilder::invitation_timeout). If the next channel exists before this
    /// call, the receiver begins with the next message sent, or with the oldest available one after
    /// [`from_oldest`](crate::ReceiverBuilder::from_oldest).
    ///
    /// Sequence numbers and counters begin again. Existing [`Readiness`] descriptors and [`Interrupter`]s belong to the
    /// former channel: get new ones. An interrupter does not end this call. [`rejoin_timeout`](Self::rejoin_timeout)
    /// has a time limit.
    ///
    /// Call it after a receive has returned an end. Messages of the former channel that have not been received are
    /// lost. If that channel has not ended (for example because this receiver was evicted), it joins the channel again
    /// and begins with the next message sent.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = std::env::temp_dir().join(format!("corewire-doc-rejoin-{}", std::process::id()));
    /// # let domain = corewire::Domain::open_at(&dir)?;
    /// use corewire::ReceiveError;
    ///
    /// let sender = domain.sender("log").create()?;
    /// let mut receiver = domain.receiver("log").from_oldest().join()?;
    /// drop(sender);
    /// assert_eq!(receiver.receive().unwrap_err(), ReceiveError::EndOfStream);
    /// let mut successor = domain.sender("log").create()?;
    /// successor.send(b"started again")?;
    /// receiver.rejoin()?;
    /// assert_eq!(&receiver.receive()?[..], b"started again");
    /// # drop(receiver); drop(successor); drop(domain); std::fs::remove_dir_all(&dir)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`JoinError`], but never `NotFound`. After an error the receiver is unchanged.
    pub fn rejoin(&mut self) -> Result<(), JoinError> {
        self.rejoin_within(None)
    }

    /// Like [`rejoin`](Self::rejoin), but waits for at most `timeout`. It gives the process that admits receivers at
    /// least half a second to answer.
    ///
    /// # Errors
    /// [`JoinError::NotCreated`] if there was no next channel in that time; otherwise as for [`rejoin`](Self::rejoin).
    pub fn rejoin_timeout(&mut self, timeout: Duration) -> Result<(), JoinError> {
        self.rejoin_within(Some(timeout))
    }

    /// Like [`rejoin`](Self::rejoin), but does not wait for a next channel. Like
    /// [`join`](crate::ReceiverBuilder::join), it blocks until the process that admits receivers answers.
    ///
    /// # Errors
    /// [`JoinError::NotFound`] if there is no next channel now; otherwise as for [`rejoin`](Self::rejoin).
    pub fn rejoin_now(&mut self) -> Result<(), JoinError> {
        self.join_again(None)
    }

    fn rejoin_within(&mut self, timeout: Option<Duration>) -> Result<(), JoinError> {
        self.join_again(Some(timeout))
    }

    fn join_again(&mut self, wait: Option<Option<Duration>>) -> Result<(), JoinError> {
        let end = self.untyped.ring.end();
        let is_closed = matches!(end, Ok(Some(End::Closed)));
        // If the channel continues, its old messages are not new to this receiver.
        let has_ended = is_closed || matches!(end, Ok(Some(End::SenderGone)));
        let former = is_closed.then(|| self.untyped.attachment.incarnation());
        self.untyped = self.untyped.joiner.join(Again { former, has_ended, wait })?.untyped;
        Ok(())
    }
}

/// Calls `next` until the stream ends.
pub(crate) fn until_end(
    mut next: impl FnMut() -> Result<(), ReceiveError>,
) -> Result<(), ReceiveError> {
    loop {
        match next() {
            Ok(()) => {}
            Err(ReceiveError::EndOfStream) => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}

impl<A> Drop for Untyped<A> {
    fn drop(&mut self) {
        if self.ring.shared().notices() & notice::FORKED == 0 {
            self.ring.retract();
            self.ring.publish_cursor();
            if self.ring.has_held() {
                // The row is given up with the last of `ring` and its held messages.
                self.attachment.leave_except_row();
            } else {
                self.ring.leave();
                self.attachment.leave();
            }
        }
    }
}

impl<T: ?Sized, A> fmt::Debug for Receiver<T, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receiver")
            .field("name", &self.untyped.attachment.name())
            .field("next", &self.untyped.ring.next())
            .finish()
    }
}

/// A message, read where the sender wrote it. It derefs to its bytes, or to its value. Dropping it releases the memory.
/// Keep it no longer than necessary, because the sender may have to wait for it. [`hold`](Self::hold) makes it
/// independent of the receiver.
pub struct Message<'a, T: ?Sized = [u8]> {
    pub(super) ring: ring::Message<'a, Hosted>,
    _type: PhantomData<fn(&T)>,
}

impl<'a, T: Payload + ?Sized> Message<'a, T> {
    #[inline(always)]
    fn new(ring: ring::Message<'a, Hosted>) -> Result<Self, ReceiveError> {
        T::check(&ring)?;
        Ok(Self { ring, _type: PhantomData })
    }
}

impl<T: ?Sized> Message<'_, T> {
    /// Its number in the channel, from 0.
    #[must_use]
    pub fn sequence(&self) -> u64 {
        self.ring.sequence()
    }
}

impl<T: Payload + ?Sized> Deref for Message<'_, T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        T::view(&self.ring)
    }
}

impl<T: ?Sized> fmt::Debug for Message<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (sequence, bytes) = (self.sequence(), self.ring.len());
        f.debug_struct("Message").field("sequence", &sequence).field("bytes", &bytes).finish()
    }
}

/// Checks once, without waiting, why there is no message. `Ok` if there may be one now in another ring.
#[cold]
pub(crate) fn look(ring: &mut Ring, half: &Arc<dyn ReceiverHalf>) -> Result<(), Unready> {
    ring.publish_cursor();
    // What comes later belongs to another run.
    let _ = ring.end_run(0);
    match check(ring, half, 0) {
        Ok(true) => Ok(()),
        Ok(false) => Err(Unready::NotYet),
        Err(error) => Err(Unready::Failed(error)),
    }
}

/// Returns the error if no message will come any more. If a relay has gone, waits shortly, for at most `limit_ns`, for
/// the next one, and replaces the ring. True if the ring was replaced.
pub(crate) fn check(
    ring: &mut Ring,
    half: &Arc<dyn ReceiverHalf>,
    limit_ns: u64,
) -> Result<bool, ReceiveError> {
    let notices = ring.shared().notices();
    if notices & notice::FORKED != 0 {
        return Err(ReceiveError::Forked);
    }
    if notices & notice::INTERRUPTED != 0 {
        ring.shared().clear(notice::INTERRUPTED);
        return Err(ReceiveError::Interrupted);
    }
    match ring.end()? {
        None => Ok(false),
        Some(End::Closed) => Err(ReceiveError::EndOfStream),
        Some(End::SenderGone) => half.change_over(ring, limit_ns),
        Some(End::Evicted) => Err(ReceiveError::Evicted),
    }
}

/// The slow half of every receive: after a run of messages lets the sender get ahead; polls for some time, then sleeps
/// for at most `limit_ns` or until the cap. Returns when there may be a message.
#[inline(never)]
pub(crate) fn wait_for_message(
    ring: &mut Ring,
    poller: &mut Poller,
    half: &Arc<dyn ReceiverHalf>,
    limit_ns: u64,
) -> Result<(), ReceiveError> {
    for _ in 0..poller.bare_polls() {
        if ring.is_ready() {
            return Ok(());
        }
    }
    ring.publish_cursor();
    if check(ring, half, limit_ns)? {
        return Ok(());
    }
    ring.count_wait();
    let time_ns = ring.end_run(0).min(limit_ns);
    let passed_ns = poller.let_ahead(time_ns, ring.next(), || ring.is_sender_here());
    if passed_ns > 0 && (ring.must_look() || passed_ns >= limit_ns) {
        return Ok(());
    }
    let limit_ns = if limit_ns == NO_LIMIT_NS { limit_ns } else { limit_ns - passed_ns };
    let mut polls = Polls::within(limit_ns);
    while poller.may_poll(&mut polls, || ring.is_sender_here()) {
        // While others ran, more than the next message may have come.
        let is_over = if polls.has_yielded() { ring.must_look() } else { ring.is_ready() };
        if is_over {
            return Ok(());
        }
    }
    if poller.may_sleep() {
        poller.sleep(|| ring.sleep(limit_ns));
    }
    Ok(())
}
