//! Sets of objects, to wait for or to poll.

use core::ffi::{c_int, c_void};

use crate::fid::Fid;
use crate::layout;

/// Which set is wanted: `struct fi_wait_attr`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct WaitAttr {
    /// One of `FI_WAIT_*`.
    pub wait_obj: c_int,
    /// Flags.
    pub flags: u64,
}
layout!(WaitAttr, 16, wait_obj: 0, flags: 8);

/// A set to wait for: `struct fid_wait`.
#[repr(C)]
#[derive(Debug)]
pub struct FidWait {
    /// The beginning of every object.
    pub fid: Fid,
    /// What it can do.
    pub ops: *const c_void,
}
layout!(FidWait, 32, fid: 0, ops: 24);

/// Which set is wanted: `struct fi_poll_attr`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct PollAttr {
    /// Flags.
    pub flags: u64,
}
layout!(PollAttr, 8, flags: 0);

/// A set to poll: `struct fid_poll`.
#[repr(C)]
#[derive(Debug)]
pub struct FidPoll {
    /// The beginning of every object.
    pub fid: Fid,
    /// What it can do.
    pub ops: *const OpsPoll,
}
layout!(FidPoll, 32, fid: 0, ops: 24);

/// What a set to poll can do: `struct fi_ops_poll`.
#[repr(C)]
#[derive(Debug)]
pub struct OpsPoll {
    /// Its own size in bytes.
    pub size: usize,
    /// `fi_poll`.
    pub poll: unsafe extern "C" fn(*mut FidPoll, *mut *mut c_void, c_int) -> c_int,
    /// `fi_poll_add`.
    pub poll_add: unsafe extern "C" fn(*mut FidPoll, *mut Fid, u64) -> c_int,
    /// `fi_poll_del`.
    pub poll_del: unsafe extern "C" fn(*mut FidPoll, *mut Fid, u64) -> c_int,
}
layout!(OpsPoll, 32, size: 0, poll: 8, poll_add: 16, poll_del: 24);
