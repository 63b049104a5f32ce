//! Messages that a receiver holds, of a sender in another process.

use std::thread;

use crate::roles::{Directory, Role};
use corewire::{Domain, HeldMessage, ReceiveError, Receiver};

const CHANNEL: &str = "held";

/// A held message, and what it contained when it came.
struct Kept {
    held: HeldMessage,
    copy: Vec<u8>,
}

impl Kept {
    #[track_caller]
    fn check(&self) {
        assert!(self.held[..] == self.copy[..], "message {} has changed", self.held.sequence());
    }
}

fn sender(directory: &Directory) -> Role {
    let mut sender = Role::start("sender", directory, CHANNEL, &[]);
    sender.until("created");
    sender
}

/// How often the sender has slept for lack of room.
fn sleeps(domain: &Domain) -> u64 {
    let counters = domain.observe(CHANNEL).unwrap().look().counters;
    counters.iter().find(|(name, _)| *name == "sleeps").unwrap().1
}

/// Holds messages until the sender has no more room and sleeps.
fn hold_all(receiver: &mut Receiver, domain: &Domain) -> Vec<Kept> {
    let mut kept = Vec::new();
    let before = sleeps(domain);
    loop {
        let now = sleeps(domain);
        while let Some(message) = receiver.try_receive().unwrap() {
            let copy = message.to_vec();
            kept.push(Kept { held: message.hold(), copy });
        }
        // Nothing was released: a sender that has slept since waits for these messages.
        if now > before && !kept.is_empty() {
            return kept;
        }
        thread::yield_now();
    }
}

// Keeps P141.
/// The receiver is in no call while another thread releases what it held.
#[test]
fn a_release_by_another_thread_wakes_a_sender_in_another_process() {
    let directory = Directory::new("held-release");
    let mut sender = sender(&directory);
    let domain = Domain::open_at(directory.path()).unwrap();
    let mut receiver = domain.receiver(CHANNEL).join().unwrap();
    let observer = domain.observe(CHANNEL).unwrap();
    for _ in 0..50 {
        let kept = hold_all(&mut receiver, &domain);
        let sent = observer.look().sent;
        // The newest first: only the last one, the oldest, makes room.
        let releasing = thread::spawn(move || {
            kept.iter().for_each(Kept::check);
            kept.into_iter().rev().for_each(|one| one.check());
        });
        releasing.join().unwrap();
        while observer.look().sent == sent {
            thread::yield_now();
        }
    }
    let view = observer.look();
    assert_eq!(view.counters.iter().find(|(name, _)| *name == "cap_finds").unwrap().1, 0);
    sender.hang_up();
    receiver.for_each(|_| {}).unwrap();
    sender.until("closed");
    assert!(sender.is_success());
}

// Keeps P142.
#[test]
fn held_messages_of_a_sender_that_dies_stay_whole() {
    let directory = Directory::new("held-death");
    for _ in 0..20 {
        let mut sender = sender(&directory);
        let domain = Domain::open_at(directory.path()).unwrap();
        let mut receiver = domain.receiver(CHANNEL).join().unwrap();
        let mut kept = hold_all(&mut receiver, &domain);
        sender.kill();
        let end = loop {
            match receiver.receive() {
                Ok(message) => drop(message),
                Err(end) => break end,
            }
        };
        assert_eq!(end, ReceiveError::SenderDied);
        drop(receiver);
        drop(domain);
        while kept.len() > 1 {
            drop(kept.swap_remove(kept.len() / 2));
        }
        kept.iter().for_each(Kept::check);
    }
}

// Keeps P142.
/// A process that holds messages is killed, and the sender goes on.
#[test]
fn a_receiver_that_dies_holds_nothing() {
    let directory = Directory::new("held-receiver-death");
    let mut sender = sender(&directory);
    let domain = Domain::open_at(directory.path()).unwrap();
    for _ in 0..20 {
        let before = sleeps(&domain);
        let mut holder = Role::start("receiver", &directory, CHANNEL, &["keep"]);
        holder.until("joined");
        // What it holds is never released, so a sender that sleeps waits for its death.
        while sleeps(&domain) == before {
            thread::yield_now();
        }
        holder.kill();
        for _ in 0..3 {
            sender.until("at ");
        }
    }
}
