//! What libfabric finds in the library.

use std::cell::UnsafeCell;

use corewire_ofi::fid::Context;
use corewire_ofi::provider::Provider;

use crate::{NAME, getinfo, opening};

/// The newest interface of libfabric that is offered. libfabric leaves a provider out for programs that ask for a newer
/// one; since it only appends to its structures, every 2.x is served.
const INTERFACE: u32 = corewire_ofi::version(2, 99);

/// A provider in memory that libfabric writes to.
struct Writable(UnsafeCell<Provider>);

// SAFETY: only libfabric writes to it, under a lock of its own.
unsafe impl Sync for Writable {}

static PROVIDER: Writable = Writable(UnsafeCell::new(Provider {
    version: corewire_ofi::version(0, 1),
    fi_version: INTERFACE,
    context: Context { internal: [std::ptr::null_mut(); 4] },
    name: NAME.as_ptr(),
    getinfo: getinfo::getinfo,
    fabric: opening::open_fabric,
    cleanup,
}));

/// Before libfabric closes the library, which stays loaded. Endpoints that are open are closed when the process ends.
unsafe extern "C" fn cleanup() {}

/// What libfabric calls when it has loaded the library.
#[unsafe(no_mangle)]
pub extern "C" fn fi_prov_ini() -> *mut Provider {
    PROVIDER.0.get()
}
