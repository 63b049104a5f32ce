//! Services and clients at awkward moments: full, stopped half-way, silent, or gone while others wait.

#![expect(clippy::cast_possible_truncation, reason = "packets and names are short")]

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use crate::common::*;
use corewire::{Connection, Domain, Selector};
use corewire_bind::{
    Bind, Binding, CallError, Capabilities, ClientId, Dispatch, Driver, Identity, Incoming, Outbox,
    Refusal, Reply, Serve, ServerCore, Stopper,
};
use rustix::event::{PollFd, PollFlags, poll};

const ACCEPT: u64 = 2;
const REFUSE: u64 = 3;
const HELLO: u64 = 5;
const WELCOME: u64 = 6;

fn none() -> Capabilities<'static> {
    Capabilities::new()
}

/// A packet, as `packet.rs` says.
fn message(tag: u64, part: &[u8]) -> Vec<u8> {
    let mut packet = tag.to_le_bytes().to_vec();
    packet.extend(0_u64.to_le_bytes());
    packet.extend((part.len() as u32).to_le_bytes());
    packet.extend([1, 0, 0, 0]);
    packet.extend(part);
    packet
}

/// What a service says when it accepts, as `server/binding.rs` says.
fn acceptance(bytes_max: u32, endpoint: &str) -> Vec<u8> {
    let mut bytes = 1_u16.to_le_bytes().to_vec();
    bytes.push(1);
    bytes.extend(0_u32.to_le_bytes());
    bytes.extend(bytes_max.to_le_bytes());
    bytes.extend(7_u64.to_le_bytes());
    bytes.push(endpoint.len() as u8);
    bytes.extend(endpoint.as_bytes());
    message(1 << 48 | ACCEPT, &bytes)
}

fn wait(connection: &Connection, flags: PollFlags) {
    poll(&mut [PollFd::new(connection, flags)], None).unwrap();
}

fn receive(connection: &Connection) -> Vec<u8> {
    wait(connection, PollFlags::IN);
    let mut buffer = vec![0; 100_000];
    let length = rustix::io::read(connection, &mut buffer).unwrap();
    buffer.truncate(length);
    buffer
}

fn send(connection: &Connection, packet: &[u8]) {
    rustix::net::send(connection, packet, rustix::net::SendFlags::NOSIGNAL).unwrap();
}

struct Client<'a>(&'a mut Binding);

impl AsMut<Binding> for Client<'_> {
    fn as_mut(&mut self) -> &mut Binding {
        self.0
    }
}

/// A service in a ring that is not one.
fn fake(
    domain: &Domain,
    serve: impl FnOnce(&mut corewire::Endpoint, corewire::Peer) + Send + 'static,
) -> std::thread::JoinHandle<()> {
    let listener = domain.listener("echo").unwrap();
    let mut endpoint = domain.endpoint("echo.rings").create().unwrap();
    std::thread::spawn(move || {
        let connection = listener.accept().unwrap();
        receive(&connection);
        send(&connection, &acceptance(1 << 20, "echo.rings"));
        let hello = endpoint.receive(Selector::any()).unwrap();
        endpoint.send(hello.source(), 1 << 48 | WELCOME, &[]).unwrap();
        serve(&mut endpoint, hello.source());
    })
}

#[test]
fn a_time_limit_beyond_the_clock_is_none() {
    let place = Place::new();
    let running = Running::start(&place.domain);
    for driver in [Driver::Ump, Driver::Sock] {
        let bind = Bind::default().drivers([driver]).timeout(Duration::MAX);
        let binding = bind.connect(&place.domain, "echo", &DESCRIPTION).map(drop);
        assert!(binding.is_ok(), "{driver}: {binding:?}");
    }
    running.end();
}

