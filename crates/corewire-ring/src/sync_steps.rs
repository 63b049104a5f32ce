//! Counts the accesses that `sync_reported.rs` reports: it shows how much work a call does,
//! whatever a peer has written (`--cfg corewire_steps`, for `proof/hostile`).

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

static STEPS: AtomicU64 = AtomicU64::new(0);

/// Number of accesses to atomics by this process so far.
#[must_use]
pub fn steps() -> u64 {
    STEPS.load(Relaxed)
}

pub(super) fn load(_address: usize) {
    STEPS.fetch_add(1, Relaxed);
}

pub(super) use load as modify;
pub(super) use load as store;
