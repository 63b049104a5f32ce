//! The behaviour that users of listeners rely on, as one user.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::thread;
use std::time::Duration;

use crate::scratch::Scratch;
use corewire::{
    ConnectError, ConnectServiceError, Connection, CreateError, Domain, EndpointError, JoinError,
    ListenError, Listener, NameKind, NameUse, Observed, Reason,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

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

#[test]
fn each_end_learns_the_other_ends_process_and_user() {
    let scratch = Scratch::new("listener-credentials");
    let listener = scratch.domain().listener("service").unwrap();
    assert_eq!(listener.name(), "service");
    let (client, server) = two_ends(scratch.domain(), &listener);
    let user = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    for end in [&client, &server] {
        assert_eq!((end.uid(), end.gid(), end.pid()), (user.0, user.1, std::process::id()));
    }
}

#[test]
fn a_connection_is_a_socket_that_does_not_block_and_ends_with_exec() {
    let scratch = Scratch::new("listener-flags");
    let listener = scratch.domain().listener("service").unwrap();
    let (client, server) = two_ends(scratch.domain(), &listener);
    for end in [client, server] {
        let end = OwnedFd::from(end);
        assert!(rustix::io::fcntl_getfd(&end).unwrap().contains(rustix::io::FdFlags::CLOEXEC));
        assert!(rustix::fs::fcntl_getfl(&end).unwrap().contains(rustix::fs::OFlags::NONBLOCK));
        let kind = rustix::net::sockopt::socket_type(&end).unwrap();
        assert_eq!(kind, rustix::net::SocketType::SEQPACKET);
        // A program that makes it blocking gets no time limit that it has not set.
        let limit = rustix::net::sockopt::Timeout::Send;
        assert_eq!(rustix::net::sockopt::socket_timeout(&end, limit), Ok(None));
    }
}

#[test]
fn a_descriptor_that_was_taken_out_stays_open_without_the_library() {
    let scratch = Scratch::new("listener-owned");
    let listener = scratch.domain().listener("service").unwrap();
    let (client, server) = two_ends(scratch.domain(), &listener);
    let (client, server) = (OwnedFd::from(client), OwnedFd::from(server));
    drop(listener);
    drop(scratch);
    rustix::io::write(&client, b"still").unwrap();
    assert_eq!(read(&server), b"still");
    drop(client);
    assert_eq!(read(&server), b"");
}

#[test]
fn names_that_no_listener_has_are_told_apart() {
    let scratch = Scratch::new("listener-not_found");
    let domain = scratch.domain();
    let channel = domain.sender("channel").create().unwrap();
    let endpoint = domain.endpoint("endpoint").create().unwrap();
    let error = domain.connect("nobody", LONG).unwrap_err();
    assert!(matches!(error, ConnectServiceError::NotFound(_)), "{error}");
    assert_eq!(error.to_string(), "listener nobody does not exist");
    for name in ["channel", "endpoint"] {
        let error = domain.connect(name, LONG).unwrap_err();
        assert!(matches!(error, ConnectServiceError::NotAListener(_)), "{error}");
        // Waiting would not help.
        let error = domain.connect_when_created(name, None).unwrap_err();
        assert!(matches!(error, ConnectServiceError::NotAListener(_)), "{error}");
    }
    let error = domain.connect("", LONG).unwrap_err();
    assert!(matches!(error, ConnectServiceError::Name(_)), "{error}");
    let short = Duration::from_millis(20);
    let error = domain.connect_when_created("nobody", Some(short)).unwrap_err();
    assert_eq!(error.to_string(), "listener nobody was not created within 20ms");
    drop((channel, endpoint));
}

#[test]
fn a_listeners_name_is_no_channel_and_no_endpoint() {
    let scratch = Scratch::new("listener-other_kinds");
    let domain = scratch.domain();
    let listener = domain.listener("service").unwrap();
    let error = domain.receiver("service").join().unwrap_err();
    assert!(matches!(error, JoinError::NotAChannel(_)), "{error}");
    let error = domain.observe("service").unwrap_err();
    assert!(matches!(error, JoinError::NotAChannel(_)), "{error}");
    let error = domain.observe_endpoint("service").unwrap_err();
    assert!(matches!(error, JoinError::NotAnEndpoint(_)), "{error}");
    let error = domain.endpoint("e").create().unwrap().peer("service").unwrap_err();
    assert!(matches!(error, ConnectError::NotAnEndpoint(_)), "{error}");
    drop(listener);
}

#[test]
fn a_name_in_use_is_refused_with_what_has_it() {
    let scratch = Scratch::new("listener-in_use");
    let domain = scratch.domain();
    let channel = domain.sender("channel").create().unwrap();
    let shared = domain.sender("shared").open_shared(2).unwrap();
    let endpoint = domain.endpoint("endpoint").create().unwrap();
    let listener = domain.listener("listener").unwrap();
    let kinds = [
        ("channel", NameUse::Channel),
        ("shared", NameUse::SharedChannel),
        ("endpoint", NameUse::Endpoint),
        ("listener", NameUse::Listener),
    ];
    for (name, kind) in kinds {
        let error = domain.listener(name).unwrap_err();
        let ListenError::AlreadyExists(used) = error else { panic!("{error}") };
        assert_eq!((used.kind, used.pid), (kind, Some(std::process::id())));
    }
    let error = domain.listener("listener").unwrap_err().to_string();
    let pid = std::process::id();
    assert_eq!(error, format!("listener listener already exists: process {pid} has it"));
    let is_listener = |used: &corewire::NameInUse| used.kind == NameUse::Listener;
    let error = domain.sender("listener").create().unwrap_err();
    assert!(matches!(&error, CreateError::AlreadyExists(used) if is_listener(used)), "{error}");
    let error = domain.sender("listener").open_shared(2).unwrap_err();
    assert!(matches!(&error, CreateError::AlreadyExists(used) if is_listener(used)), "{error}");
    let error = domain.endpoint("listener").create().unwrap_err();
    assert!(matches!(&error, EndpointError::AlreadyExists(used) if is_listener(used)), "{error}");
    drop((channel, shared, endpoint, listener));
}

// Keeps P150.
#[test]
fn a_dropped_listener_frees_its_name_and_closes_what_it_has_not_accepted() {
    let scratch = Scratch::new("listener-dropped");
    let domain = scratch.domain();
    let listener = domain.listener("service").unwrap();
    let (accepted, server) = two_ends(domain, &listener);
    let waiting = domain.connect("service", LONG).unwrap();
    drop(listener);
    assert_eq!(read(&waiting), b"", "closed");
    let error = domain.connect("service", LONG).unwrap_err();
    assert!(matches!(error, ConnectServiceError::NotFound(_)), "{error}");
    let channel = domain.sender("service").create().unwrap();
    drop(channel);
    let listener = domain.listener("service").unwrap();
    // The connection that was accepted is not the listener's any more.
    rustix::io::write(&server, b"on").unwrap();
    assert_eq!(read(&accepted), b"on");
    drop(listener);
    let files: Vec<_> = std::fs::read_dir(&scratch.path).unwrap().collect();
    assert_eq!(files.len(), 1, "its socket: {files:?}");
}

// Keeps P150.
#[test]
fn connections_are_accepted_in_order_and_shown_by_the_descriptor() {
    let scratch = Scratch::new("listener-order");
    let domain = scratch.domain();
    let listener = domain.listener("service").unwrap();
    assert!(!is_readable(listener.readiness()));
    assert!(listener.try_accept().unwrap().is_none());
    assert!(listener.accept_timeout(Duration::from_millis(1)).unwrap().is_none());
    let clients: Vec<_> = (0..3u8)
        .map(|number| {
            let client = domain.connect("service", LONG).unwrap();
            // Kept until the connection is accepted.
            rustix::io::write(&client, &[number]).unwrap();
            client
        })
        .collect();
    for number in 0..3 {
        assert!(is_readable(listener.readiness()));
        let server = match number {
            0 => listener.accept().unwrap(),
            1 => listener.try_accept().unwrap().unwrap(),
            _ => listener.accept_timeout(LONG).unwrap().unwrap(),
        };
        assert_eq!(read(&server), [number]);
    }
    assert!(!is_readable(listener.readiness()));
    drop(clients);
}

#[test]
fn a_full_queue_refuses_until_a_connection_is_accepted() {
    let scratch = Scratch::new("listener-full");
    let domain = scratch.domain();
    let listener = domain.listener("service").unwrap();
    let clients: Vec<_> = (0..256).map(|_| domain.connect("service", LONG).unwrap()).collect();
    let error = domain.connect("service", LONG).unwrap_err();
    let full = Reason::ListenerFull { max: 256 };
    assert!(matches!(error, ConnectServiceError::Full { reason, .. } if reason == full), "{error}");
    let expected = "listener service: the listener has its maximum of 256 connections that it has \
                    not accepted yet";
    assert_eq!(error.to_string(), expected);
    // Others are not affected.
    let other = domain.listener("other").unwrap();
    drop(domain.connect("other", LONG).unwrap());
    let server = listener.accept().unwrap();
    let last = domain.connect("service", LONG).unwrap();
    drop((clients, other, server, last, listener));
}

// Keeps P150.
#[test]
fn whoever_waits_for_a_listener_is_connected_whenever_it_is_created() {
    let scratch = Scratch::new("listener-when_created");
    let domain = scratch.domain();
    for round in 0..200 {
        let name = format!("service-{round}");
        thread::scope(|scope| {
            let waiting = scope.spawn(|| domain.connect_when_created(&name, None).unwrap());
            // Sometimes before the other thread looks, sometimes after.
            (0..round % 20 * 50).for_each(|_| thread::yield_now());
            let listener = domain.listener(&name).unwrap();
            let server = listener.accept().unwrap();
            let client = waiting.join().unwrap();
            rustix::io::write(&server, name.as_bytes()).unwrap();
            assert_eq!(read(&client), name.as_bytes());
        });
    }
}

// Keeps P150.
#[test]
fn several_threads_accept_and_each_connection_goes_to_one_of_them() {
    let scratch = Scratch::new("listener-threads");
    let domain = scratch.domain();
    let listener = domain.listener("service").unwrap();
    let serve = || {
        for _ in 0..50 {
            let server = listener.accept().unwrap();
            rustix::io::write(&server, b"served").unwrap();
        }
    };
    thread::scope(|scope| {
        (0..3).for_each(|_| drop(scope.spawn(serve)));
        for _ in 0..150 {
            let client = domain.connect("service", LONG).unwrap();
            assert_eq!(read(&client), b"served");
        }
    });
    assert!(listener.try_accept().unwrap().is_none());
}

#[test]
fn listeners_are_listed_and_observed() {
    let scratch = Scratch::new("listener-observed");
    let domain = scratch.domain();
    let listeners = [domain.listener("b").unwrap(), domain.listener("a").unwrap()];
    let channel = domain.sender("c").create().unwrap();
    let names: Vec<_> = domain.listeners().unwrap().iter().map(ToString::to_string).collect();
    assert_eq!(names, ["a", "b"]);
    assert_eq!(domain.channels().unwrap().len(), 1);
    let seen = domain.observe_all(LONG).unwrap();
    assert_eq!(seen.len(), 3);
    for (sighting, name) in seen.iter().zip(["a", "b"]) {
        assert!(sighting.kind == NameKind::Listener && sighting.name == name);
        let Ok(Observed::Listener(view)) = &sighting.observed else { panic!("{sighting:?}") };
        assert_eq!((view.name.as_str(), view.pid), (name, std::process::id()));
    }
    assert_eq!(seen[2].kind, NameKind::Channel);
    drop((listeners, channel));
}

#[test]
fn a_listener_outlives_its_domains_value() {
    let mut scratch = Scratch::new("listener-outlives");
    let listener = scratch.domain().listener("service").unwrap();
    drop(scratch.domain.take());
    let domain = Domain::open_at(&scratch.path).unwrap();
    let (client, server) = two_ends(&domain, &listener);
    drop((client, server, listener));
    assert!(domain.listener("service").unwrap().try_accept().unwrap().is_none());
}
