//! Clients that do what no client does. The service must serve the others, and end the links of these.
//!
//! Every test here keeps P182.

#![expect(
    clippy::cast_possible_truncation,
    reason = "packets are short, and random numbers have no meaning"
)]

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use crate::common::*;
use corewire::{ConnectServiceError, Connection, Domain, Endpoint, Peer, Selector};
use corewire_bind::{Bind, Binding, Capabilities, Driver, Serve, ServerCore};
use rustix::event::{PollFd, PollFlags, poll};

/// What a client sends first, as `exchange.rs` says.
fn description() -> Vec<u8> {
    let mut bytes = b"crwbind\x01".to_vec();
    bytes.extend(77_u64.to_le_bytes());
    bytes.extend(0_u16.to_le_bytes());
    bytes.push(4);
    bytes.extend(b"echo");
    bytes
}

/// A packet, as `packet.rs` says.
fn packet(tag: u64, word: u64, bytes: u32, kind: u8, part: &[u8]) -> Vec<u8> {
    let mut packet = tag.to_le_bytes().to_vec();
    packet.extend(word.to_le_bytes());
    packet.extend(bytes.to_le_bytes());
    packet.extend([kind, 0, 0, 0]);
    packet.extend(part);
    packet
}

fn message(tag: u64, part: &[u8]) -> Vec<u8> {
    packet(tag, 0, part.len() as u32, 1, part)
}

const BIND: u64 = 1;
const ACCEPT: u64 = 2;
const REFUSE: u64 = 3;
const USE_SOCKET: u64 = 4;
const HELLO: u64 = 5;
const WELCOME: u64 = 6;

struct Raw(Connection);

impl Raw {
    fn connect(domain: &Domain) -> Self {
        loop {
            match domain.connect("echo", Duration::from_secs(5)) {
                // The service has not accepted the ones before.
                Err(ConnectServiceError::Full { .. }) => std::thread::yield_now(),
                connected => return Self(connected.unwrap()),
            }
        }
    }

    fn send(&self, packet: &[u8]) -> bool {
        loop {
            match rustix::net::send(&self.0, packet, rustix::net::SendFlags::NOSIGNAL) {
                Ok(_) => return true,
                Err(rustix::io::Errno::AGAIN) => self.wait(PollFlags::OUT),
                Err(_) => return false,
            }
        }
    }

    fn try_send(&self, packet: &[u8]) -> Result<usize, rustix::io::Errno> {
        rustix::net::send(&self.0, packet, rustix::net::SendFlags::NOSIGNAL)
    }

    fn wait(&self, flags: PollFlags) {
        poll(&mut [PollFd::new(&self.0, flags)], None).unwrap();
    }

    /// The next packet; nothing at the end.
    fn receive(&self) -> Vec<u8> {
        let mut buffer = vec![0; 100_000];
        loop {
            match rustix::io::read(&self.0, &mut buffer) {
                Ok(length) => {
                    buffer.truncate(length);
                    return buffer;
                }
                Err(rustix::io::Errno::AGAIN) => self.wait(PollFlags::IN),
                // The service closed without having read everything. What it had sent comes behind.
                Err(rustix::io::Errno::CONNRESET) => {}
                Err(_) => return Vec::new(),
            }
        }
    }

    /// The reason with which the service ends the connection.
    fn reason(&self) -> String {
        loop {
            let packet = self.receive();
            if packet.is_empty() {
                return "closed without a reason".into();
            }
            if packet[0] == REFUSE as u8 && packet[4..6] == [0, 0] {
                return String::from_utf8(packet[24..].to_vec()).unwrap();
            }
        }
    }

    /// Binds. Returns the number, the secret and the endpoint's name.
    fn bind(&self) -> (u16, u64, String) {
        self.send(&message(BIND, &description()));
        let answer = self.receive();
        let tag = u64::from_le_bytes(*answer.first_chunk().unwrap());
        assert_eq!(tag & 0xffff_ffff_ffff, ACCEPT);
        let body = &answer[24..];
        let secret = u64::from_le_bytes(*body[11..].first_chunk().unwrap());
        let name = &body[20..][..usize::from(body[19])];
        ((tag >> 48) as u16, secret, String::from_utf8(name.to_vec()).unwrap())
    }
}

