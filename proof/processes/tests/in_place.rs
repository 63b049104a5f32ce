//! Messages between processes that are read where they were written: whichever process dies, they stay as they are, and the memory
//! comes back. A process of its own: it measures the memory that its process has mapped.
//!
//! `COREWIRE_TORTURE_KILLS` sets the number of deaths (default: 60), `COREWIRE_BURST_BYTES` the bytes that each of four
//! senders sends (default: 16 MiB). `COREWIRE_SEED` repeats a run as far as the kernel allows.

mod roles;

use std::fs;
use std::time::{Duration, Instant};

use corewire::{Domain, MessageError, OwnedMessage, Selector};
use corewire_processes::talk::bytes_of;
use roles::{Directory, Random, Role};

const LONG: Duration = Duration::from_secs(60);

fn from_environment(name: &str, default: u64) -> u64 {
    let given = std::env::var(name).ok().and_then(|text| text.parse().ok());
    given.unwrap_or(default)
}

fn kills() -> u64 {
    from_environment("COREWIRE_TORTURE_KILLS", 60)
}

fn spin(microseconds: u64) {
    let end = Instant::now() + Duration::from_micros(microseconds);
    while Instant::now() < end {
        std::hint::spin_loop();
    }
}

fn check(message: &OwnedMessage) {
    assert!(
        *message == bytes_of(message.tag(), message.len()),
        "message {} changed",
        message.tag()
    );
}

#[test]
fn what_a_dead_sender_wrote_stays_as_it_is() {
    let directory = Directory::new("in-place-senders-die");
    let domain = Domain::open_at(directory.path()).unwrap();
    let mut endpoint = domain.endpoint("parent").create().unwrap();
    let mut random = Random::from_environment();
    let start = |number: u64| {
        let name = format!("burst-{number}");
        (Role::start("burst", &directory, &name, &["count=1000000000000"]), name)
    };
    let mut held: Vec<OwnedMessage> = Vec::new();
    let mut next = start(0);
    for number in 1..=kills() {
        let (mut role, name) = std::mem::replace(&mut next, start(number));
        let peer = endpoint.peer_when_created(&name, Some(LONG)).unwrap();
        let after = random.below(3000);
        let mut due = 0;
        let error = std::thread::scope(|scope| {
            scope.spawn(|| {
                spin(after);
                role.kill();
            });
            loop {
                match endpoint.receive(Selector::any().from(peer)) {
                    Ok(message) => {
                        assert_eq!(message.tag(), due, "in order");
                        due += 1;
                        check(&message);
                        if random.below(10) == 0 {
                            held.push(message);
                        }
                    }
                    Err(error) => break error,
                }
            }
        });
        assert!(matches!(error, MessageError::PeerDied { .. }), "{error}");
        held.iter().for_each(check);
        while held.len() > 30 {
            held.swap_remove(usize::try_from(random.below(30)).unwrap());
        }
    }
    assert!(endpoint.counter("in_place").unwrap() > 0);
    assert_eq!(endpoint.counter("violations"), Ok(0));
}

#[test]
fn a_receiver_that_dies_gives_all_memory_back() {
    let directory = Directory::new("in-place-receivers-die");
    let domain = Domain::open_at(directory.path()).unwrap();
    // Two of the messages that it may hold fill it.
    let mut endpoint = domain.endpoint("parent").heap(1 << 20).create().unwrap();
    let mut random = Random::from_environment();
    for number in 0..kills() {
        let name = format!("hold-{number}");
        let mut role = Role::start("hold", &directory, &name, &[]);
        role.until("ready");
        let peer = endpoint.peer_when_created(&name, Some(LONG)).unwrap();
        let after = random.below(3000);
        let error = std::thread::scope(|scope| {
            scope.spawn(|| {
                spin(after);
                role.kill();
            });
            let mut number = 0u64;
            loop {
                let length = usize::try_from(161 + number * 7919 % 40_000).unwrap();
                if let Err(error) = endpoint.send(peer, number, &bytes_of(number, length)) {
                    break error;
                }
                number += 1;
            }
        });
        assert!(matches!(error, MessageError::PeerDied { .. }), "{error}");
    }
    // All of the heap can be lent again.
    let mut reader = domain.endpoint("reader").peers(1).grants(64 << 20).create().unwrap();
    let peer = endpoint.peer("reader").unwrap();
    reader.peer("parent").unwrap();
    let loan = loop {
        reader.progress().unwrap();
        match endpoint.now().loan(peer, 512 << 10) {
            Ok(loan) if loan.is_in_place() => break loan,
            Ok(_) | Err(MessageError::ReceiverFull { .. }) => endpoint.progress().unwrap(),
            Err(error) => panic!("{error}"),
        };
    };
    drop(loan);
}

/// Bytes of memory that these processes have, shared pages counted once.
fn resident(processes: &[u32]) -> u64 {
    let of_one = |process: &u32| {
        let text = fs::read_to_string(format!("/proc/{process}/smaps_rollup")).unwrap_or_default();
        let line = text.lines().find(|line| line.starts_with("Pss_Shmem:"));
        let number = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok());
        1024 * number.unwrap_or(0)
    };
    processes.iter().map(of_one).sum()
}

// Keeps P136.
#[test]
fn bursts_of_four_senders_take_little_memory() {
    const GRANTS: u64 = 1 << 20;
    let directory = Directory::new("in-place-bursts");
    let domain = Domain::open_at(directory.path()).unwrap();
    let bytes = from_environment("COREWIRE_BURST_BYTES", 16 << 20);
    for refuses in [false, true] {
        let grants = usize::try_from(GRANTS).unwrap();
        let builder = domain.endpoint("parent").peers(8).grants(grants);
        let builder = if refuses { builder.refuse_beyond_grants() } else { builder };
        let mut endpoint = builder.create().unwrap();
        let count = format!("count={bytes}");
        let mut senders: Vec<_> = (0..4)
            .map(|index| {
                let name = format!("burst-{refuses}-{index}");
                let role = Role::start("burst", &directory, &name, &[&count]);
                let peer = endpoint.peer_when_created(&name, Some(LONG)).unwrap();
                (role, peer, 0u64, 0u64)
            })
            .collect();
        let mut processes: Vec<u32> = senders.iter().map(|sender| sender.0.id()).collect();
        processes.push(std::process::id());
        let mut random = Random::from_environment();
        let (mut held, mut most, mut turns) = (Vec::new(), 0, 0u64);
        while senders.iter().any(|sender| sender.3 < bytes) {
            let message = endpoint.receive(Selector::any()).unwrap();
            let sender = senders.iter_mut().find(|sender| sender.1 == message.source());
            let (_, _, due, got) = sender.expect("one of the four");
            assert_eq!(message.tag(), *due, "in order of its sender");
            check(&message);
            *due += 1;
            *got += message.len() as u64;
            held.push(message);
            if held.len() > 8 {
                let message = held.swap_remove(usize::try_from(random.below(8)).unwrap());
                check(&message);
            }
            turns += 1;
            if turns.is_multiple_of(200) {
                most = most.max(resident(&processes));
            }
        }
        drop(held);
        let nacks: u64 = senders
            .iter_mut()
            .map(|sender| {
                sender.0.until("nacks ").trim_start_matches("nacks ").parse::<u64>().unwrap()
            })
            .sum();
        assert!(nacks > 0, "more than the grant was sent");
        assert!(endpoint.counter("in_place").unwrap() > turns / 10);
        assert!(most > 0 && most <= GRANTS + (16 << 20), "{most} bytes of shared memory");
        println!("{turns} messages, {nacks} refused, at most {most} bytes of shared memory");
    }
}
