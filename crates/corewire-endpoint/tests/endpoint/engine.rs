//! What an engine promises, over the transport in memory: envelopes, reports, acknowledgements, deaths.

use std::ptr::NonNull;

use corewire_endpoint::in_memory::{InMemory, Network};
use corewire_endpoint::transport::{Gone, Loss, LossReason, Polling};
use corewire_endpoint::{
    Budget, Caller, Completion, Count, Engine, Envelope, Fragment, Looked, Memory, MessageError,
    Options, Peer, PeerEvent, PeerViolation, Report, Seed, Selector, Source, Space, Status,
    Transport, Until,
};
use corewire_layout::name::ChannelName;
use corewire_layout::rendezvous::Stretch;

use crate::ends::{Ends, ends, settle};

fn peer(engine: &Engine<InMemory>, number: u32) -> Peer {
    engine.peer_at(number).unwrap()
}

fn receive(engine: &mut Engine<InMemory>, selector: Selector) -> Option<(Status, Vec<u8>)> {
    let mut target = engine.new_message();
    let mut caller = Caller::new(selector, target.as_target());
    engine.begin_receive(&mut caller).unwrap();
    if engine.end_of(&caller).is_none() {
        engine.progress(Some(&mut caller)).unwrap();
    }
    let end = engine.end_of(&caller);
    engine.leave(&mut caller);
    let status = end?.unwrap();
    Some((status, target.finish(status).into_vec()))
}

const RANDOM: u64 = 0x00c0_ffee;

fn with(context: u64, report: Report, until: Until) -> Options {
    Options { context, report, until, ..Options::default() }
}

#[test]
fn an_immediate_travels_beside_messages_of_any_length() {
    for seed in [0, RANDOM] {
        let network = Network::new(seed, 8, 64);
        let mut ends = ends(&network, 2, 1 << 20);
        let to = peer(&ends[0], 1);
        for (number, length) in (0..).zip([0, 8, 40, 41, 96, 97, 152, 153, 160, 161, 5000]) {
            let bytes = vec![7; length];
            let envelope = Envelope::tagged(number).with_immediate(!number);
            ends[0].start_send(to, envelope, bytes.clone().into(), Options::default()).unwrap();
            settle(&mut ends);
            let (status, found) = receive(&mut ends[1], Selector::tag(number)).unwrap();
            assert_eq!((status.immediate, status.bytes), (Some(!number), length as u64));
            assert_eq!(found, bytes);
        }
    }
}

// Keeps P98.
#[test]
fn messages_without_tag_are_matched_apart() {
    let network = Network::new(0, 8, 64);
    let mut ends = ends(&network, 2, 1 << 20);
    let to = peer(&ends[0], 1);
    assert!(ends[0].try_inject(to, &Envelope::untagged(), b"untagged"));
    assert!(ends[0].try_inject(to, &Envelope::tagged(0), b"tagged"));
    assert_eq!(receive(&mut ends[1], Selector::any()).unwrap().1, b"tagged");
    assert_eq!(receive(&mut ends[1], Selector::any()), None);
    assert_eq!(receive(&mut ends[1], Selector::untagged()).unwrap().1, b"untagged");
    // The short way, too.
    assert!(ends[0].try_inject(to, &Envelope::untagged().with_immediate(5), b"short"));
    let mut buffer = [0; 8];
    let looked = ends[1].try_take_short(&Selector::untagged(), &mut buffer, Polling::Once);
    assert!(matches!(looked, Looked::Received(Status { immediate: Some(5), .. })), "{looked:?}");
    // Receives that were posted before.
    let (tagged, untagged) = (Selector::tag(0), Selector::untagged().from(peer(&ends[1], 0)));
    let posted = [tagged, untagged].map(|selector| {
        ends[1].start_receive(selector, Memory::pooled(), Options::default()).unwrap()
    });
    assert!(ends[0].try_inject(to, &Envelope::untagged(), b"second"));
    settle(&mut ends);
    assert!(ends[1].take_completion(posted[0]).unwrap().is_none());
    let completion = ends[1].take_completion(posted[1]).unwrap().unwrap();
    assert_eq!(completion.memory.into_vec(), b"second");
}

