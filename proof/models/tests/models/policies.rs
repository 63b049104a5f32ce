//! Models of channels that do not wait for slow receivers. A copy that is reported whole is exactly
//! one message, and every missed message is counted.

use corewire_layout::segment::FenceMode::Asymmetric;
use corewire_layout::segment::Policy;
use corewire_models::{ModelChannel, WINDOW_MESSAGE_BYTES, Wait, check, check_bare, mutants};
use corewire_ring::broadcast::End;
use loom::thread;

const EVICT_AT_ONCE: Policy = Policy::Evict { after_ns: 0 };

/// Runs the sender in a separate thread while this thread copies. Every message is either copied or
/// counted as missed.
fn overwrite(channel: ModelChannel, messages: u64, bytes: usize, wait: Wait) {
    let channel = channel.with_policy(Policy::Overwrite);
    let mut receiver = channel.first_receiver(0);
    let mut sender = channel.sender();
    let sending = thread::spawn(move || {
        sender.send(messages, bytes, Wait::Spin);
        sender.close();
    });
    let (copied, end) = receiver.copy_all(wait);
    assert_eq!((copied + receiver.0.missed(), end), (messages, End::Closed));
    sending.join().unwrap();
}

// Keeps P44.
#[test]
fn quick_an_inline_copy_is_one_message_or_none() {
    check_bare(3, || overwrite(ModelChannel::small(), 4, 16, Wait::Spin));
}

#[test]
fn quick_a_copy_from_the_window_is_one_message_or_none() {
    check_bare(2, || {
        let channel = ModelChannel::new(8, 1, 1, Asymmetric);
        overwrite(channel, 6, WINDOW_MESSAGE_BYTES, Wait::Spin);
    });
}

#[test]
fn a_sleeping_receiver_of_a_channel_that_overwrites_is_woken() {
    check(2, || overwrite(ModelChannel::small(), 3, 8, Wait::Sleep));
}

/// A receiver that may be evicted at any moment. What it copies before that is whole and in order;
/// then it learns that it was evicted.
fn evict(channel: ModelChannel, messages: u64, bytes: usize) {
    let channel = channel.with_policy(EVICT_AT_ONCE);
    let mut receiver = channel.first_receiver(0);
    let mut sender = channel.sender();
    let sending = thread::spawn(move || {
        sender.send(messages, bytes, Wait::Spin);
        sender.close();
    });
    let (copied, end) = receiver.copy_all(Wait::Spin);
    assert!(end == End::Evicted || copied == messages, "assertion: {copied} of {messages}");
    assert_eq!((copied, receiver.0.missed()), (receiver.0.next(), 0));
    sending.join().unwrap();
}

// Keeps P46.
#[test]
fn quick_a_copy_of_an_evicted_receiver_is_whole_or_refused() {
    check_bare(3, || evict(ModelChannel::small(), 4, 16));
}

#[test]
fn a_copy_from_the_window_of_an_evicted_receiver_is_whole_or_refused() {
    check_bare(2, || evict(ModelChannel::new(8, 1, 1, Asymmetric), 6, WINDOW_MESSAGE_BYTES));
}

#[test]
fn a_row_whose_receiver_was_evicted_is_not_taken_for_its_successors() {
    check_bare(2, || {
        let channel = ModelChannel::small().with_policy(EVICT_AT_ONCE);
        let mut evicted = channel.first_receiver(0);
        let mut sender = channel.sender();
        let control = channel.clone();
        let sending = thread::spawn(move || {
            sender.send(3, 8, Wait::Spin);
            control.leave(0);
            control.renew(0);
            let mut second = control.first_receiver(0);
            sender.send(1, 8, Wait::Spin);
            sender.close();
            assert_eq!(second.copy_all(Wait::Spin), (1, End::Closed));
        });
        let (copied, end) = evicted.copy_all(Wait::Spin);
        assert!(copied <= 3, "assertion");
        assert!(end == End::Evicted || copied == 3, "assertion: {copied}, {end:?}");
        sending.join().unwrap();
    });
}

mutants! {
    mutant_o1: O1 => quick_an_inline_copy_is_one_message_or_none;
    mutant_o2: O2 => quick_an_inline_copy_is_one_message_or_none;
    mutant_e1: E1 => quick_a_copy_of_an_evicted_receiver_is_whole_or_refused;
    mutant_e2: E2 => quick_a_copy_of_an_evicted_receiver_is_whole_or_refused;
}
