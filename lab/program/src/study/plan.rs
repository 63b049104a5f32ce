//! The plan: what is measured, in which order, and how long it takes.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::study::job::Job;
use crate::study::mechanisms::{Id, Shape};
use crate::study::results::Kind;
use crate::study::worker::Task;

/// The paper's sizes, and 48 bytes, the maximum that fits into a slot of corewire.
const SIZES: [usize; 10] = [1, 48, 64, 128, 512, 1 << 10, 4 << 10, 10 << 10, 100 << 10, 1 << 20];
/// Additional sizes with `--large`.
const LARGE_SIZES: [usize; 2] = [10 << 20, 100 << 20];
/// Sizes where not all are measured: a message of one line, and one of one page.
const FEW_SIZES: [usize; 2] = [64, 4 << 10];
/// Numbers of receivers that are measured on every machine, even with fewer cores.
const RECEIVERS: [u32; 4] = [1, 2, 3, 8];
/// Approximate time to start and to end a run.
const AROUND: Duration = Duration::from_millis(60);
/// Table I: lengths of messages, numbers of receivers.
const COUNTED: [(usize, u32); 4] = [(64, 1), (64, 3), (4 << 10, 1), (100 << 10, 1)];

/// How thoroughly to measure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Effort {
    /// All sizes for one receiver, two sizes for more receivers; takes minutes.
    Quick,
    /// All sizes for some numbers of receivers.
    Default,
    /// As in the paper: two minutes for each point, every number of receivers up to the number of
    /// cores.
    Full,
}

/// Everything that was requested. Two studies with the same plan are the same study.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Plan {
    pub(crate) effort: Effort,
    pub(crate) run: Duration,
    /// Number of runs of each point.
    pub(crate) runs: u32,
    pub(crate) cores: usize,
    pub(crate) mechanisms: Vec<Id>,
    /// Runs of throughput; for each shape, all mechanisms run in turn.
    pub(crate) shapes: Vec<Shape>,
    /// Message sizes of the round trips.
    pub(crate) latency_sizes: Vec<usize>,
    /// The shapes of Table I: lengths of messages, numbers of receivers.
    pub(crate) counted: Vec<(usize, u32)>,
}

/// The part of the plan that the command line gives.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Wishes {
    pub(crate) large: bool,
    /// Empty for all.
    pub(crate) mechanisms: Vec<Id>,
    /// Empty for the paper's sizes.
    pub(crate) sizes: Vec<usize>,
    /// Empty for the numbers of the effort.
    pub(crate) receivers: Vec<u32>,
}

impl Plan {
    /// The plan for a machine of `cores` cores.
    pub(crate) fn new(effort: Effort, wishes: Wishes, all: &[Id], cores: usize) -> Self {
        let or = |wished: Vec<_>, else_: &[usize]| {
            if wished.is_empty() { else_.to_vec() } else { wished }
        };
        let mut sizes = or(wishes.sizes, &SIZES);
        if wishes.large {
            sizes.extend(LARGE_SIZES);
        }
        sizes.sort_unstable();
        sizes.dedup();
        let few: Vec<usize> =
            sizes.iter().copied().filter(|size| FEW_SIZES.contains(size)).collect();
        let few = if few.is_empty() { sizes.clone() } else { few };
        let receivers =
            if wishes.receivers.is_empty() { receivers(effort, cores) } else { wishes.receivers };
        let mut shapes = Vec::new();
        for &receivers in &receivers {
            let some = if effort == Effort::Quick && receivers > 1 { &few } else { &sizes };
            shapes.extend(some.iter().map(|&bytes| Shape { bytes, receivers, senders: 1 }));
        }
        for &senders in senders(effort) {
            shapes.extend(few.iter().map(|&bytes| Shape { bytes, receivers: 1, senders }));
        }
        let latency_sizes = if effort == Effort::Quick { few } else { sizes.clone() };
        let mechanisms =
            if wishes.mechanisms.is_empty() { all.to_vec() } else { wishes.mechanisms };
        let counted = COUNTED.into_iter().filter(|(bytes, _)| sizes.contains(bytes)).collect();
        let (run, runs) = (run(effort), 3);
        Self { effort, run, runs, cores, mechanisms, shapes, latency_sizes, counted }
    }

