//! TCP sockets over the loopback interface (ZIMP, II-A2): one connection to each receiver.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};

use super::{Kind, Mechanism, Receives, Seat, Sends, Site};
use crate::study::failure::{Doing, Failure};

pub(crate) struct Tcp;

/// The sending end: one connection to each receiver.
pub(crate) struct Sender {
    streams: Vec<TcpStream>,
    message: Vec<u8>,
}

pub(crate) struct Receiver {
    stream: TcpStream,
    message: Vec<u8>,
}

impl Mechanism for Tcp {
    type Sender = Sender;
    type Receiver = Receiver;
    const NAME: &'static str = "TCP sockets";
    const KIND: Kind = Kind::Kernel;
    const HAS_MANY_SENDERS: bool = false;

    fn settings() -> String {
        "loopback, TCP_NODELAY, the kernel's own buffer sizes; one read a message where it is all there"
            .to_owned()
    }

    fn sender(site: &Site, _: u32, seat: Seat<'_>) -> Result<Sender, Failure> {
        let connect = |receiver| {
            let port = seat.await_port(site, receiver);
            let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
            stream.set_nodelay(true)?;
            Ok(stream)
        };
        let streams = site.receivers().map(connect).collect::<std::io::Result<_>>();
        Ok(Sender { streams: streams.doing("connect by TCP")?, message: vec![0; site.shape.bytes] })
    }

    fn receiver(site: &Site, index: u32, seat: Seat<'_>) -> Result<Receiver, Failure> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).doing("listen for TCP")?;
        let port = listener.local_addr().doing("ask for a port")?.port();
        seat.tell_port(site, index, port);
        let (stream, _) = listener.accept().doing("accept by TCP")?;
        Ok(Receiver { stream, message: vec![0; site.shape.bytes] })
    }
}

impl Sends for Sender {
    fn send(&mut self, write: impl FnOnce(&mut [u8])) -> Result<(), Failure> {
        write(&mut self.message);
        for stream in &mut self.streams {
            stream.write_all(&self.message).doing("send by TCP")?;
        }
        Ok(())
    }
}

impl Receives for Receiver {
    fn receive<R>(&mut self, read: impl FnOnce(&[u8]) -> R) -> Result<R, Failure> {
        self.stream.read_exact(&mut self.message).doing("receive by TCP")?;
        Ok(read(&self.message))
    }
}
