//! Large messages in unusual orders: what comes late, is taken back, lies behind something else, or comes twice. All
//! over the transport in memory.
//!
//! More than 600 lines, because its cases share two engines and the ways to stop them at each step.

use corewire_endpoint::in_memory::{InMemory, Network};
use corewire_endpoint::transport::Gone;
use corewire_endpoint::{
    Budget, Caller, Engine, Envelope, Grants, Lent, Memory, Options, OwnedMessage, Peer, Seed,
    Selector, Space, Status, Transport, Until,
};
use corewire_layout::name::ChannelName;
use corewire_layout::rendezvous::{Notice, Offer, OfferWants, OfferedSpace, Verb, offer_number};

use crate::ends::{ends, settle};

fn receive(engine: &mut Engine<InMemory>, selector: Selector) -> Option<(Status, Vec<u8>)> {
    let mut target = engine.new_message();
    let mut caller = Caller::new(selector, target.as_target());
    engine.begin_receive(&mut caller).unwrap();
    for _ in 0..500 {
        if engine.end_of(&caller).is_some() {
            break;
        }
        engine.progress(Some(&mut caller)).unwrap();
    }
    let end = engine.end_of(&caller);
    engine.leave(&mut caller);
    let status = end?.unwrap();
    Some((status, target.finish(status).into_vec()))
}
fn until(until: Until) -> Options {
    Options { until, ..Options::default() }
}

#[test]
fn a_receiver_does_not_poll_without_end_for_a_sender_that_stopped_while_it_wrote() {
    let network = Network::new(0, 64, 64).with_offers();
    let mut ends = ends(&network, 2, 4000);
    let to = ends[0].peer_at(1).unwrap();
    ends[0].start_send(to, 1.into(), Memory::from(vec![9; 4000]), Options::default()).unwrap();
    let mut target = ends[1].new_message();
    let mut caller = Caller::new(Selector::any(), target.as_target()).patient();
    ends[1].begin_receive(&mut caller).unwrap();
    ends[1].progress(Some(&mut caller)).unwrap();
    // The sender begins to copy a piece, and does not go on.
    ends[0].progress(None).unwrap();
    ends[1].leave(&mut caller);
    let mut steps = 0;
    while ends[1].is_copying() {
        ends[1].progress(None).unwrap();
        steps += 1;
        assert!(steps < 100_000, "it polls");
    }
    assert!(ends[1].has_operations(), "the sender was not copying");
    settle(&mut ends);
    assert_eq!(receive(&mut ends[1], Selector::any()).unwrap().1, vec![9; 4000]);
}

/// A send that a call waits for.
struct Blocking {
    to: Peer,
    message: Vec<u8>,
    lent: Option<Lent>,
    sent: u64,
    is_over: bool,
}

impl Blocking {
    fn begin(engine: &mut Engine<InMemory>, to: Peer, bytes: usize) -> Self {
        let message = vec![7; bytes];
        let lent = engine.offer_lent(to, 1.into(), &message.as_slice()).unwrap();
        if lent.is_none() {
            engine.begin_blocking(bytes as u64);
        }
        Self { to, message, lent, sent: 0, is_over: false }
    }

    fn step(&mut self, engine: &mut Engine<InMemory>) {
        let source = self.message.as_slice();
        if self.is_over {
            return;
        }
        self.is_over = match self.lent {
            Some(lent) => {
                let is_over = engine.end_of_lent(&lent, &source).is_some();
                is_over && engine.end_lent(lent, &source)
            }
            None => engine.send_step(self.to, 1.into(), &source, &mut self.sent).unwrap(),
        };
        if self.is_over {
            engine.end_blocking();
        }
    }
}

