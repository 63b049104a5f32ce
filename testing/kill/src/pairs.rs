//! Endpoints: three of them, each linked with the two others.

mod operations;
mod party;
mod recovery;
mod start;

use std::cell::RefCell;
use std::rc::Rc;

use corewire_layout::segment::Policy;
use corewire_ring::sync::kill::Stretch;

pub use party::Party;
pub use start::State;

/// Where an operation begins.
pub type Start = crate::start::Start<State>;

use crate::engine::stretch;
use crate::engine::{Operation, World};
use crate::ensure;
use crate::kernel::Log;

/// Slots of each ring: receivers publish their cursors after two.
const SLOTS: u64 = 8;
/// Each sends to one of the others at a time: the ring is taken back again and again.
const RINGS: u64 = 1;
/// One peer gets four of them, but only if all are there.
const CELLS: u64 = 7;
const CELL_BYTES: usize = 4096;
/// A message in one slot, with one word that is not whole.
pub const SHORT: usize = 20;
/// In two slots.
pub const TWO_SLOTS: usize = 99;
/// A part of a cell.
pub const CELL: usize = 501;
/// In three cells.
pub const LONG: usize = 2 * CELL_BYTES + 77;
/// After so many looks that find nothing, what is done now and then has been done.
const MANY_LOOKS: u32 = 257;

/// Who may die: one of three processes, by its row with the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Role(pub u32);

/// Sends most.
pub const A: Role = Role(0);
/// Receives most.
pub const B: Role = Role(1);
/// Has the ring that the first needs, now and then.
pub const C: Role = Role(2);
const ALL: [Role; 3] = [A, B, C];

/// Three endpoints.
#[derive(Debug)]
pub struct Pairs {
    /// Where it began.
    pub start: Start,
    /// All that there are, by row.
    pub parties: [Party; 3],
    /// Who is not there any more.
    dead: Vec<Role>,
    /// Who has let go of whom, who lives.
    parted: Option<(Role, Role)>,
    log: Rc<RefCell<Log>>,
    /// A mistake: what the dead have left is not looked at.
    pub forgets_the_dead: bool,
}

impl Pairs {
    fn empty(start: Start) -> Self {
        let log = Rc::default();
        let parties = ALL.map(|role| Party::new(role, &log));
        let (dead, parted) = (Vec::new(), None);
        let mut world = Self { start, parties, dead, parted, log, forgets_the_dead: false };
        for (one, other) in [(A, B), (A, C), (B, C)] {
            world.link(one, other);
        }
        world
    }

    /// Each learns of the other, as their control threads do it.
    fn link(&mut self, one: Role, other: Role) {
        let (here, there) = (self.party(one).as_peer(), self.party(other).as_peer());
        self.party(one).meet(other, there);
        self.party(other).meet(one, here);
    }

    /// One lets go of the other, as if it had found an impossible value.
    fn let_go(&mut self, role: Role, other: Role) {
        self.parted = Some((role, other));
        self.party(role).part_from(other);
    }

    /// A role's endpoint.
    pub const fn party(&mut self, role: Role) -> &mut Party {
        &mut self.parties[role.0 as usize]
    }

    fn live(&self) -> Vec<Role> {
        ALL.into_iter().filter(|role| !self.dead.contains(role)).collect()
    }

    /// Takes everything that is there for `role`. All is named by bits or polled: one look in vain is enough,
    /// and one that takes the end of a ring.
    pub fn receive_all(&mut self, role: Role) {
        while self.receive_one(role, 2) {}
    }

    /// Takes the next message, or the next part of one, having looked so often. False if there is none.
    pub fn receive_one(&mut self, role: Role, looks: u32) -> bool {
        let Some((row, found)) = self.party(role).take(looks) else { return false };
        if let Some((tag, bytes)) = found {
            let sent = self.parties[row as usize].sent_to(role);
            let expected = usize::try_from(tag).ok().and_then(|index| sent.get(index));
            ensure!(expected.is_some(), "message {tag} of row {row} is invented");
            ensure!(expected == Some(&bytes), "message {tag} of row {row} is torn");
            self.party(role).count(Role(row), tag);
        }
        true
    }
}

impl World for Pairs {
    type State = State;
    type Role = Role;

    fn policies() -> Vec<Policy> {
        vec![Policy::Block]
    }

    fn operations() -> Vec<Operation<Self>> {
        operations::all()
    }

    fn new(start: Start) -> Self {
        let mut world = Self::empty(start);
        world.bring_to(start.state);
        *world.log.borrow_mut() = Log::default();
        world
    }

    fn shared(&self) -> Vec<Stretch> {
        let regions = self.parties.iter().flat_map(|party| [&party.segment, &party.page]);
        regions.map(stretch).collect()
    }

    fn own(&self, role: Role) -> Vec<Stretch> {
        let pages = self.parties.iter().map(|party| stretch(&party.page));
        pages.chain([stretch(&self.parties[role.0 as usize].segment)]).collect()
    }

    fn has_order(one: Role, other: Role) -> bool {
        one != other
    }

    fn can_run(&self, _role: Role) -> bool {
        true
    }

    fn go_on(self, dead: &[Role]) {
        self.recover(dead);
    }
}
