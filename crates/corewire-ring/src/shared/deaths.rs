//! Who is known to be dead. Private memory of each process.

use alloc::vec::Vec;

use crate::order;
use crate::sync::AtomicU64;

/// By row, the last generation that the kernel has reported dead to this process, plus one.
#[derive(Debug)]
pub struct Deaths(Vec<AtomicU64>);

impl Deaths {
    /// Of nobody, of up to `rows`.
    #[must_use]
    pub fn new(rows: u32) -> Self {
        Self((0..rows).map(|_| AtomicU64::new(0)).collect())
    }

    /// The kernel has said that the holder of `row` of this generation is dead.
    pub fn learn(&self, row: u32, generation: u32) {
        if let Some(word) = self.0.get(row as usize) {
            // The end of an earlier holder may be reported late.
            // ORDER(D1): pairs with D2; what the dead one stored is seen by who learns of the death.
            word.fetch_max(u64::from(generation) + 1, order!(D1: Release));
        }
    }

    /// Is the holder of this generation known to be dead, or to have been followed by one that is? What
    /// is loaded afterwards is what it left.
    #[must_use]
    pub fn knows(&self, row: u32, generation: u32) -> bool {
        // ORDER(D2): pairs with D1.
        let word = self.0.get(row as usize).map_or(0, |word| word.load(order!(D2: Acquire)));
        word > u64::from(generation)
    }
}
