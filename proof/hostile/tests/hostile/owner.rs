//! An owner that answers anything to a process that joins or observes its channel. The joiner gets
//! an error, or a receiver that can be used safely. Another channel of its process loses nothing,
//! and nothing of the attempt is left.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;

use crate::wire::{
    CHANNEL, Census, Directory, Live, Raw, alone, borrow, memfd, odd_descriptors, page,
};
use corewire::{Domain, JoinError, ReceiveError};
use corewire_hostile::Random;
use corewire_layout::frame::{Frame, Reason, Welcome};
use corewire_layout::geometry::Geometry;
use corewire_layout::name::{ChannelName, NameKind, NameRecord};
use corewire_layout::segment::DoorState;
use corewire_layout::segment::{
    FenceMode, HINT_SEGMENT_BYTES, Policy, SenderHeader, TypeTag, tenure,
};
use corewire_layout::slot::stamp_of;
use corewire_os::directory::{Claim, Role, RuntimeDirectory};
use corewire_os::event::{Bell, wait_readable};
use corewire_os::memory::{MemoryOptions, Segment};
use corewire_os::process;
use corewire_os::socket::Listener;
use corewire_ring::broadcast::SenderWords;
use corewire_ring::region::{Region, Slots};
use rustix::fs::SealFlags;
use rustix::io::Errno;
use zerocopy::IntoBytes;

const NAME: &str = "trap";

/// An owner that holds a channel's name and answers by hand.
struct Owner {
    listener: Listener,
    _directory: RuntimeDirectory,
    _claim: Claim,
}

impl Owner {
    fn new(directory: &Directory) -> Self {
        Self::of(directory, &ChannelName::new(NAME).unwrap())
    }

    fn of(directory: &Directory, name: &ChannelName) -> Self {
        let directory = RuntimeDirectory::open(&directory.0, Role::Owner).unwrap();
        let (listener, socket) = directory.listen().unwrap();
        let claim = directory.claim(name).unwrap();
        let kind = NameKind::Channel;
        claim.write(NameRecord { kind, socket, incarnation: 5 }).unwrap();
        Self { listener, _directory: directory, _claim: claim }
    }

    /// Accepts the next connection, and reads its request.
    fn accept(&self) -> Raw {
        wait_readable(&[self.listener.as_fd()], None).unwrap();
        self.try_accept().unwrap()
    }

    /// Accepts a connection that waits, and reads its request.
    fn try_accept(&self) -> Option<Raw> {
        let socket = match self.listener.accept() {
            Err(error) if error.errno == Errno::AGAIN.raw_os_error() => return None,
            socket => socket.unwrap(),
        };
        rustix::io::ioctl_fionbio(&socket, false).unwrap();
        let raw = Raw(socket.into_fd());
        let _ = raw.hear();
        Some(raw)
    }

    /// Runs `job`, which joins from this process, while this owner answers each connection with `script`: a joiner that
    /// was told of a relay connects again.
    fn answer<R: Send>(&self, script: impl Fn(&Raw) + Sync, job: impl FnOnce() -> R) -> R {
        let is_over = Bell::new().unwrap();
        thread::scope(|scope| {
            let answering = scope.spawn(|| {
                let mut connections = Vec::new();
                loop {
                    wait_readable(&[self.listener.as_fd(), is_over.as_fd()], None).unwrap();
                    let Some(raw) = self.try_accept() else { return connections };
                    script(&raw);
                    connections.push(raw);
                }
            });
            let over = Over(&is_over);
            let result = job();
            drop(over);
            drop(answering.join().unwrap());
            result
        })
    }
}

/// Rings at its end, also by a panic.
struct Over<'a>(&'a Bell);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.ring();
    }
}

fn geometry() -> Geometry {
    Geometry::new(4, 1024, 2000, 9).unwrap()
}

fn header(policy: Policy) -> SenderHeader {
    SenderHeader {
        geometry: geometry(),
        fence_mode: FenceMode::Asymmetric,
        policy,
        type_tag: TypeTag::default(),
        incarnation: 5,
        pid: 1,
    }
}

