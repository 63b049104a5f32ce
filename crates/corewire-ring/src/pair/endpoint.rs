//! An endpoint's data thread: all its pairs, and the order in which they are polled.

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
use crate::doorbell::{self, Bell, Bells, Notices, Sleeper, Slept};
use crate::message::{Arrival, Envelope, Sink, Source, Wanted};
use crate::region::Word32;
use crate::sync::Ordering::Relaxed;
use crate::{Host, Kernel, Trusted, order};

/// What an endpoint's data thread shares with the control thread of its process. The notices lie in private memory.
/// They ring the same doorbell as peers do, so that a sleep waits on one word, which costs the kernel 0.7 of a wait
/// on two. A hostile peer that resets the doorbell can delay a notice, like any message, until the sleep's cap.
pub struct EndpointShared {
    doorbell: Word32,
    notices: Notices,
}

impl EndpointShared {
    /// Without notices, for the endpoint of this activity page.
    #[must_use]
    pub fn new(activity: &Activity) -> Self {
        Self { doorbell: activity.doorbell().clone(), notices: Notices::default() }
    }

    /// Gives the data thread notices, bits of the caller's choice. Wakes it if it waits.
    pub fn notify<K: Kernel>(&self, notices: u32, kernel: &K) {
        self.notices.set(notices);
        doorbell::ring(&self.doorbell, 1, kernel);
    }

    /// Tells the data thread, by `notices`, that this is a forked child. Makes only stores.
    pub fn mark(&self, notices: u32) {
        self.notices.mark(notices);
    }

    /// The notices given so far.
    #[inline(always)]
    #[must_use]
    pub fn notices(&self) -> u32 {
        self.notices.get()
    }

    /// Clears notices.
    pub fn clear(&self, notices: u32) {
        self.notices.clear(notices);
    }
}

impl fmt::Debug for EndpointShared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EndpointShared").finish_non_exhaustive()
    }
}

/// The parts of an endpoint.
#[derive(Debug)]
pub struct EndpointParts {
    /// Its segment, writable, with its header written.
    pub memory: EndpointMemory,
    /// Its activity page.
    pub activity: Activity,
    /// Whether its process can be reached by `membarrier`, and can call it.
    pub fence_mode: FenceMode,
    /// What it shares with its control thread.
    pub shared: Arc<EndpointShared>,
}

/// The parts of a peer.
#[derive(Debug)]
pub struct PeerParts {
    /// Its segment, read-only, with its header checked.
    pub memory: EndpointMemory,
    /// Its activity page.
    pub activity: Activity,
    /// This endpoint's row in the peer's segment, checked to be one of its rows.
    pub row_there: u32,
    /// Whether its process can be reached by `membarrier`, and can call it.
    pub fence_mode: FenceMode,
    /// A promise that the peer may crash, but does not lie about its memory.
    pub trusted: Trusted,
}

#[derive(Debug)]
struct Peer {
    inbox: Inbox,
    outbox: Outbox,
}

/// An endpoint's data thread.
#[derive(Debug)]
pub struct Endpoint<H> {
    peers: Vec<Option<Box<Peer>>>,
    /// The pairs that are polled.
    watch: Watch,
    /// All pairs are checked in turn, for at least one round.
    is_busy: bool,
    /// How many pairs named by bits are left in this round; `None` before the bits are collected.
    queue_left: Option<usize>,
    /// Turns so far.
    turns: u32,
    /// Polls that found nothing.
    polls: u64,
    /// A peer was woken that needs this processor to run.
    must_yield: bool,
    /// The rows that have a peer, and the index of the last one visited.
    present: Vec<u32>,
    visited: usize,
    /// Announcements and wake-ups not yet counted in the segment.
    announced: u64,
    woken: u64,
    activity: Activity,
    shared: Arc<EndpointShared>,
    /// Rows to check, such as those named by bits.
    queue: VecDeque<u32>,
    /// Rows that are no longer hot, which their senders may not know yet.
    cooling: Vec<u32>,
    /// One bit for each row whose cursor is to be published when there is time.
    dirty: [u64; ACTIVE_WORDS],
    cells: Cells,
    /// Rings that no pair has.
    free_rings: VecDeque<u64>,
    memory: EndpointMemory,
    fence_mode: FenceMode,
    sleeper: Sleeper,
    /// How often it has waited for room, and whether it does now.
    blocked_times: u32,
    is_blocked: bool,
    host: H,
}

