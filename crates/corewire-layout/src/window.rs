//! Windows: memory that other processes put to, get from, and change by atomic operations.
//!
//! A window has two segments. The first holds its *data*, and nothing else: a process that may write there may write any
//! byte, so neither sizes nor locks are there. The second holds what the participants of the window agree by: its *book*. All
//! participants of the owner's user have both; a guest has the data alone.
//!
//! ```text
//! book   0       lock                   which participant has the window to itself
//!        128     bell, sleepers         how those that wait are woken
//!        4096    32 counters, 128 bytes apart
//!        8192    a row of 1 KiB for each participant; the owner has row 0
//!                  0    tenure, process, posts, first   the owner's control thread, and the owner (posts)
//!                  128  fences, completes, left         its participant
//!                  256  reading                         its participant
//! ```
//!
//! | word | written by |
//! |---|---|
//! | lock | participants, by compare-and-swap; of one that has ended, the owner's control thread |
//! | bell, sleepers | everybody |
//! | counter | everybody, by addition |
//! | tenure, process, first | the owner's control thread |
//! | posts | the owner |
//! | fences, left, reading | the participant of the row; before it has the row, and once it has ended, the owner's control thread |
//! | completes | the participant of the row |
//!
//! Source: Buntinas and others, "Design and Evaluation of Nemesis" (2.3: windows); MPI 4.1, chapter 12 (epochs and locks).

use crate::{PAGE_BYTES, ROLE_BYTES};

/// Whether one participant has the window to itself: 0, or its [`holder`] word.
pub const LOCK: usize = 0;
/// Changes whenever those that sleep must look again.
pub const WINDOW_BELL: usize = ROLE_BYTES;
/// Not 0 if somebody may sleep.
pub const WINDOW_SLEEPERS: usize = ROLE_BYTES + 4;
/// The first counter.
pub const WINDOW_COUNTERS: usize = PAGE_BYTES;
/// Number of counters of a window.
pub const WINDOW_COUNTERS_MAX: usize = PAGE_BYTES / ROLE_BYTES;
/// The first row.
pub const PARTICIPANTS: usize = 2 * PAGE_BYTES;
/// Bytes of a row.
pub const PARTICIPANT_BYTES: usize = 8 * ROLE_BYTES;
/// Of a row: see [`Tenure`].
pub const PARTICIPANT_TENURE: usize = 0;
/// Of a row: the participant's process, for display.
pub const PARTICIPANT_PID: usize = 8;
/// Of a row: how often the owner has opened the window to its participants, and for which one the last time: see [`Turn`].
pub const PARTICIPANT_POSTS: usize = 16;
/// Of a row: the number of the last fence before its participant came.
pub const PARTICIPANT_FIRST: usize = 24;
/// Of a row: how many fences its participant has entered.
pub const PARTICIPANT_FENCES: usize = ROLE_BYTES;
/// Of a row: the last epoch that a participant of it has completed: see [`Turn`].
pub const PARTICIPANT_COMPLETES: usize = ROLE_BYTES + 8;
/// Of a row: the number of the last fence that its participant has left.
pub const PARTICIPANT_LEFT: usize = ROLE_BYTES + 16;
/// Of a row: 1 while its participant shares the lock, or is about to.
pub const PARTICIPANT_READING: usize = 2 * ROLE_BYTES;

/// The largest number of participants of a window.
pub const PARTICIPANTS_MAX: u32 = 1024;

/// Bytes of the book of a window with so many participants.
#[must_use]
pub const fn book_bytes(participants_max: u32) -> u64 {
    let bytes = PARTICIPANTS + participants_max as usize * PARTICIPANT_BYTES;
    bytes.next_multiple_of(PAGE_BYTES) as u64
}

/// Where a row begins.
#[must_use]
pub const fn participant_offset(row: u32) -> usize {
    PARTICIPANTS + row as usize * PARTICIPANT_BYTES
}

/// Who has a row: how many have had it, the present one included, and whether the present one is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tenure {
    /// Number of participants that the row has had; 0 if nobody has had it yet.
    pub generation: u32,
    /// Whether the last one is there.
    pub is_present: bool,
}

impl Tenure {
    /// As a word.
    #[must_use]
    pub const fn to_word(self) -> u64 {
        self.generation as u64 | (self.is_present as u64) << 32
    }

