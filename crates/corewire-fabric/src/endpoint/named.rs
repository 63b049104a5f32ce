//! The endpoint that a call names.

use corewire_ofi::endpoint::FidEp;

use super::Ep;
use crate::errors::{Outcome, result};
use crate::object::{self, Entered, enter};

/// Calls `action` with the endpoint that a program named.
#[inline(always)]
pub(super) fn with<const LOCKED: bool>(
    endpoint: *mut FidEp,
    action: impl FnOnce(&mut Ep) -> Outcome,
) -> isize {
    // SAFETY: the program passes one of its objects, which has the table that suits its gate.
    unsafe { object::with::<Ep, LOCKED>(endpoint, |endpoint, _| result(action(endpoint))) }
}

/// The endpoint that a program named.
///
/// # Safety
/// As for [`enter`].
#[inline(always)]
pub(super) unsafe fn named(endpoint: *mut FidEp) -> Outcome<Entered<Ep>> {
    // SAFETY: the caller guarantees that.
    unsafe { enter::<Ep>(endpoint) }
}
