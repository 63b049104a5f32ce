//! An endpoint's data thread: all its pairs, and what is looked at when.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

use corewire_layout::counters::EndpointCounter;
use corewire_layout::endpoint::{ACTIVE_WORDS, EndpointSizes, PairState};
use corewire_layout::pair::{STAMP_BELOW, pair_stamp_base};
use corewire_layout::segment::{FenceMode, SleepMode};

use super::cells::Cells;
use super::inbox::{Arrival, Heat, Inbox};
use super::outbox::{Announced, Outbox};
use super::words::{Activity, EndpointMemory};
use super::{BURST_MAX, COLD_AFTER, HOT_MAX, IDLE_POLLS, PairViolation, Source};
use crate::broadcast::{SLEEP_CAP_NS, UNSURE_SLEEP_CAP_NS, settles};
use crate::region::{Place, Slots};
use crate::sync::{AtomicU32, Ordering::Relaxed};
use crate::{Kernel, Trusted, fence_at, order};

/// What an endpoint's data thread shares with the control thread of its process. Private memory.
#[derive(Default)]
pub struct EndpointShared {
    own: AtomicU32,
    attention: AtomicU32,
}

impl EndpointShared {
    /// Gives the data thread a notice, a bit of its own choice, and wakes it if it waits.
    pub fn notify<K: Kernel>(&self, notice: u32, kernel: &K) {
        // ORDER(P14): pairs with P15; what the dead committed is visible with the notice.
        self.attention.fetch_or(notice, order!(P14: Release));
        // ORDER(P12): pairs with P13; the notice is seen by whom this keeps awake.
        self.own.fetch_add(1, order!(P12: Release));
        kernel.wake(&self.own, 1);
    }

    /// Tells the data thread that this is a forked child, by `notice`. Only stores.
    pub fn mark(&self, notice: u32) {
        self.attention.fetch_or(notice, Relaxed);
    }

    /// The notices given so far.
    #[inline(always)]
    #[must_use]
    pub fn attention(&self) -> u32 {
        // ORDER(P15): pairs with P14.
        self.attention.load(order!(P15: Acquire))
    }

    /// Takes notices back.
    pub fn clear(&self, notices: u32) {
        self.attention.fetch_and(!notices, Relaxed);
    }
}

impl fmt::Debug for EndpointShared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EndpointShared").finish_non_exhaustive()
    }
}

/// What an endpoint is made of.
#[derive(Debug)]
pub struct EndpointParts {
    /// Its segment, writable, header written.
    pub memory: EndpointMemory,
    /// Its activity page.
    pub activity: Activity,
    /// Whether its process can be reached by `membarrier`, and can call it.
    pub fence_mode: FenceMode,
    /// What it shares with its control thread.
    pub shared: Arc<EndpointShared>,
}

/// What a peer is made of.
#[derive(Debug)]
pub struct PeerParts {
    /// Its segment, read-only, header checked.
    pub memory: EndpointMemory,
    /// Its activity page.
    pub activity: Activity,
    /// This endpoint's row with it, which is checked to be one of its rows.
    pub row_there: u32,
    /// Whether its process can be reached by `membarrier`, and can call it.
    pub fence_mode: FenceMode,
    /// Whoever may crash, but does not lie about its memory.
    pub trusted: Trusted,
}

#[derive(Debug)]
struct Peer {
    inbox: Inbox,
    outbox: Outbox,
}

/// Nobody.
const NOBODY: u32 = u32::MAX;
/// Where whom a bit has named is polled, who has no place of its own.
const GUEST: usize = HOT_MAX;

