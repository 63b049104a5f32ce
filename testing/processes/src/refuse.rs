//! A process that is refused a system call, as a container's filter may.

use std::io;

/// Has the kernel answer `membarrier` with EPERM from here on, for this process and its children.
pub(crate) fn refuse_membarrier() -> io::Result<()> {
    const LOAD_WORD: u16 = 0x20;
    const JUMP_IF_EQUAL: u16 = 0x15;
    const RETURN: u16 = 0x06;
    const ALLOW: u32 = 0x7fff_0000;
    const FAIL_WITH: u32 = 0x0005_0000;
    let instruction = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let refused = u32::try_from(libc::SYS_membarrier).unwrap_or(u32::MAX);
    let mut filter = [
        instruction(LOAD_WORD, 0, 0, 0),
        instruction(JUMP_IF_EQUAL, 0, 1, refused),
        instruction(RETURN, 0, 0, FAIL_WITH | libc::EPERM.unsigned_abs()),
        instruction(RETURN, 0, 0, ALLOW),
    ];
    let program = libc::sock_fprog { len: 4, filter: filter.as_mut_ptr() };
    // SAFETY: plain numbers.
    let first = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
    // SAFETY: the program and its filter outlive the call, and the length is right.
    let second =
        unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) };
    if first == 0 && second == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
