//! The search: breadth first through every state that a model can reach.
//!
//! For a state that has been seen, only a fingerprint of 128 bits is kept. Two states are confused
//! with a probability of about n^2 / 2^129: below 10^-24 for ten million states. For each state the
//! search also keeps its parent and the number of the step that led to it; the shortest path to a
//! violation is replayed from these.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::hash::{BuildHasherDefault, Hash, Hasher};

/// A system of parties that take one step at a time.
pub trait Model {
    /// The contents of shared and private memory.
    type State: Clone + Hash;

    /// The state in which every run begins.
    fn initial(&self) -> Self::State;

    /// Every step that any party can take from `state`.
    fn steps(&self, state: &Self::State, steps: &mut Steps<Self::State>);

    /// Whether every live party has finished.
    fn is_done(&self, state: &Self::State) -> bool;

    /// One line of text for a trace.
    fn show(&self, state: &Self::State) -> String;
}

/// One step of one party.
#[derive(Debug)]
pub struct Step<S> {
    /// The party that takes it.
    pub actor: (&'static str, usize),
    /// What it does.
    pub name: &'static str,
    /// Whether progress may rely on this step. No progress argument may rely on a kill.
    pub helps: bool,
    /// The state after it, or the rule that it breaks.
    pub outcome: Result<S, &'static str>,
}

/// Collects the steps from one state.
#[derive(Debug)]
pub struct Steps<S>(Vec<Step<S>>);

impl<S> Steps<S> {
    /// Adds one step.
    pub fn push(&mut self, step: Step<S>) {
        self.0.push(step);
    }
}

/// The result of an exhaustive search.
#[derive(Debug, Clone, Copy)]
pub struct Report {
    /// Number of reachable states.
    pub states_count: usize,
    /// Number of states in which every live party has finished.
    pub final_count: usize,
    /// Number of steps between these states.
    pub steps_count: usize,
}

/// A broken rule, and the shortest path to it.
#[derive(Debug, Clone)]
pub struct Failure {
    /// The broken rule.
    pub rule: &'static str,
    /// Number of states seen until then.
    pub states_count: usize,
    /// One line for each step.
    pub trace: Vec<String>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} ({} states seen):", self.rule, self.states_count)?;
        self.trace.iter().try_for_each(|line| writeln!(f, "  {line}"))
    }
}

/// The rule that every live party can always finish, without another death or eviction.
pub const STUCK: &str = "somebody who lives can never finish";

/// Mixes words into two lanes of 64 bits.
#[derive(Default)]
struct Fingerprint([u64; 2]);

impl Fingerprint {
    fn mix(&mut self, word: u64) {
        let [low, high] = self.0;
        let low = (low ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let high = (high.rotate_left(23) ^ word).wrapping_mul(0xd6e8_feb8_6659_fd93);
        self.0 = [low ^ (low >> 29), high ^ (high >> 32)];
    }
}

impl Hasher for Fingerprint {
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.mix(u64::from_le_bytes(word));
        }
    }

    fn write_u8(&mut self, value: u8) {
        self.mix(value.into());
    }

    fn write_isize(&mut self, value: isize) {
        self.mix(value.unsigned_abs() as u64);
    }

    fn finish(&self) -> u64 {
        self.0[0]
    }
}

fn fingerprint(state: &impl Hash) -> u128 {
    let mut hasher = Fingerprint::default();
    state.hash(&mut hasher);
    // Mix once more, so that the last word affects every bit.
    hasher.mix(0);
    (u128::from(hasher.0[1]) << 64) | u128::from(hasher.0[0])
}

/// A fingerprint needs no further hashing.
#[derive(Default)]
struct Low(u64);

impl Hasher for Low {
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.0 ^= u64::from_le_bytes(word);
        }
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// The search so far. A state's number is its place in the order of discovery.
struct Search<'a, M: Model> {
    model: &'a M,
    numbers: HashMap<u128, u32, BuildHasherDefault<Low>>,
    /// For each state: its parent, and the number of the parent's step that led to it.
    origins: Vec<(u32, u16)>,
    waiting: VecDeque<M::State>,
    /// For each state, in order, the states to which its helpful steps lead.
    targets: Vec<u32>,
    /// For each state, the index in `targets` at which its own begin.
    offsets: Vec<usize>,
    done: Vec<bool>,
}

