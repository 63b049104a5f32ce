//! Domains: `fi_domain`. What is opened in them: `opening.rs`.

use core::ffi::{c_int, c_void};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use corewire_ofi::domain::{FidDomain, OpsDomain};
use corewire_ofi::errors::FI_ENOKEY;
use corewire_ofi::fid::{FI_CLASS_DOMAIN, FI_CLASS_EQ, Fid, Ops};
use corewire_ofi::flags::{FI_ATOMIC, FI_RMA};
use corewire_ofi::info::{
    FI_AV_TABLE, FI_AV_UNSPEC, FI_PROGRESS_AUTO, FI_THREAD_ENDPOINT, FI_THREAD_SAFE,
    FI_THREAD_UNSPEC, Info,
};
use corewire_ofi::mr::OpsMr;

use crate::eq::Eq;
use crate::errors::{BAD_FLAGS, BUSY, Errno, INVALID, NO_DATA, Outcome, status};
use crate::fabric::FabricLink;
use crate::gate::Gate;
use crate::member::{Bound, Member};
use crate::memory::{Region, get, put};
use crate::object::{self, Closed, Link, Object, class_of, enter, fid_of, linked};
use crate::refusals::{no_control, ops};
use crate::{directory, fork};

/// A domain: objects that one lock protects, if the threading level needs one.
pub(crate) struct Domain {
    fabric: FabricLink,
    gate: &'static Gate,
    /// The version of the interface that the program asked for.
    pub(crate) api_version: u32,
    /// What an address vector is that is of no type in particular.
    pub(crate) av_type: c_int,
    pub(crate) mr_mode: c_int,
    inside: Mutex<Inside>,
}

/// What calls that open and close change, which may come from any thread.
#[derive(Default)]
struct Inside {
    /// Registered memory, by key.
    regions: BTreeMap<u64, Region>,
    /// Number of keys that were chosen here.
    keys: u64,
    /// The endpoints that can be reached.
    endpoints: Vec<Bound<dyn Member>>,
    objects: usize,
}

/// In keys that are chosen here.
const CHOSEN_HERE: u64 = 1 << 62;

pub(crate) type DomainLink = Link<Domain>;

impl Object for Domain {
    type Head = FidDomain;
    const CLASS: usize = FI_CLASS_DOMAIN;

    fn ops() -> &'static Ops {
        static OPS: Ops = ops(close, bind, no_control);
        &OPS
    }

    fn closed() -> &'static Closed<Self> {
        static CLOSED: Closed<Domain> = Closed::new();
        &CLOSED
    }
}

