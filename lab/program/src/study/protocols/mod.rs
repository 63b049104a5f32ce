//! `corewire study paxos` and `corewire study checkpoint`: ZIMP's macro-benchmarks (papers/000, section IV-C and appendix D),
//! with the same code over every mechanism.
//!
//! | file | holds |
//! |---|---|
//! | `paxos` | the agreement protocol: client, proposer, acceptor, learners |
//! | `checkpoint` | gathering snapshots: an initiator and other nodes |
//! | `run` | starts the processes of one run |
//! | `study` | which runs, in which order; what is written |
//! | `results` | `results.json` |

mod checkpoint;
mod paxos;
pub(crate) mod results;
mod run;
mod study;

use std::time::Duration;

use corewire_harness::board::READY;
use corewire_harness::role::{Role, Worker};
use serde::{Deserialize, Serialize};

pub(crate) use study::{CheckpointArgs, PaxosArgs, run_checkpoint, run_paxos};

use crate::study::failure::Failure;
use crate::study::mechanisms::{Id, Mechanism, Patience, Seat, Site, Visit, with};

/// Which of the two.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Protocol {
    Paxos,
    Checkpoint,
}

/// A point of a study.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Point {
    pub(crate) protocol: Protocol,
    pub(crate) mechanism: Id,
    /// Bytes of a request, or of a checkpoint.
    pub(crate) bytes: usize,
    /// Learners, or all nodes of the checkpointing protocol.
    pub(crate) nodes: u32,
}

/// What all processes of a run are told.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Order {
    point: Point,
    sites: Vec<Site>,
    warm_up: Duration,
    measured: Duration,
    /// Ends after so many requests, if that is later than the time.
    requests: u64,
}

/// What a process found.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Report {
    /// Requests that were decided, or snapshots that were gathered, while it was measured.
    pub(crate) done: u64,
    pub(crate) elapsed_ns: u64,
    /// The sequence that a learner has learned, as a sum in which order counts; 0 for other roles.
    pub(crate) sequence: u64,
}

/// The processes of a run.
pub(crate) const ROLE: Role<Order> = Role { name: "protocol", work: follow };

fn follow(worker: &Worker, order: Order) -> Result<(), Failure> {
    worker.report(&with(order.point.mechanism, Follow { order: &order, worker })?)
}

struct Follow<'a> {
    order: &'a Order,
    worker: &'a Worker,
}

impl Visit for Follow<'_> {
    type Out = Result<Report, Failure>;

    fn visit<M: Mechanism>(self) -> Result<Report, Failure> {
        let node = Node { order: self.order, worker: self.worker };
        match self.order.point.protocol {
            Protocol::Paxos => paxos::follow::<M>(&node),
            Protocol::Checkpoint => checkpoint::follow::<M>(&node),
        }
    }
}

/// A process, as its protocol sees it.
struct Node<'a> {
    order: &'a Order,
    worker: &'a Worker,
}

impl Node<'_> {
    fn index(&self) -> u32 {
        u32::try_from(self.worker.index()).unwrap_or(u32::MAX)
    }

    fn site(&self, number: u32) -> Result<&Site, Failure> {
        let site = self.order.sites.get(number as usize);
        site.ok_or_else(|| Failure::other("an order without a site"))
    }

    fn seat(&self) -> Seat<'_> {
        let patience = Patience { must_yield: self.worker.must_yield() };
        Seat { board: self.worker.board(), patience }
    }

    fn sender<M: Mechanism>(&self, site: u32) -> Result<M::Sender, Failure> {
        M::sender(self.site(site)?, 0, self.seat())
    }

    /// The end of receiver `index` of a site.
    fn receiver<M: Mechanism>(&self, site: u32, index: u32) -> Result<M::Receiver, Failure> {
        M::receiver(self.site(site)?, index, self.seat())
    }

    /// Says that its ends are open, and waits for all others.
    fn ready(&self) {
        self.worker.reach(READY);
        self.worker.board().await_go();
    }
}

/// The bytes of a message before those of the request or checkpoint.
const HEADER_BYTES: usize = 16;

/// The first two words of a message.
fn head(message: &[u8]) -> (u64, u64) {
    let word = |at: usize| {
        let bytes = message.get(at..at + 8).and_then(|bytes| bytes.try_into().ok());
        bytes.map_or(0, u64::from_le_bytes)
    };
    (word(0), word(8))
}

fn put_head(message: &mut [u8], (first, second): (u64, u64)) {
    message[..8].copy_from_slice(&first.to_le_bytes());
    message[8..HEADER_BYTES].copy_from_slice(&second.to_le_bytes());
}

/// A number in a message that says that nothing follows.
const END: u64 = u64::MAX;
