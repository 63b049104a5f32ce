//! `results.json` of this study. docs/study.md describes its keys, which are an interface: keys keep their meaning, and
//! new keys may be added.

use corewire_harness::calls::types::{BUFFER_100, BUFFER_1000, FIXED_100};
use corewire_harness::statistics::Spread;
use serde::{Deserialize, Serialize};

use super::{Id, page};
use crate::study::distances::Lines;
use crate::study::page::{Page, Table};
use crate::study::results::{About, Body, Results, ratios};

/// The keys of this study.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Interfaces {
    /// Number of rounds of alternating blocks.
    pub(crate) rounds: u64,
    /// In display order.
    pub(crate) ways: Vec<WayOf>,
    pub(crate) rivals: Vec<About>,
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
    /// Why its types are missing.
    #[serde(default)]
    pub(crate) failures: Vec<String>,
}

/// Calls with 8 bytes there and back, in blocks that alternate with those of a rival.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Calls {
    /// A [`WayOf::id`].
    pub(crate) way: String,
    /// An [`About::id`].
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
    pub(crate) line_ns: Lines,
    /// Why there are no figures.
    pub(crate) failure: Option<String>,
}

/// Round trips of a type of message (Grest, section 5.2).
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
    pub(crate) line_ns: Lines,
}

impl Calls {
    /// Calls that have not been measured.
    pub(super) fn of(way: String, rival: Id) -> Self {
        Self { way, rival: rival.text(), ..Self::default() }
    }
}

impl Dynamic {
    /// Of the types of a way; `None` if some are missing.
    pub(super) fn of(types: &[TypeOf], line_ns: Lines) -> Option<Self> {
        let ratio = |over: usize, under: usize| {
            ratios(&types.get(over)?.round_trip_ns, &types.get(under)?.round_trip_ns)
        };
        Some(Self {
            way: types.first()?.way.clone(),
            hundred_to_fixed: ratio(BUFFER_100, FIXED_100)?,
            thousand_to_hundred: ratio(BUFFER_1000, BUFFER_100)?,
            line_ns,
        })
    }
}

impl Interfaces {
    /// The name to display of a way.
    pub(super) fn way<'a>(&'a self, id: &'a str) -> &'a str {
        self.ways.iter().find(|way| way.id == id).map_or(id, |way| &way.name)
    }

    /// The times of round trips of a type by a way.
    pub(super) fn round_trips(&self, way: &str, name: &str) -> Option<&[f64]> {
        let kind = self.types.iter().find(|it| it.way == way && it.name == name)?;
        Some(&kind.round_trip_ns)
    }
}

impl Body for Interfaces {
    const NAMES: &[&str] = &["interfaces"];

    fn retain(&mut self, keep: &mut dyn FnMut(Lines) -> bool) {
        // What runs on one core is at no distance.
        self.calls.retain(|calls| calls.line_ns.is_none() || keep(calls.line_ns));
        self.dynamic.retain(|it| it.line_ns.is_none() || keep(it.line_ns));
    }

    fn page(results: &Results<Self>) -> Page {
        page::of(results)
    }

    fn tables(results: &Results<Self>) -> Vec<(&'static str, Table)> {
        let Self { calls, types, .. } = &results.body;
        let calls = calls.iter().flat_map(|Calls { way, rival, call_ns, rival_ns, .. }| {
            [([&way[..], rival, "corewire"], &call_ns[..]), ([way, rival, rival], rival_ns)]
        });
        let types = types.iter().map(|it| ([&it.way[..], "", &it.name], &it.round_trip_ns[..]));
        let columns = ["way", "beside", "what"];
        vec![("points", Table::of_round_trips(columns, calls.chain(types)))]
    }

    fn summary(results: &Results<Self>) -> Vec<Table> {
        let found = &results.body;
        let absent = Table::of_columns(page::absent(found), &[("not measured", &String::clone)]);
        let tables = [page::calls_table(found), page::dynamic_table(found), absent];
        tables.into_iter().filter(|table| !table.rows.is_empty()).collect()
    }
}
