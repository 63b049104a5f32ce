//! Options of all benchmarks, and how their processes are started.

use clap::ValueEnum;
use corewire_harness::program::Program;
use corewire_harness::setup::Setup;
use serde::{Deserialize, Serialize};

/// `corewire-lab worker` is what the workers of a benchmark run.
pub(super) const PROGRAM: Program = Program { arguments: &["worker"], check: || Ok(()) };

/// A crew of `workers` workers.
pub(super) fn setup(workers: usize) -> Setup {
    Setup::new(PROGRAM, workers)
}

/// Options of all benchmarks.
#[derive(Debug, Clone, clap::Args, Serialize, Deserialize)]
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
    pub(super) rounds: u64,
    /// Slots of the ring, a power of two.
    #[arg(long, default_value_t = 16384, value_name = "COUNT", value_parser = power_of_two)]
    slots: u64,
    /// Send with `send(&[u8])`, which copies, instead of writing in place.
    #[arg(long)]
    pub(super) copy: bool,
    /// How both sides wait.
    #[arg(long, value_enum, default_value_t = WaitName::Adaptive)]
    wait: WaitName,
    /// Print one JSON object.
    #[arg(long)]
    pub(super) json: bool,
}

impl Options {
    /// The same for a single receiver.
    pub(super) fn with_one_receiver(self) -> Self {
        Self { receivers: 1, ..self }
    }

    /// Payload of each message.
    pub(super) fn bytes(&self) -> usize {
        usize::try_from(self.bytes).unwrap_or(usize::MAX)
    }

    /// Number of receivers.
    pub(super) fn receivers(&self) -> usize {
        usize::try_from(self.receivers).unwrap_or(usize::MAX)
    }

    /// Number of slots of a ring.
    pub(super) fn slots(&self) -> usize {
        usize::try_from(self.slots).unwrap_or(usize::MAX)
    }

    /// How both sides wait.
    pub(super) fn wait(&self) -> corewire::Wait {
        self.wait.into()
    }
}

/// [`corewire::Wait`] on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
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

fn power_of_two(text: &str) -> Result<u64, String> {
    let number = text.parse().ok().filter(|number: &u64| number.is_power_of_two());
    number.ok_or_else(|| format!("a power of two, not {text}"))
}
