//! Messages that a receiver holds: they are released in any order, by any thread, while the receiver goes on.

use std::collections::VecDeque;
use std::sync::mpsc::{self, Sender as Handover};
use std::thread::{self, JoinHandle};

use crate::scratch::Scratch;
use corewire::{HeldMessage, Levels, ReceiveError, Receiver, SendError, Sender, Wait};

/// Inline messages, messages of the window, and large ones.
fn length_of(number: u64) -> usize {
    match number % 29 {
        0 => 3000,
        1..=4 => 400,
        _ => usize::try_from(number % 49).unwrap(),
    }
}

fn message(number: u64) -> Vec<u8> {
    let bytes = 0..length_of(number) as u64;
    bytes.map(|index| number.wrapping_mul(31).wrapping_add(index).to_le_bytes()[0]).collect()
}

#[track_caller]
fn check(held: &HeldMessage) {
    assert!(held[..] == message(held.sequence())[..], "message {} is torn", held.sequence());
}

fn channel(scratch: &Scratch, slots: usize) -> (Sender, Receiver) {
    let builder = scratch.domain().sender("c").slots(slots).window_bytes(16 << 10);
    let sender = builder.largest_message(3000).create().unwrap();
    (sender, scratch.domain().receiver("c").join().unwrap())
}

fn send(sender: &mut Sender, numbers: std::ops::Range<u64>) {
    for number in numbers {
        sender.send(&message(number)).unwrap();
    }
}

fn hold(receiver: &mut Receiver, count: usize) -> Vec<HeldMessage> {
    (0..count).map(|_| receiver.receive().unwrap().hold()).collect()
}

/// A thread that checks messages and releases them, the newest of those that are there first.
fn releaser() -> (Handover<HeldMessage>, JoinHandle<u64>) {
    let (to_thread, held) = mpsc::channel::<HeldMessage>();
    let thread = thread::spawn(move || {
        let mut count = 0;
        while let Ok(first) = held.recv() {
            let mut some = vec![first];
            some.extend(held.try_iter().take(7));
            some.iter().for_each(check);
            while let Some(released) = some.pop() {
                check(&released);
                count += 1;
            }
        }
        count
    });
    (to_thread, thread)
}

// Keeps P141.
#[test]
fn held_messages_are_whole_until_they_are_released_in_any_order_by_any_thread() {
    const COUNT: u64 = 100_000;
    let scratch = Scratch::new("held-order");
    let (mut sender, mut receiver) = channel(&scratch, 64);
    let (to_threads, threads): (Vec<_>, Vec<_>) = (0..3).map(|_| releaser()).unzip();
    let sending = thread::spawn(move || send(&mut sender, 0..COUNT));
    let mut held_count = 0;
    for number in 0..COUNT {
        let next = receiver.receive().unwrap();
        assert_eq!(next.sequence(), number);
        assert!(next[..] == message(number)[..], "message {number} is torn");
        if !number.is_multiple_of(5) {
            held_count += 1;
            to_threads[usize::try_from(number % 3).unwrap()].send(next.hold()).unwrap();
        }
    }
    assert_eq!(receiver.receive().unwrap_err(), ReceiveError::EndOfStream);
    assert_eq!(receiver.counter("cap_finds"), Ok(0));
    drop(to_threads);
    let released: u64 = threads.into_iter().map(|thread| thread.join().unwrap()).sum();
    assert_eq!(released, held_count);
    sending.join().unwrap();
}

