//! Receiving: find the stamp, read in place, give back; wait where there is no message.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::time::{Duration, Instant};

use corewire_layout::counters::ReceiverCounter;
use corewire_layout::frame::Start;
pub use corewire_ring::broadcast::InPlace;
use corewire_ring::broadcast::{self as ring, End};
use corewire_ring::doorbell::notice;
use corewire_ring::shared::{Entrance, Party};
use corewire_ring::{Control, Host};

use crate::control::attach::{Attached, Joined, Wishes};
use crate::control::levels::Follower;
use crate::control::shared::SharedLink;
use crate::control::waiting;
use crate::error::{CounterError, JoinError, ReceiveError};
use crate::host::Hosted;
use crate::path::batch::Batch;
use crate::typed::ChannelType;
use crate::wait::{Interrupter, NO_LIMIT_NS, Patience, Poller, Polls, Readiness, Wait};

pub(crate) type ReceiverHost = Hosted<ReceiverControl>;
pub(crate) type Ring = ring::Receiver<ReceiverHost>;

/// One receiver of a channel. Made by [`Domain::receiver`](crate::Domain::receiver).
///
/// It gets every message from where it joined, in the order they were sent, each exactly once. What
/// the sender committed before it died is delivered first, then its death is reported.
///
/// `A` says how it reads: [`InPlace`], where the sender wrote, or [`Copying`], from channels whose
/// messages may be written over while they are read ([`SnapshotReceiver`](crate::SnapshotReceiver)).
///
/// Dropping the receiver leaves the channel.
pub struct Receiver<A = InPlace> {
    pub(crate) ring: Ring,
    pub(crate) attachment: Arc<dyn Attached>,
    pub(crate) access: A,
    /// The number of its first message.
    first: u64,
}

/// Messages are copied out, word by word, and each copy is checked to be whole. For every policy, and
/// for senders that are not trusted.
#[derive(Debug, Clone, Copy)]
pub struct Copying(());

/// How a receiver reads: [`InPlace`] or [`Copying`].
pub trait Reading: Sized + sealed::Sealed {
    /// Does it need a sender that is trusted?
    #[doc(hidden)]
    const IS_IN_PLACE: bool;

    /// The right to read so, if there is one.
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
    /// Only the two ways of reading that there are.
    pub trait Sealed {}
    impl Sealed for super::InPlace {}
    impl Sealed for super::Copying {}
}

/// What a receiver's data thread asks of its control half, and how it waits. The two are together so
/// that the data path carries one pointer into its slow half.
#[derive(Clone)]
pub(crate) struct ReceiverControl {
    poller: Poller,
    /// In a shared channel: how it learns of deaths.
    link: Option<Arc<SharedLink>>,
    /// In a group of a channel on two levels: who finds the next relay.
    follower: Option<Arc<Follower>>,
}

impl ReceiverControl {
    pub(crate) fn new(wait: Wait) -> Self {
        Self { poller: Poller::for_messages(wait), link: None, follower: None }
    }

    /// For a receiver of a group.
    pub(crate) fn of_group(wait: Wait, follower: Arc<Follower>) -> Self {
        Self { follower: Some(follower), ..Self::new(wait) }
    }

    /// For a receiver of a shared channel.
    pub(crate) fn of_many(wait: Wait, link: Arc<SharedLink>) -> Self {
        Self { link: Some(link), ..Self::new(wait) }
    }
}

impl Control for ReceiverControl {
    fn watch(&self, party: Party, who: Entrance, socket: u128) {
        if let Some(link) = &self.link {
            link.watch(party, who, socket);
        }
    }
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

impl Receiver {
    /// The next message, in place, waiting for it if need be. Dropping the [`Message`] gives its
    /// place back to the sender.
    ///
    /// # Errors
    /// [`ReceiveError::EndOfStream`] or `SenderDied` when no message will come any more;
    /// `Violation`, `Interrupted`, `Forked`.
    #[inline(always)]
    pub fn receive(&mut self) -> Result<Message<'_>, ReceiveError> {
        match self.ring.receive_with(self.access, |ring| wait_for_message(ring, NO_LIMIT_NS)) {
            Ok(ring) => Ok(Message { ring }),
            Err(error) => Err(self.attachment.failed(error)),
        }
    }

