//! The libraries, behind one trait.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use corewire_group::{Communicator, Group};
use corewire_harness::role::Worker;
use corewire_ring::sync::Ordering::{Acquire, Release};
use libloading::os::unix::Symbol;
use serde::{Deserialize, Serialize};

use crate::study::failure::{Doing, Failure};
use crate::study::open_mpi::{self, OpenMpi, check, count};

/// Name of a library in results and on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[value(rename_all = "snake_case")]
pub(crate) enum Id {
    /// A communicator of a group
    Corewire,
    /// Open MPI's own, over its shared memory
    OpenMpi,
}

impl Id {
    /// Its name in results and on the command line.
    pub(crate) fn text(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }

    /// Its name to display.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Corewire => "corewire",
            Self::OpenMpi => "Open MPI",
        }
    }

    pub(crate) fn settings(self) -> String {
        match self {
            Self::Corewire => "a Communicator of a group, as its builder makes it".to_owned(),
            Self::OpenMpi => format!(
                "the components for collective calls that it chooses itself, sums of MPI_UINT64_T; {}",
                open_mpi::START
            ),
        }
    }

    /// Why it is not available here; `None` if it is.
    pub(crate) fn absence(self) -> Option<String> {
        match self {
            Self::Corewire => None,
            Self::OpenMpi => open_mpi::absence(),
        }
    }
}

/// The calls of one process. Values are words, and are added.
pub(crate) trait Collective {
    fn barrier(&mut self) -> Result<(), Failure>;

    /// Copies the values of process 0 to all.
    fn broadcast(&mut self, values: &mut [u64]) -> Result<(), Failure>;

    /// Adds all values at process 0.
    fn reduce(&mut self, values: &mut [u64]) -> Result<(), Failure>;

    /// Adds all values at all.
    fn allreduce(&mut self, values: &mut [u64]) -> Result<(), Failure>;

    /// Collects the parts at process 0 in `all`.
    fn gather(&mut self, part: &[u64], all: &mut [u64]) -> Result<(), Failure>;

    /// Sends a part to each process, and gets one of each.
    fn all_to_all(&mut self, parts: &[u64], received: &mut [u64]) -> Result<(), Failure>;
}

/// How long processes may take to meet.
const WITHIN: Duration = Duration::from_secs(30);

/// corewire's.
pub(crate) struct Own {
    all: Communicator,
    _group: Group,
}

impl Own {
    /// Members have ranks in the order in which they join: here that of the processes.
    pub(crate) fn open(worker: &Worker, processes: usize) -> Result<Self, Failure> {
        let domain = worker.domain()?;
        let what = "form a group";
        let joined = worker.board().word(0, 0);
        let deadline = Instant::now() + WITHIN;
        while joined.load(Acquire) < worker.index() as u64 {
            if Instant::now() > deadline {
                return Err(Failure::other("the processes before this one have not joined"));
            }
            std::thread::yield_now();
        }
        let group = Group::builder(&domain, "all").join_timeout(WITHIN).doing(what)?;
        joined.fetch_add(1, Release);
        let view = group.wait_for_members(processes, WITHIN).doing(what)?;
        let builder = Communicator::builder(&domain, &group, &view).timeout(WITHIN);
        let all = builder.connect().doing("connect with all")?;
        Ok(Self { all, _group: group })
    }

    /// Who this process is among all.
    pub(crate) const fn rank(&self) -> usize {
        self.all.rank()
    }
}

const fn add(one: u64, other: u64) -> u64 {
    one.wrapping_add(other)
}

impl Collective for Own {
    #[inline(always)]
    fn barrier(&mut self) -> Result<(), Failure> {
        self.all.barrier().doing("barrier")
    }

    #[inline(always)]
    fn broadcast(&mut self, values: &mut [u64]) -> Result<(), Failure> {
        self.all.broadcast(0, values).doing("broadcast")
    }

    #[inline(always)]
    fn reduce(&mut self, values: &mut [u64]) -> Result<(), Failure> {
        self.all.reduce(0, values, add).doing("reduce")
    }

    #[inline(always)]
    fn allreduce(&mut self, values: &mut [u64]) -> Result<(), Failure> {
        self.all.allreduce(values, add).doing("allreduce")
    }

    #[inline(always)]
    fn gather(&mut self, part: &[u64], all: &mut [u64]) -> Result<(), Failure> {
        self.all.gather(0, part, all).doing("gather")
    }

    #[inline(always)]
    fn all_to_all(&mut self, parts: &[u64], received: &mut [u64]) -> Result<(), Failure> {
        self.all.all_to_all(parts, received).doing("all-to-all")
    }
}

type Handle = *mut c_void;
type Barrier = unsafe extern "C" fn(Handle) -> c_int;
type Broadcast = unsafe extern "C" fn(*mut c_void, c_int, Handle, c_int, Handle) -> c_int;
type Reduce =
    unsafe extern "C" fn(*const c_void, *mut c_void, c_int, Handle, Handle, c_int, Handle) -> c_int;
type Allreduce =
    unsafe extern "C" fn(*const c_void, *mut c_void, c_int, Handle, Handle, Handle) -> c_int;
