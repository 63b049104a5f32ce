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

use super::results::Call;
use crate::study::failure::{Doing, Failure};
use crate::study::open_mpi::{self, OpenMpi, check, count};
use crate::study::results::About;

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

    /// What there is to say of it.
    pub(crate) fn about(self) -> About {
        let (settings, absence) = match self {
            Self::Corewire => {
                ("a Communicator of a group, as its builder makes it".to_owned(), None)
            }
            Self::OpenMpi => {
                let own = "the components for collective calls that it chooses itself, sums of MPI_UINT64_T";
                (format!("{own}; {}", open_mpi::START), open_mpi::absence())
            }
        };
        About::new(self.text(), self.name(), settings, absence)
    }
}

/// The values of a process, which are words, and are added.
pub(crate) struct Values {
    /// Its own, or its part.
    pub(crate) own: Vec<u64>,
    /// A part for each process, or of each.
    pub(crate) all: Vec<u64>,
    /// What all-to-all returns.
    pub(crate) received: Vec<u64>,
}

/// The calls of one process. Process 0 is the root.
pub(crate) trait Collective {
    /// Who this process is among all.
    fn rank(&self) -> usize;

    fn call(&mut self, call: Call, values: &mut Values) -> Result<(), Failure>;
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
}

const fn add(one: u64, other: u64) -> u64 {
    one.wrapping_add(other)
}

impl Collective for Own {
    fn rank(&self) -> usize {
        self.all.rank()
    }

    #[inline(always)]
    fn call(&mut self, call: Call, values: &mut Values) -> Result<(), Failure> {
        let Values { own, all, received } = values;
        match call {
            Call::Barrier => self.all.barrier(),
            Call::Broadcast => self.all.broadcast(0, own),
            Call::Reduce => self.all.reduce(0, own, add),
            Call::Allreduce => self.all.allreduce(own, add),
            Call::Gather => self.all.gather(0, own, all),
            Call::AllToAll => self.all.all_to_all(all, received),
        }
        .doing(call.name())
    }
}

type Handle = *mut c_void;
type In = *const c_void;
type Out = *mut c_void;
type Barrier = unsafe extern "C" fn(Handle) -> c_int;
type Broadcast = unsafe extern "C" fn(Out, c_int, Handle, c_int, Handle) -> c_int;
type Reduce = unsafe extern "C" fn(In, Out, c_int, Handle, Handle, c_int, Handle) -> c_int;
type Allreduce = unsafe extern "C" fn(In, Out, c_int, Handle, Handle, Handle) -> c_int;
type Gather = unsafe extern "C" fn(In, c_int, Handle, Out, c_int, Handle, c_int, Handle) -> c_int;
type AllToAll = unsafe extern "C" fn(In, c_int, Handle, Out, c_int, Handle, Handle) -> c_int;
type Rank = unsafe extern "C" fn(Handle, *mut c_int) -> c_int;

/// `MPI_IN_PLACE` of Open MPI, instead of a buffer: the values to send are where the result comes.
const IN_PLACE: In = ptr::without_provenance(1);

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
    _library: OpenMpi,
}

impl Mpi {
    #[expect(clippy::multiple_unsafe_ops_per_block, reason = "all for the same reason")]
    pub(crate) fn open() -> Result<Self, Failure> {
        let mpi = OpenMpi::start()?;
        let world = mpi.handle(c"ompi_mpi_comm_world")?;
        let mut rank = 0;
        // SAFETY: the MPI standard's C binding declares the functions with these types, and this one writes an integer.
        let asked = unsafe { mpi.function::<Rank>(c"MPI_Comm_rank")?(world, &raw mut rank) };
        check(asked, "ask for the rank")?;
        let (word, sum) = (mpi.handle(c"ompi_mpi_uint64_t")?, mpi.handle(c"ompi_mpi_op_sum")?);
        let rank = usize::try_from(rank).doing("count processes")?;
        // SAFETY: as above.
        unsafe {
            Ok(Self {
                barrier: mpi.function(c"MPI_Barrier")?,
                broadcast: mpi.function(c"MPI_Bcast")?,
                reduce: mpi.function(c"MPI_Reduce")?,
                allreduce: mpi.function(c"MPI_Allreduce")?,
                gather: mpi.function(c"MPI_Gather")?,
                all_to_all: mpi.function(c"MPI_Alltoall")?,
                world,
                word,
                sum,
                rank,
                _library: mpi,
            })
        }
    }
}

impl Collective for Mpi {
    fn rank(&self) -> usize {
        self.rank
    }

    #[expect(clippy::multiple_unsafe_ops_per_block, reason = "only one of the calls is made")]
    #[inline(always)]
    fn call(&mut self, call: Call, values: &mut Values) -> Result<(), Failure> {
        let (world, word, sum, part) = (self.world, self.word, self.sum, count(values.own.len())?);
        let Values { own, all, received } = values;
        let [own, all, received] = [own, all, received].map(|it| it.as_mut_ptr().cast::<c_void>());
        // SAFETY: the handles are the library's. Each buffer has as many words as are passed, `all` and `received` for each
        // process, and MPI does not use them after the return. The result of a reduce matters at the root only.
        let result = unsafe {
            match call {
                Call::Barrier => (self.barrier)(world),
                Call::Broadcast => (self.broadcast)(own, part, word, 0, world),
                // Only the root may give its values in place.
                Call::Reduce if self.rank == 0 => {
                    (self.reduce)(IN_PLACE, own, part, word, sum, 0, world)
                }
                Call::Reduce => (self.reduce)(own, ptr::null_mut(), part, word, sum, 0, world),
                Call::Allreduce => (self.allreduce)(IN_PLACE, own, part, word, sum, world),
                Call::Gather => (self.gather)(own, part, word, all, part, word, 0, world),
                Call::AllToAll => (self.all_to_all)(all, part, word, received, part, word, world),
            }
        };
        check(result, call.name())
    }
}