// Keeps P115.
#[test]
fn two_endpoints_that_send_to_each_other_both_finish() {
    let ways = [false, true].map(|offers| [false, true].map(|keeps| (offers, keeps)));
    for (offers, keeps) in ways.into_iter().flatten() {
        for bytes in [[5000, 9000], [9000, 5000], [5000, 5000]] {
            let network = Network::new(0, 8, 64);
            let network = if offers { network.with_offers() } else { network };
            let mut ends = ends(&network, 2, 2000);
            let to = [ends[0].peer_at(1).unwrap(), ends[1].peer_at(0).unwrap()];
            if keeps {
                for (end, to) in ends.iter_mut().zip(to) {
                    let short = Memory::from(vec![1; 8]);
                    end.start_send(to, 2.into(), short, Options::default()).unwrap();
                }
                settle(&mut ends);
            }
            let mut first = Blocking::begin(&mut ends[0], to[0], bytes[0]);
            for _ in 0..100 {
                ends[0].progress(None).unwrap();
                first.step(&mut ends[0]);
                ends[1].progress(None).unwrap();
            }
            let mut second = Blocking::begin(&mut ends[1], to[1], bytes[1]);
            for _ in 0..5000 {
                for (end, send) in ends.iter_mut().zip([&mut first, &mut second]) {
                    end.progress(None).unwrap();
                    send.step(end);
                }
                // One that has sent its message goes on to receive, outside of this test.
                if first.is_over || second.is_over {
                    break;
                }
            }
            assert!(
                first.is_over || second.is_over,
                "offers {offers}, keeps {keeps}, {bytes:?}: both wait"
            );
        }
    }
}

#[test]
fn data_that_was_left_with_its_sender_keeps_its_tag_and_is_acknowledged() {
    let network = Network::new(0, 64, 64).with_offers();
    let mut ends = ends(&network, 2, 400);
    let to = ends[0].peer_at(1).unwrap();
    let op = ends[0]
        .start_send(to, 77.into(), Memory::from(vec![9; 1000]), until(Until::Delivered))
        .unwrap();
    settle(&mut ends);
    assert!(ends[0].relieve());
    settle(&mut ends);
    let got = receive(&mut ends[1], Selector::any());
    settle(&mut ends);
    let done = ends[0].take_completion(op).unwrap();
    assert_eq!(got.unwrap().0.tag, 77);
    assert!(done.is_some());
}

#[test]
fn data_that_is_discarded_is_acknowledged() {
    let network = Network::new(0, 64, 64).with_offers();
    let mut ends = ends(&network, 2, 400);
    let to = ends[0].peer_at(1).unwrap();
    let op = ends[0]
        .start_send(to, 77.into(), Memory::from(vec![9; 1000]), until(Until::Delivered))
        .unwrap();
    settle(&mut ends);
    assert!(ends[0].relieve());
    settle(&mut ends);
    assert_eq!(ends[1].discard(&Selector::any()), 1);
    settle(&mut ends);
    assert!(ends[0].take_completion(op).unwrap().is_some());
}

#[test]
fn an_operation_ends_whose_peer_asks_for_data_and_dies() {
    let network = Network::new(0, 64, 64).with_offers();
    let name = |n: &str| ChannelName::new(n).unwrap();
    let mut a = Engine::new(network.join(name("a")), Budget::new(1 << 16, 4), Seed(3));
    let mut raw = network.join(name("raw"));
    a.progress(None).unwrap();
    let to = a.peer_at(1).unwrap();
    let op = a.start_send(to, 5.into(), Memory::from(vec![9; 1000]), Options::default()).unwrap();
    let bytes = Notice { verb: Verb::Push, offset: 0 }.to_bytes();
    let mut sent = 0;
    assert!(
        raw.try_send(
            0,
            &Envelope::numbered(Space::Notice, offer_number(1, 1)),
            &&bytes[..],
            &mut sent
        )
        .unwrap()
    );
    network.end(1, Gone::Died);
    for _ in 0..20 {
        a.progress(None).unwrap();
    }
    assert!(a.take_completion(op).unwrap().is_some(), "operation lost");
}

#[test]
fn a_call_ends_whose_peer_asks_for_data_and_dies() {
    let network = Network::new(0, 4, 64).with_offers();
    let name = |n: &str| ChannelName::new(n).unwrap();
    let mut a = Engine::new(network.join(name("a")), Budget::new(1 << 16, 4), Seed(3));
    let mut raw = network.join(name("raw"));
    a.progress(None).unwrap();
    let to = a.peer_at(1).unwrap();
    let big = vec![9u8; 1000];
    let src = &big[..];
    let lent = a.offer_lent(to, 5.into(), &src).unwrap().unwrap();
    let bytes = Notice { verb: Verb::Push, offset: 0 }.to_bytes();
    let mut sent = 0;
    assert!(
        raw.try_send(
            0,
            &Envelope::numbered(Space::Notice, offer_number(1, 1)),
            &&bytes[..],
            &mut sent
        )
        .unwrap()
    );
    network.end(1, Gone::Died);
    let mut end = None;
    for _ in 0..50 {
        a.progress(None).unwrap();
        end = a.end_of_lent(&lent, &src);
        if end.is_some() {
            break;
        }
    }
    assert!(end.is_some(), "send hangs");
}

