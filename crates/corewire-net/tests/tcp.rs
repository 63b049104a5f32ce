//! Engines over the kernel's TCP.

use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use corewire_endpoint::transport::Transport as _;
use corewire_endpoint::{
    Budget, Caller, Engine, Envelope, LossReason, MessageError, Options, Peer, PeerEvent, Seed,
    Selector,
};
use corewire_layout::name::ChannelName;
use corewire_layout::net::{Answer, CREDIT_BYTES_MIN, FrameKind, Header, Hello, Preface};
use corewire_layout::rendezvous::Offer;
use corewire_net::hosts::Hosts;
use corewire_net::link::{Head, Link};
use corewire_net::open::{Deadline, Numbers, Opened, Own, Target, answer, introduce, read_preface};
use corewire_net::tcp::{Set, Tcp};
use corewire_os::fork::Descriptor;

const LONG: Duration = Duration::from_secs(60);
const SLEEP_NS: u64 = 50_000_000;

fn name(text: &str) -> ChannelName {
    ChannelName::new(text).unwrap()
}

fn hosts(own: &str) -> Hosts {
    let text = format!(
        "own = {own:?}\n[hosts.a]\naddresses = [\"127.0.0.1:1\"]\n[hosts.b]\naddresses = [\"127.0.0.1:2\"]\n[[allow]]\nhosts = [\"*\"]\nendpoints = [\"*\"]\n"
    );
    Hosts::parse(Path::new("hosts.toml"), &text).unwrap()
}

fn own(endpoint: &str, incarnation: u128) -> Own {
    Own { name: name(endpoint), incarnation }
}

fn sockets() -> [TcpStream; 2] {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let dialled = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    [dialled, listener.accept().unwrap().0]
}

fn descriptor(stream: TcpStream) -> Descriptor {
    stream.set_nonblocking(true).unwrap();
    OwnedFd::from(stream).into()
}

fn tcp() -> Tcp {
    let bell = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).unwrap();
    Tcp::new(Arc::new(Set::new(&bell).unwrap()), 0)
}

/// Two engines that know each other, and each one's handle of the other.
fn ends(budget: usize) -> [(Engine<Tcp>, Peer); 2] {
    ends_of(sockets(), budget)
}

fn opened_of([dialled, accepted]: [TcpStream; 2]) -> [Opened; 2] {
    let deadline = Deadline::within(LONG);
    thread::scope(|scope| {
        let second = scope.spawn(move || {
            let stream = descriptor(accepted);
            let preface = read_preface(&stream, deadline).unwrap();
            answer(stream, &preface, &hosts("b"), &own("b", 2), deadline, |_| Ok(())).unwrap()
        });
        let target = Target::parse("b@b").unwrap().unwrap();
        let first = introduce(
            descriptor(dialled),
            &hosts("a"),
            &own("a", 1),
            Numbers::default(),
            &target,
            deadline,
        );
        [first.unwrap(), second.join().unwrap()]
    })
}

fn ends_of(sockets: [TcpStream; 2], budget: usize) -> [(Engine<Tcp>, Peer); 2] {
    opened_of(sockets).map(|opened| {
        let mut tcp = tcp();
        let row = tcp.add(opened, 1).unwrap();
        let mut engine = Engine::new(tcp, Budget::new(budget, 4), Seed(7));
        engine.handle_notices().unwrap();
        let peer = engine.peer_at(row).unwrap();
        (engine, peer)
    })
}

/// Lets both make progress until `done` gives something.
fn until<T>(
    ends: &mut [(Engine<Tcp>, Peer); 2],
    mut done: impl FnMut(&mut [(Engine<Tcp>, Peer); 2]) -> Option<T>,
) -> T {
    loop {
        if let Some(found) = done(ends) {
            return found;
        }
        let mut is_busy = false;
        for (engine, _) in &mut *ends {
            is_busy |= engine.progress(None).unwrap();
        }
        if !is_busy {
            // Whichever has something comes first, or the other next.
            ends[0].0.transport_mut().sleep(SLEEP_NS / 50, &[]);
            ends[1].0.transport_mut().sleep(SLEEP_NS / 50, &[]);
        }
    }
}

