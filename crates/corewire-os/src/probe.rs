//! What this machine offers, for `corewire doctor`.

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

/// Soft and hard limit on descriptors.
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

/// Whether shared memory gets huge pages when a program asks for them.
#[must_use]
pub fn shared_huge_pages() -> Option<String> {
    chosen("/sys/kernel/mm/transparent_hugepage/shmem_enabled")
}

/// Can one process copy from another of the same user (`process_vm_readv`)? Tried on ourselves,
/// which a security policy refuses just as well; the reason if not.
///
/// # Errors
/// The reason.
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

/// Who may trace or copy from whom (`kernel.yama.ptrace_scope`); `None` where there is no Yama.
#[must_use]
pub fn ptrace_scope() -> Option<u32> {
    crate::read_text("/proc/sys/kernel/yama/ptrace_scope").ok()?.trim().parse().ok()
}

/// How many directories this user may watch at a time, by all its processes; `None` where the kernel does not
/// say. Whoever waits for a channel to appear watches one.
#[must_use]
pub fn watches_max() -> Option<u64> {
    crate::read_text("/proc/sys/fs/inotify/max_user_instances").ok()?.trim().parse().ok()
}

/// What governs the clock of processor `cpu`, as `performance` or `powersave`; `None` where the kernel does
/// not control it, as in a virtual machine.
#[must_use]
pub fn governor(cpu: usize) -> Option<String> {
    let path = format!("/sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_governor");
    Some(crate::read_text(path).ok()?.trim().to_owned())
}
