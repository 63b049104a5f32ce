//! Creating a channel, and joining one.

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use corewire_layout::frame::Start;
use corewire_layout::geometry::{Geometry, WINDOW_BYTES_RANGE};
use corewire_layout::name::{ChannelName, NameKind, NameRecord, SocketName};
use corewire_layout::segment::{
    FenceMode, HINT_SEGMENT_BYTES, Policy, ROWS_WATCHED_MAX, SenderHeader, TypeTag,
};
use corewire_layout::slot::SLOT_BYTES;
use corewire_os::directory::{Claim, ClaimError};
use corewire_os::memory::{MemoryOptions, RowTable, Segment};
use corewire_os::sleep::Linux;
use corewire_os::{process, processor, random_u128};
use corewire_ring::broadcast::{SenderParts, SenderShared};
use corewire_ring::region::Rows;
use zerocopy::IntoBytes;

use crate::control::attach::Wishes;
use crate::control::domain::DomainInner;
use crate::control::memory::staging;
use crate::control::owner::{Owner, OwnerParts, SenderControl};
use crate::control::shared::member::{self, Plan};
use crate::error::{CreateError, JoinError};
use crate::host::{Hosted, SenderRing};
use crate::open::domain::Domain;
use crate::open::join::join;
use crate::open::levels::{self, Levels};
use crate::open::waiting;
use crate::path::receive::{Copying, InPlace, Reading, Receiver};
use crate::path::send::Sender;
use crate::path::shared::SharedSender;
use crate::typed::schema::{MessageType, tag_of};
use crate::typed::{TypedReceiver, TypedSender};
use crate::wait::{Wait, cap_ns};

/// Slots of a ring, if not said otherwise and the second-level cache is twice as large: 1 MiB of them.
/// With fewer, a core's own caches still hold what the other asks for, and streaming falls to a half or
/// a fifth: below 4096 on every machine measured, below 16384 on some (docs/results).
const SLOTS: u64 = 16_384;
/// Fewest slots of a ring, if not said otherwise.
const SLOTS_MIN: u64 = 4096;
/// Bytes of the window, if not said otherwise and the second-level cache is twice as large.
const WINDOW_BYTES: u64 = 1 << 20;
/// How long the first message waits for receivers that are invited, unless the builder says otherwise.
const INVITATION_TIMEOUT: Duration = Duration::from_secs(1);
/// Receivers, if not said otherwise.
const RECEIVERS: u64 = 64;

/// A channel to be created; made by [`Domain::sender`].
#[derive(Debug, Clone)]
#[must_use = "nothing is created before `create`"]
pub struct SenderBuilder {
    domain: Arc<DomainInner>,
    name: String,
    slots: Option<u64>,
    window_bytes: Option<u64>,
    largest_message: Option<u64>,
    receivers: u64,
    policy: Policy,
    wait: Wait,
    sleep_cap: Option<Duration>,
    memory: MemoryOptions,
    type_tag: TypeTag,
    levels: Levels,
    cache_domain: Option<u32>,
    invitation_timeout: Duration,
}

/// What a channel on two levels, or a relay's, begins with.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Origin {
    /// Its first message.
    pub(crate) first: u64,
    /// The group that its sender belongs to, if the others have relays.
    pub(crate) home: Option<u32>,
    /// When its sender goes, it does not close the channel, as if it had died: a relay's receivers go
    /// on with the next one.
    pub(crate) hangs_up: bool,
}

impl SenderBuilder {
    pub(crate) fn new(domain: &Domain, name: &str) -> Self {
        Self {
            domain: Arc::clone(&domain.inner),
            name: name.to_owned(),
            slots: None,
            window_bytes: None,
            largest_message: None,
            receivers: RECEIVERS,
            policy: Policy::Block,
            wait: Wait::default(),
            sleep_cap: None,
            memory: MemoryOptions::default(),
            type_tag: TypeTag::default(),
            levels: Levels::default(),
            cache_domain: None,
            invitation_timeout: INVITATION_TIMEOUT,
        }
    }