/// An endpoint's data thread.
#[derive(Debug)]
pub struct Endpoint<K> {
    peers: Vec<Option<Box<Peer>>>,
    /// Polled directly; behind them, whom a bit has named and who has no place among them.
    heads: [Head; HOT_MAX + 1],
    hot_count: usize,
    /// Whose messages are being taken, and how many have been.
    turn: usize,
    burst: u32,
    /// Polls that did not find anything where the one before did.
    polls: u64,
    activity: Activity,
    shared: Arc<EndpointShared>,
    /// Named by a bit, and to be looked at.
    queue: VecDeque<u32>,
    /// Not polled any more, which their senders may not know.
    cooling: Vec<u32>,
    /// Whose cursors are to be published when there is time.
    dirty: Vec<u32>,
    cells: Cells,
    /// Rings that nobody has.
    free_rings: VecDeque<u64>,
    memory: EndpointMemory,
    fence_mode: FenceMode,
    epoch: u32,
    blocked_epoch: u32,
    sleep_cap_ns: u64,
    kernel: K,
}

impl<K: Kernel> Endpoint<K> {
    /// An endpoint without peers.
    #[must_use]
    pub fn new(parts: EndpointParts, kernel: K) -> Self {
        let EndpointParts { memory, activity, fence_mode, shared } = parts;
        let sizes = *memory.sizes();
        let peers = usize::try_from(sizes.peers_max()).unwrap_or(usize::MAX);
        Self {
            peers: (0..peers).map(|_| None).collect(),
            heads: core::array::from_fn(|_| Head::nobody(&memory)),
            hot_count: 0,
            turn: GUEST,
            burst: 0,
            polls: 0,
            activity,
            shared,
            queue: VecDeque::new(),
            cooling: Vec::new(),
            dirty: Vec::new(),
            cells: Cells::new(memory.cells(), sizes.cells(), sizes.cell_bytes()),
            free_rings: (0..sizes.rings()).collect(),
            memory,
            fence_mode,
            epoch: 0,
            blocked_epoch: 0,
            sleep_cap_ns: SLEEP_CAP_NS,
            kernel,
        }
    }

    /// Its sizes.
    #[must_use]
    pub fn sizes(&self) -> &EndpointSizes {
        self.memory.sizes()
    }

    /// What it shares with its control thread.
    #[must_use]
    pub fn shared(&self) -> &Arc<EndpointShared> {
        &self.shared
    }

    /// Has its control thread something to say?
    #[inline(always)]
    #[must_use]
    pub fn has_notice(&self) -> bool {
        self.shared.attention() != 0
    }

    /// What it asks of the operating system.
    #[must_use]
    pub fn kernel(&self) -> &K {
        &self.kernel
    }

    /// Makes its sleeps end after `cap_ns` whatever happens; 100 ms if not said.
    pub fn set_sleep_cap(&mut self, cap_ns: u64) {
        self.sleep_cap_ns = cap_ns;
    }

    /// One of its counters.
    #[must_use]
    pub fn counter(&self, counter: EndpointCounter) -> u64 {
        self.memory.counter(counter).load(Relaxed)
    }

    /// Counts one more.
    pub fn count(&self, counter: EndpointCounter) {
        self.memory.count(counter);
    }

    // Peers.

    /// A peer has come: it has `row`, which nobody has now, and whose words [`Endpoint::reset_row`] has put
    /// in order.
    ///
    /// # Panics
    /// If there is no such row.
    pub fn add_peer(&mut self, row: u32, parts: PeerParts) {
        let PeerParts { memory, activity, row_there, fence_mode, trusted } = parts;
        let is_fenced = self.fence_mode == FenceMode::Fenced || fence_mode == FenceMode::Fenced;
        let outbox = Outbox::new(&self.memory, row, &memory, activity, row_there, is_fenced);
        let inbox = Inbox::new(&self.memory, row, memory, row_there, trusted);
        self.peers[row as usize] = Some(Box::new(Peer { inbox, outbox }));
        // It may have sent something before it was known here.
        self.enqueue(row);
    }

    /// Puts the words of a row in order, before a peer that is to have it knows of it.
    pub fn reset_row(memory: &EndpointMemory, row: u32) {
        Inbox::reset(memory, row);
    }

    /// The peer of `row` is gone, and whatever it has sent has been taken, or is not wanted.
    pub fn remove_peer(&mut self, row: u32) {
        let Some(peer) = self.peers.get_mut(row as usize).and_then(Option::take) else { return };
        let mut peer = peer;
        self.free_rings.extend(peer.outbox.close(&mut self.cells));
        if let Some(index) = self.heads.iter().position(|head| head.row == row) {
            self.clear_head(index);
        }
        self.queue.retain(|&other| other != row);
        self.cooling.retain(|&other| other != row);
        self.dirty.retain(|&other| other != row);
    }