#[test]
fn a_send_that_has_become_data_is_received_or_cancelled() {
    let network = Network::new(0, 6, 64).with_offers();
    let mut ends = ends(&network, 2, 1 << 16);
    let to = ends[0].peer_at(1).unwrap();
    let op =
        ends[0].start_send(to, 5.into(), Memory::from(vec![9; 1000]), Options::default()).unwrap();
    // fill the queue
    while ends[0].try_inject(to, &1.into(), &[1; 8]) {}
    assert!(ends[0].relieve());
    ends[0].cancel(op).unwrap();
    let done = ends[0].take_completion(op).unwrap();
    settle(&mut ends);
    let found = ends[1].peek(&Selector::tag(5));
    let got = receive(&mut ends[1], Selector::tag(5));
    assert!(
        done.is_none() == got.is_some(),
        "cancelled, but seen for ever: {found:?} {}",
        got.is_some()
    );
    assert!(found.is_none() || got.is_some());
}

#[test]
fn a_send_ends_whose_notice_lies_behind_a_message_that_is_left_with_its_peer() {
    let network = Network::new(0, 64, 64).with_offers();
    let mut ends = ends(&network, 2, 400);
    let (b, a) = (ends[0].peer_at(1).unwrap(), ends[1].peer_at(0).unwrap());
    // b's own messages exceed a's budget
    for _ in 0..5 {
        ends[1].start_send(a, 1.into(), Memory::from(vec![1; 60]), Options::default()).unwrap();
    }
    let big = vec![9u8; 1000];
    let src = &big[..];
    let lent = ends[0].offer_lent(b, 5.into(), &src).unwrap().unwrap();
    ends[0].progress(None).unwrap();
    let got = receive(&mut ends[1], Selector::tag(5));
    assert!(got.is_some());
    let mut end = None;
    for _ in 0..50 {
        settle(&mut ends);
        end = ends[0].end_of_lent(&lent, &src);
        if end.is_some() {
            break;
        }
        ends[0].relieve();
    }
    assert!(end.is_some(), "send hangs although its message was received");
}

// Keeps P144.
#[test]
fn a_receive_may_run_out_of_time_at_any_piece() {
    for steps in 0..40 {
        let network = Network::new(0, 64, 64).with_offers();
        let mut ends = ends(&network, 2, 1 << 16);
        let to = ends[0].peer_at(1).unwrap();
        let message: Vec<u8> = (0..=u8::MAX).take(140).collect();
        let source = &message[..];
        let lent = ends[0].offer_lent(to, 5.into(), &source).unwrap().unwrap();
        let mut buffer = [0; 140];
        let mut target = &mut buffer[..];
        let mut caller = Caller::new(Selector::tag(5), &mut target);
        ends[1].begin_receive(&mut caller).unwrap();
        for _ in 0..steps {
            ends[1].progress(Some(&mut caller)).unwrap();
        }
        let is_received = ends[1].end_of(&caller).is_some();
        ends[1].leave(&mut caller);
        if !is_received {
            let (mut end, mut got) = (None, None);
            for _ in 0..500 {
                ends[0].progress(None).unwrap();
                end = end.or_else(|| ends[0].end_of_lent(&lent, &source));
                got = got.or_else(|| receive(&mut ends[1], Selector::tag(5)));
            }
            assert_eq!(got.map(|(_, bytes)| bytes), Some(message), "after {steps} steps");
            assert_eq!(end, Some(Ok(())), "after {steps} steps");
        }
        assert!(is_received || steps < 30);
    }
}

