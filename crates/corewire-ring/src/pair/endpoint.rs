//! An endpoint's data thread: all its pairs, and what is looked at when.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

use corewire_layout::counters::EndpointCounter;
use corewire_layout::endpoint::{ACTIVE_WORDS, EndpointSizes, PairState, blocked};
use corewire_layout::pair::{STAMP_BELOW, pair_stamp_base};
use corewire_layout::segment::{FenceMode, SleepMode};

use super::cells::Cells;
use super::inbox::{Arrival, Heat, Inbox};
use super::outbox::{Announced, Outbox};
use super::words::{Activity, EndpointMemory};
use super::{BURST_MAX, COLD_AFTER, HOT_MAX, IDLE_POLLS, PairViolation, Source};
use crate::broadcast::{SLEEP_CAP_NS, UNSURE_SLEEP_CAP_NS, settles};
use crate::region::Walk;
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
    /// In this round: which of those that are polled is next, and how many that bits have named come
    /// before them.
    hot_next: usize,
    queue_left: usize,
    /// Polls that did not find anything where the one before did.
    polls: u64,
    /// Somebody was woken who waits for this processor.
    gives_way: bool,
    /// The guest, and the poll since when.
    guest: u32,
    guest_since: u64,
    /// The rows that somebody has, and which of them was looked at last for no reason.
    present: Vec<u32>,
    visited: usize,
    /// Announcements and wake-ups that are not counted in the segment yet.
    announced: u64,
    woken: u64,
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
    /// How often it has waited for room, and does it now?
    blocked_times: u32,
    is_blocked: bool,
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
            hot_next: 0,
            queue_left: 0,
            polls: 0,
            gives_way: false,
            guest: NOBODY,
            guest_since: 0,
            present: Vec::new(),
            visited: 0,
            announced: 0,
            woken: 0,
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
            blocked_times: 0,
            is_blocked: false,
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
        let private = match counter {
            EndpointCounter::Announcements => self.announced,
            EndpointCounter::Wakes => self.woken,
            _ => 0,
        };
        self.memory.counter(counter).load(Relaxed) + private
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
        self.present.push(row);
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
        self.present.retain(|&other| other != row);
        self.queue.retain(|&other| other != row);
        self.cooling.retain(|&other| other != row);
        self.dirty.retain(|&other| other != row);
    }

    /// The two rings of a pair by themselves, for whoever counts what they cost: what goes around the
    /// endpoint so is neither announced nor polled for by it.
    pub fn rings_of(&mut self, row: u32) -> Option<(&mut Outbox, &mut Inbox)> {
        self.peer_mut(row).map(|peer| (&mut peer.outbox, &mut peer.inbox))
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
        let Some(Some(peer)) = self.peers.get_mut(row as usize) else { return false };
        let is_sent = peer.outbox.try_send_inline(tag, message);
        if is_sent && peer.outbox.is_announcement_due() {
            self.tell(row);
        }
        is_sent
    }

    /// Sends the next fragment of a message of which `sent` bytes are under way, as long as can be had.
    /// Returns how many bytes it is: 0 if there is no room.
    pub fn send_fragment(&mut self, row: u32, tag: u64, source: &impl Source, sent: u64) -> u64 {
        let Self { peers, cells, .. } = self;
        let Some(Some(peer)) = peers.get_mut(row as usize) else { return 0 };
        let bytes = peer.outbox.send_fragment(tag, source, sent, cells);
        if bytes > 0 && peer.outbox.is_announcement_due() {
            self.tell(row);
        }
        bytes
    }

    /// Announces what was sent to the peer of `row`. The slow half of every send.
    #[cold]
    #[inline(never)]
    fn tell(&mut self, row: u32) {
        let Self { peers, kernel, announced, woken, .. } = self;
        if let Some(Some(peer)) = peers.get_mut(row as usize) {
            *announced += 1;
            *woken += u64::from(peer.outbox.announce(row, kernel) == Announced::Woken);
        }
    }

    /// Writes out what is counted privately, lest a message touch one line more.
    fn publish_counters(&mut self) {
        let private = [
            (EndpointCounter::Announcements, &mut self.announced),
            (EndpointCounter::Wakes, &mut self.woken),
        ];
        for (counter, count) in private {
            if *count > 0 {
                let counter = self.memory.counter(counter);
                counter.store(counter.load(Relaxed).wrapping_add(*count), Relaxed);
                *count = 0;
            }
        }
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

    /// Did the peer of `row` run on this very processor when it last waited, or woke somebody? Then it can
    /// make no room as long as this thread runs.
    #[must_use]
    pub fn is_here(&self, row: u32) -> bool {
        self.peer(row).is_some_and(|peer| peer.inbox.sender_cpu() == self.kernel.cpu())
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
            let Self { peers, memory, free_rings, .. } = self;
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
                    self.tell(other);
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
        if self.activity.summary().load(Relaxed) != 0 || !self.queue.is_empty() {
            if let Some(row) = self.poll_in_turn() {
                return Some(row);
            }
        } else {
            for index in 0..self.hot_count {
                if self.heads[index].is_ready() {
                    return self.poll_in_turn();
                }
            }
        }
        self.polls += 1;
        if self.polls.is_multiple_of(IDLE_POLLS) {
            return self.look_around();
        }
        None
    }

    /// Those who are named by bits and those who are polled, everybody once before anybody is again.
    #[inline(never)]
    fn poll_in_turn(&mut self) -> Option<u32> {
        self.polls += 1;
        for _ in 0..2 {
            while self.queue_left > 0 {
                self.queue_left -= 1;
                if let Some(row) = self.poll_queue() {
                    return Some(row);
                }
            }
            while self.hot_next < self.hot_count {
                self.hot_next += 1;
                if self.heads[self.hot_next - 1].is_ready() {
                    return self.take_from(self.hot_next - 1);
                }
            }
            self.hot_next = 0;
            if self.gives_way {
                // Those who wait for this very processor are to have their turn, too: the others would
                // fill their rings again and again meanwhile.
                self.gives_way = false;
                self.kernel.give_way();
            }
            self.collect();
            self.queue_left = self.queue.len();
        }
        None
    }

    #[inline(always)]
    fn take_from(&mut self, index: usize) -> Option<u32> {
        self.turn = index;
        self.burst = 1;
        let head = &mut self.heads[index];
        head.tick = self.polls;
        Some(head.row)
    }

    /// What is done now and then, when there is nothing else: publishes cursors and counters, and looks at
    /// pairs that cool, and at all others in turn, as if a bit had named them. For those in whose sender
    /// somebody was stopped between a stamp and its bit; and since what nobody has touched for a millisecond
    /// is in no cache on a busy machine, the code among it: the next message would come ten times as late.
    #[cold]
    #[inline(never)]
    fn look_around(&mut self) -> Option<u32> {
        self.publish_cursors();
        self.publish_counters();
        self.keep_guest();
        for index in 0..self.cooling.len() {
            let row = self.cooling[index];
            if self.is_ready(row) {
                self.enqueue(row);
            }
        }
        self.visited = if self.visited + 1 < self.present.len() { self.visited + 1 } else { 0 };
        if let Some(&row) = self.present.get(self.visited) {
            if let Some(peer) = self.peer(row) {
                peer.inbox.keep_warm();
                peer.outbox.keep_warm();
            }
            self.enqueue(row);
        }
        self.poll_in_turn()
    }

    /// Who was a guest last is polled from now on, if somebody else's place has been idle for longer. Now,
    /// when nothing is waited for.
    fn keep_guest(&mut self) {
        let guest = core::mem::replace(&mut self.guest, NOBODY);
        if self.peer(guest).is_some_and(|peer| peer.inbox.heat != Heat::Hot && !peer.inbox.is_held)
        {
            self.warm(guest);
            self.turn = GUEST;
        }
    }

    fn is_ready(&self, row: u32) -> bool {
        self.peer(row).is_some_and(|peer| peer.inbox.is_ready() && !peer.inbox.is_held)
    }

    /// Has the pair of `row` polled at `index`, from where it stands.
    fn set_head(&mut self, index: usize, row: u32) {
        let head = self.peer(row).and_then(|peer| Head::of(row, &peer.inbox));
        let head = head.unwrap_or_else(|| Head::nobody(&self.memory));
        self.heads[index] = Head { tick: self.polls, row, ..head };
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

    /// The next of those whom bits name, if it has something.
    fn poll_queue(&mut self) -> Option<u32> {
        let row = self.queue.pop_front()?;
        let peer = self.peer_mut(row)?;
        peer.inbox.is_queued = false;
        if peer.inbox.is_held {
            return None;
        }
        // What it holds is looked at when its message is: nothing there is believed before.
        let is_strange = peer.inbox.find_ring().is_err();
        if !is_strange && (!peer.inbox.is_ready() || peer.inbox.heat == Heat::Hot) {
            return None;
        }
        let index = self.seat(row);
        if index == GUEST {
            // There may be more than one burst takes, and no bit for it.
            self.enqueue(row);
        }
        self.take_from(index)
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

    /// Polls a pair that a bit has named: as a guest, until somebody else is. One that was just one, or for
    /// which there is a place, is polled from now on. Returns where.
    fn seat(&mut self, row: u32) -> usize {
        let is_regular = row == self.guest && self.polls < self.guest_since + COLD_AFTER;
        if is_regular || self.hot_count < HOT_MAX {
            self.warm(row)
        } else {
            self.set_head(GUEST, row);
            self.guest = row;
            self.guest_since = self.polls;
            GUEST
        }
    }

    /// Polls a pair from now on, if there is a place among those, or one that has not been used for longer.
    /// Returns where it is polled.
    fn warm(&mut self, row: u32) -> usize {
        let index = if self.hot_count < HOT_MAX {
            self.hot_count += 1;
            self.hot_count - 1
        } else {
            let idlest = (0..self.hot_count).min_by_key(|&index| self.heads[index].tick);
            match idlest.filter(|&index| self.polls >= self.heads[index].tick + COLD_AFTER) {
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
        if self.heads[GUEST].row == row {
            self.heads[GUEST] = Head::nobody(&self.memory);
        }
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
        heads[*turn].go_to(peer.inbox.next());
        if !peer.inbox.is_dirty {
            peer.inbox.is_dirty = true;
            self.dirty.push(row);
        }
        if is_due {
            self.publish(row, false);
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
        self.publish(row, true);
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
        let position = peer.inbox.next();
        if self.heads[self.turn].row == row {
            self.heads[self.turn].go_to(position);
        } else {
            self.refresh_head(row);
        }
        let Some(peer) = self.peer_mut(row) else { return };
        if !peer.inbox.is_dirty {
            peer.inbox.is_dirty = true;
            self.dirty.push(row);
        }
        if is_due {
            self.publish(row, false);
        }
    }

    /// Stores a pair's cursor, and wakes a sender that waits for it, if it `looks`, or has made much room.
    #[inline(never)]
    fn publish(&mut self, row: u32, looks: bool) {
        let Self { peers, kernel, memory, .. } = self;
        if let Some(Some(peer)) = peers.get_mut(row as usize)
            && let Some(mode) = peer.inbox.publish_cursor(looks)
        {
            peer.outbox.wake(row, mode, kernel);
            memory.count(EndpointCounter::Wakes);
            let cpu = kernel.cpu();
            memory.cpu().store(cpu, Relaxed);
            self.gives_way |= peer.inbox.sender_cpu() == cpu;
        }
    }

    /// Stores all cursors that have moved.
    pub fn publish_cursors(&mut self) {
        while let Some(row) = self.dirty.pop() {
            if let Some(peer) = self.peer_mut(row) {
                peer.inbox.is_dirty = false;
            }
            self.publish(row, true);
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
            self.block(SleepMode::Futex);
        }
        let is_sure = self.announce(SleepMode::Futex);
        let must_look = self.must_look(is_sure) || has_room.as_mut().is_some_and(|it| it(self));
        if !must_look {
            self.publish_counters();
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
        // Of an earlier wait.
        self.unblock();
        if has_room.is_some() {
            self.block(SleepMode::Descriptor);
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
        self.unblock();
    }

    /// Waits for room no more.
    fn unblock(&mut self) {
        if self.is_blocked {
            self.is_blocked = false;
            self.memory.blocked().store(0, Relaxed);
        }
    }

    /// Says that it waits for room, where everybody who makes some sees it; the barrier that follows makes
    /// sure of that.
    fn block(&mut self, mode: SleepMode) {
        self.is_blocked = true;
        self.blocked_times = self.blocked_times.wrapping_add(1);
        self.memory.cpu().store(self.kernel.cpu(), Relaxed);
        self.memory.blocked().store(blocked(self.blocked_times, mode), Relaxed);
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
        // ORDER(P6): pairs with P5, P9 and P16; a stamp, bit or cursor stored before is seen by the look that
        // follows. Whoever stores one later sees that the pair is cold, the epoch and its mode, and who
        // waits for room.
        #[cfg(loom)]
        if crate::sync::is_weakened("P6") {
            return true;
        }
        // Whoever is to announce its messages anyway, and knows it, fences after each bit.
        if self.fence_mode == FenceMode::Asymmetric && !self.cooling.is_empty() {
            return self.kernel.barrier_everywhere();
        }
        fence_at!(P6: SeqCst);
        true
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

/// Where the next slot of a pair lies, and what its stamp will say: all that a poll needs. It is of no use
/// longer than its peer: whoever removes that clears it.
#[derive(Debug, Clone)]
struct Head {
    walk: Walk,
    /// The stamp, but for what the slot holds.
    expected: u64,
    /// The poll at which it had something last.
    tick: u64,
    row: u32,
}

impl Head {
    /// One that never has anything.
    fn nobody(memory: &EndpointMemory) -> Self {
        let slots = memory.slots(0).expect("an endpoint has a ring");
        // SAFETY: the endpoint's own memory, which it keeps.
        let walk = unsafe { Walk::new(&slots, 0) };
        // No slot has such a stamp: it would be the last of its ring's life.
        Self { walk, expected: !STAMP_BELOW, tick: 0, row: NOBODY }
    }

    /// Where the pair stands. `None` if it has no ring, or is not to be looked at.
    fn of(row: u32, inbox: &Inbox) -> Option<Self> {
        let position = inbox.next();
        // SAFETY: the inbox keeps its slots until its ring has ended or its peer is removed, and then its
        // head is cleared.
        let walk = unsafe { Walk::new(inbox.slots()?, position) };
        let expected = pair_stamp_base(position);
        (!inbox.is_held).then_some(Self { walk, expected, tick: 0, row })
    }

    /// Is something there? One load.
    #[inline(always)]
    fn is_ready(&self) -> bool {
        self.walk.stamp().load(Relaxed) ^ self.expected <= STAMP_BELOW
    }

    /// Goes to where its inbox stands now.
    #[inline(always)]
    fn go_to(&mut self, position: u64) {
        self.walk.go_to(position);
        self.expected = pair_stamp_base(position);
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
