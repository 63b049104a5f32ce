//! How a crew is started: how many workers, on which processors, with how much memory.

use std::cell::OnceCell;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use corewire_os::{processor, random_u128};
use serde::Serialize;

use super::board::{Board, WORKERS_MAX};
use super::crew::{Crew, Directory};
use super::places::{Assignment, Places};
use super::program::Program;
use super::role::Role;
use crate::failure::{Doing, Failure};

/// Time allowed in addition to the planned time of a run.
const PATIENCE: Duration = Duration::from_secs(20);

/// A crew to be started.
#[derive(Debug, Clone)]
#[must_use = "nothing is started before `start`"]
pub struct Setup {
    program: Program,
    workers: usize,
    places: Places,
    given: Option<Vec<usize>>,
    memory_bytes: usize,
    time: Option<Duration>,
    scratch: PathBuf,
}

impl Setup {
    /// A crew of `workers` workers, each with a processor of its own as well as the controller, if there
    /// are enough.
    pub fn new(program: Program, workers: usize) -> Self {
        let (places, scratch) = (Places::Beside, std::env::temp_dir());
        Self { program, workers, places, given: None, memory_bytes: 0, time: None, scratch }
    }

    /// Which processor each process runs on. Default: [`Places::Beside`].
    pub fn places(self, places: Places) -> Self {
        Self { places, ..self }
    }

    /// The processors of the workers, in their order, instead of [`places`](Self::places); if there are fewer, they are
    /// given again from the first one on.
    pub fn given(self, cpus: Option<Vec<usize>>) -> Self {
        Self { given: cpus, ..self }
    }

    /// Bytes of shared memory for the program ([`Board::work`]). Default: none.
    pub fn memory_bytes(self, memory_bytes: usize) -> Self {
        Self { memory_bytes, ..self }
    }

    /// The approximate time of the run. If it takes much longer, it fails. Default: no limit.
    pub fn time(self, time: Duration) -> Self {
        Self { time: Some(time), ..self }
    }

    /// Where the crew's directory is created. Default: the system's temporary directory.
    pub fn scratch(self, scratch: &Path) -> Self {
        Self { scratch: scratch.to_owned(), ..self }
    }

    /// Starts all workers in one role. `order` returns the order of each.
    ///
    /// # Errors
    /// If a process cannot be started or pinned.
    pub fn start<O: Serialize>(
        self,
        role: &Role<O>,
        mut order: impl FnMut(usize) -> O,
    ) -> Result<Crew, Failure> {
        let workers = self.workers;
        let mut crew = self.crew()?;
        for worker in 0..workers {
            crew.add_worker(role, &order(worker))?;
        }
        Ok(crew)
    }

    /// A crew whose workers have not been started yet.
    ///
    /// # Errors
    /// If there is no memory, or no place for the crew's directory.
    pub fn crew(self) -> Result<Crew, Failure> {
        if self.workers > WORKERS_MAX {
            let limit = format!("{} processes; at most {WORKERS_MAX}", self.workers);
            return Err(Failure::usage(limit));
        }
        let cpus = processor::allowed().doing("ask for processors")?;
        let assignment = match self.given.as_deref() {
            Some(given) => Assignment::given(given, self.workers),
            None => self.places.assign(&cpus, self.workers),
        };
        let name = format!("corewire-run-{:016x}", random_u128().doing("name a run")? >> 64);
        let deadline = self.time.map(|time| Instant::now() + time + PATIENCE);
        let board = Board::create(self.memory_bytes)?;
        let directory = Directory::create(self.scratch.join(name))?;
        let processes = self.workers + usize::from(self.places == Places::Beside);
        Ok(Crew {
            program: self.program,
            board,
            directory,
            deadline,
            cpus,
            assignment,
            processes,
            workers: Vec::new(),
            lives: Vec::new(),
            domain: OnceCell::new(),
            kept: Vec::new(),
        })
    }
}
