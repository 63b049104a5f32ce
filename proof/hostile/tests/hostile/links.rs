//! What an endpoint says of peers that ask for a link and give up, close sockets, or end a link: only a process that the
//! kernel reports as ended has died.

use std::os::fd::AsFd;

use crate::wire::{Census, Directory, Raw, alone, until};
use corewire::{Domain, Endpoint, Event, MessageError, Selector};
use corewire_layout::endpoint::{ACTIVITY_BYTES, EndpointHeader, EndpointSizes};
use corewire_layout::frame::{Frame, Reason};
use corewire_layout::name::ChannelName;
use corewire_layout::segment::FenceMode;
use corewire_os::directory::{Role, RuntimeDirectory};
use corewire_os::event::Bell;
use corewire_os::memory::Segment;
use corewire_os::process;
use zerocopy::IntoBytes;

const INCARNATION: u128 = 77;

/// An endpoint by hand, which links itself with the endpoint `e`.
struct ByHand {
    segment: Segment,
    activity: Segment,
    target: u128,
}

impl ByHand {
    fn new(directory: &Directory) -> Self {
        let sizes = EndpointSizes::new(4, 4, 16, 4, 4096).unwrap();
        let (segment, memory) =
            Segment::create_in_parts(sizes.segment_bytes(), sizes.segment_bytes()).unwrap();
        let header = EndpointHeader {
            sizes,
            fence_mode: FenceMode::Fenced,
            incarnation: INCARNATION,
            pid: std::process::id(),
            name: ChannelName::new("by-hand").unwrap(),
            budget_bytes: 0,
        };
        memory.copy_in(0, header.to_raw().as_bytes());
        let (activity, _) = Segment::create_writable_by_all(ACTIVITY_BYTES as u64).unwrap();
        let names = RuntimeDirectory::open(&directory.0, Role::Owner).unwrap();
        let record = names.look_up(&ChannelName::new("e").unwrap()).unwrap().unwrap();
        Self { segment, activity, target: record.incarnation }
    }

    /// Sends a request from `row`, with this number of its reservation.
    fn ask(&self, directory: &Directory, row: u32, reservation: u64) -> Raw {
        let raw = Raw::connect(&directory.socket());
        let (bell, life) = (Bell::new().unwrap(), process::own_life().unwrap());
        let descriptors = [self.segment.as_fd(), self.activity.as_fd(), bell.as_fd(), life.as_fd()];
        let name = ChannelName::new("e").unwrap();
        let (incarnation, target) = (INCARNATION, self.target);
        assert!(
            raw.say(&Frame::Pair { name, row, reservation, incarnation, target }, &descriptors)
        );
        raw
    }

    /// The row and the reservation in the answer to a request.
    fn answer(raw: &Raw) -> (u32, u64) {
        match raw.hear() {
            Some((Frame::Paired { row, reservation, .. }, _)) => (row, reservation),
            other => panic!("{other:?}"),
        }
    }
}

/// All events until the peer `mark`, which is created for that, has come.
fn events(endpoint: &mut Endpoint, domain: &Domain, mark: &str) -> Vec<String> {
    let mut other = domain.endpoint(mark).create().unwrap();
    let peer = other.peer("e").unwrap();
    other.send(peer, 1, b"mark").unwrap();
    let mut seen = Vec::new();
    loop {
        match endpoint.receive_event(Selector::any()).unwrap() {
            Event::Received(_) => break,
            Event::Came(peer) => {
                let name = endpoint.name_of(peer).unwrap().to_owned();
                if name != mark {
                    seen.push(format!("came {name}"));
                }
            }
            Event::Gone { why: MessageError::PeerLeft { name }, .. } => {
                seen.push(format!("left {name}"));
            }
            Event::Gone { why, .. } => seen.push(format!("gone: {why}")),
        }
    }
    other.close().unwrap();
    loop {
        match endpoint.receive_event(Selector::any()).unwrap() {
            Event::Gone { why: MessageError::PeerLeft { name }, .. } if name.as_str() == mark => {
                break;
            }
            Event::Gone { why: MessageError::PeerLeft { name }, .. } => {
                seen.push(format!("left {name}"));
            }
            other => panic!("{other:?}"),
        }
    }
    seen
}

