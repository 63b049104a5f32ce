//! A process of a run: opens its end of a mechanism, does its part, and reports the results.

mod mark;
mod ping_pong;
mod stream;

use std::path::Path;
use std::time::Duration;

use corewire_harness::board::READY;
use corewire_harness::crew::Crew;
use corewire_harness::places::Places;
use corewire_harness::role::{Role, Worker};
use corewire_harness::setup::Setup;
use serde::{Deserialize, Serialize};

use super::results::Run;
use crate::study::failure::Failure;
use crate::study::mechanisms::{Id, Mechanism, Patience, Seat, Shape, Site, Visit, set_up, with};
use crate::study::program::PROGRAM;

/// A run takes longer when every system call is counted.
const COUNTING: Duration = Duration::from_secs(60);

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

/// Starts the processes of a run. `scratch` is for sockets and other temporary files.
pub(super) fn start(id: Id, shape: Shape, task: Task, scratch: &Path) -> Result<Crew, Failure> {
    let processes = (shape.senders + shape.receivers) as usize;
    let (time, first_receivers) = match task {
        Task::Stream { warm_up, measured } => (warm_up + measured, vec![shape.senders]),
        Task::PingPong { warm_up, measured } => (warm_up + measured, vec![1, 0]),
        Task::Count { .. } => (COUNTING, vec![shape.senders]),
    };
    let setup = Setup::new(PROGRAM, processes).places(Places::Apart);
    let mut crew = setup.time(time).scratch(scratch).crew()?;
    let mut sites = Vec::new();
    for (number, first_receiver) in first_receivers.into_iter().enumerate() {
        sites.push(set_up(id, shape, number, first_receiver, &mut crew)?);
    }
    let order = Order { mechanism: id, task, sites };
    for _ in 0..processes {
        crew.add_worker(&ROLE, &order)?;
    }
    Ok(crew)
}

/// The figures of a run of throughput.
#[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
pub(super) fn summary(reports: &[Report], shape: Shape) -> Run {
    let (senders, receivers) = reports.split_at(shape.senders as usize);
    let sum = |some: &[Report], of: fn(&Report) -> u64| some.iter().map(of).sum::<u64>();
    let (sent, received) = (sum(senders, |it| it.messages), sum(receivers, |it| it.messages));
    let rate = |it: &Report| it.messages as f64 / (it.elapsed_ns.max(1) as f64 / 1e9);
    let rates: f64 = receivers.iter().map(rate).sum();
    let counted = |of: fn(&Report) -> Option<u64>| {
        let all: Option<u64> = reports.iter().map(of).sum();
        all.map(|all| all as f64 / (received.max(1) as f64 * shape.bytes as f64))
    };
    Run {
        messages_per_s: rates / receivers.len().max(1) as f64,
        sent,
        lost: (sent * receivers.len() as u64).saturating_sub(received),
        sender_cpu_ns: sum(senders, |it| it.cpu_ns) as f64 / sent.max(1) as f64,
        receiver_cpu_ns: sum(receivers, |it| it.cpu_ns) as f64 / received.max(1) as f64,
        instructions_per_byte: counted(|it| it.instructions),
        cache_misses_per_byte: counted(|it| it.cache_misses),
        line_ns: None,
    }
}

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
        let bytes = there.shape.bytes;
        match (order.task, index.checked_sub(there.first_receiver)) {
            (Task::PingPong { warm_up, measured }, None) => {
                let mut sender = M::sender(there, 0, seat)?;
                let mut receiver = M::receiver(site(1)?, 0, seat)?;
                place.ready();
                ping_pong::ask(&mut sender, &mut receiver, bytes, [warm_up, measured])
            }
            (Task::PingPong { .. }, Some(_)) => {
                let mut receiver = M::receiver(there, 0, seat)?;
                let mut sender = M::sender(site(1)?, 0, seat)?;
                place.ready();
                ping_pong::answer(&mut sender, &mut receiver, bytes)
            }
            (_, Some(receiver)) => {
                let mut end = M::receiver(there, receiver, seat)?;
                place.ready();
                stream::receive(&mut end, &place, there)
            }
            (_, None) => {
                let mut end = M::sender(there, index, seat)?;
                place.ready();
                stream::send(&mut end, &place, there)
            }
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