    #[inline(always)]
    fn peer(&self, row: u32) -> Option<&Peer> {
        self.peers.get(row as usize)?.as_deref()
    }

    #[inline(always)]
    fn peer_mut(&mut self, row: u32) -> Option<&mut Peer> {
        self.peers.get_mut(row as usize)?.as_deref_mut()
    }

    // Sending.

    /// Sends a message of at most 104 bytes to the peer of `row`, if there is room for it. False if not;
    /// nothing is done then.
    #[inline(always)]
    pub fn try_send(&mut self, row: u32, tag: u64, message: &[u8]) -> bool {
        let Self { peers, kernel, memory, .. } = self;
        let Some(Some(peer)) = peers.get_mut(row as usize) else { return false };
        let is_sent = peer.outbox.try_send_inline(tag, message);
        if is_sent && peer.outbox.is_announcement_due() {
            announce(&mut peer.outbox, row, memory, kernel);
        }
        is_sent
    }

    /// Sends the next fragment of a message of which `sent` bytes are under way, as long as can be had.
    /// Returns how many bytes it is: 0 if there is no room.
    pub fn send_fragment(&mut self, row: u32, tag: u64, source: &impl Source, sent: u64) -> u64 {
        let Self { peers, kernel, memory, cells, .. } = self;
        let Some(Some(peer)) = peers.get_mut(row as usize) else { return 0 };
        let bytes = peer.outbox.send_fragment(tag, source, sent, cells);
        if bytes > 0 && peer.outbox.is_announcement_due() {
            announce(&mut peer.outbox, row, memory, kernel);
        }
        bytes
    }

    /// Makes room towards the peer of `row`, as far as there is any: reads its cursor.
    ///
    /// # Errors
    /// A [`PairViolation`]: the peer is to be removed.
    pub fn make_room(&mut self, row: u32) -> Result<(), PairViolation> {
        let Self { peers, cells, free_rings, .. } = self;
        if let Some(Some(peer)) = peers.get_mut(row as usize) {
            free_rings.extend(peer.outbox.refresh(cells)?);
        }
        Ok(())
    }

    /// Is there room towards the peer of `row` for one more slot, and for a fragment in a cell if
    /// `needs_cell`?
    ///
    /// # Errors
    /// A [`PairViolation`]: the peer is to be removed.
    pub fn has_room(&mut self, row: u32, needs_cell: bool) -> Result<bool, PairViolation> {
        self.make_room(row)?;
        let Self { peers, cells, .. } = self;
        let Some(Some(peer)) = peers.get_mut(row as usize) else { return Ok(false) };
        Ok(peer.outbox.has_slot() && (!needs_cell || peer.outbox.may_have_cell(cells)))
    }

    /// Has the pair towards the peer of `row` a ring?
    #[must_use]
    pub fn has_ring(&self, row: u32) -> bool {
        self.peer(row).is_some_and(|peer| peer.outbox.has_ring())
    }

    /// The ring that [`Endpoint::assign_ring`] would take; `None` if none is free.
    #[must_use]
    pub fn next_ring(&self) -> Option<u64> {
        self.free_rings.front().copied()
    }

    /// Gives the pair towards the peer of `row` a ring, whose memory is there. False if it has one that is
    /// being taken back, or none is free.
    pub fn assign_ring(&mut self, row: u32) -> bool {
        let Self { peers, free_rings, memory, .. } = self;
        let Some(Some(peer)) = peers.get_mut(row as usize) else { return false };
        if peer.outbox.is_ending() {
            return false;
        }
        let Some(ring) = free_rings.pop_front() else { return false };
        if let Some(slots) = memory.slots(ring) {
            peer.outbox.assign(ring, slots);
        }
        true
    }

