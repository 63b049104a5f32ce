//! Models of the broadcast ring under `Block`. The name of a test states what its model shows. The
//! prefix `quick_` marks the models that are run most often.

use std::sync::Arc;

use corewire_layout::frame::Start;
use corewire_layout::segment::FenceMode::{Asymmetric, Fenced};
use corewire_layout::slot::SLOT_BYTES;
use corewire_models::{
    ModelChannel, ModelKernel, Stop, WINDOW_MESSAGE_BYTES, Wait, check, check_bare, mutants,
};
use corewire_published::yardstick::{BareRing, BareValue};
use corewire_ring::broadcast::End;
use corewire_ring::doorbell::notice;
use corewire_ring::handoff::{Handoff, OF_NOBODY};
use corewire_ring::region::Region;
use corewire_ring::sync::{AtomicU32, Ordering::Relaxed};
use loom::cell::UnsafeCell;
use loom::thread;

/// Runs the sender in a separate thread while this thread receives everything it sends.
fn one_to_one(channel: &ModelChannel, messages: u64, bytes: usize, send: Wait, receive: Wait) {
    let mut receiver = channel.first_receiver(0);
    let mut sender = channel.sender();
    let sending = thread::spawn(move || {
        sender.send(messages, bytes, send);
        sender.close();
    });
    receiver.receive_all(messages, receive, End::Closed);
    sending.join().unwrap();
}

#[test]
fn quick_an_inline_message_is_whole_when_its_stamp_is_seen() {
    check_bare(5, || one_to_one(&ModelChannel::small(), 2, 8, Wait::Spin, Wait::Spin));
}

#[test]
fn quick_a_window_message_is_whole_when_its_stamp_is_seen() {
    check_bare(5, || {
        one_to_one(&ModelChannel::small(), 2, WINDOW_MESSAGE_BYTES, Wait::Spin, Wait::Spin);
    });
}

#[test]
fn a_large_message_is_whole_when_its_stamp_is_seen() {
    check_bare(5, || {
        let channel = ModelChannel::new(2, 2048, 1, Asymmetric);
        one_to_one(&channel, 3, 2048, Wait::Spin, Wait::Spin);
    });
}

#[test]
fn quick_a_slot_is_written_again_only_when_it_has_been_read() {
    check_bare(4, || one_to_one(&ModelChannel::small(), 4, 8, Wait::Spin, Wait::Spin));
}

#[test]
fn the_window_is_written_again_only_when_it_has_been_read() {
    check_bare(4, || {
        let channel = ModelChannel::new(8, 1, 1, Asymmetric);
        one_to_one(&channel, 6, WINDOW_MESSAGE_BYTES, Wait::Spin, Wait::Spin);
    });
}

// Keeps P7.
#[test]
fn a_closed_channel_ends_after_its_last_message() {
    check_bare(5, || one_to_one(&ModelChannel::small(), 1, 8, Wait::Spin, Wait::Spin));
}

#[test]
fn quick_a_sleeping_receiver_is_woken() {
    check(3, || one_to_one(&ModelChannel::small(), 2, 8, Wait::Spin, Wait::Sleep));
}

#[test]
fn a_receiver_that_sleeps_often_is_woken_each_time() {
    check(3, || {
        let channel = ModelChannel::new(4, 1, 1, Asymmetric);
        one_to_one(&channel, 3, 8, Wait::Spin, Wait::Sleep);
    });
}

#[test]
fn quick_a_sleeping_receiver_of_a_fenced_channel_is_woken() {
    check(3, || {
        let channel = ModelChannel::new(2, 1, 1, Fenced);
        one_to_one(&channel, 2, 8, Wait::Spin, Wait::Sleep);
    });
}

#[test]
fn quick_a_receiver_whose_hint_was_cleared_is_woken() {
    check(4, || {
        let channel = ModelChannel::new(4, 1, 9, Asymmetric);
        one_to_one(&channel, 2, 8, Wait::Spin, Wait::Sleep);
    });
}

#[test]
fn two_receivers_that_share_a_hint_are_both_woken() {
    check(2, || two_sleepers(&ModelChannel::new(4, 1, 9, Asymmetric), 1));
}

#[test]
fn two_receivers_are_both_woken_in_whatever_order_they_fell_asleep() {
    check(2, || two_sleepers(&ModelChannel::new(4, 1, 2, Asymmetric), 1));
}

