//! libfabric's `shm` provider, which is looked for when the study runs: the study is not linked to it.
//! Its binary interface is stable: the parts named here have the same layout in version 1.5 of the
//! interface and in all later versions.

#![expect(
    clippy::multiple_unsafe_ops_per_block,
    reason = "a call through a table of pointers is several at once"
)]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::path::Path;
use std::ptr;
use std::time::{Duration, Instant};

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};

use super::{Seat, TAG, Wire};
use crate::study::failure::{Doing, Failure};

const LIBRARY: &str = "libfabric.so.1";
const PROVIDER: &CStr = c"shm";
/// Version 1.5 of the interface.
const VERSION: u32 = 1 << 16 | 5;
const FI_TAGGED: u64 = 1 << 3;
const FI_RECV: u64 = 1 << 10;
const FI_TRANSMIT: u64 = 1 << 11;
const FI_CONTEXT: u64 = 1 << 59;
/// A capability. As a mode, the same bit has another meaning.
const FI_DIRECTED_RECV: u64 = 1 << 59;
const FI_THREAD_DOMAIN: c_int = 3;
const FI_EP_RDM: c_int = 3;
const FI_ENABLE: c_int = 6;
const FI_AV_TABLE: c_int = 2;
const FI_CQ_FORMAT_CONTEXT: c_int = 1;
const EAGAIN: isize = 11;
/// Maximum length of the other process's address, which is a file in the run's directory.
const ADDRESS_BYTES: usize = 256;
const PATIENCE: Duration = Duration::from_secs(10);

/// An address, a buffer, or what the caller keeps with an object or an operation.
type Any = *mut c_void;
type Getinfo = unsafe extern "C" fn(
    u32,
    *const c_char,
    *const c_char,
    u64,
    *const Info,
    *mut *mut Info,
) -> c_int;
type Dupinfo = unsafe extern "C" fn(*const Info) -> *mut Info;
type OpenFabric = unsafe extern "C" fn(Any, *mut *mut Object<FabricOps>, Any) -> c_int;
/// Opens an object of a `Parent` with these attributes.
type Open<Parent, Attributes, Opened> =
    unsafe extern "C" fn(*mut Object<Parent>, *mut Attributes, *mut *mut Opened, Any) -> c_int;

#[repr(C)]
struct Info {
    next: *mut Info,
    caps: u64,
    mode: u64,
    address_format: u32,
    lengths: [usize; 2],
    addresses: [*mut c_void; 2],
    handle: *mut c_void,
    tx: *mut TxAttributes,
    rx: *mut c_void,
    endpoint: *mut EndpointAttributes,
    domain: *mut DomainAttributes,
    fabric: *mut FabricAttributes,
    nic: *mut c_void,
}

#[repr(C)]
struct TxAttributes {
    flags: [u64; 5],
    inject_size: usize,
}

#[repr(C)]
struct EndpointAttributes {
    kind: c_int,
}

#[repr(C)]
struct DomainAttributes {
    domain: *mut c_void,
    name: *mut c_char,
    threading: c_int,
    control_progress: c_int,
    data_progress: c_int,
    resource_management: c_int,
    av_kind: c_int,
}

#[repr(C)]
struct FabricAttributes {
    fabric: *mut c_void,
    name: *mut c_char,
    provider: *mut c_char,
}

#[repr(C)]
struct Fid {
    class: usize,
    context: *mut c_void,
    ops: *const Ops,
}

#[repr(C)]
struct Ops {
    size: usize,
    close: unsafe extern "C" fn(*mut Fid) -> c_int,
    bind: unsafe extern "C" fn(*mut Fid, *mut Fid, u64) -> c_int,
    control: unsafe extern "C" fn(*mut Fid, c_int, *mut c_void) -> c_int,
}

/// What everything is that has no more operations than these.
#[repr(C)]
struct Object<Operations> {
    fid: Fid,
    ops: *const Operations,
}

#[repr(C)]
struct FabricOps {
    size: usize,
    domain: Open<FabricOps, Info, Object<DomainOps>>,
}

