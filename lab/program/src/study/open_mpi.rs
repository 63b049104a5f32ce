//! Open MPI, which is looked for when a study runs: the program is not linked to it. Its handles are addresses of objects
//! in its library.

#![expect(
    clippy::multiple_unsafe_ops_per_block,
    reason = "a call through a table of pointers is several at once"
)]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::process::Command;
use std::ptr;

use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW, Symbol};

use crate::study::failure::{Doing, Failure};

/// Name of the library in Open MPI 4.0 to 5.0.
const LIBRARY: &str = "libmpi.so.40";
const LAUNCHER: &str = "mpirun";
const LOADING: &str = "load Open MPI";

type Init = unsafe extern "C" fn(*mut c_int, *mut *mut *mut c_char) -> c_int;
type Finalize = unsafe extern "C" fn() -> c_int;

/// The library in a process that takes part. Dropping it ends the process's part, and waits for the others: one that has
/// failed is to be forgotten instead, so that the launcher ends all.
pub(crate) struct OpenMpi {
    library: Library,
    finalize: Symbol<Finalize>,
}

/// Why it is not available; `None` if it is.
pub(crate) fn absence() -> Option<String> {
    if let Err(error) = library() {
        return Some(format!("no Open MPI: {error} (Debian: openmpi-bin)"));
    }
    let answers = Command::new(LAUNCHER).arg("--version").output();
    let is_there = answers.is_ok_and(|output| output.status.success());
    (!is_there).then(|| format!("no {LAUNCHER} (Debian: openmpi-bin)"))
}

/// The `mpirun` command that starts the processes and connects them. `is_crowded`: there are fewer processors.
pub(crate) fn launcher(processes: &[Vec<String>], is_crowded: bool) -> Command {
    let mut command = Command::new(LAUNCHER);
    // It refuses to run as root without both variables.
    command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    command.args(["--oversubscribe", "--bind-to", "none", "--mca", "pml", "ob1"]);
    // It would count cores where this study counts processors.
    let must_yield = if is_crowded { "1" } else { "0" };
    command.args(["--mca", "mpi_yield_when_idle", must_yield]);
    // Its shared memory has had several names, so this excludes its other transports.
    command.args(["--mca", "btl", "^tcp,openib,ofi,uct,usnic"]);
    for (index, arguments) in processes.iter().enumerate() {
        if index > 0 {
            command.arg(":");
        }
        command.args(["-n", "1"]).args(arguments);
    }
    command
}

/// How it is started, in words.
pub(crate) const START: &str = "started by mpirun without its transports for networks, and bound to \
                                processors by this study; it yields where there are fewer \
                                processors than processes";

fn library() -> Result<Library, libloading::Error> {
    // SAFETY: loading the library runs the same initialization as in any program that is linked to it.
    // Its plugins look up its symbols, which must therefore be global.
    unsafe { Library::open(Some(LIBRARY), RTLD_NOW | RTLD_GLOBAL) }
}

impl OpenMpi {
    /// Takes part, in a process that the launcher has started.
    pub(crate) fn start() -> Result<Self, Failure> {
        let library = library().doing(LOADING)?;
        // SAFETY: the MPI standard's C binding declares the functions with these types.
        let (init, finalize) = unsafe {
            (
                library.get::<Init>(b"MPI_Init").doing(LOADING)?,
                library.get::<Finalize>(b"MPI_Finalize").doing(LOADING)?,
            )
        };
        // SAFETY: MPI allows null for both arguments.
        check(unsafe { init(ptr::null_mut(), ptr::null_mut()) }, "start MPI")?;
        Ok(Self { library, finalize })
    }

    /// A function of the library.
    ///
    /// # Safety
    /// `F` must be a pointer to a function of the type that MPI's C binding declares for this name.
    pub(crate) unsafe fn function<F>(&self, name: &CStr) -> Result<Symbol<F>, Failure> {
        // SAFETY: the caller's.
        unsafe { self.library.get::<F>(name.to_bytes()) }.doing(LOADING)
    }

    /// A handle, such as that of the communicator of all processes.
    pub(crate) fn handle(&self, name: &CStr) -> Result<*mut c_void, Failure> {
        // SAFETY: an object of the library; only its address is used.
        let object = unsafe { self.library.get::<*mut c_void>(name.to_bytes()) };
        Ok(object.doing(LOADING)?.into_raw())
    }
}

impl Drop for OpenMpi {
    fn drop(&mut self) {
        // SAFETY: MPI was started once, and no operation is under way.
        unsafe { (self.finalize)() };
    }
}

/// A length as MPI counts.
pub(crate) fn count(length: usize) -> Result<c_int, Failure> {
    c_int::try_from(length).doing("count elements")
}

/// Whether a call succeeded.
#[inline(always)]
pub(crate) fn check(result: c_int, what: &str) -> Result<(), Failure> {
    if result == 0 { Ok(()) } else { Err(Failure::other(format!("could not {what}: {result}"))) }
}
