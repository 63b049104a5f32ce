//! Capabilities as arguments, by each driver.
//!
//! Every test here keeps P192.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use corewire::WindowRights;
use corewire_bind::{
    CallError, Capabilities, ChannelRef, Domain, Driver, EndpointRef, Failed, ServiceRef, WindowRef,
};
use corewire_processes::interfaces::all::{Bundle, Client, Event, Pair, Rights, Trouble};
use corewire_processes::interfaces::{DRIVERS, Place, by, descriptor, inode, open_count, pin};

const LONG: Duration = Duration::from_secs(20);

/// One test at a time: some count descriptors.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits until so many descriptors are open: monitors close what they have passed on in threads of their own.
fn wait_for_count(count: usize) {
    let until = Instant::now() + LONG;
    while open_count() != count {
        assert!(Instant::now() < until, "{} are open, {count} were", open_count());
        std::thread::yield_now();
    }
}

fn each(test: &str, work: impl FnMut(&mut Client, &Place, Driver)) {
    let _turn = turn();
    by_each_driver(test, work);
}

fn by_each_driver(test: &str, mut work: impl FnMut(&mut Client, &Place, Driver)) {
    pin();
    let place = Place::new(test);
    place.serve(|domain| {
        for driver in DRIVERS {
            let mut client = Client::bind(domain, "echo", &by(driver)).unwrap();
            work(&mut client, &place, driver);
            // The next message is not disturbed.
            assert_eq!(client.eight(1), Ok(1), "{driver}");
        }
    });
}

fn rights(has_log: bool) -> Rights {
    Rights { file: descriptor(), log: has_log.then(descriptor), mark: 7 }
}

fn inodes(bundle: &Bundle) -> Vec<Option<u64>> {
    let log = |rights: &Rights| rights.log.as_ref().map(inode);
    let pairs = bundle.all.iter().flat_map(|one| [Some(inode(&one.file)), log(one)]);
    let inside = [bundle.inside.as_ref().map(inode)];
    inside.into_iter().chain(pairs).chain(bundle.three.iter().map(|one| Some(inode(one)))).collect()
}

// Keeps P188.
#[test]
fn descriptors_arrive_and_none_is_left_open() {
    let _turn = turn();
    let before = open_count();
    by_each_driver("rights-open", |client, _, driver| {
        for number in 0..20 {
            let (file, more) = (descriptor(), (number % 2 == 0).then(descriptor));
            let out = client.open(number, file.as_fd(), more.as_ref().map(AsFd::as_fd)).unwrap();
            assert_eq!(inode(&out.same), inode(&file), "{driver}");
            assert_eq!(out.other.as_ref().map(inode), more.as_ref().map(inode), "{driver}");
        }
        let file = descriptor();
        let pending = client.start_open(1, file.as_fd(), None).unwrap();
        let kept = inode(&file);
        // What was sent is a copy.
        drop(file);
        assert_eq!(inode(pending.wait(client).unwrap().same), kept);
    });
    wait_for_count(before);
}

// Keeps P188.
#[test]
fn descriptors_in_structs_and_arrays_arrive_at_their_places() {
    each("rights-bundles", |client, _, driver| {
        for shape in 0..16_u8 {
            let is = |bit: u8| shape >> bit & 1 == 1;
            let bundle = Bundle {
                name: "bundle".to_owned(),
                inside: is(0).then(descriptor),
                all: [rights(is(1)), rights(is(2))],
                three: std::array::from_fn(|_| descriptor()),
            };
            let one = is(3).then(descriptor);
            let out = client.bundles(&bundle, one.as_ref().map(AsFd::as_fd)).unwrap();
            assert_eq!(inodes(&out.back), inodes(&bundle), "{driver}");
            assert_eq!(out.two.as_ref().map(inode), one.as_ref().map(inode));
            assert_eq!((out.back.name.as_str(), out.back.all[1].mark), ("bundle", 7));
        }
        let denied = Bundle {
            name: "denied".to_owned(),
            inside: None,
            all: [rights(true), rights(false)],
            three: std::array::from_fn(|_| descriptor()),
        };
        let error = client.bundles(&denied, None).unwrap_err();
        assert_eq!(error, Failed::Service(Trouble::Denied));
    });
}

