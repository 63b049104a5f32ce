//! A queue of corewire.

use std::ops::Range;

use ::corewire::{Delivery, Domain, Queue, QueueBuilder, Worker as QueueWorker};

use super::super::latency::put_number;
use super::super::prelude::*;
use super::{Gives, Next, PATIENCE, Takes};

fn builder(domain: &Domain, delivery: Delivery, options: &Options) -> QueueBuilder {
    match delivery {
        Delivery::AtMostOnce => domain.queue("at-most-once").at_most_once(),
        _ => domain.queue("at-least-once"),
    }
    .largest(options.bytes)
    .wait(options.wait())
}

struct Giver {
    queue: Queue,
    workers: usize,
}

pub(super) fn giver(
    delivery: Delivery,
    options: &Options,
    crew: &Crew,
) -> Result<Box<dyn Gives>, Failure> {
    let queue = builder(crew.domain()?, delivery, options).create()?;
    Ok(Box::new(Giver { queue, workers: options.receivers }))
}

impl Gives for Giver {
    fn give(&mut self, jobs: Range<u64>, job: &mut [u8], _: &mut Crew) -> Result<(), Failure> {
        for number in jobs {
            put_number(job, number);
            self.queue.push(job)?;
        }
        match self.queue.wait_until_done(PATIENCE)? {
            true => Ok(()),
            false => Err(Failure::other(format!("not done in time: {:?}", self.queue.view()))),
        }
    }

    fn end(&mut self, job: &mut [u8], _: &mut Crew) -> Result<(), Failure> {
        // A worker that has got one takes no other job.
        (0..self.workers).try_for_each(|_| Ok(self.queue.push(job)?))
    }
}

struct Taker(QueueWorker);

pub(super) fn taker(
    delivery: Delivery,
    options: &Options,
    worker: &Worker,
) -> Result<Box<dyn Takes>, Failure> {
    let builder = builder(&worker.domain()?, delivery, options);
    Ok(Box::new(Taker(builder.worker_timeout(PATIENCE)?)))
}

impl Takes for Taker {
    fn take(
        &mut self,
        _: &Worker,
        act: &mut dyn FnMut(&[u8]) -> Result<Next, Failure>,
    ) -> Result<(), Failure> {
        while let Some(job) = self.0.take()? {
            let acted = act(&job)?;
            job.done()?;
            if acted == Next::End {
                return Ok(());
            }
        }
        Err(Failure::other("the queue is finished"))
    }
}