    /// For the channel of a relay, whose sizes are those of the channel that it relays.
    pub(crate) fn of_relay(domain: &Arc<DomainInner>, name: &ChannelName, wishes: Wishes) -> Self {
        let domain = Domain { inner: Arc::clone(domain) };
        let Wishes { wait, sleep_cap, type_tag, .. } = wishes;
        Self { wait, sleep_cap, type_tag, ..Self::new(&domain, name.as_str()) }
    }

    /// How many messages may be under way: a power of two, 16384 if not said (less where half of
    /// the second-level cache is less, but no fewer than 4096). A slot takes 64 bytes.
    /// For N receivers, 16 N or more keep the sender's own cost constant.
    pub fn slots(mut self, count: usize) -> Self {
        self.slots = Some(count as u64);
        self
    }

    /// Bytes for messages of more than 48 bytes, up to a quarter of it each: a power of two, 1 MiB
    /// if not said (less where half of the second-level cache is less). Larger is slower.
    pub fn window_bytes(mut self, bytes: usize) -> Self {
        self.window_bytes = Some(bytes as u64);
        self
    }

    /// The longest message, in bytes: a quarter of the window if not said. Beyond that the channel
    /// gets a second area, of two to eight times the longest message.
    pub fn largest_message(mut self, bytes: usize) -> Self {
        self.largest_message = Some(bytes as u64);
        self
    }

    /// The most receivers at one time, 1 to 1024: 64 if not said. Up to 8 are watched one by one;
    /// beyond, sleepers set one word that all share.
    pub fn receivers(mut self, count_max: usize) -> Self {
        self.receivers = count_max as u64;
        self
    }

    /// Never waits for receivers: a slow one misses what is written over, and is told exactly how
    /// many messages (policy *Overwrite*). Receivers copy messages out
    /// ([`ReceiverBuilder::snapshots`]). A message costs its sender the same, but what is lent is
    /// copied when it is sent.
    pub fn overwrite(mut self) -> Self {
        self.policy = Policy::Overwrite;
        self
    }

    /// Waits for a slow receiver for at most `after`, then goes on without it (policy *Evict*): a
    /// receiver that has not passed an eighth of the ring in that time, while the sender waited for
    /// it, is told so, and gets no more. Nothing is lost to the others. Receivers copy messages out
    /// ([`ReceiverBuilder::snapshots`]); what is lent is copied when it is sent.
    pub fn evict(mut self, after: Duration) -> Self {
        let after_ns = u64::try_from(after.as_nanos()).unwrap_or(u64::MAX);
        self.policy = Policy::Evict { after_ns };
        self
    }

    /// Whether receivers at other last-level caches than the sender's get its messages from a relay
    /// there. Only for the policy *Block*, with one sender.
    pub fn levels(mut self, levels: Levels) -> Self {
        self.levels = levels;
        self
    }

    /// Which last-level cache the sender is at: the number of the first processor there. If not said,
    /// that of the processor that creates the channel.
    pub fn cache_domain(mut self, number: u32) -> Self {
        self.cache_domain = Some(number);
        self
    }

    /// How long the first message waits for receivers that were waiting for the channel when it was
    /// created and have not joined yet, counted from the creation. Default: 1 s. A receiver that comes
    /// later, because its process was stopped, joins like any other: it begins at the next message, or
    /// at the oldest ([`ReceiverBuilder::from_oldest`]). With [`evict`](Self::evict) its `after` counts
    /// instead; with [`overwrite`](Self::overwrite) the first message waits for nobody.
    pub fn invitation_timeout(mut self, timeout: Duration) -> Self {
        self.invitation_timeout = timeout;
        self
    }

    /// How calls of the sender wait for room.
    pub fn wait(mut self, wait: Wait) -> Self {
        self.wait = wait;
        self
    }

    /// The longest that a call sleeps before it looks by itself: 100 ms if not said, no less than
    /// 1 ms. A sleeper is woken by what it waits for; this is the net below, for a receiver that
    /// is stopped, or kept from running, between making room and the wake-up. Longer spares an idle machine
    /// the looks.
    pub fn sleep_cap(mut self, cap: Duration) -> Self {
        self.sleep_cap = Some(cap);
        self
    }

