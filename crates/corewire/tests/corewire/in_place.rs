//! Messages that are read where their sender wrote them, and loans.

use std::collections::VecDeque;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use crate::scratch::Scratch;
use corewire::{Domain, Endpoint, MessageError, OwnedMessage, Peer, Selector, UnsentLoan};

/// Longer than anything takes.
const LONG: Duration = Duration::from_secs(60);

fn low(number: u64) -> u8 {
    number.to_le_bytes()[0]
}

/// A message that no other is equal to: its number, and bytes that follow from it.
fn message(number: u64, length: usize) -> Vec<u8> {
    let mut bytes: Vec<u8> =
        (0u64..).take(length).map(|i| low(i).wrapping_mul(31).wrapping_add(low(number))).collect();
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    bytes
}

fn two(domain: &Domain) -> (Endpoint, Peer, Endpoint, Peer) {
    let mut a = domain.endpoint("a").create().unwrap();
    let mut b = domain.endpoint("b").create().unwrap();
    let to_b = a.peer("b").unwrap();
    let to_a = b.peer("a").unwrap();
    (a, to_b, b, to_a)
}

/// Makes `b` grant `a` something: a message of `a` comes in place.
fn warm_up((a, to_b): (&mut Endpoint, Peer), b: &mut Endpoint) {
    for _ in 0..100 {
        a.send(to_b, 0, &[0; 200]).unwrap();
        let is_in_place = b.receive(Selector::any()).unwrap().is_in_place();
        a.progress().unwrap();
        if is_in_place {
            return;
        }
    }
    panic!("no message comes in place");
}

#[test]
fn messages_of_every_length_come_in_place_and_whole() {
    let scratch = Scratch::new("in-place-every-length");
    let domain = scratch.domain();
    let mut a = domain.endpoint("a").in_place_up_to(200_000).create().unwrap();
    let mut b = domain.endpoint("b").create().unwrap();
    let (to_b, to_a) = (a.peer("b").unwrap(), b.peer("a").unwrap());
    warm_up((&mut a, to_b), &mut b);
    let lengths =
        [161, 255, 256, 257, 1000, 4096, 16_384, 16_385, 32_769, 65_535, 65_536, 65_537, 200_000];
    for (number, length) in (0u64..).zip(lengths) {
        let sent = message(number, length);
        a.send(to_b, number, &sent).unwrap();
        let got = b.receive(Selector::any()).unwrap();
        assert!(got.is_in_place(), "{length} bytes");
        assert_eq!((got.source(), got.tag(), &got[..]), (to_a, number, &sent[..]));
        drop(got);
        // Into a buffer, as well.
        a.send(to_b, number, &sent).unwrap();
        let mut buffer = vec![0; length];
        assert_eq!(b.receive_into(Selector::any(), &mut buffer).unwrap().bytes, length as u64);
        assert_eq!(buffer, sent);
        // And kept, before a receive asks for it.
        a.send(to_b, number, &sent).unwrap();
        b.progress().unwrap();
        assert_eq!(b.now().probe(Selector::any()).unwrap().unwrap().bytes, length as u64);
        let got = b.try_receive(Selector::any()).unwrap().unwrap();
        assert!(got.is_in_place() && got == sent);
    }
    assert!(b.counter("in_place").unwrap() >= 3 * lengths.len() as u64);
    assert_eq!(b.counter("violations").unwrap(), 0);
}

