//! The channel of several senders: two senders, the first of which is the host, two receivers, and
//! a row for a new sender and a new receiver. In some starts a third sender has died.

mod history;
mod kernel;
pub mod operations;
mod reader;
mod recovery;
mod start;

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use corewire_layout::frame::Welcome;
use corewire_layout::geometry::Geometry;
use corewire_layout::segment::{DoorState, FenceMode, Policy, RECEIVER_SEGMENT_BYTES, tenure};
use corewire_layout::slot::SLOT_BYTES;
use corewire_ring::broadcast::{
    Receiver, ReceiverParts, ReceiverShared, ReceiverWords, SenderShared,
};
use corewire_ring::doorbell::SLEEP_CAP_NS;
use corewire_ring::region::{Region, Slots};
use corewire_ring::shared::{Entrance, ManyParts, Party, Roster, RosterParts, Sender, SenderParts};
use corewire_ring::sync::Ordering::Relaxed;
use corewire_ring::sync::kill::{self, Stretch};
use corewire_ring::{Control as _, Trusted};

pub use history::History;
use kernel::{Log, TurnKernel, Waited};
pub use reader::Reader;
pub use start::State;

/// The policy and the state in which an operation begins.
pub type Start = crate::start::Start<State>;

use crate::engine::{Operation, World, stretch};
use crate::start::EVICT_AFTER_NS;

/// Slots of the ring: the minimum for a shared channel.
pub const SLOTS: u64 = 32;
/// Length of a message that goes through the window.
pub const WINDOW_BYTES: usize = 200;
/// The longest message, in bytes.
pub const LARGE_BYTES: usize = 3000;
/// Length of a short message, which ends in a partial word.
pub const INLINE_BYTES: usize = 20;
/// The place of a new sender, and of a new receiver.
pub const NEWCOMER: usize = 2;
const ROWS: u32 = 3;
/// Number of checks for room before a call gives up.
const LOOKS_MAX: u32 = 3;

/// The roles that may die.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// A sender; the first is the host.
    Sender(usize),
    /// A receiver.
    Receiver(usize),
}

/// A live sender.
#[derive(Debug)]
pub struct Member {
    /// The sender of the ring itself.
    pub ring: Sender<TurnKernel>,
    /// The view of its process on the participants.
    pub roster: Roster,
    entrance: Entrance,
}

/// A sender that sleeps, and the number of bytes that it needs room for.
#[derive(Debug, Clone, Copy)]
struct Blocked {
    sender: usize,
    bytes: usize,
    waited: Waited,
}

/// The channel with all its roles.
#[derive(Debug)]
pub struct Shared {
    /// The start of this case.
    pub start: Start,
    geometry: Geometry,
    ring: Region,
    table: Region,
    slots: Slots,
    /// A view on the participants that no role shares.
    pub observer: Roster,
    log: Rc<RefCell<Log>>,
    /// The senders that are alive and have not left.
    pub senders: Vec<Option<Member>>,
    /// The receivers that are alive and have not left.
    pub readers: Vec<Option<Reader>>,
    /// What each role was told about its row, whether the role is alive or not.
    entrances: Vec<(Role, Entrance)>,
    /// The sequence number of the new receiver's first message. The host tells it after the row.
    first: Option<u64>,
    history: History,
    blocked: Option<Blocked>,
    now_ns: u64,
    /// A mistake: no death is reported to any role.
    pub hides_deaths: bool,
}

impl Shared {
    fn empty(start: Start) -> Self {
        let (window, large) = (1024, LARGE_BYTES as u64);
        let geometry =
            Geometry::with_senders(SLOTS, window, large, ROWS.into(), ROWS.into()).unwrap();
        let region = |bytes: u64| Region::private(usize::try_from(bytes).unwrap()).unwrap();
        let (ring, table) = (region(geometry.segment_bytes()), region(geometry.table_bytes()));
        let parts = RosterParts { ring: ring.clone(), table: table.clone(), geometry };
        let mut world = Self {
            start,
            slots: Slots::new(&ring, &geometry),
            observer: Roster::new(&parts),
            geometry,
            ring,
            table,
            log: Rc::default(),
            senders: (0..ROWS).map(|_| None).collect(),
            readers: (0..ROWS).map(|_| None).collect(),
            entrances: Vec::new(),
            first: None,
            history: History::default(),
            blocked: None,
            now_ns: 1,
            hides_deaths: false,
        };
        // The founder admits itself.
        let roster = world.roster();
        let kernel = world.kernel(Role::Sender(0), &roster);
        let entrance = roster.enter_sender(1, 1, &kernel).unwrap();
        world.entrances.push((Role::Sender(0), entrance));
        world.begin_sending(0);
        for place in 0..2 {
            world.take_in(place);
            world.begin_receiving(place);
        }
        world.let_in(1);
        world.begin_sending(1);
        world
    }

