//! Limits, signals, deaths of processes.

use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Resource, Rlimit, Signal, pidfd_open, set_parent_process_death_signal,
    setrlimit,
};

use crate::event::wait_readable;
use crate::fork::Descriptor;
use crate::{Doing, OsError};

/// This process's number, for display; 0 if the kernel does not report it.
#[must_use]
pub fn pid() -> u32 {
    // SAFETY: no arguments. Where a filter refuses the call, the result is negative.
    u32::try_from(unsafe { libc::getpid() }).unwrap_or(0)
}

/// This process's effective user. Where a filter refuses the call, a number that no user has.
#[must_use]
pub fn effective_uid() -> u32 {
    // SAFETY: no arguments.
    unsafe { libc::geteuid() }
}

/// Whether this process has the rights of the user that has started it, and no others: then its environment can be trusted
/// with them.
#[must_use]
pub fn has_own_rights() -> bool {
    // SAFETY: an integer argument only.
    unsafe { libc::getauxval(libc::AT_SECURE) == 0 }
}

/// This process's effective user.
///
/// # Errors
/// [`OsError`] if a filter refuses the call.
pub fn known_uid() -> Result<u32, OsError> {
    // An error is returned as a negative number.
    const ERRORS: u32 = 4096;
    match effective_uid() {
        uid if uid > u32::MAX - ERRORS => {
            let errno = Errno::from_raw_os_error(uid.wrapping_neg().cast_signed());
            Err(OsError::new("ask for this process's user", errno))
        }
        uid => Ok(uid),
    }
}

/// A descriptor that becomes readable when this process ends.
///
/// # Errors
/// [`OsError`] before Linux 5.3, or without a free descriptor.
pub fn own_life() -> Result<Descriptor, OsError> {
    let own = Pid::from_raw(pid().cast_signed());
    let own = own.ok_or(OsError::new("ask for this process's number", Errno::PERM))?;
    Descriptor::make(|| pidfd_open(own, PidfdFlags::empty())).doing("make a process descriptor")
}

/// A copy of the descriptor with this number, if this process was started with it: it is open, and `exec` keeps it,
/// which is true for no descriptor that Rust's library or corewire opens.
///
/// # Errors
/// [`OsError`] if there is no such descriptor, or none is free for the copy.
pub fn inherited(number: i32) -> Result<Descriptor, OsError> {
    let what = || format!("use descriptor {number}");
    // SAFETY: reads the flags of a descriptor by its number; of a number that is not open the call reports that.
    let flags = unsafe { libc::fcntl(number, libc::F_GETFD) };
    if flags < 0 || flags & libc::FD_CLOEXEC != 0 {
        return Err(OsError::new(what(), Errno::BADF));
    }
    // SAFETY: the descriptor is open, and stays so: nothing in this process owns it, so that nothing closes it.
    let inherited = unsafe { std::os::fd::BorrowedFd::borrow_raw(number) };
    Descriptor::make(|| rustix::io::fcntl_dupfd_cloexec(inherited, 3)).doing(what())
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

/// Is the process of `life`, a descriptor of it, ending or dead? Its sockets close a moment before its descriptor says
/// so. `pid` is its number here, or 0 if it has none. Where the kernel does not show whether it is ending, as of a process
/// without a number, waits for its descriptor for up to `limit`.
#[must_use]
pub fn is_ending(life: impl AsFd, pid: u32, limit: Duration) -> bool {
    let has_ended = |limit: Duration| {
        let ready = wait_readable(&[life.as_fd()], Some(Instant::now() + limit));
        ready.is_ok_and(|ready| ready == [true])
    };
    let shown = (pid != 0).then(|| are_threads_exiting(pid)).flatten();
    match shown {
        // The number belongs to this process for as long as its descriptor does not say that it has ended.
        Some(are_exiting) => are_exiting || has_ended(Duration::ZERO),
        None => has_ended(limit),
    }
}

/// Do all threads of process `pid` exit? `None` if the kernel does not show it.
fn are_threads_exiting(pid: u32) -> Option<bool> {
    let process = PathBuf::from(format!("/proc/{pid}"));
    // Mostly the first thread tells. But it may have exited while the others go on.
    match thread_at(&process) {
        Thread::Exits => {}
        Thread::Runs => return Some(false),
        Thread::Gone | Thread::Hidden => return None,
    }
    // While threads end, the directory may leave others out.
    const PASSES_MAX: usize = 100;
    for _ in 0..PASSES_MAX {
        let mut are_there = true;
        for thread in std::fs::read_dir(process.join("task")).ok()? {
            match thread_at(&thread.ok()?.path()) {
                Thread::Exits => {}
                Thread::Runs => return Some(false),
                Thread::Gone => are_there = false,
                Thread::Hidden => return None,
            }
        }
        if are_there {
            return Some(true);
        }
    }
    None
}

/// What a thread does, by its directory in `/proc`.
enum Thread {
    Runs,
    Exits,
    /// It has ended.
    Gone,
    /// The kernel does not say.
    Hidden,
}

fn thread_at(path: &Path) -> Thread {
    /// The kernel's flag of a thread that exits, in field 9 of its `stat` file.
    const EXITING: u64 = 4;
    let stat = match crate::read_bytes(path.join("stat")) {
        Ok(stat) => stat,
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ESRCH)) => {
            return Thread::Gone;
        }
        Err(_) => return Thread::Hidden,
    };
    // The second field, the program's name, is in parentheses and may contain anything.
    let behind = stat.iter().rposition(|byte| *byte == b')').map_or(0, |at| at + 1);
    let rest = str::from_utf8(&stat[behind..]).unwrap_or_default();
    match rest.split_whitespace().nth(6).and_then(|flags| flags.parse::<u64>().ok()) {
        Some(flags) if flags & EXITING != 0 => Thread::Exits,
        Some(_) => Thread::Runs,
        None => Thread::Hidden,
    }
}

