//! The ways of a message into slots and cells, and the memory that they need.
//!
//! | message | way |
//! |---|---|
//! | up to 160 bytes | slots of the ring |
//! | up to `EndpointBuilder::in_place_up_to`, and each loan | a block of the heap, if the peer has granted room and the heap has some |
//! | longer, or where the heap or the grant has no room | fragments in cells, each named by a slot |
//! | above 128 KiB; above 32 KiB if the cells have no room | offered (`mod.rs`: `is_offered`): the receiver reads it where it is (the engine's `rendezvous`) |
//!
//! If the grant is spent, nothing travels: the sender knows it. It asks for more and sends the message through cells. If
//! the receiver refuses that, `try_send` returns `ReceiverFull`, and `send` waits for a release.

use corewire_endpoint::transport::SendError;
use corewire_endpoint::{Envelope, Fragment, Source};
use corewire_layout::counters::EndpointCounter;
use corewire_layout::pair::PAIR_INLINE_BYTES_MAX;
use corewire_os::OsError;
use corewire_ring::pair::Lending;

use super::PairRings;
use super::grants::{CELLS_PER_LOOK, is_short};

impl PairRings {
    /// Sends as much of a message as there is room for, in the way that suits it. True if all of it has been sent.
    pub(super) fn send_on(
        &mut self,
        row: u32,
        envelope: &Envelope,
        source: &impl Source,
        sent: &mut u64,
    ) -> Result<bool, SendError> {
        let total = source.bytes();
        loop {
            if is_short(envelope, total) {
                if self.try_send_short(row, envelope, source, sent) {
                    return Ok(true);
                }
            } else if let Some(lent) = source.block() {
                if self.pairs.send_block(envelope, lent) {
                    *sent = total;
                    return Ok(true);
                }
                if self.pairs.has_ring(row) {
                    let is_sent = self.pairs.has_room(row, envelope, 0)?
                        && self.pairs.send_block(envelope, lent);
                    *sent = if is_sent { total } else { 0 };
                    return Ok(is_sent);
                }
            } else if *sent == 0
                && self.grants.goes_in_place(row, envelope, total)
                && self.has_slot(row)?
            {
                match self.send_in_block(row, envelope, source) {
                    Lending::Done(true) => {
                        *sent = total;
                        return Ok(true);
                    }
                    Lending::Done(false) => {}
                    Lending::Spent => {
                        self.pairs.count(EndpointCounter::Nacks);
                        self.note_shortage(row, total);
                        if self.grants.of(row).refuses {
                            return Ok(false);
                        }
                        if self.send_in_cells(row, envelope, source, sent)? {
                            return Ok(true);
                        }
                    }
                    Lending::Impossible => {
                        // A larger grant may make it possible.
                        self.note_shortage(row, total);
                        if self.send_in_cells(row, envelope, source, sent)? {
                            return Ok(true);
                        }
                    }
                }
            } else if self.send_in_cells(row, envelope, source, sent)? {
                return Ok(true);
            }
            let may_go_on = if self.pairs.has_ring(row) {
                self.pairs.has_room(row, envelope, total)?
            } else {
                self.want_ring(row)?
            };
            if !may_go_on {
                return Ok(false);
            }
        }
    }

    #[inline(never)]
    pub(super) fn try_inject_in_cell(
        &mut self,
        row: u32,
        envelope: Envelope,
        message: &[u8],
    ) -> bool {
        let envelope = &envelope;
        let bytes = message.len() as u64;
        if self.grants.goes_in_place(row, envelope, bytes) {
            match self.send_in_block(row, envelope, &message) {
                Lending::Done(is_sent) => return is_sent,
                // Counted where it is sent in another way.
                Lending::Spent => return false,
                Lending::Impossible => {}
            }
        } else {
            self.in_cells += 1;
            if self.in_cells >= CELLS_PER_LOOK {
                // A caller that only ever sends would not learn of a grant.
                return false;
            }
        }
        let is_one = message.len() as u64 <= self.pairs.sizes().cell_bytes();
        self.has_cells && is_one && self.pairs.send_fragment(row, envelope, &message, 0) > 0
    }

    /// Assigns a ring to the pair towards the peer of `row`. False if none is free yet.
    fn want_ring(&mut self, row: u32) -> Result<bool, SendError> {
        self.pairs.make_room(row)?;
        if self.pairs.next_ring().is_none() {
            self.pairs.take_ring_back(row);
        }
        let Some(ring) = self.pairs.next_ring() else { return Ok(false) };
        if ring >= self.rings_there {
            let sizes = self.pairs.sizes();
            let (offset, bytes) = (sizes.ring_offset(ring), sizes.ring_bytes());
            self.control.allocate(offset, bytes).map_err(|error| failed(&error))?;
            self.rings_there = ring + 1;
        }
        Ok(self.pairs.assign_ring(row))
    }

    fn want_cells(&mut self) -> Result<(), SendError> {
        if !self.has_cells {
            let sizes = self.pairs.sizes();
            let (offset, bytes) = (sizes.cells_offset(), sizes.cells_bytes());
            self.control.allocate(offset, bytes).map_err(|error| failed(&error))?;
            self.has_cells = true;
        }
        Ok(())
    }

    /// Whether the ring towards the peer of `row` has a free slot.
    fn has_slot(&mut self, row: u32) -> Result<bool, SendError> {
        Ok(self.pairs.has_ring(row) && self.pairs.has_room(row, &NO_BYTES, 0)?)
    }

    /// Sends as much of a message through cells as there is room for. True if all of it has been sent.
    fn send_in_cells(
        &mut self,
        row: u32,
        envelope: &Envelope,
        source: &impl Source,
        sent: &mut u64,
    ) -> Result<bool, SendError> {
        self.want_cells()?;
        let total = source.bytes();
        let is_long = self.pairs.is_long(total);
        if is_long && *sent == 0 {
            let takes_recent = self.pipe.begin(row);
            self.pairs.take_recent_cells(takes_recent);
        }
        loop {
            let bytes = self.pairs.send_fragment(row, envelope, source, *sent);
            *sent += bytes;
            if *sent == total {
                if is_long {
                    self.pipe.end(row, total);
                }
                return Ok(true);
            }
            if bytes == 0 {
                return Ok(false);
            }
        }
    }

    /// Sends a message in slots. True if there was room for it.
    fn try_send_short(
        &mut self,
        row: u32,
        envelope: &Envelope,
        source: &impl Source,
        sent: &mut u64,
    ) -> bool {
        let mut bytes = [0; PAIR_INLINE_BYTES_MAX];
        let total = source.bytes();
        let message = &mut bytes[..usize::try_from(total).unwrap_or(PAIR_INLINE_BYTES_MAX)];
        source.fill(0, &mut Fragment::private(message));
        let is_sent = if envelope.space.is_message() {
            self.pairs.try_send(row, envelope, message)
        } else {
            self.pairs.try_send_beside(row, envelope, message)
        };
        if is_sent {
            *sent = total;
        }
        is_sent
    }
}

/// The envelope of a message that takes one slot, whatever it carries.
const NO_BYTES: Envelope = Envelope::tagged(0);

fn failed(error: &OsError) -> SendError {
    SendError::System(error.to_string())
}
