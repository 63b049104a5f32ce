//! Address vectors.

use core::ffi::{c_char, c_int, c_void};

use crate::fid::Fid;
use crate::{FiAddr, layout};

/// An address vector: `struct fid_av`.
#[repr(C)]
#[derive(Debug)]
pub struct FidAv {
    /// The beginning of every object.
    pub fid: Fid,
    /// What it can do.
    pub ops: *const OpsAv,
}
layout!(FidAv, 32, fid: 0, ops: 24);

/// Which address vector is wanted: `struct fi_av_attr`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct AvAttr {
    /// One of `FI_AV_*`.
    pub kind: c_int,
    /// Bits of an address that name a context.
    pub rx_ctx_bits: c_int,
    /// Addresses that are expected.
    pub count: usize,
    /// Endpoints of one node.
    pub ep_per_node: usize,
    /// The name of one that processes share.
    pub name: *const c_char,
    /// Where that shall be mapped.
    pub map_addr: *mut c_void,
    /// Flags.
    pub flags: u64,
}
layout!(AvAttr, 48, kind: 0, rx_ctx_bits: 4, count: 8, ep_per_node: 16, name: 24, map_addr: 32, flags: 40);

/// What an address vector can do: `struct fi_ops_av`. 1.20 and later have more behind it.
#[repr(C)]
#[derive(Debug)]
pub struct OpsAv {
    /// Its own size in bytes.
    pub size: usize,
    /// `fi_av_insert`.
    pub insert: unsafe extern "C" fn(
        *mut FidAv,
        *const c_void,
        usize,
        *mut FiAddr,
        u64,
        *mut c_void,
    ) -> c_int,
    /// `fi_av_insertsvc`.
    pub insertsvc: unsafe extern "C" fn(
        *mut FidAv,
        *const c_char,
        *const c_char,
        *mut FiAddr,
        u64,
        *mut c_void,
    ) -> c_int,
    /// `fi_av_insertsym`.
    pub insertsym: unsafe extern "C" fn(
        *mut FidAv,
        *const c_char,
        usize,
        *const c_char,
        usize,
        *mut FiAddr,
        u64,
        *mut c_void,
    ) -> c_int,
    /// `fi_av_remove`.
    pub remove: unsafe extern "C" fn(*mut FidAv, *mut FiAddr, usize, u64) -> c_int,
    /// `fi_av_lookup`.
    pub lookup: unsafe extern "C" fn(*mut FidAv, FiAddr, *mut c_void, *mut usize) -> c_int,
    /// `fi_av_straddr`.
    pub straddr:
        unsafe extern "C" fn(*mut FidAv, *const c_void, *mut c_char, *mut usize) -> *const c_char,
    /// `fi_av_set`.
    pub av_set:
        unsafe extern "C" fn(*mut FidAv, *mut c_void, *mut *mut c_void, *mut c_void) -> c_int,
}
layout!(OpsAv, 64, size: 0, insert: 8, insertsvc: 16, insertsym: 24, remove: 32, lookup: 40, straddr: 48, av_set: 56);
