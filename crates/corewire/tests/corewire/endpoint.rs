//! The behaviour that users of endpoints rely on.
//!
//! More than 600 lines, because each file of tests is a program that is linked by itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crate::scratch::Scratch;
use corewire::{
    ConnectError, Domain, Endpoint, Envelope, Event, JoinError, Memory, MessageError, Options,
    Peer, Report, Selector, Until, Wait,
};

/// Longer than anything takes.
const LONG: Duration = Duration::from_secs(60);

/// Two endpoints that know each other.
fn two(domain: &Domain) -> (Endpoint, Peer, Endpoint, Peer) {
    let mut a = domain.endpoint("a").create().unwrap();
    let mut b = domain.endpoint("b").create().unwrap();
    let to_b = a.peer("b").unwrap();
    let to_a = b.peer("a").unwrap();
    (a, to_b, b, to_a)
}

/// More endpoints than another endpoint watches. Each has that endpoint as its peer "sink".
fn a_hundred(domain: &Domain) -> Vec<(Endpoint, Peer)> {
    let one = |index| {
        let mut source = domain.endpoint(&format!("source-{index}")).create().unwrap();
        let to = source.peer("sink").unwrap();
        (source, to)
    };
    (0..100).map(one).collect()
}

/// The lowest byte of a number.
fn low(number: u64) -> u8 {
    number.to_le_bytes()[0]
}

fn bytes_of(length: usize, seed: u8) -> Vec<u8> {
    (0u64..).take(length).map(|i| low(i).wrapping_mul(31).wrapping_add(seed)).collect()
}

// Keeps P67.
#[test]
fn messages_of_every_length_arrive_whole_and_in_order() {
    let scratch = Scratch::new("endpoint-messages_of_every_length_arrive");
    let domain = scratch.domain();
    let (mut a, to_b, mut b, to_a) = two(domain);
    let lengths =
        [0, 1, 7, 8, 9, 15, 16, 31, 32, 33, 47, 48, 49, 56, 64, 104, 105, 128, 160, 161, 1000];
    let long =
        [4096, 16_384, 32_767, 32_768, 32_769, 100_000, 1 << 17, 131_073, 1 << 20, 3_000_001];
    let all: Vec<usize> = lengths.into_iter().chain(long).collect();
    let sent = all.clone();
    let sender = thread::spawn(move || {
        for (tag, length) in (0u64..).zip(sent) {
            a.send(to_b, tag, &bytes_of(length, low(tag))).unwrap();
        }
        a.receive(Selector::any()).unwrap();
    });
    let mut buffer = vec![0; 4 << 20];
    for (tag, length) in (0u64..).zip(all) {
        let status = b.receive_into(Selector::any(), &mut buffer).unwrap();
        assert_eq!((status.source, status.tag, status.bytes), (to_a, tag, length as u64));
        assert_eq!(buffer[..length], bytes_of(length, low(tag)), "{length} bytes");
    }
    b.send(to_a, 0, b"done").unwrap();
    sender.join().unwrap();
}

#[test]
fn a_receive_takes_what_it_asks_for_and_leaves_the_rest() {
    let scratch = Scratch::new("endpoint-a_receive_takes_what_it_asks_fo");
    let domain = scratch.domain();
    let (mut a, to_b, mut b, to_a) = two(domain);
    let mut c = domain.endpoint("c").create().unwrap();
    let c_to_b = c.peer("b").unwrap();
    for tag in [1, 2, 3] {
        a.send(to_b, tag, &[low(tag)]).unwrap();
        c.send(c_to_b, 10 + tag, &[10 + low(tag); 300]).unwrap();
    }
    let from_c = b.peer("c").unwrap();
    assert_eq!(b.receive(Selector::tag(3)).unwrap(), [3]);
    assert_eq!(b.receive(Selector::any().from(from_c)).unwrap().tag(), 11);
    assert_eq!(b.receive(Selector::masked(0b10, 0b10).from(to_a)).unwrap(), [2]);
    assert_eq!(b.receive(Selector::masked(8, 8).from(from_c)).unwrap().tag(), 12);
    assert_eq!(b.receive(Selector::any().from(to_a)).unwrap(), [1]);
    assert_eq!(b.receive(Selector::any()).unwrap(), [13; 300]);
    assert_eq!(b.now().probe(Selector::any()).unwrap(), None);
    assert_eq!(b.name_of(from_c), Some("c"));
}

#[test]
fn operations_end_in_their_order_and_give_their_buffers_back() {
    let scratch = Scratch::new("endpoint-operations_end_in_their_order_a");
    let domain = scratch.domain();
    let (mut a, to_b, mut b, to_a) = two(domain);
    let first = b.ireceive(Selector::tag(7), vec![0; 10]).unwrap();
    let second = b.ireceive(Selector::any(), vec![vec![0; 3], vec![0; 300]]).unwrap();
    let third = b.ireceive(Selector::tag(7), vec![0; 10]).unwrap();
    assert!(b.test(first).unwrap().is_none());
    a.send(to_b, 7, b"one").unwrap();
    a.send_gather(to_b, 7, &[b"tw", &[b'o'; 199]]).unwrap();
    a.send(to_b, 7, b"three").unwrap();
    let (place, completion) = b.wait_any(&[third, second, first]).unwrap();
    assert_eq!(place, 0);
    assert_eq!(completion.memory.into_vec()[..5], *b"three");
    let completion = b.wait(first).unwrap();
    assert_eq!(completion.result.unwrap().bytes, 3);
    assert_eq!(completion.memory.into_vec()[..3], *b"one");
    let completion = b.wait(second).unwrap();
    assert_eq!(completion.result.unwrap().bytes, 201);
    assert_eq!(completion.memory.into_parts()[0], b"two");
    assert_eq!(b.wait(second).unwrap_err(), MessageError::UnknownOperation);

    let send = b.isend(to_a, 1, vec![5; 100_000]).unwrap();
    let more = b.isend(to_a, 2, vec![6; 5_000_000]).unwrap();
    let last = b.isend(to_a, 3, vec![7; 10]).unwrap();
    assert!(b.test(more).unwrap().is_none(), "nobody has received it");
    b.cancel(last).unwrap();
    b.cancel(more).unwrap();
    assert_eq!(b.wait(last).unwrap().result.unwrap().bytes, 10, "it had been sent");
    let completion = b.wait(more).unwrap();
    assert_eq!(completion.result.unwrap_err(), MessageError::Cancelled);
    assert_eq!(completion.memory.into_vec(), vec![6; 5_000_000]);
    assert_eq!(b.wait(send).unwrap().memory.len(), 100_000);
    assert_eq!(a.receive(Selector::any()).unwrap(), vec![5; 100_000]);
    assert_eq!(a.receive(Selector::any()).unwrap().tag(), 3);

    let send = b.isend(to_a, 4, vec![6; 5_000_000]).unwrap();
    let receive = a.ireceive(Selector::any(), vec![0; 5_000_000]).unwrap();
    let completion = loop {
        b.progress().unwrap();
        if let Some(completion) = a.test(receive).unwrap() {
            break completion;
        }
        b.cancel(send).unwrap();
    };
    assert_eq!(completion.result.unwrap().tag, 4);
    assert_eq!(completion.memory.into_vec(), vec![6; 5_000_000]);
    assert_eq!(b.wait(send).unwrap().result.unwrap().bytes, 5_000_000, "it had begun");
    let cancelled = a.ireceive(Selector::any(), vec![1]).unwrap();
    a.cancel(cancelled).unwrap();
    assert_eq!(a.wait(cancelled).unwrap().result.unwrap_err(), MessageError::Cancelled);
}

