//! Messages with a tag.

use core::ffi::c_void;

use crate::{FiAddr, IoVec, layout};

/// A message with a tag: `struct fi_msg_tagged`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct MsgTagged {
    /// Its buffers.
    pub msg_iov: *const IoVec,
    /// What their registrations say.
    pub desc: *mut *mut c_void,
    /// Number of buffers.
    pub iov_count: usize,
    /// The other side.
    pub addr: FiAddr,
    /// Its tag.
    pub tag: u64,
    /// Bits of the tag that do not matter to a receive.
    pub ignore: u64,
    /// The operation's.
    pub context: *mut c_void,
    /// Data for the peer's completion.
    pub data: u64,
}
layout!(MsgTagged, 64, msg_iov: 0, desc: 8, iov_count: 16, addr: 24, tag: 32, ignore: 40, context: 48, data: 56);

/// Messages with a tag: `struct fi_ops_tagged`. `E` is [`FidEp`](crate::endpoint::FidEp).
#[repr(C)]
#[derive(Debug)]
pub struct OpsTagged<E> {
    /// Its own size in bytes.
    pub size: usize,
    /// `fi_trecv`.
    pub recv: unsafe extern "C" fn(
        *mut E,
        *mut c_void,
        usize,
        *mut c_void,
        FiAddr,
        u64,
        u64,
        *mut c_void,
    ) -> isize,
    /// `fi_trecvv`.
    pub recvv: unsafe extern "C" fn(
        *mut E,
        *const IoVec,
        *mut *mut c_void,
        usize,
        FiAddr,
        u64,
        u64,
        *mut c_void,
    ) -> isize,
    /// `fi_trecvmsg`.
    pub recvmsg: unsafe extern "C" fn(*mut E, *const MsgTagged, u64) -> isize,
    /// `fi_tsend`.
    pub send: unsafe extern "C" fn(
        *mut E,
        *const c_void,
        usize,
        *mut c_void,
        FiAddr,
        u64,
        *mut c_void,
    ) -> isize,
    /// `fi_tsendv`.
    pub sendv: unsafe extern "C" fn(
        *mut E,
        *const IoVec,
        *mut *mut c_void,
        usize,
        FiAddr,
        u64,
        *mut c_void,
    ) -> isize,
    /// `fi_tsendmsg`.
    pub sendmsg: unsafe extern "C" fn(*mut E, *const MsgTagged, u64) -> isize,
    /// `fi_tinject`.
    pub inject: unsafe extern "C" fn(*mut E, *const c_void, usize, FiAddr, u64) -> isize,
    /// `fi_tsenddata`.
    pub senddata: unsafe extern "C" fn(
        *mut E,
        *const c_void,
        usize,
        *mut c_void,
        u64,
        FiAddr,
        u64,
        *mut c_void,
    ) -> isize,
    /// `fi_tinjectdata`.
    pub injectdata: unsafe extern "C" fn(*mut E, *const c_void, usize, u64, FiAddr, u64) -> isize,
}
layout!(OpsTagged<()>, 80, size: 0, recv: 8, recvv: 16, recvmsg: 24, send: 32, sendv: 40, sendmsg: 48, inject: 56,
    senddata: 64, injectdata: 72);
