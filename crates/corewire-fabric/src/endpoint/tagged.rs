//! The calls of messages with a tag.

use core::ffi::c_void;

use corewire::{Envelope, Selector};
use corewire_ofi::endpoint::FidEp;
use corewire_ofi::flags::FI_REMOTE_CQ_DATA;
use corewire_ofi::tagged::{MsgTagged, OpsTagged};
use corewire_ofi::{FiAddr, IoVec};

use super::ends::Kind;
use super::named::with;
use super::peek::is_peek;
use super::send::Request;
use crate::gate::Gate;
use crate::memory::{Buffer, Buffers, get};

/// The calls of endpoints with this gate.
pub(super) fn table(gate: &Gate) -> &'static OpsTagged<FidEp> {
    static OPEN: OpsTagged<FidEp> = table_of::<false>();
    static LOCKED: OpsTagged<FidEp> = table_of::<true>();
    if gate.is_locked() { &LOCKED } else { &OPEN }
}

const fn table_of<const LOCKED: bool>() -> OpsTagged<FidEp> {
    OpsTagged {
        size: size_of::<OpsTagged<FidEp>>(),
        recv: recv::<LOCKED>,
        recvv: recvv::<LOCKED>,
        recvmsg: recvmsg::<LOCKED>,
        send: send::<LOCKED>,
        sendv: sendv::<LOCKED>,
        sendmsg: sendmsg::<LOCKED>,
        inject: inject::<LOCKED>,
        senddata: senddata::<LOCKED>,
        injectdata: injectdata::<LOCKED>,
    }
}

/// Messages with this tag, but for the bits to ignore.
#[inline(always)]
const fn wanted(tag: u64, ignore: u64) -> Selector {
    Selector::masked(tag, !ignore)
}

unsafe extern "C" fn recv<const LOCKED: bool>(
    endpoint: *mut FidEp,
    buffer: *mut c_void,
    length: usize,
    _: *mut c_void,
    from: FiAddr,
    tag: u64,
    ignore: u64,
    context: *mut c_void,
) -> isize {
    with::<LOCKED>(endpoint, |endpoint| {
        let selector = endpoint.selector(wanted(tag, ignore), from)?;
        endpoint.receive_tagged(selector, Buffer::new(buffer, length)?, context)
    })
}

unsafe extern "C" fn recvv<const LOCKED: bool>(
    endpoint: *mut FidEp,
    iov: *const IoVec,
    _: *mut *mut c_void,
    count: usize,
    from: FiAddr,
    tag: u64,
    ignore: u64,
    context: *mut c_void,
) -> isize {
    with::<LOCKED>(endpoint, |endpoint| {
        // SAFETY: the program passes `count` buffers.
        let buffers = unsafe { Buffers::new(iov, count) }?;
        let selector = endpoint.selector(wanted(tag, ignore), from)?;
        let manner = endpoint.receiving;
        endpoint.receive(selector, &buffers, context, Kind::TaggedReceive, manner)
    })
}

unsafe extern "C" fn recvmsg<const LOCKED: bool>(
    endpoint: *mut FidEp,
    message: *const MsgTagged,
    flags: u64,
) -> isize {
    with::<LOCKED>(endpoint, |endpoint| {
        // SAFETY: the program passes a message.
        let MsgTagged { msg_iov, iov_count, addr, tag, ignore, context, .. } =
            unsafe { get(message) }?;
        let selector = endpoint.selector(wanted(tag, ignore), addr)?;
        if is_peek(flags) {
            // SAFETY: the program passes as many buffers as it says, or none where it only looks.
            let buffers =
                unsafe { Buffers::new(msg_iov, if msg_iov.is_null() { 0 } else { iov_count }) }?;
            return endpoint.peek(selector, &buffers, context, flags);
        }
        // SAFETY: the program passes as many buffers as it says.
        let buffers = unsafe { Buffers::new(msg_iov, iov_count) }?;
        let manner = endpoint.receiving.with(flags)?;
        endpoint.receive(selector, &buffers, context, Kind::TaggedReceive, manner)
    })
}

unsafe extern "C" fn send<const LOCKED: bool>(
    endpoint: *mut FidEp,
    buffer: *const c_void,
    length: usize,
    _: *mut c_void,
    to: FiAddr,
    tag: u64,
    context: *mut c_void,
) -> isize {
    with::<LOCKED>(endpoint, |endpoint| {
        let envelope = Envelope::tagged(tag);
        let request = Request { to, envelope, context, kind: Kind::TaggedSend };
        endpoint.send(Buffer::new(buffer, length)?, &request)
    })
}

unsafe extern "C" fn sendv<const LOCKED: bool>(
    endpoint: *mut FidEp,
    iov: *const IoVec,
    _: *mut *mut c_void,
    count: usize,
    to: FiAddr,
    tag: u64,
    context: *mut c_void,
) -> isize {
    with::<LOCKED>(endpoint, |endpoint| {
        // SAFETY: the program passes `count` buffers.
        let buffers = unsafe { Buffers::new(iov, count) }?;
        let envelope = Envelope::tagged(tag);
        let request = Request { to, envelope, context, kind: Kind::TaggedSend };
        let manner = endpoint.sending;
        endpoint.send_several(&buffers, &request, manner)
    })
}

unsafe extern "C" fn sendmsg<const LOCKED: bool>(
    endpoint: *mut FidEp,
    message: *const MsgTagged,
    flags: u64,
) -> isize {
    with::<LOCKED>(endpoint, |endpoint| {
        // SAFETY: the program passes a message.
        let MsgTagged { msg_iov, iov_count, addr: to, tag, context, data, .. } =
            unsafe { get(message) }?;
        // SAFETY: the program passes as many buffers as it says.
        let buffers = unsafe { Buffers::new(msg_iov, iov_count) }?;
        let mut envelope = Envelope::tagged(tag);
        if flags & FI_REMOTE_CQ_DATA != 0 {
            envelope = envelope.with_immediate(data);
        }
        let manner = endpoint.sending.with(flags)?;
        let request = Request { to, envelope, context, kind: Kind::TaggedSend };
        endpoint.send_several(&buffers, &request, manner)
    })
}

unsafe extern "C" fn inject<const LOCKED: bool>(
    endpoint: *mut FidEp,
    buffer: *const c_void,
    length: usize,
    to: FiAddr,
    tag: u64,
) -> isize {
    with::<LOCKED>(endpoint, |endpoint| {
        let buffer = Buffer::new(buffer, length)?;
        endpoint.inject(to, Envelope::tagged(tag), buffer, Kind::TaggedSend)
    })
}

unsafe extern "C" fn senddata<const LOCKED: bool>(
    endpoint: *mut FidEp,
    buffer: *const c_void,
    length: usize,
    _: *mut c_void,
    data: u64,
    to: FiAddr,
    tag: u64,
    context: *mut c_void,
) -> isize {
    with::<LOCKED>(endpoint, |endpoint| {
        let envelope = Envelope::tagged(tag).with_immediate(data);
        let request = Request { to, envelope, context, kind: Kind::TaggedSend };
        endpoint.send(Buffer::new(buffer, length)?, &request)
    })
}

unsafe extern "C" fn injectdata<const LOCKED: bool>(
    endpoint: *mut FidEp,
    buffer: *const c_void,
    length: usize,
    data: u64,
    to: FiAddr,
    tag: u64,
) -> isize {
    with::<LOCKED>(endpoint, |endpoint| {
        let buffer = Buffer::new(buffer, length)?;
        let envelope = Envelope::tagged(tag).with_immediate(data);
        endpoint.inject(to, envelope, buffer, Kind::TaggedSend)
    })
}