/// Visits every state of `model`.
///
/// # Errors
/// The first broken rule, with a shortest trace. [`STUCK`] is checked after all states are known.
///
/// # Panics
/// If there are more than 2^32 states or 2^16 steps from one state. No configuration comes near
/// that.
pub fn explore<M: Model>(model: &M) -> Result<Report, Failure> {
    let mut search = Search {
        model,
        numbers: HashMap::default(),
        origins: Vec::new(),
        waiting: VecDeque::new(),
        targets: Vec::new(),
        offsets: Vec::new(),
        done: Vec::new(),
    };
    search.number(model.initial(), (0, 0));
    let mut steps = Steps(Vec::new());
    let mut steps_count = 0;
    while let Some(state) = search.waiting.pop_front() {
        let parent = u32::try_from(search.offsets.len()).expect("fewer than 2^32 states");
        search.offsets.push(search.targets.len());
        search.done.push(model.is_done(&state));
        model.steps(&state, &mut steps);
        for (choice, step) in (0..).zip(steps.0.drain(..)) {
            steps_count += 1;
            match step.outcome {
                Err(rule) => return Err(search.failure(rule, parent, Some(choice))),
                Ok(next) => {
                    let target = search.number(next, (parent, choice));
                    if step.helps && target != parent {
                        search.targets.push(target);
                    }
                }
            }
        }
    }
    search.offsets.push(search.targets.len());
    if let Some(stuck) = search.stuck() {
        return Err(search.failure(STUCK, stuck, None));
    }
    let final_count = search.done.iter().filter(|&&done| done).count();
    Ok(Report { states_count: search.done.len(), final_count, steps_count })
}

impl<M: Model> Search<'_, M> {
    fn number(&mut self, state: M::State, origin: (u32, u16)) -> u32 {
        let fresh = u32::try_from(self.origins.len()).expect("fewer than 2^32 states");
        let number = *self.numbers.entry(fingerprint(&state)).or_insert(fresh);
        if number == fresh {
            self.origins.push(origin);
            self.waiting.push_back(state);
        }
        number
    }

    fn targets_of(&self, number: usize) -> &[u32] {
        &self.targets[self.offsets[number]..self.offsets[number + 1]]
    }

    /// A state from which no helpful steps lead to a final state. Prefers a state without any
    /// helpful step, since that shows best what is missing.
    fn stuck(&self) -> Option<u32> {
        let count = self.done.len();
        let mut starts = vec![0_u32; count + 1];
        for &target in &self.targets {
            starts[target as usize + 1] += 1;
        }
        for index in 0..count {
            starts[index + 1] += starts[index];
        }
        let mut free = starts.clone();
        let mut sources = vec![0_u32; self.targets.len()];
        for (source, number) in (0..count).zip(0_u32..) {
            for &target in self.targets_of(source) {
                let place = &mut free[target as usize];
                sources[*place as usize] = number;
                *place += 1;
            }
        }
        let mut finishes = self.done.clone();
        let mut todo: Vec<usize> = (0..count).filter(|&number| finishes[number]).collect();
        while let Some(number) = todo.pop() {
            for &source in &sources[starts[number] as usize..starts[number + 1] as usize] {
                if !std::mem::replace(&mut finishes[source as usize], true) {
                    todo.push(source as usize);
                }
            }
        }
        let mut stuck = (0..count).filter(|&number| !finishes[number]);
        let first = stuck.next()?;
        let dead_end = std::iter::once(first).chain(stuck).find(|&n| self.targets_of(n).is_empty());
        u32::try_from(dead_end.unwrap_or(first)).ok()
    }

    /// Replays the steps from the initial state to `number`, then takes step `choice` there.
    fn failure(&self, rule: &'static str, number: u32, choice: Option<u16>) -> Failure {
        let mut choices: Vec<u16> = choice.into_iter().collect();
        let mut at = number;
        while at != 0 {
            let (parent, choice) = self.origins[at as usize];
            choices.push(choice);
            at = parent;
        }
        let mut state = self.model.initial();
        let mut trace = vec![format!("{:<34}{}", "at first", self.model.show(&state))];
        for choice in choices.into_iter().rev() {
            let mut steps = Steps(Vec::new());
            self.model.steps(&state, &mut steps);
            let step = steps.0.swap_remove(choice.into());
            let label = format!("{} {}: {}", step.actor.0, step.actor.1, step.name);
            match step.outcome {
                Ok(next) => {
                    trace.push(format!("{label:<34}{}", self.model.show(&next)));
                    state = next;
                }
                Err(rule) => trace.push(format!("{label:<34}{rule}")),
            }
        }
        Failure { rule, states_count: self.origins.len(), trace }
    }
}