#[test]
fn a_message_too_long_for_its_buffer_stays() {
    let scratch = Scratch::new("endpoint-a_message_too_long_for_its_buff");
    let domain = scratch.domain();
    let (mut a, to_b, mut b, _) = two(domain);
    for length in [10, 100, 1000, 100_000] {
        a.send(to_b, 1, &vec![9; length]).unwrap();
        let too_small = MessageError::BufferTooSmall { needed: length as u64, given: 5 };
        assert_eq!(b.receive_into(Selector::any(), &mut [0; 5]).unwrap_err(), too_small);
        let posted = b.ireceive(Selector::any(), vec![0; 5]).unwrap();
        assert_eq!(b.wait(posted).unwrap().result.unwrap_err(), too_small);
        assert_eq!(b.receive(Selector::any()).unwrap(), vec![9; length]);
    }
}

// Keeps P69.
#[test]
fn beyond_the_budget_messages_stay_with_their_sender_who_waits() {
    let scratch = Scratch::new("endpoint-beyond_the_budget_messages_stay");
    let domain = scratch.domain();
    let mut a = domain.endpoint("a").create().unwrap();
    let mut b = domain.endpoint("b").budget(10_000).create().unwrap();
    let to_b = a.peer("b").unwrap();
    let mut sent = 0u64;
    loop {
        match a.try_send(to_b, sent, &[1; 3000]) {
            Ok(()) => sent += 1,
            Err(MessageError::Full { name }) => {
                assert_eq!(name.as_str(), "b");
                break;
            }
            Err(error) => panic!("{error}"),
        }
        // This call makes `b` keep what its budget allows.
        assert_eq!(b.now().probe(Selector::tag(u64::MAX)).unwrap(), None);
    }
    assert!(b.counter("stalls").unwrap() >= 1);
    let too_long = MessageError::Timeout { after: Duration::from_millis(1) };
    let error = a.send_timeout(to_b, 0, &[0; 3000], Duration::from_millis(1)).unwrap_err();
    assert_eq!(error, too_long);
    for tag in 0..sent {
        let received = b.receive(Selector::any()).unwrap();
        assert_eq!((received.tag(), received.len()), (tag, 3000));
    }
    // A message that never fits the budget is received in place.
    let sender = thread::spawn(move || a.send(to_b, 77, &bytes_of(1_000_000, 3)).map(|()| a));
    assert_eq!(b.probe(Selector::tag(77)).unwrap().bytes, 1_000_000);
    assert_eq!(b.receive(Selector::any()).unwrap(), bytes_of(1_000_000, 3));
    sender.join().unwrap().unwrap();
}

#[test]
fn a_flush_ends_in_time_or_when_everything_is_on_its_way() {
    let scratch = Scratch::new("endpoint-a_flush_ends_in_time");
    let domain = scratch.domain();
    let (mut a, to_b, mut b, _) = two(domain);
    assert!(!a.has_pending_sends());
    // The beginning of the last one fits, and the rest waits.
    let message = bytes_of(1 << 20, 1);
    let mut sent = 0;
    while !a.has_pending_sends() {
        a.try_send(to_b, sent, &message).unwrap();
        sent += 1;
    }
    let limit = Duration::from_millis(1);
    assert_eq!(a.within(limit).flush(), Err(MessageError::Timeout { after: limit }));
    let receiver = thread::spawn(move || {
        for tag in 0..sent {
            assert_eq!(b.receive(Selector::tag(tag)).unwrap()[..], bytes_of(1 << 20, 1));
        }
    });
    a.within(LONG).flush().unwrap();
    assert!(!a.has_pending_sends());
    receiver.join().unwrap();
}

#[test]
fn a_limit_that_is_said_before_a_call_ends_it_and_loses_nothing() {
    let scratch = Scratch::new("endpoint-a_limit_that_is_said_before");
    let domain = scratch.domain();
    let (mut a, to_b, mut b, _) = two(domain);
    let (limit, any) = (Duration::from_millis(1), Selector::any());
    assert!(b.now().claim(any).unwrap().is_none());
    assert!(b.within(limit).claim(any).unwrap().is_none());
    assert!(b.now().flush().is_ok());
    // Nobody answers. The request is there nevertheless.
    let mut reply = [0; 8];
    assert!(a.within(limit).call_into(to_b, b"asked", &mut reply).unwrap().is_none());
    assert_eq!(&b.within(LONG).receive_request().unwrap().unwrap()[..], b"asked");
    let operation = b.ireceive(any, vec![0; 100]).unwrap();
    assert!(b.now().wait(operation).unwrap().is_none());
    assert!(b.within(limit).wait(operation).unwrap().is_none());
    let mut loan = a.within(LONG).loan(to_b, 100).unwrap();
    loan.fill(3);
    a.within(LONG).send_loan(loan, 1).unwrap();
    let ended = b.within(LONG).wait(operation).unwrap().unwrap();
    assert_eq!(ended.result.unwrap().bytes, 100);
    a.send(to_b, 2, b"claimed").unwrap();
    let claimed = b.within(LONG).claim(any).unwrap().unwrap();
    assert_eq!(b.receive_claimed(claimed).unwrap(), b"claimed");
    // Once nothing more fits, a flush that may not wait says so.
    while !a.has_pending_sends() {
        a.try_send(to_b, 3, &bytes_of(1 << 20, 1)).unwrap();
    }
    assert_eq!(a.now().flush(), Err(MessageError::Timeout { after: Duration::ZERO }));
}

