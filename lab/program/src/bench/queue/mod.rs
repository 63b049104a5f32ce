//! Jobs per second that workers do: a queue of corewire, and what other systems offer for it.
//!
//! In all ways but one a worker has one job at a time, and acknowledges it when it is done: what a kill loses or repeats is
//! one job. So has the bare loop, which is a line there and a line back for each worker.

mod bare;
mod corewire;
#[cfg(feature = "rivals")]
mod iceoryx2;
#[cfg(feature = "rivals")]
mod requests;
#[cfg(feature = "rivals")]
mod zeromq;

use std::ops::Range;

use ::corewire::Delivery;
use corewire_os::processor;
use corewire_ring::sync::Ordering::Relaxed;
use serde::{Deserialize, Serialize};

use super::latency::put_number;
use super::prelude::*;
use super::rivals::{PATIENCE, Rivals, await_step};

pub(super) const ROLE: Role<Order> = Role { name: "queue", work };

/// Jobs of a block, which takes some 10 ms.
const JOBS: u64 = 4000;
/// After this a block's end is told again.
const END_AGAIN_AFTER: Duration = Duration::from_millis(2);
/// The number of what ends a block at a worker.
const END: u64 = u64::MAX;
/// Number of polls between two checks that the workers run.
const POLLS: u64 = 1 << 16;

/// The words of a worker for a way, on the board: what its jobs add up to, and how many there were. Each way has its own,
/// because a worker is in the next block while the controller reads those of the last one.
const fn sum_word(way: Way) -> usize {
    2 * way as usize
}

const fn count_word(way: Way) -> usize {
    2 * way as usize + 1
}

/// A way to hand out jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Way {
    /// A bare loop.
    Bare,
    AtLeastOnce,
    AtMostOnce,
    /// A ROUTER, and a REQ for each worker.
    ZeromqRequests,
    /// PUSH and PULL, without acknowledgements.
    ZeromqPush,
    /// Requests and responses.
    Iceoryx2,
}

/// What a worker is to do.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Order {
    options: Options,
    ways: Vec<Way>,
    /// The processors that the bench may use.
    cpus: Vec<usize>,
}

/// Where a block ends at a worker, or goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    Job,
    End,
}

/// A way at the process that has the jobs.
trait Gives {
    /// Hands out jobs with these numbers, written into `job`. Returns when all are done.
    fn give(&mut self, jobs: Range<u64>, job: &mut [u8], crew: &mut Crew) -> Result<(), Failure>;

    /// Gives each worker a job with the number [`END`].
    fn end(&mut self, job: &mut [u8], crew: &mut Crew) -> Result<(), Failure>;

    /// Repeats that, for a way on which it may get lost.
    fn end_again(&mut self, _: &mut [u8]) -> Result<(), Failure> {
        Ok(())
    }
}

/// A way at a worker.
trait Takes {
    /// Does jobs by `act` until that says that the block ends.
    fn take(
        &mut self,
        worker: &Worker,
        act: &mut dyn FnMut(&[u8]) -> Result<Next, Failure>,
    ) -> Result<(), Failure>;
}

pub(super) fn run(options: &Options, report: &mut Report) -> Result<(), Failure> {
    let workers = options.receivers;
    let mut ways = vec![Way::Bare, Way::AtLeastOnce, Way::AtMostOnce];
    let rivals = Rivals::look();
    if rivals.zeromq {
        ways.extend([Way::ZeromqRequests, Way::ZeromqPush]);
    }
    ways.extend(rivals.iceoryx2.then_some(Way::Iceoryx2));
    let cpus = processor::allowed()?;
    let order = Order { options: options.clone(), ways, cpus };
    let setup = setup(workers).memory_bytes(bare::memory_bytes(options));
    let mut crew = setup.start(&ROLE, |_| order.clone())?;
    #[cfg(feature = "rivals")]
    crew.keep(Box::new(crate::rivals::iceoryx2::Leftovers::of(crew.directory(), 0)));
    let mut giving = order
        .ways
        .iter()
        .map(|&way| giver(way, &order, &crew))
        .collect::<Result<Vec<Box<dyn Gives>>, Failure>>()?;
    let mut job = vec![0; options.bytes];
    let mut step = 0;
    let blocks = alternate(options.rounds, |round| {
        let numbers = numbers(round, JOBS);
        let sum = numbers.clone().sum::<u64>();
        let mut rates = vec![];
        for (&way, giver) in order.ways.iter().zip(&mut giving) {
            let start = Instant::now();
            giver.give(numbers.clone(), &mut job, &mut crew)?;
            rates.push(per_second(JOBS, start));
            put_number(&mut job, END);
            giver.end(&mut job, &mut crew)?;
            step += 1;
            let again = || giver.end_again(&mut job);
            await_step(&mut crew, workers, step, END_AGAIN_AFTER, again)?;
            let all = |word| {
                let of = |worker| crew.board().word(worker, word).load(Relaxed);
                (0..workers).map(of).fold(0, u64::wrapping_add)
            };
            let (found, count) = (all(sum_word(way)), all(count_word(way)));
            if (found, count) != (sum, JOBS) {
                return Err(Failure::other(format!(
                    "{count} jobs were done where {JOBS} were due, and their sum is {found}"
                )));
            }
        }
        Ok(rates)
    })?;
    describe(options, &order.ways, &blocks, report);
    rivals.missing.into_iter().for_each(|sentence| report.note(sentence));
    drop(giving);
    crew.finish_with(report)
}

