//! An attacker connects to a process's socket and sends anything. A channel of that process has a
//! reader that must get every message meanwhile. At the end nothing of the attack may be left in
//! the process. `COREWIRE_HOSTILE_FRAMES` sets the number of frames (default: 100 thousand).

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::Instant;

use crate::wire::{
    CHANNEL, Census, Directory, Live, Raw, alone, borrow, odd_descriptors, page, until,
};
use corewire::{Domain, Levels};
use corewire_hostile::Random;
use corewire_layout::frame::{FRAME_BYTES, Frame, Hello, Place, Reason, Start, Welcome};
use corewire_layout::message_type::TypeKey;
use corewire_layout::name::ChannelName;
use corewire_layout::segment::{CURSOR, SLEEP_MODE, SLEEPING};
use corewire_os::fork::Descriptor;
use corewire_os::process;
use corewire_ring::sync::Ordering::Relaxed;
use rustix::event::{EventfdFlags, eventfd};

fn frames() -> u64 {
    let given = std::env::var("COREWIRE_HOSTILE_FRAMES").ok();
    given.map_or(100_000, |frames| frames.parse().expect("COREWIRE_HOSTILE_FRAMES is a number"))
}

fn hello(waiter: u128) -> Frame {
    let name = ChannelName::new(CHANNEL).unwrap();
    let (start, place, type_key) = (Start::Now, Place::Ring, TypeKey::default());
    let needs_fence = false;
    Frame::Hello(Hello { name, start, waiter, place, needs_fence, type_key, socket: 0 })
}

/// A `Hello` as on a channel with two levels.
fn of_a_group(place: Place, start: Start) -> Frame {
    let name = ChannelName::new(CHANNEL).unwrap();
    let (needs_fence, type_key) = (false, TypeKey::default());
    Frame::Hello(Hello { name, start, waiter: 11, place, needs_fence, type_key, socket: 0 })
}

/// One frame of every kind.
fn every_kind() -> Vec<Frame> {
    let name = || ChannelName::new(CHANNEL).unwrap();
    let welcome = Welcome {
        row: 0,
        start: 0,
        epoch: 0,
        incarnation: 5,
        hint: true,
        table: false,
        settled: 0,
        generation: 1,
    };
    vec![
        hello(0),
        hello(7),
        of_a_group(Place::Group(3), Start::Now),
        of_a_group(Place::Relay(3), Start::Oldest),
        of_a_group(Place::Follower(3), Start::Now),
        of_a_group(Place::Ring, Start::At(1 << 40)),
        Frame::Relayed { channel: 4, relay: 5 },
        Frame::Welcome(welcome),
        Frame::Refused(Reason::Malformed),
        Frame::Readiness,
        Frame::Done,
        Frame::Invite { name: name(), waiter: 9 },
        Frame::Observe { name: name() },
        Frame::Observe { name: ChannelName::new("nobody").unwrap() },
        Frame::Connect { name: name() },
        Frame::Observed { count: 3, joining: vec![7] },
        Frame::ObservedEndpoint,
        Frame::Linked,
        Frame::Rows(vec![0, 1, 2]),
        Frame::Leave,
        Frame::Ring,
    ]
}

/// An attacker, with what it sends.
struct Attacker<'a> {
    path: &'a Path,
    random: Random,
    page: OwnedFd,
    life: Descriptor,
    kinds: Vec<Frame>,
    /// Packets that were sent while the other end was open.
    sent: u64,
    connections: u64,
    /// The byte of a frame that is changed next.
    at: usize,
}

impl<'a> Attacker<'a> {
    fn new(path: &'a Path) -> Self {
        let page = page().0.as_fd().try_clone_to_owned().unwrap();
        let (life, kinds) = (process::own_life().unwrap(), every_kind());
        let random = Random::from_environment();
        Self { path, random, page, life, kinds, sent: 0, connections: 0, at: 0 }
    }

    fn connect(&mut self) -> Raw {
        self.connections += 1;
        Raw::connect(self.path)
    }

    fn send(&mut self, raw: &Raw, packet: &[u8]) -> bool {
        let is_open = raw.send(packet, &[]);
        self.sent += u64::from(is_open);
        is_open
    }

    /// Joins as a receiver. Whether the answer is read is up to the caller.
    fn join(&mut self) -> Raw {
        let raw = self.connect();
        let descriptors = [self.page.as_fd(), self.life.as_fd()];
        assert!(raw.say(&hello(0), &descriptors));
        self.sent += 1;
        raw
    }

