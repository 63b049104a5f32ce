//! Unix datagram sockets (ZIMP, II-A1): one socket for each receiver, and one system call for
//! each message and receiver on either side.

use std::os::unix::net::UnixDatagram;

use rustix::net::sockopt;

use super::{Kind, Mechanism, Receives, Seat, Sends, Shape, Site};
use crate::study::failure::{Doing, Failure};

pub(crate) struct UnixDatagrams;

/// The sending end: one socket connected to each receiver's socket.
pub(crate) struct Sender {
    sockets: Vec<UnixDatagram>,
    message: Vec<u8>,
}

pub(crate) struct Receiver {
    socket: UnixDatagram,
    message: Vec<u8>,
}

impl Mechanism for UnixDatagrams {
    type Sender = Sender;
    type Receiver = Receiver;
    const NAME: &'static str = "Unix datagram sockets";
    const KIND: Kind = Kind::Kernel;
    const HAS_MANY_SENDERS: bool = true;

    fn settings() -> String {
        "blocking; the send buffer as large as a message, where the kernel allows it".to_owned()
    }

    fn limit(shape: Shape) -> Option<String> {
        let probe = || {
            let (one, _other) = UnixDatagram::pair()?;
            widen(&one, shape.bytes);
            one.set_nonblocking(true)?;
            one.send(&vec![0; shape.bytes])
        };
        let error = probe().err()?;
        Some(format!("the kernel takes no datagram of {} bytes: {error}", shape.bytes))
    }

    fn sender(site: &Site, _: u32, seat: Seat<'_>) -> Result<Sender, Failure> {
        let connect = |receiver| {
            // The port only says that the receiver's socket exists.
            seat.await_port(site, receiver);
            let socket = UnixDatagram::unbound()?;
            widen(&socket, site.shape.bytes);
            socket.connect(path(site, receiver))?;
            Ok(socket)
        };
        let sockets = site.receivers().map(connect).collect::<std::io::Result<_>>();
        Ok(Sender {
            sockets: sockets.doing("connect a Unix socket")?,
            message: vec![0; site.shape.bytes],
        })
    }

    fn receiver(site: &Site, index: u32, seat: Seat<'_>) -> Result<Receiver, Failure> {
        let socket = UnixDatagram::bind(path(site, index)).doing("bind a Unix socket")?;
        seat.tell_port(site, index, 1);
        Ok(Receiver { socket, message: vec![0; site.shape.bytes] })
    }
}

fn path(site: &Site, receiver: u32) -> std::path::PathBuf {
    site.directory.join(format!("{}-{receiver}.socket", site.number))
}

/// Makes room for two messages of `bytes` bytes. A process that may not exceed the machine's limit gets
/// as much as the limit allows.
fn widen(socket: &UnixDatagram, bytes: usize) {
    let wanted = 2 * bytes + (64 << 10);
    if sockopt::socket_send_buffer_size(socket).is_ok_and(|given| given >= wanted) {
        return;
    }
    if sockopt::set_socket_send_buffer_size_force(socket, wanted).is_err() {
        let _ = sockopt::set_socket_send_buffer_size(socket, wanted);
    }
}

impl Sends for Sender {
    fn send(&mut self, write: impl FnOnce(&mut [u8])) -> Result<(), Failure> {
        write(&mut self.message);
        for socket in &self.sockets {
            socket.send(&self.message).doing("send a datagram")?;
        }
        Ok(())
    }
}

impl Receives for Receiver {
    fn receive<R>(&mut self, read: impl FnOnce(&[u8]) -> R) -> Result<R, Failure> {
        let bytes = self.socket.recv(&mut self.message).doing("receive a datagram")?;
        Ok(read(&self.message[..bytes]))
    }
}
