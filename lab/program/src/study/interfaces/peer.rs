//! A comparison and its two processes: a client, and the services of corewire and of one rival.

use std::path::Path;
use std::time::Duration;

use corewire_harness::board::READY;
use corewire_harness::calls::ways::{Cores, WAYS, Way, first_processor};
use corewire_harness::calls::{Block, bind, check, serve, types};
use corewire_harness::places::Places;
use corewire_harness::role::{Role, Worker};
use corewire_harness::rounds::alternate;
use corewire_harness::setup::Setup;
use corewire_os::allocations;
use serde::{Deserialize, Serialize};

use super::bus::{self, Bus};
use super::results::Calls;
use super::rivals::Id;
use crate::study::failure::Failure;
use crate::study::program::PROGRAM;
use crate::study::results::ratios;

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

/// Both processes.
pub(crate) const CALLS_ROLE: Role<Order> = Role { name: "calls", work: follow };
/// The service of the thesis' types.
pub(crate) const TYPES_ROLE: Role<()> = Role { name: "types", work: types::work };

/// The way with this name.
pub(super) fn way(name: &str) -> Result<&'static Way, Failure> {
    let way = WAYS.iter().find(|way| way.name == name);
    way.ok_or_else(|| Failure::usage(format!("there is no way {name:?}")))
}

/// Places of a client and a service that are both workers.
pub(super) fn places(way: &Way) -> Result<Places, Failure> {
    match way.cores {
        Cores::Same => first_processor().map(Places::On),
        Cores::Apart => Ok(Places::Apart),
    }
}

/// Compares calls with those of a rival, which takes about so long.
pub(super) fn compare(order: &Order, time: Duration, scratch: &Path) -> Result<Calls, Failure> {
    let places = places(way(&order.way)?)?;
    let setup = Setup::new(PROGRAM, 2).places(places).time(4 * time);
    let mut crew = setup.scratch(scratch).crew()?;
    let bus = match (order.rival, places) {
        (Id::Dbus, Places::On(cpu)) => Some(Bus::start(crew.directory(), Some(cpu))?),
        (Id::Dbus, _) => Some(Bus::start(crew.directory(), None)?),
        (Id::Grpc, _) => None,
    };
    for index in 0..2 {
        bus::add_worker(&mut crew, bus.as_ref(), index, (&CALLS_ROLE, order))?;
    }
    crew.first_report()
}

fn follow(worker: &Worker, order: Order) -> Result<(), Failure> {
    if worker.index() == CLIENT {
        return call(worker, order);
    }
    order.rival.serve(worker.directory())?;
    worker.reach(READY);
    serve(&worker.domain()?)
}

fn call(worker: &Worker, order: Order) -> Result<(), Failure> {
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
    worker.report(&Calls {
        ratio: ratios(blocks.of(0), blocks.of(1)),
        call_ns: blocks.of(0).to_vec(),
        rival_ns: blocks.of(1).to_vec(),
        call_allocations: Some(allocations_of(call)?),
        rival_allocations: Some(allocations_of(call_rival)?),
        ..Calls::of(order.way, order.rival)
    })
}

/// Allocations of this thread in a call.
fn allocations_of(mut call: impl FnMut(u64) -> Result<(), Failure>) -> Result<f64, Failure> {
    let before = allocations::of_this_thread();
    (0..COUNTED).try_for_each(&mut call)?;
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
    let count = (allocations::of_this_thread() - before) as f64 / COUNTED as f64;
    Ok(count)
}