    /// A random packet. It may be a valid frame, a damaged frame, or no frame at all.
    fn odd_packet(&mut self) -> Vec<u8> {
        let kind = usize::try_from(self.random.below(self.kinds.len() as u64)).unwrap();
        let mut packet = self.kinds[kind].to_bytes().to_vec();
        match self.random.below(8) {
            0 => packet.truncate(usize::try_from(self.random.below(256)).unwrap()),
            1 => packet.resize(257 + usize::try_from(self.random.below(4000)).unwrap(), 7),
            2 => packet.iter_mut().for_each(|byte| *byte = self.random.number().to_le_bytes()[3]),
            3 => {}
            _ => {
                // Each byte in turn, with values close to the original or far from it.
                self.at = (self.at + 1) % FRAME_BYTES;
                let bit = 1 << self.random.below(8);
                packet[self.at] = match self.random.below(4) {
                    0 => 0xff,
                    1 => self.random.number().to_le_bytes()[3],
                    _ => packet[self.at] ^ bit,
                };
            }
        }
        packet
    }

    /// One connection, and everything that is sent on it.
    fn attack(&mut self) {
        let count = self.random.below(48);
        match self.random.below(8) {
            // A packet that cannot be parsed.
            0 => {
                let raw = self.connect();
                let packet = self.odd_packet();
                self.send(&raw, &packet);
                // The process reads nothing more on this connection.
                self.send(&raw, &packet);
            }
            // Frames out of order.
            1 => {
                let raw = self.connect();
                for _ in 0..count {
                    let kind = usize::try_from(self.random.below(self.kinds.len() as u64)).unwrap();
                    let packet = self.kinds[kind].to_bytes();
                    if !self.send(&raw, &packet) {
                        break;
                    }
                }
            }
            // Observe requests whose answers are not read.
            2 => {
                let raw = self.connect();
                let look = Frame::Observe { name: ChannelName::new(CHANNEL).unwrap() }.to_bytes();
                let _ = (0..count).all(|_| self.send(&raw, &look));
            }
            // A receiver that leaves at once, or several times, or sends nothing.
            3 => {
                let raw = self.join();
                let leave = Frame::Leave.to_bytes();
                let _ = (0..self.random.below(4)).all(|_| self.send(&raw, &leave));
            }
            // A receiver that repeats a request and then sends an odd packet.
            _ => {
                let raw = self.join();
                let ask = Frame::Readiness.to_bytes();
                let _ = (0..count).all(|_| self.send(&raw, &ask));
                if count.is_multiple_of(2) {
                    assert!(
                        raw.hear().is_some_and(|(frame, _)| matches!(frame, Frame::Welcome(_)))
                    );
                }
                let packet = self.odd_packet();
                self.send(&raw, &packet);
            }
        }
    }
}

/// Waits until only the reader is left on the channel.
fn settle(live: &Live) {
    until("no receiver but the reader", || live.receivers() == 1);
}

// Keeps P35.
#[test]
fn any_frames_in_any_order_disturb_nobody() {
    let _alone = alone();
    let directory = Directory::new("frames");
    let mut live = Live::new(&directory);
    let path = directory.socket();
    let mut attacker = Attacker::new(&path);
    let before = Census::at_rest();
    let (began, wanted) = (Instant::now(), frames());
    while attacker.sent < wanted {
        // When the rows are used up, either a join is refused, or this waits for connections that
        // have hung up.
        if live.receivers() == 8 {
            settle(&live);
        }
        attacker.attack();
        live.send();
    }
    #[expect(clippy::cast_precision_loss, reason = "for people")]
    let rate = attacker.sent as f64 / began.elapsed().as_secs_f64();
    println!("{} frames, {} connections, {rate:.0} frames/s", attacker.sent, attacker.connections);
    settle(&live);
    before.is_back();
    let _ = live.domain.observe(CHANNEL).unwrap().look();
    live.finish();
}

#[test]
fn wrong_descriptors_are_refused_and_given_back() {
    let _alone = alone();
    let directory = Directory::new("descriptors");
    let mut live = Live::new(&directory);
    let path = directory.socket();
    let before = Census::at_rest();
    let life = process::own_life().unwrap();
    for (what, odd) in odd_descriptors() {
        let raw = Raw::connect(&path);
        assert!(raw.say(&hello(0), &[odd.as_fd(), life.as_fd()]));
        let (answer, _) = raw.hear().unwrap();
        let is_refused = matches!(answer, Frame::Refused(Reason::Segment { .. }));
        assert!(is_refused, "{what}: {answer:?}");
        // The same in place of the process descriptor. The kernel knows which process has
        // connected.
        let raw = Raw::connect(&path);
        assert!(raw.say(&hello(0), &[page().0.as_fd(), odd.as_fd()]));
        assert!(matches!(raw.hear(), Some((Frame::Welcome(_), _))), "{what}");
        live.send();
    }
    // No descriptor at all, and too many for any frame.
    let raw = Raw::connect(&path);
    assert!(raw.say(&hello(0), &[]));
    assert!(matches!(raw.hear(), Some((Frame::Refused(Reason::Malformed), _))));
    drop(raw);
    for count in [3, 50, 53, 54, 100, 253] {
        for frame in every_kind() {
            let many: Vec<OwnedFd> =
                (0..count).map(|_| life.as_fd().try_clone_to_owned().unwrap()).collect();
            let raw = Raw::connect(&path);
            assert!(raw.say(&frame, &borrow(&many)));
            drop(raw);
            live.send();
        }
    }
    drop(life);
    settle(&live);
    before.is_back();
    live.finish();
}

