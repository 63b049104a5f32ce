//! `corewire serve`: each request to the standard input of a command, whose output is the reply.

use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use corewire::{
    ChannelName, Endpoint, Interrupter, MessageError, OwedReply, OwnedMessage, Request,
};

use crate::failure::Failure;
use crate::signals::Signals;
use crate::{access, output, units};

const EXAMPLES: &str = "\
Examples:
  corewire serve upper -- tr a-z A-Z
  echo hello | corewire call upper
  corewire serve sum --jobs 1 -- sh -c 'sha256sum | cut -d\" \" -f1'\n\
\n\
The command is run once for each request. It reads the request from its standard input \
and writes the reply to its standard output; its standard error is that of serve. Its \
environment variable COREWIRE_PEER is the name of the endpoint that sent the request. \
The reply is sent when the command has ended and nothing that it started has its \
standard output open. \
If the command fails (an exit code other than 0, or a signal), the call ends with an \
error, and standard error says why.\n\
\n\
INT, TERM or HUP ends serve after the commands that run have ended and their replies \
have been sent; a second signal ends it at once, and leaves them running.\n\
\n\
Exit codes: 1 failed, 2 wrong usage; otherwise it runs until a signal ends it.";

/// Reply to requests: run a command for each, with the request as its input and the reply as its output.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The endpoint to create: letters, digits, '_', '-' and '.'
    #[arg(value_parser = units::channel_name)]
    endpoint: ChannelName,
    /// Run up to N commands at the same time [default: the number of processors]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    jobs: Option<u16>,
    /// The command and its arguments, after `--`
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// What came of a request.
struct Outcome {
    owed: OwedReply,
    reply: Result<Vec<u8>, String>,
}

/// Runs the command.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let program = &args.command[0];
    if !is_program(program) {
        return Err(Failure::usage(format!("there is no program {}", shown(program))));
    }
    let signals = Signals::catch()?;
    let domain = access::open_domain()?;
    let endpoint = domain.endpoint(args.endpoint.as_str()).create()?;
    let interrupting = signals.interrupt(endpoint.interrupter());
    let served = serve(args, endpoint, &signals);
    drop(interrupting);
    served?;
    signals.end()
}

/// Serves until a signal is caught.
fn serve(args: &Args, mut endpoint: Endpoint, signals: &Signals) -> Result<(), Failure> {
    let processors = || thread::available_parallelism().map_or(1, usize::from);
    let jobs_max = args.jobs.map_or_else(processors, usize::from);
    let (done, outcomes) = channel();
    let mut jobs = 0;
    let mut is_ending = false;
    loop {
        jobs -= reply_to_all(&mut endpoint, &outcomes);
        if signals.caught().is_some() {
            if jobs == 0 {
                break;
            }
            if !is_ending {
                let commands = units::counted(jobs, "command", "commands");
                output::note(format!(
                    "waiting for {commands} to end; a second signal ends at once"
                ));
            }
            is_ending = true;
        }
        let waited = if is_ending || jobs == jobs_max {
            // Sends what waits for room, until it is interrupted.
            endpoint.completions(&mut Vec::new(), 1).map(|_| ())
        } else {
            endpoint.receive_request().map(Request::detach).map(|(owed, request)| {
                begin(args, &endpoint, owed, request, done.clone());
                jobs += 1;
            })
        };
        match waited {
            Ok(()) | Err(MessageError::Interrupted) => {}
            Err(error) => return Err(error.into()),
        }
    }
    // Until every caller has its reply, or a second signal ends this process.
    loop {
        match endpoint.flush() {
            Err(MessageError::Interrupted) => {}
            flushed => return Ok(flushed?),
        }
    }
}

/// Sends the replies that are there. Returns how many commands have ended.
fn reply_to_all(endpoint: &mut Endpoint, outcomes: &Receiver<Outcome>) -> usize {
    let mut count = 0;
    for Outcome { owed, reply } in outcomes.try_iter() {
        count += 1;
        match reply {
            Ok(reply) => {
                // Any other error means that the caller has gone.
                if let Err(MessageError::Transport(error)) = endpoint.reply(owed, &reply) {
                    output::note(format!("cannot reply: {error}"));
                }
            }
            // Dropping what is owed tells the caller.
            Err(error) => output::note(error),
        }
    }
    count
}

/// Runs the command for a request, in a thread that reports its end to `done`.
fn begin(
    args: &Args,
    endpoint: &Endpoint,
    owed: OwedReply,
    request: OwnedMessage,
    done: Sender<Outcome>,
) {
    let peer = endpoint.name_of(owed.source()).unwrap_or_default().to_owned();
    let interrupter = endpoint.interrupter();
    let command = args.command.clone();
    let reporting = Reporting { done: Some((owed, done)), interrupter };
    // If no thread can be started, the job reports as it is dropped.
    let job = move || reporting.report(run_command(&command, &peer, request));
    if let Err(error) = thread::Builder::new().name("corewire-job".into()).spawn(job) {
        output::note(format!("cannot start a thread: {error}"));
    }
}

/// Reports the end of a job, whatever happens to it.
struct Reporting {
    done: Option<(OwedReply, Sender<Outcome>)>,
    interrupter: Interrupter,
}

impl Reporting {
    fn report(mut self, reply: Result<Vec<u8>, String>) {
        self.end(reply);
    }

    fn end(&mut self, reply: Result<Vec<u8>, String>) {
        if let Some((owed, done)) = self.done.take() {
            // The server has ended if nobody receives it.
            let _ = done.send(Outcome { owed, reply });
            self.interrupter.interrupt();
        }
    }
}

impl Drop for Reporting {
    fn drop(&mut self) {
        self.end(Err("a request was dropped".into()));
    }
}

/// Runs the command with `request` as its standard input. Returns its standard output.
fn run_command(command: &[OsString], peer: &str, request: OwnedMessage) -> Result<Vec<u8>, String> {
    let failed = |what: &str| format!("{} for a request of {peer}: {what}", shown(&command[0]));
    let mut child = Command::new(&command[0])
        .args(&command[1..])
        .env("COREWIRE_PEER", peer)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        // A terminal's Ctrl-C is for serve, which waits for its commands.
        .process_group(0)
        .spawn()
        .map_err(|error| failed(&format!("cannot be run: {error}")))?;
    if let Some(mut input) = child.stdin.take() {
        // Not waited for: the command need not read everything, and what it has started may keep its input open. What is
        // wrong with its input is the command's to say.
        let write = move || drop(input.write_all(&request));
        // If no thread can be started, its input is empty.
        if let Err(error) = thread::Builder::new().name("corewire-input".into()).spawn(write) {
            output::note(format!("cannot start a thread: {error}"));
        }
    }
    let output = child.wait_with_output();
    let output = output.map_err(|error| failed(&error.to_string()))?;
    if output.status.success() {
        Ok(output.stdout)
    } else {
        Err(failed(&output.status.to_string()))
    }
}

/// Whether there is such a file that can be executed, in the directories of `PATH` if the name has no slash.
fn is_program(program: &OsStr) -> bool {
    let is_executable = |path: &Path| {
        std::fs::metadata(path)
            .is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
    };
    if program.as_bytes().contains(&b'/') {
        return is_executable(Path::new(program));
    }
    let directories = std::env::var_os("PATH").unwrap_or_else(|| "/usr/bin:/bin".into());
    std::env::split_paths(&directories).any(|directory| is_executable(&directory.join(program)))
}

fn shown(program: &OsStr) -> String {
    units::printable(&program.to_string_lossy())
}
