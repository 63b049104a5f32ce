//! `results.json` of this study. docs/study.md describes its keys, which are an interface: keys keep their meaning, and
//! new keys may be added.

use corewire_harness::statistics::Spread;
use serde::{Deserialize, Serialize};

use super::placed::Placed;
use crate::study::results::Machine;

/// Version of the format of the file.
pub(crate) const FORMAT: u32 = 1;
/// Name of the study.
pub(crate) const STUDY: &str = "routing";

/// The whole file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Results {
    /// [`FORMAT`].
    pub(crate) format: u32,
    /// [`STUDY`].
    pub(crate) study: String,
    /// corewire's version.
    pub(crate) version: String,
    /// Start time, in UTC.
    pub(crate) began: String,
    /// `quick` or `default`.
    pub(crate) effort: String,
    /// Number of rounds of alternating blocks.
    pub(crate) rounds: u64,
    pub(crate) machine: Machine,
    /// Round trips of the thesis' types, all parties polling, in two threads.
    pub(crate) types: Vec<TypeOf>,
    /// What a bare line took from core to core meanwhile.
    pub(crate) line_ns: [f64; 2],
    /// The thesis' placement, monitors with their usual time of polling; `None` with one processor.
    pub(crate) placed: Option<Placed>,
    /// Why D-Bus was not measured; `None` if it was.
    pub(crate) dbus_absent: Option<String>,
    /// The same placement with other times of polling.
    pub(crate) budgets: Vec<Budget>,
    /// Channels and bytes with and without circuits.
    pub(crate) counts: Vec<Count>,
}

/// Round trips of a type, block by block, in nanoseconds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct TypeOf {
    pub(crate) name: String,
    pub(crate) bytes: usize,
    pub(crate) direct_ns: Vec<f64>,
    /// Through one to four monitors.
    pub(crate) monitors_ns: Vec<Vec<f64>>,
    /// By the protocol as the thesis prints it, through two monitors; empty for a type that the thesis does not have.
    pub(crate) printed_ns: Vec<f64>,
}

impl TypeOf {
    /// The ratios of the times through so many monitors to those without.
    pub(crate) fn to_direct(&self, monitors: usize) -> Option<Spread> {
        ratio(self.monitors_ns.get(monitors.checked_sub(1)?)?, &self.direct_ns)
    }

    /// The ratios of the times through two monitors to those of the protocol as printed.
    pub(crate) fn to_printed(&self) -> Option<Spread> {
        ratio(self.monitors_ns.get(1)?, &self.printed_ns)
    }
}

/// Ratios, block by block.
pub(crate) fn ratio(over: &[f64], under: &[f64]) -> Option<Spread> {
    Spread::of(over.iter().zip(under).map(|(over, under)| over / under))
}

/// Round trips of 8 bytes while monitors poll for so long before they sleep.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Budget {
    pub(crate) poll_ns: u64,
    pub(crate) circuit_ns: Vec<f64>,
}

/// What it takes to connect each of some processes with each other one (section 1.1.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Count {
    pub(crate) processes: u64,
    /// Rings, if each pair has its own, and their bytes.
    pub(crate) direct_channels: u64,
    pub(crate) direct_bytes: u64,
    /// Rings to one monitor, and their bytes, with what the monitor keeps of the circuits.
    pub(crate) monitor_channels: u64,
    pub(crate) monitor_bytes: u64,
}
