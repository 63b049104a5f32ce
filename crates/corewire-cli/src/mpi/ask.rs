//! Asking a program something about itself.

use std::io::Read;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use corewire_os::event::wait_readable;
use rustix::process::{Pid, Signal, kill_process_group};

/// How long a program may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// The longest answer that is read: `ompi_info` lists all parameters.
const ANSWER_BYTES_MAX: usize = 4 << 20;

/// What `program` prints on standard output with these arguments; `None` if it cannot be run. It is ended if it takes longer
/// than ten seconds, with all that it has started, and what it has printed until then is the answer.
pub(super) fn ask(program: &Path, arguments: &[&str]) -> Option<String> {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.process_group(0).spawn().ok()?;
    let mut output = child.stdout.take()?;
    let until = Instant::now() + PATIENCE;
    let mut answer = Vec::new();
    let mut buffer = [0; 64 << 10];
    while answer.len() < ANSWER_BYTES_MAX {
        if !matches!(wait_readable(&[output.as_fd()], Some(until)).as_deref(), Ok([true])) {
            break;
        }
        match output.read(&mut buffer) {
            Ok(0) | Err(_) => break,
            Ok(length) => answer.extend_from_slice(&buffer[..length]),
        }
    }
    // It has ended, or is not to go on. Its number is its own until it is reaped.
    let _ = kill_process_group(Pid::from_child(&child), Signal::KILL);
    let _ = child.wait();
    Some(String::from_utf8_lossy(&answer).into_owned())
}