fn two_sleepers(channel: &ModelChannel, messages: u64) {
    let mut first = channel.first_receiver(0);
    let mut second = channel.first_receiver(1);
    let mut sender = channel.sender();
    let receiving = [
        thread::spawn(move || first.receive_all(messages, Wait::Sleep, End::Closed)),
        thread::spawn(move || second.receive_all(messages, Wait::Sleep, End::Closed)),
    ];
    sender.send(messages, 8, Wait::Spin);
    sender.close();
    for thread in receiving {
        thread.join().unwrap();
    }
}

#[test]
fn quick_a_receiver_that_waits_for_its_descriptor_is_woken() {
    check(4, || {
        let channel = ModelChannel::small();
        let mut receiver = channel.first_receiver(0);
        let mut sender = channel.sender();
        let kernel = channel.kernel.clone();
        let sending = thread::spawn(move || {
            sender.send(2, 8, Wait::Spin);
        });
        for sequence in 0..2 {
            while !receiver.0.is_ready() {
                if receiver.0.arm() {
                    kernel.wait_descriptor(0);
                    receiver.0.retract();
                }
            }
            assert_eq!(receiver.receive(Wait::Spin), Ok(sequence));
        }
        sending.join().unwrap();
    });
}

#[test]
fn quick_a_sender_that_waits_for_room_is_woken() {
    check_bare(4, || one_to_one(&ModelChannel::small(), 3, 8, Wait::Sleep, Wait::Spin));
}

#[test]
fn a_sender_that_waits_for_room_in_the_window_is_woken() {
    check_bare(4, || {
        let channel = ModelChannel::new(8, 1, 1, Asymmetric);
        one_to_one(&channel, 5, WINDOW_MESSAGE_BYTES, Wait::Sleep, Wait::Spin);
    });
}

#[test]
fn sender_and_receiver_sleep_in_turn() {
    check(3, || one_to_one(&ModelChannel::small(), 3, 8, Wait::Sleep, Wait::Sleep));
}

#[test]
fn quick_a_receiver_that_leaves_holds_nobody_back() {
    check_bare(4, || {
        let channel = ModelChannel::small();
        let _idle = channel.first_receiver(0);
        let mut sender = channel.sender();
        let control = channel.clone();
        let leaving = thread::spawn(move || control.leave(0));
        sender.send(3, 8, Wait::Sleep);
        leaving.join().unwrap();
    });
}

#[test]
fn quick_a_sender_that_waits_sees_a_notice() {
    check_bare(4, || {
        let channel = ModelChannel::small();
        let _idle = channel.first_receiver(0);
        let mut sender = channel.sender();
        let (shared, kernel) = (Arc::clone(&channel.shared), channel.kernel.clone());
        let asking = thread::spawn(move || shared.notify(notice::INTERRUPTED, &kernel));
        let sent = (0..3).find_map(|_| sender.try_send(8, Wait::Sleep, true).err());
        assert_eq!(sent, Some(Stop::Interrupted));
        asking.join().unwrap();
    });
}

/// The sender commits messages and dies. Only the receiver's control thread learns of the death.
fn death(messages: u64, wait: Wait) {
    let channel = ModelChannel::small();
    let mut receiver = channel.first_receiver(0);
    let mut sender = channel.sender();
    let (shared, kernel) = (Arc::clone(receiver.0.shared()), channel.kernel.clone());
    let control = thread::spawn(move || {
        // The kernel reports a death after everything that the dead process did.
        sender.send(messages, 8, Wait::Spin);
        drop(sender);
        shared.notify(notice::PEER_GONE, &kernel);
    });
    receiver.receive_all(messages, wait, End::SenderGone);
    control.join().unwrap();
}

#[test]
fn quick_what_a_dead_sender_committed_is_received_before_its_death() {
    check_bare(5, || death(2, Wait::Spin));
}

/// A sender closes the channel and then hangs up. The receiver's control thread reports the hang-up
/// as a death; a receiver that sees this report must find the channel closed.
#[test]
fn quick_a_hang_up_after_the_end_is_not_taken_for_a_death() {
    check_bare(4, || {
        let channel = ModelChannel::small();
        let mut receiver = channel.first_receiver(0);
        let (shared, kernel) = (Arc::clone(receiver.0.shared()), channel.kernel.clone());
        let closing = channel.clone();
        let control = thread::spawn(move || {
            closing.sender().close();
            shared.notify(notice::PEER_GONE, &kernel);
        });
        receiver.receive_all(0, Wait::Spin, End::Closed);
        control.join().unwrap();
    });
}

