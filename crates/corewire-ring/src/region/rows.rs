//! The pages of a sender's receivers.

use corewire_layout::PAGE_BYTES;
use corewire_layout::segment::{CURSOR, RECEIVER_CPU, SLEEP_MODE, SLEEPING, WAKE};

use super::{Address, Region};
use crate::sync::{AtomicU32, AtomicU64};

/// The pages of a sender's receivers, one per row: the receiver's segment if a receiver has joined,
/// otherwise zeroes. All of them stay readable for as long as the region lives.
#[derive(Debug, Clone)]
pub struct Rows {
    base: Address,
    count: u32,
    _region: Region,
}

impl Rows {
    /// `count` rows of one page each, at least one.
    ///
    /// # Panics
    /// If there is none, or the region is shorter.
    #[must_use]
    pub fn new(region: &Region, count: u32) -> Self {
        assert!(count > 0, "own geometry");
        let part = region.part(0, count as usize * PAGE_BYTES).expect("own geometry");
        Self { base: part.base, count, _region: part }
    }

    #[inline(always)]
    fn page(&self, row: u32) -> Address {
        assert!(row < self.count, "own row");
        // SAFETY: below the number of rows, all of which lie in the region.
        unsafe { self.base.add(row as usize * PAGE_BYTES) }
    }

    /// The receiver's cursor.
    #[must_use]
    pub fn cursor(&self, row: u32) -> &AtomicU64 {
        // SAFETY: within a row's page.
        unsafe { self.page(row).word64(CURSOR) }
    }

    /// The receiver's sleeping epoch.
    #[inline(always)]
    #[must_use]
    pub fn sleeping(&self, row: u32) -> &AtomicU32 {
        // SAFETY: within a row's page.
        unsafe { self.page(row).word32(SLEEPING) }
    }

    /// The sleeping epoch of the first row's receiver.
    #[inline(always)]
    #[must_use]
    pub fn first_sleeping(&self) -> &AtomicU32 {
        // SAFETY: `new` has checked that there is a row.
        unsafe { self.base.word32(SLEEPING) }
    }

    /// How the receiver wants to be woken.
    #[must_use]
    pub fn sleep_mode(&self, row: u32) -> &AtomicU32 {
        // SAFETY: within a row's page.
        unsafe { self.page(row).word32(SLEEP_MODE) }
    }

    /// The processor that the receiver last ran on.
    #[must_use]
    pub fn cpu(&self, row: u32) -> &AtomicU32 {
        // SAFETY: within a row's page.
        unsafe { self.page(row).word32(RECEIVER_CPU) }
    }

    /// The word that changes when the receiver makes room.
    #[must_use]
    pub fn wake(&self, row: u32) -> &AtomicU32 {
        // SAFETY: within a row's page.
        unsafe { self.page(row).word32(WAKE) }
    }
}
