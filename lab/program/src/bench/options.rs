//! Options of all benchmarks, and how their processes are started.

use clap::ValueEnum;
use clap::builder::RangedU64ValueParser;
use corewire::{Domain, Sender};
use corewire_harness::failure::Failure;
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
          value_parser = RangedU64ValueParser::<usize>::new().range(8..=1 << 28))]
    pub(super) bytes: usize,
    /// Receiving processes (fan-out; the others have one).
    #[arg(long, default_value_t = 3, value_name = "COUNT",
          value_parser = RangedU64ValueParser::<usize>::new().range(1..=255))]
    pub(super) receivers: usize,
    /// Alternating blocks of baseline and measurement.
    #[arg(long, default_value_t = 21, value_name = "COUNT",
          value_parser = clap::value_parser!(u64).range(3..=1001))]
    pub(super) rounds: u64,
    /// Slots of the ring, a power of two.
    #[arg(long, default_value_t = 16384, value_name = "COUNT", value_parser = power_of_two)]
    pub(super) slots: usize,
    /// Send with `send(&[u8])`, which copies, instead of writing in place.
    #[arg(long)]
    pub(super) copy: bool,
    /// How both sides wait.
    #[arg(long, value_enum, default_value_t = WaitName::Adaptive)]
    pub(super) wait: WaitName,
    /// Print one JSON object.
    #[arg(long)]
    pub(super) json: bool,
    /// `bench endpoint --quick`.
    #[arg(skip)]
    pub(super) quick: bool,
    /// `bench collective --members`.
    #[arg(skip)]
    pub(super) members: usize,
    /// `bench clients --clients`.
    #[arg(skip)]
    pub(super) clients: usize,
}

impl Options {
    /// How both sides wait.
    pub(super) fn wait(&self) -> corewire::Wait {
        self.wait.into()
    }

    /// The sender of a channel with these options.
    pub(super) fn sender(
        &self,
        domain: &Domain,
        name: &str,
        receivers: usize,
    ) -> Result<Sender, Failure> {
        let builder = domain.sender(name).slots(self.slots).receivers(receivers);
        let builder = builder.wait(self.wait()).largest_message(self.bytes.max(4096));
        Ok(builder.prefault(true).create()?)
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

fn power_of_two(text: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|number: &usize| number.is_power_of_two());
    number.ok_or_else(|| format!("a power of two, not {text}"))
}