fn is_served(binding: &mut Binding) {
    let reply = binding.call(ECHO, b"still here", &Capabilities::new(), 64, None);
    assert_eq!(*reply.unwrap(), *b"still here");
}

fn with_others(mut test: impl FnMut(&Domain)) {
    let place = Place::new();
    let running = Running::start(&place.domain);
    let mut others = [bind(&place.domain, Driver::Ump), bind(&place.domain, Driver::Sock)];
    test(&place.domain);
    others.iter_mut().for_each(is_served);
    is_served(&mut bind(&place.domain, Driver::Ump));
    drop(others);
    running.end();
}

#[test]
fn packets_that_are_none_end_the_link_with_the_reason() {
    with_others(|domain| {
        let ends = |packet: &[u8], reason: &str| {
            for is_bound in [false, true] {
                let raw = Raw::connect(domain);
                if is_bound {
                    let (number, ..) = raw.bind();
                    raw.send(&message(u64::from(number) << 48 | USE_SOCKET, &[]));
                }
                raw.send(packet);
                assert_eq!(raw.reason(), reason);
            }
        };
        ends(b"x", "it sent a packet of 1 bytes: at least 24 are necessary");
        ends(&packet(0, 0, 0, 9, &[]), "it sent a packet of kind 9, which does not exist");
        ends(&packet(0, 0, 0, 2, b"x"), "it sent a packet out of order");
        ends(&packet(0, 0, 0, 4, &[]), "it sent a packet out of order");
        let longest = 24 + 253 * (2 + 64 + 100) + (32 << 10);
        let long = packet(0, 0, 0, 1, &vec![0; longest]);
        ends(&long, &format!("it sent a packet of more than {longest} bytes"));
        ends(
            &packet(0, 0, 3, 1, b"abcd"),
            "it sent a packet with 4 bytes of a message that lacks 3",
        );
        let too_long = packet(0, 0, u32::MAX, 1, b"x");
        let raw = Raw::connect(domain);
        raw.send(&too_long);
        assert_eq!(
            raw.reason(),
            "it sent a message of 4294967295 bytes: at most 4194304 are possible"
        );
        let mut stated = packet(0, 0, 0, 1, &[]);
        stated[21] = 3;
        ends(&stated, "it sent a packet states 3 capabilities and has 0");
    });
}

#[test]
fn a_stranger_is_refused_with_the_reason() {
    with_others(|domain| {
        let refused = |description: &[u8]| {
            let raw = Raw::connect(domain);
            raw.send(&message(BIND, description));
            raw.reason()
        };
        assert_eq!(refused(b"hello"), "not an exchange of this version of corewire");
        assert_eq!(refused(&description()[..20]), "the exchange is incomplete");
        let mut other = description();
        *other.last_mut().unwrap() = b'x';
        assert_eq!(refused(&other), "the service speaks echo, not echx");
    });
}

#[test]
fn a_client_that_never_reads_is_cut_off_and_others_are_served() {
    with_others(|domain| {
        let raw = Raw::connect(domain);
        let (number, ..) = raw.bind();
        let binding = u64::from(number) << 48;
        raw.send(&message(binding | USE_SOCKET, &[]));
        let mut other = bind(domain, Driver::Ump);
        let mut token = 0_u64;
        let until = Instant::now() + Duration::from_secs(60);
        // Each request asks for its 16 KiB back.
        loop {
            token += 1;
            let request = message(binding | u64::from(ECHO) << 32 | token, &[7; 16 << 10]);
            match raw.try_send(&request) {
                Ok(_) | Err(rustix::io::Errno::AGAIN) => {}
                Err(_) => break,
            }
            if token.is_multiple_of(64) {
                is_served(&mut other);
            }
            assert!(Instant::now() < until, "never cut off");
        }
        assert_eq!(
            raw.reason(),
            "it has more replies under way than it may, and does not read them"
        );
    });
}

