//! Models of the ring of several senders. The name of a test states what its model shows. The
//! prefix `quick_` marks the models that are run most often.

use corewire_layout::segment::Policy;
use corewire_models::shared::{Look, ModelShared, SharedSender, assert_order};
use corewire_models::{WINDOW_MESSAGE_BYTES, Wait, check, check_bare, mutants};
use corewire_ring::broadcast::End;
use corewire_ring::doorbell::SLEEP_CAP_NS;
use corewire_ring::shared::{Entrance, Party};
use corewire_ring::sync::Ordering::Relaxed;
use loom::thread::{self, JoinHandle};

const EVICT_AT_ONCE: Policy = Policy::Evict { after_ns: 0 };
/// Two words, so that a torn copy can be half of one message and half of another.
const BYTES: usize = 16;

/// Sends in a separate thread. The sender already knows its limit.
fn sending(mut sender: SharedSender, count: u32, bytes: usize, wait: Wait) -> JoinHandle<()> {
    sender.sender.refresh();
    thread::spawn(move || sender.send(count, bytes, wait))
}

fn two_senders(bytes: usize, counts: [u8; 2], look: Look, wait: Wait) {
    let channel = ModelShared::new(1);
    let mut receiver = channel.receiver();
    let [first, second] = [0, 1].map(|name| channel.sender(name));
    let first = sending(first, counts[0].into(), bytes, wait);
    let second = sending(second, counts[1].into(), bytes, wait);
    let all = receiver.receive_many(usize::from(counts[0] + counts[1]), look);
    assert_order(&all, counts);
    first.join().unwrap();
    second.join().unwrap();
}

#[test]
fn quick_a_message_of_each_sender_is_whole_when_its_stamp_is_seen() {
    check_bare(3, || two_senders(BYTES, [1, 1], Look::AtStamp, Wait::Spin));
}

#[test]
fn the_windows_of_both_senders_are_whole_when_the_stamps_are_seen() {
    check_bare(2, || two_senders(WINDOW_MESSAGE_BYTES, [2, 1], Look::AtStamp, Wait::Spin));
}

/// All slots but one are in use. One of two senders takes that slot; the other waits for the
/// receiver.
#[test]
fn quick_a_slot_is_claimed_again_only_when_it_has_been_read() {
    check_bare(2, || {
        let channel = ModelShared::new(1);
        let mut receiver = channel.receiver();
        let [mut first, second] = [0, 1].map(|name| channel.sender(name));
        first.send(3, BYTES, Wait::Spin);
        let first = sending(first, 1, BYTES, Wait::Spin);
        let second = sending(second, 1, BYTES, Wait::Spin);
        let mut all = receiver.receive_ready(2);
        first.join().unwrap();
        second.join().unwrap();
        all.extend(receiver.receive_ready(9));
        assert_order(&all, [4, 1]);
    });
}

#[test]
fn a_sleeping_receiver_is_woken_by_either_sender() {
    check(2, || two_senders(BYTES, [1, 1], Look::Asleep, Wait::Spin));
}

#[test]
fn two_receivers_get_two_senders_messages_in_one_order() {
    check_bare(2, || {
        let channel = ModelShared::new(2);
        let [mut first, mut second] = [channel.receiver(), channel.receiver()];
        let [one, other] = [0, 1].map(|name| channel.sender(name));
        let senders = [one, other].map(|sender| sending(sender, 1, BYTES, Wait::Spin));
        let receiving = thread::spawn(move || {
            let early = first.receive_ready(2);
            (first, early)
        });
        let order = second.receive_many(2, Look::AtStamp);
        assert_order(&order, [1, 1]);
        let (mut first, mut early) = receiving.join().unwrap();
        early.extend(first.receive_ready(2));
        assert_eq!(early, order, "two orders");
        for sender in senders {
            sender.join().unwrap();
        }
    });
}

/// Nobody receives. Only the stamps keep a sender from writing a slot that another sender still
/// fills.
#[test]
fn quick_a_slot_is_claimed_again_only_when_it_has_been_filled() {
    check_bare(2, || {
        let channel = ModelShared::new(1);
        let mut first = channel.sender(0);
        first.send(3, BYTES, Wait::Spin);
        let mut second = channel.sender(1);
        let first = sending(first, 1, BYTES, Wait::Spin);
        second.send_run(BYTES, Wait::Spin);
        second.send_run(BYTES, Wait::Spin);
        first.join().unwrap();
    });
}

