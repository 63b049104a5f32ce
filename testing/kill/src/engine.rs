//! Enumerates deaths. What dies, and what should come of it, is a [`World`]'s affair.

use std::any::Any;
use std::fmt::Write as _;
use std::num::NonZero;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Mutex;
use std::thread;

use corewire_layout::segment::Policy;
use corewire_ring::region::Region;
use corewire_ring::sync::kill::{self, Ended, Plan, Stretch};

use crate::start::{Start, State};

/// Accesses in one case, of all its roles; the longest take a few thousand.
const STEPS_MAX: u64 = 1_000_000;

/// Roles around a ring, in one start.
pub trait World: Sized + 'static {
    /// What may have gone before.
    type State: State;
    /// Who may die.
    type Role: Copy + PartialEq + 'static;

    /// Every policy that the channel may have.
    fn policies() -> Vec<Policy>;
    /// Every operation.
    fn operations() -> Vec<Operation<Self>>;

    /// The roles in this start.
    fn new(start: Start<Self::State>) -> Self;
    /// The memory that they share.
    fn shared(&self) -> Vec<Stretch>;
    /// What the kernel lets this role write of it.
    fn own(&self, role: Self::Role) -> Vec<Stretch>;
    /// Can it matter which of these deaths becomes known first?
    fn has_order(one: Self::Role, other: Self::Role) -> bool;
    /// Can this role run, now that another of its process has stopped where it did?
    fn can_run(&self, role: Self::Role) -> bool;
    /// The others learn of these deaths, in this order, recover and go on. Panics, or [`fail`]s, if
    /// anything is not as it should be.
    fn go_on(self, dead: &[Self::Role]);
}

/// One operation of one role.
#[derive(Debug)]
pub struct Operation<W: World> {
    /// Its name.
    pub name: &'static str,
    /// Whose it is.
    pub role: W::Role,
    /// Is there such a thing in this start?
    pub is_in: fn(Start<W::State>) -> bool,
    /// What goes before it, and is no part of it.
    pub prepare: fn(&mut W),
    /// The operation. It gives up where it would wait.
    pub run: fn(&mut W),
}

impl<W: World> Clone for Operation<W> {
    fn clone(&self) -> Self {
        Self { ..*self }
    }
}

/// Where a region lies.
#[must_use]
pub fn stretch(region: &Region) -> Stretch {
    let (base, bytes) = region.address();
    base.addr().get()..base.addr().get() + bytes
}

/// What the message of a number and a length holds.
#[must_use]
pub fn content(sequence: u64, bytes: usize) -> Vec<u8> {
    let mut next = sequence.wrapping_mul(37).wrapping_add(bytes as u64).to_le_bytes()[0];
    let mut content = vec![0; bytes];
    for byte in &mut content {
        *byte = next | 1;
        next = next.wrapping_add(3);
    }
    content
}

/// Ends a case: the oracle has found something.
pub fn fail(what: String) -> ! {
    // Not a panic, whose message would be printed where a mistake is meant to be found.
    resume_unwind(Box::new(what))
}

/// Ends a case unless something is so.
#[macro_export]
macro_rules! ensure {
    ($is_so:expr, $($what:tt)+) => {
        if !$is_so {
            $crate::engine::fail(format!($($what)+));
        }
    };
}

/// What one operation in one start came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Count {
    /// The operation.
    pub operation: &'static str,
    /// What becomes of slow receivers.
    pub policy: &'static str,
    /// The state it began in.
    pub state: &'static str,
    /// Its effects; a death after each has been tried, and one before the first.
    pub points: u64,
    /// Pairs of its points with points of a later operation of another role.
    pub pairs: u64,
}

/// What was found wrong, and where.
#[derive(Debug)]
pub struct Finding(pub String);

/// Something that goes wrong in a world before its operation.
pub type Mistake<W> = fn(&mut W);

/// Kills one role after another.
pub struct Engine<W: World> {
    mistake: Option<Mistake<W>>,
}

impl<W: World> std::fmt::Debug for Engine<W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine").finish_non_exhaustive()
    }
}

/// What is to be run: an operation, and the effects after which its role dies.
type Step<'a, W> = (&'a Operation<W>, Option<u64>);

impl<W: World> Engine<W> {
    /// With a mistake, kills where something is wrong: to show that it is found.
    #[must_use]
    pub const fn new(mistake: Option<Mistake<W>>) -> Self {
        Self { mistake }
    }

