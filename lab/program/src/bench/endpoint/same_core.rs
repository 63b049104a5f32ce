//! Round trips of two processes on one processor, with the default wait: a request, and its reply. Each
//! process must give the processor to the other one. Compared with a SEQPACKET socket in alternating blocks.

use std::os::fd::OwnedFd;
use std::path::Path;

use corewire::{Endpoint, Peer as Other, Selector};
use corewire_harness::calls::ways::first_processor;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, accept, bind,
    connect, listen, recv, send, socket_with,
};

use super::{BYTES, ends};
use crate::bench::prelude::*;

pub(in super::super) const ROLE: Role<Options> = Role { name: "endpoint on one core", work: peer };

/// Round trips of a block: about 10 ms.
const ROUND_TRIPS: u64 = 2000;
/// The socket's file in the runtime directory.
const FILE: &str = "seqpacket";

pub(super) fn run(options: &Options, report: &mut Report) -> Result<(), Failure> {
    let places = Places::On(first_processor()?);
    let crew = setup(1).places(places).start(&ROLE, |_| options.clone())?;
    // The peer connects once it has this process's endpoint.
    let listener = listener(crew.directory())?;
    let (mut endpoint, other) = ends(crew.domain()?, options, "parent", "peer")?;
    let socket = accept(&listener)?;
    let blocks = alternate(options.rounds, |_| {
        let baseline = round_trip_ns(ROUND_TRIPS, || exchange_by_socket(&socket, true))?;
        let found = round_trip_ns(ROUND_TRIPS, || exchange(&mut endpoint, other, true))?;
        Ok::<_, Failure>([baseline, found])
    })?;
    let [baseline, found] = [0, 1].map(|block| blocks.median(block));
    report.figure("same_core_seqpacket_ns", "one core, SEQPACKET, round trip", baseline, "ns");
    report.figure("same_core_ns", "one core, round trip", found, "ns");
    let words = "one core to the socket of the same round";
    report.ratios("same_core_ratio", words, &blocks.ratios(1, 0));
    endpoint.close()?;
    crew.finish()
}

fn peer(worker: &Worker, options: Options) -> Result<(), Failure> {
    let (mut endpoint, other) = ends(&worker.domain()?, &options, "peer", "parent")?;
    let socket = connected(worker.directory())?;
    for _ in all(options.rounds) {
        (0..ROUND_TRIPS).try_for_each(|_| exchange_by_socket(&socket, false))?;
        (0..ROUND_TRIPS).try_for_each(|_| exchange(&mut endpoint, other, false))?;
    }
    Ok(endpoint.close()?)
}

/// A request and its reply: who `begins` sends first.
fn exchange(endpoint: &mut Endpoint, other: Other, begins: bool) -> Result<(), Failure> {
    let mut word = [0; BYTES];
    if begins {
        endpoint.send(other, 0, &word)?;
    }
    endpoint.receive_into(Selector::any(), &mut word)?;
    if !begins {
        endpoint.send(other, 0, &word)?;
    }
    Ok(())
}

pub(in super::super) fn exchange_by_socket(socket: &OwnedFd, begins: bool) -> Result<(), Failure> {
    let mut word = [0; BYTES];
    if begins {
        send(socket, &word, SendFlags::empty()).map_err(failed)?;
    }
    let received = recv(socket, &mut word, RecvFlags::empty()).map_err(failed)?;
    if received.0 != BYTES {
        return Err(Failure::other("the socket's other end is closed"));
    }
    if !begins {
        send(socket, &word, SendFlags::empty()).map_err(failed)?;
    }
    Ok(())
}

fn round_trip_ns(
    count: u64,
    mut exchange: impl FnMut() -> Result<(), Failure>,
) -> Result<f64, Failure> {
    let start = Instant::now();
    (0..count).try_for_each(|_| exchange())?;
    Ok(start.elapsed().as_secs_f64() * 1e9 / count as f64)
}

/// A socket to which the other process can connect.
pub(in super::super) fn listener(directory: &Path) -> Result<OwnedFd, Failure> {
    let socket = new_socket()?;
    bind(&socket, &SocketAddrUnix::new(directory.join(FILE))?).map_err(failed)?;
    listen(&socket, 1).map_err(failed)?;
    Ok(socket)
}

/// A socket that is connected to the other process, which listens.
pub(in super::super) fn connected(directory: &Path) -> Result<OwnedFd, Failure> {
    let socket = new_socket()?;
    connect(&socket, &SocketAddrUnix::new(directory.join(FILE))?).map_err(failed)?;
    Ok(socket)
}

fn new_socket() -> Result<OwnedFd, Failure> {
    socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
        .map_err(failed)
}

fn failed(error: rustix::io::Errno) -> Failure {
    Failure::other(format!("the baseline's socket: {error}"))
}
