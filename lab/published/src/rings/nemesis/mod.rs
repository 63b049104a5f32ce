//! Nemesis (Buntinas, Mercier and Gropp, sections 2.1, 3.1 and 3.2): each process has one queue,
//! into which every other process puts cells with messages. Each pair may also have a *fastbox*
//! that bypasses the queues.
//!
//! ```text
//! for each process   its receive queue, its free queue: three lines each
//! for each pair      a fastbox: full u64; then as a cell
//! for each cell      next u64 | sequence u32, source u32 | tag u64 | total u64 | bytes of it
//! ```
//!
//! Sending: put the message into the pair's fastbox if that is empty; otherwise take a cell from a
//! free queue, fill it, and put it into the receive queue. Receiving: check the fastboxes, then the
//! queue; return the cell to its free queue. Each message carries its number among the messages of
//! its pair, which gives its turn: a message in a fastbox waits for messages in the queue that were
//! sent before it, and the other way round.
//!
//! A message that is longer than a cell is sent in several cells.
//!
//! Cost of a message of up to 32 bytes: through a fastbox, one line in each direction. Through the
//! queues, the tail of the receive queue and the cell in one direction, the free queue and the cell
//! in the other, and at least two locked instructions.

mod queue;

use alloc::vec::Vec;

use corewire_layout::LINE_BYTES;
pub use queue::NemesisQueue;
use queue::Queue;

use crate::region::{Region, Word64};
use crate::sync::Ordering::Relaxed;
use crate::{Trusted, order};

const NEXT: usize = 0;
/// A fastbox has its flag at this offset.
const FULL: usize = 0;
const FROM: usize = 8;
const TAG: usize = 16;
const TOTAL: usize = 24;
const BYTES: usize = 32;

/// The queue from which a sender takes empty cells (section 2.1.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FreeQueue {
    /// One queue for all processes.
    Global,
    /// The receiver's queue: only its own cells come to it.
    Receiver,
    /// The sender's own queue, as in Nemesis.
    Sender,
}

/// Number of processes and cells, and the paper's optimisations that are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NemesisOptions {
    /// Number of processes.
    pub processes: u32,
    /// Number of cells per process.
    pub cells: u32,
    /// Payload bytes of a cell; beyond the first 32 bytes in whole lines.
    pub cell_bytes: usize,
    /// Which free queue empty cells wait in.
    pub free_queue: FreeQueue,
    /// The shadow head of section 3.1.
    pub has_shadow_head: bool,
    /// The fastboxes of section 3.2.
    pub has_fastboxes: bool,
}

impl NemesisOptions {
    /// Bytes of a cell, and of a fastbox.
    const fn stride(&self) -> usize {
        (BYTES + self.cell_bytes).next_multiple_of(LINE_BYTES)
    }

    const fn boxes_offset(&self) -> usize {
        2 * self.processes as usize * Queue::BYTES
    }

    const fn boxes(&self) -> usize {
        if self.has_fastboxes { (self.processes * self.processes) as usize } else { 0 }
    }

    const fn box_offset(&self, from: u32, to: u32) -> usize {
        self.boxes_offset() + (from * self.processes + to) as usize * self.stride()
    }

    const fn cells_offset(&self) -> usize {
        self.boxes_offset() + self.boxes() * self.stride()
    }

    const fn all_cells(&self) -> usize {
        (self.processes * self.cells) as usize
    }

    /// Bytes of memory for all queues, fastboxes and cells.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.cells_offset() + self.all_cells() * self.stride()
    }
}

/// The header of a fastbox or a cell: the words before its bytes.
#[derive(Debug, Clone)]
struct Header {
    from: Word64,
    tag: Word64,
    total: Word64,
}

impl Header {
    fn new(memory: &Region, offset: usize) -> Self {
        let [from, tag, total] = [FROM, TAG, TOTAL].map(|at| memory.keep64(offset + at));
        Self { from, tag, total }
    }
}

/// A place for one message of a pair of processes.
#[derive(Debug, Clone)]
struct Fastbox {
    full: Word64,
    header: Header,
    offset: usize,
}

impl Fastbox {
    fn new(memory: &Region, offset: usize) -> Self {
        let (full, header) = (memory.keep64(offset + FULL), Header::new(memory, offset));
        Self { full, header, offset }
    }
}

