//! One run: its sites and its processes.

use std::path::Path;
use std::time::Duration;

use corewire_harness::places::Places;
use corewire_harness::setup::Setup;

use super::checkpoint::REQUEST_BYTES;
use super::{HEADER_BYTES, Order, Point, Protocol, ROLE, Report};
use crate::study::failure::Failure;
use crate::study::mechanisms::{Kept, Mechanism, Shape, Site, Visit, with};
use crate::study::program::PROGRAM;

/// How long a run takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct Length {
    pub(crate) warm_up: Duration,
    pub(crate) measured: Duration,
    /// At least so many requests.
    pub(crate) requests: u64,
}

impl Point {
    /// The sites of a run: the shape of each, and which worker is its receiver 0.
    fn shapes(self) -> Vec<(Shape, u32)> {
        let shape = |bytes, receivers| Shape { bytes, receivers, senders: 1 };
        let whole = self.bytes + HEADER_BYTES;
        match self.protocol {
            Protocol::Paxos => {
                let ways =
                    [(shape(whole, 1), 1), (shape(whole, 1), 2), (shape(whole, self.nodes), 3)];
                let answers = (0..self.nodes).map(|_| (shape(whole, 1), 3 + self.nodes));
                ways.into_iter().chain(answers).collect()
            }
            Protocol::Checkpoint => {
                let requests = (shape(REQUEST_BYTES, self.nodes - 1), 1);
                let answers = (1..self.nodes).map(|_| (shape(whole, 1), 0));
                std::iter::once(requests).chain(answers).collect()
            }
        }
    }

    /// How many processes take part.
    pub(crate) fn processes(self) -> usize {
        match self.protocol {
            Protocol::Paxos => self.nodes as usize + 4,
            Protocol::Checkpoint => self.nodes as usize,
        }
    }

    /// Why the mechanism cannot do it here; `None` if it can.
    pub(crate) fn limit(self) -> Option<String> {
        self.shapes().into_iter().find_map(|(shape, _)| self.mechanism.limit(shape))
    }

    /// Runs it.
    pub(crate) fn run(
        self,
        length: Length,
        placed: Option<Vec<usize>>,
        scratch: &Path,
    ) -> Result<Report, Failure> {
        let setup = Setup::new(PROGRAM, self.processes()).places(Places::Apart).given(placed);
        let time = length.warm_up + length.measured;
        let mut crew = setup.time(time).scratch(scratch).crew()?;
        let mut sites = Vec::new();
        for (number, (shape, first_receiver)) in self.shapes().into_iter().enumerate() {
            let (directory, ticket) = (crew.directory().to_owned(), Vec::new());
            let mut site = Site { shape, directory, number, first_receiver, ticket };
            crew.keep(with(self.mechanism, SetUp(&mut site))?);
            sites.push(site);
        }
        let Length { warm_up, measured, requests } = length;
        let order = Order { point: self, sites, warm_up, measured, requests };
        for _ in 0..self.processes() {
            crew.add_worker(&ROLE, &order)?;
        }
        crew.await_ready()?;
        crew.go();
        let reports: Vec<Report> = crew.reports()?;
        self.check(&reports)?;
        let counts = reports.into_iter().find(|report| report.done > 0);
        counts.ok_or_else(|| Failure::other("nothing was done in the time of the run"))
    }

    /// All learners have learned the same.
    fn check(self, reports: &[Report]) -> Result<(), Failure> {
        if self.protocol == Protocol::Checkpoint {
            return Ok(());
        }
        let learners = reports.iter().skip(3).take(self.nodes as usize);
        let mut sequences: Vec<u64> = learners.map(|report| report.sequence).collect();
        sequences.dedup();
        match sequences.len() {
            1 => Ok(()),
            _ => Err(Failure::other("two learners have learned different sequences")),
        }
    }
}

struct SetUp<'a>(&'a mut Site);

impl Visit for SetUp<'_> {
    type Out = Result<Kept, Failure>;

    fn visit<M: Mechanism>(self) -> Result<Kept, Failure> {
        M::set_up(self.0)
    }
}