fn message(number: u64, bytes: usize) -> Vec<u8> {
    let byte = |at: u64| (number.wrapping_mul(31) ^ at ^ at >> 8).to_le_bytes()[0];
    (0..bytes as u64).map(byte).collect()
}

#[test]
fn messages_of_all_lengths_arrive_in_order_and_large_ones_once_a_receive_asks_for_them() {
    let mut ends = ends(1 << 20);
    let lengths = [0, 1, 8, 100, 5000, 64 << 10, (64 << 10) + 1, 300_000, 3 << 20];
    let to = ends[0].1;
    let sends = lengths.iter().enumerate().map(|(number, &bytes)| {
        let memory = message(number as u64, bytes).into();
        ends[0].0.start_send(to, Envelope::tagged(5), memory, Options::default()).unwrap()
    });
    let sends = sends.collect::<Vec<_>>();
    for (number, &bytes) in lengths.iter().enumerate() {
        let from = Selector::tag(5).from(ends[1].1);
        let memory = vec![0; bytes].into();
        let receive = ends[1].0.start_receive(from, memory, Options::default()).unwrap();
        let end = until(&mut ends, |ends| ends[1].0.take_completion(receive).unwrap());
        assert_eq!(end.result.unwrap().bytes, bytes as u64);
        assert!(*end.memory.into_vec() == message(number as u64, bytes), "{bytes} bytes");
    }
    for send in sends {
        let end = until(&mut ends, |ends| ends[0].0.take_completion(send).unwrap());
        assert!(end.result.is_ok());
    }
}

#[test]
fn both_sides_may_send_more_than_any_buffer_holds_at_the_same_time() {
    for (count, bytes) in [(200, 40_000), (10_000, 8)] {
        both_send(count, bytes);
    }
}

fn both_send(count: u64, bytes: usize) {
    let mut ends = ends(64 << 20);
    let mut sends = Vec::new();
    for number in 0..count {
        for end in &mut ends {
            let (peer, memory) = (end.1, message(number, bytes).into());
            let sent = end.0.start_send(peer, Envelope::tagged(number), memory, Options::default());
            sends.push(sent.unwrap());
        }
    }
    for number in 0..count {
        for side in 0..2 {
            let memory = vec![0; bytes].into();
            let from = Selector::tag(number);
            let receive = ends[side].0.start_receive(from, memory, Options::default()).unwrap();
            let end = until(&mut ends, |ends| ends[side].0.take_completion(receive).unwrap());
            assert!(*end.memory.into_vec() == message(number, bytes), "{number}");
        }
    }
}

// Keeps P259.
#[test]
fn a_side_that_closes_has_left_and_one_that_vanishes_is_lost_with_what_is_known_of_it() {
    for closes in [true, false] {
        let sockets = sockets();
        let of_second = sockets[1].try_clone().unwrap();
        let mut ends = ends_of(sockets, 1 << 20);
        ends[0].0.watch_peers();
        while ends[0].0.next_peer_event(&Selector::any()).is_some() {}
        // Three go there, of which two are received before one comes back.
        let to = ends[0].1;
        for _ in 0..2 {
            assert!(ends[0].0.try_inject(to, &Envelope::tagged(1), b"there"));
        }
        for _ in 0..2 {
            let receive =
                ends[1].0.start_receive(Selector::any(), vec![0; 5].into(), Options::default());
            let receive = receive.unwrap();
            until(&mut ends, |ends| ends[1].0.take_completion(receive).unwrap());
        }
        let back = ends[1].1;
        assert!(ends[1].0.try_inject(back, &Envelope::tagged(2), b"back"));
        until(&mut ends, |ends| {
            let found = ends[0].0.progress(None).unwrap();
            found.then_some(())
        });
        assert!(ends[0].0.try_inject(to, &Envelope::tagged(1), b"never"));
        let [(mut first, _), (second, _)] = ends;
        if !closes {
            // Without a word, as if its process were killed.
            of_second.shutdown(Shutdown::Both).unwrap();
        }
        drop(second);
        let why = loop {
            first.progress(None).unwrap();
            if let Some(PeerEvent::Gone { why, .. }) = first.next_peer_event(&Selector::tag(9)) {
                break why;
            }
            first.transport_mut().sleep(SLEEP_NS, &[]);
        };
        match why {
            MessageError::PeerLeft { name } if closes => assert_eq!(name.as_str(), "b@b"),
            MessageError::PeerLost { name, reason, delivered } if !closes => {
                assert_eq!(name.as_str(), "b@b");
                assert!(matches!(reason, LossReason::Ended | LossReason::Reset), "{reason}");
                assert_eq!(delivered, 2);
            }
            other => panic!("{other:?}"),
        }
        // What had arrived is received all the same.
        let mut bytes = [0; 4];
        let mut target = &mut bytes[..];
        let mut caller = Caller::new(Selector::tag(2), &mut target);
        first.begin_receive(&mut caller).unwrap();
        assert_eq!(first.end_of(&caller).unwrap().unwrap().bytes, 4);
        assert_eq!(&bytes, b"back");
    }
}