// Keeps P99.
#[test]
fn a_send_lasts_until_what_it_says() {
    for seed in [0, RANDOM] {
        let network = Network::new(seed, 4, 64);
        let mut ends = ends(&network, 2, 1000);
        let to = peer(&ends[0], 1);
        let send = |ends: &mut Ends, tag: u64, length: usize, until| {
            let options = with(tag, Report::Queue, until);
            ends[0].start_send(to, tag.into(), vec![1; length].into(), options).unwrap();
            settle(ends);
        };
        let ended = |ends: &mut Ends| -> Vec<u64> {
            settle(ends);
            let next = std::iter::from_fn(|| ends[0].next_completion());
            next.map(|Completion { context, result, memory }| {
                assert_eq!(result.unwrap().bytes, memory.len() as u64);
                context
            })
            .collect()
        };
        send(&mut ends, 1, 80, Until::Matched);
        send(&mut ends, 2, 80, Until::Delivered);
        send(&mut ends, 3, 8, Until::Copied);
        assert_eq!(ended(&mut ends), [2, 3], "delivered and copied, but not matched");
        // Beyond the budget: it stays here.
        send(&mut ends, 4, 800, Until::Delivered);
        assert_eq!(ended(&mut ends), [0; 0]);
        receive(&mut ends[1], Selector::tag(1)).unwrap();
        assert_eq!(ended(&mut ends), [1]);
        for tag in [2, 3] {
            receive(&mut ends[1], Selector::tag(tag)).unwrap();
        }
        let posted = ends[1]
            .start_receive(Selector::tag(4), vec![0; 800].into(), Options::default())
            .unwrap();
        assert_eq!(ended(&mut ends), [4]);
        assert!(ends[1].take_completion(posted).unwrap().unwrap().result.is_ok());
        // A message that is dropped is told of, too.
        send(&mut ends, 5, 8, Until::Matched);
        assert_eq!(ends[1].discard(&Selector::any()), 1);
        assert_eq!(ended(&mut ends), [5]);
    }
}

// Keeps P99.
#[test]
fn nobody_who_never_reads_makes_acknowledgements_pile_up() {
    let network = Network::new(0, 4, 64);
    let mut ends = ends(&network, 2, 1 << 14);
    let to = peer(&ends[0], 1);
    // The first only sends: what is told finds no room after a while, and nothing more is taken then.
    let options = with(0, Report::ErrorsOnly, Until::Delivered);
    let mut received = 0;
    for number in 0..4000u64 {
        ends[0].start_send(to, number.into(), vec![1].into(), options).unwrap();
        received += usize::from(receive(&mut ends[1], Selector::any()).is_some());
    }
    while receive(&mut ends[1], Selector::any()).is_some() {
        received += 1;
    }
    assert!(received < 1000, "{received}");
    // As soon as it reads, everything goes on.
    while received < 4000 {
        ends[0].progress(None).unwrap();
        received += usize::from(receive(&mut ends[1], Selector::any()).is_some());
    }
    settle(&mut ends);
    assert!(ends[0].next_completion().is_none());
}

