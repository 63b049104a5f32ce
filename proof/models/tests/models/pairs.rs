//! Models of endpoints: pair rings, activity bits, hot and cold pairs, sleep, rings that change
//! hands, ends. The name of a test states what its model shows. The prefix `quick_` marks the
//! models that are run most often.

use std::sync::Arc;

use corewire_layout::segment::FenceMode::{self, Asymmetric, Fenced};
use corewire_models::pairs::{
    ModelEndpoint, Pairs, Wait, bytes_of, envelope_of, meet, receive, send, take, two, warm_up,
};
use corewire_models::{ModelKernel, check, check_bare, mutants};
use loom::thread;

/// After at most this many polls, an endpoint does its occasional work.
const LOOKS_TILL_IDLE: usize = 8;

/// The notice that these models use.
const NOTICE: u32 = 1;

/// Sends `messages` messages of `length` bytes in a separate thread, while this thread receives
/// them.
fn one_to_one(
    mode: FenceMode,
    messages: u64,
    length: usize,
    is_warm: bool,
    sending: Wait,
    receiving: Wait,
) {
    let (_a, mut from, _b, mut to) = two(mode);
    let first = u64::from(is_warm);
    if is_warm {
        warm_up(&mut from, &mut to, 0);
    }
    let sender = thread::spawn(move || {
        for number in first..first + messages {
            send(&mut from, 0, number, length, sending);
        }
    });
    for number in first..first + messages {
        assert_eq!(receive(&mut to, receiving), (0, number));
    }
    // A receiver that leaves publishes how far it has read.
    to.publish_cursors();
    sender.join().unwrap();
}

#[test]
fn quick_a_paired_message_is_whole_when_its_stamp_is_seen() {
    check_bare(4, || one_to_one(Asymmetric, 1, 8, true, Wait::Spin, Wait::Spin));
}

#[test]
fn a_message_of_two_slots_is_whole_when_its_first_stamp_is_seen() {
    check_bare(3, || one_to_one(Asymmetric, 2, 60, true, Wait::Spin, Wait::Spin));
}

#[test]
fn quick_a_pairs_slot_is_written_again_only_when_it_has_been_read() {
    check_bare(3, || one_to_one(Asymmetric, 3, 8, true, Wait::Spin, Wait::Spin));
}

#[test]
fn a_cell_is_written_again_only_when_it_has_been_read() {
    check_bare(2, || one_to_one(Asymmetric, 1, 160, true, Wait::Spin, Wait::Spin));
}

#[test]
fn quick_a_sleeping_endpoint_is_woken() {
    check(3, || one_to_one(Asymmetric, 1, 8, true, Wait::Spin, Wait::Sleep));
}

#[test]
fn quick_a_sleeping_endpoint_is_woken_by_who_fences() {
    check(3, || one_to_one(Fenced, 1, 8, true, Wait::Spin, Wait::Sleep));
}

#[test]
fn an_endpoint_that_sleeps_before_its_first_message_is_woken() {
    check(3, || one_to_one(Asymmetric, 2, 8, false, Wait::Spin, Wait::Sleep));
}

#[test]
fn quick_a_sleeping_endpoint_that_polls_nobody_is_woken() {
    check(3, || {
        let (_a, mut from, _b, mut to) = two(Asymmetric);
        warm_up(&mut from, &mut to, 0);
        // The first sleep makes the pair cold. For the second sleep there is no barrier on the
        // other cores, only the endpoint's own fence.
        assert!(take(&mut to).is_none() && to.arm(None));
        to.retract();
        let sender = thread::spawn(move || send(&mut from, 0, 1, 8, Wait::Spin));
        assert_eq!(receive(&mut to, Wait::Sleep), (0, 1));
        sender.join().unwrap();
    });
}

#[test]
fn quick_an_endpoint_that_waits_for_room_is_woken() {
    // The receiver that makes room must sleep too. If it spun, a sender that is never woken would
    // show as an endless loop.
    check(2, || one_to_one(Asymmetric, 3, 8, true, Wait::Sleep, Wait::Sleep));
}

#[test]
fn both_sleep_in_turn() {
    check(3, || one_to_one(Asymmetric, 3, 8, true, Wait::Sleep, Wait::Sleep));
}

