//! Peers that are known by name before they are linked.

use std::thread;
use std::time::Duration;

use corewire::{
    ConnectError, Endpoint, LossReason, MessageError, OperationKind, Options, Peer, Report,
    Selector,
};

use crate::scratch::Scratch;

/// Longer than anything takes.
const LONG: Duration = Duration::from_secs(60);

fn queued(context: u64) -> Options {
    Options { context, report: Report::Queue, ..Options::default() }
}

/// The next end that `endpoint` tells, as its context, kind and error.
fn next_end(endpoint: &mut Endpoint) -> (u64, OperationKind, Option<MessageError>) {
    let mut told = None;
    while told.is_none() {
        endpoint
            .poll(1, |end| told = Some((end.context, end.kind, end.result.err().cloned())))
            .unwrap();
        thread::yield_now();
    }
    told.unwrap()
}

/// Receives a message with this tag while `other`, in the same thread, makes progress.
fn receive_beside(endpoint: &mut Endpoint, tag: u64, other: &mut Endpoint) -> (Peer, Vec<u8>) {
    loop {
        other.progress().unwrap();
        if let Some(message) = endpoint.try_receive(Selector::tag(tag)).unwrap() {
            return (message.source(), message.into_vec());
        }
        thread::yield_now();
    }
}

// Keeps P229.
#[test]
fn messages_wait_in_order_for_an_endpoint_that_does_not_exist_yet() {
    let scratch = Scratch::new("addressed-wait_in_order");
    let domain = scratch.domain();
    let mut early = domain.endpoint("early").create().unwrap();
    let late = early.address("late", None).unwrap();
    assert_eq!(early.address("late", None).unwrap(), late);
    assert_eq!(early.name_of(late), Some("late"));
    early.set_label(late, 5).unwrap();
    assert_eq!(early.peers().unwrap(), [], "it is not linked");
    early.try_send(late, 1, b"first").unwrap();
    early.isend_with(late, 1, vec![2; 300_000], queued(7)).unwrap();
    early.try_send(late, 1, b"third").unwrap();
    early.ireceive_with(Selector::tag(2).from(late), vec![0; 8], queued(8)).unwrap();
    let mut other = domain.endpoint("late").create().unwrap();
    for expected in [b"first".to_vec(), vec![2; 300_000], b"third".to_vec()] {
        assert_eq!(receive_beside(&mut other, 1, &mut early).1, expected);
    }
    assert_eq!(next_end(&mut early), (7, OperationKind::Send, None));
    let back = other.peer("early").unwrap();
    other.send(back, 2, b"reply").unwrap();
    assert_eq!(next_end(&mut early), (8, OperationKind::Receive, None));
    assert_eq!((early.label_of(late), early.peers().unwrap()), (5, vec![late]));
    assert_eq!(early.incarnation_of(late), Some(other.incarnation()));
}

// Keeps P229.
#[test]
fn one_that_comes_by_itself_is_the_peer_that_was_addressed() {
    let scratch = Scratch::new("addressed-comes_by_itself");
    let domain = scratch.domain();
    let mut a = domain.endpoint("a").create().unwrap();
    let by_name = a.address("b", None).unwrap();
    let mut b = domain.endpoint("b").create().unwrap();
    let to_a = b.peer("a").unwrap();
    b.send(to_a, 1, b"hello").unwrap();
    assert_eq!(a.receive(Selector::any().from(by_name)).unwrap().source(), by_name);
    assert_eq!(a.address("b", Some(b.incarnation())).unwrap(), by_name);
    assert_eq!(a.peer("b").unwrap(), by_name);
    // Both have addressed each other, and both send first.
    let (mut c, mut d) =
        (domain.endpoint("c").create().unwrap(), domain.endpoint("d").create().unwrap());
    let to_d = c.address("d", Some(d.incarnation())).unwrap();
    let to_c = d.address("c", Some(c.incarnation())).unwrap();
    c.try_send(to_d, 1, b"from c").unwrap();
    d.try_send(to_c, 1, b"from d").unwrap();
    assert_eq!(receive_beside(&mut d, 1, &mut c), (to_c, b"from c".to_vec()));
    assert_eq!(receive_beside(&mut c, 1, &mut d), (to_d, b"from d".to_vec()));
    // And itself.
    let own = c.address("c", None).unwrap();
    c.try_send(own, 3, b"to itself").unwrap();
    let message = c.receive_timeout(Selector::tag(3), LONG).unwrap().unwrap();
    assert_eq!((message.source(), &*message), (own, &b"to itself"[..]));
}

