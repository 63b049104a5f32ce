//! Address vectors: which number stands for which address.
//!
//! Numbers count up from 0 in both types, and none is used twice. An endpoint turns a number into a peer with the first
//! operation that names it.

use core::ffi::{CStr, c_char, c_int, c_void};
use std::collections::HashMap;
use std::ffi::CString;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use corewire_ofi::av::{AvAttr, FidAv, OpsAv};
use corewire_ofi::eq::FI_AV_COMPLETE;
use corewire_ofi::errors::{FI_EINVAL, FI_ENOEQ};
use corewire_ofi::fid::{FI_CLASS_AV, FI_CLASS_EQ, Fid, Ops};
use corewire_ofi::flags::{FI_EVENT, FI_MORE, FI_SYNC_ERR};
use corewire_ofi::info::{FI_AV_MAP, FI_AV_TABLE, FI_AV_UNSPEC};
use corewire_ofi::{FI_ADDR_NOTAVAIL, FiAddr};

use crate::address::{ADDRESS_BYTES, Address};
use crate::domain::DomainLink;
use crate::eq::{Eq, Event};
use crate::errors::{BAD_FLAGS, BUSY, Errno, INVALID, NO_ADDRESS, NO_SYSTEM_CALL, Outcome, status};
use crate::member::{Bound, Member};
use crate::memory::{copy_out, copy_text, get, put, text};
use crate::names;
use crate::object::{self, Closed, Link, Object, class_of, enter, fid_of, linked};
use crate::refusals::{no_control, ops};

/// An address vector.
pub(crate) struct Av {
    pub(crate) domain: DomainLink,
    addresses: Arc<Addresses>,
    /// Where insertions are reported that do not end in their call.
    eq: Option<Link<Eq>>,
    endpoints: Mutex<Vec<Bound<dyn Member>>>,
}

/// The addresses themselves, which endpoints read.
pub(crate) struct Addresses {
    rows: Mutex<Rows>,
}

#[derive(Default)]
struct Rows {
    rows: Vec<Option<Address>>,
    /// The first number of each address.
    first: HashMap<Address, FiAddr>,
}

impl Addresses {
    fn lock(&self) -> MutexGuard<'_, Rows> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, address: Address) -> FiAddr {
        let mut rows = self.lock();
        let number = rows.rows.len() as FiAddr;
        rows.rows.push(Some(address));
        rows.first.entry(address).or_insert(number);
        number
    }

    /// The address with this number.
    pub(crate) fn get(&self, number: FiAddr) -> Outcome<Address> {
        let row = usize::try_from(number).map_err(|_| NO_ADDRESS)?;
        self.lock().rows.get(row).copied().flatten().ok_or(NO_ADDRESS)
    }

    /// The number of an address, which may have been inserted by name only.
    pub(crate) fn number_of(&self, address: Address) -> Option<FiAddr> {
        let rows = self.lock();
        let found = rows.first.get(&address).or_else(|| rows.first.get(&address.of_name()));
        found.copied()
    }

    fn remove(&self, number: FiAddr) -> Outcome {
        let row = usize::try_from(number).map_err(|_| INVALID)?;
        let mut rows = self.lock();
        let address = rows.rows.get_mut(row).and_then(Option::take).ok_or(INVALID)?;
        if rows.first.get(&address) == Some(&number) {
            let next = rows.rows.iter().position(|row| *row == Some(address));
            match next {
                Some(next) => rows.first.insert(address, next as FiAddr),
                None => rows.first.remove(&address),
            };
        }
        Ok(())
    }
}

impl Object for Av {
    type Head = FidAv;
    const CLASS: usize = FI_CLASS_AV;

    fn ops() -> &'static Ops {
        static OPS: Ops = ops(close, bind, no_control);
        &OPS
    }

    fn closed() -> &'static Closed<Self> {
        static CLOSED: Closed<Av> = Closed::new();
        &CLOSED
    }
}

