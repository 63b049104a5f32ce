//! Models of large messages: offers that are taken back, and copies from both ends. The bytes of a message are words
//! that loom tracks; the kernel, which copies them between processes, orders nothing.

use std::sync::Arc;

use corewire_layout::segment::FenceMode::Asymmetric;
use corewire_models::pairs::{two, warm_up};
use corewire_models::{check, check_bare, mutants};
use corewire_ring::message::{Envelope, Space};
use corewire_ring::pair::{Claim, Helper, Puller};
use corewire_ring::sync::pause;
use loom::cell::UnsafeCell;
use loom::sync::atomic::AtomicU64;
use loom::sync::atomic::Ordering::Relaxed;
use loom::thread;

/// Where a message goes: a chunk is written by one side, and read when all is there.
struct Target(Vec<UnsafeCell<u64>>);

// SAFETY: loom reports accesses to a chunk that the protocol does not order.
unsafe impl Sync for Target {}
// SAFETY: as for Sync.
unsafe impl Send for Target {}

impl Target {
    fn new(chunks: u32) -> Arc<Self> {
        Arc::new(Self((0..chunks).map(|_| UnsafeCell::new(0)).collect()))
    }

    fn write(&self, chunk: u32) {
        self.0[chunk as usize].with_mut(|value| {
            // SAFETY: loom runs one thread at a time.
            unsafe { *value += 1 };
        });
    }

    fn check(&self) {
        for chunk in &self.0 {
            // SAFETY: as above.
            chunk.with(|value| assert_eq!(unsafe { *value }, 1, "assertion: copied once"));
        }
    }
}

fn pull(mut puller: Puller, target: &Target, at_a_time: u32) {
    loop {
        match puller.claim(at_a_time) {
            Claim::Chunks(chunks) => chunks.for_each(|chunk| target.write(chunk)),
            Claim::Busy => pause(),
            Claim::Over => return target.check(),
        }
    }
}

fn help(mut helper: Helper, target: &Target) {
    while let Some(chunk) = helper.claim() {
        target.write(chunk.into());
        helper.finish();
    }
}

fn both(chunks: u16, at_a_time: u32) {
    let (_a, mut from, _b, to) = two(Asymmetric);
    let target = Target::new(chunks.into());
    let number = from.make_offer(0).unwrap();
    let mut puller = to.puller(0, number, chunks).unwrap();
    puller.invite();
    assert!(puller.begin());
    let helper = from.helper(0, number, chunks).unwrap();
    let sender = thread::spawn({
        let target = Arc::clone(&target);
        move || help(helper, &target)
    });
    pull(puller, &target, at_a_time);
    sender.join().unwrap();
}

// Keeps P116.
#[test]
fn quick_every_chunk_is_copied_once_and_seen() {
    check_bare(3, || both(2, 1));
}

#[test]
fn three_chunks_are_copied_once() {
    check_bare(2, || both(3, 1));
}

#[test]
fn a_claim_of_several_chunks_gives_way() {
    check_bare(2, || both(3, 2));
}

#[test]
fn quick_a_target_that_is_closed_is_written_no_more() {
    check_bare(3, || {
        let (_a, mut from, _b, to) = two(Asymmetric);
        let target = Target::new(2);
        let number = from.make_offer(0).unwrap();
        let mut puller = to.puller(0, number, 2).unwrap();
        puller.invite();
        assert!(puller.begin());
        let helper = from.helper(0, number, 2).unwrap();
        let sender = thread::spawn({
            let target = Arc::clone(&target);
            move || help(helper, &target)
        });
        while puller.close() == Claim::Busy {
            pause();
        }
        // The memory is freed: loom reports a helper that still writes there.
        target.write(0);
        target.write(1);
        sender.join().unwrap();
    });
}

#[test]
fn quick_a_sender_that_gives_up_leaves_its_chunk() {
    check_bare(2, || {
        let (_a, mut from, _b, to) = two(Asymmetric);
        let target = Target::new(2);
        let number = from.make_offer(0).unwrap();
        let mut puller = to.puller(0, number, 2).unwrap();
        puller.invite();
        assert!(puller.begin());
        let mut helper = from.helper(0, number, 2).unwrap();
        let sender = thread::spawn(move || {
            if helper.claim().is_some() {
                helper.give_up();
            }
            assert_eq!(helper.claim(), None);
        });
        pull(puller, &target, 1);
        sender.join().unwrap();
    });
}

