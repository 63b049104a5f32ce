//! Counts the system calls of Table I: those between a run's marks, and the bytes that went through
//! them. It stops each process at every system call (ptrace).

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::ptrace;
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use corewire_harness::crew::Crew;

use super::results::Count;
use super::worker::{Report, Task, start};
use crate::study::failure::{Doing, Failure};
use crate::study::interrupt;
use crate::study::mechanisms::{Id, Kind, Shape};

/// A run takes long when it is stopped at every system call.
const PATIENCE: Duration = Duration::from_secs(60);

/// What one process did between its marks.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Calls {
    calls: u64,
    yields: u64,
    /// Bytes copied into the kernel, and out of it.
    kernel_bytes: u64,
}

/// A traced thread, which stops at its system calls.
struct Thread {
    tid: Pid,
    /// The index of its process.
    process: usize,
    /// The number and the third argument of the call that it is in.
    inside: Option<(i64, u64)>,
}

/// Enough messages to detect a thousandth of a call where none is expected, but not too many where each
/// call takes two stops.
fn messages(id: Id, bytes: usize) -> u64 {
    let enters_kernel = id.about().kind == Kind::Kernel || id == Id::SharedMemorySemaphores;
    match (enters_kernel, bytes) {
        (true, ..4096) => 500,
        (true, ..=4096) => 200,
        (true, _) => 20,
        (false, ..4096) => 50_000,
        (false, ..=4096) => 20_000,
        (false, _) => 5_000,
    }
}

/// Runs a mechanism and counts its system calls.
pub(super) fn count(id: Id, shape: Shape, scratch: &Path) -> Result<Count, Failure> {
    let task = Task::Count { messages: messages(id, shape.bytes), is_late: false };
    let mut crew = start(id, shape, task, scratch)?;
    crew.await_ready()?;
    let processes = crew.pids().count();
    let mut tracer = Tracer {
        threads: Vec::new(),
        marks: vec![0; processes],
        calls: vec![Calls::default(); processes],
    };
    tracer.seize(&crew)?;
    crew.go();
    tracer.follow()?;
    let calls = std::mem::take(&mut tracer.calls);
    drop(tracer);
    let reports: Vec<Report> = crew.reports()?;
    let senders = shape.senders as usize;
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
    let a_message = |process: usize, what: u64| {
        // A receiver also makes calls for the mark at the end.
        let messages = reports[process].messages + u64::from(process >= senders);
        what as f64 / messages.max(1) as f64
    };
    let of_receivers = |of: &dyn Fn(usize) -> f64| (senders..processes).map(of).sum::<f64>();
    #[expect(clippy::cast_precision_loss, reason = "a message's length")]
    let copies = |process: usize| {
        let bytes_copied = calls[process].kernel_bytes + reports[process].copied_bytes;
        a_message(process, bytes_copied) / shape.bytes as f64
    };
    Ok(Count {
        mechanism: id.text(),
        bytes: shape.bytes as u64,
        receivers: shape.receivers,
        impossible: None,
        send_copies: copies(0),
        receive_copies: of_receivers(&copies),
        send_calls: a_message(0, calls[0].calls),
        receive_calls: of_receivers(&|process| a_message(process, calls[process].calls)),
        yields: a_message(0, calls[0].yields)
            + of_receivers(&|process| a_message(process, calls[process].yields)),
    })
}

struct Tracer {
    threads: Vec<Thread>,
    /// How many marks each process has passed.
    marks: Vec<u32>,
    calls: Vec<Calls>,
}

impl Tracer {
    /// Stops every thread of every process, then lets it run to its next system call.
    fn seize(&mut self, crew: &Crew) -> Result<(), Failure> {
        let what = "trace a process (ptrace)";
        for (process, pid) in crew.pids().enumerate() {
            let tasks = fs::read_dir(format!("/proc/{pid}/task")).doing(what)?;
            let tids = tasks.filter_map(|task| task.ok()?.file_name().to_str()?.parse().ok());
            for tid in tids.map(Pid::from_raw) {
                ptrace::seize(tid, ptrace::Options::PTRACE_O_TRACESYSGOOD).doing(what)?;
                self.threads.push(Thread { tid, process, inside: None });
                ptrace::interrupt(tid).doing(what)?;
                waitpid(tid, Some(WaitPidFlag::__WALL)).doing(what)?;
                ptrace::syscall(tid, None).doing(what)?;
            }
        }
        Ok(())
    }

    /// Follows the threads until every process has passed its second mark.
    fn follow(&mut self) -> Result<(), Failure> {
        let begun = Instant::now();
        while !self.threads.is_empty() {
            if interrupt::is_wanted() {
                return Err(interrupt::failure());
            }
            if begun.elapsed() > PATIENCE {
                return Err(Failure::other("counting system calls takes too long"));
            }
            let mut has_moved = false;
            let mut index = 0;
            while index < self.threads.len() {
                let (moved, stays) = self.look_at(index)?;
                has_moved |= moved;
                if stays {
                    index += 1;
                } else {
                    self.threads.swap_remove(index);
                }
            }
            self.let_go_of_others();
            if !has_moved {
                std::thread::yield_now();
            }
        }
        Ok(())
    }