#[test]
fn a_service_that_has_been_offered_a_ring_is_not_bound_by_its_socket() {
    let place = Place::new();
    let listener = place.domain.listener("echo").unwrap();
    let mut endpoint = place.domain.endpoint("echo.rings").create().unwrap();
    let domain = place.domain.clone();
    let client = std::thread::spawn(move || {
        let bind = Bind::default().drivers([Driver::Ump, Driver::Sock]);
        let bind = bind.timeout(Duration::from_millis(500));
        bind.connect(&domain, "echo", &DESCRIPTION).map(|binding| binding.driver())
    });
    let connection = listener.accept().unwrap();
    receive(&connection);
    send(&connection, &acceptance(1 << 20, "echo.rings"));
    // The service is slow: it takes the ring when the client has given up.
    let bound = client.join().unwrap();
    let hello = endpoint.receive(Selector::any()).unwrap();
    assert_eq!(hello.tag(), 1 << 48 | HELLO);
    assert!(bound.is_err(), "{bound:?}");
}

#[test]
fn a_deadline_holds_while_a_long_reply_has_not_arrived_completely() {
    let place = Place::new();
    let (end, ended) = mpsc::channel::<()>();
    let service = fake(&place.domain, move |endpoint, peer| {
        let request = endpoint.receive(Selector::any()).unwrap();
        // Its beginning goes, and the service stops.
        endpoint.try_send(peer, request.tag(), &vec![7; 1 << 20]).unwrap();
        let _ = ended.recv();
    });
    let mut binding = bind(&place.domain, Driver::Ump);
    let (told, tells) = mpsc::channel();
    std::thread::spawn(move || {
        let after = Duration::from_millis(50);
        let reply = binding.call(ECHO, b"x", &none(), BYTES_MAX, Some(after));
        let _ = told.send(reply.map(drop));
    });
    let reply = tells.recv_timeout(Duration::from_secs(10));
    drop(end);
    service.join().unwrap();
    // On a busy machine all of it may have gone before.
    assert!(matches!(reply, Ok(Err(CallError::Timeout { .. }) | Ok(()))), "{reply:?}");
}

/// A client that has sent the beginning of a message, and stops.
fn half_way(domain: &Domain) -> (Connection, corewire::Endpoint) {
    let raw = domain.connect("echo", Duration::from_secs(5)).unwrap();
    let mut description = b"crwbind\x01".to_vec();
    description.extend(77_u64.to_le_bytes());
    description.extend(0_u16.to_le_bytes());
    description.push(4);
    description.extend(b"echo");
    send(&raw, &message(1, &description));
    let answer = receive(&raw);
    let binding = u64::from_le_bytes(*answer.first_chunk().unwrap()) >> 48 << 48;
    let mut endpoint = domain.endpoint("slow").create().unwrap();
    let peer = endpoint.peer("echo.rings").unwrap();
    endpoint.send(peer, binding | HELLO, &answer[24 + 11..][..8]).unwrap();
    endpoint.receive(Selector::tag(binding | WELCOME).from(peer)).unwrap();
    // Its beginning goes, and the client stops.
    endpoint.try_send(peer, binding | u64::from(ECHO) << 32 | 1, &vec![7; 1 << 20]).unwrap();
    (raw, endpoint)
}

#[test]
fn a_client_that_stops_half_way_in_a_message_holds_up_nobody() {
    let place = Place::new();
    let running = Running::start(&place.domain);
    let (_raw, endpoint) = half_way(&place.domain);
    let mut other = bind(&place.domain, Driver::Ump);
    let after = Some(Duration::from_secs(10));
    for _ in 0..100 {
        let reply = other.call(ECHO, b"served", &none(), 64, after);
        assert_eq!(reply.map(|reply| reply.to_vec()), Ok(b"served".to_vec()));
    }
    let reply = other.call(ECHO, &[1; 4096], &none(), 4096, after);
    assert_eq!(reply.map(|reply| reply.len()), Ok(4096));
    drop(endpoint);
    running.end();
}