/// The same for a run. Its first message is published before its last, and only the first stamp
/// tells that the run has more slots.
#[test]
fn quick_the_lap_after_a_run_waits_for_all_of_it() {
    check_bare(2, || {
        let channel = ModelShared::new(1);
        let [mut first, mut second] = [0, 1].map(|name| channel.sender(name));
        first.sender.refresh();
        let running = thread::spawn(move || first.send_run(BYTES, Wait::Spin));
        second.send_run(BYTES, Wait::Spin);
        second.send_run(BYTES, Wait::Spin);
        running.join().unwrap();
    });
}

/// A new sender finds the end of the ring from a stamp that the second sender stored above the
/// first sender's claim. It never reads the stamp of that claim. Its run reaches that slot in the
/// next lap, and the new sender must not mistake an older stamp there for the slot's last one.
#[test]
fn quick_one_who_comes_sees_every_claim_below_its_own() {
    check_bare(2, || {
        let channel = ModelShared::of_many(1, 3);
        let [mut first, mut second] = [0, 1].map(|name| channel.sender(name));
        first.send(3, BYTES, Wait::Spin);
        second.send(1, BYTES, Wait::Spin);
        first.sender.refresh();
        second.sender.refresh();
        let host = channel.clone();
        let coming = thread::spawn(move || {
            let mut third = host.sender(2);
            third.try_send(1, BYTES);
            third.try_run(BYTES);
        });
        // The model is about what the third sender sees of the first two, not about what they see
        // of each other.
        first.try_claim(BYTES);
        second.try_claim(BYTES);
        coming.join().unwrap();
    });
}

/// A run among other messages: it is received in one piece, and the ring wraps around over it.
fn run(before: u32, after: u32) {
    let channel = ModelShared::new(1);
    let mut receiver = channel.receiver();
    let [mut first, mut second] = [0, 1].map(|name| channel.sender(name));
    second.send(before, BYTES, Wait::Spin);
    // Receiving them makes room for all messages that follow.
    let mut all = receiver.receive_ready(before as usize);
    first.sender.refresh();
    let running = thread::spawn(move || first.send_run(BYTES, Wait::Spin));
    let second = sending(second, after, BYTES, Wait::Spin);
    all.extend(receiver.receive_many((after + 2) as usize, Look::AtStamp));
    assert_order(&all, [2, u8::try_from(before + after).unwrap()]);
    let at = all.iter().position(|mark| mark.0 == 0).unwrap();
    assert_eq!(all[at + 1].0, 0, "assertion: the run was parted");
    running.join().unwrap();
    second.join().unwrap();
}

#[test]
fn quick_a_run_is_received_whole() {
    check_bare(2, || run(0, 1));
}

#[test]
fn a_run_that_crosses_the_rings_end_is_received_whole() {
    check_bare(2, || run(3, 1));
}

/// A sender leaves after its last message. A receiver that finds no sender left finds that message
/// first.
#[test]
fn quick_a_channel_ends_after_its_last_message() {
    check_bare(3, || {
        let channel = ModelShared::new(1);
        let mut receiver = channel.receiver();
        let mut sender = channel.sender(0);
        sender.sender.refresh();
        let sending = thread::spawn(move || {
            sender.send(1, BYTES, Wait::Spin);
            sender.leave();
        });
        assert_eq!(receiver.receive_all(Look::AtEnd), (vec![(0, 0)], End::Closed));
        sending.join().unwrap();
    });
}

#[test]
fn a_sleeping_receiver_is_woken_when_the_last_sender_leaves() {
    check(2, || {
        let channel = ModelShared::new(1);
        let mut receiver = channel.receiver();
        let sender = channel.sender(0);
        let leaving = thread::spawn(move || sender.leave());
        assert_eq!(receiver.receive_all(Look::Asleep), (vec![], End::Closed));
        leaving.join().unwrap();
    });
}

