//! Channels that several senders share: one order, and a lifetime beyond that of any sender.

use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use crate::scratch::Scratch;
use corewire::{CreateError, JoinError, ReceiveError, SendError, SharedSender};

fn open(scratch: &Scratch) -> SharedSender {
    scratch.domain().sender("c").slots(64).window_bytes(4096).open_shared(4).unwrap()
}

fn length_of(number: u64) -> usize {
    match number % 11 {
        3 => 500,
        7 => 1000,
        _ => 16 + usize::try_from(number % 33).unwrap(),
    }
}

fn message(sender: u64, number: u64) -> Vec<u8> {
    let mut bytes = vec![(sender * 31 + number).to_le_bytes()[0]; length_of(number)];
    bytes[..8].copy_from_slice(&sender.to_le_bytes());
    bytes[8..16].copy_from_slice(&number.to_le_bytes());
    bytes
}

fn check(bytes: &[u8]) -> (u64, u64) {
    let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    let (sender, number) = (word(0), word(8));
    assert_eq!(bytes.len(), length_of(number));
    let fill = (sender.wrapping_mul(31).wrapping_add(number)).to_le_bytes()[0];
    assert!(bytes[16..].iter().all(|&byte| byte == fill), "message {number} of {sender} is torn");
    (sender, number)
}

// Keeps P47.
#[test]
fn all_receivers_get_all_senders_messages_in_one_order() {
    // Messages of each of three senders. `COREWIRE_ORDER_MESSAGES` sets the number of messages in
    // all.
    let given = std::env::var("COREWIRE_ORDER_MESSAGES").ok();
    let count = given.map_or(30_000, |text| text.parse::<u64>().unwrap() / 300 * 100);
    let scratch = Scratch::new("shared-order");
    let senders: Vec<_> = (0..3).map(|_| open(&scratch)).collect();
    let receivers: Vec<_> =
        (0..2).map(|_| scratch.domain().receiver("c").join().unwrap()).collect();
    let readers: Vec<_> = receivers
        .into_iter()
        .map(|mut receiver| {
            thread::spawn(move || {
                let (mut order, mut next) = (0u64, [0; 3]);
                let mut count = |message: &[u8]| {
                    let (sender, number) = check(message);
                    assert_eq!(number, next[usize::try_from(sender).unwrap()], "of {sender}");
                    next[usize::try_from(sender).unwrap()] += 1;
                    order = order.wrapping_mul(0x100_0000_01b3) ^ (sender << 60 | number);
                };
                receiver.for_each(&mut count).unwrap();
                assert_eq!(receiver.counter("cap_finds"), Ok(0));
                (order, next)
            })
        })
        .collect();
    let sending: Vec<_> = senders
        .into_iter()
        .enumerate()
        .map(|(name, mut sender)| {
            thread::spawn(move || {
                let name = name as u64;
                for start in (0..count).step_by(100) {
                    for number in start..start + 50 {
                        sender.send(&message(name, number)).unwrap();
                    }
                    let mut batch = sender.batch();
                    for number in start + 50..start + 90 {
                        batch.send(&message(name, number)).unwrap();
                    }
                    batch.finish().unwrap();
                    for number in start + 90..start + 100 {
                        let bytes = message(name, number);
                        let mut loan = sender.loan(bytes.len() + 5).unwrap();
                        loan[..bytes.len()].copy_from_slice(&bytes);
                        loan.truncate(bytes.len());
                        loan.send().unwrap();
                    }
                }
                assert_eq!(sender.sent(), count);
                assert_eq!(sender.counter("cap_finds"), Ok(0));
            })
        })
        .collect();
    sending.into_iter().for_each(|thread| thread.join().unwrap());
    let orders: Vec<_> = readers.into_iter().map(|thread| thread.join().unwrap()).collect();
    assert_eq!(orders[0], orders[1], "two orders");
    assert_eq!(orders[0].1, [count; 3]);
}

#[test]
fn the_name_is_nobody_elses_between_two_hosts() {
    let scratch = Scratch::new("shared-name");
    let mut host = open(&scratch);
    for _ in 0..100 {
        let next = open(&scratch);
        drop(host);
        let taken = scratch.domain().sender("c").create().map(drop);
        assert!(matches!(taken, Err(CreateError::AlreadyExists(_))), "{taken:?}");
        host = next;
    }
    drop(host);
    scratch.domain().sender("c").create().unwrap();
}

