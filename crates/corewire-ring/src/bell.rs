//! What ends a sleep: bells, and the values that their sleeper has read ([`doorbell`](crate::doorbell)).

use crate::sync::{AtomicU32, Ordering::Relaxed};

/// A bell, and the value that its sleeper read before it checked for the last time.
#[derive(Debug, Clone, Copy)]
pub struct Bell<'a> {
    /// The word. It changes whenever the threads that sleep on it must check again.
    pub word: &'a AtomicU32,
    /// Its value in step 1.
    pub heard: u32,
}

impl Bell<'_> {
    /// Has it been rung since?
    #[inline]
    #[must_use]
    pub fn has_rung(&self) -> bool {
        self.word.load(Relaxed) != self.heard
    }
}

/// What ends a sleep. At least one of them.
#[derive(Debug, Clone, Copy, Default)]
pub struct Bells<'a> {
    /// A bell in shared memory.
    pub shared: Option<Bell<'a>>,
    /// A bell in private memory, which only this process rings.
    pub own: Option<Bell<'a>>,
}

impl Bells<'_> {
    /// Has one of them been rung?
    #[inline]
    #[must_use]
    pub fn have_rung(&self) -> bool {
        [self.shared, self.own].into_iter().flatten().any(|bell| bell.has_rung())
    }
}
