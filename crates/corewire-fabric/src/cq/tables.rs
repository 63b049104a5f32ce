//! The calls of completion queues.

use core::ffi::{CStr, c_char, c_int, c_void};

use corewire_ofi::FiAddr;
use corewire_ofi::cq::{ErrEntry, FI_CQ_FORMAT_TAGGED, FidCq, OpsCq};
use corewire_ofi::fid::Fid;

use super::Cq;
use super::entry::{Format, Shorter, Tagged};
use crate::errors::{AGAIN, BUSY, INVALID, NO_SYSTEM_CALL, Outcome, status};
use crate::gate::Gate;
use crate::object::{self, enter};
use crate::strings;
use crate::wait::Deadline;

/// Looks for entries before a wait sleeps.
const LOOKS: u32 = 200;

/// The calls of queues of this format, with this gate.
pub(super) fn table(format: c_int, gate: &Gate) -> &'static OpsCq {
    static TAGGED: [OpsCq; 2] = [table_of::<Tagged, false>(), table_of::<Tagged, true>()];
    static SHORTER: [OpsCq; 2] = [table_of::<Shorter, false>(), table_of::<Shorter, true>()];
    let tables = if format == FI_CQ_FORMAT_TAGGED { &TAGGED } else { &SHORTER };
    &tables[usize::from(gate.is_locked())]
}

const fn table_of<F: Format, const LOCKED: bool>() -> OpsCq {
    OpsCq {
        size: size_of::<OpsCq>(),
        read: read::<F, LOCKED>,
        readfrom: readfrom::<F, LOCKED>,
        readerr,
        sread: sread::<F>,
        sreadfrom: sreadfrom::<F>,
        signal,
        strerror,
    }
}

#[inline(always)]
fn count_or_error(outcome: Outcome<isize>) -> isize {
    match outcome {
        Ok(count) => count,
        Err(error) => error.negative(),
    }
}

unsafe extern "C" fn read<F: Format, const LOCKED: bool>(
    cq: *mut FidCq,
    at: *mut c_void,
    count: usize,
) -> isize {
    // SAFETY: the program passes one of its objects, which has the table that suits its gate.
    unsafe {
        object::with::<Cq, LOCKED>(cq, |cq, me| cq.read::<F>(me, at, count, std::ptr::null_mut()))
    }
}

unsafe extern "C" fn readfrom<F: Format, const LOCKED: bool>(
    cq: *mut FidCq,
    at: *mut c_void,
    count: usize,
    from: *mut FiAddr,
) -> isize {
    // SAFETY: the program passes one of its objects, which has the table that suits its gate.
    unsafe { object::with::<Cq, LOCKED>(cq, |cq, me| cq.read::<F>(me, at, count, from)) }
}

unsafe extern "C" fn readerr(cq: *mut FidCq, entry: *mut ErrEntry, _: u64) -> isize {
    let read = || {
        // SAFETY: the program passes one of its objects.
        let mut cq = unsafe { enter::<Cq>(cq) }?;
        // SAFETY: the program passes an entry of its version.
        unsafe { cq.read_error(entry) }
    };
    count_or_error(read())
}

unsafe extern "C" fn sread<F: Format>(
    cq: *mut FidCq,
    at: *mut c_void,
    count: usize,
    condition: *const c_void,
    timeout: c_int,
) -> isize {
    // SAFETY: as for this function.
    unsafe { sreadfrom::<F>(cq, at, count, std::ptr::null_mut(), condition, timeout) }
}

/// Waits until there is an entry, the queue is signaled, or the time is over. The condition is a hint, which libfabric
/// lets providers ignore.
unsafe extern "C" fn sreadfrom<F: Format>(
    cq: *mut FidCq,
    at: *mut c_void,
    count: usize,
    from: *mut FiAddr,
    _: *const c_void,
    timeout: c_int,
) -> isize {
    let read = || {
        let deadline = Deadline::after_ms(timeout);
        let mut looks = 0;
        loop {
            // SAFETY: the program passes one of its objects.
            let mut entered = unsafe { enter::<Cq>(cq) }?;
            let waiter = entered.waiter.as_ref().ok_or(INVALID)?;
            let (descriptor, yields) = (waiter.descriptor(), waiter.yields());
            let me = entered.link();
            let read = entered.read::<F>(me, at, count, from);
            if read != AGAIN.negative() {
                return Ok(read);
            }
            if std::mem::take(&mut entered.is_signaled) || deadline.is_over() {
                return Err(AGAIN);
            }
            looks += 1;
            if yields {
                drop(entered);
                std::thread::yield_now();
                continue;
            }
            // SAFETY: it has entered the gate.
            if looks >= LOOKS && unsafe { entered.link().may_wait() }? {
                drop(entered);
                deadline.wait(descriptor)?;
            }
        }
    };
    count_or_error(read())
}

/// Ends the wait of a thread in `fi_cq_sread`.
unsafe extern "C" fn signal(cq: *mut FidCq) -> c_int {
    let signal = || {
        // SAFETY: the program passes one of its objects.
        let mut cq = unsafe { enter::<Cq>(cq) }?;
        cq.is_signaled = true;
        cq.waiter.as_ref().ok_or(NO_SYSTEM_CALL)?.ring();
        Ok(())
    };
    status(signal())
}

unsafe extern "C" fn strerror(
    cq: *mut FidCq,
    error: c_int,
    data: *const c_void,
    buffer: *mut c_char,
    room: usize,
) -> *const c_char {
    // SAFETY: the program passes one of its objects.
    let entered = unsafe { enter::<Cq>(cq) };
    let own = entered.as_ref().is_ok_and(|cq| std::ptr::eq(cq.text().as_ptr().cast(), data));
    let text = match &entered {
        Ok(cq) if own => cq.text(),
        // SAFETY: the text of an entry that was copied to the program's own buffer.
        _ if !data.is_null() => unsafe { CStr::from_ptr(data.cast()) },
        _ => strings::of(error),
    };
    // SAFETY: the program passes room for so many bytes, or null.
    unsafe { strings::tell(text, buffer, room) }
}

pub(super) unsafe extern "C" fn close(fid: *mut Fid) -> c_int {
    let close = || {
        // SAFETY: the program passes one of its objects.
        let cq = unsafe { enter::<Cq>(fid.cast()) }?;
        if !cq.endpoints.is_empty() || cq.sets > 0 {
            return Err(BUSY);
        }
        // SAFETY: the gate of the domain is that of its queues.
        unsafe { cq.domain.share() }.remove();
        object::close(cq);
        Ok(())
    };
    status(close())
}

pub(super) unsafe extern "C" fn control(
    fid: *mut Fid,
    command: c_int,
    argument: *mut c_void,
) -> c_int {
    let control = || {
        // SAFETY: the program passes one of its objects.
        let cq = unsafe { enter::<Cq>(fid.cast()) }?;
        cq.waiter.as_ref().ok_or(NO_SYSTEM_CALL)?.control(command, argument)
    };
    status(control())
}