/// Two endpoints send to a third, which polls only one of them: the first, in row 0.
fn three(mode: FenceMode) -> (Pairs, Pairs, ModelEndpoint, Pairs) {
    let kernel = ModelKernel::new(true);
    let [a, c, b] = std::array::from_fn(|_| ModelEndpoint::new(1, mode, &kernel));
    let (mut from_a, mut from_c, mut to) = (a.start(), c.start(), b.start());
    meet(&mut from_a, 0, b.as_peer(0));
    meet(&mut from_c, 0, b.as_peer(1));
    meet(&mut to, 0, a.as_peer(0));
    meet(&mut to, 1, c.as_peer(0));
    warm_up(&mut from_a, &mut to, 0);
    (from_a, from_c, b, to)
}

/// Polls up to `looks` times and expects message `tag` of `row`. The sender must be done. A message
/// that a bit names is found by the first poll, and every message within a few polls.
fn find(to: &mut Pairs, row: u32, tag: u64, looks: usize) {
    let found = (0..looks).find_map(|_| take(to));
    assert_eq!(found, Some((row, tag)), "a message is lost");
}

/// Sends `messages` messages to an endpoint that polls another peer. Meanwhile the receiver polls
/// as many times.
fn named_by_bits(messages: u64) {
    let (_from_a, mut from_c, _b, mut to) = three(Asymmetric);
    // The sender is the first thread, so that loom sees what the polls depend on.
    let looking = thread::spawn(move || {
        let early: Vec<_> = (0..messages).map(|_| take(&mut to)).collect();
        (to, early)
    });
    for tag in 1..=messages {
        send(&mut from_c, 0, tag, 8, Wait::Spin);
    }
    let (mut to, early) = looking.join().unwrap();
    for tag in 1..=messages {
        if !early.contains(&Some((1, tag))) {
            find(&mut to, 1, tag, 1);
        }
    }
}

#[test]
fn quick_a_message_is_never_without_its_bit() {
    check_bare(3, || named_by_bits(1));
}

#[test]
fn a_message_is_not_lost_with_the_bit_of_the_one_before() {
    check_bare(3, || named_by_bits(2));
}

#[test]
fn quick_bits_of_two_senders_are_both_found() {
    check_bare(2, || {
        let (mut from_a, mut from_c, _b, mut to) = three(Asymmetric);
        // No pair is polled now.
        assert!(take(&mut to).is_none() && to.arm(None));
        to.retract();
        let sender = thread::spawn(move || send(&mut from_c, 0, 1, 8, Wait::Spin));
        let other = thread::spawn(move || send(&mut from_a, 0, 1, 8, Wait::Spin));
        let early = take(&mut to);
        sender.join().unwrap();
        other.join().unwrap();
        let others: Vec<_> = (0..12).filter_map(|_| take(&mut to)).collect();
        let mut rows: Vec<_> = early.into_iter().chain(others).map(|(row, _)| row).collect();
        rows.sort_unstable();
        assert_eq!(rows, [0, 1], "a message is lost");
    });
}

#[test]
fn quick_a_message_to_a_pair_that_cools_is_found() {
    check_bare(1, || {
        let (mut from_a, mut from_c, _b, mut to) = three(Asymmetric);
        send(&mut from_c, 0, 1, 8, Wait::Spin);
        assert_eq!(take(&mut to), Some((1, 1)));
        let sender = thread::spawn(move || send(&mut from_a, 0, 1, 8, Wait::Spin));
        // After a few idle polls the other pair takes this pair's place among the polled ones.
        let early = (0..LOOKS_TILL_IDLE).find_map(|_| take(&mut to));
        sender.join().unwrap();
        if early.is_none() {
            find(&mut to, 0, 1, 3 * LOOKS_TILL_IDLE);
        }
    });
}

#[test]
fn a_pair_that_cools_before_a_sleep_wakes_it() {
    check(2, || {
        let (mut from_a, mut from_c, _b, mut to) = three(Asymmetric);
        assert!(take(&mut to).is_none() && take(&mut to).is_none());
        send(&mut from_c, 0, 1, 8, Wait::Spin);
        let sender = thread::spawn(move || send(&mut from_a, 0, 1, 8, Wait::Spin));
        let rows = [receive(&mut to, Wait::Sleep).0, receive(&mut to, Wait::Sleep).0];
        assert!(rows == [0, 1] || rows == [1, 0]);
        sender.join().unwrap();
    });
}

