//! `corewire-study`: repeats the papers' experiments on the reader's own machine, with corewire's
//! rivals. `corewire study` starts it.

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

use std::process::ExitCode;

use clap::error::ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use corewire_study::failure::{self, Failure};
use corewire_study::harness::role::{Work, serve};
use corewire_study::usage;

// `interfaces` counts allocations.
#[global_allocator]
static ALLOCATOR: corewire_os::allocations::Counting = corewire_os::allocations::Counting;

/// What these processes do.
const ROLES: &[&dyn Work<Failure>] = &[
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
#[derive(Debug, Parser)]
#[command(name = "corewire study", bin_name = "corewire study", version)]
struct Cli {
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
    /// One process of a run.
    #[command(hide = true)]
    Worker {
        letter: String,
    },
    /// The program that runs while instructions are counted.
    #[command(hide = true)]
    Count {
        operation: nemesis::Operation,
        directory: std::path::PathBuf,
    },
}

fn main() -> ExitCode {
    corewire_study::harness::program::abort_on_panic();
    let command = usage::with_negative_numbers(Cli::command());
    let command = match command.try_get_matches().and_then(|it| Cli::from_arg_matches(&it)) {
        Ok(cli) => cli.command,
        Err(error) if !error.use_stderr() => error.exit(),
        Err(error) if error.kind() == DisplayHelpOnMissingArgumentOrSubcommand => error.exit(),
        Err(error) => {
            let said = usage::one_line(&error, &Cli::command(), "corewire study");
            eprintln!("corewire study: {said}");
            return ExitCode::from(2);
        }
    };
    // A process of a run reports its reason to the process that started it, which adds the name.
    let name = if matches!(command, Command::Worker { .. }) { "" } else { "corewire study: " };
    let result = match command {
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
        Command::Worker { letter } => serve(&letter, ROLES),
        Command::Count { operation, directory } => nemesis::count(operation, &directory),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("{name}{}", failure.message);
            ExitCode::from(failure.code)
        }
    }
}
