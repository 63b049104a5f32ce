//! Event queues: ends of insertions, and what the program writes itself. No other event happens here.

use core::ffi::{c_char, c_int, c_void};
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use corewire_ofi::eq::{EqAttr, EqEntry, EqErrEntry, FidEq, OpsEq};
use corewire_ofi::errors::FI_EAVAIL;
use corewire_ofi::fid::{FI_CLASS_EQ, Fid, Ops};
use corewire_ofi::flags::{FI_AFFINITY, FI_PEEK, FI_WRITE};

use crate::errors::{
    AGAIN, BAD_FLAGS, BUSY, Errno, INVALID, NO_SYSTEM_CALL, Outcome, TOO_LONG, status,
};
use crate::fabric::FabricLink;
use crate::gate::OPEN;
use crate::memory::{copy_out, get, put};
use crate::object::{self, Closed, Object, enter, fid_of};
use crate::refusals::{no_bind, ops};
use crate::strings;
use crate::wait::{Deadline, Waiter};

/// The longest event that a program writes, in bytes.
const EVENT_BYTES_MAX: usize = 4096;

/// An event queue.
pub(crate) struct Eq {
    fabric: FabricLink,
    /// A program may write events.
    is_writable: bool,
    waiter: Option<Waiter>,
    inside: Mutex<Inside>,
}

#[derive(Default)]
struct Inside {
    events: VecDeque<Event>,
    /// Objects that report here.
    uses: usize,
}

/// An event.
pub(crate) struct Event(Kind);

enum Kind {
    Event { number: u32, bytes: Vec<u8> },
    Error(EqErrEntry),
}

// SAFETY: the pointers in an error are the program's, and are only given back to it.
unsafe impl Send for Event {}

impl Event {
    /// An event of an object.
    pub(crate) fn new(number: u32, fid: *mut Fid, context: *mut c_void, data: u64) -> Self {
        let entry = EqEntry { fid, context, data };
        let mut bytes = vec![0; size_of::<EqEntry>()];
        // SAFETY: the vector has the entry's length.
        unsafe { bytes.as_mut_ptr().cast::<EqEntry>().write_unaligned(entry) };
        Self(Kind::Event { number, bytes })
    }

    /// An error of an object.
    pub(crate) fn error(fid: *mut Fid, context: *mut c_void, data: u64, error: Errno) -> Self {
        let (err_data, err_data_size) = (std::ptr::null_mut(), 0);
        let (err, prov_errno) = (error.0, error.0);
        Self(Kind::Error(EqErrEntry {
            fid,
            context,
            data,
            err,
            prov_errno,
            err_data,
            err_data_size,
        }))
    }
}

impl Object for Eq {
    type Head = FidEq;
    const CLASS: usize = FI_CLASS_EQ;

    fn ops() -> &'static Ops {
        static OPS: Ops = ops(close, no_bind, control);
        &OPS
    }

    fn closed() -> &'static Closed<Self> {
        static CLOSED: Closed<Eq> = Closed::new();
        &CLOSED
    }
}

static OPS: OpsEq = OpsEq { size: size_of::<OpsEq>(), read, readerr, write, sread, strerror };

