//! Event queues.

use core::ffi::{c_char, c_int, c_void};

use crate::fid::Fid;
use crate::layout;
use crate::poll::FidWait;

/// Event: an asynchronous insertion of addresses has ended.
pub const FI_AV_COMPLETE: u32 = 5;

/// An event queue: `struct fid_eq`.
#[repr(C)]
#[derive(Debug)]
pub struct FidEq {
    /// The beginning of every object.
    pub fid: Fid,
    /// What it can do.
    pub ops: *const OpsEq,
}
layout!(FidEq, 32, fid: 0, ops: 24);

/// Which event queue is wanted: `struct fi_eq_attr`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct EqAttr {
    /// Number of entries.
    pub size: usize,
    /// Flags.
    pub flags: u64,
    /// One of `FI_WAIT_*`.
    pub wait_obj: c_int,
    /// Which processor handles interrupts.
    pub signaling_vector: c_int,
    /// The set, for `FI_WAIT_SET`.
    pub wait_set: *mut FidWait,
}
layout!(EqAttr, 32, size: 0, flags: 8, wait_obj: 16, signaling_vector: 20, wait_set: 24);

/// An event: `struct fi_eq_entry`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct EqEntry {
    /// The object.
    pub fid: *mut Fid,
    /// The program's.
    pub context: *mut c_void,
    /// What the event says, such as a number of addresses.
    pub data: u64,
}
layout!(EqEntry, 24, fid: 0, context: 8, data: 16);

/// An event of something that failed: `struct fi_eq_err_entry`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct EqErrEntry {
    /// The object.
    pub fid: *mut Fid,
    /// The program's.
    pub context: *mut c_void,
    /// What the event says, such as the index of an address.
    pub data: u64,
    /// The error.
    pub err: c_int,
    /// The provider's own number of the error.
    pub prov_errno: c_int,
    /// More about it.
    pub err_data: *mut c_void,
    /// Length of that.
    pub err_data_size: usize,
}
layout!(EqErrEntry, 48, fid: 0, context: 8, data: 16, err: 24, prov_errno: 28, err_data: 32, err_data_size: 40);

/// What an event queue can do: `struct fi_ops_eq`.
#[repr(C)]
#[derive(Debug)]
pub struct OpsEq {
    /// Its own size in bytes.
    pub size: usize,
    /// `fi_eq_read`.
    pub read: unsafe extern "C" fn(*mut FidEq, *mut u32, *mut c_void, usize, u64) -> isize,
    /// `fi_eq_readerr`.
    pub readerr: unsafe extern "C" fn(*mut FidEq, *mut EqErrEntry, u64) -> isize,
    /// `fi_eq_write`.
    pub write: unsafe extern "C" fn(*mut FidEq, u32, *const c_void, usize, u64) -> isize,
    /// `fi_eq_sread`.
    pub sread: unsafe extern "C" fn(*mut FidEq, *mut u32, *mut c_void, usize, c_int, u64) -> isize,
    /// `fi_eq_strerror`.
    pub strerror:
        unsafe extern "C" fn(*mut FidEq, c_int, *const c_void, *mut c_char, usize) -> *const c_char,
}
layout!(OpsEq, 48, size: 0, read: 8, readerr: 16, write: 24, sread: 32, strerror: 40);