// Keeps P100.
#[test]
fn ends_are_reported_as_asked() {
    let network = Network::new(0, 64, 64);
    let mut ends = ends(&network, 2, 1 << 20);
    let (to, from) = (peer(&ends[0], 1), peer(&ends[1], 0));
    let counter = ends[0].add_counter();
    let send = |ends: &mut Ends, context, report| {
        let options = with(context, report, Until::Copied);
        ends[0].start_send(to, 9.into(), vec![1; 3].into(), options).unwrap()
    };
    let queued = send(&mut ends, 1, Report::Queue);
    send(&mut ends, 2, Report::ErrorsOnly);
    send(&mut ends, 3, Report::Counter(counter));
    let handle = send(&mut ends, 4, Report::Handle);
    assert_eq!(ends[0].next_completion().unwrap().context, 1);
    assert!(ends[0].next_completion().is_none());
    let unknown = ends[0].take_completion(queued).unwrap_err();
    assert_eq!(unknown, MessageError::UnknownOperation);
    assert_eq!(ends[0].take_completion(handle).unwrap().unwrap().context, 4);
    let posted = ends[0].start_receive(
        Selector::any(),
        Memory::default(),
        with(5, Report::Counter(counter), Until::Copied),
    );
    ends[0].cancel(posted.unwrap()).unwrap();
    assert_eq!(ends[0].count(counter), Some(Count { succeeded: 1, failed: 1 }));
    // A receive that is too small is an error, and the message stays.
    let options = with(6, Report::ErrorsOnly, Until::Copied);
    ends[1].start_receive(Selector::any(), vec![0; 2].into(), options).unwrap();
    ends[1].progress(None).unwrap();
    let Completion { context, result, .. } = ends[1].next_completion().unwrap();
    let too_small = MessageError::BufferTooSmall { needed: 3, given: 2 };
    assert_eq!((context, result), (6, Err(too_small)));
    // One that truncates takes it, and tells both lengths.
    let options = Options { truncates: true, ..with(7, Report::Queue, Until::Copied) };
    ends[1].start_receive(Selector::any(), vec![0; 2].into(), options).unwrap();
    let Completion { result, memory, .. } = ends[1].next_completion().unwrap();
    let status = Status { source: from, tag: 9, bytes: 3, immediate: None };
    assert_eq!(result, Err(MessageError::Truncated { status, given: 2 }));
    assert_eq!(memory.into_vec(), [1, 1]);
}

// Keeps P100.
#[test]
fn a_message_that_is_truncated_in_fragments_leaves_the_next_one_whole() {
    for seed in [0, RANDOM] {
        let network = Network::new(seed, 4, 64);
        let mut ends = ends(&network, 2, 1 << 20);
        let to = peer(&ends[0], 1);
        let options = Options { truncates: true, ..Options::default() };
        let memory = vec![vec![0; 30], vec![0; 40]];
        let handle = ends[1].start_receive(Selector::tag(1), memory.into(), options).unwrap();
        for (tag, length) in [(1u64, 1000usize), (2, 200)] {
            let bytes: Vec<u8> = (0..length).map(|index| index.to_le_bytes()[0]).collect();
            ends[0].start_send(to, tag.into(), bytes.into(), Options::default()).unwrap();
        }
        settle(&mut ends);
        let Completion { result, memory, .. } = ends[1].take_completion(handle).unwrap().unwrap();
        assert!(
            matches!(result, Err(MessageError::Truncated { status, given: 70 }) if status.bytes == 1000)
        );
        assert_eq!(memory.into_vec(), (0..70).collect::<Vec<u8>>());
        assert_eq!(receive(&mut ends[1], Selector::tag(2)).unwrap().1.len(), 200);
    }
}

#[test]
fn pinned_memory_is_sent_and_received_through_pointers() {
    let network = Network::new(RANDOM, 4, 64);
    let mut ends = ends(&network, 2, 1 << 20);
    let to = peer(&ends[0], 1);
    let (mut source, mut target) = ([3u8; 500], [0u8; 500]);
    // SAFETY: both arrays live until the operations have ended, and are not used meanwhile.
    let [from, into] = [&mut source, &mut target]
        .map(|bytes| unsafe { Memory::pinned(NonNull::from(bytes).cast(), 500) });
    let receive = ends[1].start_receive(Selector::any(), into, Options::default()).unwrap();
    let send = ends[0].start_send(to, 1.into(), from, Options::default()).unwrap();
    settle(&mut ends);
    assert!(ends[0].take_completion(send).unwrap().unwrap().result.is_ok());
    assert!(ends[1].take_completion(receive).unwrap().unwrap().result.is_ok());
    assert_eq!(source, target);
}

