//! Ends that are told as they happen, and one memory for many messages.

use std::ptr::NonNull;

use corewire_endpoint::in_memory::{InMemory, Network};
use corewire_endpoint::{
    End, Engine, Envelope, Memory, MessageError, OperationHandle, OperationKind, Options, Peer,
    Report, Selector, Transport, Until,
};

use crate::ends::{Ends, ends};

fn peer(engine: &Engine<InMemory>, number: u32) -> Peer {
    engine.peer_at(number).unwrap()
}

fn with(context: u64, report: Report, until: Until) -> Options {
    Options { context, report, until, ..Options::default() }
}

/// What `poll` has told: contexts, kinds, offsets, lengths or errors, whether the memory is released, labels.
type Told = (u64, OperationKind, usize, Result<u64, MessageError>, bool, u64);

fn poll(end: &mut Engine<impl Transport>, max: usize) -> Vec<Told> {
    let mut told = Vec::new();
    let count = end.poll(max, |end| {
        let End { context, kind, result, label, offset, is_released, .. } = end;
        let result = result.map(|status| status.bytes).map_err(Clone::clone);
        told.push((context, kind, offset, result, is_released, label));
    });
    assert_eq!(count.unwrap(), told.len());
    told
}

// Keeps P228.
#[test]
fn ends_are_told_in_order_and_none_is_lost() {
    let network = Network::new(0, 64, 64);
    let mut ends = ends(&network, 2, 1 << 20);
    let (to, from) = (peer(&ends[0], 1), peer(&ends[1], 0));
    ends[1].set_label(from, 77).unwrap();
    for context in 1..=4 {
        let options = with(context, Report::Queue, Until::Copied);
        ends[1].start_receive(Selector::tag(9), vec![0; 3].into(), options).unwrap();
    }
    assert_eq!(poll(&mut ends[1], 8), []);
    for _ in 0..4 {
        assert!(ends[0].try_inject(to, &9.into(), &[5; 3]));
    }
    let end = |context| (context, OperationKind::Receive, 0, Ok(3), true, 77);
    let mut told = poll(&mut ends[1], 2);
    while told.len() < 3 {
        told.extend(poll(&mut ends[1], 1));
    }
    assert_eq!(told, [end(1), end(2), end(3)]);
    // What a panic keeps from being told is told by the next call.
    let options = with(5, Report::Queue, Until::Copied);
    ends[1].start_receive(Selector::tag(9), vec![0; 3].into(), options).unwrap();
    assert!(ends[0].try_inject(to, &9.into(), &[5; 3]));
    ends[1].poll(0, |_| unreachable!()).unwrap();
    let panics = |end: End<'_>| panic!("{}", end.context);
    let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| ends[1].poll(8, panics)));
    assert_eq!(ended.unwrap_err().downcast_ref::<String>().unwrap(), "4");
    let rest = poll(&mut ends[1], 8);
    assert_eq!(rest, [end(5)]);
}

// Keeps P228.
#[test]
fn who_polls_asks_for_a_message_before_it_is_kept() {
    let network = Network::new(0, 64, 64);
    let mut ends = ends(&network, 3, 1 << 20);
    let to = [peer(&ends[0], 2), peer(&ends[1], 2)];
    for (context, sender) in [(1, 0), (2, 1)] {
        let from = peer(&ends[2], sender);
        ends[2].set_label(from, context).unwrap();
    }
    let options = |context| with(context, Report::Queue, Until::Copied);
    let post = |ends: &mut Ends, context| {
        ends[2].start_receive(Selector::tag(9), vec![0; 3].into(), options(context)).unwrap();
    };
    let end = |context, label| (context, OperationKind::Receive, 0, Ok(3), true, label);
    for _ in 0..3 {
        assert!(ends[0].try_inject(to[0], &9.into(), &[5; 3]));
    }
    for context in 0..3 {
        post(&mut ends, context);
        assert_eq!(poll(&mut ends[2], 8), [end(context, 1)]);
        assert_eq!(poll(&mut ends[2], 8), []);
        assert!(ends[2].is_at_rest(), "nothing is kept");
    }
    // Nobody asks for the first message of this peer. The one behind it comes nevertheless, also while the other peer's
    // messages never end.
    for is_busy in [false, true] {
        assert!(ends[0].try_inject(to[0], &8.into(), &[5; 3]));
        assert!(ends[0].try_inject(to[0], &9.into(), &[5; 3]));
        let mut told = Vec::new();
        for _ in 0..100 {
            post(&mut ends, 7);
            assert!(!is_busy || ends[1].try_inject(to[1], &9.into(), &[5; 3]));
            told.extend(poll(&mut ends[2], 1));
        }
        assert!(told.contains(&end(7, 1)), "{told:?}");
        while ends[2].next_completion().is_some() || !poll(&mut ends[2], 8).is_empty() {}
    }
}