/// A client in a ring that does as it likes.
fn ring(domain: &Domain) -> (Raw, Endpoint, Peer, u64) {
    let raw = Raw::connect(domain);
    let (number, secret, name) = raw.bind();
    let mut endpoint = domain.endpoint(&format!("hostile-{number}-{secret}")).create().unwrap();
    let peer = endpoint.peer(&name).unwrap();
    let binding = u64::from(number) << 48;
    endpoint.send(peer, binding | HELLO, &secret.to_le_bytes()).unwrap();
    endpoint.receive(Selector::tag(binding | WELCOME).from(peer)).unwrap();
    (raw, endpoint, peer, binding)
}

#[test]
fn a_ring_that_is_never_read_is_cut_off_and_others_are_served() {
    with_others(|domain| {
        let (_raw, mut endpoint, peer, binding) = ring(domain);
        let mut other = bind(domain, Driver::Ump);
        // Unread replies fill the ring, then the endpoint's budget, then what the service keeps.
        for token in 1..=4_000_u64 {
            endpoint.send(peer, binding | u64::from(ECHO) << 32 | token, &[7; 16 << 10]).unwrap();
            if token.is_multiple_of(256) {
                is_served(&mut other);
            }
        }
        let mut last = Vec::new();
        let until = Instant::now() + Duration::from_secs(60);
        while last.is_empty() {
            let message = endpoint.receive(Selector::any().from(peer)).unwrap();
            if message.tag() == binding | REFUSE {
                last = message.to_vec();
            }
            assert!(Instant::now() < until, "never cut off");
        }
        let reason = "it has more replies under way than it may, and does not read them";
        assert_eq!(String::from_utf8(last).unwrap(), reason);
    });
}

#[test]
fn messages_of_other_bindings_and_wrong_secrets_are_ignored() {
    with_others(|domain| {
        let raw = Raw::connect(domain);
        let (number, secret, name) = raw.bind();
        let mut endpoint = domain.endpoint("hostile").create().unwrap();
        let peer = endpoint.peer(&name).unwrap();
        let binding = u64::from(number) << 48;
        endpoint.send(peer, binding | HELLO, &(secret ^ 1).to_le_bytes()).unwrap();
        endpoint.send(peer, binding | HELLO, b"short").unwrap();
        for number in [0, 1, 2, u64::from(number), 99, 0xffff] {
            endpoint.send(peer, number << 48 | u64::from(ECHO) << 32 | 5, b"x").unwrap();
            endpoint.send(peer, number << 48 | 12345, b"x").unwrap();
        }
        // The right one still binds.
        endpoint.send(peer, binding | HELLO, &secret.to_le_bytes()).unwrap();
        let first = endpoint.receive(Selector::any().from(peer)).unwrap();
        assert_eq!(first.tag(), binding | WELCOME);
    });
}

#[test]
fn capabilities_that_are_announced_and_do_not_come_end_the_binding() {
    with_others(|domain| {
        let (_raw, mut endpoint, peer, binding) = ring(domain);
        let envelope = corewire::Envelope::tagged(binding | u64::from(RIGHTS) << 32 | 1);
        endpoint.send(peer, envelope.with_immediate(0x100), b"x").unwrap();
        let end = endpoint.receive(Selector::any().from(peer)).unwrap();
        assert_eq!(end.tag(), binding | REFUSE);
        assert_eq!(end, *b"it announced capabilities and sent none");
    });
}

#[test]
fn random_packets_harm_nobody() {
    // A linear congruential generator: the same packets each time.
    let mut state = 12345_u64;
    let mut random = move || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state >> 33
    };
    let mut random_bytes = move |count: u64| (0..count).map(|_| random() as u8).collect::<Vec<_>>();
    with_others(|domain| {
        let mut take = || u64::from_le_bytes(*random_bytes(8).first_chunk().unwrap());
        for _ in 0..300 {
            let raw = Raw::connect(domain);
            if take() % 2 == 0 {
                let (number, ..) = raw.bind();
                if take() % 2 == 0 {
                    raw.send(&message(u64::from(number) << 48 | USE_SOCKET, &[]));
                }
            }
            for _ in 0..take() % 20 {
                let part = take().to_le_bytes().repeat((take() % 40) as usize);
                let bytes = if take() % 2 == 0 { part.len() as u32 } else { take() as u32 };
                let tag = take() & 0x0003_000b_0000_000f;
                if raw.try_send(&packet(tag, take() % 8, bytes, (take() % 5) as u8, &part)).is_err()
                {
                    break;
                }
            }
            let _ = raw.0.as_fd();
        }
    });
}

