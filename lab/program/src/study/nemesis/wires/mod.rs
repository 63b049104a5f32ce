//! The wires: what carries messages from each process to the next one, with two processes in both directions, from the
//! sender's buffer to the receiver's. One file each, behind one trait.

mod endpoint;
mod libfabric;
mod open_mpi;
mod published;

use std::path::PathBuf;
use std::process::Command;

use clap::ValueEnum;
use corewire_harness::role::Worker;
use corewire_published::rings::FreeQueue;
use serde::{Deserialize, Serialize};

use crate::study::failure::Failure;
use crate::study::mechanisms::{Kept, Patience};

/// Name of a wire in results and on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[value(rename_all = "snake_case")]
pub(crate) enum Id {
    /// corewire's endpoints
    Corewire,
    /// Nemesis with all its optimisations: shadow head, fastboxes, free queue at the sender
    Nemesis,
    /// Nemesis without fastboxes
    NemesisQueues,
    /// Nemesis without fastboxes and shadow head
    NemesisPlain,
    /// Nemesis without fastboxes, free queue at the receiver
    NemesisReceiver,
    /// Nemesis without fastboxes, one free queue for all
    NemesisGlobal,
    /// libfabric's shm provider
    LibfabricShm,
    /// Open MPI's own shared memory
    OpenMpi,
}

/// What a process needs to open its end of a wire.
#[derive(Debug, Clone)]
pub(crate) struct Seat {
    pub(crate) wire: Id,
    /// Index of the process.
    pub(crate) index: u32,
    /// Number of processes, each of which sends to the next one.
    pub(crate) processes: u32,
    /// Directory of the run.
    pub(crate) directory: PathBuf,
    /// What the set-up returned.
    pub(crate) ticket: String,
    /// Yields the processor while waiting, because there are too few cores.
    pub(crate) must_yield: bool,
}

impl Seat {
    /// The seat of a worker among so many.
    pub(crate) fn of(worker: &Worker, wire: Id, processes: usize, ticket: &str) -> Self {
        let number = |number| u32::try_from(number).unwrap_or(u32::MAX);
        Self {
            wire,
            index: number(worker.index()),
            processes: number(processes),
            directory: worker.directory().to_owned(),
            ticket: ticket.to_owned(),
            must_yield: worker.must_yield(),
        }
    }

    /// The process that this one sends to.
    const fn next(&self) -> u32 {
        (self.index + 1) % self.processes
    }

    /// The process that this one receives from.
    const fn previous(&self) -> u32 {
        (self.index + self.processes - 1) % self.processes
    }

    const fn patience(&self) -> Patience {
        Patience { must_yield: self.must_yield }
    }
}

/// One end of a wire.
pub(crate) trait Wire: Sized {
    /// Opens the end, and waits for the other end.
    fn open(seat: &Seat) -> Result<Self, Failure>;

    /// Sends a message. When this returns, `message` may be overwritten.
    fn send(&mut self, message: &[u8]) -> Result<(), Failure>;

    /// Receives the next message, of the length of `target`, into `target`. Matched by tag and sender.
    fn receive(&mut self, target: &mut [u8]) -> Result<(), Failure>;
}

/// A generic operation on a kind of wire.
pub(crate) trait Visit {
    /// Its result.
    type Out;
    /// Runs it for wire `W`.
    fn visit<W: Wire>(self) -> Self::Out;
}

/// The tag of every message.
const TAG: u64 = 42;

impl Id {
    /// Its name in results and on the command line.
    pub(crate) fn text(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }

    /// Its name to display.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Corewire => "corewire endpoint",
            Self::Nemesis => "Nemesis",
            Self::NemesisQueues => "Nemesis, queues",
            Self::NemesisPlain => "Nemesis, plain queues",
            Self::NemesisReceiver => "Nemesis, receiver's cells",
            Self::NemesisGlobal => "Nemesis, global cells",
            Self::LibfabricShm => "libfabric shm",
            Self::OpenMpi => "Open MPI",
        }
    }

    /// Its settings, in one sentence.
    pub(crate) fn settings(self) -> String {
        match self {
            Self::LibfabricShm => libfabric::settings(),
            Self::OpenMpi => open_mpi::settings(),
            _ => self.published().map_or_else(endpoint::settings, published::settings),
        }
    }

    /// Why it is not available here; `None` if it is.
    pub(crate) fn absence(self) -> Option<String> {
        match self {
            Self::LibfabricShm => libfabric::absence(),
            Self::OpenMpi => crate::study::open_mpi::absence(),
            _ => None,
        }
    }

    /// Creates what both ends share. Returns it, with the text that tells the ends where it is.
    pub(crate) fn set_up(self) -> Result<(Kept, String), Failure> {
        match self.published() {
            Some(options) => published::set_up(options),
            None => Ok((Box::new(()), String::new())),
        }
    }

    /// Whether more than two processes can form a ring.
    pub(crate) const fn forms_rings(self) -> bool {
        matches!(self, Self::Corewire | Self::OpenMpi)
    }

    /// The command that starts all processes with these arguments, for a wire whose processes cannot
    /// be started directly.
    pub(crate) fn launcher(self, processes: &[Vec<String>], is_crowded: bool) -> Option<Command> {
        (self == Self::OpenMpi).then(|| crate::study::open_mpi::launcher(processes, is_crowded))
    }

    /// The options of Nemesis; `None` for other wires.
    pub(super) const fn published(self) -> Option<published::Options> {
        let (free_queue, has_shadow_head, has_fastboxes) = match self {
            Self::Nemesis => (FreeQueue::Sender, true, true),
            Self::NemesisQueues => (FreeQueue::Sender, true, false),
            Self::NemesisPlain => (FreeQueue::Sender, false, false),
            Self::NemesisReceiver => (FreeQueue::Receiver, true, false),
            Self::NemesisGlobal => (FreeQueue::Global, true, false),
            _ => return None,
        };
        Some(published::options(free_queue, has_shadow_head, has_fastboxes))
    }

    /// Runs `visit` with this wire.
    pub(crate) fn with<V: Visit>(self, visit: V) -> V::Out {
        match self {
            Self::Corewire => visit.visit::<endpoint::Wired>(),
            Self::LibfabricShm => visit.visit::<libfabric::Shm>(),
            Self::OpenMpi => visit.visit::<open_mpi::Mpi>(),
            _ => visit.visit::<published::Published>(),
        }
    }
}
