//! A receiver with a hostile sender: every word of the sender's segment may hold anything.

use std::hint::black_box;
use std::sync::Arc;

use corewire_layout::PAGE_BYTES;
use corewire_layout::frame::{Start, Welcome};
use corewire_layout::geometry::{Geometry, MESSAGE_BYTES_MAX};
use corewire_layout::segment::{
    BELL, BLOCKED, CLOSED, CURSOR, DOOR_BYTES, DOOR_TENURE, DOORS, FLOOR, FenceMode, Policy,
    SENDER_CPU,
};
use corewire_layout::slot::{
    HEADER, KIND_LARGE, KIND_WINDOW, LENGTH, POSITION, SLOT_BYTES, STAMP, sequence_of, stamp_of,
};
use corewire_ring::broadcast::{
    Channel, End, InPlace, Members, Receiver, ReceiverParts, ReceiverShared, Sender, SenderParts,
    SenderShared, SenderWords, Violation,
};
use corewire_ring::doorbell::{SLEEP_CAP_NS, notice};
use corewire_ring::region::{Region, Rows, Slots};
use corewire_ring::{Lock, Trusted};

use crate::effort::Effort;
use crate::kernel::{Idle, Locked};
use crate::memory::{Memory, Width, Words};
use crate::sender::{length_of, text_of};
use crate::step::Step;

/// Steps before the memory is valid again and a new receiver is made.
const STEPS_PER_SCENE: u64 = 32;
/// Calls that follow each word that is written.
const CALLS: u16 = 9;

/// A receiver with its hostile sender.
#[derive(Debug)]
pub struct Victim {
    geometry: Geometry,
    policy: Policy,
    effort: Effort,
    words: Words,
    sender: Region,
    own: Region,
    hint: Option<Region>,
    kernel: Idle,
    scenes: Vec<Scene>,
    receiver: Receiver<Idle>,
    /// The row of the receiver, and the generation of that row.
    door: u32,
    generation: u32,
    buffer: Vec<u8>,
    steps: u64,
    is_raced: bool,
    /// Counts of the outcomes of the calls, to see whether the steps reach anything.
    pub tally: Tally,
}

/// Counts of outcomes.
#[derive(Debug, Clone, Copy, Default)]
pub struct Tally {
    /// Messages read, in place or copied.
    pub messages: u64,
    /// Messages that were lost while they were read.
    pub lost: u64,
    /// Impossible values found.
    pub violations: u64,
    /// Ends of the stream, of any kind.
    pub ends: u64,
    /// Receives that found nothing.
    pub empty: u64,
}

/// A state in which an honest sender may leave its segment.
#[derive(Debug)]
struct Scene {
    words: Vec<u64>,
    head: u64,
    row: u32,
    generation: u32,
}

/// Why no message was received.
enum Over {
    NoMore,
    Ended(End),
    Violated(Violation),
}

impl From<Violation> for Over {
    fn from(violation: Violation) -> Self {
        Self::Violated(violation)
    }
}

impl Victim {
    /// Creates a receiver of a channel with this geometry and policy.
    #[must_use]
    pub fn new(geometry: Geometry, policy: Policy) -> Self {
        let memory = Memory::new(usize::try_from(geometry.segment_bytes()).expect("small"));
        let words = memory.words();
        let slots = geometry.slots();
        let mut scenes = Vec::new();
        for count in [0, 1, slots - 1, slots, 2 * slots + slots / 2] {
            for ending in [Ending::Open, Ending::Closed, Ending::Evicted] {
                scenes.push(play(&geometry, policy, &memory, &words, count, ending));
            }
        }
        let hint = (geometry.receivers_max() > 8).then(|| Memory::new(PAGE_BYTES).writable());
        let (sender, own) = (memory.readable(), Memory::new(PAGE_BYTES).writable());
        let kernel = Idle::default();
        let first = &scenes[0];
        let parts = parts(&geometry, policy, (&sender, &own, hint.as_ref()), first, 0, true);
        let receiver = Receiver::new(parts, kernel.clone());
        let generation = first.generation;
        let longest = usize::try_from(geometry.message_bytes_max()).expect("small");
        Self {
            geometry,
            policy,
            effort: Effort::of(&geometry),
            words,
            sender,
            own,
            hint,
            kernel,
            scenes,
            receiver,
            door: u32::try_from(geometry.receivers_max() - 1).expect("small"),
            generation,
            buffer: vec![0; longest.max(48)],
            steps: 0,
            is_raced: false,
            tally: Tally::default(),
        }
    }

