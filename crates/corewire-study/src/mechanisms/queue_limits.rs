//! What the kernel allows message queues, and more of it where that disturbs nobody: in a space of
//! names of this process's own, whose limits are nobody else's.

use std::fs;

use nix::sched::{CloneFlags, unshare};
use nix::sys::resource::{RLIM_INFINITY, Resource, setrlimit};

/// A limit, in bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limit {
    file: &'static str,
    name: &'static str,
}

/// The longest message of a System V queue.
pub(super) const SYSTEM_V_MESSAGE: Limit =
    Limit { file: "/proc/sys/kernel/msgmax", name: "kernel.msgmax" };
/// What a System V queue holds.
pub(super) const SYSTEM_V_QUEUE: Limit =
    Limit { file: "/proc/sys/kernel/msgmnb", name: "kernel.msgmnb" };
/// The longest message of a POSIX queue.
pub(super) const POSIX_MESSAGE: Limit =
    Limit { file: "/proc/sys/fs/mqueue/msgsize_max", name: "fs.mqueue.msgsize_max" };
/// The most that the kernel lets that be.
const POSIX_MESSAGE_MAX: u64 = 16 << 20;
/// Long messages that a System V queue is to hold.
const MESSAGES: u64 = 10;

impl Limit {
    /// What it is; `None` if the kernel does not say.
    pub(super) fn read(self) -> Option<u64> {
        fs::read_to_string(self.file).ok()?.trim().parse().ok()
    }

    /// Says that messages of `bytes` bytes exceed it, if they do.
    pub(super) fn exceeded_by(self, bytes: usize) -> Option<String> {
        let allowed = self.read()?;
        (bytes as u64 > allowed).then(|| format!("{} is {allowed} bytes here", self.name))
    }

    fn raise_to(self, bytes: u64) -> std::io::Result<()> {
        if self.read().is_some_and(|allowed| allowed >= bytes) {
            return Ok(());
        }
        fs::write(self.file, bytes.to_string())
    }
}

/// Takes queues into a space of this process's own and its children's, if it may, where messages of
/// `bytes` bytes are allowed as far as the kernel can. Says whose limits hold then.
pub(crate) fn raise(bytes: u64) -> String {
    if let Err(error) = unshare(CloneFlags::CLONE_NEWIPC) {
        return format!("the machine's (a space of its own is refused: {error})");
    }
    let raised = SYSTEM_V_MESSAGE
        .raise_to(bytes)
        .and_then(|()| SYSTEM_V_QUEUE.raise_to(MESSAGES * bytes))
        .and_then(|()| POSIX_MESSAGE.raise_to(bytes.min(POSIX_MESSAGE_MAX)));
    // Whoever may not keeps the limit, and the queue that exceeds it says so.
    let _ = setrlimit(Resource::RLIMIT_MSGQUEUE, RLIM_INFINITY, RLIM_INFINITY);
    match raised {
        Ok(()) => "raised, in a space of its own (an IPC namespace)".to_owned(),
        Err(error) => format!("those of a space of its own; raising them is refused: {error}"),
    }
}
