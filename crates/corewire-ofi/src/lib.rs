//! The structures and constants of libfabric's binary interface, as a provider or a program sees them.
//!
//! libfabric 1.17 to 2.x only appends to its structures. Each structure here ends where that of 1.17 ends, and its size
//! and the offsets of its fields are asserted when this crate is compiled, against the values that a C compiler prints
//! for the headers of those versions on 64-bit Linux. A caller of a newer libfabric has more behind the end: who
//! allocates a structure for it must leave zeroed room there ([`info::SPARE_BYTES`]), and must read no field of a
//! structure beyond what is declared here.
//!
//! Names are those of the C headers: constants as they are, structures without `fi_` and in Rust's case. One module for
//! each object.

#![no_std]
#![forbid(unsafe_code)]

pub mod atomic;
pub mod av;
pub mod cntr;
pub mod cq;
pub mod domain;
pub mod endpoint;
pub mod eq;
pub mod errors;
pub mod fabric;
pub mod fid;
pub mod flags;
pub mod info;
pub mod mr;
pub mod poll;
pub mod provider;
pub mod rma;
pub mod tagged;

use core::ffi::c_void;

/// An address as an address vector numbers it: `fi_addr_t`.
pub type FiAddr = u64;

/// No address in particular: a receive takes messages of any source.
pub const FI_ADDR_UNSPEC: FiAddr = u64::MAX;
/// An address that is not in the address vector.
pub const FI_ADDR_NOTAVAIL: FiAddr = u64::MAX;

/// A version as libfabric encodes it: `FI_VERSION`.
#[must_use]
pub const fn version(major: u16, minor: u16) -> u32 {
    (major as u32) << 16 | minor as u32
}

/// A stretch of memory: `struct iovec`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct IoVec {
    /// Its first byte.
    pub base: *mut c_void,
    /// Its length in bytes.
    pub len: usize,
}

/// Asserts size and offsets of a structure when the crate is compiled.
macro_rules! layout {
    ($type:ty, $size:expr $(, $field:ident: $offset:expr)* $(,)?) => {
        const _: () = {
            assert!(size_of::<$type>() == $size);
            $(assert!(core::mem::offset_of!($type, $field) == $offset);)*
        };
    };
}
pub(crate) use layout;

layout!(IoVec, 16, base: 0, len: 8);
