//! A sender with one hostile receiver, and with honest receivers that must get every message.

use std::hint::black_box;
use std::sync::{Arc, LazyLock};

use corewire_layout::PAGE_BYTES;
use corewire_layout::counters::ControlCounter;
use corewire_layout::frame::Start;
use corewire_layout::geometry::Geometry;
use corewire_layout::segment::{
    CURSOR, FenceMode, HINT, Policy, RECEIVER_CPU, SLEEP_MODE, SLEEPING, WAKE,
};
use corewire_ring::broadcast::{
    Channel, End, Members, Receiver, ReceiverParts, ReceiverShared, Sender, SenderParts,
    SenderShared, SenderWords, Violation, head_of,
};
use corewire_ring::doorbell::SLEEP_CAP_NS;
use corewire_ring::region::{Region, Rows, Slots};
use corewire_ring::{Lock, Trusted};

use crate::effort::Effort;
use crate::kernel::{Idle, Locked};
use crate::memory::{Memory, Width, Words};
use crate::step::{Random, Step};

/// Steps before the channel is closed and a new one is made.
const STEPS_PER_CHANNEL: u64 = 512;
/// Calls that follow each word that is written.
const CALLS: u16 = 8;
/// Number of checks for room before the harness, in place of the kernel, finds that the hostile
/// receiver died.
const WAITS_MAX: u64 = 4;

/// A sender with its hostile receiver and the honest ones.
#[derive(Debug)]
pub struct Victim {
    geometry: Geometry,
    policy: Policy,
    honest_count: u32,
    effort: Effort,
    kernel: Idle,
    segment: Memory,
    segment_words: Words,
    row_pages: Memory,
    row_words: Words,
    hint: Option<(Memory, Words)>,
    running: Option<Running>,
    steps: u64,
    /// Counts of the outcomes of the calls.
    pub tally: Tally,
}

/// Counts of outcomes.
#[derive(Debug, Clone, Copy, Default)]
pub struct Tally {
    /// Messages that were sent.
    pub sent: u64,
    /// Messages that honest receivers received and checked.
    pub checked: u64,
    /// How often the hostile receiver was removed because of an impossible cursor.
    pub violations: u64,
    /// How often the hostile receiver was evicted.
    pub evictions: u64,
    /// How often the hostile receiver held the sender back until the harness declared it dead.
    pub deaths: u64,
}

#[derive(Debug)]
struct Running {
    sender: Sender<Idle>,
    shared: Arc<SenderShared>,
    slots: Slots,
    words: SenderWords,
    lock: Locked,
    honest: Vec<Honest>,
    hostile: Option<u32>,
    now_ns: u64,
}

#[derive(Debug)]
struct Honest {
    receiver: Receiver<Idle>,
    number: u64,
    buffer: Vec<u8>,
}

/// The bytes from which messages are cut.
static TEXT: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let mut random = Random::new(7);
    (0..4096).map(|_| random.number().to_le_bytes()[3]).collect()
});

/// The length of message `number`: most fit a slot, some need the window, a few the large area.
#[must_use]
pub fn length_of(number: u64, geometry: &Geometry) -> usize {
    let wanted = match number % 32 {
        5 | 21 => 49 + number % (geometry.window_message_bytes_max() - 48),
        11 => geometry.message_bytes_max() - number % 7,
        _ => number % 49,
    };
    usize::try_from(wanted.min(geometry.message_bytes_max())).expect("small")
}

/// The content of message `number` with this length.
#[must_use]
pub fn text_of(number: u64, bytes: usize) -> &'static [u8] {
    let start = usize::try_from(number * 7 % 1021).expect("small");
    &TEXT[start..start + bytes]
}

struct Nothing;

impl From<Violation> for Nothing {
    fn from(violation: Violation) -> Self {
        panic!("an honest sender: {violation}");
    }
}

impl Honest {
    /// Reads every message that is there and checks it.
    fn read(&mut self, geometry: &Geometry) {
        let Self { receiver, number, buffer } = self;
        // SAFETY: this test's sender follows the protocol.
        let trusted = unsafe { Trusted::assume() };
        if let Some(in_place) = receiver.in_place(trusted) {
            while let Ok(message) = receiver.receive_with(in_place, |_| Err::<(), _>(Nothing)) {
                check(&message, number, geometry);
            }
        } else {
            while let Ok(mut message) = receiver.snapshot_with(|_| Err::<(), _>(Nothing)) {
                let bytes = message.bytes();
                message.copy_out(0, &mut buffer[..bytes]).expect("read before it was lost");
                check(&buffer[..bytes], number, geometry);
            }
        }
        assert_eq!(receiver.missed(), 0);
        receiver.publish_cursor();
    }
}

