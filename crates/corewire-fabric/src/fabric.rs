//! Fabrics: `fi_fabric`. What is opened in them: `opening.rs`.

use core::ffi::{c_int, c_void};
use std::sync::{Mutex, MutexGuard, PoisonError};

use corewire_ofi::fabric::{FidFabric, OpsFabric};
use corewire_ofi::fid::{FI_CLASS_FABRIC, Fid, Ops};
use corewire_ofi::info::FabricAttr;

use crate::errors::{BUSY, INVALID, NO_DATA, status};
use crate::gate::OPEN;
use crate::memory::{get, put, text};
use crate::object::{self, Closed, Link, Object, enter, fid_of};
use crate::refusals::{no_bind, no_control, ops};
use crate::{NAME, fork};

/// A fabric: all domains of this machine.
pub(crate) struct Fabric {
    /// The version of the interface that the program asked for.
    pub(crate) api_version: u32,
    /// Objects that were opened here.
    objects: Mutex<usize>,
}

impl Object for Fabric {
    type Head = FidFabric;
    const CLASS: usize = FI_CLASS_FABRIC;

    fn ops() -> &'static Ops {
        static OPS: Ops = ops(close, no_bind, no_control);
        &OPS
    }

    fn closed() -> &'static Closed<Self> {
        static CLOSED: Closed<Fabric> = Closed::new();
        &CLOSED
    }
}

impl Fabric {
    fn objects(&self) -> MutexGuard<'_, usize> {
        self.objects.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn add(&self) {
        *self.objects() += 1;
    }

    pub(crate) fn remove(&self) {
        *self.objects() -= 1;
    }
}

/// `fi_fabric`: a fabric that can do `ops`.
///
/// # Safety
/// The pointers are what libfabric passed: attributes that `fi_getinfo` returned, and room for a pointer.
pub(crate) unsafe fn open(
    attr: *mut FabricAttr,
    fabric: *mut *mut FidFabric,
    context: *mut c_void,
    ops: &'static OpsFabric,
) -> c_int {
    let open = || {
        fork::check()?;
        if fabric.is_null() {
            return Err(INVALID);
        }
        // SAFETY: `fi_fabric` passes the attributes that `fi_getinfo` returned.
        let attr = unsafe { get(attr) }?;
        // SAFETY: as above.
        let name = unsafe { text(attr.name) }?;
        if name.is_some_and(|name| name.as_bytes() != NAME.to_bytes()) {
            return Err(NO_DATA);
        }
        let body = Fabric { api_version: attr.api_version, objects: Mutex::new(0) };
        let fid = fid_of::<Fabric>(context);
        let head = FidFabric { fid, ops, api_version: attr.api_version };
        // SAFETY: the caller passes room for a pointer.
        unsafe { put(fabric, object::open(head, &OPEN, body)) }
    };
    status(open())
}

unsafe extern "C" fn close(fid: *mut Fid) -> c_int {
    let close = || {
        // SAFETY: the program passes one of its objects.
        let fabric = unsafe { enter::<Fabric>(fid.cast()) }?;
        if *fabric.objects() > 0 {
            return Err(BUSY);
        }
        object::close(fabric);
        Ok(())
    };
    status(close())
}

/// A fabric that a domain or an event queue belongs to.
pub(crate) type FabricLink = Link<Fabric>;

/// Whether a fabric that hints name is one of this provider.
pub(crate) fn is_own(fabric: *mut FidFabric) -> bool {
    // SAFETY: hints name an open object, or null.
    unsafe { object::linked::<Fabric>(fabric.cast()) }.is_ok()
}
