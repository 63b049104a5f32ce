//! Loom's variant of `region.rs`: the same types over words that loom tracks.
//!
//! A region here consists of words and of cells that stand for payload, each at an offset. Every
//! access to a payload is reported to loom as an access to the cells that it touches, so that a
//! byte that is written while another thread reads it fails the model. The bytes themselves lie in
//! plain memory: loom runs one thread at a time, and reports the race before it can show in them.
//!
//! `Region::new`, `private` and `address` have no counterpart: a model has no addresses.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cell;
use core::fmt;
use core::iter;
use core::ops::{Deref, Range};
use core::ptr::NonNull;

use corewire_layout::counters::COUNTERS_MAX;
use corewire_layout::endpoint::{
    ACTIVE, ACTIVITY_BYTES, DOORBELL, ENDPOINT_BLOCKED, ENDPOINT_COUNTERS, ENDPOINT_CPU,
    ENDPOINT_MODE, ENDPOINT_SLEEPING, EndpointSizes, ROW_BYTES, ROW_COUNTERS, ROW_CURSOR, ROW_RING,
    ROW_STATE, SUMMARY,
};
use corewire_layout::geometry::Geometry;
use corewire_layout::pair::{HEAD_BYTES, IMMEDIATE_BYTES, MORE, MORE_BYTES};
use corewire_layout::segment::{
    BELL, BLOCKED, CLOSED, CONTROL_COUNTERS, CURSOR, DOOR_BYTES, DOOR_COUNTERS, DOOR_PID,
    DOOR_SOCKET, DOOR_START, DOOR_TENURE, DOORS, FLOOR, HELD, HELD_UNTIL, HINT, HINT_SEGMENT_BYTES,
    MEMBERS_EPOCH, RECEIVER_COUNTERS, RECEIVER_CPU, ROOM, ROWS_HIGH, SENDER_COUNTERS, SENDER_CPU,
    SENDERS_EPOCH, SLEEP_MODE, SLEEPERS, SLEEPING, TABLE_COUNTERS, TAIL, WAKE,
};
use corewire_layout::slot::{
    CELL_IMMEDIATE, HEADER, INLINE, INLINE_BYTES_MAX, LENGTH, POSITION, SLOT_BYTES, STAMP,
};
use corewire_layout::{LINE_BYTES, PAGE_BYTES, place_of};

use crate::Trusted;
use crate::sync::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// Number of receivers' rows that a model has words for, however many its channel allows.
pub const MODEL_ROWS_MAX: u32 = 2;
/// Number of senders' rows that a model has words for.
const MODEL_SENDERS_MAX: u32 = 3;

/// Bytes of the large area that one cell stands for.
const LARGE_CELL_BYTES: usize = 1024;

/// A stretch of model memory.
#[derive(Clone)]
pub struct Region {
    model: Arc<Model>,
    offset: usize,
    bytes: usize,
}

struct Model {
    words64: Words<AtomicU64>,
    words32: Words<AtomicU32>,
    /// By offset: the number of bytes that the cell stands for, and the cell.
    cells: BTreeMap<usize, (usize, loom::cell::UnsafeCell<()>)>,
    memory: Vec<cell::UnsafeCell<u8>>,
}

// SAFETY: loom runs one thread at a time, and checks through `cells` that the model's threads take
// turns with the bytes.
unsafe impl Send for Model {}
// SAFETY: as for Send.
unsafe impl Sync for Model {}

/// Words by offset. Several offsets may share one word: the counters of a role do, since a model
/// does not use their values, and every word costs it time.
struct Words<W> {
    index_by_offset: BTreeMap<usize, usize>,
    words: Vec<W>,
}

impl<W> Words<W> {
    fn new(groups: Vec<Range<usize>>, bytes: usize, zero: impl Fn() -> W) -> Self {
        let mut index_by_offset = BTreeMap::new();
        let mut words = Vec::new();
        for group in groups {
            assert!(group.end <= bytes, "own layout");
            for offset in group.step_by(size_of::<u32>()) {
                index_by_offset.insert(offset, words.len());
            }
            words.push(zero());
        }
        Self { index_by_offset, words }
    }

