//! Three endpoints, each linked with the other two.
//!
//! | module | holds |
//! |---|---|
//! | `party` | one endpoint: its messages with each peer, sending and receiving them |
//! | `blocks` | messages that their receiver holds where the sender has them |
//! | `offers`, `copies` | large messages: a small engine around the words of rendezvous, and what both sides copy |
//! | `sleep` | sleeping, and what an endpoint waits for |
//! | `start`, `operations`, `recovery` | states, the table of operations, the recovery of the survivors, and the oracle |

mod blocks;
mod copies;
mod offers;
mod operations;
mod party;
mod recovery;
mod sleep;
mod start;

use corewire_layout::grants::HEAP_CHUNK_BYTES;
use corewire_layout::segment::Policy;
use corewire_ring::sync::kill::Stretch;

pub use party::Party;
use party::Taken;
pub use start::State;

/// The policy and the state in which an operation begins.
pub type Start = crate::start::Start<State>;

use crate::engine::stretch;
use crate::engine::{Operation, World};
use crate::ensure;
use crate::kernel::{Log, SharedLog};

/// Slots of each ring. Receivers publish their cursors after two.
const SLOTS: u64 = 8;
/// Rings of each endpoint. With one ring it can send to one peer at a time, so it takes the ring
/// back often.
const RINGS: u64 = 1;
/// Cells of each endpoint. One peer gets four of them, but only if all are free.
const CELLS: u64 = 7;
const CELL_BYTES: usize = 4096;
/// Length of a message that fits one slot and ends in a partial word.
pub const SHORT: usize = 20;
/// Length of a message that takes two slots.
pub const TWO_SLOTS: usize = 99;
/// Length of a message that takes part of a cell.
pub const CELL: usize = 501;
/// Length of a message that takes three cells.
pub const LONG: usize = 2 * CELL_BYTES + 77;
/// Length of a message in a block.
pub const IN_PLACE: usize = 333;
/// What an endpoint grants each peer: four such messages, half of the heap.
const GRANTED_BYTES: u64 = HEAP_BYTES / 2;
const HEAP_BYTES: u64 = HEAP_CHUNK_BYTES;
/// Length of a message that is offered.
pub const LARGE: usize = 32;
/// Chunks of such a message.
const CHUNKS: u16 = 4;
/// After this number of polls that find nothing, an endpoint has done its occasional work.
const MANY_LOOKS: u32 = 257;

/// A process that may die. The number is its row at the other two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Role(pub u32);

/// The endpoint that sends most.
pub const A: Role = Role(0);
/// The endpoint that receives most.
pub const B: Role = Role(1);
/// The endpoint that sometimes has the ring that the first endpoint needs.
pub const C: Role = Role(2);
const ALL: [Role; 3] = [A, B, C];

/// Three endpoints.
#[derive(Debug)]
pub struct Pairs {
    /// The start of this case.
    pub start: Start,
    /// All endpoints, by row.
    pub parties: [Party; 3],
    /// The roles that are dead.
    dead: Vec<Role>,
    /// The role that has removed a live peer, and that peer.
    parted: Option<(Role, Role)>,
    log: SharedLog,
    /// A mistake: what dead endpoints have sent is not read.
    pub forgets_the_dead: bool,
    /// A mistake: the blocks that a dead endpoint holds stay with it.
    pub leaves_blocks_to_the_dead: bool,
}

impl Pairs {
    fn empty(start: Start) -> Self {
        let log = SharedLog::default();
        let parties = ALL.map(|role| Party::new(role, &log));
        let (dead, parted) = (Vec::new(), None);
        let mut world = Self {
            start,
            parties,
            dead,
            parted,
            log,
            forgets_the_dead: false,
            leaves_blocks_to_the_dead: false,
        };
        for (one, other) in [(A, B), (A, C), (B, C)] {
            world.link(one, other);
        }
        world.grant(A, B);
        world
    }

    /// Links two endpoints, as their control threads do.
    fn link(&mut self, one: Role, other: Role) {
        let (here, there) = (self.party(one).as_peer(), self.party(other).as_peer());
        self.party(one).meet(other, there);
        self.party(other).meet(one, here);
    }

    /// `role` removes `other`, as if it had found an impossible value.
    fn let_go(&mut self, role: Role, other: Role) {
        self.parted = Some((role, other));
        self.party(role).part_from(other, false);
    }

    /// The endpoint of a role.
    pub const fn party(&mut self, role: Role) -> &mut Party {
        &mut self.parties[role.0 as usize]
    }

    fn live(&self) -> Vec<Role> {
        ALL.into_iter().filter(|role| !self.dead.contains(role)).collect()
    }

    /// Receives everything that is there for `role`. All messages are named by bits or polled, so
    /// two polls are enough: one that finds nothing, and one that may take the end of a ring.
    pub fn receive_all(&mut self, role: Role) {
        while self.receive_one(role, 2) {}
    }

    /// Receives the next message or the next part of one, with at most `looks` polls. Returns false
    /// if there is none.
    pub fn receive_one(&mut self, role: Role, looks: u32) -> bool {
        let Some((row, found)) = self.party(role).take(looks) else { return false };
        if let Some(Taken::Word(word)) = &found {
            let got = self.party(role).words_got_of(Role(row));
            let expected = self.parties[row as usize].word_to(role, got);
            ensure!(expected == Some(word), "word {got} of row {row} is torn or invented");
            self.party(role).talk(Role(row)).words.got += 1;
            self.handle_word(role, Role(row), word);
        }
        if let Some(Taken::Message(tag, bytes)) = found {
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
        *world.log.lock() = Log::default();
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
