//! Registered memory.

use core::ffi::{c_int, c_void};

use crate::fid::Fid;
use crate::{IoVec, layout};

/// Registered memory: `struct fid_mr`.
#[repr(C)]
#[derive(Debug)]
pub struct FidMr {
    /// The beginning of every object.
    pub fid: Fid,
    /// What operations with this memory say.
    pub mem_desc: *mut c_void,
    /// What peers say.
    pub key: u64,
}
layout!(FidMr, 40, fid: 0, mem_desc: 24, key: 32);

/// What to register: `struct fi_mr_attr`. 1.20 and later have more behind it.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct MrAttr {
    /// The memory.
    pub mr_iov: *const IoVec,
    /// Its parts.
    pub iov_count: usize,
    /// What it is for: bits such as `FI_SEND`.
    pub access: u64,
    /// What a peer calls its first byte.
    pub offset: u64,
    /// What peers shall say.
    pub requested_key: u64,
    /// The program's.
    pub context: *mut c_void,
    /// Length of the key.
    pub auth_key_size: usize,
    /// A key.
    pub auth_key: *mut u8,
    /// Kind of memory; 0 is that of the host.
    pub iface: c_int,
    /// The device that has it.
    pub device: u64,
}
layout!(MrAttr, 80, mr_iov: 0, iov_count: 8, access: 16, offset: 24, requested_key: 32, context: 40,
    auth_key_size: 48, auth_key: 56, iface: 64, device: 72);

/// How memory is registered: `struct fi_ops_mr`.
#[repr(C)]
#[derive(Debug)]
pub struct OpsMr {
    /// Its own size in bytes.
    pub size: usize,
    /// `fi_mr_reg`.
    pub reg: unsafe extern "C" fn(
        *mut Fid,
        *const c_void,
        usize,
        u64,
        u64,
        u64,
        u64,
        *mut *mut FidMr,
        *mut c_void,
    ) -> c_int,
    /// `fi_mr_regv`.
    pub regv: unsafe extern "C" fn(
        *mut Fid,
        *const IoVec,
        usize,
        u64,
        u64,
        u64,
        u64,
        *mut *mut FidMr,
        *mut c_void,
    ) -> c_int,
    /// `fi_mr_regattr`.
    pub regattr: unsafe extern "C" fn(*mut Fid, *const MrAttr, u64, *mut *mut FidMr) -> c_int,
}
layout!(OpsMr, 32, size: 0, reg: 8, regv: 16, regattr: 24);
