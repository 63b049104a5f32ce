//! Decides which core runs next: the one with the earliest clock. A role runs one call at a time, so
//! its stores within a call become visible together, as from a store buffer. A role that finds nothing
//! to do waits for a change of a line that it has read, like a core that polls a line in its own cache.

use crate::caches::Caches;

/// Result of one call of a role.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// It made progress.
    Did,
    /// There was nothing to do, according to the lines that it read.
    Waits,
    /// It has finished.
    Done,
}

/// One party of a protocol. It runs on the core that has its number.
pub trait Role {
    /// Makes one call.
    fn step(&mut self) -> Step;
}

/// How fast messages follow each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rhythm {
    /// As fast as the senders can.
    Stream,
    /// Role 0, the sender, waits until no other role has anything to do. This wait reads a wall clock,
    /// so it costs no access.
    OneByOne,
}

/// Every role that has not finished is waiting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{waiting} roles wait for each other, role {first} first")]
pub struct Stuck {
    /// Number of waiting roles.
    pub waiting: usize,
    /// The first of them.
    pub first: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Ready,
    Waiting,
    Done,
}

/// Runs all roles until they finish. The seed decides between cores whose clocks are equal.
///
/// # Errors
/// [`Stuck`].
pub fn run(
    caches: &Caches,
    roles: &mut [Box<dyn Role>],
    rhythm: Rhythm,
    seed: u64,
) -> Result<(), Stuck> {
    let mut states = vec![State::Ready; roles.len()];
    for turn in 0u64.. {
        let ready = (0..roles.len()).filter(|&core| states[core] == State::Ready);
        let order = |&core: &usize| {
            let is_last = rhythm == Rhythm::OneByOne && core == 0;
            (is_last, caches.now_ns(core), mixed(seed, turn, core))
        };
        let Some(core) = ready.min_by_key(order) else { break };
        if rhythm == Rhythm::OneByOne && core == 0 {
            let done_ns = (0..roles.len()).map(|core| caches.done_ns(core)).max();
            caches.pass_until(0, done_ns.unwrap_or(0));
        }
        caches.forget_reads(core);
        states[core] = match caches.run_as(core, || roles[core].step()) {
            Step::Did => State::Ready,
            Step::Done => State::Done,
            Step::Waits => {
                caches.await_change(core);
                State::Waiting
            }
        };
        for (woken, at_ns) in caches.take_woken() {
            if states[woken] == State::Waiting {
                caches.wake_at(woken, at_ns);
                states[woken] = State::Ready;
            }
        }
    }
    let mut waiting = (0..roles.len()).filter(|&core| states[core] == State::Waiting);
    match waiting.next() {
        None => Ok(()),
        Some(first) => Err(Stuck { waiting: 1 + waiting.count(), first }),
    }
}

/// A number that depends on all arguments (the finalizer of `SplitMix64`).
fn mixed(seed: u64, turn: u64, core: usize) -> u64 {
    let mut bits = seed ^ turn.rotate_left(32) ^ (core as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    for (shift, factor) in [(30, 0xbf58_476d_1ce4_e5b9), (27, 0x94d0_49bb_1331_11eb)] {
        bits = (bits ^ (bits >> shift)).wrapping_mul(factor);
    }
    bits ^ (bits >> 31)
}