// Keeps P188.
#[test]
fn what_is_given_away_is_closed_once_it_was_sent() {
    each("rights-give", |client, _, driver| {
        let mut right = Some(descriptor());
        let kept = inode(right.as_ref().unwrap());
        let back = client.give(&mut right).unwrap();
        assert!(right.is_none(), "{driver}");
        assert_eq!(back.map(inode), Some(kept));
        // Nothing to give, and an answer all the same.
        assert_eq!(client.give(&mut right).unwrap_err(), Failed::Service(Trouble::NotFound));
        let mut right = Some(descriptor());
        let pending = client.start_give(&mut right).unwrap();
        assert!(right.is_none(), "{driver}");
        assert!(pending.wait(client).unwrap().is_some());
    });
    // It stays with a sender who cannot send.
    let _turn = turn();
    let place = Place::new("rights-kept");
    for driver in DRIVERS {
        let mut bound = None;
        place.serve(|domain| bound = Some(Client::bind(domain, "echo", &by(driver)).unwrap()));
        let mut right = Some(descriptor());
        let error = bound.unwrap().give(&mut right).unwrap_err();
        assert!(matches!(error, Failed::Call(_)), "{driver}: {error:?}");
        assert!(right.is_some(), "{driver}");
    }
}

#[test]
fn names_arrive_with_their_domain() {
    each("rights-refer", |client, place, driver| {
        let domain = &place.domain;
        let endpoint = EndpointRef::new(domain, "an endpoint").unwrap();
        let channel = ChannelRef::<Pair>::new(domain, "a channel").unwrap();
        let service = ServiceRef::new(domain, "echo").unwrap();
        let memory = domain.window("a-window", 4096).create().unwrap();
        let window = WindowRef::of(domain, &memory).unwrap();
        for (o, v) in [(None, Some(&window)), (Some(&endpoint), None)] {
            let out = client.refer(&endpoint, &channel, &service, o, &window, v).unwrap();
            assert!(out.f.is_in(domain) && out.d.is_in(domain) && out.t.is_in(domain), "{driver}");
            assert!(out.x.is_in(domain), "{driver}");
            assert_eq!((out.x.name(), out.x.handle()), ("a-window", &memory.handle()));
            assert_eq!(out.y.as_ref().map(WindowRef::handle), v.map(WindowRef::handle));
            let names = (out.f.name(), out.d.name(), out.t.name());
            assert_eq!(names, ("an endpoint", "a channel", "echo"));
            assert_eq!(out.p.as_ref().map(EndpointRef::name), o.map(EndpointRef::name));
        }
    });
}

#[test]
fn events_carry_descriptors() {
    each("rights-events", |client, _, driver| {
        for text in ["", "with more", "tried"] {
            let file = descriptor();
            match text {
                "tried" => client.try_hand(file.as_fd(), text).unwrap(),
                _ => client.hand(file.as_fd(), text).unwrap(),
            }
            match client.event_timeout(LONG).unwrap() {
                Event::Handed { file: found, number, more } => {
                    assert_eq!(inode(&found), inode(&file), "{driver}");
                    assert_eq!(more.is_some(), number > 0);
                    assert!(more.is_none_or(|more| inode(more) == inode(&file)));
                }
                other => panic!("{driver}: {other:?}"),
            }
        }
    });
}

/// Where a message arrives: a domain of its own, as another process has it.
fn arrived(window: &WindowRef) -> Domain {
    let domain = Domain::open_at(&window.runtime_directory().unwrap()).unwrap();
    assert!(window.is_in(&domain));
    domain
}

