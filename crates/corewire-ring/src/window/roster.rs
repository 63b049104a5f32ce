//! The owner's control thread: who has which row, and what an ended participant leaves.
//!
//! Proofs: `proof/models/tests/models/windows.rs`.

use corewire_layout::window::{Tenure, holder};

use crate::sync::Ordering::Relaxed;
use crate::window::{Book, Seat};
use crate::{Kernel, order};

/// The rows of a book, as the owner's control thread gives them out. Only it changes them.
#[derive(Debug)]
pub struct Roster {
    book: Book,
}

impl Roster {
    /// The roster of a new book. Row 0 is the owner's.
    #[must_use]
    pub fn new(book: Book, owner_pid: u32) -> Self {
        let roster = Self { book };
        roster.seat(0, owner_pid);
        roster
    }

    /// Gives a row to a new participant, whose process has this number; `None` if all are taken.
    #[must_use]
    pub fn admit(&self, pid: u32) -> Option<Seat> {
        let mut rows = 0..self.book.rows();
        let row = rows.find(|row| !self.book.tenure(*row).is_present)?;
        Some(self.seat(row, pid))
    }

    fn seat(&self, row: u32, pid: u32) -> Seat {
        let book = &self.book;
        let generation = book.tenure(row).generation.wrapping_add(1).max(1);
        // It goes on where the others are: they have entered so many fences.
        let fences = (0..book.rows()).filter(|other| book.tenure(*other).is_present);
        let fences = fences.map(|other| book.fences(other).load(Relaxed));
        let number = fences.reduce(|one, other| match one.wrapping_sub(other) < 1 << 63 {
            true => one,
            false => other,
        });
        book.fences(row).store(number.unwrap_or(0), Relaxed);
        book.completes(row).store(book.posts(row).load(Relaxed), Relaxed);
        book.reading(row).store(0, Relaxed);
        book.pid(row).store(pid.into(), Relaxed);
        let tenure = Tenure { generation, is_present: true };
        // ORDER(X8): pairs with X9.
        book.tenure_word(row).store(tenure.to_word(), order!(X8: Release));
        Seat { row, generation }
    }

    /// This participant has ended: the kernel says that its process has, or it has said that it detaches. Frees what it
    /// had, and wakes everybody. What it had stored before is visible to those that go on.
    pub fn remove<K: Kernel>(&self, seat: Seat, kernel: &K) {
        let book = &self.book;
        if book.tenure(seat.row) != (Tenure { generation: seat.generation, is_present: true }) {
            return;
        }
        // ORDER(X2): as in `unshare`.
        book.reading(seat.row).store(0, order!(X2: Release));
        let tenure = Tenure { generation: seat.generation, is_present: false };
        // ORDER(X8): as in `seat`.
        book.tenure_word(seat.row).store(tenure.to_word(), order!(X8: Release));
        let own = holder(seat.row, seat.generation);
        // What the holder had stored is visible to this thread, since the kernel has said that it has ended.
        // ORDER(X19): pairs with X3 and X12.
        let _ = book.lock().compare_exchange(own, 0, order!(X19: Release), Relaxed);
        // A process may have died between its store and its ring.
        book.wake_all(kernel);
    }
}
