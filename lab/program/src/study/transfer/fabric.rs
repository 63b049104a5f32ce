//! An endpoint of libfabric over TCP through the loopback interface, with access to the peer's memory (RMA). The library is
//! looked for when the study runs: the study is not linked to it. `corewire-ofi` has its binary interface.

#![expect(
    clippy::multiple_unsafe_ops_per_block,
    reason = "a call through a table of pointers is several at once"
)]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::{self, NonNull};

use corewire_ofi::av::{AvAttr, FidAv};
use corewire_ofi::cq::{CqAttr, ErrEntry, FI_CQ_FORMAT_CONTEXT, FidCq};
use corewire_ofi::domain::FidDomain;
use corewire_ofi::endpoint::FidEp;
use corewire_ofi::fabric::FidFabric;
use corewire_ofi::fid::{Context, FI_ENABLE, Fid};
use corewire_ofi::flags::{
    FI_CONTEXT, FI_DELIVERY_COMPLETE, FI_MR_ALLOCATED, FI_MR_LOCAL, FI_MR_PROV_KEY,
    FI_MR_VIRT_ADDR, FI_MSG, FI_READ, FI_RECV, FI_REMOTE_READ, FI_REMOTE_WRITE, FI_RMA, FI_SEND,
    FI_SOURCE, FI_WRITE,
};
use corewire_ofi::info::{FI_AV_TABLE, FI_EP_RDM, FI_THREAD_DOMAIN, Info};
use corewire_ofi::mr::FidMr;
use corewire_ofi::{FiAddr, version};
use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};

use crate::study::failure::{Doing, Failure};

const LIBRARY: &str = "libfabric.so.1";
const PROVIDER: &CStr = c"tcp";
const NODE: &CStr = c"127.0.0.1";
const EAGAIN: isize = -11;
const EAVAIL: isize = -259;
/// Maximum length of an address.
const ADDRESS_BYTES: usize = 256;

type Getinfo = unsafe extern "C" fn(
    u32,
    *const c_char,
    *const c_char,
    u64,
    *const Info,
    *mut *mut Info,
) -> c_int;
type Dupinfo = unsafe extern "C" fn(*const Info) -> *mut Info;
type OpenFabric = unsafe extern "C" fn(
    *mut corewire_ofi::info::FabricAttr,
    *mut *mut FidFabric,
    *mut c_void,
) -> c_int;

/// Registered memory.
pub(super) struct Registered {
    memory: *mut FidMr,
    /// Its key for the other side.
    pub(super) key: u64,
}

impl Drop for Registered {
    fn drop(&mut self) {
        close(self.memory.cast());
    }
}

/// An open endpoint.
pub(super) struct Fabric {
    fabric: *mut FidFabric,
    domain: *mut FidDomain,
    endpoint: *mut FidEp,
    addresses: *mut FidAv,
    queue: *mut FidCq,
    other: FiAddr,
    /// Whether the other side's memory is named by its addresses there, not from 0.
    pub(super) has_addresses: bool,
    registrations: u64,
    /// What the provider may use during an operation: it needs four words, and has twice as many.
    context: Box<[Context; 2]>,
    _library: Library,
}

fn library() -> Result<Library, String> {
    // SAFETY: loading the library runs the same initialization as in any program that is linked to it.
    let library = unsafe { Library::open(Some(LIBRARY), RTLD_NOW | RTLD_LOCAL) };
    library.map_err(|error| format!("no libfabric: {error} (Debian: libfabric1)"))
}

