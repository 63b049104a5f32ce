//! Forked children: the objects of the parent are not theirs.

use std::cell::UnsafeCell;
use std::sync::Once;

use crate::errors::{IO, Outcome};

/// Whether this process was forked from one that uses the provider. Written by the only thread of a new child.
struct IsChild(UnsafeCell<bool>);

// SAFETY: it is written only in a child that has just been forked, which has one thread.
unsafe impl Sync for IsChild {}

static IS_CHILD: IsChild = IsChild(UnsafeCell::new(false));

extern "C" fn in_child() {
    // SAFETY: a child that has just been forked has one thread.
    unsafe { IS_CHILD.0.get().write(true) };
}

/// Asks to be told of forks.
pub(crate) fn watch() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the handler does nothing but store a byte.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    });
}

/// Whether this process was forked from one that uses the provider.
#[inline(always)]
pub(crate) fn is_child() -> bool {
    // SAFETY: nothing writes it while there are two threads.
    unsafe { IS_CHILD.0.get().read() }
}

/// `FI_EIO` in a forked child.
#[inline(always)]
pub(crate) fn check() -> Outcome {
    if is_child() { Err(IO) } else { Ok(()) }
}
