//! A process that is refused a system call, as a container's filter may.

use std::io;

use corewire::Domain;

use crate::{Options, Outcome};

/// Has the kernel answer `membarrier` with EPERM from here on, for this process and its children.
pub(crate) fn refuse_membarrier() -> io::Result<()> {
    refuse(libc::SYS_membarrier, libc::EPERM)
}

/// The same for `futex_waitv`, with what a kernel says that has no such call.
pub(crate) fn refuse_waitv() -> io::Result<()> {
    refuse(libc::SYS_futex_waitv, libc::ENOSYS)
}

/// A receiver that sleeps until the end of its standard input, or of the stream; it may lose
/// `membarrier` once it is joined.
pub(crate) fn sleep(domain: &Domain, options: &Options) -> Outcome {
    let mut receiver = domain.receiver(&options.channel).wait(options.wait).join_when_created()?;
    if options.is_filtered_later {
        refuse_membarrier()?;
    }
    println!("joined");
    println!("ended {:?}", receiver.receive().map(|message| message.to_vec()));
    Ok(())
}

/// A sender whose process cannot read from its sockets any more. Waits until it has given its
/// receiver up.
pub(crate) fn deaf_sender(domain: &Domain, options: &Options) -> Outcome {
    let mut sender = domain.sender(&options.channel).create()?;
    println!("created");
    sender.wait_for_receivers(1)?;
    refuse(libc::SYS_recvmsg, libc::ENOMEM)?;
    println!("deaf");
    while sender.receivers() > 0 {
        std::thread::yield_now();
    }
    println!("alone");
    // Not closed before the receiver has found out.
    io::stdin().read_line(&mut String::new())?;
    Ok(())
}

/// A receiver whose process cannot read from its sockets any more. Asks for an answer, and waits
/// for a message or the end.
pub(crate) fn deaf_receiver(domain: &Domain, options: &Options) -> Outcome {
    let mut receiver = domain.receiver(&options.channel).join_when_created()?;
    refuse(libc::SYS_recvmsg, libc::ENOMEM)?;
    let readiness = receiver.readiness().map(drop);
    println!("readiness {readiness:?}");
    println!("ended {:?}", receiver.receive().map(|message| message.to_vec()));
    Ok(())
}

/// Has the kernel answer `call` with `errno` from here on, for all threads of this process.
fn refuse(call: libc::c_long, errno: i32) -> io::Result<()> {
    const LOAD_WORD: u16 = 0x20;
    const JUMP_IF_EQUAL: u16 = 0x15;
    const RETURN: u16 = 0x06;
    const ALLOW: u32 = 0x7fff_0000;
    const FAIL_WITH: u32 = 0x0005_0000;
    let instruction = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let refused = u32::try_from(call).unwrap_or(u32::MAX);
    let mut filter = [
        instruction(LOAD_WORD, 0, 0, 0),
        instruction(JUMP_IF_EQUAL, 0, 1, refused),
        instruction(RETURN, 0, 0, FAIL_WITH | errno.unsigned_abs()),
        instruction(RETURN, 0, 0, ALLOW),
    ];
    let program = libc::sock_fprog { len: 4, filter: filter.as_mut_ptr() };
    // SAFETY: plain numbers.
    let first = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
    // SAFETY: the program and its filter outlive the call, and the length is right.
    let second = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            libc::SECCOMP_FILTER_FLAG_TSYNC,
            &raw const program,
        )
    };
    if first == 0 && second == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
