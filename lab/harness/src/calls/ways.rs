//! Where client and service are, and which driver connects them.

use std::thread::JoinHandle;

use corewire_bind::Driver;
use corewire_os::processor;
use serde::Serialize;

use super::{Client, bind, serve, serve_and_tell};
use crate::crew::Crew;
use crate::failure::{Doing, Failure};
use crate::places::Places;
use crate::program::Program;
use crate::role::{Role, Worker};
use crate::setup::Setup;

/// The cores of a client and its service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Cores {
    /// Both are pinned to one processor.
    Same,
    /// Each is pinned to a processor of its own.
    Apart,
}

/// A driver, and the cores of both sides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Way {
    /// Its name in results.
    pub name: &'static str,
    /// Its name to display.
    pub words: &'static str,
    /// The driver.
    pub driver: Driver,
    /// The cores.
    pub cores: Cores,
}

/// `lmp` as the thesis measures it.
pub const LMP: Way = Way::new("lmp", "lmp (same core)", Driver::Lmp, Cores::Same);
/// `ump` as the thesis measures it.
pub const UMP: Way = Way::new("ump", "ump (cores apart)", Driver::Ump, Cores::Apart);

/// All ways that are measured.
pub const WAYS: [Way; 6] = [
    Way::new("local", "local (same core)", Driver::Local, Cores::Same),
    LMP,
    Way::new("ump_same_core", "ump (same core)", Driver::Ump, Cores::Same),
    UMP,
    Way::new("sock_same_core", "sock (same core)", Driver::Sock, Cores::Same),
    Way::new("sock", "sock (cores apart)", Driver::Sock, Cores::Apart),
];

impl Way {
    const fn new(name: &'static str, words: &'static str, driver: Driver, cores: Cores) -> Self {
        Self { name, words, driver, cores }
    }

    /// Whether this machine has enough processors.
    #[must_use]
    pub fn is_possible(&self, processors: usize) -> bool {
        self.cores == Cores::Same || processors >= 2
    }

    /// The places of a controller, which is the client, and of a worker, which is the service.
    ///
    /// # Errors
    /// If the processors are not known.
    pub fn places(&self) -> Result<Places, Failure> {
        if self.cores == Cores::Apart {
            return Ok(Places::Beside);
        }
        first_processor().map(Places::On)
    }
}

/// The processor that client and service share.
///
/// # Errors
/// If the processors are not known.
pub fn first_processor() -> Result<usize, Failure> {
    let processors = processor::allowed().doing("ask for processors")?;
    processors.first().copied().ok_or_else(|| Failure::other("there is no processor"))
}

/// A client, and the service that it is bound to: a worker, or a thread for [`Driver::Local`].
#[derive(Debug)]
pub struct Bound {
    /// The client.
    pub client: Client,
    crew: Crew,
    thread: Option<JoinHandle<Result<(), Failure>>>,
}

impl Bound {
    /// Starts the service, which is a worker in this role unless it is a thread, and binds to it. Pins both sides.
    ///
    /// # Errors
    /// If a process cannot be started or pinned, or the client cannot be bound.
    pub fn start<O: Serialize>(
        way: &Way,
        program: Program,
        role: &Role<O>,
        order: &O,
    ) -> Result<Self, Failure> {
        let is_local = way.driver == Driver::Local;
        let setup = Setup::new(program, usize::from(!is_local)).places(way.places()?);
        let mut crew = setup.crew()?;
        let thread = if is_local {
            // The thread inherits the processor of the controller.
            let cpu = first_processor()?;
            processor::pin_to(cpu).doing(format_args!("keep to processor {cpu}"))?;
            let domain = crew.domain()?.clone();
            let (ready, is_ready) = std::sync::mpsc::channel();
            let thread = std::thread::spawn(move || {
                serve_and_tell(&domain, || {
                    let _ = ready.send(());
                })
            });
            // The driver `local` does not wait for its service. If there is none, binding says so.
            let _ = is_ready.recv();
            Some(thread)
        } else {
            crew.add_worker(role, order)?;
            None
        };
        let client = bind(crew.domain()?, way.driver)?;
        Ok(Self { client, crew, thread })
    }

    /// The processes of the measurement.
    #[must_use]
    pub fn crew(&self) -> &Crew {
        &self.crew
    }

    /// Unbinds the client, and waits until the service has ended.
    ///
    /// # Errors
    /// If the service failed.
    pub fn finish(self) -> Result<(), Failure> {
        let Self { client, crew, thread } = self;
        drop(client);
        if let Some(thread) = thread {
            thread.join().map_err(|_| Failure::other("the service panicked"))??;
        }
        crew.finish()
    }
}

/// The worker of [`Bound`]: serves until the client has gone.
///
/// # Errors
/// If the service fails.
pub fn work(worker: &Worker) -> Result<(), Failure> {
    serve(&worker.domain()?)
}
