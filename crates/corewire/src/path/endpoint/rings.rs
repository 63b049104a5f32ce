//! The pair rings as an endpoint's transport: sending, receiving and waiting, the memory of the rings, and the peers
//! that the control thread links.

use std::fmt;
use std::sync::Arc;

use corewire_endpoint::transport::{
    Attention, Change, Gone, Polling, Room, SendError, Short, Transport,
};
use corewire_endpoint::{Arrival, Envelope, Fragment, Kept, Peer, Sink, Source, Wanted};
use corewire_layout::counters::{EndpointCounter, PeerCounter};
use corewire_layout::pair::PAIR_INLINE_BYTES_MAX;
use corewire_os::OsError;
use corewire_ring::pair::PairViolation;

use super::pipe::Pipe;
use crate::halves::{EndpointHalf, Link, notice};
use crate::host::PairRing as Pairs;

/// The rings between one endpoint and all its peers on this machine.
pub(crate) struct PairRings {
    pairs: Pairs,
    control: Arc<dyn EndpointHalf>,
    pipe: Pipe,
    /// Number of rings whose memory is allocated.
    rings_there: u64,
    has_cells: bool,
}

impl PairRings {
    pub(super) fn new(pairs: Pairs, control: Arc<dyn EndpointHalf>) -> Self {
        Self { pairs, control, pipe: Pipe::new(), rings_there: 0, has_cells: false }
    }

    /// Reads one of the endpoint's counters.
    pub(super) fn counter(&self, counter: EndpointCounter) -> u64 {
        self.pairs.counter(counter)
    }

    #[inline(never)]
    fn try_inject_in_cell(&mut self, row: u32, envelope: &Envelope, message: &[u8]) -> bool {
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
        let is_sent = self.pairs.try_send(row, envelope, message);
        if is_sent {
            *sent = total;
        }
        is_sent
    }
}

/// Closes the endpoint.
impl Drop for PairRings {
    fn drop(&mut self) {
        if !self.control.is_forked() {
            self.pairs.retract();
            self.pairs.publish_cursors();
            self.control.close();
        }
    }
}

impl fmt::Debug for PairRings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PairRings").finish_non_exhaustive()
    }
}

/// Whether a message travels in slots.
fn is_short(envelope: &Envelope, bytes: u64) -> bool {
    bytes <= envelope.inline_bytes_max() as u64
}

fn failed(error: &OsError) -> SendError {
    SendError::System(error.to_string())
}

/// True if there is room now for a waiting send.
fn has_room(pairs: &mut Pairs, room: Room) -> bool {
    let Room { row, envelope, bytes } = room;
    if pairs.has_ring(row) {
        // Impossible values count as room: the send then reports them.
        return pairs.has_room(row, &envelope, bytes).unwrap_or(true);
    }
    pairs.make_room(row).is_err() || {
        pairs.take_ring_back(row);
        pairs.next_ring().is_some()
    }
}

impl Transport for PairRings {
    #[inline(always)]
    fn has_notice(&self) -> bool {
        self.pairs.has_notice()
    }

    fn take_notices(&mut self, changes: &mut Vec<Change>) -> Attention {
        let shared = Arc::clone(self.pairs.shared());
        let attention = shared.notices();
        if attention & notice::FORKED != 0 {
            return Attention::Forked;
        }
        for change in self.control.changes() {
            changes.push(match change {
                Link::Came { row, name, parts } => {
                    self.pairs.add_peer(row, parts);
                    Change::Came { row, name }
                }
                Link::Gone { row, how } => Change::Gone { row, how },
            });
        }
        if attention & notice::DROPPED != 0 {
            let dropped = self.control.dropped().into_iter();
            changes.extend(dropped.map(|(peer, number)| Change::Dropped { peer, number }));
        }
        if attention & notice::OBSERVED != 0 {
            shared.clear(notice::OBSERVED);
            self.pairs.publish_traffic();
        }
        if attention & notice::INTERRUPTED != 0 {
            shared.clear(notice::INTERRUPTED);
            return Attention::Interrupted;
        }
        Attention::None
    }

    fn open(&mut self, row: u32, generation: u32) {
        self.pairs.open(row, generation);
    }

