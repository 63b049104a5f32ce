//! An endpoint with a hostile peer. Every word of that peer's segment may hold anything, and so may
//! every word of the endpoint's own activity page, which all its peers write. The other peer is
//! honest; it neither gains nor loses a message because of the hostile one.

mod large;

use std::hint::black_box;
use std::sync::Arc;

use corewire_layout::endpoint::{
    ACTIVE, ACTIVITY_BYTES, DOORBELL, ENDPOINT_BLOCKED, ENDPOINT_CPU, ENDPOINT_MODE,
    ENDPOINT_SLEEPING, EndpointSizes, ROW_CURSOR, ROW_HELPED, ROW_PULLED, ROW_RING, ROW_STATE,
    SUMMARY,
};
use corewire_layout::grants::HEAP_CHUNK_BYTES;
use corewire_layout::pair::{SlotKind, block, fragment, pair_stamp, stamp_bits};
use corewire_layout::rendezvous::OFFERS_MAX;
use corewire_layout::segment::FenceMode;
use corewire_layout::slot::{HEADER, LENGTH, POSITION, SLOT_BYTES, STAMP};
use corewire_ring::Trusted;
use corewire_ring::message::{Envelope, Held, Space, Wanted};
use corewire_ring::pair::{
    Activity, Endpoint, EndpointMemory, EndpointParts, EndpointShared, Lending, PairViolation,
    PeerParts, Polling, Short,
};
use corewire_ring::region::Region;

use large::Large;
pub use large::LargeTally;

use crate::effort::Effort;
use crate::kernel::Idle;
use crate::memory::{Memory, Width, Words};
use crate::step::Step;

/// Steps before a new hostile peer replaces the old one.
const STEPS_PER_SCENE: u64 = 32;
/// Calls that follow each word that is written.
const CALLS: u16 = 9;
/// Lengths of messages: some take one slot, some two or three, one a cell, one several cells.
const LENGTHS: [usize; 8] = [0, 48, 49, 104, 105, 160, 161, 9000];
/// Rows of the endpoint. The two peers do not know each other.
const HOSTILE: u32 = 0;
const HONEST: u32 = 2;
/// After at most this many polls every message of an honest peer has arrived, whatever the activity
/// page holds.
const POLLS_MAX: u32 = 1 << 14;

/// Kinds of words that a step may write.
const SITES: usize = 32;

/// What the hostile peer and its victim grant each other.
const GRANTED: u64 = 64 << 10;

type Pairs = Endpoint<Idle>;

/// An endpoint and its memory.
#[derive(Debug)]
struct Owner {
    words: Words,
    page_words: Words,
    /// As the endpoint itself maps them, then as others do.
    own: Region,
    page: Region,
    shown: Region,
    shown_page: Region,
    sizes: EndpointSizes,
}

impl Owner {
    fn new() -> Self {
        let sizes = EndpointSizes::new(4, 2, 8, 4, 4096);
        let sizes = sizes.and_then(|sizes| sizes.with_heap(4 * HEAP_CHUNK_BYTES));
        let sizes = sizes.expect("possible sizes");
        let bytes = usize::try_from(sizes.segment_bytes()).expect("small");
        let (segment, page) = (Memory::new(bytes), Memory::new(ACTIVITY_BYTES));
        Self {
            words: segment.words(),
            page_words: page.words(),
            own: segment.writable(),
            page: page.writable(),
            shown: segment.readable(),
            shown_page: page.writable(),
            sizes,
        }
    }

    fn start(&self, kernel: &Idle) -> Pairs {
        let activity = Activity::new(self.page.clone());
        let parts = EndpointParts {
            memory: EndpointMemory::new(self.own.clone(), self.sizes),
            shared: Arc::new(EndpointShared::new(&activity)),
            activity,
            fence_mode: FenceMode::Fenced,
        };
        Endpoint::new(parts, kernel.clone())
    }