// Keeps P256.
#[test]
fn a_window_that_arrives_is_attached_and_no_other_of_its_name() {
    each("rights-window", |client, place, driver| {
        let domain = &place.domain;
        let endpoint = EndpointRef::new(domain, "an endpoint").unwrap();
        let channel = ChannelRef::<Pair>::new(domain, "a channel").unwrap();
        let service = ServiceRef::new(domain, "echo").unwrap();
        let memory = domain.window("grid", 4096).create().unwrap();
        let sent = WindowRef::of(domain, &memory).unwrap();
        let window = client.refer(&endpoint, &channel, &service, None, &sent, None).unwrap().x;
        let there = arrived(&window);
        let grid = there.attach_window_of(window.handle(), WindowRights::WRITE).unwrap();
        grid.put(100, b"a row").unwrap();
        let mut row = [0; 5];
        memory.get(100, &mut row).unwrap();
        assert_eq!(&row, b"a row", "{driver}");

        drop((memory, grid));
        let _later = domain.window("grid", 4096).create().unwrap();
        // Sent once more, it is what it was.
        let window = client.refer(&endpoint, &channel, &service, None, &window, None).unwrap().x;
        let error = there.attach_window_of(window.handle(), WindowRights::READ).unwrap_err();
        assert_eq!(error.to_string(), "window grid does not exist", "{driver}");
    });
}

/// A request with these capabilities.
fn raw(client: &mut Client, ordinal: u16, bytes: &[u8], all: &[OwnedFd]) -> Result<(), CallError> {
    let mut capabilities = Capabilities::new();
    all.iter().for_each(|one| capabilities.descriptor(one.as_fd()));
    client.as_mut().call(ordinal, bytes, &capabilities, 1 << 10, Some(LONG)).map(drop)
}

#[test]
fn the_most_capabilities_with_the_longest_notes_arrive() {
    let _turn = turn();
    let before = open_count();
    by_each_driver("rights-most", |client, place, driver| {
        let memory = place.domain.window(&"w".repeat(100), 1).create().unwrap();
        let window = WindowRef::of(&place.domain, &memory).unwrap();
        let mut capabilities = Capabilities::new();
        (0..253).for_each(|_| capabilities.window(&window));
        // The service gets them, and finds that `eight` has none.
        let ended = client.as_mut().call(11, &[0; 8], &capabilities, 1 << 10, Some(LONG));
        assert_eq!(ended.map(drop), Err(CallError::Malformed), "{driver}");
    });
    wait_for_count(before);
}

#[test]
fn other_capabilities_than_those_of_the_interface_are_refused() {
    let _turn = turn();
    let before = open_count();
    by_each_driver("rights-wrong", |client, place, driver| {
        let all = [descriptor(), descriptor(), descriptor()];
        // `eight` has none.
        assert_eq!(raw(client, 11, &[0; 8], &all[..1]), Err(CallError::Malformed), "{driver}");
        // `open` has one, and one more if its byte says so.
        let has_more = [1, 1];
        assert_eq!(raw(client, 14, &has_more, &all[..1]), Err(CallError::Malformed));
        assert_eq!(raw(client, 14, &has_more, &all[..2]), Ok(()));
        assert_eq!(raw(client, 14, &has_more, &all), Err(CallError::Malformed));
        assert_eq!(raw(client, 14, &[1, 0], &[]), Err(CallError::Malformed));
        // `hand` is one way, and not taken.
        client.as_mut().send(18, &[0; 4], &Capabilities::new(), None).unwrap();
        // A descriptor is no endpoint.
        let endpoint = EndpointRef::new(&place.domain, "an endpoint").unwrap();
        let mut capabilities = Capabilities::new();
        capabilities.endpoint(&endpoint);
        let ended = client.as_mut().call(14, &[1, 0], &capabilities, 1 << 10, Some(LONG));
        assert_eq!(ended.map(drop), Err(CallError::Malformed));
        // An endpoint is no window: `refer` has one behind a service.
        let channel = ChannelRef::<Pair>::new(&place.domain, "a channel").unwrap();
        let service = ServiceRef::new(&place.domain, "echo").unwrap();
        let mut capabilities = Capabilities::new();
        capabilities.endpoint(&endpoint);
        capabilities.channel(&channel);
        capabilities.service(&service);
        capabilities.endpoint(&endpoint);
        let ended = client.as_mut().call(17, &[0, 0], &capabilities, 1 << 10, Some(LONG));
        assert_eq!(ended.map(drop), Err(CallError::Malformed));
        // `bundles`: the second log is announced, and does not come.
        let bundle = [0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0];
        for count in [0, 3] {
            assert_eq!(raw(client, 15, &bundle, &all[..count]), Err(CallError::Malformed));
        }
    });
    wait_for_count(before);
}
