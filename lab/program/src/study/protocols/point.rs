//! One run: its channels and its processes.

use std::path::Path;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use clap::builder::PossibleValue;
use corewire_harness::board::READY;
use corewire_harness::places::Places;
use corewire_harness::role::{Role, Worker};
use corewire_harness::setup::Setup;
use corewire_ring::sync::Ordering::{Acquire, Release};
use serde::{Deserialize, Serialize};

use super::checkpoint::{self, REQUEST_BYTES};
use super::{library, paxos};
use crate::study::failure::Failure;
use crate::study::mechanisms::{
    About, Id, Mechanism, Patience, Seat, Shape, Site, Visit, set_up, with,
};
use crate::study::program::PROGRAM;

/// Which of the two.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Protocol {
    Paxos,
    Checkpoint,
}

impl Protocol {
    /// The name of its study.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Paxos => "paxos",
            Self::Checkpoint => "checkpoint",
        }
    }
}

/// Who does it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Way {
    /// The library, as a program calls it.
    Library,
    /// The roles of this study, over a mechanism.
    #[serde(untagged)]
    Roles(Id),
}

impl ValueEnum for Way {
    fn value_variants<'a>() -> &'a [Self] {
        static ALL: LazyLock<Vec<Way>> = LazyLock::new(|| {
            let roles = Id::value_variants().iter().map(|id| Way::Roles(*id));
            roles.chain([Way::Library]).collect()
        });
        &ALL
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        match self {
            Self::Library => {
                Some(PossibleValue::new("library").help("corewire's own groups and computations"))
            }
            Self::Roles(id) => id.to_possible_value(),
        }
    }
}

impl Way {
    pub(super) fn about(self) -> About {
        match self {
            Self::Library => library::about(),
            Self::Roles(id) => id.about(),
        }
    }
}

/// A point of a study.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Point {
    pub(super) protocol: Protocol,
    pub(super) way: Way,
    /// Bytes of a request, or of a checkpoint.
    pub(super) bytes: usize,
    /// Learners, or all nodes of the checkpointing protocol.
    pub(super) nodes: u32,
}

/// How long a run takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Length {
    pub(super) warm_up: Duration,
    pub(super) measured: Duration,
    /// Ends after so many requests, if that is later than the time.
    pub(super) requests: u64,
}

/// What all processes of a run are told.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Order {
    pub(super) point: Point,
    sites: Vec<Site>,
    pub(super) length: Length,
}

/// What a process found.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Report {
    /// Requests that were decided, or snapshots that were gathered, while it was measured.
    pub(super) done: u64,
    pub(super) elapsed_ns: u64,
    /// The sequence that a learner has learned, as a sum in which order counts; 0 for other roles.
    pub(super) sequence: u64,
}

impl Report {
    /// So many were done since then.
    pub(super) fn since(then: Instant, done: u64) -> Self {
        let elapsed_ns = u64::try_from(then.elapsed().as_nanos()).unwrap_or(u64::MAX);
        Self { done, elapsed_ns, sequence: 0 }
    }
}

impl Point {
    /// The sites of a run: the shape of each, and which worker is its receiver 0.
    fn shapes(self) -> Vec<(Shape, u32)> {
        let shape = |bytes, receivers| Shape { bytes, receivers, senders: 1 };
        let (whole, nodes) = (self.bytes + HEADER_BYTES, self.nodes);
        match self.protocol {
            Protocol::Paxos => {
                let ways = [(shape(whole, 1), 1), (shape(whole, 1), 2), (shape(whole, nodes), 3)];
                let answers = (0..nodes).map(|_| (shape(whole, 1), 3 + nodes));
                ways.into_iter().chain(answers).collect()
            }
            Protocol::Checkpoint => {
                let requests = (shape(REQUEST_BYTES, nodes - 1), 1);
                let answers = (1..nodes).map(|_| (shape(whole, 1), 0));
                std::iter::once(requests).chain(answers).collect()
            }
        }
    }

    /// How many processes take part.
    pub(super) fn processes(self) -> usize {
        match (self.protocol, self.way) {
            (Protocol::Paxos, Way::Roles(_)) => self.nodes as usize + 4,
            (Protocol::Paxos, Way::Library) | (Protocol::Checkpoint, _) => self.nodes as usize,
        }
    }

    /// Why the mechanism cannot do it here; `None` if it can.
    pub(super) fn limit(self) -> Option<String> {
        match self.way {
            Way::Library => None,
            Way::Roles(id) => self.shapes().into_iter().find_map(|(shape, _)| id.limit(shape)),
        }
    }

