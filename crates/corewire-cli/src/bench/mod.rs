//! `corewire bench`: the speed of this machine's channels, compared with what the machine allows.
//!
//! Every figure is compared with a bare loop over the same memory, measured in the same run in
//! alternating blocks. The report gives the median of the ratios, with the minimum and the maximum, and
//! the distance of the cores.

mod circuit;
mod collective;
mod death;
mod endpoint;
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
use corewire_os::processor;
use corewire_study::harness::distance::Watch;
use corewire_study::harness::places::Places;
use corewire_study::harness::role::{Work, serve};

use crate::failure::Failure;
use options::Options;

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
    /// Circuits: calls through one, two and three monitors, compared with a direct ring.
    #[command(after_help = "Example:\n  corewire bench circuit --json")]
    Circuit(Options),
    /// Collective calls among the members of a group, compared with a bare cache line.
    #[command(after_help = "Example:\n  corewire bench collective --members 2 --json")]
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
    #[command(after_help = "Example:\n  corewire bench interface --json")]
    Interface(Options),
    /// Large messages between endpoints: copied by both sides at once, by the receiver, and through cells.
    #[command(after_help = "Example:\n  corewire bench large --json")]
    Large(Options),
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
    /// A worker of a benchmark.
    #[command(hide = true)]
    Peer { letter: String },
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
const ROLES: &[&dyn Work<Failure>] = &[
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
    if let What::Peer { letter } = &args.what {
        return work(letter);
    }
    let processors = processor::allowed()?;
    args.what.check_processors(processors.len())?;
    let (places, workers) = args.what.places();
    let watch = Watch::start(places.cores(&processors, workers))?;
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
        What::Peer { .. } => return Ok(()),
    };
    watch.stop()?.describe(&mut report);
    if options.json {
        println!("{}", report.to_json());
    } else {
        print!("{}", report.to_text());
    }
    Ok(())
}

/// The whole life of a worker. It tells the controller why it fails, and the controller tells the user.
fn work(letter: &str) -> Result<(), Failure> {
    serve(letter, ROLES).map_err(|failure: Failure| {
        eprintln!("{}", failure.message);
        Failure::quiet(failure.code)
    })
}