// Keeps P80.
#[test]
fn one_try_finds_what_was_sent_by_whomever_of_many() {
    let scratch = Scratch::new("endpoint-one_try_finds_what_was_sent");
    let domain = scratch.domain();
    let mut sink = domain.endpoint("sink").create().unwrap();
    let mut sources = a_hundred(domain);
    // More senders than are watched, among them hot ones and ones that were hot before.
    for round in 0..50u64 {
        let picked: Vec<_> = (0..100).filter(|index| index * 7 % 50 <= round).collect();
        for &index in picked.iter().rev() {
            let (source, to) = &mut sources[usize::try_from(index).unwrap()];
            source.send(*to, index, &round.to_le_bytes()).unwrap();
        }
        let mut found: Vec<_> = picked
            .iter()
            .map(|_| {
                let mut word = [0; 8];
                let status = sink.try_receive_into(Selector::any(), &mut word).unwrap().unwrap();
                assert_eq!(u64::from_le_bytes(word), round);
                status.tag
            })
            .collect();
        found.sort_unstable();
        assert_eq!(found, picked);
        for _ in 0..round * 100 {
            assert_eq!(sink.try_receive_into(Selector::any(), &mut []).unwrap(), None);
        }
    }
}

// Keeps P81.
#[test]
fn a_silent_peer_is_heard_among_many_who_never_stop() {
    let scratch = Scratch::new("endpoint-a_silent_peer_is_heard");
    let domain = scratch.domain();
    let mut sink = domain.endpoint("sink").wait(Wait::Spin).create().unwrap();
    let mut sources = a_hundred(domain);
    for (tag, (source, to)) in (0u64..).zip(&mut sources) {
        source.send(*to, tag, b"once").unwrap();
        sink.receive(Selector::any()).unwrap();
    }
    for _ in 0..10_003 {
        assert_eq!(sink.try_receive_into(Selector::any(), &mut []).unwrap(), None);
    }
    // Six of them always have a message.
    for (tag, (source, to)) in (0u64..).zip(&mut sources).take(6) {
        for _ in 0..40 {
            source.send(*to, tag, b"again").unwrap();
        }
    }
    let mut receive = |sources: &mut [(Endpoint, Peer)]| {
        let tag = sink.receive_into(Selector::any(), &mut [0; 8]).unwrap().tag;
        if tag < 6 {
            let (source, to) = &mut sources[usize::try_from(tag).unwrap()];
            source.send(*to, tag, b"again").unwrap();
        }
        tag
    };
    // One that is watched, and one that is not.
    for silent in [10, 90] {
        assert!((0..10_000).all(|_| receive(&mut sources) < 6));
        let (source, to) = &mut sources[silent];
        source.send(*to, 1000, b"me").unwrap();
        assert!((0..10_000).any(|_| receive(&mut sources) == 1000), "{silent} is not heard");
    }
}

#[test]
fn a_message_that_was_claimed_is_nobody_elses() {
    let scratch = Scratch::new("endpoint-a_message_that_was_claimed_is_n");
    let domain = scratch.domain();
    let (mut a, to_b, mut b, to_a) = two(domain);
    a.send(to_b, 5, b"mine").unwrap();
    a.send(to_b, 5, b"yours").unwrap();
    assert_eq!(b.probe(Selector::tag(5)).unwrap().bytes, 4);
    let claimed = b.claim(Selector::tag(5)).unwrap();
    assert_eq!(claimed.status.source, to_a);
    assert_eq!(b.receive(Selector::tag(5)).unwrap(), b"yours");
    assert!(b.now().claim(Selector::any()).unwrap().is_none());
    let mut buffer = [0; 4];
    b.receive_claimed_into(claimed, &mut buffer).unwrap();
    assert_eq!(&buffer, b"mine");
}

#[test]
fn a_claim_is_found_by_its_number_and_received_by_an_operation() {
    let scratch = Scratch::new("endpoint-claims");
    let (mut a, to_b, mut b, _) = two(scratch.domain());
    // One that has arrived, and one of which the rest is still to come.
    let sends = [bytes_of(9, 1), bytes_of(2_000_000, 2)];
    let sends = sends.map(|bytes| (bytes.clone(), a.isend(to_b, 5, bytes).unwrap()));
    for (context, (bytes, send)) in (7..).zip(sends) {
        let claimed = b.claim(Selector::tag(5)).unwrap();
        assert!(b.store_claim(context, claimed).is_none());
        assert!(b.take_claim(99).is_none());
        // Into memory that is too short: then anybody may have it.
        let claimed = b.take_claim(context).unwrap();
        let short = b.ireceive_claimed(claimed, vec![0; 8]);
        let error = b.wait(short).unwrap().result.unwrap_err();
        assert!(matches!(error, MessageError::BufferTooSmall { given: 8, .. }), "{error}");
        let claimed = b.claim(Selector::any()).unwrap();
        let receive = b.ireceive_claimed(claimed, Memory::pooled());
        let received = loop {
            a.progress().unwrap();
            if let Some(received) = b.test(receive).unwrap() {
                break received;
            }
        };
        assert_eq!(received.memory.into_vec(), bytes);
        a.wait(send).unwrap().result.unwrap();
    }
    // Nothing of a peer that has gone is received.
    let rest = a.isend(to_b, 5, bytes_of(2_000_000, 3)).unwrap();
    let claimed = b.claim(Selector::tag(5)).unwrap();
    drop((a, rest));
    let receive = b.ireceive_claimed(claimed, Memory::pooled());
    let error = b.wait(receive).unwrap().result.unwrap_err();
    assert!(matches!(error, MessageError::PeerLeft { .. }), "{error}");
}

