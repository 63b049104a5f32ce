//! The senders and receivers of a shared channel, and the head of its ring. One *host*, the process
//! that holds the channel's name, adds other processes. Each process removes itself when it leaves;
//! a dead process is removed by a process that it holds up.
//!
//! Proofs: `proof/models/tests/models/shared.rs`, `proof/kill/src/shared.rs`.

use alloc::sync::Arc;

use corewire_layout::counters::ControlCounter;
use corewire_layout::geometry::Geometry;
use corewire_layout::segment::{DoorState, SleepMode, generation_of, tenure};
use corewire_layout::slot::{RUN_SLOTS_MAX, ahead_of, is_claimed, owner_of, run_of};

use super::deaths::Deaths;
use super::words::{Door, RingWords, TableWords};
use crate::doorbell::{self, WAKE_ALL};
use crate::host::{Entrance, Party};
use crate::region::{Region, Rows, Slots};
use crate::sync::Ordering::Relaxed;
use crate::{Control, Host, fence_at, order};

/// The parts of a roster.
#[derive(Debug, Clone)]
pub struct RosterParts {
    /// The ring; writable for a sender.
    pub ring: Region,
    /// The table, writable.
    pub table: Region,
    /// The channel's sizes.
    pub geometry: Geometry,
}

/// One process's view of the channel's rows.
#[derive(Debug, Clone)]
pub struct Roster {
    pub(super) ring: RingWords,
    pub(super) table: TableWords,
    pub(super) rows: Rows,
    pub(super) slots: Slots,
    pub(super) geometry: Geometry,
    senders: Arc<Deaths>,
    receivers: Arc<Deaths>,
}

impl Roster {
    /// A view that knows of no deaths yet.
    ///
    /// # Panics
    /// If the segments are shorter than the geometry says; attach has checked that.
    #[must_use]
    pub fn new(parts: &RosterParts) -> Self {
        let RosterParts { ring, table, geometry } = parts;
        let count = |value: u64| u32::try_from(value).unwrap_or(u32::MAX);
        let receivers_max = count(geometry.receivers_max());
        let offset = usize::try_from(geometry.table_rows_offset()).expect("own geometry");
        let pages = table.part(offset, table.bytes() - offset).expect("own geometry");
        Self {
            rows: Rows::new(&pages, receivers_max),
            slots: Slots::new(ring, geometry),
            ring: RingWords::new(ring.clone()),
            table: TableWords::new(table.clone()),
            geometry: *geometry,
            senders: Arc::new(Deaths::new(count(geometry.senders_max()))),
            receivers: Arc::new(Deaths::new(receivers_max)),
        }
    }

    /// The channel's sizes.
    #[must_use]
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// The slots of the ring.
    #[must_use]
    pub fn slots(&self) -> &Slots {
        &self.slots
    }

    /// The words of the ring.
    #[must_use]
    pub fn ring_words(&self) -> &RingWords {
        &self.ring
    }

    /// The words of the table.
    #[must_use]
    pub fn table_words(&self) -> &TableWords {
        &self.table
    }

    fn deaths(&self, party: Party) -> &Deaths {
        match party {
            Party::Sender => &self.senders,
            Party::Receiver => &self.receivers,
        }
    }

