//! `corewire serve`: each request to the standard input of a command, whose output is the reply.

mod command;

use std::collections::{HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use corewire::{
    ChannelName, Endpoint, Event, Interrupter, MessageError, OwedReply, OwnedMessage, Peer,
    Selector,
};
use corewire_os::event::Bell;

use crate::call::seconds;
use crate::failure::Failure;
use crate::signals::Signals;
use crate::{access, output, units};
use command::{Commands, shown};

const EXAMPLES: &str = "\
Examples:
  corewire serve upper -- tr a-z A-Z
  echo hello | corewire call upper
  corewire serve sum --jobs 1 --timeout 10 --largest 1M -- sh -c 'sha256sum | cut -d\" \" -f1'\n\
\n\
The command is run once for each request. It reads the request from its standard input \
and writes the reply to its standard output; its standard error is that of serve. Its \
environment variable COREWIRE_PEER is the name of the endpoint that sent the request. \
The reply is sent when the command has ended and nothing that it started has its \
standard output open. \
If the command fails (an exit code other than 0, or a signal), the call ends with an \
error, and standard error says why. So it does if the command runs for longer than \
--timeout, if its reply or the request is longer than --largest, and if its caller has \
gone: then the command and what it has started get a TERM, and a KILL when it has ended \
or after a second.\n\
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
    /// End a command that runs for longer than SECONDS, from 0.001 to 1000000 [default: no limit]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    timeout: Option<Duration>,
    /// Maximum bytes of a request and of a reply
    #[arg(long, value_name = "BYTES", default_value = "64M", value_parser = units::message_bytes)]
    largest: usize,
    /// The command and its arguments, after `--`
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// What came of a request.
struct Outcome {
    number: u64,
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

/// A tag that no client's message has. One that has it is dropped.
const NO_TAG: u64 = u64::MAX;

/// The commands that run: their callers, and how each is told that its caller has gone.
#[derive(Default)]
struct Jobs {
    running: HashMap<u64, (Peer, Arc<Bell>)>,
    begun: u64,
    /// Callers of which requests may be left.
    gone: HashSet<Peer>,
}

/// Serves until a signal is caught.
fn serve(args: &Args, mut endpoint: Endpoint, signals: &Signals) -> Result<(), Failure> {
    let processors = || thread::available_parallelism().map_or(1, usize::from);
    let jobs_max = args.jobs.map_or_else(processors, usize::from);
    let commands = Arc::new(Commands {
        words: args.command.clone(),
        timeout: args.timeout,
        bytes_max: args.largest,
    });
    let (done, outcomes) = channel();
    let mut jobs = Jobs::default();
    let mut is_ending = false;
    loop {
        reply_to_all(&mut endpoint, &outcomes, &mut jobs);
        if signals.caught().is_some() {
            if jobs.running.is_empty() {
                break;
            }
            if !is_ending {
                let commands = units::counted(jobs.running.len(), "command", "commands");
                output::note(format!(
                    "waiting for {commands} to end; a second signal ends at once"
                ));
            }
            is_ending = true;
        }
        let event = if is_ending || jobs.running.len() == jobs_max {
            // Sends what waits for room, too, until it is interrupted.
            endpoint.receive_event(Selector::tag(NO_TAG)).map(|event| match event {
                Event::Gone { peer, .. } => {
                    jobs.gone.insert(peer);
                    jobs.end_those_of(peer);
                }
                Event::Came(_) | Event::Received(_) => {}
            })
        } else {
            next_request(&mut endpoint, &mut jobs).map(|event| match event {
                Event::Received((owed, _)) if jobs.gone.contains(&owed.source()) => {}
                Event::Received((owed, request)) => {
                    begin(&commands, &endpoint, &mut jobs, (owed, request), done.clone());
                }
                Event::Gone { peer, .. } => jobs.end_those_of(peer),
                Event::Came(_) => {}
            })
        };
        match event {
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

/// Waits for a request, or for a caller to go.
fn next_request(
    endpoint: &mut Endpoint,
    jobs: &mut Jobs,
) -> Result<Event<(OwedReply, OwnedMessage)>, MessageError> {
    if !jobs.gone.is_empty() {
        match endpoint.now().receive_request_event()? {
            Some(event) => return Ok(event),
            // No request is left of those that went while none was received.
            None => jobs.gone.clear(),
        }
    }
    endpoint.receive_request_event()
}

impl Jobs {
    /// Nobody waits for the replies of these commands.
    fn end_those_of(&self, peer: Peer) {
        let of_it = self.running.values().filter(|(caller, _)| *caller == peer);
        of_it.for_each(|(_, gone)| gone.ring());
    }
}

/// Sends the replies that are there.
fn reply_to_all(endpoint: &mut Endpoint, outcomes: &Receiver<Outcome>, jobs: &mut Jobs) {
    for Outcome { number, owed, reply } in outcomes.try_iter() {
        jobs.running.remove(&number);
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
}

/// Runs the command for a request, in a thread that reports its end to `done`.
fn begin(
    commands: &Arc<Commands>,
    endpoint: &Endpoint,
    jobs: &mut Jobs,
    (owed, request): (OwedReply, OwnedMessage),
    done: Sender<Outcome>,
) {
    let gone = match Bell::new() {
        Ok(bell) => Arc::new(bell),
        // Dropping what is owed tells the caller.
        Err(error) => return output::note(error),
    };
    let (number, caller) = (jobs.begun, owed.source());
    jobs.begun += 1;
    jobs.running.insert(number, (caller, Arc::clone(&gone)));
    let peer = endpoint.name_of(caller).unwrap_or_default().to_owned();
    let interrupter = endpoint.interrupter();
    let commands = Arc::clone(commands);
    let reporting = Reporting { number, done: Some((owed, done)), interrupter };
    // If no thread can be started, the job reports as it is dropped.
    let job = move || reporting.report(commands.run(&peer, request, &gone));
    if let Err(error) = thread::Builder::new().name("corewire-job".into()).spawn(job) {
        output::note(format!("cannot start a thread: {error}"));
    }
}

/// Reports the end of a job, whatever happens to it.
struct Reporting {
    number: u64,
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
            let _ = done.send(Outcome { number: self.number, owed, reply });
            self.interrupter.interrupt();
        }
    }
}

impl Drop for Reporting {
    fn drop(&mut self) {
        self.end(Err("a request was dropped".into()));
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
