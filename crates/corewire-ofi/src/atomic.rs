//! Atomic operations in a peer's memory.

use core::ffi::{c_int, c_void};

use crate::layout;

/// An operation whose arguments a provider that offers none does not read. Its callers pass them as libfabric declares
/// them, and it returns an error; the convention of C lets it ignore them.
pub type Refusal<E> = unsafe extern "C" fn(*mut E) -> isize;

/// Whether an operation is possible: `fi_atomicvalid` and others.
pub type Valid<E> = unsafe extern "C" fn(*mut E, c_int, c_int, *mut usize) -> c_int;

/// Atomic operations: `struct fi_ops_atomic`. `E` is [`FidEp`](crate::endpoint::FidEp).
#[repr(C)]
#[derive(Debug)]
pub struct OpsAtomic<E> {
    /// Its own size in bytes.
    pub size: usize,
    /// `fi_atomic`.
    pub write: Refusal<E>,
    /// `fi_atomicv`.
    pub writev: Refusal<E>,
    /// `fi_atomicmsg`.
    pub writemsg: unsafe extern "C" fn(*mut E, *const c_void, u64) -> isize,
    /// `fi_inject_atomic`.
    pub inject: Refusal<E>,
    /// `fi_fetch_atomic`.
    pub readwrite: Refusal<E>,
    /// `fi_fetch_atomicv`.
    pub readwritev: Refusal<E>,
    /// `fi_fetch_atomicmsg`.
    pub readwritemsg: Refusal<E>,
    /// `fi_compare_atomic`.
    pub compwrite: Refusal<E>,
    /// `fi_compare_atomicv`.
    pub compwritev: Refusal<E>,
    /// `fi_compare_atomicmsg`.
    pub compwritemsg: Refusal<E>,
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
