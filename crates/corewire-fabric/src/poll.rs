//! Sets of queues and counters to poll: `fi_poll`.

use core::ffi::{c_int, c_void};

use corewire_ofi::errors::{FI_EALREADY, FI_EDOMAIN};
use corewire_ofi::fid::{FI_CLASS_CNTR, FI_CLASS_CQ, FI_CLASS_POLL, Fid, Ops};
use corewire_ofi::poll::{FidPoll, OpsPoll, PollAttr};

use crate::cntr::Cntr;
use crate::cq::Cq;
use crate::domain::DomainLink;
use crate::errors::{BAD_FLAGS, Errno, INVALID, Outcome, status};
use crate::memory::{get, put};
use crate::object::{self, Closed, Link, Object, class_of, enter, fid_of, linked};
use crate::refusals::{no_bind, no_control, ops};

/// A set of queues and counters. They cannot be closed before they are taken out of it.
pub(crate) struct PollSet {
    domain: DomainLink,
    members: Vec<Member>,
}

struct Member {
    fid: *mut Fid,
    kind: Kind,
}

#[derive(Clone, Copy)]
enum Kind {
    Queue(Link<Cq>),
    /// With its value when the set was polled last.
    Counter(Link<Cntr>, u64),
}

impl Object for PollSet {
    type Head = FidPoll;
    const CLASS: usize = FI_CLASS_POLL;

    fn ops() -> &'static Ops {
        static OPS: Ops = ops(close, no_bind, no_control);
        &OPS
    }

    fn closed() -> &'static Closed<Self> {
        static CLOSED: Closed<PollSet> = Closed::new();
        &CLOSED
    }
}

static OPS: OpsPoll = OpsPoll { size: size_of::<OpsPoll>(), poll, poll_add, poll_del };

/// `fi_poll_open`.
///
/// # Safety
/// The pointers are what the program passed: attributes, and room for a pointer.
pub(crate) unsafe fn open(
    domain: DomainLink,
    attr: *mut PollAttr,
    set: *mut *mut FidPoll,
) -> Outcome {
    if set.is_null() {
        return Err(INVALID);
    }
    // SAFETY: the caller guarantees that.
    let attr = unsafe { get(attr.cast_const()) }?;
    if attr.flags != 0 {
        return Err(BAD_FLAGS);
    }
    // SAFETY: the caller has entered the domain.
    unsafe { domain.share() }.add();
    let body = PollSet { domain, members: Vec::new() };
    let head = FidPoll { fid: fid_of::<PollSet>(std::ptr::null_mut()), ops: &OPS };
    // SAFETY: the caller guarantees that there is room.
    unsafe { put(set, object::open(head, domain.gate(), body)) }
}

unsafe extern "C" fn close(fid: *mut Fid) -> c_int {
    let close = || {
        // SAFETY: the program passes one of its objects.
        let set = unsafe { enter::<PollSet>(fid.cast()) }?;
        // SAFETY: the gate of the domain is that of its sets.
        unsafe { set.domain.share() }.remove();
        // Before the gate is left.
        set.members.iter().for_each(|member| member.hold(false));
        object::close(set);
        Ok(())
    };
    status(close())
}

/// Reports the contexts of members that have something to read.
unsafe extern "C" fn poll(set: *mut FidPoll, contexts: *mut *mut c_void, count: c_int) -> c_int {
    let poll = || {
        // SAFETY: the program passes one of its objects.
        let mut set = unsafe { enter::<PollSet>(set) }?;
        let count = usize::try_from(count).map_err(|_| INVALID)?;
        if contexts.is_null() && count > 0 {
            return Err(INVALID);
        }
        let mut found = 0;
        for member in &mut set.members {
            if found == count {
                break;
            }
            if member.look()? {
                // SAFETY: a member is open.
                let context = unsafe { get(member.fid.cast_const().cast::<Head>()) }?.context;
                // SAFETY: the program passes room for `count` contexts.
                let at = unsafe { contexts.add(found) };
                // SAFETY: as above.
                unsafe { put(at, context) }?;
                found += 1;
            }
        }
        c_int::try_from(found).map_err(|_| INVALID)
    };
    poll().unwrap_or_else(|error: Errno| -error.0)
}

/// The words of a `Fid` that can be copied.
#[repr(C)]
#[derive(Clone, Copy)]
struct Head {
    fclass: usize,
    context: *mut c_void,
}

impl Member {
    /// Whether there is something to read, after what has arrived was handled.
    fn look(&mut self) -> Outcome<bool> {
        match &mut self.kind {
            // SAFETY: the gate of the domain is entered, and a member of a set is open.
            Kind::Queue(cq) => unsafe { cq.has_something() },
            Kind::Counter(cntr, last) => {
                // SAFETY: as above.
                let value = unsafe { cntr.sum() }?;
                Ok(std::mem::replace(last, value) != value)
            }
        }
    }

    /// Counts it as a use of its object, or no longer.
    fn hold(&self, is_held: bool) {
        let sets = match self.kind {
            // SAFETY: as above.
            Kind::Queue(cq) => unsafe { &mut cq.get().sets },
            // SAFETY: as above.
            Kind::Counter(cntr, _) => unsafe { &mut cntr.get().sets },
        };
        *sets = if is_held { *sets + 1 } else { *sets - 1 };
    }
}

/// An object that can be a member of a set of this domain.
fn member(fid: *mut Fid, domain: DomainLink) -> Outcome<Member> {
    // SAFETY: the program passes one of its objects.
    let (kind, found) = match unsafe { class_of(fid) } {
        FI_CLASS_CQ => {
            // SAFETY: as above.
            let cq: Link<Cq> = unsafe { linked(fid) }?;
            // SAFETY: the domain of an open object does not change.
            (Kind::Queue(cq), unsafe { cq.share() }.domain)
        }
        FI_CLASS_CNTR => {
            // SAFETY: as above.
            let cntr: Link<Cntr> = unsafe { linked(fid) }?;
            // SAFETY: the domain of an open object does not change.
            (Kind::Counter(cntr, 0), unsafe { cntr.share() }.domain)
        }
        _ => return Err(INVALID),
    };
    if found == domain { Ok(Member { fid, kind }) } else { Err(Errno(FI_EDOMAIN)) }
}

unsafe extern "C" fn poll_add(set: *mut FidPoll, fid: *mut Fid, flags: u64) -> c_int {
    let add = || {
        // SAFETY: the program passes one of its objects.
        let mut set = unsafe { enter::<PollSet>(set) }?;
        if flags != 0 {
            return Err(BAD_FLAGS);
        }
        let member = member(fid, set.domain)?;
        if set.members.iter().any(|member| member.fid == fid) {
            return Err(Errno(FI_EALREADY));
        }
        member.hold(true);
        set.members.push(member);
        Ok(())
    };
    status(add())
}

unsafe extern "C" fn poll_del(set: *mut FidPoll, fid: *mut Fid, flags: u64) -> c_int {
    let remove = || {
        // SAFETY: the program passes one of its objects.
        let mut set = unsafe { enter::<PollSet>(set) }?;
        if flags != 0 {
            return Err(BAD_FLAGS);
        }
        let place = set.members.iter().position(|member| member.fid == fid).ok_or(INVALID)?;
        set.members.remove(place).hold(false);
        Ok(())
    };
    status(remove())
}