#[test]
fn an_endpoint_sends_to_itself() {
    let scratch = Scratch::new("endpoint-an_endpoint_sends_to_itself");
    let domain = scratch.domain();
    let mut a = domain.endpoint("a").create().unwrap();
    let me = a.peer("a").unwrap();
    a.send(me, 1, b"self").unwrap();
    let request = a.isend(me, 2, bytes_of(2_000_000, 1)).unwrap();
    assert_eq!(a.receive(Selector::any().from(me)).unwrap(), b"self");
    assert_eq!(a.receive(Selector::any()).unwrap(), bytes_of(2_000_000, 1));
    a.wait(request).unwrap().result.unwrap();
}

#[test]
fn every_receive_from_a_peer_that_has_gone_ends_whatever_the_wait() {
    let scratch = Scratch::new("endpoint-every_receive_from_a_peer_that_has");
    let domain = scratch.domain();
    for wait in [Wait::Adaptive, Wait::Park, Wait::Spin] {
        let mut a = domain.endpoint("a").wait(wait).create().unwrap();
        let b = domain.endpoint("b").create().unwrap();
        let to_b = a.peer("b").unwrap();
        drop(b);
        let from_b = Selector::any().from(to_b);
        // The first one takes the notice.
        for _ in 0..2 {
            let error = a.receive_into(from_b, &mut [0; 8]).unwrap_err();
            assert!(matches!(error, MessageError::PeerLeft { .. }), "{wait:?}: {error}");
        }
    }
}

// Keeps P70.
#[test]
fn a_peer_that_leaves_ends_what_waits_for_it_and_nothing_else() {
    let scratch = Scratch::new("endpoint-a_peer_that_leaves_ends_what_wa");
    let domain = scratch.domain();
    let (mut a, to_b, mut b, to_a) = two(domain);
    let mut c = domain.endpoint("c").create().unwrap();
    let c_to_b = c.peer("b").unwrap();
    let for_a = b.ireceive(Selector::tag(9).from(to_a), vec![0; 10]).unwrap();
    let for_all = b.ireceive(Selector::tag(9), vec![0; 10]).unwrap();
    a.send(to_b, 1, b"last words").unwrap();
    drop(a);
    let gone = b.wait(for_a).unwrap();
    assert!(matches!(gone.result, Err(MessageError::PeerLeft { name }) if name.as_str() == "a"));
    assert!(b.test(for_all).unwrap().is_none());
    assert_eq!(b.receive(Selector::any().from(to_a)).unwrap(), b"last words");
    let error = b.receive(Selector::any().from(to_a)).unwrap_err();
    assert!(matches!(error, MessageError::PeerLeft { .. }));
    assert!(matches!(b.send(to_a, 0, b"?").unwrap_err(), MessageError::PeerLeft { .. }));
    c.send(c_to_b, 9, b"c").unwrap();
    assert_eq!(b.wait(for_all).unwrap().memory.into_vec()[0], b'c');
    assert_eq!(b.peer("a").unwrap_err(), ConnectError::NotFound("a".parse_name()));
}

#[test]
fn who_asks_for_a_peer_that_left_hears_so_though_others_have_come() {
    let scratch = Scratch::new("endpoint-who_asks_for_a_peer_that_left");
    let domain = scratch.domain();
    for (peers, newcomers, is_known) in [(32, 7, true), (2, 2, false)] {
        let mut sink = domain.endpoint("sink").peers(peers).create().unwrap();
        let mut first = domain.endpoint("first").create().unwrap();
        let to_sink = first.peer("sink").unwrap();
        first.send(to_sink, 0, b"").unwrap();
        let gone = sink.receive(Selector::any()).unwrap().source();
        drop(first);
        let error = sink.receive(Selector::any().from(gone)).unwrap_err();
        assert!(matches!(error, MessageError::PeerLeft { .. }), "{error}");
        for number in 0..newcomers {
            let mut other = domain.endpoint(&format!("other-{number}")).create().unwrap();
            let to_sink = other.peer("sink").unwrap();
            other.send(to_sink, 0, b"").unwrap();
            let source = sink.receive(Selector::any()).unwrap().source();
            drop(other);
            let error = sink.receive(Selector::any().from(source)).unwrap_err();
            assert!(matches!(error, MessageError::PeerLeft { .. }), "{error}");
        }
        let error = sink.send(gone, 0, b"?").unwrap_err();
        assert_eq!(matches!(error, MessageError::PeerLeft { .. }), is_known, "{error}");
        assert_eq!(matches!(error, MessageError::UnknownPeer), !is_known, "{error}");
    }
}

trait ParseName {
    fn parse_name(&self) -> corewire::ChannelName;
}

impl ParseName for str {
    fn parse_name(&self) -> corewire::ChannelName {
        corewire::ChannelName::new(self).unwrap()
    }
}

#[test]
fn names_of_channels_and_endpoints_are_told_apart() {
    let scratch = Scratch::new("endpoint-names_of_channels_and_endpoints");
    let domain = scratch.domain();
    let mut a = domain.endpoint("a").create().unwrap();
    let sender = domain.sender("c").create().unwrap();
    assert_eq!(a.peer("c").unwrap_err(), ConnectError::NotAnEndpoint("c".parse_name()));
    let error = domain.receiver("a").join().unwrap_err();
    assert_eq!(error, JoinError::NotAChannel("a".parse_name()));
    assert!(domain.endpoint("c").create().is_err());
    assert!(domain.sender("a").create().is_err());
    assert_eq!(domain.endpoints().unwrap(), ["a".parse_name()]);
    assert_eq!(domain.channels().unwrap(), ["c".parse_name()]);
    drop(sender);
}

