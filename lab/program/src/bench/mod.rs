//! `corewire bench`: the speed of this machine's channels, compared with what the machine allows.
//!
//! Every figure is compared with a bare loop over the same memory, measured in the same run in
//! alternating blocks. The report gives the median of the ratios, with the minimum and the maximum, and
//! the distance of the cores.

mod circuit;
mod clients;
mod collective;
mod death;
mod endpoint;
mod hosts;
mod interface;
mod keys;
mod large;
mod latency;
mod latest;
mod options;
mod policy;
mod queue;
mod rivals;
mod shared;
mod stream;
mod tokio;
mod top;
mod wake;
mod window;
mod zimp;

use clap::Subcommand;
use corewire_harness::distance::Watch;
use corewire_harness::role::Work;
use corewire_os::processor;

use crate::print;
use prelude::*;

/// What most benchmarks use.
mod prelude {
    pub(super) use std::hint::black_box;
    pub(super) use std::time::{Duration, Instant};

    pub(super) use corewire_harness::crew::Crew;
    pub(super) use corewire_harness::failure::Failure;
    pub(super) use corewire_harness::places::Places;
    pub(super) use corewire_harness::report::Report;
    pub(super) use corewire_harness::role::{Role, Worker};
    pub(super) use corewire_harness::rounds::*;
    pub(super) use corewire_harness::statistics::{percentile, thousandths, typical};

    pub(super) use super::options::{Options, PROGRAM, setup};
}

/// Measure channels on this machine, each figure together with a bare loop of the same run.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  corewire bench latency --bytes 48")]
#[command(mut_subcommands = keys::with_help)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Time from one process to another, compared with a bare cache line.
    Latency(Options),
    /// Time from one process to another, compared with ZIMP as published.
    Zimp(Options),
    /// Messages and bytes per second to one receiver, compared with a bare loop.
    Stream(Options),
    /// Messages and bytes per second to several receivers, compared with a bare loop.
    FanOut(Options),
    /// Endpoints: 8 bytes one way through a matched receive, compared with a bare cache line; empty
    /// polls, silent peers, messages back to back, 64 senders.
    Endpoint {
        #[command(flatten)]
        options: Options,
        /// Fewer rounds, and no silent peers: ends within 5 seconds, for runs that alternate with those of another
        /// build.
        #[arg(long)]
        quick: bool,
    },
    /// Circuits: calls through one, two and three monitors, compared with a direct ring.
    Circuit(Options),
    /// Collective calls among the members of a group, compared with a bare cache line.
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
    Interface(Options),
    /// Endpoints of two hosts, over TCP: compared with bare sockets.
    Hosts(Options),
    /// Large messages between endpoints: copied by both sides at once, by the receiver, and through cells.
    Large(Options),
    /// Streaming under `overwrite` and `evict`, whose messages are copied out, compared with `block`.
    Policy(Options),
    /// Streaming as one of several senders, compared with a bare loop of compare-and-swaps.
    Shared(Options),
    /// Time to wake a sleeping receiver, compared with a bare futex.
    Wake(Options),
    /// Time until a survivor learns of a death, compared with a bare process descriptor.
    Death(Options),
    /// The processor time that three idle receivers use.
    Idle(Options),
    /// Jobs per second that workers of a queue do, compared with bare lines, ZeroMQ and iceoryx2.
    Queue {
        #[command(flatten)]
        options: Options,
        /// How many processes do the jobs.
        #[arg(long, default_value_t = 2, value_name = "N",
              value_parser = clap::value_parser!(u8).range(1..=64))]
        workers: u8,
    },
    /// A last value: time of an update and of a read, and age, compared with a bare sequence lock, ZeroMQ and
    /// iceoryx2.
    Latest {
        #[command(flatten)]
        options: Options,
        /// How many processes read.
        #[arg(long, default_value_t = 1, value_name = "N",
              value_parser = clap::value_parser!(u8).range(1..=64))]
        readers: u8,
    },
    /// Decisions per second of a group whose clients propose, with and without many that are linked and idle.
    Clients {
        #[command(flatten)]
        options: Options,
        /// How many clients are idle.
        #[arg(long, default_value_t = 990, value_name = "N",
              value_parser = clap::value_parser!(u16).range(1..=990))]
        clients: u16,
    },
    /// Windows: loads, stores and additions beside bare ones, and puts of 1 MiB beside the best copy routine.
    Window(Options),
    /// Round trips between two tasks in tokio: endpoints and channels, compared with bare eventfds.
    Tokio(Options),
    /// The cost of `corewire top` for three busy channels: a second with it and a second without, in
    /// turn.
    Top(Options),
}