// Keeps P228.
#[test]
fn messages_arrive_beside_ends_that_never_end() {
    for max in [1, 8] {
        let network = Network::new(0, 64, 64);
        let mut ends = ends(&network, 3, 1 << 20);
        let (to, other) = (peer(&ends[0], 2), peer(&ends[2], 1));
        let options = |context| with(context, Report::Queue, Until::Copied);
        ends[2].start_receive(Selector::tag(9), vec![0; 3].into(), options(1)).unwrap();
        for tag in [8, 8, 9] {
            assert!(ends[0].try_inject(to, &tag.into(), &[5; 3]));
        }
        let mut told = Vec::new();
        for _ in 0..200 {
            ends[2].start_send(other, 7.into(), vec![0; 8].into(), options(2)).unwrap();
            ends[1].progress(None).unwrap();
            ends[1].discard(&Selector::tag(7));
            told.extend(poll(&mut ends[2], max));
        }
        assert!(told.contains(&(1, OperationKind::Receive, 0, Ok(3), true, 0)), "{max} at a time");
    }
}

// Keeps P228.
#[test]
fn many_messages_go_into_one_memory() {
    let network = Network::new(0, 64, 64);
    let mut ends = ends(&network, 2, 1 << 20);
    let to = peer(&ends[0], 1);
    let mut bytes = [0u8; 100];
    let at = NonNull::from(&mut bytes).cast();
    // SAFETY: the array outlives the engine, and is not used meanwhile.
    let pinned = || unsafe { Memory::pinned(at, 100) };
    let options = |context| with(context, Report::Queue, Until::Copied);
    let send = |ends: &mut Ends, length: u8| {
        let options = with(0, Report::ErrorsOnly, Until::Copied);
        let message = vec![length; length.into()];
        ends[0].start_send(to, Envelope::untagged(), message.into(), options).unwrap();
    };
    // One that is kept already, one in several fragments, and one with which less than asked is left.
    send(&mut ends, 10);
    assert_eq!(poll(&mut ends[1], 8), []);
    ends[1].start_receive_many(Selector::untagged(), pinned(), 16, options(1)).unwrap();
    let end = |offset, length, is_released| {
        (1, OperationKind::Receive, offset, Ok(length), is_released, 0)
    };
    assert_eq!(poll(&mut ends[1], 8), [end(0, 10, false)]);
    for length in [70, 10, 4] {
        send(&mut ends, length);
    }
    let mut told = Vec::new();
    for _ in 0..40 {
        ends[0].progress(None).unwrap();
        told.extend(poll(&mut ends[1], 8));
    }
    assert_eq!(told, [end(10, 70, false), end(80, 10, true)]);
    // The last one is kept. It does not fit in the next memory, which is released; nor does it if it is the first.
    let small = Memory::from(vec![0; 3]);
    ends[1].start_receive_many(Selector::untagged(), small, 1, options(2)).unwrap();
    assert_eq!(poll(&mut ends[1], 8), [(2, OperationKind::Release, 0, Ok(0), true, 0)]);
    let truncating = Options { truncates: true, ..options(3) };
    let small = Memory::from(vec![0; 3]);
    ends[1].start_receive_many(Selector::untagged(), small, 1, truncating).unwrap();
    let told = poll(&mut ends[1], 8);
    let (3, OperationKind::Receive, 0, Err(MessageError::Truncated { given: 3, .. }), true, 0) =
        told[0]
    else {
        panic!("{told:?}");
    };
    // One that is cancelled is released.
    let many = ends[1].start_receive_many(Selector::untagged(), pinned(), 16, options(4)).unwrap();
    let many = OperationHandle::from_bits(many.to_bits());
    ends[1].cancel(many).unwrap();
    let cancelled = (4, OperationKind::Receive, 0, Err(MessageError::Cancelled), true, 0);
    assert_eq!(poll(&mut ends[1], 8), [cancelled]);
    assert_eq!(ends[1].cancel(many), Err(MessageError::UnknownOperation));
    drop(ends);
    let expected: Vec<u8> = [10, 70, 10].iter().flat_map(|&it| vec![it; it.into()]).collect();
    assert_eq!(bytes[..90], expected);
}

