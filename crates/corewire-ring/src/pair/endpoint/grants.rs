//! Messages that stay in their sender's heap while they are read. See [`crate::pair::grants`].

use alloc::boxed::Box;
use alloc::sync::Arc;

use corewire_layout::pair::block;

use super::{Endpoint, Peer, Short};
use crate::Host;
use crate::message::{Arrival, Envelope, Held, Home, Sink, Source, Wanted};
use crate::pair::grants::{Granted, Kept, Lending, LentBlock, Releases, SCAN_AFTER_BYTES};
use crate::pair::heap::{Block, block_bytes};
use crate::pair::inbox::CLOSED;
use crate::sync::AtomicU32;

/// As a sender.
impl<H: Host> Endpoint<H> {
    /// The peer of `row` grants `limit` bytes of this endpoint's heap.
    pub fn set_grant(&mut self, row: u32, limit: u64) {
        let link = self.links;
        let Some(peer) = self.peer_mut(row) else { return };
        let Peer { inbox, outbox, granted } = peer;
        if granted.is_none() {
            let words = inbox.peer().releases(outbox.row_there());
            *granted = Some(Box::new(Granted::new(link, words)));
        }
        if let Some(granted) = granted {
            granted.limit = limit;
        }
        self.links = link + 1;
    }

    /// What the peer of `row` grants, in bytes.
    #[inline]
    #[must_use]
    pub fn granted(&self, row: u32) -> u64 {
        self.peer(row).and_then(|peer| peer.granted.as_ref()).map_or(0, |granted| granted.limit)
    }

    /// Takes back what the peer of `row` has released. Returns how much of the heap it still has, in bytes.
    pub fn spent(&mut self, row: u32) -> u64 {
        let Self { peers, heap, .. } = self;
        let Some(peer) = peers.get_mut(row) else { return 0 };
        let Some(granted) = &mut peer.granted else { return 0 };
        granted.scan(heap);
        granted.spent
    }

    /// Whether there is a block for a message of `bytes` bytes to the peer of `row`, as a send would find it.
    pub fn lending(&mut self, row: u32, bytes: u64) -> Lending<()> {
        let Self { peers, heap, .. } = self;
        let Some(peer) = peers.get_mut(row) else { return Lending::Impossible };
        let Some(granted) = &mut peer.granted else { return Lending::Impossible };
        let bytes = block_bytes(bytes);
        if bytes == 0 || bytes > granted.limit || bytes > heap.bytes() / 2 {
            return Lending::Impossible;
        }
        if !granted.has_room(bytes) {
            granted.scan(heap);
        }
        if !granted.has_room(bytes) {
            return Lending::Spent;
        }
        let is_possible = granted.spent + bytes <= heap.bytes() / 2 && heap.has(bytes);
        if is_possible { Lending::Done(()) } else { Lending::Impossible }
    }

    /// Whether messages of an earlier peer of `row` are held: the peer of `row` cannot be granted anything yet.
    #[must_use]
    pub fn has_held(&self, row: u32) -> bool {
        let is_new = self.peer(row).is_some_and(|peer| !peer.inbox.has_kept());
        let home = self.homes.get(row as usize).and_then(Option::as_ref);
        is_new && home.is_some_and(|home| home.strong_count() > 0)
    }

    /// A block for a message of `bytes` bytes to the peer of `row`. `allocate` gets memory for the given offset and length of
    /// the segment; false if there is none.
    fn find_block(
        &mut self,
        row: u32,
        bytes: u64,
        allocate: &mut dyn FnMut(u64, u64) -> bool,
    ) -> Lending<(Block, u16)> {
        let Self { peers, heap, memory, .. } = self;
        let Some(peer) = peers.get_mut(row) else { return Lending::Impossible };
        let Some(granted) = &mut peer.granted else { return Lending::Impossible };
        let bytes = block_bytes(bytes);
        // One peer has at most half, so that one that releases nothing leaves something for the others.
        if bytes == 0 || bytes > granted.limit || bytes > heap.bytes() / 2 {
            return Lending::Impossible;
        }
        if granted.since_scan >= SCAN_AFTER_BYTES || !granted.has_room(bytes) {
            granted.scan(heap);
        }
        if !granted.has_room(bytes) {
            return Lending::Spent;
        }
        if granted.spent + bytes > heap.bytes() / 2 {
            return Lending::Impossible;
        }
        let heap_offset = memory.sizes().heap_offset();
        let Some(block) = heap.take(bytes, &mut |at, bytes| allocate(heap_offset + at, bytes))
        else {
            return Lending::Impossible;
        };
        let Some(bit) = granted.take_bit() else {
            heap.give_back(block);
            return Lending::Spent;
        };
        granted.spent += bytes;
        granted.since_scan += bytes;
        Lending::Done((block, bit))
    }

