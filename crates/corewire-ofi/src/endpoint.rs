//! Endpoints, and messages without a tag.

use core::ffi::{c_int, c_void};

use crate::atomic::OpsAtomic;
use crate::fid::Fid;
use crate::info::{RxAttr, TxAttr};
use crate::rma::OpsRma;
use crate::tagged::OpsTagged;
use crate::{FiAddr, IoVec, layout};

/// Level of options: the endpoint.
pub const FI_OPT_ENDPOINT: c_int = 0;
/// Option: bytes that a buffer for several messages must have free (`size_t`).
pub const FI_OPT_MIN_MULTI_RECV: c_int = 0;
/// Option: bytes of data with a connection request (`size_t`).
pub const FI_OPT_CM_DATA_SIZE: c_int = 1;
/// Option: whether memory of devices goes from peer to peer (`int`).
pub const FI_OPT_FI_HMEM_P2P: c_int = 8;
/// Value of that option: it must not.
pub const FI_HMEM_P2P_DISABLED: c_int = 3;
/// Option: whether the provider may call CUDA (`bool`).
pub const FI_OPT_CUDA_API_PERMITTED: c_int = 10;
/// Option: whether the provider may use shared memory (`bool`).
pub const FI_OPT_SHARED_MEMORY_PERMITTED: c_int = 11;
/// Option: length of the longest message without a tag (`size_t`).
pub const FI_OPT_MAX_MSG_SIZE: c_int = 12;
/// Option: length of the longest message with a tag (`size_t`).
pub const FI_OPT_MAX_TAGGED_SIZE: c_int = 13;
/// Option: length of the longest injected message without a tag (`size_t`).
pub const FI_OPT_INJECT_MSG_SIZE: c_int = 16;
/// Option: length of the longest injected message with a tag (`size_t`).
pub const FI_OPT_INJECT_TAGGED_SIZE: c_int = 17;

/// An endpoint: `struct fid_ep`.
#[repr(C)]
#[derive(Debug)]
pub struct FidEp {
    /// The beginning of every object.
    pub fid: Fid,
    /// What it can do.
    pub ops: *const OpsEp,
    /// Addresses and connections.
    pub cm: *const OpsCm,
    /// Messages without a tag.
    pub msg: *const OpsMsg,
    /// Access to a peer's memory.
    pub rma: *const OpsRma<Self>,
    /// Messages with a tag.
    pub tagged: *const OpsTagged<Self>,
    /// Atomic operations in a peer's memory.
    pub atomic: *const OpsAtomic<Self>,
    /// Collective operations; optional.
    pub collective: *const c_void,
}
layout!(FidEp, 80, fid: 0, ops: 24, cm: 32, msg: 40, rma: 48, tagged: 56, atomic: 64, collective: 72);

/// What an endpoint can do: `struct fi_ops_ep`.
#[repr(C)]
#[derive(Debug)]
pub struct OpsEp {
    /// Its own size in bytes.
    pub size: usize,
    /// `fi_cancel`.
    pub cancel: unsafe extern "C" fn(*mut Fid, *mut c_void) -> isize,
    /// `fi_getopt`.
    pub getopt: unsafe extern "C" fn(*mut Fid, c_int, c_int, *mut c_void, *mut usize) -> c_int,
    /// `fi_setopt`.
    pub setopt: unsafe extern "C" fn(*mut Fid, c_int, c_int, *const c_void, usize) -> c_int,
    /// `fi_tx_context`.
    pub tx_ctx:
        unsafe extern "C" fn(*mut FidEp, c_int, *mut TxAttr, *mut *mut FidEp, *mut c_void) -> c_int,
    /// `fi_rx_context`.
    pub rx_ctx:
        unsafe extern "C" fn(*mut FidEp, c_int, *mut RxAttr, *mut *mut FidEp, *mut c_void) -> c_int,
    /// `fi_rx_size_left`.
    pub rx_size_left: unsafe extern "C" fn(*mut FidEp) -> isize,
    /// `fi_tx_size_left`.
    pub tx_size_left: unsafe extern "C" fn(*mut FidEp) -> isize,
}
layout!(OpsEp, 64, size: 0, cancel: 8, getopt: 16, setopt: 24, tx_ctx: 32, rx_ctx: 40, rx_size_left: 48,
    tx_size_left: 56);