/// Asks the kernel to kill this process when the thread that started it ends, for any reason.
///
/// # Errors
/// [`OsError`] if the kernel refuses.
pub fn end_with_parent() -> Result<(), OsError> {
    set_parent_process_death_signal(Some(Signal::KILL)).doing("ask to end with the parent process")
}

/// Processor time that all threads of process `pid` have used, in seconds, with the resolution of the
/// scheduler.
///
/// # Errors
/// [`OsError`] if there is no such process, or the kernel does not report it.
pub fn processor_seconds(pid: u32) -> Result<f64, OsError> {
    let what = format!("read the processor time of process {pid}");
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).doing(what.clone())?;
    let mut nanoseconds = 0u64;
    for thread in threads {
        let path = thread.doing(what.clone())?.path().join("schedstat");
        let text = crate::read_text(path).doing(what.clone())?;
        nanoseconds += text.split(' ').next().and_then(|word| word.parse().ok()).unwrap_or(0);
    }
    Ok(Duration::from_nanos(nanoseconds).as_secs_f64())
}

/// Memory of process `pid` that is its own and that no file stands behind, in bytes.
///
/// # Errors
/// [`OsError`] if there is no such process, or the kernel does not report it.
pub fn anonymous_bytes(pid: u32) -> Result<u64, OsError> {
    let what = format!("read the memory of process {pid}");
    let text = crate::read_text(format!("/proc/{pid}/status")).doing(what.clone())?;
    let line = text.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    let kilobytes =
        line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    let missing = || std::io::Error::from(std::io::ErrorKind::InvalidData);
    kilobytes.map(|count| count * 1024).ok_or_else(missing).doing(what)
}

/// Gives memory that was freed back to the system. It takes milliseconds if there is much.
pub fn give_back_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: the function may be called at any time.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// The soft and the hard limit on `resource`; `None` where there is none, or the kernel does not report it.
pub(crate) fn limits(resource: libc::__rlimit_resource_t) -> (Option<u64>, Option<u64>) {
    let mut limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: the pointer is to a local; it keeps its value if the call fails.
    unsafe { libc::getrlimit(resource, &raw mut limit) };
    let known = |bytes| (bytes != libc::RLIM_INFINITY).then_some(bytes);
    (known(limit.rlim_cur), known(limit.rlim_max))
}

/// Checks `bytes` bytes for `what` against the limit on file sizes (`RLIMIT_FSIZE`). Beyond this limit the
/// kernel would not only refuse a call but also end the process with `SIGXFSZ`.
///
/// # Errors
/// [`OsError`] with both sizes, if the limit is exceeded.
pub(crate) fn check_file_size(bytes: u64, what: &str) -> Result<(), OsError> {
    match limits(libc::RLIMIT_FSIZE).0 {
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
    let (current, maximum) = limits(libc::RLIMIT_NOFILE);
    let raised = Rlimit { current: maximum, maximum };
    let is_raised = setrlimit(Resource::Nofile, raised).is_ok();
    if is_raised { maximum } else { current }.unwrap_or(u64::MAX)
}

/// Blocks every signal in this thread: for a thread that must not run the program's signal handlers.
pub fn block_all_signals() {
    // SAFETY: an all-zero set is valid.
    let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer is to a local.
    unsafe { libc::sigfillset(&raw mut set) };
    // SAFETY: the set is initialized, and the old set is not requested.
    unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_whose_first_thread_has_exited_is_not_ending() {
        // SAFETY: the child calls nothing but what a forked child of a process with several threads may call: it starts
        // a thread with the kernel's own call, and both threads use nothing else.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: as above.
            unsafe { exit_behind_a_thread() };
        }
        let pid = u32::try_from(child).unwrap();
        let life = life_of(pid).unwrap();
        let state = || {
            let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
            text.rsplit_once(')').unwrap().1.trim_start().chars().next()
        };
        while state() != Some('Z') {
            std::thread::yield_now();
        }
        assert!(!is_ending(&life, pid, Duration::ZERO));
        // SAFETY: ends the child, which has not been waited for.
        unsafe { libc::kill(child, libc::SIGKILL) };
        while !wait_readable(&[life.as_fd()], None).unwrap()[0] {}
        assert!(is_ending(&life, pid, Duration::ZERO));
        // SAFETY: a null pointer: the status is not wanted.
        unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
    }

    /// Starts a thread that waits for ever, and ends this one alone.
    ///
    /// # Safety
    /// In a forked child only.
    unsafe fn exit_behind_a_thread() -> ! {
        extern "C" fn pause(_: *mut libc::c_void) -> libc::c_int {
            loop {
                // SAFETY: waits for a signal.
                unsafe { libc::pause() };
            }
        }
        let mut stack = [0_u128; 1024];
        let flags = libc::CLONE_VM | libc::CLONE_SIGHAND | libc::CLONE_THREAD;
        // SAFETY: the stack stays: this thread exits without unwinding or leaving this frame.
        unsafe {
            libc::clone(pause, stack.as_mut_ptr_range().end.cast(), flags, std::ptr::null_mut())
        };
        // SAFETY: ends this thread.
        unsafe { libc::syscall(libc::SYS_exit, 0) };
        unreachable!("the thread has ended")
    }
}