    /// The sender's segment, for another thread that writes it during calls. From then on the tests
    /// do not read the bytes of messages in place.
    pub fn race(&mut self) -> (Words, Geometry) {
        self.is_raced = true;
        (self.words.clone(), self.geometry)
    }

    /// The sequence number of the receiver's next message.
    #[must_use]
    pub fn next(&self) -> u64 {
        self.receiver.next()
    }

    /// Makes the next step begin with valid memory and a new receiver, as the first step does.
    pub fn begin_anew(&mut self) {
        self.steps = 0;
    }

    /// Writes one word, then makes every call.
    pub fn step(&mut self, step: &Step) {
        if self.steps.is_multiple_of(STEPS_PER_SCENE) {
            self.begin(step);
        }
        self.steps += 1;
        self.serve(step);
        let (offset, width) = site(step, self.receiver.next(), &self.geometry);
        let found = self.words.load(offset, width);
        let value = step.value(self.receiver.next(), found, &self.geometry);
        self.words.store(offset, width, value);
        // Some words accumulate before any call is made.
        if step.order % 8 == 7 {
            return;
        }
        self.kernel.set(step.happens(1 << 10), step.happens(3));
        for call in 0..CALLS {
            self.call((step.order % CALLS + call) % CALLS, step);
        }
        // Most words are restored; otherwise only violations would be found from here on.
        if !step.happens(5) {
            self.words.store(offset, width, found);
        }
    }

    /// Makes a new receiver, whose sender was honest until now.
    fn begin(&mut self, step: &Step) {
        let scene = &self.scenes[step.choose(self.scenes.len())];
        let slots = self.geometry.slots();
        // Sequence numbers from 0, around the end of a stamp's range, and as large as an owner may
        // say.
        let base =
            [0, (1 << 52) - 2 * slots, u64::MAX / 2 - 4 * slots][usize::from(step.shape % 3)];
        self.words.put_back(&scene.words);
        shift(&self.words, &self.geometry, base);
        let back_max = if self.policy == Policy::Overwrite { 3 * slots } else { slots - 1 };
        let start = base + scene.head - (step.value % (back_max + 1)).min(scene.head);
        let regions = (&self.sender, &self.own, self.hint.as_ref());
        let is_fenced = step.happens(2);
        let parts = parts(&self.geometry, self.policy, regions, scene, start, is_fenced);
        self.receiver = Receiver::new(parts, self.kernel.clone());
        if step.happens(7) {
            self.receiver.shared().notify(notice::PEER_GONE, &self.kernel);
        }
    }

    /// The sender continues as an honest one would: it makes the next two messages available, of
    /// every kind and with lengths around the limits.
    fn serve(&self, step: &Step) {
        let geometry = &self.geometry;
        let ring = usize::try_from(geometry.ring_offset()).expect("small");
        let pick = u64::from(step.order ^ step.place);
        for sequence in [self.receiver.next(), self.receiver.next().wrapping_add(1)] {
            let index = usize::try_from(sequence % geometry.slots()).expect("small");
            let slot = ring + index * SLOT_BYTES;
            let window = geometry.window_message_bytes_max().min(geometry.message_bytes_max());
            let (header, room, length) = match pick % 8 {
                0 => (KIND_WINDOW, geometry.window_bytes(), window),
                1 => (KIND_WINDOW, geometry.window_bytes(), pick % (window + 1)),
                2 if geometry.large_bytes() > 0 => {
                    (KIND_LARGE, geometry.large_bytes(), geometry.message_bytes_max())
                }
                inline => (inline * 9 % 49, 0, 0),
            };
            if room > 0 {
                // At the very start, or as close to the end as it may lie.
                let last = (room - length) / 64 * 64;
                let position = if pick & 8 == 0 { last } else { 0 } + room * (pick >> 8);
                self.words.store(slot + POSITION, Width::Eight, position);
                self.words.store(slot + LENGTH, Width::Eight, length);
            }
            self.words.store(slot + HEADER, Width::Eight, header);
            self.words.store(slot + STAMP, Width::Eight, stamp_of(sequence));
        }
        if step.order & 3 == 0 {
            self.words.store(CLOSED, Width::Eight, 0);
            self.words.store(FLOOR, Width::Eight, self.receiver.next().saturating_sub(1));
        }
        if step.order & 7 == 3 {
            let door = DOORS + self.door as usize * DOOR_BYTES + DOOR_TENURE;
            self.words.store(door, Width::Eight, u64::from(self.generation) << 32 | 1);
        }
    }

