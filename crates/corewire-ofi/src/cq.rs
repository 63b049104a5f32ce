//! Completion queues.

use core::ffi::{c_char, c_int, c_void};

use crate::fid::Fid;
use crate::poll::FidWait;
use crate::{FiAddr, layout};

/// Format of entries: the provider's choice.
pub const FI_CQ_FORMAT_UNSPEC: c_int = 0;
/// Format of entries: the context.
pub const FI_CQ_FORMAT_CONTEXT: c_int = 1;
/// Format of entries: [`MsgEntry`].
pub const FI_CQ_FORMAT_MSG: c_int = 2;
/// Format of entries: [`DataEntry`].
pub const FI_CQ_FORMAT_DATA: c_int = 3;
/// Format of entries: [`TaggedEntry`].
pub const FI_CQ_FORMAT_TAGGED: c_int = 4;

/// What ends a wait: any entry.
pub const FI_CQ_COND_NONE: c_int = 0;
/// What ends a wait: a number of entries.
pub const FI_CQ_COND_THRESHOLD: c_int = 1;

/// Bytes of an error entry of programs that ask for an interface before 1.20: it has no source.
pub const ERR_ENTRY_BYTES_BEFORE_1_20: usize = 80;

/// A completion queue: `struct fid_cq`.
#[repr(C)]
#[derive(Debug)]
pub struct FidCq {
    /// The beginning of every object.
    pub fid: Fid,
    /// What it can do.
    pub ops: *const OpsCq,
}
layout!(FidCq, 32, fid: 0, ops: 24);

/// Which completion queue is wanted: `struct fi_cq_attr`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct CqAttr {
    /// Number of entries.
    pub size: usize,
    /// Flags.
    pub flags: u64,
    /// One of `FI_CQ_FORMAT_*`.
    pub format: c_int,
    /// One of `FI_WAIT_*`.
    pub wait_obj: c_int,
    /// Which processor handles interrupts.
    pub signaling_vector: c_int,
    /// One of `FI_CQ_COND_*`.
    pub wait_cond: c_int,
    /// The set, for `FI_WAIT_SET`.
    pub wait_set: *mut FidWait,
}
layout!(CqAttr, 40, size: 0, flags: 8, format: 16, wait_obj: 20, signaling_vector: 24, wait_cond: 28, wait_set: 32);

/// An entry: `struct fi_cq_msg_entry`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct MsgEntry {
    /// The operation's.
    pub op_context: *mut c_void,
    /// What has completed.
    pub flags: u64,
    /// Length of what was received.
    pub len: usize,
}
layout!(MsgEntry, 24, op_context: 0, flags: 8, len: 16);

/// An entry: `struct fi_cq_data_entry`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct DataEntry {
    /// The operation's.
    pub op_context: *mut c_void,
    /// What has completed.
    pub flags: u64,
    /// Length of what was received.
    pub len: usize,
    /// Where that is, of a buffer for several messages.
    pub buf: *mut c_void,
    /// Data that the peer sent beside the message.
    pub data: u64,
}
layout!(DataEntry, 40, op_context: 0, flags: 8, len: 16, buf: 24, data: 32);

/// An entry: `struct fi_cq_tagged_entry`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct TaggedEntry {
    /// The operation's.
    pub op_context: *mut c_void,
    /// What has completed.
    pub flags: u64,
    /// Length of what was received.
    pub len: usize,
    /// Where that is, of a buffer for several messages.
    pub buf: *mut c_void,
    /// Data that the peer sent beside the message.
    pub data: u64,
    /// The message's tag.
    pub tag: u64,
}
layout!(TaggedEntry, 48, op_context: 0, flags: 8, len: 16, buf: 24, data: 32, tag: 40);

/// An entry of an operation that failed: `struct fi_cq_err_entry`, as of 1.20. Programs that ask for an older interface
/// have [`ERR_ENTRY_BYTES_BEFORE_1_20`] bytes.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct ErrEntry {
    /// The operation's.
    pub op_context: *mut c_void,
    /// What has failed.
    pub flags: u64,
    /// Length of what was received.
    pub len: usize,
    /// Where that is, of a buffer for several messages.
    pub buf: *mut c_void,
    /// Data that the peer sent beside the message.
    pub data: u64,
    /// The message's tag.
    pub tag: u64,
    /// Bytes that did not fit.
    pub olen: usize,
    /// The error.
    pub err: c_int,
    /// The provider's own number of the error.
    pub prov_errno: c_int,
    /// More about it, for `fi_cq_strerror`.
    pub err_data: *mut c_void,
    /// Length of that. The caller sets it to the room behind `err_data`, or to 0.
    pub err_data_size: usize,
    /// The source of the message.
    pub src_addr: FiAddr,
}
layout!(ErrEntry, 88, op_context: 0, flags: 8, len: 16, buf: 24, data: 32, tag: 40, olen: 48, err: 56,
    prov_errno: 60, err_data: 64, err_data_size: 72, src_addr: ERR_ENTRY_BYTES_BEFORE_1_20);

/// What a completion queue can do: `struct fi_ops_cq`.
#[repr(C)]
#[derive(Debug)]
pub struct OpsCq {
    /// Its own size in bytes.
    pub size: usize,
    /// `fi_cq_read`.
    pub read: unsafe extern "C" fn(*mut FidCq, *mut c_void, usize) -> isize,
    /// `fi_cq_readfrom`.
    pub readfrom: unsafe extern "C" fn(*mut FidCq, *mut c_void, usize, *mut FiAddr) -> isize,
    /// `fi_cq_readerr`.
    pub readerr: unsafe extern "C" fn(*mut FidCq, *mut ErrEntry, u64) -> isize,
    /// `fi_cq_sread`.
    pub sread: unsafe extern "C" fn(*mut FidCq, *mut c_void, usize, *const c_void, c_int) -> isize,
    /// `fi_cq_sreadfrom`.
    pub sreadfrom: unsafe extern "C" fn(
        *mut FidCq,
        *mut c_void,
        usize,
        *mut FiAddr,
        *const c_void,
        c_int,
    ) -> isize,
    /// `fi_cq_signal`.
    pub signal: unsafe extern "C" fn(*mut FidCq) -> c_int,
    /// `fi_cq_strerror`.
    pub strerror:
        unsafe extern "C" fn(*mut FidCq, c_int, *const c_void, *mut c_char, usize) -> *const c_char,
}
layout!(OpsCq, 64, size: 0, read: 8, readfrom: 16, readerr: 24, sread: 32, sreadfrom: 40, signal: 48, strerror: 56);
