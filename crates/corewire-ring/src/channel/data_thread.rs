//! What a data thread shares with the control thread of its process. Private memory.
//!
//! The control thread gets the data thread's attention by storing 0 to the *limit*, which the data thread compares with
//! its head for every message anyway. What it wants is in the notices, the members and the demand for fences.
//!
//! A receiver to which the kernel refuses `membarrier` says so when it joins. The data thread then fences after each
//! stamp, from its next slow path on. For a receiver of another user it does not; that receiver checks for messages
//! every 1 to 8 ms instead.

use alloc::vec::Vec;
use core::fmt;

use corewire_layout::segment::ROWS_WATCHED_MAX;

use crate::Kernel;
use crate::doorbell::{self, Notices, notice};
use crate::sync::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// No epoch: the data thread checks all rows.
pub(crate) const NOT_ALONE: u64 = u64::MAX;

/// What the data thread and the control thread share. Private memory of the sender's process.
#[repr(align(128))]
pub struct SenderShared {
    /// The data thread may publish messages below this number without any other check. A thread
    /// that needs the data thread's attention stores 0.
    pub(crate) limit: AtomicU64,
    /// The last epoch served in the first row, if no other row has a receiver and nothing else is checked after a
    /// message: then that is one comparison. Otherwise [`NOT_ALONE`]. The data thread stores it with the members' lock
    /// held, and swaps it; the control thread, which also holds the lock, makes it `NOT_ALONE`.
    pub(crate) alone: AtomicU64,
    /// Rows from this one on have no receiver.
    pub(crate) watched: AtomicU32,
    /// Nonzero if every stamp must be followed by a fence.
    fenced: AtomicU32,
    /// Virtual end of what has been given out of the window, including the span that is being
    /// filled.
    pub(crate) window_reserved: AtomicU64,
    /// The last epoch served in each row: first the rows that are read after every message, then
    /// all others. The data thread swaps it, and the control thread stores it when the row gets
    /// another receiver.
    acked_watched: [AtomicU32; ROWS_WATCHED_MAX as usize],
    acked_rest: Vec<AtomicU32>,
    /// The sender's own word that a waiting data thread sleeps on.
    own: AtomicU32,
    notices: Notices,
}

impl SenderShared {
    /// For a channel of up to `receivers_max` receivers; `fenced` if a fence must follow each
    /// stamp.
    #[must_use]
    pub fn new(receivers_max: u32, fenced: bool) -> Self {
        Self {
            limit: AtomicU64::new(0),
            alone: AtomicU64::new(NOT_ALONE),
            watched: AtomicU32::new(0),
            fenced: AtomicU32::new(fenced.into()),
            window_reserved: AtomicU64::new(0),
            acked_watched: core::array::from_fn(|_| AtomicU32::new(0)),
            acked_rest: (0..receivers_max).map(|_| AtomicU32::new(0)).collect(),
            own: AtomicU32::new(0),
            notices: Notices::default(),
        }
    }

    /// The last epoch served in each row that is read after every message.
    #[inline(always)]
    pub(crate) fn acked_watched(&self) -> &[AtomicU32; ROWS_WATCHED_MAX as usize] {
        &self.acked_watched
    }

    /// The last epoch served in `row`.
    #[inline(always)]
    pub(crate) fn acked(&self, row: u32) -> &AtomicU32 {
        let row = row as usize;
        self.acked_watched.get(row).unwrap_or_else(|| &self.acked_rest[row])
    }

    /// Sets which rows have receivers: those below `end`, or fewer. The data thread checks all of them from now on,
    /// until its next slow path. Only with the members' lock held.
    pub(crate) fn watch(&self, end: u32) {
        self.watched.store(end, Relaxed);
        // Read-modify-write on both sides: the data thread, which swaps it without the lock, swaps it before or not at all.
        self.alone.swap(NOT_ALONE, Relaxed);
    }

    pub(crate) fn limit(&self) -> &AtomicU64 {
        &self.limit
    }

    /// The bell that this process rings for its data thread.
    pub(crate) fn own(&self) -> &AtomicU32 {
        &self.own
    }

    #[inline(always)]
    pub(crate) fn is_fenced(&self) -> bool {
        self.fenced.load(Relaxed) != 0
    }

    /// Sends the data thread to its slow path at its next message.
    pub fn revoke(&self) {
        self.limit.store(0, Relaxed);
    }

    /// Makes the data thread fence after each stamp, from its next slow path on.
    pub fn demand_fence(&self) {
        self.fenced.store(1, Relaxed);
        self.revoke();
    }

    /// Gives the data thread notices (bits of [`notice`]), and wakes it if it waits.
    pub fn notify<K: Kernel>(&self, notices: u32, kernel: &K) {
        self.notices.set(notices);
        self.revoke();
        self.nudge(kernel);
    }

    /// Makes a waiting data thread check again.
    pub fn nudge<K: Kernel>(&self, kernel: &K) {
        doorbell::ring_own(&self.own, kernel);
    }

    /// Marks this process as a forked child for the data thread. Only stores.
    pub fn mark_forked(&self) {
        self.notices.mark(notice::FORKED);
        self.revoke();
    }

    /// The notices given so far.
    #[must_use]
    pub fn notices(&self) -> u32 {
        self.notices.get()
    }

    /// Clears notices.
    pub fn clear(&self, notices: u32) {
        self.notices.clear(notices);
    }
}

impl fmt::Debug for SenderShared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SenderShared").finish_non_exhaustive()
    }
}

/// What the receiver's thread shares with the control thread of its process. Private memory.
#[derive(Default)]
pub struct ReceiverShared {
    /// The receiver's own word that a waiting receiver sleeps on, in addition to the sender's bell:
    /// a dead sender cannot ring.
    own: AtomicU32,
    notices: Notices,
}

impl ReceiverShared {
    /// Gives the receiver notices (bits of [`notice`]), and wakes it if it waits.
    pub fn notify<K: Kernel>(&self, notices: u32, kernel: &K) {
        self.notices.set(notices);
        doorbell::ring_own(&self.own, kernel);
    }

    /// The bell that this process rings for its data thread.
    pub(crate) fn own(&self) -> &AtomicU32 {
        &self.own
    }

    /// Marks this process as a forked child for the receiver. Only stores.
    pub fn mark_forked(&self) {
        self.notices.mark(notice::FORKED);
    }

    /// The notices given so far.
    #[must_use]
    pub fn notices(&self) -> u32 {
        self.notices.get()
    }

    /// Clears notices.
    pub fn clear(&self, notices: u32) {
        self.notices.clear(notices);
    }
}

impl fmt::Debug for ReceiverShared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReceiverShared").finish_non_exhaustive()
    }
}