// Keeps P229.
#[test]
fn an_incarnation_that_has_ended_is_dead_and_no_other_takes_its_place() {
    let scratch = Scratch::new("addressed-ended");
    let domain = scratch.domain();
    let mut a = domain.endpoint("a").create().unwrap();
    let first = domain.endpoint("b").create().unwrap().incarnation();
    for is_there in [false, true] {
        let _second = is_there.then(|| domain.endpoint("b").create().unwrap());
        let gone = a.address("b", Some(first)).unwrap();
        a.isend_with(gone, 1, vec![1; 9], queued(1)).unwrap();
        a.ireceive_with(Selector::any().from(gone), vec![0; 9], queued(2)).unwrap();
        let mut ends = [next_end(&mut a), next_end(&mut a)];
        ends.sort_by_key(|end| end.0);
        for (end, kind) in ends.into_iter().zip([OperationKind::Send, OperationKind::Receive]) {
            assert!(matches!(end.2, Some(MessageError::PeerDied { .. })), "{end:?}");
            assert_eq!(end.1, kind);
        }
        let late = a.try_send(gone, 1, b"late").unwrap_err();
        assert!(matches!(late, MessageError::PeerDied { .. }), "{late:?}");
        let probed = a.now().probe(Selector::any().from(gone)).unwrap_err();
        assert!(matches!(probed, MessageError::PeerDied { .. }), "{probed:?}");
    }
}

// Keeps P229.
#[test]
fn a_call_that_waits_for_an_addressed_peer_goes_on_when_it_is_created() {
    let scratch = Scratch::new("addressed-waits");
    let domain = scratch.domain();
    let mut a = domain.endpoint("a").create().unwrap();
    let to_b = a.address("b", None).unwrap();
    let timeout = a.send_timeout(to_b, 1, b"never sent", Duration::from_millis(1)).unwrap_err();
    assert!(matches!(timeout, MessageError::Timeout { .. }), "{timeout:?}");
    let sender = thread::spawn(move || {
        a.send(to_b, 1, &[9; 200_000]).unwrap();
        a.receive(Selector::any().from(to_b)).unwrap().into_vec()
    });
    let mut b = domain.endpoint("b").create().unwrap();
    let message = b.receive_timeout(Selector::any(), LONG).unwrap().unwrap();
    assert_eq!(*message, [9; 200_000]);
    b.send(message.source(), 1, b"done").unwrap();
    assert_eq!(sender.join().unwrap(), b"done");
}

// Keeps P229.
#[test]
fn what_is_kept_for_an_addressed_peer_has_a_limit() {
    let scratch = Scratch::new("addressed-limit");
    let domain = scratch.domain();
    let mut a = domain.endpoint("a").budget(1 << 20).create().unwrap();
    let to_b = a.address("b", None).unwrap();
    let mut sent = 0u64;
    let full = loop {
        match a.try_send(to_b, sent, &[3; 1000]) {
            Ok(()) => sent += 1,
            Err(error) => break error,
        }
        assert!(sent < 10_000, "without a limit");
    };
    assert!(matches!(full, MessageError::Full { .. }), "{full:?}");
    assert!(sent > 10, "{sent}");
    let mut b = domain.endpoint("b").create().unwrap();
    for tag in 0..sent {
        assert_eq!(receive_beside(&mut b, tag, &mut a).1, [3; 1000]);
    }
}

#[test]
fn bad_addresses_are_refused() {
    let scratch = Scratch::new("addressed-bad");
    let domain = scratch.domain();
    let mut a = domain.endpoint("a").peers(2).create().unwrap();
    assert!(matches!(a.address("", None), Err(ConnectError::Name(_))));
    assert!(matches!(a.address("with/slash", None), Err(ConnectError::Name(_))));
    let peers = ["b", "c"].map(|name| a.address(name, None).unwrap());
    assert_eq!(a.address("d", None), Err(ConnectError::Full { max: 2 }));
    // Another kind of name can never be linked.
    let _channel = domain.sender("b").create().unwrap();
    a.isend_with(peers[0], 1, vec![1], queued(1)).unwrap();
    let (1, OperationKind::Send, Some(error)) = next_end(&mut a) else {
        panic!("it cannot be sent")
    };
    let MessageError::PeerLost { name, reason: LossReason::NotLinked, delivered: 0 } = error else {
        panic!("{error:?}")
    };
    assert_eq!(name.as_str(), "b");
}