// Keeps P228.
#[test]
fn a_pinned_receive_that_finds_its_message_ends_in_the_call() {
    let network = Network::new(0, 64, 64);
    let mut ends = ends(&network, 2, 1 << 20);
    let to = peer(&ends[0], 1);
    let mut bytes = [0u8; 300];
    let at = NonNull::from(&mut bytes).cast();
    // SAFETY: the array outlives the engine, and is not used meanwhile.
    let pinned = |length| unsafe { Memory::pinned(at, length) };
    for until in [Until::Copied, Until::Matched, Until::Delivered] {
        for length in [0, 8, 160, 161, 300] {
            // The message is there, and its sender may wait for a word about it.
            let options = with(1, Report::Queue, until);
            let message = vec![7; length];
            ends[0].start_send(to, 5.into(), message.into(), options).unwrap();
            for _ in 0..20 {
                ends[0].progress(None).unwrap();
                ends[1].progress(None).unwrap();
            }
            let options = with(2, Report::Queue, Until::Copied);
            if length > 0 {
                ends[1].start_receive(Selector::tag(5), pinned(length - 1), options).unwrap();
                let too_small =
                    MessageError::BufferTooSmall { needed: length as u64, given: length - 1 };
                let end = (2, OperationKind::Receive, 0, Err(too_small), true, 0);
                assert_eq!(poll(&mut ends[1], 8), [end], "{until:?}, {length} bytes");
            }
            ends[1].start_receive(Selector::tag(5), pinned(300), options).unwrap();
            let end = (2, OperationKind::Receive, 0, Ok(length as u64), true, 0);
            assert_eq!(poll(&mut ends[1], 8), [end], "{until:?}, {length} bytes");
            let mut sent = Vec::new();
            for _ in 0..20 {
                sent.extend(poll(&mut ends[0], 8));
                ends[1].progress(None).unwrap();
            }
            let end = (1, OperationKind::Send, 0, Ok(length as u64), true, 0);
            assert_eq!(sent, [end], "{until:?}, {length} bytes");
        }
    }
    drop(ends);
    assert_eq!(bytes, [7; 300]);
}

// Keeps P228.
#[test]
fn only_what_reports_to_the_queue_is_told() {
    let network = Network::new(0, 64, 64);
    let mut ends = ends(&network, 2, 1 << 20);
    let to = peer(&ends[0], 1);
    let counter = ends[1].add_counter();
    let reports = [Report::Handle, Report::Counter(counter), Report::ErrorsOnly, Report::Queue];
    let mut context = 0;
    let handles = reports.map(|report| {
        context += 1;
        let options = with(context, report, Until::Copied);
        ends[1].start_receive(Selector::tag(9), vec![0; 3].into(), options).unwrap()
    });
    for _ in 0..4 {
        assert!(ends[0].try_inject(to, &9.into(), &[5; 3]));
    }
    let mut told = Vec::new();
    for _ in 0..20 {
        told.extend(poll(&mut ends[1], 8));
    }
    assert_eq!(told, [(4, OperationKind::Receive, 0, Ok(3), true, 0)]);
    let completion = ends[1].take_completion(handles[0]).unwrap().unwrap();
    assert_eq!((completion.context, completion.memory.into_vec()), (1, vec![5; 3]));
    assert_eq!(ends[1].count(counter).unwrap().succeeded, 1);
    for handle in &handles[1..] {
        assert_eq!(ends[1].take_completion(*handle).unwrap_err(), MessageError::UnknownOperation);
    }
}
