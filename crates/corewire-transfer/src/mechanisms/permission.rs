//! Whether the kernel lets this process reach a peer's memory, and why not.
//!
//! The kernel answers `EPERM` to all who may not, for whatever reason. The reason is then found in what it publishes in
//! `/proc`. It decides per peer and direction, and anew at each call: a process can give up rights, install a filter, or
//! forbid others to look at it, at any time. So an answer is never kept.
//!
//! | the kernel asks (`ptrace_may_access`) | reason |
//! |---|---|
//! | does a filter allow the call? | [`Reason::Seccomp`] |
//! | the same user, or a right over all? | [`Reason::OtherUser`], [`Reason::OtherUserNamespace`] |
//! | may it be dumped? | [`Reason::NotDumpable`] |
//! | has it rights that this process lacks? | [`Reason::MorePrivileged`] |
//! | Yama: is it a descendant, or has it allowed this process? | [`Reason::Yama`] |

use std::os::unix::fs::MetadataExt;

use corewire_os::{OsError, probe, read_text};

use crate::kernel_copy::{Refusal, try_read, try_write};
use crate::mechanisms::trace_call;

/// A system call that reaches another process's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Call {
    Read,
    Write,
    Ptrace,
}

impl Call {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Read => "process_vm_readv",
            Self::Write => "process_vm_writev",
            Self::Ptrace => "ptrace",
        }
    }
}

/// Why a mechanism is not possible with a peer.
///
/// # Example
/// ```
/// use corewire_transfer::mechanisms::{KernelPut, Mechanism, PairLink, Peer, Reason, Role};
///
/// // A put is a write by another process.
/// let (link, _) = PairLink::between_threads(16, 16 << 10)?;
/// let put = KernelPut::initialise(Peer::own()?, Role::Source, link);
/// assert_eq!(put.unwrap_err(), Reason::SameProcess);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Reason {
    /// A filter refuses the call to this process.
    #[error("a seccomp filter refuses {call} to this process ({error})")]
    Seccomp {
        /// The call.
        call: &'static str,
        /// `EPERM` or `ENOSYS`, as the filter answers.
        error: &'static str,
    },
    /// The kernel was built without the call.
    #[error("this kernel has no {call} (CONFIG_CROSS_MEMORY_ATTACH)")]
    NoSuchCall {
        /// The call.
        call: &'static str,
    },
    /// The peer is not visible.
    #[error("the peer belongs to another PID namespace and is not visible here")]
    OtherPidNamespace,
    /// The peer belongs to another user namespace.
    #[error("the peer belongs to another user namespace")]
    OtherUserNamespace,
    /// The peer belongs to another user or group.
    #[error(
        "the peer's user or group is {peer}, this process's is {own}, and it lacks CAP_SYS_PTRACE"
    )]
    OtherUser {
        /// This process's real user, or its group if the users are the same.
        own: u32,
        /// The peer's, the first of its three that differs.
        peer: u32,
    },
    /// The peer does not allow it.
    #[error("the peer is not dumpable (PR_SET_DUMPABLE, or it has changed its user)")]
    NotDumpable,
    /// The peer has capabilities that this process lacks.
    #[error("the peer has capabilities that this process lacks")]
    MorePrivileged,
    /// The security module Yama does not allow it.
    #[error("Yama does not permit it (kernel.yama.ptrace_scope is {scope})")]
    Yama {
        /// The setting.
        scope: u32,
    },
    /// A debugger, or another such process, is attached to the peer.
    #[error("process {by} traces the peer already")]
    Traced {
        /// Its number.
        by: u32,
    },
    /// The peer is this process.
    #[error("the peer is this process: another process must write or stop it")]
    SameProcess,
    /// The peer has ended.
    #[error("the peer's process has ended")]
    Ended,
    /// The kernel gives no reason that this process can see: another security module, for example.
    #[error("the kernel does not permit {call} (EPERM), for a reason that it does not publish")]
    NotPermitted {
        /// The call.
        call: &'static str,
    },
    /// The memory for the mechanism cannot be made, or something else failed.
    #[error(transparent)]
    Os(#[from] OsError),
}

/// Checks whether this process may read the memory of process `pid`, 0 if it is not visible.
pub(crate) fn may_read(pid: u32) -> Result<(), Reason> {
    check(pid, Call::Read, try_read(pid))
}

