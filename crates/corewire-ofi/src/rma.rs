//! Access to a peer's memory.

use core::ffi::c_void;

use crate::{FiAddr, IoVec, layout};

/// A stretch of a peer's memory: `struct fi_rma_iov`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct RmaIov {
    /// Its first byte.
    pub addr: u64,
    /// Its length in bytes.
    pub len: usize,
    /// The key of its registration.
    pub key: u64,
}
layout!(RmaIov, 24, addr: 0, len: 8, key: 16);

/// An access: `struct fi_msg_rma`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct MsgRma {
    /// Its buffers.
    pub msg_iov: *const IoVec,
    /// What their registrations say.
    pub desc: *mut *mut c_void,
    /// Number of buffers.
    pub iov_count: usize,
    /// The other side.
    pub addr: FiAddr,
    /// The peer's memory.
    pub rma_iov: *const RmaIov,
    /// Number of its parts.
    pub rma_iov_count: usize,
    /// The operation's.
    pub context: *mut c_void,
    /// Data for the peer's completion.
    pub data: u64,
}
layout!(MsgRma, 64, msg_iov: 0, desc: 8, iov_count: 16, addr: 24, rma_iov: 32, rma_iov_count: 40, context: 48,
    data: 56);

/// `fi_read` and `fi_write`.
pub type One<E> = unsafe extern "C" fn(
    *mut E,
    *mut c_void,
    usize,
    *mut c_void,
    FiAddr,
    u64,
    u64,
    *mut c_void,
) -> isize;

/// `fi_readv` and `fi_writev`.
pub type Several<E> = unsafe extern "C" fn(
    *mut E,
    *const IoVec,
    *mut *mut c_void,
    usize,
    FiAddr,
    u64,
    u64,
    *mut c_void,
) -> isize;

/// Access to a peer's memory: `struct fi_ops_rma`. `E` is [`FidEp`](crate::endpoint::FidEp).
#[repr(C)]
#[derive(Debug)]
pub struct OpsRma<E> {
    /// Its own size in bytes.
    pub size: usize,
    /// `fi_read`.
    pub read: One<E>,
    /// `fi_readv`.
    pub readv: Several<E>,
    /// `fi_readmsg`.
    pub readmsg: unsafe extern "C" fn(*mut E, *const MsgRma, u64) -> isize,
    /// `fi_write`.
    pub write: One<E>,
    /// `fi_writev`.
    pub writev: Several<E>,
    /// `fi_writemsg`.
    pub writemsg: unsafe extern "C" fn(*mut E, *const MsgRma, u64) -> isize,
    /// `fi_inject_write`.
    pub inject: unsafe extern "C" fn(*mut E, *const c_void, usize, FiAddr, u64, u64) -> isize,
    /// `fi_writedata`.
    pub writedata: unsafe extern "C" fn(
        *mut E,
        *const c_void,
        usize,
        *mut c_void,
        u64,
        FiAddr,
        u64,
        u64,
        *mut c_void,
    ) -> isize,
    /// `fi_inject_writedata`.
    pub injectdata:
        unsafe extern "C" fn(*mut E, *const c_void, usize, u64, FiAddr, u64, u64) -> isize,
}
layout!(OpsRma<()>, 80, size: 0, read: 8, readv: 16, readmsg: 24, write: 32, writev: 40, writemsg: 48, inject: 56,
    writedata: 64, injectdata: 72);
