//! Memory of models: an address is an offset among words and payloads that loom tracks.
//!
//! A region here consists of words and of cells that stand for payload, each at an offset. Every
//! access to a payload is reported to loom as an access to the cells that it touches, so that a
//! byte that is written while another thread reads it fails the model. The bytes themselves lie in
//! plain memory: loom runs one thread at a time, and reports the race before it can show in them.
//!
//! `Region::new`, `private` and `address` have no counterpart: a model maps no memory.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cell;
use core::iter;
use core::ops::Range;
use core::ptr::NonNull;

use corewire_layout::access::{EXPOSURE_ORIGIN, EXPOSURES_MAX};
use corewire_layout::counters::{COUNTERS_MAX, TRAFFIC_COUNTERS};
use corewire_layout::endpoint::{
    ACTIVE, ACTIVITY_BYTES, DOORBELL, ENDPOINT_BLOCKED, ENDPOINT_COOKIE, ENDPOINT_COUNTERS,
    ENDPOINT_CPU, ENDPOINT_MODE, ENDPOINT_SLEEPING, EndpointSizes, ROW_ADMITS, ROW_COUNTERS,
    ROW_CURSOR, ROW_DONE, ROW_EARLIER, ROW_HELPED, ROW_PULLED, ROW_RING, ROW_SERVED, ROW_STATE,
    ROW_TAKEN, ROW_VISITS, SUMMARY,
};
use corewire_layout::geometry::Geometry;
use corewire_layout::rendezvous::OFFERS_MAX;
use corewire_layout::segment::{
    BELL, BLOCKED, CLOSED, CONTROL_COUNTERS, CURSOR, DOOR_BYTES, DOOR_COUNTERS, DOOR_PID,
    DOOR_SOCKET, DOOR_START, DOOR_TENURE, DOORS, FLOOR, HELD, HELD_UNTIL, HINT, HINT_SEGMENT_BYTES,
    MEMBERS_EPOCH, RECEIVER_COUNTERS, RECEIVER_CPU, ROOM, ROWS_HIGH, SENDER_COUNTERS, SENDER_CPU,
    SENDERS_EPOCH, SLEEP_MODE, SLEEPERS, SLEEPING, TABLE_COUNTERS, TAIL, WAKE,
};
use corewire_layout::slot::{CELL_IMMEDIATE, HEADER, INLINE, LENGTH, POSITION, SLOT_BYTES, STAMP};
use corewire_layout::{LINE_BYTES, PAGE_BYTES};

use super::{Access, Region, own_usize};
use crate::sync::{AtomicU32, AtomicU64};

/// Number of receivers' rows that a model has words for, however many its channel allows.
pub const MODEL_ROWS_MAX: u32 = 2;
/// Number of senders' rows that a model has words for.
const MODEL_SENDERS_MAX: u32 = 3;

/// Bytes of the large area that one cell stands for.
const LARGE_CELL_BYTES: usize = 1024;

/// An address in a region. Its user keeps the region.
#[derive(Debug, Clone, Copy)]
pub(super) struct Address {
    /// Not a counted reference, as on a real machine.
    model: NonNull<Model>,
    offset: usize,
    access: Access,
}

impl Address {
    /// The address `bytes` further on.
    ///
    /// # Safety
    /// It lies within the same region, or at its end.
    pub(super) unsafe fn add(self, bytes: usize) -> Self {
        Self { offset: self.offset + bytes, ..self }
    }

    /// The u64 at `offset` from here. Panics if the model has no such word.
    ///
    /// # Safety
    /// The region stays for `'a`.
    pub(super) unsafe fn word64<'a>(self, offset: usize) -> &'a AtomicU64 {
        // SAFETY: guaranteed by the caller.
        unsafe { self.model() }.words64.at(self.offset + offset)
    }

    /// The u32 at `offset` from here. Panics if the model has no such word.
    ///
    /// # Safety
    /// The region stays for `'a`.
    pub(super) unsafe fn word32<'a>(self, offset: usize) -> &'a AtomicU32 {
        // SAFETY: guaranteed by the caller.
        unsafe { self.model() }.words32.at(self.offset + offset)
    }

    /// The u64 at `offset` from here; `None` if the model has no such word.
    ///
    /// # Safety
    /// The region stays for `'a`.
    pub(super) unsafe fn find64<'a>(self, offset: usize) -> Option<&'a AtomicU64> {
        // SAFETY: guaranteed by the caller.
        unsafe { self.model() }.words64.get(self.offset + offset)
    }

    /// The address for accesses of this kind.
    pub(super) fn for_access(self, access: Access) -> Self {
        Self { access, ..self }
    }

    /// Reports to loom an access to every cell that `bytes` bytes from here touch.
    pub(super) fn report(self, bytes: usize) {
        let end = self.offset + bytes;
        // SAFETY: the user of an address keeps its region.
        let cells = &unsafe { self.model() }.cells;
        for (&start, (bytes, cell)) in cells.range(..end) {
            if start + bytes > self.offset {
                match self.access {
                    Access::Write => cell.with_mut(|_| ()),
                    Access::Read => cell.with(|_| ()),
                    Access::Words => {}
                }
            }
        }
    }

    /// The address in plain memory, for accesses that have been reported.
    pub(super) fn pointer(self) -> *mut u8 {
        // SAFETY: the user of an address keeps its region.
        let memory = &unsafe { self.model() }.memory;
        cell::UnsafeCell::raw_get(memory[self.offset..].as_ptr())
    }

    /// Does nothing: a model has no processor caches.
    pub(super) fn prefetch_to_read(self, _bytes: usize) {}

    /// Does nothing, as above.
    pub(super) fn prefetch_to_write(self, _bytes: usize) {}

    /// # Safety
    /// The region stays for `'a`.
    unsafe fn model<'a>(self) -> &'a Model {
        // SAFETY: guaranteed by the caller.
        unsafe { self.model.as_ref() }
    }
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
        let keep = Arc::new(model);
        let base = Address { model: NonNull::from(&*keep), offset: 0, access: Access::Words };
        Self { base, bytes, keep }
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
            let words = [
                ROW_RING, ROW_CURSOR, ROW_HELPED, ROW_PULLED, ROW_VISITS, ROW_SERVED, ROW_TAKEN,
                ROW_ADMITS, ROW_DONE,
            ];
            plan.words64.extend(words.map(|at| one64(row + at)));
            plan.words64.push(row + ROW_COUNTERS..row + ROW_HELPED);
            plan.words64.push(row + ROW_EARLIER..row + ROW_EARLIER + 8 * TRAFFIC_COUNTERS);
        }
        plan.words64.extend((0..OFFERS_MAX).map(|index| one64(sizes.offer_offset(index))));
        plan.words64.push(one64(ENDPOINT_COOKIE));
        for index in 0..EXPOSURES_MAX {
            let entry = sizes.exposure_offset(index);
            let words = (entry..=entry + EXPOSURE_ORIGIN).step_by(8);
            plan.words64.extend(words.map(one64));
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
        if sizes.heap_bytes() > 0 {
            for row in (0..MODEL_ROWS_MAX).take(own_usize(sizes.peers_max())) {
                let releases = own_usize(sizes.releases_offset(row));
                plan.words64.push(one64(releases));
            }
            let heap = own_usize(sizes.heap_offset());
            let lines = (heap..heap + own_usize(sizes.heap_bytes())).step_by(LINE_BYTES);
            plan.cells.extend(lines.map(|at| at..at + LINE_BYTES));
        }
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
}
