//! Channels of a declared type: which types are refused and how the error names them, and every way
//! to send and receive a value.

use std::error::Error;
use std::fmt::Debug;
use std::thread;
use std::time::Duration;

use crate::scratch::Scratch;
use corewire::{
    CreateError, JoinError, Levels, MessageType, ReceiveError, Receiver, SendError, Sender,
    SharedSender, SnapshotReceiver, WaitSet,
};

/// The limit of a wait that should end at once; the test fails if it does not.
const LONG: Duration = Duration::from_secs(30);
const SHORT: Duration = Duration::from_millis(1);

#[corewire::message(name = "example.Tick.1")]
#[derive(Debug, Clone, Copy, PartialEq)]
struct Tick {
    price: u64,
    volume: u64,
}

impl Tick {
    fn numbered(number: u64) -> Self {
        Self { price: number, volume: !number }
    }
}

/// As long as a slot's payload and aligned like it.
#[corewire::message]
#[derive(Debug, Clone, Copy, PartialEq)]
struct Wide {
    number: u128,
    rest: [u64; 4],
}

impl Wide {
    fn numbered(number: u64) -> Self {
        Self { number: number.into(), rest: [number; 4] }
    }
}

/// Too long for a slot, and aligned as strictly as possible.
#[corewire::message]
#[repr(align(64))]
#[derive(Debug, Clone, Copy, PartialEq)]
struct Long {
    numbers: [u64; 16],
}

impl Long {
    fn numbered(number: u64) -> Self {
        Self { numbers: [number; 16] }
    }
}

fn channel<T: MessageType>(scratch: &Scratch) -> (Sender<T>, Receiver<T>) {
    let sender = scratch.domain().sender("c").slots(4).typed().create().unwrap();
    let receiver = scratch.domain().receiver("c").typed().join().unwrap();
    (sender, receiver)
}

/// Why a channel of type `A` cannot be joined for type `B`.
fn refusal<A: MessageType, B: MessageType>(test: &str) -> String {
    let scratch = Scratch::new(test);
    let _sender = scratch.domain().sender("prices").typed::<A>().create().unwrap();
    let _same = scratch.domain().receiver("prices").typed::<A>().join().unwrap();
    let in_place = scratch.domain().receiver("prices").typed::<B>().join().unwrap_err();
    let copying = scratch.domain().receiver("prices").snapshots().typed::<B>().join().unwrap_err();
    assert_eq!(in_place, copying);
    assert!(matches!(in_place, JoinError::Type { .. }), "{in_place:?}");
    in_place.to_string()
}

const ANOTHER_VERSION: &str =
    "channel prices carries another version of example.Tick.1 (other fields, types or order)";

// Keeps P92.
#[test]
fn swapped_fields_are_refused() {
    mod other {
        #[corewire::message(name = "example.Tick.1")]
        pub(super) struct Tick {
            volume: u64,
            price: u64,
        }
    }
    assert_eq!(refusal::<Tick, other::Tick>("swapped"), ANOTHER_VERSION);
    assert_eq!(refusal::<other::Tick, Tick>("swapped-back"), ANOTHER_VERSION);
}

#[test]
fn a_renamed_field_or_one_of_another_type_is_refused() {
    mod renamed {
        #[corewire::message(name = "example.Tick.1")]
        pub(super) struct Tick {
            price: u64,
            quantity: u64,
        }
    }
    mod retyped {
        #[corewire::message(name = "example.Tick.1")]
        pub(super) struct Tick {
            price: f64,
            volume: u64,
        }
    }
    mod split {
        #[corewire::message(name = "example.Tick.1")]
        pub(super) struct Tick {
            price: [u32; 2],
            volume: u64,
        }
    }
    assert_eq!(refusal::<Tick, renamed::Tick>("renamed"), ANOTHER_VERSION);
    assert_eq!(refusal::<Tick, retyped::Tick>("retyped"), ANOTHER_VERSION);
    assert_eq!(refusal::<Tick, split::Tick>("split"), ANOTHER_VERSION);
}

#[test]
fn the_fields_of_a_field_count() {
    mod one {
        #[corewire::message]
        pub(super) struct Quote {
            bid: u64,
            ask: u64,
        }
        #[corewire::message]
        pub(super) struct Book {
            quotes: [Quote; 4],
        }
    }
    mod other {
        #[corewire::message]
        pub(super) struct Quote {
            ask: u64,
            bid: u64,
        }
        #[corewire::message]
        pub(super) struct Book {
            quotes: [Quote; 4],
        }
    }
    let error = refusal::<one::Book, other::Book>("nested");
    let expected = "channel prices carries another version of Book (other fields, types or order)";
    assert_eq!(error, expected);
}