#[test]
fn more_peers_than_rings_take_turns_at_them() {
    let scratch = Scratch::new("endpoint-more_peers_than_rings_take_turn");
    let domain = scratch.domain();
    let mut a = domain.endpoint("a").rings(2).create().unwrap();
    let names: Vec<String> = (0..7).map(|i| format!("p{i}")).collect();
    let others = names.iter().map(|name| {
        let mut endpoint = domain.endpoint(name).create().unwrap();
        let peer = a.peer(name).unwrap();
        endpoint.peer("a").unwrap();
        (peer, endpoint)
    });
    let mut others: Vec<_> = others.collect();
    for round in 0..20u64 {
        let requests: Vec<_> = others
            .iter()
            .flat_map(|&(peer, _)| {
                let short = a.isend(peer, round, vec![low(round); 40]).unwrap();
                [short, a.isend(peer, round, vec![low(round); 5000]).unwrap()]
            })
            .collect();
        // A ring is passed on when the peer that has it has seen that it is wanted.
        for index in 0..others.len() {
            for length in [40, 5000] {
                while others[index].1.now().probe(Selector::any()).unwrap().is_none() {
                    a.progress().unwrap();
                    for (_, endpoint) in &mut others {
                        endpoint.progress().unwrap();
                    }
                }
                let received = others[index].1.receive(Selector::any()).unwrap();
                assert_eq!(received, vec![low(round); length]);
            }
        }
        for request in requests {
            a.wait(request).unwrap().result.unwrap();
        }
    }
    assert!(a.counter("rings_taken").unwrap() > 50);
}

#[test]
fn whoever_sleeps_is_woken() {
    let scratch = Scratch::new("endpoint-whoever_sleeps_is_woken");
    let domain = scratch.domain();
    for wait in [Wait::Park, Wait::Adaptive, Wait::Spin] {
        let mut a = domain.endpoint("a").wait(wait).create().unwrap();
        let mut b = domain.endpoint("b").wait(wait).create().unwrap();
        let to_b = a.peer("b").unwrap();
        let to_a = b.peer("a").unwrap();
        let other = thread::spawn(move || {
            let mut buffer = vec![0; 200_000];
            for round in 0..300u64 {
                let length = [8, 90, 3000, 200_000][(round % 4) as usize];
                let status = b.receive_into(Selector::tag(round), &mut buffer).unwrap();
                assert_eq!(status.bytes, length as u64);
                b.send(to_a, round, &buffer[..length]).unwrap();
            }
            b
        });
        let mut buffer = vec![0; 200_000];
        for round in 0..300u64 {
            let length = [8, 90, 3000, 200_000][(round % 4) as usize];
            a.send(to_b, round, &vec![low(round); length]).unwrap();
            a.receive_into(Selector::tag(round).from(to_b), &mut buffer).unwrap();
            assert_eq!(buffer[..length], vec![low(round); length]);
        }
        let b = other.join().unwrap();
        assert_eq!(a.counter("cap_finds"), Ok(0));
        assert_eq!(b.counter("cap_finds"), Ok(0));
    }
}

#[test]
fn an_event_loop_waits_for_the_readiness_descriptor() {
    use rustix::event::{PollFd, PollFlags, poll};
    let scratch = Scratch::new("endpoint-an_event_loop_waits_for_the_rea");
    let domain = scratch.domain();
    let (mut a, to_b, mut b, to_a) = two(domain);
    let other = thread::spawn(move || {
        for round in 0..100u64 {
            assert_eq!(a.receive(Selector::any()).unwrap().tag(), round);
            a.send(to_b, round, &[1; 200]).unwrap();
        }
        a
    });
    let readiness = b.readiness();
    b.send(to_a, 0, b"").unwrap();
    let mut buffer = [0; 200];
    for round in 0..100u64 {
        while b.try_receive_into(Selector::any(), &mut buffer).unwrap().is_none() {
            if b.arm().unwrap() {
                poll(&mut [PollFd::new(&readiness, PollFlags::IN)], None).unwrap();
            }
        }
        if round < 99 {
            b.send(to_a, round + 1, b"").unwrap();
        }
    }
    drop(other.join().unwrap());
}

// Keeps P79.
#[test]
fn an_event_loop_that_polls_does_not_sleep_before_what_has_arrived() {
    let scratch = Scratch::new("endpoint-an_event_loop_that_polls_does_not");
    let domain = scratch.domain();
    let mut sink = domain.endpoint("sink").create().unwrap();
    let options = Options { report: Report::Queue, ..Options::default() };
    // The first messages of peers that are not watched yet. Nobody asks for those before the last.
    for (at, (mut source, to)) in a_hundred(domain).into_iter().enumerate() {
        let unasked = 1 + at % 3;
        sink.ireceive_with(Selector::tag(9), vec![0; 8], options).unwrap();
        (0..unasked).for_each(|_| source.send(to, 1, b"unasked").unwrap());
        source.send(to, 9, b"asked").unwrap();
        while sink.poll(8, |_| {}).unwrap() == 0 {
            assert!(!sink.arm().unwrap(), "{unasked} messages of peer {at} before");
        }
        assert_eq!(sink.discard(Selector::tag(1)).unwrap(), unasked);
        while !sink.arm().unwrap() {
            sink.poll(8, |_| {}).unwrap();
        }
    }
}

// Keeps P79.
#[test]
fn an_event_loop_that_waits_for_room_is_told() {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let scratch = Scratch::new("endpoint-an_event_loop_that_waits_for_room");
    let domain = scratch.domain();
    let (mut a, to_b, mut b, _) = two(domain);
    let mut whole = Vec::new();
    loop {
        let request = a.isend(to_b, 0, vec![7; 100]).unwrap();
        if a.test(request).unwrap().is_some() {
            continue;
        }
        whole.push(request);
        if whole.len() == 200 {
            break;
        }
    }
    let readiness = a.readiness();
    let other = thread::spawn(move || {
        let mut buffer = [0; 100];
        let mut count = 0;
        while b.receive_into(Selector::any(), &mut buffer).unwrap().tag == 0 {
            count += 1;
        }
        count
    });
    for request in whole {
        while a.test(request).unwrap().is_none() {
            if a.arm().unwrap() {
                let limit = Timespec { tv_sec: 30, tv_nsec: 0 };
                let ready = poll(&mut [PollFd::new(&readiness, PollFlags::IN)], Some(&limit));
                assert_eq!(ready, Ok(1), "nobody says that there is room");
            }
        }
    }
    a.send(to_b, 1, b"").unwrap();
    assert!(other.join().unwrap() >= 200);
}

#[test]
fn another_thread_ends_a_wait() {
    let scratch = Scratch::new("endpoint-another_thread_ends_a_wait");
    let domain = scratch.domain();
    let mut a = domain.endpoint("a").create().unwrap();
    let interrupter = a.interrupter();
    let waiting = thread::spawn(move || {
        let error = a.receive(Selector::any()).unwrap_err();
        (a, error)
    });
    interrupter.interrupt();
    let (mut a, error) = waiting.join().unwrap();
    assert_eq!(error, MessageError::Interrupted);
    let none = a.receive_into_timeout(Selector::any(), &mut [], Duration::from_millis(1)).unwrap();
    assert_eq!(none, None);
}