fn check(message: &[u8], number: &mut u64, geometry: &Geometry) {
    let expected = text_of(*number, length_of(*number, geometry));
    assert!(message == expected, "message {number} is not what was sent");
    *number += 1;
}

impl Victim {
    /// Creates a sender of a channel with this geometry and policy, and `honest_count` honest
    /// receivers.
    #[must_use]
    pub fn new(geometry: Geometry, policy: Policy, honest_count: u32) -> Self {
        let segment = Memory::new(usize::try_from(geometry.segment_bytes()).expect("small"));
        let rows = usize::try_from(geometry.receivers_max()).expect("small");
        let row_pages = Memory::new(rows * PAGE_BYTES);
        let hint = (rows > 8).then(|| Memory::new(PAGE_BYTES));
        let hint = hint.map(|memory| {
            let words = memory.words();
            (memory, words)
        });
        Self {
            geometry,
            policy,
            honest_count,
            effort: Effort::of(&geometry),
            kernel: Idle::default(),
            segment_words: segment.words(),
            segment,
            row_words: row_pages.words(),
            row_pages,
            hint,
            running: None,
            steps: 0,
            tally: Tally::default(),
        }
    }

    /// The hostile receiver's page and the hint, for another thread that writes them during calls.
    #[must_use]
    pub fn race(&self) -> Attack {
        Attack {
            page: self.row_words.clone(),
            hint: self.hint.as_ref().map(|(_, words)| words.clone()),
            geometry: self.geometry,
        }
    }

    /// Number of messages sent on the current channel.
    #[must_use]
    pub fn head(&self) -> u64 {
        self.running.as_ref().map_or(0, |running| running.sender.head())
    }

    /// Makes the next step begin with a new channel, as the first step does.
    pub fn begin_anew(&mut self) {
        self.steps = 0;
    }

    /// Writes one word, then makes every call.
    pub fn step(&mut self, step: &Step) {
        if self.steps.is_multiple_of(STEPS_PER_CHANNEL) {
            self.finish();
            self.begin();
        }
        self.steps += 1;
        self.race().write(step, self.head());
        if step.order % 8 == 7 {
            return;
        }
        self.kernel.set(step.happens(1 << 10), step.happens(3));
        for call in 0..CALLS {
            self.call((step.order % CALLS + call) % CALLS, step);
            self.drop_rejected();
            // Under `Overwrite` the sender waits for no receiver, so they must read after every
            // call.
            if self.policy == Policy::Overwrite || step.happens(2) {
                self.read();
            }
        }
        self.join(step);
    }

    /// Closes the channel. All honest receivers must get the rest and then the end.
    pub fn finish(&mut self) {
        let Some(mut running) = self.running.take() else { return };
        let sender = &mut running.sender;
        self.effort.bound(&self.kernel, 1, || sender.close());
        let head = running.sender.head();
        self.tally.sent += head;
        for honest in &mut running.honest {
            honest.read(&self.geometry);
            assert_eq!(honest.number, head);
            assert_eq!(honest.receiver.end(), Ok(Some(End::Closed)));
            self.tally.checked += honest.number;
        }
    }

    fn begin(&mut self) {
        self.segment_words.put_back(&vec![0; self.segment_words.bytes() / 8]);
        self.row_words.put_back(&vec![0; self.row_words.bytes() / 8]);
        let (geometry, policy) = (self.geometry, self.policy);
        let receivers_max = u32::try_from(geometry.receivers_max()).expect("small");
        let segment = self.segment.writable();
        let shared = Arc::new(SenderShared::new(receivers_max, true));
        let (slots, words) = (Slots::new(&segment, &geometry), SenderWords::new(segment.clone()));
        let lock = Locked(Members::new(receivers_max).into());
        let hint = self.hint.as_ref().map(|(memory, _)| memory.writable());
        let channel =
            Channel { shared: &shared, slots: &slots, words: &words, geometry: &geometry, policy };
        let joined = lock.with(|members| members.join(0, 1, Start::Now, &channel, &self.kernel));
        assert_eq!(joined.start, 0);
        let reader = self.segment.readable();
        let honest = (1..=self.honest_count)
            .map(|row| {
                let joined =
                    lock.with(|members| members.join(row, 1, Start::Now, &channel, &self.kernel));
                let welcome = joined.welcome(row, 1, hint.is_some());
                let parts = ReceiverParts {
                    sender: reader.clone(),
                    geometry,
                    fence_mode: FenceMode::Fenced,
                    policy,
                    own: self.row_pages.writable_page(row as usize),
                    hint: hint.clone(),
                    welcome,
                    shared: Arc::new(ReceiverShared::default()),
                    many: None,
                };
                let receiver = Receiver::new(parts, self.kernel.clone());
                Honest { receiver, number: 0, buffer: vec![0; 4096] }
            })
            .collect();
        let longest = usize::try_from(geometry.message_bytes_max()).expect("small").max(48);
        let staging: Option<Region> =
            (!policy.keeps_messages()).then(|| Memory::new(longest).writable());
        let rows = Rows::new(&self.row_pages.readable(), receivers_max);
        let parts = SenderParts {
            segment,
            policy,
            staging,
            geometry,
            rows,
            hint,
            shared: Arc::clone(&shared),
        };
        let sender = Sender::new(parts, self.kernel.clone());
        let hostile = Some(0);
        self.running =
            Some(Running { sender, shared, slots, words, lock, honest, hostile, now_ns: 1 });
    }