static OPS: OpsAv = OpsAv {
    size: size_of::<OpsAv>(),
    insert,
    insertsvc,
    insertsym,
    remove,
    lookup,
    straddr,
    av_set,
};

impl Av {
    /// The addresses, for an endpoint that is bound to it.
    pub(crate) fn bind(&self, endpoint: Bound<dyn Member>) -> Arc<Addresses> {
        self.endpoints().push(endpoint);
        Arc::clone(&self.addresses)
    }

    pub(crate) fn unbind(&self, endpoint: Bound<dyn Member>) {
        self.endpoints().retain(|bound| !bound.is(endpoint));
    }

    /// The endpoints that are bound to it: from any thread, as all calls that open, bind and close may come.
    fn endpoints(&self) -> MutexGuard<'_, Vec<Bound<dyn Member>>> {
        self.endpoints.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reports the end of an insertion to the event queue.
    fn report(&mut self, fid: *mut Fid, context: *mut c_void, inserted: &[Outcome<FiAddr>]) {
        let Some(eq) = self.eq else { return };
        // SAFETY: event queues have locks of their own.
        let eq = unsafe { eq.share() };
        for (index, _) in inserted.iter().enumerate().filter(|(_, it)| it.is_err()) {
            eq.add(Event::error(fid, context, index as u64, Errno(FI_EINVAL)));
        }
        let count = inserted.iter().filter(|it| it.is_ok()).count();
        eq.add(Event::new(FI_AV_COMPLETE, fid, context, count as u64));
    }
}

/// `fi_av_open`.
///
/// # Safety
/// The pointers are what the program passed: attributes, and room for a pointer.
pub(crate) unsafe fn open(
    domain: DomainLink,
    attr: *mut AvAttr,
    av: *mut *mut FidAv,
    context: *mut c_void,
) -> Outcome {
    // SAFETY: the caller guarantees that.
    let given = unsafe { get(attr.cast_const()) }?;
    if !(FI_AV_UNSPEC..=FI_AV_TABLE).contains(&given.kind) || given.rx_ctx_bits < 0 {
        return Err(INVALID);
    }
    // MPICH 4 would believe the address at which a named one is mapped.
    if !given.name.is_null() || given.flags & corewire_ofi::flags::FI_READ != 0 {
        return Err(NO_SYSTEM_CALL);
    }
    if given.flags & !FI_EVENT != 0 {
        return Err(BAD_FLAGS);
    }
    // SAFETY: the caller has entered the domain.
    let shared = unsafe { domain.share() };
    if given.kind == FI_AV_UNSPEC {
        let kind = if shared.av_type == FI_AV_MAP { FI_AV_MAP } else { FI_AV_TABLE };
        // SAFETY: the attributes are the program's; libfabric lets providers set the type.
        unsafe { (*attr).kind = kind };
    }
    shared.add();
    let addresses = Arc::new(Addresses { rows: Mutex::default() });
    let body = Av { domain, addresses, eq: None, endpoints: Mutex::default() };
    let head = FidAv { fid: fid_of::<Av>(context), ops: &OPS };
    let gate = domain.gate();
    // SAFETY: the caller guarantees that there is room.
    unsafe { put(av, object::open(head, gate, body)) }
}

unsafe extern "C" fn close(fid: *mut Fid) -> c_int {
    let close = || {
        // SAFETY: the program passes one of its objects.
        let av = unsafe { enter::<Av>(fid.cast()) }?;
        if !av.endpoints().is_empty() {
            return Err(BUSY);
        }
        // SAFETY: the gate of the domain is that of its vectors.
        unsafe { av.domain.share() }.remove();
        if let Some(eq) = object::close(av).eq {
            // SAFETY: event queues have locks of their own.
            unsafe { eq.share() }.unbind();
        }
        Ok(())
    };
    status(close())
}

