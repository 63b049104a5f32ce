//! A ring of processes: each passes a message on to the next one. With more processes than cores, this shows how a
//! mechanism waits: a process that polls keeps the one that must act from running.

use std::path::Path;
use std::time::{Duration, Instant};

use corewire_harness::board::READY;
use corewire_harness::places::Places;
use corewire_harness::role::{Role, Worker};
use corewire_harness::setup::Setup;
use corewire_harness::statistics::median;
use corewire_os::processor;
use serde::{Deserialize, Serialize};

use super::wires::{Id, Seat, Visit, Wire};
use crate::study::failure::{Doing, Failure};
use crate::study::program::PROGRAM;

/// Numbers of processes.
pub(super) const PROCESSES: [usize; 2] = [2, 8];
/// Bytes of the message.
const BYTES: usize = 8;
/// Blocks of rounds in a run, the first of which is not counted. Their median is the result of the run.
const BLOCKS: usize = 6;
const ROUNDS: u32 = 500;
/// Runs of each wire, in turn with the others.
pub(super) const RUNS: u32 = 3;
const TIME_MAX: Duration = Duration::from_secs(20);

/// Everything that a process needs to know.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Order {
    wire: Id,
    processes: usize,
}

/// What the first process measured: the time of a round, in each block, in nanoseconds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Report {
    rounds_ns: Vec<f64>,
}

/// A process of the ring.
pub(crate) const ROLE: Role<Order> = Role { name: "ring", work: follow };

fn follow(worker: &Worker, order: Order) -> Result<(), Failure> {
    order.wire.with(Follow { order: &order, worker })
}

struct Follow<'a> {
    order: &'a Order,
    worker: &'a Worker,
}

impl Visit for Follow<'_> {
    type Out = Result<(), Failure>;

    fn visit<W: Wire>(self) -> Result<(), Failure> {
        let Self { order, worker } = self;
        let mut wire = W::open(&Seat::of(worker, order.wire, order.processes, ""))?;
        worker.reach(READY);
        worker.board().await_go();
        let mut message = [0; BYTES];
        let mut rounds_ns = Vec::new();
        for _ in 0..BLOCKS {
            let start = Instant::now();
            for round in 0..ROUNDS {
                if worker.index() == 0 {
                    message = u64::from(round).to_le_bytes();
                    wire.send(&message)?;
                    wire.receive(&mut message)?;
                    if message != u64::from(round).to_le_bytes() {
                        return Err(Failure::other("a message came around damaged"));
                    }
                } else {
                    wire.receive(&mut message)?;
                    wire.send(&message)?;
                }
            }
            rounds_ns.push(start.elapsed().as_secs_f64() * 1e9 / f64::from(ROUNDS));
        }
        rounds_ns.remove(0);
        drop(wire);
        if worker.index() == 0 { worker.report(&Report { rounds_ns }) } else { Ok(()) }
    }
}

/// Runs a ring once. Returns the time of a round.
pub(super) fn run(id: Id, processes: usize, scratch: &Path) -> Result<f64, Failure> {
    let setup = Setup::new(PROGRAM, processes).places(Places::Anywhere);
    let mut crew = setup.time(TIME_MAX).scratch(scratch).crew()?;
    let order = Order { wire: id, processes };
    let is_crowded = processes > processor::allowed().doing("ask for processors")?.len();
    let mut commands = Vec::new();
    for index in 0..processes {
        commands.push(crew.command_of(index, &ROLE, &order)?);
    }
    if let Some(mut launcher) = id.launcher(&commands, is_crowded) {
        crew.add(&mut launcher)?;
    } else {
        for _ in 0..processes {
            crew.add_worker(&ROLE, &order)?;
        }
    }
    Ok(median(crew.first_report::<Report>()?.rounds_ns))
}