    fn running(&mut self) -> &mut Running {
        self.running.as_mut().expect("begun")
    }

    fn read(&mut self) {
        let geometry = self.geometry;
        self.running().honest.iter_mut().for_each(|honest| honest.read(&geometry));
    }

    fn call(&mut self, call: u16, step: &Step) {
        let sizes = [0, 48, 49, 200, 1 << 20];
        let longest = usize::try_from(self.geometry.message_bytes_max()).expect("small");
        let bytes = sizes[usize::try_from(step.value % 5).expect("small")].min(longest);
        let (effort, kernel) = (self.effort, self.kernel.clone());
        match call {
            0 => self.send(step.order >> 8 & 3, step.happens(3)),
            1 => self.send(4, step.happens(5)),
            2 => {
                let sender = &mut self.running().sender;
                effort.bound(&kernel, 2, || {
                    if sender.someone_sleeps() {
                        sender.ring_bell();
                    }
                });
            }
            3 => {
                let Running { sender, lock, .. } = self.running();
                effort.bound(&kernel, 1, || sender.refresh(lock));
                black_box((sender.has_room(bytes), sender.is_drained()));
            }
            4 => {
                let cap_ns = if step.happens(2) { SLEEP_CAP_NS } else { 1 };
                let Running { sender, lock, .. } = self.running();
                effort.bound(&kernel, 4, || {
                    sender.sleep_until(lock, cap_ns, |sender| sender.has_room(bytes));
                });
            }
            5 => {
                // Honest receivers read in time, so they are not evicted.
                self.read();
                let Running { sender, lock, now_ns, .. } = self.running();
                sender.refresh(lock);
                *now_ns += step.value % 3;
                effort.bound(&kernel, 1, || sender.evict_stalled(bytes, *now_ns, lock));
            }
            6 => {
                let Running { sender, lock, .. } = self.running();
                effort.bound(&kernel, 1, || {
                    sender.give_up_for(bytes);
                    sender.forget_stalls(lock);
                });
            }
            _ => {
                let Running { sender, slots, .. } = self.running();
                effort.bound(&kernel, 1, || {
                    sender.publish_counters();
                    sender.count_wait();
                    black_box(sender.receiver_cpu(0));
                });
                assert_eq!(head_of(slots), sender.head());
            }
        }
    }