    fn as_peer(&self, row_there: u32) -> PeerParts {
        PeerParts {
            memory: EndpointMemory::new(self.shown.clone(), self.sizes),
            activity: Activity::new(self.shown_page.clone()),
            row_there,
            fence_mode: FenceMode::Fenced,
            // SAFETY: no thread writes during a call.
            trusted: unsafe { Trusted::assume() },
        }
    }

    /// Resets a row and adds a peer there.
    fn meet(&self, pairs: &mut Pairs, row: u32, peer: PeerParts) {
        let memory = EndpointMemory::new(self.own.clone(), self.sizes);
        Pairs::reset_row(&memory, row);
        assert!(pairs.add_peer(row, peer));
        pairs.open(row, 1);
    }
}

/// An endpoint with its hostile peer and its honest peer.
#[derive(Debug)]
pub struct Victim {
    effort: Effort,
    kernel: Idle,
    own: Owner,
    pairs: Pairs,
    hostile: Owner,
    /// The hostile peer as an honest endpoint, until words of its memory are overwritten.
    hostile_pairs: Pairs,
    words: Words,
    page: Words,
    honest_pairs: Pairs,
    /// About how many slots the hostile peer has written.
    around: u64,
    /// Messages to and from the honest peer, and how many have arrived.
    to: Talk,
    from: Talk,
    is_linked: bool,
    buffer: Vec<u8>,
    /// Messages that lie in the hostile peer's memory.
    held: Vec<Held>,
    large: Large,
    steps: u64,
    /// Counts of the outcomes of the calls, to see whether the steps reach anything.
    pub tally: Tally,
}

/// The messages in one direction.
#[derive(Debug, Clone, Default)]
struct Talk {
    sent: u64,
    /// Bytes of the next message that were sent, and its length.
    under_way: u64,
    length: usize,
    come: u64,
    part: Vec<u8>,
}

/// Counts of outcomes.
#[derive(Debug, Clone, Copy, Default)]
pub struct Tally {
    /// Messages of the hostile peer, or parts of them.
    pub hostile: u64,
    /// Whole messages of the honest peer, and messages that it received.
    pub honest: u64,
    /// Impossible values found.
    pub violations: u64,
    /// Polls that found nothing.
    pub empty: u64,
    /// What became of large messages.
    pub large: LargeTally,
}

impl Victim {
    /// Creates an endpoint with both peers.
    #[must_use]
    pub fn new() -> Self {
        let (own, hostile, honest) = (Owner::new(), Owner::new(), Owner::new());
        let kernel = Idle::default();
        let (mut pairs, mut honest_pairs) = (own.start(&kernel), honest.start(&kernel));
        own.meet(&mut pairs, HONEST, honest.as_peer(1));
        honest.meet(&mut honest_pairs, 1, own.as_peer(HONEST));
        Self {
            effort: Effort::of_endpoint(&own.sizes),
            hostile_pairs: hostile.start(&kernel),
            words: hostile.words.clone(),
            page: own.page_words.clone(),
            kernel,
            own,
            pairs,
            hostile,
            honest_pairs,
            around: 0,
            to: Talk::default(),
            from: Talk::default(),
            is_linked: false,
            buffer: vec![0; 4096],
            held: Vec::new(),
            large: Large::default(),
            steps: 0,
            tally: Tally::default(),
        }
    }

