//! One process of a run: makes each call, checks what it returns, and times blocks of calls that follow each other.

use std::time::Instant;

use corewire_harness::board::READY;
use corewire_harness::line::LINES;
use corewire_harness::role::{Role, Worker};
use corewire_harness::statistics::median;
use serde::{Deserialize, Serialize};

use super::library::{Collective, Id, Mpi, Own, Values};
use super::results::{Call, Shape};
use crate::study::distances::Lines;
use crate::study::failure::Failure;

/// Blocks of calls, the first of which is not counted.
const BLOCKS: usize = 7;
/// Blocks of barriers before the first call that is measured.
const WARM_UP_BLOCKS: usize = 20;
const WARM_UP_CALLS: u32 = 1000;
/// A block with more bytes has fewer calls.
const LONG_BYTES: usize = 1024;
/// Round trips of a bare line between two calls.
const LINE_ROUNDS: u64 = LINES as u64;

/// Everything that a process needs to know.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Order {
    pub(crate) library: Id,
    pub(crate) processes: usize,
    /// Short calls of a block.
    pub(crate) calls: u32,
}

/// What the first process measured: the time of each call, in the order of [`Shape::all`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Report {
    pub(crate) found: Vec<(f64, Lines)>,
}

/// A process of a run.
pub(crate) const ROLE: Role<Order> = Role { name: "collective", work: follow };

fn follow(worker: &Worker, order: Order) -> Result<(), Failure> {
    let found = match order.library {
        Id::Corewire => measure(worker, &order, &mut Own::open(worker, order.processes)?)?,
        Id::OpenMpi => {
            let mut mpi = Mpi::open()?;
            let found = measure(worker, &order, &mut mpi);
            if found.is_err() {
                // It would wait for the others.
                std::mem::forget(mpi);
            }
            found?
        }
    };
    if worker.index() == 0 { worker.report(&Report { found }) } else { Ok(()) }
}

fn measure(
    worker: &Worker,
    order: &Order,
    all: &mut impl Collective,
) -> Result<Vec<(f64, Lines)>, Failure> {
    let rank = all.rank();
    if rank != worker.index() {
        return Err(Failure::other(format!("process {} has rank {rank}", worker.index())));
    }
    worker.reach(READY);
    worker.board().await_go();
    let mut lines = worker.board().raw_line()?;
    let mut line = || match (worker.cpu(), worker.index()) {
        (Some(_), 0) => Some(lines.ask(LINE_ROUNDS)),
        (Some(_), 1) => {
            lines.answer(LINE_ROUNDS);
            None
        }
        _ => None,
    };
    // The kernel needs a while until it has spread the processes over the processors.
    let mut barriers = Buffers::new(Shape::BARRIER, order.processes);
    for _ in 0..WARM_UP_BLOCKS {
        barriers.block(all, WARM_UP_CALLS)?;
    }
    let mut found = Vec::new();
    let mut before = line();
    for shape in Shape::all() {
        let mut buffers = Buffers::new(shape, order.processes);
        buffers.check(all)?;
        let calls = if shape.bytes > LONG_BYTES { order.calls.div_ceil(20) } else { order.calls };
        let mut blocks = Vec::new();
        for _ in 0..BLOCKS {
            blocks.push(buffers.block(all, calls)?);
        }
        blocks.remove(0);
        let after = line();
        found.push((median(blocks), before.zip(after).map(|(before, after)| [before, after])));
        before = after;
    }
    Ok(found)
}

/// A call and its values.
struct Buffers {
    shape: Shape,
    values: Values,
}

impl Buffers {
    fn new(shape: Shape, processes: usize) -> Self {
        let words = shape.bytes / 8;
        let (own, all) = (vec![1; words], vec![1; words * processes]);
        Self { shape, values: Values { own, received: all.clone(), all } }
    }

    /// The time of a call, in nanoseconds.
    fn block(&mut self, all: &mut impl Collective, calls: u32) -> Result<f64, Failure> {
        all.call(Call::Barrier, &mut self.values)?;
        let start = Instant::now();
        for _ in 0..calls {
            all.call(self.shape.call, &mut self.values)?;
        }
        // A broadcast ends at process 0 before it does at the others, and so does a gathering at the others.
        all.call(Call::Barrier, &mut self.values)?;
        Ok(start.elapsed().as_secs_f64() * 1e9 / f64::from(calls))
    }

    /// Makes the call once, and compares every word of the result.
    fn check(&mut self, library: &mut impl Collective) -> Result<(), Failure> {
        let Self { shape: Shape { call, bytes }, values } = self;
        let (words, rank) = (values.own.len(), library.rank());
        let processes = values.all.len().checked_div(words).unwrap_or(0);
        // Word `at` of the part of process `from` for process `to`.
        let word = |from: usize, to: usize, at: usize| (from * 10_000 + to * 1_000_000 + at) as u64;
        for (at, value) in values.own.iter_mut().enumerate() {
            *value = word(rank, 0, at);
        }
        for (at, value) in values.all.iter_mut().enumerate() {
            *value = word(rank, at / words, at % words);
        }
        library.call(*call, values)?;
        let sum = |at: usize| (0..processes).map(|from| word(from, 0, at)).sum::<u64>();
        let Values { own, all, received } = values;
        let wrong = match call {
            Call::Barrier => false,
            Call::Broadcast => differs(own, |at| word(0, 0, at)),
            Call::Reduce => rank == 0 && differs(own, sum),
            Call::Allreduce => differs(own, sum),
            Call::Gather => rank == 0 && differs(all, |at| word(at / words, 0, at % words)),
            Call::AllToAll => differs(received, |at| word(at / words, rank, at % words)),
        };
        if wrong {
            let call = call.name();
            return Err(Failure::other(format!("{call} of {bytes} bytes returned wrong values")));
        }
        Ok(())
    }
}

fn differs(values: &[u64], expected: impl Fn(usize) -> u64) -> bool {
    values.iter().enumerate().any(|(at, value)| *value != expected(at))
}
