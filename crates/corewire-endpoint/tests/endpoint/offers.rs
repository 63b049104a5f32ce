//! Large messages where the path of their notices is blocked, ends, or leads to another peer. Each case is one exact
//! order of events, over the transport in memory.

use corewire_endpoint::in_memory::{InMemory, Network};
use corewire_endpoint::transport::Gone;
use corewire_endpoint::{
    Budget, Caller, Engine, Envelope, Memory, MessageError, OperationHandle, Options, Peer, Seed,
    Selector, Space, Transport, Until,
};
use corewire_layout::name::ChannelName;
use corewire_layout::rendezvous::{Notice, Verb, offer_number};

use crate::ends::settle;

type End = Engine<InMemory>;

/// Fragments that a queue holds, each of so many bytes.
const SLOTS: usize = 3;
const FRAGMENT_BYTES: usize = 64;
const LARGE: usize = 1000;
/// The tags of large and of short messages.
const LARGE_TAG: u64 = 5;
const SHORT_TAG: u64 = 1;

fn engine(transport: InMemory) -> End {
    Engine::new(transport, Budget::new(1 << 20, 4), Seed(3))
}

fn name(name: &str) -> ChannelName {
    ChannelName::new(name).unwrap()
}

/// Two engines; the second has the row 1, the first the row 0.
fn two(network: &Network) -> [End; 2] {
    let mut ends = [engine(network.join(name("a"))), engine(network.join(name("b")))];
    settle(&mut ends);
    ends
}

/// One side makes calls, the other none.
fn go_on_alone(end: &mut End) {
    // A large message is read in about 150 pieces.
    for _ in 0..500 {
        end.progress(None).unwrap();
    }
}

fn peer(end: &End, row: u32) -> Peer {
    end.peer_at(row).unwrap()
}

fn send(end: &mut End, to: u32, until: Until) -> OperationHandle {
    let options = Options { until, ..Options::default() };
    let to = peer(end, to);
    end.start_send(to, LARGE_TAG.into(), Memory::from(vec![9; LARGE]), options).unwrap()
}

fn receive(end: &mut End, tag: u64) -> OperationHandle {
    end.start_receive(Selector::tag(tag), Memory::from(vec![0; LARGE]), Options::default()).unwrap()
}

/// Fills the queue toward a peer. Returns the number of messages.
fn fill(end: &mut End, to: u32) -> usize {
    let to = peer(end, to);
    (0..2 * SLOTS).take_while(|_| end.try_inject(to, &SHORT_TAG.into(), &[1; 8])).count()
}

/// The result of an operation that must have ended, and the bytes that a receive got.
fn end_of(
    end: &mut End,
    operation: OperationHandle,
    what: &str,
) -> (Result<u64, MessageError>, Vec<u8>) {
    let completion = end.take_completion(operation).unwrap();
    let completion = completion.unwrap_or_else(|| panic!("{what} never ends"));
    (completion.result.map(|status| status.bytes), completion.memory.into_vec())
}

// Keeps P115.
#[test]
fn large_messages_in_both_directions_pass_although_both_queues_are_full() {
    let network = Network::new(0, SLOTS, FRAGMENT_BYTES).with_offers();
    let mut ends = two(&network);
    let sends = [send(&mut ends[0], 1, Until::Delivered), send(&mut ends[1], 0, Until::Delivered)];
    // Neither side has read an offer, and neither has room for a notice.
    assert_eq!([fill(&mut ends[0], 1), fill(&mut ends[1], 0)], [SLOTS - 1; 2]);
    let receives = [receive(&mut ends[0], LARGE_TAG), receive(&mut ends[1], LARGE_TAG)];
    settle(&mut ends);
    for (end, (send, receive)) in ends.iter_mut().zip(sends.into_iter().zip(receives)) {
        assert!(end_of(end, send, "a send").0.is_ok());
        let (result, bytes) = end_of(end, receive, "a receive");
        assert!(result.is_ok() && bytes == [9; LARGE], "the message has changed");
    }
}

