//! A message bus of the study's own: a `dbus-daemon` with its own configuration and socket.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use corewire_harness::crew::Crew;
use corewire_harness::role::Role;
use corewire_os::processor;
use serde::Serialize;

use super::dbus::ADDRESS;
use crate::study::failure::{Doing, Failure};

const DAEMON: &str = "dbus-daemon";
/// Ends the daemon once standard input is closed, so that it does not outlive a study that is killed. The shell keeps
/// no output open: otherwise reading the address would wait forever if the daemon fails.
const SCRIPT: &str = "trap '' INT; dbus-daemon --config-file=\"$1\" --nofork --nopidfile --print-address=1 & \
                      exec >&- 2>&-; read -r _; kill $!; wait";

/// A running daemon. It ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Bus {
    shell: Child,
    address: String,
}

/// Starts the process of a crew with this index. It finds the bus, if there is one.
pub(crate) fn add_worker<O: Serialize>(
    crew: &mut Crew,
    bus: Option<&Bus>,
    index: usize,
    (role, order): (&Role<O>, &O),
) -> Result<(), Failure> {
    let words = crew.command_of(index, role, order)?;
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).envs(bus.map(|bus| (ADDRESS, &bus.address)));
    crew.add(&mut command)
}

/// Why there can be no bus here; `None` if there can.
pub(super) fn absence() -> Option<String> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let is_there = std::env::split_paths(&path).any(|directory| directory.join(DAEMON).is_file());
    (!is_there).then(|| {
        format!("{DAEMON} is not installed (Debian: the package dbus-daemon; elsewhere often dbus)")
    })
}

impl Bus {
    /// Starts a daemon whose files are in `directory`. It runs on processor `cpu`, or where the kernel puts it.
    pub(crate) fn start(directory: &Path, cpu: Option<usize>) -> Result<Self, Failure> {
        let config = directory.join("bus.conf");
        let socket = directory.join("bus").display().to_string();
        fs::write(&config, include_str!("bus.conf").replace("{socket}", &socket))
            .doing(format_args!("write {}", config.display()))?;
        let mut command = Command::new("sh");
        command.args(["-c", SCRIPT, "sh"]).arg(&config);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // A process inherits the processors of the one that starts it.
        let cpus = processor::allowed().doing("ask for processors")?;
        if let Some(cpu) = cpu {
            processor::pin_to(cpu).doing(format_args!("keep to processor {cpu}"))?;
        }
        let shell = command.spawn().doing("start sh");
        processor::keep_to(&cpus).doing("use all processors")?;
        let mut bus = Self { shell: shell?, address: String::new() };
        let mut output =
            BufReader::new(bus.shell.stdout.take().ok_or_else(|| Failure::other("no pipe"))?);
        output.read_line(&mut bus.address).doing("read the bus' address")?;
        bus.address.truncate(bus.address.trim_end().len());
        if bus.address.is_empty() {
            return Err(Failure::other(format!("cannot start {DAEMON}: {}", bus.complaint())));
        }
        Ok(bus)
    }

    /// What a daemon that has ended wrote.
    fn complaint(&mut self) -> String {
        let Some(errors) = self.shell.stderr.take() else { return String::new() };
        let lines = BufReader::new(errors).lines().map_while(Result::ok);
        lines.filter(|line| !line.is_empty()).last().unwrap_or_default()
    }
}

impl Drop for Bus {
    fn drop(&mut self) {
        drop(self.shell.stdin.take());
        let _ = self.shell.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::study::runner::Scratch;

    /// A directory for a bus; `None` if there can be no bus here.
    fn directory() -> Option<Scratch> {
        if let Some(why) = absence() {
            eprintln!("skipped: {why}");
            return None;
        }
        let scratch = Scratch::new().unwrap();
        fs::create_dir(&scratch.0).unwrap();
        Some(scratch)
    }

    #[test]
    fn a_daemon_ends_with_its_bus() {
        let Some(scratch) = directory() else { return };
        let bus = Bus::start(&scratch.0, None).unwrap();
        assert!(bus.address.starts_with("unix:path="), "{}", bus.address);
        let id = bus.shell.id();
        let children = || fs::read_to_string(format!("/proc/{id}/task/{id}/children"));
        let daemon = children().unwrap().trim().to_owned();
        let status = || fs::metadata(format!("/proc/{daemon}"));
        assert!(status().is_ok());
        drop(bus);
        assert!(status().is_err(), "the daemon still runs");
    }

    #[test]
    fn a_daemon_that_cannot_listen_says_why() {
        let Some(scratch) = directory() else { return };
        let long = scratch.0.join("x".repeat(120));
        fs::create_dir(&long).unwrap();
        let failure = Bus::start(&long, None).unwrap_err();
        assert!(failure.message.starts_with("cannot start dbus-daemon: "), "{failure}");
        assert!(failure.message.len() > 30, "{failure}");
    }
}
