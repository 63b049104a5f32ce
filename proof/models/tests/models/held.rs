//! Models of held messages: threads release them in any order while the receiver goes on. The name of a test states what
//! its model shows. The prefix `quick_` marks the models that are run most often.

use corewire_layout::segment::FenceMode::Asymmetric;
use corewire_models::{
    ModelChannel, ModelReceiver, ModelSender, WINDOW_MESSAGE_BYTES, Wait, check_bare, mutants,
    release,
};
use loom::thread::{self, JoinHandle};

/// A receiver of a full ring of two slots, and the ring's sender.
fn full_ring() -> (ModelReceiver, ModelSender) {
    let channel = ModelChannel::small();
    let receiver = channel.first_receiver(0);
    let mut sender = channel.sender();
    sender.send(2, 8, Wait::Spin);
    (receiver, sender)
}

fn sending(mut sender: ModelSender, count: u64, wait: Wait) -> JoinHandle<()> {
    thread::spawn(move || sender.send(count, 8, wait))
}

/// Another thread releases the first message while the receiver passes the second. The sender writes both slots again
/// when both have been read, whichever thread publishes that. Nothing else moves the cursor: if neither thread saw that
/// the other one had finished, the sender would sleep for ever.
fn release_and_pass(wait: Wait) {
    let (mut receiver, sender) = full_ring();
    let held = receiver.hold(Wait::Spin);
    let sending = sending(sender, 2, wait);
    let releasing = thread::spawn(move || release(held));
    receiver.receive_many(1, Wait::Spin);
    releasing.join().unwrap();
    sending.join().unwrap();
    receiver.receive_many(2, Wait::Spin);
}

// Keeps P141.
#[test]
fn quick_a_held_message_is_written_again_only_when_it_has_been_released() {
    check_bare(3, || release_and_pass(Wait::Spin));
}

#[test]
fn quick_a_sender_that_waits_for_a_held_message_is_woken() {
    check_bare(3, || release_and_pass(Wait::Sleep));
}

#[test]
fn two_threads_that_release_at_the_same_time_free_both_slots() {
    check_bare(3, || {
        let (mut receiver, sender) = full_ring();
        let [first, second] = [(), ()].map(|()| receiver.hold(Wait::Spin));
        let sending = sending(sender, 2, Wait::Sleep);
        let releasing = thread::spawn(move || release(second));
        release(first);
        releasing.join().unwrap();
        sending.join().unwrap();
        receiver.receive_many(2, Wait::Spin);
    });
}

/// The first message is released, its slot gets the third, and the receiver holds that, too. Meanwhile another thread
/// releases the second message. It must not take the third message for the first.
#[test]
fn a_message_is_not_taken_for_the_one_a_lap_later() {
    check_bare(3, || {
        let (mut receiver, sender) = full_ring();
        let [first, second] = [(), ()].map(|()| receiver.hold(Wait::Spin));
        let sending = sending(sender, 2, Wait::Sleep);
        let releasing = thread::spawn(move || release(second));
        release(first);
        let third = receiver.hold(Wait::Spin);
        releasing.join().unwrap();
        sending.join().unwrap();
        release(third);
        receiver.receive_many(1, Wait::Spin);
    });
}

/// The receiver is dropped, and the sender sleeps until the message that is still held is released.
#[test]
fn a_held_message_outlives_its_receiver() {
    check_bare(3, || {
        let (mut receiver, sender) = full_ring();
        let held = receiver.hold(Wait::Spin);
        receiver.receive_many(1, Wait::Spin);
        drop(receiver);
        let sending = sending(sender, 2, Wait::Sleep);
        release(held);
        sending.join().unwrap();
    });
}

#[test]
fn payload_in_the_window_is_written_again_only_when_it_has_been_released() {
    check_bare(2, || {
        let channel = ModelChannel::new(8, 1, 1, Asymmetric);
        let mut receiver = channel.first_receiver(0);
        let mut sender = channel.sender();
        sender.send(4, WINDOW_MESSAGE_BYTES, Wait::Spin);
        let held = receiver.hold(Wait::Spin);
        let sending = thread::spawn(move || sender.send(2, WINDOW_MESSAGE_BYTES, Wait::Sleep));
        let releasing = thread::spawn(move || release(held));
        receiver.receive_many(3, Wait::Spin);
        releasing.join().unwrap();
        // Otherwise the cursor is published only after an eighth of the ring.
        receiver.0.publish_cursor();
        sending.join().unwrap();
    });
}

mutants! {
    mutant_h1: H1 => quick_a_held_message_is_written_again_only_when_it_has_been_released;
    mutant_h2: H2 => quick_a_held_message_is_written_again_only_when_it_has_been_released;
    mutant_h3: H3 => quick_a_held_message_is_written_again_only_when_it_has_been_released;
    mutant_h4: H4 => quick_a_held_message_is_written_again_only_when_it_has_been_released;
    mutant_h5: H5 => quick_a_sender_that_waits_for_a_held_message_is_woken;
}
