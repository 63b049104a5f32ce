//! Nemesis' queue (its Figure 3): any number of processes enqueue, one dequeues.
//!
//! ```text
//! plain:        line 0  tail              line 1  head
//! shadow head:  line 0  tail, head        line 1  the dequeuer's own head
//! ```
//!
//! A queue that is empty or holds one cell takes both ends of each: with the shadow head (section 3.1) they
//! lie in one line, and the dequeuer has a line of its own for a queue that holds more.
//!
//! Cost: an enqueue, one locked instruction, the tail's line, and the head's or the last cell's. A dequeue,
//! the head's line and the cell's; of the last cell a locked instruction and the tail's line, too.
//!
//! What is not in print is `dequeue_of_many`: two of the paper's three placements of the free queue have it
//! dequeued by several processes, for which Figure 3 is not made. A lock around it does.

use alloc::vec::Vec;

use corewire_layout::LINE_BYTES;

use crate::order;
use crate::region::{Region, Word32, Word64};
use crate::sync::{Ordering::Relaxed, pause};

const TAIL: usize = 0;
/// With a shadow head.
const HEAD_BESIDE: usize = 8;
/// Without one; or the shadow head.
const HEAD_APART: usize = LINE_BYTES;
const LOCK: usize = 2 * LINE_BYTES;

/// A cell, as queues name it: its number plus one, or 0 for none.
type Link = u64;
const NONE: Link = 0;

/// The cells' words that link them.
pub(super) type Links = [Word64];

/// A queue of cells.
#[derive(Debug, Clone)]
pub(super) struct Queue {
    tail: Word64,
    /// Where whoever finds the queue empty puts the first cell.
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

    /// Puts a cell at the end.
    #[inline(always)]
    pub(super) fn enqueue(&self, links: &Links, cell: usize) {
        let link = cell as Link + 1;
        links[cell].store(NONE, Relaxed);
        // ORDER(N1): pairs with itself and N4; the cell's link is empty, and the queue's head, before whoever
        // comes next stores there.
        match self.tail.swap(link, order!(N1: AcqRel)) {
            // ORDER(N2): pairs with N3; the cell's content is there before it is found.
            NONE => self.head.store(link, order!(N2: Release)),
            // ORDER(N2): as above.
            last => links[at(last)].store(link, order!(N2: Release)),
        }
    }

    /// Takes the first cell, if there is one. Of one process at a time.
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

    /// Takes a cell that had none behind it.
    #[inline(always)]
    fn take_last(&self, links: &Links, cell: usize, head: &Word64) {
        head.store(NONE, Relaxed);
        // ORDER(N4): pairs with N1; the head is empty before somebody who finds the queue so stores there.
        let taken =
            self.tail.compare_exchange(cell as Link + 1, NONE, order!(N4: Release), Relaxed);
        if taken.is_ok() {
            return;
        }
        // Somebody has the tail, and has not linked its cell yet.
        let next = loop {
            // ORDER(N3): as above.
            match links[cell].load(order!(N3: Acquire)) {
                NONE => pause(),
                next => break next,
            }
        };
        head.store(next, Relaxed);
    }

    /// The same of several processes: one after the other.
    pub(super) fn dequeue_of_many(&self, links: &Links) -> Option<usize> {
        // ORDER(N5): pairs with N6; the queue is as its last dequeuer left it.
        while self.lock.compare_exchange(0, 1, order!(N5: Acquire), Relaxed).is_err() {
            pause();
        }
        let cell = self.dequeue(links);
        // ORDER(N6): pairs with N5; all is done before the lock is free.
        self.lock.store(0, order!(N6: Release));
        cell
    }
}

/// A queue alone, with the links of its cells behind it: what an enqueue and a dequeue cost by themselves.
#[derive(Debug)]
pub struct NemesisQueue {
    queue: Queue,
    links: Vec<Word64>,
}

impl NemesisQueue {
    /// Bytes of memory for it and `cells` cells.
    #[must_use]
    pub const fn bytes(cells: usize) -> usize {
        Queue::BYTES + cells * LINE_BYTES
    }

    /// In zeroed memory that all have mapped writable.
    ///
    /// # Panics
    /// If the memory is too short.
    #[must_use]
    pub fn new(memory: &Region, cells: usize, has_shadow_head: bool) -> Self {
        let link = |cell: usize| memory.keep64(Queue::BYTES + cell * LINE_BYTES);
        let queue = Queue::new(memory, 0, has_shadow_head);
        Self { queue, links: (0..cells).map(link).collect() }
    }

    /// Puts a cell at the end: one that is in no queue.
    ///
    /// # Panics
    /// If there is no such cell.
    #[inline(always)]
    pub fn enqueue(&self, cell: usize) {
        self.queue.enqueue(&self.links, cell);
    }

    /// Takes the first cell, if there is one. Of one process at a time.
    #[inline(always)]
    #[must_use]
    pub fn dequeue(&self) -> Option<usize> {
        self.queue.dequeue(&self.links)
    }

    /// The same of several processes: one after the other.
    #[must_use]
    pub fn dequeue_of_many(&self) -> Option<usize> {
        self.queue.dequeue_of_many(&self.links)
    }
}

/// The number of a cell that is linked.
#[inline(always)]
fn at(link: Link) -> usize {
    #[expect(clippy::cast_possible_truncation, reason = "a number of a cell and one")]
    let cell = (link - 1) as usize;
    cell
}
