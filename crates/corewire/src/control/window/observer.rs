//! Observing a window.

use std::fmt;

use corewire_layout::frame::WindowFacts;
use corewire_layout::name::ChannelName;
use corewire_layout::window::{Rights, WINDOW_COUNTERS_MAX, book_bytes};
use corewire_os::fork::Descriptor;
use corewire_os::memory::Segment;
use corewire_ring::window::Book;

use crate::error::JoinError;

/// An observer of a window, which has a read-only map of its book. A guest has none, and sees no participants.
pub struct WindowObserver {
    name: ChannelName,
    pid: u32,
    facts: WindowFacts,
    book: Option<Book>,
}

/// A window's state at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct WindowView {
    /// Its name.
    pub name: String,
    /// The process that has it; 0 if it cannot be seen from this process's PID namespace.
    pub pid: u32,
    /// Its length in bytes.
    pub bytes: u64,
    /// The most that other participants may do.
    pub rights_of_others: Rights,
    /// Maximum number of participants, the owner included.
    pub participants_max: u32,
    /// The participants of the owner's user that are there, the owner first.
    pub participants: Vec<ParticipantView>,
    /// The row that has the lock alone, or waits until those that share it have finished.
    pub locked_by: Option<u32>,
    /// Number of participants that share the lock.
    pub readers: usize,
    /// What the counters hold.
    pub counters: Vec<u64>,
}

/// A participant of a window.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ParticipantView {
    /// Its row.
    pub row: u32,
    /// Its process; 0 if the owner cannot see it.
    pub pid: u32,
}

impl WindowObserver {
    /// Checks what the window's process has sent.
    pub(crate) fn new(
        name: &ChannelName,
        pid: u32,
        facts: WindowFacts,
        book: Option<Descriptor>,
    ) -> Result<Self, JoinError> {
        let bad = |error| JoinError::Segment { name: name.clone(), error };
        let rows = facts.participants_max;
        let map = |book| Segment::adopt(book, true)?.map(book_bytes(rows));
        let book = book.map(map).transpose().map_err(bad)?.map(|book| Book::new(book, rows));
        Ok(Self { name: name.clone(), pid, facts, book })
    }

    /// The current state of the window.
    #[must_use]
    pub fn look(&self) -> WindowView {
        let Self { name, pid, facts, book } = self;
        let present = book.iter().flat_map(Book::present);
        let counters = book.iter().flat_map(|book| (0..WINDOW_COUNTERS_MAX).map(|i| book.count(i)));
        WindowView {
            name: name.as_str().to_owned(),
            pid: *pid,
            bytes: facts.bytes,
            rights_of_others: facts.rights,
            participants_max: facts.participants_max,
            participants: present
                .map(|(seat, pid)| ParticipantView { row: seat.row, pid })
                .collect(),
            locked_by: book.as_ref().and_then(Book::holder).map(|seat| seat.row),
            readers: book.as_ref().map_or(0, Book::readers),
            counters: counters.flatten().collect(),
        }
    }
}

impl fmt::Debug for WindowObserver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WindowObserver").field("name", &self.name).finish_non_exhaustive()
    }
}
