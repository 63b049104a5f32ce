//! What all objects begin with.

use core::ffi::{c_char, c_int, c_void};

use crate::layout;

/// Class: none, or closed.
pub const FI_CLASS_UNSPEC: usize = 0;
/// Class: fabric.
pub const FI_CLASS_FABRIC: usize = 1;
/// Class: domain.
pub const FI_CLASS_DOMAIN: usize = 2;
/// Class: endpoint.
pub const FI_CLASS_EP: usize = 3;
/// Class: address vector.
pub const FI_CLASS_AV: usize = 11;
/// Class: memory region.
pub const FI_CLASS_MR: usize = 12;
/// Class: event queue.
pub const FI_CLASS_EQ: usize = 13;
/// Class: completion queue.
pub const FI_CLASS_CQ: usize = 14;
/// Class: counter.
pub const FI_CLASS_CNTR: usize = 15;
/// Class: set of objects to wait for.
pub const FI_CLASS_WAIT: usize = 16;
/// Class: set of objects to poll.
pub const FI_CLASS_POLL: usize = 17;

/// Control: flags of the object.
pub const FI_GETFIDFLAG: c_int = 0;
/// Control: the flags of calls that have none.
pub const FI_GETOPSFLAG: c_int = 2;
/// Control: sets the flags of calls that have none.
pub const FI_SETOPSFLAG: c_int = 3;
/// Control: another descriptor of the object.
pub const FI_ALIAS: c_int = 4;
/// Control: the object to wait for.
pub const FI_GETWAIT: c_int = 5;
/// Control: enables an endpoint or a region.
pub const FI_ENABLE: c_int = 6;
/// Control: the key of a region, of any length.
pub const FI_GET_RAW_MR: c_int = 8;
/// Control: which object to wait for it is.
pub const FI_GETWAITOBJ: c_int = 16;

/// What to wait for: nothing.
pub const FI_WAIT_NONE: c_int = 0;
/// What to wait for: whatever the provider has.
pub const FI_WAIT_UNSPEC: c_int = 1;
/// What to wait for: a set.
pub const FI_WAIT_SET: c_int = 2;
/// What to wait for: a descriptor.
pub const FI_WAIT_FD: c_int = 3;
/// What to wait for: a mutex and a condition.
pub const FI_WAIT_MUTEX_COND: c_int = 4;
/// What to wait for: nothing, the calls yield.
pub const FI_WAIT_YIELD: c_int = 5;
/// What to wait for: several descriptors.
pub const FI_WAIT_POLLFD: c_int = 6;

/// The beginning of every object: `struct fid`.
#[repr(C)]
#[derive(Debug)]
pub struct Fid {
    /// One of `FI_CLASS_*`.
    pub fclass: usize,
    /// The program's.
    pub context: *mut c_void,
    /// What all objects can do.
    pub ops: *const Ops,
}
layout!(Fid, 24, fclass: 0, context: 8, ops: 16);

/// What all objects can do: `struct fi_ops`.
#[repr(C)]
#[derive(Debug)]
pub struct Ops {
    /// Its own size in bytes.
    pub size: usize,
    /// `fi_close`.
    pub close: unsafe extern "C" fn(*mut Fid) -> c_int,
    /// `fi_ep_bind` and others.
    pub bind: unsafe extern "C" fn(*mut Fid, *mut Fid, u64) -> c_int,
    /// `fi_control`.
    pub control: unsafe extern "C" fn(*mut Fid, c_int, *mut c_void) -> c_int,
    /// `fi_open_ops`.
    pub ops_open:
        unsafe extern "C" fn(*mut Fid, *const c_char, u64, *mut *mut c_void, *mut c_void) -> c_int,
    /// The object as text, for providers that print their own; optional.
    pub tostr: Option<unsafe extern "C" fn(*const Fid, *mut c_char, usize) -> c_int>,
    /// `fi_set_ops`; optional.
    pub ops_set: Option<
        unsafe extern "C" fn(*mut Fid, *const c_char, u64, *mut c_void, *mut c_void) -> c_int,
    >,
}
layout!(Ops, 56, size: 0, close: 8, bind: 16, control: 24, ops_open: 32, tostr: 40, ops_set: 48);

/// What an operation lends to the provider until it ends: `struct fi_context`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Context {
    /// Four words of the provider's.
    pub internal: [*mut c_void; 4],
}
layout!(Context, 32);