/// While the receiver checks the two senders' rows, the last sender leaves one row after another
/// sender has entered the other.
#[test]
fn quick_a_sender_that_comes_before_the_last_one_leaves_is_waited_for() {
    check_bare(3, || {
        let channel = ModelShared::new(1);
        let mut receiver = channel.receiver();
        let (gone, last) = (channel.sender(0), channel.sender(0));
        gone.leave();
        let host = channel.clone();
        let changing = thread::spawn(move || {
            let mut next = host.sender(1);
            last.leave();
            next.send(1, BYTES, Wait::Spin);
            next.leave();
        });
        assert_eq!(receiver.receive_all(Look::AtEnd), (vec![(1, 0)], End::Closed));
        changing.join().unwrap();
    });
}

/// The sender that has created the channel has invited receivers, which have not joined.
#[test]
fn quick_a_sender_that_is_held_sees_until_when() {
    check_bare(3, || {
        let channel = ModelShared::new(1);
        let host = channel.roster();
        let (first, second) = (channel.sender_by(&host, 0), channel.sender_by(&host, 1));
        let holding = thread::spawn(move || host.hold(first.entrance.row, u64::MAX));
        let is_held = second.roster.ring_words().held().load(Relaxed) != 0;
        assert!(!is_held || second.sender.is_held());
        holding.join().unwrap();
    });
}

/// A sleeping receiver watches every sender for its death. A new sender must wake it so that it is
/// watched too, even if the new sender dies before it sends anything.
#[test]
fn quick_a_sleeping_receiver_is_woken_by_a_sender_that_comes() {
    check(4, || {
        let channel = ModelShared::new(1);
        let who = Entrance { row: 1, generation: 1 };
        let mut receiver = channel.receiver_that_finds_dead(Some(who));
        let _idle = channel.sender(0);
        let host = channel.clone();
        let coming = thread::spawn(move || host.sender(1).die());
        while !receiver.knows_dead(who) {
            receiver.0.sleep(SLEEP_CAP_NS);
        }
        assert_eq!(coming.join().unwrap(), who);
    });
}

#[test]
fn a_receiver_that_waits_for_its_descriptor_is_woken_by_either_sender() {
    check(2, || {
        let channel = ModelShared::new(1);
        let mut receiver = channel.receiver();
        let senders = [0, 1].map(|name| sending(channel.sender(name), 1, BYTES, Wait::Spin));
        for _ in 0..2 {
            while !receiver.0.is_ready() {
                assert_eq!(receiver.0.end(), Ok(None));
                if receiver.0.arm() {
                    channel.kernel.wait_descriptor(0);
                    receiver.0.retract();
                }
            }
            receiver.receive(Look::AtStamp).unwrap();
        }
        for sender in senders {
            sender.join().unwrap();
        }
    });
}

/// The ring is full, and both receivers hold the sender back.
#[test]
fn quick_a_sender_that_waits_for_room_is_woken_by_either_receiver() {
    check_bare(2, || {
        let channel = ModelShared::new(2);
        let receivers = [channel.receiver(), channel.receiver()];
        let mut sender = channel.sender(0);
        sender.send(4, BYTES, Wait::Spin);
        let receiving = receivers.map(|mut receiver| {
            thread::spawn(move || assert_eq!(receiver.receive_ready(1).len(), 1))
        });
        sender.send(1, BYTES, Wait::Sleep);
        for thread in receiving {
            thread.join().unwrap();
        }
    });
}

#[test]
fn a_sender_that_waits_for_room_is_woken_when_the_last_receiver_leaves() {
    check_bare(3, || {
        let channel = ModelShared::new(1);
        let receiver = channel.receiver();
        let mut sender = channel.sender(0);
        sender.send(4, BYTES, Wait::Spin);
        let leaving = thread::spawn(move || receiver.0.leave());
        sender.send(1, BYTES, Wait::Sleep);
        leaving.join().unwrap();
    });
}

/// A sender may have to wait for a slot that another sender claimed in the lap before and is still
/// filling.
fn wait_for_a_stamp(channel: &ModelShared) {
    let [first, mut second] = [0, 1].map(|name| channel.sender(name));
    second.sender.refresh();
    let first = sending(first, 1, BYTES, Wait::Spin);
    second.send_run(BYTES, Wait::Sleep);
    second.send_run(BYTES, Wait::Sleep);
    first.join().unwrap();
}

#[test]
fn a_sender_that_waits_for_anothers_claim_is_woken() {
    check(2, || wait_for_a_stamp(&ModelShared::new(1)));
}

