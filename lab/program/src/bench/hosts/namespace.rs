//! A network of two hosts on one machine: a namespace for each process, and a pair of devices between them.
//!
//! Only root can make them. Otherwise both processes stay where they are, and connect over the loopback.

use std::net::Ipv4Addr;
use std::process::Command;

use rustix::thread::{UnshareFlags, unshare_unsafe};

use super::super::prelude::*;

/// The addresses of the controller and of its worker.
pub(super) const ADDRESSES: [Ipv4Addr; 2] =
    [Ipv4Addr::new(10, 77, 0, 1), Ipv4Addr::new(10, 77, 0, 2)];
const DEVICES: [&str; 2] = ["corewire0", "corewire1"];

/// Leaves the network of this process for one of its own. False if it may not.
pub(super) fn has_left() -> bool {
    // SAFETY: only the network of this thread's process changes, in which it has no socket yet.
    let left = unsafe { unshare_unsafe(UnshareFlags::NEWNET) };
    left.is_ok() && run("ip", &["link", "set", "lo", "up"]).is_ok()
}

/// Connects the network of this process with that of process `pid`.
pub(super) fn connect(pid: u32) -> Result<(), Failure> {
    let pid = pid.to_string();
    let [own, other] = DEVICES;
    run("ip", &["link", "add", own, "type", "veth", "peer", "name", other, "netns", &pid])?;
    let there = ["-t", &pid, "-n", "ip"];
    for (device, address, is_here) in [(own, ADDRESSES[0], true), (other, ADDRESSES[1], false)] {
        let address = format!("{address}/24");
        for what in [&["addr", "add", &address, "dev", device][..], &["link", "set", device, "up"]]
        {
            match is_here {
                true => run("ip", what)?,
                false => run("nsenter", &[&there[..], what].concat())?,
            }
        }
    }
    Ok(())
}

fn run(program: &str, arguments: &[&str]) -> Result<(), Failure> {
    let output = Command::new(program).args(arguments).output();
    let output =
        output.map_err(|error| Failure::other(format!("cannot run {program}: {error}")))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(Failure::other(format!("{program} {}: {}", arguments.join(" "), said.trim())))
}
