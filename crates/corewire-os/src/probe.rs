//! Features of this machine, for `corewire doctor`.

use std::io::{IoSlice, IoSliceMut};

use crate::process::limits;

/// The kernel's release, such as `6.12.1`.
#[must_use]
pub fn kernel_release() -> String {
    crate::read_text("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_owned()
}

/// Bytes that this process may lock in memory; `None` if there is no limit.
#[must_use]
pub fn lockable_bytes() -> Option<u64> {
    limits(libc::RLIMIT_MEMLOCK).0
}

/// Soft and hard limit on the number of descriptors.
#[must_use]
pub fn descriptor_limits() -> (u64, u64) {
    let (soft, hard) = limits(libc::RLIMIT_NOFILE);
    (soft.unwrap_or(u64::MAX), hard.unwrap_or(u64::MAX))
}

/// The chosen word of a kernel setting that lists its choices, such as `always [madvise] never`.
#[must_use]
pub fn chosen(path: &str) -> Option<String> {
    let text = crate::read_text(path).ok()?;
    let start = text.find('[')? + 1;
    let end = text[start..].find(']')? + start;
    Some(text[start..end].to_owned())
}

/// The kernel's setting for huge pages in shared memory; `None` where it has none.
#[must_use]
pub fn shared_huge_pages() -> Option<String> {
    chosen("/sys/kernel/mm/transparent_hugepage/shmem_enabled")
}

/// Checks whether one process can copy from another one of the same user (`process_vm_readv`). Tries
/// it on this process, which a security policy refuses in the same way.
///
/// # Errors
/// The reason why it cannot.
pub fn cross_process_copy() -> Result<(), String> {
    let source = [7u8; 8];
    let mut target = [0u8; 8];
    let local = [IoSliceMut::new(&mut target)];
    let remote = [IoSlice::new(&source)];
    let own = crate::process::pid().cast_signed();
    // SAFETY: both vectors describe live buffers of this process, and IoSlice is an iovec.
    let copied = unsafe {
        libc::process_vm_readv(own, local.as_ptr().cast(), 1, remote.as_ptr().cast(), 1, 0)
    };
    match copied {
        8 => Ok(()),
        _ => Err(std::io::Error::last_os_error().to_string()),
    }
}

/// Which processes may trace, or copy from, which others (`kernel.yama.ptrace_scope`); `None` without Yama.
#[must_use]
pub fn ptrace_scope() -> Option<u32> {
    crate::read_text("/proc/sys/kernel/yama/ptrace_scope").ok()?.trim().parse().ok()
}

/// Maximum number of directory watchers (inotify instances) of this user at one time, over all its processes;
/// `None` where the kernel does not report it. A process that waits for a channel to be created uses one.
#[must_use]
pub fn watches_max() -> Option<u64> {
    crate::read_text("/proc/sys/fs/inotify/max_user_instances").ok()?.trim().parse().ok()
}

/// The governor of the clock of processor `cpu`, for example `performance` or `powersave`; `None` where the
/// kernel does not control the clock, as in a virtual machine.
#[must_use]
pub fn governor(cpu: usize) -> Option<String> {
    let path = format!("/sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_governor");
    Some(crate::read_text(path).ok()?.trim().to_owned())
}
