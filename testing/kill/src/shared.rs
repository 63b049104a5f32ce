//! The channel of several senders: two senders, of which the first is the host, two receivers, and a
//! row for a newcomer of each kind. In some starts a third sender has died.

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
    Receiver, ReceiverParts, ReceiverShared, ReceiverWords, SLEEP_CAP_NS, SenderShared,
};
use corewire_ring::region::{Region, Slots};
use corewire_ring::shared::{Entrance, ManyParts, Party, Roster, RosterParts, Sender, SenderParts};
use corewire_ring::sync::Ordering::Relaxed;
use corewire_ring::sync::kill::{self, Stretch};
use corewire_ring::{Kernel as _, Trusted};

pub use history::History;
use kernel::{Log, TurnKernel, Waited};
pub use reader::Reader;
pub use start::State;

/// Where an operation begins.
pub type Start = crate::start::Start<State>;

use crate::engine::{Operation, World, stretch};
use crate::start::EVICT_AFTER_NS;

/// Slots of the ring: the fewest that a shared channel may have.
pub const SLOTS: u64 = 32;
/// What goes through the window.
pub const WINDOW_BYTES: usize = 200;
/// The longest message.
pub const LARGE_BYTES: usize = 3000;
/// What a short message has, with one word that is not whole.
pub const INLINE_BYTES: usize = 20;
/// The newcomers' places, of either kind.
pub const NEWCOMER: usize = 2;
const ROWS: u32 = 3;
/// Looks for room before a call gives up.
const LOOKS_MAX: u32 = 3;

/// Who may die.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// A sender; the first is the host.
    Sender(usize),
    /// A receiver.
    Receiver(usize),
}

/// A sender that lives.
#[derive(Debug)]
pub struct Member {
    /// The ring's own.
    pub ring: Sender<TurnKernel>,
    /// What its process knows.
    pub roster: Roster,
    entrance: Entrance,
}

/// A sender that sleeps, for room for so many bytes.
#[derive(Debug, Clone, Copy)]
struct Blocked {
    sender: usize,
    bytes: usize,
    waited: Waited,
}

/// The channel with all its roles.
#[derive(Debug)]
pub struct Shared {
    /// Where it began.
    pub start: Start,
    geometry: Geometry,
    ring: Region,
    table: Region,
    slots: Slots,
    /// What none of the roles is told.
    pub observer: Roster,
    log: Rc<RefCell<Log>>,
    /// The senders that live and have not left.
    pub senders: Vec<Option<Member>>,
    /// The receivers that live and have not left.
    pub readers: Vec<Option<Reader>>,
    /// What each role was told of its row, whether it lives or not.
    entrances: Vec<(Role, Entrance)>,
    /// What the second word of the host to the newcomer says: its first message.
    first: Option<u64>,
    history: History,
    blocked: Option<Blocked>,
    now_ns: u64,
    /// A mistake: nobody is told of a death.
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
        // The founder lets itself in.
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

    /// What a process knows that has just come.
    fn roster(&self) -> Roster {
        let Self { ring, table, geometry, .. } = self;
        let (ring, table, geometry) = (ring.clone(), table.clone(), *geometry);
        Roster::new(&RosterParts { ring, table, geometry })
    }

    fn kernel(&self, role: Role, roster: &Roster) -> TurnKernel {
        TurnKernel { role, roster: roster.clone(), log: Rc::clone(&self.log) }
    }

    /// Who lets others in: the first sender, or the next after its end.
    fn host(&self) -> Option<&Member> {
        self.senders.iter().flatten().next()
    }

    /// What this role was last told of its row.
    fn entrance(&self, role: Role) -> Option<Entrance> {
        self.entrances.iter().rev().find(|(of, _)| *of == role).map(|(_, entrance)| *entrance)
    }

    /// Has the host ask for the end of everybody who has such a row.
    fn watch_all(&self, party: Party) {
        let Some(host) = self.host() else { return };
        for (who, _) in host.roster.held(party) {
            if !host.roster.is_dead(party, who) {
                host.ring.kernel().watch(party, who, 0);
            }
        }
    }

    /// The host lets a sender in, and says so.
    pub fn let_in(&mut self, place: usize) {
        let enter = |host: &Member| host.roster.enter_sender(1, 1, host.ring.kernel());
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

    /// The newcomer begins to send, if it was let in.
    ///
    /// # Panics
    /// If there is no memory.
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

    /// The host takes a receiver in: tells it the row, lets it count, and tells it the start.
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

    /// The newcomer begins to receive, if it was taken in.
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
        // SAFETY: senders and receivers are one thread's, and keep to the protocol.
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

    /// Where the slots lie.
    #[must_use]
    pub fn ring(&self) -> Stretch {
        let stamp = |sequence| self.slots.at(sequence).stamp().as_ptr().addr();
        stamp(0)..stamp(SLOTS - 1) + SLOT_BYTES
    }

    /// Does the row count for this holder?
    fn is_joined(&self, party: Party, who: Entrance) -> bool {
        let found = self.observer.door(party, who.row).tenure().load(Relaxed);
        found == tenure(who.generation, DoorState::Joined)
    }
}

/// The library's wait for room, but for polling: it looks, makes room as the policy has it, sleeps.
///
/// # Errors
/// If it has looked so often that somebody else must do something first.
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
        // Some have died before it begins.
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
