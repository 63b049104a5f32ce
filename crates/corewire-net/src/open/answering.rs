//! The side that is dialled.

use std::io::{Read as _, Write as _};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use corewire_layout::net::{Answer, Hello, Preface, Refusal};
use corewire_os::fork::Descriptor;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketFlags, SocketType, accept_with, bind, getsockname,
    listen as start_listening, socket_with, sockopt,
};

use super::connecting::resolve;
use super::dialling::read_more;
use super::waiting::Waiting;
use super::{
    Deadline, Numbers, OpenError, Opened, Own, credit_of, ends_of, is_loopback, make_room, users,
};
use crate::hosts::Hosts;
use crate::tls;
use crate::wire::Wire;

/// Connections that the kernel keeps until they are accepted.
const BACKLOG: i32 = 4096;
/// How long a side that was refused may take to read that.
const REFUSED_WITHIN: Duration = Duration::from_secs(1);

/// A socket that takes connections at this address, and where that is: the kernel chooses a port for 0.
///
/// # Errors
/// [`OpenError::Os`].
pub fn listen(address: SocketAddr) -> Result<(Descriptor, SocketAddr), OpenError> {
    let failed = |errno| OpenError::of(format!("take connections at {address}"), errno);
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = Descriptor::make(|| socket_with(family, SocketType::STREAM, flags, None))
        .map_err(failed)?;
    // One that has ended just now may have had connections that the kernel still remembers.
    sockopt::set_socket_reuseaddr(&socket, true).map_err(failed)?;
    make_room(&socket)?;
    bind(&socket, &address).map_err(failed)?;
    start_listening(&socket, BACKLOG).map_err(failed)?;
    let at = getsockname(&socket).and_then(SocketAddr::try_from).map_err(failed)?;
    Ok((socket, at))
}

/// The next connection that waits; `None` if none does.
///
/// # Errors
/// [`OpenError::Os`]: no descriptors or memory.
pub fn accept(listener: &Descriptor) -> Result<Option<Descriptor>, OpenError> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    loop {
        match Descriptor::make(|| accept_with(listener, flags)) {
            Ok(stream) => return Ok(Some(stream)),
            Err(Errno::WOULDBLOCK) => return Ok(None),
            // It has ended before.
            Err(Errno::INTR | Errno::CONNABORTED) => {}
            Err(errno) => return Err(OpenError::of("accept a connection", errno)),
        }
    }
}

/// What the side that dials wants.
///
/// # Errors
/// [`OpenError`].
pub fn read_preface(stream: &Descriptor, deadline: Deadline) -> Result<Preface, OpenError> {
    let mut waiting = Waiting::new(stream, deadline);
    let mut bytes = Vec::new();
    loop {
        if let Some((preface, _)) = Preface::parse(&bytes)? {
            return Ok(preface);
        }
        // What follows is for the process that opens the connection: byte by byte.
        let mut byte = [0];
        match waiting.read(&mut byte)? {
            0 => return Err(OpenError::Closed),
            _ => bytes.extend(byte),
        }
    }
}

/// Answers a preface that the connection is refused, and closes it.
pub fn refuse(stream: &Descriptor, why: Refusal) {
    let mut waiting = Waiting::new(stream, Deadline::within(REFUSED_WITHIN));
    let _ = waiting.write_all(&Answer::Refused(why).to_bytes());
    end_slowly(stream, waiting);
}

/// Ends a connection, also for a thread that waits for it.
pub fn hang_up(stream: &Descriptor) {
    let _ = rustix::net::shutdown(stream, rustix::net::Shutdown::Both);
}

/// Closes a connection so that the other side reads the last that was sent: what has arrived and was not read would make the
/// kernel throw that away.
fn end_slowly(stream: &Descriptor, mut waiting: Waiting<'_>) {
    let _ = rustix::net::shutdown(stream, rustix::net::Shutdown::Write);
    let mut bytes = [0; 4096];
    while waiting.read(&mut bytes).is_ok_and(|count| count > 0) {}
}