struct World {
    directory: Directory,
    domain: Domain,
    endpoint: Endpoint,
    by_hand: ByHand,
}

impl World {
    fn new(test: &str) -> Self {
        let directory = Directory::new(test);
        let domain = Domain::open_at(&directory.0).unwrap();
        let mut endpoint = domain.endpoint("e").peers(4).create().unwrap();
        assert!(endpoint.now().receive_event(Selector::any()).unwrap().is_none());
        let by_hand = ByHand::new(&directory);
        Self { directory, domain, endpoint, by_hand }
    }

    fn ask(&self, row: u32, reservation: u64) -> Raw {
        self.by_hand.ask(&self.directory, row, reservation)
    }

    fn link(&self, row: u32, reservation: u64) -> (Raw, (u32, u64)) {
        let raw = self.ask(row, reservation);
        let own = ByHand::answer(&raw);
        assert!(raw.say(&Frame::Done, &[]));
        assert!(matches!(raw.hear(), Some((Frame::Linked, _))));
        (raw, own)
    }

    fn events(&mut self, mark: &str) -> Vec<String> {
        events(&mut self.endpoint, &self.domain, mark)
    }
}

// Keeps P218.
#[test]
fn nobody_hears_of_a_requester_that_gives_up() {
    let _alone = alone();
    let mut world = World::new("give-up");
    // What the first link with another endpoint allocates stays.
    assert_eq!(world.events("first"), [""; 0]);
    let before = Census::at_rest();
    for reservation in 1..50 {
        let raw = world.ask(0, reservation);
        if reservation % 2 == 0 {
            ByHand::answer(&raw);
        }
    }
    assert_eq!(world.events("mark"), [""; 0]);
    before.is_back();
    // All rows are free.
    let (raw, _) = world.link(0, 50);
    assert_eq!(world.events("last"), ["came by-hand"]);
    drop(raw);
}

// Keeps P218.
#[test]
fn a_living_peer_whose_last_socket_ends_has_left() {
    let _alone = alone();
    let mut world = World::new("last-socket");
    let (first, own) = world.link(0, 1);
    assert_eq!(world.events("a"), ["came by-hand"]);
    let (second, same) = world.link(0, 1);
    assert_eq!(own, same);
    let third = world.ask(0, 1);
    assert_eq!(ByHand::answer(&third), own);
    drop((first, third));
    assert_eq!(world.events("b"), [""; 0], "a socket is left");
    drop(second);
    assert_eq!(world.events("c"), ["left by-hand"]);
    // What is no frame ends a link, and is no death.
    let (raw, _) = world.link(0, 2);
    assert!(raw.send(b"hello", &[]));
    assert_eq!(world.events("d"), ["came by-hand", "left by-hand"]);
    assert!(raw.hear().is_none(), "hung up");
}

// Keeps P218.
#[test]
fn of_two_reservations_of_a_peer_the_later_one_is_valid() {
    let _alone = alone();
    let mut world = World::new("reservations");
    let (first, own) = world.link(0, 5);
    assert_eq!(world.events("a"), ["came by-hand"]);
    // The peer has ended that link, and the hang-up is not read yet.
    let (second, other) = world.link(1, 6);
    assert_ne!(own, other);
    let mut seen = world.events("b");
    seen.sort();
    assert_eq!(seen, ["came by-hand", "left by-hand"]);
    assert!(first.hear().is_none(), "hung up");
    let stale = world.ask(0, 5);
    // The endpoint is there: the requester has asked again since.
    assert!(matches!(stale.hear(), Some((Frame::Refused(Reason::Resources { .. }), _))));
    // A request that was not confirmed ends with the next reservation, too.
    drop(second);
    assert_eq!(world.events("c"), ["left by-hand"]);
    let third = world.ask(2, 7);
    ByHand::answer(&third);
    let fourth = world.ask(3, 8);
    ByHand::answer(&fourth);
    until("the older request hung up", || !third.say(&Frame::Done, &[]));
    assert!(fourth.say(&Frame::Done, &[]));
    assert_eq!(world.events("d"), ["came by-hand"]);
}