    /// Writes one word, then makes every call.
    pub fn step(&mut self, step: &Step) {
        if self.steps.is_multiple_of(STEPS_PER_SCENE) || !self.is_linked {
            self.link();
        }
        self.steps += 1;
        let length = LENGTHS[step.choose(LENGTHS.len())];
        // The hostile peer continues as an honest one would, as far as it can.
        self.around += u64::from(push(&mut self.hostile_pairs, 3, 7, &vec![7; length], &mut 0));
        if step.happens(4) {
            let message = vec![7; 200 + length];
            let envelope = Envelope::tagged(7);
            let sent =
                self.hostile_pairs.send_in_block(3, &envelope, &&message[..], &mut |_, _| true);
            self.around += u64::from(matches!(sent, Lending::Done(true)));
        }
        talk(&mut self.honest_pairs, 1, &mut self.from, length);
        talk(&mut self.pairs, HONEST, &mut self.to, length);
        self.large.go_on_there(&mut self.hostile_pairs, step);
        let (words, offset, width) = self.site(step);
        match usize::from(step.place) % SITES {
            24 | 25 => self.large.tally.words[0] += 1,
            26 | 27 => self.large.tally.words[1] += 1,
            28..=30 => self.large.tally.words[2] += 1,
            _ => {}
        }
        let found = words.load(offset, width);
        words.store(offset, width, self.value(step, found));
        if step.order % 8 == 7 {
            return;
        }
        self.kernel.set(step.happens(1 << 10), step.happens(3));
        for call in 0..CALLS {
            self.call((step.order % CALLS + call) % CALLS, step);
        }
        if !step.happens(5) {
            words.store(offset, width, found);
        }
        self.hear_honest();
        if step.happens(4) {
            self.large.exchange(&mut self.pairs, &mut self.honest_pairs, step);
        }
        self.tally.large = self.large.tally;
    }

    /// Receives everything that the honest peer has sent, and checks that it gets everything sent
    /// to it.
    pub fn finish(&mut self) {
        self.hear_honest();
        assert_eq!((self.from.come, self.to.come), (self.from.sent, self.to.sent));
    }

    /// Links a new hostile peer, whose memory is valid.
    fn link(&mut self) {
        self.held.clear();
        self.large.end_all(&mut self.pairs, &self.effort, &self.kernel);
        self.large.end(&mut self.pairs);
        if let Some(granted) = self.pairs.take_granted(HOSTILE, false) {
            self.pairs.end_granted(granted);
        }
        self.pairs.remove_peer(HOSTILE);
        self.words.put_back(&vec![0; self.words.bytes() / 8]);
        self.hostile_pairs = self.hostile.start(&self.kernel);
        self.own.meet(&mut self.pairs, HOSTILE, self.hostile.as_peer(3));
        self.hostile.meet(&mut self.hostile_pairs, 3, self.own.as_peer(HOSTILE));
        self.held.clear();
        assert!(self.pairs.start_granting(HOSTILE), "nothing is held");
        self.pairs.set_grant(HOSTILE, GRANTED);
        self.hostile_pairs.set_grant(3, GRANTED);
        self.around = 0;
        self.is_linked = true;
    }

    fn violated(&mut self, violation: PairViolation) {
        black_box(violation);
        self.tally.violations += 1;
        self.large.end(&mut self.pairs);
        if let Some(granted) = self.pairs.take_granted(HOSTILE, false) {
            self.pairs.end_granted(granted);
        }
        self.pairs.remove_peer(HOSTILE);
        self.is_linked = false;
    }

