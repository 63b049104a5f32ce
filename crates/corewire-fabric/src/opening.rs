//! What is opened in fabrics and domains: their tables, above all kinds of objects.

use core::ffi::{c_int, c_void};

use corewire_ofi::atomic::AtomicAttr;
use corewire_ofi::av::{AvAttr, FidAv};
use corewire_ofi::cntr::{CntrAttr, FidCntr};
use corewire_ofi::cq::{CqAttr, FidCq};
use corewire_ofi::domain::{FidDomain, OpsDomain};
use corewire_ofi::endpoint::FidEp;
use corewire_ofi::eq::{EqAttr, FidEq};
use corewire_ofi::fabric::{FidFabric, OpsFabric};
use corewire_ofi::fid::{FI_CLASS_CNTR, FI_CLASS_CQ, FI_CLASS_EQ, Fid};
use corewire_ofi::info::{FabricAttr, Info, RxAttr, TxAttr};
use corewire_ofi::poll::{FidPoll, FidWait, PollAttr, WaitAttr};

use crate::cntr::Cntr;
use crate::cq::Cq;
use crate::domain::Domain;
use crate::eq::Eq;
use crate::errors::{
    AGAIN, BAD_FLAGS, Errno, INVALID, NO_SYSTEM_CALL, NOT_SUPPORTED, Outcome, status,
};
use crate::fabric::Fabric;
use crate::memory::get;
use crate::object::{class_of, enter, enter_own};
use crate::{av, cntr, cq, domain, endpoint, eq, fabric, fork, mr, poll};

static FABRIC: OpsFabric = OpsFabric {
    size: size_of::<OpsFabric>(),
    domain: open_domain,
    passive_ep,
    eq_open,
    wait_open,
    trywait,
    domain2: open_domain2,
};

static DOMAIN: OpsDomain = OpsDomain {
    size: size_of::<OpsDomain>(),
    av_open,
    cq_open,
    endpoint: open_endpoint,
    scalable_ep,
    cntr_open,
    poll_open,
    stx_ctx,
    srx_ctx,
    query_atomic,
    query_collective,
    endpoint2: open_endpoint2,
};

/// `fi_fabric`.
pub(crate) unsafe extern "C" fn open_fabric(
    attr: *mut FabricAttr,
    fabric: *mut *mut FidFabric,
    context: *mut c_void,
) -> c_int {
    // SAFETY: as for this function.
    unsafe { fabric::open(attr, fabric, context, &FABRIC) }
}

unsafe extern "C" fn open_domain(
    fabric: *mut FidFabric,
    info: *mut Info,
    domain: *mut *mut FidDomain,
    context: *mut c_void,
) -> c_int {
    // SAFETY: as for this function.
    unsafe { open_domain2(fabric, info, domain, 0, context) }
}

unsafe extern "C" fn open_domain2(
    fabric: *mut FidFabric,
    info: *mut Info,
    domain: *mut *mut FidDomain,
    flags: u64,
    context: *mut c_void,
) -> c_int {
    let open = || {
        fork::check()?;
        if flags != 0 {
            return Err(BAD_FLAGS);
        }
        // SAFETY: the program passes one of its objects.
        let fabric = unsafe { enter::<Fabric>(fabric) }?;
        // SAFETY: the program passes what `fi_getinfo` returned, and room for a pointer.
        unsafe { domain::open(fabric.link(), info, domain, context, (&DOMAIN, &mr::OPS)) }
    };
    status(open())
}

unsafe extern "C" fn passive_ep(
    fabric: *mut FidFabric,
    _: *mut Info,
    _: *mut *mut c_void,
    _: *mut c_void,
) -> c_int {
    // SAFETY: the program passes one of its objects.
    let fabric = unsafe { enter::<Fabric>(fabric) };
    // Only connected endpoints have passive ones.
    status(fabric.and(Err(NO_SYSTEM_CALL)))
}

unsafe extern "C" fn eq_open(
    fabric: *mut FidFabric,
    attr: *mut EqAttr,
    eq: *mut *mut FidEq,
    context: *mut c_void,
) -> c_int {
    let open = || {
        // SAFETY: the program passes one of its objects.
        let fabric = unsafe { enter::<Fabric>(fabric) }?;
        // SAFETY: the program passes attributes and room for a pointer.
        unsafe { eq::open(fabric.link(), attr, eq, context) }
    };
    status(open())
}

unsafe extern "C" fn wait_open(
    fabric: *mut FidFabric,
    _: *mut WaitAttr,
    _: *mut *mut FidWait,
) -> c_int {
    // SAFETY: the program passes one of its objects.
    let fabric = unsafe { enter::<Fabric>(fabric) };
    status(fabric.and(Err(NO_SYSTEM_CALL)))
}

