//! The bare loop: a line there with a job, a line back with its acknowledgement, for each worker.

use std::ops::Range;

use corewire_harness::board::part;
use corewire_published::yardstick::BareJobs;

use super::super::latency::put_number;
use super::super::prelude::*;
use super::{Gives, Next, POLLS, Takes};

/// The memory that all workers need.
pub(super) fn memory_bytes(options: &Options) -> usize {
    BareJobs::bytes(options.bytes) * options.receivers
}

struct Side {
    jobs: BareJobs,
    /// The number of the next one.
    next: u64,
    /// The one before it is not done.
    is_busy: bool,
}

pub(super) struct Giver(Vec<Side>);

impl Giver {
    pub(super) fn new(options: &Options, crew: &Crew) -> Result<Self, Failure> {
        let (memory, bytes) = (crew.board().work()?, BareJobs::bytes(options.bytes));
        let sides = (0..options.receivers).map(|worker| {
            let memory = part(&memory, worker * bytes, bytes)?;
            Ok(Side { jobs: BareJobs::new(&memory, options.bytes), next: 0, is_busy: false })
        });
        sides.collect::<Result<_, Failure>>().map(Self)
    }
}

impl Gives for Giver {
    fn give(
        &mut self,
        mut numbers: Range<u64>,
        job: &mut [u8],
        crew: &mut Crew,
    ) -> Result<(), Failure> {
        let mut polls = 0u64;
        loop {
            let (mut has_moved, mut is_done) = (false, true);
            for side in &mut self.0 {
                if side.is_busy && !side.jobs.is_done(side.next - 1) {
                    is_done = false;
                    continue;
                }
                side.is_busy = false;
                if let Some(number) = numbers.next() {
                    put_number(job, number);
                    side.jobs.give(side.next, job);
                    (side.next, side.is_busy) = (side.next + 1, true);
                    (has_moved, is_done) = (true, false);
                }
            }
            if is_done {
                return Ok(());
            }
            if !has_moved {
                polls += 1;
                relax_or_look(polls, crew)?;
            }
        }
    }

    fn end(&mut self, job: &mut [u8], _: &mut Crew) -> Result<(), Failure> {
        for side in &mut self.0 {
            side.jobs.give(side.next, job);
            (side.next, side.is_busy) = (side.next + 1, true);
        }
        Ok(())
    }
}

/// Waits a moment in a loop that polls, and checks at times that the workers run.
pub(super) fn relax_or_look(polls: u64, crew: &mut Crew) -> Result<(), Failure> {
    match polls.is_multiple_of(POLLS) {
        true => crew.look(),
        false => {
            corewire_harness::places::relax(crew.is_oversubscribed());
            Ok(())
        }
    }
}

pub(super) struct Taker {
    jobs: BareJobs,
    next: u64,
}

impl Taker {
    pub(super) fn new(options: &Options, worker: &Worker) -> Result<Self, Failure> {
        let bytes = BareJobs::bytes(options.bytes);
        let memory = part(&worker.board().work()?, worker.index() * bytes, bytes)?;
        Ok(Self { jobs: BareJobs::new(&memory, options.bytes), next: 0 })
    }
}

impl Takes for Taker {
    fn take(
        &mut self,
        worker: &Worker,
        act: &mut dyn FnMut(&[u8]) -> Result<Next, Failure>,
    ) -> Result<(), Failure> {
        loop {
            let acted = loop {
                match self.jobs.try_take(self.next, &mut *act) {
                    Some(acted) => break acted?,
                    None => worker.relax(),
                }
            };
            self.jobs.done(self.next);
            self.next += 1;
            if acted == Next::End {
                return Ok(());
            }
        }
    }
}