#[test]
fn quick_the_bare_ring_of_the_benchmarks_loses_nothing() {
    check(3, || {
        const RING: usize = 2 * 4096;
        let bytes = BareRing::bytes(2, 1);
        let slot = |index: usize, from: usize, to: usize| {
            RING + index * SLOT_BYTES + from..RING + index * SLOT_BYTES + to
        };
        let words = vec![4096..4104, slot(0, 0, 8), slot(1, 0, 8)];
        let cells = vec![slot(0, 16, 64), slot(1, 16, 64)];
        let memory = Region::model(bytes, words, vec![], cells);
        let ring = Arc::new(BareRing::new(&memory, 2, 1));
        let other = Arc::clone(&ring);
        let sending = thread::spawn(move || other.send(0, 3, thread::yield_now));
        assert_eq!(ring.receive(0, 0..3, |_| (), thread::yield_now), 1 + 2);
        sending.join().unwrap();
    });
}

#[test]
fn quick_the_bare_value_of_the_benchmarks_is_never_torn() {
    check(3, || {
        let words = vec![0..8, 8..16, 16..24];
        let memory = Region::model(BareValue::bytes(2), words, vec![], vec![]);
        let value = Arc::new(BareValue::new(&memory, 2));
        let other = Arc::clone(&value);
        let setting = thread::spawn(move || other.set(&[1, 1]));
        let mut found = [7, 7];
        value.get(&mut found);
        assert!(found == [0, 0] || found == [1, 1], "{found:?} is torn");
        setting.join().unwrap();
    });
}

/// Takes the lock under the number `own` and counts.
fn count_locked(
    guarded: &(Handoff, UnsafeCell<u32>),
    own: u32,
    wait: impl Fn(&AtomicU32),
    hand_over: impl Fn(&AtomicU32) -> bool,
) {
    guarded.0.lock(own, |word| {
        wait(word);
        thread::yield_now();
        false
    });
    guarded.1.with_mut(|number| {
        // SAFETY: the lock is held, which is what loom checks here.
        unsafe { *number += 1 }
    });
    guarded.0.unlock(hand_over);
}

#[test]
fn quick_a_lock_has_one_holder_at_a_time() {
    check(3, || {
        #[expect(clippy::arc_with_non_send_sync, reason = "loom runs one thread at a time")]
        let guarded = Arc::new((Handoff::new(), UnsafeCell::new(0)));
        let count = |guarded: &_, own| {
            count_locked(guarded, own, |_| {}, |_| panic!("no kernel has flagged the word"));
        };
        let other = Arc::clone(&guarded);
        let counting = thread::spawn(move || count(&other, 1));
        count(&guarded, 2);
        counting.join().unwrap();
    });
}

/// The kernel flags the word for a thread that waits, before it finds that the holder is no thread.
#[test]
fn quick_a_lock_that_nobody_holds_by_name_is_released_though_the_kernel_has_flagged_it() {
    const FLAG: u32 = 1 << 31;
    check(3, || {
        #[expect(clippy::arc_with_non_send_sync, reason = "loom runs one thread at a time")]
        let guarded = Arc::new((Handoff::new(), UnsafeCell::new(0)));
        let other = Arc::clone(&guarded);
        let counting = thread::spawn(move || {
            count_locked(
                &other,
                OF_NOBODY,
                |_| {},
                |word| {
                    assert_eq!(word.load(Relaxed), OF_NOBODY | FLAG);
                    false
                },
            );
        });
        let flag = |word: &AtomicU32| {
            let _ = word.compare_exchange(OF_NOBODY, OF_NOBODY | FLAG, Relaxed, Relaxed);
        };
        count_locked(&guarded, 2, flag, |_| panic!("the other thread does not flag the word"));
        counting.join().unwrap();
    });
}

#[test]
fn quick_a_sleeping_receiver_learns_of_its_senders_death() {
    check(5, || death(0, Wait::Sleep));
}

#[test]
fn quick_a_sleeping_receiver_sees_a_notice_where_the_kernel_gives_no_barrier() {
    check(5, || {
        let mut channel = ModelChannel::small();
        channel.kernel = ModelKernel::new(false);
        let mut receiver = channel.first_receiver(0);
        let (shared, kernel) = (Arc::clone(receiver.0.shared()), channel.kernel.clone());
        let control = thread::spawn(move || shared.notify(notice::PEER_GONE, &kernel));
        receiver.receive_all(0, Wait::Sleep, End::SenderGone);
        control.join().unwrap();
    });
}

#[test]
fn a_receiver_that_sleeps_and_reads_learns_of_its_senders_death() {
    check(4, || death(1, Wait::Sleep));
}

