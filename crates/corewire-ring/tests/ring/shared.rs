//! The ring of several senders on real threads over private memory, small enough for Miri. Every
//! receiver gets every message, whole, and all receivers get them in the same order.

#![cfg(not(loom))]

use std::sync::Arc;
use std::thread;

use crate::yielding::Yielding;
use corewire_layout::frame::Welcome;
use corewire_layout::geometry::Geometry;
use corewire_layout::segment::{FenceMode, Policy, RECEIVER_SEGMENT_BYTES};
use corewire_ring::broadcast::{
    End, Receiver, ReceiverParts, ReceiverShared, ReceiverWords, SenderShared, Violation,
};
use corewire_ring::doorbell::SLEEP_CAP_NS;
use corewire_ring::region::Region;
use corewire_ring::shared::{Entrance, ManyParts, Party, Roster, RosterParts, Sender, SenderParts};
use corewire_ring::sync::Ordering;
use corewire_ring::{Host, Trusted};

/// A channel over private memory. Fenced, since a test's threads have no `membarrier` under Miri.
struct Channel {
    ring: Region,
    table: Region,
    geometry: Geometry,
    policy: Policy,
}

impl Channel {
    fn new(policy: Policy) -> Self {
        let geometry = Geometry::with_senders(32, 1024, 3000, 4, 4).unwrap();
        let region = |bytes: u64| Region::private(usize::try_from(bytes).unwrap()).unwrap();
        let (ring, table) = (region(geometry.segment_bytes()), region(geometry.table_bytes()));
        Self { ring, table, geometry, policy }
    }

    fn roster(&self) -> Roster {
        let (ring, table) = (self.ring.clone(), self.table.clone());
        Roster::new(&RosterParts { ring, table, geometry: self.geometry })
    }

    fn sender(&self) -> Sender<Yielding> {
        let roster = self.roster();
        let entrance = roster.enter_sender(1, 1, &Yielding).unwrap();
        self.sender_at(roster, entrance)
    }

    fn sender_at(&self, roster: Roster, entrance: Entrance) -> Sender<Yielding> {
        let parts = SenderParts {
            ring: self.ring.clone(),
            roster,
            entrance,
            policy: self.policy,
            staging: (!self.policy.keeps_messages()).then(|| Region::private(3000).unwrap()),
            shared: Arc::new(SenderShared::new(0, true)),
        };
        Sender::new(parts, Yielding)
    }

    fn receiver(&self) -> Receiver<Yielding> {
        self.receiver_with(self.roster())
    }