/// An engine whose peer is this socket, which has said hello.
fn beside_a_socket() -> (Engine<Tcp>, TcpStream) {
    let (engine, theirs, _) = beside_a_link(256 << 10);
    (engine, theirs)
}

/// The same, and a link for what the socket sends and receives, which lets so many bytes be under way.
fn beside_a_link(credit_bytes: u32) -> (Engine<Tcp>, TcpStream, Link) {
    let [theirs, ours] = sockets();
    let other = Hello {
        name: name("b"),
        incarnation: 2,
        host: name("b"),
        credit_bytes,
        silence_ms: 10_000,
        connection: 1,
        last: 0,
    };
    let welcome = Answer::Welcome.to_bytes();
    std::io::Write::write_all(&mut &theirs, &[&welcome[..], &welcome, &other.to_bytes()].concat())
        .unwrap();
    let target = Target::parse("b@b").unwrap().unwrap();
    let opened = introduce(
        descriptor(ours),
        &hosts("a"),
        &own("a", 1),
        Numbers::default(),
        &target,
        Deadline::within(LONG),
    )
    .unwrap();
    // What the engine's side has said before its first frame.
    let mut said = Vec::new();
    let link = loop {
        let mut byte = [0];
        std::io::Read::read_exact(&mut &theirs, &mut byte).unwrap();
        said.extend(byte);
        let Some((_, preface)) = Preface::parse(&said).unwrap() else { continue };
        if let Some((hello, _)) = Hello::parse(&said[preface..]).unwrap() {
            break Link::new(&other, &hello);
        }
    };
    let mut tcp = tcp();
    tcp.add(opened, 1).unwrap();
    let mut engine = Engine::new(tcp, Budget::new(1 << 20, 4), Seed(7));
    engine.watch_peers();
    engine.handle_notices().unwrap();
    assert!(matches!(engine.next_peer_event(&Selector::any()), Some(PeerEvent::Came(_))));
    (engine, theirs, link)
}

