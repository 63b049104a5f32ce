//! Making what `fi_getinfo` returns.
//!
//! libfabric frees each part by itself, and a newer one reads fields beyond those that are declared here: each part is
//! allocated by the C library, zeroed, with room behind it.

use core::ffi::{CStr, c_char, c_void};

use corewire_ofi::flags::{FI_LOCAL_COMM, FI_READ, FI_RECV, FI_REMOTE_COMM, FI_SEND, FI_WRITE};
use corewire_ofi::info::{
    DomainAttr, EpAttr, FI_EP_RDM, FI_PROGRESS_MANUAL, FabricAttr, Info, RxAttr, SPARE_BYTES,
    TxAttr,
};

use super::Addresses;
use super::hints::{ORDER, Wanted};
use crate::NAME;
use crate::address::{ADDRESS_BYTES, Address, FORMAT};
use crate::errors::{NO_MEMORY, Outcome};
use crate::limits::{
    DATA_BYTES, ERROR_BYTES_MAX, INJECT_BYTES_MAX, IOV_MAX, KEPT_BYTES, MESSAGE_BYTES_MAX, OBJECTS,
    OPERATIONS,
};

/// Capabilities that only one direction has, or none.
const SENDING: u64 = FI_SEND | FI_READ | FI_WRITE;
const NEITHER: u64 = FI_LOCAL_COMM | FI_REMOTE_COMM;
const RECEIVING: u64 = FI_RECV
    | corewire_ofi::flags::FI_REMOTE_READ
    | corewire_ofi::flags::FI_REMOTE_WRITE
    | corewire_ofi::flags::FI_MULTI_RECV
    | corewire_ofi::flags::FI_DIRECTED_RECV
    | corewire_ofi::flags::FI_SOURCE;

/// What has been made so far; frees it if the rest fails.
#[derive(Default)]
struct Parts(Vec<*mut c_void>);

impl Parts {
    fn add<T>(&mut self, value: T) -> Outcome<*mut T> {
        // SAFETY: asks for memory.
        let at = unsafe { libc::calloc(1, size_of::<T>() + SPARE_BYTES) }.cast::<T>();
        if at.is_null() {
            return Err(NO_MEMORY);
        }
        // SAFETY: new memory of this size.
        unsafe { at.write(value) };
        self.0.push(at.cast());
        Ok(at)
    }

    fn text(&mut self, text: &CStr) -> Outcome<*mut c_char> {
        // SAFETY: it ends with a zero.
        let at = unsafe { libc::strdup(text.as_ptr()) };
        if at.is_null() {
            return Err(NO_MEMORY);
        }
        self.0.push(at.cast());
        Ok(at)
    }

    fn address(&mut self, address: Option<Address>) -> Outcome<(*mut c_void, usize)> {
        match address {
            Some(address) => Ok((self.add(address.to_bytes())?.cast(), ADDRESS_BYTES)),
            None => Ok((std::ptr::null_mut(), 0)),
        }
    }
}

impl Drop for Parts {
    fn drop(&mut self) {
        for &at in &self.0 {
            // SAFETY: allocated above, and given to nobody.
            unsafe { libc::free(at) };
        }
    }
}

/// What the program gets.
pub(super) fn info(version: u32, wanted: &Wanted, addresses: Addresses) -> Outcome<*mut Info> {
    let mut parts = Parts::default();
    let Wanted { caps, mode, .. } = *wanted;
    let of_direction =
        |asked: u64, not: u64| if asked == 0 { caps & !(not | NEITHER) } else { asked };
    let tx_attr = parts.add(TxAttr {
        caps: of_direction(wanted.tx_caps, RECEIVING),
        mode,
        op_flags: wanted.tx_op_flags,
        msg_order: wanted.tx_order | ORDER,
        comp_order: 0,
        inject_size: INJECT_BYTES_MAX,
        size: OPERATIONS,
        iov_limit: IOV_MAX,
        rma_iov_limit: IOV_MAX,
        tclass: 0,
    })?;
    let rx_attr = parts.add(RxAttr {
        caps: of_direction(wanted.rx_caps, SENDING),
        mode,
        op_flags: wanted.rx_op_flags,
        msg_order: wanted.rx_order | ORDER,
        comp_order: 0,
        total_buffered_recv: KEPT_BYTES,
        size: OPERATIONS,
        iov_limit: IOV_MAX,
    })?;
    let ep_attr = parts.add(EpAttr {
        kind: FI_EP_RDM,
        protocol: FORMAT,
        protocol_version: 1,
        max_msg_size: MESSAGE_BYTES_MAX,
        msg_prefix_size: 0,
        max_order_raw_size: usize::MAX,
        max_order_war_size: usize::MAX,
        max_order_waw_size: usize::MAX,
        mem_tag_format: wanted.tag_format,
        tx_ctx_cnt: 1,
        rx_ctx_cnt: 1,
        auth_key_size: 0,
        auth_key: std::ptr::null_mut(),
    })?;
    let name = parts.text(NAME)?;
    let domain_attr = parts.add(domain_attr(wanted, name))?;
    let name = parts.text(NAME)?;
    let fabric_attr = parts.add(FabricAttr {
        fabric: wanted.fabric.cast(),
        name,
        prov_name: std::ptr::null_mut(),
        prov_version: 0,
        api_version: version,
    })?;
    let (src_addr, src_addrlen) = parts.address(Some(addresses.source))?;
    let (dest_addr, dest_addrlen) = parts.address(addresses.target)?;
    let info = parts.add(Info {
        next: std::ptr::null_mut(),
        caps,
        mode,
        addr_format: FORMAT,
        src_addrlen,
        dest_addrlen,
        src_addr,
        dest_addr,
        handle: std::ptr::null_mut(),
        tx_attr,
        rx_attr,
        ep_attr,
        domain_attr,
        fabric_attr,
        nic: std::ptr::null_mut(),
    })?;
    // All of it is the program's from here on.
    parts.0.clear();
    Ok(info)
}

fn domain_attr(wanted: &Wanted, name: *mut c_char) -> DomainAttr {
    DomainAttr {
        domain: wanted.domain.cast(),
        name,
        threading: wanted.threading,
        control_progress: wanted.control_progress,
        data_progress: FI_PROGRESS_MANUAL,
        resource_mgmt: wanted.resource_mgmt,
        av_type: wanted.av_type,
        mr_mode: wanted.mr_mode,
        mr_key_size: size_of::<u64>(),
        cq_data_size: DATA_BYTES,
        cq_cnt: OBJECTS,
        ep_cnt: OBJECTS,
        tx_ctx_cnt: OBJECTS,
        rx_ctx_cnt: OBJECTS,
        max_ep_tx_ctx: 1,
        max_ep_rx_ctx: 1,
        max_ep_stx_ctx: 0,
        max_ep_srx_ctx: 0,
        cntr_cnt: OBJECTS,
        mr_iov_limit: 1,
        caps: FI_LOCAL_COMM | FI_REMOTE_COMM,
        mode: 0,
        auth_key: std::ptr::null_mut(),
        auth_key_size: 0,
        max_err_data: ERROR_BYTES_MAX,
        mr_cnt: usize::from(u16::MAX),
        tclass: 0,
    }
}
