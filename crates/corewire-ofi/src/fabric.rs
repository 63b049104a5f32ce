//! Fabrics.

use core::ffi::{c_int, c_void};

use crate::domain::FidDomain;
use crate::eq::{EqAttr, FidEq};
use crate::fid::Fid;
use crate::info::Info;
use crate::layout;
use crate::poll::{FidWait, WaitAttr};

/// A fabric: `struct fid_fabric`.
#[repr(C)]
#[derive(Debug)]
pub struct FidFabric {
    /// The beginning of every object.
    pub fid: Fid,
    /// What it can do.
    pub ops: *const OpsFabric,
    /// The version of the interface that the program asked for; libfabric sets it.
    pub api_version: u32,
}
layout!(FidFabric, 40, fid: 0, ops: 24, api_version: 32);

/// What a fabric can do: `struct fi_ops_fabric`.
#[repr(C)]
#[derive(Debug)]
pub struct OpsFabric {
    /// Its own size in bytes.
    pub size: usize,
    /// `fi_domain`.
    pub domain:
        unsafe extern "C" fn(*mut FidFabric, *mut Info, *mut *mut FidDomain, *mut c_void) -> c_int,
    /// `fi_passive_ep`.
    pub passive_ep:
        unsafe extern "C" fn(*mut FidFabric, *mut Info, *mut *mut c_void, *mut c_void) -> c_int,
    /// `fi_eq_open`.
    pub eq_open:
        unsafe extern "C" fn(*mut FidFabric, *mut EqAttr, *mut *mut FidEq, *mut c_void) -> c_int,
    /// `fi_wait_open`.
    pub wait_open: unsafe extern "C" fn(*mut FidFabric, *mut WaitAttr, *mut *mut FidWait) -> c_int,
    /// `fi_trywait`.
    pub trywait: unsafe extern "C" fn(*mut FidFabric, *mut *mut Fid, c_int) -> c_int,
    /// `fi_domain2`.
    pub domain2: unsafe extern "C" fn(
        *mut FidFabric,
        *mut Info,
        *mut *mut FidDomain,
        u64,
        *mut c_void,
    ) -> c_int,
}
layout!(OpsFabric, 56, size: 0, domain: 8, passive_ep: 16, eq_open: 24, wait_open: 32, trywait: 40, domain2: 48);