// Keeps P130.
#[test]
fn messages_are_dropped_in_any_order_by_any_thread() {
    const COUNT: u64 = 20_000;
    let scratch = Scratch::new("in-place-any-order");
    let (mut a, to_b, mut b, _) = two(scratch.domain());
    let droppers: Vec<_> = (0..8u64)
        .map(|seed| {
            let (give, take) = mpsc::channel::<(u64, OwnedMessage)>();
            let dropper = thread::spawn(move || {
                let mut held = VecDeque::new();
                let mut dice = seed + 1;
                for (number, got) in take {
                    held.push_back((number, got));
                    dice ^= dice << 13;
                    dice ^= dice >> 7;
                    dice ^= dice << 17;
                    while held.len() as u64 > dice % 16 {
                        let index = usize::try_from(dice >> 8).unwrap() % held.len();
                        let (number, got) = held.swap_remove_back(index).unwrap();
                        assert_eq!(
                            got,
                            message(number, got.len()),
                            "unchanged until it is dropped"
                        );
                    }
                }
                for (number, got) in held {
                    assert_eq!(got, message(number, got.len()));
                }
            });
            (give, dropper)
        })
        .collect();
    let sender = thread::spawn(move || {
        for number in 0..COUNT {
            let length = 8 + usize::try_from(number * 7919 % 3000).unwrap();
            a.send(to_b, number, &message(number, length)).unwrap();
        }
        a.close().unwrap();
    });
    for number in 0..COUNT {
        let got = b.receive(Selector::any()).unwrap();
        assert_eq!(got.tag(), number, "in order");
        let (give, _) = &droppers[usize::try_from(number % 8).unwrap()];
        give.send((number, got)).unwrap();
    }
    sender.join().unwrap();
    for (give, dropper) in droppers {
        drop(give);
        dropper.join().unwrap();
    }
    assert!(b.counter("in_place").unwrap() > COUNT / 4);
}

#[test]
fn a_receiver_that_keeps_every_thousandth_gets_all() {
    const COUNT: u64 = 50_000;
    let scratch = Scratch::new("in-place-thousandth");
    let (mut a, to_b, mut b, _) = two(scratch.domain());
    let sender = thread::spawn(move || {
        for number in 0..COUNT {
            a.send(to_b, number, &message(number, 1024)).unwrap();
        }
        a.close().unwrap();
    });
    let mut kept = Vec::new();
    for number in 0..COUNT {
        let got = b.receive(Selector::any()).unwrap();
        assert_eq!(got, message(number, 1024));
        if number % 1000 == 0 {
            kept.push((number, got));
        }
    }
    sender.join().unwrap();
    drop(b);
    for (number, got) in kept {
        assert_eq!(got, message(number, 1024), "after the endpoints have gone");
    }
}

#[test]
fn only_messages_of_up_to_the_length_that_was_chosen_come_in_place() {
    for (chosen, longest) in [(None, 16 << 10), (Some(1000), 1000), (Some(0), 0)] {
        let scratch = Scratch::new("in-place-up-to");
        let builder = scratch.domain().endpoint("a");
        let builder = match chosen {
            Some(bytes) => builder.in_place_up_to(bytes),
            None => builder,
        };
        let mut a = builder.create().unwrap();
        let mut b = scratch.domain().endpoint("b").create().unwrap();
        let to_b = a.peer("b").unwrap();
        b.peer("a").unwrap();
        if longest > 0 {
            warm_up((&mut a, to_b), &mut b);
        }
        for length in [161, 1000, 1001, 16 << 10, (16 << 10) + 1, 100_000] {
            a.send(to_b, 0, &message(7, length)).unwrap();
            let got = b.receive(Selector::any()).unwrap();
            assert_eq!((got.is_in_place(), &got[..]), (length <= longest, &message(7, length)[..]));
        }
    }
}

#[test]
fn a_grant_grows_for_long_messages_in_place() {
    const LONG_ONE: usize = 1 << 20;
    let scratch = Scratch::new("in-place-grows");
    let mut a = scratch.domain().endpoint("a").in_place_up_to(LONG_ONE).create().unwrap();
    let mut b = scratch.domain().endpoint("b").create().unwrap();
    let to_b = a.peer("b").unwrap();
    b.peer("a").unwrap();
    warm_up((&mut a, to_b), &mut b);
    let mut take = |a: &mut Endpoint, number| {
        let operation = a.isend(to_b, number, message(number, LONG_ONE)).unwrap();
        let got = loop {
            a.progress().unwrap();
            if let Some(got) = b.try_receive(Selector::any()).unwrap() {
                break got;
            }
        };
        assert_eq!(got, message(number, LONG_ONE));
        a.wait(operation).unwrap().result.unwrap();
        got.is_in_place()
    };
    let is_in_place: Vec<bool> = (0..10).map(|number| take(&mut a, number)).collect();
    assert!(!is_in_place[0], "the first grant is shorter");
    assert!(is_in_place.ends_with(&[true, true]), "{is_in_place:?}");
}

