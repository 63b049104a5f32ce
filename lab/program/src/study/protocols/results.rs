//! `results.json` of these studies. docs/study.md describes its keys, which are an interface: keys keep their meaning, and
//! new keys may be added.

use std::iter::repeat;
use std::mem::take;

use corewire_harness::statistics::Spread;
use serde::{Deserialize, Serialize};

use crate::study::distances::Lines;
use crate::study::mechanisms::About;
use crate::study::page::{Page, Table};
use crate::study::results::{Body, Results, sorted};

/// The keys of these studies.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Protocols {
    /// Measured time of a run in seconds.
    pub(super) run_s: f64,
    /// Requests of a run at least.
    pub(super) requests: u64,
    /// Runs of each point.
    pub(super) runs: u32,
    pub(super) mechanisms: Vec<About>,
    pub(super) points: Vec<PointOf>,
    /// The processors of the roles, in their order, if they were given.
    #[serde(default)]
    pub(super) placed: Option<Vec<usize>>,
    /// What the rings would cost with a core for each role.
    #[serde(default)]
    pub(super) model: Vec<OnModel>,
}

/// A ring on the model of coherent caches, with messages of 48 bytes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct OnModel {
    /// `barrelfish_mp`, `zimp` or `corewire`.
    pub(crate) ring: String,
    /// Learners, or all nodes of the checkpointing protocol.
    pub(crate) nodes: u32,
    /// The time of a decision or snapshot, on the model's clocks.
    pub(crate) each_ns: f64,
    /// Lines that all cores together fetch for one.
    pub(crate) transfers: f64,
    pub(crate) read_modify_writes: f64,
}

/// A point: a mechanism, a size, a number of nodes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct PointOf {
    pub(super) mechanism: String,
    /// Bytes of a request, or of a checkpoint.
    pub(super) bytes: u64,
    /// Learners, or all nodes of the checkpointing protocol.
    pub(super) nodes: u32,
    /// Processes that take part.
    pub(super) processes: usize,
    /// Whether there were fewer cores than processes.
    pub(super) oversubscribed: bool,
    /// Why it could not be measured; `None` if it was.
    pub(super) impossible: Option<String>,
    /// Why runs failed.
    pub(super) failures: Vec<String>,
    /// Of each run the time of one decision or snapshot in nanoseconds: the time of the run by their number.
    pub(super) each_ns: Vec<f64>,
    /// Of each run the time of a bare line one way between the first two processors, before and after.
    #[serde(default)]
    pub(super) line_ns: Vec<Lines>,
}

impl PointOf {
    /// The times of its runs, all of which must be of one distance.
    pub(super) fn spread(&self) -> Option<Spread> {
        Spread::of(self.each_ns.iter().copied())
    }

    /// Why runs are missing.
    pub(super) fn reason(&self) -> Option<&str> {
        let elsewhere = "no run at this distance of the cores so far";
        let reason = self.impossible.iter().chain(&self.failures).next().map(String::as_str);
        reason.or(self.each_ns.is_empty().then_some(elsewhere))
    }
}

impl Protocols {
    /// The point of a mechanism, if it was asked for.
    pub(super) fn point(&self, mechanism: &str, bytes: u64, nodes: u32) -> Option<&PointOf> {
        let wanted = (mechanism, bytes, nodes);
        self.points.iter().find(|it| (it.mechanism.as_str(), it.bytes, it.nodes) == wanted)
    }

    /// The time of `under` divided by that of `over`: how many times as much `over` does.
    pub(super) fn factor(&self, over: &str, under: &str, bytes: u64, nodes: u32) -> Option<f64> {
        let median = |id| Some(self.point(id, bytes, nodes)?.spread()?.median);
        Some(median(under)? / median(over)?)
    }

    /// All numbers of nodes with all lengths, in ascending order.
    pub(super) fn shapes(&self) -> Vec<(u32, u64)> {
        sorted(self.points.iter().map(|point| (point.nodes, point.bytes)))
    }
}

impl Body for Protocols {
    const NAMES: &[&str] = &["paxos", "checkpoint"];

    fn retain(&mut self, keep: &mut dyn FnMut(Lines) -> bool) {
        for point in &mut self.points {
            // Older files have no lines.
            let lines = take(&mut point.line_ns).into_iter().chain(repeat(None));
            let runs = take(&mut point.each_ns).into_iter().zip(lines);
            (point.each_ns, point.line_ns) = runs.filter(|(_, line)| keep(*line)).unzip();
        }
    }

    fn page(results: &Results<Self>) -> Page {
        super::page::of(results)
    }

    fn tables(results: &Results<Self>) -> Vec<(&'static str, Table)> {
        let here = results.at_most_frequent().body;
        let number = |point: &PointOf, of: fn(&Spread) -> f64| {
            point.spread().map_or(String::new(), |spread| format!("{:.1}", of(&spread)))
        };
        let table = Table::of_columns(
            &here.points,
            &[
                ("mechanism", &|point| point.mechanism.clone()),
                ("bytes", &|point| point.bytes.to_string()),
                ("nodes", &|point| point.nodes.to_string()),
                ("oversubscribed", &|point| point.oversubscribed.to_string()),
                ("each_ns", &|point| number(point, |spread| spread.median)),
                ("min", &|point| number(point, |spread| spread.min)),
                ("max", &|point| number(point, |spread| spread.max)),
                ("why_not", &|point| point.reason().unwrap_or_default().to_owned()),
            ],
        );
        vec![("points", table)]
    }

    fn summary(results: &Results<Self>) -> Vec<Table> {
        vec![super::page::factors(&results.at_most_frequent())]
    }
}
