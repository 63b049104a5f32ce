//! Open MPI's own shared memory (its `sm` or `vader`, below `ob1`), which is looked for when the study
//! runs: the study is not linked to it. Its handles are addresses of objects in its library.

#![expect(
    clippy::multiple_unsafe_ops_per_block,
    reason = "a call through a table of pointers is several at once"
)]

use std::ffi::{c_char, c_int, c_void};
use std::process::Command;
use std::ptr;

use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW, Symbol};

use super::{Seat, TAG, Wire};
use crate::failure::{Doing, Failure};

/// Name of the library in Open MPI 4.0 to 5.0.
const LIBRARY: &str = "libmpi.so.40";
const LAUNCHER: &str = "mpirun";

type Init = unsafe extern "C" fn(*mut c_int, *mut *mut *mut c_char) -> c_int;
type Send =
    unsafe extern "C" fn(*const c_void, c_int, *mut c_void, c_int, c_int, *mut c_void) -> c_int;
type Receive = unsafe extern "C" fn(
    *mut c_void,
    c_int,
    *mut c_void,
    c_int,
    c_int,
    *mut c_void,
    *mut c_void,
) -> c_int;
type Finalize = unsafe extern "C" fn() -> c_int;

pub(crate) struct Mpi {
    send: Symbol<Send>,
    receive: Symbol<Receive>,
    finalize: Symbol<Finalize>,
    world: *mut c_void,
    byte: *mut c_void,
    next: c_int,
    previous: c_int,
    _library: Library,
}

pub(super) fn settings() -> String {
    "blocking MPI_Send and MPI_Recv of MPI_BYTE; started by mpirun without its transports for networks, and \
     bound to processors by this study"
        .to_owned()
}

pub(super) fn absence() -> Option<String> {
    if let Err(error) = library() {
        return Some(format!("no Open MPI: {error} (Debian: openmpi-bin)"));
    }
    let answers = Command::new(LAUNCHER).arg("--version").output();
    let is_there = answers.is_ok_and(|output| output.status.success());
    (!is_there).then(|| format!("no {LAUNCHER} (Debian: openmpi-bin)"))
}

/// The `mpirun` command that starts the processes and connects them.
pub(super) fn launcher(processes: &[Vec<String>]) -> Command {
    let mut command = Command::new(LAUNCHER);
    // It refuses to run as root without both variables.
    command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    command.args(["--oversubscribe", "--bind-to", "none", "--mca", "pml", "ob1"]);
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

fn library() -> Result<Library, libloading::Error> {
    // SAFETY: loading the library runs the same initialization as in any program that is linked to it.
    // Its plugins look up its symbols, which must therefore be global.
    unsafe { Library::open(Some(LIBRARY), RTLD_NOW | RTLD_GLOBAL) }
}

impl Wire for Mpi {
    fn open(seat: &Seat) -> Result<Self, Failure> {
        let what = "load Open MPI";
        let library = library().doing(what)?;
        // SAFETY: the MPI standard's C binding declares the functions with these types.
        let (init, send, receive, finalize) = unsafe {
            (
                library.get::<Init>(b"MPI_Init").doing(what)?,
                library.get::<Send>(b"MPI_Send").doing(what)?,
                library.get::<Receive>(b"MPI_Recv").doing(what)?,
                library.get::<Finalize>(b"MPI_Finalize").doing(what)?,
            )
        };
        // SAFETY: objects of the library; only their addresses are used.
        let (world, byte) = unsafe {
            (
                library.get::<*mut c_void>(b"ompi_mpi_comm_world").doing(what)?.into_raw(),
                library.get::<*mut c_void>(b"ompi_mpi_byte").doing(what)?.into_raw(),
            )
        };
        // SAFETY: MPI allows null for both arguments.
        check(unsafe { init(ptr::null_mut(), ptr::null_mut()) }, "start MPI")?;
        let next = c_int::try_from(seat.next()).doing(what)?;
        let previous = c_int::try_from(seat.previous()).doing(what)?;
        Ok(Self { send, receive, finalize, world, byte, next, previous, _library: library })
    }

    #[inline(always)]
    fn send(&mut self, message: &[u8]) -> Result<(), Failure> {
        let (count, tag) = (count(message.len())?, c_int::try_from(TAG).unwrap_or_default());
        // SAFETY: the buffer has the length that is passed, and MPI does not use it after the return.
        let result = unsafe {
            (self.send)(message.as_ptr().cast(), count, self.byte, self.next, tag, self.world)
        };
        check(result, "send")
    }

    #[inline(always)]
    fn receive(&mut self, target: &mut [u8]) -> Result<(), Failure> {
        let (count, tag) = (count(target.len())?, c_int::try_from(TAG).unwrap_or_default());
        let (buffer, no_status) = (target.as_mut_ptr().cast(), ptr::null_mut());
        // SAFETY: as above; MPI ignores a null status.
        let result = unsafe {
            (self.receive)(buffer, count, self.byte, self.previous, tag, self.world, no_status)
        };
        check(result, "receive")
    }
}

impl Drop for Mpi {
    fn drop(&mut self) {
        // SAFETY: MPI was started once, and no operation is under way.
        unsafe { (self.finalize)() };
    }
}

fn count(bytes: usize) -> Result<c_int, Failure> {
    c_int::try_from(bytes).doing("count bytes")
}

#[inline(always)]
fn check(result: c_int, what: &str) -> Result<(), Failure> {
    if result == 0 { Ok(()) } else { Err(Failure::other(format!("could not {what}: {result}"))) }
}