    /// The door of a row.
    #[must_use]
    pub fn door(&self, party: Party, row: u32) -> Door<'_> {
        match party {
            Party::Sender => self.ring.door(row),
            Party::Receiver => self.table.door(row),
        }
    }

    pub(super) fn rows_max(&self, party: Party) -> u32 {
        let max = match party {
            Party::Sender => self.geometry.senders_max(),
            Party::Receiver => self.geometry.receivers_max(),
        };
        u32::try_from(max).unwrap_or(u32::MAX)
    }

    /// The rows that are held, by a living or a dead holder, with their state.
    pub fn held(&self, party: Party) -> impl Iterator<Item = (Entrance, DoorState)> + '_ {
        let rows = match party {
            Party::Sender => self.rows_max(party),
            Party::Receiver => self.table.rows_high().load(Relaxed).min(self.rows_max(party)),
        };
        (0..rows).filter_map(move |row| {
            let found = self.tenure(party, row);
            let state = state_of(found)?;
            (state != DoorState::Free)
                .then(|| (Entrance { row, generation: generation_of(found) }, state))
        })
    }

    /// Which generation holds the row, and in which state. Later loads return nothing older than
    /// this.
    #[inline]
    pub(super) fn tenure(&self, party: Party, row: u32) -> u64 {
        // ORDER(T2): pairs with T1; with a row's tenure its fields, its cursor, and the last stamps
        // of a holder that left are visible.
        self.door(party, row).tenure().load(order!(T2: Acquire))
    }

    /// Does the row still count for this holder?
    #[must_use]
    pub fn holds(&self, party: Party, who: Entrance) -> bool {
        self.tenure(party, who.row) == tenure(who.generation, DoorState::Joined)
    }

    /// Records the kernel's report that this sender or receiver is dead.
    pub fn record_death(&self, party: Party, who: Entrance) {
        self.deaths(party).record(who.row, who.generation);
    }

    /// Is this sender or receiver known to be dead?
    #[must_use]
    pub fn is_dead(&self, party: Party, who: Entrance) -> bool {
        self.deaths(party).knows(who.row, who.generation)
    }

    /// Is the present holder of the sender row `row` known to be dead? Must be called after the
    /// load of the stamp that names the row: while that stamp is there, the row cannot change
    /// hands.
    pub(super) fn is_owner_dead(&self, row: u32) -> bool {
        u64::from(row) < self.geometry.senders_max()
            && self.senders.knows(row, generation_of(self.tenure(Party::Sender, row)))
    }

    /// Host only: adds a sender whose process has `socket`. `None` if every row is taken: by living
    /// senders, by dead senders whose claims are still in the ring, or by dead senders whose death
    /// is not known yet.
    pub fn enter_sender<H: Host>(&self, socket: u128, pid: u32, host: &H) -> Option<Entrance> {
        let entrance = self.vacant_sender_row()?;
        self.let_send(entrance, socket, pid, host);
        Some(entrance)
    }

    /// Host only: chooses a row for a sender. The row is not taken before [`Roster::let_send`], but
    /// no other sender will ever be given this generation: so a sender that gives up its row
    /// because this host died cannot give up another sender's row.
    #[must_use]
    pub fn vacant_sender_row(&self) -> Option<Entrance> {
        let row = (0..self.rows_max(Party::Sender)).find(|&row| self.is_vacant_sender(row))?;
        Some(self.announce(Party::Sender, row))
    }

    /// Host only: adds the sender at the vacant row that was chosen for it.
    pub fn let_send<H: Host>(&self, who: Entrance, socket: u128, pid: u32, host: &H) {
        let row = who.row;
        // The word names a row without a generation: a creator that died or left while it held
        // senders back must not hold them back again through the next holder of its row.
        let _ = self.ring.held().compare_exchange(row + 1, 0, Relaxed, Relaxed);
        self.take(Party::Sender, who, socket, pid);
        // ORDER(T1): as in `take`; a thread that sees the epoch sees the door.
        self.ring.senders_epoch().fetch_add(1, order!(T1: Release));
        self.ring_bell(host);
    }

    /// Host only: keeps all senders from sending until `until_ns` (by [`Kernel::now_ns`](crate::Kernel::now_ns)), or
    /// until [`Roster::let_go`], while receivers that the sender at `row` invited have not joined.
    pub fn hold(&self, row: u32, until_ns: u64) {
        self.ring.held_until().store(until_ns, Relaxed);
        // ORDER(T1): pairs with T2; a sender that is held sees the time until which it is held.
        self.ring.held().store(row + 1, order!(T1: Release));
    }

    /// Host only: lets all senders send again if the sender at `row` has held them. False if not.
    pub fn let_go<H: Host>(&self, row: u32, host: &H) -> bool {
        let is_held = self.ring.held().load(Relaxed) == row + 1;
        if is_held {
            // ORDER(T1): pairs with T2; the receivers that have joined are counted.
            self.ring.held().store(0, order!(T1: Release));
            self.make_room(host);
        }
        is_held
    }

    fn is_vacant_sender(&self, row: u32) -> bool {
        let found = self.tenure(Party::Sender, row);
        match state_of(found) {
            Some(DoorState::Free) => true,
            Some(DoorState::Joined) => {
                self.senders.knows(row, generation_of(found)) && !self.is_named(row)
            }
            _ => false,
        }
    }

    /// Does any slot name sender `row` as its claimer, or as the claimer of a run that begins
    /// there?
    fn is_named(&self, row: u32) -> bool {
        (0..self.slots.count()).any(|index| {
            let stamp = self.slots.at(index).stamp().load(Relaxed);
            stamp != 0 && owner_of(stamp) == row && (is_claimed(stamp) || run_of(stamp) > 1)
        })
    }

    /// Host only: chooses a row for a receiver. The row is not taken before [`Roster::admit`], but
    /// no other receiver will ever be given this generation: so a receiver that gives up its row
    /// because this host died cannot give up the row of another.
    #[must_use]
    pub fn vacant_row(&self) -> Option<Entrance> {
        let row = (0..self.rows_max(Party::Receiver)).find(|&row| {
            let found = self.tenure(Party::Receiver, row);
            match state_of(found) {
                Some(DoorState::Free) => true,
                // A living evicted receiver frees its row itself, since it may still store to it.
                _ => self.receivers.knows(row, generation_of(found)) && self.has_freed(row, found),
            }
        })?;
        Some(self.announce(Party::Receiver, row))
    }

    /// Frees a row of a receiver that is known to be dead. The one thread that does so counts the death.
    fn has_freed(&self, row: u32, held: u64) -> bool {
        let free = tenure(generation_of(held), DoorState::Free);
        let door = self.door(Party::Receiver, row).tenure();
        // ORDER(T1): as in `vacate`.
        if door.compare_exchange(held, free, order!(T1: AcqRel), Relaxed).is_ok() {
            self.table.count(ControlCounter::Deaths);
        }
        true
    }

    /// Gives a vacant row its next generation, before any process learns of it.
    fn announce(&self, party: Party, row: u32) -> Entrance {
        let generation = generation_of(self.tenure(party, row)).wrapping_add(1);
        let free = tenure(generation, DoorState::Free);
        // ORDER(T1): as in `take`.
        self.door(party, row).tenure().store(free, order!(T1: Release));
        Entrance { row, generation }
    }

    /// Host only: adds a receiver at the vacant row that was chosen for it, and returns its first
    /// message: the next message that is claimed, or one that was claimed meanwhile.
    pub fn admit(&self, who: Entrance, socket: u128, pid: u32) -> u64 {
        let Entrance { row, .. } = who;
        self.table.rows_high().fetch_max(row + 1, Relaxed);
        self.rows.cursor(row).store(self.head(), Relaxed);
        self.take(Party::Receiver, who, socket, pid);
        // ORDER(T1): as in `take`.
        self.table.members_epoch().fetch_add(1, order!(T1: Release));
        // ORDER(R4): pairs with R3; a sender that does not count this row computed its limit from
        // claims that are seen below.
        fence_at!(R4: SeqCst);
        let head = self.head();
        self.rows.cursor(row).store(head, Relaxed);
        self.door(Party::Receiver, row).start().store(head, Relaxed);
        self.table.count(ControlCounter::Joins);
        head
    }

    fn take(&self, party: Party, who: Entrance, socket: u128, pid: u32) {
        let door = self.door(party, who.row);
        door.set_socket(socket);
        door.pid().store(pid, Relaxed);
        let tenure = tenure(who.generation, DoorState::Joined);
        // ORDER(T1): pairs with T2; a thread that sees the tenure sees the row's fields.
        door.tenure().store(tenure, order!(T1: Release));
    }

    /// Gives up a row: the caller's own when it leaves, or that of a holder known to be dead.
    /// Returns false if that holder no longer had the row.
    pub fn vacate<H: Host>(&self, party: Party, who: Entrance, host: &H) -> bool {
        let door = self.door(party, who.row).tenure();
        let free = tenure(who.generation, DoorState::Free);
        let is_ours = [DoorState::Joined, DoorState::Evicted].into_iter().any(|state| {
            let held = tenure(who.generation, state);
            // ORDER(T1): with the free row, the last stamps or reads of the leaving holder are
            // visible.
            door.compare_exchange(held, free, order!(T1: AcqRel), Relaxed).is_ok()
        });
        if is_ours {
            match party {
                Party::Sender => {
                    // ORDER(T1): as in `take`.
                    self.ring.senders_epoch().fetch_add(1, order!(T1: Release));
                    self.ring_bell(host);
                    // The sender that left may have held back all others.
                    self.make_room(host);
                }
                Party::Receiver => self.make_room(host),
            }
        }
        is_ours
    }

    /// Evicts a receiver that has held a sender back for too long: it no longer counts. The
    /// receiver learns this from its door, and gives up the row itself.
    pub fn evict<H: Host>(&self, who: Entrance, host: &H) -> bool {
        let door = self.door(Party::Receiver, who.row).tenure();
        let held = tenure(who.generation, DoorState::Joined);
        let evicted = tenure(who.generation, DoorState::Evicted);
        let is_done = door.compare_exchange(held, evicted, Relaxed, Relaxed).is_ok();
        if is_done {
            self.table.count(ControlCounter::Evictions);
            self.make_room(host);
        }
        is_done
    }

    /// Wakes every sleeper that waits for messages or for another sender's claim.
    pub fn ring_bell<H: Host>(&self, host: &H) {
        doorbell::ring(self.ring.bell(), WAKE_ALL, host.kernel());
        self.wake_descriptors(host);
    }

    /// Wakes the receivers that wait for their descriptors.
    fn wake_descriptors<H: Host>(&self, host: &H) {
        for (who, _) in self.held(Party::Receiver) {
            if self.is_armed(who.row) {
                host.control().wake_descriptor(who.row);
            }
        }
    }

    /// Does the holder of the receiver's row `row` wait for its descriptor?
    #[must_use]
    pub fn is_armed(&self, row: u32) -> bool {
        if state_of(self.tenure(Party::Receiver, row)) != Some(DoorState::Joined) {
            return false;
        }
        let epoch = doorbell::epoch_of(self.rows.sleeping(row));
        doorbell::mode_of(epoch, self.rows.sleep_mode(row)) == Some(SleepMode::Descriptor)
    }

    /// Wakes every sender that waits for room.
    pub fn make_room<H: Host>(&self, host: &H) {
        doorbell::ring(self.table.room(), WAKE_ALL, host.kernel());
    }

    /// The first unclaimed sequence number, or one that was unclaimed a moment ago.
    #[must_use]
    pub fn head(&self) -> u64 {
        let mut at = self.ring.tail().load(Relaxed);
        while let Some(next) = past_claim(&self.slots, at) {
            at = next;
        }
        at
    }
}

