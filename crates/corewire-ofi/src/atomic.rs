//! Atomic operations in a peer's memory.
//!
//! Each takes values of one type, combines each with that of the peer at its place, and writes what comes out there. A
//! fetch returns the peer's values from before. A comparison does so, too, and takes values to compare with.

use core::ffi::{c_int, c_void};

use crate::{FiAddr, layout};

/// Type of values: signed, 8 bits.
pub const FI_INT8: c_int = 0;
/// Type of values: unsigned, 8 bits.
pub const FI_UINT8: c_int = 1;
/// Type of values: signed, 16 bits.
pub const FI_INT16: c_int = 2;
/// Type of values: unsigned, 16 bits.
pub const FI_UINT16: c_int = 3;
/// Type of values: signed, 32 bits.
pub const FI_INT32: c_int = 4;
/// Type of values: unsigned, 32 bits.
pub const FI_UINT32: c_int = 5;
/// Type of values: signed, 64 bits.
pub const FI_INT64: c_int = 6;
/// Type of values: unsigned, 64 bits.
pub const FI_UINT64: c_int = 7;
/// Type of values: `float`.
pub const FI_FLOAT: c_int = 8;
/// Type of values: `double`.
pub const FI_DOUBLE: c_int = 9;
/// Type of values: `float complex`.
pub const FI_FLOAT_COMPLEX: c_int = 10;
/// Type of values: `double complex`.
pub const FI_DOUBLE_COMPLEX: c_int = 11;
/// Type of values: `long double`.
pub const FI_LONG_DOUBLE: c_int = 12;
/// Type of values: `long double complex`.
pub const FI_LONG_DOUBLE_COMPLEX: c_int = 13;
/// Type of values: signed, 128 bits.
pub const FI_INT128: c_int = 14;
/// Type of values: unsigned, 128 bits.
pub const FI_UINT128: c_int = 15;
/// Type of values: floating point, 16 bits (2.0).
pub const FI_FLOAT16: c_int = 16;
/// Type of values: floating point, 16 bits with the exponent of a `float` (2.0).
pub const FI_BFLOAT16: c_int = 17;
/// Type of values: floating point, 8 bits with 4 of exponent (2.0).
pub const FI_FLOAT8_E4M3: c_int = 18;
/// Type of values: floating point, 8 bits with 5 of exponent (2.0).
pub const FI_FLOAT8_E5M2: c_int = 19;

/// Operation: the smaller value.
pub const FI_MIN: c_int = 0;
/// Operation: the larger value.
pub const FI_MAX: c_int = 1;
/// Operation: the sum.
pub const FI_SUM: c_int = 2;
/// Operation: the product.
pub const FI_PROD: c_int = 3;
/// Operation: whether either value is not 0.
pub const FI_LOR: c_int = 4;
/// Operation: whether neither value is 0.
pub const FI_LAND: c_int = 5;
/// Operation: bits of either value.
pub const FI_BOR: c_int = 6;
/// Operation: bits of both values.
pub const FI_BAND: c_int = 7;
/// Operation: whether exactly one value is not 0.
pub const FI_LXOR: c_int = 8;
/// Operation: bits of exactly one value.
pub const FI_BXOR: c_int = 9;
/// Operation: reads, and changes nothing.
pub const FI_ATOMIC_READ: c_int = 10;
/// Operation: writes the operand.
pub const FI_ATOMIC_WRITE: c_int = 11;
/// Operation: writes the operand if the compared value is equal to the peer's.
pub const FI_CSWAP: c_int = 12;
/// Operation: writes the operand if the compared value is not equal to the peer's.
pub const FI_CSWAP_NE: c_int = 13;
/// Operation: writes the operand if the compared value is at most the peer's.
pub const FI_CSWAP_LE: c_int = 14;
/// Operation: writes the operand if the compared value is less than the peer's.
pub const FI_CSWAP_LT: c_int = 15;
/// Operation: writes the operand if the compared value is at least the peer's.
pub const FI_CSWAP_GE: c_int = 16;
/// Operation: writes the operand if the compared value is greater than the peer's.
pub const FI_CSWAP_GT: c_int = 17;
/// Operation: writes those bits of the operand that are set in the compared value.
pub const FI_MSWAP: c_int = 18;
/// Operation: the peer's value less the operand (2.0).
pub const FI_DIFF: c_int = 19;

/// Values in memory: `struct fi_ioc`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Ioc {
    /// The first one.
    pub addr: *mut c_void,
    /// Their number.
    pub count: usize,
}
layout!(Ioc, 16, addr: 0, count: 8);

/// Values in a peer's memory: `struct fi_rma_ioc`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct RmaIoc {
    /// The first one.
    pub addr: u64,
    /// Their number.
    pub count: usize,
    /// The key of their registration.
    pub key: u64,
}
layout!(RmaIoc, 24, addr: 0, count: 8, key: 16);

/// What a domain can do with a type and an operation: `struct fi_atomic_attr`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct AtomicAttr {
    /// Values of one call.
    pub count: usize,
    /// Length of a value.
    pub size: usize,
}
layout!(AtomicAttr, 16, count: 0, size: 8);

