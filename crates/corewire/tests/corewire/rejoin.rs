//! Receivers that continue with the next channel of the same name.

use std::thread;
use std::time::Duration;

use crate::scratch::Scratch;
use corewire::{Domain, JoinError, Levels, ReceiveError, Receiver, Sender, SnapshotReceiver};
use zerocopy::IntoBytes;

#[corewire::message]
#[derive(Debug, PartialEq)]
struct Tick {
    price: u64,
}

fn end_of(receiver: &mut impl Ended) -> ReceiveError {
    receiver.end()
}

/// What receiving reports when nothing more comes.
trait Ended {
    fn end(&mut self) -> ReceiveError;
}

impl Ended for Receiver {
    fn end(&mut self) -> ReceiveError {
        self.receive().unwrap_err()
    }
}

impl Ended for SnapshotReceiver {
    fn end(&mut self) -> ReceiveError {
        self.receive().unwrap_err()
    }
}

#[test]
fn the_first_message_of_a_channel_that_is_created_meanwhile_is_received() {
    let scratch = Scratch::new("rejoin-first");
    let domain = scratch.domain();
    type Create = fn(&Domain) -> Sender;
    let kinds: [Create; 3] = [
        |domain| domain.sender("c").create().unwrap(),
        |domain| domain.sender("c").evict(Duration::from_secs(60)).create().unwrap(),
        |domain| domain.sender("c").levels(Levels::Two).cache_domain(0).create().unwrap(),
    ];
    for create in kinds {
        let mut sender = create(domain);
        let builder = domain.receiver("c").snapshots().cache_domain(7);
        let mut receiver = builder.join().unwrap();
        for round in 0..5u64 {
            sender.send(&round.to_le_bytes()).unwrap();
            assert_eq!(receiver.receive().unwrap().read_at::<u64>(0), Ok(round));
            drop(sender);
            assert_eq!(end_of(&mut receiver), ReceiveError::EndOfStream);
            let waiting = thread::spawn(move || receiver.rejoin().map(|()| receiver));
            scratch.await_notes(1);
            sender = create(domain);
            sender.send(b"first").unwrap();
            receiver = waiting.join().unwrap().unwrap();
            let mut first = receiver.receive().unwrap();
            assert_eq!((first.sequence(), first.to_vec().unwrap()), (0, b"first".to_vec()));
        }
    }
}

#[test]
fn a_shared_channel_is_joined_again() {
    let scratch = Scratch::new("rejoin-shared");
    let domain = scratch.domain();
    let sender = domain.sender("c").open_shared(2).unwrap();
    let mut receiver = domain.receiver("c").join().unwrap();
    drop(sender);
    assert_eq!(end_of(&mut receiver), ReceiveError::EndOfStream);
    let waiting = thread::spawn(move || receiver.rejoin().map(|()| receiver));
    scratch.await_notes(1);
    let mut sender = domain.sender("c").open_shared(2).unwrap();
    sender.send(b"first").unwrap();
    let mut receiver = waiting.join().unwrap().unwrap();
    assert_eq!(receiver.receive().unwrap()[..], *b"first");
}

#[test]
fn without_a_next_channel_the_receiver_stays_as_it_was() {
    let scratch = Scratch::new("rejoin-none");
    let domain = scratch.domain();
    let sender = domain.sender("c").create().unwrap();
    let mut receiver = domain.receiver("c").join().unwrap();
    drop(sender);
    for _ in 0..2 {
        assert_eq!(end_of(&mut receiver), ReceiveError::EndOfStream);
        let now = receiver.rejoin_now().unwrap_err();
        assert!(matches!(now, JoinError::NotFound(_)), "{now}");
        let later = receiver.rejoin_timeout(Duration::from_millis(5)).unwrap_err();
        assert!(matches!(later, JoinError::NotCreated { .. }), "{later}");
    }
    let endpoint = domain.endpoint("c").create().unwrap();
    let error = receiver.rejoin().unwrap_err();
    assert!(matches!(error, JoinError::NotAChannel(_)), "{error}");
    drop(endpoint);
}

