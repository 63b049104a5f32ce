//! Which processor each process of a crew runs on.

use std::collections::BTreeSet;
use std::thread;

use corewire_os::processor::{self, pause_for};
use corewire_ring::broadcast::head_start_ns;
use corewire_ring::sync::pause;

use crate::failure::{Doing, Failure};

/// How the processes of a crew share the processors that this process may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Places {
    /// The controller takes part: it and each worker have a processor of their own.
    Beside,
    /// Each worker has a processor of its own; the controller runs where the kernel puts it.
    Apart,
    /// The controller and all workers share this processor.
    On(usize),
    /// All run where the kernel puts them.
    Anywhere,
}

/// The processors of a crew's processes. `None` means that the kernel chooses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Assignment {
    pub(super) controller: Option<usize>,
    pub(super) workers: Vec<Option<usize>>,
    /// Whether some processes do not have a processor of their own, so that all that poll must yield.
    pub(super) is_oversubscribed: bool,
}

impl Assignment {
    /// These processors in turn.
    pub(super) fn given(cpus: &[usize], workers: usize) -> Self {
        let workers: Vec<_> = cpus.iter().cycle().take(workers).copied().map(Some).collect();
        let apart: BTreeSet<_> = workers.iter().collect();
        let is_oversubscribed = apart.len() < workers.len();
        Self { controller: None, workers, is_oversubscribed }
    }
}

impl Places {
    /// The processors of `workers` workers and their controller. If there are too few for
    /// [`Places::Beside`] or [`Places::Apart`], no process is pinned.
    pub(super) fn assign(self, cpus: &[usize], workers: usize) -> Assignment {
        let controllers = usize::from(self == Self::Beside);
        let has_enough = cpus.len() >= workers + controllers;
        let (controller, places) = match self {
            Self::Beside | Self::Apart if has_enough => {
                let of_workers = cpus[controllers..].iter().copied().map(Some).take(workers);
                (cpus.first().copied().filter(|_| controllers > 0), of_workers.collect())
            }
            Self::On(cpu) => (Some(cpu), vec![Some(cpu); workers]),
            _ => (None, vec![None; workers]),
        };
        let is_apart = matches!(self, Self::Beside | Self::Apart) && has_enough;
        Assignment { controller, workers: places, is_oversubscribed: !is_apart }
    }

    /// The processors that a crew of `workers` workers uses: its own ones, or all if it is not pinned.
    ///
    /// ```
    /// use corewire_harness::places::Places;
    ///
    /// assert_eq!(Places::Beside.cores(&[0, 1, 2, 3], 1), [0, 1]);
    /// assert_eq!(Places::Beside.cores(&[0, 1], 3), [0, 1]);
    /// ```
    #[must_use]
    pub fn cores(self, cpus: &[usize], workers: usize) -> Vec<usize> {
        let Assignment { controller, workers, .. } = self.assign(cpus, workers);
        let mut cores: Vec<usize> =
            controller.into_iter().chain(workers.into_iter().flatten()).collect();
        cores.dedup();
        if cores.is_empty() { cpus.to_vec() } else { cores }
    }
}

/// Keeps this thread to one processor. When it is dropped, the thread may use those that it could use before.
#[derive(Debug)]
pub struct Pinned {
    before: Vec<usize>,
}

impl Pinned {
    /// Keeps this thread to processor `cpu`.
    ///
    /// # Errors
    /// If there is no such processor, or this process may not use it.
    pub fn to(cpu: usize) -> Result<Self, Failure> {
        let before = processor::allowed().doing("ask for processors")?;
        processor::pin_to(cpu).doing(format_args!("keep to processor {cpu}"))?;
        Ok(Self { before })
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        let _ = processor::keep_to(&self.before);
    }
}

/// Waits a moment in a loop that polls: yields the processor if there are too few of them.
#[inline(always)]
pub fn relax(must_yield: bool) {
    if must_yield { thread::yield_now() } else { pause() }
}

/// Waits as a receiver of a channel of `slots` slots does that finds no message after `run` messages: lets a sender that
/// streams get ahead, unless there are too few processors. Baselines do the same.
pub fn let_ahead(run: u64, slots: usize, must_yield: bool) {
    if !must_yield {
        pause_for(head_start_ns(run, slots as u64));
    }
}

/// Runs two functions at the same time, in a thread of its own each, pinned to processor `cpus[0]` and
/// `cpus[1]`.
///
/// # Errors
/// If a thread cannot be pinned. Both functions have run nevertheless, because each may wait for the
/// other.
pub fn on_two<A: Send, B: Send>(
    cpus: [usize; 2],
    first: impl FnOnce() -> A + Send,
    second: impl FnOnce() -> B + Send,
) -> Result<(A, B), Failure> {
    fn pinned<T>(cpu: usize, job: impl FnOnce() -> T) -> Result<T, Failure> {
        let pinned = processor::pin_to(cpu).doing(format_args!("keep to processor {cpu}"));
        let result = job();
        pinned.map(|()| result)
    }
    let panicked = |_| Failure::other("a measuring thread panicked");
    thread::scope(|scope| {
        let other = scope.spawn(|| pinned(cpus[1], second));
        let one = scope.spawn(|| pinned(cpus[0], first)).join().map_err(panicked)?;
        let other = other.join().map_err(panicked)?;
        Ok((one?, other?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_process_has_a_processor_or_none_is_pinned() {
        let enough = Places::Beside.assign(&[4, 5, 6], 2);
        assert_eq!(enough.controller, Some(4));
        assert_eq!(enough.workers, [Some(5), Some(6)]);
        assert!(!enough.is_oversubscribed);
        let too_few = Places::Beside.assign(&[4, 5], 2);
        assert_eq!((too_few.controller, too_few.is_oversubscribed), (None, true));
        assert_eq!(too_few.workers, [None, None]);
        let apart = Places::Apart.assign(&[4, 5], 2);
        assert_eq!((apart.controller, apart.is_oversubscribed), (None, false));
        assert_eq!(apart.workers, [Some(4), Some(5)]);
    }

    #[test]
    fn given_processors_are_used_in_turn() {
        let enough = Assignment::given(&[3, 1], 2);
        assert_eq!(
            (&enough.workers[..], enough.is_oversubscribed),
            (&[Some(3), Some(1)][..], false)
        );
        let too_few = Assignment::given(&[3, 1], 3);
        assert_eq!(too_few.workers, [Some(3), Some(1), Some(3)]);
        assert!(too_few.is_oversubscribed);
    }

    #[test]
    fn one_processor_for_all_is_too_few() {
        let on_one = Places::On(7).assign(&[7, 8], 1);
        assert_eq!(on_one.controller, Some(7));
        assert_eq!(on_one.workers, [Some(7)]);
        assert!(on_one.is_oversubscribed);
        assert_eq!(Places::On(7).cores(&[7, 8], 1), [7]);
        assert!(Places::Anywhere.assign(&[7, 8], 1).is_oversubscribed);
        assert_eq!(Places::Anywhere.cores(&[7, 8], 1), [7, 8]);
    }
}