fn segment(raw_header: &[u8]) -> (Segment, Region) {
    let (segment, region) =
        Segment::create(geometry().segment_bytes(), MemoryOptions::default()).unwrap();
    region.copy_in(0, raw_header);
    (segment, region)
}

fn welcome() -> Welcome {
    Welcome {
        row: 0,
        start: 0,
        epoch: 0,
        incarnation: 5,
        hint: false,
        table: false,
        settled: 0,
        generation: 1,
    }
}

/// Tries to join in place and by copying, and uses each receiver: whatever the owner said, this
/// does no harm. Returns whether each join succeeded.
fn use_receivers(domain: &Domain, owner: &Owner, script: impl Fn(&Raw) + Sync) -> [bool; 2] {
    let in_place = owner.answer(&script, || match domain.receiver(NAME).join() {
        Ok(mut receiver) => {
            for _ in 0..20 {
                let _ = receiver.try_receive().map(|message| message.map(|m| m.to_vec()));
            }
            true
        }
        Err(_) => false,
    });
    let copying = owner.answer(&script, || match domain.receiver(NAME).snapshots().join() {
        Ok(mut receiver) => {
            for _ in 0..20 {
                let _ = receiver.try_receive().map(|found| found.map(|mut found| found.to_vec()));
            }
            true
        }
        Err(_) => false,
    });
    [in_place, copying]
}

/// A live channel and a hostile owner in one directory, and the census before the test.
fn scene(name: &str) -> (Directory, Live, Owner, Census) {
    let directory = Directory::new(name);
    let live = Live::new(&directory);
    let owner = Owner::new(&directory);
    let before = Census::at_rest();
    (directory, live, owner, before)
}

/// A relay dies, and its stamps say that it had sent more than is possible. A receiver that read
/// its ring must not continue from there.
#[test]
fn what_a_dead_relay_has_left_is_not_believed() {
    let _alone = alone();
    let (directory, live, sender, before) = scene("relay");
    let name = ChannelName::new(NAME).unwrap().relayed(3);
    let relay = Owner::of(&directory, &name);
    let life = process::own_life().unwrap();
    // The lower half holds the incarnation of the channel that it relays.
    let incarnation = 7 << 64 | 5;
    let own = SenderHeader { incarnation, ..header(Policy::Block) }.to_raw();
    let (relayed, ring) = segment(own.as_bytes());
    let (sent, _) = segment(header(Policy::Block).to_raw().as_bytes());
    thread::scope(|scope| {
        let answering = scope.spawn(|| {
            let pointed = sender.accept();
            assert!(pointed.say(&Frame::Relayed { channel: 5, relay: 0 }, &[]));
            let welcome = Welcome { incarnation, ..welcome() };
            let joined = relay.accept();
            assert!(joined.say(&Frame::Welcome(welcome), &[relayed.as_fd(), life.as_fd()]));
            let followed = sender.accept();
            let answer = Frame::Relayed { channel: 5, relay: incarnation };
            assert!(followed.say(&answer, &[sent.as_fd(), life.as_fd()]));
            (joined, followed)
        });
        let mut receiver = live.domain.receiver(NAME).cache_domain(3).join().unwrap();
        let (joined, followed) = answering.join().unwrap();
        let slots = Slots::new(&ring, &geometry());
        slots.at(0).stamp().store(stamp_of(1 << 50), Relaxed);
        let door = SenderWords::new(ring.clone());
        door.door_tenure(0).store(tenure(1, DoorState::Joined), Relaxed);
        drop(joined);
        for _ in 0..2 {
            let found = receiver.receive().map(drop);
            assert!(matches!(found, Err(ReceiveError::Violation(_))), "{found:?}");
        }
        drop(followed);
    });
    drop(relay);
    drop((relayed, ring, sent, life));
    before.is_back();
    live.finish();
}