    fn get(&self, offset: usize) -> Option<&W> {
        self.index_by_offset.get(&offset).map(|&index| &self.words[index])
    }

    fn at(&self, offset: usize) -> &W {
        match self.get(offset) {
            Some(word) => word,
            None => panic!("the model has no such word at {offset}"),
        }
    }
}

fn one64(offset: usize) -> Range<usize> {
    offset..offset + 8
}

fn one32(offset: usize) -> Range<usize> {
    offset..offset + 4
}

fn counters(offset: usize) -> Range<usize> {
    offset..offset + 8 * COUNTERS_MAX
}

/// The doors of a shared channel that a model has words for. The two halves of a socket share one
/// word: no model reads it.
fn doors(rows: u64, rows_max: u32) -> impl Iterator<Item = usize> {
    (0..own_usize(rows).min(rows_max as usize)).map(|row| DOORS + row * DOOR_BYTES)
}

/// The words and cells of a region under construction.
#[derive(Default)]
struct Plan {
    words64: Vec<Range<usize>>,
    words32: Vec<Range<usize>>,
    cells: Vec<Range<usize>>,
}

impl Plan {
    fn slots(&mut self, geometry: &Geometry) {
        for index in 0..own_usize(geometry.slots()) {
            let slot = own_usize(geometry.ring_offset()) + index * SLOT_BYTES;
            self.words64.extend([STAMP, HEADER, POSITION, LENGTH].map(|at| one64(slot + at)));
            self.cells.push(slot + INLINE..slot + SLOT_BYTES);
        }
    }

    /// The window and the large area of sender `row`.
    fn areas(&mut self, geometry: &Geometry, row: u32) {
        let mut cover = |offset: u64, bytes: u64, unit: usize| {
            let offset = own_usize(offset);
            let starts = (offset..offset + own_usize(bytes)).step_by(unit);
            self.cells.extend(starts.map(|at| at..at + unit));
        };
        cover(geometry.window_offset(row), geometry.window_bytes(), LINE_BYTES);
        cover(geometry.large_offset(row), geometry.large_bytes(), LARGE_CELL_BYTES);
        let window = own_usize(geometry.window_offset(row));
        let lines = (window..window + own_usize(geometry.window_bytes())).step_by(LINE_BYTES);
        self.words64.extend(lines.map(one64));
    }

    /// A receiver's page.
    fn page(&mut self, page: usize) {
        self.words64.push(one64(page + CURSOR));
        self.words64.push(counters(page + RECEIVER_COUNTERS));
        self.words32.extend([SLEEPING, SLEEP_MODE, WAKE, RECEIVER_CPU].map(|at| one32(page + at)));
    }

    fn region(self, bytes: u64) -> Region {
        Region::model(own_usize(bytes), self.words64, self.words32, self.cells)
    }
}

impl Region {
    /// A region of `bytes` bytes with one u64 for each range in `words64`, one u32 for each range
    /// in `words32`, and one payload cell for each range in `cells`.
    ///
    /// # Panics
    /// If a range reaches beyond the region.
    #[must_use]
    pub fn model(
        bytes: usize,
        words64: Vec<Range<usize>>,
        words32: Vec<Range<usize>>,
        cells: Vec<Range<usize>>,
    ) -> Self {
        let cell = |range: Range<usize>| {
            assert!(range.end <= bytes, "own layout");
            (range.start, (range.len(), loom::cell::UnsafeCell::new(())))
        };
        let model = Model {
            words64: Words::new(words64, bytes, || AtomicU64::new(0)),
            words32: Words::new(words32, bytes, || AtomicU32::new(0)),
            cells: cells.into_iter().map(cell).collect(),
            memory: (0..bytes).map(|_| cell::UnsafeCell::new(0)).collect(),
        };
        Self { model: Arc::new(model), offset: 0, bytes }
    }

