//! Where payloads lie that are too long for slots.
//!
//! The cells are one pool for all of an endpoint's peers. A cell belongs to one peer at a time and holds
//! one long fragment, or many short ones, one behind the other; it comes back when that peer is done with
//! the last of them. Which peer has which cell only the sender knows, so there is nothing to be repaired
//! when anybody dies.
//!
//! A peer gets a cell as long as it has fewer than are free. So one that does not read keeps at most half
//! of them, two keep a third each, and somebody else always gets one.
//!
//! A message of many cells has few of them at a time: a pipe. Each is either the one that was used last, so that
//! all of it goes through memory that is in the caches of both sides, or the one that was left alone the longest.
//! Which is faster depends on the processor: [`Cells::take_recent`].

use alloc::collections::VecDeque;

use corewire_layout::LINE_BYTES;

use crate::region::{Access, Payload, Store};

/// The bytes of a pipe. With less, the sender waits for the receiver; with more, cells fall out of the
/// caches. (Through the cells that were used last, 1 MiB between two cores of an Intel Xeon takes 90 us through
/// 256 KiB, 112 us through 128 KiB and 128 us through 1 MiB.)
const PIPE_BYTES: u64 = 256 << 10;

/// An endpoint's own cells.
#[derive(Debug)]
pub(super) struct Cells {
    store: Store,
    cell_bytes: u64,
    /// The most cells of a peer through which a message goes that does not fit in them.
    pipe_cells: u64,
    /// What these hold.
    pipe_bytes: u64,
    /// Such a message takes those that were used last.
    takes_recent: bool,
    /// The one whose lines have been left alone the longest comes first; the last one was used last.
    free: VecDeque<u32>,
}

/// Room for a fragment.
#[derive(Debug, Clone, Copy)]
pub(super) struct Room {
    /// Among the cells.
    pub(super) offset: u32,
    pub(super) bytes: u32,
}

/// The cells that a peer has.
#[derive(Debug, Default)]
pub(super) struct Holding {
    /// Oldest first; the last one is being filled.
    held: VecDeque<Held>,
}

#[derive(Debug)]
struct Held {
    cell: u32,
    used_bytes: u64,
    /// The slot that names the cell's last fragment; none yet if it is `None`.
    last: Option<u64>,
}

impl Cells {
    pub(super) fn new(store: Store, cells: u64, cell_bytes: u64) -> Self {
        let count = u32::try_from(cells).unwrap_or(u32::MAX);
        let pipe_cells = (PIPE_BYTES / cell_bytes).max(2);
        let (pipe_bytes, free) = (pipe_cells * cell_bytes, (0..count).collect());
        Self { store, cell_bytes, pipe_cells, pipe_bytes, takes_recent: false, free }
    }

    /// Whether a message of `total` bytes goes through a pipe.
    pub(super) fn is_long(&self, total: u64) -> bool {
        total > self.pipe_bytes
    }

    /// From now on such messages go through the cells that were used last, or through all in turn.
    pub(super) fn take_recent(&mut self, takes_recent: bool) {
        self.takes_recent = takes_recent;
    }

    /// The memory of a fragment.
    pub(super) fn payload(&self, room: Room) -> Payload {
        self.store.payload_at(room.offset.into(), room.bytes.into(), Access::Write)
    }
}

impl Holding {
    /// Room for the next `bytes` bytes of a message of `total` bytes, or for a cell's worth if there are
    /// more. `None` while this peer can have none.
    #[inline]
    pub(super) fn find(&mut self, bytes: u64, total: u64, cells: &mut Cells) -> Option<Room> {
        let bytes = bytes.min(cells.cell_bytes);
        let pipe_cells = cells.pipe_cells;
        let is_long = cells.is_long(total);
        let has_room = |held: &Held| cells.cell_bytes - held.used_bytes >= bytes;
        if !self.held.back().is_some_and(has_room) {
            let is_full = is_long && self.held.len() as u64 >= pipe_cells;
            if is_full || self.held.len() >= cells.free.len() {
                return None;
            }
            let is_recent = is_long && cells.takes_recent;
            let cell = if is_recent { cells.free.pop_back() } else { cells.free.pop_front() }?;
            self.held.push_back(Held { cell, used_bytes: 0, last: None });
        }
        let held = self.held.back()?;
        let offset = u64::from(held.cell) * cells.cell_bytes + held.used_bytes;
        Some(Room { offset: u32::try_from(offset).ok()?, bytes: u32::try_from(bytes).ok()? })
    }

    /// The room that was found is named by the slot at `position`.
    #[inline]
    pub(super) fn publish(&mut self, room: Room, position: u64) {
        if let Some(held) = self.held.back_mut() {
            let lines = u64::from(room.bytes).next_multiple_of(LINE_BYTES as u64);
            held.used_bytes += lines;
            held.last = Some(position);
        }
    }

    /// Has the lines fetched that a fragment of as many bytes would be written to next, while there is time.
    #[inline(always)]
    pub(super) fn prefetch(&self, bytes: u32, cells: &Cells) {
        if let Some(held) = self.held.back()
            && held.used_bytes + u64::from(bytes) <= cells.cell_bytes
        {
            let offset = u64::from(held.cell) * cells.cell_bytes + held.used_bytes;
            cells.store.payload_at(offset, bytes.into(), Access::Write).prefetch_to_write();
        }
    }

    /// The peer is done with the slots below `cursor`: gives back what lies in no other.
    pub(super) fn give_back(&mut self, cursor: u64, cells: &mut Cells) {
        while let Some(held) = self.held.front()
            && held.last.is_none_or(|last| last < cursor)
        {
            cells.free.push_back(held.cell);
            self.held.pop_front();
        }
    }

    /// The peer is gone: gives back everything.
    pub(super) fn give_back_all(&mut self, cells: &mut Cells) {
        cells.free.extend(self.held.drain(..).map(|held| held.cell));
    }
}