    fn call(&mut self, call: u16, step: &Step) {
        let next = self.receiver.next();
        match call {
            0 => self.read_in_place(),
            1 | 2 => self.copy(step),
            3 => {
                let end = self.effort.bound(&self.kernel, 1, || self.receiver.end());
                match end {
                    Ok(Some(_)) => self.tally.ends += 1,
                    Ok(None) => {}
                    Err(_) => self.tally.violations += 1,
                }
            }
            4 => {
                let receiver = &mut self.receiver;
                self.effort.bound(&self.kernel, 1, || {
                    if receiver.arm() {
                        receiver.retract();
                    }
                });
            }
            5 => {
                let cap_ns = if step.happens(2) { SLEEP_CAP_NS } else { 1 };
                let receiver = &mut self.receiver;
                self.effort.bound(&self.kernel, 1, || receiver.sleep(cap_ns));
            }
            6 => {
                let count = step.value % (2 * self.geometry.slots());
                let receiver = &mut self.receiver;
                // Each of the messages may cost as much as one call.
                let done = self.effort.bound(&self.kernel, count + 1, || receiver.done(count));
                self.tally.violations += u64::from(done.is_err());
                assert!(self.receiver.next() - next <= count);
            }
            7 => self.look_ahead(step),
            _ => {
                let receiver = &mut self.receiver;
                self.effort.bound(&self.kernel, 1, || {
                    receiver.publish_cursor();
                    receiver.publish_counters();
                    black_box((receiver.is_ready(), receiver.is_sender_here()));
                });
            }
        }
        assert!(self.receiver.next() >= next, "it never goes back");
        assert!(self.receiver.missed() <= self.receiver.next());
    }

    fn in_place(&self) -> Option<InPlace> {
        // SAFETY: this sender writes nothing during a call, except in races, in which the bytes are
        // not read in place.
        let trusted = unsafe { Trusted::assume() };
        self.receiver.in_place(trusted)
    }

    /// As `Receiver::try_receive` of `corewire` does.
    fn read_in_place(&mut self) {
        let Some(in_place) = self.in_place() else { return };
        let Self { receiver, sender, effort, kernel, tally, is_raced, .. } = self;
        let message = effort.bound(kernel, 2, || {
            receiver.receive_with(in_place, |receiver| Err::<(), _>(look(receiver)))
        });
        match message {
            Ok(message) => {
                check_slice(&message, sender, *is_raced);
                tally.messages += 1;
            }
            Err(over) => count(tally, &over),
        }
    }

    /// As `try_receive` of a receiver that copies does, or as `receive`, woken once.
    fn copy(&mut self, step: &Step) {
        let Self { receiver, effort, kernel, tally, buffer, geometry, .. } = self;
        let mut waits = u64::from(step.happens(2));
        let snapshot = effort.bound(kernel, 4, || {
            receiver.snapshot_with(|receiver| {
                if waits == 0 {
                    return Err(look(receiver));
                }
                waits -= 1;
                receiver.sleep(1);
                Ok(())
            })
        });
        let mut snapshot = match snapshot {
            Ok(snapshot) => snapshot,
            Err(over) => return count(tally, &over),
        };
        let bytes = snapshot.bytes();
        assert!(bytes as u64 <= geometry.message_bytes_max().max(48));
        let offset = if step.happens(3) { bytes / 2 } else { 0 };
        let target = &mut buffer[..bytes - offset];
        let is_whole = effort.bound(kernel, 1, || snapshot.copy_out(offset, target)).is_ok();
        black_box(&target);
        tally.messages += u64::from(is_whole);
        tally.lost += u64::from(!is_whole);
        if is_whole && step.happens(5) && snapshot.confirm().is_ok() {
            snapshot.put_back();
        }
    }

    fn look_ahead(&mut self, step: &Step) {
        let Self { receiver, effort, kernel, geometry, .. } = self;
        let ready = effort.bound(kernel, 1, || receiver.ready_count(step.value));
        assert!(ready <= geometry.slots().min(step.value));
        let Some(in_place) = self.in_place() else { return };
        for index in [0, ready.saturating_sub(1), step.value % (2 * self.geometry.slots())] {
            let receiver = &self.receiver;
            match self.effort.bound(&self.kernel, 1, || receiver.peek(in_place, index)) {
                Ok(Some(message)) => check_slice(message, &self.sender, self.is_raced),
                Ok(None) => {}
                Err(_) => self.tally.violations += 1,
            }
        }
    }
}