/// A peer that pulls a message, and tells what it has taken only when that is due, gets all of it, however little it lets be under
/// way.
#[test]
fn a_large_message_comes_to_a_peer_that_allows_little_and_says_so_late() {
    for credit in [CREDIT_BYTES_MIN, 150_000, 212_992, 256 << 10] {
        let (mut engine, mut theirs, mut link) = beside_a_link(credit);
        theirs.set_nonblocking(true).unwrap();
        let (to, total) = (engine.peer_at(0).unwrap(), 5 << 20);
        let memory = message(3, total).into();
        let send = engine.start_send(to, Envelope::tagged(5), memory, Options::default()).unwrap();
        let (mut bytes, mut got) = (Vec::new(), Vec::new());
        let mut idle = 0;
        while got.len() < total {
            while engine.progress(None).unwrap() {}
            let (mut some, mut out) = ([0; 5000], Vec::new());
            match std::io::Read::read(&mut theirs, &mut some) {
                Ok(count) => {
                    bytes.extend(&some[..count]);
                    idle = 0;
                }
                Err(_) => {
                    idle += 1;
                    assert!(
                        idle < 1000,
                        "of {credit} under way nothing comes behind {}",
                        got.len()
                    );
                    engine.transport_mut().sleep(1_000_000, &[]);
                }
            }
            loop {
                let (used, head) = link.advance(&bytes).unwrap();
                bytes.drain(..used);
                let Head::Frame(header, taken) = head else { break };
                let left = usize::try_from(header.payload_bytes() - taken).unwrap();
                let count = left.min(bytes.len());
                if header.kind == FrameKind::Piece {
                    got.extend(bytes.drain(..count));
                } else if count < left {
                    break;
                } else {
                    assert_eq!(header.kind, FrameKind::Offer);
                    let offer: Vec<_> = bytes.drain(..count).collect();
                    let number = Offer::parse(&offer).unwrap().0.number;
                    let immediate = Some(total as u64);
                    let pull = Header { immediate, ..Header::new(FrameKind::Pull, number, 0) };
                    let (head, length) = link.begin(&pull).unwrap();
                    out.extend(&head[..length]);
                }
                link.pass(count as u64).unwrap();
                if count < left {
                    break;
                }
            }
            if link.is_credit_due(bytes.is_empty(), true)
                && let Some((told, length)) = link.credit()
            {
                out.extend(&told[..length]);
            }
            std::io::Write::write_all(&mut theirs, &out).unwrap();
        }
        assert!(got == message(3, total), "{credit}");
        assert!(
            engine.take_completion(send).unwrap().is_none(),
            "it was not told that all is there"
        );
    }
}

/// How the only peer of an engine has ended.
fn end_of(engine: &mut Engine<Tcp>) -> MessageError {
    loop {
        while engine.progress(None).unwrap() {}
        // Whatever was received, a receive for this tag does not ask for it.
        let none = Selector::tag(u64::MAX);
        match engine.next_peer_event(&none) {
            Some(PeerEvent::Gone { why, .. }) => return why,
            Some(PeerEvent::Came(_)) => {}
            None => engine.transport_mut().sleep(SLEEP_NS, &[]),
        }
    }
}

// Keeps P262.
#[test]
fn whatever_a_peer_sends_it_is_cut_off_at_worst() {
    let mut word = 0x9e37_79b9_7f4a_7c15_u64;
    let mut dice = move |limit: u64| {
        word ^= word << 13;
        word ^= word >> 7;
        word ^= word << 17;
        word % limit
    };
    let mut cut_off = 0;
    for _ in 0..400 {
        let (mut engine, theirs) = beside_a_socket();
        let mut bytes = Vec::new();
        for _ in 0..dice(20) {
            // Frames that are often possible, with bytes that say anything.
            let (kind, length) = (dice(16), dice(200));
            let flags = if dice(4) == 0 { dice(16) << 8 } else { 0 };
            bytes.extend((length << 16 | flags | kind).to_le_bytes());
            for _ in 0..2 + length / 8 {
                let bits = 1 + dice(63);
                bytes.extend(dice(1 << bits).to_le_bytes());
            }
        }
        // It may have been cut off already.
        let _ = std::io::Write::write_all(&mut &theirs, &bytes);
        drop(theirs);
        match end_of(&mut engine) {
            MessageError::PeerCutOff { .. } => cut_off += 1,
            MessageError::PeerLost { .. } | MessageError::PeerLeft { .. } => {}
            other => panic!("{other:?}"),
        }
    }
    assert!(cut_off > 100, "{cut_off}");
}

#[test]
fn a_message_may_arrive_byte_by_byte_and_nothing_waits_for_its_sender() {
    let (mut engine, theirs) = beside_a_socket();
    theirs.set_nodelay(true).unwrap();
    let header = Header { immediate: Some(3), ..Header::new(FrameKind::Tagged, 9, 5) };
    let (head, length) = header.to_bytes();
    let memory = vec![0; 5].into();
    let receive = engine.start_receive(Selector::tag(9), memory, Options::default()).unwrap();
    for (at, byte) in head[..length].iter().chain(b"hello").enumerate() {
        assert!(engine.take_completion(receive).unwrap().is_none(), "after {at} bytes");
        std::io::Write::write_all(&mut &theirs, &[*byte]).unwrap();
        engine.transport_mut().sleep(SLEEP_NS, &[]);
        engine.progress(None).unwrap();
    }
    let end = loop {
        if let Some(end) = engine.take_completion(receive).unwrap() {
            break end;
        }
        engine.transport_mut().sleep(SLEEP_NS, &[]);
        engine.progress(None).unwrap();
    };
    assert_eq!(end.result.unwrap().immediate, Some(3));
    assert_eq!(*end.memory.into_vec(), *b"hello");
}