    /// Asks for huge pages. Where the machine gives none to shared memory (`corewire doctor` tells),
    /// ordinary ones are used.
    pub fn huge_pages(mut self, wanted: bool) -> Self {
        self.memory.huge_pages = wanted;
        self
    }

    /// Touches all memory at creation, so that no message pays for it.
    pub fn prefault(mut self, wanted: bool) -> Self {
        self.memory.prefault = wanted;
        self
    }

    /// Keeps the channel's memory from being swapped out.
    pub fn lock_memory(mut self, wanted: bool) -> Self {
        self.memory.lock = wanted;
        self
    }

    /// Takes the channel's memory from this NUMA node.
    pub fn numa_node(mut self, node: u32) -> Self {
        self.memory.numa_node = Some(node);
        self
    }

    /// Creates the channel. Those who wait for it are invited, and get its first message.
    ///
    /// # Errors
    /// [`CreateError`]: a bad name or size, a name that somebody alive has, another user's domain,
    /// a wish that cannot be ([`CreateError::Levels`], [`CreateError::Topology`]), or a failed call (no
    /// memory, no descriptors, a limit).
    pub fn create(self) -> Result<Sender, CreateError> {
        let name = ChannelName::new(&self.name)?;
        let domain = &self.domain;
        if domain.is_forked() {
            return Err(CreateError::Forked);
        }
        if domain.socket_name().is_none() {
            let (owner, user) = (domain.directory.owner(), process::effective_uid());
            return Err(CreateError::Guest { owner, user });
        }
        let geometry = self.geometry()?;
        let has_two = self.levels.are_two(self.policy, geometry.receivers_max())?;
        let home = has_two.then(|| self.cache_domain.unwrap_or_else(levels::own_group));
        let claim = domain.directory.claim(&name).map_err(|error| match error {
            ClaimError::AlreadyExists(name) => CreateError::AlreadyExists(domain.use_of(&name)),
            error => error.into(),
        })?;
        // A shared channel's senders have its name, also while they are between two hosts.
        let is_taken = domain.directory.has_members(&name);
        if !matches!(is_taken, Ok(false)) {
            claim.release(&domain.directory);
            is_taken?;
            return Err(CreateError::AlreadyExists(domain.use_of(&name)));
        }
        self.create_at(claim, &name, geometry, random_u128()?, Origin { home, ..Origin::default() })
    }

    /// Creates the channel whose name has been claimed.
    pub(crate) fn create_at(
        &self,
        claim: Claim,
        name: &ChannelName,
        geometry: Geometry,
        incarnation: u128,
        origin: Origin,
    ) -> Result<Sender, CreateError> {
        let domain = &self.domain;
        let socket = domain.socket_name().unwrap_or(SocketName(0));
        match self.build(name, geometry, incarnation, origin) {
            Ok((parts, owner)) => {
                let record = NameRecord { kind: NameKind::Channel, socket, incarnation };
                self.finish(claim, parts, &owner, record, origin)
            }
            Err(error) => {
                claim.release(&domain.directory);
                Err(error)
            }
        }
    }

    /// The memory of the channel, and what stands for it on either thread.
    fn build(
        &self,
        name: &ChannelName,
        geometry: Geometry,
        incarnation: u128,
        Origin { first, home, hangs_up }: Origin,
    ) -> Result<(SenderParts, Arc<Owner>), CreateError> {
        let linux = Linux::get();
        let is_fenced = !linux.has_membarrier();
        let fence_mode = if is_fenced { FenceMode::Fenced } else { FenceMode::Asymmetric };
        let type_tag = self.type_tag;
        let policy = self.policy;
        let pid = process::pid();
        let header = SenderHeader { geometry, fence_mode, policy, type_tag, incarnation, pid };
        let staging = (!policy.keeps_messages()).then(|| staging(&geometry)).transpose()?;
        let (segment, memory) = Segment::create(geometry.segment_bytes(), self.memory)?;
        memory.copy_in(0, header.to_raw().as_bytes());
        let receivers_max = u32::try_from(geometry.receivers_max()).unwrap_or(u32::MAX);
        let rows = RowTable::new(receivers_max)?;
        let row_pages = Rows::new(rows.region(), receivers_max);
        let is_crowded = geometry.receivers_max() > u64::from(ROWS_WATCHED_MAX);
        // Everybody who has the hint may clear it: that is for processes of one user alone.
        let hint = if is_crowded && !self.domain.is_open_to_others() {
            Some(Segment::create_writable_by_all(HINT_SEGMENT_BYTES as u64)?)
        } else {
            None
        };
        let (hint_segment, hint_memory) = hint.unzip();
        let shared = Arc::new(SenderShared::new(receivers_max, is_fenced));
        let owner = Owner::new(OwnerParts {
            name: name.clone(),
            header,
            segment,
            memory: memory.clone(),
            hint: hint_segment,
            rows,
            shared: Arc::clone(&shared),
            first,
            home,
            // A relay waits for all its followers: they are receivers of the channel already.
            invitation_patience: (!hangs_up).then(|| self.invitation_patience()),
            domain: Arc::clone(&self.domain),
        });
        let parts = SenderParts {
            segment: memory,
            policy,
            staging,
            geometry,
            rows: row_pages,
            hint: hint_memory,
            shared,
        };
        Ok((parts, owner))
    }