#[test]
fn a_refusal_arrives_also_where_messages_are_short() {
    let place = Place::new();
    let listener = place.domain.listener("echo").unwrap();
    let client = std::thread::spawn({
        let domain = place.domain.clone();
        move || bind(&domain, Driver::Sock).event(None).map(drop)
    });
    let connection = listener.accept().unwrap();
    receive(&connection);
    send(&connection, &acceptance(8, "echo.rings"));
    receive(&connection);
    let reason = "it asked for too much";
    send(&connection, &message(REFUSE, reason.as_bytes()));
    let unbound = CallError::Unbound { name: "echo".into(), reason: reason.into() };
    assert_eq!(client.join().unwrap(), Err(unbound));
}

#[test]
fn a_send_that_fails_gives_the_reason_that_the_service_left() {
    let place = Place::new();
    let listener = place.domain.listener("echo").unwrap();
    let client = std::thread::spawn({
        let domain = place.domain.clone();
        move || bind(&domain, Driver::Sock)
    });
    let connection = listener.accept().unwrap();
    receive(&connection);
    send(&connection, &acceptance(1 << 20, "echo.rings"));
    receive(&connection);
    let mut binding = client.join().unwrap();
    let pending = binding.start(ECHO, b"x", &none(), 8, |reply| reply.map(|reply| reply.to_vec()));
    let request = receive(&connection);
    let tag = u64::from_le_bytes(*request.first_chunk().unwrap());
    send(&connection, &message(tag, b"reply"));
    let reason = "it asked for too much";
    send(&connection, &message(REFUSE, reason.as_bytes()));
    drop(connection);
    let unbound = CallError::Unbound { name: "echo".into(), reason: reason.into() };
    assert_eq!(binding.send(NOTE, b"x", &none(), None), Err(unbound));
    assert_eq!(pending.unwrap().wait(&mut Client(&mut binding)), Ok(b"reply".to_vec()));
}

/// What a test waits for in vain if the code is wrong.
const SOON: Duration = Duration::from_secs(10);

/// Counts events, there and lost, until there were `count`.
fn count_events(mut binding: Binding, count: u64) -> mpsc::Receiver<(u64, u64)> {
    let (told, tells) = mpsc::channel();
    std::thread::spawn(move || {
        let (mut there, mut lost) = (0, 0);
        while there + lost < count {
            match binding.event(None) {
                Ok(_) => there += 1,
                Err(CallError::EventsLost { count }) => lost += count,
                Err(error) => panic!("{error}"),
            }
        }
        told.send((there, lost)).unwrap();
    });
    tells
}

#[test]
fn the_last_events_that_are_lost_are_reported_too() {
    for driver in [Driver::Ump, Driver::Sock] {
        let place = Place::new();
        let running = Running::start(&place.domain);
        let patient = Bind::default().drivers([driver]).event_bytes(usize::MAX);
        let mut binding = patient.connect(&place.domain, "echo", &DESCRIPTION).unwrap();
        let mut other = bind(&place.domain, driver);
        binding.call(BURST, &50_000_u64.to_le_bytes(), &none(), 0, None).unwrap();
        // This event comes behind all others.
        other.call(BURST, &1_u64.to_le_bytes(), &none(), 0, None).unwrap();
        other.event(None).unwrap();
        // The service has nothing else to do meanwhile.
        let counted = count_events(binding, 50_000).recv_timeout(SOON);
        let (_, lost) = counted.unwrap_or_else(|_| panic!("{driver}: not told"));
        assert!(lost > 0, "{driver}");
        drop(other);
        running.end();
    }
}

/// A service that gives each note to the test.
struct Noting<F>(F);

impl<F: FnMut(ClientId, &[u8])> Dispatch for Noting<F> {
    fn bound(&mut self, client: ClientId, _identity: Identity) {
        self.0(client, b"bound");
    }

    fn gone(&mut self, client: ClientId) {
        self.0(client, b"gone");
    }

    fn not_taken(&mut self, _client: ClientId, _ordinal: u16) {}

