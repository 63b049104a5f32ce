//! What a program asks for.
//!
//! A hint that is 0 says nothing. One that cannot be met ends with `FI_ENODATA`.

use core::ffi::c_char;

use corewire_ofi::flags::{
    FI_CONTEXT, FI_CONTEXT2, FI_LOCAL_COMM, FI_MR_BASIC, FI_MR_SCALABLE, FI_ORDER_ATOMIC_RAR,
    FI_ORDER_ATOMIC_RAW, FI_ORDER_ATOMIC_WAR, FI_ORDER_ATOMIC_WAW, FI_ORDER_RAR, FI_ORDER_RAW,
    FI_ORDER_RMA_RAR, FI_ORDER_RMA_RAW, FI_ORDER_RMA_WAR, FI_ORDER_RMA_WAW, FI_ORDER_SAS,
    FI_ORDER_WAR, FI_ORDER_WAW, FI_REMOTE_COMM,
};
use corewire_ofi::info::{
    DomainAttr, EpAttr, FI_AV_MAP, FI_AV_TABLE, FI_EP_RDM, FI_EP_UNSPEC, FI_FORMAT_UNSPEC,
    FI_PROGRESS_AUTO, FI_PROGRESS_CONTROL_UNIFIED, FI_PROGRESS_MANUAL, FI_PROTO_UNSPEC,
    FI_RM_ENABLED, FI_THREAD_ENDPOINT, FI_THREAD_SAFE, FabricAttr, Info, RxAttr, TxAttr,
};

use super::{CAPS, complete};
use crate::address::FORMAT;
use crate::domain;
use crate::endpoint::{RECEIVE_FLAGS, SEND_FLAGS};
use crate::errors::{NO_DATA, Outcome};
use crate::limits::{
    DATA_BYTES, ERROR_BYTES_MAX, INJECT_BYTES_MAX, IOV_MAX, KEPT_BYTES, MESSAGE_BYTES_MAX, OBJECTS,
    OPERATIONS,
};
use crate::memory::{get, text};
use crate::{NAME, fabric};

/// Tags of 64 bits, each of which can be ignored: one field.
const TAG_FORMAT: u64 = 0xaaaa_aaaa_aaaa_aaaa;

/// The orders that are kept: of messages with each other, and of accesses with each other.
pub(super) const ORDER: u64 = FI_ORDER_SAS
    | FI_ORDER_RAR
    | FI_ORDER_RAW
    | FI_ORDER_WAR
    | FI_ORDER_WAW
    | FI_ORDER_RMA_RAR
    | FI_ORDER_RMA_RAW
    | FI_ORDER_RMA_WAR
    | FI_ORDER_RMA_WAW
    | FI_ORDER_ATOMIC_RAR
    | FI_ORDER_ATOMIC_RAW
    | FI_ORDER_ATOMIC_WAR
    | FI_ORDER_ATOMIC_WAW;

/// What a program gets, where it has a choice.
pub(super) struct Wanted {
    pub(super) caps: u64,
    pub(super) mode: u64,
    pub(super) tx_caps: u64,
    pub(super) rx_caps: u64,
    pub(super) tx_op_flags: u64,
    pub(super) rx_op_flags: u64,
    pub(super) tx_order: u64,
    pub(super) rx_order: u64,
    pub(super) tag_format: u64,
    pub(super) threading: i32,
    pub(super) control_progress: i32,
    pub(super) resource_mgmt: i32,
    pub(super) av_type: i32,
    pub(super) mr_mode: i32,
    pub(super) fabric: *mut corewire_ofi::fabric::FidFabric,
    pub(super) domain: *mut corewire_ofi::domain::FidDomain,
}

impl Default for Wanted {
    /// What a program gets that asks for nothing.
    fn default() -> Self {
        Self {
            caps: CAPS,
            mode: FI_CONTEXT,
            tx_caps: 0,
            rx_caps: 0,
            tx_op_flags: 0,
            rx_op_flags: 0,
            tx_order: 0,
            rx_order: 0,
            tag_format: TAG_FORMAT,
            threading: FI_THREAD_SAFE,
            control_progress: FI_PROGRESS_AUTO,
            resource_mgmt: FI_RM_ENABLED,
            av_type: FI_AV_TABLE,
            mr_mode: 0,
            fabric: std::ptr::null_mut(),
            domain: std::ptr::null_mut(),
        }
    }
}

