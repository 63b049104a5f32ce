//! Rings that can be run on the model: the memory that they share, and a role for each core. Role 0
//! sends, the others receive.

mod barrelfish;
mod broadcast;
mod flows;
mod many;
mod zimp;

use std::cell::Cell;
use std::rc::Rc;

use corewire_layout::slot::INLINE_BYTES_MAX;

pub use barrelfish::{barrelfish_mp, barrelfish_ump};
pub use broadcast::{broadcast, two_level};
pub use flows::{agreement, gathering};
pub use many::{Lost, ManyFigures, ManyToOne, Talk, endpoints, nemesis};
pub use zimp::zimp;

use crate::caches::{Caches, Counts, Machine, Part};
use crate::region::Region;
use crate::scheduler::{self, Rhythm, Role, Step, Stuck};

/// A ring, ready to run.
pub struct Ring {
    /// The memory that its roles share.
    parts: Vec<Part>,
    roles: Vec<Box<dyn Role>>,
    /// Number of messages that each role sends or receives before it is done; one entry for each ring.
    goals: Vec<Rc<Cell<u64>>>,
    slots: u64,
}

impl std::fmt::Debug for Ring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ring").field("roles", &self.roles.len()).finish_non_exhaustive()
    }
}

/// The cost of messages after the first rounds of the ring.
#[derive(Debug, Clone)]
pub struct Figures {
    /// How many messages.
    pub messages: u64,
    /// Counts of the sender.
    pub sender: Counts,
    /// Counts of each receiver.
    pub receivers: Vec<Counts>,
    /// From the first send to the last receive, on the model's clocks.
    pub time_ns: u64,
}

impl Ring {
    /// A ring that has no roles yet.
    fn new(parts: Vec<Part>, slots: u64) -> Self {
        Self { parts, roles: Vec::new(), goals: vec![Rc::default()], slots }
    }

    /// Adds a role that sends or receives one message after the other: `one` gets the number of the
    /// message, from 0, and returns whether it succeeded.
    fn add(&mut self, one: impl FnMut(u64) -> bool + 'static) {
        let goal = Rc::clone(&self.goals[0]);
        self.roles.push(Box::new(Counted { one, done: 0, goal }));
    }

    /// Combines two rings of one receiver each into two roles: each message on `there` is answered on
    /// `back`.
    ///
    /// # Panics
    /// If a ring has more receivers.
    #[must_use]
    pub fn ping_pong(there: Self, back: Self) -> Self {
        let ends = |ring: Self| {
            let [sending, receiving] =
                <[_; 2]>::try_from(ring.roles).ok().expect("one receiver each");
            (ring.parts, sending, receiving, ring.goals)
        };
        let slots = there.slots;
        let (mut parts, first_sending, second_receiving, mut goals) = ends(there);
        let (other_parts, second_sending, first_receiving, other_goals) = ends(back);
        parts.extend(other_parts);
        goals.extend(other_goals);
        let roles: [Box<dyn Role>; 2] = [
            Box::new(Turns { turns: vec![first_sending, first_receiving], next: 0 }),
            Box::new(Turns { turns: vec![second_receiving, second_sending], next: 0 }),
        ];
        Self { parts, roles: roles.into(), goals, slots }
    }

    /// The same ring, as if everything in part `name` that is a multiple of `bytes` apart lay in one
    /// place. It answers, for example, what the ring would cost if the receivers' words shared lines.
    ///
    /// # Panics
    /// If no part has that name.
    #[must_use]
    pub fn overlay(mut self, name: &str, bytes: usize) -> Self {
        let part = self.parts.iter_mut().find(|part| part.name == name);
        part.expect("the name of a part").overlay_bytes = bytes;
        self
    }

    /// Sends two rounds of the ring, then counts what `messages` more cost.
    ///
    /// # Errors
    /// [`Stuck`]: the protocol of the ring is wrong.
    pub fn measure(
        mut self,
        machine: Machine,
        rhythm: Rhythm,
        messages: u64,
        seed: u64,
    ) -> Result<Figures, Stuck> {
        let cores = self.roles.len();
        let caches = Caches::new(machine, cores, std::mem::take(&mut self.parts));
        let counts = || (0..cores).map(|core| caches.counts(core)).collect::<Vec<_>>();
        let latest_ns = || (0..cores).map(|core| caches.done_ns(core)).max().unwrap_or(0);
        self.goals.iter().for_each(|goal| goal.set(2 * self.slots));
        scheduler::run(&caches, &mut self.roles, rhythm, seed)?;
        let (before, start_ns) = (counts(), latest_ns());
        (0..cores).for_each(|core| caches.pass_until(core, start_ns));
        self.goals.iter().for_each(|goal| goal.set(2 * self.slots + messages));
        scheduler::run(&caches, &mut self.roles, rhythm, seed)?;
        let mut counts = counts().into_iter().zip(&before).map(|(now, then)| now.since(then));
        let sender = counts.next().unwrap_or_default();
        let receivers = counts.collect();
        Ok(Figures { messages, sender, receivers, time_ns: latest_ns() - start_ns })
    }
}

/// The messages of 48 bytes that are sent on every ring.
struct Messages;

impl Messages {
    fn of(number: u64) -> [u8; INLINE_BYTES_MAX] {
        let mut message = [0; INLINE_BYTES_MAX];
        message.as_chunks_mut().0.fill(number.to_le_bytes());
        message
    }

    /// # Panics
    /// If `message` is not message `number`.
    fn check(number: u64, message: &[u8]) {
        assert_eq!(message, Self::of(number), "not message {number}");
    }
}

struct Counted<F> {
    one: F,
    done: u64,
    goal: Rc<Cell<u64>>,
}

impl<F: FnMut(u64) -> bool> Role for Counted<F> {
    fn step(&mut self) -> Step {
        if self.done == self.goal.get() {
            return Step::Done;
        }
        if !(self.one)(self.done) {
            return Step::Waits;
        }
        self.done += 1;
        Step::Did
    }
}

/// Roles on one core that take turns.
struct Turns {
    turns: Vec<Box<dyn Role>>,
    next: usize,
}

impl Role for Turns {
    fn step(&mut self) -> Step {
        let step = self.turns[self.next].step();
        if step == Step::Did {
            self.next = (self.next + 1) % self.turns.len();
        }
        step
    }
}

/// A whole region as a part named `name`.
fn part(region: &Region, name: &'static str) -> Part {
    let (base, bytes) = region.address();
    let start = base.addr().get();
    Part { addresses: start..start + bytes, name, overlay_bytes: usize::MAX }
}
