//! The calls of messages without a tag.

use core::ffi::c_void;

use corewire::{Envelope, Selector};
use corewire_ofi::endpoint::{FidEp, Msg, OpsMsg};
use corewire_ofi::flags::FI_REMOTE_CQ_DATA;
use corewire_ofi::{FiAddr, IoVec};

use super::ends::Kind;
use super::named::with;
use super::send::Request;
use crate::gate::Gate;
use crate::memory::{Buffer, Buffers, get};

/// The calls of endpoints with this gate.
pub(super) fn table(gate: &Gate) -> &'static OpsMsg {
    static OPEN: OpsMsg = table_of::<false>();
    static LOCKED: OpsMsg = table_of::<true>();
    if gate.is_locked() { &LOCKED } else { &OPEN }
}

const fn table_of<const LOCKED: bool>() -> OpsMsg {
    OpsMsg {
        size: size_of::<OpsMsg>(),
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

unsafe extern "C" fn recv<const LOCKED: bool>(
    endpoint: *mut FidEp,
    buffer: *mut c_void,
    length: usize,
    _: *mut c_void,
    from: FiAddr,
    context: *mut c_void,
) -> isize {
    with::<LOCKED>(endpoint, |endpoint| {
        let buffers = Buffers::one(Buffer::new(buffer, length)?);
        let selector = endpoint.selector(Selector::untagged(), from)?;
        let manner = endpoint.receiving;
        endpoint.receive(selector, &buffers, context, Kind::Receive, manner)
    })
}

unsafe extern "C" fn recvv<const LOCKED: bool>(
    endpoint: *mut FidEp,
    iov: *const IoVec,
    _: *mut *mut c_void,
    count: usize,
    from: FiAddr,
    context: *mut c_void,
) -> isize {
    with::<LOCKED>(endpoint, |endpoint| {
        // SAFETY: the program passes `count` buffers.
        let buffers = unsafe { Buffers::new(iov, count) }?;
        let selector = endpoint.selector(Selector::untagged(), from)?;
        let manner = endpoint.receiving;
        endpoint.receive(selector, &buffers, context, Kind::Receive, manner)
    })
}

unsafe extern "C" fn recvmsg<const LOCKED: bool>(
    endpoint: *mut FidEp,
    message: *const Msg,
    flags: u64,
) -> isize {
    with::<LOCKED>(endpoint, |endpoint| {
        // SAFETY: the program passes a message.
        let Msg { msg_iov, iov_count, addr, context, .. } = unsafe { get(message) }?;
        // SAFETY: the program passes as many buffers as it says.
        let buffers = unsafe { Buffers::new(msg_iov, iov_count) }?;
        let selector = endpoint.selector(Selector::untagged(), addr)?;
        let manner = endpoint.receiving.with(flags)?;
        endpoint.receive(selector, &buffers, context, Kind::Receive, manner)
    })
}

unsafe extern "C" fn send<const LOCKED: bool>(
    endpoint: *mut FidEp,
    buffer: *const c_void,
    length: usize,
    _: *mut c_void,
    to: FiAddr,
    context: *mut c_void,
) -> isize {
    with::<LOCKED>(endpoint, |endpoint| {
        let envelope = Envelope::untagged();
        let request = Request { to, envelope, context, kind: Kind::Send };
        endpoint.send(Buffer::new(buffer, length)?, &request)
    })
}

unsafe extern "C" fn sendv<const LOCKED: bool>(
    endpoint: *mut FidEp,
    iov: *const IoVec,
    _: *mut *mut c_void,
    count: usize,
    to: FiAddr,
    context: *mut c_void,
) -> isize {
    with::<LOCKED>(endpoint, |endpoint| {
        // SAFETY: the program passes `count` buffers.
        let buffers = unsafe { Buffers::new(iov, count) }?;
        let envelope = Envelope::untagged();
        let request = Request { to, envelope, context, kind: Kind::Send };
        let manner = endpoint.sending;
        endpoint.send_several(&buffers, &request, manner)
    })
}

unsafe extern "C" fn sendmsg<const LOCKED: bool>(
    endpoint: *mut FidEp,
    message: *const Msg,
    flags: u64,
) -> isize {
    with::<LOCKED>(endpoint, |endpoint| {
        // SAFETY: the program passes a message.
        let Msg { msg_iov, iov_count, addr: to, context, data, .. } = unsafe { get(message) }?;
        // SAFETY: the program passes as many buffers as it says.
        let buffers = unsafe { Buffers::new(msg_iov, iov_count) }?;
        let mut envelope = Envelope::untagged();
        if flags & FI_REMOTE_CQ_DATA != 0 {
            envelope = envelope.with_immediate(data);
        }
        let manner = endpoint.sending.with(flags)?;
        let request = Request { to, envelope, context, kind: Kind::Send };
        endpoint.send_several(&buffers, &request, manner)
    })
}

unsafe extern "C" fn inject<const LOCKED: bool>(
    endpoint: *mut FidEp,
    buffer: *const c_void,
    length: usize,
    to: FiAddr,
) -> isize {
    with::<LOCKED>(endpoint, |endpoint| {
        let buffer = Buffer::new(buffer, length)?;
        endpoint.inject(to, Envelope::untagged(), buffer, Kind::Send)
    })
}

unsafe extern "C" fn senddata<const LOCKED: bool>(
    endpoint: *mut FidEp,
    buffer: *const c_void,
    length: usize,
    _: *mut c_void,
    data: u64,
    to: FiAddr,
    context: *mut c_void,
) -> isize {
    with::<LOCKED>(endpoint, |endpoint| {
        let envelope = Envelope::untagged().with_immediate(data);
        let request = Request { to, envelope, context, kind: Kind::Send };
        endpoint.send(Buffer::new(buffer, length)?, &request)
    })
}

unsafe extern "C" fn injectdata<const LOCKED: bool>(
    endpoint: *mut FidEp,
    buffer: *const c_void,
    length: usize,
    data: u64,
    to: FiAddr,
) -> isize {
    with::<LOCKED>(endpoint, |endpoint| {
        let buffer = Buffer::new(buffer, length)?;
        let envelope = Envelope::untagged().with_immediate(data);
        endpoint.inject(to, envelope, buffer, Kind::Send)
    })
}