    /// The next message if it is there now. Never blocks.
    ///
    /// # Errors
    /// As for [`receive`](Self::receive).
    #[inline(always)]
    pub fn try_receive(&mut self) -> Result<Option<Message<'_>>, ReceiveError> {
        match self.ring.receive_with(self.access, look) {
            Ok(ring) => Ok(Some(Message { ring })),
            Err(Unready::NotYet) => Ok(None),
            Err(Unready::Failed(error)) => Err(self.attachment.failed(error)),
        }
    }

    /// The next message, waiting for at most `timeout`; `None` if none came.
    ///
    /// # Errors
    /// As for [`receive`](Self::receive).
    pub fn receive_timeout(
        &mut self,
        timeout: Duration,
    ) -> Result<Option<Message<'_>>, ReceiveError> {
        let deadline = Instant::now().checked_add(timeout);
        let message = self.ring.receive_with(self.access, |ring| {
            let left =
                deadline.map_or(Duration::MAX, |at| at.saturating_duration_since(Instant::now()));
            let left_ns = u64::try_from(left.as_nanos()).unwrap_or(u64::MAX);
            if left_ns == 0 {
                return look(ring);
            }
            wait_for_message(ring, left_ns).map_err(Unready::Failed)
        });
        match message {
            Ok(ring) => Ok(Some(Message { ring })),
            Err(Unready::NotYet) => Ok(None),
            Err(Unready::Failed(error)) => Err(self.attachment.failed(error)),
        }
    }

    /// Copies the next message into `buffer`, waiting for it if need be, and returns its length.
    ///
    /// # Errors
    /// [`ReceiveError::BufferTooSmall`], which leaves the message where it is; else as for
    /// [`receive`](Self::receive).
    pub fn receive_into(&mut self, buffer: &mut [u8]) -> Result<usize, ReceiveError> {
        self.copy_next(buffer).map_err(|error| self.attachment.failed(error))
    }

    fn copy_next(&mut self, buffer: &mut [u8]) -> Result<usize, ReceiveError> {
        let Self { ring, access, .. } = self;
        loop {
            if let Some(message) = ring.peek(*access, 0)? {
                let needed = message.len();
                let given = buffer.len();
                let Some(target) = buffer.get_mut(..needed) else {
                    return Err(ReceiveError::BufferTooSmall { needed, given });
                };
                target.copy_from_slice(message);
                ring.done(1)?;
                return Ok(needed);
            }
            wait_for_message(ring, NO_LIMIT_NS)?;
        }
    }

    /// Waits for at least one message, and returns up to `count_max` of those that are there, all
    /// readable in place until the [`Batch`] is dropped.
    ///
    /// # Errors
    /// As for [`receive`](Self::receive).
    pub fn receive_batch(&mut self, count_max: usize) -> Result<Batch<'_>, ReceiveError> {
        let mut batch = Batch::new(self);
        batch.receive(count_max)?;
        Ok(batch)
    }

    /// Calls `job` with each message until the stream ends. Returns at end of stream; anything else
    /// that ends it is an error.
    ///
    /// # Errors
    /// As for [`receive`](Self::receive), but for the end of stream.
    pub fn for_each(&mut self, mut job: impl FnMut(&[u8])) -> Result<(), ReceiveError> {
        until_end(|| self.receive().map(|message| job(&message)))
    }

    /// An iterator over copies of the messages, each waited for. It ends at end of stream; an error
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

    /// Message `index` from the next one on, in place, if it is there.
    pub(crate) fn peek(&self, index: u64) -> Result<Option<&[u8]>, ReceiveError> {
        self.ring.peek(self.access, index).map_err(|error| self.failed(error))
    }
}

impl<A> Receiver<A> {
    pub(crate) fn new(ring: Ring, attachment: Arc<dyn Attached>, access: A) -> Self {
        let first = ring.next();
        Self { ring, attachment, access, first }
    }

    /// Tells the sender at once that everything received so far is done with. Not needed for the
    /// flow: the sender learns of it every eighth of the ring, and whenever the receiver finds no
    /// message. A receiver that will not ask for more for a while spares a sender in
    /// [`drain`](crate::Sender::drain) the wait.
    pub fn acknowledge(&mut self) {
        self.ring.publish_cursor();
    }

    /// An error of a batch's, after which the link may be of no more use.
    pub(crate) fn failed(&self, error: impl Into<ReceiveError>) -> ReceiveError {
        self.attachment.failed(error.into())
    }

    pub(crate) fn wait_more(&mut self) -> Result<(), ReceiveError> {
        wait_for_message(&mut self.ring, NO_LIMIT_NS)
    }

    /// How many messages the channel had carried before this receiver's first one: 0 if it gets all of
    /// them. A receiver that waited for the channel
    /// ([`join_when_created`](crate::ReceiverBuilder::join_when_created)) learns here whether it came too
    /// late for the first message.
    #[must_use]
    pub fn late_by(&self) -> u64 {
        self.first
    }

