//! `corewire bench`: the speed of this machine's channels, compared with what the machine allows.
//!
//! Every figure is compared with a bare loop over the same memory, measured in the same run in
//! alternating blocks. The report gives the median of the ratios, with the minimum and the maximum, and
//! the distance of the cores.

mod circuit;
mod collective;
mod death;
mod endpoint;
mod fields;
mod interface;
mod large;
mod latency;
mod options;
mod policy;
mod shared;
mod stream;
mod top;
mod wake;
mod zimp;

use clap::Subcommand;
use corewire_harness::distance::Watch;
use corewire_harness::places::Places;
use corewire_harness::role::Work;
use corewire_os::processor;

use corewire_harness::failure::Failure;
use options::Options;

use crate::print;

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
    #[command(after_help = fields::help("latency --bytes 48 --json", fields::LATENCY))]
    Latency(Options),
    /// Time from one process to another, compared with ZIMP as published.
    #[command(after_help = fields::help("zimp --bytes 48 --json", fields::ZIMP))]
    Zimp(Options),
    /// Messages and bytes per second to one receiver, compared with a bare loop.
    #[command(after_help = fields::help("stream --bytes 4096 --json", fields::STREAM))]
    Stream(Options),
    /// Messages and bytes per second to several receivers, compared with a bare loop.
    #[command(after_help = fields::help("fan-out --receivers 3 --bytes 48 --json", fields::STREAM))]
    FanOut(Options),
    /// Endpoints: 8 bytes one way through a matched receive, compared with a bare cache line; empty
    /// polls, silent peers, messages back to back, 64 senders.
    #[command(after_help = fields::help("endpoint --json", fields::ENDPOINT))]
    Endpoint {
        #[command(flatten)]
        options: Options,
        /// Fewer rounds, and no silent peers: ends within 5 seconds, for runs that alternate with those of another
        /// build.
        #[arg(long)]
        quick: bool,
    },
    /// Circuits: calls through one, two and three monitors, compared with a direct ring.
    #[command(after_help = fields::help("circuit --json", fields::CIRCUIT))]
    Circuit(Options),
    /// Collective calls among the members of a group, compared with a bare cache line.
    #[command(after_help = fields::help("collective --members 2 --json", fields::COLLECTIVE))]
    Collective {
        #[command(flatten)]
        options: Options,
        /// How many processes take part.
        #[arg(long, default_value_t = 2, value_name = "N",
              value_parser = clap::value_parser!(u8).range(2..=64))]
        members: u8,
    },
    /// Generated calls: compared with the same bytes exchanged by hand, and with a socket; ten types of messages
    /// over each driver.
    #[command(after_help = fields::help("interface --json", fields::INTERFACE))]
    Interface(Options),
    /// Large messages between endpoints: copied by both sides at once, by the receiver, and through cells.
    #[command(after_help = fields::help("large --json", fields::LARGE))]
    Large(Options),
    /// Streaming under `overwrite` and `evict`, whose messages are copied out, compared with `block`.
    #[command(after_help = fields::help("policy --json", fields::POLICY))]
    Policy(Options),
    /// Streaming as one of several senders, compared with a bare loop of compare-and-swaps.
    #[command(after_help = fields::help("shared --json", fields::SHARED))]
    Shared(Options),
    /// Time to wake a sleeping receiver, compared with a bare futex.
    #[command(after_help = fields::help("wake --json", fields::WAKE))]
    Wake(Options),
    /// Time until a survivor learns of a death, compared with a bare process descriptor.
    #[command(after_help = fields::help("death --json", fields::DEATH))]
    Death(Options),
    /// The processor time that three idle receivers use.
    #[command(after_help = fields::help("idle --json", fields::IDLE))]
    Idle(Options),
    /// The cost of `corewire top` for three busy channels: a second with it and a second without, in
    /// turn.
    #[command(after_help = fields::help("top --rounds 100 --json", fields::TOP))]
    Top(Options),
}

impl What {
    /// Which cores the processes of the benchmark run on, and how many workers it has.
    fn places(&self) -> (Places, usize) {
        match self {
            Self::FanOut(options) => (Places::Beside, options.receivers()),
            Self::Collective { members, .. } => (Places::Beside, usize::from(*members) - 1),
            Self::Death(_) | Self::Idle(_) | Self::Top(_) => (Places::Anywhere, 1),
            _ => (Places::Beside, 1),
        }
    }

