//! `corewire call`: standard input as one request, the reply to standard output.

use std::io::{self, Read, Write};
use std::time::{Duration, Instant};

use corewire::{ChannelName, ConnectError, Domain, Endpoint, EndpointError, MessageError, Peer};

use crate::failure::Failure;
use crate::{access, output, units};

const EXAMPLES: &str = "\
Examples:
  echo hello | corewire call upper
  corewire call sum < disk.img
  corewire call status --timeout 2 < /dev/null\n\
\n\
All of standard input is one request. If the endpoint does not exist yet, the command \
says on standard error where it waits for it.\n\
\n\
Exit codes: 0 replied, 3 if the process that was to reply died, 2 wrong usage, 1 any \
other failure: no reply in time, or the request was dropped.";

/// Send standard input to an endpoint as one request, and write the reply to standard output.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The endpoint to call, such as one that `corewire serve` creates
    #[arg(value_parser = units::channel_name)]
    endpoint: ChannelName,
    /// Fail if there is no reply within SECONDS, from 0.001 to 1000000, whether or not the endpoint exists by then
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    timeout: Option<Duration>,
    /// Fail if the endpoint does not exist, instead of waiting for it
    #[arg(long)]
    no_wait: bool,
}

/// Runs the command.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let mut request = Vec::new();
    io::stdin()
        .lock()
        .read_to_end(&mut request)
        .map_err(|error| Failure::other(format!("cannot read standard input: {error}")))?;
    let deadline = args.timeout.map(|timeout| Instant::now() + timeout);
    let left = || deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
    let domain = access::open_domain()?;
    let mut client = create(&domain)?;
    let server = connect(args, &domain, &mut client, left())?;
    let reply = match left() {
        None => client.call(server, &request).map(Some),
        Some(left) => client.call_timeout(server, &request, left),
    };
    let reply = reply.map_err(|error| failure(args, &error))?.ok_or_else(|| late(args))?;
    let mut output = io::stdout().lock();
    output.write_all(&reply).and_then(|()| output.flush()).map_err(|error| output::failed(&error))
}

/// An endpoint of a name that nobody has: a process of another PID namespace may have the first one.
fn create(domain: &Domain) -> Result<Endpoint, Failure> {
    let pid = std::process::id();
    let mut number = 0;
    loop {
        let name = if number == 0 { format!("call-{pid}") } else { format!("call-{pid}-{number}") };
        match domain.endpoint(&name).peers(4).create() {
            Err(EndpointError::AlreadyExists(_)) if number < 1000 => number += 1,
            created => return Ok(created?),
        }
    }
}

fn connect(
    args: &Args,
    domain: &Domain,
    client: &mut Endpoint,
    timeout: Option<Duration>,
) -> Result<Peer, Failure> {
    let name = args.endpoint.as_str();
    match client.peer(name) {
        Err(ConnectError::NotFound(_)) if !args.no_wait => {
            let place = domain.runtime_directory().to_string_lossy();
            output::note(format!("waiting for {name} in {}", units::printable(&place)));
            match client.peer_when_created(name, timeout) {
                Err(ConnectError::NotCreated { .. }) => Err(late(args)),
                connected => Ok(connected?),
            }
        }
        connected => Ok(connected?),
    }
}

fn failure(args: &Args, error: &MessageError) -> Failure {
    let name = &args.endpoint;
    match error {
        MessageError::PeerDied { .. } => {
            Failure { message: format!("{name} died before it replied"), code: 3 }
        }
        MessageError::RequestDropped { .. } => {
            Failure::other(format!("{name} dropped the request without a reply"))
        }
        other => Failure::other(other),
    }
}

fn late(args: &Args) -> Failure {
    let seconds = args.timeout.unwrap_or_default().as_secs_f64();
    Failure::other(format!("no reply of {} within {seconds} s", args.endpoint))
}

fn seconds(text: &str) -> Result<Duration, String> {
    let number = text.parse::<f64>().ok().filter(|seconds| (0.001..=1e6).contains(seconds));
    number
        .map(Duration::from_secs_f64)
        .ok_or_else(|| format!("{text:?} is not a number of seconds from 0.001 to 1000000"))
}