fn look(receiver: &mut Receiver<Idle>) -> Over {
    receiver.publish_cursor();
    match receiver.end() {
        Ok(None) => Over::NoMore,
        Ok(Some(end)) => Over::Ended(end),
        Err(violation) => Over::Violated(violation),
    }
}

fn count(tally: &mut Tally, over: &Over) {
    match over {
        Over::NoMore => tally.empty += 1,
        Over::Ended(End::Closed | End::Evicted | End::SenderGone) => tally.ends += 1,
        Over::Violated(violation) => {
            black_box(violation);
            tally.violations += 1;
        }
    }
}

/// Checks that the message lies in the segment, behind its words, and that its bytes can be read.
fn check_slice(message: &[u8], segment: &Region, is_raced: bool) {
    let (base, bytes) = segment.address();
    let start = message.as_ptr().addr() - base.as_ptr().addr();
    assert!(start >= DOORS && start + message.len() <= bytes);
    if !is_raced {
        let ends = (message.first(), message.last());
        black_box((ends, message.iter().step_by(64).fold(0, |all, &byte| all ^ byte)));
    }
}

/// The word that a step writes. Most are words of the slots that the victim reads next.
#[must_use]
pub fn site(step: &Step, next: u64, geometry: &Geometry) -> (usize, Width) {
    let ring = usize::try_from(geometry.ring_offset()).expect("small");
    let all = usize::try_from(geometry.segment_bytes()).expect("small");
    let place = usize::from(step.place);
    let slot_of = |sequence: u64| {
        let index = sequence % geometry.slots();
        ring + usize::try_from(index).expect("small") * SLOT_BYTES
    };
    let slot = slot_of(next.wrapping_add(u64::from(step.place >> 8) % 4));
    let any_slot = slot_of(u64::from(step.place >> 5));
    match place % 32 {
        0..=4 => (slot + STAMP, Width::Eight),
        5..=9 => (slot + HEADER, Width::Eight),
        10..=12 => (slot + POSITION, Width::Eight),
        13..=15 => (slot + LENGTH, Width::Eight),
        16 => (any_slot + HEADER, Width::Eight),
        17 | 18 => (any_slot + STAMP, Width::Eight),
        19 => (any_slot + place / 32 % 8 * 8, Width::Eight),
        20 | 21 => (FLOOR, Width::Eight),
        22 | 23 => (CLOSED, Width::Eight),
        24 => (BELL, Width::Four),
        25 => (SENDER_CPU, Width::Four),
        26 => (BLOCKED, Width::Four),
        27 | 28 => {
            let rows = usize::try_from(geometry.receivers_max()).expect("small");
            (DOORS + (rows - 1) * DOOR_BYTES + DOOR_TENURE, Width::Eight)
        }
        29 => (DOORS + place / 32 * 8 % (ring - DOORS), Width::Eight),
        30 => (place / 32 * 8 % DOORS, Width::Eight),
        _ => (place / 32 * 64 % all, Width::Eight),
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Ending {
    Open,
    Closed,
    Evicted,
}

/// What an honest sender leaves behind after `count` messages.
fn play(
    geometry: &Geometry,
    policy: Policy,
    memory: &Memory,
    words: &Words,
    count: u64,
    ending: Ending,
) -> Scene {
    words.put_back(&vec![0; words.bytes() / 8]);
    let segment = memory.writable();
    let receivers_max = u32::try_from(geometry.receivers_max()).expect("small");
    let pages = Memory::new(receivers_max as usize * PAGE_BYTES);
    let row = receivers_max - 1;
    let shared = Arc::new(SenderShared::new(receivers_max, true));
    let (slots, sender_words) = (Slots::new(&segment, geometry), SenderWords::new(segment.clone()));
    let channel =
        Channel { shared: &shared, slots: &slots, words: &sender_words, geometry, policy };
    let kernel = Idle::default();
    let lock = Locked(Members::new(receivers_max).into());
    let joined = lock.with(|members| members.join(row, 1, Start::Now, &channel, &kernel));
    let staging = (!policy.keeps_messages()).then(|| Memory::new(1 << 16).writable());
    let rows = Rows::new(&pages.readable(), receivers_max);
    let (geometry, hint) = (*geometry, None);
    let parts = SenderParts {
        segment: segment.clone(),
        policy,
        staging,
        geometry,
        rows,
        hint,
        shared: Arc::clone(&shared),
    };
    let mut sender = Sender::new(parts, kernel);
    for number in 0..count {
        let bytes = length_of(number, &geometry);
        let mut loan = sender
            .loan_with::<_, _, ()>(bytes, &lock, |sender| {
                // Its receiver has read everything.
                let cursor = row as usize * PAGE_BYTES + CURSOR;
                pages.words().store(cursor, Width::Eight, sender.head());
                sender.give_up_for(bytes);
                sender.refresh(&lock);
                Ok(())
            })
            .expect("room");
        loan.fill(text_of(number, bytes));
        loan.send();
    }
    match ending {
        Ending::Open => {}
        Ending::Closed => sender.close(),
        Ending::Evicted => {
            let tenure = u64::from(joined.generation) << 32 | 2;
            words.store(DOORS + row as usize * DOOR_BYTES + DOOR_TENURE, Width::Eight, tenure);
        }
    }
    Scene { words: words.to_vec(), head: count, row, generation: joined.generation }
}

/// Makes the state look as if `base` messages had been sent before. `base` must be a multiple of
/// the slots.
fn shift(words: &Words, geometry: &Geometry, base: u64) {
    if base == 0 {
        return;
    }
    let ring = usize::try_from(geometry.ring_offset()).expect("small");
    for index in 0..usize::try_from(geometry.slots()).expect("small") {
        let at = ring + index * SLOT_BYTES + STAMP;
        let stamp = words.load(at, Width::Eight);
        if stamp != 0 {
            words.store(at, Width::Eight, stamp_of(sequence_of(stamp).wrapping_add(base)));
        }
    }
    for at in [FLOOR, CLOSED] {
        let found = words.load(at, Width::Eight);
        if found != 0 {
            words.store(at, Width::Eight, found.wrapping_add(base));
        }
    }
}

/// A receiver whose sender claims `count` messages of the maximum length, one after the other. Most
/// of these terabytes do not exist; nothing reads them.
pub fn pass_longest_messages(count: u64) -> u64 {
    let geometry = Geometry::new(2, 256, MESSAGE_BYTES_MAX, 1).expect("the longest is possible");
    let memory = Memory::new(usize::try_from(geometry.segment_bytes()).expect("64 bits"));
    let (words, sender) = (memory.words(), memory.readable());
    let own = Memory::new(PAGE_BYTES).writable();
    let scene = Scene { words: Vec::new(), head: 0, row: 0, generation: 1 };
    let parts = parts(&geometry, Policy::Block, (&sender, &own, None), &scene, 0, true);
    let mut receiver = Receiver::new(parts, Idle::default());
    let ring = usize::try_from(geometry.ring_offset()).expect("small");
    for slot in [ring, ring + SLOT_BYTES] {
        words.store(slot + HEADER, Width::Eight, KIND_LARGE);
        words.store(slot + LENGTH, Width::Eight, geometry.message_bytes_max());
    }
    for number in 0..count {
        let slot = ring + if number % 2 == 0 { 0 } else { SLOT_BYTES };
        words.store(slot + STAMP, Width::Eight, stamp_of(number));
        let snapshot = receiver.snapshot_with(|receiver| Err::<(), _>(look(receiver)));
        assert!(snapshot.is_ok_and(|snapshot| snapshot.bytes() as u64 == MESSAGE_BYTES_MAX));
    }
    receiver.next()
}

fn parts(
    geometry: &Geometry,
    policy: Policy,
    (sender, own, hint): (&Region, &Region, Option<&Region>),
    scene: &Scene,
    start: u64,
    is_fenced: bool,
) -> ReceiverParts {
    let welcome = Welcome {
        row: scene.row,
        start,
        epoch: 0,
        incarnation: 1,
        hint: hint.is_some(),
        table: false,
        settled: start,
        generation: scene.generation,
    };
    ReceiverParts {
        sender: sender.clone(),
        geometry: *geometry,
        fence_mode: if is_fenced { FenceMode::Fenced } else { FenceMode::Asymmetric },
        policy,
        own: own.clone(),
        hint: hint.cloned(),
        welcome,
        shared: Arc::new(ReceiverShared::default()),
        many: None,
    }
}