    /// Begins to take a ring back for `row`, from a peer that has passed everything. It is free once that
    /// peer has seen so. True if one is on its way; errors are left for the pair's next use.
    pub fn take_ring_back(&mut self, row: u32) -> bool {
        let mut is_ending = false;
        for other in (0u32..).take(self.peers.len()) {
            if self.make_room(other).is_err() {
                continue;
            }
            let Self { peers, kernel, memory, free_rings, .. } = self;
            let Some(Some(peer)) = peers.get_mut(other as usize) else { continue };
            if !free_rings.is_empty() {
                return true;
            }
            is_ending |= peer.outbox.is_ending();
            let is_idle = other != row && peer.outbox.has_ring() && peer.outbox.is_idle();
            if !is_ending && is_idle && peer.outbox.end_ring() {
                is_ending = true;
                memory.count(EndpointCounter::RingsTaken);
                if peer.outbox.is_announcement_due() {
                    announce(&mut peer.outbox, other, memory, kernel);
                }
            }
        }
        is_ending
    }

    // Receiving.

    /// The row of a pair that has something at its head, if there is one. Takes no more than
    /// [`BURST_MAX`] in a row from one pair while others have something.
    #[inline(always)]
    pub fn poll(&mut self) -> Option<u32> {
        let head = &self.heads[self.turn];
        if head.is_ready() && self.burst < BURST_MAX {
            self.burst += 1;
            return Some(head.row);
        }
        self.poll_others()
    }

    /// The rest of [`Endpoint::poll`].
    #[inline(always)]
    fn poll_others(&mut self) -> Option<u32> {
        let has_news = self.activity.summary().load(Relaxed) != 0 || !self.queue.is_empty();
        if has_news && let Some(row) = self.poll_queue_in_turn() {
            return Some(row);
        }
        for index in 0..self.hot_count {
            if self.heads[index].is_ready() {
                return self.take_from_hot();
            }
        }
        self.polls += 1;
        if self.polls.is_multiple_of(IDLE_POLLS) {
            return self.look_around();
        }
        None
    }

    /// Those who are polled have something, or one of them has: the next in turn.
    #[inline(never)]
    fn take_from_hot(&mut self) -> Option<u32> {
        self.polls += 1;
        for step in 1..=self.hot_count {
            let index = (self.turn + step) % self.hot_count;
            if self.heads[index].is_ready() {
                return self.take_from(index);
            }
        }
        None
    }

    #[inline(always)]
    fn take_from(&mut self, index: usize) -> Option<u32> {
        self.turn = index;
        self.burst = 1;
        let row = self.heads[index].row;
        let polls = self.polls;
        if let Some(peer) = self.peer_mut(row) {
            peer.inbox.tick = polls;
        }
        Some(row)
    }

    /// What is done now and then: publishes cursors, looks at pairs that cool.
    #[cold]
    #[inline(never)]
    fn look_around(&mut self) -> Option<u32> {
        self.publish_cursors();
        for _ in 0..self.cooling.len() {
            self.cooling.rotate_left(1);
            let row = self.cooling[0];
            if self.is_ready(row) {
                self.enqueue(row);
                return self.poll_queue();
            }
        }
        None
    }

    fn is_ready(&self, row: u32) -> bool {
        self.peer(row).is_some_and(|peer| peer.inbox.is_ready() && !peer.inbox.is_held)
    }

    /// Has the pair of `row` polled at `index`, from where it stands.
    fn set_head(&mut self, index: usize, row: u32) {
        let head = self.peer(row).and_then(|peer| Head::of(row, &peer.inbox));
        self.heads[index] = head.unwrap_or_else(|| Head::nobody(&self.memory));
        self.heads[index].row = row;
    }

    /// Has nobody polled at `index` any more.
    fn clear_head(&mut self, index: usize) {
        self.heads[index] = Head::nobody(&self.memory);
        if index < self.hot_count {
            self.heads[index..self.hot_count].rotate_left(1);
            self.hot_count -= 1;
        }
        self.turn = GUEST;
    }

    /// Has the head of a pair, if it is polled, stand where its inbox stands.
    fn refresh_head(&mut self, row: u32) {
        if let Some(index) = self.heads.iter().position(|head| head.row == row) {
            self.set_head(index, row);
        }
    }

