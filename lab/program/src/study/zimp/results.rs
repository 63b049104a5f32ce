//! What `results.json` has for this study, in docs/study.md, and what the page asks of it.

use corewire_harness::statistics::Spread;
use serde::{Deserialize, Serialize};

use crate::study::distances::Lines;
use crate::study::mechanisms::About;
use crate::study::page::units::bytes;
use crate::study::page::{Page, Table};
use crate::study::results::{Body, Results, sorted};

/// The keys of this study.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Zimp {
    /// Measuring time of each run, in seconds.
    pub(crate) run_s: f64,
    /// Number of runs of each point.
    pub(crate) runs: u32,
    /// In display order.
    pub(crate) mechanisms: Vec<About>,
    /// Throughput.
    pub(crate) points: Vec<Point>,
    /// Half of the round-trip time between two processes.
    pub(crate) latencies: Vec<Latency>,
    /// Table I.
    pub(crate) counts: Vec<Count>,
    pub(crate) system_call: Option<SystemCall>,
    /// The counts of the coherence model.
    pub(crate) model: Vec<Model>,
}

/// The throughput of a mechanism for one message size and one number of senders and receivers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Point {
    /// An [`About::id`].
    pub(crate) mechanism: String,
    /// Length of each message.
    pub(crate) bytes: u64,
    pub(crate) receivers: u32,
    pub(crate) senders: u32,
    /// Whether there were more processes than cores.
    pub(crate) oversubscribed: bool,
    /// Why the mechanism cannot carry this here, so that there are no runs.
    pub(crate) impossible: Option<String>,
    /// Why runs are missing.
    pub(crate) failures: Vec<String>,
    pub(crate) runs: Vec<Run>,
}

/// One run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Run {
    /// Messages that a receiver received: the mean over the receivers.
    pub(crate) messages_per_s: f64,
    /// Messages that all senders sent.
    pub(crate) sent: u64,
    /// Messages that did not arrive, summed over the receivers.
    pub(crate) lost: u64,
    /// Processor time of all senders, for each message sent.
    pub(crate) sender_cpu_ns: f64,
    /// Processor time of a receiver, for each message received.
    pub(crate) receiver_cpu_ns: f64,
    /// Instructions of all processes, for each byte received; `None` without counters.
    pub(crate) instructions_per_byte: Option<f64>,
    /// Misses in the last-level cache, for each byte received.
    pub(crate) cache_misses_per_byte: Option<f64>,
    /// Time of a bare line one way, before and after; `None` if there is only one core.
    #[serde(default)]
    pub(crate) line_ns: Lines,
}

/// Half of the round-trip time between two processes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Latency {
    /// An [`About::id`].
    pub(crate) mechanism: String,
    pub(crate) bytes: u64,
    pub(crate) oversubscribed: bool,
    /// Why there is no figure; `None` if there is one.
    pub(crate) impossible: Option<String>,
    /// The median of each run.
    pub(crate) p50_ns: Vec<f64>,
    /// The 99th percentile of each run.
    pub(crate) p99_ns: Vec<f64>,
    /// As for [`Run::line_ns`], for each run.
    #[serde(default)]
    pub(crate) line_ns: Vec<Lines>,
}

/// A column of Table I: counts for each message that is sent to all receivers.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Count {
    /// An [`About::id`].
    pub(crate) mechanism: String,
    pub(crate) bytes: u64,
    pub(crate) receivers: u32,
    /// Why there is no count; `None` if there is one.
    pub(crate) impossible: Option<String>,
    /// Copies of the message that are made to send it to all receivers.
    pub(crate) send_copies: f64,
    /// Copies that all receivers make to receive it.
    pub(crate) receive_copies: f64,
    /// System calls of the sender, except yields.
    pub(crate) send_calls: f64,
    /// System calls of all receivers, except yields.
    pub(crate) receive_calls: f64,
    /// Number of yields (`sched_yield`), which occur because there were too few cores.
    pub(crate) yields: f64,
}

/// The cost of entering the kernel.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct SystemCall {
    /// Time of a call of a function that does nothing.
    pub(crate) function_ns: f64,
    /// Time of the cheapest system call (`getppid`).
    pub(crate) system_call_ns: f64,
}

