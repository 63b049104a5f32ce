//! Endpoints of two hosts: here two domains of one process, which know each other by a file of hosts each.

use std::io::Write as _;
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use corewire::{
    ChannelName, ConnectError, Domain, Endpoint, EndpointError, Event, HostError, LossReason,
    MessageError, Selector,
};
use corewire_layout::net::Preface;

const LONG: Duration = Duration::from_secs(60);

/// Two hosts, `a` and `b`, in a directory of their own.
struct Two(PathBuf);

impl Two {
    fn new(test: &str) -> Self {
        let path =
            std::env::temp_dir().join(format!("corewire-hosts-{test}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    /// Says where the hosts are. Each lets the other reach all endpoints but those that begin with `hidden`.
    fn write(&self, at: [Option<SocketAddr>; 2]) {
        for own in ["a", "b"] {
            let mut text = format!("own = {own:?}\n");
            for (host, at) in ["a", "b"].into_iter().zip(at) {
                let at = at.unwrap_or_else(|| "127.0.0.1:1".parse().unwrap());
                text += &format!("[hosts.{host}]\naddresses = [\"{at}\"]\n");
            }
            text += "[[allow]]\nhosts = [\"*\"]\nendpoints = [\"x*\"]\n";
            std::fs::write(self.file(own), text).unwrap();
        }
    }

    fn file(&self, host: &str) -> PathBuf {
        self.0.join(format!("{host}.toml"))
    }

    fn domain(&self, host: &str) -> Domain {
        Domain::open_at(&self.0.join(host)).unwrap()
    }

    /// An endpoint that listens.
    fn listening(&self, host: &str, name: &str) -> Endpoint {
        let builder = self.domain(host).endpoint(name).hosts(&self.file(host));
        builder.listen("127.0.0.1:0").create().unwrap()
    }

    /// `x` of both hosts, which can connect each other.
    fn both(&self) -> [Endpoint; 2] {
        self.write([None; 2]);
        let ends = ["a", "b"].map(|host| self.listening(host, "x"));
        self.write([Some(ends[0].listening()[0]), Some(ends[1].listening()[0])]);
        ends
    }
}

impl Drop for Two {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn messages_calls_and_large_ones_go_both_ways_and_names_say_the_host() {
    let two = Two::new("both");
    let [mut a, mut b] = two.both();
    let to_b = a.peer("x@b").unwrap();
    assert_eq!(a.name_of(to_b), Some("x@b"));
    assert!(a.is_far(to_b) && a.incarnation_of(to_b) == Some(b.incarnation()));
    // The same, asked again.
    assert_eq!(a.peer("x@b").unwrap(), to_b);
    a.send(to_b, 7, b"hello").unwrap();
    let hello = b.receive(Selector::any()).unwrap();
    let to_a = hello.status().source;
    assert_eq!((&*hello, b.name_of(to_a)), (&b"hello"[..], Some("x@a")));
    // The other side has it, too, and dials nobody.
    assert_eq!(b.peer("x@a").unwrap(), to_a);
    let large: Vec<u8> = (0..5_000_000_u32).flat_map(u32::to_le_bytes).collect();
    thread::scope(|scope| {
        scope.spawn(|| {
            let request = b.receive_request().unwrap();
            assert_eq!(request.len(), large.len());
            let answer: Vec<u8> = request.iter().rev().copied().collect();
            request.reply(&answer).unwrap();
            // What replies needs a call.
            b.flush().unwrap();
        });
        let answer = a.call(to_b, &large).unwrap();
        assert!(answer.iter().rev().eq(&large));
    });
}

// Keeps P259.
#[test]
fn streams_of_every_length_arrive_whole_whether_a_receive_waits_or_not() {
    let two = Two::new("streams");
    let [mut a, mut b] = two.both();
    let to_b = a.peer("x@b").unwrap();
    for (bytes, count) in [
        (8, 20_000),
        (5000, 2000),
        (65_536, 500),
        (70_000, 500),
        (300_000, 1200),
        (1 << 20, 100),
        (3 << 20, 20),
    ] {
        let message = |number: usize| vec![(number * 31 + bytes).to_le_bytes()[0]; bytes];
        thread::scope(|scope| {
            scope.spawn(|| {
                for number in 0..count {
                    a.send(to_b, 1, &message(number)).unwrap();
                }
                a.flush().unwrap();
            });
            let mut buffer = vec![0; bytes];
            for number in 0..count {
                if number % 50 == 0 {
                    // The sender gets ahead.
                    thread::yield_now();
                }
                let status = b.receive_into(Selector::tag(1), &mut buffer).unwrap();
                assert_eq!(status.bytes, bytes as u64);
                assert!(buffer == message(number), "message {number} of {bytes} bytes");
            }
        });
    }
}

#[test]
fn a_message_of_which_a_receive_got_a_part_comes_whole_to_the_next_one() {
    let two = Two::new("parts");
    let [mut a, mut b] = two.both();
    let to_b = a.peer("x@b").unwrap();
    let message = |number: u32| -> Vec<u8> {
        (0..2_000_000_u32)
            .flat_map(|at| (at.wrapping_mul(2_654_435_761) ^ number).to_le_bytes())
            .collect()
    };
    thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0..20 {
                a.send(to_b, 1, &message(number)).unwrap();
            }
            a.flush().unwrap();
        });
        let mut buffer = vec![0; 8_000_000];
        let mut ended = 0;
        for number in 0..20 {
            let within = Duration::from_micros(u64::from(number) * 50);
            while b.receive_into_timeout(Selector::tag(1), &mut buffer, within).unwrap().is_none() {
                ended += 1;
            }
            assert!(buffer == message(number), "message {number}");
        }
        assert!(ended > 0);
    });
}