    /// Has a pair looked at.
    pub fn enqueue(&mut self, row: u32) {
        if let Some(peer) = self.peer_mut(row)
            && !peer.inbox.is_queued
        {
            peer.inbox.is_queued = true;
            self.queue.push_back(row);
        }
    }

    /// Leaves a pair's first message where it is, and looks at nothing of that pair until
    /// [`Endpoint::release`].
    pub fn hold(&mut self, row: u32) {
        if let Some(peer) = self.peer_mut(row) {
            peer.inbox.is_held = true;
            self.refresh_head(row);
        }
    }

    /// Looks at a pair again.
    pub fn release(&mut self, row: u32) {
        if let Some(peer) = self.peer_mut(row) {
            peer.inbox.is_held = false;
            self.refresh_head(row);
        }
        self.enqueue(row);
    }

    /// Those who are polled and those whom bits name take turns.
    #[inline(never)]
    fn poll_queue_in_turn(&mut self) -> Option<u32> {
        let is_their_turn = self.burst < BURST_MAX || self.turn + 1 >= self.hot_count;
        if is_their_turn || !self.heads[..self.hot_count].iter().any(Head::is_ready) {
            self.polls += 1;
            self.poll_queue()
        } else {
            None
        }
    }

    /// Those whom bits name, one after the other.
    fn poll_queue(&mut self) -> Option<u32> {
        self.collect();
        for _ in 0..self.queue.len() {
            let row = self.queue.pop_front()?;
            let Some(peer) = self.peer_mut(row) else { continue };
            peer.inbox.is_queued = false;
            if peer.inbox.is_held {
                continue;
            }
            // What it holds is looked at when its message is: nothing there is believed before.
            let is_strange = peer.inbox.find_ring().is_err();
            if is_strange || peer.inbox.is_ready() {
                // There may be more than one burst takes, and no bit for it.
                self.enqueue(row);
                let index = self.warm(row);
                return self.take_from(index);
            }
        }
        None
    }

    /// Takes the bits that are set.
    fn collect(&mut self) {
        // ORDER(P8): pairs with P7; whoever sets a bit of a word after this finds the summary cleared.
        let mut words = match self.activity.summary().load(Relaxed) {
            0 => 0,
            _ => self.activity.summary().swap(0, order!(P8: AcqRel)),
        };
        while words != 0 {
            let index = words.trailing_zeros();
            words &= words - 1;
            if index as usize >= ACTIVE_WORDS.min(self.peers.len().div_ceil(64)) {
                continue;
            }
            // ORDER(P8): pairs with P7; the stamps that the bits stand for are seen below.
            let mut bits = self.activity.word(index).swap(0, order!(P8: AcqRel));
            while bits != 0 {
                self.enqueue(64 * index + bits.trailing_zeros());
                bits &= bits - 1;
            }
        }
    }

    /// Polls a pair that has a message from now on, if there is a place among those, or one that has not
    /// been used for a while. Returns where it is polled.
    fn warm(&mut self, row: u32) -> usize {
        if let Some(index) = self.heads[..self.hot_count].iter().position(|head| head.row == row) {
            self.set_head(index, row);
            return index;
        }
        let index = if self.hot_count < HOT_MAX {
            self.hot_count += 1;
            self.hot_count - 1
        } else {
            let tick_of =
                |index: &usize| self.peer(self.heads[*index].row).map_or(0, |peer| peer.inbox.tick);
            let idlest = (0..self.hot_count).min_by_key(tick_of);
            match idlest.filter(|index| self.polls >= tick_of(index) + COLD_AFTER) {
                Some(index) => {
                    self.cool(self.heads[index].row);
                    index
                }
                None => {
                    self.set_head(GUEST, row);
                    return GUEST;
                }
            }
        };
        self.cooling.retain(|&other| other != row);
        if let Some(peer) = self.peer_mut(row) {
            peer.inbox.heat = Heat::Hot;
            peer.inbox.set_state(PairState::Hot);
        }
        self.set_head(index, row);
        index
    }