    fn invitation_patience(&self) -> Duration {
        match self.policy {
            Policy::Overwrite => Duration::ZERO,
            Policy::Evict { after_ns } => Duration::from_nanos(after_ns),
            _ => self.invitation_timeout,
        }
    }

    /// Lets others find the channel.
    fn finish(
        &self,
        claim: Claim,
        parts: SenderParts,
        owner: &Arc<Owner>,
        record: NameRecord,
        origin: Origin,
    ) -> Result<Sender, CreateError> {
        let domain = &self.domain;
        owner.hold(claim);
        let mut ring = SenderRing::new(parts, Hosted::new(Arc::new(SenderControl::new(owner))));
        ring.begin_with(origin.first);
        ring.set_sleep_cap(cap_ns(self.sleep_cap));
        domain.add_channel(owner);
        // From here on, dropping the sender lets go of everything.
        let sender = Sender::new(ring, owner.clone(), self.wait, origin.hangs_up);
        owner.publish(record)?;
        Ok(sender)
    }

    /// Creates the channel for values of type `T`. Receivers of another type are refused. The
    /// longest message is as long as a `T`, if that is more than it would be otherwise.
    ///
    /// # Errors
    /// As for [`create`](Self::create).
    pub fn create_typed<T: MessageType>(self) -> Result<TypedSender<T>, CreateError> {
        self.fitting::<T>()?.create().map(TypedSender::new)
    }

    /// Opens the shared channel for values of type `T`.
    ///
    /// # Errors
    /// As for [`open_shared`](Self::open_shared); [`CreateError::Enter`] with [`JoinError::Type`] if
    /// the channel is there and carries another type.
    pub fn open_shared_typed<T: MessageType>(
        self,
        senders_max: usize,
    ) -> Result<TypedSender<T, SharedSender>, CreateError> {
        self.fitting::<T>()?.open_shared(senders_max).map(TypedSender::new)
    }

    /// For values of type `T`, which fit.
    fn fitting<T: MessageType>(mut self) -> Result<Self, CreateError> {
        self.type_tag = tag_of::<T>();
        let needed = size_of::<T>().max(1) as u64;
        if self.geometry()?.message_bytes_max() < needed {
            self.largest_message = Some(needed);
        }
        Ok(self)
    }

