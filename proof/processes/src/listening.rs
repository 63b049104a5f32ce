//! Listeners, and processes that connect to them.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use corewire::{AcceptError, ConnectServiceError, Connection, Domain, ListenError, OpenError};
use rustix::event::{PollFd, PollFlags, poll};

use crate::{Options, Outcome};

/// Longer than anything takes.
const LONG: Duration = Duration::from_secs(60);

/// Waits for a packet.
fn hear(socket: impl AsFd) -> rustix::io::Result<Vec<u8>> {
    poll(&mut [PollFd::new(&socket, PollFlags::IN)], None)?;
    let mut bytes = [0; 64];
    let count = rustix::io::read(&socket, &mut bytes)?;
    Ok(bytes[..count].to_vec())
}

fn peer(connection: &Connection) -> String {
    format!("uid={} gid={} pid={}", connection.uid(), connection.gid(), connection.pid())
}

/// Listens, sends back a packet of each of `count` clients, and keeps the listener until the test has seen enough.
pub(crate) fn listen(domain: &Domain, options: &Options) -> Outcome {
    let listener = domain.listener(&options.channel)?;
    println!("listening");
    for _ in 0..options.count {
        let connection = listener.accept()?;
        println!("accepted {}", peer(&connection));
        let bytes = hear(&connection)?;
        rustix::io::write(&connection, &bytes)?;
    }
    io::stdin().read_line(&mut String::new())?;
    Ok(())
}

/// Connects when the listener exists, exchanges a packet, and says when the connection ends. Then connects until it
/// is refused, `count` times at most.
pub(crate) fn connect(domain: &Domain, options: &Options) -> Outcome {
    let names: Vec<_> = domain.listeners()?.iter().map(ToString::to_string).collect();
    println!("listeners {}", names.join(" "));
    println!("created {:?}", domain.listener("of-the-guest").map(drop));
    println!("now {:?}", domain.connect(&options.channel, LONG).map(drop));
    let connection = match domain.connect_when_created(&options.channel, None) {
        Ok(connection) => connection,
        Err(error) => {
            println!("connected {error:?}");
            return Ok(());
        }
    };
    println!("connected {}", peer(&connection));
    rustix::io::write(&connection, b"hello")?;
    println!("heard {}", String::from_utf8_lossy(&hear(&connection)?));
    println!("ended {:?}", hear(&connection)?.len());
    Ok(())
}

/// Connects until it is refused, says why, and keeps the connections until the test has seen enough.
pub(crate) fn crowd(domain: &Domain, options: &Options) -> Outcome {
    let mut connections = Vec::new();
    while connections.len() < usize::try_from(options.count)? {
        match domain.connect(&options.channel, LONG) {
            Ok(connection) => connections.push(connection),
            Err(error) => {
                println!("refused {error}");
                break;
            }
        }
    }
    println!("connections {}", connections.len());
    io::stdin().read_line(&mut String::new())?;
    Ok(())
}

/// Forks with a listener, a connection that waits, one at each end, and one that was taken out.
pub(crate) fn fork(domain: &Domain, options: &Options, directory: &std::path::Path) -> Outcome {
    let name = options.channel.as_str();
    let listener = domain.listener(name)?;
    let client = domain.connect(name, LONG)?;
    let server = listener.accept()?;
    let taken_client = OwnedFd::from(domain.connect(name, LONG)?);
    let taken_server = OwnedFd::from(listener.accept()?);
    let waiting = domain.connect(name, LONG)?;
    // SAFETY: the child uses only what corewire allows after a fork, and ends with `_exit`.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: ends a child that hangs.
        unsafe { libc::alarm(30) };
        let is_right = matches!(listener.try_accept(), Err(AcceptError::Forked))
            && matches!(listener.accept(), Err(AcceptError::Forked))
            && matches!(domain.listener("other"), Err(ListenError::Forked))
            && matches!(domain.listeners(), Err(OpenError::Forked))
            && matches!(domain.connect(name, LONG), Err(ConnectServiceError::Forked))
            && matches!(
                domain.connect_when_created(name, None),
                Err(ConnectServiceError::Forked)
            )
            // What was a connection before the fork is a descriptor like any other.
            && rustix::io::write(&taken_client, b"from the child") == Ok(14);
        // Of a connection that the child does not have there is only an end.
        let is_ended = rustix::io::read(OwnedFd::from(client), &mut [0; 8]) == Ok(0);
        drop((server, waiting, listener));
        let is_anew = Domain::open_at(directory).is_ok_and(
            |domain| matches!(domain.connect(name, LONG), Ok(connection) if connection.pid() != 0),
        );
        let code = [is_right, is_ended, is_anew].into_iter().position(|is_so| !is_so);
        // SAFETY: ends the child without running its parent's exit handlers.
        unsafe { libc::_exit(code.map_or(0, |at| i32::try_from(at).unwrap_or(9) + 1)) };
    }
    let mut status = 0;
    // SAFETY: waits for our own child.
    unsafe { libc::waitpid(child, &raw mut status, 0) };
    if status != 0 {
        return Err(format!("the child ended with {status:#x}").into());
    }
    if hear(&taken_server)? != b"from the child" {
        return Err("the child's packet is not there".into());
    }
    // The parent's connections and its listener are undisturbed: two connections wait, of which the child's has ended.
    rustix::io::write(&server, b"on")?;
    if hear(&client)? != b"on" {
        return Err("the fork disturbed a connection".into());
    }
    let first = listener.accept()?;
    rustix::io::write(&first, b"accepted")?;
    if hear(&waiting)? != b"accepted" {
        return Err("the fork disturbed a connection that waited".into());
    }
    let of_child = listener.accept()?;
    if of_child.pid() != u32::try_from(child)? || !hear(&of_child)?.is_empty() {
        return Err("the child's own connection is not there".into());
    }
    println!("forked well");
    Ok(())
}
