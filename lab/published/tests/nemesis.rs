//! Nemesis as published: every message arrives whole and in the order of its sender, whichever path
//! it takes.

#![cfg(not(any(loom, corewire_kill)))]

use std::thread;

use corewire_published::rings::{FreeQueue, Nemesis, NemesisOptions};
use corewire_ring::region::Region;

const CELL_BYTES: usize = 96;
const MESSAGES: u64 = if cfg!(miri) { 6 } else { 20_000 };

fn all_options() -> impl Iterator<Item = NemesisOptions> {
    let places = [FreeQueue::Global, FreeQueue::Receiver, FreeQueue::Sender];
    let flags = [(false, false), (true, false), (false, true), (true, true)];
    places.into_iter().flat_map(move |free_queue| {
        flags.map(|(has_shadow_head, has_fastboxes)| NemesisOptions {
            processes: 3,
            cells: 4,
            cell_bytes: CELL_BYTES,
            free_queue,
            has_shadow_head,
            has_fastboxes,
        })
    })
}

/// Three lengths: fits in a line, fits in a cell, needs several cells.
fn message(source: u32, number: u64) -> Vec<u8> {
    let length = [8, CELL_BYTES, 3 * CELL_BYTES + 5][(number % 3) as usize];
    (0u64..).take(length).map(|at| (number + at + u64::from(source)).to_le_bytes()[0]).collect()
}

fn send(process: &mut Nemesis, to: u32, tag: u64, message: &[u8]) {
    for piece in message.chunks(CELL_BYTES) {
        while !process.try_send(to, tag, message.len() as u64, piece) {
            thread::yield_now();
        }
    }
}

#[test]
fn two_senders_are_received_in_their_orders() {
    for options in all_options() {
        let memory = Region::private(options.bytes()).unwrap();
        let mut receiver = Nemesis::new(&memory, options, 0);
        receiver.prepare();
        let senders: Vec<_> = (1..3)
            .map(|index| {
                let mut process = Nemesis::new(&memory, options, index);
                thread::spawn(move || {
                    for number in 0..MESSAGES {
                        send(&mut process, 0, number, &message(index, number));
                    }
                })
            })
            .collect();
        let mut next = [0; 3];
        let mut parts = [const { Vec::new() }; 3];
        while next[1] + next[2] < 2 * MESSAGES {
            let mut target = [0; CELL_BYTES];
            let Some(piece) = receiver.try_receive(None, &mut target) else {
                thread::yield_now();
                continue;
            };
            let source = piece.source as usize;
            parts[source].extend_from_slice(&target[..piece.bytes]);
            if parts[source].len() as u64 == piece.total {
                assert_eq!(piece.tag, next[source], "{options:?}");
                assert_eq!(parts[source], message(piece.source, piece.tag), "{options:?}");
                parts[source].clear();
                next[source] += 1;
            }
        }
        senders.into_iter().for_each(|sender| sender.join().unwrap());
    }
}

#[test]
fn a_message_goes_there_and_back() {
    for options in all_options() {
        let memory = Region::private(options.bytes()).unwrap();
        let mut one = Nemesis::new(&memory, options, 0);
        one.prepare();
        let mut other = Nemesis::new(&memory, options, 1);
        let mut target = [0; CELL_BYTES];
        for number in 0..20u64 {
            assert!(one.try_send(1, number, 8, &number.to_le_bytes()));
            let piece = other.try_receive(Some(0), &mut target).unwrap();
            assert_eq!((piece.source, piece.tag, piece.bytes), (0, number, 8));
            assert!(other.try_send(0, number, 8, &target[..8]));
            let piece = one.try_receive(Some(1), &mut target).unwrap();
            assert_eq!((piece.source, target[0]), (1, number.to_le_bytes()[0]));
            assert_eq!(one.try_receive(None, &mut target), None);
        }
    }
}
