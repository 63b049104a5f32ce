//! `corewire log --append` and `--follow`: a client of a group, which is no member.

use std::io::{self, BufWriter, Write};
use std::time::{Duration, Instant};

use corewire::Domain;
use corewire_group::{ClientError, GroupClient};

use super::{Args, JOIN_WITHIN, LOOK_EVERY, READ_BYTES, SAYS_AFTER, entry_of, write};
use crate::failure::Failure;
use crate::input::Input;
use crate::records::{Records, Splitter};
use crate::signals::Signals;
use crate::{access, output};

/// Runs the command.
pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let input = match args.append {
        true => Some(Input::open(args.input.as_deref())?),
        false => None,
    };
    let domain = access::open_domain()?;
    let within = args.timeout.map_or(JOIN_WITHIN, Duration::from_secs);
    let mut client = connect(&domain, args.name.as_str(), within)?;
    let signals = Signals::catch()?;
    signals.begin();
    match input {
        Some(input) => append(args, &mut client, input, &signals)?,
        None => follow(args, &mut client, &signals)?,
    }
    signals.end()
}

/// Becomes a client, and says so if that takes long.
fn connect(domain: &Domain, name: &str, within: Duration) -> Result<GroupClient, ClientError> {
    match GroupClient::connect(domain, name, within.min(SAYS_AFTER)) {
        Err(ClientError::NoGroup { .. }) if within > SAYS_AFTER => {
            output::note(format_args!("group {name}: waiting: no member has answered"));
            let connected = GroupClient::connect(domain, name, within - SAYS_AFTER);
            connected.map_err(|error| match error {
                ClientError::NoGroup { name, .. } => ClientError::NoGroup { name, after: within },
                other => other,
            })
        }
        connected => connected,
    }
}

/// Lets the lines of the input be decided.
fn append(
    args: &Args,
    client: &mut GroupClient,
    mut input: Input,
    signals: &Signals,
) -> Result<(), Failure> {
    let mut buffer = vec![0; READ_BYTES];
    let mut splitter = Splitter::new(Records::Separated(b'\n'), client.largest_command());
    let mut decides = || -> Result<(), Failure> {
        let mut submit = |line: &[u8]| submit(args, client, line, signals);
        loop {
            if !input.is_ready(signals, None)? {
                continue;
            }
            match input.read(&mut buffer, signals)? {
                Some(0) => break,
                Some(bytes) => splitter.split(&buffer[..bytes], &mut submit)?,
                None => return Ok(()),
            }
        }
        splitter.finish(&mut submit)?;
        wait(args, client, signals, |client| match client.flush(LOOK_EVERY) {
            Ok(()) => Ok(Some(())),
            Err(ClientError::Timeout(_)) => Ok(None),
            Err(error) => Err(error),
        })?;
        Ok(())
    };
    let outcome = decides();
    let (count, decided) = client.own_commands();
    if count > decided {
        output::note(format_args!(
            "{decided} of {count} lines that were read are known to be decided, from the first one on"
        ));
    }
    outcome
}

fn submit(
    args: &Args,
    client: &mut GroupClient,
    line: &[u8],
    signals: &Signals,
) -> Result<(), Failure> {
    wait(args, client, signals, |client| match client.submit_timeout(line, LOOK_EVERY) {
        Ok(()) => Ok(Some(())),
        Err(ClientError::Timeout(_)) => Ok(None),
        Err(error) => Err(error),
    })
    .map(drop)
}

/// Tries until it is done, or a signal ends the command; says once that it waits, and fails if no line is decided for too long.
fn wait(
    args: &Args,
    client: &mut GroupClient,
    signals: &Signals,
    mut tries: impl FnMut(&mut GroupClient) -> Result<Option<()>, ClientError>,
) -> Result<(), Failure> {
    let name = &args.name;
    let mut decided = client.own_commands().1;
    let mut since = Instant::now();
    let mut has_said = false;
    while !signals.is_over() {
        if tries(client)?.is_some() {
            return Ok(());
        }
        let now = client.own_commands().1;
        if now > decided {
            (decided, since) = (now, Instant::now());
        }
        if !has_said && since.elapsed() >= SAYS_AFTER {
            has_said = true;
            output::note(format_args!("group {name}: waiting: lines are not decided"));
        }
        if let Some(limit) = args.timeout.map(Duration::from_secs)
            && since.elapsed() >= limit
        {
            return Err(Failure::other(format!(
                "group {name}: no line was decided within {limit:?}"
            )));
        }
    }
    Ok(())
}

/// Writes what is decided, until a signal.
fn follow(args: &Args, client: &mut GroupClient, signals: &Signals) -> Result<(), Failure> {
    let mut output = BufWriter::new(io::stdout().lock());
    let mut next = args.from;
    while !signals.is_over() {
        let decision = match client.next_decision(next, Duration::ZERO)? {
            Some(decision) => decision,
            None => {
                output.flush().map_err(|error| output::failed(&error))?;
                match client.next_decision(next, LOOK_EVERY)? {
                    Some(decision) => decision,
                    None => continue,
                }
            }
        };
        let entry = entry_of(decision)?;
        next = entry.index + 1;
        write(&mut output, &entry, args.json).map_err(|error| output::failed(&error))?;
    }
    output.flush().map_err(|error| output::failed(&error))
}