    /// A sender's segment of this geometry, with the words that the control and data threads use.
    ///
    /// # Panics
    /// If the geometry does not fit this machine.
    #[must_use]
    pub fn model_sender(geometry: &Geometry) -> Self {
        let mut plan = Plan {
            words64: Vec::from([
                one64(CLOSED),
                one64(FLOOR),
                counters(SENDER_COUNTERS),
                counters(CONTROL_COUNTERS),
            ]),
            words32: Vec::from([one32(BELL), one32(SENDER_CPU), one32(BLOCKED)]),
            cells: Vec::new(),
        };
        for door in doors(geometry.receivers_max(), MODEL_ROWS_MAX) {
            plan.words64.extend([DOOR_TENURE, DOOR_START].map(|at| one64(door + at)));
            plan.words32.push(one32(door + DOOR_PID));
        }
        plan.slots(geometry);
        plan.areas(geometry, 0);
        plan.region(geometry.segment_bytes())
    }

    /// The ring of a shared channel of this geometry: the segment that its senders write.
    ///
    /// # Panics
    /// If the geometry does not fit this machine.
    #[must_use]
    pub fn model_ring(geometry: &Geometry) -> Self {
        let mut plan = Plan {
            words64: [TAIL, HELD_UNTIL].map(one64).into(),
            words32: [BELL, SENDER_CPU, BLOCKED, SENDERS_EPOCH, HELD].map(one32).into(),
            cells: Vec::new(),
        };
        for door in doors(geometry.senders_max(), MODEL_SENDERS_MAX) {
            plan.words64.extend([
                one64(door + DOOR_TENURE),
                door + DOOR_SOCKET..door + DOOR_COUNTERS,
                door + DOOR_COUNTERS..door + DOOR_BYTES,
            ]);
            plan.words32.push(one32(door + DOOR_PID));
        }
        plan.slots(geometry);
        for row in (0..MODEL_SENDERS_MAX).take(own_usize(geometry.senders_max())) {
            plan.areas(geometry, row);
        }
        plan.region(geometry.segment_bytes())
    }

    /// The table of a shared channel of this geometry: the segment that all senders and receivers
    /// write.
    ///
    /// # Panics
    /// If the geometry does not fit this machine.
    #[must_use]
    pub fn model_table(geometry: &Geometry) -> Self {
        let mut plan = Plan {
            words64: iter::once(counters(TABLE_COUNTERS)).collect(),
            words32: [SLEEPERS, ROOM, MEMBERS_EPOCH, ROWS_HIGH].map(one32).into(),
            cells: Vec::new(),
        };
        for (row, door) in doors(geometry.receivers_max(), MODEL_ROWS_MAX).enumerate() {
            plan.words64.extend([DOOR_TENURE, DOOR_START].map(|at| one64(door + at)));
            plan.words64.push(door + DOOR_SOCKET..door + DOOR_COUNTERS);
            plan.words32.push(one32(door + DOOR_PID));
            plan.page(own_usize(geometry.table_rows_offset()) + row * PAGE_BYTES);
        }
        plan.region(geometry.table_bytes())
    }

    /// The pages of a channel's receivers. A receiver's own segment is a part of this region.
    #[must_use]
    pub fn model_rows(count: u32) -> Self {
        let mut plan = Plan::default();
        for row in 0..count.min(MODEL_ROWS_MAX) as usize {
            plan.page(row * PAGE_BYTES);
        }
        plan.region(u64::from(count) * PAGE_BYTES as u64)
    }