    /// Of a word. Every word is one.
    #[must_use]
    pub const fn of_word(word: u64) -> Self {
        let [a, b, c, d, present, ..] = word.to_le_bytes();
        Self { generation: u32::from_le_bytes([a, b, c, d]), is_present: present & 1 == 1 }
    }
}

/// An epoch between the owner and the participants of a row: the owner's post, and its completion.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Turn {
    /// The participant of the row for which it is.
    pub generation: u32,
    /// Its number among the epochs of the row. It goes round.
    pub number: u32,
}

impl Turn {
    /// As a word.
    #[must_use]
    pub const fn to_word(self) -> u64 {
        (self.generation as u64) << 32 | self.number as u64
    }

    /// Of a word. Every word is one.
    #[must_use]
    pub const fn of_word(word: u64) -> Self {
        let [a, b, c, d, e, f, g, h] = word.to_le_bytes();
        let number = u32::from_le_bytes([a, b, c, d]);
        Self { generation: u32::from_le_bytes([e, f, g, h]), number }
    }
}

/// What the lock holds while the participant of this row has it: never 0.
#[must_use]
pub const fn holder(row: u32, generation: u32) -> u64 {
    ((generation as u64) << 32) | (row as u64 + 1)
}

/// What a participant may do with a window's data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Rights(u8);

impl Rights {
    /// Nothing: with these rights of others, nobody can attach.
    pub const NONE: Self = Self(0);
    /// Get, and load.
    pub const READ: Self = Self(1);
    /// Get, put, and load.
    pub const WRITE: Self = Self(3);
    /// Everything: also atomic operations.
    pub const ATOMIC: Self = Self(7);
    /// All, from the fewest rights to the most, with their names.
    pub const ALL: [(Self, &'static str); 4] = [
        (Self::NONE, "none"),
        (Self::READ, "read"),
        (Self::WRITE, "write"),
        (Self::ATOMIC, "atomic"),
    ];

    /// Whether these include all of `others`.
    #[inline]
    #[must_use]
    pub const fn include(self, others: Self) -> bool {
        self.0 & others.0 == others.0
    }

    /// Whether a participant with these needs memory that it can write.
    #[must_use]
    pub const fn can_write(self) -> bool {
        self.0 & !Self::READ.0 != 0
    }

    /// As a word.
    #[must_use]
    pub const fn to_word(self) -> u64 {
        self.0 as u64
    }

    /// Of a word; `None` if it is none of these.
    #[must_use]
    pub fn of_word(word: u64) -> Option<Self> {
        Self::ALL.into_iter().map(|(rights, _)| rights).find(|rights| rights.to_word() == word)
    }

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        Self::ALL.into_iter().find(|(rights, _)| *rights == self).map_or("none", |(_, name)| name)
    }
}

impl core::fmt::Display for Rights {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;

    #[test]
    fn the_parts_of_a_book_do_not_overlap() {
        const { assert!(WINDOW_SLEEPERS + 4 <= WINDOW_COUNTERS) };
        const { assert!(PARTICIPANT_READING + 8 <= PARTICIPANT_BYTES) };
        assert_eq!(WINDOW_COUNTERS_MAX, 32);
        assert_eq!(book_bytes(1), 12 << 10);
        assert_eq!(book_bytes(PARTICIPANTS_MAX), (8 << 10) + (1 << 20));
        assert_eq!(participant_offset(2), 10 << 10);
    }

    #[test]
    fn rights_include_lesser_ones() {
        for (index, (rights, name)) in Rights::ALL.into_iter().enumerate() {
            assert_eq!(Rights::of_word(rights.to_word()), Some(rights));
            assert_eq!(rights.to_string(), name);
            for (other, (others, _)) in Rights::ALL.into_iter().enumerate() {
                assert_eq!(rights.include(others), other <= index);
            }
        }
        assert_eq!([2, 5, 8].map(Rights::of_word), [None; 3]);
        assert_eq!([Rights::READ, Rights::WRITE].map(Rights::can_write), [false, true]);
    }

    #[test]
    fn a_tenure_is_read_as_it_is_written() {
        for tenure in [(0, false), (1, true), (u32::MAX, true), (7, false)] {
            let tenure = Tenure { generation: tenure.0, is_present: tenure.1 };
            assert_eq!(Tenure::of_word(tenure.to_word()), tenure);
        }
        assert_ne!(holder(0, 0), 0);
        assert_ne!(holder(1, 2), holder(2, 1));
    }
}
