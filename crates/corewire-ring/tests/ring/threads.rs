//! The ring on real threads over private memory, small enough for Miri. Every message sent is
//! received, in order and whole, through every part of the channel.

#![cfg(not(loom))]

use std::iter;
use std::sync::{Arc, Mutex, mpsc};
use std::thread;

use crate::yielding::Yielding;
use corewire_layout::counters::ControlCounter;
use corewire_layout::frame::Start;
use corewire_layout::geometry::Geometry;
use corewire_layout::segment::{FenceMode, HINT_SEGMENT_BYTES, Policy, RECEIVER_SEGMENT_BYTES};
use corewire_ring::broadcast::{
    Channel, End, Held, InPlace, Members, Message, Receiver, ReceiverParts, ReceiverShared, Sender,
    SenderParts, SenderShared, SenderWords, Violation, head_of,
};
use corewire_ring::region::{Region, Rows, Slots};
use corewire_ring::{Lock, Trusted};

struct Locked(Mutex<Members>);

impl Lock<Members> for Locked {
    fn with<R>(&self, job: impl FnOnce(&mut Members) -> R) -> R {
        job(&mut self.0.lock().unwrap())
    }
}

/// A channel with all its receivers, over private memory. Fenced, since a test's threads have no
/// `membarrier` under Miri.
fn channel(
    receivers_max: u32,
    policy: Policy,
) -> (Sender<Yielding>, Vec<Receiver<Yielding>>, Arc<Locked>) {
    let geometry = Geometry::new(8, 1024, 3000, receivers_max.into()).unwrap();
    let segment = Region::private(usize::try_from(geometry.segment_bytes()).unwrap()).unwrap();
    let page = RECEIVER_SEGMENT_BYTES;
    let row_pages = Region::private(receivers_max as usize * page).unwrap();
    let hint = (receivers_max > 8).then(|| Region::private(HINT_SEGMENT_BYTES).unwrap());
    let shared = Arc::new(SenderShared::new(receivers_max, true));
    let slots = Slots::new(&segment, &geometry);
    let words = SenderWords::new(segment.clone());
    let parts =
        Channel { shared: &shared, slots: &slots, words: &words, geometry: &geometry, policy };
    let mut members = Members::new(receivers_max);
    let receivers = (0..receivers_max)
        .map(|row| {
            let joined = members.join(row, 1, Start::Now, &parts, &Yielding);
            let welcome = joined.welcome(row, 1, hint.is_some());
            let own = row_pages.part(row as usize * page, page).unwrap();
            let parts = ReceiverParts {
                sender: segment.clone(),
                geometry,
                fence_mode: FenceMode::Fenced,
                policy,
                own,
                hint: hint.clone(),
                welcome,
                shared: Arc::new(ReceiverShared::default()),
                many: None,
            };
            Receiver::new(parts, Yielding)
        })
        .collect();
    let lock = Arc::new(Locked(Mutex::new(members)));
    let rows = Rows::new(&row_pages, receivers_max);
    let staging = (!policy.keeps_messages()).then(|| Region::private(3000).unwrap());
    let parts = SenderParts { segment, policy, staging, geometry, rows, hint, shared };
    (Sender::new(parts, Yielding), receivers, lock)
}

fn in_place(receiver: &Receiver<Yielding>) -> InPlace {
    // SAFETY: the only sender is the one of this test, which keeps to the protocol.
    let trusted = unsafe { Trusted::assume() };
    receiver.in_place(trusted).unwrap()
}

/// Why no message came.
#[derive(Debug, PartialEq)]
enum Over {
    Ended(End),
    Violated(Violation),
}

impl From<Violation> for Over {
    fn from(violation: Violation) -> Self {
        Self::Violated(violation)
    }
}

/// Inline messages of every length, messages through the window, and messages through the large
/// area.
fn length_of(number: usize) -> usize {
    match number % 7 {
        5 => 200,
        6 => 2000,
        _ => number % 49,
    }
}