    /// The view of a process that has just started.
    fn roster(&self) -> Roster {
        let Self { ring, table, geometry, .. } = self;
        let (ring, table, geometry) = (ring.clone(), table.clone(), *geometry);
        Roster::new(&RosterParts { ring, table, geometry })
    }

    fn kernel(&self, role: Role, roster: &Roster) -> TurnKernel {
        TurnKernel { role, roster: roster.clone(), log: Rc::clone(&self.log) }
    }

    /// The host: the first sender or, after its end, the next one.
    fn host(&self) -> Option<&Member> {
        self.senders.iter().flatten().next()
    }

    /// What this role was last told about its row.
    fn entrance(&self, role: Role) -> Option<Entrance> {
        self.entrances.iter().rev().find(|(of, _)| *of == role).map(|(_, entrance)| *entrance)
    }

    /// Makes the host watch every party of this kind that holds a row.
    fn watch_all(&self, party: Party) {
        let Some(host) = self.host() else { return };
        for (who, _) in host.roster.held(party) {
            if !host.roster.is_dead(party, who) {
                host.ring.host().watch(party, who, 0);
            }
        }
    }

    /// The host admits a sender and tells it so.
    pub fn let_in(&mut self, place: usize) {
        let enter = |host: &Member| host.roster.enter_sender(1, 1, host.ring.host());
        let Some(host) = self.host() else { return };
        let entrance = enter(host).or_else(|| {
            self.watch_all(Party::Sender);
            enter(host)
        });
        if let Some(entrance) = entrance
            && kill::effect()
        {
            self.entrances.push((Role::Sender(place), entrance));
        }
    }

    /// The new sender starts to send, if it was admitted.
    ///
    /// # Panics
    /// If memory cannot be allocated.
    pub fn begin_sending(&mut self, place: usize) {
        let role = Role::Sender(place);
        let Some(entrance) = self.entrance(role) else { return };
        let roster = self.roster();
        let policy = self.start.policy;
        let parts = SenderParts {
            ring: self.ring.clone(),
            roster: roster.clone(),
            entrance,
            policy,
            staging: (!policy.keeps_messages()).then(|| Region::private(LARGE_BYTES).unwrap()),
            shared: Arc::new(SenderShared::new(0, false)),
        };
        let ring = Sender::new(parts, self.kernel(role, &roster));
        self.senders[place] = Some(Member { ring, roster, entrance });
    }

    /// The host adds a receiver: it tells the receiver its row, makes the row count, and tells it
    /// the start.
    pub fn take_in(&mut self, place: usize) {
        let Some(host) = self.host() else { return };
        let vacant = host.roster.vacant_row().or_else(|| {
            self.watch_all(Party::Receiver);
            host.roster.vacant_row()
        });
        let Some(entrance) = vacant else { return };
        if kill::effect() {
            self.entrances.push((Role::Receiver(place), entrance));
            self.first = None;
        }
        let Some(host) = self.host() else { return };
        let first = host.roster.admit(entrance, 1, 1);
        if kill::effect() {
            self.first = Some(first);
        }
    }

