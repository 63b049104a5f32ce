//! Models of the published rings. A name says what its model shows; `quick_` marks those that are run
//! most often.

#![cfg(loom)]

use corewire_layout::LINE_BYTES;
use corewire_models::{check, mutants};
use corewire_ring::published::{
    BarrelfishMp, Flow, UMP_BYTES, Ump, Zimp, ZimpReceiver, ZimpSender,
};
use corewire_ring::region::Region;
use loom::thread;

/// A ring for one receiver and messages of 8 bytes.
fn zimp(entries: u32) -> Zimp {
    let first = 3 * LINE_BYTES;
    let bitmaps = (0..entries as usize).map(|entry| first + 2 * entry * LINE_BYTES);
    let mut words = vec![LINE_BYTES..LINE_BYTES + 8];
    words.extend(bitmaps.clone().flat_map(|at| {
        let end = at + 2 * LINE_BYTES;
        [at..at + 8, end - 8..end]
    }));
    let cells = bitmaps.clone().map(|at| at + LINE_BYTES..at + 2 * LINE_BYTES - 8).collect();
    let turns = bitmaps.map(|at| at + LINE_BYTES - 8..at + LINE_BYTES - 4);
    let lock_and_next_read = [0..4, 2 * LINE_BYTES..2 * LINE_BYTES + 4];
    let words32 = lock_and_next_read.into_iter().chain(turns).collect();
    let memory = Region::model(Zimp::bytes(entries, 1, 8), words, words32, cells);
    Zimp::new(&memory, entries, 1, 8)
}

fn send(sender: &mut ZimpSender, message: u64) {
    loop {
        if let Some(mut entry) = sender.try_claim(thread::yield_now) {
            entry.bytes_mut().copy_from_slice(&message.to_le_bytes());
            return entry.send(8);
        }
        thread::yield_now();
    }
}

fn receive(receiver: &mut ZimpReceiver) -> u64 {
    loop {
        match receiver.try_receive(|message| u64::from_le_bytes(message.try_into().unwrap())) {
            Some(message) => return message,
            None => thread::yield_now(),
        }
    }
}

#[test]
fn quick_zimp_writes_an_entry_again_only_when_it_has_been_read() {
    check(3, || {
        let ring = zimp(1);
        let mut sender = ring.sender();
        let mut receiver = ring.receiver(0);
        let sending = thread::spawn(move || (1..=2).for_each(|number| send(&mut sender, number)));
        assert_eq!([receive(&mut receiver), receive(&mut receiver)], [1, 2]);
        sending.join().unwrap();
    });
}

#[test]
fn quick_zimp_gives_each_sender_an_entry_of_its_own() {
    check(2, || two_senders(2));
}

#[test]
fn quick_zimp_lets_no_sender_write_an_entry_out_of_turn() {
    check(2, || two_senders(1));
}

/// Each sends one message; one of them receives both, and waits for nothing else meanwhile.
fn two_senders(entries: u32) {
    let ring = zimp(entries);
    let (mut one, mut other) = (ring.sender(), ring.sender());
    let mut receiver = ring.receiver(0);
    let sending = thread::spawn(move || send(&mut one, 1));
    let mut is_sent = false;
    let mut received = vec![];
    while received.len() < 2 {
        if !is_sent && let Some(mut entry) = other.try_claim(thread::yield_now) {
            entry.bytes_mut().copy_from_slice(&2u64.to_le_bytes());
            entry.send(8);
            is_sent = true;
        }
        match receiver.try_receive(|message| u64::from_le_bytes(message.try_into().unwrap())) {
            Some(message) => received.push(message),
            None => thread::yield_now(),
        }
    }
    received.sort_unstable();
    assert_eq!(received, [1, 2]);
    sending.join().unwrap();
}

/// Two slots each way.
fn ump(flow: Flow) -> Ump {
    let lines = (0..4).map(|line| line * LINE_BYTES);
    let words = lines.clone().map(|at| at + UMP_BYTES..at + LINE_BYTES).collect();
    let cells = lines.take(2).map(|at| at..at + UMP_BYTES).collect();
    Ump::new(&Region::model(Ump::bytes(2), words, vec![], cells), 2, flow)
}