    /// Copies a message into a block and publishes it to the peer of `row`, which has a free slot.
    #[inline]
    pub fn send_in_block(
        &mut self,
        row: u32,
        envelope: &Envelope,
        source: &impl Source,
        allocate: &mut dyn FnMut(u64, u64) -> bool,
    ) -> Lending<bool> {
        let has_slot = self.peer(row).is_some_and(|peer| peer.outbox.has_slots(1));
        if !has_slot {
            return Lending::Done(false);
        }
        let total = source.bytes();
        let (block, bit) = match self.find_block(row, total, allocate) {
            Lending::Done(found) => found,
            Lending::Spent => return Lending::Spent,
            Lending::Impossible => return Lending::Impossible,
        };
        source.fill(0, &mut crate::message::Fragment::shared(self.heap.payload(block, total)));
        let is_sent = self.publish_block(row, envelope, (block, bit), total);
        if is_sent {
            self.heap.prefetch(block.bytes);
        } else {
            self.unspend(row, None, (block, bit));
        }
        Lending::Done(is_sent)
    }

    /// Publishes a block, which is spent.
    fn publish_block(
        &mut self,
        row: u32,
        envelope: &Envelope,
        (at, bit): (Block, u16),
        total: u64,
    ) -> bool {
        let Some(peer) = self.peers.get_mut(row) else { return false };
        let Peer { outbox, granted, .. } = peer;
        let Some(granted) = granted else { return false };
        let position = outbox.head();
        if !outbox.send_block(envelope, block(at.line, bit), total) {
            return false;
        }
        granted.use_bit(bit, at, position);
        if outbox.is_announcement_due() {
            self.announce_to(row);
        }
        true
    }

    /// A block of `bytes` bytes for the program to write a message for the peer of `row`.
    pub fn lend_block(
        &mut self,
        row: u32,
        bytes: usize,
        allocate: &mut dyn FnMut(u64, u64) -> bool,
    ) -> Lending<LentBlock> {
        let block = match self.find_block(row, bytes as u64, allocate) {
            Lending::Done(found) => found,
            Lending::Spent => return Lending::Spent,
            Lending::Impossible => return Lending::Impossible,
        };
        let granted = self.peer(row).and_then(|peer| peer.granted.as_ref());
        let link = granted.map_or(0, |granted| granted.link);
        Lending::Done(LentBlock::new(&self.heap, block, (row, link), bytes))
    }

    /// Publishes a block that its program has written. False if there is no slot, or the peer for which it was lent has
    /// gone; it is the program's still.
    pub fn send_block(&mut self, envelope: &Envelope, lent: &LentBlock) -> bool {
        self.is_of_link(lent)
            && self.publish_block(
                lent.row,
                envelope,
                (lent.block, lent.bit),
                lent.as_slice().len() as u64,
            )
    }

    fn is_of_link(&self, lent: &LentBlock) -> bool {
        let granted = self.peer(lent.row).and_then(|peer| peer.granted.as_ref());
        granted.is_some_and(|granted| granted.link == lent.link)
    }

    /// A block that its program does not send after all.
    pub fn give_block_back(&mut self, lent: &LentBlock) {
        self.unspend(lent.row, Some(lent.link), (lent.block, lent.bit));
    }