    fn request(
        &mut self,
        _ordinal: u16,
        request: Incoming<'_>,
        reply: Reply<'_>,
    ) -> Result<(), Refusal> {
        reply.send(request.bytes());
        Ok(())
    }

    fn message(
        &mut self,
        _ordinal: u16,
        message: Incoming<'_>,
        client: ClientId,
    ) -> Result<(), Refusal> {
        self.0(client, message.bytes());
        Ok(())
    }
}

/// Starts such a service. Its thread ends when it is stopped.
fn noting(
    domain: &Domain,
    note: impl FnMut(ClientId, &[u8]) + Send + 'static,
) -> (Stopper, Outbox) {
    let mut core = ServerCore::new(domain, "echo", Serve::default(), &DESCRIPTION).unwrap();
    let handles = (core.stopper(), core.outbox());
    std::thread::spawn(move || {
        let mut noting = Noting(note);
        while core.serve_one(None, &mut noting).unwrap() {}
    });
    handles
}

/// A service that tells the test its notes.
fn telling(domain: &Domain) -> (Stopper, mpsc::Receiver<Vec<u8>>) {
    let (told, tells) = mpsc::channel();
    let (stopper, _outbox) = noting(domain, move |_, note| {
        let _ = told.send(note.to_vec());
    });
    (stopper, tells)
}

/// A service that is in the first note until the test says so, and then counts them.
fn busy(domain: &Domain) -> (Stopper, Outbox, mpsc::Sender<()>, mpsc::Receiver<u64>) {
    let ((go, goes), (told, tells)) = (mpsc::channel::<()>(), mpsc::channel());
    let mut count = 0;
    let (stopper, outbox) = noting(domain, move |_, note| {
        if note != b"bound" && note != b"gone" {
            count += 1;
            if count == 1 {
                let _ = goes.recv();
            }
            let _ = told.send(count);
        }
    });
    (stopper, outbox, go, tells)
}

/// Waits until a thread of this process sleeps, or has ended.
fn await_sleep(thread: rustix::thread::Pid) {
    let path = format!("/proc/self/task/{}/stat", thread.as_raw_nonzero());
    let sleeps = || {
        // One that has ended sleeps for good.
        let Ok(stat) = std::fs::read_to_string(&path) else { return true };
        stat.rsplit(") ").next().unwrap().starts_with('S')
    };
    while !sleeps() {
        std::thread::yield_now();
    }
}

#[test]
fn a_message_that_is_kept_is_sent_by_a_call_that_waits() {
    for driver in [Driver::Ump, Driver::Sock] {
        let place = Place::new();
        let (stopper, _outbox, go, tells) = busy(&place.domain);
        let mut binding = bind(&place.domain, driver);
        let mut count = 0;
        while binding.try_send(NOTE, &[7; 4096], &none()).is_ok() {
            count += 1;
        }
        let (here, there) = mpsc::channel();
        let waits = std::thread::spawn(move || {
            here.send(rustix::thread::gettid()).unwrap();
            binding.event(None).map(drop)
        });
        await_sleep(there.recv().unwrap());
        go.send(()).unwrap();
        for expected in 1..=count {
            assert_eq!(tells.recv_timeout(SOON), Ok(expected), "{driver}: of {count}");
        }
        stopper.stop();
        assert_eq!(waits.join().unwrap(), Err(CallError::PeerLeft { name: "echo".into() }));
    }
}