/// An operation: `struct fi_msg_atomic`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct MsgAtomic {
    /// Its operands.
    pub msg_iov: *const Ioc,
    /// What their registrations say.
    pub desc: *mut *mut c_void,
    /// Number of their parts.
    pub iov_count: usize,
    /// The other side.
    pub addr: FiAddr,
    /// The peer's values.
    pub rma_iov: *const RmaIoc,
    /// Number of their parts.
    pub rma_iov_count: usize,
    /// Type of the values.
    pub datatype: c_int,
    /// What to do with them.
    pub op: c_int,
    /// The operation's.
    pub context: *mut c_void,
    /// Data for the peer's completion.
    pub data: u64,
}
layout!(MsgAtomic, 72, msg_iov: 0, desc: 8, iov_count: 16, addr: 24, rma_iov: 32, rma_iov_count: 40, datatype: 48,
    op: 52, context: 56, data: 64);

/// Where a fetch writes: `struct fi_msg_fetch`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct MsgFetch {
    /// Its results.
    pub msg_iov: *mut Ioc,
    /// What their registrations say.
    pub desc: *mut *mut c_void,
    /// Number of their parts.
    pub iov_count: usize,
}
layout!(MsgFetch, 24, msg_iov: 0, desc: 8, iov_count: 16);

/// What to compare with: `struct fi_msg_compare`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct MsgCompare {
    /// The values.
    pub msg_iov: *const Ioc,
    /// What their registrations say.
    pub desc: *mut *mut c_void,
    /// Number of their parts.
    pub iov_count: usize,
}
layout!(MsgCompare, 24, msg_iov: 0, desc: 8, iov_count: 16);

/// Whether a type and an operation are possible, and with how many values in a call: `fi_atomicvalid` and others.
pub type Valid<E> = unsafe extern "C" fn(*mut E, c_int, c_int, *mut usize) -> c_int;

/// Atomic operations: `struct fi_ops_atomic`. `E` is [`FidEp`](crate::endpoint::FidEp).
#[repr(C)]
#[derive(Debug)]
pub struct OpsAtomic<E> {
    /// Its own size in bytes.
    pub size: usize,
    /// `fi_atomic`: operands, then the peer, address and key, then type, operation and context.
    pub write: unsafe extern "C" fn(
        *mut E,
        *const c_void,
        usize,
        *mut c_void,
        FiAddr,
        u64,
        u64,
        c_int,
        c_int,
        *mut c_void,
    ) -> isize,
    /// `fi_atomicv`.
    pub writev: unsafe extern "C" fn(
        *mut E,
        *const Ioc,
        *mut *mut c_void,
        usize,
        FiAddr,
        u64,
        u64,
        c_int,
        c_int,
        *mut c_void,
    ) -> isize,
    /// `fi_atomicmsg`.
    pub writemsg: unsafe extern "C" fn(*mut E, *const MsgAtomic, u64) -> isize,
    /// `fi_inject_atomic`.
    pub inject:
        unsafe extern "C" fn(*mut E, *const c_void, usize, FiAddr, u64, u64, c_int, c_int) -> isize,
    /// `fi_fetch_atomic`: results follow the operands.
    pub readwrite: unsafe extern "C" fn(
        *mut E,
        *const c_void,
        usize,
        *mut c_void,
        *mut c_void,
        *mut c_void,
        FiAddr,
        u64,
        u64,
        c_int,
        c_int,
        *mut c_void,
    ) -> isize,
    /// `fi_fetch_atomicv`.
    pub readwritev: unsafe extern "C" fn(
        *mut E,
        *const Ioc,
        *mut *mut c_void,
        usize,
        *mut Ioc,
        *mut *mut c_void,
        usize,
        FiAddr,
        u64,
        u64,
        c_int,
        c_int,
        *mut c_void,
    ) -> isize,
    /// `fi_fetch_atomicmsg`.
    pub readwritemsg: unsafe extern "C" fn(
        *mut E,
        *const MsgAtomic,
        *mut Ioc,
        *mut *mut c_void,
        usize,
        u64,
    ) -> isize,
    /// `fi_compare_atomic`: values to compare with follow the operands, and results those.
    pub compwrite: unsafe extern "C" fn(
        *mut E,
        *const c_void,
        usize,
        *mut c_void,
        *const c_void,
        *mut c_void,
        *mut c_void,
        *mut c_void,
        FiAddr,
        u64,
        u64,
        c_int,
        c_int,
        *mut c_void,
    ) -> isize,
    /// `fi_compare_atomicv`.
    pub compwritev: unsafe extern "C" fn(
        *mut E,
        *const Ioc,
        *mut *mut c_void,
        usize,
        *const Ioc,
        *mut *mut c_void,
        usize,
        *mut Ioc,
        *mut *mut c_void,
        usize,
        FiAddr,
        u64,
        u64,
        c_int,
        c_int,
        *mut c_void,
    ) -> isize,
    /// `fi_compare_atomicmsg`.
    pub compwritemsg: unsafe extern "C" fn(
        *mut E,
        *const MsgAtomic,
        *const Ioc,
        *mut *mut c_void,
        usize,
        *mut Ioc,
        *mut *mut c_void,
        usize,
        u64,
    ) -> isize,
    /// `fi_atomicvalid`.
    pub writevalid: Valid<E>,
    /// `fi_fetch_atomicvalid`.
    pub readwritevalid: Valid<E>,
    /// `fi_compare_atomicvalid`.
    pub compwritevalid: Valid<E>,
}
layout!(OpsAtomic<()>, 112, size: 0, write: 8, writev: 16, writemsg: 24, inject: 32, readwrite: 40, readwritev: 48,
    readwritemsg: 56, compwrite: 64, compwritev: 72, compwritemsg: 80, writevalid: 88, readwritevalid: 96,
    compwritevalid: 104);