#[test]
fn a_sender_that_waits_for_anothers_claim_is_woken_where_the_kernel_gives_no_barrier() {
    check(2, || wait_for_a_stamp(&ModelShared::new(1).fenced()));
}

/// A receiver joins while two senders send and give up where there is no room. When they are done,
/// every message from the receiver's first one on is still there. The model is about what each
/// sender sees of the new receiver, not about what the senders see of each other, so both run in
/// one thread.
#[test]
fn quick_nothing_that_a_newcomer_was_promised_is_overwritten() {
    check_bare(2, || {
        let channel = ModelShared::new(1);
        let [mut first, mut second] = [0, 1].map(|name| channel.sender(name));
        first.sender.refresh();
        second.sender.refresh();
        let sending = thread::spawn(move || {
            first.try_send(3, BYTES);
            second.try_send(2, BYTES);
            first.sender.sent() + second.sender.sent()
        });
        let mut receiver = channel.receiver();
        let start = receiver.0.next();
        let sent = sending.join().unwrap();
        let received = receiver.receive_ready(9).len() as u64;
        assert_eq!(start + received, sent, "assertion: nothing promised is overwritten");
    });
}

/// The same with a thread for each sender. Here neither learns from the other's fences. With preemptions
/// the search would take hours, so it has none: it explores what each sender's loads may return.
#[test]
fn nothing_that_a_newcomer_was_promised_is_overwritten_by_two() {
    check_bare(0, || {
        let channel = ModelShared::new(1);
        let senders = [(0, 3), (1, 2)].map(|(name, count)| {
            let mut sender = channel.sender(name);
            sender.sender.refresh();
            thread::spawn(move || {
                sender.try_send(count, BYTES);
                sender.sender.sent()
            })
        });
        let mut receiver = channel.receiver();
        let start = receiver.0.next();
        let sent: u64 = senders.map(|sender| sender.join().unwrap()).iter().sum();
        let received = receiver.receive_ready(9).len() as u64;
        assert_eq!(start + received, sent, "assertion: nothing promised is overwritten");
    });
}

/// One sender evicts a receiver. The other sender finds it evicted and overwrites what it is
/// copying.
#[test]
fn a_copy_of_a_receiver_that_another_sender_evicted_is_whole_or_refused() {
    check_bare(2, || {
        let channel = ModelShared::new(1).with_policy(EVICT_AT_ONCE);
        let mut receiver = channel.receiver();
        let [mut first, mut second] = [0, 1].map(|name| channel.sender(name));
        first.send(4, BYTES, Wait::Spin);
        second.evicts = false;
        let evicting = thread::spawn(move || {
            first.sender.refresh();
            first.sender.evict_stalled(BYTES, 1);
        });
        let writing = sending(second, 1, BYTES, Wait::Spin);
        let copied = receiver.receive_ready(1);
        assert!(copied.iter().all(|&mark| mark == (0, 0)), "assertion: {copied:?}");
        evicting.join().unwrap();
        writing.join().unwrap();
    });
}

/// A sender dies after it claims and before it publishes. Every party that learns of the death
/// continues.
fn death_in_a_run(run: u64, published: u64, look: Look) {
    let channel = ModelShared::new(1);
    let mut receiver = channel.receiver();
    let [mut dying, mut other] = [0, 1].map(|name| channel.sender(name));
    let obituary = receiver.obituary();
    dying.sender.refresh();
    other.sender.refresh();
    // The kernel reports a death after everything that the dead process did.
    let dying = thread::spawn(move || obituary.tell(dying.die_in_run(run, published, BYTES)));
    let other = thread::spawn(move || {
        other.send(1, BYTES, Wait::Spin);
        other.leave();
    });
    let (all, end) = receiver.receive_all(look);
    let published = u8::try_from(published).unwrap();
    assert_order(&all, [published, 1]);
    assert_eq!(end, End::SenderGone);
    dying.join().unwrap();
    other.join().unwrap();
}

#[test]
fn what_a_dead_sender_claimed_is_passed() {
    check_bare(1, || death_in_a_run(1, 0, Look::AtEnd));
}

#[test]
fn what_a_dead_sender_claimed_does_not_keep_a_receiver_asleep() {
    check(1, || death_in_a_run(1, 0, Look::Asleep));
}

