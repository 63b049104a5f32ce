//! Lets a role's system calls through one by one, except for one, which it makes fail. The calling
//! thread waits meanwhile. Nothing in its memory or registers is changed, so this is independent of
//! the processor.

use std::collections::HashMap;
use std::fmt;
use std::io::{IoSliceMut, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};

use crate::calls::{CALLS, error_name, is_corewires};
use crate::peers::Peer;
use crate::roles::Directory;

/// The marks of the role; `src/faults.rs` has the same.
pub(crate) mod marks {
    pub(crate) const BEGIN: u64 = 1;
    pub(crate) const PAUSE: u64 = 2;
    pub(crate) const RESUME: u64 = 3;
    pub(crate) const HELPER: u64 = 4;
    pub(crate) const CREATED: u64 = 5;
    pub(crate) const OVER: u64 = 6;
    pub(crate) const END: u64 = 7;
    pub(crate) const WANTED: u64 = 8;
}

/// The system call that carries a mark.
const MARK_CALL: libc::c_long = libc::SYS_getpriority;
const MARK: u64 = 0x636f_7265;
/// A role that hangs is killed after this time. A successful run never waits this long.
pub(crate) const LIMIT: Duration = Duration::from_secs(30);

/// A thread of a role.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Thread {
    First,
    Helper,
    Control,
}

/// One system call of a run: the `count`-th of its kind in its thread, counted from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Site {
    pub(crate) thread: Thread,
    /// Its index in [`CALLS`].
    pub(crate) call: usize,
    pub(crate) count: usize,
}

/// The call that must fail, and its error.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fault {
    pub(crate) site: Site,
    pub(crate) errno: i32,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Site { thread, call, count } = self.site;
        let (name, errno) = (CALLS[call].name, error_name(self.errno));
        write!(f, "{name} number {count} of thread {thread:?} with {errno}")
    }
}

/// The result of a run of a role.
pub(crate) struct Run {
    /// The calls of its first round, in the order in which they were made.
    pub(crate) sites: Vec<Site>,
    pub(crate) is_injected: bool,
    pub(crate) is_timed_out: bool,
    pub(crate) is_success: bool,
    /// What the role printed.
    pub(crate) lines: Vec<String>,
    /// What the role wrote to standard error.
    pub(crate) complaint: String,
}

/// Confirms a mark, which lets the marking thread continue.
pub(crate) struct Reply {
    listener: Arc<OwnedFd>,
    id: u64,
}

impl Reply {
    pub(crate) fn go_on(self) {
        respond(&self.listener, self.id, 0, 0);
    }
}

/// Runs `scenario` in `directory` with `fault`. Returns `None` if the kernel here cannot pass calls
/// to a supervisor; then the reason has been printed.
pub(crate) fn supervise(
    scenario: &str,
    directory: &Directory,
    fault: Option<Fault>,
    peer: &mut Peer,
) -> Option<Run> {
    let numbers: Vec<String> = CALLS.iter().map(|call| call.number.to_string()).collect();
    let (ours, theirs) = UnixStream::pair().unwrap();
    let child = Command::new(env!("CARGO_BIN_EXE_corewire-role"))
        .arg("faults")
        .arg(directory.path())
        .args([scenario, &numbers.join(",")])
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut role = Supervised { child, calls: Calls::default(), is_injected: false, fault };
    let Some(listener) = listener_from(&ours) else {
        let output = role.child.wait_with_output().unwrap();
        let reason = String::from_utf8_lossy(&output.stdout);
        say(&format!("SKIPPED: system calls cannot be put before a supervisor here: {reason}"));
        return None;
    };
    let listener = Arc::new(listener);
    rustix::io::write(&ours, b"g").unwrap();
    let is_timed_out = !role.follow(&listener, peer);
    if is_timed_out {
        role.child.kill().unwrap();
    }
    drop(listener);
    let output = role.child.wait_with_output().unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    Some(Run {
        sites: role.calls.made,
        is_injected: role.is_injected,
        is_timed_out,
        is_success: output.status.success(),
        lines: printed.lines().map(str::to_owned).collect(),
        complaint: String::from_utf8_lossy(&output.stderr).into_owned(),
    })
}

/// Prints a line that is visible even if the test passes.
pub(crate) fn say(line: &str) {
    std::io::stdout().write_all(format!("{}\n", line.trim_end()).as_bytes()).unwrap();
}

/// The descriptor that the role sends. `None` if the role ends first.
fn listener_from(socket: &UnixStream) -> Option<OwnedFd> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let flags = RecvFlags::CMSG_CLOEXEC;
    recvmsg(socket, &mut [IoSliceMut::new(&mut byte)], &mut control, flags).ok()?;
    control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    })
}

/// The calls of a run so far.
#[derive(Default)]
struct Calls {
    made: Vec<Site>,
    counts: HashMap<(Thread, usize), usize>,
    helpers: Vec<u32>,
    rounds: u32,
    is_over: bool,
    is_paused: bool,
}