#[test]
fn a_header_that_lies_is_refused() {
    let _alone = alone();
    let directory = Directory::new("headers");
    let live = Live::new(&directory);
    let path = directory.socket();
    let before = Census::at_rest();
    for at in 0..16 {
        let (segment, region) = page();
        let mut byte = [0];
        region.copy_out(at, &mut byte);
        region.copy_in(at, &[byte[0] ^ 0x10]);
        let raw = Raw::connect(&path);
        assert!(raw.say(&hello(0), &[segment.as_fd(), segment.as_fd()]));
        let (answer, _) = raw.hear().unwrap();
        // The process number is only information for people.
        let expected = at >= 12;
        assert_eq!(matches!(answer, Frame::Welcome(_)), expected, "byte {at}: {answer:?}");
    }
    settle(&live);
    before.is_back();
    live.finish();
}

/// A process that has looked up an endpoint which ended meanwhile must not be linked with the next one of that name:
/// that one may be linking with it at the same time.
#[test]
fn a_request_for_an_endpoint_that_has_ended_is_not_for_the_next_one() {
    let _alone = alone();
    let directory = Directory::new("next-endpoint");
    let domain = Domain::open_at(&directory.0).unwrap();
    let endpoint = domain.endpoint("e").create().unwrap();
    let raw = Raw::connect(&directory.socket());
    let name = ChannelName::new("e").unwrap();
    assert!(raw.say(&Frame::Pair { name, row: 0, reservation: 1, incarnation: 2, target: 1 }, &[]));
    let (answer, _) = raw.hear().unwrap();
    assert_eq!(answer, Frame::Refused(Reason::NotFound));
    drop(endpoint);
}

/// The row of a relay that leaves is kept for its group, unless the relay was caught lying. Then
/// the row is free for any receiver, and the next relay gets a row of its own.
#[test]
fn a_relay_that_cannot_be_believed_leaves_no_row_behind() {
    let _alone = alone();
    let directory = Directory::new("relays");
    let domain = Domain::open_at(&directory.0).unwrap();
    let channel = domain.sender(CHANNEL).levels(Levels::Two).cache_domain(0);
    let mut sender = channel.slots(64).receivers(4).create().unwrap();
    let path = directory.socket();
    let life = process::own_life().unwrap();
    let follower = Raw::connect(&path);
    assert!(follower.say(&of_a_group(Place::Follower(3), Start::Now), &[life.as_fd()]));
    assert!(matches!(follower.hear(), Some((Frame::Relayed { relay: 0, .. }, _))));
    let observer = domain.observe(CHANNEL).unwrap();
    let counter = |name| {
        let counters = observer.look().counters;
        counters.into_iter().find(|(word, _)| *word == name).unwrap().1
    };
    for round in 0..9 {
        let (segment, region) = page();
        let relay = Raw::connect(&path);
        let given = [segment.as_fd(), life.as_fd()];
        assert!(relay.say(&of_a_group(Place::Relay(3), Start::Now), &given));
        let welcomed = relay.hear().unwrap();
        assert!(matches!(welcomed.0, Frame::Welcome(_)), "round {round}: {welcomed:?}");
        match round % 3 {
            // A frame that a relay never sends.
            0 => assert!(relay.say(&Frame::Ring, &[])),
            // An impossible cursor, while the relay is alive, and when it has left.
            1 => region.word64(CURSOR).store(1 << 50, Relaxed),
            _ => {
                region.word64(CURSOR).store(1 << 50, Relaxed);
                drop(relay);
            }
        }
        until("the relay is found out", || {
            let _ = sender.try_send(b"for nobody");
            counter("violations") == round + 1
        });
        // Another receiver takes the row meanwhile.
        drop(domain.receiver(CHANNEL).cache_domain(0).join().unwrap());
    }
    // No message is kept for the relay.
    (0..200).for_each(|_| until("there is room", || sender.try_send(b"on").is_ok()));
    assert_eq!(sender.receivers(), 1);
    drop(follower);
    until("the follower has gone", || sender.receivers() == 0);
}

/// Announces a sleep on the descriptor, by a receiver's words.
fn pretend_to_sleep(region: &corewire_ring::region::Region) {
    region.word32(SLEEP_MODE).store(1, Relaxed);
    region.word32(SLEEPING).fetch_add(1, Relaxed);
}