    /// The new receiver starts to receive, if it was added.
    pub fn begin_receiving(&mut self, place: usize) {
        let role = Role::Receiver(place);
        let (Some(entrance), Some(start)) = (self.entrance(role), self.first.take()) else {
            return;
        };
        let Entrance { row, generation } = entrance;
        let roster = self.roster();
        let kernel = self.kernel(role, &roster);
        let parts = ReceiverParts {
            sender: self.ring.clone(),
            geometry: self.geometry,
            fence_mode: FenceMode::Asymmetric,
            policy: self.start.policy,
            own: self.page(row),
            hint: None,
            shared: Arc::new(ReceiverShared::default()),
            many: Some(ManyParts { roster: roster.clone(), entrance }),
            welcome: Welcome {
                row,
                start,
                epoch: 0,
                incarnation: 1,
                hint: false,
                table: true,
                settled: 0,
                generation,
            },
        };
        let ring = Receiver::new(parts, kernel);
        // SAFETY: senders and receivers run on one thread and follow the protocol.
        let trusted = unsafe { Trusted::assume() };
        let in_place = ring.in_place(trusted);
        self.readers[place] = Some(Reader::new(ring, in_place, roster, entrance));
    }

    fn page(&self, row: u32) -> Region {
        let offset = usize::try_from(self.geometry.table_rows_offset()).unwrap();
        let page = RECEIVER_SEGMENT_BYTES;
        self.table.part(offset + row as usize * page, page).expect("own row")
    }

    /// The words of a receiver's own page.
    #[must_use]
    pub fn receiver_words(&self, row: u32) -> ReceiverWords {
        ReceiverWords::new(self.page(row))
    }

    /// The addresses of the slots.
    #[must_use]
    pub fn ring(&self) -> Stretch {
        let stamp = |sequence| self.slots.at(sequence).stamp().as_ptr().addr();
        stamp(0)..stamp(SLOTS - 1) + SLOT_BYTES
    }

    /// Whether the row counts for this holder.
    fn is_joined(&self, party: Party, who: Entrance) -> bool {
        let found = self.observer.door(party, who.row).tenure().load(Relaxed);
        found == tenure(who.generation, DoorState::Joined)
    }
}

/// The library's wait for room, except for polling: it checks, makes room as the policy allows, and
/// sleeps.
///
/// # Errors
/// If it has checked so often that another role must act first.
fn wait_for_room(
    sender: &mut Sender<TurnKernel>,
    bytes: usize,
    now_ns: &mut u64,
    looks: &mut u32,
) -> Result<(), ()> {
    *looks += 1;
    if *looks > LOOKS_MAX {
        return Err(());
    }
    *now_ns += EVICT_AFTER_NS / 100;
    sender.refresh();
    if !sender.has_room(bytes) {
        sender.watch_whom_we_wait_for();
        if sender.remove_dead() || sender.evict_stalled(bytes, *now_ns) {
            sender.refresh();
        }
    }
    if sender.has_room(bytes) {
        sender.forget_stalls();
        return Ok(());
    }
    sender.count_wait();
    if sender.someone_sleeps() {
        sender.ring_bell();
    }
    sender.sleep_until(SLEEP_CAP_NS, |sender| sender.has_room(bytes));
    Ok(())
}

impl World for Shared {
    type State = State;
    type Role = Role;

    fn policies() -> Vec<Policy> {
        vec![Policy::Block, Policy::Evict { after_ns: EVICT_AFTER_NS }]
    }

    fn operations() -> Vec<Operation<Self>> {
        operations::all()
    }

    fn new(start: Start) -> Self {
        let mut world = Self::empty(start);
        // Some roles die before the case begins.
        kill::begin(World::shared(&world), u64::MAX);
        world.bring_to(start.state);
        world
    }

    fn shared(&self) -> Vec<Stretch> {
        vec![stretch(&self.ring), stretch(&self.table)]
    }

    fn own(&self, role: Role) -> Vec<Stretch> {
        match role {
            Role::Sender(_) => World::shared(self),
            Role::Receiver(_) => vec![stretch(&self.table)],
        }
    }

    fn has_order(_: Role, _: Role) -> bool {
        true
    }

    fn can_run(&self, role: Role) -> bool {
        match role {
            Role::Sender(place) => self.senders[place].is_some() || place == NEWCOMER,
            Role::Receiver(place) => self.readers[place].is_some() || place == NEWCOMER,
        }
    }

    fn go_on(self, dead: &[Role]) {
        self.recover(dead);
    }
}
