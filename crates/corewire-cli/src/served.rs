//! What a service or one of its methods has served, as lists show it.

use corewire_bind::{MethodTotals, Times};
use serde::Serialize;

/// Totals since the service began.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Served {
    pub(crate) requests: u64,
    pub(crate) replies: u64,
    pub(crate) errors: u64,
    pub(crate) request_bytes: u64,
    pub(crate) reply_bytes: u64,
    /// How long half of the timed calls took at most in the service.
    pub(crate) p50_ns: Option<u64>,
    pub(crate) p99_ns: Option<u64>,
}

impl Served {
    pub(crate) fn of(totals: &MethodTotals) -> Self {
        Self {
            requests: totals.requests,
            replies: totals.replies,
            errors: totals.errors,
            request_bytes: totals.request_bytes,
            reply_bytes: totals.reply_bytes,
            p50_ns: percentile(&totals.times, 50.0),
            p99_ns: percentile(&totals.times, 99.0),
        }
    }
}

/// In nanoseconds.
pub(crate) fn percentile(times: &Times, percent: f64) -> Option<u64> {
    let time = times.percentile(percent)?;
    Some(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
}
