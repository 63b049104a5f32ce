//! Which parts of a window this process has put to lately.
//!
//! A long put to memory that no cache near this core holds is faster past the caches; to memory that they hold, it is
//! much slower (on an AMD EPYC 1.5 and 0.6 times the speed). The processor does not say which is the case. But what this
//! process has put to lately, and has not been driven out by puts since, is in its caches.

use corewire_ring::copying::STREAMED_FROM_BYTES;
use corewire_ring::sync::{AtomicU64, Ordering::Relaxed};

/// Bytes of a block of the window.
const BLOCK_BYTES: usize = STREAMED_FROM_BYTES;
/// Blocks that are remembered. Those further apart take each other's places.
const BLOCKS: usize = 64;
/// So many bytes of long puts leave what was put before them in the caches: about half of a core's own cache, or of its
/// share of a larger one.
const KEPT_BYTES: u64 = 2 << 20;

/// When each block was put to last, in bytes put since the beginning. Several threads may use it: a wrong answer costs
/// time, nothing else.
#[derive(Debug)]
pub(super) struct Recent {
    put_bytes: AtomicU64,
    blocks: [AtomicU64; BLOCKS],
}

impl Default for Recent {
    fn default() -> Self {
        Self { put_bytes: AtomicU64::new(0), blocks: [const { AtomicU64::new(0) }; BLOCKS] }
    }
}

impl Recent {
    /// Notes a long put. True if the memory was not put to lately.
    pub(super) fn note(&self, offset: usize, bytes: usize) -> bool {
        let now = self.put_bytes.fetch_add(bytes as u64, Relaxed) + bytes as u64;
        let mut is_far = true;
        for block in offset / BLOCK_BYTES..=(offset + bytes - 1) / BLOCK_BYTES {
            let place = &self.blocks[block % BLOCKS];
            // The block in the upper bits, so that another one in its place is not taken for it.
            let tag = (block as u64 + 1) << 40;
            let before = place.load(Relaxed);
            let mask = (1 << 40) - 1;
            let age = now.wrapping_sub(before) & mask;
            if before & !mask == tag && age <= KEPT_BYTES + bytes as u64 {
                is_far = false;
            }
            place.store(tag | (now & mask), Relaxed);
        }
        is_far
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    #[test]
    fn what_was_put_to_lately_is_near() {
        let recent = Recent::default();
        assert!(recent.note(0, MIB));
        assert!(!recent.note(0, MIB));
        assert!(recent.note(5 * MIB, MIB), "another part");
        assert!(!recent.note(0, MIB), "little was put since");
        for part in 10..14 {
            assert!(recent.note(part * MIB, MIB));
        }
        assert!(recent.note(0, MIB), "much was put since");
        assert!(recent.note(BLOCKS * BLOCK_BYTES, MIB), "another block in the same place");
    }
}
