//! The addressed rows that wait for a thread to link them.

use std::collections::VecDeque;
use std::time::Duration;

/// Rows to link, each with the pause before it is tried, and the number of threads that do so.
#[derive(Debug, Default)]
pub(super) struct ToLink {
    pub(super) rows: VecDeque<(u32, Duration)>,
    pub(super) linkers: usize,
}