#[test]
fn the_end_of_a_peer_is_found_behind_a_message_that_there_is_no_memory_for() {
    let (mut engine, theirs) = beside_a_socket();
    let header = Header { total: Some(1 << 60), ..Header::new(FrameKind::Tagged, 9, 4) };
    let (head, length) = header.to_bytes();
    std::io::Write::write_all(&mut &theirs, &[&head[..length], b"some"].concat()).unwrap();
    drop(theirs);
    let end = end_of(&mut engine);
    assert!(matches!(end, MessageError::PeerLost { delivered: 0, .. }), "{end:?}");
}

// Keeps P260.
#[test]
fn a_peer_that_is_stopped_loses_nothing_and_no_more_is_under_way_than_it_allows() {
    let count = 100_000_u64;
    let mut ends = ends(1 << 20);
    let to = ends[0].1;
    let mut sent = 0;
    while sent < count && ends[0].0.try_inject(to, &Envelope::tagged(1), &sent.to_le_bytes()) {
        sent += 1;
    }
    // Each takes its header and its bytes.
    assert!((1..=(256 << 10) / 24).contains(&sent), "{sent}");
    // The sender goes on with what it does, and the peer does nothing.
    let mut waiting = (sent..count).map(|number| {
        let memory = number.to_le_bytes().to_vec().into();
        ends[0].0.start_send(to, Envelope::tagged(1), memory, Options::default()).unwrap()
    });
    let last = waiting.by_ref().last().unwrap();
    for _ in 0..100 {
        ends[0].0.progress(None).unwrap();
        assert!(ends[0].0.take_completion(last).unwrap().is_none());
    }
    for number in 0..count {
        let memory = vec![0; 8].into();
        let receive = ends[1].0.start_receive(Selector::tag(1), memory, Options::default());
        let receive = receive.unwrap();
        let end = until(&mut ends, |ends| ends[1].0.take_completion(receive).unwrap());
        assert_eq!(*end.memory.into_vec(), number.to_le_bytes());
    }
    assert!(ends[0].0.take_completion(last).unwrap().is_some_and(|end| end.result.is_ok()));
}

/// Also one that waits for any peer, and has begun with a message whose sender is stopped.
#[test]
fn a_message_of_which_only_a_part_comes_holds_up_its_sender_alone() {
    let (mut engine, slow, _) = beside_a_link(256 << 10);
    let [opened, other] = opened_of(sockets());
    engine.transport_mut().add(opened, 2).unwrap();
    let mut other_tcp = tcp();
    other_tcp.add(other, 1).unwrap();
    let mut other = Engine::new(other_tcp, Budget::new(1 << 20, 4), Seed(7));
    other.handle_notices().unwrap();
    let to = other.peer_at(0).unwrap();
    let message = message(1, 100_000);
    let begun = Header { total: Some(100_000), ..Header::new(FrameKind::Tagged, 1, 60_000) };
    let (head, length) = begun.to_bytes();
    std::io::Write::write_all(&mut &slow, &[&head[..length], &message[..1000]].concat()).unwrap();
    let mut bytes = vec![0; 100_000];
    let mut target = &mut bytes[..];
    let mut caller = Caller::new(Selector::any(), &mut target);
    engine.begin_receive(&mut caller).unwrap();
    while engine.progress(Some(&mut caller)).unwrap() {}
    assert!(!engine.step_aside(&mut caller), "nothing else is there");
    assert!(other.try_inject(to, &Envelope::tagged(2), b"short"));
    engine.transport_mut().sleep(SLEEP_NS, &[]);
    while engine.progress(Some(&mut caller)).unwrap() {}
    assert!(engine.end_of(&caller).is_none());
    assert!(engine.step_aside(&mut caller));
    let status = engine.end_of(&caller).unwrap().unwrap();
    assert_eq!((status.tag, status.bytes), (2, 5));
    assert_eq!(&bytes[..5], b"short");
    // The rest of the first comes later.
    let rest = Header::new(FrameKind::Rest, 60_000, 40_000);
    let (head, length) = rest.to_bytes();
    let all = [&message[1000..60_000], &head[..length], &message[60_000..]].concat();
    std::io::Write::write_all(&mut &slow, &all).unwrap();
    let mut target = &mut bytes[..];
    let mut caller = Caller::new(Selector::any(), &mut target);
    engine.begin_receive(&mut caller).unwrap();
    let status = loop {
        if let Some(end) = engine.end_of(&caller) {
            break end.unwrap();
        }
        engine.transport_mut().sleep(SLEEP_NS, &[]);
        engine.progress(Some(&mut caller)).unwrap();
    };
    assert_eq!((status.tag, status.bytes), (1, 100_000));
    assert!(bytes == message);
}

