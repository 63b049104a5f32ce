//! A program that uses the provider.

use core::ffi::{CStr, c_int, c_void};
use std::ptr::{null, null_mut};
use std::sync::Once;
use std::time::{Duration, Instant};

use corewire_fabric::fi_prov_ini;
use corewire_ofi::av::{AvAttr, FidAv};
use corewire_ofi::cntr::{CntrAttr, FidCntr};
use corewire_ofi::cq::{CqAttr, ErrEntry, FI_CQ_FORMAT_TAGGED, FidCq, TaggedEntry};
use corewire_ofi::domain::FidDomain;
use corewire_ofi::endpoint::FidEp;
use corewire_ofi::errors::{FI_EAGAIN, FI_EAVAIL};
use corewire_ofi::fabric::FidFabric;
use corewire_ofi::fid::{Context, FI_ENABLE, FI_WAIT_NONE, Fid};
use corewire_ofi::flags::{FI_RECV, FI_SEND};
use corewire_ofi::info::{FI_AV_TABLE, FI_THREAD_DOMAIN, Info};
use corewire_ofi::{FI_ADDR_UNSPEC, FiAddr, IoVec};

/// Length of an address.
pub(crate) const ADDRESS_BYTES: usize = 48;
/// How long a test waits for what must happen.
const LIMIT: Duration = Duration::from_secs(60);

/// Calls an operation of an object: `call!(endpoint.tagged.inject(..))`.
macro_rules! call {
    ($object:ident . fid . $operation:ident ( $($argument:expr),* $(,)? )) => {
        unsafe { ((*(*$object).fid.ops).$operation)($object.cast(), $($argument),*) }
    };
    ($object:ident . $table:ident . $operation:ident ( $($argument:expr),* $(,)? )) => {
        unsafe { ((*(*$object).$table).$operation)($object, $($argument),*) }
    };
}
pub(crate) use call;

/// All tests of this program and the processes that they start use one runtime directory, which each of them sweeps.
pub(crate) fn directory() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("provider");
        if std::env::var_os("COREWIRE_TEST_OWN").is_some() {
            return;
        }
        // SAFETY: what reads the environment here does so through the standard library.
        unsafe { std::env::set_var("COREWIRE_RUNTIME_DIR", path) };
    });
}

/// `fi_getinfo`.
pub(crate) fn get_info(
    version: u32,
    service: Option<&CStr>,
    flags: u64,
    hints: *const Info,
) -> Result<*mut Info, c_int> {
    directory();
    let mut info = null_mut();
    let service = service.map_or(null(), CStr::as_ptr);
    let provider = fi_prov_ini();
    let status =
        unsafe { ((*provider).getinfo)(version, null(), service, flags, hints, &raw mut info) };
    if status == 0 { Ok(info) } else { Err(status) }
}

/// The interface of 2.0.
pub(crate) const VERSION: u32 = corewire_ofi::version(2, 0);

/// What a node is made of.
pub(crate) struct Options {
    pub(crate) version: u32,
    pub(crate) threading: c_int,
    pub(crate) format: c_int,
    pub(crate) wait: c_int,
    /// Flags of the bindings of the queue beside the directions.
    pub(crate) binding: u64,
    pub(crate) tx_op_flags: u64,
    pub(crate) rx_op_flags: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            version: VERSION,
            threading: FI_THREAD_DOMAIN,
            format: FI_CQ_FORMAT_TAGGED,
            wait: FI_WAIT_NONE,
            binding: 0,
            tx_op_flags: 0,
            rx_op_flags: 0,
        }
    }
}

/// An endpoint with everything that it needs.
pub(crate) struct Node {
    pub(crate) info: *mut Info,
    pub(crate) fabric: *mut FidFabric,
    pub(crate) domain: *mut FidDomain,
    pub(crate) av: *mut FidAv,
    pub(crate) cq: *mut FidCq,
    pub(crate) ep: *mut FidEp,
}

impl Node {
    pub(crate) fn new() -> Self {
        Self::with(Options::default())
    }

    pub(crate) fn with(options: Options) -> Self {
        let node = Self::unbound(options);
        node.enable();
        node
    }

    /// Bound to its queue, and not enabled.
    pub(crate) fn unbound(options: Options) -> Self {
        let info = get_info(options.version, None, 0, null()).unwrap();
        unsafe {
            (*(*info).domain_attr).threading = options.threading;
            (*(*info).tx_attr).op_flags = options.tx_op_flags;
            (*(*info).rx_attr).op_flags = options.rx_op_flags;
        }
        let fabric = open_fabric(info);
        let domain = open_domain(fabric, info);
        let av = open_av(domain);
        let cq = open_cq(domain, options.format, options.wait);
        let ep = open_endpoint(domain, info);
        assert_eq!(call!(ep.fid.bind(av.cast(), 0)), 0);
        let flags = FI_SEND | FI_RECV | options.binding;
        assert_eq!(call!(ep.fid.bind(cq.cast(), flags)), 0);
        Self { info, fabric, domain, av, cq, ep }
    }

