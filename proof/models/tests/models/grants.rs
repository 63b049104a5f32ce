//! Models of messages that stay in their sender's heap while they are read: a block is not written again before it was
//! released, by whatever thread, and a sender that waits for that is woken.

use corewire_layout::segment::FenceMode::{Asymmetric, Fenced};
use corewire_models::pairs::{Wait, bytes_of, receive_in_place, send_in_place, two_with_grants};
use corewire_models::{check_bare, mutants};
use corewire_ring::message::Held;
use loom::thread;

/// More than fits in slots would take memory that loom tracks; the path is the same.
const LENGTH: usize = 60;
/// Room for one such message.
const ONE: u64 = 64;

fn read(held: Held, number: u64) {
    assert_eq!(*held, bytes_of(number, LENGTH)[..], "message {number} is torn");
    drop(held);
}

#[test]
fn quick_a_block_is_written_again_after_its_release() {
    check_bare(2, || {
        let (_a, mut from, _b, mut to) = two_with_grants(Asymmetric, ONE);
        let sender = thread::spawn(move || {
            for number in 0..2 {
                send_in_place(&mut from, 0, number, LENGTH, Wait::Spin);
            }
        });
        for number in 0..2 {
            read(receive_in_place(&mut to, number), number);
        }
        sender.join().unwrap();
    });
}

// Keeps P130.
#[test]
fn two_blocks_are_released_in_any_order() {
    check_bare(2, || {
        let (_a, mut from, _b, mut to) = two_with_grants(Asymmetric, 2 * ONE);
        let sender = thread::spawn(move || {
            for number in 0..3 {
                send_in_place(&mut from, 0, number, LENGTH, Wait::Spin);
            }
        });
        let first = receive_in_place(&mut to, 0);
        let second = receive_in_place(&mut to, 1);
        let other = thread::spawn(move || read(first, 0));
        read(second, 1);
        read(receive_in_place(&mut to, 2), 2);
        other.join().unwrap();
        sender.join().unwrap();
    });
}

fn is_woken(fence_mode: corewire_layout::segment::FenceMode) {
    check_bare(2, move || {
        let (_a, mut from, _b, mut to) = two_with_grants(fence_mode, ONE);
        send_in_place(&mut from, 0, 0, LENGTH, Wait::Spin);
        let held = receive_in_place(&mut to, 0);
        let sender = thread::spawn(move || send_in_place(&mut from, 0, 1, LENGTH, Wait::Sleep));
        read(held, 0);
        sender.join().unwrap();
    });
}

// Keeps P132.
#[test]
fn quick_a_sender_that_waits_is_woken_by_a_release() {
    is_woken(Asymmetric);
}

#[test]
fn a_sender_that_waits_is_woken_where_everyone_fences() {
    is_woken(Fenced);
}

mutants! {
    mutant_g1: G1 => quick_a_block_is_written_again_after_its_release;
    mutant_g2: G2 => quick_a_block_is_written_again_after_its_release;
    mutant_w7_of_a_release: W7 => quick_a_sender_that_waits_is_woken_by_a_release;
}