#[test]
fn a_loan_is_read_where_it_was_written() {
    let scratch = Scratch::new("in-place-loan");
    let domain = scratch.domain();
    let mut a = domain.endpoint("a").heap(32 << 20).create().unwrap();
    let mut b = domain.endpoint("b").grants(64 << 20).create().unwrap();
    let to_b = a.peer("b").unwrap();
    b.peer("a").unwrap();
    // The first one asks for a grant.
    let mut first = a.loan(to_b, 1000).unwrap();
    assert!(!first.is_in_place());
    first.copy_from_slice(&message(1, 1000));
    a.send_loan(first, 1).unwrap();
    assert_eq!(b.receive(Selector::any()).unwrap(), message(1, 1000));
    warm_up((&mut a, to_b), &mut b);
    for length in [162, 1000, 65_536, 65_537, 1 << 20, 5_000_001] {
        // As much as is asked for is granted when it is needed.
        let mut loan = loop {
            match a.now().loan(to_b, length) {
                Ok(loan) if loan.is_in_place() => break loan,
                // More than is granted yet: it has memory of its own.
                Ok(loan) => drop(loan),
                Err(MessageError::ReceiverFull { needed, .. }) => assert_eq!(needed, length as u64),
                Err(error) => panic!("{error}"),
            }
            assert!(b.try_receive(Selector::any()).unwrap().is_none());
        };
        assert!(loan.is_in_place(), "{length} bytes");
        loan.copy_from_slice(&message(7, length));
        loan.truncate(length - 1);
        a.send_loan(loan, 7).unwrap();
        let got = b.receive(Selector::any()).unwrap();
        assert!(got.is_in_place());
        assert_eq!(&got[..], &message(7, length)[..length - 1]);
    }
    // A short one travels in slots, an unsent one comes back.
    for _ in 0..10_000 {
        drop(a.loan(to_b, 3 << 20).unwrap());
    }
    let mut short = a.loan(to_b, 8).unwrap();
    short.copy_from_slice(b"in slots");
    a.send_loan(short, 8).unwrap();
    assert_eq!(b.receive(Selector::any()).unwrap(), b"in slots");
    // Another endpoint's.
    let mut c = domain.endpoint("c").create().unwrap();
    c.peer("b").unwrap();
    let loan = a.loan(to_b, 500).unwrap();
    let UnsentLoan { loan, error } = c.send_loan(loan, 1).unwrap_err();
    assert_eq!(error, MessageError::UnknownPeer);
    a.send_loan(loan, 9).unwrap();
    assert_eq!(b.receive(Selector::any()).unwrap().tag(), 9);
}

// Keeps P132.
#[test]
fn what_does_not_fit_is_refused_at_once_or_waits() {
    let scratch = Scratch::new("in-place-refused");
    let domain = scratch.domain();
    let mut a = domain.endpoint("a").create().unwrap();
    let make = domain.endpoint("b").peers(1).grants(64 << 10).refuse_beyond_grants();
    let mut b = make.create().unwrap();
    let to_b = a.peer("b").unwrap();
    b.peer("a").unwrap();
    warm_up((&mut a, to_b), &mut b);
    let mut sent = 0u64;
    let refused = loop {
        match a.try_send(to_b, sent, &message(sent, 1024)) {
            Ok(()) => sent += 1,
            Err(error) => break error,
        }
        assert!(sent <= 64, "more than all that is granted");
    };
    let MessageError::ReceiverFull { name, needed, .. } = refused else { panic!("{refused}") };
    assert_eq!((name.as_str(), needed), ("b", 1024));
    assert!(sent >= 32 && a.counter("nacks").unwrap() > 0);
    // A short message needs no grant.
    a.try_send(to_b, 1000, &[1; 100]).unwrap();
    let short = Duration::from_millis(1);
    let late = a.send_timeout(to_b, sent, &message(sent, 1024), short);
    assert!(matches!(late, Err(MessageError::Timeout { .. })));
    let mut held: VecDeque<OwnedMessage> = (0..sent)
        .map(|number| {
            let got = b.receive(Selector::any()).unwrap();
            assert_eq!(got, message(number, 1024));
            got
        })
        .collect();
    assert_eq!(b.receive(Selector::any()).unwrap().tag(), 1000);
    assert!(a.try_send(to_b, sent, &message(sent, 1024)).is_err(), "received, but not released");
    held.pop_back();
    a.try_send(to_b, sent, &message(sent, 1024)).unwrap();
    // A sender that waits is woken by the thread that releases.
    let sender = thread::spawn(move || {
        for number in 1..=100 {
            a.send(to_b, sent + number, &message(sent + number, 1024)).unwrap();
        }
        a.close().unwrap();
    });
    let (give, take) = mpsc::channel::<OwnedMessage>();
    let dropper = thread::spawn(move || take.into_iter().for_each(drop));
    for got in held {
        give.send(got).unwrap();
    }
    for number in 0..=100 {
        let got = b.receive_timeout(Selector::any(), LONG).unwrap().expect("it comes");
        assert_eq!(got, message(sent + number, 1024));
        give.send(got).unwrap();
    }
    sender.join().unwrap();
    drop(give);
    dropper.join().unwrap();
}