    /// Sends one message in the given way. The message always gets through: a receiver that holds
    /// the sender back forever is declared dead.
    fn send(&mut self, way: u16, is_dropped: bool) {
        let (effort, kernel, geometry, policy) =
            (self.effort, self.kernel.clone(), self.geometry, self.policy);
        let number = self.running().sender.head();
        let bytes = length_of(number, &geometry);
        let text = text_of(number, bytes);
        let Self { running: Some(running), tally, .. } = self else { return };
        let Running { sender, shared, slots, words, lock, honest, hostile, now_ns } = running;
        if way == 0 && effort.bound(&kernel, 2, || sender.try_send_inline(text)) {
            return;
        }
        let channel = Channel { shared, slots, words, geometry: &geometry, policy };
        let longest = usize::try_from(geometry.message_bytes_max()).expect("small");
        let lent = if way == 2 { (bytes + 100).min(longest) } else { bytes };
        let mut waits = 0;
        let loan = sender.loan_with(lent, lock, |sender| {
            waits += 1;
            honest.iter_mut().for_each(|honest| honest.read(&geometry));
            effort.bound(&kernel, 2, || {
                sender.refresh(lock);
                sender.give_up_for(lent);
            });
            if sender.has_room(lent) {
                return Ok(());
            }
            assert!(hostile.is_some() && waits <= WAITS_MAX, "nobody holds it back");
            *now_ns += 1;
            effort.bound(&kernel, 1, || sender.evict_stalled(lent, *now_ns, lock));
            drop_rejected(lock, &channel, hostile, tally);
            effort.bound(&kernel, 4, || sender.sleep_until(lock, 1, |ring| ring.has_room(lent)));
            if waits == WAITS_MAX
                && let Some(row) = hostile.take()
            {
                tally.deaths += 1;
                lock.with(|members| members.leave(row, &channel, ControlCounter::Deaths));
            }
            Ok::<(), ()>(())
        });
        let mut loan = loan.expect("never given up");
        if is_dropped {
            return;
        }
        loan.truncate(bytes);
        loan.fill(text);
        effort.bound(&kernel, 2, || if way == 3 { loan.send_quietly() } else { loan.send() });
    }

    fn drop_rejected(&mut self) {
        let (geometry, policy) = (self.geometry, self.policy);
        let Self { running: Some(running), tally, .. } = self else { return };
        let Running { shared, slots, words, lock, hostile, .. } = running;
        let channel = Channel { shared, slots, words, geometry: &geometry, policy };
        drop_rejected(lock, &channel, hostile, tally);
    }

    /// Lets the hostile receiver join again, or sometimes leave.
    fn join(&mut self, step: &Step) {
        let (geometry, policy, kernel) = (self.geometry, self.policy, self.kernel.clone());
        let effort = self.effort;
        let Running { sender, shared, slots, words, lock, hostile, .. } = self.running();
        let channel = Channel { shared, slots, words, geometry: &geometry, policy };
        if let Some(row) = *hostile {
            if step.happens(64) {
                lock.with(|members| members.leave(row, &channel, ControlCounter::Leaves));
                *hostile = None;
            }
            return;
        }
        let start = if step.happens(2) { Start::Oldest } else { Start::Now };
        let row = lock.with(|members| members.free_row()).expect("its own is free");
        let joined = effort.bound(&kernel, 2, || {
            lock.with(|members| members.join(row, 1, start, &channel, &kernel))
        });
        let head = sender.head();
        assert!(joined.start <= head && head - joined.start <= geometry.slots());
        *hostile = Some(row);
        // Its page is new, unless it had filled the page before it joined.
        if step.happens(3) {
            self.row_words.store(row as usize * PAGE_BYTES + CURSOR, Width::Eight, 0);
        }
    }
}

/// What the control thread does with receivers whose words are impossible or that were too slow.
fn drop_rejected(
    lock: &Locked,
    channel: &Channel<'_>,
    hostile: &mut Option<u32>,
    tally: &mut Tally,
) {
    lock.with(|members| {
        for row in members.take_evicted() {
            assert_eq!(Some(row), hostile.take(), "an honest receiver was evicted");
            tally.evictions += 1;
            members.leave(row, channel, ControlCounter::Evictions);
        }
        for row in members.take_violators() {
            assert_eq!(Some(row), hostile.take(), "an honest receiver was dropped");
            tally.violations += 1;
            members.leave(row, channel, ControlCounter::Violations);
        }
    });
}

/// The memory that the hostile receiver can write: its own page in row 0, and the hint.
#[derive(Debug, Clone)]
pub struct Attack {
    page: Words,
    hint: Option<Words>,
    geometry: Geometry,
}

impl Attack {
    /// Writes one word. `head` is the number of messages sent.
    pub fn write(&self, step: &Step, head: u64) {
        if let Some(hint) = self.hint.as_ref().filter(|_| step.place % 16 == 15) {
            let found = hint.load(HINT, Width::Four);
            return hint.store(HINT, Width::Four, step.value(head, found, &self.geometry));
        }
        let place = usize::from(step.place);
        let (offset, width) = match place % 16 {
            0..=6 => (CURSOR, Width::Eight),
            7..=9 => (SLEEPING, Width::Four),
            10 | 11 => (SLEEP_MODE, Width::Four),
            12 => (WAKE, Width::Four),
            13 => (RECEIVER_CPU, Width::Four),
            _ => (place / 16 * 8 % PAGE_BYTES, Width::Eight),
        };
        let found = self.page.load(offset, width);
        self.page.store(offset, width, step.value(head, found, &self.geometry));
    }
}