/// Addresses and connections: `struct fi_ops_cm`.
#[repr(C)]
#[derive(Debug)]
pub struct OpsCm {
    /// Its own size in bytes.
    pub size: usize,
    /// `fi_setname`.
    pub setname: unsafe extern "C" fn(*mut Fid, *mut c_void, usize) -> c_int,
    /// `fi_getname`.
    pub getname: unsafe extern "C" fn(*mut Fid, *mut c_void, *mut usize) -> c_int,
    /// `fi_getpeer`.
    pub getpeer: unsafe extern "C" fn(*mut FidEp, *mut c_void, *mut usize) -> c_int,
    /// `fi_connect`.
    pub connect: unsafe extern "C" fn(*mut FidEp, *const c_void, *const c_void, usize) -> c_int,
    /// `fi_listen`.
    pub listen: unsafe extern "C" fn(*mut c_void) -> c_int,
    /// `fi_accept`.
    pub accept: unsafe extern "C" fn(*mut FidEp, *const c_void, usize) -> c_int,
    /// `fi_reject`.
    pub reject: unsafe extern "C" fn(*mut c_void, *mut Fid, *const c_void, usize) -> c_int,
    /// `fi_shutdown`.
    pub shutdown: unsafe extern "C" fn(*mut FidEp, u64) -> c_int,
    /// `fi_join`.
    pub join: unsafe extern "C" fn(
        *mut FidEp,
        *const c_void,
        u64,
        *mut *mut c_void,
        *mut c_void,
    ) -> c_int,
}
layout!(OpsCm, 80, size: 0, setname: 8, getname: 16, getpeer: 24, connect: 32, listen: 40, accept: 48, reject: 56,
    shutdown: 64, join: 72);

/// A message without a tag: `struct fi_msg`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Msg {
    /// Its buffers.
    pub msg_iov: *const IoVec,
    /// What their registrations say.
    pub desc: *mut *mut c_void,
    /// Number of buffers.
    pub iov_count: usize,
    /// The other side.
    pub addr: FiAddr,
    /// The operation's.
    pub context: *mut c_void,
    /// Data for the peer's completion.
    pub data: u64,
}
layout!(Msg, 48, msg_iov: 0, desc: 8, iov_count: 16, addr: 24, context: 32, data: 40);

/// Messages without a tag: `struct fi_ops_msg`.
#[repr(C)]
#[derive(Debug)]
pub struct OpsMsg {
    /// Its own size in bytes.
    pub size: usize,
    /// `fi_recv`.
    pub recv: unsafe extern "C" fn(
        *mut FidEp,
        *mut c_void,
        usize,
        *mut c_void,
        FiAddr,
        *mut c_void,
    ) -> isize,
    /// `fi_recvv`.
    pub recvv: unsafe extern "C" fn(
        *mut FidEp,
        *const IoVec,
        *mut *mut c_void,
        usize,
        FiAddr,
        *mut c_void,
    ) -> isize,
    /// `fi_recvmsg`.
    pub recvmsg: unsafe extern "C" fn(*mut FidEp, *const Msg, u64) -> isize,
    /// `fi_send`.
    pub send: unsafe extern "C" fn(
        *mut FidEp,
        *const c_void,
        usize,
        *mut c_void,
        FiAddr,
        *mut c_void,
    ) -> isize,
    /// `fi_sendv`.
    pub sendv: unsafe extern "C" fn(
        *mut FidEp,
        *const IoVec,
        *mut *mut c_void,
        usize,
        FiAddr,
        *mut c_void,
    ) -> isize,
    /// `fi_sendmsg`.
    pub sendmsg: unsafe extern "C" fn(*mut FidEp, *const Msg, u64) -> isize,
    /// `fi_inject`.
    pub inject: unsafe extern "C" fn(*mut FidEp, *const c_void, usize, FiAddr) -> isize,
    /// `fi_senddata`.
    pub senddata: unsafe extern "C" fn(
        *mut FidEp,
        *const c_void,
        usize,
        *mut c_void,
        u64,
        FiAddr,
        *mut c_void,
    ) -> isize,
    /// `fi_injectdata`.
    pub injectdata: unsafe extern "C" fn(*mut FidEp, *const c_void, usize, u64, FiAddr) -> isize,
}
layout!(OpsMsg, 80, size: 0, recv: 8, recvv: 16, recvmsg: 24, send: 32, sendv: 40, sendmsg: 48, inject: 56,
    senddata: 64, injectdata: 72);
