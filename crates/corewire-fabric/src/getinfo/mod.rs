//! `fi_getinfo`: what the provider offers, and whether that is what a program asks for.
//!
//! It offers one thing, reliable datagrams between the processes of this machine, and one address format. It opens nothing.

mod hints;
mod make;

use core::ffi::{c_char, c_int};

use corewire_ofi::flags::{
    FI_ATOMIC, FI_DIRECTED_RECV, FI_LOCAL_COMM, FI_MR_SCALABLE, FI_MSG, FI_MULTI_RECV, FI_READ,
    FI_RECV, FI_REMOTE_COMM, FI_REMOTE_READ, FI_REMOTE_WRITE, FI_RMA, FI_SEND, FI_SOURCE,
    FI_TAGGED, FI_WRITE,
};
use corewire_ofi::info::Info;

use crate::address::{ADDRESS_BYTES, Address};
use crate::errors::{INVALID, NO_DATA, Outcome, status};
use crate::memory::{get, put, text};
use crate::names;

/// All capabilities.
pub(crate) const CAPS: u64 = FI_MSG
    | FI_TAGGED
    | FI_RMA
    | FI_ATOMIC
    | FI_SEND
    | FI_RECV
    | FI_READ
    | FI_WRITE
    | FI_REMOTE_READ
    | FI_REMOTE_WRITE
    | FI_MULTI_RECV
    | FI_DIRECTED_RECV
    | FI_SOURCE
    | FI_LOCAL_COMM
    | FI_REMOTE_COMM;

/// Those that a program gets that asks for some: both directions if it names none, and any peer.
pub(crate) const fn complete(asked: u64) -> u64 {
    let mut caps = asked | FI_LOCAL_COMM | FI_REMOTE_COMM;
    // Who names nothing at all gets an endpoint for messages.
    let messages = asked & (FI_MSG | FI_TAGGED) != 0 || asked & (FI_RMA | FI_ATOMIC) == 0;
    if messages && asked & MESSAGES == 0 {
        caps |= MESSAGES;
    }
    if asked & (FI_RMA | FI_ATOMIC) != 0 && asked & ACCESSES == 0 {
        caps |= ACCESSES;
    }
    caps
}

/// The directions of messages, and of accesses.
const MESSAGES: u64 = FI_SEND | FI_RECV;
const ACCESSES: u64 = FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;

/// The addresses of both sides.
#[derive(Debug, Clone, Copy)]
struct Addresses {
    source: Address,
    target: Option<Address>,
}

pub(crate) unsafe extern "C" fn getinfo(
    version: u32,
    node: *const c_char,
    service: *const c_char,
    flags: u64,
    hints: *const Info,
    info: *mut *mut Info,
) -> c_int {
    let make = || {
        if info.is_null() {
            return Err(INVALID);
        }
        // SAFETY: the program passes texts that end with a zero, or null.
        let node = unsafe { text(node) }?;
        // SAFETY: as above.
        let service = unsafe { text(service) }?;
        // SAFETY: the program passes hints, or null.
        let mut wanted = unsafe { hints::read(hints) }?;
        if version < corewire_ofi::version(1, 5) && wanted.mr_mode == 0 {
            wanted.mr_mode = FI_MR_SCALABLE;
        }
        let mut addresses = Addresses { source: Address::ANY, target: None };
        if !hints.is_null() {
            // SAFETY: as above.
            let hints = unsafe { get(hints) }?;
            let source = address(hints.src_addr.cast(), hints.src_addrlen, Address::parse_source)?;
            addresses.source = source.unwrap_or(Address::ANY);
            addresses.target = address(hints.dest_addr.cast(), hints.dest_addrlen, Address::parse)?;
        }
        match (service, flags & FI_SOURCE != 0) {
            (Some(service), true) => addresses.source = names::of_service(node, service)?,
            (Some(service), false) => addresses.target = Some(names::of_service(node, service)?),
            // A node without a service says nothing but which machine it is.
            (None, _) if !node.is_none_or(names::is_here) => return Err(NO_DATA),
            (None, _) => {}
        }
        let made = make::info(version, &wanted, addresses)?;
        // SAFETY: the program passes room for a pointer.
        unsafe { put(info, made) }
    };
    status(make())
}

/// An address in hints.
fn address(
    at: *const [u8; ADDRESS_BYTES],
    length: usize,
    parse: fn(&[u8; ADDRESS_BYTES]) -> Outcome<Address>,
) -> Outcome<Option<Address>> {
    if at.is_null() || length == 0 {
        return Ok(None);
    }
    if length != ADDRESS_BYTES {
        return Err(NO_DATA);
    }
    // SAFETY: the program says that the address has this length.
    parse(&unsafe { get(at) }?).map(Some).map_err(|_| NO_DATA)
}
