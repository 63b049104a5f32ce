//! Open MPI's own shared memory (its `sm` or `vader`, below `ob1`).

use std::ffi::{c_int, c_void};
use std::ptr;

use libloading::os::unix::Symbol;

use super::{Seat, TAG, Wire};
use crate::study::failure::{Doing, Failure};
use crate::study::open_mpi::{self, OpenMpi, check, count};

/// A buffer, a handle, or a status.
type Pointer = *mut c_void;
type Send = unsafe extern "C" fn(*const c_void, c_int, Pointer, c_int, c_int, Pointer) -> c_int;
type Receive =
    unsafe extern "C" fn(Pointer, c_int, Pointer, c_int, c_int, Pointer, Pointer) -> c_int;

pub(crate) struct Mpi {
    send: Symbol<Send>,
    receive: Symbol<Receive>,
    world: Pointer,
    byte: Pointer,
    next: c_int,
    previous: c_int,
    _library: OpenMpi,
}

pub(super) fn settings() -> String {
    format!("blocking MPI_Send and MPI_Recv of MPI_BYTE; {}", open_mpi::START)
}

impl Wire for Mpi {
    fn open(seat: &Seat) -> Result<Self, Failure> {
        let mpi = OpenMpi::start()?;
        // SAFETY: the MPI standard's C binding declares the functions with these types.
        let send = unsafe { mpi.function::<Send>(c"MPI_Send") }?;
        // SAFETY: as above.
        let receive = unsafe { mpi.function::<Receive>(c"MPI_Recv") }?;
        let (world, byte) = (mpi.handle(c"ompi_mpi_comm_world")?, mpi.handle(c"ompi_mpi_byte")?);
        let rank = |index| c_int::try_from(index).doing("count processes");
        let (next, previous) = (rank(seat.next())?, rank(seat.previous())?);
        Ok(Self { send, receive, world, byte, next, previous, _library: mpi })
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
