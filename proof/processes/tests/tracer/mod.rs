//! Counts the system calls of all threads of a process, with ptrace.

use std::fs;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};

/// Numbers of system calls.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Calls {
    /// All but yields.
    pub(crate) count: u64,
    /// Yields of the processor.
    pub(crate) yields: u64,
}

/// Traces one process from a thread of its own: tracees belong to the thread that traces them.
pub(crate) struct Tracer {
    process: u32,
    follower: JoinHandle<Calls>,
    over: Sender<()>,
}

impl Tracer {
    /// Starts to count.
    pub(crate) fn attach(process: u32) -> Self {
        let (ready, is_ready) = channel();
        let (over, is_over) = channel();
        let follower = thread::spawn(move || follow(process, &ready, &is_over));
        is_ready.recv().unwrap();
        Self { process, follower, over }
    }

    /// Stops counting. Returns the numbers of calls.
    pub(crate) fn detach(self) -> Calls {
        self.over.send(()).unwrap();
        // The first thread blocks no signals and ignores this one, which only makes the thread
        // stop.
        // SAFETY: sends a signal to a live child of this process.
        unsafe { libc::syscall(libc::SYS_tgkill, self.process, self.process, libc::SIGURG) };
        self.follower.join().unwrap()
    }
}

fn threads_of(process: u32) -> Vec<i32> {
    let entries = fs::read_dir(format!("/proc/{process}/task")).unwrap();
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect()
}

fn request(what: libc::c_uint, thread: i32, data: usize) -> i64 {
    // SAFETY: the requests used here take no address, and their data by value.
    unsafe { libc::ptrace(what, thread, std::ptr::null_mut::<u8>(), data) }
}

/// Waits until a thread that this thread traces stops; -1 means any thread.
fn wait_for(thread: i32) -> (i32, i32) {
    let mut status = 0;
    // SAFETY: `status` is a local variable.
    let stopped =
        unsafe { libc::waitpid(thread, &raw mut status, libc::__WALL | libc::__WNOTHREAD) };
    assert!(stopped > 0 && libc::WIFSTOPPED(status), "a traced thread ended");
    (stopped, status)
}

fn follow(process: u32, ready: &Sender<()>, is_over: &Receiver<()>) -> Calls {
    let threads = threads_of(process);
    for &thread in &threads {
        let options = usize::try_from(libc::PTRACE_O_TRACESYSGOOD).unwrap();
        assert_eq!(request(libc::PTRACE_SEIZE, thread, options), 0, "trace {thread}");
        request(libc::PTRACE_INTERRUPT, thread, 0);
    }
    for &thread in &threads {
        wait_for(thread);
        request(libc::PTRACE_SYSCALL, thread, 0);
    }
    ready.send(()).unwrap();
    let mut calls = Calls::default();
    loop {
        let (thread, status) = wait_for(-1);
        if is_over.try_recv().is_ok() {
            request(libc::PTRACE_DETACH, thread, 0);
            for &other in threads.iter().filter(|&&other| other != thread) {
                request(libc::PTRACE_INTERRUPT, other, 0);
                wait_for(other);
                request(libc::PTRACE_DETACH, other, 0);
            }
            break;
        }
        let signal = libc::WSTOPSIG(status);
        let is_call = signal == libc::SIGTRAP | 0x80;
        match entered(thread).filter(|_| is_call) {
            Some(number) if number == libc::SYS_sched_yield.cast_unsigned() => calls.yields += 1,
            Some(_) => calls.count += 1,
            None => {}
        }
        let deliver =
            if is_call || signal == libc::SIGTRAP { 0 } else { usize::try_from(signal).unwrap() };
        request(libc::PTRACE_SYSCALL, thread, deliver);
    }
    calls
}

/// The number of the system call that a stopped thread is about to make; `None` if it returns from one.
fn entered(thread: i32) -> Option<u64> {
    // SAFETY: all fields are integers, or unions of them.
    let mut info: libc::ptrace_syscall_info = unsafe { std::mem::zeroed() };
    let bytes = size_of_val(&info);
    // SAFETY: the kernel writes at most `bytes` bytes.
    let got = unsafe {
        libc::ptrace(libc::PTRACE_GET_SYSCALL_INFO, thread, bytes, (&raw mut info).cast::<u8>())
    };
    if got <= 0 || info.op != libc::PTRACE_SYSCALL_INFO_ENTRY {
        return None;
    }
    // SAFETY: this is the variant of an entry.
    Some(unsafe { info.u.entry.nr })
}
