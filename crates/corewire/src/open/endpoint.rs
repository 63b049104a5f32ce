//! Creating an endpoint.

use std::sync::Arc;
use std::time::Duration;

use corewire_endpoint::{Budget, Grants, Seed};
use corewire_layout::endpoint::{ACTIVITY_BYTES, EndpointHeader, EndpointSizes};
use corewire_layout::name::{ChannelName, NameKind, NameRecord};
use corewire_layout::segment::FenceMode;
use corewire_os::directory::ClaimError;
use corewire_os::event::Bell;
use corewire_os::memory::Segment;
use corewire_os::sleep::Linux;
use corewire_os::{process, random_u128};
use corewire_ring::pair::{Activity, EndpointMemory, EndpointParts, EndpointShared};
use zerocopy::IntoBytes;

use crate::control::domain::DomainHandle;
use crate::control::endpoint::{EndpointControl, EndpointControlParts};
use crate::control::reachable::Kind;
use crate::error::EndpointError;
use crate::halves::EndpointHalf;
use crate::host::{Hosted, PairRing};
use crate::open::domain::Domain;
use crate::path::endpoint::Endpoint;
use crate::rings::{LongMessages, Rendezvous};
use crate::tuning::tuning;
use crate::wait::{Wait, cap_ns};

impl Domain {
    /// Returns the builder of endpoint `name`, through which this process exchanges messages with others.
    pub fn endpoint(&self, name: &str) -> EndpointBuilder {
        EndpointBuilder::new(self, name)
    }
}

/// Builder of an endpoint, returned by [`Domain::endpoint`].
///
/// Its memory: 512 bytes for each possible peer and 8 KiB for offers; a ring (default: 16 KiB) for each peer that it
/// sends to, at most [`rings`](Self::rings) whatever the number of peers; and, once it sends a message of more than
/// 160 bytes, the cells (default: 1 MiB).
#[derive(Debug, Clone)]
#[must_use = "nothing is made before `create`"]
pub struct EndpointBuilder {
    domain: DomainHandle,
    name: String,
    peers: u64,
    rings: Option<u64>,
    ring_slots: u64,
    cells: u64,
    cell_bytes: u64,
    budget_bytes: usize,
    heap_bytes: u64,
    grant_bytes: u64,
    refuses: bool,
    wait: Wait,
    long: LongMessages,
    sleep_cap: Option<Duration>,
    #[cfg(feature = "net")]
    hosts: Option<std::path::PathBuf>,
    #[cfg(feature = "net")]
    listen: Vec<String>,
}

impl EndpointBuilder {
    pub(crate) fn new(domain: &Domain, name: &str) -> Self {
        let tuning = &tuning().tuning;
        let (cells, cell_bytes) = tuning.cells();
        Self {
            domain: domain.inner.clone(),
            name: name.into(),
            peers: 256,
            rings: None,
            ring_slots: 256,
            cells,
            cell_bytes,
            budget_bytes: 16 << 20,
            heap_bytes: 16 << 20,
            grant_bytes: 8 << 20,
            refuses: false,
            wait: Wait::default(),
            long: LongMessages {
                rendezvous: Rendezvous::default(),
                thresholds: tuning.thresholds(),
            },
            sleep_cap: None,
            #[cfg(feature = "net")]
            hosts: domain.hosts.clone(),
            #[cfg(feature = "net")]
            listen: Vec::new(),
        }
    }

    /// Maximum number of peers at one time, 1 to 1024. Default: 256.
    pub fn peers(mut self, count_max: usize) -> Self {
        self.peers = count_max as u64;
        self
    }

    /// Maximum number of peers that have a ring at one time, 1 to 1024. Default: the maximum number of peers. If the
    /// endpoint sends to more peers, rings move from idle peers to others.
    pub fn rings(mut self, count_max: usize) -> Self {
        self.rings = Some(count_max as u64);
        self
    }

    /// Number of slots of 64 bytes in each ring, a power of two from 8 to 65536. Default: 256. A sender that waits
    /// for room is woken when three quarters are free, so fewer slots cost more wake-ups if there are more senders
    /// than processors; more slots cost memory for every peer that is sent to.
    pub fn ring_slots(mut self, slots: usize) -> Self {
        self.ring_slots = slots as u64;
        self
    }