// Keeps P99.
#[test]
fn what_waits_for_a_peer_that_dies_ends() {
    let network = Network::new(0, 4, 64);
    let mut ends = ends(&network, 3, 1 << 20);
    let to = peer(&ends[0], 1);
    let [waits, sends, anybody] = [
        ends[0].start_receive(Selector::any().from(to), vec![0; 9].into(), Options::default()),
        ends[0].start_send(
            to,
            1.into(),
            vec![5; 9].into(),
            with(0, Report::Handle, Until::Matched),
        ),
        ends[0].start_receive(Selector::any(), vec![0; 9].into(), Options::default()),
    ]
    .map(Result::unwrap);
    settle(&mut ends);
    network.end(1, Gone::Died);
    settle(&mut ends);
    for handle in [waits, sends] {
        let completion = ends[0].take_completion(handle).unwrap().unwrap();
        assert!(matches!(completion.result, Err(MessageError::PeerDied { .. })));
        assert_eq!(completion.memory.len(), 9, "the memory comes back");
    }
    assert!(ends[0].take_completion(anybody).unwrap().is_none());
    let from_third = peer(&ends[2], 0);
    assert!(ends[2].try_inject(from_third, &Envelope::tagged(2), b"alive"));
    settle(&mut ends);
    assert_eq!(ends[0].take_completion(anybody).unwrap().unwrap().result.unwrap().bytes, 5);
}

#[test]
fn a_peer_whose_connection_is_lost_is_reported_so_after_all_that_has_arrived() {
    let network = Network::new(0, 16, 64);
    let mut ends = ends(&network, 2, 1 << 20);
    ends[0].watch_peers();
    while ends[0].next_peer_event(&Selector::any()).is_some() {}
    let (to, from) = (peer(&ends[0], 1), peer(&ends[1], 0));
    let waits = ends[0]
        .start_receive(Selector::tag(9).from(to), vec![0; 9].into(), Options::default())
        .unwrap();
    assert!(ends[1].try_inject(from, &Envelope::tagged(1), b"before"));
    let (reason, delivered) = (LossReason::Reset, 3);
    network.end(1, Gone::Lost(Loss { reason, delivered }));
    assert_eq!(receive(&mut ends[0], Selector::tag(1)).unwrap().1, b"before");
    while ends[0].progress(None).unwrap() {}
    let name = ChannelName::new("end-1").unwrap();
    let why = MessageError::PeerLost { name, reason, delivered };
    let end = ends[0].take_completion(waits).unwrap().unwrap();
    assert_eq!(end.result, Err(why.clone()));
    assert_eq!(ends[0].check_peer(to), Err(why.clone()));
    let event = ends[0].next_peer_event(&Selector::any());
    assert_eq!(event, Some(PeerEvent::Gone { peer: to, why }));
}

#[test]
fn gathered_messages_leave_when_nothing_follows_and_answers_at_once() {
    let network = Network::new(0, 64, 64);
    let mut ends = ends(&network, 2, 1 << 20);
    let (to, from) = (peer(&ends[0], 1), peer(&ends[1], 0));
    let (delivered, matched) =
        (with(1, Report::Handle, Until::Delivered), with(2, Report::Handle, Until::Matched));
    ends[0].gather();
    let sends = [delivered, matched].map(|options| {
        let memory = vec![7; 200].into();
        ends[0].start_send(to, Envelope::tagged(options.context), memory, options).unwrap()
    });
    let call = ends[0].start_call(to, b"question"[..].into(), Options::default()).unwrap();
    ends[1].progress(None).unwrap();
    assert!(ends[1].peek(&Selector::any()).is_none(), "it left before its engine flushed");
    ends[0].flush();
    assert!(receive(&mut ends[1], Selector::tag(2)).is_some());
    let (request, _) = receive(&mut ends[1], Selector::requests()).unwrap();
    ends[1].reply(from, request.tag, &&b"answer"[..]).unwrap();
    ends[0].progress(None).unwrap();
    for operation in [sends[0], sends[1], call] {
        let end = ends[0].take_completion(operation).unwrap();
        assert!(end.expect("it has ended").result.is_ok());
    }
}

