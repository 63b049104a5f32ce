//! Channels that do not wait for slow receivers: `Overwrite` and `Evict`, and receiving by copying.

use std::time::Duration;

use crate::scratch::Scratch;
use corewire::{JoinError, Policy, ReceiveError, SendError, Sender, SnapshotReceiver};

const AT_ONCE: Duration = Duration::ZERO;
const NEVER: Duration = Duration::MAX;

fn numbered(number: u64, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|i| number.wrapping_mul(31).wrapping_add(i as u64).to_le_bytes()[0]).collect()
}

/// Inline, window and large messages in turn.
fn length_of(number: u64) -> usize {
    match number % 13 {
        0 => 3000,
        1..=3 => 500,
        _ => usize::try_from(number % 49).unwrap(),
    }
}

fn overwriting(scratch: &Scratch) -> (Sender, SnapshotReceiver) {
    let builder = scratch.domain().sender("c").slots(16).window_bytes(4096);
    let sender = builder.largest_message(3000).overwrite().create().unwrap();
    let receiver = scratch.domain().receiver("c").snapshots().join().unwrap();
    (sender, receiver)
}

fn send(sender: &mut Sender, numbers: std::ops::Range<u64>) {
    for number in numbers {
        sender.send(&numbered(number, length_of(number))).unwrap();
    }
}

/// Receives and checks all messages that are there. Returns their number.
fn receive_all(receiver: &mut SnapshotReceiver) -> u64 {
    let mut received = 0;
    while let Some(mut snapshot) = receiver.try_receive().unwrap() {
        let number = snapshot.sequence();
        let copy = snapshot.to_vec().unwrap();
        assert_eq!(copy, numbered(number, length_of(number)));
        received += 1;
    }
    received
}

// Keeps P44.
#[test]
fn a_sender_that_overwrites_never_waits_and_what_is_missed_is_counted() {
    let scratch = Scratch::new("overwrite");
    let (mut sender, mut receiver) = overwriting(&scratch);
    let (mut sent, mut received) = (0, 0);
    for burst in [3, 10, 200, 1, 33, 5000, 15] {
        send(&mut sender, sent..sent + burst);
        sent += burst;
        received += receive_all(&mut receiver);
        assert_eq!(received + receiver.missed(), sent, "after {sent}");
        assert_eq!(receiver.next_sequence(), sent);
    }
    assert!(receiver.missed() > 0 && received > 40, "{received} of {sent}");
    drop(sender);
    assert_eq!(receiver.receive().unwrap_err(), ReceiveError::EndOfStream);
    assert_eq!(receiver.counter("missed"), Ok(receiver.missed()));
}

#[test]
fn a_message_that_is_overwritten_while_it_is_held_says_so() {
    let scratch = Scratch::new("overwritten");
    let (mut sender, mut receiver) = overwriting(&scratch);
    for bytes in [8, 500, 3000] {
        sender.send(&vec![1; bytes]).unwrap();
        let mut snapshot = receiver.receive().unwrap();
        let sequence = snapshot.sequence();
        assert_eq!(snapshot.to_vec().unwrap(), vec![1; bytes]);
        for _ in 0..40 {
            sender.send(&vec![2; bytes]).unwrap();
        }
        let error = snapshot.to_vec().unwrap_err();
        assert_eq!(error.sequence, sequence);
        assert_eq!(
            error.to_string(),
            format!("message {sequence} was overwritten before it was copied")
        );
        drop(snapshot);
        assert!(receiver.missed() > 0);
        while receiver.try_receive().unwrap().is_some() {}
        assert_eq!(receiver.next_sequence(), sequence + 41);
    }
}

#[test]
fn the_window_is_overwritten_long_before_the_slots_are() {
    let scratch = Scratch::new("overwrite-window");
    let builder = scratch.domain().sender("c").slots(4096).window_bytes(4096);
    let mut sender = builder.overwrite().create().unwrap();
    let mut receiver = scratch.domain().receiver("c").snapshots().join().unwrap();
    for number in 0..50 {
        sender.send(&numbered(number, 1000)).unwrap();
    }
    let mut received = 0;
    while let Some(mut snapshot) = receiver.try_receive().unwrap() {
        let number = snapshot.sequence();
        if let Ok(copy) = snapshot.to_vec() {
            assert_eq!(copy, numbered(number, 1000));
            received += 1;
        }
    }
    assert!((1..=4).contains(&received), "{received}");
    assert_eq!(received + receiver.missed(), 50);
}

#[test]
fn a_channel_that_does_not_keep_messages_is_not_read_in_place() {
    let scratch = Scratch::new("not-in-place");
    let (_sender, _receiver) = overwriting(&scratch);
    let error = scratch.domain().receiver("c").join().unwrap_err();
    assert!(matches!(error, JoinError::NotInPlace { policy: Policy::Overwrite, .. }));
    assert_eq!(
        error.to_string(),
        "channel c overwrites slow receivers: its messages can only be copied out; \
         join it with `snapshots()`"
    );
}