// Keeps P50.
#[test]
fn the_channel_lives_on_when_its_creator_leaves() {
    let scratch = Scratch::new("shared-host");
    let mut first = open(&scratch);
    let mut second = open(&scratch);
    let mut receiver = scratch.domain().receiver("c").join().unwrap();
    first.send(&message(0, 0)).unwrap();
    drop(first);
    second.send(&message(1, 1)).unwrap();
    // The second sender admits every new party from now on.
    let mut third = open(&scratch);
    let mut late = loop {
        match scratch.domain().receiver("c").join() {
            Err(JoinError::NotFound(_)) => thread::yield_now(),
            other => break other.unwrap(),
        }
    };
    third.send(&message(2, 2)).unwrap();
    for expected in [(0, 0), (1, 1), (2, 2)] {
        assert_eq!(check(&receiver.receive().unwrap()), expected);
    }
    assert_eq!(check(&late.receive().unwrap()), (2, 2));
    drop(second);
    assert_eq!(receiver.receive_timeout(Duration::from_millis(1)).map(|m| m.is_none()), Ok(true));
    drop(third);
    assert_eq!(receiver.receive().unwrap_err(), ReceiveError::EndOfStream);
    assert_eq!(late.receive().unwrap_err(), ReceiveError::EndOfStream);
    // All parties have left: the next sender creates a new channel.
    let mut anew = open(&scratch);
    assert_eq!(anew.receivers(), 0);
    anew.send(b"of nobody's business").unwrap();
}

#[test]
fn receivers_that_wait_get_the_first_message() {
    let scratch = Scratch::new("shared-waiting");
    let (ready, is_ready) = mpsc::channel();
    let domain = scratch.domain().clone();
    let waiting = thread::spawn(move || {
        ready.send(()).unwrap();
        let mut receiver = domain.receiver("c").join_when_created().unwrap();
        check(&receiver.receive().unwrap())
    });
    is_ready.recv().unwrap();
    scratch.await_notes(1);
    let mut sender = open(&scratch);
    sender.send(&message(0, 0)).unwrap();
    assert_eq!(waiting.join().unwrap(), (0, 0));
}

#[test]
fn a_shared_channel_cannot_overwrite_and_a_channel_of_one_sender_is_not_shared() {
    let scratch = Scratch::new("shared-refusals");
    let domain = scratch.domain();
    let error = domain.sender("c").overwrite().open_shared(2).unwrap_err();
    assert_eq!(error, CreateError::OverwriteShared);
    assert!(error.to_string().starts_with("a shared channel cannot overwrite: "));
    let one = domain.sender("c").create().unwrap();
    let taken = open_error(&scratch);
    assert!(matches!(taken, CreateError::AlreadyExists(_)), "{taken:?}");
    let pid = std::process::id();
    assert_eq!(taken.to_string(), format!("channel c already exists: process {pid} is its sender"));
    drop(one);
    let endpoint = domain.endpoint("c").create().unwrap();
    let taken = domain.sender("c").create().unwrap_err().to_string();
    assert_eq!(taken, format!("endpoint c already exists: process {pid} has it"));
    drop(endpoint);
    let _shared = open(&scratch);
    let taken = domain.sender("c").create().unwrap_err().to_string();
    assert_eq!(
        taken,
        format!("shared channel c already exists: process {pid} is one of its senders")
    );
    let _others = [open(&scratch), open(&scratch), open(&scratch)];
    let full = open_error(&scratch).to_string();
    assert_eq!(full, "channel c: the channel has its maximum of 4 senders");
    let error = domain.receiver("c").from_oldest().join().unwrap_err();
    assert_eq!(
        error.to_string(),
        "channel c: a shared channel can be joined from now on only, not at its oldest message"
    );
    let error = domain.sender("x").open_shared(1000).unwrap_err();
    assert_eq!(error.to_string(), "senders: 1 to 128 are possible, not 1000");
}

fn open_error(scratch: &Scratch) -> CreateError {
    scratch.domain().sender("c").open_shared(4).unwrap_err()
}

#[test]
fn a_full_channel_says_so_and_loses_nothing() {
    let scratch = Scratch::new("shared-full");
    let mut sender = open(&scratch);
    let mut receiver = scratch.domain().receiver("c").join().unwrap();
    for number in 0..64u64 {
        sender.try_send(&number.to_le_bytes()).unwrap();
    }
    assert_eq!(sender.try_send(b"x"), Err(SendError::Full { lag: 64 }));
    let after = Duration::from_millis(2);
    assert_eq!(sender.send_timeout(b"x", after), Err(SendError::Timeout { after, lag: 64 }));
    for number in 0..64u64 {
        assert_eq!(receiver.receive().unwrap()[..], number.to_le_bytes());
    }
    receiver.acknowledge();
    assert!(sender.drain(Duration::from_secs(10)).unwrap());
    sender.try_send(b"y").unwrap();
    let too_large = sender.try_send(&[0; 1025]);
    assert_eq!(too_large, Err(SendError::TooLarge { max: 1024, asked: 1025 }));
}

#[test]
fn a_slow_receiver_of_a_shared_channel_is_evicted() {
    let scratch = Scratch::new("shared-evict");
    let builder = scratch.domain().sender("c").slots(64);
    let mut sender = builder.evict(Duration::from_millis(1)).open_shared(2).unwrap();
    assert!(matches!(
        scratch.domain().receiver("c").join().unwrap_err(),
        JoinError::NotInPlace { .. }
    ));
    let mut slow = scratch.domain().receiver("c").snapshots().join().unwrap();
    let mut fast = scratch.domain().receiver("c").snapshots().join().unwrap();
    for number in 0..300u64 {
        sender.send(&message(0, number)).unwrap();
        let copy = fast.receive().unwrap().to_vec().unwrap();
        assert_eq!(check(&copy), (0, number));
        fast.acknowledge();
    }
    assert_eq!(slow.receive().unwrap_err(), ReceiveError::Evicted);
    drop(slow);
    assert_eq!(sender.receivers(), 1);
}

