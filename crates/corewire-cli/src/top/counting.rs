//! Counters, and how fast they grow.

/// A counter by its name; 0 if there is none.
pub(crate) fn counter(counters: &[(&'static str, u64)], name: &str) -> u64 {
    counters.iter().find(|(word, _)| *word == name).map_or(0, |&(_, count)| count)
}

/// How fast a counter has grown; 0 if no time has passed.
pub(super) fn per_second(before: u64, now: u64, seconds: f64) -> f64 {
    match seconds > 0.0 {
        true => now.saturating_sub(before) as f64 / seconds,
        false => 0.0,
    }
}
