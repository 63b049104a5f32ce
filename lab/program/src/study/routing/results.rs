//! `results.json` of this study. docs/study.md describes its keys, which are an interface: keys keep their meaning, and
//! new keys may be added.

use corewire_harness::statistics::Spread;
use serde::{Deserialize, Serialize};

use super::page;
use super::placed::Placed;
use crate::study::distances::Lines;
use crate::study::page::{Page, Table};
use crate::study::results::{Body, Results, ratios};

/// The keys of this study.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Routing {
    /// Number of rounds of alternating blocks.
    pub(crate) rounds: u64,
    /// Round trips of the thesis' types, all parties polling, in two threads.
    pub(crate) types: Vec<TypeOf>,
    /// Time of a bare line one way, before and after the types; `None` if they were not measured.
    pub(crate) line_ns: Lines,
    /// The thesis' placement, monitors with their usual time of polling; `None` if it was not measured.
    pub(crate) placed: Option<Placed>,
    /// Why D-Bus was not measured; `None` if it was.
    pub(crate) dbus_absent: Option<String>,
    /// The same placement with other times of polling.
    pub(crate) budgets: Vec<Budget>,
    /// Channels and bytes with and without circuits.
    pub(crate) counts: Vec<Count>,
    /// What else is missing, and why.
    #[serde(default)]
    pub(crate) failures: Vec<String>,
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
    /// The times through so many monitors.
    pub(crate) fn through(&self, monitors: usize) -> &[f64] {
        self.monitors_ns.get(monitors - 1).map_or(&[], Vec::as_slice)
    }

    /// The ratios of the times through so many monitors to those without.
    pub(crate) fn to_direct(&self, monitors: usize) -> Option<Spread> {
        ratios(self.through(monitors), &self.direct_ns)
    }

    /// The ratios of the times through two monitors to those of the protocol as printed.
    pub(crate) fn to_printed(&self) -> Option<Spread> {
        ratios(self.through(2), &self.printed_ns)
    }

    /// What each monitor more costs, in times without.
    pub(crate) fn more(&self) -> Option<Spread> {
        let [one, .., last] = &self.monitors_ns[..] else { return None };
        #[expect(clippy::cast_precision_loss, reason = "a few monitors")]
        let steps = (self.monitors_ns.len() - 1) as f64;
        let each = one.iter().zip(last).map(|(one, last)| (last - one) / steps);
        ratios(&each.collect::<Vec<_>>(), &self.direct_ns)
    }
}

/// Round trips of 8 bytes while monitors poll for so long before they sleep.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Budget {
    pub(crate) poll_ns: u64,
    pub(crate) circuit_ns: Vec<f64>,
    /// Time of a bare line one way, before and after.
    #[serde(default)]
    pub(crate) line_ns: Lines,
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

impl Body for Routing {
    const NAMES: &[&str] = &["routing"];

    fn retain(&mut self, keep: &mut dyn FnMut(Lines) -> bool) {
        // Old files have lines for the types only.
        let mut keep = |line_ns: Lines| line_ns.is_none() || keep(line_ns);
        if !keep(self.line_ns) {
            self.types.clear();
        }
        self.placed = self.placed.take().filter(|placed| keep(placed.line_ns));
        self.budgets.retain(|budget| keep(budget.line_ns));
    }

    fn page(results: &Results<Self>) -> Page {
        page::of(results)
    }

    fn tables(results: &Results<Self>) -> Vec<(&'static str, Table)> {
        let Self { types, placed, budgets, .. } = &results.body;
        let types = types.iter().flat_map(|kind| {
            let monitors = (1..).zip(&kind.monitors_ns);
            let monitors = monitors.map(|(count, times)| (format!("{count} monitors"), times));
            let direct = [("direct".to_owned(), &kind.direct_ns)].into_iter().chain(monitors);
            let all = direct.chain([("as printed, 2 monitors".to_owned(), &kind.printed_ns)]);
            all.map(|(way, times)| ([kind.name.clone(), way], &times[..]))
        });
        let placed = placed.iter().flat_map(|placed| {
            let ways = [
                ("circuit", &placed.circuit_ns),
                ("lmp", &placed.lmp_ns),
                ("ump", &placed.ump_ns),
                ("relay", &placed.relay_ns),
                ("dbus", &placed.dbus_ns),
            ];
            ways.map(|(way, times)| (way.to_owned(), times))
        });
        let budgets = budgets
            .iter()
            .map(|budget| (format!("circuit, polling {} ns", budget.poll_ns), &budget.circuit_ns));
        let placed = placed.chain(budgets);
        let placed = placed.map(|(way, times)| (["placed".to_owned(), way], &times[..]));
        vec![("points", Table::of_round_trips(["what", "way"], types.chain(placed)))]
    }

    fn summary(results: &Results<Self>) -> Vec<Table> {
        let found = &results.body;
        let absent = Table::of_columns(page::absent(found), &[("not measured", &String::clone)]);
        let tables = [page::ratios_table(found), page::placed_table(found), absent];
        tables.into_iter().filter(|table| !table.rows.is_empty()).collect()
    }
}
