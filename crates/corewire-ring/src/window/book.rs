//! The words of a window's book. `corewire_layout::window` names the writer of each.
//!
//! Proofs: `proof/models/tests/models/windows.rs`.

use corewire_layout::window as at;
use corewire_layout::window::{Tenure, participant_offset};

use crate::doorbell::{self, WAKE_ALL};
use crate::region::Region;
use crate::sync::{AtomicU32, AtomicU64, Ordering::Relaxed};
use crate::{Kernel, fence_at};

/// A window's book.
#[derive(Debug, Clone)]
pub struct Book {
    region: Region,
    rows: u32,
}

/// A row of a book, and which of its participants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Seat {
    /// The row. The owner has row 0.
    pub row: u32,
    /// The number of the participant among those that the row has had.
    pub generation: u32,
}

impl Book {
    /// The book of so many rows in this memory, which has at least [`at::book_bytes`] bytes.
    ///
    /// # Panics
    /// If it has fewer.
    #[must_use]
    pub fn new(region: Region, rows: u32) -> Self {
        assert!(region.bytes() as u64 >= at::book_bytes(rows), "own sizes");
        Self { region, rows }
    }

    /// Number of its rows.
    #[must_use]
    pub fn rows(&self) -> u32 {
        self.rows
    }

    pub(super) fn lock(&self) -> &AtomicU64 {
        self.region.word64(at::LOCK)
    }

    pub(super) fn bell(&self) -> &AtomicU32 {
        self.region.word32(at::WINDOW_BELL)
    }

    pub(super) fn sleepers(&self) -> &AtomicU32 {
        self.region.word32(at::WINDOW_SLEEPERS)
    }

    pub(super) fn counter(&self, index: usize) -> Option<&AtomicU64> {
        let is_there = index < at::WINDOW_COUNTERS_MAX;
        is_there.then(|| self.region.word64(at::WINDOW_COUNTERS + index * COUNTER_BYTES))
    }

    fn of_row(&self, row: u32, word: usize) -> &AtomicU64 {
        assert!(row < self.rows, "own row");
        self.region.word64(participant_offset(row) + word)
    }

    pub(super) fn tenure_word(&self, row: u32) -> &AtomicU64 {
        self.of_row(row, at::PARTICIPANT_TENURE)
    }

    pub(super) fn pid(&self, row: u32) -> &AtomicU64 {
        self.of_row(row, at::PARTICIPANT_PID)
    }

    pub(super) fn posts(&self, row: u32) -> &AtomicU64 {
        self.of_row(row, at::PARTICIPANT_POSTS)
    }

    pub(super) fn fences(&self, row: u32) -> &AtomicU64 {
        self.of_row(row, at::PARTICIPANT_FENCES)
    }

    pub(super) fn first(&self, row: u32) -> &AtomicU64 {
        self.of_row(row, at::PARTICIPANT_FIRST)
    }

    pub(super) fn left(&self, row: u32) -> &AtomicU64 {
        self.of_row(row, at::PARTICIPANT_LEFT)
    }

    pub(super) fn completes(&self, row: u32) -> &AtomicU64 {
        self.of_row(row, at::PARTICIPANT_COMPLETES)
    }

    pub(super) fn reading(&self, row: u32) -> &AtomicU64 {
        self.of_row(row, at::PARTICIPANT_READING)
    }

    /// Who has a row.
    #[must_use]
    pub fn tenure(&self, row: u32) -> Tenure {
        let tenure = Tenure::of_word(self.tenure_word(row).load(Relaxed));
        // ORDER(X9): pairs with X8; what a participant that has gone had stored is visible with its end. A fence, since
        // an observer's map is read-only.
        fence_at!(X9: Acquire);
        tenure
    }

    /// The participants that are there, with the numbers of their processes, 0 for one that is not visible to the owner.
    pub fn present(&self) -> impl Iterator<Item = (Seat, u32)> {
        (0..self.rows).filter_map(|row| {
            let Tenure { generation, is_present } = self.tenure(row);
            let pid = u32::try_from(self.pid(row).load(Relaxed)).unwrap_or(0);
            is_present.then_some((Seat { row, generation }, pid))
        })
    }

    /// Who holds the lock exclusively; `None` if nobody does.
    #[must_use]
    pub fn holder(&self) -> Option<Seat> {
        let word = self.lock().load(Relaxed);
        let [a, b, c, d, e, f, g, h] = word.to_le_bytes();
        let row = u32::from_le_bytes([a, b, c, d]).checked_sub(1)?;
        Some(Seat { row, generation: u32::from_le_bytes([e, f, g, h]) })
    }

    /// Number of participants that share the lock.
    #[must_use]
    pub fn readers(&self) -> usize {
        (0..self.rows).filter(|row| self.reading(*row).load(Relaxed) != 0).count()
    }

    /// What a counter holds; `None` if there is no such counter.
    #[must_use]
    pub fn count(&self, index: usize) -> Option<u64> {
        let count = self.counter(index)?.load(Relaxed);
        // ORDER(X7): pairs with X6; what was put before the addition is visible with it. A fence, as above.
        fence_at!(X7: Acquire);
        Some(count)
    }

    /// Something was stored that others may wait for.
    pub(super) fn tell<K: Kernel>(&self, kernel: &K) {
        // ORDER(X10): pairs with X11; either who goes to sleep sees what was stored, or this thread sees that it sleeps.
        fence_at!(X10: SeqCst);
        if self.sleepers().load(Relaxed) != 0 {
            self.wake_all(kernel);
        }
    }

    #[cold]
    pub(super) fn wake_all<K: Kernel>(&self, kernel: &K) {
        // Before the bell: one that announces its sleep after this has read the bell after it, or finds it changed.
        self.sleepers().store(0, Relaxed);
        doorbell::ring(self.bell(), WAKE_ALL, kernel);
    }
}

/// Distance of the counters.
const COUNTER_BYTES: usize = corewire_layout::ROLE_BYTES;
