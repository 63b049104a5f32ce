//! Models of the published rings. The name of a test states what its model shows. The prefix
//! `quick_` marks the models that are run most often.

use corewire_layout::LINE_BYTES;
use corewire_models::{check, check_bare, mutants};
use corewire_published::rings::{
    BarrelfishMp, Flow, FreeQueue, Nemesis, NemesisOptions, NemesisQueue, UMP_BYTES, Ump, Zimp,
    ZimpReceiver, ZimpSender,
};
use corewire_ring::Trusted;
use corewire_ring::region::Region;
use loom::sync::Arc;
use loom::thread;

/// A ring with one receiver, for messages of 8 bytes.
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

/// Each of two senders sends one message. One of the two threads also receives both messages, and
/// never blocks on anything else while it does.
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

/// A ring with two slots in each direction.
fn ump(flow: Flow) -> Ump {
    let lines = (0..4).map(|line| line * LINE_BYTES);
    let words = lines.clone().map(|at| at + UMP_BYTES..at + LINE_BYTES).collect();
    let cells = lines.take(2).map(|at| at..at + UMP_BYTES).collect();
    Ump::new(&Region::model(Ump::bytes(2), words, vec![], cells), 2, flow)
}

/// Sends three messages through two slots.
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

/// Sends three messages through one slot.
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

/// The words of a Nemesis queue at `offset`: the tail; the head, or its shadow beside it; and the
/// lock.
fn queue_words(offset: usize, has_shadow_head: bool) -> Vec<std::ops::Range<usize>> {
    let beside = has_shadow_head.then_some(offset + 8);
    let words = [offset, offset + LINE_BYTES].into_iter().chain(beside);
    words.map(|at| at..at + 8).collect()
}

/// A queue, and the memory of its cells. Each cell holds eight bytes.
fn nemesis_queue(cells: usize, has_shadow_head: bool) -> (Arc<NemesisQueue>, Region) {
    let links = (0..cells).map(|cell| cell_at(cell) - 8..cell_at(cell));
    let words = queue_words(0, has_shadow_head).into_iter().chain(links).collect();
    let lock = 2 * LINE_BYTES..2 * LINE_BYTES + 4;
    let content = (0..cells).map(|cell| cell_at(cell)..cell_at(cell) + 8).collect();
    let memory = Region::model(NemesisQueue::bytes(cells), words, vec![lock], content);
    (Arc::new(NemesisQueue::new(&memory, cells, has_shadow_head)), memory)
}

/// Offset of a cell's content.
fn cell_at(cell: usize) -> usize {
    NemesisQueue::bytes(cell) + 8
}

fn put(queue: &NemesisQueue, memory: &Region, cell: usize, content: u64) {
    memory.copy_in(cell_at(cell), &content.to_le_bytes());
    queue.enqueue(cell);
}

fn content(memory: &Region, cell: usize) -> u64 {
    let mut bytes = [0; 8];
    // SAFETY: all parties of a model follow the protocol; loom checks it.
    let trusted = unsafe { Trusted::assume() };
    // SAFETY: a thread that has taken a cell is the only one to access it; loom checks it.
    unsafe { memory.copy_out_still(trusted, cell_at(cell), &mut bytes) };
    u64::from_le_bytes(bytes)
}

fn get(queue: &NemesisQueue, memory: &Region) -> (usize, u64) {
    loop {
        match queue.dequeue() {
            Some(cell) => return (cell, content(memory, cell)),
            None => thread::yield_now(),
        }
    }
}

/// Two threads each put a cell into a queue; a third takes both.
fn two_put_one_takes(has_shadow_head: bool) {
    let (queue, memory) = nemesis_queue(2, has_shadow_head);
    let others = [0, 1].map(|cell| {
        let (queue, memory) = (Arc::clone(&queue), memory.clone());
        thread::spawn(move || put(&queue, &memory, cell, cell as u64 + 7))
    });
    let take = || queue.dequeue().map(|cell| (cell, content(&memory, cell)));
    let early = [take(), take()];
    others.into_iter().for_each(|other| other.join().unwrap());
    let mut taken: Vec<_> = early.into_iter().chain([take(), take()]).flatten().collect();
    taken.sort_unstable();
    assert_eq!(taken, [(0, 7), (1, 8)], "assertion: a cell is lost");
}

#[test]
fn quick_nemesis_queue_loses_no_cell() {
    check(2, || two_put_one_takes(false));
}

