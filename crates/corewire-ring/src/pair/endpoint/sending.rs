//! Sending: slots, cells, rings, announcements.
//!
//! A pair gets a ring with its first message. If all rings are taken, an end is written into the ring of a peer that
//! has read everything. The ring is free when that peer has read the end.

use corewire_layout::counters::EndpointCounter;

use super::Endpoint;
use crate::message::{Envelope, Source};
use crate::pair::PairViolation;
use crate::pair::outbox::Announced;
use crate::sync::Ordering::Relaxed;
use crate::{Host, Kernel};

impl<H: Host> Endpoint<H> {
    /// Sends a message of at most 160 bytes to the peer of `row`. False if there is no room; nothing is done then.
    #[inline(always)]
    pub fn try_send(&mut self, row: u32, envelope: &Envelope, message: &[u8]) -> bool {
        let Some(peer) = self.peers.get_mut(row) else { return false };
        let is_sent = peer.outbox.try_send_inline(envelope, message);
        if is_sent && peer.outbox.is_announcement_due() {
            self.announce_to(row);
        }
        is_sent
    }

    /// Whether a message of `total` bytes goes through few cells at a time, a pipe.
    #[must_use]
    pub fn is_long(&self, total: u64) -> bool {
        self.cells.is_long(total)
    }

    /// Selects the cells for long messages from now on: the cells that were used last, or all in turn.
    pub fn take_recent_cells(&mut self, takes_recent: bool) {
        self.cells.take_recent(takes_recent);
    }

    /// Sends the next fragment of a message, as long as the room allows; `sent` bytes precede it. Returns its length in
    /// bytes: 0 if there is no room.
    pub fn send_fragment(
        &mut self,
        row: u32,
        envelope: &Envelope,
        source: &impl Source,
        sent: u64,
    ) -> u64 {
        let Self { peers, cells, .. } = self;
        let Some(peer) = peers.get_mut(row) else { return 0 };
        let bytes = peer.outbox.send_fragment(envelope, source, sent, cells);
        if bytes > 0 && peer.outbox.is_announcement_due() {
            self.announce_to(row);
        }
        bytes
    }

    /// Announces a message to the peer of `row`. The slow half of every send.
    #[cold]
    #[inline(never)]
    pub(super) fn announce_to(&mut self, row: u32) {
        let Self { peers, host, memory, announced, woken, .. } = self;
        if let Some(peer) = peers.get_mut(row)
            && peer.outbox.must_announce()
        {
            *announced += 1;
            if peer.outbox.announce(row, host) == Announced::Woken {
                *woken += 1;
                memory.cpu().store(host.kernel().cpu(), Relaxed);
            }
            peer.outbox.publish_traffic(memory, row);
        }
    }

    /// Reads the cursor of the peer of `row`, and takes back the room that it has freed.
    ///
    /// # Errors
    /// A [`PairViolation`]: the caller must remove the peer.
    pub fn make_room(&mut self, row: u32) -> Result<(), PairViolation> {
        let Self { peers, cells, free_rings, memory, .. } = self;
        if let Some(peer) = peers.get_mut(row) {
            free_rings.extend(peer.outbox.refresh(cells)?);
            peer.outbox.publish_traffic(memory, row);
        }
        Ok(())
    }

    /// Is there room towards the peer of `row` for a message of `total` bytes with this envelope, or for its next
    /// fragment if it goes through cells?
    ///
    /// # Errors
    /// A [`PairViolation`]: the caller must remove the peer.
    pub fn has_room(
        &mut self,
        row: u32,
        envelope: &Envelope,
        total: u64,
    ) -> Result<bool, PairViolation> {
        self.make_room(row)?;
        let slots = envelope.slots(total);
        let (has_slots, has_cell) = self.room_now(row, slots, total);
        if !has_slots || has_cell {
            return Ok(has_slots);
        }
        self.make_room_everywhere();
        let (has_slots, has_cell) = self.room_now(row, slots, total);
        Ok(has_slots && has_cell)
    }

    /// Reads the cursors of all peers. They share the cells: others may have freed some since their cursors were
    /// last read.
    pub(super) fn make_room_everywhere(&mut self) {
        for index in 0..self.present.len() {
            // A violation by another peer is found when that pair is next used.
            let _ = self.make_room(self.present[index]);
        }
    }

    /// Are there enough slots, and a cell if `slots` is `None`, as far as is known?
    fn room_now(&mut self, row: u32, slots: Option<u64>, total: u64) -> (bool, bool) {
        let Self { peers, cells, .. } = self;
        let Some(peer) = peers.get_mut(row) else { return (false, false) };
        let outbox = &mut peer.outbox;
        let has_cell = slots.is_some() || outbox.may_have_cell(total, cells);
        (outbox.has_slots(slots.unwrap_or(1)), has_cell)
    }

    /// Does the pair towards the peer of `row` have a ring?
    #[must_use]
    pub fn has_ring(&self, row: u32) -> bool {
        self.peer(row).is_some_and(|peer| peer.outbox.has_ring())
    }

    /// The ring that [`Endpoint::assign_ring`] would assign; `None` if none is free.
    #[must_use]
    pub fn next_ring(&self) -> Option<u64> {
        self.free_rings.front().copied()
    }

    /// Assigns a ring, whose memory is allocated, to the pair towards the peer of `row`. False if its ring is being
    /// taken back, or none is free.
    pub fn assign_ring(&mut self, row: u32) -> bool {
        let Self { peers, free_rings, memory, .. } = self;
        let Some(peer) = peers.get_mut(row) else { return false };
        if peer.outbox.is_ending() {
            return false;
        }
        let Some(ring) = free_rings.pop_front() else { return false };
        if let Some(slots) = memory.slots(ring) {
            peer.outbox.assign(ring, slots);
        }
        true
    }

    /// Begins to take a ring back for `row`, from a peer that has read everything. It is free once that peer has read
    /// its end. True if a ring is free or being taken back. Errors are left for the pair's next use.
    pub fn take_ring_back(&mut self, row: u32) -> bool {
        let mut is_ending = false;
        for other in (0u32..).take(self.peers.rows()) {
            if self.make_room(other).is_err() {
                continue;
            }
            let Self { peers, memory, free_rings, .. } = self;
            let Some(peer) = peers.get_mut(other) else { continue };
            if !free_rings.is_empty() {
                return true;
            }
            is_ending |= peer.outbox.is_ending();
            let is_idle = other != row && peer.outbox.has_ring() && peer.outbox.is_idle();
            if !is_ending && is_idle && peer.outbox.end_ring() {
                is_ending = true;
                memory.count(EndpointCounter::RingsTaken);
                if peer.outbox.is_announcement_due() {
                    self.announce_to(other);
                }
            }
        }
        is_ending
    }
}