/// The state in a tenure; `None` for a value that corewire never writes.
fn state_of(tenure: u64) -> Option<DoorState> {
    const LOWER: u64 = u32::MAX as u64;
    [DoorState::Free, DoorState::Joined, DoorState::Evicted]
        .into_iter()
        .find(|&state| tenure & LOWER == state as u64)
}

/// If `sequence`, at which a claim begins or will begin, is claimed: where the next claim begins.
/// `None` if it is unclaimed.
#[inline]
pub(super) fn past_claim(slots: &Slots, sequence: u64) -> Option<u64> {
    let stamp = slots.at(sequence).stamp().load(Relaxed);
    match ahead_of(stamp, sequence) {
        0 => Some(sequence + run_of(stamp)),
        1.. => Some(past_later_claim(slots, sequence)),
        _ => None,
    }
}

/// As [`past_claim`], for a sequence number whose slot has since been claimed for a later lap. A
/// slot in the middle of a run does not show this; the first slot of a run within reach does.
#[cold]
fn past_later_claim(slots: &Slots, sequence: u64) -> u64 {
    let mut at = sequence;
    'lap: loop {
        let stamp = slots.at(at).stamp().load(Relaxed);
        let ahead = ahead_of(stamp, at);
        if ahead > 0 {
            at = at.wrapping_add_signed(ahead);
            continue;
        }
        for back in 1..RUN_SLOTS_MAX.min(at + 1) {
            let before = at - back;
            let other = slots.at(before).stamp().load(Relaxed);
            match ahead_of(other, before) {
                0 if run_of(other) > back => return before + run_of(other),
                // Lapped meanwhile: a run may have begun there, but nothing shows it any more.
                ahead @ 1.. => {
                    at = before.wrapping_add_signed(ahead);
                    continue 'lap;
                }
                _ => {}
            }
        }
        return at + run_of(stamp);
    }
}
