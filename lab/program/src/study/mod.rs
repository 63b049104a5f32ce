//! `corewire study`: repeats the papers' experiments on the reader's own machine, with corewire's rivals.

mod active;
mod check;
mod collect;
mod collectives;
mod compare;
mod count;
mod distances;
mod interfaces;
mod interrupt;
mod job;
mod journal;
mod machine;
mod mechanisms;
mod model;
mod nemesis;
mod open_mpi;
mod output;
mod plan;
mod program;
mod protocols;
mod report;
mod results;
mod routing;
mod system_call;
mod touch;
mod worker;
mod zimp;

use clap::Subcommand;
use corewire_harness::failure::{self, Failure};
use corewire_harness::role::Work;

/// What these processes do.
pub(crate) const ROLES: &[&dyn Work] = &[
    &worker::ROLE,
    &nemesis::ROLE,
    &nemesis::RING_ROLE,
    &active::ROLE,
    &interfaces::CALLS_ROLE,
    &interfaces::TYPES_ROLE,
    &routing::ROLE,
    &protocols::ROLE,
    &collectives::ROLE,
];

/// Repeat the papers' experiments on this machine, and compare the results with their claims.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Zimp(zimp::Args),
    Nemesis(nemesis::Args),
    Active(active::Args),
    Interfaces(interfaces::Args),
    Routing(routing::Args),
    Paxos(protocols::PaxosArgs),
    Checkpoint(protocols::CheckpointArgs),
    Collectives(collectives::Args),
    Compare(compare::Args),
    Report(compare::ReportArgs),
    Check(check::Args),
    /// The program that runs while instructions are counted.
    #[command(hide = true)]
    Count {
        operation: nemesis::Operation,
        directory: std::path::PathBuf,
    },
}

/// Runs one study.
pub(crate) fn run(args: Args) -> Result<(), Failure> {
    match args.command {
        Command::Zimp(args) => zimp::run(args),
        Command::Nemesis(args) => nemesis::run(&args),
        Command::Active(args) => active::run(&args),
        Command::Interfaces(args) => interfaces::run(&args),
        Command::Routing(args) => routing::run(&args),
        Command::Paxos(args) => protocols::run_paxos(args),
        Command::Checkpoint(args) => protocols::run_checkpoint(args),
        Command::Collectives(args) => collectives::run(&args),
        Command::Compare(args) => compare::run(&args),
        Command::Report(args) => compare::report(&args),
        Command::Check(args) => check::run(&args),
        Command::Count { operation, directory } => nemesis::count(operation, &directory),
    }
}
