//! The output of fan-out.

use std::fmt::Write;
use std::path::Path;

use serde::Serialize;

use crate::Cores;
use crate::failure::Failure;
use crate::passes::Measured;
use crate::protocol::SMALL_BYTES;
use crate::text::{self, decimal, grouped};

/// What the machine allows, measured in the same run.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct Baselines {
    /// Time of one cache line from core to core; `None` where it could not be measured.
    pub(crate) raw_line_one_way_ns: Option<f64>,
    /// Speed of the plain copy of one core.
    pub(crate) copy_gb_per_s: f64,
}

/// All results. `--json` prints this object.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    file: String,
    bytes: u64,
    chunk_bytes: usize,
    sha256: String,
    #[serde(flatten)]
    cores: Cores,
    is_oversubscribed: bool,
    rounds: usize,
    elapsed_s: f64,
    delivered_gb_per_s: f64,
    latency_bytes: usize,
    latency_pace_ns: u64,
    baselines: Baselines,
    receivers: Vec<Row>,
}

#[derive(Debug, Serialize)]
struct Row {
    receiver: usize,
    pid: u32,
    bytes: u64,
    gb_per_s: f64,
    messages_per_s: f64,
    lag_max: u64,
    latency_p50_ns: u64,
    latency_p99_ns: u64,
    sha256_is_right: bool,
    #[serde(skip)]
    sum_is_right: bool,
}

impl Report {
    pub(crate) fn new(
        file: &Path,
        content: &[u8],
        chunk_bytes: usize,
        cores: Cores,
        baselines: Baselines,
        measured: Measured,
    ) -> Self {
        let bytes = content.len() as u64;
        let Measured { round, .. } = &measured;
        let row = |index: usize| {
            let elapsed_ns = round.elapsed_ns[index] as f64;
            Row {
                receiver: index + 1,
                pid: measured.pids[index],
                bytes,
                gb_per_s: bytes as f64 / elapsed_ns,
                messages_per_s: round.messages as f64 * 1e9 / elapsed_ns,
                lag_max: measured.lags_max[index],
                latency_p50_ns: measured.latencies[index].p50_ns,
                latency_p99_ns: measured.latencies[index].p99_ns,
                sha256_is_right: measured.sha256_is_right[index],
                sum_is_right: round.is_right[index],
            }
        };
        let receivers: Vec<_> = (0..measured.pids.len()).map(row).collect();
        let whole_ns = round.whole_ns() as f64;
        Self {
            file: text::printable(&file.to_string_lossy()),
            bytes,
            chunk_bytes,
            cores,
            is_oversubscribed: cores.is_oversubscribed(),
            rounds: measured.rounds,
            elapsed_s: whole_ns / 1e9,
            delivered_gb_per_s: bytes as f64 * receivers.len() as f64 / whole_ns,
            latency_bytes: SMALL_BYTES,
            latency_pace_ns: measured.latency_pace_ns,
            baselines,
            receivers,
            sha256: measured.sha256,
        }
    }

    /// Fails if any receiver got wrong bytes.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        match self.receivers.iter().find(|row| !(row.sha256_is_right && row.sum_is_right)) {
            None => Ok(()),
            Some(Row { receiver, .. }) => {
                Err(Failure::other(format!("receiver {receiver} got other bytes than were sent")))
            }
        }
    }

    /// The table, with the notes that explain it.
    pub(crate) fn to_text(&self) -> String {
        let mut all = format!(
            "{}\n{} bytes to {}, in chunks of {}\n\n",
            self.file,
            grouped(self.bytes as f64),
            text::counted(self.receivers.len(), "receiver"),
            text::size(self.chunk_bytes),
        );
        all.push_str(&self.table());
        all.push('\n');
        let mut line = |name: &str, value: String, unit: &str, what: String| {
            // Writing to a string does not fail.
            let _ = writeln!(all, "{name:<11}{value:>7} {unit:<4}  {what}");
        };
        line("delivered", decimal(self.delivered_gb_per_s), "GB/s", self.delivery());
        let buffers = text::size(self.chunk_bytes);
        let copy = format!("one core, the best over 2 to 256 buffers of {buffers}");
        line("plain copy", decimal(self.baselines.copy_gb_per_s), "GB/s", copy);
        match self.baselines.raw_line_one_way_ns {
            Some(ns) => {
                let what = "one cache line from core to core, one way";
                line("raw line", format!("{ns:.0}"), "ns", what.into());
            }
            None => line("raw line", "-".into(), "", "it takes two cores".into()),
        }
        let pace =
            format!("from one {}-byte message to the next, for p50 and p99", self.latency_bytes);
        line("pace", (self.latency_pace_ns / 1000).to_string(), "us", pace);
        all.push_str(&self.notes());
        all
    }

    fn delivery(&self) -> String {
        let together = match self.receivers.len() {
            1 => "to 1 receiver".to_owned(),
            count => format!("to all {count} receivers together"),
        };
        format!("{together}, in {:.1} ms (middle of {})", self.elapsed_s * 1e3, self.rounds)
    }

    fn notes(&self) -> String {
        let Cores { processes, cores } = self.cores;
        if !self.is_oversubscribed {
            return format!("\nEach of {processes} processes had a core of its own.\n");
        }
        let on = text::counted(cores, "core");
        format!(
            "\noversubscribed: {processes} processes on {on}. They take turns, so that latency is\n\
             mostly the time until a receiver gets a core, and no match for the raw line.\n"
        )
    }

    fn table(&self) -> String {
        let titles =
            ["receiver", "bytes", "GB/s", "messages/s", "max lag", "p50 us", "p99 us", "SHA-256"];
        let cells = |row: &Row| {
            vec![
                row.receiver.to_string(),
                grouped(row.bytes as f64),
                decimal(row.gb_per_s),
                grouped(row.messages_per_s),
                grouped(row.lag_max as f64),
                decimal(row.latency_p50_ns as f64 / 1e3),
                decimal(row.latency_p99_ns as f64 / 1e3),
                if row.sha256_is_right && row.sum_is_right { "ok" } else { "WRONG" }.to_owned(),
            ]
        };
        text::table(&titles, &self.receivers.iter().map(cells).collect::<Vec<_>>())
    }
}
