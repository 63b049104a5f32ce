//! Creating a channel.
//!
//! | | what happens |
//! |---|---|
//! | 1 | Checks the name and the sizes. Claims the name: locks its file for the channel's lifetime. |
//! | 2 | Allocates the segment, maps and seals it, and writes its header. Reserves a page of addresses for each possible receiver. |
//! | 3 | Writes the record into the name's file. Other processes can now find the channel. |
//! | 4 | Invites the receivers that wait for this name. While one is invited, the data thread has no limit above 0: the first message waits, for as long as the policy allows. |

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

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

use crate::control::asking::Wishes;
use crate::control::domain::DomainHandle;
use crate::control::memory::staging;
use crate::control::owner::{Owner, OwnerParts, SenderControl};
use crate::control::reachable::Kind;
use crate::control::shared::member::{self, Plan};
use crate::error::CreateError;
use crate::halves::SenderHalf;
use crate::host::{Hosted, SenderRing};
use crate::open::domain::Domain;
use crate::open::levels::{self, Levels};
use crate::path::send::{self, Sender};
use crate::path::shared::{self, SharedSender};
use crate::typed::schema::{MessageType, tag_of};
use crate::wait::{Wait, cap_ns};

/// Default number of slots, if the second-level cache is at least 2 MiB. They take 1 MiB. With fewer slots, each core's
/// private caches still hold lines that the other core needs, and streaming falls to a half or a fifth: below 4096
/// slots on every machine measured, below 16384 on some (docs/results).
const SLOTS: u64 = 16_384;
/// Minimum of the default number of slots.
const SLOTS_MIN: u64 = 4096;
/// Default size of the window in bytes, if the second-level cache is at least 2 MiB.
const WINDOW_BYTES: u64 = 1 << 20;
/// Default time that the first message waits for invited receivers.
const INVITATION_TIMEOUT: Duration = Duration::from_secs(1);
/// Default maximum number of receivers.
const RECEIVERS: u64 = 64;

impl Domain {
    /// Returns the builder of channel `name`, with this process as its sender.
    pub fn sender(&self, name: &str) -> SenderBuilder {
        SenderBuilder::new(self, name)
    }
}

/// Builder of a channel, returned by [`Domain::sender`]. `T` is what its messages hold: bytes, unless
/// [`typed`](Self::typed) says otherwise.
#[must_use = "nothing is created before `create`"]
pub struct SenderBuilder<T: ?Sized = [u8]> {
    options: Options,
    _type: PhantomData<fn(&T)>,
}

/// All that a builder was told.
#[derive(Debug, Clone)]
pub(crate) struct Options {
    domain: DomainHandle,
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

/// The initial state of a channel on two levels, or of a relay's channel.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Origin {
    /// The number of its first message.
    pub(crate) first: u64,
    /// The group of its sender, if the other groups have relays.
    pub(crate) home: Option<u32>,
    /// When the sender leaves, the channel is not closed, as if the sender had died. A relay's receivers then continue
    /// with the next relay.
    pub(crate) hangs_up: bool,
}

impl SenderBuilder {
    pub(crate) fn new(domain: &Domain, name: &str) -> Self {
        Self { options: Options::new(&domain.inner, name), _type: PhantomData }
    }

    /// Makes the messages values of type `T`. Receivers and senders of another type are refused, with an error that
    /// names both types. The maximum message length is at least the length of a `T`.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = std::env::temp_dir().join(format!("corewire-doc-typed-{}", std::process::id()));
    /// # let domain = corewire::Domain::open_at(&dir)?;
    /// #[corewire::message]
    /// #[derive(Debug, PartialEq)]
    /// struct Tick {
    ///     price: u64,
    ///     volume: u64,
    /// }
    ///
    /// let mut sender = domain.sender("ticks").typed::<Tick>().create()?;
    /// let mut receiver = domain.receiver("ticks").typed::<Tick>().join()?;
    /// sender.send(&Tick { price: 101, volume: 7 })?; // one copy, into the channel
    /// let mut tick = sender.loan()?; // no copy: written where it will be read
    /// tick.price = 102;
    /// tick.volume = 3;
    /// tick.send();
    ///
    /// assert_eq!(*receiver.receive()?, Tick { price: 101, volume: 7 });
    /// assert_eq!(receiver.receive()?.price, 102);
    /// # drop((receiver, sender, domain)); std::fs::remove_dir_all(&dir)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn typed<T: MessageType>(mut self) -> SenderBuilder<T> {
        self.options.type_tag = tag_of::<T>();
        SenderBuilder { options: self.options, _type: PhantomData }
    }
}

impl<T: ?Sized> SenderBuilder<T> {
    /// Number of messages that the ring can hold, a power of two. Default: 16384, or as many as fit in half of the
    /// second-level cache if that is less, but at least 4096. A slot takes 64 bytes. For N receivers, 16 N slots or
    /// more keep the sender's own cost constant.
    pub fn slots(mut self, count: usize) -> Self {
        self.options.slots = Some(count as u64);
        self
    }