    /// Has a pair's sender announce its messages from now on. It may not know at once.
    fn cool(&mut self, row: u32) {
        if let Some(peer) = self.peer_mut(row)
            && peer.inbox.heat == Heat::Hot
        {
            peer.inbox.heat = Heat::Cooling;
            peer.inbox.set_state(PairState::Cold);
            self.cooling.push(row);
        }
    }

    /// Takes the next message, if there is one and it fits a slot and `target`, and `is_wanted` says so
    /// of its row, tag and length. Nothing else is looked at meanwhile: this is the way of most messages.
    #[inline(always)]
    pub fn take_short(
        &mut self,
        target: &mut [u8],
        is_wanted: impl FnOnce(u32, u64, usize) -> bool,
    ) -> Short {
        let Some(row) = self.poll() else { return Short::Nothing };
        let Self { peers, heads, turn, .. } = self;
        let Some(Some(peer)) = peers.get_mut(row as usize) else { return Short::Other(row) };
        let Some((tag, bytes)) = peer.inbox.short_arrival() else { return Short::Other(row) };
        if bytes > target.len() || !is_wanted(row, tag, bytes) {
            return Short::Other(row);
        }
        let is_due = peer.inbox.take_short(bytes, target);
        heads[*turn].go_on();
        if is_due {
            self.publish(row);
        } else if !peer.inbox.is_dirty {
            peer.inbox.is_dirty = true;
            self.dirty.push(row);
        }
        Short::Taken { row, tag, bytes }
    }

    /// What lies at the head of the pair of `row`, which [`Endpoint::poll`] has found. `None` if there is
    /// nothing to be received after all.
    ///
    /// # Errors
    /// A [`PairViolation`]: the peer is to be removed.
    #[inline(always)]
    pub fn arrival(&mut self, row: u32) -> Result<Option<Arrival>, PairViolation> {
        let Some(peer) = self.peer(row) else { return Ok(None) };
        match peer.inbox.arrival()? {
            Some(arrival) => Ok(Some(arrival)),
            None => self.end_ring(row),
        }
    }

    /// Passes the end of a pair's ring, and says so at once: its sender wants it back.
    #[cold]
    fn end_ring(&mut self, row: u32) -> Result<Option<Arrival>, PairViolation> {
        let Some(peer) = self.peer_mut(row) else { return Ok(None) };
        if !peer.inbox.find_ring()? || !peer.inbox.is_ready() {
            return Ok(None);
        }
        peer.inbox.pass_end();
        if let Some(index) = self.heads.iter().position(|head| head.row == row) {
            self.clear_head(index);
        }
        // Before the cursor: its sender takes another ring only after that, and then announces it.
        self.cool(row);
        self.publish(row);
        Ok(None)
    }

    /// The message of which the pair of `row` is in the middle goes on: is the next fragment there?
    #[must_use]
    pub fn is_within(&self, row: u32) -> bool {
        self.peer(row).is_some_and(|peer| peer.inbox.is_within())
    }

    /// Has the pair of `row` something at its head, held or not?
    ///
    /// # Errors
    /// A [`PairViolation`]: the peer is to be removed.
    pub fn has_arrival(&mut self, row: u32) -> Result<bool, PairViolation> {
        let Some(peer) = self.peer_mut(row) else { return Ok(false) };
        Ok(peer.inbox.find_ring()? && peer.inbox.is_ready())
    }

    /// Copies an arrival's bytes from `skip` on into `target`, as many as there are or fit. Returns how
    /// many.
    #[inline(always)]
    pub fn copy(&self, row: u32, arrival: &Arrival, skip: usize, target: &mut [u8]) -> usize {
        self.peer(row).map_or(0, |peer| peer.inbox.copy(arrival, skip, target))
    }

