//! Domains.

use core::ffi::{c_int, c_void};

use crate::atomic::AtomicAttr;
use crate::av::{AvAttr, FidAv};
use crate::cntr::{CntrAttr, FidCntr};
use crate::cq::{CqAttr, FidCq};
use crate::endpoint::FidEp;
use crate::fid::Fid;
use crate::info::{Info, RxAttr, TxAttr};
use crate::layout;
use crate::mr::OpsMr;
use crate::poll::{FidPoll, PollAttr};

/// A domain: `struct fid_domain`.
#[repr(C)]
#[derive(Debug)]
pub struct FidDomain {
    /// The beginning of every object.
    pub fid: Fid,
    /// What it can do.
    pub ops: *const OpsDomain,
    /// How memory is registered.
    pub mr: *const OpsMr,
}
layout!(FidDomain, 40, fid: 0, ops: 24, mr: 32);

/// What a domain can do: `struct fi_ops_domain`.
#[repr(C)]
#[derive(Debug)]
pub struct OpsDomain {
    /// Its own size in bytes.
    pub size: usize,
    /// `fi_av_open`.
    pub av_open:
        unsafe extern "C" fn(*mut FidDomain, *mut AvAttr, *mut *mut FidAv, *mut c_void) -> c_int,
    /// `fi_cq_open`.
    pub cq_open:
        unsafe extern "C" fn(*mut FidDomain, *mut CqAttr, *mut *mut FidCq, *mut c_void) -> c_int,
    /// `fi_endpoint`.
    pub endpoint:
        unsafe extern "C" fn(*mut FidDomain, *mut Info, *mut *mut FidEp, *mut c_void) -> c_int,
    /// `fi_scalable_ep`.
    pub scalable_ep:
        unsafe extern "C" fn(*mut FidDomain, *mut Info, *mut *mut FidEp, *mut c_void) -> c_int,
    /// `fi_cntr_open`.
    pub cntr_open: unsafe extern "C" fn(
        *mut FidDomain,
        *mut CntrAttr,
        *mut *mut FidCntr,
        *mut c_void,
    ) -> c_int,
    /// `fi_poll_open`.
    pub poll_open: unsafe extern "C" fn(*mut FidDomain, *mut PollAttr, *mut *mut FidPoll) -> c_int,
    /// `fi_stx_context`.
    pub stx_ctx:
        unsafe extern "C" fn(*mut FidDomain, *mut TxAttr, *mut *mut c_void, *mut c_void) -> c_int,
    /// `fi_srx_context`.
    pub srx_ctx:
        unsafe extern "C" fn(*mut FidDomain, *mut RxAttr, *mut *mut FidEp, *mut c_void) -> c_int,
    /// `fi_query_atomic`.
    pub query_atomic:
        unsafe extern "C" fn(*mut FidDomain, c_int, c_int, *mut AtomicAttr, u64) -> c_int,
    /// `fi_query_collective`.
    pub query_collective: unsafe extern "C" fn(*mut FidDomain, c_int, *mut c_void, u64) -> c_int,
    /// `fi_endpoint2`.
    pub endpoint2:
        unsafe extern "C" fn(*mut FidDomain, *mut Info, *mut *mut FidEp, u64, *mut c_void) -> c_int,
}
layout!(OpsDomain, 96, size: 0, av_open: 8, cq_open: 16, endpoint: 24, scalable_ep: 32, cntr_open: 40, poll_open: 48,
    stx_ctx: 56, srx_ctx: 64, query_atomic: 72, query_collective: 80, endpoint2: 88);
