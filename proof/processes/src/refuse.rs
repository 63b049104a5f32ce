//! A process that is refused a system call, as by the filter of a container.

use std::fs;
use std::io;
use std::time::Duration;

use corewire::Domain;

use crate::{Options, Outcome};

/// Makes the kernel answer `membarrier` with EPERM from here on, for this process and its children.
pub(crate) fn refuse_membarrier() -> io::Result<()> {
    refuse(libc::SYS_membarrier, None, libc::EPERM)
}

/// The same for `futex_waitv`, with the error of a kernel that does not have this call.
pub(crate) fn refuse_waitv() -> io::Result<()> {
    refuse(libc::SYS_futex_waitv, None, libc::ENOSYS)
}

/// The same for the peer's process descriptor, with the error of Linux before 6.5.
pub(crate) fn refuse_peer_life() -> io::Result<()> {
    /// `SO_PEERPIDFD`.
    const OPTION: u32 = 77;
    refuse(libc::SYS_getsockopt, Some((2, OPTION)), libc::ENOPROTOOPT)
}

/// Makes the kernel hide this process's memory from others of its user.
pub(crate) fn become_opaque() -> io::Result<()> {
    Ok(rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable)?)
}

/// Enters a user namespace of its own, in which its user has the same number. There must be no other thread.
pub(crate) fn enter_user_namespace() -> io::Result<()> {
    let (user, group) = (rustix::process::geteuid(), rustix::process::getegid());
    // SAFETY: there is no other thread, whose user would differ.
    unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWUSER) }?;
    let (user, group) = (user.as_raw(), group.as_raw());
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/uid_map", format!("{user} {user} 1"))?;
    fs::write("/proc/self/gid_map", format!("{group} {group} 1"))
}

/// Lets this process open so many descriptors and no more; what is open stays. `None` lets it open as many as it may.
pub(crate) fn limit_descriptors(more: Option<usize>) -> io::Result<()> {
    let mut limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    limit.current = limit.maximum;
    if let Some(more) = more {
        let is_free =
            |number: &u64| fs::symlink_metadata(format!("/proc/self/fd/{number}")).is_err();
        limit.current = (0..).filter(is_free).nth(more);
    }
    Ok(rustix::process::setrlimit(rustix::process::Resource::Nofile, limit)?)
}

/// Obeys lines `limit N` and `limit` of the standard input, then calls `stop`.
pub(crate) fn obey(stop: impl FnOnce() + Send + 'static) {
    std::thread::spawn(move || {
        for line in io::stdin().lines().map_while(Result::ok) {
            obey_line(&line);
        }
        stop();
    });
}

/// Obeys such a line. False if it is another one.
pub(crate) fn obey_line(line: &str) -> bool {
    let Some(more) = line.strip_prefix("limit") else { return false };
    match limit_descriptors(more.trim().parse().ok()) {
        Ok(()) => println!("limited"),
        Err(error) => println!("not limited: {error}"),
    }
    true
}

/// A receiver that prints what it receives. It may lose `membarrier` after it has joined.
pub(crate) fn sleep(domain: &Domain, options: &Options) -> Outcome {
    let mut receiver = domain.receiver(&options.channel).wait(options.wait).join_when_created()?;
    if options.is_filtered_later {
        refuse_membarrier()?;
    }
    println!("joined");
    loop {
        match receiver.receive() {
            Ok(message) => println!("received {}", String::from_utf8_lossy(&message)),
            Err(error) => {
                println!("ended {error:?}");
                return Ok(());
            }
        }
    }
}

/// Creates what its limit on file sizes forbids, and then what it allows.
pub(crate) fn limited(domain: &Domain, options: &Options) -> Outcome {
    let mut limit = rustix::process::getrlimit(rustix::process::Resource::Fsize);
    limit.current = Some(1 << 20);
    rustix::process::setrlimit(rustix::process::Resource::Fsize, limit)?;
    let create = |bytes| {
        let builder = domain.sender(&options.channel).slots(64).window_bytes(64 << 10);
        builder.largest_message(bytes).create().map(drop)
    };
    println!(
        "large {}",
        create(16 << 20).map_or_else(|error| error.to_string(), |()| "made".into())
    );
    println!("small {:?}", create(16 << 10));
    Ok(())
}

/// One of several senders, whose process has no descriptor left for anybody who connects to it. Sends a
/// message when it is told to.
pub(crate) fn crowded_sender(domain: &Domain, options: &Options) -> Outcome {
    let mut sender = domain.sender(&options.channel).open_shared(4)?;
    let mut crowd = Vec::new();
    let mut limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    limit.current = Some(64);
    rustix::process::setrlimit(rustix::process::Resource::Nofile, limit)?;
    while let Ok(descriptor) = rustix::io::dup(io::stdin()) {
        crowd.push(descriptor);
    }
    println!("crowded");
    io::stdin().read_line(&mut String::new())?;
    sender.send(b"alive")?;
    println!("sent");
    io::stdin().read_line(&mut String::new())?;
    Ok(())
}

/// A sender whose process can no longer read from its sockets. Sends a message when it is told to, and waits until it has
/// no receiver.
pub(crate) fn deaf_sender(domain: &Domain, options: &Options) -> Outcome {
    let mut sender = domain.sender(&options.channel).create()?;
    println!("created");
    sender.wait_for_receivers(1)?;
    refuse(libc::SYS_recvmsg, None, libc::ENOMEM)?;
    println!("deaf");
    io::stdin().read_line(&mut String::new())?;
    sender.send(b"alive")?;
    while sender.receivers() > 0 {
        std::thread::yield_now();
    }
    println!("alone");
    // Closes only after the receiver has noticed.
    io::stdin().read_line(&mut String::new())?;
    Ok(())
}