impl Domain {
    fn lock(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn add(&self) {
        self.lock().objects += 1;
    }

    pub(crate) fn remove(&self) {
        self.lock().objects -= 1;
    }

    /// Registers memory under this key, or under one that is chosen here, and lets the peers of all endpoints access it.
    /// Returns the key.
    ///
    /// # Errors
    /// `FI_ENOKEY` if the key is in use.
    pub(crate) fn register(&self, key: Option<u64>, region: Region) -> Outcome<u64> {
        let mut inside = self.lock();
        let key = key.unwrap_or_else(|| {
            inside.keys += 1;
            CHOSEN_HERE | inside.keys
        });
        if inside.regions.contains_key(&key) {
            return Err(Errno(FI_ENOKEY));
        }
        let mut exposed = Ok(());
        for endpoint in &inside.endpoints {
            // SAFETY: the gate of the domain is that of its endpoints, and no call of theirs is under way.
            exposed = exposed.and_then(|()| unsafe { endpoint.get() }.expose(key, &region));
        }
        inside.regions.insert(key, region);
        drop(inside);
        exposed.inspect_err(|_| self.deregister(key))?;
        Ok(key)
    }

    /// Ends that.
    pub(crate) fn deregister(&self, key: u64) {
        let mut inside = self.lock();
        inside.regions.remove(&key);
        for endpoint in &inside.endpoints {
            // SAFETY: as in `register`.
            unsafe { endpoint.get() }.conceal(key);
        }
    }

    /// An endpoint can be reached from now on. Returns what its peers may access.
    pub(crate) fn add_endpoint(&self, endpoint: Bound<dyn Member>) -> Vec<(u64, Region)> {
        let mut inside = self.lock();
        inside.endpoints.push(endpoint);
        inside.regions.iter().map(|(key, region)| (*key, region.clone())).collect()
    }

    pub(crate) fn remove_endpoint(&self, endpoint: Bound<dyn Member>) {
        self.lock().endpoints.retain(|other| !other.is(endpoint));
    }
}

/// `fi_domain`: a domain that can do `ops`, and register memory by `mr`.
///
/// # Safety
/// The pointers are what the program passed: attributes that `fi_getinfo` returned, and room for a pointer.
pub(crate) unsafe fn open(
    fabric: FabricLink,
    info: *mut Info,
    domain: *mut *mut FidDomain,
    context: *mut c_void,
    (ops, mr): (&'static OpsDomain, &'static OpsMr),
) -> Outcome {
    if domain.is_null() {
        return Err(INVALID);
    }
    // SAFETY: the caller guarantees that.
    let info = unsafe { get(info.cast_const()) }?;
    // SAFETY: as above.
    let attr = unsafe { get(info.domain_attr.cast_const()) }?;
    if !(FI_THREAD_UNSPEC..=FI_THREAD_ENDPOINT).contains(&attr.threading) {
        return Err(INVALID);
    }
    if attr.data_progress == FI_PROGRESS_AUTO {
        return Err(NO_DATA);
    }
    fork::watch();
    directory::open()?;
    let threading =
        if attr.threading == FI_THREAD_UNSPEC { FI_THREAD_SAFE } else { attr.threading };
    let has_accesses = info.caps == 0 || info.caps & (FI_RMA | FI_ATOMIC) != 0;
    let gate = Gate::of(threading, has_accesses);
    // SAFETY: the fabric's call is under way; fabrics are only shared.
    let shared = unsafe { fabric.share() };
    shared.add();
    let body = Domain {
        fabric,
        gate,
        api_version: shared.api_version,
        av_type: if attr.av_type == FI_AV_UNSPEC { FI_AV_TABLE } else { attr.av_type },
        mr_mode: attr.mr_mode,
        inside: Mutex::default(),
    };
    let head = FidDomain { fid: fid_of::<Domain>(context), ops, mr };
    // SAFETY: the caller guarantees that there is room.
    unsafe { put(domain, object::open(head, gate, body)) }
}

unsafe extern "C" fn close(fid: *mut Fid) -> c_int {
    let close = || {
        // SAFETY: the program passes one of its objects.
        let domain = unsafe { enter::<Domain>(fid.cast()) }?;
        if domain.lock().objects > 0 {
            return Err(BUSY);
        }
        let gate = domain.gate;
        let closed = object::close(domain);
        gate.give_back();
        directory::close();
        // SAFETY: a fabric with an object is open; fabrics are only shared.
        unsafe { closed.fabric.share() }.remove();
        Ok(())
    };
    status(close())
}

/// `fi_domain_bind`: an event queue for registrations, which end in their calls and report nothing.
unsafe extern "C" fn bind(fid: *mut Fid, other: *mut Fid, flags: u64) -> c_int {
    let bind = || {
        // SAFETY: the program passes one of its objects.
        unsafe { enter::<Domain>(fid.cast()) }?;
        // SAFETY: as above.
        if unsafe { class_of(other) } != FI_CLASS_EQ {
            return Err(INVALID);
        }
        // SAFETY: as above.
        unsafe { linked::<Eq>(other) }?;
        if flags & !corewire_ofi::flags::FI_SELECTIVE_COMPLETION != 0 {
            return Err(BAD_FLAGS);
        }
        Ok(())
    };
    status(bind())
}

/// Whether a domain that hints name is one of this provider.
pub(crate) fn is_own(domain: *mut FidDomain) -> bool {
    // SAFETY: hints name an open object, or null.
    unsafe { linked::<Domain>(domain.cast()) }.is_ok()
}
