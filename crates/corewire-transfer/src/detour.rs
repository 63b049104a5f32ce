//! Copies by the kernel that take a detour.
//!
//! The kernel copies by `rep movsb` where the processor says that this is fast. On AMD's Zen 3 it is not if the
//! target begins 1 to 31 bytes after the source, whole pages aside: see [`corewire_ring::copying`]. There a copy of 64 KiB
//! takes 29 us instead of 6.8. So it goes by way of memory of this thread that begins at the same place of a page as the other
//! process's memory does, which takes 8.2 us: the kernel copies between the two, and registers between this and the target, or
//! the source, on this side.
//!
//! Whether this processor is one of those is measured once.

use std::cell::RefCell;
use std::time::Instant;

use corewire_layout::PAGE_BYTES;
use corewire_layout::rendezvous::Stretch;
use corewire_ring::copying::{NextReader, Routine, copy, is_close};
use corewire_ring::sync::Ordering::Relaxed;
use corewire_ring::sync::StaticU64;

use crate::walks::{Piece, SLOW_BYTES_MAX, vector_of};

/// Shorter copies take none.
const WORTH_BYTES: u64 = 2048;

thread_local! {
    /// Memory for the detours of this thread.
    static BETWEEN: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Whether the kernel's copy from one stretch to the other would be slow.
pub(crate) fn is_slow(from: &Stretch, to: &Stretch) -> bool {
    #[expect(clippy::cast_possible_truncation, reason = "addresses of this machine")]
    let is_close = is_close(from.address as usize, to.address as usize);
    is_close && from.bytes >= WORTH_BYTES && are_strings_slow()
}

/// Whether this processor copies slowly by string instructions to a target close behind its source.
fn are_strings_slow() -> bool {
    const UNKNOWN: u64 = 0;
    // No lock: a child that is forked meanwhile measures by itself.
    static KNOWN: StaticU64 = StaticU64::new(UNKNOWN);
    if KNOWN.load(Relaxed) == UNKNOWN {
        KNOWN.store(1 + u64::from(measure_strings()), Relaxed);
    }
    KNOWN.load(Relaxed) == 2
}

fn measure_strings() -> bool {
    const BYTES: usize = 8192;
    let (source, mut target) = (vec![1u8; BYTES], vec![0u8; BYTES + 2 * PAGE_BYTES]);
    let at = source.as_ptr().addr().wrapping_sub(target.as_ptr().addr()) % PAGE_BYTES;
    let mut best_of = |after: usize| {
        let to = &mut target[at + after..][..BYTES];
        let times = (0..5).map(|_| {
            let began = Instant::now();
            // SAFETY: both are live, of this length, and two vectors.
            unsafe { Routine::String.copy(source.as_ptr(), to.as_mut_ptr(), BYTES) };
            began.elapsed()
        });
        times.min().unwrap_or_default()
    };
    let apart = best_of(64);
    best_of(16) > 4 * apart
}

/// One detour: the place of the memory between, and what the piece would have copied from or to.
pub(crate) struct Detour {
    memory: Vec<u8>,
    at: usize,
    local: Stretch,
}

impl Detour {
    /// The detour of a piece that is slow: it takes the local stretch's place.
    pub(crate) fn of(piece: &mut Piece) -> Option<Self> {
        let (local, remote) = piece.slow?;
        // None at the end of a thread.
        let mut memory = BETWEEN.try_with(RefCell::take).unwrap_or_default();
        let (bytes, most) =
            (usize::try_from(local.bytes).ok()?, usize::try_from(SLOW_BYTES_MAX).ok()?);
        memory.resize(most + PAGE_BYTES, 0);
        let remote_at = usize::try_from(remote.address).ok()?;
        let at = remote_at.wrapping_sub(memory.as_ptr().addr()) % PAGE_BYTES;
        let between = memory.get_mut(at..at + bytes)?;
        let address = between.as_mut_ptr().expose_provenance() as u64;
        *piece.local.first_mut()? = vector_of(Stretch { address, ..local });
        Some(Self { memory, at, local })
    }

    /// The memory between.
    pub(crate) fn between(&mut self) -> &mut [u8] {
        let bytes = usize::try_from(self.local.bytes).unwrap_or(0);
        &mut self.memory[self.at..][..bytes]
    }

    /// Copies from the memory between to the piece's local stretch.
    ///
    /// # Safety
    /// Nobody else accesses that, and its provenance is exposed.
    pub(crate) unsafe fn arrive(mut self) {
        let Stretch { address, .. } = self.local;
        let from = self.between();
        #[expect(clippy::cast_possible_truncation, reason = "an address of this machine")]
        let to = std::ptr::with_exposed_provenance_mut(address as usize);
        // SAFETY: guaranteed by the caller; the kernel has found it writable, or its owner sees to it, and the memory between
        // is this thread's own.
        unsafe { copy(NextReader::Own, from.as_ptr(), to, from.len()) };
    }
}

impl Drop for Detour {
    fn drop(&mut self) {
        // None at the end of a thread.
        let _ = BETWEEN.try_with(|between| between.replace(std::mem::take(&mut self.memory)));
    }
}