    /// The word that a step writes. Most are words that the endpoint reads next.
    fn site(&self, step: &Step) -> (Words, usize, Width) {
        let sizes = &self.own.sizes;
        let place = usize::from(step.place);
        let at = |offset: u64| usize::try_from(offset).expect("small");
        let ring = at(sizes.ring_offset(u64::from(step.place >> 15)));
        let position = self.around.wrapping_add(u64::from(step.place >> 8) % 8);
        let slot = ring + at(position % sizes.ring_slots()) * SLOT_BYTES;
        let row = sizes.row_offset(3);
        let bulk = place / SITES;
        let (offset, width) = match place % SITES {
            24 | 25 => {
                // The first ones are in use.
                let index = if bulk.is_multiple_of(8) { bulk / 8 } else { bulk % 4 };
                let index = u16::try_from(index).unwrap_or_default() % OFFERS_MAX;
                (sizes.offer_offset(index), Width::Eight)
            }
            26 | 27 => (row + ROW_HELPED, Width::Eight),
            28..=30 => (row + ROW_PULLED, Width::Eight),
            0..=4 => (slot + STAMP, Width::Eight),
            5 | 6 => (slot + HEADER, Width::Eight),
            7..=9 => (slot + POSITION, Width::Eight),
            10 => (slot + LENGTH, Width::Eight),
            11 | 12 => (row + ROW_CURSOR, Width::Eight),
            13 => (row + ROW_STATE, Width::Four),
            14 | 15 => (row + ROW_RING, Width::Eight),
            16 => (ENDPOINT_SLEEPING, Width::Four),
            17 => (ENDPOINT_MODE, Width::Four),
            18 => (ENDPOINT_BLOCKED, Width::Four),
            19 => (ENDPOINT_CPU, Width::Four),
            20 => return (self.page.clone(), SUMMARY, Width::Eight),
            21 => return (self.page.clone(), ACTIVE + place / SITES % 16 * 8, Width::Eight),
            22 => return (self.page.clone(), DOORBELL, Width::Four),
            23 if (place / SITES).is_multiple_of(2) => {
                (at(sizes.releases_offset(3)) + place / SITES / 2 % 4 * 8, Width::Eight)
            }
            _ => (place / SITES * 64 % self.words.bytes(), Width::Eight),
        };
        (self.words.clone(), offset, width)
    }

    /// The value that a step writes: anything, or a value close to one that matters.
    fn value(&self, step: &Step, found: u64) -> u64 {
        let (value, sizes) = (step.value, &self.own.sizes);
        if (24..31).contains(&(usize::from(step.place) % SITES)) && !step.shape.is_multiple_of(4) {
            return self.large.value(step);
        }
        let near = |centre: u64| centre.wrapping_add(value % 5).wrapping_sub(2);
        let position = near(self.around);
        let kinds = [
            SlotKind::Inline,
            SlotKind::More,
            SlotKind::Cell,
            SlotKind::NextCell,
            SlotKind::End,
            SlotKind::Request,
            SlotKind::Reply,
            SlotKind::Block,
        ];
        let kind = kinds[usize::try_from(value >> 8 & 0xff).expect("small") % 8];
        // Often none: then more of them mean something.
        let flags = (value >> 40 & 0xf) & (value >> 44 & 0xf);
        let size = [48, 160, sizes.cell_bytes(), sizes.cells_bytes(), 1 << 32]
            [usize::try_from(value >> 16 & 0xff).expect("small") % 5];
        let low = |value: u64| u32::try_from(value & 0xffff_ffff).expect("masked");
        match step.shape % 16 {
            0 => 0,
            1 => u64::MAX,
            2 | 3 => pair_stamp(position, stamp_bits(kind, flags, value >> 24 & 0x7f)),
            4 => pair_stamp(position, stamp_bits(kind, flags, near(size) & 0xff)),
            5 => pair_stamp(position, value >> 48),
            6 | 7 => fragment(low(near(size) / 64 * 64), low(near(size))),
            8 => fragment(low(near(sizes.cells_bytes())), low(near(64))),
            // Blocks: within the heap and beyond it, with bits in use and beyond the last.
            9 if value >> 60 & 1 == 0 => {
                let line = low(near(sizes.heap_bytes() / 64) >> (value >> 56 & 0xf));
                let bit = u16::try_from(value >> 32 & 0x1fff).expect("masked");
                block(line, bit >> (value >> 50 & 0xf))
            }
            9 => near(size),
            10 => (value & 7) << 32 | value >> 32 & 3,
            11 => position,
            12 => near(found),
            13 => found ^ 1 << (value % 64),
            14 => near(u64::MAX),
            _ => value,
        }
    }

