//! Waiting until any of several receivers or endpoints has a message.

use std::thread;
use std::time::Duration;

use crate::scratch::Scratch;
use corewire::{
    Domain, Endpoint, MessageError, Receiver, Selector, Sender, Wait, WaitError, WaitSet,
};

/// The limit of a wait that should end at once; the test fails if it does not.
const LONG: Option<Duration> = Some(Duration::from_secs(30));
const WAITS: [Wait; 3] = [Wait::Spin, Wait::Adaptive, Wait::Park];

/// A channel and an endpoint, and the senders to both.
fn all(domain: &Domain) -> (Sender, Receiver, Endpoint, Endpoint) {
    let sender = domain.sender("channel").create().unwrap();
    let receiver = domain.receiver("channel").join().unwrap();
    let from = domain.endpoint("from").create().unwrap();
    let to = domain.endpoint("to").create().unwrap();
    (sender, receiver, from, to)
}

// Keeps P78.
#[test]
fn whichever_has_something_ends_the_wait() {
    let scratch = Scratch::new("wait_set-whichever_has_something");
    let domain = scratch.domain();
    for wait in WAITS {
        let (mut sender, mut receiver, mut from, mut to) = all(domain);
        let peer = from.peer("to").unwrap();
        let other = thread::spawn(move || {
            for number in 0..200u64 {
                if number % 3 == 0 {
                    sender.send(&number.to_le_bytes()).unwrap();
                } else {
                    from.send(peer, number, b"").unwrap();
                }
                if number % 50 == 0 {
                    // Pauses, so that the waiting thread sometimes falls asleep.
                    thread::yield_now();
                }
            }
            (sender, from)
        });
        let mut set = WaitSet::new(wait);
        let (mut of_channel, mut of_endpoint) = (vec![], vec![]);
        while of_channel.len() + of_endpoint.len() < 200 {
            match set.wait(&mut [&mut receiver, &mut to], None).unwrap() {
                Some(0) => {
                    while let Some(message) = receiver.try_receive().unwrap() {
                        of_channel.push(u64::from_le_bytes(message[..].try_into().unwrap()));
                    }
                }
                Some(1) => {
                    let mut nothing = [];
                    while let Some(status) =
                        to.try_receive_into(Selector::any(), &mut nothing).unwrap()
                    {
                        of_endpoint.push(status.tag);
                    }
                }
                other => panic!("{other:?} has something"),
            }
        }
        assert_eq!(of_channel, (0..200).filter(|number| number % 3 == 0).collect::<Vec<_>>());
        assert_eq!(of_endpoint, (0..200).filter(|number| number % 3 != 0).collect::<Vec<_>>());
        drop(other.join().unwrap());
    }
}

// Keeps P78.
#[test]
fn those_that_have_something_take_turns() {
    let scratch = Scratch::new("wait_set-those_that_have_something");
    let domain = scratch.domain();
    let (mut sender, mut receiver, mut from, mut to) = all(domain);
    let peer = from.peer("to").unwrap();
    let mut set = WaitSet::default();
    let mut found = [0, 0];
    for number in 0..20u64 {
        sender.send(b"x").unwrap();
        from.send(peer, number, b"").unwrap();
        // Only one message is taken at a time.
        let index = set.wait(&mut [&mut receiver, &mut to], None).unwrap().unwrap();
        found[index] += 1;
        if index == 0 {
            assert!(receiver.try_receive().unwrap().is_some());
        } else {
            assert!(to.try_receive_into(Selector::any(), &mut []).unwrap().is_some());
        }
    }
    assert_eq!(found, [10, 10]);
}

#[test]
fn a_wait_ends_with_its_time_or_its_channel() {
    let scratch = Scratch::new("wait_set-a_wait_ends_with_its_time");
    let domain = scratch.domain();
    for wait in WAITS {
        let (sender, mut receiver, from, mut to) = all(domain);
        let mut set = WaitSet::new(wait);
        let moment = Some(Duration::from_millis(2));
        assert_eq!(set.wait(&mut [&mut receiver, &mut to], moment).unwrap(), None);
        assert_eq!(set.wait(&mut [], moment).unwrap(), None);
        sender.close();
        // The end of a channel also ends a wait.
        assert_eq!(set.wait(&mut [&mut to, &mut receiver], None).unwrap(), Some(1));
        assert!(receiver.receive().is_err());
        drop(from);
    }
}

// Keeps P78.
#[test]
fn what_another_call_has_taken_in_is_told() {
    let scratch = Scratch::new("wait_set-what_another_call_has_taken_in");
    let domain = scratch.domain();
    for wait in WAITS {
        let (_sender, mut receiver, mut from, mut to) = all(domain);
        let peer = from.peer("to").unwrap();
        from.send(peer, 1, b"").unwrap();
        while !to.progress().unwrap() {}
        let found = WaitSet::new(wait).wait(&mut [&mut receiver, &mut to], LONG);
        assert_eq!(found.unwrap(), Some(1));
        assert!(to.try_receive_into(Selector::tag(1), &mut []).unwrap().is_some());
    }
}

#[test]
fn a_receiver_that_has_missed_messages_is_told_of_others() {
    let scratch = Scratch::new("wait_set-a_receiver_that_has_missed");
    let domain = scratch.domain();
    for wait in WAITS {
        let mut sender = domain.sender("newest").overwrite().create().unwrap();
        let mut receiver = domain.receiver("newest").snapshots().join().unwrap();
        for _ in 0..100_000 {
            sender.send(b"news").unwrap();
        }
        assert_eq!(WaitSet::new(wait).wait(&mut [&mut receiver], LONG).unwrap(), Some(0));
        assert!(receiver.try_receive().unwrap().is_some());
    }
}

#[test]
fn a_wait_that_is_interrupted_ends() {
    let scratch = Scratch::new("wait_set-a_wait_that_is_interrupted");
    let domain = scratch.domain();
    let (_sender, mut receiver, _from, mut to) = all(domain);
    for wait in WAITS {
        let mut set = WaitSet::new(wait);
        receiver.interrupter().interrupt();
        assert_eq!(set.wait(&mut [&mut receiver, &mut to], LONG).unwrap(), Some(0));
        assert!(receiver.receive().is_err());
    }
    let interrupter = to.interrupter();
    let other = thread::spawn(move || interrupter.interrupt());
    let waited = WaitSet::default().wait(&mut [&mut receiver, &mut to], None);
    match waited {
        Err(error) => assert_eq!(error, WaitError::Endpoint(MessageError::Interrupted)),
        // The next call on the endpoint returns the interruption.
        Ok(found) => {
            assert_eq!(found, Some(1));
            assert_eq!(to.progress(), Err(MessageError::Interrupted));
        }
    }
    other.join().unwrap();
}