/// The provider, with what this study needs.
fn info(library: &Library) -> Result<*mut Info, Failure> {
    let what = "load libfabric";
    // SAFETY: rdma/fabric.h declares the functions with these types.
    let (getinfo, duplicate) = unsafe {
        (
            library.get::<Getinfo>(b"fi_getinfo").doing(what)?,
            library.get::<Dupinfo>(b"fi_dupinfo").doing(what)?,
        )
    };
    // SAFETY: for null, the call returns an empty structure with all its parts. It is freed when the process ends.
    let hints = unsafe { duplicate(ptr::null()) };
    if hints.is_null() {
        return Err(Failure::other("cannot load libfabric: out of memory"));
    }
    // SAFETY: as above.
    unsafe {
        (*hints).caps = FI_MSG | FI_RMA | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;
        (*hints).mode = FI_CONTEXT;
        (*(*hints).ep_attr).kind = FI_EP_RDM;
        // A put is over when the bytes are there.
        (*(*hints).tx_attr).op_flags = FI_DELIVERY_COMPLETE;
        (*(*hints).domain_attr).av_type = FI_AV_TABLE;
        (*(*hints).domain_attr).threading = FI_THREAD_DOMAIN;
        (*(*hints).domain_attr).mr_mode =
            FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
        (*(*hints).fabric_attr).prov_name = libc::strdup(PROVIDER.as_ptr());
    }
    let mut found = ptr::null_mut();
    let wanted = version(1, 9);
    // SAFETY: the arguments are as rdma/fabric.h requires. The result is never freed.
    let result =
        unsafe { getinfo(wanted, NODE.as_ptr(), ptr::null(), FI_SOURCE, hints, &raw mut found) };
    check(result, "find libfabric's tcp provider")?;
    Ok(found)
}

impl Fabric {
    /// Opens an endpoint at the loopback interface, and its address.
    pub(super) fn open() -> Result<(Self, Vec<u8>), String> {
        let library = library()?;
        Self::with(library).map_err(|failure| failure.message)
    }

    fn with(library: Library) -> Result<(Self, Vec<u8>), Failure> {
        let info = info(&library)?;
        // SAFETY: rdma/fabric.h declares the function with this type.
        let open = unsafe { library.get::<OpenFabric>(b"fi_fabric") }.doing("load libfabric")?;
        let nothing = ptr::null_mut();
        let mut this = Self {
            fabric: ptr::null_mut(),
            domain: ptr::null_mut(),
            endpoint: ptr::null_mut(),
            addresses: ptr::null_mut(),
            queue: ptr::null_mut(),
            other: 0,
            // SAFETY: `info` returned this structure, with all its parts.
            has_addresses: unsafe { (*(*info).domain_attr).mr_mode } & FI_MR_VIRT_ADDR != 0,
            registrations: 0,
            context: Box::new([Context { internal: [nothing; 4] }; 2]),
            _library: library,
        };
        // SAFETY: an all-zero value is valid: it asks for what the provider has.
        let mut av: AvAttr = unsafe { std::mem::zeroed() };
        av.kind = FI_AV_TABLE;
        // SAFETY: as above.
        let mut cq: CqAttr = unsafe { std::mem::zeroed() };
        (cq.size, cq.format) = (64, FI_CQ_FORMAT_CONTEXT);
        // SAFETY: each object is opened from the one before, as rdma/fi_domain.h and fi_endpoint.h require.
        unsafe {
            check(open((*info).fabric_attr, &raw mut this.fabric, nothing), "open a fabric")?;
            let domain = (*(*this.fabric).ops).domain;
            check(domain(this.fabric, info, &raw mut this.domain, nothing), "open a domain")?;
            let ops = (*this.domain).ops;
            let opened =
                ((*ops).av_open)(this.domain, &raw mut av, &raw mut this.addresses, nothing);
            check(opened, "open an address vector")?;
            let opened = ((*ops).cq_open)(this.domain, &raw mut cq, &raw mut this.queue, nothing);
            check(opened, "open a completion queue")?;
            let opened = ((*ops).endpoint)(this.domain, info, &raw mut this.endpoint, nothing);
            check(opened, "open an endpoint")?;
            let fid = &raw mut (*this.endpoint).fid;
            let bind = (*(*fid).ops).bind;
            check(bind(fid, this.addresses.cast(), 0), "bind an address vector")?;
            let both = FI_SEND | FI_RECV;
            check(bind(fid, this.queue.cast(), both), "bind a completion queue")?;
            check(((*(*fid).ops).control)(fid, FI_ENABLE, nothing), "enable an endpoint")?;
        }
        let mut address = vec![0u8; ADDRESS_BYTES];
        let mut bytes = address.len();
        // SAFETY: the buffer has the length that is passed.
        let named = unsafe {
            let fid = &raw mut (*this.endpoint).fid;
            ((*(*this.endpoint).cm).getname)(fid, address.as_mut_ptr().cast(), &raw mut bytes)
        };
        check(named, "ask for an address")?;
        address.truncate(bytes);
        Ok((this, address))
    }