// Keeps P92.
#[test]
fn another_type_is_refused_with_both_names() {
    #[corewire::message(name = "example.Trade.2")]
    struct Trade {
        price: u64,
        buyer: u64,
        seller: u64,
    }
    mod other {
        #[corewire::message(name = "example.Tick.1")]
        pub(super) struct Tick {
            price: u64,
        }
    }
    assert_eq!(
        refusal::<Tick, Trade>("names"),
        "channel prices carries example.Tick.1 of 16 bytes, but example.Trade.2 of 24 bytes was \
         expected"
    );
    assert_eq!(
        refusal::<Tick, [u64; 2]>("array"),
        "channel prices carries example.Tick.1 of 16 bytes, but [u64; 2] of 16 bytes was expected"
    );
    assert_eq!(
        refusal::<Tick, other::Tick>("size"),
        "channel prices carries another version of example.Tick.1, of 16 bytes instead of 8"
    );
}

#[test]
fn plain_bytes_are_another_type() {
    let scratch = Scratch::new("typed-plain");
    let domain = scratch.domain();
    let _typed = domain.sender("typed").typed::<Tick>().create().unwrap();
    let _plain = domain.sender("plain").create().unwrap();
    let error = domain.receiver("typed").join().unwrap_err().to_string();
    let expected =
        "channel typed carries example.Tick.1 of 16 bytes, but plain bytes were expected";
    assert_eq!(error, expected);
    let error = domain.receiver("plain").typed::<Tick>().join().unwrap_err().to_string();
    let expected = "channel plain carries plain bytes, but example.Tick.1 of 16 bytes was expected";
    assert_eq!(error, expected);
}

#[test]
fn a_sender_of_another_type_is_refused() {
    let scratch = Scratch::new("typed-enter");
    let _first = scratch.domain().sender("c").typed::<Tick>().open_shared(4).unwrap();
    let error = scratch.domain().sender("c").typed::<Wide>().open_shared(4).unwrap_err();
    let expected =
        "channel c carries example.Tick.1 of 16 bytes, but Wide of 48 bytes was expected";
    assert_eq!(error.to_string(), expected);
    let CreateError::Enter(error) = error else { panic!("{error:?}") };
    assert!(matches!(*error, JoinError::Type { .. }), "{error:?}");
    let error = scratch.domain().sender("c").open_shared(4).unwrap_err();
    assert!(error.to_string().ends_with("but plain bytes were expected"), "{error}");
}

#[test]
fn a_relay_tells_the_type_of_its_channel() {
    let scratch = Scratch::new("typed-levels");
    let domain = scratch.domain();
    let builder = domain.sender("c").levels(Levels::Two).cache_domain(0);
    let mut sender = builder.typed::<Tick>().create().unwrap();
    let afar = domain.receiver("c").cache_domain(7);
    let mut receivers = [0; 2].map(|_| afar.clone().typed::<Tick>().join().unwrap());
    sender.send(&Tick::numbered(1)).unwrap();
    for receiver in &mut receivers {
        assert_eq!(*receiver.receive().unwrap(), Tick::numbered(1));
    }
    let error = afar.typed::<Wide>().join().unwrap_err().to_string();
    let expected =
        "channel c carries example.Tick.1 of 16 bytes, but Wide of 48 bytes was expected";
    assert_eq!(error, expected);
}

#[test]
fn an_observer_sees_the_name_of_the_type() {
    let scratch = Scratch::new("typed-observe");
    let domain = scratch.domain();
    let _typed = domain.sender("typed").typed::<Tick>().create().unwrap();
    let _plain = domain.sender("plain").create().unwrap();
    let _shared = domain.sender("shared").typed::<[f32; 3]>().open_shared(2).unwrap();
    let seen = |name| domain.observe(name).unwrap().look().message_type;
    assert_eq!(seen("typed").as_deref(), Some("example.Tick.1"));
    assert_eq!(seen("plain"), None);
    assert_eq!(seen("shared").as_deref(), Some("[f32; 3]"));
}

