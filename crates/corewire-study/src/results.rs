//! `results.json`: all that a run of the study has found. docs/study.md describes its keys, which are an
//! interface: a key keeps its meaning, new ones may come.

use serde::{Deserialize, Serialize};

/// The number of this form of the file.
pub(crate) const FORMAT: u32 = 1;

/// The whole file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Results {
    /// [`FORMAT`].
    pub(crate) format: u32,
    /// Which study: `zimp`.
    pub(crate) study: String,
    /// corewire's version.
    pub(crate) version: String,
    /// When it began, in UTC, as `2026-11-22T01:02:03Z`.
    pub(crate) began: String,
    /// `quick`, `default` or `full`.
    pub(crate) effort: String,
    /// How long each run measured, in seconds.
    pub(crate) run_s: f64,
    /// How many runs a point has.
    pub(crate) runs: u32,
    pub(crate) machine: Machine,
    /// In the order in which they are shown.
    pub(crate) mechanisms: Vec<Mechanism>,
    /// Throughput.
    pub(crate) points: Vec<Point>,
    /// From one process to another and back, halved.
    pub(crate) latencies: Vec<Latency>,
    /// Table I.
    pub(crate) counts: Vec<Count>,
    pub(crate) system_call: Option<SystemCall>,
    /// What the coherence model counts.
    pub(crate) model: Vec<Model>,
}

/// Where it ran.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Machine {
    /// As the processor names itself.
    pub(crate) processor: String,
    /// That this process may use.
    pub(crate) cores: usize,
    pub(crate) sockets: usize,
    pub(crate) caches: Vec<Cache>,
    pub(crate) memory_bytes: u64,
    pub(crate) kernel: String,
    /// The hypervisor, if the processor says that there is one.
    pub(crate) hypervisor: Option<String>,
    /// Why hardware counters cannot be read, if they cannot.
    pub(crate) counters_absent: Option<String>,
    /// Whose limits the message queues had.
    pub(crate) queue_limits: String,
}

/// The caches of one level.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Cache {
    /// 1 to 4.
    pub(crate) level: u32,
    /// `data`, `instruction` or `unified`.
    pub(crate) kind: String,
    /// Of each.
    pub(crate) bytes: u64,
    /// How many processors share one.
    pub(crate) shared_by: usize,
}

/// What carries messages.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Mechanism {
    /// Its name in this file and on the command line.
    pub(crate) id: String,
    /// Its name for people.
    pub(crate) name: String,
    pub(crate) kind: Kind,
    /// May several senders send to the same receivers?
    pub(crate) has_many_senders: bool,
    /// How it was set up, in a sentence.
    pub(crate) settings: String,
}

/// Which mechanisms may be compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Kind {
    /// Messages go through the kernel, copied in and out.
    Kernel,
    /// Messages lie in shared memory; receivers copy them out.
    Copying,
    /// Messages lie in shared memory and are read there.
    InPlace,
}

/// The throughput of a mechanism with so many processes and such messages.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Point {
    /// A [`Mechanism::id`].
    pub(crate) mechanism: String,
    /// Of each message.
    pub(crate) bytes: u64,
    pub(crate) receivers: u32,
    pub(crate) senders: u32,
    /// Were there more processes than cores?
    pub(crate) oversubscribed: bool,
    /// Why there are no runs: it cannot be had here.
    pub(crate) impossible: Option<String>,
    /// What went wrong in runs that are therefore missing.
    pub(crate) failures: Vec<String>,
    pub(crate) runs: Vec<Run>,
}

/// One run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Run {
    /// That a receiver received: the mean over the receivers.
    pub(crate) messages_per_s: f64,
    /// That all senders sent.
    pub(crate) sent: u64,
    /// Messages that did not arrive, summed over the receivers.
    pub(crate) lost: u64,
    /// Processor time of all senders, for each message sent.
    pub(crate) sender_cpu_ns: f64,
    /// Processor time of a receiver, for each message received.
    pub(crate) receiver_cpu_ns: f64,
    /// Of all processes, for each byte received; none where there are no counters.
    pub(crate) instructions_per_byte: Option<f64>,
    /// Misses in the last-level cache, likewise.
    pub(crate) cache_misses_per_byte: Option<f64>,
}

