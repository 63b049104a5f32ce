//! Passes this process's system calls to a supervisor, by the user notification of seccomp.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

/// The system call that carries a mark. The supervisor answers it instead of the kernel.
const MARK_CALL: libc::c_long = libc::SYS_getpriority;
/// The first argument of that call. The kernel would refuse it.
const MARK: libc::c_long = 0x636f_7265;

/// Makes the kernel pass every call in `numbers` that any thread of this process makes from here on
/// to the holder of the returned descriptor. Exempt are reads and writes through standard input,
/// output and error. The process must have only one thread.
pub(crate) fn put_before_supervisor(numbers: &[u32]) -> io::Result<OwnedFd> {
    const LOAD_WORD: u16 = 0x20;
    const JUMP_IF_EQUAL: u16 = 0x15;
    const JUMP_IF_GREATER: u16 = 0x25;
    const RETURN: u16 = 0x06;
    const ALLOW: u32 = 0x7fff_0000;
    const FIRST_ARGUMENT: u32 = 16;
    let instruction = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let number = |call: libc::c_long| u32::try_from(call).unwrap_or(u32::MAX);
    let streams = [libc::SYS_read, libc::SYS_write, libc::SYS_sendmsg, libc::SYS_recvmsg];
    let mut filter = vec![instruction(LOAD_WORD, 0, 0, 0)];
    for call in streams.map(number) {
        // A call that is not in the list is allowed anyway.
        if numbers.contains(&call) {
            filter.push(instruction(JUMP_IF_EQUAL, 0, 4, call));
            filter.push(instruction(LOAD_WORD, 0, 0, FIRST_ARGUMENT));
            filter.push(instruction(JUMP_IF_GREATER, 0, 1, 2));
            filter.push(instruction(RETURN, 0, 0, libc::SECCOMP_RET_USER_NOTIF));
            filter.push(instruction(RETURN, 0, 0, ALLOW));
        }
    }
    for &call in numbers.iter().chain(&[number(MARK_CALL)]) {
        filter.push(instruction(JUMP_IF_EQUAL, 0, 1, call));
        filter.push(instruction(RETURN, 0, 0, libc::SECCOMP_RET_USER_NOTIF));
    }
    filter.push(instruction(RETURN, 0, 0, ALLOW));
    let len = u16::try_from(filter.len()).map_err(io::Error::other)?;
    let program = libc::sock_fprog { len, filter: filter.as_mut_ptr() };
    // SAFETY: integer arguments only.
    if unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the program and its filter outlive the call, and the length is right.
    let listener = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            libc::SECCOMP_FILTER_FLAG_NEW_LISTENER,
            &raw const program,
        )
    };
    match i32::try_from(listener) {
        // SAFETY: a new descriptor that the kernel has just returned.
        Ok(listener) if listener >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(listener) }),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Sends `listener` through the socket that is standard input.
pub(crate) fn hand_over(listener: &OwnedFd) -> io::Result<()> {
    let descriptors: [BorrowedFd<'_>; 1] = [listener.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(&descriptors));
    let stdin = io::stdin();
    sendmsg(&stdin, &[IoSlice::new(b"l")], &mut control, SendFlags::empty())?;
    Ok(())
}

/// Tells the supervisor how far this thread is. The supervisor may make the thread wait.
pub(crate) fn mark(mark: i32) {
    // SAFETY: integer arguments only, which the kernel never sees.
    unsafe { libc::syscall(MARK_CALL, MARK, libc::c_long::from(mark)) };
}