/// The same for writes. Nothing is written.
pub(crate) fn may_write(pid: u32) -> Result<(), Reason> {
    if pid == std::process::id() {
        return Err(Reason::SameProcess);
    }
    check(pid, Call::Write, try_write(pid))
}

fn check(pid: u32, call: Call, answer: Result<(), Refusal>) -> Result<(), Reason> {
    answer.map_err(|refusal| explain(pid, call, refusal))
}

/// Why the kernel has answered `refusal` to `call` for process `pid`.
pub(crate) fn explain(pid: u32, call: Call, refusal: Refusal) -> Reason {
    let name = call.name();
    match refusal {
        Refusal::Invisible => Reason::OtherPidNamespace,
        Refusal::NoProcess => Reason::Ended,
        Refusal::Unsupported if is_filtered() => Reason::Seccomp { call: name, error: "ENOSYS" },
        Refusal::Unsupported => Reason::NoSuchCall { call: name },
        Refusal::Other(errno) => Reason::Os(OsError { what: name.into(), errno }),
        Refusal::NotPermitted | Refusal::OtherProcess | Refusal::NotMapped => {
            if is_refused_here(call) {
                Reason::Seccomp { call: name, error: "EPERM" }
            } else {
                explain_peer(pid, name)
            }
        }
    }
}

/// Whether the call is refused whatever the process: for this one, or for one that does not exist.
fn is_refused_here(call: Call) -> bool {
    let own = std::process::id();
    let answer = match call {
        Call::Read => try_read(own),
        Call::Write => try_write(own),
        Call::Ptrace => trace_call::try_call(),
    };
    answer == Err(Refusal::NotPermitted)
}

/// Whether this process has a filter.
fn is_filtered() -> bool {
    Status::of("thread-self")
        .is_some_and(|own| own.field("Seccomp:").is_some_and(|mode| mode != "0"))
}

fn explain_peer(pid: u32, call: &'static str) -> Reason {
    let unknown = Reason::NotPermitted { call };
    let (Some(own), Some(peer)) = (Status::of("thread-self"), Status::of(&pid.to_string())) else {
        return unknown;
    };
    if let Some(by) = peer.field("TracerPid:").and_then(|by| by.parse().ok()).filter(|by| *by != 0)
        && call == Call::Ptrace.name()
    {
        return Reason::Traced { by };
    }
    let map = |of: &str| read_text(format!("/proc/{of}/uid_map")).ok();
    if map("self") != map(&pid.to_string()) {
        return Reason::OtherUserNamespace;
    }
    // Real, effective, saved, and that of file accesses. The kernel compares the first three of the peer.
    let (users, groups) = (peer.ids("Uid:"), peer.ids("Gid:"));
    let (user, group) = (own.ids("Uid:"), own.ids("Gid:"));
    let differs = |theirs: &[u32], own: &[u32]| {
        let own = *own.first()?;
        theirs.iter().take(3).copied().find(|id| *id != own).map(|peer| (own, peer))
    };
    if let Some((own, peer)) = differs(&users, &user).or_else(|| differs(&groups, &group)) {
        return Reason::OtherUser { own, peer };
    }
    // The files of a process that cannot be dumped belong to root.
    let owner = std::fs::metadata(format!("/proc/{pid}/status")).ok().map(|file| file.uid());
    if owner.is_some() && owner != user.get(1).copied() {
        return Reason::NotDumpable;
    }
    let capabilities = |of: &Status| u64::from_str_radix(of.field("CapPrm:")?, 16).ok();
    if let (Some(own), Some(peer)) = (capabilities(&own), capabilities(&peer))
        && peer & !own != 0
    {
        return Reason::MorePrivileged;
    }
    match probe::ptrace_scope() {
        Some(scope @ 1..) => Reason::Yama { scope },
        _ => unknown,
    }
}

/// `/proc/<pid>/status`.
struct Status(String);

impl Status {
    fn of(process: &str) -> Option<Self> {
        read_text(format!("/proc/{process}/status")).ok().map(Self)
    }

    fn field(&self, name: &str) -> Option<&str> {
        self.0.lines().find_map(|line| line.strip_prefix(name)).map(str::trim)
    }

    fn ids(&self, name: &str) -> Vec<u32> {
        let ids = self.field(name).unwrap_or_default();
        ids.split_whitespace().filter_map(|id| id.parse().ok()).collect()
    }
}
