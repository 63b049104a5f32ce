//! The calls of copies to and from a peer's memory.

use core::ffi::c_void;

use corewire_ofi::endpoint::FidEp;
use corewire_ofi::flags::FI_REMOTE_CQ_DATA;
use corewire_ofi::rma::{MsgRma, OpsRma};
use corewire_ofi::{FiAddr, IoVec};

use super::access::{Access, Parts};
use super::ends::Kind;
use super::named::with;
use crate::gate::Gate;
use crate::memory::{Buffer, Buffers, get};

/// The calls of endpoints with this gate.
pub(super) fn table(gate: &Gate) -> &'static OpsRma<FidEp> {
    static OPEN: OpsRma<FidEp> = table_of::<false>();
    static LOCKED: OpsRma<FidEp> = table_of::<true>();
    if gate.is_locked() { &LOCKED } else { &OPEN }
}

const fn table_of<const LOCKED: bool>() -> OpsRma<FidEp> {
    OpsRma {
        size: size_of::<OpsRma<FidEp>>(),
        read: read::<LOCKED>,
        readv: readv::<LOCKED>,
        readmsg: readmsg::<LOCKED>,
        write: write::<LOCKED>,
        writev: writev::<LOCKED>,
        writemsg: writemsg::<LOCKED>,
        inject: inject::<LOCKED>,
        writedata: writedata::<LOCKED>,
        injectdata: injectdata::<LOCKED>,
    }
}

unsafe extern "C" fn read<const LOCKED: bool>(
    endpoint: *mut FidEp,
    buffer: *mut c_void,
    length: usize,
    _: *mut c_void,
    from: FiAddr,
    offset: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    with::<LOCKED>(endpoint, |endpoint| {
        let buffers = Buffers::one(Buffer::new(buffer, length)?);
        let access = endpoint.access(from, context, Kind::Read);
        endpoint.get(&buffers, &Parts::one(key, offset, length), &access)
    })
}

unsafe extern "C" fn readv<const LOCKED: bool>(
    endpoint: *mut FidEp,
    iov: *const IoVec,
    _: *mut *mut c_void,
    count: usize,
    from: FiAddr,
    offset: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    with::<LOCKED>(endpoint, |endpoint| {
        // SAFETY: the program passes `count` buffers.
        let buffers = unsafe { Buffers::new(iov, count) }?;
        let access = endpoint.access(from, context, Kind::Read);
        endpoint.get(&buffers, &Parts::one(key, offset, buffers.bytes), &access)
    })
}

unsafe extern "C" fn readmsg<const LOCKED: bool>(
    endpoint: *mut FidEp,
    message: *const MsgRma,
    flags: u64,
) -> isize {
    with::<LOCKED>(endpoint, |endpoint| {
        // SAFETY: the program passes a message.
        let message = unsafe { get(message) }?;
        // SAFETY: the program passes as many buffers as it says.
        let buffers = unsafe { Buffers::new(message.msg_iov, message.iov_count) }?;
        // SAFETY: as above.
        let parts = unsafe { Parts::new(message.rma_iov, message.rma_iov_count) }?;
        let access = endpoint.access_with(message.addr, message.context, Kind::Read, flags)?;
        endpoint.get(&buffers, &parts, &access)
    })
}

unsafe extern "C" fn write<const LOCKED: bool>(
    endpoint: *mut FidEp,
    buffer: *mut c_void,
    length: usize,
    _: *mut c_void,
    to: FiAddr,
    offset: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    with::<LOCKED>(endpoint, |endpoint| {
        let buffers = Buffers::one(Buffer::new(buffer, length)?);
        let access = endpoint.access(to, context, Kind::Write);
        endpoint.put(&buffers, &Parts::one(key, offset, length), &access)
    })
}

unsafe extern "C" fn writev<const LOCKED: bool>(
    endpoint: *mut FidEp,
    iov: *const IoVec,
    _: *mut *mut c_void,
    count: usize,
    to: FiAddr,
    offset: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    with::<LOCKED>(endpoint, |endpoint| {
        // SAFETY: the program passes `count` buffers.
        let buffers = unsafe { Buffers::new(iov, count) }?;
        let access = endpoint.access(to, context, Kind::Write);
        endpoint.put(&buffers, &Parts::one(key, offset, buffers.bytes), &access)
    })
}

unsafe extern "C" fn writemsg<const LOCKED: bool>(
    endpoint: *mut FidEp,
    message: *const MsgRma,
    flags: u64,
) -> isize {
    with::<LOCKED>(endpoint, |endpoint| {
        // SAFETY: the program passes a message.
        let message = unsafe { get(message) }?;
        // SAFETY: the program passes as many buffers as it says.
        let buffers = unsafe { Buffers::new(message.msg_iov, message.iov_count) }?;
        // SAFETY: as above.
        let parts = unsafe { Parts::new(message.rma_iov, message.rma_iov_count) }?;
        let MsgRma { addr, context, data, .. } = message;
        let data = (flags & FI_REMOTE_CQ_DATA != 0).then_some(data);
        let flags = flags & !FI_REMOTE_CQ_DATA;
        let access = endpoint.access_with(addr, context, Kind::Write, flags)?;
        endpoint.put_with_data(&buffers, &parts, &access, data)
    })
}

unsafe extern "C" fn inject<const LOCKED: bool>(
    endpoint: *mut FidEp,
    buffer: *const c_void,
    length: usize,
    to: FiAddr,
    offset: u64,
    key: u64,
) -> isize {
    with::<LOCKED>(endpoint, |endpoint| {
        let buffers = Buffers::one(Buffer::new(buffer, length)?);
        endpoint.put(&buffers, &Parts::one(key, offset, length), &Access::silent(to, Kind::Write))
    })
}

unsafe extern "C" fn writedata<const LOCKED: bool>(
    endpoint: *mut FidEp,
    buffer: *const c_void,
    length: usize,
    _: *mut c_void,
    data: u64,
    to: FiAddr,
    offset: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    with::<LOCKED>(endpoint, |endpoint| {
        let buffers = Buffers::one(Buffer::new(buffer, length)?);
        let access = endpoint.access(to, context, Kind::Write);
        let parts = Parts::one(key, offset, length);
        endpoint.put_with_data(&buffers, &parts, &access, Some(data))
    })
}

unsafe extern "C" fn injectdata<const LOCKED: bool>(
    endpoint: *mut FidEp,
    buffer: *const c_void,
    length: usize,
    data: u64,
    to: FiAddr,
    offset: u64,
    key: u64,
) -> isize {
    with::<LOCKED>(endpoint, |endpoint| {
        let buffers = Buffers::one(Buffer::new(buffer, length)?);
        let parts = Parts::one(key, offset, length);
        endpoint.put_with_data(&buffers, &parts, &Access::silent(to, Kind::Write), Some(data))
    })
}
