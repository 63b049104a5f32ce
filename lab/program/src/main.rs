//! `corewire-lab`: what measures corewire. `corewire bench`, `corewire model` and `corewire study` start it.
//!
//! | module | holds |
//! |---|---|
//! | `bench` | one figure after the other, each beside a bare loop of the same run |
//! | `model` | the cost of rings on a model of coherent caches |
//! | `rivals` | other systems that benches and studies measure, with the feature `rivals` |
//! | `study` | the papers' experiments beside other systems, with the feature `rivals` |

mod bench;
mod model;
#[cfg(feature = "rivals")]
mod rivals;
#[cfg(feature = "rivals")]
mod study;
#[path = "../../../crates/corewire-cli/src/usage.rs"]
mod usage;

use std::io::{ErrorKind, Write};
use std::process::ExitCode;

use clap::error::ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use corewire_harness::failure::Failure;
use corewire_harness::program::abort_on_panic;
use corewire_harness::role::{Work, serve};

// Some measurements count allocations.
#[global_allocator]
static ALLOCATOR: corewire_os::allocations::Counting = corewire_os::allocations::Counting;

/// Measure corewire on this machine
#[derive(Debug, Parser)]
#[command(name = "corewire", bin_name = "corewire", version)]
#[command(arg_required_else_help = true, disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Bench(bench::Args),
    Model(model::Args),
    #[cfg(feature = "rivals")]
    Study(study::Args),
    /// Repeat the papers' experiments on this machine, with other systems for comparison.
    #[cfg(not(feature = "rivals"))]
    #[command(disable_help_flag = true)]
    Study {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
        arguments: Vec<std::ffi::OsString>,
    },
    /// One process of a measurement.
    #[command(hide = true)]
    Worker {
        letter: String,
    },
}

fn main() -> ExitCode {
    abort_on_panic();
    let matches = usage::with_negative_numbers(Cli::command()).try_get_matches();
    let command = match matches.and_then(|found| Cli::from_arg_matches(&found)) {
        Ok(Cli { command }) => command,
        Err(error)
            if !error.use_stderr() || error.kind() == DisplayHelpOnMissingArgumentOrSubcommand =>
        {
            error.exit()
        }
        Err(error) => {
            eprintln!("{}", refusal(&error));
            return ExitCode::from(2);
        }
    };
    // A worker reports its reason to the process that started it, which adds the name.
    let name = match command {
        Command::Worker { .. } => "",
        Command::Study { .. } => "corewire study: ",
        _ => "corewire: ",
    };
    match run(command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("{name}{}", failure.message);
            ExitCode::from(failure.code)
        }
    }
}

/// One line about a wrong command line. `corewire study` speaks for itself.
fn refusal(error: &clap::Error) -> String {
    let words: Vec<String> = std::env::args().skip(1).take(2).collect();
    let all = Cli::command();
    let study =
        all.find_subcommand("study").filter(|_| words.first().is_some_and(|word| word == "study"));
    let (name, of, word) = match study {
        Some(study) => ("corewire study", study, words.get(1)),
        None => ("corewire", &all, words.first()),
    };
    format!("{name}: {}", usage::one_line(error, of, name, word.map(String::as_str)))
}

fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::Bench(args) => bench::run(args),
        Command::Model(args) => model::run(&args),
        #[cfg(feature = "rivals")]
        Command::Study(args) => study::run(args),
        #[cfg(not(feature = "rivals"))]
        Command::Study { .. } => Err(Failure::usage(
            "this corewire-lab is built without the systems that the study measures beside corewire; build it with: \
             cargo build --release -p corewire-lab --features rivals",
        )),
        Command::Worker { letter } => serve(&letter, &roles()),
    }
}

/// Writes to standard output, whose reader may have gone.
fn print(text: &str) -> Result<(), Failure> {
    let mut output = std::io::stdout().lock();
    match output.write_all(text.as_bytes()).and_then(|()| output.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}

/// What the workers of all measurements do.
fn roles() -> Vec<&'static dyn Work> {
    #[cfg(feature = "rivals")]
    let of_study = study::ROLES;
    #[cfg(not(feature = "rivals"))]
    let of_study: &[&dyn Work] = &[];
    bench::ROLES.iter().chain(of_study).copied().collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn each_role_has_a_name_of_its_own() {
        let names: Vec<_> = roles().into_iter().map(Work::name).collect();
        assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len(), "{names:?}");
    }
}