    /// Every operation in every start: completed, and dead after each effect; with pairs, each of
    /// these deaths followed by those of every operation of another role.
    ///
    /// # Errors
    /// The first thing that is not as it should be.
    ///
    /// # Panics
    /// If a thread cannot be had.
    pub fn run(&self, with_pairs: bool) -> Result<Vec<Count>, Finding> {
        // A start is a world of its own, and each thread has its own plan of deaths.
        let starts = Start::all(&W::policies());
        let left = Mutex::new(starts.into_iter().enumerate());
        let done = Mutex::new(Vec::new());
        let work = || {
            loop {
                let next = left.lock().expect("nobody panics with the lock held").next();
                let Some((index, start)) = next else { break };
                let counts = self.run_start(start, with_pairs);
                done.lock().expect("nobody panics with the lock held").push((index, counts));
            }
        };
        thread::scope(|scope| {
            let count = thread::available_parallelism().map_or(1, NonZero::get);
            (0..count).for_each(|_| _ = scope.spawn(work));
        });
        let mut done = done.into_inner().expect("nobody panics with the lock held");
        done.sort_by_key(|&(index, _)| index);
        let counts: Result<Vec<_>, _> = done.into_iter().map(|(_, counts)| counts).collect();
        Ok(counts?.concat())
    }

    fn run_start(&self, start: Start<W::State>, with_pairs: bool) -> Result<Vec<Count>, Finding> {
        let operations = W::operations();
        let here: Vec<_> = operations.iter().filter(|op| (op.is_in)(start)).collect();
        here.iter().map(|first| self.run_operation(start, first, &here, with_pairs)).collect()
    }

    fn run_operation(
        &self,
        start: Start<W::State>,
        first: &Operation<W>,
        others: &[&Operation<W>],
        with_pairs: bool,
    ) -> Result<Count, Finding> {
        let points = self.case(start, &[(first, None)])?.unwrap_or_default();
        let mut pairs = 0;
        for after in 0..=points {
            self.case(start, &[(first, Some(after))])?;
            if !with_pairs {
                continue;
            }
            for second in others.iter().filter(|second| second.role != first.role) {
                pairs += self.run_pair(start, (first, after), second)?;
            }
        }
        let (policy, state) = start.names();
        Ok(Count { operation: first.name, policy, state, points, pairs })
    }

    /// Every death of `second` after that of `first`; how many there are after any effect of both.
    fn run_pair(
        &self,
        start: Start<W::State>,
        (first, after): (&Operation<W>, u64),
        second: &Operation<W>,
    ) -> Result<u64, Finding> {
        let dead = (first, Some(after));
        let Some(points) = self.case(start, &[dead, (second, None)])? else { return Ok(0) };
        for later in 0..=points {
            self.case(start, &[dead, (second, Some(later))])?;
        }
        Ok(if after == 0 { 0 } else { points })
    }

    /// One history: the steps, then recovery, in either order of the deaths. Returns the effects of
    /// the last step; `None` if it could not run.
    fn case(&self, start: Start<W::State>, steps: &[Step<'_, W>]) -> Result<Option<u64>, Finding> {
        let dead: Vec<_> =
            steps.iter().filter(|(_, dies)| dies.is_some()).map(|(op, _)| op.role).collect();
        let mut orders = vec![dead.clone()];
        if let [one, other] = *dead
            && W::has_order(one, other)
        {
            orders.push(vec![other, one]);
        }
        let mut effects = None;
        for order in orders {
            effects = catch_unwind(AssertUnwindSafe(|| self.play(start, steps, &order)))
                .map_err(|payload| Finding(describe::<W>(start, steps, &*payload)))?;
        }
        Ok(effects)
    }

    fn play(&self, start: Start<W::State>, steps: &[Step<'_, W>], dead: &[W::Role]) -> Option<u64> {
        kill::begin(Vec::new(), STEPS_MAX);
        let mut world = W::new(start);
        kill::begin(world.shared(), STEPS_MAX);
        for (operation, _) in steps {
            (operation.prepare)(&mut world);
        }
        if let Some(mistake) = self.mistake {
            mistake(&mut world);
        }
        let mut effects = None;
        for &(operation, dies_after) in steps {
            if !world.can_run(operation.role) {
                return None;
            }
            let own = world.own(operation.role);
            let plan = Plan { role: operation.name, own, dies_after };
            effects = match kill::run(plan, || (operation.run)(&mut world)) {
                Ended::Finished((), effects) => Some(effects),
                Ended::Died => dies_after,
            };
        }
        world.go_on(dead);
        effects
    }
}

fn describe<W: World>(start: Start<W::State>, steps: &[Step<'_, W>], payload: &dyn Any) -> String {
    let (policy, state) = start.names();
    let mut text = format!("{policy}, {state}");
    for (operation, dies_after) in steps {
        let _ = match dies_after {
            Some(after) => write!(text, ", {} dead after {after}", operation.name),
            None => write!(text, ", {}", operation.name),
        };
    }
    let what = payload
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| payload.downcast_ref::<&str>().copied());
    format!("{text}: {}", what.unwrap_or("a panic"))
}