    /// The keys that it measures.
    const fn fields(&self) -> fields::Fields {
        match self {
            Self::Latency(_) => fields::LATENCY,
            Self::Zimp(_) => fields::ZIMP,
            Self::Stream(_) | Self::FanOut(_) => fields::STREAM,
            Self::Endpoint { .. } => fields::ENDPOINT,
            Self::Circuit(_) => fields::CIRCUIT,
            Self::Collective { .. } => fields::COLLECTIVE,
            Self::Interface(_) => fields::INTERFACE,
            Self::Large(_) => fields::LARGE,
            Self::Policy(_) => fields::POLICY,
            Self::Shared(_) => fields::SHARED,
            Self::Wake(_) => fields::WAKE,
            Self::Death(_) => fields::DEATH,
            Self::Idle(_) => fields::IDLE,
            Self::Top(_) => fields::TOP,
        }
    }

    /// Two ends that poll, as those of a bare line do, run at the same time.
    fn check_processors(&self, count: usize) -> Result<(), Failure> {
        let name = match self {
            Self::Latency(_) => "latency",
            Self::Endpoint { .. } => "endpoint",
            Self::Interface(_) => "interface",
            Self::Circuit(_) => "circuit",
            Self::Collective { .. } => "collective",
            _ => return Ok(()),
        };
        if count >= 2 {
            return Ok(());
        }
        Err(Failure::other(format!(
            "bench {name} needs 2 processors to measure what goes between them; this process may use {count}"
        )))
    }
}

/// What the workers of all benchmarks do.
pub(crate) const ROLES: &[&dyn Work] = &[
    &latency::ROLE,
    &zimp::ROLE,
    &stream::SLOTS_ROLE,
    &stream::BUFFERS_ROLE,
    &endpoint::one_way::ROLE,
    &endpoint::same_core::ROLE,
    &endpoint::silent::ROLE,
    &endpoint::stream::ROLE,
    &endpoint::many::ROLE,
    &collective::ROLE,
    &circuit::APART_ROLE,
    &circuit::MANY_ROLE,
    &circuit::FLOODED_ROLE,
    &interface::by_hand::ROLE,
    &interface::same_core::ROLE,
    &interface::types::ROLE,
    &large::ROLE,
    &policy::ROLE,
    &shared::ROLE,
    &wake::ROLE,
    &death::MORTAL_ROLE,
    &death::IDLE_ROLE,
    &death::SPIN_ROLE,
    &top::ROLE,
];

/// Runs one benchmark and prints its results.
pub(crate) fn run(args: Args) -> Result<(), Failure> {
    let processors = processor::allowed()?;
    args.what.check_processors(processors.len())?;
    let (places, workers) = args.what.places();
    let watch = Watch::start(places.cores(&processors, workers))?;
    let fields = args.what.fields();
    let (options, mut report) = match args.what {
        What::Latency(options) => (options.clone(), latency::run(&options)?),
        What::Zimp(options) => (options.clone(), zimp::run(&options)?),
        What::Stream(options) => {
            let options = options.with_one_receiver();
            (options.clone(), stream::run(&options)?)
        }
        What::FanOut(options) => (options.clone(), stream::run(&options)?),
        What::Endpoint { options, quick } => {
            let report = endpoint::run(&options, quick)?;
            (options, report)
        }
        What::Circuit(options) => (options.clone(), circuit::run(&options)?),
        What::Collective { options, members } => {
            let report = collective::run(&options, members.into())?;
            (options, report)
        }
        What::Interface(options) => (options.clone(), interface::run(&options)?),
        What::Large(options) => (options.clone(), large::run(&options)?),
        What::Policy(options) => (options.clone(), policy::run(&options)?),
        What::Shared(options) => (options.clone(), shared::run(&options)?),
        What::Wake(options) => (options.clone(), wake::run(&options)?),
        What::Death(options) => (options.clone(), death::run()?),
        What::Idle(options) => (options.clone(), death::idle()?),
        What::Top(options) => (options.clone(), top::run(&options)?),
    };
    watch.stop()?.describe(&mut report);
    print(&if options.json { report.to_json() + "\n" } else { report.to_text() })?;
    fields::check(&report, fields)
}