#[test]
fn quick_an_endpoint_that_waits_for_its_descriptor_is_rung() {
    check(3, || {
        let (_a, mut from, b, mut to) = two(Asymmetric);
        warm_up(&mut from, &mut to, 0);
        let sender = thread::spawn(move || send(&mut from, 0, 1, 8, Wait::Spin));
        while take(&mut to).is_none() {
            if to.arm(None) {
                b.kernel.wait_descriptor(0);
            }
        }
        sender.join().unwrap();
    });
}

// Keeps P79.
#[test]
fn quick_an_endpoint_that_waits_for_room_at_its_descriptor_is_rung() {
    check(2, || {
        let (a, mut from, _b, mut to) = two(Asymmetric);
        warm_up(&mut from, &mut to, 0);
        let sender = thread::spawn(move || {
            for number in 1..=3 {
                while !from.try_send(0, &envelope_of(number), &bytes_of(number, 8)) {
                    assert_eq!(from.poll(), None);
                    let mut is_room =
                        |pairs: &mut Pairs| pairs.has_room(0, &envelope_of(0), 0).unwrap();
                    if !is_room(&mut from) && from.arm(Some(&mut is_room)) {
                        a.kernel.wait_descriptor(0);
                    }
                }
            }
        });
        for number in 1..=3 {
            assert_eq!(receive(&mut to, Wait::Sleep), (0, number));
        }
        sender.join().unwrap();
    });
}

#[test]
fn quick_a_ring_that_changes_hands_shows_nothing_of_before() {
    check_bare(4, || {
        let kernel = ModelKernel::new(true);
        let [a, b, c] = std::array::from_fn(|_| ModelEndpoint::new(1, Asymmetric, &kernel));
        let (mut from, mut to_b, mut to_c) = (a.start(), b.start(), c.start());
        meet(&mut from, 0, b.as_peer(0));
        meet(&mut from, 1, c.as_peer(0));
        meet(&mut to_b, 0, a.as_peer(0));
        meet(&mut to_c, 0, a.as_peer(1));
        send(&mut from, 0, 5, 8, Wait::Spin);
        assert_eq!(take(&mut to_b), Some((0, 5)));
        to_b.publish_cursors();
        assert!(from.take_ring_back(1));
        assert_eq!(take(&mut to_b), None);
        let sender = thread::spawn(move || {
            assert!(from.take_ring_back(1) && from.assign_ring(1));
        });
        assert!(!to_c.has_arrival(0).unwrap(), "assertion: a message of another pair");
        sender.join().unwrap();
    });
}

#[test]
fn a_ring_goes_from_one_peer_to_the_next() {
    check(1, || {
        let kernel = ModelKernel::new(true);
        let [a, b, c] = std::array::from_fn(|_| ModelEndpoint::new(1, Asymmetric, &kernel));
        let (mut from, mut to_b, mut to_c) = (a.start(), b.start(), c.start());
        meet(&mut from, 0, b.as_peer(0));
        meet(&mut from, 1, c.as_peer(0));
        meet(&mut to_b, 0, a.as_peer(0));
        meet(&mut to_c, 0, a.as_peer(1));
        warm_up(&mut from, &mut to_b, 0);
        to_b.publish_cursors();
        let sender = thread::spawn(move || send(&mut from, 1, 1, 8, Wait::Sleep));
        // The peer that has the ring gives it back when it polls.
        while !to_c.has_arrival(0).unwrap() {
            assert_eq!(take(&mut to_b), None);
            corewire_ring::sync::pause();
        }
        assert_eq!(take(&mut to_c), Some((0, 1)));
        sender.join().unwrap();
    });
}