/// Why there are no other systems.
#[cfg(not(feature = "rivals"))]
const NO_RIVALS: &str =
    "ZeroMQ and iceoryx2 are left out: corewire-lab is built without the feature `rivals`";

/// A benchmark that was asked for.
struct Bench {
    name: &'static str,
    run: fn(&Options, &mut Report) -> Result<(), Failure>,
    options: Options,
    /// Which cores its processes run on, and how many workers it has.
    places: (Places, usize),
    /// Whether it has two ends that poll, as those of a bare line do, and so run at the same time.
    needs_two: bool,
}

impl What {
    fn bench(self) -> Bench {
        let of = |name, run, options| Bench {
            name,
            run,
            options,
            places: (Places::Beside, 1),
            needs_two: false,
        };
        let polling = |name, run, options| Bench { needs_two: true, ..of(name, run, options) };
        let anywhere =
            |name, run, options| Bench { places: (Places::Anywhere, 1), ..of(name, run, options) };
        let with_workers = |workers, bench| Bench { places: (Places::Beside, workers), ..bench };
        match self {
            Self::Latency(options) => polling("latency", latency::run, options),
            Self::Zimp(options) => of("zimp", zimp::run, options),
            Self::Stream(options) => of("stream", stream::run, Options { receivers: 1, ..options }),
            Self::FanOut(options) => {
                with_workers(options.receivers, of("fan-out", stream::run, options))
            }
            Self::Endpoint { options, quick } => {
                polling("endpoint", endpoint::run, Options { quick, ..options })
            }
            Self::Circuit(options) => polling("circuit", circuit::run, options),
            Self::Collective { options, members } => {
                let members = usize::from(members);
                let options = Options { members, ..options };
                with_workers(members - 1, polling("collective", collective::run, options))
            }
            Self::Interface(options) => polling("interface", interface::run, options),
            Self::Hosts(options) => polling("hosts", hosts::run, options),
            Self::Large(options) => of("large", large::run, options),
            Self::Policy(options) => of("policy", policy::run, options),
            Self::Shared(options) => of("shared", shared::run, options),
            Self::Wake(options) => of("wake", wake::run, options),
            Self::Death(options) => anywhere("death", death::run, options),
            Self::Idle(options) => anywhere("idle", death::idle, options),
            Self::Queue { options, workers } => {
                let receivers = usize::from(workers);
                let options = Options { receivers, ..options };
                with_workers(receivers, of("queue", queue::run, options))
            }
            Self::Latest { options, readers } => {
                let receivers = usize::from(readers);
                let options = Options { receivers, ..options };
                with_workers(receivers, polling("latest", latest::run, options))
            }
            Self::Clients { options, clients } => {
                let options = Options { clients: usize::from(clients), ..options };
                anywhere("clients", clients::run, options)
            }
            Self::Window(options) => polling("window", window::run, options),
            Self::Tokio(options) => polling("tokio", tokio::run, options),
            Self::Top(options) => anywhere("top", top::run, options),
        }
    }
}

/// What the workers of all benchmarks do.
pub(crate) const ROLES: &[&dyn Work] = &[
    &latency::ROLE,
    &zimp::ROLE,
    &stream::SLOTS_ROLE,
    &stream::BUFFERS_ROLE,
    &endpoint::ONE_WAY_ROLE,
    &endpoint::STREAM_ROLE,
    &endpoint::same_core::ROLE,
    &endpoint::silent::ROLE,
    &endpoint::many::ROLE,
    &clients::ROLE,
    &collective::ROLE,
    &circuit::ROLE,
    &interface::by_hand::ROLE,
    &interface::SAME_CORE_ROLE,
    &interface::TYPES_ROLE,
    &hosts::ROLE,
    &large::ROLE,
    &policy::ROLE,
    &shared::ROLE,
    &wake::ROLE,
    &window::ROLE,
    &queue::ROLE,
    &latest::ROLE,
    &death::MORTAL_ROLE,
    &death::IDLE_ROLE,
    &death::SPIN_ROLE,
    &top::ROLE,
];

/// Runs one benchmark and prints its results.
pub(crate) fn run(args: Args) -> Result<(), Failure> {
    let Bench { name, run, options, places: (places, workers), needs_two } = args.what.bench();
    let processors = processor::allowed()?;
    if needs_two && processors.len() < 2 {
        return Err(Failure::other(format!(
            "bench {name} needs 2 processors to measure what goes between them; this process may use {}",
            processors.len()
        )));
    }
    let watch = Watch::start(places.cores(&processors, workers))?;
    let mut report = Report::default();
    run(&options, &mut report)?;
    watch.stop()?.describe(&mut report);
    print(&if options.json { report.to_json() + "\n" } else { report.to_text() })?;
    keys::check(&report, name)
}
