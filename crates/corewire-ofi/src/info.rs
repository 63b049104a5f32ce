//! What `fi_getinfo` returns and takes as hints.

use core::ffi::{c_char, c_int, c_void};

use crate::fid::Fid;
use crate::layout;

/// Zeroed bytes that must follow each structure that a provider allocates: newer versions of libfabric have fields
/// there.
pub const SPARE_BYTES: usize = 256;

/// Address format: the caller does not care.
pub const FI_FORMAT_UNSPEC: u32 = 0;
/// The bit of address formats and protocols that only one provider knows: `FI_PROV_SPECIFIC`.
pub const FI_PROV_SPECIFIC: u32 = 1 << 31;

/// Type of endpoint: the caller does not care.
pub const FI_EP_UNSPEC: c_int = 0;
/// Type of endpoint: connected.
pub const FI_EP_MSG: c_int = 1;
/// Type of endpoint: datagrams.
pub const FI_EP_DGRAM: c_int = 2;
/// Type of endpoint: reliable datagrams.
pub const FI_EP_RDM: c_int = 3;

/// Protocol: the caller does not care.
pub const FI_PROTO_UNSPEC: u32 = 0;

/// Threads: the caller does not care.
pub const FI_THREAD_UNSPEC: c_int = 0;
/// Threads: any thread calls anything at any time.
pub const FI_THREAD_SAFE: c_int = 1;
/// Threads: one at a time in each object.
pub const FI_THREAD_FID: c_int = 2;
/// Threads: one at a time in a domain and all its objects.
pub const FI_THREAD_DOMAIN: c_int = 3;
/// Threads: one at a time in all objects that share a queue or counter.
pub const FI_THREAD_COMPLETION: c_int = 4;
/// Threads: one at a time in each endpoint.
pub const FI_THREAD_ENDPOINT: c_int = 5;

/// Progress: the caller does not care.
pub const FI_PROGRESS_UNSPEC: c_int = 0;
/// Progress: without calls.
pub const FI_PROGRESS_AUTO: c_int = 1;
/// Progress: only in calls.
pub const FI_PROGRESS_MANUAL: c_int = 2;
/// Progress: control and data in the same calls (2.0).
pub const FI_PROGRESS_CONTROL_UNIFIED: c_int = 3;

/// Resources: the caller does not care.
pub const FI_RM_UNSPEC: c_int = 0;
/// Resources: the caller takes care of them.
pub const FI_RM_DISABLED: c_int = 1;
/// Resources: the provider takes care of them.
pub const FI_RM_ENABLED: c_int = 2;

/// Address vector: the caller does not care.
pub const FI_AV_UNSPEC: c_int = 0;
/// Address vector: addresses are values of the provider's choice.
pub const FI_AV_MAP: c_int = 1;
/// Address vector: addresses are counted from 0.
pub const FI_AV_TABLE: c_int = 2;

/// Traffic class: the caller does not care.
pub const FI_TC_UNSPEC: u32 = 0;

/// Of sends: `struct fi_tx_attr`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct TxAttr {
    /// Capabilities.
    pub caps: u64,
    /// Modes.
    pub mode: u64,
    /// Flags of the calls that have none.
    pub op_flags: u64,
    /// Order in which messages are sent.
    pub msg_order: u64,
    /// Order of completions.
    pub comp_order: u64,
    /// Length of the longest message whose buffer is free when its call returns.
    pub inject_size: usize,
    /// Operations at one time.
    pub size: usize,
    /// Buffers of one operation.
    pub iov_limit: usize,
    /// Remote buffers of one operation.
    pub rma_iov_limit: usize,
    /// Traffic class.
    pub tclass: u32,
}
layout!(TxAttr, 80, caps: 0, mode: 8, op_flags: 16, msg_order: 24, comp_order: 32, inject_size: 40, size: 48,
    iov_limit: 56, rma_iov_limit: 64, tclass: 72);

/// Of receives: `struct fi_rx_attr`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct RxAttr {
    /// Capabilities.
    pub caps: u64,
    /// Modes.
    pub mode: u64,
    /// Flags of the calls that have none.
    pub op_flags: u64,
    /// Order in which messages are received.
    pub msg_order: u64,
    /// Order of completions.
    pub comp_order: u64,
    /// Bytes of messages that are kept before they are received.
    pub total_buffered_recv: usize,
    /// Operations at one time.
    pub size: usize,
    /// Buffers of one operation.
    pub iov_limit: usize,
}
layout!(RxAttr, 64, caps: 0, mode: 8, op_flags: 16, msg_order: 24, comp_order: 32, total_buffered_recv: 40, size: 48,
    iov_limit: 56);

/// Of endpoints: `struct fi_ep_attr`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct EpAttr {
    /// Type, one of `FI_EP_*`.
    pub kind: c_int,
    /// Protocol.
    pub protocol: u32,
    /// Its version.
    pub protocol_version: u32,
    /// Length of the longest message.
    pub max_msg_size: usize,
    /// Room at the beginning of buffers.
    pub msg_prefix_size: usize,
    /// Longest access that is ordered, read after write.
    pub max_order_raw_size: usize,
    /// Longest access that is ordered, write after read.
    pub max_order_war_size: usize,
    /// Longest access that is ordered, write after write.
    pub max_order_waw_size: usize,
    /// Format of tags: fields of alternating bits.
    pub mem_tag_format: u64,
    /// Sending contexts.
    pub tx_ctx_cnt: usize,
    /// Receiving contexts.
    pub rx_ctx_cnt: usize,
    /// Length of the key.
    pub auth_key_size: usize,
    /// A key.
    pub auth_key: *mut u8,
}
layout!(EpAttr, 96, kind: 0, protocol: 4, protocol_version: 8, max_msg_size: 16, msg_prefix_size: 24,
    max_order_raw_size: 32, max_order_war_size: 40, max_order_waw_size: 48, mem_tag_format: 56, tx_ctx_cnt: 64,
    rx_ctx_cnt: 72, auth_key_size: 80, auth_key: 88);

