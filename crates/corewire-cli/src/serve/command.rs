//! A command that runs for one request, and what ends it.

use std::ffi::{OsStr, OsString};
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use corewire::OwnedMessage;
use corewire_os::event::{Bell, wait_readable};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};

use crate::{output, units};

/// How long a command that must end may take to do so by itself.
const GRACE: Duration = Duration::from_secs(1);

/// What is run for each request, and how far it may go.
#[derive(Debug, Clone)]
pub(super) struct Commands {
    /// The program and its arguments.
    pub(super) words: Vec<OsString>,
    /// How long it may run.
    pub(super) timeout: Option<Duration>,
    /// The longest reply, and the longest request.
    pub(super) bytes_max: usize,
}

/// Why a command is ended.
enum Excess {
    TooLong,
    TooMuch,
    /// Nobody waits for its reply.
    CallerGone,
}

impl Commands {
    /// Runs the command with `request` as its standard input, until `gone` rings. Returns its standard output.
    pub(super) fn run(
        &self,
        peer: &str,
        request: OwnedMessage,
        gone: &Bell,
    ) -> Result<Vec<u8>, String> {
        let program = shown(&self.words[0]);
        let failed = |what: &str| format!("{program} for a request of {peer}: {what}");
        let limit = units::size(self.bytes_max as u64);
        if request.len() > self.bytes_max {
            let asked = units::size(request.len() as u64);
            return Err(failed(&format!("{asked} are more than {limit} (--largest); not run")));
        }
        let mut child = Command::new(&self.words[0])
            .args(&self.words[1..])
            .env("COREWIRE_PEER", peer)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // A terminal's Ctrl-C is for serve, which waits for its commands. It is ended with all that it has started.
            .process_group(0)
            .spawn()
            .map_err(|error| failed(&format!("cannot be run: {error}")))?;
        if let Some(mut input) = child.stdin.take() {
            // Not waited for: the command need not read everything, and what it has started may keep its input open. What
            // is wrong with its input is the command's to say.
            let write = move || drop(input.write_all(&request));
            // If no thread can be started, its input is empty.
            if let Err(error) = thread::Builder::new().name("corewire-input".into()).spawn(write) {
                output::note(format!("cannot start a thread: {error}"));
            }
        }
        let mut running = Running::new(child).map_err(|error| failed(&error.to_string()))?;
        let until = self.timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        match running.read_to_end(self.bytes_max, until, gone) {
            Ok(reply) => match running.reap().map_err(|error| failed(&error.to_string()))? {
                status if status.success() => Ok(reply),
                status => Err(failed(&status.to_string())),
            },
            Err(excess) => {
                running.end();
                let after = self.timeout.unwrap_or_default().as_secs_f64();
                Err(failed(&match excess {
                    Excess::TooLong => format!("ended after {after} s (--timeout)"),
                    Excess::TooMuch => {
                        format!("ended: its reply is longer than {limit} (--largest)")
                    }
                    Excess::CallerGone => "ended: its caller has gone".to_owned(),
                }))
            }
        }
    }
}

/// A command that runs. It ends with this at the latest.
struct Running {
    child: Child,
    process: OwnedFd,
    output: Option<ChildStdout>,
    is_reaped: bool,
}

impl Running {
    fn new(mut child: Child) -> std::io::Result<Self> {
        let process = pidfd_open(Pid::from_child(&child), PidfdFlags::empty());
        let process = process.inspect_err(|_| {
            let _ = child.kill();
            let _ = child.wait();
        })?;
        let output = child.stdout.take();
        let running = Self { child, process, output, is_reaped: false };
        if let Some(output) = &running.output {
            rustix::io::ioctl_fionbio(output, true)?;
        }
        Ok(running)
    }

    /// Reads its output, until the command has ended and nothing has its output open.
    fn read_to_end(
        &mut self,
        bytes_max: usize,
        until: Option<Instant>,
        gone: &Bell,
    ) -> Result<Vec<u8>, Excess> {
        let mut reply = Vec::new();
        let mut has_ended = false;
        while self.output.is_some() || !has_ended {
            let mut waits = vec![gone.as_fd()];
            match &self.output {
                Some(output) => waits.push(output.as_fd()),
                None => waits.push(self.process.as_fd()),
            }
            // It fails only where no memory is left: then what has come is all.
            let ready = wait_readable(&waits, until).unwrap_or_else(|_| vec![false, true]);
            if ready[0] {
                return Err(Excess::CallerGone);
            }
            if !ready[1] {
                return Err(Excess::TooLong);
            }
            let Some(output) = &mut self.output else {
                has_ended = true;
                continue;
            };
            let before = reply.len();
            let left = (bytes_max - before) as u64;
            match output.by_ref().take(left + 1).read_to_end(&mut reply) {
                Ok(_) if reply.len() > bytes_max => return Err(Excess::TooMuch),
                // Less than there may be is its end.
                Ok(_) => self.output = None,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    if reply.len() > bytes_max {
                        return Err(Excess::TooMuch);
                    }
                }
                Err(_) => self.output = None,
            }
        }
        Ok(reply)
    }

    fn reap(&mut self) -> std::io::Result<ExitStatus> {
        let status = self.child.wait();
        self.is_reaped = true;
        status
    }

    /// Ends it, and all that it has started in its process group.
    fn end(&mut self) {
        if self.is_reaped {
            return;
        }
        // Its number is its own until it is reaped.
        let group = Pid::from_child(&self.child);
        let _ = kill_process_group(group, Signal::TERM);
        let _ = wait_readable(&[self.process.as_fd()], Some(Instant::now() + GRACE));
        let _ = kill_process_group(group, Signal::KILL);
        let _ = self.reap();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end();
    }
}

pub(super) fn shown(program: &OsStr) -> String {
    units::printable(&program.to_string_lossy())
}
