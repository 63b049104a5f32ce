//! `results.json`: all results of a study. docs/study.md describes its keys, which are an interface:
//! keys keep their meaning, and new keys may be added.

use corewire_harness::statistics::Spread;
use serde::{Deserialize, Serialize};

/// Version of the format of the file.
pub(crate) const FORMAT: u32 = 1;

/// The whole file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Results {
    /// [`FORMAT`].
    pub(crate) format: u32,
    /// Name of the study: `zimp`.
    pub(crate) study: String,
    /// corewire's version.
    pub(crate) version: String,
    /// Start time in UTC, as `2026-11-22T01:02:03Z`.
    pub(crate) began: String,
    /// `quick`, `default` or `full`.
    pub(crate) effort: String,
    /// Measuring time of each run, in seconds.
    pub(crate) run_s: f64,
    /// Number of runs of each point.
    pub(crate) runs: u32,
    pub(crate) machine: Machine,
    /// In display order.
    pub(crate) mechanisms: Vec<Mechanism>,
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

/// The machine that the study ran on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Machine {
    /// Name of the processor, as it reports it.
    pub(crate) processor: String,
    /// Number of cores that this process may use.
    pub(crate) cores: usize,
    pub(crate) sockets: usize,
    pub(crate) caches: Vec<Cache>,
    pub(crate) memory_bytes: u64,
    pub(crate) kernel: String,
    /// The hypervisor, if the processor says that there is one.
    pub(crate) hypervisor: Option<String>,
    /// Why hardware counters cannot be read; `None` if they can.
    pub(crate) counters_absent: Option<String>,
    /// Which limits the message queues had.
    pub(crate) queue_limits: String,
}

/// One cache, of one level and kind.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Cache {
    /// 1 to 4.
    pub(crate) level: u32,
    /// `data`, `instruction` or `unified`.
    pub(crate) kind: String,
    /// Size of the cache.
    pub(crate) bytes: u64,
    /// Number of processors that share it.
    pub(crate) shared_by: usize,
}

/// A mechanism that carries messages.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Mechanism {
    /// Its name in this file and on the command line.
    pub(crate) id: String,
    /// Its name to display.
    pub(crate) name: String,
    pub(crate) kind: Kind,
    /// Whether several senders can send to the same receivers.
    pub(crate) has_many_senders: bool,
    /// Its settings, in one sentence.
    pub(crate) settings: String,
}

/// The kind of a mechanism. Mechanisms of one kind can be compared.
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

/// The throughput of a mechanism for one message size and one number of senders and receivers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Point {
    /// A [`Mechanism::id`].
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
}

/// Half of the round-trip time between two processes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Latency {
    /// A [`Mechanism::id`].
    pub(crate) mechanism: String,
    pub(crate) bytes: u64,
    pub(crate) oversubscribed: bool,
    /// Why there is no figure; `None` if there is one.
    pub(crate) impossible: Option<String>,
    /// The median of each run.
    pub(crate) p50_ns: Vec<f64>,
    /// The 99th percentile of each run.
    pub(crate) p99_ns: Vec<f64>,
}

/// A column of Table I: counts for each message that is sent to all receivers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Count {
    /// A [`Mechanism::id`].
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
    /// `barrelfish_mp`, `zimp` or `corewire`.
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

impl Point {
    /// Messages per second that a receiver received; `None` if there was no run.
    pub(crate) fn messages_per_s(&self) -> Option<Spread> {
        Spread::of(self.runs.iter().map(|run| run.messages_per_s))
    }

    /// The share of the sent messages that did not arrive, over all runs.
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52 messages")]
    pub(crate) fn lost_share(&self) -> f64 {
        let sum = |of: fn(&Run) -> u64| self.runs.iter().map(of).sum::<u64>() as f64;
        let due = sum(|run| run.sent) * f64::from(self.receivers);
        if due > 0.0 { sum(|run| run.lost) / due } else { 0.0 }
    }
}

impl Results {
    /// The point of a mechanism, if it was requested.
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
