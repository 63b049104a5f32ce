//! Requests and replies. `COREWIRE_CALLS=1000000` sets the number of calls of which a tenth times out.

use std::thread;
use std::time::Duration;

use crate::scratch::Scratch;
use corewire::{Domain, Endpoint, Event, MessageError, Options, Peer, Report, Selector};

/// Longer than anything takes.
const LONG: Duration = Duration::from_secs(60);
/// The request that ends a server.
const OVER: &[u8] = b"over";

fn two(domain: &Domain) -> (Endpoint, Peer, Endpoint, Peer) {
    let mut server = domain.endpoint("server").create().unwrap();
    let mut client = domain.endpoint("client").create().unwrap();
    let (to_client, to_server) = (server.peer("client").unwrap(), client.peer("server").unwrap());
    (server, to_client, client, to_server)
}

/// Replies to each request with its bytes in reverse order.
fn serve(mut server: Endpoint) -> thread::JoinHandle<()> {
    thread::spawn(move || {
        loop {
            let request = server.receive_request().unwrap();
            let mut reply = request.to_vec();
            let is_over = reply == OVER;
            reply.reverse();
            request.reply(&reply).unwrap();
            if is_over {
                return server.close().unwrap();
            }
        }
    })
}

// Keeps P102.
#[test]
fn each_call_gets_its_reply_whatever_its_length() {
    let scratch = Scratch::new("calls-lengths");
    let (server, _, mut client, to_server) = two(scratch.domain());
    let server = serve(server);
    for length in [0, 1, 8, 48, 49, 104, 105, 160, 161, 5000, 16_384, 300_000, 2_000_000] {
        let request: Vec<u8> = (0..length).map(|at: usize| at.to_le_bytes()[0]).collect();
        let reversed: Vec<u8> = request.iter().rev().copied().collect();
        let reply = client.call(to_server, &request).unwrap();
        assert_eq!(reply.source(), to_server);
        assert_eq!(reply, reversed);
        let mut buffer = vec![0; length];
        client.call_into(to_server, &request, &mut buffer).unwrap();
        assert_eq!(buffer, reversed);
        let reply = client.call_timeout(to_server, &request, LONG).unwrap().unwrap();
        assert_eq!(reply, reversed);
        let status = client.within(LONG).call_into(to_server, &request, &mut buffer).unwrap();
        assert_eq!(status.unwrap().bytes, length as u64);
        let call = client.icall(to_server, request).unwrap();
        assert_eq!(client.wait(call).unwrap().memory.into_vec(), reversed);
    }
    let error = client.call_into(to_server, &[0; 9], &mut [0; 8]).unwrap_err();
    assert_eq!(error, MessageError::BufferTooSmall { needed: 9, given: 8 });
    client.call(to_server, OVER).unwrap();
    server.join().unwrap();
    let gone = client.call(to_server, b"?").unwrap_err();
    assert!(matches!(gone, MessageError::PeerLeft { .. }), "{gone}");
}

#[test]
fn calls_are_apart_from_messages() {
    let scratch = Scratch::new("calls-apart");
    let (mut server, to_client, mut client, to_server) = two(scratch.domain());
    let call = client.icall(to_server, &b"question"[..]).unwrap();
    client.send(to_server, 1, b"message").unwrap();
    assert_eq!(server.receive(Selector::any()).unwrap(), b"message");
    assert!(server.try_receive(Selector::any()).unwrap().is_none());
    assert!(server.try_receive(Selector::untagged()).unwrap().is_none());
    let request = server.receive_request().unwrap();
    assert_eq!((&request[..], request.source()), (&b"question"[..], to_client));
    request.reply_gather(&[b"ans", b"wer"]).unwrap();
    assert!(client.try_receive(Selector::any()).unwrap().is_none());
    let completion = client.wait(call).unwrap();
    assert_eq!(completion.result.unwrap().source, to_server);
    assert_eq!(completion.memory.into_vec(), b"answer");
    assert!(server.now().receive_request().unwrap().is_none());
    assert!(server.within(Duration::from_millis(1)).receive_request().unwrap().is_none());
}