/// Half a round trip between two processes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Latency {
    /// A [`Mechanism::id`].
    pub(crate) mechanism: String,
    pub(crate) bytes: u64,
    pub(crate) oversubscribed: bool,
    /// Why there is no figure, if there is none.
    pub(crate) impossible: Option<String>,
    /// The median of each run.
    pub(crate) p50_ns: Vec<f64>,
    /// What 99 of 100 did not exceed, in each run.
    pub(crate) p99_ns: Vec<f64>,
}

/// A row of Table I, counted: for each message sent to so many receivers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Count {
    /// A [`Mechanism::id`].
    pub(crate) mechanism: String,
    pub(crate) bytes: u64,
    pub(crate) receivers: u32,
    /// Why there is no count, if there is none.
    pub(crate) impossible: Option<String>,
    /// Copies of the message made in sending it to all of them.
    pub(crate) send_copies: f64,
    /// Copies made in receiving it, by all of them.
    pub(crate) receive_copies: f64,
    /// System calls that the sender made, without giving way.
    pub(crate) send_calls: f64,
    /// System calls that all receivers made, without giving way.
    pub(crate) receive_calls: f64,
    /// Times that they gave way to others (`sched_yield`), since there were too few cores.
    pub(crate) yields: f64,
}

/// What entering the kernel costs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct SystemCall {
    /// A call of a function that does nothing.
    pub(crate) function_ns: f64,
    /// The cheapest system call (`getppid`).
    pub(crate) system_call_ns: f64,
}

/// What the coherence model counts for each message of 48 bytes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Model {
    /// `barrelfish_mp`, `zimp` or `corewire`.
    pub(crate) ring: String,
    pub(crate) receivers: u32,
    /// Lines that the sender fetched.
    pub(crate) sender_transfers: f64,
    /// Lines that the receiver with the most fetched.
    pub(crate) receiver_transfers: f64,
    /// Copies of others that the sender and all receivers invalidated.
    pub(crate) invalidations: f64,
    /// Read-modify-writes of all, one after the other on their line.
    pub(crate) read_modify_writes: f64,
    /// From one send to the next, as a stream, on the model's clocks.
    pub(crate) stream_ns: f64,
}

/// The median of some figures, the smallest and the largest.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
}

impl Spread {
    /// `None` of none.
    pub(crate) fn of(figures: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut sorted: Vec<f64> = figures.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        let (&min, &max) = (sorted.first()?, sorted.last()?);
        let middle = sorted.len() / 2;
        let median = if sorted.len() % 2 == 1 {
            sorted[middle]
        } else {
            f64::midpoint(sorted[middle - 1], sorted[middle])
        };
        Some(Self { median, min, max })
    }
}

impl Point {
    /// Messages per second that a receiver received; `None` if there was no run.
    pub(crate) fn messages_per_s(&self) -> Option<Spread> {
        Spread::of(self.runs.iter().map(|run| run.messages_per_s))
    }

    /// The share of what was sent that did not arrive, over all runs.
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52 messages")]
    pub(crate) fn lost_share(&self) -> f64 {
        let sum = |of: fn(&Run) -> u64| self.runs.iter().map(of).sum::<u64>() as f64;
        let due = sum(|run| run.sent) * f64::from(self.receivers);
        if due > 0.0 { sum(|run| run.lost) / due } else { 0.0 }
    }
}

impl Results {
    /// The point of a mechanism, if it was asked for.
    pub(crate) fn point(
        &self,
        mechanism: &str,
        bytes: u64,
        receivers: u32,
        senders: u32,
    ) -> Option<&Point> {
        self.points.iter().find(|point| {
            (point.mechanism.as_str(), point.bytes, point.receivers, point.senders)
                == (mechanism, bytes, receivers, senders)
        })
    }

    /// The median throughput of a mechanism, with one sender; `None` if there was no run.
    pub(crate) fn rate(&self, mechanism: &str, bytes: u64, receivers: u32) -> Option<f64> {
        let point = self.point(mechanism, bytes, receivers, 1)?;
        Some(point.messages_per_s()?.median)
    }
}
