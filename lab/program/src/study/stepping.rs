//! Steps another process instruction by instruction (ptrace) between its marks, and counts. This counts what callgrind
//! counts, but knows every system call.
//!
//! The process prints the address of its mark and waits for a line. Then, before each stretch that is to be counted, it
//! sends itself SIGWINCH, which stops it if it is traced and has no effect otherwise; in a stretch the mark is odd.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};

use corewire_os::processor;
use nix::errno::Errno;
use nix::sys::ptrace;
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use crate::study::failure::{Doing, Failure};

const WHAT: &str = "step through a process (ptrace)";

/// What was counted while a mark was odd.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Stretch {
    /// What the mark was.
    pub(crate) mark: u64,
    /// An instruction that repeats itself counts once.
    pub(crate) instructions: u64,
    pub(crate) system_calls: u64,
    /// Calls of the functions whose addresses follow that of the mark in the first line of the process.
    pub(crate) calls: u64,
}

/// Runs `job` in a thread that shares a processor with the processes that it starts, because they alternate at each step.
pub(crate) fn on_one_processor<R: Send>(
    job: impl FnOnce() -> Result<R, Failure> + Send,
) -> Result<R, Failure> {
    let pinned = || {
        let cpus = processor::allowed().doing("ask for processors")?;
        let first = cpus.first().copied().unwrap_or_default();
        processor::pin_to(first).doing(format_args!("keep to processor {first}"))?;
        job()
    };
    let counted = std::thread::scope(|scope| scope.spawn(pinned).join());
    counted.unwrap_or_else(|_| Err(Failure::other("counting instructions panicked")))
}

/// Counts each stretch of the process that `command` starts, until it ends. Call it in [`on_one_processor`].
pub(crate) fn count(command: &mut Command) -> Result<Vec<Stretch>, Failure> {
    let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let mut stepped = Stepped { child: child.doing("start a process")?, has_ended: false };
    stepped.count()
}

/// A process that is stepped.
struct Stepped {
    child: Child,
    /// The process has ended, so its id may belong to another process.
    has_ended: bool,
}

impl Stepped {
    fn count(&mut self) -> Result<Vec<Stretch>, Failure> {
        let mut line = String::new();
        if let Some(output) = &mut self.child.stdout {
            BufReader::new(output).read_line(&mut line).doing(WHAT)?;
        }
        let addresses = line.split_whitespace().map(|word| u64::from_str_radix(word, 16));
        let addresses = addresses.collect::<Result<Vec<u64>, _>>().doing(WHAT)?;
        let Some((&mark, functions)) = addresses.split_first() else {
            return Err(too_soon("it printed no mark"));
        };
        let tid = Pid::from_raw(self.child.id().cast_signed());
        ptrace::seize(tid, ptrace::Options::empty()).doing(WHAT)?;
        ptrace::interrupt(tid).doing(WHAT)?;
        waitpid(tid, Some(WaitPidFlag::__WALL)).doing(WHAT)?;
        if let Some(input) = &mut self.child.stdin {
            input.write_all(b"\n").doing(WHAT)?;
        }
        let tracer = Tracer { tid, mark: mark as ptrace::AddressType, functions };
        let mut stretches = Vec::new();
        loop {
            ptrace::cont(tid, None).doing(WHAT)?;
            match waitpid(tid, Some(WaitPidFlag::__WALL)).doing(WHAT)? {
                WaitStatus::Stopped(_, Signal::SIGWINCH) => {
                    stretches.push(tracer.step_to_mark().doing(WHAT)?);
                }
                WaitStatus::Exited(_, 0) => {
                    self.has_ended = true;
                    return Ok(stretches);
                }
                other => {
                    self.has_ended =
                        matches!(other, WaitStatus::Exited(..) | WaitStatus::Signaled(..));
                    return Err(too_soon(&format!("{other:?}")));
                }
            }
        }
    }
}

fn too_soon(why: &str) -> Failure {
    Failure::other(format!("what was counted ended too soon: {why}"))
}

impl Drop for Stepped {
    fn drop(&mut self) {
        if !self.has_ended {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// The thread that is stepped, and where to look in it.
struct Tracer<'a> {
    tid: Pid,
    mark: ptrace::AddressType,
    functions: &'a [u64],
}

impl Tracer<'_> {
    /// Steps until the mark is even again.
    fn step_to_mark(&self) -> Result<Stretch, Errno> {
        let mut stretch = Stretch::default();
        let mut before = None;
        loop {
            let here = place(self.tid)?;
            let is_counted = stretch.mark % 2 == 1;
            // An instruction that repeats itself stops at each turn.
            if is_counted && (here.is_none() || here != before) {
                stretch.instructions += 1;
                if let Some(at) = here {
                    stretch.system_calls += u64::from(is_system_call(self.tid, at)?);
                    stretch.calls += u64::from(self.functions.contains(&at));
                }
            }
            before = here;
            ptrace::step(self.tid, None)?;
            waitpid(self.tid, Some(WaitPidFlag::__WALL))?;
            let mark = ptrace::read(self.tid, self.mark)?.cast_unsigned();
            if mark % 2 == 1 {
                stretch.mark = mark;
            } else if is_counted {
                return Ok(stretch);
            }
        }
    }
}

/// The address of the next instruction; `None` where it is not known how to ask for it.
#[cfg(target_arch = "x86_64")]
fn place(tid: Pid) -> Result<Option<u64>, Errno> {
    Ok(Some(ptrace::getregs(tid)?.rip))
}

#[cfg(not(target_arch = "x86_64"))]
fn place(_: Pid) -> Result<Option<u64>, Errno> {
    Ok(None)
}

/// Whether the instruction at `at` enters the kernel.
fn is_system_call(tid: Pid, at: u64) -> Result<bool, Errno> {
    let bytes = ptrace::read(tid, at as ptrace::AddressType)?.to_le_bytes();
    Ok(bytes[..2] == [0x0f, 0x05])
}
