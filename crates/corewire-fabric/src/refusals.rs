//! Calls that an object does not have, and the table of those that every object has.

use core::ffi::{c_char, c_int, c_void};

use corewire_ofi::fid::{Fid, Ops};

use crate::errors::{Errno, INVALID, NO_SYSTEM_CALL};

const fn negative(error: Errno) -> c_int {
    -error.0
}

/// `-FI_ENOSYS`, or `-FI_EINVAL` for no object at all.
pub(crate) const fn no_call(object: *const c_void) -> c_int {
    negative(if object.is_null() { INVALID } else { NO_SYSTEM_CALL })
}

pub(crate) unsafe extern "C" fn no_bind(fid: *mut Fid, _: *mut Fid, _: u64) -> c_int {
    no_call(fid.cast())
}

pub(crate) unsafe extern "C" fn no_control(fid: *mut Fid, _: c_int, _: *mut c_void) -> c_int {
    no_call(fid.cast())
}

unsafe extern "C" fn no_ops_open(
    fid: *mut Fid,
    _: *const c_char,
    _: u64,
    _: *mut *mut c_void,
    _: *mut c_void,
) -> c_int {
    no_call(fid.cast())
}

/// What all objects of a kind can do.
pub(crate) const fn ops(
    close: unsafe extern "C" fn(*mut Fid) -> c_int,
    bind: unsafe extern "C" fn(*mut Fid, *mut Fid, u64) -> c_int,
    control: unsafe extern "C" fn(*mut Fid, c_int, *mut c_void) -> c_int,
) -> Ops {
    let (size, ops_open) = (size_of::<Ops>(), no_ops_open);
    Ops { size, close, bind, control, ops_open, tostr: None, ops_set: None }
}