    /// An endpoint's segment of these sizes.
    ///
    /// # Panics
    /// If the sizes do not fit this machine.
    #[must_use]
    pub fn model_endpoint(sizes: &EndpointSizes) -> Self {
        let mut plan = Plan {
            words64: iter::once(counters(ENDPOINT_COUNTERS)).collect(),
            words32: [ENDPOINT_SLEEPING, ENDPOINT_MODE, ENDPOINT_BLOCKED, ENDPOINT_CPU]
                .map(one32)
                .into(),
            cells: Vec::new(),
        };
        for row in (0..MODEL_ROWS_MAX).take(own_usize(sizes.peers_max())) {
            let row = sizes.row_offset(row);
            plan.words32.push(one32(row + ROW_STATE));
            plan.words64.extend([ROW_RING, ROW_CURSOR].map(|at| one64(row + at)));
            plan.words64.push(row + ROW_COUNTERS..row + ROW_BYTES);
        }
        for ring in 0..sizes.rings() {
            for index in 0..own_usize(sizes.ring_slots()) {
                let slot = own_usize(sizes.ring_offset(ring)) + index * SLOT_BYTES;
                let words = [STAMP, HEADER, POSITION, LENGTH, CELL_IMMEDIATE];
                plan.words64.extend(words.map(|at| one64(slot + at)));
                plan.cells.push(slot + INLINE..slot + SLOT_BYTES);
            }
        }
        let cells = own_usize(sizes.cells_offset());
        let lines = (cells..cells + own_usize(sizes.cells_bytes())).step_by(LINE_BYTES);
        plan.cells.extend(lines.map(|at| at..at + LINE_BYTES));
        plan.region(sizes.segment_bytes())
    }

    /// An endpoint's activity page.
    #[must_use]
    pub fn model_activity() -> Self {
        let words64 = [SUMMARY, ACTIVE].map(one64).into();
        Self::model(ACTIVITY_BYTES, words64, iter::once(one32(DOORBELL)).collect(), Vec::new())
    }

    /// A hint segment.
    #[must_use]
    pub fn model_hint() -> Self {
        let words32 = iter::once(one32(HINT)).collect();
        Self::model(HINT_SEGMENT_BYTES, Vec::new(), words32, Vec::new())
    }

    /// Memory of a single thread, for `bytes` bytes that a sender composes.
    #[must_use]
    pub fn model_private(bytes: usize) -> Self {
        Self::model(bytes, Vec::new(), Vec::new(), iter::once(0..bytes).collect())
    }

    /// Bytes of the region.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The part of `bytes` bytes from `offset`; `None` if it reaches beyond the region.
    #[must_use]
    pub fn part(&self, offset: usize, bytes: usize) -> Option<Self> {
        let end = offset.checked_add(bytes)?;
        let offset = self.offset + offset;
        (end <= self.bytes).then(|| Self { model: Arc::clone(&self.model), offset, bytes })
    }

    /// The u64 at `offset`.
    ///
    /// # Panics
    /// If the model has no such word.
    #[must_use]
    pub fn word64(&self, offset: usize) -> &AtomicU64 {
        assert!(offset.is_multiple_of(8) && offset + 8 <= self.bytes, "own offset");
        self.model.words64.at(self.offset + offset)
    }

    /// The u32 at `offset`.
    ///
    /// # Panics
    /// If the model has no such word.
    #[must_use]
    pub fn word32(&self, offset: usize) -> &AtomicU32 {
        assert!(offset.is_multiple_of(4) && offset + 4 <= self.bytes, "own offset");
        self.model.words32.at(self.offset + offset)
    }

    /// Copies `target.len()` bytes from `offset` out of the region.
    ///
    /// # Panics
    /// If they reach beyond the region.
    pub fn copy_out(&self, offset: usize, target: &mut [u8]) {
        let source = self.payload(offset, target.len(), Access::Read);
        source.show();
        // SAFETY: inside the memory, which `source` keeps; loom has allowed the access.
        unsafe { source.address().copy_to_nonoverlapping(target.as_mut_ptr(), target.len()) };
    }

    /// As [`Region::copy_out`], for bytes that no thread writes meanwhile.
    ///
    /// # Safety
    /// The bytes are published, and their writer does not change them during the call; loom checks
    /// this.
    ///
    /// # Panics
    /// If they reach beyond the region.
    pub unsafe fn copy_out_still(&self, _trusted: Trusted, offset: usize, target: &mut [u8]) {
        self.copy_out(offset, target);
    }

    /// Copies `source` into the region at `offset`.
    ///
    /// # Panics
    /// If it reaches beyond the region.
    pub fn copy_in(&self, offset: usize, source: &[u8]) {
        let mut target = self.payload(offset, source.len(), Access::Write);
        // SAFETY: the caller writes before any other thread sees the region; loom checks this.
        unsafe { target.fill(source) };
    }

