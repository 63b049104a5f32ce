//! An endpoint's data thread: all its pairs, and the order in which they are polled.
//!
//! | file | contents |
//! |---|---|
//! | `mod.rs` | the endpoint's state, its peers, its counters |
//! | `peers.rs` | which row has which peer |
//! | `parts.rs` | what an endpoint and its peers consist of |
//! | `sending.rs` | sending: slots, cells, rings, announcements |
//! | `turns.rs` | which pair has the turn: polling, bits, hot and cold |
//! | `receiving.rs` | taking the message at the head of a pair; cursors |
//! | `grants.rs` | messages that stay in their sender's heap while they are read |
//! | `rendezvous.rs` | large messages: offers, and copies from both ends |
//! | `exposures.rs` | memory that peers copy to and from by themselves |
//! | `sleep.rs` | sleeping, and waiting for room |

use alloc::collections::VecDeque;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;

use corewire_layout::counters::{EndpointCounter, PeerCounter};
use corewire_layout::endpoint::{ACTIVE_WORDS, EndpointSizes};
use corewire_layout::segment::FenceMode;

use super::cells::Cells;
use super::exposures::Exposures;
use super::heap::Heap;
use super::inbox::{CLOSED, Inbox};
use super::outbox::Outbox;
use super::rendezvous::Offers;
use super::watch::Watch;
use super::words::{Activity, EndpointMemory};
use crate::doorbell::Sleeper;
use crate::message::{Home, Wanted};
use crate::sync::Ordering::Relaxed;
use crate::{Host, Kernel};

mod exposures;
mod grants;
mod parts;
mod peers;
mod receiving;
mod rendezvous;
mod sending;
mod sleep;
mod turns;

use self::peers::{Peer, Peers};
pub use parts::{EndpointParts, EndpointShared, PeerParts};
pub use receiving::Short;
pub use turns::Polling;

/// An endpoint's data thread.
#[derive(Debug)]
pub struct Endpoint<H> {
    peers: Peers,
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
    /// The same of messages that were taken in place.
    taken_in_place: u64,
    activity: Activity,
    shared: Arc<EndpointShared>,
    /// Rows to check, such as those named by bits.
    queue: VecDeque<u32>,
    /// Rows that are no longer hot, which their senders may not know yet.
    cooling: Vec<u32>,
    /// One bit for each row whose cursor is to be published when there is time.
    dirty: [u64; ACTIVE_WORDS],
    cells: Cells,
    heap: Heap,
    /// Number of links with peers that granted something.
    links: u64,
    /// By row: where messages are released, also those of the row's earlier peers.
    homes: Vec<Option<Weak<dyn Home>>>,
    offers: Offers,
    exposures: Exposures,
    /// Rings that no pair has.
    free_rings: VecDeque<u64>,
    memory: EndpointMemory,
    fence_mode: FenceMode,
    sleeper: Sleeper,
    /// Number of waits for room, and whether it waits now.
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
        // The endpoint has not run on any processor yet.
        memory.cpu().store(u32::MAX, Relaxed);
        Self {
            peers: Peers::new(peers),
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
            taken_in_place: 0,
            activity,
            shared,
            queue: VecDeque::new(),
            cooling: Vec::new(),
            dirty: [0; ACTIVE_WORDS],
            cells: Cells::new(memory.cells(), sizes.cells(), sizes.cell_bytes()),
            heap: Heap::new(memory.heap()),
            links: 0,
            homes: (0..peers).map(|_| None).collect(),
            offers: Offers::new(memory.clone()),
            exposures: Exposures::new(memory.clone()),
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
            EndpointCounter::InPlace => self.taken_in_place,
            _ => 0,
        };
        self.memory.counter(counter).load(Relaxed) + private
    }

    /// Adds one to a counter.
    pub fn count(&self, counter: EndpointCounter) {
        self.memory.count(counter);
    }

    /// Stores a counter of the peer of `row` whose value only the caller knows.
    pub fn set_peer_counter(&self, row: u32, counter: PeerCounter, value: u64) {
        self.memory.peer_counter(row, counter).store(value, Relaxed);
    }

    /// Stores what was sent and received in the counters that observers read.
    pub fn publish_traffic(&mut self) {
        self.publish_counters();
        let Self { peers, memory, present, .. } = self;
        for &row in &*present {
            if let Some(peer) = peers.get_mut(row) {
                peer.inbox.publish_traffic(memory, row);
                peer.outbox.publish_traffic(memory, row);
            }
        }
    }

    /// Stores the counts that are kept privately so that a message touches one line less.
    fn publish_counters(&mut self) {
        let private = [
            (EndpointCounter::Announcements, &mut self.announced),
            (EndpointCounter::Wakes, &mut self.woken),
            (EndpointCounter::InPlace, &mut self.taken_in_place),
        ];
        for (counter, count) in private {
            if *count > 0 {
                let counter = self.memory.counter(counter);
                counter.store(counter.load(Relaxed).wrapping_add(*count), Relaxed);
                *count = 0;
            }
        }
    }

    /// Adds a peer in `row`, which was prepared by [`Endpoint::reset_row`]. False, and nothing has changed, if the row has
    /// a peer, or there is no such row.
    #[must_use]
    pub fn add_peer(&mut self, row: u32, parts: PeerParts) -> bool {
        let PeerParts { memory, activity, row_there, fence_mode, trusted } = parts;
        let is_fenced = self.fence_mode == FenceMode::Fenced || fence_mode == FenceMode::Fenced;
        let own = &self.memory;
        let is_added = self.peers.insert(row, || {
            let outbox = Outbox::new(own, row, &memory, activity, row_there, is_fenced);
            let inbox = Inbox::new(own, row, memory, row_there, trusted);
            Peer { inbox, outbox, granted: None }
        });
        if !is_added {
            return false;
        }
        self.present.push(row);
        // A thread that polls or sleeps never allocates.
        let peers = self.present.len();
        self.queue.reserve(peers.saturating_sub(self.queue.len()));
        self.cooling.reserve(peers.saturating_sub(self.cooling.len()));
        // It may have sent messages before it was known here.
        self.enqueue(row);
        true
    }

    /// Resets a row's shared words to their initial state, before the row's next peer knows of it.
    pub fn reset_row(memory: &EndpointMemory, row: u32) {
        Inbox::reset(memory, row);
    }

    /// Removes the peer of `row`. Its messages have all been taken, or are not wanted, and it was
    /// [dismissed](Self::dismiss).
    pub fn remove_peer(&mut self, row: u32) {
        let Some(mut peer) = self.peers.remove(row, &mut self.watch) else { return };
        peer.inbox.publish_traffic(&self.memory, row);
        peer.outbox.publish_traffic(&self.memory, row);
        self.free_rings.extend(peer.outbox.close(&mut self.cells));
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
        self.peers.get(row)
    }

    #[inline(always)]
    fn peer_mut(&mut self, row: u32) -> Option<&mut Peer> {
        self.peers.get_mut(row)
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

    /// Did the peer of `row` run on this processor when it last waited, or woke a peer? Then it cannot make room
    /// while this thread runs.
    #[must_use]
    pub fn is_here(&self, row: u32) -> bool {
        self.peer(row).is_some_and(|peer| peer.inbox.sender_cpu() == self.host.kernel().cpu())
    }
}