#[test]
fn both_ask_at_once_and_are_linked_once() {
    let scratch = Scratch::new("endpoint-both_ask_at_once_and_are_linked");
    let domain = scratch.domain();
    for _ in 0..500 {
        let mut a = domain.endpoint("a").create().unwrap();
        let mut b = domain.endpoint("b").create().unwrap();
        let other = thread::spawn(move || {
            let to_a = b.peer("a").unwrap();
            b.send(to_a, 1, b"from b").unwrap();
            assert_eq!(b.receive(Selector::any().from(to_a)).unwrap(), b"from a");
            assert_eq!(b.peers().unwrap(), [to_a]);
            b
        });
        let to_b = a.peer("b").unwrap();
        a.send(to_b, 1, b"from a").unwrap();
        assert_eq!(a.receive(Selector::any().from(to_b)).unwrap(), b"from b");
        assert_eq!(a.peers().unwrap(), [to_b]);
        other.join().unwrap();
    }
}

#[test]
fn a_receive_that_runs_out_of_time_loses_nothing() {
    let scratch = Scratch::new("endpoint-a_receive_that_runs_out_of_time");
    let domain = scratch.domain();
    let (mut a, to_b, mut b, _) = two(domain);
    let message = bytes_of(5_000_000, 1);
    // Its beginning is sent now, and the rest when there is room.
    a.try_send(to_b, 1, &message).unwrap();
    let mut buffer = vec![0; 5_000_000];
    let mut rounds = 0;
    let status = loop {
        if let Some(status) = b.try_receive_into(Selector::any(), &mut buffer).unwrap() {
            break status;
        }
        buffer.fill(0);
        a.progress().unwrap();
        rounds += 1;
    };
    assert!(rounds > 2);
    assert_eq!(status.bytes, 5_000_000);
    assert!(buffer == message);
}

// Keeps P144.
#[test]
fn a_message_that_arrives_in_pieces_is_not_copied_by_each_receive_that_runs_out_of_time() {
    let scratch = Scratch::new("endpoint-a_message_that_arrives_in_pieces");
    let domain = scratch.domain();
    let (cells, way) = ((16, 4096), corewire::Rendezvous::Cells);
    let builder = domain.endpoint("a").cells(cells.0, cells.1).rendezvous(way);
    let (mut a, mut b) = (builder.create().unwrap(), domain.endpoint("b").create().unwrap());
    let (to_b, to_a) = (a.peer("b").unwrap(), b.peer("a").unwrap());
    let message = vec![7; 4 << 20];
    a.isend(to_b, 1, message.clone()).unwrap();
    let (mut attempts, mut written) = (0, 0);
    let received = loop {
        let mut buffer = vec![0; message.len()];
        let (selector, limit) = (Selector::any().from(to_a), Duration::from_nanos(1));
        attempts += 1;
        if b.receive_into_timeout(selector, &mut buffer, limit).unwrap().is_some() {
            break buffer;
        }
        written += u32::from(buffer.contains(&7));
        a.progress().unwrap();
    };
    assert!(received == message);
    assert!(attempts > 10 && written <= 1, "{written} of {attempts} have copied a part");
}

#[test]
fn a_name_that_is_made_anew_meanwhile_is_the_next_endpoint_or_none() {
    let scratch = Scratch::new("endpoint-anew");
    let domain = scratch.domain().clone();
    let is_over = AtomicBool::new(false);
    let relaxed = Ordering::Relaxed;
    let mut linked = 0;
    thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0u32.. {
                if is_over.load(relaxed) {
                    break;
                }
                let _again = domain.endpoint("again").create().unwrap();
                (0..round % 64).for_each(|_| thread::yield_now());
            }
        });
        let mut tries = 0;
        while tries < 1000 || linked < 10 {
            tries += 1;
            let mut asker = scratch.domain().endpoint("asker").create().unwrap();
            match asker.peer("again") {
                Ok(_) => linked += 1,
                Err(ConnectError::NotFound(_)) => {}
                Err(other) => {
                    is_over.store(true, relaxed);
                    panic!("{other}");
                }
            }
        }
        is_over.store(true, relaxed);
    });
}

/// Exchanges of the test below; a soak sets more.
fn exchanges() -> u64 {
    let set = std::env::var("COREWIRE_EXCHANGES").ok().and_then(|text| text.parse().ok());
    set.unwrap_or(50_000)
}

// Keeps P97.
#[test]
fn replies_that_nobody_asks_for_jam_nothing_and_are_discarded() {
    const BUDGET: usize = 1 << 20;
    const DISCARD_EVERY: u64 = 10_000;
    let scratch = Scratch::new("endpoint-replies_that_nobody_asks_for");
    let domain = scratch.domain();
    let mut client = domain.endpoint("a").budget(BUDGET).create().unwrap();
    let mut server = domain.endpoint("b").create().unwrap();
    let to_server = client.peer("b").unwrap();
    let to_client = server.peer("a").unwrap();
    let count = exchanges();
    let serving = thread::spawn(move || {
        let mut number = [0; 8];
        for _ in 0..count {
            let request = server.receive_into(Selector::any(), &mut number).unwrap();
            server.send(to_client, request.tag, &number).unwrap();
        }
        server.close().unwrap();
    });
    let observer = domain.observe_endpoint("a").unwrap();
    let mut number = [0; 8];
    let mut discarded = 0;
    for tag in 0..count {
        client.send(to_server, tag, &tag.to_le_bytes()).unwrap();
        if tag % 10 > 0 {
            client.receive_into(Selector::tag(tag), &mut number).unwrap();
            assert_eq!(u64::from_le_bytes(number), tag);
        }
        if tag % DISCARD_EVERY == DISCARD_EVERY - 1 {
            let view = observer.look();
            assert!(view.kept_bytes > 0 && view.kept_bytes <= BUDGET as u64, "{view:?}");
            let of_server = view.peers.iter().find(|peer| peer.name == "b").unwrap();
            assert_eq!(of_server.kept_bytes, view.kept_bytes);
            discarded += client.discard(Selector::any()).unwrap();
        }
    }
    serving.join().unwrap();
    discarded += client.discard(Selector::any()).unwrap();
    assert_eq!(discarded as u64, count / 10);
}

