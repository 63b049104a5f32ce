//! The queue of Nemesis (its Figure 3): any number of processes enqueue, and one dequeues.
//!
//! ```text
//! plain:        line 0  tail              line 1  head
//! shadow head:  line 0  tail, head        line 1  the dequeuer's own head
//! ```
//!
//! On a queue that is empty or holds one cell, an enqueue and a dequeue each use both ends. With
//! the shadow head (section 3.1) both ends lie in one line, and the dequeuer has a line of its own
//! for a queue that holds more cells.
//!
//! Cost: an enqueue takes one locked instruction, the tail's line, and the line of the head or of
//! the last cell. A dequeue takes the head's line and the cell's line; for the last cell also a
//! locked instruction and the tail's line.
//!
//! `dequeue_of_many` is not in the paper: in two of the paper's three placements of the free queue,
//! several processes dequeue from it, which Figure 3 does not support. A lock around it makes this
//! possible.

use alloc::vec::Vec;

use corewire_layout::LINE_BYTES;

use crate::order;
use crate::region::{Region, Word32, Word64};
use crate::sync::{Ordering::Relaxed, pause};

const TAIL: usize = 0;
/// Offset of the head if there is a shadow head.
const HEAD_BESIDE: usize = 8;
/// Offset of the head if there is no shadow head; otherwise of the shadow head.
const HEAD_APART: usize = LINE_BYTES;
const LOCK: usize = 2 * LINE_BYTES;

/// A cell, as the queues store it: its number plus one, or 0 for no cell.
type Link = u64;
const NONE: Link = 0;

/// The words of the cells that link them.
pub(super) type Links = [Word64];

/// A queue of cells.
#[derive(Debug, Clone)]
pub(super) struct Queue {
    tail: Word64,
    /// An enqueuer that finds the queue empty stores the first cell here.
    head: Word64,
    /// The dequeuer's head, if it has one of its own.
    shadow: Option<Word64>,
    lock: Word32,
}

impl Queue {
    /// Bytes of a queue.
    pub(super) const BYTES: usize = 3 * LINE_BYTES;

    /// The queue at `offset` of zeroed memory.
    pub(super) fn new(memory: &Region, offset: usize, has_shadow_head: bool) -> Self {
        let head = if has_shadow_head { HEAD_BESIDE } else { HEAD_APART };
        Self {
            tail: memory.keep64(offset + TAIL),
            head: memory.keep64(offset + head),
            shadow: has_shadow_head.then(|| memory.keep64(offset + HEAD_APART)),
            lock: memory.keep32(offset + LOCK),
        }
    }

    /// Adds a cell at the end.
    #[inline(always)]
    pub(super) fn enqueue(&self, links: &Links, cell: usize) {
        let link = cell as Link + 1;
        links[cell].store(NONE, Relaxed);
        // ORDER(N1): pairs with itself and N4; the cell's link and the head of an empty queue are
        // empty before the next enqueuer stores there.
        match self.tail.swap(link, order!(N1: AcqRel)) {
            // ORDER(N2): pairs with N3; the cell's content is there before it is found.
            NONE => self.head.store(link, order!(N2: Release)),
            // ORDER(N2): as above.
            last => links[at(last)].store(link, order!(N2: Release)),
        }
    }

    /// Takes the first cell, if there is one. Only one process may call this at a time.
    #[inline(always)]
    pub(super) fn dequeue(&self, links: &Links) -> Option<usize> {
        let first = match &self.shadow {
            // ORDER(N3): pairs with N2.
            None => self.head.load(order!(N3: Acquire)),
            Some(shadow) => match shadow.load(Relaxed) {
                NONE => {
                    // ORDER(N3): as above.
                    let first = self.head.load(order!(N3: Acquire));
                    if first != NONE {
                        self.head.store(NONE, Relaxed);
                    }
                    first
                }
                first => first,
            },
        };
        if first == NONE {
            return None;
        }
        let head = self.shadow.as_ref().unwrap_or(&self.head);
        let cell = at(first);
        // ORDER(N3): as above.
        match links[cell].load(order!(N3: Acquire)) {
            NONE => self.take_last(links, cell, head),
            next => head.store(next, Relaxed),
        }
        Some(cell)
    }

    /// Takes a cell that had no cell behind it.
    #[inline(always)]
    fn take_last(&self, links: &Links, cell: usize, head: &Word64) {
        head.store(NONE, Relaxed);
        // ORDER(N4): pairs with N1; the head is empty before an enqueuer that finds the queue empty
        // stores there.
        let taken =
            self.tail.compare_exchange(cell as Link + 1, NONE, order!(N4: Release), Relaxed);
        if taken.is_ok() {
            return;
        }
        // An enqueuer has swapped the tail, and has not linked its cell yet.
        let next = loop {
            // ORDER(N3): as above.
            match links[cell].load(order!(N3: Acquire)) {
                NONE => pause(),
                next => break next,
            }
        };
        head.store(next, Relaxed);
    }

    /// As [`Self::dequeue`], for several processes: they dequeue one after the other.
    pub(super) fn dequeue_of_many(&self, links: &Links) -> Option<usize> {
        // ORDER(N5): pairs with N6; the queue is as its last dequeuer left it.
        while self.lock.compare_exchange(0, 1, order!(N5: Acquire), Relaxed).is_err() {
            pause();
        }
        let cell = self.dequeue(links);
        // ORDER(N6): pairs with N5; the dequeue is complete before the lock is free.
        self.lock.store(0, order!(N6: Release));
        cell
    }
}

/// A queue alone, with the links of its cells behind it, to measure an enqueue and a dequeue by
/// themselves.
#[derive(Debug)]
pub struct NemesisQueue {
    queue: Queue,
    links: Vec<Word64>,
}

impl NemesisQueue {
    /// Bytes of memory for the queue and `cells` cells.
    #[must_use]
    pub const fn bytes(cells: usize) -> usize {
        Queue::BYTES + cells * LINE_BYTES
    }

    /// A queue in zeroed memory that all processes have mapped writable.
    ///
    /// # Panics
    /// If the memory is too short.
    #[must_use]
    pub fn new(memory: &Region, cells: usize, has_shadow_head: bool) -> Self {
        let link = |cell: usize| memory.keep64(Queue::BYTES + cell * LINE_BYTES);
        let queue = Queue::new(memory, 0, has_shadow_head);
        Self { queue, links: (0..cells).map(link).collect() }
    }

    /// Adds a cell, which is in no queue, at the end.
    ///
    /// # Panics
    /// If there is no such cell.
    #[inline(always)]
    pub fn enqueue(&self, cell: usize) {
        self.queue.enqueue(&self.links, cell);
    }

    /// Takes the first cell, if there is one. Only one process may call this at a time.
    #[inline(always)]
    #[must_use]
    pub fn dequeue(&self) -> Option<usize> {
        self.queue.dequeue(&self.links)
    }

    /// As [`Self::dequeue`], for several processes: they dequeue one after the other.
    #[must_use]
    pub fn dequeue_of_many(&self) -> Option<usize> {
        self.queue.dequeue_of_many(&self.links)
    }
}

/// The number of the cell that a link stands for.
#[inline(always)]
fn at(link: Link) -> usize {
    #[expect(clippy::cast_possible_truncation, reason = "a number of a cell and one")]
    let cell = (link - 1) as usize;
    cell
}