/// Sends the messages `before`, then the messages `after` while a receiver joins and receives to
/// the end.
fn join(channel: &ModelChannel, before: &[usize], after: &[usize], start: Start, how: Joining) {
    let mut sender = channel.sender();
    for &bytes in before {
        sender.send(1, bytes, Wait::Spin);
    }
    let sent = (before.len() + after.len()) as u64;
    let control = channel.clone();
    let joining = thread::spawn(move || {
        let joined = control.join(0, start);
        assert!(joined.start >= how.start_min && joined.start <= sent);
        assert!(joined.start <= how.start_max);
        let mut receiver = control.receiver(0, joined);
        receiver.receive_all(sent, how.wait, End::Closed);
        assert!(!control.has_violators());
    });
    for &bytes in after {
        assert_eq!(sender.try_send(bytes, Wait::Spin, how.ring), Ok(()));
    }
    sender.close();
    joining.join().unwrap();
}

/// How the new receiver waits, whether the sender rings after each message, and the first and last
/// message that the new receiver may start with.
struct Joining {
    wait: Wait,
    ring: bool,
    start_min: u64,
    start_max: u64,
}

const SPINNING: Joining = Joining { wait: Wait::Spin, ring: true, start_min: 0, start_max: 99 };
const SLEEPING: Joining = Joining { wait: Wait::Sleep, ..SPINNING };

#[test]
fn quick_nothing_that_a_newcomer_was_promised_is_overwritten() {
    check(3, || join(&ModelChannel::small(), &[], &[8; 4], Start::Now, SPINNING));
}

#[test]
fn nothing_that_a_late_newcomer_was_promised_is_overwritten() {
    let how = || Joining { start_min: 1, ..SPINNING };
    check(4, move || join(&ModelChannel::small(), &[8; 1], &[8; 3], Start::Now, how()));
}

#[test]
fn quick_nothing_promised_to_a_newcomer_is_overwritten_by_a_batch() {
    let how = || Joining { ring: false, ..SPINNING };
    check(3, move || join(&ModelChannel::small(), &[], &[8; 4], Start::Now, how()));
}

#[test]
fn quick_a_newcomer_that_sleeps_at_once_is_woken() {
    check(3, || join(&ModelChannel::small(), &[], &[8; 2], Start::Now, SLEEPING));
}

#[test]
fn a_newcomer_that_sleeps_at_once_is_woken_through_the_hint() {
    check(4, || {
        join(&ModelChannel::new(2, 1, 9, Asymmetric), &[], &[8; 2], Start::Now, SLEEPING);
    });
}

#[test]
fn quick_a_newcomer_gets_the_oldest_whole_message() {
    check(4, || {
        let how = Joining { start_min: 1, start_max: 3, ..SPINNING };
        join(&ModelChannel::small(), &[8; 2], &[8; 2], Start::Oldest, how);
    });
}

#[test]
fn a_newcomer_gets_the_oldest_whole_messages_of_the_window() {
    check(3, || {
        let bytes = [WINDOW_MESSAGE_BYTES; 4];
        let channel = ModelChannel::new(8, 1, 1, Asymmetric);
        let how = Joining { start_min: 0, start_max: 5, ..SPINNING };
        join(&channel, &bytes, &bytes[..3], Start::Oldest, how);
    });
}

#[test]
fn quick_a_newcomer_judges_each_message_by_its_own_header() {
    // Slot 0 holds a window message, long overwritten, until the inline message 4 takes the slot. A
    // new receiver that finds the new stamp beside the old header would consider message 4 lost.
    check(4, || {
        let channel = ModelChannel::new(4, 1, 1, Asymmetric);
        let how = Joining { start_min: 2, start_max: 2, ..SPINNING };
        join(&channel, &[WINDOW_MESSAGE_BYTES; 4], &[8; 1], Start::Oldest, how);
    });
}

#[test]
fn a_newcomer_gets_the_oldest_whole_messages_of_the_large_area() {
    check(4, || {
        let channel = ModelChannel::new(8, 2048, 1, Asymmetric);
        join(&channel, &[2048; 2], &[2048; 2], Start::Oldest, SPINNING);
    });
}

#[test]
fn a_row_that_was_left_is_taken_again() {
    check(3, || {
        let channel = ModelChannel::small();
        let mut sender = channel.sender();
        let mut first = channel.first_receiver(0);
        let control = channel.clone();
        let changing = thread::spawn(move || {
            // The receiver may leave while the sender still handles its sleep. The sender must not
            // confuse the next receiver in this row with it.
            if first.0.arm() {
                first.0.retract();
            }
            drop(first);
            control.leave(0);
            control.renew(0);
            let mut second = control.first_receiver(0);
            second.receive_all(1, Wait::Sleep, End::Closed);
            assert!(!control.has_violators());
        });
        sender.send(1, 8, Wait::Spin);
        sender.close();
        changing.join().unwrap();
    });
}

