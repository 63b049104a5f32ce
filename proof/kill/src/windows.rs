//! Windows: the owner, and two other participants that may die. The owner's control thread learns of a death, and frees what
//! the participant had.

use std::sync::Arc;

use corewire_layout::segment::Policy;
use corewire_layout::window::book_bytes;
use corewire_ring::region::Region;
use corewire_ring::sync::kill::{self, Stretch};
use corewire_ring::window::{Book, Data, Participant, Roster, Seat, Stop, Turn, WindowShared};

use crate::engine::{Operation, World, fail, stretch};
use crate::kernel::{SharedLog, TurnKernel};
use crate::{ensure, states};

/// The policy and the state in which an operation begins.
pub type Start = crate::start::Start<State>;

states! {
    /// Nobody has anything.
    Quiet = "quiet";
    /// The first of the two has the lock alone.
    Locked = "locked";
    /// The first shares the lock.
    Shared = "shared";
    /// The first has claimed the lock, and waits for the second, which shares it.
    Claimed = "claimed";
    /// The first has entered a fence.
    Fenced = "fenced";
    /// The owner has opened the window to both.
    Posted = "posted";
    /// The owner sleeps.
    Asleep = "asleep";
}

/// Rows of the book: a place for a newcomer, too.
const ROWS: u32 = 4;
/// Places of the data: two sums under the lock, and what is put before each count.
const SUMS: [usize; 2] = [0, 8];
const BLOCKS: usize = 64;

/// A participant that may die: 0 or 1.
pub type Role = usize;

/// The window with all its roles.
#[derive(Debug)]
pub struct Windows {
    start: Start,
    memory: Region,
    data_memory: Region,
    data: Data,
    roster: Roster,
    owner: Participant,
    others: Vec<Participant>,
    kernel: TurnKernel,
    log: SharedLog,
    /// Number of operations under the lock that have returned.
    locked: u64,
    /// Number of counts of each that have returned.
    counted: [u64; 2],
    /// The fence that the owner has entered.
    fence: u64,
    /// The epochs that the owner has opened to each.
    turns: [Option<Turn>; 2],
    /// A mistake: the control thread learns of no death.
    pub hides_deaths: bool,
}

/// Where a participant puts a block.
fn block(role: Role, number: u64) -> usize {
    BLOCKS + 512 * role + 8 * usize::try_from(number).unwrap_or(0)
}

fn number(data: &Data, offset: usize) -> u64 {
    data.load(offset as u64).unwrap_or(u64::MAX)
}

impl Windows {
    /// Takes the lock, adds to both sums, gives it back. Gives up if it is taken.
    fn lock(&mut self, role: Role) {
        let one = &self.others[role];
        if one.try_claim() != Ok(true) {
            return;
        }
        if one.has_no_readers() {
            for sum in SUMS {
                let next = number(&self.data, sum) + 1;
                if let Some(word) = self.data.at::<u64>(sum as u64) {
                    word.store(next);
                }
            }
            one.release();
            self.locked += 1;
        } else {
            one.release();
        }
        one.tell(&self.kernel);
    }

    fn share(&mut self, role: Role) {
        let one = &self.others[role];
        if one.try_share(&self.kernel) == Ok(true) {
            one.unshare();
            one.tell(&self.kernel);
        }
    }

    fn enter_fence(&mut self, role: Role) {
        self.others[role].enter_fence();
        self.others[role].tell(&self.kernel);
    }

    fn complete(&mut self, role: Role) {
        if self.others[role].is_posted() {
            self.others[role].complete();
            self.others[role].tell(&self.kernel);
        }
    }

    /// Puts a block, and counts it: each at its own place, by a counter of its own.
    fn count(&mut self, role: Role) {
        let block = block(role, self.counted[role]);
        let at = self.memory_of_data(block);
        if kill::writes(at, 8) {
            self.data.put(block, &7u64.to_le_bytes());
        }
        self.others[role].add(role, 1);
        self.others[role].tell(&self.kernel);
        self.counted[role] += 1;
    }