#[test]
fn a_program_that_waits_learns_that_the_next_message_may_go() {
    for driver in [Driver::Ump, Driver::Sock] {
        let place = Place::new();
        let (stopper, _outbox, go, _tells) = busy(&place.domain);
        let mut binding = bind(&place.domain, driver);
        let told = Arc::new(AtomicBool::new(true));
        while told.swap(false, Relaxed) {
            let told = Arc::clone(&told);
            let then = move |_| told.store(true, Relaxed);
            binding.send_then(NOTE, &[7; 4096], &none(), then).unwrap();
        }
        let (here, there) = mpsc::channel();
        let waits = std::thread::spawn(move || {
            here.send(rustix::thread::gettid()).unwrap();
            binding.wait(None)
        });
        await_sleep(there.recv().unwrap());
        go.send(()).unwrap();
        let until = Instant::now() + SOON;
        while !told.load(Relaxed) {
            assert!(Instant::now() < until, "{driver}");
            std::thread::yield_now();
        }
        assert_eq!(waits.join().unwrap(), Ok(true), "{driver}");
        stopper.stop();
    }
}

#[test]
fn a_client_that_is_dropped_is_unbound_even_if_its_descriptor_lives_on() {
    for driver in [Driver::Ump, Driver::Sock] {
        let place = Place::new();
        let (stopper, tells) = telling(&place.domain);
        let mut binding = bind(&place.domain, driver);
        let readiness = binding.readiness().unwrap();
        assert_eq!(tells.recv_timeout(SOON), Ok(b"bound".to_vec()));
        binding.send(NOTE, b"last", &none(), None).unwrap();
        drop(binding);
        assert_eq!(tells.recv_timeout(SOON), Ok(b"last".to_vec()));
        assert_eq!(tells.recv_timeout(SOON), Ok(b"gone".to_vec()), "{driver}");
        drop(readiness);
        stopper.stop();
    }
}

#[test]
fn an_event_of_any_length_arrives_if_nothing_else_waits() {
    for driver in [Driver::Ump, Driver::Sock] {
        let place = Place::new();
        let (stopper, outbox) = noting(&place.domain, |_, _| {});
        let mut binding = bind(&place.domain, driver);
        binding.call(ECHO, b"bound", &none(), 8, None).unwrap();
        for _ in 0..3 {
            let event = vec![7; 1 << 20];
            outbox.send(None, EVENT, 3, vec![event], &none()).unwrap();
            let arrived = binding.event(Some(SOON)).map(|(_, event)| event.len());
            assert_eq!(arrived, Ok(1 << 20), "{driver}");
        }
        stopper.stop();
    }
}

#[test]
fn descriptors_for_a_service_that_has_ended_tell_so() {
    for driver in [Driver::Ump, Driver::Sock] {
        let place = Place::new();
        let running = Running::start(&place.domain);
        let mut binding = bind(&place.domain, driver);
        running.end();
        let file = std::fs::File::open("/dev/null").unwrap();
        let mut rights = none();
        rights.descriptor(file.as_fd());
        let called = binding.call(RIGHTS, b"", &rights, 8, None).map(drop);
        assert_eq!(called, Err(CallError::PeerLeft { name: "echo".into() }), "{driver}");
    }
}

// Keeps P218.
#[test]
fn a_socket_that_a_living_service_closes_is_no_death() {
    let place = Place::new();
    let listener = place.domain.listener("echo").unwrap();
    let domain = place.domain.clone();
    let client = std::thread::spawn(move || {
        let mut binding = bind(&domain, Driver::Sock);
        binding.call(ECHO, b"", &none(), 8, None).map(drop)
    });
    let connection = listener.accept().unwrap();
    receive(&connection);
    send(&connection, &acceptance(1 << 20, ""));
    // How the client speaks, and its request.
    receive(&connection);
    receive(&connection);
    drop(connection);
    assert_eq!(client.join().unwrap(), Err(CallError::PeerLeft { name: "echo".into() }));
}

#[test]
fn a_send_without_time_is_tried_once() {
    for driver in [Driver::Ump, Driver::Sock] {
        let place = Place::new();
        let (stopper, tells) = telling(&place.domain);
        let mut binding = bind(&place.domain, driver);
        assert_eq!(tells.recv_timeout(SOON), Ok(b"bound".to_vec()));
        binding.send(NOTE, b"now", &none(), Some(Duration::ZERO)).unwrap();
        assert_eq!(tells.recv_timeout(SOON), Ok(b"now".to_vec()), "{driver}");
        stopper.stop();
    }
}

