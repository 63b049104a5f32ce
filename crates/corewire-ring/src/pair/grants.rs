//! Messages that stay in their sender's heap while their receiver reads them.
//!
//! # Path of a message
//!
//! 1. The receiver grants the sender a number of bytes ([`Granted::limit`]; the engines exchange the notices).
//! 2. The sender takes a block of its heap, counts its length as spent, and writes the message there.
//! 3. It takes an unused release bit, notes the block under it, and publishes a slot that names both (P1).
//! 4. The receiver finds the slot as any other (P2), checks that the block lies in the heap and the bit is not in use
//!    ([`Kept::take`]), and makes a [`Held`], which it may give to any thread. The slot's position is passed at once.
//! 5. The thread that drops the message changes the bit (G1), and wakes the sender if it waits for room.
//! 6. The sender, when it is short of blocks or has used [`SCAN_AFTER_BYTES`] since it looked last, reads the words
//!    with bits in use (G2): each bit that differs from before gives its block back.
//!
//! # Words and writers
//!
//! | word | where | written by |
//! |---|---|---|
//! | release bits | the receiver's segment, 512 bytes for each peer | threads of the receiver, by a locked exclusive or |
//! | `taken` | private memory of the receiver | its data thread: the bits of messages that it has taken, changed once for each |
//! | `seen`, `in_use`, `blocks` | private memory of the sender | its data thread |
//!
//! A bit is in use from the slot's publication to its change. A peer that names a bit in use, or memory outside of its
//! heap, is cut off; one that changes bits of messages that it does not hold loses messages of its own.
//!
//! # Cost of a message of n bytes
//!
//! | | line transfers | locked instructions |
//! |---|---|---|
//! | sender | n/64 to own the block again; 1 for a word of bits, once in 256 KiB of blocks | 0 |
//! | receiver | 1 for the slot; n/64 if it reads the message | 1 for the handle, 1 for the bit, 1 fence |
//!
//! Source: Yamagiwa and others, "Active Zero-copy", which lets a receiver take messages that it posted no buffer for, and
//! refuse at once (NACK) those for which it has no memory. Here the sender knows what there is room for, so a refusal
//! takes no message.
//!
//! Proofs: `proof/models/tests/models/grants.rs`, `proof/kill/src/pairs.rs`.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

use corewire_layout::endpoint::blocked_mode;
use corewire_layout::grants::RELEASES;
use corewire_layout::segment::SleepMode;

use super::heap::{Block, Heap};
use crate::message::{Held, Home};
use crate::region::{Region, Store, Word32};
use crate::sync::AtomicU32;
use crate::sync::Ordering::Relaxed;
use crate::{Control, Host, Trusted, doorbell, fence_at, order};

/// The sender looks for released blocks after it has used so many bytes of blocks, even if it has others: then as many
/// take turns.
pub(super) const SCAN_AFTER_BYTES: u64 = 256 << 10;

/// So much of a message is fetched while its handle is made: a transaction of 256 bytes to 1 KiB that are read takes 5 to
/// 15 % less, longer ones gain nothing.
const PREFETCHED_BYTES: usize = 1024;

const WORDS: usize = RELEASES as usize / 64;

const fn bit_of(number: u16) -> (usize, u64) {
    (number as usize / 64, 1 << (number % 64))
}

/// What one peer may have of this endpoint's heap, and what it has.
pub struct Granted {
    /// Tells this link from later ones of the same row.
    pub(super) link: u64,
    pub(super) limit: u64,
    /// Bytes of blocks that the peer holds or will get: those of messages, and those that the program writes.
    pub(super) spent: u64,
    /// Bytes of blocks used since the words were read last.
    pub(super) since_scan: u64,
    /// The peer's words.
    words: Region,
    /// The words as last read; bits that are in use.
    seen: [u64; WORDS],
    in_use: [u64; WORDS],
    /// By bit: the block, and the position of the slot that names it.
    blocks: Vec<(Block, u64)>,
    /// Bits that are not in use, the one used last at the end.
    unused: Vec<u16>,
}

impl fmt::Debug for Granted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { limit, spent, .. } = self;
        f.debug_struct("Granted")
            .field("limit", limit)
            .field("spent", spent)
            .finish_non_exhaustive()
    }
}