/// The counts of the coherence model for each message of 48 bytes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Model {
    /// One of [`super::model::RINGS`].
    pub(crate) ring: String,
    pub(crate) receivers: u32,
    /// Lines that the sender fetched.
    pub(crate) sender_transfers: f64,
    /// Lines that the receiver with the most transfers fetched.
    pub(crate) receiver_transfers: f64,
    /// Copies in other caches that the sender and all receivers invalidated.
    pub(crate) invalidations: f64,
    /// Read-modify-writes of all roles, which their line serves one after the other.
    pub(crate) read_modify_writes: f64,
    /// Time from one send to the next in a stream, on the model's clocks.
    pub(crate) stream_ns: f64,
}

/// How one mechanism compares to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    Ahead,
    /// Within 10 %, or their runs overlap.
    Level,
    Behind,
}

/// The median; `None` without figures.
pub(super) fn median(figures: impl IntoIterator<Item = f64>) -> Option<f64> {
    Some(Spread::of(figures)?.median)
}

impl Point {
    /// Messages per second that a receiver received; `None` if there was no run.
    pub(crate) fn messages_per_s(&self) -> Option<Spread> {
        Spread::of(self.runs.iter().map(|run| run.messages_per_s))
    }

    /// The median of a figure of the runs.
    pub(super) fn median(&self, of: impl Fn(&Run) -> Option<f64>) -> Option<f64> {
        median(self.runs.iter().filter_map(of))
    }

    /// The share of the sent messages that did not arrive, over all runs.
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52 messages")]
    pub(super) fn lost_share(&self) -> f64 {
        let sum = |of: fn(&Run) -> u64| self.runs.iter().map(of).sum::<u64>() as f64;
        let due = sum(|run| run.sent) * f64::from(self.receivers);
        if due > 0.0 { sum(|run| run.lost) / due } else { 0.0 }
    }

    /// How it compares to another one, if both were measured.
    pub(super) fn beside(&self, other: &Self) -> Option<Standing> {
        let (one, other) = (self.messages_per_s()?, other.messages_per_s()?);
        let is_near = one.median <= other.median * 1.1 && other.median <= one.median * 1.1;
        let do_overlap = one.min <= other.max && other.min <= one.max;
        Some(match one.median > other.median {
            _ if is_near || do_overlap => Standing::Level,
            true => Standing::Ahead,
            false => Standing::Behind,
        })
    }
}

impl Zimp {
    /// The display name of a mechanism, in the form for use in a sentence.
    pub(super) fn name(&self, id: &str) -> String {
        let known = self.mechanisms.iter().find(|mechanism| mechanism.id == id);
        known.map_or(id, |mechanism| &mechanism.name).replace(", ", " ")
    }

    /// The point of a mechanism, if it was requested.
    pub(super) fn point(&self, id: &str, bytes: u64, to: u32, senders: u32) -> Option<&Point> {
        let is_it = |point: &&Point| {
            (&point.mechanism[..], point.bytes, point.receivers, point.senders)
                == (id, bytes, to, senders)
        };
        self.points.iter().find(is_it)
    }

    /// The median throughput of a mechanism, with one sender; `None` if there was no run.
    pub(super) fn rate(&self, id: &str, bytes: u64, receivers: u32) -> Option<f64> {
        Some(self.point(id, bytes, receivers, 1)?.messages_per_s()?.median)
    }

    /// The throughput of `over` divided by that of `under`.
    pub(super) fn ratio(&self, over: &str, under: &str, bytes: u64, receivers: u32) -> Option<f64> {
        let ratio = self.rate(over, bytes, receivers)? / self.rate(under, bytes, receivers)?;
        (ratio.is_finite() && ratio > 0.0).then_some(ratio)
    }

    /// The fastest of these mechanisms, and its median throughput.
    pub(super) fn fastest(
        &self,
        is_asked: impl Fn(&About) -> bool,
        bytes: u64,
        receivers: u32,
    ) -> Option<(&About, f64)> {
        let asked = self.mechanisms.iter().filter(|mechanism| is_asked(mechanism));
        let rates = asked.filter_map(|it| Some((it, self.rate(&it.id, bytes, receivers)?)));
        rates.max_by(|(_, one), (_, other)| one.total_cmp(other))
    }

    /// The points with runs and one sender.
    fn measured(&self) -> impl Iterator<Item = &Point> {
        self.points.iter().filter(|point| point.senders == 1 && !point.runs.is_empty())
    }

    /// The sizes that were measured with one sender and any number of receivers.
    pub(super) fn all_sizes(&self) -> Vec<u64> {
        sorted(self.measured().map(|point| point.bytes))
    }

    /// The sizes that were measured with this number of receivers.
    pub(super) fn sizes(&self, receivers: u32) -> Vec<u64> {
        let points = self.measured().filter(|point| point.receivers == receivers);
        sorted(points.map(|point| point.bytes))
    }