#[test]
fn notices_wait_in_their_order_while_both_queues_stay_full() {
    let network = Network::new(0, SLOTS, FRAGMENT_BYTES).with_offers();
    let mut ends = two(&network);
    let first = send(&mut ends[0], 1, Until::Delivered);
    let second = send(&mut ends[0], 1, Until::Delivered);
    assert_eq!(fill(&mut ends[1], 0), SLOTS, "the queue for notices is full");
    let receives = [receive(&mut ends[1], LARGE_TAG), receive(&mut ends[1], LARGE_TAG)];
    // The first side is in no call: nothing makes room.
    go_on_alone(&mut ends[1]);
    for receive in receives {
        let (result, bytes) = end_of(&mut ends[1], receive, "a receive that can read its message");
        assert!(result.is_ok() && bytes == [9; LARGE], "the message has changed");
    }
    assert_eq!(ends[0].take_completion(first).unwrap().map(|_| ()), None);
    settle(&mut ends);
    assert!(end_of(&mut ends[0], first, "the first send").0.is_ok());
    assert!(end_of(&mut ends[0], second, "the second send").0.is_ok());
}

#[test]
fn the_end_of_a_sender_ends_its_offers_and_no_receive() {
    for how in [Gone::Left, Gone::Died] {
        let network = Network::new(0, SLOTS, FRAGMENT_BYTES).with_offers();
        let mut ends = two(&network);
        let (a, b) = (peer(&ends[1], 0), peer(&ends[0], 1));
        let begun = ends[1]
            .start_receive(
                Selector::tag(LARGE_TAG),
                Memory::from(vec![0; LARGE]),
                Options::default(),
            )
            .unwrap();
        let from_a = ends[1]
            .start_receive(Selector::tag(7).from(a), Memory::pooled(), Options::default())
            .unwrap();
        let memory = Memory::from(vec![9; LARGE]);
        ends[0].start_send(b, LARGE_TAG.into(), memory, Options::default()).unwrap();
        // The offer arrives, one piece is read, and the sender is gone with another offer unread.
        ends[1].progress(None).unwrap();
        send(&mut ends[0], 1, Until::Copied);
        network.end(0, how);
        go_on_alone(&mut ends[1]);
        let (result, _) = end_of(&mut ends[1], from_a, "a receive from the one that is gone");
        assert!(result.is_err(), "nobody can send that message: {result:?}");
        assert!(ends[1].peek(&Selector::any()).is_none(), "an offer outlives its sender");
        assert!(ends[1].take_completion(begun).unwrap().is_none(), "it waits for another message");
        let me = peer(&ends[1], 1);
        let memory = Memory::from(vec![3; 8]);
        ends[1].start_send(me, LARGE_TAG.into(), memory, Options::default()).unwrap();
        go_on_alone(&mut ends[1]);
        assert_eq!(end_of(&mut ends[1], begun, "the receive").0, Ok(8));
    }
}

#[test]
fn the_end_of_a_receiver_gives_the_memory_of_offers_back() {
    for how in [Gone::Left, Gone::Died] {
        let network = Network::new(0, SLOTS, FRAGMENT_BYTES).with_offers();
        let mut ends = two(&network);
        // One is being read, one has arrived, one has not been seen.
        let sends = [(); 2].map(|()| send(&mut ends[0], 1, Until::Copied));
        receive(&mut ends[1], LARGE_TAG);
        ends[1].progress(None).unwrap();
        let last = send(&mut ends[0], 1, Until::Matched);
        network.end(1, how);
        go_on_alone(&mut ends[0]);
        for send in [sends[0], sends[1], last] {
            let (result, bytes) = end_of(&mut ends[0], send, "a send");
            assert!(result.is_err(), "nobody has the message: {result:?}");
            assert_eq!(bytes, [9; LARGE], "the memory comes back");
        }
    }
}