    /// Is done with an arrival.
    #[inline(always)]
    pub fn pass(&mut self, row: u32, arrival: &Arrival) {
        let Some(peer) = self.peer_mut(row) else { return };
        let is_due = peer.inbox.pass(arrival);
        let head = Head::of(row, &peer.inbox);
        match (&mut self.heads[self.turn], head) {
            (polled, Some(head)) if polled.row == row => *polled = head,
            _ => self.refresh_head(row),
        }
        let Some(peer) = self.peer_mut(row) else { return };
        if is_due {
            self.publish(row);
        } else if !peer.inbox.is_dirty {
            peer.inbox.is_dirty = true;
            self.dirty.push(row);
        }
    }

    /// Stores a pair's cursor, and wakes a sender that waits for it.
    #[inline(never)]
    fn publish(&mut self, row: u32) {
        let Self { peers, kernel, memory, .. } = self;
        if let Some(Some(peer)) = peers.get_mut(row as usize)
            && peer.inbox.publish_cursor()
        {
            peer.outbox.ring_doorbell(kernel);
            memory.count(EndpointCounter::Wakes);
        }
    }

    /// Stores all cursors that have moved.
    pub fn publish_cursors(&mut self) {
        while let Some(row) = self.dirty.pop() {
            if let Some(peer) = self.peer_mut(row) {
                peer.inbox.is_dirty = false;
            }
            self.publish(row);
        }
    }

    // Sleeping.

    /// Sleeps until something comes, a notice is given, or `limit_ns` or the cap have passed; may return
    /// early. `has_room` says whether what the caller has to send finds room by now, having made some;
    /// `None` if it has nothing to send. What the cap alone found is counted.
    pub fn sleep(
        &mut self,
        limit_ns: u64,
        mut has_room: Option<&mut dyn FnMut(&mut Self) -> bool>,
    ) {
        self.publish_cursors();
        // ORDER(P13): pairs with P12; both words are read before looking again, so that whatever changes
        // them in between ends the sleep at once.
        let own = self.shared.own.load(order!(P13: Acquire));
        // ORDER(P13): as above.
        let bell = self.activity.doorbell().load(order!(P13: Acquire));
        if has_room.is_some() {
            self.block();
        }
        let is_sure = self.announce(SleepMode::Futex);
        let must_look = self.must_look(is_sure) || has_room.as_mut().is_some_and(|it| it(self));
        if !must_look {
            self.count(EndpointCounter::Sleeps);
            let is_capped = is_sure && self.sleep_cap_ns <= limit_ns;
            let cap_ns =
                if is_sure { self.sleep_cap_ns } else { UNSURE_SLEEP_CAP_NS }.min(limit_ns);
            let doorbell = self.activity.doorbell();
            let capped = self.kernel.wait((doorbell, bell), (&self.shared.own, own), cap_ns);
            if capped && is_capped && self.activity.summary().load(Relaxed) != 0 {
                let doorbell = self.activity.doorbell();
                if !settles(|| doorbell.load(Relaxed) != bell) {
                    self.count(EndpointCounter::CapFinds);
                }
            }
        }
        self.retract();
    }

    /// Announces that it is about to wait for its descriptor. Returns false, and takes that back, if there
    /// is something to look at already.
    pub fn arm(&mut self, mut has_room: Option<&mut dyn FnMut(&mut Self) -> bool>) -> bool {
        self.publish_cursors();
        if has_room.is_some() {
            self.block();
        }
        let is_sure = self.announce(SleepMode::Descriptor);
        if self.must_look(is_sure) || has_room.as_mut().is_some_and(|it| it(self)) {
            self.retract();
            return false;
        }
        self.count(EndpointCounter::Sleeps);
        true
    }

    /// Takes an announcement back.
    pub fn retract(&mut self) {
        if self.epoch % 2 == 1 {
            self.epoch = self.epoch.wrapping_add(1);
            self.memory.sleeping().store(self.epoch, Relaxed);
        }
        if self.blocked_epoch % 2 == 1 {
            self.blocked_epoch = self.blocked_epoch.wrapping_add(1);
            self.memory.blocked().store(self.blocked_epoch, Relaxed);
        }
    }

    /// Says that it waits for room, where everybody who makes some sees it; the barrier that follows makes
    /// sure of that.
    fn block(&mut self) {
        self.blocked_epoch = self.blocked_epoch.wrapping_add(1) | 1;
        self.memory.blocked().store(self.blocked_epoch, Relaxed);
    }