#[test]
fn a_receiver_keeps_every_thousandth_message_until_the_one_after_the_next() {
    const COUNT: u64 = 50_000;
    let scratch = Scratch::new("held-thousandth");
    // Room for all that comes while two are kept: by default it depends on the processor's cache.
    let builder = scratch.domain().sender("c").slots(4096).window_bytes(1 << 20);
    let mut sender = builder.create().unwrap();
    let mut receiver = scratch.domain().receiver("c").join().unwrap();
    let sending = thread::spawn(move || send(&mut sender, 0..COUNT));
    let mut kept = VecDeque::new();
    for number in 0..COUNT {
        let message = receiver.receive().unwrap();
        assert_eq!(message.sequence(), number);
        if number.is_multiple_of(1000) {
            kept.push_back(message.hold());
            if kept.len() > 2 {
                let oldest = kept.pop_front().unwrap();
                assert_eq!(oldest.sequence(), number - 2000);
                check(&oldest);
            }
        }
    }
    kept.iter().for_each(check);
    sending.join().unwrap();
}

// Keeps P141.
/// Only the oldest held message keeps the sender waiting, and its release is all that it takes to continue: the
/// receiver is in no call.
#[test]
fn the_release_of_the_oldest_by_another_thread_frees_room_for_a_sender_that_waits() {
    for wait in [Wait::Adaptive, Wait::Park, Wait::Spin] {
        let scratch = Scratch::new(&format!("held-room-{wait:?}"));
        let builder = scratch.domain().sender("c").slots(64).wait(wait);
        // No sleep may end by its cap.
        let mut sender = builder.sleep_cap(std::time::Duration::from_secs(60)).create().unwrap();
        let mut receiver = scratch.domain().receiver("c").join().unwrap();
        for number in 0..64u64 {
            sender.try_send(&number.to_le_bytes()).unwrap();
        }
        let mut held = hold(&mut receiver, 64);
        // All but the oldest, the newest first.
        held.drain(1..).rev().for_each(drop);
        assert_eq!(sender.try_send(b"x"), Err(SendError::Full { lag: 64 }));
        let sending = thread::spawn(move || {
            for number in 64..128u64 {
                sender.send(&number.to_le_bytes()).unwrap();
            }
            sender
        });
        let oldest = held.pop().unwrap();
        thread::spawn(move || assert_eq!(oldest[..], 0u64.to_le_bytes())).join().unwrap();
        let sender = sending.join().unwrap();
        assert_eq!(sender.counter("cap_finds"), Ok(0));
        for number in 64..128u64 {
            assert_eq!(receiver.receive().unwrap()[..], number.to_le_bytes());
        }
    }
}

#[test]
fn messages_received_before_a_held_one_are_released_with_it() {
    let scratch = Scratch::new("held-before");
    let (mut sender, mut receiver) = channel(&scratch, 64);
    for _ in 0..64 {
        sender.try_send(b"").unwrap();
    }
    drop(receiver.receive().unwrap());
    drop(receiver.receive().unwrap());
    let third = receiver.receive().unwrap().hold();
    drop(receiver.receive().unwrap());
    assert_eq!(sender.try_send(b"x"), Err(SendError::Full { lag: 64 }), "nothing is published yet");
    drop(third);
    for _ in 0..3 {
        sender.try_send(b"").unwrap();
    }
    assert_eq!(sender.try_send(b"x"), Err(SendError::Full { lag: 64 }));
    receiver.acknowledge();
    sender.try_send(b"").unwrap();
}

#[test]
fn held_payloads_keep_the_window_and_the_large_area() {
    let scratch = Scratch::new("held-areas");
    let builder = scratch.domain().sender("c").slots(64).window_bytes(4096);
    let mut sender = builder.largest_message(100_000).create().unwrap();
    let mut receiver = scratch.domain().receiver("c").join().unwrap();
    for bytes in [1024, 100_000] {
        let mut sent = 0u64;
        while sender.try_send(&vec![sent.to_le_bytes()[0]; bytes]).is_ok() {
            sent += 1;
        }
        let mut held = hold(&mut receiver, usize::try_from(sent).unwrap());
        assert!(matches!(sender.try_send(&vec![9; bytes]), Err(SendError::Full { .. })));
        // The oldest goes last.
        held.reverse();
        while let Some(oldest) = held.pop() {
            assert!(oldest.iter().all(|&byte| byte == oldest[0]));
            drop(oldest);
            sender.send(&vec![9; bytes]).unwrap();
            for (at, message) in held.iter().enumerate() {
                let number = sent - 1 - at as u64;
                assert!(message.iter().all(|&byte| byte == number.to_le_bytes()[0]));
            }
        }
        for _ in 0..sent {
            assert!(receiver.receive().unwrap().iter().all(|&byte| byte == 9));
        }
        receiver.acknowledge();
    }
}

