//! The senders and receivers known to be dead. Private memory of each process.
//!
//! Proofs: `proof/models/tests/models/shared.rs`, `proof/kill/src/shared.rs`.

use alloc::vec::Vec;

use crate::order;
use crate::sync::AtomicU64;

/// For each row, the last generation that the kernel has reported dead to this process, plus one.
#[derive(Debug)]
pub struct Deaths(Vec<AtomicU64>);

impl Deaths {
    /// No deaths yet, for up to `rows` rows.
    #[must_use]
    pub fn new(rows: u32) -> Self {
        Self((0..rows).map(|_| AtomicU64::new(0)).collect())
    }

    /// Records the kernel's report that the holder of this generation of `row` is dead.
    pub fn record(&self, row: u32, generation: u32) {
        if let Some(word) = self.0.get(row as usize) {
            // The death of an earlier holder may be reported late.
            // ORDER(D1): pairs with D2; a thread that learns of the death sees what the dead
            // process stored.
            word.fetch_max(u64::from(generation) + 1, order!(D1: Release));
        }
    }

    /// Is the holder of this generation, or a later one, known to be dead? Loads after this call
    /// see everything that the dead process stored.
    #[must_use]
    pub fn knows(&self, row: u32, generation: u32) -> bool {
        // ORDER(D2): pairs with D1.
        let word = self.0.get(row as usize).map_or(0, |word| word.load(order!(D2: Acquire)));
        word > u64::from(generation)
    }
}
