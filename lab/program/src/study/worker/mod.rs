//! A process of a run: opens its end of a mechanism, does its part, and reports the results.

mod counters;
mod mark;
mod ping_pong;
mod stream;

use std::time::Duration;

use corewire_harness::board::READY;
use corewire_harness::role::{Role, Worker};
use serde::{Deserialize, Serialize};

use crate::study::failure::Failure;
use crate::study::mechanisms::{Id, Mechanism, Patience, Seat, Site, Visit, with};

pub(crate) use counters::why_absent as why_counters_are_absent;

/// The task of all processes of a run.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) enum Task {
    /// Messages one way, as many as possible, for this time.
    Stream { warm_up: Duration, measured: Duration },
    /// This many messages one way. System calls (`getppid`) mark the beginning and the end. If
    /// `is_late` and the mechanism loses messages instead of waiting, receivers start only after
    /// everything is sent.
    Count { messages: u64, is_late: bool },
    /// One message there and back, repeated for this time.
    PingPong { warm_up: Duration, measured: Duration },
}

/// Everything that a process needs to know.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Order {
    pub(crate) mechanism: Id,
    pub(crate) task: Task,
    /// One site; two for round trips: there and back.
    pub(crate) sites: Vec<Site>,
}

/// The results of a process.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Report {
    /// Messages sent or received between the marks.
    pub(crate) messages: u64,
    pub(crate) elapsed_ns: u64,
    /// Processor time of the whole process.
    pub(crate) cpu_ns: u64,
    pub(crate) instructions: Option<u64>,
    pub(crate) cache_misses: Option<u64>,
    /// Bytes that the mechanism's own code copied.
    pub(crate) copied_bytes: u64,
    /// Median of half of the round-trip time.
    pub(crate) p50_ns: f64,
    pub(crate) p99_ns: f64,
}

/// The processes of a run. Senders come first, then receivers.
pub(crate) const ROLE: Role<Order> = Role { name: "mechanism", work: follow };

/// The step of a worker that has received the mark that starts the measurement.
const STARTED: u64 = READY + 1;
/// The step of a worker that has received the mark that ends the measurement.
const ENDED: u64 = STARTED + 1;

/// Follows an order, and sends a report.
fn follow(worker: &Worker, order: Order) -> Result<(), Failure> {
    worker.report(&with(order.mechanism, Follow { order: &order, worker })?)
}

struct Follow<'a> {
    order: &'a Order,
    worker: &'a Worker,
}

impl Visit for Follow<'_> {
    type Out = Result<Report, Failure>;

    fn visit<M: Mechanism>(self) -> Result<Report, Failure> {
        let Self { order, worker } = self;
        let place = Place { order, worker, is_lossy: M::IS_LOSSY };
        let patience = Patience { must_yield: worker.must_yield() };
        let seat = Seat { board: worker.board(), patience };
        let site = |index: usize| {
            order.sites.get(index).ok_or_else(|| Failure::other("an order without a site"))
        };
        let (there, index) = (site(0)?, place.index());
        if let Task::PingPong { warm_up, measured } = order.task {
            let back = site(1)?;
            if index == 0 {
                let (mut sender, mut receiver) =
                    (M::sender(there, 0, seat)?, M::receiver(back, 0, seat)?);
                place.ready();
                return ping_pong::ask(
                    &mut sender,
                    &mut receiver,
                    there.shape.bytes,
                    [warm_up, measured],
                );
            }
            let mut receiver = M::receiver(there, 0, seat)?;
            let mut sender = M::sender(back, 0, seat)?;
            place.ready();
            return ping_pong::answer(&mut sender, &mut receiver, there.shape.bytes);
        }
        if let Some(receiver) = index.checked_sub(there.first_receiver) {
            let mut end = M::receiver(there, receiver, seat)?;
            place.ready();
            stream::receive(&mut end, &place, there)
        } else {
            let mut end = M::sender(there, index, seat)?;
            place.ready();
            stream::send(&mut end, &place, there)
        }
    }
}

/// The place of a worker in a run.
struct Place<'a> {
    order: &'a Order,
    worker: &'a Worker,
    is_lossy: bool,
}

impl Place<'_> {
    /// The index of this worker.
    fn index(&self) -> u32 {
        u32::try_from(self.worker.index()).unwrap_or(u32::MAX)
    }

    /// Announces that the ends of this process are open, and waits until all others are.
    fn ready(&self) {
        self.worker.reach(READY);
        self.worker.board().await_go();
    }
}