#[test]
fn readiness_wakes_a_poll() {
    use rustix::event::{PollFd, PollFlags, poll};
    let scratch = Scratch::new("shared-readiness");
    let mut sender = open(&scratch);
    let mut receiver = scratch.domain().receiver("c").join().unwrap();
    let readiness = receiver.readiness().unwrap();
    for number in 0..20 {
        assert!(receiver.try_receive().unwrap().is_none());
        if !receiver.arm().unwrap() {
            continue;
        }
        sender.send(&message(0, number)).unwrap();
        poll(&mut [PollFd::new(&readiness, PollFlags::IN)], None).unwrap();
        assert_eq!(check(&receiver.receive().unwrap()), (0, number));
    }
}

#[test]
fn a_waiting_call_can_be_interrupted() {
    let scratch = Scratch::new("shared-interrupt");
    let mut sender = open(&scratch);
    let receiver = scratch.domain().receiver("c").join().unwrap();
    let interrupter = sender.interrupter();
    let sending = thread::spawn(move || {
        let sent = (0..).find_map(|number| sender.send(&message(0, number)).err());
        (sent, sender)
    });
    while receiver.next_sequence() > 0 || scratch.domain().channels().unwrap().is_empty() {
        thread::yield_now();
    }
    interrupter.interrupt();
    assert_eq!(sending.join().unwrap().0, Some(SendError::Interrupted));
}

#[test]
fn an_observer_sees_everybody() {
    let scratch = Scratch::new("shared-observe");
    let mut first = open(&scratch);
    let mut second = open(&scratch);
    let receiver = scratch.domain().receiver("c").join().unwrap();
    first.send(&message(0, 0)).unwrap();
    second.send(&message(1, 0)).unwrap();
    let observer = scratch.domain().observe("c").unwrap();
    let view = observer.look();
    assert_eq!((view.senders, view.sent, view.pid), (2, 2, std::process::id()));
    assert_eq!(view.receivers.len(), 1);
    assert_eq!((view.receivers[0].lag, view.receivers[0].pid), (2, std::process::id()));
    assert_eq!(view.sample.len(), 2);
    drop((receiver, first));
    let view = observer.look();
    assert_eq!((view.senders, view.receivers.len()), (1, 0));
}

#[test]
fn senders_that_come_and_go_leave_nothing_behind() {
    let scratch = Scratch::new("shared-churn");
    let mut host = open(&scratch);
    let mut receiver = scratch.domain().receiver("c").join().unwrap();
    let descriptors = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let churn = |host: &mut SharedSender, receiver: &mut corewire::Receiver| {
        for number in 0..50 {
            let mut guest = open(&scratch);
            let mut reader = scratch.domain().receiver("c").join().unwrap();
            guest.send(&message(1, number)).unwrap();
            host.send(&message(0, number)).unwrap();
            for reader in [&mut reader, &mut *receiver] {
                assert_eq!(check(&reader.receive().unwrap()), (1, number));
                assert_eq!(check(&reader.receive().unwrap()), (0, number));
                // The next guest may get this guest's row. It must not overwrite this guest's
                // payload before the receivers acknowledge it.
                reader.acknowledge();
            }
        }
    };
    churn(&mut host, &mut receiver);
    let before = descriptors();
    churn(&mut host, &mut receiver);
    // The control thread may not have seen the last hang-ups yet, and other tests run at the same
    // time.
    let (start, limit) = (Instant::now(), Duration::from_secs(60));
    while descriptors() >= before + 40 {
        assert!(start.elapsed() < limit, "{before} descriptors have become {}", descriptors());
        thread::yield_now();
    }
}

#[test]
fn whoever_takes_a_row_again_leaves_what_was_sent_from_it_alone() {
    let scratch = Scratch::new("shared-row-again");
    let mut first = open(&scratch);
    let mut receiver = scratch.domain().receiver("c").join().unwrap();
    let mut before = open(&scratch);
    before.send(&message(1, 7)).unwrap();
    drop(before);
    let mut after = open(&scratch);
    // The new sender has the same memory. It must not write there before the receiver has read.
    assert!(matches!(after.try_send(&message(2, 7)), Err(SendError::Full { .. })));
    after.try_send(&message(2, 0)).unwrap();
    first.try_send(&message(3, 7)).unwrap();
    for expected in [(1, 7), (2, 0), (3, 7)] {
        assert_eq!(check(&receiver.receive().unwrap()), expected);
    }
    receiver.acknowledge();
    after.try_send(&message(2, 7)).unwrap();
    assert_eq!(check(&receiver.receive().unwrap()), (2, 7));
}