    fn payload(&self, offset: usize, bytes: usize, access: Access) -> Payload {
        assert!(offset + bytes <= self.bytes, "own offset");
        let model = NonNull::from(&*self.model);
        Payload { model, offset: self.offset + offset, bytes, access }
    }
}

impl fmt::Debug for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Region").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

/// One u32 of a region, located once.
#[derive(Debug, Clone)]
pub struct Word32 {
    region: Region,
    offset: usize,
}

/// One u64 of a region, located once.
#[derive(Debug, Clone)]
pub struct Word64 {
    region: Region,
    offset: usize,
}

impl Region {
    /// The u32 at `offset`, as a value that keeps the region.
    #[must_use]
    pub fn keep32(&self, offset: usize) -> Word32 {
        Word32 { region: self.clone(), offset }
    }

    /// The u64 at `offset`, as a value that keeps the region.
    #[must_use]
    pub fn keep64(&self, offset: usize) -> Word64 {
        Word64 { region: self.clone(), offset }
    }
}

impl Deref for Word32 {
    type Target = AtomicU32;

    fn deref(&self) -> &AtomicU32 {
        self.region.word32(self.offset)
    }
}

impl Deref for Word64 {
    type Target = AtomicU64;

    fn deref(&self) -> &AtomicU64 {
        self.region.word64(self.offset)
    }
}

/// The slots of a ring.
#[derive(Debug, Clone)]
pub struct Slots {
    ring: Region,
    mask: u64,
}

impl Slots {
    /// The ring of a segment of this geometry.
    ///
    /// # Panics
    /// If the region is shorter than its geometry says.
    #[must_use]
    pub fn new(segment: &Region, geometry: &Geometry) -> Self {
        Self::at_offset(segment, own_usize(geometry.ring_offset()), geometry.slots())
    }

    /// `slots` slots (a power of two) from `offset` in `region`.
    ///
    /// # Panics
    /// If they reach beyond the region or their number is not a power of two.
    #[must_use]
    pub fn at_offset(region: &Region, offset: usize, slots: u64) -> Self {
        assert!(slots.is_power_of_two() && offset.is_multiple_of(SLOT_BYTES), "own geometry");
        let ring = region.part(offset, own_usize(slots) * SLOT_BYTES).expect("own geometry");
        Self { ring, mask: slots - 1 }
    }

    /// Number of slots.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.mask + 1
    }

    /// The slot of message `sequence`.
    #[must_use]
    pub fn at(&self, sequence: u64) -> Slot<'_> {
        Slot { ring: &self.ring, offset: own_usize(sequence & self.mask) * SLOT_BYTES }
    }

    /// The slot at `place`.
    ///
    /// # Safety
    /// `place` is that of a slot of this ring; loom panics otherwise.
    #[must_use]
    pub unsafe fn at_place(&self, place: Place) -> Slot<'_> {
        Slot { ring: &self.ring, offset: place.0 }
    }
}

/// The offset of a slot in its ring.
#[derive(Debug, Clone, Copy)]
pub struct Place(usize);

/// Walks over a ring's slots, one after the other.
#[derive(Debug, Clone)]
pub struct Walk {
    slots: Slots,
    position: u64,
}

impl Walk {
    /// A walk that stands at the slot of `position`.
    ///
    /// # Safety
    /// As in `region.rs`; a model's slots stay valid.
    #[must_use]
    pub unsafe fn new(slots: &Slots, position: u64) -> Self {
        Self { slots: slots.clone(), position }
    }

    /// Moves to the slot of `position`.
    pub fn go_to(&mut self, position: u64) {
        self.position = position;
    }

    /// The slot where the walk stands.
    #[must_use]
    pub fn slot(&self) -> Slot<'_> {
        self.slots.at(self.position)
    }
}

/// One slot.
#[derive(Debug, Clone, Copy)]
pub struct Slot<'a> {
    ring: &'a Region,
    offset: usize,
}