/// Also of those that a call began to send, whose time was over while the peer read them, and that it keeps no room for.
fn sends_and_receives_with_little_time([mut a, mut b]: [Endpoint; 2], name: &str) {
    let to_b = a.peer(name).unwrap();
    let (count, bytes) = (150, 1_500_000);
    let byte = |number: u64, at: usize| {
        (number.wrapping_mul(31) ^ at as u64 ^ at as u64 >> 8).to_le_bytes()[0]
    };
    let message = |number: u64| (0..bytes).map(|at| byte(number, at)).collect::<Vec<_>>();
    let times = |seed: u64, most: u64| {
        let mut word = seed;
        move || {
            word = word
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            Duration::from_micros((word >> 33) % most)
        }
    };
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut time = times(5, 3000);
            for number in 0..count {
                let message = message(number);
                while let Err(error) = a.send_timeout(to_b, number, &message, time()) {
                    assert!(matches!(error, MessageError::Timeout { .. }), "{error}");
                }
            }
            a.close().unwrap();
        });
        let mut time = times(9, 1500);
        let mut buffer = vec![0; bytes];
        for number in 0..count {
            let status = loop {
                if let Some(status) =
                    b.receive_into_timeout(Selector::any(), &mut buffer, time()).unwrap()
                {
                    break status;
                }
                // What comes meanwhile no receive asks for.
                let until = Instant::now() + 2 * time();
                while Instant::now() < until {
                    b.progress().unwrap();
                }
            };
            assert_eq!((status.tag, status.bytes), (number, bytes as u64));
            assert!(buffer == message(number), "message {number}");
        }
    });
}

#[test]
fn messages_stay_whole_and_in_order_however_little_time_sends_and_receives_have() {
    let two = Two::new("little-time");
    let [a, _] = two.both();
    let b = two.domain("b").endpoint("y").budget(1 << 20).hosts(&two.file("b"));
    let b = b.listen("127.0.0.1:0").create().unwrap();
    two.write([None, Some(b.listening()[0])]);
    std::fs::write(
        two.file("b"),
        std::fs::read_to_string(two.file("b")).unwrap().replace("x*", "*"),
    )
    .unwrap();
    sends_and_receives_with_little_time([a, b], "y@b");
    // On one host, too.
    let a = two.domain("a").endpoint("near").create().unwrap();
    let b = two.domain("a").endpoint("nearer").budget(1 << 20).create().unwrap();
    sends_and_receives_with_little_time([a, b], "nearer");
}

