//! The costs of a machine's cache lines, read from a file. `corewire doctor --measure` writes such a file. `corewire
//! model --topology` reads it. So does a process that creates a channel that may be on two levels.

use std::path::{Path, PathBuf};

use corewire_os::file;
use serde::{Deserialize, Serialize};

/// The environment variable that names the machine's file.
const VARIABLE: &str = "COREWIRE_TOPOLOGY";
/// Maximum cost in a file: a second, more than any access takes.
const COST_MAX_NS: u64 = 1_000_000_000;

/// The longest such file.
const BYTES_MAX: u64 = 1 << 20;

/// A machine: cores in domains that share a last-level cache, and the cost of a cache line between them. Times are
/// in nanoseconds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct Topology {
    /// Number of cores that share a last-level cache.
    pub domain_cores: usize,
    /// A line that is in the core's own cache.
    pub hit_ns: u64,
    /// A line from a core of the same domain.
    pub near_ns: u64,
    /// A line from another domain, or from memory.
    pub far_ns: u64,
    /// How long a line is busy with a request that changes its owner or comes from another domain.
    pub busy_ns: u64,
    /// How long a line is busy with one more reader in a domain that already has the line.
    pub share_ns: u64,
    /// Time between two lines that a core requests.
    pub next_ns: u64,
    /// Cost of a read-modify-write, beyond the cost of its line.
    pub locked_ns: u64,
    /// Maximum number of lines that a core can request at once.
    pub under_way_max: usize,
    /// The processors that were measured; empty if none were.
    pub processors: Vec<usize>,
    /// Cost of a line for each pair of these processors: one row for each processor that fetches, one column for each
    /// processor that it fetches from.
    pub pairs_ns: Vec<Vec<f64>>,
}

impl Default for Topology {
    /// All cores in one domain, with times that are typical of a server of the 2020s.
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

/// Why a file cannot be used as a description of a machine.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}: {why}", path.display())]
pub struct TopologyError {
    /// The file.
    pub path: PathBuf,
    /// What is wrong.
    pub why: String,
}

impl Topology {
    /// Reads the file at `path`, which is JSON. A missing key gets its value from [`Topology::default`].
    ///
    /// # Errors
    /// [`TopologyError`]: the file cannot be read, has unknown keys, or impossible values.
    pub fn read(path: &Path) -> Result<Self, TopologyError> {
        let failed = |why: String| TopologyError { path: path.to_owned(), why };
        let text = file::read_regular_text(path, BYTES_MAX);
        let text = text.map_err(|error| failed(error.to_string()))?;
        let topology: Self = serde_json::from_str(&text)
            .map_err(|error| failed(format!("not a topology: {error}")))?;
        for (name, count) in
            [("domain_cores", topology.domain_cores), ("under_way_max", topology.under_way_max)]
        {
            if count == 0 {
                return Err(failed(format!("{name}: at least 1 is possible, not 0")));
            }
        }
        let Self { hit_ns, near_ns, far_ns, busy_ns, share_ns, next_ns, locked_ns, .. } = topology;
        let costs = [hit_ns, near_ns, far_ns, busy_ns, share_ns, next_ns, locked_ns];
        if let Some(cost) = costs.iter().find(|&&cost| cost > COST_MAX_NS) {
            return Err(failed(format!("at most {COST_MAX_NS} ns are possible, not {cost}")));
        }
        Ok(topology)
    }

    /// Reads the file that `$COREWIRE_TOPOLOGY` names; `None` if the variable is not set or empty.
    ///
    /// # Errors
    /// As for [`read`](Self::read).
    pub fn of_this_machine() -> Result<Option<Self>, TopologyError> {
        let path = std::env::var_os(VARIABLE).filter(|path| !path.is_empty());
        path.map(|path| Self::read(Path::new(&path))).transpose()
    }

    /// Writes a file that [`Self::read`] can read.
    ///
    /// # Errors
    /// [`TopologyError`]: the file cannot be written.
    pub fn write(&self, path: &Path) -> Result<(), TopologyError> {
        let failed = |why: String| TopologyError { path: path.to_owned(), why };
        let text = serde_json::to_string(self).map_err(|error| failed(error.to_string()))?;
        file::write(path, (text + "\n").as_bytes()).map_err(|error| failed(error.to_string()))
    }

    /// True if a message to `receivers` receivers, spread over the domains, reaches the last of them
    /// sooner if each domain except the sender's has a relay.
    ///
    /// On one level, all receivers in other domains fetch the sender's line, one after the other. On
    /// two levels only the relays fetch it; each relay then serves a line of its own to its domain.
    /// (The model of coherent caches, `corewire model two_level`, counts the same.)
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

corewire_layout::debug_is_text!(TopologyError);

#[cfg(test)]
mod tests {
    use super::*;

    // Keeps P56.
    #[test]
    fn one_domain_is_on_one_level_and_two_full_ones_are_on_two() {
        let machine = Topology { domain_cores: 33, ..Topology::default() };
        assert!(!machine.two_levels_pay(1));
        assert!(!machine.two_levels_pay(32));
        assert!(machine.two_levels_pay(64));
        assert!(!Topology::default().two_levels_pay(255));
    }
}