// Keeps P133.
#[test]
fn several_senders_share_a_small_grant_and_nothing_is_lost() {
    const COUNT: u64 = 5_000;
    let scratch = Scratch::new("in-place-several");
    let domain = scratch.domain();
    for refuses in [false, true] {
        let mut make = domain.endpoint("sink").peers(8).grants(1 << 20);
        if refuses {
            make = make.refuse_beyond_grants();
        }
        let mut sink = make.create().unwrap();
        let senders: Vec<_> = (0..4u64)
            .map(|index| {
                let name = format!("source-{index}");
                let mut source = domain.endpoint(&name).create().unwrap();
                let to = source.peer("sink").unwrap();
                thread::spawn(move || {
                    for number in 0..COUNT {
                        let length = 200 + usize::try_from(number * 7919 % 20_000).unwrap();
                        source.send(to, index, &message(number, length)).unwrap();
                    }
                    source.close().unwrap();
                })
            })
            .collect();
        let mut next = [0; 4];
        let mut held = VecDeque::new();
        while next != [COUNT; 4] {
            let got = sink.receive_timeout(Selector::any(), LONG).unwrap().expect("all come");
            let number = &mut next[usize::try_from(got.tag()).unwrap()];
            assert_eq!(got, message(*number, got.len()), "in order of its sender");
            *number += 1;
            held.push_back(got);
            if held.len() > 10 {
                held.pop_front();
            }
        }
        senders.into_iter().for_each(|sender| sender.join().unwrap());
        assert!(sink.counter("in_place").unwrap() > 1000);
    }
}

// Keeps P130.
#[test]
fn what_a_peer_that_has_left_still_reads_is_not_written_over() {
    let scratch = Scratch::new("in-place-left");
    let domain = scratch.domain();
    let mut a = domain.endpoint("a").heap(256 << 10).create().unwrap();
    let mut b = domain.endpoint("b").create().unwrap();
    let to_b = a.peer("b").unwrap();
    b.peer("a").unwrap();
    warm_up((&mut a, to_b), &mut b);
    let mut held = Vec::new();
    for number in 0..30 {
        a.send(to_b, number, &message(number, 4000)).unwrap();
        held.push(b.receive(Selector::any()).unwrap());
    }
    drop(b);
    let mut c = domain.endpoint("c").create().unwrap();
    let to_c = a.peer("c").unwrap();
    c.peer("a").unwrap();
    for number in 0..200 {
        a.send(to_c, number, &[9; 4000]).unwrap();
        let got = c.receive(Selector::any()).unwrap();
        assert!(got.iter().all(|&byte| byte == 9));
    }
    assert!(c.counter("in_place").unwrap() > 0);
    for (number, got) in (0u64..).zip(&held) {
        assert_eq!(*got, message(number, 4000));
    }
}

// Keeps P134.
#[test]
fn a_loan_that_is_dropped_wakes_who_waits_for_its_memory() {
    let scratch = Scratch::new("in-place-dropped-loan");
    let domain = scratch.domain();
    let mut a = domain.endpoint("a").sleep_cap(LONG).create().unwrap();
    let mut b = domain.endpoint("b").peers(1).grants(64 << 10).create().unwrap();
    let to_b = a.peer("b").unwrap();
    b.peer("a").unwrap();
    warm_up((&mut a, to_b), &mut b);
    let mut loans = Vec::new();
    while let Ok(loan) = a.now().loan(to_b, 4000) {
        assert!(loan.is_in_place());
        loans.push(loan);
    }
    assert!(loans.len() >= 8);
    let dropper = thread::spawn(move || drop(loans));
    let began = Instant::now();
    assert!(a.within(LONG / 2).loan(to_b, 4000).unwrap().is_in_place());
    assert!(began.elapsed() < LONG / 2, "woken, and not at its end");
    dropper.join().unwrap();
}

