//! Registered memory. A program's own buffers need not be registered. What peers may access is: a stretch, or the whole
//! address space.

use core::ffi::{c_int, c_void};

use corewire::{ExposedMemory, WindowRights};
use corewire_ofi::IoVec;
use corewire_ofi::fid::{FI_CLASS_DOMAIN, FI_CLASS_MR, FI_ENABLE, Fid, Ops};
use corewire_ofi::flags::{
    FI_COLLECTIVE, FI_MR_BASIC, FI_READ, FI_RECV, FI_REMOTE_READ, FI_REMOTE_WRITE, FI_RMA_EVENT,
    FI_SEND, FI_WRITE,
};
use corewire_ofi::mr::{FidMr, MrAttr, OpsMr};

use crate::domain::{Domain, DomainLink};
use crate::errors::{BAD_FLAGS, INVALID, NO_SYSTEM_CALL, NOT_SUPPORTED, Outcome, status};
use crate::fork;
use crate::memory::{Region, get, put};
use crate::object::{self, Closed, Object, class_of, enter, fid_of};
use crate::refusals::ops;

/// What memory may be registered for.
const ACCESS: u64 =
    FI_SEND | FI_RECV | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE | FI_COLLECTIVE;

/// Registered memory.
pub(crate) struct Mr {
    domain: DomainLink,
    key: u64,
}

impl Object for Mr {
    type Head = FidMr;
    const CLASS: usize = FI_CLASS_MR;

    fn ops() -> &'static Ops {
        static OPS: Ops = ops(close, bind, control);
        &OPS
    }

    fn closed() -> &'static Closed<Self> {
        static CLOSED: Closed<Mr> = Closed::new();
        &CLOSED
    }
}

pub(crate) static OPS: OpsMr = OpsMr { size: size_of::<OpsMr>(), reg, regv, regattr };

/// The memory of a registration, as the three calls name it.
struct Request {
    memory: IoVec,
    access: u64,
    key: u64,
    flags: u64,
    context: *mut c_void,
}

fn register(fid: *mut Fid, mr: *mut *mut FidMr, request: &Request) -> Outcome {
    fork::check()?;
    // SAFETY: the program passes one of its objects.
    if unsafe { class_of(fid) } != FI_CLASS_DOMAIN || mr.is_null() {
        return Err(INVALID);
    }
    // SAFETY: as above.
    let domain = unsafe { enter::<Domain>(fid.cast()) }?;
    if request.access & !ACCESS != 0 {
        return Err(INVALID);
    }
    if request.flags & !FI_RMA_EVENT != 0 {
        return Err(BAD_FLAGS);
    }
    let is_chosen_here = domain.mr_mode & FI_MR_BASIC != 0;
    let IoVec { base, len } = request.memory;
    // SAFETY: the program keeps the memory there until it closes the registration, and peers' copies are over.
    let memory = unsafe { ExposedMemory::pinned(base.cast(), len) };
    let origin = if is_chosen_here { memory.address() as u64 } else { 0 };
    let rights = if request.access & FI_REMOTE_WRITE != 0 {
        WindowRights::ATOMIC
    } else if request.access & FI_REMOTE_READ != 0 {
        WindowRights::READ
    } else {
        WindowRights::NONE
    };
    let key = (!is_chosen_here).then_some(request.key);
    let key = domain.register(key, Region { memory, rights, origin })?;
    domain.add();
    let fid = fid_of::<Mr>(request.context);
    let head = FidMr { fid, mem_desc: std::ptr::null_mut(), key };
    let body = Mr { domain: domain.link(), key };
    let gate = domain.gate();
    // SAFETY: the program passes room for a pointer.
    unsafe { put(mr, object::open(head, gate, body)) }
}

unsafe extern "C" fn reg(
    fid: *mut Fid,
    base: *const c_void,
    len: usize,
    access: u64,
    offset: u64,
    key: u64,
    flags: u64,
    mr: *mut *mut FidMr,
    context: *mut c_void,
) -> c_int {
    if offset != 0 {
        return status(Err(INVALID));
    }
    let memory = IoVec { base: base.cast_mut(), len };
    status(register(fid, mr, &Request { memory, access, key, flags, context }))
}

unsafe extern "C" fn regv(
    fid: *mut Fid,
    iov: *const IoVec,
    count: usize,
    access: u64,
    offset: u64,
    key: u64,
    flags: u64,
    mr: *mut *mut FidMr,
    context: *mut c_void,
) -> c_int {
    if offset != 0 || iov.is_null() || count != 1 {
        return status(Err(INVALID));
    }
    let register = || {
        // SAFETY: the program passes one stretch.
        let memory = unsafe { get(iov) }?;
        register(fid, mr, &Request { memory, access, key, flags, context })
    };
    status(register())
}

unsafe extern "C" fn regattr(
    fid: *mut Fid,
    attr: *const MrAttr,
    flags: u64,
    mr: *mut *mut FidMr,
) -> c_int {
    let register = || {
        // SAFETY: the program passes attributes.
        let attr = unsafe { get(attr) }?;
        if attr.offset != 0 || attr.iov_count > 1 {
            return Err(INVALID);
        }
        if attr.iface != 0 {
            return Err(NOT_SUPPORTED);
        }
        let memory = if attr.iov_count == 0 {
            IoVec { base: std::ptr::null_mut(), len: 0 }
        } else {
            // SAFETY: the program passes as many stretches as it says.
            unsafe { get(attr.mr_iov) }?
        };
        let MrAttr { access, requested_key: key, context, .. } = attr;
        register(fid, mr, &Request { memory, access, key, flags, context })
    };
    status(register())
}

unsafe extern "C" fn close(fid: *mut Fid) -> c_int {
    let close = || {
        // SAFETY: the program passes one of its objects.
        let mr = unsafe { enter::<Mr>(fid.cast()) }?;
        // SAFETY: the gate of the domain is that of its regions.
        let domain = unsafe { mr.domain.share() };
        domain.deregister(mr.key);
        domain.remove();
        object::close(mr);
        Ok(())
    };
    status(close())
}

/// `fi_mr_bind`: an endpoint. All of the domain expose the memory anyway.
unsafe extern "C" fn bind(fid: *mut Fid, other: *mut Fid, _: u64) -> c_int {
    let bind = || {
        // SAFETY: the program passes its objects.
        unsafe { enter::<Mr>(fid.cast()) }?;
        if other.is_null() { Err(INVALID) } else { Ok(()) }
    };
    status(bind())
}

unsafe extern "C" fn control(fid: *mut Fid, command: c_int, _: *mut c_void) -> c_int {
    let control = || {
        // SAFETY: the program passes one of its objects.
        unsafe { enter::<Mr>(fid.cast()) }?;
        if command == FI_ENABLE { Ok(()) } else { Err(NO_SYSTEM_CALL) }
    };
    status(control())
}