/// Opens a connection whose [preface](read_preface) was read. `admit` decides, once the other side is known. The socket does
/// not block.
///
/// # Errors
/// [`OpenError`]. The other side was told why, as far as that is possible.
pub fn answer(
    stream: Descriptor,
    preface: &Preface,
    hosts: &Hosts,
    own: &Own,
    deadline: Deadline,
    admit: impl FnOnce(&Hello) -> Result<(), Refusal>,
) -> Result<Opened, OpenError> {
    let mut session = None;
    let opened = open(&stream, &mut session, preface, hosts, own, deadline, admit);
    let (own, other, arrived) = opened.inspect_err(|error| {
        let mut waiting = Waiting::new(&stream, Deadline::within(REFUSED_WITHIN));
        let told = match error {
            // It has been told.
            OpenError::RefusedHere(Refusal::Crossed) => None,
            OpenError::RefusedHere(why) => Some(*why),
            // Nothing that it could help.
            OpenError::Certificate { .. } => Some(Refusal::Busy),
            _ => None,
        };
        if let Some(why) = told {
            let bytes = Answer::Refused(why).to_bytes();
            match &mut session {
                Some(session) => {
                    let _ = session.writer().write_all(&bytes);
                    while session.wants_write() && session.write_tls(&mut waiting).is_ok() {}
                }
                None => drop(waiting.write_all(&bytes)),
            }
        }
        end_slowly(&stream, waiting);
    })?;
    Ok(Opened { wire: Wire::new(stream, session), traffic: Arc::default(), arrived, own, other })
}

fn open(
    stream: &Descriptor,
    session: &mut Option<rustls::Connection>,
    preface: &Preface,
    hosts: &Hosts,
    own: &Own,
    deadline: Deadline,
    admit: impl FnOnce(&Hello) -> Result<(), Refusal>,
) -> Result<(Hello, Hello, Vec<u8>), OpenError> {
    let refused = |why| Err(OpenError::RefusedHere(why));
    if preface.wanted != own.name {
        return refused(Refusal::NotFound);
    }
    let (own_end, other_end) = ends_of(stream)?;
    let is_within = is_loopback(own_end.ip()) && is_loopback(other_end.ip());
    let mut waiting = Waiting::new(stream, deadline);
    let mut own = own.hello(hosts, credit_of(stream)?, Numbers::default());
    let may_be_insecure = hosts.all().any(|(_, host)| host.is_insecure);
    match (preface.is_tls, hosts.tls()) {
        (true, Some(files)) => {
            let mut begun = tls::dialled(files)?;
            waiting.write_all(&Answer::Welcome.to_bytes())?;
            tls::shake_hands(&mut begun, &mut waiting)?;
            *session = Some(begun);
        }
        (true, None) => return refused(Refusal::NoTls),
        (false, _) if is_within => match users::check(own_end, other_end) {
            Err(OpenError::OtherUser { .. }) => return refused(Refusal::OtherUser),
            other => {
                other?;
                waiting.write_all(&Answer::Welcome.to_bytes())?;
            }
        },
        (false, _) if may_be_insecure => waiting.write_all(&Answer::Welcome.to_bytes())?,
        (false, _) => return refused(Refusal::NeedsTls),
    }
    let mut arrived = Vec::new();
    let other = loop {
        if let Some((other, used)) = Hello::parse(&arrived)? {
            arrived.drain(..used);
            break other;
        }
        read_more(&mut waiting, session.as_mut(), &mut arrived)?;
    };
    let Some(host) = hosts.get(&other.host) else { return refused(Refusal::UnknownHost) };
    match session {
        Some(session) if !tls::is_for(session, &host.certificate_name)? => {
            return refused(Refusal::OtherHost);
        }
        None if !is_within && !host.is_insecure => return refused(Refusal::NeedsTls),
        _ => {}
    }
    if !hosts.is_allowed(&other.host, &own.name) {
        return refused(Refusal::NotAllowed);
    }
    // Last, since a name may have to be resolved.
    if session.is_none() && !is_within && !is_at(&host.addresses, other_end, deadline)? {
        return refused(Refusal::OtherHost);
    }
    own.connection = other.connection;
    let admitted = admit(&other);
    let answer = match admitted {
        Ok(()) => Answer::Welcome,
        // It must know who has connected.
        Err(Refusal::Crossed) => Answer::Refused(Refusal::Crossed),
        Err(why) => return refused(why),
    };
    let bytes = [answer.to_bytes(), own.to_bytes()].concat();
    match session {
        Some(session) => {
            session.writer().write_all(&bytes)?;
            while session.wants_write() {
                session.write_tls(&mut waiting)?;
            }
        }
        None => waiting.write_all(&bytes)?,
    }
    admitted.map_err(OpenError::RefusedHere)?;
    Ok((own, other, arrived))
}

/// Whether one of a host's addresses is this one. Only if none is that says so itself, names are resolved.
fn is_at(addresses: &[String], found: SocketAddr, deadline: Deadline) -> Result<bool, OpenError> {
    let is_it = |address: SocketAddr| address.ip().to_canonical() == found.ip().to_canonical();
    let (literal, names): (Vec<_>, Vec<_>) =
        addresses.iter().cloned().partition(|address| address.parse::<SocketAddr>().is_ok());
    if literal.iter().filter_map(|address| address.parse().ok()).any(is_it) {
        return Ok(true);
    }
    Ok(resolve(&names, deadline)?.into_iter().any(is_it))
}
