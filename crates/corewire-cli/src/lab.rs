//! `corewire bench`, `model` and `study`: a program of their own, `corewire-lab`. It is built in a clone of the repository,
//! with other message-passing systems for the study, and nothing that corewire's users run depends on it.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use crate::failure::Failure;

const PROGRAM: &str = "corewire-lab";

/// What follows the name of the command.
#[derive(Debug, clap::Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Args {
    /// Arguments for corewire-lab
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENTS")]
    arguments: Vec<OsString>,
}

/// Replaces this process by that program, with the same arguments. It is beside this program or in `PATH`.
pub(crate) fn run(command: &str, args: &Args) -> Result<(), Failure> {
    let beside = std::env::current_exe().ok().map(|own| own.with_file_name(PROGRAM));
    let program = beside.filter(|path| path.exists()).unwrap_or_else(|| PathBuf::from(PROGRAM));
    let error = Command::new(program).arg(command).args(&args.arguments).exec();
    if error.kind() == ErrorKind::NotFound {
        let features = if command == "study" { " --features rivals" } else { "" };
        return Err(Failure::usage(format!(
            "{command} needs {PROGRAM}, which is neither beside this program nor in PATH; build it in a clone with: cargo \
             build --release -p {PROGRAM}{features}"
        )));
    }
    Err(Failure::other(format!("cannot start {PROGRAM}: {error}")))
}