// Keeps P239.
#[test]
fn what_peers_sent_that_have_gone_stays_counted() {
    let scratch = Scratch::new("endpoint-totals");
    let domain = scratch.domain();
    // All have the same row, one after the other.
    let mut server = domain.endpoint("server").peers(1).create().unwrap();
    for round in 1..=5 {
        let mut client = domain.endpoint("client").create().unwrap();
        let to_server = client.peer("server").unwrap();
        let mut buffer = [0; 1000];
        for length in [8, 1000] {
            client.send(to_server, 1, &vec![0; length]).unwrap();
            let from = server.receive_into(Selector::any(), &mut buffer).unwrap().source;
            server.send(from, 2, &[1; 4]).unwrap();
            client.receive_into(Selector::any(), &mut buffer).unwrap();
        }
        let view = domain.observe_endpoint("server").unwrap().look();
        let [peer] = &view.peers[..] else { panic!("{view:?}") };
        let of_client = (peer.received_messages, peer.received_bytes, peer.sent_bytes);
        assert!(of_client.0 <= 2 && of_client.1 <= 1008 && of_client.2 <= 8, "{view:?}");
        client.close().unwrap();
        while !matches!(server.receive_event(Selector::any()), Ok(Event::Gone { .. })) {}
        let view = domain.observe_endpoint("server").unwrap().look();
        assert_eq!((view.sent_messages, view.sent_bytes), (2 * round, 8 * round), "{view:?}");
        let received = (view.received_messages, view.received_bytes);
        assert_eq!(received, (2 * round, 1008 * round), "{view:?}");
    }
}

// Keeps P98.
#[test]
fn an_immediate_travels_beside_messages_with_and_without_tag() {
    let scratch = Scratch::new("endpoint-immediates");
    let domain = scratch.domain();
    let (mut a, to_b, mut b, to_a) = two(domain);
    let mut buffer = vec![0; 100_000];
    for (number, length) in
        (1u64..).zip([0, 8, 39, 40, 41, 96, 97, 152, 153, 160, 161, 16_384, 100_000])
    {
        let sent = bytes_of(length, low(number));
        let tagged = Envelope::tagged(number).with_immediate(!number);
        let untagged = Envelope::untagged().with_immediate(number << 40);
        // The long ones need the receiver's help.
        let sends = [tagged, untagged, Envelope::untagged()]
            .map(|envelope| a.isend(to_b, envelope, &sent[..]).unwrap());
        for (selector, immediate) in [
            (Selector::untagged().from(to_a), Some(number << 40)),
            (Selector::tag(number), Some(!number)),
            (Selector::untagged(), None),
        ] {
            let status = loop {
                a.progress().unwrap();
                match b.try_receive_into(selector, &mut buffer).unwrap() {
                    Some(status) => break status,
                    None => thread::yield_now(),
                }
            };
            assert_eq!((status.immediate, status.bytes), (immediate, length as u64));
            assert_eq!(buffer[..length], sent, "{length} bytes");
        }
        for send in sends {
            a.wait(send).unwrap().result.unwrap();
        }
    }
}

#[test]
fn a_send_ends_when_it_was_delivered_or_matched_if_that_is_asked() {
    let scratch = Scratch::new("endpoint-until");
    let domain = scratch.domain();
    let (mut a, to_b, mut b, _) = two(domain);
    let receiver = thread::spawn(move || {
        // Kept first, then matched.
        let late = b.receive(Selector::tag(2)).unwrap();
        let early = b.receive(Selector::tag(1)).unwrap();
        assert_eq!((early.len(), late.len()), (50_000, 8));
        b.receive(Selector::tag(3)).unwrap();
    });
    let options =
        |context, until| Options { context, until, report: Report::Queue, ..Options::default() };
    a.isend_with(to_b, 1, vec![1; 50_000], options(1, Until::Matched)).unwrap();
    a.isend_with(to_b, 2, vec![1; 8], options(2, Until::Delivered)).unwrap();
    let mut completions = Vec::new();
    while completions.len() < 2 {
        a.completions(&mut completions, 8).unwrap();
    }
    assert!(completions.iter().all(|completion| completion.result.is_ok()));
    let mut contexts: Vec<u64> = completions.iter().map(|it| it.context).collect();
    contexts.sort_unstable();
    assert_eq!(contexts, [1, 2]);
    a.send(to_b, 3, b"over").unwrap();
    receiver.join().unwrap();
    // Nobody answers any more.
    let last = a.isend_with(to_b, 4, vec![0; 8], options(4, Until::Matched));
    assert!(last.is_err() || a.within(LONG).completions(&mut completions, 8).unwrap() == 1);
}

#[test]
fn received_messages_are_owned_and_their_memory_is_used_again() {
    let scratch = Scratch::new("endpoint-owned");
    let domain = scratch.domain();
    let (mut a, to_b, mut b, to_a) = two(domain);
    for length in [0, 8, 104, 105, 160, 161, 4000, 16_000] {
        a.send(to_b, 7, &bytes_of(length, 1)).unwrap();
        let message = b.receive(Selector::any()).unwrap();
        assert_eq!((message.source(), message.tag(), message.len()), (to_a, 7, length));
        // It may go to another thread.
        thread::spawn(move || assert_eq!(message, bytes_of(length, 1))).join().unwrap();
    }
    // Its memory is that of the message before it.
    a.send(to_b, 7, &[1; 4000]).unwrap();
    let first = b.receive(Selector::any()).unwrap();
    let address = first.as_ptr();
    drop(first);
    a.send(to_b, 7, &[2; 3000]).unwrap();
    let second = b.receive(Selector::any()).unwrap();
    assert_eq!((second.as_ptr(), second.into_vec()), (address, vec![2; 3000]));
    assert!(b.try_receive(Selector::any()).unwrap().is_none());
    assert!(b.receive_timeout(Selector::any(), Duration::from_millis(1)).unwrap().is_none());
}