    /// Creates the channel as one that up to `senders_max` senders send on (at most 128; less than 2 is
    /// taken as 2), or
    /// becomes one of its senders if it is there. Then its sizes and policy are what its creator
    /// said, and only the type must be the same. Needs a policy that keeps the order:
    /// [`overwrite`](Self::overwrite) is refused. Options for its memory are not used.
    ///
    /// May wait for the process that lets newcomers in, up to 10 seconds if that is stopped.
    ///
    /// # Errors
    /// As for [`create`](Self::create); [`CreateError::OverwriteShared`],
    /// [`CreateError::NoHost`], [`CreateError::Enter`], and `AlreadyExists` if the channel has one
    /// sender, [`CreateError::LevelsShared`].
    pub fn open_shared(self, senders_max: usize) -> Result<SharedSender, CreateError> {
        let name = ChannelName::new(&self.name)?;
        if self.policy == Policy::Overwrite {
            return Err(CreateError::OverwriteShared);
        }
        if self.levels == Levels::Two {
            return Err(CreateError::LevelsShared);
        }
        let one = self.geometry()?;
        // A channel that has room for one sender is not shared.
        let senders_max = (senders_max as u64).max(2);
        let geometry = Geometry::with_senders(
            one.slots(),
            one.window_bytes(),
            one.message_bytes_max(),
            one.receivers_max(),
            senders_max,
        )?;
        let invitation_patience = self.invitation_patience();
        let (policy, type_tag) = (self.policy, self.type_tag);
        let plan = Plan { name, geometry, policy, type_tag, invitation_patience };
        let (mut ring, member) = member::open(&self.domain, &plan)?;
        ring.set_sleep_cap(cap_ns(self.sleep_cap));
        Ok(SharedSender::new(ring, member, self.wait))
    }

    fn geometry(&self) -> Result<Geometry, CreateError> {
        let window = self.window_bytes.unwrap_or_else(default_window_bytes);
        let largest = self.largest_message.unwrap_or(window / 4);
        let slots = self.slots.unwrap_or_else(default_slots);
        Ok(Geometry::new(slots, window, largest, self.receivers)?)
    }
}

/// Half of the second-level cache, rounded down to a power of two.
fn half_second_level_bytes() -> u64 {
    let caches = processor::caches(0);
    let second = caches.iter().find(|cache| cache.level == 2).map_or(u64::MAX, |cache| cache.bytes);
    1 << (second / 2).max(1).ilog2()
}

fn default_slots() -> u64 {
    (half_second_level_bytes() / SLOT_BYTES as u64).clamp(SLOTS_MIN, SLOTS)
}

/// 1 MiB, or half of the second-level cache if that is less.
fn default_window_bytes() -> u64 {
    half_second_level_bytes().clamp(WINDOW_BYTES_RANGE.0, WINDOW_BYTES)
}

/// A channel to be joined; made by [`Domain::receiver`]. `A` says how messages will be read.
#[derive(Debug, Clone)]
#[must_use = "nothing is joined before `join`"]
pub struct ReceiverBuilder<A = InPlace> {
    domain: Arc<DomainInner>,
    name: String,
    wishes: Wishes,
    access: PhantomData<fn() -> A>,
}

impl ReceiverBuilder {
    pub(crate) fn new(domain: &Domain, name: &str) -> Self {
        let (domain, name) = (Arc::clone(&domain.inner), name.to_owned());
        Self { domain, name, wishes: Wishes::default(), access: PhantomData }
    }

    /// Messages will be copied out instead of read in place: possible for every channel, and the
    /// only way where messages may be written over while they are read
    /// ([`SenderBuilder::overwrite`], [`SenderBuilder::evict`]) or the sender is not to be trusted.
    pub fn snapshots(self) -> ReceiverBuilder<Copying> {
        let Self { domain, name, wishes, .. } = self;
        ReceiverBuilder { domain, name, wishes, access: PhantomData }
    }
}

impl<A: Reading> ReceiverBuilder<A> {
    /// Begins with the oldest message that is still whole, instead of the next one sent. How far
    /// back that is depends on the ring and the window: at most one slot less than all, and about
    /// half of the window.
    pub fn from_oldest(mut self) -> Self {
        self.wishes.start = Start::Oldest;
        self
    }

    /// As [`from_oldest`](Self::from_oldest) where the channel allows it to this receiver; where it does
    /// not, because the channel has several senders or this process is a guest, begins with the next
    /// message sent. For a receiver that waits for a channel and may come late:
    /// [`Receiver::late_by`] says how many messages it has missed then.
    pub fn from_oldest_if_possible(mut self) -> Self {
        self.wishes.start = Start::OldestIfPossible;
        self
    }

    /// Which last-level cache the receiver is at: the number of the first processor there. If not said,
    /// that of the processor that joins. It matters for a channel on two levels
    /// ([`SenderBuilder::levels`]).
    pub fn cache_domain(mut self, number: u32) -> Self {
        self.wishes.cache_domain = Some(number);
        self
    }