/// `fi_av_bind`: the event queue that reports insertions with `FI_EVENT`.
unsafe extern "C" fn bind(fid: *mut Fid, other: *mut Fid, flags: u64) -> c_int {
    let bind = || {
        // SAFETY: the program passes one of its objects.
        let mut av = unsafe { enter::<Av>(fid.cast()) }?;
        // SAFETY: as above.
        if unsafe { class_of(other) } != FI_CLASS_EQ || av.eq.is_some() {
            return Err(INVALID);
        }
        if flags != 0 {
            return Err(BAD_FLAGS);
        }
        // SAFETY: as above.
        let eq = unsafe { linked::<Eq>(other) }?;
        // SAFETY: event queues have locks of their own.
        unsafe { eq.share() }.bind();
        av.eq = Some(eq);
        Ok(())
    };
    status(bind())
}

/// The result of an insertion: how many addresses were inserted, or 0 with an event queue.
fn insert_all(
    av: *mut FidAv,
    flags: u64,
    context: *mut c_void,
    numbers: *mut FiAddr,
    count: usize,
    mut read: impl FnMut(usize) -> Outcome<Address>,
) -> Outcome<c_int> {
    // SAFETY: the program passes one of its objects.
    let mut entered = unsafe { enter::<Av>(av) }?;
    if flags & !(FI_MORE | FI_SYNC_ERR | FI_EVENT) != 0 {
        return Err(BAD_FLAGS);
    }
    if flags & FI_EVENT != 0 && entered.eq.is_none() {
        return Err(Errno(FI_ENOEQ));
    }
    // With that flag the context is an array, which has the error of each address.
    let errors =
        if flags & FI_SYNC_ERR != 0 { context.cast::<c_int>() } else { std::ptr::null_mut() };
    let mut all = Vec::with_capacity(count.min(4096));
    for index in 0..count {
        let inserted = read(index).map(|address| entered.addresses.add(address));
        if !numbers.is_null() {
            // SAFETY: the program passes room for `count` numbers.
            let at = unsafe { numbers.add(index) };
            // SAFETY: as above.
            unsafe { put(at, inserted.unwrap_or(FI_ADDR_NOTAVAIL)) }?;
        }
        if !errors.is_null() {
            // SAFETY: the program passes room for `count` errors.
            let at = unsafe { errors.add(index) };
            // SAFETY: as above.
            unsafe { put(at, inserted.err().map_or(0, |error| error.0)) }?;
        }
        all.push(inserted);
    }
    if entered.eq.is_some() {
        entered.report(av.cast(), context, &all);
        return Ok(0);
    }
    let inserted = all.iter().filter(|it| it.is_ok()).count();
    c_int::try_from(inserted).map_err(|_| INVALID)
}

fn count_or_error(outcome: Outcome<c_int>) -> c_int {
    outcome.unwrap_or_else(|error| -error.0)
}

unsafe extern "C" fn insert(
    av: *mut FidAv,
    addresses: *const c_void,
    count: usize,
    numbers: *mut FiAddr,
    flags: u64,
    context: *mut c_void,
) -> c_int {
    if addresses.is_null() && count > 0 || c_int::try_from(count).is_err() {
        return status(Err(INVALID));
    }
    let read = |index: usize| {
        // SAFETY: the program passes `count` addresses of the length that `fi_getname` says.
        let at = unsafe { addresses.cast::<[u8; ADDRESS_BYTES]>().add(index) };
        // SAFETY: as above.
        Address::parse(&unsafe { get(at) }?)
    };
    count_or_error(insert_all(av, flags, context, numbers, count, read))
}

/// A name on this machine: the endpoint that was opened with this service.
unsafe extern "C" fn insertsvc(
    av: *mut FidAv,
    node: *const c_char,
    service: *const c_char,
    number: *mut FiAddr,
    flags: u64,
    context: *mut c_void,
) -> c_int {
    let read = |_| {
        // SAFETY: the program passes texts, or null.
        let node = unsafe { text(node) }?;
        // SAFETY: as above.
        let service = unsafe { text(service) }?;
        names::of_service(node, service.ok_or(INVALID)?)
    };
    count_or_error(insert_all(av, flags, context, number, 1, read))
}