struct Supervised {
    child: Child,
    calls: Calls,
    is_injected: bool,
    fault: Option<Fault>,
}

impl Supervised {
    /// Serves the role until it ends. Returns false if it does not end in time.
    fn follow(&mut self, listener: &Arc<OwnedFd>, peer: &mut Peer) -> bool {
        let deadline = Instant::now() + LIMIT;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let left = Timespec::try_from(left).unwrap();
            let mut polled = [PollFd::new(&**listener, PollFlags::IN)];
            match poll(&mut polled, Some(&left)) {
                Ok(0) => return false,
                Err(Errno::INTR) => continue,
                other => other.unwrap(),
            };
            if !polled[0].revents().contains(PollFlags::IN) {
                return true;
            }
            if let Some(notice) = next(listener) {
                self.serve(listener, &notice, peer);
            }
        }
    }

    fn serve(&mut self, listener: &Arc<OwnedFd>, notice: &libc::seccomp_notif, peer: &mut Peer) {
        let data = &notice.data;
        let number = libc::c_long::from(data.nr);
        if number == MARK_CALL && data.args[0] == MARK {
            let reply = Reply { listener: Arc::clone(listener), id: notice.id };
            return self.on_mark(data.args[1], notice.pid, reply, peer);
        }
        let is_first = notice.pid == self.child.id();
        // Two descriptors: the watch on the directory and the bell. Now the role can be invited.
        if is_first && number == poll_number(number) && data.args[1] == 2 {
            peer.on_wait();
        }
        match self.calls.count(notice.pid, is_first, data) {
            Some(site) if self.fault.is_some_and(|fault| fault.site == site) => {
                self.is_injected = true;
                let errno = self.fault.map_or(0, |fault| fault.errno);
                respond(listener, notice.id, -errno, 0);
            }
            _ => respond(listener, notice.id, 0, CONTINUE),
        }
    }

    fn on_mark(&mut self, mark: u64, thread: u32, reply: Reply, peer: &mut Peer) {
        let calls = &mut self.calls;
        match mark {
            marks::BEGIN => {
                calls.rounds += 1;
                (calls.is_over, calls.is_paused) = (false, false);
            }
            marks::PAUSE => calls.is_paused = true,
            marks::RESUME => calls.is_paused = false,
            marks::HELPER => calls.helpers.push(thread),
            marks::CREATED => return peer.on_created(reply),
            marks::WANTED => peer.on_wanted(),
            marks::OVER => {
                calls.is_paused = true;
                return peer.on_over(reply);
            }
            marks::END => calls.is_over = true,
            other => panic!("a role marks {other}"),
        }
        reply.go_on();
    }
}

impl Calls {
    /// Returns the site of this call if it counts.
    fn count(&mut self, thread: u32, is_first: bool, data: &libc::seccomp_data) -> Option<Site> {
        if self.rounds != 1 || self.is_over || (is_first && self.is_paused) {
            return None;
        }
        let number = libc::c_long::from(data.nr);
        let call = CALLS.iter().position(|call| call.number == number)?;
        if !is_corewires(&CALLS[call], data) {
            return None;
        }
        let thread = match (is_first, self.helpers.contains(&thread)) {
            (true, _) => Thread::First,
            (_, true) => Thread::Helper,
            _ => Thread::Control,
        };
        let next = self.counts.entry((thread, call)).or_default();
        let site = Site { thread, call, count: *next };
        *next += 1;
        self.made.push(site);
        Some(site)
    }
}

/// `number` if it is a call by which a thread waits for descriptors.
fn poll_number(number: libc::c_long) -> libc::c_long {
    #[cfg(target_arch = "x86_64")]
    if number == libc::SYS_poll {
        return number;
    }
    let _ = number;
    libc::SYS_ppoll
}

#[expect(clippy::cast_possible_truncation, reason = "it is 1")]
const CONTINUE: u32 = libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32;

/// Receives the next call that waits for an answer. `None` if its thread has just died.
fn next(listener: &OwnedFd) -> Option<libc::seccomp_notif> {
    // SAFETY: a struct of integers, for which zero is valid; the kernel requires zeroes.
    let mut notice: libc::seccomp_notif = unsafe { std::mem::zeroed() };
    let descriptor = listener.as_fd().as_raw_fd();
    // SAFETY: the request fills a `seccomp_notif`.
    let result =
        unsafe { libc::ioctl(descriptor, libc::SECCOMP_IOCTL_NOTIF_RECV, &raw mut notice) };
    (result == 0).then_some(notice)
}

/// Answers a call: with an error, or by letting the kernel execute it. The thread may already be
/// dead.
fn respond(listener: &OwnedFd, id: u64, error: i32, flags: u32) {
    let mut response = libc::seccomp_notif_resp { id, val: 0, error, flags };
    let descriptor = listener.as_fd().as_raw_fd();
    // SAFETY: the request reads a `seccomp_notif_resp`.
    unsafe { libc::ioctl(descriptor, libc::SECCOMP_IOCTL_NOTIF_SEND, &raw mut response) };
}