#[test]
fn strangers_that_say_nothing_do_not_keep_peers_waiting_for_long() {
    let two = Two::new("strangers");
    two.write([None; 2]);
    let gateway = two.domain("b").gateway("127.0.0.1:0").unwrap();
    let listening = two.listening("b", "x1");
    let _handed = two.domain("b").endpoint("x2").hosts(&two.file("b")).create().unwrap();
    for (at, name) in [(listening.listening()[0], "x1"), (gateway.address(), "x2")] {
        two.write([None, Some(at)]);
        // Some say nothing, and some that they want the endpoint, and nothing more.
        let preface = Preface { is_tls: false, wanted: ChannelName::new(name).unwrap() }.to_bytes();
        let strangers: Vec<_> = (0..400)
            .map(|number| {
                let stream = TcpStream::connect(at).unwrap();
                if number % 2 == 0 {
                    // It may have been closed by now.
                    let _ = (&stream).write_all(&preface);
                }
                stream
            })
            .collect();
        let mut a =
            two.domain("a").endpoint(&format!("to-{name}")).hosts(&two.file("a")).create().unwrap();
        a.peer(&format!("{name}@b")).unwrap();
        drop(strangers);
    }
}

#[test]
fn all_that_was_sent_arrives_although_the_sender_has_closed_and_ended() {
    let two = Two::new("closed");
    let [mut a, mut b] = two.both();
    let to_b = a.peer("x@b").unwrap();
    let count = 30_000_u64;
    thread::scope(|scope| {
        scope.spawn(move || {
            for number in 0..count {
                a.send(to_b, number, &number.to_le_bytes()).unwrap();
            }
            a.close().unwrap();
        });
        for number in 0..count {
            assert_eq!(*b.receive(Selector::tag(number)).unwrap(), number.to_le_bytes());
        }
    });
    let end = loop {
        if let Event::Gone { why, .. } = b.receive_event(Selector::any()).unwrap() {
            break why;
        }
    };
    assert!(matches!(end, MessageError::PeerLeft { .. }), "{end}");
}

#[test]
fn what_was_gathered_leaves_once_there_is_nothing_to_receive() {
    let two = Two::new("gathered");
    let [mut a, mut b] = two.both();
    let to_b = a.peer("x@b").unwrap();
    a.cork();
    a.send(to_b, 1, b"ask").unwrap();
    assert!(a.try_receive(Selector::any()).unwrap().is_none());
    assert_eq!(&*b.receive(Selector::any()).unwrap(), b"ask");
}

#[test]
fn a_large_message_comes_whatever_lies_between_its_pieces() {
    let two = Two::new("before");
    let [mut a, b] = two.both();
    // One that keeps little.
    let at = b.listening()[0].to_string();
    drop(b);
    let builder = two.domain("b").endpoint("x").hosts(&two.file("b")).budget(64 << 10);
    let mut b = builder.listen(&at).create().unwrap();
    let to_b = a.peer("x@b").unwrap();
    let large = vec![7; 20 << 20];
    thread::scope(|scope| {
        scope.spawn(|| {
            let send = a.isend(to_b, 2, large.clone()).unwrap();
            for _ in 0..1000 {
                a.isend(to_b, 1, vec![1; 1000]).unwrap();
            }
            for number in 0..2000_u64 {
                a.isend(to_b, 3, number.to_le_bytes().to_vec()).unwrap();
            }
            a.wait(send).unwrap().result.unwrap();
            a.flush().unwrap();
        });
        // The others are more than is kept of them, and nobody asks for them yet.
        let got = b.receive(Selector::tag(2)).unwrap();
        assert!(got.iter().eq(&large));
        for _ in 0..1000 {
            assert_eq!(b.receive(Selector::tag(1)).unwrap().len(), 1000);
        }
        for number in 0..2000_u64 {
            assert_eq!(*b.receive(Selector::tag(3)).unwrap(), number.to_le_bytes());
        }
    });
}

// Keeps P259.
#[test]
fn rings_and_connections_serve_one_endpoint_at_once() {
    let two = Two::new("mixed");
    let [mut a, mut b] = two.both();
    let mut near = two.domain("a").endpoint("near").create().unwrap();
    let (near_to_a, far_to_a) = (near.peer("x").unwrap(), b.peer("x@a").unwrap());
    let count = 20_000_u64;
    let [near_in_a, far_in_a] = thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0..count {
                near.send(near_to_a, 1, &number.to_le_bytes()).unwrap();
            }
        });
        scope.spawn(|| {
            for number in 0..count {
                b.send(far_to_a, 2, &number.to_le_bytes()).unwrap();
            }
            b.flush().unwrap();
        });
        let mut next = [0; 2];
        for _ in 0..2 * count {
            let mut number = [0; 8];
            let status = a.receive_into(Selector::any(), &mut number).unwrap();
            let at = usize::from(status.tag == 2);
            assert_eq!(u64::from_le_bytes(number), next[at]);
            assert_eq!(a.is_far(status.source), at == 1);
            next[at] += 1;
        }
        next
    });
    assert_eq!([near_in_a, far_in_a], [count; 2]);
}