// Keeps P46.
#[test]
fn a_slow_receiver_is_evicted_and_told_and_the_others_get_everything() {
    let scratch = Scratch::new("evict");
    let domain = scratch.domain();
    let mut sender = domain.sender("c").slots(16).evict(Duration::from_millis(1)).create().unwrap();
    let mut slow = domain.receiver("c").snapshots().join().unwrap();
    let mut fast = domain.receiver("c").snapshots().join().unwrap();
    for number in 0..100u64 {
        sender.send(&number.to_le_bytes()).unwrap();
        let mut snapshot = fast.receive().unwrap();
        assert_eq!(snapshot.read_at::<u64>(0), Ok(number));
        drop(snapshot);
        fast.acknowledge();
    }
    assert_eq!(slow.receive().unwrap_err(), ReceiveError::Evicted);
    assert_eq!(slow.try_receive().unwrap_err(), ReceiveError::Evicted);
    assert_eq!(sender.receivers(), 1);
    let view = domain.observe("c").unwrap().look();
    assert!(view.counters.contains(&("evictions", 1)), "{:?}", view.counters);
    // Its row is free again.
    drop(slow);
    let mut again = domain.receiver("c").snapshots().join().unwrap();
    sender.send(b"welcome").unwrap();
    assert_eq!(again.receive().unwrap().to_vec().unwrap(), b"welcome");
}

#[test]
fn a_message_held_by_one_who_is_evicted_says_so() {
    let scratch = Scratch::new("evict-held");
    let domain = scratch.domain();
    let builder = domain.sender("c").slots(16).window_bytes(4096);
    let mut sender = builder.evict(AT_ONCE).create().unwrap();
    let mut receiver = domain.receiver("c").snapshots().join().unwrap();
    sender.send(&[1; 600]).unwrap();
    let mut snapshot = receiver.receive().unwrap();
    assert_eq!(snapshot.to_vec().unwrap(), [1; 600]);
    for _ in 0..20 {
        sender.send(&[2; 600]).unwrap();
    }
    assert!(snapshot.to_vec().is_err());
    drop(snapshot);
    assert_eq!(receiver.receive().unwrap_err(), ReceiveError::Evicted);
    assert_eq!(receiver.missed(), 0);
}

#[test]
fn nobody_is_evicted_who_reads_and_nobody_before_the_time() {
    let scratch = Scratch::new("evict-none");
    let domain = scratch.domain();
    let mut sender = domain.sender("c").slots(16).evict(NEVER).create().unwrap();
    let mut receiver = domain.receiver("c").snapshots().join().unwrap();
    for number in 0..16u64 {
        sender.send(&number.to_le_bytes()).unwrap();
    }
    assert_eq!(sender.try_send(b"x"), Err(SendError::Full { lag: 16 }));
    let after = Duration::from_millis(2);
    assert_eq!(sender.send_timeout(b"x", after), Err(SendError::Timeout { after, lag: 16 }));
    for number in 0..16u64 {
        assert_eq!(receiver.receive().unwrap().read_at::<u64>(0), Ok(number));
    }
    receiver.acknowledge();
    assert_eq!(sender.try_send(b"x"), Ok(()));
    assert_eq!(sender.receivers(), 1);
}

#[test]
fn every_channel_can_be_copied_from() {
    let scratch = Scratch::new("copy-block");
    let mut sender = scratch.domain().sender("c").slots(16).create().unwrap();
    let mut receiver = scratch.domain().receiver("c").snapshots().join().unwrap();
    sender.send(b"twelve bytes").unwrap();
    let mut snapshot = receiver.receive().unwrap();
    for (offset, length) in [(0, 12), (1, 3), (3, 9), (7, 1), (8, 4), (5, 0), (11, 1)] {
        let mut part = vec![0; length];
        snapshot.copy_to(offset, &mut part).unwrap();
        assert_eq!(part, b"twelve bytes"[offset..offset + length]);
    }
    drop(snapshot);
    sender.send(b"longer").unwrap();
    let error = receiver.receive_into(&mut [0; 3]).unwrap_err();
    assert_eq!(error, ReceiveError::BufferTooSmall { needed: 6, given: 3 });
    let mut buffer = [0; 10];
    assert_eq!(receiver.receive_into(&mut buffer), Ok(6));
    assert_eq!(buffer[..6], *b"longer");
    assert!(receiver.receive_timeout(Duration::from_millis(1)).unwrap().is_none());
    drop(sender);
    let mut seen = 0;
    receiver.for_each(|_| seen += 1).unwrap();
    assert_eq!((seen, receiver.missed()), (0, 0));
}

#[test]
fn a_message_can_be_read_as_a_value() {
    let scratch = Scratch::new("copy-value");
    let (mut sender, mut receiver) = overwriting(&scratch);
    sender.send(&7u64.to_le_bytes()).unwrap();
    assert_eq!(receiver.receive().unwrap().read::<[u32; 2]>(), Ok([7, 0]));
    sender.send(b"short").unwrap();
    let error = receiver.receive().unwrap().read::<[u32; 2]>().unwrap_err();
    assert_eq!(error.to_string(), "message of 5 bytes is not a [u32; 2] of 8 bytes");
}
