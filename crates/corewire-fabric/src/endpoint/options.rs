//! Options of endpoints, and the calls of contexts, which there are none of.

use core::ffi::{c_int, c_void};

use corewire_ofi::endpoint::{
    FI_HMEM_P2P_DISABLED, FI_OPT_CUDA_API_PERMITTED, FI_OPT_ENDPOINT, FI_OPT_FI_HMEM_P2P,
    FI_OPT_INJECT_MSG_SIZE, FI_OPT_INJECT_TAGGED_SIZE, FI_OPT_MAX_MSG_SIZE, FI_OPT_MAX_TAGGED_SIZE,
    FI_OPT_MIN_MULTI_RECV, FI_OPT_SHARED_MEMORY_PERMITTED, FidEp, OpsEp,
};
use corewire_ofi::errors::{FI_ENOPROTOOPT, FI_ETOOSMALL};
use corewire_ofi::fid::Fid;
use corewire_ofi::info::{RxAttr, TxAttr};

use super::Ep;
use super::named::named;
use crate::errors::{Errno, INVALID, NO_SYSTEM_CALL, NOT_SUPPORTED, Outcome, result, status};
use crate::limits::{INJECT_BYTES_MAX, MESSAGE_BYTES_MAX, OPERATIONS};
use crate::memory::{get, put};
use crate::object::enter;

pub(super) static OPS: OpsEp = OpsEp {
    size: size_of::<OpsEp>(),
    cancel,
    getopt,
    setopt,
    tx_ctx,
    rx_ctx,
    rx_size_left: size_left,
    tx_size_left: size_left,
};

const NO_OPTION: Errno = Errno(FI_ENOPROTOOPT);

unsafe extern "C" fn cancel(fid: *mut Fid, context: *mut c_void) -> isize {
    let cancel = || {
        // SAFETY: the program passes one of its objects.
        unsafe { enter::<Ep>(fid.cast()) }?.cancel(context)
    };
    result(cancel())
}

unsafe extern "C" fn getopt(
    fid: *mut Fid,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    length: *mut usize,
) -> c_int {
    let get = || {
        // SAFETY: the program passes one of its objects.
        let endpoint = unsafe { enter::<Ep>(fid.cast()) }?;
        if level != FI_OPT_ENDPOINT {
            return Err(NO_OPTION);
        }
        let found = match name {
            FI_OPT_MIN_MULTI_RECV => endpoint.min_multi_recv,
            FI_OPT_MAX_MSG_SIZE | FI_OPT_MAX_TAGGED_SIZE => MESSAGE_BYTES_MAX,
            FI_OPT_INJECT_MSG_SIZE | FI_OPT_INJECT_TAGGED_SIZE => INJECT_BYTES_MAX,
            // SAFETY: the program passes room for an `int`.
            FI_OPT_FI_HMEM_P2P => return unsafe { give(value, length, FI_HMEM_P2P_DISABLED) },
            _ => return Err(NO_OPTION),
        };
        // SAFETY: the program passes room for a `size_t`.
        unsafe { give(value, length, found) }
    };
    status(get())
}

/// Returns a value, if there is room.
///
/// # Safety
/// The pointers are what the program passed.
unsafe fn give<T: Copy>(value: *mut c_void, length: *mut usize, found: T) -> Outcome {
    // SAFETY: the caller guarantees that.
    let room = unsafe { get(length.cast_const()) }?;
    // SAFETY: as above.
    unsafe { put(length, size_of::<T>()) }?;
    if room < size_of::<T>() {
        return Err(Errno(FI_ETOOSMALL));
    }
    // SAFETY: as above.
    unsafe { put(value.cast(), found) }
}

unsafe extern "C" fn setopt(
    fid: *mut Fid,
    level: c_int,
    name: c_int,
    value: *const c_void,
    length: usize,
) -> c_int {
    let set = || {
        // SAFETY: the program passes one of its objects.
        let mut endpoint = unsafe { enter::<Ep>(fid.cast()) }?;
        if level != FI_OPT_ENDPOINT {
            return Err(NO_OPTION);
        }
        match name {
            FI_OPT_MIN_MULTI_RECV => {
                // SAFETY: the program passes so many bytes.
                endpoint.min_multi_recv = unsafe { take(value, length) }?;
                Ok(())
            }
            // What the program will not exceed.
            FI_OPT_MAX_MSG_SIZE | FI_OPT_MAX_TAGGED_SIZE => {
                // SAFETY: as above.
                at_most(unsafe { take(value, length) }?, MESSAGE_BYTES_MAX)
            }
            FI_OPT_INJECT_MSG_SIZE | FI_OPT_INJECT_TAGGED_SIZE => {
                // SAFETY: as above.
                at_most(unsafe { take(value, length) }?, INJECT_BYTES_MAX)
            }
            FI_OPT_FI_HMEM_P2P => {
                // SAFETY: as above.
                let wanted: c_int = unsafe { take(value, length) }?;
                if wanted == FI_HMEM_P2P_DISABLED { Ok(()) } else { Err(NOT_SUPPORTED) }
            }
            FI_OPT_CUDA_API_PERMITTED => {
                // SAFETY: as above.
                unsafe { take::<u8>(value, length) }.map(drop)
            }
            FI_OPT_SHARED_MEMORY_PERMITTED => {
                // SAFETY: as above. There is nothing but shared memory here.
                if unsafe { take::<u8>(value, length) }? == 0 { Err(NOT_SUPPORTED) } else { Ok(()) }
            }
            _ => Err(NO_OPTION),
        }
    };
    status(set())
}

fn at_most(wanted: usize, max: usize) -> Outcome {
    if wanted > max { Err(NOT_SUPPORTED) } else { Ok(()) }
}

/// The value that a program passes.
///
/// # Safety
/// `value` is null, or has `length` bytes.
unsafe fn take<T: Copy>(value: *const c_void, length: usize) -> Outcome<T> {
    if value.is_null() || length != size_of::<T>() {
        return Err(INVALID);
    }
    // SAFETY: the caller guarantees the length.
    Ok(unsafe { value.cast::<T>().read_unaligned() })
}

unsafe extern "C" fn tx_ctx(
    endpoint: *mut FidEp,
    _: c_int,
    _: *mut TxAttr,
    _: *mut *mut FidEp,
    _: *mut c_void,
) -> c_int {
    // SAFETY: the program passes one of its objects.
    status(unsafe { named(endpoint) }.and(Err(NO_SYSTEM_CALL)))
}

unsafe extern "C" fn rx_ctx(
    endpoint: *mut FidEp,
    _: c_int,
    _: *mut RxAttr,
    _: *mut *mut FidEp,
    _: *mut c_void,
) -> c_int {
    // SAFETY: the program passes one of its objects.
    status(unsafe { named(endpoint) }.and(Err(NO_SYSTEM_CALL)))
}

/// Room for operations: there is always some.
unsafe extern "C" fn size_left(endpoint: *mut FidEp) -> isize {
    // SAFETY: the program passes one of its objects.
    let mut entered = match unsafe { named(endpoint) } {
        Ok(entered) => entered,
        Err(error) => return error.negative(),
    };
    match entered.endpoint() {
        Ok(_) => OPERATIONS as isize,
        Err(error) => error.negative(),
    }
}
