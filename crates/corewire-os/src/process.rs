//! Limits, signals, deaths.

use std::os::fd::OwnedFd;

use rustix::process::{PidfdFlags, Resource, Rlimit, getpid, getrlimit, pidfd_open, setrlimit};

use crate::{Doing, OsError};

/// This process's number, for people to read.
#[must_use]
pub fn pid() -> u32 {
    getpid().as_raw_nonzero().get().unsigned_abs()
}

/// This process's effective user.
#[must_use]
pub fn effective_uid() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// A descriptor that becomes readable when this process ends.
///
/// # Errors
/// [`OsError`] before Linux 5.3, or without a free descriptor.
pub fn own_life() -> Result<OwnedFd, OsError> {
    pidfd_open(getpid(), PidfdFlags::empty()).doing("make a process descriptor")
}

/// Raises the soft limit on descriptors to the hard one, and returns it.
#[must_use]
pub fn raise_descriptor_limit() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    let now = if setrlimit(Resource::Nofile, raised).is_ok() { raised } else { limit };
    now.current.unwrap_or(u64::MAX)
}

/// Blocks every signal in this thread: for a thread that must not run anybody's handlers.
pub fn block_all_signals() {
    // SAFETY: an all-zero set is a valid one to fill.
    let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: the set is ours.
    unsafe { libc::sigfillset(&raw mut set) };
    // SAFETY: the set is filled; the old one is not asked for.
    unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) };
}
