//! The behaviour that users of listeners rely on, as one user.

mod scratch;

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::thread;
use std::time::Duration;

use corewire::{
    AcceptError, ConnectError, ConnectServiceError, Connection, CreateError, Domain, EndpointError,
    JoinError, ListenError, Listener, NameUse, Observed, Reason,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use scratch::Scratch;

/// Longer than anything takes.
const LONG: Duration = Duration::from_secs(60);

/// Both ends of a connection: that of the client first.
fn two_ends(domain: &Domain, listener: &Listener) -> (Connection, Connection) {
    let client = domain.connect(listener.name(), LONG).unwrap();
    (client, listener.accept().unwrap())
}

fn is_readable(descriptor: impl AsFd) -> bool {
    let mut polled = [PollFd::new(&descriptor, PollFlags::IN)];
    poll(&mut polled, Some(&Timespec::default())).unwrap() == 1
}

/// Waits for a packet on a non-blocking socket.
fn read(connection: impl AsFd) -> Vec<u8> {
    poll(&mut [PollFd::new(&connection, PollFlags::IN)], None).unwrap();
    let mut bytes = [0; 64];
    let count = rustix::io::read(&connection, &mut bytes).unwrap();
    bytes[..count].to_vec()
}

#[test]
fn bytes_and_descriptors_go_both_ways() {
    let scratch = Scratch::new("listener-bytes_and_descriptors");
    let listener = scratch.domain().listener("service").unwrap();
    let (client, server) = two_ends(scratch.domain(), &listener);
    let ends = [(client.as_fd(), server.as_fd()), (server.as_fd(), client.as_fd())];
    for (from, to) in ends {
        assert_eq!(rustix::io::read(to, &mut [0; 8]), Err(Errno::AGAIN));
        rustix::io::write(from, b"one").unwrap();
        rustix::io::write(from, b"two").unwrap();
        assert_eq!(read(to), b"one");
        assert_eq!(read(to), b"two");

        let (reader, writer) = rustix::pipe::pipe().unwrap();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let sent = [writer.as_fd()];
        assert!(control.push(SendAncillaryMessage::ScmRights(&sent)));
        sendmsg(from, &[IoSlice::new(b"pipe")], &mut control, SendFlags::NOSIGNAL).unwrap();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut bytes = [0; 8];
        let mut into = [IoSliceMut::new(&mut bytes)];
        recvmsg(to, &mut into, &mut control, RecvFlags::CMSG_CLOEXEC).unwrap();
        let rights = control.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut rights) => rights.next(),
            _ => None,
        });
        rustix::io::write(rights.unwrap(), b"through").unwrap();
        assert_eq!(read(&reader), b"through");
    }
}