fn giver(way: Way, order: &Order, crew: &Crew) -> Result<Box<dyn Gives>, Failure> {
    let options = &order.options;
    Ok(match way {
        Way::Bare => Box::new(bare::Giver::new(options, crew)?),
        Way::AtLeastOnce => corewire::giver(Delivery::AtLeastOnce, options, crew)?,
        Way::AtMostOnce => corewire::giver(Delivery::AtMostOnce, options, crew)?,
        #[cfg(feature = "rivals")]
        Way::ZeromqRequests => zeromq::requests_giver(options, crew, &order.cpus)?,
        #[cfg(feature = "rivals")]
        Way::ZeromqPush => Box::new(zeromq::PushGiver::new(options, crew, &order.cpus)?),
        #[cfg(feature = "rivals")]
        Way::Iceoryx2 => iceoryx2::giver(options, crew)?,
        #[cfg(not(feature = "rivals"))]
        _ => return Err(Failure::other(super::NO_RIVALS)),
    })
}

fn taker(way: Way, order: &Order, worker: &Worker) -> Result<Box<dyn Takes>, Failure> {
    let options = &order.options;
    Ok(match way {
        Way::Bare => Box::new(bare::Taker::new(options, worker)?),
        Way::AtLeastOnce => corewire::taker(Delivery::AtLeastOnce, options, worker)?,
        Way::AtMostOnce => corewire::taker(Delivery::AtMostOnce, options, worker)?,
        #[cfg(feature = "rivals")]
        Way::ZeromqRequests => zeromq::requests_taker(options, worker, &order.cpus)?,
        #[cfg(feature = "rivals")]
        Way::ZeromqPush => Box::new(zeromq::PushTaker::new(options, worker, &order.cpus)?),
        #[cfg(feature = "rivals")]
        Way::Iceoryx2 => iceoryx2::taker(options, worker)?,
        #[cfg(not(feature = "rivals"))]
        _ => return Err(Failure::other(super::NO_RIVALS)),
    })
}

/// A worker, which does the jobs of all ways in turn: it reads them.
fn work(worker: &Worker, order: Order) -> Result<(), Failure> {
    let mut taking = order
        .ways
        .iter()
        .map(|&way| taker(way, &order, worker))
        .collect::<Result<Vec<Box<dyn Takes>>, Failure>>()?;
    let own = |word| worker.board().word(worker.index(), word);
    let mut step = 0;
    for _ in all(order.options.rounds) {
        for (&way, taker) in order.ways.iter().zip(&mut taking) {
            let (mut sum, mut count) = (0u64, 0);
            own(count_word(way)).store(count, Relaxed);
            taker.take(worker, &mut |job| {
                let number = job.first_chunk::<8>().map_or(0, |word| u64::from_le_bytes(*word));
                if number == END {
                    return Ok(Next::End);
                }
                black_box(job);
                sum = sum.wrapping_add(number);
                count += 1;
                own(count_word(way)).store(count, Relaxed);
                Ok(Next::Job)
            })?;
            own(sum_word(way)).store(sum, Relaxed);
            step += 1;
            worker.reach(step);
        }
    }
    Ok(())
}

fn describe(options: &Options, ways: &[Way], blocks: &Blocks, report: &mut Report) {
    report.value("bytes", options.bytes);
    report.value("workers", options.receivers);
    report.value("rounds", options.rounds);
    let block = |way| ways.iter().position(|&other| other == way);
    for (way, key, words) in [
        (Way::Bare, "bare", "bare lines, there and back"),
        (Way::AtLeastOnce, "at_least_once", "queue, at least once"),
        (Way::ZeromqRequests, "zeromq_requests", "ZeroMQ, ROUTER and REQ, acknowledged"),
        (Way::Iceoryx2, "iceoryx2_requests", "iceoryx2, requests and responses"),
        (Way::AtMostOnce, "at_most_once", "queue, at most once"),
        (Way::ZeromqPush, "zeromq_push", "ZeroMQ, PUSH and PULL, not acknowledged"),
    ] {
        let Some(block) = block(way) else { continue };
        let rate = blocks.median(block);
        report.value(&format!("{key}_jobs_per_s"), rate.round());
        report.note(format!("{words:<44} {:>10.1} thousand jobs/s", rate / 1e3));
    }
    let to = |over: Way, under: Way| Some(blocks.ratios(block(over)?, block(under)?));
    for (over, under, key, words) in [
        (Way::AtLeastOnce, Way::Bare, "ratio", "at least once, to the bare lines"),
        (
            Way::AtLeastOnce,
            Way::ZeromqRequests,
            "zeromq_requests_ratio",
            "at least once, to ZeroMQ's ROUTER and REQ",
        ),
        (
            Way::AtLeastOnce,
            Way::Iceoryx2,
            "iceoryx2_requests_ratio",
            "at least once, to iceoryx2's requests",
        ),
        (Way::AtMostOnce, Way::Bare, "at_most_once_ratio", "at most once, to the bare lines"),
        (
            Way::AtMostOnce,
            Way::ZeromqPush,
            "zeromq_push_ratio",
            "at most once, to ZeroMQ's PUSH and PULL",
        ),
    ] {
        if let Some(ratios) = to(over, under) {
            report.ratios(key, words, &ratios);
        }
    }
    if block(Way::ZeromqPush).is_some() {
        report.note(
            "PUSH and PULL have no acknowledgement: jobs lie in buffers of a worker, and go with it. A ROUTER \
             and iceoryx2 leave it to the program to keep a job until it is done, and to learn that a worker has died.",
        );
    }
}
