//! Reads the kernel's limits on message queues, and raises them where that disturbs no other process:
//! in an IPC namespace of this process, which has limits of its own.

use std::fs;

use nix::sched::{CloneFlags, unshare};
use nix::sys::resource::{RLIM_INFINITY, Resource, setrlimit};

/// A limit, in bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limit {
    file: &'static str,
    name: &'static str,
}

/// Maximum length of a message in a System V queue.
pub(super) const SYSTEM_V_MESSAGE: Limit =
    Limit { file: "/proc/sys/kernel/msgmax", name: "kernel.msgmax" };
/// Capacity of a System V queue.
pub(super) const SYSTEM_V_QUEUE: Limit =
    Limit { file: "/proc/sys/kernel/msgmnb", name: "kernel.msgmnb" };
/// Maximum length of a message in a POSIX queue.
pub(super) const POSIX_MESSAGE: Limit =
    Limit { file: "/proc/sys/fs/mqueue/msgsize_max", name: "fs.mqueue.msgsize_max" };
/// The highest value that the kernel allows for that limit.
const POSIX_MESSAGE_MAX: u64 = 16 << 20;
/// Number of long messages that a System V queue should hold.
const MESSAGES: u64 = 10;

impl Limit {
    /// The current value; `None` if the kernel does not provide it.
    pub(super) fn read(self) -> Option<u64> {
        fs::read_to_string(self.file).ok()?.trim().parse().ok()
    }

    /// Returns a message if `bytes` bytes exceed the limit.
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

/// Moves this process and its children into an IPC namespace of their own, if that is permitted, and
/// raises its limits so that messages of `bytes` bytes fit as far as the kernel allows. Returns which
/// limits apply then.
pub(crate) fn raise(bytes: u64) -> String {
    if let Err(error) = unshare(CloneFlags::CLONE_NEWIPC) {
        return format!("the machine's (a space of its own is refused: {error})");
    }
    let raised = SYSTEM_V_MESSAGE
        .raise_to(bytes)
        .and_then(|()| SYSTEM_V_QUEUE.raise_to(MESSAGES * bytes))
        .and_then(|()| POSIX_MESSAGE.raise_to(bytes.min(POSIX_MESSAGE_MAX)));
    // A process without the privilege keeps the limit, and opening a queue that exceeds it reports so.
    let _ = setrlimit(Resource::RLIMIT_MSGQUEUE, RLIM_INFINITY, RLIM_INFINITY);
    match raised {
        Ok(()) => "raised, in a space of its own (an IPC namespace)".to_owned(),
        Err(error) => format!("those of a space of its own; raising them is refused: {error}"),
    }
}
