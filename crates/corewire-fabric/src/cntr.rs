//! Counters of completions.

use core::ffi::{c_int, c_void};

use corewire_ofi::cntr::{CntrAttr, FI_CNTR_EVENTS_COMP, FidCntr, OpsCntr};
use corewire_ofi::errors::{FI_EAVAIL, FI_ETIMEDOUT};
use corewire_ofi::fid::{FI_CLASS_CNTR, Fid, Ops};

use crate::domain::DomainLink;
use crate::errors::{BAD_FLAGS, BUSY, Errno, INVALID, NO_SYSTEM_CALL, Outcome, status};
use crate::member::{Bound, Member, each};
use crate::memory::{get, put};
use crate::object::{self, Closed, Link, Object, enter, fid_of};
use crate::refusals::{no_bind, ops};
use crate::wait::{Deadline, Waiter};

/// Looks for completions before a wait sleeps.
const LOOKS: u32 = 200;

/// A counter.
pub(crate) struct Cntr {
    pub(crate) domain: DomainLink,
    succeeded: u64,
    failed: u64,
    endpoints: Vec<Bound<dyn Member>>,
    /// Sets of [`poll`](crate::poll) that it is in.
    pub(crate) sets: usize,
    waiter: Option<Waiter>,
}

impl Object for Cntr {
    type Head = FidCntr;
    const CLASS: usize = FI_CLASS_CNTR;

    fn ops() -> &'static Ops {
        static OPS: Ops = ops(close, no_bind, control);
        &OPS
    }

    fn closed() -> &'static Closed<Self> {
        static CLOSED: Closed<Cntr> = Closed::new();
        &CLOSED
    }
}

static OPS: OpsCntr =
    OpsCntr { size: size_of::<OpsCntr>(), read, readerr, add, set, wait, adderr, seterr };

impl Cntr {
    /// Counts an operation.
    #[inline(always)]
    pub(crate) fn count(&mut self, has_succeeded: bool) {
        let counter = if has_succeeded { &mut self.succeeded } else { &mut self.failed };
        *counter = counter.wrapping_add(1);
        self.wake();
    }

    /// Counts the operations of an endpoint from now on.
    pub(crate) fn bind(&mut self, endpoint: Bound<dyn Member>) {
        if !self.endpoints.iter().any(|bound| bound.is(endpoint)) {
            self.endpoints.push(endpoint);
        }
    }

    pub(crate) fn unbind(&mut self, endpoint: Bound<dyn Member>) {
        self.endpoints.retain(|bound| !bound.is(endpoint));
    }

    /// Waits for an endpoint that has begun, too.
    pub(crate) fn watch(&self, endpoint: &corewire::Endpoint) -> Outcome {
        self.waiter.as_ref().map_or(Ok(()), |waiter| waiter.add(endpoint.readiness()))
    }

    pub(crate) fn unwatch(&self, endpoint: &corewire::Endpoint) {
        if let Some(waiter) = &self.waiter {
            waiter.remove(endpoint.readiness());
        }
    }

    fn wake(&self) {
        if let Some(waiter) = &self.waiter {
            waiter.wake();
        }
    }
}

/// A counter, whose endpoints count while it looks at them: nothing refers to its state meanwhile.
impl Link<Cntr> {
    /// Continues the operations of its endpoints.
    ///
    /// # Safety
    /// As for [`each`].
    unsafe fn progress(self) -> Outcome {
        // SAFETY: the caller guarantees that.
        unsafe {
            each(self, |it: &Cntr| &it.endpoints, |endpoint| endpoint.progress().map(|()| true))
        }
        .map(drop)
    }

    /// All that it has counted, after what has arrived was handled.
    ///
    /// # Safety
    /// As for [`each`].
    pub(crate) unsafe fn sum(self) -> Outcome<u64> {
        // SAFETY: the caller guarantees that.
        unsafe { self.progress() }?;
        // SAFETY: as above.
        let cntr = unsafe { self.share() };
        Ok(cntr.succeeded.wrapping_add(cntr.failed))
    }

    /// For `fi_trywait`.
    ///
    /// # Safety
    /// As for [`each`].
    pub(crate) unsafe fn may_wait(self) -> Outcome<bool> {
        let counts = || {
            // SAFETY: the caller guarantees that.
            let cntr = unsafe { self.share() };
            (cntr.succeeded, cntr.failed)
        };
        // SAFETY: as above.
        unsafe { self.share() }.waiter.as_ref().ok_or(INVALID)?.silence();
        let before = counts();
        // SAFETY: as above.
        Ok(unsafe { each(self, |it: &Cntr| &it.endpoints, |endpoint| endpoint.arm()) }?
            && counts() == before)
    }
}

