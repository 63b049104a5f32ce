//! `corewire mpi`: what an MPI needs to send its messages through corewire's libfabric provider. It prints that environment,
//! or runs a command in it.

mod ask;
mod environment;
pub(crate) mod find;
mod libfabric;
pub(crate) mod provider;

use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::Serialize;

use self::environment::Environment;
use self::find::Mpi;
use crate::failure::Failure;
use crate::{output, units};

const EXAMPLES: &str = "\
Examples:
  corewire mpi -- mpiexec -n 4 ./app
  corewire mpi -- ~/mpich/bin/mpiexec -n 2 python3 app.py
  eval \"$(corewire mpi)\" && mpirun -n 4 ./app\n\
\n\
Without COMMAND it prints lines for a shell: the environment that makes MPICH, Intel MPI and \
Open MPI load corewire's provider for libfabric. With COMMAND it replaces itself by that command, \
in that environment: the exit code and signals are the command's. It ends with 127 if there is no \
such command, and with 126 if it cannot be run.\n\
\n\
The provider is the file libcorewire-fi.so of --provider, beside this program, in \
../lib/corewire, or in the folder where a build has put both. The MPIs are those of PATH, and the one that COMMAND \
starts: a program whose name begins with mpiexec, mpirun, orterun or prterun. If that MPI cannot \
use the provider, COMMAND does not run, and a line says why.\n\
\n\
COREWIRE_RUNTIME_DIR is where the ranks find each other. Where it is not set, it becomes the \
runtime directory of this user, which is made with mode 0700.\n\
\n\
--json prints an object with the keys provider, environment (an object of variables) and mpis: \
objects with the keys kind, version, launcher, libfabric (the version; null if it is not known) and obstacle (why it cannot \
use the provider, or null).";

/// Run MPI programs over corewire, or print the environment that they need
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The provider: libcorewire-fi.so, or its folder
    #[arg(long, value_name = "PATH")]
    provider: Option<PathBuf>,
    /// Print the environment, and do not run COMMAND
    #[arg(long)]
    print: bool,
    /// Print JSON, and do not run COMMAND
    #[arg(long, conflicts_with = "print")]
    json: bool,
    /// What to run, such as `mpiexec -n 4 ./app`
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

#[derive(Debug, Serialize)]
struct Report<'a> {
    provider: &'a Path,
    environment: serde_json::Map<String, serde_json::Value>,
    mpis: &'a [Mpi],
}

/// Runs the command.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let folder = match &args.provider {
        Some(given) => provider::of(given)?,
        None => provider::find()?,
    };
    let launcher = args.command.first().and_then(find::launched_by);
    let mpis = match launcher {
        Some(mpi) => vec![mpi],
        None => find::in_path(),
    };
    let environment = Environment::new(&folder, &mpis)?;
    if args.json {
        let environment = environment.to_json();
        return output::print_json(&Report { provider: &folder, environment, mpis: &mpis });
    }
    let Some((program, arguments)) = args.command.split_first().filter(|_| !args.print) else {
        return output::print(&environment.to_shell(&mpis)?);
    };
    if let (true, [Mpi { kind, version, obstacle: Some(why), .. }]) =
        (find::is_launcher(program), &mpis[..])
    {
        let mpi = units::printable(&format!("{kind} {version}"));
        return Err(Failure::other(format!("{mpi} cannot use corewire: {why}")));
    }
    let mut command = Command::new(program);
    command.args(arguments).envs(environment.variables());
    let error = command.exec();
    let shown = units::printable(&program.to_string_lossy());
    let code = if error.kind() == ErrorKind::NotFound { 127 } else { 126 };
    Err(Failure { message: format!("cannot run {shown}: {error}"), code })
}