#[test]
fn quick_nemesis_queue_with_a_shadow_head_loses_no_cell() {
    check(2, || two_put_one_takes(true));
}

/// A cell goes back and forth between two queues, as between a free queue and a receive queue.
#[test]
fn quick_nemesis_fills_a_cell_again_only_when_it_has_been_read() {
    check(3, || {
        let (there, memory) = nemesis_queue(1, true);
        let (back, _) = nemesis_queue(1, false);
        back.enqueue(0);
        let sending = {
            let (there, back, memory) = (Arc::clone(&there), Arc::clone(&back), memory.clone());
            thread::spawn(move || {
                for number in 1..=2 {
                    let cell = loop {
                        match back.dequeue() {
                            Some(cell) => break cell,
                            None => thread::yield_now(),
                        }
                    };
                    put(&there, &memory, cell, number);
                }
            })
        };
        for number in 1..=2 {
            assert_eq!(get(&there, &memory), (0, number));
            back.enqueue(0);
        }
        sending.join().unwrap();
    });
}

#[test]
fn quick_nemesis_queue_gives_each_of_many_a_cell_of_its_own() {
    check(2, || {
        let (queue, _memory) = nemesis_queue(2, false);
        queue.enqueue(0);
        queue.enqueue(1);
        let other = Arc::clone(&queue);
        let taking = thread::spawn(move || other.dequeue_of_many());
        let mut taken = [queue.dequeue_of_many(), taking.join().unwrap()];
        taken.sort_unstable();
        assert_eq!(taken, [Some(0), Some(1)]);
    });
}

/// Two processes with fastboxes. Each has one cell of 32 bytes.
fn nemesis() -> [Nemesis; 2] {
    let options = NemesisOptions {
        processes: 2,
        cells: 1,
        cell_bytes: 32,
        free_queue: FreeQueue::Sender,
        has_shadow_head: true,
        has_fastboxes: true,
    };
    let queues = (0..4).map(|queue| 3 * queue * LINE_BYTES);
    // Four boxes and two cells, one line each.
    let lines = (0..6).map(|line| (12 + line) * LINE_BYTES);
    let words = queues.clone().flat_map(|at| queue_words(at, true));
    let headers = lines.clone().flat_map(|at| [0, 8, 16, 24].map(|word| at + word..at + word + 8));
    let locks = queues.map(|at| at + 2 * LINE_BYTES..at + 2 * LINE_BYTES + 4);
    let bytes = lines.map(|at| at + 32..at + 64);
    let words = words.chain(headers).collect();
    let memory = Region::model(options.bytes(), words, locks.collect(), bytes.collect());
    let all = [0, 1].map(|index| Nemesis::new(&memory, options, index));
    all[0].prepare();
    all
}

#[test]
fn quick_nemesis_keeps_the_order_of_fastbox_and_queue() {
    check_bare(2, || {
        let [mut sender, mut receiver] = nemesis();
        let sending = thread::spawn(move || {
            for number in 1u64..=3 {
                while !sender.try_send(1, number, 8, &number.to_le_bytes()) {
                    thread::yield_now();
                }
            }
        });
        for number in 1u64..=3 {
            let mut message = [0; 32];
            let piece = loop {
                match receiver.try_receive(None, &mut message) {
                    Some(piece) => break piece,
                    None => thread::yield_now(),
                }
            };
            assert_eq!((piece.tag, piece.bytes), (number, 8));
            assert_eq!(message[..8], number.to_le_bytes());
        }
        sending.join().unwrap();
    });
}

mutants! {
    mutant_n1: N1 => quick_nemesis_queue_loses_no_cell;
    mutant_n2: N2 => quick_nemesis_queue_loses_no_cell;
    mutant_n3: N3 => quick_nemesis_queue_loses_no_cell;
    mutant_n4: N4 => quick_nemesis_queue_loses_no_cell;
    mutant_n5: N5 => quick_nemesis_queue_gives_each_of_many_a_cell_of_its_own;
    mutant_n6: N6 => quick_nemesis_queue_gives_each_of_many_a_cell_of_its_own;
    mutant_n7: N7 => quick_nemesis_keeps_the_order_of_fastbox_and_queue;
    mutant_n8: N8 => quick_nemesis_keeps_the_order_of_fastbox_and_queue;
    mutant_n9: N9 => quick_nemesis_keeps_the_order_of_fastbox_and_queue;
    mutant_n10: N10 => quick_nemesis_keeps_the_order_of_fastbox_and_queue;
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
