//! The addressed rows that wait for a thread to link them.

use std::collections::VecDeque;
use std::time::Duration;

/// Rows to link, and the number of threads that do so.
#[derive(Debug, Default)]
pub(super) struct ToLink {
    pub(super) rows: VecDeque<Waiting>,
    pub(super) linkers: usize,
}

/// A row that is to be linked.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) row: u32,
    /// Before it is tried.
    pub(super) pause: Duration,
    /// Tries in succession for which descriptors, memory or something else of the system was short.
    pub(super) short: u32,
}

impl Waiting {
    /// A row that is tried at once.
    pub(super) fn new(row: u32) -> Self {
        Self { row, pause: Duration::ZERO, short: 0 }
    }
}