// Keeps P134.
#[test]
fn a_loan_is_sent_even_if_the_peer_holds_all_that_it_may() {
    let scratch = Scratch::new("in-place-all-bits");
    let (mut a, to_b, mut b, _) = two(scratch.domain());
    warm_up((&mut a, to_b), &mut b);
    let mut loan = a.loan(to_b, 200).unwrap();
    assert!(loan.is_in_place());
    loan.fill(5);
    let mut held = Vec::new();
    for _ in 0..5000 {
        a.send(to_b, 0, &[1; 200]).unwrap();
        held.push(b.receive(Selector::any()).unwrap());
    }
    a.now().send_loan(loan, 7).unwrap();
    let got = b.receive(Selector::any()).unwrap();
    assert_eq!((got.tag(), &got[..]), (7, &[5; 200][..]));
}

// Keeps P134.
#[test]
fn what_a_closed_receiver_did_not_take_is_used_again() {
    let scratch = Scratch::new("in-place-closed");
    let domain = scratch.domain();
    let mut a = domain.endpoint("a").heap(1 << 20).create().unwrap();
    for round in 0..20 {
        let mut b = domain.endpoint("b").create().unwrap();
        let to_b = a.peer("b").unwrap();
        b.peer("a").unwrap();
        warm_up((&mut a, to_b), &mut b);
        for _ in 0..60 {
            a.send(to_b, round, &[1; 4000]).unwrap();
        }
        if round == 19 {
            let all_in_place = (0..60).all(|_| b.receive(Selector::any()).unwrap().is_in_place());
            assert!(all_in_place, "there is room for all of them");
        }
        drop(b);
        // Until it is known that b has left.
        while !matches!(a.try_send(to_b, 0, &[0; 8]), Err(MessageError::PeerLeft { .. })) {}
    }
}

// Keeps P132.
#[test]
fn a_sender_that_only_sleeps_gives_back_what_it_is_asked_for() {
    let scratch = Scratch::new("in-place-asleep");
    let domain = scratch.domain();
    let sender = |name: &str| domain.endpoint(name).sleep_cap(LONG).create().unwrap();
    let (mut a, mut other) = (sender("a"), sender("other"));
    let b = domain.endpoint("b").peers(2).grants(1 << 20).refuse_beyond_grants();
    let mut b = b.create().unwrap();
    let (to_b, from_other) = (a.peer("b").unwrap(), other.peer("b").unwrap());
    let [to_a, _] = ["a", "other"].map(|name| b.peer(name).unwrap());
    warm_up((&mut a, to_b), &mut b);
    // Most of what there is.
    let mut held = Vec::new();
    while held.len() < 200 {
        let sent = a.try_send(to_b, 1, &[1; 4000]);
        assert!(matches!(sent, Ok(()) | Err(MessageError::ReceiverFull { .. })), "{sent:?}");
        held.extend(b.receive_timeout(Selector::any(), Duration::ZERO).unwrap());
        a.progress().unwrap();
    }
    warm_up((&mut other, from_other), &mut b);
    let mut kept = Vec::new();
    while other.try_send(from_other, 2, &[2; 4000]).is_ok() {
        kept.push(b.receive(Selector::any()).unwrap());
    }
    let asleep = thread::spawn(move || a.receive(Selector::any()).unwrap().tag());
    let sending = thread::spawn(move || {
        let began = Instant::now();
        (0..60).for_each(|_| other.send_timeout(from_other, 3, &[3; 4000], LONG / 2).unwrap());
        began.elapsed()
    });
    // The one that sleeps is asked while all of its messages are held still.
    for _ in 0..100 {
        kept.extend(b.receive_timeout(Selector::any(), Duration::from_millis(5)).unwrap());
    }
    drop(held);
    while !sending.is_finished() {
        kept.extend(b.receive_timeout(Selector::any(), Duration::from_millis(1)).unwrap());
    }
    assert!(sending.join().unwrap() < LONG / 2);
    b.send(to_a, 4, &[]).unwrap();
    assert_eq!(asleep.join().unwrap(), 4);
}