/// Every way to send, for one kind of sender: `$send` is how it sends a loan.
macro_rules! every_way_to_send {
    ($test:ident, $open:ident($($argument:expr)?), |$loan:ident| $send:expr) => {
        #[test]
        fn $test() {
            fn check<T: MessageType + Copy + Debug + PartialEq>(value: fn(u64) -> T) {
                let name = format!("{}-{}", stringify!($test), size_of::<T>());
                let scratch = Scratch::new(&name);
                let builder = scratch.domain().sender("c").slots(32);
                let mut sender = builder.typed::<T>().$open($($argument)?).unwrap();
                let mut receiver = scratch.domain().receiver("c").typed::<T>().join().unwrap();
                sender.send(&value(0)).unwrap();
                sender.try_send(&value(1)).unwrap();
                sender.send_timeout(&value(2), LONG).unwrap();
                for number in 0..3 {
                    assert_eq!(*receiver.receive().unwrap(), value(number));
                }
                let mut $loan = sender.loan().unwrap();
                *$loan = value(3);
                assert_eq!(*$loan, value(3));
                $send;
                let mut $loan = sender.try_loan().unwrap();
                *$loan = value(4);
                $send;
                let mut $loan = sender.loan_timeout(LONG).unwrap();
                *$loan = value(5);
                $send;
                drop(sender.loan().unwrap());
                for number in 3..6 {
                    assert_eq!(*receiver.try_receive().unwrap().unwrap(), value(number));
                }
                assert!(receiver.try_receive().unwrap().is_none());
                let mut batch = sender.batch();
                batch.send(&value(6)).unwrap();
                batch.send_with(|place| *place = value(7)).unwrap();
                batch.finish().unwrap();
                for number in 6..8 {
                    let received = receiver.receive_timeout(LONG).unwrap().unwrap();
                    assert_eq!((received.sequence(), *received), (number, value(number)));
                }
                assert!(receiver.receive_timeout(SHORT).unwrap().is_none());
                assert_eq!((sender.sent(), receiver.next_sequence()), (8, 8));
            }
            check(Tick::numbered);
            check(Wide::numbered);
            check(Long::numbered);
            check(|number| [number; 3]);
        }
    };
}

every_way_to_send!(values_are_sent_by_one_sender, create(), |loan| loan.send());
every_way_to_send!(values_are_sent_by_one_of_several, open_shared(2), |loan| {
    loan.send().unwrap();
});

#[test]
fn a_sender_that_may_not_wait_is_told_that_the_ring_is_full() {
    let scratch = Scratch::new("typed-full");
    let (mut sender, mut receiver) = channel::<Tick>(&scratch);
    let held = receiver.receive_batch(0).unwrap();
    for number in 0..4 {
        sender.try_send(&Tick::numbered(number)).unwrap();
    }
    assert_eq!(sender.try_send(&Tick::numbered(4)), Err(SendError::Full { lag: 4 }));
    assert_eq!(sender.try_loan().unwrap_err(), SendError::Full { lag: 4 });
    let timeout = SendError::Timeout { after: SHORT, lag: 4 };
    assert_eq!(sender.send_timeout(&Tick::numbered(4), SHORT).unwrap_err(), timeout);
    assert_eq!(sender.loan_timeout(SHORT).unwrap_err(), timeout);
    drop(held);
    receiver.receive().unwrap();
    receiver.acknowledge();
    sender.loan().unwrap().send();
}

#[test]
fn a_sender_of_several_is_told_that_there_is_no_slot_for_its_loan() {
    let scratch = Scratch::new("typed-shared-full");
    let builder = scratch.domain().sender("c").slots(32);
    let mut sender: SharedSender<Tick> = builder.typed().open_shared(2).unwrap();
    let _receiver = scratch.domain().receiver("c").typed::<Tick>().join().unwrap();
    for number in 0..32 {
        sender.try_send(&Tick::numbered(number)).unwrap();
    }
    let error = sender.try_loan().unwrap().try_send().unwrap_err();
    assert_eq!(error, SendError::Full { lag: 32 });
}

#[test]
fn a_loan_is_aligned_wherever_it_is_moved() {
    /// Puts the loan 8 bytes further on, unless its own alignment forbids it.
    #[repr(C)]
    struct Shifted<L>(u64, L);

    let scratch = Scratch::new("typed-aligned");
    let mut sender = scratch.domain().sender("c").typed::<Wide>().open_shared(2).unwrap();
    let mut receiver = scratch.domain().receiver("c").typed::<Wide>().join().unwrap();
    {
        let mut loan = Box::new(sender.loan().unwrap());
        **loan = Wide::numbered(0);
        loan.send().unwrap();
    }
    {
        let mut shifted = Box::new(Shifted(0, sender.loan().unwrap()));
        *shifted.1 = Wide::numbered(1);
        shifted.1.send().unwrap();
    }
    for number in 0..2 {
        assert_eq!(*receiver.receive().unwrap(), Wide::numbered(number));
    }
}