impl Granted {
    /// Nothing is granted yet. `words` are the peer's bits for this endpoint, none of which changes before the first
    /// message.
    pub(super) fn new(link: u64, words: Region) -> Self {
        let mut seen = [0; WORDS];
        for (index, seen) in seen.iter_mut().enumerate() {
            *seen = words.word64(8 * index).load(Relaxed);
        }
        let blocks = alloc::vec![(Block { line: 0, bytes: 0 }, 0); RELEASES.into()];
        let unused = (0..RELEASES).rev().collect();
        let (limit, spent, since_scan, in_use) = (0, 0, 0, [0; WORDS]);
        Self { link, limit, spent, since_scan, words, seen, in_use, blocks, unused }
    }

    /// May a block of `bytes` bytes be used, as far as is known?
    #[inline]
    pub(super) fn has_room(&self, bytes: u64) -> bool {
        self.spent.saturating_add(bytes) <= self.limit && !self.unused.is_empty()
    }

    /// Takes back what the peer has released.
    pub(super) fn scan(&mut self, heap: &mut Heap) {
        self.since_scan = 0;
        for index in 0..WORDS {
            if self.in_use[index] == 0 {
                continue;
            }
            let now = self.words.word64(8 * index).load(Relaxed);
            // ORDER(G2): pairs with G1; the peer has read the blocks before they are written again. (A relaxed load and
            // a fence, since the map is read-only.)
            fence_at!(G2: Acquire);
            let mut released = (now ^ self.seen[index]) & self.in_use[index];
            self.seen[index] ^= released;
            self.in_use[index] &= !released;
            while released != 0 {
                let bit = released.trailing_zeros();
                released &= released - 1;
                #[expect(clippy::cast_possible_truncation, reason = "below RELEASES")]
                let number = (64 * index) as u16 + bit as u16;
                let (block, _) = self.blocks[usize::from(number)];
                self.spent = self.spent.saturating_sub(block.bytes);
                self.unused.push(number);
                heap.give_back(block);
            }
        }
    }

    /// A bit for a block. `None` if all are in use.
    #[inline]
    pub(super) fn take_bit(&mut self) -> Option<u16> {
        self.unused.pop()
    }

    /// The block was published in the slot at `position`.
    #[inline]
    pub(super) fn use_bit(&mut self, number: u16, block: Block, position: u64) {
        let (index, bit) = bit_of(number);
        self.in_use[index] |= bit;
        self.blocks[usize::from(number)] = (block, position);
    }

    /// The block with this bit was not published.
    pub(super) fn give_bit_back(&mut self, number: u16) {
        self.unused.push(number);
    }

    /// Does the peer hold messages?
    pub(super) fn is_in_use(&self) -> bool {
        self.in_use.iter().any(|&word| word != 0)
    }

    /// The peer takes no message from slots at `position` and beyond: their blocks are unused.
    pub(super) fn end(&mut self, position: u64, heap: &mut Heap) {
        for number in 0..RELEASES {
            let (index, bit) = bit_of(number);
            let (block, at) = self.blocks[usize::from(number)];
            if self.in_use[index] & bit != 0 && at >= position {
                self.in_use[index] &= !bit;
                self.spent = self.spent.saturating_sub(block.bytes);
                self.unused.push(number);
                heap.give_back(block);
            }
        }
    }
}

/// The messages of one peer that this endpoint has taken and not released, by their bits.
pub(super) struct Kept {
    /// The bits in this endpoint's segment, which threads change that release messages.
    words: Region,
    taken: [u64; WORDS],
    home: Arc<dyn Home>,
}

impl fmt::Debug for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kept").finish_non_exhaustive()
    }
}

impl Kept {
    /// None is held. `words` are this endpoint's bits for the peer; messages go to `home` when they are released.
    pub(super) fn new(words: Region, home: Arc<dyn Home>) -> Self {
        let mut taken = [0; WORDS];
        for (index, taken) in taken.iter_mut().enumerate() {
            // By a read-modify-write, which cannot read an older value than the release of an earlier peer's message that
            // preceded the end of its handle, which was seen.
            *taken = words.word64(8 * index).fetch_or(0, Relaxed);
        }
        Self { words, taken, home }
    }