    /// Number of cells, for messages of more than 160 bytes, and the length of each: a power of two from 4 KiB to 256
    /// KiB. Default: 64 of 16 KiB. Messages of more than 128 KiB, and those of more than 32 KiB for which there is
    /// no room in the cells, go through cells only if they cannot be copied from one process's memory to the
    /// other's; one longer than 256 KiB goes repeatedly through 256 KiB of them, as through a pipe.
    pub fn cells(mut self, count: usize, bytes: usize) -> Self {
        self.cells = count as u64;
        self.cell_bytes = bytes as u64;
        self
    }

    /// Maximum bytes of messages that are kept before a receive asks for them, each counted with 128 bytes more.
    /// Default: 16 MiB. One peer has at most half of it, and a quarter is divided among all possible
    /// [`peers`](Self::peers), so that no peer takes the share of another. A message beyond the budget stays with its
    /// sender, whose later messages wait behind it: receive it, or [`discard`](Endpoint::discard) messages that no
    /// receive will ask for. Offered messages (of more than 128 KiB, or of more than 32 KiB without room in the cells)
    /// stay in their senders' memory, outside the budget, up to 1024 of each peer. If their sender does nothing but
    /// wait for them, they are fetched as far as the budget allows. While this endpoint waits in a send, one message of
    /// each peer that is no longer than its own is kept beyond the budget: otherwise two endpoints that send to each
    /// other could wait for ever.
    pub fn budget(mut self, bytes: usize) -> Self {
        self.budget_bytes = bytes;
        self
    }

    /// Bytes of the heap: memory for messages of this endpoint that its peers read there, a multiple of 64 KiB.
    /// Default: 16 MiB; 0 for none. It is allocated as it is needed, in pieces of 64 KiB, and stays allocated. One
    /// peer has at most half of it; a message that finds no room there is sent in another way.
    pub fn heap(mut self, bytes: usize) -> Self {
        self.heap_bytes = bytes as u64;
        self
    }

    /// How many bytes of their heaps the endpoint's peers may fill, altogether, with messages that this endpoint has
    /// not released: those that were not received yet, and those whose [`OwnedMessage`](crate::OwnedMessage) has not
    /// been dropped. Default: 8 MiB; 0 lets no message stay there.
    ///
    /// The endpoint grants a peer nothing before a receive has taken a message of more than 160 bytes of it into
    /// memory of its own ([`receive`](Endpoint::receive)), or the peer asks for a [`loan`](Endpoint::loan). A
    /// quarter of the total is divided among all the [`peers`](Self::peers) that there may be; the rest goes to
    /// those that need more, which give back what they do not use when others need it. Blocks are counted, each as
    /// long as a power of two from 256 bytes on, or as a multiple of 64 KiB.
    ///
    /// ```
    /// use corewire::Domain;
    ///
    /// # let directory = std::env::temp_dir().join(format!("corewire-doc-grants-{}", std::process::id()));
    /// let domain = Domain::open_at(&directory)?;
    /// // Up to 32 MiB of images may wait for the viewer, or be looked at.
    /// let viewer = domain.endpoint("viewer").grants(32 << 20).create()?;
    /// let camera = domain.endpoint("camera").heap(64 << 20).create()?;
    /// # drop((viewer, camera, domain));
    /// # let _ = std::fs::remove_dir_all(&directory);
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn grants(mut self, bytes: usize) -> Self {
        self.grant_bytes = bytes as u64;
        self
    }

    /// Length of the longest message that this endpoint sends in place to a receiver that grants that, except in
    /// [loans](Endpoint::loan), which are always in place. Default: 16 KiB. A receiver that reads all of a longer
    /// message gets it sooner through cells; one that forwards it, or reads parts of it, saves a copy if it is in
    /// place. A message takes a block of its length, rounded up to a power of two, or beyond 64 KiB to a multiple
    /// of 64 KiB. If that is more than the peer grants yet, the message travels in another way, and the peer is
    /// asked for more.
    ///
    /// ```
    /// # let directory = std::env::temp_dir().join(format!("corewire-doc-in-place-{}", std::process::id()));
    /// # let domain = corewire::Domain::open_at(&directory)?;
    /// let endpoint = domain.endpoint("images").heap(64 << 20).in_place_up_to(1 << 20).create()?;
    /// # drop((endpoint, domain));
    /// # let _ = std::fs::remove_dir_all(&directory);
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn in_place_up_to(mut self, bytes: usize) -> Self {
        self.long.thresholds.in_place_up_to = bytes as u64;
        self
    }

