//! One process of a run. The first one sends, the second one receives and acknowledges.

use std::time::{Duration, Instant};

use corewire_harness::board::READY;
use corewire_harness::line::LINES;
use corewire_harness::role::{Role, Worker};
use corewire_harness::rounds::nanoseconds;
use corewire_harness::statistics::{median, thousandths};
use corewire_os::processor::ticks;
use serde::{Deserialize, Serialize};

use super::results::{Case, Found, Repeat, SlowFound};
use super::styles::{CONTROL, End, Memory, Side, Taken};
use super::{Study, refusals, slow};
use crate::study::failure::Failure;

/// The heap of each endpoint, and what it grants: room for two of the longest messages.
const ROOM_BYTES: usize = 32 << 20;
/// Minimum number of blocks that are counted.
const BLOCKS_MIN: usize = 3;
/// Round trips of a bare line between two shapes.
const LINE_ROUNDS: u64 = 2 * LINES as u64;

/// A point of a figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Shape {
    pub(crate) repeat: Repeat,
    pub(crate) case: Case,
}

impl Shape {
    /// The sizes of the messages of a block. Every block has the same ones.
    fn sizes(self) -> Vec<usize> {
        let (bytes, is_random) = (self.case.bytes, self.repeat == Repeat::Transactions);
        let count = match bytes {
            ..=4096 => 256,
            4097..=65_536 => 64,
            _ if is_random => 64,
            65_537..=1_048_576 => 8,
            _ => 2,
        };
        if is_random { random_sizes(bytes, count) } else { vec![bytes; count] }
    }
}

/// `count` sizes up to `limit`: one of each part of the range, in an order without a pattern, so that the mean of every
/// block is half of the limit.
pub(super) fn random_sizes(limit: usize, count: usize) -> Vec<usize> {
    let mut dice = 0x9e37_79b9_7f4a_7c15_u64;
    let mut roll = |below: usize| {
        dice ^= dice << 13;
        dice ^= dice >> 7;
        dice ^= dice << 17;
        usize::try_from(dice % below.max(1) as u64).unwrap_or_default()
    };
    let bound = |part: usize| 1 + part * limit / count;
    let size = |(part, roll): (usize, usize)| (bound(part) + roll).min(limit);
    let rolls: Vec<_> =
        (0..count).map(|part| (part, roll(bound(part + 1) - bound(part)))).collect();
    let mut sizes: Vec<usize> = rolls.into_iter().map(size).collect();
    (1..count).for_each(|at| sizes.swap(at, roll(at + 1)));
    sizes
}

/// The results, in the order of the shapes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Report {
    pub(super) found: Vec<Found>,
    /// Of each of [`slow::SHAPES`].
    pub(super) slow: Vec<SlowFound>,
    /// The median of each of [`refusals::CALLS`], in nanoseconds.
    pub(super) refusals: Vec<f64>,
}

/// The two processes of a run.
pub(crate) const ROLE: Role<Study> = Role { name: "active", work: follow };

/// Follows an order. The first of the two processes sends a report.
fn follow(worker: &Worker, order: Study) -> Result<(), Failure> {
    let longest = order.shapes.iter().map(|shape| shape.case.bytes).max().unwrap_or_default();
    let mut memory = Memory::new(longest.max(slow::LONGEST));
    let mut granting = Side::open(worker, "granting", |it| it.heap(ROOM_BYTES).grants(ROOM_BYTES))?;
    let mut plain = Side::open(worker, "plain", |it| it.grants(0))?;
    worker.reach(READY);
    worker.board().await_go();
    let mut lines = worker.line_around(LINE_ROUNDS)?;
    let mut found = Vec::new();
    for &shape in &order.shapes {
        let side = if shape.case.style.is_active() { &mut granting } else { &mut plain };
        let mut end = End::new(side, &mut memory, shape.case)?;
        let asked = match worker.index() {
            0 => Some(ask(&mut end, shape, order.measured)?),
            _ => answer(&mut end, shape).map(|()| None)?,
        };
        end.finish()?;
        let line_ns = lines().map(|times| times.map(tenths));
        found.extend(asked.map(|asked| Found { line_ns, ..asked }));
    }
    let slow = slow::SHAPES.into_iter();
    let slow = slow.filter_map(|shape| slow::run(worker, shape, &mut plain, &memory).transpose());
    let slow = slow.collect::<Result<_, _>>()?;
    match refusals::run(worker)? {
        Some(refusals) => worker.report(&Report { found, slow, refusals }),
        None => Ok(()),
    }
}

/// Measures a shape.
fn ask(end: &mut End<'_>, shape: Shape, measured: Duration) -> Result<Found, Failure> {
    let sizes = shape.sizes();
    // Every byte of these is compared.
    block(end, shape, &sizes[..1])?;
    end.is_touched = shape.case.touched;
    block(end, shape, &sizes)?;
    let mut times = Vec::new();
    let begun = Instant::now();
    while begun.elapsed() < measured || times.len() < BLOCKS_MIN {
        times.push(nanoseconds(block(end, shape, &sizes)?));
    }
    end.side.say(CONTROL, 0)?;
    let mut hear = || end.side.hear(CONTROL);
    let taken = Taken { messages: hear()?, in_place: hear()?, copied: hear()? };
    let (block, blocks) = (sizes.len() as u64, times.len() as u64);
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
    let of = |part: u64| part as f64;
    let per_message = |part: u64| of(part) / of(taken.messages.max(1));
    Ok(Found {
        run: 0,
        count: blocks * block,
        p50_ns: tenths(median(times.iter().copied()) / of(block)),
        mean_ns: tenths(times.iter().sum::<f64>() / of(blocks * block)),
        in_place: thousandths(per_message(taken.in_place)),
        copied_bytes: tenths(per_message(taken.copied)),
        line_ns: None,
    })
}

/// A figure with one decimal.
fn tenths(figure: f64) -> f64 {
    (figure * 10.0).round() / 10.0
}

/// Sends messages of all `sizes`. Returns how many ticks it took.
fn block(end: &mut End<'_>, shape: Shape, sizes: &[usize]) -> Result<u64, Failure> {
    end.side.say(CONTROL, sizes.len() as u64)?;
    let start = ticks();
    for &bytes in sizes {
        end.give(bytes)?;
        if shape.repeat == Repeat::Trips {
            end.take()?;
        }
    }
    Ok(ticks() - start)
}

/// The other process: as many messages as it is told, until that is none. The first two blocks are not counted.
fn answer(end: &mut End<'_>, shape: Shape) -> Result<(), Failure> {
    for block in 0.. {
        let count = end.side.hear(CONTROL)?;
        end.is_touched = shape.case.touched || block == 0;
        if block == 2 {
            end.taken = Taken::default();
        }
        if count == 0 {
            break;
        }
        for _ in 0..count {
            end.take()?;
            if shape.repeat == Repeat::Trips {
                end.give(shape.case.bytes)?;
            }
        }
    }
    let Taken { messages, in_place, copied } = end.taken;
    [messages, in_place, copied].into_iter().try_for_each(|number| end.side.say(CONTROL, number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_sizes_cover_the_range_evenly() {
        for (limit, count) in [(48, 256), (4096, 256), (1 << 20, 64)] {
            let sizes = random_sizes(limit, count);
            assert_eq!(sizes.len(), count);
            assert!(sizes.iter().all(|size| (1..=limit).contains(size)));
            let mean = sizes.iter().sum::<usize>() / count;
            assert!(mean.abs_diff(limit / 2) <= limit / 50 + 1, "{mean} of {limit}");
            assert!(!sizes.is_sorted());
        }
    }
}
