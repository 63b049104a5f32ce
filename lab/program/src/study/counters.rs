//! The processor's hardware counters, where this process may read them.

use perf_event::events::Hardware;
use perf_event::{Builder, Counter};

/// Instructions and misses in the last-level cache of this process.
pub(crate) struct Counters(Option<[Counter; 2]>);

impl Counters {
    /// Starts counting.
    pub(crate) fn start() -> Self {
        Self(open().ok().and_then(|mut counters| {
            counters.iter_mut().all(|counter| counter.enable().is_ok()).then_some(counters)
        }))
    }

    /// Ends counting, and returns the counts.
    pub(crate) fn stop(self) -> (Option<u64>, Option<u64>) {
        let Some([mut instructions, mut misses]) = self.0 else { return (None, None) };
        (instructions.read().ok(), misses.read().ok())
    }
}

fn open() -> std::io::Result<[Counter; 2]> {
    let counter = |event: Hardware| Builder::new(event).include_kernel().build();
    Ok([counter(Hardware::INSTRUCTIONS)?, counter(Hardware::CACHE_MISSES)?])
}

/// Why the counters cannot be read; `None` if they can.
pub(crate) fn why_absent() -> Option<String> {
    let error = open().err()?;
    Some(format!("the kernel refuses them: {error}"))
}