// Keeps P144.
#[test]
fn a_message_that_arrives_in_pieces_is_not_copied_by_each_call_that_does_not_wait() {
    // Four fragments at a time.
    let network = Network::new(0, 4, 64);
    let mut ends = ends(&network, 2, 1 << 16);
    let to = ends[0].peer_at(1).unwrap();
    let message = vec![7; 2000];
    ends[0].start_send(to, 5.into(), Memory::from(message.clone()), Options::default()).unwrap();
    let (mut attempts, mut written) = (0, 0);
    let received = loop {
        let mut buffer = vec![0; 2000];
        let mut target = &mut buffer[..];
        let mut caller = Caller::new(Selector::tag(5), &mut target);
        let end = ends[1].receive_now(&mut caller).unwrap();
        attempts += 1;
        if end.is_some() {
            break buffer;
        }
        written += usize::from(buffer.contains(&7));
        ends[0].progress(None).unwrap();
    };
    assert_eq!(received, message);
    assert!(attempts > 5 && written <= 1, "{written} of {attempts} calls have copied a part");
}

#[test]
fn an_offer_that_comes_twice_loses_no_receive() {
    let network = Network::new(0, 64, 64).with_offers();
    let name = |n: &str| ChannelName::new(n).unwrap();
    let mut a = Engine::new(network.join(name("a")), Budget::new(1 << 16, 4), Seed(3));
    let mut raw = network.join(name("raw"));
    a.progress(None).unwrap();
    let ops: Vec<_> = (0..2)
        .map(|_| {
            a.start_receive(Selector::any(), Memory::from(vec![0; 500]), Options::default())
                .unwrap()
        })
        .collect();
    let offer = Offer {
        number: 1 << 16,
        total: 400,
        space: OfferedSpace::Tagged,
        wants: OfferWants::Nothing,
        immediate: None,
        is_blocking: false,
    };
    let bytes = [&offer.to_bytes()[..], &[1]].concat();
    for _ in 0..2 {
        let mut sent = 0;
        assert!(
            raw.try_send(0, &Envelope::numbered(Space::Offer, 3), &&bytes[..], &mut sent).unwrap()
        );
    }
    a.progress(None).unwrap();
    network.end(1, Gone::Died);
    for _ in 0..20 {
        a.progress(None).unwrap();
    }
    let me = a.peer_at(0).unwrap();
    for _ in 0..2 {
        a.start_send(me, 3.into(), Memory::from(vec![1; 8]), Options::default()).unwrap();
    }
    for _ in 0..20 {
        a.progress(None).unwrap();
    }
    let ended: Vec<bool> = ops.iter().map(|op| a.take_completion(*op).unwrap().is_some()).collect();
    assert_eq!(ended, [true, true]);
}

#[test]
fn a_send_ends_whose_message_was_dropped_before_it_came() {
    let network = Network::new(0, 6, 64).with_offers();
    let mut ends = ends(&network, 2, 1 << 16);
    let to = ends[0].peer_at(1).unwrap();
    let op = ends[0]
        .start_send(to, 5.into(), Memory::from(vec![9; 1000]), until(Until::Matched))
        .unwrap();
    ends[1].progress(None).unwrap();
    assert_eq!(ends[1].discard(&Selector::tag(5)), 1);
    assert!(ends[0].relieve());
    settle(&mut ends);
    assert!(ends[0].take_completion(op).unwrap().is_some(), "never ends");
}

#[test]
fn receives_without_time_get_a_large_message_in_the_end() {
    let network = Network::new(0, 64, 64).with_offers();
    let mut ends = ends(&network, 2, 1 << 16);
    let to = ends[0].peer_at(1).unwrap();
    ends[0].start_send(to, 5.into(), Memory::from(vec![9; 1000]), Options::default()).unwrap();
    for _ in 0..1000 {
        ends[0].progress(None).unwrap();
        let mut buffer = [0u8; 1000];
        let mut slice = &mut buffer[..];
        let mut caller = Caller::new(Selector::any(), &mut slice);
        ends[1].begin_receive(&mut caller).unwrap();
        if ends[1].end_of(&caller).is_none() {
            ends[1].progress(Some(&mut caller)).unwrap();
        }
        let end = ends[1].end_of(&caller);
        ends[1].leave(&mut caller);
        if end.is_some() {
            return;
        }
    }
    panic!("never received");
}

