//! The other side of every benchmark: a separate process that follows the plan.

use corewire::Domain;
use corewire_os::memory::Segment;
use corewire_os::{process, processor};
use corewire_ring::region::Region;
use corewire_ring::sync::Ordering;

use super::rig::{Kind, Plan, RIG_BYTES, done_word, part};
use super::{death, endpoint, latency, policy, shared, stream, top, wake, zimp};
use crate::failure::Failure;

/// A peer's view of the rig.
pub(super) struct Peer {
    pub(super) plan: Plan,
    pub(super) domain: Domain,
    pub(super) memory: Region,
    pub(super) work: Region,
}

impl Peer {
    /// Tells the parent that this peer has reached `step`.
    pub(super) fn done(&self, step: u64) {
        self.memory.word64(done_word(self.plan.index)).store(step, Ordering::Release);
    }
}

/// Follows a plan, given as JSON.
pub(super) fn run(plan: &str) -> Result<(), Failure> {
    let plan: Plan = serde_json::from_str(plan)
        .map_err(|error| Failure::usage(format!("this plan is none: {error}")))?;
    // The bare loops do not notice the death of the parent.
    process::end_with_parent()?;
    if let Some(cpu) = plan.cpu {
        processor::pin_to(cpu)?;
    }
    let segment = Segment::open_writable(&plan.memory)?;
    let memory = segment.map_writable(plan.memory_bytes as u64)?;
    let work = part(&memory, RIG_BYTES, plan.memory_bytes - RIG_BYTES)?;
    let domain = Domain::open_at(&plan.directory)?;
    let peer = Peer { plan, domain, memory, work };
    match peer.plan.kind {
        Kind::Latency => latency::peer(&peer),
        Kind::Zimp => zimp::peer(&peer),
        Kind::RawLine => latency::raw_line_peer(&peer),
        Kind::Stream => stream::peer(&peer),
        Kind::Endpoint => endpoint::one_way_peer(&peer),
        Kind::EndpointSameCore => endpoint::same_core_peer(&peer),
        Kind::EndpointSilent => endpoint::silent_peer(&peer),
        Kind::EndpointStream => endpoint::stream_peer(&peer),
        Kind::EndpointMany => endpoint::many_peer(&peer),
        Kind::Policy => policy::peer(&peer),
        Kind::Shared => shared::peer(&peer),
        Kind::Buffers => stream::buffers_peer(&peer),
        Kind::Wake => wake::peer(&peer),
        Kind::Mortal => death::peer(&peer),
        Kind::Idle => death::idle_peer(&peer),
        Kind::Top => top::peer(&peer),
    }
}