    /// Returns whether the thread had stopped, and whether it is still traced.
    fn look_at(&mut self, index: usize) -> Result<(bool, bool), Failure> {
        let tid = self.threads[index].tid;
        let what = "wait for a traced process";
        let flags = WaitPidFlag::__WALL | WaitPidFlag::WNOHANG;
        match waitpid(tid, Some(flags)) {
            Ok(WaitStatus::StillAlive) => return Ok((false, true)),
            Ok(WaitStatus::PtraceSyscall(_)) => {
                if self.note(index)? {
                    ptrace::detach(tid, None).doing(what)?;
                    return Ok((true, false));
                }
                resume(tid, None)?;
            }
            Ok(WaitStatus::Stopped(_, signal)) => resume(tid, Some(signal))?,
            Ok(WaitStatus::Exited(..) | WaitStatus::Signaled(..)) => {
                return Err(Failure::other("a traced process ended before its second mark"));
            }
            Ok(_) => resume(tid, None)?,
            Err(Errno::ECHILD) => return Ok((true, false)),
            Err(error) => return Err(error).doing(what),
        }
        Ok((true, true))
    }

    /// Records a stop before or after a system call. Returns true at the second mark.
    fn note(&mut self, index: usize) -> Result<bool, Failure> {
        let Self { threads, marks, calls } = self;
        let thread = &mut threads[index];
        let process = thread.process;
        match stop(thread.tid)? {
            Stop::Entry { number, third } => {
                thread.inside = Some((number, third));
                if number == libc::SYS_getppid {
                    marks[process] += 1;
                    return Ok(marks[process] == 2);
                }
                if marks[process] == 1 {
                    let is_yield = number == libc::SYS_sched_yield;
                    calls[process].calls += u64::from(!is_yield);
                    calls[process].yields += u64::from(is_yield);
                }
            }
            Stop::Exit { result } => {
                if let Some((number, third)) = thread.inside.take()
                    && marks[process] == 1
                {
                    calls[process].kernel_bytes += bytes_of(number, third, result);
                }
            }
            Stop::Other => {}
        }
        Ok(false)
    }

    /// Detaches from the other threads of processes that have passed their second mark.
    fn let_go_of_others(&mut self) {
        let marks = &self.marks;
        let others = self.threads.extract_if(.., |thread| marks[thread.process] == 2);
        others.for_each(|thread| let_go(thread.tid));
    }
}

impl Drop for Tracer {
    fn drop(&mut self) {
        self.threads.iter().for_each(|thread| let_go(thread.tid));
    }
}

/// Stops tracing a thread. A thread that has ended must be waited for, or its process never ends.
fn let_go(tid: Pid) {
    // A thread that has stopped already continues at once. For a running thread, the call fails.
    if ptrace::detach(tid, None).is_ok() {
        return;
    }
    let is_there = ptrace::interrupt(tid).is_ok();
    let stopped = waitpid(tid, Some(WaitPidFlag::__WALL));
    if is_there && stopped.is_ok() {
        // It continues, whatever it was stopped for.
        let _ = ptrace::detach(tid, None);
    }
}

fn resume(tid: Pid, signal: Option<Signal>) -> Result<(), Failure> {
    let signal = signal.filter(|&signal| signal != Signal::SIGTRAP);
    match ptrace::syscall(tid, signal) {
        // It has been killed in the meantime.
        Err(Errno::ESRCH) => Ok(()),
        result => result.doing("let a traced process go on"),
    }
}

/// Where a thread has stopped, relative to a system call.
enum Stop {
    Entry { number: i64, third: u64 },
    Exit { result: i64 },
    Other,
}

fn stop(tid: Pid) -> Result<Stop, Failure> {
    let info = ptrace::syscall_info(tid).doing("ask for a system call (Linux 5.3 or newer)")?;
    Ok(match info.op {
        libc::PTRACE_SYSCALL_INFO_ENTRY => {
            // SAFETY: `op` says that the union holds an entry.
            let entry = unsafe { info.u.entry };
            Stop::Entry { number: entry.nr.cast_signed(), third: entry.args[2] }
        }
        libc::PTRACE_SYSCALL_INFO_EXIT => {
            // SAFETY: `op` says that the union holds an exit.
            Stop::Exit { result: unsafe { info.u.exit }.sval }
        }
        _ => Stop::Other,
    })
}

/// The number of message bytes that a system call has copied.
fn bytes_of(number: i64, third: u64, result: i64) -> u64 {
    let result = u64::try_from(result).ok();
    match number {
        libc::SYS_write
        | libc::SYS_sendto
        | libc::SYS_read
        | libc::SYS_recvfrom
        | libc::SYS_msgrcv
        | libc::SYS_mq_timedreceive => result.unwrap_or_default(),
        // These calls return only whether they succeeded.
        libc::SYS_msgsnd | libc::SYS_mq_timedsend => result.map_or(0, |_| third),
        _ => 0,
    }
}