// Keeps P142.
#[test]
fn a_receiver_that_is_dropped_leaves_with_the_last_message_that_it_holds() {
    let scratch = Scratch::new("held-drop");
    let (mut sender, mut receiver) = channel(&scratch, 64);
    send(&mut sender, 0..10);
    let mut held = hold(&mut receiver, 5);
    drop(receiver);
    assert_eq!(sender.receivers(), 1);
    // What the receiver had not received counts as unread, as for every receiver that is slow.
    let sent = (10..100).find(|&number| sender.try_send(&message(number)).is_err()).unwrap();
    assert!(sent <= 64);
    held.iter().for_each(check);
    let last = held.pop().unwrap();
    drop(held);
    check(&last);
    assert_eq!(sender.receivers(), 1);
    let sending = thread::spawn(move || {
        // No receiver is left that could hold the sender back.
        send(&mut sender, sent..1000);
        sender
    });
    thread::spawn(move || drop(last)).join().unwrap();
    let sender = sending.join().unwrap();
    while sender.receivers() > 0 {
        thread::yield_now();
    }
}

// Keeps P142.
#[test]
fn held_messages_outlive_the_sender_and_the_domain() {
    let mut held = {
        let scratch = Scratch::new("held-end");
        let (mut sender, mut receiver) = channel(&scratch, 64);
        send(&mut sender, 0..10);
        drop(sender);
        let held = hold(&mut receiver, 10);
        assert_eq!(receiver.receive().unwrap_err(), ReceiveError::EndOfStream);
        held
    };
    held.iter().for_each(check);
    drop(held.swap_remove(3));
    held.iter().for_each(check);
}

#[test]
fn a_receiver_that_joins_again_keeps_what_it_holds_of_the_former_channel() {
    let scratch = Scratch::new("held-rejoin");
    let (mut sender, mut receiver) = channel(&scratch, 64);
    send(&mut sender, 0..3);
    drop(sender);
    let held = hold(&mut receiver, 3);
    let mut next = scratch.domain().sender("c").create().unwrap();
    while receiver.rejoin_now().is_err() {
        thread::yield_now();
    }
    next.send(&message(0)).unwrap();
    let again = receiver.receive().unwrap().hold();
    held.iter().for_each(check);
    check(&again);
    drop(held);
    check(&again);
    assert_eq!(next.receivers(), 1);
}

// Keeps P141.
#[test]
fn messages_of_a_shared_channel_can_be_held() {
    const COUNT: u64 = 20_000;
    let scratch = Scratch::new("held-shared");
    let open = || scratch.domain().sender("c").slots(64).window_bytes(16 << 10).open_shared(2);
    let senders = [open().unwrap(), open().unwrap()];
    let mut receiver = scratch.domain().receiver("c").join().unwrap();
    let mut other = scratch.domain().receiver("c").join().unwrap();
    let reading = thread::spawn(move || other.for_each(|_| {}).unwrap());
    let sending = senders.map(|mut sender| {
        thread::spawn(move || {
            for _ in 0..COUNT / 20 {
                sender.send(&[1; 40]).unwrap();
                let mut batch = sender.batch();
                for length in 0..19 {
                    batch.send(&vec![3; length * 20]).unwrap();
                }
                batch.finish().unwrap();
            }
        })
    });
    let (to_thread, held) = mpsc::channel::<HeldMessage>();
    let releasing = thread::spawn(move || {
        while let Ok(first) = held.recv() {
            let mut some = vec![first];
            some.extend(held.try_iter().take(7));
            while let Some(released) = some.pop() {
                let byte = if released.len() == 40 && released[0] == 1 { 1 } else { 3 };
                assert!(released.iter().all(|&other| other == byte));
            }
        }
    });
    for number in 0..2 * COUNT {
        let message = receiver.receive().unwrap();
        assert_eq!(message.sequence(), number);
        if number % 3 != 0 {
            to_thread.send(message.hold()).unwrap();
        }
    }
    sending.into_iter().for_each(|thread| thread.join().unwrap());
    let last = receiver.receive().unwrap_err();
    assert_eq!(last, ReceiveError::EndOfStream);
    drop(to_thread);
    releasing.join().unwrap();
    reading.join().unwrap();
}

