//! What a machine's cache lines cost, as a file says it: `corewire doctor --measure` writes one,
//! `corewire model --topology` reads it, and so does whoever creates a channel that may be on two levels.

use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// The environment variable that names the machine's file.
const VARIABLE: &str = "COREWIRE_TOPOLOGY";
/// More than any access takes: a second.
const COST_MAX_NS: u64 = 1_000_000_000;

/// A machine: cores in domains that share a last-level cache, and what lines take between them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct Topology {
    /// Cores that share a last-level cache.
    pub domain_cores: usize,
    /// A line that is there.
    pub hit_ns: u64,
    /// A line from a core of the same domain.
    pub near_ns: u64,
    /// A line from another domain, or from memory.
    pub far_ns: u64,
    /// How long a line is busy with a request that takes it from its owner or comes from afar.
    pub busy_ns: u64,
    /// The same for one more reader of a line that its domain has.
    pub share_ns: u64,
    /// How far apart a core asks for lines.
    pub next_ns: u64,
    /// What a read-modify-write takes beyond its line.
    pub locked_ns: u64,
    /// For how many lines a core can have asked at once.
    pub under_way_max: usize,
    /// The processors that were measured; none if none were.
    pub processors: Vec<usize>,
    /// What a line takes to each of them, in a row, from each of them, in nanoseconds.
    pub pairs_ns: Vec<Vec<f64>>,
}

impl Default for Topology {
    /// All cores in one domain; times of the order of a server of the 2020s.
    fn default() -> Self {
        Self {
            domain_cores: 512,
            hit_ns: 1,
            near_ns: 50,
            far_ns: 125,
            busy_ns: 20,
            share_ns: 5,
            next_ns: 4,
            locked_ns: 10,
            under_way_max: 10,
            processors: Vec::new(),
            pairs_ns: Vec::new(),
        }
    }
}

/// Why a file says nothing of a machine.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}: {why}", path.display())]
pub struct TopologyError {
    /// The file.
    pub path: PathBuf,
    /// What is wrong.
    pub why: String,
}

impl Topology {
    /// What the file at `path` says, in JSON. What it does not say is as [`Topology::default`] has it.
    ///
    /// # Errors
    /// [`TopologyError`]: it cannot be read, has other keys, or values that cannot be.
    pub fn read(path: &Path) -> Result<Self, TopologyError> {
        let failed = |why: String| TopologyError { path: path.to_owned(), why };
        let text = corewire_os::read_text(path).map_err(|error| failed(error.to_string()))?;
        let topology: Self =
            serde_json::from_str(&text).map_err(|error| failed(format!("no topology: {error}")))?;
        for (name, count) in
            [("domain_cores", topology.domain_cores), ("under_way_max", topology.under_way_max)]
        {
            if count == 0 {
                return Err(failed(format!("{name}: 1 at least, not 0")));
            }
        }
        let Self { hit_ns, near_ns, far_ns, busy_ns, share_ns, next_ns, locked_ns, .. } = topology;
        let costs = [hit_ns, near_ns, far_ns, busy_ns, share_ns, next_ns, locked_ns];
        if let Some(cost) = costs.iter().find(|&&cost| cost > COST_MAX_NS) {
            return Err(failed(format!("at most {COST_MAX_NS} ns are possible, not {cost}")));
        }
        Ok(topology)
    }

    /// That of this machine: the file that `$COREWIRE_TOPOLOGY` names; `None` if it names none.
    ///
    /// # Errors
    /// As for [`read`](Self::read).
    pub fn of_this_machine() -> Result<Option<Self>, TopologyError> {
        let path = std::env::var_os(VARIABLE).filter(|path| !path.is_empty());
        path.map(|path| Self::read(Path::new(&path))).transpose()
    }

    /// Writes a file that [`Self::read`] reads.
    ///
    /// # Errors
    /// [`TopologyError`]: it cannot be written.
    pub fn write(&self, path: &Path) -> Result<(), TopologyError> {
        let failed = |why: String| TopologyError { path: path.to_owned(), why };
        let text = serde_json::to_string(self).map_err(|error| failed(error.to_string()))?;
        fs::write(path, text + "\n").map_err(|error| failed(error.to_string()))
    }

    /// Whether a message to so many receivers, spread over the domains, is with the last of them sooner
    /// if each domain but the sender's has a relay.
    ///
    /// From one level, all receivers afar ask for the sender's line, one after the other. On two, the
    /// relays do; each then has its own line alone and serves it to its domain. (The model of coherent
    /// caches, `corewire model two_level`, counts the same.)
    #[must_use]
    pub fn two_levels_pay(&self, receivers: u64) -> bool {
        let each = (self.domain_cores as u64).saturating_sub(1).max(1);
        let far = receivers.saturating_sub(each);
        let relays = far.div_ceil(each);
        let flat_ns = far.saturating_mul(self.busy_ns);
        let relay_ns = 2 * self.near_ns + self.busy_ns + far.min(each) * self.share_ns;
        far > 0 && flat_ns > relays.saturating_mul(self.busy_ns) + relay_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_domain_is_on_one_level_and_two_full_ones_are_on_two() {
        let machine = Topology { domain_cores: 33, ..Topology::default() };
        assert!(!machine.two_levels_pay(1));
        assert!(!machine.two_levels_pay(32));
        assert!(machine.two_levels_pay(64));
        assert!(!Topology::default().two_levels_pay(255));
    }
}