#[test]
fn quick_a_sleeping_endpoint_learns_of_a_notice() {
    // A pair is polled and the kernel refuses barriers, so nothing else orders what the endpoint
    // reads.
    check_bare(4, || {
        let kernel = ModelKernel::new(false);
        let [a, b] = std::array::from_fn(|_| ModelEndpoint::new(1, Asymmetric, &kernel));
        let (mut from, mut to) = (a.start(), b.start());
        meet(&mut from, 0, b.as_peer(0));
        meet(&mut to, 0, a.as_peer(0));
        warm_up(&mut from, &mut to, 0);
        let shared = Arc::clone(&b.shared);
        let control = thread::spawn(move || shared.notify(NOTICE, &kernel));
        while b.shared.notices() == 0 {
            to.sleep(u64::MAX, None);
        }
        control.join().unwrap();
    });
}

#[test]
fn quick_what_a_dead_peer_committed_is_there_when_its_death_is_told() {
    check_bare(4, || {
        let (_a, mut from, b, mut to) = two(Asymmetric);
        warm_up(&mut from, &mut to, 0);
        let (shared, kernel) = (Arc::clone(&b.shared), b.kernel.clone());
        let dying = thread::spawn(move || {
            send(&mut from, 0, 1, 8, Wait::Spin);
            // Stands for the control thread, to which the kernel reports the death.
            shared.notify(NOTICE, &kernel);
        });
        if b.shared.notices() & NOTICE != 0 {
            assert!(to.has_arrival(0).unwrap(), "assertion: what it had sent is lost");
        }
        dying.join().unwrap();
        find(&mut to, 0, 1, 2);
        to.remove_peer(0);
        assert!(take(&mut to).is_none());
    });
}

#[test]
fn whoever_waits_for_room_learns_that_its_peer_is_gone() {
    check(2, || {
        let (a, mut from, _b, mut to) = two(Asymmetric);
        warm_up(&mut from, &mut to, 0);
        let (shared, kernel) = (Arc::clone(&a.shared), a.kernel.clone());
        let sender = thread::spawn(move || {
            let mut number = 1;
            while shared_says_nothing(&from) {
                if from.try_send(0, &envelope_of(number), &bytes_of(number, 8)) {
                    number += 1;
                } else {
                    assert_eq!(from.poll(), None);
                    from.sleep(
                        u64::MAX,
                        Some(&mut |pairs: &mut Pairs| {
                            pairs.has_room(0, &envelope_of(0), 0).unwrap()
                        }),
                    );
                }
            }
            from.remove_peer(0);
        });
        drop(to);
        shared.notify(NOTICE, &kernel);
        sender.join().unwrap();
    });
}

fn shared_says_nothing(pairs: &Pairs) -> bool {
    pairs.shared().notices() == 0
}

mutants! {
    mutant_p1: P1 => quick_a_paired_message_is_whole_when_its_stamp_is_seen;
    mutant_p2: P2 => quick_a_paired_message_is_whole_when_its_stamp_is_seen;
    mutant_p3: P3 => quick_a_pairs_slot_is_written_again_only_when_it_has_been_read;
    mutant_p4: P4 => quick_a_pairs_slot_is_written_again_only_when_it_has_been_read;
    mutant_of_pairs_w5: W5 => quick_a_sleeping_endpoint_is_woken_by_who_fences;
    mutant_of_pairs_w6: W6 => quick_a_sleeping_endpoint_is_woken;
    mutant_p7: P7 => quick_a_message_is_never_without_its_bit;
    mutant_p8: P8 => quick_a_message_is_never_without_its_bit;
    mutant_of_room_of_pairs_w7: W7 => quick_an_endpoint_that_waits_for_room_is_woken;
    mutant_p10: P10 => quick_a_ring_that_changes_hands_shows_nothing_of_before;
    mutant_p11: P11 => quick_a_ring_that_changes_hands_shows_nothing_of_before;
    mutant_of_pairs_w1: W1 => quick_a_sleeping_endpoint_learns_of_a_notice;
    mutant_of_pairs_w2: W2 => quick_a_sleeping_endpoint_learns_of_a_notice;
    mutant_of_pairs_w3: W3 => quick_what_a_dead_peer_committed_is_there_when_its_death_is_told;
    mutant_of_pairs_w7: W7 => quick_a_sleeping_endpoint_that_polls_nobody_is_woken;
    mutant_of_pairs_w4: W4 => quick_what_a_dead_peer_committed_is_there_when_its_death_is_told;
}
