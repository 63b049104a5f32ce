//! What a provider's library exports.

use core::ffi::{c_char, c_int, c_void};

use crate::fabric::FidFabric;
use crate::fid::Context;
use crate::info::{FabricAttr, Info};
use crate::layout;

/// What `fi_prov_ini` returns: `struct fi_provider`. libfabric writes to it, so it lies in memory that can be written.
#[repr(C)]
#[derive(Debug)]
pub struct Provider {
    /// Of the provider: the newest of two with the same name is taken.
    pub version: u32,
    /// The newest interface that it offers: it is left out for programs that ask for a newer one.
    pub fi_version: u32,
    /// libfabric's own.
    pub context: Context,
    /// Its name.
    pub name: *const c_char,
    /// `fi_getinfo`.
    pub getinfo: unsafe extern "C" fn(
        u32,
        *const c_char,
        *const c_char,
        u64,
        *const Info,
        *mut *mut Info,
    ) -> c_int,
    /// `fi_fabric`.
    pub fabric: unsafe extern "C" fn(*mut FabricAttr, *mut *mut FidFabric, *mut c_void) -> c_int,
    /// Called before libfabric closes the library.
    pub cleanup: unsafe extern "C" fn(),
}
layout!(Provider, 72, version: 0, fi_version: 4, context: 8, name: 40, getinfo: 48, fabric: 56, cleanup: 64);
