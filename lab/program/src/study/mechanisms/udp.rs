//! UDP sockets over the loopback interface (ZIMP, II-A2): one socket for each receiver. A message
//! that is longer than a datagram is sent in fragments. A datagram that finds the receiver's buffer
//! full is lost; if it is a fragment, the whole message is lost.
//!
//! A fragment begins with the number of the message in its channel and the number of the fragment in
//! the message, 8 bytes each, little-endian. Messages that fit into a datagram have no header.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, UdpSocket};

use rustix::net::sockopt;

use super::{Kind, Mechanism, Receives, Seat, Sends, Shape, Site};
use crate::study::failure::{Doing, Failure};

/// Maximum payload of a datagram.
const DATAGRAM_BYTES_MAX: usize = 65_507;
const HEADER_BYTES: usize = 16;
/// Maximum number of message bytes in a fragment.
const PART_BYTES: usize = DATAGRAM_BYTES_MAX - HEADER_BYTES;
/// Size of a receiver's buffer, if the kernel allows it.
const BUFFER_BYTES: usize = 4 << 20;

pub(crate) struct Udp;

/// The sending end: one socket connected to each receiver's socket.
pub(crate) struct Sender {
    sockets: Vec<UdpSocket>,
    message: Vec<u8>,
    datagram: Vec<u8>,
    sent: u64,
}

pub(crate) struct Receiver {
    socket: UdpSocket,
    message: Vec<u8>,
    datagram: Vec<u8>,
}

impl Mechanism for Udp {
    type Sender = Sender;
    type Receiver = Receiver;
    const NAME: &'static str = "UDP sockets";
    const KIND: Kind = Kind::Kernel;
    const HAS_MANY_SENDERS: bool = true;
    const IS_LOSSY: bool = true;

    fn settings() -> String {
        format!(
            "loopback, a receive buffer of {} MiB where the kernel allows it; fragments of \
             {DATAGRAM_BYTES_MAX} bytes; nothing is sent again",
            BUFFER_BYTES >> 20
        )
    }

    fn limit(shape: Shape) -> Option<String> {
        let is_shared = shape.senders > 1 && shape.bytes > DATAGRAM_BYTES_MAX;
        is_shared.then(|| "fragments of several senders would be mixed".to_owned())
    }

    fn sender(site: &Site, _: u32, seat: Seat<'_>) -> Result<Sender, Failure> {
        let connect = |receiver| {
            let port = seat.await_port(site, receiver);
            let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
            socket.connect((Ipv4Addr::LOCALHOST, port))?;
            Ok(socket)
        };
        let sockets = site.receivers().map(connect).collect::<std::io::Result<_>>();
        Ok(Sender {
            sockets: sockets.doing("connect by UDP")?,
            message: vec![0; site.shape.bytes],
            datagram: Vec::with_capacity(DATAGRAM_BYTES_MAX),
            sent: 0,
        })
    }

    fn receiver(site: &Site, index: u32, seat: Seat<'_>) -> Result<Receiver, Failure> {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).doing("bind a UDP socket")?;
        if sockopt::set_socket_recv_buffer_size_force(&socket, BUFFER_BYTES).is_err() {
            let _ = sockopt::set_socket_recv_buffer_size(&socket, BUFFER_BYTES);
        }
        let port = socket.local_addr().doing("ask for a port")?.port();
        seat.tell_port(site, index, port);
        let message = vec![0; site.shape.bytes];
        Ok(Receiver { socket, message, datagram: vec![0; DATAGRAM_BYTES_MAX] })
    }
}

impl Sends for Sender {
    fn send(&mut self, write: impl FnOnce(&mut [u8])) -> Result<(), Failure> {
        let Self { sockets, message, datagram, sent } = self;
        write(message);
        if message.len() <= DATAGRAM_BYTES_MAX {
            for socket in sockets {
                send_or_lose(socket, message)?;
            }
            return Ok(());
        }
        for (part, bytes) in message.chunks(PART_BYTES).enumerate() {
            datagram.clear();
            datagram.extend(sent.to_le_bytes());
            datagram.extend((part as u64).to_le_bytes());
            datagram.extend(bytes);
            for socket in sockets.iter() {
                send_or_lose(socket, datagram)?;
            }
        }
        *sent += 1;
        Ok(())
    }
}

/// Sends a datagram. Its receiver may already have received the last mark and closed its socket.
fn send_or_lose(socket: &UdpSocket, datagram: &[u8]) -> Result<(), Failure> {
    match socket.send(datagram) {
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => Ok(()),
        result => result.map(drop).doing("send by UDP"),
    }
}

impl Receives for Receiver {
    fn receive<R>(&mut self, read: impl FnOnce(&[u8]) -> R) -> Result<R, Failure> {
        if self.message.len() <= DATAGRAM_BYTES_MAX {
            let bytes = self.socket.recv(&mut self.message).doing("receive by UDP")?;
            return Ok(read(&self.message[..bytes]));
        }
        self.gather()?;
        Ok(read(&self.message))
    }
}

impl Receiver {
    /// Receives until one message is complete: its fragments arrive in order or not at all.
    fn gather(&mut self) -> Result<(), Failure> {
        let Self { socket, message, datagram } = self;
        let (mut number, mut due) = (0, 0);
        loop {
            let bytes = socket.recv(datagram).doing("receive by UDP")?;
            let (header, rest) =
                datagram[..bytes].split_at_checked(HEADER_BYTES).unwrap_or_default();
            let [found, part] = [0, 8].map(|at| {
                header
                    .get(at..)
                    .and_then(|it| it.first_chunk())
                    .map_or(0, |it| u64::from_le_bytes(*it))
            });
            if part == 0 {
                (number, due) = (found, 0);
            } else if (found, part) != (number, due) {
                // An earlier fragment is lost, so no fragment fits before the next message begins.
                due = u64::MAX;
                continue;
            }
            let at = usize::try_from(part).unwrap_or(usize::MAX).saturating_mul(PART_BYTES);
            let Some(target) = message.get_mut(at..at.saturating_add(rest.len())) else { continue };
            target.copy_from_slice(rest);
            due += 1;
            if at + rest.len() == message.len() {
                return Ok(());
            }
        }
    }
}