unsafe extern "C" fn insertsym(
    av: *mut FidAv,
    _: *const c_char,
    _: usize,
    _: *const c_char,
    _: usize,
    _: *mut FiAddr,
    _: u64,
    _: *mut c_void,
) -> c_int {
    // SAFETY: the program passes one of its objects.
    let av = unsafe { enter::<Av>(av) };
    status(av.and(Err(NO_SYSTEM_CALL)))
}

unsafe extern "C" fn remove(
    av: *mut FidAv,
    numbers: *mut FiAddr,
    count: usize,
    flags: u64,
) -> c_int {
    let remove = || {
        // SAFETY: the program passes one of its objects.
        let av = unsafe { enter::<Av>(av) }?;
        if flags != 0 {
            return Err(BAD_FLAGS);
        }
        if numbers.is_null() && count > 0 {
            return Err(INVALID);
        }
        for index in 0..count {
            // SAFETY: the program passes `count` numbers.
            let at = unsafe { numbers.add(index) };
            // SAFETY: as above.
            let number = unsafe { get(at.cast_const()) }?;
            av.addresses.remove(number)?;
            for endpoint in &*av.endpoints() {
                // SAFETY: the gate of the domain is that of its endpoints.
                unsafe { endpoint.get() }.forget(number);
            }
        }
        Ok(())
    };
    status(remove())
}

unsafe extern "C" fn lookup(
    av: *mut FidAv,
    number: FiAddr,
    address: *mut c_void,
    length: *mut usize,
) -> c_int {
    let look_up = || {
        // SAFETY: the program passes one of its objects.
        let av = unsafe { enter::<Av>(av) }?;
        let found = av.addresses.get(number).map_err(|_| INVALID)?;
        // SAFETY: the program passes room for a length.
        let room = unsafe { get(length.cast_const()) }?;
        if address.is_null() && room > 0 {
            return Err(INVALID);
        }
        // SAFETY: the program passes room for so many bytes.
        unsafe { copy_out(&found.to_bytes(), address, room) };
        // SAFETY: as above.
        unsafe { put(length, ADDRESS_BYTES) }
    };
    status(look_up())
}

unsafe extern "C" fn straddr(
    av: *mut FidAv,
    address: *const c_void,
    buffer: *mut c_char,
    length: *mut usize,
) -> *const c_char {
    let print = || {
        // SAFETY: the program passes one of its objects.
        unsafe { enter::<Av>(av) }?;
        // SAFETY: the program passes an address.
        let address = unsafe { get(address.cast()) }?;
        // SAFETY: the program passes room for a length.
        let room = unsafe { get(length.cast_const()) }?;
        let text = match Address::parse(&address) {
            Ok(address) => CString::new(address.to_string()).map_err(|_| INVALID)?,
            Err(_) => CString::from(c"corewire://?"),
        };
        // SAFETY: the program passes room for so many bytes.
        unsafe { copy_text(&text, buffer, room) };
        // SAFETY: the program passes room for a length.
        unsafe { put(length, text.as_bytes_with_nul().len()) }
    };
    // A text in any case: programs print it without a look.
    const NOTHING: &CStr = c"";
    if print().is_ok() && !buffer.is_null() { buffer } else { NOTHING.as_ptr() }
}

unsafe extern "C" fn av_set(
    av: *mut FidAv,
    _: *mut c_void,
    _: *mut *mut c_void,
    _: *mut c_void,
) -> c_int {
    // SAFETY: the program passes one of its objects.
    let av = unsafe { enter::<Av>(av) };
    status(av.and(Err(NO_SYSTEM_CALL)))
}