    fn receiver_with(&self, roster: Roster) -> Receiver<Yielding> {
        let entrance = roster.vacant_row().unwrap();
        let start = roster.admit(entrance, 1, 1);
        let Entrance { row, generation } = entrance;
        let page = RECEIVER_SEGMENT_BYTES;
        let offset = usize::try_from(self.geometry.table_rows_offset()).unwrap();
        let parts = ReceiverParts {
            sender: self.ring.clone(),
            geometry: self.geometry,
            fence_mode: FenceMode::Fenced,
            policy: self.policy,
            own: self.table.part(offset + row as usize * page, page).unwrap(),
            hint: None,
            welcome: Welcome {
                row,
                start,
                epoch: 0,
                incarnation: 1,
                hint: false,
                table: true,
                settled: 0,
                generation,
            },
            shared: Arc::new(ReceiverShared::default()),
            many: Some(ManyParts { roster, entrance }),
        };
        Receiver::new(parts, Yielding)
    }
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

fn length_of(number: u64) -> usize {
    match number % 7 {
        5 => 200,
        6 => 2000,
        _ => 16 + usize::try_from(number % 33).unwrap(),
    }
}

/// The sender and the number in the first words, then bytes computed from both.
fn message(sender: u64, number: u64) -> Vec<u8> {
    let mut bytes = vec![(sender * 31 + number).to_le_bytes()[0]; length_of(number)];
    bytes[..8].copy_from_slice(&sender.to_le_bytes());
    bytes[8..16].copy_from_slice(&number.to_le_bytes());
    bytes
}

fn check(bytes: &[u8]) -> (u64, u64) {
    let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    let (sender, number) = (word(0), word(8));
    assert_eq!(bytes, message(sender, number));
    (sender, number)
}

fn wait_for_room(sender: &mut Sender<Yielding>, bytes: usize) -> Result<(), ()> {
    sender.refresh();
    if !sender.has_room(bytes) {
        if sender.policy().keeps_messages() {
            sender.sleep_until(SLEEP_CAP_NS, |sender| sender.has_room(bytes));
        } else {
            thread::yield_now();
        }
    }
    Ok(())
}

/// Sends `count` messages: one by one, by loans, and in batches.
fn send(sender: &mut Sender<Yielding>, name: u64, count: u64) {
    for number in 0..count {
        let bytes = message(name, number);
        let length = bytes.len();
        match (number / 20 % 3, length) {
            (0, ..=48) => sender.send_inline(&bytes, |s| wait_for_room(s, length)).unwrap(),
            (0 | 1, _) => {
                let mut loan = sender.loan_with(length, |s| wait_for_room(s, length)).unwrap();
                loan.bytes_mut().copy_from_slice(&bytes);
                loan.send(|s| wait_for_room(s, 0)).unwrap();
            }
            _ => {
                sender.stage(&bytes, |s| wait_for_room(s, length)).unwrap();
                if number % 20 == 19 {
                    sender.flush(&mut |s| wait_for_room(s, 0)).unwrap();
                }
            }
        }
    }
    sender.flush(&mut |s| wait_for_room(s, 0)).unwrap();
    sender.leave();
}

fn look<K: Host>(receiver: &mut Receiver<K>) -> Result<(), Over> {
    match receiver.end()? {
        Some(end) => Err(Over::Ended(end)),
        None => {
            receiver.sleep(SLEEP_CAP_NS);
            Ok(())
        }
    }
}

fn receive_all(mut receiver: Receiver<Yielding>) -> (Vec<(u64, u64)>, Over) {
    // SAFETY: all senders are those of this test, which keep to the protocol.
    let in_place = receiver.in_place(unsafe { Trusted::assume() }).unwrap();
    let mut order = Vec::new();
    loop {
        match receiver.receive_with(in_place, look) {
            Ok(message) => order.push(check(&message)),
            Err(over) => return (order, over),
        }
    }
}

fn copy_next(receiver: &mut Receiver<Yielding>) -> Result<Option<(u64, u64)>, Over> {
    let mut snapshot = receiver.snapshot_with(look)?;
    let mut copy = vec![0; snapshot.bytes()];
    Ok(snapshot.copy_out(0, &mut copy).is_ok().then(|| check(&copy)))
}

fn copy_all(mut receiver: Receiver<Yielding>) -> (Vec<(u64, u64)>, Over) {
    let mut order = Vec::new();
    loop {
        match copy_next(&mut receiver) {
            Ok(message) => order.extend(message),
            Err(over) => return (order, over),
        }
    }
}

fn exchange(policy: Policy, senders: u64, count: u64) {
    let channel = Channel::new(policy);
    let receivers: Vec<_> = (0..2).map(|_| channel.receiver()).collect();
    let mut all: Vec<_> = (0..senders).map(|_| channel.sender()).collect();
    let readers: Vec<_> = receivers
        .into_iter()
        .map(|receiver| {
            let read = if policy.keeps_messages() { receive_all } else { copy_all };
            thread::spawn(move || read(receiver))
        })
        .collect();
    let sending: Vec<_> = all
        .drain(..)
        .enumerate()
        .map(|(name, mut sender)| thread::spawn(move || send(&mut sender, name as u64, count)))
        .collect();
    sending.into_iter().for_each(|sender| sender.join().unwrap());
    let orders: Vec<_> = readers.into_iter().map(|reader| reader.join().unwrap()).collect();
    assert_eq!(orders[0].1, Over::Ended(End::Closed));
    assert!(orders[0] == orders[1], "two orders");
    for name in 0..senders {
        let own = orders[0].0.iter().filter(|(sender, _)| *sender == name);
        assert!(own.map(|(_, number)| *number).eq(0..count), "sender {name}");
    }
}

/// Messages per sender: Miri is several hundred times slower than a real machine.
const COUNT: u64 = if cfg!(miri) { 60 } else { 20_000 };

#[test]
fn one_sender_is_received() {
    exchange(Policy::Block, 1, COUNT);
}

#[test]
fn several_senders_are_received_in_one_order() {
    exchange(Policy::Block, 3, COUNT);
}

#[test]
fn several_senders_of_a_channel_that_evicts_are_received_in_one_order() {
    exchange(Policy::Evict { after_ns: u64::MAX }, 3, COUNT / 4);
}

#[test]
fn a_dead_senders_messages_are_received_and_its_row_is_taken_again() {
    let channel = Channel::new(Policy::Block);
    let host = channel.roster();
    let roster = channel.roster();
    let mut receiver = channel.receiver_with(roster.clone());
    // SAFETY: all senders are those of this test, which keep to the protocol.
    let in_place = receiver.in_place(unsafe { Trusted::assume() }).unwrap();
    for name in 0..9 {
        let entrance = host.enter_sender(1, 1, &Yielding).expect("a row of the dead is free again");
        let mut sender = channel.sender_at(channel.roster(), entrance);
        sender.send_inline(&message(name, 0), |s| wait_for_room(s, 0)).unwrap();
        drop(sender); // it dies: it does not leave
        let got = receiver.receive_with(in_place, look).unwrap();
        assert_eq!(check(&got), (name, 0));
        drop(got);
        assert_eq!(receiver.end(), Ok(None), "nobody is known to be dead");
        // Each process learns of a death separately.
        host.record_death(Party::Sender, entrance);
        roster.record_death(Party::Sender, entrance);
        assert_eq!(receiver.end(), Ok(Some(End::SenderGone)));
    }
}

#[test]
fn the_longest_run_goes_where_nobody_receives() {
    let channel = Channel::new(Policy::Block);
    let mut sender = channel.sender();
    for _ in 0..5 * 16 {
        let mut tries = 0;
        let give_up = |sender: &mut Sender<Yielding>| {
            tries += 1;
            sender.refresh();
            if tries < 9 { Ok(()) } else { Err("no room") }
        };
        sender.stage(&message(0, 0), give_up).unwrap();
    }
    assert_eq!(sender.sent(), 4 * 16);
}

/// A cursor never lies inside a run, even if the oldest held message does.
#[test]
fn a_message_held_inside_a_run_keeps_the_whole_run() {
    let channel = Channel::new(Policy::Block);
    let mut receiver = channel.receiver();
    // SAFETY: the only sender is the one of this test, which keeps to the protocol.
    let in_place = receiver.in_place(unsafe { Trusted::assume() }).unwrap();
    let rows = usize::try_from(channel.geometry.table_rows_offset()).unwrap();
    let cursor = ReceiverWords::new(channel.table.part(rows, RECEIVER_SEGMENT_BYTES).unwrap());
    let cursor = || cursor.cursor().load(Ordering::Relaxed);
    let mut sender = channel.sender();
    sender.send_inline(&message(0, 0), |s| wait_for_room(s, 0)).unwrap();
    for number in 1..5 {
        sender.stage(&message(0, number), |s| wait_for_room(s, 0)).unwrap();
    }
    sender.flush(&mut |s| wait_for_room(s, 0)).unwrap();
    sender.send_inline(&message(0, 7), |s| wait_for_room(s, 0)).unwrap();
    let mut next = |is_held: bool| {
        let message = receiver.receive_with(in_place, look).unwrap();
        let held = is_held.then(|| message.hold());
        receiver.publish_cursor();
        held
    };
    assert!(next(false).is_none());
    assert!(next(false).is_none());
    let second = next(true);
    assert_eq!(cursor(), 1, "the receiver is inside the run");
    let third = next(true);
    assert!(next(false).is_none());
    assert!(next(false).is_none());
    assert_eq!(cursor(), 1, "messages inside the run are held");
    drop(second);
    assert_eq!(cursor(), 1);
    check(&third.unwrap());
    assert_eq!(cursor(), 6, "everything is released");
}