#[test]
fn an_impossible_welcome_is_an_error() {
    let _alone = alone();
    let (_directory, mut live, owner, before) = scene("welcome");
    let honest = header(Policy::Evict { after_ns: 5 }).to_raw();
    let (segment, region) = segment(honest.as_bytes());
    let life = process::own_life().unwrap();
    let domain = live.domain.clone();
    let mut try_one = |welcome: Welcome| {
        live.send();
        let say = |raw: &Raw| {
            raw.say(&Frame::Welcome(welcome), &[segment.as_fd(), life.as_fd()]);
        };
        use_receivers(&domain, &owner, say)
    };
    // A channel that evicts cannot be joined in place.
    assert_eq!(try_one(welcome()), [false, true]);
    for row in [9, 10, 31, 32, 1023, 1024, 1 << 25, u32::MAX / 128, u32::MAX] {
        assert_eq!(try_one(Welcome { row, ..welcome() }), [false, false], "row {row}");
    }
    for start in [u64::MAX / 2 + 1, u64::MAX - 1, u64::MAX] {
        assert_eq!(try_one(Welcome { start, ..welcome() }), [false, false], "start {start}");
    }
    // The owner is free to choose these; they do no harm.
    for number in [1, 4, 1 << 31, 1 << 52, u64::MAX / 2] {
        let small = u32::try_from(number).unwrap_or(u32::MAX);
        for welcome in [
            Welcome { start: number, ..welcome() },
            Welcome { settled: number, ..welcome() },
            Welcome { epoch: small, ..welcome() },
            Welcome { generation: small, ..welcome() },
        ] {
            assert_eq!(try_one(welcome), [false, true], "{welcome:?}");
        }
    }
    assert_eq!(try_one(Welcome { incarnation: 6, ..welcome() }), [false, false]);
    assert_eq!(try_one(Welcome { hint: true, ..welcome() }), [false, false]);
    drop((segment, region, life));
    before.is_back();
    live.finish();
}

#[test]
fn an_impossible_header_is_an_error() {
    let _alone = alone();
    let (_directory, mut live, owner, before) = scene("header");
    let life = process::own_life().unwrap();
    let domain = live.domain.clone();
    let values = [0, 1, 2, 3, 5, 255, 1 << 16, 1 << 31, 1 << 40, u64::MAX / 2, u64::MAX];
    for at in (8..168).step_by(4) {
        for value in values {
            let mut raw = header(Policy::Block).to_raw().as_bytes().to_vec();
            raw[at..at + 4].copy_from_slice(&value.to_le_bytes()[..4]);
            let (segment, region) = segment(&raw);
            // One message is there for a receiver that joins.
            let slots = Slots::new(&region, &geometry());
            slots.at(0).header().store(value, Relaxed);
            slots.at(0).stamp().store(stamp_of(0), Relaxed);
            use_receivers(&domain, &owner, |raw| {
                raw.say(&Frame::Welcome(welcome()), &[segment.as_fd(), life.as_fd()]);
            });
        }
        live.send();
    }
    // Then each byte alone.
    for at in 0..168 {
        let mut raw = header(Policy::Block).to_raw().as_bytes().to_vec();
        raw[at] ^= 0x41;
        let (segment, _region) = segment(&raw);
        let say = |raw: &Raw| {
            raw.say(&Frame::Welcome(welcome()), &[segment.as_fd(), life.as_fd()]);
        };
        let joined = use_receivers(&domain, &owner, say);
        // Fields that the owner is free to choose: its process, and a longest message that needs the
        // same number of pages. Plain bytes have neither hash, size nor name of a type.
        let is_free = [32..33, 80..84, 88..96].iter().any(|range| range.contains(&at));
        assert_eq!(joined, [is_free, is_free], "byte {at}");
    }
    drop(life);
    before.is_back();
    live.finish();
}

