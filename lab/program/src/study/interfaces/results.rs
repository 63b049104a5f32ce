//! `results.json` of this study. docs/study.md describes its keys, which are an interface: keys keep their meaning, and
//! new keys may be added.

use corewire_harness::statistics::Spread;
use serde::{Deserialize, Serialize};

use crate::study::results::Machine;

/// Version of the format of the file.
pub(crate) const FORMAT: u32 = 1;
/// Name of the study.
pub(crate) const STUDY: &str = "interfaces";

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
    /// In display order.
    pub(crate) ways: Vec<WayOf>,
    pub(crate) rivals: Vec<Rival>,
    pub(crate) calls: Vec<Calls>,
    pub(crate) types: Vec<TypeOf>,
    pub(crate) dynamic: Vec<Dynamic>,
}

/// A driver, and the cores of both sides.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct WayOf {
    /// Its name in this file.
    pub(crate) id: String,
    /// Its name to display.
    pub(crate) name: String,
    pub(crate) driver: String,
    /// Whether both sides share a core; otherwise each has its own.
    pub(crate) same_core: bool,
    /// Why it was not measured; `None` if it was.
    pub(crate) impossible: Option<String>,
}

/// A system that calls are compared with.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Rival {
    /// Its name in this file and on the command line.
    pub(crate) id: String,
    /// Its name to display.
    pub(crate) name: String,
    /// Its settings, in one sentence.
    pub(crate) settings: String,
    /// Why it is not available here; `None` if it is.
    pub(crate) impossible: Option<String>,
}

/// Calls with 8 bytes there and back, in blocks that alternate with those of a rival.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Calls {
    /// A [`WayOf::id`].
    pub(crate) way: String,
    /// A [`Rival::id`].
    pub(crate) rival: String,
    /// Mean time of a round trip in each block, in nanoseconds.
    pub(crate) call_ns: Vec<f64>,
    pub(crate) rival_ns: Vec<f64>,
    /// A call divided by the rival's call of the same round; `None` if there was a failure.
    pub(crate) ratio: Option<Spread>,
    /// Allocations of the caller in a call.
    pub(crate) call_allocations: Option<f64>,
    pub(crate) rival_allocations: Option<f64>,
    /// Time of a bare line one way, before and after; `None` on one core.
    pub(crate) line_ns: Option<[f64; 2]>,
    /// Why there are no figures.
    pub(crate) failure: Option<String>,
}

/// Round trips of a type of message (papers/003, section 5.2).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct TypeOf {
    /// A [`WayOf::id`].
    pub(crate) way: String,
    /// The thesis' name, or `fixed100`.
    #[serde(rename = "type")]
    pub(crate) name: String,
    /// Bytes of its arguments.
    pub(crate) bytes: usize,
    /// Mean time of a round trip in each block, in nanoseconds.
    pub(crate) round_trip_ns: Vec<f64>,
}

/// What dynamic arrays cost.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Dynamic {
    /// A [`WayOf::id`].
    pub(crate) way: String,
    /// 100 bytes, divided by the same bytes of fixed size.
    pub(crate) hundred_to_fixed: Spread,
    /// 1000 bytes, divided by 100.
    pub(crate) thousand_to_hundred: Spread,
    /// Time of a bare line one way, before and after; `None` on one core.
    pub(crate) line_ns: Option<[f64; 2]>,
}

impl Results {
    /// The calls by a way beside a rival.
    pub(crate) fn calls_of(&self, way: &str, rival: &str) -> Option<&Calls> {
        self.calls.iter().find(|calls| calls.way == way && calls.rival == rival)
    }

    /// The round trips of a type by a way.
    pub(crate) fn round_trip_ns(&self, way: &str, name: &str) -> Option<Spread> {
        let found = self.types.iter().find(|it| it.way == way && it.name == name)?;
        Spread::of(found.round_trip_ns.iter().copied())
    }
}
