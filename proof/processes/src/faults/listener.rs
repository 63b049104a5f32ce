//! A listener and its clients in one process.

use std::path::Path;

use corewire::{ConnectServiceError, Connection, Domain, Listener, Observed};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::{CHANNEL as NAME, LIMIT, Result, apart, attempt};
use crate::Outcome;

/// Listens, connects, accepts, looks on, and drops the listener while a connection waits.
pub(super) fn listener(directory: &Path) -> Outcome {
    let domain = attempt("open", || Domain::open_at(directory))?;
    let listener = attempt("listen", || domain.listener(NAME))?;
    let client = attempt("connect", || domain.connect(NAME, LIMIT))?;
    apart(|| rustix::io::write(&client, b"x"))?;
    let server = accept(&listener)?;
    apart(|| rustix::io::write(&server, b"y"))?;
    if read(&client)? != 1 {
        return Err("the client got nothing".into());
    }
    let names = attempt("listeners", || domain.listeners())?;
    if names.iter().map(|name| name.as_str()).ne([NAME]) {
        return Err(format!("the listeners are {names:?}").into());
    }
    attempt("observe", || is_seen(&domain).map_err(|error| error.to_string()))?;
    let waiting = attempt("connect again", || domain.connect_when_created(NAME, Some(LIMIT)))?;
    drop(listener);
    if read(&waiting)? != 0 {
        return Err("a connection that waited was not closed".into());
    }
    match attempt("connect to nobody", || not_found(&domain))? {
        true => Ok(()),
        false => Err("a dropped listener can be found".into()),
    }
}

/// A client whose call failed after its request leaves a connection that has ended.
fn accept(listener: &Listener) -> Result<Connection> {
    loop {
        let accepted = attempt("accept", || listener.accept_timeout(LIMIT))?;
        let server = accepted.ok_or("no connection waits")?;
        if read(&server)? == 1 {
            return Ok(server);
        }
    }
}

/// The length of the next packet; 0 at the end.
fn read(connection: &Connection) -> Result<usize> {
    apart(|| {
        let limit = Timespec::try_from(LIMIT)?;
        poll(&mut [PollFd::new(connection, PollFlags::IN)], Some(&limit))?;
        Ok(rustix::io::read(connection, &mut [0; 8])?)
    })
}

fn is_seen(domain: &Domain) -> Outcome {
    let mut seen = domain.observe_all(LIMIT)?;
    match seen.pop().ok_or("nothing is seen")?.observed? {
        Observed::Listener(view) if view.pid == std::process::id() => Ok(()),
        other => Err(format!("{other:?} is seen").into()),
    }
}

fn not_found(domain: &Domain) -> std::result::Result<bool, ConnectServiceError> {
    match domain.connect(NAME, LIMIT) {
        Err(ConnectServiceError::NotFound(_)) => Ok(true),
        other => other.map(|_| false),
    }
}