#[test]
fn several_values_are_held_at_once() {
    let scratch = Scratch::new("typed-batch");
    let (mut sender, mut receiver) = channel::<Tick>(&scratch);
    for number in 0..3 {
        sender.send(&Tick::numbered(number)).unwrap();
    }
    let mut batch = receiver.receive_batch(2).unwrap();
    assert_eq!((batch.len(), batch.is_empty()), (2, false));
    assert_eq!(batch.receive(9), Ok(1));
    assert_eq!(batch.get(2), Ok(Some(&Tick::numbered(2))));
    assert_eq!(batch.get(3), Ok(None));
    batch.release(1).unwrap();
    let prices: Vec<_> = batch.iter().map(|tick| tick.price).collect();
    assert_eq!(prices, [1, 2]);
    drop(batch);
    sender.close();
    assert_eq!(receiver.receive().unwrap_err(), ReceiveError::EndOfStream);
}

#[test]
fn snapshots_of_a_channel_that_overwrites_are_whole_or_missed() {
    const COUNT: u64 = 200_000;
    let scratch = Scratch::new("typed-overwrite");
    let builder = scratch.domain().sender("c").slots(4).overwrite();
    let mut sender = builder.typed::<Long>().create().unwrap();
    let in_place = scratch.domain().receiver("c").typed::<Long>().join().unwrap_err();
    assert!(matches!(in_place, JoinError::NotInPlace { .. }), "{in_place:?}");
    let mut receiver: SnapshotReceiver<Long> =
        scratch.domain().receiver("c").snapshots().typed().join().unwrap();
    let sending = thread::spawn(move || {
        for number in 0..COUNT {
            sender.send(&Long::numbered(number)).unwrap();
        }
    });
    let (mut received, mut next) = (0, 0);
    let mut calls = 0;
    loop {
        calls += 1;
        let value = match calls % 3 {
            0 => receiver.try_receive(),
            1 => receiver.receive_timeout(LONG),
            _ => receiver.receive().map(Some),
        };
        let value = match value {
            Ok(None) => continue,
            Ok(Some(value)) => value,
            Err(ReceiveError::EndOfStream) => break,
            Err(error) => panic!("{error}"),
        };
        let number = value.numbers[0];
        assert_eq!(value, Long::numbered(number));
        assert!(number >= next, "{number} after {next}");
        next = number + 1;
        received += 1;
    }
    sending.join().unwrap();
    assert_eq!(received + receiver.missed(), COUNT);
}

#[test]
fn values_are_copied_from_any_channel() {
    let scratch = Scratch::new("typed-copies");
    let domain = scratch.domain();
    let mut sender = domain.sender("c").evict(LONG).typed::<Wide>().create().unwrap();
    let mut receiver = domain.receiver("c").snapshots().typed::<Wide>().join().unwrap();
    assert_eq!(receiver.try_receive(), Ok(None));
    assert_eq!(receiver.receive_timeout(SHORT), Ok(None));
    let mut loan = sender.loan().unwrap();
    *loan = Wide::numbered(0);
    loan.send();
    assert_eq!(receiver.receive(), Ok(Wide::numbered(0)));
    sender.send(&Wide::numbered(1)).unwrap();
    sender.send(&Wide::numbered(2)).unwrap();
    drop(sender);
    let mut rest = vec![];
    receiver.for_each(|value| rest.push(value.rest[0])).unwrap();
    assert_eq!((rest, receiver.missed()), (vec![1, 2], 0));
    assert_eq!(receiver.receive(), Err(ReceiveError::EndOfStream));
}

#[test]
fn a_value_of_any_length_fits_the_channel() {
    const BYTES: usize = 3 << 20;
    let scratch = Scratch::new("typed-large");
    let domain = scratch.domain();
    let builder = domain.sender("c").largest_message(100);
    let mut sender = builder.typed::<[[u8; 1024]; BYTES / 1024]>().create().unwrap();
    let mut receiver = domain.receiver("c").typed::<[[u8; 1024]; BYTES / 1024]>().join().unwrap();
    let mut loan = sender.loan().unwrap();
    loan.as_flattened_mut().fill(7);
    loan.send();
    assert!(receiver.receive().unwrap().as_flattened().iter().all(|&byte| byte == 7));
}