type Gather = unsafe extern "C" fn(
    *const c_void,
    c_int,
    Handle,
    *mut c_void,
    c_int,
    Handle,
    c_int,
    Handle,
) -> c_int;
type AllToAll =
    unsafe extern "C" fn(*const c_void, c_int, Handle, *mut c_void, c_int, Handle, Handle) -> c_int;
type Rank = unsafe extern "C" fn(Handle, *mut c_int) -> c_int;

/// `MPI_IN_PLACE` of Open MPI, instead of a buffer: the values to send are where the result comes.
const IN_PLACE: *const c_void = ptr::without_provenance(1);

/// Open MPI's.
pub(crate) struct Mpi {
    barrier: Symbol<Barrier>,
    broadcast: Symbol<Broadcast>,
    reduce: Symbol<Reduce>,
    allreduce: Symbol<Allreduce>,
    gather: Symbol<Gather>,
    all_to_all: Symbol<AllToAll>,
    world: Handle,
    word: Handle,
    sum: Handle,
    rank: usize,
    processes: usize,
    _library: OpenMpi,
}

impl Mpi {
    pub(crate) fn open(processes: usize) -> Result<Self, Failure> {
        let mpi = OpenMpi::start()?;
        let world = mpi.handle(c"ompi_mpi_comm_world")?;
        // SAFETY: the MPI standard's C binding declares the functions with these types, here and below.
        let ask = unsafe { mpi.function::<Rank>(c"MPI_Comm_rank") }?;
        let mut rank = 0;
        // SAFETY: the handle is the library's, and the function writes an integer.
        check(unsafe { ask(world, &raw mut rank) }, "ask for the rank")?;
        Ok(Self {
            // SAFETY: as above.
            barrier: unsafe { mpi.function(c"MPI_Barrier") }?,
            // SAFETY: as above.
            broadcast: unsafe { mpi.function(c"MPI_Bcast") }?,
            // SAFETY: as above.
            reduce: unsafe { mpi.function(c"MPI_Reduce") }?,
            // SAFETY: as above.
            allreduce: unsafe { mpi.function(c"MPI_Allreduce") }?,
            // SAFETY: as above.
            gather: unsafe { mpi.function(c"MPI_Gather") }?,
            // SAFETY: as above.
            all_to_all: unsafe { mpi.function(c"MPI_Alltoall") }?,
            world,
            word: mpi.handle(c"ompi_mpi_uint64_t")?,
            sum: mpi.handle(c"ompi_mpi_op_sum")?,
            rank: usize::try_from(rank).doing("count processes")?,
            processes,
            _library: mpi,
        })
    }

    /// Who this process is among all.
    pub(crate) const fn rank(&self) -> usize {
        self.rank
    }

    /// The length of a part of `all`, where there is one for each process.
    fn part(&self, all: &[u64]) -> Result<c_int, Failure> {
        count(all.len() / self.processes)
    }
}

impl Collective for Mpi {
    #[inline(always)]
    fn barrier(&mut self) -> Result<(), Failure> {
        // SAFETY: the handle is the library's.
        check(unsafe { (self.barrier)(self.world) }, "barrier")
    }

    #[inline(always)]
    fn broadcast(&mut self, values: &mut [u64]) -> Result<(), Failure> {
        let count = count(values.len())?;
        // SAFETY: the buffer has as many words as are passed, and MPI does not use it after the return.
        let result = unsafe {
            (self.broadcast)(values.as_mut_ptr().cast(), count, self.word, 0, self.world)
        };
        check(result, "broadcast")
    }

    #[inline(always)]
    fn reduce(&mut self, values: &mut [u64]) -> Result<(), Failure> {
        let count = count(values.len())?;
        let buffer: *mut c_void = values.as_mut_ptr().cast();
        // Only the root may give its values in place.
        let (from, to) = if self.rank == 0 {
            (IN_PLACE, buffer)
        } else {
            (buffer.cast_const(), ptr::null_mut())
        };
        // SAFETY: as above; the result matters at the root only.
        let result = unsafe { (self.reduce)(from, to, count, self.word, self.sum, 0, self.world) };
        check(result, "reduce")
    }

    #[inline(always)]
    fn allreduce(&mut self, values: &mut [u64]) -> Result<(), Failure> {
        let count = count(values.len())?;
        let to = values.as_mut_ptr().cast();
        // SAFETY: as above.
        let result =
            unsafe { (self.allreduce)(IN_PLACE, to, count, self.word, self.sum, self.world) };
        check(result, "allreduce")
    }

    #[inline(always)]
    fn gather(&mut self, part: &[u64], all: &mut [u64]) -> Result<(), Failure> {
        let count = count(part.len())?;
        let (from, to) = (part.as_ptr().cast(), all.as_mut_ptr().cast());
        // SAFETY: as above; `all` holds a part of each process.
        let result =
            unsafe { (self.gather)(from, count, self.word, to, count, self.word, 0, self.world) };
        check(result, "gather")
    }

    #[inline(always)]
    fn all_to_all(&mut self, parts: &[u64], received: &mut [u64]) -> Result<(), Failure> {
        let count = self.part(parts)?;
        let (from, to) = (parts.as_ptr().cast(), received.as_mut_ptr().cast());
        // SAFETY: as above; both hold a part for each process.
        let result =
            unsafe { (self.all_to_all)(from, count, self.word, to, count, self.word, self.world) };
        check(result, "all-to-all")
    }
}
