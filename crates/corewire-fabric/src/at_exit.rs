//! The end of a process that has not closed its objects.
//!
//! Its endpoints are closed then, so that it leaves no files: what is pending is sent for a bounded time, and peers see it
//! leave, not die. That is done when the library ends, after everything that the program does at its end: it may still
//! close MPI there. Where no lock says that no other thread is inside an endpoint, it is closed only if the process has
//! no other thread; the next process sweeps what is left otherwise.

use std::fs;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::gate::Gate;
use crate::limits::FLUSH;
use crate::member::{Bound, Member};
use crate::{directory, fork};

/// How long other threads are looked for.
const LOOK: Duration = Duration::from_millis(200);

/// An enabled endpoint.
struct Enabled {
    endpoint: Bound<dyn Member>,
    gate: &'static Gate,
}

static ENABLED: Mutex<Vec<Enabled>> = Mutex::new(Vec::new());

/// Called when the library ends, which is never closed before the process: see build.rs.
#[used]
#[unsafe(link_section = ".fini_array")]
static AT_EXIT: extern "C" fn() = close_all;

/// Notes an endpoint that has begun.
pub(crate) fn add(endpoint: Bound<dyn Member>, gate: &'static Gate) {
    let mut enabled = ENABLED.lock().unwrap_or_else(PoisonError::into_inner);
    enabled.push(Enabled { endpoint, gate });
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
    if enabled.is_empty() {
        return;
    }
    // A thread of corewire's own has its name only when it has begun to run.
    let end = Instant::now() + LOOK;
    let mut has_no_other = is_alone();
    while !has_no_other && Instant::now() < end {
        std::thread::yield_now();
        has_no_other = is_alone();
    }
    let end = Instant::now() + FLUSH;
    for Enabled { endpoint, gate } in enabled.drain(..) {
        if !gate.is_locked() && !has_no_other {
            continue;
        }
        let Ok(_entry) = gate.try_enter() else { continue };
        // SAFETY: no other thread is inside: this one has the lock, or there is no other. Later calls find no endpoint.
        unsafe { endpoint.get() }.finish(end.saturating_duration_since(Instant::now()));
    }
    directory::close_now();
}

/// Whether the program has no other thread.
fn is_alone() -> bool {
    let Ok(threads) = fs::read_dir("/proc/self/task") else { return false };
    let is_own = |thread: &fs::DirEntry| {
        fs::read(thread.path().join("comm")).is_ok_and(|name| name.starts_with(b"corewire"))
    };
    threads.flatten().filter(|thread| !is_own(thread)).count() == 1
}