#[test]
fn messages_that_are_refused_do_not_hold_up_a_service_whose_time_is_over() {
    let place = Place::new();
    let mut core = ServerCore::new(&place.domain, "echo", Serve::default(), &DESCRIPTION).unwrap();
    let is_over = Arc::new(AtomicBool::new(false));
    let stranger = std::thread::spawn({
        let (domain, is_over) = (place.domain.clone(), Arc::clone(&is_over));
        move || {
            let mut endpoint = domain.endpoint("stranger").create().unwrap();
            let peer = endpoint.peer("echo.rings").unwrap();
            let mut sent = 0_u64;
            // Messages of no binding, for as long as the service looks.
            while !is_over.load(Relaxed) {
                sent += u64::from(endpoint.try_send(peer, 99 << 48 | 1 << 32, b"x").is_ok());
            }
            sent
        }
    });
    let mut noting = Noting(|_, _: &[u8]| panic!("nothing is for the program"));
    while core.refused_count() < 10_000 {
        core.serve_one(Some(Duration::from_millis(1)), &mut noting).unwrap();
    }
    is_over.store(true, Relaxed);
    assert!(stranger.join().unwrap() >= 10_000);
}

#[test]
fn a_service_sleeps_beside_a_message_that_has_come_half_way() {
    let place = Place::new();
    let mut core = ServerCore::new(&place.domain, "echo", Serve::default(), &DESCRIPTION).unwrap();
    let (stopper, (here, there)) = (core.stopper(), mpsc::channel());
    let service = std::thread::spawn(move || {
        here.send(rustix::thread::gettid()).unwrap();
        while core.serve_one(None, &mut Echo::default()).unwrap() {}
        // Nor does it come within a limit.
        core.serve_one(Some(Duration::from_millis(1)), &mut Echo::default()).unwrap()
    });
    let half = half_way(&place.domain);
    // It is served behind what has come of that message.
    let mut other = bind(&place.domain, Driver::Ump);
    other.call(ECHO, b"x", &none(), 8, None).unwrap();
    await_sleep(there.recv().unwrap());
    stopper.stop();
    assert!(!service.join().unwrap());
    drop((other, half));
}

#[test]
fn events_whose_descriptors_nobody_reads_are_left_out_and_counted() {
    const EVENTS: u64 = 2000;
    let place = Place::new();
    let (stopper, outbox) = noting(&place.domain, |_, _| {});
    let patient = Bind::default().drivers([Driver::Sock]).event_bytes(usize::MAX);
    let mut binding = patient.connect(&place.domain, "echo", &DESCRIPTION).unwrap();
    binding.call(ECHO, b"bound", &none(), 8, None).unwrap();
    let file = std::fs::File::open("/dev/null").unwrap();
    let mut rights = none();
    rights.descriptor(file.as_fd());
    for _ in 0..EVENTS {
        outbox.send(None, EVENT, 3, vec![vec![7; 8]], &rights).unwrap();
    }
    // This call is mail behind the events: they have been handled when it returns.
    let mut other = bind(&place.domain, Driver::Sock);
    other.call(ECHO, b"x", &none(), 8, None).unwrap();
    drop(other);
    let waiting = std::fs::read_dir("/proc/self/fd").unwrap().filter(|entry| {
        let target = entry.as_ref().map(|entry| std::fs::read_link(entry.path()));
        matches!(target, Ok(Ok(target)) if target.ends_with("dev/null"))
    });
    let waiting = waiting.count();
    assert!(waiting < 200, "{waiting} descriptors wait for one client");
    let (there, lost) = count_events(binding, EVENTS).recv_timeout(SOON).unwrap();
    assert!(there > 0 && lost > 0, "{there} and {lost}");
    stopper.stop();
}
