//! Access to a peer's memory, which is not offered. MPIs do it by messages then.

use core::ffi::{c_int, c_void};

use corewire_ofi::atomic::{Ioc, MsgAtomic, OpsAtomic};
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
    write: atomic,
    writev: atomicv,
    writemsg: atomicmsg,
    inject: inject_atomic,
    readwrite: fetch_atomic,
    readwritev: fetch_atomicv,
    readwritemsg: fetch_atomicmsg,
    compwrite: compare_atomic,
    compwritev: compare_atomicv,
    compwritemsg: compare_atomicmsg,
    writevalid: valid,
    readwritevalid: valid,
    compwritevalid: valid,
};

unsafe fn refuse(endpoint: *mut FidEp) -> isize {
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

unsafe extern "C" fn atomic(
    endpoint: *mut FidEp,
    _: *const c_void,
    _: usize,
    _: *mut c_void,
    _: FiAddr,
    _: u64,
    _: u64,
    _: c_int,
    _: c_int,
    _: *mut c_void,
) -> isize {
    // SAFETY: as for this function.
    unsafe { refuse(endpoint) }
}

unsafe extern "C" fn atomicv(
    endpoint: *mut FidEp,
    _: *const Ioc,
    _: *mut *mut c_void,
    _: usize,
    _: FiAddr,
    _: u64,
    _: u64,
    _: c_int,
    _: c_int,
    _: *mut c_void,
) -> isize {
    // SAFETY: as for this function.
    unsafe { refuse(endpoint) }
}

unsafe extern "C" fn atomicmsg(endpoint: *mut FidEp, _: *const MsgAtomic, _: u64) -> isize {
    // SAFETY: as for this function.
    unsafe { refuse(endpoint) }
}

unsafe extern "C" fn inject_atomic(
    endpoint: *mut FidEp,
    _: *const c_void,
    _: usize,
    _: FiAddr,
    _: u64,
    _: u64,
    _: c_int,
    _: c_int,
) -> isize {
    // SAFETY: as for this function.
    unsafe { refuse(endpoint) }
}

unsafe extern "C" fn fetch_atomic(
    endpoint: *mut FidEp,
    _: *const c_void,
    _: usize,
    _: *mut c_void,
    _: *mut c_void,
    _: *mut c_void,
    _: FiAddr,
    _: u64,
    _: u64,
    _: c_int,
    _: c_int,
    _: *mut c_void,
) -> isize {
    // SAFETY: as for this function.
    unsafe { refuse(endpoint) }
}

unsafe extern "C" fn fetch_atomicv(
    endpoint: *mut FidEp,
    _: *const Ioc,
    _: *mut *mut c_void,
    _: usize,
    _: *mut Ioc,
    _: *mut *mut c_void,
    _: usize,
    _: FiAddr,
    _: u64,
    _: u64,
    _: c_int,
    _: c_int,
    _: *mut c_void,
) -> isize {
    // SAFETY: as for this function.
    unsafe { refuse(endpoint) }
}

unsafe extern "C" fn fetch_atomicmsg(
    endpoint: *mut FidEp,
    _: *const MsgAtomic,
    _: *mut Ioc,
    _: *mut *mut c_void,
    _: usize,
    _: u64,
) -> isize {
    // SAFETY: as for this function.
    unsafe { refuse(endpoint) }
}

unsafe extern "C" fn compare_atomic(
    endpoint: *mut FidEp,
    _: *const c_void,
    _: usize,
    _: *mut c_void,
    _: *const c_void,
    _: *mut c_void,
    _: *mut c_void,
    _: *mut c_void,
    _: FiAddr,
    _: u64,
    _: u64,
    _: c_int,
    _: c_int,
    _: *mut c_void,
) -> isize {
    // SAFETY: as for this function.
    unsafe { refuse(endpoint) }
}

unsafe extern "C" fn compare_atomicv(
    endpoint: *mut FidEp,
    _: *const Ioc,
    _: *mut *mut c_void,
    _: usize,
    _: *const Ioc,
    _: *mut *mut c_void,
    _: usize,
    _: *mut Ioc,
    _: *mut *mut c_void,
    _: usize,
    _: FiAddr,
    _: u64,
    _: u64,
    _: c_int,
    _: c_int,
    _: *mut c_void,
) -> isize {
    // SAFETY: as for this function.
    unsafe { refuse(endpoint) }
}

unsafe extern "C" fn compare_atomicmsg(
    endpoint: *mut FidEp,
    _: *const MsgAtomic,
    _: *const Ioc,
    _: *mut *mut c_void,
    _: usize,
    _: *mut Ioc,
    _: *mut *mut c_void,
    _: usize,
    _: u64,
) -> isize {
    // SAFETY: as for this function.
    unsafe { refuse(endpoint) }
}

/// No operation is possible with any type.
unsafe extern "C" fn valid(endpoint: *mut FidEp, _: c_int, _: c_int, _: *mut usize) -> c_int {
    // SAFETY: the program passes one of its objects.
    status(unsafe { named(endpoint) }.and(Err(NOT_SUPPORTED)))
}
