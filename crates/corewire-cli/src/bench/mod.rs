//! `corewire bench`: the speed of this machine's channels, compared with what the machine allows.
//!
//! Every figure is compared with a bare loop over the same memory, measured in the same run in
//! alternating blocks. The report gives the median of the ratios, with the minimum and the maximum.

mod death;
mod endpoint;
mod latency;
mod peer;
mod policy;
mod rig;
mod shared;
mod statistics;
mod stream;
mod top;
mod wake;
mod zimp;

use clap::{Subcommand, ValueEnum};
use serde_json::{Map, Value};

use crate::failure::Failure;

pub(crate) use latency::raw_line_one_way_ns;

/// Measure channels on this machine, each figure together with a bare loop of the same run.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  corewire bench latency --bytes 48")]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Time from one process to another, compared with a bare cache line.
    #[command(after_help = "Example:\n  corewire bench latency --bytes 48 --json")]
    Latency(Options),
    /// Time from one process to another, compared with ZIMP as published.
    #[command(after_help = "Example:\n  corewire bench zimp --bytes 48 --json")]
    Zimp(Options),
    /// Messages and bytes per second to one receiver, compared with a bare loop.
    #[command(after_help = "Example:\n  corewire bench stream --bytes 4096")]
    Stream(Options),
    /// Messages and bytes per second to several receivers, compared with a bare loop.
    #[command(after_help = "Example:\n  corewire bench fan-out --receivers 3 --bytes 48")]
    FanOut(Options),
    /// Endpoints: 8 bytes one way through a matched receive, compared with a bare cache line; empty
    /// polls, silent peers, messages back to back, 64 senders.
    #[command(after_help = "Example:\n  corewire bench endpoint --json")]
    Endpoint {
        #[command(flatten)]
        options: Options,
        /// Fewer rounds, and no silent peers: ends within 5 seconds, for runs that alternate with those of another
        /// build.
        #[arg(long)]
        quick: bool,
    },
    /// Streaming under `overwrite` and `evict`, whose messages are copied out, compared with `block`.
    #[command(after_help = "Example:\n  corewire bench policy --json")]
    Policy(Options),
    /// Streaming as one of several senders, compared with a bare loop of compare-and-swaps.
    #[command(after_help = "Example:\n  corewire bench shared --json")]
    Shared(Options),
    /// Time to wake a sleeping receiver, compared with a bare futex.
    #[command(after_help = "Example:\n  corewire bench wake --json")]
    Wake(Options),
    /// Time until a survivor learns of a death, compared with a bare process descriptor.
    #[command(after_help = "Example:\n  corewire bench death --json")]
    Death(Options),
    /// The processor time that three idle receivers use.
    #[command(after_help = "Example:\n  corewire bench idle --json")]
    Idle(Options),
    /// The cost of `corewire top` for three busy channels: a second with it and a second without, in
    /// turn.
    #[command(after_help = "Example:\n  corewire bench top --rounds 100 --json")]
    Top(Options),
    /// A process that never sleeps.
    #[command(hide = true)]
    Spin,
    /// The other side of a benchmark.
    #[command(hide = true)]
    Peer { plan: String },
}

/// Options of all benchmarks.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Options {
    /// Payload of each message, in bytes.
    #[arg(long, default_value_t = 48, value_name = "BYTES",
          value_parser = clap::value_parser!(u64).range(8..=1 << 28))]
    bytes: u64,
    /// Receiving processes (fan-out; the others have one).
    #[arg(long, default_value_t = 3, value_name = "COUNT",
          value_parser = clap::value_parser!(u64).range(1..=255))]
    receivers: u64,
    /// Alternating blocks of baseline and measurement.
    #[arg(long, default_value_t = 21, value_name = "COUNT",
          value_parser = clap::value_parser!(u64).range(3..=1001))]
    rounds: u64,
    /// Slots of the ring, a power of two.
    #[arg(long, default_value_t = 16384, value_name = "COUNT")]
    slots: u64,
    /// Send with `send(&[u8])`, which copies, instead of writing in place.
    #[arg(long)]
    copy: bool,
    /// How both sides wait.
    #[arg(long, value_enum, default_value_t = WaitName::Adaptive)]
    wait: WaitName,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

/// [`corewire::Wait`] on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, serde::Serialize, serde::Deserialize)]
pub(crate) enum WaitName {
    /// Poll without sleeping.
    Spin,
    /// Poll for as long as a wake-up costs, then sleep.
    Adaptive,
    /// Sleep at once, without polling.
    Park,
}

impl From<WaitName> for corewire::Wait {
    fn from(name: WaitName) -> Self {
        match name {
            WaitName::Spin => Self::Spin,
            WaitName::Adaptive => Self::Adaptive,
            WaitName::Park => Self::Park,
        }
    }
}

/// The results of a benchmark: keys for programs, and lines for readers.
struct Report {
    values: Map<String, Value>,
    lines: Vec<String>,
}

/// Runs one benchmark and prints its results.
pub(crate) fn run(args: Args) -> Result<(), Failure> {
    let (options, report) = match args.what {
        What::Latency(options) => (options.clone(), latency::run(&options)?),
        What::Zimp(options) => (options.clone(), zimp::run(&options)?),
        What::Stream(options) => {
            let options = Options { receivers: 1, ..options };
            (options.clone(), stream::run(&options)?)
        }
        What::FanOut(options) => (options.clone(), stream::run(&options)?),
        What::Endpoint { options, quick } => {
            let report = endpoint::run(&options, quick)?;
            (options, report)
        }
        What::Policy(options) => (options.clone(), policy::run(&options)?),
        What::Shared(options) => (options.clone(), shared::run(&options)?),
        What::Wake(options) => (options.clone(), wake::run(&options)?),
        What::Death(options) => (options.clone(), death::run(&options)?),
        What::Idle(options) => (options.clone(), death::idle(&options)?),
        What::Top(options) => (options.clone(), top::run(&options)?),
        What::Spin => loop {
            corewire_ring::sync::pause();
        },
        What::Peer { plan } => return peer::run(&plan),
    };
    if options.json {
        println!("{}", Value::Object(report.values));
    } else {
        report.lines.iter().for_each(|line| println!("{line}"));
    }
    Ok(())
}

impl Report {
    fn new() -> Self {
        Self { values: Map::new(), lines: Vec::new() }
    }

    fn value(&mut self, key: &str, value: impl Into<Value>) {
        self.values.insert(key.to_owned(), value.into());
    }

    /// A figure with one decimal, as a key and as a line.
    fn figure(&mut self, key: &str, words: &str, value: f64, unit: &str) {
        self.value(key, (value * 10.0).round() / 10.0);
        self.lines.push(format!("{words:<44} {value:>10.1} {unit}"));
    }

    /// A ratio with its spread.
    fn ratio(&mut self, words: &str, ratios: &[f64]) {
        let spread = statistics::Spread::of(ratios);
        for (key, value) in
            [("ratio", spread.median), ("ratio_min", spread.min), ("ratio_max", spread.max)]
        {
            self.value(key, (value * 1000.0).round() / 1000.0);
        }
        let rounds = ratios.len();
        self.lines.push(format!(
            "{words:<44} {:>10.3} (median of {rounds}; {:.3} to {:.3})",
            spread.median, spread.min, spread.max
        ));
    }

    fn note(&mut self, line: String) {
        self.lines.push(line);
    }
}