fn byte_of(number: usize) -> u8 {
    number.to_le_bytes()[0]
}

fn send(sender: &mut Sender<Yielding>, lock: &Locked, count: usize) {
    for number in 0..count {
        let bytes = length_of(number);
        let mut waits = 0;
        let mut loan = sender
            .loan_with::<_, _, ()>(bytes, lock, |sender| {
                waits += 1;
                sender.give_up_for(bytes);
                sender.refresh(lock);
                // This sender's clock is the number of its attempts.
                if sender.evict_stalled(bytes, waits, lock) || sender.has_room(bytes) {
                    sender.refresh(lock);
                } else if sender.policy().keeps_messages() {
                    sender.sleep_until(lock, u64::MAX, |sender| sender.has_room(bytes));
                } else {
                    thread::yield_now();
                }
                Ok(())
            })
            .unwrap();
        if number % 2 == 0 {
            loan.fill(&vec![byte_of(number); bytes]);
        } else {
            loan.bytes_mut().fill(byte_of(number));
        }
        loan.send();
        sender.forget_stalls(lock);
    }
}

/// Copies the next message out and checks it. Returns false if it was overwritten meanwhile.
fn copy_next(receiver: &mut Receiver<Yielding>) -> Result<bool, Over> {
    let mut snapshot = receiver.snapshot_with(|receiver| match receiver.end()? {
        Some(end) => Err(Over::Ended(end)),
        None => {
            receiver.sleep(u64::MAX);
            Ok(())
        }
    })?;
    let number = usize::try_from(snapshot.sequence()).unwrap();
    let mut copy = vec![0; snapshot.bytes()];
    if snapshot.copy_out(0, &mut copy).is_err() {
        return Ok(false);
    }
    assert_eq!(copy.len(), length_of(number));
    assert!(copy.iter().all(|&byte| byte == byte_of(number)), "{number} is torn");
    Ok(true)
}

/// Copies messages out until the end. Returns how many were received, how many were missed, and how
/// it ended.
fn copy_all(receiver: &mut Receiver<Yielding>) -> (u64, u64, End) {
    let mut received = 0;
    loop {
        match copy_next(receiver) {
            Ok(is_whole) => received += u64::from(is_whole),
            Err(Over::Ended(end)) => return (received, receiver.missed(), end),
            Err(Over::Violated(violation)) => panic!("{violation}"),
        }
    }
}

#[test]
fn a_receiver_of_a_channel_that_overwrites_misses_what_it_counts() {
    let (mut sender, receivers, lock) = channel(2, Policy::Overwrite);
    let readers: Vec<_> = receivers
        .into_iter()
        .map(|mut receiver| thread::spawn(move || copy_all(&mut receiver)))
        .collect();
    send(&mut sender, &lock, COUNT);
    sender.close();
    for reader in readers {
        let (received, missed, end) = reader.join().unwrap();
        assert_eq!((received + missed, end), (COUNT as u64, End::Closed));
    }
}

#[test]
fn a_receiver_that_holds_the_sender_back_is_evicted_while_it_copies() {
    let (mut sender, receivers, lock) = channel(2, Policy::Evict { after_ns: 2 });
    let mut readers: Vec<_> = receivers
        .into_iter()
        .map(|mut receiver| thread::spawn(move || copy_all(&mut receiver)))
        .collect();
    send(&mut sender, &lock, COUNT);
    sender.close();
    for reader in readers.drain(..) {
        let (received, missed, end) = reader.join().unwrap();
        assert_eq!(missed, 0);
        assert!(end == End::Evicted || received == COUNT as u64, "{received} and {end:?}");
    }
}

/// The next message, waiting for it.
fn next(receiver: &mut Receiver<Yielding>) -> Result<Message<'_, Yielding>, Over> {
    let in_place = in_place(receiver);
    receiver.receive_with(in_place, |receiver| match receiver.end()? {
        Some(end) => Err(Over::Ended(end)),
        None => {
            receiver.sleep(u64::MAX);
            Ok(())
        }
    })
}