#[test]
fn cells_that_others_have_read_are_found_by_a_peer_that_needs_one() {
    let scratch = Scratch::new("endpoint-cells");
    let domain = scratch.domain();
    let mut source = domain.endpoint("source").cells(2, 4096).create().unwrap();
    let mut sinks: Vec<Endpoint> =
        (0..4).map(|index| domain.endpoint(&format!("sink-{index}")).create().unwrap()).collect();
    for (index, sink) in sinks.iter_mut().enumerate() {
        let to = source.peer(&format!("sink-{index}")).unwrap();
        source.send_timeout(to, 1, &[7; 3000], LONG).unwrap();
        assert_eq!(sink.receive(Selector::any()).unwrap(), [7; 3000]);
        sink.progress().unwrap();
        // Publishes what it has read.
        assert!(sink.arm().unwrap());
    }
}

#[test]
fn a_ring_that_is_taken_back_in_the_middle_of_a_message_loses_nothing() {
    let scratch = Scratch::new("endpoint-ring-within");
    let domain = scratch.domain();
    let mut source = domain.endpoint("source").rings(1).cells(4, 4096).create().unwrap();
    let mut sinks = ["one", "two"].map(|name| domain.endpoint(name).create().unwrap());
    let [one, two] = ["one", "two"].map(|name| source.peer(name).unwrap());
    let message = bytes_of(100_000, 3);
    let long = source.isend(one, 1, &message[..]).unwrap();
    // The first reads what there is of it, and says so; then the second needs the ring.
    sinks[0].progress().unwrap();
    let _ = sinks[0].arm().unwrap();
    let short = source.isend(two, 2, &b"short"[..]).unwrap();
    let (mut got_long, mut got_short) = (None, None);
    while got_long.is_none() || got_short.is_none() {
        source.progress().unwrap();
        got_long = got_long.or(sinks[0].try_receive(Selector::tag(1)).unwrap());
        got_short = got_short.or(sinks[1].try_receive(Selector::tag(2)).unwrap());
        for sink in &mut sinks {
            let _ = sink.arm().unwrap();
        }
    }
    assert_eq!(got_long.unwrap(), message);
    assert_eq!(got_short.unwrap(), b"short");
    for send in [long, short] {
        source.wait(send).unwrap().result.unwrap();
    }
}

#[test]
fn an_acknowledgement_does_not_go_to_a_peer_that_has_the_place_by_now() {
    let scratch = Scratch::new("endpoint-late-acknowledgement");
    let domain = scratch.domain();
    let mut sink = domain.endpoint("sink").peers(1).create().unwrap();
    let mut send = |name: &str, tag: u64| {
        let mut from = domain.endpoint(name).create().unwrap();
        let to = loop {
            // The place is free when the sink has taken what the first has sent.
            sink.progress().unwrap();
            if let Ok(to) = from.peer("sink") {
                break to;
            }
        };
        let options = Options { until: Until::Matched, ..Options::default() };
        let send = from.isend_with(to, tag, vec![1], options).unwrap();
        assert_eq!(sink.probe(Selector::tag(tag)).unwrap().bytes, 1);
        (from, send)
    };
    drop(send("first", 1));
    let (mut second, send) = send("second", 2);
    sink.receive(Selector::tag(1)).unwrap();
    assert!(second.test(send).unwrap().is_none(), "the second message is not matched yet");
    sink.receive(Selector::tag(2)).unwrap();
    second.wait(send).unwrap().result.unwrap();
}

// Keeps P107.
/// Messages that it does not ask for do not extend a call's time.
#[test]
fn a_wait_ends_in_time_while_other_messages_arrive() {
    let scratch = Scratch::new("busy-wait");
    let domain = scratch.domain();
    let (mut a, to_b, mut b, _) = two(domain);
    let is_over = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&is_over);
    let talker = thread::spawn(move || {
        while !seen.load(Ordering::Relaxed) {
            match a.try_send(to_b, 1, b"not asked for") {
                Ok(()) | Err(MessageError::Full { .. }) => {}
                Err(error) => panic!("{error}"),
            }
        }
    });
    let mut buffer = [0; 16];
    for millis in [0, 1, 50] {
        let timeout = Duration::from_millis(millis);
        let found = b.receive_into_timeout(Selector::tag(2), &mut buffer, timeout).unwrap();
        assert!(found.is_none());
        b.discard(Selector::tag(1)).unwrap();
    }
    is_over.store(true, Ordering::Relaxed);
    talker.join().unwrap();
}

// Keeps P218.
/// Threads connect to peers that come and go, so that both ends often ask at once, and requests meet peers that are going.
#[test]
fn peers_that_come_and_go_while_threads_connect_have_a_row_each() {
    const LIVES: usize = 300;
    let scratch = Scratch::new("endpoint-come-and-go");
    let domain = scratch.domain();
    let mut a = domain.endpoint("a").create().unwrap();
    let is_over = AtomicBool::new(false);
    let relaxed = Ordering::Relaxed;
    thread::scope(|scope| {
        for _ in 0..3 {
            let connector = a.connector();
            scope.spawn(|| {
                let connector = connector;
                while !is_over.load(relaxed) {
                    (0..3).for_each(|index| drop(connector.connect(&format!("b{index}"))));
                }
            });
        }
        let lives = [0, 1, 2].map(|index| {
            scope.spawn(move || {
                for life in 0..LIVES {
                    let mut b = domain.endpoint(&format!("b{index}")).create().unwrap();
                    let to_a = b.peer("a").unwrap();
                    b.send(to_a, 1, &[7; 40]).unwrap();
                    if life % 2 == 0 { drop(b) } else { b.close().unwrap() }
                }
            })
        });
        let (mut came, mut received, mut gone) = (0, 0, 0);
        while received < 3 * LIVES || gone < came || !lives.iter().all(|lives| lives.is_finished())
        {
            match a.now().receive_event(Selector::any()).unwrap() {
                Some(Event::Came(_)) => came += 1,
                Some(Event::Received(message)) => {
                    assert_eq!(*message, [7; 40]);
                    received += 1;
                }
                Some(Event::Gone { why, .. }) => {
                    assert!(matches!(why, MessageError::PeerLeft { .. }), "{why}");
                    gone += 1;
                }
                None => thread::yield_now(),
            }
        }
        is_over.store(true, relaxed);
        // A peer that is linked twice by itself may come twice.
        assert!(came >= 3 * LIVES && received == 3 * LIVES, "{came} came, {received} received");
    });
}