    /// The address of the lock.
    #[must_use]
    pub fn lock_word(&self) -> usize {
        self.memory.address().0.addr().get()
    }

    fn memory_of_data(&self, offset: usize) -> usize {
        self.data_memory.address().0.addr().get() + offset
    }

    /// What those that live still have, they give back.
    fn settle(&self, dead: &[Role]) {
        let first_lives = !dead.contains(&0);
        match self.start.state {
            State::Locked | State::Claimed if first_lives => self.others[0].release(),
            State::Shared if first_lives => self.others[0].unshare(),
            _ => {}
        }
        if self.start.state == State::Claimed && !dead.contains(&1) {
            self.others[1].unshare();
        }
    }

    fn check_lock(&self) {
        ensure!(self.owner.try_claim() == Ok(true), "the lock is not free");
        ensure!(self.owner.has_no_readers(), "a reader that has ended is waited for");
        let [first, second] = SUMS.map(|sum| number(&self.data, sum));
        ensure!(
            first >= self.locked
                && first <= self.locked + 2
                && first >= second
                && first <= second + 2,
            "{first} and {second}, {} returned",
            self.locked
        );
        self.owner.release();
    }

    fn check_fence(&self, dead: &[Role]) {
        let alive: Vec<&Participant> = self
            .others
            .iter()
            .enumerate()
            .filter(|(role, _)| !dead.contains(role))
            .map(|it| it.1)
            .collect();
        for one in &alive {
            // Perhaps it has entered the fence before: then this is its next one.
            one.enter_fence();
        }
        let here = u32::try_from(alive.len()).unwrap_or(0) + 1;
        ensure!(
            self.owner.is_fenced(self.fence, here, &[]) == Ok(Some(())),
            "a fence of those that live does not end"
        );
        if !dead.is_empty() {
            let all = self.owner.is_fenced(self.fence, 3, &[]);
            ensure!(
                matches!(all, Ok(Some(())) | Err(Stop::Gone(_))),
                "a fence with one that has ended waits: {all:?}"
            );
        }
    }

    fn check_epochs(&self, dead: &[Role]) {
        for (role, one) in self.others.iter().enumerate() {
            let (seat, lives) = (one.seat(), !dead.contains(&role));
            if lives && one.is_posted() {
                one.complete();
            }
            if let Some(turn) = self.turns[role] {
                let found = self.owner.is_complete(seat, turn);
                let is_right = match found {
                    Ok(is_complete) => is_complete,
                    Err(stop) => !lives && stop == Stop::Gone(seat),
                };
                ensure!(is_right, "an epoch of role {role} is waited for: {found:?}");
            }
            let is_posted = self.owner.post(seat).is_some();
            ensure!(is_posted == lives, "role {role} gets an epoch: {is_posted}");
        }
    }

    fn check_counters(&self) {
        for (role, counted) in self.counted.into_iter().enumerate() {
            let count = self.owner.book().count(role).unwrap_or(u64::MAX);
            ensure!(
                count == counted || count == counted + 1,
                "{count} counted, {counted} returned"
            );
            for number_of_block in 0..count {
                let found = number(&self.data, block(role, number_of_block));
                ensure!(found == 7, "block {number_of_block} is counted, and not there");
            }
        }
    }

    /// A newcomer gets a row, and everything works for it.
    fn check_newcomer(&mut self) {
        let Some(seat) = self.roster.admit(9) else { fail("no row for a newcomer".into()) };
        for (role, one) in self.others.iter().enumerate() {
            ensure!(one.seat() != seat, "the newcomer is taken for role {role}");
        }
        let book = self.owner.book().clone();
        let newcomer = Participant::new(book, seat, Arc::new(WindowShared::default()));
        ensure!(!newcomer.is_posted(), "the newcomer has another one's epoch");
        ensure!(newcomer.try_share(&self.kernel) == Ok(true), "the newcomer cannot share the lock");
        ensure!(
            !(self.owner.try_claim() == Ok(true) && self.owner.has_no_readers()),
            "it is not seen reading"
        );
        newcomer.unshare();
        self.owner.release();
        // The late death of the former holder of its row is not its own.
        for one in &self.others {
            if one.seat().row == seat.row {
                ensure!(newcomer.try_claim() == Ok(true), "the newcomer cannot take the lock");
                self.roster.remove(one.seat(), &self.kernel);
                ensure!(
                    self.owner.try_claim() == Ok(false),
                    "the newcomer's lock was taken for a dead one's"
                );
                newcomer.release();
            }
        }
    }
}

