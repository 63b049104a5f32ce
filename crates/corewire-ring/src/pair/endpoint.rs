//! An endpoint's data thread: all its pairs, and what is looked at when.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

use corewire_layout::counters::{EndpointCounter, PeerCounter};
use corewire_layout::endpoint::{ACTIVE_WORDS, EndpointSizes, PairState, blocked};
use corewire_layout::segment::{FenceMode, SleepMode};

use super::cells::Cells;
use super::inbox::{CLOSED, Heat, Inbox, Inline};
use super::outbox::{Announced, Outbox};
use super::watch::{GUEST, Head, Watch};
use super::words::{Activity, EndpointMemory};
use super::{
    BITS_EVERY, BITS_OFTEN, GROUPS_ONCE, IDLE_POLLS, PairViolation, TURNS_MAX, VISIT_EVERY,
    WATCHED_MAX,
};
use crate::broadcast::{SLEEP_CAP_NS, UNSURE_SLEEP_CAP_NS, settles};
use crate::message::{Arrival, Envelope, Sink, Source, Wanted};
use crate::region::Word32;
use crate::sync::{AtomicU32, Ordering::Relaxed};
use crate::{Kernel, Trusted, fence_at, order};

/// What an endpoint's data thread shares with the control thread of its process. The notices lie in
/// private memory. They ring the doorbell that peers ring, so that a sleep is a wait on one word, which costs the
/// kernel 0.7 of a wait on two. A hostile peer that resets the doorbell can delay a notice, like any message, until
/// the sleep's cap.
pub struct EndpointShared {
    doorbell: Word32,
    attention: AtomicU32,
}

impl EndpointShared {
    /// Without notices, for the endpoint that has this activity page.
    #[must_use]
    pub fn new(activity: &Activity) -> Self {
        Self { doorbell: activity.doorbell().clone(), attention: AtomicU32::new(0) }
    }

