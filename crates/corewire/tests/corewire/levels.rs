//! Channels with two levels: every receiver of a group gets every message, whatever happens to the
//! relay.

use std::time::Duration;

use crate::scratch::Scratch;
use corewire::{CreateError, Domain, JoinError, Levels, ReceiveError, Receiver, Sender};

/// Last-level caches: the sender's, and another one.
const HOME: u32 = 0;
const AFAR: u32 = 7;
/// No sleep may end by this cap.
const UNSEEN: Duration = Duration::from_secs(60);

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
            // Some messages fit a slot, some need the window.
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
        // The first receiver that joined has made the relay. Whichever receiver makes the next
        // relay, all continue.
        drop(receivers.remove(0));
        for receiver in &mut receivers {
            for expected in number - 50..number {
                assert_eq!(next_number(receiver), expected);
            }
        }
        // The sender's control thread notices it a little later.
        while sender.receivers() != receivers.len() {
            std::thread::yield_now();
        }
    }
    let count = |name| {
        let counters = domain.observe("two").unwrap().look().counters;
        counters.iter().find(|(word, _)| *word == name).unwrap().1
    };
    // Followers, and the relays that read for them, of which the last is noticed a little later. The
    // number of relays depends on which receiver was first.
    while count("leaves") <= 4 {
        std::thread::yield_now();
    }
    assert!(count("joins") > 4);
    assert_eq!(count("deaths"), 0);
    // No receiver is left that could hold the sender back.
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
            let waiting = domain.receiver("two").cache_domain(AFAR).sleep_cap(UNSEEN);
            scope.spawn(move || {
                let mut receiver = waiting.join_when_created().unwrap();
                assert_eq!(next_number(&mut receiver), 0);
            });
        }
        // Each receiver leaves a note before it looks for the channel.
        scratch.await_notes(3);
        let channel = domain.sender("two").levels(Levels::Two).cache_domain(HOME);
        let mut sender = channel.sleep_cap(UNSEEN).create().unwrap();
        assert_eq!(sender.wait_for_receivers(3).unwrap(), 3);
        sender.send(&0u64.to_le_bytes()).unwrap();
        assert_eq!(sender.counter("cap_finds"), Ok(0));
    });
}

#[test]
fn one_that_still_reads_an_old_channel_holds_up_no_new_one() {
    let scratch = Scratch::new("levels-again");
    let domain = scratch.domain();
    let mut first = sender(domain, "two");
    let mut old = receiver(domain, "two", AFAR);
    (0..10u64).for_each(|number| first.send(&number.to_le_bytes()).unwrap());
    drop(first);
    // The second channel carries more messages than its ring holds.
    let mut second = sender(domain, "two");
    let mut new = receiver(domain, "two", AFAR);
    for number in 0..40_000u64 {
        second.send(&number.to_le_bytes()).unwrap();
        assert_eq!(next_number(&mut new), number);
    }
    for number in 0..10 {
        assert_eq!(next_number(&mut old), number);
    }
    assert_eq!(old.receive().map(drop), Err(ReceiveError::EndOfStream));
    assert_eq!(old.receive().map(drop), Err(ReceiveError::EndOfStream), "and so again");
}

/// A receiver is busy while relays leave. The messages that it has not read are kept for it, and
/// the other receivers continue.
#[test]
fn one_that_is_busy_while_relays_go_gets_everything_after_all() {
    let scratch = Scratch::new("levels-busy");
    let domain = scratch.domain();
    let mut sender = sender(domain, "two");
    let mut relays: Vec<_> = (0..3).map(|_| receiver(domain, "two", AFAR)).collect();
    let mut busy = receiver(domain, "two", AFAR);
    let mut quick = receiver(domain, "two", AFAR);
    let mut number = 0u64;
    while !relays.is_empty() {
        for _ in 0..500 {
            sender.send(&number.to_le_bytes()).unwrap();
            number += 1;
        }
        for expected in number - 500..number {
            assert_eq!(next_number(&mut quick), expected);
        }
        // Whether this receiver has the relay or not: one after the other, all receivers that have
        // it leave.
        drop(relays.remove(0));
    }
    for expected in 0..number {
        assert_eq!(next_number(&mut busy), expected);
    }
}

#[test]
fn a_call_that_waits_is_interrupted_also_when_the_relay_has_gone() {
    let scratch = Scratch::new("levels-interrupt");
    let domain = scratch.domain();
    let sender = sender(domain, "two");
    let relay = receiver(domain, "two", AFAR);
    let mut other = receiver(domain, "two", AFAR);
    let interrupter = other.interrupter();
    drop(relay);
    for _ in 0..3 {
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| other.receive().map(drop));
            interrupter.interrupt();
            assert_eq!(waiting.join().unwrap(), Err(ReceiveError::Interrupted));
        });
    }
    drop(sender);
    assert_eq!(other.receive().map(drop), Err(ReceiveError::EndOfStream));
}

#[test]
fn a_channel_that_several_send_on_has_one_level() {
    let scratch = Scratch::new("levels-shared");
    let opened = scratch.domain().sender("two").levels(Levels::Two).open_shared(2);
    assert!(matches!(opened, Err(CreateError::LevelsShared)), "{opened:?}");
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
