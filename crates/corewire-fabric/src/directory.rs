//! The runtime directory: one domain of corewire for all domains of the process.
//!
//! It is opened with the first domain and dropped with the last, or when the process ends. Then the process has no file
//! there any more.

use std::sync::{Mutex, MutexGuard, PoisonError};

use corewire::Domain;

use crate::errors::{BAD_STATE, Outcome, of_open};
use crate::host;

struct Open {
    domain: Domain,
    uses: usize,
}

static OPEN: Mutex<Option<Open>> = Mutex::new(None);

fn lock() -> MutexGuard<'static, Option<Open>> {
    OPEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Opens it for one more domain.
pub(crate) fn open() -> Outcome {
    let mut open = lock();
    if let Some(open) = &mut *open {
        open.uses += 1;
        return Ok(());
    }
    let domain = Domain::open().map_err(|error| {
        host::warn(&error);
        of_open(&error)
    })?;
    *open = Some(Open { domain, uses: 1 });
    Ok(())
}

/// A domain is closed.
pub(crate) fn close() {
    let mut open = lock();
    if let Some(left) = &mut *open {
        left.uses -= 1;
        if left.uses == 0 {
            *open = None;
        }
    }
}

/// The process ends.
pub(crate) fn close_now() {
    if let Ok(mut open) = OPEN.try_lock() {
        *open = None;
    }
}

/// Where endpoints are created.
pub(crate) fn domain() -> Outcome<Domain> {
    lock().as_ref().map(|open| open.domain.clone()).ok_or(BAD_STATE)
}
