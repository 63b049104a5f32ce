//! Memory for payloads that are too long for slots.
//!
//! The cells are one pool for all peers of an endpoint. A cell belongs to one peer at a time and holds one long
//! fragment, or several short ones one after the other; it becomes free when that peer has finished with the last
//! fragment. Only the sender knows which peer has which cell, so a death leaves nothing to repair.
//!
//! A peer gets a cell only while it has fewer cells than are free. So a single peer that does not read keeps at most
//! half of the cells, two such peers keep a third each, and other peers always get a cell.
//!
//! A message that needs many cells has few of them at a time: a *pipe*. It takes either the cell that was used last, so
//! that the whole message goes through memory that is in the caches of both sides, or the cell that was unused the
//! longest. Which is faster depends on the processor: [`Cells::take_recent`].

use alloc::collections::VecDeque;

use corewire_layout::LINE_BYTES;

use crate::region::{Access, Payload, Store};

/// The bytes of a pipe. With fewer, the sender waits for the receiver; with more, cells fall out of the caches.
/// (Through the cells that were used last, 1 MiB between two cores of an Intel Xeon takes 90 us through 256 KiB, 112
/// us through 128 KiB and 128 us through 1 MiB.)
const PIPE_BYTES: u64 = 256 << 10;

/// An endpoint's own cells. What every fragment needs comes first: it lies in one line, which may be in no cache.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Cells {
    store: Store,
    cell_bytes: u64,
    /// The cell that was unused the longest comes first; the one used last comes last.
    free: VecDeque<u32>,
    /// Maximum number of cells that a peer has at a time for a message that does not fit in them.
    pipe_cells: u64,
    /// Such a message takes the cells that were used last.
    takes_recent: bool,
}

/// Room for a fragment.
#[derive(Debug, Clone, Copy)]
pub(super) struct Room {
    /// In the memory of the cells.
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
    /// The position of the slot that names the cell's last fragment; `None` before its first.
    last: Option<u64>,
}

impl Cells {
    pub(super) fn new(store: Store, cells: u64, cell_bytes: u64) -> Self {
        let count = u32::try_from(cells).unwrap_or(u32::MAX);
        let pipe_cells = (PIPE_BYTES / cell_bytes).max(2);
        Self { store, cell_bytes, free: (0..count).collect(), pipe_cells, takes_recent: false }
    }

    /// Bytes of a cell.
    #[inline]
    pub(super) fn cell_bytes(&self) -> u64 {
        self.cell_bytes
    }

    /// Whether a message of `total` bytes goes through a pipe.
    #[inline]
    pub(super) fn is_long(&self, total: u64) -> bool {
        // Short messages need none of these words, which may be in no cache.
        total > PIPE_BYTES && total > self.pipe_cells * self.cell_bytes
    }

    /// Selects the cells for long messages from now on: the cells that were used last, or all in turn.
    #[inline]
    pub(super) fn take_recent(&mut self, takes_recent: bool) {
        self.takes_recent = takes_recent;
    }

    /// The memory of a fragment.
    #[inline]
    pub(super) fn payload(&self, room: Room) -> Payload {
        self.store.payload_at(room.offset.into(), room.bytes.into(), Access::Write)
    }
}

impl Holding {
    /// Room for the next `bytes` bytes of a message of `total` bytes, but at most one cell. `None` while there is no
    /// room for this peer.
    #[inline]
    pub(super) fn find(&mut self, bytes: u64, total: u64, cells: &mut Cells) -> Option<Room> {
        let bytes = bytes.min(cells.cell_bytes);
        let has_room = |held: &Held| cells.cell_bytes - held.used_bytes >= bytes;
        if !self.held.back().is_some_and(has_room) {
            let is_long = cells.is_long(total);
            let is_full = is_long && self.held.len() as u64 >= cells.pipe_cells;
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

    /// Bytes that the peer could get now although it gives nothing back.
    #[inline]
    pub(super) fn room(&self, cells: &Cells) -> u64 {
        let (held, free) = (self.held.len() as u64, cells.free.len() as u64);
        // One cell goes from the free ones to the held ones at a time, as long as more are free.
        let count = free.saturating_sub(held).div_ceil(2).min(cells.pipe_cells);
        count * cells.cell_bytes
    }

    /// Records that the slot at `position` names the room that was found.
    #[inline]
    pub(super) fn publish(&mut self, room: Room, position: u64) {
        if let Some(held) = self.held.back_mut() {
            let lines = u64::from(room.bytes).next_multiple_of(LINE_BYTES as u64);
            held.used_bytes += lines;
            held.last = Some(position);
        }
    }

    /// Prefetches the lines to which the next fragment of the same length would be written, while there is time.
    #[inline(always)]
    pub(super) fn prefetch(&self, bytes: u32, cells: &Cells) {
        if let Some(held) = self.held.back()
            && held.used_bytes + u64::from(bytes) <= cells.cell_bytes
        {
            let offset = u64::from(held.cell) * cells.cell_bytes + held.used_bytes;
            cells.store.payload_at(offset, bytes.into(), Access::Write).prefetch_to_write();
        }
    }

    /// The peer has finished with the slots below `cursor`: gives back cells that no other slot names.
    #[inline]
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