/// A notice that waits for room when its peer dies is about an offer of the dead. The next peer of the row makes an
/// offer with the same number, for numbers begin again.
#[test]
fn a_notice_to_the_dead_never_reaches_the_next_peer_of_their_row() {
    let network = Network::new(0, SLOTS, FRAGMENT_BYTES).with_offers();
    let mut ends = two(&network);
    send(&mut ends[1], 0, Until::Delivered);
    fill(&mut ends[0], 1);
    let got = receive(&mut ends[0], LARGE_TAG);
    go_on_alone(&mut ends[0]);
    assert!(end_of(&mut ends[0], got, "the receive").0.is_ok());
    // The notice waits behind what the dead never reads.
    network.end(1, Gone::Died);
    go_on_alone(&mut ends[0]);
    ends[1] = engine(network.join_in_place_of(1, name("c")));
    // It offers its message before the first side has seen it, and so before that side sends anything.
    ends[1].progress(None).unwrap();
    let next = send(&mut ends[1], 0, Until::Delivered);
    settle(&mut ends);
    assert!(ends[1].take_completion(next).unwrap().is_none(), "nobody has received it");
    let got = receive(&mut ends[0], LARGE_TAG);
    settle(&mut ends);
    assert!(end_of(&mut ends[0], got, "the receive").0.is_ok());
    assert!(end_of(&mut ends[1], next, "the send").0.is_ok());
}

/// Whatever the new peer of a row says about offers that were made to the old one changes nothing.
#[test]
fn notices_about_offers_to_an_earlier_peer_of_the_row_mean_nothing() {
    let network = Network::new(0, 8, FRAGMENT_BYTES).with_offers();
    let mut ends = Vec::from(two(&network));
    let number = offer_number(1, 1);
    let old = send(&mut ends[0], 1, Until::Delivered);
    ends[1].progress(None).unwrap();
    network.end(1, Gone::Died);
    ends.pop();
    settle(&mut ends);
    assert!(end_of(&mut ends[0], old, "the send to the dead").0.is_err());
    let mut raw = network.join_in_place_of(1, name("c"));
    settle(&mut ends);
    let new = send(&mut ends[0], 1, Until::Delivered);
    for verb in [Verb::Answer, Verb::Done, Verb::Push, Verb::Cancelled, Verb::Helped] {
        let bytes = Notice { verb, offset: 0 }.to_bytes();
        let (envelope, mut sent) = (Envelope::numbered(Space::Notice, number), 0);
        assert!(raw.try_send(0, &envelope, &&bytes[..], &mut sent).unwrap(), "there is room");
        settle(&mut ends);
    }
    assert!(ends[0].take_completion(new).unwrap().is_none(), "that was another offer");
    assert!(ends[0].peer_at(1).is_some(), "late notices are no violation");
}

#[test]
fn a_side_that_waits_for_a_copy_of_the_other_side_to_end_may_sleep() {
    let network = Network::new(0, 64, FRAGMENT_BYTES).with_offers();
    let mut ends = two(&network);
    send(&mut ends[0], 1, Until::Copied);
    let mut target = ends[1].new_message();
    let mut caller = Caller::new(Selector::tag(LARGE_TAG), target.as_target()).patient();
    ends[1].begin_receive(&mut caller).unwrap();
    ends[1].progress(Some(&mut caller)).unwrap();
    // The sender begins to copy a piece, and is stopped there.
    ends[0].progress(None).unwrap();
    assert!(ends[0].is_copying() && ends[1].is_copying());
    ends[1].leave(&mut caller);
    go_on_alone(&mut ends[1]);
    assert!(!ends[1].is_copying(), "nothing can be done before the sender goes on");
    let again = receive(&mut ends[1], LARGE_TAG);
    settle(&mut ends);
    assert!(end_of(&mut ends[1], again, "the next receive").0.is_ok());
}

#[test]
fn there_is_work_until_the_end_of_a_message_has_been_said() {
    let network = Network::new(0, SLOTS, FRAGMENT_BYTES).with_offers();
    let mut ends = two(&network);
    let send = send(&mut ends[0], 1, Until::Copied);
    assert_eq!(fill(&mut ends[1], 0), SLOTS);
    let receive = receive(&mut ends[1], LARGE_TAG);
    go_on_alone(&mut ends[1]);
    assert!(end_of(&mut ends[1], receive, "the receive").0.is_ok());
    assert!(ends[1].has_operations(), "the sender does not know yet that its memory is free");
    settle(&mut ends);
    assert!(end_of(&mut ends[0], send, "the send").0.is_ok());
    assert!(ends.iter().all(|end| !end.has_operations()));
}
