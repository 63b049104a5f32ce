//! The two processes of a comparison: a client, and the services of corewire and of one rival.

use corewire_harness::board::READY;
use corewire_harness::calls::types;
use corewire_harness::calls::ways::{WAYS, Way};
use corewire_harness::calls::{Block, bind, check, serve};
use corewire_harness::role::{Role, Worker};
use corewire_harness::rounds::alternate;
use corewire_os::allocations;
use serde::{Deserialize, Serialize};

use super::rivals::Id;
use crate::study::failure::Failure;

/// The client is worker 0, and the service worker 1.
const CLIENT: usize = 0;
/// Calls whose allocations are counted.
const COUNTED: u64 = 1000;

/// What both processes need to know.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Order {
    /// The name of a [`Way`].
    pub(super) way: String,
    pub(super) rival: Id,
    pub(super) rounds: u64,
}

/// What the client measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Report {
    /// Mean time of a call in each block, in nanoseconds.
    pub(super) call_ns: Vec<f64>,
    pub(super) rival_ns: Vec<f64>,
    /// Allocations of the client's thread in a call.
    pub(super) call_allocations: f64,
    pub(super) rival_allocations: f64,
}

/// Both processes.
pub(crate) const CALLS_ROLE: Role<Order> = Role { name: "calls", work: follow };
/// The service of the thesis' types.
pub(crate) const TYPES_ROLE: Role<()> = Role { name: "types", work: types::work };

fn follow(worker: &Worker, order: Order) -> Result<(), Failure> {
    if worker.index() == CLIENT {
        return call(worker, &order);
    }
    order.rival.serve(worker.directory())?;
    worker.reach(READY);
    serve(&worker.domain()?)
}

fn call(worker: &Worker, order: &Order) -> Result<(), Failure> {
    worker.reach(READY);
    worker.board().await_go();
    let mut client = bind(&worker.domain()?, way(&order.way)?.driver)?;
    let mut rival = order.rival.connect(worker.directory())?;
    let mut call = |number| check(client.payload64_1(number), &number);
    let mut call_rival = |number| check(rival.call(number), &number);
    let [mut block, mut rival_block] = [Block::new(), Block::new()];
    let blocks = alternate(order.rounds, |_| {
        Ok::<_, Failure>([block.time_ns(&mut call)?, rival_block.time_ns(&mut call_rival)?])
    })?;
    let report = Report {
        call_ns: blocks.of(0).to_vec(),
        rival_ns: blocks.of(1).to_vec(),
        call_allocations: allocations_of(call)?,
        rival_allocations: allocations_of(call_rival)?,
    };
    worker.report(&report)
}

fn allocations_of(mut call: impl FnMut(u64) -> Result<(), Failure>) -> Result<f64, Failure> {
    let before = allocations::of_this_thread();
    (0..COUNTED).try_for_each(&mut call)?;
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
    let count = (allocations::of_this_thread() - before) as f64 / COUNTED as f64;
    Ok(count)
}

fn way(name: &str) -> Result<&'static Way, Failure> {
    WAYS.iter()
        .find(|way| way.name == name)
        .ok_or_else(|| Failure::usage(format!("there is no way {name:?}")))
}
