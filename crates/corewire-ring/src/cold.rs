//! What a fast path rarely does.

/// Tells the compiler that the block that calls this rarely runs, so that it lays the other way out straight. Each jump
/// taken costs a core that it shares with a busy hyperthread two cycles.
#[inline(always)]
#[cold]
pub(crate) fn rarely() {}