#[test]
fn a_request_that_is_dropped_in_the_middle_of_a_message_waits_for_its_end() {
    let network = Network::new(0, 2, 64);
    let mut ends = ends(&network, 2, 1 << 20);
    let (to, from) = (peer(&ends[0], 1), peer(&ends[1], 0));
    let call = ends[1].start_call(from, b"question"[..].into(), Options::default()).unwrap();
    settle(&mut ends);
    let (request, _) = receive(&mut ends[0], Selector::requests()).unwrap();
    // A call is in the middle of a message, for which there is no room now.
    let (message, mut sent) = (vec![9; 1000], 0);
    let source = &message[..];
    assert!(!ends[0].send_step(to, 5.into(), &source, &mut sent).unwrap());
    assert!(sent > 0);
    ends[0].drop_request(to, request.tag);
    while !ends[0].send_step(to, 5.into(), &source, &mut sent).unwrap() {
        settle(&mut ends);
    }
    settle(&mut ends);
    assert_eq!(receive(&mut ends[1], Selector::tag(5)).unwrap().1, message);
    let completion = ends[1].take_completion(call).unwrap().unwrap();
    assert!(matches!(completion.result, Err(MessageError::RequestDropped { .. })));
}

#[test]
fn an_endpoint_may_close_although_a_peer_does_not_read_its_acknowledgements() {
    let network = Network::new(0, 2, 64);
    let mut ends = ends(&network, 2, 1 << 20);
    let to = peer(&ends[0], 1);
    let options = with(0, Report::ErrorsOnly, Until::Delivered);
    for _ in 0..8 {
        ends[0].start_send(to, 1.into(), vec![1].into(), options).unwrap();
        while receive(&mut ends[1], Selector::any()).is_some() {}
    }
    assert!(!ends[1].wanted_room().is_empty(), "acknowledgements wait for room");
    assert!(!ends[1].has_pending_sends());
}

// Keeps P103.
#[test]
fn a_peer_comes_before_its_messages_and_goes_after_those_that_are_asked_for() {
    for seed in 0..200 {
        let network = Network::new(seed, 1000, 64);
        let mut ends = ends(&network, 1, 1 << 20);
        ends[0].watch_peers();
        let me = peer(&ends[0], 0);
        assert_eq!(ends[0].next_peer_event(&Selector::any()), Some(PeerEvent::Came(me)));
        let name = ChannelName::new("late").unwrap();
        let mut late = Engine::new(network.join(name), Budget::new(1 << 20, 4), Seed(3));
        late.progress(None).unwrap();
        for tag in [1, 2, 1] {
            late.start_send(peer(&late, 0), tag.into(), vec![0; 100].into(), Options::default())
                .unwrap();
        }
        settle(std::slice::from_mut(&mut late));
        network.end(1, Gone::Died);
        let mut seen = Vec::new();
        for _ in 0..300 {
            let mut target = ends[0].new_message();
            let mut caller = Caller::new(Selector::tag(1), target.as_target()).reporting_peers();
            ends[0].begin_receive(&mut caller).unwrap();
            let mut event = ends[0].next_peer_event_for(&caller);
            if event.is_none() && ends[0].end_of(&caller).is_none() {
                ends[0].progress(Some(&mut caller)).unwrap();
                event = ends[0].next_peer_event_for(&caller);
            }
            match event {
                Some(PeerEvent::Came(_)) => seen.push("came"),
                Some(PeerEvent::Gone { .. }) => seen.push("gone"),
                None if ends[0].end_of(&caller).is_some() => seen.push("message"),
                None => {}
            }
            ends[0].leave(&mut caller);
        }
        assert_eq!(seen, ["came", "message", "message", "gone"], "seed {seed}");
        // The message that nobody asked for is still there.
        assert!(receive(&mut ends[0], Selector::tag(2)).is_some());
    }
}