#[test]
fn a_peer_that_closes_has_left_and_the_next_of_its_name_is_another_one() {
    let two = Two::new("left");
    let [mut a, b] = two.both();
    let to_b = a.peer("x@b").unwrap();
    let former = b.incarnation();
    b.close().unwrap();
    let gone = a.receive(Selector::any().from(to_b)).unwrap_err();
    assert!(matches!(&gone, MessageError::PeerLeft { name } if name.as_str() == "x@b"), "{gone:?}");
    let none = a.peer("x@b").unwrap_err();
    assert!(
        matches!(&none, ConnectError::Far { error: HostError::Unreachable { .. }, .. }),
        "{none}"
    );
    let b = two.listening("b", "x");
    two.write([None, Some(b.listening()[0])]);
    let to_next = a.peer("x@b").unwrap();
    assert_ne!(a.incarnation_of(to_next), Some(former));
    assert_eq!(a.incarnation_of(to_next), Some(b.incarnation()));
}

// Keeps P263.
#[test]
fn two_that_dial_each_other_keep_one_connection() {
    let two = Two::new("crossed");
    for _ in 0..30 {
        let [mut a, mut b] = two.both();
        let (of_a, of_b) = thread::scope(|scope| {
            let first = scope.spawn(|| a.peer("x@b").unwrap());
            let second = b.peer("x@a").unwrap();
            (first.join().unwrap(), second)
        });
        a.send(of_a, 1, b"to b").unwrap();
        b.send(of_b, 1, b"to a").unwrap();
        for (end, peer) in [(&mut a, of_a), (&mut b, of_b)] {
            let got = end.receive_timeout(Selector::any(), LONG).unwrap().unwrap();
            assert_eq!(got.status().source, peer);
            drop(got);
            assert_eq!(end.peers().unwrap(), [peer]);
        }
    }
}

#[test]
fn peers_come_by_themselves_or_are_waited_for_and_nobody_else_waits() {
    let two = Two::new("come");
    let [mut a, b] = two.both();
    let at = b.listening()[0];
    drop(b);
    // Known by name before it is there.
    let to_b = a.address("x@b", None).unwrap();
    assert_eq!(a.address("x@b", None).unwrap(), to_b);
    a.try_send(to_b, 5, b"early").unwrap();
    assert!(!a.is_linked(to_b));
    let builder = two.domain("b").endpoint("x").hosts(&two.file("b"));
    let mut b = builder.listen(&at.to_string()).create().unwrap();
    let early = loop {
        a.progress().unwrap();
        if let Some(early) = b.try_receive(Selector::any()).unwrap() {
            break early;
        }
    };
    assert_eq!(&*early, b"early");
    // As an event, from another thread.
    drop((a, b, early));
    let [mut c, _d] = two.both();
    let connector = c.connector();
    let thread = thread::spawn(move || connector.connect("x@b"));
    let Event::Came(peer) = c.receive_event(Selector::any()).unwrap() else { panic!() };
    assert_eq!(Some(thread.join().unwrap().unwrap()), c.incarnation_of(peer));
}

#[test]
fn one_address_of_a_host_serves_all_its_endpoints() {
    let two = Two::new("gateway");
    two.write([None; 2]);
    // Of the same domain, but not in the process of the endpoint: here it makes no difference.
    let gateway = two.domain("b").gateway("127.0.0.1:0").unwrap();
    two.write([None, Some(gateway.address())]);
    let mut ends = ["x1", "x2"]
        .map(|name| two.domain("b").endpoint(name).hosts(&two.file("b")).create().unwrap());
    let mut a = two.domain("a").endpoint("x").hosts(&two.file("a")).create().unwrap();
    for (end, name) in ends.iter_mut().zip(["x1@b", "x2@b"]) {
        let peer = a.peer(name).unwrap();
        a.send(peer, 3, name.as_bytes()).unwrap();
        assert_eq!(&*end.receive(Selector::any()).unwrap(), name.as_bytes());
        assert!(end.listening().is_empty());
    }
    for (name, why) in
        [("x3@b", "no endpoint of that name"), ("hidden@b", "no endpoint of that name")]
    {
        let none = a.peer(name).unwrap_err().to_string();
        assert!(none.contains(why), "{none}");
    }
    let _hidden = two.domain("b").endpoint("hidden").hosts(&two.file("b")).create().unwrap();
    let none = a.peer("hidden@b").unwrap_err().to_string();
    assert!(none.contains("no rule"), "{none}");
    // What was handed over stays.
    drop(gateway);
    let peer = a.peer("x1@b").unwrap();
    a.send(peer, 3, b"more").unwrap();
    assert_eq!(&*ends[0].receive(Selector::any()).unwrap(), b"more");
}

