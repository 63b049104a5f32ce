//! What a fast path rarely does.

/// Tells the compiler that the block that calls this rarely runs, so that it lays the other way out straight. On a core
/// shared with a busy hyperthread, each taken jump costs two cycles.
#[inline(always)]
#[cold]
pub(crate) fn rarely() {}
