//! Messages that stay in this endpoint's heap while their receivers read them: what peers grant, and what they release.
//!
//! What a peer that has left still reads is not used again before its process has released it or has ended.

use std::fmt;
use std::sync::{Arc, Mutex};

use corewire_endpoint::{Envelope, Source};
use corewire_layout::counters::{EndpointCounter, PeerCounter};
use corewire_ring::pair::{Lending, LentBlock};
use corewire_ring::sync::{AtomicU32, Ordering::Relaxed};
use corewire_transfer::Remote;

use super::PairRings;
use super::grants::CELLS_PER_LOOK;
use crate::guard::lock;
use crate::halves::{EndpointHalf, notice};

/// Loans that were dropped unsent, by any thread.
pub(crate) struct Returned {
    has_some: AtomicU32,
    lent: Mutex<Vec<LentBlock>>,
    control: Arc<dyn EndpointHalf>,
}

impl fmt::Debug for Returned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Returned").finish_non_exhaustive()
    }
}

impl Returned {
    pub(super) fn new(control: Arc<dyn EndpointHalf>) -> Self {
        Self { has_some: AtomicU32::new(0), lent: Mutex::default(), control }
    }

    /// Gives a block back, and wakes a call that waits for room.
    pub(crate) fn add(&self, lent: LentBlock) {
        lock(&self.lent).push(lent);
        self.has_some.store(1, Relaxed);
        self.control.notify(notice::RETURNED);
    }

    fn take(&self) -> Vec<LentBlock> {
        if self.has_some.load(Relaxed) == 0 {
            return Vec::new();
        }
        let mut lent = lock(&self.lent);
        self.has_some.store(0, Relaxed);
        std::mem::take(&mut *lent)
    }
}

impl PairRings {
    pub(super) fn send_in_block(
        &mut self,
        row: u32,
        envelope: &Envelope,
        source: &impl Source,
    ) -> Lending<bool> {
        self.take_returned();
        let Self { pairs, control, .. } = self;
        let mut allocate = |offset, bytes| control.allocate(offset, bytes).is_ok();
        let sent = pairs.send_in_block(row, envelope, source, &mut allocate);
        if matches!(sent, Lending::Impossible) && !self.departed.is_empty() {
            // The next message may find room again.
            self.scan_departed();
        }
        sent
    }

    /// The next call asks for a grant of at least so much.
    pub(super) fn note_shortage(&mut self, row: u32, bytes: u64) {
        if let Some(grant) = self.grants.get_mut(row) {
            grant.shortage = Some(bytes);
        }
    }

    /// A block for the program to write a message of `bytes` bytes in.
    pub(crate) fn lend(&mut self, row: u32, bytes: usize) -> Lending<LentBlock> {
        self.take_returned();
        self.scan_departed();
        let Self { pairs, control, .. } = self;
        let mut allocate = |offset, bytes| control.allocate(offset, bytes).is_ok();
        let lent = pairs.lend_block(row, bytes, &mut allocate);
        if let Lending::Spent = lent {
            self.pairs.count(EndpointCounter::Nacks);
        }
        lent
    }

    /// Shows observers that a loan of `bytes` bytes waits for the peer of `row` to release messages; 0 that none does.
    pub(crate) fn show_waiting_loan(&mut self, row: u32, bytes: u64) {
        let unreleased = if bytes == 0 { 0 } else { self.pairs.spent(row) };
        self.pairs.set_peer_counter(row, PeerCounter::LoanWaiting, bytes);
        self.pairs.set_peer_counter(row, PeerCounter::Unreleased, unreleased);
    }

    /// Takes back a loan that was not sent.
    pub(crate) fn take_back(&mut self, lent: &LentBlock) {
        self.pairs.give_block_back(lent);
    }

    /// Where loans that are dropped go.
    pub(crate) fn returned(&self) -> &Arc<Returned> {
        &self.returned
    }

    /// Whether a message of `bytes` bytes would be refused now, for lack of a grant.
    pub(crate) fn refuses(&mut self, row: u32, envelope: &Envelope, bytes: u64) -> bool {
        self.grants.of(row).refuses
            && self.grants.goes_in_place(row, envelope, bytes)
            && matches!(self.pairs.lending(row, bytes), Lending::Spent)
    }

    /// Messages since the last look for a grant begin again. True if it is time for one.
    pub(crate) fn must_look_for_grants(&mut self) -> bool {
        let is_due = self.in_cells >= CELLS_PER_LOOK;
        if is_due {
            self.in_cells = 0;
        }
        is_due
    }

    /// Takes back loans that were dropped unsent.
    pub(super) fn take_returned(&mut self) {
        for lent in self.returned.take() {
            self.pairs.give_block_back(&lent);
        }
    }

    /// Takes back what peers that have gone do not read any more.
    pub(super) fn scan_departed(&mut self) {
        let Self { pairs, departed, .. } = self;
        for (mut granted, remote) in std::mem::take(departed) {
            if remote.as_ref().is_none_or(Remote::has_died) {
                pairs.end_granted(granted);
            } else if pairs.scan_granted(&mut granted) {
                departed.push((granted, remote));
            }
        }
    }
}