fn stream(receivers_max: u32, count: usize) {
    let (mut sender, receivers, lock) = channel(receivers_max, Policy::Block);
    let readers: Vec<_> = receivers
        .into_iter()
        .map(|mut receiver| {
            thread::spawn(move || {
                for number in 0.. {
                    let message = match next(&mut receiver) {
                        Ok(message) => message,
                        Err(over) => {
                            assert_eq!((over, number), (Over::Ended(End::Closed), count));
                            return;
                        }
                    };
                    assert_eq!(message.len(), length_of(number));
                    assert!(message.iter().all(|&byte| byte == byte_of(number)));
                }
            })
        })
        .collect();
    send(&mut sender, &lock, count);
    sender.close();
    readers.into_iter().for_each(|reader| reader.join().unwrap());
}

/// Number of messages: Miri is several hundred times slower than a real machine.
const COUNT: usize = if cfg!(miri) { 40 } else { 20_000 };

#[test]
fn one_receiver_gets_everything() {
    stream(1, COUNT);
}

#[test]
fn two_receivers_get_everything() {
    stream(2, COUNT);
}

#[test]
fn receivers_that_share_a_hint_get_everything() {
    stream(9, COUNT / 10);
}

fn check(held: &Held<Yielding>) {
    let number = usize::try_from(held.sequence()).unwrap();
    assert_eq!(held.len(), length_of(number));
    assert!(held.iter().all(|&byte| byte == byte_of(number)), "{number} is torn");
}

/// Two threads release held messages, each in another order than they were received in.
#[test]
fn held_messages_are_released_in_any_order_by_several_threads() {
    let (mut sender, mut receivers, lock) = channel(2, Policy::Block);
    let plain = receivers.pop().unwrap();
    let mut receiver = receivers.pop().unwrap();
    let (to_threads, threads): (Vec<_>, Vec<_>) = (0..2)
        .map(|_| {
            let (to_thread, held) = mpsc::channel::<Held<Yielding>>();
            let thread = thread::spawn(move || {
                // The newest first. No thread keeps a message while it waits for another one.
                while let Ok(first) = held.recv() {
                    let mut some: Vec<_> =
                        iter::once(first).chain(held.try_iter().take(3)).collect();
                    some.iter().for_each(check);
                    while let Some(released) = some.pop() {
                        check(&released);
                    }
                }
            });
            (to_thread, thread)
        })
        .unzip();
    let holding = thread::spawn(move || {
        for number in 0.. {
            let message = match next(&mut receiver) {
                Ok(message) => message,
                Err(over) => {
                    assert_eq!((over, number), (Over::Ended(End::Closed), COUNT));
                    break;
                }
            };
            assert!(message.iter().all(|&byte| byte == byte_of(number)));
            if number % 5 != 0 {
                to_threads[number % 2].send(message.hold()).unwrap();
            }
        }
    });
    let reading = thread::spawn(move || {
        let mut receiver = plain;
        while next(&mut receiver).is_ok() {}
    });
    send(&mut sender, &lock, COUNT);
    sender.close();
    for thread in threads.into_iter().chain([holding, reading]) {
        thread.join().unwrap();
    }
    assert!(!lock.with(|members| members.has_violators()));
}

