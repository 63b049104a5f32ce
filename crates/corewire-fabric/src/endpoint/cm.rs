//! Addresses of endpoints. There are no connections.

use core::ffi::{c_int, c_void};

use corewire_ofi::endpoint::{FidEp, OpsCm};
use corewire_ofi::errors::FI_ETOOSMALL;
use corewire_ofi::fid::Fid;

use super::Ep;
use super::named::named;
use crate::address::{ADDRESS_BYTES, Address};
use crate::errors::{BAD_STATE, Errno, INVALID, NO_SYSTEM_CALL, Outcome, status};
use crate::memory::{copy_out, get, put};
use crate::object::enter;
use crate::refusals::no_call;

pub(super) static OPS: OpsCm = OpsCm {
    size: size_of::<OpsCm>(),
    setname,
    getname,
    getpeer,
    connect,
    listen,
    accept,
    reject,
    shutdown,
    join,
};

/// Chooses the address, before the endpoint is enabled.
unsafe extern "C" fn setname(fid: *mut Fid, address: *mut c_void, length: usize) -> c_int {
    let set = || {
        // SAFETY: the program passes one of its objects.
        let mut endpoint = unsafe { enter::<Ep>(fid.cast()) }?;
        if endpoint.endpoint.is_some() {
            return Err(BAD_STATE);
        }
        if length != ADDRESS_BYTES {
            return Err(INVALID);
        }
        // SAFETY: the program passes an address of this length.
        let bytes = unsafe { get(address.cast_const().cast()) }?;
        endpoint.setting.address = Address::parse(&bytes)?.of_name();
        endpoint.setting.is_fixed = true;
        Ok(())
    };
    status(set())
}

/// The address. Before the endpoint is enabled it has only a name, which the endpoint keeps.
unsafe extern "C" fn getname(fid: *mut Fid, address: *mut c_void, length: *mut usize) -> c_int {
    let get_name = || {
        // SAFETY: the program passes one of its objects.
        let mut endpoint = unsafe { enter::<Ep>(fid.cast()) }?;
        // SAFETY: the program passes a length.
        let room = unsafe { get(length.cast_const()) }?;
        if address.is_null() && room > 0 {
            return Err(INVALID);
        }
        endpoint.setting.is_fixed = true;
        let found = endpoint.setting.address.to_bytes();
        // SAFETY: the program passes room for so many bytes.
        unsafe { copy_out(&found, address, room) };
        // SAFETY: as above.
        unsafe { put(length, ADDRESS_BYTES) }?;
        if room < ADDRESS_BYTES { Err(Errno(FI_ETOOSMALL)) } else { Ok(()) }
    };
    status(get_name())
}

/// Refuses what only connected endpoints do.
fn refuse(endpoint: *mut FidEp) -> c_int {
    // SAFETY: the program passes one of its objects.
    let outcome: Outcome = unsafe { named(endpoint) }.and(Err(NO_SYSTEM_CALL));
    status(outcome)
}

unsafe extern "C" fn getpeer(endpoint: *mut FidEp, _: *mut c_void, _: *mut usize) -> c_int {
    refuse(endpoint)
}

unsafe extern "C" fn connect(
    endpoint: *mut FidEp,
    _: *const c_void,
    _: *const c_void,
    _: usize,
) -> c_int {
    refuse(endpoint)
}

unsafe extern "C" fn listen(endpoint: *mut c_void) -> c_int {
    no_call(endpoint)
}

unsafe extern "C" fn accept(endpoint: *mut FidEp, _: *const c_void, _: usize) -> c_int {
    refuse(endpoint)
}

unsafe extern "C" fn reject(
    endpoint: *mut c_void,
    _: *mut Fid,
    _: *const c_void,
    _: usize,
) -> c_int {
    no_call(endpoint)
}

unsafe extern "C" fn shutdown(endpoint: *mut FidEp, _: u64) -> c_int {
    refuse(endpoint)
}

unsafe extern "C" fn join(
    endpoint: *mut FidEp,
    _: *const c_void,
    _: u64,
    _: *mut *mut c_void,
    _: *mut c_void,
) -> c_int {
    refuse(endpoint)
}