impl<H: Host> Endpoint<H> {
    /// An endpoint without peers.
    #[must_use]
    pub fn new(parts: EndpointParts, host: H) -> Self {
        let EndpointParts { memory, activity, fence_mode, shared } = parts;
        let sizes = *memory.sizes();
        let peers = usize::try_from(sizes.peers_max()).unwrap_or(usize::MAX);
        // Not on any processor yet.
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
            sleeper: Sleeper::new(0),
            blocked_times: 0,
            is_blocked: false,
            host,
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

    /// Has the control thread given a notice?
    #[inline(always)]
    #[must_use]
    pub fn has_notice(&self) -> bool {
        self.shared.notices() != 0
    }

    /// Limits each sleep to `cap_ns`. Default: 100 ms.
    pub fn set_sleep_cap(&mut self, cap_ns: u64) {
        self.sleeper.set_cap(cap_ns);
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

    /// Adds one to a counter.
    pub fn count(&self, counter: EndpointCounter) {
        self.memory.count(counter);
    }

    // Peers.

    /// Adds a peer in `row`, which is free and was prepared by [`Endpoint::reset_row`].
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
        // It may have sent messages before it was known here.
        self.enqueue(row);
    }

    /// Resets a row's shared words to their initial state, before the row's next peer knows of it.
    pub fn reset_row(memory: &EndpointMemory, row: u32) {
        Inbox::reset(memory, row);
    }

    /// Removes the peer of `row`, all of whose messages have been taken or are not wanted.
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

    /// Both rings of a pair, for code that measures their cost. The endpoint does not announce messages sent through
    /// them directly, and must not be polled for this pair afterwards.
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

    /// Sets the generation by which the caller knows the peer of `row`, while messages to and from it may take the
    /// short path; 0 if they may not.
    pub fn open(&mut self, row: u32, generation: u32) {
        if let Some(peer) = self.peer_mut(row) {
            let source = Wanted::source_bits(row, generation);
            peer.inbox.open(if generation == 0 { CLOSED } else { source });
        }
    }

    /// Is this [source](Wanted::source_bits) the one that [`Endpoint::open`] last set for its row?
    #[inline(always)]
    #[must_use]
    pub fn is_open(&self, source: u64) -> bool {
        self.peer(Wanted::row_of(source)).is_some_and(|peer| peer.inbox.source() == source)
    }

    // Sending.

    /// Sends a message of at most 160 bytes to the peer of `row`. False if there is no room; nothing is done then.
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

    /// Selects the cells for such messages from now on: those that were used last, or all in turn.
    pub fn take_recent_cells(&mut self, takes_recent: bool) {
        self.cells.take_recent(takes_recent);
    }

    /// Sends the next fragment of a message, as long as there is room for; `sent` bytes precede it. Returns its
    /// length in bytes: 0 if there is no room.
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

    /// Announces a message to the peer of `row`. The slow half of every send.
    #[cold]
    #[inline(never)]
    fn announce_to(&mut self, row: u32) {
        let Self { peers, host, memory, announced, woken, .. } = self;
        if let Some(Some(peer)) = peers.get_mut(row as usize)
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

    /// Stores what was sent and received in the counters that observers read.
    pub fn publish_traffic(&mut self) {
        let Self { peers, memory, present, .. } = self;
        for &row in &*present {
            if let Some(Some(peer)) = peers.get_mut(row as usize) {
                peer.inbox.publish_traffic(memory, row);
                peer.outbox.publish_traffic(memory, row);
            }
        }
    }

    /// Stores a counter of the peer of `row` whose value only the caller knows.
    pub fn set_peer_counter(&self, row: u32, counter: PeerCounter, value: u64) {
        self.memory.peer_counter(row, counter).store(value, Relaxed);
    }

    /// Stores the counts that are kept privately so that a message touches one line less.
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

    /// Reads the cursor of the peer of `row`, and takes back the room that it has freed.
    ///
    /// # Errors
    /// A [`PairViolation`]: the caller must remove the peer.
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
        // All peers share the cells: others may have freed theirs since their cursors were last read.
        for index in 0..self.present.len() {
            // A violation by another peer is found when that pair is next used.
            let _ = self.make_room(self.present[index]);
        }
        let (has_slots, has_cell) = self.room_now(row, slots, total);
        Ok(has_slots && has_cell)
    }

    /// Are there enough slots, and a cell if `slots` is `None`, as far as is known?
    fn room_now(&mut self, row: u32, slots: Option<u64>, total: u64) -> (bool, bool) {
        let Self { peers, cells, .. } = self;
        let Some(Some(peer)) = peers.get_mut(row as usize) else { return (false, false) };
        let outbox = &mut peer.outbox;
        let has_cell = slots.is_some() || outbox.may_have_cell(total, cells);
        (outbox.has_slots(slots.unwrap_or(1)), has_cell)
    }

    /// The row of the pair that last had a message.
    #[must_use]
    pub fn last_found(&self) -> u32 {
        self.watch.current_row()
    }

    /// Did the peer of `row` run on this processor when it last waited, or woke a peer? Then it cannot make room
    /// while this thread runs.
    #[must_use]
    pub fn is_here(&self, row: u32) -> bool {
        self.peer(row).is_some_and(|peer| peer.inbox.sender_cpu() == self.host.kernel().cpu())
    }

    /// Has the pair towards the peer of `row` a ring?
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

    /// Begins to take a ring back for `row`, from a peer that has read everything. It is free once that peer has read
    /// its end. True if a ring is free or being taken back. Errors are left for the pair's next use.
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

    /// The row of a pair that has something at its head, if there is one. Takes at most
    /// [`BURST_MAX`](super::BURST_MAX) consecutive slots from one pair while others have messages.
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

    /// Is there a watched place for every peer?
    #[inline(always)]
    fn can_watch_all(&self) -> bool {
        self.present.len() <= WATCHED_MAX
    }

    /// A sender that sets a bit takes the line of all bits away for as long as a message needs. A receiver that polls
    /// repeatedly finds the message itself meanwhile, unless there are peers that are not watched.
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

    /// Gives the turn to another pair that has something at its head.
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
            // Pairs that always have messages must not keep the others from being checked.
            self.turns = self.turns.wrapping_add(1);
            self.is_busy |= self.watch.has_found() || self.turns.is_multiple_of(TURNS_MAX);
        }
        turn
    }

    /// Checks watched pairs and pairs named by bits, each once before any is checked again (but a pair that is both
    /// may have a second turn).
    #[inline(never)]
    fn turn_in_order(&mut self) -> Turn {
        for _ in 0..2 {
            // Before the bits, which are set later than the stamps they stand for.
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
                // Peers that need this processor must have their turn, too: otherwise the others fill their rings
                // again and again meanwhile.
                self.must_yield = false;
                self.host.kernel().yield_now();
            }
        }
        Turn::Nobody
    }

    /// Occasional work, when no pair has messages.
    #[cold]
    #[inline(never)]
    fn look_around(&mut self) {
        if self.polls.is_multiple_of(IDLE_POLLS) {
            self.tidy_up();
        }
        self.visit_next();
    }

    /// Publishes cursors and counters, and checks pairs that cool and are not watched.
    fn tidy_up(&mut self) {
        self.memory.cpu().store(self.host.kernel().cpu(), Relaxed);
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

    /// Checks the next of all pairs, in turn, as if a bit had named it. One reason: its sender may be stopped between
    /// a stamp and its bit. The other: on a busy machine, memory and code that were not touched for a millisecond are
    /// in no cache, and the next message would take ten times as long.
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
        // Where bits are needed, the code path of a message that a bit names is run, too.
        self.is_busy |= !self.can_watch_all();
    }

    /// Makes the pairs hot that had a message and were not hot.
    fn keep_found(&mut self) {
        while let Some(found) = self.watch.next_found(self.polls) {
            if let Some(left) = found.left {
                self.cool(left);
                // It is no longer polled, and its last message may have no bit.
                self.enqueue(left);
            }
            // Polls find nothing of a peer that needs this processor. Its pair stays cold: the peer announces its
            // messages, and a sleep needs no barrier for them.
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

    /// The head of the pair of `row`, as it is now.
    fn head(&self, row: u32) -> Head {
        let head = self.peer(row).and_then(|peer| Head::of(&peer.inbox));
        head.unwrap_or_else(|| self.watch.nobody())
    }

    /// Moves the head of a pair, if it is watched, to its inbox's current position.
    fn refresh_head(&mut self, row: u32) {
        let head = self.head(row);
        self.watch.renew(row, head);
    }

    /// Queues a pair to be checked.
    pub fn enqueue(&mut self, row: u32) {
        if let Some(peer) = self.peer_mut(row)
            && !peer.inbox.is_queued
        {
            peer.inbox.is_queued = true;
            self.queue.push_back(row);
        }
    }

    /// Leaves a pair's first message in place, and skips that pair until [`Endpoint::release`].
    pub fn hold(&mut self, row: u32) {
        if let Some(peer) = self.peer_mut(row) {
            peer.inbox.is_held = true;
            self.refresh_head(row);
        }
    }

    /// Resumes polling a pair.
    pub fn release(&mut self, row: u32) {
        if let Some(peer) = self.peer_mut(row) {
            peer.inbox.is_held = false;
            self.refresh_head(row);
        }
        self.enqueue(row);
    }

    /// Takes the next queued pair, and gives it the turn if it has a message.
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
            // There may be more messages than one burst takes, and no bit for them.
            self.enqueue(row);
        }
        self.watch.turn_to(place, self.polls);
        Turn::Found
    }

    /// Clears the set bits, and queues their rows.
    fn collect(&mut self) {
        // ORDER(P8): pairs with P7; a sender that sets a bit of a word after this finds the summary cleared.
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

    /// Makes a pair's sender announce its messages from now on. The sender may not see this at once.
    fn cool(&mut self, row: u32) {
        if let Some(peer) = self.peer_mut(row)
            && peer.inbox.heat == Heat::Hot
        {
            peer.inbox.heat = Heat::Cooling;
            peer.inbox.set_state(PairState::Cold);
            self.cooling.push(row);
        }
    }

    /// Takes the next message if it fits a slot and `target`, its pair is open, and `wanted` takes it. Checks nothing
    /// else: this is the path of most messages.
    #[inline(always)]
    pub fn take_inline(
        &mut self,
        haste: impl Fn() -> Haste,
        wanted: &Wanted,
        target: &mut [u8],
    ) -> Short {
        // A found pair goes through the loop again, not to a copy of the code below: that code would not have run for
        // as long as the pair was silent.
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

    /// The same, for a whole message at the head of the pair of `row` that takes several slots or lies in a cell:
    /// `prepare` gets its length and returns its target, or `None`, which yields [`Short::Other`].
    #[inline]
    pub fn take_whole<'a, S: Sink + ?Sized + 'a>(
        &mut self,
        row: u32,
        wanted: &Wanted,
        prepare: impl FnOnce(usize) -> Option<&'a mut S>,
    ) -> Short {
        let Some(peer) = self.peer(row) else { return Short::Other(row) };
        let source = peer.inbox.source();
        // The call that asks for the arrival reports a violation. The arrival is read in place: a copy would have to
        // wait for what was just written.
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

    /// What lies at the head of the pair of `row`, which [`Endpoint::poll`] has found. `None` if there is nothing to
    /// receive after all.
    ///
    /// # Errors
    /// A [`PairViolation`]: the caller must remove the peer.
    #[inline(always)]
    pub fn arrival(&mut self, row: u32) -> Result<Option<Arrival>, PairViolation> {
        let Some(peer) = self.peer(row) else { return Ok(None) };
        let found = peer.inbox.arrival();
        if matches!(found, Ok(None)) { self.end_ring(row) } else { found }
    }

    /// Moves past the end of a pair's ring, and publishes that at once: the sender waits for the ring.
    #[cold]
    fn end_ring(&mut self, row: u32) -> Result<Option<Arrival>, PairViolation> {
        let Some(peer) = self.peer_mut(row) else { return Ok(None) };
        if !peer.inbox.find_ring()? || !peer.inbox.is_ready() {
            return Ok(None);
        }
        peer.inbox.pass_end();
        self.watch.remove(row);
        // Before the cursor is stored: only then does the sender take another ring, and it must announce that.
        self.cool(row);
        self.publish(row, true);
        Ok(None)
    }

    /// Is the pair of `row` in the middle of a message, whose next fragment follows?
    #[must_use]
    pub fn is_within(&self, row: u32) -> bool {
        self.peer(row).is_some_and(|peer| peer.inbox.is_within())
    }

    /// Has the pair of `row` something at its head, held or not?
    ///
    /// # Errors
    /// A [`PairViolation`]: the caller must remove the peer.
    pub fn has_arrival(&mut self, row: u32) -> Result<bool, PairViolation> {
        let Some(peer) = self.peer_mut(row) else { return Ok(false) };
        Ok(peer.inbox.find_ring()? && peer.inbox.is_ready())
    }

    /// Copies an arrival into `sink`, where the message's bytes from `at` on go, as far as there is room. Returns the
    /// number of bytes copied.
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

    /// Moves past an arrival.
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

    /// Stores a pair's cursor. Wakes a sender that waits for it, if `looks` is set or much room was made.
    #[inline(never)]
    fn publish(&mut self, row: u32, looks: bool) {
        let Self { peers, host, memory, .. } = self;
        let Some(Some(peer)) = peers.get_mut(row as usize) else { return };
        peer.inbox.publish_traffic(memory, row);
        if let Some(mode) = peer.inbox.publish_cursor(looks) {
            peer.outbox.wake(row, mode, host);
            memory.count(EndpointCounter::Wakes);
            let cpu = host.kernel().cpu();
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

    /// Sleeps until a message or room comes, a notice is given, or `limit_ns` or the cap has passed; may return
    /// early. `has_room` makes room and says whether what the caller has to send fits now; `None` if it has nothing
    /// to send. Counts what only the cap found.
    pub fn sleep(
        &mut self,
        limit_ns: u64,
        mut has_room: Option<&mut dyn FnMut(&mut Self) -> bool>,
    ) {
        self.publish_cursors();
        let heard = doorbell::listen(self.activity.doorbell());
        if has_room.is_some() {
            self.block(SleepMode::Futex);
        }
        let is_sure = self.announce(SleepMode::Futex);
        let must_look = self.must_look(is_sure) || has_room.as_mut().is_some_and(|it| it(self));
        if !must_look {
            self.publish_counters();
            self.count(EndpointCounter::Sleeps);
            let bell = Bell { word: self.activity.doorbell(), heard };
            let bells = Bells { shared: Some(bell), own: None };
            let slept = self.sleeper.sleep(bells, limit_ns, is_sure, self.host.kernel());
            let is_found = slept != Slept::Woken && self.activity.summary().load(Relaxed) != 0;
            if self.sleeper.is_cap_find(slept, bells, is_found) {
                self.count(EndpointCounter::CapFinds);
            }
        }
        self.retract();
    }

    /// Announces that it is about to wait for its descriptor. Returns false, and retracts that, if there is work
    /// already.
    pub fn arm(&mut self, mut has_room: Option<&mut dyn FnMut(&mut Self) -> bool>) -> bool {
        self.publish_cursors();
        // From an earlier wait.
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

    /// Retracts an announcement.
    pub fn retract(&mut self) {
        self.sleeper.retract(&self.memory.sleeping());
        self.unblock();
    }

    /// Stops waiting for room.
    fn unblock(&mut self) {
        if self.is_blocked {
            self.is_blocked = false;
            self.memory.blocked().store(0, Relaxed);
        }
    }

    /// Publishes that it waits for room. The barrier that follows makes sure that every peer that makes room sees it.
    fn block(&mut self, mode: SleepMode) {
        self.is_blocked = true;
        self.blocked_times = self.blocked_times.wrapping_add(1);
        self.memory.cpu().store(self.host.kernel().cpu(), Relaxed);
        self.memory.blocked().store(blocked(self.blocked_times, mode), Relaxed);
    }

    /// Makes senders announce every later message, and makes the epoch odd, which they see then. False if the kernel
    /// could not guarantee that.
    fn announce(&mut self, mode: SleepMode) -> bool {
        while let Some(row) = self.watch.next_hot() {
            self.cool(row);
        }
        self.watch.dismiss_guest();
        let sleeping = self.memory.sleeping();
        self.sleeper.retract(&sleeping);
        self.memory.mode().store(mode as u32, Relaxed);
        self.sleeper.announce(&sleeping);
        // A peer that stores a stamp, bit or cursor later sees that the pair is cold, the epoch and its mode, and
        // whether this endpoint waits for room. A sender that already knows that it must announce its messages
        // fences after each bit.
        let is_fenced = self.cooling.is_empty();
        let wakers = if is_fenced { FenceMode::Fenced } else { self.fence_mode };
        doorbell::barrier(wakers, self.host.kernel())
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
            || self.shared.notices() != 0
    }
}

/// How a receiver polls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Haste {
    /// Once, to learn whether there is a message: checks all hot pairs and all bits.
    Once,
    /// Repeatedly: checks all watched pairs in each poll, and the bits in some.
    Fast,
    /// Repeatedly, with time between polls: checks the bits more often.
    Slow,
}

/// The result of looking for another pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Turn {
    /// No pair has a message.
    Nobody,
    /// A pair has the turn.
    Found,
    /// The pair of this row has an impossible ring. Nothing in it is read; a call that asks for its arrival gets the
    /// error.
    Strange(u32),
}

impl Turn {
    #[inline(always)]
    fn found(is_found: bool) -> Self {
        if is_found { Self::Found } else { Self::Nobody }
    }
}

/// The result of [`Endpoint::take_inline`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Short {
    /// There is no message.
    Nothing,
    /// A message was taken.
    Taken {
        /// Its sender's row and generation, as [bits](Wanted::source_bits).
        source: u64,
        /// Its tag, or its number.
        tag: u64,
        /// Its immediate.
        immediate: Option<u64>,
        /// Its length.
        bytes: usize,
    },
    /// The pair of this row has something at its head that cannot be taken this way.
    Other(u32),
}