#[test]
fn wrong_descriptors_are_an_error() {
    let _alone = alone();
    let (_directory, mut live, owner, before) = scene("odd");
    let domain = live.domain.clone();
    let life = process::own_life().unwrap();
    let honest = header(Policy::Block).to_raw();
    let (segment, region) = segment(honest.as_bytes());
    let refused = |welcome: Welcome, descriptors: &[BorrowedFd<'_>]| {
        let say = |raw: &Raw| {
            raw.say(&Frame::Welcome(welcome), descriptors);
        };
        assert_eq!(use_receivers(&domain, &owner, say), [false, false]);
    };
    for (_, odd) in odd_descriptors() {
        refused(welcome(), &[odd.as_fd(), life.as_fd()]);
        // The same in place of the hint.
        let hinted = Welcome { hint: true, ..welcome() };
        let is_page = rustix::fs::fstat(&odd).unwrap().st_size == HINT_SEGMENT_BYTES as i64;
        if !is_page {
            refused(hinted, &[segment.as_fd(), life.as_fd(), odd.as_fd()]);
        }
        live.send();
    }
    // Sealed against all writing, so it cannot be mapped writable.
    let seals = SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE;
    let stiff = memfd(HINT_SEGMENT_BYTES as u64, seals);
    refused(Welcome { hint: true, ..welcome() }, &[segment.as_fd(), life.as_fd(), stiff.as_fd()]);
    refused(welcome(), &[]);
    refused(welcome(), &[segment.as_fd()]);
    let many: Vec<OwnedFd> = (0..60).map(|_| life.as_fd().try_clone_to_owned().unwrap()).collect();
    refused(welcome(), &borrow(&many));
    drop((segment, region, life, stiff, many));
    before.is_back();
    live.finish();
}

// Keeps P35.
#[test]
fn any_frames_for_an_answer_are_an_error() {
    let _alone = alone();
    let (_directory, mut live, owner, before) = scene("answers");
    let domain = live.domain.clone();
    let mut random = Random::from_environment();
    let answers = [
        Frame::Welcome(welcome()),
        Frame::Refused(Reason::Full { max: 3 }),
        Frame::Readiness,
        Frame::Ring,
        Frame::Done,
        Frame::Leave,
        Frame::Observe { name: ChannelName::new(NAME).unwrap() },
        Frame::Observed { count: u32::MAX, joining: vec![1; 44] },
        Frame::ObservedEndpoint,
        Frame::Rows(vec![1, 2, 3]),
        Frame::Connect { name: ChannelName::new(NAME).unwrap() },
    ];
    for round in 0..600 {
        let mut packet = answers[round % answers.len()].to_bytes().to_vec();
        match random.below(6) {
            0 => packet.truncate(usize::try_from(random.below(257)).unwrap()),
            1 => packet.resize(1 + usize::try_from(random.below(5000)).unwrap(), 1),
            2 => {}
            _ => {
                let at = usize::try_from(random.below(256)).unwrap();
                packet[at] ^= 1 << random.below(8);
            }
        }
        let say = |raw: &Raw| {
            raw.send(&packet, &[]);
        };
        // The name exists all the time; other callers would wait on `NotFound`.
        assert!(owner.answer(say, || domain.receiver(NAME).join()).is_err());
        assert!(owner.answer(say, || domain.observe(NAME)).is_err());
        live.send();
    }
    before.is_back();
    live.finish();
}

#[test]
fn an_observer_takes_no_more_rows_than_there_can_be() {
    let _alone = alone();
    let (_directory, live, owner, before) = scene("rows");
    let domain = live.domain.clone();
    let honest = header(Policy::Block).to_raw();
    let (segment, region) = segment(honest.as_bytes());
    let (row, _page) = page();
    for (count, rows, is_taken) in [
        (9, vec![0, 1, 2, 3, 4, 5, 6, 7, 8], true),
        // The same row several times, which is only odd.
        (3, vec![0, 0, 0], true),
        (1, vec![9], false),
        (1, vec![u16::MAX], false),
        (10, vec![0; 10], false),
        (u32::MAX, vec![0; 50], false),
        (2, vec![], false),
    ] {
        let say = |raw: &Raw| {
            raw.say(&Frame::Observed { count, joining: vec![] }, &[segment.as_fd()]);
            let segments: Vec<_> = rows.iter().map(|_| row.as_fd()).collect();
            while raw.say(&Frame::Rows(rows.clone()), &segments) && count > 10 {}
        };
        let observer = owner.answer(say, || domain.observe(NAME).map(|observer| observer.look()));
        assert_eq!(observer.is_ok(), is_taken, "{count} rows: {observer:?}");
    }
    drop((segment, region, row, _page));
    before.is_back();
    live.finish();
}