/// The request that an engine receives next.
fn receive_request(engine: &mut Engine<InMemory>) -> Option<(Status, Vec<u8>)> {
    receive(engine, Selector::requests())
}

// Keeps P104.
#[test]
fn two_peers_that_call_each_other_get_more_replies_than_either_keeps() {
    for seed in 0..50 {
        let network = Network::new(seed, 8, 64);
        let mut ends = ends(&network, 2, 64 << 10);
        let to = [peer(&ends[0], 1), peer(&ends[1], 0)];
        // Few short requests, or together more than either keeps.
        let (calls, bytes) = if seed % 2 == 0 { (40, 8) } else { (200, 400) };
        for (end, to) in ends.iter_mut().zip(to) {
            for number in 0..calls {
                let options = with(number, Report::Queue, Until::Copied);
                end.start_call(to, vec![1; bytes].into(), options).unwrap();
            }
        }
        let mut ended = [0, 0];
        let mut rounds = 0;
        while ended != [calls, calls] {
            rounds += 1;
            assert!(rounds < 200_000, "seed {seed}: {ended:?}");
            for (end, ended) in ends.iter_mut().zip(&mut ended) {
                // All requests are received before anything else is done.
                if let Some((status, _)) = receive_request(end) {
                    end.reply(status.source, status.tag, &&[2; 8 << 10][..]).unwrap();
                }
                while let Some(completion) = end.next_completion() {
                    assert_eq!(completion.result.unwrap().bytes, 8 << 10);
                    *ended += 1;
                }
            }
        }
    }
}

// Keeps P104.
#[test]
fn a_peer_that_reads_no_replies_does_not_make_its_server_keep_more_than_the_budget() {
    let network = Network::new(0, 4, 64);
    let mut ends = ends(&network, 2, 64 << 10);
    let to = peer(&ends[0], 1);
    let mut replies = 0;
    for _ in 0..1000 {
        let request = Envelope::numbered(Space::Request, 7);
        let nothing: &[u8] = &[];
        let _ = ends[0].send_step(to, request, &nothing, &mut 0).unwrap();
        if let Some((status, _)) = receive_request(&mut ends[1]) {
            ends[1].reply(status.source, status.tag, &&[2; 8 << 10][..]).unwrap();
            replies += 1;
        }
    }
    assert!((4..=6).contains(&replies), "{replies}");
    // It reads them now, and gets all.
    for _ in 0..2000 {
        settle(&mut ends);
        if let Some((status, _)) = receive_request(&mut ends[1]) {
            ends[1].reply(status.source, status.tag, &&[2; 8 << 10][..]).unwrap();
            replies += 1;
        }
    }
    assert!(replies > 200, "{replies}");
}

#[test]
fn a_peer_that_ends_beyond_its_budget_goes_all_the_same() {
    let violation = PeerViolation { word: "a word", found: 1, position: 2 };
    let loss = Loss { reason: LossReason::Ended, delivered: 0 };
    for how in [Gone::Died, Gone::Left, Gone::Lost(loss), Gone::CutOff(violation)] {
        for last_is_huge in [false, true] {
            a_peer_ends_beyond_its_budget(how, last_is_huge);
        }
    }
}

