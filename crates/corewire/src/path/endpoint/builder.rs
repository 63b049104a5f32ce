//! Making an endpoint.

use std::sync::Arc;
use std::time::Duration;

use corewire_endpoint::{Budget, Engine, Seed};
use corewire_layout::endpoint::{ACTIVITY_BYTES, EndpointHeader, EndpointSizes};
use corewire_layout::name::{ChannelName, NameKind, NameRecord};
use corewire_layout::segment::FenceMode;
use corewire_os::directory::ClaimError;
use corewire_os::event::Bell;
use corewire_os::memory::Segment;
use corewire_os::sleep::Linux;
use corewire_os::{process, random_u128};
use corewire_ring::pair::{self, Activity, EndpointMemory, EndpointParts, EndpointShared};
use zerocopy::IntoBytes;

use super::Endpoint;
use super::rings::PairRings;
use crate::control::domain::{Domain, DomainInner};
use crate::control::endpoint::{EndpointControl, EndpointControlParts, EndpointKernel};
use crate::error::EndpointError;
use crate::wait::{BARE_POLLS, Wait, adaptive_pauses, cap_ns};

/// An endpoint to be made; begun by [`Domain::endpoint`].
///
/// Its memory: 256 bytes for each peer there may be; for each peer that it sends to, a ring (16 KiB if not
/// said), of which there are no more than [`rings`](Self::rings) says, whatever the number of peers; and,
/// once it sends a message of more than 160 bytes, the cells (1 MiB if not said).
#[derive(Debug, Clone)]
#[must_use = "nothing is made before `create`"]
pub struct EndpointBuilder {
    domain: Arc<DomainInner>,
    name: String,
    peers: u64,
    rings: Option<u64>,
    ring_slots: u64,
    cells: u64,
    cell_bytes: u64,
    budget_bytes: usize,
    wait: Wait,
    sleep_cap: Option<Duration>,
}

impl EndpointBuilder {
    pub(crate) fn new(domain: &Domain, name: &str) -> Self {
        Self {
            domain: Arc::clone(&domain.inner),
            name: name.into(),
            peers: 256,
            rings: None,
            ring_slots: 256,
            cells: 64,
            cell_bytes: 16 << 10,
            budget_bytes: 16 << 20,
            wait: Wait::default(),
            sleep_cap: None,
        }
    }

    /// The most peers at one time, 1 to 1024: 256 if not said.
    pub fn peers(mut self, count_max: usize) -> Self {
        self.peers = count_max as u64;
        self
    }

    /// The most peers that have a ring at one time, 1 to 1024; as many as there may be peers if not said.
    /// Who sends to more has rings go from one that is idle to the next.
    pub fn rings(mut self, count_max: usize) -> Self {
        self.rings = Some(count_max as u64);
        self
    }

    /// Slots of each ring, of 64 bytes, a power of two from 8 to 65536: 256 if not said. A sender that waits
    /// for room is woken when three quarters are free, so fewer cost more wake-ups where there are more
    /// senders than processors; more cost as much memory for every peer that is sent to.
    pub fn ring_slots(mut self, slots: usize) -> Self {
        self.ring_slots = slots as u64;
        self
    }

    /// How many cells there are, for messages of more than 160 bytes, and how long each is: a power of two
    /// from 4 KiB to 256 KiB. Default: 64 of 16 KiB. A message that is longer than 256 KiB goes through so much of
    /// them again and again, as through a pipe.
    pub fn cells(mut self, count: usize, bytes: usize) -> Self {
        self.cells = count as u64;
        self.cell_bytes = bytes as u64;
        self
    }

    /// Bytes of messages that are kept before a receive asks for them, each counted with 128 bytes more.
    /// Default: 16 MiB. One peer has at most half of it, and a quarter is divided among all the
    /// [`peers`](Self::peers) that there may be, so that no peer takes the share of another. What finds no
    /// room stays with its sender, whose later messages wait behind it: receive it, or
    /// [`discard`](Endpoint::discard) what nobody will ask for.
    pub fn budget(mut self, bytes: usize) -> Self {
        self.budget_bytes = bytes;
        self
    }

    /// How its calls wait.
    pub fn wait(mut self, wait: Wait) -> Self {
        self.wait = wait;
        self
    }

    /// The longest that a call sleeps before it looks by itself: 100 ms if not said, no less than 1 ms. A
    /// sleeper is woken by what it waits for; this is the net below, for a peer that is stopped between a
    /// message and the wake-up.
    pub fn sleep_cap(mut self, cap: Duration) -> Self {
        self.sleep_cap = Some(cap);
        self
    }

    /// Makes the endpoint. From now on others can reach it.
    ///
    /// # Errors
    /// [`EndpointError`]: a bad name or size, a name that somebody alive has, another user's domain, or a
    /// failed call (no memory, no descriptors, a limit).
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
            EndpointSizes::new(self.peers, rings, self.ring_slots, self.cells, self.cell_bytes)?;
        let claim = self.domain.directory.claim(&name).map_err(|error| match error {
            ClaimError::AlreadyExists(name) => {
                EndpointError::AlreadyExists(self.domain.use_of(&name))
            }
            error => error.into(),
        })?;
        let is_taken = self.domain.directory.has_members(&name);
        if !matches!(is_taken, Ok(false)) {
            claim.release(&self.domain.directory);
            is_taken?;
            return Err(EndpointError::AlreadyExists(self.domain.use_of(&name)));
        }
        let incarnation = random_u128()?;
        match self.build(name, sizes, incarnation) {
            Ok(endpoint) => {
                self.domain.add_endpoint(&endpoint.control);
                let written =
                    claim.write(NameRecord { kind: NameKind::Endpoint, socket, incarnation });
                endpoint.control.hold(claim);
                // Dropping it gives the name back.
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
    ) -> Result<Endpoint, EndpointError> {
        let has_barriers = Linux::get().has_membarrier();
        let fence_mode = if has_barriers { FenceMode::Asymmetric } else { FenceMode::Fenced };
        let (pid, budget_bytes) = (process::pid(), self.budget_bytes as u64);
        let header = EndpointHeader { sizes, fence_mode, incarnation, pid, name, budget_bytes };
        // Rings and cells are there when they are first needed.
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
            domain: Arc::clone(&self.domain),
        });
        let parts = EndpointParts { memory, activity, fence_mode, shared };
        let mut pairs = pair::Endpoint::new(parts, EndpointKernel::new(Arc::clone(&control)));
        pairs.set_sleep_cap(cap_ns(self.sleep_cap));
        let pauses = adaptive_pauses();
        // Peers know the incarnation, but not this.
        let seed = u64::try_from(random_u128()? >> 64).unwrap_or_default();
        let rings = PairRings::new(pairs, Arc::clone(&control));
        let budget = Budget::new(self.budget_bytes, self.peers);
        Ok(Endpoint {
            engine: Engine::new(rings, budget, Seed(seed)),
            control,
            ring_slots: self.ring_slots,
            wait: self.wait,
            pauses,
            bare_polls: BARE_POLLS,
            short_polls: match self.wait {
                Wait::Park => 1,
                Wait::Adaptive => BARE_POLLS + pauses,
                Wait::Spin => u32::MAX,
            },
            in_vain: 0,
        })
    }
}