impl Eq {
    fn lock(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn bind(&self) {
        self.lock().uses += 1;
    }

    pub(crate) fn unbind(&self) {
        self.lock().uses -= 1;
    }

    /// Adds an event, and wakes who waits for it.
    pub(crate) fn add(&self, event: Event) {
        self.lock().events.push_back(event);
        if let Some(waiter) = &self.waiter {
            waiter.ring();
        }
    }

    /// For `fi_trywait`.
    pub(crate) fn may_wait(&self) -> Outcome<bool> {
        let waiter = self.waiter.as_ref().ok_or(INVALID)?;
        let inside = self.lock();
        if inside.events.is_empty() {
            waiter.silence();
        }
        Ok(inside.events.is_empty())
    }

    fn read(
        &self,
        number: *mut u32,
        buffer: *mut c_void,
        room: usize,
        flags: u64,
    ) -> Outcome<isize> {
        if flags & !FI_PEEK != 0 {
            return Err(BAD_FLAGS);
        }
        if number.is_null() || (buffer.is_null() && room > 0) {
            return Err(INVALID);
        }
        let mut inside = self.lock();
        match inside.events.front() {
            None => Err(AGAIN),
            Some(Event(Kind::Error(_))) => Err(Errno(FI_EAVAIL)),
            Some(Event(Kind::Event { number: found, bytes })) => {
                if bytes.len() > room {
                    return Err(Errno(corewire_ofi::errors::FI_ETOOSMALL));
                }
                // SAFETY: the program passes room for so many bytes.
                unsafe { copy_out(bytes, buffer, room) };
                // SAFETY: the program passes room for a number.
                unsafe { put(number, *found) }?;
                let length = bytes.len() as isize;
                if flags & FI_PEEK == 0 {
                    inside.events.pop_front();
                }
                Ok(length)
            }
        }
    }

    fn read_error(&self, entry: *mut EqErrEntry, flags: u64) -> Outcome<isize> {
        if flags & !FI_PEEK != 0 {
            return Err(BAD_FLAGS);
        }
        let mut inside = self.lock();
        let Some(Event(Kind::Error(error))) = inside.events.front() else {
            return if entry.is_null() { Err(INVALID) } else { Err(AGAIN) };
        };
        // SAFETY: the program passes room for an entry.
        unsafe { put(entry, *error) }?;
        if flags & FI_PEEK == 0 {
            inside.events.pop_front();
        }
        Ok(size_of::<EqErrEntry>() as isize)
    }
}

/// `fi_eq_open`.
///
/// # Safety
/// The pointers are what the program passed: attributes or null, and room for a pointer.
pub(crate) unsafe fn open(
    fabric: FabricLink,
    attr: *mut EqAttr,
    eq: *mut *mut FidEq,
    context: *mut c_void,
) -> Outcome {
    if eq.is_null() {
        return Err(INVALID);
    }
    // SAFETY: the caller guarantees that.
    let attr = unsafe { get(attr.cast_const()) }?;
    if attr.flags & !(FI_WRITE | FI_AFFINITY) != 0 {
        return Err(BAD_FLAGS);
    }
    let waiter = Waiter::open(attr.wait_obj)?;
    let is_writable = attr.flags & FI_WRITE != 0;
    let body = Eq { fabric, is_writable, waiter, inside: Mutex::default() };
    // SAFETY: the fabric's call is under way; fabrics are only shared.
    unsafe { fabric.share() }.add();
    let head = FidEq { fid: fid_of::<Eq>(context), ops: &OPS };
    // SAFETY: the caller guarantees that there is room.
    unsafe { put(eq, object::open(head, &OPEN, body)) }
}

unsafe extern "C" fn close(fid: *mut Fid) -> c_int {
    let close = || {
        // SAFETY: the program passes one of its objects.
        let eq = unsafe { enter::<Eq>(fid.cast()) }?;
        if eq.lock().uses > 0 {
            return Err(BUSY);
        }
        // SAFETY: a fabric with an object is open; fabrics are only shared.
        unsafe { object::close(eq).fabric.share() }.remove();
        Ok(())
    };
    status(close())
}

unsafe extern "C" fn control(fid: *mut Fid, command: c_int, argument: *mut c_void) -> c_int {
    let control = || {
        // SAFETY: the program passes one of its objects.
        let eq = unsafe { enter::<Eq>(fid.cast()) }?;
        eq.waiter.as_ref().ok_or(NO_SYSTEM_CALL)?.control(command, argument)
    };
    status(control())
}

fn length_or_error(outcome: Outcome<isize>) -> isize {
    outcome.unwrap_or_else(Errno::negative)
}

unsafe extern "C" fn read(
    eq: *mut FidEq,
    number: *mut u32,
    buffer: *mut c_void,
    room: usize,
    flags: u64,
) -> isize {
    let read = || {
        // SAFETY: the program passes one of its objects.
        unsafe { enter::<Eq>(eq) }?.read(number, buffer, room, flags)
    };
    length_or_error(read())
}

unsafe extern "C" fn readerr(eq: *mut FidEq, entry: *mut EqErrEntry, flags: u64) -> isize {
    let read = || {
        // SAFETY: the program passes one of its objects.
        unsafe { enter::<Eq>(eq) }?.read_error(entry, flags)
    };
    length_or_error(read())
}

unsafe extern "C" fn write(
    eq: *mut FidEq,
    number: u32,
    buffer: *const c_void,
    length: usize,
    flags: u64,
) -> isize {
    let write = || {
        // SAFETY: the program passes one of its objects.
        let eq = unsafe { enter::<Eq>(eq) }?;
        if flags != 0 {
            return Err(BAD_FLAGS);
        }
        if !eq.is_writable || (buffer.is_null() && length > 0) {
            return Err(INVALID);
        }
        if length > EVENT_BYTES_MAX {
            return Err(TOO_LONG);
        }
        let mut bytes = vec![0; length];
        if length > 0 {
            // SAFETY: the program passes so many bytes.
            unsafe { buffer.cast::<u8>().copy_to(bytes.as_mut_ptr(), length) };
        }
        eq.add(Event(Kind::Event { number, bytes }));
        Ok(length as isize)
    };
    length_or_error(write())
}

unsafe extern "C" fn sread(
    eq: *mut FidEq,
    number: *mut u32,
    buffer: *mut c_void,
    room: usize,
    timeout: c_int,
    flags: u64,
) -> isize {
    let read = || {
        let deadline = Deadline::after_ms(timeout);
        loop {
            // SAFETY: the program passes one of its objects.
            let eq = unsafe { enter::<Eq>(eq) }?;
            let descriptor = eq.waiter.as_ref().ok_or(INVALID)?.descriptor();
            match eq.read(number, buffer, room, flags) {
                Err(AGAIN) => {}
                other => return other,
            }
            if deadline.is_over() {
                return Err(AGAIN);
            }
            if eq.may_wait()? {
                drop(eq);
                deadline.wait(descriptor)?;
            }
        }
    };
    length_or_error(read())
}

unsafe extern "C" fn strerror(
    _: *mut FidEq,
    error: c_int,
    _: *const c_void,
    buffer: *mut c_char,
    room: usize,
) -> *const c_char {
    // SAFETY: the program passes room for so many bytes, or null.
    unsafe { strings::tell(strings::of(error), buffer, room) }
}
