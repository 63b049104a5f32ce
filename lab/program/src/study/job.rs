//! A run of a mechanism: what its processes do, and how they are started.

use std::path::Path;
use std::time::Duration;

use corewire_harness::crew::Crew;
use corewire_harness::places::Places;
use corewire_harness::setup::Setup;

use crate::study::failure::Failure;
use crate::study::mechanisms::{Id, Kept, Mechanism, Shape, Site, Visit, with};
use crate::study::program::PROGRAM;
use crate::study::worker::{Order, ROLE, Task};

/// A run takes longer when every system call is counted.
const COUNTING: Duration = Duration::from_secs(60);

/// What a run does.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Job {
    pub(crate) mechanism: Id,
    pub(crate) shape: Shape,
    pub(crate) task: Task,
}

impl Job {
    /// Starts the processes, and waits until all of them have opened their ends. `scratch` is for
    /// sockets and other temporary files.
    pub(crate) fn start(self, scratch: &Path) -> Result<Crew, Failure> {
        let processes = (self.shape.senders + self.shape.receivers) as usize;
        let setup = Setup::new(PROGRAM, processes).places(Places::Apart);
        let mut crew = setup.time(self.time()).scratch(scratch).crew()?;
        let sites = self.set_up(&mut crew)?;
        let order = Order { mechanism: self.mechanism, task: self.task, sites };
        for _ in 0..processes {
            crew.add_worker(&ROLE, &order)?;
        }
        crew.await_ready()?;
        Ok(crew)
    }

    fn time(self) -> Duration {
        match self.task {
            Task::Stream { warm_up, measured } | Task::PingPong { warm_up, measured } => {
                warm_up + measured
            }
            Task::Count { .. } => COUNTING,
        }
    }

    /// Sets up the sites of a run: one, or two for round trips.
    fn set_up(self, crew: &mut Crew) -> Result<Vec<Site>, Failure> {
        struct SetUp<'a>(&'a mut Site);
        impl Visit for SetUp<'_> {
            type Out = Result<Kept, Failure>;
            fn visit<M: Mechanism>(self) -> Result<Kept, Failure> {
                M::set_up(self.0)
            }
        }
        let shape = self.shape;
        let firsts = match self.task {
            Task::PingPong { .. } => vec![1, 0],
            _ => vec![shape.senders],
        };
        let mut sites = Vec::new();
        for (number, first_receiver) in firsts.into_iter().enumerate() {
            let (directory, ticket) = (crew.directory().to_owned(), Vec::new());
            let mut site = Site { shape, directory, number, first_receiver, ticket };
            let kept = with(self.mechanism, SetUp(&mut site))?;
            crew.keep(kept);
            sites.push(site);
        }
        Ok(sites)
    }
}