    /// The number of the next message: how many the channel has carried before it.
    #[must_use]
    pub fn next_sequence(&self) -> u64 {
        self.ring.next()
    }

    /// The declared type of the channel's messages; `None` if they are plain bytes. It can be another
    /// than expected only after [`any_type`](crate::ReceiverBuilder::any_type).
    #[must_use]
    pub fn channel_type(&self) -> Option<ChannelType> {
        let tag = self.attachment.joined().type_tag;
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
        Ok(self.ring.counter(counter))
    }

    /// A handle by which another thread ends a call of this receiver that waits.
    #[must_use]
    pub fn interrupter(&self) -> Interrupter {
        let attachment: Arc<dyn Attached> = Arc::clone(&self.attachment);
        Interrupter::new(move || attachment.notify(notice::INTERRUPTED))
    }

    /// A descriptor that becomes readable when, after [`arm`](Self::arm), there is something to
    /// receive. It stays the same for the receiver's life. Asks the sender's process once, which
    /// may block for as long as that is busy.
    ///
    /// # Errors
    /// [`JoinError::NoAnswer`] or a failed call.
    pub fn readiness(&self) -> Result<Readiness, JoinError> {
        self.attachment.readiness()
    }

    /// Is done with the first `count` messages that are there.
    pub(crate) fn pass(&mut self, count: u64) -> Result<(), ReceiveError> {
        Ok(self.ring.done(count)?)
    }

    /// Says that the caller is about to wait for the [`Readiness`] descriptor. Returns false if
    /// there is something to receive already: then receive first. The order is: receive until
    /// [`try_receive`](Self::try_receive) says `None`, `arm`, wait until readable, and again.
    ///
    /// # Errors
    /// As for [`readiness`](Self::readiness).
    pub fn arm(&mut self) -> Result<bool, JoinError> {
        let readiness = self.attachment.readiness()?;
        readiness.0.silence();
        // Between two relays it rings when the next one is there.
        Ok(self.is_between() || self.ring.arm())
    }

    /// Has its relay gone, and there is no other yet?
    pub(crate) fn is_between(&self) -> bool {
        let follower = self.ring.host().control().follower.as_ref();
        follower.is_some_and(|follower| follower.is_between(&self.ring))
    }
}

impl<A: Reading> Receiver<A> {
    /// Joins the next channel of this name, in place of one that has ended, whose sender died, or that
    /// has evicted this receiver. Waits until there is one. The receiver keeps what its builder said:
    /// how it waits and reads, which type it expects, and where it begins.
    ///
    /// The next channel's first message is the first that this receiver gets if the channel is created
    /// while this call waits: as for [`join_when_created`](crate::ReceiverBuilder::join_when_created),
    /// its sender waits for this receiver, for up to
    /// [`invitation_timeout`](crate::SenderBuilder::invitation_timeout). If the next channel exists before this call, the receiver
    /// begins with the next message sent, or with the oldest that is still there if the builder said
    /// [`from_oldest`](crate::ReceiverBuilder::from_oldest).
    ///
    /// Sequence numbers and counters begin anew. [`Readiness`] descriptors and [`Interrupter`]s of
    /// before belong to the former channel: get new ones. An interrupter does not end this call;
    /// [`rejoin_timeout`](Self::rejoin_timeout) ends by itself.
    ///
    /// Call it when receiving has reported an end. Messages of the former channel that have not been
    /// received are given up. If that channel has not ended (this receiver was evicted, for example), it joins
    /// the channel again and begins with the next message sent.
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
    /// [`JoinError`], but never `NotFound`. After an error the receiver is as it was before.
    pub fn rejoin(&mut self) -> Result<(), JoinError> {
        self.rejoin_within(None)
    }

    /// As [`rejoin`](Self::rejoin), waiting for at most `timeout`, but at least half a second for the
    /// answer of the process that lets receivers in.
    ///
    /// # Errors
    /// [`JoinError::NotCreated`] if there was no next channel in that time; else as for
    /// [`rejoin`](Self::rejoin).
    pub fn rejoin_timeout(&mut self, timeout: Duration) -> Result<(), JoinError> {
        self.rejoin_within(Some(timeout))
    }