/// `fi_trywait`: whether the program may wait for the descriptors of these objects.
unsafe extern "C" fn trywait(fabric: *mut FidFabric, fids: *mut *mut Fid, count: c_int) -> c_int {
    let prepare = || {
        // SAFETY: the program passes one of its objects.
        unsafe { enter::<Fabric>(fabric) }?;
        let count = usize::try_from(count).map_err(|_| INVALID)?;
        if fids.is_null() && count > 0 {
            return Err(INVALID);
        }
        for index in 0..count {
            // SAFETY: the program passes `count` pointers.
            let at = unsafe { fids.add(index) };
            // SAFETY: as above.
            let fid = unsafe { get(at) }?;
            if !may_wait(fid)? {
                return Err(AGAIN);
            }
        }
        Ok(())
    };
    status(prepare())
}

fn may_wait(fid: *mut Fid) -> Outcome<bool> {
    // SAFETY: the program passes objects, which may be another provider's.
    match unsafe { class_of(fid) } {
        FI_CLASS_CQ => {
            // SAFETY: as above.
            let cq = unsafe { enter_own::<Cq>(fid) }?;
            // SAFETY: it has entered the gate.
            unsafe { cq.link().may_wait() }
        }
        FI_CLASS_CNTR => {
            // SAFETY: as above.
            let cntr = unsafe { enter_own::<Cntr>(fid) }?;
            // SAFETY: it has entered the gate.
            unsafe { cntr.link().may_wait() }
        }
        // SAFETY: as above.
        FI_CLASS_EQ => unsafe { enter_own::<Eq>(fid) }?.may_wait(),
        _ => Err(INVALID),
    }
}

/// Opens an object in a domain.
macro_rules! opens {
    ($(#[$doc:meta])* $name:ident, $module:ident, $attr:ty, $head:ty) => {
        $(#[$doc])*
        unsafe extern "C" fn $name(
            domain: *mut FidDomain,
            attr: *mut $attr,
            object: *mut *mut $head,
            context: *mut c_void,
        ) -> c_int {
            let open = || {
                // SAFETY: the program passes one of its objects.
                let domain = unsafe { enter::<Domain>(domain) }?;
                if object.is_null() {
                    return Err(INVALID);
                }
                // SAFETY: the program passes attributes and room for a pointer.
                unsafe { $module::open(domain.link(), attr, object, context) }
            };
            status(open())
        }
    };
}

opens!(
    /// `fi_av_open`.
    av_open, av, AvAttr, FidAv
);
opens!(
    /// `fi_cq_open`.
    cq_open, cq, CqAttr, FidCq
);
opens!(
    /// `fi_cntr_open`.
    cntr_open, cntr, CntrAttr, FidCntr
);
opens!(
    /// `fi_endpoint`.
    open_endpoint, endpoint, Info, FidEp
);

unsafe extern "C" fn open_endpoint2(
    domain: *mut FidDomain,
    info: *mut Info,
    endpoint: *mut *mut FidEp,
    flags: u64,
    context: *mut c_void,
) -> c_int {
    if flags != 0 {
        return status(Err(BAD_FLAGS));
    }
    // SAFETY: as for this function.
    unsafe { open_endpoint(domain, info, endpoint, context) }
}

unsafe extern "C" fn poll_open(
    domain: *mut FidDomain,
    attr: *mut PollAttr,
    set: *mut *mut FidPoll,
) -> c_int {
    let open = || {
        // SAFETY: the program passes one of its objects.
        let domain = unsafe { enter::<Domain>(domain) }?;
        // SAFETY: the program passes attributes and room for a pointer.
        unsafe { poll::open(domain.link(), attr, set) }
    };
    status(open())
}

/// Refuses what a domain does not have.
fn refuse(domain: *mut FidDomain, error: Errno) -> c_int {
    // SAFETY: the program passes one of its objects.
    let domain = unsafe { enter::<Domain>(domain) };
    status(domain.and(Err(error)))
}

unsafe extern "C" fn scalable_ep(
    domain: *mut FidDomain,
    _: *mut Info,
    _: *mut *mut FidEp,
    _: *mut c_void,
) -> c_int {
    refuse(domain, NO_SYSTEM_CALL)
}

unsafe extern "C" fn stx_ctx(
    domain: *mut FidDomain,
    _: *mut TxAttr,
    _: *mut *mut c_void,
    _: *mut c_void,
) -> c_int {
    refuse(domain, NO_SYSTEM_CALL)
}

unsafe extern "C" fn srx_ctx(
    domain: *mut FidDomain,
    _: *mut RxAttr,
    _: *mut *mut FidEp,
    _: *mut c_void,
) -> c_int {
    refuse(domain, NO_SYSTEM_CALL)
}

unsafe extern "C" fn query_atomic(
    domain: *mut FidDomain,
    datatype: c_int,
    op: c_int,
    attr: *mut AtomicAttr,
    flags: u64,
) -> c_int {
    let query = || {
        // SAFETY: the program passes one of its objects.
        unsafe { enter::<Domain>(domain) }?;
        // SAFETY: the program passes room for attributes.
        unsafe { endpoint::query_atomic(datatype, op, attr, flags) }
    };
    status(query())
}

unsafe extern "C" fn query_collective(
    domain: *mut FidDomain,
    _: c_int,
    _: *mut c_void,
    _: u64,
) -> c_int {
    refuse(domain, NOT_SUPPORTED)
}
