//! Joining a channel: the builder of a receiver.

use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use corewire_layout::frame::Start;
use corewire_layout::name::ChannelName;
use corewire_layout::segment::TypeTag;

use crate::control::asking::Wishes;
use crate::control::domain::DomainHandle;
use crate::error::JoinError;
use crate::open::domain::Domain;
use crate::open::join::join;
use crate::open::waiting;
use crate::path::receive::{Copying, InPlace, Reading, Receiver};
use crate::typed::schema::{MessageType, tag_of};
use crate::wait::Wait;

impl Domain {
    /// Returns the builder of a receiver of channel `name`.
    pub fn receiver(&self, name: &str) -> ReceiverBuilder {
        ReceiverBuilder::new(self, name)
    }
}

/// Builder of a receiver, returned by [`Domain::receiver`]. `T` is what the messages hold: bytes, unless
/// [`typed`](Self::typed) says otherwise. `A` says how they are read.
#[must_use = "nothing is joined before `join`"]
pub struct ReceiverBuilder<T: ?Sized = [u8], A = InPlace> {
    domain: DomainHandle,
    name: String,
    wishes: Wishes,
    access: PhantomData<fn(&T) -> A>,
}

impl ReceiverBuilder {
    pub(crate) fn new(domain: &Domain, name: &str) -> Self {
        let (domain, name) = (domain.inner.clone(), name.to_owned());
        Self { domain, name, wishes: Wishes::default(), access: PhantomData }
    }
}

impl<T: ?Sized> ReceiverBuilder<T> {
    /// Copies messages out instead of reading them in place. This is possible for every channel. It is the only way if
    /// messages may be overwritten while they are read ([`SenderBuilder::overwrite`](crate::SenderBuilder::overwrite),
    /// [`SenderBuilder::evict`](crate::SenderBuilder::evict)), or if the sender is not trusted.
    pub fn snapshots(self) -> ReceiverBuilder<T, Copying> {
        let Self { domain, name, wishes, .. } = self;
        ReceiverBuilder { domain, name, wishes, access: PhantomData }
    }
}

impl<A: Reading> ReceiverBuilder<[u8], A> {
    /// Makes the messages values of type `T`. A channel of another type, or of another version of the type, is refused
    /// with [`JoinError::Type`]. See [`SenderBuilder::typed`](crate::SenderBuilder::typed).
    pub fn typed<T: MessageType>(self) -> ReceiverBuilder<T, A> {
        let Self { domain, name, wishes, .. } = self;
        let wishes = Wishes { type_tag: tag_of::<T>(), ..wishes };
        ReceiverBuilder { domain, name, wishes, access: PhantomData }
    }

    /// Joins a channel of any declared type, or of plain bytes, and reads messages as bytes. Without this option, a
    /// channel that was created for a type refuses a receiver of bytes. [`Receiver::channel_type`] returns the type of
    /// the channel.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = std::env::temp_dir().join(format!("corewire-doc-any-{}", std::process::id()));
    /// # let domain = corewire::Domain::open_at(&dir)?;
    /// let mut prices = domain.sender("prices").typed::<u64>().create()?;
    /// let mut receiver = domain.receiver("prices").any_type().join()?;
    /// prices.send(&7)?;
    /// assert_eq!(receiver.receive()?[..], 7u64.to_le_bytes());
    /// assert_eq!(receiver.channel_type().unwrap().name, "u64");
    /// # drop(receiver); drop(prices); drop(domain); std::fs::remove_dir_all(&dir)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn any_type(mut self) -> Self {
        self.wishes.type_tag = TypeTag::ANY;
        self
    }
}

impl<T: ?Sized, A: Reading> ReceiverBuilder<T, A> {
    /// Begins with the oldest message that is still complete, instead of the next one sent. How far
    /// back this is depends on the ring and the window: at most one message less than there are slots, and about half of
    /// the window's bytes.
    pub fn from_oldest(mut self) -> Self {
        self.wishes.start = Start::Oldest;
        self
    }

    /// Like [`from_oldest`](Self::from_oldest) if the channel permits it for this receiver. Otherwise, because the
    /// channel has several senders or this process is a guest, begins with the next message sent. This is for a
    /// receiver that waits for a channel and may join late: [`Receiver::late_by`] then returns how many messages it has
    /// missed.
    pub fn from_oldest_if_possible(mut self) -> Self {
        self.wishes.start = Start::OldestIfPossible;
        self
    }

    /// The receiver's last-level cache: the number of the first processor that shares it. Default: the cache of the
    /// processor that joins. Only channels on two levels use it
    /// ([`SenderBuilder::levels`](crate::SenderBuilder::levels)).
    pub fn cache_domain(mut self, number: u32) -> Self {
        self.wishes.cache_domain = Some(number);
        self
    }

    /// Sets how the receiver's calls wait for messages.
    pub fn wait(mut self, wait: Wait) -> Self {
        self.wishes.wait = wait;
        self
    }

    /// Maximum time that a call sleeps before it checks by itself. Default: 100 ms; at least 1 ms. What a sleeper waits
    /// for wakes it. The cap is the safety net for a sender that is stopped or not scheduled between a message and the
    /// wake-up. With a longer cap an idle machine checks less often.
    pub fn sleep_cap(mut self, cap: Duration) -> Self {
        self.wishes.sleep_cap = Some(cap);
        self
    }

    /// Joins the channel now. Blocks until the channel's process answers. An answer may take at most 10 s.
    ///
    /// # Errors
    /// [`JoinError::NotFound`] if there is none; [`JoinError::NotInPlace`] if its messages must be copied out;
    /// [`JoinError`] for everything else.
    pub fn join(self) -> Result<Receiver<T, A>, JoinError> {
        join(&self.domain, &ChannelName::new(&self.name)?, self.wishes).map(Receiver::of)
    }

    /// Joins the channel as soon as it exists. If it does not exist yet, this receiver's first message is the channel's
    /// first message. This does not hold in another user's domain: the sender does not wait for guests, and a guest may
    /// miss messages sent before it joined.
    ///
    /// # Errors
    /// [`JoinError`], but never `NotFound`.
    pub fn join_when_created(self) -> Result<Receiver<T, A>, JoinError> {
        self.wait_and_join(None)
    }

    /// Like [`join_when_created`](Self::join_when_created), but waits for at most `timeout`. It gives the process that
    /// admits receivers at least half a second to answer.
    ///
    /// # Errors
    /// [`JoinError::NotCreated`] if the channel was not created in time; [`JoinError::NoAnswer`] if it exists, but the
    /// process that admits receivers does not answer because it is stopped; [`JoinError`] for everything else.
    pub fn join_timeout(self, timeout: Duration) -> Result<Receiver<T, A>, JoinError> {
        self.wait_and_join(Some(timeout))
    }

    fn wait_and_join(self, timeout: Option<Duration>) -> Result<Receiver<T, A>, JoinError> {
        let name = ChannelName::new(&self.name)?;
        waiting::join_when_created(&self.domain, &name, self.wishes, timeout, None)
            .map(Receiver::of)
    }
}

impl<T: ?Sized, A> Clone for ReceiverBuilder<T, A> {
    fn clone(&self) -> Self {
        let (domain, name) = (self.domain.clone(), self.name.clone());
        Self { domain, name, wishes: self.wishes, access: PhantomData }
    }
}

impl<T: ?Sized, A> fmt::Debug for ReceiverBuilder<T, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ReceiverBuilder").field(&self.name).field(&self.wishes).finish()
    }
}
