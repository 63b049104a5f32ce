//! What a fast path rarely does.

/// Tells the compiler that the block that calls this rarely runs. It then lays the other way out without jumps, which
/// made messages faster, most of all on a core whose other hyperthread is busy (docs/costs.md).
#[inline(always)]
#[cold]
pub(crate) fn rarely() {}