/// A receiver whose process can no longer read from its sockets. Sends a request, then waits for a
/// message or the end.
pub(crate) fn deaf_receiver(domain: &Domain, options: &Options) -> Outcome {
    let mut receiver = domain.receiver(&options.channel).join_when_created()?;
    refuse(libc::SYS_recvmsg, None, libc::ENOMEM)?;
    let readiness = receiver.readiness().map(drop);
    println!("readiness {readiness:?}");
    println!("ended {:?}", receiver.receive().map(|message| message.to_vec()));
    Ok(())
}

/// Makes the kernel answer `call` with `errno` from here on, for all threads of this process, except for what
/// is read from or written to standard input, output and error.
pub(crate) fn refuse_beyond_streams(call: libc::c_long, errno: i32) -> io::Result<()> {
    if call == libc::SYS_read || call == libc::SYS_write {
        let filter = &mut [
            instruction(LOAD_WORD, 0, 0, 0),
            instruction(JUMP_IF_EQUAL, 0, 3, number(call)),
            instruction(LOAD_WORD, 0, 0, 16),
            instruction(JUMP_IF_GREATER, 0, 1, 2),
            instruction(RETURN, 0, 0, FAIL_WITH | errno.unsigned_abs()),
            instruction(RETURN, 0, 0, ALLOW),
        ];
        return install(filter, libc::SECCOMP_FILTER_FLAG_TSYNC);
    }
    refuse(call, None, errno)
}

/// A sender that is idle until it is told to send a hundred messages.
pub(crate) fn quiet_sender(domain: &Domain, options: &Options) -> Outcome {
    let mut sender = domain.sender(&options.channel).slots(64).window_bytes(64 << 10).create()?;
    println!("created");
    if sender.wait_for_receivers_timeout(1, Duration::from_secs(15))? == 0 {
        return Err("no receiver has joined".into());
    }
    println!("ready");
    io::stdin().read_line(&mut String::new())?;
    for number in 0..100u64 {
        sender.send(&number.to_le_bytes())?;
    }
    // The last ones are read before the channel closes: a peer that cannot be told has read them.
    sender.drain(Duration::from_secs(20))?;
    println!("done");
    io::stdin().read_line(&mut String::new())?;
    Ok(())
}

/// A receiver that is idle until messages come.
pub(crate) fn quiet_receiver(domain: &Domain, options: &Options) -> Outcome {
    let mut receiver = domain.receiver(&options.channel).join_when_created()?;
    println!("ready");
    for number in 0..100u64 {
        let message = receiver.receive()?;
        if message[..] != number.to_le_bytes() {
            return Err(format!("message {number} is another").into());
        }
    }
    receiver.acknowledge();
    println!("done");
    io::stdin().read_line(&mut String::new())?;
    Ok(())
}

/// Says what `corewire doctor` would say of the kernel.
pub(crate) fn say_what_is_found() -> Outcome {
    let linux = corewire_os::sleep::Linux::get();
    println!("found membarrier={} waitv={}", linux.has_membarrier(), linux.has_waitv());
    Ok(())
}

const LOAD_WORD: u16 = 0x20;
const JUMP_IF_EQUAL: u16 = 0x15;
const JUMP_IF_GREATER: u16 = 0x25;
const RETURN: u16 = 0x06;
const ALLOW: u32 = 0x7fff_0000;
const FAIL_WITH: u32 = 0x0005_0000;

fn instruction(code: u16, jt: u8, jf: u8, k: u32) -> libc::sock_filter {
    libc::sock_filter { code, jt, jf, k }
}

fn number(call: libc::c_long) -> u32 {
    u32::try_from(call).unwrap_or(u32::MAX)
}

/// Makes the kernel answer `call` with `errno` from here on, for all threads of this process; or only if
/// the argument with the given number has the given value.
fn refuse(call: libc::c_long, argument: Option<(u32, u32)>, errno: i32) -> io::Result<()> {
    install(&mut refusal(call, argument, errno), libc::SECCOMP_FILTER_FLAG_TSYNC)
}

/// Refuses this thread, or with the flag `TSYNC` all threads, to hand a lock over to a thread that waits for it in
/// the kernel.
pub(crate) fn refuse_unlock_pi(flags: libc::c_ulong) -> io::Result<()> {
    const UNLOCK_PI_PRIVATE: u32 = 7 | 128;
    install(&mut refusal(libc::SYS_futex, Some((1, UNLOCK_PI_PRIVATE)), libc::EPERM), flags)
}

fn refusal(call: libc::c_long, argument: Option<(u32, u32)>, errno: i32) -> [libc::sock_filter; 6] {
    // The call's number lies at 0, its arguments, of 8 bytes each, from 16 on.
    let (offset, value) =
        argument.map_or((0, number(call)), |(index, value)| (16 + 8 * index, value));
    [
        instruction(LOAD_WORD, 0, 0, 0),
        instruction(JUMP_IF_EQUAL, 0, 3, number(call)),
        instruction(LOAD_WORD, 0, 0, offset),
        instruction(JUMP_IF_EQUAL, 0, 1, value),
        instruction(RETURN, 0, 0, FAIL_WITH | errno.unsigned_abs()),
        instruction(RETURN, 0, 0, ALLOW),
    ]
}

fn install(filter: &mut [libc::sock_filter], flags: libc::c_ulong) -> io::Result<()> {
    let len = u16::try_from(filter.len()).map_err(io::Error::other)?;
    let program = libc::sock_fprog { len, filter: filter.as_mut_ptr() };
    // SAFETY: integer arguments only.
    let first = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
    // SAFETY: the program and its filter outlive the call, and the length is right.
    let second = unsafe {
        libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &raw const program)
    };
    if first == 0 && second == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