impl<'a> Slot<'a> {
    /// The word that publishes the slot.
    #[must_use]
    pub fn stamp(self) -> &'a AtomicU64 {
        self.ring.word64(self.offset + STAMP)
    }

    /// The length of an inline payload, or the kind.
    #[must_use]
    pub fn header(self) -> &'a AtomicU64 {
        self.ring.word64(self.offset + HEADER)
    }

    /// Virtual position of a payload that lies elsewhere.
    #[must_use]
    pub fn position(self) -> &'a AtomicU64 {
        self.ring.word64(self.offset + POSITION)
    }

    /// Length in bytes of a payload that lies elsewhere.
    #[must_use]
    pub fn length(self) -> &'a AtomicU64 {
        self.ring.word64(self.offset + LENGTH)
    }

    /// The offset of the slot.
    #[must_use]
    pub fn place(self) -> Place {
        Place(self.offset)
    }

    /// Does nothing: a model has no processor caches.
    pub fn prefetch_to_read(self) {}

    /// Does nothing, as above.
    pub fn prefetch_to_write(self) {}

    /// The inline payload's first `bytes` bytes (at most 48).
    #[must_use]
    pub fn payload(self, bytes: usize, access: Access) -> Payload {
        let payload = self.ring.payload(self.offset + INLINE, bytes.min(INLINE_BYTES_MAX), access);
        payload.show();
        payload
    }

    /// The immediate before an inline payload, in a pair ring.
    #[must_use]
    pub fn immediate(self) -> &'a AtomicU64 {
        self.ring.word64(self.offset + INLINE)
    }

    /// The immediate beside a payload that lies in a cell, in a pair ring.
    #[must_use]
    pub fn cell_immediate(self) -> &'a AtomicU64 {
        self.ring.word64(self.offset + CELL_IMMEDIATE)
    }

    /// The first `bytes` bytes (at most 40) of the inline payload behind an immediate.
    #[must_use]
    pub fn behind_immediate(self, bytes: usize, access: Access) -> Payload {
        let bytes = bytes.min(HEAD_BYTES - IMMEDIATE_BYTES);
        let payload = self.ring.payload(self.offset + INLINE + IMMEDIATE_BYTES, bytes, access);
        payload.show();
        payload
    }

    /// The payload of a slot that continues the message of the slot before it.
    #[must_use]
    pub fn more(self, bytes: usize, access: Access) -> Payload {
        let payload = self.ring.payload(self.offset + MORE, bytes.min(MORE_BYTES), access);
        payload.show();
        payload
    }
}

/// The purpose for which a payload is accessed. Loom checks that no other thread accesses it in a
/// conflicting way meanwhile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// To be written, before the message's stamp is stored.
    Write,
    /// To be read, before the cursor passes it.
    Read,
    /// To be copied word by word, in or out, whatever other threads do meanwhile. The model has the
    /// first two words of an inline payload, and the first word of each line of the window; the
    /// other words repeat the content of the word before them.
    Words,
}

/// The bytes of one message, in its slot or elsewhere.
#[derive(Debug)]
pub struct Payload {
    /// Not a counted reference, since the ring sends a loan without dropping it.
    model: NonNull<Model>,
    /// Offset from the start of the model's memory.
    offset: usize,
    bytes: usize,
    access: Access,
}

impl Payload {
    /// The payload's length in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Does nothing: there is nothing to prefetch.
    pub fn prefetch_to_write(&self) {}

    /// The bytes, to be read in place.
    ///
    /// # Safety
    /// As in `region.rs`: the region stays for `'a`, and no other thread writes these bytes during
    /// it.
    #[must_use]
    pub unsafe fn as_slice<'a>(&self, _trusted: Trusted) -> &'a [u8] {
        self.show();
        // SAFETY: guaranteed by the caller.
        unsafe { core::slice::from_raw_parts(self.address(), self.bytes) }
    }