#[repr(C)]
struct DomainOps {
    size: usize,
    av_open: Open<DomainOps, AvAttributes, Object<AvOps>>,
    cq_open: Open<DomainOps, CqAttributes, Object<CqOps>>,
    endpoint: Open<DomainOps, Info, Endpoint>,
}

#[repr(C)]
#[derive(Default)]
struct AvAttributes {
    kind: c_int,
    context_bits: c_int,
    rest: [u64; 5],
}

#[repr(C)]
#[derive(Default)]
struct CqAttributes {
    size: usize,
    flags: u64,
    format: c_int,
    rest: [c_int; 5],
}

#[repr(C)]
struct AvOps {
    size: usize,
    insert:
        unsafe extern "C" fn(*mut Object<AvOps>, *const c_void, usize, *mut u64, u64, Any) -> c_int,
}

#[repr(C)]
struct CqOps {
    size: usize,
    read: unsafe extern "C" fn(*mut Object<CqOps>, *mut Any, usize) -> isize,
}

#[repr(C)]
struct Endpoint {
    fid: Fid,
    ops: *const c_void,
    cm: *const CmOps,
    msg: *const c_void,
    rma: *const c_void,
    tagged: *const TaggedOps,
}

#[repr(C)]
struct CmOps {
    size: usize,
    setname: *const c_void,
    getname: unsafe extern "C" fn(*mut Fid, Any, *mut usize) -> c_int,
}

#[repr(C)]
struct TaggedOps {
    size: usize,
    receive: unsafe extern "C" fn(*mut Endpoint, Any, usize, Any, u64, u64, u64, Any) -> isize,
    others: [*const c_void; 2],
    send: unsafe extern "C" fn(*mut Endpoint, *const c_void, usize, Any, u64, u64, Any) -> isize,
    more: [*const c_void; 2],
    inject: unsafe extern "C" fn(*mut Endpoint, *const c_void, usize, u64, u64) -> isize,
}

pub(crate) struct Shm {
    endpoint: *mut Endpoint,
    domain: *mut Object<DomainOps>,
    fabric: *mut Object<FabricOps>,
    av: *mut Object<AvOps>,
    /// Completion queues: of sends, of receives.
    queues: [*mut Object<CqOps>; 2],
    inject_bytes: usize,
    other: u64,
    /// Memory that the provider may use during an operation: it needs four words, and has twice as
    /// many.
    contexts: [Box<[u64; 8]>; 2],
    _library: Library,
}

pub(super) fn settings() -> String {
    "tagged messages between endpoints FI_EP_RDM, completion queues polled, injected up to what it allows; as \
     it sets itself up"
        .to_owned()
}

pub(super) fn absence() -> Option<String> {
    match library() {
        Err(error) => Some(format!("no libfabric: {error} (Debian: libfabric1)")),
        Ok(library) => info(&library).err().map(|failure| failure.message),
    }
}

fn library() -> Result<Library, libloading::Error> {
    // SAFETY: loading the library runs the same initialization as in any program that is linked to it.
    unsafe { Library::open(Some(LIBRARY), RTLD_NOW | RTLD_LOCAL) }
}

/// The provider, with the settings that this study needs.
fn info(library: &Library) -> Result<*mut Info, Failure> {
    let what = "load libfabric";
    // SAFETY: rdma/fabric.h declares the functions with these types.
    let (getinfo, duplicate) = unsafe {
        (
            library.get::<Getinfo>(b"fi_getinfo").doing(what)?,
            library.get::<Dupinfo>(b"fi_dupinfo").doing(what)?,
        )
    };
    // SAFETY: for null, the call returns an empty structure with all its parts. It is freed when the
    // process ends.
    let hints = unsafe { duplicate(ptr::null()) };
    if hints.is_null() {
        return Err(Failure::other("cannot load libfabric: out of memory"));
    }
    // SAFETY: as above.
    unsafe {
        (*hints).caps = FI_TAGGED | FI_DIRECTED_RECV;
        (*hints).mode = FI_CONTEXT;
        (*(*hints).endpoint).kind = FI_EP_RDM;
        (*(*hints).domain).av_kind = FI_AV_TABLE;
        // Only one thread uses it, so no locks are needed.
        (*(*hints).domain).threading = FI_THREAD_DOMAIN;
        (*(*hints).fabric).provider = libc::strdup(PROVIDER.as_ptr());
    }
    let mut found = ptr::null_mut();
    // SAFETY: the arguments are as rdma/fabric.h requires. The result is never freed.
    let result = unsafe { getinfo(VERSION, ptr::null(), ptr::null(), 0, hints, &raw mut found) };
    check(result, "find libfabric's shm provider")?;
    Ok(found)
}