    /// Size in bytes of the area for messages of more than 48 bytes, a power of two. Each of them takes at most a
    /// quarter of it. Default: 1 MiB, or half of the second-level cache if that is less. A larger area is slower.
    pub fn window_bytes(mut self, bytes: usize) -> Self {
        self.options.window_bytes = Some(bytes as u64);
        self
    }

    /// Maximum length of a message in bytes. Default: a quarter of the window. For a larger value the channel gets a
    /// second area, of two to eight times the maximum length.
    pub fn largest_message(mut self, bytes: usize) -> Self {
        self.options.largest_message = Some(bytes as u64);
        self
    }

    /// Maximum number of receivers at one time, 1 to 1024. Default: 64. The sender checks up to 8 for sleepers one by
    /// one; with more, sleepers set one word that all receivers share.
    pub fn receivers(mut self, count_max: usize) -> Self {
        self.options.receivers = count_max as u64;
        self
    }

    /// Never waits for receivers (policy *Overwrite*). A slow receiver misses the messages that are overwritten, and
    /// gets their exact number. Receivers copy messages out
    /// ([`ReceiverBuilder::snapshots`](crate::ReceiverBuilder::snapshots)). A send costs the same as with *Block*, but
    /// a loan is copied when it is sent.
    pub fn overwrite(mut self) -> Self {
        self.options.policy = Policy::Overwrite;
        self
    }

    /// Waits for a slow receiver for at most `after`, and then continues without it (policy *Evict*). A receiver is
    /// evicted if it does not pass an eighth of the ring in that time while the sender waits for it. Its next call
    /// returns an error, and it gets no more messages. The other receivers lose nothing. Receivers copy messages out
    /// ([`ReceiverBuilder::snapshots`](crate::ReceiverBuilder::snapshots)), and a loan is copied when it is sent.
    pub fn evict(mut self, after: Duration) -> Self {
        let after_ns = u64::try_from(after.as_nanos()).unwrap_or(u64::MAX);
        self.options.policy = Policy::Evict { after_ns };
        self
    }

    /// Whether receivers at other last-level caches than the sender's get messages from a relay at their cache. Only
    /// for channels of one sender with the policy *Block*.
    pub fn levels(mut self, levels: Levels) -> Self {
        self.options.levels = levels;
        self
    }

    /// The sender's last-level cache: the number of the first processor that shares it. Default: the cache of the
    /// processor that creates the channel.
    pub fn cache_domain(mut self, number: u32) -> Self {
        self.options.cache_domain = Some(number);
        self
    }

    /// How long the first message waits, from the channel's creation, for receivers that were waiting for the channel
    /// and have not joined yet. Default: 1 s. A receiver that joins later, for example because its process was stopped,
    /// joins like any other: it begins with the next message, or with the oldest
    /// ([`ReceiverBuilder::from_oldest`](crate::ReceiverBuilder::from_oldest)). With [`evict`](Self::evict), `after` is
    /// the limit instead. With [`overwrite`](Self::overwrite), the first message waits for no receiver.
    pub fn invitation_timeout(mut self, timeout: Duration) -> Self {
        self.options.invitation_timeout = timeout;
        self
    }

    /// Sets how the sender's calls wait for room.
    pub fn wait(mut self, wait: Wait) -> Self {
        self.options.wait = wait;
        self
    }

    /// Maximum time that a call sleeps before it checks by itself. Default: 100 ms; at least 1 ms. What a sleeper waits
    /// for wakes it. The cap is the safety net for a receiver that is stopped or not scheduled between making room and
    /// the wake-up. With a longer cap an idle machine checks less often.
    pub fn sleep_cap(mut self, cap: Duration) -> Self {
        self.options.sleep_cap = Some(cap);
        self
    }

    /// Requests huge pages. Ordinary pages are used where the machine provides none for shared memory, which `corewire
    /// doctor` reports.
    pub fn huge_pages(mut self, wanted: bool) -> Self {
        self.options.memory.huge_pages = wanted;
        self
    }

    /// Touches all memory at creation, so that no message causes a page fault.
    pub fn prefault(mut self, wanted: bool) -> Self {
        self.options.memory.prefault = wanted;
        self
    }

    /// Prevents the channel's memory from being swapped out.
    pub fn lock_memory(mut self, wanted: bool) -> Self {
        self.options.memory.lock = wanted;
        self
    }

    /// Allocates the channel's memory on this NUMA node.
    pub fn numa_node(mut self, node: u32) -> Self {
        self.options.memory.numa_node = Some(node);
        self
    }

    /// Creates the channel. Receivers that wait for it are invited and get its first message.
    ///
    /// # Errors
    /// [`CreateError`]: a bad name or size, a name in use by a living process, another user's domain, an impossible
    /// option ([`CreateError::Levels`], [`CreateError::Topology`]), or a failed call (no memory, no descriptors, a
    /// limit).
    pub fn create(self) -> Result<Sender<T>, CreateError> {
        self.options.create().map(Sender::new)
    }