#[test]
fn what_cannot_be_reached_is_named() {
    let two = Two::new("named");
    let [mut a, b] = two.both();
    let at = b.listening()[0];
    let error = |a: &mut Endpoint, name: &str| a.peer(name).unwrap_err().to_string();
    for (name, parts) in [
        ("y@b", &["y@b", "no endpoint of that name"][..]),
        ("x@c", &["host c is not in", "a.toml"]),
        ("x@", &["name without a character"]),
        ("x@b@c", &["'@' is not allowed"]),
        ("tcp://b", &["tcp://host:port/name"]),
        ("x y", &["character ' '"]),
    ] {
        let error = error(&mut a, name);
        assert!(parts.iter().all(|part| error.contains(part)), "{error}");
    }
    // By address.
    let peer = a.peer(&format!("tcp://{at}/x")).unwrap();
    assert_eq!(a.name_of(peer), Some("x@b"));
    // Its own host.
    assert!(matches!(a.peer("z@a"), Err(ConnectError::NotFound(name)) if name.as_str() == "z"));
    let own = a.peer("x@a").unwrap();
    assert!(!a.is_far(own));
    // No file, no address.
    let builder = || two.domain("a").endpoint("other");
    let none = builder().hosts(&two.0.join("none.toml")).listen("127.0.0.1:0").create();
    assert!(matches!(&none, Err(EndpointError::Hosts(_))), "{none:?}");
    let none = builder().hosts(&two.file("a")).listen("localhost").create();
    assert!(matches!(&none, Err(EndpointError::Address(_))), "{none:?}");
    let taken = builder().hosts(&two.file("a")).listen(&at.to_string()).create();
    assert!(matches!(&taken, Err(EndpointError::Listen(_))), "{taken:?}");
    assert!(taken.unwrap_err().to_string().contains(&at.to_string()));
    let late = a.peer_when_created("y@b", Some(Duration::from_secs(1))).unwrap_err();
    assert!(
        matches!(&late, ConnectError::NotCreated { name, .. } if name.as_str() == "y@b"),
        "{late}"
    );
}

#[test]
fn a_process_that_is_not_asked_learns_that_a_connection_was_cut() {
    let two = Two::new("cut");
    let [mut a, _b] = two.both();
    // A process that says what a peer says, and then vanishes.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    two.write([None, Some(listener.local_addr().unwrap())]);
    let other = thread::spawn(move || {
        use std::io::{Read as _, Write as _};
        let (mut stream, _) = listener.accept().unwrap();
        let mut bytes = [0; 17];
        stream.read_exact(&mut bytes).unwrap();
        let welcome = corewire_layout::net::Answer::Welcome.to_bytes();
        stream.write_all(&welcome).unwrap();
        let mut hello = [0; 50];
        stream.read_exact(&mut hello).unwrap();
        let name = |text: &str| ChannelName::new(text).unwrap();
        let other = corewire_layout::net::Hello {
            name: name("x"),
            incarnation: 9,
            host: name("b"),
            credit_bytes: 256 << 10,
            silence_ms: 10_000,
            connection: 1,
            last: 0,
        };
        stream.write_all(&[welcome, other.to_bytes()].concat()).unwrap();
    });
    let peer = a.peer("x@b").unwrap();
    other.join().unwrap();
    let lost = a.receive(Selector::any().from(peer)).unwrap_err();
    let MessageError::PeerLost { name, reason, delivered } = &lost else { panic!("{lost}") };
    assert!(matches!(reason, LossReason::Ended | LossReason::Reset));
    assert_eq!((name.as_str(), *delivered), ("x@b", 0));
}