/// Of domains: `struct fi_domain_attr`. 1.20 and later have more behind it.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct DomainAttr {
    /// An open domain, as a hint.
    pub domain: *mut Fid,
    /// Its name.
    pub name: *mut c_char,
    /// One of `FI_THREAD_*`.
    pub threading: c_int,
    /// One of `FI_PROGRESS_*`.
    pub control_progress: c_int,
    /// One of `FI_PROGRESS_*`.
    pub data_progress: c_int,
    /// One of `FI_RM_*`.
    pub resource_mgmt: c_int,
    /// One of `FI_AV_*`.
    pub av_type: c_int,
    /// Bits of `FI_MR_*`.
    pub mr_mode: c_int,
    /// Length of keys of registered memory.
    pub mr_key_size: usize,
    /// Bytes beside a message.
    pub cq_data_size: usize,
    /// Completion queues.
    pub cq_cnt: usize,
    /// Endpoints.
    pub ep_cnt: usize,
    /// Sending contexts.
    pub tx_ctx_cnt: usize,
    /// Receiving contexts.
    pub rx_ctx_cnt: usize,
    /// Sending contexts of one endpoint.
    pub max_ep_tx_ctx: usize,
    /// Receiving contexts of one endpoint.
    pub max_ep_rx_ctx: usize,
    /// Endpoints of one shared sending context.
    pub max_ep_stx_ctx: usize,
    /// Endpoints of one shared receiving context.
    pub max_ep_srx_ctx: usize,
    /// Counters.
    pub cntr_cnt: usize,
    /// Buffers of one registration.
    pub mr_iov_limit: usize,
    /// Capabilities.
    pub caps: u64,
    /// Modes.
    pub mode: u64,
    /// A key.
    pub auth_key: *mut u8,
    /// Its length.
    pub auth_key_size: usize,
    /// Bytes of provider's data in an error entry.
    pub max_err_data: usize,
    /// Registrations.
    pub mr_cnt: usize,
    /// Traffic class.
    pub tclass: u32,
}
layout!(DomainAttr, 192, domain: 0, name: 8, threading: 16, control_progress: 20, data_progress: 24,
    resource_mgmt: 28, av_type: 32, mr_mode: 36, mr_key_size: 40, cq_data_size: 48, cq_cnt: 56, ep_cnt: 64,
    tx_ctx_cnt: 72, rx_ctx_cnt: 80, max_ep_tx_ctx: 88, max_ep_rx_ctx: 96, max_ep_stx_ctx: 104, max_ep_srx_ctx: 112,
    cntr_cnt: 120, mr_iov_limit: 128, caps: 136, mode: 144, auth_key: 152, auth_key_size: 160, max_err_data: 168,
    mr_cnt: 176, tclass: 184);

/// Of fabrics: `struct fi_fabric_attr`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct FabricAttr {
    /// An open fabric, as a hint.
    pub fabric: *mut Fid,
    /// Its name.
    pub name: *mut c_char,
    /// The provider's name, which libfabric itself sets.
    pub prov_name: *mut c_char,
    /// The provider's version, which libfabric itself sets.
    pub prov_version: u32,
    /// The version of the interface that the program asked for.
    pub api_version: u32,
}
layout!(FabricAttr, 32, fabric: 0, name: 8, prov_name: 16, prov_version: 24, api_version: 28);

/// One way to communicate: `struct fi_info`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Info {
    /// The next one.
    pub next: *mut Info,
    /// Capabilities.
    pub caps: u64,
    /// Modes.
    pub mode: u64,
    /// Format of addresses.
    pub addr_format: u32,
    /// Length of the own address.
    pub src_addrlen: usize,
    /// Length of the peer's address.
    pub dest_addrlen: usize,
    /// The own address.
    pub src_addr: *mut c_void,
    /// The peer's address.
    pub dest_addr: *mut c_void,
    /// What the endpoint is made of, such as a connection request.
    pub handle: *mut Fid,
    /// Of sends.
    pub tx_attr: *mut TxAttr,
    /// Of receives.
    pub rx_attr: *mut RxAttr,
    /// Of endpoints.
    pub ep_attr: *mut EpAttr,
    /// Of the domain.
    pub domain_attr: *mut DomainAttr,
    /// Of the fabric.
    pub fabric_attr: *mut FabricAttr,
    /// The network interface.
    pub nic: *mut c_void,
}
layout!(Info, 120, next: 0, caps: 8, mode: 16, addr_format: 24, src_addrlen: 32, dest_addrlen: 40, src_addr: 48,
    dest_addr: 56, handle: 64, tx_attr: 72, rx_attr: 80, ep_attr: 88, domain_attr: 96, fabric_attr: 104, nic: 112);