    /// Gives the data thread a notice, a bit of its own choice, and wakes it if it waits.
    pub fn notify<K: Kernel>(&self, notice: u32, kernel: &K) {
        // ORDER(P14): pairs with P15; what the dead committed is visible with the notice.
        self.attention.fetch_or(notice, order!(P14: Release));
        // ORDER(P12): pairs with P13; the notice is seen by whom this keeps awake.
        self.doorbell.fetch_add(1, order!(P12: Release));
        kernel.wake(&self.doorbell, 1);
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

/// An endpoint's data thread.
#[derive(Debug)]
pub struct Endpoint<K> {
    peers: Vec<Option<Box<Peer>>>,
    /// Who is looked at.
    watch: Watch,
    /// Everybody is looked at in turn, one round at least.
    is_busy: bool,
    /// How many of those that bits have named are left in this round; `None` before they are taken in.
    queue_left: Option<usize>,
    /// Turns so far.
    turns: u32,
    /// Polls that did not find anything.
    polls: u64,
    /// Somebody was woken who waits for this processor.
    must_yield: bool,
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
    /// A bit for each row whose cursor is to be published when there is time.
    dirty: [u64; ACTIVE_WORDS],
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
        // Nowhere yet.
        memory.cpu().store(u32::MAX, Relaxed);
        Self {
            peers: (0..peers).map(|_| None).collect(),
            watch: Watch::new(&memory),
            is_busy: false,
            turns: 0,
            queue_left: None,
            polls: 0,
            must_yield: false,
            present: Vec::new(),
            visited: 0,
            announced: 0,
            woken: 0,
            activity,
            shared,
            queue: VecDeque::new(),
            cooling: Vec::new(),
            dirty: [0; ACTIVE_WORDS],
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
        self.watch.remove(row);
        self.present.retain(|&other| other != row);
        self.queue.retain(|&other| other != row);
        self.cooling.retain(|&other| other != row);
        self.dirty[row as usize / 64] &= !(1 << (row % 64));
    }

    /// The two rings of a pair by themselves, for whoever counts what they cost: what goes around the
    /// endpoint so is not announced by it, and nothing of this pair is to be polled for any more.
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

    /// Says who the peer of `row` is to the caller, as long as messages may go the short way to it and from
    /// it; a generation of 0 if they may not.
    pub fn open(&mut self, row: u32, generation: u32) {
        if let Some(peer) = self.peer_mut(row) {
            let source = Wanted::source_bits(row, generation);
            peer.inbox.open(if generation == 0 { CLOSED } else { source });
        }
    }

    /// Is this [source](Wanted::source_bits) what [`Endpoint::open`] was told last of its row?
    #[inline(always)]
    #[must_use]
    pub fn is_open(&self, source: u64) -> bool {
        self.peer(Wanted::row_of(source)).is_some_and(|peer| peer.inbox.source() == source)
    }

    // Sending.

    /// Sends a message of at most 160 bytes to the peer of `row`, if there is room for it. False if not;
    /// nothing is done then.
    #[inline(always)]
    pub fn try_send(&mut self, row: u32, envelope: &Envelope, message: &[u8]) -> bool {
        let Some(Some(peer)) = self.peers.get_mut(row as usize) else { return false };
        let peer = &mut **peer;
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

    /// From now on such messages go through the cells that were used last, or through all in turn.
    pub fn take_recent_cells(&mut self, takes_recent: bool) {
        self.cells.take_recent(takes_recent);
    }

    /// Sends the next fragment of a message of which `sent` bytes are under way, as long as can be had.
    /// Returns how many bytes it is: 0 if there is no room.
    pub fn send_fragment(
        &mut self,
        row: u32,
        envelope: &Envelope,
        source: &impl Source,
        sent: u64,
    ) -> u64 {
        let Self { peers, cells, .. } = self;
        let Some(Some(peer)) = peers.get_mut(row as usize) else { return 0 };
        let bytes = peer.outbox.send_fragment(envelope, source, sent, cells);
        if bytes > 0 && peer.outbox.is_announcement_due() {
            self.announce_to(row);
        }
        bytes
    }

    /// Announces what was sent to the peer of `row`. The slow half of every send.
    #[cold]
    #[inline(never)]
    fn announce_to(&mut self, row: u32) {
        let Self { peers, kernel, memory, announced, woken, .. } = self;
        if let Some(Some(peer)) = peers.get_mut(row as usize)
            && peer.outbox.must_announce()
        {
            *announced += 1;
            if peer.outbox.announce(row, kernel) == Announced::Woken {
                *woken += 1;
                memory.cpu().store(kernel.cpu(), Relaxed);
            }
            peer.outbox.publish_traffic(memory, row);
        }
    }

    /// Stores what has gone and come in the counters that observers read.
    pub fn publish_traffic(&mut self) {
        let Self { peers, memory, present, .. } = self;
        for &row in &*present {
            if let Some(Some(peer)) = peers.get_mut(row as usize) {
                peer.inbox.publish_traffic(memory, row);
                peer.outbox.publish_traffic(memory, row);
            }
        }
    }

    /// Stores one of the counters of the peer of `row` that only the caller knows.
    pub fn set_peer_counter(&self, row: u32, counter: PeerCounter, value: u64) {
        self.memory.peer_counter(row, counter).store(value, Relaxed);
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
        let Self { peers, cells, free_rings, memory, .. } = self;
        if let Some(Some(peer)) = peers.get_mut(row as usize) {
            free_rings.extend(peer.outbox.refresh(cells)?);
            peer.outbox.publish_traffic(memory, row);
        }
        Ok(())
    }

    /// Is there room towards the peer of `row` for a message of `total` bytes with this envelope, or for its next
    /// fragment if it goes through cells?
    ///
    /// # Errors
    /// A [`PairViolation`]: the peer is to be removed.
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
        // All peers share the cells: others may have read theirs, of which nobody has asked since.
        for index in 0..self.present.len() {
            // What is wrong with another peer is found by its own next use.
            let _ = self.make_room(self.present[index]);
        }
        let (has_slots, has_cell) = self.room_now(row, slots, total);
        Ok(has_slots && has_cell)
    }

    /// Are there as many slots as are needed, and a cell if there are none, as far as is known?
    fn room_now(&mut self, row: u32, slots: Option<u64>, total: u64) -> (bool, bool) {
        let Self { peers, cells, .. } = self;
        let Some(Some(peer)) = peers.get_mut(row as usize) else { return (false, false) };
        let outbox = &mut peer.outbox;
        let has_cell = slots.is_some() || outbox.may_have_cell(total, cells);
        (outbox.has_slots(slots.unwrap_or(1)), has_cell)
    }

    /// The row of the pair that had something last.
    #[must_use]
    pub fn last_found(&self) -> u32 {
        self.watch.current_row()
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
                    self.announce_to(other);
                }
            }
        }
        is_ending
    }

    // Receiving.

    /// The row of a pair that has something at its head, if there is one. Takes no more than
    /// [`BURST_MAX`](super::BURST_MAX) slots in a row from one pair while others have something.
    #[inline(always)]
    pub fn poll(&mut self) -> Option<u32> {
        loop {
            if let Some((head, _)) = self.watch.current(self.polls) {
                return Some(head.row());
            }
            match self.turn_to_another(Haste::Once) {
                Turn::Found => {}
                Turn::Nobody => return None,
                Turn::Strange(row) => return Some(row),
            }
        }
    }

    /// Is there a place for every peer among those that are watched?
    #[inline(always)]
    fn can_watch_all(&self) -> bool {
        self.present.len() <= WATCHED_MAX
    }

    /// Whoever sets a bit takes the line of all bits away for as long as a message needs: who polls again and
    /// again finds the message itself meanwhile, unless there are peers that are not watched.
    #[inline(always)]
    fn looks_for_bits(&self, haste: Haste) -> bool {
        match (haste, self.can_watch_all()) {
            (Haste::Once, _) => true,
            (Haste::Fast, true) => self.polls.is_multiple_of(BITS_EVERY),
            (Haste::Fast, false) => self.polls.is_multiple_of(BITS_OFTEN),
            (Haste::Slow, true) => self.polls.is_multiple_of(BITS_EVERY / 8),
            (Haste::Slow, false) => true,
        }
    }

    /// Turns to another pair that has something at its head.
    #[inline(always)]
    fn turn_to_another(&mut self, haste: Haste) -> Turn {
        let has_bits = self.looks_for_bits(haste) && self.activity.summary().load(Relaxed) != 0;
        let turn = if has_bits || self.is_busy || self.must_yield || !self.queue.is_empty() {
            self.turn_in_order()
        } else {
            let groups = match haste {
                Haste::Once => GROUPS_ONCE,
                Haste::Fast | Haste::Slow => usize::MAX,
            };
            Turn::found(self.watch.turn_to_next(groups, self.polls))
        };
        if turn == Turn::Nobody {
            self.polls += 1;
            if self.polls.is_multiple_of(VISIT_EVERY) {
                self.look_around();
                if !self.queue.is_empty() {
                    return self.turn_in_order();
                }
            }
        } else {
            // Those who always have something are not to keep the others from being looked at.
            self.turns = self.turns.wrapping_add(1);
            self.is_busy |= self.watch.has_found() || self.turns.is_multiple_of(TURNS_MAX);
        }
        turn
    }

    /// Those who are watched and those who are named by bits, everybody before anybody is again (but whoever
    /// is both may have a second turn).
    #[inline(never)]
    fn turn_in_order(&mut self) -> Turn {
        for _ in 0..2 {
            // Before the bits: those come later than what they stand for.
            if self.watch.turn_in_round(self.polls) {
                return Turn::Found;
            }
            let mut left = match self.queue_left.take() {
                Some(left) => left,
                None => {
                    self.collect();
                    self.queue.len()
                }
            };
            while left > 0 {
                left -= 1;
                match self.turn_to_queued() {
                    Turn::Nobody => {}
                    turn => {
                        self.queue_left = Some(left);
                        return turn;
                    }
                }
            }
            self.watch.begin_round();
            self.is_busy = false;
            self.keep_found();
            if self.must_yield {
                // Those who wait for this very processor are to have their turn, too: the others would
                // fill their rings again and again meanwhile.
                self.must_yield = false;
                self.kernel.yield_now();
            }
        }
        Turn::Nobody
    }

    /// What is done now and then, when there is nothing else.
    #[cold]
    #[inline(never)]
    fn look_around(&mut self) {
        if self.polls.is_multiple_of(IDLE_POLLS) {
            self.tidy_up();
        }
        self.visit_next();
    }

    /// Publishes cursors and counters, and looks at pairs that cool and are not watched.
    fn tidy_up(&mut self) {
        self.memory.cpu().store(self.kernel.cpu(), Relaxed);
        self.publish_traffic();
        self.publish_cursors();
        self.publish_counters();
        self.keep_found();
        while let Some(row) = self.watch.next_idle(self.polls) {
            self.cool(row);
        }
        for index in 0..self.cooling.len() {
            let row = self.cooling[index];
            if self.watch.place(row).is_none() && self.is_ready(row) {
                self.enqueue(row);
            }
        }
    }

    /// Looks at one pair, of all in turn, as if a bit had named it. For those in whose sender somebody was
    /// stopped between a stamp and its bit; and since what nobody has touched for a millisecond is in no
    /// cache on a busy machine, the code among it: the next message would come ten times as late.
    fn visit_next(&mut self) {
        self.visited = if self.visited + 1 < self.present.len() { self.visited + 1 } else { 0 };
        if let Some(&row) = self.present.get(self.visited) {
            if let Some(peer) = self.peer(row) {
                peer.inbox.keep_warm();
                peer.outbox.keep_warm();
            }
            match self.watch.place(row) {
                Some(place) => self.watch.visit(place),
                None => self.enqueue(row),
            }
        }
        // Where bits are needed, the way of a message that a bit names is gone, too.
        self.is_busy |= !self.can_watch_all();
    }

    /// Makes those hot who had a message and were not.
    fn keep_found(&mut self) {
        while let Some(found) = self.watch.next_found(self.polls) {
            if let Some(left) = found.left {
                self.cool(left);
                // Nobody looks at it any more, and its last message may have no bit.
                self.enqueue(left);
            }
            // Polls find nothing of a peer that needs this very processor: it announces its messages, and
            // a sleep needs no barrier for them.
            if self.is_here(found.row) {
                self.enqueue(found.row);
                continue;
            }
            self.cooling.retain(|&other| other != found.row);
            if let Some(peer) = self.peer_mut(found.row) {
                peer.inbox.heat = Heat::Hot;
                peer.inbox.set_state(PairState::Hot);
            }
        }
    }

    fn is_ready(&self, row: u32) -> bool {
        self.peer(row).is_some_and(|peer| peer.inbox.is_ready() && !peer.inbox.is_held)
    }

    /// Where the pair of `row` stands.
    fn head(&self, row: u32) -> Head {
        let head = self.peer(row).and_then(|peer| Head::of(&peer.inbox));
        head.unwrap_or_else(|| self.watch.nobody())
    }

    /// Has the head of a pair, if it is watched, stand where its inbox stands.
    fn refresh_head(&mut self, row: u32) {
        let head = self.head(row);
        self.watch.renew(row, head);
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

    /// Turns to the next of those whom bits name, if it has something.
    fn turn_to_queued(&mut self) -> Turn {
        let Some(row) = self.queue.pop_front() else { return Turn::Nobody };
        let Some(peer) = self.peer_mut(row) else { return Turn::Nobody };
        peer.inbox.is_queued = false;
        if peer.inbox.is_held {
            return Turn::Nobody;
        }
        if peer.inbox.find_ring().is_err() {
            self.enqueue(row);
            return Turn::Strange(row);
        }
        if !peer.inbox.is_ready() || peer.inbox.heat == Heat::Hot {
            return Turn::Nobody;
        }
        let place = match self.watch.place(row) {
            Some(place) => place,
            None => {
                let head = self.head(row);
                self.watch.seat(row, head)
            }
        };
        if place == GUEST {
            // There may be more than one burst takes, and no bit for it.
            self.enqueue(row);
        }
        self.watch.turn_to(place, self.polls);
        Turn::Found
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

    /// Takes the next message, if there is one, it fits a slot and `target`, its pair is open, and it is
    /// `wanted`. Nothing else is looked at meanwhile: this is the way of most messages.
    #[inline(always)]
    pub fn take_inline(
        &mut self,
        haste: impl Fn() -> Haste,
        wanted: &Wanted,
        target: &mut [u8],
    ) -> Short {
        // Once more around for a pair that was found, not to a copy of what follows: that would be code
        // which nothing has run for as long as that pair was silent.
        loop {
            if let Some((head, below)) = self.watch.current(self.polls) {
                let row = head.row();
                let Some(Some(peer)) = self.peers.get_mut(row as usize) else {
                    return Short::Other(row);
                };
                let inbox = &mut peer.inbox;
                debug_assert!(head.is_at(inbox.next()), "the head is where its inbox is");
                let Some(message) = inbox.short_arrival(head.slot(), below, wanted.space) else {
                    return Short::Other(row);
                };
                let Inline { tag, immediate, bytes } = message;
                let source = inbox.source();
                if bytes > target.len() || !wanted.takes(source, tag) {
                    return Short::Other(row);
                }
                if inbox.is_published() {
                    self.dirty[row as usize / 64] |= 1 << (row % 64);
                }
                let is_due = inbox.copy_short_out(head.slot(), &message, target);
                head.step(inbox.next());
                if is_due {
                    self.publish(row, false);
                }
                return Short::Taken { source, tag, immediate, bytes };
            }
            match self.turn_to_another(haste()) {
                Turn::Found => {}
                Turn::Nobody => return Short::Nothing,
                Turn::Strange(row) => return Short::Other(row),
            }
        }
    }

    /// The same, for a message at the head of the pair of `row` that takes several slots, or lies in a cell whole:
    /// `prepare` is told its length, and returns where it goes. [`Short::Other`] if there is none.
    #[inline]
    pub fn take_whole<'a, S: Sink + ?Sized + 'a>(
        &mut self,
        row: u32,
        wanted: &Wanted,
        prepare: impl FnOnce(usize) -> Option<&'a mut S>,
    ) -> Short {
        let Some(peer) = self.peer(row) else { return Short::Other(row) };
        let source = peer.inbox.source();
        // What is wrong with it is told to whoever asks for the arrival. It is looked at where it is: a copy would have
        // to wait for what was just written.
        let found = peer.inbox.arrival();
        let Ok(Some(arrival)) = &found else { return Short::Other(row) };
        let Envelope { tag, immediate, .. } = arrival.envelope;
        let bytes = arrival.bytes;
        if !arrival.is_whole()
            || arrival.envelope != (Envelope { immediate, ..Envelope::numbered(wanted.space, tag) })
            || source == CLOSED
            || !wanted.takes(source, tag)
        {
            return Short::Other(row);
        }
        let Some(target) = prepare(bytes) else { return Short::Other(row) };
        peer.inbox.copy(arrival, 0, target);
        self.pass(row, arrival);
        Short::Taken { source, tag, immediate, bytes }
    }

    /// What lies at the head of the pair of `row`, which [`Endpoint::poll`] has found. `None` if there is
    /// nothing to be received after all.
    ///
    /// # Errors
    /// A [`PairViolation`]: the peer is to be removed.
    #[inline(always)]
    pub fn arrival(&mut self, row: u32) -> Result<Option<Arrival>, PairViolation> {
        let Some(peer) = self.peer(row) else { return Ok(None) };
        let found = peer.inbox.arrival();
        if matches!(found, Ok(None)) { self.end_ring(row) } else { found }
    }

    /// Passes the end of a pair's ring, and says so at once: its sender wants it back.
    #[cold]
    fn end_ring(&mut self, row: u32) -> Result<Option<Arrival>, PairViolation> {
        let Some(peer) = self.peer_mut(row) else { return Ok(None) };
        if !peer.inbox.find_ring()? || !peer.inbox.is_ready() {
            return Ok(None);
        }
        peer.inbox.pass_end();
        self.watch.remove(row);
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

    /// Copies an arrival to where the bytes of its message from `at` on go, as far as there is room.
    /// Returns the number of bytes copied.
    #[inline(always)]
    pub fn copy(
        &self,
        row: u32,
        arrival: &Arrival,
        at: usize,
        sink: &mut (impl Sink + ?Sized),
    ) -> usize {
        self.peer(row).map_or(0, |peer| peer.inbox.copy(arrival, at, sink))
    }

    /// Is done with an arrival.
    #[inline(always)]
    pub fn pass(&mut self, row: u32, arrival: &Arrival) {
        let Some(peer) = self.peer_mut(row) else { return };
        debug_assert!(!peer.inbox.is_held, "what is held is released first");
        let is_due = peer.inbox.pass(arrival);
        let position = peer.inbox.next();
        let head = self.watch.current_head();
        if head.row() == row {
            head.go_to(position);
        } else {
            self.refresh_head(row);
        }
        self.dirty[row as usize / 64] |= 1 << (row % 64);
        if is_due {
            self.publish(row, false);
        }
    }

    /// Stores a pair's cursor, and wakes a sender that waits for it, if it `looks`, or has made much room.
    #[inline(never)]
    fn publish(&mut self, row: u32, looks: bool) {
        let Self { peers, kernel, memory, .. } = self;
        let Some(Some(peer)) = peers.get_mut(row as usize) else { return };
        peer.inbox.publish_traffic(memory, row);
        if let Some(mode) = peer.inbox.publish_cursor(looks) {
            peer.outbox.wake(row, mode, kernel);
            memory.count(EndpointCounter::Wakes);
            let cpu = kernel.cpu();
            memory.cpu().store(cpu, Relaxed);
            self.must_yield |= peer.inbox.sender_cpu() == cpu;
        }
    }

    /// Stores all cursors that have moved.
    pub fn publish_cursors(&mut self) {
        for index in 0u32.. {
            let Some(word) = self.dirty.get_mut(index as usize) else { break };
            let mut bits = core::mem::take(word);
            while bits != 0 {
                self.publish(64 * index + bits.trailing_zeros(), true);
                bits &= bits - 1;
            }
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
        // ORDER(P13): pairs with P12; the doorbell is read before looking again, so that whatever rings it in
        // between ends the sleep at once.
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
            let capped = self.kernel.wait_on(doorbell, bell, cap_ns);
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
        while let Some(row) = self.watch.next_hot() {
            self.cool(row);
        }
        self.watch.dismiss_guest();
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

/// How somebody polls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Haste {
    /// Once, to know whether there is anything: all hot pairs and all bits are looked at.
    Once,
    /// Again and again: all watched pairs are looked at in each poll, the bits in some.
    Fast,
    /// The same, with time between polls: the bits are looked at more often.
    Slow,
}

/// What came of looking for another pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Turn {
    /// There is none.
    Nobody,
    /// It is its turn.
    Found,
    /// The pair of this row has a ring that cannot be: nothing there is looked at, and whoever asks for its
    /// arrival is told.
    Strange(u32),
}

impl Turn {
    #[inline(always)]
    fn found(is_found: bool) -> Self {
        if is_found { Self::Found } else { Self::Nobody }
    }
}

/// What came of [`Endpoint::take_inline`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Short {
    /// There is no message.
    Nothing,
    /// A message was taken.
    Taken {
        /// Whose: its row and its generation, as [bits](Wanted::source_bits).
        source: u64,
        /// Its tag, or its number.
        tag: u64,
        /// Its immediate.
        immediate: Option<u64>,
        /// Its length.
        bytes: usize,
    },
    /// The pair of this row has something at its head that is not to be taken so.
    Other(u32),
}
