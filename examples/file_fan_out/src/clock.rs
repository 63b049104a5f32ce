//! A clock that all processes of the machine share.

use rustix::time::{ClockId, clock_gettime};

/// The time of the monotonic clock, in nanoseconds.
#[inline]
pub(crate) fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs()
}