#[test]
fn the_socket_beside_a_ring_is_closed_with_it() {
    with_others(|domain| {
        let (raw, endpoint, ..) = ring(domain);
        drop(endpoint);
        // The client keeps its own end open.
        assert_eq!(raw.receive(), b"");
    });
}

#[test]
fn what_a_guest_has_left_counts_until_the_service_has_handled_it() {
    let place = Place::new();
    let mut core = ServerCore::new(&place.domain, "echo", Serve::default(), &DESCRIPTION).unwrap();
    // The service is busy meanwhile: what the guests send waits for it.
    for _ in 0..4096 {
        Raw::connect(&place.domain).send(&message(BIND, &description()));
    }
    let full = "the service has as many connections as it can have";
    assert_eq!(Raw::connect(&place.domain).reason(), full);
    // Then it handles them, and others are served.
    let mut echo = Echo::default();
    while core.serve_one(Some(Duration::ZERO), &mut echo).unwrap() {}
    assert!(echo.bound.is_empty(), "none has said how it speaks");
    let domain = place.domain.clone();
    let client = std::thread::spawn(move || is_served(&mut bind(&domain, Driver::Sock)));
    while !client.is_finished() {
        core.serve_one(Some(Duration::from_millis(1)), &mut echo).unwrap();
    }
    client.join().unwrap();
}

#[test]
fn a_guest_that_is_accepted_and_never_says_how_it_speaks_is_closed() {
    let place = Place::new();
    let serve = Serve::default().clients(1).bind_within(Duration::from_millis(50));
    let mut core = ServerCore::new(&place.domain, "echo", serve, &DESCRIPTION).unwrap();
    let domain = place.domain.clone();
    let client = std::thread::spawn(move || {
        // On a busy machine it may be late before it is accepted.
        let said = loop {
            let raw = Raw::connect(&domain);
            raw.send(&message(BIND, &description()));
            if !raw.receive().is_empty() {
                break raw.reason();
            }
        };
        // There is room for another one then.
        let bind = Bind::default().drivers([Driver::Sock]);
        let mut next = loop {
            if let Ok(mut next) = bind.connect(&domain, "echo", &DESCRIPTION)
                && next.call(ECHO, b"x", &Capabilities::new(), 8, None).is_ok()
            {
                break next;
            }
        };
        is_served(&mut next);
        said
    });
    let mut echo = Echo::default();
    let until = Instant::now() + Duration::from_secs(60);
    while !client.is_finished() {
        assert!(Instant::now() < until, "never closed");
        core.serve_one(Some(Duration::from_millis(1)), &mut echo).unwrap();
    }
    assert_eq!(client.join().unwrap(), "it did not bind in time");
}

#[test]
fn a_guest_that_asks_more_than_it_reads_is_cut_off() {
    with_others(|domain| {
        for is_bound in [false, true] {
            let raw = Raw::connect(domain);
            if is_bound {
                let (number, ..) = raw.bind();
                raw.send(&message(u64::from(number) << 48 | USE_SOCKET, &[]));
            }
            // 9 asks for the interface, 10 for the clients.
            while raw.send(&message(9, &[])) && raw.send(&message(10, &[])) {}
            let reason = "it has more replies under way than it may, and does not read them";
            assert_eq!(raw.reason(), reason);
        }
    });
}

// Keeps P219.
#[test]
fn a_message_that_is_longer_than_any_of_the_interface_ends_the_binding() {
    with_others(|domain| {
        let (_raw, mut endpoint, peer, binding) = ring(domain);
        let length = BYTES_MAX as usize + 1;
        let tag = binding | u64::from(ECHO) << 32 | 1;
        let sent = endpoint.isend(peer, tag, vec![7; length]).unwrap();
        let end = endpoint.receive(Selector::any().from(peer)).unwrap();
        assert_eq!(end.tag(), binding | REFUSE);
        let reason =
            format!("it sent a message of {length} bytes: at most {BYTES_MAX} are possible");
        assert_eq!(end, *reason.as_bytes());
        endpoint.cancel(sent).ok();
    });
}
