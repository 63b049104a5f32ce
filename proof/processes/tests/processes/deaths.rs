//! Senders and receivers are killed at any instruction, while others join, leave and continue to
//! read. Nothing that was sent may be lost, torn or out of order; no process may wait for a dead
//! one; nothing may be left behind.
//!
//! `COREWIRE_TORTURE_KILLS` sets the number of kills of each kind (default: 200). `COREWIRE_SEED`
//! repeats a run as far as the kernel allows.

use crate::roles::{Directory, Random, Role};
use corewire::Domain;

const CHANNEL: &str = "mortal";

fn kills() -> u64 {
    let given = std::env::var("COREWIRE_TORTURE_KILLS").ok().and_then(|text| text.parse().ok());
    given.unwrap_or(200)
}

fn receiver(directory: &Directory) -> Role {
    Role::start("receiver", directory, CHANNEL, &[])
}

fn sender(directory: &Directory) -> Role {
    let mut sender = Role::start("sender", directory, CHANNEL, &[]);
    sender.until("created");
    sender
}

/// Waits until `role` has made progress a random number of times.
fn go_on(role: &mut Role, random: &mut Random) {
    for _ in 0..=random.below(6) {
        role.until("at ");
    }
}

fn shared_memory_files() -> usize {
    std::fs::read_dir("/dev/shm").map_or(0, Iterator::count)
}

// Keeps P1, P10.
#[test]
fn receivers_die_and_the_others_read_on() {
    let directory = Directory::new("receivers-die");
    let mut random = Random::from_environment();
    let mut sender = sender(&directory);
    let mut readers: Vec<Role> = (0..3).map(|_| receiver(&directory)).collect();
    for reader in &mut readers {
        reader.until("joined");
    }
    for _ in 0..kills() {
        let victim = usize::try_from(random.below(3)).unwrap();
        go_on(&mut readers[(victim + 1) % 3], &mut random);
        match random.below(4) {
            // One in four leaves instead.
            0 => {
                readers[victim].hang_up();
                readers[victim].until("left");
                assert!(readers[victim].is_success());
            }
            _ => readers[victim].kill(),
        }
        readers[victim] = receiver(&directory);
        readers[victim].until("joined");
    }
    sender.hang_up();
    let sent = sender.until("closed");
    for reader in &mut readers {
        assert_eq!(reader.until("ended"), sent);
        assert!(reader.is_success());
    }
    assert!(sender.is_success());
}

// Keeps P4, P9, P14, P32.
#[test]
fn senders_die_and_every_receiver_gets_the_same() {
    let directory = Directory::new("senders-die");
    let mut random = Random::from_environment();
    let before = shared_memory_files();
    for _ in 0..kills() {
        // Receivers that wait get the first message; one joins later.
        let mut readers: Vec<Role> = (0..2).map(|_| receiver(&directory)).collect();
        let mut sender = sender(&directory);
        readers.push(receiver(&directory));
        readers[2].until("joined");
        go_on(&mut readers[usize::try_from(random.below(2)).unwrap()], &mut random);
        sender.kill();
        let ends: Vec<String> = readers.iter_mut().map(|reader| reader.until("died")).collect();
        assert!(ends.iter().all(|end| *end == ends[0]), "{ends:?}");
        assert!(readers.iter_mut().all(Role::is_success));
    }
    // The next process removes the files of the dead ones.
    let domain = Domain::open_at(directory.path()).unwrap();
    assert!(domain.channels().unwrap().is_empty());
    assert_eq!(directory.files().len(), 1, "{:?}", directory.files());
    drop(domain);
    assert!(directory.files().is_empty(), "{:?}", directory.files());
    assert_eq!(shared_memory_files(), before);
}

// Keeps P11.
#[test]
fn a_sender_that_waits_for_room_goes_on_when_the_one_it_waits_for_dies() {
    let directory = Directory::new("blocked");
    let mut sender = sender(&directory);
    for _ in 0..20 {
        let mut reader = receiver(&directory);
        reader.until("joined");
        // A stopped receiver is not dead: the sender waits for it once the ring is full.
        reader.stop();
        wait_until_waiting(&directory);
        reader.kill();
        for _ in 0..3 {
            sender.until("at ");
        }
    }
}

/// Waits until the sender's counters show that it sleeps for lack of room.
fn wait_until_waiting(directory: &Directory) {
    let domain = Domain::open_at(directory.path()).unwrap();
    let sleeps = || {
        let view = domain.observe(CHANNEL).unwrap().look();
        let sleeps = view.counters.iter().find(|(name, _)| *name == "sleeps").unwrap().1;
        (sleeps, view.sent)
    };
    let (before, _) = sleeps();
    loop {
        let (now, sent) = sleeps();
        let view = domain.observe(CHANNEL).unwrap().look();
        let is_full = view.receivers.iter().any(|receiver| receiver.lag >= 256);
        if (now > before || is_full) && view.sent == sent {
            return;
        }
        std::thread::yield_now();
    }
}
