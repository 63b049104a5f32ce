//! `corewire study`: repeats the papers' experiments on the reader's own machine, with corewire's rivals.

mod active;
mod collectives;
mod compare;
mod counters;
mod distances;
#[cfg(test)]
mod fixture;
mod interfaces;
mod interrupt;
mod journal;
mod machine;
mod mechanisms;
mod model;
mod mpi;
mod nemesis;
mod open_mpi;
mod output;
mod page;
mod program;
mod protocols;
mod results;
mod routing;
mod runner;
mod stepping;
mod touch;
mod transfer;
mod zimp;

use clap::Subcommand;
use corewire_harness::failure::{self, Failure};
use corewire_harness::role::Work;

/// What these processes do.
pub(crate) const ROLES: &[&dyn Work] = &[
    &zimp::worker::ROLE,
    &nemesis::ROLE,
    &nemesis::RING_ROLE,
    &active::ROLE,
    &interfaces::CALLS_ROLE,
    &interfaces::TYPES_ROLE,
    &routing::ROLE,
    &protocols::ROLE,
    &collectives::ROLE,
    &transfer::ROLE,
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
    Transfer(transfer::Args),
    Mpi(mpi::Args),
    Compare(compare::Args),
    Report(compare::ReportArgs),
    Check(zimp::check::Args),
    /// The program that runs while instructions are counted.
    #[command(hide = true)]
    Count {
        operation: nemesis::Operation,
        batches: usize,
        directory: std::path::PathBuf,
    },
}

/// Runs one study.
pub(crate) fn run(args: Args) -> Result<(), Failure> {
    match args.command {
        Command::Zimp(args) => zimp::run(&args),
        Command::Nemesis(args) => nemesis::run(&args),
        Command::Active(args) => active::run(&args),
        Command::Interfaces(args) => interfaces::run(&args),
        Command::Routing(args) => routing::run(&args),
        Command::Paxos(args) => protocols::run_paxos(&args),
        Command::Checkpoint(args) => protocols::run_checkpoint(&args),
        Command::Collectives(args) => collectives::run(&args),
        Command::Transfer(args) => transfer::run(&args),
        Command::Mpi(args) => mpi::run(&args),
        Command::Compare(args) => compare::run(&args),
        Command::Report(args) => compare::report(&args),
        Command::Check(args) => zimp::check::run(&args),
        Command::Count { operation, batches, directory } => {
            nemesis::count(operation, batches, &directory)
        }
    }
}