#[test]
fn no_message_of_a_peer_passes_the_one_before_while_that_is_pulled() {
    let [(mut first, to), (mut second, _)] = ends(1 << 20);
    let (large, envelope) = (message(1, 2 << 20), Envelope::tagged(1));
    let send = first.start_send(to, envelope, large.clone().into(), Options::default()).unwrap();
    assert!(first.try_inject(to, &Envelope::tagged(2), b"short"));
    let mut bytes = vec![0; large.len()];
    let mut target = &mut bytes[..];
    let mut caller = Caller::new(Selector::any(), &mut target);
    second.begin_receive(&mut caller).unwrap();
    // The sender does nothing: no piece comes, and the short one is kept.
    for _ in 0..10 {
        second.progress(Some(&mut caller)).unwrap();
    }
    assert!(second.peek(&Selector::tag(2)).is_some() && !second.step_aside(&mut caller));
    while second.end_of(&caller).is_none() {
        first.progress(None).unwrap();
        second.progress(Some(&mut caller)).unwrap();
    }
    assert!(bytes == large);
    while first.take_completion(send).unwrap().is_none() {
        second.progress(None).unwrap();
        first.progress(None).unwrap();
    }
}

/// What a receive had got of a message stays only if the rest follows, and not all of it once more: its sender has ended meanwhile,
/// and this side has no room for all.
#[test]
fn a_message_whose_send_and_receive_have_both_ended_in_the_middle_comes_whole() {
    for steps in 1..12 {
        let mut ends = ends(1 << 20);
        let [(first, to), (second, _)] = &mut ends;
        let sent = message(3, 8 << 20);
        let envelope = Envelope::tagged(5);
        let lent = first.offer_lent(*to, envelope, &&sent[..]).unwrap().expect("it is offered");
        let mut bytes = vec![0; sent.len()];
        let mut target = &mut bytes[..];
        let mut caller = Caller::new(Selector::tag(5), &mut target);
        second.begin_receive(&mut caller).unwrap();
        for _ in 0..steps {
            first.progress(None).unwrap();
            second.progress(Some(&mut caller)).unwrap();
        }
        let mut is_over = second.end_of(&caller).is_some();
        if !is_over {
            second.leave(&mut caller);
        }
        // The call that sends ends, and its memory is used for something else.
        let is_sent = first.end_lent(lent, &&sent[..]);
        let mut again = sent.clone();
        again.fill(0xee);
        if !is_sent && !is_over {
            let memory = sent.clone().into();
            first.start_send(*to, envelope, memory, Options::default()).unwrap();
        }
        for _ in 0..100 {
            first.progress(None).unwrap();
            second.progress(None).unwrap();
        }
        let mut bytes = vec![0; sent.len()];
        if is_over {
            continue;
        }
        let mut target = &mut bytes[..];
        let mut caller = Caller::new(Selector::tag(5), &mut target);
        second.begin_receive(&mut caller).unwrap();
        while !is_over {
            first.progress(None).unwrap();
            second.progress(Some(&mut caller)).unwrap();
            is_over = second.end_of(&caller).is_some();
        }
        assert_eq!(second.end_of(&caller).unwrap().unwrap().bytes, sent.len() as u64);
        assert!(bytes == sent, "after {steps} steps");
    }
}
