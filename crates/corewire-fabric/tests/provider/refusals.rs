//! Every operation of every table with null, closed, foreign, too large and too many: an error that the manual pages name.
//!
//! More than 600 lines, because each operation of each table has its row.

use core::ffi::{c_int, c_void};
use std::ptr::{null, null_mut};

use corewire_ofi::av::AvAttr;
use corewire_ofi::cntr::CntrAttr;
use corewire_ofi::cq::{CqAttr, ErrEntry};
use corewire_ofi::endpoint::{FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, FidEp, Msg};
use corewire_ofi::eq::{EqAttr, EqErrEntry};
use corewire_ofi::errors::*;
use corewire_ofi::fid::*;
use corewire_ofi::flags::*;
use corewire_ofi::mr::{FidMr, MrAttr};
use corewire_ofi::poll::PollAttr;
use corewire_ofi::tagged::MsgTagged;
use corewire_ofi::{FI_ADDR_UNSPEC, IoVec};

use crate::driver::*;

/// An operation with arguments that are good but for its object.
type Operation = (&'static str, Box<dyn Fn(*mut c_void) -> isize>);

/// Objects of every class, opened.
struct World {
    node: Node,
    objects: Vec<*mut Fid>,
}

impl World {
    fn new() -> Self {
        let node = Node::new();
        let (domain, fabric) = (node.domain, node.fabric);
        let cntr = open_cntr(domain, FI_WAIT_NONE);
        let mut eq = null_mut();
        let mut attr = EQ;
        assert_eq!(call!(fabric.ops.eq_open(&raw mut attr, &raw mut eq, null_mut())), 0);
        let mut set = null_mut();
        let mut attr = PollAttr { flags: 0 };
        assert_eq!(call!(domain.ops.poll_open(&raw mut attr, &raw mut set)), 0);
        let mr = register(&node, 1).unwrap();
        let objects = vec![
            mr.cast(),
            set.cast(),
            cntr.cast(),
            eq.cast(),
            node.ep.cast(),
            node.cq.cast(),
            node.av.cast(),
            domain.cast(),
            fabric.cast(),
        ];
        Self { node, objects }
    }

    fn of_class(&self, class: usize) -> *mut Fid {
        let is_it = |fid: &&*mut Fid| unsafe { (***fid).fclass } == class;
        *self.objects.iter().find(is_it).unwrap()
    }
}

const EQ: EqAttr = EqAttr {
    size: 0,
    flags: FI_WRITE,
    wait_obj: FI_WAIT_NONE,
    signaling_vector: 0,
    wait_set: null_mut(),
};

fn register(node: &Node, key: u64) -> Result<*mut FidMr, c_int> {
    let (domain, mut mr) = (node.domain, null_mut());
    let reg = unsafe { (*(*domain).mr).reg };
    let whole = usize::MAX;
    let status = unsafe {
        reg(domain.cast(), null(), whole, FI_SEND | FI_RECV, 0, key, 0, &raw mut mr, null_mut())
    };
    if status == 0 { Ok(mr) } else { Err(status) }
}

/// An operation of a table.
macro_rules! operation {
    ($list:ident, $name:expr, $function:expr, ($($argument:expr),*)) => {{
        let function = $function;
        #[allow(clippy::redundant_closure_call, reason = "the arguments are made in each call")]
        $list.push(($name, Box::new(move |object: *mut c_void| {
            unsafe { function(object.cast(), $($argument),*) as isize }
        }) as Box<dyn Fn(*mut c_void) -> isize>));
    }};
}

fn nowhere<T>() -> *mut T {
    null_mut()
}

/// Operations of all objects of a class.
fn of_fid(fid: *mut Fid) -> Vec<Operation> {
    let mut list: Vec<Operation> = Vec::new();
    let ops = unsafe { &*(*fid).ops };
    operation!(list, "close", ops.close, ());
    operation!(list, "bind", ops.bind, (nowhere(), 0));
    operation!(list, "control", ops.control, (FI_ALIAS, nowhere()));
    operation!(list, "ops_open", ops.ops_open, (null(), 0, nowhere(), nowhere()));
    list
}

fn of_endpoint(ep: *mut FidEp) -> Vec<Operation> {
    let mut list: Vec<Operation> = Vec::new();
    let n = nowhere::<c_void>;
    let ep = unsafe { &*ep };
    let ops = unsafe { &*ep.ops };
    operation!(list, "cancel", ops.cancel, (n()));
    operation!(
        list,
        "getopt",
        ops.getopt,
        (FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, n(), nowhere())
    );
    operation!(list, "setopt", ops.setopt, (FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, n(), 8));
    operation!(list, "tx_ctx", ops.tx_ctx, (0, nowhere(), nowhere(), n()));
    operation!(list, "rx_ctx", ops.rx_ctx, (0, nowhere(), nowhere(), n()));
    operation!(list, "rx_size_left", ops.rx_size_left, ());
    operation!(list, "tx_size_left", ops.tx_size_left, ());
    let cm = unsafe { &*ep.cm };
    operation!(list, "setname", cm.setname, (n(), 0));
    operation!(list, "getname", cm.getname, (n(), nowhere()));
    operation!(list, "getpeer", cm.getpeer, (n(), nowhere()));
    operation!(list, "connect", cm.connect, (n(), n(), 0));
    operation!(list, "listen", cm.listen, ());
    operation!(list, "accept", cm.accept, (n(), 0));
    operation!(list, "reject", cm.reject, (nowhere(), n(), 0));
    operation!(list, "shutdown", cm.shutdown, (0));
    operation!(list, "join", cm.join, (n(), 0, nowhere(), n()));
    let msg = unsafe { &*ep.msg };
    operation!(list, "recv", msg.recv, (n(), 0, n(), FI_ADDR_UNSPEC, n()));
    operation!(list, "recvv", msg.recvv, (null(), nowhere(), 0, FI_ADDR_UNSPEC, n()));
    operation!(list, "recvmsg", msg.recvmsg, (null(), 0));
    operation!(list, "send", msg.send, (n(), 0, n(), 0, n()));
    operation!(list, "sendv", msg.sendv, (null(), nowhere(), 0, 0, n()));
    operation!(list, "sendmsg", msg.sendmsg, (null(), 0));
    operation!(list, "inject", msg.inject, (n(), 0, 0));
    operation!(list, "senddata", msg.senddata, (n(), 0, n(), 0, 0, n()));
    operation!(list, "injectdata", msg.injectdata, (n(), 0, 0, 0));
    let tagged = unsafe { &*ep.tagged };
    operation!(list, "trecv", tagged.recv, (n(), 0, n(), FI_ADDR_UNSPEC, 0, 0, n()));
    operation!(list, "trecvv", tagged.recvv, (null(), nowhere(), 0, FI_ADDR_UNSPEC, 0, 0, n()));
    operation!(list, "trecvmsg", tagged.recvmsg, (null(), 0));
    operation!(list, "tsend", tagged.send, (n(), 0, n(), 0, 0, n()));
    operation!(list, "tsendv", tagged.sendv, (null(), nowhere(), 0, 0, 0, n()));
    operation!(list, "tsendmsg", tagged.sendmsg, (null(), 0));
    operation!(list, "tinject", tagged.inject, (n(), 0, 0, 0));
    operation!(list, "tsenddata", tagged.senddata, (n(), 0, n(), 0, 0, 0, n()));
    operation!(list, "tinjectdata", tagged.injectdata, (n(), 0, 0, 0, 0));
    let rma = unsafe { &*ep.rma };
    operation!(list, "read", rma.read, (n(), 0, n(), 0, 0, 0, n()));
    operation!(list, "readv", rma.readv, (null(), nowhere(), 0, 0, 0, 0, n()));
    operation!(list, "readmsg", rma.readmsg, (null(), 0));
    operation!(list, "write", rma.write, (n(), 0, n(), 0, 0, 0, n()));
    operation!(list, "writev", rma.writev, (null(), nowhere(), 0, 0, 0, 0, n()));
    operation!(list, "writemsg", rma.writemsg, (null(), 0));
    operation!(list, "inject_write", rma.inject, (n(), 0, 0, 0, 0));
    operation!(list, "writedata", rma.writedata, (n(), 0, n(), 0, 0, 0, 0, n()));
    operation!(list, "inject_writedata", rma.injectdata, (n(), 0, 0, 0, 0, 0));
    let atomic = unsafe { &*ep.atomic };
    operation!(list, "atomic", atomic.write, (n(), 0, n(), 0, 0, 0, 0, 0, n()));
    operation!(list, "atomicv", atomic.writev, (null(), nowhere(), 0, 0, 0, 0, 0, 0, n()));
    operation!(list, "atomicmsg", atomic.writemsg, (null(), 0));
    operation!(list, "inject_atomic", atomic.inject, (n(), 0, 0, 0, 0, 0, 0));
    operation!(list, "fetch_atomic", atomic.readwrite, (n(), 0, n(), n(), n(), 0, 0, 0, 0, 0, n()));
    operation!(
        list,
        "fetch_atomicv",
        atomic.readwritev,
        (null(), nowhere(), 0, nowhere(), nowhere(), 0, 0, 0, 0, 0, 0, n())
    );
    operation!(list, "fetch_atomicmsg", atomic.readwritemsg, (null(), nowhere(), nowhere(), 0, 0));
    operation!(
        list,
        "compare_atomic",
        atomic.compwrite,
        (n(), 0, n(), n(), n(), n(), n(), 0, 0, 0, 0, 0, n())
    );
    operation!(
        list,
        "compare_atomicv",
        atomic.compwritev,
        (null(), nowhere(), 0, null(), nowhere(), 0, nowhere(), nowhere(), 0, 0, 0, 0, 0, 0, n())
    );
    operation!(
        list,
        "compare_atomicmsg",
        atomic.compwritemsg,
        (null(), null(), nowhere(), 0, nowhere(), nowhere(), 0, 0)
    );
    operation!(list, "atomicvalid", atomic.writevalid, (0, 0, nowhere()));
    operation!(list, "fetch_atomicvalid", atomic.readwritevalid, (0, 0, nowhere()));
    operation!(list, "compare_atomicvalid", atomic.compwritevalid, (0, 0, nowhere()));
    list
}

fn of_domain(node: &Node) -> Vec<Operation> {
    let mut list: Vec<Operation> = Vec::new();
    let n = nowhere::<c_void>;
    let (ops, mr) = unsafe { (&*(*node.domain).ops, &*(*node.domain).mr) };
    operation!(list, "av_open", ops.av_open, (nowhere(), nowhere(), n()));
    operation!(list, "cq_open", ops.cq_open, (nowhere(), nowhere(), n()));
    operation!(list, "endpoint", ops.endpoint, (nowhere(), nowhere(), n()));
    operation!(list, "scalable_ep", ops.scalable_ep, (nowhere(), nowhere(), n()));
    operation!(list, "cntr_open", ops.cntr_open, (nowhere(), nowhere(), n()));
    operation!(list, "poll_open", ops.poll_open, (nowhere(), nowhere()));
    operation!(list, "stx_ctx", ops.stx_ctx, (nowhere(), nowhere(), n()));
    operation!(list, "srx_ctx", ops.srx_ctx, (nowhere(), nowhere(), n()));
    operation!(list, "query_atomic", ops.query_atomic, (0, 0, nowhere(), 0));
    operation!(list, "query_collective", ops.query_collective, (0, n(), 0));
    operation!(list, "endpoint2", ops.endpoint2, (nowhere(), nowhere(), 0, n()));
    operation!(list, "mr_reg", mr.reg, (n(), 0, 0, 0, 0, 0, nowhere(), n()));
    operation!(list, "mr_regv", mr.regv, (null(), 0, 0, 0, 0, 0, nowhere(), n()));
    operation!(list, "mr_regattr", mr.regattr, (null(), 0, nowhere()));
    list
}

fn of_the_others(world: &World) -> Vec<(usize, Vec<Operation>)> {
    let (mut av, mut cq, mut fabric, mut eq, mut set): (
        Vec<Operation>,
        Vec<Operation>,
        Vec<_>,
        Vec<_>,
        Vec<_>,
    ) = Default::default();
    let n = nowhere::<c_void>;
    let node = &world.node;
    let ops = unsafe { &*(*node.av).ops };
    operation!(av, "insert", ops.insert, (n(), 0, nowhere(), 0, n()));
    operation!(av, "insertsvc", ops.insertsvc, (null(), c"1".as_ptr(), nowhere(), 0, n()));
    operation!(av, "insertsym", ops.insertsym, (null(), 0, null(), 0, nowhere(), 0, n()));
    operation!(av, "remove", ops.remove, (nowhere(), 0, 0));
    operation!(av, "lookup", ops.lookup, (0, n(), nowhere()));
    operation!(av, "av_set", ops.av_set, (n(), nowhere(), n()));
    let ops = unsafe { &*(*node.cq).ops };
    operation!(cq, "read", ops.read, (n(), 1));
    operation!(cq, "readfrom", ops.readfrom, (n(), 1, nowhere()));
    operation!(cq, "readerr", ops.readerr, (nowhere(), 0));
    operation!(cq, "sread", ops.sread, (n(), 1, n(), 0));
    operation!(cq, "sreadfrom", ops.sreadfrom, (n(), 1, nowhere(), n(), 0));
    operation!(cq, "signal", ops.signal, ());
    let ops = unsafe { &*(*node.fabric).ops };
    operation!(fabric, "domain", ops.domain, (nowhere(), nowhere(), n()));
    operation!(fabric, "passive_ep", ops.passive_ep, (nowhere(), nowhere(), n()));
    operation!(fabric, "eq_open", ops.eq_open, (nowhere(), nowhere(), n()));
    operation!(fabric, "wait_open", ops.wait_open, (nowhere(), nowhere()));
    operation!(fabric, "trywait", ops.trywait, (nowhere(), 1));
    operation!(fabric, "domain2", ops.domain2, (nowhere(), nowhere(), 0, n()));
    let fid = world.of_class(FI_CLASS_EQ).cast::<corewire_ofi::eq::FidEq>();
    let ops = unsafe { &*(*fid).ops };
    operation!(eq, "eq_read", ops.read, (nowhere(), n(), 0, 0));
    operation!(eq, "eq_readerr", ops.readerr, (nowhere(), 0));
    operation!(eq, "eq_write", ops.write, (0, n(), 1, 0));
    operation!(eq, "eq_sread", ops.sread, (nowhere(), n(), 0, 0, 0));
    let fid = world.of_class(FI_CLASS_POLL).cast::<corewire_ofi::poll::FidPoll>();
    let ops = unsafe { &*(*fid).ops };
    operation!(set, "poll", ops.poll, (nowhere(), 1));
    operation!(set, "poll_add", ops.poll_add, (nowhere(), 0));
    operation!(set, "poll_del", ops.poll_del, (nowhere(), 0));
    let mut cntr: Vec<Operation> = Vec::new();
    let fid = world.of_class(FI_CLASS_CNTR).cast::<corewire_ofi::cntr::FidCntr>();
    let ops = unsafe { &*(*fid).ops };
    operation!(cntr, "add", ops.add, (1));
    operation!(cntr, "set", ops.set, (1));
    operation!(cntr, "wait", ops.wait, (1, 0));
    operation!(cntr, "adderr", ops.adderr, (1));
    operation!(cntr, "seterr", ops.seterr, (1));
    vec![
        (FI_CLASS_EP, of_endpoint(node.ep)),
        (FI_CLASS_AV, av),
        (FI_CLASS_CQ, cq),
        (FI_CLASS_FABRIC, fabric),
        (FI_CLASS_EQ, eq),
        (FI_CLASS_POLL, set),
        (FI_CLASS_CNTR, cntr),
        (FI_CLASS_DOMAIN, of_domain(node)),
        (FI_CLASS_MR, Vec::new()),
    ]
}

// Keeps P232.
#[test]
fn operations_of_no_object_are_refused() {
    let world = World::new();
    let mut tables = of_the_others(&world);
    for (class, table) in &mut tables {
        table.extend(of_fid(world.of_class(*class)));
    }
    let good = |status: isize| status == -(FI_EINVAL as isize) || status == -(FI_ENOSYS as isize);
    for (class, table) in &tables {
        for (name, operation) in table {
            let status = operation(null_mut());
            assert_eq!(status, -(FI_EINVAL as isize), "{name} of null");
            for &other in &world.objects {
                // `close` and others are the same for each class: only the class tells them apart.
                if unsafe { (*other).fclass } != *class {
                    let status = operation(other.cast());
                    assert!(good(status), "{name} of another class: {status}");
                }
            }
        }
    }
    // Arguments that are null, with an object that is there.
    for (class, table) in &tables {
        for (name, operation) in table.iter().filter(|(name, _)| *name != "close") {
            let status = operation(world.of_class(*class).cast());
            let fine = [
                "insert",
                "remove",
                "add",
                "set",
                "adderr",
                "seterr",
                "recv",
                "recvv",
                "trecv",
                "trecvv",
                "rx_size_left",
                "tx_size_left",
                "insertsvc",
                "mr_reg",
            ];
            let errors = [FI_EINVAL, FI_EOPBADSTATE, FI_ENOSYS, FI_EOPNOTSUPP, FI_EADDRNOTAVAIL];
            let is_error = errors.contains(&i32::try_from(-status).unwrap_or_default());
            assert!(is_error || fine.contains(name), "{name} with null: {status}");
        }
    }
    for &fid in &world.objects {
        assert_eq!(close(fid), 0);
    }
    free(world.node.info);
}

// Keeps P232.
#[test]
fn operations_of_closed_objects_are_refused() {
    // In a process of their own: another test would take the memory of a closed object for one that it opens.
    assert!(crate::processes::run("closed"));
}

/// Calls every operation of closed objects.
pub(crate) fn closed() {
    let world = World::new();
    let mut tables = of_the_others(&world);
    for (class, table) in &mut tables {
        table.extend(of_fid(world.of_class(*class)));
    }
    let objects: Vec<_> = tables.iter().map(|(class, _)| world.of_class(*class)).collect();
    for &fid in &world.objects {
        assert_eq!(close(fid), 0);
    }
    let expected = [-(FI_EINVAL as isize), -(FI_ENOSYS as isize)];
    for ((class, table), fid) in tables.iter().zip(objects) {
        for (name, operation) in table {
            let status = operation(fid.cast());
            assert!(expected.contains(&status), "{name} of closed, class {class}: {status}");
        }
    }
    free(world.node.info);
}

#[test]
fn texts_of_no_object_are_texts() {
    let world = World::new();
    let node = &world.node;
    unsafe {
        let strerror = (*(*node.cq).ops).strerror;
        let text = strerror(null_mut(), FI_EIO, null(), null_mut(), 0);
        assert_eq!(core::ffi::CStr::from_ptr(text), c"Input/output error");
        let text = strerror(node.cq, 123_456, null(), null_mut(), 0);
        assert_eq!(core::ffi::CStr::from_ptr(text), c"Unknown error");
        let straddr = (*(*node.av).ops).straddr;
        assert_eq!(
            core::ffi::CStr::from_ptr(straddr(null_mut(), null(), null_mut(), null_mut())),
            c""
        );
        let cntr = world.of_class(FI_CLASS_CNTR).cast::<corewire_ofi::cntr::FidCntr>();
        let ops = &*(*cntr).ops;
        assert_eq!(((ops.read)(null_mut()), (ops.readerr)(node.av.cast())), (0, 0));
    }
    for &fid in &world.objects {
        assert_eq!(close(fid), 0);
    }
    free(node.info);
}

#[test]
fn used_objects_are_busy() {
    let world = World::new();
    let node = &world.node;
    for fid in [node.cq.cast(), node.av.cast(), node.domain.cast(), node.fabric.cast()] {
        assert_eq!(close(fid), -FI_EBUSY);
    }
    for &fid in &world.objects {
        assert_eq!(close(fid), 0);
    }
    free(node.info);
}

// Keeps P232.
#[test]
fn objects_of_another_provider_are_refused_as_arguments() {
    let world = World::new();
    let node = &world.node;
    let (fabric, av, ep) = (node.fabric, node.av, open_endpoint(node.domain, node.info));
    let set = world.of_class(FI_CLASS_POLL).cast::<corewire_ofi::poll::FidPoll>();
    for class in [FI_CLASS_CQ, FI_CLASS_CNTR, FI_CLASS_EQ, FI_CLASS_AV] {
        let ops = unsafe { std::ptr::read((*world.of_class(class)).ops) };
        let ops: &'static Ops = Box::leak(Box::new(ops));
        let mut foreign = Fid { fclass: class, context: null_mut(), ops };
        let mut fid: *mut Fid = &raw mut foreign;
        assert_eq!(call!(fabric.ops.trywait(&raw mut fid, 1)), -FI_EINVAL);
        assert_eq!(call!(set.ops.poll_add(fid, 0)), -FI_EINVAL);
        assert_eq!(call!(ep.fid.bind(fid, FI_SEND)), -FI_EINVAL);
        assert_eq!(call!(av.fid.bind(fid, 0)), -FI_EINVAL);
    }
    assert_eq!(close(ep.cast()), 0);
    for &fid in &world.objects {
        assert_eq!(close(fid), 0);
    }
    free(node.info);
}

// Keeps P232.
#[test]
fn lengths_and_numbers_have_limits() {
    let node = Node::new();
    let (ep, own, mut lent) = (node.ep, node.insert(node.address()), context());
    let ctx: *mut c_void = (&raw mut *lent).cast();
    let bytes = vec![0u8; 8192];
    let at: *const c_void = bytes.as_ptr().cast();
    let long = -(FI_EMSGSIZE as isize);
    let invalid = -(FI_EINVAL as isize);
    assert_eq!(call!(ep.tagged.inject(at, 4097, own, 1)), long);
    assert_eq!(call!(ep.tagged.injectdata(at, usize::MAX, 0, own, 1)), long);
    assert_eq!(call!(ep.msg.inject(at, 4097, own)), long);
    assert_eq!(call!(ep.msg.injectdata(at, 4097, 0, own)), long);
    assert_eq!(call!(ep.tagged.send(at, usize::MAX, null_mut(), own, 1, ctx)), long);
    assert_eq!(call!(ep.msg.send(at, 1 << 41, null_mut(), own, ctx)), long);
    let at = at.cast_mut();
    // So is what would be copied before the call returns, which does not read it.
    for iov in [&[IoVec { base: at, len: 1 << 40 }][..], &[IoVec { base: at, len: 4096 }; 2]] {
        let (msg_iov, iov_count) = (iov.as_ptr(), iov.len());
        let (desc, addr, context, data) = (null_mut(), own, ctx, 0);
        let msg = Msg { msg_iov, desc, iov_count, addr, context, data };
        assert_eq!(call!(ep.msg.sendmsg(&raw const msg, FI_INJECT)), long);
    }
    // A length without a buffer.
    assert_eq!(call!(ep.tagged.inject(null(), 1, own, 1)), invalid);
    assert_eq!(call!(ep.tagged.send(null(), 1, null_mut(), own, 1, ctx)), invalid);
    assert_eq!(
        call!(ep.tagged.recv(null_mut(), 1, null_mut(), FI_ADDR_UNSPEC, 0, 0, ctx)),
        invalid
    );
    // Too many buffers, and lengths whose sum is too large.
    let many = vec![IoVec { base: at, len: 1 }; 17];
    let large = [IoVec { base: at, len: usize::MAX }; 2];
    assert_eq!(call!(ep.tagged.sendv(many.as_ptr(), null_mut(), 17, own, 1, ctx)), invalid);
    assert_eq!(call!(ep.tagged.sendv(many.as_ptr(), null_mut(), usize::MAX, own, 1, ctx)), invalid);
    assert_eq!(call!(ep.tagged.sendv(large.as_ptr(), null_mut(), 2, own, 1, ctx)), long);
    assert_eq!(call!(ep.tagged.sendv(null(), null_mut(), 2, own, 1, ctx)), invalid);
    let from = FI_ADDR_UNSPEC;
    assert_eq!(call!(ep.tagged.recvv(many.as_ptr(), null_mut(), 17, from, 1, 0, ctx)), invalid);
    assert_eq!(call!(ep.msg.recvv(large.as_ptr(), null_mut(), 2, from, ctx)), long);
    // Flags that no call has.
    let iov = IoVec { base: at, len: 1 };
    let (msg_iov, desc) = (&raw const iov, null_mut());
    let tagged = MsgTagged {
        msg_iov,
        desc,
        iov_count: 1,
        addr: own,
        tag: 1,
        ignore: 0,
        context: ctx,
        data: 0,
    };
    let msg = Msg { msg_iov, desc, iov_count: 1, addr: own, context: ctx, data: 0 };
    let flags = -(FI_EBADFLAGS as isize);
    for bad in [1 << 62, FI_PEEK, FI_MULTI_RECV, FI_FENCE] {
        assert_eq!(call!(ep.tagged.sendmsg(&raw const tagged, bad)), flags);
        assert_eq!(call!(ep.msg.sendmsg(&raw const msg, bad)), flags);
    }
    for bad in [1 << 62, FI_INJECT, FI_PEEK] {
        assert_eq!(call!(ep.msg.recvmsg(&raw const msg, bad)), flags);
    }
    assert_eq!(call!(ep.tagged.recvmsg(&raw const tagged, FI_INJECT)), flags);
    assert_eq!(call!(ep.tagged.recvmsg(&raw const tagged, FI_MULTI_RECV)), invalid);
    // Nothing of all that has begun.
    node.progress();
    node.close();
}

#[test]
fn an_endpoint_that_is_not_enabled_does_nothing() {
    let node = Node::unbound(Options::default());
    let (ep, cq, mut lent) = (node.ep, node.cq, context());
    let ctx: *mut c_void = (&raw mut *lent).cast();
    let own = node.insert(node.address());
    let state = -(FI_EOPBADSTATE as isize);
    assert_eq!(call!(ep.tagged.inject(null(), 0, own, 1)), state);
    assert_eq!(call!(ep.tagged.send(null(), 0, null_mut(), own, 1, ctx)), state);
    assert_eq!(call!(ep.tagged.recv(null_mut(), 0, null_mut(), FI_ADDR_UNSPEC, 1, 0, ctx)), state);
    assert_eq!(call!(ep.msg.recv(null_mut(), 0, null_mut(), FI_ADDR_UNSPEC, ctx)), state);
    assert_eq!(unsafe { ((*(*ep).ops).cancel)(ep.cast(), ctx) }, state);
    assert_eq!(node.try_read().err(), Some(-again()));
    node.enable();
    assert_eq!(control(ep.cast(), FI_ENABLE), -FI_EOPBADSTATE);
    assert_eq!(call!(ep.fid.bind(cq.cast(), FI_SEND)), -FI_EOPBADSTATE);
    node.close();
}

#[test]
fn bindings_have_rules() {
    let (node, other) = (Node::new(), Node::new());
    let ep = open_endpoint(node.domain, node.info);
    let (cq, av) = (node.cq, node.av);
    let bind = |fid: *mut Fid, flags| call!(ep.fid.bind(fid, flags));
    assert_eq!(control(ep.cast(), FI_ENABLE), -FI_ENOAV);
    assert_eq!(bind(cq.cast(), 0), -FI_EINVAL, "no direction");
    assert_eq!(bind(cq.cast(), FI_SEND | 1 << 40), -FI_EBADFLAGS);
    assert_eq!(bind(other.cq.cast(), FI_SEND), -FI_EDOMAIN);
    assert_eq!(bind(other.av.cast(), 0), -FI_EDOMAIN);
    assert_eq!(bind(av.cast(), 1), -FI_EBADFLAGS);
    assert_eq!(bind(ep.cast(), 0), -FI_EINVAL, "an endpoint");
    assert_eq!(bind(av.cast(), 0), 0);
    assert_eq!(bind(av.cast(), 0), -FI_EINVAL, "twice");
    assert_eq!(control(ep.cast(), FI_ENABLE), -FI_ENOCQ);
    assert_eq!(bind(cq.cast(), FI_SEND), 0);
    assert_eq!(bind(cq.cast(), FI_SEND), -FI_EINVAL, "twice");
    assert_eq!(control(ep.cast(), FI_ENABLE), -FI_ENOCQ);
    let cntr = open_cntr(node.domain, FI_WAIT_NONE);
    assert_eq!(bind(cntr.cast(), 0), -FI_EINVAL);
    assert_eq!(bind(cntr.cast(), FI_SELECTIVE_COMPLETION), -FI_EBADFLAGS);
    assert_eq!(bind(cntr.cast(), FI_READ | FI_WRITE), 0, "of what does not happen");
    assert_eq!(bind(cq.cast(), FI_RECV), 0);
    assert_eq!(control(ep.cast(), FI_ENABLE), 0);
    // An object of another provider, which has the same class.
    let fake = Fid { fclass: FI_CLASS_CQ, context: null_mut(), ops: null() };
    let at = &raw const fake;
    assert_eq!(call!(ep.fid.bind(at.cast_mut(), FI_SEND)), -FI_EOPBADSTATE);
    let idle = open_endpoint(node.domain, node.info);
    assert_eq!(call!(idle.fid.bind(at.cast_mut(), FI_SEND)), -FI_EINVAL);
    for fid in [idle.cast(), ep.cast(), cntr.cast()] {
        assert_eq!(close(fid), 0);
    }
    node.close();
    other.close();
}

#[test]
fn attributes_have_limits() {
    let node = Node::new();
    let domain = node.domain;
    let av = |change: fn(&mut AvAttr)| {
        let (mut attr, mut av) = (AV, null_mut());
        change(&mut attr);
        call!(domain.ops.av_open(&raw mut attr, &raw mut av, null_mut()))
    };
    assert_eq!(av(|it| it.kind = 9), -FI_EINVAL);
    assert_eq!(av(|it| it.rx_ctx_bits = -1), -FI_EINVAL);
    assert_eq!(av(|it| it.name = c"shared".as_ptr()), -FI_ENOSYS);
    assert_eq!(av(|it| it.flags = FI_READ), -FI_ENOSYS);
    assert_eq!(av(|it| it.flags = 1 << 50), -FI_EBADFLAGS);
    let cq = |change: fn(&mut CqAttr)| {
        let (mut attr, mut cq) = (cq_attr(0, 0), null_mut());
        change(&mut attr);
        let status = call!(domain.ops.cq_open(&raw mut attr, &raw mut cq, null_mut()));
        if status == 0 {
            assert_eq!(close(cq.cast()), 0);
        }
        status
    };
    assert_eq!(cq(|it| it.format = 9), -FI_EINVAL);
    assert_eq!(cq(|it| it.flags = 1 << 50), -FI_EBADFLAGS);
    assert_eq!(cq(|it| it.flags = FI_PEER), -FI_EOPNOTSUPP);
    assert_eq!(cq(|it| it.size = usize::MAX), 0, "a queue has room for all");
    for (wait, expected) in [
        (FI_WAIT_NONE, 0),
        (FI_WAIT_UNSPEC, 0),
        (FI_WAIT_SET, -FI_ENOSYS),
        (FI_WAIT_FD, 0),
        (FI_WAIT_MUTEX_COND, -FI_ENOSYS),
        (FI_WAIT_YIELD, 0),
        (FI_WAIT_POLLFD, -FI_ENOSYS),
        (99, -FI_EINVAL),
    ] {
        let (mut attr, mut cq) = (cq_attr(0, wait), null_mut());
        let status = call!(domain.ops.cq_open(&raw mut attr, &raw mut cq, null_mut()));
        assert_eq!(status, expected, "wait object {wait}");
        if status == 0 {
            assert_eq!(close(cq.cast()), 0);
        }
    }
    let cntr = |attr: CntrAttr| {
        let (mut attr, mut cntr) = (attr, null_mut());
        call!(domain.ops.cntr_open(&raw mut attr, &raw mut cntr, null_mut()))
    };
    let usual = CntrAttr { events: 0, wait_obj: 0, wait_set: null_mut(), flags: 0 };
    assert_eq!(cntr(CntrAttr { events: 9, ..usual }), -FI_EINVAL);
    assert_eq!(cntr(CntrAttr { flags: 1, ..usual }), -FI_EBADFLAGS);
    assert_eq!(cntr(CntrAttr { wait_obj: FI_WAIT_SET, ..usual }), -FI_ENOSYS);
    node.close();
}

#[test]
fn registrations_have_keys_of_their_own() {
    let node = Node::new();
    let mrs = [1, 2, u64::MAX].map(|key| register(&node, key).unwrap());
    assert_eq!(register(&node, 2).err(), Some(-FI_ENOKEY));
    for (mr, key) in mrs.iter().zip([1, 2, u64::MAX]) {
        assert_eq!(unsafe { (**mr).key }, key);
        assert_eq!(control((*mr).cast(), FI_ENABLE), 0);
    }
    assert_eq!(close(mrs[1].cast()), 0);
    let second = register(&node, 2).unwrap();
    let (domain, mut mr) = (node.domain, null_mut());
    let regattr = unsafe { (*(*domain).mr).regattr };
    let iov = IoVec { base: null_mut(), len: 8 };
    let usual = MrAttr {
        mr_iov: &raw const iov,
        iov_count: 1,
        access: FI_RECV,
        offset: 0,
        requested_key: 77,
        context: null_mut(),
        auth_key_size: 0,
        auth_key: null_mut(),
        iface: 0,
        device: 0,
    };
    for (attr, flags, expected) in [
        (MrAttr { iov_count: 2, ..usual }, 0, -FI_EINVAL),
        (MrAttr { offset: 8, ..usual }, 0, -FI_EINVAL),
        (MrAttr { access: 1 << 60, ..usual }, 0, -FI_EINVAL),
        (MrAttr { iface: 1, ..usual }, 0, -FI_EOPNOTSUPP),
        (usual, 1 << 60, -FI_EBADFLAGS),
        (usual, 0, 0),
    ] {
        let status = unsafe { regattr(domain.cast(), &raw const attr, flags, &raw mut mr) };
        assert_eq!(status, expected);
    }
    for mr in [mrs[0], mrs[2], second, mr] {
        assert_eq!(close(mr.cast()), 0);
    }
    node.close();
}

#[test]
fn options_have_limits() {
    let node = Node::new();
    let ep = node.ep;
    let get = |level, name, room| {
        let (mut value, mut length) = (0usize, room);
        let at = (&raw mut value).cast();
        let getopt = unsafe { (*(*ep).ops).getopt };
        (unsafe { getopt(ep.cast(), level, name, at, &raw mut length) }, value, length)
    };
    let set = |name, value: usize, length| {
        let setopt = unsafe { (*(*ep).ops).setopt };
        unsafe { setopt(ep.cast(), FI_OPT_ENDPOINT, name, (&raw const value).cast(), length) }
    };
    assert_eq!(get(FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, 8), (0, 64, 8));
    assert_eq!(set(FI_OPT_MIN_MULTI_RECV, 4096, 8), 0);
    assert_eq!(get(FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, 8), (0, 4096, 8));
    assert_eq!(get(FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, 4), (-FI_ETOOSMALL, 0, 8));
    assert_eq!(set(FI_OPT_MIN_MULTI_RECV, 4096, 4), -FI_EINVAL);
    assert_eq!(set(12_345, 1, 8), -FI_ENOPROTOOPT);
    assert_eq!(get(FI_OPT_ENDPOINT, 12_345, 8).0, -FI_ENOPROTOOPT);
    assert_eq!(get(9, FI_OPT_MIN_MULTI_RECV, 8).0, -FI_ENOPROTOOPT);
    node.close();
}

#[test]
fn errors_of_reads_are_those_of_the_pages() {
    let node = Node::new();
    let (cq, mut error) = (node.cq, NO_ERROR);
    assert_eq!(call!(cq.ops.read(null_mut(), 1)), -(FI_EINVAL as isize));
    assert_eq!(call!(cq.ops.readerr(&raw mut error, 0)), -again());
    let _: (ErrEntry, Option<EqErrEntry>) = (error, None);
    node.close();
}