impl Wire for Shm {
    fn open(seat: &Seat) -> Result<Self, Failure> {
        let library = library().doing("load libfabric")?;
        let info = info(&library)?;
        // SAFETY: rdma/fabric.h declares the function with this type.
        let open = unsafe { library.get::<OpenFabric>(b"fi_fabric") }.doing("load libfabric")?;
        let mut this = Self {
            endpoint: ptr::null_mut(),
            domain: ptr::null_mut(),
            fabric: ptr::null_mut(),
            av: ptr::null_mut(),
            queues: [ptr::null_mut(); 2],
            // SAFETY: `info` returned this structure, with all its parts.
            inject_bytes: unsafe { (*(*info).tx).inject_size },
            other: 0,
            contexts: [Box::default(), Box::default()],
            _library: library,
        };
        let nothing = ptr::null_mut();
        let mut av = AvAttributes { kind: FI_AV_TABLE, ..AvAttributes::default() };
        // SAFETY: each object is opened from the one before, as rdma/fi_domain.h and fi_endpoint.h
        // require.
        unsafe {
            check(open((*info).fabric.cast(), &raw mut this.fabric, nothing), "open a fabric")?;
            let domain = (*(*this.fabric).ops).domain;
            check(domain(this.fabric, info, &raw mut this.domain, nothing), "open a domain")?;
            let ops = (*this.domain).ops;
            let result = ((*ops).av_open)(this.domain, &raw mut av, &raw mut this.av, nothing);
            check(result, "open an address vector")?;
            for queue in &mut this.queues {
                let format = FI_CQ_FORMAT_CONTEXT;
                let mut attributes = CqAttributes { size: 64, format, ..CqAttributes::default() };
                let result = ((*ops).cq_open)(this.domain, &raw mut attributes, queue, nothing);
                check(result, "open a completion queue")?;
            }
            let result = ((*ops).endpoint)(this.domain, info, &raw mut this.endpoint, nothing);
            check(result, "open an endpoint")?;
            let fid = &raw mut (*this.endpoint).fid;
            let bind = (*(*fid).ops).bind;
            check(bind(fid, &raw mut (*this.av).fid, 0), "bind an address vector")?;
            for (queue, flags) in this.queues.into_iter().zip([FI_TRANSMIT, FI_RECV]) {
                check(bind(fid, &raw mut (*queue).fid, flags), "bind a completion queue")?;
            }
            check(((*(*fid).ops).control)(fid, FI_ENABLE, nothing), "enable an endpoint")?;
        }
        this.meet(seat)?;
        Ok(this)
    }

    #[inline(always)]
    fn send(&mut self, message: &[u8]) -> Result<(), Failure> {
        let (start, bytes) = (message.as_ptr().cast(), message.len());
        let context: *mut c_void = (&raw mut *self.contexts[0]).cast();
        // SAFETY: the endpoint is open; the message stays valid until it is injected or completed.
        unsafe {
            let tagged = (*self.endpoint).tagged;
            if bytes <= self.inject_bytes {
                let inject = (*tagged).inject;
                return self.until("send", || inject(self.endpoint, start, bytes, self.other, TAG));
            }
            let send = (*tagged).send;
            let no = ptr::null_mut();
            self.until("send", || send(self.endpoint, start, bytes, no, self.other, TAG, context))?;
        }
        self.complete(0)
    }