/// Reads hints.
///
/// # Safety
/// They are null, or point to such structures as libfabric's.
pub(super) unsafe fn read(hints: *const Info) -> Outcome<Wanted> {
    let mut wanted = Wanted::default();
    if hints.is_null() {
        return Ok(wanted);
    }
    // SAFETY: the caller guarantees that.
    let hints = unsafe { get(hints) }?;
    if hints.caps & !CAPS != 0 || !matches!(hints.addr_format, FI_FORMAT_UNSPEC | FORMAT) {
        return Err(NO_DATA);
    }
    if hints.caps != 0 {
        wanted.caps = complete(hints.caps);
    }
    // The program must lend contexts: of 32 bytes, or of the longer kind.
    wanted.mode = match hints.mode {
        mode if mode & FI_CONTEXT != 0 => FI_CONTEXT,
        mode if mode & FI_CONTEXT2 != 0 => FI_CONTEXT2,
        _ => return Err(NO_DATA),
    };
    // SAFETY: as above, for each of them.
    unsafe {
        optional(hints.tx_attr, |attr| of_sends(&mut wanted, attr))?;
    }
    // SAFETY: as above.
    unsafe {
        optional(hints.rx_attr, |attr| of_receives(&mut wanted, attr))?;
    }
    // SAFETY: as above.
    unsafe {
        optional(hints.ep_attr, |attr| of_endpoints(&mut wanted, attr))?;
    }
    // SAFETY: as above.
    unsafe {
        optional(hints.domain_attr, |attr| of_domain(&mut wanted, attr))?;
    }
    // SAFETY: as above.
    unsafe {
        optional(hints.fabric_attr, |attr| of_fabric(&mut wanted, attr))?;
    }
    Ok(wanted)
}

/// # Safety
/// As for [`read`].
unsafe fn optional<T: Copy>(attr: *mut T, read: impl FnOnce(&T) -> Outcome) -> Outcome {
    if attr.is_null() {
        return Ok(());
    }
    // SAFETY: the caller guarantees that.
    read(&unsafe { get(attr.cast_const()) }?)
}

/// Fails unless it is possible.
fn check(is_possible: bool) -> Outcome {
    if is_possible { Ok(()) } else { Err(NO_DATA) }
}

fn of_sends(wanted: &mut Wanted, attr: &TxAttr) -> Outcome {
    check(attr.caps & !CAPS == 0 && attr.op_flags & !SEND_FLAGS == 0 && attr.comp_order == 0)?;
    check(attr.inject_size <= INJECT_BYTES_MAX && attr.size <= OPERATIONS)?;
    check(attr.iov_limit <= IOV_MAX && attr.rma_iov_limit <= IOV_MAX)?;
    check(attr.msg_order & !ORDER == 0)?;
    (wanted.tx_caps, wanted.tx_op_flags, wanted.tx_order) =
        (attr.caps, attr.op_flags, attr.msg_order);
    Ok(())
}

fn of_receives(wanted: &mut Wanted, attr: &RxAttr) -> Outcome {
    check(attr.caps & !CAPS == 0 && attr.op_flags & !RECEIVE_FLAGS == 0 && attr.comp_order == 0)?;
    check(attr.total_buffered_recv <= KEPT_BYTES && attr.size <= OPERATIONS)?;
    check(attr.iov_limit <= IOV_MAX && attr.msg_order & !ORDER == 0)?;
    (wanted.rx_caps, wanted.rx_op_flags, wanted.rx_order) =
        (attr.caps, attr.op_flags, attr.msg_order);
    Ok(())
}