/// Three messages through two slots.
fn through_ump(flow: Flow) {
    let ring = ump(flow);
    let (mut sender, mut receiver) = (ring.sender(), ring.receiver());
    let sending = thread::spawn(move || {
        for number in 1u64..=3 {
            while !sender.try_send(&number.to_le_bytes()) {
                thread::yield_now();
            }
        }
    });
    for number in 1u64..=3 {
        let mut message = [0; UMP_BYTES];
        while receiver.try_receive(&mut message).is_none() {
            thread::yield_now();
        }
        assert_eq!(message[..8], number.to_le_bytes());
    }
    sending.join().unwrap();
}

#[test]
fn quick_ump_writes_a_slot_again_only_when_its_bit_is_cleared() {
    check(3, || through_ump(Flow::Used));
}

#[test]
fn quick_ump_writes_a_slot_again_only_when_it_is_acknowledged() {
    check(3, || through_ump(Flow::Acked));
}

/// Three messages through one slot.
#[test]
fn quick_barrelfish_mp_writes_a_slot_again_only_when_it_is_acknowledged() {
    check(3, || {
        let words = vec![0..8, 2 * LINE_BYTES - 8..2 * LINE_BYTES];
        let message = LINE_BYTES..2 * LINE_BYTES - 8;
        let memory = Region::model(BarrelfishMp::bytes(1, 8), words, vec![], vec![message]);
        let ring = BarrelfishMp::new(&memory, 1, 8);
        let (mut sender, mut receiver) = (ring.sender(), ring.receiver());
        let sending = thread::spawn(move || {
            for number in 1u64..=3 {
                while !sender.try_send(&number.to_le_bytes()) {
                    thread::yield_now();
                }
            }
        });
        for number in 1u64..=3 {
            let mut message = [0; 8];
            while !receiver.try_receive(&mut message) {
                thread::yield_now();
            }
            assert_eq!(message, number.to_le_bytes());
        }
        sending.join().unwrap();
    });
}

mutants! {
    mutant_u7: U7 => quick_barrelfish_mp_writes_a_slot_again_only_when_it_is_acknowledged;
    mutant_u8: U8 => quick_barrelfish_mp_writes_a_slot_again_only_when_it_is_acknowledged;
    mutant_u9: U9 => quick_barrelfish_mp_writes_a_slot_again_only_when_it_is_acknowledged;
    mutant_u10: U10 => quick_barrelfish_mp_writes_a_slot_again_only_when_it_is_acknowledged;
    mutant_u1: U1 => quick_ump_writes_a_slot_again_only_when_its_bit_is_cleared;
    mutant_u2: U2 => quick_ump_writes_a_slot_again_only_when_its_bit_is_cleared;
    mutant_u3: U3 => quick_ump_writes_a_slot_again_only_when_its_bit_is_cleared;
    mutant_u4: U4 => quick_ump_writes_a_slot_again_only_when_its_bit_is_cleared;
    mutant_u5: U5 => quick_ump_writes_a_slot_again_only_when_it_is_acknowledged;
    mutant_u6: U6 => quick_ump_writes_a_slot_again_only_when_it_is_acknowledged;
    mutant_z1: Z1 => quick_zimp_gives_each_sender_an_entry_of_its_own;
    mutant_z2: Z2 => quick_zimp_gives_each_sender_an_entry_of_its_own;
    mutant_z3: Z3 => quick_zimp_writes_an_entry_again_only_when_it_has_been_read;
    mutant_z4: Z4 => quick_zimp_writes_an_entry_again_only_when_it_has_been_read;
    mutant_z5: Z5 => quick_zimp_writes_an_entry_again_only_when_it_has_been_read;
    mutant_z7: Z7 => quick_zimp_lets_no_sender_write_an_entry_out_of_turn;
    mutant_z8: Z8 => quick_zimp_lets_no_sender_write_an_entry_out_of_turn;
    mutant_z6: Z6 => quick_zimp_writes_an_entry_again_only_when_it_has_been_read;
}
