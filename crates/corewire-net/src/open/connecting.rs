//! The addresses of a host, tried side by side: whichever answers first.

use std::net::{SocketAddr, ToSocketAddrs as _};
use std::os::fd::AsFd as _;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use corewire_os::OsError;
use corewire_os::fork::Descriptor;
use corewire_os::process::block_all_signals;
use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, socket_with, sockopt};

use super::{Deadline, OpenError, make_room, waiting};

/// How long one address has before the next is tried, too.
const HEAD_START: Duration = Duration::from_millis(250);
/// More addresses of a host do not wait to be tried.
const ADDRESSES_MAX: usize = 32;
const STACK_BYTES: usize = 256 << 10;

/// What a thread has found out.
enum Found {
    Addresses(Vec<SocketAddr>),
    Stream(Descriptor),
    /// A name that cannot be resolved, and why; an address that does not answer, and why.
    Unresolved(String),
    Unanswered(String),
}

/// A connection to one of these addresses. Each name is resolved now, in a thread of its own.
pub(super) fn connect_to_any(
    addresses: &[String],
    deadline: Deadline,
) -> Result<Descriptor, OpenError> {
    let (sender, found) = channel();
    begin_resolving(addresses, &sender)?;
    Attempt {
        sender,
        found,
        deadline,
        waiting: Vec::new(),
        resolving: addresses.len(),
        trying: 0,
        tried: Vec::new(),
    }
    .run()
}

/// The addresses that these names have now, as far as that is known in time.
pub(super) fn resolve(names: &[String], deadline: Deadline) -> Result<Vec<SocketAddr>, OpenError> {
    let (sender, found) = channel();
    begin_resolving(names, &sender)?;
    let mut all = Vec::new();
    for _ in names {
        let left = deadline.left().unwrap_or_default();
        match found.recv_timeout(left.min(Duration::from_secs(3600))) {
            Ok(Found::Addresses(some)) => all.extend(some),
            Ok(_) => {}
            Err(_) => break,
        }
    }
    Ok(all)
}

/// Resolves each of these names in a thread of its own.
fn begin_resolving(names: &[String], sender: &Sender<Found>) -> Result<(), OpenError> {
    for name in names {
        let (name, sender) = (name.clone(), sender.clone());
        begin("corewire-resolve", move || {
            let resolved = name.to_socket_addrs().map(Iterator::collect);
            let told = resolved
                .map_or_else(|why| Found::Unresolved(format!("{name}: {why}")), Found::Addresses);
            // Nobody waits for it any more.
            let _ = sender.send(told);
        })?;
    }
    Ok(())
}

struct Attempt {
    sender: Sender<Found>,
    found: Receiver<Found>,
    deadline: Deadline,
    /// Addresses that nobody tries yet, the first last.
    waiting: Vec<SocketAddr>,
    resolving: usize,
    trying: usize,
    tried: Vec<String>,
}

impl Attempt {
    fn run(mut self) -> Result<Descriptor, OpenError> {
        let mut next_at = Instant::now();
        loop {
            if (self.trying == 0 || Instant::now() >= next_at)
                && let Some(address) = self.waiting.pop()
            {
                self.begin(address)?;
                next_at = Instant::now() + HEAD_START;
            }
            if self.trying + self.resolving == 0 && self.waiting.is_empty() {
                return Err(OpenError::Unreachable { tried: self.tried });
            }
            let Some(left) = self.deadline.left() else {
                if self.tried.is_empty() {
                    return Err(OpenError::Timeout { after: self.deadline.after });
                }
                return Err(OpenError::Unreachable { tried: self.tried });
            };
            let until_next = next_at.saturating_duration_since(Instant::now());
            let limit = if self.waiting.is_empty() { left } else { left.min(until_next) };
            match self.found.recv_timeout(limit.min(Duration::from_secs(3600))) {
                Ok(Found::Stream(stream)) => return Ok(stream),
                Ok(Found::Addresses(mut found)) => {
                    self.resolving -= 1;
                    found.reverse();
                    found.append(&mut self.waiting);
                    found.drain(..found.len().saturating_sub(ADDRESSES_MAX));
                    self.waiting = found;
                }
                Ok(Found::Unresolved(why)) => {
                    self.resolving -= 1;
                    self.tried.push(why);
                }
                Ok(Found::Unanswered(why)) => {
                    self.trying -= 1;
                    self.tried.push(why);
                }
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
            }
        }
    }

    fn begin(&mut self, address: SocketAddr) -> Result<(), OpenError> {
        let (sender, deadline) = (self.sender.clone(), self.deadline);
        self.trying += 1;
        begin("corewire-connect", move || {
            let stream = connect_to(address, deadline);
            let told = stream
                .map_or_else(|why| Found::Unanswered(format!("{address}: {why}")), Found::Stream);
            let _ = sender.send(told);
        })
    }
}

fn begin(name: &str, job: impl FnOnce() + Send + 'static) -> Result<(), OpenError> {
    let thread = thread::Builder::new().name(name.into()).stack_size(STACK_BYTES);
    let begun = thread.spawn(|| {
        block_all_signals();
        job();
    });
    let failed = |error: std::io::Error| OsError {
        what: "start a thread that connects".into(),
        errno: error.raw_os_error().unwrap_or_default(),
    };
    begun.map(drop).map_err(|error| failed(error).into())
}

/// A connection to this address.
fn connect_to(address: SocketAddr, deadline: Deadline) -> Result<Descriptor, OpenError> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let stream = Descriptor::make(|| socket_with(family, SocketType::STREAM, flags, None));
    let stream = stream.map_err(|errno| OpenError::of("make a socket", errno))?;
    make_room(&stream)?;
    match connect(&stream, &address) {
        Ok(()) => return Ok(stream),
        Err(Errno::INPROGRESS | Errno::INTR) => {}
        Err(errno) => return Err(OpenError::of("connect", errno)),
    }
    waiting::wait(stream.as_fd(), PollFlags::OUT, deadline)?;
    match sockopt::socket_error(&stream) {
        Ok(Ok(())) => Ok(stream),
        Ok(Err(errno)) | Err(errno) => Err(OpenError::of("connect", errno)),
    }
}