// Keeps P54.
/// A relay dies and another takes over its row. Whatever its cursor says by then, all messages from
/// there on are kept, even while the page is replaced.
#[test]
fn quick_who_takes_a_row_over_gets_what_its_last_holder_had_not_passed() {
    check(2, || {
        let channel = ModelChannel::small();
        let mut sender = channel.sender();
        let mut dead = channel.first_receiver(0);
        let control = channel.clone();
        let changing = thread::spawn(move || {
            dead.receive_many(1, Wait::Spin);
            dead.0.publish_cursor();
            dead.receive_many(1, Wait::Spin);
            // It dies before it publishes its cursor again.
            drop(dead);
            let joined = control.succeed(0);
            assert!((1..=2).contains(&joined.start), "assertion: at {}", joined.start);
            control.receiver(0, joined).receive_all(4, Wait::Spin, End::Closed);
            assert!(!control.has_violators());
        });
        sender.send(4, 8, Wait::Spin);
        sender.close();
        changing.join().unwrap();
    });
}

#[test]
fn one_joins_while_another_sleeps() {
    check(2, || {
        let channel = ModelChannel::new(2, 1, 2, Asymmetric);
        let mut first = channel.first_receiver(0);
        let mut sender = channel.sender();
        let first = thread::spawn(move || first.receive_all(1, Wait::Sleep, End::Closed));
        let control = channel.clone();
        let second = thread::spawn(move || {
            let joined = control.join(1, Start::Now);
            control.receiver(1, joined).receive_all(1, Wait::Sleep, End::Closed);
        });
        sender.send(1, 8, Wait::Sleep);
        sender.close();
        first.join().unwrap();
        second.join().unwrap();
    });
}

mutants! {
    mutant_b1: B1 => quick_an_inline_message_is_whole_when_its_stamp_is_seen;
    mutant_b2: B2 => quick_an_inline_message_is_whole_when_its_stamp_is_seen;
    mutant_b3: B3 => quick_a_slot_is_written_again_only_when_it_has_been_read;
    mutant_b4: B4 => quick_a_slot_is_written_again_only_when_it_has_been_read;
    mutant_w5: W5 => quick_a_sleeping_receiver_is_woken;
    mutant_w6: W6 => quick_a_sleeping_receiver_is_woken;
    mutant_w11: W11 => quick_a_receiver_whose_hint_was_cleared_is_woken;
    mutant_b8: B8 => a_closed_channel_ends_after_its_last_message;
    mutant_b9: B9 => a_closed_channel_ends_after_its_last_message;
    mutant_w7: W7 => sender_and_receiver_sleep_in_turn;
    mutant_of_a_sender_w6: W6 => sender_and_receiver_sleep_in_turn;
    mutant_w10: W10 => quick_a_receiver_whose_hint_was_cleared_is_woken;
    mutant_w8: W8 => quick_a_receiver_that_waits_for_its_descriptor_is_woken;
    mutant_w9: W9 => quick_a_receiver_that_waits_for_its_descriptor_is_woken;
    mutant_y1: Y1 => quick_the_bare_ring_of_the_benchmarks_loses_nothing;
    mutant_y2: Y2 => quick_the_bare_ring_of_the_benchmarks_loses_nothing;
    mutant_y3: Y3 => quick_the_bare_value_of_the_benchmarks_is_never_torn;
    mutant_y4: Y4 => quick_the_bare_value_of_the_benchmarks_is_never_torn;
    mutant_f1: F1 => quick_a_lock_has_one_holder_at_a_time;
    mutant_f2: F2 => quick_a_lock_has_one_holder_at_a_time;
    mutant_j1: J1 => quick_nothing_that_a_newcomer_was_promised_is_overwritten;
    mutant_j2: J2 => quick_a_newcomer_judges_each_message_by_its_own_header;
    mutant_w1: W1 => quick_a_sleeping_receiver_learns_of_its_senders_death;
    mutant_w2: W2 => quick_a_sleeping_receiver_sees_a_notice_where_the_kernel_gives_no_barrier;
    mutant_w3: W3 => quick_what_a_dead_sender_committed_is_received_before_its_death;
    mutant_w4: W4 => quick_a_hang_up_after_the_end_is_not_taken_for_a_death;
}