    fn call(&mut self, call: u16, step: &Step) {
        if !self.is_linked && call != 4 {
            return;
        }
        let Self { pairs, effort, kernel, buffer, .. } = self;
        match call {
            0 => self.take(true),
            1 => self.take(false),
            2 => {
                let length = LENGTHS[usize::from(step.shape) % LENGTHS.len()];
                let message = vec![9; length];
                let end = effort.bound(kernel, 4, || {
                    push(pairs, HOSTILE, 9, &message, &mut 0);
                    let envelope = Envelope::tagged(9);
                    pairs.send_in_block(HOSTILE, &envelope, &&message[..], &mut |_, _| true);
                    black_box(pairs.spent(HOSTILE));
                    pairs.make_room(HOSTILE)
                });
                if let Err(violation) = end {
                    self.violated(violation);
                }
            }
            3 => {
                let found = effort.bound(kernel, 2, || {
                    black_box((pairs.is_here(HOSTILE), pairs.is_within(HOSTILE)));
                    pairs.has_room(HOSTILE, &Envelope::tagged(0), 1 << 20)?;
                    pairs.has_arrival(HOSTILE)
                });
                if let Err(violation) = found {
                    self.violated(violation);
                }
            }
            4 => effort.bound(kernel, 2, || {
                if pairs.arm(None) {
                    pairs.retract();
                }
                pairs.sleep(u64::MAX, None);
            }),
            5 => effort.bound(kernel, 2, || {
                pairs.hold(HOSTILE);
                black_box(pairs.poll());
                pairs.release(HOSTILE);
            }),
            6 => self.large.offer(pairs, (effort, kernel), step),
            7 => self.large.pull(pairs, (effort, kernel), step),
            _ => effort.bound(kernel, 2, || {
                black_box(pairs.take_ring_back(HONEST) && buffer.is_empty());
                pairs.publish_cursors();
            }),
        }
    }

    /// Polls once, in the short way or the long way, and takes what is there, from any peer.
    fn take(&mut self, is_short: bool) {
        let Self { pairs, effort, kernel, buffer, .. } = self;
        let row = if is_short {
            let polling =
                if self.steps.is_multiple_of(2) { Polling::Once } else { Polling::Repeated };
            let space = if self.steps.is_multiple_of(3) { Space::Untagged } else { Space::Tagged };
            let is_matched = self.steps.is_multiple_of(5);
            match effort.bound(kernel, 1, || {
                if is_matched {
                    pairs.take_matched(|_, _, _, bytes| buffer.get_mut(..bytes))
                } else {
                    pairs.take_inline(polling, &Wanted::any(space), &mut buffer[..48])
                }
            }) {
                Short::Nothing => None,
                Short::Taken { source, tag, bytes, .. } => {
                    let row = Wanted::row_of(source);
                    assert!(bytes <= 48);
                    return self.count(row, tag, bytes, bytes as u64);
                }
                Short::Other(row) => Some(row),
            }
        } else {
            effort.bound(kernel, 1, || pairs.poll())
        };
        let Some(row) = row else {
            self.tally.empty += 1;
            return;
        };
        let arrival = effort.bound(kernel, 1, || pairs.arrival(row));
        match arrival {
            Ok(Some(arrival)) if arrival.is_in_place() => {
                assert_eq!(row, HOSTILE, "only this one was granted something");
                let held = effort.bound(kernel, 1, || pairs.take_block(row, &arrival));
                effort.bound(kernel, 1, || pairs.pass(row, &arrival));
                let held = held.expect("it lies in a block");
                black_box(held.iter().fold(0u8, |sum, &byte| sum ^ byte));
                self.held.push(held);
                if self.held.len() > 8 {
                    let index = usize::try_from(self.steps % 8).expect("small");
                    self.held.swap_remove(index);
                }
                self.count(HOSTILE, arrival.envelope.tag, 0, 0);
            }
            Ok(Some(arrival)) => {
                assert!(arrival.bytes <= buffer.len(), "a fragment of {} bytes", arrival.bytes);
                let bytes = pairs.copy(row, &arrival, 0, &mut buffer[..]);
                effort.bound(kernel, 1, || pairs.pass(row, &arrival));
                self.count(row, arrival.envelope.tag, bytes, arrival.total);
            }
            Ok(None) => {}
            Err(violation) => {
                assert_eq!(row, HOSTILE, "the honest one is not cut off: {violation}");
                self.violated(violation);
            }
        }
    }