/// The content of a cell or a fastbox: a message, or a part of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    /// The process that sent it.
    pub source: u32,
    /// The tag that its sender gave.
    pub tag: u64,
    /// Bytes of the whole message.
    pub total: u64,
    /// Bytes of this piece.
    pub bytes: usize,
}

/// One process's view.
#[derive(Debug)]
pub struct Nemesis {
    options: NemesisOptions,
    index: u32,
    receive: Vec<Queue>,
    free: Vec<Queue>,
    links: Vec<Word64>,
    headers: Vec<Header>,
    /// For each process: the box to it, and the box from it.
    boxes: Vec<[Fastbox; 2]>,
    memory: Region,
    /// For each process: the number of pieces sent to it and received from it, and the bytes still
    /// missing of the message that is being received from it.
    sent: Vec<u32>,
    received: Vec<u32>,
    left: Vec<u64>,
    /// A cell from the queue whose turn it is not yet.
    waiting: Option<usize>,
    /// The box to be checked first.
    next_box: u32,
}

impl Nemesis {
    /// The view of process `index`, in memory that all processes have mapped writable and
    /// [`Nemesis::prepare`] has prepared.
    ///
    /// # Panics
    /// If the memory is too short, or there is no such process.
    #[must_use]
    pub fn new(memory: &Region, options: NemesisOptions, index: u32) -> Self {
        assert!(memory.bytes() >= options.bytes() && index < options.processes, "own sizes");
        let queue =
            |number: usize| Queue::new(memory, number * Queue::BYTES, options.has_shadow_head);
        let processes = options.processes as usize;
        let cell = |index: usize| options.cells_offset() + index * options.stride();
        let a_box = |from, to| Fastbox::new(memory, options.box_offset(from, to));
        let boxes = if options.has_fastboxes { 0..options.processes } else { 0..0 };
        Self {
            options,
            index,
            receive: (0..processes).map(queue).collect(),
            free: (processes..2 * processes).map(queue).collect(),
            links: (0..options.all_cells())
                .map(|index| memory.keep64(cell(index) + NEXT))
                .collect(),
            headers: (0..options.all_cells()).map(|i| Header::new(memory, cell(i))).collect(),
            boxes: boxes.map(|other| [a_box(index, other), a_box(other, index)]).collect(),
            memory: memory.clone(),
            sent: [0].repeat(processes),
            received: [0].repeat(processes),
            left: [0].repeat(processes),
            waiting: None,
            next_box: 0,
        }
    }

    /// Puts all cells into their free queues. Call it once, in zeroed memory, before any process
    /// begins.
    pub fn prepare(&self) {
        for cell in 0..self.options.all_cells() {
            let owner = cell / self.options.cells as usize;
            let queue = if self.options.free_queue == FreeQueue::Global { 0 } else { owner };
            self.free[queue].enqueue(&self.links, cell);
        }
    }

    /// Sends the next piece of a message of `total` bytes: as much as a cell takes, or the rest if
    /// that is less. Returns false if there is no empty cell.
    ///
    /// # Panics
    /// If there is no such process, or the piece is too long.
    #[inline]
    pub fn try_send(&mut self, to: u32, tag: u64, total: u64, piece: &[u8]) -> bool {
        let header = (tag, total);
        if self.options.has_fastboxes {
            let [there, _] = &self.boxes[to as usize];
            // ORDER(N8): pairs with N9; what is overwritten has been read.
            if there.full.load(order!(N8: Acquire)) == 0 {
                self.fill(&there.header, there.offset, to, header, piece);
                // ORDER(N7): pairs with N10; the message is there before the box is full.
                there.full.store(1, order!(N7: Release));
                self.sent[to as usize] = self.sent[to as usize].wrapping_add(1);
                return true;
            }
        }
        let taken = match self.options.free_queue {
            FreeQueue::Global => self.free[0].dequeue_of_many(&self.links),
            FreeQueue::Receiver => self.free[to as usize].dequeue_of_many(&self.links),
            FreeQueue::Sender => self.free[self.index as usize].dequeue(&self.links),
        };
        let Some(cell) = taken else { return false };
        let offset = self.options.cells_offset() + cell * self.options.stride();
        self.fill(&self.headers[cell], offset, to, header, piece);
        self.receive[to as usize].enqueue(&self.links, cell);
        self.sent[to as usize] = self.sent[to as usize].wrapping_add(1);
        true
    }