fn of_endpoints(wanted: &mut Wanted, attr: &EpAttr) -> Outcome {
    // Only reliable datagrams: libfabric would make them of connections, too.
    check(matches!(attr.kind, FI_EP_UNSPEC | FI_EP_RDM))?;
    check(matches!(attr.protocol, FI_PROTO_UNSPEC | FORMAT) && attr.protocol_version <= 1)?;
    check(attr.max_msg_size <= MESSAGE_BYTES_MAX && attr.msg_prefix_size == 0)?;
    check(attr.tx_ctx_cnt <= 1 && attr.rx_ctx_cnt <= 1 && attr.auth_key_size == 0)?;
    if attr.mem_tag_format != 0 {
        wanted.tag_format = attr.mem_tag_format;
    }
    Ok(())
}

fn of_domain(wanted: &mut Wanted, attr: &DomainAttr) -> Outcome {
    check(is_own_name(attr.name)?)?;
    let domain = attr.domain.cast();
    check(attr.domain.is_null() || domain::is_own(domain))?;
    wanted.domain = domain;
    choose(&mut wanted.threading, attr.threading, FI_THREAD_SAFE..=FI_THREAD_ENDPOINT)?;
    let any = FI_PROGRESS_AUTO..=FI_PROGRESS_CONTROL_UNIFIED;
    choose(&mut wanted.control_progress, attr.control_progress, any)?;
    // Messages move in calls only.
    let manual = FI_PROGRESS_MANUAL..=FI_PROGRESS_CONTROL_UNIFIED;
    choose(&mut 0, attr.data_progress, manual)?;
    choose(&mut wanted.resource_mgmt, attr.resource_mgmt, 1..=FI_RM_ENABLED)?;
    choose(&mut wanted.av_type, attr.av_type, FI_AV_MAP..=FI_AV_TABLE)?;
    // No registration is needed, in whatever way the program would do it. Before 1.5 the way itself is named.
    if matches!(attr.mr_mode, FI_MR_BASIC | FI_MR_SCALABLE) {
        wanted.mr_mode = attr.mr_mode;
    }
    check(attr.mr_key_size <= size_of::<u64>() && attr.cq_data_size <= DATA_BYTES)?;
    let counts = [attr.cq_cnt, attr.ep_cnt, attr.tx_ctx_cnt, attr.rx_ctx_cnt, attr.cntr_cnt];
    check(counts.into_iter().all(|count| count <= OBJECTS))?;
    check(attr.max_ep_tx_ctx <= 1 && attr.max_ep_rx_ctx <= 1)?;
    check(attr.max_ep_stx_ctx == 0 && attr.max_ep_srx_ctx == 0 && attr.mr_iov_limit <= 1)?;
    check(attr.caps & !(FI_LOCAL_COMM | FI_REMOTE_COMM) == 0 && attr.auth_key_size == 0)?;
    check(attr.max_err_data <= ERROR_BYTES_MAX)
}

fn of_fabric(wanted: &mut Wanted, attr: &FabricAttr) -> Outcome {
    check(is_own_name(attr.name)?)?;
    // libfabric has compared its own copy of it; a list of names may be meant.
    // SAFETY: the program's hints end with a zero.
    let provider = unsafe { text(attr.prov_name) }?;
    check(provider.is_none_or(|names| names.as_bytes() == NAME.to_bytes() || names.is_empty()))?;
    let fabric = attr.fabric.cast();
    check(attr.fabric.is_null() || fabric::is_own(fabric))?;
    wanted.fabric = fabric;
    Ok(())
}

/// Whether a name is this provider's, or none.
fn is_own_name(name: *const c_char) -> Outcome<bool> {
    // SAFETY: the program's hints end with a zero.
    let name = unsafe { text(name) }?;
    Ok(name.is_none_or(|name| name.as_bytes() == NAME.to_bytes()))
}

/// Takes a choice that is possible; 0 leaves it to the provider.
fn choose(to: &mut i32, asked: i32, possible: std::ops::RangeInclusive<i32>) -> Outcome {
    if asked == 0 {
        return Ok(());
    }
    check(possible.contains(&asked))?;
    *to = asked;
    Ok(())
}
