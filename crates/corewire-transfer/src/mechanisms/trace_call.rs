//! The calls of `ptrace` that use no memory of this process.

use crate::kernel_copy::Refusal;

/// Asks whether this process may call `ptrace` at all.
///
/// # Errors
/// Why not.
pub(crate) fn try_call() -> Result<(), Refusal> {
    // No process has this number.
    match request(libc::PTRACE_SEIZE, libc::pid_t::MAX, 0) {
        Ok(()) | Err(Refusal::NoProcess) => Ok(()),
        Err(refusal) => Err(refusal),
    }
}

/// Asks the kernel for something about process `pid`.
///
/// # Errors
/// Why not.
pub(crate) fn request(request: libc::c_uint, pid: libc::pid_t, data: usize) -> Result<(), Refusal> {
    let data = std::ptr::without_provenance_mut::<libc::c_void>(data);
    // SAFETY: seize, interrupt and detach use no memory of this process; `data` is a number.
    let done = unsafe { libc::ptrace(request, pid, std::ptr::null_mut::<libc::c_void>(), data) };
    if done == -1 { Err(Refusal::last()) } else { Ok(()) }
}
