//! Limits, signals, deaths.

use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Resource, Rlimit, Signal, getpid, getrlimit, pidfd_open,
    set_parent_process_death_signal, setrlimit,
};

use crate::fork::Descriptor;
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
pub fn own_life() -> Result<Descriptor, OsError> {
    Descriptor::make(|| pidfd_open(getpid(), PidfdFlags::empty()))
        .doing("make a process descriptor")
}

/// A descriptor that becomes readable when process `pid`, a child of this one, ends.
///
/// # Errors
/// [`OsError`] if there is no such process.
pub fn life_of(pid: u32) -> Result<Descriptor, OsError> {
    let what = format!("watch process {pid}");
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    let pid = pid.ok_or(OsError::new(what.clone(), Errno::SRCH))?;
    Descriptor::make(|| pidfd_open(pid, PidfdFlags::empty())).doing(what)
}

/// Has this process killed when the thread that started it ends, however that ends.
///
/// # Errors
/// [`OsError`] if the kernel refuses.
pub fn end_with_parent() -> Result<(), OsError> {
    set_parent_process_death_signal(Some(Signal::KILL)).doing("ask to end with the parent process")
}

/// Processor time that all threads of process `pid` have used, in seconds, as finely as the
/// scheduler counts.
///
/// # Errors
/// [`OsError`] if there is no such process, or the kernel does not say.
pub fn processor_seconds(pid: u32) -> Result<f64, OsError> {
    let what = format!("read the processor time of process {pid}");
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).doing(what.clone())?;
    let mut nanoseconds = 0u64;
    for thread in threads {
        let path = thread.doing(what.clone())?.path().join("schedstat");
        let text = crate::read_text(path).doing(what.clone())?;
        nanoseconds += text.split(' ').next().and_then(|word| word.parse().ok()).unwrap_or(0);
    }
    Ok(std::time::Duration::from_nanos(nanoseconds).as_secs_f64())
}

/// Refuses what the limit on file sizes (`RLIMIT_FSIZE`) forbids for `what`, of `bytes` bytes. The kernel
/// would not only refuse it, but end the process with `SIGXFSZ`.
///
/// # Errors
/// [`OsError`] with both sizes.
pub(crate) fn check_file_size(bytes: u64, what: &str) -> Result<(), OsError> {
    match getrlimit(Resource::Fsize).current {
        Some(limit) if limit < bytes => {
            let what = format!(
                "have {bytes} bytes for {what}: at most {limit} are allowed (RLIMIT_FSIZE, ulimit -f)"
            );
            Err(OsError::new(what, Errno::FBIG))
        }
        _ => Ok(()),
    }
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
