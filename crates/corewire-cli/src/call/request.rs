//! Standard input as one request to an endpoint, the reply to standard output.

use std::io::{self, IsTerminal, Read, Write};

use corewire::{ConnectError, Domain, Endpoint, EndpointError, MessageError, Peer};

use super::{Args, Limit, service};
use crate::failure::Failure;
use crate::{access, output};

/// Runs the command.
pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let (limit, domain) = (args.limit(), access::open_domain()?);
    // Before standard input is read, which may be a terminal.
    if domain.listeners()?.contains(&args.name) {
        return Err(service::needs_method(args, &domain));
    }
    let mut request = Vec::new();
    if io::stdin().is_terminal() {
        output::note("reads the request from standard input, up to its end (Ctrl-D)");
    }
    io::stdin()
        .lock()
        .read_to_end(&mut request)
        .map_err(|error| Failure::other(format!("cannot read standard input: {error}")))?;
    let mut client = create(&domain)?;
    let server = connect(args, &domain, &mut client, limit)?;
    let reply = match limit.left() {
        None => client.call(server, &request).map(Some),
        Some(left) => client.call_timeout(server, &request, left),
    };
    let reply = reply.map_err(|error| failure(args, &error))?.ok_or_else(|| args.late())?;
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
    limit: Limit,
) -> Result<Peer, Failure> {
    let name = args.name.as_str();
    let connected = match client.peer(name) {
        Err(ConnectError::NotFound(_)) if !args.no_wait => {
            output::waiting(name, domain);
            client.peer_when_created(name, limit.left())
        }
        connected => connected,
    };
    connected.map_err(|error| match error {
        ConnectError::NotCreated { .. } => args.late(),
        ConnectError::NotAnEndpoint(_)
            if domain.listeners().is_ok_and(|all| all.contains(&args.name)) =>
        {
            service::needs_method(args, domain)
        }
        error => error.into(),
    })
}

fn failure(args: &Args, error: &MessageError) -> Failure {
    match error {
        MessageError::PeerDied { .. } => args.died(),
        MessageError::RequestDropped { .. } => args.dropped(),
        other => Failure::other(other),
    }
}