    fn cut_off(&mut self, row: u32, violation: PairViolation) {
        self.control.drop_link(row, Gone::CutOff(violation));
    }

    fn remove(&mut self, row: u32) {
        self.pairs.remove_peer(row);
        self.control.free_row(row);
    }

    #[inline(always)]
    fn try_inject(&mut self, peer: Peer, envelope: &Envelope, message: &[u8]) -> bool {
        if !self.pairs.is_open(peer.bits()) {
            return false;
        }
        let row = peer.row();
        if message.len() > envelope.inline_bytes_max() {
            return self.try_inject_in_cell(row, envelope, message);
        }
        self.pairs.try_send(row, envelope, message)
    }

    fn try_send(
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
            } else {
                self.want_cells()?;
                let is_long = self.pairs.is_long(total);
                if is_long && *sent == 0 {
                    let takes_recent = self.pipe.begin(row);
                    self.pairs.take_recent_cells(takes_recent);
                }
                let bytes = self.pairs.send_fragment(row, envelope, source, *sent);
                *sent += bytes;
                if *sent == total {
                    if is_long {
                        self.pipe.end(row, total);
                    }
                    return Ok(true);
                }
                if bytes > 0 {
                    continue;
                }
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

    #[inline(always)]
    fn try_take(&mut self, polling: Polling, wanted: &Wanted, target: &mut [u8]) -> Short {
        self.pairs.take_inline(polling, wanted, target)
    }

    #[inline(always)]
    fn try_take_whole<'a, S: Sink + ?Sized + 'a>(
        &mut self,
        row: u32,
        wanted: &Wanted,
        prepare: impl FnOnce(usize) -> Option<&'a mut S>,
    ) -> Short {
        self.pairs.take_whole(row, wanted, prepare)
    }

    #[inline(always)]
    fn poll(&mut self) -> Option<u32> {
        self.pairs.poll()
    }

    #[inline(always)]
    fn arrival(&mut self, row: u32) -> Result<Option<Arrival>, PairViolation> {
        self.pairs.arrival(row)
    }

    fn has_arrival(&mut self, row: u32) -> Result<bool, PairViolation> {
        self.pairs.has_arrival(row)
    }

    #[inline(always)]
    fn copy(&self, row: u32, arrival: &Arrival, at: usize, sink: &mut (impl Sink + ?Sized)) {
        self.pairs.copy(row, arrival, at, sink);
    }

    #[inline(always)]
    fn pass(&mut self, row: u32, arrival: &Arrival) {
        self.pairs.pass(row, arrival);
    }

    fn hold(&mut self, row: u32) {
        self.pairs.hold(row);
    }

    fn release(&mut self, row: u32) {
        self.pairs.release(row);
    }

    fn look_at(&mut self, row: u32) {
        self.pairs.enqueue(row);
    }

    fn is_here(&self, row: u32) -> bool {
        self.pairs.is_here(row)
    }

    fn last_found(&self) -> u32 {
        self.pairs.last_found()
    }

    fn sleep(&mut self, limit_ns: u64, wanted: &[Room]) {
        let mut is_room = |pairs: &mut Pairs| wanted.iter().any(|&room| has_room(pairs, room));
        let has_room: Option<&mut dyn FnMut(&mut Pairs) -> bool> =
            if wanted.is_empty() { None } else { Some(&mut is_room) };
        self.pairs.sleep(limit_ns, has_room);
    }

    fn arm(&mut self, wanted: &[Room]) -> bool {
        let mut is_room = |pairs: &mut Pairs| wanted.iter().any(|&room| has_room(pairs, room));
        let has_room: Option<&mut dyn FnMut(&mut Pairs) -> bool> =
            if wanted.is_empty() { None } else { Some(&mut is_room) };
        self.pairs.arm(has_room)
    }

    fn count(&self, counter: EndpointCounter) {
        self.pairs.count(counter);
    }

    fn show_kept(&self, row: u32, kept: Kept) {
        self.pairs.set_peer_counter(row, PeerCounter::KeptMessages, kept.messages);
        self.pairs.set_peer_counter(row, PeerCounter::KeptBytes, kept.bytes);
    }
}