// Keeps P241.
#[test]
fn a_receive_without_memory_takes_its_turn_and_copies_nothing() {
    let scratch = Scratch::new("in-place-ireceive");
    let domain = scratch.domain();
    let mut a = domain.endpoint("a").in_place_up_to(200_000).create().unwrap();
    let mut b = domain.endpoint("b").create().unwrap();
    let (to_b, to_a) = (a.peer("b").unwrap(), b.peer("a").unwrap());
    warm_up((&mut a, to_b), &mut b);
    let lengths = [8, 48, 160, 161, 1000, 16_384, 200_000, 300_000, 3_000_000];
    for (number, length) in (0u64..).zip(lengths) {
        // A receive with memory, one without, and one with memory again: in this order, whatever comes first.
        let ask = |b: &mut Endpoint| {
            let first = b.ireceive(Selector::any(), vec![0; length]).unwrap();
            let second = b.ireceive_message(Selector::any().from(to_a)).unwrap();
            (first, second, b.ireceive(Selector::tag(number), vec![0; length]).unwrap())
        };
        let sent = [1, 2, 3].map(|part| message(10 * number + part, length));
        let mut asked = (number % 2 == 0).then(|| ask(&mut b));
        let sends = sent.clone().map(|bytes| a.isend(to_b, number, bytes).unwrap());
        let (first, second, third) = asked.take().unwrap_or_else(|| {
            b.progress().unwrap();
            ask(&mut b)
        });
        let got = loop {
            a.progress().unwrap();
            if let Some(got) = b.test_message(second).unwrap() {
                break got;
            }
        };
        assert!(got == sent[1], "{length} bytes");
        assert_eq!((got.source(), got.tag()), (to_a, number));
        assert_eq!(got.is_in_place(), (161..=200_000).contains(&length), "{length} bytes");
        drop(got);
        for (handle, sent) in [(first, &sent[0]), (third, &sent[2])] {
            let ended = loop {
                a.progress().unwrap();
                if let Some(ended) = b.test(handle).unwrap() {
                    break ended;
                }
            };
            assert_eq!(ended.result.unwrap().bytes, length as u64);
            assert!(ended.memory.into_vec() == *sent, "{length} bytes");
        }
        for send in sends {
            a.wait(send).unwrap().result.unwrap();
        }
        assert!(matches!(b.test_message(second), Err(MessageError::UnknownOperation)));
    }
    assert_eq!(b.counter("violations").unwrap(), 0);
}

// Keeps P241.
#[test]
fn a_receive_without_memory_ends_with_its_peer_or_is_cancelled() {
    let scratch = Scratch::new("in-place-ireceive-ends");
    let domain = scratch.domain();
    let (mut a, to_b, mut b, to_a) = two(domain);
    let cancelled = b.ireceive_message(Selector::tag(1)).unwrap();
    let waiting = b.ireceive_message(Selector::tag(2).from(to_a)).unwrap();
    let arrived = b.ireceive_message(Selector::tag(3).from(to_a)).unwrap();
    assert!(b.test_message(cancelled).unwrap().is_none());
    b.cancel(cancelled).unwrap();
    assert!(matches!(b.wait_message(cancelled), Err(MessageError::Cancelled)));
    a.send(to_b, 1, b"nobody asks for it").unwrap();
    a.send(to_b, 3, &message(3, 5000)).unwrap();
    a.close().unwrap();
    assert!(b.wait_message(arrived).unwrap() == message(3, 5000));
    assert!(matches!(b.wait_message(waiting), Err(MessageError::PeerLeft { .. })));
    let late = b.ireceive_message(Selector::tag(4).from(to_a)).unwrap();
    assert!(matches!(b.test_message(late), Err(MessageError::PeerLeft { .. })));
    assert!(b.receive(Selector::tag(1)).unwrap() == *b"nobody asks for it");
    // A handle of another kind.
    let other = b.ireceive(Selector::tag(5), vec![0; 8]).unwrap();
    assert!(matches!(b.test_message(other), Err(MessageError::UnknownOperation)));
}
