//! `corewire`: message passing between processes of one machine, from the command line.

#![forbid(unsafe_code)]

mod access;
mod call;
mod circuits;
mod doctor;
mod failure;
mod idl;
mod input;
mod lab;
mod latest;
mod log;
mod ls;
mod metrics;
mod monitor;
mod mpi;
mod output;
mod parts;
mod queue;
mod ranks;
mod receive;
mod records;
mod routes;
mod seen;
mod send;
mod serve;
mod served;
mod signals;
mod sink;
mod table;
mod top;
mod trace;
mod tune;
mod units;
mod usage;

use std::process::ExitCode;
use std::sync::Arc;

use clap::error::ErrorKind;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use signal_hook::consts::SIGXFSZ;

use crate::access::Use;
use crate::failure::Failure;

const EXAMPLES: &str = "\
Examples:
  tail -f log | corewire send log --lines
  corewire receive log --lines | grep error
  corewire serve upper -- tr a-z A-Z
  echo hello | corewire call upper
  corewire call calculator sum '[[6, 7]]'

Exit codes: 0 done, 1 failed, 2 wrong usage, 3 the sender died, 4 a service replied
with an error.";

/// Message passing between processes of one machine: written once, read in place by all
#[derive(Debug, Parser)]
#[command(name = "corewire", version, arg_required_else_help = true, after_help = EXAMPLES)]
#[command(disable_help_subcommand = true)]
struct Cli {
    /// Work in the domain of this user, as a guest; with this user's own number, in the one that
    /// its access rule opens to others.
    /// The environment variable COREWIRE_OWNER does the same
    #[arg(long, global = true, value_name = "UID", value_parser = access::uid)]
    owner: Option<u32>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Send(send::Args),
    Receive(receive::Args),
    Serve(serve::Args),
    Call(call::Args),
    Log(log::Args),
    Monitor(monitor::Args),
    Circuits(circuits::Args),
    Trace(trace::Args),
    Routes(routes::Args),
    Mpi(mpi::Args),
    /// Measure channels, endpoints, calls and circuits on this machine, each figure beside a baseline of the same run
    /// (starts corewire-lab)
    Bench(lab::Args),
    /// The cost of a ring with any number of receivers, on a model of coherent caches (starts corewire-lab)
    Model(lab::Args),
    Idl(idl::Args),
    Ls(ls::Args),
    Top(top::Args),
    Metrics(metrics::Args),
    Doctor(doctor::Args),
    Tune(tune::Args),
    /// Repeat the papers' experiments on this machine, with other systems for comparison (starts corewire-lab)
    Study(lab::Args),
}

fn main() -> ExitCode {
    abort_on_panic();
    // Beyond the limit on file sizes, writing then returns an error instead of ending the process.
    let _ = signal_hook::flag::register(SIGXFSZ, Arc::default());
    let parsed = usage::with_negative_numbers(Cli::command()).try_get_matches();
    let named = |matches: clap::ArgMatches| {
        let name = matches.subcommand_name().unwrap_or_default().to_owned();
        Ok((Cli::from_arg_matches(&matches)?, name))
    };
    let outcome = match parsed.and_then(named) {
        Ok((cli, name)) => run(cli, &name),
        Err(error) => refuse(&error),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if !failure.message.is_empty() {
                output::note(&failure.message);
            }
            ExitCode::from(failure.code)
        }
    }
}

/// From now on a thread that panics ends the program. Without that, others may wait for ever for what it would have done.
fn abort_on_panic() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        report(panic);
        std::process::abort();
    }));
}

fn run(Cli { owner, command }: Cli, name: &str) -> Result<(), Failure> {
    let does = match &command {
        Command::Call(args) if args.is_of_service() => Use::Joins,
        Command::Call(_) | Command::Serve(_) => Use::Creates("an endpoint"),
        Command::Send(_) => Use::Creates("a channel"),
        Command::Log(_) => Use::Creates("a channel and an endpoint"),
        Command::Monitor(_) => Use::Creates("a monitor"),
        Command::Receive(_) | Command::Circuits(_) | Command::Trace(_) => Use::Joins,
        Command::Routes(_) | Command::Ls(_) | Command::Top(_) => Use::Joins,
        Command::Metrics(_) | Command::Doctor(_) => Use::Joins,
        Command::Bench(_) | Command::Model(_) | Command::Idl(_) | Command::Study(_) => Use::Nothing,
        Command::Tune(_) => Use::Nothing,
        // The provider works in the domain of its own user.
        Command::Mpi(_) => Use::Nothing,
    };
    access::choose_owner(owner, name, does)?;
    match command {
        Command::Send(args) => send::run(&args),
        Command::Receive(args) => receive::run(&args),
        Command::Serve(args) => serve::run(&args),
        Command::Call(args) => call::run(&args),
        Command::Log(args) => log::run(&args),
        Command::Monitor(args) => monitor::run(&args),
        Command::Circuits(args) => circuits::run(&args),
        Command::Trace(args) => trace::run(&args),
        Command::Routes(args) => routes::run(&args),
        Command::Mpi(args) => mpi::run(&args),
        Command::Bench(args) => lab::run("bench", &args),
        Command::Model(args) => lab::run("model", &args),
        Command::Idl(args) => idl::run(&args),
        Command::Ls(args) => ls::run(&args),
        Command::Top(args) => top::run(&args),
        Command::Metrics(args) => metrics::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Tune(args) => tune::run(&args),
        Command::Study(args) => lab::run("study", &args),
    }
}

/// Prints help and version as clap writes them, and anything else in one line.
fn refuse(error: &clap::Error) -> Result<(), Failure> {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            output::print(&error.render().to_string())
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            eprint!("{}", error.render());
            Err(Failure::quiet(2))
        }
        _ => {
            let word = std::env::args().nth(1);
            let said = usage::one_line(error, &Cli::command(), "corewire", word.as_deref());
            Err(Failure::usage(said))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_usage_error_is_one_line_that_says_where_to_read_more() {
        let error = Cli::try_parse_from(["corewire", "receive"]).unwrap_err();
        let failure = refuse(&error).unwrap_err();
        assert_eq!(failure.code, 2);
        assert!(!failure.message.contains('\n'), "{}", failure.message);
        assert!(failure.message.starts_with("the following required arguments"), "{failure:?}");
        assert!(failure.message.contains("--help"), "{failure:?}");
    }

    #[test]
    fn a_mistyped_word_is_answered_with_what_was_meant() {
        for (typed, meant) in [
            (&["corewire", "recieve", "log"][..], "'recieve': did you mean 'receive'? (see"),
            (&["corewire", "send", "log", "--line"], "did you mean '--lines'?"),
            (&["corewire", "send", "log", "--levels", "twoo"], "did you mean 'two'?"),
        ] {
            let failure = refuse(&Cli::try_parse_from(typed).unwrap_err()).unwrap_err();
            assert_eq!(failure.code, 2);
            assert!(failure.message.contains(meant), "{failure:?}");
            assert!(!failure.message.contains('\n'), "{failure:?}");
        }
        let failure = refuse(&Cli::try_parse_from(["corewire", "zzz"]).unwrap_err()).unwrap_err();
        assert!(!failure.message.contains("did you mean"), "{failure:?}");
    }
}