// Keeps P113.
#[test]
fn quick_an_offer_is_taken_back_or_begun() {
    check_bare(4, || {
        let (_a, mut from, _b, to) = two(Asymmetric);
        let number = from.make_offer(0).unwrap();
        let mut puller = to.puller(0, number, 1).unwrap();
        let receiver = thread::spawn(move || puller.begin());
        let is_unsent = from.withdraw_offer(0, number);
        let has_begun = receiver.join().unwrap();
        assert!(!(is_unsent && has_begun), "assertion: both think that it is theirs");
    });
}

// Keeps P113.
#[test]
fn quick_what_is_read_of_an_offer_that_has_ended_is_not_the_message() {
    check_bare(4, || {
        let (_a, mut from, _b, to) = two(Asymmetric);
        let bytes = Arc::new([AtomicU64::new(7), AtomicU64::new(7)]);
        let number = from.make_offer(0).unwrap();
        let mut puller = to.puller(0, number, 1).unwrap();
        assert!(puller.begin());
        let sender = thread::spawn({
            let bytes = Arc::clone(&bytes);
            move || {
                from.end_offer(number);
                // The memory is its owner's again.
                bytes.iter().for_each(|byte| byte.store(0, Relaxed));
            }
        });
        let found: Vec<u64> = bytes.iter().map(|byte| byte.load(Relaxed)).collect();
        if puller.is_valid() {
            assert_eq!(found, [7, 7], "assertion: torn");
        }
        sender.join().unwrap();
    });
}

#[test]
fn a_word_that_is_used_again_makes_no_old_offer_valid() {
    check_bare(3, || {
        let (_a, mut from, _b, to) = two(Asymmetric);
        let bytes = Arc::new(AtomicU64::new(7));
        let number = from.make_offer(0).unwrap();
        let mut puller = to.puller(0, number, 1).unwrap();
        let sender = thread::spawn({
            let bytes = Arc::clone(&bytes);
            move || {
                from.withdraw_offer(0, number);
                bytes.store(8, Relaxed);
                assert_ne!(from.make_offer(0), Some(number));
            }
        });
        if puller.begin() {
            let found = bytes.load(Relaxed);
            assert!(!puller.is_valid() || found == 7, "assertion: another message");
        }
        sender.join().unwrap();
    });
}

/// The sender of a large message does nothing else: it sleeps until its receiver says that it has the message.
#[test]
fn quick_a_sender_that_sleeps_until_its_message_is_copied_is_woken() {
    check(3, || {
        let (_a, mut from, _b, mut to) = two(Asymmetric);
        // The notice comes through a pair that the sender polls.
        warm_up(&mut to, &mut from, 0);
        let number = from.make_offer(0).unwrap();
        let mut puller = to.puller(0, number, 1).unwrap();
        assert!(puller.begin());
        let receiver = thread::spawn(move || {
            assert_eq!(puller.claim(1), Claim::Chunks(0..1));
            assert!(puller.is_valid(), "assertion: nobody has ended it");
            let done = Envelope::numbered(Space::Notice, number);
            assert!(to.try_send_beside(0, &done, &[2; 16]), "there is room");
            to
        });
        let arrival = loop {
            if let Some(row) = from.poll()
                && let Some(arrival) = from.arrival(row).expect("own memory")
            {
                break arrival;
            }
            from.sleep(u64::MAX, None);
        };
        assert_eq!((arrival.envelope.space, arrival.envelope.tag), (Space::Notice, number));
        from.end_offer(number);
        receiver.join().unwrap();
    });
}

mutants! {
    mutant_l5_of_a_cancel: L5 => quick_a_target_that_is_closed_is_written_no_more;
    mutant_l6_of_a_cancel: L6 => quick_a_target_that_is_closed_is_written_no_more;
    mutant_l7_of_a_cancel: L7 => quick_a_target_that_is_closed_is_written_no_more;
    mutant_l8_of_a_cancel: L8 => quick_a_target_that_is_closed_is_written_no_more;
    mutant_w6_of_a_notice: W6 => quick_a_sender_that_sleeps_until_its_message_is_copied_is_woken;
    mutant_l1: L1 => quick_an_offer_is_taken_back_or_begun;
    mutant_l2: L2 => quick_an_offer_is_taken_back_or_begun;
    mutant_l3: L3 => quick_what_is_read_of_an_offer_that_has_ended_is_not_the_message;
    mutant_l4: L4 => quick_what_is_read_of_an_offer_that_has_ended_is_not_the_message;
    mutant_l5: L5 => quick_every_chunk_is_copied_once_and_seen;
    mutant_l6: L6 => quick_every_chunk_is_copied_once_and_seen;
    mutant_l7: L7 => quick_every_chunk_is_copied_once_and_seen;
    mutant_l8: L8 => quick_every_chunk_is_copied_once_and_seen;
}
