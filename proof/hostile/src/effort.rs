//! The maximum work of a call, whatever the neighbour wrote. It follows from the channel's sizes.
//! Built with `--cfg corewire_steps`, the ring counts its accesses to atomics, and every call of
//! the harness must stay within the maximum. Without it, only calls of the kernel are counted.

use corewire_layout::endpoint::EndpointSizes;
use corewire_layout::geometry::Geometry;

use crate::kernel::Idle;

/// Messages that a call may find lost, one after the other, before it checks whether to wait or
/// give up.
const LOSSES_AT_A_TIME: u64 = 64;
/// Checks for a bell that arrives late, after a sleep that the cap ended.
const SETTLING_LOOKS: u64 = 10_000;

/// The maximum work of a call on a channel or an endpoint.
#[derive(Debug, Clone, Copy)]
pub struct Effort {
    accesses_max: u64,
    calls_max: u64,
}

impl Effort {
    /// The maximum for a channel of this geometry: a constant, and each slot, receiver and word of
    /// the longest message a few times.
    #[must_use]
    pub fn of(geometry: &Geometry) -> Self {
        let words = geometry.message_bytes_max().max(48).div_ceil(8) + 2;
        let losses = 8 * LOSSES_AT_A_TIME;
        let accesses_max =
            64 + losses + 4 * geometry.slots() + 12 * geometry.receivers_max() + words;
        Self { accesses_max, calls_max: 8 + geometry.receivers_max() }
    }

    /// The maximum for an endpoint of these sizes: a constant, and each peer, slot and cell a few
    /// times.
    #[must_use]
    pub fn of_endpoint(sizes: &EndpointSizes) -> Self {
        let (peers, slots) = (sizes.peers_max(), sizes.rings() * sizes.ring_slots());
        let accesses_max = 128 + 32 * peers + 4 * slots + 4 * sizes.cells();
        Self { accesses_max, calls_max: 8 + 4 * peers }
    }

    /// The same for a call that visits so many words besides.
    #[must_use]
    pub fn visiting(self, words: u64) -> Self {
        Self { accesses_max: self.accesses_max + words, ..self }
    }

    /// Runs `call` and asserts that it did at most `times` times the maximum work.
    #[inline]
    pub fn bound<R>(&self, kernel: &Idle, times: u64, call: impl FnOnce() -> R) -> R {
        let _ = (kernel.take_calls(), kernel.take_capped());
        #[cfg(corewire_steps)]
        let before = corewire_ring::sync::steps();
        let result = call();
        let calls = kernel.take_calls();
        assert!(calls <= times * self.calls_max, "{calls} calls of the kernel");
        #[cfg(corewire_steps)]
        {
            let settling = if kernel.take_capped() { SETTLING_LOOKS } else { 0 };
            let accesses = corewire_ring::sync::steps() - before;
            let accesses_max = times * (self.accesses_max + settling);
            assert!(accesses <= accesses_max, "{accesses} accesses, where {accesses_max} suffice");
        }
        #[cfg(not(corewire_steps))]
        let _ = (self.accesses_max, SETTLING_LOOKS);
        result
    }
}
