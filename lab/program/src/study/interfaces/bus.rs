//! A message bus of the study's own: a `dbus-daemon` with its own configuration and socket.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use corewire_os::processor;

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
        let text = configuration(&directory.join("bus"));
        fs::write(&config, text).doing(format_args!("write {}", config.display()))?;
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

    /// Where processes connect to it.
    pub(crate) fn address(&self) -> &str {
        &self.address
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

/// A session's bus, to which only processes of this user connect.
fn configuration(socket: &Path) -> String {
    format!(
        "<!DOCTYPE busconfig PUBLIC \"-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN\"\n \
         \"http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd\">\n\
         <busconfig>\n\
         <type>session</type>\n\
         <listen>unix:path={}</listen>\n\
         <auth>EXTERNAL</auth>\n\
         <policy context=\"default\">\n\
         <allow send_destination=\"*\" eavesdrop=\"true\"/>\n\
         <allow eavesdrop=\"true\"/>\n\
         <allow own=\"*\"/>\n\
         </policy>\n\
         </busconfig>\n",
        socket.display()
    )
}

#[cfg(test)]
mod tests {
    use corewire_os::random_u128;

    use super::*;
    use crate::study::zimp::Scratch;

    #[test]
    fn a_daemon_ends_with_its_bus() {
        if let Some(why) = absence() {
            eprintln!("skipped: {why}");
            return;
        }
        let directory = format!("study-bus-{:032x}", random_u128().unwrap());
        let scratch = Scratch(std::env::temp_dir().join(directory));
        fs::create_dir(&scratch.0).unwrap();
        let bus = Bus::start(&scratch.0, None).unwrap();
        assert!(bus.address().starts_with("unix:path="), "{}", bus.address());
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
        if let Some(why) = absence() {
            eprintln!("skipped: {why}");
            return;
        }
        let directory = format!("study-bus-{:032x}", random_u128().unwrap());
        let scratch = Scratch(std::env::temp_dir().join(directory));
        fs::create_dir(&scratch.0).unwrap();
        let long = scratch.0.join("x".repeat(120));
        fs::create_dir(&long).unwrap();
        let failure = Bus::start(&long, None).unwrap_err();
        assert!(failure.message.starts_with("cannot start dbus-daemon: "), "{failure}");
        assert!(failure.message.len() > 30, "{failure}");
    }
}