    #[inline(always)]
    fn fill(&self, words: &Header, offset: usize, to: u32, (tag, total): (u64, u64), piece: &[u8]) {
        assert!(piece.len() <= self.options.cell_bytes, "a piece is longer than a cell");
        let sequence = self.sent[to as usize];
        words.from.store(u64::from(self.index) << 32 | u64::from(sequence), Relaxed);
        words.tag.store(tag, Relaxed);
        words.total.store(total, Relaxed);
        self.memory.copy_in(offset + BYTES, piece);
    }

    /// Copies the next piece whose turn it is into `target`. `from` says only where to look first:
    /// a piece that comes through the queue may be from another process.
    ///
    /// # Panics
    /// If `target` is shorter than the piece.
    #[inline]
    pub fn try_receive(&mut self, from: Option<u32>, target: &mut [u8]) -> Option<Piece> {
        if self.options.has_fastboxes {
            let found = match from {
                Some(source) => self.take_box(source, target),
                None => self.take_any_box(target),
            };
            if found.is_some() {
                return found;
            }
        }
        let receive = &self.receive[self.index as usize];
        let cell = match self.waiting.take() {
            Some(cell) => cell,
            None => receive.dequeue(&self.links)?,
        };
        let (source, sequence) = halves(self.headers[cell].from.load(Relaxed));
        if sequence != self.received[source as usize] {
            // The messages sent before it are in the fastbox.
            self.waiting = Some(cell);
            return self.take_box(source, target);
        }
        let offset = self.options.cells_offset() + cell * self.options.stride();
        let piece = self.read(&self.headers[cell], offset, source, target);
        let home = match self.options.free_queue {
            FreeQueue::Global => 0,
            FreeQueue::Receiver => self.index as usize,
            FreeQueue::Sender => cell / self.options.cells as usize,
        };
        self.free[home].enqueue(&self.links, cell);
        self.count(piece);
        Some(piece)
    }

    fn take_any_box(&mut self, target: &mut [u8]) -> Option<Piece> {
        let first = self.next_box;
        let turn = (first..self.options.processes).chain(0..first);
        for source in turn {
            let found = self.take_box(source, target);
            if found.is_some() {
                self.next_box = source;
                return found;
            }
        }
        None
    }

    #[inline(always)]
    fn take_box(&mut self, source: u32, target: &mut [u8]) -> Option<Piece> {
        let [_, here] = &self.boxes[source as usize];
        // ORDER(N10): pairs with N7.
        if here.full.load(order!(N10: Acquire)) == 0 {
            return None;
        }
        if halves(here.header.from.load(Relaxed)).1 != self.received[source as usize] {
            return None;
        }
        let piece = self.read(&here.header, here.offset, source, target);
        // ORDER(N9): pairs with N8; the reading is done before the box is empty.
        here.full.store(0, order!(N9: Release));
        self.count(piece);
        Some(piece)
    }

    #[inline(always)]
    fn read(&self, words: &Header, offset: usize, source: u32, target: &mut [u8]) -> Piece {
        let (tag, total) = (words.tag.load(Relaxed), words.total.load(Relaxed));
        let left = match self.left[source as usize] {
            0 => total,
            left => left,
        };
        let bytes = usize::try_from(left).unwrap_or(usize::MAX).min(self.options.cell_bytes);
        // SAFETY: all processes that share a published ring run the same program.
        let trusted = unsafe { Trusted::assume() };
        // SAFETY: filled before it was published, and given back only after this copy.
        unsafe { self.memory.copy_out_still(trusted, offset + BYTES, &mut target[..bytes]) };
        Piece { source, tag, total, bytes }
    }

    #[inline(always)]
    fn count(&mut self, piece: Piece) {
        let source = piece.source as usize;
        self.received[source] = self.received[source].wrapping_add(1);
        let left = match self.left[source] {
            0 => piece.total,
            left => left,
        };
        self.left[source] = left - piece.bytes as u64;
    }
}

/// The source, and the number of the piece.
#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "two halves")]
fn halves(from: u64) -> (u32, u32) {
    ((from >> 32) as u32, from as u32)
}