    fn unspend(&mut self, row: u32, link: Option<u64>, (block, bit): (Block, u16)) {
        let Self { peers, heap, .. } = self;
        heap.give_back(block);
        if let Some(peer) = peers.get_mut(row)
            && let Some(granted) = &mut peer.granted
            && link.is_none_or(|link| link == granted.link)
        {
            granted.spent = granted.spent.saturating_sub(block.bytes);
            granted.give_bit_back(bit);
        }
    }

    /// What the peer of `row`, which is about to be removed, still reads of the heap. Its memory must not be used before it
    /// is released, or the peer's process has ended. One that `has_left` takes no more messages.
    pub fn take_granted(&mut self, row: u32, has_left: bool) -> Option<Granted> {
        let Self { peers, heap, .. } = self;
        let peer = peers.get_mut(row)?;
        let mut granted = peer.granted.take()?;
        granted.scan(heap);
        if has_left {
            granted.end(peer.outbox.cursor(), heap);
        }
        granted.is_in_use().then_some(*granted)
    }

    /// Takes back what a removed peer has released. True while it still has something.
    pub fn scan_granted(&mut self, granted: &mut Granted) -> bool {
        granted.scan(&mut self.heap);
        granted.is_in_use()
    }

    /// The process of a removed peer has ended: takes everything back.
    pub fn end_granted(&mut self, mut granted: Granted) {
        granted.end(0, &mut self.heap);
    }
}

/// As a receiver.
impl<H: Host> Endpoint<H> {
    /// May the peer of `row` be granted something? Its release bits must have memory. False while messages of an earlier
    /// peer of this row are held.
    pub fn start_granting(&mut self, row: u32) -> bool
    where
        H: Clone + Send + Sync + 'static,
    {
        let Self { peers, memory, homes, host, .. } = self;
        let Some(peer) = peers.get_mut(row) else { return false };
        if peer.inbox.has_kept() {
            return true;
        }
        let Some(before) = homes.get_mut(row as usize) else { return false };
        if before.as_ref().is_some_and(|home| home.strong_count() > 0) {
            return false;
        }
        let words = memory.releases(row);
        let releases = Releases {
            words: words.clone(),
            _heap: peer.inbox.heap().clone(),
            blocked: peer.inbox.blocked().clone(),
            woken: AtomicU32::new(0),
            doorbell: peer.outbox.doorbell().clone(),
            row,
            host: host.clone(),
        };
        let home: Arc<dyn Home> = Arc::new(releases);
        *before = Some(Arc::downgrade(&home));
        peer.inbox.set_kept(Kept::new(words, home));
        true
    }

    /// Takes the message of an arrival that lies in a block. The arrival must then be passed. `None` if it lies elsewhere.
    #[inline]
    pub fn take_block(&mut self, row: u32, arrival: &Arrival) -> Option<Held> {
        let held = self.peer_mut(row)?.inbox.take_block(arrival)?;
        self.taken_in_place += 1;
        Some(held)
    }

    /// As [`Endpoint::take_whole`], for a message in a block, which is not copied.
    #[inline]
    pub fn take_held(&mut self, row: u32, wanted: &Wanted) -> Option<(Short, Held)> {
        let peer = self.peer(row)?;
        let source = peer.inbox.source();
        let found = peer.inbox.arrival();
        let Ok(Some(arrival)) = &found else { return None };
        let Envelope { tag, immediate, .. } = arrival.envelope;
        if !arrival.is_in_place()
            || arrival.envelope != (Envelope { immediate, ..Envelope::numbered(wanted.space, tag) })
            || source == CLOSED
            || !wanted.takes(source, tag)
        {
            return None;
        }
        let held = self.take_block(row, arrival)?;
        self.pass(row, arrival);
        Some((Short::Taken { source, tag, immediate, bytes: held.len() }, held))
    }

    /// The same for a message that is copied out of its block.
    pub(super) fn copy_held<'a, S: Sink + ?Sized + 'a>(
        &mut self,
        row: u32,
        arrival: &Arrival,
        target: &'a mut S,
    ) {
        if let Some(held) = self.take_block(row, arrival) {
            target.put(0, &held);
        }
    }
}