    /// As [`rejoin`](Self::rejoin), but does not wait for a next channel. Blocks as
    /// [`join`](crate::ReceiverBuilder::join) does, for the answer of the process that lets receivers
    /// in.
    ///
    /// # Errors
    /// [`JoinError::NotFound`] if there is no next channel now; else as for [`rejoin`](Self::rejoin).
    pub fn rejoin_now(&mut self) -> Result<(), JoinError> {
        let (former, wishes) = self.anew();
        let Joined { domain, .. } = self.attachment.joined();
        *self = waiting::join_other(domain, self.attachment.name(), wishes, former)?;
        Ok(())
    }

    fn rejoin_within(&mut self, timeout: Option<Duration>) -> Result<(), JoinError> {
        let (former, wishes) = self.anew();
        let Joined { domain, .. } = self.attachment.joined();
        let name = self.attachment.name();
        *self = waiting::join_when_created(domain, name, wishes, timeout, former)?;
        Ok(())
    }

    /// The incarnation of the channel, if its sender has closed it and everything was received; and what
    /// the next channel is asked for.
    fn anew(&mut self) -> (Option<u128>, Wishes) {
        let end = self.ring.end();
        let Joined { wishes, incarnation, .. } = self.attachment.joined();
        // Of a channel that goes on, this receiver has had what is old.
        let has_ended = matches!(end, Ok(Some(End::Closed | End::SenderGone)));
        let start = if has_ended { wishes.start } else { Start::Now };
        let wishes = Wishes { start, waiter: 0, patience: Patience::default(), ..wishes };
        (matches!(end, Ok(Some(End::Closed))).then_some(incarnation), wishes)
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

impl<A> Drop for Receiver<A> {
    fn drop(&mut self) {
        if self.ring.shared().notices() & notice::FORKED == 0 {
            self.ring.retract();
            self.ring.publish_cursor();
            self.ring.leave();
            self.attachment.leave();
        }
    }
}

impl<A> fmt::Debug for Receiver<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receiver")
            .field("name", &self.attachment.name())
            .field("next", &self.ring.next())
            .finish()
    }
}

/// A message, read where the sender wrote it; derefs to its bytes. Dropping it gives the place
/// back: hold it no longer than needed, for the sender may come to wait for it.
pub struct Message<'a> {
    ring: ring::Message<'a, ReceiverHost>,
}

impl Message<'_> {
    /// Its number in the channel, from 0.
    #[must_use]
    pub fn sequence(&self) -> u64 {
        self.ring.sequence()
    }
}

impl Deref for Message<'_> {
    type Target = [u8];

    #[inline(always)]
    fn deref(&self) -> &[u8] {
        &self.ring
    }
}

impl fmt::Debug for Message<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (sequence, bytes) = (self.sequence(), self.len());
        f.debug_struct("Message").field("sequence", &sequence).field("bytes", &bytes).finish()
    }
}

/// One look, without waiting: why there is no message, unless there may be one in another ring now.
#[cold]
pub(crate) fn look(ring: &mut Ring) -> Result<(), Unready> {
    ring.publish_cursor();
    match check(ring, 0) {
        Ok(true) => Ok(()),
        Ok(false) => Err(Unready::NotYet),
        Err(error) => Err(Unready::Failed(error)),
    }
}

/// Is there a reason why no message will come? If a relay has gone, changes the ring for the next one's,
/// and then says true; waits for it for up to `limit_ns`, but not long.
pub(crate) fn check(ring: &mut Ring, limit_ns: u64) -> Result<bool, ReceiveError> {
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
        Some(End::SenderGone) => match ring.host().control().follower.clone() {
            Some(follower) => follower.change_over(ring, limit_ns),
            None => Err(ReceiveError::SenderDied),
        },
        Some(End::Evicted) => Err(ReceiveError::Evicted),
    }
}

/// The slow half of every receive: poll for a while, then sleep for at most `limit_ns`, or until the
/// cap. Returns when there may be a message.
#[inline(never)]
pub(crate) fn wait_for_message(ring: &mut Ring, limit_ns: u64) -> Result<(), ReceiveError> {
    for _ in 0..ring.host().control().poller.bare_polls() {
        if ring.is_ready() {
            return Ok(());
        }
    }
    ring.publish_cursor();
    if check(ring, limit_ns)? {
        return Ok(());
    }
    ring.count_wait();
    let mut poller = ring.host().control().poller;
    let mut polls = Polls::default();
    while poller.goes_on(&mut polls, || ring.is_sender_here()) && !ring.is_ready() {}
    ring.host_mut().control_mut().poller = poller;
    if poller.wait() != Wait::Spin && !ring.is_ready() {
        ring.sleep(limit_ns);
    }
    Ok(())
}