    /// Opens the channel as a shared one: creates it for at most `senders_max` senders (2 to 128; less than 2 counts as
    /// 2), or becomes one of its senders if it exists. If it exists, it keeps the sizes and the policy that its creator
    /// chose, and only the type must be the same. [`overwrite`](Self::overwrite) is refused, because it does not keep
    /// the order. The options for memory are not used.
    ///
    /// Blocks until the process that admits senders answers, for at most 10 s. That process may be stopped.
    ///
    /// # Errors
    /// As for [`create`](Self::create), and [`CreateError::OverwriteShared`], [`CreateError::LevelsShared`],
    /// [`CreateError::NoHost`], [`CreateError::Enter`], and `AlreadyExists` if the channel has one sender.
    pub fn open_shared(self, senders_max: usize) -> Result<SharedSender<T>, CreateError> {
        self.options.open_shared(senders_max).map(SharedSender::new)
    }
}

impl<T: ?Sized> Clone for SenderBuilder<T> {
    fn clone(&self) -> Self {
        Self { options: self.options.clone(), _type: PhantomData }
    }
}

impl<T: ?Sized> fmt::Debug for SenderBuilder<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SenderBuilder").field(&self.options).finish()
    }
}

impl Options {
    fn new(domain: &DomainHandle, name: &str) -> Self {
        Self {
            domain: domain.clone(),
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

    /// Those of a relay's channel, whose sizes are those of the channel that it relays.
    pub(crate) fn of_relay(domain: &DomainHandle, name: &ChannelName, wishes: Wishes) -> Self {
        let Wishes { wait, sleep_cap, type_tag, .. } = wishes;
        Self { wait, sleep_cap, type_tag, ..Self::new(domain, name.as_str()) }
    }

    fn create(self) -> Result<send::Untyped, CreateError> {
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
            ClaimError::AlreadyExists(name) => {
                CreateError::AlreadyExists(domain.name_in_use(&name))
            }
            error => error.into(),
        })?;
        // The senders of a shared channel have its name even during a change of host.
        let is_taken = domain.directory.has_members(&name);
        if !matches!(is_taken, Ok(false)) {
            claim.release(&domain.directory);
            is_taken?;
            return Err(CreateError::AlreadyExists(domain.name_in_use(&name)));
        }
        self.create_at(claim, &name, geometry, random_u128()?, Origin { home, ..Origin::default() })
    }

    /// Creates the channel under a claimed name.
    pub(crate) fn create_at(
        &self,
        claim: Claim,
        name: &ChannelName,
        geometry: Geometry,
        incarnation: u128,
        origin: Origin,
    ) -> Result<send::Untyped, CreateError> {
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

    /// Allocates the channel's memory and creates the parts of its two halves.
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
        // A process that can write the hint can also clear it, so the hint is only for processes of one user.
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
            // A relay waits for all its followers without a limit: they have joined the channel already.
            invitation_patience: (!hangs_up).then(|| self.invitation_patience()),
            domain: self.domain.clone(),
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

    /// Publishes the channel.
    fn finish(
        &self,
        claim: Claim,
        parts: SenderParts,
        owner: &Arc<Owner>,
        record: NameRecord,
        origin: Origin,
    ) -> Result<send::Untyped, CreateError> {
        let domain = &self.domain;
        owner.keep_claim(claim);
        let mut ring = SenderRing::new(parts, Hosted::new(Arc::new(SenderControl::new(owner))));
        ring.begin_with(origin.first);
        ring.set_sleep_cap(cap_ns(self.sleep_cap));
        domain.add(Kind::Channel, owner.name(), owner);
        // From here on, dropping the sender releases everything.
        let sender = send::Untyped::new(ring, owner.clone(), self.wait, origin.hangs_up);
        owner.publish(record)?;
        Ok(sender)
    }

    fn open_shared(self, senders_max: usize) -> Result<shared::Untyped, CreateError> {
        let name = ChannelName::new(&self.name)?;
        if self.policy == Policy::Overwrite {
            return Err(CreateError::OverwriteShared);
        }
        if self.levels == Levels::Two {
            return Err(CreateError::LevelsShared);
        }
        let one = self.geometry()?;
        // A channel for one sender would not be a shared one.
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
        Ok(shared::Untyped::new(ring, member, self.wait))
    }

    fn geometry(&self) -> Result<Geometry, CreateError> {
        let window = self.window_bytes.unwrap_or_else(default_window_bytes);
        let largest = self.largest_message.unwrap_or(window / 4);
        let slots = self.slots.unwrap_or_else(default_slots);
        let geometry = Geometry::new(slots, window, largest, self.receivers)?;
        let needed = self.type_tag.key.bytes;
        if geometry.message_bytes_max() >= needed {
            return Ok(geometry);
        }
        Ok(Geometry::new(slots, window, needed, self.receivers)?)
    }
}

/// Half of the second-level cache in bytes, rounded down to a power of two.
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
