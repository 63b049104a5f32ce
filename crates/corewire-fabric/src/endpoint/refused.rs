//! Access to a peer's memory, which is not offered. MPIs do it by messages then.

use core::ffi::{c_int, c_void};

use corewire_ofi::atomic::OpsAtomic;
use corewire_ofi::endpoint::FidEp;
use corewire_ofi::rma::{MsgRma, OpsRma};
use corewire_ofi::{FiAddr, IoVec};

use super::named::named;
use crate::errors::{NO_SYSTEM_CALL, NOT_SUPPORTED, Outcome, result, status};

pub(super) static RMA: OpsRma<FidEp> = OpsRma {
    size: size_of::<OpsRma<FidEp>>(),
    read: one,
    readv: several,
    readmsg: message,
    write: one,
    writev: several,
    writemsg: message,
    inject,
    writedata,
    injectdata,
};

pub(super) static ATOMIC: OpsAtomic<FidEp> = OpsAtomic {
    size: size_of::<OpsAtomic<FidEp>>(),
    write: refuse,
    writev: refuse,
    writemsg,
    inject: refuse,
    readwrite: refuse,
    readwritev: refuse,
    readwritemsg: refuse,
    compwrite: refuse,
    compwritev: refuse,
    compwritemsg: refuse,
    writevalid: valid,
    readwritevalid: valid,
    compwritevalid: valid,
};

unsafe extern "C" fn refuse(endpoint: *mut FidEp) -> isize {
    // SAFETY: the program passes one of its objects.
    let outcome: Outcome = unsafe { named(endpoint) }.and(Err(NO_SYSTEM_CALL));
    result(outcome)
}

unsafe extern "C" fn one(
    endpoint: *mut FidEp,
    _: *mut c_void,
    _: usize,
    _: *mut c_void,
    _: FiAddr,
    _: u64,
    _: u64,
    _: *mut c_void,
) -> isize {
    // SAFETY: as for this function.
    unsafe { refuse(endpoint) }
}

unsafe extern "C" fn several(
    endpoint: *mut FidEp,
    _: *const IoVec,
    _: *mut *mut c_void,
    _: usize,
    _: FiAddr,
    _: u64,
    _: u64,
    _: *mut c_void,
) -> isize {
    // SAFETY: as for this function.
    unsafe { refuse(endpoint) }
}

unsafe extern "C" fn message(endpoint: *mut FidEp, _: *const MsgRma, _: u64) -> isize {
    // SAFETY: as for this function.
    unsafe { refuse(endpoint) }
}

unsafe extern "C" fn inject(
    endpoint: *mut FidEp,
    _: *const c_void,
    _: usize,
    _: FiAddr,
    _: u64,
    _: u64,
) -> isize {
    // SAFETY: as for this function.
    unsafe { refuse(endpoint) }
}

unsafe extern "C" fn writedata(
    endpoint: *mut FidEp,
    _: *const c_void,
    _: usize,
    _: *mut c_void,
    _: u64,
    _: FiAddr,
    _: u64,
    _: u64,
    _: *mut c_void,
) -> isize {
    // SAFETY: as for this function.
    unsafe { refuse(endpoint) }
}

unsafe extern "C" fn injectdata(
    endpoint: *mut FidEp,
    _: *const c_void,
    _: usize,
    _: u64,
    _: FiAddr,
    _: u64,
    _: u64,
) -> isize {
    // SAFETY: as for this function.
    unsafe { refuse(endpoint) }
}

unsafe extern "C" fn writemsg(endpoint: *mut FidEp, _: *const c_void, _: u64) -> isize {
    // SAFETY: as for this function.
    unsafe { refuse(endpoint) }
}

/// No operation is possible with any type.
unsafe extern "C" fn valid(endpoint: *mut FidEp, _: c_int, _: c_int, _: *mut usize) -> c_int {
    // SAFETY: the program passes one of its objects.
    status(unsafe { named(endpoint) }.and(Err(NOT_SUPPORTED)))
}