    /// The bytes, to be read back by their writer.
    ///
    /// # Safety
    /// As for [`Payload::as_mut_slice`].
    #[must_use]
    pub unsafe fn as_own_slice<'a>(&self) -> &'a [u8] {
        self.show();
        // SAFETY: guaranteed by the caller.
        unsafe { core::slice::from_raw_parts(self.address(), self.bytes) }
    }

    /// The bytes, to be written in place.
    ///
    /// # Safety
    /// As in `region.rs`: the region stays for `'a`, and no other thread accesses these bytes
    /// during it.
    #[must_use]
    pub unsafe fn as_mut_slice<'a>(&mut self) -> &'a mut [u8] {
        self.show();
        // SAFETY: guaranteed by the caller.
        unsafe { core::slice::from_raw_parts_mut(self.address(), self.bytes) }
    }

    /// Writes `source`, which must be as long as the payload.
    ///
    /// # Safety
    /// As for [`Payload::as_mut_slice`].
    ///
    /// # Panics
    /// If the lengths differ.
    pub unsafe fn fill(&mut self, source: &[u8]) {
        // SAFETY: guaranteed by the caller.
        unsafe { self.as_mut_slice() }.copy_from_slice(source);
    }

    /// Writes `source`, at most as long as the payload, word by word.
    ///
    /// # Safety
    /// As in `region.rs`.
    ///
    /// # Panics
    /// If `source` is longer.
    pub unsafe fn copy_in(&mut self, source: &[u8]) {
        assert!(source.len() <= self.bytes, "own length");
        for (index, part) in source.chunks(8).enumerate() {
            if let Some(target) = self.word(8 * index) {
                let mut word = [0; 8];
                word[..part.len()].copy_from_slice(part);
                target.store(u64::from_le_bytes(word), Relaxed);
            }
        }
    }

    /// Writes as much of `source` as fits at offset `at`. Returns the number of bytes written.
    ///
    /// # Safety
    /// As for [`Payload::as_mut_slice`].
    pub unsafe fn put(&mut self, at: usize, source: &[u8]) -> usize {
        let at = at.min(self.bytes);
        let count = source.len().min(self.bytes - at);
        let Self { model, access, .. } = *self;
        let mut part = Self { model, offset: self.offset + at, bytes: count, access };
        // SAFETY: guaranteed by the caller.
        unsafe { part.fill(&source[..count]) };
        count
    }

    /// The same for `bytes` bytes at `source`.
    ///
    /// # Safety
    /// As in `region.rs`: `source` is readable.
    pub unsafe fn put_raw(&mut self, at: usize, source: NonNull<u8>, bytes: usize) -> usize {
        // SAFETY: guaranteed by the caller; a model has no other thread that writes there.
        let source = unsafe { core::slice::from_raw_parts(source.as_ptr(), bytes) };
        // SAFETY: guaranteed by the caller.
        unsafe { self.put(at, source) }
    }

    /// Copies the bytes from `offset` on out into `target`, word by word.
    ///
    /// # Safety
    /// As in `region.rs`.
    ///
    /// # Panics
    /// If `offset` and `target` reach beyond the payload.
    pub unsafe fn copy_out(&self, offset: usize, target: &mut [u8]) {
        assert!(offset.is_multiple_of(8) && offset + target.len() <= self.bytes, "own length");
        let mut word = [0; 8];
        for (index, part) in target.chunks_mut(8).enumerate() {
            if let Some(source) = self.word(offset + 8 * index) {
                word = source.load(Relaxed).to_le_bytes();
            }
            part.copy_from_slice(&word[..part.len()]);
        }
    }

    fn word(&self, at: usize) -> Option<&AtomicU64> {
        self.model().words64.get(self.offset + at)
    }

    /// Shortens the payload to `bytes`, if it is longer.
    pub fn truncate(&mut self, bytes: usize) {
        self.bytes = self.bytes.min(bytes);
    }

    /// Tells the model that the payload has been read until now.
    pub fn end_read(&self) {
        self.show();
    }

    fn address(&self) -> *mut u8 {
        cell::UnsafeCell::raw_get(self.model().memory[self.offset..].as_ptr())
    }

