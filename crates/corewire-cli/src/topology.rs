//! What a machine's lines cost, as a file says it: `doctor --measure` writes one, `model --topology`
//! reads it.

use std::fs;
use std::path::Path;

use corewire_coherence::caches::{Costs, Machine};
use serde::{Deserialize, Serialize};

use crate::failure::Failure;

/// More than any access takes: a second.
const COST_MAX_NS: u64 = 1_000_000_000;

/// A machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Topology {
    /// Cores that share a last-level cache.
    pub(crate) domain_cores: usize,
    pub(crate) hit_ns: u64,
    pub(crate) near_ns: u64,
    pub(crate) far_ns: u64,
    pub(crate) busy_ns: u64,
    pub(crate) share_ns: u64,
    pub(crate) next_ns: u64,
    pub(crate) locked_ns: u64,
    pub(crate) under_way_max: usize,
    /// The processors that were measured; none if none were.
    pub(crate) processors: Vec<usize>,
    /// What a line takes to each of them, in a row, from each of them, in nanoseconds.
    pub(crate) pairs_ns: Vec<Vec<f64>>,
}

impl Default for Topology {
    fn default() -> Self {
        let Machine { domain_cores, costs } = Machine::default();
        let Costs { hit_ns, near_ns, far_ns, busy_ns, share_ns, next_ns, locked_ns, under_way_max } =
            costs;
        Self {
            domain_cores,
            hit_ns,
            near_ns,
            far_ns,
            busy_ns,
            share_ns,
            next_ns,
            locked_ns,
            under_way_max,
            processors: Vec::new(),
            pairs_ns: Vec::new(),
        }
    }
}

impl Topology {
    /// What a file says.
    pub(crate) fn read(path: &Path) -> Result<Self, Failure> {
        let shown = path.display();
        let text = fs::read_to_string(path)
            .map_err(|error| Failure::other(format!("cannot read {shown}: {error}")))?;
        let topology: Self = serde_json::from_str(&text)
            .map_err(|error| Failure::usage(format!("{shown} is no topology: {error}")))?;
        for (name, count) in
            [("domain_cores", topology.domain_cores), ("under_way_max", topology.under_way_max)]
        {
            if count == 0 {
                return Err(Failure::usage(format!("{shown}: {name}: 1 at least, not 0")));
            }
        }
        let Costs { hit_ns, near_ns, far_ns, busy_ns, share_ns, next_ns, locked_ns, .. } =
            topology.machine().costs;
        let costs = [hit_ns, near_ns, far_ns, busy_ns, share_ns, next_ns, locked_ns];
        if let Some(cost) = costs.iter().find(|&&cost| cost > COST_MAX_NS) {
            let limit = format!("at most {COST_MAX_NS} ns can be modelled, not {cost}");
            return Err(Failure::usage(format!("{shown}: {limit}")));
        }
        Ok(topology)
    }

    /// Writes a file that [`Self::read`] reads.
    pub(crate) fn write(&self, path: &Path) -> Result<(), Failure> {
        let text = serde_json::to_string(self).map_err(Failure::other)?;
        let failed = |error| Failure::other(format!("cannot write {}: {error}", path.display()));
        fs::write(path, text + "\n").map_err(failed)
    }

    /// As the model has it.
    pub(crate) fn machine(&self) -> Machine {
        let &Self { domain_cores, hit_ns, near_ns, far_ns, busy_ns, share_ns, next_ns, .. } = self;
        let &Self { locked_ns, under_way_max, .. } = self;
        let costs =
            Costs { hit_ns, near_ns, far_ns, busy_ns, share_ns, next_ns, locked_ns, under_way_max };
        Machine { domain_cores, costs }
    }
}
