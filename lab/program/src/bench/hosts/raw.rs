//! Bare sockets: what endpoints of two hosts are compared with.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;

use rustix::event::epoll;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with, sockopt};

use super::super::prelude::*;

/// Bytes of a message with its header, as an endpoint sends it.
pub(super) const FRAMED: usize = 24;
/// Messages that are written at once.
pub(super) const TOGETHER: usize = 512;

/// What the kernel is asked to keep for a receiver: as much as endpoints ask for.
const RECEIVE_BYTES: usize = 1 << 20;

fn socket_of(at: SocketAddr) -> Result<OwnedFd, Failure> {
    let family = if at.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    // Before it is connected: the window that is told then depends on it.
    sockopt::set_socket_recv_buffer_size(&socket, RECEIVE_BYTES)?;
    Ok(socket)
}

/// One end of a bare connection.
pub(super) struct Raw {
    stream: TcpStream,
    set: OwnedFd,
    buffer: Vec<u8>,
}

impl Raw {
    pub(super) fn dial(at: SocketAddr) -> Result<Self, Failure> {
        Self::of(Self::connect(at)?)
    }

    /// A socket alone.
    pub(super) fn connect(at: SocketAddr) -> Result<TcpStream, Failure> {
        let socket = socket_of(at)?;
        rustix::net::connect(&socket, &at)?;
        Ok(socket.into())
    }

    /// Where one can be dialled.
    pub(super) fn listen(at: IpAddr) -> Result<TcpListener, Failure> {
        let at = SocketAddr::new(at, 0);
        let socket = socket_of(at)?;
        rustix::net::bind(&socket, &at)?;
        rustix::net::listen(&socket, 1)?;
        Ok(socket.into())
    }

    pub(super) fn accept(listener: &TcpListener) -> Result<Self, Failure> {
        Self::of(listener.accept()?.0)
    }

    fn of(stream: TcpStream) -> Result<Self, Failure> {
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        let set = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let flags = epoll::EventFlags::IN | epoll::EventFlags::OUT | epoll::EventFlags::ET;
        epoll::add(&set, &stream, epoll::EventData::new_u64(0), flags)?;
        Ok(Self { stream, set, buffer: vec![0; 1 << 20] })
    }

    fn wait(&self) -> Result<(), Failure> {
        let mut events = [const { std::mem::MaybeUninit::uninit() }; 1];
        epoll::wait(&self.set, &mut events, None)?;
        Ok(())
    }

    /// Lets the kernel wait, for streams: what a program without other connections does.
    pub(super) fn block(&mut self, blocks: bool) -> Result<(), Failure> {
        Ok(self.stream.set_nonblocking(!blocks)?)
    }

    /// Sends all of `bytes`. Waits for room by `epoll`, or by asking again if it polls.
    pub(super) fn send(&mut self, mut bytes: &[u8], polls: bool) -> Result<(), Failure> {
        while !bytes.is_empty() {
            match self.stream.write(bytes) {
                Ok(count) => bytes = &bytes[count..],
                Err(error) if error.kind() == ErrorKind::WouldBlock && polls => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.wait()?,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Fills the first `bytes` bytes of its buffer.
    pub(super) fn receive(&mut self, bytes: usize, polls: bool) -> Result<(), Failure> {
        let mut filled = 0;
        while filled < bytes {
            match self.stream.read(&mut self.buffer[filled..bytes]) {
                Ok(0) => return Err(Failure::other("the other side has ended")),
                Ok(count) => filled += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock && polls => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.wait()?,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Receives `count` framed messages, and adds up what they hold.
    pub(super) fn receive_many(&mut self, count: usize) -> Result<u64, Failure> {
        let (mut sum, mut filled, mut left) = (0_u64, 0, count * FRAMED);
        while left > 0 {
            match self.stream.read(&mut self.buffer[filled..64 << 10]) {
                Ok(0) => return Err(Failure::other("the other side has ended")),
                Ok(got) => {
                    (filled, left) = (filled + got, left - got);
                    let whole = filled / FRAMED * FRAMED;
                    for message in self.buffer[..whole].chunks_exact(FRAMED) {
                        let number = message[FRAMED - 8..].try_into().unwrap_or_default();
                        sum = sum.wrapping_add(u64::from_le_bytes(number));
                    }
                    self.buffer.copy_within(whole..filled, 0);
                    filled -= whole;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.wait()?,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(sum)
    }
}