#[test]
fn what_the_builder_said_holds_for_the_next_channel() {
    let scratch = Scratch::new("rejoin-wishes");
    let domain = scratch.domain();
    let sender = domain.sender("c").typed::<Tick>().create().unwrap();
    let mut receiver = domain.receiver("c").from_oldest().typed::<Tick>().join().unwrap();
    drop(sender);
    assert_eq!(receiver.receive().map(drop).unwrap_err(), ReceiveError::EndOfStream);
    let plain = domain.sender("c").create().unwrap();
    let error = receiver.rejoin_now().unwrap_err();
    assert!(matches!(error, JoinError::Type { .. }), "{error}");
    drop(plain);
    let mut sender = domain.sender("c").typed::<Tick>().create().unwrap();
    sender.send(&Tick { price: 7 }).unwrap();
    receiver.rejoin().unwrap();
    assert_eq!(*receiver.receive().unwrap(), Tick { price: 7 });
    drop(sender);
    assert_eq!(receiver.receive().map(drop).unwrap_err(), ReceiveError::EndOfStream);
    let overwriting = domain.sender("c").overwrite().typed::<Tick>().create().unwrap();
    let error = receiver.rejoin_now().unwrap_err();
    assert!(matches!(error, JoinError::NotInPlace { .. }), "{error}");
    drop(overwriting);
}

#[test]
fn an_evicted_receiver_joins_the_same_channel_again() {
    let scratch = Scratch::new("rejoin-evicted");
    let domain = scratch.domain();
    let builder = domain.sender("c").slots(64).receivers(1).evict(Duration::from_millis(1));
    let mut sender = builder.create().unwrap();
    let mut receiver = domain.receiver("c").from_oldest().snapshots().join().unwrap();
    while sender.receivers() == 1 {
        sender.send(b"too many").unwrap();
    }
    while receiver.receive().is_ok() {}
    assert_eq!(end_of(&mut receiver), ReceiveError::Evicted);
    let sent = sender.sent();
    receiver.rejoin().unwrap();
    assert_eq!((receiver.next_sequence(), receiver.missed()), (sent, 0));
    sender.send(b"again").unwrap();
    assert_eq!(receiver.receive().unwrap().to_vec().unwrap(), b"again");
}

#[test]
fn a_receiver_of_any_type_reads_every_channel() {
    let scratch = Scratch::new("any-type");
    let domain = scratch.domain();
    let tick = Tick { price: 7 };
    let check = |expected: Option<(String, u64)>, send: &mut dyn FnMut()| {
        let mut receiver = domain.receiver("c").any_type().cache_domain(7).join().unwrap();
        assert_eq!(receiver.channel_type().map(|found| (found.name, found.bytes)), expected);
        send();
        assert_eq!(receiver.receive().unwrap()[..], *tick.as_bytes());
        receiver
    };
    let ticks = || Some(("Tick".to_owned(), 8));
    let mut plain = domain.sender("c").create().unwrap();
    check(None, &mut || plain.send(tick.as_bytes()).unwrap());
    drop(plain);
    let mut typed = domain.sender("c").typed::<Tick>().create().unwrap();
    check(ticks(), &mut || typed.send(&tick).unwrap());
    let error = domain.receiver("c").join().unwrap_err();
    assert!(matches!(error, JoinError::Type { .. }), "{error}");
    drop(typed);
    let mut shared = domain.sender("c").typed::<Tick>().open_shared(2).unwrap();
    check(ticks(), &mut || shared.send(&tick).unwrap());
    drop(shared);
    // The relay that such a receiver makes carries the channel's type.
    let two = domain.sender("c").levels(Levels::Two).cache_domain(0);
    let mut two = two.typed::<Tick>().create().unwrap();
    let first = check(ticks(), &mut || two.send(&tick).unwrap());
    let typed = domain.receiver("c").cache_domain(7).typed::<Tick>().join();
    two.send(&tick).unwrap();
    assert_eq!(*typed.unwrap().receive().unwrap(), tick);
    drop(first);
}