    pub(crate) fn enable(&self) {
        let ep = self.ep;
        assert_eq!(control(ep.cast(), FI_ENABLE), 0);
    }

    pub(crate) fn address(&self) -> [u8; ADDRESS_BYTES] {
        let (mut address, mut length) = ([0; ADDRESS_BYTES], ADDRESS_BYTES);
        let ep = self.ep;
        let at = address.as_mut_ptr().cast();
        assert_eq!(unsafe { ((*(*ep).cm).getname)(ep.cast(), at, &raw mut length) }, 0);
        assert_eq!(length, ADDRESS_BYTES);
        address
    }

    /// Inserts an address; returns its number.
    pub(crate) fn insert(&self, address: [u8; ADDRESS_BYTES]) -> FiAddr {
        let (av, mut number) = (self.av, 77);
        let at = address.as_ptr().cast();
        assert_eq!(call!(av.ops.insert(at, 1, &raw mut number, 0, null_mut())), 1);
        number
    }

    /// Reads the queue once.
    pub(crate) fn try_read(&self) -> Result<TaggedEntry, isize> {
        let (cq, mut entry) = (self.cq, EMPTY);
        match call!(cq.ops.read((&raw mut entry).cast(), 1)) {
            1 => Ok(entry),
            status => Err(status),
        }
    }

    /// Makes progress, which must end nothing.
    pub(crate) fn progress(&self) {
        let cq = self.cq;
        let status = call!(cq.ops.read(null_mut(), 0));
        assert_eq!(status, -again(), "nothing is expected");
    }

    pub(crate) fn read_error(&self) -> ErrEntry {
        let (cq, mut entry) = (self.cq, NO_ERROR);
        assert_eq!(call!(cq.ops.readerr(&raw mut entry, 0)), 1);
        entry
    }

    /// Posts a receive of a message with this tag.
    pub(crate) fn receive(&self, tag: u64, buffer: &mut [u8], context: &mut Context) {
        let (ep, at, length) = (self.ep, buffer.as_mut_ptr().cast(), buffer.len());
        let (desc, from) = (null_mut(), FI_ADDR_UNSPEC);
        let context = (&raw mut *context).cast();
        assert_eq!(call!(ep.tagged.recv(at, length, desc, from, tag, 0, context)), 0);
    }

    /// Sends a message with this tag.
    pub(crate) fn send(&self, to: FiAddr, tag: u64, bytes: &[u8], context: &mut Context) {
        let (ep, at, length) = (self.ep, bytes.as_ptr().cast(), bytes.len());
        let context = (&raw mut *context).cast();
        assert_eq!(call!(ep.tagged.send(at, length, null_mut(), to, tag, context)), 0);
    }

    /// Sends a short message with this tag, of which no entry tells.
    pub(crate) fn inject(&self, to: FiAddr, tag: u64, bytes: &[u8]) {
        let (ep, at, length) = (self.ep, bytes.as_ptr().cast(), bytes.len());
        let mut status = call!(ep.tagged.inject(at, length, to, tag));
        let end = Instant::now() + LIMIT;
        while status == -again() && Instant::now() < end {
            self.progress();
            status = call!(ep.tagged.inject(at, length, to, tag));
        }
        assert_eq!(status, 0);
    }

    /// Closes everything.
    pub(crate) fn close(self) {
        let Self { info, fabric, domain, av, cq, ep } = self;
        for fid in [ep.cast(), cq.cast(), av.cast(), domain.cast(), fabric.cast()] {
            assert_eq!(close(fid), 0);
        }
        free(info);
    }
}

/// An entry that says nothing.
pub(crate) const EMPTY: TaggedEntry =
    TaggedEntry { op_context: null_mut(), flags: 0, len: 0, buf: null_mut(), data: 0, tag: 0 };

/// A failure that says nothing.
pub(crate) const NO_ERROR: ErrEntry = ErrEntry {
    op_context: null_mut(),
    flags: 0,
    len: 0,
    buf: null_mut(),
    data: 0,
    tag: 0,
    olen: 0,
    err: 0,
    prov_errno: 0,
    err_data: null_mut(),
    err_data_size: 0,
    src_addr: 0,
};

/// What a program lends to an operation.
pub(crate) fn context() -> Box<Context> {
    Box::new(Context { internal: [null_mut(); 4] })
}

pub(crate) const fn again() -> isize {
    FI_EAGAIN as isize
}

pub(crate) const fn available() -> isize {
    FI_EAVAIL as isize
}

/// Whether an entry is that of an operation.
pub(crate) fn is_of(entry: &TaggedEntry, context: &mut Context) -> bool {
    std::ptr::eq(entry.op_context, (&raw mut *context).cast::<c_void>())
}

/// Reads the first node's queue until there is an entry, while the others make progress.
pub(crate) fn read(node: &Node, others: &[&Node]) -> TaggedEntry {
    match read_any(node, others) {
        Ok(entry) => entry,
        Err(status) => panic!("the queue says {status}: {:?}", node.read_error()),
    }
}