#[test]
fn a_readiness_descriptor_holds_nobody_up() {
    let _alone = alone();
    let directory = Directory::new("readiness");
    let mut live = Live::new(&directory);
    let path = directory.socket();
    let before = Census::at_rest();
    let life = process::own_life().unwrap();
    let eventfd = |flags| eventfd(0, EventfdFlags::CLOEXEC | flags).unwrap();
    let fill = |bell: &OwnedFd| {
        rustix::io::write(bell, &(u64::MAX - 1).to_le_bytes()).unwrap();
    };
    let mut bells = odd_descriptors();
    let (full, blocking) = (eventfd(EventfdFlags::NONBLOCK), eventfd(EventfdFlags::empty()));
    fill(&full);
    fill(&blocking);
    bells.push(("a full eventfd", full));
    bells.push(("a full eventfd that blocks", blocking));
    let (reader, writer) = rustix::pipe::pipe().unwrap();
    rustix::io::ioctl_fionbio(&writer, true).unwrap();
    while rustix::io::write(&writer, &[0; 4096]).is_ok() {}
    rustix::io::ioctl_fionbio(&writer, false).unwrap();
    bells.push(("a full pipe that blocks", writer));
    for (what, bell) in bells {
        let (segment, region) = page();
        let raw = Raw::connect(&path);
        assert!(raw.say(&hello(0), &[segment.as_fd(), life.as_fd()]));
        assert!(matches!(raw.hear(), Some((Frame::Welcome(_), _))), "{what}");
        assert!(raw.say(&Frame::Readiness, &[bell.as_fd()]));
        // The descriptor is accepted, or the link ends.
        let answer = raw.hear();
        assert!(matches!(answer, Some((Frame::Done, _)) | None), "{what}: {answer:?}");
        for _ in 0..3 {
            pretend_to_sleep(&region);
            live.send();
        }
        // Alternate with a request that has no descriptor.
        let _ = raw.say(&Frame::Readiness, &[]) && raw.say(&Frame::Readiness, &[bell.as_fd()]);
        live.send();
    }
    drop((reader, life));
    settle(&live);
    before.is_back();
    live.finish();
}

#[test]
fn a_hang_up_at_any_step_leaves_nothing() {
    let _alone = alone();
    let directory = Directory::new("hang-up");
    let mut live = Live::new(&directory);
    let path = directory.socket();
    let before = Census::at_rest();
    let (page, life) = (page(), process::own_life().unwrap());
    let descriptors = [page.0.as_fd(), life.as_fd()];
    for round in 0..1000 {
        let raw = Raw::connect(&path);
        if round % 7 > 0 {
            assert!(raw.say(&hello(0), &descriptors));
        }
        if round % 7 > 1 {
            let welcomed = matches!(raw.hear(), Some((Frame::Welcome(_), _)));
            assert!(welcomed || live.receivers() > 1);
        }
        if round % 7 > 2 {
            let _ = raw.say(&Frame::Readiness, &[]);
        }
        if round % 7 > 3 {
            let _ = raw.hear();
        }
        if round % 7 > 4 {
            let _ = raw.say(&Frame::Leave, &[]);
        }
        if round % 7 > 5 {
            let _ = raw.say(&Frame::Leave, &[]);
        }
        live.send();
    }
    drop((page, life));
    settle(&live);
    before.is_back();
    live.finish();
}

#[test]
fn a_flood_of_connections_ends_with_them() {
    let _alone = alone();
    let directory = Directory::new("flood");
    let mut live = Live::new(&directory);
    let path = directory.socket();
    let before = Census::at_rest();
    for _ in 0..3 {
        let idle: Vec<Raw> = (0..1500).map(|_| Raw::connect(&path)).collect();
        // An honest observer is served among them.
        let view = live.domain.observe(CHANNEL).unwrap().look();
        assert_eq!(view.receivers.len(), 1);
        live.send();
        drop(idle);
    }
    settle(&live);
    before.is_back();
    live.finish();
}

#[test]
fn whoever_comes_and_goes_thousands_of_times_leaves_nothing() {
    let _alone = alone();
    let directory = Directory::new("comers");
    let mut live = Live::new(&directory);
    let path = directory.socket();
    let before = Census::at_rest();
    let mut attacker = Attacker::new(&path);
    for _ in 0..3000 {
        let raw = attacker.join();
        let leave = Frame::Leave.to_bytes();
        assert!(attacker.send(&raw, &leave));
        live.send();
        // There are rows for eight receivers.
        until("a free row", || live.receivers() < 8);
    }
    drop(attacker);
    settle(&live);
    before.is_back();
    live.finish();
}