    /// The numbers of receivers that were measured with one sender.
    pub(super) fn all_receivers(&self) -> Vec<u32> {
        sorted(self.measured().map(|point| point.receivers))
    }

    /// The numbers of receivers for which a size was measured.
    pub(super) fn receivers(&self, bytes: u64) -> Vec<u32> {
        let points = self.measured().filter(|point| point.bytes == bytes);
        sorted(points.map(|point| point.receivers))
    }

    /// Whether any point with this number of receivers had too few cores.
    pub(super) fn is_oversubscribed(&self, receivers: u32) -> bool {
        self.measured().any(|point| point.receivers == receivers && point.oversubscribed)
    }
}

impl Body for Zimp {
    const NAMES: &[&str] = &["zimp"];

    fn retain(&mut self, keep: &mut dyn FnMut(Lines) -> bool) {
        for point in &mut self.points {
            point.runs.retain(|run| keep(run.line_ns));
        }
        for latency in &mut self.latencies {
            // Older files have no times of lines here.
            latency.line_ns.resize(latency.p50_ns.len(), None);
            let is_kept: Vec<bool> = latency.line_ns.iter().map(|&line| keep(line)).collect();
            let keep_of = |times: &mut Vec<f64>| {
                let mut is_kept = is_kept.iter();
                times.retain(|_| is_kept.next() == Some(&true));
            };
            keep_of(&mut latency.p50_ns);
            keep_of(&mut latency.p99_ns);
            let mut is_kept = is_kept.iter();
            latency.line_ns.retain(|_| is_kept.next() == Some(&true));
        }
    }

    fn page(results: &Results<Self>) -> Page {
        super::page::of(results)
    }

    fn tables(results: &Results<Self>) -> Vec<(&'static str, Table)> {
        let here = results.at_most_frequent().body;
        let number = |figure: Option<f64>| figure.map_or(String::new(), |it| format!("{it:.3}"));
        let spread = |point: &Point, of: fn(Spread) -> f64| number(point.messages_per_s().map(of));
        let points = Table::of_columns(
            &here.points,
            &[
                ("mechanism", &|point| point.mechanism.clone()),
                ("bytes", &|point| point.bytes.to_string()),
                ("receivers", &|point| point.receivers.to_string()),
                ("senders", &|point| point.senders.to_string()),
                ("oversubscribed", &|point| point.oversubscribed.to_string()),
                ("messages_per_s", &|point| spread(point, |rate| rate.median)),
                ("messages_per_s_min", &|point| spread(point, |rate| rate.min)),
                ("messages_per_s_max", &|point| spread(point, |rate| rate.max)),
                ("lost_share", &|point| {
                    number((!point.runs.is_empty()).then(|| point.lost_share()))
                }),
                ("sender_cpu_ns", &|point| number(point.median(|run| Some(run.sender_cpu_ns)))),
                ("receiver_cpu_ns", &|point| number(point.median(|run| Some(run.receiver_cpu_ns)))),
                ("why_not", &|point| {
                    point
                        .impossible
                        .iter()
                        .chain(&point.failures)
                        .next()
                        .cloned()
                        .unwrap_or_default()
                }),
                ("runs", &|point| point.runs.len().to_string()),
            ],
        );
        let latencies = Table::of_columns(
            &here.latencies,
            &[
                ("mechanism", &|latency| latency.mechanism.clone()),
                ("bytes", &|latency| latency.bytes.to_string()),
                ("oversubscribed", &|latency| latency.oversubscribed.to_string()),
                ("p50_ns", &|latency| number(median(latency.p50_ns.iter().copied()))),
                ("p99_ns", &|latency| number(median(latency.p99_ns.iter().copied()))),
                ("why_not", &|latency| latency.impossible.clone().unwrap_or_default()),
                ("runs", &|latency| latency.p50_ns.len().to_string()),
            ],
        );
        vec![("points", points), ("latencies", latencies)]
    }

    fn summary(results: &Results<Self>) -> Vec<Table> {
        let here = results.at_most_frequent().body;
        let names = (|it: &About| it.name.clone(), |size: &u64| bytes(*size));
        let rates = Table::matrix("", &here.mechanisms, &here.sizes(1), names, |it, size| {
            Some(format!("{:.3}", here.rate(&it.id, *size, 1)? / 1e6))
        });
        vec![rates.captioned("one receiver, million messages per second")]
    }
}
