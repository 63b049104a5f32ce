//! Counters of completions.

use core::ffi::c_int;

use crate::fid::Fid;
use crate::layout;
use crate::poll::FidWait;

/// What a counter counts: completions.
pub const FI_CNTR_EVENTS_COMP: c_int = 0;
/// What a counter counts: bytes of completions (1.22).
pub const FI_CNTR_EVENTS_BYTES: c_int = 1;

/// A counter: `struct fid_cntr`.
#[repr(C)]
#[derive(Debug)]
pub struct FidCntr {
    /// The beginning of every object.
    pub fid: Fid,
    /// What it can do.
    pub ops: *const OpsCntr,
}
layout!(FidCntr, 32, fid: 0, ops: 24);

/// Which counter is wanted: `struct fi_cntr_attr`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct CntrAttr {
    /// What it counts.
    pub events: c_int,
    /// One of `FI_WAIT_*`.
    pub wait_obj: c_int,
    /// The set, for `FI_WAIT_SET`.
    pub wait_set: *mut FidWait,
    /// Flags.
    pub flags: u64,
}
layout!(CntrAttr, 24, events: 0, wait_obj: 4, wait_set: 8, flags: 16);

/// What a counter can do: `struct fi_ops_cntr`.
#[repr(C)]
#[derive(Debug)]
pub struct OpsCntr {
    /// Its own size in bytes.
    pub size: usize,
    /// `fi_cntr_read`.
    pub read: unsafe extern "C" fn(*mut FidCntr) -> u64,
    /// `fi_cntr_readerr`.
    pub readerr: unsafe extern "C" fn(*mut FidCntr) -> u64,
    /// `fi_cntr_add`.
    pub add: unsafe extern "C" fn(*mut FidCntr, u64) -> c_int,
    /// `fi_cntr_set`.
    pub set: unsafe extern "C" fn(*mut FidCntr, u64) -> c_int,
    /// `fi_cntr_wait`.
    pub wait: unsafe extern "C" fn(*mut FidCntr, u64, c_int) -> c_int,
    /// `fi_cntr_adderr`.
    pub adderr: unsafe extern "C" fn(*mut FidCntr, u64) -> c_int,
    /// `fi_cntr_seterr`.
    pub seterr: unsafe extern "C" fn(*mut FidCntr, u64) -> c_int,
}
layout!(OpsCntr, 64, size: 0, read: 8, readerr: 16, add: 24, set: 32, wait: 40, adderr: 48, seterr: 56);