impl World for Windows {
    type State = State;
    type Role = Role;

    fn policies() -> Vec<Policy> {
        vec![Policy::Block]
    }

    fn operations() -> Vec<Operation<Self>> {
        macro_rules! operations {
            ($($role:literal $name:literal $run:ident;)*) => {
                vec![$(Operation::<Self> {
                    name: concat!("participant_", $role, "_", $name),
                    role: $role,
                    is_in: |_| true,
                    prepare: |_| {},
                    run: |world| world.$run($role),
                }),*]
            };
        }
        operations! {
            0 "lock" lock; 0 "share" share; 0 "fence" enter_fence; 0 "complete" complete; 0 "count" count;
            1 "lock" lock; 1 "share" share; 1 "fence" enter_fence; 1 "complete" complete; 1 "count" count;
        }
    }

    fn new(start: Start) -> Self {
        let memory = Region::private(usize::try_from(book_bytes(ROWS)).unwrap()).unwrap();
        let data_memory = Region::private(4096).unwrap();
        let book = Book::new(memory.clone(), ROWS);
        let mut roster = Roster::new(book.clone(), 1);
        let log = SharedLog::default();
        let kernel = TurnKernel { cpu: 0, log: log.clone() };
        let participant =
            |seat| Participant::new(book.clone(), seat, Arc::new(WindowShared::default()));
        let others = [2, 3].map(|pid| participant(roster.admit(pid).unwrap()));
        let owner = participant(Seat { row: 0, generation: 1 });
        // All have taken part in one: one that is missing at the next has gone.
        let before = [&owner, &others[0], &others[1]].map(Participant::enter_fence);
        owner.leave_fence(before[0]);
        let fence = owner.enter_fence();
        let mut turns = [None; 2];
        match start.state {
            State::Locked => {
                assert!(others[0].try_claim() == Ok(true) && others[0].has_no_readers())
            }
            State::Shared => assert_eq!(others[0].try_share(&kernel), Ok(true)),
            State::Claimed => assert!(
                others[1].try_share(&kernel) == Ok(true) && others[0].try_claim() == Ok(true)
            ),
            State::Fenced => _ = others[0].enter_fence(),
            State::Posted => turns = [0, 1].map(|role| owner.post(others[role].seat())),
            State::Asleep => owner.announce_sleep(),
            State::Quiet => {}
        }
        Self {
            start,
            memory,
            data: Data::new(data_memory.clone(), 4096, true),
            data_memory,
            roster,
            owner,
            others: others.into(),
            kernel,
            log,
            locked: 0,
            counted: [0; 2],
            fence,
            turns,
            hides_deaths: false,
        }
    }

    fn shared(&self) -> Vec<Stretch> {
        vec![stretch(&self.memory), stretch(&self.data_memory)]
    }

    fn own(&self, _: Role) -> Vec<Stretch> {
        self.shared()
    }

    fn has_order(_: Role, _: Role) -> bool {
        true
    }

    fn can_run(&self, _: Role) -> bool {
        true
    }

    fn go_on(mut self, dead: &[Role]) {
        if !self.hides_deaths {
            for role in dead {
                self.roster.remove(self.others[*role].seat(), &self.kernel);
            }
        }
        if self.start.state == State::Asleep && !dead.is_empty() {
            ensure!(!self.log.lock().wakes.is_empty(), "the owner sleeps on");
        }
        self.settle(dead);
        self.check_lock();
        self.check_fence(dead);
        self.check_epochs(dead);
        self.check_counters();
        self.check_newcomer();
    }
}