/// Pseudo-random numbers from a seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, count: u64) -> u64 {
        // Marsaglia's xorshift64*.
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % count
    }
}

fn content(number: u64, length: usize) -> Vec<u8> {
    (0..length).map(|at| number.wrapping_mul(31).wrapping_add(at as u64).to_le_bytes()[0]).collect()
}

// Keeps P121.
/// Whatever is refused, taken back, pushed, left and begun again: each message comes once, whole and in its order,
/// or was cancelled.
#[test]
fn each_message_comes_once_and_in_order_whatever_happens_on_its_way() {
    for seed in 1..2000u64 {
        let network = Network::new(seed, 6, 64).with_offers().with_refusals();
        let budget = if seed % 3 == 0 { 700 } else { 1 << 20 };
        let mut ends = ends(&network, 2, budget);
        // Two thirds with messages that stay with their sender, half of these with refusals.
        if seed % 3 > 0 {
            let total = if seed % 5 == 0 { 1 << 20 } else { 4000 };
            let end = ends.remove(1).with_grants(Grants::new(total, 4, seed % 2 == 0));
            ends.push(end);
        }
        // Messages that are read where their sender has them, and what they hold.
        let mut held: Vec<(OwnedMessage, Vec<u8>)> = Vec::new();
        let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let to = ends[0].peer_at(1).unwrap();
        let from = ends[1].peer_at(0).unwrap();
        // By tag: the numbers of the messages that have not come, in the order sent.
        let mut due = vec![Vec::<u64>::new(); 3];
        let mut lengths = Vec::new();
        let mut sends = Vec::new();
        let mut receives = Vec::new();
        let got = |tag: u64,
                   number: u64,
                   is_posted: bool,
                   bytes: &[u8],
                   due: &mut Vec<Vec<u64>>,
                   lengths: &[usize]| {
            let queue = &mut due[usize::try_from(tag).unwrap()];
            let at = queue.iter().position(|it| *it == number);
            let at = at.unwrap_or_else(|| panic!("seed {seed}: message {number} of {queue:?}"));
            // A receive whose message was taken back gets a later one than receives that were posted behind it.
            assert!(at == 0 || is_posted, "seed {seed}: message {number} of {queue:?}");
            assert_eq!(
                bytes,
                content(number, lengths[usize::try_from(number).unwrap()]),
                "seed {seed}"
            );
            queue.remove(at);
        };
        for step in 0..160 {
            let is_draining = step >= 110;
            if !held.is_empty() && dice.below(3) == 0 {
                let index = usize::try_from(dice.below(held.len() as u64)).unwrap();
                let (message, bytes) = held.swap_remove(index);
                assert_eq!(message, bytes, "seed {seed}: changed while it was held");
            }
            match dice.below(if is_draining { 2 } else { 9 }) + if is_draining { 4 } else { 0 } {
                0..=2 => {
                    let (number, tag) = (lengths.len() as u64, dice.below(3));
                    let length = usize::try_from(
                        [8, 60, 200, 1500][usize::try_from(dice.below(4)).unwrap()],
                    )
                    .unwrap();
                    lengths.push(length);
                    due[usize::try_from(tag).unwrap()].push(number);
                    let until = [Until::Copied, Until::Delivered, Until::Matched]
                        [usize::try_from(dice.below(3)).unwrap()];
                    let options = Options { until, context: number, ..Options::default() };
                    let envelope = Envelope::tagged(tag).with_immediate(number);
                    let memory = Memory::from(content(number, length));
                    sends.push((
                        tag,
                        number,
                        ends[0].start_send(to, envelope, memory, options).unwrap(),
                    ));
                }
                3 => {
                    let tag = dice.below(3);
                    let selector = Selector::tag(tag).from(from);
                    receives.push((
                        tag,
                        ends[1]
                            .start_receive(selector, Memory::pooled(), Options::default())
                            .unwrap(),
                    ));
                }
                4 => {
                    // A receive with a limit of a few steps, into memory of its own or of its caller. Receives that
                    // were posted before come first.
                    let tag = dice.below(3);
                    if receives.iter().any(|(other, _)| *other == tag) {
                        continue;
                    }
                    let (mut target, mut buffer) = (ends[1].new_message(), vec![0u8; 1500]);
                    let mut slice = &mut buffer[..];
                    let is_own = dice.below(2) == 0;
                    let mut caller = if is_own {
                        Caller::new(Selector::tag(tag), target.as_target())
                    } else {
                        Caller::new(Selector::tag(tag), &mut slice)
                    };
                    ends[1].begin_receive(&mut caller).unwrap();
                    for _ in 0..dice.below(6) {
                        if ends[1].end_of(&caller).is_some() {
                            break;
                        }
                        ends[1].progress(Some(&mut caller)).unwrap();
                        ends[0].progress(None).unwrap();
                    }
                    let end = ends[1].end_of(&caller);
                    ends[1].leave(&mut caller);
                    if let Some(status) = end {
                        let status = status.unwrap();
                        let length = usize::try_from(status.bytes).unwrap();
                        let bytes = if is_own {
                            let message = target.finish(status);
                            let bytes = message.to_vec();
                            held.push((message, bytes.clone()));
                            bytes
                        } else {
                            buffer[..length].to_vec()
                        };
                        got(tag, status.immediate.unwrap(), false, &bytes, &mut due, &lengths);
                    }
                }
                5 => settle(&mut ends),
                6 => _ = ends[0].relieve(),
                7 => {
                    if let Some(&(_, _, send)) =
                        sends.get(usize::try_from(dice.below(sends.len().max(1) as u64)).unwrap())
                    {
                        ends[0].cancel(send).unwrap();
                    }
                }
                _ => {
                    let end = usize::try_from(dice.below(2)).unwrap();
                    ends[end].progress(None).unwrap();
                }
            }
            sends.retain(|(tag, number, send)| match ends[0].take_completion(*send).unwrap() {
                None => true,
                Some(completion) => {
                    if completion.result.is_err() {
                        let queue = &mut due[usize::try_from(*tag).unwrap()];
                        let at = queue.iter().position(|it| it == number);
                        queue.remove(at.unwrap_or_else(|| {
                            panic!("seed {seed}: {number} came, and was cancelled")
                        }));
                    }
                    false
                }
            });
            let mut index = 0;
            while index < receives.len() {
                let (tag, receive) = receives[index];
                match ends[1].take_completion(receive).unwrap() {
                    None => index += 1,
                    Some(completion) => {
                        let status = completion.result.unwrap();
                        got(
                            tag,
                            status.immediate.unwrap(),
                            true,
                            &completion.memory.into_vec(),
                            &mut due,
                            &lengths,
                        );
                        receives.remove(index);
                    }
                }
            }
        }
        held.clear();
        // Everything that was not cancelled comes.
        for round in 0..3000 {
            if due.iter().all(Vec::is_empty) {
                break;
            }
            assert!(round < 2999, "seed {seed}: {due:?} never come");
            for tag in 0..3u64 {
                if !due[usize::try_from(tag).unwrap()].is_empty()
                    && !receives.iter().any(|(other, _)| *other == tag)
                {
                    let selector = Selector::tag(tag).from(from);
                    receives.push((
                        tag,
                        ends[1]
                            .start_receive(selector, Memory::pooled(), Options::default())
                            .unwrap(),
                    ));
                }
            }
            settle(&mut ends);
            ends[0].relieve();
            let mut index = 0;
            while index < receives.len() {
                let (tag, receive) = receives[index];
                match ends[1].take_completion(receive).unwrap() {
                    None => index += 1,
                    Some(completion) => {
                        let status = completion.result.unwrap();
                        got(
                            tag,
                            status.immediate.unwrap(),
                            true,
                            &completion.memory.into_vec(),
                            &mut due,
                            &lengths,
                        );
                        receives.remove(index);
                    }
                }
            }
            sends.retain(|(tag, number, send)| match ends[0].take_completion(*send).unwrap() {
                None => true,
                Some(completion) => {
                    if completion.result.is_err() {
                        due[usize::try_from(*tag).unwrap()].retain(|it| it != number);
                    }
                    false
                }
            });
        }
        settle(&mut ends);
        sends.retain(|(_, _, send)| ends[0].take_completion(*send).unwrap().is_none());
        assert!(sends.is_empty(), "seed {seed}: {sends:?} never end");
    }
}