    /// A message that its sender would send in place (by default one of 161 bytes to 16 KiB:
    /// [`in_place_up_to`](Self::in_place_up_to)) is refused while what this endpoint [grants](Self::grants) that
    /// sender is spent. `try_send` ends at once with
    /// [`ReceiverFull`](crate::MessageError::ReceiverFull); the other sends wait until messages are released. By
    /// default such a message is copied through the sender's cells, as long as there is room. A message whose block
    /// is longer than the whole grant travels in another way in any case, and its sender asks for more; a peer that
    /// makes no calls keeps what it was granted.
    pub fn refuse_beyond_grants(mut self) -> Self {
        self.refuses = true;
        self
    }

    /// Sets how its calls wait.
    pub fn wait(mut self, wait: Wait) -> Self {
        self.wait = wait;
        self
    }

    /// Sets how messages are moved that stay in their sender's memory (of more than 128 KiB, or 32 KiB without room
    /// in the cells). Default: [`Rendezvous::BothSides`]. Use [`Rendezvous::Pull`] where no process may write to
    /// another's memory, and [`Rendezvous::Cells`] where none may read it, either.
    ///
    /// ```
    /// use corewire::{Domain, Rendezvous};
    ///
    /// # let directory = std::env::temp_dir().join(format!("corewire-doc-rendezvous-{}", std::process::id()));
    /// let domain = Domain::open_at(&directory)?;
    /// let endpoint = domain.endpoint("careful").rendezvous(Rendezvous::Pull).create()?;
    /// # drop((endpoint, domain));
    /// # let _ = std::fs::remove_dir_all(&directory);
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn rendezvous(mut self, rendezvous: Rendezvous) -> Self {
        self.long.rendezvous = rendezvous;
        self
    }

    /// Maximum time that a call sleeps before it checks by itself. Default: 100 ms; at least 1 ms. What a sleeper
    /// waits for wakes it; the cap is the safety net for a peer that is stopped between a message and the wake-up.
    pub fn sleep_cap(mut self, cap: Duration) -> Self {
        self.sleep_cap = Some(cap);
        self
    }

    /// Sets the file that names other hosts, and says which of them may reach which endpoints
    /// ([`Hosts`](crate::Hosts)). Default: the one that `COREWIRE_HOSTS` names, else `corewire/hosts.toml` in
    /// `$XDG_CONFIG_HOME` or `~/.config`. It is read for each connection.
    #[cfg(feature = "net")]
    pub fn hosts(mut self, path: &std::path::Path) -> Self {
        self.hosts = Some(path.into());
        self
    }

    /// Takes connections of other hosts at this address, `address:port`, and a port of its own; a port of 0 lets the kernel
    /// choose one ([`Endpoint::listening`]). Without it other hosts reach the endpoint through
    /// `corewire monitor --listen`, if that runs here. Which of them may do so the [file of hosts](Self::hosts) says.
    ///
    /// ```
    /// use corewire::{Domain, Selector};
    ///
    /// # let directory = std::env::temp_dir().join(format!("corewire-doc-listen-{}", std::process::id()));
    /// # std::fs::create_dir_all(&directory)?;
    /// # let (a, b) = (directory.join("a.toml"), directory.join("b.toml"));
    /// # let domain = |host: &str| Domain::open_at(&directory.join(host));
    /// // On host b, whose file of hosts lets host a reach it:
    /// # std::fs::write(&b, "own = \"b\"\n[hosts.a]\naddresses = [\"127.0.0.1:1\"]\n[[allow]]\nhosts = [\"a\"]\nendpoints = [\"sink\"]\n")?;
    /// let mut sink = domain("b")?.endpoint("sink").hosts(&b).listen("127.0.0.1:0").create()?;
    /// # let at = sink.listening()[0];
    /// # std::fs::write(&a, format!("own = \"a\"\n[hosts.b]\naddresses = [\"{at}\"]\n"))?;
    ///
    /// // On host a:
    /// let mut source = domain("a")?.endpoint("source").hosts(&a).create()?;
    /// let to_sink = source.peer("sink@b")?;
    /// source.send(to_sink, 1, b"hello")?;
    ///
    /// let hello = sink.receive(Selector::any())?;
    /// assert_eq!(&*hello, b"hello");
    /// assert_eq!(sink.name_of(hello.status().source), Some("source@a"));
    /// # drop((hello, source, sink));
    /// # std::fs::remove_dir_all(&directory)?;
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    #[cfg(feature = "net")]
    pub fn listen(mut self, address: &str) -> Self {
        self.listen.push(address.into());
        self
    }