/// The same, until there is an entry or a failure.
pub(crate) fn read_any(node: &Node, others: &[&Node]) -> Result<TaggedEntry, isize> {
    let end = Instant::now() + LIMIT;
    loop {
        match node.try_read() {
            Err(status) if status == -again() => {}
            other => return other,
        }
        for other in others {
            let cq = other.cq;
            let _ = call!(cq.ops.read(null_mut(), 0));
        }
        assert!(Instant::now() < end, "nothing has ended");
    }
}

/// Waits until something holds, while nodes make progress.
pub(crate) fn until(nodes: &[&Node], mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + LIMIT;
    while !holds() {
        for node in nodes {
            let cq = node.cq;
            let _ = call!(cq.ops.read(null_mut(), 0));
        }
        assert!(Instant::now() < end, "it never holds");
    }
}

/// Two nodes that know each other: the number of the second one for the first, and the other way.
pub(crate) fn pair() -> (Node, Node, FiAddr, FiAddr) {
    pair_with(Options::default, Options::default)
}

pub(crate) fn pair_with(
    first: impl FnOnce() -> Options,
    second: impl FnOnce() -> Options,
) -> (Node, Node, FiAddr, FiAddr) {
    let (first, second) = (Node::with(first()), Node::with(second()));
    let (to_second, to_first) = (first.insert(second.address()), second.insert(first.address()));
    (first, second, to_second, to_first)
}

pub(crate) fn open_fabric(info: *mut Info) -> *mut FidFabric {
    let (provider, mut fabric) = (fi_prov_ini(), null_mut());
    let attr = unsafe { (*info).fabric_attr };
    let status = unsafe { ((*provider).fabric)(attr, &raw mut fabric, null_mut()) };
    assert_eq!(status, 0);
    fabric
}

pub(crate) fn open_domain(fabric: *mut FidFabric, info: *mut Info) -> *mut FidDomain {
    let mut domain = null_mut();
    assert_eq!(call!(fabric.ops.domain(info, &raw mut domain, null_mut())), 0);
    domain
}

pub(crate) fn open_av(domain: *mut FidDomain) -> *mut FidAv {
    let (mut attr, mut av) = (AV, null_mut());
    assert_eq!(call!(domain.ops.av_open(&raw mut attr, &raw mut av, null_mut())), 0);
    av
}

pub(crate) const AV: AvAttr = AvAttr {
    kind: FI_AV_TABLE,
    rx_ctx_bits: 0,
    count: 0,
    ep_per_node: 0,
    name: null(),
    map_addr: null_mut(),
    flags: 0,
};

pub(crate) const fn cq_attr(format: c_int, wait_obj: c_int) -> CqAttr {
    CqAttr {
        size: 0,
        flags: 0,
        format,
        wait_obj,
        signaling_vector: 0,
        wait_cond: 0,
        wait_set: null_mut(),
    }
}

pub(crate) fn open_cq(domain: *mut FidDomain, format: c_int, wait: c_int) -> *mut FidCq {
    let (mut attr, mut cq) = (cq_attr(format, wait), null_mut());
    assert_eq!(call!(domain.ops.cq_open(&raw mut attr, &raw mut cq, null_mut())), 0);
    cq
}

pub(crate) fn open_cntr(domain: *mut FidDomain, wait_obj: c_int) -> *mut FidCntr {
    let mut attr = CntrAttr { events: 0, wait_obj, wait_set: null_mut(), flags: 0 };
    let mut cntr = null_mut();
    assert_eq!(call!(domain.ops.cntr_open(&raw mut attr, &raw mut cntr, null_mut())), 0);
    cntr
}

pub(crate) fn open_endpoint(domain: *mut FidDomain, info: *mut Info) -> *mut FidEp {
    let mut ep = null_mut();
    assert_eq!(call!(domain.ops.endpoint(info, &raw mut ep, null_mut())), 0);
    ep
}

pub(crate) fn close(fid: *mut Fid) -> c_int {
    unsafe { ((*(*fid).ops).close)(fid) }
}

pub(crate) fn control(fid: *mut Fid, command: c_int) -> c_int {
    unsafe { ((*(*fid).ops).control)(fid, command, null_mut()) }
}

/// Frees what `fi_getinfo` has returned, as `fi_freeinfo` does.
pub(crate) fn free(info: *mut Info) {
    unsafe {
        let Info {
            src_addr, dest_addr, tx_attr, rx_attr, ep_attr, domain_attr, fabric_attr, ..
        } = *info;
        let names = [(*domain_attr).name, (*fabric_attr).name];
        let parts: [*mut c_void; 9] = [
            src_addr,
            dest_addr,
            names[0].cast(),
            names[1].cast(),
            tx_attr.cast(),
            rx_attr.cast(),
            ep_attr.cast(),
            domain_attr.cast(),
            fabric_attr.cast(),
        ];
        parts.into_iter().chain([info.cast()]).for_each(|part| libc::free(part));
    }
}

/// A buffer as calls with several buffers name it.
pub(crate) fn part(bytes: &mut [u8]) -> IoVec {
    IoVec { base: bytes.as_mut_ptr().cast(), len: bytes.len() }
}