    #[inline(always)]
    fn receive(&mut self, target: &mut [u8]) -> Result<(), Failure> {
        let (start, bytes) = (target.as_mut_ptr().cast(), target.len());
        let context: *mut c_void = (&raw mut *self.contexts[1]).cast();
        // SAFETY: the endpoint is open; the target stays valid until the receive is completed.
        unsafe {
            let receive = (*(*self.endpoint).tagged).receive;
            let no = ptr::null_mut();
            self.until("receive", || {
                receive(self.endpoint, start, bytes, no, self.other, TAG, 0, context)
            })?;
        }
        self.complete(1)
    }
}

impl Shm {
    /// Publishes its address, and reads the address of the other process.
    fn meet(&mut self, seat: &Seat) -> Result<(), Failure> {
        let mut address = [0u8; ADDRESS_BYTES];
        let mut bytes = address.len();
        // SAFETY: the buffer has the length that is passed.
        let result = unsafe {
            let fid = &raw mut (*self.endpoint).fid;
            ((*(*self.endpoint).cm).getname)(fid, address.as_mut_ptr().cast(), &raw mut bytes)
        };
        check(result, "ask for an address")?;
        let file = |index: u32| seat.directory.join(format!("address-{index}"));
        let written = seat.directory.join(format!("address-{}.new", seat.index));
        std::fs::write(&written, &address[..bytes.min(ADDRESS_BYTES)]).doing("tell an address")?;
        std::fs::rename(&written, file(seat.index)).doing("tell an address")?;
        let other = await_file(&file(seat.next()))?;
        // SAFETY: the same provider wrote this address.
        let count = unsafe {
            let insert = (*(*self.av).ops).insert;
            insert(self.av, other.as_ptr().cast(), 1, &raw mut self.other, 0, ptr::null_mut())
        };
        if count == 1 { Ok(()) } else { check(count.min(-1), "insert an address") }
    }

    /// Repeats `call` until it is accepted. Makes progress between the calls.
    #[inline(always)]
    fn until(&self, what: &str, mut call: impl FnMut() -> isize) -> Result<(), Failure> {
        loop {
            match call() {
                0 => return Ok(()),
                again if again == -EAGAIN => {
                    let mut entry = ptr::null_mut();
                    // SAFETY: the queue is open, and there is room for an entry. No operation is under
                    // way that could complete here.
                    unsafe { ((*(*self.queues[1]).ops).read)(self.queues[1], &raw mut entry, 0) };
                }
                error => return check(c_int::try_from(error).unwrap_or(-1), what),
            }
        }
    }

    /// Waits for a completion: of a send (0) or of a receive (1).
    #[inline(always)]
    fn complete(&self, which: usize) -> Result<(), Failure> {
        let queue = self.queues[which];
        loop {
            let mut entry = ptr::null_mut();
            // SAFETY: the queue is open, and there is room for one entry of the format that was
            // requested.
            match unsafe { ((*(*queue).ops).read)(queue, &raw mut entry, 1) } {
                1 => return Ok(()),
                again if again == -EAGAIN => {}
                error => {
                    return check(c_int::try_from(error).unwrap_or(-1), "complete an operation");
                }
            }
        }
    }
}

impl Drop for Shm {
    fn drop(&mut self) {
        let fids: [*mut Fid; 6] = [
            self.endpoint.cast(),
            self.queues[0].cast(),
            self.queues[1].cast(),
            self.av.cast(),
            self.domain.cast(),
            self.fabric.cast(),
        ];
        for fid in fids.into_iter().filter(|fid| !fid.is_null()) {
            // SAFETY: each object begins with its fid and is open. It is closed before the object that
            // it was opened from.
            unsafe { ((*(*fid).ops).close)(fid) };
        }
    }
}

fn await_file(path: &Path) -> Result<Vec<u8>, Failure> {
    let begun = Instant::now();
    loop {
        match std::fs::read(path) {
            Err(_) if begun.elapsed() < PATIENCE => std::thread::yield_now(),
            read => return read.doing("learn an address"),
        }
    }
}

fn check(result: c_int, what: &str) -> Result<(), Failure> {
    if result == 0 {
        return Ok(());
    }
    let reason = std::io::Error::from_raw_os_error(result.saturating_neg());
    Err(Failure::other(format!("cannot {what}: {reason}")))
}