    /// Creates the endpoint. From then on others can reach it.
    ///
    /// # Errors
    /// [`EndpointError`]: a bad name or size, a name in use by a live process, another user's domain, or a failed
    /// call (no memory, no descriptors, a limit).
    pub fn create(self) -> Result<Endpoint, EndpointError> {
        let name = ChannelName::new(&self.name)?;
        if self.domain.is_forked() {
            return Err(EndpointError::Forked);
        }
        let Some(socket) = self.domain.socket_name() else {
            let (owner, user) = (self.domain.directory.owner(), process::effective_uid());
            return Err(EndpointError::Guest { owner, user });
        };
        let rings = self.rings.unwrap_or(self.peers);
        let sizes =
            EndpointSizes::new(self.peers, rings, self.ring_slots, self.cells, self.cell_bytes)?
                .with_heap(self.heap_bytes)?;
        let claim = self.domain.directory.claim(&name).map_err(|error| match error {
            ClaimError::AlreadyExists(name) => {
                EndpointError::AlreadyExists(self.domain.name_in_use(&name))
            }
            error => error.into(),
        })?;
        let is_taken = self.domain.directory.has_members(&name);
        if !matches!(is_taken, Ok(false)) {
            claim.release(&self.domain.directory);
            is_taken?;
            return Err(EndpointError::AlreadyExists(self.domain.name_in_use(&name)));
        }
        let incarnation = random_u128()?;
        match self.build(name, sizes, incarnation) {
            Ok((endpoint, control)) => {
                self.domain.add(Kind::Endpoint, control.name(), &control);
                let written =
                    claim.write(NameRecord { kind: NameKind::Endpoint, socket, incarnation });
                control.keep_claim(claim);
                // Dropping the endpoint releases the name.
                written?;
                Ok(endpoint)
            }
            Err(error) => {
                claim.release(&self.domain.directory);
                Err(error)
            }
        }
    }

    fn build(
        &self,
        name: ChannelName,
        sizes: EndpointSizes,
        incarnation: u128,
    ) -> Result<(Endpoint, Arc<EndpointControl>), EndpointError> {
        let has_barriers = Linux::get().has_membarrier();
        let fence_mode = if has_barriers { FenceMode::Asymmetric } else { FenceMode::Fenced };
        let (pid, budget_bytes) = (process::pid(), self.budget_bytes as u64);
        let header = EndpointHeader { sizes, fence_mode, incarnation, pid, name, budget_bytes };
        // Rings and cells are allocated when first needed.
        let (segment, memory) =
            Segment::create_in_parts(sizes.segment_bytes(), sizes.ring_offset(0))?;
        memory.copy_in(0, header.to_raw().as_bytes());
        let (activity_segment, page) = Segment::create_writable_by_all(ACTIVITY_BYTES as u64)?;
        let memory = EndpointMemory::new(memory, sizes);
        let activity = Activity::new(page);
        let shared = Arc::new(EndpointShared::new(&activity));
        let control = EndpointControl::new(EndpointControlParts {
            header,
            segment,
            activity: activity_segment,
            memory: memory.clone(),
            shared: Arc::clone(&shared),
            bell: Arc::new(Bell::new()?),
            domain: self.domain.clone(),
            #[cfg(feature = "net")]
            hosts: self.hosts.clone(),
        })?;
        #[cfg(feature = "net")]
        for address in &self.listen {
            let wrong = |_| EndpointError::Address(address.clone());
            control.network().listen(address.parse().map_err(wrong)?)?;
        }
        let parts = EndpointParts { memory, activity, fence_mode, shared };
        let mut pairs = PairRing::new(parts, Hosted::new(control.clone()));
        pairs.set_sleep_cap(cap_ns(self.sleep_cap));
        let budget = Budget::new(self.budget_bytes, self.peers);
        let grants = Grants::new(self.grant_bytes, self.peers, self.refuses);
        // Peers know the incarnation, but must not know the seed.
        let seed = Seed(u64::try_from(random_u128()? >> 64).unwrap_or_default());
        let half = control.clone();
        let (wait, long) = (self.wait, self.long);
        let wait = (wait, cap_ns(self.sleep_cap));
        Ok((Endpoint::new(pairs, half, budget, seed, grants, wait, long), control))
    }
}
