//! The owner's control thread: who has which row, and what an ended participant leaves.
//!
//! Proofs: `proof/models/tests/models/windows.rs`.

use alloc::vec;
use alloc::vec::Vec;

use corewire_layout::window::{Tenure, holder};

use crate::sync::Ordering::Relaxed;
use crate::window::{Book, Seat};
use crate::{Kernel, fence_at, order};

/// The rows of a book, as the owner's control thread gives them out. Only it changes them; what others write into their
/// words changes nothing here.
#[derive(Debug)]
pub struct Roster {
    book: Book,
    tenures: Vec<Tenure>,
    /// The row that was given out last.
    last: u32,
}

impl Roster {
    /// The roster of a new book. Row 0 is the owner's.
    #[must_use]
    pub fn new(book: Book, owner_pid: u32) -> Self {
        let tenures = vec![Tenure::default(); book.rows() as usize];
        let mut roster = Self { book, tenures, last: 0 };
        roster.seat(0, owner_pid);
        roster
    }

    /// Gives a row to a new participant, whose process has this number; `None` if all are taken. Rows take turns, so that
    /// what a participant has said last stays in its row for a while.
    #[must_use]
    pub fn admit(&mut self, pid: u32) -> Option<Seat> {
        let rows = self.book.rows();
        let mut others = (1..=rows).map(|step| (self.last + step) % rows);
        let row = others.find(|row| !self.tenures[*row as usize].is_present)?;
        self.last = row;
        Some(self.seat(row, pid))
    }

    fn seat(&mut self, row: u32, pid: u32) -> Seat {
        let book = &self.book;
        let generation = self.tenures[row as usize].generation.wrapping_add(1).max(1);
        // It goes on behind the last fence that anybody has left, also one that has gone since.
        let left = (0..book.rows()).filter(|other| self.tenures[*other as usize].generation > 0);
        let left = left.map(|other| book.left(other).load(Relaxed));
        let first = left.fold(0, |one, other| match other.wrapping_sub(one) < 1 << 63 {
            true => other,
            false => one,
        });
        book.left(row).store(first, Relaxed);
        book.first(row).store(first, Relaxed);
        book.fences(row).store(first, Relaxed);
        book.reading(row).store(0, Relaxed);
        book.pid(row).store(pid.into(), Relaxed);
        let tenure = Tenure { generation, is_present: true };
        self.tenures[row as usize] = tenure;
        // ORDER(X8): pairs with X9.
        book.tenure_word(row).store(tenure.to_word(), order!(X8: Release));
        Seat { row, generation }
    }

    /// This participant has ended: the kernel says that its process has, or it has said that it detaches. Frees what it
    /// had, and wakes everybody. What it had stored before is visible to those that go on.
    pub fn remove<K: Kernel>(&mut self, seat: Seat, kernel: &K) {
        let held = Tenure { generation: seat.generation, is_present: true };
        let Some(tenure) = self.tenures.get_mut(seat.row as usize).filter(|it| **it == held) else {
            return;
        };
        tenure.is_present = false;
        let book = &self.book;
        // ORDER(X8): as in `seat`.
        book.tenure_word(seat.row).store(tenure.to_word(), order!(X8: Release));
        // ORDER(X26): pairs with X3, X4 and X12; one that is taken for ended although it lives, and shares the lock now, finds that
        // it has no row, or its share is taken away.
        fence_at!(X26: SeqCst);
        // ORDER(X2): as in `unshare`.
        book.reading(seat.row).store(0, order!(X2: Release));
        let own = holder(seat.row, seat.generation);
        // What the holder had stored is visible to this thread, since the kernel has said that it has ended, and to the
        // next holder by the fence.
        let _ = book.lock().compare_exchange(own, 0, Relaxed, Relaxed);
        // A process may have died between its store and its ring.
        book.wake_all(kernel);
    }
}