#[test]
fn the_rest_of_a_dead_senders_run_is_passed() {
    check_bare(1, || death_in_a_run(2, 1, Look::AtEnd));
}

#[test]
fn quick_what_a_dead_sender_published_is_not_passed() {
    check_bare(3, || {
        let channel = ModelShared::new(1);
        let mut receiver = channel.receiver();
        let mut dying = channel.sender(0);
        let obituary = receiver.obituary();
        dying.sender.refresh();
        let dying = thread::spawn(move || obituary.tell(dying.die_in_run(1, 1, BYTES)));
        assert_eq!(receiver.receive_all(Look::AtEnd), (vec![(0, 0)], End::SenderGone));
        dying.join().unwrap();
    });
}

/// The lap after the claim of a sender that dies: another sender writes that slot once it knows of
/// the death.
#[test]
fn quick_what_a_dead_sender_claimed_is_written_again_after_its_death() {
    check_bare(2, || {
        let channel = ModelShared::new(1);
        let [mut dying, mut other] = [0, 1].map(|name| channel.sender(name));
        let roster = other.roster.clone();
        dying.sender.refresh();
        let dying = thread::spawn(move || {
            roster.record_death(Party::Sender, dying.die_in_run(1, 0, BYTES));
        });
        other.send_run(BYTES, Wait::Spin);
        other.send_run(BYTES, Wait::Spin);
        dying.join().unwrap();
    });
}

/// A dead sender's row has a new holder. Its claims must not be mistaken for those of the dead
/// sender.
#[test]
fn quick_the_claim_of_a_row_that_was_taken_again_is_not_its_last_holders() {
    check_bare(3, || {
        let channel = ModelShared::new(1);
        let mut receiver = channel.receiver();
        let (dead, last) = (channel.sender(0).die(), channel.sender(1));
        let host = channel.roster();
        host.record_death(Party::Sender, dead);
        receiver.obituary().tell(dead);
        let owner = channel.clone();
        let changing = thread::spawn(move || {
            let mut next = owner.sender_by(&host, 0);
            assert_eq!(next.entrance.row, 0);
            next.send(1, BYTES, Wait::Spin);
            next.leave();
            last.leave();
        });
        assert_eq!(receiver.receive_all(Look::AtEnd), (vec![(0, 0)], End::Closed));
        changing.join().unwrap();
    });
}

/// The same when there is only a claim so far: a single check must not pass it.
#[test]
fn quick_a_claim_is_not_passed_for_the_death_of_its_rows_last_holder() {
    check_bare(3, || {
        let channel = ModelShared::new(1);
        let mut receiver = channel.receiver();
        let (dead, _idle) = (channel.sender(0).die(), channel.sender(1));
        let host = channel.roster();
        host.record_death(Party::Sender, dead);
        receiver.obituary().tell(dead);
        let looking = thread::spawn(move || {
            assert_eq!(receiver.0.end(), Ok(None));
            assert_eq!(receiver.0.next(), 0, "assertion: who claimed it is not known to be dead");
        });
        let next = channel.sender_by(&host, 0);
        assert_eq!(next.die_in_run(1, 0, BYTES).row, 0);
        looking.join().unwrap();
    });
}

mutants! {
    mutant_c1: C1 => quick_a_slot_is_claimed_again_only_when_it_has_been_filled;
    mutant_c2: C2 => quick_a_message_of_each_sender_is_whole_when_its_stamp_is_seen;
    mutant_c4: C4 => quick_a_claim_is_not_passed_for_the_death_of_its_rows_last_holder;
    mutant_c5: C5 => quick_one_who_comes_sees_every_claim_below_its_own;
    mutant_d1: D1 => quick_what_a_dead_sender_published_is_not_passed;
    mutant_d2: D2 => quick_what_a_dead_sender_published_is_not_passed;
    mutant_r1: R1 => nothing_that_a_newcomer_was_promised_is_overwritten_by_two;
    mutant_r3: R3 => quick_nothing_that_a_newcomer_was_promised_is_overwritten;
    mutant_r4: R4 => quick_nothing_that_a_newcomer_was_promised_is_overwritten;
    mutant_t1: T1 => quick_a_channel_ends_after_its_last_message;
    mutant_t1_hold: T1 => quick_a_sender_that_is_held_sees_until_when;
    mutant_t2: T2 => quick_a_channel_ends_after_its_last_message;
}
