//! Enumerates deaths. A [`World`] defines the roles that die and what must then hold.

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

/// Maximum number of accesses in one case, over all its roles. The longest cases take a few
/// thousand.
const STEPS_MAX: u64 = 1_000_000;

/// The roles around one ring, in one start.
pub trait World: Sized + 'static {
    /// The states in which an operation may begin.
    type State: State;
    /// The roles that may die.
    type Role: Copy + PartialEq + 'static;

    /// Every policy that the channel may have.
    fn policies() -> Vec<Policy>;
    /// Every operation.
    fn operations() -> Vec<Operation<Self>>;

    /// Creates the roles in this start.
    fn new(start: Start<Self::State>) -> Self;
    /// The memory that the roles share.
    fn shared(&self) -> Vec<Stretch>;
    /// The part of the shared memory that the kernel lets this role write.
    fn own(&self, role: Self::Role) -> Vec<Stretch>;
    /// Whether the order in which these two deaths become known can matter.
    fn has_order(one: Self::Role, other: Self::Role) -> bool;
    /// Whether this role can still run after another thread of its process stopped where it is now. It
    /// cannot if that thread holds a lock that this role needs.
    fn can_run(&self, role: Self::Role) -> bool;
    /// The other roles learn of these deaths in this order, recover and continue. Panics or calls
    /// [`fail`] if anything is wrong.
    fn go_on(self, dead: &[Self::Role]);
}

/// One operation of one role.
#[derive(Debug)]
pub struct Operation<W: World> {
    /// Its name.
    pub name: &'static str,
    /// The role that runs it.
    pub role: W::Role,
    /// Whether the operation exists in this start.
    pub is_in: fn(Start<W::State>) -> bool,
    /// Prepares the operation; not part of it.
    pub prepare: fn(&mut W),
    /// The operation. It gives up where it would have to wait.
    pub run: fn(&mut W),
}

impl<W: World> Clone for Operation<W> {
    fn clone(&self) -> Self {
        Self { ..*self }
    }
}

/// The addresses of a region.
#[must_use]
pub fn stretch(region: &Region) -> Stretch {
    let (base, bytes) = region.address();
    base.addr().get()..base.addr().get() + bytes
}

/// The content of a message with this number and length.
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

/// Ends a case because the oracle has found something wrong.
pub fn fail(what: String) -> ! {
    // This is not a panic, so no message is printed where a deliberate mistake must be found.
    resume_unwind(Box::new(what))
}

/// Ends a case unless the condition holds.
#[macro_export]
macro_rules! ensure {
    ($is_so:expr, $($what:tt)+) => {
        if !$is_so {
            $crate::engine::fail(format!($($what)+));
        }
    };
}

/// The result of one operation in one start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Count {
    /// The operation.
    pub operation: &'static str,
    /// The channel's policy for slow receivers.
    pub policy: &'static str,
    /// The state in which it began.
    pub state: &'static str,
    /// Number of its effects. A death after each was tried, and one before the first.
    pub points: u64,
    /// Number of pairs of its points with points of a later operation of another role.
    pub pairs: u64,
}

/// A failure, and the case in which it was found.
#[derive(Debug)]
pub struct Finding(pub String);

/// A deliberate mistake that changes a world before its operation.
pub type Mistake<W> = fn(&mut W);

/// Kills the roles one after another.
pub struct Engine<W: World> {
    mistake: Option<Mistake<W>>,
}

impl<W: World> std::fmt::Debug for Engine<W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine").finish_non_exhaustive()
    }
}

/// An operation to run, and the number of effects after which its role dies, if it dies.
type Step<'a, W> = (&'a Operation<W>, Option<u64>);

impl<W: World> Engine<W> {
    /// Creates an engine. With a mistake, it kills in worlds with that mistake, to show that the
    /// mistake is found.
    #[must_use]
    pub const fn new(mistake: Option<Mistake<W>>) -> Self {
        Self { mistake }
    }

    /// Runs every operation in every start: to its end, and with a death after each effect. With
    /// pairs, each of these deaths is followed by every death in every operation of another role.
    ///
    /// # Errors
    /// The first failure.
    ///
    /// # Panics
    /// If a thread cannot be started.
    pub fn run(&self, with_pairs: bool) -> Result<Vec<Count>, Finding> {
        // Each start is independent, and each thread has its own plan of deaths.
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

    /// Runs every death of `second` after that of `first`. Returns the number of pairs with at
    /// least one effect of each.
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

    /// Runs one case: the steps, then recovery, with the deaths in either order. Returns the number
    /// of effects of the last step, or `None` if it could not run.
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

    /// In each state these roles die, in this order, while no operation runs, and the others go on.
    pub fn die_between_operations(&self, dead: &[W::Role]) {
        for start in Start::all(&W::policies()) {
            self.play(start, &[], dead);
        }
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