    /// How calls of the receiver wait for messages.
    pub fn wait(mut self, wait: Wait) -> Self {
        self.wishes.wait = wait;
        self
    }

    /// The longest that a call sleeps before it looks by itself: 100 ms if not said, no less than
    /// 1 ms. A sleeper is woken by what it waits for; this is the net below, for a sender that is
    /// stopped, or kept from running, between a message and the wake-up. Longer spares an idle machine
    /// the looks.
    pub fn sleep_cap(mut self, cap: Duration) -> Self {
        self.wishes.sleep_cap = Some(cap);
        self
    }

    /// Joins a channel of any declared type, or of plain bytes, for a receiver that reads messages as
    /// bytes: without this, a channel that was created for a type is refused to such a receiver.
    /// [`Receiver::channel_type`] says what was joined.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = std::env::temp_dir().join(format!("corewire-doc-any-{}", std::process::id()));
    /// # let domain = corewire::Domain::open_at(&dir)?;
    /// let mut prices = domain.sender("prices").create_typed::<u64>()?;
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

    /// Joins the channel now.
    ///
    /// # Errors
    /// [`JoinError::NotFound`] if there is none; [`JoinError::NotInPlace`] if its messages can only
    /// be copied out; [`JoinError`] for all else.
    pub fn join(self) -> Result<Receiver<A>, JoinError> {
        join(&self.domain, &ChannelName::new(&self.name)?, self.wishes)
    }

    /// Joins the channel as soon as it exists. If it does not yet, its first message is the first
    /// that this receiver gets. In another user's domain it is not: the sender does not wait for
    /// guests, who may miss what it sent before they joined.
    ///
    /// # Errors
    /// [`JoinError`], but never `NotFound`.
    pub fn join_when_created(self) -> Result<Receiver<A>, JoinError> {
        self.wait_and_join(None)
    }

    /// As [`join_when_created`](Self::join_when_created), waiting for at most `timeout`, though half a
    /// second for the answer of whoever lets receivers in.
    ///
    /// # Errors
    /// [`JoinError::NotCreated`] if it did not appear, [`JoinError::NoAnswer`] if it is there and
    /// whoever lets receivers in does not answer, because it is stopped; [`JoinError`] for all else.
    pub fn join_timeout(self, timeout: Duration) -> Result<Receiver<A>, JoinError> {
        self.wait_and_join(Some(timeout))
    }

    /// Joins the channel now, for values of type `T`.
    ///
    /// # Errors
    /// [`JoinError::Type`] if it carries another type, or another version of it; else as for
    /// [`join`](Self::join).
    pub fn join_typed<T: MessageType>(self) -> Result<TypedReceiver<T, A>, JoinError> {
        self.expecting::<T>().join().map(TypedReceiver::new)
    }

    /// Joins the channel as soon as it exists, for values of type `T`.
    ///
    /// # Errors
    /// [`JoinError::Type`] as for [`join_typed`](Self::join_typed); else as for
    /// [`join_when_created`](Self::join_when_created).
    pub fn join_typed_when_created<T: MessageType>(self) -> Result<TypedReceiver<T, A>, JoinError> {
        self.expecting::<T>().join_when_created().map(TypedReceiver::new)
    }

    /// As [`join_typed_when_created`](Self::join_typed_when_created), waiting for at most `timeout`.
    ///
    /// # Errors
    /// [`JoinError::Type`] as for [`join_typed`](Self::join_typed); else as for
    /// [`join_timeout`](Self::join_timeout).
    pub fn join_typed_timeout<T: MessageType>(
        self,
        timeout: Duration,
    ) -> Result<TypedReceiver<T, A>, JoinError> {
        self.expecting::<T>().join_timeout(timeout).map(TypedReceiver::new)
    }

    fn expecting<T: MessageType>(mut self) -> Self {
        self.wishes.type_tag = tag_of::<T>();
        self
    }

    fn wait_and_join(self, timeout: Option<Duration>) -> Result<Receiver<A>, JoinError> {
        let name = ChannelName::new(&self.name)?;
        waiting::join_when_created(&self.domain, &name, self.wishes, timeout, None)
    }
}