    /// The runs of throughput. The runs of one shape follow each other, so that what is compared is
    /// measured within seconds; every other time the order of the mechanisms is reversed.
    pub(crate) fn streams(&self) -> impl Iterator<Item = (Job, u32)> + '_ {
        let task = Task::Stream { warm_up: self.warm_up(), measured: self.run };
        self.shapes.iter().flat_map(move |&shape| self.in_turn(shape, task))
    }

    /// The runs of round trips, in the same order.
    pub(crate) fn round_trips(&self) -> impl Iterator<Item = (Job, u32)> + '_ {
        let task = Task::PingPong { warm_up: self.warm_up(), measured: self.run / 2 };
        let shape = |&bytes: &usize| Shape { bytes, receivers: 1, senders: 1 };
        self.latency_sizes.iter().map(shape).flat_map(move |shape| self.in_turn(shape, task))
    }

    fn in_turn(&self, shape: Shape, task: Task) -> impl Iterator<Item = (Job, u32)> + '_ {
        (0..self.runs).flat_map(move |run| {
            let count = self.mechanisms.len();
            (0..count).map(move |index| {
                let index = if run % 2 == 0 { index } else { count - 1 - index };
                (Job { mechanism: self.mechanisms[index], shape, task }, run)
            })
        })
    }

    /// The runs in which system calls are counted.
    pub(crate) fn counts(&self) -> impl Iterator<Item = Job> + '_ {
        self.counted.iter().flat_map(|&(bytes, receivers)| {
            let shape = Shape { bytes, receivers, senders: 1 };
            self.mechanisms.iter().map(move |&mechanism| {
                let task = Task::Count { messages: messages(mechanism, bytes), is_late: false };
                Job { mechanism, shape, task }
            })
        })
    }

    fn warm_up(&self) -> Duration {
        (self.run / 5).clamp(Duration::from_millis(20), Duration::from_secs(2))
    }

    /// Approximate time of one run of a job.
    pub(crate) fn time_of(&self, job: &Job) -> Duration {
        match job.task {
            Task::Stream { warm_up, measured } | Task::PingPong { warm_up, measured } => {
                warm_up + measured + AROUND
            }
            Task::Count { .. } => 4 * AROUND,
        }
    }

    /// Approximate time of all runs together.
    pub(crate) fn time(&self) -> Duration {
        let runs = self.streams().chain(self.round_trips()).map(|(job, _)| job);
        runs.chain(self.counts()).map(|job| self.time_of(&job)).sum()
    }
}

fn run(effort: Effort) -> Duration {
    match effort {
        Effort::Quick => Duration::from_millis(120),
        Effort::Default => Duration::from_millis(400),
        Effort::Full => Duration::from_secs(120),
    }
}

/// The numbers that are always measured, and some or all of those for which each process has a core.
fn receivers(effort: Effort, cores: usize) -> Vec<u32> {
    let most = u32::try_from(cores.saturating_sub(1)).unwrap_or(u32::MAX);
    let mut receivers = RECEIVERS.to_vec();
    match effort {
        Effort::Quick => {}
        Effort::Default => {
            receivers.extend([4, 6, 12, 16, 23, 32, 64, most].iter().filter(|&&it| it <= most))
        }
        Effort::Full => receivers.extend(1..=most),
    }
    receivers.retain(|&receivers| receivers > 0);
    receivers.sort_unstable();
    receivers.dedup();
    receivers
}

fn senders(effort: Effort) -> &'static [u32] {
    match effort {
        Effort::Quick => &[2],
        Effort::Default | Effort::Full => &[2, 4],
    }
}

/// Enough messages to detect a thousandth of a call where none is expected, but not too many where each
/// call takes two stops.
fn messages(mechanism: Id, bytes: usize) -> u64 {
    let enters_kernel =
        mechanism.about().kind == Kind::Kernel || mechanism == Id::SharedMemorySemaphores;
    match (enters_kernel, bytes) {
        (true, ..4096) => 500,
        (true, ..=4096) => 200,
        (true, _) => 20,
        (false, ..4096) => 50_000,
        (false, ..=4096) => 20_000,
        (false, _) => 5_000,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quick_run_has_all_sizes_for_one_receiver_and_two_for_more() {
        let plan = Plan::new(Effort::Quick, Wishes::default(), &[Id::Zimp, Id::Pipe], 2);
        let sizes = |receivers, senders| {
            let of = |shape: &&Shape| (shape.receivers, shape.senders) == (receivers, senders);
            plan.shapes.iter().filter(of).map(|shape| shape.bytes).collect::<Vec<_>>()
        };
        assert_eq!(sizes(1, 1), SIZES);
        for receivers in [2, 3, 8] {
            assert_eq!(sizes(receivers, 1), FEW_SIZES);
        }
        assert_eq!(sizes(1, 2), FEW_SIZES);
        assert!(plan.time() < Duration::from_secs(60));
    }

    #[test]
    fn mechanisms_take_turns_and_change_their_order() {
        let wishes = Wishes { sizes: vec![64], receivers: vec![1], ..Wishes::default() };
        let plan = Plan::new(Effort::Quick, wishes, &[Id::Zimp, Id::Pipe], 2);
        let order: Vec<_> = plan.streams().take(6).map(|(job, run)| (job.mechanism, run)).collect();
        let (zimp, pipe) = (Id::Zimp, Id::Pipe);
        assert_eq!(order, [(zimp, 0), (pipe, 0), (pipe, 1), (zimp, 1), (zimp, 2), (pipe, 2)]);
    }

    #[test]
    fn a_full_run_has_every_number_of_receivers() {
        assert_eq!(receivers(Effort::Full, 5), [1, 2, 3, 4, 8]);
        assert_eq!(receivers(Effort::Default, 24), [1, 2, 3, 4, 6, 8, 12, 16, 23]);
    }
}
