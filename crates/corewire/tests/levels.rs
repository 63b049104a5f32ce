//! Channels on two levels: every receiver of a group gets every message, whatever becomes of the relay.

mod scratch;

use std::time::Duration;

use corewire::{CreateError, Domain, JoinError, Levels, ReceiveError, Receiver, Sender};
use scratch::Scratch;

/// Last-level caches: that of the sender, and another.
const HOME: u32 = 0;
const AFAR: u32 = 7;

fn sender(domain: &Domain, name: &str) -> Sender {
    domain.sender(name).levels(Levels::Two).cache_domain(HOME).create().unwrap()
}

fn receiver(domain: &Domain, name: &str, group: u32) -> Receiver {
    domain.receiver(name).cache_domain(group).join().unwrap()
}

fn next_number(receiver: &mut Receiver) -> u64 {
    let sequence = receiver.next_sequence();
    let message = receiver.receive().unwrap();
    assert_eq!(message.sequence(), sequence);
    u64::from_le_bytes(message[..8].try_into().unwrap())
}

#[test]
fn receivers_at_both_caches_get_every_message_in_order() {
    let scratch = Scratch::new("levels-order");
    let domain = scratch.domain();
    let mut sender = sender(domain, "two");
    let groups = [HOME, AFAR, AFAR, 8];
    let receivers: Vec<_> = groups.iter().map(|&group| receiver(domain, "two", group)).collect();
    assert_eq!(sender.receivers(), groups.len());
    let names: Vec<_> = domain.channels().unwrap().iter().map(ToString::to_string).collect();
    assert_eq!(names, ["two", "two@7", "two@8"]);
    std::thread::scope(|scope| {
        for mut receiver in receivers {
            scope.spawn(move || {
                for number in 0..20_000 {
                    assert_eq!(next_number(&mut receiver), number);
                }
                let ended = receiver.receive().map(drop);
                assert_eq!(ended, Err(ReceiveError::EndOfStream));
            });
        }
        for number in 0..20_000u64 {
            // In a slot, and in the window.
            let bytes = if number % 7 == 0 { 1000 } else { 48 };
            let mut message = vec![0; bytes];
            message[..8].copy_from_slice(&number.to_le_bytes());
            sender.send(&message).unwrap();
        }
        drop(sender);
    });
}

#[test]
fn when_the_relay_leaves_the_others_go_on_without_loss() {
    let scratch = Scratch::new("levels-leave");
    let domain = scratch.domain();
    let mut sender = sender(domain, "two");
    let mut receivers: Vec<_> = (0..4).map(|_| receiver(domain, "two", AFAR)).collect();
    let mut number = 0u64;
    while !receivers.is_empty() {
        for _ in 0..100 {
            sender.send(&number.to_le_bytes()).unwrap();
            number += 1;
        }
        for receiver in &mut receivers[1..] {
            for expected in number - 100..number - 50 {
                assert_eq!(next_number(receiver), expected);
            }
        }
        // The first to join has made the relay; whoever makes the next one, all go on.
        drop(receivers.remove(0));
        for receiver in &mut receivers {
            for expected in number - 50..number {
                assert_eq!(next_number(receiver), expected);
            }
        }
        // The sender learns of it on its own thread.
        while sender.receivers() != receivers.len() {
            std::thread::yield_now();
        }
    }
    // Nobody is left who could hold it up.
    for _ in 0..40_000u64 {
        sender.send(&number.to_le_bytes()).unwrap();
    }
}

#[test]
fn receivers_that_wait_for_the_channel_get_its_first_message() {
    let scratch = Scratch::new("levels-first");
    let domain = scratch.domain();
    std::thread::scope(|scope| {
        for _ in 0..3 {
            let waiting = domain.receiver("two").cache_domain(AFAR);
            scope.spawn(move || {
                let mut receiver = waiting.join_when_created().unwrap();
                assert_eq!(next_number(&mut receiver), 0);
            });
        }
        // Each leaves a note before it looks.
        let files = || std::fs::read_dir(domain.runtime_directory()).unwrap();
        let is_note = |name: std::ffi::OsString| name.to_string_lossy().starts_with("w.");
        while files().filter(|file| is_note(file.as_ref().unwrap().file_name())).count() < 3 {
            std::thread::yield_now();
        }
        let mut sender = sender(domain, "two");
        sender.send(&0u64.to_le_bytes()).unwrap();
        sender.drain(Duration::from_secs(60)).unwrap();
    });
}

#[test]
fn only_a_channel_that_waits_can_be_on_two_levels() {
    let scratch = Scratch::new("levels-policy");
    let domain = scratch.domain();
    let created = domain.sender("two").levels(Levels::Two).overwrite().create();
    assert!(matches!(created, Err(CreateError::Levels { .. })), "{created:?}");
    let nobody = domain.receiver("two").cache_domain(AFAR).join();
    assert!(matches!(nobody, Err(JoinError::NotFound(_))), "{nobody:?}");
}

#[test]
fn a_receiver_too_many_of_a_group_is_told_the_limit() {
    let scratch = Scratch::new("levels-full");
    let domain = scratch.domain();
    let channel = domain.sender("two").levels(Levels::Two).cache_domain(HOME);
    let sender = channel.receivers(2).create().unwrap();
    let _near = receiver(domain, "two", HOME);
    let _far = receiver(domain, "two", AFAR);
    let more = domain.receiver("two").cache_domain(AFAR).join();
    assert!(matches!(more, Err(JoinError::Refused { .. })), "{more:?}");
    assert_eq!(sender.receivers(), 2);
}