    /// Learns the address of the other side.
    pub(super) fn connect(&mut self, address: &[u8]) -> Result<(), Failure> {
        let nothing = ptr::null_mut();
        // SAFETY: the same provider wrote this address.
        let count = unsafe {
            let insert = (*(*self.addresses).ops).insert;
            insert(self.addresses, address.as_ptr().cast(), 1, &raw mut self.other, 0, nothing)
        };
        if count == 1 { Ok(()) } else { check(count.min(-1), "insert an address") }
    }

    /// Registers memory, which stays where it is until the registration is dropped.
    pub(super) fn register(
        &mut self,
        start: NonNull<u8>,
        bytes: usize,
    ) -> Result<Registered, Failure> {
        let access = FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;
        self.registrations += 1;
        let mut memory = ptr::null_mut();
        // SAFETY: the caller's memory is as long as it says.
        let result = unsafe {
            let register = (*(*self.domain).mr).reg;
            let (fid, start) = (&raw mut (*self.domain).fid, start.as_ptr().cast());
            let (key, out) = (self.registrations, &raw mut memory);
            register(fid, start, bytes, access, 0, key, 0, out, ptr::null_mut())
        };
        check(result, "register memory")?;
        // SAFETY: the call has made it.
        let key = unsafe { (*memory).key };
        Ok(Registered { memory, key })
    }

    /// Begins a get from the other side's memory, or a put to it. `there` is an address, or an offset in that memory.
    #[inline(always)]
    pub(super) fn begin(
        &mut self,
        is_put: bool,
        (start, bytes): (NonNull<u8>, usize),
        own: &Registered,
        (there, key): (u64, u64),
    ) -> Result<(), Failure> {
        let context: *mut c_void = (&raw mut *self.context).cast();
        loop {
            // SAFETY: the endpoint is open; the caller keeps the buffer until the operation has ended.
            let result = unsafe {
                let (rma, start) = ((*self.endpoint).rma, start.as_ptr().cast());
                let call = if is_put { (*rma).write } else { (*rma).read };
                let description = (*own.memory).mem_desc;
                call(self.endpoint, start, bytes, description, self.other, there, key, context)
            };
            match result {
                0 => return Ok(()),
                EAGAIN => drop(self.progress()?),
                error => {
                    return check(c_int::try_from(error).unwrap_or(-1), "access a peer's memory");
                }
            }
        }
    }

    /// Makes progress, for the other side's operations too. Whether an operation of this side has ended.
    #[inline(always)]
    pub(super) fn progress(&mut self) -> Result<bool, Failure> {
        let mut entry: *mut c_void = ptr::null_mut();
        // SAFETY: the queue is open, and there is room for one entry of the format that was requested.
        let found = unsafe { ((*(*self.queue).ops).read)(self.queue, (&raw mut entry).cast(), 1) };
        match found {
            1 => Ok(true),
            EAGAIN | 0 => Ok(false),
            EAVAIL => Err(self.failed()),
            error => {
                check(c_int::try_from(error).unwrap_or(-1), "complete an operation").map(|()| false)
            }
        }
    }

    #[cold]
    fn failed(&mut self) -> Failure {
        // SAFETY: an all-zero value is valid.
        let mut entry: ErrEntry = unsafe { std::mem::zeroed() };
        // SAFETY: the queue is open, and has an error.
        unsafe { ((*(*self.queue).ops).readerr)(self.queue, &raw mut entry, 0) };
        let why = check(entry.err.saturating_neg(), "complete an operation");
        why.err().unwrap_or_else(|| Failure::other("an operation of libfabric failed"))
    }
}

impl Drop for Fabric {
    fn drop(&mut self) {
        let fids: [*mut Fid; 5] = [
            self.endpoint.cast(),
            self.queue.cast(),
            self.addresses.cast(),
            self.domain.cast(),
            self.fabric.cast(),
        ];
        fids.into_iter().for_each(close);
    }
}

fn close(fid: *mut Fid) {
    if !fid.is_null() {
        // SAFETY: each object begins with its fid and is open. It is closed before the object that it was opened from.
        unsafe { ((*(*fid).ops).close)(fid) };
    }
}

fn check(result: c_int, what: &str) -> Result<(), Failure> {
    if result == 0 {
        return Ok(());
    }
    let reason = std::io::Error::from_raw_os_error(result.saturating_neg());
    Err(Failure::other(format!("cannot {what}: {reason}")))
}
