//! What peers grant of room for messages that stay in this endpoint's heap.

use corewire_endpoint::Envelope;
use corewire_endpoint::transport::Room;
use corewire_ring::pair::Lending;

use crate::host::PairRing as Pairs;

/// What a peer grants.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Grant {
    /// It has granted something.
    pub(super) is_there: bool,
    /// A message that does not fit is not sent in another way.
    pub(super) refuses: bool,
    /// The length of the last message that did not fit.
    pub(super) shortage: Option<u64>,
    /// Its endpoint was closed: it takes no more messages.
    pub(super) has_left: bool,
}

/// What all peers grant.
#[derive(Debug)]
pub(super) struct PeerGrants {
    rows: Vec<Grant>,
    /// Longer messages go in place only in loans.
    pub(super) in_place_up_to: u64,
}

impl PeerGrants {
    pub(super) const fn new(in_place_up_to: u64) -> Self {
        Self { rows: Vec::new(), in_place_up_to }
    }

    pub(super) fn of(&self, row: u32) -> Grant {
        self.rows.get(row as usize).copied().unwrap_or_default()
    }

    pub(super) fn get_mut(&mut self, row: u32) -> Option<&mut Grant> {
        self.rows.get_mut(row as usize)
    }

    pub(super) fn set(&mut self, row: u32, grant: Grant) {
        let index = row as usize;
        if self.rows.len() <= index {
            self.rows.resize(index + 1, Grant::default());
        }
        self.rows[index] = grant;
    }

    /// Whether a message is written into the heap, if there is room.
    pub(super) fn goes_in_place(&self, row: u32, envelope: &Envelope, bytes: u64) -> bool {
        let is_granted = self.rows.get(row as usize).is_some_and(|grant| grant.is_there);
        is_granted && bytes <= self.in_place_up_to && envelope.space.is_matched()
    }
}

/// After so many messages in cells, the next call looks for a grant.
pub(super) const CELLS_PER_LOOK: u32 = 64;

/// True if there is room now for a waiting send. `grants` are those of the peers.
pub(super) fn has_room(pairs: &mut Pairs, grants: &PeerGrants, room: Room) -> bool {
    let Room { row, envelope, bytes, is_in_place, is_begun } = room;
    if is_in_place && bytes == 0 {
        return pairs.spent(row) <= pairs.granted(row);
    }
    if is_in_place {
        // A loan that is impossible has memory of its own.
        return !matches!(pairs.lending(row, bytes), Lending::Spent);
    }
    let goes_in_place = !is_short(&envelope, bytes) && grants.goes_in_place(row, &envelope, bytes);
    if goes_in_place && !is_begun && pairs.has_ring(row) {
        match pairs.lending(row, bytes) {
            // In one slot, which cells would need, too.
            Lending::Done(()) => return pairs.has_room(row, &envelope, 0).unwrap_or(true),
            Lending::Spent if grants.of(row).refuses => return false,
            _ => {}
        }
    }
    if pairs.has_ring(row) {
        // Impossible values count as room: the send then reports them.
        return pairs.has_room(row, &envelope, bytes).unwrap_or(true);
    }
    pairs.make_room(row).is_err() || {
        pairs.take_ring_back(row);
        pairs.next_ring().is_some()
    }
}

/// Whether a message travels in slots.
pub(super) fn is_short(envelope: &Envelope, bytes: u64) -> bool {
    bytes <= envelope.inline_bytes_max() as u64
}