// Keeps P142.
#[test]
fn a_receiver_of_a_shared_channel_leaves_with_the_last_message_that_it_holds() {
    let scratch = Scratch::new("held-shared-drop");
    let mut sender = scratch.domain().sender("c").slots(64).open_shared(2).unwrap();
    let mut receiver = scratch.domain().receiver("c").join().unwrap();
    sender.send(b"held").unwrap();
    let held = receiver.receive().unwrap().hold();
    drop(receiver);
    assert_eq!(sender.receivers(), 1);
    for _ in 1..64 {
        sender.try_send(b"later").unwrap();
    }
    assert!(matches!(sender.try_send(b"x"), Err(SendError::Full { .. })));
    assert_eq!(&held[..], b"held");
    drop(held);
    assert_eq!(sender.receivers(), 0);
    sender.try_send(b"room").unwrap();
}

// Keeps P142.
/// The first receiver of the group has the relay in its process, which ends with the receiver. What was received from
/// the relay stays.
#[test]
fn what_a_follower_holds_outlives_its_relay() {
    let scratch = Scratch::new("held-levels");
    let builder = scratch.domain().sender("two").slots(64).levels(Levels::Two).cache_domain(0);
    let mut sender = builder.create().unwrap();
    let join = || scratch.domain().receiver("two").cache_domain(7).join().unwrap();
    let (mut first, mut second) = (join(), join());
    send(&mut sender, 0..20);
    let [early, mut held] = [hold(&mut first, 10), hold(&mut second, 20)];
    // Another receiver makes the next relay, in whose ring the second receiver continues.
    drop(first);
    send(&mut sender, 20..40);
    held.extend(hold(&mut second, 20));
    drop(second);
    early.iter().chain(&held).for_each(check);
    drop(early);
    held.iter().for_each(check);
    drop(held);
    // Nobody holds the sender back.
    send(&mut sender, 40..1000);
    while sender.receivers() > 0 {
        thread::yield_now();
    }
}

#[test]
fn held_values_are_those_that_were_sent() {
    let scratch = Scratch::new("held-typed");
    let mut sender = scratch.domain().sender("c").typed::<u64>().create().unwrap();
    let mut receiver = scratch.domain().receiver("c").typed::<u64>().join().unwrap();
    for number in 0..3 {
        sender.send(&(number * 7)).unwrap();
    }
    let mut held: Vec<_> = (0..3).map(|_| receiver.receive().unwrap().hold()).collect();
    drop(held.remove(1));
    assert_eq!(held.iter().map(|value| **value).collect::<Vec<_>>(), [0, 14]);
    assert_eq!(held[1].sequence(), 2);
}

/// A held message can be handed to whatever owns bytes.
#[test]
fn a_held_message_owns_its_bytes() {
    fn takes_owner(_: impl AsRef<[u8]> + Send + Sync + 'static) {}
    let scratch = Scratch::new("held-owner");
    let (mut sender, mut receiver) = channel(&scratch, 64);
    send(&mut sender, 5..6);
    takes_owner(receiver.receive().unwrap().hold());
}