// Keeps P102.
#[test]
fn requests_are_replied_to_in_any_order_and_dropped_ones_are_told() {
    let scratch = Scratch::new("calls-order");
    let (mut server, _, mut client, to_server) = two(scratch.domain());
    let options = |context| Options { context, report: Report::Queue, ..Options::default() };
    for context in 0..6u64 {
        client.icall_with(to_server, context.to_le_bytes().to_vec(), options(context)).unwrap();
    }
    let mut owed = Vec::new();
    for _ in 0..5 {
        let (reply, message) = server.receive_request().unwrap().detach();
        owed.push((reply, message));
    }
    // The sixth is dropped at once, the first two later, by another thread while the server sleeps.
    drop(server.receive_request().unwrap());
    let others = owed.split_off(2);
    for (reply, message) in others.into_iter().rev() {
        server.reply(reply, &message).unwrap();
    }
    let server = thread::spawn(move || {
        server.receive_timeout(Selector::any(), LONG).unwrap();
    });
    let dropper = thread::spawn(move || drop(owed));
    let mut completions = Vec::new();
    while completions.len() < 6 {
        client.completions(&mut completions, 8).unwrap();
    }
    dropper.join().unwrap();
    for completion in completions {
        let is_dropped = matches!(completion.context, 0 | 1 | 5);
        match completion.result {
            Ok(_) => assert_eq!(
                (is_dropped, completion.memory.into_vec()),
                (false, completion.context.to_le_bytes().to_vec())
            ),
            Err(error) => {
                assert!(is_dropped && matches!(error, MessageError::RequestDropped { .. }));
            }
        }
    }
    client.send(to_server, 0, b"over").unwrap();
    server.join().unwrap();
}

// Keeps P102.
#[test]
fn late_replies_are_forgotten_and_nothing_piles_up() {
    let calls: u64 = std::env::var("COREWIRE_CALLS").map_or(20_000, |text| text.parse().unwrap());
    let scratch = Scratch::new("calls-late");
    let domain = scratch.domain();
    let mut server = domain.endpoint("server").budget(1 << 20).create().unwrap();
    let mut client = domain.endpoint("client").budget(1 << 20).create().unwrap();
    let to_server = client.peer("server").unwrap();
    let server = thread::spawn(move || {
        let mut late = None;
        loop {
            let request = server.receive_request().unwrap();
            let number = u64::from_le_bytes(request[..8].try_into().unwrap());
            if number == u64::MAX {
                request.reply(b"").unwrap();
                return server.close().unwrap();
            }
            // A tenth is replied to after the next one: its caller waits no longer by then.
            if number % 10 == 0 {
                late = Some(request.detach());
                continue;
            }
            let bytes = request.to_vec();
            request.reply(&bytes).unwrap();
            if let Some((owed, message)) = late.take() {
                server.reply(owed, &message).unwrap();
            }
        }
    });
    let mut missed = 0;
    for number in 0..calls {
        let mut request = vec![7; 8 + usize::try_from(number % 300).unwrap()];
        request[..8].copy_from_slice(&number.to_le_bytes());
        if number % 10 == 0 {
            // As if the time had run out: a call that is cancelled after it was sent.
            let call = client.icall(to_server, request).unwrap();
            client.cancel(call).unwrap();
            assert_eq!(client.wait(call).unwrap().result.unwrap_err(), MessageError::Cancelled);
            missed += 1;
        } else {
            assert_eq!(client.call(to_server, &request).unwrap(), request);
        }
    }
    assert_eq!(missed, calls.div_ceil(10));
    client.call(to_server, &u64::MAX.to_le_bytes()).unwrap();
    server.join().unwrap();
    assert_eq!(client.counter("unexpected").unwrap(), 0, "no reply was kept");
    let waited = client.call_timeout(to_server, b"?", Duration::from_millis(1));
    assert!(matches!(waited, Ok(None) | Err(MessageError::PeerLeft { .. })));
}

