//! The end of a process that has not closed its objects.
//!
//! Its endpoints are closed then, so that it leaves no files: what is pending is sent for a bounded time, and peers see it
//! leave, not die. Where no lock says that no other thread is inside an endpoint, only an endpoint that belongs to the
//! thread which ends the process is closed; the next process sweeps what the others leave.

use std::sync::{Mutex, Once, PoisonError};

use crate::gate::Gate;
use crate::member::{Bound, Member};
use crate::{directory, fork};

/// An enabled endpoint, and the thread that enabled it.
struct Enabled {
    endpoint: Bound<dyn Member>,
    gate: &'static Gate,
    thread: libc::pthread_t,
}

static ENABLED: Mutex<Vec<Enabled>> = Mutex::new(Vec::new());

/// Asks to be called at the end of the process.
pub(crate) fn watch() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the library stays loaded: see build.rs.
        unsafe { libc::atexit(close_all) };
    });
}

/// Notes an endpoint that has begun.
pub(crate) fn add(endpoint: Bound<dyn Member>, gate: &'static Gate) {
    let mut enabled = ENABLED.lock().unwrap_or_else(PoisonError::into_inner);
    enabled.push(Enabled { endpoint, gate, thread: this_thread() });
}

/// Forgets an endpoint that was closed.
pub(crate) fn remove(endpoint: Bound<dyn Member>) {
    let mut enabled = ENABLED.lock().unwrap_or_else(PoisonError::into_inner);
    enabled.retain(|it| !it.endpoint.is(endpoint));
}

extern "C" fn close_all() {
    if fork::is_child() {
        return;
    }
    let Ok(mut enabled) = ENABLED.try_lock() else { return };
    let this = this_thread();
    for Enabled { endpoint, gate, thread } in enabled.drain(..) {
        if !gate.is_locked() && thread != this {
            continue;
        }
        let Ok(entry) = gate.try_enter() else { continue };
        // SAFETY: no other thread is inside: the lock is held for ever, or this is the endpoint's thread.
        unsafe { endpoint.get() }.finish();
        std::mem::forget(entry);
    }
    directory::close_now();
}

fn this_thread() -> libc::pthread_t {
    // SAFETY: asks for a number.
    unsafe { libc::pthread_self() }
}
