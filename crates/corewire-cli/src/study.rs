//! `corewire study`: the papers' experiments. They are a separate program, which is built with other
//! message-passing systems that corewire itself does not need.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use crate::failure::Failure;

const PROGRAM: &str = "corewire-study";

const EXAMPLES: &str = "\
Examples:
  corewire study zimp --quick --out zimp
  corewire study nemesis --quick --out nemesis
  corewire study active --quick --out active
  corewire study interfaces --quick --out interfaces
  corewire study routing --quick --out routing
  corewire study compare laptop.json server.json
  corewire study help\n\
\n\
Starts the program corewire-study, beside this program or in PATH, with the same \
arguments. It is built separately: cargo build --release -p corewire-study \
--features rivals";

/// Repeat the papers' experiments on this machine, with other systems for comparison
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES, disable_help_flag = true)]
pub(crate) struct Args {
    /// Arguments for corewire-study
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENTS")]
    arguments: Vec<OsString>,
}

/// Replaces this process by that program.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let beside = std::env::current_exe().ok().map(|own| own.with_file_name(PROGRAM));
    let program = beside.filter(|path| path.exists()).unwrap_or_else(|| PathBuf::from(PROGRAM));
    let error = Command::new(program).args(&args.arguments).exec();
    if error.kind() == ErrorKind::NotFound {
        return Err(Failure::usage(format!(
            "{PROGRAM} is neither beside this program nor in PATH; build it with: cargo build \
             --release -p {PROGRAM} --features rivals"
        )));
    }
    Err(Failure::other(format!("cannot start {PROGRAM}: {error}")))
}
