//! The receiver processes, as seen by their parent.

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use corewire::Sender;

use crate::args::RECEIVE;
use crate::failure::Failure;
use crate::protocol::Report;

/// Interval at which the parent checks whether a receiver has died, while it waits for all to join.
const LOOK: Duration = Duration::from_millis(100);

/// All receiver processes of a run. On drop, the processes that still run are killed.
pub(crate) struct Receivers(Vec<ReceiverProcess>);

/// One receiver process.
struct ReceiverProcess {
    /// Number of the receiver in messages, from 1.
    number: usize,
    child: Child,
    reports: BufReader<ChildStdout>,
}

impl Receivers {
    /// Starts `count` receivers. Receiver `i` runs on processor `pins[i]`, if there is such an entry.
    pub(crate) fn start(directory: &Path, count: usize, pins: &[usize]) -> Result<Self, Failure> {
        let mut receivers = Self(Vec::with_capacity(count));
        for index in 0..count {
            // This very program, even if its file has been replaced in the meantime.
            let mut command = Command::new("/proc/self/exe");
            command.arg0("file_fan_out").arg(RECEIVE).arg(directory);
            command.args(pins.get(index).map(usize::to_string));
            command.stdin(Stdio::null()).stdout(Stdio::piped());
            let number = index + 1;
            let started = command.spawn().and_then(|mut child| {
                let output = child.stdout.take().ok_or(std::io::ErrorKind::BrokenPipe)?;
                Ok(ReceiverProcess { number, child, reports: BufReader::new(output) })
            });
            receivers.0.push(started.map_err(|error| {
                Failure::other(format!("cannot start receiver {number} of {count}: {error}"))
            })?);
        }
        Ok(receivers)
    }

    /// Waits until all receivers have joined `sender`'s channel. Fails if one of them has died.
    pub(crate) fn await_joined(&mut self, sender: &mut Sender) -> Result<(), Failure> {
        while sender.wait_for_receivers_timeout(self.0.len(), LOOK)? < self.0.len() {
            for receiver in &mut self.0 {
                if receiver.child.try_wait().is_ok_and(|status| status.is_some()) {
                    return Err(receiver.next_report().err().unwrap_or_else(|| receiver.ended()));
                }
            }
        }
        Ok(())
    }

    /// The process ids, in the order of the receivers.
    pub(crate) fn pids(&self) -> Vec<u32> {
        self.0.iter().map(|receiver| receiver.child.id()).collect()
    }

    /// Waits for the next report of each receiver. Returns the reports in the order of the receivers.
    pub(crate) fn next_reports(&mut self) -> Result<Vec<Report>, Failure> {
        self.0.iter_mut().map(ReceiverProcess::next_report).collect()
    }

    /// Waits until all receivers have ended. The channel must be closed.
    pub(crate) fn finish(mut self) -> Result<(), Failure> {
        for receiver in &mut self.0 {
            let status = receiver.child.wait().map_err(Failure::other)?;
            if !status.success() {
                return Err(receiver.ended());
            }
        }
        Ok(())
    }
}

impl ReceiverProcess {
    fn next_report(&mut self) -> Result<Report, Failure> {
        let number = self.number;
        let mut line = String::new();
        let read = self.reports.read_line(&mut line);
        if read.map_err(|error| Failure::other(format!("receiver {number}: {error}")))? == 0 {
            return Err(self.ended());
        }
        match serde_json::from_str(&line) {
            Ok(Report::Failed { message }) => {
                Err(Failure::other(format!("receiver {number} failed: {message}")))
            }
            Ok(report) => Ok(report),
            Err(error) => Err(Failure::other(format!("receiver {number} said nonsense: {error}"))),
        }
    }

    /// The failure of a receiver that has ended, or is about to end, without a report.
    fn ended(&mut self) -> Failure {
        let how = self.child.wait().map_or_else(|error| error.to_string(), |s| s.to_string());
        Failure::other(format!("receiver {} ended too early: {how}", self.number))
    }
}

impl Drop for ReceiverProcess {
    fn drop(&mut self) {
        // The standard library does nothing for a child that has been waited for already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
