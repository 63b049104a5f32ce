//! The system calls that corewire makes, and how each can fail.
//!
//! Omitted are calls that cannot fail where corewire makes them: `close` releases the descriptor
//! whatever it returns; `munmap` removes a whole mapping; a write to a nonblocking eventfd fails
//! only if the eventfd is readable already; and the calls that only query (`geteuid`,
//! `sched_getcpu`, `prlimit64` without a new limit).

use libc::{
    EACCES, EAGAIN, EINTR, EMFILE, ENFILE, ENOBUFS, ENOMEM, ENOSPC, EPERM, c_long, seccomp_data,
};

/// A system call.
pub(crate) struct Call {
    pub(crate) number: c_long,
    pub(crate) name: &'static str,
    /// The errors that it can return.
    pub(crate) errors: &'static [i32],
}

/// `name: ERRORS` for each call.
macro_rules! calls {
    ($($(#[$only:meta])? $number:ident $name:literal $errors:expr,)*) => {
        &[$($(#[$only])? Call { number: libc::$number, name: $name, errors: $errors },)*]
    };
}

pub(crate) static CALLS: &[Call] = calls! {
    SYS_memfd_create "memfd_create" &[EMFILE, ENOMEM, EACCES, ENFILE, EPERM],
    SYS_ftruncate "ftruncate" &[EINTR, ENOMEM, EPERM],
    SYS_fallocate "fallocate" &[EINTR, ENOSPC, ENOMEM, EPERM],
    SYS_mmap "mmap" &[ENOMEM, EAGAIN, EPERM, EACCES],
    SYS_madvise "madvise" &[ENOMEM, EAGAIN, EPERM],
    SYS_fcntl "fcntl" &[EPERM, EMFILE, EACCES],
    SYS_openat "openat" &[EINTR, EMFILE, ENOMEM, EACCES, ENOSPC, ENFILE, EPERM],
    SYS_mkdirat "mkdirat" &[EACCES, ENOSPC, ENOMEM, EPERM],
    SYS_flock "flock" &[EINTR, ENOMEM, EAGAIN],
    SYS_fstat "fstat" &[ENOMEM, EACCES],
    SYS_newfstatat "newfstatat" &[EACCES, ENOMEM],
    SYS_statx "statx" &[EACCES, ENOMEM],
    SYS_fchmod "fchmod" &[EINTR, EPERM, ENOMEM],
    SYS_fchmodat "fchmodat" &[EINTR, EPERM, EACCES, ENOMEM],
    SYS_fchown "fchown" &[EINTR, EPERM, ENOMEM],
    SYS_renameat "renameat" &[EACCES, ENOSPC, ENOMEM, EPERM],
    SYS_renameat2 "renameat2" &[EACCES, ENOSPC, ENOMEM, EPERM],
    SYS_unlinkat "unlinkat" &[EACCES, ENOMEM, EPERM],
    SYS_socket "socket" &[EMFILE, ENOMEM, EACCES, ENFILE, ENOBUFS],
    SYS_bind "bind" &[EACCES, ENOMEM, ENOSPC, EPERM],
    SYS_listen "listen" &[EPERM, ENOMEM],
    SYS_connect "connect" &[EINTR, EAGAIN, EACCES, ENOMEM, EPERM],
    SYS_accept4 "accept4" &[EINTR, EAGAIN, EMFILE, ENOMEM, ENFILE, ENOBUFS, EPERM],
    SYS_sendmsg "sendmsg" &[EINTR, EAGAIN, ENOMEM, ENOBUFS, EPERM],
    SYS_recvmsg "recvmsg" &[EINTR, EAGAIN, ENOMEM],
    SYS_setsockopt "setsockopt" &[ENOMEM, EPERM],
    SYS_getsockopt "getsockopt" &[EMFILE, ENOMEM, EPERM],
    SYS_ioctl "ioctl" &[EPERM, ENOMEM],
    SYS_epoll_create1 "epoll_create1" &[EMFILE, ENOMEM, ENFILE],
    SYS_epoll_ctl "epoll_ctl" &[ENOMEM, ENOSPC, EPERM],
    #[cfg(target_arch = "x86_64")] SYS_epoll_wait "epoll_wait" &[EINTR],
    SYS_epoll_pwait "epoll_pwait" &[EINTR],
    SYS_epoll_pwait2 "epoll_pwait2" &[EINTR],
    SYS_eventfd2 "eventfd2" &[EMFILE, ENOMEM, ENFILE],
    SYS_inotify_init1 "inotify_init1" &[EMFILE, ENOMEM, ENFILE],
    SYS_inotify_add_watch "inotify_add_watch" &[ENOSPC, ENOMEM, EACCES],
    SYS_pidfd_open "pidfd_open" &[EMFILE, ENOMEM, ENFILE, EPERM],
    SYS_getrandom "getrandom" &[EINTR, EAGAIN],
    SYS_futex "futex" &[EINTR, EAGAIN, ENOMEM],
    SYS_futex_waitv "futex_waitv" &[EINTR, EAGAIN, ENOMEM],
    SYS_membarrier "membarrier" &[ENOMEM, EPERM],
    SYS_prlimit64 "prlimit64" &[EPERM],
    SYS_clone3 "clone3" &[EAGAIN, ENOMEM, EPERM],
    SYS_pwrite64 "pwrite64" &[EINTR, ENOSPC, EPERM],
    SYS_read "read" &[EINTR, EAGAIN, ENOMEM],
    SYS_preadv2 "preadv2" &[EAGAIN],
    #[cfg(target_arch = "x86_64")] SYS_poll "poll" &[EINTR, ENOMEM],
    SYS_ppoll "ppoll" &[EINTR, ENOMEM],
    SYS_getdents64 "getdents64" &[EINTR, ENOMEM, EACCES],
    #[cfg(target_arch = "x86_64")] SYS_open "open" &[EINTR, EMFILE, ENOMEM, EACCES, EPERM],
    #[cfg(target_arch = "x86_64")] SYS_mkdir "mkdir" &[EACCES, ENOSPC, ENOMEM, EPERM],
    #[cfg(target_arch = "x86_64")] SYS_clone "clone" &[EAGAIN, ENOMEM, EPERM],
};

/// Whether corewire made this call. The allocator, the standard library and the C library also map
/// memory, take locks and request random numbers.
pub(crate) fn is_corewires(call: &Call, data: &seccomp_data) -> bool {
    let has = |index: usize, bits: i32| data.args[index] & u64::from(bits.unsigned_abs()) != 0;
    let is = |index: usize, value: i32| data.args[index] == u64::from(value.unsigned_abs());
    match call.name {
        // A segment; the table of rows; the stack of the control thread. The standard library
        // panics in a new thread that gets no signal stack.
        "mmap" => {
            let is_stack = has(3, libc::MAP_STACK) && is(2, libc::PROT_NONE);
            has(3, libc::MAP_SHARED) || is(2, libc::PROT_READ) || is_stack
        }
        // Removing a descriptor from a set fails only if it is not in the set.
        "epoll_ctl" => !is(1, libc::EPOLL_CTL_DEL),
        "madvise" => is(2, libc::MADV_DONTFORK) || is(2, libc::MADV_POPULATE_WRITE),
        "futex" => !has(1, libc::FUTEX_PRIVATE_FLAG),
        "fcntl" => [libc::F_ADD_SEALS, libc::F_GET_SEALS, libc::F_DUPFD_CLOEXEC]
            .iter()
            .any(|it| is(1, *it)),
        "getrandom" => is(2, 0),
        "prlimit64" => data.args[2] != 0,
        _ => true,
    }
}

pub(crate) fn error_name(errno: i32) -> &'static str {
    match errno {
        EACCES => "EACCES",
        EAGAIN => "EAGAIN",
        EINTR => "EINTR",
        EMFILE => "EMFILE",
        ENFILE => "ENFILE",
        ENOBUFS => "ENOBUFS",
        ENOMEM => "ENOMEM",
        ENOSPC => "ENOSPC",
        EPERM => "EPERM",
        _ => "another error",
    }
}