    /// Is the message with this bit held?
    #[inline]
    pub(super) fn is_in_use(&self, number: u16) -> bool {
        let (index, bit) = bit_of(number);
        (self.words.word64(8 * index).load(Relaxed) ^ self.taken[index]) & bit != 0
    }

    /// Takes the message at `at` of the peer's heap, whose bit is not in use.
    #[inline]
    pub(super) fn take(
        &mut self,
        heap: &Store,
        (at, bytes): (u64, usize),
        number: u16,
        trusted: Trusted,
    ) -> Held {
        let (index, bit) = bit_of(number);
        self.taken[index] ^= bit;
        let payload = heap.payload_at(at, bytes as u64, crate::region::Access::Read);
        payload.prefetch_to_read(PREFETCHED_BYTES);
        Held::new(payload, trusted, number, Arc::clone(&self.home))
    }
}

/// Where messages of one peer are released.
pub(super) struct Releases<H> {
    pub(super) words: Region,
    /// Keeps the peer's heap mapped.
    pub(super) _heap: Store,
    /// Odd while the peer waits for room; the last value at which it was woken.
    pub(super) blocked: Word32,
    pub(super) woken: AtomicU32,
    pub(super) doorbell: Word32,
    pub(super) row: u32,
    pub(super) host: H,
}

impl<H: Host + Send + Sync> Home for Releases<H> {
    fn release(&self, number: u16) {
        let (index, bit) = bit_of(number);
        // ORDER(G1): pairs with G2; this thread's reads of the message are done before the sender writes there again.
        self.words.word64(8 * index).fetch_xor(bit, order!(G1: Release));
        // A sender that waits sees the bit, or this thread sees it waiting.
        doorbell::fence_before_look();
        let blocked = self.blocked.load(Relaxed);
        if let Some(mode) = blocked_mode(blocked)
            && self.woken.swap(blocked, Relaxed) != blocked
        {
            match mode {
                SleepMode::Descriptor => self.host.control().wake_descriptor(self.row),
                SleepMode::Futex => doorbell::ring(&self.doorbell, 1, self.host.kernel()),
            }
        }
    }
}

/// A block of an endpoint's heap that its program writes, for one peer. It must be sent or given back: see
/// [`Endpoint::give_block_back`](super::Endpoint::give_block_back).
pub struct LentBlock {
    pub(super) block: Block,
    pub(super) row: u32,
    pub(super) link: u64,
    pub(super) bit: u16,
    bytes: usize,
    heap: Store,
}

// SAFETY: no other value names this block, so nothing but its owner, in any thread, accesses it.
unsafe impl Send for LentBlock {}
// SAFETY: through a shared reference it is only read.
unsafe impl Sync for LentBlock {}

impl fmt::Debug for LentBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LentBlock").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

impl LentBlock {
    pub(super) fn new(
        heap: &Heap,
        (block, bit): (Block, u16),
        (row, link): (u32, u64),
        bytes: usize,
    ) -> Self {
        Self { block, row, link, bit, bytes, heap: heap.store().clone() }
    }

    /// The row of the peer that it is for.
    #[must_use]
    pub fn row(&self) -> u32 {
        self.row
    }

    /// What will be sent.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        let payload = self.payload();
        // SAFETY: the block is this value's own, and mapped as long as its heap.
        unsafe { payload.as_own_slice() }
    }

    /// The same, to be written. Holds what earlier messages of this endpoint left there.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        let mut payload = self.payload();
        // SAFETY: as above; `&mut self` makes this the only reference.
        unsafe { payload.as_mut_slice() }
    }

    /// Only the first `bytes` bytes will be sent.
    pub fn truncate(&mut self, bytes: usize) {
        self.bytes = self.bytes.min(bytes);
    }

    fn payload(&self) -> crate::region::Payload {
        self.heap.payload_at(self.block.offset(), self.bytes as u64, crate::region::Access::Write)
    }
}

/// What came of looking for a block.
#[derive(Debug)]
pub enum Lending<T> {
    /// There is one.
    Done(T),
    /// It does not fit in what the peer grants now.
    Spent,
    /// There is no room in the heap, or the peer grants nothing.
    Impossible,
}

/// The boxes keep a peer without grants small.
pub(super) type GrantedBox = Option<Box<Granted>>;
pub(super) type KeptBox = Option<Box<Kept>>;