    /// Has every later message announced, and makes the epoch odd, where whoever announces one sees it.
    /// False if the kernel could not promise that.
    fn announce(&mut self, mode: SleepMode) -> bool {
        while self.hot_count > 0 {
            self.cool(self.heads[self.hot_count - 1].row);
            self.clear_head(self.hot_count - 1);
        }
        self.clear_head(GUEST);
        self.memory.mode().store(mode as u32, Relaxed);
        self.epoch = self.epoch.wrapping_add(1) | 1;
        self.memory.sleeping().store(self.epoch, Relaxed);
        // ORDER(P6): pairs with P5 and P9; a stamp, bit or cursor stored before is seen by the look that
        // follows. Whoever stores one later sees that the pair is cold, the epoch and its mode, and who
        // waits for room.
        #[cfg(loom)]
        if crate::sync::is_weakened("P6") {
            return true;
        }
        match self.fence_mode {
            FenceMode::Asymmetric => self.kernel.barrier_everywhere(),
            FenceMode::Fenced => {
                fence_at!(P6: SeqCst);
                true
            }
        }
    }

    /// Is there any reason not to sleep? After a barrier, pairs that cooled are cold.
    fn must_look(&mut self, is_sure: bool) -> bool {
        let ready = self.cooling.iter().copied().find(|&row| self.is_ready(row));
        if let Some(row) = ready {
            self.enqueue(row);
        } else if is_sure {
            while let Some(row) = self.cooling.pop() {
                if let Some(peer) = self.peer_mut(row) {
                    peer.inbox.heat = Heat::Cold;
                }
            }
        }
        !self.queue.is_empty()
            || self.activity.summary().load(Relaxed) != 0
            || self.shared.attention() != 0
    }
}

/// Where the next slot of a pair lies, and what its stamp will say: all that a poll needs.
#[derive(Debug, Clone)]
struct Head {
    slots: Slots,
    place: Place,
    /// The stamp, but for what the slot holds.
    expected: u64,
    position: u64,
    row: u32,
}

impl Head {
    /// One that never has anything.
    fn nobody(memory: &EndpointMemory) -> Self {
        let slots = memory.slots(0).expect("an endpoint has a ring");
        let place = slots.at(0).place();
        // No slot has such a stamp: it would be the last of its ring's life.
        Self { place, slots, expected: !STAMP_BELOW, position: 0, row: NOBODY }
    }

    /// Where the pair stands. `None` if it has no ring, or is not to be looked at.
    fn of(row: u32, inbox: &Inbox) -> Option<Self> {
        let slots = inbox.slots()?.clone();
        let position = inbox.next();
        let place = slots.at(position).place();
        let expected = pair_stamp_base(position);
        (!inbox.is_held).then_some(Self { slots, place, expected, position, row })
    }

    /// Is something there? One load.
    #[inline(always)]
    fn is_ready(&self) -> bool {
        // SAFETY: the place is of these slots.
        let slot = unsafe { self.slots.at_place(self.place) };
        slot.stamp().load(Relaxed) ^ self.expected <= STAMP_BELOW
    }

    /// One slot on.
    #[inline(always)]
    fn go_on(&mut self) {
        self.position += 1;
        self.place = self.slots.at(self.position).place();
        self.expected = pair_stamp_base(self.position);
    }
}

/// What came of [`Endpoint::take_short`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Short {
    /// There is no message.
    Nothing,
    /// A message was taken.
    Taken {
        /// Whose.
        row: u32,
        /// What its sender said.
        tag: u64,
        /// Its length.
        bytes: usize,
    },
    /// The pair of this row has something at its head that is not to be taken so.
    Other(u32),
}

fn announce<K: Kernel>(outbox: &mut Outbox, row: u32, memory: &EndpointMemory, kernel: &K) {
    memory.count(EndpointCounter::Announcements);
    if outbox.announce(row, kernel) == Announced::Woken {
        memory.count(EndpointCounter::Wakes);
    }
}