/// `fi_cntr_open`.
///
/// # Safety
/// The pointers are what the program passed: attributes, and room for a pointer.
pub(crate) unsafe fn open(
    domain: DomainLink,
    attr: *mut CntrAttr,
    cntr: *mut *mut FidCntr,
    context: *mut c_void,
) -> Outcome {
    // SAFETY: the caller guarantees that.
    let attr = unsafe { get(attr.cast_const()) }?;
    if attr.events != FI_CNTR_EVENTS_COMP {
        return Err(INVALID);
    }
    if attr.flags != 0 {
        return Err(BAD_FLAGS);
    }
    let waiter = Waiter::open(attr.wait_obj)?;
    // SAFETY: the caller has entered the domain.
    unsafe { domain.share() }.add();
    let body = Cntr { domain, succeeded: 0, failed: 0, endpoints: Vec::new(), sets: 0, waiter };
    let head = FidCntr { fid: fid_of::<Cntr>(context), ops: &OPS };
    // SAFETY: the caller guarantees that there is room.
    unsafe { put(cntr, object::open(head, domain.gate(), body)) }
}

unsafe extern "C" fn close(fid: *mut Fid) -> c_int {
    let close = || {
        // SAFETY: the program passes one of its objects.
        let cntr = unsafe { enter::<Cntr>(fid.cast()) }?;
        if !cntr.endpoints.is_empty() || cntr.sets > 0 {
            return Err(BUSY);
        }
        // SAFETY: the gate of the domain is that of its counters.
        unsafe { cntr.domain.share() }.remove();
        object::close(cntr);
        Ok(())
    };
    status(close())
}

unsafe extern "C" fn control(fid: *mut Fid, command: c_int, argument: *mut c_void) -> c_int {
    let control = || {
        // SAFETY: the program passes one of its objects.
        let cntr = unsafe { enter::<Cntr>(fid.cast()) }?;
        cntr.waiter.as_ref().ok_or(NO_SYSTEM_CALL)?.control(command, argument)
    };
    status(control())
}

/// A value of a counter after what has arrived was handled; 0 of no counter.
fn value(cntr: *mut FidCntr, of: impl Fn(&Cntr) -> u64) -> u64 {
    // SAFETY: the program passes one of its objects.
    let Ok(cntr) = (unsafe { enter::<Cntr>(cntr) }) else { return 0 };
    // SAFETY: it has entered the gate. An error of an endpoint is told by its other calls.
    let _ = unsafe { cntr.link().progress() };
    of(&cntr)
}

unsafe extern "C" fn read(cntr: *mut FidCntr) -> u64 {
    value(cntr, |cntr| cntr.succeeded)
}

unsafe extern "C" fn readerr(cntr: *mut FidCntr) -> u64 {
    value(cntr, |cntr| cntr.failed)
}

/// Changes a counter, and wakes who waits for it.
fn change(cntr: *mut FidCntr, change: impl Fn(&mut Cntr)) -> c_int {
    let change = || {
        // SAFETY: the program passes one of its objects.
        let mut cntr = unsafe { enter::<Cntr>(cntr) }?;
        change(&mut cntr);
        cntr.wake();
        Ok(())
    };
    status(change())
}

unsafe extern "C" fn add(cntr: *mut FidCntr, value: u64) -> c_int {
    change(cntr, |cntr| cntr.succeeded = cntr.succeeded.wrapping_add(value))
}

unsafe extern "C" fn set(cntr: *mut FidCntr, value: u64) -> c_int {
    change(cntr, |cntr| cntr.succeeded = value)
}

unsafe extern "C" fn adderr(cntr: *mut FidCntr, value: u64) -> c_int {
    change(cntr, |cntr| cntr.failed = cntr.failed.wrapping_add(value))
}

unsafe extern "C" fn seterr(cntr: *mut FidCntr, value: u64) -> c_int {
    change(cntr, |cntr| cntr.failed = value)
}

/// Waits until a counter has reached a number, or counts another failure.
unsafe extern "C" fn wait(cntr: *mut FidCntr, threshold: u64, timeout: c_int) -> c_int {
    let wait = || {
        let deadline = Deadline::after_ms(timeout);
        let mut failed = None;
        let mut looks = 0;
        loop {
            // SAFETY: the program passes one of its objects.
            let cntr = unsafe { enter::<Cntr>(cntr) }?;
            let waiter = cntr.waiter.as_ref().ok_or(INVALID)?;
            let (descriptor, yields) = (waiter.descriptor(), waiter.yields());
            let failed = *failed.get_or_insert(cntr.failed);
            // SAFETY: it has entered the gate.
            unsafe { cntr.link().progress() }?;
            if cntr.succeeded >= threshold {
                return Ok(());
            }
            if cntr.failed != failed {
                return Err(Errno(FI_EAVAIL));
            }
            if deadline.is_over() {
                return Err(Errno(FI_ETIMEDOUT));
            }
            looks += 1;
            if yields {
                drop(cntr);
                std::thread::yield_now();
                continue;
            }
            // SAFETY: as above.
            if looks >= LOOKS && unsafe { cntr.link().may_wait() }? {
                drop(cntr);
                deadline.wait(descriptor)?;
            }
        }
    };
    status(wait())
}