#[test]
fn a_receiver_can_wait_for_its_channel() {
    let scratch = Scratch::new("typed-wait");
    let domain = scratch.domain();
    let error = domain.receiver("c").typed::<Tick>().join_timeout(SHORT).unwrap_err();
    assert!(matches!(error, JoinError::NotCreated { .. }), "{error:?}");
    let waiting = domain.receiver("c");
    let copying = waiting.clone().snapshots();
    let waiting = thread::spawn(move || {
        let mut receiver = waiting.typed::<Tick>().join_when_created().unwrap();
        let tick = *receiver.receive().unwrap();
        tick.price
    });
    let copying = thread::spawn(move || {
        let mut receiver = copying.typed::<Tick>().join_timeout(LONG).unwrap();
        receiver.receive().unwrap().price
    });
    scratch.await_notes(2);
    let mut sender = domain.sender("c").typed::<Tick>().create().unwrap();
    sender.send(&Tick::numbered(5)).unwrap();
    assert_eq!((waiting.join().unwrap(), copying.join().unwrap()), (5, 5));
    let error = domain.receiver("c").typed::<Wide>().join_timeout(LONG).unwrap_err();
    assert!(matches!(error, JoinError::Type { .. }), "{error:?}");
}

#[test]
fn typed_receivers_of_both_kinds_are_waited_for() {
    let scratch = Scratch::new("typed-wait-set");
    let (mut sender, mut in_place) = channel::<Tick>(&scratch);
    let mut copying = scratch.domain().receiver("c").snapshots().typed::<Tick>().join().unwrap();
    let sending = thread::spawn(move || {
        assert_eq!(sender.wait_for_receivers(2), Ok(2));
        sender.send(&Tick::numbered(9)).unwrap();
        sender
    });
    let mut set = WaitSet::default();
    let mut ready = [false; 2];
    while ready != [true; 2] {
        match set.wait(&mut [&mut in_place, &mut copying], Some(LONG)).unwrap() {
            Some(0) => ready[0] = in_place.try_receive().unwrap().is_some() || ready[0],
            Some(1) => ready[1] = copying.try_receive().unwrap().is_some() || ready[1],
            other => panic!("{other:?}"),
        }
    }
    sending.join().unwrap();
}

#[test]
fn a_call_on_typed_ends_can_be_interrupted() {
    let scratch = Scratch::new("typed-interrupt");
    let (mut sender, mut receiver) = channel::<Tick>(&scratch);
    receiver.interrupter().interrupt();
    assert_eq!(receiver.receive().unwrap_err(), ReceiveError::Interrupted);
    sender.interrupter().interrupt();
    assert_eq!(sender.wait_for_receivers_timeout(2, LONG), Err(SendError::Interrupted));
    assert_eq!((sender.name(), sender.receivers()), ("c", 1));
    sender.send(&Tick::numbered(0)).unwrap();
    assert_eq!(receiver.arm(), Ok(false));
    receiver.receive().unwrap();
    receiver.acknowledge();
    assert_eq!(sender.drain(LONG), Ok(true));
    assert_eq!(receiver.counter("messages"), Ok(1));
    assert_eq!(sender.counter("messages"), Ok(1));
    assert!(sender.counter("no such counter").is_err());
}

#[test]
fn types_are_declared_in_every_form() -> Result<(), Box<dyn Error>> {
    use corewire as wire;
    use corewire::zerocopy::little_endian::U64;
    use corewire::zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

    #[corewire::message]
    struct Nothing;

    #[corewire::message(crate = "corewire")]
    struct Pair(u32, f32);

    #[wire::message]
    #[repr(transparent)]
    #[derive(Clone, Copy)]
    struct Price(u64);

    #[derive(FromBytes, IntoBytes, KnownLayout, Immutable, MessageType)]
    #[zerocopy(crate = "corewire::zerocopy")]
    #[corewire(name = "example.Derived")]
    #[repr(C)]
    struct Derived {
        price: Price,
        #[cfg(any())]
        absent: std::fs::File,
        r#type: [u8; 8],
        /// No message type of its own.
        opaque: U64,
    }

    let names = [Nothing::NAME, Pair::NAME, Price::NAME, Derived::NAME];
    assert_eq!(names, ["Nothing", "Pair", "Price", "example.Derived"]);
    let scratch = Scratch::new("typed-forms");
    let (mut sender, mut receiver) = channel::<Nothing>(&scratch);
    sender.send(&Nothing)?;
    receiver.receive()?;
    drop((sender, receiver));
    let (mut sender, mut receiver) = channel::<Derived>(&scratch);
    let value = Derived { price: Price(5), r#type: *b"compiled", opaque: 6.into() };
    sender.send(&value)?;
    let received = receiver.receive()?;
    assert_eq!((received.price.0, &received.r#type), (5, b"compiled"));
    assert_eq!(received.opaque.get(), 6);
    drop(received);
    let (mut sender, mut receiver) = {
        drop((sender, receiver));
        channel::<Pair>(&scratch)
    };
    sender.send(&Pair(1, 2.0))?;
    let received = receiver.receive()?;
    assert_eq!((received.0, received.1), (1, 2.0));
    Ok(())
}