#[test]
fn a_call_that_runs_out_of_time_gets_nothing() {
    let scratch = Scratch::new("calls-timeout");
    let (mut server, _, mut client, to_server) = two(scratch.domain());
    let short = Duration::from_millis(2);
    assert!(client.call_timeout(to_server, b"first", short).unwrap().is_none());
    assert!(client.within(short).call_into(to_server, b"second", &mut []).unwrap().is_none());
    for expected in [b"first".as_slice(), b"second"] {
        let request = server.receive_request().unwrap();
        assert_eq!(&request[..], expected);
        request.reply(b"too late").unwrap();
    }
    // What came too late is not the reply to the next call.
    let call = client.icall(to_server, &b"third"[..]).unwrap();
    server.receive_request().unwrap().reply(b"in time").unwrap();
    assert_eq!(client.wait(call).unwrap().memory.into_vec(), b"in time");
}

#[test]
fn both_may_call_each_other_at_once() {
    let scratch = Scratch::new("calls-both");
    let (server, to_client, client, to_server) = two(scratch.domain());
    let talk = |mut endpoint: Endpoint, peer: Peer| {
        thread::spawn(move || {
            let (mut replied, mut ended) = (0, 0);
            let mut calls = Vec::new();
            for number in 0..500u32 {
                let request = vec![1; number as usize % 200];
                calls.push(endpoint.icall(peer, request).unwrap());
            }
            while replied < 500 || ended < 500 {
                while let Some(request) = endpoint.now().receive_request().unwrap() {
                    let bytes = request.to_vec();
                    request.reply(&bytes).unwrap();
                    replied += 1;
                }
                let before = calls.len();
                calls.retain(|&call| endpoint.test(call).unwrap().is_none());
                ended += before - calls.len();
                thread::yield_now();
            }
            endpoint.close().unwrap();
        })
    };
    let threads = [talk(server, to_client), talk(client, to_server)];
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

// Keeps P103.
#[test]
fn a_server_learns_of_its_clients_before_their_first_and_after_their_last_request() {
    let scratch = Scratch::new("calls-events");
    let domain = scratch.domain().clone();
    let mut server = domain.endpoint("server").create().unwrap();
    let clients = thread::spawn(move || {
        for round in 0..20 {
            let mut client = domain.endpoint(&format!("client-{round}")).peers(4).create().unwrap();
            let to_server = client.peer_when_created("server", Some(LONG)).unwrap();
            for _ in 0..10 {
                assert_eq!(client.call(to_server, b"here").unwrap(), b"here"[..]);
            }
            // Its place is free when the server has taken its last event.
            client.send(to_server, 1, b"nobody receives this").unwrap();
            client.close().unwrap();
        }
    });
    let mut here = Vec::new();
    let (mut requests, mut gone) = (0, 0);
    while gone < 20 {
        match server.receive_request_event().unwrap() {
            Event::Came(peer) => here.push(peer),
            Event::Received((owed, request)) => {
                assert!(here.contains(&owed.source()));
                assert!(server.name_of(owed.source()).unwrap().starts_with("client-"));
                server.reply(owed, &request).unwrap();
                requests += 1;
            }
            Event::Gone { peer, why } => {
                assert!(matches!(why, MessageError::PeerLeft { .. }), "{why}");
                here.retain(|other| *other != peer);
                gone += 1;
            }
        }
    }
    assert_eq!((requests, here), (200, vec![]));
    assert!(server.now().receive_request_event().unwrap().is_none());
    let waited = server.within(Duration::from_millis(1)).receive_request_event().unwrap();
    assert!(waited.is_none());
    clients.join().unwrap();
}