/// An endless stream of frames on an established link: the joiner's other links must still be
/// served.
#[test]
fn a_flood_on_a_link_leaves_time_for_the_others() {
    let _alone = alone();
    let (_directory, mut live, owner, before) = scene("link");
    let domain = live.domain.clone();
    let life = process::own_life().unwrap();
    let honest = header(Policy::Block).to_raw();
    let (segment, region) = segment(honest.as_bytes());
    let words = SenderWords::new(region.clone());
    words.door_tenure(0).store(tenure(1, DoorState::Joined), Relaxed);
    for frame in [Frame::Done, Frame::Ring, Frame::Refused(Reason::Malformed)] {
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            let flood = scope.spawn(|| {
                let raw = owner.accept();
                assert!(raw.say(&Frame::Welcome(welcome()), &[segment.as_fd(), life.as_fd()]));
                let mut count = 0u64;
                while !is_over.load(Relaxed) && raw.say(&frame, &[]) {
                    count += 1;
                }
                (raw, count)
            });
            let mut receiver = domain.receiver(NAME).join().unwrap();
            for _ in 0..200 {
                live.send();
                let _ = domain.observe(CHANNEL).unwrap().look();
                assert!(receiver.try_receive().unwrap().is_none());
            }
            is_over.store(true, Relaxed);
            let (raw, count) = flood.join().unwrap();
            println!("{count} frames of one kind on a link");
            // The receiver still works; then the owner hangs up without a word.
            assert!(receiver.try_receive().unwrap().is_none());
            drop(raw);
            loop {
                match receiver.try_receive() {
                    Ok(_) => {}
                    Err(error) => break assert_eq!(error, ReceiveError::SenderDied),
                }
            }
        });
    }
    drop((words, segment, region, life));
    before.is_back();
    live.finish();
}

#[test]
fn an_end_that_is_not_after_the_last_message_is_noticed() {
    let _alone = alone();
    let (_directory, live, owner, before) = scene("end");
    let domain = live.domain.clone();
    let life = process::own_life().unwrap();
    let honest = header(Policy::Block).to_raw();
    let (segment, region) = segment(honest.as_bytes());
    // One message is there.
    Slots::new(&region, &geometry()).at(0).stamp().store(stamp_of(0), Relaxed);
    let words = SenderWords::new(region.clone());
    for sent in [0, 1, 2, 3, 1 << 52, u64::MAX - 1] {
        words.closed().store(sent + 1, Relaxed);
        let say = |raw: &Raw| {
            raw.say(&Frame::Welcome(welcome()), &[segment.as_fd(), life.as_fd()]);
        };
        let error = owner.answer(say, || {
            let mut receiver = domain.receiver(NAME).join().unwrap();
            assert!(receiver.receive().unwrap().is_empty());
            receiver.receive().map(|message| message.len()).unwrap_err()
        });
        let is_right = match sent {
            1 => error == ReceiveError::EndOfStream,
            _ => matches!(error, ReceiveError::Violation(_)),
        };
        assert!(is_right, "{sent} messages, it says: {error}");
    }
    drop((words, segment, region, life));
    before.is_back();
    live.finish();
}

/// Invalid data on a link ends it, as a hang-up does.
#[test]
fn nonsense_on_a_link_ends_it() {
    let _alone = alone();
    let (_directory, live, owner, before) = scene("nonsense");
    let domain = live.domain.clone();
    let life = process::own_life().unwrap();
    let honest = header(Policy::Block).to_raw();
    let (segment, region) = segment(honest.as_bytes());
    region.word64(4096).store(tenure(1, DoorState::Joined), Relaxed);
    let packets: [Vec<u8>; 5] = [
        vec![1],
        vec![0; 256],
        vec![7; 4000],
        Frame::Welcome(welcome()).to_bytes().into(),
        Frame::Leave.to_bytes().into(),
    ];
    for packet in packets {
        let say = |raw: &Raw| {
            raw.say(&Frame::Welcome(welcome()), &[segment.as_fd(), life.as_fd()]);
            raw.send(&packet, &[]);
        };
        let error = owner.answer(say, || {
            let mut receiver = domain.receiver(NAME).join()?;
            Ok::<_, JoinError>(receiver.receive().map(|message| message.len()).unwrap_err())
        });
        assert_eq!(error.unwrap(), ReceiveError::SenderDied);
    }
    drop((segment, region, life));
    before.is_back();
    live.finish();
}