    /// Counts a message, or a part of one, that lies in the buffer.
    fn count(&mut self, row: u32, tag: u64, bytes: usize, total: u64) {
        if row == HOSTILE {
            black_box(&self.buffer[..bytes]);
            self.tally.hostile += 1;
            return;
        }
        assert_eq!(row, HONEST, "nobody else is there");
        hear(&mut self.from, tag, &self.buffer[..bytes], total);
        self.tally.honest = self.from.come + self.to.come;
    }

    /// Receives everything that the honest peer has sent, and makes it receive what was sent to it.
    fn hear_honest(&mut self) {
        let mut polls = 0;
        while self.from.come < self.from.sent {
            self.take(polls % 2 == 0);
            polls += 1;
            assert!(polls < POLLS_MAX, "a message of the honest one is lost");
        }
        self.pairs.publish_cursors();
        while self.to.come < self.to.sent {
            let row = self.honest_pairs.poll();
            let arrival = row.map(|row| self.honest_pairs.arrival(row).expect("own memory"));
            if let (Some(row), Some(Some(arrival))) = (row, arrival) {
                let bytes = self.honest_pairs.copy(row, &arrival, 0, &mut self.buffer[..]);
                self.honest_pairs.pass(row, &arrival);
                hear(&mut self.to, arrival.envelope.tag, &self.buffer[..bytes], arrival.total);
            }
            polls += 1;
            assert!(polls < POLLS_MAX, "a message to the honest one is lost");
        }
        self.honest_pairs.publish_cursors();
    }
}

impl Default for Victim {
    fn default() -> Self {
        Self::new()
    }
}

fn text_of(number: u64, bytes: usize) -> Vec<u8> {
    vec![number.to_le_bytes()[0]; bytes]
}

/// Sends the next message of a talk as far as there is room. A message must not be abandoned half
/// way.
fn talk(pairs: &mut Pairs, row: u32, talk: &mut Talk, length: usize) {
    if talk.under_way == 0 {
        talk.length = length;
    }
    let message = text_of(talk.sent, talk.length);
    if push(pairs, row, talk.sent, &message, &mut talk.under_way) {
        talk.sent += 1;
        talk.under_way = 0;
    }
}

fn hear(talk: &mut Talk, tag: u64, bytes: &[u8], total: u64) {
    assert_eq!(tag, talk.come, "a message of the honest one is missing");
    talk.part.extend(bytes);
    if talk.part.len() as u64 == total {
        assert_eq!(talk.part, text_of(tag, talk.part.len()), "message {tag} is damaged");
        talk.part.clear();
        talk.come += 1;
    }
}

/// Sends as much of a message as there is room for. Returns true if that is all of it. Violations
/// of the peer are found by the calls that report them.
fn push(pairs: &mut Pairs, row: u32, tag: u64, message: &[u8], sent: &mut u64) -> bool {
    loop {
        if message.len() <= 160 {
            if pairs.try_send(row, &Envelope::tagged(tag), message) {
                return true;
            }
        } else {
            let bytes = pairs.send_fragment(row, &Envelope::tagged(tag), &message, *sent);
            *sent += bytes;
            if *sent == message.len() as u64 {
                return true;
            }
            if bytes > 0 {
                continue;
            }
        }
        if !pairs.has_ring(row) {
            if pairs.next_ring().is_none() || !pairs.assign_ring(row) {
                return false;
            }
        } else if !pairs
            .has_room(row, &Envelope::tagged(tag), message.len() as u64)
            .unwrap_or(false)
        {
            return false;
        }
    }
}