/// The ring of a relay continues the numbers of another ring, at any place of a lap.
#[test]
fn a_ring_may_begin_with_any_number() {
    const SLOTS: u64 = 8;
    for first in [0, 3, 8, 1003, 1 << 40] {
        let geometry = Geometry::new(SLOTS, 1024, 48, 2).unwrap();
        let segment = Region::private(usize::try_from(geometry.segment_bytes()).unwrap()).unwrap();
        let pages = Region::private(2 * RECEIVER_SEGMENT_BYTES).unwrap();
        let shared = Arc::new(SenderShared::new(2, true));
        let parts = SenderParts {
            segment: segment.clone(),
            policy: Policy::Block,
            staging: None,
            geometry,
            rows: Rows::new(&pages, 2),
            hint: None,
            shared: Arc::clone(&shared),
        };
        let mut sender = Sender::new(parts, Yielding);
        sender.begin_with(first);
        let slots = Slots::new(&segment, &geometry);
        assert_eq!((sender.head(), head_of(&slots)), (first, first));
        let words = SenderWords::new(segment.clone());
        let (shared, slots, policy) = (&*shared, &slots, Policy::Block);
        let channel = Channel { shared, slots, words: &words, geometry: &geometry, policy };
        let lock = Locked(Mutex::new(Members::new(2).beginning_with(first)));
        let join = |row, start| {
            lock.with(|members| members.join(row, 1, start, &channel, &Yielding).start)
        };
        assert_eq!(join(0, Start::Oldest), first, "nothing came before");
        // A receiver that joins at a later message does not make the sender wait for earlier ones.
        assert_eq!(join(1, Start::At(first + 3)), first + 3);
        let send = |sender: &mut Sender<Yielding>| {
            let loan = sender.loan_with(8, &lock, |sender| {
                sender.refresh(&lock);
                if sender.has_room(8) { Ok(()) } else { Err(()) }
            });
            loan.map(|loan| loan.send())
        };
        assert_eq!((0..SLOTS).filter_map(|_| send(&mut sender).ok()).count(), 8);
        assert_eq!(send(&mut sender), Err(()), "the first holds it up");
        lock.with(|members| members.leave(0, &channel, ControlCounter::Leaves));
        assert_eq!((0..SLOTS).filter_map(|_| send(&mut sender).ok()).count(), 3);
        assert!(!lock.with(|members| members.has_violators()));
    }
}

// Keeps P46.
/// A process that was evicted and joins again is charged what it was charged before, whichever row it gets. Of two
/// receivers that it then has, one takes this over.
#[test]
fn a_process_that_joins_again_continues_with_its_account() {
    const AFTER_NS: u64 = 1000;
    for (pid, next_pid, is_evicted) in [(7, 7, true), (7, 8, false), (0, 0, false)] {
        let geometry = Geometry::new(8, 1024, 48, 3).unwrap();
        let segment = Region::private(usize::try_from(geometry.segment_bytes()).unwrap()).unwrap();
        let pages = Region::private(3 * RECEIVER_SEGMENT_BYTES).unwrap();
        let shared = Arc::new(SenderShared::new(3, true));
        let policy = Policy::Evict { after_ns: AFTER_NS };
        let parts = SenderParts {
            segment: segment.clone(),
            policy,
            staging: Region::private(64),
            geometry,
            rows: Rows::new(&pages, 3),
            hint: None,
            shared: Arc::clone(&shared),
        };
        let mut sender = Sender::new(parts, Yielding);
        let (words, slots) = (SenderWords::new(segment.clone()), Slots::new(&segment, &geometry));
        let (shared, slots) = (&*shared, &slots);
        let channel = Channel { shared, slots, words: &words, geometry: &geometry, policy };
        let lock = Locked(Mutex::new(Members::new(3)));
        let join = |row, pid| {
            lock.with(|members| members.join(row, pid, Start::Now, &channel, &Yielding));
        };
        let fill = |sender: &mut Sender<Yielding>| {
            let wait = |sender: &mut Sender<Yielding>| {
                sender.refresh(&lock);
                if sender.has_room(8) { Ok(()) } else { Err(()) }
            };
            while let Ok(loan) = sender.loan_with(8, &lock, wait) {
                loan.send();
            }
        };
        join(0, pid);
        fill(&mut sender);
        assert!(!sender.evict_stalled(8, 1, &lock));
        assert!(sender.evict_stalled(8, 1 + AFTER_NS, &lock), "it has spent everything");
        join(1, next_pid);
        join(2, next_pid);
        fill(&mut sender);
        assert_eq!(sender.evict_stalled(8, 2 + AFTER_NS, &lock), is_evicted);
        assert_eq!(lock.with(|members| members.joined()), if is_evicted { 1 } else { 2 });
    }
}
