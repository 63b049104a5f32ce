//! Jobs by requests: a worker asks for one, the reply is a job, and its next request says that the job is done. It is how
//! ZeroMQ's guide hands out jobs to workers ("The Load Balancing Pattern"), and fits all systems that have requests.

use std::collections::VecDeque;
use std::ops::Range;

use super::super::latency::put_number;
use super::super::prelude::*;
use super::{Gives, Next, Takes};

/// What a worker asks with first: it has no job that could be done.
pub(super) const READY: u64 = 0;
/// Its job is done.
pub(super) const DONE: u64 = 1;

/// The side that replies.
pub(super) trait Replies {
    /// What a reply needs.
    type Asker;

    /// Waits for a request, and returns what it says.
    fn await_request(&mut self, crew: &mut Crew) -> Result<(Self::Asker, u64), Failure>;

    fn reply(&mut self, to: Self::Asker, job: &[u8]) -> Result<(), Failure>;
}

pub(super) struct Giver<R: Replies> {
    replies: R,
    /// Those that wait for a job, the first one for longest.
    idle: VecDeque<R::Asker>,
    workers: usize,
}

impl<R: Replies> Giver<R> {
    pub(super) fn new(replies: R, options: &Options) -> Self {
        Self { replies, idle: VecDeque::new(), workers: options.receivers }
    }
}

impl<R: Replies> Gives for Giver<R> {
    fn give(
        &mut self,
        mut jobs: Range<u64>,
        job: &mut [u8],
        crew: &mut Crew,
    ) -> Result<(), Failure> {
        let mut running = 0;
        while !jobs.is_empty() || running > 0 {
            let asker = if jobs.is_empty() { None } else { self.idle.pop_front() };
            if let Some(asker) = asker {
                put_number(job, jobs.next().unwrap_or_default());
                self.replies.reply(asker, job)?;
                running += 1;
                continue;
            }
            let (asker, said) = self.replies.await_request(crew)?;
            running -= usize::from(said == DONE);
            self.idle.push_back(asker);
        }
        Ok(())
    }

    fn end(&mut self, job: &mut [u8], crew: &mut Crew) -> Result<(), Failure> {
        while self.idle.len() < self.workers {
            let (asker, _) = self.replies.await_request(crew)?;
            self.idle.push_back(asker);
        }
        self.idle.drain(..).try_for_each(|asker| self.replies.reply(asker, job))
    }
}

/// The side that asks.
pub(super) trait Asks {
    /// Says something, waits for a job and reads it.
    fn ask(
        &mut self,
        say: u64,
        worker: &Worker,
        read: &mut dyn FnMut(&[u8]) -> Result<Next, Failure>,
    ) -> Result<Next, Failure>;
}

pub(super) struct Taker<A>(pub(super) A);

impl<A: Asks> Takes for Taker<A> {
    fn take(
        &mut self,
        worker: &Worker,
        act: &mut dyn FnMut(&[u8]) -> Result<Next, Failure>,
    ) -> Result<(), Failure> {
        let mut say = READY;
        while self.0.ask(say, worker, act)? == Next::Job {
            say = DONE;
        }
        Ok(())
    }
}
