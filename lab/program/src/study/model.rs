//! What ZIMP's macro-benchmarks would cost with a core for each role, on a model of coherent caches.

use corewire_coherence::caches::Counts;
use corewire_coherence::rings;

use super::protocols::{OnModel, Protocol};
use super::zimp::model::{RINGS, make, measure};
use crate::study::failure::Failure;

/// A protocol with 48-byte messages, every role on a core of its own.
#[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
pub(crate) fn count_flow(protocol: Protocol, nodes: &[u32]) -> Result<Vec<OnModel>, Failure> {
    let mut rows = Vec::new();
    for (&nodes, ring) in nodes.iter().flat_map(|nodes| RINGS.map(|ring| (nodes, ring))) {
        let whole = match protocol {
            Protocol::Paxos => rings::agreement(nodes, |receivers| make(ring, receivers))?,
            Protocol::Checkpoint => rings::gathering(nodes, |receivers| make(ring, receivers))?,
        };
        let figures = measure(whole)?;
        let sum = |of: fn(&Counts) -> u64| {
            of(&figures.sender) + figures.receivers.iter().map(of).sum::<u64>()
        };
        let each = |total: u64| total as f64 / figures.messages as f64;
        rows.push(OnModel {
            ring: ring.to_owned(),
            nodes,
            each_ns: each(figures.time_ns),
            transfers: each(sum(Counts::transfers)),
            read_modify_writes: each(sum(|counts| counts.modifies)),
        });
    }
    Ok(rows)
}