fn a_peer_ends_beyond_its_budget(how: Gone, last_is_huge: bool) {
    let network = Network::new(0, 8, 64);
    let mut ends = ends(&network, 2, 64 << 10);
    ends[0].watch_peers();
    let to = peer(&ends[1], 0);
    let other = peer(&ends[0], 1);
    let call = ends[0].start_call(other, vec![1].into(), Options::default()).unwrap();
    let mut later = 0;
    while later < 10 {
        let send = ends[1].start_send(to, 1.into(), vec![0; 60].into(), Options::default());
        settle(&mut ends);
        later += u32::from(ends[1].take_completion(send.unwrap()).unwrap().is_none());
    }
    if last_is_huge {
        // All others are received, so that only this one is with its sender.
        while receive(&mut ends[0], Selector::tag(1)).is_some() {
            settle(&mut ends);
        }
        assert!(!ends[1].send_step(to, 2.into(), &Huge, &mut 0).unwrap());
        settle(&mut ends[..1]);
    }
    network.end(1, how);
    settle(&mut ends[..1]);
    let end = ends[0].take_completion(call).unwrap().unwrap().result;
    assert_eq!(end, Err(ends[0].check_peer(other).unwrap_err()));
    assert!(ends[0].next_peer_event(&Selector::requests()).is_some());
    while receive(&mut ends[0], Selector::tag(1)).is_some() {}
    assert!(ends[0].is_at_rest(), "{how:?}: something of it is left");
}

#[test]
fn requests_that_were_kept_back_are_received_when_their_sender_ends() {
    for is_cut_off in [false, true] {
        let network = Network::new(0, 4, 64);
        let mut ends = ends(&network, 2, 64 << 10);
        let to = peer(&ends[0], 1);
        let nothing: &[u8] = &[];
        let mut sent = 0;
        for _ in 0..100 {
            let request = Envelope::numbered(Space::Request, 7);
            sent += u32::from(ends[0].send_step(to, request, &nothing, &mut 0).unwrap());
            if let Some((status, _)) = receive_request(&mut ends[1]) {
                sent -= 1;
                ends[1].reply(status.source, status.tag, &&[2; 8 << 10][..]).unwrap();
            }
        }
        assert!(sent > 10, "{sent}");
        settle(&mut ends[1..]);
        if is_cut_off {
            let notice = Envelope::numbered(Space::Notice, 0);
            let no_notice = &b"?"[..];
            let done = ends[0].transport_mut().try_send(1, &notice, &no_notice, &mut 0);
            assert_eq!(done, Ok(true));
        } else {
            network.end(0, Gone::Died);
        }
        settle(&mut ends[1..]);
        assert!(ends[1].check_peer(peer(&ends[1], 1)).is_ok(), "it ends no other");
        while receive_request(&mut ends[1]).is_some() {
            sent -= 1;
        }
        assert_eq!(sent, 0, "{is_cut_off}: some are kept for ever");
        assert!(ends[1].is_at_rest());
    }
}

#[test]
fn a_request_for_which_there_is_no_memory_holds_up_no_other() {
    for is_kept in [false, true] {
        let network = Network::new(0, 8, 64);
        let mut ends = ends(&network, 3, 64 << 10);
        let to = peer(&ends[1], 0);
        let mut sent = 0;
        let mut request = |ends: &mut Ends| {
            let envelope = Envelope::numbered(Space::Request, 1);
            ends[1].send_step(to, envelope, &Huge, &mut sent).unwrap();
            if is_kept {
                settle(&mut ends[..1]);
            }
        };
        for number in 0..20 {
            request(&mut ends);
            assert_eq!(receive_request(&mut ends[0]), None);
            let other = peer(&ends[2], 0);
            ends[2].start_call(other, vec![number].into(), Options::default()).unwrap();
            let received = receive_request(&mut ends[0]).or_else(|| receive_request(&mut ends[0]));
            assert_eq!(received.unwrap().1, [number]);
        }
        // It is dropped as it arrives, and its sender is told when it waits for the reply.
        assert!(sent > 64 * 100, "{sent}");
        assert!(ends[1].transport_mut().arrival(0).unwrap().is_none());
    }
}

/// A message that is longer than any memory.
struct Huge;

impl Source for Huge {
    fn bytes(&self) -> u64 {
        1 << 60
    }

    fn fill(&self, _offset: u64, _target: &mut Fragment<'_>) {}

    fn stretches(&self, _each: &mut dyn FnMut(Stretch)) {}
}