    /// Runs it.
    pub(super) fn run(
        self,
        length: Length,
        placed: Option<Vec<usize>>,
        scratch: &Path,
    ) -> Result<Report, Failure> {
        let setup = Setup::new(PROGRAM, self.processes()).places(Places::Apart).given(placed);
        let mut crew = setup.time(length.warm_up + length.measured).scratch(scratch).crew()?;
        let sites = match self.way {
            Way::Library => Vec::new(),
            Way::Roles(id) => {
                let shapes = self.shapes().into_iter().enumerate();
                let sites = shapes
                    .map(|(number, (shape, first))| set_up(id, shape, number, first, &mut crew));
                sites.collect::<Result<_, _>>()?
            }
        };
        let order = Order { point: self, sites, length };
        for _ in 0..self.processes() {
            crew.add_worker(&ROLE, &order)?;
        }
        let reports: Vec<Report> = crew.run()?;
        if self.protocol == Protocol::Paxos {
            let first = if self.way == Way::Library { 0 } else { 3 };
            let mut learners = reports.iter().skip(first).take(self.nodes as usize);
            let first = learners.next().map(|report| report.sequence);
            if learners.any(|report| Some(report.sequence) != first) {
                return Err(Failure::other("two learners have learned different sequences"));
            }
        }
        let counts = reports.into_iter().find(|report| report.done > 0);
        counts.ok_or_else(|| Failure::other("nothing was done in the time of the run"))
    }
}

/// The processes of a run.
pub(crate) const ROLE: Role<Order> = Role { name: "protocol", work: follow };

fn follow(worker: &Worker, order: Order) -> Result<(), Failure> {
    let node = Node { order: &order, worker };
    let found = match (order.point.way, order.point.protocol) {
        (Way::Roles(id), _) => with(id, node),
        (Way::Library, Protocol::Paxos) => library::agree(&node),
        (Way::Library, Protocol::Checkpoint) => library::gather(&node),
    };
    worker.report(&found?)
}

/// A process, as its protocol sees it.
pub(super) struct Node<'a> {
    pub(super) order: &'a Order,
    worker: &'a Worker,
}

impl Visit for Node<'_> {
    type Out = Result<Report, Failure>;

    fn visit<M: Mechanism>(self) -> Result<Report, Failure> {
        match self.order.point.protocol {
            Protocol::Paxos => paxos::follow::<M>(&self),
            Protocol::Checkpoint => checkpoint::follow::<M>(&self),
        }
    }
}

impl Node<'_> {
    pub(super) const fn worker(&self) -> &Worker {
        self.worker
    }

    pub(super) fn index(&self) -> u32 {
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

    pub(super) fn sender<M: Mechanism>(&self, site: u32) -> Result<M::Sender, Failure> {
        M::sender(self.site(site)?, 0, self.seat())
    }

    /// The end of receiver `index` of a site.
    pub(super) fn receiver<M: Mechanism>(
        &self,
        site: u32,
        index: u32,
    ) -> Result<M::Receiver, Failure> {
        M::receiver(self.site(site)?, index, self.seat())
    }

    /// Says that its ends are open, and waits for all others.
    pub(super) fn ready(&self) {
        self.worker.reach(READY);
        self.worker.board().await_go();
    }

    /// Says that it has ended, and waits for all others.
    pub(super) fn end(&self) {
        let (board, own) = (self.worker.board(), self.worker.index());
        board.word(own, 1).store(1, Release);
        for other in 0..self.order.point.processes() {
            while board.word(other, 1).load(Acquire) == 0 {
                self.worker.relax();
            }
        }
    }
}

/// The bytes of a message before those of the request or checkpoint.
pub(super) const HEADER_BYTES: usize = 16;

/// The first two words of a message.
pub(super) fn head(message: &[u8]) -> (u64, u64) {
    let word = |at: usize| {
        let bytes = message.get(at..at + 8).and_then(|bytes| bytes.try_into().ok());
        bytes.map_or(0, u64::from_le_bytes)
    };
    (word(0), word(8))
}

pub(super) fn put_head(message: &mut [u8], (first, second): (u64, u64)) {
    message[..8].copy_from_slice(&first.to_le_bytes());
    message[8..HEADER_BYTES].copy_from_slice(&second.to_le_bytes());
}

/// A number in a message that says that nothing follows.
pub(super) const END: u64 = u64::MAX;