    fn model(&self) -> &Model {
        // SAFETY: as in `region.rs`, the holder of a payload also holds its region.
        unsafe { self.model.as_ref() }
    }

    /// Reports to loom an access to every cell that the payload touches.
    fn show(&self) {
        let end = self.offset + self.bytes;
        for (&start, (bytes, cell)) in self.model().cells.range(..end) {
            if start + bytes > self.offset {
                match self.access {
                    Access::Write => cell.with_mut(|_| ()),
                    Access::Read => cell.with(|_| ()),
                    Access::Words => {}
                }
            }
        }
    }
}

/// Copies a message that fits in a slot to `target`.
///
/// # Panics
/// If it does not fit.
pub fn set_aside(source: &[u8], target: &mut [u8; INLINE_BYTES_MAX]) {
    target[..source.len()].copy_from_slice(source);
}

/// A stretch of a segment that holds payloads by virtual position: the window, or the large area.
#[derive(Debug, Clone)]
pub struct Store {
    part: Region,
}

impl Store {
    /// `bytes` bytes from `offset` of a segment.
    ///
    /// # Panics
    /// If they reach beyond the segment.
    #[must_use]
    pub fn new(segment: &Region, offset: u64, bytes: u64) -> Self {
        Self { part: segment.part(own_usize(offset), own_usize(bytes)).expect("own geometry") }
    }

    /// Bytes of the store.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.part.bytes() as u64
    }

    /// The payload of `length` bytes at `place`, which must begin a line of the store.
    ///
    /// # Panics
    /// If the payload would reach beyond the store.
    #[must_use]
    pub fn payload_at(&self, place: u64, length: u64, access: Access) -> Payload {
        self.payload(place, length, access).expect("own place")
    }

    /// The payload of `length` bytes at virtual position `position`. `None` if it would reach
    /// beyond the store or does not begin at a line.
    #[must_use]
    pub fn payload(&self, position: u64, length: u64, access: Access) -> Option<Payload> {
        let offset = place_of(position, self.bytes())?;
        if length > self.bytes() - offset || !offset.is_multiple_of(LINE_BYTES as u64) {
            return None;
        }
        let payload = self.part.payload(own_usize(offset), own_usize(length), access);
        payload.show();
        Some(payload)
    }
}

/// The pages of a sender's receivers, one per row.
#[derive(Debug, Clone)]
pub struct Rows {
    region: Region,
    count: u32,
}

impl Rows {
    /// `count` rows of one page each.
    ///
    /// # Panics
    /// If the region is shorter.
    #[must_use]
    pub fn new(region: &Region, count: u32) -> Self {
        let region = region.part(0, count as usize * PAGE_BYTES).expect("own geometry");
        Self { region, count }
    }

    fn page(&self, row: u32) -> usize {
        assert!(row < self.count, "own row");
        row as usize * PAGE_BYTES
    }

    /// The receiver's cursor.
    #[must_use]
    pub fn cursor(&self, row: u32) -> &AtomicU64 {
        self.region.word64(self.page(row) + CURSOR)
    }

    /// The receiver's sleeping epoch.
    #[must_use]
    pub fn sleeping(&self, row: u32) -> &AtomicU32 {
        self.region.word32(self.page(row) + SLEEPING)
    }

    /// How the receiver wants to be woken.
    #[must_use]
    pub fn sleep_mode(&self, row: u32) -> &AtomicU32 {
        self.region.word32(self.page(row) + SLEEP_MODE)
    }

    /// The processor that the receiver last ran on.
    #[must_use]
    pub fn cpu(&self, row: u32) -> &AtomicU32 {
        self.region.word32(self.page(row) + RECEIVER_CPU)
    }

    /// The word that changes when the receiver makes room.
    #[must_use]
    pub fn wake(&self, row: u32) -> &AtomicU32 {
        self.region.word32(self.page(row) + WAKE)
    }
}

/// Converts a size of this process's own geometry to `usize`.
fn own_usize(value: u64) -> usize {
    usize::try_from(value).expect("a geometry fits this machine's address space")
}
